/* Collectives between processes of one machine, through shared memory (shm_group.h).
 *
 * If every member's values are in its shared memory, nothing is copied: each member sums its range
 * over the memory of all and writes the sums there. Each number is read once and written once,
 * which takes half the time of copying the ranges afterwards. Other values go through inboxes, in
 * parts. An inbox has two areas: `terms`, which its member fills for others to read, and `sums`, in
 * which its member leaves its sums.
 *
 * When an area may be written again:
 * - terms, and the description of a call: once all members have made the last step of the previous
 *   call. begin_call waits for that; it has usually happened by then.
 * - sums: after the first step of a call, which the others make once they have copied the sums of
 *   the previous call. */
#include <stdlib.h>
#include <string.h>

#include "collective/shm_group.h"
#include "collective/transport.h"
#include "collective/wire.h"

enum {
    AREA_BYTES = 1 << 20, /* fits a second-level cache, and is large beside the cost of a step */
    FEW = 1024            /* up to this count each member makes all sums, which saves a step */
};

typedef enum call_kind { REDUCE = 1, ALL_GATHER, BROADCAST, SUM } call_kind;

typedef struct shm_state {
    fth_shm_group *group;
    int rank, size;
    float **vectors; /* `size` of them, for one sum */
    size_t *begins;  /* size + 1 of them, for all_reduce */
} shm_state;

static char *terms_of(shm_state *shm, int member)
{
    return fth_shm_group_inbox(shm->group, member);
}

static char *sums_of(shm_state *shm, int member)
{
    return terms_of(shm, member) + AREA_BYTES;
}

static fth_status meet(shm_state *shm)
{
    fth_shm_group_step(shm->group);
    return fth_shm_group_wait(shm->group);
}

/* ---- the beginning of a call ---- */

static fth_status begin_call(shm_state *shm, fth_shm_call call)
{
    fth_status status = fth_shm_group_wait(shm->group);
    if (status == FTH_OK)
        *fth_shm_group_call(shm->group, shm->rank) = call;
    return status;
}

static const char *describe_kind(uint32_t kind)
{
    static const char *const names[] = {
        [REDUCE] = "all_reduce", [ALL_GATHER] = "all_gather", [BROADCAST] = "broadcast", [SUM] = "sum"};
    return kind >= REDUCE && kind <= SUM ? names[kind] : "unknown call";
}

static fth_status refuse(shm_state *shm, int member)
{
    const fth_shm_call *own = fth_shm_group_call(shm->group, shm->rank),
                       *other = fth_shm_group_call(shm->group, member);
    const char *name = fth_shm_group_name(shm->group, shm->rank), *other_name = fth_shm_group_name(shm->group, member);
    if (other->kind == own->kind && other->count == own->count)
        return fth_fail(FTH_INVALID, "%s and %s differ in the ranges, the root or the wire format of %s", name,
                        other_name, describe_kind(own->kind));
    return fth_fail(FTH_INVALID, "members differ: %s of %llu in %s, %s of %llu in %s", describe_kind(own->kind),
                    (unsigned long long)own->count, name, describe_kind(other->kind), (unsigned long long)other->count,
                    other_name);
}

/* After the first step: fails if members make different calls; otherwise counts those whose values
 * are in their memory. */
static fth_status compare_calls(shm_state *shm, int *direct)
{
    const fth_shm_call *own = fth_shm_group_call(shm->group, shm->rank);
    *direct = 0;
    for (int r = 0; r < shm->size; r++) {
        const fth_shm_call *other = fth_shm_group_call(shm->group, r);
        if (other->kind != own->kind || other->detail != own->detail || other->count != own->count ||
            other->layout != own->layout)
            return refuse(shm, r);
        *direct += other->offset != FTH_SHM_ELSEWHERE;
    }
    return FTH_OK;
}

/* The values of a member in its memory, from number `from` to `to`. */
static fth_status find_values(shm_state *shm, int member, size_t from, size_t to, float **values)
{
    uint64_t offset = fth_shm_group_call(shm->group, member)->offset + from * sizeof(float);
    *values = fth_shm_group_memory(shm->group, member, offset, (to - from) * sizeof(float));
    return *values ? FTH_OK
                   : fth_fail(FTH_CORRUPT, "%s has values outside its memory", fth_shm_group_name(shm->group, member));
}

