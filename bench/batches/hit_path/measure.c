/* The hit path of the shared batch cache (src/batches/memory/segment.h): find, pin, check and
 * unpin, against plainly reading and copying the same memory; in one process and in four. Then 32
 * jobs of 4 workers each, as processes that wait for 1,000 entries a second, and the processor time
 * of the owner.
 *
 *     bench_hit_path [megabytes [rounds]] */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/vectorized.h"
#include "batches/memory/segment.h"

enum { MAX_READERS = 4, MAX_ROUNDS = 101, MAX_HITS = 1 << 20, JOBS = 32, WORKERS = 4, PER_SECOND = 1000, SECONDS = 8 };

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "bench_hit_path: %s: %s\n", what, *fth_error_message() ? fth_error_message() : strerror(errno));
        exit(1);
    }
}

static fth_item_id id_of(uint64_t number)
{
    return (fth_item_id){{number * UINT64_C(0x9e3779b97f4a7c15), ~number}};
}

static void put(fth_segment_cache *segment, uint64_t number, uint64_t size)
{
    void *entry;
    fth_receipt receipt;
    must(fth_segment_begin(segment, size, &entry) == FTH_OK, "begin");
    memset((char *)entry + sizeof(fth_item_header), (int)number, size - sizeof(fth_item_header));
    fth_item_seal(entry, id_of(number), FTH_ITEM_BATCH, size - sizeof(fth_item_header), &receipt);
    fth_segment_publish(segment, entry, &receipt);
}

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double quantile(double *values, size_t count, double part)
{
    qsort(values, count, sizeof *values, compare_doubles);
    return count ? values[(size_t)(part * (double)(count - 1))] : 0;
}

/* ---- bandwidth ---- */

typedef enum pass { PASS_HIT, PASS_READ, PASS_COPY, PASSES } pass;

/* What processes share: a barrier, and what they measured. */
typedef struct shared_results {
    _Atomic int arrived;
    double begin_s[PASSES][MAX_ROUNDS][MAX_READERS], end_s[PASSES][MAX_ROUNDS][MAX_READERS];
    double hit_s[MAX_READERS][MAX_HITS / MAX_READERS];
    size_t hits[MAX_READERS];
} shared_results;

FTH_VECTORIZED static uint64_t read_words(const uint64_t *words, size_t count)
{
    uint64_t sums[16] = {0};
    for (size_t i = 0; i + 16 <= count; i += 16)
        for (size_t j = 0; j < 16; j++)
            sums[j] += words[i + j];
    for (size_t j = 1; j < 16; j++)
        sums[0] += sums[j];
    return sums[0];
}

static void wait_for_all(shared_results *results, int readers, int *turn)
{
    atomic_fetch_add(&results->arrived, 1);
    for (++*turn; atomic_load(&results->arrived) < *turn * readers;)
        usleep(50);
}

/* Hits all entries. */
static uint64_t run_hits(fth_segment_view *view, fth_slot *slot, uint64_t entries, shared_results *results, int reader)
{
    uint64_t sum = 0;
    size_t *hits = &results->hits[reader];
    for (uint64_t i = 0; i < entries; i++) {
        fth_pin pin;
        bool found = false;
        double begin = fth_clock_seconds();
        must(fth_segment_pin(view, slot, id_of(i), &pin, &found) == FTH_OK && found, "pin");
        sum += *(const uint8_t *)pin.entry;
        fth_segment_unpin(slot, &pin);
        if (*hits < MAX_HITS / MAX_READERS)
            results->hit_s[reader][(*hits)++] = fth_clock_seconds() - begin;
    }
    return sum;
}

/* The others do not look the entries up: they read or copy the same bytes, in pieces of an entry's
 * size. */
static uint64_t run_plainly(pass kind, const char *bytes, uint64_t entries, uint64_t size, char *copy)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < entries; i++) {
        const char *entry = bytes + i * fth_align_up(size, 64);
        if (kind == PASS_READ) {
            sum += read_words((const uint64_t *)(const void *)entry, size / 8);
        } else {
            memcpy(copy, entry, size);
            sum += (uint8_t)copy[i % size];
        }
    }
    return sum;
}

typedef struct bandwidth_run {
    int readers, rounds;
    uint64_t size, entries;
    int segment_fd, board_fd;
    const int *slots;
    shared_results *results;
} bandwidth_run;

