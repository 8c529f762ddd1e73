/* The error message is per thread and of bounded length: reporting a failure must not itself
 * fail. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/printable.h"

enum { MESSAGE_SIZE = 2048 };

static _Thread_local char message[MESSAGE_SIZE];

static void set_message(const char *format, va_list arguments)
{
    char text[MESSAGE_SIZE]; /* the arguments may point into `message` */
    size_t length = fth_printable_format(text, sizeof text, format, arguments);
    memcpy(message, text, length + 1);
}

fth_status fth_fail(fth_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_message(format, arguments);
    va_end(arguments);
    return status;
}

void fth_set_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_message(format, arguments);
    va_end(arguments);
}

fth_status fth_fail_within(fth_status status, const char *format, ...)
{
    char prefix[MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(prefix, sizeof prefix, format, arguments);
    va_end(arguments);
    return fth_fail(status, "%.900s: %.1100s", prefix, message);
}

const char *fth_error_message(void)
{
    return message;
}

const char *fth_status_name(fth_status status)
{
    switch (status) {
    case FTH_OK: return "ok";
    case FTH_INVALID: return "invalid";
    case FTH_NO_MEMORY: return "no memory";
    case FTH_IO: return "io";
    case FTH_NO_SPACE: return "no space";
    case FTH_TIMEOUT: return "timeout";
    case FTH_PEER_LOST: return "peer lost";
    case FTH_CORRUPT: return "corrupt";
    case FTH_UNSUPPORTED: return "unsupported";
    case FTH_DIVERGED: return "diverged";
    case FTH_INTERRUPTED: return "interrupted";
    }
    return "unknown";
}

fth_status fth_status_find(const char *name)
{
    for (int status = FTH_OK; status <= FTH_INTERRUPTED; status++)
        if (strcmp(name, fth_status_name((fth_status)status)) == 0)
            return (fth_status)status;
    return FTH_IO;
}
