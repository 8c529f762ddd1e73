/* See scaling.h. A run's initial workers are in its "start" event, changes in its "group" events,
 * and each rank's times in its "ranks" events, one per epoch. */
#include "report/scaling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "report/report_internal.h"

enum { SMALL = 96, SCALING_COLUMNS = 15, CHART_ROWS = 12 };

static bool is_event(const json_t *event, const char *name)
{
    const char *found = json_string_value(json_object_get(event, "event"));
    return found && strcmp(found, name) == 0;
}

static bool has_strategy(const fth_record_summary *run, const char *name)
{
    char *strategy = fth_report_option(run, "strategy");
    bool same = strcmp(strategy, name) == 0;
    free(strategy);
    return same;
}

bool fth_report_scales(const fth_record_summary *runs, size_t run_count)
{
    bool some = false;
    for (size_t i = 0; i < run_count; i++) {
        bool parallel = has_strategy(&runs[i], "data-parallel");
        if (!parallel && !has_strategy(&runs[i], "single"))
            return false;
        some = some || parallel;
    }
    return some;
}

/* ---- the runs ---- */

static int count_of(const json_t *event, const char *key)
{
    json_int_t count = json_integer_value(json_object_get(event, key));
    return count >= 1 && count <= 1000000 ? (int)count : 1;
}

static bool workers_changed(const fth_record_summary *run, int workers)
{
    size_t i;
    json_t *event;
    json_array_foreach(run->events, i, event)
    {
        if ((is_event(event, "group") || is_event(event, "resume")) && json_object_get(event, "workers") &&
            count_of(event, "workers") != workers)
            return true;
    }
    return false;
}

static void fill_row(const fth_record_summary *run, fth_scaling_row *row)
{
    const json_t *start = run->machine_count > 0 ? run->machines[0].event : NULL;
    const json_t *accumulate = json_object_get(json_object_get(run->run, "configuration"), "accumulate");
    const fth_record_series *training = &run->training;
    *row = (fth_scaling_row){.run = run,
                             .nodes = count_of(start, "nodes"),
                             .workers = count_of(start, "workers"),
                             .learning_rate = NAN,
                             .batch = json_integer_value(json_object_get(run->run, "batch")),
                             .epochs = training->count > 0 ? training->points[training->count - 1].epoch : NAN,
                             .epoch_s = NAN,
                             .efficiency = NAN};
    row->changed = workers_changed(run, row->workers);
    for (size_t i = 0; i < training->count; i++)
        row->learning_rate = fmax(row->learning_rate, training->points[i].learning_rate); /* NAN is passed over */
    json_int_t batches = json_integer_value(json_object_get(start, "batches_per_epoch"));
    json_int_t group = json_is_integer(accumulate) ? json_integer_value(accumulate) : 1;
    if (batches > 0 && group > 0)
        row->steps_per_epoch = (batches + group - 1) / group;
    if (training->count > 0)
        row->trained_s = training->points[training->count - 1].elapsed_s;
    if (row->epochs > 0)
        row->epoch_s = row->trained_s / row->epochs;
}

static int compare_rows(const void *a, const void *b)
{
    const fth_scaling_row *left = a, *right = b;
    return left->workers != right->workers ? (left->workers < right->workers ? -1 : 1)
                                           : (left->run < right->run ? -1 : left->run > right->run);
}

static bool same_option(const fth_record_summary *a, const fth_record_summary *b, const char *name)
{
    char *left = fth_report_option(a, name), *right = fth_report_option(b, name);
    bool same = strcmp(left, right) == 0;
    free(left);
    free(right);
    return same;
}

static bool same_experiment(const fth_record_summary *a, const fth_record_summary *b)
{
    return same_option(a, b, "model") && same_option(a, b, "data") && same_option(a, b, "image-size") &&
           same_option(a, b, "precision");
}

void fth_scaling_make(const fth_record_summary *runs, size_t run_count, fth_scaling_row *rows)
{
    for (size_t i = 0; i < run_count; i++)
        fill_row(&runs[i], &rows[i]);
    qsort(rows, run_count, sizeof *rows, compare_rows);
    for (size_t i = 0; i < run_count; i++) {
        const fth_scaling_row *base = NULL;
        for (size_t j = 0; j < run_count && !base; j++)
            if (!rows[j].changed && isfinite(rows[j].epoch_s) && same_experiment(rows[j].run, rows[i].run))
                base = &rows[j];
        if (run_count > 1 && base && !rows[i].changed && rows[i].epoch_s > 0)
            rows[i].efficiency = base->epoch_s * base->workers / (rows[i].epoch_s * rows[i].workers);
    }
}

