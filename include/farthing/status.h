/* Status codes, and the message that a failure leaves.
 *
 * Every function that can fail returns an fth_status. A failure leaves one line of English for the
 * calling thread: what failed, on what, and why. A NULL where an object or a place for a result
 * belongs is FTH_INVALID; functions that only look something up return NULL for it, and those that
 * return nothing do nothing. */
#ifndef FARTHING_STATUS_H
#define FARTHING_STATUS_H

#include <farthing/api.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __GNUC__
__extension__ /* C17 has no [[nodiscard]], which GCC knows nevertheless */
#endif
typedef enum FTH_MUST_USE fth_status {
    FTH_OK = 0,
    FTH_INVALID, /* the caller's or user's mistake: bad shape, bad option, missing file */
    FTH_NO_MEMORY,
    FTH_IO,          /* disk, socket or object store */
    FTH_NO_SPACE,    /* the disk or the quota is full; but a training that cannot save its end returns FTH_IO */
    FTH_TIMEOUT,     /* deadline passed; the outcome may be unknown */
    FTH_PEER_LOST,   /* a worker or server went away */
    FTH_CORRUPT,     /* checksum or format mismatch */
    FTH_UNSUPPORTED, /* this back end or build cannot do that */
    FTH_DIVERGED,    /* the loss is no longer a number */
    FTH_INTERRUPTED  /* stopped on request; work is saved and can be resumed */
} fth_status;

/* The calling thread's last error message, printable and in one line; "" if there was none. Valid
 * until that thread's next failure. */
FTH_API const char *fth_error_message(void);

/* "invalid", "timeout", ...: a stable word for logs and records. Never NULL. */
FTH_API const char *fth_status_name(fth_status status);

#ifdef __cplusplus
}
#endif

#endif
