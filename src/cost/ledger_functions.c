/* What the functions of a run cost. A parameter server's record has an event "invocation" for each
 * that worked for it:
 *
 *     {"provider", "function", "id", "worker", "memory_mb", "seconds", "cold", "peak_bytes",
 *      "received_bytes", "sent_bytes", "ended": "done" | "deadline" | "error" | "lost"}
 *
 * A price is given to an event ("usd", "price_source", "vcpu_s") once a catalogue is known, which
 * is when a report is made. It has three parts: configured memory times time, rounded up to a
 * millisecond as Lambda bills it; the invocation; and what the function sent. */
#include "cost/ledger_functions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/function_model.h"

#define MB_PER_GB    1024.0
#define BYTES_PER_GB 1e9

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

/* True if the event is an invocation, and the last one with its id: a slow function that was taken
 * for lost reported its total use later. */
static bool is_invocation(const fth_record_summary *run, size_t index)
{
    const json_t *event = json_array_get(run->events, index);
    const char *id = text_of(event, "id");
    if (strcmp(text_of(event, "event"), "invocation") != 0)
        return false;
    if (strcmp(text_of(event, "ended"), "lost") != 0 || !*id)
        return true;
    for (size_t i = index + 1; i < json_array_size(run->events); i++) {
        const json_t *later = json_array_get(run->events, i);
        if (strcmp(text_of(later, "id"), id) == 0 && strcmp(text_of(later, "event"), "invocation") == 0 &&
            strcmp(text_of(later, "provider"), text_of(event, "provider")) == 0)
            return false;
    }
    return true;
}

/* A record is untrusted input: anything but a number of at least 0 counts as unknown. */
static double number_of(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    return isfinite(number) && number >= 0 ? number : NAN;
}

static double known(double number)
{
    return isnan(number) ? 0 : number;
}

static double billed_seconds(const json_t *event)
{
    return ceil(known(number_of(event, "seconds")) * 1000 - 1e-6) / 1000;
}

static double gigabyte_seconds(const json_t *event)
{
    return billed_seconds(event) * number_of(event, "memory_mb") / MB_PER_GB;
}

bool fth_ledger_has_functions(const fth_record_summary *run)
{
    size_t i = 0;
    while (i < json_array_size(run->events) && !is_invocation(run, i))
        i++;
    return i < json_array_size(run->events);
}

/* ---- prices ---- */

void fth_ledger_price_functions(fth_record_summary *run, const fth_catalogue *catalogue)
{
    size_t i;
    json_t *event;
    json_array_foreach(run->events, i, event)
    {
        if (!is_invocation(run, i))
            continue;
        const fth_function_price *price =
            fth_function_price_find(catalogue, text_of(event, "provider"), text_of(event, "region"));
        const double gb_s = gigabyte_seconds(event);
        if (!price || isnan(gb_s))
            continue;
        const double usd = gb_s * price->usd_per_gb_second + price->usd_per_million_requests / 1e6 +
                           known(number_of(event, "sent_bytes")) / BYTES_PER_GB * price->usd_per_gb_out;
        json_object_set_new(event, "usd", json_real(usd));
        json_object_set_new(event, "price_source", json_string(catalogue->name));
        json_object_set_new(event, "cloud", json_string(price->cloud));
        if (price->mb_per_vcpu > 0)
            json_object_set_new(event, "vcpu_s",
                                json_real(billed_seconds(event) * number_of(event, "memory_mb") / price->mb_per_vcpu));
    }
}

/* ---- rows ---- */

static fth_status find_row(fth_ledger *ledger, size_t *capacity, const json_t *event, fth_ledger_function **row)
{
    fth_ledger_function made = {
        .memory_mb = known(number_of(event, "memory_mb")), .received_bytes = NAN, .sent_bytes = NAN, .peak_bytes = NAN};
    fth_printable_copy(made.provider, sizeof made.provider, text_of(event, "provider"));
    fth_printable_copy(made.function, sizeof made.function, text_of(event, "function"));
    for (size_t i = 0; i < ledger->function_count; i++) {
        *row = &ledger->functions[i];
        if (strcmp((*row)->provider, made.provider) == 0 && strcmp((*row)->function, made.function) == 0 &&
            (*row)->memory_mb == made.memory_mb)
            return FTH_OK;
    }
    fth_status status = fth_grow(&ledger->functions, ledger->function_count, capacity, sizeof made);
    if (status != FTH_OK)
        return status;
    *row = &ledger->functions[ledger->function_count++];
    **row = made;
    return FTH_OK;
}

static double add(double sum, double number)
{
    return isnan(number) ? sum : number + known(sum);
}

static void add_invocation(fth_ledger_function *row, const json_t *event)
{
    const char *ended = text_of(event, "ended");
    const double seconds = known(number_of(event, "seconds")), usd = number_of(event, "usd");
    const bool lost = strcmp(ended, "lost") == 0;
    row->invocations++;
    row->cold += json_is_true(json_object_get(event, "cold"));
    row->failed += strcmp(ended, "error") == 0;
    row->lost += lost;
    row->seconds += seconds;
    row->lost_s += lost ? seconds : 0;
    row->gb_s += known(gigabyte_seconds(event));
    row->received_bytes = add(row->received_bytes, number_of(event, "received_bytes"));
    row->sent_bytes = add(row->sent_bytes, number_of(event, "sent_bytes"));
    row->peak_bytes = fmax(row->peak_bytes, number_of(event, "peak_bytes")); /* a NAN loses */
    row->usd += usd; /* one without a price: the row's is not known */
    row->lost_usd += lost ? usd : 0;
}

fth_status fth_ledger_find_functions(const fth_record_summary *run, fth_ledger *ledger)
{
    fth_status status = FTH_OK;
    size_t i, capacity = 0;
    json_t *event;
    json_array_foreach(run->events, i, event)
    {
        fth_ledger_function *row = NULL;
        if (!is_invocation(run, i))
            continue;
        FTH_TRY(find_row(ledger, &capacity, event, &row));
        add_invocation(row, event);
    }
out:
    return status;
}

/* ---- a VM instead ---- */

/* The vCPU-seconds of all functions, and their cloud; false: unknown for one of them. */
static bool find_work(const fth_record_summary *run, double *vcpu_s, const char **cloud)
{
    size_t i;
    json_t *event;
    *vcpu_s = 0;
    *cloud = "";
    json_array_foreach(run->events, i, event)
    {
        if (!is_invocation(run, i))
            continue;
        *vcpu_s += number_of(event, "vcpu_s");
        *cloud = text_of(event, "cloud");
    }
    return isfinite(*vcpu_s) && *vcpu_s > 0;
}

bool fth_ledger_compare_vm(const fth_ledger *ledger, const fth_catalogue *catalogue, double start_s, fth_ledger_vm *vm)
{
    fth_job_shape work = {.samples = 1, .batch = 1};
    const char *cloud;
    *vm = (fth_ledger_vm){.spot_usd = NAN};
    if (!find_work(ledger->run, &work.batch_s, &cloud))
        return false;
    vm->on_demand = fth_estimate_choose_vm(catalogue, cloud, "", &work, start_s);
    if (!vm->on_demand)
        return false;
    const fth_job_estimate estimate = fth_estimate_vm(&work, vm->on_demand, start_s);
    vm->seconds = estimate.seconds;
    vm->on_demand_usd = estimate.usd;
    vm->spot = fth_estimate_find_spot(catalogue, vm->on_demand);
    if (vm->spot)
        vm->spot_usd = fth_estimate_vm(&work, vm->spot, start_s).usd;
    return true;
}
