/* A program as text: the schema of PyTorch's model.json, with the parts that are read (read.c). */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exported/program_internal.h"

enum { MAX_EXPRESSION = 40 };

/* A JSON object under construction; NULL from any of its functions becomes one failure at the
 * end. */
typedef struct writer {
    const fth_exported *program;
    json_t *sym_int_values;
    bool failed; /* for lack of memory */
} writer;

static void set(writer *w, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        w->failed = true;
}

static void append(writer *w, json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) != 0)
        w->failed = true;
}

/* {key: value} */
static json_t *tag(writer *w, const char *key, json_t *value)
{
    json_t *object = json_object();
    set(w, object, key, value);
    return object;
}

static json_t *name_of(writer *w, int number)
{
    return tag(w, "name", json_string(w->program->values[number].name));
}

static bool is_number(const fth_exported_dim *dim)
{
    return !dim->unknown && !dim->batch && !dim->length;
}

/* "12*N*L", "?" */
static void format_dim(const fth_exported_dim *dim, char *text)
{
    if (dim->unknown)
        snprintf(text, MAX_EXPRESSION, "?");
    else if (dim->factor == 1)
        snprintf(text, MAX_EXPRESSION, "%s%s%s", dim->batch ? "N" : "", dim->batch && dim->length ? "*" : "",
                 dim->length ? "L" : "");
    else
        snprintf(text, MAX_EXPRESSION, "%" PRId64 "%s%s", dim->factor, dim->batch ? "*N" : "", dim->length ? "*L" : "");
}

static json_t *write_size(writer *w, const fth_exported_dim *dim)
{
    char text[MAX_EXPRESSION];
    if (is_number(dim))
        return tag(w, "as_int", json_integer(dim->factor));
    format_dim(dim, text);
    return tag(w, "as_expr", tag(w, "expr_str", json_string(text)));
}

/* A size as an argument: a name in the table of sizes that the nodes compute. */
static json_t *write_sym_int(writer *w, const fth_exported_dim *dim)
{
    char text[MAX_EXPRESSION];
    if (is_number(dim))
        return tag(w, "as_int", json_integer(dim->factor));
    format_dim(dim, text);
    set(w, w->sym_int_values, text, write_size(w, dim));
    return tag(w, "as_name", json_string(text));
}

static json_t *write_number(double number)
{
    if (isnan(number))
        return json_string("NaN");
    if (isinf(number))
        return json_string(number > 0 ? "Infinity" : "-Infinity");
    return json_real(number);
}

/* ---- arguments ---- */

static json_t *write_tensors(writer *w, const fth_exported_argument *argument)
{
    json_t *list = json_array();
    for (size_t i = 0; i < argument->count; i++)
        append(w, list,
               argument->tensors[i] < 0 ? tag(w, "as_none", json_true())
                                        : tag(w, "as_tensor", name_of(w, argument->tensors[i])));
    return tag(w, "as_optional_tensors", list);
}

static json_t *write_ints(writer *w, const fth_exported_argument *argument)
{
    json_t *list = json_array();
    for (size_t i = 0; i < argument->count; i++)
        append(w, list, write_sym_int(w, &argument->integers[i]));
    return tag(w, "as_sym_ints", list);
}

static json_t *write_plain_ints(writer *w, const fth_exported_argument *argument)
{
    json_t *list = json_array();
    for (size_t i = 0; i < argument->count; i++) {
        if (!is_number(&argument->integers[i])) {
            json_decref(list);
            return write_ints(w, argument);
        }
        append(w, list, json_integer(argument->integers[i].factor));
    }
    return tag(w, "as_ints", list);
}

static json_t *write_floats(writer *w, const fth_exported_argument *argument)
{
    json_t *list = json_array();
    for (size_t i = 0; i < argument->count; i++)
        append(w, list, write_number(argument->numbers[i]));
    return tag(w, "as_floats", list);
}

static json_t *write_bools(writer *w, const fth_exported_argument *argument)
{
    json_t *list = json_array();
    for (size_t i = 0; i < argument->count; i++)
        append(w, list, json_boolean(argument->booleans[i]));
    return tag(w, "as_bools", list);
}

static json_t *write_argument(writer *w, const fth_exported_argument *argument)
{
    switch (argument->kind) {
    case FTH_ARGUMENT_NONE: break;
    case FTH_ARGUMENT_TENSOR: return tag(w, "as_tensor", name_of(w, argument->tensor));
    case FTH_ARGUMENT_TENSORS: return write_tensors(w, argument);
    case FTH_ARGUMENT_INT:
        return is_number(&argument->integer) ? tag(w, "as_int", json_integer(argument->integer.factor))
                                             : tag(w, "as_sym_int", write_sym_int(w, &argument->integer));
    case FTH_ARGUMENT_INTS: return write_plain_ints(w, argument);
    case FTH_ARGUMENT_FLOAT: return tag(w, "as_float", write_number(argument->number));
    case FTH_ARGUMENT_FLOATS: return write_floats(w, argument);
    case FTH_ARGUMENT_BOOL: return tag(w, "as_bool", json_boolean(argument->boolean));
    case FTH_ARGUMENT_BOOLS: return write_bools(w, argument);
    case FTH_ARGUMENT_STRING: return tag(w, "as_string", json_string(argument->text));
    case FTH_ARGUMENT_DTYPE: return tag(w, "as_scalar_type", json_integer(argument->integer.factor));
    case FTH_ARGUMENT_OTHER: return tag(w, argument->text, json_true());
    }
    return tag(w, "as_none", json_true());
}

