/* See engine.h. */
#include "train/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/engine_internal.h"

/* ---- making one ---- */

static fth_status build_graph(fth_engine *engine)
{
    fth_status status = FTH_OK;
    const fth_engine_options *options = &engine->options;
    const fth_model *model = NULL;
    fth_model_options model_options = {
        .channels = options->channels,
        .height = options->height,
        .width = options->width,
        .classes = options->classes,
        .label_smoothing = (float)options->train->label_smoothing,
        .freeze = options->evaluate_only && !options->keep_layout ? NULL : options->train->freeze,
        .freeze_statistics = options->train->freeze_statistics};

    FTH_TRY(fth_train_options_find_model(options->train, &model));
    FTH_TRY(fth_model_create_graph(model, &model_options, &engine->graph));
    engine->images = fth_graph_find(engine->graph, "images");
    engine->labels = fth_graph_find(engine->graph, "labels");
    engine->loss = fth_graph_loss(engine->graph);
    engine->parameter_floats = fth_graph_parameter_floats(engine->graph);
    engine->trained_floats = fth_graph_trained_floats(engine->graph);
    engine->buffer_floats = fth_graph_buffer_floats(engine->graph);

out:
    return status;
}

static fth_status allocate_vector(fth_engine *engine, size_t floats, float **vector)
{
    void *memory = NULL;
    fth_status status = engine->backend->allocate(engine->device, (floats ? floats : 1) * sizeof(float), &memory);
    *vector = memory;
    return status;
}

static fth_status initialize_weights(fth_engine *engine)
{
    fth_status status = FTH_OK;
    float *parameters = NULL, *buffers = NULL;
    size_t parameter_bytes = engine->parameter_floats * sizeof(float);
    size_t buffer_bytes = engine->buffer_floats * sizeof(float);

    if (engine->backend->host_memory) { /* no need of a copy, which would be half of the time */
        fth_graph_initialize(engine->graph, (uint64_t)engine->options.train->seed, engine->vectors.parameters,
                             engine->vectors.buffers);
        return FTH_OK;
    }
    FTH_TRY(fth_allocate_aligned(parameter_bytes + 1, &parameters));
    FTH_TRY(fth_allocate_aligned(buffer_bytes + 1, &buffers));
    fth_graph_initialize(engine->graph, (uint64_t)engine->options.train->seed, parameters, buffers);
    FTH_TRY(engine->backend->copy_in(engine->device, engine->vectors.parameters, parameters, parameter_bytes));
    if (buffer_bytes > 0)
        FTH_TRY(engine->backend->copy_in(engine->device, engine->vectors.buffers, buffers, buffer_bytes));

out:
    free(parameters);
    free(buffers);
    return status;
}

static fth_status set_up_optimizer(fth_engine *engine)
{
    fth_status status = FTH_OK;
    const fth_train_options *train = engine->options.train;

    FTH_TRY(fth_optimizer_find(train->optimizer, &engine->optimizer));
    const fth_optimizer *optimizer = engine->optimizer;
    engine->arguments = (fth_update_arguments){.momentum = (float)train->momentum,
                                               .weight_decay = (float)train->weight_decay,
                                               .beta1 = (float)train->beta1,
                                               .beta2 = (float)train->beta2,
                                               .epsilon = (float)train->epsilon,
                                               .nesterov = train->nesterov};
    const char *rule = optimizer->choose_rule ? optimizer->choose_rule(&engine->arguments) : optimizer->name;
    for (engine->update = engine->backend->updates; engine->update->rule; engine->update++)
        if (strcmp(engine->update->rule, rule) == 0)
            break;
    FTH_REQUIRE(engine->update->rule, FTH_UNSUPPORTED,
                "--optimizer %s is not supported by --device %s: no kernel for %s", train->optimizer,
                engine->backend->name, rule);
    engine->state_count = engine->update->vectors;
    for (int i = 0; i < engine->state_count; i++) {
        if (engine->shares)
            engine->state[i] = engine->options.shared->state[i];
        else
            FTH_TRY(allocate_vector(engine, engine->trained_floats, &engine->state[i]));
    }

out:
    return status;
}

static const struct {
    const char *name;
    fth_precision precision;
} precisions[] = {
    {"f32", FTH_PRECISION_F32}, {"bf16", FTH_PRECISION_BF16}, {"f16", FTH_PRECISION_F16}, {"tf32", FTH_PRECISION_TF32}};

fth_choice fth_precision_choice(size_t index)
{
    if (index < FTH_COUNT_OF(precisions))
        return (fth_choice){.name = precisions[index].name};
    return (fth_choice){.name = index == FTH_COUNT_OF(precisions) ? "auto" : NULL};
}

/* By name; for "auto", what the device is fastest in with this network. */
static fth_precision find_precision(const fth_engine *engine, const char *name)
{
    for (size_t i = 0; i < FTH_COUNT_OF(precisions); i++)
        if (strcmp(name, precisions[i].name) == 0)
            return precisions[i].precision;
    const fth_backend_accelerator *accelerator = engine->backend->accelerator;
    return accelerator ? accelerator->choose_precision(engine->device, engine->graph) : FTH_PRECISION_F32;
}