/* A hash of the ranges. */
static uint64_t digest(const size_t *begins, int count)
{
    uint64_t hash = 14695981039346656037u;
    for (int r = 0; r < count; r++)
        hash = (hash ^ begins[r]) * 1099511628211u;
    return hash;
}

/* ---- parts of ranges ---- */

/* Numbers in a part, if an area holds a part of every range. */
static size_t part_length(const shm_state *shm)
{
    const size_t line = FTH_ALIGNMENT / sizeof(float);
    return AREA_BYTES / sizeof(float) / (size_t)shm->size / line * line;
}

/* Ranges go through inboxes in parts: part k of range r is `length` numbers from k * length in
 * it. */
static size_t part_begin(const size_t *begins, int range, size_t part, size_t length)
{
    size_t begin = begins[range] + part * length;
    return begin < begins[range + 1] ? begin : begins[range + 1];
}

static size_t count_parts(const size_t *begins, int ranges, size_t length)
{
    size_t most = 0;
    for (int r = 0; r < ranges; r++) {
        size_t parts = (begins[r + 1] - begins[r] + length - 1) / length;
        most = parts > most ? parts : most;
    }
    return most;
}

static void copy_floats(void *to, const void *from, size_t count)
{
    if (count > 0)
        memcpy(to, from, count * sizeof(float));
}

/* ---- sums ---- */

/* Every member sums its range in the memory of all, and writes the sums there. */
static fth_status reduce_in_memory(shm_state *shm, const size_t *begins, fth_wire wire)
{
    fth_status status = FTH_OK;
    size_t from = begins[shm->rank], to = begins[shm->rank + 1];

    for (int r = 0; r < shm->size; r++)
        FTH_TRY(find_values(shm, r, from, to, &shm->vectors[r]));
    fth_wire_sum_to_all(wire, shm->vectors, shm->size, to - from);
    FTH_TRY(meet(shm)); /* until then others read and write here */

out:
    return status;
}

/* Writes the terms of part `part` of all ranges, one after the other. */
static void write_terms(shm_state *shm, const float *values, const size_t *begins, size_t part, size_t length)
{
    float *terms = (float *)(void *)terms_of(shm, shm->rank);
    for (int r = 0; r < shm->size; r++) {
        size_t from = part_begin(begins, r, part, length), to = part_begin(begins, r, part + 1, length);
        copy_floats(terms + (size_t)r * length, values + from, to - from);
    }
}

/* Sums the part whose terms are in all inboxes. */
static fth_status reduce_part(shm_state *shm, float *values, const size_t *begins, size_t part, size_t length,
                              fth_wire wire)
{
    fth_status status = FTH_OK;
    size_t from = part_begin(begins, shm->rank, part, length), to = part_begin(begins, shm->rank, part + 1, length);

    for (int r = 0; r < shm->size; r++)
        shm->vectors[r] = (float *)(void *)terms_of(shm, r) + (size_t)shm->rank * length;
    fth_wire_sum(wire, (const float *const *)shm->vectors, shm->size, to - from,
                 (float *)(void *)sums_of(shm, shm->rank));
    FTH_TRY(meet(shm));
    for (int r = 0; r < shm->size; r++) {
        from = part_begin(begins, r, part, length);
        copy_floats(values + from, sums_of(shm, r), part_begin(begins, r, part + 1, length) - from);
    }

out:
    return status;
}

/* `call` is this member's and has begun. */
static fth_status reduce_ranges(shm_state *shm, const fth_shm_call *call, float *values, const size_t *begins)
{
    fth_status status = FTH_OK;
    size_t length = part_length(shm);
    bool in_memory = call->offset != FTH_SHM_ELSEWHERE;
    int direct;

    if (!in_memory)
        write_terms(shm, values, begins, 0, length);
    FTH_TRY(meet(shm));
    FTH_TRY(compare_calls(shm, &direct));
    if (direct == shm->size)
        return reduce_in_memory(shm, begins, call->detail);
    if (direct > 0) { /* only some have their values there: all go through inboxes */
        if (in_memory)
            write_terms(shm, values, begins, 0, length);
        FTH_TRY(meet(shm));
    }
    for (size_t part = 0, parts = count_parts(begins, shm->size, length); part < parts; part++) {
        if (part > 0) {
            write_terms(shm, values, begins, part, length);
            FTH_TRY(meet(shm));
        }
        FTH_TRY(reduce_part(shm, values, begins, part, length, call->detail));
    }

out:
    return status;
}

