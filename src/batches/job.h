/* Jobs, as the batch cache knows them: which items they need, in which order. Pure: no clock,
 * thread or socket.
 *
 * A job's spec is everything that determines its batches. Coordinator, prefetchers and the job
 * itself each compute from it the contents of batch n and the ids. Jobs that agree on everything
 * have the same ids, and so share entries. */
#ifndef FTH_BATCHES_JOB_H
#define FTH_BATCHES_JOB_H

#include <jansson.h>

#include "batches/item.h"
#include "data/data.h"

/* What jobs share: the policy for seeds. */
typedef enum fth_sharing {
    FTH_SHARE_NONE,  /* order and augmentation by the job's own seed: the same numbers as without the cache */
    FTH_SHARE_ORDER, /* one order for all jobs on the data set; augmentation by the job's own seed */
    FTH_SHARE_ALL    /* one order and augmentation for all jobs */
} fth_sharing;
const char *fth_sharing_name(fth_sharing sharing); /* "none", "order", "all" */
bool fth_sharing_find(const char *name, fth_sharing *sharing);

/* The format in which a job's items are cached. Chosen once, at registration, so that its numbers
 * do not depend on later jobs. */
typedef enum fth_cache_format {
    FTH_FORMAT_AUTO = -1,
    FTH_FORMAT_ENCODED,
    FTH_FORMAT_DECODED,
    FTH_FORMAT_BATCHES
} fth_cache_format;
const char *fth_cache_format_name(fth_cache_format format); /* "auto", "encoded", "decoded", "batches" */
bool fth_cache_format_find(const char *name, fth_cache_format *format);

enum { FTH_TRANSFORM_TEXT = 512, FTH_DATA_NAME = 128, FTH_VERSION_TEXT = 65 };
enum { FTH_MAX_JOB_BATCH = 1 << 20 }; /* samples of a batch; also limits shares and parts */

typedef struct fth_job_spec {
    char data[FTH_DATA_NAME];       /* name of the data set at the coordinator */
    char version[FTH_VERSION_TEXT]; /* of the data set; "" until registered */
    fth_split split;
    char transform[FTH_TRANSFORM_TEXT]; /* complete, with normalization and size: fth_dataset_describe_preparation() */
    fth_augmentation augmentation;      /* of in-memory images */
    int64_t batch;
    bool shuffle;
    fth_sharing sharing;
    uint64_t order_seed, augment_seed; /* the job's own, or the coordinator's for the data set */
    fth_share share, part;             /* as in fth_loader_options */
    /* Samples, including whole epochs, by which its epochs begin later in a shared order. -1:
     * chosen at registration. */
    int64_t rotation;
    fth_cache_format format;
} fth_job_spec;

json_t *fth_job_spec_save(const fth_job_spec *spec);
/* FTH_INVALID names the member that is missing or wrong. */
fth_status fth_job_spec_load(const json_t *json, fth_job_spec *spec);

/* A batch of a job: a pure function of the spec, the number of samples in the split, and the
 * batch's number (from the start of epoch 0). */
typedef struct fth_batch_plan {
    int64_t number, epoch, count, whole, first; /* as in fth_batch */
    int64_t order_epoch; /* epoch of its order and random choices: later if the job joined others */
    int64_t *samples;    /* (count); the caller's, with room for spec->batch */
} fth_batch_plan;
void fth_job_plan_batch(const fth_job_spec *spec, int64_t set_count, int64_t number, fth_batch_plan *plan);
/* Whether the batches of both are equal, if they begin at the same place. */
bool fth_job_has_same_batches(const fth_job_spec *a, const fth_job_spec *b);
int64_t fth_job_batches_per_epoch(const fth_job_spec *spec, int64_t set_count);
/* Checks that the split has enough samples for share and batch, which a spec cannot know.
 * FTH_INVALID. */
fth_status fth_job_spec_check(const fth_job_spec *spec, int64_t set_count);

/* Depends on the samples in their order and their preparation; on seed and epoch only if something
 * is random. Independent of the number of jobs, shares and parts, and of the batch's number. */
fth_item_id fth_job_batch_id(const fth_job_spec *spec, const fth_batch_plan *plan);
/* Equal for jobs whose batches at the same place of the order have equal ids. Ignores rotation and
 * format. */
fth_item_id fth_job_sequence_id(const fth_job_spec *spec);
/* Whether its batches depend on augment_seed and epoch. */
bool fth_job_is_random(const fth_job_spec *spec);
/* Of an encoded or decoded sample; equal for all jobs on one version of a data set. */
fth_item_id fth_job_sample_id(const fth_job_spec *spec, fth_item_kind kind, int64_t sample);

#endif
