/* Fetching ahead: order, runs of neighbours, limits, failures. The source is made of memory, and
 * held back where a test wants to see what waits. */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>

#include "data/source/fetch_pool.h"

enum { OBJECT_BYTES = 100000 };

typedef struct source {
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    bool held;          /* requests wait */
    int requests;       /* begun */
    uint64_t bytes;     /* asked for */
    size_t failing;     /* the object that cannot be read */
    size_t kept, known; /* pieces told to keep; the entry that need not be fetched */
} source;

static uint8_t byte_of(size_t object, uint64_t offset)
{
    return (uint8_t)(object * 31 + offset);
}

static fth_status get_run(void *context, size_t object, uint64_t offset, size_t size_bytes, uint8_t *into)
{
    source *from = context;
    pthread_mutex_lock(&from->mutex);
    from->requests++;
    from->bytes += size_bytes;
    pthread_cond_broadcast(&from->changed);
    while (from->held)
        pthread_cond_wait(&from->changed, &from->mutex);
    bool fails = object == from->failing;
    pthread_mutex_unlock(&from->mutex);
    for (size_t i = 0; i < size_bytes; i++)
        into[i] = byte_of(object, offset + i);
    return fails ? fth_fail(FTH_IO, "object %zu is out of reach", object) : FTH_OK;
}

static fth_status get(void *context, const fth_fetch *fetch, fth_pixel_buffer *buffer, size_t *size_bytes)
{
    *size_bytes = fetch->size_bytes;
    fth_status status = fth_pixel_buffer_reserve(buffer, fetch->size_bytes + 1);
    return status == FTH_OK ? get_run(context, fetch->object, fetch->offset, fetch->size_bytes, buffer->bytes) : status;
}

static bool find(void *context, const fth_fetch *fetch, fth_pixel_buffer *buffer, size_t *size_bytes)
{
    const source *from = context;
    if (fetch->entry != from->known || fth_pixel_buffer_reserve(buffer, 5) != FTH_OK)
        return false;
    memcpy(buffer->bytes, "known", 5);
    *size_bytes = 5;
    return true;
}

static void keep(void *context, const fth_fetch *fetch, const uint8_t *bytes, size_t size_bytes)
{
    source *from = context;
    assert_int_equal(size_bytes, fetch->size_bytes);
    assert_int_equal(bytes[0], byte_of(fetch->object, fetch->offset));
    pthread_mutex_lock(&from->mutex);
    from->kept++;
    pthread_mutex_unlock(&from->mutex);
}

static bool explain(void *context, bool *failing, char *text, size_t size)
{
    *failing = ((source *)context)->failing == 1;
    snprintf(text, size, "the store is asleep");
    return true;
}

static void begin_thread(void *context)
{
    (void)context;
}

static source from;
static fth_fetch_pool *pool;

static void open_pool(int threads, size_t pieces, uint64_t bytes, double forgotten_s)
{
    from = (source){.mutex = PTHREAD_MUTEX_INITIALIZER,
                    .changed = PTHREAD_COND_INITIALIZER,
                    .failing = SIZE_MAX,
                    .known = SIZE_MAX};
    const fth_fetch_source how = {.context = &from,
                                  .find = find,
                                  .get = get,
                                  .get_run = get_run,
                                  .keep = keep,
                                  .begin_thread = begin_thread,
                                  .explain = explain};
    const fth_fetch_limits limits = {.threads = threads,
                                     .pieces = pieces,
                                     .bytes = bytes,
                                     .run_bytes = 5000,
                                     .gap_bytes = 100,
                                     .forgotten_s = forgotten_s};
    assert_int_equal(fth_fetch_pool_create(&how, &limits, &pool), FTH_OK);
}

static void hold(bool held)
{
    pthread_mutex_lock(&from.mutex);
    from.held = held;
    pthread_cond_broadcast(&from.changed);
    pthread_mutex_unlock(&from.mutex);
}

