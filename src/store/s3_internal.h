/* Buckets over the S3 protocol, Google's included.
 *
 * s3.c             opening and addresses; the tables of s3:// and gs://
 * s3_request.c     a signed request, with the clock, the region or the keys mended where the server asks for it
 * s3_error.c       what the server's error codes mean, and what to do
 * s3_xml.c         the few elements of its answers that matter
 * s3_read.c        get, ranges, stat, list, files
 * s3_write.c       put, conditions, delete
 * s3_multipart.c   large objects in parts
 * s3_tree.c        checksums of parts
 * s3_upload.c      the parts of a file's upload that are done, kept for the next try
 *
 * Checksums. A small object carries its SHA-256 in the signature, which every server checks, and keeps it as metadata
 * ("sha256"). The parts of a large one carry their MD5s, which servers compute anyway (md5_lanes.h); the metadata,
 * which must be there before the first part goes, holds an XXH3 of all of it ("tree", s3_tree.c). Either is checked on
 * the way back. */
#ifndef FTH_STORE_S3_INTERNAL_H
#define FTH_STORE_S3_INTERNAL_H

#include "store/credentials.h"
#include "store/md5_lanes.h"
#include "store/sigv4.h"
#include "store/store_internal.h"

enum { FTH_S3_MAX_PAIRS = 12 };

typedef struct fth_s3 {
    bool google;
    bool amazon; /* no endpoint was given: the host depends on the region */
    bool host_style;
    char *bucket;
    char *prefix; /* "" or "a/b/" */
    fth_credentials *credentials;

    pthread_mutex_t mutex; /* guards what follows */
    char *region;
    char *origin; /* "https://host:port", what URLs begin with */
    char *host;   /* "host:port", as the Host header has it */
    char *base;   /* path of the bucket: "" (host style) or "/bucket", escaped */
    double clock_offset_s;
    bool bucket_seen; /* some request found it */
    bool bare_match;  /* If-Match takes the ETag without quotes (Ceph) */
} fth_s3;

fth_s3 *fth_s3_of(const fth_store *store);
/* (Re)builds origin, host and base for the region in force. The lock is held. */
void fth_s3_set_address(fth_s3 *s3, const char *endpoint_origin, const char *endpoint_path);

/* ---- requests ---- */

typedef struct fth_s3_request {
    fth_store *store;
    const char *what; /* "put": for messages */
    const char *method;
    const char *key; /* relative to the store; NULL: the bucket */
    fth_pair query[FTH_S3_MAX_PAIRS];
    int query_count;
    fth_pair headers[FTH_S3_MAX_PAIRS]; /* names in small letters; "x-meta-..." gets the dialect's prefix by _meta */
    int header_count;
    char *owned[FTH_S3_MAX_PAIRS]; /* values made for this request */
    int owned_count;

    const void *body;
    uint64_t body_bytes;
    const char *payload_hash; /* hex SHA-256 of the body; NULL: computed here */
    void *into;
    uint64_t into_bytes, max_body_bytes;
    fth_status (*sink)(void *context, uint64_t offset, const void *bytes, size_t size_bytes); /* instead of into */
    void *sink_context;

    fth_deadline deadline;
    double stall_s;
    fth_store_meter *meter;
    fth_status (*check)(void *request, const fth_http_response *response); /* of an answer under 300; may be NULL */
    void *check_context;

    /* Set by sending. */
    bool uncertain;
    char *name; /* "s3://bucket/key" */
    char hash[65];
    char *url, **lines;
    bool mended_clock, mended_region, mended_keys;
    int conflicts;
} fth_s3_request;

void fth_s3_add_query(fth_s3_request *request, const char *name, const char *value);
void fth_s3_add_header(fth_s3_request *request, const char *name, const char *value);
/* A value in fresh memory, which the request frees. */
void fth_s3_add_made_header(fth_s3_request *request, const char *name, char *value);
/* "x-amz-meta-<name>" or Google's. */
void fth_s3_add_meta(fth_s3_request *request, const char *name, const char *value);
char *fth_s3_meta(const fth_s3 *s3, const fth_http_response *response, const char *name); /* free() it; or NULL */

/* Signs and sends with retries: FTH_OK with any answer that is not worth retrying. */
fth_status fth_s3_send(fth_s3_request *request, fth_http_response *response);
void fth_s3_release(fth_s3_request *request);
/* Turns an answer that is an error into a message with what to do. */
fth_status fth_s3_explain(const fth_s3_request *request, const fth_http_response *response);

/* The version that an answer's headers tell: the generation, or the ETag without quotes. */
void fth_s3_version(const fth_s3 *s3, const fth_http_response *response, fth_store_version *version);
/* Adds the header that binds a read or a write to a version. */
void fth_s3_add_match(fth_s3_request *request, const fth_store_version *version);

/* ---- answers ---- */

/* Calls leaf() for each element that holds text alone, with its path ("ListBucketResult/Contents/Key") and the text,
 * entities replaced; close() (may be NULL) at the end of each that holds others. FTH_CORRUPT for what is no XML. */
typedef struct fth_xml_visitor {
    fth_status (*leaf)(void *context, const char *path, const char *text);
    fth_status (*close)(void *context, const char *path);
    void *context;
} fth_xml_visitor;
fth_status fth_s3_read_xml(const char *text, size_t size_bytes, const fth_xml_visitor *visitor);
/* The text of the first element of that name (its last path component); NULL: none. free() it. */
char *fth_s3_xml_value(const char *text, size_t size_bytes, const char *name);

