/* Our Winograd convolutions beside oneDNN's direct ones, and the share of the processor's
 * arithmetic that their products reach:
 *
 *     cmake --build build --target bench_winograd
 *     for level in avx512 avx2 baseline; do FARTHING_MAX_ISA=$level taskset -c 0 build/bench_winograd; done
 *
 * Prints a Markdown table. Shares are of a bare loop of as many multiply-adds at the same level,
 * measured in turns with the products; those of whole passes count the products of transformed
 * tiles alone, so that transforms count as loss. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "backend/backend.h"
#include "backend/cpu/cpu_internal.h"
#include "base/memory.h"

#include "products.h"

enum { TURNS = 9 };

extern const bench_products bench_products_baseline;
#if defined(__x86_64__)
extern const bench_products bench_products_avx2, bench_products_avx512;
#endif

static const bench_products *products_of(fth_vector_level level)
{
#if defined(__x86_64__)
    if (level == FTH_LEVEL_AVX512)
        return &bench_products_avx512;
    if (level == FTH_LEVEL_AVX2)
        return &bench_products_avx2;
#endif
    (void)level;
    return &bench_products_baseline;
}

typedef struct sizes {
    int64_t batch, channels, side;
} sizes;

static const sizes every_size[] = {{16, 64, 56}, {16, 128, 28}, {16, 256, 14}, {16, 512, 7},
                                   {64, 64, 16}, {64, 128, 8},  {64, 256, 4},  {8, 512, 14}};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* `count` numbers, none of them 0. */
static fth_status make_numbers(int64_t count, float **numbers)
{
    fth_status status = fth_allocate_aligned((size_t)count * sizeof **numbers, numbers);
    for (int64_t i = 0; status == FTH_OK && i < count; i++)
        (*numbers)[i] = 1e-3F * (float)(i % 1009 - 504) + 1e-4F;
    return status;
}

/* ---- oneDNN's direct convolution ---- */

typedef struct primitive {
    dnnl_primitive_desc_t descriptor;
    dnnl_primitive_t made;
    dnnl_exec_arg_t arguments[4];
    float *data[4];
    int count;
} primitive;

static fth_status add_argument(primitive *p, const cpu_device *device, int name, const cpu_format *format)
{
    fth_status status = FTH_OK;
    dnnl_exec_arg_t *argument = &p->arguments[p->count];
    argument->arg = name;
    FTH_TRY(cpu_make_memory(format, device->engine, &argument->memory));
    FTH_TRY(make_numbers((int64_t)(cpu_format_size(format) / sizeof(float)) + 1, &p->data[p->count]));
    CPU_TRY(dnnl_memory_set_data_handle(argument->memory, p->data[p->count]));
    p->count++;
out:
    return status;
}

static fth_status make_direct(const cpu_device *device, const winograd_correlation *c, cpu_pass pass, primitive *p)
{
    fth_status status = FTH_OK;
    fth_shape x = FTH_SHAPE(c->in.batch, c->in.planes, c->in.height, c->in.width);
    fth_shape weight = FTH_SHAPE(c->out.planes, c->in.planes, 3, 3);
    fth_shape y = FTH_SHAPE(c->out.batch, c->out.planes, c->out.height, c->out.width), bias = FTH_SHAPE(c->out.planes);
    const cpu_convolution_description d = {.training = true,
                                           .x = cpu_any(&x, dnnl_f32),
                                           .weight = cpu_any(&weight, dnnl_f32),
                                           .weight_gradient = cpu_any(&weight, dnnl_f32),
                                           .bias = cpu_plain(&bias, dnnl_f32),
                                           .y = cpu_any(&y, dnnl_f32),
                                           .strides = {1, 1},
                                           .padding_begin = {1, 1},
                                           .padding_end = {1, 1}};
    static const struct {
        dnnl_query_t what;
        int name;
    } arguments[][3] = {[CPU_FORWARD] = {{dnnl_query_src_md, DNNL_ARG_SRC},
                                         {dnnl_query_weights_md, DNNL_ARG_WEIGHTS},
                                         {dnnl_query_dst_md, DNNL_ARG_DST}},
                        [CPU_GRAD_INPUT] = {{dnnl_query_diff_dst_md, DNNL_ARG_DIFF_DST},
                                            {dnnl_query_weights_md, DNNL_ARG_WEIGHTS},
                                            {dnnl_query_diff_src_md, DNNL_ARG_DIFF_SRC}},
                        [CPU_GRAD_WEIGHTS] = {{dnnl_query_src_md, DNNL_ARG_SRC},
                                              {dnnl_query_diff_dst_md, DNNL_ARG_DIFF_DST},
                                              {dnnl_query_diff_weights_md, DNNL_ARG_DIFF_WEIGHTS}}};
    cpu_format scratch;
    FTH_TRY(cpu_describe_convolution(device->engine, &d, pass, &p->descriptor));
    for (int i = 0; i < 3; i++) {
        const cpu_format format = cpu_query(p->descriptor, arguments[pass][i].what);
        FTH_TRY(add_argument(p, device, arguments[pass][i].name, &format));
    }
    if (cpu_scratchpad_size(p->descriptor, &scratch) > 0)
        FTH_TRY(add_argument(p, device, DNNL_ARG_SCRATCHPAD, &scratch));
    CPU_TRY(dnnl_primitive_create(&p->made, p->descriptor));
out:
    return status;
}

static void free_primitive(primitive *p)
{
    for (int i = 0; i < p->count; i++) {
        dnnl_memory_destroy(p->arguments[i].memory);
        free(p->data[i]);
    }
    dnnl_primitive_destroy(p->made);
    cpu_free_descriptor(p->descriptor);
}

