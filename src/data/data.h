/* Data: sets of labelled images or texts, the order of samples, and batches made ahead of need.
 *
 * sampler (a pure function of position) -> loader threads read, augment, normalize -> a ring of
 * finished batches. Everything random is a pure function of (seed, epoch, sample), so a position is
 * one integer and any batch can be made again, anywhere. */
#ifndef FTH_DATA_DATA_H
#define FTH_DATA_DATA_H

#include <farthing/data.h> /* fth_split */
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "data/image/normalization.h"
#include "data/source/skipped_files.h"
#include "tensor/recipe.h"

/* ---- data sets ---- */

typedef enum fth_modality { FTH_MODALITY_IMAGES, FTH_MODALITY_TEXT } fth_modality;

/* What the labels of texts are. */
typedef enum fth_label_kind {
    FTH_LABEL_CLASS,  /* one of several names or numbers */
    FTH_LABEL_NUMBER, /* one number, or several */
    FTH_LABEL_SET     /* any number of names */
} fth_label_kind;

/* For sets of text. Members may be 0 or NULL. */
typedef struct fth_text_options {
    const struct fth_tokenizer *tokenizer; /* outlives the set; NULL: learned from the training texts */
    int vocabulary;                        /* size of a learned vocabulary; 0: 8192 */
    int longest; /* most tokens of a sample, special ones included; longer samples are cut; 0: 128 */
    const char *text_column, *pair_column,
        *label_column; /* names or numbers from 1; NULL or "": the usual ones are searched */
    fth_label_kind label;
    /* The class names of an existing model, in order, ending with NULL; no others may occur. */
    const char *const *class_names;
    bool keep_text; /* for fth_text_set_inspect() */
} fth_text_options;

typedef struct fth_dataset_options {
    uint64_t seed;              /* of the held-out samples */
    double validation_fraction; /* share held out if the set has no validation part; in (0, 1) */
    bool random_split;          /* hold out at random, not the same share of every class */
    bool whole;                 /* hold nothing out: the set may have no validation samples */
    int threads;                /* for decompression and tokenizing */
    const fth_stop *stop; /* once asked, opening ends with FTH_INTERRUPTED and leaves nothing unfinished; or NULL */

    /* Preparation of images. Members may be 0 or NULL. */
    int image_size;                               /* side of the loader's images; 0: the set's own, or chosen */
    const char *transform, *validation_transform; /* as for fth_transform_check(); NULL or "": the usual ones */
    fth_normalization normalization;              /* unknown: that of a transform, or the set's own */

    /* For image files. Members may be 0. */
    double max_bad_images;        /* share of unreadable images above which loading fails; 0: 0.001 */
    uint64_t decoded_cache_bytes; /* memory for decoded images; 0: none */

    /* For sets in a store, which are read in place. Members may be 0 or NULL. */
    const struct fth_store_options *store; /* access to the store */
    uint64_t disk_cache_bytes;             /* disk space for encoded images; 0: none */
    const char *disk_cache_folder;         /* NULL or "": objects/ in the cache folder */

    fth_text_options text;
    const char *images_for; /* the feature that needs images, for the message that refuses text; NULL: any set */

    const struct fth_dataset_scheme *const *schemes; /* addresses opened by other folders; ends with NULL; or NULL */
} fth_dataset_options;

/* The part of a set without validation samples that is held out. */
typedef struct fth_held_out {
    double fraction; /* 0: the set has a validation part */
    uint64_t seed;   /* for drawing the samples */
    bool by_class;   /* the same share of every class */
} fth_held_out;

/* Properties of a set of text. */
typedef struct fth_text_info {
    const struct fth_tokenizer *tokenizer; /* made the tokens; lives as long as the set */
    fth_label_kind label;
    int longest;                          /* most tokens of a sample */
    double mean_length, length_deviation; /* number of tokens of the training samples */
} fth_text_info;

typedef struct fth_dataset_info {
    const char *name;
    fth_modality modality; /* for text, channels, height, width and normalization are 0 */
    fth_text_info text;
    int classes; /* if labels are numbers: how many each sample has */
    const char *const *class_names;
    int channels, height, width;
    int64_t count[2];                /* by fth_split */
    fth_normalization normalization; /* one number for every channel */
    fth_held_out held_out;
} fth_dataset_info;

typedef struct fth_dataset fth_dataset;

