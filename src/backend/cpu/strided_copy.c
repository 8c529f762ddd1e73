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

fth_strides cpu_strides_of(const cpu_format *layout)
{
    fth_strides strides = {.shape = {.rank = layout->ndims}, .blocked_axis = 1, .block = layout->block};
    for (int i = 0; i < layout->ndims; i++) {
        strides.shape.dims[i] = layout->dims[i];
        strides.of_axis[i] = layout->strides[i];
    }
    return strides;
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
                      .filling = part->filling,
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

static void fill(const copy_tile *t, uint32_t filling, char *to)
{
    for (int64_t i = 0; i < t->counts[0]; i++)
        for (int64_t j = 0; j < t->counts[1]; j++) {
            char *g = to + i * t->to[0] + j * t->to[1];
            if (filling == 0)
                memset(g, 0, (size_t)(t->row * t->item));
            for (int64_t k = 0; k < t->row && filling != 0; k++)
                memcpy(g + k * t->item, &filling, (size_t)t->item); /* the low bytes */
        }
}

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
        fill(&tile, p->filling, c->to + g);
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
        if (!state->parts[i].fills)
            step.reads[step.read_count++] = parts[i].from;
    }
    snprintf(step.name, sizeof step.name, "%s:%s", name, fth_vector_level_name(cpu_level_of(plan)->level));
    step.state = state;
    FTH_TRY(fth_plan_add_step(plan, &step));
out:
    return status;
}
