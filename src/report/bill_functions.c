/* The functions of a parameter server's run: a row for each, what they cost, and what a VM would
 * have cost for the same samples. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "report/report_internal.h"

enum { CELL = 96 };

static void write_bytes(double bytes, char *text, size_t size)
{
    if (isfinite(bytes))
        fth_text_bytes((int64_t)bytes, text, size);
    else
        snprintf(text, size, "-");
}

static fth_status add_function(fth_table *table, const fth_ledger_function *of)
{
    char name[2 * CELL], memory[CELL] = "-", count[CELL], cold[CELL], lost[CELL], seconds[CELL], gb_s[CELL], sent[CELL];
    char peak[CELL], cost[CELL];
    snprintf(name, sizeof name, "%s%s%s", *of->provider ? of->provider : "functions", *of->function ? " " : "",
             of->function);
    if (of->memory_mb > 0)
        snprintf(memory, sizeof memory, "%.0f MB", of->memory_mb);
    fth_text_count(of->invocations, count, sizeof count);
    fth_text_count(of->cold, cold, sizeof cold);
    fth_text_count(of->lost + of->failed, lost, sizeof lost);
    snprintf(seconds, sizeof seconds, "%.1f", of->seconds);
    snprintf(gb_s, sizeof gb_s, of->memory_mb > 0 ? "%.2f" : "-", of->gb_s);
    write_bytes(of->sent_bytes, sent, sizeof sent);
    write_bytes(of->peak_bytes, peak, sizeof peak);
    fth_usd_format(of->usd, cost, sizeof cost);
    return fth_table_add_row(table, (const char *[]){name, memory, count, cold, lost, seconds, gb_s, sent, peak, cost});
}

/* What a comparison assumes is part of it. */
static void print_vm(FILE *output, const fth_ledger *ledger, const fth_catalogue *catalogue)
{
    fth_ledger_vm vm;
    char on_demand[CELL], spot[CELL], time[CELL];
    if (!catalogue || !fth_ledger_compare_vm(ledger, catalogue, FTH_VM_START_S, &vm))
        return;
    fth_usd_format(vm.on_demand_usd, on_demand, sizeof on_demand);
    fth_usd_format(vm.spot_usd, spot, sizeof spot);
    fth_duration_format(vm.seconds, time, sizeof time);
    fth_print_line(output,
                   "a VM for the same samples: %s, %s on demand%s%s, in %s with %.0f s to start, if its %.0f vCPUs are "
                   "as fast as those of functions",
                   vm.on_demand->instance, on_demand, vm.spot ? ", spot " : "", vm.spot ? spot : "", time,
                   FTH_VM_START_S, vm.on_demand->vcpus);
}

fth_status fth_report_functions(FILE *output, const fth_ledger *ledger, const fth_catalogue *catalogue)
{
    fth_status status = FTH_OK;
    fth_table *table = NULL;

    if (ledger->function_count == 0)
        return FTH_OK;
    FTH_TRY(FTH_TABLE(&table, "function", ">memory", ">invocations", ">cold", ">lost", ">seconds", ">GB-s", ">sent",
                      ">peak", ">cost"));
    for (size_t i = 0; i < ledger->function_count; i++)
        FTH_TRY(add_function(table, &ledger->functions[i]));
    fth_table_print(output, table);
    if (isfinite(ledger->functions_usd) && catalogue)
        fth_print_line(output, "functions at the prices of: %s", catalogue->name);
    else
        fprintf(output, "no price of these functions is known, or not how much memory they had: `farthing prices` "
                        "shows the catalogue\n");
    print_vm(output, ledger, catalogue);
    fputc('\n', output);
out:
    fth_table_free(table);
    return status;
}

static json_t *function_json(const fth_ledger_function *of)
{
    json_t *object = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "provider", of->provider, "function", of->function,
                               "invocations", (json_int_t)of->invocations, "cold", (json_int_t)of->cold, "lost",
                               (json_int_t)of->lost, "failed", (json_int_t)of->failed);
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"memory_mb", of->memory_mb > 0 ? of->memory_mb : NAN},
                   {"seconds", of->seconds},
                   {"lost_s", of->lost_s},
                   {"gb_s", of->memory_mb > 0 ? of->gb_s : NAN},
                   {"received_bytes", of->received_bytes},
                   {"sent_bytes", of->sent_bytes},
                   {"peak_bytes", of->peak_bytes},
                   {"usd", of->usd},
                   {"lost_usd", of->lost_usd}};
    for (size_t i = 0; i < FTH_COUNT_OF(numbers); i++)
        fth_json_set_number(object, numbers[i].key, numbers[i].value);
    return object;
}

void fth_report_functions_json(const fth_ledger *ledger, const fth_catalogue *catalogue, json_t *bill)
{
    fth_ledger_vm vm;
    if (ledger->function_count == 0)
        return;
    json_t *all = json_array();
    for (size_t i = 0; i < ledger->function_count; i++)
        json_array_append_new(all, function_json(&ledger->functions[i]));
    json_object_set_new(bill, "functions", all);
    fth_json_set_number(bill, "functions_usd", ledger->functions_usd);
    if (!catalogue || !fth_ledger_compare_vm(ledger, catalogue, FTH_VM_START_S, &vm))
        return;
    json_t *object = json_pack("{s:s, s:s, s:f, s:f, s:f, s:f}", "cloud", vm.on_demand->cloud, "instance",
                               vm.on_demand->instance, "vcpus", vm.on_demand->vcpus, "seconds", vm.seconds, "start_s",
                               FTH_VM_START_S, "usd", vm.on_demand_usd);
    fth_json_set_number(object, "spot_usd", vm.spot_usd);
    json_object_set_new(bill, "instead_of_functions", object);
}
