/* Jobs of the batch cache: which samples are in a batch, what an id depends on, and specs that
 * others send. */
#include "support.h"

#include "batches/job.h"

static const double wait_seconds = 20;

static fth_job_spec make_spec(void)
{
    fth_job_spec spec = {.data = "photos",
                         .split = FTH_TRAIN,
                         .transform = "random-resized-crop=224,flip,normalize=imagenet",
                         .augmentation = {.flip = true, .crop_padding = 4},
                         .batch = 32,
                         .shuffle = true,
                         .sharing = FTH_SHARE_ORDER,
                         .order_seed = UINT64_MAX,
                         .augment_seed = UINT64_C(1) << 63,
                         .share = {1, 3},
                         .part = {0, 2},
                         .rotation = 64,
                         .format = FTH_FORMAT_DECODED};
    memset(spec.version, 'a', sizeof spec.version - 1);
    return spec;
}

/* ---- names and JSON ---- */

static void names_are_found_again(void **state)
{
    (void)state;
    fth_sharing sharing;
    for (fth_sharing each = FTH_SHARE_NONE; each <= FTH_SHARE_ALL; each++) {
        assert_true(fth_sharing_find(fth_sharing_name(each), &sharing));
        assert_int_equal(sharing, each);
    }
    assert_false(fth_sharing_find("some", &sharing));
    fth_cache_format format;
    for (int each = FTH_FORMAT_AUTO; each <= FTH_FORMAT_BATCHES; each++) {
        assert_true(fth_cache_format_find(fth_cache_format_name((fth_cache_format)each), &format));
        assert_int_equal(format, each);
    }
    assert_false(fth_cache_format_find("raw", &format));
}

static void a_spec_is_saved_and_loaded(void **state)
{
    (void)state;
    fth_job_spec spec = make_spec(), loaded;
    json_t *json = fth_job_spec_save(&spec);
    assert_non_null(json);
    assert_int_equal(fth_job_spec_load(json, &loaded), FTH_OK);
    json_decref(json);
    assert_string_equal(loaded.data, spec.data);
    assert_string_equal(loaded.version, spec.version);
    assert_string_equal(loaded.transform, spec.transform);
    assert_int_equal(loaded.split, spec.split);
    assert_true(loaded.augmentation.flip);
    assert_int_equal(loaded.augmentation.crop_padding, 4);
    assert_int_equal(loaded.batch, 32);
    assert_true(loaded.shuffle);
    assert_int_equal(loaded.sharing, FTH_SHARE_ORDER);
    assert_true(loaded.order_seed == spec.order_seed && loaded.augment_seed == spec.augment_seed);
    assert_memory_equal(&loaded.share, &spec.share, sizeof spec.share);
    assert_memory_equal(&loaded.part, &spec.part, sizeof spec.part);
    assert_int_equal(loaded.rotation, 64);
    assert_int_equal(loaded.format, FTH_FORMAT_DECODED);
}

