/* Decodes image files. A format is a file with an fth_image_format and a row of FTH_IMAGE_FORMATS.
 * Decoded images are upright, as the file's Exif data says: sizes, windows and pictures are those
 * of the upright image, except in formats. */
#ifndef FTH_DATA_DECODE_H
#define FTH_DATA_DECODE_H

#include "data/data_internal.h"
#include "data/image/exif.h"

enum {
    FTH_IMAGE_CHANNELS = 3,
    FTH_MAX_IMAGE_SIDE = 65500,  /* JPEG's own limit */
    FTH_MAX_IMAGE_FILE = 1 << 28 /* encoded bytes */
};
#define FTH_MAX_IMAGE_PIXELS ((int64_t)178956970) /* Pillow's limit */

typedef struct fth_image_header {
    const struct fth_image_format *format;
    int width, height;
    bool grey;
    fth_orientation orientation; /* as it is stored; callers of the decoder see upright images only */
} fth_image_header;

/* A part of an image as 8-bit RGB, in coordinates of the size at which it was decoded. */
typedef struct fth_picture {
    const uint8_t *pixels; /* at (left, top); at least FTH_PICTURE_SLACK readable bytes follow the last pixel */
    size_t stride;
    int left, top, width, height;
} fth_picture;
enum { FTH_PICTURE_SLACK = 16 };

typedef struct fth_decode_request {
    int eighths;                  /* 8: full size; 1, 2 or 4 only if fth_decoder_can_reduce() */
    int left, top, width, height; /* the window, in coordinates of the reduced size */
    bool smooth_chroma;           /* interpolate colour that is stored at half the resolution */
} fth_decode_request;

/* A decoder for one thread, which reuses its buffers. */
typedef struct fth_decoder fth_decoder;
fth_status fth_decoder_create(fth_decoder **decoder);
void fth_decoder_free(fth_decoder *decoder);
/* Reads the header. `bytes` must stay valid until the image is decoded. Messages do not name the
 * file. */
fth_status fth_decoder_begin(fth_decoder *decoder, const uint8_t *bytes, size_t size_bytes, fth_image_header *header);
bool fth_decoder_can_reduce(const fth_decoder *decoder);
static inline int fth_reduced_side(int side, int eighths)
{
    return (side * eighths + 7) / 8;
}
/* Decodes at least the window. *picture lives until the next begin. FTH_CORRUPT if it cannot be
 * decoded. */
fth_status fth_decoder_finish(fth_decoder *decoder, const fth_decode_request *request, fth_picture *picture);

/* ---- formats ---- */

typedef struct fth_pixel_buffer {
    uint8_t *bytes;
    size_t capacity;
} fth_pixel_buffer;
fth_status fth_pixel_buffer_reserve(fth_pixel_buffer *buffer, size_t size_bytes);

typedef struct fth_image_format {
    const char *name;                                       /* "JPEG", for messages */
    const char *key;                                        /* "jpeg", in JSON */
    const char *const *extensions;                          /* ".jpg" and so on; ends with NULL */
    bool can_reduce;                                        /* decodes at 1/2, 1/4 and 1/8 of the size */
    bool (*probe)(const uint8_t *bytes, size_t size_bytes); /* by the first bytes */
    fth_status (*create)(void **state);                     /* a decoder for one thread */
    void (*destroy)(void *state);
    /* Reads the header, except its `format`. `bytes` stay valid until finish(). */
    fth_status (*begin)(void *state, const uint8_t *bytes, size_t size_bytes, fth_image_header *header);
    /* Decodes at least the window asked for into `buffer`. */
    fth_status (*finish)(void *state, const fth_decode_request *request, fth_pixel_buffer *buffer,
                         fth_picture *picture);
} fth_image_format;

#define FTH_IMAGE_FORMATS(ROW)                                                                                         \
    ROW(jpeg)                                                                                                          \
    ROW(png)
#define FTH_IMAGE_EXTENSIONS ".jpg, .jpeg or .png" /* the usual ones, for messages */
#define FTH_IMAGE_NAMES      "JPEG or PNG"

#define FTH_DECLARE(name) extern const fth_image_format fth_image_format_##name;
FTH_IMAGE_FORMATS(FTH_DECLARE)
#undef FTH_DECLARE

/* By number; NULL after the last. */
const fth_image_format *fth_image_format_get(size_t number);

/* Writes 8-bit RGB as a PNG. `path` is an output path (base/output.h). */
fth_status fth_png_write(const char *path, const uint8_t *pixels, int width, int height);

#endif
