/* See fetch_pool.h. A piece's states, guarded by the mutex:
 *
 *     waiting -> fetching -> ready -> taken: removed after the last reader that expects it
 *                                \--> removed when it is forgotten and room is needed
 *
 * The queue is ordered by need. A thread takes the first waiting piece, and the following ones
 * while they are also next in the object: images of a tar that are read in order are fetched by
 * large requests, others by one request each. */
#include "data/source/fetch_pool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"

enum { BUCKETS = 1024, MAX_RUN = 256 };
static const double LOOK_S = 0.1; /* interval of checks for a stop */

typedef enum piece_state { WAITING, FETCHING, READY } piece_state;

typedef struct piece {
    fth_fetch fetch;
    piece_state state;
    int expected; /* readers that expect it and have not taken it */
    int takers;   /* threads that wait for it or copy it */
    fth_status status;
    char *message; /* of a failure, or NULL */
    fth_pixel_buffer buffer;
    size_t size_bytes;
    double seconds, ready_at_s;
    struct piece *next_in_bucket, *next, *previous; /* the last two: in the queue */
} piece;

struct fth_fetch_pool {
    fth_fetch_source source;
    fth_fetch_limits limits;
    pthread_t *threads;
    int thread_count;

    pthread_mutex_t mutex; /* guards what follows, and the pieces */
    pthread_cond_t may_fetch, may_take;
    bool stop;
    piece *buckets[BUCKETS];
    piece *first, *last;
    piece *next_waiting; /* NULL: none */
    size_t pieces;
    uint64_t bytes;
};

/* ---- the table and the queue; with the mutex held ---- */

static piece **find_link(fth_fetch_pool *pool, size_t entry)
{
    piece **link = &pool->buckets[entry % BUCKETS];
    while (*link && (*link)->fetch.entry != entry)
        link = &(*link)->next_in_bucket;
    return link;
}

static void free_piece(piece *freed)
{
    free(freed->buffer.bytes);
    free(freed->message);
    free(freed);
}

static void leave_queue(fth_fetch_pool *pool, piece *out)
{
    *(out->previous ? &out->previous->next : &pool->first) = out->next;
    *(out->next ? &out->next->previous : &pool->last) = out->previous;
}

/* Queues a waiting piece after those that are needed as early. */
static void enter_queue(fth_fetch_pool *pool, piece *added)
{
    piece *before = pool->last;
    while (before && before->fetch.needed_s > added->fetch.needed_s)
        before = before->previous;
    added->previous = before;
    added->next = before ? before->next : pool->first;
    *(added->previous ? &added->previous->next : &pool->first) = added;
    *(added->next ? &added->next->previous : &pool->last) = added;
    if (!pool->next_waiting || added->fetch.needed_s < pool->next_waiting->fetch.needed_s)
        pool->next_waiting = added;
}

/* Removes a piece that is not waiting. The caller owns it. */
static void take_out(fth_fetch_pool *pool, piece *out)
{
    *find_link(pool, out->fetch.entry) = out->next_in_bucket;
    leave_queue(pool, out);
    pool->pieces--;
    pool->bytes -= out->fetch.size_bytes;
}

static void drop_forgotten(fth_fetch_pool *pool)
{
    double now_s = fth_clock_seconds();
    for (piece *at = pool->first, *next; at; at = next) {
        next = at->next;
        if (at->state != READY || at->takers > 0 || now_s - at->ready_at_s < pool->limits.forgotten_s)
            continue;
        take_out(pool, at);
        free_piece(at);
    }
}

static bool has_room(const fth_fetch_pool *pool, size_t size_bytes)
{
    return pool->pieces == 0 || (pool->pieces < pool->limits.pieces && pool->bytes + size_bytes <= pool->limits.bytes);
}

static piece *add_piece(fth_fetch_pool *pool, const fth_fetch *fetch)
{
    piece *added = calloc(1, sizeof *added);
    if (!added)
        return NULL;
    added->fetch = *fetch;
    enter_queue(pool, added);
    *find_link(pool, fetch->entry) = added;
    pool->pieces++;
    pool->bytes += fetch->size_bytes;
    return added;
}

