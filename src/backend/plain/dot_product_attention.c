/* Attention among sequences of one length, one head of one sequence after the other. */
#include "backend/plain/plain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { QUERY, KEY, VALUE, MASK, OPERANDS };

/* Rows of numbers of one head: the first one's, and the distance to the next. */
typedef struct head_rows {
    float *first;
    int64_t stride;
} head_rows;

static float *row_of(head_rows rows, int64_t r)
{
    return rows.first + r * rows.stride;
}

/* One head of one sequence. */
typedef struct one_head {
    const fth_dot_product_attention_attributes *a;
    int64_t sequence, number, size, value_size; /* size: D; value_size: Dv */
    head_rows query, key, value;
    const float *mask; /* of query 0, key 0; NULL: none */
    int64_t mask_at;   /* where that is in the mask */
    int64_t mask_step; /* from query to query */
    bool drops;
    fth_random_key random;
    uint64_t first_row; /* number of the first query in the whole batch */
} one_head;

static int mask_input(const fth_dot_product_attention_attributes *a)
{
    return a->packed ? 1 : MASK;
}

/* Head `number` of operand `which`, of which `tensors` has one each or all in the first. */
static head_rows rows_of(const fth_dot_product_attention_attributes *a, const plain_tensor *tensors, int which,
                         int64_t sequence, int64_t number)
{
    const plain_tensor *tensor = &tensors[a->packed ? 0 : which];
    const int64_t stride = tensor->shape.dims[1], features = a->packed ? stride / 3 : stride;
    const int64_t length = which == QUERY ? a->queries : a->keys;
    return (head_rows){tensor->floats + sequence * length * stride + (a->packed ? which * features : 0) +
                           number * (features / a->heads),
                       stride};
}

static one_head head_of(const plain_call *call, const fth_run *run, int64_t sequence, int64_t number)
{
    const fth_dot_product_attention_attributes *a = call->attributes;
    const plain_tensor *in = call->inputs, *mask = &in[mask_input(a)];
    const int parts = a->packed ? 3 : 1;
    one_head head = {.a = a,
                     .sequence = sequence,
                     .number = number,
                     .size = in[0].shape.dims[1] / parts / a->heads,
                     .value_size = in[a->packed ? 0 : VALUE].shape.dims[1] / parts / a->heads,
                     .query = rows_of(a, in, QUERY, sequence, number),
                     .key = rows_of(a, in, KEY, sequence, number),
                     .value = rows_of(a, in, VALUE, sequence, number),
                     .drops = call->training && a->probability > 0,
                     .random = fth_dropout_key(run->seed, run->step, a->dropout),
                     .first_row = fth_run_first_row(run, in[0].graph_rows) + (uint64_t)sequence * (uint64_t)a->queries};
    if (a->mask) {
        const int64_t *dims = mask->shape.dims, heads = sequence % dims[0] * dims[1] + (dims[1] > 1 ? number : 0);
        head.mask_at = heads * dims[2] * dims[3];
        head.mask = mask->floats + head.mask_at;
        head.mask_step = dims[2] > 1 ? dims[3] : 0;
    }
    return head;
}

