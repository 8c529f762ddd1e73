/* See credentials.h. */
#include "store/credentials.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* AWS's own tools renew in the last 15 minutes if they can, and must in the last 5. */
static const double RENEW_BEFORE_S = 300;
/* While the old ones still do: a service that does not answer must not delay every request. */
static const double ASK_AGAIN_S = 20;

typedef enum fth_key_source { SOURCE_FIXED, SOURCE_PROFILE, SOURCE_CONTAINER, SOURCE_INSTANCE } fth_key_source;

struct fth_credentials {
    fth_key_source source;
    const char *told; /* for messages */
    char *profile, *region, *endpoint;
    pthread_mutex_t mutex; /* guards what follows */
    fth_cloud_keys keys;
    bool stale;         /* the server refused them as expired */
    double failed_at_s; /* when renewing failed last; 0: never */
};

void fth_cloud_keys_release(fth_cloud_keys *keys)
{
    fth_wipe_text(keys->access_key);
    fth_wipe_text(keys->secret_key);
    fth_wipe_text(keys->session_token);
    *keys = (fth_cloud_keys){0};
}

static const char *set_variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static bool from_environment(const char *key, const char *secret, const char *token, fth_cloud_keys *keys)
{
    if (!set_variable(key) || !set_variable(secret))
        return false;
    keys->access_key = strdup(set_variable(key));
    keys->secret_key = strdup(set_variable(secret));
    if (token && set_variable(token))
        keys->session_token = strdup(set_variable(token));
    return true;
}

static fth_status find_google(fth_credentials *credentials)
{
    if (from_environment("GS_ACCESS_KEY_ID", "GS_SECRET_ACCESS_KEY", NULL, &credentials->keys)) {
        credentials->told = "the environment (GS_ACCESS_KEY_ID)";
        return FTH_OK;
    }
    if (from_environment("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", NULL, &credentials->keys)) {
        credentials->told = "the environment (AWS_ACCESS_KEY_ID, since GS_ACCESS_KEY_ID is not set)";
        fth_log_info("gs:// uses the keys of AWS_ACCESS_KEY_ID, since GS_ACCESS_KEY_ID is not set");
        return FTH_OK;
    }
    return fth_fail(FTH_INVALID, "no keys for gs://: make an HMAC key (gcloud storage hmac create SERVICE-ACCOUNT) and "
                                 "set GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY");
}

static fth_status find(fth_credentials *credentials, const char *name)
{
    fth_status status = FTH_OK;
    bool asked = name && *name;
    const char *variable = set_variable("AWS_PROFILE");
    fth_profile profile = {0};
    credentials->profile = strdup(asked ? name : variable ? variable : "default");
    fth_status found = fth_credentials_read_profile(credentials->profile, &profile);
    credentials->region = profile.region; /* these count wherever the keys come from */
    credentials->endpoint = profile.endpoint;
    profile.region = profile.endpoint = NULL;
    if (!asked &&
        from_environment("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", &credentials->keys)) {
        credentials->told = "the environment (AWS_ACCESS_KEY_ID)";
        goto out;
    }
    FTH_TRY(found);
    credentials->keys = profile.keys;
    profile.keys = (fth_cloud_keys){0};
    if (credentials->keys.access_key) {
        credentials->source = SOURCE_PROFILE;
        credentials->told = "the profile in ~/.aws/credentials";
        goto out;
    }
    FTH_REQUIRE(!asked && !variable, FTH_INVALID,
                "the profile '%s' has no keys in ~/.aws/credentials or ~/.aws/config (aws_access_key_id and "
                "aws_secret_access_key); if it is one of SSO or of another role, take its keys along: eval \"$(aws "
                "configure export-credentials --format env --profile '%s')\"",
                credentials->profile, credentials->profile);
    credentials->source = SOURCE_CONTAINER;
    credentials->told = "the container's role";
    status = fth_credentials_from_container(&credentials->keys);
    if (status != FTH_UNSUPPORTED)
        goto out;
    credentials->source = SOURCE_INSTANCE;
    credentials->told = "the instance's role (metadata service)";
    status = fth_credentials_from_instance(&credentials->keys);
    FTH_REQUIRE(status != FTH_UNSUPPORTED, FTH_INVALID,
                "no AWS keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write them to "
                "~/.aws/credentials (aws configure), or give the instance a role");

out:
    fth_profile_release(&profile);
    return status;
}

