/* Weights from files into engines, new heads, and parameters that are not trained. */
#include "support.h"

#include <math.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "train/engine/engine_internal.h"
#include "train/engine/snapshot.h"

enum { BATCH = 2, SIDE = 32, CLASSES = 10 };

static char path[TEST_MAX_PATH];
static fth_device *device;
static const char *set_statistics = "no", *chosen_optimizer = "sgd", *chosen_momentum = "0.9";

static int set_up(void **state)
{
    if (test_make_folder(state) != 0)
        return -1;
    test_path(path, "weights.safetensors");
    return fth_device_open("cpu", &(fth_device_options){.threads = 1}, &device) == FTH_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fth_device_close(device);
    unlink(path);
    return rmdir(test_folder); /* nothing else was left */
}

/* ---- engines on random images ---- */

typedef struct subject {
    fth_train_options options;
    fth_engine *engine;
    float *images;
    int32_t labels[BATCH];
} subject;

static void set_option(fth_train_options *options, const char *name, const char *value)
{
    if (*value) /* else the default */
        assert_int_equal(fth_options_set(&fth_train_option_table, options, name, value, name), FTH_OK);
}

static fth_status make(const char *model, const char *freeze, int classes, subject *made)
{
    *made = (subject){0};
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, &made->options), FTH_OK);
    set_option(&made->options, "model", model);
    set_option(&made->options, "freeze", freeze);
    set_option(&made->options, "freeze-statistics", set_statistics);
    set_option(&made->options, "optimizer", chosen_optimizer);
    set_option(&made->options, "momentum", chosen_momentum);
    set_option(&made->options, "batch", "2");
    set_option(&made->options, "weight-decay", "0.1");
    fth_engine_options options = {.train = &made->options,
                                  .channels = 3,
                                  .height = SIDE,
                                  .width = SIDE,
                                  .classes = classes,
                                  .training_samples = BATCH};
    size_t floats = (size_t)BATCH * 3 * SIDE * SIDE;
    assert_int_equal(fth_allocate_aligned(floats * sizeof(float), &made->images), FTH_OK);
    fth_random_key key = fth_random_key_for(5, FTH_RANDOM_GENERATE);
    for (size_t i = 0; i < floats; i++)
        made->images[i] = (float)fth_random_normal(key, i);
    for (int i = 0; i < BATCH; i++)
        made->labels[i] = i % classes;
    return fth_engine_create(&options, device, &made->engine);
}

static void release(subject *made)
{
    fth_engine_free(made->engine);
    free(made->images);
    fth_options_release(&fth_train_option_table, &made->options);
}

static void compute(subject *made, int64_t number)
{
    fth_batch batch = {.images = made->images, .labels = made->labels, .count = BATCH, .number = number};
    fth_group group = {.first = true, .last = true, .share = 1, .update = number + 1};
    fth_step_result result;
    assert_int_equal(fth_engine_compute(made->engine, &batch, &group, &result), FTH_OK);
}

static const fth_value_info *parameter(const subject *made, fth_value value)
{
    const fth_value_info *info = fth_graph_value(fth_engine_graph(made->engine), value);
    return info && info->kind == FTH_VALUE_PARAMETER ? info : NULL;
}

static size_t count_of(const fth_value_info *info)
{
    return (size_t)fth_shape_count(&info->type.shape);
}

/* ---- frozen parameters ---- */

static bool is_frozen(const char *name, const char *const *prefixes)
{
    for (; *prefixes; prefixes++)
        if (strncmp(name, *prefixes, strlen(*prefixes)) == 0)
            return true;
    return false;
}

/* The largest difference of a gradient from the unfrozen run's, against that parameter's
 * largest. */
static double gradient_error(const subject *a, const fth_value_info *in_a, const subject *b, const fth_value_info *in_b)
{
    double worst = 0, largest = 1e-30;
    for (size_t i = 0; i < count_of(in_a); i++) {
        double left = a->engine->vectors.gradients[in_a->offset + i];
        double right = b->engine->vectors.gradients[in_b->offset + i];
        worst = fmax(worst, fabs(left - right));
        largest = fmax(largest, fabs(left));
    }
    return worst / largest;
}

