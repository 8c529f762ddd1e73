/* See snapshots.h. */
#include "parameters/snapshots.h"

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

#include "model/exported_model.h"

enum { MOST_HELD_S = 65 }; /* longer than a reader may wait */

struct fth_parameter_snapshot {
    atomic_int references;
    atomic_int *alive; /* count of the owner's snapshots */
    int fd;            /* a memory file, never written again */
    int64_t version;
    uint64_t header_bytes, size_bytes;
};

typedef struct waiting_pull {
    fth_pull pull;
    struct waiting_pull *next;
} waiting_pull;

struct fth_parameter_snapshots {
    const fth_server_parts *parts;
    atomic_int alive;

    pthread_mutex_t mutex;  /* guards what follows; references are taken only with it held */
    pthread_cond_t changed; /* for fth_parameter_snapshots_get() */
    fth_server *server;     /* or NULL */
    waiting_pull *waiting;
    bool wanted;          /* a reader inside the server, which is not in the list, wants the newest version */
    double short_since_s; /* since when there is no room for a requested snapshot; 0: there is room */
    fth_parameter_snapshot *newest;
    fth_region
        region; /* for workers on this machine, created on demand; the applying thread fills it without the mutex */
    bool stopping, ended;
};

/* The rate below which a reader is disconnected, after GRACE_S, while others wait for room. It
 * doubles every DOUBLED_S of the shortage. */
static const double GRACE_S = 2, LEAST_BYTES_PER_S = 1 << 20, DOUBLED_S = 5;

/* ---- snapshots ---- */

static fth_status create_snapshot(fth_parameter_snapshots *snapshots, int64_t version, fth_parameter_snapshot **result)
{
    fth_status status = FTH_OK;
    const fth_served_model *model = snapshots->parts->model;
    const fth_layout *layout = model->layout;
    fth_parameter_snapshot *snapshot = NULL;
    struct iovec *parts = NULL;
    char *header = NULL, version_text[24], classes_text[16];
    size_t header_bytes = 0;

    *result = NULL;
    snprintf(version_text, sizeof version_text, "%" PRId64, version);
    snprintf(classes_text, sizeof classes_text, "%d", model->classes);
    fth_metadata_entry metadata[] = {{"version", version_text},
                                     {"model", fth_exported_model_short_name(model->train->model)},
                                     {"input", model->input.text},
                                     {"classes", classes_text}};
    FTH_TRY(fth_allocate(1, sizeof *snapshot, &snapshot));
    snapshot->fd = -1;
    snapshot->references = 1;
    snapshot->version = version;
    FTH_TRY(fth_allocate((size_t)layout->count + 1, sizeof *parts, &parts));
    FTH_TRY(fth_layout_describe(layout, metadata, FTH_COUNT_OF(metadata), &header, &header_bytes));
    parts[0] = (struct iovec){header, header_bytes};
    snapshot->header_bytes = snapshot->size_bytes = header_bytes;
    for (int i = 0; i < layout->count; i++) {
        const fth_layout_tensor *tensor = &layout->tensors[i];
        float *vector = i < layout->parameters ? model->vectors.parameters : model->vectors.buffers;
        parts[i + 1] = (struct iovec){vector + tensor->vector_offset, (size_t)tensor->count * sizeof(float)};
        snapshot->size_bytes += parts[i + 1].iov_len;
    }
    snapshot->fd = memfd_create("parameters", MFD_CLOEXEC);
    FTH_REQUIRE(snapshot->fd >= 0 && fth_write_parts(snapshot->fd, parts, layout->count + 1), FTH_NO_MEMORY,
                "no memory for a snapshot of the parameters: %s", strerror(errno));
    snapshot->alive = &snapshots->alive;
    atomic_fetch_add(snapshot->alive, 1);
    *result = snapshot;
    snapshot = NULL;

out:
    if (snapshot && snapshot->fd >= 0)
        close(snapshot->fd);
    free(snapshot);
    free(parts);
    free(header);
    return status;
}

void fth_parameter_snapshot_release(fth_parameter_snapshot *snapshot)
{
    if (!snapshot || atomic_fetch_sub(&snapshot->references, 1) > 1)
        return;
    close(snapshot->fd);
    atomic_fetch_sub(snapshot->alive, 1);
    free(snapshot);
}