/* Loads the usual spec with one member replaced, given as JSON. */
static fth_status load_with(const char *key, const char *value, fth_job_spec *loaded)
{
    fth_job_spec spec = make_spec();
    json_t *json = fth_job_spec_save(&spec), *replacement = json_loads(value, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    assert_non_null(replacement);
    json_object_set_new(json, key, replacement);
    fth_status status = fth_job_spec_load(json, loaded);
    json_decref(json);
    return status;
}

static void a_wrong_member_is_named(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"data", "\"\""},
        {"data", "7"},
        {"data", "\"a\\u0000b\""},
        {"version", "\"abc\""},
        {"version", "\"ZZ\""},
        {"split", "\"test\""},
        {"split", "null"},
        {"transform", "[]"},
        {"augmentation", "3"},
        {"augmentation", "{}"},
        {"augmentation", "{\"flip\":1,\"crop_padding\":0}"},
        {"augmentation", "{\"flip\":true,\"crop_padding\":-1}"},
        {"augmentation", "{\"flip\":true,\"crop_padding\":1000000}"},
        {"batch", "0"},
        {"batch", "-5"},
        {"batch", "1048577"},
        {"batch", "32.5"},
        {"batch", "\"32\""},
        {"shuffle", "1"},
        {"sharing", "\"everything\""},
        {"order_seed", "-1"},
        {"order_seed", "\"18446744073709551616\""},
        {"order_seed", "\"99999999999999999999\""},
        {"order_seed", "\"0x10\""},
        {"order_seed", "\"007\""},
        {"order_seed", "\"\""},
        {"augment_seed", "1.5"},
        {"share", "[0]"},
        {"share", "[3,3]"},
        {"share", "[-1,3]"},
        {"share", "[1,0]"},
        {"share", "[0,2000000]"},
        {"part", "{}"},
        {"part", "[2,2]"},
        {"rotation", "-2"},
        {"rotation", "9223372036854775807"},
        {"form", "\"raw\""},
        {"form", "\"a form with a name that is much too long\""},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++) {
        fth_job_spec loaded;
        if (load_with(wrong[i][0], wrong[i][1], &loaded) != FTH_INVALID)
            fail_msg("%s: %s was taken", wrong[i][0], wrong[i][1]);
        const char *named = strcmp(wrong[i][0], "augmentation") == 0 ? "job: \"" : wrong[i][0];
        assert_message_of(wrong[i][1], named);
    }

    fth_job_spec spec = make_spec(), loaded;
    json_t *whole = fth_job_spec_save(&spec);
    const char *key;
    json_t *value;
    json_object_foreach(whole, key, value)
    {
        json_t *lacking = json_copy(whole);
        json_object_del(lacking, key);
        assert_int_equal(fth_job_spec_load(lacking, &loaded), FTH_INVALID);
        assert_message_has(key);
        json_decref(lacking);
    }
    json_decref(whole);
    assert_int_equal(fth_job_spec_load(NULL, &loaded), FTH_INVALID);

    char text[FTH_TRANSFORM_TEXT + 3];
    memset(text, 'x', sizeof text);
    text[0] = text[FTH_TRANSFORM_TEXT + 1] = '"';
    text[FTH_TRANSFORM_TEXT + 2] = '\0';
    assert_int_equal(load_with("transform", text, &loaded), FTH_INVALID);
    assert_message_has("transform");
}

static void seeds_may_be_numbers_too(void **state)
{
    (void)state;
    fth_job_spec loaded;
    assert_int_equal(load_with("order_seed", "7", &loaded), FTH_OK);
    assert_true(loaded.order_seed == 7);
    assert_int_equal(load_with("order_seed", "\"0\"", &loaded), FTH_OK);
    assert_true(loaded.order_seed == 0);
}

static void a_spec_must_fit_the_set(void **state)
{
    (void)state;
    fth_job_spec spec = make_spec(); /* a third of the set, 32 at a time, from the 64th on */
    assert_int_equal(fth_job_spec_check(&spec, 1000), FTH_OK);
    assert_int_equal(fth_job_spec_check(&spec, 90), FTH_INVALID);
    assert_message_has("batch");
    assert_int_equal(fth_job_spec_check(&spec, 0), FTH_INVALID);
}

/* ---- which samples ---- */

static fth_dataset *open_digits(void)
{
    fth_dataset *dataset;
    fth_dataset_options options = {.seed = 1, .validation_fraction = 0.1, .threads = 1};
    assert_int_equal(fth_dataset_open("digits", &options, &dataset), FTH_OK);
    return dataset;
}

