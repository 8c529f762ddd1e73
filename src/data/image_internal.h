/* What the files on sets of image files share: the index of a set, decoders, transforms, and the way of one sample from
 * encoded bytes to a normalized tensor. */
#ifndef FTH_DATA_IMAGE_INTERNAL_H
#define FTH_DATA_IMAGE_INTERNAL_H

#include <pthread.h>

#include "base/vectorized.h"
#include "data/data_internal.h"

enum {
    FTH_IMAGE_CHANNELS = 3,
    FTH_MAX_IMAGE_SIDE = 65500,  /* JPEG's own limit */
    FTH_MAX_IMAGE_FILE = 1 << 28 /* encoded bytes */
};
#define FTH_MAX_IMAGE_PIXELS ((int64_t)178956970) /* where Pillow refuses, too */

/* ---- the index of a set (image_index.c) ---- */

/* All names are in one text, a file knows its folder, a folder its class: 24 bytes and a file name for each image. */
typedef struct fth_image_entry {
    uint64_t offset;     /* in the tar; 0 in a folder */
    uint32_t size_bytes; /* in the tar */
    uint32_t name;       /* where its file name begins in `names` */
    uint32_t folder;
} fth_image_entry;

typedef struct fth_image_folder {
    uint32_t path;       /* where it begins in `names`; relative to the top */
    int32_t class_index; /* -1: its images are not part of the set */
    uint32_t count;      /* images in it */
    uint8_t split;
} fth_image_folder;

/* Files that are there and cannot be used: how many, and one of them, shortened. */
typedef struct fth_left_out {
    int64_t count;
    char example[160];
} fth_left_out;
void fth_left_out_add(fth_left_out *left_out, const char *path, int64_t count);
/* Warns, if there are any: "SOURCE: left out 2 images WHY: PATH, ...". */
void fth_left_out_report(const fth_left_out *left_out, const char *source, const char *noun, const char *why);

typedef struct fth_image_index {
    char *names;
    size_t names_size, names_capacity;
    fth_image_folder *folders;
    size_t folder_count, folder_capacity;
    fth_image_entry *entries; /* by split, class, folder and name */
    size_t count, capacity;
    uint32_t *table; /* folders by the hash of their path: 1 + folder, 0 where free */
    size_t table_size;
    const fth_stop *stop;        /* while it is being made: ends that; NULL: nothing does */
    int64_t first[2], counts[2]; /* entries of each split */
    size_t root_length;          /* bytes of every path before the folders that matter */
    bool has_splits;             /* it has train/ */
    int classes;
    char **class_names; /* sorted; one allocation with their text */
    int64_t other_files;
    fth_left_out too_deep; /* folders */
} fth_image_index;

void fth_image_index_free(fth_image_index *index);
/* Finds or adds the folder whose path, relative to the top and without a slash at its end, is `path`; in an archive it
 * may be absolute. Hidden ones (a part begins with '.', or is __MACOSX) give UINT32_MAX. */
fth_status fth_image_index_add_folder(fth_image_index *index, const char *path, size_t length, uint32_t *folder);
/* Adds a file; hidden ones and those with other endings are passed over. */
fth_status fth_image_index_add(fth_image_index *index, uint32_t folder, const char *name, uint64_t offset,
                               uint64_t size_bytes);
/* Tells splits and classes by the folders' names and sorts. `source` is for messages. */
fth_status fth_image_index_finish(fth_image_index *index, const char *source);

/* The path of an image relative to the top; free() it. */
char *fth_image_index_path(const fth_image_index *index, const fth_image_entry *entry);

/* ---- where images lie (image_folder.c, image_archive.c) ---- */

/* Walks a folder. */
fth_status fth_image_folder_scan(const char *folder, fth_image_index *index);
/* True as soon as one image is found in `folder` or below it. */
bool fth_image_folder_probe(const char *folder);

/* Indexes a plain tar in memory: offsets are from `bytes`. */
fth_status fth_image_archive_index(const uint8_t *bytes, size_t size_bytes, const char *source, fth_image_index *index);
/* Compressed archives (.tar.gz, .tar.xz, .tar.zst, .zip) are turned once into a plain tar in the cache folder; a plain
 * one is itself. free() the path. */
fth_status fth_image_archive_unpack(const char *path, const fth_stop *stop, char **plain);
/* The bytes of the images of any archive, one tar entry each, into `file`; for unpacking, and for fuzzing. */
fth_status fth_image_archive_convert(const uint8_t *bytes, size_t size_bytes, const char *source, const fth_stop *stop,
                                     fth_file *file);

/* Downloads `url` ("https://...#sha256=...", in its public form) once into the cache folder. free() the path. */
fth_status fth_image_fetch(const char *url, const fth_stop *stop, char **path);

/* ---- writing tars (image_tar.c) ---- */

typedef struct fth_tar_writer fth_tar_writer;

