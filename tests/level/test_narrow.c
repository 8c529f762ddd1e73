/* Convolutions of few channels (src/backend/cpu/level/narrow.c) at the level that this is compiled
 * for, against plain loops in double precision: every number of outputs, columns that fill vectors
 * or do not, kernels over the border, tiny images. */
#include "support.h"

#include <math.h>
#include <omp.h>

#include "backend/cpu/narrow.h"
#include "backend/vector/level.h"
#include "backend/vector/vector.h"

extern const narrow_kernels AT_LEVEL(narrow);

/* Exactly as many floats, so that AddressSanitizer sees what is read behind them. */
static float *draw(fth_random_key key, int64_t count)
{
    float *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)fth_random_uniform(key, (uint64_t)i) - 0.5f;
    return values;
}

static void check(const float *found, const double *wanted, int64_t count, const char *what, const narrow *n)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(found[i] - wanted[i]) <= 2e-4 + 1e-5 * fabs(wanted[i])))
            fail_msg("%s of %d to %d channels, %dx%d by %dx%d: %g at %d instead of %g", what, (int)n->channels,
                     (int)n->outputs, (int)n->height, (int)n->width, (int)n->kernel_h, (int)n->kernel_w, found[i],
                     (int)i, wanted[i]);
}

/* The three sums at once: each product of the convolution belongs to a number of y, of dx and of
 * dw. */
static void multiply_plainly(const narrow *n, const float *x, const float *weight, const float *dy, double *y,
                             double *dx, double *dw)
{
    for (int64_t b = 0; b < n->batch; b++)
        for (int64_t o = 0; o < n->outputs; o++)
            for (int64_t r = 0; r < n->out_height; r++)
                for (int64_t w = 0; w < n->out_width; w++)
                    for (int64_t t = 0; t < n->channels * n->kernel_h * n->kernel_w; t++) {
                        const int64_t c = t / (n->kernel_h * n->kernel_w);
                        const int64_t h = r + t / n->kernel_w % n->kernel_h - n->padding_h,
                                      v = w + t % n->kernel_w - n->padding_w;
                        if (h < 0 || h >= n->height || v < 0 || v >= n->width)
                            continue;
                        const int64_t in = ((b * n->channels + c) * n->height + h) * n->width + v;
                        const int64_t out = ((b * n->outputs + o) * n->out_height + r) * n->out_width + w;
                        const int64_t tap = o * n->channels * n->kernel_h * n->kernel_w + t;
                        y[out] += (double)x[in] * weight[tap];
                        dx[in] += (double)dy[out] * weight[tap];
                        dw[tap] += (double)dy[out] * x[in];
                    }
}

static void check_case(const narrow *n, fth_random_key key)
{
    const narrow_kernels *kernels = &AT_LEVEL(narrow);
    const int64_t ins = n->batch * n->channels * n->height * n->width, plane = n->out_height * n->out_width,
                  outs = n->batch * n->outputs * plane, taps = n->outputs * n->channels * n->kernel_h * n->kernel_w;
    float *x = draw(fth_random_fork(key, 1), ins), *dy = draw(fth_random_fork(key, 2), outs),
          *weight = draw(fth_random_fork(key, 3), taps), *bias = draw(fth_random_fork(key, 4), n->outputs);
    double *y = calloc((size_t)outs, sizeof *y), *dx = calloc((size_t)ins, sizeof *dx),
           *dw = calloc((size_t)taps, sizeof *dw), *db = calloc((size_t)n->outputs, sizeof *db);
    multiply_plainly(n, x, weight, dy, y, dx, dw);
    for (int64_t i = 0; i < outs; i++) {
        y[i] += bias[i / plane % n->outputs];
        y[i] = n->relu && y[i] < 0 ? 0 : y[i];
        db[i / plane % n->outputs] += dy[i];
    }
    const int threads = omp_get_max_threads();
    float *found = draw(key, outs > ins ? outs : ins);
    float *scratch = draw(key, kernels->forward_floats(n, threads));
    kernels->forward(n, x, weight, bias, scratch, found);
    check(found, y, outs, "forward", n);
    free(scratch);
    scratch = draw(key, kernels->grad_input_floats(n, threads));
    kernels->grad_input(n, dy, weight, scratch, found);
    check(found, dx, ins, "grad_input", n);
    free(scratch);
    scratch = draw(key, kernels->grad_weights_floats(n, threads));
    float *dweight = draw(key, taps), *dbias = draw(key, n->outputs);
    kernels->grad_weights(n, x, dy, threads, scratch, dweight, dbias);
    check(dweight, dw, taps, "grad_weights", n);
    check(dbias, db, n->outputs, "grad_bias", n);
    void *made[] = {x, dy, weight, bias, y, dx, dw, db, found, scratch, dweight, dbias};
    for (size_t i = 0; i < FTH_COUNT_OF(made); i++)
        free(made[i]);
}

static void test_every_number_of_outputs(void **state)
{
    (void)state;
    omp_set_num_threads(2);
    for (int outputs = 1; outputs <= NARROW_MAX_CHANNELS; outputs++)
        for (int wide = 0; wide < 2; wide++) {
            const int64_t channels = 1 + (outputs * 5 + wide) % NARROW_MAX_CHANNELS, kernel = 1 + outputs % 5;
            narrow n = {.batch = 3,
                        .channels = channels,
                        .height = 6 + outputs % 3,
                        .width = wide ? 16 + kernel - 1 : 5 + outputs};
            n.outputs = outputs;
            n.kernel_h = kernel < n.height ? kernel : 3;
            n.kernel_w = wide ? kernel : kernel + 1;
            n.padding_h = (outputs + wide) % n.kernel_h;
            n.padding_w = wide ? 0 : outputs % n.kernel_w;
            n.relu = outputs % 2;
            n.out_height = n.height + 2 * n.padding_h - n.kernel_h + 1;
            n.out_width = n.width + 2 * n.padding_w - n.kernel_w + 1;
            check_case(&n, fth_random_fork((fth_random_key){17}, (uint64_t)(outputs * 2 + wide)));
        }
}

/* The images that follow one are smaller than a vector. */
static void test_images_smaller_than_a_vector(void **state)
{
    (void)state;
    omp_set_num_threads(2);
    for (int side = 1; side <= 4; side++) {
        const narrow n = {.batch = 6,
                          .channels = 1,
                          .height = side,
                          .width = side,
                          .outputs = 1,
                          .out_height = side,
                          .out_width = side,
                          .kernel_h = 1,
                          .kernel_w = 1};
        check_case(&n, fth_random_fork((fth_random_key){18}, (uint64_t)side));
    }
}

int main(void)
{
    const fth_vector_level needed = LANES == 16 ? FTH_LEVEL_AVX512 : LANES == 8 ? FTH_LEVEL_AVX2 : FTH_LEVEL_BASELINE;
    if (fth_vector_level_best() < needed) {
        printf("SKIP: this processor lacks %s\n", fth_vector_level_name(needed));
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_number_of_outputs),
                                       cmocka_unit_test(test_images_smaller_than_a_vector)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
