/* Collectives: sums and copies among the processes that train one model.
 *
 * A collective is one process's end of a group whose members do not change. When a member is lost,
 * every call fails with FTH_PEER_LOST, and the survivors open a new one among themselves.
 *
 * How numbers travel is a transport, a row of fth_transport: "shm" between processes of one
 * machine, "gloo" between machines. With several processes on several machines both are used: sums
 * are made in each machine's memory, and one process of each takes part in the exchange between
 * machines (hierarchy.c). GPUs have transports of their own, which belong to their back end.
 *
 * Every member must make the same calls in the same order. Results are the same bits in every
 * member: each number is summed by one of them, in the order of ranks, and copied to the others.
 * Calls block; except for abort, one thread at a time. */
#ifndef FTH_COLLECTIVE_COLLECTIVE_H
#define FTH_COLLECTIVE_COLLECTIVE_H

#include "base/base.h"

typedef struct fth_collective fth_collective;

/* Where members tell each other, by keys, how to be reached. What is put stays, for this group
 * alone. */
typedef struct fth_key_store {
    void *context;
    fth_status (*put)(void *context, const char *key, const void *bytes, size_t size);
    /* Waits until the key is there. free() the bytes. */
    fth_status (*get)(void *context, const char *key, fth_deadline deadline, void **bytes, size_t *size);
} fth_key_store;

/* One member, as all others know it. */
typedef struct fth_member {
    int node;         /* members with the same number are on one machine and can share memory */
    const char *name; /* "rank 2 on b.example (process 4711)", for messages */
} fth_member;

/* How f32 sums travel between members. With f16 and bf16 each contribution, and the sum, is rounded
 * to it. Shared memory saves nothing by that and rounds all the same, so that the numbers do not
 * depend on where members are. Where members of several machines share some of them, the
 * contributions are sums of machines: on each of them members are added in f32. */
typedef enum fth_wire { FTH_WIRE_F32, FTH_WIRE_F16, FTH_WIRE_BF16 } fth_wire;

typedef struct fth_collective_options {
    int rank, size;
    const fth_member *members; /* `size` of them */
    fth_key_store keys;
    const char *address;   /* of this machine, at which members on others reach it; NULL: the loopback's */
    const char *transport; /* "auto", or the name of a row */
    double timeout_s;      /* a call in which nothing moves for this long fails, as if a member were lost; 0: 30 */
    /* Memory of this process, made with fth_shared_memory_create(), in which sums are made without
     * a copy where members share a machine; of one collective at a time. When a call fails, its
     * pages are replaced at the same address, and what other threads write there meanwhile may be
     * lost. NULL: none. */
    const struct fth_shared_memory *memory;
    int *unreached; /* where open fails because it cannot connect to a member: that one's rank. NULL: not asked for */
} fth_collective_options;

/* Connects to all members; returns when all have done so. What is passed must stay only during the
 * call, but `keys` and `memory` until close. A failed call leaves values undefined, and names the
 * member that was lost. */
fth_status fth_collective_open(const fth_collective_options *options, fth_collective **collective);
void fth_collective_close(fth_collective *collective); /* NULL is fine */
/* From any thread: a call under way fails soon with FTH_PEER_LOST and this reason, and so do all
 * that follow. */
void fth_collective_abort(fth_collective *collective, const char *reason);

const char *
fth_collective_transport(const fth_collective *collective); /* "shm", "gloo", "shm+gloo", "none" for one member */

/* Sums `values` over all members, in place. */
fth_status fth_collective_all_reduce(fth_collective *collective, float *values, size_t count, fth_wire wire);
/* The same for a few numbers that must not lose digits. */
fth_status fth_collective_sum(fth_collective *collective, double *values, size_t count);
/* Range r of `values` is begins[r] .. begins[r + 1]: afterwards it holds the sum in member r;
 * elsewhere it is undefined. */
fth_status fth_collective_reduce_scatter(fth_collective *collective, float *values, const size_t *begins,
                                         fth_wire wire);
/* Member r has range r: afterwards all have all ranges. */
fth_status fth_collective_all_gather(fth_collective *collective, float *values, const size_t *begins);
/* What `root` has, for all. */
fth_status fth_collective_broadcast(fth_collective *collective, void *bytes, size_t size, int root);

/* ---- memory that processes of one machine can share ---- */

typedef struct fth_shared_memory fth_shared_memory;

/* Zeroed. It vanishes with the last process that has it, however that ends. */
fth_status fth_shared_memory_create(size_t size, fth_shared_memory **memory);
void fth_shared_memory_free(fth_shared_memory *memory);
void *fth_shared_memory_get(const fth_shared_memory *memory);

#endif
