/* See rendezvous_requests.h. */
#include "cluster/rendezvous_requests.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/group_keys.h"
#include "cluster/protocol.h"

static const int64_t MAX_GENERATION = INT64_C(1) << 50;

void fth_rendezvous_answer(fth_exchange *exchange, int code, json_t *json)
{
    if (json)
        json_object_set_new(json, "service", json_string(FTH_RENDEZVOUS_NAME));
    fth_exchange_answer_json(exchange, code, json);
}

void fth_rendezvous_refuse(fth_exchange *exchange, int code, const char *format, ...)
{
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    fth_printable_format(message, sizeof message, format, arguments);
    va_end(arguments);
    fth_rendezvous_answer(exchange, code, json_pack("{s:s}", "error", message));
}

json_t *fth_rendezvous_read(fth_exchange *exchange, const char *format, ...)
{
    size_t size = 0;
    const char *body = fth_exchange_body(exchange, &size);
    json_error_t error = {.text = "expected a JSON object"};
    json_t *json = size > 0 ? json_loadb(body, size, JSON_REJECT_DUPLICATES, &error) : NULL;
    va_list arguments;
    va_start(arguments, format);
    bool good = json && json_vunpack_ex(json, &error, 0, format, arguments) == 0;
    va_end(arguments);
    if (good)
        return json;
    fth_rendezvous_refuse(exchange, 400, "%s: %s", fth_exchange_path(exchange), error.text);
    json_decref(json);
    return NULL;
}

/* ---- introductions ---- */

static bool is_name(const char *text)
{
    return *text && strlen(text) <= FTH_RENDEZVOUS_MAX_NAME && fth_is_printable(text);
}

static bool fits(const char *text)
{
    return strlen(text) <= FTH_RENDEZVOUS_MAX_NAME;
}

json_t *fth_introduction_read(fth_exchange *exchange, fth_introduction *introduction)
{
    fth_newcomer *newcomer = &introduction->newcomer;
    json_int_t process = 0, generation = 0;
    int hosts = 0;

    *introduction = (fth_introduction){0};
    json_t *json = fth_rendezvous_read(
        exchange, "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:i, s?i, s:i, s:o, s?I, s?i, s?i, s?o, s?b}", "version",
        &introduction->version, "run", &introduction->run, "configuration", &introduction->configuration, "instance",
        &newcomer->instance, "node", &newcomer->node, "host", &newcomer->host, "address", &newcomer->address, "process",
        &process, "local_rank", &newcomer->local_rank, "local_size", &newcomer->local_size, "rank", &newcomer->rank,
        "facts", &newcomer->facts, "generation", &generation, "former_rank", &newcomer->former_rank, "expected",
        &newcomer->expected, "known_run", &newcomer->run, "hosts", &hosts);
    if (!json)
        return NULL;
    newcomer->process = process;
    newcomer->generation = generation;
    newcomer->hosts = hosts;
    if (is_name(newcomer->node) && is_name(newcomer->host) && is_name(newcomer->instance) && fits(newcomer->address) &&
        fits(introduction->version) && fits(introduction->run) && process > 0 && generation >= 0 &&
        generation < MAX_GENERATION) {
        if (!*newcomer->address)
            newcomer->address = fth_exchange_client(exchange);
        return json;
    }
    fth_rendezvous_refuse(exchange, 400,
                          "/open: a name is empty, longer than %d characters or not printable, or a number is wrong",
                          FTH_RENDEZVOUS_MAX_NAME);
    json_decref(json);
    return NULL;
}

char *fth_introduction_name(const fth_introduction *introduction)
{
    const fth_newcomer *who = &introduction->newcomer;
    return who->rank >= 0 ? fth_format("rank %d on %s (process %" PRId64 ")", who->rank, who->node, who->process)
                          : fth_format("%s (process %" PRId64 ")", who->node, who->process);
}

/* ---- keys ---- */

static bool read_number(const char *text, int64_t *number)
{
    char *end = NULL;
    *number = text ? strtoll(text, &end, 10) : 0;
    return text && end > text && !*end;
}

char *fth_rendezvous_read_key(fth_exchange *exchange, int64_t *member, int64_t *generation)
{
    const char *key = fth_exchange_query(exchange, "key");
    if (read_number(fth_exchange_query(exchange, "member"), member) &&
        read_number(fth_exchange_query(exchange, "generation"), generation) && key && *key &&
        strlen(key) <= FTH_MAX_KEY)
        return strdup(key);
    fth_rendezvous_refuse(exchange, 400, "/key expects member, generation, and a key of at most %d characters",
                          FTH_MAX_KEY);
    return NULL;
}
