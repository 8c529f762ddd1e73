/* See engine.h. */
#include "train/engine/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/engine/engine_internal.h"
#include "train/engine/recompute.h"
#include "train/options/precision.h"

/* ---- making one ---- */

/* Images for a model of text, or the other way round. */
static fth_status check_input(const fth_model *model, const fth_engine_options *options)
{
    if ((model->build_text != NULL) == (options->longest > 0))
        return FTH_OK;
    return model->build_text ? fth_fail(FTH_INVALID,
                                        "%s is a model for text, and the data has images: choose another --model or "
                                        "--data (`farthing models` lists models)",
                                        model->name)
                             : fth_fail(FTH_INVALID,
                                        "%s is a model for images, and the data has text: choose a model for text, "
                                        "such as --model bert-mini (`farthing models` lists models)",
                                        model->name);
}

static fth_status build_graph(fth_engine *engine, bool recompute)
{
    fth_status status = FTH_OK;
    const fth_engine_options *options = &engine->options;
    const fth_model *model = NULL;
    fth_model_options model_options = {
        .channels = options->channels,
        .height = options->height,
        .width = options->width,
        .longest = options->longest,
        .task = options->task,
        .classes = options->classes,
        .label_smoothing = (float)options->train->optimizer.label_smoothing,
        .freeze = options->evaluate_only && !options->keep_layout ? NULL : options->train->freeze,
        .freeze_statistics = options->train->freeze_statistics,
        .recompute = recompute};

    FTH_TRY(fth_train_options_find_model(options->train, &model));
    FTH_TRY(check_input(model, options));
    FTH_TRY(fth_model_create_graph(model, &model_options, &engine->graph));
    engine->images = fth_graph_find(engine->graph, "images");
    engine->answers = fth_graph_find(engine->graph, options->task == FTH_TASK_CLASSES ? "labels" : "targets");
    FTH_TRY(fth_text_input_create(engine->graph, engine->device, &engine->text));

out:
    return status;
}

/* Builds the graph again where layers are to be computed again for their gradients. */
static fth_status choose_what_is_kept(fth_engine *engine)
{
    fth_status status = FTH_OK;
    bool recompute = false;

    if (!engine->text || engine->options.evaluate_only)
        return FTH_OK;
    FTH_TRY(fth_recompute_choose(&engine->options, engine->graph, engine->device, engine->precision, &recompute));
    if (!recompute)
        goto out;
    fth_text_input_free(engine->text);
    engine->text = NULL;
    fth_graph_free(engine->graph);
    engine->graph = NULL;
    FTH_TRY(build_graph(engine, true));

out:
    return status;
}

/* Whether all fits into the memory there is, before any of it is taken. */
static fth_status check_memory(fth_engine *engine, const fth_model_vectors_options *made)
{
    fth_status status = FTH_OK;
    const fth_engine_options *options = &engine->options;
    const fth_engine_sizes *sizes = &made->sizes;
    const fth_plan_options planned = {
        .batch = options->train->batch, .mode = FTH_PLAN_TRAIN, .precision = engine->precision, .unmeasured = true};
    fth_plan *plan = NULL;

    if (options->most_bytes == 0)
        return FTH_OK;
    const double weights = (double)sizes->parameters + (double)sizes->buffers, trained = (double)sizes->trained;
    double needed =
        sizeof(float) * (weights * (1 + options->copies) +
                         trained * ((made->trains ? 1 : 0) + (made->accumulates ? 1 : 0) + sizes->state_count));
    if (needed <= (double)options->most_bytes) {
        FTH_TRY(fth_plan_create(engine->graph, engine->device, planned, &plan));
        needed += (double)fth_plan_arena_bytes(plan);
    }
    FTH_REQUIRE(needed <= (double)options->most_bytes, FTH_NO_MEMORY,
                "%s for images of %dx%dx%d needs %.0f MB or more with batches of %lld, and there are %.0f",
                options->train->model, options->channels, options->height, options->width, ceil(needed / 1e6),
                (long long)options->train->batch, floor((double)options->most_bytes / 1e6));
    engine->needed_bytes = (uint64_t)needed;

out:
    fth_plan_free(plan);
    return status;
}