static void wait_for_requests(int count)
{
    pthread_mutex_lock(&from.mutex);
    while (from.requests < count)
        pthread_cond_wait(&from.changed, &from.mutex);
    pthread_mutex_unlock(&from.mutex);
}

static int count_requests(void)
{
    pthread_mutex_lock(&from.mutex);
    int count = from.requests;
    pthread_mutex_unlock(&from.mutex);
    return count;
}

static void assert_piece(const fth_fetch *piece)
{
    fth_pixel_buffer buffer = {0};
    size_t size_bytes = 0;
    double seconds = -1;
    assert_int_equal(fth_fetch_pool_take(pool, piece, NULL, &buffer, &size_bytes, &seconds), FTH_OK);
    assert_int_equal(size_bytes, piece->size_bytes);
    assert_true(seconds >= 0);
    for (size_t i = 0; i < size_bytes; i++)
        assert_int_equal(buffer.bytes[i], byte_of(piece->object, piece->offset + i));
    free(buffer.bytes);
}

static void pieces_come_as_expected(void **state)
{
    (void)state;
    fth_fetch pieces[200];
    open_pool(8, 1000, 1 << 30, 60);
    for (size_t i = 0; i < 200; i++)
        pieces[i] = (fth_fetch){.entry = i * 1024, .object = i % 7, .offset = i * 37 % 5000, .size_bytes = 1 + i % 50};
    assert_int_equal(fth_fetch_pool_expect(pool, pieces, 200), 200);
    for (size_t i = 0; i < 200; i++)
        assert_piece(&pieces[199 - i]);
    assert_int_equal(from.kept, 200);
    assert_piece(&pieces[7]); /* was not expected again: fetched now */
    assert_int_equal(from.kept, 201);
    fth_fetch_pool_free(pool);
}

static void neighbours_come_together(void **state)
{
    (void)state;
    fth_fetch pieces[41];
    open_pool(1, 1000, 1 << 30, 60);
    hold(true);
    pieces[40] = (fth_fetch){.entry = 40, .object = 9, .offset = 7, .size_bytes = 1};
    assert_int_equal(fth_fetch_pool_expect(pool, &pieces[40], 1), 1);
    wait_for_requests(1);           /* the one thread is busy: what follows waits */
    for (size_t i = 0; i < 40; i++) /* 100 bytes and a gap of 100 after each: 25 of them in 5000 bytes */
        pieces[i] = (fth_fetch){.entry = i, .object = 1, .offset = 200 * i, .size_bytes = 100};
    pieces[35].object = 2;
    assert_int_equal(fth_fetch_pool_expect(pool, pieces, 40), 40);
    hold(false);
    for (size_t i = 0; i < 41; i++)
        assert_piece(&pieces[i]);
    /* 0 to 24, 25 to 34, 35, 36 to 39, and the one before. */
    assert_int_equal(count_requests(), 5);
    assert_int_equal(from.bytes, 24 * 200 + 100 + 9 * 200 + 100 + 100 + 3 * 200 + 100 + 1);
    fth_fetch_pool_free(pool);
}

static void there_is_a_limit(void **state)
{
    (void)state;
    fth_fetch pieces[10];
    open_pool(2, 6, 1000, 60);
    for (size_t i = 0; i < 10; i++)
        pieces[i] = (fth_fetch){.entry = i, .object = i, .size_bytes = 300};
    assert_int_equal(fth_fetch_pool_expect(pool, pieces, 10), 3); /* 900 of 1000 bytes */
    assert_piece(&pieces[0]);
    assert_int_equal(fth_fetch_pool_expect(pool, pieces + 1, 9), 3);
    for (size_t i = 1; i < 4; i++)
        assert_piece(&pieces[i]);
    for (size_t i = 0; i < 10; i++)
        pieces[i].size_bytes = 1;
    assert_int_equal(fth_fetch_pool_expect(pool, pieces, 10), 6);
    for (size_t i = 0; i < 6; i++)
        assert_piece(&pieces[i]);
    fth_fetch large = {.entry = 77, .object = 1, .size_bytes = 5000};
    assert_int_equal(fth_fetch_pool_expect(pool, &large, 1), 1); /* one always fits */
    assert_piece(&large);
    fth_fetch_pool_free(pool);
}

