/* Decoding image files (decode.c), a row for each format (decode_jpeg.c, decode_png.c); and writing
 * PNG. Images come out upright, as the Exif data of the file says: sizes, parts and pictures are of
 * the upright image, except in the rows. */
#ifndef FTH_DATA_DECODE_H
#define FTH_DATA_DECODE_H

#include "data/data_internal.h"
#include "data/image/exif.h"

enum {
    FTH_IMAGE_CHANNELS = 3,
    FTH_MAX_IMAGE_SIDE = 65500,  /* JPEG's own limit */
    FTH_MAX_IMAGE_FILE = 1 << 28 /* encoded bytes */
};
#define FTH_MAX_IMAGE_PIXELS ((int64_t)178956970) /* where Pillow refuses, too */

typedef enum fth_image_kind { FTH_IMAGE_JPEG, FTH_IMAGE_PNG } fth_image_kind;

typedef struct fth_image_header {
    fth_image_kind kind;
    int width, height;
    bool grey;
    fth_orientation orientation; /* in which a row found it stored; upright to callers of the decoder */
} fth_image_header;

/* A part of an image as 8-bit RGB. The image may have been decoded at a reduced size; coordinates
 * are of that. */
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
/* Reads the header. `bytes` must stay until the image has been decoded. Messages do not name the
 * file. */
fth_status fth_decoder_begin(fth_decoder *decoder, const uint8_t *bytes, size_t size_bytes, fth_image_header *header);
bool fth_decoder_can_reduce(const fth_decoder *decoder);
static inline int fth_reduced_side(int side, int eighths)
{
    return (side * eighths + 7) / 8;
}
/* Decodes at least the part asked for. *picture lives until the next begin. FTH_CORRUPT for what
 * cannot be decoded. */
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

#endif
