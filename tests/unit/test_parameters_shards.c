/* Shards dealt out to workers (parameters/shards.h): random courses of events against a simple
 * model in which each sample of each epoch must be counted exactly once; and the rules one by
 * one. */
#include "support.h"

#include "parameters/shards.h"

static fth_shards *make_shards(uint64_t seed)
{
    fth_shards *shards = NULL;
    assert_int_equal(fth_shards_create(seed, &shards), FTH_OK);
    return shards;
}

static fth_shard_state shard_of(const char *name, int64_t samples, int64_t epochs, bool listed)
{
    fth_shard_state shard = {.samples = samples, .epochs = epochs, .listed = listed};
    snprintf(shard.name, sizeof shard.name, "%s", name);
    return shard;
}

static void add(fth_shards *shards, const char *name, int64_t samples, int64_t epochs, bool listed)
{
    fth_shard_state shard = shard_of(name, samples, epochs, listed);
    assert_int_equal(fth_shards_add(shards, &shard), FTH_OK);
}

static fth_shard_span span_of(const char *name, int64_t epoch, int64_t from, int64_t to)
{
    fth_shard_span span = {.epoch = epoch, .from = from, .to = to};
    snprintf(span.name, sizeof span.name, "%s", name);
    return span;
}

static void push(fth_shards *shards, const char *worker, fth_shard_span span)
{
    assert_int_equal(fth_shards_fit(shards, worker, &span), FTH_OK);
    assert_int_equal(fth_shards_move(shards, worker, &span), FTH_OK);
}

static void assert_refused(const fth_shards *shards, const char *worker, fth_shard_span span, const char *why)
{
    assert_int_equal(fth_shards_fit(shards, worker, &span), FTH_INVALID);
    assert_message_has(why);
}

static void assert_taken(fth_shards *shards, const char *worker, const char *asked, const char *name, int64_t epoch,
                         int64_t position)
{
    fth_shard_state taken;
    assert_int_equal(fth_shards_take(shards, worker, asked, &taken), FTH_SHARD_TAKEN);
    assert_string_equal(taken.name, name);
    assert_string_equal(taken.holder, worker);
    assert_int_equal(taken.epoch, epoch);
    assert_int_equal(taken.position, position);
}

static void assert_answer(fth_shards *shards, const char *worker, const char *asked, fth_shard_answer answer)
{
    fth_shard_state taken;
    assert_int_equal(fth_shards_take(shards, worker, asked, &taken), answer);
}

/* ---- the rules ---- */

static void test_a_shard_is_held_by_one(void **state)
{
    (void)state;
    fth_shards *shards = make_shards(1);
    add(shards, "a", 10, 1, true);
    assert_taken(shards, "w1", NULL, "a", 0, 0);
    assert_taken(shards, "w1", NULL, "a", 0, 0); /* its answer was lost */
    assert_answer(shards, "w2", NULL, FTH_SHARD_WAIT);
    push(shards, "w1", span_of("a", 0, 0, 4));
    assert_refused(shards, "w2", span_of("a", 0, 4, 8), "with another worker");
    assert_true(fth_shards_release(shards, "w1"));
    assert_false(fth_shards_release(shards, "w1"));
    assert_taken(shards, "w2", NULL, "a", 0, 4);
    assert_refused(shards, "w1", span_of("a", 0, 4, 8), "with another worker");
    push(shards, "w2", span_of("a", 0, 4, 10));
    assert_answer(shards, "w1", NULL, FTH_SHARD_DONE);
    assert_int_equal(fth_shards_count(shards).held, 0);
    fth_shards_free(shards);
}

static void test_only_what_comes_next_counts(void **state)
{
    (void)state;
    fth_shards *shards = make_shards(1);
    add(shards, "a", 10, 2, true);
    assert_taken(shards, "w", NULL, "a", 0, 0);
    push(shards, "w", span_of("a", 0, 0, 4));
    assert_refused(shards, "w", span_of("a", 0, 0, 4), "what comes next is 4 of epoch 0");
    assert_refused(shards, "w", span_of("a", 0, 5, 8), "what comes next is 4");
    assert_refused(shards, "w", span_of("a", 1, 4, 8), "epoch 1");
    assert_refused(shards, "w", span_of("a", 0, 4, 11), "which has 10");
    assert_refused(shards, "w", span_of("a", 0, 4, 4), "are not in shard a");
    assert_refused(shards, "w", span_of("b", 0, 0, 4), "shard b is not known");
    push(shards, "w", span_of("a", 0, 4, 10));
    assert_taken(shards, "w", NULL, "a", 1, 0);
    push(shards, "w", span_of("a", 1, 0, 10));
    assert_refused(shards, "w", span_of("a", 2, 0, 4), "all epochs are done");
    fth_shard_span again = span_of("a", 1, 0, 10);
    assert_int_equal(fth_shards_move(shards, "w", &again), FTH_CORRUPT);
    fth_shards_free(shards);
}