void fth_scaling_label(const fth_scaling_row *row, char *text, size_t size)
{
    if (row->nodes > 1 && row->nodes == row->workers)
        snprintf(text, size, "%d nodes", row->nodes);
    else if (row->nodes > 1)
        snprintf(text, size, "%d workers on %d nodes", row->workers, row->nodes);
    else
        snprintf(text, size, "%d worker%s", row->workers, row->workers == 1 ? "" : "s");
}

/* ---- the table ---- */

static fth_status add_row(fth_table *table, const fth_scaling_row *row)
{
    char texts[SCALING_COLUMNS][SMALL];
    const char *cells[SCALING_COLUMNS] = {row->run->id};
    for (int i = 1; i < SCALING_COLUMNS; i++) {
        snprintf(texts[i], SMALL, "-");
        cells[i] = texts[i];
    }
    snprintf(texts[1], SMALL, "%d", row->nodes);
    snprintf(texts[2], SMALL, "%d%s", row->workers, row->changed ? ", later others" : "");
    if (isfinite(row->learning_rate))
        snprintf(texts[3], SMALL, "%.4g", row->learning_rate);
    if (row->batch > 0)
        fth_text_count(row->batch, texts[4], SMALL);
    if (row->steps_per_epoch > 0)
        fth_text_count(row->steps_per_epoch, texts[5], SMALL);
    if (isfinite(row->epoch_s))
        fth_duration_format(row->epoch_s, texts[6], SMALL);
    if (isfinite(row->epochs))
        snprintf(texts[7], SMALL, "%.4g", row->epochs);
    fth_duration_format(row->trained_s, texts[8], SMALL);
    if (isfinite(row->efficiency))
        snprintf(texts[9], SMALL, "%.2f", row->efficiency);
    fth_text_loss(row->run->best_loss, texts[10], SMALL);
    fth_text_loss(row->run->last_loss, texts[11], SMALL);
    fth_text_percent(row->run->last_accuracy, texts[12], SMALL);
    fth_text_loss(row->run->test_loss, texts[13], SMALL);
    fth_text_percent(row->run->test_accuracy, texts[14], SMALL);
    return fth_table_add_row(table, cells);
}

static fth_status print_table(FILE *output, const fth_scaling_row *rows, size_t count)
{
    static const char *const headings[SCALING_COLUMNS] = {"run",
                                                          ">nodes",
                                                          ">workers",
                                                          ">lr",
                                                          ">batch",
                                                          ">steps/epoch",
                                                          ">epoch time",
                                                          ">epochs",
                                                          ">in",
                                                          ">efficiency",
                                                          ">best val. loss",
                                                          ">val. loss",
                                                          ">val. accuracy",
                                                          ">test loss",
                                                          ">test accuracy"};
    fth_status status = FTH_OK;
    fth_table *table = NULL;
    bool tested = false;
    for (size_t i = 0; i < count; i++)
        tested = tested || isfinite(rows[i].run->test_loss);
    FTH_TRY(fth_table_create(headings, tested ? SCALING_COLUMNS : SCALING_COLUMNS - 2, &table));
    for (size_t i = 0; i < count; i++)
        FTH_TRY(add_row(table, &rows[i]));
    fth_table_print(output, table);
    fprintf(output,
            "efficiency: images/s of a worker, against one of the smallest run; val. loss and accuracy: validation of "
            "the last weights%s\n",
            tested ? "; test: of the best model, measured once" : "");

out:
    fth_table_free(table);
    return status;
}

/* ---- charts ---- */

