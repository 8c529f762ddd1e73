/* Copies of strided tensors: a list of loops is cut into tiles, which threads share.
 *
 * A tile has two loops over rows of adjacent items, one of neighbours in the source and one of
 * neighbours in the result, so that whole lines of both are used while they are in the cache. */
#include "backend/cpu/strided_copy.h"

#include <omp.h>
#include <stdlib.h>

/* Loops around tiles, from the outermost; then the tile's two dimensions and its row. */
typedef struct plan_of_copy {
    int rank;
    int64_t sizes[FTH_MAX_COPY_RANK], from[FTH_MAX_COPY_RANK], to[FTH_MAX_COPY_RANK]; /* distances in bytes */
    copy_tile whole;
    int64_t pieces[3]; /* entries of the tile's dimensions, and items of the row, in one tile */
    int64_t tiles;
    int64_t from_begin, to_begin; /* bytes */
    uint32_t filling;
    bool fills;
} plan_of_copy;

typedef struct copies {
    const strided_copy_kernels *kernels;
    int threads, count;
    int64_t tiles, bytes;
    fth_plan_value to_value;
    fth_plan_value *from_values; /* behind the parts */
    const char **from;
    char *to;
    plan_of_copy parts[];
} copies;

bool cpu_get_strides(const cpu_format *layout, fth_strides *strides)
{
    int64_t least = INT64_MAX;
    *strides = (fth_strides){.shape = {.rank = layout->ndims}, .blocked_axis = 1, .block = layout->block};
    for (int i = 0; i < layout->ndims; i++) {
        strides->shape.dims[i] = layout->dims[i];
        strides->of_axis[i] = layout->strides[i];
        least = layout->strides[i] < least ? layout->strides[i] : least;
        if (layout->padded_dims[i] != layout->dims[i] && (i != 1 || layout->block == 1))
            return false;
    }
    if (layout->ndims == 0 || layout->ndims > FTH_MAX_RANK || least == 0)
        return false;
    /* Blocks of channels: the only ones, so that a pixel is a block, and an image as many planes of
     * them as there are blocks. */
    return layout->block == 1 || (layout->ndims > 2 && least == layout->block &&
                                  layout->strides[0] == layout->strides[1] * (layout->padded_dims[1] / layout->block));
}

/* ---- planning ---- */

static int64_t ceiling(int64_t count, int64_t piece)
{
    return (count + piece - 1) / piece;
}

/* Takes a loop out of the list and makes it a dimension of the tile. */
static void take_loop(plan_of_copy *p, int loop, int dimension)
{
    p->whole.counts[dimension] = p->sizes[loop];
    p->whole.from[dimension] = p->from[loop];
    p->whole.to[dimension] = p->to[loop];
    p->rank--;
    for (int i = loop; i < p->rank; i++) {
        p->sizes[i] = p->sizes[i + 1];
        p->from[i] = p->from[i + 1];
        p->to[i] = p->to[i + 1];
    }
}

static int nearest(const plan_of_copy *p, const int64_t *distances)
{
    int best = p->rank - 1;
    for (int i = p->rank - 2; i >= 0; i--)
        best = distances[i] < distances[best] ? i : best;
    return best;
}

static plan_of_copy plan_copy(const cpu_copy_part *part, int64_t item)
{
    const fth_strided_copy *copy = &part->copy;
    plan_of_copy p = {.rank = copy->rank,
                      .whole = {.item = item, .row = 1, .counts = {1, 1}},
                      .from_begin = copy->from_begin * item,
                      .to_begin = copy->to_begin * item,
                      .filling = item == 2 ? (part->filling & 0xffff) * 0x10001u : part->filling,
                      .fills = !fth_plan_value_exists(part->from)};
    for (int i = 0; i < copy->rank; i++) {
        p.sizes[i] = copy->sizes[i];
        p.from[i] = copy->from[i] * item;
        p.to[i] = copy->to[i] * item;
    }
    const int last = p.rank - 1;
    if (p.rank > 0 && p.to[last] == item && p.from[last] == item) {
        p.whole.row = p.sizes[last];
        p.rank--;
    }
    if (p.rank > 0) /* what is adjacent in the result, unless that is the row */
        take_loop(&p, nearest(&p, p.to), 1);
    if (p.rank > 0)
        take_loop(&p, nearest(&p, p.from), 0);
    const int64_t most = COPY_TILE_BYTES / item;
    if (p.whole.row * p.whole.counts[0] * p.whole.counts[1] == 0)
        return p; /* nothing to fill */
    p.pieces[2] = p.whole.row < most ? p.whole.row : most;
    p.pieces[0] = p.whole.counts[0] < COPY_TILE_ROWS ? p.whole.counts[0] : COPY_TILE_ROWS;
    if (p.pieces[0] > most / p.pieces[2])
        p.pieces[0] = most / p.pieces[2];
    p.pieces[1] = most / (p.pieces[2] * p.pieces[0]);
    p.tiles = ceiling(p.whole.counts[0], p.pieces[0]) * ceiling(p.whole.counts[1], p.pieces[1]) *
              ceiling(p.whole.row, p.pieces[2]);
    for (int i = 0; i < p.rank; i++)
        p.tiles *= p.sizes[i];
    return p;
}

