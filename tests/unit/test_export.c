/* ONNX files, read back by a small reader of protobuf: fields, nodes and their connections,
 * weights, refusals. What the files compute is checked with onnxruntime in tests/interop. */
#include "support.h"

#include <unistd.h>

#include "export/export.h"
#include "graph/ops.h"
#include "model/model.h"

static char path[TEST_MAX_PATH];

static int set_up(void **state)
{
    if (test_make_folder(state) != 0)
        return -1;
    test_path(path, "model.onnx");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(test_folder); /* nothing else was left */
}

/* ---- a reader ---- */

typedef struct field {
    int number, type;
    uint64_t integer;
    const uint8_t *bytes; /* of length-delimited ones */
    size_t size;
} field;

static uint64_t read_varint(const uint8_t **at, const uint8_t *end)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        assert_true(*at < end && shift < 64);
        uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return value;
    }
}

/* The next field of a message; false at its end. */
static bool next_field(const uint8_t **at, const uint8_t *end, field *found)
{
    if (*at == end)
        return false;
    uint64_t tag = read_varint(at, end);
    *found = (field){.number = (int)(tag >> 3), .type = (int)(tag & 7)};
    if (found->type == 0) {
        found->integer = read_varint(at, end);
    } else {
        assert_true(found->type == 2 || found->type == 5);
        found->size = found->type == 5 ? 4 : read_varint(at, end);
        assert_true(found->size <= (size_t)(end - *at));
        found->bytes = *at;
        *at += found->size;
    }
    return true;
}

static bool text_is(const field *f, const char *text)
{
    return f->size == strlen(text) && memcmp(f->bytes, text, f->size) == 0;
}

enum { MAX_ITEMS = 400 };

typedef struct onnx_model {
    char *bytes;
    size_t size;
    int64_t ir_version, opset;
    char metadata[200];            /* the last entry's value */
    char nodes[MAX_ITEMS][24];     /* op types */
    char made[4 * MAX_ITEMS][160]; /* names of values in the order they come to be */
    char read[4 * MAX_ITEMS][160]; /* names that nodes read */
    int node_count, made_count, read_count, initializer_count, input_count, output_count;
    const uint8_t *raw; /* of the initializer called `wanted` */
    size_t raw_size;
} onnx_model;

static void copy_text(const field *f, char *text, size_t size)
{
    assert_true(f->size < size);
    memcpy(text, f->bytes, f->size);
    text[f->size] = '\0';
}

static void read_node(const field *message, onnx_model *model)
{
    const uint8_t *at = message->bytes, *end = at + message->size;
    assert_true(model->node_count < MAX_ITEMS && model->read_count < 3 * MAX_ITEMS);
    for (field f; next_field(&at, end, &f);) {
        if (f.number == 1)
            copy_text(&f, model->read[model->read_count++], sizeof model->read[0]);
        if (f.number == 2)
            copy_text(&f, model->made[model->made_count++], sizeof model->made[0]);
        if (f.number == 4)
            copy_text(&f, model->nodes[model->node_count++], sizeof model->nodes[0]);
    }
}

static void read_initializer(const field *message, const char *wanted, onnx_model *model)
{
    const uint8_t *at = message->bytes, *end = at + message->size;
    bool this_one = false;
    assert_true(model->made_count < 4 * MAX_ITEMS);
    model->initializer_count++;
    for (field f; next_field(&at, end, &f);) {
        if (f.number == 8) {
            this_one = text_is(&f, wanted);
            copy_text(&f, model->made[model->made_count++], sizeof model->made[0]);
        }
        if (f.number == 9 && this_one) {
            model->raw = f.bytes;
            model->raw_size = f.size;
        }
    }
}

static void read_graph(const field *message, const char *wanted, onnx_model *model)
{
    const uint8_t *at = message->bytes, *end = at + message->size;
    for (field f; next_field(&at, end, &f);) {
        if (f.number == 1)
            read_node(&f, model);
        else if (f.number == 5)
            read_initializer(&f, wanted, model);
        model->input_count += f.number == 11;
        model->output_count += f.number == 12;
    }
}

