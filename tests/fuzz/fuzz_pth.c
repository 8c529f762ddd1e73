/* Fuzzes the reader of weights: the pickle machine, the zip directory, the old format. Whatever it
 * accepts can be read to the last byte. The first byte of the input says what the rest is:
 *
 *     0    a whole file
 *     1    a pickle, to be put into an archive with a storage of 64 bytes
 *     2    the object and what follows it in a file of the old format */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void read_all(const fth_weights *weights, size_t size)
{
    for (size_t i = 0; i < fth_weights_count(weights); i++) {
        const fth_tensor_view *view = fth_weights_get(weights, i);
        size_t count = (size_t)fth_shape_count(&view->shape);
        if (count > size + (1 << 20) + 64)
            abort(); /* more than the file and the allowance for copies */
        float *values = malloc((count + 1) * sizeof *values);
        if (values && fth_tensor_view_to_f32(view, values, count) != FTH_OK)
            abort();
        free(values);
        if (fth_weights_find(weights, view->name) != view)
            abort();
    }
}

static void parse(const uint8_t *bytes, size_t size)
{
    fth_weights *weights = NULL;
    fth_status status = fth_weights_parse(bytes, size, "fuzz", "", &weights);
    if (status == FTH_OK)
        read_all(weights, size);
    else if (!strstr(fth_error_message(), "fuzz"))
        abort();
    fth_weights_free(weights);
    if (status == FTH_OK || status == FTH_INVALID) { /* with a key, the search begins elsewhere */
        if (fth_weights_parse(bytes, size, "fuzz", "a.b", &weights) == FTH_OK)
            read_all(weights, size);
        fth_weights_free(weights);
    }
}

static void append(uint8_t *to, size_t *at, const void *from, size_t size)
{
    if (size)
        memcpy(to + *at, from, size);
    *at += size;
}

static void append_number(uint8_t *to, size_t *at, uint64_t value, size_t width)
{
    append(to, at, &value, width);
}

static void append_header(uint8_t *to, size_t *at, int central, const char *name, size_t size, size_t local)
{
    static const uint8_t zeros[12];
    append(to, at, central ? "PK\1\2" : "PK\3\4", 4);
    append(to, at, zeros, central ? 8 : 6);
    append(to, at, zeros, 8);
    append_number(to, at, size, 4);
    append_number(to, at, size, 4);
    append_number(to, at, strlen(name), 2);
    append(to, at, zeros, central ? 12 : 2);
    if (central)
        append_number(to, at, local, 4);
    append(to, at, name, strlen(name));
}

/* The pickle as an archive; `to` has room for 1,000 bytes more than it. */
static size_t wrap_in_zip(const uint8_t *pickle, size_t size, uint8_t *to)
{
    static const uint8_t storage[64];
    size_t at = 0;
    append_header(to, &at, 0, "a/data.pkl", size, 0);
    append(to, &at, pickle, size);
    size_t second = at;
    append_header(to, &at, 0, "a/data/0", sizeof storage, 0);
    append(to, &at, storage, sizeof storage);
    size_t directory = at;
    append_header(to, &at, 1, "a/data.pkl", size, 0);
    append_header(to, &at, 1, "a/data/0", sizeof storage, second);
    size_t directory_size = at - directory;
    append(to, &at, "PK\5\6\0\0\0\0\2\0\2\0", 12);
    append_number(to, &at, directory_size, 4);
    append_number(to, &at, directory, 4);
    append_number(to, &at, 0, 2);
    return at;
}

static size_t wrap_in_legacy(const uint8_t *rest, size_t size, uint8_t *to)
{
    static const char preamble[] = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}"
                                   "X\x0d\0\0\0little_endian\x88s.";
    size_t at = 0;
    append(to, &at, preamble, sizeof preamble - 1);
    append(to, &at, rest, size);
    return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size == 0)
        return 0;
    uint8_t *wrapped = malloc(size + 1000);
    if (!wrapped)
        return 0;
    size_t wrapped_size = size - 1;
    switch (bytes[0] % 3) {
    case 1: wrapped_size = wrap_in_zip(bytes + 1, size - 1, wrapped); break;
    case 2: wrapped_size = wrap_in_legacy(bytes + 1, size - 1, wrapped); break;
    default: memcpy(wrapped, bytes + 1, size - 1);
    }
    uint8_t *exact = realloc(wrapped, wrapped_size ? wrapped_size : 1); /* so that no byte beyond it can be read */
    parse(exact ? exact : wrapped, wrapped_size);
    free(exact ? exact : wrapped);
    return 0;
}
