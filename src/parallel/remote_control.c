/* See remote_control.h. */
#include "parallel/remote_control.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"

#define GRACE_S       30.0
#define LOOK_EVERY_MS 100

struct fth_remote_control {
    int descriptor;
    fth_stop *stop;
    pthread_t thread;
    atomic_bool ending;
    char line[64]; /* what has come of one; the thread's */
    size_t length;
};

static void obey(const fth_remote_control *control)
{
    if (strcmp(control->line, FTH_REMOTE_STOP) == 0)
        fth_stop_ask(control->stop, FTH_STOP_REQUEST, GRACE_S, "launcher", "the launch was stopped");
    else if (strcmp(control->line, FTH_REMOTE_PREEMPT) == 0)
        fth_stop_ask(control->stop, FTH_STOP_PREEMPTION, GRACE_S, "launcher", "the launch is being preempted");
}

static void take(fth_remote_control *control, char byte)
{
    if (byte == '\n') {
        control->line[control->length] = '\0';
        control->length = 0;
        obey(control);
    } else if (control->length + 1 < sizeof control->line)
        control->line[control->length++] = byte;
}

static void *listen_for_orders(void *context)
{
    fth_remote_control *control = context;
    while (!control->ending) {
        struct pollfd polled = {.fd = control->descriptor, .events = POLLIN};
        char byte;
        if (poll(&polled, 1, LOOK_EVERY_MS) <= 0)
            continue;
        ssize_t got = read(control->descriptor, &byte, 1);
        if (got == 1)
            take(control, byte);
        else if (got == 0 || errno != EINTR) {
            fth_stop_ask(control->stop, FTH_STOP_REQUEST, GRACE_S, "launcher", "the launch has ended");
            break;
        }
    }
    return NULL;
}

fth_status fth_remote_control_start(int descriptor, fth_stop *stop, fth_remote_control **control)
{
    fth_remote_control *made = NULL;
    fth_status status = fth_allocate(1, sizeof *made, &made);
    if (status != FTH_OK)
        return status;
    made->descriptor = descriptor;
    made->stop = stop;
    if (fth_thread_start(&made->thread, "control", listen_for_orders, made) != 0) {
        free(made);
        return fth_fail(FTH_NO_MEMORY, "no thread for the launcher's orders");
    }
    *control = made;
    return FTH_OK;
}

void fth_remote_control_free(fth_remote_control *control)
{
    if (!control)
        return;
    control->ending = true;
    pthread_join(control->thread, NULL);
    free(control);
}
