/* Decoders: which one an image needs is told by its first bytes, not by its name. */
#include <stdlib.h>

#include "data/decode.h"

static const fth_image_format *const formats[] = {&fth_image_jpeg, &fth_image_png};

struct fth_decoder {
    void *states[FTH_COUNT_OF(formats)];
    const fth_image_format *format; /* of the image begun last */
    void *state;
    fth_pixel_buffer pixels;
};

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
    free(decoder);
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
        header->kind = formats[i]->kind;
        FTH_TRY(formats[i]->begin(decoder->state, bytes, size_bytes, header));
        int64_t pixels = (int64_t)header->width * header->height;
        FTH_REQUIRE(header->width > 0 && header->height > 0, FTH_CORRUPT, "%s image without pixels", formats[i]->name);
        FTH_REQUIRE(header->width <= FTH_MAX_IMAGE_SIDE && header->height <= FTH_MAX_IMAGE_SIDE &&
                        pixels <= FTH_MAX_IMAGE_PIXELS,
                    FTH_CORRUPT, "%s image of %d × %d pixels: more than is decoded", formats[i]->name, header->width,
                    header->height);
        /* No encoder packs more than some thousand pixels into a byte: a small file does not get to claim memory. */
        FTH_REQUIRE(pixels <= (int64_t)size_bytes * 4096 + (1 << 20), FTH_CORRUPT,
                    "%s image of %zu bytes that claims %d × %d pixels", formats[i]->name, size_bytes, header->width,
                    header->height);
        decoder->format = formats[i];
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

fth_status fth_decoder_finish(fth_decoder *decoder, const fth_decode_request *request, fth_picture *picture)
{
    return decoder->format->finish(decoder->state, request, &decoder->pixels, picture);
}
