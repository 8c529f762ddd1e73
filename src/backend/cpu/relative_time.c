/* Estimates how long a training step takes in bf16 relative to f32 from the shapes of the network's
 * products: whether bf16 pays depends on them, and on the available instructions, far more than on
 * anything else.
 *
 * The speeds below are those of one Sapphire Rapids core on layers of common sizes; only their
 * ratios matter. With AMX, bf16 pays for wide layers. Without it, products in bf16 are faster than
 * in f32 only on AMD's processors. Elsewhere they are computed in f32, which costs the conversion
 * of operands and results, and other ops gain because they move half the bytes. Convolutions with
 * few channels always compute in f32 (convolution.h). */
#include "backend/cpu/relative_time.h"

#include <math.h>

#include "backend/cpu/narrow.h"

enum { TILE_SIDE = 32 };

/* GFLOP/s in f32; those of Winograd's 3×3, with stride 1 and 2, count products as if they were
 * direct. */
static const double convolution_speed = 150, winograd_speed = 350, strided_speed = 210, narrow_speed = 90,
                    linear_speed = 150;
static const double amx_speed = 650;
static const double ns_per_row = 6;                     /* to round and write a row of a tile's results */
static const double ns_per_gather = 10, ns_per_run = 6; /* a run: adjacent pixels of fewer than 32 channels */
static const double ns_per_conversion = 0.15;           /* per number, between f32 and bf16 */
static const double bytes_per_ns = 6;                   /* for results that are not products */

/* The share of a tile's side, or of several tiles' sides, that is used. */
static double used(int64_t size)
{
    const int64_t sides = (size + TILE_SIDE - 1) / TILE_SIDE;
    return (double)size / (double)(sides * TILE_SIDE);
}

/* y (positions, outputs) from `taps` taps of `channels` channels each; `read`: how many numbers are
 * read. */
typedef struct product {
    double positions, read;
    int64_t channels, outputs, rows_of_taps, taps;
    bool convolution, winograd, strided, narrow, grouped;
} product;

/* Nanoseconds on one core. */
typedef struct times {
    double f32, bf16;
} times;

static double time_amx(const product *p, double work)
{
    double time = work / (amx_speed * used(p->outputs) * used(p->channels * p->taps)) +
                  p->positions * ns_per_row * (double)((p->outputs + TILE_SIDE - 1) / TILE_SIDE);
    if (p->channels % TILE_SIDE != 0)
        time += p->positions * (ns_per_gather + (double)p->rows_of_taps * ns_per_run);
    return time;
}

static times time_product(const cpu_device *device, const product *p)
{
    const double work = 2 * p->positions * (double)(p->channels * p->taps) * (double)p->outputs;
    const double direct = p->convolution ? convolution_speed : linear_speed;
    const double converted = p->read + p->positions * (double)p->outputs;
    times t = {.f32 = work / (p->narrow     ? narrow_speed
                              : p->winograd ? winograd_speed
                              : p->strided  ? strided_speed
                                            : direct)};
    if (p->narrow)
        t.bf16 = t.f32;
    else if (device->products && !p->grouped)
        t.bf16 = time_amx(p, work);
    else if (device->bf16_gain > 1)
        t.bf16 = fmin(t.f32 + converted * ns_per_conversion, work / (direct * device->bf16_gain));
    else
        t.bf16 = t.f32 + converted * ns_per_conversion;
    return t;
}

/* ---- nodes ---- */

typedef struct estimate {
    const cpu_device *device;
    const fth_graph *graph;
    int64_t batch;
    times sum;
} estimate;

static fth_shape shape_of(const estimate *e, fth_value value)
{
    enum { TOKENS = 64 }; /* per sample */
    const fth_shape shape = fth_shape_with_batch(&fth_graph_value(e->graph, value)->type.shape, e->batch);
    return fth_shape_with_tokens(&shape, TOKENS * e->batch);
}

