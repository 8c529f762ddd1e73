/* The watch: which sources there are, a thread for each one asked for, and what they have to tell.
 * See spot.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "spot/spot_internal.h"

static const fth_notice_source *const sources[] = {
#define ROW(name) &fth_notice_##name,
    FTH_NOTICE_SOURCES(ROW)
#undef ROW
};

/* "auto" finds out within the first; a machine that is just starting, or very busy, gets further
 * chances. */
static const struct {
    double after_s, for_s;
} tries[] = {{0, 0.9}, {5, 5}, {60, 10}};

enum { MAX_LISTENERS = 16, MAX_NEWS = 8, FAILURES_BEFORE_NEWS = 3 };

struct fth_watch {
    fth_stop *stop;
    double pace; /* of pauses between looks; 1 but in tests */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    atomic_bool closing;
    fth_listener listeners[MAX_LISTENERS];
    int listener_count;
    bool finding_out;
    pthread_t finder; /* of "auto" */
    char news[MAX_NEWS][FTH_NEWS_BYTES];
    int first_news, news_count;
};

/* ---- for the sources ---- */

bool fth_listener_closing(const fth_listener *listener)
{
    return listener->watch->closing;
}

/* Waits; false when the watch closes. */
static bool pause_watch(fth_watch *watch, double seconds)
{
    struct timespec until = fth_deadline_timespec(fth_deadline_in(seconds));
    pthread_mutex_lock(&watch->mutex);
    while (!watch->closing && seconds > 0 &&
           pthread_cond_clockwait(&watch->changed, &watch->mutex, CLOCK_MONOTONIC, &until) == 0)
        ;
    bool closing = watch->closing;
    pthread_mutex_unlock(&watch->mutex);
    return !closing;
}

bool fth_listener_pause(fth_listener *listener, double seconds)
{
    return pause_watch(listener->watch, seconds);
}

bool fth_listener_pause_to_look(fth_listener *listener, double seconds)
{
    return pause_watch(listener->watch, seconds * listener->watch->pace);
}

void fth_listener_notice(fth_listener *listener, double deadline_s, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&listener->watch->mutex);
    listener->noticed = true;
    pthread_mutex_unlock(&listener->watch->mutex);
    fth_stop_ask(listener->watch->stop, FTH_STOP_PREEMPTION, deadline_s, listener->source->name, "%s", text);
}

/* Said at once, since a machine that waits for a run takes no news; and kept for the record. */
static void add_news(fth_watch *watch, const char *text)
{
    fth_log_info("%s", text);
    pthread_mutex_lock(&watch->mutex);
    if (watch->news_count == MAX_NEWS) { /* the oldest goes */
        watch->first_news = (watch->first_news + 1) % MAX_NEWS;
        watch->news_count--;
    }
    char *place = watch->news[(watch->first_news + watch->news_count++) % MAX_NEWS];
    snprintf(place, sizeof watch->news[0], "%s", text);
    pthread_mutex_unlock(&watch->mutex);
}

