/* The index of a set of image files (image_index.c), and the places that fill it: folders
 * (image_folder.c), archives and downloads (image_archive.c). */
#ifndef FTH_DATA_IMAGE_INDEX_H
#define FTH_DATA_IMAGE_INDEX_H

#include "data/archive/archive_reader.h"
#include "data/data_internal.h"
#include "data/source/skipped_files.h"
#include "data/text/text_block.h"

/* All names are in one text, a file knows its folder, a folder its class: 24 bytes and a file name
 * for each image. */
typedef struct fth_image_entry {
    uint64_t place;      /* the source's own: the offset in a tar; 0 in a folder */
    uint32_t size_bytes; /* 0 in a folder */
    uint32_t name;       /* where its file name begins in `names` */
    uint32_t folder;
} fth_image_entry;

typedef struct fth_image_folder {
    uint32_t path;       /* where it begins in `names`; relative to the top */
    int32_t class_index; /* -1: its images are not part of the set */
    uint32_t count;      /* images in it */
    uint8_t split;
} fth_image_folder;

/* Files that are there and cannot be used: how many, and one of them, shortened. */
typedef struct fth_left_out {
    int64_t count;
    char example[160];
} fth_left_out;
void fth_left_out_add(fth_left_out *left_out, const char *path, int64_t count);
/* Warns, if there are any: "SOURCE: left out 2 images WHY: PATH, ...". */
void fth_left_out_report(const fth_left_out *left_out, const char *source, const char *noun, const char *why);

typedef struct fth_image_index {
    fth_text_block names;
    fth_image_folder *folders;
    size_t folder_count, folder_capacity;
    fth_image_entry *entries; /* by split, class, folder and name */
    size_t count, capacity;
    uint32_t *table; /* folders by the hash of their path: 1 + folder, 0 where free */
    size_t table_size;
    const fth_stop *stop;        /* while it is being made: ends that; NULL: nothing does */
    int64_t first[2], counts[2]; /* entries of each split */
    size_t root_length;          /* bytes of every path before the folders that matter */
    bool has_splits;             /* it has train/ */
    int classes;
    char **class_names;    /* sorted; one allocation with their text */
    fth_left_out too_deep; /* folders */
    fth_skipped_files skipped;
} fth_image_index;

void fth_image_index_free(fth_image_index *index);
/* Finds or adds the folder whose path, relative to the top and without a slash at its end, is
 * `path`; in an archive it may be absolute. Hidden ones (a part begins with '.', or is __MACOSX)
 * give UINT32_MAX. */
fth_status fth_image_index_add_folder(fth_image_index *index, const char *path, size_t length, uint32_t *folder);
/* Adds a file. Hidden ones and companions are ignored; others that are neither JPEG nor PNG are
 * noted as skipped. */
fth_status fth_image_index_add(fth_image_index *index, uint32_t folder, const char *name, uint64_t place,
                               uint64_t size_bytes);
/* Tells splits and classes by the folders' names and sorts. `source` is for messages. */
fth_status fth_image_index_finish(fth_image_index *index, const char *source);

/* The path of an image relative to the top; free() it. */
char *fth_image_index_path(const fth_image_index *index, const fth_image_entry *entry);

static inline int32_t fth_image_index_class(const fth_image_index *index, size_t number)
{
    return index->folders[index->entries[number].folder].class_index;
}

/* ---- where images lie ---- */

/* Walks a folder. */
fth_status fth_image_folder_scan(const char *folder, fth_image_index *index);
/* True as soon as one image is found in `folder` or below it. */
bool fth_image_folder_probe(const char *folder);

/* Indexes a plain tar in memory: offsets are from `bytes`. */
fth_status fth_image_archive_index(const uint8_t *bytes, size_t size_bytes, const char *source, fth_image_index *index);
/* Compressed archives (.tar.gz, .tar.xz, .tar.zst, .zip) are turned once into a plain tar in the
 * cache folder; a plain one is itself. free() the path. */
fth_status fth_image_archive_unpack(const char *path, const fth_stop *stop, char **plain);
/* The images of any archive, one tar entry each, and the names of its skipped files, as empty
 * entries, into `file`, which the caller publishes. `max_bytes`: of the result; 0: what images of
 * such an archive can have. */
fth_status fth_image_archive_convert(const fth_archive_input *input, uint64_t max_bytes, fth_file *file);

/* Downloads `url` ("https://...#sha256=...", in its public form) once into the cache folder. free()
 * the path. */
fth_status fth_image_fetch(const char *url, const fth_stop *stop, char **path);

#endif
