/* A data set is an fth_dataset_kind and its state. This header is for the files of this folder: the
 * table, what all kinds share, and the path of one sample from its stored form to a tensor.
 *
 *     kind          opened by                  a sample is
 *     generated     a built-in name            drawn (array/generated_set.c)
 *     arrays        idx, CIFAR-10, programs    pixels in memory (array/array_set.c)
 *     images        folders, archives, stores  an encoded file (image/image_set.c)
 *     provided      fth_dataset_scheme         whatever its provider hands out (source/provider.c)
 *     text          tables                     tokens in memory (text/text_set.c) */
#ifndef FTH_DATA_DATA_INTERNAL_H
#define FTH_DATA_DATA_INTERNAL_H

#include <stdatomic.h>
#include <stddef.h>

#include "data/image/bad_images.h"
#include "data/image/transform.h"
#include "data/loader/held_out.h"
#include "data/source/provider.h"
#include "data/version.h"
#include "store/store.h"

typedef struct fth_image_worker fth_image_worker;

/* A request for a sample as a loader finishes it. */
typedef struct fth_sample_request {
    fth_split split;
    int64_t sample, epoch;
    uint64_t seed;
    const fth_transform *transform; /* for sets that are transformed ... */
    fth_random_key key;
    fth_augmentation augmentation; /* ... and for the others */
    void *session;                 /* of a provider; or NULL */
    bool exact;                    /* fail on an unreadable sample instead of replacing it */
    const atomic_bool *stop;       /* ends a wait; or NULL */
} fth_sample_request;

/* Once the set is open, any thread may call these. A kind has `look` or `read`; text has only its
 * loader. */
typedef struct fth_dataset_kind {
    const char *name;
    void (*free)(void *state); /* may get NULL */
    /* The label of an existing sample. */
    int32_t (*label)(const fth_dataset *dataset, fth_split split, int64_t index);
    /* An image in memory as it is stored: *pixels points to it or to `scratch`, which is large
     * enough. */
    fth_status (*look)(const fth_dataset *dataset, fth_split split, int64_t index, uint8_t *scratch,
                       const uint8_t **pixels, int32_t *label);
    /* Sample `index` as it is stored. FTH_CORRUPT: it is unreadable and counts as a bad image;
     * other failures end the loading. raw->name and raw->lease may be set even then. */
    fth_status (*read)(const fth_dataset *dataset, const fth_sample_request *request, int64_t index,
                       fth_image_worker *worker, fth_raw_sample *raw);
    void (*give_back)(const fth_dataset *dataset, fth_raw_sample *raw);                   /* after read(); optional */
    char *(*describe_sample)(const fth_dataset *dataset, fth_split split, int64_t index); /* a path; optional */
    /* Adds the stored samples to the version; or get_version gives the whole version. */
    fth_status (*add_version)(const fth_dataset *dataset, fth_version_hash *hash);
    const char *(*get_version)(const fth_dataset *dataset);
    /* As fth_dataset_expect(), for a loader's session or NULL. Optional. */
    size_t (*expect)(const fth_dataset *dataset, void *session, fth_split split, const int64_t *samples, size_t count,
                     double needed_s);
    bool (*explain)(const fth_dataset *dataset, char *text, size_t size); /* as fth_dataset_explain(); optional */
    /* For a provider's sessions (source/provider.h). Optional. */
    void (*moved)(const fth_dataset *dataset, void *session, int64_t next);
    void (*close_session)(const fth_dataset *dataset, void *session);
    fth_status (*check_loader)(const fth_dataset *dataset, const fth_loader_options *options);
    fth_status (*open_loader)(const fth_dataset *dataset, const fth_loader_options *options, fth_loader **loader);
} fth_dataset_kind;

struct fth_dataset {
    const fth_dataset_kind *kind;
    void *state; /* the kind's, freed with the set */
    fth_dataset_info info;
    fth_raw_images raw;            /* images as they are stored */
    fth_transform transforms[2];   /* by fth_split */
    bool transformed;              /* images go through a transform for every batch: files always, others on request */
    bool expects;                  /* samples have to be fetched, so they should be announced */
    fth_held_out_samples held_out; /* from the training part, if there is no validation part */
    fth_bad_images *bad;           /* for kinds with `read` */
    fth_store_switch *requests;    /* of the thread that opens the set, unless it has a switch already */
    fth_store_progress stopping;   /* ends them when opening is stopped */
};

/* A file format of data sets. */
typedef struct fth_dataset_format {
    const char *name;
    const char *subfolder; /* also searched, since archives unpack to it; or NULL */
    const char *files;     /* the files it looks for, in words */
    bool (*probe)(const char *folder);
    /* Whether a file or URL is in this format. Optional. */
    fth_status (*probe_address)(const char *address, const fth_dataset_options *options, bool *fits);
    fth_status (*open)(const char *address, const fth_dataset_options *options, fth_dataset *dataset);
} fth_dataset_format;

#define FTH_DATASET_FORMATS(ROW)                                                                                       \
    ROW(idx)                                                                                                           \
    ROW(cifar)                                                                                                         \
    ROW(images)                                                                                                        \
    ROW(text)

#define FTH_DECLARE(name) extern const fth_dataset_format fth_format_##name;
FTH_DATASET_FORMATS(FTH_DECLARE)
#undef FTH_DECLARE

/* Resolves the transforms, and with them the size and normalization in the set's info. */
fth_status fth_dataset_prepare(const fth_dataset_options *options, const fth_raw_images *raw, fth_dataset *dataset);
/* Holds out training images if the set has no validation part. */
fth_status fth_dataset_hold_out(const fth_dataset_options *options, const char *name, fth_dataset *dataset);

/* ---- samples (sample.c) ---- */

/* fth_dataset_kind.look() for any set of pixels. */
fth_status fth_dataset_look(const fth_dataset *dataset, fth_split split, int64_t index, uint8_t *scratch,
                            const uint8_t **pixels, int32_t *label);
/* A sample as it is stored. Call give_back() in any case. */
fth_status fth_stored_sample_read(const fth_dataset *dataset, const fth_sample_request *request, int64_t index,
                                  fth_image_worker *worker, fth_raw_sample *raw);
void fth_stored_sample_give_back(const fth_dataset *dataset, fth_raw_sample *raw);
/* A sample as a loader gives it. An unreadable one is noted as bad and replaced by the next
 * readable one; too many are an error. */
fth_status fth_sample_load(const fth_dataset *dataset, const fth_sample_request *request, fth_image_worker *worker,
                           float *planes, int32_t *label);

/* fth_dataset_expect() for a loader's session, or NULL. */
size_t fth_dataset_expect_for_session(const fth_dataset *dataset, void *session, fth_split split,
                                      const int64_t *samples, size_t count, double needed_s);

static inline size_t fth_image_bytes(const fth_dataset_info *info)
{
    return (size_t)info->channels * (size_t)info->height * (size_t)info->width;
}

/* Bytes of an image in memory as it is stored. */
static inline size_t fth_raw_bytes(const fth_dataset *dataset)
{
    return (size_t)dataset->info.channels * (size_t)dataset->raw.height * (size_t)dataset->raw.width;
}

#endif
