/* Products of matrices, and einsum. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exported/lowering.h"

/* ---- rows ---- */

fth_status lowering_rows(lowering *l, fth_view *x, int features)
{
    const int first = x->rank - features;
    const unsigned last = ((1u << features) - 1) << first;
    const fth_atom_list lists[] = {fth_view_others(x, last), fth_view_join(x, first, features)};
    return fth_view_arrange(lowering_graph(l), x, lists, 2);
}

fth_status lowering_rows_result(const fth_view *x, int features, int64_t size, fth_value value, fth_view *y)
{
    const int dim = x->rank - features;
    const int rows = fth_view_others(x, ((1u << features) - 1) << dim).count;
    *y = *x;
    y->value = value;
    for (int d = dim + 1; d < x->rank; d++) /* one dimension is left of several */
        fth_view_drop(y, d);
    y->rank = dim + 1;
    return fth_view_resize(y, dim, rows, size);
}

/* ---- products ---- */

/* x (..., K) times a matrix (K, P) that all rows share: a linear layer with the transposed matrix. */
static fth_status by_matrix(lowering *l, fth_view *x, fth_view *matrix, fth_value bias, fth_view *y)
{
    fth_status status = FTH_OK;
    fth_value value;
    const int64_t size = fth_view_dim(matrix, 1).factor;

    fth_view_permute(matrix, (const int[]){1, 0});
    FTH_TRY(fth_view_arrange_plain(lowering_graph(l), matrix));
    FTH_TRY(lowering_rows(l, x, 1));
    FTH_TRY(fth_op_add_linear(lowering_graph(l), false, x->value, matrix->value, bias, &value));
    FTH_TRY(lowering_rows_result(x, 1, size, value, y));
out:
    return status;
}

/* Dimensions before the last two are brought to one size, as NumPy does, and consist of the same atoms
 * then. */
static fth_status broadcast_leading(lowering *l, fth_view *const both[2])
{
    fth_status status = FTH_OK;
    const int rank = both[0]->rank > both[1]->rank ? both[0]->rank : both[1]->rank;
    fth_exported_dim dims[FTH_MAX_RANK];

    for (int v = 0; v < 2; v++)
        while (both[v]->rank < rank)
            FTH_TRY(fth_view_insert(both[v], 0));
    for (int v = 0; v < 2; v++) {
        for (int d = 0; d < rank; d++) {
            const fth_exported_dim own = fth_view_dim(both[v], d), other = fth_view_dim(both[1 - v], d);
            dims[d] = d >= rank - 2 || own.factor > other.factor || own.batch ? own : other;
        }
        FTH_TRY(fth_view_expand(both[v], rank, dims));
    }
    FTH_TRY(fth_view_refine(lowering_graph(l), both, 2, rank - 2));
out:
    return status;
}

/* A view as a batch of matrices (B, M, K), or (B, K, M) where memory has them so. */
static fth_status as_matrices(lowering *l, fth_view *x, bool *transposed)
{
    const fth_atom_list rows = x->dims[x->rank - 2], columns = x->dims[x->rank - 1];
    const fth_atom_list join = fth_view_join(x, 0, x->rank - 2);
    fth_atom_list leading = {0};
    for (int pass = 0; pass < 2; pass++) /* the batch first */
        for (int i = 0; i < join.count; i++)
            if (x->atoms[join.atoms[i]].batch == (pass == 0))
                leading.atoms[leading.count++] = join.atoms[i];
    *transposed = rows.count > 0 && columns.count > 0 && columns.atoms[0] < rows.atoms[0];
    const fth_atom_list lists[] = {leading, *transposed ? columns : rows, *transposed ? rows : columns};
    return fth_view_arrange(lowering_graph(l), x, lists, 3);
}

