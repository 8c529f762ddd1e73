/* The ops (op_list.h): attributes, and for each a function that adds it to a graph.
 *
 * Images are (N, C, H, W), features (N, F). */
#ifndef FTH_GRAPH_OPS_H
#define FTH_GRAPH_OPS_H

#include "graph/expression.h"
#include "graph/graph.h"
#include "graph/op_list.h"

/* Every op there is; NULL-terminated. */
extern const fth_op *const fth_op_list[];

#define FTH_DECLARE(name) extern const fth_op fth_op_##name;
FTH_OPS(FTH_DECLARE)
#undef FTH_DECLARE

#define FTH_DECLARE(name)                                                                                              \
    extern const fth_op fth_op_##name, fth_op_##name##_grad;                                                           \
    fth_status fth_op_add_##name(fth_graph *graph, fth_value x, fth_value *y);
FTH_ACTIVATIONS(FTH_DECLARE)
#undef FTH_DECLARE

/* ---- convolution: x (N,C,H,W), weight (O, C/groups, KH, KW), [bias (O)] -> y ---- */
typedef struct fth_convolution_attributes {
    int stride[2], padding[2], dilation[2]; /* height, width; dilation 1 is dense */
    int groups;
    bool relu;             /* y = max(y, 0) */
    fth_shape input_shape; /* filled in by the rule; the gradient ops need it */
    int kernel[2];         /* filled in by the rule: the weight's height and width */
} fth_convolution_attributes;
fth_status fth_op_add_convolution(fth_graph *graph, fth_convolution_attributes attributes, fth_value x,
                                  fth_value weight, fth_value bias_or_none, fth_value *y);

/* Transposed convolution, the gradient of a convolution as a forward op: x (N,C,H,W), weight (C,
 * O/groups, KH, KW) -> y (N,O,...), stride * (H - 1) + dilation * (KH - 1) + 1 - 2 * padding +
 * output_padding high. output_padding must be less than the stride. The node is a
 * convolution_grad_input; `attributes` are those of that convolution. */
fth_status fth_op_add_transposed_convolution(fth_graph *graph, fth_convolution_attributes attributes,
                                             const int output_padding[2], fth_value x, fth_value weight,
                                             fth_value bias_or_none, fth_value *y);

/* ---- linear: x (N,F), weight (O,F), [bias (O)] -> y (N,O) ---- */
typedef struct fth_linear_attributes {
    bool relu;
    fth_shape input_shape; /* filled in by the rule */
} fth_linear_attributes;
fth_status fth_op_add_linear(fth_graph *graph, bool relu, fth_value x, fth_value weight, fth_value bias_or_none,
                             fth_value *y);

/* ---- batch_norm: x, scale, shift, running_mean, running_var, [residual] -> y, mean, variance, mask ----
 * y = [relu](normalized x * scale + shift [+ residual]). Training normalizes by the batch's statistics (biased
 * variance) and moves the running ones in place (unbiased variance, running += momentum * (new - running));
 * evaluation uses the running ones. mean and variance (C) are the batch's, kept for the gradient. mask (U8, shape of
 * x) is for the back end's own use and may be empty. The gradient's dresidual is unused without
 * residual. */
typedef struct fth_batch_norm_attributes {
    float epsilon, momentum;
    bool relu, residual;
    bool fixed; /* training, too, uses the running statistics and leaves them alone: constants of the gradient */
} fth_batch_norm_attributes;
fth_status fth_op_add_batch_norm(fth_graph *graph, fth_batch_norm_attributes attributes, fth_value x, fth_value scale,
                                 fth_value shift, fth_value running_mean, fth_value running_var,
                                 fth_value residual_or_none, fth_value *y);

