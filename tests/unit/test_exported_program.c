/* Programs of torch.export as PyTorch 2.5 to 2.15 write them (tests/torch/exported), the same as
 * text, and files that were changed to do harm. */
#include "support.h"

#include <jansson.h>
#include <math.h>

#include "exported/program.h"
#include "exported_files.h"
#include "tensor/weights.h"

static const char *const versions[] = {"2.5", "2.7", "2.8", "2.9", "2.15"};

static fth_exported *open_fixture(const char *version)
{
    char path[TEST_MAX_PATH];
    fth_exported *program = NULL;
    fixture_path(path, version);
    if (fth_exported_open(path, &program) != FTH_OK)
        fail_msg("PyTorch %s: %s", version, fth_error_message());
    return program;
}

static const fth_exported_value *find_state(const fth_exported *program, const char *state_name, bool last)
{
    const fth_exported_value *found = NULL;
    for (int i = 0; i < fth_exported_value_count(program); i++) {
        const fth_exported_value *value = fth_exported_get_value(program, i);
        if (value->state_name && strcmp(value->state_name, state_name) == 0 && (last || !found))
            found = value;
    }
    assert_non_null(found);
    return found;
}

static const fth_exported_node *find_node(const fth_exported *program, const char *target)
{
    for (size_t i = 0; i < fth_exported_node_count(program); i++) {
        if (strcmp(fth_exported_get_node(program, i)->target, target) == 0)
            return fth_exported_get_node(program, i);
    }
    fail_msg("no node %s", target);
    return NULL;
}

static void assert_floats(const fth_exported_value *value, const float *expected, size_t count)
{
    assert_int_equal(value->size_bytes, count * sizeof *expected);
    for (size_t i = 0; i < count; i++) {
        float number;
        memcpy(&number, (const char *)value->data + i * sizeof number, sizeof number);
        assert_true(number == expected[i]);
    }
}

/* ---- what PyTorch writes ---- */

static void check_values(const fth_exported *program)
{
    const fth_exported_value *weight = find_state(program, "b.weight", true);
    assert_int_equal(weight->kind, FTH_EXPORTED_PARAMETER);
    assert_int_equal(weight->torch_dtype, FTH_TORCH_F32);
    assert_true(weight->trainable && weight->persistent);
    assert_int_equal(weight->rank, 2);
    assert_true(fth_exported_dim_is(&weight->dims[0], 3) && fth_exported_dim_is(&weight->dims[1], 8));
    float expected[24]; /* stored as (8, 3) and transposed */
    for (int row = 0; row < 3; row++)
        for (int column = 0; column < 8; column++)
            expected[row * 8 + column] = (float)(column * 3 + row + 1) / 24;
    assert_floats(weight, expected, 24);
    const fth_exported_value *other = find_state(program, "a.weight", true); /* older programs call it b's */
    const int tie = weight->same_as >= 0 ? weight->same_as : other->same_as;
    assert_ptr_equal(fth_exported_get_value(program, tie), weight->same_as >= 0 ? other : weight);
    assert_ptr_equal(weight->data, other->data);
    assert_true(weight->same_as < 0 || other->same_as < 0);

    const fth_exported_value *bias = find_state(program, "bn.bias", false);
    assert_false(bias->trainable);
    assert_int_equal(bias->same_as, -1);
    assert_floats(bias, (float[]){0.5f, 1}, 2);
    assert_floats(find_state(program, "bn.running_var", false), (float[]){1, 1}, 2);
    const fth_exported_value *counter = find_state(program, "bn.num_batches_tracked", false);
    assert_int_equal(counter->kind, FTH_EXPORTED_BUFFER);
    assert_int_equal(counter->torch_dtype, FTH_TORCH_I64);
    assert_int_equal(counter->rank, 0);
    assert_int_equal(counter->size_bytes, 8);
    const fth_exported_value *shift = find_state(program, "shift", false);
    assert_false(shift->persistent);
    assert_memory_equal(shift->data, ((int64_t[]){1, 2, 3}), 24);
    const fth_exported_value *mask = find_state(program, "mask", false);
    assert_int_equal(mask->kind, FTH_EXPORTED_CONSTANT);
    assert_memory_equal(mask->data, ((bool[]){false, true, false}), 3);
}

