/* Data: sets of labelled images or texts, the order in which they are visited, and batches made
 * ahead of need.
 *
 * sampler (a pure function of position) -> loader threads read, augment, normalize -> a ring of
 * ready batches. Everything random is a pure function of (seed, epoch, sample), so a position is
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

/* How the label of a text is to be understood. */
typedef enum fth_label_kind {
    FTH_LABEL_CLASS,  /* one of several names or numbers */
    FTH_LABEL_NUMBER, /* a number, or several */
    FTH_LABEL_SET     /* any of several names */
} fth_label_kind;

/* For sets of text; each may be left 0 or NULL. */
typedef struct fth_text_options {
    const struct fth_tokenizer *tokenizer; /* outlives the set; NULL: one is learned from the training texts */
    int vocabulary;                        /* tokens of one that is learned; 0: 8192 */
    int longest; /* tokens of a sample, special ones included: what is longer is cut; 0: 128 */
    const char *text_column, *pair_column,
        *label_column; /* by name or number from 1; NULL or "": found by what is usual */
    fth_label_kind label;
    /* Names of the classes, in order, ending with NULL, where a model has them already: other
     * labels are an error. */
    const char *const *class_names;
    bool keep_text; /* for fth_text_set_inspect() */
} fth_text_options;

typedef struct fth_dataset_options {
    uint64_t seed;              /* of the validation split, where the set has none */
    double validation_fraction; /* share held out where the set has no validation part; in (0, 1) */
    bool random_split;          /* hold out samples at random, not the same share of every class */
    bool whole;                 /* hold nothing out: a set without a validation part has no validation images */
    int threads;                /* for decompression, and to tokenize text */
    const fth_stop *stop;       /* asked: opening ends with FTH_INTERRUPTED, and leaves nothing unfinished; or NULL */

    /* How images are prepared; each may be left 0 or NULL. */
    int image_size;                               /* side of what the loader gives; 0: the set's own, or chosen */
    const char *transform, *validation_transform; /* as fth_transform_check() reads them; NULL or "": the usual ones */
    fth_normalization normalization;              /* unknown: what a transform says, or the set's own */

    /* For sets of image files; each may be left 0. */
    double max_bad_images;        /* share of unreadable images above which reading fails; 0: 0.001 */
    uint64_t decoded_cache_bytes; /* memory in which decoded images are kept; 0: none */

    /* For sets in a store, which are read where they lie; each may be left 0 or NULL. */
    const struct fth_store_options *store; /* how to get at it */
    uint64_t disk_cache_bytes;             /* disk space in which encoded images are kept; 0: none */
    const char *disk_cache_folder;         /* where; NULL or "": objects/ in the cache folder */

    fth_text_options text;
    const char *images_for; /* what only images are for: a set of text is refused with it; NULL: any set will do */

    const struct fth_dataset_scheme *const *schemes; /* opened by others than this folder; ends with NULL; or NULL */
} fth_dataset_options;

/* What of a set without a validation part is held out to be one. */
typedef struct fth_held_out {
    double fraction; /* 0: the set has a part of its own */
    uint64_t seed;   /* that the samples are drawn by */
    bool by_class;   /* the same share of every class */
} fth_held_out;

/* What is the same for all samples of a set of text. */
typedef struct fth_text_info {
    const struct fth_tokenizer *tokenizer; /* that made the tokens; lives as long as the set */
    fth_label_kind label;
    int longest;                          /* no sample has more tokens */
    double mean_length, length_deviation; /* of the training samples' numbers of tokens */
} fth_text_info;

typedef struct fth_dataset_info {
    const char *name;
    fth_modality modality; /* of text: channels, height, width and normalization are 0 */
    fth_text_info text;
    int classes; /* of labels that are numbers: how many each sample has */
    const char *const *class_names;
    int channels, height, width;
    int64_t count[2];                /* by fth_split */
    fth_normalization normalization; /* numbers for every channel */
    fth_held_out held_out;
} fth_dataset_info;

typedef struct fth_dataset fth_dataset;

/* Opens a built-in set by name ("digits", "shapes", "shapes-20"); tables of text
 * (data/text/text_files.h); a folder of MNIST idx or CIFAR-10 binary files, which are recognized by
 * their contents; or image files (JPEG, PNG) in class folders, train/<class>/ and val/<class>/ or
 * just <class>/, as a folder, a .tar, .tar.gz, .tar.xz, .tar.zst or .zip, or an https:// URL of
 * one, which is downloaded once (URL#sha256=... is checked). */