static void release_snapshot(void *snapshot)
{
    fth_parameter_snapshot_release(snapshot);
}

int64_t fth_parameter_snapshot_version(const fth_parameter_snapshot *snapshot)
{
    return snapshot->version;
}

int fth_parameter_snapshot_file(const fth_parameter_snapshot *snapshot, size_t *size_bytes)
{
    *size_bytes = (size_t)snapshot->size_bytes;
    return snapshot->fd;
}

int fth_parameter_snapshots_count(fth_parameter_snapshots *snapshots, uint64_t *size_bytes)
{
    int count = atomic_load(&snapshots->alive);
    pthread_mutex_lock(&snapshots->mutex);
    *size_bytes = snapshots->newest ? (uint64_t)count * snapshots->newest->size_bytes : 0;
    pthread_mutex_unlock(&snapshots->mutex);
    return count;
}

/* ---- answering ---- */

static void answer(fth_parameter_snapshots *snapshots, const fth_pull *pull, fth_parameter_snapshot *snapshot)
{
    fth_parameters_metrics *metrics = snapshots->parts->metrics;
    const uint64_t packed_floats = snapshots->parts->model->layout->packed_floats;
    fth_exchange *exchange = pull->exchange;
    char text[96];

    snprintf(text, sizeof text, "\"%" PRId64 "\"", snapshot->version);
    fth_exchange_set_header(exchange, "ETag", text);
    snprintf(text, sizeof text, "%" PRId64, snapshot->version);
    fth_exchange_set_header(exchange, "X-Farthing-Version", text);
    fth_exchange_set_header(exchange, "Accept-Ranges", "bytes");
    uint64_t first = 0, size = snapshot->size_bytes;
    int code = 200;
    if (pull->if_match >= 0 && pull->if_match != snapshot->version) {
        fth_refuse(metrics, exchange, FTH_REFUSAL_VERSION, "the version is %" PRId64 " now", snapshot->version);
        fth_parameter_snapshot_release(snapshot);
        return;
    }
    if (pull->numbers) {
        if (pull->offset > packed_floats || pull->count > packed_floats - pull->offset) {
            fth_refuse(metrics, exchange, FTH_REFUSAL_RANGE,
                       "offset and count reach beyond the %" PRIu64 " numbers there are", packed_floats);
            fth_parameter_snapshot_release(snapshot);
            return;
        }
        first = snapshot->header_bytes + pull->offset * sizeof(float);
        size = pull->count * sizeof(float);
    } else if (pull->has_range && (pull->if_range == -1 || pull->if_range == snapshot->version)) {
        if (!fth_range_resolve(&pull->range, snapshot->size_bytes, &first, &size)) {
            snprintf(text, sizeof text, "bytes */%" PRIu64, snapshot->size_bytes);
            fth_exchange_set_header(exchange, "Content-Range", text);
            fth_refuse(metrics, exchange, FTH_REFUSAL_RANGE, "the file has %" PRIu64 " bytes", snapshot->size_bytes);
            fth_parameter_snapshot_release(snapshot);
            return;
        }
        code = 206;
        snprintf(text, sizeof text, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, first, first + size - 1,
                 snapshot->size_bytes);
        fth_exchange_set_header(exchange, "Content-Range", text);
    }
    atomic_fetch_add(&metrics->sent_bytes, size);
    fth_exchange_set_data(exchange, snapshot, release_snapshot); /* released when the client has it or is gone */
    fth_exchange_answer_file(exchange, code, "application/octet-stream", snapshot->fd, first, size);
}

/* ---- workers of this machine ---- */

/* What answers a pull: a snapshot, or a slot of the region. */
typedef struct offer {
    fth_parameter_snapshot *snapshot;
    int slot;
    int64_t version;
} offer;

static void answer_local(fth_parameter_snapshots *snapshots, const fth_pull *pull, const offer *offered)
{
    const fth_region *region = &snapshots->region; /* its file does not change once created */
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getpid(), region->fd);
    uint64_t size = snapshots->parts->model->layout->packed_floats * sizeof(float);
    atomic_fetch_add(&snapshots->parts->metrics->sent_bytes, size);
    fth_exchange_answer_json(
        pull->exchange, 200,
        json_pack("{s:i, s:I, s:s, s:I, s:I, s:I}", "code", 200, "version", (json_int_t)offered->version, "path", path,
                  "stamp", (json_int_t)fth_region_stamp(offered->slot), "offset",
                  (json_int_t)fth_region_offset(region, offered->slot), "size_bytes", (json_int_t)size));
}

