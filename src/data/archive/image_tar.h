/* Writes the tar files that sets are packed and converted into. */
#ifndef FTH_DATA_IMAGE_TAR_H
#define FTH_DATA_IMAGE_TAR_H

#include "data/data_internal.h"

typedef struct fth_tar_writer fth_tar_writer;

/* Receives the bytes of a tar. */
typedef struct fth_tar_output {
    fth_status (*write)(void *context, const void *bytes, size_t size_bytes);
    void *context; /* outlives the writer */
    bool gzip;     /* compressed, with reproducible bytes */
} fth_tar_output;
/* `file` outlives the writer and is published by its owner. */
fth_tar_output fth_tar_output_file(fth_file *file);

fth_status fth_tar_writer_create(const fth_tar_output *output, fth_tar_writer **writer);
fth_status fth_tar_writer_add(fth_tar_writer *writer, const char *path, const void *bytes, size_t size_bytes);
fth_status fth_tar_writer_finish(fth_tar_writer *writer);
void fth_tar_writer_free(fth_tar_writer *writer);

#endif
