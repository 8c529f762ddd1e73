/* Buckets: what the object stores of all clouds have in common.
 *
 * bucket_request.c  a request with its retries; what error codes mean; versions, conditions,
 *                   metadata
 * bucket_read.c     get, ranges, stat
 * bucket_list.c     lists, page by page
 * bucket_write.c    writes under a condition, delete
 *
 * A cloud is a table of what is its own (fth_bucket_kind): names of headers and elements, error
 * codes, how a request is signed and how what came is verified. Its kind of store
 * (store_internal.h) takes get, get_range, stat, list and remove from here and adds opening, put
 * and links:
 *
 *     s3.c      s3:// and gs://
 *     azure.c   az:// */
#ifndef FTH_STORE_BUCKET_INTERNAL_H
#define FTH_STORE_BUCKET_INTERNAL_H

#include "store/sigv4.h" /* fth_pair */
#include "store/store_internal.h"
#include "store/xml.h"

enum { FTH_BUCKET_MAX_PAIRS = 12 };

/* One request, as its caller fills it in with designated initializers, and what sending leaves in
 * it. Wide for that reason: it lives in one function, and no other thread sees it. */
typedef struct fth_bucket_request {
    fth_store *store;
    const char *what; /* "put": for messages */
    const char *method;
    const char *key; /* relative to the store; NULL: the bucket */
    fth_pair query[FTH_BUCKET_MAX_PAIRS];
    int query_count;
    fth_pair headers[FTH_BUCKET_MAX_PAIRS]; /* names in small letters */
    int header_count;
    char *owned[FTH_BUCKET_MAX_PAIRS]; /* names and values made for this request */
    int owned_count;

    const void *body;
    uint64_t body_bytes;
    const char *payload_hash; /* S3: hex SHA-256 of the body, or "UNSIGNED-PAYLOAD"; NULL: computed here */
    void *into;
    uint64_t into_bytes, max_body_bytes;
    fth_store_sink sink; /* instead of into */

    fth_deadline deadline;
    double stall_s;
    fth_store_meter *meter;
    fth_status (*check)(void *request, const fth_http_response *response); /* of an answer under 300; may be NULL */

    /* Set by sending. */
    int tries;
    bool uncertain; /* a try before the last may have been carried out although no answer said so */
    char *name;     /* "s3://bucket/key" */
    char hash[65];
    char *url, **lines; /* of the try under way, by the cloud's sign() */
    bool mended_clock, mended_region, mended_keys;
    int conflicts;
} fth_bucket_request;

/* An error code, and what to tell the user. `advice` may have one %s: where the keys came from, or
 * the bucket. */
typedef struct fth_cloud_error {
    const char *code;
    fth_status status;
    enum { FTH_NAMES_NOTHING, FTH_NAMES_KEYS, FTH_NAMES_BUCKET } names;
    const char *advice;
} fth_cloud_error;

/* A const table; wide, as each field is one difference between clouds. */
typedef struct fth_bucket_kind {
    /* Headers, in small letters. */
    const char *range, *version, *match; /* "range", "etag", "if-match" */
    bool quoted;                         /* versions stand between quotes, as ETags do */
    fth_pair absent;                     /* what makes a write fail where there is an object: {"if-none-match", "*"} */
    const char *meta;                    /* what names of metadata begin with: "x-amz-meta-" */
    size_t most_range_bytes;             /* in one request; 0: any */

    /* A list: what is asked, and the elements of the answer, those of an object below `entry`. */
    fth_pair list[2];
    const char *list_token; /* the parameter that asks for the next page */
    const char *list_after; /* the one that names a key to begin behind; NULL: there is none */
    struct {
        const char *entry, *key, *size, *modified, *version;
        const char *token, *more; /* of the next page; whether there is one ("true"), or NULL: there is if a token is */
    } elements;

    /* Error codes. */
    const char *no_bucket, *no_object;                      /* "NoSuchBucket", "NoSuchKey" */
    const char *exists;                                     /* the 409 that says so; NULL: any */
    bool mute_heads;                                        /* an answer to HEAD does not tell the code */
    const fth_cloud_error *errors;                          /* ended by one without a code */
    char *(*error_code)(const fth_http_response *response); /* free() it; or NULL */

    /* Makes request->url and ->lines for a try. */
    fth_status (*sign)(fth_bucket_request *request);
    /* As in fth_store_call; optional. */
    bool (*mend)(void *request, const fth_http_response *response);
    /* Compares the bytes of a get, whole (200) or a part (206), with what the answer says of them:
     * FTH_CORRUPT. */
    fth_status (*verify)(const fth_store *store, const fth_http_response *response, const void *bytes,
                         size_t size_bytes);
    const char *(*keys_from)(const fth_store *store); /* for messages */
    char *(*origin)(const fth_store *store);          /* "https://host", for messages; free() it */
} fth_bucket_kind;

