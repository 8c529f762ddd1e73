/* What the files behind `farthing store` share. */
#ifndef FTH_CLI_STORE_CLI_H
#define FTH_CLI_STORE_CLI_H

#include "cli/cli.h"
#include "store/store.h"

/* An address on the command line: a store, and a key or a prefix in it ("" for the store itself).
 *
 *     s3://bucket/a/b          s3://bucket               a/b
 *     az://account/box/a/b     az://account/box          a/b
 *     https://host/a/b?q       https://host/a?q          b
 *     /data/a, file:///data/a  /data                     a
 *
 * A folder that exists is given as "its path, nothing". Slashes are taken as they are written: in a
 * bucket "a//b" and "/a" are names of their own. */
typedef struct fth_place {
    fth_store *store;
    char *key;        /* without the '/' at the end of a folder */
    char *prefix;     /* what all below it begins with: "" (the store itself) or "a/b/" */
    bool folder;      /* it is written as one: ends with '/', or is a folder that exists */
    const char *root; /* the folder the store is; NULL if it is none */
} fth_place;

fth_status fth_place_open(const char *address, const fth_store_options *options, fth_place *place);
void fth_place_release(fth_place *place);
/* "s3://bucket/a/b" again, for messages; free() it. */
char *fth_place_describe(const fth_place *place);

typedef struct fth_copy_options {
    bool recursive, verify, json;
    int parallel;
    fth_store_options store;
} fth_copy_options;

/* Copies `addresses[0 .. count - 2]` to the last one. */
fth_exit_code fth_cli_copy(const fth_command *command, const char *const *addresses, int count,
                           const fth_copy_options *options);

typedef struct fth_remove_options {
    bool recursive, yes, force, all;
    const char *confirm; /* the address again; "": not given */
    fth_store_options store;
} fth_remove_options;

/* Deletes the object at `address`, or all below it. */
fth_status fth_cli_remove(const char *address, const fth_remove_options *options);

/* ---- store_bar.c: the progress bar of a copy ---- */

/* Starts counting to `total_bytes`; draws only on a terminal. */
void fth_bar_start(uint64_t total_bytes);
void fth_bar_add(int64_t bytes); /* from any thread; negative to undo a failed attempt */
void fth_bar_stop(void);

/* ---- doctor_store.c: each leaves words for people in `found`, or fails with a message ---- */

fth_status fth_doctor_read_store(fth_store *store, char *found, size_t size);
fth_status fth_doctor_write_store(fth_store *store, char *found, size_t size);
fth_status fth_doctor_check_conditions(fth_store *store, char *found, size_t size);

#endif
