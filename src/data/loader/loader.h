/* A loader is an fth_loader_kind and its state:
 *
 *     images     threads that decode and transform into a ring of batches (image_loader.c)
 *     finished   batches that a provider has finished (finished_loader.c)
 *     text       tokens in memory, packed when a batch is asked for (text_loader.c) */
#ifndef FTH_DATA_LOADER_H
#define FTH_DATA_LOADER_H

#include "data/data_internal.h"

enum { FTH_MAX_LOADER_THREADS = 256 };

typedef struct fth_loader_kind {
    fth_status (*next)(fth_loader *loader, fth_deadline deadline, const fth_batch **batch);
    /* As fth_loader_get(). NULL: the loader only gives batches. */
    fth_status (*get)(fth_loader *loader, int64_t number, int64_t sample, float *image, int32_t *label);
    void (*free)(fth_loader *loader);
} fth_loader_kind;

/* The first member of every loader. */
struct fth_loader {
    const fth_loader_kind *kind;
};

/* The part of fth_loader_check() and fth_loader_open() that is specific to images or text. */
fth_status fth_image_loader_check(const fth_dataset *dataset, const fth_loader_options *options);
fth_status fth_image_loader_open(const fth_dataset *dataset, const fth_loader_options *options, fth_loader **loader);
/* An image loader for a provider's session; it closes the session if it owns it. */
fth_status fth_image_loader_open_for_session(const fth_dataset *dataset, const fth_loader_options *options,
                                             void *session, bool owns_session, fth_loader **loader);
/* A loader of batches that a provider has finished; it closes the session. */
typedef fth_status fth_next_batch(void *session, fth_deadline deadline, const fth_batch **batch);
fth_status fth_finished_loader_open(const fth_dataset *dataset, fth_next_batch *next_batch, void *session,
                                    fth_loader **loader);
fth_status fth_text_loader_check(const fth_dataset *dataset, const fth_loader_options *options);
fth_status fth_text_loader_open(const fth_dataset *dataset, const fth_loader_options *options, fth_loader **loader);

/* ---- which samples a batch has ---- */

/* A pure function of the options. Places count the batches of this loader: with a stride, the place
 * after the first is batch number first + stride. */
typedef struct fth_batch_sequence {
    fth_sampler sampler;
    fth_share part;
    int64_t epochs_later; /* added to epochs by a rotation of more than one epoch */
    int64_t samples;      /* of an epoch, in the loader's share */
    int64_t batch, batches_per_epoch;
    int64_t first, stride;
    int64_t end; /* the place after the last */
} fth_batch_sequence;

fth_batch_sequence fth_batch_sequence_create(const fth_dataset *dataset, const fth_loader_options *options);
int64_t fth_batch_sequence_number(const fth_batch_sequence *sequence, int64_t place);
/* Count, number and epoch of the batch at a place. */
fth_batch fth_batch_sequence_describe(const fth_batch_sequence *sequence, int64_t place);
/* The epoch whose order and augmentation a batch has, and its first sample's position in that
 * order. */
int64_t fth_batch_sequence_epoch(const fth_batch_sequence *sequence, const fth_batch *batch);
int64_t fth_batch_sequence_position(const fth_batch_sequence *sequence, const fth_batch *batch);

#endif
