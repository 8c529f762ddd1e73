/* The decoder of an image is chosen by its first bytes, not by its name. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/image/decode.h"

#define FTH_LIST(name) &fth_image_format_##name,
static const fth_image_format *const formats[] = {FTH_IMAGE_FORMATS(FTH_LIST)};
#undef FTH_LIST

struct fth_decoder {
    void *states[FTH_COUNT_OF(formats)];
    const fth_image_format *format; /* of the current image */
    void *state;
    fth_orientation orientation; /* as stored */
    int width, height;           /* as stored, at full size */
    fth_pixel_buffer pixels, upright;
};

const fth_image_format *fth_image_format_get(size_t number)
{
    return number < FTH_COUNT_OF(formats) ? formats[number] : NULL;
}

bool fth_image_name_fits(const char *name)
{
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && name[0] != '.' && i < FTH_COUNT_OF(formats); i++)
        for (const char *const *extension = formats[i]->extensions; *extension; extension++)
            if (strcasecmp(dot, *extension) == 0)
                return true;
    return false;
}

fth_status fth_pixel_buffer_reserve(fth_pixel_buffer *buffer, size_t size_bytes)
{
    if (size_bytes <= buffer->capacity)
        return FTH_OK;
    size_t wanted = fth_align_up(size_bytes + size_bytes / 4, 4096);
    uint8_t *grown = realloc(buffer->bytes, wanted);
    if (!grown)
        return fth_fail(FTH_NO_MEMORY, "no memory for %zu bytes", wanted);
    buffer->bytes = grown;
    buffer->capacity = wanted;
    return FTH_OK;
}

fth_status fth_decoder_create(fth_decoder **decoder)
{
    return fth_allocate(1, sizeof **decoder, decoder);
}

void fth_decoder_free(fth_decoder *decoder)
{
    if (!decoder)
        return;
    for (size_t i = 0; i < FTH_COUNT_OF(formats); i++)
        if (decoder->states[i])
            formats[i]->destroy(decoder->states[i]);
    free(decoder->pixels.bytes);
    free(decoder->upright.bytes);
    free(decoder);
}

/* Callers see the upright image only. */
static void take_orientation(fth_decoder *decoder, fth_image_header *header)
{
    decoder->orientation = header->orientation;
    decoder->width = header->width;
    decoder->height = header->height;
    if (header->orientation.swaps_sides) {
        header->width = decoder->height;
        header->height = decoder->width;
    }
    header->orientation = (fth_orientation){0};
}

fth_status fth_decoder_begin(fth_decoder *decoder, const uint8_t *bytes, size_t size_bytes, fth_image_header *header)
{
    fth_status status = FTH_OK;
    decoder->format = NULL;
    for (size_t i = 0; i < FTH_COUNT_OF(formats); i++) {
        if (!formats[i]->probe(bytes, size_bytes))
            continue;
        if (!decoder->states[i])
            FTH_TRY(formats[i]->create(&decoder->states[i]));
        decoder->state = decoder->states[i];
        header->format = formats[i];
        FTH_TRY(formats[i]->begin(decoder->state, bytes, size_bytes, header));
        int64_t pixels = (int64_t)header->width * header->height;
        FTH_REQUIRE(header->width > 0 && header->height > 0, FTH_CORRUPT, "%s image without pixels", formats[i]->name);
        FTH_REQUIRE(header->width <= FTH_MAX_IMAGE_SIDE && header->height <= FTH_MAX_IMAGE_SIDE &&
                        pixels <= FTH_MAX_IMAGE_PIXELS,
                    FTH_CORRUPT, "%s image of %d × %d pixels: more than is decoded", formats[i]->name, header->width,
                    header->height);
        /* Encoders reach a few thousand pixels a byte at most, so a small file cannot claim much
         * memory. */
        FTH_REQUIRE(pixels <= (int64_t)size_bytes * 4096 + (1 << 20), FTH_CORRUPT,
                    "%s image of %zu bytes that claims %d × %d pixels", formats[i]->name, size_bytes, header->width,
                    header->height);
        decoder->format = formats[i];
        take_orientation(decoder, header);
        return FTH_OK;
    }
    status = size_bytes == 0 ? fth_fail(FTH_CORRUPT, "an empty file")
                             : fth_fail(FTH_CORRUPT, "neither JPEG nor PNG by its first bytes");
out:
    return status;
}