fth_status fth_dataset_open(const char *name_or_folder, const fth_dataset_options *options, fth_dataset **dataset);

/* Addresses that another folder opens. */
typedef struct fth_dataset_scheme {
    bool (*fits)(const char *address);
    fth_status (*open)(const char *address, const fth_dataset_options *options, fth_dataset **dataset);
} fth_dataset_scheme;

/* What the set consists of, as 64 hex digits: a hash of its index with the files' etags, sizes and
 * times, or contents; version.c says what counts for which set. Sets of one version have the same
 * samples in the same order, whoever opens them, wherever they lie; how they are prepared is no
 * part of it. It looks at every file of a folder, so ask once. */
fth_status fth_dataset_version(const fth_dataset *dataset, char version[65]);

/* Images that a program has in memory. Pixels must stay until the set is freed; the rest is
 * copied. */
typedef struct fth_image_array {
    const uint8_t *pixels; /* (count, channels, height, width) */
    const int32_t *labels; /* (count) */
    int64_t count;
} fth_image_array;
typedef struct fth_image_arrays {
    const char *name; /* lives as long as the set */
    int channels, height, width, classes;
    const char *const *class_names; /* (classes); NULL: numbers */
    fth_image_array parts[2];       /* by fth_split; without validation images some are held out */
} fth_image_arrays;
fth_status fth_dataset_create(const fth_image_arrays *arrays, const fth_dataset_options *options,
                              fth_dataset **dataset);
void fth_dataset_free(fth_dataset *dataset);
const fth_dataset_info *fth_dataset_get_info(const fth_dataset *dataset);

/* One image, channels × height × width bytes, and its label. Any thread may call this at any time.
 * Where images are transformed it goes through the validation transform; the loader is the fast
 * way. */
fth_status fth_dataset_read(const fth_dataset *dataset, fth_split split, int64_t index, uint8_t *pixels,
                            int32_t *label);

/* Says which samples will be read soon, in that order, so that a set that lies far away can fetch
 * them ahead; loaders do so themselves. Gives how many of them, from the first on, were taken note
 * of: fewer than `count` where there is no room; the others may be told again later. `needed_s`
 * says when, by fth_clock_seconds(): what is needed first is fetched first, whoever asked for it;
 * 0: at once. Never waits. Any thread. */
size_t fth_dataset_expect(const fth_dataset *dataset, fth_split split, const int64_t *samples, size_t count,
                          double needed_s);

/* Unreadable image files met so far, by any loader of the set, in the order in which they were met.
 * What fth_dataset_get_bad_image() gives lives as long as the set. */
typedef struct fth_bad_image {
    const char *name, *reason;
    fth_split split;
} fth_bad_image;
int64_t fth_dataset_bad_image_count(const fth_dataset *dataset);
const fth_bad_image *fth_dataset_get_bad_image(const fth_dataset *dataset, int64_t number);

/* The files among a set's images whose formats are not read. Lives as long as the set; NULL where
 * it is not a set of image files. */
const fth_skipped_files *fth_dataset_get_skipped_files(const fth_dataset *dataset);

/* True if images go through a transform for every batch: image files always do, images in memory
 * where one or another size is asked for. Such images cannot be made from recipes. */
bool fth_dataset_is_transformed(const fth_dataset *dataset);

/* The built-in names and a line on each, for help and errors; ends with a NULL name. */
typedef struct fth_dataset_builtin {
    const char *name, *summary;
} fth_dataset_builtin;
extern const fth_dataset_builtin fth_dataset_builtins[];
/* The same, for completion of --data. */
fth_choice fth_dataset_choice(size_t index);

/* ---- the order of samples ---- */

/* One of several workers' shares of an epoch: every `of`-th sample of its order from `index` on (0:
 * the first). All shares together are the epoch, each sample once. {0, 0}: the whole. */
typedef struct fth_share {
    int64_t index, of;
} fth_share;
int64_t fth_share_samples(fth_share share, int64_t count); /* how many of `count` are in it */
/* One of several parts of a batch of `count` samples: those from fth_part_begin(part, count) on, in
 * a row. All parts together are the batch; with fewer samples than parts some are empty. {0, 0}:
 * the whole. */
int64_t fth_part_begin(fth_share part, int64_t count);
int64_t fth_part_samples(fth_share part, int64_t count);

