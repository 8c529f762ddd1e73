/* Several runs side by side, one per column: the options that differ, then the results. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/report_internal.h"

enum { CHART_ROWS = 16, SMALL = 64, MAX_RUNS = 26, WIDEST_CELL = 20 };

typedef struct comparison {
    const fth_record_summary *runs;
    size_t run_count;
    fth_table *table;
} comparison;

/* ---- ranks ---- */

/* Of the model kept as the best; for a parameter server, which keeps none, of its best
 * validations. */
static double best_accuracy(const fth_record_summary *run)
{
    return run->kept.by ? run->kept.accuracy : run->best_accuracy;
}

static double best_loss(const fth_record_summary *run)
{
    return run->kept.by ? run->kept.loss : run->best_loss;
}

/* Below 0 where `a` is less, above where it is greater; numbers that are missing are greater than
 * all others. */
static int compare_numbers(double a, double b)
{
    return isnan(a) || isnan(b) ? isnan(a) - isnan(b) : (a > b) - (a < b);
}

static int compare_runs(const fth_record_summary *a, const fth_record_summary *b)
{
    int order = compare_numbers(-best_accuracy(a), -best_accuracy(b));
    if (order == 0)
        order = compare_numbers(best_loss(a), best_loss(b));
    return order != 0 ? order : compare_numbers(fth_report_last_training_loss(a), fth_report_last_training_loss(b));
}

void fth_report_rank(fth_record_summary *runs, size_t run_count)
{
    for (size_t i = 1; i < run_count; i++) {
        const fth_record_summary run = runs[i];
        size_t at = i;
        for (; at > 0 && compare_runs(&run, &runs[at - 1]) < 0; at--)
            runs[at] = runs[at - 1];
        runs[at] = run;
    }
}

/* ---- options that differ ---- */

static bool differs(const comparison *all, const char *option)
{
    char *first = fth_report_option(&all->runs[0], option);
    bool found = false;
    for (size_t i = 1; i < all->run_count && !found; i++) {
        char *other = fth_report_option(&all->runs[i], option);
        found = strcmp(first, other) != 0;
        free(other);
    }
    free(first);
    return found;
}

static fth_status add_option_row(const comparison *all, const char *name, const char *option)
{
    char *texts[MAX_RUNS] = {0};
    const char *cells[MAX_RUNS + 1] = {name};
    for (size_t i = 0; i < all->run_count; i++)
        cells[i + 1] = texts[i] = fth_report_option(&all->runs[i], option);
    fth_status status = fth_table_add_row(all->table, cells);
    for (size_t i = 0; i < all->run_count; i++)
        free(texts[i]);
    return status;
}

static fth_status add_options(const comparison *all)
{
    static const char *const always[] = {"model", "data", "batch"};
    /* Options about where a run is kept, and those with their own rows. */
    static const char *const never[] = {"name", "runs", "resume", "json", "price", "prices", "workers", "processes"};
    fth_status status = FTH_OK;
    for (size_t i = 0; i < FTH_COUNT_OF(always); i++)
        FTH_TRY(add_option_row(all, always[i], always[i]));

    const char *option;
    json_t *value;
    json_object_foreach(json_object_get(all->runs[0].run, "configuration"), option, value)
    {
        bool skip = !differs(all, option);
        for (size_t i = 0; i < FTH_COUNT_OF(always); i++)
            skip = skip || strcmp(option, always[i]) == 0;
        for (size_t i = 0; i < FTH_COUNT_OF(never); i++)
            skip = skip || strcmp(option, never[i]) == 0;
        if (skip)
            continue;
        char *flag = fth_format("--%s", option); /* what was asked: --steps is not the steps that were made */
        status = add_option_row(all, flag, option);
        free(flag);
        FTH_TRY(status);
    }
out:
    return status;
}

/* ---- workers, where runs have some: how many, and how many passes over the data each of them made
 * ---- */

/* As the newest "start" or "resume" says it. */
static int64_t count_workers(const fth_record_summary *run)
{
    if (run->machine_count == 0)
        return 0;
    return json_integer_value(json_object_get(run->machines[run->machine_count - 1].event, "workers"));
}

