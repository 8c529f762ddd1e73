/* See train_parameters.h. */
#include "functions/train_parameters.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "http/tls.h"
#include "parameters/client.h"

enum { MAX_ADDRESS = 8192, MAX_BATCH = 65536, MAX_COUNT = 1000000000 };
#define MAX_MARGIN_S 900.0

/* ---- one key at a time ---- */

static fth_status read_text(const json_t *object, const char *key, size_t max_bytes, const char **text)
{
    const json_t *json = json_object_get(object, key);
    *text = NULL;
    if (!json || json_is_null(json))
        return FTH_OK;
    if (!json_is_string(json))
        return fth_fail(FTH_INVALID, "\"%s\" must be a string", key);
    if (json_string_length(json) > max_bytes || strlen(json_string_value(json)) != json_string_length(json))
        return fth_fail(FTH_INVALID, "\"%s\" must be text of at most %zu bytes", key, max_bytes);
    *text = json_string_length(json) > 0 ? json_string_value(json) : NULL;
    return FTH_OK;
}

/* A number, or one in a string, as web requests have it; else NULL. A new reference. */
static json_t *read_number(const json_t *json)
{
    const char *text = json_string_value(json);
    json_t *number = text ? json_loads(text, JSON_DECODE_ANY, NULL) : json_incref((json_t *)json);
    if (json_is_number(number))
        return number;
    json_decref(number);
    return NULL;
}

static fth_status read_count(const json_t *object, const char *key, int64_t least, int64_t most, int64_t otherwise,
                             int64_t *count)
{
    const json_t *json = json_object_get(object, key);
    *count = otherwise;
    if (!json || json_is_null(json))
        return FTH_OK;
    json_t *number = read_number(json);
    const bool whole = json_is_integer(number);
    *count = json_integer_value(number);
    json_decref(number);
    if (!whole || *count < least || *count > most)
        return fth_fail(FTH_INVALID, "\"%s\" must be a whole number from %" PRId64 " to %" PRId64, key, least, most);
    return FTH_OK;
}

/* ---- keys with a form of their own ---- */

/* Reads "HOST:PORT" or a URL; a pin implies https. */
static fth_status read_server(const json_t *value, const char *pin, char **server)
{
    fth_status status = FTH_OK;
    const char *apihost = NULL;

    FTH_TRY(read_text(value, "apihost", MAX_ADDRESS, &apihost));
    FTH_REQUIRE(apihost, FTH_INVALID, "\"apihost\" must be the address of a parameter server: HOST:PORT or a URL");
    bool has_scheme = strstr(apihost, "://") != NULL;
    FTH_REQUIRE(!has_scheme || strncmp(apihost, "http://", 7) == 0 || strncmp(apihost, "https://", 8) == 0, FTH_INVALID,
                "\"apihost\" must be HOST:PORT, or a URL that begins with http:// or https://");
    const char *host = has_scheme ? strstr(apihost, "://") + 3 : apihost;
    bool plain = *host && *host != '/';
    for (const unsigned char *c = (const unsigned char *)host; *c; c++)
        plain = plain && *c > ' ' && *c < 127;
    FTH_REQUIRE(plain, FTH_INVALID, "\"apihost\" must be HOST:PORT or a URL, without spaces or control characters");
    FTH_REQUIRE(!pin || strncmp(apihost, "http://", 7) != 0, FTH_INVALID,
                "\"server_pin\" is about TLS: \"apihost\" must begin with https://");
    *server = fth_format("%s%s", has_scheme ? "" : pin ? "https://" : "http://", apihost);
    FTH_REQUIRE(*server, FTH_NO_MEMORY, "no memory for an address");

out:
    return status;
}

/* "0:10000", "10000:", ":10000": samples from the first number on, before the second. */
static fth_status read_range(const json_t *value, int64_t *first, int64_t *count, bool *ranged)
{
    const char *text = NULL;
    fth_status status = read_text(value, "range", 64, &text);
    *first = *count = 0;
    *ranged = text != NULL;
    if (status != FTH_OK || !text)
        return status;
    static const char digits[] = "0123456789";
    size_t begin = strspn(text, digits);
    const char *colon = text + begin;
    size_t end = *colon == ':' ? strspn(colon + 1, digits) : 0;
    int64_t to = end > 0 ? strtoll(colon + 1, NULL, 10) : INT64_MAX;
    *first = begin > 0 ? strtoll(text, NULL, 10) : 0;
    if (*colon != ':' || colon[1 + end] || begin > 12 || end > 12 || to <= *first)
        return fth_fail(FTH_INVALID, "\"range\" must be FIRST:END, as \"0:10000\"");
    *count = end > 0 ? to - *first : 0;
    return FTH_OK;
}

