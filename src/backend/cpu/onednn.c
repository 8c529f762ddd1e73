/* See onednn.h. Under each #if, the same function is written for one major version. */
#include "backend/cpu/onednn.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

fth_status cpu_status(dnnl_status_t status, const char *what)
{
    switch (status) {
    case dnnl_success: return FTH_OK;
    case dnnl_out_of_memory: return fth_fail(FTH_NO_MEMORY, "oneDNN ran out of memory in %.200s", what);
    case dnnl_unimplemented: return fth_fail(FTH_UNSUPPORTED, "oneDNN does not support this on this CPU: %.200s", what);
    default: return fth_fail(FTH_INVALID, "oneDNN status %d from %.200s", (int)status, what);
    }
}

/* ---- formats ---- */

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t native_format;

static bool make_native(int ndims, const dnnl_dims_t dims, dnnl_data_type_t dtype, dnnl_format_tag_t tag,
                        native_format *native)
{
    dnnl_memory_desc_t made = NULL;
    bool good = dnnl_memory_desc_create_with_tag(&made, ndims, dims, dtype, tag) == dnnl_success;
    *native = made;
    return good;
}

static bool make_native_window(native_format whole, const dnnl_dims_t dims, const dnnl_dims_t offsets,
                               native_format *native)
{
    dnnl_memory_desc_t made = NULL;
    bool good = dnnl_memory_desc_create_submemory(&made, whole, dims, offsets) == dnnl_success;
    *native = made;
    return good;
}

static native_format copy_native(native_format native)
{
    dnnl_memory_desc_t made = NULL;
    return dnnl_memory_desc_clone(&made, native) == dnnl_success ? made : NULL;
}

static void free_native(native_format native)
{
    dnnl_memory_desc_destroy((dnnl_memory_desc_t)native);
}

static void copy_queried(native_format native, dnnl_query_t what, int count, dnnl_dims_t to)
{
    const dnnl_dims_t *from = NULL;
    if (dnnl_memory_desc_query(native, what, &from) == dnnl_success && from)
        memcpy(to, *from, (size_t)count * sizeof to[0]);
}

static cpu_format read_native(native_format native)
{
    cpu_format format = {.native = native, .block = 1};
    dnnl_format_kind_t kind = dnnl_format_kind_undef;
    int blocks = 0;
    dnnl_memory_desc_query(native, dnnl_query_ndims_s32, &format.ndims);
    dnnl_memory_desc_query(native, dnnl_query_data_type, &format.data_type);
    dnnl_memory_desc_query(native, dnnl_query_format_kind, &kind);
    copy_queried(native, dnnl_query_dims, format.ndims, format.dims);
    copy_queried(native, dnnl_query_padded_dims, format.ndims, format.padded_dims);
    if (kind == dnnl_blocked) {
        copy_queried(native, dnnl_query_strides, format.ndims, format.strides);
        if (dnnl_memory_desc_query(native, dnnl_query_inner_nblks_s32, &blocks) == dnnl_success && blocks > 0) {
            dnnl_dims_t sizes = {0};
            copy_queried(native, dnnl_query_inner_blks, blocks, sizes);
            format.block = sizes[0];
        }
    }
    return format;
}

#else
typedef const dnnl_memory_desc_t *native_format;

static native_format copy_native(native_format native)
{
    dnnl_memory_desc_t *made = malloc(sizeof *made);
    if (made)
        *made = *native;
    return made;
}

static bool make_native(int ndims, const dnnl_dims_t dims, dnnl_data_type_t dtype, dnnl_format_tag_t tag,
                        native_format *native)
{
    dnnl_memory_desc_t made;
    bool good = dnnl_memory_desc_init_by_tag(&made, ndims, dims, dtype, tag) == dnnl_success;
    *native = good ? copy_native(&made) : NULL;
    return *native;
}

