/* Our depthwise and grouped convolutions beside oneDNN's, and the least time that memory allows:
 *
 * cmake --build build --target bench_depthwise for level in avx512 avx2 baseline; do
 * FARTHING_MAX_ISA=$level build/bench_depthwise [threads] [bf16]; done
 *
 * Prints a Markdown table of milliseconds, the best of several turns, in which ours and oneDNN's
 * alternate. `bytes` is the time that a copy of as many bytes as a pass must read and write
 * takes (past the caches, so maps that the caches keep may take less), with the same threads. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/backend.h"
#include "backend/cpu/blocked_kernels.h"
#include "backend/cpu/cpu_internal.h"
#include "base/memory.h"

enum { TURNS = 9, MOST_ARGUMENTS = 4 };

typedef struct sizes {
    int64_t batch, channels, group, side;
    int kernel, stride;
} sizes;

/* Of mobilenet_v2, efficientnet_b0, convnext_tiny, resnext50 at 224×224. */
static const sizes every_size[] = {
    {16, 32, 1, 112, 3, 1},  {16, 96, 1, 112, 3, 2},   {16, 144, 1, 56, 3, 1},  {16, 144, 1, 56, 5, 2},
    {16, 192, 1, 28, 3, 1},  {16, 240, 1, 28, 5, 1},   {16, 240, 1, 28, 3, 2},  {16, 384, 1, 14, 3, 1},
    {16, 672, 1, 14, 5, 1},  {16, 672, 1, 14, 5, 2},   {16, 960, 1, 7, 3, 1},   {16, 1152, 1, 7, 5, 1},
    {16, 96, 1, 56, 7, 1},   {16, 192, 1, 28, 7, 1},   {16, 384, 1, 14, 7, 1},  {16, 768, 1, 7, 7, 1},
    {16, 128, 4, 56, 3, 1},  {16, 256, 8, 56, 3, 2},   {16, 256, 8, 28, 3, 1},  {16, 512, 16, 28, 3, 2},
    {16, 512, 16, 14, 3, 1}, {16, 1024, 32, 14, 3, 2}, {16, 1024, 32, 7, 3, 1},
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Numbers, none of them 0, that are finite as f32 and as bf16. */
static fth_status make_numbers(size_t bytes, void **numbers)
{
    const size_t count = bytes / sizeof(float) + 16;
    float *made = NULL;
    fth_status status = fth_allocate_aligned(count * sizeof *made, &made);
    for (size_t i = 0; status == FTH_OK && i < count; i++)
        made[i] = 1e-3F * (float)((int)(i % 1009) - 504) + 1e-4F;
    *numbers = made;
    return status;
}

/* ---- memory ---- */

static double copy_ms(int64_t bytes, void *from, void *to, int threads)
{
    double best = 1e9;
    for (int turn = 0; turn < 5; turn++) {
        const double begin = now_s();
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t i = 0; i < bytes / 65536; i++)
            memcpy((char *)to + i * 65536, (const char *)from + i * 65536, 65536);
        const double ms = 1e3 * (now_s() - begin);
        best = ms < best ? ms : best;
    }
    return best;
}

/* Bytes a millisecond, read and written. */
static fth_status measure_memory(int threads, double *rate)
{
    enum { BYTES = 256 << 20 };
    fth_status status = FTH_OK;
    void *from = NULL, *to = NULL;
    FTH_TRY(make_numbers(BYTES, &from));
    FTH_TRY(make_numbers(BYTES, &to));
    *rate = 2.0 * BYTES / copy_ms(BYTES, from, to, threads);
out:
    free(from);
    free(to);
    return status;
}

/* ---- oneDNN ---- */

typedef struct primitive {
    dnnl_primitive_desc_t descriptor;
    dnnl_primitive_t made;
    dnnl_exec_arg_t arguments[MOST_ARGUMENTS];
    void *data[MOST_ARGUMENTS];
    int count;
} primitive;

static fth_status add_argument(primitive *p, const cpu_device *device, int name, const cpu_format *format)
{
    fth_status status = FTH_OK;
    dnnl_exec_arg_t *argument = &p->arguments[p->count];
    argument->arg = name;
    FTH_TRY(cpu_make_memory(format, device->engine, &argument->memory));
    FTH_TRY(make_numbers(cpu_format_size(format), &p->data[p->count]));
    CPU_TRY(dnnl_memory_set_data_handle(argument->memory, p->data[p->count]));
    p->count++;
out:
    return status;
}

