/* The order of samples, augmentation, and the loader: everything a pure function of seed and
 * position, whatever the number of threads and wherever a run begins. */
#include "test_data_files.h"

#include <math.h>

static const double wait_seconds = 20;

/* ---- sampler ---- */

static void every_epoch_visits_every_sample_once(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 2, 3, 10, 257, 1000};
    for (size_t i = 0; i < FTH_COUNT_OF(counts); i++)
        for (int64_t epoch = 0; epoch < 4; epoch++) {
            fth_sampler sampler = {.seed = 3, .count = counts[i], .shuffle = true};
            bool seen[1000] = {false};
            for (int64_t position = 0; position < counts[i]; position++) {
                int64_t index = fth_sampler_index(&sampler, epoch, position);
                assert_in_range(index, 0, counts[i] - 1);
                assert_false(seen[index]);
                seen[index] = true;
            }
        }
}

static void indices_in_a_row_are_those_one_by_one(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 2, 65, 1000, 1281167};
    int64_t samples[200];
    for (size_t i = 0; i < FTH_COUNT_OF(counts); i++)
        for (int kind = 0; kind < 8; kind++) {
            fth_sampler sampler = {.seed = 3, .count = counts[i], .shuffle = kind & 1};
            sampler.rotation = kind & 2 ? counts[i] / 2 : 0;
            sampler.share = kind & 4 ? (fth_share){1, 3} : (fth_share){0};
            int64_t all = fth_share_samples(sampler.share, counts[i]), count = all < 200 ? all : 200;
            fth_sampler_indices(&sampler, 5, all - count, count, samples);
            for (int64_t j = 0; j < count; j++)
                assert_int_equal(samples[j], fth_sampler_index(&sampler, 5, all - count + j));
        }
}

static int count_fixed(fth_sampler a, int64_t epoch_a, fth_sampler b, int64_t epoch_b)
{
    int same = 0;
    for (int64_t position = 0; position < a.count; position++)
        same += fth_sampler_index(&a, epoch_a, position) == fth_sampler_index(&b, epoch_b, position);
    return same;
}

static void orders_differ_by_epoch_and_seed(void **state)
{
    (void)state;
    fth_sampler one = {.seed = 1, .count = 1000, .shuffle = true}, two = one, plain = one;
    two.seed = 2;
    plain.shuffle = false;
    /* Two random orders agree in one place on average; 12 or more has a chance below 1e-9. */
    assert_true(count_fixed(one, 0, one, 1) < 12);
    assert_true(count_fixed(one, 0, two, 0) < 12);
    assert_true(count_fixed(one, 0, plain, 0) < 12);
    for (int64_t position = 0; position < 1000; position++)
        assert_int_equal(fth_sampler_index(&plain, 9, position), position);
}

/* ---- augmentation ---- */

static const fth_dataset_info colour_info = {
    .channels = 2, .height = 5, .width = 6, .normalization = {2, {0.5f, 0.25f}, {0.25f, 0.5f}}};

static float normalized(int channel, int pixel)
{
    return ((float)pixel / 255.0f - colour_info.normalization.mean[channel]) /
           colour_info.normalization.deviation[channel];
}

/* Finds the flip and shift that explain an image; fails if none does. */
static void explain(const uint8_t *pixels, const float *image, int padding, int found[3])
{
    for (int flip = 0; flip < 2; flip++)
        for (int down = -padding; down <= padding; down++)
            for (int right = -padding; right <= padding; right++) {
                bool same = true;
                for (int c = 0; c < 2 && same; c++)
                    for (int y = 0; y < 5 && same; y++)
                        for (int x = 0; x < 6 && same; x++) {
                            int from_x = (flip ? 5 - x : x) + right, from_y = y + down;
                            bool inside = from_x >= 0 && from_x < 6 && from_y >= 0 && from_y < 5;
                            float wanted = normalized(c, inside ? pixels[c * 30 + from_y * 6 + from_x] : 0);
                            same = fabsf(image[c * 30 + y * 6 + x] - wanted) < 1e-5f; /* a few ulp of 4 */
                        }
                if (same) {
                    found[0] = flip;
                    found[1] = down;
                    found[2] = right;
                    return;
                }
            }
    fail_msg("no flip and shift explains the image");
}

