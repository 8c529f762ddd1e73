/* The index of a set of image files (image_index.c), filled from folders (image_folder.c), archives
 * and downloads (image_archive.c), or stores (object_layout.c). */
#ifndef FTH_DATA_IMAGE_INDEX_H
#define FTH_DATA_IMAGE_INDEX_H

#include "data/archive/archive_reader.h"
#include "data/data_internal.h"
#include "data/source/skipped_files.h"
#include "data/text/text_block.h"

/* All names are in one text; a file refers to its folder, a folder to its class: 24 bytes and a
 * file name for each image. */
typedef struct fth_image_entry {
    uint64_t place;      /* defined by the source: the offset in a tar; 0 in a folder */
    uint32_t size_bytes; /* 0 in a folder */
    uint32_t name;       /* offset of its file name in `names` */
    uint32_t folder;
} fth_image_entry;

typedef struct fth_image_folder {
    uint32_t path;       /* offset in `names`; relative to the top */
    int32_t class_index; /* -1: not part of the set */
    uint32_t count;      /* number of images */
    uint8_t split;
} fth_image_folder;

/* Files that cannot be used: their number, and the shortened path of one. */
typedef struct fth_left_out {
    int64_t count;
    char example[160];
} fth_left_out;
void fth_left_out_add(fth_left_out *left_out, const char *path, int64_t count);
/* Logs a warning if there are any: "SOURCE: left out 2 images WHY: PATH, ...". */
void fth_left_out_report(const fth_left_out *left_out, const char *source, const char *noun, const char *why);

typedef struct fth_image_index {
    fth_text_block names;
    fth_image_folder *folders;
    size_t folder_count, folder_capacity;
    fth_image_entry *entries; /* by split, class, folder and name */
    size_t count, capacity;
    uint32_t *table; /* hash table of folders by path: 1 + folder, or 0 */
    size_t table_size;
    const fth_stop *stop;        /* ends the making of the index; or NULL */
    int64_t first[2], counts[2]; /* entries of each split */
    size_t root_length;          /* length of the top, which precedes the relevant folders */
    bool has_splits;             /* there is a train/ */
    int classes;
    char **class_names;    /* sorted; one allocation with their text */
    fth_left_out too_deep; /* folders nested too deeply */
    fth_skipped_files skipped;
} fth_image_index;

void fth_image_index_free(fth_image_index *index);
/* Finds or adds the folder `path`, relative to the top and without a trailing slash; paths in
 * archives may be absolute. *folder is UINT32_MAX for hidden folders (a part begins with '.' or is
 * __MACOSX). */
fth_status fth_image_index_add_folder(fth_image_index *index, const char *path, size_t length, uint32_t *folder);
/* Adds a file. Hidden files and companions are ignored; other files that are no images are noted as
 * skipped. */
fth_status fth_image_index_add(fth_image_index *index, uint32_t folder, const char *name, uint64_t place,
                               uint64_t size_bytes);
/* Derives splits and classes from the names of folders, and sorts. `source` is for messages. */
fth_status fth_image_index_finish(fth_image_index *index, const char *source);

/* The path of an image relative to the top; free() it. */
char *fth_image_index_path(const fth_image_index *index, const fth_image_entry *entry);

static inline int32_t fth_image_index_class(const fth_image_index *index, size_t number)
{
    return index->folders[index->entries[number].folder].class_index;
}

/* ---- filling an index ---- */

/* Adds the files of a folder. */
fth_status fth_image_folder_scan(const char *folder, fth_image_index *index);
/* True if there is an image in `folder` or below it. */
bool fth_image_folder_probe(const char *folder);

/* Adds the members of a plain tar in memory; offsets are relative to `bytes`. */
fth_status fth_image_archive_index(const uint8_t *bytes, size_t size_bytes, const char *source, fth_image_index *index);
/* Converts a compressed archive (.tar.gz, .tar.xz, .tar.zst, .zip) once into a plain tar in the
 * cache folder; a plain tar is used itself. free() the path. */
fth_status fth_image_archive_unpack(const char *path, const fth_stop *stop, char **plain);
/* Writes the images of any archive as a tar to `file`, which the caller publishes; skipped files
 * become empty members. `max_bytes` limits the result; 0: the limit for its kind. */
fth_status fth_image_archive_convert(const fth_archive_input *input, uint64_t max_bytes, fth_file *file);

/* Downloads `url` ("https://...#sha256=...", in its public form) once to the cache folder. free()
 * the path. */
fth_status fth_image_fetch(const char *url, const fth_stop *stop, char **path);

#endif
