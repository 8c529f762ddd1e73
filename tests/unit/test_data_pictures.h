/* Encoded pictures for the tests of image files, made with the libraries that decode them. */
#ifndef TEST_DATA_PICTURES_H
#define TEST_DATA_PICTURES_H

#include "test_data_files.h"

#include <jpeglib.h>
#include <spng.h>
#include <sys/stat.h>

#include "data/image/decode.h"

typedef struct encoded {
    uint8_t *bytes;
    size_t size_bytes;
} encoded;

typedef struct jpeg_kind {
    J_COLOR_SPACE colours; /* JCS_RGB, JCS_GRAYSCALE or JCS_CMYK */
    int quality;
    bool progressive, subsampled;
} jpeg_kind;

/* A smooth picture: value of a channel at (x, y). */
static inline uint8_t smooth(int x, int y, int channel)
{
    return (uint8_t)(128 + 60 * ((x / 16 + y / 16 + channel) % 2) - 30 + (x + 2 * y) % 16);
}

/* A wild one, as in the reference values of torchvision. */
static inline uint8_t wild(int x, int y, int channel)
{
    return (uint8_t)(x * 37 + y * 101 + channel * 59);
}

static inline encoded encode_jpeg(int width, int height, jpeg_kind kind, uint8_t (*value)(int, int, int))
{
    struct jpeg_compress_struct library;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long size_bytes = 0;
    library.err = jpeg_std_error(&errors);
    jpeg_create_compress(&library);
    jpeg_mem_dest(&library, &bytes, &size_bytes);
    library.image_width = (JDIMENSION)width;
    library.image_height = (JDIMENSION)height;
    library.input_components = kind.colours == JCS_GRAYSCALE ? 1 : kind.colours == JCS_CMYK ? 4 : 3;
    library.in_color_space = kind.colours;
    jpeg_set_defaults(&library);
    jpeg_set_quality(&library, kind.quality, TRUE);
    if (!kind.subsampled)
        for (int i = 0; i < library.num_components; i++)
            library.comp_info[i].h_samp_factor = library.comp_info[i].v_samp_factor = 1;
    if (kind.progressive)
        jpeg_simple_progression(&library);
    jpeg_start_compress(&library, TRUE);
    uint8_t *row = malloc((size_t)width * (size_t)library.input_components);
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++)
            for (int c = 0; c < library.input_components; c++)
                row[x * library.input_components + c] = value(x, y, c);
        jpeg_write_scanlines(&library, &row, 1);
    }
    free(row);
    jpeg_finish_compress(&library);
    jpeg_destroy_compress(&library);
    return (encoded){bytes, size_bytes};
}

/* Pixels in PNG's own layout for `colour_type` and `depth`. */
static inline encoded encode_png(int width, int height, int colour_type, int depth, const uint8_t *pixels,
                                 size_t pixel_bytes, const struct spng_plte *palette)
{
    spng_ctx *library = spng_ctx_new(SPNG_CTX_ENCODER);
    struct spng_ihdr header = {.width = (uint32_t)width,
                               .height = (uint32_t)height,
                               .bit_depth = (uint8_t)depth,
                               .color_type = (uint8_t)colour_type};
    int error = 0;
    encoded result = {0};
    spng_set_option(library, SPNG_ENCODE_TO_BUFFER, 1);
    assert_int_equal(spng_set_ihdr(library, &header), 0);
    if (palette) {
        struct spng_plte copy = *palette;
        assert_int_equal(spng_set_plte(library, &copy), 0);
    }
    assert_int_equal(spng_encode_image(library, pixels, pixel_bytes, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE), 0);
    result.bytes = spng_get_png_buffer(library, &result.size_bytes, &error);
    assert_non_null(result.bytes);
    spng_ctx_free(library);
    return result;
}

static inline encoded encode_wild_png(int width, int height)
{
    uint8_t *pixels = malloc((size_t)width * (size_t)height * 3);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++)
                pixels[(y * width + x) * 3 + c] = wild(x, y, c);
    encoded result =
        encode_png(width, height, SPNG_COLOR_TYPE_TRUECOLOR, 8, pixels, (size_t)width * (size_t)height * 3, NULL);
    free(pixels);
    return result;
}

/* "a/b/c.jpg" under the test's folder, with its folders. */
static inline void write_picture(const char *name, encoded picture)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", test_folder, name);
    for (char *slash = path + strlen(test_folder) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
    test_write(name, picture.bytes, picture.size_bytes);
}

static inline fth_status decode_all(fth_decoder *decoder, encoded picture, fth_image_header *header,
                                    fth_picture *decoded)
{
    fth_status status = fth_decoder_begin(decoder, picture.bytes, picture.size_bytes, header);
    if (status != FTH_OK)
        return status;
    fth_decode_request request = {
        .eighths = 8, .width = header->width, .height = header->height, .smooth_chroma = true};
    return fth_decoder_finish(decoder, &request, decoded);
}

#endif
