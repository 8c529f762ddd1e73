/* Whole courses of several jobs through the scheduler, in virtual time: jobs of different speeds
 * that join, pause, are killed and come back, makers that fail, a cache that loses entries, memory
 * that is short. What must hold in all of them: every job comes to its end, nobody waits for long,
 * memory is never exceeded, tries are bounded; and where jobs share and memory allows, every image
 * is decoded once. */
#include "support.h"

#include <math.h>

#include "batches/scheduler/scheduler.h"

enum { MAX_JOBS = 8, MAX_PROCESSES = 4, MAX_MAKERS = 4, MAX_ENTRIES = 1 << 15 };
static const double tick_s = 0.005;

typedef struct course_process {
    int64_t next;
    double ready_s;   /* when it asks for its next batch */
    double waiting_s; /* since when it waits for it; -1: it does not */
    bool there;
} course_process;

typedef struct course_job {
    fth_job_spec spec;
    int64_t end, set_count;
    int process_count;
    double begin_s, interval_s;
    bool choose_rotation;
    course_process processes[MAX_PROCESSES];
    bool added;
    int64_t errors; /* batches with an item that failed for good */
    double longest_wait_s;
} course_job;

typedef struct course_maker {
    bool busy, fails;
    fth_order order;
    double end_s;
} course_maker;

/* What the cache has, and how often each item was tried. */
typedef struct course_entry {
    fth_item_id id;
    bool there;
    int tries, made;
} course_entry;

typedef struct test_course {
    fth_scheduler *scheduler;
    fth_random_key key;
    uint64_t draws;
    double now_s, limit_s, batch_s, sample_s; /* what preparing takes, one maker */
    uint64_t memory, batch_bytes, sample_bytes, used;
    double failing_share, hopeless_share, losses_per_s, kills_per_s, pauses_per_s;
    int maker_count, job_count, max_tries;
    course_job jobs[MAX_JOBS];
    course_maker makers[MAX_MAKERS];
    course_entry *entries; /* by id, open addressing */
    int64_t distinct, made, decoded;
} test_course;

static double draw(test_course *course)
{
    return (double)(fth_random_bits(course->key, course->draws++) >> 11) * 0x1p-53;
}

static int draw_below(test_course *course, int bound)
{
    return (int)(draw(course) * bound);
}

static course_entry *entry_of(test_course *course, fth_item_id id)
{
    size_t at = id.words[1] % MAX_ENTRIES;
    while (course->entries[at].tries > 0 && !fth_item_id_equal(course->entries[at].id, id))
        at = (at + 1) % MAX_ENTRIES;
    return &course->entries[at];
}

static fth_job_spec make_spec(fth_cache_format format)
{
    fth_job_spec spec = {.data = "photos",
                         .transform = "random-resized-crop=224,flip",
                         .batch = 20,
                         .shuffle = true,
                         .sharing = FTH_SHARE_ALL,
                         .order_seed = 1,
                         .augment_seed = 1,
                         .format = format};
    memset(spec.version, 'a', sizeof spec.version - 1);
    return spec;
}

static test_course *begin(uint64_t seed)
{
    test_course *course = calloc(1, sizeof *course);
    course->entries = calloc(MAX_ENTRIES, sizeof *course->entries);
    course->key = fth_random_key_for(seed, FTH_RANDOM_GENERATE);
    course->limit_s = 600;
    course->batch_s = 0.05;
    course->sample_s = 0.0025;
    course->batch_bytes = 20000;
    course->sample_bytes = 1000;
    course->memory = 1 << 30;
    course->maker_count = 2;
    course->max_tries = 3;
    return course;
}

static course_job *add_job(test_course *course, const fth_job_spec *spec, int64_t set_count, int64_t epochs,
                           int processes, double begin_s, double batches_per_s)
{
    course_job *job = &course->jobs[course->job_count++];
    *job = (course_job){.spec = *spec,
                        .set_count = set_count,
                        .end = epochs * fth_job_batches_per_epoch(spec, set_count),
                        .process_count = processes,
                        .begin_s = begin_s,
                        .interval_s = processes / batches_per_s};
    for (int i = 0; i < processes; i++)
        job->processes[i] = (course_process){.next = i, .ready_s = begin_s, .waiting_s = -1};
    return job;
}