static fth_status reduce(shm_state *shm, float *values, const size_t *begins, fth_wire wire)
{
    size_t count = begins[shm->size], size = count * sizeof *values;
    fth_shm_call call = {.kind = REDUCE, .detail = wire, .count = count, .layout = digest(begins, shm->size + 1)};
    call.offset = fth_shm_group_find(shm->group, values, size);

    fth_status status = begin_call(shm, call);
    if (status != FTH_OK)
        return status;
    status = reduce_ranges(shm, &call, values, begins);
    if (status == FTH_OK || call.offset == FTH_SHM_ELSEWHERE)
        return status;
    /* Others may still write their sums. */
    fth_status protected = fth_shm_group_protect(shm->group, call.offset, size);
    return protected == FTH_OK ? status : protected;
}

/* Each member makes all sums. */
static fth_status reduce_few(shm_state *shm, float *values, size_t count, fth_wire wire)
{
    fth_status status = FTH_OK;
    fth_shm_call call = {.kind = REDUCE, .detail = wire, .count = count, .offset = FTH_SHM_ELSEWHERE};
    int direct;

    FTH_TRY(begin_call(shm, call));
    copy_floats(terms_of(shm, shm->rank), values, count);
    FTH_TRY(meet(shm));
    FTH_TRY(compare_calls(shm, &direct));
    for (int r = 0; r < shm->size; r++)
        shm->vectors[r] = (float *)(void *)terms_of(shm, r);
    fth_wire_sum(wire, (const float *const *)shm->vectors, shm->size, count, values);
    fth_shm_group_step(shm->group);

out:
    return status;
}

static fth_status shm_all_reduce(void *state, float *values, size_t count, fth_wire wire)
{
    shm_state *shm = state;
    if (count <= FEW)
        return reduce_few(shm, values, count, wire);
    /* Whole cache lines, so that, of values that are aligned, no line is written by two members. */
    size_t share = fth_align_up((count + (size_t)shm->size - 1) / (size_t)shm->size, FTH_ALIGNMENT / sizeof(float));
    for (int r = 0; r <= shm->size; r++)
        shm->begins[r] = share * (size_t)r < count ? share * (size_t)r : count;
    return reduce(shm, values, shm->begins, wire);
}

static fth_status shm_sum(void *state, double *values, size_t count)
{
    fth_status status = FTH_OK;
    shm_state *shm = state;
    const size_t most = AREA_BYTES / sizeof *values;
    int direct;

    for (size_t at = 0; at < count; at += most) {
        size_t part = count - at < most ? count - at : most;
        FTH_TRY(begin_call(shm, (fth_shm_call){.kind = SUM, .count = count, .offset = FTH_SHM_ELSEWHERE}));
        memcpy(terms_of(shm, shm->rank), values + at, part * sizeof *values);
        FTH_TRY(meet(shm));
        FTH_TRY(compare_calls(shm, &direct));
        memcpy(values + at, terms_of(shm, 0), part * sizeof *values);
        for (int r = 1; r < shm->size; r++) {
            const double *terms = (const double *)(void *)terms_of(shm, r);
            for (size_t i = 0; i < part; i++)
                values[at + i] += terms[i];
        }
        fth_shm_group_step(shm->group);
    }

out:
    return status;
}

/* ---- copies ---- */

static fth_status gather_from_memory(shm_state *shm, float *values, const size_t *begins)
{
    fth_status status = FTH_OK;
    for (int i = 1; i < shm->size; i++) {
        int r = (shm->rank + i) % shm->size;
        float *theirs;
        FTH_TRY(find_values(shm, r, begins[r], begins[r + 1], &theirs));
        copy_floats(values + begins[r], theirs, begins[r + 1] - begins[r]);
    }
    FTH_TRY(meet(shm));

out:
    return status;
}

