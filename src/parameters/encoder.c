/* Encodes gradients as f32, f16 or bf16, or only the largest numbers of each tensor.
 *
 * What compression leaves out is kept in `rest` and added to the next gradient (error feedback;
 * Seide et al. 2014, Karimireddy et al. 2019), so that over time the sum of what was sent is the
 * sum of what was computed. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/half.h"
#include "parameters/client.h"
#include "parameters/local.h"

typedef enum compression { SEND_F32, SEND_F16, SEND_BF16, SEND_LARGEST } compression;

struct fth_encoder {
    const fth_layout *layout;
    compression kind;
    double part;    /* of SEND_LARGEST */
    float *rest;    /* laid out as the engine's vector; NULL if nothing is left out */
    float *scratch; /* of the largest tensor */
    fth_tensor_view *views;
    char **names; /* of parts: NAME.indices, NAME.values */
    size_t view_count;
    char *body; /* the header, then the data; a mapping of `fd` */
    int fd;
    size_t header_bytes, data_bytes;
    uint64_t stamp; /* of the current body; see local.h */
};

/* Clamps to f16's range. Numbers that are not finite stay so, and the server refuses them. */
static uint16_t to_f16(float value)
{
    return fth_f16_from_float(isfinite(value) ? fminf(fmaxf(value, -65504.f), 65504.f) : value);
}

static int64_t sent_of(const fth_encoder *encoder, int64_t count)
{
    int64_t sent = encoder->kind == SEND_LARGEST ? (int64_t)ceil(encoder->part * (double)count) : count;
    return sent < 1 ? 1 : sent > count ? count : sent;
}

/* ---- making one ---- */

static const fth_choice forms[] = {
    [SEND_F32] = {.name = "none"},
    [SEND_F16] = {.name = "f16"},
    [SEND_BF16] = {.name = "bf16"},
    [SEND_LARGEST] = {.name = "topk:SHARE", .summary = "topk:1% is the largest 1 %"},
};

fth_choice fth_compression_choice(size_t index)
{
    return index < FTH_COUNT_OF(forms) ? forms[index] : (fth_choice){0};
}

static fth_status parse(const char *text, compression *kind, double *part)
{
    char *end = NULL;
    *part = 1;
    for (*kind = SEND_F32; *kind < SEND_LARGEST; (*kind)++)
        if (strcmp(text, forms[*kind].name) == 0)
            return FTH_OK;
    if (strncmp(text, "topk:", 5) != 0)
        return fth_fail_choice("compression", text, fth_compression_choice);
    *part = strtod(text + 5, &end);
    if (end > text + 5 && strcmp(end, "%") == 0) {
        *part /= 100;
        end++;
    }
    if (end == text + 5 || *end || !(*part > 0) || *part > 1)
        return fth_fail(FTH_INVALID, "expected a share above 0 and at most 1 after the colon of \"%s\"", text);
    return FTH_OK;
}

fth_status fth_compression_check(const char *text)
{
    compression kind;
    double part;
    return parse(text, &kind, &part);
}

static void add_view(fth_encoder *encoder, const char *name, fth_dtype dtype, fth_shape shape)
{
    encoder->views[encoder->view_count++] = (fth_tensor_view){.name = name, .dtype = dtype, .shape = shape};
    encoder->data_bytes += (size_t)fth_shape_count(&shape) * fth_dtype_size_bytes(dtype);
}

static void describe(fth_encoder *encoder)
{
    static const fth_dtype dtypes[] = {FTH_F32, FTH_F16, FTH_BF16};
    const fth_layout *layout = encoder->layout;
    for (int i = 0; i < layout->trained; i++) {
        const fth_layout_tensor *tensor = &layout->tensors[i];
        if (encoder->kind != SEND_LARGEST) {
            add_view(encoder, tensor->name, dtypes[encoder->kind], tensor->shape);
            continue;
        }
        int64_t sent = sent_of(encoder, tensor->count);
        encoder->names[2 * i] = fth_format("%s.indices", tensor->name);
        encoder->names[2 * i + 1] = fth_format("%s.values", tensor->name);
        add_view(encoder, encoder->names[2 * i], FTH_U32, FTH_SHAPE(sent));
        add_view(encoder, encoder->names[2 * i + 1], FTH_F32, FTH_SHAPE(sent));
    }
    for (int i = layout->parameters; i < layout->count; i++)
        add_view(encoder, layout->tensors[i].name, FTH_F32, layout->tensors[i].shape);
}