/* (E, N, K) times (E, K, P) where N is the batch: a linear layer for each of E. */
static fth_status product_by_slices(lowering *l, fth_view *a, fth_view *b, fth_view *y)
{
    enum { MOST_SLICES = 64 };
    fth_status status = FTH_OK;
    fth_view *parts = NULL, of_a, of_b;

    while (a->rank < 3)
        FTH_TRY(fth_view_insert(a, 0));
    while (b->rank < 3)
        FTH_TRY(fth_view_insert(b, 0));
    const int64_t in_a = fth_view_dim(a, 0).factor, in_b = fth_view_dim(b, 0).factor, count = in_a > in_b ? in_a : in_b;
    FTH_REQUIRE(a->rank == 3 && b->rank == 3 && count <= MOST_SLICES, FTH_UNSUPPORTED,
                "a product over the samples of a batch");
    FTH_TRY(fth_allocate((size_t)count, sizeof *parts, &parts));
    for (int64_t i = 0; i < count; i++) {
        FTH_TRY(lowering_take(l, a, 0, in_a > 1 ? i : 0, in_a > 1 ? i + 1 : 1, &of_a));
        FTH_TRY(lowering_take(l, b, 0, in_b > 1 ? i : 0, in_b > 1 ? i + 1 : 1, &of_b));
        fth_view_remove(&of_a, 0);
        fth_view_remove(&of_b, 0);
        FTH_TRY(by_matrix(l, &of_a, &of_b, FTH_NO_VALUE, &parts[i]));
        FTH_TRY(fth_view_insert(&parts[i], 0));
    }
    FTH_TRY(lowering_join(l, parts, (size_t)count, 0, y));
out:
    free(parts);
    return status;
}

static fth_status batched_product(lowering *l, fth_view *a, fth_view *b, fth_view *y)
{
    fth_status status = FTH_OK;
    fth_matrix_product_attributes attributes;
    fth_value value;

    if (fth_view_dim(a, a->rank - 2).batch && !fth_view_has_batch(b))
        return product_by_slices(l, a, b, y);
    FTH_TRY(broadcast_leading(l, (fth_view *const[]){a, b}));
    FTH_TRY(as_matrices(l, a, &attributes.transpose_a));
    FTH_TRY(as_matrices(l, b, &attributes.transpose_b));
    FTH_TRY(fth_op_add_matrix_product(lowering_graph(l), attributes, a->value, b->value, &value));
    /* In memory: the leading dimensions, those of a's rows, those of b's columns. */
    const int row = a->rank - 2, column = a->rank - 1, leading = fth_view_join(a, 0, row).count;
    *y = *a;
    y->value = value;
    const int64_t rows = fth_view_dim(a, row).factor, columns = fth_view_dim(b, column).factor;
    FTH_REQUIRE(!fth_view_dim(a, row).batch && !fth_view_dim(b, column).batch && !fth_view_dim(a, column).batch,
                FTH_UNSUPPORTED, "a product over the samples of a batch");
    FTH_TRY(fth_view_resize(y, column, attributes.transpose_a ? leading : leading + y->dims[row].count, 1));
    FTH_TRY(fth_view_resize(y, row, leading, rows));
    FTH_TRY(fth_view_resize(y, column, leading + y->dims[row].count, columns));
out:
    return status;
}

static fth_status product(lowering *l, fth_view *a, fth_view *b, fth_value bias, fth_view *y)
{
    fth_status status = FTH_OK;
    const bool vector_a = a->rank == 1, vector_b = b->rank == 1;

    FTH_REQUIRE(a->rank >= 1 && b->rank >= 1, FTH_UNSUPPORTED, "a product with a number");
    if (vector_a)
        FTH_TRY(fth_view_insert(a, 0));
    if (vector_b)
        FTH_TRY(fth_view_insert(b, 1));
    if (b->rank == 2 && !fth_view_has_batch(b)) {
        FTH_TRY(by_matrix(l, a, b, bias, y));
    } else {
        FTH_REQUIRE(bias == FTH_NO_VALUE, FTH_UNSUPPORTED, "a sum with a product of two tensors of the batch");
        FTH_TRY(batched_product(l, a, b, y));
    }
    if (vector_b)
        fth_view_remove(y, y->rank - 1);
    if (vector_a)
        fth_view_remove(y, y->rank - 1 - (vector_b ? 0 : 1));
out:
    return status;
}

