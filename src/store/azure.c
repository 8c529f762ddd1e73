/* See azure_internal.h: opening, addresses, shared access signatures, links. */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/azure_internal.h"

/* ---- opening ---- */

static const char *from_environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* The key is base64; never in a message. */
static fth_status read_key(fth_azure *azure, const char *text)
{
    fth_status status = FTH_OK;
    size_t length = strlen(text);
    unsigned char decoded[2 * FTH_AZURE_MAX_KEY_BYTES];
    FTH_REQUIRE(length > 0 && length % 4 == 0 && length / 4 * 3 <= FTH_AZURE_MAX_KEY_BYTES, FTH_INVALID,
                "AZURE_STORAGE_KEY is not a storage account's key (base64)");
    int bytes = EVP_DecodeBlock(decoded, (const unsigned char *)text, (int)length);
    FTH_REQUIRE(bytes > 0, FTH_INVALID, "AZURE_STORAGE_KEY is not a storage account's key (base64)");
    azure->key_bytes = (size_t)bytes - (text[length - 1] == '=') - (text[length - 2] == '=');
    memcpy(azure->key, decoded, azure->key_bytes);

out:
    fth_wipe(decoded, sizeof decoded);
    return status;
}

static fth_status read_credentials(fth_azure *azure, const char *query)
{
    fth_status status = FTH_OK;
    const char *token = *query ? query : from_environment("AZURE_STORAGE_SAS_TOKEN");
    const char *key = from_environment("AZURE_STORAGE_KEY");
    if (token) {
        token += *token == '?';
        FTH_REQUIRE(
            strstr(token, "sig="), FTH_INVALID,
            "AZURE_STORAGE_SAS_TOKEN, or what follows '?' in the address, is no shared access signature: it has no "
            "\"sig=\"");
        azure->token = strdup(token);
        FTH_REQUIRE(azure->token, FTH_NO_MEMORY, "no memory for an address");
    }
    if (key && !*query)
        FTH_TRY(read_key(azure, key));

out:
    return status;
}

static fth_status azure_open(fth_store *store, const char *scheme, const char *rest, const fth_store_options *options)
{
    fth_status status = FTH_OK;
    fth_azure *azure = NULL;
    (void)scheme;
    (void)options;
    FTH_TRY(fth_allocate(1, sizeof *azure, &azure));
    store->state = azure;
    azure->bucket.cloud = &fth_bucket_azure;
    size_t length = strcspn(rest, "?"), account = strcspn(rest, "/?");
    const char *query = rest[length] ? rest + length + 1 : "";
    const char *container = account < length ? rest + account + 1 : "";
    size_t container_length = account < length ? strcspn(container, "/?") : 0;
    FTH_REQUIRE(account > 0 && container_length > 0, FTH_INVALID,
                "az://%.*s: an address is az://account/container or az://account/container/prefix", (int)length, rest);
    const char *prefix = container + container_length;
    prefix += prefix < rest + length;
    azure->account = strndup(rest, account);
    azure->bucket.name = strndup(container, container_length);
    FTH_TRY(fth_store_read_prefix(store, prefix, (size_t)(rest + length - prefix), &azure->bucket.prefix));
    const char *endpoint = from_environment("FARTHING_AZURE_ENDPOINT");
    size_t endpoint_length = endpoint ? strlen(endpoint) : 0;
    while (endpoint_length > 0 && endpoint[endpoint_length - 1] == '/')
        endpoint_length--;
    azure->endpoint =
        endpoint ? strndup(endpoint, endpoint_length) : fth_format("https://%s.blob.core.windows.net", azure->account);
    store->url = fth_format("az://%.*s", (int)length - (rest[length - 1] == '/'), rest);
    FTH_REQUIRE(azure->account && azure->bucket.name && azure->endpoint && store->url, FTH_NO_MEMORY,
                "no memory for an address");
    FTH_TRY(read_credentials(azure, query));

out:
    return status;
}