static void check_freezing(const char *model, const char *patterns, const char *const *prefixes)
{
    subject whole, part;
    assert_int_equal(make(model, "", CLASSES, &whole), FTH_OK);
    assert_int_equal(make(model, patterns, CLASSES, &part), FTH_OK);
    compute(&whole, 0);
    compute(&part, 0);
    const fth_graph *graph = fth_engine_graph(part.engine);
    assert_true(fth_graph_trained_floats(graph) < fth_graph_parameter_floats(graph));

    size_t floats = part.engine->vectors.sizes.parameters;
    float *before = NULL;
    assert_int_equal(fth_allocate(floats, sizeof *before, &before), FTH_OK);
    memcpy(before, part.engine->vectors.parameters, floats * sizeof *before);
    int frozen = 0, trained = 0;
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        const fth_value_info *info = parameter(&part, v);
        if (!info)
            continue;
        bool expected = is_frozen(info->name, prefixes);
        assert_int_equal(info->gradient == FTH_NO_VALUE, expected);
        assert_int_equal(info->offset >= fth_graph_trained_floats(graph), expected);
        frozen += expected;
        trained += !expected;
        /* The same kernels on the same numbers; 1e-4 leaves room for another order of sums where
         * the plan differs. */
        if (!expected)
            assert_true(gradient_error(&whole, parameter(&whole, v), &part, info) < 1e-4);
    }
    assert_true(frozen > 0 && trained > 0);

    for (int64_t step = 1; step <= 3; step++) {
        assert_int_equal(fth_engine_update(part.engine, 0.01, step), FTH_OK);
        compute(&part, step);
    }
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        const fth_value_info *info = parameter(&part, v);
        if (!info)
            continue;
        bool same = memcmp(before + info->offset, part.engine->vectors.parameters + info->offset,
                           count_of(info) * sizeof *before) == 0;
        assert_int_equal(same, is_frozen(info->name, prefixes));
    }
    free(before);
    release(&whole);
    release(&part);
}

static void frozen_prefixes_stay_and_the_rest_learns_as_before(void **state)
{
    (void)state;
    check_freezing("resnet18", "conv1.*,bn1,layer1.*, layer2",
                   (const char *const[]){"conv1.", "bn1.", "layer1.", "layer2.", NULL});
}

static void single_parameters_in_the_middle_can_be_frozen(void **state)
{
    (void)state;
    check_freezing("cifar-cnn", "conv2.weight,fc1.bias", (const char *const[]){"conv2.weight", "fc1.bias", NULL});
    check_freezing("resnet18", "layer2.0.bn1,layer3.0.bn2.bias,layer4.1.conv1",
                   (const char *const[]){"layer2.0.bn1.", "layer3.0.bn2.bias", "layer4.1.conv1.", NULL});
}

static void the_backward_pass_stops_at_the_frozen_prefix(void **state)
{
    (void)state;
    subject whole, part;
    assert_int_equal(make("resnet18", "", CLASSES, &whole), FTH_OK);
    assert_int_equal(make("resnet18", "[!f]*", CLASSES, &part), FTH_OK); /* all but fc */
    const fth_graph *graph = fth_engine_graph(part.engine);
    int forward = fth_graph_forward_node_count(graph), backward = fth_graph_node_count(graph) - forward;
    assert_int_equal(forward, fth_graph_forward_node_count(fth_engine_graph(whole.engine)));
    assert_int_equal(backward, 2); /* of the loss, and of fc's weight and bias */
    assert_int_equal(fth_graph_trainable_count(graph), 512 * CLASSES + CLASSES);
    release(&whole);
    release(&part);
}

/* What became of the buffers of layer1.0.bn1 and of layer3.0.bn1 in one step: two bits. */
static int moved_statistics(const char *freeze, const char *freeze_statistics)
{
    subject made;
    int moved = 0;
    static const char *const names[] = {"layer1.0.bn1.running_mean", "layer3.0.bn1.running_mean"};
    set_statistics = freeze_statistics;
    assert_int_equal(make("resnet18", freeze, CLASSES, &made), FTH_OK);
    set_statistics = "no";
    compute(&made, 0);
    const fth_graph *graph = fth_engine_graph(made.engine);
    for (int i = 0; i < 2; i++) {
        const fth_value_info *info = fth_graph_value(graph, fth_graph_find(graph, names[i]));
        moved |= (made.engine->vectors.buffers[info->offset] != 0) << i;
    }
    release(&made);
    return moved;
}

