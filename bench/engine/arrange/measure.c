/* The time of ops that move elements: bench_arrange DEVICE THREADS [bf16]. Prints for each case the
 * best time of its forward and backward steps, in milliseconds, and beside it that of a memcpy() of
 * as many bytes by one thread; with BENCH_STEPS set, that of every step. Images are plain, or in
 * the layout that a convolution leaves behind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/plan.h"
#include "graph/ops.h"

typedef struct moving {
    const char *name;
    int batch, channels, height, width;
    bool convolved; /* the image is a convolution's */
    fth_status (*add)(fth_graph *graph, fth_value x, fth_value *y);
} moving;

static const fth_initializer normal = {FTH_INIT_NORMAL, 0.1};

static const int64_t *dims_of(const fth_graph *graph, fth_value x)
{
    return fth_graph_value(graph, x)->type.shape.dims;
}

static fth_status to_last(fth_graph *graph, fth_value x, fth_value *y)
{
    return fth_op_add_permute(graph, (const int[]){0, 2, 3, 1}, x, y);
}

static fth_status to_first(fth_graph *graph, fth_value x, fth_value *y)
{
    return fth_op_add_permute(graph, (const int[]){0, 3, 1, 2}, x, y);
}

static fth_status swap_middle(fth_graph *graph, fth_value x, fth_value *y)
{
    return fth_op_add_permute(graph, (const int[]){0, 2, 1, 3}, x, y);
}

static fth_status shuffle(fth_graph *graph, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    const int64_t c = dims_of(graph, x)[1], h = dims_of(graph, x)[2], w = dims_of(graph, x)[3];
    FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(FTH_BATCH, 2, c / 2, h, w), x, &x));
    FTH_TRY(fth_op_add_permute(graph, (const int[]){0, 2, 1, 3, 4}, x, &x));
    FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(FTH_BATCH, c, h, w), x, y));
out:
    return status;
}

static fth_status halve(fth_graph *graph, fth_value x, fth_value *y)
{
    return fth_op_add_slice(graph, 1, 0, dims_of(graph, x)[1] / 2, 1, x, y);
}

static fth_status every_other(fth_graph *graph, fth_value x, fth_value *y)
{
    return fth_op_add_slice(graph, 3, 0, dims_of(graph, x)[3], 2, x, y);
}

static fth_status twice(fth_graph *graph, fth_value x, fth_value *y)
{
    return fth_op_add_concat(graph, 1, (const fth_value[]){x, x}, 2, y);
}

static fth_status frame(fth_graph *graph, fth_value x, fth_value *y)
{
    return fth_op_add_pad(graph, (fth_pad_attributes){.axis = 3, .before = 1, .after = 1}, x, y);
}

static const moving cases[] = {
    {"(N,C,H,W) to (N,H,W,C), plain", 16, 96, 56, 56, false, to_last},
    {"the same, of a convolution", 16, 96, 56, 56, true, to_last},
    {"the same, 384 of 14x14", 16, 384, 14, 14, true, to_last},
    {"the same, 58 of 28x28", 32, 58, 28, 28, true, to_last},
    {"(N,H,W,C) to (N,C,H,W), plain", 16, 56, 56, 96, false, to_first},
    {"heads: (N,L,H,D) to (N,H,L,D)", 16, 197, 12, 64, false, swap_middle},
    {"channel shuffle, plain", 32, 116, 28, 28, false, shuffle},
    {"channel shuffle of a convolution, 116", 32, 116, 28, 28, true, shuffle},
    {"channel shuffle of a convolution, 64", 32, 64, 28, 28, true, shuffle},
    {"half of the channels", 32, 64, 56, 56, true, halve},
    {"half of the channels, 116", 32, 116, 28, 28, true, halve},
    {"every other column", 16, 96, 56, 56, false, every_other},
    {"channels twice", 16, 64, 56, 56, true, twice},
    {"columns around", 16, 64, 56, 56, false, frame},
};

