/* embedding: the sum of one row of each table, and the gradients of the tables. See ops.h. */
#include <assert.h>

#include "graph/graph_internal.h"
#include "graph/ops.h"

static fth_status check_table(const fth_type *table, const fth_type *first)
{
    fth_status status = FTH_OK;
    FTH_TRY(fth_rule_check_float(table, "a table", 2));
    FTH_REQUIRE(table->shape.dims[1] == first->shape.dims[1], FTH_INVALID,
                "the tables %s and %s have rows of different lengths", FTH_SHAPE_TEXT(&first->shape),
                FTH_SHAPE_TEXT(&table->shape));
out:
    return status;
}

/* Ids of each table, then the tables. */
static fth_status infer(const void *attributes, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const int count = input_count / 2;
    const int64_t padding = ((const fth_embedding_attributes *)attributes)->padding;

    FTH_TRY(fth_rule_check_count(input_count, 2, 2 * FTH_MAX_EMBEDDINGS));
    FTH_REQUIRE(input_count == 2 * count, FTH_INVALID, "takes as many vectors of ids as tables");
    for (int i = 0; i < count; i++) {
        FTH_TRY(fth_rule_check_integers(&inputs[i], "the ids", i == 0 ? 0 : inputs[0].shape.dims[0]));
        FTH_TRY(check_table(&inputs[count + i], &inputs[count]));
    }
    FTH_REQUIRE(padding >= -1 && padding < inputs[count].shape.dims[0], FTH_INVALID,
                "the padding is row %lld of a table of %s", (long long)padding,
                FTH_COUNTED(inputs[count].shape.dims[0], "row"));
    outputs[0] = (fth_type){FTH_F32, FTH_SHAPE(inputs[0].shape.dims[0], inputs[count].shape.dims[1])};

out:
    return status;
}

static fth_status build_gradient(fth_graph *graph, const fth_node *node, const fth_value *output_gradients,
                                 fth_value *input_gradients)
{
    fth_status status = FTH_OK;
    const int count = node->input_count / 2;
    const fth_embedding_attributes *of_node = node->attributes;
    for (int i = 0; i < count; i++) {
        if (!fth_rule_wants(graph, node, count + i))
            continue;
        const fth_embedding_attributes attributes = {
            .padding = i == 0 ? of_node->padding : -1,
            .rows = fth_graph_value(graph, node->inputs[count + i])->type.shape.dims[0]};
        FTH_TRY(fth_graph_add_node(graph, &fth_op_embedding_grad, &attributes,
                                   (fth_value[]){node->inputs[i], output_gradients[0]}, 2,
                                   &input_gradients[count + i]));
    }
out:
    return status;
}

const fth_op fth_op_embedding = {
    .name = "embedding",
    .attributes_size = sizeof(fth_embedding_attributes),
    .output_count = 1,
    .infer = infer,
    .build_gradient = build_gradient,
};

static fth_status infer_grad(const void *attributes_pointer, const fth_type *inputs, int input_count, fth_type *outputs)
{
    fth_status status = FTH_OK;
    const fth_embedding_attributes *attributes = attributes_pointer;

    FTH_TRY(fth_rule_check_count(input_count, 2, 2));
    FTH_TRY(fth_rule_check_float(&inputs[1], "the output's gradient", 2));
    FTH_TRY(fth_rule_check_integers(&inputs[0], "the ids", inputs[1].shape.dims[0]));
    outputs[0] = (fth_type){FTH_F32, FTH_SHAPE(attributes->rows, inputs[1].shape.dims[1])};

out:
    return status;
}

const fth_op fth_op_embedding_grad = {
    .name = "embedding_grad",
    .attributes_size = sizeof(fth_embedding_attributes),
    .output_count = 1,
    .infer = infer_grad,
};

fth_status fth_op_add_embedding(fth_graph *graph, int64_t padding, const fth_value *ids, const fth_value *tables,
                                int count, fth_value *y)
{
    const fth_embedding_attributes attributes = {.padding = padding};
    fth_value inputs[2 * FTH_MAX_EMBEDDINGS];
    assert(count >= 1 && count <= FTH_MAX_EMBEDDINGS);
    for (int i = 0; i < count; i++) {
        inputs[i] = ids[i];
        inputs[count + i] = tables[i];
    }
    return fth_graph_add_node(graph, &fth_op_embedding, &attributes, inputs, 2 * count, y);
}
