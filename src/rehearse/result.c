/* The result of a rehearsal: as JSON, and its memory. */
#include <stdlib.h>

#include "base/json.h"
#include "rehearse/rehearse.h"

void fth_rehearsal_release(fth_rehearsal *rehearsal)
{
    free(rehearsal->accounts);
    free(rehearsal->model);
    free(rehearsal->uninterrupted_model);
    *rehearsal = (fth_rehearsal){0};
}

json_t *fth_rehearsal_to_json(const fth_rehearsal *rehearsal)
{
    json_t *list = json_array();
    for (size_t i = 0; i < rehearsal->count; i++) {
        const fth_interruption_account *account = &rehearsal->accounts[i];
        json_t *one =
            json_pack("{s:s, s:s, s:I, s:I, s:I, s:b}", "kind", fth_interruption_names[account->planned.kind], "moment",
                      account->moment, "step", (json_int_t)account->step, "saved_step", (json_int_t)account->saved_step,
                      "steps_lost", (json_int_t)account->steps_lost, "outlived", account->outlived);
        if (account->resumed_step >= 0)
            json_object_set_new(one, "resumed_step", json_integer(account->resumed_step));
        if (account->planned.kind != FTH_INTERRUPTION_KILL9)
            fth_json_set_number(one, "notice_s", account->planned.notice_s);
        fth_json_set_number(one, "notice_used_s", account->notice_used_s);
        fth_json_set_number(one, "machine_s", account->machine_s);
        fth_json_set_number(one, "seconds_lost", account->seconds_lost);
        fth_json_set_number(one, "dollars_lost", account->dollars_lost);
        fth_json_set_number(one, "price_usd_per_hour", account->price_usd_per_hour);
        json_array_append_new(list, one);
    }
    json_t *json = json_pack("{s:o, s:I, s:I, s:o, s:I, s:I}", "interruptions", list, "machines",
                             (json_int_t)rehearsal->machines, "steps", (json_int_t)rehearsal->steps, "seconds",
                             fth_json_number(rehearsal->seconds), "lost_before_checkpoint",
                             (json_int_t)rehearsal->lost_before_checkpoint, "torn", (json_int_t)rehearsal->torn);
    fth_json_set_number(json, "uninterrupted_s", rehearsal->uninterrupted_s);
    if (rehearsal->model)
        json_object_set_new(json, "model", json_string(rehearsal->model));
    if (rehearsal->uninterrupted_model)
        json_object_set_new(json, "equal", json_boolean(rehearsal->equal));
    return json;
}
