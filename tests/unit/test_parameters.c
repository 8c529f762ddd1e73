/* The parts of the parameter server: gradients and their checks, the log, the list of workers, the
 * dial. */
#include "support.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "http/request_limit.h"
#include "model/model.h"
#include "parameters/client.h"
#include "parameters/gradient.h"
#include "parameters/local.h"
#include "parameters/parameters.h"
#include "parameters/wal.h"
#include "parameters/workers.h"

/* ---- gradients ---- */

typedef struct fixture {
    fth_graph *graph;
    fth_layout *layout;
    float *values; /* as many as the largest tensor has */
} fixture;

static fixture open_fixture(const char *name, int channels, int side)
{
    fixture f = {0};
    const fth_model *model = NULL;
    assert_int_equal(fth_model_find(name, &model), FTH_OK);
    fth_model_options options = {.channels = channels, .height = side, .width = side, .classes = 10};
    assert_int_equal(fth_model_create_graph(model, &options, &f.graph), FTH_OK);
    assert_int_equal(fth_layout_create(f.graph, &f.layout), FTH_OK);
    f.values = calloc(f.layout->packed_floats, sizeof *f.values);
    for (uint64_t i = 0; i < f.layout->packed_floats; i++)
        f.values[i] = (float)(i % 1000) - 300;
    return f;
}

static void close_fixture(fixture *f)
{
    fth_layout_free(f->layout);
    fth_graph_free(f->graph);
    free(f->values);
}

typedef struct draft {
    fth_tensor_view views[64];
    size_t count;
    fth_metadata_entry metadata[8];
    size_t metadata_count;
} draft;

static draft good_draft(const fixture *f, bool buffers)
{
    draft d = {.metadata = {{"worker", "w.1"}, {"sequence", "3"}, {"version", "7"}, {"samples", "64"}},
               .metadata_count = 4};
    for (int i = 0; i < f->layout->count; i++) {
        bool wanted = i < f->layout->trained || (buffers && i >= f->layout->parameters);
        const fth_layout_tensor *t = &f->layout->tensors[i];
        if (wanted)
            d.views[d.count++] = (fth_tensor_view){t->name, FTH_F32, t->shape, f->values + t->packed_offset};
    }
    return d;
}

static fth_refusal parse(const fixture *f, const draft *d, fth_gradient *gradient, char **bytes)
{
    char path[300], message[FTH_MAX_REFUSAL] = "";
    fth_file *file = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/gradient", test_folder);
    assert_int_equal(fth_file_create(path, &file), FTH_OK);
    assert_int_equal(fth_safetensors_write(file, d->views, d->count, d->metadata, d->metadata_count), FTH_OK);
    assert_int_equal(fth_file_publish(file), FTH_OK);
    fth_file_free(file);
    assert_int_equal(fth_file_read_all(path, 1 << 24, bytes, &size), FTH_OK);
    fth_refusal refusal = fth_gradient_parse(f->layout, *bytes, size, gradient, message);
    assert_true((refusal == FTH_REFUSAL_NONE) == !*message);
    return refusal;
}

static void expect_refusal(const fixture *f, const draft *d, fth_refusal expected)
{
    fth_gradient gradient;
    char *bytes = NULL;
    assert_int_equal(parse(f, d, &gradient, &bytes), expected);
    fth_gradient_release(&gradient);
    free(bytes);
}