static product convolution_of(const fth_convolution_attributes *a, const fth_shape *weight, const fth_shape *y)
{
    const int64_t *w = weight->dims;
    const double positions = (double)(y->dims[0] * y->dims[2] * y->dims[3]);
    const bool dense = a->stride[0] == 1 && a->stride[1] == 1 && a->groups == 1;
    return (product){.positions = positions,
                     .read = positions * (double)(a->stride[0] * a->stride[1] * w[1] * a->groups),
                     .channels = w[1],
                     .outputs = w[0],
                     .rows_of_taps = w[2],
                     .taps = w[2] * w[3],
                     .convolution = true,
                     .winograd = dense && w[2] == 3 && w[3] == 3 && w[1] >= 16 && w[0] >= 16,
                     .strided = a->stride[0] == 2 && a->stride[1] == 2 && a->groups == 1 && w[2] == 3 && w[3] == 3 &&
                                w[1] >= 32 && w[0] >= 32,
                     .narrow = dense && w[1] <= NARROW_MAX_CHANNELS && w[0] <= NARROW_MAX_CHANNELS,
                     .grouped = a->groups > 1};
}

static product linear_of(const fth_shape *weight, const fth_shape *y)
{
    return (product){.positions = (double)y->dims[0],
                     .read = (double)(y->dims[0] * weight->dims[1]),
                     .channels = weight->dims[1],
                     .outputs = y->dims[1],
                     .rows_of_taps = 1,
                     .taps = 1};
}

/* Finds the op's weight and y, whichever pass the node is. */
static bool product_of(const estimate *e, const fth_node *node, product *p)
{
    static const struct {
        const fth_op *op;
        bool convolution, weight_is_output;
        int weight, y; /* y: the number of an input; -1: the first output */
    } products[] = {{&fth_op_convolution, true, false, 1, -1},
                    {&fth_op_convolution_grad_input, true, false, 1, 0},
                    {&fth_op_convolution_grad_weights, true, true, 0, 1},
                    {&fth_op_linear, false, false, 1, -1},
                    {&fth_op_linear_grad_input, false, false, 1, 0},
                    {&fth_op_linear_grad_weights, false, true, 0, 1},
                    {&fth_op_qkv_linear, false, false, 1, -1},
                    {&fth_op_qkv_linear_grad_input, false, false, 1, 0},
                    {&fth_op_qkv_linear_grad_weights, false, true, 0, 1}};
    for (size_t i = 0; i < FTH_COUNT_OF(products); i++) {
        if (node->op != products[i].op)
            continue;
        const fth_shape weight =
            shape_of(e, products[i].weight_is_output ? node->outputs[0] : node->inputs[products[i].weight]);
        const fth_shape y = shape_of(e, products[i].y < 0 ? node->outputs[0] : node->inputs[products[i].y]);
        *p = products[i].convolution ? convolution_of(node->attributes, &weight, &y) : linear_of(&weight, &y);
        return true;
    }
    return false;
}

static void add_node(estimate *e, const fth_node *node)
{
    product p;
    if (product_of(e, node, &p)) {
        const times t = time_product(e->device, &p);
        e->sum.f32 += t.f32;
        e->sum.bf16 += t.bf16;
        return;
    }
    for (int i = 0; i < node->output_count; i++) {
        const fth_shape shape = shape_of(e, node->outputs[i]);
        const double count = (double)fth_shape_count(&shape);
        e->sum.f32 += count * 4 / bytes_per_ns;
        e->sum.bf16 += count * 2 / bytes_per_ns;
    }
}

double cpu_relative_time(fth_device *device, const fth_graph *graph, int64_t batch, fth_precision precision)
{
    estimate e = {.device = (const cpu_device *)device, .graph = graph, .batch = batch};
#if !defined(__x86_64__)
    return 1; /* unknown */
#endif
    if (precision != FTH_PRECISION_BF16)
        return 1;
    for (int n = 0; n < fth_graph_node_count(graph); n++)
        add_node(&e, fth_graph_node(graph, n));
    return e.sum.f32 > 0 ? e.sum.bf16 / e.sum.f32 : 1;
}
