/* See images.h. */
#include "backend/cpu/bf16/images.h"

static void add_tap(axis *a, int64_t offset, int number)
{
    a->dense = a->taps == 0 || (a->dense && offset == a->offset[a->taps - 1] + 1);
    a->offset[a->taps] = (int32_t)offset;
    a->number[a->taps++] = number;
}

images bf16_forward_images(const bf16_product *c)
{
    images m = {.batch = c->batch, .channels = c->channels};
    for (int i = 0; i < 2; i++) {
        axis *a = &m.axes[i];
        *a = (axis){.source = c->in[i],
                    .target = c->out[i],
                    .positions = c->out[i],
                    .step = c->stride[i],
                    .spread = 1,
                    .dense = true};
        for (int k = 0; k < c->kernel[i]; k++)
            add_tap(a, (int64_t)k * c->dilation[i] - c->padding[i], k);
    }
    return m;
}

/* Taps are in descending order so that offsets ascend. */
images bf16_backward_images(const bf16_product *c, const int phase[2])
{
    images m = {.batch = c->batch, .channels = c->outputs};
    for (int i = 0; i < 2; i++) {
        axis *a = &m.axes[i];
        *a = (axis){.source = c->out[i],
                    .target = c->in[i],
                    .positions = larger(0, (c->in[i] - phase[i] + c->stride[i] - 1) / c->stride[i]),
                    .step = 1,
                    .spread = c->stride[i],
                    .begin = phase[i],
                    .dense = true};
        for (int k = c->kernel[i] - 1; k >= 0; k--) {
            const int64_t reach = (int64_t)phase[i] + c->padding[i] - (int64_t)k * c->dilation[i];
            if (reach % c->stride[i] == 0)
                add_tap(a, reach / c->stride[i], k);
        }
    }
    return m;
}

/* Gathers what one row of taps reads: one run per tap, or a single run for all. */
static void gather_taps(const images *m, const uint16_t *line, int64_t column, uint16_t *to)
{
    const axis *x = &m->axes[1];
    const int64_t channels = m->channels;
    if (!x->dense) {
        for (int t = 0; t < x->taps; t++, to += channels) {
            const int64_t at = source_of(x, column, t);
            if (at >= 0)
                copy_numbers(to, line + at * channels, channels);
            else
                zero_numbers(to, channels);
        }
        return;
    }
    const int64_t first = column * x->step + x->offset[0];
    const int64_t begin = smaller(x->taps, larger(0, -first)), end = larger(begin, smaller(x->taps, x->source - first));
    zero_numbers(to, begin * channels);
    copy_numbers(to + begin * channels, line + (first + begin) * channels, (end - begin) * channels);
    zero_numbers(to + end * channels, (x->taps - end) * channels);
}

void bf16_gather(const images *m, const uint16_t *source, int64_t begin, int64_t end, int64_t stride, uint16_t *to)
{
    const axis *y = &m->axes[0], *x = &m->axes[1];
    const int64_t depth = depth_of(m), run = x->taps * m->channels;
    position p = position_of(m, begin);
    for (int64_t r = begin; r < end; r++, to += stride, next_position(m, &p)) {
        for (int t = 0; t < y->taps; t++) {
            const int64_t at = source_of(y, p.at[0], t);
            if (at >= 0)
                gather_taps(m, source + (p.image * y->source + at) * x->source * m->channels, p.at[1], to + t * run);
            else
                zero_numbers(to + t * run, run);
        }
        zero_numbers(to + depth, tiles_of(depth) * DEPTH - depth);
    }
}
