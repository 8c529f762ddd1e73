/* Layouts of values, and the conversions between them. */
#include <string.h>

#include "backend/cuda/step.h"

cuda_type cuda_compute_type(const fth_plan *plan)
{
    switch (fth_plan_get_options(plan).precision) {
    case FTH_PRECISION_BF16: return CUDA_TYPE_BF16;
    case FTH_PRECISION_F16: return CUDA_TYPE_F16;
    default: return CUDA_TYPE_F32;
    }
}

const cuda_layout *cuda_layout_of(const fth_plan *plan, fth_plan_value value)
{
    return fth_plan_layout(plan, value);
}

int64_t cuda_layout_elements(const cuda_layout *l)
{
    const cuda_spreading *s = &l->spread;
    const int64_t each = (int64_t)l->batch * l->channels;
    if (s->how == CUDA_NOT_SPREAD)
        return each * l->h * l->w;
    if (l->is_weight)
        return each * (s->how == CUDA_FOLDED ? s->taps : 1);
    return each * s->out_width * (s->how == CUDA_FOLDED ? s->out_height + s->taps - 1 : s->out_height);
}

fth_status cuda_set_layout(fth_plan *plan, fth_plan_value value, const cuda_layout *layout)
{
    size_t size_bytes = (size_t)cuda_layout_elements(layout) * cuda_type_size(layout->type);
    return fth_plan_set_layout(plan, value, layout, sizeof *layout, size_bytes);
}

/* Equal layouts are made by the same functions, so every field agrees. */
bool cuda_layout_equal(const cuda_layout *a, const cuda_layout *b)
{
    return a->type == b->type && a->nhwc == b->nhwc && a->n == b->n && a->c == b->c && a->h == b->h && a->w == b->w &&
           a->batch == b->batch && a->channels == b->channels && a->spread.how == b->spread.how &&
           a->spread.kernel == b->spread.kernel && a->spread.stride == b->spread.stride &&
           a->spread.padding == b->spread.padding;
}

int cuda_padded_channels(cuda_type type, int channels, bool image)
{
    if (type == CUDA_TYPE_F32)
        return channels;
    if (image && channels <= 4)
        return 4;
    return (int)fth_align_up((size_t)channels, 8);
}

cuda_layout cuda_plain(const fth_shape *shape, cuda_type type)
{
    cuda_layout l = {.type = type, .n = 1, .c = 1, .h = 1, .w = 1};
    switch (shape->rank) {
    case 1: l.c = (int)shape->dims[0]; break;
    case 2:
    case 3:
    case 4:
        l.n = (int)shape->dims[0];
        l.c = (int)shape->dims[1];
        l.h = shape->rank > 2 ? (int)shape->dims[2] : 1;
        l.w = shape->rank > 3 ? (int)shape->dims[3] : 1;
        break;
    default: l.c = (int)fth_shape_count(shape);
    }
    l.batch = l.n;
    l.channels = l.c;
    return l;
}

cuda_layout cuda_channels_last(const fth_shape *shape, cuda_type type, int channels)
{
    cuda_layout l = cuda_plain(shape, type);
    l.channels = channels;
    l.nhwc = channels != l.c || (l.h * l.w > 1 && l.c > 1);
    return l;
}

cuda_layout cuda_standard(const fth_plan *plan, fth_value value)
{
    fth_type type = fth_plan_type(plan, value);
    cuda_type compute = cuda_compute_type(plan);
    if (type.shape.rank != 4)
        return cuda_plain(&type.shape, compute);
    bool image = fth_graph_value(fth_plan_graph(plan), value)->kind == FTH_VALUE_INPUT;
    return cuda_channels_last(&type.shape, compute, cuda_padded_channels(compute, (int)type.shape.dims[1], image));
}

static cuda_view view_of(const cuda_layout *l)
{
    return (cuda_view){
        .type = (int)l->type, .nhwc = l->nhwc, .batch = l->batch, .channels = l->channels, .spread = l->spread};
}

static cudaError_t run_convert(const cuda_call *call)
{
    const cuda_layout *from = &call->convert.from, *to = &call->convert.to;
    return cuda_launch_convert(call->device->launch.stream, call->data[0], view_of(from), call->data[1], view_of(to),
                               from->n, from->c, from->h, from->w);
}

