/* The training job's parts: its parameters, how it spends its time, and the batches of a shard. */
#include "support.h"

#include <math.h>

#include "functions/function.h"
#include "functions/shard_batches.h"
#include "functions/train_parameters.h"
#include "functions/train_time.h"

/* ---- parameters ---- */

static fth_status load(const char *text, fth_train_parameters *parameters)
{
    json_error_t error;
    json_t *value = json_loads(text, JSON_ALLOW_NUL, &error), *environment = json_object();
    if (!value)
        fail_msg("%s: %s", text, error.text);
    fth_invocation_event event = {.platform = "openwhisk",
                                  .id = "0123abc",
                                  .function = "train",
                                  .value = value,
                                  .environment = environment,
                                  .deadline_s = INFINITY};
    fth_status status = fth_train_parameters_load(&event, parameters);
    if (status == FTH_OK) { /* texts are lent: those that are looked at later stay */
        json_object_clear(environment);
        static json_t *kept;
        json_decref(kept);
        kept = json_incref(value);
    }
    json_decref(environment);
    json_decref(value);
    return status;
}

static void takes_the_prototypes_keys(void **state)
{
    fth_train_parameters p;
    (void)state;
    assert_int_equal(load("{\"batch_sz_train\":64,\"epoch_n\":3,\"apihost\":\"10.0.0.7:29500\",\"update_intv\":8,"
                          "\"dataset_url\":\"https://b/s.tar.gz?X-Amz-Signature=1\",\"device\":\"cpu\"}",
                          &p),
                     FTH_OK);
    assert_string_equal(p.server, "http://10.0.0.7:29500");
    assert_string_equal(p.dataset_url, "https://b/s.tar.gz?X-Amz-Signature=1");
    assert_string_equal(p.device, "cpu");
    assert_int_equal(p.batch, 64);
    assert_int_equal(p.epochs, 3);
    assert_int_equal(p.interval, 8);
    assert_string_equal(p.continuation.run, "0123abc");
    assert_false(p.continues_itself);
    assert_true(isnan(p.margin_s));
    fth_train_parameters_release(&p);
}

static void fills_in_what_is_not_given(void **state)
{
    fth_train_parameters p;
    (void)state;
    assert_int_equal(load("{\"apihost\":\"https://server:1\",\"epoch_n\":null,\"worker\":\"\"}", &p), FTH_OK);
    assert_string_equal(p.server, "https://server:1");
    assert_int_equal(p.batch, 32);
    assert_int_equal(p.epochs, 1);
    assert_int_equal(p.interval, 1);
    assert_null(p.worker);
    assert_null(p.dataset_url);
    assert_string_equal(p.signer.access, "");
    fth_train_parameters_release(&p);
}

/* As web requests and `wsk --param` may bring them. */
static void reads_numbers_in_strings(void **state)
{
    fth_train_parameters p;
    (void)state;
    assert_int_equal(load("{\"apihost\":\"s:1\",\"batch_sz_train\":\"64\",\"epoch_n\":\"32\",\"update_intv\":\"8\","
                          "\"margin_s\":\"0.5\"}",
                          &p),
                     FTH_OK);
    assert_int_equal(p.batch, 64);
    assert_int_equal(p.epochs, 32);
    assert_int_equal(p.interval, 8);
    assert_true(p.margin_s == 0.5);
    fth_train_parameters_release(&p);
}

/* A constant would make every invocation the same run, of which the second has nothing to do. */
static void makes_up_a_run_for_each_invocation_without_an_id(void **state)
{
    char runs[3][FTH_MAX_TRAIN_RUN + 1];
    (void)state;
    for (int i = 0; i < 3; i++) {
        json_t *value = json_pack("{s:s}", "apihost", "s:1"), *environment = json_object();
        fth_train_parameters p;
        const fth_invocation_event event = {.platform = "openwhisk",
                                            .id = i == 2 ? "not/fit" : "",
                                            .function = "",
                                            .value = value,
                                            .environment = environment,
                                            .deadline_s = INFINITY};
        assert_int_equal(fth_train_parameters_load(&event, &p), FTH_OK);
        strcpy(runs[i], p.continuation.run);
        fth_train_parameters_release(&p);
        json_decref(value);
        json_decref(environment);
        assert_int_equal(strlen(runs[i]), 32);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(runs[i], runs[j]);
    }
}