static void test_dense_gradients(void **state)
{
    (void)state;
    fixture f = open_fixture("resnet18", 3, 32);
    assert_true(f.layout->count > f.layout->parameters);
    fixture small = open_fixture("cifar-cnn", 3, 32);
    draft d = good_draft(&small, false);
    d.metadata[d.metadata_count++] = (fth_metadata_entry){"loss", "0.5"};
    d.metadata[d.metadata_count++] = (fth_metadata_entry){"correct", "60"};
    fth_gradient gradient;
    char *bytes = NULL;
    assert_int_equal(parse(&small, &d, &gradient, &bytes), FTH_REFUSAL_NONE);
    assert_string_equal(gradient.worker, "w.1");
    assert_int_equal(gradient.sequence, 3);
    assert_int_equal(gradient.version, 7);
    assert_int_equal(gradient.samples, 64);
    assert_int_equal(gradient.correct, 60);
    assert_true(gradient.loss == 0.5);
    float *sum = calloc(small.layout->trained_floats, sizeof *sum);
    fth_gradient_add(small.layout, &gradient, 2, true, sum);
    fth_gradient_add(small.layout, &gradient, 1, false, sum);
    for (int i = 0; i < small.layout->trained; i++) {
        const fth_layout_tensor *t = &small.layout->tensors[i];
        for (int64_t j = 0; j < t->count; j++)
            assert_true(sum[t->vector_offset + (size_t)j] == 3 * small.values[t->packed_offset + (uint64_t)j]);
    }
    free(sum);
    fth_gradient_release(&gradient);
    free(bytes);
    close_fixture(&small);
    close_fixture(&f);
}

static void test_small_types_and_positions(void **state)
{
    (void)state;
    fixture f = open_fixture("linear", 1, 8);
    draft d = good_draft(&f, false);
    const fth_layout_tensor *first = &f.layout->tensors[0], *second = &f.layout->tensors[1];
    assert_int_equal(f.layout->trained, 2);
    uint16_t *bf16 = malloc((size_t)first->count * 2);
    for (int64_t i = 0; i < first->count; i++)
        bf16[i] = i % 2 ? 0x3f80 : 0xc000; /* 1, -2 */
    uint32_t indices[] = {0, 3, (uint32_t)second->count - 1};
    uint16_t f16[] = {0x3c00, 0xbc00, 0x4000}; /* 1, -1, 2 */
    char indices_name[128], values_name[128];
    snprintf(indices_name, sizeof indices_name, "%s.indices", second->name);
    snprintf(values_name, sizeof values_name, "%s.values", second->name);
    d.views[0] = (fth_tensor_view){first->name, FTH_BF16, first->shape, bf16};
    d.views[1] = (fth_tensor_view){indices_name, FTH_U32, FTH_SHAPE(3), indices};
    d.views[2] = (fth_tensor_view){values_name, FTH_F16, FTH_SHAPE(3), f16};
    d.count = 3;
    fth_gradient gradient;
    char *bytes = NULL;
    assert_int_equal(parse(&f, &d, &gradient, &bytes), FTH_REFUSAL_NONE);
    float *sum = malloc(f.layout->trained_floats * sizeof *sum);
    for (size_t i = 0; i < f.layout->trained_floats; i++)
        sum[i] = 5;
    fth_gradient_add(f.layout, &gradient, 1, true, sum);
    fth_gradient_add(f.layout, &gradient, 0.5f, false, sum);
    assert_true(sum[first->vector_offset] == -3 && sum[first->vector_offset + 1] == 1.5f);
    for (int64_t i = 0; i < second->count; i++) {
        float expected = i == 0 ? 1.5f : i == 3 ? -1.5f : i == second->count - 1 ? 3 : 0;
        assert_true(sum[second->vector_offset + (size_t)i] == expected);
    }
    free(sum);
    fth_gradient_release(&gradient);
    free(bytes);

    draft bad = d; /* not ascending */
    indices[1] = 0;
    expect_refusal(&f, &bad, FTH_REFUSAL_SHAPE);
    indices[1] = (uint32_t)second->count;
    expect_refusal(&f, &bad, FTH_REFUSAL_SHAPE);
    indices[1] = UINT32_MAX;
    bad.views[1].dtype = FTH_I32;
    expect_refusal(&f, &bad, FTH_REFUSAL_SHAPE);
    indices[1] = 3;
    bad.views[1].dtype = FTH_F32;
    expect_refusal(&f, &bad, FTH_REFUSAL_DTYPE);
    bad = d;
    bad.count = 2; /* positions without values */
    expect_refusal(&f, &bad, FTH_REFUSAL_NAMES);
    bad.views[1] = d.views[2]; /* and the other way round */
    expect_refusal(&f, &bad, FTH_REFUSAL_NAMES);
    bad = d;
    bad.views[bad.count++] = good_draft(&f, false).views[1]; /* both ways at once */
    expect_refusal(&f, &bad, FTH_REFUSAL_NAMES);
    bad = d;
    bad.views[2].shape = FTH_SHAPE(2);
    expect_refusal(&f, &bad, FTH_REFUSAL_SHAPE);
    bad = d;
    f16[1] = 0x7c00;
    expect_refusal(&f, &bad, FTH_REFUSAL_NOT_FINITE);
    f16[1] = 0;
    bf16[first->count - 1] = 0xff80;
    expect_refusal(&f, &bad, FTH_REFUSAL_NOT_FINITE);
    free(bf16);
    close_fixture(&f);
}

