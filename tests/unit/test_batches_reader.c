/* Readers for other programs, over data that is read directly; tests/e2e/test_batches_python.py has
 * those of the cache. */
#include <pthread.h>
#include <string.h>

#include "batches/client/reader.h"
#include "support.h"

enum { BATCH = 700, SAMPLES = 4000, PER_EPOCH = 6, PIXELS = 28 * 28 };

static fth_reader *open_reader(fth_reader_options options)
{
    fth_reader *reader = NULL;
    options.batch = BATCH;
    options.seed = 5;
    options.shuffle = 1;
    options.split = FTH_VALIDATION;
    assert_int_equal(fth_reader_open("digits", &options, &reader), FTH_OK);
    return reader;
}

static void assert_same_batch(const fth_reader_batch *a, const fth_reader_batch *b)
{
    assert_true(a->number == b->number && a->epoch == b->epoch && a->count == b->count);
    assert_memory_equal(a->labels, b->labels, (size_t)a->count * sizeof *a->labels);
    assert_memory_equal(a->images, b->images, (size_t)a->count * PIXELS * sizeof *a->images);
}

static void *give_all_back(void *argument)
{
    void **arguments = argument;
    fth_reader_batch *batches = arguments[1];
    for (int i = PER_EPOCH - 1; i >= 0; i--)
        fth_reader_give_back(arguments[0], batches[i].lease);
    return NULL;
}

/* Batches stay as they are while others are taken, and come back in any order and from any
 * thread. */
static void several_batches_can_be_out(void **state)
{
    (void)state;
    fth_reader *reader = open_reader((fth_reader_options){0}), *other = open_reader((fth_reader_options){0});
    fth_reader_batch out[PER_EPOCH], again;
    pthread_t thread;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < PER_EPOCH; i++)
            assert_int_equal(fth_reader_next(reader, &out[i]), FTH_OK);
        for (int i = 0; i < PER_EPOCH; i++) {
            assert_int_equal(fth_reader_next(other, &again), FTH_OK);
            assert_same_batch(&out[i], &again);
            fth_reader_give_back(other, again.lease);
        }
        void *arguments[] = {reader, out};
        assert_int_equal(pthread_create(&thread, NULL, give_all_back, arguments), 0);
        assert_int_equal(fth_reader_next(reader, &again), FTH_OK);
        fth_reader_give_back(reader, again.lease);
        pthread_join(thread, NULL);
        assert_int_equal(fth_reader_seek(reader, PER_EPOCH), FTH_OK);
    }
    assert_int_equal(fth_reader_next(reader, &again), FTH_OK); /* still out when it closes */
    fth_reader_close(reader);
    fth_reader_close(other);
}

/* Workers in turn, a place to go on at, and the end. */
static void workers_take_turns_from_anywhere(void **state)
{
    (void)state;
    fth_reader *all = open_reader((fth_reader_options){.batch_limit = 8});
    fth_reader_batch batch, expected;
    assert_int_equal(fth_reader_seek(all, 3), FTH_OK);
    fth_reader *workers[2];
    for (int w = 0; w < 2; w++)
        workers[w] = open_reader((fth_reader_options){.worker = w, .workers = 2, .first_batch = 3, .batch_limit = 8});
    for (int n = 3; n < 8; n++) {
        assert_int_equal(fth_reader_next(all, &expected), FTH_OK);
        assert_int_equal(fth_reader_next(workers[(n - 3) % 2], &batch), FTH_OK);
        assert_int_equal(batch.number, n);
        assert_same_batch(&batch, &expected);
        fth_reader_give_back(all, expected.lease);
        fth_reader_give_back(workers[(n - 3) % 2], batch.lease);
    }
    for (int w = 0; w < 2; w++) {
        assert_int_equal(fth_reader_next(workers[w], &batch), FTH_OK);
        assert_int_equal(batch.number, -1);
        fth_reader_close(workers[w]);
    }
    fth_reader_close(all);
}

/* The plan says which samples a rank's part of a batch has; by index they are the same. */
static void plans_name_the_samples_of_batches(void **state)
{
    (void)state;
    static int64_t samples[BATCH];
    static float image[PIXELS];
    int64_t seen = 0, label;
    for (int rank = 0; rank < 3; rank++) {
        fth_reader *batches = open_reader((fth_reader_options){.rank = rank, .ranks = 3});
        fth_reader *by_index = open_reader((fth_reader_options){.rank = rank, .ranks = 3, .by_index = 1});
        const fth_reader_info *info = fth_reader_get_info(by_index);
        fth_reader_batch batch;
        assert_true(info->validation == SAMPLES && info->batches_per_epoch == PER_EPOCH && info->classes == 10);
        assert_string_equal(info->class_names[9], "9");
        for (int n = 0; n < PER_EPOCH; n++) {
            assert_int_equal(fth_reader_next(batches, &batch), FTH_OK);
            assert_int_equal(fth_reader_plan_batch(&info->plan, n, samples), batch.count);
            seen += batch.count;
            for (int64_t i = 0; i < batch.count; i += 97) {
                assert_int_equal(fth_reader_get(by_index, n, samples[i], image, &label), FTH_OK);
                assert_int_equal(label, batch.labels[i]);
                assert_memory_equal(image, batch.images + i * PIXELS, sizeof image);
            }
            fth_reader_give_back(batches, batch.lease);
        }
        fth_reader_close(batches);
        fth_reader_close(by_index);
    }
    assert_int_equal(seen, SAMPLES);
}

static void mistakes_are_refused_with_a_message(void **state)
{
    (void)state;
    fth_reader *reader = NULL;
    fth_reader_batch batch;
    const fth_reader_options wrong[] = {{.batch = 0},
                                        {.batch = 30000},
                                        {.batch = 8, .rank = 2, .ranks = 2},
                                        {.batch = 8, .worker = 2, .workers = 2},
                                        {.batch = 8, .first_batch = -1},
                                        {.batch = 8, .transform = "sharpen"},
                                        {.batch = 8, .augment = "sharpen"}};
    for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++) {
        assert_int_equal(fth_reader_open("digits", &wrong[i], &reader), FTH_INVALID);
        assert_true(strlen(fth_reader_error()) > 10);
        assert_null(reader);
    }
    reader = open_reader((fth_reader_options){.by_index = 1});
    assert_int_equal(fth_reader_next(reader, &batch), FTH_INVALID);
    assert_int_equal(fth_reader_seek(reader, -1), FTH_INVALID);
    assert_string_equal(fth_reader_job(reader), "");
    char *figures = fth_reader_figures(reader);
    assert_string_equal(figures, "{}");
    fth_reader_free_text(figures);
    fth_reader_close(reader);
    fth_status status = fth_reader_check("batches://127.0.0.1:1/photos", 0.1);
    assert_true(status == FTH_PEER_LOST || status == FTH_TIMEOUT); /* on a busy machine */
    assert_non_null(strstr(fth_reader_error(), "127.0.0.1:1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_batches_can_be_out),
        cmocka_unit_test(workers_take_turns_from_anywhere),
        cmocka_unit_test(plans_name_the_samples_of_batches),
        cmocka_unit_test(mistakes_are_refused_with_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