/* The optimizer and the vectors. */
static fth_status make_vectors(fth_engine *engine)
{
    fth_status status = FTH_OK;
    const fth_engine_options *options = &engine->options;
    const fth_train_options *train = options->train;
    const bool trains = !options->evaluate_only;

    if (trains)
        FTH_TRY(fth_weight_update_create(train, engine->graph, engine->device, engine->precision == FTH_PRECISION_F16,
                                         &engine->update));
    fth_model_vectors_options made = {
        .sizes = {.parameters = fth_graph_parameter_floats(engine->graph),
                  .buffers = fth_graph_buffer_floats(engine->graph),
                  .trained = fth_graph_trained_floats(engine->graph),
                  .state_count = trains ? fth_weight_update_state_count(engine->update) : 0},
        .trains = trains,
        .accumulates = trains && train->optimizer.accumulate > 1,
        .shared = options->shared};
    FTH_TRY(check_memory(engine, &made));
    FTH_TRY(fth_model_vectors_allocate(&engine->vectors, engine->device, &made));
    if (!options->shared && !options->weights_follow)
        FTH_TRY(fth_model_vectors_initialize(&engine->vectors, engine->graph, (uint64_t)train->seed));

out:
    return status;
}

fth_status fth_engine_create(const fth_engine_options *options, fth_device *device, fth_engine **result)
{
    fth_status status = FTH_OK;
    fth_engine *engine = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *engine, &engine));
    engine->options = *options;
    engine->device = device;
    engine->backend = device->backend;
    FTH_TRY(build_graph(engine, false));
    FTH_TRY(fth_precision_choose(options->train->precision, options->precision_before, device, engine->graph,
                                 &engine->precision));
    FTH_TRY(choose_what_is_kept(engine));
    FTH_TRY(make_vectors(engine));
    engine->synchronized = options->train->peers.batch_norm == FTH_BATCH_NORM_SYNCHRONIZED;
    FTH_TRY(fth_plan_cache_create(
        engine->graph, device, (fth_plan_options){.precision = engine->precision, .synchronized = engine->synchronized},
        options->train->model, &engine->plans));
    FTH_TRY(fth_plan_cache_bind(engine->plans, fth_model_vectors_for_plans(&engine->vectors)));
    *result = engine;
    engine = NULL;

out:
    fth_engine_free(engine);
    return status;
}

void fth_engine_free(fth_engine *engine)
{
    if (!engine)
        return;
    fth_plan_cache_free(engine->plans);
    fth_device_data_free(engine->data);
    fth_text_input_free(engine->text);
    fth_weight_update_free(engine->update);
    fth_model_vectors_release(&engine->vectors);
    fth_graph_free(engine->graph);
    free(engine);
}

const fth_graph *fth_engine_graph(const fth_engine *engine)
{
    return engine->graph;
}

const fth_engine_options *fth_engine_get_options(const fth_engine *engine)
{
    return &engine->options;
}

fth_device *fth_engine_device(const fth_engine *engine)
{
    return engine->device;
}

double fth_engine_learning_rate(const fth_engine *engine)
{
    double asked = engine->options.train->optimizer.lr;
    return asked > 0 || !engine->update ? asked : fth_weight_update_get_optimizer(engine->update)->default_lr;
}

const char *fth_engine_precision(const fth_engine *engine)
{
    return fth_precision_name(engine->precision);
}

/* ---- vectors ---- */

fth_engine_sizes fth_engine_get_sizes(const fth_engine *engine)
{
    return engine->vectors.sizes;
}

uint64_t fth_engine_needed_bytes(const fth_engine *engine)
{
    return engine->needed_bytes;
}

fth_status fth_engine_copy_weights(fth_engine *from, fth_engine *to)
{
    return fth_model_vectors_copy_weights(&from->vectors, &to->vectors);
}

fth_status fth_engine_move_vectors(fth_engine *engine, const fth_engine_vectors *to)
{
    fth_status status = fth_model_vectors_move(&engine->vectors, to);
    return status == FTH_OK ? fth_plan_cache_bind(engine->plans, fth_model_vectors_for_plans(&engine->vectors))
                            : status;
}

fth_status fth_engine_move_gradients(fth_engine *engine, float *to)
{
    fth_status status = fth_model_vectors_move_gradients(&engine->vectors, to);
    return status == FTH_OK ? fth_plan_cache_bind(engine->plans, fth_model_vectors_for_plans(&engine->vectors))
                            : status;
}

