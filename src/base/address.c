/* See address.h. */
#include "base/address.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"

/* ---- what is secret ---- */

/* One "name=value" of a query; `length` is of both. */
typedef struct parameter {
    const char *begin;
    size_t name_length, length;
} parameter;

/* Takes the next one off a query ("a=1&b=2", up to '#'); false at the end. */
static bool next_parameter(const char **query, parameter *found)
{
    const char *begin = *query;
    size_t length = strcspn(begin, "&#");
    if (length == 0 && *begin != '&')
        return false;
    *found = (parameter){.begin = begin, .name_length = strcspn(begin, "=&#"), .length = length};
    *query = begin + length + (begin[length] == '&');
    return true;
}

static bool has_name(const parameter *found, const char *name)
{
    return strlen(name) == found->name_length && strncasecmp(found->begin, name, found->name_length) == 0;
}

static bool name_is_among(const parameter *found, const char *const *names)
{
    for (; *names; names++)
        if (has_name(found, *names))
            return true;
    return false;
}

static bool name_ends(const parameter *found, const char *ending)
{
    size_t length = strlen(ending);
    return found->name_length >= length && strncasecmp(found->begin + found->name_length - length, ending, length) == 0;
}

static bool name_begins(const parameter *found, const char *prefix)
{
    return found->name_length >= strlen(prefix) && strncasecmp(found->begin, prefix, strlen(prefix)) == 0;
}

/* "api_key" and its like. An object store's "key" is a name, and must stay: a parameter of just
 * that name counts as a secret only if its value is clearly random. */
static bool is_key(const parameter *found)
{
    const char *value = found->begin + found->name_length;
    size_t length = found->length - found->name_length, digits = 0, letters = 0, others = 0;
    if (!name_ends(found, "key"))
        return false;
    for (size_t i = 1; i < length; i++) {
        digits += value[i] >= '0' && value[i] <= '9';
        letters += (value[i] >= 'a' && value[i] <= 'z') || (value[i] >= 'A' && value[i] <= 'Z');
        others += value[i] == '.' || value[i] == '/' || value[i] == '%';
    }
    return others == 0 && (found->name_length > 3 || (length > 16 && digits > 0 && letters > 0));
}

static bool is_signature(const parameter *found)
{
    return has_name(found, "sig") || name_ends(found, "signature");
}

/* Parameters that do not identify the object. A wrong name here would make two objects one, so the
 * list has only names that mean the same everywhere, or, if `is_signed`, in all signed links. */
static bool is_secret(const parameter *found, bool is_signed)
{
    static const char *const endings[] = {"token", "secret", "password", "passwd", "credential", "authorization", NULL};
    static const char *const names[] = {
        "auth",           "pwd",       "pass",  "jwt",   "hmac", "expires", "awsaccesskeyid", "googleaccessid",
        "ossaccesskeyid", "__token__", "hdnts", "hdnea", NULL};
    /* of CloudFront's links and of Azure's shared access signatures */
    static const char *const companions[] = {
        "policy", "key-pair-id", "hash-algorithm", "se",    "sp",  "sv",  "sr",  "st",  "spr",   "sip",   "ss",   "srt",
        "si",     "sdd",         "skoid",          "sktid", "skt", "ske", "sks", "skv", "saoid", "suoid", "scid", NULL};
    if (is_signature(found) || name_begins(found, "x-amz-") || name_begins(found, "x-goog-") ||
        name_begins(found, "x-oss-") || name_is_among(found, names) || is_key(found))
        return true;
    for (const char *const *ending = endings; *ending; ending++)
        if (name_ends(found, *ending))
            return true;
    return is_signed && (name_begins(found, "q-") || name_is_among(found, companions));
}

/* ---- the public form ---- */

/* Does "scheme://" stand before `host`? What stands before it ("--data=") does not matter. */
static bool has_scheme(const char *text, const char *host, const char *scheme)
{
    size_t length = strlen(scheme) + 3, before = (size_t)(host - text);
    return before >= length && strncasecmp(host - length, scheme, strlen(scheme)) == 0;
}

/* What follows '?', where that is not a part of the name, as it is in buckets and paths; else
 * NULL. */
static const char *query_of(const char *text, const char *host)
{
    const char *query = host + strcspn(host, "?#");
    bool has_queries =
        has_scheme(text, host, "http") || has_scheme(text, host, "https") || has_scheme(text, host, "az");
    return *query == '?' && has_queries ? query + 1 : NULL;
}