static bool make_native_window(native_format whole, const dnnl_dims_t dims, const dnnl_dims_t offsets,
                               native_format *native)
{
    dnnl_memory_desc_t made;
    bool good = dnnl_memory_desc_init_submemory(&made, whole, dims, offsets) == dnnl_success;
    *native = good ? copy_native(&made) : NULL;
    return *native;
}

static void free_native(native_format native)
{
    free((void *)native);
}

static cpu_format read_native(native_format native)
{
    cpu_format format = {.ndims = native->ndims, .data_type = native->data_type, .block = 1, .native = native};
    memcpy(format.dims, native->dims, sizeof format.dims);
    memcpy(format.padded_dims, native->padded_dims, sizeof format.padded_dims);
    if (native->format_kind == dnnl_blocked) {
        memcpy(format.strides, native->format_desc.blocking.strides, sizeof format.strides);
        if (native->format_desc.blocking.inner_nblks > 0)
            format.block = native->format_desc.blocking.inner_blks[0];
    }
    return format;
}

#endif

/* Every format in use, kept for good so that no caller has to free one. */
static struct {
    pthread_mutex_t mutex;
    native_format *items; /* guarded by mutex */
    size_t count, capacity;
} known = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* The known format equal to `native`, or NULL. Call with the mutex held. */
static native_format find_known(native_format native)
{
    for (size_t i = known.count; i > 0; i--)
        if (dnnl_memory_desc_equal(known.items[i - 1], native))
            return known.items[i - 1];
    return NULL;
}

/* Takes `native` and returns the known format equal to it; NULL: out of memory. */
static native_format keep(native_format native)
{
    pthread_mutex_lock(&known.mutex);
    native_format found = find_known(native);
    if (!found && known.count == known.capacity) {
        size_t capacity = known.capacity ? known.capacity * 2 : 64;
        native_format *items = realloc(known.items, capacity * sizeof *items);
        if (items) {
            known.items = items;
            known.capacity = capacity;
        }
    }
    if (!found && known.count < known.capacity) {
        known.items[known.count++] = native;
        found = native;
        native = NULL;
    }
    pthread_mutex_unlock(&known.mutex);
    if (native)
        free_native(native);
    return found;
}

static bool make_format(bool made, native_format native, cpu_format *format)
{
    native_format kept = made ? keep(native) : NULL;
    if (kept)
        *format = read_native(kept);
    return kept;
}

bool cpu_format_make(int ndims, const dnnl_dims_t dims, dnnl_data_type_t dtype, dnnl_format_tag_t tag,
                     cpu_format *format)
{
    native_format native;
    bool made = make_native(ndims, dims, dtype, tag, &native);
    return make_format(made, native, format);
}

bool cpu_format_window(const cpu_format *whole, const dnnl_dims_t dims, const dnnl_dims_t offsets, cpu_format *window)
{
    native_format native;
    bool made = make_native_window(whole->native, dims, offsets, &native);
    return make_format(made, native, window);
}

bool cpu_format_equal(const cpu_format *a, const cpu_format *b)
{
    return a->native == b->native;
}

size_t cpu_format_size(const cpu_format *format)
{
    return dnnl_memory_desc_get_size(format->native);
}

cpu_format cpu_query(const_dnnl_primitive_desc_t descriptor, dnnl_query_t what)
{
    cpu_format format = {0};
    native_format chosen = dnnl_primitive_desc_query_md(descriptor, what, 0),
                  copy = chosen ? copy_native(chosen) : NULL;
    bool made = make_format(copy, copy, &format);
    assert(made);
    (void)made;
    return format;
}

size_t cpu_scratchpad_size(const_dnnl_primitive_desc_t descriptor, cpu_format *format)
{
    native_format wanted = dnnl_primitive_desc_query_md(descriptor, dnnl_query_scratchpad_md, 0);
    size_t size = wanted ? dnnl_memory_desc_get_size(wanted) : 0;
    if (size > 0)
        *format = cpu_query(descriptor, dnnl_query_scratchpad_md);
    return size;
}