static onnx_model *read_model(const char *wanted)
{
    onnx_model *model = calloc(1, sizeof *model);
    assert_non_null(model);
    assert_int_equal(fth_file_read_all(path, 1 << 30, &model->bytes, &model->size), FTH_OK);
    const uint8_t *at = (const uint8_t *)model->bytes, *end = at + model->size;
    for (field f; next_field(&at, end, &f);) {
        if (f.number == 1)
            model->ir_version = (int64_t)f.integer;
        if (f.number == 7)
            read_graph(&f, wanted, model);
        const uint8_t *inner = f.bytes, *inner_end = inner + f.size;
        if (f.number == 8)
            for (field version; next_field(&inner, inner_end, &version);)
                model->opset = version.number == 2 ? (int64_t)version.integer : model->opset;
        if (f.number == 14)
            for (field entry; next_field(&inner, inner_end, &entry);)
                if (entry.number == 2)
                    copy_text(&entry, model->metadata, sizeof model->metadata);
    }
    return model;
}

static void free_model(onnx_model *model)
{
    free(model->bytes);
    free(model);
}

static bool has_made(const onnx_model *model, const char *name)
{
    for (int i = 0; i < model->made_count; i++)
        if (strcmp(model->made[i], name) == 0)
            return true;
    return strcmp(name, "images") == 0;
}

static int count_nodes(const onnx_model *model, const char *op)
{
    int count = 0;
    for (int i = 0; i < model->node_count; i++)
        count += strcmp(model->nodes[i], op) == 0;
    return count;
}

/* ---- writing ---- */

static fth_status save(const fth_graph *graph)
{
    size_t count = 0;
    int values = fth_graph_value_count(graph);
    fth_tensor_view *views = calloc((size_t)values, sizeof *views);
    float *parameters = calloc(fth_graph_parameter_floats(graph) + 16, sizeof(float));
    float *buffers = calloc(fth_graph_buffer_floats(graph) + 16, sizeof(float));
    assert_true(views && parameters && buffers);
    fth_graph_initialize(graph, 1, parameters, buffers);
    for (fth_value v = 0; v < values; v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        if (info->kind == FTH_VALUE_PARAMETER || info->kind == FTH_VALUE_BUFFER)
            views[count++] =
                (fth_tensor_view){info->name, FTH_F32, info->type.shape,
                                  (info->kind == FTH_VALUE_PARAMETER ? parameters : buffers) + info->offset};
    }
    const fth_metadata_entry metadata[] = {{"classes", "[\"a\",\"b\"]"}};
    fth_status status = fth_onnx_save(path, graph, views, count, &(fth_onnx_options){"test", metadata, 1});
    free(views);
    free(parameters);
    free(buffers);
    return status;
}

static onnx_model *export_model(const char *name, int channels, int side, const char *wanted)
{
    const fth_model *model;
    fth_graph *graph = NULL;
    assert_int_equal(fth_model_find(name, &model), FTH_OK);
    fth_model_options options = {.channels = channels, .height = side, .width = side, .classes = 10};
    assert_int_equal(fth_model_create_graph(model, &options, &graph), FTH_OK);
    assert_int_equal(save(graph), FTH_OK);
    fth_graph_free(graph);
    return read_model(wanted);
}

/* ---- tests ---- */

