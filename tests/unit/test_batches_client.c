/* A job's side of the batch cache, against a host in this process: the same batches as without the
 * cache, bit for bit, in every form; also while the host goes and comes back, and where entries are
 * damaged; bad images; positions, figures and leases. */
#include "batches_item.h"

#include <stdatomic.h>

#include "batches/client/client.h"
#include "batches/described_set.h"
#include "batches/memory/host.h"
#include "batches/payload.h"
#include "test_data_pictures.h"

/* ---- a small coordinator ---- */

enum { MOST_JOBS = 16, AHEAD = 3 };
static const fth_set_source usual_source = {.seed = 5, .validation_fraction = 0.2};

typedef struct kitchen {
    char address[700]; /* of the data */
    int port;
    uint64_t shared_seed; /* of orders that jobs share */
    int64_t rotation;
    fth_prefetch_set *set;
    fth_prefetch_tools *tools;
    fth_board *board;
    fth_segment_cache *segment;
    fth_cache *cache;
    fth_host *host;
    pthread_t cook;
    atomic_bool stop, idle;
    atomic_bool cut_off, told; /* it gets nothing any more; and who waited then for `lacking` is told so */
    fth_item_id lacking;       /* of the cook */
    atomic_int made, lost, finished;
    pthread_mutex_t mutex; /* of the jobs */
    fth_job_spec jobs[MOST_JOBS];
    uint64_t job_count;
} kitchen;

static fth_status register_job(kitchen *own, json_t *request, json_t **answer, uint64_t *job)
{
    fth_job_spec spec;
    fth_status status = fth_job_spec_load(json_object_get(request, "job"), &spec);
    if (status != FTH_OK)
        return status;
    snprintf(spec.version, sizeof spec.version, "%s", fth_prefetch_set_version(own->set));
    if (spec.format == FTH_FORMAT_AUTO)
        spec.format = FTH_FORMAT_BATCHES;
    if (spec.sharing != FTH_SHARE_NONE)
        spec.order_seed = own->shared_seed;
    if (spec.sharing == FTH_SHARE_ALL)
        spec.augment_seed = own->shared_seed;
    if (spec.rotation < 0)
        spec.rotation = spec.sharing == FTH_SHARE_NONE ? 0 : own->rotation;
    pthread_mutex_lock(&own->mutex);
    own->jobs[own->job_count] = spec;
    *job = ++own->job_count;
    pthread_mutex_unlock(&own->mutex);
    *answer = json_pack("{s:I, s:o, s:s}", "job", (json_int_t)*job, "spec", fth_job_spec_save(&spec), "why",
                        "it is asked for");
    return FTH_OK;
}

static fth_status answer_request(void *context, int slot, json_t *request, json_t **answer, uint64_t *job)
{
    kitchen *own = context;
    const char *op = json_string_value(json_object_get(request, "op"));
    (void)slot;
    fth_set_source source = usual_source;
    source.address = own->address;
    if (strcmp(op, "describe") == 0) {
        if (strcmp(json_string_value(json_object_get(request, "data")), "photos") != 0)
            return fth_fail(FTH_INVALID, "there is no data set of that name; there is photos");
        *answer =
            json_pack("{s:o}", "set", fth_described_set_save(fth_prefetch_set_dataset(own->set), "photos", &source));
        return FTH_OK;
    }
    if (strcmp(op, "register") == 0)
        return register_job(own, request, answer, job);
    own->lost += strcmp(op, "lost") == 0;
    *answer = json_pack("{s:f, s:i, s:i}", "usd", 0.25, "decoded_for_it", 7, "decoded_by_others", 3);
    return FTH_OK;
}

static void wake(void *context, int slot)
{
    (void)context;
    (void)slot;
}

static void left(void *context, int slot, uint64_t job, bool finished)
{
    (void)slot;
    (void)job;
    ((kitchen *)context)->finished += finished;
}

static void make_item(kitchen *own, const fth_job_spec *spec, fth_item_id id, fth_item_kind kind, int64_t number)
{
    fth_prefetch_result preparation;
    const fth_order order = {.id = id, .kind = kind, .spec = *spec, .number = number};
    if (fth_segment_has(own->segment, id, NULL))
        return;
    fth_status status = make_whole_item(own->tools, &order, own->cache, fth_deadline_in(10), &preparation);
    if (status != FTH_OK)
        fprintf(stderr, "prepare: %s\n", fth_error_message());
    own->made += status == FTH_OK;
}