static fth_status product_of(lowering *l, const char *first, const char *second)
{
    fth_status status = FTH_OK;
    fth_view a, b, y;
    FTH_TRY(lowering_tensor(l, first, &a));
    FTH_TRY(lowering_tensor(l, second, &b));
    FTH_TRY(product(l, &a, &b, FTH_NO_VALUE, &y));
    lowering_set(l, 0, &y);
out:
    return status;
}

static fth_status matrix_product(lowering *l)
{
    return product_of(l, "self", lowering_lacks(l, "mat2") ? "other" : "mat2");
}

static fth_status vector_product(lowering *l)
{
    return product_of(l, "self", lowering_lacks(l, "vec") ? "tensor" : "vec");
}

/* beta * self + alpha * mat1 · mat2 */
static fth_status add_product(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view self, a, b, y;
    fth_value bias = FTH_NO_VALUE;
    const bool batched = lowering_is(l, "baddbmm");

    FTH_REQUIRE(lowering_number(l, "beta", 1) == 1 && lowering_number(l, "alpha", 1) == 1, FTH_UNSUPPORTED,
                "with alpha or beta");
    FTH_TRY(lowering_tensor(l, "self", &self));
    FTH_TRY(lowering_tensor(l, batched ? "batch1" : "mat1", &a));
    FTH_TRY(lowering_tensor(l, batched ? "batch2" : "mat2", &b));
    if (!batched && self.rank == 1 && !fth_view_has_batch(&b) &&
        fth_view_dim(&self, 0).factor == fth_view_dim(&b, 1).factor) {
        FTH_TRY(lowering_state(l, "self", &bias));
        FTH_TRY(product(l, &a, &b, bias, &y));
    } else {
        fth_view sum;
        FTH_TRY(product(l, &a, &b, FTH_NO_VALUE, &sum));
        FTH_TRY(lowering_binary(l, FTH_FUNCTION_ADD, &self, &sum, &y));
    }
    lowering_set(l, 0, &y);
out:
    return status;
}

/* ---- einsum: products of two tensors, each a product of matrices between two permutations ---- */

/* The letters of a term, "bhqd". */
typedef struct term {
    char letters[FTH_MAX_RANK + 1];
} term;

/* What "..." stands for; equations that have it use no capitals. */
static const char any_letters[] = "ABCDEFGH";

/* False if it is longer than a tensor can have dimensions, or names one twice. `any` is how many
 * dimensions "..." is. */
static bool read_term(const char **text, int any, term *read)
{
    int count = 0;
    for (; **text && **text != ',' && **text != '-'; (*text)++) {
        if (**text == ' ')
            continue;
        if (strncmp(*text, "...", 3) == 0 && count == 0 && any >= 0) {
            for (int i = 0; i < any; i++)
                read->letters[count++] = any_letters[i];
            *text += 2;
            continue;
        }
        if (**text == '.')
            return false;
        read->letters[count] = 0;
        if (count == FTH_MAX_RANK || strchr(read->letters, **text))
            return false;
        read->letters[count++] = **text;
    }
    read->letters[count] = 0;
    return true;
}

/* The letters of `of` that are in a and in b, or not, in their order. */
static term choose(const term *of, const term *a, bool in_a, const term *b, bool in_b)
{
    term chosen = {{0}};
    int count = 0;
    for (const char *letter = of->letters; *letter; letter++)
        if ((strchr(a->letters, *letter) != NULL) == in_a && (strchr(b->letters, *letter) != NULL) == in_b)
            chosen.letters[count++] = *letter;
    return chosen;
}

/* Permutes the dimensions, which `from` names, into the order of three terms, and makes each one. */
static fth_status group(lowering *l, fth_view *x, const term *from, const term *const terms[3])
{
    int order[FTH_MAX_RANK], count = 0;
    fth_exported_dim dims[3];
    for (int t = 0; t < 3; t++) {
        dims[t] = (fth_exported_dim){.factor = 1};
        for (const char *letter = terms[t]->letters; *letter; letter++) {
            order[count] = (int)(strchr(from->letters, *letter) - from->letters);
            const fth_exported_dim size = fth_view_dim(x, order[count++]);
            dims[t].factor *= size.factor;
            dims[t].batch = dims[t].batch || size.batch;
        }
    }
    if (count != x->rank)
        return fth_fail(FTH_UNSUPPORTED,
                        "its equation names a dimension twice, or sums one that is in one tensor only");
    fth_view_permute(x, order);
    return fth_view_reshape(lowering_graph(l), x, 3, dims);
}

