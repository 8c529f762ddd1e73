/* What a service that owns a model, and has no trainer, needs of training: the rate of an update,
 * the data to validate with, the machine for its record, and the engine's vectors. */
#ifndef FTH_TRAIN_SERVER_SUPPORT_H
#define FTH_TRAIN_SERVER_SUPPORT_H

#include "train/engine/engine.h"

/* The learning rate of the update after `updates_done`, by the options' schedule and warm-up.
 * --steps, or --epochs where an epoch's updates are known (else `updates_per_epoch` is 0), say
 * where it ends. */
fth_status fth_service_rate(const fth_train_options *options, double base_rate, int64_t updates_done,
                            int64_t updates_per_epoch, double *rate);

/* The normalization where there is no data set: what options or the weights file say; else
 * unknown. */
fth_status fth_service_find_normalization(const fth_train_options *options, fth_normalization *normalization);

/* The data set of the options; no device is opened for it. The caller frees it with
 * fth_dataset_free(). `tokenizer`, which outlives it, may be NULL. */
fth_status fth_service_open_data(const fth_train_options *options, const struct fth_tokenizer *tokenizer,
                                 fth_dataset **dataset);

/* What is said of a sample to a worker, who compares: "3x32x32"; of text the task and which
 * tokenizer made its tokens. */
void fth_service_describe_input(const fth_engine_options *engine, const struct fth_tokenizer *tokenizer, char *text,
                                size_t size);

/* "machine" of run.json; the caller's. */
json_t *fth_service_describe_machine(const fth_device *device);

/* Host copies of gradients (of the group of batches that was computed last) and buffers; and the
 * way back for weights. Each may be NULL; sizes are fth_engine_get_sizes()'s. */
fth_status fth_service_read(fth_engine *engine, float *gradients, float *buffers);
fth_status fth_service_write(fth_engine *engine, const float *parameters, const float *buffers);

/* An update with gradients that lie elsewhere: parts of the vector of trained parameters, as if
 * they had been copied into the engine's own first, multiplied by `scale`. Not where gradients are
 * clipped. */
typedef struct fth_gradient_piece {
    size_t offset, count; /* floats */
    const float *values;
} fth_gradient_piece;
fth_status fth_service_update(fth_engine *engine, double learning_rate, int64_t update, float scale,
                              const fth_gradient_piece *pieces, size_t count);

/* The engine's own vectors, lent. Gradients are what fth_engine_update() uses; padding between
 * tensors stays zero. */
fth_vectors fth_service_get_vectors(const fth_engine *engine);

#endif
