/* AWS: spot/instance-action says when this machine ends, two minutes before; a rebalance
 * recommendation says that it may be next, and is no reason to stop. The documentation asks to look
 * every five seconds. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "spot/spot_internal.h"

#define LOOK_EVERY_S   2.0
#define PATIENCE_S     4.0
#define USUAL_NOTICE_S 120.0

static void take_action(fth_listener *listener, fth_http_response *response)
{
    double now = fth_metadata_now(response), at;
    json_t *answer = json_loads(fth_metadata_text(response), 0, NULL);
    const char *action = json_string_value(json_object_get(answer, "action"));
    const char *time = json_string_value(json_object_get(answer, "time"));
    char what[32], when[64];
    snprintf(what, sizeof what, "%s", action ? action : "interrupt");
    if (time && fth_parse_time(time, &at)) {
        /* Never more than the two minutes there are: a time far away is a wrong one. */
        double left = fmin(fmax(at - now, 0), USUAL_NOTICE_S);
        fth_clock_format_utc(at, when, sizeof when);
        fth_listener_notice(listener, left, "AWS will %s this instance at %s", what, when);
    } else if (action) {
        /* It has begun at some moment since we last looked. */
        fth_listener_notice(listener, USUAL_NOTICE_S - LOOK_EVERY_S - PATIENCE_S,
                            "AWS will %s this instance within two minutes (it gives no time)", what);
    }
    json_decref(answer);
}

static void listen_aws(fth_listener *listener)
{
    bool recommended = false, garbage = false;
    do {
        fth_http_response response = {0};
        fth_status status =
            fth_metadata_get(&listener->metadata, "/latest/meta-data/spot/instance-action", PATIENCE_S, &response);
        if (status == FTH_OK && response.code == 200)
            take_action(listener, &response);
        if (status == FTH_OK && response.code == 200 && !listener->noticed && !garbage) {
            garbage = true;
            fth_listener_news(listener, "the AWS metadata service's answer about this instance's end makes no sense");
        }
        bool answered = status == FTH_OK && (response.code == 200 || response.code == 404);
        if (status == FTH_OK && !answered)
            fth_set_error("the AWS metadata service answers %d", response.code);
        fth_http_response_release(&response);
        fth_listener_answered(listener, answered);
        if (listener->noticed)
            return;
        if (!answered || recommended)
            continue;
        status = fth_metadata_get(&listener->metadata, "/latest/meta-data/events/recommendations/rebalance", PATIENCE_S,
                                  &response);
        if (status == FTH_OK && response.code == 200) {
            json_t *answer = json_loads(fth_metadata_text(&response), 0, NULL);
            const char *time = json_string_value(json_object_get(answer, "noticeTime"));
            recommended = json_is_object(answer);
            if (recommended)
                fth_listener_news(listener,
                                  "AWS recommends rebalancing: this instance is likely to be interrupted%s%.40s",
                                  time ? ", since " : "", time ? time : "");
            json_decref(answer);
        }
        fth_http_response_release(&response);
    } while (fth_listener_pause_to_look(listener, LOOK_EVERY_S));
}

const fth_notice_source fth_notice_aws = {.name = "aws", .cloud = FTH_CLOUD_AWS, .listen = listen_aws};
