/* What is computed together with our Winograd convolutions, so that large tensors need not go to
 * memory and back.
 *
 * Max pools by 2×2 behind one that nothing else reads (its tiles are whole cells of the pooling):
 * the convolution's output, the largest tensor of such a network, and its gradient then never
 * exist. Forward, the convolution writes maxima and their places; backward, it reads the gradients
 * of the maxima as if they lay at those places, zeros around them.
 *
 * The gradient of a ReLU before one: grad_input writes zeros where the ReLU's output is 0.
 *
 * The nodes stay as they are. Those that are left out add no steps (convolution forward,
 * max_pool_grad, relu_grad), and the others ask here what they are to read or write. As this
 * changes when a value is last read, they must follow each other. */
#include "backend/cpu/neighbours.h"
#include "backend/cpu/winograd_convolution.h"

static bool is_winograd(const fth_plan *plan, const fth_node *convolution, cpu_pass pass)
{
    return cpu_convolution_chosen(plan, convolution, pass) == &cpu_winograd_convolution;
}

static bool is_pool_2x2(const fth_node *node)
{
    const fth_pool_attributes *a = node->attributes;
    return node->op == &fth_op_max_pool && a->kernel[0] == 2 && a->kernel[1] == 2 && a->stride[0] == 2 &&
           a->stride[1] == 2 && a->padding[0] == 0 && a->padding[1] == 0 && !a->ceil;
}

/* Whether the gradient goes from the pool straight into this convolution's gradients, or
 * nowhere. */
static bool gradient_fits(const fth_plan *plan, const fth_node *pool)
{
    const fth_graph *graph = fth_plan_graph(plan);
    for (int n = 0; n < cpu_node_count(plan); n++) {
        const fth_node *gradient = fth_graph_node(graph, n);
        if (gradient->op != &fth_op_max_pool_grad || gradient->inputs[1] != pool->outputs[1])
            continue;
        if (!cpu_is_read_only_behind(plan, gradient->outputs[0], 2))
            return false;
        for (int r = n + 1; r <= n + 2 && r < cpu_node_count(plan); r++) {
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
    if (next >= cpu_node_count(plan) || y == fth_graph_logits(graph))
        return NULL;
    const fth_node *pool = fth_graph_node(graph, next);
    bool fits = is_pool_2x2(pool) && pool->inputs[0] == y && cpu_is_read_only_behind(plan, y, 1) && !a->relu &&
                a->padding[0] % 2 == a->padding[1] % 2 && gradient_fits(plan, pool) &&
                is_winograd(plan, convolution, CPU_FORWARD) && is_winograd(plan, convolution, CPU_GRAD_INPUT) &&
                is_winograd(plan, convolution, CPU_GRAD_WEIGHTS);
    return fits ? pool : NULL;
}

const fth_node *cpu_winograd_of_pool(const fth_plan *plan, const fth_node *node)
{
    const fth_node *pool = node->op == &fth_op_max_pool ? node : cpu_producer_of(plan, node->inputs[1]);
    const fth_node *convolution = cpu_producer_of(plan, pool->inputs[0]);
    if (!convolution || convolution->op != &fth_op_convolution)
        return NULL;
    return cpu_winograd_pool_of(plan, convolution) == pool ? convolution : NULL;
}

const fth_node *cpu_winograd_pool_gradient(const fth_plan *plan, fth_value dy)
{
    const fth_node *gradient = cpu_producer_of(plan, dy);
    if (!gradient || gradient->op != &fth_op_max_pool_grad)
        return NULL;
    return cpu_winograd_of_pool(plan, gradient) ? gradient : NULL;
}

const fth_node *cpu_winograd_relu_gradient_of(const fth_plan *plan, const fth_node *grad_input)
{
    const fth_node *relu = cpu_only_reader_behind(plan, grad_input->outputs[0]);
    return relu && relu->op == &fth_op_relu_grad && relu->inputs[1] == grad_input->outputs[0] ? relu : NULL;
}

bool cpu_winograd_makes_relu_gradient(const fth_plan *plan, const fth_node *relu_gradient)
{
    const fth_node *node = cpu_producer_of(plan, relu_gradient->inputs[1]);
    if (!node || node->op != &fth_op_convolution_grad_input)
        return false;
    return is_winograd(plan, node, CPU_GRAD_INPUT) && cpu_winograd_relu_gradient_of(plan, node) == relu_gradient;
}
