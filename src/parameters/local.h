/* Tensors between processes of one machine, through memory instead of a socket: a loopback
 * connection is several times slower than a memory copy.
 *
 * Pulling. A worker on the same machine and of the same user may ask GET /getParameter?local=1
 * (optionally with since, wait and worker). The answer says where the newest version is:
 *
 *     {"code":200, "version":N, "path":"/proc/PID/fd/FD", "stamp":A, "offset":B, "size_bytes":S}
 *
 * The path opens a memory file that stays the same while the server lives, so workers open it once.
 * S bytes from byte B on are the flat vector, as ?offset=0&count=all returns it. The 64-bit number
 * at byte A is N + 1 as long as those bytes are version N. Read it (acquire), copy, read it again;
 * if either read gives another number, ask again. If the path cannot be opened, ask without local.
 *
 * Pushing. A worker may push with an empty body and the header
 *
 *     X-Farthing-Local: PID FD SIZE STAMP
 *
 * which names a memfd of the worker, called "farthing...", that holds the body. The worker may
 * reuse the memfd after the answer. The server may still be reading it for a request that timed
 * out, so it needs to detect a body that changes: the 64-bit number after the body, at the next
 * multiple of 8 bytes, is STAMP while the body is valid and 0 while it is being written. The server
 * checks it before and after reading. Without STAMP there is no check. Signatures cover these bytes
 * as if they were the body. The kernel checks that both processes belong to one user. */
#ifndef FTH_PARAMETERS_LOCAL_H
#define FTH_PARAMETERS_LOCAL_H

#include "base/base.h"

#define FTH_LOCAL_HEADER "X-Farthing-Local"
#define FTH_LOCAL_NAME   "farthing-gradient" /* of a worker's memfd */

/* Parses "123 5 4096 7"; false if `text` has another form. */
typedef struct fth_local_place {
    long process;
    int fd;
    uint64_t size_bytes;
    uint64_t stamp; /* 0: none */
} fth_local_place;
bool fth_local_parse(const char *text, fth_local_place *place);

/* The offset of the stamp after a body of `size_bytes`. */
uint64_t fth_local_stamp_offset(uint64_t size_bytes);

/* Passes the memfd to `take` as a file. Read it, never map it: its process may truncate it at any
 * moment. */
fth_status fth_local_read(const fth_local_place *place, fth_status (*take)(void *context, int fd), void *context);

/* ---- the server's memory ---- */

enum { FTH_REGION_SLOTS = 3 };

/* Slots for versions, written in turn: a reader has two updates' time to copy one, and notices when
 * it was too slow. One thread writes. */
typedef struct fth_region {
    int fd;
    char *bytes;
    size_t size_bytes, slot_bytes;
    int newest;      /* slot; -1: none yet */
    int64_t version; /* of the newest */
} fth_region;

fth_status fth_region_create(uint64_t packed_bytes, fth_region *region);
void fth_region_release(fth_region *region);
/* Where to write the next version. The slot is marked invalid until fth_region_finish(). */
float *fth_region_begin(fth_region *region, int *slot);
void fth_region_finish(fth_region *region, int slot, int64_t version);
uint64_t fth_region_offset(const fth_region *region, int slot);
uint64_t fth_region_stamp(int slot);

/* ---- a worker's view of it ---- */

typedef struct fth_local_view {
    char path[64];
    const char *stamps; /* its first page, mapped; NULL: not open */
    int fd;
    uint64_t size_bytes;
} fth_local_view;

typedef enum fth_local_result {
    FTH_LOCAL_COPIED,
    FTH_LOCAL_AGAIN,    /* overwritten while it was copied: ask again */
    FTH_LOCAL_ELSEWHERE /* not readable from here: another machine, user or container */
} fth_local_result;

/* Copies the `size_bytes` that an answer to ?local=1 describes. The view starts zeroed and is kept
 * between calls. */
fth_local_result fth_local_copy(fth_local_view *view, const char *answer, uint64_t size_bytes, void *to,
                                int64_t *version);
void fth_local_view_release(fth_local_view *view);

/* Whether a client's address is a loopback address. */
bool fth_local_is_loopback(const char *client);

#endif