/* ---- pooling over H and W ---- */
typedef struct fth_pool_attributes {
    int kernel[2], stride[2], padding[2];
    bool count_padding;    /* average only: padding counts in the divisor (PyTorch's default) */
    bool ceil;             /* the last window may reach beyond the padding, but begins before it (ceil_mode) */
    fth_shape input_shape; /* filled in by the rule */
} fth_pool_attributes;
fth_status fth_op_add_max_pool(fth_graph *graph, fth_pool_attributes attributes, fth_value x, fth_value *y);
fth_status fth_op_add_average_pool(fth_graph *graph, fth_pool_attributes attributes, fth_value x, fth_value *y);

/* Averages to a given size whatever the input's, windows as in PyTorch's AdaptiveAvgPool2d; 1×1 is
 * global pooling. */
typedef struct fth_adaptive_pool_attributes {
    int output[2];
    fth_shape input_shape; /* filled in by the rule */
} fth_adaptive_pool_attributes;
fth_status fth_op_add_adaptive_average_pool(fth_graph *graph, int height, int width, fth_value x, fth_value *y);
fth_status fth_op_add_global_average_pool(fth_graph *graph, fth_value x, fth_value *y); /* -> (N, C, 1, 1) */

/* ---- resize: images to a given size, as PyTorch does (backend/resize_place.h) ---- */
typedef struct fth_resize_attributes {
    int height, width;       /* of the output */
    bool bilinear;           /* else nearest */
    bool align_corners;      /* bilinear only: the corners' centres stay where they are */
    double scale_factors[2]; /* height, width: as PyTorch was given them; 0: they follow from the sizes */
    fth_shape input_shape;   /* filled in by the rule */
} fth_resize_attributes;
fth_status fth_op_add_resize(fth_graph *graph, fth_resize_attributes attributes, fth_value x, fth_value *y);

/* ---- add: a, b of one shape -> a + b [relu] ---- */
typedef struct fth_add_attributes {
    bool relu;
} fth_add_attributes;
fth_status fth_op_add_add(fth_graph *graph, bool relu, fth_value a, fth_value b, fth_value *y);

/* ---- ops that move elements, F32 or I32, and compute nothing ----
 * An axis that begins with the batch or tokens stays first and whole. */

/* constant: numbers that are a part of the graph, which copies them; of a fixed shape. */
fth_status fth_op_add_constant(fth_graph *graph, fth_type type, const void *data, fth_value *value);

/* concat: any number of inputs, one after the other along an axis. */
typedef struct fth_concat_attributes {
    int axis;
} fth_concat_attributes;
enum { FTH_MAX_CONCAT_INPUTS = 30 }; /* of one node; of more, several nodes are made */
fth_status fth_op_add_concat(fth_graph *graph, int axis, const fth_value *inputs, int input_count, fth_value *y);

/* slice: every step-th entry of an axis, from begin up to end. */
typedef struct fth_slice_attributes {
    int axis;
    int64_t begin, end, step;
} fth_slice_attributes;
fth_status fth_op_add_slice(fth_graph *graph, int axis, int64_t begin, int64_t end, int64_t step, fth_value x,
                            fth_value *y);

/* pad: entries of one value before, after and between those of an axis. */
typedef struct fth_pad_attributes {
    int axis;
    int64_t before, after;
    float value;     /* of F32; integers are padded with its whole part */
    int64_t between; /* so many between two neighbours; 0 but in the gradients of slices */
} fth_pad_attributes;
fth_status fth_op_add_pad(fth_graph *graph, fth_pad_attributes attributes, fth_value x, fth_value *y);

/* permute: y's axis i is x's axis axes[i]. */
typedef struct fth_permute_attributes {
    int axes[FTH_MAX_RANK];
} fth_permute_attributes;
fth_status fth_op_add_permute(fth_graph *graph, const int *axes, fth_value x, fth_value *y);

/* gather: entry k of an axis of y is entry indices[k] of x's; indices (K) I32 is a constant. The
 * gradient adds up dy's entries order[ends[i - 1]], ..., order[ends[i] - 1] for entry i, in this
 * order. */
typedef struct fth_gather_attributes {
    int axis;
    int64_t size; /* of x's axis */
} fth_gather_attributes;
fth_status fth_op_add_gather(fth_graph *graph, int axis, fth_value x, fth_value indices, fth_value *y);