/* ---- the kind's functions ---- */

fth_status fth_s3_get(fth_store *store, const char *key, size_t max_bytes, fth_deadline deadline, char **bytes,
                      size_t *size_bytes, fth_store_version *version);
fth_status fth_s3_get_range(fth_store *store, const char *key, uint64_t offset, void *into, size_t size_bytes,
                            const fth_store_version *version, fth_deadline deadline);
fth_status fth_s3_stat(fth_store *store, const char *key, fth_deadline deadline, fth_store_object *object, bool *found);
fth_status fth_s3_list(fth_store *store, const char *prefix, bool (*visit)(void *context, const fth_store_object *),
                       void *context);
fth_status fth_s3_get_file(fth_store *store, const char *key, const char *path, const fth_store_progress *progress,
                           char sha256[65]);
fth_status fth_s3_put(fth_store *store, const char *key, const void *bytes, size_t size_bytes,
                      const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                      fth_store_version *version);
fth_status fth_s3_put_source(fth_store *store, const char *key, const fth_store_source *source,
                             const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                             fth_store_version *version);
fth_status fth_s3_put_file(fth_store *store, const char *key, const char *path, const fth_store_put_options *options,
                           fth_deadline deadline, bool *lost, fth_store_version *version);
fth_status fth_s3_remove(fth_store *store, const char *key, fth_deadline deadline);
fth_status fth_s3_probe_conditions(fth_store *store, fth_deadline deadline, char **why);
fth_status fth_s3_presign(fth_store *store, const char *method, const char *key, double seconds, char **url);

/* HEAD: FTH_OK and found false where there is no such object. The answer's headers are in `response`. */
fth_status fth_s3_head(fth_store *store, const char *key, fth_deadline deadline, fth_http_response *response,
                       bool *found);
/* A number that no other put has, for the metadata "put". */
void fth_s3_make_number(char hex[33]);
/* Is the object there the one that the put of that number wrote? Then `version` is its. */
fth_status fth_s3_look_whose(fth_store *store, const char *key, const char *number, fth_deadline deadline, bool *ours,
                             fth_store_version *version);

/* ---- checksums of parts (s3_tree.c) ---- */

enum { FTH_S3_CHUNK_BYTES = 8 << 20, FTH_S3_MAX_CHUNK_BYTES = 64 << 20 };

typedef struct fth_s3_sum {
    unsigned char bytes[16];
} fth_s3_sum;

/* The MD5 of each part of a source and the checksum of the whole, several threads and lanes at a time. Parts are
 * multiples of FTH_S3_CHUNK_BYTES. `meter` may cancel it. */
fth_status fth_s3_hash_parts(const fth_store_source *source, uint64_t part_bytes, fth_store_meter *meter,
                             unsigned char (*digests)[FTH_MD5_BYTES], char tree[96]);
void fth_s3_sum_chunk(const void *bytes, size_t size_bytes, fth_s3_sum *sum);
/* The same piece by piece: `first` begins anew; _end gives the sum (NULL: not wanted) and frees. */
typedef struct fth_s3_sum_state fth_s3_sum_state;
fth_status fth_s3_sum_add(fth_s3_sum_state **state, bool first, const void *bytes, size_t size_bytes);
void fth_s3_sum_end(fth_s3_sum_state **state, fth_s3_sum *sum);
/* "xxh3-8388608-<hex>": the checksum over those of the chunks. */
void fth_s3_tree_text(uint64_t chunk_bytes, const fth_s3_sum *sums, uint64_t chunks, char text[96]);
/* The size of its chunks; 0: NULL, or of a form that this version does not know. */
uint64_t fth_s3_tree_chunk_bytes(const char *tree);
uint64_t fth_s3_count_chunks(uint64_t size_bytes, uint64_t chunk_bytes);
/* FTH_CORRUPT unless the bytes have that checksum. */
fth_status fth_s3_check_tree(const char *tree, const void *bytes, uint64_t size_bytes);

/* ---- a file's upload in parts, kept over interruptions (s3_upload.c) ---- */

typedef struct fth_s3_upload fth_s3_upload;

/* Opens the note of an earlier upload of the same bytes (`tree`) to the same key, or an empty one. Never fails: where
 * no note can be kept, *upload is NULL, which the others take. *id (free()) is the upload to go on with, or NULL. */
void fth_s3_upload_open(fth_store *store, const char *key, const char *tree, uint64_t parts, fth_s3_upload **upload,
                        char **id);
/* The id of an upload of other bytes to the same key, to be aborted; NULL: none. Lent. */
const char *fth_s3_upload_stale(const fth_s3_upload *upload);
/* The ETag of a part that is done, or NULL. Lent. */
const char *fth_s3_upload_part(const fth_s3_upload *upload, uint64_t part);
void fth_s3_upload_begin(fth_s3_upload *upload, const char *tree, const char *id);
void fth_s3_upload_note(fth_s3_upload *upload, uint64_t part, const char *etag); /* any thread */
void fth_s3_upload_forget(fth_s3_upload *upload);                                /* complete or aborted */
void fth_s3_upload_free(fth_s3_upload *upload);

#endif
