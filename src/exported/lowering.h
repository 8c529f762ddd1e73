/* The lowering of one program, as the rules of operators see it: what they read of the current node,
 * and what they leave as its results. A rule is a function and a row of a table (lowering_rules). */
#ifndef FTH_EXPORTED_LOWERING_H
#define FTH_EXPORTED_LOWERING_H

#include "exported/fold.h"
#include "exported/lower.h"
#include "exported/view.h"
#include "graph/ops.h"

typedef struct lowering lowering;

typedef fth_status lowering_rule(lowering *l);

typedef struct lowering_row {
    const char *name; /* "conv2d": of every overload, in place ("relu_") or not */
    lowering_rule *rule;
} lowering_row;

/* Tables of rules; each ends with a NULL name. */
extern const lowering_row lowering_layers[], lowering_images[], lowering_views[], lowering_copies[], lowering_parts[],
    lowering_joins[], lowering_functions[], lowering_products[], lowering_attention[], lowering_reductions[],
    lowering_noises[], lowering_recurrent[];

/* An op whose only reader may become a part of it: it is added when the reader is known. */
typedef struct lowering_pending {
    enum { LOWERING_CONVOLUTION, LOWERING_LINEAR, LOWERING_BATCH_NORM, LOWERING_ADD } kind;
    fth_value inputs[6]; /* of the op; FTH_NO_VALUE for one that is left out */
    union {
        fth_convolution_attributes convolution;
        fth_batch_norm_attributes batch_norm;
    };
} lowering_pending;

fth_graph *lowering_graph(const lowering *l);
const fth_exported_lower_options *lowering_options(const lowering *l);
const fth_exported_node *lowering_node(const lowering *l);
/* True if the node's operator is "relu": of any overload, in place or not. */
bool lowering_is(const lowering *l, const char *name);

/* ---- arguments of the node, by their names in PyTorch's schema ---- */

/* Left out, or None. */
bool lowering_lacks(const lowering *l, const char *name);
/* A tensor; its graph value has the dtype F32, or I32 of integers. */
fth_status lowering_tensor(lowering *l, const char *name, fth_view *view);
/* One of a list, and how many there are. */
size_t lowering_tensor_count(const lowering *l, const char *name);
fth_status lowering_tensor_of(lowering *l, const char *name, size_t index, fth_view *view);
/* The parameter or buffer itself, in its own shape; FTH_NO_VALUE for None. */
fth_status lowering_state(lowering *l, const char *name, fth_value *value);
/* The same of one that there must be. */
fth_status lowering_required_state(lowering *l, const char *name, fth_value *value);

/* Numbers; `otherwise` where the file leaves them out. */
int64_t lowering_int(const lowering *l, const char *name, int64_t otherwise);
double lowering_number(const lowering *l, const char *name, double otherwise);
bool lowering_bool(const lowering *l, const char *name, bool otherwise);
const char *lowering_text(const lowering *l, const char *name, const char *otherwise);
/* True of a scalar: an integer, a float or a truth value. */
bool lowering_is_number(const lowering *l, const char *name);
/* `count` integers, each of a list or all the only one; *given is how many the list has. Fails for
 * sizes that depend on the batch. */
fth_status lowering_ints(const lowering *l, const char *name, int64_t otherwise, int64_t *ints, size_t count);
size_t lowering_int_count(const lowering *l, const char *name);
/* A dimension, counted from the end if it is negative. */
fth_status lowering_dim(const lowering *l, const char *name, int64_t otherwise, int rank, int *dim);
/* Dimensions as bits; all where there are none. */
fth_status lowering_dims(const lowering *l, const char *name, int rank, unsigned *dims);

/* What the program says of it; NULL if it is no tensor. */
const fth_exported_value *lowering_argument(const lowering *l, const char *name);
/* True of a tensor of integers or truth values, and of the latter alone. */
bool lowering_is_integer(const lowering *l, const char *name);
bool lowering_is_truth(const lowering *l, const char *name);
/* A constant's numbers, if the argument is one: lent. */
const fth_host_tensor *lowering_constant(lowering *l, const char *name);
const fth_host_tensor *lowering_constant_of(lowering *l, const char *name, size_t index);
/* Constant numbers in the graph: I32 of integers, else F32. */
fth_status lowering_add_constant(lowering *l, const fth_host_tensor *tensor, fth_view *view);

