/* Collectives: sums and copies among the processes that train one model.
 *
 * A collective is one process's end of a group with fixed members. When a member is lost, every
 * call fails with FTH_PEER_LOST, and the survivors open a new collective.
 *
 * Numbers travel by a transport, a row of fth_transports: "shm" between processes of one machine,
 * "gloo" between machines. With several processes on several machines both are used: sums are made
 * in each machine's memory, and one process of each takes part in the exchange between machines
 * (hierarchy.c). GPUs have transports of their own, which belong to their back end.
 *
 * Every member must make the same calls in the same order. Results have the same bits in every
 * member: each number is summed by one of them, in the order of ranks, and copied to the others.
 * Calls block and, except for abort, must come from one thread at a time. */
#ifndef FTH_COLLECTIVE_COLLECTIVE_H
#define FTH_COLLECTIVE_COLLECTIVE_H

#include "base/base.h"

typedef struct fth_collective fth_collective;

/* Where members exchange their addresses, by keys. Each group has keys of its own. */
typedef struct fth_key_store {
    void *context;
    fth_status (*put)(void *context, const char *key, const void *bytes, size_t size);
    /* Waits for the key. free() the bytes. */
    fth_status (*get)(void *context, const char *key, fth_deadline deadline, void **bytes, size_t *size);
} fth_key_store;

/* One member, as all others know it. */
typedef struct fth_member {
    int node;         /* members with the same number are on one machine and can share memory */
    const char *name; /* "rank 2 on b.example (process 4711)", for messages */
} fth_member;

/* How f32 sums travel between members. With f16 and bf16 each contribution, and the sum, is rounded
 * to that format. Shared memory gains nothing from it but rounds as well, so that the numbers do
 * not depend on where members are. With several members on several machines, the contributions are
 * the machines' sums, in which members are added in f32. */
typedef enum fth_wire { FTH_WIRE_F32, FTH_WIRE_F16, FTH_WIRE_BF16 } fth_wire;

typedef struct fth_collective_options {
    int rank, size;
    const fth_member *members; /* `size` of them */
    fth_key_store keys;
    const char *address;   /* of this machine, for members on others; NULL: the loopback's */
    const char *transport; /* "auto", or the name of a row */
    double timeout_s;      /* a call without progress for this long fails, as if a member were lost; 0: 30 */
    /* Memory of this process, from fth_shared_memory_create(), in which members of one machine sum
     * without a copy; of one collective at a time. When a call fails, its pages are replaced at the
     * same address, and concurrent writes of other threads may be lost. NULL: none. */
    const struct fth_shared_memory *memory;
    int *unreached; /* set to a member's rank if open cannot connect to it; may be NULL */
} fth_collective_options;

/* Connects to all members; returns when all are connected. `keys` and `memory` must stay valid
 * until close, the other options during the call. A failed call of the collective leaves values
 * undefined, and its message names the member that was lost. */
fth_status fth_collective_open(const fth_collective_options *options, fth_collective **collective);
void fth_collective_close(fth_collective *collective); /* NULL is fine */
/* From any thread: the call under way fails soon with FTH_PEER_LOST and this reason, and so do all
 * later ones. */
void fth_collective_abort(fth_collective *collective, const char *reason);

const char *
fth_collective_transport(const fth_collective *collective); /* "shm", "gloo", "shm+gloo", "none" for one member */

/* Sums `values` over all members, in place. */
fth_status fth_collective_all_reduce(fth_collective *collective, float *values, size_t count, fth_wire wire);
/* The same for a few numbers in full precision. */
fth_status fth_collective_sum(fth_collective *collective, double *values, size_t count);
/* Range r of `values` is begins[r] .. begins[r + 1]. Member r has range r before the call; all have
 * all ranges after it. */
fth_status fth_collective_all_gather(fth_collective *collective, float *values, const size_t *begins);
/* Copies the root's bytes to all. */
fth_status fth_collective_broadcast(fth_collective *collective, void *bytes, size_t size, int root);

/* ---- memory that processes of one machine can share ---- */

typedef struct fth_shared_memory fth_shared_memory;

/* Zeroed. The memory is freed when the last process that maps it ends, in whatever way. */
fth_status fth_shared_memory_create(size_t size, fth_shared_memory **memory);
void fth_shared_memory_free(fth_shared_memory *memory);
void *fth_shared_memory_get(const fth_shared_memory *memory);

#endif
