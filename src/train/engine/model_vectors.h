/* A model's flat vectors on its device. An engine has its own, or borrows parameters, buffers and
 * optimizer state from a caller that lets several engines train one model in place (Hogwild!).
 * Gradients are its own, or where others can sum them.
 *
 * The pointers are open to the files of src/train: they are what plans, updates, snapshots and
 * loading work on. Only the functions below set them. */
#ifndef FTH_TRAIN_MODEL_VECTORS_H
#define FTH_TRAIN_MODEL_VECTORS_H

#include "train/engine/engine.h"

typedef struct fth_model_vectors {
    fth_device *device;
    fth_engine_sizes sizes;
    float *parameters, *buffers;
    float *state[FTH_MAX_OPTIMIZER_VECTORS];
    bool borrowed;       /* parameters, buffers and state */
    float *gradients;    /* of the last batch; NULL for evaluation */
    float *accumulated;  /* gradients of several batches; NULL where each batch makes an update */
    bool lent_gradients; /* those that an update uses are in the caller's memory */
} fth_model_vectors;

/* What the vectors of an engine are made for. */
typedef struct fth_model_vectors_options {
    fth_engine_sizes sizes;
    bool trains;                      /* with gradients */
    bool accumulates;                 /* several batches make an update */
    const fth_engine_vectors *shared; /* to borrow; NULL: its own, zeroed */
} fth_model_vectors_options;

/* On failure too, the vectors are the caller's to release. FTH_UNSUPPORTED if there are some to
 * borrow and the device's memory is not the host's. */
fth_status fth_model_vectors_allocate(fth_model_vectors *vectors, fth_device *device,
                                      const fth_model_vectors_options *options);
void fth_model_vectors_release(fth_model_vectors *vectors);

/* Sets parameters and buffers as fth_graph_initialize() does. */
fth_status fth_model_vectors_initialize(fth_model_vectors *vectors, const fth_graph *graph, uint64_t seed);

/* What plans are bound to. */
fth_vectors fth_model_vectors_for_plans(const fth_model_vectors *vectors);
/* The gradients that an update uses. */
float *fth_model_vectors_get_gradients(const fth_model_vectors *vectors);
/* Adds the last batch's gradients to the group's, which start at zero with its `first` batch.
 * Nothing where each batch makes an update. */
fth_status fth_model_vectors_accumulate(fth_model_vectors *vectors, bool first);
/* The same for floats [begin, end) alone. */
fth_status fth_model_vectors_accumulate_range(fth_model_vectors *vectors, bool first, size_t begin, size_t end);

/* See fth_engine_copy_weights(), fth_engine_move_vectors() and fth_engine_move_gradients(). */
fth_status fth_model_vectors_copy_weights(const fth_model_vectors *from, fth_model_vectors *to);
fth_status fth_model_vectors_move(fth_model_vectors *vectors, const fth_engine_vectors *to);
fth_status fth_model_vectors_move_gradients(fth_model_vectors *vectors, float *to);

#endif