static void test_a_push_takes_a_free_shard(void **state)
{
    (void)state;
    fth_shards *shards = make_shards(1);
    add(shards, "a", 10, 1, true);
    add(shards, "b", 10, 1, true);
    push(shards, "w1", span_of("a", 0, 0, 4)); /* as after a restart, when nobody holds anything */
    assert_answer(shards, "w2", "a", FTH_SHARD_WAIT);
    assert_refused(shards, "w1", span_of("b", 0, 0, 4), "w1 has taken another shard");
    assert_taken(shards, "w1", NULL, "a", 0, 4);
    fth_shards_free(shards);
}

static void test_order_of_dealing(void **state)
{
    (void)state;
    fth_shards *shards = make_shards(1);
    add(shards, "a", 10, 3, true);
    add(shards, "b", 10, 3, true);
    assert_taken(shards, "w1", NULL, "a", 0, 0);
    push(shards, "w1", span_of("a", 0, 0, 10));
    assert_taken(shards, "w1", NULL, "b", 0, 0); /* the one behind */
    push(shards, "w1", span_of("b", 0, 0, 5));
    assert_taken(shards, "w2", NULL, "a", 1, 0);
    push(shards, "w2", span_of("a", 1, 0, 10));
    assert_answer(shards, "w2", NULL, FTH_SHARD_WAIT); /* a would be two epochs ahead of b */
    push(shards, "w1", span_of("b", 0, 5, 10));
    assert_taken(shards, "w2", NULL, "b", 1, 0);
    assert_taken(shards, "w1", NULL, "a", 2, 0);
    fth_shards_free(shards);
}

static void test_a_worker_gets_what_it_had(void **state)
{
    (void)state;
    fth_shards *shards = make_shards(1);
    add(shards, "a", 10, 3, true);
    add(shards, "b", 10, 3, true);
    assert_taken(shards, "w1", NULL, "a", 0, 0);
    assert_taken(shards, "w2", NULL, "b", 0, 0);
    push(shards, "w1", span_of("a", 0, 0, 10));
    push(shards, "w2", span_of("b", 0, 0, 10));
    assert_taken(shards, "w2", NULL, "b", 1, 0);
    assert_taken(shards, "w1", NULL, "a", 1, 0);
    fth_shards_free(shards);
}

static void test_brought_shards(void **state)
{
    (void)state;
    fth_shards *shards = make_shards(1);
    fth_shard_state other = shard_of("run/a", 11, 2, false), again = shard_of("run/a", 10, 3, false);
    bool known = false;
    add(shards, "a", 10, 1, true);
    add(shards, "run/a", 10, 2, false);
    add(shards, "run/a", 10, 2, false);
    assert_int_equal(fth_shards_check(shards, &other, &known), FTH_INVALID);
    assert_message_has("11 samples, but had 10 before");
    assert_int_equal(fth_shards_add(shards, &again), FTH_INVALID);
    assert_message_has("3 times, but 2 times");
    again = shard_of("a", 10, 1, false);
    assert_int_equal(fth_shards_add(shards, &again), FTH_INVALID);
    assert_message_has("listed by the server");
    assert_taken(shards, "w1", NULL, "a", 0, 0);
    assert_answer(shards, "w2", NULL, FTH_SHARD_WAIT); /* a brought one is for those who ask for it */
    assert_taken(shards, "w2", "run/a", "run/a", 0, 0);
    assert_answer(shards, "w1", "run/a", FTH_SHARD_WAIT); /* and gives up what it had */
    assert_taken(shards, "w2", NULL, "a", 0, 0);
    assert_taken(shards, "w1", "run/a", "run/a", 0, 0);
    fth_shards_totals totals = fth_shards_count(shards);
    assert_int_equal(totals.listed, 1);
    assert_int_equal(totals.brought, 1);
    assert_int_equal(totals.samples, 10);
    assert_int_equal(totals.samples_done, 0);
    fth_shards_free(shards);
}