fth_engine_vectors fth_engine_get_vectors(const fth_engine *engine)
{
    fth_engine_vectors vectors = {.parameters = engine->vectors.parameters, .buffers = engine->vectors.buffers};
    for (int i = 0; i < engine->vectors.sizes.state_count; i++)
        vectors.state[i] = engine->vectors.state[i];
    return vectors;
}

float *fth_engine_get_gradients(const fth_engine *engine)
{
    return fth_model_vectors_get_gradients(&engine->vectors);
}

/* ---- plans ---- */

static fth_plan_size size_of(const fth_engine *engine, const fth_batch *batch)
{
    return (fth_plan_size){.batch = batch->count,
                           .tokens = engine->text ? fth_text_capacity(batch->text.token_count) : 0};
}

/* The largest that so many samples are likely to need. What is more than six deviations above the
 * mean is hardly ever met, and only makes the arena grow. */
static fth_plan_size largest_size(const fth_engine *engine, int64_t batch)
{
    const fth_engine_options *options = &engine->options;
    const double deviations = 6, most = (double)batch * options->longest;
    const double likely =
        (double)batch * options->mean_length + deviations * sqrt((double)batch) * options->length_deviation;
    const double tokens = options->mean_length > 0 && likely < most ? ceil(likely) : most;
    return (fth_plan_size){.batch = batch, .tokens = engine->text ? fth_text_capacity((int64_t)tokens) : 0};
}

const fth_plan *fth_engine_get_plan(const fth_engine *engine, int64_t batch, fth_plan_mode mode)
{
    return fth_plan_cache_find(engine->plans, largest_size(engine, batch), mode);
}

fth_status fth_engine_prepare(fth_engine *engine, int64_t batch, fth_plan_mode mode)
{
    fth_plan *plan;
    return fth_plan_cache_get(engine->plans, largest_size(engine, batch), mode, &plan);
}

bool fth_engine_is_synchronized(const fth_engine *engine)
{
    return engine->synchronized;
}

fth_status fth_engine_set_peers(fth_engine *engine, fth_peers peers)
{
    const bool recorded = engine->peers.group || peers.group; /* what was recorded has the group before in it */
    engine->peers = peers;
    return recorded ? fth_plan_cache_bind(engine->plans, fth_model_vectors_for_plans(&engine->vectors)) : FTH_OK;
}

void fth_engine_set_deadline(fth_engine *engine, fth_deadline deadline, const fth_stop *stop)
{
    engine->deadline = deadline;
    engine->stop = stop;
    fth_plan_cache_set_deadline(engine->plans, deadline, stop);
}

void fth_engine_set_profile(fth_engine *engine, double *step_seconds)
{
    engine->profile = step_seconds;
}

fth_status fth_engine_keep_data(fth_engine *engine, const fth_dataset *dataset, bool *kept)
{
    fth_status status = engine->text ? FTH_OK : fth_device_data_create(engine->device, dataset, &engine->data);
    *kept = engine->data != NULL;
    return status;
}

/* Sets the images of `batch`: as they are, or made from its recipes. */
static fth_status set_images(fth_engine *engine, const fth_batch *batch, fth_plan_mode mode, fth_plan *plan)
{
    fth_split split = mode == FTH_PLAN_TRAIN ? FTH_TRAIN : FTH_VALIDATION;
    if (batch->images)
        return fth_plan_set_input(plan, engine->images, batch->images);
    if (batch->recipes && engine->options.dataset && engine->backend->host_memory)
        return fth_dataset_make_images(engine->options.dataset, split, batch->recipes, batch->count,
                                       fth_plan_input(plan, engine->images));
    if (batch->recipes && engine->data)
        return fth_device_data_gather(engine->data, split, batch, plan, engine->images);
    return fth_fail(FTH_INVALID, "batch %lld has neither images nor data on the device to make them from",
                    (long long)batch->number);
}

/* Sets all inputs of the plan: what the model is given, and the answers that its loss is computed
 * with. */
static fth_status set_inputs(fth_engine *engine, const fth_batch *batch, fth_plan_mode mode, fth_plan *plan)
{
    fth_status status = FTH_OK;
    const void *answers =
        engine->options.task == FTH_TASK_CLASSES ? (const void *)batch->labels : (const void *)batch->targets;

    FTH_REQUIRE(answers, FTH_INVALID, "batch %lld has no answers of the kind that the model is trained for",
                (long long)batch->number);
    if (engine->text)
        FTH_TRY(fth_text_input_set(engine->text, &batch->text, batch->count, size_of(engine, batch).tokens, plan));
    else
        FTH_TRY(set_images(engine, batch, mode, plan));
    FTH_TRY(fth_plan_set_input(plan, engine->answers, answers));

out:
    return status;
}