static fth_status build(const moving *with, fth_graph **graph)
{
    fth_status status = FTH_OK;
    const fth_convolution_attributes dense = {.stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
    fth_value x, labels, weight, loss;
    FTH_TRY(fth_graph_create(graph));
    FTH_TRY(fth_graph_add_input(*graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    FTH_TRY(fth_graph_add_input(*graph, "images", FTH_F32,
                                FTH_SHAPE(FTH_BATCH, with->convolved ? 32 : with->channels, with->height, with->width),
                                &x));
    if (with->convolved) {
        FTH_TRY(fth_graph_add_parameter(*graph, "weight", FTH_SHAPE(with->channels, 32, 1, 1), normal, &weight));
        FTH_TRY(fth_op_add_convolution(*graph, dense, x, weight, FTH_NO_VALUE, &x));
    }
    FTH_TRY(with->add(*graph, x, &x));
    if (with->add == shuffle && with->convolved) { /* whose reader is another */
        FTH_TRY(
            fth_graph_add_parameter(*graph, "after", FTH_SHAPE(with->channels, with->channels, 1, 1), normal, &weight));
        FTH_TRY(fth_op_add_convolution(*graph, dense, x, weight, FTH_NO_VALUE, &x));
    }
    FTH_TRY(fth_op_add_flatten(*graph, x, &x));
    FTH_TRY(fth_graph_add_parameter(*graph, "head", FTH_SHAPE(2, dims_of(*graph, x)[1]), normal, &weight));
    FTH_TRY(fth_op_add_linear(*graph, false, x, weight, FTH_NO_VALUE, &x));
    FTH_TRY(fth_op_add_softmax_cross_entropy(*graph, 0, x, labels, &loss));
    fth_graph_set_outputs(*graph, x, loss);
    FTH_TRY(fth_graph_differentiate(*graph));
out:
    return status;
}

/* Best times, in seconds, of the steps that move, forward and backward. */
static fth_status measure(fth_plan *plan, const fth_graph *graph, int batch, double best[2])
{
    fth_status status = FTH_OK;
    double *seconds = NULL, *step_best = NULL;
    const int steps = fth_plan_step_count(plan);
    const double begin = fth_clock_seconds();
    best[0] = best[1] = 1e9;
    FTH_TRY(fth_allocate((size_t)steps, sizeof *seconds, &seconds));
    FTH_TRY(fth_allocate((size_t)steps, sizeof *step_best, &step_best));
    for (int s = 0; s < steps; s++)
        step_best[s] = 1e9;
    for (int i = 0; i < 5 || (i < 400 && fth_clock_seconds() - begin < 1.5); i++) {
        double sums[2] = {0, 0};
        memset(seconds, 0, (size_t)steps * sizeof *seconds);
        memset(fth_plan_input(plan, fth_graph_find(graph, "labels")), 0, (size_t)batch * sizeof(int32_t));
        FTH_TRY(fth_plan_run(plan, &(fth_run){.seed = 1, .step = 1, .gradient_scale = 1, .step_seconds = seconds}));
        for (int s = 0; s < steps; s++) {
            const fth_op *op = fth_graph_node(graph, fth_plan_step_node(plan, s))->op;
            const bool moves = op == &fth_op_permute || op == &fth_op_slice || op == &fth_op_pad ||
                               op == &fth_op_concat || op == &fth_op_reshape;
            if (moves)
                sums[fth_plan_step_node(plan, s) >= fth_graph_forward_node_count(graph)] += seconds[s];
            step_best[s] = seconds[s] < step_best[s] ? seconds[s] : step_best[s];
        }
        for (int p = 0; p < 2; p++)
            best[p] = sums[p] < best[p] ? sums[p] : best[p];
    }
    for (int s = 0; s < steps && getenv("BENCH_STEPS"); s++)
        printf("    %8.3f %s, of %s\n", 1e3 * step_best[s], fth_plan_step_name(plan, s),
               fth_graph_node(graph, fth_plan_step_node(plan, s))->op->name);
out:
    free(step_best);
    free(seconds);
    return status;
}

static double measure_memcpy(size_t bytes)
{
    double best = 1e9;
    char *from = malloc(bytes), *to = malloc(bytes);
    for (int i = 0; from && to && i < 30; i++) {
        memset(from, i, bytes);
        const double begin = fth_clock_seconds();
        memcpy(to, from, bytes);
        const double taken = fth_clock_seconds() - begin;
        best = taken < best ? taken : best;
    }
    free(from);
    free(to);
    return best;
}

static fth_status run(fth_device *device, bool bf16, const moving *with)
{
    fth_status status = FTH_OK;
    const fth_backend *backend = device->backend;
    fth_graph *graph = NULL;
    fth_plan *plan = NULL;
    void *arena = NULL, *parameters = NULL, *gradients = NULL, *buffers = NULL;
    double best[2];
    const size_t elements = (size_t)with->batch * (size_t)with->channels * (size_t)with->height * (size_t)with->width;
    FTH_TRY(build(with, &graph));
    FTH_TRY(fth_plan_create(
        graph, device,
        (fth_plan_options){.batch = with->batch, .precision = bf16 ? FTH_PRECISION_BF16 : FTH_PRECISION_F32}, &plan));
    const size_t bytes = fth_graph_parameter_floats(graph) * sizeof(float);
    FTH_TRY(backend->allocate(device, fth_plan_arena_bytes(plan), &arena));
    FTH_TRY(backend->allocate(device, bytes, &parameters));
    FTH_TRY(backend->allocate(device, bytes, &gradients));
    FTH_TRY(backend->allocate(device, 64, &buffers));
    FTH_TRY(fth_plan_bind(plan, arena, (fth_vectors){parameters, gradients, buffers}));
    memset(arena, 0, fth_plan_arena_bytes(plan));
    fth_graph_initialize(graph, 1, parameters, buffers);
    FTH_TRY(measure(plan, graph, with->batch, best));
    printf("%-40s %8.3f %8.3f %8.3f\n", with->name, 1e3 * best[0], 1e3 * best[1],
           1e3 * measure_memcpy(elements * (bf16 ? 2 : 4)));
out:
    fth_plan_free(plan);
    backend->release(device, arena);
    backend->release(device, parameters);
    backend->release(device, gradients);
    backend->release(device, buffers);
    fth_graph_free(graph);
    return status;
}

int main(int argc, char **argv)
{
    fth_device *device = NULL;
    fth_status status;
    if (argc < 3) {
        fprintf(stderr, "usage: %s DEVICE THREADS [bf16]\n", argv[0]);
        return 2;
    }
    status = fth_device_open(argv[1], &(fth_device_options){.threads = atoi(argv[2])}, &device);
    printf("%-40s %8s %8s %8s\n", "ms", "forward", "backward", "memcpy");
    for (size_t i = 0; status == FTH_OK && i < FTH_COUNT_OF(cases); i++)
        status = run(device, argc > 3, &cases[i]);
    if (status != FTH_OK)
        fprintf(stderr, "%s\n", fth_error_message());
    fth_device_close(device);
    return status != FTH_OK;
}
