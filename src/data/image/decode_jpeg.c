/* JPEG, through libjpeg-turbo.
 *
 * Only what is needed is computed: a reduced size (1/2, 1/4 or 1/8) in the inverse transform
 * itself, rows above and columns beside the window only as far as the entropy coding requires, and
 * rows below not at all.
 *
 * The library reports errors by longjmp, which stays inside this file: every call is made in a
 * function that has just called setjmp and keeps no state in variables that change in between. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "data/image/decode.h"

enum { MAX_SCANS = 100 }; /* a progressive file can take any amount of work; ordinary ones have about ten scans */

typedef struct fth_jpeg {
    struct jpeg_decompress_struct library;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    char message[JMSG_LENGTH_MAX];
    bool truncated, has_end; /* of the current image */
} fth_jpeg;

static void fail(j_common_ptr library)
{
    fth_jpeg *jpeg = library->client_data;
    library->err->format_message(library, jpeg->message);
    longjmp(jpeg->failed, 1);
}

static void take_message(j_common_ptr library, int level)
{
    fth_jpeg *jpeg = library->client_data;
    if (level < 0 && library->err->msg_code == JWRN_JPEG_EOF)
        jpeg->truncated = true;
}

static void print_nothing(j_common_ptr library)
{
    (void)library;
}

static void watch_scans(j_common_ptr library)
{
    fth_jpeg *jpeg = library->client_data;
    if (jpeg->library.input_scan_number > MAX_SCANS) {
        snprintf(jpeg->message, sizeof jpeg->message, "more than %d scans", MAX_SCANS);
        longjmp(jpeg->failed, 1);
    }
}

static fth_status create(void **state)
{
    fth_jpeg *jpeg = NULL;
    fth_status status = fth_allocate(1, sizeof *jpeg, &jpeg);
    if (status != FTH_OK)
        return status;
    jpeg->library.err = jpeg_std_error(&jpeg->errors);
    jpeg->errors.error_exit = fail;
    jpeg->errors.emit_message = take_message;
    jpeg->errors.output_message = print_nothing;
    jpeg->library.client_data = jpeg;
    if (setjmp(jpeg->failed)) {
        status = fth_fail(FTH_NO_MEMORY, "no JPEG decoder: %s", jpeg->message);
        free(jpeg);
        return status;
    }
    jpeg_create_decompress(&jpeg->library);
    jpeg->library.client_data = jpeg;
    jpeg->progress.progress_monitor = watch_scans;
    *state = jpeg;
    return FTH_OK;
}

static void destroy(void *state)
{
    fth_jpeg *jpeg = state;
    jpeg_destroy_decompress(&jpeg->library);
    free(jpeg);
}

