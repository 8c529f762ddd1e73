/* pointwise and reduce in ONNX: see onnx_internal.h.
 *
 * Each function is a short text in postfix notation: a, b and c are its operands, numbers are
 * constants, other words are ONNX's ops. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "export/onnx_internal.h"

enum { STACK = 6 }; /* what waits in a text for its op, at most */

/* What comparisons give is made a number by Cast. NULL: only gradients have it. */
static const char *const texts[FTH_FUNCTION_COUNT] = {
    [FTH_FUNCTION_ADD] = "a b Add",
    [FTH_FUNCTION_SUB] = "a b Sub",
    [FTH_FUNCTION_MUL] = "a b Mul",
    [FTH_FUNCTION_DIV] = "a b Div",
    [FTH_FUNCTION_NEG] = "a Neg",
    [FTH_FUNCTION_ABS] = "a Abs",
    [FTH_FUNCTION_EXP] = "a Exp",
    [FTH_FUNCTION_LOG] = "a Log",
    [FTH_FUNCTION_SQRT] = "a Sqrt",
    [FTH_FUNCTION_RSQRT] = "a Sqrt Reciprocal",
    [FTH_FUNCTION_RECIPROCAL] = "a Reciprocal",
    [FTH_FUNCTION_SQUARE] = "a a Mul",
    [FTH_FUNCTION_POW] = "a b Pow",
    [FTH_FUNCTION_MIN] = "a b Min",
    [FTH_FUNCTION_MAX] = "a b Max",
    [FTH_FUNCTION_SIGMOID] = "a Sigmoid",
    [FTH_FUNCTION_TANH] = "a Tanh",
    [FTH_FUNCTION_SILU] = "a a Sigmoid Mul",
    [FTH_FUNCTION_RELU] = "a Relu",
    [FTH_FUNCTION_CLAMP] = "a b Max c Min",
    [FTH_FUNCTION_HARDTANH] = "a b Max c Min",
    [FTH_FUNCTION_HARDSIGMOID] = "a 3 Add 0 Max 6 Min 6 Div",
    [FTH_FUNCTION_HARDSWISH] = "a 3 Add 0 Max 6 Min a Mul 6 Div",
    [FTH_FUNCTION_LEAKY_RELU] = "a 0 Max a 0 Min b Mul Add",
    [FTH_FUNCTION_ELU] = "a 0 Max a 0 Min Exp 1 Sub b Mul Add",
    [FTH_FUNCTION_SOFTPLUS] = "a b Mul Softplus b Div",
    [FTH_FUNCTION_MISH] = "a Softplus Tanh a Mul",
    [FTH_FUNCTION_GELU] = "a 0.70710678 Mul Erf 1 Add a Mul 0.5 Mul",
    [FTH_FUNCTION_GELU_TANH] = "a a Mul 0.044715 Mul 1 Add a Mul 0.79788456 Mul Tanh 1 Add a Mul 0.5 Mul",
    [FTH_FUNCTION_ERF] = "a Erf",
    [FTH_FUNCTION_SIN] = "a Sin",
    [FTH_FUNCTION_COS] = "a Cos",
    [FTH_FUNCTION_LOG1P] = "a 1 Add Log",
    [FTH_FUNCTION_EXPM1] = "a Exp 1 Sub",
    [FTH_FUNCTION_SIGN] = "a Sign",
    [FTH_FUNCTION_FLOOR] = "a Floor",
    [FTH_FUNCTION_CEIL] = "a Ceil",
    [FTH_FUNCTION_ROUND] = "a Round",
    [FTH_FUNCTION_TRUNC] = "a Sign a Abs Floor Mul",
    [FTH_FUNCTION_WHERE] = "a 0 Equal c b Where",
    [FTH_FUNCTION_EQ] = "a b Equal Cast",
    [FTH_FUNCTION_NE] = "a b Equal Not Cast",
    [FTH_FUNCTION_LT] = "a b Less Cast",
    [FTH_FUNCTION_LE] = "a b LessOrEqual Cast",
    [FTH_FUNCTION_GT] = "a b Greater Cast",
    [FTH_FUNCTION_GE] = "a b GreaterOrEqual Cast",
    [FTH_FUNCTION_NOT] = "a 0 Equal Cast",
    [FTH_FUNCTION_AND] = "a b Mul 0 Equal Not Cast",
    [FTH_FUNCTION_OR] = "a Abs b Abs Add 0 Equal Not Cast",
    [FTH_FUNCTION_NORMAL_CDF] = "a 0.70710678 Mul Erf 1 Add 0.5 Mul",
    [FTH_FUNCTION_NORMAL_DENSITY] = "a a Mul -0.5 Mul Exp 0.39894228 Mul",
};

