/* A job's side of the batch cache:
 * batches://host:port/NAME[?share=none|order|all][&form=auto|encoded|decoded|batches].
 *
 * Opened, it is a data set whose loader takes finished batches, or samples that are finished here,
 * from the memory of this machine. What is not there yet is waited for; when the coordinator or the
 * agent has gone, it is looked for again, and meanwhile the job reads the data itself, the same
 * samples in the same order with the same numbers, if it can reach them. Nothing is ever skipped or
 * repeated: which batch comes next is the job's own count. */
#ifndef FTH_BATCHES_CLIENT_H
#define FTH_BATCHES_CLIENT_H

#include "batches/job.h"

/* True for what begins like one, and for a coordinator's URL with a data set's name,
 * http://host:port/NAME: one with a port, and of a single part without an ending, as archives have
 * one. */
bool fth_batches_is_address(const char *text);

/* For fth_dataset_options.schemes. */
extern const fth_dataset_scheme *const fth_batches_schemes[];

typedef struct fth_batches_address {
    char *host, *name;          /* free() them, as what follows */
    char *pinned_key, *ca_file; /* of batches+tls://: &pin=sha256//..., &ca=FILE; or NULL */
    int port;
    bool tls; /* batches+tls:// */
    fth_sharing sharing;
    fth_cache_format format;
    int64_t rotation; /* of a job that is resumed; -1: not yet chosen */
} fth_batches_address;
fth_status fth_batches_address_parse(const char *text, fth_batches_address *address);
void fth_batches_address_release(fth_batches_address *address);
/* The coordinator's URL, "http://host:port"; free() it. */
char *fth_batches_address_url(const fth_batches_address *address);

/* What is settled once for a job, so that a process that resumes it goes on with the same numbers:
 * given as form= and rotation= of the address. */
typedef struct fth_batches_choice {
    fth_cache_format format;
    int64_t rotation;
    fth_sharing sharing;
} fth_batches_choice;
/* Has the coordinator choose now for a job with such a loader of training samples, where the
 * address leaves it open. FTH_OK at once if the data set is no such one. */
fth_status fth_batches_settle(const fth_dataset *dataset, const fth_loader_options *options);
/* False if the data set is no such one, or nothing is settled yet. */
bool fth_batches_get_choice(const fth_dataset *dataset, fth_batches_choice *choice);
/* The address with a choice; free() it. NULL: no memory. */
char *fth_batches_address_with(const char *address, fth_cache_format format, int64_t rotation);

/* What a job has had from the cache so far, all its processes together. */
typedef struct fth_batches_figures {
    uint64_t hits, waits, misses, bytes, corrupt, direct; /* direct: batches or samples that it read itself */
    double wait_s, fetch_s, decode_s;
    uint64_t decoded_for_it, decoded_by_others; /* images */
    double usd;                                 /* its share of functions and cache */
    fth_cache_format format;
    char why[256]; /* that form was chosen */
} fth_batches_figures;
/* False if the data set is no such one. */
bool fth_batches_get_figures(const fth_dataset *dataset, fth_batches_figures *figures);

/* ---- for programs that have a job of several processes, and several batches out at once (reader.c)
 * ---- */

/* How a job was registered, once a loader is open. False if the data set is not of a batch cache,
 * or nothing is registered. */
typedef struct fth_batches_registration {
    uint64_t job; /* 0: no coordinator could be reached */
    fth_job_spec spec;
} fth_batches_registration;
bool fth_batches_get_registration(const fth_dataset *dataset, fth_batches_registration *registration);
/* The job as text, for other processes of it, which then need nobody to begin; free() it. NULL:
 * nothing is registered. */
char *fth_batches_save_job(const fth_dataset *dataset);
/* Opens the data set of a job with what fth_batches_save_job() said (NULL: as fth_dataset_open()
 * does). A loader with the same options has the same job and numbers, also while no coordinator
 * answers. */
fth_status fth_batches_open_job(const char *address, const char *saved, const fth_dataset_options *options,
                                fth_dataset **dataset);
/* Keeps a batch that a loader of the set has just given as it is, while others are taken. False: it
 * does not lie in shared memory, or too many are kept; copy it. Let go by any thread, before the
 * data set is freed. */
bool fth_batches_keep(const fth_dataset *dataset, const fth_batch *batch, uint64_t *lease);
void fth_batches_let_go(const fth_dataset *dataset, uint64_t lease);
/* In a process that was forked: closes the descriptors that the data set has, without a message to
 * the coordinator. Nothing else may be done with it there. */
void fth_batches_abandon(const fth_dataset *dataset);

/* Before a run: reaches the coordinator, with this job's key, the data set and the cache within
 * `deadline`: FTH_OK, or the first thing that cannot be reached, and what to do. */
fth_status fth_batches_check(const char *address, fth_deadline deadline);
/* The same for the data itself, which a job reads when the cache is away. */
fth_status fth_batches_check_direct(const char *address, fth_deadline deadline);

#endif
