/* See report_internal.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/report_internal.h"
#include "train/options/optimizer.h"

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

char *fth_report_momentum(const fth_record_summary *run)
{
    char *name = fth_report_option(run, "optimizer");
    const fth_optimizer *optimizer = NULL;
    const bool takes = fth_optimizer_find(name, &optimizer) == FTH_OK && optimizer->takes_momentum;
    free(name);
    return takes ? fth_report_option(run, "momentum") : fth_format("-");
}

/* Its last event, if it was stopped on request or by a notice; else NULL. */
static const json_t *find_stop(const fth_record_summary *run)
{
    const json_t *last = json_array_get(run->events, json_array_size(run->events) - 1);
    const char *name = json_string_value(json_object_get(last, "event"));
    return name && strcmp(name, "interrupted") == 0 ? last : NULL;
}

char *fth_report_state(const fth_record_summary *run)
{
    if (run->finished)
        return fth_format("finished");
    for (size_t i = json_array_size(run->events); i > 0; i--) {
        const json_t *event = json_array_get(run->events, i - 1);
        const char *name = json_string_value(json_object_get(event, "event"));
        if (name && strcmp(name, "resume") == 0)
            break; /* the run continued after earlier failures */
        const char *message = json_string_value(json_object_get(event, "message"));
        if (name && strcmp(name, "error") == 0)
            return fth_format("failed: %s", message ? message : "no reason recorded");
    }
    const char *state = fth_record_is_locked(run->folder) ? "running" : find_stop(run) ? "stopped" : "unfinished";
    return fth_format("%s, at step %s", state, FTH_COUNTED(run->steps, NULL));
}

char *fth_report_ending(const json_t *run, const json_t *end)
{
    const char *reason = json_string_value(json_object_get(end, "reason"));
    if (!reason)
        return NULL;
    if (strcmp(reason, "server") == 0)
        return fth_format("the server has finished");
    if (strcmp(reason, "workers") == 0)
        return fth_format("its workers have finished");
    const json_t *value = json_object_get(json_object_get(run, "configuration"), reason);
    char text[64] = "";
    if (strcmp(reason, "for") == 0 && json_is_number(value))
        fth_duration_format(json_number_value(value), text, sizeof text);
    else if (json_is_integer(value))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
    else if (json_is_string(value))
        snprintf(text, sizeof text, "%s", json_string_value(value));
    bool spent = strcmp(reason, "budget") == 0;
    return fth_format("--%s%s%s %s", reason, *text ? " " : "", text, spent ? "spent" : "reached");
}

/* NULL: it did not stop, or the reason is unknown. */
char *fth_report_ended(const fth_record_summary *run)
{
    if (run->finished)
        return fth_report_ending(run->run, run->end);
    const char *reason = json_string_value(json_object_get(find_stop(run), "reason"));
    return reason && !fth_record_is_locked(run->folder) ? fth_format("stopped: %s", reason) : NULL;
}

bool fth_report_saw_better(const fth_record_summary *run)
{
    return run->kept.by && run->best_accuracy > run->kept.accuracy;
}

