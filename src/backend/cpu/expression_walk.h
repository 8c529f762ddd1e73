/* Walks through the elements of several values at once, for expressions (expression.c, reduce.c).
 *
 * A walk has axes, the last fastest, and the strides of each input along them: 0 where the input is
 * repeated. The last axis is a row, or the last two are, where the last is short, as with channels
 * in blocks: a row of blocks. Inputs are read a chunk at a time: in place where an input has the chunk's numbers one
 * after the other as floats, and else through a buffer that stays in the nearest cache. */
#ifndef FTH_BACKEND_CPU_EXPRESSION_WALK_H
#define FTH_BACKEND_CPU_EXPRESSION_WALK_H

#include "backend/cpu/cpu_internal.h"
#include "backend/cpu/expression.h"

enum { WALK_AXES = FTH_MAX_RANK + 1, WALK_OPERANDS = FTH_EXPRESSION_INPUTS + 1 };

/* A last axis of at most so many numbers makes blocks of a row. */
enum { WALK_BLOCK = EXPRESSION_CHUNK / 2 };

typedef enum walk_type { WALK_F32, WALK_BF16, WALK_I32 } walk_type;

/* Strides are those of the inputs and, last (WALK_RESULT), of a result. */
enum { WALK_RESULT = FTH_EXPRESSION_INPUTS };
typedef struct walk_axes {
    int rank;
    int64_t count; /* the product of sizes */
    int64_t sizes[WALK_AXES];
    int64_t strides[WALK_OPERANDS][WALK_AXES];
} walk_axes;

typedef struct expression_walk {
    const expression_kernels *kernels;
    fth_program program;
    int input_count;
    int64_t row, block;                    /* numbers of a row, and of a block in it; without blocks: row */
    int64_t row_strides[WALK_OPERANDS][2]; /* of blocks, and within one */
    int64_t kept;                          /* numbers of the last block of channels that are not padding */
    walk_type types[FTH_EXPRESSION_INPUTS];
    const void *data[FTH_EXPRESSION_INPUTS];
} expression_walk;

/* What one thread needs. */
typedef struct walk_buffers {
    float inputs[FTH_EXPRESSION_INPUTS][EXPRESSION_CHUNK];
    float slots[FTH_PROGRAM_MAX_SLOTS + 1][EXPRESSION_CHUNK];
    float numbers[FTH_EXPRESSION_NUMBERS][EXPRESSION_CHUNK];
    float result[EXPRESSION_CHUNK];
    int64_t repeated[FTH_EXPRESSION_INPUTS]; /* where what fills inputs[i] was read; -1: none */
} walk_buffers;

/* A place along axes, and where each operand has its element. */
typedef struct walk_place {
    int64_t at[WALK_AXES];
    int64_t offsets[WALK_OPERANDS];
} walk_place;

/* The layout of the first of a node's inputs that has the shape and is not plain; or plain. */
cpu_format cpu_expression_base(const fth_plan *plan, const fth_node *node, const fth_shape *shape);
/* A step's name: the op and its functions. */
void cpu_expression_name(const fth_node *node, const fth_expression *expression, char *name, size_t size);

/* ---- axes, while a plan is made ---- */

/* One dimension of what is walked through: whole, or the blocks of channels, or what is in one. */
typedef struct walk_dimension {
    int axis; /* of the shape */
    int64_t size;
    int64_t strides[WALK_OPERANDS];
} walk_dimension;

/* Whether kernels can walk along the layout: plain, channels last, or blocks of channels. */
bool walk_knows(const cpu_format *layout);
/* The dimensions of `shape` in the order of `base`, a layout of it; gives how many there are. */
int walk_list_dimensions(const cpu_format *base, const fth_shape *shape, walk_dimension dimensions[WALK_AXES]);
/* Fills in where an operand of that layout, broadcast to the shape, has its elements. */
void walk_set_strides(walk_dimension *dimensions, int count, const fth_shape *shape, const cpu_format *base,
                      const cpu_format *layout, int operand);
/* The plan value in which to read an input: in the base's order if it is not broadcast. */
fth_status walk_read(fth_plan *plan, fth_value input, const fth_shape *shape, const cpu_format *base,
                     fth_plan_value *as);
/* Adds an axis inside of the others, joined with the last one if every operand allows it. */
void walk_add_axis(walk_axes *axes, const walk_dimension *dimension);
walk_type walk_type_of(const cpu_format *layout);

/* ---- walking ---- */

/* Numbers of a row that are read at once, at most: whole blocks. */
static inline int64_t walk_chunk(const expression_walk *walk)
{
    return walk->block < walk->row ? EXPRESSION_CHUNK / walk->block * walk->block : EXPRESSION_CHUNK;
}

/* Prepares a thread's buffers. */
void walk_begin(const expression_walk *walk, walk_buffers *buffers);
/* Where element `number` of the axes is; and the one after it. */
void walk_locate(const walk_axes *axes, int64_t number, walk_place *place);
void walk_advance(const walk_axes *axes, walk_place *place);
/* Copies numbers [at, at + count) of the row at `offset` of an input. `kept`: of each block. */
void walk_copy(const expression_walk *walk, int input, int64_t offset, int64_t at, int64_t count, int64_t kept,
               float *to);
/* The same, in place where that is possible. */
const float *walk_get(const expression_walk *walk, int input, int64_t offset, int64_t at, int64_t count, int64_t kept,
                      walk_buffers *buffers);
/* `count` numbers from `at` on, of an input that has them one after the other. */
const float *walk_get_contiguous(const expression_walk *walk, int input, int64_t at, int64_t count, float *buffer);

#endif
