/* See meeting.h. */
#include "train/loop/meeting.h"

#include <stdlib.h>

#include "train/run/shared_run.h"

static fth_status share_run(const fth_run_parts *parts, json_t *end)
{
    fth_status status = FTH_OK;
    json_t *run = NULL;

    FTH_TRY(fth_shared_run_describe(parts->selection, end, &run));
    FTH_TRY(fth_strategy_session_share_run(parts->session, run));

out:
    json_decref(run);
    return status;
}

/* Tells peers why no run was found, and fails for the same reason. */
static fth_status share_failure(const fth_run_parts *parts, fth_status found)
{
    char *message = fth_format("%s", fth_error_message());
    json_t *run = fth_shared_run_describe_failure(found);
    if (!run || fth_strategy_session_share_run(parts->session, run) != FTH_OK)
        fth_log_warning("cannot report to the other processes why this one ends: %s", fth_error_message());
    json_decref(run);
    fth_set_error("%s", message ? message : "the run was not found");
    free(message);
    return found;
}

static fth_status report_finished(const fth_run_selection *selection, fth_train_outcome *outcome)
{
    fth_record_summary summary = {0};
    fth_status status = fth_record_read(selection->folder, &summary);
    if (status != FTH_OK)
        return status;
    outcome->already_finished = true;
    outcome->run_folder = fth_format("%s", selection->folder);
    outcome->id = fth_format("%s", summary.id);
    outcome->end = json_incref(summary.end);
    fth_record_release(&summary);
    return FTH_OK;
}

static fth_status follow_run(const fth_run_parts *parts, const fth_train_options *asked, const json_t *run,
                             fth_train_outcome *outcome)
{
    fth_status status = fth_shared_run_follow(asked, run, parts->selection);
    outcome->follows = true;
    if (status == FTH_OK && parts->selection->finished) {
        outcome->already_finished = true;
        outcome->end = json_incref(json_object_get(run, "end"));
    }
    return status;
}

/* *run: what a peer found, or NULL. */
static fth_status meet(const fth_run_parts *parts, const fth_train_options *asked, const fth_strategy *strategy,
                       json_t **run)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_strategy_session_meet(parts->session, strategy, asked, run));
    FTH_TRY(fth_run_owner_set_node(parts->owner, fth_strategy_session_get_node(parts->session)));

out:
    return status;
}

static fth_status find_here(const fth_run_parts *parts, const fth_train_options *asked, fth_train_outcome *outcome)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_run_owner_find_run(parts->owner, asked));
    if (!parts->selection->finished)
        goto out;
    if (fth_run_owner_get_store(parts->owner))
        fth_run_store_fetch_models(fth_run_owner_get_store(parts->owner), parts->selection->folder);
    FTH_TRY(report_finished(parts->selection, outcome));

out:
    return status;
}

static fth_status find_run(const fth_run_parts *parts, const fth_train_options *asked,
                           const fth_strategy *const *strategies, bool *found, fth_train_outcome *outcome)
{
    fth_status status = FTH_OK;
    const fth_strategy *strategy = NULL;
    json_t *run = NULL;

    if (fth_strategy_find(strategies, asked->strategy, &strategy) == FTH_OK && strategy->meet) {
        FTH_TRY(fth_strategy_choose(strategies, asked, &strategy)); /* wrong options fail before peers are waited for */
        FTH_TRY(meet(parts, asked, strategy, &run));
    }
    *found = !run;
    status = run ? follow_run(parts, asked, run, outcome) : find_here(parts, asked, outcome);
    if (!run && fth_strategy_session_has_met(parts->session))
        status = status == FTH_OK ? share_run(parts, outcome->end) : share_failure(parts, status);

out:
    json_decref(run);
    return status;
}

/* Each process has found the run, and one of them goes on with what it found. */
static fth_status meet_late(const fth_run_parts *parts, const fth_train_options *asked, const fth_strategy *strategy,
                            bool *found, fth_train_outcome *outcome)
{
    fth_status status = FTH_OK;
    json_t *run = NULL;

    FTH_TRY(meet(parts, asked, strategy, &run));
    *found = !run;
    if (run) {
        fth_run_selection_release(parts->selection);
        FTH_TRY(follow_run(parts, asked, run, outcome));
    } else {
        FTH_TRY(share_run(parts, NULL));
    }

out:
    json_decref(run);
    return status;
}

fth_status fth_meeting_find_run(const fth_run_parts *parts, const fth_train_options *asked,
                                const fth_strategy *const *strategies, const fth_strategy **strategy, bool *found,
                                fth_train_outcome *outcome)
{
    fth_status status = FTH_OK;

    FTH_TRY(find_run(parts, asked, strategies, found, outcome));
    FTH_TRY(fth_strategy_choose(strategies, &parts->selection->options, strategy));
    if (!parts->selection->finished && (*strategy)->meet && !fth_strategy_session_has_met(parts->session))
        FTH_TRY(meet_late(parts, asked, *strategy, found, outcome));

out:
    return status;
}