/* reshape: another shape for the same elements, in the same row-major order. Factors may move
 * between dims[0] and the others, (197N, 768) <-> (N, 197, 768): each sample keeps its elements.
 * flatten: (N, ...) -> (N, F). */
typedef struct fth_reshape_attributes {
    fth_shape shape;
} fth_reshape_attributes;
fth_status fth_op_add_reshape(fth_graph *graph, fth_shape shape, fth_value x, fth_value *y);
fth_status fth_op_add_flatten(fth_graph *graph, fth_value x, fth_value *y);

/* ---- dropout: keeps each element with probability 1-p and scales it by 1/(1-p); identity in evaluation ----
 * Element i (logical row-major index) is kept iff fth_dropout_keeps(...). It is counted from the
 * first row of the whole batch: behind the rows of fth_run.first_sample samples, or of first_token
 * tokens. Its gradient is the same op on dy. */
typedef struct fth_dropout_attributes {
    float probability;
    uint32_t id; /* unique among the graph's dropout, layer_norm and attention nodes; set by the add function */
} fth_dropout_attributes;
fth_status fth_op_add_dropout(fth_graph *graph, float probability, fth_value x, fth_value *y);

/* The key of one dropout in one run; see fth_run in backend.h. */
static inline fth_random_key fth_dropout_key(uint64_t seed, uint64_t run_step, uint32_t id)
{
    return fth_random_fork(fth_random_fork(fth_random_key_for(seed, FTH_RANDOM_DROPOUT), run_step), id);
}
/* Drop where the element's 32 random bits are below this. */
static inline uint32_t fth_dropout_threshold(float probability)
{
    return (uint32_t)((double)probability * 4294967295.0);
}
/* One draw serves two neighbours: the low half element 2k, the high half element 2k+1. */
static inline bool fth_dropout_keeps(fth_random_key key, uint32_t threshold, uint64_t element)
{
    uint64_t bits = fth_random_bits(key, element >> 1);
    return (uint32_t)(bits >> (32 * (element & 1))) >= threshold;
}

/* ---- text: sequences of different lengths, one behind the other ----
 *
 * The tokens of a batch's sequences are rows of one matrix, (T, F), without padding between them.
 * `ends` (N) I32 says behind which row each sequence ends; it begins where the one before ends, and
 * has a token at least. T, FTH_TOKENS, is what a plan has room for: rows behind the last end belong
 * to no sequence. Ops over rows compute them like any other (they are finite), and attention gives
 * zeros for them, so that nothing of them reaches another row, the loss or a gradient. */

/* embedding: y = the sum over i of tables[i][ids[i]]; ids (T) I32 within the table (V, F) -> y (T,
 * F). The gradient adds up rows in the order of tokens, so it is the same from run to run. */
enum { FTH_MAX_EMBEDDINGS = 4 };
typedef struct fth_embedding_attributes {
    int64_t padding; /* the row of the first table that has no gradient, as padding_idx in PyTorch; -1: none */
    int64_t rows;    /* of the table; of embedding_grad alone */
} fth_embedding_attributes;
fth_status fth_op_add_embedding(fth_graph *graph, int64_t padding, const fth_value *ids, const fth_value *tables,
                                int count, fth_value *y);

/* layer_norm: x (R, F), scale (F), shift (F), [residual (R, F)] -> y, sum, statistics (R, 2) sum =
 * dropout(x) + residual; y = (sum - mean) / sqrt(variance + epsilon) * scale + shift, over each
 * row. `sum` and the mean and 1/sqrt(variance + epsilon) of each row are kept for the gradient,
 * which reads x in the place of `sum` where that is the same. dresidual is the gradient of `sum`,
 * unused without residual, and without dropout, where dx is that. */
