/* The built-in sets: the same bytes on every machine and from every thread, and as many images of
 * each class. */
#include "test_data_files.h"

#include <pthread.h>

static uint64_t checksum(const fth_dataset *dataset, fth_split split, int count)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    uint8_t pixels[3072];
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    int size = info->channels * info->height * info->width;
    for (int i = 0; i < count; i++) {
        int32_t label;
        assert_int_equal(fth_dataset_read(dataset, split, i, pixels, &label), FTH_OK);
        for (int j = 0; j < size; j++)
            hash = (hash ^ pixels[j]) * 0x100000001b3u;
        hash = (hash ^ (uint64_t)label) * 0x100000001b3u;
    }
    return hash;
}

static void pictures_are_pinned(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t sums[2];
    } cases[] = {{"digits", {0xc8dda7900d59a9deu, 0x493725002fd41271u}},
                 {"shapes", {0x27a93a3d352b61b4u, 0x267737df91089d3fu}},
                 {"shapes-20", {0x6e7b2d8a4c9fde28u, 0xc23f83dddb76442au}}};
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_dataset *dataset = NULL;
        assert_int_equal(open_set(cases[i].name, &dataset), FTH_OK);
        for (int split = 0; split < 2; split++) {
            uint64_t first = checksum(dataset, (fth_split)split, 300);
            assert_int_equal(checksum(dataset, (fth_split)split, 300), first); /* kept as drawn */
            assert_int_equal(first, cases[i].sums[split]);
        }
        fth_dataset_free(dataset);
    }
}

static void classes_are_balanced_and_pixels_as_stated(void **state)
{
    (void)state;
    for (const fth_dataset_builtin *builtin = fth_dataset_builtins; builtin->name; builtin++) {
        fth_dataset *dataset = NULL;
        assert_int_equal(open_set(builtin->name, &dataset), FTH_OK);
        const fth_dataset_info *info = fth_dataset_get_info(dataset);
        assert_string_equal(info->name, builtin->name);
        assert_int_equal(info->count[FTH_TRAIN], 20000);
        assert_int_equal(info->count[FTH_VALIDATION], 4000);
        int counts[20] = {0};
        double sum = 0, squares = 0;
        int area = info->height * info->width;
        uint8_t pixels[3072];
        for (int i = 0; i < 4000; i++) {
            int32_t label;
            assert_int_equal(fth_dataset_read(dataset, FTH_VALIDATION, i, pixels, &label), FTH_OK);
            counts[label]++;
            for (int j = 0; j < area; j++) {
                double value = pixels[j] / 255.0;
                sum += value;
                squares += value * value;
            }
        }
        for (int i = 0; i < info->classes; i++)
            assert_int_equal(counts[i], 4000 / info->classes);
        double mean = sum / (4000.0 * area), variance = squares / (4000.0 * area) - mean * mean;
        /* The constants come from the training images; 4000 others agree within a sampling
         * error. */
        assert_float_equal(mean, info->normalization.mean[0], 0.01);
        assert_float_equal(variance, info->normalization.deviation[0] * info->normalization.deviation[0], 0.01);
        fth_dataset_free(dataset);
    }
}

typedef struct reader {
    const fth_dataset *dataset;
    uint64_t sum;
} reader;

static void *read_all(void *argument)
{
    reader *self = argument;
    self->sum = checksum(self->dataset, FTH_TRAIN, 2000);
    return NULL;
}

/* All threads want the same picture at the same time. */
static void threads_draw_the_same(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    pthread_t threads[4];
    reader readers[4];
    assert_int_equal(open_set("digits", &dataset), FTH_OK);
    for (int i = 0; i < 4; i++) {
        readers[i] = (reader){dataset, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, &readers[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++)
        assert_int_equal(readers[i].sum, checksum(dataset, FTH_TRAIN, 2000));
    fth_dataset_free(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_pinned),
        cmocka_unit_test(classes_are_balanced_and_pixels_as_stated),
        cmocka_unit_test(threads_draw_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
