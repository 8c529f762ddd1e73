/* Operators that take many numbers together: reductions, running sums, products of vectors and
 * matrices. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exported/fold_internal.h"

/* ---- reductions ---- */

typedef struct reduction {
    const char *name;
    double first;
    double (*join)(double a, double b);
} reduction;

static double add(double a, double b)
{
    return a + b;
}

static double multiply(double a, double b)
{
    return a * b;
}

static double larger(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

static double smaller(double a, double b)
{
    return isnan(a) || a < b ? a : b;
}

static double both(double a, double b)
{
    return a != 0 && b != 0;
}

static double either(double a, double b)
{
    return a != 0 || b != 0;
}

static const reduction reductions[] = {
    {"sum", 0, add},
    {"mean", 0, add},
    {"prod", 1, multiply},
    {"amax", -INFINITY, larger},
    {"amin", INFINITY, smaller},
    {"max", -INFINITY, larger},
    {"min", INFINITY, smaller},
    {"all", 1, both},
    {"any", 0, either},
};

static const reduction *find_reduction(const char *name)
{
    size_t i = 0;
    while (strcmp(reductions[i].name, name) != 0)
        i++;
    return &reductions[i];
}

/* The axes that are reduced, as bits: all where none are listed. */
static bool find_axes(const fold *f, int rank, unsigned *axes)
{
    int64_t dims[FTH_MAX_RANK];
    size_t count;
    if (!fold_ints(f, "dim", dims, FTH_MAX_RANK, &count))
        return false;
    *axes = count ? 0 : (1u << rank) - 1;
    for (size_t i = 0; i < count; i++) {
        int dim;
        if (!fold_wrap_dim(dims[i], rank, &dim))
            return false;
        *axes |= 1u << dim;
    }
    return true;
}

static bool reduce(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    const reduction *rule = find_reduction(f->name);
    fold_walk walk = {.index = {0}};
    fth_shape shape;
    unsigned axes;
    if (f->in_place || f->node->output_count != 1 || !self || fold_has(f, "other") || /* max of two tensors */
        !find_axes(f, self->shape.rank, &axes) || !fold_output_shape(f, 0, &shape))
        return false;
    int64_t kept = 1, total = fth_shape_count(&self->shape);
    walk.shape = self->shape;
    for (int i = self->shape.rank - 1; i >= 0; i--) {
        if (axes >> i & 1)
            continue;
        walk.strides[0][i] = kept;
        kept *= self->shape.dims[i];
    }
    if (kept != fth_shape_count(&shape) || total == 0)
        return false;
    double *numbers = fold_allocate(f, &shape);
    for (int64_t i = 0; numbers && i < kept; i++)
        numbers[i] = rule->first;
    for (int64_t i = 0; numbers && i < total; i++, fold_next(&walk))
        numbers[walk.places[0]] = rule->join(numbers[walk.places[0]], self->numbers[i]);
    for (int64_t i = 0; numbers && i < kept && strcmp(rule->name, "mean") == 0; i++)
        numbers[i] /= (double)(total / kept);
    return fold_set(f, 0, numbers);
}

static bool running_sum(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    fth_shape shape;
    int dim;
    if (!self || !fold_dim_or(f, "dim", 0, self->shape.rank, &dim) || !fold_output_shape(f, 0, &shape) ||
        !fth_shape_equal(&shape, &self->shape))
        return false;
    int64_t strides[FTH_MAX_RANK];
    fold_strides(&shape, strides);
    double *numbers = fold_allocate(f, &shape);
    const int64_t count = fth_shape_count(&shape);
    for (int64_t i = 0; numbers && i < count; i++) {
        const bool is_first = i / strides[dim] % shape.dims[dim] == 0;
        numbers[i] = self->numbers[i] + (is_first ? 0 : numbers[i - strides[dim]]);
    }
    return fold_set(f, 0, numbers);
}

/* What each element is more than the one before it. */
static bool difference(fold *f)
{
    const fth_host_tensor *self = fold_tensor(f, "self");
    fth_shape shape;
    int dim;
    if (!self || fold_has(f, "prepend") || fold_has(f, "append") || fold_has(f, "n") ||
        !fold_dim_or(f, "dim", -1, self->shape.rank, &dim) || !fold_output_shape(f, 0, &shape))
        return false;
    fth_shape expected = self->shape;
    expected.dims[dim]--;
    if (!fth_shape_equal(&shape, &expected))
        return false;
    int64_t from[FTH_MAX_RANK], to[FTH_MAX_RANK];
    fold_strides(&self->shape, from);
    fold_strides(&shape, to);
    double *numbers = fold_allocate(f, &shape);
    const int64_t count = fth_shape_count(&shape);
    for (int64_t i = 0; numbers && i < count; i++) {
        int64_t at = 0;
        for (int d = 0; d < shape.rank; d++)
            at += i / to[d] % shape.dims[d] * from[d];
        numbers[i] = self->numbers[at + from[dim]] - self->numbers[at];
    }
    return fold_set(f, 0, numbers);
}

/* ---- products ---- */

enum { MOST_PRODUCTS = 1 << 28 }; /* so that a small file cannot take minutes */

/* (rows, inner) times (inner, columns) */
static bool multiply_matrices(fold *f, const fth_host_tensor *a, const fth_host_tensor *b, int64_t rows, int64_t inner,
                              int64_t columns)
{
    fth_shape shape;
    if (!fold_output_shape(f, 0, &shape) || fth_shape_count(&shape) != rows * columns ||
        (inner > 0 && rows * columns > MOST_PRODUCTS / inner))
        return false;
    double *numbers = fold_allocate(f, &shape);
    for (int64_t i = 0; numbers && i < rows; i++) {
        for (int64_t k = 0; k < inner; k++) {
            for (int64_t j = 0; j < columns; j++)
                numbers[i * columns + j] += a->numbers[i * inner + k] * b->numbers[k * columns + j];
        }
    }
    return fold_set(f, 0, numbers);
}

static bool outer_product(fold *f)
{
    const fth_host_tensor *a = fold_tensor(f, "self"), *b = fold_tensor(f, "vec2");
    return a && b && a->shape.rank == 1 && b->shape.rank == 1 &&
           multiply_matrices(f, a, b, a->shape.dims[0], 1, b->shape.dims[0]);
}

static bool matrix_product(fold *f)
{
    const fth_host_tensor *a = fold_tensor(f, "self");
    const fth_host_tensor *b = fold_tensor(f, fold_has(f, "mat2") ? "mat2" : "other");
    return a && b && a->shape.rank == 2 && b->shape.rank == 2 && a->shape.dims[1] == b->shape.dims[0] &&
           multiply_matrices(f, a, b, a->shape.dims[0], a->shape.dims[1], b->shape.dims[1]);
}

/* "i,j->ij", with any letters. */
static bool einsum(fold *f)
{
    const fth_exported_argument *equation = fth_exported_find_argument(f->node, "equation");
    const fth_host_tensor *a = fold_tensor_of(f, "tensors", 0), *b = fold_tensor_of(f, "tensors", 1);
    char letters[7];
    size_t used = 0;
    if (!equation || equation->kind != FTH_ARGUMENT_STRING || fold_list_count(f, "tensors") != 2 || !a || !b ||
        a->shape.rank != 1 || b->shape.rank != 1)
        return false;
    for (const char *c = equation->text; *c && used < sizeof letters; c++) {
        if (*c != ' ')
            letters[used++] = *c;
    }
    return used == 7 && letters[1] == ',' && letters[3] == '-' && letters[4] == '>' && letters[0] == letters[5] &&
           letters[2] == letters[6] && letters[0] != letters[2] &&
           equation->text[strlen(equation->text) - 1] == letters[6] &&
           multiply_matrices(f, a, b, a->shape.dims[0], 1, b->shape.dims[0]);
}

const fold_row fold_sums[] = {
    {"sum", reduce},        {"mean", reduce},
    {"prod", reduce},       {"amax", reduce},
    {"amin", reduce},       {"max", reduce},
    {"min", reduce},        {"all", reduce},
    {"any", reduce},        {"cumsum", running_sum},
    {"diff", difference},   {"outer", outer_product},
    {"mm", matrix_product}, {"matmul", matrix_product},
    {"einsum", einsum},     {NULL, NULL},
};