static void augmentation_is_a_flip_and_a_shift(void **state)
{
    (void)state;
    uint8_t pixels[60];
    float image[60], again[60];
    int flips = 0, shifts[5][5] = {{0}};
    fth_augmentation augmentation = {.flip = true, .crop_padding = 2};
    for (int i = 0; i < 60; i++)
        pixels[i] = (uint8_t)(i * 4 + 3);
    for (int sample = 0; sample < 400; sample++) {
        int found[3] = {0};
        fth_augment(&colour_info, &augmentation, 1, 2, sample, pixels, image);
        fth_augment(&colour_info, &augmentation, 1, 2, sample, pixels, again);
        assert_memory_equal(image, again, sizeof image);
        explain(pixels, image, 2, found);
        flips += found[0];
        shifts[found[1] + 2][found[2] + 2]++;
    }
    assert_in_range(flips, 150, 250); /* 200 ± 5 deviations of 10 */
    for (int i = 0; i < 25; i++)
        assert_true(shifts[i / 5][i % 5] > 0); /* each 16 on average */
}

static void augmentation_depends_on_seed_epoch_and_sample(void **state)
{
    (void)state;
    uint8_t pixels[60];
    float image[60];
    uint64_t keys[4][3] = {{1, 1, 0}, {2, 1, 0}, {1, 2, 0}, {1, 1, 1000}};
    int patterns[4][64][3];
    fth_augmentation augmentation = {.flip = true, .crop_padding = 1};
    for (int i = 0; i < 60; i++)
        pixels[i] = (uint8_t)(i * 4 + 3);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 64; j++) {
            fth_augment(&colour_info, &augmentation, keys[i][0], (int64_t)keys[i][1], (int64_t)keys[i][2] + j, pixels,
                        image);
            explain(pixels, image, 1, patterns[i][j]);
        }
    for (int i = 1; i < 4; i++)
        assert_memory_not_equal(patterns[0], patterns[i], sizeof patterns[0]);
}

static void no_augmentation_only_normalizes(void **state)
{
    (void)state;
    uint8_t pixels[60];
    float image[60];
    int found[3] = {0};
    fth_augmentation none = {0};
    for (int i = 0; i < 60; i++)
        pixels[i] = (uint8_t)(i * 4);
    fth_augment(&colour_info, &none, 1, 2, 3, pixels, image);
    explain(pixels, image, 0, found);
    assert_int_equal(found[0], 0);
}

/* ---- loader ---- */

static void open_numbered(uint32_t train, uint32_t test, fth_dataset **dataset)
{
    write_idx_pair("train", train, 2);
    write_idx_pair("t10k", test, 2);
    assert_int_equal(open_set(test_folder, dataset), FTH_OK);
}

/* Undoes the normalization: the number of the sample in its first two pixels. */
static int number_of(const fth_dataset *dataset, const float *image)
{
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    int low = (int)lrintf((image[0] * info->normalization.deviation[0] + info->normalization.mean[0]) * 255.0f);
    int high = (int)lrintf((image[1] * info->normalization.deviation[0] + info->normalization.mean[0]) * 255.0f);
    return low + 256 * high;
}

static const fth_batch *next_of(fth_loader *loader)
{
    const fth_batch *batch = NULL;
    assert_int_equal(fth_loader_next(loader, test_deadline_in(wait_seconds), &batch), FTH_OK);
    return batch;
}

