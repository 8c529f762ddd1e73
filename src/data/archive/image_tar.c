/* Writes tars of regular files, dated 0 and owned by root, so that the same images give the same
 * bytes. */
#include <archive.h>
#include <archive_entry.h>
#include <stdlib.h>

#include "data/archive/image_tar.h"
#include "data/image/decode.h"

struct fth_tar_writer {
    fth_tar_output output;
    struct archive *archive;
    struct archive_entry *entry;
    fth_status status; /* of the last write */
    bool abandoned;    /* blocks written from now on are dropped */
};

static la_ssize_t write_block(struct archive *archive, void *context, const void *bytes, size_t size_bytes)
{
    fth_tar_writer *writer = context;
    if (writer->abandoned)
        return (la_ssize_t)size_bytes;
    writer->status = writer->output.write(writer->output.context, bytes, size_bytes);
    if (writer->status != FTH_OK) {
        archive_set_error(archive, ARCHIVE_FATAL, "%s", fth_error_message());
        return -1;
    }
    return (la_ssize_t)size_bytes;
}

static fth_status write_to_file(void *context, const void *bytes, size_t size_bytes)
{
    return fth_file_write(context, bytes, size_bytes);
}

fth_tar_output fth_tar_output_file(fth_file *file)
{
    return (fth_tar_output){.write = write_to_file, .context = file};
}

/* Without a timestamp in the header. */
static bool add_gzip(struct archive *archive)
{
    return archive_write_add_filter_gzip(archive) == ARCHIVE_OK &&
           archive_write_set_filter_option(archive, "gzip", "timestamp", NULL) == ARCHIVE_OK;
}

fth_status fth_tar_writer_create(const fth_tar_output *output, fth_tar_writer **writer)
{
    fth_status status = FTH_OK;
    fth_tar_writer *created = NULL;

    FTH_TRY(fth_allocate(1, sizeof *created, &created));
    created->output = *output;
    created->archive = archive_write_new();
    created->entry = archive_entry_new();
    FTH_REQUIRE(created->archive && created->entry, FTH_NO_MEMORY, "no memory to write an archive");
    archive_write_set_format_pax_restricted(created->archive); /* ustar, with pax headers for long names */
    FTH_REQUIRE(!output->gzip || add_gzip(created->archive), FTH_UNSUPPORTED, "compress an archive: %s",
                archive_error_string(created->archive));
    archive_write_set_bytes_per_block(created->archive, 1 << 18);
    archive_write_set_bytes_in_last_block(created->archive, 1);
    FTH_REQUIRE(archive_write_open(created->archive, created, NULL, write_block, NULL) == ARCHIVE_OK, FTH_IO,
                "begin an archive: %s", archive_error_string(created->archive));
    *writer = created;
    created = NULL;

out:
    fth_tar_writer_free(created);
    return status;
}

fth_status fth_tar_writer_add(fth_tar_writer *writer, const char *path, const void *bytes, size_t size_bytes)
{
    struct archive_entry *entry = writer->entry;
    archive_entry_clear(entry);
    archive_entry_set_pathname(entry, path);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, (la_int64_t)size_bytes);
    archive_entry_set_mtime(entry, 0, 0);
    if (archive_write_header(writer->archive, entry) < ARCHIVE_WARN ||
        (size_bytes > 0 && archive_write_data(writer->archive, bytes, size_bytes) != (la_ssize_t)size_bytes))
        return fth_fail(writer->status != FTH_OK ? writer->status : FTH_IO, "write %s into an archive: %s", path,
                        archive_error_string(writer->archive));
    return FTH_OK;
}

fth_status fth_tar_writer_finish(fth_tar_writer *writer)
{
    if (archive_write_close(writer->archive) != ARCHIVE_OK)
        return fth_fail(writer->status != FTH_OK ? writer->status : FTH_IO, "finish an archive: %s",
                        archive_error_string(writer->archive));
    return FTH_OK;
}

void fth_tar_writer_free(fth_tar_writer *writer)
{
    if (!writer)
        return;
    writer->abandoned =
        true; /* archive_write_free() writes the end; archive_write_fail() would prevent that but leaks */
    archive_write_free(writer->archive);
    archive_entry_free(writer->entry);
    free(writer);
}
