/* Downloads a shard into a file, with retries. */
#ifndef FTH_FUNCTIONS_SHARD_DOWNLOAD_H
#define FTH_FUNCTIONS_SHARD_DOWNLOAD_H

#include "functions/shard_cache.h"
#include "http/http.h"

typedef struct fth_shard_download_options {
    fth_http_client *client;
    const fth_shard_request *request;
    const char *shown_url; /* for messages */
    int descriptor;        /* of the file, whose content is replaced */
    uint64_t offset;       /* of the shard's bytes in the file */
    uint64_t limit_bytes;
    const char *place;       /* of the file, for messages */
    const char *cached_etag; /* of the shard in the cache; "": none */
} fth_shard_download_options;

/* Requests the shard until it is answered, its deadline or a stop. *fresh: the file holds its
 * bytes; else the shard in the cache is still current. `etag`: its ETag without quotes, or "". */
fth_status fth_shard_download(const fth_shard_download_options *options, char etag[128], bool *fresh,
                              uint64_t *received_bytes);

/* Copies a strong ETag without its quotes; "" for any other. */
void fth_plain_etag(const char *given, char etag[128]);

#endif
