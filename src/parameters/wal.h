/* The write-ahead log: what was accepted since a checkpoint, in the order in which it was applied.
 *
 *     log-000000001200.wal     begins at the state of version 1200
 *     log-000000001200.data    large bodies of its records (wal_blobs.h)
 *
 * A file is records, one after another: a header (wal.c) with checksums of itself and of its body,
 * which follows it or, where it is large, lies in the other file. A record is appended when its
 * body is there, and before its effect is acknowledged, so a process killed at any moment leaves at
 * most a torn last record, which was not acknowledged and is cut off when the log is read. New
 * files begin with each checkpoint; the old ones go when that checkpoint is whole. Replaying what
 * follows a checkpoint gives exactly the state that was. */
#ifndef FTH_PARAMETERS_WAL_H
#define FTH_PARAMETERS_WAL_H

#include <sys/uio.h>

#include "base/base.h"
#include "parameters/wal_blobs.h"

typedef enum fth_log_kind {
    FTH_LOG_GRADIENT = 1, /* the body as received */
    FTH_LOG_STEP,         /* the gradients so far make a step; no body */
    FTH_LOG_REGISTER,     /* JSON: worker, instance, access, and perhaps function (invocations.h) */
    FTH_LOG_UNREGISTER,   /* JSON: worker; also where its lease ran out */
    FTH_LOG_CLIP,         /* gradients from here on are clipped to a norm of `rate`; 0: they are not. No body */
    FTH_LOG_SHARD,        /* JSON: name, samples, epochs of a shard that a worker brought */
} fth_log_kind;

/* Flags: a step follows at once; gradients of this step are averaged by their samples; its numbers
 * were found fit to be applied (fth_updates_check), which older versions did not look at. */
enum { FTH_LOG_STEPS = 1, FTH_LOG_AVERAGED = 2, FTH_LOG_CHECKED = 4 };

typedef struct fth_log_record {
    fth_log_kind kind;
    uint32_t flags;
    int64_t version; /* of the state that it is applied to */
    double rate;     /* of the step, where one follows: a replay does not depend on how the server is started again */
    const void *body;
    uint64_t body_bytes;
    fth_wal_blob *blob; /* where the body is filled in already, by fth_wal_reserve_blob(); kept from then on. Or NULL */
} fth_log_record;

typedef struct fth_wal fth_wal;

/* Who takes what a log has, in its order. */
typedef struct fth_wal_reader {
    fth_status (*replay)(void *context, const fth_log_record *record); /* a failure ends the reading */
    int64_t (*version)(void *context);                                 /* of the state, moved on by replay() */
    void *context;
} fth_wal_reader;

/* Opens the log of `folder` for the reader's state: replays every record that follows it, and cuts
 * a torn end off. A record for another version than the state's, or a log that does not begin where
 * the one before ended, is FTH_CORRUPT. Files from before the state are removed. `map_bytes` of
 * bodies can be looked at without a copy. */
fth_status fth_wal_open(const char *folder, bool sync_always, size_t map_bytes, const fth_wal_reader *reader,
                        fth_wal **wal);
void fth_wal_free(fth_wal *wal); /* also removes a file that was kept for the next log */

/* A place for a body that is to be logged; false, and none, where it is small or too much is there
 * already: then it is copied when its record is appended. From any thread, beside the others'
 * calls. */
bool fth_wal_reserve_blob(fth_wal *wal, uint64_t size_bytes, fth_wal_blob *blob);
/* On failure nothing of the record is left in the file. */
fth_status fth_wal_append(fth_wal *wal, const fth_log_record *record);
/* A new file, for what follows `version`; nothing to do where the newest one begins there. */
fth_status fth_wal_rotate(fth_wal *wal, int64_t version);
/* Removes files that end before `version`: its checkpoint is whole. Safe beside the others'
 * calls. */
void fth_wal_forget(const char *folder, int64_t version);
uint64_t fth_wal_size_bytes(const fth_wal *wal); /* of the newest file */
fth_status fth_wal_sync(fth_wal *wal);

/* All of the parts, which are used up; false and errno if that fails. */
bool fth_write_parts(int fd, struct iovec *parts, int count);

#endif
