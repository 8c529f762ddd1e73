/* How exact our Winograd convolutions are: at each level that the processor has, all three passes against f64 must be at most three
 * times as far off as a direct convolution in f32, which adds one product after the other. So it is at every size for which the
 * level chooses them (cpu_winograd_pays()); tested are those where it is hardest: the fewest tiles, channels and outputs. */
#include "support.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "backend/cpu/level.h"
#include "backend/cpu/winograd.h"

typedef struct sizes {
    int64_t batch, channels, outputs, height, width, padding;
} sizes;

/* Maps that tiles of 4×4 cover, and others; all numbers of channels, on the side that a pass sums over; the fewest tiles of each level,
 * and of any (16). */
static const sizes every_size[] = {
    {1, 16, 32, 16, 16, 1},  {4, 16, 32, 7, 7, 1},   {4, 32, 16, 8, 8, 1},  {3, 32, 64, 10, 13, 0},
    {4, 64, 32, 8, 8, 1},    {4, 128, 16, 7, 9, 1},  {4, 16, 128, 8, 8, 1}, {4, 16, 512, 8, 8, 1},
    {4, 16, 256, 10, 10, 0}, {16, 64, 64, 4, 4, 1},  {32, 64, 64, 4, 4, 1}, {16, 64, 128, 4, 4, 1},
    {4, 512, 16, 7, 7, 1},   {4, 16, 32, 16, 16, 1},
};

/* The numbers of a convolution in plain order (batch, planes, height, width). */
typedef struct convolution {
    sizes s;
    int64_t out_height, out_width;
    float *x, *weight, *dy;
} convolution;

static uint64_t random_state = 1;

/* Of a normal distribution, nearly. */
static float random_number(void)
{
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(random_state >> 40) / (double)(1 << 24);
    }
    return (float)(sum - 6);
}

static float *allocate(int64_t count)
{
    float *values = calloc((size_t)count, sizeof *values);
    assert_non_null(values);
    return values;
}

/* Inputs as behind a ReLU, weights as He draws them, and small gradients. */
static convolution make(const sizes *s)
{
    convolution c = {.s = *s, .out_height = s->height + 2 * s->padding - 2, .out_width = s->width + 2 * s->padding - 2};
    const int64_t inputs = s->batch * s->channels * s->height * s->width;
    const int64_t weights = s->outputs * s->channels * 9;
    const int64_t gradients = s->batch * s->outputs * c.out_height * c.out_width;
    c.x = allocate(inputs);
    c.weight = allocate(weights);
    c.dy = allocate(gradients);
    for (int64_t i = 0; i < inputs; i++)
        c.x[i] = fmaxf(random_number(), 0);
    for (int64_t i = 0; i < weights; i++)
        c.weight[i] = random_number() * sqrtf(2 / (9 * (float)s->channels));
    for (int64_t i = 0; i < gradients; i++)
        c.dy[i] = 1e-5F * random_number();
    return c;
}

static void release(convolution *c)
{
    free(c->x);
    free(c->weight);
    free(c->dy);
}

/* ---- direct convolutions, of type `real` ---- */

/* Calls body with the indices of each product x[in] * weight[at] that y[out] is the sum of. */
#define EACH_PRODUCT(c, body)                                                                                          \
    for (int64_t b = 0; b < (c)->s.batch; b++)                                                                         \
        for (int64_t o = 0; o < (c)->s.outputs; o++)                                                                   \
            for (int64_t k = 0; k < (c)->s.channels; k++)                                                              \
                for (int64_t tap = 0; tap < 9; tap++) {                                                                \
                    const int64_t at = (o * (c)->s.channels + k) * 9 + tap;                                            \
                    for (int64_t i = 0; i < (c)->out_height; i++) {                                                    \
                        const int64_t row = i + tap / 3 - (c)->s.padding;                                              \
                        if (row < 0 || row >= (c)->s.height)                                                           \
                            continue;                                                                                  \
                        for (int64_t j = 0; j < (c)->out_width; j++) {                                                 \
                            const int64_t column = j + tap % 3 - (c)->s.padding;                                       \
                            if (column < 0 || column >= (c)->s.width)                                                  \
                                continue;                                                                              \
                            const int64_t in =                                                                         \
                                ((b * (c)->s.channels + k) * (c)->s.height + row) * (c)->s.width + column;             \
                            const int64_t out = ((b * (c)->s.outputs + o) * (c)->out_height + i) * (c)->out_width + j; \
                            body;                                                                                      \
                        }                                                                                              \
                    }                                                                                                  \
                }

