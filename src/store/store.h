/* Stores: one address for folders, buckets and web servers.
 *
 *     runs/a, file:///runs/a        a folder
 *     s3://bucket/prefix            S3 and whatever speaks it: AWS, MinIO, Ceph, R2
 *     gs://bucket/prefix            Google, through interoperability keys
 *     az://account/container/prefix Azure blobs, with a shared access signature
 *     https://host/path             read-only
 *
 * A store is opened at a URL; keys are relative to it ("checkpoints/step-1.json"): plain text
 * without "." or ".." parts. In a bucket "a//b", "/a" and "a/" are keys of their own, as the bucket
 * has them; in a folder, where they would be the same file as "a/b" and "a", they are refused.
 * Objects are whole or absent. Every call has a deadline inside which it retries what may be
 * retried (5xx, 429, broken connections), with backoff and jitter. One store may be used by several
 * threads at once.
 *
 * Credentials come as each ecosystem expects them: environment, profile files, the instance's role
 * through the metadata service (renewed before they expire). They are never logged, recorded or
 * part of a message.
 *
 * Each kind of store is a table, listed in store_internal.h. */
#ifndef FTH_STORE_STORE_H
#define FTH_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

typedef struct fth_store fth_store;
typedef struct fth_store_progress fth_store_progress;

/* Zeroed: the usual, from the environment. */
typedef struct fth_store_options {
    const char
        *s3_endpoint; /* "http://localhost:9000"; NULL or "": AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's */
    const char *s3_region; /* NULL or "": AWS_REGION, AWS_DEFAULT_REGION, the profile's, us-east-1 */
    const char *s3_style;  /* "path", "host"; NULL or "auto": path where an endpoint is given, else host */
    const char *profile;   /* NULL or "": AWS_PROFILE, else "default" */
    bool no_links;         /* deletes in a folder refuse an address with a part "..", or that leads through a link */
    double deadline_s;     /* of a small request with its retries; 0: 60. Large transfers: while they make progress */
} fth_store_options;

extern const char *const fth_s3_styles[]; /* what s3_style can be; NULL-terminated */

/* Parses and looks for credentials; touches the network only for an instance's role. `options` may
 * be NULL. An address in its public form is opened with the secrets that are known for it
 * (base/address.h). */
fth_status fth_store_open(const char *address, const fth_store_options *options, fth_store **store);
void fth_store_free(fth_store *store);
const char *fth_store_url(const fth_store *store); /* without secrets (a SAS is cut off) */
bool fth_store_is_url(const char *text);           /* true for "s3://...", false for plain paths */
/* FTH_INVALID, saying why, for what cannot be a key there. */
fth_status fth_store_check_key(const fth_store *store, const char *key);
/* The folder that a folder store is; NULL for the others. */
const char *fth_store_folder(const fth_store *store);

/* An object's version: an ETag, a generation; for a folder made from inode, size and time. Opaque;
 * equality is all. */
typedef struct fth_store_version {
    char text[96]; /* "": absent or unknown */
} fth_store_version;

typedef struct fth_store_object {
    char *key; /* relative to the store */
    uint64_t size_bytes;
    double modified_s; /* wall seconds; 0 where unknown */
    fth_store_version version;
} fth_store_object;

/* ---- reading ---- */

/* The whole object; more than `max_bytes` is FTH_INVALID. Absent: FTH_OK and *bytes NULL. A NUL
 * follows the last byte; free() it. `version` may be NULL. */
fth_status fth_store_get(fth_store *store, const char *key, size_t max_bytes, char **bytes, size_t *size_bytes,
                         fth_store_version *version);
/* `size_bytes` bytes from `offset` on into `into`; a shorter object is FTH_CORRUPT. `version`: if
 * set, only that version (FTH_CORRUPT if it has changed); may be NULL. */
fth_status fth_store_get_range(fth_store *store, const char *key, uint64_t offset, void *into, size_t size_bytes,
                               const fth_store_version *version);
/* A large object into a file, in parallel ranges; whole or absent (base/file.h). `sha256` (may be
 * NULL) gets the checksum of what arrived. Absent: FTH_INVALID naming it. */
fth_status fth_store_get_file(fth_store *store, const char *key, const char *path, char sha256[65]);
/* The same with progress (may be NULL). */
fth_status fth_store_get_file_watched(fth_store *store, const char *key, const char *path,
                                      const fth_store_progress *progress, char sha256[65]);
/* Size and version; absent: FTH_OK and found false. */
fth_status fth_store_stat(fth_store *store, const char *key, fth_store_object *object, bool *found);
void fth_store_object_release(fth_store_object *object);

/* Every object whose key begins with `prefix`, in order of keys, page by page. `visit` returns
 * false to end it. */
fth_status fth_store_list(fth_store *store, const char *prefix, bool (*visit)(void *context, const fth_store_object *),
                          void *context);
/* The same for keys greater than `after`, which need not exist. S3 and Google begin there;
 * elsewhere what comes before is listed too, and passed over. */
fth_status fth_store_list_after(fth_store *store, const char *prefix, const char *after,
                                bool (*visit)(void *context, const fth_store_object *), void *context);
bool fth_store_can_list(const fth_store *store);
/* How many names all lists so far have left out: those that cannot be keys, and in folders links to
 * folders, broken links and what is neither file nor folder. */
uint64_t fth_store_left_out(const fth_store *store);

/* ---- many requests at once ---- */