fth_status fth_engine_run_batch(fth_engine *engine, const fth_batch *batch, fth_plan_mode mode, fth_run run,
                                fth_step_result *result)
{
    fth_status status = FTH_OK;
    float loss[2];
    fth_plan *plan = NULL;

    run.peers = mode == FTH_PLAN_TRAIN && engine->peers.sum ? &engine->peers : NULL;
    *result = (fth_step_result){0};
    if (batch->count == 0)
        return fth_plan_run_empty(engine->graph, engine->device, fth_model_vectors_for_plans(&engine->vectors),
                                  engine->synchronized, &run);
    FTH_TRY(fth_plan_cache_get(engine->plans, size_of(engine, batch), mode, &plan));
    FTH_TRY(set_inputs(engine, batch, mode, plan));
    run.seed = (uint64_t)engine->options.train->seed;
    run.step = (uint64_t)batch->number;
    run.first_sample = (uint64_t)batch->first;
    run.first_token = (uint64_t)batch->text.first_token;
    run.deadline = engine->deadline;
    run.stop = engine->stop;
    FTH_TRY(fth_plan_run(plan, &run));
    FTH_TRY(fth_plan_read_loss(plan, loss));
    *result = (fth_step_result){.loss = loss[0], .correct = (int64_t)lrintf(loss[1]), .samples = batch->count};

out:
    return status;
}

/* What the model made of the batch that was evaluated last. */
static fth_status get_logits(const fth_engine *engine, const fth_batch *batch, float *logits)
{
    fth_plan *plan = fth_plan_cache_find(engine->plans, size_of(engine, batch), FTH_PLAN_EVALUATE);
    return fth_plan_get_output(plan, fth_graph_logits(engine->graph), logits);
}

/* The answers are not known: a plan has the loss in it, which nobody reads here. */
static fth_status predict(fth_engine *engine, fth_batch batch, float *logits)
{
    fth_status status = FTH_OK;
    fth_step_result result;
    int32_t *labels = NULL;
    float *targets = NULL;

    FTH_TRY(fth_allocate((size_t)batch.count, sizeof *labels, &labels));
    FTH_TRY(fth_allocate((size_t)(batch.count * engine->options.classes), sizeof *targets, &targets));
    batch.labels = labels;
    batch.targets = targets;
    FTH_TRY(fth_engine_run_batch(engine, &batch, FTH_PLAN_EVALUATE, (fth_run){.gradient_scale = 1}, &result));
    FTH_TRY(get_logits(engine, &batch, logits));

out:
    free(labels);
    free(targets);
    return status;
}

fth_status fth_engine_predict(fth_engine *engine, const float *images, int64_t count, float *logits)
{
    return predict(engine, (fth_batch){.images = images, .count = count}, logits);
}

fth_status fth_engine_predict_text(fth_engine *engine, const fth_text_batch *text, int64_t count, float *logits)
{
    return predict(engine, (fth_batch){.text = *text, .count = count}, logits);
}

/* ---- training ---- */

int64_t fth_engine_updates_per_epoch(const fth_engine *engine)
{
    const fth_train_options *train = engine->options.train;
    return fth_batches_per_epoch(fth_batches_per_epoch(engine->options.training_samples, train->batch),
                                 train->optimizer.accumulate);
}

int64_t fth_engine_updates(const fth_engine *engine, int64_t batches)
{
    const fth_train_options *train = engine->options.train;
    int64_t per_epoch = fth_batches_per_epoch(engine->options.training_samples, train->batch);
    return batches / per_epoch * fth_engine_updates_per_epoch(engine) +
           batches % per_epoch / train->optimizer.accumulate;
}