static void set_position(test_course *course, int number, int process)
{
    course_job *job = &course->jobs[number];
    fth_scheduler_set_position(course->scheduler, (uint64_t)number + 1, process, job->processes[process].next,
                               job->process_count, job->end, course->now_s);
}

static void evict(test_course *course)
{
    fth_item_id ids[16];
    size_t count;
    while ((count = fth_scheduler_evict(course->scheduler, 0, course->now_s, ids, FTH_COUNT_OF(ids))) > 0)
        for (size_t i = 0; i < count; i++) {
            course_entry *entry = entry_of(course, ids[i]);
            assert_true(entry->there);
            entry->there = false;
            course->used -= 1;
        }
}

/* ---- jobs ---- */

/* The first item of a batch that is not there, in *missing; false: all are. Failed ones are counted
 * as errors. */
static bool find_missing(test_course *course, course_job *job, int64_t number, fth_item_id *missing, int *failed)
{
    int64_t samples[64];
    fth_batch_plan plan = {.samples = samples};
    assert_true(job->spec.batch <= 64);
    fth_job_plan_batch(&job->spec, job->set_count, number, &plan);
    bool batches = job->spec.format == FTH_FORMAT_BATCHES;
    fth_item_kind kind = job->spec.format == FTH_FORMAT_DECODED ? FTH_ITEM_DECODED : FTH_ITEM_ENCODED;
    *failed = 0;
    for (int64_t i = 0; i < (batches && plan.count > 0 ? 1 : plan.count); i++) {
        fth_item_id id =
            batches ? fth_job_batch_id(&job->spec, &plan) : fth_job_sample_id(&job->spec, kind, samples[i]);
        fth_item_state state = fth_scheduler_state(course->scheduler, id, NULL, NULL);
        assert_int_equal(state == FTH_ITEM_READY, entry_of(course, id)->there);
        *failed += state == FTH_ITEM_FAILED;
        if (state != FTH_ITEM_READY && state != FTH_ITEM_FAILED) {
            *missing = id;
            return true;
        }
    }
    return false;
}

static void run_process(test_course *course, int number, int index)
{
    course_job *job = &course->jobs[number];
    course_process *process = &job->processes[index];
    fth_item_id missing;
    int failed;
    while (process->there && process->next < job->end && process->ready_s <= course->now_s) {
        if (find_missing(course, job, process->next, &missing, &failed)) {
            if (process->waiting_s < 0)
                process->waiting_s = course->now_s;
            assert_true(fth_scheduler_want(course->scheduler, (uint64_t)number + 1, missing, course->now_s));
            return;
        }
        if (process->waiting_s >= 0)
            job->longest_wait_s = fmax(job->longest_wait_s, course->now_s - process->waiting_s);
        job->errors += failed > 0;
        process->ready_s = fmax(process->ready_s, process->waiting_s) + job->interval_s;
        process->waiting_s = -1;
        process->next += job->process_count;
        set_position(course, number, index);
    }
}

static bool is_done(const course_job *job)
{
    bool done = job->added;
    for (int i = 0; i < job->process_count; i++)
        done = done && job->processes[i].next >= job->end;
    return done;
}

static void run_job(test_course *course, int number)
{
    course_job *job = &course->jobs[number];
    if (course->now_s < job->begin_s)
        return;
    if (!job->added) {
        if (job->choose_rotation)
            job->spec.rotation = fth_scheduler_choose_rotation(course->scheduler, &job->spec, job->set_count);
        assert_int_equal(
            fth_scheduler_add_job(course->scheduler, (uint64_t)number + 1, &job->spec, job->set_count, course->now_s),
            FTH_OK);
        job->added = true;
    }
    for (int i = 0; i < job->process_count; i++) {
        course_process *process = &job->processes[i];
        if (!process->there && course->now_s >= process->ready_s) {
            process->there = true;
            set_position(course, number, i);
        }
        run_process(course, number, i);
    }
}

/* ---- makers ---- */

