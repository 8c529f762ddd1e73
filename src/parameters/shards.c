/* See shards.h. An array in the order of adding, and a hash table of indices by name. */
#include "parameters/shards.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { BUCKETS = 2 * FTH_MAX_SHARDS };

typedef struct shard {
    char *name;
    int64_t samples, epochs, epoch, position;
    bool listed;
    char holder[FTH_MAX_WORKER_NAME + 1], before[FTH_MAX_WORKER_NAME + 1]; /* the present and the last holder */
} shard;

struct fth_shards {
    uint64_t seed;
    shard *items;
    size_t count, capacity;
    uint32_t *buckets; /* index + 1, by linear probing; 0: empty */
};

fth_status fth_shards_create(uint64_t seed, fth_shards **result)
{
    fth_status status = FTH_OK;
    fth_shards *shards = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *shards, &shards));
    shards->seed = seed & INT64_MAX; /* fits a JSON integer */
    FTH_TRY(fth_allocate(BUCKETS, sizeof *shards->buckets, &shards->buckets));
    *result = shards;
    shards = NULL;

out:
    fth_shards_free(shards);
    return status;
}

void fth_shards_free(fth_shards *shards)
{
    if (!shards)
        return;
    for (size_t i = 0; i < shards->count; i++)
        free(shards->items[i].name);
    free(shards->items);
    free(shards->buckets);
    free(shards);
}

/* ---- the table ---- */

/* The bucket of `name`, or the empty one for it. */
static uint32_t *bucket_of(const fth_shards *shards, const char *name)
{
    size_t at = fth_hash(name, strlen(name), 0) % BUCKETS;
    while (shards->buckets[at] && strcmp(shards->items[shards->buckets[at] - 1].name, name) != 0)
        at = (at + 1) % BUCKETS;
    return &shards->buckets[at];
}

static shard *find(const fth_shards *shards, const char *name)
{
    uint32_t index = *bucket_of(shards, name);
    return index ? &shards->items[index - 1] : NULL;
}

static shard *find_held(const fth_shards *shards, const char *worker)
{
    for (size_t i = 0; i < shards->count; i++)
        if (strcmp(shards->items[i].holder, worker) == 0)
            return &shards->items[i];
    return NULL;
}

static bool is_done(const shard *item)
{
    return item->epochs > 0 && item->epoch >= item->epochs;
}

bool fth_shard_is_done(const fth_shard_state *state)
{
    return state->epochs > 0 && state->epoch >= state->epochs;
}

static void describe(const shard *item, fth_shard_state *state)
{
    *state = (fth_shard_state){.listed = item->listed,
                               .samples = item->samples,
                               .epochs = item->epochs,
                               .epoch = item->epoch,
                               .position = item->position};
    snprintf(state->name, sizeof state->name, "%s", item->name);
    snprintf(state->holder, sizeof state->holder, "%s", item->holder);
}

fth_status fth_shards_check(const fth_shards *shards, const fth_shard_state *state, bool *known)
{
    fth_status status = FTH_OK;

    FTH_REQUIRE(fth_shard_name_valid(state->name), FTH_INVALID,
                "a shard's name is 1 to %d printable characters without spaces, quotes and backslashes",
                FTH_MAX_SHARD_NAME);
    FTH_REQUIRE(state->samples > 0 && state->samples <= FTH_MAX_SHARD_SAMPLES, FTH_INVALID,
                "shard %s has %" PRId64 " samples; expected at least 1", state->name, state->samples);
    FTH_REQUIRE(state->epochs >= 0 && state->epochs <= FTH_MAX_SHARD_EPOCHS, FTH_INVALID,
                "shard %s has %" PRId64 " epochs; expected 0 or more", state->name, state->epochs);
    const shard *item = find(shards, state->name);
    *known = item != NULL;
    FTH_REQUIRE(item || shards->count < FTH_MAX_SHARDS, FTH_NO_MEMORY, "there are %d shards already", FTH_MAX_SHARDS);
    FTH_REQUIRE(!item || item->listed == state->listed, FTH_INVALID, "shard %s is %s already", state->name,
                item && item->listed ? "listed by the server" : "one that a worker brought");
    FTH_REQUIRE(!item || item->samples == state->samples, FTH_INVALID,
                "shard %s has %" PRId64 " samples, but had %" PRId64 " before: it is another file", state->name,
                state->samples, item ? item->samples : 0);
    FTH_REQUIRE(!item || item->listed || item->epochs == state->epochs, FTH_INVALID,
                "shard %s is to be gone through %" PRId64 " times, but %" PRId64
                " times when it was brought first; use another run",
                state->name, state->epochs, item ? item->epochs : 0);

out:
    return status;
}