static void forgotten_pieces_make_room(void **state)
{
    (void)state;
    fth_fetch pieces[8];
    open_pool(2, 4, 1 << 20, 0);
    for (size_t i = 0; i < 8; i++)
        pieces[i] = (fth_fetch){.entry = i, .object = i, .size_bytes = 10};
    assert_int_equal(fth_fetch_pool_expect(pool, pieces, 4), 4);
    assert_piece(&pieces[3]);
    wait_for_requests(4);
    size_t noted = 0;
    while (noted < 4) /* those being fetched stay until they are there */
        noted += fth_fetch_pool_expect(pool, pieces + 4 + noted, 4 - noted);
    for (size_t i = 4; i < 8; i++) {
        fth_pixel_buffer buffer = {0};
        size_t size_bytes;
        double seconds;
        FTH_IGNORE(fth_fetch_pool_take(pool, &pieces[i], NULL, &buffer, &size_bytes, &seconds), "any of them may fail");
        free(buffer.bytes);
    }
    fth_fetch_pool_free(pool);
}

static void failures_are_those_of_their_piece(void **state)
{
    (void)state;
    fth_pixel_buffer buffer = {0};
    size_t size_bytes = 0;
    double seconds = 0;
    open_pool(2, 10, 1 << 20, 60);
    from.failing = 3;
    from.known = 2;
    const fth_fetch pieces[] = {{.entry = 1, .object = 1, .size_bytes = 10},
                                {.entry = 2, .object = 2, .size_bytes = 10},
                                {.entry = 3, .object = 3, .size_bytes = 10}};
    assert_int_equal(fth_fetch_pool_expect(pool, pieces, 3), 3);
    assert_int_equal(fth_fetch_pool_take(pool, &pieces[2], NULL, &buffer, &size_bytes, &seconds), FTH_IO);
    assert_message_has("object 3 is out of reach");
    assert_int_equal(fth_fetch_pool_take(pool, &pieces[1], NULL, &buffer, &size_bytes, &seconds), FTH_OK);
    assert_int_equal(size_bytes, 5);
    assert_memory_equal(buffer.bytes, "known", 5);
    assert_piece(&pieces[0]);
    assert_int_equal(from.kept, 1);
    free(buffer.bytes);
    fth_fetch_pool_free(pool);
}

static void waiting_can_be_given_up(void **state)
{
    (void)state;
    const fth_fetch piece = {.entry = 1, .object = 1, .size_bytes = 10};
    fth_pixel_buffer buffer = {0};
    size_t size_bytes = 0;
    double seconds = 0;
    atomic_bool stop = true;
    const fth_patience stopped = {.stop = &stop}, short_one = {.deadline = fth_deadline_in(0.01)},
                       if_failing = {.failing_s = 0.01, .deadline = fth_deadline_in(60)};
    open_pool(1, 10, 1 << 20, 60);
    hold(true);
    assert_int_equal(fth_fetch_pool_expect(pool, &piece, 1), 1);
    assert_int_equal(fth_fetch_pool_take(pool, &piece, &stopped, &buffer, &size_bytes, &seconds), FTH_INTERRUPTED);
    assert_int_equal(fth_fetch_pool_take(pool, &piece, &short_one, &buffer, &size_bytes, &seconds), FTH_TIMEOUT);
    assert_message_has("the store is asleep");
    from.failing = 1;
    assert_int_equal(fth_fetch_pool_take(pool, &piece, &if_failing, &buffer, &size_bytes, &seconds), FTH_TIMEOUT);
    from.failing = SIZE_MAX;
    hold(false);
    assert_piece(&piece); /* still to be had */
    assert_int_equal(count_requests(), 1);
    fth_fetch_pool_free(pool);
}

