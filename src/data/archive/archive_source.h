/* Bytes in memory as libarchive reads them, piece by piece. Reading fails once `stop` (may be NULL)
 * is asked or the deadline (at_seconds 0: none) has passed. */
#ifndef FTH_DATA_ARCHIVE_SOURCE_H
#define FTH_DATA_ARCHIVE_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

typedef struct fth_archive_source {
    const uint8_t *bytes;
    size_t size_bytes, at;
    const fth_stop *stop;
    fth_deadline deadline;
} fth_archive_source;

struct archive;
/* `source` outlives `archive`, whose formats have been chosen. */
bool fth_archive_source_open(fth_archive_source *source, struct archive *archive);
/* FTH_CORRUPT becomes FTH_INTERRUPTED or FTH_TIMEOUT if that is why reading ended early. */
fth_status fth_archive_source_explain(const fth_archive_source *source, const char *name, fth_status status);

#endif