static void epochs_cover_every_sample_once(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    open_numbered(1003, 10, &dataset);
    for (int threads = 1; threads <= 4; threads += 3) {
        fth_loader *loader = NULL;
        fth_loader_options options = {.batch = 50, .seed = 4, .shuffle = true, .threads = threads};
        assert_int_equal(fth_batches_per_epoch(1003, 50), 21);
        assert_int_equal(fth_loader_open(dataset, &options, &loader), FTH_OK);
        int first_of_epoch[3];
        for (int epoch = 0; epoch < 3; epoch++) {
            bool seen[1003] = {false};
            for (int i = 0; i < 21; i++) {
                const fth_batch *batch = next_of(loader);
                assert_int_equal(batch->number, epoch * 21 + i);
                assert_int_equal(batch->epoch, epoch);
                assert_int_equal(batch->count, i < 20 ? 50 : 3);
                assert_true(batch->decode_seconds >= 0);
                for (int64_t j = 0; j < batch->count; j++) {
                    int number = number_of(dataset, batch->images + j * 4);
                    assert_in_range(number, 0, 1002);
                    assert_int_equal(batch->labels[j], number % 10);
                    assert_false(seen[number]);
                    seen[number] = true;
                    if (i == 0 && j == 0)
                        first_of_epoch[epoch] = number;
                }
            }
        }
        assert_false(first_of_epoch[0] == first_of_epoch[1] && first_of_epoch[1] == first_of_epoch[2]);
        fth_loader_free(loader);
    }
    fth_dataset_free(dataset);
}

static void evaluation_ends_after_one_epoch(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    fth_loader *loader = NULL;
    open_numbered(20, 107, &dataset);
    fth_loader_options options = {.split = FTH_VALIDATION, .batch = 25, .threads = 3};
    options.batch_limit = fth_batches_per_epoch(107, 25);
    assert_int_equal(fth_loader_open(dataset, &options, &loader), FTH_OK);
    int expected = 0;
    for (const fth_batch *batch; (batch = next_of(loader));)
        for (int64_t i = 0; i < batch->count; i++)
            assert_int_equal(number_of(dataset, batch->images + i * 4), expected++);
    assert_int_equal(expected, 107);
    assert_null(next_of(loader)); /* and stays at the end */
    fth_loader_free(loader);

    options.first_batch = options.batch_limit; /* a run that was already complete */
    assert_int_equal(fth_loader_open(dataset, &options, &loader), FTH_OK);
    assert_null(next_of(loader));
    fth_loader_free(loader);
    fth_dataset_free(dataset);
}

/* Loaders with 1 and 4 threads, and one that begins later, give the same bytes for the same batch
 * of `options`, of whose batches an epoch has `per_epoch`. */
static void check_threads_and_start(const fth_dataset *dataset, const fth_loader_options *options, int64_t per_epoch,
                                    int64_t resumed_at)
{
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    const size_t image_bytes = (size_t)(info->channels * info->height * info->width) * sizeof(float);
    const int64_t samples = info->count[options->split];
    fth_loader *loaders[3];
    for (int i = 0; i < 3; i++) {
        fth_loader_options own = *options;
        own.threads = i == 0 ? 1 : 4;
        own.first_batch = i == 2 ? resumed_at : 0;
        assert_int_equal(fth_loader_open(dataset, &own, &loaders[i]), FTH_OK);
    }
    for (int64_t number = 0; number < options->batch_limit; number++) {
        const fth_batch *single = next_of(loaders[0]);
        int64_t left = samples - number % per_epoch * options->batch;
        for (int i = 1; i < (number < resumed_at ? 2 : 3); i++) {
            const fth_batch *other = next_of(loaders[i]);
            assert_int_equal(other->number, number);
            assert_int_equal(other->epoch, number / per_epoch);
            assert_int_equal(other->count, single->count);
            assert_int_equal(other->count, left < options->batch ? left : options->batch);
            assert_memory_equal(other->images, single->images, (size_t)single->count * image_bytes);
            assert_memory_equal(other->labels, single->labels, (size_t)single->count * sizeof(int32_t));
        }
    }
    for (int i = 0; i < 3; i++) {
        assert_null(next_of(loaders[i]));
        fth_loader_free(loaders[i]);
    }
}

