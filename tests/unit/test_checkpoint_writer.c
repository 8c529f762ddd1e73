/* The writer: order, replacement of what waits, cancelling, results; and checkpoints of several
 * owners in one store. */
#include "support.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/writer.h"

/* ---- the writer ---- */

/* Work that waits until the test lets it go on. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int allowed, begun;
    int64_t written[32];
    int count;
    fth_status next;
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static fth_status write_gated(void *context, const fth_writer_job *job, const fth_store_progress *progress,
                              uint64_t *size_bytes)
{
    (void)context;
    fth_status status = FTH_OK;
    pthread_mutex_lock(&gate.mutex);
    gate.begun++;
    pthread_cond_broadcast(&gate.changed);
    while (gate.allowed == 0 && status == FTH_OK) {
        pthread_mutex_unlock(&gate.mutex);
        usleep(1000);
        if (!progress->moved(progress->context, 1, 2))
            status = fth_fail(FTH_INTERRUPTED, "cancelled");
        pthread_mutex_lock(&gate.mutex);
    }
    if (status == FTH_OK) {
        gate.allowed--;
        gate.written[gate.count++] = job->step;
        *size_bytes = 100;
        status = gate.next == FTH_OK ? FTH_OK : fth_fail(gate.next, "no room");
    }
    pthread_mutex_unlock(&gate.mutex);
    return status;
}

static void allow(int count)
{
    pthread_mutex_lock(&gate.mutex);
    gate.allowed += count;
    pthread_mutex_unlock(&gate.mutex);
}

static void wait_begun(int count)
{
    for (int i = 0; i < 5000; i++) {
        pthread_mutex_lock(&gate.mutex);
        bool reached = gate.begun >= count;
        pthread_mutex_unlock(&gate.mutex);
        if (reached)
            return;
        usleep(1000);
    }
    fail_msg("the writer did not begin job %d", count);
}

static _Atomic int dropped;

static void count_dropped(void *context, const fth_writer_job *job)
{
    (void)context;
    (void)job;
    dropped++;
}

static fth_writer *new_writer(void)
{
    fth_writer *writer = NULL;
    gate.allowed = gate.begun = gate.count = 0;
    gate.next = FTH_OK;
    dropped = 0;
    assert_int_equal(fth_writer_create(&(fth_writer_work){.write = write_gated, .drop = count_dropped}, &writer),
                     FTH_OK);
    return writer;
}

/* Submits a job of `step`; the step that it replaced, or -1; -2 if there was no slot. */
static int64_t submit(fth_writer *writer, int64_t step, int kind)
{
    fth_writer_job replaced;
    int slot = fth_writer_claim(writer, kind, &replaced);
    if (slot < 0)
        return -2;
    fth_writer_submit(writer, &(fth_writer_job){.slot = slot, .kind = kind, .step = step});
    return replaced.slot >= 0 ? replaced.step : -1;
}

static void jobs_are_written_in_order_and_give_results(void **state)
{
    (void)state;
    fth_writer *writer = new_writer();
    fth_writer_result result;
    assert_false(fth_writer_take_result(writer, &result));
    allow(100);
    for (int step = 1; step <= 8; step++) {
        assert_true(submit(writer, step, 1) == -1);
        assert_int_equal(fth_writer_wait_idle(writer, test_deadline_in(20)), FTH_OK);
    }
    for (int step = 1; step <= 8; step++) {
        assert_true(fth_writer_take_result(writer, &result));
        assert_int_equal(result.job.step, step);
        assert_int_equal(result.status, FTH_OK);
        assert_int_equal(result.size_bytes, 100);
    }
    assert_false(fth_writer_take_result(writer, &result));
    fth_writer_free(writer);
    assert_int_equal(dropped, 0); /* every job came back with its result */
}

/* An owner that takes no results keeps the newest ones; what the others hold is released, once
 * each. */
static void results_beyond_the_ring_are_dropped(void **state)
{
    (void)state;
    enum { BEYOND = 3, JOBS = FTH_WRITER_RESULTS + BEYOND };
    fth_writer *writer = new_writer();
    fth_writer_result result;
    allow(JOBS);
    for (int step = 1; step <= JOBS; step++) {
        assert_true(submit(writer, step, 1) == -1);
        assert_int_equal(fth_writer_wait_idle(writer, test_deadline_in(20)), FTH_OK);
    }
    assert_int_equal(dropped, BEYOND);
    assert_true(fth_writer_take_result(writer, &result));
    assert_int_equal(result.job.step, BEYOND + 1);
    fth_writer_free(writer);
    assert_int_equal(dropped, JOBS - 1);
}

