/* Computing constants of exported programs, against the numbers that PyTorch computes
 * (tests/torch/exported/constants.json). */
#include "support.h"

#include <jansson.h>
#include <math.h>

#include "exported/fold.h"

enum { MOST_TENSORS = 64 };

typedef struct fixture {
    json_t *root, *expected;
    fth_exported *program;
    fth_host_tensor *values; /* by number in the program */
    int64_t allowance;
    bool *known;
} fixture;

static fixture read_constants(void)
{
    fixture f = {.allowance = FTH_FOLD_ALLOWANCE};
    char path[TEST_MAX_PATH];
    json_error_t error;
    snprintf(path, sizeof path, "%s/torch/exported/constants.json", getenv("TEST_DATA"));
    f.root = json_load_file(path, 0, &error);
    assert_non_null(f.root);
    f.expected = json_object_get(f.root, "expected");
    char *text = json_dumps(json_object_get(f.root, "program"), JSON_COMPACT);
    if (fth_exported_parse(text, strlen(text), "constants", &f.program) != FTH_OK)
        fail_msg("%s", fth_error_message());
    free(text);
    const size_t count = (size_t)fth_exported_value_count(f.program);
    f.values = calloc(count, sizeof *f.values);
    f.known = calloc(count, sizeof *f.known);
    for (size_t i = 0; i < count; i++) {
        const fth_exported_value *value = fth_exported_get_value(f.program, (int)i);
        f.known[i] = value->data && fth_host_tensor_of(value, &f.values[i]) == FTH_OK;
    }
    return f;
}

static void release(fixture *f)
{
    for (int i = 0; i < fth_exported_value_count(f->program); i++)
        fth_host_tensor_release(&f->values[i]);
    free(f->values);
    free(f->known);
    fth_exported_free(f->program);
    json_decref(f->root);
}

/* The tensors that a node reads; false if one is not known. */
static bool collect(const fixture *f, const fth_exported_node *node, const fth_host_tensor **tensors)
{
    size_t count = 0;
    for (size_t a = 0; a < node->argument_count; a++) {
        const fth_exported_argument *argument = &node->arguments[a];
        const bool single = argument->kind == FTH_ARGUMENT_TENSOR;
        for (size_t i = 0; i < (single ? 1 : argument->kind == FTH_ARGUMENT_TENSORS ? argument->count : 0); i++) {
            const int number = single ? argument->tensor : argument->tensors[i];
            if (number >= 0 && !f->known[number] && fth_fold_reads(node->target, argument->name))
                return false;
            assert_true(count < MOST_TENSORS);
            tensors[count++] = number >= 0 && f->known[number] ? &f->values[number] : NULL;
        }
    }
    return true;
}

static void fold_all(fixture *f)
{
    for (size_t n = 0; n < fth_exported_node_count(f->program); n++) {
        const fth_exported_node *node = fth_exported_get_node(f->program, n);
        const fth_host_tensor *tensors[MOST_TENSORS];
        fth_host_tensor outputs[MOST_TENSORS];
        bool folded = false;
        if (!collect(f, node, tensors))
            continue;
        if (!fth_fold_knows(node->target))
            fail_msg("%s is not known", node->target);
        assert_int_equal(fth_fold_node(f->program, node, tensors, &f->allowance, outputs, &folded), FTH_OK);
        if (!folded)
            fail_msg("node %zu, %s, is not folded", n, node->target);
        for (size_t o = 0; o < node->output_count; o++) {
            if (node->outputs[o] < 0) {
                fth_host_tensor_release(&outputs[o]);
                continue;
            }
            f->values[node->outputs[o]] = outputs[o];
            f->known[node->outputs[o]] = true;
        }
    }
}

static double read_number(const json_t *number)
{
    const char *text = json_string_value(number);
    return !text ? (json_is_boolean(number) ? json_is_true(number) : json_number_value(number)) : strtod(text, NULL);
}

/* Functions of f32 are computed in doubles and rounded once here: PyTorch's may be two units in the
 * last place off. What is added up and smaller types are as close in units of their own. */