static void reads_ranges_keys_and_pins(void **state)
{
    fth_train_parameters p;
    (void)state;
    assert_int_equal(load("{\"apihost\":\"s:1\",\"range\":\"100:250\",\"access_key\":\"ak\",\"secret_key\":\"sk\","
                          "\"server_pin\":\"sha256//0123456789012345678901234567890123456789012=\",\"margin_s\":0.5,"
                          "\"continue\":\"self\",\"compress\":\"topk:0.1\"}",
                          &p),
                     FTH_OK);
    assert_string_equal(p.server, "https://s:1"); /* a pin means TLS */
    assert_int_equal(p.first, 100);
    assert_int_equal(p.count, 150);
    assert_string_equal(p.signer.access, "ak");
    assert_string_equal(p.signer.secret, "sk");
    assert_true(p.margin_s == 0.5);
    assert_true(p.continues_itself);
    fth_train_parameters_release(&p);
    assert_int_equal(load("{\"apihost\":\"s:1\",\"range\":\"7:\"}", &p), FTH_OK);
    assert_int_equal(p.first, 7);
    assert_int_equal(p.count, 0);
    assert_true(p.ranged);
    fth_train_parameters_release(&p);
}

static void names_the_key_that_is_wrong(void **state)
{
    static const char *const wrong[][2] = {
        {"\"apihost\":5", "\"apihost\""},
        {"\"apihost\":\"\"", "\"apihost\""},
        {"\"apihost\":\"ftp://s\"", "\"apihost\""},
        {"\"apihost\":\"http://\"", "\"apihost\""},
        {"\"apihost\":\"a b:1\"", "\"apihost\""},
        {"\"apihost\":\"s:1\\u0000x\"", "\"apihost\""},
        {"\"apihost\":\"s:1\\r\\nX: y\"", "\"apihost\""},
        {"\"apihost\":\"s:1\",\"batch_sz_train\":\"32x\"", "\"batch_sz_train\""},
        {"\"apihost\":\"s:1\",\"batch_sz_train\":\"\"", "\"batch_sz_train\""},
        {"\"apihost\":\"s:1\",\"batch_sz_train\":\"99999999999999999999\"", "\"batch_sz_train\""},
        {"\"apihost\":\"s:1\",\"batch_sz_train\":0", "\"batch_sz_train\""},
        {"\"apihost\":\"s:1\",\"batch_sz_train\":32.5", "\"batch_sz_train\""},
        {"\"apihost\":\"s:1\",\"batch_sz_train\":1000000000000", "\"batch_sz_train\""},
        {"\"apihost\":\"s:1\",\"epoch_n\":-1", "\"epoch_n\""},
        {"\"apihost\":\"s:1\",\"epoch_n\":true", "\"epoch_n\""},
        {"\"apihost\":\"s:1\",\"update_intv\":[1]", "\"update_intv\""},
        {"\"apihost\":\"s:1\",\"dataset_url\":{}", "\"dataset_url\""},
        {"\"apihost\":\"s:1\",\"worker\":\"a/b\"", "\"worker\""},
        {"\"apihost\":\"s:1\",\"range\":\"5\"", "\"range\""},
        {"\"apihost\":\"s:1\",\"range\":\"9:5\"", "\"range\""},
        {"\"apihost\":\"s:1\",\"range\":\"-1:5\"", "\"range\""},
        {"\"apihost\":\"s:1\",\"range\":\"0:99999999999999999999\"", "\"range\""},
        {"\"apihost\":\"s:1\",\"margin_s\":\"1s\"", "\"margin_s\""},
        {"\"apihost\":\"s:1\",\"margin_s\":-1", "\"margin_s\""},
        {"\"apihost\":\"s:1\",\"compress\":\"zip\"", "\"compress\""},
        {"\"apihost\":\"s:1\",\"server_pin\":\"nonsense\"", "\"server_pin\""},
        {"\"apihost\":\"http://s:1\",\"server_pin\":\"sha256//0123456789012345678901234567890123456789012=\"", "https"},
        {"\"apihost\":\"s:1\",\"access_key\":\"a\"", "\"secret_key\""},
        {"\"apihost\":\"s:1\",\"continue\":\"others\"", "\"continue\""},
        {"\"apihost\":\"s:1\",\"run\":\"a b\"", "\"run\""},
        {"\"apihost\":\"s:1\",\"continuation\":5", "\"continuation\""},
        {"\"apihost\":\"s:1\",\"continuation\":{\"idle\":-1}", "\"idle\""},
        {"\"apihost\":\"s:1\",\"continuation\":{\"run\":\"../x\"}", "\"continuation\""},
    };
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++) {
        fth_train_parameters p;
        char text[512];
        snprintf(text, sizeof text, "{%s}", wrong[i][0]);
        if (load(text, &p) != FTH_INVALID)
            fail_msg("%s: taken", text);
        assert_message_of(text, wrong[i][1]);
    }
}

