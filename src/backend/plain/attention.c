/* Attention within each sequence of a packed batch, one head after the other. */
#include "backend/plain/plain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One head of one sequence. */
typedef struct one_head {
    const plain_call *call;
    int64_t first, length; /* rows of the sequence */
    int number, count;
    int64_t size;                     /* D */
    const float *query, *key, *value; /* the first row's; others follow at distances of `stride` */
    int64_t stride;
    uint64_t first_token; /* number of the sequence's first row in the whole batch */
    bool drops;
    fth_random_key random;
    uint32_t threshold;
    double kept; /* what kept probabilities are multiplied with */
} one_head;

static one_head head_of(const plain_call *call, const fth_run *run, int64_t first, int64_t end, int number)
{
    const fth_attention_attributes *attributes = call->attributes;
    const int64_t stride = call->inputs[0].shape.dims[1];
    const int64_t size = stride / 3 / attributes->heads;
    const float *query = call->inputs[0].floats + first * stride + number * size;
    const bool drops = call->training && attributes->probability > 0;
    return (one_head){.call = call,
                      .first = first,
                      .length = end - first,
                      .number = number,
                      .count = attributes->heads,
                      .size = size,
                      .query = query,
                      .key = query + stride / 3,
                      .value = query + 2 * (stride / 3),
                      .stride = stride,
                      .first_token = run->first_token + (uint64_t)first,
                      .drops = drops,
                      .random = fth_dropout_key(run->seed, run->step, attributes->dropout),
                      .threshold = fth_attention_threshold(attributes->probability),
                      .kept = drops ? 1 / (1 - (double)attributes->probability) : 1};
}