fth_status fth_shards_add(fth_shards *shards, const fth_shard_state *state)
{
    fth_status status = FTH_OK;
    char *name = NULL;
    bool known = false;

    FTH_TRY(fth_shards_check(shards, state, &known));
    if (known) {
        find(shards, state->name)->epochs = state->epochs;
        goto out;
    }
    name = fth_format("%s", state->name);
    FTH_REQUIRE(name, FTH_NO_MEMORY, "no memory for shard %s", state->name);
    FTH_TRY(fth_grow(&shards->items, shards->count, &shards->capacity, sizeof *shards->items));
    uint32_t *bucket = bucket_of(shards, name);
    shards->items[shards->count] =
        (shard){.name = name, .samples = state->samples, .epochs = state->epochs, .listed = state->listed};
    *bucket = (uint32_t)++shards->count;
    name = NULL;

out:
    free(name);
    return status;
}

/* ---- leases ---- */

static void release(shard *item)
{
    snprintf(item->before, sizeof item->before, "%s", item->holder);
    *item->holder = '\0';
}

bool fth_shards_release(fth_shards *shards, const char *worker)
{
    shard *held = find_held(shards, worker);
    if (held)
        release(held);
    return held != NULL;
}

/* Whether to lease `a` before `b`, which comes first in the table. A worker gets the shard it had
 * last, whose file it may still have. */
static bool goes_before(const shard *a, const shard *b, const char *worker)
{
    if (a->epoch != b->epoch)
        return a->epoch < b->epoch;
    if (a->position != b->position)
        return a->position < b->position;
    return strcmp(a->before, worker) == 0 && strcmp(b->before, worker) != 0;
}

/* The next free listed shard, or NULL. *left: some are not done. */
static shard *find_next(fth_shards *shards, const char *worker, bool *left)
{
    shard *next = NULL;
    int64_t last = INT64_MAX;
    for (size_t i = 0; i < shards->count; i++) {
        shard *item = &shards->items[i];
        if (!item->listed || is_done(item))
            continue;
        last = item->epoch < last ? item->epoch : last;
        if (!*item->holder && (!next || goes_before(item, next, worker)))
            next = item;
    }
    *left = last < INT64_MAX;
    return next && next->epoch <= last + 1 ? next : NULL;
}

fth_shard_answer fth_shards_take(fth_shards *shards, const char *worker, const char *name, fth_shard_state *taken)
{
    shard *held = find_held(shards, worker), *item = name ? find(shards, name) : held;
    bool left = false;
    if (!name && (!held || !held->listed))
        item = find_next(shards, worker, &left);
    else
        left = item && !is_done(item);
    if (held && held != item)
        release(held);
    if (!item || !left)
        return left ? FTH_SHARD_WAIT : FTH_SHARD_DONE;
    if (*item->holder && item != held)
        return FTH_SHARD_WAIT;
    snprintf(item->holder, sizeof item->holder, "%s", worker);
    describe(item, taken);
    return FTH_SHARD_TAKEN;
}

/* ---- places ---- */

/* FTH_OK if the span is the shard's next. */
static fth_status check_span(const shard *item, const fth_shard_span *span)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(item, FTH_INVALID, "shard %s is not known; take one", span->name);
    FTH_REQUIRE(!is_done(item) && item->epoch == span->epoch && item->position == span->from, FTH_INVALID,
                "it is of shard %s from sample %" PRId64 " of epoch %" PRId64 " on, but what comes next is %" PRId64
                " of epoch %" PRId64 "%s; take a shard again",
                span->name, span->from, span->epoch, item->position, item->epoch,
                is_done(item) ? ", and all epochs are done" : "");
    FTH_REQUIRE(span->to > span->from && span->to <= item->samples, FTH_INVALID,
                "samples %" PRId64 " to %" PRId64 " are not in shard %s, which has %" PRId64, span->from, span->to,
                span->name, item->samples);

out:
    return status;
}

fth_status fth_shards_fit(const fth_shards *shards, const char *worker, const fth_shard_span *span)
{
    fth_status status = FTH_OK;
    const shard *item = find(shards, span->name);

    FTH_TRY(check_span(item, span));
    if (strcmp(item->holder, worker) == 0)
        goto out;
    FTH_REQUIRE(!*item->holder, FTH_INVALID, "shard %s is with another worker; take a shard again", span->name);
    FTH_REQUIRE(!find_held(shards, worker), FTH_INVALID, "%s has taken another shard than %s", worker, span->name);

out:
    return status;
}