static void never_shows_secrets(void **state)
{
    static const char *const wrong[] = {
        "{\"apihost\":\"s:1\",\"access_key\":\"TOPSECRET\"}",
        "{\"apihost\":\"s:1\",\"secret_key\":\"TOPSECRET\"}",
        "{\"apihost\":\"s:1\",\"access_key\":\"x\",\"secret_key\":[\"TOPSECRET\"]}",
        "{\"apihost\":\"ftp://user:TOPSECRET@s\"}",
        "{\"apihost\":\"s:1\",\"dataset_url\":[\"https://b/x?X-Amz-Signature=TOPSECRET\"]}",
    };
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++) {
        fth_train_parameters p;
        assert_int_equal(load(wrong[i], &p), FTH_INVALID);
        assert_null(strstr(fth_error_message(), "TOPSECRET"));
    }
}

static void a_continuation_comes_back_as_it_was(void **state)
{
    const fth_train_continuation before = {.run = "first", .invocations = 7, .version = 1234, .idle = 2};
    fth_train_parameters p;
    json_t *value = json_pack("{s:s, s:s, s:o}", "apihost", "s:1", "run", "other", "continuation",
                              fth_train_continuation_save(&before));
    char *text = json_dumps(value, 0);
    (void)state;
    assert_int_equal(load(text, &p), FTH_OK);
    assert_string_equal(p.continuation.run, "first");
    assert_int_equal(p.continuation.invocations, 7);
    assert_int_equal(p.continuation.version, 1234);
    assert_int_equal(p.continuation.idle, 2);
    fth_train_parameters_release(&p);
    free(text);
    json_decref(value);
}

/* ---- time ---- */

static void keeps_a_margin(void **state)
{
    fth_train_time time = {.began_s = 100, .deadline_s = 400, .asked_margin_s = NAN};
    (void)state;
    assert_true(fabs(fth_train_time_margin(&time) - 0.2) < 1e-9); /* the least */
    fth_train_time_note_push(&time, 1.5);
    assert_true(fabs(fth_train_time_margin(&time) - 3) < 1e-9); /* two pushes */
    fth_train_time_note_push(&time, 100);
    assert_true(fabs(fth_train_time_margin(&time) - 30) < 1e-9); /* a tenth of the time */
    time.deadline_s = 101;
    assert_true(fabs(fth_train_time_margin(&time) - 0.1) < 1e-9);
    time.deadline_s = 99; /* it is over */
    assert_true(fth_train_time_margin(&time) == 0);
    time.asked_margin_s = 2;
    assert_true(fth_train_time_margin(&time) == 2);
    assert_true(fth_train_time_push_end(&time) == time.deadline_s - 1);
    time.deadline_s = INFINITY;
    assert_true(isinf(fth_train_time_end(&time)));
    assert_true(fth_train_time_fits_batch(&time, 1e12));
}