static void test_names_and_numbers(void **state)
{
    (void)state;
    fth_shards *shards = make_shards(1);
    char name[FTH_MAX_SHARD_NAME + 2];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_false(fth_shard_name_valid(name));
    assert_true(fth_shard_name_valid(name + 1));
    assert_true(fth_shard_name_valid("run-1/part-0001.tar.gz#0:100"));
    for (const char *const *bad = (const char *const[]){"", "a b", "a\"", "a\\b", "a\n", "\xc3\xa9", NULL}; *bad; bad++)
        assert_false(fth_shard_name_valid(*bad));
    fth_shard_state wrong[] = {shard_of("", 1, 1, true), shard_of("a", 0, 1, true), shard_of("a", -1, 1, true),
                               shard_of("a", INT64_MAX, 1, true), shard_of("a", 1, -1, true)};
    for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++)
        assert_int_equal(fth_shards_add(shards, &wrong[i]), FTH_INVALID);
    assert_int_equal(fth_shards_count(shards).listed, 0);
    fth_shards_free(shards);
}

static void test_there_is_room_for_so_many(void **state)
{
    (void)state;
    fth_shards *shards = make_shards(1);
    char name[32];
    for (int i = 0; i < FTH_MAX_SHARDS; i++) {
        snprintf(name, sizeof name, "part-%d", i);
        add(shards, name, 1, 1, true);
    }
    fth_shard_state more = shard_of("more", 1, 1, true), found;
    assert_int_equal(fth_shards_add(shards, &more), FTH_NO_MEMORY);
    assert_true(fth_shards_get(shards, "part-40000", &found));
    assert_false(fth_shards_get(shards, "more", &found));
    assert_true(fth_shards_get_at(shards, FTH_MAX_SHARDS - 1, &found));
    assert_string_equal(found.name, name);
    assert_false(fth_shards_get_at(shards, FTH_MAX_SHARDS, &found));
    fth_shards_free(shards);
}

static void test_more_epochs_after_a_restart(void **state)
{
    (void)state;
    fth_shards *shards = make_shards(7), *next = make_shards(8);
    add(shards, "a", 10, 1, true);
    push(shards, "w", span_of("a", 0, 0, 10));
    json_t *json = fth_shards_to_json(shards);
    add(next, "a", 10, 3, true);
    add(next, "b", 10, 3, true);
    assert_int_equal(fth_shards_from_json(next, json), FTH_OK);
    assert_int_equal(fth_shards_seed(next), 7); /* the order of an epoch that has begun stays */
    assert_taken(next, "w", NULL, "b", 0, 0);
    assert_taken(next, "w2", NULL, "a", 1, 0);
    json_decref(json);
    fth_shards_free(shards);
    fth_shards_free(next);
}

static void test_checkpoints_that_do_not_fit(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "{}",
        "{\"seed\":-1,\"list\":[]}",
        "{\"seed\":1,\"list\":[{}]}",
        "{\"seed\":1,\"list\":[{\"name\":\"a\",\"listed\":true,\"samples\":10,\"epochs\":1,\"epoch\":0,\"position\":10}"
        "]}",
        "{\"seed\":1,\"list\":[{\"name\":\"a\",\"listed\":true,\"samples\":10,\"epochs\":1,\"epoch\":-1,\"position\":0}"
        "]}",
        "{\"seed\":1,\"list\":[{\"name\":\"a "
        "b\",\"listed\":true,\"samples\":10,\"epochs\":1,\"epoch\":0,\"position\":0}]}",
    };
    for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++) {
        fth_shards *shards = make_shards(1);
        json_t *json = json_loads(wrong[i], 0, NULL);
        assert_int_equal(fth_shards_from_json(shards, json), FTH_CORRUPT);
        json_decref(json);
        fth_shards_free(shards);
    }
    fth_shards *shards = make_shards(1), *next = make_shards(1);
    add(shards, "a", 10, 1, true);
    add(next, "a", 12, 1, true); /* the manifest was written again */
    json_t *json = fth_shards_to_json(shards);
    assert_int_equal(fth_shards_from_json(next, json), FTH_INVALID);
    assert_message_has("it is another file");
    json_decref(json);
    fth_shards_free(shards);
    fth_shards_free(next);
}