static fth_status describe_push(const fth_encoder *encoder, const fth_encoder_facts *facts, char **header,
                                size_t *bytes)
{
    enum { MOST_ENTRIES = 11 };
    const fth_shard_span *span = facts->span;
    char sequence[24], version[24], samples[24], loss[32], correct[24], epoch[24], from[24], to[24];
    fth_metadata_entry metadata[MOST_ENTRIES] = {
        {"worker", facts->worker}, {"sequence", sequence}, {"version", version},
        {"samples", samples},      {"loss", loss},         {"correct", correct}};
    size_t metadata_count = 6;

    snprintf(sequence, sizeof sequence, "%" PRId64, facts->sequence);
    snprintf(version, sizeof version, "%" PRId64, facts->version);
    snprintf(samples, sizeof samples, "%" PRId64, facts->samples);
    snprintf(loss, sizeof loss, "%.9g", facts->loss);
    snprintf(correct, sizeof correct, "%" PRId64, facts->correct);
    if (facts->instance)
        metadata[metadata_count++] = (fth_metadata_entry){"instance", facts->instance};
    if (span) {
        snprintf(epoch, sizeof epoch, "%" PRId64, span->epoch);
        snprintf(from, sizeof from, "%" PRId64, span->from);
        snprintf(to, sizeof to, "%" PRId64, span->to);
        metadata[metadata_count++] = (fth_metadata_entry){"shard", span->name};
        metadata[metadata_count++] = (fth_metadata_entry){"epoch", epoch};
        metadata[metadata_count++] = (fth_metadata_entry){"from", from};
        metadata[metadata_count++] = (fth_metadata_entry){"to", to};
    }
    return fth_safetensors_header(encoder->views, encoder->view_count, metadata, metadata_count, header, bytes);
}

static size_t body_bytes(const fth_encoder *encoder)
{
    return encoder->header_bytes + encoder->data_bytes;
}

static size_t mapped_bytes(const fth_encoder *encoder)
{
    return fth_local_stamp_offset(body_bytes(encoder)) + sizeof encoder->stamp;
}

/* Tells a server that reads the memory which body it holds; 0: it is being changed. */
static void set_stamp(fth_encoder *encoder, uint64_t stamp)
{
    _Atomic uint64_t *place = (void *)(encoder->body + fth_local_stamp_offset(body_bytes(encoder)));
    atomic_thread_fence(memory_order_release); /* orders the body before its stamp */
    atomic_store_explicit(place, stamp, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* orders the 0 before the next body */
}

/* Allocates the body in memory that a server on this machine can read, with room for the longest
 * header, so that the data never move. */
static fth_status map_body(fth_encoder *encoder)
{
    fth_status status = FTH_OK;
    char name[FTH_MAX_WORKER_NAME + 1], *header = NULL;
    fth_shard_span span = {.epoch = INT64_MAX, .from = INT64_MAX, .to = INT64_MAX};

    memset(name, 'w', FTH_MAX_WORKER_NAME);
    name[FTH_MAX_WORKER_NAME] = '\0';
    memset(span.name, 's', FTH_MAX_SHARD_NAME);
    FTH_TRY(describe_push(encoder,
                          &(fth_encoder_facts){.worker = name,
                                               .instance = name,
                                               .sequence = INT64_MAX,
                                               .version = INT64_MAX,
                                               .samples = INT64_MAX,
                                               .correct = INT64_MAX,
                                               .loss = -1.23456789e-300,
                                               .span = &span},
                          &header, &encoder->header_bytes));
    size_t size = mapped_bytes(encoder);
    encoder->fd = memfd_create(FTH_LOCAL_NAME, MFD_CLOEXEC);
    void *body = MAP_FAILED;
    if (encoder->fd >= 0 && ftruncate(encoder->fd, (off_t)size) == 0)
        body = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, encoder->fd, 0);
    FTH_REQUIRE(body != MAP_FAILED, FTH_NO_MEMORY, "no memory for %zu bytes of gradients: %s", size, strerror(errno));
    encoder->body = body;

out:
    free(header);
    return status;
}

