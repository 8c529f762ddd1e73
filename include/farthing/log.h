/* Messages for people, in addition to the statuses that functions return: a file that is skipped,
 * an assumption that is made, how long a download takes. By default the library writes warnings and
 * errors to standard error, one line each, and nothing else. */
#ifndef FARTHING_LOG_H
#define FARTHING_LOG_H

#include <farthing/api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fth_log_level { FTH_LOG_ERROR, FTH_LOG_WARNING, FTH_LOG_INFO, FTH_LOG_DEBUG } fth_log_level;

/* Messages above `level` are dropped. For the whole process; any thread may call it at any time. */
FTH_API void fth_log_set_level(fth_log_level level);

/* Takes a message, printable and without a newline. Called from whatever thread has something to
 * say, also from several at once; must not call farthing. */
typedef void (*fth_log_function)(void *context, fth_log_level level, const char *message);

/* Gives messages to `function` instead of writing them; NULL: writes them again. For the whole
 * process; call it before the library is busy, and keep `context` for as long as it is. */
FTH_API void fth_log_set_function(fth_log_function function, void *context);

#ifdef __cplusplus
}
#endif

#endif
