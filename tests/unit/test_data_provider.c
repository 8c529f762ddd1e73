/* Data sets whose samples somebody else provides: the loader makes the same batches of them as of
 * the set itself, bit for bit; bad samples are replaced and counted alike; finished batches come
 * through as they are. */
#include "data/source/provider.h"

#include <stdatomic.h>

#include "test_data_pictures.h"

static const jpeg_kind usual = {JCS_RGB, 90, false, true};

/* ---- a provider of another set's samples ---- */

typedef struct lender {
    fth_dataset *set;
    fth_sample_reader *reader; /* one at a time */
    pthread_mutex_t mutex;     /* held while a sample is lent */
    int64_t late;              /* how often a sample is not there yet */
    atomic_int taken, given_back, sessions, freed;
    atomic_llong moved_to;
    bool finished;   /* sessions give finished batches: */
    fth_batch batch; /* this one, over and over */
    int64_t batches;
    uint64_t order_seed; /* of sessions; 0: the loader's own */
} lender;

static void free_lender(void *context)
{
    ((lender *)context)->freed++;
}

static fth_status take(void *context, void *session, fth_split split, int64_t sample, fth_deadline deadline,
                       fth_raw_sample *raw)
{
    lender *own = context;
    (void)session;
    (void)deadline;
    pthread_mutex_lock(&own->mutex);
    if (own->late > 0) {
        own->late--;
        pthread_mutex_unlock(&own->mutex);
        return fth_fail(FTH_TIMEOUT, "not yet");
    }
    fth_status status = fth_sample_reader_read(own->reader, split, sample, NULL, raw);
    if (status != FTH_OK)
        pthread_mutex_unlock(&own->mutex);
    else
        own->taken++;
    return status;
}

static void give_back(void *context, fth_raw_sample *raw)
{
    lender *own = context;
    (void)raw;
    own->given_back++;
    pthread_mutex_unlock(&own->mutex);
}

static fth_status open_session(void *context, const fth_dataset *dataset, fth_loader_options *options, bool *finished,
                               void **session)
{
    lender *own = context;
    (void)dataset;
    if (own->order_seed) {
        options->own_order = true;
        options->order_seed = own->order_seed;
    }
    own->sessions++;
    *finished = own->finished;
    *session = own;
    return FTH_OK;
}

static void close_session(void *context, void *session)
{
    assert_ptr_equal(context, session);
    ((lender *)session)->sessions--;
}

static fth_status next(void *session, fth_deadline deadline, const fth_batch **batch)
{
    lender *own = session;
    (void)deadline;
    own->batch.number = own->batches++;
    *batch = own->batches > 3 ? NULL : &own->batch;
    return FTH_OK;
}

static void moved(void *session, int64_t number)
{
    ((lender *)session)->moved_to = number;
}

static const fth_dataset_provider *make_provider(lender *own)
{
    static fth_dataset_provider provider;
    provider = (fth_dataset_provider){.context = own,
                                      .free = free_lender,
                                      .open_session = open_session,
                                      .close_session = close_session,
                                      .next = next,
                                      .moved = moved,
                                      .take = take,
                                      .give_back = give_back};
    return &provider;
}

static void open_lender(const char *address, lender *own)
{
    *own = (lender){.mutex = PTHREAD_MUTEX_INITIALIZER};
    assert_int_equal(
        fth_dataset_open(address, &(fth_dataset_options){.seed = 5, .validation_fraction = 0.2}, &own->set), FTH_OK);
    assert_int_equal(fth_sample_reader_create(own->set, &own->reader), FTH_OK);
}

static void close_lender(lender *own)
{
    fth_sample_reader_free(own->reader);
    fth_dataset_free(own->set);
    assert_int_equal(own->taken, own->given_back);
    assert_int_equal(own->sessions, 0);
}

static fth_dataset *create_provided(lender *own, const fth_dataset_options *options)
{
    fth_dataset *dataset = NULL;
    fth_provided_set set;
    fth_dataset_describe_provided(own->set, &set);
    set.version = "5eed";
    assert_int_equal(fth_dataset_create_provided(&set, make_provider(own), options, &dataset), FTH_OK);
    return dataset;
}

/* ---- the same batches ---- */