static void test_each_shard_has_its_own_order(void **state)
{
    (void)state;
    enum { SAMPLES = 1000 };
    fth_sampler a = fth_shard_sampler(5, "a", SAMPLES), again = fth_shard_sampler(5, "a", SAMPLES),
                b = fth_shard_sampler(5, "b", SAMPLES), seeded = fth_shard_sampler(6, "a", SAMPLES);
    bool seen[SAMPLES] = {0};
    int like_b = 0, like_seeded = 0, like_next = 0;
    for (int64_t i = 0; i < SAMPLES; i++) {
        int64_t sample = fth_sampler_index(&a, 3, i);
        assert_in_range(sample, 0, SAMPLES - 1);
        assert_false(seen[sample]);
        seen[sample] = true;
        assert_int_equal(sample, fth_sampler_index(&again, 3, i));
        like_b += sample == fth_sampler_index(&b, 3, i);
        like_seeded += sample == fth_sampler_index(&seeded, 3, i);
        like_next += sample == fth_sampler_index(&a, 4, i);
    }
    assert_in_range(like_b, 0, 20);
    assert_in_range(like_seeded, 0, 20);
    assert_in_range(like_next, 0, 20);
}

/* ---- random courses ----
 *
 * Workers take shards, push, repeat what they pushed, give back, die without a word and come back
 * under the same or another name; the server is killed and goes on from its last checkpoint and the
 * log after it. */

enum { WORKERS = 5, SHARDS = 4, MOST_SAMPLES = 40, EPOCHS = 3, MOST_EVENTS = 20000, LOG = 64 };

typedef struct course_worker {
    char name[16];
    bool leased;
    fth_shard_span next;  /* what it computes; `to` is the end of the lease */
    fth_shard_span known; /* its last push, repeated at times */
} course_worker;

typedef struct course {
    fth_random_key key;
    uint64_t draws;
    fth_shards *shards;
    json_t *checkpoint;
    fth_shard_span log[LOG];
    int logged;
    course_worker workers[WORKERS];
    int64_t samples[SHARDS];
    uint8_t counted[SHARDS + 1][EPOCHS][MOST_SAMPLES]; /* the last one is brought */
    int64_t accepted, refused, restarts, deaths;
} course;

static const char *const names[SHARDS + 1] = {"s0", "s1", "s2", "s3", "run/s4"};

static int64_t draw(course *c, int64_t below)
{
    return (int64_t)(fth_random_bits(c->key, c->draws++) % (uint64_t)below);
}