static void batches_do_not_depend_on_threads_or_start(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    fth_loader_options options = {.split = FTH_VALIDATION,
                                  .batch = 130, /* 4000 samples: 31 batches an epoch, the last of 100 */
                                  .seed = 11,
                                  .shuffle = true,
                                  .augmentation = {.flip = true, .crop_padding = 2},
                                  .batch_limit = 40};
    assert_int_equal(open_set("digits", &dataset), FTH_OK);
    check_threads_and_start(dataset, &options, 31, 17);
    fth_dataset_free(dataset);
}

/* Nor do those of images in memory that go through a transform, grey or in colour. */
static void transformed_batches_do_not_depend_on_threads_or_start(void **state)
{
    (void)state;
    enum { SIDE = 20 };
    static const char *const sets[] = {"digits", "shapes"};
    for (int set = 0; set < 2; set++) {
        fth_dataset_options how = {.transform = "random-resized-crop=20,flip,colour-jitter=0.4:0.4:0.4:0.1"};
        fth_loader_options options = {.batch = 50, .seed = 11, .shuffle = true, .batch_limit = 12};
        fth_dataset *dataset = NULL;
        fth_loader *loader = NULL;
        assert_int_equal(fth_dataset_open(sets[set], &how, &dataset), FTH_OK);
        assert_true(fth_dataset_is_transformed(dataset));
        const fth_dataset_info *info = fth_dataset_get_info(dataset);
        assert_true(info->height == SIDE && info->width == SIDE && info->channels == (set == 0 ? 1 : 3));
        check_threads_and_start(dataset, &options, 400, 5);
        options.recipes = true;
        assert_int_equal(fth_loader_open(dataset, &options, &loader), FTH_INVALID);
        fth_dataset_free(dataset);
    }
}

/* --augment goes with another image size: flips and shifts of the image brought to it. */
static void augmentation_comes_after_a_resize(void **state)
{
    (void)state;
    enum { SIDE = 56, COUNT = 60, PADDING = 8 }; /* twice 28, so twice the padding */
    fth_dataset *dataset = NULL;
    fth_loader *plain = NULL, *varied = NULL;
    int flips = 0, moved = 0;
    assert_int_equal(fth_dataset_open("digits", &(fth_dataset_options){.image_size = SIDE}, &dataset), FTH_OK);
    fth_loader_options options = {.batch = COUNT, .seed = 3};
    assert_int_equal(fth_loader_open(dataset, &options, &plain), FTH_OK);
    options.augmentation = (fth_augmentation){.flip = true, .crop_padding = 4};
    assert_int_equal(fth_loader_open(dataset, &options, &varied), FTH_OK);
    const fth_batch *before = next_of(plain), *after = next_of(varied);
    const float padding = before->images[0]; /* digits are drawn on black */
    for (int n = 0; n < COUNT; n++) {
        const float *from = before->images + n * SIDE * SIDE, *to = after->images + n * SIDE * SIDE;
        bool found = false;
        for (int i = 0; i < 2 * (2 * PADDING + 1) * (2 * PADDING + 1) && !found; i++) {
            int flip = i % 2, dy = i / 2 % (2 * PADDING + 1) - PADDING, dx = i / 2 / (2 * PADDING + 1) - PADDING;
            found = true;
            for (int p = 0; p < SIDE * SIDE && found; p++) {
                int y = p / SIDE + dy, x = (flip ? SIDE - 1 - p % SIDE : p % SIDE) + dx;
                bool inside = x >= 0 && x < SIDE && y >= 0 && y < SIDE;
                found = fabsf(to[p] - (inside ? from[y * SIDE + x] : padding)) < 1e-5f;
            }
            flips += found && flip;
            moved += found && (dy != 0 || dx != 0);
        }
        assert_true(found);
    }
    assert_in_range(flips, 12, 48);
    assert_true(moved > 50);
    fth_loader_free(plain);
    fth_loader_free(varied);
    fth_dataset_free(dataset);
}