static void starts_nothing_that_would_end_too_late(void **state)
{
    fth_train_time time = {.began_s = 0, .deadline_s = 10, .asked_margin_s = 1};
    (void)state;
    fth_train_time_note_batch(&time, 0.5);
    fth_train_time_note_push(&time, 1);
    assert_true(fth_train_time_fits_batch(&time, 7.4));
    assert_false(fth_train_time_fits_batch(&time, 7.6));
    assert_false(fth_train_time_fits_batch(&time, 11));
    for (int i = 0; i < 100; i++) { /* one that was slow is forgotten */
        fth_train_time_note_batch(&time, 0.1);
        fth_train_time_note_push(&time, 0.1);
    }
    assert_true(fth_train_time_fits_batch(&time, 8.7));
    assert_false(fth_train_time_fits_batch(&time, 8.9));
}

/* ---- batches ---- */

/* Every sample of the shard once an epoch, whatever the batches; with its label; in another order
 * in the next epoch. */
static void gives_each_sample_once_an_epoch(void **state)
{
    fth_dataset *set = NULL;
    (void)state;
    assert_int_equal(
        fth_dataset_open("digits", &(fth_dataset_options){.validation_fraction = 0.2, .threads = 1, .seed = 1}, &set),
        FTH_OK);
    enum { SAMPLES = 300, PIXELS = 8192 };
    const fth_dataset_info *info = fth_dataset_get_info(set);
    const size_t pixels = (size_t)(info->channels * info->height * info->width);
    fth_shard_lease lease = {.shard = "part-1", .samples = SAMPLES, .to = SAMPLES, .seed = 5};
    fth_sampler sampler = fth_shard_sampler(5, "part-1", SAMPLES);
    int64_t orders[2][SAMPLES];
    assert_true(pixels <= PIXELS);
    for (lease.epoch = 0; lease.epoch < 2; lease.epoch++) {
        fth_shard_batches *batches = NULL;
        int seen[SAMPLES] = {0};
        int64_t first_number = -1;
        assert_int_equal(fth_shard_batches_open(set, &lease, 32, &batches), FTH_OK);
        for (int64_t position = 0; position < SAMPLES;) {
            fth_batch batch;
            int64_t count = SAMPLES - position < 32 ? SAMPLES - position : position == 0 ? 7 : 32;
            assert_int_equal(fth_shard_batches_get(batches, position, count, &batch), FTH_OK);
            assert_int_equal(batch.count, count);
            assert_true(first_number < 0 || batch.number > first_number);
            first_number = batch.number;
            for (int64_t i = 0; i < count; i++) {
                int64_t sample = fth_sampler_index(&sampler, lease.epoch, position + i);
                uint8_t raw[PIXELS];
                int32_t label;
                float scale, shift;
                fth_dataset_normalization(info, 0, &scale, &shift);
                assert_int_equal(fth_dataset_read(set, FTH_TRAIN, sample, raw, &label), FTH_OK);
                assert_int_equal(batch.labels[i], label);
                for (size_t j = 0; j < (size_t)(info->height * info->width); j++)
                    assert_true(fabsf(batch.images[(size_t)i * pixels + j] - (raw[j] * scale + shift)) < 1e-5f);
                orders[lease.epoch][position + i] = sample;
                seen[sample]++;
            }
            position += count;
        }
        for (int i = 0; i < SAMPLES; i++)
            assert_int_equal(seen[i], 1);
        fth_shard_batches_free(batches);
    }
    assert_memory_not_equal(orders[0], orders[1], sizeof orders[0]);
    fth_dataset_free(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_the_prototypes_keys),
        cmocka_unit_test(fills_in_what_is_not_given),
        cmocka_unit_test(reads_numbers_in_strings),
        cmocka_unit_test(makes_up_a_run_for_each_invocation_without_an_id),
        cmocka_unit_test(reads_ranges_keys_and_pins),
        cmocka_unit_test(names_the_key_that_is_wrong),
        cmocka_unit_test(never_shows_secrets),
        cmocka_unit_test(a_continuation_comes_back_as_it_was),
        cmocka_unit_test(keeps_a_margin),
        cmocka_unit_test(starts_nothing_that_would_end_too_late),
        cmocka_unit_test(gives_each_sample_once_an_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
