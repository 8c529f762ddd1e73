/* Embeddings: sums of rows of tables. */
#include "backend/plain/plain.h"

#include <string.h>

fth_status plain_check_ids(const int32_t *ids, int64_t count, int64_t rows)
{
    for (int64_t t = 0; t < count; t++)
        if (ids[t] < 0 || ids[t] >= rows)
            return fth_fail(FTH_INVALID, "token %lld of a batch has the id %d in a table of %s", (long long)t, ids[t],
                            FTH_COUNTED(rows, "row"));
    return FTH_OK;
}

/* y[t,f] = sum over i of tables[i][ids[i][t], f] */
static fth_status run_embedding(const plain_call *call, const fth_run *run)
{
    (void)run;
    fth_status status = FTH_OK;
    const int count = call->input_count / 2;
    float *y = call->outputs[0].floats; /* (T, F) */
    const int64_t tokens = call->outputs[0].shape.dims[0], features = call->outputs[0].shape.dims[1];
    for (int i = 0; i < count; i++)
        FTH_TRY(plain_check_ids(call->inputs[i].ints, tokens, call->inputs[count + i].shape.dims[0]));
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t f = 0; f < features; f++) {
            double sum = 0;
            for (int i = 0; i < count; i++)
                sum += call->inputs[count + i].floats[call->inputs[i].ints[t] * features + f];
            y[t * features + f] = (float)sum;
        }
out:
    return status;
}

/* dtable[ids[t], f] += dy[t,f], in the order of tokens, whose ids the forward pass has checked */
static fth_status run_grad(const plain_call *call, const fth_run *run)
{
    (void)run;
    const int64_t padding = ((const fth_embedding_attributes *)call->attributes)->padding;
    const int32_t *ids = call->inputs[0].ints; /* (T) */
    const float *dy = call->inputs[1].floats;  /* (T, F) */
    float *dtable = call->outputs[0].floats;   /* (V, F) */
    const int64_t tokens = call->inputs[1].shape.dims[0], features = call->inputs[1].shape.dims[1];
    memset(dtable, 0, (size_t)call->outputs[0].count * sizeof *dtable);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t f = 0; f < features; f++)
            dtable[ids[t] * features + f] += dy[t * features + f];
    if (padding >= 0)
        memset(dtable + padding * features, 0, (size_t)features * sizeof *dtable);
    return FTH_OK;
}

const plain_kernel plain_embedding = {&fth_op_embedding, run_embedding, 0};
const plain_kernel plain_embedding_grad = {&fth_op_embedding_grad, run_grad, 0};
