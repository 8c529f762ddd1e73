/* Google: instance/preempted turns TRUE and instance/maintenance-event changes; both can be waited
 * on, so there is nothing to poll: the service holds the request until the value changes. Each has
 * a thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spot/spot_internal.h"

#define USUAL_NOTICE_S 30.0
enum { HOLD_S = 60, PATIENCE_S = 5 };

/* Waits for changes of instance/`key`; `take` looks at a value and returns true for a notice. */
static void listen_to(fth_listener *listener, const char *key, bool (*take)(fth_listener *, const char *value))
{
    char etag[128] = "", path[512];
    double pause_s = 0;
    while (fth_listener_pause_to_look(listener, pause_s)) {
        fth_http_response response = {0};
        /* The first answer comes at once and says which version of the value to wait from: no
         * change is missed. */
        char *escaped = fth_http_escape(etag, false);
        if (*etag)
            snprintf(path, sizeof path,
                     "/computeMetadata/v1/instance/%s?wait_for_change=true&timeout_sec=%d&last_etag=%s", key, HOLD_S,
                     escaped ? escaped : "");
        else
            snprintf(path, sizeof path, "/computeMetadata/v1/instance/%s", key);
        free(escaped);
        double asked_at_s = fth_clock_seconds();
        fth_status status =
            fth_metadata_get(&listener->metadata, path, *etag ? HOLD_S + PATIENCE_S : PATIENCE_S, &response);
        bool answered = status == FTH_OK && response.code == 200;
        if (status == FTH_OK && !answered)
            fth_set_error("the Google metadata service answers %d", response.code);
        bool noticed = answered && take(listener, fth_metadata_text(&response));
        char *version = answered ? fth_http_header(&response, "ETag") : NULL;
        bool changed = version && strcmp(version, etag) != 0;
        snprintf(etag, sizeof etag, "%s", version ? version : "");
        free(version);
        fth_http_response_release(&response);
        if (noticed || fth_listener_closing(listener))
            return;
        fth_listener_answered(listener, answered);
        /* A service that does not hold the request is not asked more than once a second. */
        bool held = fth_clock_seconds() - asked_at_s > 1;
        pause_s = answered && (changed || held) ? 0 : 1;
    }
}

static bool take_preempted(fth_listener *listener, const char *value)
{
    if (strcmp(value, "TRUE") != 0)
        return false;
    fth_listener_notice(listener, USUAL_NOTICE_S, "Google is preempting this instance: 30 s at most");
    return true;
}

static void listen_preempted(fth_listener *listener)
{
    listen_to(listener, "preempted", take_preempted);
}

static bool take_maintenance(fth_listener *listener, const char *value)
{
    if (strcmp(value, "TERMINATE_ON_HOST_MAINTENANCE") == 0) {
        fth_listener_notice(listener, USUAL_NOTICE_S, "Google will terminate this instance for host maintenance");
        return true;
    }
    if (strcmp(value, "MIGRATE_ON_HOST_MAINTENANCE") == 0)
        fth_listener_news(listener, "Google is moving this instance to another host: it may be slow for a while");
    return false;
}

static void listen_maintenance(fth_listener *listener)
{
    listen_to(listener, "maintenance-event", take_maintenance);
}

const fth_notice_source fth_notice_gcp = {.name = "gcp", .cloud = FTH_CLOUD_GCP, .listen = listen_preempted};
const fth_notice_source fth_notice_gcp_maintenance = {
    .name = "gcp", .cloud = FTH_CLOUD_GCP, .second = true, .listen = listen_maintenance};