static void check_graph(const fth_exported *program)
{
    assert_int_equal(fth_exported_input_count(program), 1);
    assert_int_equal(fth_exported_output_count(program), 1);
    assert_int_equal(fth_exported_node_count(program), 9);
    const fth_exported_value *x = fth_exported_get_value(program, fth_exported_get_input(program, 0));
    assert_int_equal(x->kind, FTH_EXPORTED_INPUT);
    assert_int_equal(x->rank, 4);
    assert_true(x->dims[0].batch && !x->dims[0].length && !x->dims[0].unknown);
    assert_int_equal(x->dims[0].factor, 1);
    const fth_exported_value *y = fth_exported_get_value(program, fth_exported_get_output(program, 0));
    assert_int_equal(y->kind, FTH_EXPORTED_RESULT);
    assert_true(y->rank == 2 && y->dims[0].batch && fth_exported_dim_is(&y->dims[1], 3));

    const fth_exported_node *conv = find_node(program, "aten.conv2d.default");
    assert_int_equal(fth_exported_find_argument(conv, "input")->tensor, fth_exported_get_input(program, 0));
    assert_null(fth_exported_find_argument(conv, "stride"));                 /* the default */
    assert_int_equal(strncmp(conv->where, "net.py:", strlen("net.py:")), 0); /* and a line's number */
    assert_non_null(strstr(conv->where, ", in forward: x = self.bn(self.conv(x)).view(x.shape[0], 8)"));
    assert_string_equal(conv->module, "conv (torch.nn.modules.conv.Conv2d)");
    const fth_exported_node *norm = find_node(program, "aten.batch_norm.default");
    assert_int_equal(fth_exported_find_argument(norm, "training")->kind, FTH_ARGUMENT_BOOL);
    assert_true(fth_exported_find_argument(norm, "training")->boolean);
    assert_true(fth_exported_find_argument(norm, "momentum")->number == 0.1);
    const fth_exported_argument *size = fth_exported_find_argument(find_node(program, "aten.view.default"), "size");
    assert_int_equal(size->kind, FTH_ARGUMENT_INTS);
    assert_true(size->count == 2 && size->integers[0].batch && fth_exported_dim_is(&size->integers[1], 8));
    const fth_exported_node *fill = find_node(program, "aten.masked_fill.Scalar");
    assert_true(fth_exported_find_argument(fill, "value")->number == -INFINITY);
}

static void test_every_version(void **state)
{
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(versions); i++) {
        fth_exported *program = open_fixture(versions[i]);
        assert_int_equal(strncmp(fth_exported_torch_version(program), versions[i], strlen(versions[i])), 0);
        check_values(program);
        check_graph(program);
        fth_exported_free(program);
    }
}

static void test_weights_of_every_version(void **state)
{
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(versions); i++) {
        char path[TEST_MAX_PATH];
        fth_weights *weights = NULL;
        fixture_path(path, versions[i]);
        assert_int_equal(fth_weights_open(path, &weights), FTH_OK);
        assert_string_equal(fth_weights_describe(weights).format, "PyTorch's exported program");
        assert_int_equal(fth_weights_count(weights), 8);
        assert_int_equal(fth_weights_describe(weights).copied_count, 2);
        const fth_tensor_view *view = fth_weights_find(weights, "a.weight");
        assert_non_null(view);
        assert_true(fth_shape_equal(&view->shape, &FTH_SHAPE(3, 8)));
        float first[2];
        memcpy(first, view->data, sizeof first);
        assert_true(first[0] == 1.0f / 24 && first[1] == 4.0f / 24);
        assert_null(fth_weights_find(weights, "shift"));
        fth_weights_free(weights);
    }
}

/* ---- as text ---- */

static void assert_equal_dims(const fth_exported_dim *a, const fth_exported_dim *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(a[i].factor, b[i].factor);
        assert_true(a[i].batch == b[i].batch && a[i].length == b[i].length && a[i].unknown == b[i].unknown);
    }
}

static void assert_equal_arguments(const fth_exported_argument *a, const fth_exported_argument *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->tensor, b->tensor);
    assert_equal_dims(&a->integer, &b->integer, 1);
    assert_true(memcmp(&a->number, &b->number, sizeof a->number) == 0 && a->boolean == b->boolean);
    for (size_t i = 0; i < a->count; i++) {
        if (a->tensors)
            assert_int_equal(a->tensors[i], b->tensors[i]);
        if (a->integers)
            assert_equal_dims(&a->integers[i], &b->integers[i], 1);
        if (a->numbers)
            assert_true(memcmp(&a->numbers[i], &b->numbers[i], sizeof *a->numbers) == 0);
        if (a->booleans)
            assert_true(a->booleans[i] == b->booleans[i]);
    }
    assert_string_equal(a->text ? a->text : "", b->text ? b->text : "");
}