/* By workers: the efficiency, or the time of an epoch. */
static fth_status print_by_workers(FILE *output, const fth_scaling_row *rows, size_t count, bool efficiency,
                                   int columns)
{
    fth_status status = FTH_OK;
    double *x = NULL, *y = NULL;
    size_t known = 0;
    FTH_TRY(fth_allocate(count, sizeof *x, &x));
    FTH_TRY(fth_allocate(count, sizeof *y, &y));
    for (size_t i = 0; i < count; i++) {
        double value = efficiency ? rows[i].efficiency : rows[i].epoch_s;
        if (isfinite(value)) {
            x[known] = rows[i].workers;
            y[known++] = value;
        }
    }
    const fth_chart chart = {.x_label = "workers",
                             .y_label = efficiency ? "scaling efficiency" : "seconds per epoch",
                             .linear = true,
                             .columns = columns,
                             .rows = CHART_ROWS};
    if (known > 1) {
        fputc('\n', output);
        FTH_TRY(fth_chart_print(output, &chart, &(fth_chart_line){.label = "", .x = x, .y = y, .count = known}, 1));
    }

out:
    free(x);
    free(y);
    return status;
}

static fth_status print_losses(FILE *output, const fth_scaling_row *rows, size_t count, int columns)
{
    fth_status status = FTH_OK;
    fth_chart_line *lines = NULL;
    char(*labels)[SMALL] = NULL;
    const fth_chart chart = {.x_label = fth_report_axis_name(FTH_OVER_TIME),
                             .y_label = "training loss",
                             .columns = columns,
                             .rows = CHART_ROWS};
    FTH_TRY(fth_allocate(count, sizeof *lines, &lines));
    FTH_TRY(fth_allocate(count, sizeof *labels, &labels));
    for (size_t i = 0; i < count; i++) {
        fth_scaling_label(&rows[i], labels[i], SMALL);
        FTH_TRY(fth_report_curve(&rows[i].run->training, FTH_LOSS, FTH_OVER_TIME, labels[i], &lines[i]));
    }
    fputc('\n', output);
    FTH_TRY(fth_chart_print(output, &chart, lines, count));

out:
    for (size_t i = 0; lines && i < count; i++)
        fth_report_curve_release(&lines[i]);
    free(lines);
    free(labels);
    return status;
}

fth_status fth_report_scaling(FILE *output, const fth_record_summary *runs, size_t run_count, int columns)
{
    fth_status status = FTH_OK;
    fth_scaling_row *rows = NULL;
    FTH_TRY(fth_allocate(run_count, sizeof *rows, &rows));
    fth_scaling_make(runs, run_count, rows);
    FTH_TRY(print_table(output, rows, run_count));
    if (run_count > 1) {
        FTH_TRY(print_by_workers(output, rows, run_count, true, columns));
        FTH_TRY(print_by_workers(output, rows, run_count, false, columns));
        FTH_TRY(print_losses(output, rows, run_count, columns));
    }

out:
    free(rows);
    return status;
}

/* ---- ranks ---- */

static const struct {
    const char *key, *heading;
} activities[] = {{"compute_s", "compute"},
                  {"data_wait_s", "data wait"},
                  {"exchange_s", "exchange"},
                  {"waiting_s", "waiting"},
                  {"update_s", "update"}};
enum { ACTIVITIES = 5 };

/* A rank on a node, over all epochs. */
typedef struct rank_times {
    json_int_t rank;
    const char *node; /* lives with the summary's events */
    double seconds[ACTIVITIES];
    int epochs, slow_epochs; /* in which it was a straggler */
} rank_times;

static bool names_straggler(const json_t *event, json_int_t rank)
{
    size_t i;
    json_t *each;
    json_array_foreach(json_object_get(event, "stragglers"), i, each)
    {
        if (json_integer_value(each) == rank)
            return true;
    }
    return false;
}

static fth_status add_ranks(const json_t *event, rank_times **all, size_t *count, size_t *capacity)
{
    size_t i, at;
    json_t *each;
    json_array_foreach(json_object_get(event, "ranks"), i, each)
    {
        const char *host = json_string_value(json_object_get(each, "host"));
        const char *node = json_string_value(json_object_get(each, "node"));
        json_int_t rank = json_integer_value(json_object_get(each, "rank"));
        node = node ? node : host;
        if (!node)
            continue;
        for (at = 0; at < *count && ((*all)[at].rank != rank || strcmp((*all)[at].node, node) != 0);)
            at++;
        if (at == *count) {
            fth_status status = fth_grow(all, *count, capacity, sizeof **all);
            if (status != FTH_OK)
                return status;
            (*all)[(*count)++] = (rank_times){.rank = rank, .node = node};
        }
        for (int a = 0; a < ACTIVITIES; a++)
            (*all)[at].seconds[a] += json_number_value(json_object_get(each, activities[a].key));
        (*all)[at].epochs++;
        (*all)[at].slow_epochs += names_straggler(event, rank);
    }
    return FTH_OK;
}

