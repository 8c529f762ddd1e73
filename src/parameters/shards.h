/* Shards of the training data, leased to workers: each sample is used once an epoch, whatever
 * fails.
 *
 * A shard is a file with a number of samples, to be used for a number of epochs. Its position is
 * (epoch, sample): the samples before it are part of the model.
 *
 *     free --take--> held by a worker --the epoch's last sample--> free, in the next epoch
 *                          +----------returned, or its worker is gone--> free, at its position
 *
 * A worker takes a shard (a lease, which ends with the worker's own), computes gradients from the
 * position on, and names in each push the samples it covers: shard, epoch, from, to. A push counts
 * only if `from` is the shard's position, and moves the position to `to`. Both happen with the
 * gradient's record in the log, so a crash at any moment neither loses samples nor counts them
 * twice. The order of samples within a shard and epoch is a pure function of (seed, shard, epoch):
 * fth_shard_sampler().
 *
 * Shards are listed by the server (--shards) or brought by a function that has a URL of its own.
 * Brought shards are known by run and name and are leased only to workers that name them. Free
 * listed shards are leased in the order of epoch, then position; none gets more than one epoch
 * ahead of the last.
 *
 * No clock, threads or sockets. Not safe for several threads. */
#ifndef FTH_PARAMETERS_SHARDS_H
#define FTH_PARAMETERS_SHARDS_H

#include <jansson.h>

#include "data/data.h"
#include "parameters/gradient.h"

enum { FTH_MAX_SHARDS = 65536, FTH_MAX_SHARD_EPOCHS = 1000000000 };
/* so that samples times epochs fits an int64_t */
#define FTH_MAX_SHARD_SAMPLES (INT64_C(1) << 32)

/* A shard as it was at one moment. */
typedef struct fth_shard_state {
    char name[FTH_MAX_SHARD_NAME + 1];
    bool listed;                          /* else brought */
    int64_t samples, epochs;              /* epochs 0: until training ends */
    int64_t epoch, position;              /* epoch == epochs: done */
    char holder[FTH_MAX_WORKER_NAME + 1]; /* "": free */
} fth_shard_state;
bool fth_shard_is_done(const fth_shard_state *state);

typedef struct fth_shards fth_shards;

fth_status fth_shards_create(uint64_t seed, fth_shards **shards);
void fth_shards_free(fth_shards *shards);

/* Adds a shard by name, samples, epochs and `listed`; FTH_OK if the same shard is there already. A
 * listed shard may be added again with other epochs. FTH_INVALID if it is not valid or contradicts
 * the known shard; FTH_NO_MEMORY also beyond FTH_MAX_SHARDS. */
fth_status fth_shards_add(fth_shards *shards, const fth_shard_state *shard);
/* Checks what fth_shards_add() would, without adding it. *known: it is there already. */
fth_status fth_shards_check(const fth_shards *shards, const fth_shard_state *shard, bool *known);

typedef enum fth_shard_answer { FTH_SHARD_TAKEN, FTH_SHARD_WAIT, FTH_SHARD_DONE } fth_shard_answer;
/* Leases a shard to `worker`: `name`, which was added before, or with NULL the next listed one. A
 * shard it holds already is leased again; any other shard it holds is freed. WAIT: others hold all
 * that are left. */
fth_shard_answer fth_shards_take(fth_shards *shards, const char *worker, const char *name, fth_shard_state *taken);
/* Frees what the worker holds; false if it holds nothing. */
bool fth_shards_release(fth_shards *shards, const char *worker);

/* FTH_OK if a push of `worker` for this span would count: the shard is at epoch and `from`, and
 * held by the worker, or free while the worker holds no other. Else FTH_INVALID with the reason. */
fth_status fth_shards_fit(const fth_shards *shards, const char *worker, const fth_shard_span *span);
/* Moves the position, and leases a free shard to `worker`. Call it after fth_shards_fit(), or in a
 * replay with `worker` NULL. FTH_CORRUPT if the span is not the next one. */
fth_status fth_shards_move(fth_shards *shards, const char *worker, const fth_shard_span *span);

typedef struct fth_shards_totals {
    int64_t listed, brought, held;
    int64_t done;         /* shards, listed or brought, with all epochs done */
    int64_t epochs_done;  /* by all listed shards */
    int64_t samples;      /* of an epoch of the listed shards */
    int64_t samples_done; /* of listed shards, in all epochs */
} fth_shards_totals;
fth_shards_totals fth_shards_count(const fth_shards *shards);
bool fth_shards_get(const fth_shards *shards, const char *name, fth_shard_state *shard);
bool fth_shards_get_held(const fth_shards *shards, const char *worker, fth_shard_state *shard); /* the one it holds */
bool fth_shards_get_at(const fth_shards *shards, size_t index, fth_shard_state *shard); /* false after the last */
uint64_t fth_shards_seed(const fth_shards *shards);

/* For checkpoints: positions and the seed, but no holders. Reading adds to the table; listed shards
 * that are there already keep their epochs. */
json_t *fth_shards_to_json(const fth_shards *shards);
fth_status fth_shards_from_json(fth_shards *shards, const json_t *json);

/* The order of a shard's samples. */
fth_sampler fth_shard_sampler(uint64_t seed, const char *name, int64_t samples);

#endif