fth_group fth_engine_group(const fth_engine *engine, const fth_batch *batch)
{
    const fth_train_options *train = engine->options.train;
    int64_t samples = engine->options.training_samples;
    int64_t update = fth_engine_updates(engine, batch->number) + 1;
    if (train->optimizer.accumulate <= 1)
        return (fth_group){.first = true,
                           .last = true,
                           .share = batch->whole > 0 ? (float)((double)batch->count / (double)batch->whole) : 1,
                           .update = update};
    int64_t batches = fth_batches_per_epoch(samples, train->batch);
    int64_t index = batch->number % batches;
    int64_t begin = index / train->optimizer.accumulate * train->optimizer.accumulate;
    int64_t end = begin + train->optimizer.accumulate < batches ? begin + train->optimizer.accumulate : batches;
    int64_t last_sample = end * train->batch < samples ? end * train->batch : samples;
    int64_t group_samples = last_sample - begin * train->batch;
    return (fth_group){.first = index == begin,
                       .last = index == end - 1,
                       .share = (float)((double)batch->count / (double)group_samples),
                       .update = update};
}

/* ---- evaluation ---- */

int64_t fth_engine_evaluation_batch(const fth_engine *engine, int64_t trained, int64_t samples)
{
    enum { GOOD_BATCH = 64, MAX_FLOATS = 1 << 20 };
    const fth_engine_options *options = &engine->options;
    int64_t floats = (int64_t)options->channels * options->height * options->width;
    int64_t fits = floats > 0 ? MAX_FLOATS / floats : GOOD_BATCH;
    int64_t wanted = fits < GOOD_BATCH ? fits : GOOD_BATCH;
    if (wanted < trained)
        wanted = trained;
    return wanted < samples ? wanted : samples;
}

/* Of the batch that was run last. */
static fth_status add_to_confusion(fth_engine *engine, const fth_batch *batch, float *logits, fth_confusion *confusion)
{
    fth_status status = get_logits(engine, batch, logits);
    return status == FTH_OK ? fth_confusion_add(confusion, batch->labels, logits, batch->count) : status;
}

fth_status fth_engine_count(fth_engine *engine, fth_loader *loader, const fth_counting *how, fth_counts *counts)
{
    fth_status status = FTH_OK;
    const fth_stop *stop = how->stop;
    fth_confusion *confusion = how->confusion;
    const fth_batch *batch = NULL;
    float *logits = NULL; /* of a batch; the first is the largest */

    for (int64_t batches = 0; how->batches == 0 || batches < how->batches; batches++) {
        fth_step_result result;
        FTH_REQUIRE(!stop || !stop->asked, FTH_INTERRUPTED, "evaluation was interrupted");
        FTH_REQUIRE(!fth_deadline_passed(how->deadline), FTH_TIMEOUT, "evaluation did not end in time");
        FTH_TRY(fth_loader_next(loader, fth_deadline_in(FTH_LOADER_TIMEOUT_S), &batch));
        counts->done = !batch;
        if (!batch)
            break;
        if (batch->count == 0) /* of a part */
            continue;
        FTH_TRY(fth_engine_run_batch(engine, batch, FTH_PLAN_EVALUATE, (fth_run){.gradient_scale = 1}, &result));
        counts->loss += result.loss * (double)result.samples;
        counts->correct += result.correct;
        counts->samples += result.samples;
        if (confusion && !logits)
            FTH_TRY(fth_allocate((size_t)(batch->count * engine->options.classes), sizeof *logits, &logits));
        if (confusion)
            FTH_TRY(add_to_confusion(engine, batch, logits, confusion));
    }

out:
    free(logits);
    return status;
}

fth_status fth_counts_average(const fth_counts *counts, double seconds, fth_evaluation *evaluation)
{
    if (counts->samples == 0)
        return fth_fail(FTH_INVALID, "there is no sample to validate with");
    *evaluation = (fth_evaluation){.loss = counts->loss / (double)counts->samples,
                                   .accuracy = (double)counts->correct / (double)counts->samples,
                                   .seconds = seconds,
                                   .samples = counts->samples};
    return FTH_OK;
}

fth_status fth_engine_evaluate(fth_engine *engine, fth_loader *loader, const fth_stop *stop, fth_deadline deadline,
                               fth_confusion *confusion, fth_evaluation *evaluation)
{
    fth_status status = FTH_OK;
    double started = fth_clock_seconds();
    fth_counts counts = {0};

    FTH_TRY(fth_engine_count(engine, loader,
                             &(fth_counting){.stop = stop, .deadline = deadline, .confusion = confusion}, &counts));
    FTH_TRY(fth_counts_average(&counts, fth_clock_seconds() - started, evaluation));

out:
    return status;
}