static void statistics_of_frozen_layers_stay_if_asked_to(void **state)
{
    (void)state;
    assert_int_equal(moved_statistics("conv1,bn1,layer1,layer2", "no"), 3); /* as in PyTorch */
    assert_int_equal(moved_statistics("conv1,bn1,layer1,layer2", "yes"), 2);
    assert_int_equal(moved_statistics("*.bn1", "yes"), 0); /* with trained layers before them */
}

static void patterns_that_match_nothing_are_errors(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"layr1.*", "\"layer1.*\""},
                                           {"conv1,layer4.1.con1", "\"layer4.1.conv1\""},
                                           {"transformer", "conv1, bn1, layer1, layer2, layer3, layer4, fc"},
                                           {"*", "nothing is left to train"}};
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        subject made;
        assert_int_equal(make("resnet18", cases[i][0], CLASSES, &made), FTH_INVALID);
        assert_message_of(cases[i][0], cases[i][1]);
        release(&made);
    }
}

static void frozen_parameters_have_no_optimizer_state(void **state)
{
    (void)state;
    subject made;
    fth_snapshot *snapshot = NULL;
    size_t count;
    assert_int_equal(make("cifar-cnn", "conv1", CLASSES, &made), FTH_OK);
    assert_int_equal(fth_engine_take_snapshot(made.engine, true, 0, &snapshot), FTH_OK);
    const fth_tensor_view *views = fth_snapshot_views(snapshot, &count);
    int weights = 0, states = 0;
    for (size_t i = 0; i < count; i++) {
        bool of_optimizer = strncmp(views[i].name, "optimizer.", 10) == 0;
        weights += !of_optimizer;
        states += of_optimizer;
        assert_null(of_optimizer ? strstr(views[i].name, "conv1") : NULL);
    }
    assert_int_equal(weights, states + 2);
    fth_snapshot_free(snapshot);
    release(&made);
}

/* ---- weights from files ---- */

static void save(subject *made, const char *leave_out, const fth_tensor_view *more)
{
    fth_snapshot *snapshot = NULL;
    size_t count, kept = 0;
    assert_int_equal(fth_engine_take_snapshot(made->engine, false, 77, &snapshot), FTH_OK);
    const fth_tensor_view *views = fth_snapshot_views(snapshot, &count);
    fth_tensor_view *chosen = calloc(count + 1, sizeof *chosen);
    assert_non_null(chosen);
    for (size_t i = 0; i < count; i++)
        if (!leave_out || strcmp(views[i].name, leave_out) != 0)
            chosen[kept++] = views[i];
    if (more)
        chosen[kept++] = *more;
    assert_int_equal(fth_model_file_save(path, chosen, kept, NULL, 0), FTH_OK);
    free(chosen);
    fth_snapshot_free(snapshot);
}

static fth_status load(subject *made, bool may_replace_head, fth_weights_report *report)
{
    fth_weights *weights = NULL;
    assert_int_equal(fth_weights_open(path, &weights), FTH_OK);
    fth_status status = fth_engine_load_weights(made->engine, weights, may_replace_head, path, report);
    fth_weights_free(weights);
    return status;
}

static void check_same(const subject *a, const subject *b, const char *except)
{
    for (fth_value v = 0; v < fth_graph_value_count(fth_engine_graph(a->engine)); v++) {
        const fth_value_info *in_a = parameter(a, v), *in_b = parameter(b, v);
        if (!in_a || (except && strncmp(in_a->name, except, strlen(except)) == 0))
            continue;
        assert_memory_equal(a->engine->vectors.parameters + in_a->offset, b->engine->vectors.parameters + in_b->offset,
                            count_of(in_a) * sizeof(float));
    }
}

static void disturb(subject *made)
{
    for (size_t i = 0; i < made->engine->vectors.sizes.parameters; i++)
        made->engine->vectors.parameters[i] += 1;
}

