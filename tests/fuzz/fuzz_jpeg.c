/* Feeds bytes to the JPEG decoder, whole and in parts, at every size. */
#include "data/image/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static volatile uint8_t sink;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    static fth_decoder *decoder; /* kept, as a loader thread keeps its own: one image must not harm the next */
    fth_image_header header;
    fth_picture picture;
    if (size_bytes < 4 || (!decoder && fth_decoder_create(&decoder) != FTH_OK))
        return 0;
    uint8_t choice = bytes[0], place = bytes[1]; /* the rest is the file */
    bytes += 2;
    size_bytes -= 2;
    if (fth_decoder_begin(decoder, bytes, size_bytes, &header) != FTH_OK ||
        (int64_t)header.width * header.height > 1 << 16) /* larger ones are only slower */
        return 0;
    fth_decode_request request = {.eighths = fth_decoder_can_reduce(decoder) ? 1 << choice % 4 : 8,
                                  .smooth_chroma = choice & 4};
    int width = fth_reduced_side(header.width, request.eighths),
        height = fth_reduced_side(header.height, request.eighths);
    request.left = choice & 8 ? place % 16 * width / 16 : 0;
    request.top = choice & 16 ? place / 16 * height / 16 : 0;
    request.width = choice & 32 ? 1 + (width - request.left - 1) / 2 : width - request.left;
    request.height = choice & 64 ? 1 + (height - request.top - 1) / 2 : height - request.top;
    if (fth_decoder_finish(decoder, &request, &picture) == FTH_OK) {
        size_t last = (size_t)(request.top + request.height - 1 - picture.top) * picture.stride +
                      3 * (size_t)(request.left + request.width - 1 - picture.left) + 2;
        sink = (uint8_t)(picture.pixels[0] ^ picture.pixels[last]);
    }
    return 0;
}
