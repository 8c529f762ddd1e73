/* What is computed together with our Winograd convolutions, so that large tensors need not go to memory and back.
 *
 * Max pools by 2×2 behind one that nothing else reads (its tiles are whole cells of the pooling): the convolution's
 * output, the largest tensor of such a network, and its gradient then never exist. Forward, the convolution writes
 * maxima and their places; backward, it reads the gradients of the maxima as if they lay at those places, zeros around
 * them.
 *
 * The gradient of a ReLU before one: grad_input writes zeros where the ReLU's output is 0.
 *
 * The nodes stay as they are. Those that are left out add no steps (convolution forward, max_pool_grad, relu_grad), and
 * the others ask here what they are to read or write. As this changes when a value is last read, they must follow each
 * other. */
#include "backend/cpu/winograd_convolution.h"

static int node_count(const fth_plan *plan)
{
    const fth_graph *graph = fth_plan_graph(plan);
    return fth_plan_get_options(plan).mode == FTH_PLAN_TRAIN ? fth_graph_node_count(graph)
                                                             : fth_graph_forward_node_count(graph);
}

static const fth_node *producer_of(const fth_plan *plan, fth_value value)
{
    int producer = fth_graph_value(fth_plan_graph(plan), value)->producer;
    return producer >= 0 ? fth_graph_node(fth_plan_graph(plan), producer) : NULL;
}

/* True if all nodes that read `value` are among the `most` nodes behind the one that makes it, and there are any. */
static bool is_read_only_behind(const fth_plan *plan, fth_value value, int most)
{
    const fth_graph *graph = fth_plan_graph(plan);
    const int made = fth_graph_value(graph, value)->producer;
    bool read = false;
    for (int n = 0; n < node_count(plan); n++) {
        const fth_node *node = fth_graph_node(graph, n);
        for (int i = 0; i < node->input_count; i++) {
            if (node->inputs[i] != value)
                continue;
            if (n > made + most)
                return false;
            read = true;
        }
    }
    return read;
}

static bool is_winograd(const fth_plan *plan, const fth_node *convolution, cpu_pass pass)
{
    return cpu_convolution_chosen(plan, convolution, pass) == &cpu_winograd_convolution;
}

static bool is_pool_2x2(const fth_node *node)
{
    const fth_pool_attributes *a = node->attributes;
    return node->op == &fth_op_max_pool && a->kernel[0] == 2 && a->kernel[1] == 2 && a->stride[0] == 2 &&
           a->stride[1] == 2 && a->padding[0] == 0 && a->padding[1] == 0;
}

/* Whether the gradient goes from the pool straight into this convolution's gradients, or nowhere. */
static bool gradient_fits(const fth_plan *plan, const fth_node *pool)
{
    const fth_graph *graph = fth_plan_graph(plan);
    for (int n = 0; n < node_count(plan); n++) {
        const fth_node *gradient = fth_graph_node(graph, n);
        if (gradient->op != &fth_op_max_pool_grad || gradient->inputs[1] != pool->outputs[1])
            continue;
        if (!is_read_only_behind(plan, gradient->outputs[0], 2))
            return false;
        for (int r = n + 1; r <= n + 2 && r < node_count(plan); r++) {
            const fth_node *reader = fth_graph_node(graph, r);
            for (int i = 0; i < reader->input_count; i++) {
                if (reader->inputs[i] == gradient->outputs[0] && reader->op != &fth_op_convolution_grad_input &&
                    reader->op != &fth_op_convolution_grad_weights)
                    return false;
            }
        }
    }
    return true;
}

const fth_node *cpu_winograd_pool_of(const fth_plan *plan, const fth_node *convolution)
{
    const fth_graph *graph = fth_plan_graph(plan);
    const fth_convolution_attributes *a = convolution->attributes;
    const fth_value y = convolution->outputs[0];
    const int next = fth_graph_value(graph, y)->producer + 1;
    if (next >= node_count(plan) || y == fth_graph_logits(graph))
        return NULL;
    const fth_node *pool = fth_graph_node(graph, next);
    bool fits = is_pool_2x2(pool) && pool->inputs[0] == y && is_read_only_behind(plan, y, 1) && !a->relu &&
                a->padding[0] % 2 == a->padding[1] % 2 && gradient_fits(plan, pool) &&
                is_winograd(plan, convolution, CPU_FORWARD) && is_winograd(plan, convolution, CPU_GRAD_INPUT) &&
                is_winograd(plan, convolution, CPU_GRAD_WEIGHTS);
    return fits ? pool : NULL;
}

const fth_node *cpu_winograd_of_pool(const fth_plan *plan, const fth_node *node)
{
    const fth_node *pool = node->op == &fth_op_max_pool ? node : producer_of(plan, node->inputs[1]);
    const fth_node *convolution = producer_of(plan, pool->inputs[0]);
    if (!convolution || convolution->op != &fth_op_convolution)
        return NULL;
    return cpu_winograd_pool_of(plan, convolution) == pool ? convolution : NULL;
}

const fth_node *cpu_winograd_pool_gradient(const fth_plan *plan, fth_value dy)
{
    const fth_node *gradient = producer_of(plan, dy);
    if (!gradient || gradient->op != &fth_op_max_pool_grad)
        return NULL;
    return cpu_winograd_of_pool(plan, gradient) ? gradient : NULL;
}

const fth_node *cpu_winograd_relu_gradient_of(const fth_plan *plan, const fth_node *grad_input)
{
    const fth_graph *graph = fth_plan_graph(plan);
    const fth_value dx = grad_input->outputs[0];
    const int next = fth_graph_value(graph, dx)->producer + 1;
    if (next >= node_count(plan))
        return NULL;
    const fth_node *relu = fth_graph_node(graph, next);
    return relu->op == &fth_op_relu_grad && relu->inputs[1] == dx && is_read_only_behind(plan, dx, 1) ? relu : NULL;
}

bool cpu_winograd_makes_relu_gradient(const fth_plan *plan, const fth_node *relu_gradient)
{
    const fth_node *node = producer_of(plan, relu_gradient->inputs[1]);
    if (!node || node->op != &fth_op_convolution_grad_input)
        return false;
    return is_winograd(plan, node, CPU_GRAD_INPUT) && cpu_winograd_relu_gradient_of(plan, node) == relu_gradient;
}
