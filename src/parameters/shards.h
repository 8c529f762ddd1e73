/* Shards of the training data, dealt out to workers: every sample once an epoch, whatever dies.
 *
 * A shard is a file with a number of samples, and is to be gone through a number of times. Its
 * place is (epoch, position): the samples before it are part of the model.
 *
 *     free --take--> held by a worker --the epoch's last sample--> free, in the next epoch
 *                          +----------returned, or its worker is gone--> free, where it is
 *
 * A worker takes a shard (a lease, which lasts as long as the worker's own), computes gradients
 * from its position on, and says in each push which samples it is of: shard, epoch, from, to. A
 * push counts only if `from` is the shard's position, and moves it to `to`; both happen with the
 * gradient's record in the log, so a kill of anything at any moment neither loses samples nor
 * counts them twice. Within a shard and epoch samples are visited in an order that is a pure
 * function of (seed, shard, epoch): fth_shard_sampler().
 *
 * Shards are listed by the server (--shards), or brought by a function that has a URL of its own;
 * the latter are known by run and name, and given to those who ask for them alone. Free listed
 * shards are dealt out in the order of epoch, then position; one may be at most an epoch ahead of
 * the last.
 *
 * Pure: no clock, thread or socket. Not safe for several threads. */
#ifndef FTH_PARAMETERS_SHARDS_H
#define FTH_PARAMETERS_SHARDS_H

#include <jansson.h>

#include "data/data.h"
#include "parameters/gradient.h"

enum { FTH_MAX_SHARDS = 65536, FTH_MAX_SHARD_EPOCHS = 1000000000 };
/* so that samples times epochs is a number */
#define FTH_MAX_SHARD_SAMPLES (INT64_C(1) << 32)

/* A shard as it was at one moment. */
typedef struct fth_shard_state {
    char name[FTH_MAX_SHARD_NAME + 1];
    bool listed;                          /* by the server; else brought */
    int64_t samples, epochs;              /* epochs 0: until the training ends */
    int64_t epoch, position;              /* epoch == epochs: done */
    char holder[FTH_MAX_WORKER_NAME + 1]; /* "": free */
} fth_shard_state;
bool fth_shard_is_done(const fth_shard_state *state);

typedef struct fth_shards fth_shards;

fth_status fth_shards_create(uint64_t seed, fth_shards **shards);
void fth_shards_free(fth_shards *shards);

/* Adds a shard by name, samples, epochs and whether it is listed; FTH_OK if there is the same
 * already. A listed one may be added again with other epochs, which hold from then on. FTH_INVALID
 * where it is not valid or contradicts what is known; FTH_NO_MEMORY also beyond FTH_MAX_SHARDS. */
fth_status fth_shards_add(fth_shards *shards, const fth_shard_state *shard);
/* What fth_shards_add() would find wrong, without adding it. *known: it is there already. */
fth_status fth_shards_check(const fth_shards *shards, const fth_shard_state *shard, bool *known);

typedef enum fth_shard_answer { FTH_SHARD_TAKEN, FTH_SHARD_WAIT, FTH_SHARD_DONE } fth_shard_answer;
/* Leases a shard to `worker`: the one named, which has been added, or with NULL the next that is
 * listed; what it holds already is given again, and any other that it holds is free. WAIT: all that
 * are left are held by others. */
fth_shard_answer fth_shards_take(fth_shards *shards, const char *worker, const char *name, fth_shard_state *taken);
/* The worker is gone, or gives back what it holds; false if it holds nothing. */
bool fth_shards_release(fth_shards *shards, const char *worker);

/* FTH_OK if a push of `worker` for this span would count: its shard is at epoch and `from`, and
 * held by it or, where it holds no other, by nobody. Else FTH_INVALID, saying why. */
fth_status fth_shards_fit(const fth_shards *shards, const char *worker, const fth_shard_span *span);
/* Moves the position, and leases the shard to `worker` if nobody has it; after fth_shards_fit(), or
 * in a replay, where nobody holds anything and `worker` is NULL. FTH_CORRUPT if the span is not
 * what comes next. */
fth_status fth_shards_move(fth_shards *shards, const char *worker, const fth_shard_span *span);

/* How things stand. */
typedef struct fth_shards_totals {
    int64_t listed, brought, held;
    int64_t done;         /* shards, listed or brought, that have been through all of their epochs */
    int64_t epochs_done;  /* that every listed shard has been through */
    int64_t samples;      /* of an epoch of the listed shards */
    int64_t samples_done; /* of listed shards, in all epochs */
} fth_shards_totals;
fth_shards_totals fth_shards_count(const fth_shards *shards);
bool fth_shards_get(const fth_shards *shards, const char *name, fth_shard_state *shard);
bool fth_shards_get_held(const fth_shards *shards, const char *worker, fth_shard_state *shard); /* what it holds */
bool fth_shards_get_at(const fth_shards *shards, size_t index, fth_shard_state *shard); /* false after the last */
uint64_t fth_shards_seed(const fth_shards *shards);

/* For checkpoints: places, and the seed that they go with. Holders are not part of it. What is read
 * is added to what there is; listed shards that are there already keep their epochs. */
json_t *fth_shards_to_json(const fth_shards *shards);
fth_status fth_shards_from_json(fth_shards *shards, const json_t *json);

/* The order of a shard's samples. */
fth_sampler fth_shard_sampler(uint64_t seed, const char *name, int64_t samples);

#endif