typedef enum pass { FORWARD, GRAD_INPUT, GRAD_WEIGHTS, PASSES } pass;

static const char *const pass_names[] = {"forward", "grad_input", "grad_weights"};

static int64_t result_count(const convolution *c, pass p)
{
    const sizes *s = &c->s;
    return p == FORWARD      ? s->batch * s->outputs * c->out_height * c->out_width
           : p == GRAD_INPUT ? s->batch * s->channels * s->height * s->width
                             : s->outputs * s->channels * 9;
}

static void compute_exactly(const convolution *c, pass p, double *result)
{
    switch (p) {
    case FORWARD: EACH_PRODUCT(c, result[out] += (double)c->x[in] * c->weight[at]); break;
    case GRAD_INPUT: EACH_PRODUCT(c, result[in] += (double)c->dy[out] * c->weight[at]); break;
    default: EACH_PRODUCT(c, result[at] += (double)c->x[in] * c->dy[out]); break;
    }
}

static void compute_directly(const convolution *c, pass p, float *result)
{
    switch (p) {
    case FORWARD: EACH_PRODUCT(c, result[out] += c->x[in] * c->weight[at]); break;
    case GRAD_INPUT: EACH_PRODUCT(c, result[in] += c->dy[out] * c->weight[at]); break;
    default: EACH_PRODUCT(c, result[at] += c->x[in] * c->dy[out]); break;
    }
}

/* ---- ours ---- */

/* To blocks of `lanes` planes, or back. */
static void reorder(float *blocked, float *plain, const winograd_images *images, int64_t lanes, bool back)
{
    const int64_t pixels = images->height * images->width;
    for (int64_t i = 0; i < images->batch * images->planes * pixels; i++) {
        const int64_t plane = i / pixels, pixel = i % pixels;
        float *there = &blocked[(plane / lanes * pixels + pixel) * lanes + plane % lanes];
        if (back)
            plain[i] = *there;
        else
            *there = plain[i];
    }
}

static void compute_by_winograd(const cpu_level *level, const convolution *c, pass p, float *result)
{
    const sizes *s = &c->s;
    const winograd_kernels *kernels = level->winograd;
    const winograd_images in = {s->batch, s->channels, s->height, s->width};
    const winograd_images out = {s->batch, s->outputs, c->out_height, c->out_width};
    const winograd_correlation forward = {.in = in, .out = out, .begin_row = -s->padding, .begin_column = -s->padding};
    const winograd_correlation backward = {
        .in = out, .out = in, .begin_row = s->padding - 2, .begin_column = s->padding - 2};
    const int threads = omp_get_max_threads();
    float *x = allocate(result_count(c, GRAD_INPUT)), *dy = allocate(result_count(c, FORWARD));
    reorder(x, c->x, &in, level->lanes, false);
    reorder(dy, c->dy, &out, level->lanes, false);
    float *scratch = allocate(p == FORWARD      ? kernels->correlate_floats(&forward, threads)
                              : p == GRAD_INPUT ? kernels->correlate_floats(&backward, threads)
                                                : kernels->grad_weights_floats(&forward, threads));
    if (p == FORWARD) {
        const winograd_weights weights = {.values = c->weight, .stride_n = s->channels * 9, .stride_k = 9};
        kernels->correlate(&forward, &(winograd_source){.values = x}, &weights, NULL, scratch,
                           &(winograd_target){.values = dy});
        reorder(dy, result, &out, level->lanes, true);
    } else if (p == GRAD_INPUT) {
        const winograd_weights weights = {
            .values = c->weight, .stride_n = 9, .stride_k = s->channels * 9, .turned = true};
        kernels->correlate(&backward, &(winograd_source){.values = dy}, &weights, NULL, scratch,
                           &(winograd_target){.values = x});
        reorder(x, result, &in, level->lanes, true);
    } else {
        kernels->grad_weights(&forward, x, &(winograd_source){.values = dy}, threads, scratch, result, NULL);
    }
    free(scratch);
    free(x);
    free(dy);
}

