/* weights.c finds the files of an address and owns what was opened, weights_formats.c recognizes
 * and reads a file, weights_names.c gives tensors the names that models know. */
#ifndef FTH_TENSOR_WEIGHTS_INTERNAL_H
#define FTH_TENSOR_WEIGHTS_INTERNAL_H

#include "tensor/exported_archive.h"
#include "tensor/pth_internal.h"
#include "tensor/safetensors_internal.h"
#include "tensor/weights.h"

enum { FTH_WEIGHTS_MAX_NAME = 1000 };

struct fth_weights {
    const void *mapping; /* NULL where the caller owns the bytes */
    size_t mapping_size_bytes;
    char *origin;          /* what errors call it */
    char *folder, *config; /* where a folder was opened: its path, and its config.json or "" */
    const char *format;
    fth_safetensors *safetensors; /* one of the four */
    fth_pth *pth;
    fth_exported_archive *exported;
    fth_weights **shards; /* (shard_count) the files of an index, whose views these are */
    size_t shard_count;
    fth_pth_place place; /* in a .pth file */
    char *names;         /* one after another; views have theirs here */
    char *prefix;        /* taken off every name */
    char *markers;       /* taken out of names: "_fsdp_wrapped_module." */
    char *skipped;       /* classes of objects that were passed over */
    size_t left_out;     /* tensors beside the part that was asked for, and counters of averages */
    fth_tensor_view *views;
    const fth_tensor_view **by_name; /* sorted, for lookups */
    size_t count;
};

/* ---- weights_formats.c ---- */

/* Reads a file's tensors in whatever format its content shows: format, views, names, place. The
 * bytes outlive the weights; `origin` names them in errors, `key` may be "". */
fth_status fth_weights_read(fth_weights *weights, const unsigned char *bytes, size_t size_bytes, const char *origin,
                            const char *key);

/* ---- weights_names.c ---- */

/* Copies the names of all views, because they are rewritten. */
fth_status fth_weights_copy_names(fth_weights *weights);
/* The part of a file that has tensors' names and no dictionaries: those that begin with `key`. */
fth_status fth_weights_choose_part(fth_weights *weights, const char *origin, const char *key);
/* Keeps the chosen part, and takes what wrappers added off and out of the names. */
void fth_weights_unwrap_names(fth_weights *weights);
/* Makes names findable; fails if two tensors share one. Call it again after names changed. */
fth_status fth_weights_sort_names(fth_weights *weights, const char *origin);

#endif