static void assert_equal_programs(const fth_exported *a, const fth_exported *b)
{
    assert_int_equal(fth_exported_value_count(a), fth_exported_value_count(b));
    for (int i = 0; i < fth_exported_value_count(a); i++) {
        const fth_exported_value *x = fth_exported_get_value(a, i), *y = fth_exported_get_value(b, i);
        assert_string_equal(x->name, y->name);
        assert_string_equal(x->state_name ? x->state_name : "", y->state_name ? y->state_name : "");
        assert_true(x->kind == y->kind && x->torch_dtype == y->torch_dtype && x->trainable == y->trainable);
        assert_true(x->persistent == y->persistent && x->rank == y->rank && x->same_as == y->same_as);
        assert_equal_dims(x->dims, y->dims, (size_t)x->rank);
    }
    assert_int_equal(fth_exported_node_count(a), fth_exported_node_count(b));
    for (size_t i = 0; i < fth_exported_node_count(a); i++) {
        const fth_exported_node *x = fth_exported_get_node(a, i), *y = fth_exported_get_node(b, i);
        assert_string_equal(x->target, y->target);
        assert_string_equal(x->where, y->where);
        assert_string_equal(x->module, y->module);
        assert_int_equal(x->argument_count, y->argument_count);
        for (size_t k = 0; k < x->argument_count; k++)
            assert_equal_arguments(&x->arguments[k], &y->arguments[k]);
        assert_int_equal(x->output_count, y->output_count);
        assert_memory_equal(x->outputs, y->outputs, x->output_count * sizeof *x->outputs);
    }
    assert_int_equal(fth_exported_get_input(a, 0), fth_exported_get_input(b, 0));
    assert_int_equal(fth_exported_get_output(a, 0), fth_exported_get_output(b, 0));
    assert_string_equal(fth_exported_torch_version(a), fth_exported_torch_version(b));
}

static void test_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(versions); i++) {
        fth_exported *program = open_fixture(versions[i]), *parsed = NULL;
        char *text = NULL, *again = NULL;
        assert_int_equal(fth_exported_to_text(program, &text), FTH_OK);
        assert_int_equal(fth_exported_parse(text, strlen(text), "a model file", &parsed), FTH_OK);
        assert_equal_programs(program, parsed);
        assert_int_equal(fth_exported_to_text(parsed, &again), FTH_OK);
        assert_string_equal(text, again);
        /* What is trained, or changes in training, is in the weights. */
        assert_null(find_state(parsed, "conv.weight", false)->data);
        assert_null(find_state(parsed, "bn.running_mean", false)->data);
        assert_memory_equal(find_state(parsed, "shift", false)->data, ((int64_t[]){1, 2, 3}), 24);
        assert_memory_equal(find_state(parsed, "mask", false)->data, ((bool[]){false, true, false}), 3);
        free(text);
        free(again);
        fth_exported_free(program);
        fth_exported_free(parsed);
    }
}

