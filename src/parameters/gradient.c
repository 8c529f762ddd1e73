/* See gradient.h: what a body must be like, and how it is added to a vector. */
#include "parameters/gradient.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/vectorized.h"

enum { CHUNK = 8192 };
static const int64_t MAX_SAMPLES = INT64_C(1) << 31;

/* A body's numbers may lie at any address. */
typedef float unaligned_float __attribute__((aligned(1), may_alias));
typedef uint32_t unaligned_u32 __attribute__((aligned(1), may_alias));

static const struct {
    const char *name;
    int code;
} refusals[FTH_REFUSALS] = {
    [FTH_REFUSAL_NONE] = {"none", 200},
    [FTH_REFUSAL_MALFORMED] = {"malformed", 400},
    [FTH_REFUSAL_NOT_FINITE] = {"not_finite", 400},
    [FTH_REFUSAL_NAMES] = {"names", 409},
    [FTH_REFUSAL_SHAPE] = {"shape", 409},
    [FTH_REFUSAL_DTYPE] = {"dtype", 409},
    [FTH_REFUSAL_STALE] = {"stale", 409},
    [FTH_REFUSAL_DIVERGES] = {"diverges", 409},
    [FTH_REFUSAL_VERSION] = {"version", 409},
    [FTH_REFUSAL_SEQUENCE] = {"sequence", 409},
    [FTH_REFUSAL_FINISHED] = {"finished", 409},
    [FTH_REFUSAL_LEASE] = {"lease", 409},
    [FTH_REFUSAL_STRANGER] = {"stranger", 409},
    [FTH_REFUSAL_DUPLICATE] = {"duplicate", 409},
    [FTH_REFUSAL_FORBIDDEN] = {"forbidden", 403},
    [FTH_REFUSAL_UNSIGNED] = {"unsigned", 401},
    [FTH_REFUSAL_CLOCK] = {"clock", 401},
    [FTH_REFUSAL_HOST] = {"host", 403},
    [FTH_REFUSAL_ORIGIN] = {"origin", 403},
    [FTH_REFUSAL_RANGE] = {"range", 416},
    [FTH_REFUSAL_BODY] = {"body_hash", 401},
    [FTH_REFUSAL_BUSY] = {"busy", 503},
    [FTH_REFUSAL_RATE] = {"rate", 429},
};

const char *fth_refusal_name(fth_refusal refusal)
{
    return refusals[refusal].name;
}

int fth_refusal_code(fth_refusal refusal)
{
    return refusals[refusal].code;
}

bool fth_worker_name_valid(const char *name)
{
    size_t length = strlen(name);
    if (length < 1 || length > FTH_MAX_WORKER_NAME)
        return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && !strchr("._-", *name))
            return false;
    return true;
}

bool fth_shard_name_valid(const char *name)
{
    size_t length = name ? strlen(name) : 0;
    for (size_t i = 0; i < length; i++)
        if (name[i] <= ' ' || name[i] > '~' || name[i] == '"' || name[i] == '\\')
            return false;
    return length > 0 && length <= FTH_MAX_SHARD_NAME;
}

/* ---- metadata ---- */

#define REFUSE(kind, ...)                                                                                              \
    do {                                                                                                               \
        snprintf(message, FTH_MAX_REFUSAL, __VA_ARGS__);                                                               \
        return FTH_REFUSAL_##kind;                                                                                     \
    } while (0)

static bool read_whole(const char *text, int64_t least, int64_t most, int64_t *value)
{
    char *end = NULL;
    if (!text || !isdigit((unsigned char)*text) || strlen(text) > 18)
        return false;
    *value = strtoll(text, &end, 10);
    return !*end && *value >= least && *value <= most;
}

