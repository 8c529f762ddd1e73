/* See redis_internal.h. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "batches/cache/redis_internal.h"
#include "http/http.h"

enum { DEFAULT_PORT = 6379, MAX_ENDPOINTS = 256, MAX_DATABASE = 1 << 20 };
#define DEFAULT_PREFIX "batches"
#define FORM           "expected redis://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/DATABASE][/PREFIX]"

static bool parse_number(const char *text, size_t length, int most, int *number)
{
    long value = 0;
    if (length == 0)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        value = value * 10 + (text[i] - '0');
        if (value > most)
            return false;
    }
    *number = (int)value;
    return true;
}

/* "host", "host:port", "[::1]:port". */
static bool parse_endpoint(const char *text, size_t length, int default_port, fth_redis_endpoint *endpoint)
{
    const char *host = text, *rest = NULL;
    size_t host_length = 0;
    if (length > 0 && text[0] == '[') {
        const char *close = memchr(text, ']', length);
        if (!close)
            return false;
        host = text + 1;
        host_length = (size_t)(close - host);
        rest = close + 1;
    } else {
        const char *colon = memchr(text, ':', length);
        host_length = colon ? (size_t)(colon - text) : length;
        rest = text + host_length;
    }
    size_t rest_length = length - (size_t)(rest - text);
    endpoint->port = default_port;
    if (host_length == 0 || host_length >= sizeof endpoint->host)
        return false;
    for (size_t i = 0; i < host_length; i++)
        if (!isgraph((unsigned char)host[i]))
            return false;
    if (rest_length > 0 &&
        (rest[0] != ':' || !parse_number(rest + 1, rest_length - 1, 65535, &endpoint->port) || endpoint->port == 0))
        return false;
    memcpy(endpoint->host, host, host_length);
    endpoint->host[host_length] = '\0';
    return true;
}

bool fth_redis_endpoint_parse(const char *text, const fth_redis_endpoint *from, fth_redis_endpoint *endpoint)
{
    /* A cluster's servers write IPv6 addresses without brackets: the last colon precedes the
     * port. */
    const char *colon = strrchr(text, ':');
    if (!colon || !parse_number(colon + 1, strcspn(colon + 1, " @"), 65535, &endpoint->port))
        return false;
    size_t length = (size_t)(colon - text);
    if (length == 0) {
        memcpy(endpoint->host, from->host, sizeof endpoint->host);
        return true;
    }
    if (length >= sizeof endpoint->host)
        return false;
    memcpy(endpoint->host, text, length);
    endpoint->host[length] = '\0';
    return true;
}

static fth_status parse_endpoints(const char *text, size_t length, fth_redis_address *address)
{
    fth_status status = FTH_OK;
    size_t capacity = 0;

    for (size_t begin = 0; begin <= length;) {
        const char *comma = memchr(text + begin, ',', length - begin);
        size_t end = comma ? (size_t)(comma - text) : length;
        FTH_REQUIRE(address->count < MAX_ENDPOINTS, FTH_INVALID, "a Redis address must not have more than %d servers",
                    MAX_ENDPOINTS);
        FTH_TRY(fth_grow(&address->endpoints, address->count, &capacity, sizeof *address->endpoints));
        FTH_REQUIRE(parse_endpoint(text + begin, end - begin, DEFAULT_PORT, &address->endpoints[address->count]),
                    FTH_INVALID, "\"%.*s\" is not a Redis server's HOST:PORT; " FORM, (int)(end - begin), text + begin);
        for (size_t i = 0; i < address->count; i++)
            FTH_REQUIRE(address->endpoints[i].port != address->endpoints[address->count].port ||
                            strcmp(address->endpoints[i].host, address->endpoints[address->count].host) != 0,
                        FTH_INVALID, "Redis server %s:%d is named twice", address->endpoints[i].host,
                        address->endpoints[i].port);
        address->count++;
        begin = end + 1;
    }

out:
    return status;
}

/* "", "/3", "/name", "/3/name" */
static fth_status parse_path(const char *text, fth_redis_address *address)
{
    fth_status status = FTH_OK;
    size_t length;

    memcpy(address->prefix, DEFAULT_PREFIX, sizeof DEFAULT_PREFIX);
    if (*text == '/' && parse_number(text + 1, strcspn(text + 1, "/"), MAX_DATABASE, &address->database))
        text += 1 + strcspn(text + 1, "/");
    if (*text == '/')
        text++;
    length = strlen(text);
    FTH_REQUIRE(length <= FTH_REDIS_MAX_PREFIX, FTH_INVALID,
                "the prefix in a Redis address must have at most %d characters", FTH_REDIS_MAX_PREFIX);
    for (size_t i = 0; i < length; i++)
        FTH_REQUIRE(
            isalnum((unsigned char)text[i]) || strchr("._-", text[i]), FTH_INVALID,
            "the prefix in a Redis address must consist of letters, digits, '.', '_' and '-', not \"%s\"; " FORM, text);
    if (length > 0)
        memcpy(address->prefix, text, length + 1);

out:
    return status;
}

/* "user:password", percent-encoded; missing parts come from the environment. */
static fth_status parse_user(const char *text, size_t length, fth_redis_address *address)
{
    fth_status status = FTH_OK;
    char *copy = strndup(text, length), *colon = copy ? strchr(copy, ':') : NULL;
    const char *user = getenv(FTH_REDIS_USER_VARIABLE), *password = getenv(FTH_REDIS_PASSWORD_VARIABLE);

    FTH_REQUIRE(copy, FTH_NO_MEMORY, "no memory for an address");
    if (colon)
        *colon = '\0';
    address->user = *copy ? fth_http_unescape(copy) : strdup(user ? user : "");
    address->password = colon ? fth_http_unescape(colon + 1) : strdup(password ? password : "");
    FTH_REQUIRE(address->user && address->password, FTH_NO_MEMORY, "no memory for an address");
    FTH_REQUIRE(!*address->user || *address->password, FTH_INVALID,
                "a Redis user without a password; set " FTH_REDIS_PASSWORD_VARIABLE);

out:
    if (colon)
        colon[0] = ':';
    fth_wipe_text(copy);
    return status;
}

fth_status fth_redis_address_parse(const char *text, fth_redis_address *address)
{
    fth_status status = FTH_OK;
    const char *servers, *at;
    size_t length;

    *address = (fth_redis_address){.tls = strncmp(text, "rediss://", 9) == 0};
    FTH_REQUIRE(address->tls || strncmp(text, "redis://", 8) == 0, FTH_INVALID, "not a Redis address; " FORM);
    servers = text + (address->tls ? 9 : 8);
    /* A password may contain '/' and '@' unencoded: the last '@' counts. */
    at = strrchr(servers, '@');
    FTH_TRY(parse_user(servers, at ? (size_t)(at - servers) : 0, address));
    if (at)
        servers = at + 1;
    FTH_REQUIRE(!strpbrk(servers, "?#"), FTH_INVALID, "a Redis address must not contain '?' or '#'; " FORM);
    length = strcspn(servers, "/");
    FTH_TRY(parse_endpoints(servers, length, address));
    FTH_TRY(parse_path(servers + length, address));

out:
    if (status != FTH_OK)
        fth_redis_address_release(address);
    return status;
}

void fth_redis_address_release(fth_redis_address *address)
{
    fth_wipe_text(address->user);
    fth_wipe_text(address->password);
    free(address->endpoints);
    *address = (fth_redis_address){0};
}