void fth_listener_news(fth_listener *listener, const char *format, ...)
{
    char text[FTH_NEWS_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    add_news(listener->watch, text);
}

void fth_listener_answered(fth_listener *listener, bool answered)
{
    const char *name = listener->source->name;
    if (fth_listener_closing(listener) || listener->source->second)
        return;
    listener->failures = answered ? 0 : listener->failures + 1;
    if (listener->failures == FAILURES_BEFORE_NEWS && !listener->told_failure) {
        fth_listener_news(listener,
                          "--watch %s: no notice can come for now: %.300s; is this a machine of that cloud, and may "
                          "this process ask its metadata service?",
                          name, fth_error_message());
        listener->told_failure = true;
    } else if (answered && listener->told_failure) {
        fth_listener_news(listener, "--watch %s: the metadata service answers again", name);
        listener->told_failure = false;
    }
}

/* ---- the text after --watch ---- */

static bool names_source(const fth_notice_source *source, const char *item, size_t length)
{
    size_t name = strlen(source->name);
    if (source->has_argument)
        return length > name + 1 && strncmp(item, source->name, name) == 0 && item[name] == ':';
    return length == name && strncmp(item, source->name, name) == 0;
}

/* Calls `take` for every source that the text names, with what stands after its ':'. */
static fth_status each_source(const char *text,
                              fth_status (*take)(fth_watch *, const fth_notice_source *, const char *, size_t length),
                              fth_watch *watch)
{
    bool lone = strcmp(text, "none") == 0 || strcmp(text, "auto") == 0;
    for (const char *item = text; !lone; item++) {
        size_t length = strcspn(item, ",");
        bool known = false;
        for (size_t i = 0; i < FTH_COUNT_OF(sources); i++) {
            if (!names_source(sources[i], item, length))
                continue;
            known = true;
            size_t before = sources[i]->has_argument ? strlen(sources[i]->name) + 1 : length;
            fth_status status = take ? take(watch, sources[i], item + before, length - before) : FTH_OK;
            if (status != FTH_OK)
                return status;
        }
        if (!known)
            return fth_fail(FTH_INVALID,
                            "\"%.*s\" does not say when machines end; there are auto, none, and lists of aws, gcp, "
                            "azure and file:PATH",
                            (int)length, item);
        item += length;
        if (!*item)
            break;
    }
    return FTH_OK;
}

fth_status fth_watch_check(const char *text)
{
    return each_source(text, NULL, NULL);
}

/* ---- opening ---- */

static void *listen_in_thread(void *context)
{
    fth_listener *listener = context;
    listener->source->listen(listener);
    return NULL;
}

/* In the thread that opens the watch, or in the finder's, never both. */
static fth_status add_listener(fth_watch *watch, const fth_notice_source *source, const char *argument, size_t length)
{
    if (watch->listener_count == MAX_LISTENERS)
        return fth_fail(FTH_INVALID, "--watch takes %d sources at most", MAX_LISTENERS);
    fth_listener *listener = &watch->listeners[watch->listener_count];
    *listener = (fth_listener){.source = source, .watch = watch};
    listener->argument = strndup(argument, length);
    fth_status status = listener->argument ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory to watch %s", source->name);
    if (status == FTH_OK && source->cloud != FTH_CLOUD_COUNT)
        status = fth_metadata_open(source->cloud, &watch->closing, &listener->metadata);
    if (status == FTH_OK && source->prepare)
        status = source->prepare(listener);
    if (status == FTH_OK && fth_thread_start(&listener->thread, "notice", listen_in_thread, listener) != 0)
        status = fth_fail(FTH_NO_MEMORY, "no thread to watch %s", source->name);
    listener->running = status == FTH_OK;
    /* Other threads see complete listeners only. */
    pthread_mutex_lock(&watch->mutex);
    watch->listener_count++;
    pthread_mutex_unlock(&watch->mutex);
    return status;
}

static void listen_to_cloud(fth_watch *watch, const fth_identification *found)
{
    const fth_machine_identity *here = &found->identity;
    fth_log_info("--watch auto: this is %s%s%s%s%s; listening for its notices", here->cloud, *here->instance ? " " : "",
                 here->instance, *here->region ? " in " : "", here->region);
    if (each_source(here->cloud, add_listener, watch) != FTH_OK)
        add_news(watch, fth_error_message());
    if (found->no_token)
        add_news(watch, fth_hop_limit_advice);
}

/* "auto" costs the start of a run nothing: this thread asks around while the data is being
 * opened. */
static void *find_out(void *context)
{
    fth_watch *watch = context;
    fth_identification found = {0};
    for (size_t i = 0; i < FTH_COUNT_OF(tries) && pause_watch(watch, tries[i].after_s); i++) {
        fth_identify(tries[i].for_s, &watch->closing, &found);
        if (*found.identity.cloud && !watch->closing) {
            listen_to_cloud(watch, &found);
            break;
        }
        if (i == 0 && !watch->closing) {
            fth_log_info("--watch auto: no cloud's metadata service answers here; listening to signals only");
        }
    }
    return NULL;
}

fth_status fth_watch_open(const char *text, fth_stop *stop, fth_watch **watch)
{
    return fth_watch_open_paced(text, 1, stop, watch);
}

fth_status fth_watch_open_paced(const char *text, double pace, fth_stop *stop, fth_watch **watch)
{
    fth_status status = FTH_OK;
    fth_watch *opened = NULL;
    *watch = NULL;
    FTH_TRY(fth_watch_check(text));
    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    pthread_mutex_init(&opened->mutex, NULL);
    pthread_cond_init(&opened->changed, NULL);
    opened->stop = stop;
    opened->pace = pace;
    if (strcmp(text, "auto") == 0) {
        opened->finding_out = fth_thread_start(&opened->finder, "identify", find_out, opened) == 0;
        FTH_REQUIRE(opened->finding_out, FTH_NO_MEMORY, "no thread to find out where this runs");
    } else {
        FTH_TRY(each_source(text, add_listener, opened));
    }
    *watch = opened;
    opened = NULL;
out:
    fth_watch_free(opened);
    return status;
}

void fth_watch_free(fth_watch *watch)
{
    if (!watch)
        return;
    pthread_mutex_lock(&watch->mutex);
    watch->closing = true;
    pthread_cond_broadcast(&watch->changed);
    pthread_mutex_unlock(&watch->mutex);
    if (watch->finding_out)
        pthread_join(watch->finder, NULL); /* from here on nobody adds listeners */
    for (int i = 0; i < watch->listener_count; i++) {
        fth_listener *listener = &watch->listeners[i];
        if (listener->running)
            pthread_join(listener->thread, NULL);
        fth_metadata_close(&listener->metadata);
        free(listener->argument);
    }
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->mutex);
    free(watch);
}

/* ---- asking it ---- */

void fth_watch_acknowledge(fth_watch *watch)
{
    if (!watch)
        return;
    pthread_mutex_lock(&watch->mutex);
    int count = watch->listener_count;
    pthread_mutex_unlock(&watch->mutex);
    for (int i = 0; i < count; i++) {
        fth_listener *listener = &watch->listeners[i];
        pthread_mutex_lock(&watch->mutex);
        bool noticed = listener->noticed;
        pthread_mutex_unlock(&watch->mutex);
        if (noticed && listener->source->acknowledge)
            listener->source->acknowledge(listener);
    }
}

bool fth_watch_take_news(fth_watch *watch, char *text, size_t size)
{
    if (!watch)
        return false;
    pthread_mutex_lock(&watch->mutex);
    bool some = watch->news_count > 0;
    if (some) {
        snprintf(text, size, "%s", watch->news[watch->first_news]);
        watch->first_news = (watch->first_news + 1) % MAX_NEWS;
        watch->news_count--;
    }
    pthread_mutex_unlock(&watch->mutex);
    return some;
}
