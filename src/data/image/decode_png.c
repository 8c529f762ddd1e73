/* PNG, through libspng. Every kind is converted to 8-bit RGB; transparency is dropped, as by
 * Pillow's convert("RGB"). */
#include <spng.h>
#include <stdlib.h>
#include <string.h>

#include "data/image/decode.h"

typedef struct fth_png {
    spng_ctx *library; /* of the current image */
    struct spng_ihdr header;
} fth_png;

static fth_status create(void **state)
{
    return fth_allocate(1, sizeof(fth_png), state);
}

static void destroy(void *state)
{
    fth_png *png = state;
    spng_ctx_free(png->library);
    free(png);
}

static bool probe(const uint8_t *bytes, size_t size_bytes)
{
    static const uint8_t magic[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    return size_bytes >= sizeof magic && memcmp(bytes, magic, sizeof magic) == 0;
}

static fth_status fail_corrupt(fth_png *png, int error)
{
    spng_ctx_free(png->library);
    png->library = NULL;
    return fth_fail(error == SPNG_EMEM ? FTH_NO_MEMORY : FTH_CORRUPT, "PNG: %s",
                    error == SPNG_EOF ? "the file is truncated" : spng_strerror(error));
}

static fth_status begin(void *state, const uint8_t *bytes, size_t size_bytes, fth_image_header *header)
{
    fth_png *png = state;
    spng_ctx_free(png->library);
    png->library = spng_ctx_new(0);
    if (!png->library)
        return fth_fail(FTH_NO_MEMORY, "no PNG decoder");
    spng_set_image_limits(png->library, FTH_MAX_IMAGE_SIDE, FTH_MAX_IMAGE_SIDE);
    spng_set_chunk_limits(png->library, 1 << 24, 1 << 24);
    int error = spng_set_png_buffer(png->library, bytes, size_bytes);
    if (!error)
        error = spng_get_ihdr(png->library, &png->header);
    if (error)
        return fail_corrupt(png, error);
    header->width = (int)png->header.width;
    header->height = (int)png->header.height;
    header->grey = png->header.color_type == SPNG_COLOR_TYPE_GRAYSCALE ||
                   png->header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA;
    struct spng_exif exif;
    error = spng_get_exif(png->library, &exif); /* reads the chunks before the image data */
    if (error && error != SPNG_ECHUNKAVAIL)
        return fail_corrupt(png, error);
    header->orientation = error ? (fth_orientation){0} : fth_exif_read((const uint8_t *)exif.data, exif.length);
    return FTH_OK;
}

static fth_status finish(void *state, const fth_decode_request *request, fth_pixel_buffer *buffer, fth_picture *picture)
{
    (void)request; /* rows depend on the rows before: the whole image is decoded */
    fth_status status = FTH_OK;
    fth_png *png = state;
    size_t size_bytes = 0;

    int error = spng_decoded_image_size(png->library, SPNG_FMT_RGB8, &size_bytes);
    if (error)
        return fail_corrupt(png, error);
    FTH_TRY(fth_pixel_buffer_reserve(buffer, size_bytes + FTH_PICTURE_SLACK));
    error = spng_decode_image(png->library, buffer->bytes, size_bytes, SPNG_FMT_RGB8, 0);
    /* The checksum of the last image data is verified when the next chunk is read. Other errors
     * after the pixels, such as a missing end, do not matter. */
    if (!error && spng_decode_chunks(png->library) == SPNG_ECHUNK_CRC)
        error = SPNG_ECHUNK_CRC;
    if (error)
        return fail_corrupt(png, error);
    *picture = (fth_picture){.pixels = buffer->bytes,
                             .stride = (size_t)png->header.width * FTH_IMAGE_CHANNELS,
                             .width = (int)png->header.width,
                             .height = (int)png->header.height};

out:
    spng_ctx_free(png->library);
    png->library = NULL;
    return status;
}

static const char *const extensions[] = {".png", NULL};

const fth_image_format fth_image_format_png = {
    .name = "PNG",
    .key = "png",
    .extensions = extensions,
    .probe = probe,
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .finish = finish,
};

fth_status fth_png_write(const char *path, const uint8_t *pixels, int width, int height)
{
    fth_status status = FTH_OK;
    void *encoded = NULL;
    size_t encoded_bytes = 0;
    spng_ctx *library = spng_ctx_new(SPNG_CTX_ENCODER);
    struct spng_ihdr header = {
        .width = (uint32_t)width, .height = (uint32_t)height, .bit_depth = 8, .color_type = SPNG_COLOR_TYPE_TRUECOLOR};

    FTH_REQUIRE(library, FTH_NO_MEMORY, "no PNG encoder");
    spng_set_option(library, SPNG_ENCODE_TO_BUFFER, 1);
    int error = spng_set_ihdr(library, &header);
    if (!error)
        error = spng_encode_image(library, pixels, (size_t)width * (size_t)height * FTH_IMAGE_CHANNELS, SPNG_FMT_PNG,
                                  SPNG_ENCODE_FINALIZE);
    if (!error)
        encoded = spng_get_png_buffer(library, &encoded_bytes, &error);
    FTH_REQUIRE(encoded, FTH_IO, "encode %s: %s", path, spng_strerror(error));
    FTH_TRY(fth_file_write_output(path, encoded, encoded_bytes));

out:
    free(encoded);
    spng_ctx_free(library);
    return status;
}
