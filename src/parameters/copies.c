/* See copies.h. */
#include "parameters/copies.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MOST_HELD_S = 65 }; /* above what a reader may wait */

struct fth_copy {
    atomic_int references;
    atomic_int *alive; /* how many there are; the owner's */
    int fd;            /* in memory, never written again */
    int64_t version;
    uint64_t header_bytes, size_bytes;
};

typedef struct waiting_pull {
    fth_pull pull;
    struct waiting_pull *next;
} waiting_pull;

struct fth_copies {
    fth_copies_options options;
    atomic_int alive;

    pthread_mutex_t mutex;  /* guards what follows; references to copies are only taken with it held */
    pthread_cond_t changed; /* for fth_copies_get() */
    fth_server *server;     /* or NULL */
    waiting_pull *waiting;
    bool wanted;          /* a copy of the newest version, by a reader inside the server, which is not in the list */
    double short_since_s; /* since when a copy is wanted and there is no room for it; 0: there is room */
    fth_copy *newest;
    fth_region region; /* for workers of this machine, made when one asks. The applying thread fills it unlocked. */
    bool stopping, ended;
};

/* What a reader must receive, after a moment, while others wait for room; twice as much with each
 * DOUBLED_S they do. */
static const double GRACE_S = 2, LEAST_BYTES_PER_S = 1 << 20, DOUBLED_S = 5;

/* ---- copies ---- */

static fth_status create_copy(fth_copies *copies, int64_t version, fth_copy **result)
{
    fth_status status = FTH_OK;
    const fth_served_model *model = copies->options.model;
    const fth_layout *layout = model->layout;
    fth_copy *copy = NULL;
    struct iovec *parts = NULL;
    char *header = NULL, version_text[24], classes_text[16];
    size_t header_bytes = 0;

    *result = NULL;
    snprintf(version_text, sizeof version_text, "%" PRId64, version);
    snprintf(classes_text, sizeof classes_text, "%d", model->classes);
    fth_metadata_entry metadata[] = {
        {"version", version_text}, {"model", model->train->model}, {"input", model->input}, {"classes", classes_text}};
    FTH_TRY(fth_allocate(1, sizeof *copy, &copy));
    copy->fd = -1;
    copy->references = 1;
    copy->version = version;
    FTH_TRY(fth_allocate((size_t)layout->count + 1, sizeof *parts, &parts));
    FTH_TRY(fth_layout_describe(layout, metadata, FTH_COUNT_OF(metadata), &header, &header_bytes));
    parts[0] = (struct iovec){header, header_bytes};
    copy->header_bytes = copy->size_bytes = header_bytes;
    for (int i = 0; i < layout->count; i++) {
        const fth_layout_tensor *tensor = &layout->tensors[i];
        float *vector = i < layout->parameters ? model->vectors.parameters : model->vectors.buffers;
        parts[i + 1] = (struct iovec){vector + tensor->vector_offset, (size_t)tensor->count * sizeof(float)};
        copy->size_bytes += parts[i + 1].iov_len;
    }
    copy->fd = memfd_create("parameters", MFD_CLOEXEC);
    FTH_REQUIRE(copy->fd >= 0 && fth_write_parts(copy->fd, parts, layout->count + 1), FTH_NO_MEMORY,
                "no memory for a copy of the parameters: %s", strerror(errno));
    copy->alive = &copies->alive;
    atomic_fetch_add(copy->alive, 1);
    *result = copy;
    copy = NULL;

out:
    if (copy && copy->fd >= 0)
        close(copy->fd);
    free(copy);
    free(parts);
    free(header);
    return status;
}

void fth_copy_release(fth_copy *copy)
{
    if (!copy || atomic_fetch_sub(&copy->references, 1) > 1)
        return;
    close(copy->fd);
    atomic_fetch_sub(copy->alive, 1);
    free(copy);
}

static void release_copy(void *copy)
{
    fth_copy_release(copy);
}

int64_t fth_copy_version(const fth_copy *copy)
{
    return copy->version;
}

int fth_copy_file(const fth_copy *copy, size_t *size_bytes)
{
    *size_bytes = (size_t)copy->size_bytes;
    return copy->fd;
}

int fth_copies_count(fth_copies *copies, uint64_t *size_bytes)
{
    int count = atomic_load(&copies->alive);
    pthread_mutex_lock(&copies->mutex);
    *size_bytes = copies->newest ? (uint64_t)count * copies->newest->size_bytes : 0;
    pthread_mutex_unlock(&copies->mutex);
    return count;
}

/* ---- answering ---- */