static void a_wait_ends_at_its_deadline_and_a_loader_at_once(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    fth_loader *loader = NULL;
    const fth_batch *batch = NULL;
    assert_int_equal(open_set("shapes", &dataset), FTH_OK);
    fth_loader_options options = {.batch = 2000, .threads = 1, .batch_limit = 2};
    assert_int_equal(fth_loader_open(dataset, &options, &loader), FTH_OK);
    assert_int_equal(fth_loader_next(loader, fth_deadline_in(0), &batch),
                     FTH_TIMEOUT); /* drawing takes 20 ms or more */
    assert_null(batch);
    assert_message_has("batch 0");
    assert_int_equal(next_of(loader)->number, 0);
    assert_int_equal(next_of(loader)->number, 1);
    fth_loader_free(loader);

    double begin = fth_clock_seconds();
    for (int i = 0; i < 20; i++) { /* threads that wait, and threads at work */
        options = (fth_loader_options){.batch = i % 2 ? 10 : 500, .threads = 3};
        assert_int_equal(fth_loader_open(dataset, &options, &loader), FTH_OK);
        if (i % 4 == 1)
            next_of(loader);
        fth_loader_free(loader);
    }
    assert_true(fth_clock_seconds() - begin < wait_seconds);
    fth_dataset_free(dataset);
}

