/* Buckets over the S3 protocol, Google's included; what they share with other clouds is in
 * bucket_internal.h.
 *
 * s3.c             opening and addresses; the tables of s3:// and gs://
 * s3_cloud.c       the two clouds: names, error codes, signing, with the clock, the region or the
 *                  keys mended where the server asks for it
 * s3_read.c        verifying what came; files
 * s3_write.c       put; do conditions hold?
 * s3_multipart.c   large objects in parts
 * s3_orphans.c     uploads in parts that a lost answer left behind
 * s3_tree.c        checksums of parts
 * s3_upload.c      the parts of a file's upload that are done, kept for the next try
 *
 * Checksums. A small object carries its SHA-256 in the signature, which every server checks, and
 * keeps it as metadata ("sha256"). The parts of a large one carry their MD5s, which servers compute
 * anyway (md5_lanes.h); the metadata, which must be there before the first part goes, holds an XXH3
 * of all of it ("tree", s3_tree.c). Either is checked on the way back. */
#ifndef FTH_STORE_S3_INTERNAL_H
#define FTH_STORE_S3_INTERNAL_H

#include "store/bucket_internal.h"
#include "store/credentials.h"
#include "store/md5_lanes.h"

typedef struct fth_s3 {
    fth_bucket bucket; /* first */
    bool google;
    bool amazon; /* no endpoint was given: the host depends on the region */
    bool host_style;
    fth_credentials *credentials;

    pthread_mutex_t mutex; /* guards what follows */
    char *region;
    char *origin; /* "https://host:port", what URLs begin with */
    char *host;   /* "host:port", as the Host header has it */
    char *base;   /* path of the bucket: "" (host style) or "/bucket", escaped */
    double clock_offset_s;
    enum { FTH_S3_NOT_TRIED, FTH_S3_HOLDS, FTH_S3_HOLDS_NOT } absent_in_parts; /* If-None-Match for uploads in parts */
} fth_s3;

static inline fth_s3 *fth_s3_of(const fth_store *store)
{
    return store->state;
}

extern const fth_bucket_kind fth_bucket_s3, fth_bucket_google;

/* (Re)builds origin, host and base for the region in force. The lock is held. */
void fth_s3_set_address(fth_s3 *s3, const char *endpoint_origin, const char *endpoint_path);

/* ---- the kind's functions ---- */

/* fth_bucket_kind.verify */
fth_status fth_s3_verify(const fth_store *store, const fth_http_response *response, const void *bytes,
                         size_t size_bytes);
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
fth_status fth_s3_probe_conditions(fth_store *store, fth_deadline deadline, char **why);

/* Frees an upload's parts on the server, quickly where the caller's time is up; a warning if that
 * fails. The calling thread's error message stays. */
void fth_s3_abort(fth_store *store, const char *key, const char *id, fth_deadline deadline);

/* ---- uploads begun without our knowing (s3_orphans.c) ---- */

enum { FTH_S3_MAX_ORPHANS = 16 };

typedef struct fth_s3_orphans {
    char *ids[FTH_S3_MAX_ORPHANS];
    int count;
    int failed_tries; /* what they may be of */
} fth_s3_orphans;

/* After upload `id` was started by the last of several tries, which took `took_s` in all: notes the
 * uploads that the others may have started. */
void fth_s3_note_orphans(fth_store *store, const char *key, const char *id, int failed_tries, double took_s,
                         fth_deadline deadline, fth_s3_orphans *orphans);
/* Ends those that are still without parts, unless there are too many for all to be ours; and frees
 * the note. */
void fth_s3_end_orphans(fth_store *store, const char *key, fth_s3_orphans *orphans, fth_deadline deadline);

/* ---- checksums of parts (s3_tree.c) ---- */

enum { FTH_S3_CHUNK_BYTES = 8 << 20, FTH_S3_MAX_CHUNK_BYTES = 64 << 20 };

typedef struct fth_s3_sum {
    unsigned char bytes[16];
} fth_s3_sum;

/* The MD5 of each part of a source and the checksum of the whole, several threads and lanes at a
 * time. Parts are multiples of FTH_S3_CHUNK_BYTES. `meter` may cancel it. */
fth_status fth_s3_hash_parts(const fth_store_source *source, uint64_t part_bytes, fth_store_meter *meter,
                             unsigned char (*digests)[FTH_MD5_BYTES], char tree[96]);
void fth_s3_sum_chunk(const void *bytes, size_t size_bytes, fth_s3_sum *sum);
/* The same piece by piece: `first` starts over; _end gives the sum (NULL: not wanted) and frees. */
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

/* Opens the note of an earlier upload of the same bytes (`tree`) to the same key, or an empty one.
 * Never fails: where no note can be kept, *upload is NULL, which the others take. *id (free()) is
 * the upload to go on with, or NULL. */
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