typedef struct fth_sampler {
    uint64_t seed;
    int64_t count; /* of the whole */
    bool shuffle;
    fth_share share;
    int64_t rotation; /* epochs begin so many samples later in the order, and go round */
} fth_sampler;

/* The sample at `position` of `epoch`: within an epoch each of 0..count-1 exactly once, in constant
 * memory; of a share, each of the share's. */
int64_t fth_sampler_index(const fth_sampler *sampler, int64_t epoch, int64_t position);
/* The same for `count` positions in a row; several times as fast. */
void fth_sampler_indices(const fth_sampler *sampler, int64_t epoch, int64_t position, int64_t count, int64_t *samples);

/* ---- augmentation and normalization ---- */

typedef struct fth_augmentation {
    bool flip;        /* mirror left-right half of the time */
    int crop_padding; /* pad by this many zero pixels, then crop at random back to size; 0: no */
} fth_augmentation;

/* By name; FTH_INVALID with those there are. They are the choices of --augment. */
fth_status fth_augmentation_find(const char *name, fth_augmentation *augmentation);
fth_choice fth_augmentation_choice(size_t index);

/* Which part of an image is taken, and whether mirrored: a pure function of (seed, epoch,
 * sample). */
fth_recipe fth_augment_choose(const fth_augmentation *augmentation, uint64_t seed, int64_t epoch, int64_t sample);

/* What a pixel of a channel becomes: pixel * scale + shift, each rounded. */
void fth_dataset_normalization(const fth_dataset_info *info, int channel, float *scale, float *shift);

/* The images of a batch, (count, C, H, W), as its loader would have made them. Where they are not
 * transformed; by any thread. */
fth_status fth_dataset_make_images(const fth_dataset *dataset, fth_split split, const fth_recipe *recipes,
                                   int64_t count, float *images);

/* uint8 (C,H,W) -> float (C,H,W), normalized; a pure function of (seed, epoch, sample). */
void fth_augment(const fth_dataset_info *info, const fth_augmentation *augmentation, uint64_t seed, int64_t epoch,
                 int64_t sample, const uint8_t *pixels, float *image);

/* Checks the text of a transform: steps with commas between them, as in torchvision:
 *
 *     resize=N | resize=HxW            the shorter side to N, or both
 *     centre-crop=N                    N × N from the middle, padded where the image is smaller
 *     random-resized-crop=N[:MIN]      a part of MIN (0.08) to all of the area, 3:4 to 4:3, resized to N × N
 *     pad-crop=P                       P black pixels around, then a crop of the size before
 *     flip                             left-right, half of the time
 *     colour-jitter=B:C:S:H            brightness, contrast, saturation, hue
 *     size=HxW                         what comes out, where no step says it: the image is fitted to that
 *     normalize=HOW                    as normalization.h has it: imagenet, cifar, mnist, none or
 * MEAN/STD */
fth_status fth_transform_check(const char *text);
/* True if its steps say the size of what comes out, as centre-crop=224 does and flip does not. */
bool fth_transform_has_size(const char *text);
/* True if one of its steps is random: then what comes out also depends on the seed and the epoch.
 * Needs no valid text. */
bool fth_transform_is_random(const char *text);
/* What its normalize= says; unknown if it has none, or is not a transform. */
fth_normalization fth_transform_get_normalization(const char *text);

/* How images of a set are prepared, in that language, without their normalization; free() it.
 * Images in memory that are used as they are: "resize=28x28". */
char *fth_dataset_describe_transform(const fth_dataset *dataset, fth_split split);
/* The same with size and normalization: all that decides what comes out, and read back as the same
 * transform, number for number. Images in memory that are used as they are:
 * "as-is,size=28x28,normalize=...". free() it. */
char *fth_dataset_describe_preparation(const fth_dataset *dataset, fth_split split);

/* ---- single image files, for predictions ---- */

/* True if the ending is one of those that are decoded: .jpg, .jpeg, .jpe, .png. */
bool fth_image_name_fits(const char *name);
/* True of a visible file that is neither JPEG nor PNG by its name, and perhaps an image in a format
 * that is not read. What usually lies beside images, such as README, labels.csv and Thumbs.db,
 * gives false. */
bool fth_image_path_is_skipped(const char *path);

typedef struct fth_image_target {
    int channels, height, width;     /* 1 channel: grey, made from the colours; 3: RGB, also of grey files */
    fth_normalization normalization; /* numbers for every channel */
    const char *transform;           /* a validation transform; "": fitted to the size */
} fth_image_target;