static fth_status read_margin(const json_t *value, double *margin_s)
{
    const json_t *json = json_object_get(value, "margin_s");
    *margin_s = NAN;
    if (!json || json_is_null(json))
        return FTH_OK;
    json_t *number = read_number(json);
    *margin_s = number ? json_number_value(number) : NAN;
    json_decref(number);
    if (!(*margin_s >= 0) || *margin_s > MAX_MARGIN_S)
        return fth_fail(FTH_INVALID, "\"margin_s\" must be a number of seconds from 0 to %g", MAX_MARGIN_S);
    return FTH_OK;
}

/* Whether a run's name fits into a shard's name. */
static bool run_fits(const char *run)
{
    return strspn(run, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == strlen(run);
}

/* Makes up a run for invocations without an id, for instance with curl. */
static fth_status make_up_run(char run[FTH_MAX_TRAIN_RUN + 1])
{
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return fth_fail(FTH_IO, "no random numbers for a run's name");
    fth_hex_encode(random, sizeof random, run);
    return FTH_OK;
}

static fth_status read_continuation(const json_t *value, const char *id, fth_train_continuation *continuation)
{
    fth_status status = FTH_OK;
    const char *run = NULL;
    const json_t *json = json_object_get(value, "continuation");

    FTH_TRY(read_text(value, "run", FTH_MAX_TRAIN_RUN, &run));
    FTH_REQUIRE(!run || run_fits(run), FTH_INVALID, "\"run\" must be letters, digits, '.', '_' and '-'");
    *continuation = (fth_train_continuation){0};
    if (json && !json_is_null(json)) {
        const char *before = NULL;
        FTH_REQUIRE(json_is_object(json), FTH_INVALID, "\"continuation\" must be an object, as a result had it");
        status = read_text(json, "run", FTH_MAX_TRAIN_RUN, &before);
        if (status == FTH_OK)
            status = read_count(json, "invocations", 0, MAX_COUNT, 0, &continuation->invocations);
        if (status == FTH_OK)
            status = read_count(json, "version", 0, INT64_MAX, 0, &continuation->version);
        if (status == FTH_OK)
            status = read_count(json, "idle", 0, MAX_COUNT, 0, &continuation->idle);
        if (status == FTH_OK && before && !run_fits(before))
            status = fth_fail(FTH_INVALID, "\"run\" must be letters, digits, '.', '_' and '-'");
        if (status != FTH_OK) {
            status = fth_fail_within(status, "\"continuation\"");
            goto out;
        }
        run = before ? before : run;
    }
    run = run ? run : run_fits(id) ? id : "";
    snprintf(continuation->run, sizeof continuation->run, "%s", run);
    if (!*run)
        FTH_TRY(make_up_run(continuation->run));

out:
    return status;
}

/* Reads the keys from the parameters, or else from the environment. */
static fth_status read_keys(const fth_invocation_event *event, fth_signer *signer)
{
    fth_status status = FTH_OK;
    const char *access = NULL, *secret = NULL;

    FTH_TRY(read_text(event->value, "access_key", FTH_MAX_ACCESS_KEY, &access));
    FTH_TRY(read_text(event->value, "secret_key", FTH_MAX_SECRET, &secret));
    FTH_REQUIRE(!access == !secret, FTH_INVALID, "\"access_key\" and \"secret_key\" must be given together");
    if (!access) {
        access = fth_invocation_variable(event, "FARTHING_ACCESS_KEY");
        secret = fth_invocation_variable(event, "FARTHING_SECRET_KEY");
    }
    *signer = (fth_signer){0};
    if (!access || !secret || !*access)
        return FTH_OK;
    FTH_REQUIRE(strlen(access) <= FTH_MAX_ACCESS_KEY && strlen(secret) <= FTH_MAX_SECRET, FTH_INVALID,
                "FARTHING_ACCESS_KEY or FARTHING_SECRET_KEY is too long");
    snprintf(signer->access, sizeof signer->access, "%s", access);
    snprintf(signer->secret, sizeof signer->secret, "%s", secret);

out:
    return status;
}

/* ---- all of them ---- */

/* Warns of unknown keys. Those that begin with __ow_ are OpenWhisk's. */
static void name_unknown_keys(const json_t *value)
{
    static const char *const known[] = {"job",         "apihost",     "dataset_url", "batch_sz_train", "epoch_n",
                                        "update_intv", "device",      "run",         "worker",         "range",
                                        "server_pin",  "compress",    "access_key",  "secret_key",     "continue",
                                        "margin_s",    "continuation"};
    char names[512] = "";
    size_t length = 0;
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)value, key, item)
    {
        bool is_known = strncmp(key, "__ow_", 5) == 0;
        for (size_t i = 0; i < FTH_COUNT_OF(known); i++)
            is_known = is_known || strcmp(key, known[i]) == 0;
        if (!is_known && length < sizeof names)
            length +=
                (size_t)snprintf(names + length, sizeof names - length, "%s\"%.64s\"", length > 0 ? ", " : "", key);
    }
    if (length > 0)
        fth_log_warning("unknown parameters: %s", names);
}