static void the_file_says_what_it_is(void **state)
{
    (void)state;
    onnx_model *model = export_model("mnist-cnn", 1, 28, "fc2.bias");
    assert_int_equal(model->ir_version, 8);
    assert_int_equal(model->opset, 17);
    assert_int_equal(model->input_count, 1); /* the labels are not part of it */
    assert_int_equal(model->output_count, 1);
    assert_string_equal(model->metadata, "[\"a\",\"b\"]");
    static const char *const expected[] = {"Conv",    "Relu", "Conv", "MaxPool", "Relu",
                                           "Flatten", "Gemm", "Relu", "Gemm"};
    assert_int_equal(model->node_count, FTH_COUNT_OF(expected));
    for (size_t i = 0; i < FTH_COUNT_OF(expected); i++)
        assert_string_equal(model->nodes[i], expected[i]);
    assert_int_equal(model->initializer_count, 8);
    assert_int_equal(model->raw_size, 10 * sizeof(float));
    free_model(model);
}

static void weights_are_in_it_as_they_are(void **state)
{
    (void)state;
    const fth_model *model;
    fth_graph *graph = NULL;
    fth_model_options options = {.channels = 3, .height = 32, .width = 32, .classes = 10};
    assert_int_equal(fth_model_find("cifar-cnn", &model), FTH_OK);
    assert_int_equal(fth_model_create_graph(model, &options, &graph), FTH_OK);
    assert_int_equal(save(graph), FTH_OK);
    onnx_model *read = read_model("conv2.weight");
    float *parameters = calloc(fth_graph_parameter_floats(graph), sizeof(float)), none;
    fth_graph_initialize(graph, 1, parameters, &none);
    const fth_value_info *info = fth_graph_value(graph, fth_graph_find(graph, "conv2.weight"));
    size_t size = (size_t)fth_shape_count(&info->type.shape) * sizeof(float);
    assert_int_equal(read->raw_size, size);
    assert_memory_equal(read->raw, parameters + info->offset, size);
    free(parameters);
    free_model(read);
    fth_graph_free(graph);
}

/* ONNX wants nodes in an order in which everything a node reads exists before it. */
static void every_value_is_made_before_it_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int side;
    } cases[] = {{"resnet18", 64}, {"resnet50", 33}, {"cifar-cnn", 32}};
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        onnx_model *model = export_model(cases[i].name, 3, cases[i].side, "");
        for (int n = 0; n < model->read_count; n++)
            if (!has_made(model, model->read[n]))
                fail_msg("%s: nothing makes %s", cases[i].name, model->read[n]);
        assert_true(has_made(model, "logits"));
        assert_int_equal(count_nodes(model, "Dropout"), 0);
        free_model(model);
    }
}

/* Sequences are padded there: the inputs are others, and everything is made of them. */
static void text_has_the_inputs_of_transformers(void **state)
{
    (void)state;
    const fth_model *bert = NULL;
    fth_graph *graph = NULL;
    const fth_model_options options = {.longest = 16, .classes = 3};
    assert_int_equal(fth_model_find("bert-tiny(vocabulary=50,positions=16,activation=gelu_new)", &bert), FTH_OK);
    assert_int_equal(fth_model_create_graph(bert, &options, &graph), FTH_OK);
    assert_int_equal(save(graph), FTH_OK);
    fth_graph_free(graph);
    onnx_model *model = read_model("bert.embeddings.word_embeddings.weight");
    assert_int_equal(model->input_count, 3);
    assert_int_equal(model->output_count, 1);
    assert_int_equal(model->raw_size, 50 * 128 * sizeof(float));
    static const char *const inputs[] = {"input_ids", "attention_mask", "token_type_ids"};
    int times_read[FTH_COUNT_OF(inputs)] = {0};
    for (int n = 0; n < model->read_count; n++) {
        bool is_input = false;
        for (size_t i = 0; i < FTH_COUNT_OF(inputs); i++) {
            bool same = strcmp(model->read[n], inputs[i]) == 0;
            times_read[i] += same;
            is_input = is_input || same;
        }
        if (!is_input && !has_made(model, model->read[n]))
            fail_msg("nothing makes %s", model->read[n]);
    }
    assert_true(times_read[0] == 2 && times_read[1] == 1 && times_read[2] == 1);
    assert_true(has_made(model, "logits"));
    assert_int_equal(count_nodes(model, "LayerNormalization"), 5);
    assert_int_equal(count_nodes(model, "Softmax"), 2);
    assert_int_equal(count_nodes(model, "Gemm"), 5); /* behind the first tokens; of all tokens they are MatMul */
    assert_int_equal(count_nodes(model, "Dropout"), 0);
    free_model(model);
}

