/* The bill: a row for each machine of a run with its cost and results, the split into useful and
 * lost time, and the interruptions. Cost columns are shown if a price is known. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/report_internal.h"

enum { SMALL = 96, MOST_ROWS = 16, MOST_INTERRUPTIONS = 12 };

static const double milestones[] = {0.9, 0.95, 0.99};

static const char *text_of(const json_t *facts, const char *key)
{
    const char *text = json_string_value(json_object_get(facts, key));
    return text ? text : "";
}

/* "g4dn.xlarge spot, us-east-1", or the host's name. `facts` is a machine's "start" event, or what
 * a node told. */
static void name_machine(const fth_record_summary *run, const json_t *facts, char *text, size_t size)
{
    const char *instance = text_of(facts, "instance"), *market = text_of(facts, "market");
    const char *region = text_of(facts, "region"), *host = text_of(facts, "host");
    const char *written = json_string_value(json_object_get(json_object_get(run->run, "machine"), "host"));
    if (*instance)
        snprintf(text, size, "%s%s%s%s%s", instance, *market ? " " : "", market, *region ? ", " : "", region);
    else /* older records have only the last host, in run.json */
        snprintf(text, size, "%s", *host ? host : written ? written : "machine");
}

/* With its own name where that is not its host's. */
static void name_node(const fth_record_summary *run, const fth_record_node *node, char *text, size_t size)
{
    char machine[SMALL / 2];
    name_machine(run, node->facts, machine, sizeof machine);
    bool named = *node->name && strcmp(node->name, text_of(node->facts, "host")) != 0;
    snprintf(text, size, named ? "%s (%.40s)" : "%s", machine, node->name);
}

static void write_seconds(double seconds, char *text, size_t size)
{
    if (seconds < 99.95)
        snprintf(text, size, "%.1f", seconds);
    else
        fth_text_count(llround(seconds), text, size);
}

/* The amount lost, as far as known: `text` unchanged, "≥ 2.0", or "unknown" instead of "≥ 0.0". */
static void mark_minimum(bool is_minimum, char *text, size_t size)
{
    char known[SMALL / 2];
    if (!is_minimum)
        return;
    snprintf(known, sizeof known, "%.*s", SMALL / 2 - 1, text);
    if (strpbrk(known, "123456789"))
        snprintf(text, size, "%s %s", fth_terminal_is_utf8() ? "≥" : ">=", known);
    else
        snprintf(text, size, "unknown");
}

static void write_rate(double usd_per_hour, char *text, size_t size)
{
    char amount[32];
    fth_usd_format(usd_per_hour, amount, sizeof amount);
    snprintf(text, size, "%s%s", amount, isfinite(usd_per_hour) ? "/h" : "");
}

/* ---- rows ---- */

/* One printed line: a machine, or all similar machines if there are too many. */
typedef struct line {
    char name[SMALL];
    size_t machines;
    double usd_per_hour, seconds, lost_s, usd, epochs, learning_rate, accuracy;
    bool lost_is_minimum;
} line;

static void add_to_line(line *sum, const fth_ledger_row *row)
{
    sum->machines++;
    sum->seconds += row->seconds;
    sum->lost_s += row->lost_s;
    sum->lost_is_minimum = sum->lost_is_minimum || row->lost_is_minimum;
    sum->usd += row->usd;
    sum->epochs = row->epochs + (isfinite(sum->epochs) ? sum->epochs : 0);
    if (isfinite(row->machine->learning_rate))
        sum->learning_rate = row->machine->learning_rate;
    if (isfinite(row->accuracy))
        sum->accuracy = row->accuracy;
}