static double tolerance(int torch_dtype, double expected)
{
    const double unit = torch_dtype == FTH_TORCH_F16 ? 0x1p-11 : torch_dtype == FTH_TORCH_BF16 ? 0x1p-8 : 0x1p-22;
    return fth_torch_dtype_is_float(torch_dtype) && isfinite(expected) ? unit * fmax(fabs(expected), 0x1p-4) : 0;
}

static void test_against_pytorch(void **state)
{
    (void)state;
    fixture f = read_constants();
    fold_all(&f);
    assert_int_equal(fth_exported_output_count(f.program), json_array_size(f.expected) + 1); /* x is the first */
    for (size_t i = 0; i < json_array_size(f.expected); i++) {
        const int number = fth_exported_get_output(f.program, i + 1);
        const fth_exported_value *value = fth_exported_get_value(f.program, number);
        const json_t *expected = json_array_get(f.expected, i), *numbers = json_object_get(expected, "numbers");
        const fth_host_tensor *tensor = &f.values[number];
        if (!f.known[number])
            fail_msg("constant %zu (%s) is not known", i, value->name);
        fth_host_tensor_refresh(tensor);
        assert_int_equal(tensor->torch_dtype, value->torch_dtype);
        assert_int_equal(tensor->shape.rank, json_array_size(json_object_get(expected, "shape")));
        assert_int_equal(fth_shape_count(&tensor->shape), json_array_size(numbers));
        for (size_t k = 0; k < json_array_size(numbers); k++) {
            const double wanted = read_number(json_array_get(numbers, k)), found = tensor->numbers[k];
            if (!(found == wanted || fabs(found - wanted) <= tolerance(tensor->torch_dtype, wanted)))
                fail_msg("constant %zu (%s): number %zu is %.17g instead of %.17g", i, value->name, k, found, wanted);
        }
    }
    release(&f);
}

/* A program of one node of aten.OPERATOR(ARGUMENTS) whose result has the dtype and sizes; x is the
 * constant [1, 2] of int64. */
static bool folds(const char *operator_name, const char *arguments, int dtype, const char *sizes)
{
    char *text = fth_format(
        "{\"schema_version\":{\"major\":8},\"verifiers\":[\"TRAINING\"],\"graph_module\":{\"signature\":{\"input_"
        "specs\":["
        "{\"tensor_constant\":{\"arg\":{\"name\":\"x\"},\"tensor_constant_name\":\"x\"}},{\"user_input\":{\"arg\":{"
        "\"as_tensor\":{\"name\":\"u\"}}}}],\"output_specs\":[{\"user_output\":{\"arg\":{\"as_tensor\":{\"name\":\"y\"}"
        "}}}]},"
        "\"graph\":{\"tensor_values\":{\"x\":{\"dtype\":5,\"sizes\":[{\"as_int\":2}]},\"u\":{\"dtype\":7,\"sizes\":["
        "{\"as_expr\":{\"expr_str\":\"s0\"}}]},\"y\":{\"dtype\":%d,\"sizes\":[%s]}},\"sym_int_values\":{\"n\":{\"as_"
        "expr\":{"
        "\"expr_str\":\"s0\"}}},\"nodes\":[{\"target\":\"torch.ops.aten.%s\",\"inputs\":[%s],\"outputs\":[{\"as_"
        "tensor\":{"
        "\"name\":\"y\"}}]}]}},\"data\":{\"x\":\"AQAAAAAAAAACAAAAAAAAAA==\"}}",
        dtype, sizes, operator_name, arguments);
    fth_exported *program = NULL;
    fth_host_tensor x = {0}, y = {0};
    int64_t allowance = 5000;
    bool folded = true;
    if (fth_exported_parse(text, strlen(text), "one", &program) != FTH_OK)
        fail_msg("%s", fth_error_message());
    assert_int_equal(fth_host_tensor_of(fth_exported_get_value(program, 0), &x), FTH_OK);
    const fth_host_tensor *tensors[4] = {&x, &x, &x, &x};
    assert_int_equal(fth_fold_node(program, fth_exported_get_node(program, 0), tensors, &allowance, &y, &folded),
                     FTH_OK);
    if (!folded)
        assert_null(y.numbers);
    fth_host_tensor_release(&x);
    fth_host_tensor_release(&y);
    fth_exported_free(program);
    free(text);
    return folded;
}