/* ---- nodes, values, the signature ---- */

static json_t *write_node(writer *w, const fth_exported_node *node)
{
    json_t *object = json_object(), *inputs = json_array(), *outputs = json_array(), *metadata = json_object();
    set(w, object, "target", json_string(node->target));
    for (size_t i = 0; i < node->argument_count; i++) {
        json_t *input = tag(w, "name", json_string(node->arguments[i].name));
        set(w, input, "arg", write_argument(w, &node->arguments[i]));
        append(w, inputs, input);
    }
    set(w, object, "inputs", inputs);
    for (size_t i = 0; i < node->output_count; i++)
        append(w, outputs,
               node->outputs[i] < 0 ? tag(w, "as_none", json_true())
                                    : tag(w, "as_tensor", name_of(w, node->outputs[i])));
    set(w, object, "outputs", outputs);
    if (*node->where)
        set(w, metadata, "where", json_string(node->where));
    if (*node->module)
        set(w, metadata, "module", json_string(node->module));
    set(w, object, "metadata", metadata);
    return object;
}

static json_t *write_meta(writer *w, const fth_exported_value *value)
{
    json_t *object = tag(w, "dtype", json_integer(value->torch_dtype)), *sizes = json_array();
    for (int i = 0; i < value->rank; i++)
        append(w, sizes, write_size(w, &value->dims[i]));
    set(w, object, "sizes", sizes);
    if (value->trainable)
        set(w, object, "requires_grad", json_true());
    return object;
}

static json_t *write_input(writer *w, int number)
{
    const fth_exported_value *value = &w->program->values[number];
    if (value->kind == FTH_EXPORTED_INPUT)
        return tag(w, "user_input", tag(w, "arg", tag(w, "as_tensor", name_of(w, number))));
    json_t *spec = tag(w, "arg", name_of(w, number));
    if (value->same_as >= 0)
        set(w, spec, "same_as", json_string(w->program->values[value->same_as].name));
    if (value->kind == FTH_EXPORTED_PARAMETER) {
        set(w, spec, "parameter_name", json_string(value->state_name));
        return tag(w, "parameter", spec);
    }
    if (value->kind == FTH_EXPORTED_CONSTANT) {
        set(w, spec, "tensor_constant_name", json_string(value->state_name));
        return tag(w, "tensor_constant", spec);
    }
    set(w, spec, "buffer_name", json_string(value->state_name));
    set(w, spec, "persistent", json_boolean(value->persistent));
    return tag(w, "buffer", spec);
}

static json_t *write_signature(writer *w)
{
    const fth_exported *program = w->program;
    json_t *inputs = json_array(), *outputs = json_array();
    for (size_t i = 0; i < program->value_count && program->values[i].kind != FTH_EXPORTED_RESULT; i++)
        append(w, inputs, write_input(w, (int)i));
    for (size_t i = 0; i < program->output_count; i++)
        append(w, outputs, tag(w, "user_output", tag(w, "arg", tag(w, "as_tensor", name_of(w, program->outputs[i])))));
    json_t *signature = tag(w, "input_specs", inputs);
    set(w, signature, "output_specs", outputs);
    return signature;
}

static json_t *write_graph(writer *w)
{
    const fth_exported *program = w->program;
    json_t *graph = json_object(), *nodes = json_array(), *values = json_object();
    for (size_t i = 0; i < program->node_count; i++)
        append(w, nodes, write_node(w, &program->nodes[i]));
    for (size_t i = 0; i < program->value_count; i++)
        set(w, values, program->values[i].name, write_meta(w, &program->values[i]));
    set(w, graph, "nodes", nodes);
    set(w, graph, "tensor_values", values);
    set(w, graph, "sym_int_values", json_incref(w->sym_int_values));
    return graph;
}

fth_status fth_exported_to_text(const fth_exported *program, char **text)
{
    fth_status status = FTH_OK;
    writer w = {.program = program, .sym_int_values = json_object()};
    json_t *root = json_object(), *version = json_object(), *verifiers = json_array(), *data = json_object();

    *text = NULL;
    set(&w, version, "major", json_integer(8));
    set(&w, version, "minor", json_integer(20));
    append(&w, verifiers, json_string("TRAINING"));
    set(&w, root, "schema_version", version);
    set(&w, root, "verifiers", verifiers);
    set(&w, root, "torch_version", json_string(program->torch_version));
    json_t *module = tag(&w, "graph", write_graph(&w));
    set(&w, module, "signature", write_signature(&w));
    set(&w, root, "graph_module", module);
    status = fth_exported_write_data(program, data);
    set(&w, root, "data", data);
    FTH_TRY(status);
    *text = w.failed ? NULL : json_dumps(root, JSON_COMPACT);
    FTH_REQUIRE(*text, FTH_NO_MEMORY, "no memory for the program of %s as text", program->origin);
out:
    json_decref(root);
    json_decref(w.sym_int_values);
    return status;
}
