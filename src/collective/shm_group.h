/* The members of one machine: each one's memory mapped by all, and the steps in which they wait for
 * each other.
 *
 * A member has a board, an inbox that others read, and, where the options have one, the memory that
 * its values lie in, which others read and write while it waits for them in a call. If that call
 * fails, some may still write when it has returned: one that was stopped, say, given up by the
 * others, and goes on later. Therefore the memory is then replaced by other memory at the same
 * address (fth_shm_group_protect), which they do not know.
 *
 * Time is counted in steps, a number that only grows, on each member's board. All members make the
 * same calls, and each call has the same steps in all of them: to wait for a member is to wait
 * until its step has come to a number. A waiting member spins briefly and then sleeps on a
 * futex, a few milliseconds at a time, between which it looks whether the one it waits for has
 * ended (a pidfd), has left the group, or took too long. */
#ifndef FTH_COLLECTIVE_SHM_GROUP_H
#define FTH_COLLECTIVE_SHM_GROUP_H

#include <stdint.h>

#include "collective/collective.h"

typedef struct fth_shm_group fth_shm_group;

/* What a member is about to do, for the others to compare. */
typedef struct fth_shm_call {
    uint32_t kind, detail;
    uint64_t count, layout;
    uint64_t offset; /* of its values in its memory; FTH_SHM_ELSEWHERE: they are not there */
} fth_shm_call;

#define FTH_SHM_ELSEWHERE UINT64_MAX

/* FTH_UNSUPPORTED, in all members, if one of them cannot map the memory of another. */
fth_status fth_shm_group_open(const fth_collective_options *options, size_t inbox_bytes, fth_shm_group **group);
void fth_shm_group_close(fth_shm_group *group);
void fth_shm_group_abort(fth_shm_group *group, const char *reason); /* from any thread */

const char *fth_shm_group_name(const fth_shm_group *group, int member);

/* This member's step goes up by one: what it wrote before, others see who wait for that. */
void fth_shm_group_step(fth_shm_group *group);
/* Waits until every member has made as many steps as this one. */
fth_status fth_shm_group_wait(fth_shm_group *group);

/* What a member is about to do; that of this member is written, before a step. */
fth_shm_call *fth_shm_group_call(fth_shm_group *group, int member);
/* A member's inbox; that of this member is written. */
void *fth_shm_group_inbox(fth_shm_group *group, int member);
/* Where `bytes` of this process lie in its memory, or FTH_SHM_ELSEWHERE. */
uint64_t fth_shm_group_find(const fth_shm_group *group, const void *bytes, size_t size);
/* Puts other memory in the place of this process's; values of `size` bytes at `offset` are lost. */
fth_status fth_shm_group_protect(fth_shm_group *group, uint64_t offset, size_t size);
/* `size` bytes of a member's memory; NULL if it has no such place. */
void *fth_shm_group_memory(const fth_shm_group *group, int member, uint64_t offset, size_t size);

#endif