static void make_batch(kitchen *own, const fth_job_spec *spec, int64_t number)
{
    int64_t samples[64];
    fth_batch_plan plan = {.samples = samples};
    int64_t count = fth_dataset_get_info(fth_prefetch_set_dataset(own->set))->count[spec->split];
    fth_job_plan_batch(spec, count, number, &plan);
    if (spec->format == FTH_FORMAT_BATCHES) {
        make_item(own, spec, fth_job_batch_id(spec, &plan), FTH_ITEM_BATCH, number);
        return;
    }
    fth_item_kind kind = spec->format == FTH_FORMAT_DECODED ? FTH_ITEM_DECODED : FTH_ITEM_ENCODED;
    for (int64_t i = 0; i < plan.count; i++)
        make_item(own, spec, fth_job_sample_id(spec, kind, samples[i]), kind, samples[i]);
}

static void *cook(void *context)
{
    kitchen *own = context;
    while (!own->stop) {
        fth_slot_state state;
        for (int slot = 0; slot < MOST_JOBS && own->cut_off && !own->told; slot++)
            if (fth_board_read(own->board, slot, &state) && state.waiting) {
                own->lacking = state.wanted;
                own->told = true;
            }
        if (own->told) /* again and again: a client's waits are short */
            fth_board_wake(own->board, own->lacking, FTH_PEER_LOST);
        for (int slot = 0; slot < MOST_JOBS && !own->stop && !own->idle; slot++) {
            if (!fth_board_read(own->board, slot, &state) || state.next < 0)
                continue;
            pthread_mutex_lock(&own->mutex);
            fth_job_spec spec = own->jobs[state.job - 1];
            pthread_mutex_unlock(&own->mutex);
            for (int64_t i = 0; i < AHEAD; i++) {
                int64_t number = state.next + i * state.stride;
                if (state.end == 0 || number < state.end)
                    make_batch(own, &spec, number);
            }
        }
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return NULL;
}

static void open_host(kitchen *own)
{
    char *path = NULL;
    const fth_host_handler supplier = {.context = own, .answer = answer_request, .wake = wake, .left = left};
    assert_int_equal(fth_host_own_socket_path(own->port, &path), FTH_OK);
    if (fth_host_open(path, own->segment, own->board, &supplier, &own->host) != FTH_OK)
        fail_msg("%s", fth_error_message());
    free(path);
}

static void open_kitchen(kitchen *own, const char *address)
{
    *own = (kitchen){.port = 4711, .mutex = PTHREAD_MUTEX_INITIALIZER, .shared_seed = 77};
    snprintf(own->address, sizeof own->address, "%s", address);
    setenv("XDG_RUNTIME_DIR", test_folder, 1);
    const fth_dataset_options options = {.seed = usual_source.seed,
                                         .validation_fraction = usual_source.validation_fraction};
    assert_int_equal(fth_prefetch_set_open(address, &options, &own->set), FTH_OK);
    assert_int_equal(fth_prefetch_tools_create(own->set, NULL, &own->tools), FTH_OK);
    assert_int_equal(fth_board_create(&own->board), FTH_OK);
    assert_int_equal(fth_segment_create(64 << 20, own->board, &own->segment), FTH_OK);
    const fth_cache_options shm = {.segment = own->segment, .memory_bytes = 64 << 20};
    assert_int_equal(fth_cache_open("shm", &shm, &own->cache), FTH_OK);
    open_host(own);
    assert_int_equal(pthread_create(&own->cook, NULL, cook, own), 0);
}

static void close_kitchen(kitchen *own)
{
    own->stop = true;
    pthread_join(own->cook, NULL);
    fth_host_close(own->host);
    fth_cache_free(own->cache);
    fth_segment_free(own->segment);
    fth_board_free(own->board);
    fth_prefetch_tools_free(own->tools);
    fth_prefetch_set_free(own->set);
}

/* ---- jobs ---- */

static const jpeg_kind usual = {JCS_RGB, 90, false, true};

static const char *write_photos(void)
{
    static char path[600];
    char name[64];
    for (int i = 0; i < 20; i++) {
        encoded jpeg = encode_jpeg(60 + i, 50, usual, wild);
        snprintf(name, sizeof name, "photos/%c/%d.jpg", 'a' + i % 3, i);
        write_picture(name, jpeg);
        free(jpeg.bytes);
    }
    snprintf(path, sizeof path, "%s/photos", test_folder);
    return path;
}

static fth_status open_photos(const char *address, uint64_t decoded_cache_bytes, fth_dataset **dataset)
{
    const fth_dataset_options options = {.seed = 5,
                                         .validation_fraction = 0.2,
                                         .image_size = 32,
                                         .max_bad_images = 0.1,
                                         .decoded_cache_bytes = decoded_cache_bytes,
                                         .schemes = fth_batches_schemes};
    return fth_dataset_open(address, &options, dataset);
}

static fth_dataset *open_job(const char *settings)
{
    char address[200];
    fth_dataset *dataset = NULL;
    snprintf(address, sizeof address, "batches://localhost:4711/photos%s", settings);
    if (open_photos(address, 0, &dataset) != FTH_OK)
        fail_msg("%s", fth_error_message());
    return dataset;
}

static fth_loader *open_loader(const fth_dataset *dataset, const fth_loader_options *options)
{
    fth_loader *loader = NULL;
    if (fth_loader_open(dataset, options, &loader) != FTH_OK)
        fail_msg("%s", fth_error_message());
    return loader;
}

static const fth_batch *get_next(fth_loader *loader)
{
    const fth_batch *batch = NULL;
    if (fth_loader_next(loader, test_deadline_in(60), &batch) != FTH_OK)
        fail_msg("%s", fth_error_message());
    return batch;
}

static void compare_batches(const fth_batch *a, const fth_batch *b)
{
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->whole, b->whole);
    assert_int_equal(a->first, b->first);
    assert_int_equal(a->number, b->number);
    assert_int_equal(a->epoch, b->epoch);
    assert_memory_equal(a->labels, b->labels, (size_t)a->count * sizeof(int32_t));
    if (a->count > 0)
        assert_memory_equal(a->images, b->images, (size_t)a->count * 3 * 32 * 32 * sizeof(float));
}

