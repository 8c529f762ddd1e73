/* Expressions: small programs of elementwise functions, the attributes of the ops pointwise and
 * reduce.
 *
 * A step applies a function to inputs, numbers and the results of earlier steps. Steps are added
 * with fth_expression_apply(), which simplifies as it goes: it computes what is constant, drops
 * what changes nothing, and finds a step again that is there already. */
#ifndef FTH_GRAPH_EXPRESSION_H
#define FTH_GRAPH_EXPRESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "graph/function_list.h"
#include "tensor/tensor.h"

typedef enum fth_operand_kind {
    FTH_OPERAND_INPUT,
    FTH_OPERAND_STEP,
    FTH_OPERAND_NUMBER,
    FTH_OPERAND_NONE
} fth_operand_kind;

typedef struct fth_operand {
    uint8_t kind; /* fth_operand_kind */
    uint8_t index;
} fth_operand;

#define FTH_NO_OPERAND ((fth_operand){FTH_OPERAND_NONE, 0})

typedef struct fth_expression_step {
    uint8_t function; /* fth_expression_function */
    fth_operand operands[3];
} fth_expression_step;

/* All zero: the first input itself. Copied as it is. */
typedef struct fth_expression {
    fth_operand result; /* what the last fth_expression_apply() gave */
    uint8_t step_count, number_count;
    bool overfull; /* more was added than there is room for: adding it to a graph fails */
    fth_expression_step steps[FTH_EXPRESSION_STEPS];
    double numbers[FTH_EXPRESSION_NUMBERS];
} fth_expression;

const char *fth_expression_function_name(fth_expression_function function);
int fth_expression_function_arity(fth_expression_function function);

fth_operand fth_expression_input(int input);
fth_operand fth_expression_number(fth_expression *expression, double number);
/* Operands beyond the function's are ignored. The last call's is the expression's result. */
fth_operand fth_expression_apply(fth_expression *expression, fth_expression_function function, fth_operand a,
                                 fth_operand b, fth_operand c);

double fth_expression_evaluate(const fth_expression *expression, const double *inputs);
bool fth_expression_equal(const fth_expression *a, const fth_expression *b);
bool fth_operand_equal(fth_operand a, fth_operand b);
/* How many inputs it reads: bit i is set if input i is one of them. */
unsigned fth_expression_inputs(const fth_expression *expression);
/* Drops the steps and numbers that the result does not depend on. */
void fth_expression_prune(fth_expression *expression);
/* Gives the inputs other numbers: i becomes to[i]. */
void fth_expression_renumber(fth_expression *expression, const int to[FTH_EXPRESSION_INPUTS]);
/* Appends the steps of `inner`, whose input i is inputs[i]; gives its result, which becomes the
 * expression's. */
fth_operand fth_expression_append(fth_expression *expression, const fth_expression *inner,
                                  const fth_operand inputs[FTH_EXPRESSION_INPUTS]);

/* The gradient of the result with respect to input `of`, times input `dy`, as PyTorch defines it
 * where there is none. False if it is 0 everywhere. */
bool fth_expression_differentiate(const fth_expression *expression, int of, int dy, fth_expression *gradient);

/* ---- broadcasting, as in NumPy: shapes are aligned at their last axes, and a dimension of 1 is
 * repeated ---- */

/* Widens `shape` so that `more` fits in; false if they do not fit together. */
bool fth_shape_broadcast(fth_shape *shape, const fth_shape *more);
/* How far apart the elements of an input lie along each axis of `shape`, to which it is broadcast:
 * 0 where it is repeated. Batches are resolved, and the input is row-major. */
void fth_shape_broadcast_strides(const fth_shape *input, const fth_shape *shape, int64_t strides[FTH_MAX_RANK]);

#endif