const char *fth_engine_precision(const fth_engine *engine)
{
    for (size_t i = 0; i < FTH_COUNT_OF(precisions); i++)
        if (precisions[i].precision == engine->precision)
            return precisions[i].name;
    return "";
}

/* The one asked for; where that was left open, the one it was before, as long as this device has it. */
static fth_status choose_precision(fth_engine *engine)
{
    const char *asked = engine->options.train->precision, *before = engine->options.precision_before;
    if (strcmp(asked, "auto") == 0 && before && *before) {
        engine->precision = find_precision(engine, before);
        if (engine->backend->check_precision(engine->device, engine->precision) == FTH_OK)
            return FTH_OK;
        fth_log_warning("--precision auto was %s until now, not supported by %s; choosing again", before,
                        engine->device->description);
    }
    engine->precision = find_precision(engine, asked);
    return engine->backend->check_precision(engine->device, engine->precision);
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
    FTH_TRY(build_graph(engine));
    FTH_TRY(choose_precision(engine));
    if (engine->precision == FTH_PRECISION_F16)
        engine->loss_scale.scale = FTH_FIRST_LOSS_SCALE;
    if (options->shared) {
        FTH_TRY(fth_engine_require_host_memory(engine));
        engine->shares = true;
        engine->vectors.parameters = options->shared->parameters;
        engine->vectors.buffers = options->shared->buffers;
    } else {
        FTH_TRY(allocate_vector(engine, engine->parameter_floats, &engine->vectors.parameters));
        FTH_TRY(allocate_vector(engine, engine->buffer_floats, &engine->vectors.buffers));
        FTH_TRY(initialize_weights(engine));
    }
    if (!options->evaluate_only) {
        FTH_TRY(allocate_vector(engine, engine->trained_floats, &engine->vectors.gradients));
        if (options->train->accumulate > 1)
            FTH_TRY(allocate_vector(engine, engine->trained_floats, &engine->accumulated));
        FTH_TRY(set_up_optimizer(engine));
    }
    FTH_TRY(fth_plan_cache_create(engine->graph, device, engine->precision, options->train->model, &engine->plans));
    FTH_TRY(fth_plan_cache_bind(engine->plans, engine->vectors));
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
    if (engine->updater)
        engine->backend->capture->updater->close(engine->updater);
    void *memory[] = {engine->vectors.gradients, engine->accumulated};
    for (size_t i = 0; i < FTH_COUNT_OF(memory); i++)
        if (memory[i])
            engine->backend->release(engine->device, memory[i]);
    fth_engine_release_vectors(engine);
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
    double asked = engine->options.train->lr;
    return asked > 0 || !engine->optimizer ? asked : engine->optimizer->default_lr;
}

/* ---- plans ---- */

const fth_plan *fth_engine_get_plan(const fth_engine *engine, int64_t batch, fth_plan_mode mode)
{
    return fth_plan_cache_find(engine->plans, batch, mode);
}

fth_status fth_engine_prepare(fth_engine *engine, int64_t batch, fth_plan_mode mode)
{
    fth_plan *plan;
    return fth_plan_cache_get(engine->plans, batch, mode, &plan);
}

void fth_engine_set_profile(fth_engine *engine, double *step_seconds)
{
    engine->profile = step_seconds;
}