static void what_several_expect_is_fetched_once(void **state)
{
    (void)state;
    const fth_fetch piece = {.entry = 1, .object = 1, .size_bytes = 10, .needed_s = 7};
    open_pool(2, 10, 1 << 20, 60);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fth_fetch_pool_expect(pool, &piece, 1), 1);
    for (int i = 0; i < 3; i++)
        assert_piece(&piece);
    assert_int_equal(count_requests(), 1);
    assert_piece(&piece); /* nobody expected that */
    assert_int_equal(count_requests(), 2);
    fth_fetch_pool_free(pool);
}

static size_t order_of_gets[8], gets;

static fth_status get_in_order(void *context, const fth_fetch *fetch, fth_pixel_buffer *buffer, size_t *size_bytes)
{
    fth_status status = get(context, fetch, buffer, size_bytes);
    order_of_gets[gets++] = fetch->entry; /* one thread */
    return status;
}

static void what_is_needed_first_is_fetched_first(void **state)
{
    (void)state;
    static const double needed_s[] = {0, 5, 3, 4, 3, 9};
    const size_t wanted[] = {0, 5, 2, 4, 3, 1}; /* 5 became urgent */
    fth_fetch pieces[6];
    open_pool(1, 10, 1 << 20, 60);
    fth_fetch_pool_free(pool);
    const fth_fetch_source how = {
        .context = &from, .get = get_in_order, .get_run = get_run, .keep = keep, .begin_thread = begin_thread};
    const fth_fetch_limits limits = {.threads = 1, .pieces = 10, .bytes = 1 << 20, .forgotten_s = 60};
    assert_int_equal(fth_fetch_pool_create(&how, &limits, &pool), FTH_OK);
    gets = 0;
    hold(true);
    for (size_t i = 0; i < 6; i++) {
        pieces[i] = (fth_fetch){.entry = i, .object = i, .size_bytes = 10, .needed_s = needed_s[i]};
        assert_int_equal(fth_fetch_pool_expect(pool, &pieces[i], 1), 1);
        if (i == 0)
            wait_for_requests(1); /* the one thread is busy: what follows waits */
    }
    pieces[5].needed_s = 1;
    assert_int_equal(fth_fetch_pool_expect(pool, &pieces[5], 1), 1);
    hold(false);
    for (size_t i = 0; i < 6; i++)
        assert_piece(&pieces[i]);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(order_of_gets[i], wanted[i]);
    fth_fetch_pool_free(pool);
}

/* Many who expect and take at once, the same pieces too. */
static void *take_some(void *argument)
{
    size_t first = *(const size_t *)argument;
    fth_pixel_buffer buffer = {0};
    for (size_t i = first; i < first + 300; i++) {
        fth_fetch piece = {.entry = i, .object = i % 5, .offset = i * 50, .size_bytes = 50};
        size_t size_bytes = 0;
        double seconds = 0;
        fth_fetch_pool_expect(pool, &piece, 1);
        if (fth_fetch_pool_take(pool, &piece, NULL, &buffer, &size_bytes, &seconds) != FTH_OK ||
            buffer.bytes[49] != byte_of(i % 5, i * 50 + 49))
            return argument;
    }
    free(buffer.bytes);
    return NULL;
}

static void threads_share_a_pool(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    size_t firsts[THREADS] = {0, 0, 100, 200};
    open_pool(4, 50, 1 << 20, 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_some, &firsts[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    fth_fetch_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_come_as_expected),
        cmocka_unit_test(neighbours_come_together),
        cmocka_unit_test(there_is_a_limit),
        cmocka_unit_test(forgotten_pieces_make_room),
        cmocka_unit_test(failures_are_those_of_their_piece),
        cmocka_unit_test(waiting_can_be_given_up),
        cmocka_unit_test(what_several_expect_is_fetched_once),
        cmocka_unit_test(what_is_needed_first_is_fetched_first),
        cmocka_unit_test(threads_share_a_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