/* Reads a JPEG or PNG file into normalized `planes` (channels, height, width), as the loader would
 * for validation. */
fth_status fth_image_load(const char *path, const fth_image_target *target, float *planes);

/* ---- the loader ---- */

typedef struct fth_loader_options {
    fth_split split;
    int64_t batch;
    uint64_t seed;
    bool shuffle;
    fth_augmentation augmentation;
    int threads;          /* 0: one per core where images are transformed, else one */
    int64_t first_batch;  /* counted from the start of epoch 0 */
    fth_share share;      /* of every epoch; zeroed: all of it */
    fth_share part;       /* of every batch, whose `batch` samples several loaders have together; zeroed: all of it */
    int64_t batch_limit;  /* stop before the batch of this number (evaluation: one epoch); 0: endless */
    int64_t expected_end; /* a run is expected to end before the batch of this number; 0: not known. Nothing depends on
                             it */
    int64_t stride;       /* only every stride-th batch from first_batch on: of several loaders in turn; 0: every one */
    bool own_order;       /* samples come in the order of order_seed and rotation instead of the seed's */
    uint64_t order_seed;
    int64_t rotation; /* samples by which epochs begin later in that order, and go round; beyond the set's count: so
                         many whole epochs later, in order and random choices */
    bool by_index;    /* no batches: samples are asked for, with fth_loader_get() */
    bool by_length;   /* of text: batches hold samples of like length; see length_order.h */
    bool recipes;     /* batches say how their images are made instead of holding them; not of transformed images */
} fth_loader_options;

/* Text of a batch, packed: the tokens of its samples one behind the other, without padding. */
typedef struct fth_text_batch {
    const int32_t *tokens, *segments, *positions; /* (token_count); 0 for the first text of a pair, 1 for the second;
                                                     from 0 on in each sample */
    const int32_t *ends;                          /* (count): behind which token each sample ends */
    int64_t token_count;
    int64_t first_token; /* of a part: how many tokens the parts before it have */
} fth_text_batch;

typedef struct fth_batch {
    const float *images;       /* (count, C, H, W); NULL if recipes were asked for, and of text */
    const fth_recipe *recipes; /* (count); else NULL */
    fth_text_batch text;       /* of sets of text */
    const int32_t *labels;     /* (count); NULL where labels are not classes */
    const float *targets;      /* (count, classes): numbers, or 0 and 1; NULL where labels are classes */
    int64_t count;             /* the last batch of an epoch may be smaller; an empty part has 0 */
    int64_t whole;             /* samples in all parts of the batch together; 0: as many as `count` */
    int64_t first;             /* of them: the number of this part's first sample */
    int64_t number;            /* from the start of epoch 0 */
    int64_t epoch;
    double decode_seconds; /* what loader threads spent on it, added up, less the reading of files */
    double fetch_seconds;  /* what getting its files' bytes took, added up, by whichever threads */
} fth_batch;

typedef struct fth_loader fth_loader;

/* Checks options as fth_loader_open() does, which opens nothing where this fails. */
fth_status fth_loader_check(const fth_dataset *dataset, const fth_loader_options *options);

/* The data set must outlive the loader. */
fth_status fth_loader_open(const fth_dataset *dataset, const fth_loader_options *options, fth_loader **loader);
void fth_loader_free(fth_loader *loader); /* stops and joins the threads */

/* The next batch, lent until the next call. *batch is NULL after the last. A failure to read a
 * sample is reported here, with the sample named. */
fth_status fth_loader_next(fth_loader *loader, fth_deadline deadline, const fth_batch **batch);

/* A sample by its index, as a batch of number `number` has it: for loaders that were opened
 * by_index. It need not be in that batch, which says in which epoch's way it is augmented and,
 * where samples come from a cache, what is needed next. One thread at a time. */
fth_status fth_loader_get(fth_loader *loader, int64_t number, int64_t sample, float *image, int32_t *label);

/* Measures the loader for bench/: images a second over `seconds`; or what the decoders alone do
 * with the same files, whole and at full size. */
fth_status fth_loader_benchmark(const fth_dataset *dataset, const fth_loader_options *options, double seconds,
                                bool decode_only, double *images_per_second);

int64_t fth_batches_per_epoch(int64_t sample_count, int64_t batch);

#endif
