/* The list of ops, from which they are declared (ops.h) and listed (op_list.c). A new op is its
 * rule file, op_NAME.c, and its row here; what attributes it has and how it is added to a graph are
 * in its section of ops.h. */
#ifndef FTH_GRAPH_OP_LIST_H
#define FTH_GRAPH_OP_LIST_H

/* Elementwise, x -> y. A row declares fth_op_NAME, its gradient fth_op_NAME_grad (x or y, dy ->
 * dx), and fth_op_add_NAME(graph, x, &y): nothing of it is in ops.h. */
#define FTH_ACTIVATIONS(ROW)                                                                                           \
    ROW(relu)      /* the gradient reads y: dy where y > 0 */                                                          \
    ROW(gelu)      /* exact (erf); the gradient reads x */                                                             \
    ROW(gelu_tanh) /* the approximation by tanh; the gradient reads x */                                               \
    ROW(tanh)      /* the gradient reads y: dy * (1 - y²) */

/* All others, with their inputs and outputs; the ops of gradients are added by
 * fth_graph_differentiate() alone. */
#define FTH_OPS(ROW)                                                                                                   \
    ROW(convolution)              /* x, weight, [bias] -> y */                                                         \
    ROW(convolution_grad_input)   /* dy, weight -> dx; forward, a transposed convolution */                            \
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
    ROW(resize)                     /* x -> y */                                                                       \
    ROW(resize_grad)                /* dy -> dx */                                                                     \
    ROW(add)                        /* a, b -> y; its gradient is dy itself (through relu_grad) for both */            \
    ROW(concat)                     /* x... -> y; its gradients are slices */                                          \
    ROW(slice)                      /* x -> x[begin:end:step]; its gradient is a pad */                                \
    ROW(pad)                        /* x -> y; its gradient is a slice */                                              \
    ROW(permute)                    /* x -> y, axes in another order; its gradient is a permute */                     \
    ROW(gather)                     /* x, indices -> y */                                                              \
    ROW(gather_grad)                /* dy, order, ends -> dx */                                                        \
    ROW(reshape)                    /* x -> y; row-major order of the logical elements is kept */                      \
    ROW(dropout)                    /* x -> y; its gradient is the same op on dy */                                    \
    ROW(softmax_cross_entropy)      /* logits, labels -> loss, probabilities, count */                                 \
    ROW(softmax_cross_entropy_grad) /* probabilities, labels, count -> dlogits */                                      \
    ROW(squared_error)              /* outputs, targets -> loss */                                                     \
    ROW(squared_error_grad)         /* outputs, targets -> doutputs */                                                 \
    ROW(sigmoid_cross_entropy)      /* logits, targets -> loss */                                                      \
    ROW(sigmoid_cross_entropy_grad) /* logits, targets -> dlogits */                                                   \
    ROW(embedding)                  /* ids..., tables... -> y */                                                       \
    ROW(embedding_grad)             /* ids, dy -> dtable; one for each table */                                        \
    ROW(layer_norm)                 /* x, scale, shift, [residual] -> y, sum, statistics */                            \
    ROW(layer_norm_grad)            /* sum, dy, scale, statistics -> dx, dscale, dshift, dresidual */                  \
    ROW(qkv_linear)                 /* x, 3 weights, 3 biases -> y */                                                  \
    ROW(qkv_linear_grad_input)      /* dy, 3 weights -> dx */                                                          \
    ROW(qkv_linear_grad_weights)    /* x, dy -> 3 dweights, 3 dbiases */                                               \
    ROW(attention)                  /* qkv, ends -> y, statistics */                                                   \
    ROW(attention_grad)             /* qkv, ends, y, statistics, dy -> dqkv */                                         \
    ROW(first_tokens)               /* x, ends -> y */                                                                 \
    ROW(first_tokens_grad)          /* dy, ends -> dx */                                                               \
    ROW(matrix_product)             /* a, b -> y */                                                                    \
    ROW(softmax)                    /* x -> y */                                                                       \
    ROW(softmax_grad)               /* y, dy -> dx */                                                                  \
    ROW(normalize)                  /* x -> y, inverse */                                                              \
    ROW(normalize_grad)             /* y, dy, inverse -> dx */                                                         \
    ROW(dot_product_attention)      /* q, k, v or all in one, [mask] -> y, statistics */                               \
    ROW(dot_product_attention_grad) /* q, k, v or all in one, [mask], y, statistics, dy -> dq, dk, dv, dmask */        \
    ROW(recurrent)                  /* projected, weight, [bias], [h0, [c0]] -> y, gates, cells, h, c */               \
    ROW(recurrent_grad)             /* weight, gates, cells, y, [h0, [c0]], [dy], [dh], [dc] -> five gradients */      \
    ROW(pointwise)                  /* x... -> y; its gradients are pointwise and reduce */                            \
    ROW(reduce)                     /* x... -> y */

#endif
