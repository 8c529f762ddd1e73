/* Tensors from and to processes of this machine, by memory instead of a socket.
 *
 * A loopback connection moves bytes at a fraction of a memory copy's speed. So a worker on the same
 * machine and of the same user may ask GET /getParameter?local=1 (with since, wait and worker, if
 * it likes). The answer says where the newest version is:
 *
 *     {"code":200, "version":N, "path":"/proc/PID/fd/FD", "stamp":A, "offset":B, "size_bytes":S}
 *
 * The path opens a memory file that stays the same while the server lives, so it is mapped once
 * (shared, for reading). In it lie, from byte B on, S bytes: the flat vector, as
 * ?offset=0&count=all gives it, in the order of the tensors of a plain /getParameter. The 64-bit
 * number at byte A is N + 1 as long as that is so: look at it (acquire), copy, look again; if it
 * was another number either time, ask again. Where the path cannot be opened, ask without local.
 *
 * And it may push with an empty body and the header
 *
 *     X-Farthing-Local: PID FD SIZE STAMP
 *
 * which names a memfd of its own, called "farthing...", that holds the body; it is read before the
 * answer is given, and can then be used again. The server may still read it for a request that was
 * given up, though: so that it never takes half of one body and half of the next, the 64-bit number
 * that follows the body, at the next multiple of 8 bytes, is STAMP while it is this body, and 0
 * while it is being changed. It is looked at before and after; STAMP may be left out, and then
 * nothing is. Signatures are of those bytes, as if they had been the body. The kernel checks that
 * both are one user's. */
#ifndef FTH_PARAMETERS_LOCAL_H
#define FTH_PARAMETERS_LOCAL_H

#include "base/base.h"

#define FTH_LOCAL_HEADER "X-Farthing-Local"
#define FTH_LOCAL_NAME   "farthing-gradient" /* of a worker's memfd */

/* "123 5 4096 7"; false if it is something else. */
typedef struct fth_local_place {
    long process;
    int fd;
    uint64_t size_bytes;
    uint64_t stamp; /* 0: none */
} fth_local_place;
bool fth_local_parse(const char *text, fth_local_place *place);

/* Where the stamp is, behind a body of so many bytes. */
uint64_t fth_local_stamp_offset(uint64_t size_bytes);

/* Gives what is there to `take`, as a file. It is read, never mapped: its process can take it away
 * at any moment. */
fth_status fth_local_read(const fth_local_place *place, fth_status (*take)(void *context, int fd), void *context);

/* ---- the server's memory ---- */

enum { FTH_REGION_SLOTS = 3 };

/* A few places for versions, written in turn: a reader has the time of two updates to copy one, and
 * sees if it was too slow. One thread writes. */
typedef struct fth_region {
    int fd;
    char *bytes;
    size_t size_bytes, slot_bytes;
    int newest;      /* slot; -1: none yet */
    int64_t version; /* of the newest */
} fth_region;

fth_status fth_region_create(uint64_t packed_bytes, fth_region *region);
void fth_region_release(fth_region *region);
/* Where to write the next version; the slot's stamp says that it is none until
 * fth_region_finish(). */
float *fth_region_begin(fth_region *region, int *slot);
void fth_region_finish(fth_region *region, int slot, int64_t version);
uint64_t fth_region_offset(const fth_region *region, int slot);
uint64_t fth_region_stamp(int slot);

/* ---- a worker's view of it ---- */

typedef struct fth_local_view {
    char path[64];
    const char *stamps; /* its first page, mapped; NULL: nothing is open */
    int fd;
    uint64_t size_bytes;
} fth_local_view;

typedef enum fth_local_result {
    FTH_LOCAL_COPIED,
    FTH_LOCAL_AGAIN,    /* the server has written over it meanwhile: ask again */
    FTH_LOCAL_ELSEWHERE /* it cannot be read from here: another machine, user or container */
} fth_local_result;

/* Copies what the answer to ?local=1 describes, `size_bytes` of it. The view begins zeroed and is
 * kept for the next time. */
fth_local_result fth_local_copy(fth_local_view *view, const char *answer, uint64_t size_bytes, void *to,
                                int64_t *version);
void fth_local_view_release(fth_local_view *view);

/* True for an address of the loopback. */
bool fth_local_is_loopback(const char *client);

#endif