/* However small it travels, a gradient that is not finite arrives as one, and is refused. */
static void test_not_finite_however_encoded(void **state)
{
    (void)state;
    static const char *const ways[] = {"none", "f16", "bf16", "topk:0.01"};
    const float bad[] = {NAN, INFINITY, -INFINITY};
    fixture f = open_fixture("linear", 1, 8);
    float *gradients = calloc(f.layout->trained_floats, sizeof *gradients);
    for (size_t i = 0; i < FTH_COUNT_OF(ways) * FTH_COUNT_OF(bad); i++) {
        fth_encoder *encoder = NULL;
        fth_gradient gradient;
        char message[FTH_MAX_REFUSAL] = "";
        fth_push_body body = {0};
        fth_encoder_facts facts = {.worker = "w", .sequence = 1, .samples = 1, .loss = 1};
        assert_int_equal(fth_encoder_create(f.layout, ways[i / FTH_COUNT_OF(bad)], &encoder), FTH_OK);
        gradients[3] = bad[i % FTH_COUNT_OF(bad)];
        assert_int_equal(fth_encoder_take(encoder, gradients, NULL), FTH_OK);
        assert_int_equal(fth_encoder_make(encoder, &facts, &body), FTH_OK);
        assert_int_equal(fth_gradient_parse(f.layout, body.bytes, body.size_bytes, &gradient, message),
                         FTH_REFUSAL_NOT_FINITE);
        fth_gradient_release(&gradient);
        gradients[3] = 1e6f; /* finite, and more than f16 has: it comes in parts */
        assert_int_equal(fth_encoder_take(encoder, gradients, NULL), FTH_OK);
        assert_int_equal(fth_encoder_make(encoder, &facts, &body), FTH_OK);
        assert_int_equal(fth_gradient_parse(f.layout, body.bytes, body.size_bytes, &gradient, message),
                         FTH_REFUSAL_NONE);
        fth_gradient_release(&gradient);
        fth_encoder_free(encoder);
    }
    free(gradients);
    close_fixture(&f);
}

static void test_refused_gradients(void **state)
{
    (void)state;
    fixture f = open_fixture("mnist-cnn", 1, 28);
    draft d = good_draft(&f, false);
    const struct {
        int entry;
        const char *value;
    } bad_metadata[] = {{0, ""},   {0, "a b"}, {0, "\xc3\xa4"}, {1, "0"}, {1, "-1"},  {1, "99999999999999999999"},
                        {1, "1x"}, {2, ""},    {2, "-0"},       {3, "0"}, {3, "1e3"}, {3, "nan"}};
    for (size_t i = 0; i < FTH_COUNT_OF(bad_metadata); i++) {
        draft bad = d;
        bad.metadata[bad_metadata[i].entry].value = bad_metadata[i].value;
        expect_refusal(&f, &bad, FTH_REFUSAL_MALFORMED);
    }
    for (size_t i = 0; i < 4; i++) {
        draft bad = d;
        bad.metadata[i] = bad.metadata[3];
        bad.metadata_count = 3;
        if (i < 3)
            expect_refusal(&f, &bad, FTH_REFUSAL_MALFORMED);
    }
    draft bad = d;
    bad.metadata[bad.metadata_count++] = (fth_metadata_entry){"loss", "inf"};
    expect_refusal(&f, &bad, FTH_REFUSAL_NOT_FINITE);
    bad = d;
    bad.count--;
    expect_refusal(&f, &bad, FTH_REFUSAL_NAMES);
    bad = d;
    bad.views[bad.count] = bad.views[0];
    bad.views[bad.count++].name = "stranger.weight";
    expect_refusal(&f, &bad, FTH_REFUSAL_NAMES);
    bad = d;
    bad.views[0].shape.dims[0]++;
    expect_refusal(&f, &bad, FTH_REFUSAL_SHAPE);
    bad = d;
    bad.views[0].dtype = FTH_I32;
    expect_refusal(&f, &bad, FTH_REFUSAL_DTYPE);
    for (int i = 0; i < f.layout->trained; i++) {
        const float bads[] = {NAN, INFINITY, -INFINITY};
        float *value = &f.values[f.layout->tensors[i].packed_offset + (uint64_t)f.layout->tensors[i].count - 1];
        float before = *value;
        *value = bads[i % 3];
        expect_refusal(&f, &d, FTH_REFUSAL_NOT_FINITE);
        *value = before;
    }
    fth_gradient gradient;
    char message[FTH_MAX_REFUSAL];
    assert_int_equal(fth_gradient_parse(f.layout, "", 0, &gradient, message), FTH_REFUSAL_MALFORMED);
    fth_gradient_release(&gradient);
    close_fixture(&f);
}