static void fused_parts_are_taken_apart(void **state)
{
    (void)state;
    onnx_model *model = export_model("resnet18", 3, 64, "");
    assert_int_equal(count_nodes(model, "Conv"), 20);
    assert_int_equal(count_nodes(model, "BatchNormalization"), 20);
    assert_int_equal(count_nodes(model, "Add"), 8);
    assert_int_equal(count_nodes(model, "Relu"), 17);
    assert_int_equal(count_nodes(model, "GlobalAveragePool"), 1);
    free_model(model);
}

/* ---- ops that no model has yet, and refusals ---- */

typedef fth_status (*middle)(fth_graph *graph, fth_value x, fth_value *y);

static fth_graph *build_around(middle add_middle)
{
    fth_graph *graph = NULL;
    fth_value images, labels, weight, x, logits, loss;
    assert_int_equal(fth_graph_create(&graph), FTH_OK);
    assert_int_equal(fth_graph_add_input(graph, "images", FTH_F32, FTH_SHAPE(FTH_BATCH, 2, 4, 4), &images), FTH_OK);
    assert_int_equal(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels), FTH_OK);
    assert_int_equal(add_middle(graph, images, &x), FTH_OK);
    assert_int_equal(fth_op_add_flatten(graph, x, &x), FTH_OK);
    int64_t features = fth_graph_value(graph, x)->type.shape.dims[1];
    fth_initializer ones = {FTH_INIT_CONSTANT, 1};
    assert_int_equal(fth_graph_add_parameter(graph, "fc.weight", FTH_SHAPE(3, features), ones, &weight), FTH_OK);
    assert_int_equal(fth_op_add_linear(graph, false, x, weight, FTH_NO_VALUE, &logits), FTH_OK);
    assert_int_equal(fth_op_add_softmax_cross_entropy(graph, 0, logits, labels, &loss), FTH_OK);
    fth_graph_set_outputs(graph, logits, loss);
    assert_int_equal(fth_graph_differentiate(graph), FTH_OK);
    return graph;
}

static fth_status add_many(fth_graph *graph, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    fth_value gelu, relu, both, sum;
    FTH_TRY(fth_op_add_gelu(graph, x, &gelu));
    FTH_TRY(fth_op_add_relu(graph, x, &relu));
    FTH_TRY(fth_op_add_add(graph, true, gelu, relu, &sum));
    FTH_TRY(fth_op_add_concat(graph, 1, (fth_value[]){gelu, sum}, 2, &both));
    FTH_TRY(fth_op_add_dropout(graph, 0.5F, both, &both));
    fth_pool_attributes pool = {.kernel = {2, 2}, .stride = {2, 2}, .count_padding = true};
    FTH_TRY(fth_op_add_average_pool(graph, pool, both, y));

out:
    return status;
}

static void ops_of_other_graphs_are_written_too(void **state)
{
    (void)state;
    fth_graph *graph = build_around(add_many);
    assert_int_equal(save(graph), FTH_OK);
    onnx_model *model = read_model("");
    assert_int_equal(count_nodes(model, "Erf"), 1);
    assert_int_equal(count_nodes(model, "Concat"), 1);
    assert_int_equal(count_nodes(model, "AveragePool"), 1);
    for (int n = 0; n < model->read_count; n++)
        assert_true(has_made(model, model->read[n]));
    free_model(model);
    fth_graph_free(graph);
}