typedef struct fth_layer_norm_attributes {
    float epsilon;
    float probability; /* of dropout; 0: none */
    uint32_t dropout;  /* its id; set by the add function */
    bool residual;     /* set by the add function */
} fth_layer_norm_attributes;
fth_status fth_op_add_layer_norm(fth_graph *graph, fth_layer_norm_attributes attributes, fth_value x, fth_value scale,
                                 fth_value shift, fth_value residual_or_none, fth_value *y);

/* qkv_linear: three linear layers of one input as one product: x (T, F), weights 3 of (O, F),
 * biases 3 of (O) -> y (T, 3 O), query, key and value beside each other. The gradients of the three
 * weights are finished in one step, so that they, and the weights, follow one another in the flat
 * vectors wherever all three are trained. */
fth_status fth_op_add_qkv_linear(fth_graph *graph, fth_value x, const fth_value weights[3], const fth_value biases[3],
                                 fth_value *y);

/* attention: qkv (T, 3 H D), ends (N) -> y (T, H D), statistics (T, H): within each sequence, for
 * each of H heads, dropout(softmax(query · keyᵀ / sqrt(D))) · value. statistics: the logarithm of
 * each row's sum of exponentials, for the gradient. */
typedef struct fth_attention_attributes {
    int heads;
    int longest;       /* no sequence has more tokens */
    float probability; /* of dropout; 0: none */
    uint32_t dropout;  /* its id; set by the add function */
} fth_attention_attributes;
fth_status fth_op_add_attention(fth_graph *graph, fth_attention_attributes attributes, fth_value qkv, fth_value ends,
                                fth_value *y);

/* Which of attention's probabilities are kept: one draw serves four neighbouring keys, 16 bits
 * each. `token` is the query's row, counted from the first token of the whole batch
 * (fth_run.first_token), `key` the place in its sequence. */
static inline uint64_t fth_attention_draw(fth_random_key random, uint64_t token, int heads, int head, int key)
{
    return fth_random_bits(random, (token * (uint64_t)heads + (uint64_t)head) << 16 | (uint64_t)(key >> 2));
}
static inline bool fth_attention_keeps(uint64_t draw, uint32_t threshold, int key)
{
    return (uint32_t)(draw >> (16 * (key & 3)) & 0xffff) >= threshold;
}
/* Drop where the 16 bits are below this. */
static inline uint32_t fth_attention_threshold(float probability)
{
    return (uint32_t)((double)probability * 65536.0 + 0.5);
}

/* first_tokens: x (T, F), ends (N) -> y (N, F), the first row of each sequence. The gradient's
 * other rows are zero. */
fth_status fth_op_add_first_tokens(fth_graph *graph, fth_value x, fth_value ends, fth_value *y);

/* matrix_product: a (N, M, K), b (N, K, P) -> y (N, M, P); each may be given transposed. Its
 * gradients are matrix products. */
typedef struct fth_matrix_product_attributes {
    bool transpose_a, transpose_b; /* a is (N, K, M), b is (N, P, K) */
} fth_matrix_product_attributes;
fth_status fth_op_add_matrix_product(fth_graph *graph, fth_matrix_product_attributes attributes, fth_value a,
                                     fth_value b, fth_value *y);

/* ---- softmax, normalize, attention among sequences of one length ---- */

/* softmax over the last axis: x (..., F) -> y */
typedef struct fth_softmax_attributes {
    bool log; /* y = log(softmax(x)) */
} fth_softmax_attributes;
fth_status fth_op_add_softmax(fth_graph *graph, bool log, fth_value x, fth_value *y);

/* normalize: x (R, F) -> y, inverse (R): y = (x - mean) * inverse, inverse = 1 / sqrt(variance +
 * epsilon) over each row (biased variance); with rms y = x * inverse, inverse = 1 / sqrt(mean of x²
 * + epsilon). The gradient reads y. Scale and shift are left to other ops; layer_norm has them in
 * one. */
typedef struct fth_normalize_attributes {
    float epsilon;
    bool rms;
} fth_normalize_attributes;
fth_status fth_op_add_normalize(fth_graph *graph, float epsilon, bool rms, fth_value x, fth_value *y);