/* Opens a built-in set by name ("digits", "shapes", "shapes-20"); tables of text
 * (data/text/text_files.h); a folder of MNIST idx or CIFAR-10 binary files, recognized by their
 * names; or image files in class folders, train/<class>/ and val/<class>/ or just <class>/, as a
 * folder, a .tar, .tar.gz, .tar.xz, .tar.zst or .zip, or an https:// URL of one, which is
 * downloaded once (URL#sha256=... is verified). */
fth_status fth_dataset_open(const char *name_or_folder, const fth_dataset_options *options, fth_dataset **dataset);

/* Addresses that are opened by another folder. */
typedef struct fth_dataset_scheme {
    bool (*fits)(const char *address);
    fth_status (*open)(const char *address, const fth_dataset_options *options, fth_dataset **dataset);
} fth_dataset_scheme;

/* The set's version, as 64 hex digits: a hash of its index with the files' etags, sizes and times,
 * or of their contents (version.c). Sets of one version have the same samples in the same order,
 * wherever they are stored; transforms are not part of it. Looks at every file of a folder, so call
 * it once. */
fth_status fth_dataset_version(const fth_dataset *dataset, char version[65]);

/* Images in memory. Pixels must stay valid until the set is freed; everything else is copied. */
typedef struct fth_image_array {
    const uint8_t *pixels; /* (count, channels, height, width) */
    const int32_t *labels; /* (count) */
    int64_t count;
} fth_image_array;
typedef struct fth_image_arrays {
    const char *name; /* must stay valid as long as the set */
    int channels, height, width, classes;
    const char *const *class_names; /* (classes); NULL: numbers */
    fth_image_array parts[2];       /* by fth_split; if there are no validation images some are held out */
} fth_image_arrays;
fth_status fth_dataset_create(const fth_image_arrays *arrays, const fth_dataset_options *options,
                              fth_dataset **dataset);
void fth_dataset_free(fth_dataset *dataset);
const fth_dataset_info *fth_dataset_get_info(const fth_dataset *dataset);

/* One image, channels × height × width bytes, and its label, through the validation transform if
 * images are transformed. Any thread, any time. The loader is faster. */
fth_status fth_dataset_read(const fth_dataset *dataset, fth_split split, int64_t index, uint8_t *pixels,
                            int32_t *label);

/* Announces samples that will be read soon, in that order, so that a remote set can fetch them
 * ahead; loaders do this themselves. Returns how many of them, from the first on, were accepted:
 * fewer than `count` if there is no room; announce the others again later. `needed_s` is the time
 * by fth_clock_seconds() when they are needed, 0: now; earlier needs are fetched first. Never
 * waits. Any thread. */
size_t fth_dataset_expect(const fth_dataset *dataset, fth_split split, const int64_t *samples, size_t count,
                          double needed_s);

/* Unreadable images found so far by any loader of the set, in order. fth_dataset_get_bad_image()
 * lends until the set is freed. */
typedef struct fth_bad_image {
    const char *name, *reason;
    fth_split split;
} fth_bad_image;
int64_t fth_dataset_bad_image_count(const fth_dataset *dataset);
const fth_bad_image *fth_dataset_get_bad_image(const fth_dataset *dataset, int64_t number);

/* Files among a set's images in formats that cannot be read. Lives as long as the set; NULL if it
 * is no set of image files. */
const fth_skipped_files *fth_dataset_get_skipped_files(const fth_dataset *dataset);

/* True if images go through a transform for every batch: image files always, images in memory if a
 * transform or another size was asked for. They cannot be made from recipes. */
bool fth_dataset_is_transformed(const fth_dataset *dataset);

/* Built-in names with a line on each, for help and errors; ends with a NULL name. */
typedef struct fth_dataset_builtin {
    const char *name, *summary;
} fth_dataset_builtin;
extern const fth_dataset_builtin fth_dataset_builtins[];
/* The same, for completion of --data. */
fth_choice fth_dataset_choice(size_t index);

/* ---- the order of samples ---- */

/* One of several workers' shares of an epoch: every `of`-th sample of its order, from `index` on.
 * Together the shares are the epoch. {0, 0}: all of it. */
typedef struct fth_share {
    int64_t index, of;
} fth_share;
int64_t fth_share_samples(fth_share share, int64_t count); /* how many of `count` are in it */
/* One of several parts of a batch of `count` samples: consecutive samples from fth_part_begin(part,
 * count) on. Together the parts are the batch; some are empty if there are fewer samples than
 * parts. {0, 0}: all of it. */
