/* How exact our Winograd convolutions are, with stride 1 and 2: at each level that the processor
 * has, all three passes against f64 must be at most three times as far off as a direct convolution
 * in f32, which adds one product after the other. So it is at every size for which the level
 * chooses them (cpu_winograd_pays(), cpu_strided_pays()); tested are those where it is hardest: the
 * fewest tiles, channels and outputs. */
#include "support.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "backend/cpu/level.h"
#include "backend/cpu/strided.h"
#include "backend/cpu/winograd.h"

typedef struct sizes {
    int64_t batch, channels, outputs, height, width, padding;
} sizes;

/* Maps that tiles of 4×4 cover, and others, whose last tiles have 1 to 3 outputs a side; all
 * numbers of channels, on the side that a pass sums over; the fewest tiles of each level, and of
 * any (16). */
static const sizes every_size[] = {
    {1, 16, 32, 16, 16, 1},  {4, 16, 32, 7, 7, 1},   {4, 32, 16, 8, 8, 1},   {3, 32, 64, 10, 13, 0},
    {4, 64, 32, 8, 8, 1},    {4, 128, 16, 7, 9, 1},  {4, 16, 128, 8, 8, 1},  {4, 16, 512, 8, 8, 1},
    {4, 16, 256, 10, 10, 0}, {16, 64, 64, 4, 4, 1},  {32, 64, 64, 4, 4, 1},  {16, 64, 128, 4, 4, 1},
    {4, 512, 16, 7, 7, 1},   {4, 16, 32, 16, 16, 1}, {4, 64, 64, 14, 14, 1}, {4, 32, 32, 13, 14, 1},
    {3, 64, 32, 11, 13, 1},
};

/* With stride 2: maps of tiles with 4 and 3 outputs a side, or fewer; the fewest channels, on each
 * side, and outputs. */
static const sizes every_strided_size[] = {
    {12, 32, 32, 8, 8, 1},   {3, 32, 32, 16, 16, 1},   {4, 32, 64, 14, 14, 1}, {4, 64, 32, 13, 14, 1},
    {4, 32, 32, 17, 15, 0},  {22, 32, 32, 6, 6, 1},    {8, 48, 32, 9, 10, 1},  {3, 32, 256, 17, 17, 0},
    {3, 256, 32, 16, 16, 1}, {4, 128, 128, 14, 14, 1}, {2, 64, 64, 56, 30, 1}, {4, 32, 32, 12, 12, 2},
};

/* The numbers of a convolution in plain order (batch, planes, height, width). */
typedef struct convolution {
    sizes s;
    int64_t stride, out_height, out_width;
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
    const size_t bytes =
        ((size_t)count * sizeof(float) + 63) / 64 * 64; /* aligned as kernels want scratch memory to be */
    float *values = aligned_alloc(64, bytes);
    assert_non_null(values);
    memset(values, 0, bytes);
    return values;
}

