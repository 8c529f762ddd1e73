/* See usage.h. */
#include "parameters/usage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TEXT = 256 };

struct fth_served_usage {
    fth_served_record *record;
    json_t *functions; /* by worker: {"function", "since_s"} */
};

/* The members that are copied; others are ignored. */
typedef struct member {
    const char *name;
    json_type type; /* JSON_REAL: any number of at least 0 */
} member;

static const member function_members[] = {
    {"provider", JSON_STRING}, {"function", JSON_STRING}, {"id", JSON_STRING}, {"memory_mb", JSON_REAL}, {0}};
static const member usage_members[] = {{"seconds", JSON_REAL},
                                       {"cold", JSON_TRUE},
                                       {"peak_bytes", JSON_REAL},
                                       {"received_bytes", JSON_REAL},
                                       {"sent_bytes", JSON_REAL},
                                       {"ended", JSON_STRING},
                                       {0}};

static bool is_good(const json_t *value, json_type type)
{
    switch (type) {
    case JSON_STRING: return json_is_string(value) && json_string_length(value) <= MOST_TEXT;
    case JSON_TRUE: return json_is_boolean(value);
    default: return json_is_number(value) && json_number_value(value) >= 0 && isfinite(json_number_value(value));
    }
}

static void copy_members(const json_t *from, const member *members, json_t *to)
{
    for (const member *m = members; m->name; m++) {
        json_t *value = json_object_get(from, m->name);
        if (value && is_good(value, m->type))
            json_object_set(to, m->name, value);
    }
}

fth_status fth_served_usage_create(fth_served_record *record, fth_served_usage **result)
{
    fth_status status = FTH_OK;
    fth_served_usage *usage = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *usage, &usage));
    usage->record = record;
    usage->functions = json_object();
    FTH_REQUIRE(usage->functions, FTH_NO_MEMORY, "no memory for the functions of workers");
    *result = usage;
    usage = NULL;

out:
    fth_served_usage_free(usage);
    return status;
}

void fth_served_usage_free(fth_served_usage *usage)
{
    if (!usage)
        return;
    json_decref(usage->functions);
    free(usage);
}

json_t *fth_usage_read_function(const json_t *function)
{
    json_t *copy = json_is_object(function) ? json_object() : NULL;
    if (copy)
        copy_members(function, function_members, copy);
    return copy;
}

void fth_served_usage_begin(fth_served_usage *usage, const char *worker, const json_t *function, double since_s)
{
    json_t *copy = fth_usage_read_function(function);
    if (copy)
        json_object_set_new(usage->functions, worker, json_pack("{s:o, s:f}", "function", copy, "since_s", since_s));
    else
        json_object_del(usage->functions, worker);
}

/* Starts an event with the worker and its function. */
static json_t *describe(const fth_served_usage *usage, const char *worker, double *since_s)
{
    const json_t *known = json_object_get(usage->functions, worker);
    json_t *event = json_pack("{s:s}", "worker", worker);
    if (known)
        copy_members(json_object_get(known, "function"), function_members, event);
    *since_s = json_number_value(json_object_get(known, "since_s"));
    return event;
}

void fth_served_usage_end(fth_served_usage *usage, const char *worker, const json_t *reported)
{
    double since_s = 0, now_s = fth_clock_wall_seconds();
    bool known = json_object_get(usage->functions, worker) != NULL;
    if (!known && !json_is_object(reported))
        return;
    json_t *event = describe(usage, worker, &since_s);
    copy_members(reported, function_members, event);
    copy_members(reported, usage_members, event);
    if (known && !json_object_get(event, "seconds"))
        json_object_set_new(event, "seconds", json_real(fmax(now_s - since_s, 0)));
    if (!json_object_get(event, "ended"))
        json_object_set_new(event, "ended", json_string("done"));
    fth_served_record_append(usage->record, "invocation", event);
    json_object_del(usage->functions, worker);
}

void fth_served_usage_lose(fth_served_usage *usage, const char *worker, double seen_s)
{
    double since_s = 0;
    if (!json_object_get(usage->functions, worker))
        return;
    json_t *event = describe(usage, worker, &since_s);
    json_object_set_new(event, "seconds", json_real(fmax(seen_s - since_s, 0)));
    json_object_set_new(event, "ended", json_string("lost"));
    fth_served_record_append(usage->record, "invocation", event);
    json_object_del(usage->functions, worker);
}

void fth_served_usage_forget(fth_served_usage *usage, const char *worker)
{
    json_object_del(usage->functions, worker);
}

json_t *fth_served_usage_to_json(const fth_served_usage *usage)
{
    return json_deep_copy(usage->functions);
}

void fth_served_usage_from_json(fth_served_usage *usage, const json_t *json)
{
    const char *worker;
    const json_t *known;
    json_object_foreach((json_t *)json, worker, known)
    {
        fth_served_usage_begin(usage, worker, json_object_get(known, "function"),
                               json_number_value(json_object_get(known, "since_s")));
    }
}
