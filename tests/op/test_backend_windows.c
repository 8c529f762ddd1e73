/* Which pixels the windows of pools, transposed convolutions and resizing meet: the results of
 * PyTorch 2.15 for one image of 5x7, on every back end in f32. */
#include "op_harness.h"

enum { HEIGHT = 5, WIDTH = 7, MOST_OUTPUTS = 240 };

typedef struct window_case {
    const char *name;
    fth_status (*add)(fth_graph *graph, const struct window_case *with, fth_value x, fth_value *y);
    fth_resize_attributes resize;
    fth_pool_attributes pool;
    int out[2];
    float wanted[MOST_OUTPUTS];
} window_case;

static fth_status add_resize(fth_graph *graph, const window_case *with, fth_value x, fth_value *y)
{
    return fth_op_add_resize(graph, with->resize, x, y);
}

static fth_status add_max_pool(fth_graph *graph, const window_case *with, fth_value x, fth_value *y)
{
    return fth_op_add_max_pool(graph, with->pool, x, y);
}

static fth_status add_average_pool(fth_graph *graph, const window_case *with, fth_value x, fth_value *y)
{
    return fth_op_add_average_pool(graph, with->pool, x, y);
}

static fth_status add_transposed(fth_graph *graph, const window_case *with, fth_value x, fth_value *y)
{
    (void)with;
    const fth_convolution_attributes attributes = {
        .stride = {2, 3}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 1};
    fth_value weight = fth_graph_find(graph, "weight");
    return fth_op_add_transposed_convolution(graph, attributes, (const int[]){1, 2}, x, weight, FTH_NO_VALUE, y);
}

