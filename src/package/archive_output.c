/* Writes files in memory as a zip or a tar, with libarchive. Entries have no dates: a zip's would
 * depend on the time zone. */
#include <archive_entry.h>
#include <stdlib.h>
#include <string.h>

#include "package/package_internal.h"

struct fth_archive_output {
    struct archive *archive;
    struct archive_entry *entry;
    fth_archive_target *target;
    fth_status status; /* of the last write to the target */
    bool abandoned;    /* further output is dropped */
};

static fth_status append(fth_archive_target *target, const void *bytes, size_t size_bytes)
{
    if (target->file)
        return fth_file_write(target->file, bytes, size_bytes);
    if (target->capacity - target->size_bytes < size_bytes) {
        size_t capacity = 2 * (target->size_bytes + size_bytes);
        char *larger = realloc(target->bytes, capacity);
        if (!larger)
            return fth_fail(FTH_NO_MEMORY, "no memory for an archive of %zu bytes", capacity);
        target->bytes = larger;
        target->capacity = capacity;
    }
    memcpy(target->bytes + target->size_bytes, bytes, size_bytes);
    target->size_bytes += size_bytes;
    return FTH_OK;
}

static la_ssize_t write_block(struct archive *archive, void *context, const void *bytes, size_t size_bytes)
{
    fth_archive_output *output = context;
    if (output->abandoned)
        return (la_ssize_t)size_bytes;
    output->status = append(output->target, bytes, size_bytes);
    if (output->status != FTH_OK) {
        archive_set_error(archive, ARCHIVE_FATAL, "%s", fth_error_message());
        return -1;
    }
    return (la_ssize_t)size_bytes;
}

fth_status fth_archive_output_open(fth_archive_format format, fth_archive_target *target, fth_archive_output **output)
{
    fth_status status = FTH_OK;
    fth_archive_output *opened = NULL;

    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    opened->target = target;
    opened->archive = archive_write_new();
    opened->entry = archive_entry_new();
    FTH_REQUIRE(opened->archive && opened->entry, FTH_NO_MEMORY, "no memory to write an archive");
    if (format == FTH_ARCHIVE_ZIP) {
        archive_write_set_format_zip(opened->archive);
        archive_write_set_format_option(opened->archive, "zip", "compression-level", "6");
    } else {
        archive_write_set_format_ustar(opened->archive);
    }
    archive_write_set_bytes_per_block(opened->archive, 1 << 18);
    archive_write_set_bytes_in_last_block(opened->archive, 1);
    FTH_REQUIRE(archive_write_open(opened->archive, opened, NULL, write_block, NULL) == ARCHIVE_OK, FTH_IO,
                "begin an archive: %s", archive_error_string(opened->archive));
    *output = opened;
    opened = NULL;

out:
    fth_archive_output_free(opened);
    return status;
}

static fth_status add(fth_archive_output *output, const char *name, unsigned type, unsigned mode, const void *bytes,
                      size_t size_bytes)
{
    struct archive_entry *entry = output->entry;
    archive_entry_clear(entry);
    archive_entry_set_pathname(entry, name);
    archive_entry_set_filetype(entry, type);
    archive_entry_set_perm(entry, (mode_t)mode);
    archive_entry_set_size(entry, (la_int64_t)size_bytes);
    if (archive_write_header(output->archive, entry) < ARCHIVE_WARN ||
        (size_bytes > 0 && archive_write_data(output->archive, bytes, size_bytes) != (la_ssize_t)size_bytes))
        return fth_fail(output->status != FTH_OK ? output->status : FTH_IO, "write %s into an archive: %s", name,
                        archive_error_string(output->archive));
    return FTH_OK;
}

fth_status fth_archive_output_add(fth_archive_output *output, const char *name, unsigned mode, const void *bytes,
                                  size_t size_bytes)
{
    return add(output, name, AE_IFREG, mode, bytes, size_bytes);
}

fth_status fth_archive_output_add_folder(fth_archive_output *output, const char *name, unsigned mode)
{
    return add(output, name, AE_IFDIR, mode, NULL, 0);
}

fth_status fth_archive_output_finish(fth_archive_output *output)
{
    if (archive_write_close(output->archive) != ARCHIVE_OK)
        return fth_fail(output->status != FTH_OK ? output->status : FTH_IO, "finish an archive: %s",
                        archive_error_string(output->archive));
    return FTH_OK;
}

void fth_archive_output_free(fth_archive_output *output)
{
    if (!output)
        return;
    output->abandoned = true; /* freeing writes an end; archive_write_fail() would prevent that but leak */
    archive_write_free(output->archive);
    archive_entry_free(output->entry);
    free(output);
}