static void what_waits_is_replaced_by_newer(void **state)
{
    (void)state;
    fth_writer *writer = new_writer();
    assert_true(submit(writer, 1, 1) == -1);
    wait_begun(1);
    assert_true(submit(writer, 2, 1) == -1);
    assert_true(submit(writer, 3, 1) == 2);
    assert_true(submit(writer, 4, 1) == 3);
    fth_writer_state look = fth_writer_look(writer);
    assert_true(look.writing && look.waiting);
    allow(2);
    assert_int_equal(fth_writer_wait_idle(writer, test_deadline_in(20)), FTH_OK);
    assert_int_equal(gate.count, 2);
    assert_int_equal(gate.written[0], 1);
    assert_int_equal(gate.written[1], 4);
    fth_writer_free(writer);
}

static void another_kind_of_job_is_not_replaced(void **state)
{
    (void)state;
    fth_writer *writer = new_writer();
    assert_true(submit(writer, 1, 1) == -1);
    wait_begun(1);
    assert_true(submit(writer, 2, 2) == -1);
    assert_true(submit(writer, 3, 1) == -2);
    assert_true(submit(writer, 4, 3) == 2);
    allow(2);
    assert_int_equal(fth_writer_wait_idle(writer, test_deadline_in(20)), FTH_OK);
    assert_int_equal(gate.written[1], 4);
    fth_writer_free(writer);
}

static void failures_and_cancelling_are_results(void **state)
{
    (void)state;
    fth_writer *writer = new_writer();
    fth_writer_result result;
    assert_true(submit(writer, 1, 1) == -1);
    wait_begun(1);
    assert_int_equal(fth_writer_wait_idle(writer, fth_deadline_in(0.02)), FTH_TIMEOUT);
    fth_writer_cancel(writer);
    assert_int_equal(fth_writer_wait_idle(writer, test_deadline_in(20)), FTH_OK);
    assert_true(fth_writer_take_result(writer, &result));
    assert_int_equal(result.status, FTH_INTERRUPTED);
    gate.next = FTH_IO;
    allow(1);
    assert_true(submit(writer, 2, 1) == -1); /* the cancel was for the one before */
    assert_int_equal(fth_writer_wait_idle(writer, test_deadline_in(20)), FTH_OK);
    assert_true(fth_writer_take_result(writer, &result));
    assert_int_equal(result.status, FTH_IO);
    assert_string_equal(result.message, "no room");
    fth_writer_free(writer);
}

static void freeing_cancels_and_drops(void **state)
{
    (void)state;
    fth_writer *writer = new_writer();
    assert_true(submit(writer, 1, 1) == -1);
    wait_begun(1);
    assert_true(submit(writer, 2, 1) == -1);
    fth_writer_free(writer);
    assert_int_equal(dropped, 2); /* the cancelled one's result, and the one that waited */
    assert_int_equal(gate.count, 0);
}

/* ---- places ---- */

static fth_checkpoint_place place;

static int open_place(void **state)
{
    if (test_make_folder(state) != 0)
        return -1;
    place = (fth_checkpoint_place){.prefix = "checkpoints/", .keep = 3};
    return fth_store_open(test_folder, NULL, &place.store) == FTH_OK ? 0 : -1;
}

static int close_place(void **state)
{
    fth_store_free(place.store);
    return test_remove_folder(state);
}

static fth_status put(int64_t fence, int64_t step)
{
    float value = (float)(1000 * fence + step);
    fth_tensor_view view = {"w", FTH_F32, FTH_SHAPE(1), &value};
    char *header = NULL, bytes[512];
    size_t size = 0;
    assert_int_equal(fth_safetensors_header(&view, 1, NULL, 0, &header, &size), FTH_OK);
    memcpy(bytes, header, size);
    memcpy(bytes + size, &value, sizeof value);
    free(header);
    json_t *state = json_pack("{s:I}", "batches", (json_int_t)step);
    place.fence = fence;
    fth_status status = fth_checkpoint_put(&place, step, bytes, size + sizeof value, state, NULL);
    json_decref(state);
    return status;
}

static void expect(int64_t fence, int64_t step)
{
    fth_checkpoint checkpoint;
    assert_int_equal(fth_checkpoint_get_latest(&place, test_folder, NULL, &checkpoint), FTH_OK);
    assert_non_null(checkpoint.tensors);
    assert_int_equal(checkpoint.fence, fence);
    assert_int_equal(checkpoint.step, step);
    float value = 0;
    memcpy(&value, fth_safetensors_find(checkpoint.tensors, "w")->data, sizeof value);
    assert_true(value == (float)(1000 * fence + step));
    fth_checkpoint_release(&checkpoint);
}

static bool exists(const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/checkpoints/%s", test_folder, name);
    return access(path, F_OK) == 0;
}

static void set_age(const char *name, double seconds)
{
    char path[400];
    snprintf(path, sizeof path, "%s/checkpoints/%s", test_folder, name);
    time_t then = time(NULL) - (time_t)seconds;
    assert_int_equal(utime(path, &(struct utimbuf){then, then}), 0);
}