static bool same_rate(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* The line of this name and rate, or a new one. */
static line *find_line(line *lines, size_t *count, bool grouped, const char *name, double usd_per_hour)
{
    for (size_t j = 0; grouped && j < *count; j++)
        if (strcmp(lines[j].name, name) == 0 && same_rate(lines[j].usd_per_hour, usd_per_hour))
            return &lines[j];
    line *added = &lines[(*count)++];
    *added = (line){.usd_per_hour = usd_per_hour, .epochs = NAN, .learning_rate = NAN, .accuracy = NAN};
    snprintf(added->name, SMALL, "%s", name);
    return added;
}

/* `lines` has room for all rows and nodes; gives how many there are. */
static size_t make_lines(const fth_ledger *ledger, bool grouped, line *lines)
{
    size_t count = 0;
    for (size_t i = 0; i < ledger->count; i++) {
        const fth_ledger_row *row = &ledger->rows[i];
        char name[SMALL];
        name_machine(ledger->run, row->machine->event, name, sizeof name);
        add_to_line(find_line(lines, &count, grouped, name, row->usd_per_hour), row);
        for (size_t k = 0; k < ledger->node_count; k++) {
            const fth_ledger_node *node = &ledger->nodes[k];
            if (node->node->machine != i)
                continue;
            name_node(ledger->run, node->node, name, sizeof name);
            line *of = find_line(lines, &count, grouped, name, node->usd_per_hour);
            of->machines++;
            of->seconds += node->node->seconds;
            of->lost_s += row->seconds > 0 ? row->lost_s * node->node->seconds / row->seconds : 0;
            of->usd += node->usd;
        }
    }
    return count;
}

/* ---- the table ---- */

typedef struct bill {
    fth_table *table;
    bool lettered, priced;
    const char *letter; /* of the run whose lines are being added */
    char *momentum;
} bill;

static fth_status open_bill(bill *all)
{
    const char *headings[10];
    size_t count = 0;
    static const struct {
        const char *heading;
        bool lettered, priced;
    } columns[] = {{"run", true, false},        {"machine", false, false},
                   {">rate", false, true},      {">seconds", false, false},
                   {">lost", false, false},     {">cost", false, true},
                   {">epochs", false, false},   {">lr", false, false},
                   {">momentum", false, false}, {">val. accuracy", false, false}};
    for (size_t i = 0; i < FTH_COUNT_OF(columns); i++) {
        if ((columns[i].lettered && !all->lettered) || (columns[i].priced && !all->priced))
            continue;
        headings[count++] = columns[i].heading;
    }
    return fth_table_create(headings, count, &all->table);
}

static fth_status add_cells(const bill *all, const line *of, const char *name, bool total)
{
    char rate[SMALL] = "", seconds[SMALL], lost[SMALL], cost[SMALL], epochs[SMALL], learning_rate[SMALL] = "";
    char accuracy[SMALL];
    const char *cells[10];
    size_t count = 0;
    write_seconds(of->seconds, seconds, sizeof seconds);
    write_seconds(of->lost_s, lost, sizeof lost);
    mark_minimum(of->lost_is_minimum, lost, sizeof lost);
    fth_usd_format(of->usd, cost, sizeof cost);
    snprintf(epochs, sizeof epochs, isfinite(of->epochs) ? "%.4g" : "-", of->epochs);
    fth_text_percent(of->accuracy, accuracy, sizeof accuracy);
    if (!total) {
        write_rate(of->usd_per_hour, rate, sizeof rate);
        snprintf(learning_rate, sizeof learning_rate, isfinite(of->learning_rate) ? "%.4g" : "-", of->learning_rate);
    }
    if (all->lettered)
        cells[count++] = all->letter;
    cells[count++] = name;
    if (all->priced)
        cells[count++] = rate;
    cells[count++] = seconds;
    cells[count++] = lost;
    if (all->priced)
        cells[count++] = cost;
    cells[count++] = epochs;
    cells[count++] = learning_rate;
    cells[count++] = total ? "" : all->momentum;
    cells[count++] = accuracy;
    return fth_table_add_row(all->table, cells);
}

static double functions_seconds(const fth_ledger *ledger)
{
    double seconds = 0;
    for (size_t i = 0; i < ledger->function_count; i++)
        seconds += ledger->functions[i].seconds;
    return seconds;
}

/* All functions in one line; they have a table of their own. */
static fth_status add_functions(const bill *all, const fth_ledger *ledger)
{
    line sum = {.seconds = functions_seconds(ledger),
                .usd_per_hour = NAN,
                .usd = ledger->functions_usd,
                .epochs = NAN,
                .learning_rate = NAN,
                .accuracy = NAN};
    int64_t invocations = 0;
    for (size_t i = 0; i < ledger->function_count; i++) {
        invocations += ledger->functions[i].invocations;
        sum.lost_s += ledger->functions[i].lost_s;
    }
    char *name = fth_format("functions, %s", FTH_COUNTED(invocations, "invocation"));
    fth_status status = add_cells(all, &sum, name, true);
    free(name);
    return status;
}

static double functions_lost_seconds(const fth_ledger *ledger)
{
    double seconds = 0;
    for (size_t i = 0; i < ledger->function_count; i++)
        seconds += ledger->functions[i].lost_s;
    return seconds;
}

static fth_status add_run(bill *all, const fth_ledger *ledger)
{
    fth_status status = FTH_OK;
    line *lines = NULL;
    all->momentum = fth_report_momentum(ledger->run);
    const size_t all_count = ledger->count + ledger->node_count;
    FTH_TRY(fth_allocate(all_count + 1, sizeof *lines, &lines));
    size_t count = make_lines(ledger, all_count > MOST_ROWS, lines);
    for (size_t i = 0; i < count; i++) {
        char *name = lines[i].machines > 1
                         ? fth_format("%zu %s %s", lines[i].machines, fth_terminal_is_utf8() ? "×" : "x", lines[i].name)
                         : fth_format("%s", lines[i].name);
        status = add_cells(all, &lines[i], name, false);
        free(name);
        FTH_TRY(status);
    }
    if (ledger->function_count > 0)
        FTH_TRY(add_functions(all, ledger));
    line total = {.seconds = ledger->seconds + functions_seconds(ledger),
                  .lost_s = ledger->lost_s + functions_lost_seconds(ledger),
                  .lost_is_minimum = ledger->lost_is_minimum,
                  .usd = ledger->usd,
                  .epochs = ledger->epochs,
                  .accuracy = ledger->run->last_accuracy};
    if (all_count != 1 || ledger->function_count > 0)
        FTH_TRY(add_cells(all, &total, "total", true));
out:
    free(all->momentum);
    all->momentum = NULL;
    free(lines);
    return status;
}

/* ---- below the table ---- */

static fth_status add_part(fth_table *table, const char *name, double seconds, double usd, bool is_minimum,
                           const fth_ledger *ledger)
{
    char time[SMALL], amount[SMALL], share[SMALL] = "-";
    fth_duration_format(seconds, time, sizeof time);
    fth_usd_format(usd, amount, sizeof amount);
    if (ledger->seconds > 0)
        snprintf(share, sizeof share, "%.1f %%", 100 * seconds / ledger->seconds);
    mark_minimum(is_minimum, time, sizeof time);
    mark_minimum(is_minimum, share, sizeof share);
    mark_minimum(is_minimum && isfinite(usd), amount, sizeof amount);
    return fth_table_add_row(table, (const char *[]){name, time, share, amount});
}

static fth_status print_parts(FILE *output, const fth_ledger *ledger)
{
    static const char *const headings[] = {"what was paid for", ">time", ">share", ">cost"};
    fth_status status = FTH_OK;
    fth_table *table = NULL;
    double useful = 0, starting = 0;
    char lost[SMALL] = "lost";
    for (size_t i = 0; i < ledger->count; i++) {
        const fth_ledger_row *row = &ledger->rows[i];
        useful += isfinite(row->usd_per_hour) ? row->usd_per_hour * row->useful_s / 3600 : 0;
        starting += isfinite(row->usd_per_hour) ? row->usd_per_hour * row->starting_s / 3600 : 0;
    }
    for (size_t i = 0; i < ledger->node_count; i++) {
        const fth_ledger_node *node = &ledger->nodes[i];
        const fth_ledger_row *row = &ledger->rows[node->node->machine];
        if (!isfinite(node->usd) || row->seconds <= 0)
            continue;
        useful += node->usd * row->useful_s / row->seconds;
        starting += node->usd * row->starting_s / row->seconds;
    }
    if (ledger->steps_lost > 0)
        snprintf(lost, sizeof lost, "lost (%s undone)", FTH_COUNTED(ledger->steps_lost, "step"));
    FTH_TRY(fth_table_create(headings, ledger->priced > 0 ? 4 : 3, &table));
    FTH_TRY(add_part(table, "useful", ledger->useful_s, useful, false, ledger));
    FTH_TRY(add_part(table, lost, ledger->lost_s, ledger->lost_usd, ledger->lost_is_minimum, ledger));
    FTH_TRY(add_part(table, "starting, leaving", ledger->starting_s, starting, false, ledger));
    fth_table_print(output, table);
out:
    fth_table_free(table);
    return status;
}

static void print_milestones(FILE *output, const fth_ledger *ledger)
{
    char amount[SMALL], time[SMALL];
    if (isfinite(ledger->usd_per_epoch)) {
        fth_usd_format(ledger->usd_per_epoch, amount, sizeof amount);
        fprintf(output, "an epoch cost %s\n", amount);
    }
    for (size_t i = 0; i < FTH_COUNT_OF(milestones); i++) {
        const fth_record_point *point = fth_ledger_reached(ledger, milestones[i]);
        if (!point)
            break;
        if (i + 1 < FTH_COUNT_OF(milestones) && fth_ledger_reached(ledger, milestones[i + 1]) == point)
            continue; /* the higher one was reached at the same moment */
        double usd = fth_ledger_usd_at(ledger, point);
        fth_usd_format(usd, amount, sizeof amount);
        fth_duration_format(fth_ledger_seconds_at(ledger, point), time, sizeof time);
        fprintf(output, "%.0f %% validation accuracy took %s of machine time%s%s\n", 100 * milestones[i], time,
                isfinite(usd) ? " and cost " : "", isfinite(usd) ? amount : "");
    }
}

/* ---- interruptions ---- */

/* True if the run continued elsewhere, or was asked to stop. */
static bool was_interrupted(const fth_ledger *ledger, size_t i)
{
    const fth_record_machine *machine = ledger->rows[i].machine;
    return machine->notice || machine->ending == FTH_ENDING_INTERRUPTED ||
           (i + 1 < ledger->count && machine->ending != FTH_ENDING_FINISHED);
}

static const char *cause_of(const fth_record_machine *machine)
{
    const char *source = json_string_value(json_object_get(machine->notice, "source"));
    if (source)
        return source;
    switch (machine->ending) {
    case FTH_ENDING_INTERRUPTED: return "signal";
    case FTH_ENDING_FAILED: return "error";
    default: return "none: killed";
    }
}

static void write_number(const json_t *event, const char *key, const char *format, char *text, size_t size)
{
    const json_t *value = json_object_get(event, key);
    if (json_is_number(value))
        snprintf(text, size, format, json_number_value(value));
    else
        snprintf(text, size, "-");
}

static fth_status add_interruption(fth_table *table, const fth_ledger *ledger, size_t i)
{
    const fth_ledger_row *row = &ledger->rows[i];
    char given[SMALL], used[SMALL], step[SMALL], steps_lost[SMALL], lost[SMALL], cost[SMALL], next[SMALL] = "not yet";
    write_number(row->machine->notice, "seconds_given", "%.0f s", given, sizeof given);
    write_number(row->machine->notice, "seconds_used", "%.2f s", used, sizeof used);
    fth_text_count(row->machine->last_step, step, sizeof step);
    fth_text_count(row->steps_lost, steps_lost, sizeof steps_lost);
    write_seconds(row->lost_s, lost, sizeof lost);
    fth_usd_format(row->lost_usd, cost, sizeof cost);
    mark_minimum(row->lost_is_minimum, steps_lost, sizeof steps_lost);
    mark_minimum(row->lost_is_minimum, lost, sizeof lost);
    mark_minimum(row->lost_is_minimum && isfinite(row->lost_usd), cost, sizeof cost);
    if (i + 1 < ledger->count) {
        char name[SMALL / 2], time[SMALL / 4];
        name_machine(ledger->run, ledger->rows[i + 1].machine->event, name, sizeof name);
        fth_duration_format(fmax(0, ledger->rows[i + 1].machine->began_s - row->machine->last_s), time, sizeof time);
        snprintf(next, sizeof next, "%s after %s", name, time);
    }
    const char *cells[8] = {cause_of(row->machine), given, used, step, steps_lost, lost};
    size_t count = 6;
    if (ledger->priced > 0)
        cells[count++] = cost;
    cells[count++] = next;
    return fth_table_add_row(table, cells);
}

static fth_status print_interruptions(FILE *output, const fth_ledger *ledger)
{
    fth_status status = FTH_OK;
    fth_table *table = NULL;
    size_t found = 0;
    FTH_TRY(ledger->priced > 0
                ? FTH_TABLE(&table, "notice", ">given", ">used", ">at step", ">steps lost", ">s lost", ">cost",
                            "went on with")
                : FTH_TABLE(&table, "notice", ">given", ">used", ">at step", ">steps lost", ">s lost", "went on with"));
    for (size_t i = 0; i < ledger->count; i++)
        if (was_interrupted(ledger, i) && found++ < MOST_INTERRUPTIONS)
            FTH_TRY(add_interruption(table, ledger, i));
    if (found > 0) {
        fputc('\n', output);
        fth_table_print(output, table);
    }
    if (found > MOST_INTERRUPTIONS)
        fprintf(output, "and %s; --json has them all\n", FTH_COUNTED(found - MOST_INTERRUPTIONS, "more interruption"));
out:
    fth_table_free(table);
    return status;
}

/* ---- the whole ---- */

static void print_hint(FILE *output, size_t unpriced, size_t machines, bool has_amounts)
{
    if (unpriced == 0)
        return;
    if (!has_amounts)
        fprintf(output, "no price is known, so no cost: ");
    else
        fprintf(output, "%zu of %zu machines %s no price and %s not in the cost: ", unpriced, machines,
                unpriced == 1 ? "has" : "have", unpriced == 1 ? "is" : "are");
    fprintf(output, "train with --price 0.526 (dollars an hour), or give it here: report --price 0.526\n");
}

static fth_status print_table(FILE *output, const fth_ledger *ledgers, size_t count, bool priced)
{
    fth_status status = FTH_OK;
    bill all = {.lettered = count > 1, .priced = priced};
    line sum = {.accuracy = NAN};
    FTH_TRY(open_bill(&all));
    for (size_t i = 0; i < count; i++) {
        char letter[2] = {(char)('A' + i), '\0'};
        all.letter = letter;
        FTH_TRY(add_run(&all, &ledgers[i]));
        sum.seconds += ledgers[i].seconds + functions_seconds(&ledgers[i]);
        sum.lost_s += ledgers[i].lost_s + functions_lost_seconds(&ledgers[i]);
        sum.lost_is_minimum = sum.lost_is_minimum || ledgers[i].lost_is_minimum;
        sum.epochs += ledgers[i].epochs;
        sum.usd += isfinite(ledgers[i].usd) ? ledgers[i].usd : 0;
    }
    all.letter = "all";
    if (count > 1)
        FTH_TRY(add_cells(&all, &sum, "total", true));
    fth_table_print(output, all.table);
out:
    fth_table_free(all.table);
    return status;
}

static void release_ledgers(fth_ledger *ledgers, size_t count)
{
    for (size_t i = 0; ledgers && i < count; i++)
        fth_ledger_release(&ledgers[i]);
    free(ledgers);
}

fth_status fth_report_bills(FILE *output, const fth_record_summary *runs, size_t run_count)
{
    fth_status status = FTH_OK;
    fth_ledger *ledgers = NULL;
    size_t priced = 0, machines = 0;
    bool has_amounts = false;
    FTH_REQUIRE(run_count <= 26, FTH_INVALID, "a report takes at most 26 runs, not %zu", run_count);
    FTH_TRY(fth_allocate(run_count, sizeof *ledgers, &ledgers));
    for (size_t i = 0; i < run_count; i++) {
        FTH_TRY(fth_ledger_make(&runs[i], &ledgers[i]));
        priced += ledgers[i].priced;
        has_amounts = has_amounts || isfinite(ledgers[i].usd);
        machines += ledgers[i].count + ledgers[i].node_count;
        if (run_count > 1)
            fth_print_line(output, "%c  %s", (char)('A' + i), runs[i].id);
    }
    if (run_count > 1)
        fputc('\n', output);
    FTH_TRY(print_table(output, ledgers, run_count, has_amounts));
    print_hint(output, machines - priced, machines, has_amounts);
out:
    release_ledgers(ledgers, run_count);
    return status;
}

fth_status fth_report_bill(FILE *output, const fth_record_summary *run, const fth_catalogue *catalogue)
{
    fth_status status = FTH_OK;
    fth_ledger ledger = {0};
    FTH_TRY(fth_ledger_make(run, &ledger));
    const size_t machines = ledger.count + ledger.node_count;
    if (ledger.count == 0)
        goto out;
    if (machines > 1 || ledger.priced > 0 || ledger.function_count > 0) {
        FTH_TRY(print_table(output, &ledger, 1, isfinite(ledger.usd)));
        if (ledger.priced > 0 || ledger.lost_s > 0) {
            fputc('\n', output);
            FTH_TRY(print_parts(output, &ledger));
        }
        if (ledger.priced > 0)
            fputc('\n', output);
        if (ledger.priced > 0)
            print_milestones(output, &ledger);
        FTH_TRY(print_interruptions(output, &ledger));
        if (ledger.priced < machines)
            fputc('\n', output);
    }
    print_hint(output, machines - ledger.priced, machines, isfinite(ledger.usd));
    fputc('\n', output);
    FTH_TRY(fth_report_functions(output, &ledger, catalogue));
out:
    fth_ledger_release(&ledger);
    return status;
}