/* (N, 2, 4, 4) as 4 steps of 8 numbers -> LSTM -> GRU, last states -> attention, softmax, norms. */
static fth_status add_sequences(fth_graph *graph, fth_value x, fth_value *y)
{
    enum { STEPS = 4, HIDDEN = 6 };
    static const fth_recurrent_options options[] = {
        {.kind = FTH_LSTM, .layers = 1, .bidirectional = true, .bias = true}, {.kind = FTH_GRU, .layers = 1}};
    const fth_dot_product_attention_attributes attention = {
        .heads = 2, .queries = 1, .keys = STEPS, .causal = true, .scale = 0.5f};
    const fth_initializer ones = {FTH_INIT_CONSTANT, 1};
    fth_status status = FTH_OK;
    fth_value parameters[8], mask, h, unused;
    int inputs = 8;
    FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(FTH_BATCH, STEPS, inputs), x, &x));
    for (int layer = 0; layer < 2; layer++) {
        const fth_recurrent_options *o = &options[layer];
        const int gates = fth_recurrent_gates(o->kind) * HIDDEN, each = o->bias ? 4 : 2;
        const int count = each * (o->bidirectional ? 2 : 1);
        const fth_shape shapes[] = {FTH_SHAPE(gates, inputs), FTH_SHAPE(gates, HIDDEN), FTH_SHAPE(gates),
                                    FTH_SHAPE(gates)};
        for (int i = 0; i < count; i++) {
            char name[32];
            snprintf(name, sizeof name, "layer%d.%d", layer, i);
            FTH_TRY(fth_graph_add_parameter(graph, name, shapes[i % each], ones, &parameters[i]));
        }
        FTH_TRY(fth_op_add_recurrent(graph, *o, x, parameters, count, FTH_NO_VALUE, FTH_NO_VALUE, &x, &h, &unused));
        inputs = 2 * HIDDEN;
    }
    FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(fth_batch_times(STEPS), HIDDEN), x, &x));
    FTH_TRY(fth_graph_add_parameter(graph, "mask", FTH_SHAPE(1, 1, 1, STEPS), ones, &mask));
    FTH_TRY(fth_op_add_dot_product_attention(graph, attention, h, x, x, mask, &x));
    FTH_TRY(fth_op_add_softmax(graph, true, x, &x));
    FTH_TRY(fth_op_add_normalize(graph, 1e-5f, false, x, &x));
    FTH_TRY(fth_op_add_normalize(graph, 1e-5f, true, x, y));
out:
    return status;
}

static void ops_of_sequences_are_written(void **state)
{
    (void)state;
    static const struct {
        const char *op;
        int count;
    } expected[] = {{"LSTM", 2},       {"GRU", 1},   {"Softmax", 1}, {"LogSoftmax", 1},
                    {"ReduceMean", 3}, {"Trilu", 1}, {"MatMul", 2}};
    fth_graph *graph = build_around(add_sequences);
    assert_int_equal(save(graph), FTH_OK);
    onnx_model *model = read_model("");
    for (size_t i = 0; i < FTH_COUNT_OF(expected); i++)
        assert_int_equal(count_nodes(model, expected[i].op), expected[i].count);
    for (int n = 0; n < model->read_count; n++) /* an empty name is an input that is left out */
        assert_true(model->read[n][0] == '\0' || has_made(model, model->read[n]));
    free_model(model);
    fth_graph_free(graph);
}