static piece *first_waiting_from(piece *at)
{
    while (at && at->state != WAITING)
        at = at->next;
    return at;
}

/* Moves a piece forward that is needed earlier than expected. */
static void hurry(fth_fetch_pool *pool, piece *known, double needed_s)
{
    if (known->state != WAITING || needed_s >= known->fetch.needed_s)
        return;
    piece *next = known->next;
    leave_queue(pool, known);
    if (pool->next_waiting == known)
        pool->next_waiting = first_waiting_from(next);
    known->fetch.needed_s = needed_s;
    enter_queue(pool, known);
}

size_t fth_fetch_pool_expect(fth_fetch_pool *pool, const fth_fetch *pieces, size_t count)
{
    size_t done = 0;
    bool added = false;
    pthread_mutex_lock(&pool->mutex);
    for (; done < count; done++) {
        piece *known = *find_link(pool, pieces[done].entry);
        if (known) {
            hurry(pool, known, pieces[done].needed_s);
        } else {
            if (!has_room(pool, pieces[done].size_bytes))
                drop_forgotten(pool);
            if (!has_room(pool, pieces[done].size_bytes) || !(known = add_piece(pool, &pieces[done])))
                break;
            added = true;
        }
        if (pieces[done].needed_s > 0 || known->expected == 0)
            known->expected++;
    }
    if (added)
        pthread_cond_broadcast(&pool->may_fetch);
    pthread_mutex_unlock(&pool->mutex);
    return done;
}

/* ---- taking ---- */

static fth_status fail_waiting(const fth_fetch_pool *pool, double waited_s, bool *failing)
{
    char why[768];
    *failing = false;
    if (pool->source.explain && pool->source.explain(pool->source.context, failing, why, sizeof why))
        return fth_fail(FTH_TIMEOUT, "%s", why);
    return fth_fail(FTH_TIMEOUT, "it did not come in %.1f s", waited_s);
}

/* Waits until a piece is ready. With the mutex held. */
static fth_status wait_for(fth_fetch_pool *pool, const piece *wanted, const fth_patience *patience)
{
    static const fth_patience endless = {0};
    const fth_patience *how = patience ? patience : &endless;
    const double begun_s = fth_clock_seconds();
    while (wanted->state != READY) { /* ends: its request has a deadline */
        double waited_s = fth_clock_seconds() - begun_s;
        bool late = how->deadline.at_seconds > 0 && fth_deadline_passed(how->deadline), failing = false;
        if (how->stop && atomic_load(how->stop))
            return fth_fail(FTH_INTERRUPTED, "stopped while an image was fetched");
        if (late || (how->failing_s > 0 && waited_s >= how->failing_s)) {
            fth_status status = fail_waiting(pool, waited_s, &failing);
            if (late || failing)
                return status;
        }
        double wait_s = LOOK_S;
        if (how->deadline.at_seconds > 0 && fth_deadline_left_seconds(how->deadline) < wait_s)
            wait_s = fth_deadline_left_seconds(how->deadline);
        struct timespec until = fth_deadline_timespec(fth_deadline_in(wait_s));
        pthread_cond_clockwait(&pool->may_take, &pool->mutex, CLOCK_MONOTONIC, &until);
    }
    return FTH_OK;
}

/* The bytes of a ready piece: moved to its last reader, copied for others. */
static fth_status lend_bytes(piece *found, bool last, fth_pixel_buffer *buffer, size_t *size_bytes)
{
    if (found->status != FTH_OK)
        return fth_fail(found->status, "%s", found->message ? found->message : "no memory for a message");
    *size_bytes = found->size_bytes;
    if (last) {
        fth_pixel_buffer mine = *buffer;
        *buffer = found->buffer;
        found->buffer = mine;
        return FTH_OK;
    }
    fth_status status = fth_pixel_buffer_reserve(buffer, found->size_bytes + 1);
    if (status == FTH_OK)
        memcpy(buffer->bytes, found->buffer.bytes, found->size_bytes);
    return status;
}

