/* From a program's JSON (PyTorch's torch/_export/serde/schema.py, major versions 7 and 8) to a
 * program.
 *
 * What is not read costs nothing beyond its JSON: of the tables of values, which may have any
 * number of entries, only those are looked up that a node or the signature names. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "exported/program_internal.h"

/* Major 7 is that of PyTorch 2.5, and differs in parts that are not read. */
enum { MAX_PROGRAM_BYTES = 1 << 25, SCHEMA_OLDEST = 7, SCHEMA_NEWEST = 8, MAX_LINE = 600 };

#define EXPORT_AGAIN                                                                                                   \
    "export the network again with PyTorch 2.5 to 2.15: "                                                              \
    "torch.export.save(torch.export.export(model.train(), (example,), dynamic_shapes=...), \"net.pt2\")"

static fth_status corrupt(const fth_exported_reader *reader, const char *what)
{
    return fth_fail(FTH_CORRUPT, "%s: %s", reader->origin, what);
}

/* ---- values ---- */

/* Copies text that may have been cut within a character. */
static fth_status take_clean(fth_exported_arena *arena, const char *text, const char **copy)
{
    char *clean = fth_text_to_utf8(text);
    fth_status status = clean ? fth_exported_take_text(arena, clean, strlen(clean), copy)
                              : fth_fail(FTH_NO_MEMORY, "no memory for a line");
    free(clean);
    return status;
}

static fth_status check_name(const fth_exported_reader *reader, const char *name)
{
    const size_t length = name ? strlen(name) : 0;
    bool good = length > 0 && length <= FTH_EXPORTED_MAX_NAME;
    for (size_t i = 0; good && i < length; i++)
        good = !iscntrl((unsigned char)name[i]);
    return good ? FTH_OK
                : fth_fail(FTH_CORRUPT, "%s: '%.80s' is no name for a tensor", reader->origin, name ? name : "");
}

fth_status fth_exported_find_tensor(const fth_exported_reader *reader, const char *name, const char *user, int *number)
{
    const json_t *found = json_object_get(reader->numbers, name);
    if (!found)
        return fth_fail(FTH_CORRUPT, "%s: %s reads '%.80s', which no earlier node computes", reader->origin, user,
                        name);
    *number = (int)json_integer_value(found);
    return FTH_OK;
}

static fth_status read_meta(const fth_exported_reader *reader, const json_t *meta, fth_exported_value *value)
{
    const json_t *dtype = json_object_get(meta, "dtype"), *sizes = json_object_get(meta, "sizes");
    if (!json_is_integer(dtype) || !json_is_array(sizes) || json_integer_value(dtype) < 0 ||
        json_integer_value(dtype) > INT16_MAX)
        return fth_fail(FTH_CORRUPT, "%s: tensor '%s' has no dtype or sizes", reader->origin, value->name);
    if (json_array_size(sizes) > FTH_MAX_RANK)
        return fth_fail(FTH_UNSUPPORTED, "%s: tensor '%s' has %zu dimensions; farthing reads at most %d",
                        reader->origin, value->name, json_array_size(sizes), (int)FTH_MAX_RANK);
    value->torch_dtype = (int)json_integer_value(dtype);
    value->rank = (int)json_array_size(sizes);
    for (int i = 0; i < value->rank; i++) {
        if (!fth_exported_read_size(json_array_get(sizes, (size_t)i), &reader->symbols, &value->dims[i]) ||
            value->dims[i].factor < 0)
            return fth_fail(FTH_CORRUPT,
                            "%s: tensor '%s': dimension %d is neither a whole number of 0 or more nor an expression",
                            reader->origin, value->name, i);
    }
    value->trainable = value->kind == FTH_EXPORTED_PARAMETER && json_is_true(json_object_get(meta, "requires_grad"));
    return FTH_OK;
}

/* Adds the value called `name`; *number becomes -1 for one that the program does not describe,
 * which nothing can read then. */