static bool create_region(fth_parameter_snapshots *snapshots)
{
    fth_region region;
    fth_status status = fth_region_create(snapshots->parts->model->layout->packed_floats * sizeof(float), &region);
    if (status != FTH_OK) {
        fth_log_warning("%s", fth_error_message());
        return false;
    }
    pthread_mutex_lock(&snapshots->mutex);
    snapshots->region = region;
    pthread_mutex_unlock(&snapshots->mutex);
    return true;
}

/* Copies the current version into the region. */
static void fill_region(fth_parameter_snapshots *snapshots)
{
    fth_region *region = &snapshots->region;
    const fth_served_model *model = snapshots->parts->model;
    const fth_layout *layout = model->layout;
    int slot = 0;
    if (region->fd < 0 && !create_region(snapshots))
        return;
    float *to = fth_region_begin(region, &slot);
#pragma omp parallel for schedule(dynamic, 1) if (layout->packed_floats > 1 << 18)
    for (int i = 0; i < layout->count; i++) {
        const fth_layout_tensor *tensor = &layout->tensors[i];
        const float *vector = i < layout->parameters ? model->vectors.parameters : model->vectors.buffers;
        memcpy(to + tensor->packed_offset, vector + tensor->vector_offset, (size_t)tensor->count * sizeof(float));
    }
    pthread_mutex_lock(&snapshots->mutex);
    fth_region_finish(region, slot, fth_served_position_version(snapshots->parts->position));
    pthread_mutex_unlock(&snapshots->mutex);
}

/* ---- who gets what; with the mutex held ---- */

/* Whether there is room for one more snapshot. The newest one makes room if it has no reader. */
static bool has_room(const fth_parameter_snapshots *snapshots)
{
    int replaced = snapshots->newest && atomic_load(&snapshots->newest->references) == 1;
    return atomic_load(&snapshots->alive) - replaced < snapshots->parts->options->max_snapshots;
}

/* Whether the reader waits for `version`, the newest: a later one than it has, or the one it has if
 * it must push for that again. */
static bool is_waited_for(const fth_parameter_snapshots *snapshots, const fth_pull *pull, int64_t version)
{
    return version > pull->since ||
           (version == pull->since && snapshots->parts->options->consistency.kind == FTH_CONSISTENCY_SYNC &&
            *pull->worker && !fth_workers_has_contributed(snapshots->parts->workers, pull->worker, version));
}

/* Finds what answers the pull; false if there is nothing yet. */
static bool can_serve(fth_parameter_snapshots *snapshots, const fth_pull *pull, offer *offered)
{
    int64_t version = fth_served_position_version(snapshots->parts->position);
    if (pull->local) {
        if (snapshots->region.version != version || !is_waited_for(snapshots, pull, version))
            return false;
        *offered = (offer){.slot = snapshots->region.newest, .version = version};
        fth_workers_note_pull(snapshots->parts->workers, pull->worker, version);
        return true;
    }
    fth_parameter_snapshot *snapshot = snapshots->newest;
    if (!snapshot || !is_waited_for(snapshots, pull, version))
        return false;
    if (snapshot->version != version) {
        if (snapshot->version <= pull->since || has_room(snapshots) ||
            snapshots->parts->options->consistency.kind != FTH_CONSISTENCY_ASYNC)
            return false;
        snapshots->wanted = true; /* so that room is made for the newest version */
    }
    atomic_fetch_add(&snapshot->references, 1);
    *offered = (offer){.snapshot = snapshot, .version = snapshot->version};
    fth_workers_note_pull(snapshots->parts->workers, pull->worker, snapshot->version);
    return true;
}

