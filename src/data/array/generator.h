/* Built-in sets: every image is a pure function of (split, index), drawn when it is first
 * needed. */
#ifndef FTH_DATA_GENERATOR_H
#define FTH_DATA_GENERATOR_H

#include "data/data_internal.h"

typedef struct fth_generator {
    fth_dataset_info info;
    int version; /* raised whenever an image changes */
    void (*draw)(fth_random_key key, int label, uint8_t *pixels);
} fth_generator;

#define FTH_GENERATORS(ROW)                                                                                            \
    ROW(digits)                                                                                                        \
    ROW(shapes)                                                                                                        \
    ROW(shapes_20)

#define FTH_DECLARE(name) extern const fth_generator fth_generator_##name;
FTH_GENERATORS(FTH_DECLARE)
#undef FTH_DECLARE

fth_status fth_generated_set_open(const fth_generator *generator, const fth_dataset_options *options,
                                  fth_dataset *dataset);

/* A stream of random numbers for drawing. Use only operations that IEEE 754 rounds exactly (of libm
 * only sqrt), so that images are the same on every machine. */
typedef struct fth_draws {
    fth_random_key key;
    uint64_t next;
} fth_draws;

static inline uint64_t fth_draw_bits(fth_draws *draws)
{
    return fth_random_bits(draws->key, draws->next++);
}

static inline float fth_draw_between(fth_draws *draws, float low, float high)
{
    return low + (high - low) * ((float)(fth_draw_bits(draws) >> 40) * 0x1p-24f);
}

static inline int fth_draw_below(fth_draws *draws, int bound)
{
    return (int)fth_random_below(draws->key, draws->next++, (uint64_t)bound);
}

/* Adds noise to `count` values, a multiple of 4, and rounds them to bytes. */
static inline void fth_draw_noise(fth_draws *draws, float amplitude, const float *values, float scale, int count,
                                  uint8_t *pixels)
{
    for (int i = 0; i < count; i += 4) {
        uint64_t bits = fth_draw_bits(draws); /* two bytes a pixel: their difference is a triangular draw */
        for (int j = 0; j < 4; j++, bits >>= 16) {
            float noise = ((float)(bits & 255) - (float)(bits >> 8 & 255)) * 0.5f * amplitude;
            float value = values[i + j] * scale + noise + 0.5f;
            pixels[i + j] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
        }
    }
}

#endif
