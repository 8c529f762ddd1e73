/* See report_internal.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/report_internal.h"

char *fth_report_option(const fth_record_summary *run, const char *name)
{
    const json_t *value = json_object_get(json_object_get(run->run, "configuration"), name);
    if (json_is_string(value))
        return fth_format("%s", json_string_value(value));
    if (json_is_integer(value))
        return fth_format("%lld", (long long)json_integer_value(value));
    if (json_is_real(value))
        return fth_format("%g", json_real_value(value));
    if (json_is_boolean(value))
        return fth_format("%s", json_is_true(value) ? "yes" : "no");
    return fth_format("-");
}

char *fth_report_state(const fth_record_summary *run)
{
    if (run->finished)
        return fth_format("finished");
    for (size_t i = json_array_size(run->events); i > 0; i--) {
        const json_t *event = json_array_get(run->events, i - 1);
        const char *name = json_string_value(json_object_get(event, "event"));
        if (name && strcmp(name, "resume") == 0)
            break; /* whatever failed before was taken up again */
        const char *message = json_string_value(json_object_get(event, "message"));
        if (name && strcmp(name, "error") == 0)
            return fth_format("failed: %s", message ? message : "no reason recorded");
    }
    return fth_format("unfinished, at step %lld", (long long)run->steps);
}

fth_status fth_report_curve(const fth_record_series *series, fth_axis axis, const char *label, fth_chart_line *line)
{
    fth_status status = FTH_OK;
    double *x = NULL, *y = NULL;
    FTH_TRY(fth_allocate(series->count, sizeof *x, &x));
    FTH_TRY(fth_allocate(series->count, sizeof *y, &y));
    for (size_t i = 0; i < series->count; i++) {
        const fth_record_point *point = &series->points[i];
        x[i] = axis == FTH_OVER_TIME ? point->elapsed_s : axis == FTH_OVER_EPOCHS ? point->epoch : (double)point->step;
        y[i] = point->loss;
    }
    *line = (fth_chart_line){.label = label, .x = x, .y = y, .count = series->count};
    x = y = NULL;
out:
    free(x);
    free(y);
    return status;
}

void fth_report_curve_release(fth_chart_line *line)
{
    free((void *)line->x);
    free((void *)line->y);
    *line = (fth_chart_line){0};
}

fth_axis fth_report_choose_axis(const fth_record_summary *runs, size_t run_count, fth_axis asked)
{
    bool differs = false;
    if (asked != FTH_OVER_DEFAULT)
        return asked;
    for (size_t i = 1; i < run_count && !differs; i++) {
        char *first = fth_report_option(&runs[0], "batch"), *other = fth_report_option(&runs[i], "batch");
        differs = strcmp(first, other) != 0;
        free(first);
        free(other);
    }
    return differs ? FTH_OVER_EPOCHS : FTH_OVER_STEPS;
}

const char *fth_report_axis_name(fth_axis axis)
{
    return axis == FTH_OVER_TIME ? "seconds" : axis == FTH_OVER_EPOCHS ? "epoch" : "step";
}

double fth_report_last_training_loss(const fth_record_summary *run)
{
    enum { MOST_POINTS = 20 };
    size_t last_points = run->training.count / 20 + 1; /* each is a mean over about a second already */
    double sum = 0;
    size_t count = 0;
    for (size_t i = run->training.count; i > 0 && count < last_points && count < MOST_POINTS; i--) {
        double loss = run->training.points[i - 1].loss;
        if (isfinite(loss)) {
            sum += loss;
            count++;
        }
    }
    return count > 0 ? sum / count : NAN;
}