/* Every function of an expression that the forward pass may have, and each reduction. */
static fth_status add_functions(fth_graph *graph, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    const fth_shape wide = FTH_SHAPE(FTH_BATCH, 2, 4, 4);
    fth_expression nothing = {0};
    fth_value parts[4], scale;
    FTH_TRY(
        fth_graph_add_parameter(graph, "scale", FTH_SHAPE(2, 1, 1), (fth_initializer){FTH_INIT_CONSTANT, 1}, &scale));
    FTH_TRY(fth_op_add_pointwise(graph, &nothing, &scale, 1, &wide, &parts[0]));
    for (int f = 0; f <= FTH_FUNCTION_NORMAL_DENSITY; f++) { /* the rest are derivatives */
        fth_expression e = {0};
        fth_expression_apply(&e, (fth_expression_function)f, fth_expression_input(0), fth_expression_input(1),
                             fth_expression_number(&e, 2));
        FTH_TRY(fth_op_add_pointwise(graph, &e, (fth_value[]){x, parts[0]}, 2, NULL, &x));
    }
    FTH_TRY(fth_op_add_reduce(graph, FTH_REDUCE_MEAN, 4, true, x, &parts[1]));
    FTH_TRY(fth_op_add_reduce(graph, FTH_REDUCE_MAX, 4, true, x, &parts[2]));
    FTH_TRY(fth_op_add_reduce(graph, FTH_REDUCE_SUM, 4, true, x, &parts[3]));
    FTH_TRY(fth_op_add_concat(graph, 2, parts + 1, 3, y));
out:
    return status;
}

static void expressions_are_written(void **state)
{
    (void)state;
    static const char *const expected[] = {"Expand", "Shape", "ReduceMean", "ReduceMax", "ReduceSum", "Where"};
    fth_graph *graph = build_around(add_functions);
    assert_int_equal(save(graph), FTH_OK);
    onnx_model *model = read_model("");
    for (size_t i = 0; i < FTH_COUNT_OF(expected); i++)
        assert_int_equal(count_nodes(model, expected[i]), 1);
    assert_int_equal(count_nodes(model, "Erf"), 3); /* erf, gelu, the normal distribution */
    assert_int_equal(count_nodes(model, "Cast"), 9);
    for (int n = 0; n < model->read_count; n++)
        assert_true(has_made(model, model->read[n]));
    free_model(model);
    fth_graph_free(graph);
}

static fth_status add_moves(fth_graph *graph, fth_value x, fth_value *y)
{
    static const int32_t order[] = {3, 0, 0, 1};
    fth_status status = FTH_OK;
    fth_value indices, parts[2];
    FTH_TRY(fth_op_add_constant(graph, (fth_type){FTH_I32, FTH_SHAPE(4)}, order, &indices));
    FTH_TRY(fth_op_add_permute(graph, (const int[]){0, 2, 3, 1}, x, &parts[0]));
    FTH_TRY(fth_op_add_gather(graph, 1, parts[0], indices, &parts[1]));
    FTH_TRY(fth_op_add_concat(graph, 3, parts, 2, y));
    FTH_TRY(fth_op_add_slice(graph, 2, 1, 4, 2, *y, y));
    FTH_TRY(fth_op_add_pad(graph, (fth_pad_attributes){.axis = 3, .before = 1, .value = 2}, *y, y));
    FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(fth_batch_times(8), 5), *y, y));
    FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(FTH_BATCH, 40), *y, y));

out:
    return status;
}

static void ops_that_move_elements_are_written(void **state)
{
    (void)state;
    static const char *const expected[] = {"Transpose", "Gather", "Concat", "Slice", "Pad"};
    fth_graph *graph = build_around(add_moves);
    assert_int_equal(save(graph), FTH_OK);
    onnx_model *model = read_model("constant0");
    for (size_t i = 0; i < FTH_COUNT_OF(expected); i++)
        assert_int_equal(count_nodes(model, expected[i]), 1);
    assert_int_equal(count_nodes(model, "Reshape"), 2);
    for (int n = 0; n < model->read_count; n++)
        assert_true(has_made(model, model->read[n]));
    int64_t indices[4];
    assert_int_equal(model->raw_size, sizeof indices);
    memcpy(indices, model->raw, sizeof indices);
    assert_int_equal(indices[0], 3);
    assert_int_equal(indices[3], 1);
    free_model(model);
    fth_graph_free(graph);
}

static fth_status pool_evenly(fth_graph *graph, fth_value x, fth_value *y)
{
    return fth_op_add_adaptive_average_pool(graph, 2, 2, x, y);
}

