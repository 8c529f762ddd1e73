/* Azure's block blobs: az://account/container/prefix. What they share with other clouds is in
 * bucket_internal.h.
 *
 * azure.c         opening, addresses, shared access signatures, links
 * azure_cloud.c   the cloud's table: names, error codes, signing and verifying
 * azure_write.c   put; large objects in blocks
 *
 * Access is by a shared access signature: the one in AZURE_STORAGE_SAS_TOKEN or after a '?' in the
 * address, or one made for every request from the account's key in AZURE_STORAGE_KEY. Without
 * either, what is public can be read.
 *
 * Checksums: what is sent carries its MD5, which the service checks and keeps for small objects;
 * what comes back is compared with it, and ranges, which are asked for in pieces small enough that
 * the service adds one, with theirs. */
#ifndef FTH_STORE_AZURE_INTERNAL_H
#define FTH_STORE_AZURE_INTERNAL_H

#include "store/bucket_internal.h"

#define FTH_AZURE_VERSION "2020-12-06" /* of the protocol and of signatures */

enum { FTH_AZURE_MD5_TEXT = 25, FTH_AZURE_MAX_KEY_BYTES = 128 };

typedef struct fth_azure {
    fth_bucket bucket; /* first; its name is the container's */
    char *endpoint;    /* "https://account.blob.core.windows.net" */
    char *account;
    char *token; /* a signature given from outside, without '?'; NULL: none */
    unsigned char key[FTH_AZURE_MAX_KEY_BYTES];
    size_t key_bytes; /* 0: none */
} fth_azure;

static inline const fth_azure *fth_azure_of(const fth_store *store)
{
    return store->state;
}

extern const fth_bucket_kind fth_bucket_azure;

/* A signature made from the key, as the end of a URL: for the container, or for the blob `name`.
 * free() it. */
char *fth_azure_sign(const fth_azure *azure, const char *name, const char *permissions, double seconds);
/* The path of an object below the endpoint, escaped; `key` NULL: the container's. free() it. */
char *fth_azure_path(const fth_azure *azure, const char *key);
/* MD5 in base64, as the service writes it. */
void fth_azure_md5(const void *bytes, size_t size_bytes, char text[FTH_AZURE_MD5_TEXT]);

fth_status fth_azure_put(fth_store *store, const char *key, const void *bytes, size_t size_bytes,
                         const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                         fth_store_version *version);
fth_status fth_azure_put_source(fth_store *store, const char *key, const fth_store_source *source,
                                const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                                fth_store_version *version);

#endif
