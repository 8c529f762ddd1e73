/* BERT: the encoder of Devlin et al. with a classification head, as transformers'
 * BertForSequenceClassification.
 *
 * Parameters have the names, shapes and first values that they have there. Sequences are packed
 * (ops.h), so nothing is computed for padding. Of the last layer only the first token of each
 * sequence reaches the head: behind its attention, all is computed for these rows alone. */
#include <stdio.h>

#include "model/bert_internal.h"

enum { NAME_SIZE = 128 };

/* What is being built. */
typedef struct builder {
    fth_graph *graph;
    const fth_bert_config *config;
    bool no_dropout;
    fth_value ends;
} builder;

static float probability(const builder *bert, double wanted)
{
    return bert->no_dropout ? 0 : (float)wanted;
}

static fth_status add_parameter(const builder *bert, const char *layer, const char *name, fth_shape shape,
                                fth_initializer init, fth_value *parameter)
{
    char full[2 * NAME_SIZE];
    snprintf(full, sizeof full, "%s.%s", layer, name);
    return fth_graph_add_parameter(bert->graph, full, shape, init, parameter);
}

static fth_initializer normal(const builder *bert)
{
    return (fth_initializer){FTH_INIT_NORMAL, bert->config->initializer};
}

static fth_initializer constant(double amount)
{
    return (fth_initializer){FTH_INIT_CONSTANT, amount};
}

static fth_status add_linear(const builder *bert, const char *layer, int outputs, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    int64_t features = fth_graph_value(bert->graph, x)->type.shape.dims[1];
    fth_value weight, bias;

    FTH_TRY(add_parameter(bert, layer, "weight", FTH_SHAPE(outputs, features), normal(bert), &weight));
    FTH_TRY(add_parameter(bert, layer, "bias", FTH_SHAPE(outputs), constant(0), &bias));
    FTH_TRY(fth_op_add_linear(bert->graph, false, x, weight, bias, y));

out:
    return status;
}

/* Of dropout(x) + residual, or of x alone. */
static fth_status add_layer_norm(const builder *bert, const char *layer, fth_value x, fth_value residual_or_none,
                                 fth_value *y)
{
    fth_status status = FTH_OK;
    const fth_bert_config *config = bert->config;
    bool drops = residual_or_none != FTH_NO_VALUE;
    fth_layer_norm_attributes attributes = {.epsilon = (float)config->epsilon,
                                            .probability = drops ? probability(bert, config->dropout) : 0};
    fth_value scale, shift;

    FTH_TRY(add_parameter(bert, layer, "weight", FTH_SHAPE(config->hidden), constant(1), &scale));
    FTH_TRY(add_parameter(bert, layer, "bias", FTH_SHAPE(config->hidden), constant(0), &shift));
    FTH_TRY(fth_op_add_layer_norm(bert->graph, attributes, x, scale, shift, residual_or_none, y));

out:
    return status;
}

static fth_status add_dropout(const builder *bert, double wanted, fth_value x, fth_value *y)
{
    *y = x;
    float dropped = probability(bert, wanted);
    return dropped > 0 ? fth_op_add_dropout(bert->graph, dropped, x, y) : FTH_OK;
}

enum { PADDING = 0 }; /* [PAD] in every vocabulary of BERT, as pad_token_id in Hugging Face's configurations */

static fth_status add_embeddings(const builder *bert, const fth_text_inputs *inputs, fth_value *y)
{
    fth_status status = FTH_OK;
    const fth_bert_config *config = bert->config;
    const char *layer = "bert.embeddings";
    const fth_value ids[] = {inputs->tokens, inputs->positions, inputs->segments};
    fth_value tables[3], x;

    FTH_TRY(add_parameter(bert, layer, "word_embeddings.weight", FTH_SHAPE(config->vocabulary, config->hidden),
                          normal(bert), &tables[0]));
    FTH_TRY(add_parameter(bert, layer, "position_embeddings.weight", FTH_SHAPE(config->positions, config->hidden),
                          normal(bert), &tables[1]));
    FTH_TRY(add_parameter(bert, layer, "token_type_embeddings.weight", FTH_SHAPE(config->types, config->hidden),
                          normal(bert), &tables[2]));
    FTH_TRY(fth_op_add_embedding(bert->graph, PADDING, ids, tables, (int)FTH_COUNT_OF(tables), &x));
    FTH_TRY(add_layer_norm(bert, "bert.embeddings.LayerNorm", x, FTH_NO_VALUE, &x));
    FTH_TRY(add_dropout(bert, config->dropout, x, y));

out:
    return status;
}