/* An owner that lost the run and writes late, at a higher step, never wins over its successor. */
static void a_higher_fence_wins_over_a_higher_step(void **state)
{
    (void)state;
    assert_int_equal(put(1, 10), FTH_OK);
    assert_int_equal(put(2, 5), FTH_OK);
    assert_int_equal(put(1, 20), FTH_OK);
    expect(2, 5);
    assert_true(exists("step-000000000005-f000002.json"));
    assert_int_equal(put(2, 6), FTH_OK);
    expect(2, 6);
}

/* A run that had no lease gets one later. */
static void checkpoints_without_a_fence_are_the_oldest(void **state)
{
    (void)state;
    assert_int_equal(put(0, 50), FTH_OK);
    expect(0, 50);
    assert_int_equal(put(1, 51), FTH_OK);
    expect(1, 51);
}

static void retention_by_count_goes_over_all_owners(void **state)
{
    (void)state;
    place.keep = 2;
    for (int step = 1; step <= 3; step++)
        assert_int_equal(put(1, step), FTH_OK);
    assert_int_equal(put(2, 2), FTH_OK);
    assert_true(exists("step-000000000002-f000002.json"));
    assert_true(exists("step-000000000003-f000001.json"));
    assert_false(exists("step-000000000002-f000001.json"));
    assert_false(exists("step-000000000002-f000001.safetensors"));
}

static void retention_by_age_keeps_the_newest(void **state)
{
    (void)state;
    place.keep = 10;
    place.keep_for_s = 3600;
    for (int step = 1; step <= 3; step++)
        assert_int_equal(put(1, step), FTH_OK);
    set_age("step-000000000001-f000001.json", 7200);
    set_age("step-000000000003-f000001.json", 7200);
    assert_int_equal(put(1, 4), FTH_OK);
    assert_false(exists("step-000000000001-f000001.json"));
    assert_false(exists("step-000000000001-f000001.safetensors"));
    assert_true(exists("step-000000000002-f000001.json"));
    assert_false(exists("step-000000000003-f000001.json"));
    set_age("step-000000000002-f000001.json", 7200);
    set_age("step-000000000004-f000001.json", 7200);
    expect(1, 4); /* however old */
}

static void torn_objects_are_skipped(void **state)
{
    (void)state;
    char path[400];
    assert_int_equal(put(1, 1), FTH_OK);
    assert_int_equal(put(2, 2), FTH_OK);
    assert_int_equal(put(3, 3), FTH_OK);
    snprintf(path, sizeof path, "%s/checkpoints/step-000000000003-f000003.safetensors", test_folder);
    assert_int_equal(truncate(path, 9), 0);
    snprintf(path, sizeof path, "%s/checkpoints/step-000000000002-f000002.json", test_folder);
    assert_int_equal(truncate(path, 9), 0);
    expect(1, 1);
}

static fth_status refuse(void *context)
{
    int *left = context;
    return (*left)-- > 0 ? FTH_OK : fth_fail(FTH_PEER_LOST, "another machine has the run");
}

/* Fenced between the tensors and the manifest: there is no checkpoint. */
static void a_guard_stops_the_manifest(void **state)
{
    (void)state;
    int left = 1;
    assert_int_equal(put(1, 1), FTH_OK);
    place.guard = refuse;
    place.guard_context = &left;
    assert_int_equal(put(1, 2), FTH_PEER_LOST);
    assert_true(exists("step-000000000002-f000001.safetensors"));
    assert_false(exists("step-000000000002-f000001.json"));
    assert_int_equal(put(1, 3), FTH_PEER_LOST);
    assert_false(exists("step-000000000003-f000001.safetensors"));
    /* Fenced right after the manifest: the checkpoint is whole, and nothing is deleted. */
    left = 2;
    place.keep = 1;
    assert_int_equal(put(1, 3), FTH_OK);
    assert_true(exists("step-000000000001-f000001.json"));
    place.guard = NULL;
    expect(1, 3);
    assert_int_equal(put(2, 4), FTH_OK);
    assert_false(exists("step-000000000002-f000001.safetensors"));
}

#define PLACE(function) cmocka_unit_test_setup_teardown(function, open_place, close_place)

int main(void)
{
    fth_log_set_level(FTH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_are_written_in_order_and_give_results),
        cmocka_unit_test(results_beyond_the_ring_are_dropped),
        cmocka_unit_test(what_waits_is_replaced_by_newer),
        cmocka_unit_test(another_kind_of_job_is_not_replaced),
        cmocka_unit_test(failures_and_cancelling_are_results),
        cmocka_unit_test(freeing_cancels_and_drops),
        PLACE(a_higher_fence_wins_over_a_higher_step),
        PLACE(checkpoints_without_a_fence_are_the_oldest),
        PLACE(retention_by_count_goes_over_all_owners),
        PLACE(retention_by_age_keeps_the_newest),
        PLACE(torn_objects_are_skipped),
        PLACE(a_guard_stops_the_manifest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