static void compare_loaders(const fth_dataset *a, const fth_dataset *b, const fth_loader_options *options)
{
    fth_loader *loaders[2];
    const fth_batch *batches[2];
    assert_int_equal(fth_loader_open(a, options, &loaders[0]), FTH_OK);
    assert_int_equal(fth_loader_open(b, options, &loaders[1]), FTH_OK);
    size_t image_bytes = sizeof(float) * (size_t)fth_dataset_get_info(a)->channels *
                         (size_t)fth_dataset_get_info(a)->height * (size_t)fth_dataset_get_info(a)->width;
    int64_t compared = 0;
    for (;; compared++) {
        for (int i = 0; i < 2; i++)
            if (fth_loader_next(loaders[i], test_deadline_in(60), &batches[i]) != FTH_OK)
                fail_msg("%s", fth_error_message());
        if (!batches[0])
            break;
        assert_non_null(batches[1]);
        assert_int_equal(batches[0]->count, batches[1]->count);
        assert_int_equal(batches[0]->number, batches[1]->number);
        assert_memory_equal(batches[0]->labels, batches[1]->labels, (size_t)batches[0]->count * sizeof(int32_t));
        assert_memory_equal(batches[0]->images, batches[1]->images, (size_t)batches[0]->count * image_bytes);
    }
    assert_null(batches[1]);
    assert_int_equal(compared, options->batch_limit - options->first_batch);
    fth_loader_free(loaders[0]);
    fth_loader_free(loaders[1]);
}

static void check_alike(const char *address, fth_dataset_options options, fth_augmentation augmentation)
{
    lender own;
    fth_dataset *set = NULL, *provided;
    options.seed = 5;
    options.validation_fraction = 0.2;
    open_lender(address, &own);
    assert_int_equal(fth_dataset_open(address, &options, &set), FTH_OK);
    provided = create_provided(&own, &options);
    own.late = 3;
    for (int split = 0; split < 2; split++) {
        char *texts[2] = {fth_dataset_describe_preparation(set, split),
                          fth_dataset_describe_preparation(provided, split)};
        assert_string_equal(texts[0], texts[1]);
        free(texts[0]);
        free(texts[1]);
    }
    compare_loaders(set, provided,
                    &(fth_loader_options){.batch = 4,
                                          .seed = 9,
                                          .shuffle = true,
                                          .augmentation = augmentation,
                                          .threads = 3,
                                          .first_batch = 1,
                                          .batch_limit = 7});
    assert_int_equal(own.moved_to, 7);
    compare_loaders(set, provided,
                    &(fth_loader_options){.split = FTH_VALIDATION, .batch = 2, .threads = 2, .batch_limit = 2});
    assert_true(own.taken > 0);
    fth_dataset_free(provided);
    assert_int_equal(own.freed, 1);
    fth_dataset_free(set);
    close_lender(&own);
}

static void write_files(void)
{
    char name[64];
    for (int i = 0; i < 18; i++) {
        encoded jpeg = encode_jpeg(60 + i, 50, usual, wild);
        snprintf(name, sizeof name, "photos/%c/%d.jpg", 'a' + i % 3, i);
        write_picture(name, jpeg);
        free(jpeg.bytes);
    }
}

static const char *photos(void)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/photos", test_folder);
    return path;
}

static void batches_are_those_of_the_set_itself(void **state)
{
    (void)state;
    check_alike("digits", (fth_dataset_options){0}, (fth_augmentation){.flip = true, .crop_padding = 2});
    check_alike("shapes", (fth_dataset_options){.image_size = 40}, (fth_augmentation){.crop_padding = 2});
    write_files();
    check_alike(photos(), (fth_dataset_options){.image_size = 32}, (fth_augmentation){0});
    check_alike(photos(),
                (fth_dataset_options){.transform = "resize=40,centre-crop=24,colour-jitter=0.4:0.4:0.4:0.1",
                                      .validation_transform = "resize=24x24",
                                      .normalization = {1, {0.5f}, {0.25f}}},
                (fth_augmentation){0});
}

