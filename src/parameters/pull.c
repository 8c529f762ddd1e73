/* Copies for readers: immutable, one for each version that is asked for, made by the applying thread between updates.
 *
 * A copy is a file in memory that holds the whole answer, so that the kernel sends it without copying (sendfile). Its
 * pages may be in sockets' queues after everybody here has closed it; therefore it is never written again, and memory
 * is bounded by how many versions are alive at once. When that many are in use and a newer one is asked for, those who
 * read slowly are cut off, the slowest at once and faster ones the longer it lasts; until there is room, readers of an
 * `async` server get the newest of those there are, and others, whom an old one would not help, wait. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "parameters/parameters_internal.h"

/* What a reader must receive, after a moment, while others wait for room; twice as much with each DOUBLED_S they do. */
static const double GRACE_S = 2, LEAST_BYTES_PER_S = 1 << 20, DOUBLED_S = 5;

static fth_status create_copy(const fth_layout *layout, const fth_train_options *train, const char *input, int classes,
                              const fth_vectors *vectors, int64_t version, atomic_int *alive, fth_copy **result)
{
    fth_status status = FTH_OK;
    fth_copy *copy = NULL;
    struct iovec *parts = NULL;
    char *header = NULL, version_text[24], classes_text[16];
    size_t header_bytes = 0;

    *result = NULL;
    snprintf(version_text, sizeof version_text, "%" PRId64, version);
    snprintf(classes_text, sizeof classes_text, "%d", classes);
    fth_metadata_entry metadata[] = {
        {"version", version_text}, {"model", train->model}, {"input", input}, {"classes", classes_text}};
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
        float *vector = i < layout->parameters ? vectors->parameters : vectors->buffers;
        parts[i + 1] = (struct iovec){vector + tensor->vector_offset, (size_t)tensor->count * sizeof(float)};
        copy->size_bytes += parts[i + 1].iov_len;
    }
    copy->fd = memfd_create("parameters", MFD_CLOEXEC);
    FTH_REQUIRE(copy->fd >= 0 && fth_write_parts(copy->fd, parts, layout->count + 1), FTH_NO_MEMORY,
                "no memory for a copy of the parameters: %s", strerror(errno));
    copy->alive = alive;
    atomic_fetch_add(alive, 1);
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

void fth_copy_unref(fth_copy *copy)
{
    if (!copy || atomic_fetch_sub(&copy->references, 1) > 1)
        return;
    close(copy->fd);
    atomic_fetch_sub(copy->alive, 1);
    free(copy);
}

static void release_copy(void *copy)
{
    fth_copy_unref(copy);
}

/* ---- answering ---- */

static void answer(fth_parameters *server, const fth_pull *pull, fth_copy *copy)
{
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
        fth_parameters_refuse(server, exchange, FTH_REFUSAL_VERSION, "the version is %" PRId64 " now", copy->version);
        fth_copy_unref(copy);
        return;
    }
    if (pull->numbers) {
        if (pull->offset > server->layout->packed_floats ||
            pull->count > server->layout->packed_floats - pull->offset) {
            fth_parameters_refuse(server, exchange, FTH_REFUSAL_RANGE,
                                  "offset and count reach beyond the %" PRIu64 " numbers there are",
                                  server->layout->packed_floats);
            fth_copy_unref(copy);
            return;
        }
        first = copy->header_bytes + pull->offset * sizeof(float);
        size = pull->count * sizeof(float);
    } else if (pull->has_range && (pull->if_range == -1 || pull->if_range == copy->version)) {
        if (!fth_range_resolve(&pull->range, copy->size_bytes, &first, &size)) {
            snprintf(text, sizeof text, "bytes */%" PRIu64, copy->size_bytes);
            fth_exchange_set_header(exchange, "Content-Range", text);
            fth_parameters_refuse(server, exchange, FTH_REFUSAL_RANGE, "the file has %" PRIu64 " bytes",
                                  copy->size_bytes);
            fth_copy_unref(copy);
            return;
        }
        code = 206;
        snprintf(text, sizeof text, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, first, first + size - 1,
                 copy->size_bytes);
        fth_exchange_set_header(exchange, "Content-Range", text);
    }
    atomic_fetch_add(&server->metrics.sent_bytes, size);
    fth_exchange_set_data(exchange, copy, release_copy); /* alive until the client has it, or has gone */
    fth_exchange_answer_file(exchange, code, "application/octet-stream", copy->fd, first, size);
}

