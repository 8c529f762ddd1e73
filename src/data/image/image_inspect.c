/* Reads every image of a set: counts, sizes, unreadable images, and statistics of the pixels. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "data/image/image_inspect.h"
#include "data/image/image_set.h"

enum { GREY_NAMES = 20, FIRST_BUCKET = 64, BUCKETS = 11 }; /* below 64, 128, ... 65536 */

/* Results of one thread. */
typedef struct findings_of_thread {
    int64_t grey, readable, pixels, by_format[FTH_MOST_IMAGE_FORMATS];
    double sums[FTH_IMAGE_CHANNELS], squares[FTH_IMAGE_CHANNELS];
} findings_of_thread;

typedef struct image_inspection {
    const fth_image_set *set;
    fth_inspection *inspection;
    atomic_size_t next;
    pthread_mutex_t mutex; /* guards what follows */
    findings_of_thread all;
    int *widths, *heights; /* (count); 0 if unreadable */
    uint8_t *greys;        /* (count) */
    size_t bad_capacity;
    fth_status status;
    char message[512];
} image_inspection;

static void add_pixels(const fth_picture *picture, int width, int height, findings_of_thread *findings)
{
    uint64_t sums[FTH_IMAGE_CHANNELS] = {0}, squares[FTH_IMAGE_CHANNELS] = {0};
    for (int y = 0; y < height; y++) {
        const uint8_t *row = picture->pixels + (size_t)y * picture->stride;
        for (int x = 0; x < width; x++)
            for (int channel = 0; channel < FTH_IMAGE_CHANNELS; channel++) {
                uint32_t value = row[3 * x + channel];
                sums[channel] += value;
                squares[channel] += (uint64_t)value * value;
            }
    }
    for (int channel = 0; channel < FTH_IMAGE_CHANNELS; channel++) {
        findings->sums[channel] += (double)sums[channel] / 255;
        findings->squares[channel] += (double)squares[channel] / (255.0 * 255);
    }
    findings->pixels += (int64_t)width * height;
}

static fth_status look_at(image_inspection *shared, size_t entry, fth_image_worker *worker,
                          findings_of_thread *findings)
{
    fth_status status = FTH_OK;
    const uint8_t *bytes;
    size_t size_bytes;
    fth_image_header header;
    fth_picture picture;

    FTH_TRY(fth_image_set_read(shared->set, entry, worker, &bytes, &size_bytes));
    FTH_TRY(fth_decoder_begin(worker->decoder, bytes, size_bytes, &header));
    fth_decode_request request = {.eighths = 8, .width = header.width, .height = header.height, .smooth_chroma = true};
    FTH_TRY(fth_decoder_finish(worker->decoder, &request, &picture));
    shared->widths[entry] = header.width;
    shared->heights[entry] = header.height;
    shared->greys[entry] = header.grey;
    findings->readable++;
    findings->grey += header.grey;
    for (size_t i = 0; fth_image_format_get(i); i++)
        findings->by_format[i] += header.format == fth_image_format_get(i);
    add_pixels(&picture, header.width, header.height, findings);

out:
    return status;
}

/* With the mutex held. */
static fth_status note_bad(image_inspection *shared, size_t number)
{
    fth_inspection *inspection = shared->inspection;
    fth_status status =
        fth_grow(&inspection->bad, (size_t)inspection->bad_count, &shared->bad_capacity, sizeof *inspection->bad);
    if (status != FTH_OK)
        return status;
    const fth_image_entry *entry = &shared->set->index.entries[number];
    inspection->bad[inspection->bad_count++] = (fth_bad_image){
        .name = fth_image_index_path(&shared->set->index, entry),
        .reason = fth_format("%s", fth_error_message()),
        .split = shared->set->index.folders[entry->folder].split == FTH_VALIDATION ? FTH_VALIDATION : FTH_TRAIN};
    return FTH_OK;
}

static void *inspect(void *context)
{
    image_inspection *shared = context;
    findings_of_thread findings = {0};
    fth_image_worker *worker = NULL;
    fth_status status = fth_image_worker_create(&worker);

    for (size_t entry; status == FTH_OK && (entry = atomic_fetch_add(&shared->next, 1)) < shared->set->index.count;) {
        fth_image_set_expect_next(shared->set, entry);
        status = look_at(shared, entry, worker, &findings);
        if (status == FTH_CORRUPT) {
            pthread_mutex_lock(&shared->mutex);
            status = note_bad(shared, entry);
            pthread_mutex_unlock(&shared->mutex);
        }
    }
    fth_image_worker_free(worker);
    pthread_mutex_lock(&shared->mutex);
    if (status != FTH_OK && shared->status == FTH_OK) {
        shared->status = status;
        snprintf(shared->message, sizeof shared->message, "%s", fth_error_message());
    }
    shared->all.readable += findings.readable;
    shared->all.grey += findings.grey;
    for (size_t i = 0; i < FTH_MOST_IMAGE_FORMATS; i++)
        shared->all.by_format[i] += findings.by_format[i];
    shared->all.pixels += findings.pixels;
    for (int channel = 0; channel < FTH_IMAGE_CHANNELS; channel++) {
        shared->all.sums[channel] += findings.sums[channel];
        shared->all.squares[channel] += findings.squares[channel];
    }
    pthread_mutex_unlock(&shared->mutex);
    return NULL;
}

