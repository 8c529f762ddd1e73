/* The time of attention and of its gradient alone: bench_attention DEVICE PRECISION HEADS SIZE
 * LENGTH SEQUENCES DROPOUT THREADS [full|causal]. Prints milliseconds of both, each the best of many
 * runs. With the last argument it is dot_product_attention, else attention of packed sequences. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/plan.h"
#include "graph/ops.h"

typedef struct shape {
    int heads, size, length, sequences;
    float dropout;
    const char *kind; /* "full", "causal"; NULL: of packed sequences */
} shape;

/* A table of queries, keys and values, whose rows the tokens are -> attention -> first tokens ->
 * loss. */
static fth_status build(const shape *with, fth_graph **graph)
{
    fth_status status = FTH_OK;
    const int64_t features = (int64_t)with->heads * with->size;
    fth_value tokens, ends, labels, table, x, loss;
    FTH_TRY(fth_graph_create(graph));
    FTH_TRY(fth_graph_add_input(*graph, "tokens", FTH_I32, FTH_SHAPE(FTH_TOKENS), &tokens));
    FTH_TRY(fth_graph_add_input(*graph, "ends", FTH_I32, FTH_SHAPE(FTH_BATCH), &ends));
    FTH_TRY(fth_graph_add_input(*graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    FTH_TRY(fth_graph_add_parameter(*graph, "table", FTH_SHAPE(1000, 3 * features),
                                    (fth_initializer){FTH_INIT_NORMAL, 1}, &table));
    FTH_TRY(fth_op_add_embedding(*graph, -1, &tokens, &table, 1, &x));
    FTH_TRY(fth_op_add_attention(
        *graph, (fth_attention_attributes){.heads = with->heads, .longest = with->length, .probability = with->dropout},
        x, ends, &x));
    FTH_TRY(fth_op_add_first_tokens(*graph, x, ends, &x));
    FTH_TRY(fth_op_add_softmax_cross_entropy(*graph, 0, x, labels, &loss));
    fth_graph_set_outputs(*graph, x, loss);
    FTH_TRY(fth_graph_differentiate(*graph));
out:
    return status;
}

/* Rows -> queries, keys and values -> attention -> loss of each row. */
static fth_status build_even(const shape *with, fth_graph **graph)
{
    fth_status status = FTH_OK;
    enum { WIDTH = 8, CLASSES = 2 };
    const int64_t features = (int64_t)with->heads * with->size, rows = fth_batch_times(with->length);
    const fth_initializer normal = {FTH_INIT_NORMAL, 0.3};
    fth_value x, labels, weight, parts[3], loss;
    FTH_TRY(fth_graph_create(graph));
    FTH_TRY(fth_graph_add_input(*graph, "tokens", FTH_F32, FTH_SHAPE(rows, WIDTH), &x));
    FTH_TRY(fth_graph_add_input(*graph, "labels", FTH_I32, FTH_SHAPE(rows), &labels));
    FTH_TRY(fth_graph_add_parameter(*graph, "all", FTH_SHAPE(3 * features, WIDTH), normal, &weight));
    FTH_TRY(fth_op_add_linear(*graph, false, x, weight, FTH_NO_VALUE, &x));
    for (int i = 0; i < 3; i++)
        FTH_TRY(fth_op_add_slice(*graph, 1, i * features, (i + 1) * features, 1, x, &parts[i]));
    const fth_dot_product_attention_attributes attention = {.heads = with->heads,
                                                            .queries = with->length,
                                                            .keys = with->length,
                                                            .causal = strcmp(with->kind, "causal") == 0,
                                                            .scale = 0.125f,
                                                            .probability = with->dropout};
    FTH_TRY(fth_op_add_dot_product_attention(*graph, attention, parts[0], parts[1], parts[2], FTH_NO_VALUE, &x));
    FTH_TRY(fth_graph_add_parameter(*graph, "head", FTH_SHAPE(CLASSES, features), normal, &weight));
    FTH_TRY(fth_op_add_linear(*graph, false, x, weight, FTH_NO_VALUE, &x));
    FTH_TRY(fth_op_add_softmax_cross_entropy(*graph, 0, x, labels, &loss));
    fth_graph_set_outputs(*graph, x, loss);
    FTH_TRY(fth_graph_differentiate(*graph));
out:
    return status;
}

static void fill_even(fth_plan *plan, const fth_graph *graph, const shape *with)
{
    float *x = fth_plan_input(plan, fth_graph_find(graph, "tokens"));
    int32_t *labels = fth_plan_input(plan, fth_graph_find(graph, "labels"));
    for (int t = 0; t < 8 * with->length * with->sequences; t++)
        x[t] = (float)(t * 7 % 13) / 4 - 1;
    memset(labels, 0, (size_t)(with->length * with->sequences) * sizeof *labels);
}

/* Before each run: plans may use the memory of inputs for something else once they are read. */
static void fill(fth_plan *plan, const fth_graph *graph, const shape *with)
{
    int32_t *tokens = fth_plan_input(plan, fth_graph_find(graph, "tokens"));
    int32_t *ends = fth_plan_input(plan, fth_graph_find(graph, "ends"));
    for (int t = 0; t < with->length * with->sequences; t++)
        tokens[t] = t * 7 % 1000;
    int32_t *labels = fth_plan_input(plan, fth_graph_find(graph, "labels"));
    for (int n = 0; n < with->sequences; n++) {
        ends[n] = (n + 1) * with->length;
        labels[n] = 0;
    }
}

/* Best times, in seconds, of the steps of attention and of its gradient. */
static fth_status measure(fth_plan *plan, const fth_graph *graph, const shape *with, double best[2])
{
    fth_status status = FTH_OK;
    double *seconds = NULL;
    const int steps = fth_plan_step_count(plan);
    const double begin = fth_clock_seconds();
    best[0] = best[1] = 1e9;
    FTH_TRY(fth_allocate((size_t)steps, sizeof *seconds, &seconds));
    for (int i = 0; i < 3 || (i < 200 && fth_clock_seconds() - begin < 1.5); i++) {
        memset(seconds, 0, (size_t)steps * sizeof *seconds);
        (with->kind ? fill_even : fill)(plan, graph, with);
        FTH_TRY(fth_plan_run(plan, &(fth_run){.seed = 1, .step = 1, .gradient_scale = 1, .step_seconds = seconds}));
        for (int s = 0; s < steps; s++) {
            const fth_op *op = fth_graph_node(graph, fth_plan_step_node(plan, s))->op;
            if ((op == &fth_op_attention || op == &fth_op_dot_product_attention) && seconds[s] < best[0])
                best[0] = seconds[s];
            if ((op == &fth_op_attention_grad || op == &fth_op_dot_product_attention_grad) && seconds[s] < best[1])
                best[1] = seconds[s];
        }
    }
out:
    free(seconds);
    return status;
}

static fth_status run(const char *device_name, bool bf16, const shape *with, int threads)
{
    fth_status status = FTH_OK;
    fth_graph *graph = NULL;
    fth_device *device = NULL;
    fth_plan *plan = NULL;
    void *arena = NULL, *parameters = NULL, *gradients = NULL, *buffers = NULL;
    double best[2];
    FTH_TRY((with->kind ? build_even : build)(with, &graph));
    FTH_TRY(fth_device_open(device_name, &(fth_device_options){.threads = threads}, &device));
    FTH_TRY(fth_plan_create(graph, device,
                            (fth_plan_options){.batch = with->sequences,
                                               .tokens = with->kind ? 0 : (int64_t)with->length * with->sequences,
                                               .precision = bf16 ? FTH_PRECISION_BF16 : FTH_PRECISION_F32},
                            &plan));
    const size_t bytes = fth_graph_parameter_floats(graph) * sizeof(float);
    FTH_TRY(device->backend->allocate(device, fth_plan_arena_bytes(plan), &arena));
    FTH_TRY(device->backend->allocate(device, bytes, &parameters));
    FTH_TRY(device->backend->allocate(device, bytes, &gradients));
    FTH_TRY(device->backend->allocate(device, 64, &buffers));
    FTH_TRY(fth_plan_bind(plan, arena, (fth_vectors){parameters, gradients, buffers}));
    fth_graph_initialize(graph, 1, parameters, buffers);
    FTH_TRY(measure(plan, graph, with, best));
    printf("%.4f %.4f\n", 1e3 * best[0], 1e3 * best[1]);
out:
    fth_plan_free(plan);
    if (device) {
        device->backend->release(device, arena);
        device->backend->release(device, parameters);
        device->backend->release(device, gradients);
        device->backend->release(device, buffers);
    }
    fth_device_close(device);
    fth_graph_free(graph);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 9 && argc != 10) {
        fprintf(stderr, "usage: %s DEVICE f32|bf16 HEADS SIZE LENGTH SEQUENCES DROPOUT THREADS [full|causal]\n",
                argv[0]);
        return 2;
    }
    const shape with = {atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), atoi(argv[6]), (float)atof(argv[7]), argv[9]};
    if (run(argv[1], strcmp(argv[2], "bf16") == 0, &with, atoi(argv[8])) == FTH_OK)
        return 0;
    fprintf(stderr, "%s\n", fth_error_message());
    return 1;
}