/* ---- workers of this machine ---- */

typedef struct local_answer {
    int slot;
    int64_t version;
} local_answer;

static void answer_local(fth_parameters *server, const fth_pull *pull, const local_answer *where)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getpid(), server->region.fd);
    uint64_t size = server->layout->packed_floats * sizeof(float);
    atomic_fetch_add(&server->metrics.sent_bytes, size);
    fth_exchange_answer_json(
        pull->exchange, 200,
        json_pack("{s:i, s:I, s:s, s:I, s:I, s:I}", "code", 200, "version", (json_int_t)where->version, "path", path,
                  "stamp", (json_int_t)fth_region_stamp(where->slot), "offset",
                  (json_int_t)fth_region_offset(&server->region, where->slot), "size_bytes", (json_int_t)size));
}

/* Puts the version there is now where they can read it. */
static void fill_region(fth_parameters *server)
{
    fth_region *region = &server->region;
    const fth_layout *layout = server->layout;
    int slot = 0;
    if (region->fd < 0 && fth_region_create(layout->packed_floats * sizeof(float), region) != FTH_OK) {
        fth_log_warning("%s", fth_error_message());
        return;
    }
    float *to = fth_region_begin(region, &slot);
#pragma omp parallel for schedule(dynamic, 1) if (layout->packed_floats > 1 << 18)
    for (int i = 0; i < layout->count; i++) {
        const fth_layout_tensor *tensor = &layout->tensors[i];
        const float *vector = i < layout->parameters ? server->vectors.parameters : server->vectors.buffers;
        memcpy(to + tensor->packed_offset, vector + tensor->vector_offset, (size_t)tensor->count * sizeof(float));
    }
    pthread_mutex_lock(&server->mutex);
    fth_region_finish(region, slot, atomic_load(&server->version));
    pthread_mutex_unlock(&server->mutex);
}

/* What can be given: a copy, or a place in the region. */
typedef struct gift {
    fth_copy *copy;
    local_answer local;
} gift;

/* True if one more version can be held for readers: the newest one goes first, where nobody reads it. References are
 * only taken with the mutex held. */
static bool copy_has_room(fth_parameters *server)
{
    int replaced = server->copy && atomic_load(&server->copy->references) == 1;
    return atomic_load(&server->copies_alive) - replaced < server->options.max_snapshots;
}

/* True if what there is does for the reader, and then *given is it. */
static bool satisfied(fth_parameters *server, const fth_pull *pull, gift *given)
{
    int64_t version = atomic_load(&server->version);
    if (pull->local) {
        if (server->region.version != version || version <= pull->since)
            return false;
        given->local = (local_answer){server->region.newest, version};
        fth_workers_note_pull(server->workers, pull->worker, version);
        return true;
    }
    fth_copy *copy = server->copy;
    if (!copy || copy->version <= pull->since)
        return false;
    if (copy->version != version) {
        if (copy_has_room(server) || server->options.consistency.kind != FTH_CONSISTENCY_ASYNC)
            return false;
        server->copy_wanted = true; /* so that room is made for the newest */
    }
    atomic_fetch_add(&copy->references, 1);
    given->copy = copy;
    fth_workers_note_pull(server->workers, pull->worker, copy->version);
    return true;
}

static void give(fth_parameters *server, const fth_pull *pull, const gift *given)
{
    if (pull->local)
        answer_local(server, pull, &given->local);
    else
        answer(server, pull, given->copy);
}

bool fth_pull_try(fth_parameters *server, fth_pull *pull)
{
    gift given = {0};
    if (!satisfied(server, pull, &given))
        return false;
    pthread_mutex_unlock(&server->mutex);
    give(server, pull, &given);
    pthread_mutex_lock(&server->mutex);
    return true;
}

/* True if somebody asks for a version that there is, and no copy of it. */
static bool copy_is_wanted(fth_parameters *server)
{
    int64_t version = atomic_load(&server->version);
    if (server->copy && server->copy->version == version)
        return false;
    if (server->copy_wanted)
        return true;
    for (const fth_pull *pull = server->pulls; pull; pull = pull->next)
        if (!pull->local && pull->since < version)
            return true;
    return false;
}

static bool region_is_due(fth_parameters *server)
{
    int64_t version = atomic_load(&server->version);
    for (const fth_pull *pull = server->pulls; pull; pull = pull->next)
        if (pull->local && pull->since < version)
            return server->region.version != version;
    return false;
}

