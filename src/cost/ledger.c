/* The ledger: what each machine of a run cost, and what it achieved.
 *
 * The run's own clock (elapsed_s) continues over all machines and goes back when a resume does, so
 * it shows what was kept. If a machine brought the run from elapsed_s a to b, and the run was later
 * resumed at c < b, then c - a is useful and b - c is lost; if c < a, all is lost. Work of a killed
 * machine after its last event is also lost. The rest of the paid time is starting and leaving.
 *
 *     paid      |starting|------ useful ------|---- lost ----|
 *     elapsed            a                    c              b   */
#include <math.h>
#include <stdlib.h>

#include "cost/cost.h"
#include "cost/ledger_functions.h"

/* `facts` is a machine's "start" event, or what a node told. */
static double rate_of(const json_t *facts)
{
    const json_t *rate = json_object_get(facts, "price_usd_per_hour");
    double value = json_is_number(rate) ? json_number_value(rate) : NAN;
    return isfinite(value) && value >= 0 ? value : NAN;
}

void fth_ledger_assume_price(fth_record_summary *run, double usd_per_hour, const char *source)
{
    for (size_t i = 0; i < run->machine_count + run->node_count; i++) {
        json_t *facts = i < run->machine_count ? run->machines[i].event : run->nodes[i - run->machine_count].facts;
        if (isfinite(rate_of(facts)))
            continue;
        json_object_set_new(facts, "price_usd_per_hour", json_real(usd_per_hour));
        json_object_set_new(facts, "price_source", json_string(source));
    }
}

static void fill_row(const fth_record_machine *machine, double kept_s, int64_t kept_step, double kept_epoch,
                     fth_ledger_row *row)
{
    double trained_s = machine->last_elapsed_s - machine->first_elapsed_s;
    row->useful_s = fmax(0, fmin(machine->last_elapsed_s, kept_s) - machine->first_elapsed_s);
    int64_t last_step = machine->last_step < kept_step ? machine->last_step : kept_step;
    row->steps = last_step > machine->first_step ? last_step - machine->first_step : 0;
    row->steps_lost = machine->last_step - machine->first_step - row->steps;
    /* The clock continues while a machine that leaves in order saves its last step, which undoes
     * nothing. */
    bool undone = row->steps_lost > 0 || machine->ending == FTH_ENDING_UNKNOWN;
    row->lost_s = (undone ? fmax(0, trained_s - row->useful_s) : 0) + machine->silent_s;
    /* What was trained was paid for, even if the record's clocks disagree. */
    row->seconds = fmax(machine->seconds, fmax(trained_s, row->useful_s + row->lost_s));
    row->starting_s = row->seconds - row->useful_s - row->lost_s;
    row->epochs = fmax(0, fmin(machine->last_epoch, kept_epoch) - machine->first_epoch);
    row->usd = row->usd_per_hour * row->seconds / 3600;
    row->lost_usd = row->usd_per_hour * row->lost_s / 3600;
}

static void add_money(fth_ledger *ledger, double usd, double lost_usd)
{
    ledger->usd = (ledger->priced > 0 ? ledger->usd : 0) + usd;
    ledger->lost_usd = (ledger->priced > 0 ? ledger->lost_usd : 0) + lost_usd;
    ledger->priced++;
}

static void add_up(fth_ledger *ledger)
{
    size_t unpriced = 0;
    ledger->usd = ledger->lost_usd = ledger->usd_per_epoch = ledger->functions_usd = NAN;
    for (size_t i = 0; i < ledger->count; i++) {
        const fth_ledger_row *row = &ledger->rows[i];
        ledger->seconds += row->seconds;
        ledger->useful_s += row->useful_s;
        ledger->lost_s += row->lost_s;
        ledger->starting_s += row->starting_s;
        ledger->steps_lost += row->steps_lost;
        ledger->lost_is_minimum = ledger->lost_is_minimum || row->lost_is_minimum;
        ledger->epochs += row->epochs;
        if (isfinite(row->usd_per_hour))
            add_money(ledger, row->usd, row->lost_usd);
    }
    for (size_t i = 0; i < ledger->node_count; i++) {
        const fth_ledger_node *node = &ledger->nodes[i];
        const fth_ledger_row *row = &ledger->rows[node->node->machine];
        const double share = row->seconds > 0 ? node->node->seconds / row->seconds : 0;
        ledger->seconds += node->node->seconds;
        ledger->useful_s += share * row->useful_s;
        ledger->lost_s += share * row->lost_s;
        ledger->starting_s += share * row->starting_s;
        if (isfinite(node->usd))
            add_money(ledger, node->usd, node->usd_per_hour * share * row->lost_s / 3600);
    }
    for (size_t i = 0; i < ledger->function_count; i++) {
        const fth_ledger_function *function = &ledger->functions[i];
        if (!isfinite(function->usd)) {
            unpriced++;
            continue;
        }
        ledger->functions_usd = function->usd + (isfinite(ledger->functions_usd) ? ledger->functions_usd : 0);
        ledger->usd = function->usd + (isfinite(ledger->usd) ? ledger->usd : 0);
    }
    if (ledger->epochs > 0 && unpriced == 0 && ledger->priced == ledger->count + ledger->node_count)
        ledger->usd_per_epoch = ledger->usd / ledger->epochs;
}

