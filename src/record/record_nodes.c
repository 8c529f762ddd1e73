/* The nodes that trained with a machine of the record, from its "group" events (--strategy
 * data-parallel).
 *
 * The process of rank 0 writes the record; its own node is one of the record's machines
 * (record_machines.c). The event's members name the group's other nodes. A node counts from the
 * event of the first group that it is in, or from the beginning of the process that leads that
 * group where it is the first one, until the event of the next group without it, or the end of that
 * process. Times are on the steady clock of the process that leads. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "record/record_internal.h"

/* A record is untrusted input. */
static const char *node_of(const json_t *member)
{
    const char *node = json_string_value(json_object_get(member, "node"));
    return node ? node : "";
}

static fth_status find_node(fth_record_summary *summary, size_t *capacity, size_t machine, const json_t *member,
                            fth_record_node **node)
{
    const char *name = node_of(member);
    for (size_t i = 0; i < summary->node_count; i++)
        if (summary->nodes[i].machine == machine && strcmp(summary->nodes[i].name, name) == 0) {
            *node = &summary->nodes[i];
            return FTH_OK;
        }
    json_t *facts = json_object_get(member, "facts") ? json_copy(json_object_get(member, "facts")) : json_object();
    const char *host = json_string_value(json_object_get(member, "host"));
    if (!json_is_object(facts)) {
        json_decref(facts);
        facts = json_object();
    }
    if (host && !json_object_get(facts, "host"))
        json_object_set_new(facts, "host", json_string(host));
    char *copy = strdup(name);
    fth_status status = fth_grow(&summary->nodes, summary->node_count, capacity, sizeof *summary->nodes);
    if (status != FTH_OK || !copy) {
        json_decref(facts);
        free(copy);
        return status != FTH_OK ? status : fth_fail(FTH_NO_MEMORY, "no memory for the nodes of %s", summary->folder);
    }
    *node = &summary->nodes[summary->node_count++];
    **node = (fth_record_node){.machine = machine, .name = copy, .facts = facts};
    return FTH_OK;
}

/* Adds `seconds` to the group's nodes other than that of rank 0. */
static fth_status credit(fth_record_summary *summary, size_t *capacity, size_t machine, const json_t *group,
                         double seconds)
{
    const json_t *members = json_object_get(group, "members");
    const char *leader = node_of(json_array_get(members, 0));
    size_t i;
    json_t *member;
    json_array_foreach(members, i, member)
    {
        fth_record_node *node = NULL;
        const char *name = node_of(member);
        bool counted = strcmp(name, leader) == 0;
        for (size_t k = 0; k < i && !counted; k++)
            counted = strcmp(node_of(json_array_get(members, k)), name) == 0;
        if (counted)
            continue;
        fth_status status = find_node(summary, capacity, machine, member, &node);
        if (status != FTH_OK)
            return status;
        node->seconds += fmax(0, seconds);
    }
    return FTH_OK;
}

/* As in the ledger: the last events of a killed machine may be missing, but what was trained was
 * paid for. */
static double end_of(const fth_record_machine *machine)
{
    return fmax(machine->seconds, machine->last_elapsed_s - machine->first_elapsed_s);
}

fth_status fth_record_find_nodes(fth_record_summary *summary)
{
    fth_status status = FTH_OK;
    size_t i, capacity = 0, machines = 0;
    json_t *event;
    const json_t *group = NULL;
    double since_s = 0;

    json_array_foreach(summary->events, i, event)
    {
        const char *name = json_string_value(json_object_get(event, "event"));
        bool begins = strcmp(name, "start") == 0 || strcmp(name, "resume") == 0;
        if (begins && group)
            FTH_TRY(
                credit(summary, &capacity, machines - 1, group, end_of(&summary->machines[machines - 1]) - since_s));
        if (begins) {
            machines++;
            group = NULL;
            since_s = 0;
        } else if (strcmp(name, "group") == 0 && machines > 0 && machines <= summary->machine_count) {
            double now_s = fth_record_seconds_until(&summary->machines[machines - 1], event);
            if (group) {
                FTH_TRY(credit(summary, &capacity, machines - 1, group, now_s - since_s));
                since_s = now_s;
            }
            group = event;
        }
    }
    if (group)
        FTH_TRY(credit(summary, &capacity, machines - 1, group, end_of(&summary->machines[machines - 1]) - since_s));

out:
    return status;
}

void fth_record_release_nodes(fth_record_summary *summary)
{
    for (size_t i = 0; i < summary->node_count; i++) {
        free(summary->nodes[i].name);
        json_decref(summary->nodes[i].facts);
    }
    free(summary->nodes);
    summary->nodes = NULL;
    summary->node_count = 0;
}
