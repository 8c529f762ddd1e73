/* Status, outcomes and logs, read from a platform's folder. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "platform/files.h"
#include "platform/platform_internal.h"

enum { SHOWN_ACTIVATIONS = 20 };

static double number_or_nan(const json_t *record, const char *key)
{
    const json_t *number = json_object_get(record, key);
    return json_is_number(number) ? json_number_value(number) : NAN;
}

void fth_activation_fill_outcome(const char *folder, const json_t *record, fth_invocation_outcome *outcome)
{
    const char *state = fth_json_text(record, "state", ""), *error = fth_json_text(record, "error", NULL);
    json_t *result = json_object_get(record, "result");
    snprintf(outcome->id, sizeof outcome->id, "%s", fth_json_text(record, "id", ""));
    outcome->state = strcmp(state, "running") == 0 ? FTH_INVOCATION_RUNNING
                     : strcmp(state, "done") == 0  ? FTH_INVOCATION_DONE
                                                   : FTH_INVOCATION_FAILED;
    if (json_is_object(result))
        outcome->result = json_incref(result);
    else if (result) /* Lambda's may be any JSON */
        outcome->result = json_pack("{s:O}", "result", result);
    outcome->error = error ? strdup(error) : NULL;
    outcome->duration_s = number_or_nan(record, "duration_s");
    outcome->start_s = number_or_nan(record, "init_s");
    outcome->peak_bytes = number_or_nan(record, "peak_bytes");
    if (outcome->state != FTH_INVOCATION_RUNNING &&
        fth_activation_log_text(folder, outcome->id, &outcome->logs) != FTH_OK)
        outcome->logs = NULL;
}

static void add_invocations(const char *folder, json_t *facts)
{
    json_t *records = NULL, *record, *shown = json_array();
    size_t i;
    if (fth_activation_list(folder, fth_json_text(facts, "name", ""), 0, SHOWN_ACTIVATIONS, &records) == FTH_OK)
        json_array_foreach(records, i, record)
        {
            static const char *const keys[] = {"id",         "state",  "kind",       "error", "created",
                                               "duration_s", "init_s", "peak_bytes", "end"};
            json_t *each = json_object(), *start = json_object_get(record, "start");
            char started[40];
            if (!start) /* a running one has only the time of its invocation */
                start = json_object_get(record, "created");
            for (size_t k = 0; k < FTH_COUNT_OF(keys); k++)
                if (json_object_get(record, keys[k]))
                    json_object_set(each, keys[k], json_object_get(record, keys[k]));
            fth_clock_format_utc(json_number_value(start), started, sizeof started);
            if (json_is_number(start))
                json_object_set_new(each, "started", json_string(started));
            json_array_append_new(shown, each);
        }
    json_object_set_new(facts, "invocations", shown);
    json_decref(records);
}

fth_status fth_describe_functions(const char *folder, const char *name, json_t **result)
{
    fth_status status = FTH_OK;
    fth_action action = {0};
    json_t *facts;
    size_t i;

    *result = NULL;
    if (name) {
        FTH_TRY(fth_action_load(folder, name, &action));
        *result = json_array();
        json_array_append(*result, action.facts);
    } else {
        FTH_TRY(fth_action_list(folder, result));
    }
    json_array_foreach(*result, i, facts)
    {
        char updated[40];
        fth_clock_format_utc(json_number_value(json_object_get(facts, "updated")), updated, sizeof updated);
        json_object_set_new(facts, "updated", json_string(updated));
        add_invocations(folder, facts);
    }

out:
    fth_action_release(&action);
    return status;
}

fth_status fth_function_logs(const char *folder, const char *name, const char *id, char **text)
{
    fth_status status = FTH_OK;
    fth_action action = {0};
    json_t *records = NULL;

    *text = NULL;
    FTH_TRY(fth_action_load(folder, name, &action));
    if (!id) {
        FTH_TRY(fth_activation_list(folder, name, 0, 1, &records));
        id = fth_json_text(json_array_get(records, 0), "id", NULL);
        FTH_REQUIRE(id, FTH_INVALID, "function %s has not been invoked yet", name);
    }
    FTH_TRY(fth_activation_log_text(folder, id, text));

out:
    fth_action_release(&action);
    json_decref(records);
    return status;
}