static double dot(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static double score(const one_head *head, int64_t i, int64_t j)
{
    if (head->a->causal && j > i)
        return -INFINITY;
    return dot(row_of(head->query, i), row_of(head->key, j), head->size) * (double)head->a->scale +
           (head->mask ? (double)head->mask[i * head->mask_step + j] : 0);
}

/* What dropout multiplies a probability with. */
static double factor(const one_head *head, int64_t i, int64_t j)
{
    if (!head->drops)
        return 1;
    const uint64_t draw =
        fth_attention_draw(head->random, head->first_row + (uint64_t)i, head->a->heads, (int)head->number, (int)j);
    return fth_attention_keeps(draw, fth_attention_threshold(head->a->probability), (int)j)
               ? 1 / (1 - (double)head->a->probability)
               : 0;
}

/* exp(score - of), where a score of -infinity gives 0 whatever `of` is */
static double power(double score, double of)
{
    return score == -INFINITY ? 0 : exp(score - of);
}

/* statistics[i] = log of the sum over j of exp(score[i,j]);
 * y[i] = sum over j of factor[i,j] * exp(score[i,j] - statistics[i]) * value[j] */
static void attend(const one_head *head, double *row, head_rows y, head_rows statistics)
{
    for (int64_t i = 0; i < head->a->queries; i++) {
        double largest = -INFINITY, sum = 0;
        for (int64_t j = 0; j < head->a->keys; j++) {
            row[j] = score(head, i, j);
            largest = row[j] > largest ? row[j] : largest;
        }
        for (int64_t j = 0; j < head->a->keys; j++)
            sum += power(row[j], largest);
        const double logarithm = sum == 0 ? INFINITY : largest + log(sum);
        for (int64_t j = 0; j < head->a->keys; j++)
            row[j] = power(row[j], logarithm) * factor(head, i, j);
        for (int64_t d = 0; d < head->value_size; d++) {
            double total = 0;
            for (int64_t j = 0; j < head->a->keys; j++)
                total += row[j] == 0 ? 0 : row[j] * row_of(head->value, j)[d];
            row_of(y, i)[d] = (float)total;
        }
        *row_of(statistics, i) = (float)logarithm;
    }
}

/* Rows of a head of (B * queries, heads * ...). */
static head_rows query_rows(const plain_tensor *tensor, const one_head *head)
{
    const int64_t stride = tensor->shape.dims[1];
    return (head_rows){
        tensor->floats + head->sequence * head->a->queries * stride + head->number * (stride / head->a->heads), stride};
}

static int64_t count_sequences(const plain_call *call)
{
    const fth_dot_product_attention_attributes *a = call->attributes;
    return call->inputs[0].shape.dims[0] / a->queries;
}

static fth_status run_attention(const plain_call *call, const fth_run *run)
{
    fth_status status = FTH_OK;
    const fth_dot_product_attention_attributes *a = call->attributes;
    double *row = NULL;
    FTH_TRY(fth_allocate((size_t)a->keys, sizeof *row, &row));
    for (int64_t b = 0; b < count_sequences(call); b++)
        for (int64_t h = 0; h < a->heads; h++) {
            const one_head head = head_of(call, run, b, h);
            attend(&head, row, query_rows(&call->outputs[0], &head), query_rows(&call->outputs[1], &head));
        }
out:
    free(row);
    return status;
}

/* p[i,j] = factor * exp(score[i,j] - statistics[i]), from which dvalue follows, and dscore[i,j] =
 * exp(...) * (factor * dy[i] · value[j] - dy[i] · y[i]), which is the mask's gradient. */
static void differentiate_scores(const one_head *head, head_rows y, head_rows statistics, head_rows dy, double *p,
                                 double *dscore)
{
    for (int64_t i = 0; i < head->a->queries; i++) {
        const double shared = dot(row_of(dy, i), row_of(y, i), head->value_size);
        for (int64_t j = 0; j < head->a->keys; j++) {
            const double kept = factor(head, i, j), q = power(score(head, i, j), *row_of(statistics, i));
            const double dp = q == 0 ? 0 : kept * dot(row_of(dy, i), row_of(head->value, j), head->value_size);
            p[i * head->a->keys + j] = q * kept;
            dscore[i * head->a->keys + j] = q == 0 ? 0 : q * (dp - shared);
        }
    }
}

/* to[r] = factor * sum over c of weights[r,c] * from[c]; weights of (r, c) at r * row + c * column.
 * Keys that no query sees have weights of 0, and add nothing even where they are NaN. */
static void add_up(const double *weights, int64_t row, int64_t column, head_rows from, int64_t from_count,
                   double factor, head_rows to, int64_t to_count, int64_t size)
{
    for (int64_t r = 0; r < to_count; r++)
        for (int64_t d = 0; d < size; d++) {
            double sum = 0;
            for (int64_t c = 0; c < from_count; c++) {
                const double weight = weights[r * row + c * column];
                sum += weight == 0 ? 0 : weight * row_of(from, c)[d];
            }
            row_of(to, r)[d] = (float)(sum * factor);
        }
}

static void differentiate(const plain_call *call, const one_head *head, double *p, double *dscore, double *dmask)
{
    const fth_dot_product_attention_attributes *a = head->a;
    const plain_tensor *rest = call->inputs + mask_input(a) + a->mask; /* y, statistics, dy */
    const head_rows dy = query_rows(&rest[2], head);
    differentiate_scores(head, query_rows(&rest[0], head), query_rows(&rest[1], head), dy, p, dscore);
    add_up(dscore, a->keys, 1, head->key, a->keys, (double)a->scale,
           rows_of(a, call->outputs, QUERY, head->sequence, head->number), a->queries, head->size);
    add_up(dscore, 1, a->keys, head->query, a->queries, (double)a->scale,
           rows_of(a, call->outputs, KEY, head->sequence, head->number), a->keys, head->size);
    add_up(p, 1, a->keys, dy, a->queries, 1, rows_of(a, call->outputs, VALUE, head->sequence, head->number), a->keys,
           head->value_size);
    for (int64_t i = 0; a->mask && i < a->queries; i++)
        for (int64_t j = 0; j < a->keys; j++)
            dmask[head->mask_at + i * head->mask_step + j] += dscore[i * a->keys + j];
}

static fth_status run_grad(const plain_call *call, const fth_run *run)
{
    fth_status status = FTH_OK;
    const fth_dot_product_attention_attributes *a = call->attributes;
    const int64_t scores = a->queries * a->keys, masked = call->outputs[MASK].count;
    double *memory = NULL;
    FTH_TRY(fth_allocate((size_t)(2 * scores + masked), sizeof *memory, &memory));
    double *dmask = memory + 2 * scores;
    memset(dmask, 0, (size_t)masked * sizeof *dmask);
    for (int64_t b = 0; b < count_sequences(call); b++)
        for (int64_t h = 0; h < a->heads; h++) {
            const one_head head = head_of(call, run, b, h);
            differentiate(call, &head, memory, memory + scores, dmask);
        }
    for (int64_t i = 0; i < masked; i++)
        call->outputs[MASK].floats[i] = (float)dmask[i];
out:
    free(memory);
    return status;
}

const plain_kernel plain_dot_product_attention = {&fth_op_dot_product_attention, run_attention, 0};
const plain_kernel plain_dot_product_attention_grad = {&fth_op_dot_product_attention_grad, run_grad, 0};
