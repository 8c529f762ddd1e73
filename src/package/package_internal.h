/* What the files of src/package share. */
#ifndef FTH_PACKAGE_PACKAGE_INTERNAL_H
#define FTH_PACKAGE_PACKAGE_INTERNAL_H

#include <archive.h>

#include "package/package.h"

/* ---- closure.c: the libraries of a program ---- */

typedef struct fth_shared_library {
    char *name; /* as programs name it: "libz.so.1" */
    char *path;
} fth_shared_library;

typedef struct fth_closure {
    fth_shared_library *libraries;
    size_t count, capacity;
    char *loader;             /* path of ld.so */
    const char *architecture; /* in image terms: "amd64" */
} fth_closure;

/* Resolves libraries with this machine's loader, without running the program. */
fth_status fth_closure_find(const char *program, fth_closure *closure);
void fth_closure_release(fth_closure *closure);

/* ---- contents.c: the files of a package ---- */

typedef struct fth_package_file {
    char *name;        /* within the package */
    unsigned mode;     /* 0644, 0755 */
    const void *bytes; /* mapped */
    size_t size_bytes;
} fth_package_file;

typedef struct fth_package_contents {
    fth_package_file *files; /* sorted by name */
    size_t count, capacity;
    const char *architecture;
} fth_package_contents;

fth_status fth_package_collect(const fth_package_options *options, fth_package_contents *contents);
void fth_package_contents_release(fth_package_contents *contents);
uint64_t fth_package_content_bytes(const fth_package_contents *contents);

/* ---- archive_output.c: archives, through libarchive ---- */

typedef struct fth_archive_output fth_archive_output;

/* The archive's target: a file that the caller publishes, or memory. */
typedef struct fth_archive_target {
    fth_file *file;
    char *bytes; /* freed by the caller */
    size_t size_bytes, capacity;
} fth_archive_target;

typedef enum fth_archive_format { FTH_ARCHIVE_TAR, FTH_ARCHIVE_ZIP } fth_archive_format;

fth_status fth_archive_output_open(fth_archive_format format, fth_archive_target *target, fth_archive_output **output);
fth_status fth_archive_output_add(fth_archive_output *output, const char *name, unsigned mode, const void *bytes,
                                  size_t size_bytes);
fth_status fth_archive_output_add_folder(fth_archive_output *output, const char *name, unsigned mode);
fth_status fth_archive_output_finish(fth_archive_output *output);
void fth_archive_output_free(fth_archive_output *output);

#endif