static int compare_steps(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

/* The usual number of steps that a point is a mean over: half of all steps are in points of this
 * many or more. 0 if unknown. */
static fth_status find_usual_steps(const fth_record_series *series, double *usual)
{
    fth_status status = FTH_OK;
    double *steps = NULL, total = 0, below = 0;
    *usual = 0;
    if (series->count == 0)
        return FTH_OK;
    FTH_TRY(fth_allocate(series->count, sizeof *steps, &steps));
    for (size_t i = 0; i < series->count; i++)
        total += steps[i] = (double)series->points[i].steps;
    qsort(steps, series->count, sizeof *steps, compare_steps);
    for (size_t i = 0; i < series->count && 2 * below < total; i++)
        below += *usual = steps[i];

out:
    free(steps);
    return status;
}

/* A point of a curve as it is drawn. */
typedef struct drawn {
    double x, y;
    double steps; /* that y is a mean over */
} drawn;

static bool may_join(const drawn *left, const drawn *right)
{
    return left->steps > 0 && right->steps > 0 && isfinite(left->y) && isfinite(right->y);
}

static void join(drawn *left, const drawn *right)
{
    left->steps += right->steps;
    left->y += right->steps / left->steps * (right->y - left->y);
    left->x = right->x;
}

static double value_of(const fth_record_point *point, fth_measure measure)
{
    return measure == FTH_LOSS ? point->loss : 100 * point->accuracy;
}

bool fth_report_has(const fth_record_series *series, fth_measure measure)
{
    for (size_t i = 0; i < series->count; i++)
        if (isfinite(value_of(&series->points[i], measure)))
            return true;
    return false;
}

/* A mean of one batch, as at the end of a run or after a resume, would stand out among means of a
 * hundred. So points are merged until they cover half the usual number of steps; a rest at the end
 * joins the point before. The first point stays, as it shows the initial loss. A loss that is not a
 * number stays a gap. */
static size_t gather(const fth_record_series *series, fth_measure measure, fth_chart_axis axis, double usual,
                     drawn *points)
{
    size_t count = 0;
    for (size_t i = 0; i < series->count; i++) {
        const fth_record_point *point = &series->points[i];
        drawn next = {.x = axis == FTH_OVER_TIME     ? point->elapsed_s
                           : axis == FTH_OVER_EPOCHS ? point->epoch
                                                     : (double)point->step,
                      .y = value_of(point, measure),
                      .steps = (double)point->steps};
        if (count > 1 && 2 * points[count - 1].steps < usual && may_join(&points[count - 1], &next))
            join(&points[count - 1], &next);
        else
            points[count++] = next;
    }
    if (count > 2 && 2 * points[count - 1].steps < usual && may_join(&points[count - 2], &points[count - 1])) {
        join(&points[count - 2], &points[count - 1]);
        count--;
    }
    return count;
}

fth_status fth_report_curve(const fth_record_series *series, fth_measure measure, fth_chart_axis axis,
                            const char *label, fth_chart_line *line)
{
    fth_status status = FTH_OK;
    double *x = NULL, *y = NULL;
    drawn *points = NULL;
    double usual = 0;
    FTH_TRY(fth_allocate(series->count, sizeof *x, &x));
    FTH_TRY(fth_allocate(series->count, sizeof *y, &y));
    FTH_TRY(fth_allocate(series->count, sizeof *points, &points));
    FTH_TRY(find_usual_steps(series, &usual));
    size_t count = gather(series, measure, axis, usual, points);
    for (size_t i = 0; i < count; i++) {
        x[i] = points[i].x;
        y[i] = points[i].y;
    }
    *line = (fth_chart_line){.label = label, .x = x, .y = y, .count = count};
    x = y = NULL;
out:
    free(x);
    free(y);
    free(points);
    return status;
}

void fth_report_curve_release(fth_chart_line *line)
{
    free((void *)line->x);
    free((void *)line->y);
    *line = (fth_chart_line){0};
}

fth_chart_axis fth_report_choose_axis(const fth_record_summary *runs, size_t run_count, fth_chart_axis asked)
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

const char *fth_report_axis_name(fth_chart_axis axis)
{
    return axis == FTH_OVER_TIME ? "seconds" : axis == FTH_OVER_EPOCHS ? "epoch" : "step";
}

double fth_report_last_training_loss(const fth_record_summary *run)
{
    enum { MOST_POINTS = 20 };
    size_t last_points = run->training.count / 20 + 1, count = 0; /* each is a mean over about a second already */
    double sum = 0, steps = 0;
    for (size_t i = run->training.count; i > 0 && count < last_points && count < MOST_POINTS; i--) {
        const fth_record_point *point = &run->training.points[i - 1];
        double weight = point->steps > 0 ? (double)point->steps : 1;
        if (isfinite(point->loss)) {
            sum += weight * point->loss;
            steps += weight;
            count++;
        }
    }
    return count > 0 ? sum / steps : NAN;
}