fth_status fth_shards_move(fth_shards *shards, const char *worker, const fth_shard_span *span)
{
    shard *item = find(shards, span->name);
    if (check_span(item, span) != FTH_OK)
        return fth_fail(FTH_CORRUPT, "samples %" PRId64 " to %" PRId64 " of shard %s do not follow what came before",
                        span->from, span->to, span->name);
    if (worker)
        snprintf(item->holder, sizeof item->holder, "%s", worker);
    item->position = span->to;
    if (item->position == item->samples) {
        item->epoch++;
        item->position = 0;
        release(item);
    }
    return FTH_OK;
}

/* ---- looking ---- */

fth_shards_totals fth_shards_count(const fth_shards *shards)
{
    fth_shards_totals totals = {.epochs_done = INT64_MAX};
    for (size_t i = 0; i < shards->count; i++) {
        const shard *item = &shards->items[i];
        totals.held += *item->holder != '\0';
        totals.done += is_done(item);
        totals.listed += item->listed;
        totals.brought += !item->listed;
        if (!item->listed)
            continue;
        totals.epochs_done = item->epoch < totals.epochs_done ? item->epoch : totals.epochs_done;
        totals.samples += item->samples;
        totals.samples_done += item->epoch * item->samples + item->position;
    }
    if (totals.listed == 0)
        totals.epochs_done = 0;
    return totals;
}

bool fth_shards_get(const fth_shards *shards, const char *name, fth_shard_state *state)
{
    const shard *item = find(shards, name);
    if (item)
        describe(item, state);
    return item != NULL;
}

bool fth_shards_get_held(const fth_shards *shards, const char *worker, fth_shard_state *state)
{
    const shard *item = find_held(shards, worker);
    if (item)
        describe(item, state);
    return item != NULL;
}

bool fth_shards_get_at(const fth_shards *shards, size_t index, fth_shard_state *state)
{
    if (index < shards->count)
        describe(&shards->items[index], state);
    return index < shards->count;
}

uint64_t fth_shards_seed(const fth_shards *shards)
{
    return shards->seed;
}

/* ---- checkpoints ---- */

json_t *fth_shards_to_json(const fth_shards *shards)
{
    json_t *list = json_array();
    for (size_t i = 0; i < shards->count; i++) {
        const shard *item = &shards->items[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:b, s:I, s:I, s:I, s:I}", "name", item->name, "listed", item->listed,
                                        "samples", (json_int_t)item->samples, "epochs", (json_int_t)item->epochs,
                                        "epoch", (json_int_t)item->epoch, "position", (json_int_t)item->position));
    }
    return json_pack("{s:I, s:o}", "seed", (json_int_t)shards->seed, "list", list);
}

static fth_status read_shard(fth_shards *shards, const json_t *json)
{
    fth_status status = FTH_OK;
    fth_shard_state state = {0};
    const char *name = NULL;
    int listed = 0;
    json_int_t samples = 0, epochs = 0, epoch = -1, position = -1;

    FTH_REQUIRE(json_unpack((json_t *)json, "{s:s, s:b, s:I, s:I, s:I, s:I}", "name", &name, "listed", &listed,
                            "samples", &samples, "epochs", &epochs, "epoch", &epoch, "position", &position) == 0 &&
                    fth_shard_name_valid(name) && epoch >= 0 && epoch <= FTH_MAX_SHARD_EPOCHS && position >= 0 &&
                    position < samples,
                FTH_CORRUPT, "the checkpoint's list of shards is not valid");
    snprintf(state.name, sizeof state.name, "%s", name);
    state.listed = listed;
    state.samples = samples;
    state.epochs = epochs;
    const shard *known = find(shards, name);
    if (known && known->listed)
        state.epochs = known->epochs;
    FTH_TRY(fth_shards_add(shards, &state));
    shard *item = find(shards, name);
    item->epoch = epoch;
    item->position = position;

out:
    return status;
}

fth_status fth_shards_from_json(fth_shards *shards, const json_t *json)
{
    fth_status status = FTH_OK;
    const json_t *seed = json_object_get(json, "seed"), *item;
    size_t index;

    FTH_REQUIRE(json_is_integer(seed) && json_integer_value(seed) >= 0, FTH_CORRUPT,
                "the checkpoint's list of shards has no seed");
    shards->seed = (uint64_t)json_integer_value(seed);
    json_array_foreach(json_object_get(json, "list"), index, item)
    {
        FTH_TRY(read_shard(shards, item));
    }

out:
    return status;
}

/* ---- the order of samples ---- */

fth_sampler fth_shard_sampler(uint64_t seed, const char *name, int64_t samples)
{
    return (fth_sampler){.seed = fth_hash(name, strlen(name), seed), .count = samples, .shuffle = true};
}