static void test_layout_header(void **state)
{
    (void)state;
    fixture f = open_fixture("resnet18", 3, 32);
    char *bytes = NULL;
    size_t size = 0;
    fth_metadata_entry metadata[] = {{"version", "12"}};
    assert_int_equal(fth_layout_describe(f.layout, metadata, 1, &bytes, &size), FTH_OK);
    assert_int_equal(size % 64, 0);
    size_t whole = size + f.layout->packed_floats * sizeof(float);
    bytes = realloc(bytes, whole);
    memcpy(bytes + size, f.values, whole - size);
    fth_safetensors *tensors = NULL;
    assert_int_equal(fth_safetensors_parse(bytes, whole, "test", &tensors), FTH_OK);
    assert_string_equal(fth_safetensors_metadata(tensors, "version"), "12");
    assert_int_equal(fth_safetensors_count(tensors), f.layout->count);
    for (int i = 0; i < f.layout->count; i++) {
        const fth_layout_tensor *t = &f.layout->tensors[i];
        const fth_tensor_view *view = fth_safetensors_find(tensors, t->name);
        assert_non_null(view);
        assert_true(fth_shape_equal(&view->shape, &t->shape));
        assert_ptr_equal(view->data, bytes + size + t->packed_offset * sizeof(float));
        assert_int_equal(fth_layout_find(f.layout, t->name, strlen(t->name)), i);
    }
    assert_int_equal(fth_layout_find(f.layout, "conv1.weigh", 11), -1);
    fth_safetensors_free(tensors);
    free(bytes);
    close_fixture(&f);
}

/* ---- the log ---- */

typedef struct reading {
    int64_t version;
    int records;
    uint64_t bytes;
} reading;

static fth_status count_record(void *context, const fth_log_record *record)
{
    reading *r = context;
    if (record->kind == FTH_LOG_GRADIENT) {
        for (uint64_t i = 0; i < record->body_bytes; i++)
            assert_int_equal(((const char *)record->body)[i], (char)(record->version + (int64_t)i));
        r->version++;
    }
    r->records++;
    r->bytes += record->body_bytes;
    return FTH_OK;
}

static int64_t reading_version(void *context)
{
    return ((reading *)context)->version;
}

static fth_wal *open_log(reading *r, fth_status expected)
{
    fth_wal *wal = NULL;
    assert_int_equal(
        fth_wal_open(test_folder, false, 8 << 20, &(fth_wal_reader){count_record, reading_version, r}, &wal), expected);
    return wal;
}

static void add_record(fth_wal *wal, int64_t version, size_t size)
{
    char *body = malloc(size + 1);
    for (size_t i = 0; i < size; i++)
        body[i] = (char)(version + (int64_t)i);
    assert_int_equal(fth_wal_append(wal, &(fth_log_record){FTH_LOG_GRADIENT, 1, version, 0.5, body, size, NULL}),
                     FTH_OK);
    free(body);
}