/* Whether a reader waits for a version that has no snapshot yet. */
static bool snapshot_is_wanted(const fth_parameter_snapshots *snapshots)
{
    int64_t version = fth_served_position_version(snapshots->parts->position);
    if (snapshots->newest && snapshots->newest->version == version)
        return false;
    if (snapshots->wanted)
        return true;
    for (const waiting_pull *w = snapshots->waiting; w; w = w->next)
        if (!w->pull.local && is_waited_for(snapshots, &w->pull, version))
            return true;
    return false;
}

static bool region_is_due(const fth_parameter_snapshots *snapshots)
{
    int64_t version = fth_served_position_version(snapshots->parts->position);
    for (const waiting_pull *w = snapshots->waiting; w; w = w->next)
        if (w->pull.local && is_waited_for(snapshots, &w->pull, version))
            return snapshots->region.version != version;
    return false;
}

/* Disconnects slow readers to make room. */
static void hurry_readers(fth_parameter_snapshots *snapshots)
{
    double now = fth_clock_seconds();
    if (snapshots->short_since_s == 0)
        snapshots->short_since_s = now;
    double least = LEAST_BYTES_PER_S * exp2((now - snapshots->short_since_s) / DOUBLED_S);
    int count = snapshots->server ? fth_server_end_slow_readers(snapshots->server, GRACE_S, least) : 0;
    if (count > 0)
        fth_log_info("disconnected %s of older versions slower than %.3g MB/s: others wait (--max-snapshots %d)",
                     FTH_COUNTED(count, "reader"), least / 1e6, snapshots->parts->options->max_snapshots);
}

/* ---- serving ---- */

static void give(fth_parameter_snapshots *snapshots, const fth_pull *pull, const offer *offered)
{
    if (pull->local)
        answer_local(snapshots, pull, offered);
    else
        answer(snapshots, pull, offered->snapshot);
}

void fth_parameter_snapshots_pull(fth_parameter_snapshots *snapshots, const fth_pull *pull)
{
    offer offered = {0};
    waiting_pull *waiting = NULL;
    pthread_mutex_lock(&snapshots->mutex);
    bool ready = can_serve(snapshots, pull, &offered);
    if (!ready && !snapshots->ended && (waiting = malloc(sizeof *waiting))) {
        fth_exchange_hold(pull->exchange, MOST_HELD_S, 503);
        *waiting = (waiting_pull){.pull = *pull, .next = snapshots->waiting};
        snapshots->waiting = waiting;
    }
    pthread_mutex_unlock(&snapshots->mutex);
    if (ready)
        give(snapshots, pull, &offered);
    else if (waiting)
        fth_intake_wake(snapshots->parts->intake);
    else
        fth_refuse(snapshots->parts->metrics, pull->exchange, FTH_REFUSAL_BUSY, "the server is stopping");
}

/* Answers a reader whose time is over; `end`: the server is stopping. */
static void answer_late(fth_parameter_snapshots *snapshots, const fth_pull *pull, bool end)
{
    int64_t version = fth_served_position_version(snapshots->parts->position);
    if (end || is_waited_for(snapshots, pull, version)) {
        fth_refuse(snapshots->parts->metrics, pull->exchange, FTH_REFUSAL_BUSY,
                   end ? "the server is stopping" : "too many slow readers hold older versions");
        return;
    }
    char tag[32]; /* below `since` if the server has lost updates after a checkpoint */
    snprintf(tag, sizeof tag, "\"%" PRId64 "\"", version);
    fth_exchange_set_header(pull->exchange, "ETag", tag);
    fth_exchange_answer(pull->exchange, 304, NULL, NULL, 0);
}

/* Answers waiting pulls that can be answered or have timed out. Called with the mutex held, which
 * is released while answering. */
static void answer_waiting(fth_parameter_snapshots *snapshots, bool end)
{
    waiting_pull **link = &snapshots->waiting;
    double now = fth_clock_seconds();
    while (*link) {
        waiting_pull *waiting = *link;
        offer offered = {0};
        bool ready = !end && can_serve(snapshots, &waiting->pull, &offered);
        if (!ready && !end && now < waiting->pull.until_s) {
            link = &waiting->next;
            continue;
        }
        *link = waiting->next;
        pthread_mutex_unlock(&snapshots->mutex);
        if (ready)
            give(snapshots, &waiting->pull, &offered);
        else
            answer_late(snapshots, &waiting->pull, end);
        free(waiting);
        pthread_mutex_lock(&snapshots->mutex);
        link = &snapshots->waiting; /* the list may have changed */
    }
}

