/* See stop.h. */
#include "base/stop.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

void fth_stop_ask(fth_stop *stop, fth_stop_kind kind, double deadline_s, const char *source, const char *format, ...)
{
    fth_deadline deadline = {isfinite(deadline_s) ? fth_clock_seconds() + deadline_s : INFINITY};
    pthread_mutex_lock(&stop->mutex);
    fth_stop_reason *reason = &stop->reason;
    /* Being fenced overrides any other reason: from then on nothing may be written. */
    if (reason->kind == FTH_STOP_NONE || (kind == FTH_STOP_FENCED && reason->kind != FTH_STOP_FENCED)) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(reason->message, sizeof reason->message, format, arguments);
        va_end(arguments);
        snprintf(reason->source, sizeof reason->source, "%s", source);
        reason->deadline = deadline;
        reason->asked_at_s = fth_clock_seconds();
        reason->kind = kind;
    } else {
        if (deadline.at_seconds < reason->deadline.at_seconds)
            reason->deadline = deadline;
        if (kind == FTH_STOP_PREEMPTION && reason->kind == FTH_STOP_REQUEST)
            reason->kind = kind;
    }
    stop->asked = true;
    pthread_mutex_unlock(&stop->mutex);
}

fth_stop_reason fth_stop_get(const fth_stop *stop)
{
    fth_stop_reason reason = {.kind = FTH_STOP_NONE, .deadline = {INFINITY}};
    if (!stop || !stop->asked)
        return reason;
    pthread_mutex_t *mutex = (pthread_mutex_t *)&stop->mutex; /* a lock is not part of the value */
    pthread_mutex_lock(mutex);
    reason = stop->reason;
    pthread_mutex_unlock(mutex);
    return reason;
}
