/* Dropout on every back end: how much it keeps, how it scales, and that its mask is a function of
 * the position alone. */
#include <math.h>

#include "op_harness.h"

static const char *const names[] = {"reference", OP_DEVICES};

enum { FEATURES = 1001 };

enum { DROP_SAMPLES = 1, DROP_WEIGHTS = 0 }; /* rows of a sample; more: a divisor of FEATURES */

/* images (N, 1) -> linear (all ones) -> dropout -> logits: with images of 1 the logits are the
 * mask, scaled, and the gradient of weight i is the sum of what the mask lets through to feature
 * i. What is dropped from are samples in that many rows each, or the weights. */
static fth_graph *build_graph(float probability, int64_t rows)
{
    fth_graph *graph = NULL;
    fth_value images, labels, weight, x, loss;
    op_check(fth_graph_create(&graph));
    op_check(fth_graph_add_input(graph, "images", FTH_F32, FTH_SHAPE(FTH_BATCH, 1), &images));
    op_check(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    op_check(fth_graph_add_parameter(graph, "weight", FTH_SHAPE(FEATURES, 1), (fth_initializer){FTH_INIT_CONSTANT, 1},
                                     &weight));
    if (rows == DROP_WEIGHTS)
        op_check(fth_op_add_dropout(graph, probability, weight, &weight));
    op_check(fth_op_add_linear(graph, false, images, weight, FTH_NO_VALUE, &x)); /* (N, FEATURES), all equal */
    if (rows != DROP_WEIGHTS) {
        op_check(fth_op_add_reshape(graph, FTH_SHAPE(fth_batch_times(rows), FEATURES / rows), x, &x));
        op_check(fth_op_add_dropout(graph, probability, x, &x));
        op_check(fth_op_add_reshape(graph, FTH_SHAPE(FTH_BATCH, FEATURES), x, &x));
    }
    op_check(fth_op_add_softmax_cross_entropy(graph, 0, x, labels, &loss));
    fth_graph_set_outputs(graph, x, loss);
    op_check(fth_graph_differentiate(graph));
    return graph;
}

static void make_network(op_network *network, float probability, int64_t batch, int64_t rows)
{
    op_network_create(network, build_graph(probability, rows), batch, 1);
    op_network_randomize(network, 1);
    for (int64_t n = 0; n < batch; n++)
        network->images[n] = 1;
    for (size_t i = 0; i < FEATURES; i++)
        network->parameters[i] = 1;
}

/* The mask by its definition; the graph's first dropout has the id that its attributes say. */
static uint32_t dropout_id(const fth_graph *graph)
{
    for (int n = 0; n < fth_graph_node_count(graph); n++) {
        const fth_node *node = fth_graph_node(graph, n);
        if (node->op == &fth_op_dropout)
            return ((const fth_dropout_attributes *)node->attributes)->id;
    }
    fail_msg("the graph has no dropout");
    return 0;
}

static void test_mask_and_scale(void **state)
{
    (void)state;
    static const float probabilities[] = {0, 0.1f, 0.25f, 0.5f, 0.9f};
    const fth_run run = {.seed = 21, .step = 1000003, .gradient_scale = 1};
    for (size_t p = 0; p < FTH_COUNT_OF(probabilities); p++) {
        const float probability = probabilities[p];
        op_network network;
        make_network(&network, probability, 7, DROP_SAMPLES);
        const fth_random_key key = fth_dropout_key(run.seed, run.step, dropout_id(network.graph));
        for (size_t d = 0; d < FTH_COUNT_OF(names); d++) {
            fth_device *device = op_device(names[d]);
            op_result result;
            size_t kept = 0;
            if (device == NULL)
                continue;
            op_run_once(&network, device, FTH_PLAN_TRAIN, FTH_PRECISION_F32, &run, &result);
            for (size_t i = 0; i < result.logit_count; i++) {
                bool keeps = fth_dropout_keeps(key, fth_dropout_threshold(probability), i);
                assert_true(keeps ? fabsf(result.logits[i] * (1 - probability) - 1) < 1e-6f : result.logits[i] == 0);
                kept += keeps;
            }
            /* Five standard deviations of a binomial count. */
            double expected = (1 - probability) * (double)result.logit_count;
            assert_true(fabs((double)kept - expected) <= 5 * sqrt(expected * probability) + 1e-3);
            op_result_free(&result);
        }
        op_network_free(&network);
    }
}

/* A part of a batch has the masks that its samples have in the whole; weights are the same in all
 * parts. */
static void check_parts(int64_t rows)
{
    const float probability = 0.5f;
    for (uint64_t first = 1; first <= 4; first++) {
        const fth_run run = {.seed = 3, .step = 9, .first_sample = first, .gradient_scale = 1};
        op_network network;
        make_network(&network, probability, 5, rows);
        const fth_random_key key = fth_dropout_key(run.seed, run.step, dropout_id(network.graph));
        for (size_t d = 0; d < FTH_COUNT_OF(names); d++) {
            fth_device *device = op_device(names[d]);
            op_result result;
            if (device == NULL)
                continue;
            op_run_once(&network, device, FTH_PLAN_TRAIN, FTH_PRECISION_F32, &run, &result);
            for (size_t i = 0; i < result.logit_count; i++)
                assert_int_equal(result.logits[i] != 0,
                                 fth_dropout_keeps(key, fth_dropout_threshold(probability),
                                                   rows == DROP_WEIGHTS ? i % FEATURES : first * FEATURES + i));
            op_result_free(&result);
        }
        op_network_free(&network);
    }
}

static void test_parts_have_the_mask_of_the_whole(void **state)
{
    (void)state;
    check_parts(DROP_SAMPLES);
    check_parts(7);
    check_parts(FEATURES);
    check_parts(DROP_WEIGHTS);
}

/* dweight[i] = sum over kept n of (softmax - one_hot)[n,i] / N / (1-p): zero exactly where nothing
 * was kept. */
static void test_gradient_uses_the_same_mask(void **state)
{
    (void)state;
    const fth_run run = {.seed = 5, .step = 2, .gradient_scale = 1};
    op_network network;
    make_network(&network, 0.5f, 2, DROP_SAMPLES);
    for (size_t d = 0; d < FTH_COUNT_OF(names); d++) {
        fth_device *device = op_device(names[d]);
        op_result result;
        if (device == NULL)
            continue;
        op_run_once(&network, device, FTH_PLAN_TRAIN, FTH_PRECISION_F32, &run, &result);
        double sums[2] = {0, 0};
        for (size_t i = 0; i < result.logit_count; i++)
            sums[i / FEATURES] += exp((double)result.logits[i]);
        for (size_t i = 0; i < FEATURES; i++) {
            double wanted = 0;
            for (size_t n = 0; n < 2; n++) {
                double z = result.logits[n * FEATURES + i];
                if (z != 0)
                    wanted += (exp(z) / sums[n] - ((size_t)network.labels[n] == i)) / 2 / 0.5;
            }
            assert_true(fabs(result.gradients[i] - wanted) <= 1e-6 * (fabs(wanted) + 1e-3));
        }
        op_result_free(&result);
    }
    op_network_free(&network);
}

static void test_mask_depends_on_seed_and_step_alone(void **state)
{
    (void)state;
    static const fth_run runs[] = {{.seed = 1, .step = 1, .gradient_scale = 1},
                                   {.seed = 1, .step = 2, .gradient_scale = 1},
                                   {.seed = 2, .step = 1, .gradient_scale = 1}};
    op_network network;
    make_network(&network, 0.5f, 3, DROP_SAMPLES);
    for (size_t d = 0; d < FTH_COUNT_OF(names); d++) {
        fth_device *device = op_device(names[d]);
        op_session session;
        op_result results[FTH_COUNT_OF(runs)], again;
        if (device == NULL)
            continue;
        op_session_open(&session, &network, device, FTH_PLAN_TRAIN, FTH_PRECISION_F32);
        for (size_t r = 0; r < FTH_COUNT_OF(runs); r++) {
            op_session_run(&session, &runs[r]);
            op_session_read(&session, &results[r]);
        }
        op_session_run(&session, &runs[0]); /* after others, and in a plan of its own below */
        op_session_read(&session, &again);
        assert_memory_equal(again.logits, results[0].logits, again.logit_count * sizeof(float));
        op_result_free(&again);
        op_session_close(&session);
        op_run_once(&network, device, FTH_PLAN_TRAIN, FTH_PRECISION_F32, &runs[0], &again);
        assert_memory_equal(again.logits, results[0].logits, again.logit_count * sizeof(float));
        assert_memory_not_equal(results[1].logits, results[0].logits, again.logit_count * sizeof(float));
        assert_memory_not_equal(results[2].logits, results[0].logits, again.logit_count * sizeof(float));
        op_result_free(&again);
        for (size_t r = 0; r < FTH_COUNT_OF(runs); r++)
            op_result_free(&results[r]);
    }
    op_network_free(&network);
}

static void test_evaluation_keeps_everything(void **state)
{
    (void)state;
    op_network network;
    make_network(&network, 0.5f, 3, DROP_SAMPLES);
    for (size_t d = 0; d < FTH_COUNT_OF(names); d++) {
        fth_device *device = op_device(names[d]);
        op_result result;
        if (device == NULL)
            continue;
        op_run_once(&network, device, FTH_PLAN_EVALUATE, FTH_PRECISION_F32,
                    &(fth_run){.seed = 1, .step = 1, .gradient_scale = 1}, &result);
        for (size_t i = 0; i < result.logit_count; i++)
            assert_true(result.logits[i] == 1);
        op_result_free(&result);
    }
    op_network_free(&network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mask_and_scale),
        cmocka_unit_test(test_parts_have_the_mask_of_the_whole),
        cmocka_unit_test(test_gradient_uses_the_same_mask),
        cmocka_unit_test(test_mask_depends_on_seed_and_step_alone),
        cmocka_unit_test(test_evaluation_keeps_everything),
    };
    return cmocka_run_group_tests_name("dropout on every back end", tests, NULL, op_close_devices);
}
