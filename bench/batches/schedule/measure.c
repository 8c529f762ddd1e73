/* What the scheduler of the batch cache costs: 32 jobs of 4 processes each take 1,000 batches of
 * 256 samples a second, all together, from a set of 1.28 million. Positions of all processes are
 * reported every 5 ms, as the coordinator does. Time is virtual; what is printed is the processor
 * time that the calls took, as a share of one core of the time that passed, and the memory.
 *
 *     ninja -C build bench_batches_schedule && build/bench_batches_schedule */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "batches/scheduler/scheduler.h"

enum { JOBS = 32, PROCESSES = 4, BATCH = 256, SAMPLES = 1281167, BATCHES_PER_S = 1000 };
static const double tick_s = 0.005, seconds = 20;

static double processor_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static fth_job_spec make_spec(const fth_cache_format format, bool alike, uint64_t job)
{
    fth_job_spec spec = {.data = "imagenet",
                         .transform = "random-resized-crop=224,flip,normalize=imagenet",
                         .batch = BATCH,
                         .shuffle = true,
                         .sharing = FTH_SHARE_ORDER,
                         .order_seed = alike ? 1 : job,
                         .augment_seed = format == FTH_FORMAT_BATCHES && alike ? 1 : job,
                         .format = format};
    memset(spec.version, 'a', sizeof spec.version - 1);
    return spec;
}

/* Makes all that is due, at most as much as may be in memory. */
static int64_t make(fth_scheduler *scheduler, double now_s)
{
    fth_order order;
    fth_item_id ids[64];
    int64_t made = 0;
    for (; fth_scheduler_take(scheduler, "maker", now_s, &order); made++) {
        bool batch = order.kind == FTH_ITEM_BATCH;
        fth_prefetch_result preparation = {.receipt = {.id = order.id, .size_bytes = batch ? 150 << 20 : 600 << 10},
                                           .samples = batch ? BATCH : 1,
                                           .decoded = batch ? BATCH : 1};
        fth_scheduler_done(scheduler, &order, &preparation, now_s);
        while (fth_scheduler_evict(scheduler, 0, now_s, ids, FTH_COUNT_OF(ids)) > 0)
            continue;
    }
    return made;
}

static void measure(const char *name, fth_cache_format format, bool alike, double memory_gb)
{
    fth_scheduler *scheduler;
    fth_scheduler_options options = {.memory_bytes = (uint64_t)(memory_gb * 1e9)};
    int64_t next[JOBS][PROCESSES], made = 0, used = 0;
    if (fth_scheduler_create(&options, &scheduler) != FTH_OK)
        exit(1);
    for (uint64_t job = 0; job < JOBS; job++) {
        fth_job_spec spec = make_spec(format, alike, job);
        if (fth_scheduler_add_job(scheduler, job + 1, &spec, SAMPLES, 0) != FTH_OK)
            exit(1);
        for (int process = 0; process < PROCESSES; process++)
            next[job][process] = process;
    }
    double owed = 0, begin = processor_seconds();
    int turn = 0;
    for (double now = 1; now < 1 + seconds; now += tick_s) {
        for (int job = 0; job < JOBS; job++)
            for (int process = 0; process < PROCESSES; process++)
                fth_scheduler_set_position(scheduler, (uint64_t)job + 1, process, next[job][process], PROCESSES, 0,
                                           now);
        made += make(scheduler, now);
        for (owed += BATCHES_PER_S * tick_s; owed >= 1; owed--, used++, turn = (turn + 1) % (JOBS * PROCESSES))
            next[turn % JOBS][turn / JOBS] += PROCESSES;
    }
    double spent = processor_seconds() - begin;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%-40s %6.2f %% of a core   %8lld items made, %lld batches used, %ld MB at most so far\n", name,
           100 * spent / seconds, (long long)made, (long long)used, usage.ru_maxrss / 1024);
    fth_scheduler_free(scheduler);
}

int main(void)
{
    measure("batches, equal jobs, 16 GB", FTH_FORMAT_BATCHES, true, 16);
    measure("batches, equal jobs, 16 TB", FTH_FORMAT_BATCHES, true, 16000);
    measure("batches, each its own order, 16 GB", FTH_FORMAT_BATCHES, false, 16);
    measure("batches, each its own order, 16 TB", FTH_FORMAT_BATCHES, false, 16000);
    measure("decoded, one order, 100 GB", FTH_FORMAT_DECODED, true, 100);
    measure("decoded, one order, 2 TB", FTH_FORMAT_DECODED, true, 2000);
    measure("decoded, each its own order, 2 TB", FTH_FORMAT_DECODED, false, 2000);
    return 0;
}