/* Reads which samples of which shard the gradient covers, if any. */
static fth_refusal read_span(fth_gradient *gradient, char message[FTH_MAX_REFUSAL])
{
    const char *shard = fth_safetensors_metadata(gradient->tensors, "shard");
    fth_shard_span *span = &gradient->span;
    const struct {
        const char *name;
        int64_t *value;
    } numbers[] = {{"epoch", &span->epoch}, {"from", &span->from}, {"to", &span->to}};

    if (!shard)
        return FTH_REFUSAL_NONE;
    if (!fth_shard_name_valid(shard))
        REFUSE(MALFORMED, "\"shard\" in __metadata__ is not a shard's name");
    snprintf(span->name, sizeof span->name, "%s", shard);
    for (size_t i = 0; i < FTH_COUNT_OF(numbers); i++)
        if (!read_whole(fth_safetensors_metadata(gradient->tensors, numbers[i].name), 0, INT64_MAX, numbers[i].value))
            REFUSE(MALFORMED, "__metadata__ has \"shard\" but no valid \"%s\": a whole number from 0 on, as text",
                   numbers[i].name);
    if (span->to - span->from != gradient->samples)
        REFUSE(MALFORMED, "\"from\" and \"to\" in __metadata__ are %lld samples apart, but \"samples\" is %lld",
               (long long)(span->to - span->from), (long long)gradient->samples);
    return FTH_REFUSAL_NONE;
}

static fth_refusal read_metadata(fth_gradient *gradient, char message[FTH_MAX_REFUSAL])
{
    const char *worker = fth_safetensors_metadata(gradient->tensors, "worker");
    const char *instance = fth_safetensors_metadata(gradient->tensors, "instance");
    const char *loss = fth_safetensors_metadata(gradient->tensors, "loss");
    const char *correct = fth_safetensors_metadata(gradient->tensors, "correct");
    const struct {
        const char *name;
        int64_t least, most, *value;
    } numbers[] = {{"sequence", 1, INT64_MAX, &gradient->sequence},
                   {"version", 0, INT64_MAX, &gradient->version},
                   {"samples", 1, MAX_SAMPLES, &gradient->samples}};

    if (!worker || !fth_worker_name_valid(worker))
        REFUSE(MALFORMED, "__metadata__ has no valid \"worker\": 1 to 64 letters, digits, '.', '_' or '-'");
    snprintf(gradient->worker, sizeof gradient->worker, "%s", worker);
    if (instance && !fth_worker_name_valid(instance))
        REFUSE(MALFORMED, "\"instance\" in __metadata__ is not one that a worker registers with");
    snprintf(gradient->instance, sizeof gradient->instance, "%s", instance ? instance : "");
    for (size_t i = 0; i < FTH_COUNT_OF(numbers); i++)
        if (!read_whole(fth_safetensors_metadata(gradient->tensors, numbers[i].name), numbers[i].least, numbers[i].most,
                        numbers[i].value))
            REFUSE(MALFORMED, "__metadata__ has no valid \"%s\": a whole number from %lld on, as text", numbers[i].name,
                   (long long)numbers[i].least);
    if (loss) {
        char *end = NULL;
        gradient->loss = strtod(loss, &end);
        if (end == loss || *end)
            REFUSE(MALFORMED, "\"loss\" in __metadata__ is not a number");
        if (!isfinite(gradient->loss))
            REFUSE(NOT_FINITE, "\"loss\" in __metadata__ is not finite");
    }
    if (correct && !read_whole(correct, 0, gradient->samples, &gradient->correct))
        REFUSE(MALFORMED, "\"correct\" in __metadata__ is not a number from 0 to samples");
    return read_span(gradient, message);
}

/* ---- tensors ---- */

static bool is_aligned(const fth_tensor_view *view)
{
    return (uintptr_t)view->data % sizeof(float) == 0;
}

static float largest_of(const fth_tensor_view *view)
{
    return fth_numbers_largest(view->data, view->dtype, (size_t)fth_shape_count(&view->shape));
}

static bool is_number_type(fth_dtype dtype)
{
    return dtype == FTH_F32 || dtype == FTH_F16 || dtype == FTH_BF16;
}

/* Whether the indices ascend strictly within the parameter. Read as unsigned, so negative ones are
 * too large. */
