/* Preempted and lost machines: what announces it, and which machine owns the run.
 *
 * notice.c      the table of notice sources, and the thread that listens to one or several of them
 * notice_aws.c, notice_gcp.c, notice_azure.c, notice_file.c   one source each
 * identify.c    which cloud, which instance type, spot or not
 * lease.c       one machine at a time owns a run in a store
 *
 * A notice becomes a request on an fth_stop, with the time that is left as its deadline. */
#ifndef FTH_SPOT_SPOT_H
#define FTH_SPOT_SPOT_H

#include <stdatomic.h>

#include "base/base.h"
#include "store/store.h"

/* ---- where this runs ---- */

typedef struct fth_machine_identity {
    char cloud[16];    /* "aws", "gcp", "azure", or "" on one's own machine */
    char instance[64]; /* type: "g4dn.xlarge", "n1-standard-4", "Standard_NC6s_v3"; "" unknown */
    char region[64];   /* "us-east-1", "europe-west4-a" */
    char id[128];      /* of the instance; else the host's name */
    char market[16];   /* "spot", "on-demand", "" unknown */
} fth_machine_identity;

/* Asks the metadata services, all at once, for at most `timeout_s` (1). On one's own machine: cloud
 * "". Endpoints can be overridden: FARTHING_AWS_METADATA, FARTHING_GCP_METADATA,
 * FARTHING_AZURE_METADATA ("http://127.0.0.1:1338"; "off"). */
void fth_machine_identify(double timeout_s, fth_machine_identity *identity);

/* ---- notices ---- */

typedef struct fth_watch fth_watch;

/* `sources`: "none", "auto", or a list of "aws", "gcp", "azure", "file:PATH", comma-separated.
 * "auto" finds out which cloud this is in under a second, says so in the log, and watches it.
 * Signals are src/cli/signals.c's business and always on. A notice asks `stop` with its deadline
 * (AWS: its time; Azure: NotBefore; GCP: 30 s; file: 30 s, or the seconds that the file holds). A
 * rebalance recommendation is only told (fth_watch_take_news). */
fth_status fth_watch_open(const char *sources, fth_stop *stop, fth_watch **watch);
/* For tests: the pauses between two looks at a source last `pace` times as long as they should. */
fth_status fth_watch_open_paced(const char *sources, double pace, fth_stop *stop, fth_watch **watch);
fth_status fth_watch_check(const char *sources); /* is the text valid? for the options table */
/* After the state is safely stored: tells the clouds that ask for it (Azure: StartRequests). Takes
 * two seconds at most. */
void fth_watch_acknowledge(fth_watch *watch);
enum { FTH_NEWS_BYTES = 512 };
/* A piece of news that is no reason to stop ("AWS recommends rebalancing", "the metadata service
 * does not answer"); false if there is none. For the record: it has been logged. FTH_NEWS_BYTES
 * hold any. */
bool fth_watch_take_news(fth_watch *watch, char *text, size_t size);
void fth_watch_free(fth_watch *watch);

/* ---- the lease ----
 *
 * <store>/lease.json: {"owner", "host", "fence", "expires_s", "period_s", "renewed_s", "process_s",
 * "instance"}, changed by conditional writes only. The fencing number grows by one with every new
 * owner.
 *
 *     free             -> held, by the first to acquire it
 *     held             -> held, renewed every third of a period
 *                      -> free at once, when its owner releases it
 *     held by another  -> held by us, once its text has not changed for a whole period of OUR
 *                         clock; or after a moment, if our group holds it and we lead the group
 *
 * A group is of processes that train one run together and agree on which of them leads. That one
 * takes the lease from the former leader, which finds out at its next renewal if it is only cut
 * off. A process that cannot know whether others of the group lead it, since it does not reach most
 * of them, waits for the lease as any other does.
 *
 * Skewed clocks do not matter. A lease that was not renewed for a period of its owner's own clock
 * (CLOCK_BOOTTIME: sleep counts) is not to be relied on; the next renewal finds out whether it is
 * still held, or lost: then the stop is asked with FTH_STOP_FENCED. */
typedef struct fth_lease fth_lease;

typedef struct fth_lease_options {
    double period_s;      /* 0: 10 */
    const char *instance; /* told to who waits; may be NULL */
    fth_stop *stop;       /* asked when the lease is lost; also ends waiting. May be NULL */
    fth_stop *lost;       /* asked instead of `stop` when the lease is lost; NULL: `stop` is */
    const char *name;     /* of this machine, for people; NULL, "": its host's */
    const char
        *group; /* of which this process is one, as fth_lease_get_group() gave it; NULL, "": none, or the first */
    const atomic_bool *leads; /* that group, and knows it; may change while this process waits. NULL: it does not */
    /* Called about once a second while waiting, with who holds it; may be NULL. */
    void (*waiting)(void *context, const char *owner, double since_s);
    void *waiting_context;
} fth_lease_options;

/* Takes the lease, waiting for `deadline`. FTH_TIMEOUT names the owner. FTH_INTERRUPTED if stop is
 * asked meanwhile. FTH_UNSUPPORTED where the store does not enforce conditions. */
fth_status fth_lease_acquire(fth_store *store, const fth_lease_options *options, fth_deadline deadline,
                             fth_lease **lease);
int64_t fth_lease_fence(const fth_lease *lease);
enum { FTH_LEASE_GROUP_BYTES = 17 };
void fth_lease_get_group(const fth_lease *lease, char group[FTH_LEASE_GROUP_BYTES]);
/* The state of the one before: when it was last seen alive (wall seconds, 0: there was none or it
 * left in order). */
double fth_lease_previous_seen_s(const fth_lease *lease);
/* How long its process had run by then, on its own steady clock; 0: not known. */
double fth_lease_previous_process_s(const fth_lease *lease);
/* To be called right before every write: FTH_OK if the lease is certainly held for at least another
 * `margin_s`; renews it in place if it is not; FTH_PEER_LOST if another owner has it. */
fth_status fth_lease_guard(fth_lease *lease, double margin_s);
/* In order; then _free. A guard that is asked afterwards says FTH_PEER_LOST. */
fth_status fth_lease_release(fth_lease *lease);
void fth_lease_free(fth_lease *lease);

#endif