static double epochs_of(const fth_record_summary *run)
{
    double epochs = json_number_value(json_object_get(run->end, "epochs"));
    const fth_record_series *series = &run->training;
    return epochs > 0 || series->count == 0 ? epochs : series->points[series->count - 1].epoch;
}

static fth_status add_workers(const comparison *all)
{
    fth_status status = FTH_OK;
    char counts[MAX_RUNS][SMALL], epochs[MAX_RUNS][SMALL];
    const char *count_cells[MAX_RUNS + 1] = {"workers"}, *epoch_cells[MAX_RUNS + 1] = {"epochs each"};
    bool any = false;
    for (size_t i = 0; i < all->run_count; i++) {
        int64_t count = count_workers(&all->runs[i]);
        any = any || count > 0;
        snprintf(counts[i], SMALL, count > 0 ? "%lld" : "-", (long long)count);
        snprintf(epochs[i], SMALL, "%.3g", epochs_of(&all->runs[i]) / (double)(count > 0 ? count : 1));
        count_cells[i + 1] = counts[i];
        epoch_cells[i + 1] = epochs[i];
    }
    if (any) {
        FTH_TRY(fth_table_add_row(all->table, count_cells));
        FTH_TRY(fth_table_add_row(all->table, epoch_cells));
    }
out:
    return status;
}

/* ---- results: a row is a name and how to write one run's cell ---- */

typedef struct result_row {
    const char *name;
    void (*write)(const fth_record_summary *run, const fth_record_summary *first, char *text);
} result_row;

static void write_count(double value, char *text)
{
    if (isfinite(value))
        fth_text_count(llround(value), text, SMALL);
    else
        snprintf(text, SMALL, "-");
}

static void write_state(const fth_record_summary *run, const fth_record_summary *first, char *text)
{
    (void)first;
    char *state = fth_report_state(run);
    state[strcspn(state, ":,")] = '\0'; /* the reason is in the run's own report */
    snprintf(text, SMALL, "%s", state);
    free(state);
}

static void write_steps(const fth_record_summary *run, const fth_record_summary *first, char *text)
{
    (void)first;
    fth_text_count(run->steps, text, SMALL);
}

static void write_time(const fth_record_summary *run, const fth_record_summary *first, char *text)
{
    (void)first;
    fth_duration_format(run->elapsed_s, text, SMALL);
}

static void write_speed(const fth_record_summary *run, const fth_record_summary *first, char *text)
{
    (void)first;
    write_count(run->samples_per_s, text);
}

static void write_relative_speed(const fth_record_summary *run, const fth_record_summary *first, char *text)
{
    if (run->samples_per_s > 0 && first->samples_per_s > 0)
        snprintf(text, SMALL, "%.2f x", run->samples_per_s / first->samples_per_s);
    else
        snprintf(text, SMALL, "-");
}

static void write_wait(const fth_record_summary *run, const fth_record_summary *first, char *text)
{
    (void)first;
    if (run->elapsed_s > 0)
        snprintf(text, SMALL, "%.1f %%", 100 * run->data_wait_s / run->elapsed_s);
    else
        snprintf(text, SMALL, "-");
}

static void write_memory(const fth_record_summary *run, const fth_record_summary *first, char *text)
{
    (void)first;
    if (run->peak_memory_bytes > 0)
        fth_text_bytes(run->peak_memory_bytes, text, SMALL);
    else
        snprintf(text, SMALL, "-");
}

static void write_training_loss(const fth_record_summary *run, const fth_record_summary *first, char *text)
{
    (void)first;
    fth_text_loss(fth_report_last_training_loss(run), text, SMALL);
}

static void write_last_loss(const fth_record_summary *run, const fth_record_summary *first, char *text)
{
    (void)first;
    fth_text_loss(run->last_loss, text, SMALL);
}

static void write_last_accuracy(const fth_record_summary *run, const fth_record_summary *first, char *text)
{
    (void)first;
    fth_text_percent(run->last_accuracy, text, SMALL);
}

static void write_test_loss(const fth_record_summary *run, const fth_record_summary *first, char *text)
{
    (void)first;
    fth_text_loss(run->test_loss, text, SMALL);
}

static void write_test_accuracy(const fth_record_summary *run, const fth_record_summary *first, char *text)
{
    (void)first;
    fth_text_percent(run->test_accuracy, text, SMALL);
}

