/* The ops of sequences against numbers that PyTorch 2.15 computed in double precision: the order of
 * gates, of states and of heads, what "causal" means, where epsilon is added. */
#include <math.h>

#include "op_harness.h"

enum { BATCH = 2, STEPS = 3, NUMBERS = 24 };

typedef struct sequence_case {
    const char *name;
    fth_status (*build)(fth_graph *graph, const struct sequence_case *with, fth_value x, fth_value *y);
    int option;
    int inputs; /* of x: (BATCH STEPS, inputs) */
    int count;  /* of `expected` */
    float expected[NUMBERS];
} sequence_case;

/* Parameters are numbered in the order in which they are added. */
static fth_status add_parameter(fth_graph *graph, fth_shape shape, fth_value *value)
{
    char name[32];
    snprintf(name, sizeof name, "parameter%d", fth_graph_value_count(graph));
    return fth_graph_add_parameter(graph, name, shape, (fth_initializer){FTH_INIT_CONSTANT, 0}, value);
}

/* ---- the ops ---- */

enum { OUTPUT, LAST_H, LAST_C };

/* Two layers in both directions. */
static fth_status build_recurrent(fth_graph *graph, fth_recurrent_kind kind, int which, fth_value x, fth_value *y)
{
    enum { HIDDEN = 2, DIRECTIONS = 2, LAYERS = 2 };
    fth_status status = FTH_OK;
    const int gates = fth_recurrent_gates(kind) * HIDDEN;
    fth_value parameters[16], results[3];
    for (int i = 0; i < 16; i += 4) {
        FTH_TRY(add_parameter(graph, FTH_SHAPE(gates, i < 8 ? 2 : DIRECTIONS * HIDDEN), &parameters[i]));
        FTH_TRY(add_parameter(graph, FTH_SHAPE(gates, HIDDEN), &parameters[i + 1]));
        FTH_TRY(add_parameter(graph, FTH_SHAPE(gates), &parameters[i + 2]));
        FTH_TRY(add_parameter(graph, FTH_SHAPE(gates), &parameters[i + 3]));
    }
    FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(FTH_BATCH, STEPS, 2), x, &x));
    FTH_TRY(fth_op_add_recurrent(
        graph, (fth_recurrent_options){.kind = kind, .layers = LAYERS, .bidirectional = true, .bias = true}, x,
        parameters, 16, FTH_NO_VALUE, FTH_NO_VALUE, &results[OUTPUT], &results[LAST_H], &results[LAST_C]));
    *y = results[which];
    if (which == OUTPUT)
        FTH_TRY(fth_op_add_reshape(graph, FTH_SHAPE(fth_batch_times(STEPS), DIRECTIONS * HIDDEN), *y, y));
out:
    return status;
}

static fth_status build_lstm(fth_graph *graph, const sequence_case *with, fth_value x, fth_value *y)
{
    return build_recurrent(graph, FTH_LSTM, with->option, x, y);
}

static fth_status build_gru(fth_graph *graph, const sequence_case *with, fth_value x, fth_value *y)
{
    return build_recurrent(graph, FTH_GRU, with->option, x, y);
}

/* Queries, keys and values are the same; option: causal, else with a mask. */
static fth_status build_attention(fth_graph *graph, const sequence_case *with, fth_value x, fth_value *y)
{
    fth_status status = FTH_OK;
    const fth_dot_product_attention_attributes attributes = {
        .heads = 2, .queries = STEPS, .keys = STEPS, .causal = with->option, .scale = 0.7f};
    fth_value mask = FTH_NO_VALUE;
    if (!with->option)
        FTH_TRY(add_parameter(graph, FTH_SHAPE(1, 2, STEPS, STEPS), &mask));
    FTH_TRY(fth_op_add_dot_product_attention(graph, attributes, x, x, x, mask, y));
out:
    return status;
}

static fth_status build_softmax(fth_graph *graph, const sequence_case *with, fth_value x, fth_value *y)
{
    return fth_op_add_softmax(graph, with->option, x, y);
}

static fth_status build_normalize(fth_graph *graph, const sequence_case *with, fth_value x, fth_value *y)
{
    return fth_op_add_normalize(graph, 1e-3f, with->option, x, y);
}

/* ---- the cases ---- */

