/* A job's side of the batch cache: batches://host:port/NAME[?share=none|order|all][&form=auto|encoded|decoded|batches].
 *
 * Opened, it is a data set whose loader takes finished batches, or samples that are finished here, from the memory of this machine. What is not
 * there yet is waited for; when the coordinator or the agent has gone, it is looked for again, and meanwhile the
 * job reads the data itself, the same samples in the same order with the same numbers, if it can reach them. Nothing is ever skipped or
 * repeated: which batch comes next is the job's own count. */
#ifndef FTH_BATCHES_CLIENT_H
#define FTH_BATCHES_CLIENT_H

#include "batches/job.h"

/* For fth_dataset_options.schemes. */
extern const fth_dataset_scheme fth_batches_scheme;

typedef struct fth_batches_address {
    char *host, *name; /* free() them */
    int port;
    bool tls; /* batches+tls:// */
    fth_sharing sharing;
    fth_form form;
    int64_t rotation; /* of a job that is resumed; -1: not yet chosen */
} fth_batches_address;
fth_status fth_batches_address_parse(const char *text, fth_batches_address *address);
void fth_batches_address_release(fth_batches_address *address);

/* What a job has had from the cache so far, all its processes together. */
typedef struct fth_batches_figures {
    uint64_t hits, waits, misses, bytes, corrupt, direct; /* direct: batches or samples that it read itself */
    double wait_s, fetch_s, decode_s;
    uint64_t decoded_for_it, decoded_by_others; /* images */
    double usd;                                 /* its share of functions and cache */
    fth_form form;
    char why[256]; /* that form was chosen */
} fth_batches_figures;
/* False if the data set is no such one. */
bool fth_batches_get_figures(const fth_dataset *dataset, fth_batches_figures *figures);

/* Reaches coordinator, cache and data within `deadline`: FTH_OK, or the first thing that cannot be reached, and what to do. */
fth_status fth_batches_check(const char *address, fth_deadline deadline);

#endif