/* All of two epochs and some, against what a loader gives. */
static void compare_with_loader(const fth_dataset *dataset, const fth_job_spec *spec)
{
    int64_t set_count = fth_dataset_get_info(dataset)->count[spec->split];
    int64_t limit = 2 * fth_job_batches_per_epoch(spec, set_count) + 3;
    fth_loader_options options = {.split = spec->split,
                                  .batch = spec->batch,
                                  .seed = spec->augment_seed,
                                  .shuffle = spec->shuffle,
                                  .augmentation = {.flip = true, .crop_padding = 2},
                                  .threads = 1,
                                  .first_batch = 1,
                                  .share = spec->share,
                                  .part = spec->part,
                                  .batch_limit = limit,
                                  .own_order = true,
                                  .order_seed = spec->order_seed,
                                  .rotation = spec->rotation,
                                  .recipes = true};
    fth_loader *loader;
    const fth_batch *batch;
    int64_t *samples = calloc((size_t)spec->batch, sizeof *samples), number = 1;
    assert_int_equal(fth_loader_open(dataset, &options, &loader), FTH_OK);
    for (;; number++) {
        fth_batch_plan plan = {.samples = samples};
        assert_int_equal(fth_loader_next(loader, test_deadline_in(wait_seconds), &batch), FTH_OK);
        if (!batch)
            break;
        fth_job_plan_batch(spec, set_count, number, &plan);
        assert_int_equal(plan.number, batch->number);
        assert_int_equal(plan.epoch, batch->epoch);
        assert_int_equal(plan.count, batch->count);
        assert_int_equal(plan.whole, batch->whole);
        assert_int_equal(plan.first, batch->first);
        for (int64_t i = 0; i < plan.count; i++) {
            fth_recipe recipe =
                fth_augment_choose(&options.augmentation, spec->augment_seed, plan.order_epoch, plan.samples[i]);
            assert_int_equal(plan.samples[i], batch->recipes[i].sample);
            assert_memory_equal(&recipe, &batch->recipes[i], sizeof recipe);
        }
    }
    assert_int_equal(number, limit);
    fth_loader_free(loader);
    free(samples);
}

static void batches_have_the_samples_that_a_loader_gives(void **state)
{
    (void)state;
    fth_dataset *dataset = open_digits();
    fth_job_spec spec = {.split = FTH_VALIDATION, .batch = 37, .order_seed = 5, .augment_seed = 9};
    compare_with_loader(dataset, &spec);
    spec.shuffle = true;
    compare_with_loader(dataset, &spec);
    spec.rotation = 111;
    compare_with_loader(dataset, &spec);
    spec.rotation += 3 * fth_dataset_get_info(dataset)->count[FTH_VALIDATION];
    compare_with_loader(dataset, &spec);
    spec.share = (fth_share){2, 3};
    compare_with_loader(dataset, &spec);
    spec.part = (fth_share){1, 4};
    compare_with_loader(dataset, &spec);
    spec = (fth_job_spec){.split = FTH_TRAIN, .batch = 501, .shuffle = true, .part = {2, 7}};
    compare_with_loader(dataset, &spec);
    fth_dataset_free(dataset);
}

/* ---- ids ---- */

enum { SET_COUNT = 1000 };

static fth_item_id batch_id(const fth_job_spec *spec, int64_t number)
{
    int64_t samples[SET_COUNT];
    fth_batch_plan plan = {.samples = samples};
    fth_job_plan_batch(spec, SET_COUNT, number, &plan);
    return fth_job_batch_id(spec, &plan);
}

static void check_ids(fth_item_id a, fth_item_id b, bool equal)
{
    assert_int_equal(fth_item_id_equal(a, b), equal);
}

static void an_id_depends_on_all_that_decides_the_contents(void **state)
{
    (void)state;
    const fth_job_spec spec = make_spec();
    fth_job_spec other;
    fth_item_id id = batch_id(&spec, 3);
    check_ids(id, batch_id(&spec, 3), true);
    check_ids(id, batch_id(&spec, 4), false);
#define DIFFERS(change)                                                                                                \
    do {                                                                                                               \
        other = spec;                                                                                                  \
        other.change;                                                                                                  \
        check_ids(id, batch_id(&other, 3), false);                                                                     \
    } while (0)
    DIFFERS(version[0] = 'b');
    DIFFERS(version[63] = 'b');
    DIFFERS(split = FTH_VALIDATION);
    DIFFERS(transform[0] = 'R');
    DIFFERS(augmentation.flip = false);
    DIFFERS(augmentation.crop_padding = 3);
    DIFFERS(batch = 31);
    DIFFERS(shuffle = false);
    DIFFERS(order_seed = 1);
    DIFFERS(augment_seed = 1);
    DIFFERS(share.index = 0);
    DIFFERS(part.index = 1);
    DIFFERS(rotation = 65);
#undef DIFFERS
    /* The same samples in the same order, whatever they are part of. */
    other = spec;
    strcpy(other.data, "the same under another name");
    other.sharing = FTH_SHARE_NONE;
    other.format = FTH_FORMAT_BATCHES;
    check_ids(id, batch_id(&other, 3), true);
    int64_t samples[] = {5, 6, 7};
    fth_batch_plan plan = {.number = 1, .epoch = 2, .order_epoch = 2, .count = 3, .whole = 3, .samples = samples},
                   part = plan;
    part.number = 9;
    part.first = 4;
    part.whole = 12;
    check_ids(fth_job_batch_id(&spec, &plan), fth_job_batch_id(&spec, &part), true);
    part.epoch = 3; /* of a job that joined one epoch later */
    check_ids(fth_job_batch_id(&spec, &plan), fth_job_batch_id(&spec, &part), true);
    part.order_epoch = 3;
    check_ids(fth_job_batch_id(&spec, &plan), fth_job_batch_id(&spec, &part), false);
}

