/* A small data set in MNIST's files for whole training runs: bands, whose place is the label.
 * Networks for images take it, and learn it in some epochs. The images are as small as ten places
 * allow, as QEMU computes these runs too. */
#ifndef BANDS_H
#define BANDS_H

#include "support.h"

#include <sys/stat.h>

enum { BANDS_SIDE = 10 };

static inline void bands_put_big_endian(FILE *file, uint32_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        fputc((int)(value >> shift & 255), file);
}

/* `part`: "train" or "t10k", in `folder`. */
static inline void write_bands_part(const char *folder, const char *part, int count, uint64_t seed)
{
    char path[TEST_MAX_PATH + 40];
    snprintf(path, sizeof path, "%s/%s-images-idx3-ubyte", folder, part);
    FILE *images = fopen(path, "wb");
    snprintf(path, sizeof path, "%s/%s-labels-idx1-ubyte", folder, part);
    FILE *labels = fopen(path, "wb");
    assert_true(images && labels);
    bands_put_big_endian(images, 0x803);
    bands_put_big_endian(images, (uint32_t)count);
    bands_put_big_endian(images, BANDS_SIDE);
    bands_put_big_endian(images, BANDS_SIDE);
    bands_put_big_endian(labels, 0x801);
    bands_put_big_endian(labels, (uint32_t)count);
    fth_random_key key = fth_random_key_for(seed, FTH_RANDOM_GENERATE);
    for (int i = 0; i < count; i++) {
        int label = i % 10;
        fputc(label, labels);
        for (int p = 0; p < BANDS_SIDE * BANDS_SIDE; p++) { /* a bright row in noise */
            int bright = p / BANDS_SIDE == label ? 120 : 0;
            fputc(bright + (int)fth_random_below(key, (uint64_t)(i * BANDS_SIDE * BANDS_SIDE + p), 136), images);
        }
    }
    fclose(images);
    fclose(labels);
}

/* Makes the folder `folder`, with so many images for training and for validation. */
static inline void write_bands(const char *folder, int training, int validation)
{
    assert_int_equal(mkdir(folder, 0777), 0);
    write_bands_part(folder, "train", training, 1);
    write_bands_part(folder, "t10k", validation, 2);
}

#endif