static const sequence_case cases[] = {
    {"lstm", build_lstm, OUTPUT, 2, 24, {-0.243065f, -0.015622f, 0.155657f,  0.160162f,  -0.300586f, -0.075845f,
                                         0.155113f,  0.132221f,  -0.308254f, -0.117406f, 0.115801f,  0.087192f,
                                         -0.237471f, -0.042811f, 0.171473f,  0.164368f,  -0.262202f, -0.101460f,
                                         0.146191f,  0.151984f,  -0.269208f, -0.130820f, 0.104158f,  0.103095f}},
    {"lstm, last h",
     build_lstm,
     LAST_H,
     2,
     16,
     {0.072448f, 0.224679f, -0.077657f, -0.303068f, -0.308254f, -0.117406f, 0.155657f, 0.160162f, 0.113752f, 0.083895f,
      -0.112391f, -0.413070f, -0.269208f, -0.130820f, 0.171473f, 0.164368f}},
    {"lstm, last c",
     build_lstm,
     LAST_C,
     2,
     16,
     {0.164329f, 0.535093f, -0.302175f, -0.426566f, -0.484246f, -0.187850f, 0.253030f, 0.333886f, 0.169845f, 0.151851f,
      -0.227159f, -0.715598f, -0.423444f, -0.203412f, 0.282291f, 0.330525f}},
    {"gru", build_gru, OUTPUT, 2, 24, {-0.195311f, 0.503068f,  -0.114859f, -0.598060f, -0.381578f, 0.639115f,
                                       -0.108874f, -0.467988f, -0.368943f, 0.649448f,  -0.082156f, -0.302745f,
                                       -0.173106f, 0.480878f,  -0.071392f, -0.635662f, -0.320603f, 0.683858f,
                                       -0.034641f, -0.564099f, -0.444951f, 0.734642f,  -0.024807f, -0.365483f}},
    {"gru, last h",
     build_gru,
     LAST_H,
     2,
     16,
     {-0.213237f, -0.104790f, 0.566286f, -0.003692f, -0.368943f, 0.649448f, -0.114859f, -0.598060f, -0.292559f,
      -0.539730f, 0.553747f, -0.059493f, -0.444951f, 0.734642f, -0.071392f, -0.635662f}},
    {"attention, causal", build_attention, true, 4, 24, {1.000000f,  0.764842f,  0.169967f,  -0.504846f, -0.780125f,
                                                         -0.794466f, -0.212011f, -0.104858f, 0.795340f,  0.795115f,
                                                         0.278944f,  -0.043173f, -0.519289f, -0.947722f, -0.930426f,
                                                         -0.475537f, 0.016690f,  0.338841f,  0.766037f,  0.595409f,
                                                         -0.113515f, -0.401808f, -0.845174f, -0.659154f}},
    {"attention, mask", build_attention, false, 4, 24, {0.798430f,  0.752959f,  0.218256f,  -0.109735f, -0.605010f,
                                                        -0.596385f, 0.007622f,  -0.002831f, 0.780258f,  0.766908f,
                                                        0.287753f,  -0.083615f, -0.245274f, -0.582436f, -0.816963f,
                                                        -0.624038f, 0.046332f,  0.030333f,  0.684286f,  0.510885f,
                                                        -0.111172f, -0.347426f, -0.861776f, -0.648068f}},
    {"softmax", build_softmax, false, 4, 24, {0.408408f, 0.322824f, 0.178080f, 0.090688f, 0.149949f, 0.150816f,
                                              0.235629f, 0.463605f, 0.265479f, 0.332231f, 0.259790f, 0.142500f,
                                              0.297695f, 0.193957f, 0.197340f, 0.311008f, 0.148706f, 0.266409f,
                                              0.329771f, 0.255114f, 0.455785f, 0.233154f, 0.153290f, 0.157772f}},
    {"log softmax", build_softmax, true, 4, 24, {-0.895489f, -1.130647f, -1.725522f, -2.400335f, -1.897457f,
                                                 -1.891692f, -1.445496f, -0.768723f, -1.326219f, -1.101926f,
                                                 -1.347882f, -1.948411f, -1.211687f, -1.640120f, -1.622825f,
                                                 -1.167936f, -1.905787f, -1.322722f, -1.109357f, -1.366043f,
                                                 -0.785735f, -1.456057f, -1.875425f, -1.846605f}},
    {"layer norm", build_normalize, false, 4, 24, {1.101270f,  0.698206f,  -0.321418f, -1.478057f, -0.858800f,
                                                   -0.846316f, 0.119842f,  1.585274f,  0.332571f,  1.043724f,
                                                   0.263884f,  -1.640180f, 0.889372f,  -1.025819f, -0.948505f,
                                                   1.084952f,  -1.625029f, 0.349708f,  1.072334f,  0.202987f,
                                                   1.600237f,  0.079190f,  -0.872412f, -0.807015f}},
    {"rms norm", build_normalize, true, 4, 24, {1.461474f,  1.117797f,  0.248403f,  -0.737819f, -1.318123f,
                                                -1.310057f, -0.685851f, 0.260922f,  1.046460f,  1.349095f,
                                                1.017230f,  0.206945f,  -0.690292f, -1.259809f, -1.236818f,
                                                -0.632133f, 0.272886f,  1.056661f,  1.343472f,  0.998427f,
                                                0.190099f,  -0.741814f, -1.324840f, -1.284773f}},
};

