/* See archive_source.h. A stop or a deadline is noticed within the time that one piece takes, also
 * while an entry is skipped. */
#include <archive.h>
#include <errno.h>
#include <stdio.h>

#include "data/archive/archive_source.h"
#include "data/archive/blob.h"

enum { PIECE_BYTES = 1 << 16 };

static bool is_late(const fth_archive_source *source)
{
    return source->deadline.at_seconds > 0 && fth_deadline_passed(source->deadline);
}

static la_ssize_t give(struct archive *archive, void *context, const void **piece)
{
    fth_archive_source *source = context;
    size_t left = source->size_bytes - source->at, size = left < PIECE_BYTES ? left : PIECE_BYTES;
    if (source->stop && source->stop->asked) {
        archive_set_error(archive, EINTR, "stopped");
        return ARCHIVE_FATAL;
    }
    if (is_late(source)) {
        archive_set_error(archive, ETIMEDOUT, "out of time");
        return ARCHIVE_FATAL;
    }
    *piece = source->bytes + source->at;
    source->at += size;
    return (la_ssize_t)size;
}

static la_int64_t skip(struct archive *archive, void *context, la_int64_t wanted)
{
    fth_archive_source *source = context;
    size_t left = source->size_bytes - source->at;
    (void)archive;
    size_t skipped = wanted < 0 ? 0 : (uint64_t)wanted < left ? (size_t)wanted : left;
    source->at += skipped;
    return (la_int64_t)skipped;
}

/* A zip's directory is at its end. */
static la_int64_t seek(struct archive *archive, void *context, la_int64_t offset, int whence)
{
    fth_archive_source *source = context;
    la_int64_t size = (la_int64_t)source->size_bytes;
    la_int64_t from = whence == SEEK_END ? size : whence == SEEK_CUR ? (la_int64_t)source->at : 0;
    if (offset < -from || offset > size - from) {
        archive_set_error(archive, EINVAL, "a place outside of the file");
        return ARCHIVE_FATAL;
    }
    source->at = (size_t)(from + offset);
    return from + offset;
}

bool fth_archive_source_open(fth_archive_source *source, struct archive *archive)
{
    archive_read_set_read_callback(archive, give);
    archive_read_set_skip_callback(archive, skip);
    archive_read_set_seek_callback(archive, seek);
    archive_read_set_callback_data(archive, source);
    return archive_read_open1(archive) == ARCHIVE_OK;
}

fth_status fth_check_stop(const fth_stop *stop, const char *name)
{
    return stop && stop->asked ? fth_fail(FTH_INTERRUPTED, "stopped while reading %s", name) : FTH_OK;
}

static bool may_continue(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    const fth_stop *stop = context;
    (void)done_bytes;
    (void)total_bytes;
    return !(stop && stop->asked);
}

fth_store_progress fth_stop_progress(const fth_stop *stop)
{
    return (fth_store_progress){.context = (void *)stop, .moved = may_continue};
}

fth_status fth_archive_source_explain(const fth_archive_source *source, const char *name, fth_status status)
{
    if (status == FTH_CORRUPT && fth_check_stop(source->stop, name) != FTH_OK)
        return FTH_INTERRUPTED;
    if (status == FTH_CORRUPT && is_late(source))
        return fth_fail(FTH_TIMEOUT, "%s: could not be read before the deadline", name);
    return status;
}