fth_status cpu_make_memory(const cpu_format *format, dnnl_engine_t engine, dnnl_memory_t *memory)
{
    return cpu_status(dnnl_memory_create(memory, format->native, engine, DNNL_MEMORY_NONE), "dnnl_memory_create");
}

/* ---- descriptors of primitives ---- */

/* The attributes of every primitive: scratch memory comes from the caller. */
static fth_status make_attributes(dnnl_primitive_attr_t *attributes)
{
    fth_status status = FTH_OK;
    CPU_TRY(dnnl_primitive_attr_create(attributes));
    CPU_TRY(dnnl_primitive_attr_set_scratchpad_mode(*attributes, dnnl_scratchpad_mode_user));
out:
    return status;
}

static void free_attributes(dnnl_primitive_attr_t attributes)
{
    if (attributes)
        dnnl_primitive_attr_destroy(attributes);
}

void cpu_free_descriptor(dnnl_primitive_desc_t descriptor)
{
    if (descriptor)
        dnnl_primitive_desc_destroy(descriptor);
}

static dnnl_prop_kind_t forward_kind(bool training)
{
    return training ? dnnl_forward_training : dnnl_forward_inference;
}

/* What is needed to describe a primitive: attributes, and for a backward pass the forward one as a
 * hint. */
typedef struct describe_context {
    dnnl_engine_t engine;
    dnnl_primitive_attr_t attributes;
    const_dnnl_primitive_desc_t hint;
} describe_context;

#if DNNL_VERSION_MAJOR < 3
static dnnl_status_t create(const describe_context *d, const_dnnl_op_desc_t description,
                            dnnl_primitive_desc_t *descriptor)
{
    return dnnl_primitive_desc_create(descriptor, description, d->attributes, d->engine, d->hint);
}
#endif

static dnnl_status_t describe_convolution(const describe_context *d, const void *what, cpu_pass pass,
                                          dnnl_primitive_desc_t *descriptor)
{
    const cpu_convolution_description *c = what;
    native_format bias = c->has_bias ? c->bias.native : NULL;
#if DNNL_VERSION_MAJOR >= 3
    switch (pass) {
    case CPU_FORWARD:
        return dnnl_convolution_forward_primitive_desc_create(
            descriptor, d->engine, forward_kind(c->training), dnnl_convolution_direct, c->x.native, c->weight.native,
            bias, c->y.native, c->strides, c->dilates, c->padding_begin, c->padding_end, d->attributes);
    case CPU_GRAD_INPUT:
        return dnnl_convolution_backward_data_primitive_desc_create(
            descriptor, d->engine, dnnl_convolution_direct, c->x.native, c->weight.native, c->y.native, c->strides,
            c->dilates, c->padding_begin, c->padding_end, d->hint, d->attributes);
    default:
        return dnnl_convolution_backward_weights_primitive_desc_create(
            descriptor, d->engine, dnnl_convolution_direct, c->x.native, c->weight_gradient.native, bias, c->y.native,
            c->strides, c->dilates, c->padding_begin, c->padding_end, d->hint, d->attributes);
    }
#else
    dnnl_convolution_desc_t description;
    dnnl_status_t status = dnnl_success;
    switch (pass) {
    case CPU_FORWARD:
        status = dnnl_dilated_convolution_forward_desc_init(
            &description, forward_kind(c->training), dnnl_convolution_direct, c->x.native, c->weight.native, bias,
            c->y.native, c->strides, c->dilates, c->padding_begin, c->padding_end);
        break;
    case CPU_GRAD_INPUT:
        status = dnnl_dilated_convolution_backward_data_desc_init(&description, dnnl_convolution_direct, c->x.native,
                                                                  c->weight.native, c->y.native, c->strides, c->dilates,
                                                                  c->padding_begin, c->padding_end);
        break;
    case CPU_GRAD_WEIGHTS:
        status = dnnl_dilated_convolution_backward_weights_desc_init(
            &description, dnnl_convolution_direct, c->x.native, c->weight_gradient.native, bias, c->y.native,
            c->strides, c->dilates, c->padding_begin, c->padding_end);
        break;
    }
    return status == dnnl_success ? create(d, &description, descriptor) : status;
#endif
}