static double dot(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

/* 0 or `kept`. */
static double mask(const one_head *head, int64_t i, int64_t j)
{
    if (!head->drops)
        return 1;
    const uint64_t draw =
        fth_attention_draw(head->random, head->first_token + (uint64_t)i, head->count, head->number, (int)j);
    return fth_attention_keeps(draw, head->threshold, (int)j) ? head->kept : 0;
}

static double score(const one_head *head, int64_t i, int64_t j)
{
    return dot(head->query + i * head->stride, head->key + j * head->stride, head->size) / sqrt((double)head->size);
}

/* statistics[i] = log of the sum over j of exp(score[i,j]);
 * y[i] = sum over j of mask[i,j] * exp(score[i,j] - statistics[i]) * value[j] */
static void attend(const one_head *head, double *row, float *y, float *statistics)
{
    for (int64_t i = 0; i < head->length; i++) {
        double largest = -INFINITY, sum = 0;
        for (int64_t j = 0; j < head->length; j++) {
            row[j] = score(head, i, j);
            largest = row[j] > largest ? row[j] : largest;
        }
        for (int64_t j = 0; j < head->length; j++)
            sum += exp(row[j] - largest);
        const double logarithm = largest + log(sum);
        for (int64_t j = 0; j < head->length; j++)
            row[j] = exp(row[j] - logarithm) * mask(head, i, j);
        for (int64_t d = 0; d < head->size; d++) {
            double total = 0;
            for (int64_t j = 0; j < head->length; j++)
                total += row[j] * head->value[j * head->stride + d];
            y[i * head->size * head->count + d] = (float)total;
        }
        statistics[i * head->count] = (float)logarithm;
    }
}

static fth_status run_attention(const plain_call *call, const fth_run *run)
{
    fth_status status = FTH_OK;
    const fth_attention_attributes *attributes = call->attributes;
    const int32_t *ends = call->inputs[1].ints;  /* (N) */
    float *y = call->outputs[0].floats;          /* (T, H D) */
    float *statistics = call->outputs[1].floats; /* (T, H) */
    const int64_t features = call->outputs[0].shape.dims[1], heads = attributes->heads;
    double *row = NULL;

    FTH_TRY(fth_allocate((size_t)call->outputs[0].shape.dims[0], sizeof *row, &row));
    memset(y, 0, (size_t)call->outputs[0].count * sizeof *y);
    memset(statistics, 0, (size_t)call->outputs[1].count * sizeof *statistics);
    for (int64_t n = 0; n < call->inputs[1].count; n++)
        for (int h = 0; h < heads; h++) {
            const one_head head = head_of(call, run, n > 0 ? ends[n - 1] : 0, ends[n], h);
            attend(&head, row, y + head.first * features + h * head.size, statistics + head.first * heads + h);
        }
out:
    free(row);
    return status;
}

/* With p[i,j] = exp(score[i,j] - statistics[i]): dvalue[j] = sum over i of mask p dy[i];
 * dscore[i,j] = p * (mask * dy[i] · value[j] - dy[i] · y[i]); dquery and dkey follow from the
 * product of which it is. */
static void differentiate(const one_head *head, const float *y, const float *statistics, const float *dy, double *p,
                          double *dscore, float *dquery)
{
    const int64_t length = head->length, size = head->size, row = size * head->count, third = row;
    for (int64_t i = 0; i < length; i++) {
        const double shared = dot(dy + i * row, y + i * row, size);
        for (int64_t j = 0; j < length; j++) {
            const double kept = mask(head, i, j), probability = exp(score(head, i, j) - statistics[i * head->count]);
            const double dp = kept * dot(dy + i * row, head->value + j * head->stride, size);
            p[i * length + j] = probability * kept;
            dscore[i * length + j] = probability * (dp - shared) / sqrt((double)size);
        }
    }
    for (int64_t i = 0; i < length; i++)
        for (int64_t d = 0; d < size; d++) {
            double query = 0, key = 0, value = 0;
            for (int64_t j = 0; j < length; j++) {
                query += dscore[i * length + j] * head->key[j * head->stride + d];
                key += dscore[j * length + i] * head->query[j * head->stride + d];
                value += p[j * length + i] * dy[j * row + d];
            }
            dquery[i * head->stride + d] = (float)query;
            dquery[i * head->stride + third + d] = (float)key;
            dquery[i * head->stride + 2 * third + d] = (float)value;
        }
}

static fth_status run_grad(const plain_call *call, const fth_run *run)
{
    fth_status status = FTH_OK;
    const fth_attention_attributes *attributes = call->attributes;
    const int32_t *ends = call->inputs[1].ints;                            /* (N) */
    const float *y = call->inputs[2].floats, *dy = call->inputs[4].floats; /* (T, H D) */
    const float *statistics = call->inputs[3].floats;                      /* (T, H) */
    float *dqkv = call->outputs[0].floats;                                 /* (T, 3 H D) */
    const int64_t features = call->inputs[2].shape.dims[1], heads = attributes->heads;
    int64_t longest = 0;
    double *p = NULL;

    for (int64_t n = 0; n < call->inputs[1].count; n++) {
        const int64_t length = ends[n] - (n > 0 ? ends[n - 1] : 0);
        longest = length > longest ? length : longest;
    }
    FTH_TRY(fth_allocate((size_t)(2 * longest * longest), sizeof *p, &p));
    memset(dqkv, 0, (size_t)call->outputs[0].count * sizeof *dqkv);
    for (int64_t n = 0; n < call->inputs[1].count; n++)
        for (int h = 0; h < heads; h++) {
            const one_head head = head_of(call, run, n > 0 ? ends[n - 1] : 0, ends[n], h);
            const int64_t at = head.first * features + h * head.size;
            differentiate(&head, y + at, statistics + head.first * heads + h, dy + at, p, p + longest * longest,
                          dqkv + head.first * head.stride + h * head.size);
        }
out:
    free(p);
    return status;
}

const plain_kernel plain_attention = {&fth_op_attention, run_attention, 0};
const plain_kernel plain_attention_grad = {&fth_op_attention_grad, run_grad, 0};