/* What the state of such a store begins with. */
typedef struct fth_bucket {
    const fth_bucket_kind *cloud;
    char *name;              /* the bucket's, or the container's */
    char *prefix;            /* "" or "a/b/" */
    _Atomic bool seen;       /* some request found the bucket */
    _Atomic bool bare_match; /* writes take the version to match without quotes (Ceph) */
} fth_bucket;

static inline fth_bucket *fth_bucket_of(const fth_store *store)
{
    return store->state;
}

void fth_bucket_release(fth_bucket *bucket);

/* ---- requests ---- */

void fth_bucket_add_query(fth_bucket_request *request, const char *name, const char *value);
void fth_bucket_add_header(fth_bucket_request *request, const char *name, const char *value);
/* A value in fresh memory, which the request frees. */
void fth_bucket_add_made_header(fth_bucket_request *request, const char *name, char *value);
void fth_bucket_add_meta(fth_bucket_request *request, const char *name, const char *value);
char *fth_bucket_meta(const fth_store *store, const fth_http_response *response,
                      const char *name); /* free(); or NULL */

/* Signs and sends with retries: FTH_OK with any answer that is not worth retrying. */
fth_status fth_bucket_send(fth_bucket_request *request, fth_http_response *response);
void fth_bucket_end(fth_bucket_request *request);
/* Turns an answer that is an error into a message with what to do. */
fth_status fth_bucket_explain(const fth_bucket_request *request, const fth_http_response *response);
bool fth_bucket_says(const fth_store *store, const fth_http_response *response, const char *code);
/* 404, and not since the bucket is missing. */
bool fth_bucket_says_absent(const fth_store *store, const fth_http_response *response);

/* A version as the text has it, without quotes; and the one that an answer's headers tell. */
void fth_bucket_read_version(const char *text, fth_store_version *version);
void fth_bucket_version(const fth_store *store, const fth_http_response *response, fth_store_version *version);
/* Binds a read or a write to a version. */
void fth_bucket_add_match(fth_bucket_request *request, const fth_store_version *version);

/* Wall seconds of "Sun, 06 Nov 1994 08:49:37 GMT" or "1994-11-06T08:49:37.000Z"; 0: neither. */
double fth_bucket_read_time(const char *text);

/* ---- functions of a kind ---- */

fth_status fth_bucket_get(fth_store *store, const char *key, size_t max_bytes, fth_deadline deadline, char **bytes,
                          size_t *size_bytes, fth_store_version *version);
fth_status fth_bucket_get_range(fth_store *store, const char *key, uint64_t offset, void *into, size_t size_bytes,
                                const fth_store_version *version, fth_deadline deadline);
/* The same to a function, as it comes; not verified. */
fth_status fth_bucket_get_range_to(fth_store *store, const char *key, uint64_t offset, size_t size_bytes,
                                   const fth_store_version *version, fth_deadline deadline, const fth_store_sink *sink);
fth_status fth_bucket_stat(fth_store *store, const char *key, fth_deadline deadline, fth_store_object *object,
                           bool *found);
fth_status fth_bucket_list(fth_store *store, const char *prefix, const char *after,
                           bool (*visit)(void *context, const fth_store_object *), void *context);
fth_status fth_bucket_remove(fth_store *store, const char *key, fth_deadline deadline);

/* HEAD: FTH_OK and found false where there is no such object. The answer's headers are in
 * `response`. */
fth_status fth_bucket_head(fth_store *store, const char *key, fth_deadline deadline, fth_http_response *response,
                           bool *found);
/* Size, time and version from those headers; not the key. */
fth_status fth_bucket_describe(const fth_store *store, const char *key, const fth_http_response *response,
                               fth_store_object *object);

/* ---- writes (bucket_write.c) ---- */

/* A number that no other put has, for the metadata "put". */
void fth_bucket_make_number(char hex[33]);
/* Adds the number and the condition to a request that makes an object. */
void fth_bucket_add_condition(fth_bucket_request *request, const fth_store_put_options *options);
/* Does the answer say that the condition did not hold? */
bool fth_bucket_says_lost(const fth_store *store, const fth_http_response *response, fth_store_condition condition);
/* Is the object there the one that the put of that number wrote? Then `version` is its. */
fth_status fth_bucket_look_whose(fth_store *store, const char *key, const char *number, fth_deadline deadline,
                                 bool *ours, fth_store_version *version);
/* Sends a request that makes a whole object at once, under the condition and the number that it
 * carries. */
fth_status fth_bucket_write(fth_bucket_request *request, fth_store_condition condition, const char *number, bool *lost,
                            fth_store_version *version);

#endif