static bool indices_good(const fth_tensor_view *view, int64_t count)
{
    const unaligned_u32 *indices = view->data;
    int64_t before = -1;
    for (int64_t i = 0; i < view->shape.dims[0]; i++) {
        if ((int64_t)indices[i] <= before || (int64_t)indices[i] >= count)
            return false;
        before = (int64_t)indices[i];
    }
    return true;
}

static bool ends_in(const char *name, const char *ending, size_t *stem)
{
    size_t length = strlen(name), tail = strlen(ending);
    *stem = length - tail;
    return length > tail && strcmp(name + length - tail, ending) == 0;
}

/* Assigns a tensor of the body to its part of the gradient. */
static fth_refusal place(const fth_layout *layout, const fth_tensor_view *view, fth_gradient *gradient,
                         char message[FTH_MAX_REFUSAL])
{
    size_t stem = 0;
    int index = fth_layout_find(layout, view->name, strlen(view->name));
    if (index >= 0) {
        if (index >= layout->trained && index < layout->parameters)
            REFUSE(NAMES, "%.128s is not trained here, so it takes no gradient", view->name);
        if (gradient->parts[index].values)
            REFUSE(NAMES, "%.128s is there whole and as positions", view->name);
        gradient->parts[index].values = view;
        return FTH_REFUSAL_NONE;
    }
    bool indices = ends_in(view->name, ".indices", &stem);
    if (indices || ends_in(view->name, ".values", &stem))
        index = fth_layout_find(layout, view->name, stem);
    if (index < 0 || index >= layout->trained)
        REFUSE(NAMES, "there is no parameter %.128s", view->name);
    const fth_tensor_view **slot = indices ? &gradient->parts[index].indices : &gradient->parts[index].values;
    if (*slot)
        REFUSE(NAMES, "%.128s is there whole and as positions", layout->tensors[index].name);
    *slot = view;
    return FTH_REFUSAL_NONE;
}

static fth_refusal check_shape(const fth_tensor_view *view, const fth_shape *wanted, char message[FTH_MAX_REFUSAL])
{
    if (fth_shape_equal(&view->shape, wanted))
        return FTH_REFUSAL_NONE;
    char found[FTH_MAX_RANK * 24], expected[FTH_MAX_RANK * 24];
    fth_shape_format(&view->shape, found, sizeof found);
    fth_shape_format(wanted, expected, sizeof expected);
    REFUSE(SHAPE, "%.128s is %.80s instead of %.80s", view->name, found, expected);
}

static void note_largest(fth_gradient *gradient, bool buffer, float largest)
{
    float *to = buffer ? &gradient->largest_buffer : &gradient->largest;
    *to = fmaxf(*to, largest);
}

static fth_refusal check_part(const fth_layout *layout, int index, float seen, fth_gradient *gradient,
                              char message[FTH_MAX_REFUSAL])
{
    const fth_layout_tensor *tensor = &layout->tensors[index];
    const fth_gradient_part *part = &gradient->parts[index];
    bool buffer = index >= layout->parameters, exact = false;
    fth_refusal refusal = FTH_REFUSAL_NONE;
    char name[200];

    if (!part->values)
        REFUSE(NAMES, "%.128s%s is missing", tensor->name, part->indices ? ".values" : "");
    exact = strcmp(part->values->name, tensor->name) == 0;
    if (exact && part->indices)
        REFUSE(NAMES, "%.128s is there whole and as positions", tensor->name);
    if (!exact && !part->indices)
        REFUSE(NAMES, "%.128s.indices is missing", tensor->name);
    if (buffer ? part->values->dtype != FTH_F32 : !is_number_type(part->values->dtype))
        REFUSE(DTYPE, "%.128s is %s; it can be F32%s", part->values->name, fth_dtype_name(part->values->dtype),
               buffer ? "" : ", F16 or BF16");
    if (part->indices) {
        const fth_tensor_view *indices = part->indices;
        snprintf(name, sizeof name, "%.128s", indices->name);
        if (indices->dtype != FTH_I32 && indices->dtype != FTH_U32)
            REFUSE(DTYPE, "%s is %s; it can be I32 or U32", name, fth_dtype_name(indices->dtype));
        if (indices->shape.rank != 1 || indices->shape.dims[0] > tensor->count)
            REFUSE(SHAPE, "%s is not a list of at most %lld positions", name, (long long)tensor->count);
        refusal = check_shape(part->values, &indices->shape, message);
        if (refusal == FTH_REFUSAL_NONE && !indices_good(indices, tensor->count))
            REFUSE(SHAPE, "%s is not strictly ascending below %lld", name, (long long)tensor->count);
    } else {
        refusal = check_shape(part->values, &tensor->shape, message);
    }
    if (refusal != FTH_REFUSAL_NONE)
        return refusal;
    bool known = isfinite(seen) && part->values->dtype == FTH_F32 && is_aligned(part->values);
    float largest = known ? seen : largest_of(part->values);
    if (!isfinite(largest))
        REFUSE(NOT_FINITE, "%.128s has numbers that are not finite", part->values->name);
    note_largest(gradient, buffer, largest);
    return FTH_REFUSAL_NONE;
}