static void weights_are_read_back(void **state)
{
    (void)state;
    subject from, to;
    fth_weights_report report;
    assert_int_equal(make("resnet18", "", CLASSES, &from), FTH_OK);
    assert_int_equal(make("resnet18", "layer1", CLASSES, &to), FTH_OK); /* another order in the flat vector */
    disturb(&from);
    save(&from, NULL, NULL);
    assert_int_equal(load(&to, true, &report), FTH_OK);
    assert_int_equal(report.batches, 77);
    assert_string_equal(report.head_note, "");
    check_same(&from, &to, NULL);
    release(&from);
    release(&to);
}

static void a_head_for_other_classes_is_replaced_only_where_allowed(void **state)
{
    (void)state;
    subject from, to, fresh;
    fth_weights_report report;
    assert_int_equal(make("resnet18", "", CLASSES, &from), FTH_OK);
    assert_int_equal(make("resnet18", "", 7, &to), FTH_OK);
    assert_int_equal(make("resnet18", "", 7, &fresh), FTH_OK);
    disturb(&from);
    save(&from, NULL, NULL);
    assert_int_equal(load(&to, false, &report), FTH_INVALID);
    assert_message_has("has 10 classes, not 7");
    check_same(&fresh, &to, NULL); /* nothing was copied */
    assert_int_equal(load(&to, true, &report), FTH_OK);
    assert_string_equal(report.head_note, "head replaced: fc.weight is (10, 512) in the file, the data has 7 classes");
    check_same(&from, &to, "fc.");
    for (fth_value v = 0; v < fth_graph_value_count(fth_engine_graph(to.engine)); v++) {
        const fth_value_info *info = parameter(&to, v);
        if (info && strncmp(info->name, "fc.", 3) == 0)
            assert_memory_equal(to.engine->vectors.parameters + info->offset,
                                fresh.engine->vectors.parameters + info->offset, count_of(info) * sizeof(float));
    }
    release(&from);
    release(&to);
    release(&fresh);
}

static void everything_else_must_match(void **state)
{
    (void)state;
    static const float zeros[4];
    subject from, to;
    assert_int_equal(make("resnet18", "", CLASSES, &from), FTH_OK);
    assert_int_equal(make("resnet18", "", 7, &to), FTH_OK);
    save(&from, "layer1.0.bn1.running_mean", &(fth_tensor_view){"extra", FTH_F32, FTH_SHAPE(4), zeros});
    assert_int_equal(load(&to, true, NULL), FTH_INVALID);
    assert_message_has("1 missing: layer1.0.bn1.running_mean; 1 unexpected: extra");
    /* Half a head is no head for other classes. */
    save(&from, "fc.bias", &(fth_tensor_view){"fc.bias", FTH_F32, FTH_SHAPE(4), zeros});
    assert_int_equal(load(&to, true, NULL), FTH_INVALID);
    assert_message_has("2 of another shape: fc.weight");
    release(&to);
    assert_int_equal(make("cifar-cnn", "", CLASSES, &to), FTH_OK);
    assert_int_equal(load(&to, true, NULL), FTH_INVALID);
    assert_message_has("does not fit cifar-cnn");
    release(&from);
    release(&to);
}

static void halves_and_doubles_become_floats(void **state)
{
    (void)state;
    subject made;
    assert_int_equal(make("linear", "", CLASSES, &made), FTH_OK);
    const fth_graph *graph = fth_engine_graph(made.engine);
    fth_model_head head = fth_model_find_head(graph);
    const fth_value_info *weight = fth_graph_value(graph, head.weight), *bias = fth_graph_value(graph, head.bias);
    size_t count = count_of(weight);
    uint16_t *halves = calloc(count, sizeof *halves);
    double doubles[CLASSES];
    for (size_t i = 0; i < count; i++)
        halves[i] = i % 2 ? 0x3C00 : 0xC000; /* 1 and -2 */
    for (int i = 0; i < CLASSES; i++)
        doubles[i] = i / 4.0;
    fth_tensor_view views[] = {{weight->name, FTH_F16, weight->type.shape, halves},
                               {bias->name, FTH_F64, bias->type.shape, doubles}};
    assert_int_equal(fth_model_file_save(path, views, 2, NULL, 0), FTH_OK);
    assert_int_equal(load(&made, false, NULL), FTH_OK);
    const float *parameters = made.engine->vectors.parameters;
    assert_true(parameters[weight->offset] == -2 && parameters[weight->offset + 1] == 1);
    assert_true(parameters[bias->offset + 3] == 0.75F);
    free(halves);
    release(&made);
}

