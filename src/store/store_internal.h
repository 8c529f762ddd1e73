/* What the kinds of stores are made of, and what they share.
 *
 * store.c       finds the kind of a URL; checks keys and options, and hands over to the kind
 * request.c     one HTTP request with its retries inside a deadline, over kept connections
 * deletion.c    all that is below a prefix, deleted on a user's word
 * transfer.c    large objects: threads, the meter, parallel ranges into a file
 * bucket_*.c    what the buckets of all clouds share (bucket_internal.h); a cloud is a table there
 * s3_*.c        buckets over the S3 protocol, Amazon's and Google's (s3_internal.h)
 * azure*.c      Azure's (azure_internal.h)
 * folder*.c, https.c   the others
 *
 * A new kind is a file with a table, and a row of FTH_STORE_KINDS. */
#ifndef FTH_STORE_STORE_INTERNAL_H
#define FTH_STORE_STORE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "http/http.h"
#include "store/store.h"

/* Keys and options have been checked when these are called; deadlines are moments (at_seconds may
 * be INFINITY where a large transfer has none: then it goes on while it makes progress). Any of
 * them may be called by several threads. */
typedef struct fth_store_kind {
    const char *name;           /* "s3", for messages */
    const char *const *schemes; /* {"s3", NULL}; "" stands for plain paths: {"file", "", NULL} */
    bool keys_are_paths;        /* "a//b" is "a/b", so only one of them can be a key */
    /* `rest`: the URL after "scheme://" ("bucket/prefix"); for paths all of it. Sets store->state,
     * and store->url if the URL as given holds secrets. */
    fth_status (*open)(fth_store *store, const char *scheme, const char *rest, const fth_store_options *options);
    void (*free)(void *state); /* may get a half-made state, or NULL */

    fth_status (*get)(fth_store *store, const char *key, size_t max_bytes, fth_deadline deadline, char **bytes,
                      size_t *size_bytes, fth_store_version *version);
    fth_status (*get_range)(fth_store *store, const char *key, uint64_t offset, void *into, size_t size_bytes,
                            const fth_store_version *version, fth_deadline deadline);
    fth_status (*stat)(fth_store *store, const char *key, fth_deadline deadline, fth_store_object *object, bool *found);
    /* Optional (FTH_UNSUPPORTED): plain web servers have no lists. `after`: keys up to this one may
     * be left out. */
    fth_status (*list)(fth_store *store, const char *prefix, const char *after,
                       bool (*visit)(void *context, const fth_store_object *), void *context);
    /* Optional: without it, stat and get_range from several threads (transfer.c). `progress` may be
     * NULL. */
    fth_status (*get_file)(fth_store *store, const char *key, const char *path, const fth_store_progress *progress,
                           char sha256[65]);

    /* Optional: a kind without `put` is read-only. *lost is false on entry. */
    fth_status (*put)(fth_store *store, const char *key, const void *bytes, size_t size_bytes,
                      const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                      fth_store_version *version);
    /* Optional: without it, the whole source through `put`. A condition that does not hold is *lost
     * here too. */
    fth_status (*put_source)(fth_store *store, const char *key, const fth_store_source *source,
                             const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                             fth_store_version *version);
    /* Optional: without it, the mapped file through put_source. */
    fth_status (*put_file)(fth_store *store, const char *key, const char *path, const fth_store_put_options *options,
                           fth_deadline deadline, bool *lost, fth_store_version *version);
    fth_status (*remove)(fth_store *store, const char *key, fth_deadline deadline); /* optional, as `put` */
    /* Optional: without it, conditions always hold. Tries out whether the server keeps to
     * conditions; *why (free()) says why not, or stays NULL. */
    fth_status (*probe_conditions)(fth_store *store, fth_deadline deadline, char **why);
    /* Optional. */
    fth_status (*presign)(fth_store *store, const char *method, const char *key, double seconds, char **url);
    const char *(*folder)(const fth_store *store); /* optional */
} fth_store_kind;

enum { FTH_STORE_IDLE_CLIENTS = 64 };

struct fth_store {
    const fth_store_kind *kind;
    void *state; /* the kind's own */
    char *url;   /* as given, without secrets */
    double deadline_s;
    _Atomic uint64_t left_out; /* of lists */

    pthread_mutex_t mutex; /* guards what follows */
    fth_http_client *idle[FTH_STORE_IDLE_CLIENTS];
    int idle_count;
    bool conditions_known;
    char *conditions_missing; /* why conditional writes are not to be had; NULL: they are */
};

/* Every kind; a new one is a file that defines fth_store_kind_NAME, and its row here. A URL is
 * opened by the first kind that has its scheme. */
#define FTH_STORE_KINDS(ROW)                                                                                           \
    ROW(folder)                                                                                                        \
    ROW(https)                                                                                                         \
    ROW(s3)                                                                                                            \
    ROW(gs)                                                                                                            \
    ROW(azure)

#define FTH_DECLARE(name) extern const fth_store_kind fth_store_kind_##name;
FTH_STORE_KINDS(FTH_DECLARE)
#undef FTH_DECLARE

