/* Reads entries of one size from Redis through the cache, as an agent does: `bench_batches_redis
 * ADDRESS BYTES SECONDS THREADS`. Prints a line of JSON: bytes a second of gets of 16 entries at a
 * time, checked, and how long a get of a single one takes. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batches/cache/cache.h"

enum { ENTRIES = 16, MAX_THREADS = 16, MAX_TIMES = 1 << 20 };

typedef struct reader_thread {
    fth_cache *cache;
    double seconds;
    uint64_t bytes;
    pthread_t thread;
} reader_thread;

static fth_item_id id_of(uint64_t number)
{
    return (fth_item_id){{fth_random_mix(number), number}};
}

static void count_bytes(void *context, size_t which, const void *entry, uint64_t size_bytes)
{
    (void)which, (void)entry;
    *(uint64_t *)context += size_bytes;
}

static fth_status put_entries(fth_cache *cache, uint64_t size_bytes)
{
    fth_status status = FTH_OK;
    for (uint64_t i = 0; i < ENTRIES && status == FTH_OK; i++) {
        void *entry = NULL;
        fth_receipt receipt;
        status = fth_cache_begin(cache, size_bytes, &entry);
        if (status != FTH_OK)
            break;
        memset((char *)entry + sizeof(fth_item_header), (int)i, size_bytes - sizeof(fth_item_header));
        fth_item_seal(entry, id_of(i), FTH_ITEM_BATCH, size_bytes - sizeof(fth_item_header), &receipt);
        status = fth_cache_put(cache, entry, &receipt);
    }
    return status;
}

static void *read_many(void *context)
{
    reader_thread *reader = context;
    fth_item_id ids[ENTRIES];
    fth_deadline end = fth_deadline_in(reader->seconds);
    for (uint64_t i = 0; i < ENTRIES; i++)
        ids[i] = id_of(i);
    while (!fth_deadline_passed(end))
        if (fth_cache_get(reader->cache, ids, ENTRIES, fth_deadline_in(30), count_bytes, &reader->bytes) != FTH_OK) {
            fprintf(stderr, "%s\n", fth_error_message());
            exit(1);
        }
    return NULL;
}

static int compare_times(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

/* Sorted times of single gets, in seconds; how many. */
static size_t read_single(fth_cache *cache, double seconds, double *times)
{
    fth_deadline end = fth_deadline_in(seconds);
    size_t count = 0;
    for (; count < MAX_TIMES && !fth_deadline_passed(end); count++) {
        fth_item_id id = id_of(count % ENTRIES);
        uint64_t bytes = 0;
        double begin_s = fth_clock_seconds();
        if (fth_cache_get(cache, &id, 1, fth_deadline_in(30), count_bytes, &bytes) != FTH_OK || bytes == 0)
            exit(1);
        times[count] = fth_clock_seconds() - begin_s;
    }
    qsort(times, count, sizeof *times, compare_times);
    return count;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: %s ADDRESS BYTES SECONDS THREADS\n", argv[0]);
        return 2;
    }
    uint64_t size_bytes = strtoull(argv[2], NULL, 10), bytes = 0;
    double seconds = strtod(argv[3], NULL), *times = malloc(MAX_TIMES * sizeof *times);
    int threads = atoi(argv[4]) < MAX_THREADS ? atoi(argv[4]) : MAX_THREADS;
    reader_thread readers[MAX_THREADS];
    fth_cache *cache = NULL;
    if (!times || fth_cache_open(argv[1], &(fth_cache_options){.deadline_s = 30}, &cache) != FTH_OK ||
        put_entries(cache, size_bytes) != FTH_OK) {
        fprintf(stderr, "%s\n", fth_error_message());
        return 1;
    }
    double begin_s = fth_clock_seconds();
    for (int i = 0; i < threads; i++) {
        readers[i] = (reader_thread){.cache = cache, .seconds = seconds};
        pthread_create(&readers[i].thread, NULL, read_many, &readers[i]);
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(readers[i].thread, NULL);
        bytes += readers[i].bytes;
    }
    double took_s = fth_clock_seconds() - begin_s;
    size_t count = read_single(cache, seconds, times);
    printf("{\"bytes_per_s\": %.0f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"gets\": %zu}\n", (double)bytes / took_s,
           times[count / 2] * 1e3, times[count * 99 / 100] * 1e3, count);
    fth_cache_free(cache);
    free(times);
    return 0;
}