fth_status fth_engine_keep_data(fth_engine *engine, const fth_dataset *dataset, bool *kept)
{
    fth_status status = fth_device_data_create(engine->device, dataset, &engine->data);
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

fth_status fth_engine_run_batch(fth_engine *engine, const fth_batch *batch, fth_plan_mode mode, fth_run run,
                                fth_step_result *result)
{
    fth_status status = FTH_OK;
    float loss[2];
    fth_plan *plan = NULL;

    FTH_TRY(fth_plan_cache_get(engine->plans, batch->count, mode, &plan));
    FTH_TRY(set_images(engine, batch, mode, plan));
    FTH_TRY(fth_plan_set_input(plan, engine->labels, batch->labels));
    run.seed = (uint64_t)engine->options.train->seed;
    run.step = (uint64_t)batch->number;
    FTH_TRY(fth_plan_run(plan, &run));
    FTH_TRY(fth_plan_read_loss(plan, loss));
    *result = (fth_step_result){.loss = loss[0], .correct = (int64_t)lrintf(loss[1]), .samples = batch->count};

out:
    return status;
}

fth_status fth_engine_predict(fth_engine *engine, const float *images, int64_t count, float *logits)
{
    fth_status status = FTH_OK;
    fth_step_result result;
    int32_t *labels = NULL; /* none are known; a plan has the loss in it, which nobody reads here */

    FTH_TRY(fth_allocate((size_t)count, sizeof *labels, &labels));
    fth_batch batch = {.images = images, .labels = labels, .count = count};
    FTH_TRY(fth_engine_run_batch(engine, &batch, FTH_PLAN_EVALUATE, (fth_run){.gradient_scale = 1}, &result));
    FTH_TRY(fth_plan_get_output(fth_plan_cache_find(engine->plans, count, FTH_PLAN_EVALUATE),
                                fth_graph_logits(engine->graph), logits));

out:
    free(labels);
    return status;
}

/* ---- training ---- */

int64_t fth_engine_updates_per_epoch(const fth_engine *engine)
{
    const fth_train_options *train = engine->options.train;
    return fth_batches_per_epoch(fth_batches_per_epoch(engine->options.training_samples, train->batch),
                                 train->accumulate);
}

int64_t fth_engine_updates(const fth_engine *engine, int64_t batches)
{
    const fth_train_options *train = engine->options.train;
    int64_t per_epoch = fth_batches_per_epoch(engine->options.training_samples, train->batch);
    return batches / per_epoch * fth_engine_updates_per_epoch(engine) + batches % per_epoch / train->accumulate;
}

fth_group fth_engine_group(const fth_engine *engine, const fth_batch *batch)
{
    const fth_train_options *train = engine->options.train;
    int64_t samples = engine->options.training_samples;
    int64_t update = fth_engine_updates(engine, batch->number) + 1;
    if (train->accumulate <= 1)
        return (fth_group){.first = true,
                           .last = true,
                           .share = batch->whole > 0 ? (float)((double)batch->count / (double)batch->whole) : 1,
                           .update = update};
    int64_t batches = fth_batches_per_epoch(samples, train->batch);
    int64_t index = batch->number % batches;
    int64_t begin = index / train->accumulate * train->accumulate;
    int64_t end = begin + train->accumulate < batches ? begin + train->accumulate : batches;
    int64_t last_sample = end * train->batch < samples ? end * train->batch : samples;
    int64_t group_samples = last_sample - begin * train->batch;
    return (fth_group){.first = index == begin,
                       .last = index == end - 1,
                       .share = (float)((double)batch->count / (double)group_samples),
                       .update = update};
}

/* ---- evaluation ---- */

int64_t fth_engine_evaluation_batch(const fth_engine *engine, int64_t samples)
{
    enum { GOOD_BATCH = 64, MAX_FLOATS = 1 << 20 };
    const fth_engine_options *options = &engine->options;
    int64_t floats = (int64_t)options->channels * options->height * options->width;
    int64_t fits = MAX_FLOATS / floats;
    int64_t wanted = fits < GOOD_BATCH ? fits : GOOD_BATCH;
    if (wanted < options->train->batch)
        wanted = options->train->batch;
    return wanted < samples ? wanted : samples;
}

/* Of the batch that was run last. */
static fth_status add_to_confusion(fth_engine *engine, const fth_batch *batch, float *logits, fth_confusion *confusion)
{
    fth_plan *plan = fth_plan_cache_find(engine->plans, batch->count, FTH_PLAN_EVALUATE);
    fth_status status = fth_plan_get_output(plan, fth_graph_logits(engine->graph), logits);
    return status == FTH_OK ? fth_confusion_add(confusion, batch->labels, logits, batch->count) : status;
}

fth_status fth_engine_evaluate(fth_engine *engine, fth_loader *loader, const fth_stop *stop, fth_deadline deadline,
                               fth_confusion *confusion, fth_evaluation *evaluation)
{
    fth_status status = FTH_OK;
    double started = fth_clock_seconds();
    double loss = 0;
    int64_t correct = 0, samples = 0;
    const fth_batch *batch = NULL;
    float *logits = NULL; /* of a batch; the first is the largest */

    for (;;) {
        fth_step_result result;
        FTH_REQUIRE(!stop || !stop->asked, FTH_INTERRUPTED, "evaluation was interrupted");
        FTH_REQUIRE(!fth_deadline_passed(deadline), FTH_TIMEOUT, "evaluation did not end in time");
        FTH_TRY(fth_loader_next(loader, fth_deadline_in(FTH_LOADER_TIMEOUT_S), &batch));
        if (!batch)
            break;
        FTH_TRY(fth_engine_run_batch(engine, batch, FTH_PLAN_EVALUATE, (fth_run){.gradient_scale = 1}, &result));
        loss += result.loss * (double)result.samples;
        correct += result.correct;
        samples += result.samples;
        if (confusion && !logits)
            FTH_TRY(fth_allocate((size_t)(batch->count * engine->options.classes), sizeof *logits, &logits));
        if (confusion)
            FTH_TRY(add_to_confusion(engine, batch, logits, confusion));
    }
    FTH_REQUIRE(samples > 0, FTH_INVALID, "there is no image to validate with");
    *evaluation = (fth_evaluation){.loss = loss / (double)samples,
                                   .accuracy = (double)correct / (double)samples,
                                   .seconds = fth_clock_seconds() - started,
                                   .samples = samples};

out:
    free(logits);
    return status;
}