static void end_making(test_course *course, int number)
{
    course_maker *maker = &course->makers[number];
    course_entry *entry = entry_of(course, maker->order.id);
    char name[24];
    snprintf(name, sizeof name, "maker %d", number);
    maker->busy = false;
    if (maker->fails) {
        bool given_up = fth_scheduler_failed(course->scheduler, &maker->order, name, FTH_IO, "drawn", course->now_s);
        if (given_up)
            entry->tries = 1; /* a job that begins again may try again */
        return;
    }
    bool batch = maker->order.kind == FTH_ITEM_BATCH;
    fth_prefetch_result preparation = {
        .receipt = {.id = maker->order.id, .size_bytes = batch ? course->batch_bytes : course->sample_bytes},
        .samples = batch ? maker->order.spec.batch : 1,
        .decoded = batch ? maker->order.spec.batch : 1,
        .decode_s = batch ? course->batch_s : course->sample_s};
    assert_false(entry->there);
    course->distinct += entry->made == 0;
    course->made++;
    course->decoded += preparation.decoded;
    entry->there = true;
    entry->made++;
    entry->tries = 1;
    course->used++;
    fth_scheduler_done(course->scheduler, &maker->order, &preparation, course->now_s);
}

static void run_maker(test_course *course, int number)
{
    course_maker *maker = &course->makers[number];
    char name[24];
    snprintf(name, sizeof name, "maker %d", number);
    for (double free_s = course->now_s - tick_s;;) { /* several small items in a tick */
        if (maker->busy && maker->end_s > course->now_s)
            return;
        if (maker->busy) {
            free_s = maker->end_s;
            end_making(course, number);
        }
        if (!fth_scheduler_take(course->scheduler, name, course->now_s, &maker->order))
            return;
        evict(course);
        bool batch = maker->order.kind == FTH_ITEM_BATCH;
        course_entry *entry = entry_of(course, maker->order.id);
        assert_false(entry->there);
        entry->id = maker->order.id;
        entry->tries = entry->tries > 0 ? entry->tries + 1 : 2;
        assert_true(entry->tries - 1 <= course->max_tries);
        bool hopeless = (double)(maker->order.id.words[0] % 10000) < 1e4 * course->hopeless_share;
        maker->fails = hopeless || draw(course) < course->failing_share;
        maker->busy = true;
        maker->end_s = fmax(free_s, course->now_s - tick_s) + (batch ? course->batch_s : course->sample_s);
    }
}

/* ---- mishaps ---- */

static void lose_something(test_course *course)
{
    course_entry *entry = &course->entries[draw_below(course, MAX_ENTRIES)];
    for (int i = 0; i < 4096 && !entry->there; i++)
        entry = &course->entries[draw_below(course, MAX_ENTRIES)];
    if (!entry->there)
        return;
    entry->there = false;
    course->used--;
    fth_scheduler_lost(course->scheduler, entry->id);
}

static void disturb(test_course *course)
{
    if (draw(course) < course->losses_per_s * tick_s)
        lose_something(course);
    int number = draw_below(course, course->job_count);
    course_job *job = &course->jobs[number];
    course_process *process = &job->processes[draw_below(course, job->process_count)];
    if (draw(course) < course->pauses_per_s * tick_s && process->ready_s < course->now_s + job->interval_s) {
        process->ready_s = fmax(process->ready_s, course->now_s) + 20 * draw(course);
        process->waiting_s = -1;
    }
    if (job->added && draw(course) < course->kills_per_s * tick_s) {
        /* All of it, as a job dies; it comes back where it was saved. */
        for (int i = 0; i < job->process_count; i++) {
            course_process *each = &job->processes[i];
            if (each->there)
                fth_scheduler_remove_process(course->scheduler, (uint64_t)number + 1, i);
            each->there = false;
            int64_t back = draw_below(course, 5) * job->process_count;
            each->next = each->next >= back && each->next < job->end ? each->next - back : each->next;
            each->ready_s = course->now_s + 3;
            each->waiting_s = -1;
        }
        for (size_t i = 0; i < MAX_ENTRIES; i++) /* it may try again what it was trying */
            course->entries[i].tries = course->entries[i].tries > 0;
    }
}

/* ---- the course ---- */

static void check_memory(test_course *course)
{
    fth_scheduler_figures figures;
    fth_scheduler_get_figures(course->scheduler, &figures);
    assert_true(figures.ready_bytes <= course->memory);
    assert_int_equal(figures.ready_items, course->used);
}

