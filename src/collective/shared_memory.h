/* Memory that processes of one machine share (fth_shared_memory), as its owner describes it and
 * others map it.
 *
 * It is a file without a name (memfd) that its owner keeps open, and others open as
 * /proc/PROCESS/fd/NUMBER: they need no common parent, only the same user and the same view of
 * processes. The file can no longer change its size. Its first page, which the owner of the memory
 * does not see, has a random number by which others know that they got the right file. */
#ifndef FTH_COLLECTIVE_SHARED_MEMORY_H
#define FTH_COLLECTIVE_SHARED_MEMORY_H

#include <stdbool.h>

#include "collective/collective.h"

enum { FTH_SHARED_PLACE = 100 }; /* room for a description */

size_t fth_shared_memory_size(const fth_shared_memory *memory);
/* Where other processes find it, as a line of text. */
void fth_shared_memory_describe(const fth_shared_memory *memory, char place[FTH_SHARED_PLACE]);
/* Puts other memory in its place: at the same address and with the same contents, except that what
 * lies from `from` up to `to` is undefined. A process that has mapped the old memory does
 * not see the new. What other threads write meanwhile may be lost. */
fth_status fth_shared_memory_replace(const fth_shared_memory *memory, size_t from, size_t to);
/* Maps what another process, or this one, has described; fth_shared_memory_free() it.
 * FTH_UNSUPPORTED where this process cannot reach it: other user, other container. */
fth_status fth_shared_memory_attach(const char *place, bool writable, fth_shared_memory **memory);

#endif
