/* The bill as JSON: all that bill.c prints, and every interruption. */
#include <string.h>

#include "base/json.h"
#include "report/report_internal.h"

static const char *ending_name(fth_record_ending ending)
{
    switch (ending) {
    case FTH_ENDING_FINISHED: return "finished";
    case FTH_ENDING_INTERRUPTED: return "interrupted";
    case FTH_ENDING_FAILED: return "failed";
    case FTH_ENDING_UNKNOWN: break;
    }
    return "unknown";
}

static void set_money(json_t *object, double seconds, double useful_s, double lost_s, double starting_s, double usd,
                      double lost_usd)
{
    fth_json_set_number(object, "seconds", seconds);
    fth_json_set_number(object, "useful_s", useful_s);
    fth_json_set_number(object, "lost_s", lost_s);
    fth_json_set_number(object, "starting_s", starting_s);
    fth_json_set_number(object, "usd", usd);
    fth_json_set_number(object, "lost_usd", lost_usd);
}

static json_t *machine_json(const fth_ledger_row *row)
{
    static const char *const told[] = {"host",   "cloud",  "instance",           "region",
                                       "market", "device", "price_usd_per_hour", "price_source"};
    const fth_record_machine *machine = row->machine;
    json_t *object = json_object();
    for (size_t i = 0; i < FTH_COUNT_OF(told); i++)
        if (json_object_get(machine->event, told[i]))
            json_object_set(object, told[i], json_object_get(machine->event, told[i]));
    fth_json_set_number(object, "began_s", machine->began_s);
    fth_json_set_number(object, "last_s", machine->last_s);
    set_money(object, row->seconds, row->useful_s, row->lost_s, row->starting_s, row->usd, row->lost_usd);
    json_object_set_new(object, "lost_is_minimum", json_boolean(row->lost_is_minimum));
    json_object_set_new(object, "first_step", json_integer(machine->first_step));
    json_object_set_new(object, "last_step", json_integer(machine->last_step));
    json_object_set_new(object, "steps", json_integer(row->steps));
    json_object_set_new(object, "steps_lost", json_integer(row->steps_lost));
    fth_json_set_number(object, "epochs", row->epochs);
    fth_json_set_number(object, "learning_rate", machine->learning_rate);
    fth_json_set_number(object, "accuracy", row->accuracy);
    json_object_set_new(object, "ending", json_string(ending_name(machine->ending)));
    if (machine->notice)
        json_object_set(object, "notice", machine->notice);
    return object;
}

static json_t *node_json(const fth_ledger_node *of)
{
    json_t *object = json_copy(of->node->facts);
    json_object_set_new(object, "node", json_string(of->node->name));
    json_object_set_new(object, "machine", json_integer((json_int_t)of->node->machine));
    fth_json_set_number(object, "seconds", of->node->seconds);
    fth_json_set_number(object, "usd", of->usd);
    return object;
}

static json_t *milestones_json(const fth_ledger *ledger)
{
    static const double milestones[] = {0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999};
    json_t *array = json_array();
    for (size_t i = 0; i < FTH_COUNT_OF(milestones); i++) {
        const fth_record_point *point = fth_ledger_reached(ledger, milestones[i]);
        if (!point)
            break;
        json_t *object = json_pack("{s:f, s:I}", "accuracy", milestones[i], "step", (json_int_t)point->step);
        fth_json_set_number(object, "epoch", point->epoch);
        fth_json_set_number(object, "seconds", fth_ledger_seconds_at(ledger, point));
        fth_json_set_number(object, "usd", fth_ledger_usd_at(ledger, point));
        json_array_append_new(array, object);
    }
    return array;
}

json_t *fth_report_bill_json(const fth_record_summary *run, const fth_catalogue *catalogue)
{
    fth_ledger ledger = {0};
    json_t *bill = NULL;
    if (fth_ledger_make(run, &ledger) != FTH_OK || ledger.count == 0)
        goto out;
    bill = json_object();
    json_t *machines = json_array();
    for (size_t i = 0; i < ledger.count; i++)
        json_array_append_new(machines, machine_json(&ledger.rows[i]));
    json_object_set_new(bill, "machines", machines);
    json_t *nodes = json_array();
    for (size_t i = 0; i < ledger.node_count; i++)
        json_array_append_new(nodes, node_json(&ledger.nodes[i]));
    json_object_set_new(bill, "nodes", nodes);
    json_object_set_new(bill, "machines_priced", json_integer((json_int_t)ledger.priced));
    set_money(bill, ledger.seconds, ledger.useful_s, ledger.lost_s, ledger.starting_s, ledger.usd, ledger.lost_usd);
    json_object_set_new(bill, "lost_is_minimum", json_boolean(ledger.lost_is_minimum));
    json_object_set_new(bill, "steps_lost", json_integer(ledger.steps_lost));
    fth_json_set_number(bill, "epochs", ledger.epochs);
    fth_json_set_number(bill, "usd_per_epoch", ledger.usd_per_epoch);
    fth_report_functions_json(&ledger, catalogue, bill);
    json_object_set_new(bill, "to_accuracy", milestones_json(&ledger));
out:
    fth_ledger_release(&ledger);
    return bill;
}