static void run(test_course *course)
{
    fth_scheduler_options options = {.memory_bytes = course->memory, .max_tries = course->max_tries};
    assert_int_equal(fth_scheduler_create(&options, &course->scheduler), FTH_OK);
    int done = 0;
    for (course->now_s = 1; done < course->job_count; course->now_s += tick_s) {
        if (course->now_s > course->limit_s)
            fail_msg("only %d of %d jobs are done after %g s", done, course->job_count, course->limit_s);
        for (int i = 0; i < course->job_count; i++)
            run_job(course, i);
        for (int i = 0; i < course->maker_count; i++)
            run_maker(course, i);
        evict(course);
        check_memory(course);
        disturb(course);
        done = 0;
        for (int i = 0; i < course->job_count; i++)
            done += is_done(&course->jobs[i]);
    }
    for (int i = 0; i < course->maker_count; i++)
        if (course->makers[i].busy) {
            course->makers[i].fails = false;
            end_making(course, i);
        }
}

static void end(test_course *course)
{
    fth_scheduler_figures figures;
    for (int i = 0; i < course->job_count; i++)
        fth_scheduler_remove_job(course->scheduler, (uint64_t)i + 1);
    fth_scheduler_get_figures(course->scheduler, &figures);
    assert_int_equal(figures.waiting, 0);
    assert_int_equal(figures.making, 0);
    assert_int_equal(figures.failed, 0);
    fth_order order;
    assert_false(fth_scheduler_take(course->scheduler, "maker 0", course->now_s + 100, &order));
    fth_scheduler_free(course->scheduler);
    free(course->entries);
    free(course);
}

/* ---- courses ---- */

static void equal_jobs_decode_each_image_once(void **state)
{
    (void)state;
    test_course *course = begin(1);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    add_job(course, &spec, 1000, 3, 4, 1, 10);
    add_job(course, &spec, 1000, 3, 4, 1.5, 8);
    add_job(course, &spec, 1000, 3, 1, 4, 12);
    add_job(course, &spec, 1000, 3, 2, 6, 5);
    run(course);
    assert_int_equal(course->decoded, 3 * 1000);
    for (int i = 0; i < 4; i++)
        assert_true(course->jobs[i].longest_wait_s < 1);
    end(course);
}

static void jobs_that_differ_decode_each_image_once(void **state)
{
    (void)state;
    test_course *course = begin(2);
    fth_job_spec spec = make_spec(FTH_FORMAT_DECODED);
    spec.sharing = FTH_SHARE_ORDER;
    for (uint64_t i = 0; i < 4; i++) {
        spec.augment_seed = i;
        spec.batch = 20 + 5 * (int64_t)i;
        add_job(course, &spec, 1000, 3, 2, 1 + 2 * (double)i, 5 + 3 * (double)i);
    }
    run(course);
    assert_int_equal(course->decoded, 1000); /* all of it fits: once in all epochs */
    end(course);

    /* With room for a fifth of the set and equal speeds: once an epoch. */
    course = begin(3);
    course->memory = 200 * course->sample_bytes;
    for (uint64_t i = 0; i < 4; i++) {
        spec.augment_seed = i;
        spec.batch = 20;
        add_job(course, &spec, 1000, 3, 2, 1, 10);
    }
    run(course);
    assert_in_range(course->decoded, 0, 3 * 1000);
    assert_true(course->decoded > 2 * 1000);
    end(course);
}

static void a_job_that_joins_in_mid_epoch_shares_the_rest(void **state)
{
    (void)state;
    test_course *course = begin(4);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    course->memory = 12 * course->batch_bytes;
    add_job(course, &spec, 1000, 4, 1, 1, 10);                           /* 50 batches an epoch: 5 s */
    add_job(course, &spec, 1000, 2, 1, 8.5, 10)->choose_rotation = true; /* in epoch 1, at half of it */
    run(course);
    /* Alone each would take 200 and 100 batches. What the second has of each epoch after its wrap,
     * the first has had long ago: that half is made again. The other is shared. */
    assert_in_range(course->jobs[1].spec.rotation, 1000, 2000);
    assert_true(course->made <= 200 + 55);
    end(course);
}