/* ---- results ---- */

/* What the program says of an output. */
const fth_exported_value *lowering_output(const lowering *l, size_t index);
/* False of an output that nothing needs. */
bool lowering_is_read(const lowering *l, size_t index);
void lowering_set(lowering *l, size_t index, const fth_view *view);
/* A result of a single output whose op may take its reader in; `view` has everything but the value. */
fth_status lowering_set_pending(lowering *l, const lowering_pending *pending, const fth_view *view);
/* The pending op of an argument with no other reader, or NULL. */
const lowering_pending *lowering_pending_of(const lowering *l, const char *name);
/* The same, and now the caller's. */
bool lowering_take_pending(lowering *l, const char *name, lowering_pending *pending, fth_view *view);
/* Adds a pending op, with a ReLU behind it or not. */
fth_status lowering_add_pending(lowering *l, const lowering_pending *pending, bool relu, fth_value *value);

/* A tensor of noise for each sample that multiplies: kept with the probability `keep`, and scaled by
 * 1 / keep or not. See lower_noise.c. */
typedef struct lowering_noise {
    enum { LOWERING_NO_NOISE, LOWERING_EMPTY, LOWERING_KEPT, LOWERING_SCALED } kind;
    double keep;
} lowering_noise;
lowering_noise lowering_noise_of(const lowering *l, const char *name);
void lowering_set_noise(lowering *l, lowering_noise noise, const fth_view *view);
/* A division that makes kept noise scaled. */
fth_status lowering_divide_noise(lowering *l, bool *done);
/* The noise itself, for a reader that is no product; `view` has everything but the value. */
fth_status lowering_add_noise(lowering *l, lowering_noise noise, fth_view *view);

/* ---- shared by rules ---- */

/* An elementwise function of nothing but its operands. */
fth_status lowering_simple_function(lowering *l);
/* Of a node that took a part of a tensor, "slice" or "select": the tensor with another in its place. */
fth_status lowering_put_part(lowering *l, const fth_view *part, fth_view *whole);
/* The part [begin, end) of a dimension, and views joined along one; `parts` are changed. */
fth_status lowering_take(lowering *l, const fth_view *whole, int dim, int64_t begin, int64_t end, fth_view *part);
fth_status lowering_join(lowering *l, fth_view *parts, size_t count, int dim, fth_view *y);
/* x through an expression of one operand, in whatever order it is in memory. */
fth_status lowering_apply(lowering *l, const fth_expression *expression, fth_view *x);
/* y = expression(views), which broadcast. */
fth_status lowering_combine(lowering *l, const fth_expression *expression, fth_view *const *views, int count,
                            fth_view *y);
/* y = x * y and the like, of two. */
fth_status lowering_binary(lowering *l, fth_expression_function function, fth_view *a, fth_view *b, fth_view *y);
/* The rows of x: everything but the last `features` dimensions, merged, and those, merged, as (R, F).
 * The result of an op over rows has the same memory with other features. */
fth_status lowering_rows(lowering *l, fth_view *x, int features);
fth_status lowering_rows_result(const fth_view *x, int features, int64_t size, fth_value value, fth_view *y);
/* The input of a layer over images, as (N, C, H, W): of (N, C) and (N, C, L) with dimensions of 1. */
fth_status lowering_image(lowering *l, const char *name, int fewest_rank, fth_view *x);
/* What such a layer made, with the rank that PyTorch gives it. */
fth_status lowering_image_result(lowering *l, fth_value value, fth_view *y);
/* Reduces x over dimensions, which are then of size 1. */
fth_status lowering_reduce(lowering *l, fth_reduction kind, unsigned dims, fth_view *x);
/* y (C) as a view that broadcasts along dimension `dim` of a tensor of that rank. */
fth_status lowering_along(lowering *l, fth_value value, int rank, int dim, fth_view *y);

#endif
