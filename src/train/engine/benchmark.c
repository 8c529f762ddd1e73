/* Measuring training steps, for bench/ and `farthing bench`: an engine without a trainer, on random
 * images. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/engine/engine.h"
#include "train/options/precision.h"
#include "train/train_internal.h"

enum { WARM_UPS = 3, LAYER_NAME = 128 };

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

typedef struct layer_times {
    char name[LAYER_NAME];
    double seconds[2]; /* forward, backward */
} layer_times;

typedef struct step_share {
    const char *name;
    int node;
    double seconds;
} step_share;

static int slowest_first(const void *a, const void *b)
{
    double left = ((const step_share *)a)->seconds, right = ((const step_share *)b)->seconds;
    return (left < right) - (left > right);
}

/* A table of the plan's steps by their share of the time, with the layers they belong to, on
 * standard error. */
static fth_status print_profile(const fth_plan *plan, const fth_graph *graph, const double *seconds, size_t runs)
{
    fth_status status = FTH_OK;
    int count = fth_plan_step_count(plan);
    step_share *shares = NULL;
    double total = 0;

    FTH_TRY(fth_allocate((size_t)count + 1, sizeof *shares, &shares));
    for (int i = 0; i < count; i++) {
        shares[i] = (step_share){fth_plan_step_name(plan, i), fth_plan_step_node(plan, i), seconds[i]};
        total += seconds[i];
    }
    qsort(shares, (size_t)count, sizeof *shares, slowest_first);
    fprintf(stderr, "%7s %10s  %s\n", "share", "µs/run", "step");
    for (int i = 0; i < count; i++) {
        char layer[LAYER_NAME];
        fth_graph_node_layer(graph, shares[i].node, layer, sizeof layer);
        fprintf(stderr, "%6.2f%% %10.1f  %s%s%s\n", 100 * shares[i].seconds / (total > 0 ? total : 1),
                1e6 * shares[i].seconds / (double)runs, shares[i].name, *layer ? "  " : "", layer);
    }
    fprintf(stderr, "%6.2f%% %10.1f  all steps\n", 100.0, 1e6 * total / (double)runs);

out:
    free(shares);
    return status;
}

/* Adds a step's time to its layer's; steps without parameters count with the layer before them. */
static fth_status add_up_layers(const fth_plan *plan, const fth_graph *graph, const double *seconds,
                                layer_times **layers, size_t *count)
{
    fth_status status = FTH_OK;
    size_t capacity = 0, at = 0;
    for (int i = 0; i < fth_plan_step_count(plan); i++) {
        char name[sizeof(*layers)->name];
        int node = fth_plan_step_node(plan, i);
        fth_graph_node_layer(graph, node, name, sizeof name);
        if (*name || *count == 0) {
            for (at = 0; at < *count && strcmp((*layers)[at].name, name) != 0; at++)
                continue;
            if (at == *count) {
                FTH_TRY(fth_grow(layers, *count, &capacity, sizeof **layers));
                (*layers)[(*count)++] = (layer_times){0};
                snprintf((*layers)[at].name, sizeof(*layers)[at].name, "%s", name);
            }
        }
        (*layers)[at].seconds[node >= fth_graph_forward_node_count(graph)] += seconds[i];
    }
out:
    return status;
}

/* The file that the emulated back end waits by (docs/emulated.md). */
static fth_status write_times(const char *path, const fth_plan *plan, const fth_engine *engine, const double *seconds,
                              size_t runs)
{
    fth_status status = FTH_OK;
    layer_times *layers = NULL;
    size_t count = 0;
    char line[256];
    fth_file *file = NULL;
    const fth_train_options *options = fth_engine_get_options(engine)->train;

    FTH_TRY(add_up_layers(plan, fth_engine_graph(engine), seconds, &layers, &count));
    FTH_TRY(fth_file_create_output(path, &file));
    snprintf(line, sizeof line, "# %s, batch %lld, %s: seconds forward and backward of each layer\n", options->model,
             (long long)options->batch, fth_engine_device(engine)->description);
    FTH_TRY(fth_file_write(file, line, strlen(line)));
    for (size_t i = 0; i < count; i++) {
        if (!*layers[i].name)
            continue; /* before the first layer */
        snprintf(line, sizeof line, "%-24s %.6f %.6f\n", layers[i].name, layers[i].seconds[0] / (double)runs,
                 layers[i].seconds[1] / (double)runs);
        FTH_TRY(fth_file_write(file, line, strlen(line)));
    }
    FTH_TRY(fth_file_publish(file));
out:
    fth_file_free(file);
    free(layers);
    return status;
}