static fth_status make_direct(const cpu_device *device, const sizes *s, const blocked_convolution *c, cpu_pass pass,
                              primitive *p)
{
    fth_status status = FTH_OK;
    const dnnl_data_type_t dtype = c->bf16 ? dnnl_bf16 : dnnl_f32;
    fth_shape x = FTH_SHAPE(c->batch, c->channels, c->height, c->width);
    fth_shape weight = FTH_SHAPE(s->channels / s->group, s->group, s->group, s->kernel, s->kernel);
    fth_shape y = FTH_SHAPE(c->batch, c->outputs, c->out_height, c->out_width), bias = FTH_SHAPE(c->outputs);
    cpu_convolution_description d = {.training = true,
                                     .x = cpu_any(&x, dtype),
                                     .weight = cpu_any(&weight, dtype),
                                     .weight_gradient = cpu_any(&weight, dnnl_f32),
                                     .bias = cpu_plain(&bias, dnnl_f32),
                                     .y = cpu_any(&y, dtype)};
    for (int i = 0; i < 2; i++) {
        d.strides[i] = s->stride;
        d.padding_begin[i] = s->kernel / 2;
        d.padding_end[i] = (c->out_height - 1) * s->stride + s->kernel - s->side - s->kernel / 2;
    }
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

static fth_status run_direct(const cpu_device *device, const primitive *p, double *best_ms)
{
    fth_status status = FTH_OK;
    const double begin = now_s();
    CPU_TRY(dnnl_primitive_execute(p->made, device->stream, p->count, p->arguments));
    CPU_TRY(dnnl_stream_wait(device->stream));
    const double ms = 1e3 * (now_s() - begin);
    *best_ms = ms < *best_ms ? ms : *best_ms;
out:
    return status;
}

/* ---- ours ---- */

typedef struct buffers {
    void *x, *y, *weight, *scratch;
} buffers;

static void run_ours(const blocked_kernels *kernels, const blocked_convolution *c, cpu_pass pass, int threads,
                     const buffers *b, double *best_ms)
{
    const double begin = now_s();
    if (pass == CPU_FORWARD)
        kernels->forward(c, b->x, b->weight, NULL, threads, b->scratch, b->y);
    else if (pass == CPU_GRAD_INPUT)
        kernels->grad_input(c, b->y, b->weight, NULL, threads, b->scratch, b->x);
    else
        kernels->grad_weights(c, b->x, b->y, threads, b->scratch, b->weight, NULL);
    const double ms = 1e3 * (now_s() - begin);
    *best_ms = ms < *best_ms ? ms : *best_ms;
}

static const blocked_kernels *kernels_for(const cpu_device *device, const sizes *s)
{
    return device->level->lanes % s->group == 0 ? device->level->depthwise : NULL;
}

static fth_status measure(const cpu_device *device, const sizes *s, int threads, bool bf16, double bytes_per_ms)
{
    fth_status status = FTH_OK;
    const int64_t lanes = device->level->lanes, planes = (s->channels + lanes - 1) / lanes * lanes;
    const int64_t out = (s->side + 2 * (s->kernel / 2) - s->kernel) / s->stride + 1;
    const blocked_convolution c = {.batch = s->batch,
                                   .channels = s->channels,
                                   .height = s->side,
                                   .width = s->side,
                                   .outputs = s->channels,
                                   .group = (int32_t)s->group,
                                   .out_height = out,
                                   .out_width = out,
                                   .kernel = {s->kernel, s->kernel},
                                   .stride = {s->stride, s->stride},
                                   .padding = {s->kernel / 2, s->kernel / 2},
                                   .dilation = {1, 1},
                                   .bf16 = bf16};
    const size_t item = bf16 ? 2 : 4;
    const size_t x_bytes = (size_t)(s->batch * planes * s->side * s->side) * item;
    const size_t y_bytes = (size_t)(s->batch * planes * out * out) * item;
    const blocked_kernels *kernels = kernels_for(device, s);
    buffers b = {0};
    int64_t floats = 0;
    FTH_TRY(make_numbers(x_bytes, &b.x));
    FTH_TRY(make_numbers(y_bytes, &b.y));
    FTH_TRY(make_numbers((size_t)(s->channels * s->group * s->kernel * s->kernel) * 4, &b.weight));
    if (kernels) {
        const int64_t needs[] = {kernels->forward_floats(&c, threads), kernels->grad_input_floats(&c, threads),
                                 kernels->grad_weights_floats(&c, threads)};
        for (int i = 0; i < 3; i++)
            floats = needs[i] > floats ? needs[i] : floats;
    }
    FTH_TRY(make_numbers((size_t)floats * 4, &b.scratch));
    printf("| %d of %d, %d×%d, %d×%d, stride %d |", (int)s->channels, (int)s->group, (int)s->side, (int)s->side,
           s->kernel, s->kernel, s->stride);
    for (cpu_pass pass = CPU_FORWARD; pass <= CPU_GRAD_WEIGHTS; pass++) {
        primitive p = {0};
        double ms = 1e9, direct_ms = 1e9;
        status = make_direct(device, s, &c, pass, &p);
        for (int turn = 0; turn < TURNS && status == FTH_OK; turn++) {
            if (kernels)
                run_ours(kernels, &c, pass, threads, &b, &ms);
            status = run_direct(device, &p, &direct_ms);
        }
        free_primitive(&p);
        if (status != FTH_OK)
            goto out;
        printf(" %.2f | %.2f | %.2f |", kernels ? ms : 0.0, direct_ms, (double)(x_bytes + y_bytes) / bytes_per_ms);
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

int main(int argc, char **argv)
{
    fth_status status = FTH_OK;
    fth_device *device = NULL;
    const fth_device_options options = {.threads = argc > 1 ? atoi(argv[1]) : 0};
    const bool bf16 = argc > 2 && strcmp(argv[2], "bf16") == 0;
    double bytes_per_ms = 1;
    FTH_TRY(fth_device_open("cpu", &options, &device));
    device->backend->enter(device, device->threads);
    FTH_TRY(measure_memory(device->threads, &bytes_per_ms));
    printf("%s, %d threads, %s, copies at %.1f GB/s\n\n", device->description, device->threads, bf16 ? "bf16" : "f32",
           bytes_per_ms / 1e6);
    printf("| channels, map, kernel | forward | oneDNN | bytes | grad_input | oneDNN | bytes | grad_weights | oneDNN | "
           "bytes |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < sizeof every_size / sizeof *every_size; i++)
        FTH_TRY(measure((const cpu_device *)device, &every_size[i], device->threads, bf16, bytes_per_ms));
out:
    if (status != FTH_OK)
        fprintf(stderr, "bench_depthwise: %s\n", fth_error_message());
    fth_device_close(device);
    return status == FTH_OK ? 0 : 1;
}
