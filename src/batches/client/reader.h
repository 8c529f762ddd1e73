/* Batches for other programs, out of the shared cache (`farthing serve batches`) or of any data
 * that farthing reads: the interface of libfarthing_batches.so, which the Python package (python/)
 * loads. The library has what reading data needs and no compute library, so that it can live in a
 * PyTorch process.
 *
 * A reader is one process's end of a job. It is used by one thread at a time, except for
 * fth_reader_give_back(), and not across a fork: the child calls fth_reader_abandon() and opens its
 * own. */
#ifndef FTH_BATCHES_READER_H
#define FTH_BATCHES_READER_H

#include <farthing/data.h>
#include <farthing/status.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fth_reader fth_reader;

/* Zeroed: the first batches of the training part, as they come. Python declares the same struct
 * (python/farthing_batches/_library.py). */
typedef struct fth_reader_options {
    int64_t batch; /* samples, of all ranks together */
    uint64_t seed;
    int shuffle;
    fth_split split;
    const char *transform; /* NULL: the usual one */
    const char *augment;   /* of images that are no files, as --augment has it; NULL: none */
    int image_size;        /* 0: the set's own, or chosen */
    const char *share;     /* "none", "order", "all"; NULL: what the address says */
    const char *format;    /* "auto", "encoded", "decoded", "batches"; NULL: what the address says */
    int rank, ranks;       /* of a job of several processes that each have a part of every batch; 0, 0: alone */
    int worker, workers;   /* of data workers that each have every `workers`-th batch; 0, 0: alone */
    int threads;           /* that finish samples; 0: one a core */
    int by_index;          /* fth_reader_get() instead of fth_reader_next() */
    int64_t first_batch;   /* from the start of epoch 0; worker w begins with the w-th after it */
    int64_t batch_limit;   /* stop before the batch of this number; 0: endless */
    const char *job;       /* what fth_reader_job() said in another process of it; NULL: a new job */
    const char *order;     /* what fth_reader_order() said of another job; NULL: where others are in the order */
    double max_bad_images; /* share; 0: 0.001 */
    double timeout_s;      /* of a batch; 0: 60 */
} fth_reader_options;

/* The order of a job's samples. */
typedef struct fth_reader_plan {
    uint64_t seed;
    int64_t samples, batch, rotation;
    int shuffle;
    int rank, ranks;
} fth_reader_plan;

typedef struct fth_reader_info {
    int64_t training, validation; /* samples */
    int64_t batches_per_epoch;
    int classes, channels, height, width;
    const char *const *class_names; /* lent by the reader */
    fth_reader_plan plan;
} fth_reader_info;

typedef struct fth_reader_batch {
    const float *images;   /* (count, channels, height, width); read-only, in shared memory where it can be */
    const int64_t *labels; /* (count) */
    int64_t count;         /* 0: this rank's part of a small batch is empty */
    int64_t number, epoch; /* number -1: there are no more, and nothing to give back */
    uint64_t lease;        /* for fth_reader_give_back() */
} fth_reader_batch;

/* Of the calling thread's last failure. */
FTH_API const char *fth_reader_error(void);
/* Whether a coordinator, its cache and its data can be reached: FTH_OK, or the first thing that
 * cannot, in at most `timeout_s`. For other addresses opening says it. */
FTH_API fth_status fth_reader_check(const char *address, double timeout_s);

/* `address` as --data has it: batches://host:port/NAME, or a folder, an archive, a bucket that is
 * read directly. */
FTH_API fth_status fth_reader_open(const char *address, const fth_reader_options *options, fth_reader **reader);
/* All batches have been given back. */
FTH_API void fth_reader_close(fth_reader *reader);
/* In a process that was forked, of a reader of its parent: closes its descriptors, and no more; its
 * memory stays as it is. */
FTH_API void fth_reader_abandon(fth_reader *reader);
FTH_API const fth_reader_info *fth_reader_get_info(const fth_reader *reader);
/* By which other processes of the same rank (data workers) have the same job, also if no
 * coordinator answers when they begin; "" where nothing is shared. */
FTH_API const char *fth_reader_job(const fth_reader *reader);
/* By which a job of its own, of another rank or resumed later, has the same order and numbers. */
FTH_API const char *fth_reader_order(const fth_reader *reader);

/* The next batch. It does not change until it is given back, also while others are taken; beyond
 * about thirty, batches are copied. */
FTH_API fth_status fth_reader_next(fth_reader *reader, fth_reader_batch *batch);
/* Goes on at another batch, as if opened there; batches that are out stay so. */
FTH_API fth_status fth_reader_seek(fth_reader *reader, int64_t first_batch);
/* Any thread. */
FTH_API void fth_reader_give_back(fth_reader *reader, uint64_t lease);

/* ---- for data sets by index ---- */

/* The samples of the rank's part of a batch, at most plan->batch: how many they are. */
FTH_API int64_t fth_reader_plan_batch(const fth_reader_plan *plan, int64_t number, int64_t *samples);
/* A sample by its index, as batch `number` has it, into (channels, height, width) floats; of
 * readers that were opened by_index. */
FTH_API fth_status fth_reader_get(fth_reader *reader, int64_t number, int64_t sample, float *image, int64_t *label);

/* Figures of the job as JSON; free() it with fth_reader_free_text(). */
FTH_API char *fth_reader_figures(const fth_reader *reader);
FTH_API void fth_reader_free_text(char *text);
/* Runs this machine's agent for a coordinator (agent.h, which says what the arguments are) in the
 * calling process, until it is idle. Jobs start one by the words, separated by newlines, in the
 * environment's FARTHING_BATCHES_AGENT. */
FTH_API fth_status fth_reader_run_agent(const char *url, const char *pinned_key, const char *ca_file,
                                        uint64_t memory_bytes, double idle_s);

#ifdef __cplusplus
}
#endif
#endif