/* Inputs as behind a ReLU, weights as He draws them, and small gradients. */
static convolution make(const sizes *s, int64_t stride)
{
    convolution c = {.s = *s,
                     .stride = stride,
                     .out_height = (s->height + 2 * s->padding - 3) / stride + 1,
                     .out_width = (s->width + 2 * s->padding - 3) / stride + 1};
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
                        const int64_t row = i * (c)->stride + tap / 3 - (c)->s.padding;                                \
                        if (row < 0 || row >= (c)->s.height)                                                           \
                            continue;                                                                                  \
                        for (int64_t j = 0; j < (c)->out_width; j++) {                                                 \
                            const int64_t column = j * (c)->stride + tap % 3 - (c)->s.padding;                         \
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

static blocked_convolution describe_strided(const convolution *c)
{
    const sizes *s = &c->s;
    return (blocked_convolution){.batch = s->batch,
                                 .channels = s->channels,
                                 .height = s->height,
                                 .width = s->width,
                                 .outputs = s->outputs,
                                 .out_height = c->out_height,
                                 .out_width = c->out_width,
                                 .kernel = {3, 3},
                                 .stride = {2, 2},
                                 .padding = {(int32_t)s->padding, (int32_t)s->padding},
                                 .dilation = {1, 1}};
}

static void compute_strided(const cpu_level *level, const convolution *c, pass p, float *result)
{
    const blocked_kernels *kernels = level->strided;
    const blocked_convolution d = describe_strided(c);
    const winograd_images in = {d.batch, d.channels, d.height, d.width};
    const winograd_images out = {d.batch, d.outputs, d.out_height, d.out_width};
    const int threads = omp_get_max_threads();
    float *x = allocate(result_count(c, GRAD_INPUT)), *dy = allocate(result_count(c, FORWARD));
    reorder(x, c->x, &in, level->lanes, false);
    reorder(dy, c->dy, &out, level->lanes, false);
    float *scratch = allocate(p == FORWARD      ? kernels->forward_floats(&d, threads)
                              : p == GRAD_INPUT ? kernels->grad_input_floats(&d, threads)
                                                : kernels->grad_weights_floats(&d, threads));
    if (p == FORWARD) {
        kernels->forward(&d, x, c->weight, NULL, threads, scratch, dy);
        reorder(dy, result, &out, level->lanes, true);
    } else if (p == GRAD_INPUT) {
        kernels->grad_input(&d, dy, c->weight, NULL, threads, scratch, x);
        reorder(x, result, &in, level->lanes, true);
    } else {
        kernels->grad_weights(&d, x, dy, threads, scratch, result, NULL);
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
    const blocked_convolution strided = describe_strided(c);
    return c->stride == 2 ? cpu_strided_pays(&strided) : cpu_winograd_pays(level->lanes, &x, &y);
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

/* How many passes at how many levels are worse. */
static int count_worse(const sizes *s, int64_t stride)
{
    static const char *const levels[] = {"baseline", "avx2", "avx512"};
    int worse = 0;
    convolution c = make(s, stride);
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
            if (stride == 2)
                compute_strided(level, &c, p, found);
            else
                compute_by_winograd(level, &c, p, found);
            const double error = norm_of_difference(found, exact, count);
            print_message("%-8s %-12s %3d to %3d channels, map %dx%d, stride %d, padding %d, batch %d: error %.2f of a "
                          "direct one's\n",
                          levels[l], pass_names[p], (int)s->channels, (int)s->outputs, (int)s->height, (int)s->width,
                          (int)stride, (int)s->padding, (int)s->batch, error / direct);
            worse += !(error <= 3 * direct);
        }
        free(exact);
        free(found);
    }
    release(&c);
    return worse;
}

static void winograd_is_about_as_exact_as_a_direct_convolution(void **state)
{
    (void)state;
    int worse = 0;
    for (size_t i = 0; i < sizeof every_size / sizeof *every_size; i++)
        worse += count_worse(&every_size[i], 1);
    assert_int_equal(worse, 0);
}

static void so_it_is_with_stride_2(void **state)
{
    (void)state;
    int worse = 0;
    for (size_t i = 0; i < sizeof every_strided_size / sizeof *every_strided_size; i++)
        worse += count_worse(&every_strided_size[i], 2);
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
        const convolution c = {.s = *s, .stride = 1, .out_height = s->height, .out_width = s->width};
        for (int64_t lanes = 4; lanes <= 16; lanes *= 2)
            assert_false(is_chosen(&(cpu_level){.lanes = lanes}, &c));
    }
    const convolution padded = {.s = {17, 32, 32, 3, 3, 3}, .stride = 2, .out_height = 4, .out_width = 4};
    assert_false(is_chosen(&(cpu_level){.lanes = 16}, &padded));
    const convolution few_channels = {.s = {16, 16, 512, 8, 8, 1}, .stride = 1, .out_height = 8, .out_width = 8};
    assert_false(is_chosen(&(cpu_level){.lanes = 4}, &few_channels));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(winograd_is_about_as_exact_as_a_direct_convolution),
                                       cmocka_unit_test(so_it_is_with_stride_2),
                                       cmocka_unit_test(sizes_with_larger_errors_are_left_to_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