fth_status fth_encoder_create(const fth_layout *layout, const char *text, fth_encoder **result)
{
    fth_status status = FTH_OK;
    fth_encoder *encoder = NULL;
    int64_t largest = 1;
    size_t views = 2 * (size_t)layout->count + 1;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *encoder, &encoder));
    encoder->layout = layout;
    encoder->fd = -1;
    FTH_TRY(parse(text, &encoder->kind, &encoder->part));
    FTH_TRY(fth_allocate(views, sizeof *encoder->views, &encoder->views));
    FTH_TRY(fth_allocate(views, sizeof *encoder->names, &encoder->names));
    describe(encoder);
    for (int i = 0; i < layout->trained; i++) {
        largest = layout->tensors[i].count > largest ? layout->tensors[i].count : largest;
        FTH_REQUIRE(encoder->kind != SEND_LARGEST || layout->tensors[i].count <= UINT32_MAX, FTH_UNSUPPORTED,
                    "%s is too large for topk", layout->tensors[i].name);
    }
    if (encoder->kind != SEND_F32)
        FTH_TRY(fth_allocate_aligned(layout->trained_floats * sizeof(float) + 1, &encoder->rest));
    if (encoder->kind == SEND_LARGEST)
        FTH_TRY(fth_allocate((size_t)largest, sizeof *encoder->scratch, &encoder->scratch));
    FTH_TRY(map_body(encoder));
    *result = encoder;
    encoder = NULL;

out:
    fth_encoder_free(encoder);
    return status;
}

void fth_encoder_free(fth_encoder *encoder)
{
    if (!encoder)
        return;
    for (size_t i = 0; encoder->names && i < 2 * (size_t)encoder->layout->count; i++)
        free(encoder->names[i]);
    free(encoder->names);
    free(encoder->views);
    free(encoder->rest);
    free(encoder->scratch);
    if (encoder->body)
        munmap(encoder->body, mapped_bytes(encoder));
    if (encoder->fd >= 0)
        close(encoder->fd);
    free(encoder);
}

void fth_encoder_forget(fth_encoder *encoder)
{
    if (encoder->rest)
        memset(encoder->rest, 0, encoder->layout->trained_floats * sizeof(float));
}

/* ---- taking gradients ---- */

static char *put_halves(const fth_encoder *encoder, char *to, const float *gradient, float *rest, int64_t count)
{
    bool f16 = encoder->kind == SEND_F16;
    for (int64_t i = 0; i < count; i++, to += 2) {
        float value = gradient[i] + rest[i];
        uint16_t half = f16 ? to_f16(value) : fth_bf16_from_float(value);
        memcpy(to, &half, 2);
        rest[i] = value - (f16 ? fth_f16_to_float(half) : fth_bf16_to_float(half));
        if (!isfinite(rest[i]))
            rest[i] = 0; /* the server refuses this gradient */
    }
    return to;
}

/* The k-th largest of `values`, which get reordered (Hoare's selection). */
static float find_kth_largest(float *values, int64_t count, int64_t k)
{
    int64_t low = 0, high = count - 1, wanted = k - 1;
    while (low < high) {
        float pivot = values[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (values[i] > pivot)
                i++;
            while (values[j] < pivot)
                j--;
            if (i <= j) {
                float swap = values[i];
                values[i++] = values[j];
                values[j--] = swap;
            }
        }
        if (wanted <= j)
            high = j;
        else if (wanted >= i)
            low = i;
        else
            break;
    }
    return values[wanted];
}

static char *put_largest(fth_encoder *encoder, char *to, const float *gradient, float *rest, int64_t count)
{
    int64_t wanted = sent_of(encoder, count), sent = 0, above = 0;
    for (int64_t i = 0; i < count; i++) {
        rest[i] += gradient[i];
        if (isnan(rest[i])) /* NaN cannot be ordered; the server refuses infinity */
            rest[i] = INFINITY;
        encoder->scratch[i] = fabsf(rest[i]);
    }
    float least = find_kth_largest(encoder->scratch, count, wanted);
    for (int64_t i = 0; i < count; i++)
        above += fabsf(rest[i]) > least;
    int64_t equal = wanted - above; /* ties with the smallest number sent: the first ones are sent */
    char *indices = to, *values = to + 4 * wanted;
    for (int64_t i = 0; i < count && sent < wanted; i++) {
        float size = fabsf(rest[i]);
        if (size < least || (size == least && equal-- <= 0))
            continue;
        uint32_t index = (uint32_t)i;
        memcpy(indices + 4 * sent, &index, 4);
        memcpy(values + 4 * sent++, &rest[i], 4);
        rest[i] = 0;
    }
    return values + 4 * wanted;
}

