/* Status codes and the one error message they leave behind.
 *
 * Anything that can fail returns an fth_status. Whoever knows the facts writes the message with
 * fth_fail(); callers pass the status on; the one that gives up prints fth_error_message(). */
#ifndef FTH_BASE_STATUS_H
#define FTH_BASE_STATUS_H

typedef enum fth_status {
    FTH_OK = 0,
    FTH_INVALID, /* the caller's or user's mistake: bad shape, bad option, missing file */
    FTH_NO_MEMORY,
    FTH_IO,          /* disk, socket or object store */
    FTH_NO_SPACE,    /* the disk or the quota is full */
    FTH_TIMEOUT,     /* deadline passed; the outcome may be unknown */
    FTH_PEER_LOST,   /* a worker or server went away */
    FTH_CORRUPT,     /* checksum or format mismatch */
    FTH_UNSUPPORTED, /* this back end or build cannot do that */
    FTH_DIVERGED,    /* the loss is no longer a number */
    FTH_INTERRUPTED  /* stopped on request; work is saved and can go on */
} fth_status;

/* Records the calling thread's error message, made printable (printable.h), and returns `status`. */
fth_status fth_fail(fth_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts `format` before the current message, "while reading x: ...", and returns `status`. */
fth_status fth_fail_within(fth_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The calling thread's last error message; "" if there was none. Valid until its next failure. */
const char *fth_error_message(void);

/* "invalid", "timeout", ...: a stable word for logs and records. */
const char *fth_status_name(fth_status status);

/* Leaves the function on failure; needs a local `status` and a label `out`. */
#define FTH_TRY(call)                                                                                                  \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != FTH_OK)                                                                                          \
            goto out;                                                                                                  \
    } while (0)

/* The same with a fresh failure: FTH_REQUIRE(count > 0, FTH_INVALID, "no images in %s", path). */
#define FTH_REQUIRE(condition, code, ...)                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            status = fth_fail((code), __VA_ARGS__);                                                                    \
            goto out;                                                                                                  \
        }                                                                                                              \
    } while (0)

#endif
