/* Small data files for the tests of src/data, in the test's folder. */
#ifndef TEST_DATA_FILES_H
#define TEST_DATA_FILES_H

#include "support.h"

#include "data/data.h"

static inline void put_big_endian(uint8_t *bytes, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Image i of `side` × `side` begins with the bytes of i, low first; its label is i % 10. free() the
 * bytes. */
static inline uint8_t *make_idx_images(uint32_t count, uint32_t side, size_t *size_bytes)
{
    *size_bytes = 16 + (size_t)count * side * side;
    uint8_t *bytes = calloc(1, *size_bytes);
    put_big_endian(bytes, 0x803);
    put_big_endian(bytes + 4, count);
    put_big_endian(bytes + 8, side);
    put_big_endian(bytes + 12, side);
    for (uint32_t i = 0; i < count; i++) {
        bytes[16 + (size_t)i * side * side] = (uint8_t)i;
        bytes[17 + (size_t)i * side * side] = (uint8_t)(i >> 8);
    }
    return bytes;
}

static inline uint8_t *make_idx_labels(uint32_t count, size_t *size_bytes)
{
    *size_bytes = 8 + (size_t)count;
    uint8_t *bytes = calloc(1, *size_bytes);
    put_big_endian(bytes, 0x801);
    put_big_endian(bytes + 4, count);
    for (uint32_t i = 0; i < count; i++)
        bytes[8 + i] = (uint8_t)(i % 10);
    return bytes;
}

/* "train" or "t10k" */
static inline void write_idx_pair(const char *part, uint32_t count, uint32_t side)
{
    char name[64];
    size_t size_bytes;
    uint8_t *bytes = make_idx_images(count, side, &size_bytes);
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", part);
    test_write(name, bytes, size_bytes);
    free(bytes);
    bytes = make_idx_labels(count, &size_bytes);
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", part);
    test_write(name, bytes, size_bytes);
    free(bytes);
}

static inline fth_status open_set(const char *name, fth_dataset **dataset)
{
    fth_dataset_options options = {.seed = 5, .validation_fraction = 0.2, .threads = 2};
    return fth_dataset_open(name, &options, dataset);
}

#endif