fth_status fth_encoder_take(fth_encoder *encoder, const float *gradients, const float *buffers)
{
    const fth_layout *layout = encoder->layout;
    char *to = encoder->body + encoder->header_bytes;
    set_stamp(encoder, 0);
    for (int i = 0; i < layout->trained; i++) {
        const fth_layout_tensor *tensor = &layout->tensors[i];
        const float *gradient = gradients + tensor->vector_offset;
        float *rest = encoder->rest ? encoder->rest + tensor->vector_offset : NULL;
        if (encoder->kind == SEND_F32) {
            memcpy(to, gradient, (size_t)tensor->count * sizeof(float));
            to += (size_t)tensor->count * sizeof(float);
        } else if (encoder->kind == SEND_LARGEST) {
            to = put_largest(encoder, to, gradient, rest, tensor->count);
        } else {
            to = put_halves(encoder, to, gradient, rest, tensor->count);
        }
    }
    for (int i = layout->parameters; buffers && i < layout->count; i++) {
        const fth_layout_tensor *tensor = &layout->tensors[i];
        memcpy(to, buffers + tensor->vector_offset, (size_t)tensor->count * sizeof(float));
        to += (size_t)tensor->count * sizeof(float);
    }
    return FTH_OK;
}

/* ---- giving them back ---- */

/* Adds what was sent of a tensor back to its rest; returns where the next tensor starts. */
static const char *add_sent(const fth_encoder *encoder, const char *from, float *rest, int64_t count)
{
    int64_t sent = sent_of(encoder, count);
    for (int64_t i = 0; i < sent; i++) {
        uint32_t index = (uint32_t)i;
        uint16_t half;
        float value;
        if (encoder->kind == SEND_LARGEST) {
            memcpy(&index, from + 4 * i, 4);
            memcpy(&value, from + 4 * (sent + i), 4);
        } else {
            memcpy(&half, from + 2 * i, 2);
            value = encoder->kind == SEND_F16 ? fth_f16_to_float(half) : fth_bf16_to_float(half);
        }
        rest[index] += value;
    }
    return from + (encoder->kind == SEND_LARGEST ? 8 : 2) * sent;
}

void fth_encoder_give_back(fth_encoder *encoder, const float *gradients)
{
    const fth_layout *layout = encoder->layout;
    const char *from = encoder->body + encoder->header_bytes;
    for (int i = 0; encoder->rest && i < layout->trained; i++) {
        const fth_layout_tensor *tensor = &layout->tensors[i];
        float *rest = encoder->rest + tensor->vector_offset;
        from = add_sent(encoder, from, rest, tensor->count);
        for (int64_t j = 0; j < tensor->count; j++) {
            rest[j] -= gradients[tensor->vector_offset + (size_t)j];
            if (!isfinite(rest[j]))
                rest[j] = 0;
        }
    }
}

/* ---- the body ---- */

fth_status fth_encoder_make(fth_encoder *encoder, const fth_encoder_facts *facts, fth_push_body *body)
{
    fth_status status = FTH_OK;
    char *header = NULL;
    size_t bytes = 0;

    FTH_TRY(describe_push(encoder, facts, &header, &bytes));
    FTH_REQUIRE(bytes <= encoder->header_bytes, FTH_INVALID, "a header of %zu bytes does not fit into %zu", bytes,
                encoder->header_bytes);
    set_stamp(encoder, 0);
    uint64_t length = encoder->header_bytes - 8; /* including the spaces at its end */
    memcpy(encoder->body, &length, 8);
    memcpy(encoder->body + 8, header + 8, bytes - 8);
    memset(encoder->body + bytes, ' ', encoder->header_bytes - bytes);
    set_stamp(encoder, ++encoder->stamp);
    *body = (fth_push_body){encoder->body, body_bytes(encoder), encoder->fd, encoder->stamp};

out:
    free(header);
    return status;
}
