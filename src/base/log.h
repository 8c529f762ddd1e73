/* Messages for people, on standard error, one line each, made printable (printable.h). Results go
 * to standard output, which only src/cli writes to. A program that embeds the library can receive
 * messages itself or set their level; that part is public. */
#ifndef FTH_BASE_LOG_H
#define FTH_BASE_LOG_H

#include <farthing/log.h>

/* Called before each line is written, so that a live progress line can clear itself; NULL for
 * none. */
void fth_log_set_interrupter(void (*before_line)(void));

void fth_log(fth_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define FTH_LOG_ERROR_PREFIX "farthing: error: " /* that each line of an error begins with on standard error */
#define fth_log_error(...)   fth_log(FTH_LOG_ERROR, __VA_ARGS__)
#define fth_log_warning(...) fth_log(FTH_LOG_WARNING, __VA_ARGS__)
#define fth_log_info(...)    fth_log(FTH_LOG_INFO, __VA_ARGS__)
#define fth_log_debug(...)   fth_log(FTH_LOG_DEBUG, __VA_ARGS__)

#endif
