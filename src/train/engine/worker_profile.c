/* See worker_profile.h. */
#include "train/engine/worker_profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/engine/engine_peers.h"
#include "train/setup/setup.h"

enum {
    WARM_UPS = 2,         /* steps of each batch size that are not counted */
    LEAST_STEPS = 3,      /* that are, however long they take */
    MOST_STEPS = 2000,    /* more would not make the medians better */
    TIMELINE_POINTS = 512 /* points of a step; later ones replace the last */
};

/* Of one step. */
typedef struct measured_step {
    double wait_s, compute_s, update_s, decode_s;
    fth_ready_point points[TIMELINE_POINTS];
    size_t count;
    double began_s;
} measured_step;

/* Of all steps of one batch size. */
typedef struct measured_steps {
    double *wait_s, *compute_s, *update_s, *decode_s;
    size_t count, capacity[4];
    /* Sums over steps: when each point was reached. All steps of a plan have the same points. */
    fth_ready_point points[TIMELINE_POINTS];
    size_t point_count;
} measured_steps;

static void note_ready(void *context, size_t floats)
{
    measured_step *step = context;
    if (step->count == TIMELINE_POINTS)
        step->count--;
    step->points[step->count++] =
        (fth_ready_point){.seconds = fth_clock_seconds() - step->began_s, .ready_floats = floats};
}

/* ---- statistics ---- */

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double quantile(double *values, size_t count, double share)
{
    qsort(values, count, sizeof *values, compare_doubles);
    return values[(size_t)(share * (double)(count - 1) + 0.5)];
}

/* The standard deviation of normally distributed numbers, from their quartiles: one step in which
 * the machine did something else does not count. */
static double find_deviation(double *values, size_t count)
{
    return count < 8 ? 0 : (quantile(values, count, 0.75) - quantile(values, count, 0.25)) / 1.349;
}

static fth_status add_step(measured_steps *steps, const measured_step *step)
{
    fth_status status = FTH_OK;
    size_t n = steps->count;

    FTH_TRY(fth_grow(&steps->wait_s, n, &steps->capacity[0], sizeof *steps->wait_s));
    FTH_TRY(fth_grow(&steps->compute_s, n, &steps->capacity[1], sizeof *steps->compute_s));
    FTH_TRY(fth_grow(&steps->update_s, n, &steps->capacity[2], sizeof *steps->update_s));
    FTH_TRY(fth_grow(&steps->decode_s, n, &steps->capacity[3], sizeof *steps->decode_s));
    steps->wait_s[n] = step->wait_s;
    steps->compute_s[n] = step->compute_s;
    steps->update_s[n] = step->update_s;
    steps->decode_s[n] = step->decode_s;
    if (n == 0)
        steps->point_count = step->count;
    for (size_t i = 0; i < steps->point_count && i < step->count; i++) {
        steps->points[i].seconds += step->points[i].seconds / step->compute_s;
        steps->points[i].ready_floats = step->points[i].ready_floats;
    }
    steps->count++;
out:
    return status;
}

static void release_steps(measured_steps *steps)
{
    free(steps->wait_s);
    free(steps->compute_s);
    free(steps->update_s);
    free(steps->decode_s);
}

/* ---- measuring ---- */

/* One update: all its batches but the last without, the last with a look at when gradients become
 * final. */
static fth_status train_step(const fth_setup *setup, fth_loader *loader, double rate, measured_step *step)
{
    fth_status status = FTH_OK;
    fth_engine *engine = setup->engine;
    const fth_gradients_watch watch = {step, note_ready};
    const fth_batch *batch = NULL;
    fth_group group;
    fth_step_result result;

    *step = (measured_step){0};
    do {
        double asked = fth_clock_seconds();
        FTH_TRY(fth_loader_next(loader, fth_deadline_in(FTH_LOADER_TIMEOUT_S), &batch));
        FTH_REQUIRE(batch, FTH_CORRUPT, "the loader has no more batches");
        step->wait_s += fth_clock_seconds() - asked;
        step->decode_s += batch->decode_seconds;
        group = fth_engine_group(engine, batch);
        step->began_s = fth_clock_seconds();
        if (group.last && setup->device->backend->host_memory)
            FTH_TRY(fth_engine_compute_watched(engine, batch, &group, &watch, &result));
        else
            FTH_TRY(fth_engine_compute(engine, batch, &group, &result));
        FTH_TRY(setup->device->backend->synchronize(setup->device, fth_deadline_in(FTH_LOADER_TIMEOUT_S)));
        step->compute_s = fth_clock_seconds() - step->began_s;
    } while (!group.last);
    double computed = fth_clock_seconds();
    FTH_TRY(fth_engine_update(engine, rate, group.update));
    FTH_TRY(setup->device->backend->synchronize(setup->device, fth_deadline_in(FTH_LOADER_TIMEOUT_S)));
    step->update_s = fth_clock_seconds() - computed;
out:
    return status;
}

/* The timeline as means over steps, in the median step's time. Where gradients are not in host
 * memory, they are passed on once all of them are there. */
static fth_status make_timeline(const fth_setup *setup, const measured_steps *steps, fth_worker_profile *profile)
{
    fth_status status = FTH_OK;
    fth_ready_point *points = NULL;
    size_t floats = fth_engine_get_sizes(setup->engine).trained, count = steps->point_count;

    FTH_TRY(fth_allocate(count + 1, sizeof *points, &points));
    for (size_t i = 0; i < count; i++)
        points[i] = (fth_ready_point){steps->points[i].seconds / (double)steps->count * profile->compute_s,
                                      steps->points[i].ready_floats};
    if (count == 0 || points[count - 1].ready_floats < floats)
        points[count++] = (fth_ready_point){profile->compute_s, floats};
    profile->timeline = points;
    profile->timeline_count = count;
out:
    return status;
}

