/* Archives made in memory, hostile ones too, for the tests of what reads them. */
#ifndef TEST_ARCHIVES_H
#define TEST_ARCHIVES_H

#include <archive.h>
#include <archive_entry.h>

#include "test_data_files.h"

enum { ARCHIVE_ROOM = 24 << 20 };

typedef enum archive_kind { ARCHIVE_TAR, ARCHIVE_TAR_GZ, ARCHIVE_ZIP } archive_kind;

typedef struct made_archive {
    struct archive *writer;
    uint8_t *bytes;
    size_t size_bytes;
} made_archive;

static inline made_archive begin_archive(archive_kind kind)
{
    made_archive made = {.writer = archive_write_new(), .bytes = malloc(ARCHIVE_ROOM)};
    if (kind == ARCHIVE_ZIP)
        archive_write_set_format_zip(made.writer);
    else
        archive_write_set_format_pax_restricted(made.writer);
    if (kind == ARCHIVE_TAR_GZ)
        archive_write_add_filter_gzip(made.writer);
    archive_write_set_bytes_in_last_block(made.writer, 1);
    return made;
}

/* Once all options of the writer are set. */
static inline void open_archive(made_archive *made)
{
    assert_int_equal(archive_write_open_memory(made->writer, made->bytes, ARCHIVE_ROOM, &made->size_bytes), ARCHIVE_OK);
}

/* `kind`: AE_IFREG, AE_IFLNK, ...; `target` of a link, or NULL. */
static inline void add_entry(made_archive *made, const char *path, unsigned kind, const char *target, const void *bytes,
                             size_t size_bytes)
{
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_pathname(entry, path);
    archive_entry_set_filetype(entry, kind);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, (la_int64_t)size_bytes);
    if (target && kind == AE_IFLNK)
        archive_entry_set_symlink(entry, target);
    else if (target)
        archive_entry_set_hardlink(entry, target);
    assert_true(archive_write_header(made->writer, entry) >= ARCHIVE_WARN);
    if (size_bytes > 0)
        assert_int_equal(archive_write_data(made->writer, bytes, size_bytes), (la_ssize_t)size_bytes);
    archive_entry_free(entry);
}

static inline void add_file(made_archive *made, const char *path, const void *bytes, size_t size_bytes)
{
    add_entry(made, path, AE_IFREG, NULL, bytes, size_bytes);
}

static inline void finish_archive(made_archive *made)
{
    assert_int_equal(archive_write_close(made->writer), ARCHIVE_OK);
    archive_write_free(made->writer);
    made->writer = NULL;
}

/* Both training files in `folder` ("a/b/" or ""). */
static inline void add_idx_pair(made_archive *made, const char *folder, uint32_t count, uint32_t side)
{
    char path[300];
    size_t size_bytes;
    uint8_t *bytes = make_idx_images(count, side, &size_bytes);
    snprintf(path, sizeof path, "%strain-images-idx3-ubyte", folder);
    add_file(made, path, bytes, size_bytes);
    free(bytes);
    bytes = make_idx_labels(count, &size_bytes);
    snprintf(path, sizeof path, "%strain-labels-idx1-ubyte", folder);
    add_file(made, path, bytes, size_bytes);
    free(bytes);
}

/* An archive of nothing but these. */
static inline made_archive make_idx_archive(archive_kind kind, const char *folder, uint32_t count, uint32_t side)
{
    made_archive made = begin_archive(kind);
    open_archive(&made);
    add_idx_pair(&made, folder, count, side);
    finish_archive(&made);
    return made;
}

/* gzip of bytes, in fresh memory. */
static inline uint8_t *make_gzip(const void *bytes, size_t size_bytes, size_t *packed_bytes)
{
    struct archive *writer = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    uint8_t *packed = malloc(ARCHIVE_ROOM);
    archive_write_set_format_raw(writer);
    archive_write_add_filter_gzip(writer);
    archive_write_set_bytes_in_last_block(writer, 1);
    assert_int_equal(archive_write_open_memory(writer, packed, ARCHIVE_ROOM, packed_bytes), ARCHIVE_OK);
    archive_entry_set_filetype(entry, AE_IFREG);
    assert_int_equal(archive_write_header(writer, entry), ARCHIVE_OK);
    assert_int_equal(archive_write_data(writer, bytes, size_bytes), (la_ssize_t)size_bytes);
    assert_int_equal(archive_write_close(writer), ARCHIVE_OK);
    archive_write_free(writer);
    archive_entry_free(entry);
    return packed;
}

#endif