int64_t fth_part_begin(fth_share part, int64_t count);
int64_t fth_part_samples(fth_share part, int64_t count);

typedef struct fth_sampler {
    uint64_t seed;
    int64_t count; /* of the whole set */
    bool shuffle;
    fth_share share;
    int64_t rotation; /* epochs begin this many samples later in the order, and wrap around */
} fth_sampler;

/* The sample at `position` of `epoch`, in constant memory. Each sample 0..count-1, or each of the
 * share's, occurs once an epoch. */
int64_t fth_sampler_index(const fth_sampler *sampler, int64_t epoch, int64_t position);
/* The same for `count` consecutive positions; several times as fast. */
void fth_sampler_indices(const fth_sampler *sampler, int64_t epoch, int64_t position, int64_t count, int64_t *samples);

/* ---- augmentation and normalization ---- */

typedef struct fth_augmentation {
    bool flip;        /* mirror left-right half of the time */
    int crop_padding; /* pad by this many zero pixels, then crop at random back to size; 0: no */
} fth_augmentation;

/* By name; FTH_INVALID lists the choices, which are those of --augment. */
fth_status fth_augmentation_find(const char *name, fth_augmentation *augmentation);
fth_choice fth_augmentation_choice(size_t index);

/* The crop of an image, and whether it is mirrored: a pure function of (seed, epoch, sample). */
fth_recipe fth_augment_choose(const fth_augmentation *augmentation, uint64_t seed, int64_t epoch, int64_t sample);

/* Pixels of a channel become pixel * scale + shift, each operation rounded. */
void fth_dataset_normalization(const fth_dataset_info *info, int channel, float *scale, float *shift);

/* The images of a batch, (count, C, H, W), exactly as its loader would make them. For images that
 * are not transformed. Any thread. */
fth_status fth_dataset_make_images(const fth_dataset *dataset, fth_split split, const fth_recipe *recipes,
                                   int64_t count, float *images);

/* uint8 (C,H,W) -> float (C,H,W), normalized; a pure function of (seed, epoch, sample). */
void fth_augment(const fth_dataset_info *info, const fth_augmentation *augmentation, uint64_t seed, int64_t epoch,
                 int64_t sample, const uint8_t *pixels, float *image);

/* Checks the text of a transform: steps separated by commas, as in torchvision:
 *
 *     resize=N | resize=HxW            the shorter side to N, or both
 *     centre-crop=N                    N × N from the middle, padded if the image is smaller
 *     random-resized-crop=N[:MIN]      a part of MIN (0.08) to all of the area, 3:4 to 4:3, resized
 *                                      to N × N
 *     pad-crop=P                       P black pixels around, then a crop of the size before
 *     flip                             left-right, half of the time
 *     colour-jitter=B:C:S:H            brightness, contrast, saturation, hue
 *     size=HxW                         the output size, if no step says it: images are resized and
 *                                      cropped to it
 *     normalize=HOW                    imagenet, cifar, mnist, none or MEAN/STD
 *                                      (normalization.h) */
fth_status fth_transform_check(const char *text);
/* True if the steps determine the output size: centre-crop=224 does, flip does not. */
bool fth_transform_has_size(const char *text);
/* True if one of the steps is random, so that results also depend on seed and epoch. The text need
 * not be valid. */
bool fth_transform_is_random(const char *text);
/* The value of normalize=; unknown if there is none or the text is invalid. */
fth_normalization fth_transform_get_normalization(const char *text);

/* The steps that images of a set go through, in the same language, without the normalization;
 * free() it. Untransformed images in memory: "resize=28x28". */
char *fth_dataset_describe_transform(const fth_dataset *dataset, fth_split split);
/* The same with size and normalization: everything that decides the result, exact to the last bit
 * when it is parsed again. Untransformed images in memory: "as-is,size=28x28,normalize=...". free()
 * it. */
char *fth_dataset_describe_preparation(const fth_dataset *dataset, fth_split split);

/* ---- single image files, for predictions ---- */

/* True if a file's extension is that of an image format. */
bool fth_image_name_fits(const char *name);
/* True for a visible file that may be an image in a format that cannot be read. False for files
 * that usually lie beside images, such as README, labels.csv and Thumbs.db. */
bool fth_image_path_is_skipped(const char *path);