static off_t size_of(const char *name)
{
    char path[400];
    struct stat facts;
    snprintf(path, sizeof path, "%s/%s", test_folder, name);
    return stat(path, &facts) == 0 ? facts.st_size : -1;
}

static void test_log(void **state)
{
    (void)state;
    reading r = {0};
    fth_wal *wal = open_log(&r, FTH_OK);
    for (int64_t v = 0; v < 10; v++)
        add_record(wal, v, (size_t)(v * 1000));
    assert_int_equal(fth_wal_append(wal, &(fth_log_record){.kind = FTH_LOG_STEP, .version = 10}), FTH_OK);
    fth_wal_free(wal);

    r = (reading){0};
    wal = open_log(&r, FTH_OK);
    assert_int_equal(r.version, 10);
    assert_int_equal(r.records, 11);
    assert_int_equal(r.bytes, 45000);
    assert_int_equal(fth_wal_rotate(wal, 10), FTH_OK);
    add_record(wal, 10, 77);
    fth_wal_free(wal);

    r = (reading){0}; /* both, from the beginning */
    fth_wal_free(open_log(&r, FTH_OK));
    assert_int_equal(r.version, 11);
    r = (reading){.version = 10}; /* from the checkpoint: the older one goes */
    fth_wal_free(open_log(&r, FTH_OK));
    assert_int_equal(r.version, 11);
    assert_int_equal(r.records, 1);
    assert_int_equal(size_of("log-000000000000.wal"), -1);
    assert_int_equal(size_of("log-recycled.tmp"), -1); /* nor is it kept for a next log, with nobody to write one */
    wal = open_log(&(reading){.version = 10}, FTH_OK); /* a rotation, a worker that came, and then a kill */
    assert_int_equal(fth_wal_rotate(wal, 11), FTH_OK);
    assert_int_equal(fth_wal_append(wal, &(fth_log_record){.kind = FTH_LOG_REGISTER, .version = 11}), FTH_OK);
    fth_wal_free(wal);
    wal = open_log(&(reading){.version = 10}, FTH_OK);
    assert_int_equal(fth_wal_rotate(wal, 11), FTH_OK); /* the checkpoint is tried again, and killed again */
    fth_wal_free(wal);
    r = (reading){.version = 10};
    fth_wal_free(open_log(&r, FTH_OK));
    assert_int_equal(r.records, 2);
    r = (reading){.version = 5}; /* a checkpoint that is too old: versions are missing */
    assert_null(open_log(&r, FTH_CORRUPT));
    r = (reading){0};
    assert_null(open_log(&r, FTH_CORRUPT));
}

/* Cut or changed at any byte: what is before is there, what is after never is. */
static void test_torn_log(void **state)
{
    (void)state;
    reading r = {0};
    fth_wal *wal = open_log(&r, FTH_OK);
    for (int64_t v = 0; v < 3; v++)
        add_record(wal, v, 50);
    fth_wal_free(wal);
    char path[400], *bytes = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/log-000000000000.wal", test_folder);
    assert_int_equal(fth_file_read_all(path, 1 << 20, &bytes, &size), FTH_OK);
    size_t record = size / 3;
    for (size_t cut = 0; cut < size; cut++) {
        for (int change = 0; change < 2; change++) {
            if (change)
                bytes[cut] ^= 1;
            FILE *file = fopen(path, "w");
            fwrite(bytes, 1, change ? size : cut, file);
            fclose(file);
            if (change)
                bytes[cut] ^= 1;
            r = (reading){0};
            /* A body that is not what was written, and more after it: not a write that was cut
             * short. */
            bool damaged = change && cut / record < 2 && cut % record >= record - 50;
            wal = open_log(&r, damaged ? FTH_CORRUPT : FTH_OK);
            assert_int_equal(r.version, cut / record);
            if (damaged)
                continue;
            assert_int_equal(fth_wal_size_bytes(wal), cut / record * record);
            if (cut % 40 == 0)
                add_record(wal, r.version, 5);
            fth_wal_free(wal);
        }
    }
    free(bytes);
}

/* ---- workers ---- */