static int compare_ranks(const void *a, const void *b)
{
    const rank_times *left = a, *right = b;
    return left->rank != right->rank ? (left->rank < right->rank ? -1 : 1) : strcmp(left->node, right->node);
}

/* free() *all. */
static fth_status gather_ranks(const fth_record_summary *run, rank_times **all, size_t *count)
{
    fth_status status = FTH_OK;
    size_t i, capacity = 0;
    json_t *event;
    *all = NULL;
    *count = 0;
    json_array_foreach(run->events, i, event)
    {
        if (is_event(event, "ranks"))
            FTH_TRY(add_ranks(event, all, count, &capacity));
    }
    if (*count > 0)
        qsort(*all, *count, sizeof **all, compare_ranks);

out:
    return status;
}

fth_status fth_scaling_print_ranks(FILE *output, const fth_record_summary *run)
{
    static const char *const headings[] = {">rank",     "node",     ">compute", ">data wait",
                                           ">exchange", ">waiting", ">update",  ""};
    fth_status status = FTH_OK;
    rank_times *all = NULL;
    fth_table *table = NULL;
    size_t count;
    bool some_slow = false;
    FTH_TRY(gather_ranks(run, &all, &count));
    if (count == 0)
        goto out;
    for (size_t i = 0; i < count; i++)
        some_slow = some_slow || all[i].slow_epochs > 0;
    FTH_TRY(fth_table_create(headings, FTH_COUNT_OF(headings) - !some_slow, &table));
    for (size_t i = 0; i < count; i++) {
        char rank[SMALL], note[SMALL] = "", texts[ACTIVITIES][SMALL];
        const char *cells[FTH_COUNT_OF(headings)] = {rank, all[i].node};
        snprintf(rank, sizeof rank, "%lld", (long long)all[i].rank);
        for (int a = 0; a < ACTIVITIES; a++) {
            fth_duration_format(all[i].seconds[a], texts[a], SMALL);
            cells[2 + a] = texts[a];
        }
        if (all[i].slow_epochs > 0)
            snprintf(note, sizeof note, "straggler in %d of %d epoch%s", all[i].slow_epochs, all[i].epochs,
                     all[i].epochs == 1 ? "" : "s");
        cells[2 + ACTIVITIES] = note;
        FTH_TRY(fth_table_add_row(table, cells));
    }
    fth_table_print(output, table);
    fputc('\n', output);

out:
    fth_table_free(table);
    free(all);
    return status;
}

/* ---- as JSON ---- */

static json_t *ranks_json(const fth_record_summary *run)
{
    rank_times *all = NULL;
    size_t count;
    json_t *array = json_array();
    if (gather_ranks(run, &all, &count) != FTH_OK)
        count = 0;
    for (size_t i = 0; i < count; i++) {
        json_t *object = json_pack("{s:I, s:s, s:i, s:i}", "rank", all[i].rank, "node", all[i].node, "epochs",
                                   all[i].epochs, "straggler_epochs", all[i].slow_epochs);
        for (int a = 0; a < ACTIVITIES; a++)
            fth_json_set_number(object, activities[a].key, all[i].seconds[a]);
        json_array_append_new(array, object);
    }
    free(all);
    return array;
}

json_t *fth_scaling_json(const fth_record_summary *run)
{
    fth_scaling_row row;
    if (!has_strategy(run, "data-parallel"))
        return NULL;
    fill_row(run, &row);
    json_t *object =
        json_pack("{s:i, s:i, s:b, s:I, s:I}", "nodes", row.nodes, "workers", row.workers, "workers_changed",
                  row.changed, "batch", (json_int_t)row.batch, "steps_per_epoch", (json_int_t)row.steps_per_epoch);
    fth_json_set_number(object, "learning_rate", row.learning_rate);
    fth_json_set_number(object, "epochs", row.epochs);
    fth_json_set_number(object, "epoch_s", row.epoch_s);
    json_object_set_new(object, "ranks", ranks_json(run));
    return object;
}