fth_refusal fth_gradient_parse(const fth_layout *layout, const void *body, size_t size_bytes, fth_gradient *gradient,
                               char message[FTH_MAX_REFUSAL])
{
    return fth_gradient_parse_seen(layout, body, size_bytes, INFINITY, gradient, message);
}

fth_refusal fth_gradient_parse_seen(const fth_layout *layout, const void *body, size_t size_bytes, float seen,
                                    fth_gradient *gradient, char message[FTH_MAX_REFUSAL])
{
    if ((uintptr_t)body % sizeof(float) != 0)
        seen = INFINITY;
    *gradient = (fth_gradient){.correct = -1, .loss = NAN, .scale = 1};
    if (fth_safetensors_parse(body, size_bytes, "the body", &gradient->tensors) != FTH_OK)
        REFUSE(MALFORMED, "%.300s", fth_error_message());
    fth_refusal refusal = read_metadata(gradient, message);
    if (refusal != FTH_REFUSAL_NONE)
        return refusal;
    if (fth_allocate((size_t)layout->count + 1, sizeof *gradient->parts, &gradient->parts) != FTH_OK)
        REFUSE(BUSY, "no memory for this gradient");
    for (size_t i = 0; i < fth_safetensors_count(gradient->tensors); i++) {
        refusal = place(layout, fth_safetensors_get(gradient->tensors, i), gradient, message);
        if (refusal != FTH_REFUSAL_NONE)
            return refusal;
    }
    for (int i = layout->parameters; i < layout->count; i++)
        gradient->has_buffers = gradient->has_buffers || gradient->parts[i].values;
    for (int i = 0; i < layout->count; i++) {
        if (i >= layout->trained && (i < layout->parameters || !gradient->has_buffers))
            continue;
        refusal = check_part(layout, i, seen, gradient, message);
        if (refusal != FTH_REFUSAL_NONE)
            return refusal;
    }
    return FTH_REFUSAL_NONE;
}

void fth_gradient_release(fth_gradient *gradient)
{
    fth_safetensors_free(gradient->tensors);
    free(gradient->parts);
    *gradient = (fth_gradient){0};
}

bool fth_gradient_is_plain(const fth_layout *layout, const fth_gradient *gradient)
{
    for (int i = 0; i < layout->trained; i++) {
        const fth_gradient_part *part = &gradient->parts[i];
        if (part->indices || part->values->dtype != FTH_F32 || !is_aligned(part->values))
            return false;
    }
    return true;
}

void fth_gradient_measure(const fth_layout *layout, fth_gradient *gradient)
{
    gradient->largest = gradient->largest_buffer = 0;
    for (int i = 0; i < layout->count; i++)
        if (gradient->parts[i].values)
            note_largest(gradient, i >= layout->parameters, largest_of(gradient->parts[i].values));
}

/* ---- adding ---- */