static void test_workers(void **state)
{
    (void)state;
    fth_workers *workers = NULL, *again = NULL;
    char name[32];
    const fth_workers_options options = {.lease_s = 30};
    fth_worker worker;
    assert_int_equal(fth_workers_create(&options, &workers), FTH_OK);
    for (int i = 0; i < FTH_MAX_WORKERS; i++) {
        snprintf(name, sizeof name, "w%d", i);
        assert_true(fth_workers_join(workers, name, "x", ""));
        fth_workers_note_push(workers, name, &(fth_accepted_push){.sequence = i}, NULL);
    }
    assert_int_equal(fth_workers_live(workers), FTH_MAX_WORKERS);
    assert_false(fth_workers_join(workers, "one-more", "x", ""));
    fth_workers_leave(workers, "w7");
    fth_workers_leave(workers, "w3");
    assert_true(fth_workers_join(workers, "one-more", "x", ""));
    assert_false(fth_workers_get(workers, "w7", NULL)); /* gone longest */
    assert_true(fth_workers_get(workers, "w3", &worker));
    assert_int_equal(worker.sequence, 3);
    assert_int_equal(fth_workers_most_live(workers), FTH_MAX_WORKERS);

    json_t *json = fth_workers_to_json(workers);
    assert_int_equal(fth_workers_create(&options, &again), FTH_OK);
    assert_int_equal(fth_workers_from_json(again, json), FTH_OK);
    assert_int_equal(fth_workers_live(again), fth_workers_live(workers));
    assert_int_equal(fth_workers_most_live(again), FTH_MAX_WORKERS);
    for (int i = 0; i < FTH_MAX_WORKERS; i++) {
        snprintf(name, sizeof name, "w%d", i);
        fth_worker other;
        bool known = fth_workers_get(workers, name, &worker);
        assert_true(fth_workers_get(again, name, &other) == known);
        if (known)
            assert_true(worker.live == other.live && worker.sequence == other.sequence &&
                        worker.touched == other.touched);
    }
    json_decref(json);
    json = json_pack("{s:[{s:s}]}", "list", "name", "x");
    assert_int_equal(fth_workers_from_json(again, json), FTH_CORRUPT);
    json_decref(json);
    fth_workers_free(workers);
    fth_workers_free(again);
}

static void test_leases(void **state)
{
    (void)state;
    fth_workers *workers = NULL;
    char name[FTH_MAX_WORKER_NAME + 1];
    bool ended = false;
    double now = fth_clock_seconds(), next = INFINITY;
    assert_int_equal(fth_workers_create(&(fth_workers_options){.lease_s = 30, .keyed = true}, &workers), FTH_OK);
    assert_true(fth_workers_join(workers, "a", "1", "key-a"));
    assert_true(fth_workers_join(workers, "b", "1", "key-b"));
    assert_true(fth_workers_renew(workers, "a", "key-a"));
    assert_false(fth_workers_renew(workers, "a", "key-b"));
    assert_false(fth_workers_renew(workers, "c", "key-a"));
    assert_false(fth_workers_find_expired(workers, now, name, &ended, &next));
    assert_true(next >= now + 30 && next < now + 60);
    assert_true(fth_workers_end_lease(workers, "b"));
    assert_true(fth_workers_find_expired(workers, now, name, &ended, &next));
    assert_string_equal(name, "b");
    assert_true(ended);
    fth_workers_leave(workers, "b");
    assert_false(fth_workers_end_lease(workers, "b"));
    assert_true(fth_workers_find_expired(workers, now + 3600, name, &ended, &next));
    assert_string_equal(name, "a");
    assert_false(ended);
    fth_workers_free(workers);
}

/* Whom a step waits for: with sync those who have not pushed, with bounded staleness those who have
 * pulled. */