static bool probe(const uint8_t *bytes, size_t size_bytes)
{
    return size_bytes >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

/* A complete file ends with an end marker, and perhaps some padding. */
static bool has_end_marker(const uint8_t *bytes, size_t size_bytes)
{
    for (size_t i = size_bytes; i >= 2 && size_bytes - i < 64; i--)
        if (bytes[i - 2] == 0xff && bytes[i - 1] == JPEG_EOI)
            return true;
    return false;
}

static fth_status fail_corrupt(fth_jpeg *jpeg)
{
    jpeg_abort_decompress(&jpeg->library); /* frees the image's memory; cannot fail */
    return fth_fail(strstr(jpeg->message, "nsufficient memory") ? FTH_NO_MEMORY : FTH_CORRUPT, "JPEG: %s",
                    jpeg->message);
}

static fth_status begin(void *state, const uint8_t *bytes, size_t size_bytes, fth_image_header *header)
{
    fth_jpeg *jpeg = state;
    struct jpeg_decompress_struct *library = &jpeg->library;
    if (setjmp(jpeg->failed))
        return fail_corrupt(jpeg);
    jpeg_abort_decompress(library); /* an unfinished image, if any */
    /* jpeg_skip_scanlines() writes through these even if this image has none. They would then point
     * to freed memory of the previous image. */
    library->cconvert = NULL;
    library->cquantize = NULL;
    jpeg->truncated = false;
    jpeg->has_end = has_end_marker(bytes, size_bytes);
    library->progress = NULL;
    jpeg_mem_src(library, bytes, size_bytes);
    jpeg_read_header(library, TRUE);
    header->width = (int)library->image_width;
    header->height = (int)library->image_height;
    header->grey = library->jpeg_color_space == JCS_GRAYSCALE;
    header->orientation = fth_exif_read_jpeg(bytes, size_bytes);
    if (library->jpeg_color_space == JCS_UNKNOWN) {
        snprintf(jpeg->message, sizeof jpeg->message, "an unknown colour space of %d components",
                 library->num_components);
        return fail_corrupt(jpeg);
    }
    return FTH_OK;
}

/* In place, 4 bytes to 3. Like Pillow, assumes inverted CMYK, as Adobe writes it. */
static void convert_cmyk(uint8_t *row, int width)
{
    for (int x = 0; x < width; x++) {
        int key = row[4 * x + 3];
        for (int channel = 0; channel < FTH_IMAGE_CHANNELS; channel++) {
            int ink = (255 - row[4 * x + channel]) * key + 128;
            row[3 * x + channel] = (uint8_t)(key - ((ink + (ink >> 8)) >> 8));
        }
    }
}

/* Configures the decoder, and gives the part of the image that it will produce. */
static void start(fth_jpeg *jpeg, const fth_decode_request *request, fth_picture *picture)
{
    struct jpeg_decompress_struct *library = &jpeg->library;
    bool inks = library->jpeg_color_space == JCS_CMYK || library->jpeg_color_space == JCS_YCCK;
    library->scale_num = (unsigned)request->eighths;
    library->scale_denom = 8;
    library->out_color_space = inks ? JCS_CMYK : JCS_EXT_RGB;
    library->dct_method = JDCT_ISLOW;
    library->do_fancy_upsampling = request->smooth_chroma;
    library->progress = library->progressive_mode ? &jpeg->progress : NULL;
    jpeg_start_decompress(library);

    JDIMENSION left = (JDIMENSION)request->left, width = (JDIMENSION)request->width;
    /* Colour interpolation reads one more pixel on each side. */
    if (request->smooth_chroma && left > 0) {
        JDIMENSION more = left < 2 ? left : 2;
        left -= more;
        width += more;
    }
    if (request->smooth_chroma)
        width += library->output_width - left - width < 2 ? library->output_width - left - width : 2;
    if (left > 0 || width < library->output_width)
        jpeg_crop_scanline(library, &left, &width);
    picture->left = (int)left;
    picture->width = (int)library->output_width;
    picture->top = request->top;
    /* A truncated file must be detected whatever window is asked for. */
    picture->height = jpeg->has_end ? request->height : (int)library->output_height - request->top;
}

static fth_status finish(void *state, const fth_decode_request *request, fth_pixel_buffer *buffer, fth_picture *picture)
{
    fth_jpeg *jpeg = state;
    struct jpeg_decompress_struct *library = &jpeg->library;
    if (setjmp(jpeg->failed))
        return fail_corrupt(jpeg);
    start(jpeg, request, picture);
    size_t components = (size_t)library->output_components;
    picture->stride = (size_t)picture->width * components;
    fth_status status = fth_pixel_buffer_reserve(buffer, picture->stride * (size_t)picture->height + FTH_PICTURE_SLACK);
    if (status != FTH_OK) {
        jpeg_abort_decompress(library);
        return status;
    }
    picture->pixels = buffer->bytes;
    if (request->top > 0)
        jpeg_skip_scanlines(library, (JDIMENSION)request->top);
    JDIMENSION end = (JDIMENSION)(picture->top + picture->height);
    while (library->output_scanline < end) {
        enum { ROWS = 8 };
        JSAMPROW rows[ROWS];
        JDIMENSION count = end - library->output_scanline < ROWS ? end - library->output_scanline : ROWS;
        for (JDIMENSION i = 0; i < count; i++)
            rows[i] =
                buffer->bytes + (size_t)(library->output_scanline + i - (JDIMENSION)request->top) * picture->stride;
        jpeg_read_scanlines(library, rows, count);
    }
    if (components == 4)
        for (int y = 0; y < picture->height; y++)
            convert_cmyk(buffer->bytes + (size_t)y * picture->stride, picture->width);
    jpeg_abort_decompress(library);
    return jpeg->truncated ? fth_fail(FTH_CORRUPT, "JPEG: the file is truncated") : FTH_OK;
}

static const char *const extensions[] = {".jpg", ".jpeg", ".jpe", NULL};

const fth_image_format fth_image_format_jpeg = {
    .name = "JPEG",
    .key = "jpeg",
    .extensions = extensions,
    .can_reduce = true,
    .probe = probe,
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .finish = finish,
};