FTH_VECTORIZED static void scale_into(float *restrict to, const unaligned_float *restrict from, float weight,
                                      size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = weight * from[i];
}

FTH_VECTORIZED static void add_scaled(float *restrict to, const unaligned_float *restrict from, float weight,
                                      size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += weight * from[i];
}

static void add_numbers(const unaligned_float *from, float weight, bool replace, float *to, size_t count)
{
    if (replace && weight == 1)
        memcpy(to, from, count * sizeof *to);
    else if (replace)
        scale_into(to, from, weight, count);
    else
        add_scaled(to, from, weight, count);
}

/* `count` numbers of a view from `begin` on, as f32. */
static const unaligned_float *chunk_of(const fth_tensor_view *view, size_t begin, size_t count, float *chunk)
{
    fth_tensor_view part = *view;
    part.shape = FTH_SHAPE((int64_t)count);
    part.data = (const char *)view->data + begin * fth_dtype_size_bytes(view->dtype);
    if (part.dtype == FTH_F32)
        return part.data;
    FTH_IGNORE(fth_tensor_view_to_f32(&part, chunk, count), "the types of all tensors were checked");
    return chunk;
}

/* Several running sums, so that the loop is vectorized and additions do not wait for each other. */
FTH_VECTORIZED static double sum_of_squares(const unaligned_float *values, size_t count)
{
    double sums[16] = {0}, sum = 0;
    size_t i = 0;
    for (; i + 16 <= count; i += 16)
        for (size_t j = 0; j < 16; j++)
            sums[j] += (double)values[i + j] * (double)values[i + j];
    for (; i < count; i++)
        sum += (double)values[i] * (double)values[i];
    for (size_t j = 0; j < 16; j++)
        sum += sums[j];
    return sum;
}

double fth_gradient_norm(const fth_layout *layout, const fth_gradient *gradient)
{
    float chunk[CHUNK];
    double sum = 0;
    for (int i = 0; i < layout->trained; i++) {
        const fth_tensor_view *view = gradient->parts[i].values;
        size_t count = (size_t)fth_shape_count(&view->shape);
        for (size_t begin = 0; begin < count; begin += CHUNK) {
            size_t length = count - begin < CHUNK ? count - begin : CHUNK;
            sum += sum_of_squares(chunk_of(view, begin, length, chunk), length);
        }
    }
    return sqrt(sum);
}

static void add_part(const fth_gradient_part *part, float weight, bool replace, float *to, size_t count)
{
    float chunk[CHUNK];
    size_t given = (size_t)fth_shape_count(&part->values->shape);
    if (part->indices && replace)
        memset(to, 0, count * sizeof *to);
    for (size_t begin = 0; begin < given; begin += CHUNK) {
        size_t length = given - begin < CHUNK ? given - begin : CHUNK;
        const unaligned_float *values = chunk_of(part->values, begin, length, chunk);
        if (!part->indices) {
            add_numbers(values, weight, replace, to + begin, length);
            continue;
        }
        const unaligned_u32 *indices = (const unaligned_u32 *)part->indices->data + begin;
        for (size_t i = 0; i < length; i++)
            to[indices[i]] += weight * values[i];
    }
}

void fth_gradient_add(const fth_layout *layout, const fth_gradient *gradient, float weight, bool replace, float *to)
{
#pragma omp parallel for schedule(dynamic, 1) if (layout->trained_floats > 1 << 18)
    for (int i = 0; i < layout->trained; i++)
        add_part(&gradient->parts[i], weight, replace, to + layout->tensors[i].vector_offset,
                 (size_t)layout->tensors[i].count);
}

void fth_gradient_add_buffers(const fth_layout *layout, const fth_gradient *gradient, float weight, bool replace,
                              float *to)
{
    for (int i = layout->parameters; gradient->has_buffers && i < layout->count; i++)
        add_part(&gradient->parts[i], weight, replace, to + layout->tensors[i].vector_offset,
                 (size_t)layout->tensors[i].count);
}