static const window_case cases[] = {
    {"nearest, 8x3", .add = add_resize, .resize = {.height = 8, .width = 3}, .out = {8, 3},
     .wanted = {-1.25, -0.5, 0.75,  -1.25, -0.5,  0.75, -1.25, 1.25,  -1.25, -1.25, 1.25,  -1.25,
                0.75,  -0.5, -1.25, -0.75, -0.25, 0.75, -0.75, -0.25, 0.75,  -0.25, -0.75, -0.75}},
    {"nearest by 1.5", .add = add_resize, .resize = {.height = 7, .width = 10, .scale_factors = {1.5, 1.5}},
     .out = {7, 10},
     .wanted = {-1.25, -1.25, -0.25, -0.5,  -0.5,  0.75,  0.75,  0.75,  -0.5,  -0.25, -1.25, -1.25, -0.25, -0.5,
                -0.5,  0.75,  0.75,  0.75,  -0.5,  -0.25, -1.25, -1.25, -0.75, 1.25,  1.25,  -0.75, -1.25, -1.25,
                -0.25, -0.5,  0.75,  0.75,  0.75,  -0.5,  -0.5,  -0.25, -1.25, -1.25, -0.75, 1.25,  0.75,  0.75,
                0.75,  -0.5,  -0.5,  -0.25, -1.25, -1.25, -0.75, 1.25,  -0.75, -0.75, -1.25, -0.25, -0.25, -0.5,
                0.75,  0.75,  0.75,  -0.5,  -0.25, -0.25, -1.25, -0.75, -0.75, 1.25,  -0.75, -0.75, -1.25, -0.25}},
    {"nearest, doubled", .add = add_resize, .resize = {.height = 10, .width = 14, .scale_factors = {2, 2}},
     .out = {10, 14},
     .wanted = {-1.25, -1.25, -0.25, -0.25, -0.5,  -0.5,  0.75,  0.75,  0.75,  0.75,  -0.5,  -0.5,  -0.25, -0.25,
                -1.25, -1.25, -0.25, -0.25, -0.5,  -0.5,  0.75,  0.75,  0.75,  0.75,  -0.5,  -0.5,  -0.25, -0.25,
                -1.25, -1.25, -0.75, -0.75, 1.25,  1.25,  -0.75, -0.75, -1.25, -1.25, -0.25, -0.25, -0.5,  -0.5,
                -1.25, -1.25, -0.75, -0.75, 1.25,  1.25,  -0.75, -0.75, -1.25, -1.25, -0.25, -0.25, -0.5,  -0.5,
                0.75,  0.75,  0.75,  0.75,  -0.5,  -0.5,  -0.25, -0.25, -1.25, -1.25, -0.75, -0.75, 1.25,  1.25,
                0.75,  0.75,  0.75,  0.75,  -0.5,  -0.5,  -0.25, -0.25, -1.25, -1.25, -0.75, -0.75, 1.25,  1.25,
                -0.75, -0.75, -1.25, -1.25, -0.25, -0.25, -0.5,  -0.5,  0.75,  0.75,  0.75,  0.75,  -0.5,  -0.5,
                -0.75, -0.75, -1.25, -1.25, -0.25, -0.25, -0.5,  -0.5,  0.75,  0.75,  0.75,  0.75,  -0.5,  -0.5,
                -0.25, -0.25, -1.25, -1.25, -0.75, -0.75, 1.25,  1.25,  -0.75, -0.75, -1.25, -1.25, -0.25, -0.25,
                -0.25, -0.25, -1.25, -1.25, -0.75, -0.75, 1.25,  1.25,  -0.75, -0.75, -1.25, -1.25, -0.25, -0.25}},
    {"bilinear, 8x3", .add = add_resize, .resize = {.height = 8, .width = 3, .bilinear = true}, .out = {8, 3},
     .wanted = {-0.5833334, 0.75,      -0.4166667, -0.7291667, 0.09375,    -0.3802083, -0.8125,   -0.71875,
                -0.3177083, 0.2291667, -0.40625,   -0.1614587, 0.1770834,  -0.328125,  0.0468747, -0.9687499,
                -0.484375,  0.307292,  -0.9895833, 0.484375,   -0.3697917, -0.9166666, 1.25,      -0.916667}},
    {"bilinear by 1.3", .add = add_resize,
     .resize = {.height = 6, .width = 9, .bilinear = true, .scale_factors = {1.3, 1.3}}, .out = {6, 9},
     .wanted = {-1.25,      -0.5961539, -0.3557692,  -0.2596154,  0.7019232,  0.75,       0.125,      -0.4326923,
                -0.25,      -1.25,      -0.8099113,  -0.06028102, 0.4759615,  -0.1971155, -0.4696746, -0.4471154,
                -0.3572485, -0.4134615, -0.403846,   -0.2152366,  0.1490385,  0.308062,   -0.4981509, -1.058432,
                -0.8557692, -0.2725591, 0.2403847,   0.4615384,   0.3986687,  0.01960051, -0.4223372, -0.3039941,
                -0.7126479, -0.6634614, -0.09134605, 0.9134614,   -0.6923078, -1.006657,  -0.7866125, -0.3039941,
                -0.4815089, 0.3598376,  0.6826925,   0.389423,    -0.4326925, -0.3846153, -0.9504437, -0.9815089,
                -0.3472633, 0.7252223,  -0.04326952, -0.5288464,  -0.6053996, -0.3173076}},
    {"bilinear, corners aligned", .add = add_resize,
     .resize = {.height = 4, .width = 9, .bilinear = true, .align_corners = true}, .out = {4, 9},
     .wanted = {-1.25,      -0.5,       -0.375,     -0.1875,    0.75,       0.75,       0.125,      -0.4375,
                -0.25,      -0.5833333, -0.3333333, 0.2083333,  0.3541666,  -0.5833333, -1.083333,  -0.8333333,
                -0.2916667, 0.0833334,  -0.2500001, -0.5000001, -0.4583334, -0.3541667, -0.4166667, -0.04166655,
                0.1666668,  0.2083334,  0.08333319, -0.25,      -1,         -1,         -0.25,      1.25,
                -0.25,      -1,         -1,         -0.25}},
    {"max pool 2, stride 2", .add = add_max_pool, .pool = {.kernel = {2, 2}, .stride = {2, 2}, .ceil = true},
     .out = {3, 4}, .wanted = {-0.25, 1.25, 0.75, -0.25, 0.75, -0.25, 0.75, 1.25, -0.25, 1.25, -0.75, -0.25}},
    {"max pool 3, stride 2, padding 1", .add = add_max_pool,
     .pool = {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .ceil = true}, .out = {3, 4},
     .wanted = {-0.25, 1.25, 0.75, -0.25, 0.75, 1.25, 0.75, 1.25, -0.25, 1.25, 1.25, 0.75}},
    {"max pool 2, stride 3", .add = add_max_pool, .pool = {.kernel = {2, 2}, .stride = {3, 3}, .ceil = true},
     .out = {2, 3}, .wanted = {-0.25, 0.75, -0.25, -0.25, 1.25, -0.25}},
    {"average pool 2, padding counted", .add = add_average_pool,
     .pool = {.kernel = {2, 2}, .stride = {2, 2}, .count_padding = true, .ceil = true}, .out = {3, 4},
     .wanted = {-0.875, 0.1875, -0.3125, -0.375, -0.125, -0.375, -0.125, 0.375, -0.75, 0.25, -1, -0.25}},
    {"average pool 4, stride 3, padding 1, counted", .add = add_average_pool,
     .pool = {.kernel = {4, 4}, .stride = {3, 3}, .padding = {1, 1}, .count_padding = true, .ceil = true},
     .out = {2, 3}, .wanted = {-0.109375, -0.203125, -0.08333334, -0.21875, -0.21875, -0.0625}},
    {"average pool 4, stride 3, padding 1, not counted", .add = add_average_pool,
     .pool = {.kernel = {4, 4}, .stride = {3, 3}, .padding = {1, 1}, .ceil = true}, .out = {2, 3},
     .wanted = {-0.1944444, -0.2708333, -0.1666667, -0.3888889, -0.2916667, -0.125}},
    {"transposed convolution", .add = add_transposed, .out = {10, 23},
     .wanted = {0,      0,      1.25,   0,      0,      0.25,   0,      0,      0.5,    0,      0,      -0.75,  0,
                0,      -0.75,  0,      0,      0.5,    0,      0,      0.25,   0,      0,      0,      0,      -1.875,
                0.75,   0,      -0.875, -2.625, 0,      1,      2.25,   0,      -0.375, 3,      0,      -0.875, -0.375,
                0,      -0.5,   0.375,  0,      -0.625, 0,      0,      0,      0,      1.25,   0,      0,      0.75,
                0,      0,      -1.25,  0,      0,      0.75,   0,      0,      1.25,   0,      0,      0.25,   0,
                0,      0.5,    0,      0,      -3,     0,      0.125,  -2.25,  0,      0.375,  2.625,  0,      0.125,
                -0.75,  0,      -0.625, 0,      0,      -1.875, 0.75,   0,      -0.875, -2.625, 0,      1,      0,
                0,      0,      0,      -0.75,  0,      0,      -0.75,  0,      0,      0.5,    0,      0,      0.25,
                0,      0,      1.25,   0,      0,      0.75,   0,      0,      -1.25,  0,      0,      2.25,   0,
                -0.375, 3,      0,      -0.875, -0.375, 0,      -0.5,   0.375,  0,      -0.625, -3,     0,      0.125,
                -2.25,  0,      0.375,  2.625,  0,      0.125,  0,      0,      0,      0,      0.75,   0,      0,
                1.25,   0,      0,      0.25,   0,      0,      0.5,    0,      0,      -0.75,  0,      0,      -0.75,
                0,      0,      0.5,    0,      0,      -0.75,  0,      -0.625, 0,      0,      -1.875, 0.75,   0,
                -0.875, -2.625, 0,      1,      2.25,   0,      -0.375, 3,      0,      -0.875, -0.375, 0,      -0.5,
                0,      0,      0,      0,      0.25,   0,      0,      1.25,   0,      0,      0.75,   0,      0,
                -1.25,  0,      0,      0.75,   0,      0,      1.25,   0,      0,      0.25,   0,      0,      -0.375,
                0,      -0.125, -1.875, 0,      -0.625, -1.125, 0,      -0.375, 1.875,  0,      0.625,  -1.125, 0,
                -0.375, -1.875, 0,      -0.625, -0.375, 0,      -0.125, 0,      0}},
};