/* The piece, added first if it was not expected. With the mutex held. */
static piece *find_or_add(fth_fetch_pool *pool, const fth_fetch *fetch)
{
    piece *found = *find_link(pool, fetch->entry);
    if (found)
        return found;
    fth_fetch now = *fetch;
    now.needed_s = 0;
    if ((found = add_piece(pool, &now)))
        pthread_cond_broadcast(&pool->may_fetch);
    return found;
}

fth_status fth_fetch_pool_take(fth_fetch_pool *pool, const fth_fetch *fetch, const fth_patience *patience,
                               fth_pixel_buffer *buffer, size_t *size_bytes, double *seconds)
{
    pthread_mutex_lock(&pool->mutex);
    piece *found = find_or_add(pool, fetch);
    if (!found) {
        pthread_mutex_unlock(&pool->mutex);
        return fth_fail(FTH_NO_MEMORY, "no memory to fetch an image");
    }
    found->takers++;
    fth_status status = wait_for(pool, found, patience);
    bool there = status == FTH_OK, last = there && found->takers == 1 && found->expected <= 1;
    if (last) {
        take_out(pool, found);
    } else if (there) { /* copied while it stays for others */
        found->expected -= found->expected > 0;
        pthread_mutex_unlock(&pool->mutex);
        *seconds = found->seconds;
        status = lend_bytes(found, false, buffer, size_bytes);
        pthread_mutex_lock(&pool->mutex);
    }
    if (!last) {
        found->takers--;
        last = there && found->takers == 0 && found->expected == 0; /* the others are gone meanwhile */
        if (last)
            take_out(pool, found);
        pthread_mutex_unlock(&pool->mutex);
        if (last)
            free_piece(found);
        return status;
    }
    pthread_mutex_unlock(&pool->mutex);
    *seconds = found->seconds;
    status = lend_bytes(found, true, buffer, size_bytes);
    free_piece(found);
    return status;
}

/* ---- fetching ---- */

/* Pieces that are fetched together. All are FETCHING, so no other thread changes them. */
typedef struct run {
    piece *pieces[MAX_RUN];
    size_t count;
    uint64_t begin, end;
} run;

/* True if `next` follows the run in the same object, close and small enough to be fetched with
 * it. */
static bool goes_on(const fth_fetch_pool *pool, const run *together, const piece *next)
{
    const fth_fetch *fetch = &next->fetch;
    uint64_t end = fetch->offset + fetch->size_bytes;
    return together->count < MAX_RUN && next->state == WAITING && fetch->object == together->pieces[0]->fetch.object &&
           fetch->size_bytes > 0 && together->end > together->begin && fetch->offset >= together->end &&
           fetch->offset - together->end <= pool->limits.gap_bytes && end - together->begin <= pool->limits.run_bytes;
}

/* With the mutex held. */
static void begin_run(fth_fetch_pool *pool, run *together)
{
    piece *at = pool->next_waiting;
    *together = (run){.pieces = {at}, .count = 1, .begin = at->fetch.offset};
    together->end = at->fetch.offset + at->fetch.size_bytes;
    at->state = FETCHING;
    for (at = at->next; at && goes_on(pool, together, at); at = at->next) {
        at->state = FETCHING;
        together->pieces[together->count++] = at;
        together->end = at->fetch.offset + at->fetch.size_bytes;
    }
    pool->next_waiting = first_waiting_from(at);
}

static void end_piece(fth_fetch_pool *pool, piece *ended, fth_status status)
{
    if (status == FTH_OK) {
        pool->source.keep(pool->source.context, &ended->fetch, ended->buffer.bytes, ended->size_bytes);
        return;
    }
    ended->status = status;
    ended->message = strdup(fth_error_message());
}

