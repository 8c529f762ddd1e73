/* How long each node takes.
 *
 * Shares of nodes come from a file of layers ("features.0 0.011 0.022": seconds forward and backward), as `farthing bench
 * --times` writes it, or are those of their multiplications by weights. They are then stretched to the step's time and
 * the backward pass's part of it, where these are given. */
#include "emulated.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- settings ---- */

static bool read_number(const char *text, double least, double most, double *number)
{
    char *end;
    *number = strtod(text, &end);
    return end != text && *end == '\0' && *number >= least && *number <= most;
}

static fth_status read_setting(emulated_settings *settings, const char *name, const char *value)
{
    fth_status status = FTH_OK;
    double number = 0;
    if (strcmp(name, "step") == 0) {
        FTH_REQUIRE(read_number(value, 0, 3600, &settings->step_s), FTH_INVALID,
                    "FARTHING_EMULATE: step=%s is not a number of seconds", value);
    } else if (strcmp(name, "backward") == 0) {
        FTH_REQUIRE(read_number(value, 1e-3, 0.999, &settings->backward), FTH_INVALID,
                    "FARTHING_EMULATE: backward=%s is not a share between 0 and 1", value);
    } else if (strcmp(name, "batch") == 0) {
        FTH_REQUIRE(read_number(value, 1, 1e9, &number), FTH_INVALID,
                    "FARTHING_EMULATE: batch=%s is not a number of samples", value);
        settings->batch = (int64_t)number;
    } else if (strcmp(name, "times") == 0 || strcmp(name, "trace") == 0) {
        char *path = name[1] == 'i' ? settings->times : settings->trace;
        int length = snprintf(path, sizeof settings->times, "%s", value);
        FTH_REQUIRE(length < (int)sizeof settings->times, FTH_INVALID, "FARTHING_EMULATE: %s=%s is too long", name,
                    value);
    } else {
        status = fth_fail(FTH_INVALID,
                          "FARTHING_EMULATE: unknown setting \"%s\"; known: step, backward, batch, times, trace", name);
    }
out:
    return status;
}

fth_status emulated_settings_read(emulated_settings *settings)
{
    fth_status status = FTH_OK;
    const char *given = getenv("FARTHING_EMULATE");
    char *text = NULL, *rest = NULL;

    *settings = (emulated_settings){0};
    FTH_REQUIRE(given && *given, FTH_INVALID,
                "the emulated back end needs the times to wait: FARTHING_EMULATE=step=0.81,backward=0.667 in the "
                "environment, in seconds");
    text = fth_format("%s", given);
    FTH_REQUIRE(text, FTH_NO_MEMORY, "no memory for FARTHING_EMULATE");
    snprintf(settings->text, sizeof settings->text, "%s", given);
    for (char *part = strtok_r(text, ",", &rest); part; part = strtok_r(NULL, ",", &rest)) {
        char *equals = strchr(part, '=');
        FTH_REQUIRE(equals, FTH_INVALID, "FARTHING_EMULATE: \"%s\" is not name=value", part);
        *equals = '\0';
        FTH_TRY(read_setting(settings, part, equals + 1));
    }
    FTH_REQUIRE(settings->step_s > 0 || *settings->times, FTH_INVALID,
                "FARTHING_EMULATE has neither step=SECONDS nor times=FILE");
out:
    free(text);
    return status;
}

/* ---- shares ---- */

static bool is_backward(const fth_graph *graph, int node)
{
    return node >= fth_graph_forward_node_count(graph);
}

static bool is_matrix(const fth_graph *graph, fth_value parameter)
{
    return parameter != FTH_NO_VALUE && fth_graph_value(graph, parameter)->kind == FTH_VALUE_PARAMETER &&
           fth_graph_value(graph, parameter)->type.shape.rank >= 2;
}

/* Multiplications by weights for one sample: each number of y takes a row of the weights (x, weight
 * -> y), and each of the gradients (dy, weight -> dx; x, dy -> dweight) takes as many. */
static double count_multiplications(const fth_graph *graph, int index)
{
    const fth_node *node = fth_graph_node(graph, index);
    fth_value weight, y;
    fth_value written = fth_graph_value(graph, node->outputs[0])->gradient_of;
    if (is_matrix(graph, written)) {
        weight = written;
        y = node->inputs[1];
    } else if (node->input_count > 1 && is_matrix(graph, node->inputs[1])) {
        weight = node->inputs[1];
        y = is_backward(graph, index) ? node->inputs[0] : node->outputs[0];
    } else {
        return 0;
    }
    const fth_shape *weights = &fth_graph_value(graph, weight)->type.shape;
    fth_shape results = fth_shape_with_batch(&fth_graph_value(graph, y)->type.shape, 1);
    return (double)fth_shape_count(&results) * (double)fth_shape_count(weights) / (double)weights->dims[0];
}