static fth_status shm_all_gather(void *state, float *values, const size_t *begins)
{
    fth_status status = FTH_OK;
    shm_state *shm = state;
    const size_t length = AREA_BYTES / sizeof *values;
    size_t count = begins[shm->size];
    fth_shm_call call = {.kind = ALL_GATHER, .count = count, .layout = digest(begins, shm->size + 1)};
    int direct;

    call.offset = fth_shm_group_find(shm->group, values, count * sizeof *values);
    FTH_TRY(begin_call(shm, call));
    for (size_t part = 0, parts = count_parts(begins, shm->size, length); part < parts; part++) {
        size_t from = part_begin(begins, shm->rank, part, length);
        copy_floats(terms_of(shm, shm->rank), values + from, part_begin(begins, shm->rank, part + 1, length) - from);
        FTH_TRY(meet(shm));
        if (part == 0) {
            FTH_TRY(compare_calls(shm, &direct));
            if (direct == shm->size)
                return gather_from_memory(shm, values, begins);
        }
        for (int r = 0; r < shm->size; r++) {
            from = part_begin(begins, r, part, length);
            if (r != shm->rank)
                copy_floats(values + from, terms_of(shm, r), part_begin(begins, r, part + 1, length) - from);
        }
        fth_shm_group_step(shm->group);
        if (part + 1 < parts)
            FTH_TRY(fth_shm_group_wait(shm->group));
    }

out:
    return status;
}

static fth_status broadcast_from_memory(shm_state *shm, void *bytes, size_t size, int root)
{
    uint64_t offset = fth_shm_group_call(shm->group, root)->offset;
    const void *from = fth_shm_group_memory(shm->group, root, offset, size);
    if (!from)
        return fth_fail(FTH_CORRUPT, "%s has values outside its memory", fth_shm_group_name(shm->group, root));
    if (shm->rank != root)
        memcpy(bytes, from, size);
    return meet(shm);
}

static fth_status shm_broadcast(void *state, void *bytes, size_t size, int root)
{
    fth_status status = FTH_OK;
    shm_state *shm = state;
    const size_t most = AREA_BYTES;
    fth_shm_call call = {.kind = BROADCAST, .detail = (uint32_t)root, .count = size, .offset = FTH_SHM_ELSEWHERE};
    int direct;

    if (shm->rank == root)
        call.offset = fth_shm_group_find(shm->group, bytes, size);
    FTH_TRY(begin_call(shm, call));
    for (size_t at = 0; at < size; at += most) {
        size_t part = size - at < most ? size - at : most;
        if (shm->rank == root && call.offset == FTH_SHM_ELSEWHERE)
            memcpy(terms_of(shm, root), (const char *)bytes + at, part);
        FTH_TRY(meet(shm));
        if (at == 0) {
            FTH_TRY(compare_calls(shm, &direct));
            if (direct > 0)
                return broadcast_from_memory(shm, bytes, size, root);
        }
        if (shm->rank != root)
            memcpy((char *)bytes + at, terms_of(shm, root), part);
        fth_shm_group_step(shm->group);
        if (at + part < size)
            FTH_TRY(fth_shm_group_wait(shm->group));
    }

out:
    return status;
}

/* ---- the row ---- */

static void shm_close(void *state)
{
    shm_state *shm = state;
    if (!shm)
        return;
    fth_shm_group_close(shm->group);
    free(shm->vectors);
    free(shm->begins);
    free(shm);
}

static fth_status shm_open(const fth_collective_options *options, void **state)
{
    fth_status status = FTH_OK;
    shm_state *made = NULL;

    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->rank = options->rank;
    made->size = options->size;
    FTH_TRY(fth_allocate((size_t)made->size, sizeof *made->vectors, &made->vectors));
    FTH_TRY(fth_allocate((size_t)made->size + 1, sizeof *made->begins, &made->begins));
    FTH_TRY(fth_shm_group_open(options, 2 * AREA_BYTES, &made->group));
    *state = made;
    made = NULL;

out:
    shm_close(made);
    return status;
}

static void shm_abort(void *state, const char *reason)
{
    shm_state *shm = state;
    fth_shm_group_abort(shm->group, reason);
}

const fth_transport fth_transport_shm = {
    .name = "shm",
    .summary = "memory that the processes of one machine share",
    .open = shm_open,
    .close = shm_close,
    .abort = shm_abort,
    .all_reduce = shm_all_reduce,
    .sum = shm_sum,
    .all_gather = shm_all_gather,
    .broadcast = shm_broadcast,
};