/* ---- weights that are not finite ---- */

static float *element(const subject *made, const char *name, size_t index)
{
    const fth_graph *graph = fth_engine_graph(made->engine);
    const fth_value_info *info = fth_graph_value(graph, fth_graph_find(graph, name));
    float *vector =
        info->kind == FTH_VALUE_PARAMETER ? made->engine->vectors.parameters : made->engine->vectors.buffers;
    return vector + info->offset + index;
}

/* Overwrites four bytes of a tensor in the file, as no writer of ours would. */
static void poison_file(const char *name, size_t index, uint32_t bits)
{
    fth_safetensors *tensors = NULL;
    const void *bytes = NULL;
    size_t size = 0;
    assert_int_equal(fth_file_map(path, &bytes, &size), FTH_OK);
    assert_int_equal(fth_safetensors_parse(bytes, size, path, &tensors), FTH_OK);
    const fth_tensor_view *view = fth_safetensors_find(tensors, name);
    assert_non_null(view);
    long at = (long)((const char *)view->data - (const char *)bytes) + (long)(4 * index);
    fth_safetensors_free(tensors);
    fth_file_unmap(bytes, size);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fwrite(&bits, sizeof bits, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

static void weights_that_are_not_finite_are_not_read(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t index;
        uint32_t bits;
        const char *expected;
    } cases[] = {
        {"layer2.0.conv2.weight", 5, 0x7fc00000, "layer2.0.conv2.weight is NaN at (0, 0, 1, 2); 1 of its 147456"},
        {"bn1.running_var", 63, 0x7f800000, "bn1.running_var is infinite at (63); 1 of its 64 numbers is not finite"},
        {"fc.bias", 0, 0xffffffff, "fc.bias is NaN at (0); 1 of its 10"},
    };
    subject from, to;
    assert_int_equal(make("resnet18", "", CLASSES, &from), FTH_OK);
    assert_int_equal(make("resnet18", "", CLASSES, &to), FTH_OK);
    *element(&to, "fc.bias", 3) = 42;
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        save(&from, NULL, NULL);
        poison_file(cases[i].name, cases[i].index, cases[i].bits);
        assert_int_equal(load(&to, false, NULL), FTH_INVALID);
        assert_message_has(cases[i].expected);
        assert_message_has(path);
    }
    assert_true(*element(&to, "fc.bias", 3) == 42); /* nothing was taken */
    release(&from);
    release(&to);
}

static void weights_that_are_not_finite_are_not_written(void **state)
{
    (void)state;
    subject made;
    fth_snapshot *whole = NULL, *model = NULL;
    assert_int_equal(make("linear", "", CLASSES, &made), FTH_OK);
    save(&made, NULL, NULL);
    made.engine->vectors.state[0][5] = INFINITY; /* the optimizer's: a checkpoint is as bad with it */
    assert_int_equal(fth_engine_take_snapshot(made.engine, true, 1, &whole), FTH_OK);
    assert_int_equal(fth_snapshot_check_finite(whole), FTH_DIVERGED);
    assert_message_has("optimizer.momentum_buffer.");
    assert_int_equal(fth_engine_check_finite(made.engine), FTH_OK);

    made.engine->vectors.parameters[5] = NAN;
    assert_int_equal(fth_engine_take_snapshot(made.engine, false, 1, &model), FTH_OK);
    assert_int_equal(fth_snapshot_check_finite(model), FTH_DIVERGED);
    assert_int_equal(fth_engine_check_finite(made.engine), FTH_DIVERGED);
    subject reader;
    assert_int_equal(make("linear", "", CLASSES, &reader), FTH_OK);
    assert_int_equal(load(&reader, false, NULL), FTH_OK); /* the file is the one from before */
    fth_snapshot_free(whole);
    fth_snapshot_free(model);
    release(&made);
    release(&reader);
}

