/* What the files of src/spot share: the table of notice sources, and the listeners that run them.
 *
 *     fth_watch_open      a listener per source (for "auto": once it is known where this runs),
 *                         each with a thread
 *     listening           source->listen asks, pauses, asks again
 *     notice              fth_listener_notice: the stop is asked; the thread ends
 *     fth_watch_free      `closing` is set; pauses and requests end at once; threads are joined */
#ifndef FTH_SPOT_SPOT_INTERNAL_H
#define FTH_SPOT_SPOT_INTERNAL_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>

#include "http/http.h"
#include "spot/spot.h"

/* ---- metadata services (metadata.c) ---- */

typedef enum fth_cloud { FTH_CLOUD_AWS, FTH_CLOUD_GCP, FTH_CLOUD_AZURE, FTH_CLOUD_COUNT } fth_cloud;

extern const char *const fth_cloud_names[FTH_CLOUD_COUNT]; /* "aws", ... */

/* A client of one metadata service; of one thread. */
typedef struct fth_metadata {
    fth_cloud cloud;
    char endpoint[256];                  /* "http://169.254.169.254"; "": switched off */
    const atomic_bool *closing, *enough; /* each ends requests; may be NULL */
    fth_http_client *client;
    /* AWS */
    char token[256]; /* "": none */
    double token_until_s;
    bool refused; /* it is there, gives no token and insists on one */
} fth_metadata;

fth_status fth_metadata_open(fth_cloud cloud, const atomic_bool *closing, fth_metadata *metadata);
void fth_metadata_close(fth_metadata *metadata);
/* GET of `path` ("/latest/meta-data/..."), with the headers that this cloud wants, at most
 * `timeout_s`. Any answer is FTH_OK; bodies over 64 KiB are not. An AWS token is fetched, renewed
 * before it ends and after a 401. */
fth_status fth_metadata_get(fth_metadata *metadata, const char *path, double timeout_s, fth_http_response *response);
fth_status fth_metadata_post(fth_metadata *metadata, const char *path, const char *json, double timeout_s,
                             fth_http_response *response);
/* The body without white space at its ends, in place; "" if there is none. */
const char *fth_metadata_text(fth_http_response *response);
/* Wall seconds by the service's own clock, where it says so (Date), else by ours: times in its
 * answers are to be compared with this one, since our clock may be wrong. */
double fth_metadata_now(const fth_http_response *response);
/* "2017-09-18T08:22:00Z" or "Mon, 19 Sep 2016 18:29:47 GMT" as wall seconds; false if it is
 * neither. */
bool fth_parse_time(const char *text, double *wall_s);

/* ---- sources ---- */

typedef struct fth_listener fth_listener;

/* One way to learn that this machine will vanish. A cloud may have several rows: each listens in a
 * thread. */
typedef struct fth_notice_source {
    const char *name;                              /* "aws"; what stands before the ':' where there is an argument */
    bool has_argument;                             /* "file:PATH" */
    fth_cloud cloud;                               /* whose service is asked; FTH_CLOUD_COUNT: none */
    bool second;                                   /* a further thread of the source before it, which speaks for it */
    fth_status (*prepare)(fth_listener *listener); /* optional; in the thread that opens the watch */
    void (*listen)(fth_listener *listener);        /* returns after a notice, or when the watch closes */
    void (*acknowledge)(fth_listener *listener);   /* optional; after a notice and once the state is safe */
} fth_notice_source;

/* Every source; a new one is its file, notice_NAME.c, and its row here. */
#define FTH_NOTICE_SOURCES(ROW)                                                                                        \
    ROW(aws)                                                                                                           \
    ROW(gcp)                                                                                                           \
    ROW(gcp_maintenance)                                                                                               \
    ROW(azure)                                                                                                         \
    ROW(file)

#define FTH_DECLARE(name) extern const fth_notice_source fth_notice_##name;
FTH_NOTICE_SOURCES(FTH_DECLARE)
#undef FTH_DECLARE

/* Any change of these is a notice. */
typedef struct fth_file_facts {
    bool exists;
    int64_t size_bytes, inode, seconds, nanoseconds;
} fth_file_facts;

struct fth_listener {
    const fth_notice_source *source;
    fth_watch *watch;
    char *argument;
    pthread_t thread;
    bool running;
    fth_metadata metadata; /* the listening thread's */
    int failures;          /* requests in a row that were not answered */
    bool told_failure;
    char event[256]; /* what to acknowledge; set before the notice, "" otherwise */
    bool noticed;
    fth_file_facts seen; /* of a file, when last looked at */
};

bool fth_listener_closing(const fth_listener *listener);
/* Waits; false when the watch closes. */
bool fth_listener_pause(fth_listener *listener, double seconds);
/* The same between two looks at the source, at the watch's pace. */
bool fth_listener_pause_to_look(fth_listener *listener, double seconds);
void fth_listener_notice(fth_listener *listener, double deadline_s, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void fth_listener_news(fth_listener *listener, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Counts answers and failures (the calling thread's error message says which); makes news of a
 * service that has not answered three times in a row, and of its return. */
void fth_listener_answered(fth_listener *listener, bool answered);

/* What identify.c found out beyond fth_machine_identity. */
typedef struct fth_identification {
    fth_machine_identity identity;
    char name[128]; /* of an Azure VM */
    bool no_token;  /* AWS, but no token reaches us: the hop limit */
} fth_identification;
void fth_identify(double timeout_s, const atomic_bool *closing, fth_identification *found);
/* The part of one cloud alone, with a client that is open; false: this is not that cloud. */
bool fth_identify_with(fth_metadata *metadata, double timeout_s, fth_identification *found);

extern const char fth_hop_limit_advice[];

#endif