static fth_status make_random_batch(const fth_engine_options *options, float **images, int32_t **labels)
{
    fth_status status = FTH_OK;
    int64_t batch = options->train->batch;
    size_t floats = (size_t)batch * (size_t)options->channels * (size_t)options->height * (size_t)options->width;
    fth_random_key key = fth_random_key_for((uint64_t)options->train->seed, FTH_RANDOM_GENERATE);

    FTH_TRY(fth_allocate_aligned(floats * sizeof(float), images));
    FTH_TRY(fth_allocate((size_t)batch, sizeof **labels, labels));
#pragma omp parallel for
    for (size_t i = 0; i < floats; i++)
        (*images)[i] = (float)fth_random_normal(key, i);
    for (int64_t i = 0; i < batch; i++)
        (*labels)[i] = (int32_t)fth_random_below(key, floats + (size_t)i, (uint64_t)options->classes);

out:
    return status;
}

/* The data is where it is fastest, as in the programs this is compared with: a step is measured,
 * not a bus. */
static fth_status put_on_device(fth_device *device, const void *host, size_t count, void **memory)
{
    fth_status status = FTH_OK;
    FTH_TRY(device->backend->allocate(device, count * sizeof(float), memory));
    FTH_TRY(device->backend->copy_in(device, *memory, host, count * sizeof(float)));
out:
    return status;
}

/* Steps for so long, and WARM_UPS before them. */
static fth_status measure_steps(fth_engine *engine, const fth_batch *data, double seconds, double *profile,
                                double **times, size_t *count)
{
    fth_status status = FTH_OK;
    size_t capacity = 0;
    double rate = fth_engine_learning_rate(engine) * 1e-6; /* random labels teach nothing: stay where it is */
    double began = 0;

    for (int64_t step = 0; step < WARM_UPS + 1 || fth_clock_seconds() - began < seconds; step++) {
        if (step == WARM_UPS) {
            began = fth_clock_seconds();
            fth_engine_set_profile(engine, profile);
        }
        fth_batch batch = *data;
        fth_step_result result;
        batch.number = step;
        /* From loss to loss: where the rest of a step is still under way then, the next one waits
         * for it. */
        double before = fth_clock_seconds();
        FTH_TRY(fth_engine_step(engine, &batch, rate, &result));
        double after = fth_clock_seconds();
        if (step < WARM_UPS)
            continue;
        FTH_TRY(fth_grow(times, *count, &capacity, sizeof **times));
        (*times)[(*count)++] = after - before;
    }
    qsort(*times, *count, sizeof **times, compare_doubles);

out:
    return status;
}

fth_status fth_benchmark(const fth_train_options *options, int channels, int height, int width, int classes,
                         double seconds, const char *times_file, fth_benchmark_result *result)
{
    fth_status status = FTH_OK;
    fth_device *device = NULL;
    fth_engine *engine = NULL;
    float *images = NULL;
    int32_t *labels = NULL;
    void *device_images = NULL, *device_labels = NULL;
    double *times = NULL, *profile = NULL;
    size_t count = 0;
    const char *profiling = getenv("FARTHING_PROFILE");
    fth_engine_options engine_options = {.train = options,
                                         .channels = channels,
                                         .height = height,
                                         .width = width,
                                         .classes = classes,
                                         .training_samples = options->batch};

    FTH_REQUIRE(channels > 0 && height > 0 && width > 0 && classes > 1 && seconds > 0, FTH_INVALID,
                "sizes and the time to measure must be above 0, and classes at least 2");
    FTH_TRY(fth_device_open(options->device, &(fth_device_options){.threads = (int)options->threads}, &device));
    FTH_TRY(fth_engine_create(&engine_options, device, &engine));
    fth_precision_advise(options->precision, device, fth_engine_graph(engine), options->batch);
    FTH_TRY(fth_engine_prepare(engine, options->batch, FTH_PLAN_TRAIN));
    FTH_TRY(make_random_batch(&engine_options, &images, &labels));
    FTH_TRY(put_on_device(device, images, (size_t)options->batch * (size_t)channels * (size_t)height * (size_t)width,
                          &device_images));
    FTH_TRY(put_on_device(device, labels, (size_t)options->batch, &device_labels));
    const fth_plan *plan = fth_engine_get_plan(engine, options->batch, FTH_PLAN_TRAIN);
    bool shown = profiling && strcmp(profiling, "0") != 0;
    if (shown || times_file)
        FTH_TRY(fth_allocate((size_t)fth_plan_step_count(plan) + 1, sizeof *profile, &profile));

    fth_batch batch = {.images = device_images, .labels = device_labels, .count = options->batch};
    FTH_TRY(measure_steps(engine, &batch, seconds, profile, &times, &count));
    FTH_TRY(device->backend->synchronize(device, fth_deadline_in(FTH_LOADER_TIMEOUT_S)));
    result->median_step_s = times[count / 2];
    snprintf(result->device, sizeof result->device, "%s", device->description);
    if (shown)
        FTH_TRY(print_profile(plan, fth_engine_graph(engine), profile, count));
    if (times_file)
        FTH_TRY(write_times(times_file, plan, engine, profile, count));

out:
    free(times);
    free(profile);
    free(images);
    free(labels);
    fth_engine_free(engine);
    if (device_images)
        device->backend->release(device, device_images);
    if (device_labels)
        device->backend->release(device, device_labels);
    fth_device_close(device);
    return status;
}
