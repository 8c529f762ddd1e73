/* Notice by a file: it appears, or is touched. For schedulers with hooks of their own, and for
 * people. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "spot/spot_internal.h"

#define LOOK_EVERY_S   0.25
#define USUAL_NOTICE_S 30.0

static bool look(const fth_listener *listener, fth_file_facts *facts)
{
    struct stat info;
    memset(facts, 0, sizeof *facts);
    if (stat(listener->argument, &info) != 0)
        return errno == ENOENT || errno == ENOTDIR; /* anything else says nothing about the file */
    facts->exists = true;
    facts->size_bytes = info.st_size;
    facts->inode = (int64_t)info.st_ino;
    facts->seconds = info.st_mtim.tv_sec;
    facts->nanoseconds = info.st_mtim.tv_nsec;
    return true;
}

/* A file that is already there is the notice of an earlier machine, unless it came after this
 * process. */
static fth_status prepare(fth_listener *listener)
{
    enum { CLOCKS_DIFFER_MS = 20 }; /* files are stamped by the last tick, and processes to a hundredth */
    double began_s = fth_clock_wall_seconds() - fth_clock_process_seconds() + 1e-3 * CLOCKS_DIFFER_MS;
    look(listener, &listener->seen);
    double stamped_s = (double)listener->seen.seconds + 1e-9 * (double)listener->seen.nanoseconds;
    if (listener->seen.exists && stamped_s > began_s)
        listener->seen = (fth_file_facts){0};
    return FTH_OK;
}

/* Seconds that the file holds. Who writes it may be between making it and filling it: an empty one
 * is read again. */
static double read_notice(fth_listener *listener)
{
    double seconds = USUAL_NOTICE_S;
    char *text = NULL;
    size_t size = 0;
    for (int tries = 0; tries < 2 && size == 0; tries++) {
        free(text);
        text = NULL;
        if (tries > 0 && !fth_listener_pause(listener, 0.05))
            break;
        if (fth_file_read_all(listener->argument, 4096, &text, &size) != FTH_OK) {
            fth_listener_news(listener, "%s; taking it for %g seconds", fth_error_message(), seconds);
            break;
        }
        text[strcspn(text, "\r\n")] = '\0';
        size = strlen(text);
    }
    double given;
    if (text && size > 0) {
        if (fth_duration_parse(text, &given) == FTH_OK)
            seconds = given;
        else
            fth_listener_news(listener, "%s holds no number of seconds; taking it for %g", listener->argument, seconds);
    }
    free(text);
    return seconds;
}

static void listen_file(fth_listener *listener)
{
    do {
        fth_file_facts now;
        if (!look(listener, &now))
            continue;
        if (now.exists && memcmp(&now, &listener->seen, sizeof now) != 0) {
            double seconds = read_notice(listener);
            fth_listener_notice(listener, seconds, "%s says that this machine ends in %.3g s", listener->argument,
                                seconds);
            return;
        }
        listener->seen = now; /* deleted: the next one counts */
    } while (fth_listener_pause_to_look(listener, LOOK_EVERY_S));
}

const fth_notice_source fth_notice_file = {
    .name = "file", .has_argument = true, .cloud = FTH_CLOUD_COUNT, .prepare = prepare, .listen = listen_file};