static void share_by_multiplications(const fth_graph *graph, double *seconds)
{
    for (int n = 0; n < fth_graph_node_count(graph); n++)
        seconds[n] = count_multiplications(graph, n);
}

/* Divides a layer's time evenly among its nodes of one pass; false if there are none. */
static bool give_to_layer(const fth_graph *graph, const char *layer, bool backward, double layer_s, double *seconds)
{
    char name[256];
    int count = 0;
    for (int divide = 0; divide < 2; divide++) {
        for (int n = 0; n < fth_graph_node_count(graph); n++) {
            fth_graph_node_layer(graph, n, name, sizeof name);
            if (is_backward(graph, n) != backward || strcmp(name, layer) != 0)
                continue;
            if (divide)
                seconds[n] = layer_s / count;
            else
                count++;
        }
    }
    return count > 0;
}

static fth_status share_by_file(const char *path, const fth_graph *graph, double *seconds)
{
    enum { MOST_BYTES = 1 << 20 };
    fth_status status = FTH_OK;
    char *text = NULL, *rest = NULL, layer[256];
    size_t size_bytes;
    int line = 0;

    for (int n = 0; n < fth_graph_node_count(graph); n++)
        seconds[n] = NAN;
    FTH_TRY(fth_file_read_all(path, MOST_BYTES, &text, &size_bytes));
    for (char *at = strtok_r(text, "\n", &rest); at; at = strtok_r(NULL, "\n", &rest)) {
        double forward_s, backward_s;
        char more;
        line++;
        if (*at == '#')
            continue;
        FTH_REQUIRE(sscanf(at, "%255s %lf %lf %c", layer, &forward_s, &backward_s, &more) == 3 && forward_s >= 0 &&
                        backward_s >= 0 && forward_s < 3600 && backward_s < 3600,
                    FTH_INVALID, "%s, line %d: expected a layer and its seconds forward and backward", path, line);
        bool known = give_to_layer(graph, layer, false, forward_s, seconds);
        FTH_REQUIRE(known, FTH_INVALID, "%s, line %d: the network has no layer %s", path, line, layer);
        give_to_layer(graph, layer, true, backward_s, seconds);
    }
    for (int n = 0; n < fth_graph_node_count(graph); n++) {
        fth_graph_node_layer(graph, n, layer, sizeof layer);
        FTH_REQUIRE(!*layer || isfinite(seconds[n]), FTH_INVALID, "%s has no times of layer %s", path, layer);
        if (!*layer)
            seconds[n] = 0;
    }
out:
    free(text);
    return status;
}

/* ---- the schedule ---- */

fth_status emulated_schedule_make(const emulated_settings *settings, const fth_graph *graph, int64_t batch,
                                  double **node_seconds)
{
    fth_status status = FTH_OK;
    double *seconds = NULL, total[2] = {0}; /* forward, backward */
    int count = fth_graph_node_count(graph);

    FTH_TRY(fth_allocate((size_t)count + 1, sizeof *seconds, &seconds));
    if (*settings->times)
        FTH_TRY(share_by_file(settings->times, graph, seconds));
    else
        share_by_multiplications(graph, seconds);
    for (int n = 0; n < count; n++)
        total[is_backward(graph, n)] += seconds[n];
    FTH_REQUIRE(total[0] > 0, FTH_INVALID, "the network has no layers whose time could be emulated");

    double backward = settings->backward > 0 ? settings->backward
                      : *settings->times     ? total[1] / (total[0] + total[1])
                                             : 2.0 / 3;
    double step_s = settings->step_s > 0 ? settings->step_s : total[0] + total[1];
    double factors[2] = {(1 - backward) * step_s / total[0], total[1] > 0 ? backward * step_s / total[1] : 0};
    for (int n = 0; n < count; n++) {
        seconds[n] *= factors[is_backward(graph, n)];
        if (settings->batch > 0)
            seconds[n] *= (double)batch / (double)settings->batch;
    }
    *node_seconds = seconds;
    seconds = NULL;
out:
    free(seconds);
    return status;
}