/* Compares whole loaders; `at` (may be NULL) is called before each batch. */
static void compare(const fth_dataset *job, const fth_dataset *plain, const fth_loader_options *options,
                    void (*at)(void *context, int64_t batch), void *context)
{
    fth_loader *a = open_loader(job, options), *b = open_loader(plain, options);
    for (int64_t number = options->first_batch; number < options->batch_limit; number++) {
        if (at)
            at(context, number);
        compare_batches(get_next(a), get_next(b));
    }
    assert_null(get_next(a));
    fth_loader_free(a);
    fth_loader_free(b);
}

static const fth_loader_options training = {
    .batch = 4, .seed = 9, .shuffle = true, .threads = 2, .first_batch = 1, .batch_limit = 10};

/* ---- the same numbers ---- */

static void every_form_gives_the_batches_of_a_run_without_the_cache(void **state)
{
    static const char *const settings[] = {"", "?form=batches&share=none", "?form=encoded", "?form=decoded"};
    kitchen own;
    (void)state;
    open_kitchen(&own, write_photos());
    for (size_t i = 0; i < FTH_COUNT_OF(settings); i++) {
        fth_dataset *plain = NULL, *job = open_job(settings[i]);
        fth_batches_figures figures;
        fth_batches_registration registration;
        assert_int_equal(open_photos(own.address, i == 3 ? 1 << 20 : 0, &plain), FTH_OK);
        compare(job, plain, &training, NULL, NULL);
        compare(job, plain, &(fth_loader_options){.split = FTH_VALIDATION, .batch = 3, .batch_limit = 2}, NULL, NULL);
        fth_loader_options part = training;
        part.part = (fth_share){.index = 1, .of = 3};
        compare(job, plain, &part, NULL, NULL);
        part.part = (fth_share){0};
        part.share = (fth_share){.index = 1, .of = 2};
        compare(job, plain, &part, NULL, NULL);
        assert_true(fth_batches_get_figures(job, &figures));
        assert_true(figures.hits + figures.waits > 0);
        assert_int_equal(figures.misses, 0);
        assert_int_equal(figures.direct, 0);
        assert_int_equal(figures.decoded_for_it, 4 * 7); /* of each loader's job */
        assert_true(figures.bytes > 0);
        assert_true(fth_batches_get_registration(job, &registration));
        assert_int_equal(registration.spec.format, i < 2    ? FTH_FORMAT_BATCHES
                                                   : i == 2 ? FTH_FORMAT_ENCODED
                                                            : FTH_FORMAT_DECODED);
        assert_false(fth_batches_get_figures(plain, &figures));
        fth_dataset_free(job);
        fth_dataset_free(plain);
    }
    close_kitchen(&own);
    assert_int_equal(own.finished, 16);
}