/* Deadline of a small request that begins now. */
fth_deadline fth_store_deadline(const fth_store *store);
/* Of one request that moves `bytes`, within `outer`: longer the more there is to move. */
fth_deadline fth_store_large_deadline(const fth_store *store, uint64_t bytes, fth_deadline outer);
/* "s3://bucket/prefix/key", for messages; free() it. */
char *fth_store_describe(const fth_store *store, const char *key);
/* What all keys of a bucket begin with whose address goes on with `path` after the bucket's name:
 * "" or "a/b/". free() it. */
fth_status fth_store_read_prefix(const fth_store *store, const char *path, size_t length, char **prefix);

/* ---- one request, with its retries (request.c) ---- */

typedef struct fth_store_meter fth_store_meter;

typedef struct fth_store_call {
    const char *what;         /* "put s3://bucket/key", for messages; no secrets */
    fth_http_request request; /* method, url, headers, body, into; its deadline and progress are set for each try */
    fth_deadline deadline;    /* of all tries together */
    double stall_s;           /* a try that moves nothing for this long is given up; 0: a quarter of the deadline */

    /* Before each try: sets url and headers (signatures hold a time). Optional. */
    fth_status (*prepare)(void *context, fth_http_request *request);
    /* Sees an answer of 300 or more that is not retried anyway; true: the cause has been mended
     * (clock, region, token), try again at once. Optional. */
    bool (*mend)(void *context, const fth_http_response *response);
    /* Sees an answer under 300; a failure (FTH_CORRUPT: a checksum) is retried. Optional. */
    fth_status (*check)(void *context, const fth_http_response *response);
    void *context;

    fth_store_meter *meter; /* counts bytes of body and `into`, and cancels; optional */

    /* Set on return. */
    int tries;
    bool uncertain; /* a try before the last may have been carried out although no answer said so */
} fth_store_call;

/* Performs the request; 408, 429, 500, 502, 503 and 504 and broken connections are tried again,
 * with backoff and jitter (at least the answer's Retry-After), until the deadline. FTH_OK with any
 * other answer, for the caller to judge. When time runs out: FTH_IO or FTH_TIMEOUT with the last
 * cause, never FTH_PEER_LOST. Release `response` in any case. */
fth_status fth_store_send(fth_store *store, fth_store_call *call, fth_http_response *response);

/* ---- large transfers (transfer.c) ---- */

struct fth_store_meter {
    const fth_store_progress *progress; /* may be NULL */
    uint64_t total_bytes;
    _Atomic uint64_t done_bytes;
    _Atomic bool cancelled;   /* by the caller, or since another part failed */
    _Atomic bool interrupted; /* by the caller */
    pthread_mutex_t mutex;
    double told_at_s;
    fth_store_switch *running; /* notes its requests; or NULL */
};

/* The meter of the piece that the calling thread fetches, for requests that have none of their own;
 * or NULL. */
extern _Thread_local fth_store_meter *fth_store_watched;

void fth_store_meter_begin(fth_store_meter *meter, uint64_t total_bytes, const fth_store_progress *progress);
/* False: stop. `bytes` may be negative (a try that failed). */
bool fth_store_meter_add(fth_store_meter *meter, int64_t bytes);

/* Notes a request, its failed tries and its end in the switch that the calling thread uses, if any
 * (switch.c). */
void fth_store_note_begin(const char *what);
void fth_store_note_failure(const char *what, const char *cause);
void fth_store_note_end(bool worked);

/* How many connections a large transfer uses. */
int fth_store_threads(void);
/* Takes an answer's bytes as they come; `offset` 0 starts over. */
typedef struct fth_store_sink {
    fth_status (*take)(void *context, uint64_t offset, const void *bytes, size_t size_bytes);
    void *context;
} fth_store_sink;

/* An object into a file, by parallel ranges of one version; whole or absent. */
typedef struct fth_store_fetch {
    const char *key, *path;
    const fth_store_object *object; /* its size, and the version that all ranges must be of */
    const fth_store_progress *progress;
    char *sha256; /* room for 65: gets the checksum; NULL: not wanted */

    /* A checksum of the whole to compare, where one is known: "SHA256" or "MD5", and its hex
     * digits. */
    const char *digest_name, *digest_expected;
    /* Optional: a range that is handed on as it comes, which saves a copy; else the kind's
     * get_range. */
    fth_status (*range_to)(fth_store *store, const char *key, uint64_t offset, size_t size_bytes,
                           const fth_store_version *version, fth_deadline deadline, const fth_store_sink *sink);
    /* Or of its pieces, seen as they arrive (from several threads, each piece in order from offset
     * 0, again after a failure), and told before the file gets its name. */
    uint64_t piece_bytes; /* 0: as it suits */
    fth_status (*piece)(void *context, uint64_t i, uint64_t offset, const void *bytes, size_t size_bytes);
    fth_status (*check)(void *context);
    void *context;
} fth_store_fetch;
fth_status fth_store_fetch_file(fth_store *store, const fth_store_fetch *fetch);

/* What get_file does for a kind that has none of its own. */
fth_status fth_store_get_file_by_ranges(fth_store *store, const char *key, const char *path,
                                        const fth_store_progress *progress, char sha256[65]);

#endif