static dnnl_status_t describe_linear(const describe_context *d, const void *what, cpu_pass pass,
                                     dnnl_primitive_desc_t *descriptor)
{
    const cpu_linear_description *l = what;
    native_format bias = l->has_bias ? l->bias.native : NULL;
#if DNNL_VERSION_MAJOR >= 3
    switch (pass) {
    case CPU_FORWARD:
        return dnnl_inner_product_forward_primitive_desc_create(descriptor, d->engine, forward_kind(l->training),
                                                                l->x.native, l->weight.native, bias, l->y.native,
                                                                d->attributes);
    case CPU_GRAD_INPUT:
        return dnnl_inner_product_backward_data_primitive_desc_create(
            descriptor, d->engine, l->x.native, l->weight.native, l->y.native, d->hint, d->attributes);
    default:
        return dnnl_inner_product_backward_weights_primitive_desc_create(
            descriptor, d->engine, l->x.native, l->weight_gradient.native, bias, l->y.native, d->hint, d->attributes);
    }
#else
    dnnl_inner_product_desc_t description;
    dnnl_status_t status = dnnl_success;
    switch (pass) {
    case CPU_FORWARD:
        status = dnnl_inner_product_forward_desc_init(&description, forward_kind(l->training), l->x.native,
                                                      l->weight.native, bias, l->y.native);
        break;
    case CPU_GRAD_INPUT:
        status = dnnl_inner_product_backward_data_desc_init(&description, l->x.native, l->weight.native, l->y.native);
        break;
    case CPU_GRAD_WEIGHTS:
        status = dnnl_inner_product_backward_weights_desc_init(&description, l->x.native, l->weight_gradient.native,
                                                               bias, l->y.native);
        break;
    }
    return status == dnnl_success ? create(d, &description, descriptor) : status;
#endif
}

static dnnl_status_t describe_pool(const describe_context *d, const void *what, cpu_pass pass,
                                   dnnl_primitive_desc_t *descriptor)
{
    const cpu_pool_description *p = what;
#if DNNL_VERSION_MAJOR >= 3
    const dnnl_dims_t dilation = {0};
    if (pass != CPU_FORWARD)
        return dnnl_pooling_backward_primitive_desc_create(descriptor, d->engine, p->algorithm, p->x.native,
                                                           p->y.native, p->strides, p->kernel, dilation,
                                                           p->padding_begin, p->padding_end, d->hint, d->attributes);
    return dnnl_pooling_forward_primitive_desc_create(descriptor, d->engine, forward_kind(p->training), p->algorithm,
                                                      p->x.native, p->y.native, p->strides, p->kernel, dilation,
                                                      p->padding_begin, p->padding_end, d->attributes);
#else
    dnnl_pooling_desc_t description;
    dnnl_status_t status =
        pass != CPU_FORWARD
            ? dnnl_pooling_backward_desc_init(&description, p->algorithm, p->x.native, p->y.native, p->strides,
                                              p->kernel, p->padding_begin, p->padding_end)
            : dnnl_pooling_forward_desc_init(&description, forward_kind(p->training), p->algorithm, p->x.native,
                                             p->y.native, p->strides, p->kernel, p->padding_begin, p->padding_end);
    return status == dnnl_success ? create(d, &description, descriptor) : status;
#endif
}