bool fth_decoder_can_reduce(const fth_decoder *decoder)
{
    return decoder->format && decoder->format->can_reduce;
}

/* A part of an image, as stored or upright. */
typedef struct part {
    int left, top, width, height;
} part;

static part swap_sides(part from)
{
    return (part){.left = from.top, .top = from.left, .width = from.height, .height = from.width};
}

/* Mirrors a part of a (width, height) image as the orientation says. Its own inverse. */
static part mirror(fth_orientation orientation, part from, int width, int height)
{
    if (orientation.from_right)
        from.left = width - from.left - from.width;
    if (orientation.from_bottom)
        from.top = height - from.top - from.height;
    return from;
}

/* In bands of rows, so that neighbouring pixels are read close together even if sides are
 * swapped. */
static void turn_pixels(fth_orientation orientation, const fth_picture *stored, part to, uint8_t *pixels)
{
    enum { ROWS = 16 };
    const int last_x = stored->width - 1, last_y = stored->height - 1;
    for (int begin = 0; begin < to.height; begin += ROWS)
        for (int x = 0; x < to.width; x++)
            for (int y = begin; y < to.height && y < begin + ROWS; y++) {
                const int a = orientation.swaps_sides ? y : x, b = orientation.swaps_sides ? x : y;
                const size_t column = (size_t)(orientation.from_right ? last_x - a : a);
                const size_t row = (size_t)(orientation.from_bottom ? last_y - b : b);
                memcpy(pixels + ((size_t)y * (size_t)to.width + (size_t)x) * FTH_IMAGE_CHANNELS,
                       stored->pixels + row * stored->stride + column * FTH_IMAGE_CHANNELS, FTH_IMAGE_CHANNELS);
            }
}

static fth_status turn_upright(fth_decoder *decoder, int width, int height, fth_picture *picture)
{
    const fth_orientation orientation = decoder->orientation;
    part to = mirror(orientation, (part){picture->left, picture->top, picture->width, picture->height}, width, height);
    if (orientation.swaps_sides)
        to = swap_sides(to);
    const size_t stride = (size_t)to.width * FTH_IMAGE_CHANNELS;
    fth_status status = fth_pixel_buffer_reserve(&decoder->upright, stride * (size_t)to.height + FTH_PICTURE_SLACK);
    if (status != FTH_OK)
        return status;
    turn_pixels(orientation, picture, to, decoder->upright.bytes);
    *picture = (fth_picture){.pixels = decoder->upright.bytes,
                             .stride = stride,
                             .left = to.left,
                             .top = to.top,
                             .width = to.width,
                             .height = to.height};
    return FTH_OK;
}

fth_status fth_decoder_finish(fth_decoder *decoder, const fth_decode_request *request, fth_picture *picture)
{
    const fth_orientation orientation = decoder->orientation;
    if (fth_orientation_is_upright(orientation))
        return decoder->format->finish(decoder->state, request, &decoder->pixels, picture);

    const int width = fth_reduced_side(decoder->width, request->eighths);
    const int height = fth_reduced_side(decoder->height, request->eighths);
    part from = {request->left, request->top, request->width, request->height};
    if (orientation.swaps_sides)
        from = swap_sides(from);
    from = mirror(orientation, from, width, height);
    const fth_decode_request stored = {.eighths = request->eighths,
                                       .left = from.left,
                                       .top = from.top,
                                       .width = from.width,
                                       .height = from.height,
                                       .smooth_chroma = request->smooth_chroma};
    fth_status status = decoder->format->finish(decoder->state, &stored, &decoder->pixels, picture);
    return status == FTH_OK ? turn_upright(decoder, width, height, picture) : status;
}
