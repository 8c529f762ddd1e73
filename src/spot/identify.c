/* Which cloud this is, which instance type, spot or not: all three metadata services are asked at
 * once, each in a thread, since the one address they share tells nothing and the services of other
 * clouds may not answer at all. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/process.h"
#include "spot/spot_internal.h"

static void copy_text(char *to, size_t size, const char *from)
{
    if (from)
        snprintf(to, size, "%s", from);
}

/* "projects/123/zones/europe-west4-a" -> "europe-west4-a" */
static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void copy_member(char *to, size_t size, const json_t *object, const char *key)
{
    copy_text(to, size, json_string_value(json_object_get(object, key)));
}

/* ---- one cloud each: true if this is it ---- */

static bool identify_aws(fth_metadata *metadata, fth_deadline deadline, fth_identification *found)
{
    fth_machine_identity *identity = &found->identity;
    fth_http_response response = {0};
    fth_status status = fth_metadata_get(metadata, "/latest/dynamic/instance-identity/document",
                                         fth_deadline_left_seconds(deadline), &response);
    json_t *document =
        status == FTH_OK && response.code == 200 ? json_loads(fth_metadata_text(&response), 0, NULL) : NULL;
    fth_http_response_release(&response);
    copy_member(identity->instance, sizeof identity->instance, document, "instanceType");
    copy_member(identity->region, sizeof identity->region, document, "region");
    copy_member(identity->id, sizeof identity->id, document, "instanceId");
    bool here = *identity->instance || *identity->id || metadata->refused;
    json_decref(document);
    found->no_token = metadata->refused;
    if (here && !metadata->refused &&
        fth_metadata_get(metadata, "/latest/meta-data/instance-life-cycle", fth_deadline_left_seconds(deadline),
                         &response) == FTH_OK) {
        const char *market = response.code == 200 ? fth_metadata_text(&response) : "";
        if (strcmp(market, "spot") == 0 || strcmp(market, "on-demand") == 0)
            copy_text(identity->market, sizeof identity->market, market);
    }
    fth_http_response_release(&response);
    return here;
}

/* The value of one key of a Google instance, "" if there is none; false: no answer, or not
 * Google's. */
static bool get_google(fth_metadata *metadata, const char *key, fth_deadline deadline, char *text, size_t size)
{
    fth_http_response response = {0};
    char path[128];
    snprintf(path, sizeof path, "/computeMetadata/v1/instance/%s", key);
    text[0] = '\0';
    bool answered = fth_metadata_get(metadata, path, fth_deadline_left_seconds(deadline), &response) == FTH_OK;
    char *flavor = answered ? fth_http_header(&response, "Metadata-Flavor") : NULL;
    bool google = flavor && strcmp(flavor, "Google") == 0;
    if (google && response.code == 200)
        copy_text(text, size, last_part(fth_metadata_text(&response)));
    free(flavor);
    fth_http_response_release(&response);
    return google;
}

static bool identify_gcp(fth_metadata *metadata, fth_deadline deadline, fth_identification *found)
{
    fth_machine_identity *identity = &found->identity;
    char preemptible[16];
    if (!get_google(metadata, "machine-type", deadline, identity->instance, sizeof identity->instance))
        return false;
    get_google(metadata, "zone", deadline, identity->region, sizeof identity->region);
    get_google(metadata, "id", deadline, identity->id, sizeof identity->id);
    get_google(metadata, "scheduling/preemptible", deadline, preemptible, sizeof preemptible);
    if (*preemptible)
        copy_text(identity->market, sizeof identity->market, strcmp(preemptible, "TRUE") == 0 ? "spot" : "on-demand");
    return true;
}

static bool identify_azure(fth_metadata *metadata, fth_deadline deadline, fth_identification *found)
{
    fth_machine_identity *identity = &found->identity;
    fth_http_response response = {0};
    fth_status status = fth_metadata_get(metadata, "/metadata/instance/compute?api-version=2021-02-01",
                                         fth_deadline_left_seconds(deadline), &response);
    json_t *compute =
        status == FTH_OK && response.code == 200 ? json_loads(fth_metadata_text(&response), 0, NULL) : NULL;
    fth_http_response_release(&response);
    char priority[32] = "";
    copy_member(identity->instance, sizeof identity->instance, compute, "vmSize");
    copy_member(identity->region, sizeof identity->region, compute, "location");
    copy_member(identity->id, sizeof identity->id, compute, "vmId");
    copy_member(found->name, sizeof found->name, compute, "name");
    copy_member(priority, sizeof priority, compute, "priority");
    bool here = *identity->instance || *found->name;
    if (here)
        copy_text(identity->market, sizeof identity->market,
                  strcasecmp(priority, "Spot") == 0 || strcasecmp(priority, "Low") == 0 ? "spot" : "on-demand");
    json_decref(compute);
    return here;
}

bool fth_identify_with(fth_metadata *metadata, double timeout_s, fth_identification *found)
{
    static bool (*const identify[FTH_CLOUD_COUNT])(fth_metadata *, fth_deadline, fth_identification *) = {
        [FTH_CLOUD_AWS] = identify_aws, [FTH_CLOUD_GCP] = identify_gcp, [FTH_CLOUD_AZURE] = identify_azure};
    memset(found, 0, sizeof *found);
    if (!*metadata->endpoint || !identify[metadata->cloud](metadata, fth_deadline_in(timeout_s), found)) {
        memset(found, 0, sizeof *found);
        return false;
    }
    copy_text(found->identity.cloud, sizeof found->identity.cloud, fth_cloud_names[metadata->cloud]);
    return true;
}

/* ---- all of them ---- */

typedef struct question {
    fth_metadata metadata;
    double timeout_s;
    fth_identification found;
    bool here, running;
    pthread_t thread;
    atomic_bool *answered; /* by anyone: the others end */
} question;

static void *ask(void *context)
{
    question *asked = context;
    asked->here = fth_identify_with(&asked->metadata, asked->timeout_s, &asked->found);
    if (asked->here)
        *asked->answered = true;
    return NULL;
}

void fth_identify(double timeout_s, const atomic_bool *closing, fth_identification *found)
{
    question questions[FTH_CLOUD_COUNT] = {0};
    atomic_bool answered = false;
    memset(found, 0, sizeof *found);
    for (int i = 0; i < FTH_CLOUD_COUNT; i++) {
        question *asked = &questions[i];
        asked->timeout_s = timeout_s;
        asked->answered = &answered;
        if (fth_metadata_open((fth_cloud)i, closing, &asked->metadata) != FTH_OK)
            continue;
        asked->metadata.enough = &answered;
        asked->running = *asked->metadata.endpoint && fth_thread_start(&asked->thread, "metadata", ask, asked) == 0;
    }
    for (int i = 0; i < FTH_CLOUD_COUNT; i++) {
        question *asked = &questions[i];
        if (asked->running)
            pthread_join(asked->thread, NULL);
        if (asked->here && !*found->identity.cloud)
            *found = asked->found;
        fth_metadata_close(&asked->metadata);
    }
}

void fth_machine_identify(double timeout_s, fth_machine_identity *identity)
{
    fth_identification found;
    fth_identify(timeout_s > 0 ? timeout_s : 1, NULL, &found);
    *identity = found.identity;
    if (!*identity->id)
        gethostname(identity->id, sizeof identity->id - 1);
}