static void write_best_loss(const fth_record_summary *run, const fth_record_summary *first, char *text)
{
    (void)first;
    fth_text_loss(best_loss(run), text, SMALL);
}

static void write_best_accuracy(const fth_record_summary *run, const fth_record_summary *first, char *text)
{
    (void)first;
    fth_text_percent(best_accuracy(run), text, SMALL);
}

static void write_best_by(const fth_record_summary *run, const fth_record_summary *first, char *text)
{
    (void)first;
    snprintf(text, SMALL, "%s", run->kept.by ? run->kept.by : "-");
}

static void write_seen_accuracy(const fth_record_summary *run, const fth_record_summary *first, char *text)
{
    (void)first;
    fth_text_percent(run->best_accuracy, text, SMALL);
}

static void write_ending(const fth_record_summary *run, const fth_record_summary *first, char *text)
{
    (void)first;
    char *ended = fth_report_ended(run);
    if (ended)
        ended[strcspn(ended, ":")] = '\0'; /* the whole reason is in the run's own report */
    snprintf(text, SMALL, "%s", ended ? ended : "-");
    free(ended);
}

/* ---- what it cost, where a price is known ---- */

static double cost_of(const fth_record_summary *run, double (*of)(const fth_ledger *ledger))
{
    fth_ledger ledger = {0};
    double value = fth_ledger_make(run, &ledger) == FTH_OK && ledger.count > 0 ? of(&ledger) : NAN;
    fth_ledger_release(&ledger);
    return value;
}

static double total_usd(const fth_ledger *ledger)
{
    return ledger->usd;
}

static double usd_per_epoch(const fth_ledger *ledger)
{
    return ledger->usd_per_epoch;
}

static double usd_lost(const fth_ledger *ledger)
{
    return ledger->lost_usd;
}

static double usd_to_reach(const fth_ledger *ledger, double accuracy)
{
    const fth_record_point *point = fth_ledger_reached(ledger, accuracy);
    return point ? fth_ledger_usd_at(ledger, point) : NAN;
}

static double usd_to_90(const fth_ledger *ledger)
{
    return usd_to_reach(ledger, 0.9);
}

static double usd_to_99(const fth_ledger *ledger)
{
    return usd_to_reach(ledger, 0.99);
}

static const struct {
    const char *name;
    double (*of)(const fth_ledger *ledger);
} cost_rows[] = {{"cost", total_usd},
                 {"cost lost", usd_lost},
                 {"cost per epoch", usd_per_epoch},
                 {"cost to 90 %", usd_to_90},
                 {"cost to 99 %", usd_to_99}};

/* Rows without a value for any run are left out. */
static fth_status add_costs(const comparison *all)
{
    fth_status status = FTH_OK;
    for (size_t row = 0; row < FTH_COUNT_OF(cost_rows); row++) {
        char texts[MAX_RUNS][SMALL];
        const char *cells[MAX_RUNS + 1] = {cost_rows[row].name};
        bool known = false;
        for (size_t i = 0; i < all->run_count; i++) {
            double usd = cost_of(&all->runs[i], cost_rows[row].of);
            known = known || isfinite(usd);
            fth_usd_format(usd, texts[i], SMALL);
            cells[i + 1] = texts[i];
        }
        if (known)
            FTH_TRY(fth_table_add_row(all->table, cells));
    }
out:
    return status;
}

/* ---- all results ---- */

static const result_row result_rows[] = {
    {"state", write_state},
    {"ended", write_ending},
    {"steps", write_steps},
    {"time", write_time},
    {"samples/s", write_speed},
    {"speed", write_relative_speed},
    {"data wait", write_wait},
    {"peak memory", write_memory},
    {"training loss", write_training_loss},
    {"validation loss", write_last_loss},
    {"validation accuracy", write_last_accuracy},
    {"best validation loss", write_best_loss},
    {"best validation accuracy", write_best_accuracy},
};

/* Where a run saw a better accuracy than the model has that it kept. */
static const result_row seen_rows[] = {
    {"best model kept by", write_best_by},
    {"best validation seen", write_seen_accuracy},
};

/* Where a run has test samples. */
static const result_row test_rows[] = {
    {"test loss", write_test_loss},
    {"test accuracy", write_test_accuracy},
};

