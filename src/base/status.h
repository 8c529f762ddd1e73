/* Status codes and the one error message they leave behind.
 *
 * Anything that can fail returns an fth_status. The function that detects the failure writes the
 * message with fth_fail(); callers pass the status on; the caller that gives up prints
 * fth_error_message(). The codes and the functions that read the message are public. */
#ifndef FTH_BASE_STATUS_H
#define FTH_BASE_STATUS_H

#include <farthing/status.h>

/* Records the calling thread's error message, made printable (printable.h), and returns
 * `status`. */
fth_status fth_fail(fth_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts `format` before the current message, "while reading x: ...", and returns `status`. */
fth_status fth_fail_within(fth_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Leaves a message for a failure whose status the caller already has. */
void fth_set_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* For a call whose failure changes nothing; `why` is a literal that says why. */
#define FTH_IGNORE(call, why) ((void)(call), (void)sizeof(why ""))

/* The status of a name that fth_status_name() gave, perhaps to another process; FTH_IO for one that
 * is unknown. */
fth_status fth_status_find(const char *name);

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