static fth_status add_value(fth_exported_reader *reader, const char *name, fth_exported_kind kind,
                            const char *state_name, int *number)
{
    fth_status status = FTH_OK;
    fth_exported *program = reader->program;
    const json_t *meta = name ? json_object_get(reader->tensor_values, name) : NULL;
    fth_exported_value value = {.kind = kind, .same_as = -1};

    *number = -1;
    if (!meta && kind == FTH_EXPORTED_RESULT)
        return FTH_OK;
    FTH_TRY(check_name(reader, name));
    FTH_REQUIRE(meta, FTH_CORRUPT, "%s: tensor '%s' is not described", reader->origin, name);
    FTH_REQUIRE(!json_object_get(reader->numbers, name), FTH_CORRUPT, "%s: two tensors are called '%s'", reader->origin,
                name);
    FTH_TRY(fth_exported_take_text(&program->arena, name, strlen(name), &value.name));
    if (state_name)
        FTH_TRY(fth_exported_take_text(&program->arena, state_name, strlen(state_name), &value.state_name));
    FTH_TRY(read_meta(reader, meta, &value));
    FTH_REQUIRE(program->value_count < INT32_MAX, FTH_UNSUPPORTED, "%s: too many tensors", reader->origin);
    FTH_TRY(fth_grow(&program->values, program->value_count, &program->value_capacity, sizeof *program->values));
    *number = (int)program->value_count;
    program->values[program->value_count++] = value;
    FTH_REQUIRE(json_object_set_new(reader->numbers, name, json_integer(*number)) == 0, FTH_NO_MEMORY,
                "no memory for the names of %s", reader->origin);
out:
    return status;
}

/* ---- the signature ---- */

/* Finds N and L: see program.h. */
static void find_symbols(fth_exported_reader *reader, const json_t *specs)
{
    fth_exported_symbols *symbols = &reader->symbols;
    for (int pass = 0; pass < 2; pass++) { /* all first dimensions before any other */
        for (size_t i = 0; i < json_array_size(specs); i++) {
            const json_t *argument = json_object_get(json_object_get(json_array_get(specs, i), "user_input"), "arg");
            const char *name = json_string_value(json_object_get(json_object_get(argument, "as_tensor"), "name"));
            const json_t *sizes = json_object_get(name ? json_object_get(reader->tensor_values, name) : NULL, "sizes");
            for (size_t k = 0; k < json_array_size(sizes) && k < FTH_MAX_RANK; k++) {
                const json_t *expression = json_object_get(json_array_get(sizes, k), "as_expr");
                const char *text = json_string_value(json_object_get(expression, "expr_str"));
                char symbol[sizeof symbols->batch];
                if (!text || !fth_exported_is_symbol(text, symbol, sizeof symbol))
                    continue;
                if (pass == 0 && k == 0 && !*symbols->batch)
                    memcpy(symbols->batch, symbol, sizeof symbol);
                else if (pass == 1 && !*symbols->length && strcmp(symbol, symbols->batch) != 0)
                    memcpy(symbols->length, symbol, sizeof symbol);
            }
        }
    }
}

/* One kind of graph input. */
typedef struct input_rule {
    const char *tag, *name_key;
    fth_exported_kind kind;
} input_rule;

static const input_rule input_rules[] = {
    {"parameter", "parameter_name", FTH_EXPORTED_PARAMETER},
    {"buffer", "buffer_name", FTH_EXPORTED_BUFFER},
    {"tensor_constant", "tensor_constant_name", FTH_EXPORTED_CONSTANT},
    {"user_input", NULL, FTH_EXPORTED_INPUT},
};

static const input_rule *find_input_rule(const char *tag)
{
    for (size_t i = 0; i < FTH_COUNT_OF(input_rules); i++) {
        if (strcmp(input_rules[i].tag, tag) == 0)
            return &input_rules[i];
    }
    return NULL;
}

/* Weights that share another's storage: what a text says of it, where a file's own storage shows
 * it. */
static fth_status read_tie(const fth_exported_reader *reader, const json_t *spec, int number)
{
    fth_exported_value *value = &reader->program->values[number];
    const char *other = json_string_value(json_object_get(spec, "same_as"));
    return other ? fth_exported_find_tensor(reader, other, value->name, &value->same_as) : FTH_OK;
}