/* `file` outlives the writer and is published by its owner. */
fth_status fth_tar_writer_create(fth_file *file, fth_tar_writer **writer);
fth_status fth_tar_writer_add(fth_tar_writer *writer, const char *path, const void *bytes, size_t size_bytes);
fth_status fth_tar_writer_finish(fth_tar_writer *writer);
void fth_tar_writer_free(fth_tar_writer *writer);

/* ---- decoding (decode.c, decode_jpeg.c, decode_png.c) ---- */

typedef enum fth_image_kind { FTH_IMAGE_JPEG, FTH_IMAGE_PNG } fth_image_kind;

typedef struct fth_image_header {
    fth_image_kind kind;
    int width, height;
    bool grey;
} fth_image_header;

/* A part of an image as 8-bit RGB. The image may have been decoded at a reduced size; coordinates are of that. */
typedef struct fth_picture {
    const uint8_t *pixels; /* of (left, top); at least FTH_PICTURE_SLACK readable bytes follow the last */
    size_t stride;
    int left, top, width, height;
} fth_picture;
enum { FTH_PICTURE_SLACK = 16 };

typedef struct fth_decode_request {
    int eighths;                  /* 8: full size; 1, 2 and 4 only for what fth_decoder_can_reduce() */
    int left, top, width, height; /* what is needed, in coordinates of the size asked for */
    bool smooth_chroma;           /* interpolate colour where it is stored at half the resolution */
} fth_decode_request;

/* A decoder is for one thread, and keeps its buffers from image to image. */
typedef struct fth_decoder fth_decoder;
fth_status fth_decoder_create(fth_decoder **decoder);
void fth_decoder_free(fth_decoder *decoder);
/* Reads the header. `bytes` must stay until the image has been decoded. Messages do not name the file. */
fth_status fth_decoder_begin(fth_decoder *decoder, const uint8_t *bytes, size_t size_bytes, fth_image_header *header);
bool fth_decoder_can_reduce(const fth_decoder *decoder);
static inline int fth_reduced_side(int side, int eighths)
{
    return (side * eighths + 7) / 8;
}
/* Decodes at least the part asked for. *picture lives until the next begin. FTH_CORRUPT for what cannot be decoded. */
fth_status fth_decoder_finish(fth_decoder *decoder, const fth_decode_request *request, fth_picture *picture);

/* What a format provides: one row in decode.c each. */
typedef struct fth_pixel_buffer {
    uint8_t *bytes;
    size_t capacity;
} fth_pixel_buffer;
fth_status fth_pixel_buffer_reserve(fth_pixel_buffer *buffer, size_t size_bytes);

typedef struct fth_image_format {
    fth_image_kind kind;
    const char *name;
    bool can_reduce;
    bool (*probe)(const uint8_t *bytes, size_t size_bytes);
    fth_status (*create)(void **state);
    void (*destroy)(void *state);
    fth_status (*begin)(void *state, const uint8_t *bytes, size_t size_bytes, fth_image_header *header);
    fth_status (*finish)(void *state, const fth_decode_request *request, fth_pixel_buffer *buffer,
                         fth_picture *picture);
} fth_image_format;
extern const fth_image_format fth_image_jpeg, fth_image_png;

/* Writes 8-bit RGB as a PNG; `path` is the user's (base/output.h). */
fth_status fth_png_write(const char *path, const uint8_t *pixels, int width, int height);

/* ---- text in pictures (lettering.c) ---- */

/* Pixels that a letter takes at scale 1, the space to the next one and to the next line included. */
enum { FTH_LETTER_WIDTH = 6, FTH_LETTER_HEIGHT = 10 };
/* Any name as text that can be drawn, at most `lines` of at most `columns` letters with '\n' between them; where it does
 * not fit it ends in a letter "…". free() it. NULL only without memory. */
char *fth_lettering_wrap(const char *name, int columns, int lines);
void fth_lettering_measure(const char *text, int *columns, int *lines);
/* Draws what fth_lettering_wrap() made, `scale` times as large, into 8-bit RGB, which has room for it. */
void fth_lettering_draw(const char *text, int scale, uint8_t *pixels, size_t stride, int left, int top);

/* ---- transforms (transform.c, geometry.c, resample.c, colour.c) ---- */

/* One side of an image, from the source to the output: the source's [low, high) is resampled to `size`, of which the
 * output shows `count` from `first` on; what is outside 0..size is padding. */
typedef struct fth_crop_axis {
    double low, high;
    int size, first, count;
} fth_crop_axis;

/* What is to be done to one image. */
typedef struct fth_geometry {
    fth_crop_axis x, y;
    bool flip;
} fth_geometry;

/* Draws are taken from `key`, which belongs to (seed, epoch, sample). */
void fth_geometry_plan(const fth_transform *transform, int width, int height, fth_random_key key,
                       fth_geometry *geometry);
/* The same window of the source at a reduced size. */
void fth_geometry_reduce(fth_geometry *geometry, int eighths);