static int compare_numbers(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static int compare_bad(const void *a, const void *b)
{
    return strcmp(((const fth_bad_image *)a)->name, ((const fth_bad_image *)b)->name);
}

/* Smallest, median and largest side of the readable images. Sorts `sides`. */
static void find_extremes(int *sides, size_t count, int64_t readable, int extremes[3])
{
    qsort(sides, count, sizeof *sides, compare_numbers); /* unreadable ones (0) come first */
    if (readable == 0)
        return;
    size_t first = count - (size_t)readable;
    extremes[0] = sides[first];
    extremes[1] = sides[first + (size_t)readable / 2];
    extremes[2] = sides[count - 1];
}

static fth_status summarize(const fth_dataset *dataset, image_inspection *shared)
{
    fth_status status = FTH_OK;
    fth_inspection *inspection = shared->inspection;
    const fth_image_index *index = &shared->set->index;
    size_t greys = 0;

    FTH_TRY(fth_allocate(BUCKETS, sizeof *inspection->size_counts, &inspection->size_counts));
    FTH_TRY(fth_allocate(GREY_NAMES + 1, sizeof *inspection->grey_names, &inspection->grey_names));
    inspection->size_buckets = BUCKETS;
    for (int split = 0; split < 2; split++) {
        FTH_TRY(
            fth_allocate((size_t)index->classes, sizeof **inspection->class_counts, &inspection->class_counts[split]));
        for (int64_t i = 0; i < dataset->info.count[split]; i++) {
            const fth_image_entry *entry = &index->entries[fth_image_set_find(dataset, (fth_split)split, i)];
            inspection->class_counts[split][index->folders[entry->folder].class_index]++;
        }
    }
    for (size_t i = 0; i < index->count; i++) {
        int longer = shared->widths[i] > shared->heights[i] ? shared->widths[i] : shared->heights[i], bucket = 0;
        while (bucket < BUCKETS - 1 && longer >= FIRST_BUCKET << bucket)
            bucket++;
        inspection->size_counts[bucket] += longer > 0;
        if (shared->greys[i] && greys < GREY_NAMES)
            inspection->grey_names[greys++] = fth_image_index_path(index, &index->entries[i]);
    }
    const findings_of_thread *all = &shared->all;
    inspection->count = (int64_t)index->count;
    inspection->readable = all->readable;
    inspection->grey = all->grey;
    memcpy(inspection->by_format, all->by_format, sizeof all->by_format);
    for (int channel = 0; channel < FTH_IMAGE_CHANNELS && all->pixels > 0; channel++) {
        double mean = all->sums[channel] / (double)all->pixels;
        inspection->mean[channel] = mean;
        inspection->deviation[channel] = sqrt(fmax(0, all->squares[channel] / (double)all->pixels - mean * mean));
    }
    find_extremes(shared->widths, index->count, all->readable, inspection->width);
    find_extremes(shared->heights, index->count, all->readable, inspection->height);
    if (inspection->bad_count > 0)
        qsort(inspection->bad, (size_t)inspection->bad_count, sizeof *inspection->bad, compare_bad);

out:
    return status;
}

fth_status fth_dataset_inspect(const fth_dataset *dataset, int threads, fth_inspection *inspection)
{
    enum { MAX_THREADS = 64 };
    fth_status status = FTH_OK;
    pthread_t helpers[MAX_THREADS];
    int helper_count = 0;
    image_inspection shared = {.set = fth_dataset_images(dataset), .inspection = inspection};

    *inspection = (fth_inspection){0};
    pthread_mutex_init(&shared.mutex, NULL);
    FTH_REQUIRE(shared.set, FTH_INVALID, "%s is not a set of image files", dataset->info.name);
    FTH_TRY(fth_allocate(shared.set->index.count, sizeof *shared.widths, &shared.widths));
    FTH_TRY(fth_allocate(shared.set->index.count, sizeof *shared.heights, &shared.heights));
    FTH_TRY(fth_allocate(shared.set->index.count, 1, &shared.greys));
    while (helper_count < threads - 1 && helper_count < MAX_THREADS &&
           fth_thread_start(&helpers[helper_count], "inspect", inspect, &shared) == 0)
        helper_count++;
    inspect(&shared);
    for (int i = 0; i < helper_count; i++)
        pthread_join(helpers[i], NULL);
    FTH_REQUIRE(shared.status == FTH_OK, shared.status, "%s", shared.message);
    FTH_TRY(summarize(dataset, &shared));

out:
    pthread_mutex_destroy(&shared.mutex);
    free(shared.widths);
    free(shared.heights);
    free(shared.greys);
    return status;
}

fth_inspected_format fth_inspection_format(size_t number)
{
    const fth_image_format *format = fth_image_format_get(number);
    return format ? (fth_inspected_format){format->name, format->key} : (fth_inspected_format){NULL, NULL};
}

void fth_inspection_release(fth_inspection *inspection)
{
    for (int64_t i = 0; i < inspection->bad_count; i++) {
        free((char *)inspection->bad[i].name);
        free((char *)inspection->bad[i].reason);
    }
    for (char **name = inspection->grey_names; name && *name; name++)
        free(*name);
    free(inspection->grey_names);
    free(inspection->bad);
    free(inspection->size_counts);
    free(inspection->class_counts[0]);
    free(inspection->class_counts[1]);
    *inspection = (fth_inspection){0};
}
