/* Data sets whose samples somebody else provides, one at a time or as finished batches: what lies
 * behind addresses that this folder does not open itself (fth_dataset_scheme). Transforms, bad
 * images and the loader are as for files. */
#ifndef FTH_DATA_PROVIDER_H
#define FTH_DATA_PROVIDER_H

#include <stdatomic.h>

#include "data/data.h"

/* How long reading something that has to be fetched may take. */
typedef struct fth_patience {
    const atomic_bool *stop; /* FTH_INTERRUPTED soon after it is set; may be NULL */
    fth_deadline deadline;   /* FTH_TIMEOUT after it; 0: only the store's own */
    double failing_s;        /* FTH_TIMEOUT after this long if requests are known to fail; 0: the same */
} fth_patience; /* After FTH_TIMEOUT it goes on being fetched: ask again. The message says what the store does. */

/* A sample before its transform. */
typedef struct fth_raw_sample {
    const uint8_t *bytes; /* a file's; or pixels, if width > 0: RGB, row after row; or planes */
    size_t size_bytes;
    size_t stride; /* bytes from row to row of RGB pixels; 0: no gaps */
    int width, height, channels;
    bool planar;
    bool padded; /* 16 readable bytes follow the pixels, which saves a copy of them */
    int32_t label;
    const char *name; /* for messages; may be NULL */
    void *lease;      /* for give_back() */
    bool unplanned;   /* set before it is taken: it takes the place of a bad image, so nobody expects it to be needed */
} fth_raw_sample;

/* Who provides them. A session is one loader's; it decides, when it is opened, whether the loader
 * gets finished batches or finishes samples itself. */
typedef struct fth_dataset_provider {
    void *context; /* the data set's to free, with `free` */
    void (*free)(void *context);
    /* NULL: loaders have no sessions. It may set what decides the order: own_order, order_seed,
     * rotation and seed. *finished: batches come from next(). */
    fth_status (*open_session)(void *context, const fth_dataset *dataset, fth_loader_options *options, bool *finished,
                               void **session);
    void (*close_session)(void *context, void *session);
    fth_status (*next)(void *session, fth_deadline deadline, const fth_batch **batch); /* as fth_loader_next() */
    void (*moved)(void *session, int64_t next); /* of a loader that finishes samples: the batch it gives out next */
    /* Lends a sample, to a session's loader or (NULL) anybody else. FTH_CORRUPT: it cannot be read,
     * which counts as a bad image; FTH_TIMEOUT: not yet, ask again; other failures end the loading.
     * What has a lease is given back, also then. Any thread. */
    fth_status (*take)(void *context, void *session, fth_split split, int64_t sample, fth_deadline deadline,
                       fth_raw_sample *raw);
    void (*give_back)(void *context, fth_raw_sample *raw);
    /* What keeps those who wait for samples or batches, for a message. Optional. Any thread. */
    void (*explain)(void *context, char *text, size_t size);
    /* As fth_dataset_expect(), for a session: samples that its loader comes to. Optional. */
    size_t (*expect)(void *session, const int64_t *samples, size_t count);
} fth_dataset_provider;

typedef struct fth_provided_set {
    fth_dataset_info info;     /* copied; its normalization is the usual one, size and transform are for who opens it */
    bool files;                /* samples are image files: transformed always */
    int raw_height, raw_width; /* of images as they are stored; 0: files of different sizes, or large ones */
    const char *version;       /* fth_dataset_version() of it */
    const char *source;        /* for messages */
} fth_provided_set;

/* Takes over the provider, also on failure. */
fth_status fth_dataset_create_provided(const fth_provided_set *set, const fth_dataset_provider *provider,
                                       const fth_dataset_options *options, fth_dataset **dataset);
/* The provider's context; NULL if the set is not one of `free`'s kind. */
void *fth_dataset_get_provider(const fth_dataset *dataset, void (*free)(void *context));
/* Counts a sample as a bad image, as the loader does with those that it cannot read: for who
 * replaced it already. */
fth_status fth_dataset_note_bad_sample(const fth_dataset *dataset, fth_split split, int64_t sample, const char *name,
                                       const char *reason);
/* What to say of a set so that somebody else can provide it; lent by the set, without its
 * version. */
void fth_dataset_describe_provided(const fth_dataset *dataset, fth_provided_set *set);

/* Why samples do not come, as far as the set knows it, for the message of whoever gives up waiting.
 * False: nothing is known. */
bool fth_dataset_explain(const fth_dataset *dataset, char *text, size_t size);

/* A loader that finishes samples of a session that is open already, and stays the caller's: for a
 * session that has no finished batches any more. */
fth_status fth_loader_open_for_session(const fth_dataset *dataset, const fth_loader_options *options, void *session,
                                       fth_loader **loader);

/* ---- the other way: samples of a set as they are, for those who provide them to others ---- */

/* One thread's tools for finishing samples. */
typedef struct fth_sample_maker fth_sample_maker;
fth_status fth_sample_maker_create(const fth_dataset *dataset, fth_sample_maker **maker);
void fth_sample_maker_free(fth_sample_maker *maker);
/* A sample as it is stored: an image file's bytes, or pixels. Lent until the maker reads again.
 * FTH_CORRUPT with the reason, if it cannot be read, here or anywhere; other failures may pass.
 * Nothing is counted as a bad image. `patience` may be NULL. */
fth_status fth_sample_maker_read(fth_sample_maker *maker, fth_split split, int64_t sample, const fth_patience *patience,
                                 fth_raw_sample *raw);
/* These will be read soon, in this order, by any maker of the set: whoever has to fetch them can
 * begin. `needed_s`: when, by fth_clock_seconds(); what is needed first is fetched first. */
void fth_sample_maker_expect(fth_sample_maker *maker, fth_split split, const int64_t *samples, int64_t count,
                             double needed_s);
/* Its pixels: a file's decoded whole, at full size. Lent until the maker is used again. What comes
 * of them is what a loader with a cache of decoded images makes, and a little different from what
 * comes of the file. */
fth_status fth_sample_maker_decode(fth_sample_maker *maker, const fth_raw_sample *raw, fth_raw_sample *pixels);
/* A raw sample through a transform of fth_dataset_describe_preparation()'s language, which is
 * parsed once, as a loader would for (seed, epoch, sample): the same bits. */
typedef struct fth_finish {
    const char *preparation;
    fth_augmentation augmentation; /* of images in memory */
    uint64_t seed;
    int64_t epoch, sample;
} fth_finish;
fth_status fth_sample_maker_finish(fth_sample_maker *maker, const fth_raw_sample *raw, const fth_finish *finish,
                                   float *planes);
/* (channels, height, width) of what finish() writes; FTH_INVALID if the preparation is none for
 * images of the set. */
fth_status fth_sample_maker_shape(fth_sample_maker *maker, const char *preparation, int shape[3]);
double fth_sample_maker_decode_seconds(const fth_sample_maker *maker); /* spent in decoders so far */

#endif