static void jobs_that_share_an_order_have_the_coordinators(void **state)
{
    static const char *const settings[] = {"?share=order&form=encoded", "?share=all&form=encoded",
                                           "?share=order&form=batches", "?share=all&form=batches"};
    kitchen own;
    (void)state;
    open_kitchen(&own, write_photos());
    own.rotation = 20 * 4 / 5 + 3; /* an epoch of 16, and 3 samples */
    for (size_t i = 0; i < FTH_COUNT_OF(settings); i++) {
        fth_dataset *plain = NULL, *job = open_job(settings[i]);
        fth_loader_options options = training, own_order = training;
        assert_int_equal(open_photos(own.address, 0, &plain), FTH_OK);
        own_order.own_order = true;
        own_order.order_seed = 77;
        own_order.rotation = own.rotation;
        if (i % 2 == 1)
            own_order.seed = 77;
        fth_loader *a = open_loader(job, &options), *b = open_loader(plain, &own_order);
        for (int n = 1; n < 10; n++)
            compare_batches(get_next(a), get_next(b));
        fth_loader_free(a);
        fth_loader_free(b);
        fth_dataset_free(job);
        fth_dataset_free(plain);
    }
    close_kitchen(&own);
}

/* ---- trouble ---- */

static void close_and_open_host(void *context, int64_t batch)
{
    kitchen *own = context;
    if (batch == 3) {
        own->idle = true;
        fth_host_close(own->host);
        for (int64_t i = 0; i < 64; i++) { /* nothing that was made is left, either */
            fth_job_spec *spec = &own->jobs[own->job_count - 1];
            int64_t samples[64];
            fth_batch_plan plan = {.samples = samples};
            fth_job_plan_batch(spec, 16, i, &plan);
            fth_segment_evict(own->segment, fth_job_batch_id(spec, &plan));
            for (int kind = 0; kind < 2 && i < 16; kind++)
                fth_segment_evict(own->segment, fth_job_sample_id(spec, kind, i));
        }
    } else if (batch == 7) {
        open_host(own);
        own->idle = false;
    }
}

/* The first half of the samples is not there any more, and does not come again. */
static void cut_off(void *context, int64_t batch)
{
    kitchen *own = context;
    if (batch != 6)
        return;
    own->idle = own->cut_off = true;
    const fth_job_spec *spec = &own->jobs[own->job_count - 1];
    for (int64_t i = 0; i < 64; i++) {
        int64_t samples[64];
        fth_batch_plan plan = {.samples = samples};
        fth_job_plan_batch(spec, 16, i, &plan);
        fth_segment_evict(own->segment, fth_job_batch_id(spec, &plan));
        for (int kind = 0; kind < 2 && i < 8; kind++)
            fth_segment_evict(own->segment, fth_job_sample_id(spec, kind, i));
    }
}

