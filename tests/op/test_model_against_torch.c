/* One training step of every model equals PyTorch's: loss, logits, every gradient and running
 * statistic. What PyTorch computed is in tests/torch/<fixture>.json, condensed;
 * tests/torch/README.md says how. */
#include <dirent.h>
#include <jansson.h>
#include <math.h>

#include "graph/ops.h"
#include "model/model.h"
#include "op_harness.h"
#include "smooth_graph.h"

/* Fixtures come in units of "error": how far float32 and noise of its size took PyTorch's own
 * result. A dot product with random signs scatters by one such error, and ours sums in another
 * order and uses Winograd, whose transforms round about ten times as much as a plain sum does; 4 is
 * the most that was seen. On top, a few units of f32 rounding of the number itself, as an error can
 * be small by chance.
 *
 * How tight that is depends on the network. In deep ones with ReLU some activations lie within
 * rounding of zero, and let the gradient through here and not there: the errors of resnet18's
 * gradients are 1 to 2 % of them (with the signs held fixed they would be 0.002 %). So two of them
 * are also compared without jumps, "smooth": GELU for ReLU, averages for maxima. There errors are
 * 0.002 % (18 layers) to 0.03 % (50), and little hides behind them. */
static const double error_factor = 10, rounding = 1e-6;

static uint64_t hash_name(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

/* Adds sum of squares and dot product with the probe vector of `name`. */
static void condense(const char *name, const float *values, size_t count, double *squares, double *dot)
{
    fth_random_key key = fth_random_fork(fth_random_key_for(1, FTH_RANDOM_GENERATE), hash_name(name));
    for (size_t i = 0; i < count; i++) {
        *squares += (double)values[i] * values[i];
        *dot += fth_random_bits(key, i) >> 63 ? -(double)values[i] : (double)values[i];
    }
}

static double number_at(const json_t *array, size_t index)
{
    const json_t *number = json_array_get(array, index);
    if (!json_is_number(number))
        fail_msg("a fixture lacks a number");
    return json_number_value(number);
}

static int compare_numbers(const char *who, const char *what, double found, double wanted, double limit)
{
    if (getenv("OP_VERBOSE") != NULL)
        print_message("  %s: %s: %g, limit %g\n", who, what, fabs(found - wanted), limit);
    if (fabs(found - wanted) <= limit)
        return 0;
    print_message("  DIFFERS %s: %s: %.9g, PyTorch has %.9g, limit %.2g\n", who, what, found, wanted, limit);
    return 1;
}

/* Compares a tensor with its [norm, dot, error]. */
static int compare_tensor(const char *who, const char *label, const char *name, const float *values, size_t count,
                          const json_t *wanted)
{
    char what[160];
    double squares = 0, dot = 0;
    const double norm = number_at(wanted, 0);
    const double limit = error_factor * number_at(wanted, 2) + rounding * norm;
    condense(name, values, count, &squares, &dot);
    snprintf(what, sizeof what, "norm of %s", label);
    int differences = compare_numbers(who, what, sqrt(squares), norm, limit);
    snprintf(what, sizeof what, "dot of %s", label);
    return differences + compare_numbers(who, what, dot, number_at(wanted, 1), limit);
}

/* Compares every value of one kind, and sees to it that PyTorch has no other. */
static int compare_values(const char *who, const fth_graph *graph, fth_value_kind kind, const float *vector,
                          const json_t *wanted)
{
    int differences = 0;
    size_t compared = 0;
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        if (info->kind != kind)
            continue;
        const json_t *numbers = json_object_get(wanted, info->name);
        if (numbers == NULL) {
            print_message("  DIFFERS %s: PyTorch has no %s\n", who, info->name);
            differences++;
            continue;
        }
        differences += compare_tensor(who, info->name, info->name, vector + info->offset,
                                      (size_t)fth_shape_count(&info->type.shape), numbers);
        compared++;
    }
    if (compared != json_object_size(wanted)) {
        print_message("  DIFFERS %s: %zu of PyTorch's %zu tensors compared\n", who, compared, json_object_size(wanted));
        differences++;
    }
    return differences;
}

static int whole_number(const json_t *fixture, const char *key)
{
    const json_t *value = json_object_get(fixture, key);
    if (!json_is_integer(value))
        fail_msg("a fixture has no %s", key);
    return (int)json_integer_value(value);
}

static void build_network(const json_t *fixture, op_network *network)
{
    const fth_model *model = NULL;
    fth_graph *graph = NULL;
    const fth_random_key key = fth_random_key_for(1, FTH_RANDOM_GENERATE);
    const fth_model_options options = {.channels = whole_number(fixture, "channels"),
                                       .height = whole_number(fixture, "height"),
                                       .width = whole_number(fixture, "width"),
                                       .classes = whole_number(fixture, "classes"),
                                       .label_smoothing =
                                           (float)json_number_value(json_object_get(fixture, "label_smoothing")),
                                       .no_dropout = true};
    op_check(fth_model_find(json_string_value(json_object_get(fixture, "model")), &model));
    op_check(fth_model_create_graph(model, &options, &graph));
    if (json_is_true(json_object_get(fixture, "smooth"))) {
        fth_graph *smooth = NULL;
        op_check(smooth_graph_create(graph, &smooth));
        fth_graph_free(graph);
        graph = smooth;
    }
    op_network_create(network, graph, whole_number(fixture, "batch"), 1);
    size_t pixels = (size_t)(network->batch * options.channels * options.height * options.width);
    for (size_t i = 0; i < pixels; i++)
        network->images[i] = (float)(2 * fth_random_uniform(fth_random_fork(key, 1), i) - 1);
    for (int64_t n = 0; n < network->batch; n++)
        network->labels[n] = (int32_t)fth_random_below(fth_random_fork(key, 2), (uint64_t)n, (uint64_t)options.classes);
}