static void test_windows(void **state)
{
    static const char *const names[] = {"reference", OP_DEVICES};
    const window_case *with = *state;
    const fth_run run = {.gradient_scale = 1};
    op_network network;
    fth_graph *graph = NULL;
    fth_value images, labels, weight, one, y, loss;
    const fth_convolution_attributes same = {.stride = {1, 1}, .dilation = {1, 1}, .groups = 1};

    op_check(fth_graph_create(&graph));
    op_check(fth_graph_add_input(graph, "images", FTH_F32, FTH_SHAPE(FTH_BATCH, 1, HEIGHT, WIDTH), &images));
    op_check(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    op_check(fth_graph_add_parameter(graph, "weight", FTH_SHAPE(1, 1, 3, 2), (fth_initializer){FTH_INIT_CONSTANT, 0},
                                     &weight));
    /* Something to train, which changes nothing. */
    op_check(
        fth_graph_add_parameter(graph, "one", FTH_SHAPE(1, 1, 1, 1), (fth_initializer){FTH_INIT_CONSTANT, 1}, &one));
    op_check(fth_op_add_convolution(graph, same, images, one, FTH_NO_VALUE, &images));
    op_check(with->add(graph, with, images, &y));
    op_check(fth_op_add_flatten(graph, y, &y));
    op_check(fth_op_add_softmax_cross_entropy(graph, 0, y, labels, &loss));
    fth_graph_set_outputs(graph, y, loss);
    op_check(fth_graph_differentiate(graph));
    op_network_create(&network, graph, 1, 1);
    for (int i = 0; i < HEIGHT * WIDTH; i++)
        network.images[i] = (float)((i * i * 3 + i) % 11 - 5) / 4;
    for (int i = 0; i < 6; i++)
        network.parameters[fth_graph_value(graph, weight)->offset + (size_t)i] = (float)(i * 5 % 7 - 3) / 2;
    for (size_t d = 0; d < FTH_COUNT_OF(names); d++) {
        fth_device *device = op_device(names[d]);
        op_result found;
        if (!device)
            continue;
        op_run_once(&network, device, FTH_PLAN_EVALUATE, FTH_PRECISION_F32, &run, &found);
        assert_int_equal(found.logit_count, with->out[0] * with->out[1]);
        for (size_t i = 0; i < found.logit_count; i++)
            if (!(found.logits[i] - with->wanted[i] < 1e-5F && with->wanted[i] - found.logits[i] < 1e-5F))
                fail_msg("%s on %s: output %d is %g, not %g", with->name, names[d], (int)i, (double)found.logits[i],
                         (double)with->wanted[i]);
        op_result_free(&found);
    }
    op_network_free(&network);
}

int main(void)
{
    static struct CMUnitTest tests[FTH_COUNT_OF(cases)];
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++)
        tests[i] =
            (struct CMUnitTest){.name = cases[i].name, .test_func = test_windows, .initial_state = (void *)&cases[i]};
    return _cmocka_run_group_tests("windows as in PyTorch", tests, FTH_COUNT_OF(tests), NULL, op_close_devices);
}