/* Slow readers make room; with the mutex held. */
static void hurry_readers(fth_parameters *server)
{
    double now = fth_clock_seconds();
    if (server->short_since_s == 0)
        server->short_since_s = now;
    double least = LEAST_BYTES_PER_S * exp2((now - server->short_since_s) / DOUBLED_S);
    int count = server->http ? fth_server_end_slow_readers(server->http, GRACE_S, least) : 0;
    if (count > 0)
        fth_log_info("cut off %s of older versions at less than %.3g MB/s: others wait (--max-snapshots %d)",
                     FTH_COUNTED(count, "reader"), least / 1e6, server->options.max_snapshots);
}

/* Takes those out of the list that can be answered, or whose time is over, and answers them. */
static void answer_all(fth_parameters *server, bool end)
{
    fth_pull **link = &server->pulls;
    double now = fth_clock_seconds();
    while (*link) {
        fth_pull *pull = *link;
        gift given = {0};
        bool ready = !end && satisfied(server, pull, &given), over = end || now >= pull->until_s;
        if (!ready && !over) {
            link = &pull->next;
            continue;
        }
        *link = pull->next;
        int64_t version = atomic_load(&server->version);
        bool newer = pull->since < version;
        pthread_mutex_unlock(&server->mutex);
        if (ready) {
            give(server, pull, &given);
        } else if (end || newer) {
            fth_exchange_set_header(pull->exchange, "Retry-After", "1");
            fth_parameters_refuse(server, pull->exchange, FTH_REFUSAL_BUSY,
                                  end ? "the server is stopping" : "too many slow readers hold older versions");
        } else {
            char tag[32]; /* below `since` where a server has lost what came after a checkpoint */
            snprintf(tag, sizeof tag, "\"%" PRId64 "\"", version);
            fth_exchange_set_header(pull->exchange, "ETag", tag);
            fth_exchange_answer(pull->exchange, 304, NULL, NULL, 0);
        }
        free(pull);
        pthread_mutex_lock(&server->mutex);
        link = &server->pulls; /* the list may have changed meanwhile */
    }
}

void fth_pulls_serve(fth_parameters *server)
{
    pthread_mutex_lock(&server->mutex);
    if (region_is_due(server)) {
        pthread_mutex_unlock(&server->mutex);
        fill_region(server);
        pthread_mutex_lock(&server->mutex);
    }
    bool wanted = copy_is_wanted(server), has_room = copy_has_room(server);
    if (wanted && !has_room)
        hurry_readers(server);
    if (!wanted || has_room)
        server->short_since_s = 0;
    if (wanted && has_room) {
        fth_copy *copy = NULL;
        server->copy_wanted = false;
        /* The old one goes first, unless somebody reads it: so there is room for the new one. */
        fth_copy_unref(server->copy);
        server->copy = NULL;
        pthread_mutex_unlock(&server->mutex);
        fth_status status = create_copy(server->layout, server->train, server->input, server->classes, &server->vectors,
                                        atomic_load(&server->version), &server->copies_alive, &copy);
        if (status != FTH_OK)
            fth_log_warning("%s", fth_error_message());
        pthread_mutex_lock(&server->mutex);
        server->copy = copy;
        pthread_cond_broadcast(&server->changed);
    }
    answer_all(server, false);
    pthread_mutex_unlock(&server->mutex);
}

void fth_pulls_end(fth_parameters *server)
{
    pthread_mutex_lock(&server->mutex);
    answer_all(server, true);
    pthread_mutex_unlock(&server->mutex);
}

fth_copy *fth_parameters_get_copy(fth_parameters *server, int64_t least, double seconds)
{
    struct timespec until = fth_deadline_timespec(fth_deadline_in(seconds));
    fth_copy *copy = NULL;
    int error = 0;
    pthread_mutex_lock(&server->mutex);
    while (error == 0 && !server->stopping && !(server->copy && server->copy->version >= least)) {
        server->copy_wanted = true;
        pthread_cond_signal(&server->work);
        error = pthread_cond_clockwait(&server->changed, &server->mutex, CLOCK_MONOTONIC, &until);
    }
    if (server->copy && server->copy->version >= least) {
        copy = server->copy;
        atomic_fetch_add(&copy->references, 1);
    }
    pthread_mutex_unlock(&server->mutex);
    return copy;
}