static void jobs_of_different_speeds_share_little_memory(void **state)
{
    (void)state;
    test_course *course = begin(5);
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    course->memory = 10 * course->batch_bytes;
    course->maker_count = 4;
    add_job(course, &spec, 1000, 2, 1, 1, 10);
    add_job(course, &spec, 1000, 2, 1, 1, 9);
    add_job(course, &spec, 1000, 2, 1, 1, 2);
    run(course);
    for (int i = 0; i < 3; i++)
        assert_true(course->jobs[i].longest_wait_s < 1);
    assert_true(course->made <= 3 * 100); /* as without a cache at the worst */
    end(course);
}

/* More jobs than batches that fit: everybody still gets on. */
static void memory_for_fewer_batches_than_jobs_is_enough(void **state)
{
    (void)state;
    test_course *course = begin(6);
    course->memory = 3 * course->batch_bytes;
    course->batch_s = 0.02;
    fth_job_spec spec = make_spec(FTH_FORMAT_BATCHES);
    for (uint64_t i = 0; i < 6; i++) {
        spec.order_seed = i;
        add_job(course, &spec, 500, 1, 1, 1, 4);
    }
    run(course);
    for (int i = 0; i < 6; i++)
        assert_true(course->jobs[i].longest_wait_s < 5);
    end(course);
}

static void failures_are_given_up_in_time(void **state)
{
    (void)state;
    test_course *course = begin(7);
    course->hopeless_share = 0.05;
    course->failing_share = 0.1;
    fth_job_spec spec = make_spec(FTH_FORMAT_DECODED);
    add_job(course, &spec, 1000, 2, 2, 1, 10);
    spec.augment_seed = 2;
    add_job(course, &spec, 1000, 2, 2, 2, 6);
    run(course);
    assert_true(course->jobs[0].errors > 0);
    for (int i = 0; i < 2; i++)
        assert_true(course->jobs[i].longest_wait_s < 4);
    end(course);
}

/* Also of a job that is paused for long, and of a killed one that comes back. */
static void random_courses_come_to_their_end(void **state)
{
    (void)state;
    for (uint64_t seed = 100; seed < 160; seed++) {
        test_course *course = begin(seed);
        course->maker_count = 1 + draw_below(course, MAX_MAKERS);
        course->failing_share = draw_below(course, 2) * 0.05;
        course->hopeless_share = draw_below(course, 2) * 0.01;
        course->losses_per_s = draw_below(course, 3) * 0.5;
        course->kills_per_s = draw_below(course, 3) * 0.05;
        course->pauses_per_s = draw_below(course, 3) * 0.05;
        course->memory = (uint64_t)(4 + draw_below(course, 60)) * course->batch_bytes;
        course->batch_s = 0.01 + 0.03 * draw(course);
        course->sample_s = course->batch_s / 20;
        int jobs = 1 + draw_below(course, 5);
        bool alike = draw_below(course, 2) == 0;
        for (int i = 0; i < jobs; i++) {
            fth_job_spec spec = make_spec((fth_cache_format)draw_below(course, 3));
            spec.batch = alike ? 20 : 10 + draw_below(course, 30);
            spec.order_seed = alike ? 1 : (uint64_t)draw_below(course, 2);
            spec.augment_seed = alike ? 1 : (uint64_t)draw_below(course, 3);
            spec.sharing = (fth_sharing)draw_below(course, 3);
            if (draw_below(course, 4) == 0)
                spec.part = (fth_share){draw_below(course, 2), 2};
            if (draw_below(course, 4) == 0)
                strcpy(spec.transform, "resize=256,centre-crop=224");
            double begin_s = 1 + 10 * draw(course), pace = 2 + 18 * draw(course);
            int processes = 1 + draw_below(course, MAX_PROCESSES);
            course_job *job = add_job(course, &spec, 400, 1 + draw_below(course, 3), processes, begin_s, pace);
            job->choose_rotation = true;
        }
        run(course);
        for (int i = 0; i < course->job_count; i++)
            assert_true(course->jobs[i].longest_wait_s < 5);
        end(course);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_jobs_decode_each_image_once),
        cmocka_unit_test(jobs_that_differ_decode_each_image_once),
        cmocka_unit_test(a_job_that_joins_in_mid_epoch_shares_the_rest),
        cmocka_unit_test(jobs_of_different_speeds_share_little_memory),
        cmocka_unit_test(memory_for_fewer_batches_than_jobs_is_enough),
        cmocka_unit_test(failures_are_given_up_in_time),
        cmocka_unit_test(random_courses_come_to_their_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
