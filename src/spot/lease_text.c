/* See lease_text.h. */
#include "spot/lease_text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LEASE_BYTES = 64 << 10 };

void fth_lease_text_release(fth_lease_text *text)
{
    free(text->bytes);
    *text = (fth_lease_text){0};
}

static void copy_member(char *to, size_t size, const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    snprintf(to, size, "%s", value ? value : "");
}

static fth_status parse_text(fth_store *store, fth_lease_text *text)
{
    json_t *json = json_loads(text->bytes, 0, NULL);
    const json_t *fence = json_object_get(json, "fence");
    bool valid =
        json_is_string(json_object_get(json, "owner")) && json_is_integer(fence) && json_integer_value(fence) > 0;
    if (valid) {
        copy_member(text->owner, sizeof text->owner, json, "owner");
        copy_member(text->host, sizeof text->host, json, "host");
        copy_member(text->instance, sizeof text->instance, json, "instance");
        text->fence = json_integer_value(fence);
        text->period_s = json_number_value(json_object_get(json, "period_s"));
        text->renewed_s = json_number_value(json_object_get(json, "renewed_s"));
        text->process_s = json_number_value(json_object_get(json, "process_s"));
    }
    json_decref(json);
    if (!valid)
        return fth_fail(FTH_CORRUPT, "%s/" FTH_LEASE_KEY " is not a lease; if no machine trains this run, delete it",
                        fth_store_url(store));
    return FTH_OK;
}

fth_status fth_lease_text_read(fth_store *store, fth_lease_text *text)
{
    size_t size = 0;
    fth_lease_text_release(text);
    fth_status status = fth_store_get(store, FTH_LEASE_KEY, MAX_LEASE_BYTES, &text->bytes, &size, &text->version);
    if (status != FTH_OK)
        return status;
    text->present = text->bytes != NULL;
    return text->present ? parse_text(store, text) : FTH_OK;
}

bool fth_lease_text_same(const fth_lease_text *a, const fth_lease_text *b)
{
    return a->present == b->present && (!a->present || strcmp(a->bytes, b->bytes) == 0);
}

void fth_lease_text_name_owner(const fth_lease_text *text, char *name, size_t size)
{
    snprintf(name, size, "%s%s%s%s", *text->host ? text->host : text->owner, *text->instance ? " (" : "",
             text->instance, *text->instance ? ")" : "");
}

fth_status fth_lease_text_write(fth_store *store, const fth_lease_text *text, int64_t renewals,
                                const fth_store_version *match, double deadline_s, bool *lost,
                                fth_store_version *version)
{
    double now = fth_clock_wall_seconds();
    json_t *json = json_pack("{s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:s, s:I}", "owner", text->owner, "host", text->host,
                             "fence", (json_int_t)text->fence, "expires_s", now + text->period_s, "period_s",
                             text->period_s, "renewed_s", now, "process_s", fth_clock_process_seconds(), "instance",
                             text->instance, "renewals", (json_int_t)renewals);
    char *bytes = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    *lost = false;
    if (!bytes)
        return fth_fail(FTH_NO_MEMORY, "no memory for a lease");
    fth_store_put_options options = {.condition = match ? FTH_STORE_IF_MATCH : FTH_STORE_IF_ABSENT,
                                     .content_type = "application/json",
                                     .deadline_s = deadline_s};
    if (match)
        options.match = *match;
    fth_status status = fth_store_put(store, FTH_LEASE_KEY, bytes, strlen(bytes), &options, lost, version);
    free(bytes);
    return status;
}
