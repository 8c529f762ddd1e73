/* A log of an older version, which took whatever was finite: going on from it leaves out what would
 * ruin the model. */
#include "support.h"

#include <math.h>
#include <string.h>

#include "parameters/parameters.h"
#include "parameters/wal.h"

typedef struct state {
    fth_train_options train;
    fth_parameters_options options;
    char folder[400], runs[400];
} state;

static void prepare(state *s)
{
    memset(s, 0, sizeof *s);
    snprintf(s->folder, sizeof s->folder, "%s/state", test_folder);
    snprintf(s->runs, sizeof s->runs, "%s/runs", test_folder);
    assert_int_equal(fth_options_set_defaults(&fth_train_option_table, &s->train), FTH_OK);
    json_t *json = json_pack("{s:s, s:s, s:s, s:f, s:f, s:f}", "model", "linear", "runs", s->runs, "optimizer", "sgd",
                             "lr", 1.0, "momentum", 0.0, "weight-decay", 0.0);
    assert_int_equal(fth_options_from_json(&fth_train_option_table, &s->train, json, "the test"), FTH_OK);
    json_decref(json);
    s->options = (fth_parameters_options){.train = &s->train,
                                          .channels = 1,
                                          .height = 2,
                                          .width = 2,
                                          .classes = 2,
                                          .consistency = {FTH_CONSISTENCY_ASYNC, 0},
                                          .lease_s = 600,
                                          .durability = FTH_DURABILITY_KILL,
                                          .checkpoints = s->folder};
}

/* Starts it and stops it again; gives its version, and its weights as they are saved at the end. */
static int64_t run_server(const state *s, float *first_weight)
{
    fth_parameters *server = NULL;
    fth_safetensors *file = NULL;
    char path[1000];
    assert_int_equal(fth_parameters_start(&s->options, &server), FTH_OK);
    int64_t version = fth_parameters_version(server);
    snprintf(path, sizeof path, "%s/last.safetensors", fth_parameters_get_facts(server).run_folder);
    assert_int_equal(fth_parameters_stop(server, false), FTH_OK);
    assert_int_equal(fth_safetensors_open(path, &file), FTH_OK);
    for (size_t i = 0; i < fth_safetensors_count(file); i++) {
        const fth_tensor_view *view = fth_safetensors_get(file, i);
        float values[16];
        size_t count = (size_t)fth_shape_count(&view->shape);
        assert_int_equal(fth_tensor_view_to_f32(view, values, count), FTH_OK);
        for (size_t j = 0; j < count; j++)
            assert_true(fabsf(values[j]) < 100);
        if (strstr(view->name, "weight"))
            *first_weight = values[0];
    }
    fth_safetensors_free(file);
    return version;
}

static fth_status nothing_to_replay(void *context, const fth_log_record *record)
{
    (void)context, (void)record;
    return FTH_CORRUPT;
}

static int64_t begin_at(void *context)
{
    return *(int64_t *)context;
}

static void append(fth_wal *wal, fth_log_kind kind, uint32_t flags, int64_t version, const void *body, size_t size)
{
    fth_log_record record = {
        .kind = kind, .flags = flags, .version = version, .rate = 1, .body = body, .body_bytes = size};
    assert_int_equal(fth_wal_append(wal, &record), FTH_OK);
}

/* A gradient of `value` throughout, as a file. */
static void push(fth_wal *wal, uint32_t flags, int64_t version, int sequence, float value, const char *samples)
{
    float values[8];
    char number[16], made_of[16], path[400], *body = NULL;
    size_t size = 0;
    fth_file *file = NULL;
    for (size_t i = 0; i < FTH_COUNT_OF(values); i++)
        values[i] = value;
    snprintf(number, sizeof number, "%d", sequence);
    snprintf(made_of, sizeof made_of, "%lld", (long long)version);
    snprintf(path, sizeof path, "%s/gradient", test_folder);
    fth_metadata_entry metadata[] = {
        {"worker", "old"}, {"sequence", number}, {"version", made_of}, {"samples", samples}};
    fth_tensor_view views[] = {{"fc.weight", FTH_F32, FTH_SHAPE(2, 4), values},
                               {"fc.bias", FTH_F32, FTH_SHAPE(2), values}};
    assert_int_equal(fth_file_create(path, &file), FTH_OK);
    assert_int_equal(fth_safetensors_write(file, views, FTH_COUNT_OF(views), metadata, FTH_COUNT_OF(metadata)), FTH_OK);
    assert_int_equal(fth_file_publish(file), FTH_OK);
    fth_file_free(file);
    assert_int_equal(fth_file_read_all(path, 1 << 20, &body, &size), FTH_OK);
    append(wal, FTH_LOG_GRADIENT, flags, version, body, size);
    free(body);
}

static void test_an_old_log_does_not_poison(void **unused)
{
    (void)unused;
    state s;
    float before = 0, after = 0;
    int64_t version = 0;
    fth_wal *wal = NULL;

    prepare(&s);
    assert_int_equal(run_server(&s, &before), 0);
    assert_int_equal(
        fth_wal_open(s.folder, false, 1 << 20, &(fth_wal_reader){nothing_to_replay, begin_at, &version}, &wal), FTH_OK);
    static const char worker[] = "{\"worker\":\"old\",\"instance\":\"i\",\"access\":\"\"}";
    append(wal, FTH_LOG_REGISTER, 0, 0, worker, strlen(worker));
    push(wal, FTH_LOG_STEPS, 0, 1, 1, "1");
    push(wal, FTH_LOG_STEPS, 1, 2, 3e38f, "1"); /* ruins all that follows */
    push(wal, FTH_LOG_STEPS, 2, 3, 1, "1");
    push(wal, FTH_LOG_AVERAGED, 3, 4, 3e38f, "2147483648");    /* a step of two, one of them bad */
    push(wal, FTH_LOG_AVERAGED | FTH_LOG_STEPS, 3, 5, 1, "5"); /* and the other not */
    push(wal, FTH_LOG_AVERAGED, 4, 6, -3e38f, "7");            /* all of a step's */
    append(wal, FTH_LOG_STEP, 0, 4, NULL, 0);                  /* whose last worker left */
    push(wal, FTH_LOG_STEPS | FTH_LOG_CHECKED, 5, 7, 1, "1");
    fth_wal_free(wal);
    assert_int_equal(run_server(&s, &after), 6);
    assert_true(fabsf(after - (before - 4)) < 1e-5f);
    assert_int_equal(run_server(&s, &before), 6); /* from the checkpoint by now */
    assert_true(before == after);
    fth_options_release(&fth_train_option_table, &s.train);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_an_old_log_does_not_poison, test_make_folder, test_remove_folder),
    };
    fth_log_set_level(FTH_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