/* y = a times b, summed over the letters that the result has not, in the result's order. */
static fth_status contract(lowering *l, fth_view *a, const term *of_a, fth_view *b, const term *of_b,
                           const term *result, fth_view *y)
{
    fth_status status = FTH_OK;
    term made = {{0}};
    fth_exported_dim dims[FTH_MAX_RANK];
    int order[FTH_MAX_RANK], rank = 0;

    if (!fth_view_has_batch(a) && fth_view_has_batch(b)) /* rows are the batch's */
        return contract(l, b, of_b, a, of_a, result, y);
    const fth_view before_a = *a, before_b = *b;
    const term shared = choose(result, of_a, true, of_b, true), rows = choose(result, of_a, true, of_b, false);
    const term columns = choose(result, of_a, false, of_b, true), summed = choose(of_a, of_b, true, result, false);
    FTH_TRY(group(l, a, of_a, (const term *const[]){&shared, &rows, &summed}));
    FTH_TRY(group(l, b, of_b, (const term *const[]){&shared, &summed, &columns}));
    if (!*shared.letters) { /* (1, M, K) times (1, K, P) */
        fth_view_remove(a, 0);
        fth_view_remove(b, 0);
    }
    FTH_TRY(product(l, a, b, FTH_NO_VALUE, y));
    const term *const parts[] = {&shared, &rows, &columns};
    for (int t = 0, count = 0; t < 3; t++)
        for (const char *letter = parts[t]->letters; *letter && count < FTH_MAX_RANK; letter++)
            made.letters[count++] = *letter;
    for (const char *letter = made.letters; *letter; letter++) {
        const char *in_a = strchr(of_a->letters, *letter), *in_b = strchr(of_b->letters, *letter);
        dims[rank++] = in_a ? fth_view_dim(&before_a, (int)(in_a - of_a->letters))
                            : fth_view_dim(&before_b, (int)(in_b - of_b->letters));
    }
    FTH_REQUIRE(rank == (int)strlen(result->letters), FTH_UNSUPPORTED,
                "its result has a dimension that no tensor has, or one twice");
    FTH_TRY(fth_view_reshape(lowering_graph(l), y, rank, dims));
    for (int d = 0; d < rank; d++)
        order[d] = (int)(strchr(made.letters, result->letters[d]) - made.letters);
    fth_view_permute(y, order);
out:
    return status;
}

enum { MOST_TERMS = 8 };

/* How many dimensions of a tensor of that rank "..." is; -1 for less than none. */
static int count_any(const char *text, int rank)
{
    for (; *text && *text != ',' && *text != '-'; text++)
        rank -= *text != ' ' && *text != '.';
    return rank <= (int)sizeof any_letters - 1 ? rank : -1;
}

/* "bhqd,bhkd->bhqk", or with "..." for the same number of dimensions everywhere; false for others. */
static bool read_equation(const char *text, const int *ranks, size_t count, term terms[MOST_TERMS], term *result)
{
    int any = -1;
    if (strchr(text, '.'))
        for (const char *letter = any_letters; *letter; letter++)
            if (strchr(text, *letter))
                return false;
    for (size_t i = 0; i < count; i++) {
        const int own = count_any(text, ranks[i]);
        const char *dots = strchr(text, '.'), *end = text + strcspn(text, ",-");
        if (dots && dots < end && any >= 0 && own != any)
            return false;
        any = dots && dots < end ? own : any;
        if (!read_term(&text, any, &terms[i]) || (i + 1 < count && *text++ != ','))
            return false;
    }
    if (strncmp(text, "->", 2) != 0)
        return false;
    text += 2;
    return read_term(&text, any, result) && !*text;
}