/* Milliseconds, the best of TURNS. */
static fth_status time_direct(const cpu_device *device, const winograd_correlation *c, cpu_pass pass, double *best_ms)
{
    fth_status status = FTH_OK;
    primitive p = {0};
    *best_ms = 1e9;
    FTH_TRY(make_direct(device, c, pass, &p));
    for (int turn = 0; turn < TURNS; turn++) {
        const double begin = now_s();
        CPU_TRY(dnnl_primitive_execute(p.made, device->stream, p.count, p.arguments));
        CPU_TRY(dnnl_stream_wait(device->stream));
        const double ms = 1e3 * (now_s() - begin);
        *best_ms = ms < *best_ms ? ms : *best_ms;
    }
out:
    free_primitive(&p);
    return status;
}

/* ---- ours ---- */

typedef struct buffers {
    float *x, *y, *weight, *scratch;
} buffers;

static void run_pass(const winograd_kernels *kernels, const winograd_correlation *forward, cpu_pass pass, int threads,
                     const buffers *b)
{
    const winograd_correlation back = {.in = forward->out, .out = forward->in, .begin_row = -1, .begin_column = -1};
    const winograd_weights weights = {.values = b->weight, .stride_n = forward->in.planes * 9, .stride_k = 9};
    const winograd_weights turned = {
        .values = b->weight, .stride_n = 9, .stride_k = forward->in.planes * 9, .turned = true};
    const winograd_source x = {.values = b->x}, dy = {.values = b->y};
    if (pass == CPU_FORWARD)
        kernels->correlate(forward, &x, &weights, NULL, b->scratch, &(winograd_target){.values = b->y});
    else if (pass == CPU_GRAD_INPUT)
        kernels->correlate(&back, &dy, &turned, NULL, b->scratch, &(winograd_target){.values = b->x});
    else
        kernels->grad_weights(forward, b->x, &dy, threads, b->scratch, b->weight, NULL);
}

static int64_t maximum(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static fth_status measure(const cpu_device *device, const sizes *s)
{
    fth_status status = FTH_OK;
    const cpu_level *level = device->level;
    const bench_products *products = products_of(level->level);
    const int threads = device->base.threads;
    const winograd_images images = {s->batch, s->channels, s->side, s->side};
    const winograd_correlation c = {.in = images, .out = images, .begin_row = -1, .begin_column = -1};
    const int64_t count = s->batch * s->channels * s->side * s->side;
    const double operations = 2.0 * count_products(&images) * (double)(s->channels * s->channels);
    const int64_t floats =
        maximum(maximum(level->winograd->grad_weights_floats(&c, threads), level->winograd->grad_weights_floats(&c, 1)),
                level->winograd->correlate_floats(&c, threads));
    buffers b = {0};
    double bare = 0, correlate = 0, grad_weights = 0; /* operations a second */
    FTH_TRY(make_numbers(count, &b.x));
    FTH_TRY(make_numbers(count, &b.y));
    FTH_TRY(make_numbers(s->channels * s->channels * 9, &b.weight));
    FTH_TRY(make_numbers(floats, &b.scratch));
    for (int turn = 0; turn < TURNS; turn++) {
        double begin = now_s();
        double per_s = products->bare(operations, b.x) / (now_s() - begin);
        bare = per_s > bare ? per_s : bare;
        begin = now_s();
        per_s = products->correlate(&c, b.scratch) / (now_s() - begin);
        correlate = per_s > correlate ? per_s : correlate;
        begin = now_s();
        per_s = products->grad_weights(&c, b.scratch) / (now_s() - begin);
        grad_weights = per_s > grad_weights ? per_s : grad_weights;
    }
    printf("| %s | %d×%d, %d, batch %d | %.0f | %.0f |", fth_vector_level_name(level->level), (int)s->side,
           (int)s->side, (int)s->channels, (int)s->batch, 100 * correlate / bare, 100 * grad_weights / bare);
    for (cpu_pass pass = CPU_FORWARD; pass <= CPU_GRAD_WEIGHTS; pass++) {
        double ms = 1e9, direct_ms;
        for (int turn = 0; turn < TURNS; turn++) {
            const double begin = now_s();
            run_pass(level->winograd, &c, pass, threads, &b);
            const double took_ms = 1e3 * (now_s() - begin);
            ms = took_ms < ms ? took_ms : ms;
        }
        FTH_TRY(time_direct(device, &c, pass, &direct_ms));
        printf(" %.2f (%.0f %%) | %.2f |", ms, 100 * operations / (1e-3 * ms) / bare / threads, direct_ms);
    }
    printf("\n");
    fflush(stdout);
out:
    free(b.x);
    free(b.y);
    free(b.weight);
    free(b.scratch);
    return status;
}

int main(void)
{
    fth_status status = FTH_OK;
    fth_device *device = NULL;
    const fth_device_options options = {0};
    FTH_TRY(fth_device_open("cpu", &options, &device));
    device->backend->enter(device, device->threads);
    printf("| level | map, channels, batch | products of forward, %% | of grad_weights, %% | forward, ms | direct | "
           "grad_input, ms | direct | grad_weights, ms | direct |\n"
           "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < sizeof every_size / sizeof *every_size; i++)
        FTH_TRY(measure((const cpu_device *)device, &every_size[i]));
out:
    if (status != FTH_OK)
        fprintf(stderr, "bench_winograd: %s\n", fth_error_message());
    fth_device_close(device);
    return status == FTH_OK ? 0 : 1;
}