/* The op's output is multiplied by a parameter of ones, so that there is something to train. */
static fth_status build_graph(const sequence_case *with, fth_graph **graph)
{
    fth_status status = FTH_OK;
    fth_value x, y, targets, loss, unused;
    FTH_TRY(fth_graph_create(graph));
    FTH_TRY(fth_graph_add_input(*graph, "images", FTH_F32, FTH_SHAPE(fth_batch_times(STEPS), with->inputs), &x));
    FTH_TRY(with->build(*graph, with, x, &y));
    const fth_shape shape = fth_graph_value(*graph, y)->type.shape;
    FTH_TRY(fth_graph_add_parameter(*graph, "identity", FTH_SHAPE(shape.dims[1], shape.dims[1]),
                                    (fth_initializer){FTH_INIT_CONSTANT, 0}, &unused));
    FTH_TRY(fth_op_add_linear(*graph, false, y, unused, FTH_NO_VALUE, &y));
    FTH_TRY(fth_graph_add_input(*graph, "targets", FTH_F32, shape, &targets));
    FTH_TRY(fth_op_add_squared_error(*graph, y, targets, &loss));
    fth_graph_set_outputs(*graph, y, loss);
    FTH_TRY(fth_graph_differentiate(*graph));
out:
    return status;
}

/* Numbers as the fixture's script made them: 0.5 sin(1 + i) for parameters, cos(0.7 i) for x. */
static void fill(const sequence_case *with, op_network *network)
{
    const fth_graph *graph = network->graph;
    int64_t number = 0;
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        const fth_value_info *info = fth_graph_value(graph, v);
        if (info->kind != FTH_VALUE_PARAMETER)
            continue;
        float *values = network->parameters + info->offset;
        const bool identity = strcmp(info->name, "identity") == 0;
        for (int64_t i = 0; i < fth_shape_count(&info->type.shape); i++)
            values[i] =
                identity ? (i % (info->type.shape.dims[1] + 1) == 0 ? 1 : 0) : 0.5f * sinf((float)(1 + number++));
    }
    for (int i = 0; i < BATCH * STEPS * with->inputs; i++)
        network->images[i] = cosf(0.7f * (float)i);
    op_network_input(network, "targets");
}

static void test_numbers(void **state)
{
    static const char *const names[] = {"reference", OP_DEVICES};
    const sequence_case *with = *state;
    op_network network;
    fth_graph *graph = NULL;
    op_check(build_graph(with, &graph));
    op_network_create(&network, graph, BATCH, 1);
    fill(with, &network);
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        fth_device *device = op_device(names[i]);
        op_result result;
        if (device == NULL)
            continue;
        op_run_once(&network, device, FTH_PLAN_EVALUATE, FTH_PRECISION_F32,
                    &(fth_run){.seed = 1, .step = 1, .gradient_scale = 1}, &result);
        assert_int_equal(result.logit_count, with->count);
        for (int k = 0; k < with->count; k++)
            if (!(fabsf(result.logits[k] - with->expected[k]) < 5e-6f)) /* six digits, and f32's rounding */
                fail_msg("%s on %s: number %d is %.7f, not %.6f", with->name, names[i], k, (double)result.logits[k],
                         (double)with->expected[k]);
        op_result_free(&result);
    }
    op_network_free(&network);
}

int main(void)
{
    struct CMUnitTest tests[FTH_COUNT_OF(cases)];
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++)
        tests[i] =
            (struct CMUnitTest){.name = cases[i].name, .test_func = test_numbers, .initial_state = (void *)&cases[i]};
    return _cmocka_run_group_tests("sequences, against PyTorch's numbers", tests, FTH_COUNT_OF(tests), NULL,
                                   op_close_devices);
}