/* What a product of the first terms keeps: the letters of both that a later term or the result has. */
static bool product_of_terms(const term *a, const term *b, const term *later, size_t count, const term *result,
                             term *made)
{
    const term *const both[] = {a, b};
    int length = 0;
    *made = (term){{0}};
    for (int t = 0; t < 2; t++)
        for (const char *letter = both[t]->letters; *letter; letter++) {
            bool kept = strchr(result->letters, *letter) != NULL;
            for (size_t i = 0; i < count; i++)
                kept = kept || strchr(later[i].letters, *letter);
            if (!kept || strchr(made->letters, *letter))
                continue;
            if (length == FTH_MAX_RANK)
                return false;
            made->letters[length++] = *letter;
        }
    return true;
}

static fth_status einsum(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view x, next, y;
    term terms[MOST_TERMS], result, made;
    const char *equation = lowering_text(l, "equation", "");
    const size_t count = lowering_tensor_count(l, "tensors");
    int ranks[MOST_TERMS] = {0};

    for (size_t i = 0; i < count && i < MOST_TERMS; i++) {
        FTH_TRY(lowering_tensor_of(l, "tensors", i, &x));
        ranks[i] = x.rank;
    }
    FTH_REQUIRE(count >= 2 && count <= MOST_TERMS && read_equation(equation, ranks, count, terms, &result),
                FTH_UNSUPPORTED, "the equation \"%s\"; two or more tensors, and their result, are possible", equation);
    FTH_TRY(lowering_tensor_of(l, "tensors", 0, &x));
    for (size_t i = 1; i < count; i++) {
        FTH_TRY(lowering_tensor_of(l, "tensors", i, &next));
        FTH_REQUIRE(x.rank == (int)strlen(terms[0].letters) && next.rank == (int)strlen(terms[i].letters),
                    FTH_UNSUPPORTED, "the equation \"%s\" does not fit its tensors", equation);
        FTH_REQUIRE(product_of_terms(&terms[0], &terms[i], &terms[i + 1], count - i - 1, &result, &made),
                    FTH_UNSUPPORTED, "the equation \"%s\" makes a tensor of more than %d dimensions", equation,
                    FTH_MAX_RANK);
        made = i + 1 == count ? result : made;
        FTH_TRY(contract(l, &x, &terms[0], &next, &terms[i], &made, &y));
        x = y;
        terms[0] = made;
    }
    lowering_set(l, 0, &x);
out:
    return status;
}

/* y[n, o] = the sum of input1[n, i] * weight[o, i, j] * input2[n, j], and bias[o] */
static fth_status bilinear(lowering *l)
{
    fth_status status = FTH_OK;
    fth_view a, b, weight, bias, products, y;

    FTH_TRY(lowering_tensor(l, "input1", &a));
    FTH_TRY(lowering_tensor(l, "input2", &b));
    FTH_TRY(lowering_tensor(l, "weight", &weight));
    FTH_REQUIRE(a.rank == 2 && b.rank == 2 && weight.rank == 3, FTH_UNSUPPORTED, "its inputs have %d dimensions, not 2",
                a.rank);
    FTH_TRY(contract(l, &a, &(term){"ni"}, &weight, &(term){"oij"}, &(term){"noj"}, &products));
    FTH_TRY(contract(l, &products, &(term){"noj"}, &b, &(term){"nj"}, &(term){"no"}, &y));
    if (!lowering_lacks(l, "bias")) {
        products = y;
        FTH_TRY(lowering_tensor(l, "bias", &bias));
        FTH_TRY(lowering_binary(l, FTH_FUNCTION_ADD, &products, &bias, &y));
    }
    lowering_set(l, 0, &y);
out:
    return status;
}

const lowering_row lowering_products[] = {
    {"matmul", matrix_product}, {"mm", matrix_product}, {"bmm", matrix_product},  {"mv", vector_product},
    {"dot", vector_product},    {"addmm", add_product}, {"baddbmm", add_product}, {"einsum", einsum},
    {"bilinear", bilinear},     {NULL, NULL},
};