/* For each output position along a side, where its source begins and with what weights it is summed. */
typedef struct fth_taps {
    int begin, end;  /* output positions that are not padding */
    int low, high;   /* source positions that are needed */
    int width;       /* weights a position */
    bool is_move;    /* every position is one source pixel, in order or mirrored */
    bool plain;      /* in order */
    int32_t *starts; /* (count) */
    float *weights;  /* (count, width) */
    size_t starts_capacity, weights_capacity;
} fth_taps;

fth_status fth_taps_fill(fth_taps *taps, const fth_crop_axis *axis, bool mirror);

typedef struct fth_resampler {
    fth_taps x, y;
    float *rows; /* one row, after the vertical sums, then after the horizontal ones */
    size_t rows_capacity;
} fth_resampler;
void fth_resampler_free(fth_resampler *resampler);
/* Sums `picture`, which has at least what the taps need, into planes of `height` × `width` floats: sum * scale + shift
 * for each channel. */
fth_status fth_resample(fth_resampler *resampler, const fth_picture *picture, int width, int height,
                        const float scale[FTH_IMAGE_CHANNELS], const float shift[FTH_IMAGE_CHANNELS], float *planes);
/* The same for one channel, whose bytes from (0, 0) on are `pixels`. */
fth_status fth_resample_plane(fth_resampler *resampler, const uint8_t *pixels, size_t stride, int width, int height,
                              float scale, float shift, float *plane);

/* Jitters 1 or 3 planes of values in 0..1 as torchvision does; draws from `key`. */
void fth_colour_jitter(const fth_transform_step *step, fth_random_key key, int channels, int64_t area, float *planes);
/* The four adjustments, for tests: 0 brightness, 1 contrast, 2 saturation, 3 hue. */
void fth_colour_adjust(int which, float factor, int channels, int64_t area, float *planes);
void fth_colour_normalize(const fth_normalization *normalization, int64_t area, float *planes);

/* ---- a set of image files (image_set.c, image_sample.c) ---- */

typedef struct fth_decoded_cache fth_decoded_cache;

struct fth_image_set {
    fth_image_index index;
    char *source;     /* for messages */
    int root;         /* descriptor of the folder; -1 for a tar */
    fth_blob archive; /* the mapped tar */
    double max_bad_share;

    fth_decoded_cache *cache; /* NULL: none */

    pthread_mutex_t mutex; /* guards what follows */
    uint8_t *is_bad;       /* a bit for each entry; atomically read without the mutex */
    fth_bad_image **bad;
    size_t bad_count, bad_capacity;
};

/* Opens a folder, an archive or a URL. */
void fth_image_set_free(fth_image_set *set);
/* The number of an entry for a sample of a split. */
size_t fth_image_set_find(const fth_dataset *dataset, fth_split split, int64_t sample);

/* What one thread needs to turn entries into tensors. */
typedef struct fth_image_worker {
    fth_decoder *decoder;
    fth_resampler resampler;
    fth_pixel_buffer file; /* the encoded bytes, where they are not mapped; or an image being drawn */
} fth_image_worker;
fth_status fth_image_worker_create(fth_image_worker **worker);
void fth_image_worker_free(fth_image_worker *worker);

/* The encoded bytes of an entry: in the tar, or read into the worker's buffer. */
fth_status fth_image_set_read(const fth_image_set *set, size_t entry, fth_image_worker *worker, const uint8_t **bytes,
                              size_t *size_bytes);
/* One entry through a transform. */
fth_status fth_image_set_transform(const fth_image_set *set, size_t entry, fth_image_worker *worker,
                                   const fth_transform *transform, const fth_normalization *normalization,
                                   fth_random_key key, float *planes);
/* An image in memory, (channels, height, width), through a transform. */
typedef struct fth_pixels {
    const uint8_t *bytes;
    int channels, height, width;
} fth_pixels;
fth_status fth_pixels_transform(const fth_pixels *pixels, fth_resampler *resampler, const fth_transform *transform,
                                const fth_normalization *normalization, fth_random_key key, float *planes);

/* A sample of any set through a transform. An unreadable image file is replaced by the next sample of the set that can
 * be read; too many of them are an error. */
fth_status fth_sample_transform(const fth_dataset *dataset, fth_split split, int64_t sample,
                                const fth_transform *transform, fth_random_key key, fth_image_worker *worker,
                                float *planes, int32_t *label);

/* A sample as bytes, through the validation transform; makes a worker of its own. */
fth_status fth_sample_read(const fth_dataset *dataset, fth_split split, int64_t sample, uint8_t *pixels,
                           int32_t *label);

fth_status fth_decoded_cache_create(size_t entries, uint64_t max_bytes, fth_decoded_cache **cache);
void fth_decoded_cache_free(fth_decoded_cache *cache);
/* False if the entry is not there. */
bool fth_decoded_cache_find(fth_decoded_cache *cache, size_t entry, fth_picture *picture);
/* Keeps a copy while there is room. */
void fth_decoded_cache_keep(fth_decoded_cache *cache, size_t entry, const fth_picture *picture);

#endif
