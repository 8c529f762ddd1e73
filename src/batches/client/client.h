/* A job's side of the batch cache:
 * batches://host:port/NAME[?share=none|order|all][&form=auto|encoded|decoded|batches].
 *
 * Such an address opens as a data set whose loader takes finished batches, or samples that it
 * finishes itself, from this machine's shared memory. It waits for items that are not there yet.
 * While the coordinator or the agent is gone, it reconnects in the background and reads the data
 * itself, if it can reach it: the same samples in the same order with the same numbers. No batch is
 * skipped or repeated, because the job itself counts which comes next. */
#ifndef FTH_BATCHES_CLIENT_H
#define FTH_BATCHES_CLIENT_H

#include "batches/job.h"

/* True for batches:// addresses, and for a coordinator's URL with the name of a data set:
 * http://host:port/NAME. It must have a port and one path component without a dot, since archives
 * have an extension. */
bool fth_batches_is_address(const char *text);

/* For fth_dataset_options.schemes. */
extern const fth_dataset_scheme *const fth_batches_schemes[];

typedef struct fth_batches_address {
    char *host, *name;          /* free() them, as those below */
    char *pinned_key, *ca_file; /* of batches+tls://: &pin=sha256//..., &ca=FILE; or NULL */
    int port;
    bool tls; /* batches+tls:// */
    fth_sharing sharing;
    fth_cache_format format;
    int64_t rotation; /* of a resumed job; -1: not chosen yet */
} fth_batches_address;
fth_status fth_batches_address_parse(const char *text, fth_batches_address *address);
void fth_batches_address_release(fth_batches_address *address);
/* The coordinator's URL, "http://host:port"; free() it. */
char *fth_batches_address_url(const fth_batches_address *address);

/* Chosen once for a job, so that a process that resumes it gets the same numbers: form= and
 * rotation= of the address. */
typedef struct fth_batches_choice {
    fth_cache_format format;
    int64_t rotation;
    fth_sharing sharing;
} fth_batches_choice;
/* Has the coordinator choose now, for a job with such a loader of training samples, what the
 * address leaves open. Returns FTH_OK at once if the data set is not of a batch cache. */
fth_status fth_batches_settle(const fth_dataset *dataset, const fth_loader_options *options);
/* False if the data set is not of a batch cache, or nothing is chosen yet. */
bool fth_batches_get_choice(const fth_dataset *dataset, fth_batches_choice *choice);
/* The address with a choice appended; free() it. NULL: no memory. */
char *fth_batches_address_with(const char *address, fth_cache_format format, int64_t rotation);

/* Figures of a job, over all its processes. */
typedef struct fth_batches_figures {
    uint64_t hits, waits, misses, bytes, corrupt, direct; /* direct: batches or samples that the job read itself */
    double wait_s, fetch_s, decode_s;
    uint64_t decoded_for_it, decoded_by_others; /* images */
    double usd;                                 /* its share of the cost of functions and cache */
    fth_cache_format format;
    char why[256]; /* why the cache format was chosen */
} fth_batches_figures;
/* False if the data set is not of a batch cache. */
bool fth_batches_get_figures(const fth_dataset *dataset, fth_batches_figures *figures);

/* ---- for programs whose job has several processes, or holds several batches at once (reader.c)
 * ---- */

/* The job's registration, once a loader is open. False if the data set is not of a batch cache, or
 * nothing is registered. */
typedef struct fth_batches_registration {
    uint64_t job; /* 0: no coordinator could be reached */
    fth_job_spec spec;
} fth_batches_registration;
bool fth_batches_get_registration(const fth_dataset *dataset, fth_batches_registration *registration);
/* The job as text, with which other processes of it can begin without a coordinator; free() it.
 * NULL: nothing is registered. */
char *fth_batches_save_job(const fth_dataset *dataset);
/* Opens the data set of a job from the text of fth_batches_save_job() (NULL: as fth_dataset_open()
 * does). A loader with the same options has the same job and numbers, even while no coordinator
 * answers. */
fth_status fth_batches_open_job(const char *address, const char *saved, const fth_dataset_options *options,
                                fth_dataset **dataset);
/* Keeps the last batch of a loader of this set unchanged while others are taken. False: it is not
 * in shared memory, or too many are kept; copy it. Any thread may let go of it, before the data set
 * is freed. */
bool fth_batches_keep(const fth_dataset *dataset, const fth_batch *batch, uint64_t *lease);
void fth_batches_let_go(const fth_dataset *dataset, uint64_t lease);
/* In a forked process: closes the data set's descriptors without telling the coordinator. Nothing
 * else may be done with it there. */
void fth_batches_abandon(const fth_dataset *dataset);

/* Before a run: checks within `deadline` that coordinator, data set and cache can be reached with
 * this job's key. FTH_OK, or the first that cannot be reached and what to do. */
fth_status fth_batches_check(const char *address, fth_deadline deadline);
/* The same for the data itself, which a job reads when the cache is away. */
fth_status fth_batches_check_direct(const char *address, fth_deadline deadline);

#endif
