/* Shards of the training data, dealt out to workers: every sample once an epoch, whatever dies.
 *
 * A shard is a file with a number of samples, and is to be gone through a number of times. Its place is (epoch, position): the
 * samples before it are part of the model. A worker takes a shard (a lease, which lasts as long as the worker's own), computes
 * gradients from its position on, and says in each push which samples it is of: shard, epoch, from, to. A push counts only if
 * `from` is the shard's position, and moves it to `to`; both happen with the gradient's record in the log, so a kill of anything
 * at any moment neither loses samples nor counts them twice. Within a shard and epoch samples are visited in an order that is a pure
 * function of (seed, shard, epoch): fth_shard_sampler().
 *
 * Shards are listed by the server (--shards), or brought by a function that has a URL of its own; the latter are known by run and name.
 * Free shards are dealt out in the order of epoch, then position; a shard may be at most one epoch ahead of the last.
 *
 * Pure: no clock, thread or socket. The applying thread alone calls what changes it. */
#ifndef FTH_PARAMETERS_SHARDS_H
#define FTH_PARAMETERS_SHARDS_H

#include <jansson.h>

#include "data/data.h"
#include "parameters/gradient.h"

enum { FTH_MAX_SHARDS = 65536, FTH_MAX_SHARD_NAME = 256 };

/* A shard as it was at one moment. */
typedef struct fth_shard {
    char name[FTH_MAX_SHARD_NAME + 1];
    int64_t samples, epochs;              /* epochs 0: until the training ends */
    int64_t epoch, position;              /* epoch == epochs: done */
    char holder[FTH_MAX_WORKER_NAME + 1]; /* "": free */
} fth_shard;

/* Where the samples of a push come from; name "": it is not about a shard. */
typedef struct fth_shard_span {
    char name[FTH_MAX_SHARD_NAME + 1];
    int64_t epoch, from, to;
} fth_shard_span;

typedef struct fth_shards fth_shards;

fth_status fth_shards_create(uint64_t seed, fth_shards **shards);
void fth_shards_free(fth_shards *shards);

/* Adds a shard; FTH_INVALID if there is one of that name with other samples or epochs, FTH_OK if it is the same. */
fth_status fth_shards_add(fth_shards *shards, const char *name, int64_t samples, int64_t epochs);

typedef enum fth_shard_answer { FTH_SHARD_TAKEN, FTH_SHARD_WAIT, FTH_SHARD_DONE } fth_shard_answer;
/* Leases a shard to `worker`: the one named, or with NULL the next; one that it holds already is given again. WAIT: all that are left
 * are held by others. */
fth_shard_answer fth_shards_take(fth_shards *shards, const char *worker, const char *name, fth_shard *taken);
/* The worker is gone, or gives back what it holds. */
void fth_shards_release(fth_shards *shards, const char *worker);

/* True if a push of `worker` for this span would count: its shard is at epoch and `from`, and held by it or by nobody. */
bool fth_shards_fits(const fth_shards *shards, const char *worker, const fth_shard_span *span);
/* Moves the position; after fth_shards_fits(), or in a replay. */
fth_status fth_shards_move(fth_shards *shards, const char *worker, const fth_shard_span *span);

bool fth_shards_get_at(const fth_shards *shards, size_t index, fth_shard *shard);
int64_t fth_shards_epochs_done(const fth_shards *shards); /* that every listed shard has been through */

/* For checkpoints; holders are not part of it. */
json_t *fth_shards_to_json(const fth_shards *shards);
fth_status fth_shards_from_json(fth_shards *shards, const json_t *json);

/* The order of a shard's samples. */
fth_sampler fth_shard_sampler(uint64_t seed, const char *name, int64_t samples);

#endif