static fth_status read_input(fth_exported_reader *reader, const json_t *tagged)
{
    fth_status status = FTH_OK;
    fth_exported *program = reader->program;
    const char *tag = "", *state_name = NULL;
    json_t *spec = NULL;
    int number = -1;

    FTH_REQUIRE(fth_exported_untag(tagged, &tag, &spec), FTH_CORRUPT, "%s: an input of no kind", reader->origin);
    if (strcmp(tag, "constant_input") == 0)
        goto out; /* an argument of forward() that is no tensor: the graph has been made for its value */
    const input_rule *rule = find_input_rule(tag);
    FTH_REQUIRE(rule, FTH_UNSUPPORTED,
                "%s: an input of kind %.40s, which farthing does not have; write the network with tensors alone",
                reader->origin, tag);
    const json_t *argument = json_object_get(spec, "arg");
    if (rule->kind == FTH_EXPORTED_INPUT) {
        argument = json_object_get(argument, "as_tensor");
        if (!argument)
            goto out; /* None, or a number */
    } else {
        state_name = json_string_value(json_object_get(spec, rule->name_key));
        FTH_TRY(check_name(reader, state_name));
    }
    FTH_TRY(add_value(reader, json_string_value(json_object_get(argument, "name")), rule->kind, state_name, &number));
    fth_exported_value *value = &program->values[number];
    value->persistent = rule->kind == FTH_EXPORTED_PARAMETER ||
                        (rule->kind == FTH_EXPORTED_BUFFER && !json_is_false(json_object_get(spec, "persistent")));
    if (rule->kind == FTH_EXPORTED_INPUT)
        program->inputs[program->input_count++] = number;
    else
        FTH_TRY(read_tie(reader, spec, number));
out:
    return status;
}

static fth_status read_inputs(fth_exported_reader *reader, const json_t *specs)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(json_is_array(specs), FTH_CORRUPT, "%s: no input_specs in it", reader->origin);
    find_symbols(reader, specs);
    FTH_TRY(fth_exported_take(&reader->program->arena, json_array_size(specs), sizeof(int), &reader->program->inputs));
    for (size_t i = 0; i < json_array_size(specs); i++)
        FTH_TRY(read_input(reader, json_array_get(specs, i)));
out:
    return status;
}

static fth_status read_outputs(fth_exported_reader *reader, const json_t *specs)
{
    fth_status status = FTH_OK;
    fth_exported *program = reader->program;
    FTH_REQUIRE(json_is_array(specs), FTH_CORRUPT, "%s: no output_specs in it", reader->origin);
    FTH_TRY(fth_exported_take(&program->arena, json_array_size(specs), sizeof(int), &program->outputs));
    for (size_t i = 0; i < json_array_size(specs); i++) {
        const char *tag = "";
        json_t *spec = NULL;
        FTH_REQUIRE(fth_exported_untag(json_array_get(specs, i), &tag, &spec), FTH_CORRUPT, "%s: an output of no kind",
                    reader->origin);
        const json_t *tensor = json_object_get(json_object_get(spec, "arg"), "as_tensor");
        const char *name = json_string_value(json_object_get(tensor, "name"));
        FTH_REQUIRE(strcmp(tag, "user_output") == 0 || strcmp(tag, "buffer_mutation") == 0 ||
                        strcmp(tag, "user_input_mutation") == 0 || strcmp(tag, "token") == 0,
                    FTH_UNSUPPORTED, "%s: an output of kind %.40s; " EXPORT_AGAIN, reader->origin, tag);
        if (name && strcmp(tag, "user_output") == 0) /* not None, nor a number */
            FTH_TRY(fth_exported_find_tensor(reader, name, "the output", &program->outputs[program->output_count++]));
    }
    FTH_REQUIRE(program->output_count > 0, FTH_INVALID, "%s: the network returns no tensor", reader->origin);
out:
    return status;
}

/* ---- nodes ---- */

static bool begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* True for nodes that only compute sizes or check something. */
static bool is_dropped(const char *target, const json_t *outputs)
{
    static const char *const checks[] = {"aten._assert", "aten.sym_constrain_range"};
    for (size_t i = 0; i < FTH_COUNT_OF(checks); i++) {
        if (begins_with(target, checks[i]))
            return true;
    }
    for (size_t i = 0; i < json_array_size(outputs); i++) {
        const char *tag = "";
        json_t *value;
        if (!fth_exported_untag(json_array_get(outputs, i), &tag, &value) || !begins_with(tag, "as_sym_"))
            return false;
    }
    return json_array_size(outputs) > 0;
}

/* Adds a result for each tensor of an output: one, or a list. */
static fth_status add_outputs(fth_exported_reader *reader, const json_t *tagged, int *numbers, size_t *count)
{
    fth_status status = FTH_OK;
    const char *tag = "";
    json_t *value = NULL;
    if (!fth_exported_untag(tagged, &tag, &value))
        return corrupt(reader, "a node's output of no kind");
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value) && status == FTH_OK; i++) {
            const json_t *item = json_array_get(value, i), *inner = json_object_get(item, "as_tensor");
            const char *name = json_string_value(json_object_get(inner ? inner : item, "name"));
            status = add_value(reader, name, FTH_EXPORTED_RESULT, NULL, &numbers[(*count)++]);
        }
    } else if (!begins_with(tag, "as_sym_")) {
        const json_t *inner = json_object_get(value, "as_tensor"); /* of an optional one */
        const char *name = json_string_value(json_object_get(inner ? inner : value, "name"));
        status = add_value(reader, name, FTH_EXPORTED_RESULT, NULL, &numbers[(*count)++]);
    }
    return status;
}