static void a_host_that_gets_nothing_any_more_is_not_waited_for(void **state)
{
    static const char *const settings[] = {"?form=batches", "?form=encoded"};
    (void)state;
    const char *photos = write_photos();
    for (size_t i = 0; i < FTH_COUNT_OF(settings); i++) {
        kitchen own;
        fth_dataset *plain = NULL, *job;
        fth_batches_figures figures;
        open_kitchen(&own, photos);
        assert_int_equal(open_photos(photos, 0, &plain), FTH_OK);
        job = open_job(settings[i]);
        const fth_loader_options options = {
            .split = FTH_TRAIN, .batch = 4, .shuffle = true, .seed = 3, .threads = 1, .batch_limit = 12};
        compare(job, plain, &options, cut_off, &own);
        assert_true(fth_batches_get_figures(job, &figures));
        assert_true(own.told);
        assert_true(figures.misses > 0);
        assert_true(figures.wait_s < 4); /* which is for one that says nothing */
        fth_dataset_free(job);
        fth_dataset_free(plain);
        close_kitchen(&own);
    }
}

static void a_host_that_goes_and_comes_back_changes_nothing(void **state)
{
    static const char *const settings[] = {"?form=batches", "?form=encoded", "?form=decoded"};
    (void)state;
    const char *photos = write_photos();
    for (size_t i = 0; i < FTH_COUNT_OF(settings); i++) {
        kitchen own;
        fth_dataset *plain = NULL;
        fth_batches_figures figures;
        open_kitchen(&own, photos);
        fth_dataset *job = open_job(settings[i]);
        assert_int_equal(open_photos(photos, i == 2 ? 1 << 20 : 0, &plain), FTH_OK);
        fth_loader_options options = training;
        options.batch_limit = 12;
        compare(job, plain, &options, close_and_open_host, &own);
        assert_true(fth_batches_get_figures(job, &figures));
        assert_true(figures.hits + figures.waits > 0);
        assert_true(figures.misses > 0);
        assert_true(figures.direct > 0);
        fth_dataset_free(job);
        fth_dataset_free(plain);
        close_kitchen(&own);
    }
}