/* dot_product_attention: q (B * queries, heads * D), k (B * keys, heads * D), v (B * keys, heads *
 * Dv), [mask] -> y (B * queries, heads * Dv), statistics (B * queries, heads): for each of B
 * sequences and each head, dropout(softmax(scale * q · kᵀ + mask)) · v. B is a multiple of the
 * batch, or fixed where nothing depends on the inputs; the rows of one sequence follow one another.
 * Causal: query i sees keys 0 to i. Where a query sees no key, as all of its mask is -infinity, y
 * is zero and no gradient flows. Draws of dropout are those of attention, by the query's row in the
 * whole batch.
 *
 * The mask is F32 (M, heads or 1, queries or 1, keys); sequence b has entry b % M. M divides the
 * sequences of one sample, or is B itself. It gets a gradient.
 *
 * Where q, k and v are the columns [0, F), [F, 2F) and [2F, 3F) of one value (R, 3F), cut out by
 * slice, the node reads that value itself: nothing is copied, and its gradient is made in one
 * piece.
 *
 * statistics: the logarithm of each row's sum of exponentials, +infinity where a query sees no key.
 * The gradient's outputs that belong to no input have shape (1) and are unused. */
typedef struct fth_dot_product_attention_attributes {
    int heads;
    int64_t queries, keys; /* of a sequence */
    bool causal;
    float scale;       /* of scores: 1 / sqrt(D) as a rule */
    float probability; /* of dropout; 0: none */
    uint32_t dropout;  /* its id; this and the rest are set by the add function */
    bool mask;         /* there is one: the input after q, k and v */
    bool packed;       /* q, k and v are one input, (R, 3F) */
} fth_dot_product_attention_attributes;
fth_status fth_op_add_dot_product_attention(fth_graph *graph, fth_dot_product_attention_attributes attributes,
                                            fth_value q, fth_value k, fth_value v, fth_value mask_or_none,
                                            fth_value *y);

/* ---- pointwise: an expression (expression.h) of up to 9 inputs, F32 or I32, -> y ----
 * Inputs are broadcast as in NumPy; a batch only fits a batch or 1. `shape`: the result's, larger
 * than that of the inputs together. At kinks, gradients are PyTorch's. */
typedef struct fth_pointwise_attributes {
    fth_expression expression;
    bool expands; /* to `shape` */
    fth_shape shape;
} fth_pointwise_attributes;
fth_status fth_op_add_pointwise(fth_graph *graph, const fth_expression *expression, const fth_value *inputs, int count,
                                const fth_shape *shape_or_null, fth_value *y);
/* Merges each pointwise node into its only reader where that is one, too, of the same shape, and
 * less memory is then read and written in both passes. Call it before fth_graph_differentiate(),
 * and after fth_graph_set_outputs(): what is merged has no value any more. */
fth_status fth_graph_fuse_pointwise(fth_graph *graph);

/* ---- reduce: sums, means, and largest or smallest numbers along axes; NaN stays NaN ----
 * Only sums go over the batch. A gradient spreads evenly over equal largest or smallest numbers.
 * Gradients of pointwise reduce an expression of several inputs, which are broadcast. */
typedef struct fth_reduce_attributes {
    fth_reduction reduction;
    unsigned axes;             /* bit i: axis i */
    unsigned kept;             /* those of them that stay, with dimension 1 */
    fth_expression expression; /* all zero: the input itself */
} fth_reduce_attributes;
fth_status fth_op_add_reduce(fth_graph *graph, fth_reduction reduction, unsigned axes, bool keep, fth_value x,
                             fth_value *y);

/* ---- LSTM and GRU, as PyTorch's nn.LSTM and nn.GRU ---- */

typedef enum fth_recurrent_kind {
    FTH_LSTM, /* gates i, f, g, o */
    FTH_GRU   /* gates r, z, n */
} fth_recurrent_kind;
int fth_recurrent_gates(fth_recurrent_kind kind); /* 4, 3 */