/* ---- tests ---- */

static bool is_chosen(const cpu_level *level, const convolution *c)
{
    const sizes *s = &c->s;
    const winograd_images x = {s->batch, s->channels, s->height, s->width};
    const winograd_images y = {s->batch, s->outputs, c->out_height, c->out_width};
    return cpu_winograd_pays(level->lanes, &x, &y);
}

static double norm_of_difference(const float *found, const double *exact, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += ((double)found[i] - exact[i]) * ((double)found[i] - exact[i]);
    return sqrt(sum);
}

/* NULL: the processor has not this level. */
static const cpu_level *level_named(const char *name)
{
    const cpu_level *level = NULL;
    assert_int_equal(setenv("FARTHING_MAX_ISA", name, 1), 0);
    assert_int_equal(cpu_level_choose(&level), FTH_OK);
    assert_int_equal(unsetenv("FARTHING_MAX_ISA"), 0);
    return strcmp(fth_vector_level_name(level->level), name) == 0 ? level : NULL;
}

static void winograd_is_about_as_exact_as_a_direct_convolution(void **state)
{
    (void)state;
    static const char *const levels[] = {"baseline", "avx2", "avx512"};
    int worse = 0;
    for (size_t i = 0; i < sizeof every_size / sizeof *every_size; i++) {
        const sizes *s = &every_size[i];
        convolution c = make(s);
        for (pass p = FORWARD; p < PASSES; p++) {
            const int64_t count = result_count(&c, p);
            double *exact = calloc((size_t)count, sizeof *exact);
            float *found = allocate(count);
            assert_non_null(exact);
            compute_exactly(&c, p, exact);
            compute_directly(&c, p, found);
            const double direct = norm_of_difference(found, exact, count);
            for (int l = 0; l < 3; l++) {
                const cpu_level *level = level_named(levels[l]);
                if (!level)
                    continue;
                if (level->lanes == 4 && s->channels == 16)
                    continue; /* left out below */
                assert_true(is_chosen(level, &c));
                compute_by_winograd(level, &c, p, found);
                const double error = norm_of_difference(found, exact, count);
                print_message(
                    "%-8s %-12s %3d to %3d channels, map %dx%d, padding %d, batch %d: error %.2f of a direct one's\n",
                    levels[l], pass_names[p], (int)s->channels, (int)s->outputs, (int)s->height, (int)s->width,
                    (int)s->padding, (int)s->batch, error / direct);
                worse += !(error <= 3 * direct);
            }
            free(exact);
            free(found);
        }
        release(&c);
    }
    assert_int_equal(worse, 0);
}

/* Where errors would be larger, as measured with these kernels, others are chosen. */
static void sizes_with_larger_errors_are_left_to_others(void **state)
{
    (void)state;
    static const sizes left_out[] = {
        {15, 64, 64, 4, 4, 1},  {3, 32, 32, 8, 8, 1},  {64, 16, 512, 4, 4, 1},
        {64, 512, 16, 4, 4, 1}, {64, 32, 32, 4, 4, 1},
    };
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
        const sizes *s = &left_out[i];
        const convolution c = {.s = *s, .out_height = s->height, .out_width = s->width};
        for (int64_t lanes = 4; lanes <= 16; lanes *= 2)
            assert_false(is_chosen(&(cpu_level){.lanes = lanes}, &c));
    }
    const convolution few_channels = {.s = {16, 16, 512, 8, 8, 1}, .out_height = 8, .out_width = 8};
    assert_false(is_chosen(&(cpu_level){.lanes = 4}, &few_channels));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(winograd_is_about_as_exact_as_a_direct_convolution),
                                       cmocka_unit_test(sizes_with_larger_errors_are_left_to_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