/* Different starting points would show everywhere; say it once, and say what it is. */
static void check_start(const char *who, const op_network *network, const json_t *wanted)
{
    double squares = 0, dot = 0;
    for (fth_value v = 0; v < fth_graph_value_count(network->graph); v++) {
        const fth_value_info *info = fth_graph_value(network->graph, v);
        if (info->kind == FTH_VALUE_PARAMETER)
            condense(info->name, network->parameters + info->offset, (size_t)fth_shape_count(&info->type.shape),
                     &squares, &dot);
    }
    double limit = 1e-6 * number_at(wanted, 0);
    if (compare_numbers(who, "norm of the initial parameters", sqrt(squares), number_at(wanted, 0), limit) +
            compare_numbers(who, "dot of the initial parameters", dot, number_at(wanted, 1), limit) >
        0)
        fail_msg("%s starts from other parameters than PyTorch did: make the fixtures again", who);
}

static int compare_model(const char *who, const json_t *fixture, fth_device *device)
{
    const fth_run run = {.seed = 1, .step = 1, .gradient_scale = 1};
    int differences = 0;
    op_network network;
    op_result trained, evaluated;

    build_network(fixture, &network);
    check_start(who, &network, json_object_get(fixture, "initial"));
    op_run_once(&network, device, FTH_PLAN_TRAIN, FTH_PRECISION_F32, &run, &trained);
    memcpy(network.buffers, trained.buffers, fth_graph_buffer_floats(network.graph) * sizeof(float));
    op_run_once(&network, device, FTH_PLAN_EVALUATE, FTH_PRECISION_F32, &run, &evaluated);

    const json_t *loss = json_object_get(fixture, "loss");
    differences += compare_numbers(who, "loss", trained.loss[0], number_at(loss, 0),
                                   error_factor * number_at(loss, 1) + rounding * fabs(number_at(loss, 0)));
    differences += compare_tensor(who, "logits", "logits", trained.logits, trained.logit_count,
                                  json_object_get(fixture, "logits"));
    differences += compare_tensor(who, "evaluated logits", "logits", evaluated.logits, evaluated.logit_count,
                                  json_object_get(fixture, "evaluated_logits"));
    const json_t *first = json_object_get(fixture, "first_logits");
    for (size_t c = 0; c < json_array_size(first); c++)
        differences += compare_numbers(who, "a logit of the first image", trained.logits[c], number_at(first, c),
                                       error_factor * number_at(json_object_get(fixture, "logits"), 2) + rounding);
    differences += compare_values(who, network.graph, FTH_VALUE_PARAMETER, trained.gradients,
                                  json_object_get(fixture, "gradients"));
    differences +=
        compare_values(who, network.graph, FTH_VALUE_BUFFER, trained.buffers, json_object_get(fixture, "buffers"));
    op_result_free(&trained);
    op_result_free(&evaluated);
    op_network_free(&network);
    return differences;
}

static void test_model(void **state)
{
    static const char *const names[] = {"cpu", "portable", "cuda"}; /* large models at every level would take minutes */
    const char *path = *state;
    json_error_t error;
    json_t *fixture = json_load_file(path, 0, &error);
    int differences = 0;
    if (fixture == NULL)
        fail_msg("%s: %s", path, error.text);
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        char who[160];
        fth_device *device = op_device(names[i]);
        snprintf(who, sizeof who, "%s on %s", strrchr(path, '/') + 1, names[i]);
        if (device != NULL)
            differences += compare_model(who, fixture, device);
    }
    json_decref(fixture);
    assert_int_equal(differences, 0);
}

enum { MAX_FIXTURES = 64 };

static int is_fixture(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot != NULL && strcmp(dot, ".json") == 0;
}

/* An argument, a pattern as of cmocka_set_test_filter(), chooses fixtures: "resnet*". */
int main(int argc, char **argv)
{
    struct CMUnitTest tests[MAX_FIXTURES] = {0};
    struct dirent **entries = NULL;
    const char *data = getenv("TEST_DATA");
    char *folder = fth_path_join(data != NULL ? data : "tests", "torch");
    char *paths[MAX_FIXTURES];
    int count = scandir(folder, &entries, is_fixture, alphasort);
    if (count < 1 || count > MAX_FIXTURES) {
        fprintf(stderr, "%s has no fixtures, or more than %d\n", folder, MAX_FIXTURES);
        return 1;
    }
    for (int i = 0; i < count; i++) {
        paths[i] = fth_path_join(folder, entries[i]->d_name);
        tests[i] = (struct CMUnitTest){.name = entries[i]->d_name, .test_func = test_model, .initial_state = paths[i]};
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    int failed = _cmocka_run_group_tests("models against PyTorch", tests, (size_t)count, NULL, op_close_devices);
    for (int i = 0; i < count; i++) {
        free(paths[i]);
        free(entries[i]);
    }
    free(entries);
    free(folder);
    return failed;
}
