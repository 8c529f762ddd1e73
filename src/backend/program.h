/* An expression (graph/expression.h) as kernels run it: numbers in f32, and results in few slots,
 * each used again once nothing reads it any more. What a step computes goes to its slot, where it
 * has one, and is at hand for the next step in any case. */
#ifndef FTH_BACKEND_PROGRAM_H
#define FTH_BACKEND_PROGRAM_H

#include <stdint.h>

#include "graph/function_list.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Operands: inputs are numbered from 0, the others from these. */
enum {
    FTH_PROGRAM_NUMBERS = 16, /* numbers[operand - FTH_PROGRAM_NUMBERS] */
    FTH_PROGRAM_SLOTS = 64,   /* slot operand - FTH_PROGRAM_SLOTS */
    FTH_PROGRAM_LAST = 254,   /* the result of the step before */
    FTH_PROGRAM_NONE = 255,
};

/* What no program needs more slots than: every step takes three results and leaves one, so that
 * fewer than half as many steps as slots can bring them together. */
enum { FTH_PROGRAM_MAX_SLOTS = FTH_EXPRESSION_STEPS * 2 / 3 + 1 };

typedef struct fth_program_step {
    uint8_t function; /* fth_expression_function */
    uint8_t operands[3];
    uint8_t slot; /* FTH_PROGRAM_NONE: only the next step reads the result */
} fth_program_step;

/* The result is that of the last step, or `result` where there are no steps. */
typedef struct fth_program {
    uint8_t step_count, slot_count, result;
    fth_program_step steps[FTH_EXPRESSION_STEPS];
    float numbers[FTH_EXPRESSION_NUMBERS];
} fth_program;

/* `expression` is pruned. */
struct fth_expression;
void fth_program_compile(const struct fth_expression *expression, fth_program *program);

#ifdef __cplusplus
}
#endif

#endif
