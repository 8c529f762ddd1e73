/* Finding the weights that the user named: a file, a run, a folder, or an object in a store. */
#ifndef FTH_CLI_WEIGHTS_H
#define FTH_CLI_WEIGHTS_H

#include "cli/cli.h"
#include "store/store.h"

typedef struct fth_cli_weights {
    char *path; /* a file on this machine, with its key: what fth_weights_open() takes */
    char *name; /* for messages: the path, or the address that it was fetched from */
    char *run;  /* the run it belongs to, for fth_cli_read_run(); NULL: unknown */
} fth_cli_weights;

/* `text` is a file, as it is; a run (id, folder or address in a store) or a folder with one model
 * file in it, as its model; or the address of a file in a store. `store` may be NULL. Release the
 * result. */
fth_status fth_cli_find_weights(const char *text, const char *runs_folder, const fth_store_options *store,
                                fth_cli_weights *weights);
void fth_cli_weights_release(fth_cli_weights *weights);

#endif
