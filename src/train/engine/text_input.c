/* See text_input.h. Where the device's memory is the host's, rows are written into the plan itself;
 * elsewhere they are put together in memory of the host first, which the device copies. */
#include "train/engine/text_input.h"

#include <stdlib.h>
#include <string.h>

#include "graph/ops.h"

struct fth_text_input {
    fth_device *device;
    fth_text_inputs values;
    int64_t segments; /* kinds of them that the model knows */
    int32_t *staging; /* of devices with memory of their own */
    int64_t staging_capacity;
};

/* Rows of the table in which `ids` are looked up; 0 if they are not. */
static int64_t count_rows(const fth_graph *graph, fth_value ids)
{
    for (int n = 0; n < fth_graph_forward_node_count(graph); n++) {
        const fth_node *node = fth_graph_node(graph, n);
        const int tables = node->op == &fth_op_embedding ? node->input_count / 2 : 0;
        for (int i = 0; i < tables; i++)
            if (node->inputs[i] == ids)
                return fth_graph_value(graph, node->inputs[tables + i])->type.shape.dims[0];
    }
    return 0;
}

fth_status fth_text_input_create(const fth_graph *graph, fth_device *device, fth_text_input **result)
{
    fth_status status = FTH_OK;
    fth_text_input *input = NULL;

    *result = NULL;
    if (fth_graph_find(graph, "tokens") == FTH_NO_VALUE)
        return FTH_OK;
    FTH_TRY(fth_allocate(1, sizeof *input, &input));
    input->device = device;
    input->values = (fth_text_inputs){.tokens = fth_graph_find(graph, "tokens"),
                                      .segments = fth_graph_find(graph, "segments"),
                                      .positions = fth_graph_find(graph, "positions"),
                                      .ends = fth_graph_find(graph, "ends")};
    input->segments = count_rows(graph, input->values.segments);
    *result = input;

out:
    return status;
}

void fth_text_input_free(fth_text_input *input)
{
    if (!input)
        return;
    free(input->staging);
    free(input);
}

/* Rows behind the last token are token 0 at position 0 of segment 0, and belong to no sample. */
static void fill(int32_t *rows, const int32_t *from, int64_t count, int64_t capacity)
{
    memcpy(rows, from, (size_t)count * sizeof *rows);
    memset(rows + count, 0, (size_t)(capacity - count) * sizeof *rows);
}

static fth_status set_rows(fth_text_input *input, fth_value value, const int32_t *from, int64_t count, int64_t capacity,
                           fth_plan *plan)
{
    fth_status status = FTH_OK;

    if (input->device->backend->host_memory) {
        fill(fth_plan_input(plan, value), from, count, capacity);
        return FTH_OK;
    }
    if (count == capacity)
        return fth_plan_set_input(plan, value, from);
    if (input->staging_capacity < capacity) {
        free(input->staging);
        input->staging_capacity = 0;
        FTH_TRY(fth_allocate((size_t)capacity, sizeof *input->staging, &input->staging));
        input->staging_capacity = capacity;
    }
    fill(input->staging, from, count, capacity);
    FTH_TRY(fth_plan_set_input(plan, value, input->staging));

out:
    return status;
}

/* Tokens and positions were checked when the model was chosen; whether texts come in pairs, only
 * the batches show. */
static fth_status check_segments(const fth_text_input *input, const fth_text_batch *text)
{
    for (int64_t t = 0; t < text->token_count; t++)
        if (text->segments[t] >= input->segments)
            return fth_fail(FTH_INVALID,
                            "texts come in pairs, but the model knows only single ones (types=1): leave out the pair "
                            "column, or take a model with types=2");
    return FTH_OK;
}

fth_status fth_text_input_set(fth_text_input *input, const fth_text_batch *text, int64_t count, int64_t capacity,
                              fth_plan *plan)
{
    fth_status status = FTH_OK;
    const int64_t tokens = text->token_count;

    FTH_REQUIRE(text->tokens && tokens > 0 && tokens <= capacity, FTH_INVALID,
                "a batch of %lld tokens does not fit into a plan for %lld", (long long)tokens, (long long)capacity);
    FTH_TRY(check_segments(input, text));
    FTH_TRY(set_rows(input, input->values.tokens, text->tokens, tokens, capacity, plan));
    FTH_TRY(set_rows(input, input->values.segments, text->segments, tokens, capacity, plan));
    FTH_TRY(set_rows(input, input->values.positions, text->positions, tokens, capacity, plan));
    FTH_TRY(set_rows(input, input->values.ends, text->ends, count, count, plan));

out:
    return status;
}
