/* Batches of the shared cache (`farthing serve batches`) for other programs: the interface of libfarthing_batches.so, which the
 * Python package (python/) loads. It has what reading data needs and no compute library, so it can live in a PyTorch process.
 *
 * A reader is one process's end of a job. It may be opened again in a process that was forked, but is not used across a fork. */
#ifndef FTH_BATCHES_READER_H
#define FTH_BATCHES_READER_H

#include <farthing/data.h>
#include <farthing/status.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fth_reader fth_reader;

typedef struct fth_reader_options {
    int64_t batch;
    uint64_t seed;
    int shuffle;
    fth_split split;
    const char *transform; /* NULL: the usual one */
    const char *share;     /* "none", "order", "all"; NULL: what the address says */
    const char *form;      /* "auto", "encoded", "decoded", "batches"; NULL: what the address says */
    int rank, ranks;       /* of a job of several processes that each have a part of every batch; 0, 0: alone */
    int worker, workers;   /* of data workers that each have every `workers`-th batch; 0, 0: alone */
    int64_t first_batch;   /* from the start of epoch 0 */
    int64_t batch_limit;   /* 0: endless */
    const char *job;       /* of a job that another process has registered (fth_reader_job); NULL: a new one */
    double max_bad_images; /* 0: 0.001 */
    double timeout_s;      /* of a batch; 0: 60 */
} fth_reader_options;

typedef struct fth_reader_info {
    int64_t training, validation; /* samples */
    int64_t batches_per_epoch;
    int classes, channels, height, width;
    const char *const *class_names; /* lent by the reader */
    const char *form, *share;
} fth_reader_info;

typedef struct fth_reader_batch {
    const float *images;   /* (count, channels, height, width); read-only, in shared memory where it can be */
    const int64_t *labels; /* (count) */
    int64_t count, number, epoch;
    uint64_t lease; /* for fth_reader_give_back() */
} fth_reader_batch;

FTH_API fth_status fth_reader_open(const char *address, const fth_reader_options *options, fth_reader **reader);
FTH_API void fth_reader_close(fth_reader *reader);
FTH_API const fth_reader_info *fth_reader_get_info(const fth_reader *reader);
/* By which other processes open the same job. */
FTH_API const char *fth_reader_job(const fth_reader *reader);
/* The next batch; images is NULL after the last. It stays as it is until it is given back, also while others are taken; up to
 * 32 at a time are in shared memory, more are copied. */
FTH_API fth_status fth_reader_next(fth_reader *reader, fth_reader_batch *batch);
FTH_API void fth_reader_give_back(fth_reader *reader, uint64_t lease);
/* A sample by its index, into (channels, height, width) floats: for map-style data sets. */
FTH_API fth_status fth_reader_get(fth_reader *reader, int64_t epoch, int64_t sample, float *image, int64_t *label);
/* Figures as JSON; free() it. */
FTH_API char *fth_reader_figures(const fth_reader *reader);
/* Runs this machine's agent in the calling process (agent.h), until it is idle. */
FTH_API fth_status fth_reader_run_agent(const char *address);

#ifdef __cplusplus
}
#endif
#endif