#define X            "{\"name\":\"self\",\"arg\":{\"as_tensor\":{\"name\":\"x\"}}}"
#define INT(name, n) ",{\"name\":\"" name "\",\"arg\":{\"as_int\":" #n "}}"
#define TWO          "{\"as_int\":2}"

/* What is not known, or would be wrong, is left alone. */
static void test_not_folded(void **state)
{
    (void)state;
    assert_true(folds("add.Tensor", X INT("other", 1), 5, TWO));
    assert_false(folds("frobnicate.default", X, 5, TWO));
    assert_false(folds("add.Tensor", X INT("other", 1) INT("unheard_of", 1), 5, TWO));
    assert_false(folds("add.Tensor", X, 5, TWO));
    assert_false(folds("add.Tensor", X INT("other", 1), 5, "{\"as_int\":3}")); /* does not broadcast */
    assert_false(folds("add.Tensor", X INT("other", 1), 5, "{\"as_expr\":{\"expr_str\":\"s0\"}}")); /* the batch */
    assert_false(folds("add.Tensor", X INT("other", 1), 10, TWO));                                  /* complex */
    assert_true(folds("mul.Tensor", X INT("other", 2251799813685248), 5, TWO));                     /* 2^52 at most */
    assert_false(folds("mul.Tensor", X INT("other", 9007199254740992), 5, TWO));                    /* more than 2^53 */
    assert_true(folds("mul.Tensor", X INT("other", 60), 2, TWO));
    assert_false(folds("mul.Tensor", X INT("other", 64), 2, TWO)); /* 128 in int8 */
    assert_false(folds("floor_divide.default", X INT("other", 0), 5, TWO));
    assert_false(folds("bitwise_and.Scalar", X ",{\"name\":\"other\",\"arg\":{\"as_float\":0.5}}", 5, TWO));
    assert_true(folds("expand.default", X, 5, "{\"as_int\":1000}," TWO));
    assert_false(folds("expand.default", X, 5, "{\"as_int\":10000000}," TWO)); /* too many */
    assert_false(folds("expand.default", X, 5, "{\"as_int\":10000}," TWO));    /* more than the allowance */
    assert_false(folds("select.int", X INT("dim", 0) INT("index", 2), 5, ""));
    assert_true(folds("select.int", X INT("dim", -1) INT("index", -2), 5, ""));
    assert_false(folds("slice.Tensor", X INT("start", 1), 5, TWO));
    assert_false(folds("slice.Tensor", X INT("start", 0) INT("step", 0), 5, TWO));
    assert_false(folds("view.default", X, 5, "{\"as_int\":3}"));
    assert_false(folds("gather.default",
                       X INT("dim", 0) ",{\"name\":\"index\",\"arg\":{\"as_tensor\":{\"name\":\"x\"}}}", 5, TWO));
    assert_false(folds("arange.default", "{\"name\":\"end\",\"arg\":{\"as_sym_int\":{\"as_name\":\"n\"}}}", 5, TWO));
    assert_true(folds("arange.default", "{\"name\":\"end\",\"arg\":{\"as_int\":2}}", 5, TWO));
    assert_false(folds("roll.default", X INT("shifts", 1), 5, TWO));
    assert_false(folds("pad.default", X ",{\"name\":\"pad\",\"arg\":{\"as_ints\":[9223372036854775807,1]}}", 5, TWO));
    assert_false(fth_fold_knows("aten.conv2d.default"));
    assert_false(fth_fold_knows("higher_order.add.default"));
    assert_false(fth_fold_knows("aten."));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_pytorch),
        cmocka_unit_test(test_not_folded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