static void refuses_bad_options(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    fth_loader *loader = NULL;
    open_numbered(30, 20, &dataset);
    static const struct {
        fth_loader_options options;
        const char *message;
    } cases[] = {
        {{.batch = 31, .threads = 1}, "a batch of 31 is larger than the 30 training images"},
        {{.split = FTH_VALIDATION, .batch = 21, .threads = 1}, "a batch of 21 is larger than the 20 validation images"},
        {{.batch = 0, .threads = 1}, "at least 1"},
        {{.batch = 5, .threads = -1}, "loader threads"},
        {{.batch = 5, .threads = 1, .first_batch = -1}, "negative"},
        {{.batch = 5, .threads = 1, .augmentation = {.crop_padding = 3}}, "crop padding of 3"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        assert_int_equal(fth_loader_open(dataset, &cases[i].options, &loader), FTH_INVALID);
        assert_null(loader);
        assert_message_has(cases[i].message);
    }
    fth_loader_free(NULL);
    fth_dataset_free(dataset);
}

/* What a device makes of a recipe, in plain loops. */
static void follow(const fth_dataset_info *info, const fth_recipe *recipe, const uint8_t *pixels, float *image)
{
    for (int c = 0; c < info->channels; c++) {
        float scale, shift;
        fth_dataset_normalization(info, c, &scale, &shift);
        for (int y = 0; y < info->height; y++)
            for (int x = 0; x < info->width; x++) {
                int from_y = y + recipe->down, from_x = (recipe->flip ? info->width - 1 - x : x) + recipe->right;
                bool inside = from_y >= 0 && from_y < info->height && from_x >= 0 && from_x < info->width;
                int at = (c * info->height + from_y) * info->width + from_x;
                *image++ = inside ? (float)pixels[at] * scale + shift : shift;
            }
    }
}

static void recipes_say_how_the_images_are_made(void **state)
{
    (void)state;
    enum { BATCHES = 5, PIXELS = 3 * 32 * 32 };
    fth_dataset *dataset = NULL;
    fth_loader *loaders[2] = {NULL};
    fth_loader_options options = {.batch = 32,
                                  .seed = 5,
                                  .shuffle = true,
                                  .augmentation = {.flip = true, .crop_padding = 4},
                                  .first_batch = 620}; /* the second epoch begins at 625 */
    assert_int_equal(fth_dataset_open("shapes", &(fth_dataset_options){0}, &dataset), FTH_OK);
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    for (int i = 0; i < 2; i++) {
        options.recipes = i == 1;
        assert_int_equal(fth_loader_open(dataset, &options, &loaders[i]), FTH_OK);
    }
    for (int b = 0; b < BATCHES + 3; b++) {
        const fth_batch *images, *recipes;
        assert_int_equal(fth_loader_next(loaders[0], test_deadline_in(wait_seconds), &images), FTH_OK);
        assert_int_equal(fth_loader_next(loaders[1], test_deadline_in(wait_seconds), &recipes), FTH_OK);
        assert_true(images->images && !images->recipes && !recipes->images && recipes->recipes);
        assert_memory_equal(images->labels, recipes->labels, (size_t)images->count * sizeof(int32_t));
        for (int64_t n = 0; n < images->count; n++) {
            uint8_t pixels[PIXELS];
            float made[PIXELS];
            int32_t label;
            assert_int_equal(fth_dataset_read(dataset, FTH_TRAIN, recipes->recipes[n].sample, pixels, &label), FTH_OK);
            assert_int_equal(label, recipes->labels[n]);
            follow(info, &recipes->recipes[n], pixels, made);
            assert_memory_equal(made, images->images + n * PIXELS, sizeof made);
        }
    }
    fth_loader_free(loaders[0]);
    fth_loader_free(loaders[1]);
    fth_dataset_free(dataset);
}

static fth_loader *open_part(const fth_dataset *dataset, fth_share part, int64_t first, int64_t stride)
{
    fth_loader *loader = NULL;
    fth_loader_options options = {.split = FTH_VALIDATION, /* 4000 samples: 4 batches an epoch, the last of 1 */
                                  .batch = 1333,
                                  .seed = 5,
                                  .shuffle = true,
                                  .part = part,
                                  .first_batch = first,
                                  .stride = stride,
                                  .batch_limit = 8};
    assert_int_equal(fth_loader_open(dataset, &options, &loader), FTH_OK);
    return loader;
}

/* All parts of a batch together are the batch, in order: also of the last, where all parts but one
 * are empty. */
static void parts_make_up_every_batch(void **state)
{
    (void)state;
    enum { PARTS = 3, BATCHES = 5 };
    fth_dataset *dataset = NULL;
    fth_loader *parts[PARTS];
    assert_int_equal(open_set("digits", &dataset), FTH_OK);
    fth_loader *whole = open_part(dataset, (fth_share){0}, 0, 0);
    for (int p = 0; p < PARTS; p++)
        parts[p] = open_part(dataset, (fth_share){p, PARTS}, 0, 0);
    for (int64_t b = 0; b < BATCHES; b++) {
        const fth_batch *all = NULL, *part = NULL;
        int64_t seen = 0;
        assert_int_equal(fth_loader_next(whole, test_deadline_in(wait_seconds), &all), FTH_OK);
        assert_true(all->count == (b == 3 ? 1 : 1333) && all->whole == all->count);
        for (int p = 0; p < PARTS; p++) {
            assert_int_equal(fth_loader_next(parts[p], test_deadline_in(wait_seconds), &part), FTH_OK);
            assert_true(part->number == b && part->epoch == b / 4 && part->whole == all->count);
            assert_memory_equal(part->labels, all->labels + seen, (size_t)part->count * sizeof *part->labels);
            assert_memory_equal(part->images, all->images + seen * 28 * 28,
                                (size_t)part->count * 28 * 28 * sizeof *part->images);
            seen += part->count;
        }
        assert_int_equal(seen, all->count);
    }
    fth_loader_free(whole);
    for (int p = 0; p < PARTS; p++)
        fth_loader_free(parts[p]);
    fth_dataset_free(dataset);
}

/* Samples that are asked for by index are those of the batches, bit for bit; also where they are
 * transformed. */
static void samples_by_index_are_those_of_batches(void **state)
{
    (void)state;
    enum { BATCH = 700, PIXELS = 28 * 28 };
    const char *const transforms[] = {NULL, "pad-crop=4,flip"};
    for (size_t t = 0; t < FTH_COUNT_OF(transforms); t++) {
        fth_dataset *dataset = NULL;
        fth_loader *batches = NULL, *samples = NULL;
        const fth_batch *batch = NULL;
        float image[PIXELS];
        int32_t label;
        fth_dataset_options how = {
            .seed = 1, .validation_fraction = 0.1, .threads = 1, .validation_transform = transforms[t]};
        fth_loader_options options = {.split = FTH_VALIDATION, .batch = BATCH, .seed = 5, .shuffle = true};
        fth_sampler sampler = {.seed = 5, .count = 4000, .shuffle = true};
        assert_int_equal(fth_dataset_open("digits", &how, &dataset), FTH_OK);
        assert_int_equal(fth_loader_open(dataset, &options, &batches), FTH_OK);
        options.by_index = true;
        assert_int_equal(fth_loader_open(dataset, &options, &samples), FTH_OK);
        for (int64_t b = 0; b < 8; b++) { /* six are an epoch */
            assert_int_equal(fth_loader_next(batches, test_deadline_in(wait_seconds), &batch), FTH_OK);
            for (int64_t i = 0; i < batch->count; i += 99) {
                int64_t sample = fth_sampler_index(&sampler, b / 6, b % 6 * BATCH + i);
                assert_int_equal(fth_loader_get(samples, b, sample, image, &label), FTH_OK);
                assert_int_equal(label, batch->labels[i]);
                assert_memory_equal(image, batch->images + i * PIXELS, sizeof image);
            }
        }
        assert_int_equal(fth_loader_get(samples, 0, 4000, image, &label), FTH_INVALID);
        assert_int_equal(fth_loader_get(samples, 0, -1, image, &label), FTH_INVALID);
        fth_loader_free(batches);
        fth_loader_free(samples);
        fth_dataset_free(dataset);
    }
}

/* Loaders that take turns have all batches of one loader, each once, and end where it does: here
 * after 3, 3 and 2 of 8. */
static void loaders_with_a_stride_take_turns(void **state)
{
    (void)state;
    enum { LOADERS = 3, BATCHES = 8 };
    fth_dataset *dataset = NULL;
    fth_loader *turns[LOADERS];
    const fth_batch *batch = NULL, *expected = NULL;
    assert_int_equal(open_set("digits", &dataset), FTH_OK);
    fth_loader *all = open_part(dataset, (fth_share){0}, 0, 0);
    for (int l = 0; l < LOADERS; l++)
        turns[l] = open_part(dataset, (fth_share){0}, l, LOADERS);
    for (int64_t b = 0; b < BATCHES; b++) {
        assert_int_equal(fth_loader_next(all, test_deadline_in(wait_seconds), &expected), FTH_OK);
        assert_int_equal(fth_loader_next(turns[b % LOADERS], test_deadline_in(wait_seconds), &batch), FTH_OK);
        assert_true(batch->number == b && batch->epoch == b / 4 && batch->count == expected->count);
        assert_memory_equal(batch->labels, expected->labels, (size_t)batch->count * sizeof *batch->labels);
        assert_memory_equal(batch->images, expected->images, (size_t)batch->count * 28 * 28 * sizeof *batch->images);
    }
    for (int l = 0; l < LOADERS; l++) {
        assert_int_equal(fth_loader_next(turns[l], test_deadline_in(wait_seconds), &batch), FTH_OK);
        assert_null(batch);
        fth_loader_free(turns[l]);
    }
    fth_loader_free(all);
    fth_dataset_free(dataset);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, test_make_folder, test_remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_epoch_visits_every_sample_once),
        cmocka_unit_test(indices_in_a_row_are_those_one_by_one),
        cmocka_unit_test(orders_differ_by_epoch_and_seed),
        cmocka_unit_test(augmentation_is_a_flip_and_a_shift),
        cmocka_unit_test(augmentation_depends_on_seed_epoch_and_sample),
        cmocka_unit_test(no_augmentation_only_normalizes),
        IN_FOLDER(epochs_cover_every_sample_once),
        IN_FOLDER(evaluation_ends_after_one_epoch),
        cmocka_unit_test(batches_do_not_depend_on_threads_or_start),
        cmocka_unit_test(parts_make_up_every_batch),
        cmocka_unit_test(loaders_with_a_stride_take_turns),
        cmocka_unit_test(samples_by_index_are_those_of_batches),
        cmocka_unit_test(transformed_batches_do_not_depend_on_threads_or_start),
        cmocka_unit_test(augmentation_comes_after_a_resize),
        cmocka_unit_test(recipes_say_how_the_images_are_made),
        cmocka_unit_test(a_wait_ends_at_its_deadline_and_a_loader_at_once),
        IN_FOLDER(refuses_bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