/* Every kind of argument and size that fixtures lack. */
static const char all_kinds[] =
    "{'schema_version':{'major':8,'minor':20},'verifiers':['TRAINING'],'torch_version':'2.15.0','graph_module':{"
    "'signature':{'input_specs':[{'user_input':{'arg':{'as_none':true}}},{'constant_input':{'name':'flag','value':"
    "{'as_bool':true}}},{'user_input':{'arg':{'as_tensor':{'name':'ids'}}}}],"
    "'output_specs':[{'user_output':{'arg':{'as_none':true}}},{'user_output':{'arg':{'as_tensor':{'name':'y1'}}}}]},"
    "'graph':{'sym_int_values':{'n':{'as_expr':{'expr_str':'Symbol(\\'s77\\', positive=True, integer=True)'}},"
    "'sum':{'as_expr':{'expr_str':'Add(Symbol(\\'s77\\', positive=True, integer=True), Integer(1))'}}},"
    "'tensor_values':{'unused':7,'ids':{'dtype':5,'sizes':[{'as_expr':{'expr_str':'s77'}},{'as_expr':{'expr_str':'s27'}"
    "},"
    "{'as_expr':{'expr_str':'s3'}}]},'y0':{'dtype':7,'sizes':[{'as_expr':{'expr_str':'12*s77'}},{'as_expr':{'expr_str':"
    "'Mul(Integer(12), Symbol(\\'s77\\', positive=True, integer=True), Symbol(\\'s27\\', positive=True, "
    "integer=True))'}},"
    "{'as_expr':{'expr_str':'s77**2'}},{'as_expr':{'expr_str':'FloorDiv(Mul(Integer(12), s27), Integer(4))'}},"
    "{'as_expr':{'expr_str':'FloorDiv(Mul(Integer(12), s27), Integer(5))'}}]},'y1':{'dtype':7,'sizes':[]}},"
    "'nodes':[{'target':'torch.ops.aten.sym_size.int','inputs':[],'outputs':[{'as_sym_int':{'as_name':'n'}}]},"
    "{'target':'_operator.add','inputs':[],'outputs':[{'as_sym_int':{'as_name':'sum'}}]},"
    "{'target':'torch.ops.aten._assert_tensor_metadata.default','inputs':[],'outputs':[]},"
    "{'target':'torch.ops.aten.everything.default','inputs':["
    "{'name':'a','arg':{'as_none':true}},{'name':'b','arg':{'as_tensors':[{'name':'ids'},{'name':'ids'}]}},"
    "{'name':'c','arg':{'as_optional_tensors':[{'as_none':true},{'as_tensor':{'name':'ids'}}]}},"
    "{'name':'d','arg':{'as_sym_int':{'as_name':'sum'}}},{'name':'e','arg':{'as_ints':[0,-1,9223372036854775807]}},"
    "{'name':'f','arg':{'as_float':'NaN'}},{'name':'g','arg':{'as_floats':[1.5,'Infinity',2]}},"
    "{'name':'h','arg':{'as_bools':[true,false]}},{'name':'i','arg':{'as_string':'none \\\\u00e9'}},"
    "{'name':'j','arg':{'as_scalar_type':7}},{'name':'k','arg':{'as_device':{'type':'cpu','index':null}}},"
    "{'name':'l','arg':{'as_optional_tensor':{'as_tensor':{'name':'ids'}}}},"
    "{'name':'m','arg':{'as_optional_tensor':{'as_none':true}}},{'name':'n','arg':{'as_ints':[]}}],"
    "'outputs':[{'as_tensors':[{'name':'y0'},{'name':'y_unused_1'}]},{'as_none':true},{'as_tensor':{'name':'y1'}}],"
    "'metadata':{'nn_module_stack':'L__self__,,net.Net;x,L[\\'self\\'].layer1.0,net.Block'}}]}},'data':{}}";

static void test_all_kinds(void **state)
{
    (void)state;
    fth_exported *program = NULL, *again = NULL;
    char *text = NULL, *json = json_of(all_kinds);
    if (fth_exported_parse(json, strlen(json), "kinds", &program) != FTH_OK)
        fail_msg("%s", fth_error_message());
    assert_int_equal(fth_exported_node_count(program), 1);
    const fth_exported_node *node = fth_exported_get_node(program, 0);
    assert_string_equal(node->target, "aten.everything.default");
    assert_string_equal(node->module, "layer1.0 (net.Block)");
    assert_string_equal(node->where, "");
    assert_int_equal(node->output_count, 4);
    assert_true(node->outputs[0] == 1 && node->outputs[1] == -1 && node->outputs[2] == -1 && node->outputs[3] == 2);

    const fth_exported_value *ids = fth_exported_get_value(program, 0), *y = fth_exported_get_value(program, 1);
    const fth_exported_dim batch = {1, true, false, false}, length = {1, false, true, false}, none = {.unknown = true};
    assert_equal_dims(ids->dims, (fth_exported_dim[]){batch, length, none}, 3);
    assert_equal_dims(
        y->dims,
        (fth_exported_dim[]){{12, true, false, false}, {12, true, true, false}, none, {3, false, true, false}, none},
        5);
    assert_equal_dims(&fth_exported_find_argument(node, "d")->integer, &none, 1);
    assert_true(fth_exported_find_argument(node, "c")->tensors[0] == -1);
    assert_int_equal(fth_exported_find_argument(node, "e")->integers[2].factor, INT64_MAX);
    assert_true(fth_exported_find_argument(node, "g")->numbers[1] == INFINITY);
    assert_true(fth_exported_find_argument(node, "h")->booleans[0]);
    assert_int_equal(fth_exported_find_argument(node, "j")->integer.factor, 7);
    assert_string_equal(fth_exported_find_argument(node, "k")->text, "as_device");
    assert_int_equal(fth_exported_find_argument(node, "m")->kind, FTH_ARGUMENT_NONE);

    assert_int_equal(fth_exported_to_text(program, &text), FTH_OK);
    assert_int_equal(fth_exported_parse(text, strlen(text), "text", &again), FTH_OK);
    assert_equal_programs(program, again);
    free(json);
    free(text);
    fth_exported_free(program);
    fth_exported_free(again);
}

