/* See log.h. One write per line, so that lines of several threads and processes do not mix. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/printable.h"

static atomic_int visible_level = FTH_LOG_WARNING;
static void (*_Atomic interrupter)(void);
static _Atomic(fth_log_function) taker;
static void *_Atomic taker_context;

void fth_log_set_level(fth_log_level level)
{
    visible_level = (int)level;
}

void fth_log_set_interrupter(void (*before_line)(void))
{
    interrupter = before_line;
}

void fth_log_set_function(fth_log_function function, void *context)
{
    taker_context = context;
    taker = function;
}

void fth_log(fth_log_level level, const char *format, ...)
{
    static const char *const prefixes[] = {FTH_LOG_ERROR_PREFIX,
                                           "farthing: warning: ", "farthing: ", "farthing: debug: "};
    if ((int)level > visible_level)
        return;
    char line[4096];
    const size_t prefix_length = (size_t)snprintf(line, sizeof line, "%s", prefixes[level]);
    size_t length = prefix_length;
    va_list arguments;
    va_start(arguments, format);
    length += fth_printable_format(line + length, sizeof line - length, format, arguments);
    va_end(arguments);
    fth_log_function take = taker;
    if (take) {
        take(taker_context, level, line + prefix_length);
        return;
    }
    line[length++] = '\n'; /* in the place of the NUL */
    void (*before_line)(void) = interrupter;
    if (before_line)
        before_line();
    if (write(STDERR_FILENO, line, length) < 0)
        return; /* there is nowhere left to report it */
}