/* So a validation batch is made once, and used after every epoch and by jobs of any seed. */
static void without_randomness_epoch_and_seed_do_not_matter(void **state)
{
    (void)state;
    fth_job_spec spec = make_spec(), other;
    strcpy(spec.transform, "resize=256,centre-crop=224,normalize=imagenet");
    spec.augmentation = (fth_augmentation){0};
    spec.shuffle = false;
    int64_t per_epoch = fth_job_batches_per_epoch(&spec, SET_COUNT);
    fth_item_id id = batch_id(&spec, 2);
    check_ids(id, batch_id(&spec, per_epoch + 2), true);
    other = spec;
    other.augment_seed++;
    check_ids(id, batch_id(&other, 2), true);
    other.augmentation.flip = true;
    check_ids(batch_id(&other, 2), batch_id(&other, per_epoch + 2), false);
    static const char *const random_steps[] = {"random-resized-crop=224", "resize=224,flip", "pad-crop=4",
                                               "resize=224, color-jitter=0.4", "colour-jitter=0.1,size=224x224"};
    for (size_t i = 0; i < FTH_COUNT_OF(random_steps); i++) {
        other = spec;
        strcpy(other.transform, random_steps[i]);
        check_ids(batch_id(&other, 2), batch_id(&other, per_epoch + 2), false);
    }
}

static void samples_have_ids_by_version_split_and_kind(void **state)
{
    (void)state;
    fth_job_spec spec = make_spec(), other = spec;
    fth_item_id id = fth_job_sample_id(&spec, FTH_ITEM_DECODED, 7);
    strcpy(other.transform, "flip");
    other.order_seed = 1;
    check_ids(id, fth_job_sample_id(&other, FTH_ITEM_DECODED, 7), true);
    check_ids(id, fth_job_sample_id(&other, FTH_ITEM_ENCODED, 7), false);
    check_ids(id, fth_job_sample_id(&other, FTH_ITEM_DECODED, 8), false);
    other.split = FTH_VALIDATION;
    check_ids(id, fth_job_sample_id(&other, FTH_ITEM_DECODED, 7), false);
    other = spec;
    other.version[10] = '0';
    check_ids(id, fth_job_sample_id(&other, FTH_ITEM_DECODED, 7), false);
}

/* Caches outlive programs: an id that changes makes all of Redis useless, and one that stays when
 * contents change makes it wrong. Change these figures together with ID_ENCODING. */
static void ids_are_the_same_everywhere(void **state)
{
    (void)state;
    fth_job_spec spec = make_spec();
    char text[FTH_ITEM_ID_TEXT];
    fth_item_id_format(batch_id(&spec, 3), text);
    assert_string_equal(text, "b691c7532c6170b2b38952a9b0a12ce4");
    fth_item_id_format(fth_job_sample_id(&spec, FTH_ITEM_ENCODED, 7), text);
    assert_string_equal(text, "53ff79f011ea595be965c1ab2cac433a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_again),
        cmocka_unit_test(a_spec_is_saved_and_loaded),
        cmocka_unit_test(a_wrong_member_is_named),
        cmocka_unit_test(seeds_may_be_numbers_too),
        cmocka_unit_test(a_spec_must_fit_the_set),
        cmocka_unit_test(batches_have_the_samples_that_a_loader_gives),
        cmocka_unit_test(an_id_depends_on_all_that_decides_the_contents),
        cmocka_unit_test(without_randomness_epoch_and_seed_do_not_matter),
        cmocka_unit_test(samples_have_ids_by_version_split_and_kind),
        cmocka_unit_test(ids_are_the_same_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
