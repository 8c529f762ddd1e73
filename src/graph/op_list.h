/* The list of ops, from which they are declared (ops.h) and listed (op_list.c). A new op is its rule file, op_NAME.c, and
 * its row here; what attributes it has and how it is added to a graph are in its section of ops.h. */
#ifndef FTH_GRAPH_OP_LIST_H
#define FTH_GRAPH_OP_LIST_H

/* Elementwise, x -> y. A row declares fth_op_NAME, its gradient fth_op_NAME_grad (x or y, dy -> dx), and
 * fth_op_add_NAME(graph, x, &y): nothing of it is in ops.h. */
#define FTH_ACTIVATIONS(ROW)                                                                                           \
    ROW(relu) /* the gradient reads y: dy where y > 0 */                                                               \
    ROW(gelu) /* exact (erf); the gradient reads x */

/* All others, with their inputs and outputs; the ops of gradients are added by fth_graph_differentiate() alone. */
#define FTH_OPS(ROW)                                                                                                   \
    ROW(convolution)              /* x, weight, [bias] -> y */                                                         \
    ROW(convolution_grad_input)   /* dy, weight -> dx */                                                               \
    ROW(convolution_grad_weights) /* x, dy -> dweight, dbias (dbias always; unused if no bias) */                      \
    ROW(linear)                   /* x, weight, [bias] -> y */                                                         \
    ROW(linear_grad_input)        /* dy, weight -> dx */                                                               \
    ROW(linear_grad_weights)      /* x, dy -> dweight, dbias */                                                        \
    ROW(batch_norm)            /* x, scale, shift, running_mean, running_var, [residual] -> y, mean, variance, mask */ \
    ROW(batch_norm_grad)       /* x, y, dy, scale, mean, variance, mask -> dx, dscale, dshift, dresidual */            \
    ROW(max_pool)              /* x -> y, where (I32, shape of y: for the back end's own use) */                       \
    ROW(max_pool_grad)         /* dy, where -> dx */                                                                   \
    ROW(average_pool)          /* x -> y */                                                                            \
    ROW(average_pool_grad)     /* dy -> dx */                                                                          \
    ROW(adaptive_average_pool) /* x -> y */                                                                            \
    ROW(adaptive_average_pool_grad) /* dy -> dx */                                                                     \
    ROW(add)                        /* a, b -> y; its gradient is dy itself (through relu_grad) for both */            \
    ROW(concat)                     /* x... -> y */                                                                    \
    ROW(slice)                      /* y -> y[:, begin:end] */                                                         \
    ROW(pad)                        /* x -> y; its gradient is a slice */                                              \
    ROW(reshape)                    /* x -> y; row-major order of the logical elements is kept */                      \
    ROW(dropout)                    /* x -> y; its gradient is the same op on dy */                                    \
    ROW(softmax_cross_entropy)      /* logits, labels -> loss, probabilities */                                        \
    ROW(softmax_cross_entropy_grad) /* probabilities, labels -> dlogits */

#endif
