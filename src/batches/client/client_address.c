/* Addresses of the batch cache: batches://host:port/NAME?share=order&form=decoded. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "batches/client/client.h"
#include "http/http.h"

typedef struct prefix {
    const char *text;
    bool tls, url; /* url: also a prefix of data on web servers */
} prefix;

static const prefix prefixes[] = {
    {"batches://", false, false}, {"batches+tls://", true, false}, {"http://", false, true}, {"https://", true, true}};
static const char *const settings_of_addresses[] = {"share=", "form=", "rotation=", "pin=", "ca="};

/* "host:port/NAME" with no settings but ours. */
static bool names_a_data_set(const char *place)
{
    size_t host = strcspn(place, "/"), name = strcspn(place + host, "?"), digits = 0;
    const char *query = place + host + name;
    bool ours = !*query;
    while (digits < host && place[host - digits - 1] >= '0' && place[host - digits - 1] <= '9')
        digits++;
    for (size_t i = 0; i < FTH_COUNT_OF(settings_of_addresses); i++)
        ours = ours || strncmp(query + 1, settings_of_addresses[i], strlen(settings_of_addresses[i])) == 0;
    return digits > 0 && digits < host && place[host - digits - 1] == ':' && name > 1 &&
           strcspn(place + host + 1, "/.") + 1 >= name && ours;
}

static const prefix *find_prefix(const char *text)
{
    for (size_t i = 0; i < FTH_COUNT_OF(prefixes); i++) {
        size_t length = strlen(prefixes[i].text);
        if (strncmp(text, prefixes[i].text, length) == 0)
            return !prefixes[i].url || names_a_data_set(text + length) ? &prefixes[i] : NULL;
    }
    return NULL;
}

bool fth_batches_is_address(const char *text)
{
    return find_prefix(text) != NULL;
}

static fth_status fail(const char *text, const char *what)
{
    return fth_fail(FTH_INVALID,
                    "%s: %s; expected batches://host:port/NAME, optionally with ?share=none|order|all and "
                    "&form=auto, encoded, decoded or batches",
                    text, what);
}

static bool parse_number(const char *text, uint64_t most, uint64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return *text && *text != '-' && *text != '+' && *text != ' ' && !*end && errno == 0 && *number <= most;
}

static fth_status parse_setting(const char *text, const char *name, char *value, fth_batches_address *address)
{
    uint64_t number;
    if (strcmp(name, "share") == 0)
        return fth_sharing_find(value, &address->sharing) ? FTH_OK : fail(text, "share= is none, order or all");
    if (strcmp(name, "form") == 0)
        return fth_cache_format_find(value, &address->format)
                   ? FTH_OK
                   : fail(text, "form= is auto, encoded, decoded or batches");
    if (strcmp(name, "rotation") == 0) {
        if (!parse_number(value, INT64_MAX, &number))
            return fail(text, "rotation= is a number of samples");
        address->rotation = (int64_t)number;
        return FTH_OK;
    }
    char **texts[] = {&address->pinned_key, &address->ca_file};
    static const char *const names[] = {"pin", "ca"};
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++)
        if (strcmp(name, names[i]) == 0) {
            free(*texts[i]);
            *texts[i] = fth_http_unescape(value);
            return *texts[i] ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for an address");
        }
    return fth_fail(FTH_INVALID, "%s: unknown setting '%s'; expected share, form, rotation, pin or ca", text, name);
}

/* "a=b&c=d"; the text is modified. */
static fth_status parse_settings(const char *text, char *settings, fth_batches_address *address)
{
    fth_status status = FTH_OK;
    char *rest = NULL;
    for (char *setting = strtok_r(settings, "&", &rest); setting && status == FTH_OK;
         setting = strtok_r(NULL, "&", &rest)) {
        char *equals = strchr(setting, '=');
        if (!equals)
            return fail(text, "a setting is NAME=VALUE");
        *equals = '\0';
        status = parse_setting(text, setting, equals + 1, address);
    }
    return status;
}

/* "host:port", "[::1]:port". */
static fth_status parse_host(const char *text, char *place, fth_batches_address *address)
{
    uint64_t port;
    char *colon = strrchr(place, ':'), *host = place;
    if (!colon || !parse_number(colon + 1, 65535, &port) || port == 0)
        return fail(text, "it has no port");
    *colon = '\0';
    size_t length = strlen(host);
    if (host[0] == '[' && host[length - 1] == ']') {
        host[length - 1] = '\0';
        host++;
    }
    if (!*host)
        return fail(text, "it has no host");
    address->port = (int)port;
    address->host = fth_format("%s", host);
    return address->host ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for an address");
}

fth_status fth_batches_address_parse(const char *text, fth_batches_address *address)
{
    fth_status status = FTH_OK;
    char *copy = NULL, *settings, *slash;

    *address = (fth_batches_address){.format = FTH_FORMAT_AUTO, .rotation = -1};
    const prefix *begin = find_prefix(text);
    FTH_REQUIRE(begin, FTH_INVALID, "%s is not the address of a batch cache", text);
    address->tls = begin->tls;
    copy = fth_format("%s", text + strlen(begin->text));
    FTH_REQUIRE(copy, FTH_NO_MEMORY, "no memory for an address");
    if ((settings = strchr(copy, '?'))) {
        *settings++ = '\0';
        FTH_TRY(parse_settings(text, settings, address));
    }
    slash = strchr(copy, '/');
    if (!slash || !slash[1] || strchr(slash + 1, '/')) {
        status = fail(text, "it does not name a data set");
        goto out;
    }
    *slash = '\0';
    FTH_TRY(parse_host(text, copy, address));
    address->name = fth_http_unescape(slash + 1);
    FTH_REQUIRE(address->name, FTH_NO_MEMORY, "no memory for an address");
    if (strlen(address->name) >= FTH_DATA_NAME)
        status = fail(text, "the name is too long");

out:
    free(copy);
    if (status != FTH_OK)
        fth_batches_address_release(address);
    return status;
}

void fth_batches_address_release(fth_batches_address *address)
{
    free(address->host);
    free(address->name);
    free(address->pinned_key);
    free(address->ca_file);
    *address = (fth_batches_address){0};
}

char *fth_batches_address_url(const fth_batches_address *address)
{
    const bool bracketed = strchr(address->host, ':') != NULL;
    return fth_format("%s://%s%s%s:%d", address->tls ? "https" : "http", bracketed ? "[" : "", address->host,
                      bracketed ? "]" : "", address->port);
}

char *fth_batches_address_with(const char *address, fth_cache_format format, int64_t rotation)
{
    return fth_format("%s%cform=%s&rotation=%lld", address, strchr(address, '?') ? '&' : '?',
                      fth_cache_format_name(format), (long long)rotation);
}