static int number_of(const char *name)
{
    for (int i = 0; i <= SHARDS; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    fail_msg("%s is no shard", name);
    return -1;
}

static void save(course *c)
{
    json_decref(c->checkpoint);
    c->checkpoint = fth_shards_to_json(c->shards);
    c->logged = 0;
}

static void list_shards(course *c)
{
    for (int i = 0; i < SHARDS; i++)
        add(c->shards, names[i], c->samples[i], EPOCHS, true);
}

static void kill_server(course *c)
{
    fth_shards_free(c->shards);
    c->shards = make_shards(99);
    list_shards(c);
    assert_int_equal(fth_shards_from_json(c->shards, c->checkpoint), FTH_OK);
    for (int i = 0; i < c->logged; i++)
        assert_int_equal(fth_shards_move(c->shards, NULL, &c->log[i]), FTH_OK);
    assert_int_equal(fth_shards_count(c->shards).held, 0);
    c->restarts++;
}

static void send(course *c, const char *worker, const fth_shard_span *span)
{
    int shard = number_of(span->name);
    if (fth_shards_fit(c->shards, worker, span) != FTH_OK) {
        c->refused++;
        return;
    }
    c->log[c->logged++] = *span;
    assert_int_equal(fth_shards_move(c->shards, worker, span), FTH_OK);
    for (int64_t i = span->from; i < span->to; i++)
        assert_int_equal(c->counted[shard][span->epoch][i]++, 0); /* not counted before */
    c->accepted++;
    if (c->logged == LOG || draw(c, 30) == 0)
        save(c);
}

static void compute(course *c, course_worker *worker)
{
    bool lost_answer = draw(c, 8) == 0;
    fth_shard_span span = worker->next;
    int64_t left = span.to - span.from, count = 1 + draw(c, 8);
    span.to = span.from + (count < left ? count : left);
    int64_t refused = c->refused;
    send(c, worker->name, &span);
    worker->known = span;
    if (lost_answer && draw(c, 2) == 0)
        return; /* it computes the same again, and learns then that it must take a shard again */
    worker->next.from = span.to;
    worker->leased = c->refused == refused && worker->next.from < worker->next.to;
}

static void take(course *c, course_worker *worker)
{
    fth_shard_state shard;
    bool brings = draw(c, 4) == 0;
    if (brings)
        add(c->shards, names[SHARDS], c->samples[0], EPOCHS, false);
    fth_shard_answer answer = fth_shards_take(c->shards, worker->name, brings ? names[SHARDS] : NULL, &shard);
    worker->leased = answer == FTH_SHARD_TAKEN;
    if (worker->leased)
        worker->next = span_of(shard.name, shard.epoch, shard.position, shard.samples);
}

static void act(course *c, course_worker *worker, int64_t renamed)
{
    int64_t event = draw(c, 100);
    if (event < 3) { /* it dies, and its lease runs out */
        fth_shards_release(c->shards, worker->name);
        snprintf(worker->name, sizeof worker->name, "w%lld", (long long)renamed);
        worker->leased = false;
        c->deaths++;
    } else if (event < 5) { /* it dies, and another of the same name takes over before anyone notices */
        worker->leased = false;
    } else if (event < 8) {
        fth_shards_release(c->shards, worker->name);
        worker->leased = false;
    } else if (event < 10) { /* its lease ran out, and it does not know */
        fth_shards_release(c->shards, worker->name);
    } else if (event < 13 && *worker->known.name) { /* what was on its way for long arrives once more */
        send(c, worker->name, &worker->known);
    } else if (!worker->leased) {
        take(c, worker);
    } else {
        compute(c, worker);
    }
}

static void check_course(course *c)
{
    for (int shard = 0; shard <= SHARDS; shard++)
        for (int epoch = 0; epoch < EPOCHS; epoch++)
            for (int64_t i = 0; i < c->samples[shard < SHARDS ? shard : 0]; i++)
                assert_int_equal(c->counted[shard][epoch][i], 1);
    fth_shards_totals totals = fth_shards_count(c->shards);
    assert_int_equal(totals.epochs_done, EPOCHS);
    assert_int_equal(totals.done, SHARDS + 1);
    assert_int_equal(totals.samples_done, EPOCHS * totals.samples);
}

static void run_course(uint64_t number, course *totals)
{
    course c = {.key = {fth_random_mix(number + 1)}};
    int64_t renamed = WORKERS;
    c.shards = make_shards(99);
    for (int i = 0; i < SHARDS; i++)
        c.samples[i] = 1 + draw(&c, MOST_SAMPLES);
    list_shards(&c);
    add(c.shards, names[SHARDS], c.samples[0], EPOCHS, false);
    save(&c);
    for (int i = 0; i < WORKERS; i++)
        snprintf(c.workers[i].name, sizeof c.workers[i].name, "w%d", i);
    int events = 0;
    while (fth_shards_count(c.shards).done < SHARDS + 1 && events++ < MOST_EVENTS) {
        act(&c, &c.workers[draw(&c, WORKERS)], renamed++);
        if (draw(&c, 60) == 0)
            kill_server(&c);
    }
    check_course(&c);
    totals->accepted += c.accepted;
    totals->refused += c.refused;
    totals->restarts += c.restarts;
    totals->deaths += c.deaths;
    json_decref(c.checkpoint);
    fth_shards_free(c.shards);
}

static void test_random_courses(void **state)
{
    (void)state;
    course totals = {0};
    for (uint64_t number = 0; number < 300; number++)
        run_course(number, &totals);
    /* The courses are worth something only if these happen often. */
    assert_true(totals.accepted > 10000 && totals.refused > 1000 && totals.restarts > 500 && totals.deaths > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_shard_is_held_by_one),
        cmocka_unit_test(test_only_what_comes_next_counts),
        cmocka_unit_test(test_a_push_takes_a_free_shard),
        cmocka_unit_test(test_order_of_dealing),
        cmocka_unit_test(test_a_worker_gets_what_it_had),
        cmocka_unit_test(test_brought_shards),
        cmocka_unit_test(test_names_and_numbers),
        cmocka_unit_test(test_there_is_room_for_so_many),
        cmocka_unit_test(test_more_epochs_after_a_restart),
        cmocka_unit_test(test_checkpoints_that_do_not_fit),
        cmocka_unit_test(test_each_shard_has_its_own_order),
        cmocka_unit_test(test_random_courses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