void fth_parameter_snapshots_serve(fth_parameter_snapshots *snapshots)
{
    pthread_mutex_lock(&snapshots->mutex);
    if (region_is_due(snapshots)) {
        pthread_mutex_unlock(&snapshots->mutex);
        fill_region(snapshots);
        pthread_mutex_lock(&snapshots->mutex);
    }
    bool wanted = snapshot_is_wanted(snapshots), room = has_room(snapshots);
    if (wanted && !room)
        hurry_readers(snapshots);
    if (!wanted || room)
        snapshots->short_since_s = 0;
    if (wanted && room) {
        fth_parameter_snapshot *snapshot = NULL;
        snapshots->wanted = false;
        /* released first, so that there is room unless it is being read */
        fth_parameter_snapshot_release(snapshots->newest);
        snapshots->newest = NULL;
        pthread_mutex_unlock(&snapshots->mutex);
        if (create_snapshot(snapshots, fth_served_position_version(snapshots->parts->position), &snapshot) != FTH_OK)
            fth_log_warning("%s", fth_error_message());
        pthread_mutex_lock(&snapshots->mutex);
        snapshots->newest = snapshot;
        pthread_cond_broadcast(&snapshots->changed);
    }
    answer_waiting(snapshots, false);
    pthread_mutex_unlock(&snapshots->mutex);
}

void fth_parameter_snapshots_close(fth_parameter_snapshots *snapshots)
{
    pthread_mutex_lock(&snapshots->mutex);
    snapshots->ended = true;
    answer_waiting(snapshots, true);
    pthread_mutex_unlock(&snapshots->mutex);
}

fth_parameter_snapshot *fth_parameter_snapshots_get(fth_parameter_snapshots *snapshots, int64_t least, double seconds)
{
    struct timespec until = fth_deadline_timespec(fth_deadline_in(seconds));
    fth_parameter_snapshot *snapshot = NULL;
    int error = 0;
    pthread_mutex_lock(&snapshots->mutex);
    while (error == 0 && !snapshots->stopping && !(snapshots->newest && snapshots->newest->version >= least)) {
        snapshots->wanted = true;
        fth_intake_wake(snapshots->parts->intake);
        error = pthread_cond_clockwait(&snapshots->changed, &snapshots->mutex, CLOCK_MONOTONIC, &until);
    }
    if (snapshots->newest && snapshots->newest->version >= least) {
        snapshot = snapshots->newest;
        atomic_fetch_add(&snapshot->references, 1);
    }
    pthread_mutex_unlock(&snapshots->mutex);
    return snapshot;
}

void fth_parameter_snapshots_stop(fth_parameter_snapshots *snapshots)
{
    pthread_mutex_lock(&snapshots->mutex);
    snapshots->stopping = true;
    pthread_cond_broadcast(&snapshots->changed);
    pthread_mutex_unlock(&snapshots->mutex);
}

/* ---- beginning and end ---- */

void fth_parameter_snapshots_set_server(fth_parameter_snapshots *snapshots, fth_server *server)
{
    pthread_mutex_lock(&snapshots->mutex);
    snapshots->server = server;
    pthread_mutex_unlock(&snapshots->mutex);
}

fth_status fth_parameter_snapshots_create(const fth_server_parts *parts, fth_parameter_snapshots **snapshots)
{
    fth_status status = fth_allocate(1, sizeof **snapshots, snapshots);
    if (status != FTH_OK)
        return status;
    (*snapshots)->parts = parts;
    (*snapshots)->region = (fth_region){.fd = -1, .newest = -1, .version = -1};
    pthread_mutex_init(&(*snapshots)->mutex, NULL);
    pthread_cond_init(&(*snapshots)->changed, NULL);
    return FTH_OK;
}

void fth_parameter_snapshots_free(fth_parameter_snapshots *snapshots)
{
    if (!snapshots)
        return;
    fth_parameter_snapshot_release(snapshots->newest);
    fth_region_release(&snapshots->region);
    pthread_cond_destroy(&snapshots->changed);
    pthread_mutex_destroy(&snapshots->mutex);
    free(snapshots);
}