fth_status fth_credentials_open(const char *profile, bool google, fth_credentials **result)
{
    fth_status status = FTH_OK;
    fth_credentials *credentials = NULL;
    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *credentials, &credentials));
    pthread_mutex_init(&credentials->mutex, NULL);
    FTH_TRY(google ? find_google(credentials) : find(credentials, profile));
    *result = credentials;
    credentials = NULL;

out:
    fth_credentials_free(credentials);
    return status;
}

void fth_credentials_free(fth_credentials *credentials)
{
    if (!credentials)
        return;
    fth_cloud_keys_release(&credentials->keys);
    pthread_mutex_destroy(&credentials->mutex);
    free(credentials->profile);
    free(credentials->region);
    free(credentials->endpoint);
    free(credentials);
}

/* Fetches keys again from their source; under the lock, so that several threads ask once. */
static fth_status renew(fth_credentials *credentials)
{
    fth_status status = FTH_OK;
    fth_cloud_keys fresh = {0};
    fth_profile profile = {0};
    switch (credentials->source) {
    case SOURCE_FIXED: goto out;
    case SOURCE_PROFILE:
        FTH_TRY(fth_credentials_read_profile(credentials->profile, &profile));
        fresh = profile.keys;
        profile.keys = (fth_cloud_keys){0};
        break;
    case SOURCE_CONTAINER: FTH_TRY(fth_credentials_from_container(&fresh)); break;
    case SOURCE_INSTANCE:
        status = fth_credentials_from_instance(&fresh);
        /* It was there before: that is no machine without a role, but a service that is away. */
        FTH_REQUIRE(status != FTH_UNSUPPORTED, FTH_IO,
                    "the keys of the instance's role could not be renewed: the metadata service does not answer, or "
                    "the role was taken away");
        FTH_TRY(status);
        break;
    }
    if (fresh.access_key) {
        fth_cloud_keys_release(&credentials->keys);
        credentials->keys = fresh;
        fresh = (fth_cloud_keys){0};
    }
    credentials->stale = false;

out:
    fth_profile_release(&profile);
    fth_cloud_keys_release(&fresh);
    return status;
}

fth_status fth_credentials_get(fth_credentials *credentials, fth_cloud_keys *keys)
{
    fth_status status = FTH_OK;
    *keys = (fth_cloud_keys){0};
    pthread_mutex_lock(&credentials->mutex);
    fth_cloud_keys *held = &credentials->keys;
    double left_s = held->expires_s > 0 ? held->expires_s - fth_clock_wall_seconds() : RENEW_BEFORE_S + 1;
    bool may_wait = left_s > 0 && !credentials->stale;
    bool just_failed =
        credentials->failed_at_s > 0 && fth_clock_seconds() - credentials->failed_at_s < ASK_AGAIN_S && may_wait;
    if ((credentials->stale || left_s < RENEW_BEFORE_S) && !just_failed) {
        status = renew(credentials);
        credentials->failed_at_s = status == FTH_OK ? 0 : fth_clock_seconds();
        if (status != FTH_OK && may_wait) { /* the old ones still do for a while */
            fth_log_warning("renewing the keys from %s failed: %s", credentials->told, fth_error_message());
            status = FTH_OK;
        }
    }
    if (status == FTH_OK) {
        keys->access_key = strdup(held->access_key);
        keys->secret_key = strdup(held->secret_key);
        keys->session_token = held->session_token ? strdup(held->session_token) : NULL;
        keys->expires_s = held->expires_s;
    }
    pthread_mutex_unlock(&credentials->mutex);
    return status;
}

bool fth_credentials_renew(fth_credentials *credentials)
{
    if (credentials->source == SOURCE_FIXED)
        return false;
    pthread_mutex_lock(&credentials->mutex);
    credentials->stale = true;
    pthread_mutex_unlock(&credentials->mutex);
    return true;
}

const char *fth_credentials_source(const fth_credentials *credentials)
{
    return credentials->told;
}

const char *fth_credentials_region(const fth_credentials *credentials)
{
    return credentials->region;
}

const char *fth_credentials_endpoint(const fth_credentials *credentials)
{
    return credentials->endpoint;
}