static void be_reader(const bandwidth_run *run, int reader)
{
    fth_segment_view *view = NULL;
    fth_board *board = NULL;
    fth_pin pin;
    bool found;
    int turn = 0;
    volatile uint64_t sum = 0;
    char *copy = malloc(run->size);
    must(copy && fth_segment_map(run->segment_fd, &view) == FTH_OK && fth_board_map(run->board_fd, &board) == FTH_OK,
         "map");
    fth_slot *slot = fth_board_slot(board, run->slots[reader]);
    must(fth_segment_pin(view, slot, id_of(0), &pin, &found) == FTH_OK && found, "pin");
    const char *bytes = pin.entry;                     /* entries were put one after another */
    for (int round = -1; round < run->rounds; round++) /* the first one maps the pages */
        for (int kind = 0; kind < PASSES; kind++) {
            wait_for_all(run->results, run->readers, &turn);
            double begin = fth_clock_seconds();
            sum += kind == PASS_HIT ? run_hits(view, slot, run->entries, run->results, reader)
                                    : run_plainly((pass)kind, bytes, run->entries, run->size, copy);
            if (round < 0) {
                run->results->hits[reader] = 0;
                continue;
            }
            run->results->begin_s[kind][round][reader] = begin;
            run->results->end_s[kind][round][reader] = fth_clock_seconds();
        }
    (void)sum;
    _exit(0);
}

/* All processes together, from the first one's beginning to the last one's end. */
static double speed_of(const bandwidth_run *run, int kind, int round)
{
    const double *begin = run->results->begin_s[kind][round], *end = run->results->end_s[kind][round];
    double first = begin[0], last = end[0];
    for (int i = 1; i < run->readers; i++) {
        first = begin[i] < first ? begin[i] : first;
        last = end[i] > last ? end[i] : last;
    }
    return (double)(run->entries * run->size) * run->readers / (last - first) / 1e9;
}