static fth_status add_conversion(fth_plan *plan, fth_plan_value from, fth_plan_value to)
{
    cuda_call call = {.run = run_convert, .values = {from, to}, .value_count = 2, .write_count = 1};
    call.convert.from = *cuda_layout_of(plan, from);
    call.convert.to = *cuda_layout_of(plan, to);
    return cuda_add_call(plan, "convert", &call);
}

fth_status cuda_read_as(fth_plan *plan, fth_plan_value value, const cuda_layout *wanted, fth_plan_value *as)
{
    fth_status status = FTH_OK;
    fth_plan_value copy;
    *as = value;
    if (cuda_layout_equal(cuda_layout_of(plan, value), wanted))
        return FTH_OK;
    for (copy = fth_plan_next_copy(plan, value, FTH_NO_PLAN_VALUE); fth_plan_value_exists(copy);
         copy = fth_plan_next_copy(plan, value, copy)) {
        if (cuda_layout_equal(cuda_layout_of(plan, copy), wanted)) {
            *as = copy;
            return FTH_OK;
        }
    }
    FTH_TRY(fth_plan_add_value(plan, &copy));
    FTH_TRY(cuda_set_layout(plan, copy, wanted));
    FTH_TRY(add_conversion(plan, value, copy));
    fth_plan_note_copy(plan, copy, value);
    *as = copy;
out:
    return status;
}

fth_status cuda_read(fth_plan *plan, fth_value value, fth_plan_value *as)
{
    cuda_layout wanted = cuda_standard(plan, value);
    return cuda_read_as(plan, fth_plan_value_of(plan, value), &wanted, as);
}

fth_status cuda_begin_write(fth_plan *plan, fth_plan_value value, const cuda_layout *layout, fth_plan_value *as)
{
    fth_status status = FTH_OK;
    const cuda_layout *fixed = cuda_layout_of(plan, value);
    *as = value;
    if (!fixed)
        return cuda_set_layout(plan, value, layout);
    if (cuda_layout_equal(fixed, layout))
        return FTH_OK;
    FTH_TRY(fth_plan_add_value(plan, as));
    FTH_TRY(cuda_set_layout(plan, *as, layout));
out:
    return status;
}

fth_status cuda_end_write(fth_plan *plan, fth_plan_value value, fth_plan_value as)
{
    return fth_plan_value_equal(as, value) ? FTH_OK : add_conversion(plan, as, value);
}

fth_status cuda_add_scratch(fth_plan *plan, size_t size_bytes, fth_plan_value *scratch)
{
    fth_status status = FTH_OK;
    const cuda_layout layout = {.type = CUDA_TYPE_U8, .n = 1, .c = 1, .h = 1, .w = 1, .batch = 1, .channels = 1};
    FTH_TRY(fth_plan_add_value(plan, scratch));
    FTH_TRY(fth_plan_set_layout(plan, *scratch, &layout, sizeof layout, size_bytes ? size_bytes : 16));
out:
    return status;
}

fth_status cuda_fix_plain(fth_plan *plan, fth_value value)
{
    if (cuda_layout_of(plan, fth_plan_value_of(plan, value)))
        return FTH_OK;
    fth_type type = fth_plan_type(plan, value);
    cuda_layout plain = cuda_plain(&type.shape, CUDA_TYPE_F32);
    return cuda_set_layout(plan, fth_plan_value_of(plan, value), &plain);
}

cuda_row_origin cuda_row_origin_of(const fth_plan *plan, fth_value value)
{
    const int64_t rows = fth_plan_graph_rows(plan, value);
    return (cuda_row_origin){.per_sample = (uint64_t)fth_rows_per_sample(rows), .per_token = rows == FTH_TOKENS};
}

static int node_count(const fth_plan *plan)
{
    const fth_graph *graph = fth_plan_graph(plan);
    return fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN ? fth_graph_node_count(graph)
                                                             : fth_graph_forward_node_count(graph);
}

const fth_node *cuda_only_reader(const fth_plan *plan, fth_value value)
{
    const fth_graph *graph = fth_plan_graph(plan);
    const fth_node *found = NULL;
    int producer = fth_graph_value(graph, value)->producer;
    if (fth_graph_logits(graph) == value || fth_graph_loss(graph) == value)
        return NULL;
    for (int n = producer + 1; n < node_count(plan); n++) {
        const fth_node *node = fth_graph_node(graph, n);
        for (int i = 0; i < node->input_count; i++) {
            if (node->inputs[i] != value)
                continue;
            if (found)
                return NULL;
            found = node;
        }
    }
    return found;
}