/* One request for pieces [begin, end) of a run. */
static void get_pieces(fth_fetch_pool *pool, run *together, size_t begin, size_t end)
{
    const fth_fetch_source *source = &pool->source;
    const fth_fetch *first = &together->pieces[begin]->fetch, *last = &together->pieces[end - 1]->fetch;
    size_t size_bytes = (size_t)(last->offset + last->size_bytes - first->offset);
    uint8_t *all = NULL;
    if (end - begin == 1) {
        piece *only = together->pieces[begin];
        end_piece(pool, only, source->get(source->context, first, &only->buffer, &only->size_bytes));
        return;
    }
    fth_status status = fth_allocate(size_bytes, 1, &all);
    if (status == FTH_OK)
        status = source->get_run(source->context, first->object, first->offset, size_bytes, all);
    for (size_t i = begin; i < end; i++) {
        piece *at = together->pieces[i];
        fth_status own = status;
        at->size_bytes = at->fetch.size_bytes;
        if (own == FTH_OK)
            own = fth_pixel_buffer_reserve(&at->buffer, at->size_bytes + 1);
        if (own == FTH_OK)
            memcpy(at->buffer.bytes, all + (at->fetch.offset - first->offset), at->size_bytes);
        end_piece(pool, at, own);
    }
    free(all);
}

static void fetch_run(fth_fetch_pool *pool, run *together)
{
    double begin_s = fth_clock_seconds();
    bool found[MAX_RUN] = {false};
    for (size_t i = 0; i < together->count; i++) {
        piece *at = together->pieces[i];
        found[i] =
            pool->source.find && pool->source.find(pool->source.context, &at->fetch, &at->buffer, &at->size_bytes);
    }
    for (size_t begin = 0, end; begin < together->count; begin = end) {
        for (end = begin + 1; end < together->count && found[end] == found[begin]; end++)
            ;
        if (!found[begin])
            get_pieces(pool, together, begin, end);
    }
    double seconds = (fth_clock_seconds() - begin_s) / (double)together->count;
    for (size_t i = 0; i < together->count; i++)
        together->pieces[i]->seconds = seconds;
}

static void *work(void *argument)
{
    fth_fetch_pool *pool = argument;
    run together;
    pool->source.begin_thread(pool->source.context);
    pthread_mutex_lock(&pool->mutex);
    for (;;) {
        while (!pool->stop && !pool->next_waiting)
            pthread_cond_wait(&pool->may_fetch, &pool->mutex); /* ended by expect() or free() */
        if (pool->stop)
            break;
        begin_run(pool, &together);
        pthread_mutex_unlock(&pool->mutex);
        fetch_run(pool, &together);
        pthread_mutex_lock(&pool->mutex);
        for (size_t i = 0; i < together.count; i++) {
            together.pieces[i]->state = READY;
            together.pieces[i]->ready_at_s = fth_clock_seconds();
        }
        pthread_cond_broadcast(&pool->may_take);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

/* ---- opening and closing ---- */

fth_status fth_fetch_pool_create(const fth_fetch_source *source, const fth_fetch_limits *limits,
                                 fth_fetch_pool **result)
{
    fth_status status = FTH_OK;
    fth_fetch_pool *pool = NULL;
    int failure = 0;

    FTH_TRY(fth_allocate(1, sizeof *pool, &pool));
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->may_fetch, NULL);
    pthread_cond_init(&pool->may_take, NULL);
    pool->source = *source;
    pool->limits = *limits;
    FTH_TRY(fth_allocate((size_t)limits->threads, sizeof *pool->threads, &pool->threads));
    while (failure == 0 && pool->thread_count < limits->threads) {
        failure = fth_thread_start(&pool->threads[pool->thread_count], "fetch", work, pool);
        pool->thread_count += failure == 0;
    }
    FTH_REQUIRE(pool->thread_count > 0, FTH_NO_MEMORY, "cannot start a thread that fetches data");
    *result = pool;
    pool = NULL;

out:
    fth_fetch_pool_free(pool);
    return status;
}

void fth_fetch_pool_free(fth_fetch_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->mutex);
    pool->stop = true;
    pthread_cond_broadcast(&pool->may_fetch);
    pthread_mutex_unlock(&pool->mutex);
    for (int i = 0; i < pool->thread_count; i++)
        pthread_join(pool->threads[i], NULL);
    for (piece *at = pool->first, *next; at; at = next) {
        next = at->next;
        free_piece(at);
    }
    pthread_cond_destroy(&pool->may_fetch);
    pthread_cond_destroy(&pool->may_take);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->threads);
    free(pool);
}