/* ---- running ---- */

static int64_t next_digit(int64_t *number, int64_t base)
{
    const int64_t digit = *number % base;
    *number /= base;
    return digit;
}

static int64_t part_of(int64_t count, int64_t piece, int64_t at)
{
    return count - at * piece < piece ? count - at * piece : piece;
}

static void copy_tile_number(const copies *c, const plan_of_copy *p, const char *from, int64_t number)
{
    copy_tile tile = p->whole;
    int64_t at[3], f = p->from_begin, g = p->to_begin;
    at[2] = next_digit(&number, ceiling(p->whole.row, p->pieces[2]));
    at[1] = next_digit(&number, ceiling(p->whole.counts[1], p->pieces[1]));
    at[0] = next_digit(&number, ceiling(p->whole.counts[0], p->pieces[0]));
    for (int i = 0; i < 2; i++) {
        tile.counts[i] = part_of(p->whole.counts[i], p->pieces[i], at[i]);
        f += at[i] * p->pieces[i] * tile.from[i];
        g += at[i] * p->pieces[i] * tile.to[i];
    }
    tile.row = part_of(p->whole.row, p->pieces[2], at[2]);
    f += at[2] * p->pieces[2] * tile.item;
    g += at[2] * p->pieces[2] * tile.item;
    for (int i = p->rank - 1; i >= 0; i--) {
        const int64_t digit = next_digit(&number, p->sizes[i]);
        f += digit * p->from[i];
        g += digit * p->to[i];
    }
    if (p->fills)
        c->kernels->fill(&tile, p->filling, c->to + g);
    else
        c->kernels->copy(&tile, from + f, c->to + g);
}

/* The tiles of all parts, one after the other; each thread has a range of them. */
static fth_status run_copies(void *state, const fth_run *run)
{
    (void)run;
    enum { SMALL = 1 << 16 };
    const copies *c = state;
    const int threads = c->bytes < SMALL ? 1 : c->threads;
#pragma omp parallel for num_threads(threads) schedule(static, 1) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        const int64_t begin = c->tiles * t / threads, end = c->tiles * (t + 1) / threads;
        int64_t first = 0;
        for (int i = 0; i < c->count && first < end; i++) {
            const plan_of_copy *p = &c->parts[i];
            for (int64_t n = begin > first ? begin - first : 0; n < p->tiles && n < end - first; n++)
                copy_tile_number(c, p, c->from[i], n);
            first += p->tiles;
        }
    }
    return FTH_OK;
}

static fth_status bind_copies(void *state, const fth_plan *plan)
{
    copies *c = state;
    c->to = fth_plan_data(plan, c->to_value);
    for (int i = 0; i < c->count; i++)
        c->from[i] = c->parts[i].fills ? NULL : fth_plan_data(plan, c->from_values[i]);
    return FTH_OK;
}

fth_status cpu_add_copies(fth_plan *plan, const char *name, const cpu_copy_part *parts, int count, fth_plan_value to)
{
    fth_status status = FTH_OK;
    copies *state = NULL;
    fth_step step = {.bind = bind_copies, .run = run_copies, .writes = {to}, .write_count = 1};
    const size_t parts_bytes = (size_t)count * sizeof *state->parts, each = sizeof(char *) + sizeof(fth_plan_value);
    const int64_t item = cpu_layout(plan, to)->data_type == dnnl_bf16 ? 2 : 4;

    FTH_TRY(fth_allocate(1, sizeof *state + parts_bytes + (size_t)count * each, &state));
    state->from = (const char **)(void *)&state->parts[count];
    state->from_values = (fth_plan_value *)(void *)(state->from + count);
    state->kernels = cpu_level_of(plan)->strided_copy;
    state->threads = fth_plan_threads(plan);
    state->count = count;
    state->to_value = to;
    state->bytes = (int64_t)cpu_format_size(cpu_layout(plan, to));
    for (int i = 0; i < count; i++) {
        state->parts[i] = plan_copy(&parts[i], item);
        state->tiles += state->parts[i].tiles;
        state->from_values[i] = parts[i].from;
        if (!state->parts[i].fills && (i == 0 || !fth_plan_value_equal(parts[i - 1].from, parts[i].from)))
            step.reads[step.read_count++] = parts[i].from;
    }
    snprintf(step.name, sizeof step.name, "%s:%s", name, fth_vector_level_name(cpu_level_of(plan)->level));
    step.state = state;
    FTH_TRY(fth_plan_add_step(plan, &step));
out:
    return status;
}