typedef struct fth_image_target {
    int channels, height, width;     /* channels 1: grey, computed from the colours; 3: RGB, also for grey files */
    fth_normalization normalization; /* one number for every channel */
    const char *transform;           /* a validation transform; "": resized and cropped to the size */
} fth_image_target;

/* Reads an image file into normalized `planes` (channels, height, width), as the loader does for
 * validation. */
fth_status fth_image_load(const char *path, const fth_image_target *target, float *planes);

/* ---- the loader ---- */

typedef struct fth_loader_options {
    fth_split split;
    int64_t batch;
    uint64_t seed;
    bool shuffle;
    fth_augmentation augmentation;
    int threads;          /* 0: one per core if images are transformed, else one */
    int64_t first_batch;  /* counted from the start of epoch 0 */
    fth_share share;      /* of every epoch; zeroed: all of it */
    fth_share part;       /* of every batch, which several loaders share; zeroed: all of it */
    int64_t batch_limit;  /* stop before this batch; 0: endless */
    int64_t expected_end; /* the run will probably end before this batch; 0: unknown. A hint for caches */
    int64_t stride; /* give every stride-th batch from first_batch on, for loaders that take turns; 0: every batch */
    bool own_order; /* order samples by order_seed and rotation instead of seed */
    uint64_t order_seed;
    int64_t rotation; /* epochs begin this many samples later in that order, and wrap around; beyond the set's count:
                         whole epochs later, in order and random choices */
    bool by_index;    /* no batches: samples are read by fth_loader_get() */
    bool by_length;   /* text: batches of samples of similar length (length_order.h) */
    bool recipes;     /* batches hold recipes instead of images; not for transformed images */
} fth_loader_options;

/* The text of a batch, packed: the tokens of its samples one after the other, without padding. */
typedef struct fth_text_batch {
    const int32_t *tokens, *segments, *positions; /* (token_count); segments: 0 for the first text of a pair, 1 for the
                                                     second; positions: from 0 in each sample */
    const int32_t *ends;                          /* (count): the token after the last one of each sample */
    int64_t token_count;
    int64_t first_token; /* of a part: the number of tokens in the parts before it */
} fth_text_batch;

typedef struct fth_batch {
    const float *images;       /* (count, C, H, W); NULL for recipes and text */
    const fth_recipe *recipes; /* (count); else NULL */
    fth_text_batch text;       /* of sets of text */
    const int32_t *labels;     /* (count); NULL where labels are not classes */
    const float *targets;      /* (count, classes): numbers, or 0 and 1; NULL where labels are classes */
    int64_t count;             /* the last batch of an epoch may be smaller; an empty part has 0 */
    int64_t whole;             /* samples in all parts together; 0: as many as `count` */
    int64_t first;             /* the number of this part's first sample in the whole batch */
    int64_t number;            /* from the start of epoch 0 */
    int64_t epoch;
    double decode_seconds; /* of all loader threads together, without reading files */
    double fetch_seconds;  /* time to get the files' bytes, of all threads together */
} fth_batch;

typedef struct fth_loader fth_loader;

/* The checks of fth_loader_open(), which opens nothing if they fail. */
fth_status fth_loader_check(const fth_dataset *dataset, const fth_loader_options *options);

/* The data set must outlive the loader. */
fth_status fth_loader_open(const fth_dataset *dataset, const fth_loader_options *options, fth_loader **loader);
void fth_loader_free(fth_loader *loader); /* stops and joins the threads */

/* The next batch, lent until the next call. *batch is NULL after the last. A failure to read a
 * sample is reported here, with the sample named. */
fth_status fth_loader_next(fth_loader *loader, fth_deadline deadline, const fth_batch **batch);

/* A sample by its index, of a loader opened by_index. The batch `number` decides in which epoch it
 * is augmented and, if samples come from a cache, what is needed next; the sample need not be in
 * it. One thread at a time. */
fth_status fth_loader_get(fth_loader *loader, int64_t number, int64_t sample, float *image, int32_t *label);

/* Measures the loader for bench/, in images a second over `seconds`; or only the decoders, on the
 * same files, whole and at full size. */
fth_status fth_loader_benchmark(const fth_dataset *dataset, const fth_loader_options *options, double seconds,
                                bool decode_only, double *images_per_second);

int64_t fth_batches_per_epoch(int64_t sample_count, int64_t batch);

#endif
