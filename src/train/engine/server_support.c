/* See server_support.h. */
#include "train/engine/server_support.h"

#include <stdlib.h>
#include <string.h>

#include "train/engine/engine_internal.h"
#include "train/model/classifier.h"
#include "train/train_internal.h"

fth_status fth_service_rate(const fth_train_options *options, double base_rate, int64_t updates_done,
                            int64_t updates_per_epoch, double *rate)
{
    fth_status status = FTH_OK;
    const fth_schedule *schedule = NULL;
    fth_schedule_position position = {.step = updates_done,
                                      .total_steps = options->limits.steps,
                                      .steps_per_epoch = updates_per_epoch > 0 ? updates_per_epoch : 1,
                                      .decay_every = options->schedule.decay_every,
                                      .decay_factor = options->schedule.decay_factor};

    FTH_TRY(fth_schedule_find(options->schedule.name, &schedule));
    if (position.total_steps == 0 && updates_per_epoch > 0)
        position.total_steps = options->limits.epochs * updates_per_epoch;
    FTH_TRY(fth_schedule_check_end(schedule, options->schedule.warmup, position.total_steps, "--steps"));
    position.warmup = fth_amount_count(options->schedule.warmup, position.total_steps);
    *rate = base_rate * fth_schedule_factor(schedule, &position);

out:
    return status;
}

fth_status fth_service_open_data(const fth_train_options *options, const fth_tokenizer *tokenizer,
                                 fth_dataset **dataset)
{
    fth_train_options used = *options; /* lends its texts */
    char normalize[FTH_NORMALIZATION_TEXT];
    fth_status status = fth_options_find_normalization(options, normalize);
    if (status != FTH_OK)
        return status;
    if (*normalize)
        used.images.normalize = normalize;
    status = fth_open_device_and_data(&used, &(fth_text_known){.tokenizer = tokenizer}, NULL, NULL, dataset, NULL);
    if (status == FTH_OK && fth_dataset_get_info(*dataset)->modality == FTH_MODALITY_TEXT)
        return FTH_OK;
    if (status == FTH_OK && *options->weights && !*normalize && !fth_options_say_normalization(options)) {
        fth_model_facts assumed = {.normalization = fth_dataset_get_info(*dataset)->normalization};
        fth_model_facts_warn_assumed(&assumed, options->weights);
    }
    return status;
}

void fth_service_describe_input(const fth_engine_options *engine, const fth_tokenizer *tokenizer, char *text,
                                size_t size)
{
    char digest[65] = "";
    if (engine->longest == 0) {
        snprintf(text, size, "%dx%dx%d", engine->channels, engine->height, engine->width);
        return;
    }
    if (tokenizer)
        fth_tokenizer_get_digest(tokenizer, digest);
    snprintf(text, size, "text for %s, tokenizer %.8s", fth_task_names[engine->task], digest);
}

fth_status fth_service_find_normalization(const fth_train_options *options, fth_normalization *normalization)
{
    char text[FTH_NORMALIZATION_TEXT];
    fth_status status = fth_options_find_normalization(options, text);
    return status == FTH_OK ? fth_normalization_parse(*text ? text : options->images.normalize, normalization) : status;
}

json_t *fth_service_describe_machine(const fth_device *device)
{
    return fth_machine_describe(device);
}

fth_status fth_service_read(fth_engine *engine, float *gradients, float *buffers)
{
    fth_status status = FTH_OK;
    const fth_backend *backend = engine->backend;
    const float *from = fth_model_vectors_get_gradients(&engine->vectors);

    if (gradients)
        FTH_TRY(backend->copy_out(engine->device, gradients, from, engine->vectors.sizes.trained * sizeof(float)));
    if (buffers && engine->vectors.sizes.buffers > 0)
        FTH_TRY(backend->copy_out(engine->device, buffers, engine->vectors.buffers,
                                  engine->vectors.sizes.buffers * sizeof(float)));

out:
    return status;
}

fth_status fth_service_write(fth_engine *engine, const float *parameters, const float *buffers)
{
    fth_status status = FTH_OK;
    const fth_backend *backend = engine->backend;

    if (parameters)
        FTH_TRY(backend->copy_in(engine->device, engine->vectors.parameters, parameters,
                                 engine->vectors.sizes.parameters * sizeof(float)));
    if (buffers && engine->vectors.sizes.buffers > 0)
        FTH_TRY(backend->copy_in(engine->device, engine->vectors.buffers, buffers,
                                 engine->vectors.sizes.buffers * sizeof(float)));

out:
    return status;
}

fth_status fth_service_update(fth_engine *engine, double learning_rate, int64_t update, float scale,
                              const fth_gradient_piece *pieces, size_t count)
{
    const fth_update_arguments arguments =
        fth_weight_update_get_arguments(engine->update, learning_rate, update, scale);
    return fth_weight_update_apply_pieces(engine->update, &engine->vectors, &arguments, pieces, count);
}

fth_vectors fth_service_get_vectors(const fth_engine *engine)
{
    return fth_model_vectors_for_plans(&engine->vectors);
}