/* A program of one node, with room for its stack_trace. */
static const char one_line[] =
    "{'schema_version':{'major':8},'verifiers':['TRAINING'],'graph_module':{'signature':{'input_specs':[{'user_input':"
    "{'arg':{'as_tensor':{'name':'x'}}}}],'output_specs':[{'user_output':{'arg':{'as_tensor':{'name':'x'}}}}]},'graph':"
    "{"
    "'tensor_values':{'x':{'dtype':7,'sizes':[]}},'nodes':[{'target':'a','inputs':[],'outputs':[],'metadata':{"
    "'stack_trace':%s}}]}}}";

/* The user's line among PyTorch's, on Windows too. */
static void test_lines(void **state)
{
    (void)state;
    static const char *const traces[][2] = {
        {"File \"/me/a.py\", line 3, in forward\n    return self.b(x)\n  File \"/me/b.py\", line 4, in forward\n"
         "    return f(x)\n  File \"/v/site-packages/torch/nn/f.py\", line 5, in f\n    g()",
         "b.py:4, in forward: return f(x)"},
        {"File \"C:\\me\\a.py\", line 3, in forward\n    y = x\n  File \"C:\\v\\site-packages\\torch\\f.py\", line 5, "
         "in f\n",
         "a.py:3, in forward: y = x"},
        {"File \"/v/site-packages/torch/nn/f.py\", line 5, in f", "f.py:5, in f"},
        {"File \"/v/a.py\", line 5, in f\n  File \"<frozen>\", line 1, in g\n    h()", "a.py:5, in f"},
        {"no trace", ""},
        {"File \"", ""},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(traces); i++) {
        fth_exported *program = NULL;
        json_t *trace = json_string(traces[i][0]);
        char *quoted = json_dumps(trace, JSON_ENCODE_ANY), *form = json_of(one_line);
        char *text = fth_format(form, quoted);
        if (fth_exported_parse(text, strlen(text), "lines", &program) != FTH_OK)
            fail_msg("%s", fth_error_message());
        assert_string_equal(fth_exported_get_node(program, 0)->where, traces[i][1]);
        fth_exported_free(program);
        json_decref(trace);
        free(quoted);
        free(form);
        free(text);
    }
}

/* ---- what is refused ---- */

/* A change of the program's JSON, or of the list of weights, and what is said of it. */
typedef struct refusal {
    const char *entry, *from, *to;
    fth_status status;
    const char *message;
} refusal;

#define PROGRAM "models/model.json"
#define WEIGHTS "data/weights/model_weights_config.json"