static void answer(fth_copies *copies, const fth_pull *pull, fth_copy *copy)
{
    fth_parameters_metrics *metrics = copies->options.metrics;
    const uint64_t packed_floats = copies->options.model->layout->packed_floats;
    fth_exchange *exchange = pull->exchange;
    char text[96];

    snprintf(text, sizeof text, "\"%" PRId64 "\"", copy->version);
    fth_exchange_set_header(exchange, "ETag", text);
    snprintf(text, sizeof text, "%" PRId64, copy->version);
    fth_exchange_set_header(exchange, "X-Farthing-Version", text);
    fth_exchange_set_header(exchange, "Accept-Ranges", "bytes");
    uint64_t first = 0, size = copy->size_bytes;
    int code = 200;
    if (pull->if_match >= 0 && pull->if_match != copy->version) {
        fth_refuse(metrics, exchange, FTH_REFUSAL_VERSION, "the version is %" PRId64 " now", copy->version);
        fth_copy_release(copy);
        return;
    }
    if (pull->numbers) {
        if (pull->offset > packed_floats || pull->count > packed_floats - pull->offset) {
            fth_refuse(metrics, exchange, FTH_REFUSAL_RANGE,
                       "offset and count reach beyond the %" PRIu64 " numbers there are", packed_floats);
            fth_copy_release(copy);
            return;
        }
        first = copy->header_bytes + pull->offset * sizeof(float);
        size = pull->count * sizeof(float);
    } else if (pull->has_range && (pull->if_range == -1 || pull->if_range == copy->version)) {
        if (!fth_range_resolve(&pull->range, copy->size_bytes, &first, &size)) {
            snprintf(text, sizeof text, "bytes */%" PRIu64, copy->size_bytes);
            fth_exchange_set_header(exchange, "Content-Range", text);
            fth_refuse(metrics, exchange, FTH_REFUSAL_RANGE, "the file has %" PRIu64 " bytes", copy->size_bytes);
            fth_copy_release(copy);
            return;
        }
        code = 206;
        snprintf(text, sizeof text, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, first, first + size - 1,
                 copy->size_bytes);
        fth_exchange_set_header(exchange, "Content-Range", text);
    }
    atomic_fetch_add(&metrics->sent_bytes, size);
    fth_exchange_set_data(exchange, copy, release_copy); /* alive until the client has it, or has gone */
    fth_exchange_answer_file(exchange, code, "application/octet-stream", copy->fd, first, size);
}

/* ---- workers of this machine ---- */

/* What can be given: a copy, or a slot of the region. */
typedef struct offer {
    fth_copy *copy;
    int slot;
    int64_t version;
} offer;

static void answer_local(fth_copies *copies, const fth_pull *pull, const offer *offered)
{
    const fth_region *region = &copies->region; /* its file stays the same once there is something in it */
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getpid(), region->fd);
    uint64_t size = copies->options.model->layout->packed_floats * sizeof(float);
    atomic_fetch_add(&copies->options.metrics->sent_bytes, size);
    fth_exchange_answer_json(
        pull->exchange, 200,
        json_pack("{s:i, s:I, s:s, s:I, s:I, s:I}", "code", 200, "version", (json_int_t)offered->version, "path", path,
                  "stamp", (json_int_t)fth_region_stamp(offered->slot), "offset",
                  (json_int_t)fth_region_offset(region, offered->slot), "size_bytes", (json_int_t)size));
}

static bool create_region(fth_copies *copies)
{
    fth_region region;
    fth_status status = fth_region_create(copies->options.model->layout->packed_floats * sizeof(float), &region);
    if (status != FTH_OK) {
        fth_log_warning("%s", fth_error_message());
        return false;
    }
    pthread_mutex_lock(&copies->mutex);
    copies->region = region;
    pthread_mutex_unlock(&copies->mutex);
    return true;
}

/* Puts the version there is now where they can read it. */
static void fill_region(fth_copies *copies)
{
    fth_region *region = &copies->region;
    const fth_served_model *model = copies->options.model;
    const fth_layout *layout = model->layout;
    int slot = 0;
    if (region->fd < 0 && !create_region(copies))
        return;
    float *to = fth_region_begin(region, &slot);
#pragma omp parallel for schedule(dynamic, 1) if (layout->packed_floats > 1 << 18)
    for (int i = 0; i < layout->count; i++) {
        const fth_layout_tensor *tensor = &layout->tensors[i];
        const float *vector = i < layout->parameters ? model->vectors.parameters : model->vectors.buffers;
        memcpy(to + tensor->packed_offset, vector + tensor->vector_offset, (size_t)tensor->count * sizeof(float));
    }
    pthread_mutex_lock(&copies->mutex);
    fth_region_finish(region, slot, fth_served_position_version(copies->options.position));
    pthread_mutex_unlock(&copies->mutex);
}