/* Describes one pass of a primitive. */
static fth_status describe(dnnl_engine_t engine,
                           dnnl_status_t (*by)(const describe_context *d, const void *what, cpu_pass pass,
                                               dnnl_primitive_desc_t *descriptor),
                           const void *what, cpu_pass pass, dnnl_primitive_desc_t *descriptor)
{
    fth_status status = FTH_OK;
    describe_context d = {.engine = engine};
    dnnl_primitive_desc_t forward = NULL;
    FTH_TRY(make_attributes(&d.attributes));
    CPU_TRY(by(&d, what, CPU_FORWARD, &forward));
    if (pass == CPU_FORWARD) {
        *descriptor = forward;
        forward = NULL;
        goto out;
    }
    d.hint = forward;
    CPU_TRY(by(&d, what, pass, descriptor));
out:
    cpu_free_descriptor(forward);
    free_attributes(d.attributes);
    return status;
}

fth_status cpu_describe_convolution(dnnl_engine_t engine, const cpu_convolution_description *description, cpu_pass pass,
                                    dnnl_primitive_desc_t *descriptor)
{
    return describe(engine, describe_convolution, description, pass, descriptor);
}

fth_status cpu_describe_linear(dnnl_engine_t engine, const cpu_linear_description *description, cpu_pass pass,
                               dnnl_primitive_desc_t *descriptor)
{
    return describe(engine, describe_linear, description, pass, descriptor);
}

fth_status cpu_describe_pool(dnnl_engine_t engine, const cpu_pool_description *description, cpu_pass pass,
                             dnnl_primitive_desc_t *descriptor)
{
    return describe(engine, describe_pool, description, pass, descriptor);
}

fth_status cpu_describe_matrix_product(dnnl_engine_t engine, const cpu_format *a, const cpu_format *b,
                                       const cpu_format *y, dnnl_primitive_desc_t *descriptor)
{
    fth_status status = FTH_OK;
    describe_context d = {.engine = engine};
    FTH_TRY(make_attributes(&d.attributes));
#if DNNL_VERSION_MAJOR >= 3
    CPU_TRY(dnnl_matmul_primitive_desc_create(descriptor, engine, a->native, b->native, NULL, y->native, d.attributes));
#else
    dnnl_matmul_desc_t description;
    CPU_TRY(dnnl_matmul_desc_init(&description, a->native, b->native, NULL, y->native));
    CPU_TRY(create(&d, &description, descriptor));
#endif
out:
    free_attributes(d.attributes);
    return status;
}

fth_status cpu_describe_reorder(dnnl_engine_t engine, const cpu_format *from, const cpu_format *to,
                                dnnl_primitive_desc_t *descriptor)
{
    fth_status status = FTH_OK;
    dnnl_primitive_attr_t attributes = NULL;
    FTH_TRY(make_attributes(&attributes));
    CPU_TRY(dnnl_reorder_primitive_desc_create(descriptor, from->native, engine, to->native, engine, attributes));
out:
    free_attributes(attributes);
    return status;
}

fth_status cpu_describe_concat(dnnl_engine_t engine, const cpu_format *parts, int count, int dimension,
                               const cpu_format *whole, dnnl_primitive_desc_t *descriptor)
{
    fth_status status = FTH_OK;
    dnnl_primitive_attr_t attributes = NULL;
    assert(count <= CPU_MOST_PARTS);
#if DNNL_VERSION_MAJOR >= 3
    const_dnnl_memory_desc_t natives[CPU_MOST_PARTS];
    for (int i = 0; i < count; i++)
        natives[i] = parts[i].native;
#else
    dnnl_memory_desc_t natives[CPU_MOST_PARTS];
    for (int i = 0; i < count; i++)
        natives[i] = *parts[i].native;
#endif
    FTH_TRY(make_attributes(&attributes));
#if DNNL_VERSION_MAJOR >= 3
    CPU_TRY(
        dnnl_concat_primitive_desc_create(descriptor, engine, whole->native, count, dimension, natives, attributes));
#else
    CPU_TRY(
        dnnl_concat_primitive_desc_create(descriptor, whole->native, count, dimension, natives, attributes, engine));
#endif
out:
    free_attributes(attributes);
    return status;
}
