/* Jobs, as the batch cache knows them, and which items they need in which order. Pure: no clock,
 * thread or socket.
 *
 * A job's spec is all that decides what is in its batches. Coordinator, prefetchers and the job
 * itself each compute from it what batch n consists of, and the ids. Jobs that agree on everything
 * have the same ids, and so the same entries. */
#ifndef FTH_BATCHES_JOB_H
#define FTH_BATCHES_JOB_H

#include <jansson.h>

#include "batches/item.h"
#include "data/data.h"

/* What jobs have in common: the seed policy. */
typedef enum fth_sharing {
    FTH_SHARE_NONE,  /* order and augmentation by the job's own seed: the numbers of a run without the cache */
    FTH_SHARE_ORDER, /* the order of all jobs on the data set; augmentation by the job's own seed */
    FTH_SHARE_ALL    /* order and augmentation of all jobs */
} fth_sharing;
const char *fth_sharing_name(fth_sharing sharing); /* "none", "order", "all" */
bool fth_sharing_find(const char *name, fth_sharing *sharing);

/* What is cached for a job. Decided once, when it registers, so that its numbers do not depend on
 * who comes later. */
typedef enum fth_cache_format {
    FTH_FORMAT_AUTO = -1,
    FTH_FORMAT_ENCODED,
    FTH_FORMAT_DECODED,
    FTH_FORMAT_BATCHES
} fth_cache_format;
const char *fth_cache_format_name(fth_cache_format format); /* "auto", "encoded", "decoded", "batches" */
bool fth_cache_format_find(const char *name, fth_cache_format *format);

enum { FTH_TRANSFORM_TEXT = 512, FTH_DATA_NAME = 128, FTH_VERSION_TEXT = 65 };
enum { FTH_MAX_JOB_BATCH = 1 << 20 }; /* samples of a batch, and shares and parts of one */

typedef struct fth_job_spec {
    char data[FTH_DATA_NAME];       /* the name under which the coordinator serves the data set */
    char version[FTH_VERSION_TEXT]; /* of the data set; "" until registered */
    fth_split split;
    char transform[FTH_TRANSFORM_TEXT]; /* complete, normalization and size included: fth_dataset_describe_preparation()
                                         */
    fth_augmentation augmentation;      /* of images in memory */
    int64_t batch;
    bool shuffle;
    fth_sharing sharing;
    uint64_t order_seed, augment_seed; /* the job's own, or those of the data set at the coordinator */
    fth_share share, part;             /* as in fth_loader_options */
    int64_t rotation; /* samples by which its epochs begin later in the order, where that is shared, whole epochs
                         included; -1: to be chosen when it registers */
    fth_cache_format format;
} fth_job_spec;

json_t *fth_job_spec_save(const fth_job_spec *spec);
/* FTH_INVALID, naming the member that is missing or wrong. */
fth_status fth_job_spec_load(const json_t *json, fth_job_spec *spec);

/* A batch of a job: a pure function of spec, samples of the set's split, and number (from the start
 * of epoch 0). */
typedef struct fth_batch_plan {
    int64_t number, epoch, count, whole, first; /* as in fth_batch */
    int64_t order_epoch;                        /* of its order and random choices: later where a job joined others */
    int64_t *samples;                           /* (count); the caller's, room for spec->batch */
} fth_batch_plan;
void fth_job_plan_batch(const fth_job_spec *spec, int64_t set_count, int64_t number, fth_batch_plan *plan);
/* Whether they have the same batches, if they begin at the same place. */
bool fth_job_has_same_batches(const fth_job_spec *a, const fth_job_spec *b);
int64_t fth_job_batches_per_epoch(const fth_job_spec *spec, int64_t set_count);
/* What a spec cannot know by itself: that the split has samples for its share and batch.
 * FTH_INVALID. */
fth_status fth_job_spec_check(const fth_job_spec *spec, int64_t set_count);

/* Depends on the samples in their order, and on all that is done to them; on seed and epoch only
 * where something random is. How many jobs, shares or parts there are, and the number of the batch,
 * do not matter. */
fth_item_id fth_job_batch_id(const fth_job_spec *spec, const fth_batch_plan *plan);
/* The same for jobs whose batches at the same place of the order have the same ids, rotation and
 * form apart. */
fth_item_id fth_job_sequence_id(const fth_job_spec *spec);
/* Whether anything in its batches depends on augment_seed and epoch. */
bool fth_job_is_random(const fth_job_spec *spec);
/* Of an encoded or decoded sample; the same for all jobs on a version of a data set. */
fth_item_id fth_job_sample_id(const fth_job_spec *spec, fth_item_kind kind, int64_t sample);

#endif