static void damage_next(void *context, int64_t batch)
{
    kitchen *own = context;
    int64_t samples[64];
    fth_batch_plan plan = {.samples = samples};
    const void *entry = NULL;
    uint64_t size_bytes;
    if (batch != 4)
        return;
    fth_job_spec *spec = &own->jobs[own->job_count - 1];
    fth_job_plan_batch(spec, 16, batch, &plan);
    fth_item_id id = fth_job_batch_id(spec, &plan);
    for (int i = 0; i < 60000 && !fth_segment_has(own->segment, id, NULL); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_true(fth_segment_hold(own->segment, id, &entry, &size_bytes));
    ((uint8_t *)(uintptr_t)entry)[size_bytes - 1] ^= 1;
    fth_segment_release(own->segment, entry);
}

static void a_damaged_entry_is_read_directly_and_reported(void **state)
{
    kitchen own;
    fth_dataset *plain = NULL;
    fth_batches_figures figures;
    (void)state;
    open_kitchen(&own, write_photos());
    fth_dataset *job = open_job("?form=batches");
    assert_int_equal(open_photos(own.address, 0, &plain), FTH_OK);
    compare(job, plain, &training, damage_next, &own);
    assert_true(fth_batches_get_figures(job, &figures));
    assert_int_equal(figures.corrupt, 1);
    assert_int_equal(figures.misses, 1);
    assert_int_equal(own.lost, 1);
    fth_dataset_free(job);
    fth_dataset_free(plain);
    close_kitchen(&own);
}

static void without_host_or_data_there_is_a_clear_error(void **state)
{
    kitchen own;
    const fth_batch *batch;
    char away[720];
    (void)state;
    open_kitchen(&own, write_photos());
    fth_dataset *job = open_job("?form=batches");
    fth_loader *loader = open_loader(job, &training);
    get_next(loader);
    snprintf(away, sizeof away, "%s.away", own.address);
    assert_int_equal(rename(own.address, away), 0);
    close_and_open_host(&own, 3);
    fth_status status;
    int given = 0;
    while ((status = fth_loader_next(loader, fth_deadline_in(1), &batch)) == FTH_OK && batch)
        given++;
    assert_int_equal(status, FTH_TIMEOUT);
    assert_non_null(strstr(fth_error_message(), "the data cannot be read directly"));
    assert_int_equal(rename(away, own.address), 0); /* ... and it goes on when there is one of them again */
    fth_dataset *plain = NULL;
    assert_int_equal(open_photos(own.address, 0, &plain), FTH_OK);
    fth_loader_options rest = training;
    rest.first_batch += 1 + given;
    fth_loader *expected = open_loader(plain, &rest);
    compare_batches(get_next(loader), get_next(expected));
    fth_loader_free(expected);
    fth_loader_free(loader);
    fth_dataset_free(plain);
    fth_dataset_free(job);
    open_host(&own);
    close_kitchen(&own);
}

/* ---- bad images ---- */

static void bad_images_count_in_every_form(void **state)
{
    static const char *const settings[] = {"?form=batches", "?form=encoded", "?form=decoded"};
    kitchen own;
    (void)state;
    const char *photos = write_photos();
    test_write("photos/b/4.jpg", "no picture", 10);
    open_kitchen(&own, photos);
    for (size_t i = 0; i < FTH_COUNT_OF(settings); i++) {
        fth_dataset *plain = NULL, *job = open_job(settings[i]);
        assert_int_equal(open_photos(photos, i == 2 ? 1 << 20 : 0, &plain), FTH_OK);
        compare(job, plain, &training, NULL, NULL);
        compare(job, plain, &(fth_loader_options){.split = FTH_VALIDATION, .batch = 3, .batch_limit = 2}, NULL, NULL);
        assert_int_equal(fth_dataset_bad_image_count(plain), 1);
        assert_int_equal(fth_dataset_bad_image_count(job), 1);
        assert_non_null(strstr(fth_dataset_get_bad_image(job, 0)->name, "b/4.jpg"));
        fth_dataset_free(job);
        fth_dataset_free(plain);
    }
    close_kitchen(&own);
}

/* ---- several batches at once ---- */

static void kept_batches_stay_as_they_are(void **state)
{
    enum { KEPT = 6 };
    kitchen own;
    const float *images[KEPT];
    uint64_t leases[KEPT];
    (void)state;
    open_kitchen(&own, write_photos());
    fth_dataset *plain = NULL, *job = open_job("?form=batches");
    assert_int_equal(open_photos(own.address, 0, &plain), FTH_OK);
    fth_loader *loader = open_loader(job, &training), *again = open_loader(plain, &training);
    for (int i = 0; i < KEPT; i++) {
        const fth_batch *batch = get_next(loader);
        images[i] = batch->images;
        assert_true(fth_batches_keep(job, batch, &leases[i]));
        assert_false(fth_batches_keep(job, batch, &leases[i]) && false);
    }
    fth_loader_free(loader); /* the memory outlives it */
    for (int i = 0; i < KEPT; i++) {
        assert_memory_equal(images[i], get_next(again)->images, 4 * 3 * 32 * 32 * sizeof(float));
        fth_batches_let_go(job, leases[i]);
    }
    fth_loader_free(again);
    fth_dataset_free(job);
    fth_dataset_free(plain);
    close_kitchen(&own);
}

/* ---- addresses and checks ---- */

static void addresses_are_read(void **state)
{
    fth_batches_address address;
    (void)state;
    assert_int_equal(fth_batches_address_parse("batches://host-1:8000/tiny%20set", &address), FTH_OK);
    assert_string_equal(address.host, "host-1");
    assert_string_equal(address.name, "tiny set");
    assert_int_equal(address.port, 8000);
    assert_false(address.tls);
    assert_int_equal(address.sharing, FTH_SHARE_NONE);
    assert_int_equal(address.format, FTH_FORMAT_AUTO);
    assert_int_equal(address.rotation, -1);
    fth_batches_address_release(&address);
    assert_int_equal(
        fth_batches_address_parse(
            "batches+tls://[::1]:8000/a?share=all&form=decoded&rotation=12&pin=sha256//ab%3D&ca=/c", &address),
        FTH_OK);
    assert_string_equal(address.host, "::1");
    assert_true(address.tls);
    assert_int_equal(address.sharing, FTH_SHARE_ALL);
    assert_int_equal(address.format, FTH_FORMAT_DECODED);
    assert_int_equal(address.rotation, 12);
    assert_string_equal(address.pinned_key, "sha256//ab=");
    assert_string_equal(address.ca_file, "/c");
    char *url = fth_batches_address_url(&address);
    assert_string_equal(url, "https://[::1]:8000");
    free(url);
    fth_batches_address_release(&address);
    static const char *const wrong[] = {"batches://host/a",
                                        "batches://host:0/a",
                                        "batches://host:99999/a",
                                        "batches://:80/a",
                                        "batches://host:80",
                                        "batches://host:80/",
                                        "batches://host:80/a/b",
                                        "batches://host:80/a?form",
                                        "batches://host:80/a?form=x",
                                        "batches://host:80/a?share=",
                                        "batches://host:80/a?x=y",
                                        "batches://host:80/a?job=1",
                                        "batches://host:80/a?rotation=-1",
                                        "https://host/a"};
    for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++)
        if (fth_batches_address_parse(wrong[i], &address) != FTH_INVALID)
            fail_msg("%s was taken", wrong[i]);
}