static fth_status add_attention(const builder *bert, const char *layer, int longest, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    static const char *const parts[] = {"self.query", "self.key", "self.value"};
    const int hidden = bert->config->hidden;
    fth_attention_attributes attributes = {.heads = bert->config->heads,
                                           .longest = longest,
                                           .probability = probability(bert, bert->config->attention_dropout)};
    fth_value weights[3], biases[3], qkv;
    char name[NAME_SIZE];

    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s.weight", parts[i]);
        FTH_TRY(add_parameter(bert, layer, name, FTH_SHAPE(hidden, hidden), normal(bert), &weights[i]));
    }
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s.bias", parts[i]);
        FTH_TRY(add_parameter(bert, layer, name, FTH_SHAPE(hidden), constant(0), &biases[i]));
    }
    FTH_TRY(fth_op_add_qkv_linear(bert->graph, x, weights, biases, &qkv));
    FTH_TRY(fth_op_add_attention(bert->graph, attributes, qkv, bert->ends, y));

out:
    return status;
}

static fth_status add_activation(const builder *bert, fth_value x, fth_value *y)
{
    switch (bert->config->activation) {
    case FTH_BERT_GELU_TANH: return fth_op_add_gelu_tanh(bert->graph, x, y);
    case FTH_BERT_RELU: return fth_op_add_relu(bert->graph, x, y);
    case FTH_BERT_GELU:
    case FTH_BERT_ACTIVATION_COUNT: break;
    }
    return fth_op_add_gelu(bert->graph, x, y);
}

static fth_status add_layer(const builder *bert, int index, int longest, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    const fth_bert_config *config = bert->config;
    char name[NAME_SIZE];
    fth_value attended, inner;

    snprintf(name, sizeof name, "bert.encoder.layer.%d.attention", index);
    FTH_TRY(add_attention(bert, name, longest, x, &attended));
    if (index == config->layers - 1) {
        FTH_TRY(fth_op_add_first_tokens(bert->graph, attended, bert->ends, &attended));
        FTH_TRY(fth_op_add_first_tokens(bert->graph, x, bert->ends, &x));
    }
    snprintf(name, sizeof name, "bert.encoder.layer.%d.attention.output.dense", index);
    FTH_TRY(add_linear(bert, name, config->hidden, attended, &attended));
    snprintf(name, sizeof name, "bert.encoder.layer.%d.attention.output.LayerNorm", index);
    FTH_TRY(add_layer_norm(bert, name, attended, x, &x));

    snprintf(name, sizeof name, "bert.encoder.layer.%d.intermediate.dense", index);
    FTH_TRY(add_linear(bert, name, config->intermediate, x, &inner));
    FTH_TRY(add_activation(bert, inner, &inner));
    snprintf(name, sizeof name, "bert.encoder.layer.%d.output.dense", index);
    FTH_TRY(add_linear(bert, name, config->hidden, inner, &inner));
    snprintf(name, sizeof name, "bert.encoder.layer.%d.output.LayerNorm", index);
    FTH_TRY(add_layer_norm(bert, name, inner, x, y));

out:
    return status;
}

fth_status fth_bert_build(const fth_model *model, fth_graph *graph, const fth_model_options *options,
                          const fth_text_inputs *inputs, fth_value *logits)
{
    fth_status status = FTH_OK;
    const fth_bert_config *config = model->details;
    const builder bert = {.graph = graph, .config = config, .no_dropout = options->no_dropout, .ends = inputs->ends};
    double last_dropout = config->classifier_dropout < 0 ? config->dropout : config->classifier_dropout;
    fth_value x;

    FTH_TRY(add_embeddings(&bert, inputs, &x));
    for (int i = 0; i < config->layers; i++) {
        /* Gradients of the last layer come first: what it computed need not be kept for long. */
        bool again = options->recompute && i < config->layers - 1;
        if (again)
            FTH_TRY(fth_graph_begin_block(graph));
        FTH_TRY(add_layer(&bert, i, options->longest, x, &x));
        if (again)
            fth_graph_end_block(graph);
    }
    FTH_TRY(add_linear(&bert, "bert.pooler.dense", config->hidden, x, &x));
    FTH_TRY(fth_op_add_tanh(graph, x, &x));
    FTH_TRY(add_dropout(&bert, last_dropout, x, &x));
    FTH_TRY(add_linear(&bert, "classifier", options->classes, x, logits));

out:
    return status;
}
