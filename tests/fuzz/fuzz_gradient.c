/* Fuzzes what strangers send to a parameter server: gradients, and the headers that say who and
 * where. What is accepted must be finite, of the model's shape, and harmless to add. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/signature.h"
#include "model/model.h"
#include "parameters/gradient.h"
#include "parameters/local.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static fth_graph *graph;
static fth_layout *layout;
static fth_keys *keys;
static uint8_t sample[4096]; /* a good gradient, to be spoilt */
static size_t sample_size;

static void open_model(void)
{
    const fth_model *model = NULL;
    fth_model_options options = {.channels = 1, .height = 2, .width = 3, .classes = 4};
    char header[1024];
    fth_log_set_level(FTH_LOG_ERROR);
    if (fth_model_find("linear", &model) != FTH_OK || fth_model_create_graph(model, &options, &graph) != FTH_OK ||
        fth_layout_create(graph, &layout) != FTH_OK ||
        fth_keys_parse("alice 0123456789abcdef0123 train", "fuzz", &keys) != FTH_OK)
        abort();
    /* The first tensor whole, the second by positions. */
    const fth_layout_tensor *a = &layout->tensors[0], *b = &layout->tensors[1];
    char shape[64];
    size_t length = 0;
    for (int i = 0; i < a->shape.rank; i++)
        length += (size_t)snprintf(shape + length, sizeof shape - length, "%s%lld", i ? "," : "",
                                   (long long)a->shape.dims[i]);
    long long first = a->count * 4;
    uint64_t size = (uint64_t)snprintf(
        header, sizeof header,
        "{\"__metadata__\":{\"worker\":\"w\",\"sequence\":\"1\",\"version\":\"0\",\"samples\":\"8\",\"loss\":\"0.5\"},"
        "\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[0,%lld]},"
        "\"%s.indices\":{\"dtype\":\"U32\",\"shape\":[2],\"data_offsets\":[%lld,%lld]},"
        "\"%s.values\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[%lld,%lld]}}",
        a->name, shape, first, b->name, first, first + 8, b->name, first + 8, first + 12);
    memcpy(sample, &size, 8);
    memcpy(sample + 8, header, size);
    sample_size = 8 + size + (size_t)first + 12;
    sample[8 + size + (size_t)first + 4] = 1; /* positions 0 and 1 */
    fth_gradient gradient;
    char message[FTH_MAX_REFUSAL];
    if (fth_gradient_parse(layout, sample, sample_size, &gradient, message) != FTH_REFUSAL_NONE)
        abort();
    fth_gradient_release(&gradient);
}

static void try_gradient(const uint8_t *body, size_t size)
{
    fth_gradient gradient;
    char message[FTH_MAX_REFUSAL] = "";
    fth_refusal refusal = fth_gradient_parse(layout, body, size, &gradient, message);
    if (refusal == FTH_REFUSAL_NONE) {
        float *sum = calloc(layout->trained_floats, sizeof *sum);
        fth_gradient_add(layout, &gradient, 1, true, sum);
        fth_gradient_add(layout, &gradient, 0.5f, false, sum);
        for (size_t i = 0; i < layout->trained_floats; i++)
            if (isnan(sum[i]))
                abort();
        if (!fth_worker_name_valid(gradient.worker) || gradient.sequence < 1 || gradient.version < 0 ||
            gradient.samples < 1)
            abort();
        free(sum);
    } else if (!*message || fth_refusal_code(refusal) < 400) {
        abort();
    }
    fth_gradient_release(&gradient);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (!graph)
        open_model();
    if (size < 2)
        return 0;
    int mode = bytes[0] & 3;
    bytes++;
    size--;
    uint8_t *copy = malloc(size + sizeof sample + 1);
    if (mode == 0) { /* anything, with a length that fits half of the time */
        memcpy(copy, bytes, size);
        if (size > 8 && copy[7] & 1) {
            const uint8_t *end = memrchr(copy + 8, '}', size - 8);
            uint64_t length = end ? (uint64_t)(end - copy) - 7 : size - 8;
            memcpy(copy, &length, 8);
        }
        uint8_t *exact = malloc(size); /* so that a byte beyond is found */
        memcpy(exact, copy, size);
        try_gradient(exact, size);
        free(exact);
    } else if (mode == 1) { /* a good one with some bytes changed, and its end cut or not */
        size_t length = sample_size;
        memcpy(copy, sample, sample_size);
        for (size_t i = 0; i + 2 < size; i += 3) {
            size_t at = bytes[i] | (size_t)bytes[i + 1] << 8;
            copy[at % sample_size] = bytes[i + 2];
            if (at >= 65000)
                length = bytes[i + 2] * sample_size / 255;
        }
        uint8_t *exact = malloc(length ? length : 1);
        memcpy(exact, copy, length);
        try_gradient(exact, length);
        free(exact);
    } else {
        fth_signed who;
        fth_local_place place;
        memcpy(copy, bytes, size);
        copy[size] = '\0';
        if (fth_keys_check(keys, (char *)copy, "POST", "/putGradient", true, &who) == FTH_SIGNATURE_GOOD)
            abort(); /* nobody guesses a signature */
        if (fth_local_parse((char *)copy, &place) && (place.process <= 0 || place.fd < 0 || place.size_bytes == 0))
            abort();
    }
    free(copy);
    return 0;
}
