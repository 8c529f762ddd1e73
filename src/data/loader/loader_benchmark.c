/* Measures the loader, or only the decoders, for bench/loader. */
#include <pthread.h>
#include <stdlib.h>

#include "base/process.h"
#include "data/image/image_set.h"

/* ---- the decoders ---- */

typedef struct decode_threads {
    const fth_dataset *dataset;
    const fth_loader_options *options;
    double until_s;
    atomic_llong next, done;
    atomic_int failures;
} decode_threads;

/* Decodes whole images at full size with the library's defaults, as a plain decoding program
 * would. */
static void *decode(void *context)
{
    decode_threads *shared = context;
    const fth_image_set *set = fth_dataset_images(shared->dataset);
    int64_t count = shared->dataset->info.count[shared->options->split];
    fth_image_worker *worker = NULL;
    if (fth_image_worker_create(&worker) != FTH_OK) {
        atomic_fetch_add(&shared->failures, 1);
        return NULL;
    }
    while (fth_clock_seconds() < shared->until_s) {
        enum { RUN = 16 };
        long long first = atomic_fetch_add(&shared->next, RUN);
        for (int i = 0; i < RUN; i++) {
            const uint8_t *bytes;
            size_t size_bytes, entry = fth_image_set_find(shared->dataset, shared->options->split, (first + i) % count);
            fth_image_header header;
            fth_picture picture;
            if (fth_image_set_read(set, entry, worker, &bytes, &size_bytes) != FTH_OK ||
                fth_decoder_begin(worker->decoder, bytes, size_bytes, &header) != FTH_OK)
                continue;
            fth_decode_request request = {
                .eighths = 8, .width = header.width, .height = header.height, .smooth_chroma = true};
            if (fth_decoder_finish(worker->decoder, &request, &picture) == FTH_OK)
                atomic_fetch_add_explicit(&shared->done, 1, memory_order_relaxed);
        }
    }
    fth_image_worker_free(worker);
    return NULL;
}

static fth_status measure_decoders(const fth_dataset *dataset, const fth_loader_options *options, double seconds,
                                   double *images_per_second)
{
    fth_status status = FTH_OK;
    pthread_t *threads = NULL;
    int started = 0, wanted = options->threads > 0 ? options->threads : 1;
    double began = fth_clock_seconds();
    decode_threads shared = {.dataset = dataset, .options = options, .until_s = began + seconds};

    FTH_REQUIRE(fth_dataset_images(dataset), FTH_INVALID, "%s has no image files to decode", dataset->info.name);
    FTH_TRY(fth_allocate((size_t)wanted, sizeof *threads, &threads));
    while (started < wanted && fth_thread_start(&threads[started], "decode", decode, &shared) == 0)
        started++;
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    FTH_REQUIRE(started == wanted && shared.failures == 0, FTH_NO_MEMORY, "cannot start %d threads", wanted);
    *images_per_second = (double)shared.done / (fth_clock_seconds() - began);

out:
    free(threads);
    return status;
}

/* ---- the loader ---- */

static fth_status measure_loader(const fth_dataset *dataset, const fth_loader_options *options, double seconds,
                                 double *images_per_second)
{
    enum { WARM_UP = 4 };
    fth_status status = FTH_OK;
    fth_loader *loader = NULL;
    const fth_batch *batch;
    int64_t images = 0;

    FTH_TRY(fth_loader_open(dataset, options, &loader));
    for (int i = 0; i < WARM_UP; i++)
        FTH_TRY(fth_loader_next(loader, fth_deadline_in(60), &batch));
    double began = fth_clock_seconds();
    while (fth_clock_seconds() - began < seconds) {
        FTH_TRY(fth_loader_next(loader, fth_deadline_in(60), &batch));
        FTH_REQUIRE(batch, FTH_INVALID, "the loader ended before the measurement");
        images += batch->count;
    }
    *images_per_second = (double)images / (fth_clock_seconds() - began);

out:
    fth_loader_free(loader);
    return status;
}

fth_status fth_loader_benchmark(const fth_dataset *dataset, const fth_loader_options *options, double seconds,
                                bool decode_only, double *images_per_second)
{
    return decode_only ? measure_decoders(dataset, options, seconds, images_per_second)
                       : measure_loader(dataset, options, seconds, images_per_second);
}