static const refusal refusals[] = {
    {PROGRAM, "\"major\": 8", "\"major\": 9", FTH_UNSUPPORTED, "schema version 9, written by PyTorch 2.15"},
    {PROGRAM, "\"major\": 8", "\"major\": 9", FTH_UNSUPPORTED, "torch.export.export(model.train(), (example,)"},
    {PROGRAM, "\"major\"", "\"x\"", FTH_CORRUPT, "no schema_version"},
    {PROGRAM, "\"TRAINING\"", "\"EDGE\"", FTH_UNSUPPORTED, "dialect 'EDGE'"},
    {PROGRAM, "\"TRAINING\"", "\"ATEN\", \"EDGE\"", FTH_UNSUPPORTED, "dialect 'EDGE'"},
    {PROGRAM, "{\"graph_module\"", "[{\"graph_module\"", FTH_CORRUPT, "line 1"},
    {PROGRAM, "\"name\": \"conv2d\"}}], \"meta", "\"name\": \"x\"}}], \"meta", FTH_CORRUPT,
     "two tensors are called 'x'"},
    {PROGRAM, "\"input\", \"arg\": {\"as_tensor\": {\"name\": \"x\"}}",
     "\"input\", \"arg\": {\"as_tensor\": {\"name\": \"linear\"}}", FTH_CORRUPT,
     "node 1 (aten.conv2d.default) reads 'linear', which no earlier node computes"},
    {PROGRAM, "{\"as_float\": 0.1}", "{\"as_float\": []}", FTH_CORRUPT,
     "(aten.batch_norm.default): argument 'momentum': expected a number"},
    {PROGRAM, "{\"as_float\": 0.1}", "{}", FTH_CORRUPT, "argument 'momentum': expected one value"},
    {PROGRAM, "{\"as_int\": 1}", "{\"as_int\": 99999999999999999999}", FTH_CORRUPT, "too big integer"},
    {PROGRAM, "\"as_name\": \"sym_size_int_1\"}, {", "\"as_name\": \"nothing\"}, {", FTH_CORRUPT,
     "argument 'size': expected whole numbers"},
    {PROGRAM, "\"parameter_name\": \"conv.weight\"", "\"parameter_name\": \"conv.other\"", FTH_CORRUPT,
     "no data for 'conv.other'"},
    {PROGRAM, "\"parameter_name\": \"conv.weight\"", "\"parameter_name\": \"a\\nb\"", FTH_CORRUPT,
     "is no name for a tensor"},
    {PROGRAM, "\"parameter_name\": \"conv.weight\"", "\"parameter_name\": \"bn.weight\"", FTH_CORRUPT,
     "which is not what its program says"},
    {PROGRAM, "{\"tensor_constant\":", "{\"custom_obj\":", FTH_UNSUPPORTED, "an input of kind custom_obj"},
    {PROGRAM, "[{\"user_output\":", "[{\"loss_output\":", FTH_UNSUPPORTED, "an output of kind loss_output"},
    {PROGRAM, "\"as_int\": 2}, {\"as_int\": 1}, {\"as_int\": 3}", "\"as_int\": -2}, {\"as_int\": 1}, {\"as_int\": 3}",
     FTH_CORRUPT, "dimension 0 is neither"},
    {WEIGHTS, "\"use_pickle\": false", "\"use_pickle\": true", FTH_UNSUPPORTED,
     "tensor 'conv.weight' is refused: it is pickled"},
    {WEIGHTS, "\"weight_0\"", "\"weight_99\"", FTH_CORRUPT, "in 'weight_99', which the file does not have"},
    {WEIGHTS, "\"weight_0\"", "\"../weights/weight_0\"", FTH_CORRUPT, "which the file does not have"},
    {WEIGHTS, "\"storage_offset\": {\"as_int\": 0}", "\"storage_offset\": {\"as_int\": 1}", FTH_CORRUPT,
     "tensor 'conv.weight' reaches beyond its storage of 18 items"},
    {WEIGHTS, "\"storage_offset\": {\"as_int\": 0}", "\"storage_offset\": {\"as_int\": -1}", FTH_CORRUPT,
     "no storage_offset"},
    {WEIGHTS, "\"dtype\": 7", "\"dtype\": 10", FTH_UNSUPPORTED, "has dtype complex64"},
    {WEIGHTS, "\"dtype\": 7", "\"dtype\": 6", FTH_CORRUPT,
     "F16 of shape (2, 1, 3, 3), which is not what its program says"},
    {WEIGHTS, "\"layout\": 7", "\"layout\": 1", FTH_UNSUPPORTED, "it is sparse or of another special layout"},
    {WEIGHTS, "\"sizes\": [{\"as_int\": 2}, {\"as_int\": 1}",
     "\"sizes\": [{\"as_int\": 4611686018427387904}, {\"as_int\": 8}", FTH_CORRUPT, "an impossibly large shape"},
    {"byteorder", "little", "big", FTH_UNSUPPORTED, "big-endian"},
};