static void test_waiting_for_workers(void **state)
{
    (void)state;
    fth_workers *workers = NULL;
    assert_int_equal(fth_workers_create(&(fth_workers_options){.lease_s = 30}, &workers), FTH_OK);
    assert_true(fth_workers_join(workers, "a", "1", ""));
    assert_true(fth_workers_join(workers, "b", "1", ""));
    assert_false(fth_workers_all_contributed(workers, 5, "a"));
    fth_workers_note_push(workers, "b", &(fth_accepted_push){.sequence = 1, .version = 5}, NULL);
    assert_true(fth_workers_all_contributed(workers, 5, "a"));
    assert_false(fth_workers_all_contributed(workers, 5, NULL));
    assert_int_equal(fth_workers_note_unfit(workers, "a", "", 5, 5), 1);
    assert_true(fth_workers_all_contributed(workers, 5, NULL)); /* a refused gradient is not waited for again */

    fth_workers_note_pull(workers, "b", 5);
    assert_false(fth_workers_would_be_late(workers, 6, 2, "a"));
    assert_true(fth_workers_would_be_late(workers, 7, 2, "a"));
    assert_false(fth_workers_would_be_late(workers, 7, 2, "b"));
    assert_false(fth_workers_would_be_late(workers, 8, 2, "a")); /* it is too old already */
    fth_workers_note_arrival(workers, "b");
    assert_false(fth_workers_would_be_late(workers, 7, 2, "a"));
    fth_workers_note_pull(workers, "b", 5);
    fth_workers_set_idle(workers, "b", true); /* it waits for a shard instead */
    assert_false(fth_workers_would_be_late(workers, 7, 2, "a"));
    assert_true(fth_workers_all_contributed(workers, 9, "a"));
    fth_workers_set_idle(workers, "b", false);
    assert_false(fth_workers_all_contributed(workers, 9, "a"));
    fth_workers_set_idle(workers, "b", true);
    fth_workers_note_push(workers, "b", &(fth_accepted_push){.sequence = 1, .version = 9}, NULL);
    assert_false(fth_workers_all_contributed(workers, 10, "a")); /* it works again */
    fth_workers_free(workers);
}

static void test_interval(void **state)
{
    (void)state;
    fth_parameters_options options = {.checkpoint_every_s = 5};
    assert_int_equal(fth_parameters_set_interval("200", &options), FTH_OK);
    assert_true(options.checkpoint_every_versions == 200 && options.checkpoint_every_s == 0);
    assert_int_equal(fth_parameters_set_interval("90s", &options), FTH_OK);
    assert_true(options.checkpoint_every_versions == 0 && options.checkpoint_every_s == 90);
    assert_int_equal(fth_parameters_set_interval("auto", &options), FTH_OK);
    assert_true(options.checkpoint_every_versions == 0 && options.checkpoint_every_s == 60);
    assert_int_equal(fth_parameters_set_interval("often", &options), FTH_INVALID);
}

static void test_dial(void **state)
{
    (void)state;
    static const char *const good[] = {"sync", "sync:1", "sync:16", "bounded:0", "bounded:8", "async"};
    static const char *const bad[] = {
        "", "sync:", "sync:0", "sync:x", "bounded", "bounded:-1", "async:1", "asyncx", "sync:99999999999999999999"};
    fth_consistency c;
    char text[32];
    for (size_t i = 0; i < FTH_COUNT_OF(good); i++) {
        assert_int_equal(fth_consistency_parse(good[i], &c), FTH_OK);
        fth_consistency_format(c, text, sizeof text);
        assert_string_equal(text, good[i]);
    }
    for (size_t i = 0; i < FTH_COUNT_OF(bad); i++)
        assert_int_equal(fth_consistency_parse(bad[i], &c), FTH_INVALID);
}

static void test_rates(void **state)
{
    (void)state;
    fth_rates *rates = NULL;
    int allowed = 0;
    assert_int_equal(fth_rates_create(5, &rates), FTH_OK);
    for (int i = 0; i < 100; i++)
        allowed += fth_rates_allow(rates, "10.0.0.1");
    assert_true(allowed >= 11 && allowed < 50);
    assert_true(fth_rates_allow(rates, "10.0.0.2"));
    fth_rates_free(rates);
}

/* ---- memory that is shared ---- */

enum { SHARED_FLOATS = 300000 };

/* What a server answers from under its lock: the newest version, times FTH_REGION_SLOTS, and its
 * slot. */
typedef struct published {
    fth_region *region;
    _Atomic int64_t newest;
} published;