/* ---- parts ---- */

static bool make_part(const fth_box *box, const fth_strides *from, const fth_strides *to, fth_plan_value source,
                      cpu_copy_part *part)
{
    *part = (cpu_copy_part){.from = source};
    return fth_strided_copy_make(box, from, to, &part->copy);
}

/* Where the result has the axis that is in blocks; -1: none is, or another axis is copied in
 * part. */
static int axis_to_divide(const fth_box *box, const fth_strides *from, const fth_strides *to)
{
    int axis = to->block > 1 ? 1 : -1;
    for (int i = 0; i < to->shape.rank && from->block > 1; i++)
        axis = box->axes[i] == 1 ? i : axis;
    return box->axis >= 0 && box->axis != axis ? -1 : axis;
}

bool cpu_make_parts(const fth_box *box, const fth_strides *from, const fth_strides *to, fth_plan_value source,
                    cpu_copy_part parts[2], int *count)
{
    const int axis = axis_to_divide(box, from, to);
    const int64_t block = from->block > to->block ? from->block : to->block;
    fth_box whole = *box, rest;

    *count = 1;
    if (make_part(box, from, to, source, &parts[0]))
        return true;
    if (axis < 0)
        return false;
    if (box->axis < 0) {
        whole.axis = axis;
        whole.count = to->shape.dims[axis];
        whole.from_begin = whole.to_begin = 0;
        whole.from_step = whole.to_step = 1;
    }
    rest = whole;
    rest.count = whole.count % block;
    whole.count -= rest.count;
    rest.from_begin += whole.count;
    rest.to_begin += whole.count;
    *count = 2;
    return rest.count > 0 && whole.count > 0 && whole.from_step == 1 && whole.to_step == 1 &&
           make_part(&whole, from, to, source, &parts[0]) && make_part(&rest, from, to, source, &parts[1]);
}

/* ---- reorders ---- */

static fth_box everything(void)
{
    fth_box box = {.axis = -1};
    for (int i = 0; i < FTH_MAX_RANK; i++)
        box.axes[i] = i;
    return box;
}

/* The channels that only a layout has, which are 0. */
static bool make_channel_padding(const fth_strides *to, cpu_copy_part *part)
{
    const int64_t channels = to->shape.rank > 1 ? to->shape.dims[1] : 0, over = channels % to->block;
    fth_box box = everything();
    box.axis = 1;
    box.count = over > 0 ? to->block - over : 0;
    box.to_begin = channels;
    box.to_step = box.from_step = 1;
    *part = (cpu_copy_part){.from = FTH_NO_PLAN_VALUE};
    return fth_strided_copy_make(&box, to, to, &part->copy) && box.count > 0;
}

static bool make_reorder(const cpu_format *from, const cpu_format *to, fth_plan_value source, cpu_copy_part parts[3],
                         int *count)
{
    const fth_box box = everything();
    fth_strides in, out;
    if (!cpu_get_strides(from, &in) || !cpu_get_strides(to, &out) || from->data_type != to->data_type ||
        from->data_type == dnnl_u8 || !fth_shape_equal(&in.shape, &out.shape) ||
        !cpu_make_parts(&box, &in, &out, source, parts, count))
        return false;
    *count += make_channel_padding(&out, &parts[*count]);
    return true;
}

/* In f32 oneDNN is as fast between plain images and whole blocks of channels (in bf16 it takes 8
 * times a memcpy(), ours 2.5), and where it fills up blocks from a channels-last image. Its other
 * reorders of blocks that are not whole took 5 to 8 times a memcpy() (ours 2 to 3), those to and
 * from channels-last images 3.5 times (ours 2). */
static bool is_whole(const cpu_format *blocked)
{
    return blocked->block > 1 && blocked->dims[1] % blocked->block == 0;
}

static bool is_known_fast(const cpu_format *from, const cpu_format *to)
{
    const bool from_last = from->block == 1 && from->strides[1] == 1;
    return from->data_type == dnnl_f32 &&
           ((is_whole(to) && cpu_is_plain(from)) || (is_whole(from) && cpu_is_plain(to)) ||
            (from_last && to->block > 1 && !is_whole(to)));
}

bool cpu_can_reorder(const cpu_format *from, const cpu_format *to)
{
    cpu_copy_part parts[3];
    int count;
    return from->ndims == 4 && !is_known_fast(from, to) && make_reorder(from, to, FTH_NO_PLAN_VALUE, parts, &count);
}

fth_status cpu_add_reorder(fth_plan *plan, fth_plan_value from, fth_plan_value to)
{
    cpu_copy_part parts[3];
    int count;
    if (!make_reorder(cpu_layout(plan, from), cpu_layout(plan, to), from, parts, &count))
        return fth_fail(FTH_INVALID, "these layouts cannot be copied into each other");
    return cpu_add_copies(plan, "reorder", parts, count, to);
}
