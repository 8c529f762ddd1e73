/* The write-ahead log: the gradients and other changes accepted since a checkpoint, in the order in
 * which they were applied.
 *
 *     log-000000001200.wal     starts at the state of version 1200
 *     log-000000001200.data    the blobs of its records (wal_blobs.h)
 *
 * A log is a sequence of records: a header (wal.c) with checksums of itself and of its body. The
 * body follows the header or, if it is large, is a blob in the other file. A record is appended
 * when its body is stored, and before its effect is acknowledged. A process killed at any moment
 * therefore leaves at most a torn last record, which was not acknowledged and is cut off when the
 * log is read. Each checkpoint starts new files; the old ones are removed when the checkpoint is
 * complete. Replaying what follows a checkpoint gives exactly the state before the kill. */
#ifndef FTH_PARAMETERS_WAL_H
#define FTH_PARAMETERS_WAL_H

#include <sys/uio.h>

#include "base/base.h"
#include "parameters/wal_blobs.h"

typedef enum fth_log_kind {
    FTH_LOG_GRADIENT = 1, /* the body as received */
    FTH_LOG_STEP,         /* the gradients so far are a step; no body */
    FTH_LOG_REGISTER,     /* JSON: worker, instance, access, perhaps function (usage.h) */
    FTH_LOG_UNREGISTER,   /* JSON: worker; also when its lease ran out */
    FTH_LOG_CLIP,         /* gradients from here on are clipped to the norm `rate`; 0: none. No body */
    FTH_LOG_SHARD,        /* JSON: name, samples, epochs of a shard that a worker brought */
} fth_log_kind;

/* Flags: the record completes a step; the step averages its gradients by samples; the numbers
 * passed fth_updates_check(), which older versions did not call. */
enum { FTH_LOG_STEPS = 1, FTH_LOG_AVERAGED = 2, FTH_LOG_CHECKED = 4 };

typedef struct fth_log_record {
    fth_log_kind kind;
    uint32_t flags;
    int64_t version; /* of the state that it is applied to */
    double rate;     /* of the step: a replay does not depend on the options of the new process */
    const void *body;
    uint64_t body_bytes;
    fth_wal_blob *blob; /* the body, if it is already in the log; appending keeps it. Or NULL */
} fth_log_record;

typedef struct fth_wal fth_wal;

/* Receives the records of a log, in order. */
typedef struct fth_wal_reader {
    fth_status (*replay)(void *context, const fth_log_record *record); /* a failure ends the reading */
    int64_t (*version)(void *context);                                 /* of the state, moved on by replay() */
    void *context;
} fth_wal_reader;

/* Opens the log of `folder` for the reader's state: replays the records that follow that state,
 * cuts off a torn end, and removes files from before it. FTH_CORRUPT if a record is for another
 * version than the state, or a log does not start where the last one ended. `map_bytes` of blobs
 * are mapped. */
fth_status fth_wal_open(const char *folder, bool sync_always, size_t map_bytes, const fth_wal_reader *reader,
                        fth_wal **wal);
void fth_wal_free(fth_wal *wal); /* also removes files kept for recycling */

/* Reserves a blob for a body; false if the body is small or the file is full, and the body is then
 * copied when its record is appended. From any thread. */
bool fth_wal_reserve_blob(fth_wal *wal, uint64_t size_bytes, fth_wal_blob *blob);
/* A failure leaves nothing of the record in the file. */
fth_status fth_wal_append(fth_wal *wal, const fth_log_record *record);
/* Starts new files for what follows `version`, unless the newest already start there. */
fth_status fth_wal_rotate(fth_wal *wal, int64_t version);
/* Removes the logs before `version`, whose checkpoint is complete. From any thread. */
void fth_wal_forget(const char *folder, int64_t version);
uint64_t fth_wal_size_bytes(const fth_wal *wal); /* of the newest log */
fth_status fth_wal_sync(fth_wal *wal);

/* Writes all parts, changing them; false and errno on failure. */
bool fth_write_parts(int fd, struct iovec *parts, int count);

#endif