static void measure_bandwidth(uint64_t memory_bytes, uint64_t size, int readers, int rounds)
{
    shared_results *results = mmap(NULL, sizeof *results, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fth_board *board;
    fth_segment_cache *segment;
    int slots[MAX_READERS];
    double ratios[MAX_ROUNDS], speeds[PASSES][MAX_ROUNDS];
    must(results != MAP_FAILED && fth_board_create(&board) == FTH_OK &&
             fth_segment_create(memory_bytes, board, &segment) == FTH_OK,
         "memory");
    bandwidth_run run = {.readers = readers,
                         .rounds = rounds,
                         .size = size,
                         .entries = memory_bytes / fth_align_up(size, 64),
                         .segment_fd = fth_segment_read_only_fd(segment),
                         .board_fd = fth_board_fd(board),
                         .slots = slots,
                         .results = results};
    for (uint64_t i = 0; i < run.entries; i++)
        put(segment, i, size);
    for (int i = 0; i < readers; i++)
        slots[i] = fth_board_take(board, 1, 0);
    for (int i = 0; i < readers; i++)
        if (fork() == 0)
            be_reader(&run, i);
    for (int i = 0, state; i < readers; i++)
        must(wait(&state) > 0 && state == 0, "a reader failed");
    for (int round = 0; round < rounds; round++) {
        for (int kind = 0; kind < PASSES; kind++)
            speeds[kind][round] = speed_of(&run, kind, round);
        ratios[round] = speeds[PASS_HIT][round] / speeds[PASS_READ][round];
    }
    size_t hits = 0;
    double *all = results->hit_s[0];
    for (int i = 0; i < readers; i++)
        for (size_t j = 0; j < results->hits[i]; j++)
            all[hits++] = results->hit_s[i][j]; /* lists are moved together: never before what is still to be read */
    double p50 = quantile(all, hits, 0.5), p99 = quantile(all, hits, 0.99);
    printf("| %.3f MB | %d | %.1f | %.1f | %.1f | %.2f | %.3f | %.3f |\n", (double)size / 1e6, readers,
           quantile(speeds[PASS_HIT], (size_t)rounds, 0.5), quantile(speeds[PASS_READ], (size_t)rounds, 0.5),
           quantile(speeds[PASS_COPY], (size_t)rounds, 0.5), quantile(ratios, (size_t)rounds, 0.5), p50 * 1e3,
           p99 * 1e3);
    fflush(stdout);
    fth_segment_free(segment);
    fth_board_free(board);
    munmap(results, sizeof *results);
}

/* ---- 32 jobs of 4 workers ---- */

typedef struct worker_tally {
    _Atomic bool stop;
    _Atomic int ready;
    _Atomic uint64_t hits, waits, timeouts;
} worker_tally;

/* Takes each of its batches in turn, waiting where it is not there. */
static void be_worker(int segment_fd, int board_fd, int number, int slot_number, worker_tally *tally)
{
    fth_segment_view *view;
    fth_board *board = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    must(fth_segment_map(segment_fd, &view) == FTH_OK && fth_board_map(board_fd, &board) == FTH_OK, "map");
    fth_slot *slot = fth_board_slot(board, slot_number);
    atomic_fetch_add(&tally->ready, 1);
    for (uint64_t next = (uint64_t)number; !tally->stop;) {
        fth_pin pin;
        bool found = false;
        fth_slot_set_position(slot, (int64_t)next, JOBS * WORKERS, 0);
        must(fth_segment_pin(view, slot, id_of(next), &pin, &found) == FTH_OK, "pin");
        if (!found) {
            fth_slot_want(slot, id_of(next));
            must(fth_segment_pin(view, slot, id_of(next), &pin, &found) == FTH_OK, "pin");
        }
        if (found) {
            fth_slot_stop_wanting(slot);
            fth_segment_unpin(slot, &pin);
            fth_slot_count(slot, FTH_SLOT_HITS, 1);
            tally->hits++;
            next += JOBS * WORKERS;
        } else if (fth_slot_wait(slot, fth_deadline_in(2)) == FTH_OK) {
            tally->waits++;
        } else {
            tally->timeouts++;
        }
    }
    _exit(0);
}

static double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double private_megabytes(void)
{
    double pages = 0, shared = 0, all = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lf %lf %lf", &all, &pages, &shared) != 3)
        pages = shared = 0;
    if (file)
        fclose(file);
    return (pages - shared) * (double)sysconf(_SC_PAGESIZE) / 1e6;
}

static void measure_workers(uint64_t size)
{
    enum { COUNT = JOBS * WORKERS, KEPT = 2 * COUNT };
    worker_tally *tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fth_board *board;
    fth_segment_cache *segment;
    fth_slot_state seen;
    uint64_t looks = 0;
    must(tally != MAP_FAILED && fth_board_create(&board) == FTH_OK &&
             fth_segment_create((KEPT + 64) * (size + 64), board, &segment) == FTH_OK,
         "memory");
    for (int i = 0; i < COUNT; i++) {
        int slot = fth_board_take(board, (uint64_t)(i % JOBS) + 1, 0);
        if (fork() == 0)
            be_worker(fth_segment_read_only_fd(segment), fth_board_fd(board), i, slot, tally);
    }
    while (tally->ready < COUNT)
        usleep(1000);
    double begin = fth_clock_seconds(), busy = thread_seconds(), filling = 0;
    for (uint64_t number = 0; number < SECONDS * PER_SECOND; number++) {
        double due = begin + (double)number / PER_SECOND, left = due - fth_clock_seconds();
        if (number % 5 == 0) /* where everybody is, every 5 ms */
            for (int i = 0; i < FTH_BOARD_SLOTS; i++)
                looks += fth_board_read(board, i, &seen) && seen.waiting;
        if (left > 0)
            usleep((useconds_t)(left * 1e6));
        if (number >= KEPT)
            fth_segment_evict(segment, id_of(number - KEPT));
        void *entry;
        fth_receipt receipt;
        must(fth_segment_begin(segment, size, &entry) == FTH_OK, "begin");
        double start = thread_seconds(); /* who makes batches fills them, on another core or another machine */
        memset((char *)entry + sizeof(fth_item_header), 1, size - sizeof(fth_item_header));
        fth_item_seal(entry, id_of(number), FTH_ITEM_BATCH, size - sizeof(fth_item_header), &receipt);
        filling += thread_seconds() - start;
        fth_segment_publish(segment, entry, &receipt);
    }
    double took = fth_clock_seconds() - begin, used = thread_seconds() - busy - filling;
    tally->stop = true;
    for (int i = 0; i < COUNT; i++)
        wait(NULL);
    printf(
        "\n| jobs × workers | entries/s | hits | of them waited for | owner, %% of a core | owner's own memory, MB |\n"
        "| --- | --- | --- | --- | --- | --- |\n| %d × %d | %.0f | %llu | %llu | %.2f | %.1f |\n",
        JOBS, WORKERS, SECONDS * PER_SECOND / took, (unsigned long long)tally->hits, (unsigned long long)tally->waits,
        used / took * 100, private_megabytes());
    (void)looks;
    fth_segment_free(segment);
    fth_board_free(board);
    munmap(tally, sizeof *tally);
}

int main(int argc, char **argv)
{
    double megabytes = argc > 1 ? atof(argv[1]) : 512;
    int rounds = argc > 2 ? atoi(argv[2]) : 7;
    const uint64_t sizes[] = {64 * 1024, 1 << 20, 64 * 3 * 64 * 64 * 4, 64 * 3 * 224 * 224 * 4};
    must(megabytes >= 64 && rounds > 0 && rounds < MAX_ROUNDS, "wants at least 64 MB and 1 to 100 rounds");
    printf("| entry | processes | hit, GB/s | read, GB/s | memcpy, GB/s | hit over read | hit, ms, p50 | p99 |\n"
           "| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    fflush(stdout);
    for (size_t i = 0; i < FTH_COUNT_OF(sizes); i++)
        for (int readers = 1; readers <= MAX_READERS; readers += MAX_READERS - 1)
            measure_bandwidth((uint64_t)(megabytes * 1e6), sizes[i], readers, rounds);
    measure_workers(64 * 1024);
    return 0;
}