static fth_status pool_unevenly(fth_graph *graph, fth_value x, fth_value *y)
{
    return fth_op_add_adaptive_average_pool(graph, 3, 2, x, y); /* 3 of 4 rows: windows overlap */
}

static void adaptive_pooling_has_two_forms(void **state)
{
    (void)state;
    fth_graph *graph = build_around(pool_evenly);
    assert_int_equal(save(graph), FTH_OK);
    onnx_model *model = read_model("");
    assert_int_equal(count_nodes(model, "MatMul"), 0);
    assert_int_equal(count_nodes(model, "AveragePool"), 1);
    free_model(model);
    fth_graph_free(graph);

    graph = build_around(pool_unevenly);
    assert_int_equal(save(graph), FTH_OK);
    model = read_model("constant1");
    assert_int_equal(count_nodes(model, "MatMul"), 2);
    assert_int_equal(count_nodes(model, "AveragePool"), 0);
    float rows[3][4];
    static const float expected[3][4] = {{0.5F, 0.5F, 0, 0}, {0, 0.5F, 0.5F, 0}, {0, 0, 0.5F, 0.5F}};
    assert_int_equal(model->raw_size, sizeof rows);
    memcpy(rows, model->raw, sizeof rows);
    assert_memory_equal(rows, expected, sizeof rows);
    free_model(model);
    fth_graph_free(graph);
}

static fth_status add_op_of_gradients(fth_graph *graph, fth_value x, fth_value *y)
{
    const fth_pad_attributes pad = {.axis = 1, .between = 1};
    return fth_op_add_pad(graph, pad, x, y);
}

static void an_op_without_a_translation_is_named(void **state)
{
    (void)state;
    unlink(path);
    fth_graph *graph = build_around(add_op_of_gradients);
    assert_int_equal(save(graph), FTH_UNSUPPORTED);
    assert_message_has("exporting pad");
    assert_message_has("no translation to ONNX");
    assert_false(fth_file_exists(path));
    fth_graph_free(graph);
}

static void missing_weights_and_giants_are_refused(void **state)
{
    (void)state;
    const fth_model *model;
    fth_graph *graph = NULL;
    fth_onnx_options options = {"test", NULL, 0};
    fth_model_options size = {.channels = 3, .height = 20000, .width = 20000, .classes = 2};
    assert_int_equal(fth_model_find("linear", &model), FTH_OK);
    assert_int_equal(fth_model_create_graph(model, &size, &graph), FTH_OK);
    unlink(path);
    assert_int_equal(fth_onnx_save(path, graph, NULL, 0, &options), FTH_INVALID);
    assert_message_has("no weights for fc.weight");
    static const float nothing[2]; /* is not read: the size is known before */
    fth_tensor_view views[] = {{"fc.weight", FTH_F32, FTH_SHAPE(2, INT64_C(1200000000)), nothing},
                               {"fc.bias", FTH_F32, FTH_SHAPE(2), nothing}};
    assert_int_equal(fth_onnx_save(path, graph, views, 2, &options), FTH_UNSUPPORTED);
    assert_message_has("9.6 GB; an ONNX file cannot be larger than 2 GB");
    assert_false(fth_file_exists(path));
    fth_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_says_what_it_is),
        cmocka_unit_test(weights_are_in_it_as_they_are),
        cmocka_unit_test(every_value_is_made_before_it_is_read),
        cmocka_unit_test(fused_parts_are_taken_apart),
        cmocka_unit_test(adaptive_pooling_has_two_forms),
        cmocka_unit_test(text_has_the_inputs_of_transformers),
        cmocka_unit_test(ops_of_other_graphs_are_written_too),
        cmocka_unit_test(expressions_are_written),
        cmocka_unit_test(ops_that_move_elements_are_written),
        cmocka_unit_test(ops_of_sequences_are_written),
        cmocka_unit_test(an_op_without_a_translation_is_named),
        cmocka_unit_test(missing_weights_and_giants_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