/* ---- who gets what; with the mutex held ---- */

/* True if one more version can be held for readers: the newest one goes first, if it has no
 * reader. */
static bool has_room(const fth_copies *copies)
{
    int replaced = copies->newest && atomic_load(&copies->newest->references) == 1;
    return atomic_load(&copies->alive) - replaced < copies->options.max_copies;
}

/* True if `version`, the newest, is one that the reader waits for: a later one than it has, or the
 * one it has if it must push for that again. */
static bool is_waited_for(const fth_copies *copies, const fth_pull *pull, int64_t version)
{
    return version > pull->since || (version == pull->since && copies->options.all_contribute && *pull->worker &&
                                     !fth_workers_has_contributed(copies->options.workers, pull->worker, version));
}

/* True if what there is serves the reader, and then *offered is it. */
static bool can_serve(fth_copies *copies, const fth_pull *pull, offer *offered)
{
    int64_t version = fth_served_position_version(copies->options.position);
    if (pull->local) {
        if (copies->region.version != version || !is_waited_for(copies, pull, version))
            return false;
        *offered = (offer){.slot = copies->region.newest, .version = version};
        fth_workers_note_pull(copies->options.workers, pull->worker, version);
        return true;
    }
    fth_copy *copy = copies->newest;
    if (!copy || !is_waited_for(copies, pull, version))
        return false;
    if (copy->version != version) {
        if (copy->version <= pull->since || has_room(copies) || !copies->options.older_serve)
            return false;
        copies->wanted = true; /* so that room is made for the newest */
    }
    atomic_fetch_add(&copy->references, 1);
    *offered = (offer){.copy = copy, .version = copy->version};
    fth_workers_note_pull(copies->options.workers, pull->worker, copy->version);
    return true;
}

/* True if a reader waits for a version that exists but has no copy yet. */
static bool copy_is_wanted(const fth_copies *copies)
{
    int64_t version = fth_served_position_version(copies->options.position);
    if (copies->newest && copies->newest->version == version)
        return false;
    if (copies->wanted)
        return true;
    for (const waiting_pull *w = copies->waiting; w; w = w->next)
        if (!w->pull.local && is_waited_for(copies, &w->pull, version))
            return true;
    return false;
}

static bool region_is_due(const fth_copies *copies)
{
    int64_t version = fth_served_position_version(copies->options.position);
    for (const waiting_pull *w = copies->waiting; w; w = w->next)
        if (w->pull.local && is_waited_for(copies, &w->pull, version))
            return copies->region.version != version;
    return false;
}

/* Slow readers make room. */
static void hurry_readers(fth_copies *copies)
{
    double now = fth_clock_seconds();
    if (copies->short_since_s == 0)
        copies->short_since_s = now;
    double least = LEAST_BYTES_PER_S * exp2((now - copies->short_since_s) / DOUBLED_S);
    int count = copies->server ? fth_server_end_slow_readers(copies->server, GRACE_S, least) : 0;
    if (count > 0)
        fth_log_info("cut off %s of older versions at less than %.3g MB/s: others wait (--max-snapshots %d)",
                     FTH_COUNTED(count, "reader"), least / 1e6, copies->options.max_copies);
}

/* ---- serving ---- */

static void give(fth_copies *copies, const fth_pull *pull, const offer *offered)
{
    if (pull->local)
        answer_local(copies, pull, offered);
    else
        answer(copies, pull, offered->copy);
}

void fth_copies_request(fth_copies *copies, const fth_pull *pull)
{
    offer offered = {0};
    waiting_pull *waiting = NULL;
    pthread_mutex_lock(&copies->mutex);
    bool ready = can_serve(copies, pull, &offered);
    if (!ready && !copies->ended && (waiting = malloc(sizeof *waiting))) {
        fth_exchange_hold(pull->exchange, MOST_HELD_S, 503);
        *waiting = (waiting_pull){.pull = *pull, .next = copies->waiting};
        copies->waiting = waiting;
    }
    pthread_mutex_unlock(&copies->mutex);
    if (ready)
        give(copies, pull, &offered);
    else if (waiting)
        fth_intake_wake(copies->options.intake);
    else
        fth_refuse(copies->options.metrics, pull->exchange, FTH_REFUSAL_BUSY, "the server is stopping");
}

/* The answer to a reader for whom there was nothing in time; `end`: for whom there will not be. */
static void answer_late(fth_copies *copies, const fth_pull *pull, bool end)
{
    int64_t version = fth_served_position_version(copies->options.position);
    if (end || is_waited_for(copies, pull, version)) {
        fth_refuse(copies->options.metrics, pull->exchange, FTH_REFUSAL_BUSY,
                   end ? "the server is stopping" : "too many slow readers hold older versions");
        return;
    }
    char tag[32]; /* below `since` where a server has lost what came after a checkpoint */
    snprintf(tag, sizeof tag, "\"%" PRId64 "\"", version);
    fth_exchange_set_header(pull->exchange, "ETag", tag);
    fth_exchange_answer(pull->exchange, 304, NULL, NULL, 0);
}