/* Calls piece(context, i) for every i < count from up to `threads` threads (the caller's is one of
 * them). After the first failure no further piece is started, *cancelled (may be NULL) is set, and
 * that failure is returned, with its message, once all threads have ended. */
fth_status fth_store_in_parallel(int threads, uint64_t count, fth_status (*piece)(void *context, uint64_t i),
                                 void *context, _Atomic bool *cancelled);

/* Ends the requests of other threads: those of a thread that uses a switch fail with
 * FTH_INTERRUPTED soon after it is turned off, or `progress` (may be NULL) says so, whatever their
 * deadlines. fth_store_in_parallel()'s threads use the caller's. Failures of its requests are also
 * noted in `outer` (may be NULL), which must outlive it. */
typedef struct fth_store_switch fth_store_switch;
fth_status fth_store_switch_create(const fth_store_progress *progress, fth_store_switch *outer,
                                   fth_store_switch **result);
void fth_store_switch_free(fth_store_switch *used); /* when no thread uses it any more; may be NULL */
void fth_store_switch_use(fth_store_switch *used);  /* by the calling thread, from now on; NULL: none */
fth_store_switch *fth_store_switch_used(void);      /* by the calling thread; NULL: none */
void fth_store_switch_off(fth_store_switch *used);  /* any thread */
/* Says for a message why the requests of the threads that use it make no progress: the latest
 * failure, if no request has succeeded since (*failing), or how long there has been no answer.
 * False if nothing is wrong. Any thread. */
bool fth_store_switch_explain(fth_store_switch *used, bool *failing, char *text, size_t size);

/* ---- writing ---- */

typedef enum fth_store_condition {
    FTH_STORE_ALWAYS,
    FTH_STORE_IF_ABSENT, /* no object of that key */
    FTH_STORE_IF_MATCH   /* the object is still of that version */
} fth_store_condition;

/* Where a large object comes from, read piece by piece, perhaps from several threads and more than
 * once (retries). */
typedef struct fth_store_source {
    void *context;
    uint64_t size_bytes;
    /* Gives the address of bytes [offset, offset + size): memory that stays valid until the put
     * returns. */
    fth_status (*at)(void *context, uint64_t offset, uint64_t size_bytes, const void **bytes);
} fth_store_source;

/* Called now and then during a large transfer; false cancels it (FTH_INTERRUPTED). May be called
 * from other threads. */
struct fth_store_progress {
    void *context;
    bool (*moved)(void *context, uint64_t done_bytes, uint64_t total_bytes);
};

typedef struct fth_store_put_options {
    fth_store_condition condition;
    fth_store_version match;            /* for FTH_STORE_IF_MATCH */
    const char *content_type;           /* NULL: application/octet-stream */
    double deadline_s;                  /* of the whole put; 0: the store's for small ones, none for large ones */
    const fth_store_progress *progress; /* may be NULL */
} fth_store_put_options;

/* Puts a small object. *lost (may be NULL when unconditional): the condition did not hold, nothing
 * was written, FTH_OK. `version` (may be NULL): of what was written. A retry after a lost answer
 * recognises its own write. FTH_UNSUPPORTED if the server ignores conditions: probed once per store
 * before the first conditional write. `options` may be NULL. */
fth_status fth_store_put(fth_store *store, const char *key, const void *bytes, size_t size_bytes,
                         const fth_store_put_options *options, bool *lost, fth_store_version *version);
/* Puts a large object: in parallel parts where that pays, each part retried by itself, checksums on
 * every part. A condition that does not hold is FTH_INVALID here. */
fth_status fth_store_put_source(fth_store *store, const char *key, const fth_store_source *source,
                                const fth_store_put_options *options, fth_store_version *version);
/* A file; interrupted multipart uploads of the same file (size and time) to the same key are
 * resumed. */
fth_status fth_store_put_file(fth_store *store, const char *key, const char *path, const fth_store_put_options *options,
                              fth_store_version *version);
/* Gone or never there: FTH_OK. In a folder, a key that leads through a symbolic link is
 * FTH_INVALID. */
fth_status fth_store_delete(fth_store *store, const char *key);
/* Fails with FTH_UNSUPPORTED, saying why, unless conditional writes are enforced. Asks the server
 * once. */
fth_status fth_store_check_conditions(fth_store *store);

/* A URL that lets anyone GET or PUT the object for a while. FTH_UNSUPPORTED for folders and plain
 * web servers. free() it. */
fth_status fth_store_presign(fth_store *store, const char *method, const char *key, double seconds, char **url);

/* ---- deleting all below a prefix, on a user's word ---- */

/* Finds what is to be deleted; nothing is deleted yet. A folder store is deleted with everything in
 * it, and `prefix` must be "": FTH_INVALID, saying why and what to do, where the address has a part
 * ".." or leads through a symbolic link, where something is mounted at the folder or below it, and
 * where the folder is or holds the current folder or a home folder. It is held open from then on,
 * so that no other folder is deleted if something takes its place. */
typedef struct fth_store_deletion fth_store_deletion;
fth_status fth_store_deletion_begin(fth_store *store, const char *prefix, fth_store_deletion **deletion);
uint64_t fth_store_deletion_count(const fth_store_deletion *deletion); /* objects, or files */
uint64_t fth_store_deletion_bytes(const fth_store_deletion *deletion);
/* The folder's path from "/" on, without links or dots; NULL for other stores. */
const char *fth_store_deletion_folder(const fth_store_deletion *deletion);
fth_status fth_store_deletion_perform(fth_store_deletion *deletion);
void fth_store_deletion_free(fth_store_deletion *deletion);

#endif
