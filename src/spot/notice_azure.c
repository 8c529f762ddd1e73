/* Azure: Scheduled Events, asked for once a second as the documentation says. Events of other
 * machines of the same group arrive too: only those that name this VM count. The first question
 * switches the service on and may take two minutes. Once the state is safe the event is
 * acknowledged, so that nobody pays for the rest of the notice; but only where it names this VM
 * alone, since an acknowledgement speaks for all that it names. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "spot/spot_internal.h"

#define LOOK_EVERY_S     1.0
#define FIRST_PATIENCE_S 150.0
#define PATIENCE_S       10.0
#define STARTED_NOTICE_S 10.0 /* an event that has begun gives no time */
#define LONGEST_NOTICE_S 900.0

static const char events_path[] = "/metadata/scheduledevents?api-version=2020-07-01";

static const struct {
    const char *type;
    double usual_s; /* notice, where the event's time cannot be read; 0: no reason to stop */
    const char *verb;
} types[] = {
    {"Preempt", 30, "take this spot VM away"},
    {"Terminate", 300, "delete this VM"},
    {"Redeploy", 600, "redeploy this VM"},
    {"Reboot", 900, "reboot this VM"},
    {"Freeze", 0, "pause this VM"},
};

/* Scale sets write their members' names with a leading '_' here and without it elsewhere. */
static bool same_name(const char *a, const char *b)
{
    a += *a == '_';
    b += *b == '_';
    return strcasecmp(a, b) == 0;
}

static bool names_this(const json_t *event, const char *name, bool *alone)
{
    const json_t *resources = json_object_get(event, "Resources");
    size_t count = json_array_size(resources);
    *alone = count == 1;
    if (!*name) /* not known: better to save once too often */
        return true;
    for (size_t i = 0; i < count; i++) {
        const char *resource = json_string_value(json_array_get(resources, i));
        if (resource && same_name(resource, name))
            return true;
    }
    return false;
}

/* Seconds until the event may happen, by the service's clock. */
static double seconds_left(const json_t *event, double now, double usual_s)
{
    const char *not_before = json_string_value(json_object_get(event, "NotBefore"));
    const char *state = json_string_value(json_object_get(event, "EventStatus"));
    double at;
    if (not_before && fth_parse_time(not_before, &at))
        return fmin(fmax(at - now, 0), LONGEST_NOTICE_S);
    return state && strcmp(state, "Started") == 0 ? STARTED_NOTICE_S : usual_s;
}

static bool take_event(fth_listener *listener, const char *name, const json_t *event, double now, bool *told_freeze)
{
    const char *type = json_string_value(json_object_get(event, "EventType"));
    const char *id = json_string_value(json_object_get(event, "EventId"));
    bool alone;
    if (!type || !names_this(event, name, &alone))
        return false;
    for (size_t i = 0; i < FTH_COUNT_OF(types); i++) {
        if (strcmp(types[i].type, type) != 0)
            continue;
        double left = seconds_left(event, now, types[i].usual_s);
        if (types[i].usual_s == 0) {
            if (!*told_freeze)
                fth_listener_news(listener, "Azure will %s for some seconds, in %.0f s", types[i].verb, left);
            *told_freeze = true;
            return false;
        }
        if (id && alone)
            snprintf(listener->event, sizeof listener->event, "%s", id);
        fth_listener_notice(listener, left, "Azure will %s in %.0f s", types[i].verb, left);
        return true;
    }
    return false;
}

static bool take_events(fth_listener *listener, const char *name, fth_http_response *response, bool *told_freeze)
{
    double now = fth_metadata_now(response);
    json_t *answer = json_loads(fth_metadata_text(response), 0, NULL);
    const json_t *events = json_object_get(answer, "Events");
    bool valid = json_is_array(events);
    for (size_t i = 0; i < json_array_size(events) && !listener->noticed; i++)
        take_event(listener, name, json_array_get(events, i), now, told_freeze);
    json_decref(answer);
    if (!valid)
        fth_set_error("the Azure metadata service's answer is not a list of events");
    return valid;
}

static void listen_azure(fth_listener *listener)
{
    fth_identification found = {0};
    bool answered_once = false, told_freeze = false;
    do {
        if (!*found.name && !fth_identify_with(&listener->metadata, PATIENCE_S, &found) && answered_once)
            gethostname(found.name, sizeof found.name - 1); /* the VM's name, unless it was changed */
        fth_http_response response = {0};
        fth_status status = fth_metadata_get(&listener->metadata, events_path,
                                             answered_once ? PATIENCE_S : FIRST_PATIENCE_S, &response);
        bool answered = status == FTH_OK && response.code == 200;
        if (status == FTH_OK && !answered)
            fth_set_error("the Azure metadata service answers %d", response.code);
        if (answered)
            answered = take_events(listener, found.name, &response, &told_freeze);
        fth_http_response_release(&response);
        if (listener->noticed || fth_listener_closing(listener))
            return;
        answered_once = answered_once || answered;
        fth_listener_answered(listener, answered);
    } while (fth_listener_pause_to_look(listener, LOOK_EVERY_S));
}

static void acknowledge(fth_listener *listener)
{
    fth_metadata metadata;
    fth_http_response response = {0};
    if (!*listener->event)
        return;
    json_t *body = json_pack("{s:[{s:s}]}", "StartRequests", "EventId", listener->event);
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    fth_status status = text ? fth_metadata_open(FTH_CLOUD_AZURE, NULL, &metadata)
                             : fth_fail(FTH_NO_MEMORY, "no memory to acknowledge an event");
    if (status == FTH_OK) {
        status = fth_metadata_post(&metadata, events_path, text, 1.5, &response);
        if (status == FTH_OK && response.code != 200)
            status = fth_fail(FTH_IO, "answer %d", response.code);
        fth_http_response_release(&response);
        fth_metadata_close(&metadata);
    }
    if (status != FTH_OK)
        fth_log_debug("Azure was not told that this VM is ready to go: %s", fth_error_message());
    free(text);
}

const fth_notice_source fth_notice_azure = {
    .name = "azure", .cloud = FTH_CLOUD_AZURE, .listen = listen_azure, .acknowledge = acknowledge};