fth_status fth_train_parameters_load(const fth_invocation_event *event, fth_train_parameters *parameters)
{
    fth_status status = FTH_OK;
    const json_t *value = event->value;
    fth_train_parameters *p = parameters;
    const char *way = NULL;

    *p = (fth_train_parameters){0};
    FTH_TRY(read_text(value, "server_pin", 128, &p->server_pin));
    FTH_REQUIRE(!p->server_pin || fth_tls_is_fingerprint(p->server_pin), FTH_INVALID,
                "\"server_pin\" must be a fingerprint: sha256// and 44 characters, as the server printed it");
    FTH_TRY(read_server(value, p->server_pin, &p->server));
    FTH_TRY(read_text(value, "dataset_url", MAX_ADDRESS, &p->dataset_url));
    FTH_REQUIRE(!p->dataset_url || !strchr(p->dataset_url, '#'), FTH_INVALID,
                "\"dataset_url\" must not have a #; a range of its samples is \"range\", such as \"0:10000\"");
    FTH_TRY(read_text(value, "worker", FTH_MAX_WORKER_NAME, &p->worker));
    FTH_REQUIRE(!p->worker || fth_worker_name_valid(p->worker), FTH_INVALID,
                "\"worker\" must be 1 to 64 letters, digits, '.', '_' and '-'");
    FTH_TRY(read_text(value, "device", 32, &p->device));
    FTH_TRY(read_text(value, "compress", 32, &p->compress));
    if (p->compress && fth_compression_check(p->compress) != FTH_OK) {
        status = fth_fail_within(FTH_INVALID, "\"compress\"");
        goto out;
    }
    FTH_TRY(read_count(value, "batch_sz_train", 1, MAX_BATCH, 32, &p->batch));
    FTH_TRY(read_count(value, "epoch_n", 1, MAX_COUNT, 1, &p->epochs));
    FTH_TRY(read_count(value, "update_intv", 1, MAX_COUNT, 1, &p->interval));
    FTH_TRY(read_range(value, &p->first, &p->count, &p->ranged));
    FTH_TRY(read_margin(value, &p->margin_s));
    FTH_TRY(read_continuation(value, event->id, &p->continuation));
    FTH_TRY(read_text(value, "continue", 16, &way));
    FTH_REQUIRE(!way || strcmp(way, "self") == 0, FTH_INVALID,
                "\"continue\" must be \"self\": the function invokes itself again when its time is over");
    p->continues_itself = way != NULL;
    FTH_TRY(read_keys(event, &p->signer));
    name_unknown_keys(value);

out:
    if (status != FTH_OK)
        fth_train_parameters_release(p);
    return status;
}

void fth_train_parameters_release(fth_train_parameters *parameters)
{
    fth_wipe_text(parameters->server);
    fth_wipe(&parameters->signer, sizeof parameters->signer);
    parameters->server = NULL;
}

json_t *fth_train_continuation_save(const fth_train_continuation *continuation)
{
    return json_pack("{s:s, s:I, s:I, s:I}", "run", continuation->run, "invocations",
                     (json_int_t)continuation->invocations, "version", (json_int_t)continuation->version, "idle",
                     (json_int_t)continuation->idle);
}