static void the_order_may_be_the_providers(void **state)
{
    lender own;
    fth_loader *loaders[2];
    const fth_batch *batches[2];
    (void)state;
    open_lender("digits", &own);
    own.order_seed = 77;
    fth_dataset *provided = create_provided(&own, &(fth_dataset_options){0});
    fth_loader_options options = {.batch = 16, .seed = 9, .shuffle = true};
    assert_int_equal(fth_loader_open(provided, &options, &loaders[0]), FTH_OK);
    options.seed = 77;
    assert_int_equal(fth_loader_open(own.set, &options, &loaders[1]), FTH_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(fth_loader_next(loaders[i], test_deadline_in(60), &batches[i]), FTH_OK);
    assert_memory_equal(batches[0]->labels, batches[1]->labels, 16 * sizeof(int32_t));
    fth_loader_free(loaders[0]);
    fth_loader_free(loaders[1]);
    fth_dataset_free(provided);
    close_lender(&own);
}

static void single_images_can_be_read(void **state)
{
    lender own;
    fth_dataset *set = NULL;
    uint8_t bytes[2][3 * 40 * 40];
    int32_t labels[2];
    char version[65];
    (void)state;
    for (int transformed = 0; transformed < 2; transformed++) {
        fth_dataset_options options = {.image_size = transformed ? 40 : 0};
        open_lender("shapes", &own);
        assert_int_equal(fth_dataset_open("shapes", &options, &set), FTH_OK);
        fth_dataset *provided = create_provided(&own, &options);
        size_t size = transformed ? 3 * 40 * 40 : 3 * 32 * 32;
        assert_int_equal(fth_dataset_read(set, FTH_VALIDATION, 7, bytes[0], &labels[0]), FTH_OK);
        assert_int_equal(fth_dataset_read(provided, FTH_VALIDATION, 7, bytes[1], &labels[1]), FTH_OK);
        assert_int_equal(labels[0], labels[1]);
        assert_memory_equal(bytes[0], bytes[1], size);
        assert_int_equal(fth_dataset_read(provided, FTH_VALIDATION, 4000, bytes[1], &labels[1]), FTH_INVALID);
        assert_int_equal(fth_dataset_version(provided, version), FTH_OK);
        assert_string_equal(version, "5eed");
        assert_true(fth_dataset_is_transformed(provided)); /* nobody makes them from recipes */
        assert_ptr_equal(fth_dataset_get_provider(provided, free_lender), &own);
        assert_null(fth_dataset_get_provider(set, free_lender));
        fth_dataset_free(provided);
        fth_dataset_free(set);
        close_lender(&own);
    }
}

/* ---- bad samples ---- */

static void bad_samples_count_as_bad_images(void **state)
{
    lender own;
    fth_dataset *set = NULL;
    const fth_dataset_options options = {
        .seed = 5, .validation_fraction = 0.2, .image_size = 32, .max_bad_images = 0.12};
    (void)state;
    write_files();
    test_write("photos/b/4.jpg", "no picture", 10);
    open_lender(photos(), &own);
    assert_int_equal(fth_dataset_open(photos(), &options, &set), FTH_OK);
    fth_dataset *provided = create_provided(&own, &options);
    compare_loaders(set, provided, &(fth_loader_options){.batch = 5, .seed = 9, .shuffle = true, .batch_limit = 6});
    compare_loaders(set, provided, &(fth_loader_options){.split = FTH_VALIDATION, .batch = 4, .batch_limit = 1});
    assert_int_equal(fth_dataset_bad_image_count(set), 1);
    assert_int_equal(fth_dataset_bad_image_count(provided), 1);
    const fth_bad_image *bad = fth_dataset_get_bad_image(provided, 0);
    assert_non_null(strstr(bad->name, "b/4.jpg"));
    assert_string_equal(bad->reason, fth_dataset_get_bad_image(set, 0)->reason);

    /* Those that somebody else has replaced already; one more than a share of 0.12 allows is an
     * error. */
    assert_int_equal(fth_dataset_note_bad_sample(provided, FTH_VALIDATION, 0, "v.jpg", "is empty"), FTH_OK);
    assert_int_equal(fth_dataset_note_bad_sample(provided, FTH_VALIDATION, 0, "v.jpg", "is empty"), FTH_OK);
    assert_int_equal(fth_dataset_bad_image_count(provided), 2);
    assert_int_equal(fth_dataset_note_bad_sample(provided, FTH_VALIDATION, 1, "w.jpg", "is empty"), FTH_CORRUPT);
    assert_non_null(strstr(fth_error_message(), "3 of 18 images cannot be read"));
    assert_int_equal(fth_dataset_note_bad_sample(provided, FTH_VALIDATION, 99, "x", "y"), FTH_INVALID);
    fth_dataset_free(provided);
    fth_dataset_free(set);
    close_lender(&own);
}

/* ---- finished batches ---- */

static void finished_batches_come_through(void **state)
{
    lender own;
    fth_loader *loader = NULL;
    const fth_batch *batch;
    (void)state;
    open_lender("digits", &own);
    own.finished = true;
    fth_dataset *provided = create_provided(&own, &(fth_dataset_options){0});
    assert_int_equal(fth_loader_open(provided, &(fth_loader_options){.batch = 4}, &loader), FTH_OK);
    assert_int_equal(own.sessions, 1);
    for (int64_t i = 0; i < 3; i++) {
        assert_int_equal(fth_loader_next(loader, fth_deadline_in(1), &batch), FTH_OK);
        assert_ptr_equal(batch, &own.batch);
        assert_int_equal(batch->number, i);
    }
    assert_int_equal(fth_loader_next(loader, fth_deadline_in(1), &batch), FTH_OK);
    assert_null(batch);
    assert_int_equal(own.taken, 0);
    fth_loader_free(loader);
    fth_dataset_free(provided);
    close_lender(&own);
}

static void a_loader_that_waits_can_be_closed(void **state)
{
    lender own;
    fth_loader *loader = NULL;
    const fth_batch *batch;
    (void)state;
    open_lender("digits", &own);
    own.late = INT64_MAX;
    fth_dataset *provided = create_provided(&own, &(fth_dataset_options){0});
    assert_int_equal(fth_loader_open(provided, &(fth_loader_options){.batch = 4}, &loader), FTH_OK);
    assert_int_equal(fth_loader_next(loader, fth_deadline_in(0.05), &batch), FTH_TIMEOUT);
    fth_loader_free(loader);
    fth_dataset_free(provided);
    close_lender(&own);
}

static void a_set_that_cannot_be_is_refused(void **state)
{
    lender own;
    fth_dataset *dataset = NULL;
    fth_provided_set set;
    (void)state;
    open_lender("digits", &own);
    fth_dataset_describe_provided(own.set, &set);
    set.raw_height = 0;
    assert_int_equal(fth_dataset_create_provided(&set, make_provider(&own), &(fth_dataset_options){0}, &dataset),
                     FTH_INVALID);
    assert_int_equal(own.freed, 1);
    fth_dataset_describe_provided(own.set, &set);
    set.info.classes = 0;
    assert_int_equal(fth_dataset_create_provided(&set, make_provider(&own), &(fth_dataset_options){0}, &dataset),
                     FTH_INVALID);
    assert_int_equal(own.freed, 2);
    close_lender(&own);
}

/* ---- addresses that others open ---- */

static fth_status open_elsewhere(const char *address, const fth_dataset_options *options, fth_dataset **dataset)
{
    (void)options;
    (void)dataset;
    return fth_fail(FTH_PEER_LOST, "asked for %s", address);
}

static bool is_elsewhere(const char *address)
{
    return strncmp(address, "elsewhere://", strlen("elsewhere://")) == 0;
}

static void schemes_open_their_addresses(void **state)
{
    static const fth_dataset_scheme scheme = {is_elsewhere, open_elsewhere};
    static const fth_dataset_scheme *const schemes[] = {&scheme, NULL};
    fth_dataset *dataset = NULL;
    (void)state;
    const fth_dataset_options options = {.schemes = schemes};
    assert_int_equal(fth_dataset_open("elsewhere://host/a", &options, &dataset), FTH_PEER_LOST);
    assert_string_equal(fth_error_message(), "asked for elsewhere://host/a");
    assert_int_equal(fth_dataset_open("digits", &options, &dataset), FTH_OK);
    fth_dataset_free(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(batches_are_those_of_the_set_itself, test_make_folder, test_remove_folder),
        cmocka_unit_test(the_order_may_be_the_providers),
        cmocka_unit_test(single_images_can_be_read),
        cmocka_unit_test_setup_teardown(bad_samples_count_as_bad_images, test_make_folder, test_remove_folder),
        cmocka_unit_test(finished_batches_come_through),
        cmocka_unit_test(a_loader_that_waits_can_be_closed),
        cmocka_unit_test(a_set_that_cannot_be_is_refused),
        cmocka_unit_test(schemes_open_their_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