static fth_status read_node_outputs(fth_exported_reader *reader, const json_t *outputs, fth_exported_node *node)
{
    fth_status status = FTH_OK;
    size_t most = 0;
    int *numbers = NULL;
    for (size_t i = 0; i < json_array_size(outputs); i++) {
        const char *tag;
        json_t *value = NULL;
        if (fth_exported_untag(json_array_get(outputs, i), &tag, &value))
            most += json_is_array(value) ? json_array_size(value) : 1;
    }
    FTH_TRY(fth_exported_take(&reader->program->arena, most, sizeof *numbers, &numbers));
    for (size_t i = 0; i < json_array_size(outputs); i++)
        FTH_TRY(add_outputs(reader, json_array_get(outputs, i), numbers, &node->output_count));
    node->outputs = numbers;
out:
    return status;
}

/* Where a node comes from: PyTorch's records, or the lines that were found in them. */
static fth_status read_metadata(fth_exported_reader *reader, const json_t *metadata, fth_exported_node *node)
{
    fth_status status = FTH_OK;
    const char *where = json_string_value(json_object_get(metadata, "where"));
    const char *module = json_string_value(json_object_get(metadata, "module"));
    const char *trace = json_string_value(json_object_get(metadata, "stack_trace"));
    const char *modules = json_string_value(json_object_get(metadata, "nn_module_stack"));
    char line[MAX_LINE] = "", path[MAX_LINE] = "";
    if (trace)
        fth_exported_find_line(trace, line, sizeof line);
    if (modules)
        fth_exported_find_module(modules, path, sizeof path);
    FTH_TRY(take_clean(&reader->program->arena, where ? where : line, &node->where));
    FTH_TRY(take_clean(&reader->program->arena, module ? module : path, &node->module));
out:
    return status;
}

static fth_status read_node(fth_exported_reader *reader, const json_t *json, size_t index)
{
    static const char prefix[] = "torch.ops.";
    fth_status status = FTH_OK;
    fth_exported *program = reader->program;
    fth_exported_arena *arena = &program->arena;
    fth_exported_node node = {0};
    fth_exported_argument *arguments = NULL;
    const char *target = json_string_value(json_object_get(json, "target"));
    const json_t *inputs = json_object_get(json, "inputs"), *outputs = json_object_get(json, "outputs");
    char user[200];

    FTH_REQUIRE(target && json_is_array(inputs) && json_is_array(outputs), FTH_CORRUPT,
                "%s: node %zu has no target, inputs or outputs", reader->origin, index);
    while (begins_with(target, prefix))
        target += strlen(prefix);
    if (is_dropped(target, outputs))
        goto out;
    snprintf(user, sizeof user, "node %zu (%.100s)", index, target);
    FTH_TRY(fth_exported_take_text(arena, target, strlen(target), &node.target));
    node.argument_count = json_array_size(inputs);
    FTH_TRY(fth_exported_take(arena, node.argument_count, sizeof *arguments, &arguments));
    node.arguments = arguments;
    for (size_t i = 0; i < node.argument_count; i++) {
        const json_t *input = json_array_get(inputs, i);
        const char *name = json_string_value(json_object_get(input, "name"));
        FTH_REQUIRE(name, FTH_CORRUPT, "%s: %s: argument %zu has no name", reader->origin, user, i);
        FTH_TRY(fth_exported_take_text(arena, name, strlen(name), &arguments[i].name));
        FTH_TRY(fth_exported_read_argument(reader, json_object_get(input, "arg"), user, &arguments[i]));
    }
    FTH_TRY(read_node_outputs(reader, outputs, &node));
    FTH_TRY(read_metadata(reader, json_object_get(json, "metadata"), &node));
    program->nodes[program->node_count++] = node;
out:
    return status;
}

static fth_status read_nodes(fth_exported_reader *reader, const json_t *nodes)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(json_is_array(nodes), FTH_CORRUPT, "%s: no nodes in it", reader->origin);
    FTH_TRY(fth_exported_take(&reader->program->arena, json_array_size(nodes), sizeof *reader->program->nodes,
                              &reader->program->nodes));
    for (size_t i = 0; i < json_array_size(nodes); i++)
        FTH_TRY(read_node(reader, json_array_get(nodes, i), i));
