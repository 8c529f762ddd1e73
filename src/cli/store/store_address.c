/* Addresses on the command line, split into a store and a key. */
#include <stdlib.h>
#include <string.h>

#include "cli/store/s3_flags.h"
#include "cli/store/store_cli.h"
#include "http/http.h"

fth_store_options fth_s3_store_options(const fth_s3_flags *flags, double deadline_s)
{
    return (fth_store_options){.s3_endpoint = flags->endpoint,
                               .s3_region = flags->region,
                               .s3_style = flags->style,
                               .profile = flags->profile,
                               .deadline_s = deadline_s};
}

/* The place in `text` after its `count`-th slash or at its end. */
static const char *after_slashes(const char *text, int count)
{
    for (; *text; text++)
        if (*text == '/' && --count == 0)
            return text;
    return text;
}

/* "https://host/a/b?q" -> "https://host/a?q" and "b" */
static void split_web(const char *address, char **root, char **key)
{
    const char *host = strstr(address, "://") + 3;
    const char *query = address + strcspn(address, "?#");
    const char *slash = query;
    while (slash > host && *slash != '/')
        slash--;
    if (slash == host) {
        *root = strdup(address);
        *key = strdup("");
        return;
    }
    *root = fth_format("%.*s%s", (int)(slash - address), address, query);
    char *escaped = strndup(slash + 1, (size_t)(query - slash - 1));
    *key = escaped ? fth_http_unescape(escaped) : NULL;
    free(escaped);
}

/* "/data/a" -> "/data" and "a"; a folder that exists, "." and "..": themselves and "" */
static void split_path(const char *path, char **root, char **key)
{
    size_t length = strlen(path);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool folder = length == 0 || path[length - 1] == '/' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
                  fth_folder_exists(path);
    if (folder) {
        *root = strdup(length ? path : ".");
        *key = strdup("");
        return;
    }
    *root = slash ? strndup(path, slash > path ? (size_t)(slash - path) : 1) : strdup(".");
    *key = strdup(name);
}

/* "az://account/container/key?sig=..." -> "az://account/container?sig=..." and "key": a signature
 * is not part of the key, which messages show. */
static void split_azure(const char *address, const char *rest, char **root, char **key)
{
    const char *query = strchr(rest, '?');
    size_t length = query && strstr(query, "sig=") ? (size_t)(query - rest) : strlen(rest);
    const char *end = after_slashes(rest, 2);
    end = end < rest + length ? end : rest + length;
    *root = fth_format("%.*s%s", (int)(end - address), address, rest + length);
    *key = end < rest + length ? strndup(end + 1, (size_t)(rest + length - end - 1)) : strdup("");
}

static void split(const char *address, char **root, char **key)
{
    if (strncmp(address, "file:///", 8) == 0) {
        char *path = fth_http_unescape(address + 7);
        if (path)
            split_path(path, root, key);
        free(path);
        return;
    }
    if (!fth_store_is_url(address)) {
        split_path(address, root, key);
        return;
    }
    if (strncmp(address, "http", 4) == 0) {
        split_web(address, root, key);
        return;
    }
    const char *rest = strstr(address, "://") + 3;
    if (strncmp(address, "az:", 3) == 0) {
        split_azure(address, rest, root, key);
        return;
    }
    const char *end = after_slashes(rest, 1);
    *root = strndup(address, (size_t)(end - address));
    *key = strdup(*end ? end + 1 : end);
}

fth_status fth_place_open(const char *address, const fth_store_options *options, fth_place *place)
{
    fth_status status = FTH_OK;
    char *root = NULL, *whole = fth_address_whole(address); /* its secrets stay with the store's part */
    *place = (fth_place){0};
    FTH_REQUIRE(*address, FTH_INVALID, "an empty address");
    if (whole)
        split(whole, &root, &place->key);
    FTH_REQUIRE(root && place->key, FTH_NO_MEMORY, "no memory for an address");
    size_t length = strlen(place->key);
    place->folder = length == 0 || place->key[length - 1] == '/';
    place->prefix = fth_format("%s%s", place->key, place->folder ? "" : "/");
    if (length > 0 && place->folder)
        place->key[length - 1] = '\0';
    FTH_TRY(fth_store_open(root, options, &place->store));
    place->root = fth_store_folder(place->store);

out:
    free(root);
    free(whole);
    return status;
}

void fth_place_release(fth_place *place)
{
    fth_store_free(place->store);
    free(place->key);
    free(place->prefix);
    *place = (fth_place){0};
}

char *fth_place_describe(const fth_place *place)
{
    const char *url = fth_store_url(place->store), *key = place->folder ? place->prefix : place->key;
    if (*key && strcmp(url, ".") == 0)
        return strdup(key);
    if (*key == '/')
        return fth_format("%s/%s", url, key);
    return *key ? fth_path_join(url, key) : strdup(url);
}
