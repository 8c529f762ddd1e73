/* Feeds bytes to the PNG decoder, and what comes out to a random crop. */
#include "data/image/resample.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static volatile float sink;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    static fth_decoder *decoder; /* kept, as a loader thread keeps its own: one image must not harm the next */
    static fth_resampler resampler;
    static float planes[3 * 16 * 16];
    static const float scale[3] = {1, 1, 1}, shift[3] = {0, 0, 0};
    fth_image_header header;
    fth_picture picture;
    fth_transform transform;
    fth_geometry geometry;
    if (size_bytes < 2 || (!decoder && fth_decoder_create(&decoder) != FTH_OK))
        return 0;
    fth_random_key key = {bytes[0]};
    if (fth_decoder_begin(decoder, bytes + 1, size_bytes - 1, &header) != FTH_OK ||
        (int64_t)header.width * header.height > 1 << 16) /* larger ones are only slower */
        return 0;
    fth_decode_request request = {.eighths = 8, .width = header.width, .height = header.height};
    if (fth_decoder_finish(decoder, &request, &picture) != FTH_OK ||
        fth_transform_parse("random-resized-crop=16,flip", &transform) != FTH_OK)
        return 0;
    fth_geometry_plan(&transform, header.width, header.height, key, &geometry);
    if (fth_taps_fill(&resampler.x, &geometry.x, geometry.flip) == FTH_OK &&
        fth_taps_fill(&resampler.y, &geometry.y, false) == FTH_OK &&
        fth_resample(&resampler, &picture, 16, 16, scale, shift, planes) == FTH_OK)
        sink = planes[17];
    return 0;
}