out:
    return status;
}

/* ---- the whole ---- */

static fth_status check_version(const fth_exported_reader *reader, const json_t *root)
{
    const json_t *version = json_object_get(root, "schema_version"), *major = json_object_get(version, "major");
    const char *torch_version = reader->program->torch_version;
    if (!json_is_integer(major))
        return corrupt(reader, "no schema_version in it: torch.export.save() did not write it");
    if (json_integer_value(major) >= SCHEMA_OLDEST && json_integer_value(major) <= SCHEMA_NEWEST)
        return FTH_OK;
    return fth_fail(FTH_UNSUPPORTED, "%s: schema version %lld%s%s; farthing reads %d and %d: " EXPORT_AGAIN,
                    reader->origin, (long long)json_integer_value(major), *torch_version ? ", written by PyTorch " : "",
                    torch_version, (int)SCHEMA_OLDEST, (int)SCHEMA_NEWEST);
}

static fth_status check_dialect(const fth_exported_reader *reader, const char *dialect)
{
    if (dialect && (strcmp(dialect, "TRAINING") == 0 || strcmp(dialect, "ATEN") == 0))
        return FTH_OK;
    return fth_fail(
        FTH_UNSUPPORTED,
        "%s: a program of dialect '%.40s', which was made for another runtime; save what torch.export.export() "
        "returns: " EXPORT_AGAIN,
        reader->origin, dialect ? dialect : "none");
}

static fth_status check_dialects(const fth_exported_reader *reader, const json_t *root)
{
    const json_t *verifiers = json_object_get(root, "verifiers");
    if (json_array_size(verifiers) == 0)
        return check_dialect(reader, json_string_value(json_object_get(root, "dialect")));
    fth_status status = FTH_OK;
    for (size_t i = 0; i < json_array_size(verifiers) && status == FTH_OK; i++)
        status = check_dialect(reader, json_string_value(json_array_get(verifiers, i)));
    return status;
}

static fth_status read_root(fth_exported_reader *reader, const json_t *root, bool inline_data)
{
    fth_status status = FTH_OK;
    const json_t *module = json_object_get(root, "graph_module"), *graph = json_object_get(module, "graph");
    const json_t *signature = json_object_get(module, "signature");
    const char *version = json_string_value(json_object_get(root, "torch_version"));
    char shown[80] = "";

    if (version)
        snprintf(shown, sizeof shown, "%s", version);
    FTH_TRY(take_clean(&reader->program->arena, shown, &reader->program->torch_version));
    FTH_TRY(check_version(reader, root));
    FTH_TRY(check_dialects(reader, root));
    reader->tensor_values = json_object_get(graph, "tensor_values");
    reader->sym_int_values = json_object_get(graph, "sym_int_values");
    FTH_REQUIRE(json_is_object(reader->tensor_values), FTH_CORRUPT, "%s: no tensor_values in it", reader->origin);
    FTH_TRY(read_inputs(reader, json_object_get(signature, "input_specs")));
    FTH_TRY(read_nodes(reader, json_object_get(graph, "nodes")));
    FTH_TRY(read_outputs(reader, json_object_get(signature, "output_specs")));
    FTH_TRY(fth_exported_undo_mutations(reader, json_object_get(signature, "output_specs")));
    if (inline_data)
        FTH_TRY(fth_exported_read_data(reader, json_object_get(root, "data")));
out:
    return status;
}

fth_status fth_exported_read(fth_exported *program, const char *text, size_t size_bytes, const char *origin,
                             bool inline_data)
{
    fth_status status = FTH_OK;
    fth_exported_reader reader = {.program = program, .origin = origin};
    json_t *root = NULL;

    FTH_REQUIRE(size_bytes <= MAX_PROGRAM_BYTES, FTH_UNSUPPORTED, "%s: a program larger than %d MiB", origin,
                MAX_PROGRAM_BYTES >> 20);
    FTH_TRY(fth_exported_load_json(text, size_bytes, origin, &root));
    reader.numbers = json_object();
    FTH_REQUIRE(reader.numbers, FTH_NO_MEMORY, "no memory for the names of %s", origin);
    FTH_TRY(read_root(&reader, root, inline_data));
out:
    json_decref(reader.numbers);
    json_decref(root);
    return status;
}