static void urls_of_coordinators_are_read(void **state)
{
    (void)state;
    static const char *const theirs[] = {"http://host:29600/tiny", "https://host:29600/tiny",
                                         "http://[::1]:29600/tiny?share=all",
                                         "https://host:29600/tiny?pin=sha256//ab.c/d"};
    static const char *const others[] = {"http://host/tiny",           "http://host:29600/",
                                         "http://host:29600",          "http://host:29600/tiny.tar",
                                         "http://host:29600/a/tiny",   "http://host:9000/photos?X-Amz-Date=1",
                                         "http://user:1234@host/tiny", "http://1234/tiny",
                                         "https://host:/tiny",         "https://host/photos.zip?share=1"};
    for (size_t i = 0; i < FTH_COUNT_OF(theirs); i++) {
        fth_batches_address address;
        assert_true(fth_batches_is_address(theirs[i]));
        assert_int_equal(fth_batches_address_parse(theirs[i], &address), FTH_OK);
        assert_string_equal(address.name, "tiny");
        assert_int_equal(address.port, 29600);
        assert_int_equal(address.tls, strncmp(theirs[i], "https", 5) == 0);
        fth_batches_address_release(&address);
    }
    for (size_t i = 0; i < FTH_COUNT_OF(others); i++)
        if (fth_batches_is_address(others[i]))
            fail_msg("%s was taken", others[i]);
}

static void checks_say_what_cannot_be_reached(void **state)
{
    kitchen own;
    (void)state;
    open_kitchen(&own, write_photos());
    assert_int_equal(fth_batches_check("batches://localhost:4711/photos", fth_deadline_in(5)), FTH_OK);
    assert_int_equal(fth_batches_check_direct("batches://localhost:4711/photos", fth_deadline_in(5)), FTH_OK);
    assert_int_equal(fth_batches_check("batches://localhost:4711/fotos", fth_deadline_in(5)), FTH_INVALID);
    assert_non_null(strstr(fth_error_message(), "there is photos"));
    assert_int_not_equal(fth_batches_check("batches://localhost:4712/photos", fth_deadline_in(0.3)), FTH_OK);
    assert_non_null(strstr(fth_error_message(), "cannot reach the batch cache at localhost:4712"));
    test_write("photos/b/another.jpg", "x", 1); /* the data is not what it was */
    assert_int_equal(fth_batches_check_direct("batches://localhost:4711/photos", fth_deadline_in(5)), FTH_INVALID);
    assert_non_null(strstr(fth_error_message(), "is not the coordinator's data"));
    close_kitchen(&own);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, test_make_folder, test_remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(every_form_gives_the_batches_of_a_run_without_the_cache),
        WITH_FOLDER(jobs_that_share_an_order_have_the_coordinators),
        WITH_FOLDER(a_host_that_goes_and_comes_back_changes_nothing),
        WITH_FOLDER(a_host_that_gets_nothing_any_more_is_not_waited_for),
        WITH_FOLDER(a_damaged_entry_is_read_directly_and_reported),
        WITH_FOLDER(without_host_or_data_there_is_a_clear_error),
        WITH_FOLDER(bad_images_count_in_every_form),
        WITH_FOLDER(kept_batches_stay_as_they_are),
        cmocka_unit_test(addresses_are_read),
        cmocka_unit_test(urls_of_coordinators_are_read),
        WITH_FOLDER(checks_say_what_cannot_be_reached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
