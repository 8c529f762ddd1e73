/* Data sets whose samples come from a provider, one at a time or as finished batches: what is
 * behind addresses of an fth_dataset_scheme. Transforms, bad images and loaders work as for
 * files. */
#ifndef FTH_DATA_PROVIDER_H
#define FTH_DATA_PROVIDER_H

#include <stdatomic.h>

#include "data/data.h"

/* How long reading a sample that has to be fetched may take. */
typedef struct fth_patience {
    const atomic_bool *stop; /* once set, FTH_INTERRUPTED; may be NULL */
    fth_deadline deadline;   /* FTH_TIMEOUT afterwards; 0: the store's own */
    double failing_s;        /* FTH_TIMEOUT after this time if requests are known to fail; 0: never */
} fth_patience; /* After FTH_TIMEOUT it is still being fetched: try again. The message describes the store's state. */

/* A sample as it is stored. */
typedef struct fth_raw_sample {
    const uint8_t *bytes; /* a file; or pixels if width > 0: rows of RGB, or planes */
    size_t size_bytes;
    size_t stride; /* bytes from one row of RGB pixels to the next; 0: no gaps */
    int width, height, channels;
    bool planar;
    bool padded; /* 16 readable bytes follow the pixels, which saves a copy */
    int32_t label;
    const char *name; /* for messages; may be NULL */
    void *lease;      /* for give_back() */
    bool unplanned;   /* set before it is taken: it replaces a bad image, so it was not announced */
} fth_raw_sample;

/* Hands out samples. A session belongs to one loader; when it is opened it decides whether the
 * loader gets finished batches or finishes samples itself. */
typedef struct fth_dataset_provider {
    void *context; /* owned by the data set, freed by `free` */
    void (*free)(void *context);
    /* NULL: no sessions. May set own_order, order_seed, rotation and seed. *finished: batches come
     * from next(). */
    fth_status (*open_session)(void *context, const fth_dataset *dataset, fth_loader_options *options, bool *finished,
                               void **session);
    void (*close_session)(void *context, void *session);
    fth_status (*next)(void *session, fth_deadline deadline, const fth_batch **batch); /* as fth_loader_next() */
    void (*moved)(void *session, int64_t next); /* for loaders that finish samples: the number of their next batch */
    /* Lends a sample, to a session's loader or to other callers (NULL). FTH_CORRUPT: unreadable, a
     * bad image; FTH_TIMEOUT: not yet, try again; other failures end the loading. A lease is given
     * back in every case. Any thread. */
    fth_status (*take)(void *context, void *session, fth_split split, int64_t sample, fth_deadline deadline,
                       fth_raw_sample *raw);
    void (*give_back)(void *context, fth_raw_sample *raw);
    /* Explains why samples or batches do not arrive. Optional. Any thread. */
    void (*explain)(void *context, char *text, size_t size);
    /* As fth_dataset_expect(), for the loader of a session. Optional. */
    size_t (*expect)(void *session, const int64_t *samples, size_t count);
} fth_dataset_provider;

typedef struct fth_provided_set {
    fth_dataset_info
        info;   /* copied; with the default normalization; size and transform are chosen by the user of the set */
    bool files; /* samples are image files, always transformed */
    int raw_height, raw_width; /* of stored images; 0: files of different or large sizes */
    const char *version;       /* its fth_dataset_version() */
    const char *source;        /* for messages */
} fth_provided_set;

/* Takes ownership of the provider, even on failure. */
fth_status fth_dataset_create_provided(const fth_provided_set *set, const fth_dataset_provider *provider,
                                       const fth_dataset_options *options, fth_dataset **dataset);
/* The provider's context; NULL if the provider's free() is another. */
void *fth_dataset_get_provider(const fth_dataset *dataset, void (*free)(void *context));
/* Notes a bad image that was already replaced elsewhere. */
fth_status fth_dataset_note_bad_sample(const fth_dataset *dataset, fth_split split, int64_t sample, const char *name,
                                       const char *reason);
/* Describes a set for a provider of it; lent by the set, without its version. */
void fth_dataset_describe_provided(const fth_dataset *dataset, fth_provided_set *set);

/* Explains why samples do not arrive, for messages about a timeout. False: unknown. */
bool fth_dataset_explain(const fth_dataset *dataset, char *text, size_t size);

/* A loader that finishes samples of an open session, which the caller keeps: for a session that
 * cannot give finished batches any more. */
fth_status fth_loader_open_for_session(const fth_dataset *dataset, const fth_loader_options *options, void *session,
                                       fth_loader **loader);

/* ---- for providers: stored samples of a set ---- */

/* One thread's tools for reading and finishing samples. */
typedef struct fth_sample_reader fth_sample_reader;
fth_status fth_sample_reader_create(const fth_dataset *dataset, fth_sample_reader **reader);
void fth_sample_reader_free(fth_sample_reader *reader);
/* A sample as it is stored: an image file's bytes, or pixels. Lent until the next read.
 * FTH_CORRUPT, with the reason, if it can never be read; other failures may be temporary. Bad
 * images are not counted. `patience` may be NULL. */
fth_status fth_sample_reader_read(fth_sample_reader *reader, fth_split split, int64_t sample,
                                  const fth_patience *patience, fth_raw_sample *raw);
/* Announces samples that any reader of the set will read, as fth_dataset_expect(). */
void fth_sample_reader_expect(fth_sample_reader *reader, fth_split split, const int64_t *samples, int64_t count,
                              double needed_s);
/* The pixels of a stored sample; a file is decoded whole, at full size. Lent until the reader is
 * used again. Results equal those of a loader with a cache of decoded images, and differ slightly
 * from those of the file. */
fth_status fth_sample_reader_decode(fth_sample_reader *reader, const fth_raw_sample *raw, fth_raw_sample *pixels);
/* A stored sample through a preparation (fth_dataset_describe_preparation(), parsed once), exactly
 * as a loader would for (seed, epoch, sample). */
typedef struct fth_finish {
    const char *preparation;
    fth_augmentation augmentation; /* of images in memory */
    uint64_t seed;
    int64_t epoch, sample;
} fth_finish;
fth_status fth_sample_reader_finish(fth_sample_reader *reader, const fth_raw_sample *raw, const fth_finish *finish,
                                    float *planes);
/* (channels, height, width) of the result of finish(); FTH_INVALID if the preparation does not suit
 * the set. */
fth_status fth_sample_reader_shape(fth_sample_reader *reader, const char *preparation, int shape[3]);
double fth_sample_reader_decode_seconds(const fth_sample_reader *reader); /* spent in decoders so far */

#endif