fth_status fth_ledger_make(const fth_record_summary *run, fth_ledger *ledger)
{
    fth_status status = FTH_OK;
    *ledger = (fth_ledger){.run = run, .count = run->machine_count, .node_count = run->node_count};
    FTH_TRY(fth_allocate(run->machine_count + 1, sizeof *ledger->rows, &ledger->rows));

    /* From last to first: what was kept ends where the earliest later resume continued. */
    double kept_s = INFINITY, kept_epoch = INFINITY;
    int64_t kept_step = INT64_MAX;
    for (size_t i = run->machine_count; i-- > 0;) {
        const fth_record_machine *machine = &run->machines[i];
        ledger->rows[i] =
            (fth_ledger_row){.machine = machine, .usd_per_hour = rate_of(machine->event), .accuracy = NAN};
        fill_row(machine, kept_s, kept_step, kept_epoch, &ledger->rows[i]);
        bool followed = i + 1 < run->machine_count; /* the last one may still be at work */
        ledger->rows[i].lost_is_minimum = followed && machine->ending == FTH_ENDING_UNKNOWN && !machine->notice;
        kept_s = fmin(kept_s, machine->first_elapsed_s);
        kept_epoch = fmin(kept_epoch, machine->first_epoch);
        kept_step = machine->first_step < kept_step ? machine->first_step : kept_step;
    }
    for (size_t i = 0; i < run->validation.count; i++)
        if (run->validation.points[i].machine < ledger->count)
            ledger->rows[run->validation.points[i].machine].accuracy = run->validation.points[i].accuracy;
    FTH_TRY(fth_allocate(run->node_count + 1, sizeof *ledger->nodes, &ledger->nodes));
    for (size_t i = 0; i < run->node_count; i++) {
        const double rate = rate_of(run->nodes[i].facts);
        ledger->nodes[i] = (fth_ledger_node){&run->nodes[i], rate, rate * run->nodes[i].seconds / 3600};
    }
    FTH_TRY(fth_ledger_find_functions(run, ledger));
    add_up(ledger);

out:
    return status;
}

void fth_ledger_release(fth_ledger *ledger)
{
    free(ledger->rows);
    free(ledger->nodes);
    free(ledger->functions);
    *ledger = (fth_ledger){0};
}

/* ---- at a moment ---- */

static double seconds_on(const fth_ledger_row *row, const fth_record_point *point)
{
    return isfinite(point->machine_s) ? fmin(fmax(0, point->machine_s), row->seconds) : row->seconds;
}

/* How much of a node's time lies before the point: 1, a part, or 0. */
static double share_before(const fth_ledger *ledger, const fth_record_point *point, const fth_record_node *node)
{
    const fth_ledger_row *row = &ledger->rows[point->machine];
    if (node->machine != point->machine)
        return node->machine < point->machine;
    return row->seconds > 0 ? seconds_on(row, point) / row->seconds : 1;
}

/* Invocations are recorded when they end; until then their cost is spread evenly over the training
 * time. */
static double functions_usd_at(const fth_ledger *ledger, const fth_record_point *point)
{
    double usd = 0, share = ledger->run->elapsed_s > 0 ? point->elapsed_s / ledger->run->elapsed_s : 1;
    for (size_t i = 0; i < ledger->function_count; i++)
        usd += ledger->functions[i].usd;
    return usd * (isfinite(share) ? fmin(fmax(0, share), 1) : 1);
}

double fth_ledger_usd_at(const fth_ledger *ledger, const fth_record_point *point)
{
    if (point->machine >= ledger->count)
        return NAN;
    double usd = functions_usd_at(ledger, point);
    for (size_t i = 0; i < point->machine; i++)
        usd += ledger->rows[i].usd;
    for (size_t i = 0; i < ledger->node_count; i++) {
        const fth_ledger_node *node = &ledger->nodes[i];
        const double share = share_before(ledger, point, node->node);
        usd += share > 0 ? share * node->usd : 0; /* whatever the price of one that came later */
    }
    const fth_ledger_row *row = &ledger->rows[point->machine];
    return usd + row->usd_per_hour * seconds_on(row, point) / 3600;
}

double fth_ledger_seconds_at(const fth_ledger *ledger, const fth_record_point *point)
{
    double seconds = 0;
    if (point->machine >= ledger->count)
        return NAN;
    for (size_t i = 0; i < point->machine; i++)
        seconds += ledger->rows[i].seconds;
    for (size_t i = 0; i < ledger->node_count; i++)
        seconds += share_before(ledger, point, ledger->nodes[i].node) * ledger->nodes[i].node->seconds;
    return seconds + seconds_on(&ledger->rows[point->machine], point);
}

const fth_record_point *fth_ledger_reached(const fth_ledger *ledger, double accuracy)
{
    const fth_record_series *validation = &ledger->run->validation;
    for (size_t i = 0; i < validation->count; i++)
        if (validation->points[i].accuracy >= accuracy)
            return &validation->points[i];
    return NULL;
}
