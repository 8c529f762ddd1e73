/* See shared_run.h. */
#include "train/run/shared_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/model/run_network.h"
#include "train/run/run_record.h"

/* ---- telling ---- */

fth_status fth_shared_run_describe(fth_run_selection *selection, json_t *end, json_t **run)
{
    fth_status status = FTH_OK;
    const char *id = json_string_value(json_object_get(selection->run, "id"));
    json_t *configuration = fth_options_to_json(&fth_train_option_table, &selection->options, false);

    *run = NULL;
    if (!selection->id && id)
        selection->id = fth_format("%s", id);
    else if (!selection->id)
        selection->id = fth_run_record_make_id(&selection->options);
    FTH_REQUIRE(selection->id && configuration, FTH_NO_MEMORY, "no memory to describe the run to peers");
    FTH_TRY(fth_run_network_find(&selection->options, selection->folder));
    *run = json_pack("{s:s, s:s, s:s, s:O, s:b, s:O*, s:O*, s:s*}", "id", selection->id, "identity",
                     selection->identity, "lease_group", selection->lease_group, "configuration", configuration,
                     "finished", selection->finished, "run", selection->run, "end", end, "network",
                     fth_run_network_text(&selection->options));
    FTH_REQUIRE(*run, FTH_NO_MEMORY, "no memory to describe the run to peers");

out:
    json_decref(configuration);
    return status;
}

json_t *fth_shared_run_describe_failure(fth_status status)
{
    return json_pack("{s:{s:i, s:s}}", "failed", "status", (int)status, "message", fth_error_message());
}

/* ---- being told ---- */

/* What a standby says for itself, every process does: where it runs, with how many threads, where
 * it saves and what it costs. All else is the run's. */
static fth_status take_options(const json_t *configuration, fth_run_selection *selection)
{
    fth_status status = FTH_OK;
    const fth_option_table *table = &fth_train_option_table;
    json_t *theirs = json_object();

    FTH_REQUIRE(theirs, FTH_NO_MEMORY, "no memory for the options");
    for (size_t i = 0; i < table->count; i++) {
        json_t *value = json_object_get(configuration, table->options[i].name);
        if (value && !fth_options_is_for(&table->options[i], FTH_FOR_STANDBY))
            json_object_set(theirs, table->options[i].name, value);
    }
    FTH_TRY(fth_options_from_json(table, &selection->options, theirs, "the run that a peer found"));
    FTH_TRY(fth_run_selection_complete(&selection->options));

out:
    json_decref(theirs);
    return status;
}

static fth_status fail_as_found(const json_t *failed)
{
    const char *message = json_string_value(json_object_get(failed, "message"));
    const json_int_t code = json_integer_value(json_object_get(failed, "status"));
    const fth_status status = code > FTH_OK && code <= FTH_INTERRUPTED ? (fth_status)code : FTH_PEER_LOST;
    return fth_fail(status, "%s", message ? message : "the process that looks for the run found none");
}

fth_status fth_shared_run_follow(const fth_train_options *asked, const json_t *run, fth_run_selection *selection)
{
    fth_status status = FTH_OK;
    const json_t *failed = json_object_get(run, "failed"), *configuration = json_object_get(run, "configuration");
    const char *id = json_string_value(json_object_get(run, "id"));
    const char *identity = json_string_value(json_object_get(run, "identity"));
    const char *group = json_string_value(json_object_get(run, "lease_group"));
    const char *network = json_string_value(json_object_get(run, "network"));
    json_t *past = json_object_get(run, "run");

    FTH_TRY(fth_run_selection_prepare(asked, selection));
    if (failed)
        FTH_TRY(fail_as_found(failed));
    FTH_REQUIRE(id && *id && fth_record_check_id(id) == FTH_OK && identity &&
                    strlen(identity) < sizeof selection->identity && json_is_object(configuration),
                FTH_CORRUPT, "what a peer says about the run it found is not valid");
    FTH_TRY(take_options(configuration, selection));
    if (network)
        FTH_TRY(fth_run_network_take(&selection->options, network, "the run that a peer found"));
    memcpy(selection->identity, identity, strlen(identity) + 1);
    snprintf(selection->lease_group, sizeof selection->lease_group, "%s", group ? group : "");
    selection->of_peer = true;
    selection->finished = json_is_true(json_object_get(run, "finished"));
    selection->run = json_is_object(past) ? json_incref(past) : NULL;
    selection->id = fth_format("%s", id);
    FTH_REQUIRE(selection->id, FTH_NO_MEMORY, "no memory for the run's id");

out:
    return status;
}
