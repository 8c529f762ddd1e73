/* What the files of this folder need of sets whose samples somebody else provides (provider.h,
 * provider.c). */
#ifndef FTH_DATA_PROVIDED_SET_H
#define FTH_DATA_PROVIDED_SET_H

#include <stdatomic.h>

#include "data/image/image_set.h"
#include "data/source/provider.h"

void fth_provided_samples_free(fth_provided_samples *samples);
fth_bad_images *fth_provided_bad_images(const fth_provided_samples *samples);
const char *fth_provided_version(const fth_provided_samples *samples);
bool fth_provided_expects(const fth_dataset *dataset); /* whether its provider can be told what comes */
size_t fth_provided_expect(const fth_dataset *dataset, void *session, const int64_t *samples, size_t count);
bool fth_provided_explain(const fth_provided_samples *samples, char *text, size_t size);

/* One sample for a loader. */
typedef struct fth_provided_request {
    void *session; /* or NULL */
    fth_split split;
    int64_t sample, epoch;
    uint64_t seed;
    const fth_transform *transform; /* of sets that are transformed ... */
    fth_random_key key;
    fth_augmentation augmentation; /* ... and of the others */
    bool exact;                    /* one that cannot be read is an error, not replaced and counted */
    const atomic_bool *stop;       /* ends a wait; or NULL */
} fth_provided_request;
fth_status fth_provided_load(const fth_dataset *dataset, const fth_provided_request *request, fth_image_worker *worker,
                             float *planes, int32_t *label);
/* An image that is no file, as it is stored. */
fth_status fth_provided_look(const fth_dataset *dataset, fth_split split, int64_t sample, uint8_t *pixels,
                             int32_t *label);

/* A loader's session, as fth_dataset_provider has it. */
fth_status fth_provided_open_session(const fth_dataset *dataset, fth_loader_options *options, bool *finished,
                                     void **session);
void fth_provided_close_session(const fth_dataset *dataset, void *session);
fth_status fth_provided_next(const fth_dataset *dataset, void *session, fth_deadline deadline, const fth_batch **batch);
void fth_provided_moved(const fth_dataset *dataset, void *session, int64_t next);

#endif