static int arity_of(const char *op)
{
    static const char *const two[] = {"Add", "Sub",   "Mul",  "Div",         "Pow",     "Min",
                                      "Max", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"};
    for (size_t i = 0; i < FTH_COUNT_OF(two); i++)
        if (strcmp(op, two[i]) == 0)
            return 2;
    return strcmp(op, "Where") == 0 ? 3 : 1;
}

static fth_onnx_name cast_to_float(fth_onnx_writer *writer, const char *x)
{
    fth_onnx_name y = fth_onnx_make_name(writer, "cast");
    fth_protobuf cast = fth_onnx_begin_node("Cast", &x, 1);
    fth_onnx_add_integer(&cast, "to", FTH_ONNX_FLOAT);
    fth_onnx_end_node(writer, &cast, y.text);
    return y;
}

/* The result of a function. */
static fth_onnx_name write_function(fth_onnx_writer *writer, const char *text, const char *const operands[3])
{
    char words[96], *left = words;
    fth_onnx_name made[STACK] = {{{0}}};
    const char *stack[STACK] = {NULL};
    int depth = 0;

    strncpy(words, text, sizeof words - 1);
    words[sizeof words - 1] = '\0';
    for (char *word; (word = strsep(&left, " ")) != NULL;) {
        if (word[1] == '\0' && word[0] >= 'a' && word[0] <= 'c') {
            stack[depth++] = operands[word[0] - 'a'];
            continue;
        }
        if (isdigit((unsigned char)word[0]) || word[0] == '-') {
            made[depth] = fth_onnx_add_number(writer, strtof(word, NULL));
        } else if (strcmp(word, "Cast") == 0) {
            made[depth - 1] = cast_to_float(writer, stack[depth - 1]);
            depth--;
        } else {
            const int arity = arity_of(word);
            const fth_onnx_name result = fth_onnx_make_name(writer, "pointwise");
            depth -= arity;
            fth_protobuf node = fth_onnx_begin_node(word, stack + depth, arity);
            fth_onnx_end_node(writer, &node, result.text);
            made[depth] = result;
        }
        stack[depth] = made[depth].text;
        depth++;
    }
    return made[0];
}

/* The shape to which a value is expanded: with rows for each sample, those of an input of the graph
 * with a batch. */
static fth_status write_shape(fth_onnx_writer *writer, const fth_shape *shape, fth_onnx_name *name)
{
    fth_status status = FTH_OK;
    const int64_t zero = 0, one = 1, each = fth_rows_per_sample(shape->dims[0]), rest = shape->rank - 1,
                  rank = shape->rank;
    fth_value batch = 0;

    if (shape->rank == 0 || shape->dims[0] > 0) {
        *name = fth_onnx_add_constant(writer, FTH_ONNX_INT64, &rank, 1, shape->dims, (size_t)rank * sizeof(int64_t));
        return FTH_OK;
    }
    while (batch < fth_graph_value_count(writer->graph) &&
           (fth_graph_value(writer->graph, batch)->kind != FTH_VALUE_INPUT ||
            fth_graph_value(writer->graph, batch)->type.shape.dims[0] != FTH_BATCH))
        batch++;
    FTH_REQUIRE(each > 0 && batch < fth_graph_value_count(writer->graph) && writer->names[batch], FTH_UNSUPPORTED,
                "a value that is repeated for each row of a batch has no translation to ONNX here");
    fth_onnx_name all = fth_onnx_make_name(writer, "shape"), first = fth_onnx_make_name(writer, "shape");
    fth_onnx_name rows = fth_onnx_make_name(writer, "shape"), whole = fth_onnx_make_name(writer, "shape");
    const fth_onnx_name begin = fth_onnx_add_constant(writer, FTH_ONNX_INT64, &one, 1, &zero, sizeof zero);
    const fth_onnx_name end = fth_onnx_add_constant(writer, FTH_ONNX_INT64, &one, 1, &one, sizeof one);
    const fth_onnx_name factor = fth_onnx_add_constant(writer, FTH_ONNX_INT64, &one, 1, &each, sizeof each);
    fth_onnx_add_plain(writer, "Shape", writer->names[batch], NULL, all.text);
    fth_protobuf slice = fth_onnx_begin_node("Slice", (const char *[]){all.text, begin.text, end.text}, 3);
    fth_onnx_end_node(writer, &slice, first.text);
    fth_onnx_add_plain(writer, "Mul", first.text, factor.text, rows.text);
    const fth_onnx_name others =
        fth_onnx_add_constant(writer, FTH_ONNX_INT64, &rest, 1, shape->dims + 1, (size_t)rest * sizeof(int64_t));
    fth_protobuf concat = fth_onnx_begin_node("Concat", (const char *[]){rows.text, others.text}, 2);
    fth_onnx_add_integer(&concat, "axis", 0);
    fth_onnx_end_node(writer, &concat, whole.text);
    *name = whole;
out:
    return status;
}

/* The expression of the node's inputs; gives the name of its result. */
static fth_status write_expression(fth_onnx_writer *writer, const fth_node *node, const fth_expression *e,
                                   fth_onnx_name *result)
{
    fth_status status = FTH_OK;
    fth_onnx_name casts[FTH_EXPRESSION_INPUTS], numbers[FTH_EXPRESSION_NUMBERS], results[FTH_EXPRESSION_STEPS];
    const char *inputs[FTH_EXPRESSION_INPUTS] = {NULL}, *last = NULL;

    for (int i = 0; i < node->input_count; i++) {
        inputs[i] = fth_onnx_input_name(writer, node, i);
        if (fth_graph_value(writer->graph, node->inputs[i])->type.dtype == FTH_F32)
            continue;
        casts[i] = cast_to_float(writer, inputs[i]);
        inputs[i] = casts[i].text;
    }
    for (int i = 0; i < e->number_count; i++)
        numbers[i] = fth_onnx_add_number(writer, (float)e->numbers[i]);
    for (int s = 0; s <= e->step_count; s++) { /* the last time around: the result */
        const fth_expression_step *step = &e->steps[s];
        const char *operands[3] = {NULL};
        for (int i = 0; i < 3; i++) {
            const fth_operand x = s < e->step_count ? step->operands[i] : e->result;
            operands[i] = x.kind == FTH_OPERAND_INPUT    ? inputs[x.index]
                          : x.kind == FTH_OPERAND_NUMBER ? numbers[x.index].text
                          : x.kind == FTH_OPERAND_STEP   ? results[x.index].text
                                                         : NULL;
        }
        last = operands[0];
        if (s == e->step_count)
            break;
        const char *name = fth_expression_function_name((fth_expression_function)step->function);
        FTH_REQUIRE(texts[step->function], FTH_UNSUPPORTED, "%s has no translation to ONNX", name);
        results[s] = write_function(writer, texts[step->function], operands);
    }
    *result = fth_onnx_make_name(writer, "pointwise");
    fth_onnx_add_plain(writer, "Identity", last, NULL, result->text);
out:
    return status;
}

static fth_status write_pointwise(fth_onnx_writer *writer, const fth_node *node)
{
    fth_status status = FTH_OK;
    const fth_pointwise_attributes *a = node->attributes;
    const fth_shape *shape = &fth_graph_value(writer->graph, node->outputs[0])->type.shape;
    const char *y = fth_onnx_output_name(writer, node);
    fth_shape own = {0};
    fth_onnx_name result, wide;

    for (int i = 0; i < node->input_count; i++)
        (void)fth_shape_broadcast(&own, &fth_graph_value(writer->graph, node->inputs[i])->type.shape);
    FTH_TRY(write_expression(writer, node, &a->expression, &result));
    if (fth_shape_equal(&own, shape)) {
        fth_onnx_add_plain(writer, "Identity", result.text, NULL, y);
        goto out;
    }
    FTH_TRY(write_shape(writer, shape, &wide));
    fth_onnx_add_plain(writer, "Expand", result.text, wide.text, y);
out:
    return status;
}

static fth_status write_reduce(fth_onnx_writer *writer, const fth_node *node)
{
    fth_status status = FTH_OK;
    static const char *const ops[] = {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"};
    const fth_reduce_attributes *a = node->attributes;
    int64_t axes[FTH_MAX_RANK], count = 0;
    fth_onnx_name x;

    FTH_REQUIRE(a->kept == 0 || a->kept == a->axes, FTH_UNSUPPORTED,
                "axes of which some are kept have no translation to ONNX");
    FTH_TRY(write_expression(writer, node, &a->expression, &x));
    for (int i = 0; i < FTH_MAX_RANK; i++)
        if (a->axes >> i & 1)
            axes[count++] = i;
    fth_protobuf reduce = fth_onnx_begin_node(ops[a->reduction], (const char *[]){x.text}, 1);
    if (a->reduction == FTH_REDUCE_SUM) { /* the first of them for which axes are an input */
        const fth_onnx_name list =
            fth_onnx_add_constant(writer, FTH_ONNX_INT64, &count, 1, axes, (size_t)count * sizeof axes[0]);
        fth_onnx_add_input(&reduce, list.text);
    } else {
        fth_onnx_add_integers(&reduce, "axes", axes, (size_t)count);
    }
    fth_onnx_add_integer(&reduce, "keepdims", a->kept != 0);
    fth_onnx_end_node(writer, &reduce, fth_onnx_output_name(writer, node));
out:
    return status;
}

const fth_onnx_op fth_onnx_pointwise_ops[] = {
    {&fth_op_pointwise, write_pointwise},
    {&fth_op_reduce, write_reduce},
    {NULL, NULL},
};
