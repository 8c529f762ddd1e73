/* See initial.h. */
#include "exported/initial.h"

#include <math.h>
#include <string.h>

typedef struct reader {
    const fth_exported_node *node;
    const char *argument; /* "weight" */
} reader;

/* The first node that reads the value. */
static reader find_reader(const fth_exported *program, int number)
{
    for (size_t n = 0; n < fth_exported_node_count(program); n++) {
        const fth_exported_node *node = fth_exported_get_node(program, n);
        for (size_t a = 0; a < node->argument_count; a++) {
            const fth_exported_argument *argument = &node->arguments[a];
            bool found = argument->kind == FTH_ARGUMENT_TENSOR && argument->tensor == number;
            for (size_t i = 0; argument->kind == FTH_ARGUMENT_TENSORS && i < argument->count; i++)
                found = found || argument->tensors[i] == number;
            if (found)
                return (reader){node, argument->name};
        }
    }
    return (reader){NULL, ""};
}

static double size_of(const fth_exported_value *value, int dim)
{
    return dim < value->rank ? (double)value->dims[dim].factor : 1;
}

/* Inputs of one output: of a weight (out, in, ...), or of the weight beside a bias. */
static double fan_in(const fth_exported *program, const reader *by, const fth_exported_value *value)
{
    const fth_exported_argument *weight = fth_exported_find_argument(by->node, "weight");
    if (strcmp(by->argument, "bias") == 0 && weight && weight->kind == FTH_ARGUMENT_TENSOR)
        value = fth_exported_get_value(program, weight->tensor);
    double inputs = 1;
    for (int i = 1; i < value->rank; i++)
        inputs *= size_of(value, i);
    return inputs > 0 ? inputs : 1;
}

static bool is_call_of(const fth_exported_node *node, const char *name)
{
    return strncmp(node->target, "aten.", 5) == 0 && strncmp(node->target + 5, name, strlen(name)) == 0;
}

static fth_initializer constant(double amount)
{
    return (fth_initializer){.kind = FTH_INIT_CONSTANT, .amount = amount};
}

static fth_initializer uniform(double bound)
{
    return (fth_initializer){.kind = FTH_INIT_UNIFORM, .amount = bound};
}

fth_initializer fth_exported_initializer(const fth_exported *program, int number)
{
    const fth_exported_value *value = fth_exported_get_value(program, number);
    const reader by = find_reader(program, number);
    const bool weight = strcmp(by.argument, "weight") == 0;

    if (!by.node)
        return constant(0);
    if (is_call_of(by.node, "conv") || is_call_of(by.node, "linear")) {
        const bool attention = by.node->module && strstr(by.node->module, "MultiheadAttention");
        if (attention && value->rank == 2)
            return uniform(sqrt(6 / (size_of(value, 0) + size_of(value, 1))));
        return attention ? constant(0) : uniform(1 / sqrt(fan_in(program, &by, value)));
    }
    if (is_call_of(by.node, "lstm") || is_call_of(by.node, "gru")) {
        const double gates = is_call_of(by.node, "lstm") ? 4 : 3;
        return uniform(1 / sqrt(fmax(size_of(value, 0) / gates, 1)));
    }
    if (is_call_of(by.node, "embedding"))
        return (fth_initializer){.kind = FTH_INIT_NORMAL, .amount = 1};
    if (is_call_of(by.node, "addmm")) /* transformers' Conv1D: N(0, 0.02), bias 0 */
        return value->rank == 2 ? (fth_initializer){.kind = FTH_INIT_NORMAL, .amount = 0.02} : constant(0);
    if (is_call_of(by.node, "prelu"))
        return constant(0.25);
    if (strstr(by.node->target, "norm"))
        return constant(weight || strcmp(by.argument, "running_var") == 0 ? 1 : 0);
    return constant(0);
}