/* Opens a fixture with one entry changed. */
static fth_status open_changed(const refusal *r)
{
    exported_file file = read_fixture("2.15");
    fth_exported *program = NULL;
    if (!replace_in_entry(&file, r->entry, r->from, r->to))
        fail_msg("%s has no %s", r->entry, r->from);
    size_t size_bytes;
    unsigned char *bytes = pack(&file, &size_bytes);
    fth_status status = fth_exported_open_bytes(bytes, size_bytes, "net.pt2", &program);
    fth_exported_free(program);
    free(bytes);
    release_file(&file);
    return status;
}

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(refusals); i++) {
        const refusal *r = &refusals[i];
        if (open_changed(r) != r->status)
            fail_msg("%s instead of %s: %s", r->to, r->from, fth_error_message());
        assert_message_of(r->to, "net.pt2");
        assert_message_of(r->to, r->message);
    }
}

/* A file of a few KB with 20,000 tensors that nothing reads, and one that expands one number to all
 * the memory there is. */
static void test_amplification(void **state)
{
    (void)state;
    const refusal unused = {PROGRAM, "\"tensor_values\": {", NULL, FTH_OK, ""};
    char *many = malloc(20000 * 32 + 100), *end = many + sprintf(many, "\"tensor_values\": {");
    for (int i = 0; i < 20000; i++)
        end += sprintf(end, "\"unused_%d\": 0, ", i);
    refusal filled = unused;
    filled.to = many;
    assert_int_equal(open_changed(&filled), FTH_OK);
    free(many);

    const refusal expanded = {
        WEIGHTS,
        "\"sizes\": [{\"as_int\": 2}, {\"as_int\": 1}, {\"as_int\": 3}, {\"as_int\": 3}], "
        "\"requires_grad\": true, \"device\": {\"type\": \"cpu\", \"index\": null}, \"strides\": "
        "[{\"as_int\": 9}, {\"as_int\": 9}, {\"as_int\": 3}, {\"as_int\": 1}]",
        "\"sizes\": [{\"as_int\": 1048576}, {\"as_int\": 1048576}], \"strides\": [{\"as_int\": 0}, "
        "{\"as_int\": 0}]",
        FTH_UNSUPPORTED, ""};
    assert_int_equal(open_changed(&expanded), FTH_UNSUPPORTED);
    assert_message_has("tensor 'conv.weight' is expanded to far more than the file holds");
}

/* No prefix of a file, and no file with a byte changed, does any harm. */
static void test_damage(void **state)
{
    (void)state;
    exported_file file = read_fixture("2.15");
    size_t size_bytes;
    unsigned char *bytes = pack(&file, &size_bytes);
    for (size_t i = 0; i < size_bytes; i += 1 + i / 64) {
        fth_exported *program = NULL;
        unsigned char *cut = malloc(i + 1), before = bytes[i];
        memcpy(cut, bytes, i);
        assert_int_not_equal(fth_exported_open_bytes(cut, i, "cut", &program), FTH_OK);
        free(cut);
        bytes[i] ^= 0x41;
        FTH_IGNORE(fth_exported_open_bytes(bytes, size_bytes, "damaged", &program), "some damage does not show");
        fth_exported_free(program);
        bytes[i] = before;
    }
    free(bytes);
    release_file(&file);
}

static void test_not_a_program(void **state)
{
    (void)state;
    fth_exported *program = NULL;
    exported_file file = read_fixture("2.15");
    rename_entry(&file, PROGRAM, "models/other.json");
    size_t size_bytes;
    unsigned char *bytes = pack(&file, &size_bytes);
    assert_true(fth_exported_recognize(bytes, size_bytes));
    assert_int_equal(fth_exported_open_bytes(bytes, size_bytes, "net.pt2", &program), FTH_UNSUPPORTED);
    assert_message_has("its program is called other.json");
    free(bytes);
    rename_entry(&file, "models/other.json", "data/aotinductor/model.so");
    bytes = pack(&file, &size_bytes);
    assert_int_equal(fth_exported_open_bytes(bytes, size_bytes, "net.pt2", &program), FTH_INVALID);
    assert_message_has("this is a compiled package");
    free(bytes);
    release_file(&file);
    assert_false(fth_exported_recognize("PK\3\4", 4));
    assert_int_not_equal(fth_exported_open("/nonexistent/net.pt2", &program), FTH_OK);
    assert_message_has("/nonexistent/net.pt2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_version), cmocka_unit_test(test_weights_of_every_version),
        cmocka_unit_test(test_text),          cmocka_unit_test(test_all_kinds),
        cmocka_unit_test(test_lines),         cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_amplification), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_not_a_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