/* At the update itself: the loss of its batch was finite. */
static void an_update_that_spoils_a_weight_is_noticed(void **state)
{
    (void)state;
    static const char *const optimizers[][2] = {{"sgd", "0"}, {"sgd", "0.9"}, {"adamw", "0.9"}};
    for (size_t i = 0; i < FTH_COUNT_OF(optimizers); i++) {
        subject made;
        chosen_optimizer = optimizers[i][0];
        chosen_momentum = optimizers[i][1];
        assert_int_equal(make("cifar-cnn", "", CLASSES, &made), FTH_OK);
        compute(&made, 0);
        assert_int_equal(fth_engine_update(made.engine, 0.01, 1), FTH_OK);
        assert_int_equal(fth_engine_check_update(made.engine), FTH_OK);
        compute(&made, 1);
        made.engine->vectors.gradients[7] = NAN;
        assert_int_equal(fth_engine_update(made.engine, 0.01, 2), FTH_OK);
        assert_int_equal(fth_engine_check_update(made.engine), FTH_DIVERGED);
        assert_message_has("is NaN at");
        release(&made);
    }
    chosen_optimizer = "sgd";
    chosen_momentum = "0.9";

    subject made;
    assert_int_equal(make("resnet18", "", CLASSES, &made), FTH_OK);
    compute(&made, 0);
    assert_int_equal(fth_engine_check_update(made.engine), FTH_OK);
    *element(&made, "layer1.0.bn1.running_var", 2) = INFINITY;
    assert_int_equal(fth_engine_check_update(made.engine), FTH_DIVERGED);
    assert_message_has("layer1.0.bn1.running_var is infinite at (2)");
    release(&made);
}

/* The message tells bad weights from bad inputs. */
static void a_loss_that_is_not_finite_names_the_weight(void **state)
{
    (void)state;
    subject made;
    fth_step_result result;
    fth_group group = {.first = true, .last = true, .share = 1, .update = 1};
    assert_int_equal(make("cifar-cnn", "", CLASSES, &made), FTH_OK);
    fth_batch batch = {.images = made.images, .labels = made.labels, .count = BATCH};
    float pixel = made.images[100];
    made.images[100] = NAN;
    assert_int_equal(fth_engine_compute(made.engine, &batch, &group, &result), FTH_DIVERGED);
    assert_message_has("the loss is not a number (all weights are finite)");
    made.images[100] = pixel;
    *element(&made, "conv1.weight", 0) = NAN;
    assert_int_equal(fth_engine_compute(made.engine, &batch, &group, &result), FTH_DIVERGED);
    assert_message_has("the loss is not a number (conv1.weight is NaN at (0, 0, 0, 0)");
    release(&made);
}

static void predictions_are_the_logits_of_evaluation(void **state)
{
    (void)state;
    subject made;
    float both[BATCH * CLASSES], one[CLASSES];
    assert_int_equal(make("resnet18", "", CLASSES, &made), FTH_OK);
    assert_int_equal(fth_engine_predict(made.engine, made.images, BATCH, both), FTH_OK);
    assert_int_equal(fth_engine_predict(made.engine, made.images + 3 * SIDE * SIDE, 1, one), FTH_OK);
    for (int c = 0; c < CLASSES; c++) /* f32, sums of thousands */
        assert_true(fabsf(both[CLASSES + c] - one[c]) <= 1e-4F * (1 + fabsf(one[c])));
    release(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frozen_prefixes_stay_and_the_rest_learns_as_before),
        cmocka_unit_test(single_parameters_in_the_middle_can_be_frozen),
        cmocka_unit_test(the_backward_pass_stops_at_the_frozen_prefix),
        cmocka_unit_test(statistics_of_frozen_layers_stay_if_asked_to),
        cmocka_unit_test(patterns_that_match_nothing_are_errors),
        cmocka_unit_test(frozen_parameters_have_no_optimizer_state),
        cmocka_unit_test(weights_are_read_back),
        cmocka_unit_test(a_head_for_other_classes_is_replaced_only_where_allowed),
        cmocka_unit_test(everything_else_must_match),
        cmocka_unit_test(halves_and_doubles_become_floats),
        cmocka_unit_test(predictions_are_the_logits_of_evaluation),
        cmocka_unit_test(weights_that_are_not_finite_are_not_read),
        cmocka_unit_test(weights_that_are_not_finite_are_not_written),
        cmocka_unit_test(an_update_that_spoils_a_weight_is_noticed),
        cmocka_unit_test(a_loss_that_is_not_finite_names_the_weight),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