static fth_status summarize(const fth_setup *setup, measured_steps *steps, fth_worker_profile *profile)
{
    size_t n = steps->count;
    double accumulate = (double)setup->options->optimizer.accumulate;
    int threads = (int)setup->options->data.loader_threads > 0 ? (int)setup->options->data.loader_threads
                  : fth_dataset_is_transformed(setup->dataset) ? fth_processors_usable()
                                                               : 1;
    *profile = (fth_worker_profile){.jitter_s = find_deviation(steps->compute_s, n),
                                    .compute_s = quantile(steps->compute_s, n, 0.5),
                                    .update_s = quantile(steps->update_s, n, 0.5),
                                    .data_s = quantile(steps->decode_s, n, 0.5) / threads};
    profile->before_s = (accumulate - 1) * profile->compute_s;
    /* Loaders that share processors with the computation are slower than their own time says: a
     * step that waits for them shows it. */
    double wait_s = quantile(steps->wait_s, n, 0.5);
    double step_s = profile->before_s + profile->compute_s + profile->update_s;
    if (wait_s > 0.02 * step_s)
        profile->data_s = fmax(profile->data_s, step_s + wait_s);
    return make_timeline(setup, steps, profile);
}

static fth_status profile_batch(const fth_setup *setup, double seconds, fth_stop *stop, fth_worker_profile *profile,
                                int64_t *counted)
{
    fth_status status = FTH_OK;
    fth_loader *loader = NULL;
    measured_step *step = NULL;
    measured_steps *steps = NULL;
    double rate = fth_engine_learning_rate(setup->engine) * 1e-6; /* weights stay about where they are */

    FTH_TRY(fth_allocate(1, sizeof *step, &step));
    FTH_TRY(fth_allocate(1, sizeof *steps, &steps));
    FTH_TRY(fth_engine_prepare(setup->engine, setup->options->batch, FTH_PLAN_TRAIN));
    FTH_TRY(fth_setup_open_loader(setup, FTH_TRAIN, 0, &loader));
    double began = fth_clock_seconds();
    for (int64_t i = 0; i < MOST_STEPS; i++) {
        if (steps->count >= LEAST_STEPS && fth_clock_seconds() - began > seconds)
            break;
        FTH_REQUIRE(!stop || !atomic_load(&stop->asked), FTH_INTERRUPTED, "stopped while measuring");
        FTH_TRY(train_step(setup, loader, rate, step));
        if (i >= WARM_UPS)
            FTH_TRY(add_step(steps, step));
    }
    FTH_TRY(summarize(setup, steps, profile));
    *counted = (int64_t)steps->count;
out:
    fth_loader_free(loader);
    if (steps)
        release_steps(steps);
    free(steps);
    free(step);
    return status;
}

static fth_status describe(const fth_setup *setup, const fth_spending *spending, fth_profile_result *result)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *data = fth_dataset_get_info(setup->dataset);
    json_t *machine = json_object();
    const char *source = "";

    fth_spending_describe_machine(spending, machine);
    if (json_unpack(machine, "{s:F, s:s}", "price_usd_per_hour", &result->usd_per_hour, "price_source", &source) != 0)
        result->usd_per_hour = NAN;
    result->price_source = fth_format("%s", source);
    result->device = fth_format("%s", setup->device->description);
    result->data = fth_format("%s", data->name);
    result->model = fth_format("%s", setup->options->model);
    result->training_samples = fth_engine_get_options(setup->engine)->training_samples;
    result->parameters = fth_graph_trainable_count(fth_engine_graph(setup->engine));
    result->learning_rate = fth_engine_learning_rate(setup->engine);
    FTH_REQUIRE(result->price_source && result->device && result->data && result->model, FTH_NO_MEMORY,
                "no memory for a profile");
out:
    json_decref(machine);
    return status;
}

fth_status fth_worker_profile_measure(const fth_train_options *options, const fth_strategy *strategy,
                                      const int64_t *batches, size_t count, double seconds, fth_stop *stop,
                                      fth_profile_result *result)
{
    fth_status status = FTH_OK;
    fth_run_selection selection = {0};
    fth_setup setup = {0};
    fth_position position;
    fth_spending *spending = NULL;

    *result = (fth_profile_result){.usd_per_hour = NAN};
    FTH_TRY(fth_spending_create(&spending));
    FTH_TRY(fth_run_selection_prepare(options, &selection));
    FTH_TRY(fth_setup_open(&selection, strategy, stop, spending, &setup, &position));
    FTH_TRY(fth_setup_keep_data(&setup));
    FTH_TRY(describe(&setup, spending, result));
    FTH_TRY(fth_allocate(count + 1, sizeof *result->profiles, &result->profiles));
    FTH_TRY(fth_allocate(count + 1, sizeof *result->steps, &result->steps));
    for (; result->count < count; result->count++) {
        selection.options.batch = batches[result->count]; /* which setup and engine see */
        fth_adapt_batch(&selection.options, result->training_samples);
        FTH_TRY(profile_batch(&setup, seconds / (double)count, stop, &result->profiles[result->count],
                              &result->steps[result->count]));
    }
out:
    fth_setup_release(&setup);
    fth_spending_free(spending);
    fth_run_selection_release(&selection);
    return status;
}

void fth_profile_result_release(fth_profile_result *result)
{
    for (size_t i = 0; i < result->count; i++)
        free((void *)result->profiles[i].timeline);
    free(result->profiles);
    free(result->steps);
    free(result->data);
    free(result->model);
    free(result->device);
    free(result->price_source);
    *result = (fth_profile_result){0};
}