static void *write_versions(void *context)
{
    published *all = context;
    fth_region *region = all->region;
    for (int64_t version = 1; version <= 400; version++) {
        int slot = 0;
        float *to = fth_region_begin(region, &slot);
        for (int i = 0; i < SHARED_FLOATS; i++)
            to[i] = (float)version;
        fth_region_finish(region, slot, version);
        atomic_store(&all->newest, version * FTH_REGION_SLOTS + slot);
    }
    return NULL;
}

/* What is copied while somebody writes is whole, or known not to be. */
static void test_shared_memory(void **state)
{
    (void)state;
    fth_region region;
    published all = {.region = &region};
    fth_local_view view = {0};
    pthread_t writer;
    char answer[256];
    int copied = 0;
    int64_t version = -1;
    float *to = malloc(SHARED_FLOATS * sizeof *to);
    uint64_t bytes = SHARED_FLOATS * sizeof *to;
    assert_int_equal(fth_region_create(bytes, &region), FTH_OK);
    assert_int_equal(pthread_create(&writer, NULL, write_versions, &all), 0);
    while (version < 400) {
        int64_t newest = atomic_load(&all.newest), expected = newest / FTH_REGION_SLOTS;
        int slot = (int)(newest % FTH_REGION_SLOTS);
        snprintf(answer, sizeof answer,
                 "{\"version\":%lld,\"path\":\"/proc/%d/fd/%d\",\"stamp\":%llu,\"offset\":%llu,\"size_bytes\":%llu}",
                 (long long)expected, (int)getpid(), region.fd, (unsigned long long)fth_region_stamp(slot),
                 (unsigned long long)fth_region_offset(&region, slot), (unsigned long long)bytes);
        fth_local_result result = fth_local_copy(&view, answer, bytes, to, &version);
        assert_int_not_equal(result, FTH_LOCAL_ELSEWHERE);
        if (result != FTH_LOCAL_COPIED)
            continue;
        copied++;
        for (int i = 0; i < SHARED_FLOATS; i++)
            assert_true(to[i] == (float)version);
    }
    assert_true(copied > 0);
    pthread_join(writer, NULL);
    static const char *const bad[] = {
        "", "{}", "{\"version\":1,\"path\":\"/etc/passwd\",\"stamp\":0,\"offset\":0,\"size_bytes\":1200000}",
        "{\"version\":1,\"path\":\"/proc/1/fd/99999\",\"stamp\":0,\"offset\":0,\"size_bytes\":1200000}",
        "{\"version\":1,\"path\":\"/proc/self/exe\",\"stamp\":0,\"offset\":0,\"size_bytes\":1200000}"};
    for (size_t i = 0; i < FTH_COUNT_OF(bad); i++)
        assert_int_equal(fth_local_copy(&view, bad[i], bytes, to, &version), FTH_LOCAL_ELSEWHERE);
    snprintf(answer, sizeof answer,
             "{\"version\":1,\"path\":\"/proc/%d/fd/%d\",\"stamp\":0,\"offset\":9999999999,\"size_bytes\":%llu}",
             (int)getpid(), region.fd, (unsigned long long)bytes);
    assert_int_equal(fth_local_copy(&view, answer, bytes, to, &version), FTH_LOCAL_ELSEWHERE);
    fth_local_view_release(&view);
    fth_region_release(&region);
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_dense_gradients, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(test_small_types_and_positions, test_make_folder, test_remove_folder),
        cmocka_unit_test(test_not_finite_however_encoded),
        cmocka_unit_test_setup_teardown(test_refused_gradients, test_make_folder, test_remove_folder),
        cmocka_unit_test(test_layout_header),
        cmocka_unit_test_setup_teardown(test_log, test_make_folder, test_remove_folder),
        cmocka_unit_test_setup_teardown(test_torn_log, test_make_folder, test_remove_folder),
        cmocka_unit_test(test_workers),
        cmocka_unit_test(test_leases),
        cmocka_unit_test(test_waiting_for_workers),
        cmocka_unit_test(test_interval),
        cmocka_unit_test(test_dial),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_shared_memory),
    };
    fth_log_set_level(FTH_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