/* Takes those out of the list that can be answered, or whose time is over, and answers them. With
 * the mutex held, but for the answering. */
static void answer_waiting(fth_copies *copies, bool end)
{
    waiting_pull **link = &copies->waiting;
    double now = fth_clock_seconds();
    while (*link) {
        waiting_pull *waiting = *link;
        offer offered = {0};
        bool ready = !end && can_serve(copies, &waiting->pull, &offered);
        if (!ready && !end && now < waiting->pull.until_s) {
            link = &waiting->next;
            continue;
        }
        *link = waiting->next;
        pthread_mutex_unlock(&copies->mutex);
        if (ready)
            give(copies, &waiting->pull, &offered);
        else
            answer_late(copies, &waiting->pull, end);
        free(waiting);
        pthread_mutex_lock(&copies->mutex);
        link = &copies->waiting; /* the list may have changed meanwhile */
    }
}

void fth_copies_serve(fth_copies *copies)
{
    pthread_mutex_lock(&copies->mutex);
    if (region_is_due(copies)) {
        pthread_mutex_unlock(&copies->mutex);
        fill_region(copies);
        pthread_mutex_lock(&copies->mutex);
    }
    bool wanted = copy_is_wanted(copies), room = has_room(copies);
    if (wanted && !room)
        hurry_readers(copies);
    if (!wanted || room)
        copies->short_since_s = 0;
    if (wanted && room) {
        fth_copy *copy = NULL;
        copies->wanted = false;
        /* The old one goes first, unless it is being read, so that there is room for the new
         * one. */
        fth_copy_release(copies->newest);
        copies->newest = NULL;
        pthread_mutex_unlock(&copies->mutex);
        if (create_copy(copies, fth_served_position_version(copies->options.position), &copy) != FTH_OK)
            fth_log_warning("%s", fth_error_message());
        pthread_mutex_lock(&copies->mutex);
        copies->newest = copy;
        pthread_cond_broadcast(&copies->changed);
    }
    answer_waiting(copies, false);
    pthread_mutex_unlock(&copies->mutex);
}

void fth_copies_end(fth_copies *copies)
{
    pthread_mutex_lock(&copies->mutex);
    copies->ended = true;
    answer_waiting(copies, true);
    pthread_mutex_unlock(&copies->mutex);
}

fth_copy *fth_copies_get(fth_copies *copies, int64_t least, double seconds)
{
    struct timespec until = fth_deadline_timespec(fth_deadline_in(seconds));
    fth_copy *copy = NULL;
    int error = 0;
    pthread_mutex_lock(&copies->mutex);
    while (error == 0 && !copies->stopping && !(copies->newest && copies->newest->version >= least)) {
        copies->wanted = true;
        fth_intake_wake(copies->options.intake);
        error = pthread_cond_clockwait(&copies->changed, &copies->mutex, CLOCK_MONOTONIC, &until);
    }
    if (copies->newest && copies->newest->version >= least) {
        copy = copies->newest;
        atomic_fetch_add(&copy->references, 1);
    }
    pthread_mutex_unlock(&copies->mutex);
    return copy;
}

void fth_copies_stop(fth_copies *copies)
{
    pthread_mutex_lock(&copies->mutex);
    copies->stopping = true;
    pthread_cond_broadcast(&copies->changed);
    pthread_mutex_unlock(&copies->mutex);
}

/* ---- beginning and end ---- */

void fth_copies_set_server(fth_copies *copies, fth_server *server)
{
    pthread_mutex_lock(&copies->mutex);
    copies->server = server;
    pthread_mutex_unlock(&copies->mutex);
}

fth_status fth_copies_create(const fth_copies_options *options, fth_copies **copies)
{
    fth_status status = fth_allocate(1, sizeof **copies, copies);
    if (status != FTH_OK)
        return status;
    (*copies)->options = *options;
    (*copies)->region = (fth_region){.fd = -1, .newest = -1, .version = -1};
    pthread_mutex_init(&(*copies)->mutex, NULL);
    pthread_cond_init(&(*copies)->changed, NULL);
    return FTH_OK;
}

void fth_copies_free(fth_copies *copies)
{
    if (!copies)
        return;
    fth_copy_release(copies->newest);
    fth_region_release(&copies->region);
    pthread_cond_destroy(&copies->changed);
    pthread_mutex_destroy(&copies->mutex);
    free(copies);
}