static fth_status add_rows(const comparison *all, const result_row *rows, size_t row_count)
{
    fth_status status = FTH_OK;
    for (size_t row = 0; row < row_count; row++) {
        char texts[MAX_RUNS][SMALL];
        const char *cells[MAX_RUNS + 1] = {rows[row].name};
        for (size_t i = 0; i < all->run_count; i++) {
            rows[row].write(&all->runs[i], &all->runs[0], texts[i]);
            cells[i + 1] = texts[i];
        }
        FTH_TRY(fth_table_add_row(all->table, cells));
    }
out:
    return status;
}

static fth_status add_results(const comparison *all)
{
    bool saw_better = false, tested = false;
    for (size_t i = 0; i < all->run_count; i++) {
        saw_better = saw_better || fth_report_saw_better(&all->runs[i]);
        tested = tested || isfinite(all->runs[i].test_loss);
    }
    fth_status status = add_rows(all, result_rows, FTH_COUNT_OF(result_rows));
    if (status == FTH_OK && tested)
        status = add_rows(all, test_rows, FTH_COUNT_OF(test_rows));
    return status == FTH_OK && saw_better ? add_rows(all, seen_rows, FTH_COUNT_OF(seen_rows)) : status;
}

/* ---- charts ---- */

static fth_status print_chart(FILE *output, const comparison *all, fth_measure measure, fth_chart_axis axis,
                              int columns)
{
    fth_status status = FTH_OK;
    fth_chart_line lines[MAX_RUNS] = {0};
    fth_chart chart = {.x_label = fth_report_axis_name(axis),
                       .y_label = measure == FTH_LOSS ? "training loss" : "validation accuracy (%)",
                       .linear = measure == FTH_ACCURACY,
                       .columns = columns,
                       .rows = CHART_ROWS};
    for (size_t i = 0; i < all->run_count; i++) {
        const fth_record_summary *run = &all->runs[i];
        FTH_TRY(fth_report_curve(measure == FTH_LOSS ? &run->training : &run->validation, measure, axis, run->id,
                                 &lines[i]));
    }
    FTH_TRY(fth_chart_print(output, &chart, lines, all->run_count));

out:
    for (size_t i = 0; i < all->run_count; i++)
        fth_report_curve_release(&lines[i]);
    return status;
}

static bool any_was_validated(const comparison *all)
{
    bool any = false;
    for (size_t i = 0; i < all->run_count; i++)
        any = any || fth_report_has(&all->runs[i].validation, FTH_ACCURACY);
    return any;
}

/* ---- the whole ---- */

fth_status fth_report_compare(FILE *output, const fth_record_summary *runs, size_t run_count, fth_chart_axis axis,
                              int columns)
{
    fth_status status = FTH_OK;
    comparison all = {.runs = runs, .run_count = run_count};
    char letters[MAX_RUNS][3] = {0}; /* ">A" */
    const char *headings[MAX_RUNS + 1] = {"run"};

    axis = fth_report_choose_axis(runs, run_count, axis);
    FTH_REQUIRE(run_count >= 1 && run_count <= MAX_RUNS, FTH_INVALID, "compare takes 1 to %d runs, not %zu", MAX_RUNS,
                run_count);
    fputs("best first:\n", output);
    for (size_t i = 0; i < run_count; i++) {
        letters[i][0] = '>';
        letters[i][1] = (char)('A' + i);
        headings[i + 1] = letters[i];
        fth_print_line(output, "%s  %s", letters[i] + 1, runs[i].id);
    }
    fputc('\n', output);
    FTH_TRY(fth_table_create(headings, run_count + 1, &all.table));
    FTH_TRY(add_options(&all));
    FTH_TRY(add_workers(&all));
    FTH_TRY(add_results(&all));
    FTH_TRY(add_costs(&all));
    for (size_t i = 1; i <= run_count; i++)
        FTH_TRY(fth_table_shorten(all.table, i, (size_t)columns, WIDEST_CELL));
    fth_table_print_parts(output, all.table, (size_t)columns);
    fputc('\n', output);
    FTH_TRY(print_chart(output, &all, FTH_LOSS, axis, columns));
    if (any_was_validated(&all)) {
        fputc('\n', output);
        FTH_TRY(print_chart(output, &all, FTH_ACCURACY, axis, columns));
    }
out:
    fth_table_free(all.table);
    return status;
}