static void azure_free(void *opaque)
{
    fth_azure *azure = opaque;
    if (!azure)
        return;
    fth_bucket_release(&azure->bucket);
    free(azure->endpoint);
    free(azure->account);
    fth_wipe_text(azure->token);
    fth_wipe(azure, sizeof *azure);
    free(azure);
}

/* ---- signatures ---- */

void fth_azure_md5(const void *bytes, size_t size_bytes, char text[FTH_AZURE_MD5_TEXT])
{
    unsigned char digest[EVP_MAX_MD_SIZE] = {0};
    unsigned length = 0;
    text[0] = '\0';
    if (EVP_Digest(bytes, size_bytes, digest, &length, EVP_md5(), NULL))
        EVP_EncodeBlock((unsigned char *)text, digest, 16);
}

/* A service SAS: base64 of HMAC-SHA256 over 16 lines, those that are not used empty. */
char *fth_azure_sign(const fth_azure *azure, const char *name, const char *permissions, double seconds)
{
    char until[64];
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    unsigned char signature[64];
    fth_clock_format_utc(fth_clock_wall_seconds() + seconds, until, sizeof until);
    const char *kind = name ? "b" : "c";
    char *lines = fth_format("%s\n\n%s\n/blob/%s/%s%s%s\n\n\n\n" FTH_AZURE_VERSION "\n%s\n\n\n\n\n\n\n", permissions,
                             until, azure->account, azure->bucket.name, name ? "/" : "", name ? name : "", kind);
    if (!lines || !HMAC(EVP_sha256(), azure->key, (int)azure->key_bytes, (const unsigned char *)lines, strlen(lines),
                        digest, &length)) {
        free(lines);
        return NULL;
    }
    EVP_EncodeBlock(signature, digest, (int)length);
    char *escaped = fth_http_escape((const char *)signature, false), *escaped_until = fth_http_escape(until, false);
    char *token = escaped && escaped_until ? fth_format("sv=" FTH_AZURE_VERSION "&se=%s&sr=%s&sp=%s&sig=%s",
                                                        escaped_until, kind, permissions, escaped)
                                           : NULL;
    free(escaped);
    free(escaped_until);
    free(lines);
    return token;
}

char *fth_azure_path(const fth_azure *azure, const char *key)
{
    char *name =
        key ? fth_format("%s/%s%s", azure->bucket.name, azure->bucket.prefix, key) : strdup(azure->bucket.name);
    char *path = name ? fth_http_escape(name, true) : NULL;
    free(name);
    return path;
}

static fth_status azure_presign(fth_store *store, const char *method, const char *key, double seconds, char **url)
{
    fth_status status = FTH_OK;
    const fth_azure *azure = fth_azure_of(store);
    char *name = fth_format("%s%s", azure->bucket.prefix, key), *path = fth_azure_path(azure, key), *token = NULL;
    FTH_REQUIRE(
        azure->key_bytes > 0, FTH_UNSUPPORTED,
        "%s: a link is made with the account's key; set AZURE_STORAGE_KEY (a shared access signature cannot make "
        "another)",
        store->url);
    FTH_REQUIRE(seconds >= 1, FTH_INVALID, "a link must work for a second at least");
    token = name ? fth_azure_sign(azure, name, strcmp(method, "PUT") == 0 ? "cw" : "r", seconds) : NULL;
    FTH_REQUIRE(path && token, FTH_NO_MEMORY, "no memory for an address");
    *url = fth_format("%s/%s?%s", azure->endpoint, path, token);

out:
    free(token);
    free(path);
    free(name);
    return status;
}

static const char *const schemes[] = {"az", NULL};

/* Conditions need no probe: the service has always kept to them. */
const fth_store_kind fth_store_kind_azure = {
    .name = "az",
    .schemes = schemes,
    .open = azure_open,
    .free = azure_free,
    .get = fth_bucket_get,
    .get_range = fth_bucket_get_range,
    .stat = fth_bucket_stat,
    .list = fth_bucket_list,
    .put = fth_azure_put,
    .put_source = fth_azure_put_source,
    .remove = fth_bucket_remove,
    .presign = azure_presign,
};
