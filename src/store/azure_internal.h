/* Azure's block blobs: az://account/container/prefix.
 *
 * azure.c         opening, addresses, shared access signatures, links
 * azure_request.c a request with its signature; what the service's error codes mean
 * azure_read.c    get, ranges, stat, list
 * azure_write.c   put, conditions, delete
 * azure_blocks.c  large objects in blocks
 *
 * Access is by a shared access signature: the one in AZURE_STORAGE_SAS_TOKEN or after a '?' in the address, or one made
 * for every request from the account's key in AZURE_STORAGE_KEY. Without either, what is public can be read.
 *
 * Checksums: what is sent carries its MD5, which the service checks and keeps for small objects; what comes back is
 * compared with it, and ranges, which are asked for in pieces small enough that the service adds one, with theirs. */
#ifndef FTH_STORE_AZURE_INTERNAL_H
#define FTH_STORE_AZURE_INTERNAL_H

#include "store/store_internal.h"

#define FTH_AZURE_VERSION "2020-12-06" /* of the protocol and of signatures */

enum { FTH_AZURE_MAX_HEADERS = 12, FTH_AZURE_MD5_TEXT = 25, FTH_AZURE_MAX_KEY_BYTES = 128 };

typedef struct fth_azure {
    char *endpoint; /* "https://account.blob.core.windows.net" */
    char *account, *container;
    char *prefix; /* "" or "a/b/" */
    char *token;  /* a signature given from outside, without '?'; NULL: none */
    unsigned char key[FTH_AZURE_MAX_KEY_BYTES];
    size_t key_bytes; /* 0: none */
} fth_azure;

static inline const fth_azure *fth_azure_of(const fth_store *store)
{
    return store->state;
}

/* A signature made from the key, as the end of a URL: for the container, or for the blob `name`. free() it. */
char *fth_azure_sign(const fth_azure *azure, const char *name, const char *permissions, double seconds);
/* The path of an object below the endpoint, escaped; `key` NULL: the container's. free() it. */
char *fth_azure_path(const fth_azure *azure, const char *key);
/* MD5 in base64, as the service writes it. */
void fth_azure_md5(const void *bytes, size_t size_bytes, char text[FTH_AZURE_MD5_TEXT]);

typedef struct fth_azure_request {
    fth_store *store;
    const char *what, *method;
    const char *key;   /* NULL: the container */
    const char *query; /* "comp=block&blockid=..", escaped; NULL: none */
    const void *body;
    uint64_t body_bytes;
    void *into;
    uint64_t into_bytes, max_body_bytes;
    fth_deadline deadline;
    fth_store_meter *meter;

    char *headers[FTH_AZURE_MAX_HEADERS + 1]; /* fth_azure_add_header() */
    int header_count;
    /* Set by sending. */
    bool uncertain;
    char *name, *url;
} fth_azure_request;

void fth_azure_add_header(fth_azure_request *request, const char *name, const char *value);
/* FTH_OK with any answer that is not worth retrying. An answer with a checksum that is wrong is asked for again. */
fth_status fth_azure_send(fth_azure_request *request, fth_http_response *response);
void fth_azure_release(fth_azure_request *request);
bool fth_azure_says(const fth_http_response *response, const char *code); /* "BlobNotFound" */
fth_status fth_azure_explain(const fth_azure_request *request, const fth_http_response *response);
/* The ETag without quotes, and back as a header. */
void fth_azure_version(const fth_http_response *response, fth_store_version *version);
void fth_azure_add_match(fth_azure_request *request, const fth_store_version *version);

/* What every write of a whole object ends with: sends it, finds out whether a refused one was in fact its own earlier
 * try, and sets *lost and *version. `number` is what the request carries as metadata. */
fth_status fth_azure_write(fth_azure_request *request, fth_store_condition condition, const char *number, bool *lost,
                           fth_store_version *version);
/* Adds the condition, the type and a fresh number. */
void fth_azure_begin_write(fth_azure_request *request, const fth_store_put_options *options, const char *type_header,
                           char number[33]);

fth_status fth_azure_head(fth_store *store, const char *key, fth_deadline deadline, fth_http_response *response,
                          bool *found);

/* ---- the kind's functions ---- */

fth_status fth_azure_get(fth_store *store, const char *key, size_t max_bytes, fth_deadline deadline, char **bytes,
                         size_t *size_bytes, fth_store_version *version);
fth_status fth_azure_get_range(fth_store *store, const char *key, uint64_t offset, void *into, size_t size_bytes,
                               const fth_store_version *version, fth_deadline deadline);
fth_status fth_azure_stat(fth_store *store, const char *key, fth_deadline deadline, fth_store_object *object,
                          bool *found);
fth_status fth_azure_list(fth_store *store, const char *prefix, bool (*visit)(void *context, const fth_store_object *),
                          void *context);
fth_status fth_azure_put(fth_store *store, const char *key, const void *bytes, size_t size_bytes,
                         const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                         fth_store_version *version);
fth_status fth_azure_put_source(fth_store *store, const char *key, const fth_store_source *source,
                                const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                                fth_store_version *version);
fth_status fth_azure_remove(fth_store *store, const char *key, fth_deadline deadline);

#endif