/* recurrent: the steps of one layer in one direction. projected (B * length, G H), the products of
 * all steps' inputs with weight_ih, weight_hh (G H, H), [bias_hh (G H)], [h0 (B, H), and c0 (B, H)
 * of an LSTM; zero without] -> y (B * length, H), gates (B * length, G H) and cells (B * length, H)
 * for the gradient, last h and last c (B, H); the rows of a sequence follow one another. cells: c
 * of an LSTM; of a GRU what the gate r is multiplied with. last c of a GRU is unused. The gradient
 * has dc of an LSTM alone. */
typedef struct fth_recurrent_attributes {
    fth_recurrent_kind kind;
    int64_t length;              /* steps of a sequence */
    bool reverse;                /* from the last step to the first */
    bool bias, initial;          /* which inputs there are */
    bool has_dy, has_dh, has_dc; /* of the gradient alone: y, last h, last c have one */
} fth_recurrent_attributes;

/* Layers and directions: x (N, length, I) -> y (N, length, D H), and the last states h and c (N, S
 * H), each or NULL, with D directions and S = layers * D states beside each other, in PyTorch's
 * order; x may have a multiple of the batch. `parameters` are, for each layer and in it for each
 * direction, weight_ih, weight_hh, [bias_ih, bias_hh]. The states to begin with, (N, S H) as well,
 * are zero where there are none. Dropout is on the outputs of all layers but the last. */
enum { FTH_MAX_RECURRENT = 30 }; /* layers times directions */
typedef struct fth_recurrent_options {
    fth_recurrent_kind kind;
    int layers;
    bool bidirectional, bias;
    float dropout;
} fth_recurrent_options;
fth_status fth_op_add_recurrent(fth_graph *graph, fth_recurrent_options options, fth_value x,
                                const fth_value *parameters, int parameter_count, fth_value h0_or_none,
                                fth_value c0_or_none, fth_value *y, fth_value *h, fth_value *c);

/* ---- losses; gradients are scaled alike ---- */

/* squared_error: outputs (R, C), targets (R, C) F32 -> loss (2): the mean of (output - target)²,
 * and 0.
 *
 * sigmoid_cross_entropy: logits (R, C), targets (R, C) F32 of 0 and 1 -> loss (2): the mean over
 * all labels as PyTorch's BCEWithLogitsLoss, and the number of rows all of whose labels are right
 * (logit > 0 where the target is 1). */
fth_status fth_op_add_squared_error(fth_graph *graph, fth_value outputs, fth_value targets, fth_value *loss);
fth_status fth_op_add_sigmoid_cross_entropy(fth_graph *graph, fth_value logits, fth_value targets, fth_value *loss);

/* softmax_cross_entropy: logits (R, C), labels (R) I32 -> loss (2), probabilities (R, C), count
 * (1). R is the batch or a multiple of it (tokens, pixels). A label of FTH_IGNORED_LABEL, PyTorch's
 * ignore_index, leaves its row out: the loss is the mean over the rows that count, `count` of them,
 * and how many of these are predicted right; both are 0 where no row counts. With smoothing s the
 * target is (1-s) * one_hot + s/C, as in PyTorch. The gradient is (probabilities - target) * run's
 * gradient_scale / count, and 0 in rows that do not count.
 *
 * The gradients of a batch's parts add up to those of the whole where each part's gradient_scale is
 * its share of the labels that count. Its share of the samples is the same wherever every sample
 * has as many of these, as in next-token prediction at one length; elsewhere the sum is a weighted
 * mean of the parts' means, as with PyTorch's DistributedDataParallel and gradient accumulation. */
enum { FTH_IGNORED_LABEL = -100 };
typedef struct fth_cross_entropy_attributes {
    float label_smoothing;
} fth_cross_entropy_attributes;
fth_status fth_op_add_softmax_cross_entropy(fth_graph *graph, float label_smoothing, fth_value logits, fth_value labels,
                                            fth_value *loss);

#endif