char *fth_address_public(const char *text)
{
    const char *host = strstr(text, "://");
    char *result = strdup(text), *to = result;
    if (!host || !result)
        return result;
    host += 3;
    const char *query = query_of(text, host), *at = NULL;
    for (size_t i = 0, end = strcspn(host, "/?#"); i < end; i++)
        at = host[i] == '@' ? host + i : at; /* a password may hold one itself */
    const char *rest = at ? at + 1 : host, *path_end = query ? query - 1 : rest + strlen(rest);
    to = mempcpy(to, text, (size_t)(host - text));
    to = mempcpy(to, rest, (size_t)(path_end - rest));
    if (query) {
        bool is_signed = false;
        char separator = '?';
        parameter found;
        for (const char *left = query; next_parameter(&left, &found);)
            is_signed = is_signed || is_signature(&found);
        while (next_parameter(&query, &found)) {
            if (is_secret(&found, is_signed))
                continue;
            *to++ = separator;
            to = mempcpy(to, found.begin, found.length);
            separator = '&';
        }
        to = mempcpy(to, query, strlen(query)); /* what follows '#' */
    }
    *to = '\0';
    return result;
}

bool fth_address_has_secret(const char *text)
{
    char *public = fth_address_public(text);
    bool differs = public && strcmp(public, text) != 0;
    free(public);
    return differs;
}

void fth_address_hide_secrets(char *message)
{
    for (char *at = message, *host; (host = strstr(at, "://")); at = host) {
        host += 3;
        size_t length = (size_t)(host - at) + strcspn(host, " \t\r\n");
        while (at + length > host && strchr("\"'`:;,.)]}>", at[length - 1]))
            length--;
        char *whole = strndup(at, length), *public = whole ? fth_address_public(whole) : NULL;
        size_t kept = public ? strlen(public) : (size_t)(host - at); /* without memory: better nothing than a secret */
        if (public)
            memcpy(at, public, kept);
        memmove(at + kept, at + length, strlen(at + length) + 1);
        fth_wipe_text(whole);
        free(public);
    }
}

fth_status fth_address_check_plain(const char *text)
{
    if (fth_address_has_secret(text))
        return fth_fail(FTH_INVALID, "an address without user, password or token; keys come from the environment");
    return FTH_OK;
}

/* ---- whole addresses ---- */

static struct {
    pthread_mutex_t mutex; /* guards what follows */
    char **whole;          /* without what follows '#' */
    size_t count, capacity;
} remembered = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static char *without_fragment(const char *text)
{
    return strstr(text, "://") ? strndup(text, strcspn(text, "#")) : strdup(text);
}

static bool has_public_form(const char *whole, const char *public)
{
    char *form = fth_address_public(whole);
    bool same = form && strcmp(form, public) == 0;
    free(form);
    return same;
}

fth_status fth_address_remember(const char *whole)
{
    if (!fth_address_has_secret(whole))
        return FTH_OK;
    char *copy = without_fragment(whole);
    pthread_mutex_lock(&remembered.mutex);
    fth_status status =
        copy ? fth_grow(&remembered.whole, remembered.count, &remembered.capacity, sizeof *remembered.whole)
             : fth_fail(FTH_NO_MEMORY, "no memory for an address");
    if (status == FTH_OK) {
        remembered.whole[remembered.count++] = copy;
        copy = NULL;
    }
    pthread_mutex_unlock(&remembered.mutex);
    fth_wipe_text(copy);
    return status;
}

char *fth_address_whole(const char *text)
{
    static const char *const variables[] = {FTH_DATA_URL_VARIABLE, FTH_SERVER_URL_VARIABLE};
    char *plain = without_fragment(text), *found = NULL;
    if (!plain || !strstr(plain, "://") || fth_address_has_secret(plain)) {
        free(plain);
        return strdup(text);
    }
    pthread_mutex_lock(&remembered.mutex);
    for (size_t i = remembered.count; i > 0 && !found; i--)
        if (has_public_form(remembered.whole[i - 1], plain))
            found = strdup(remembered.whole[i - 1]);
    pthread_mutex_unlock(&remembered.mutex);
    for (size_t i = 0; i < sizeof variables / sizeof *variables && !found; i++) {
        const char *value = getenv(variables[i]);
        char *whole = value && *value ? without_fragment(value) : NULL;
        if (whole && has_public_form(whole, plain)) {
            found = whole;
            whole = NULL;
        }
        fth_wipe_text(whole);
    }
    free(plain);
    return found ? found : strdup(text);
}
