/* The inside of the parameter server, shared by
 *
 *     start.c      opening, going on, stopping
 *     apply.c      the thread that owns the model: registers, judges, logs, applies
 *     steps.c      what a step is made of, and the log again
 *     keep.c       checkpoints beside it, and going on from them
 *     pull.c       immutable copies for readers, and who waits for one
 *     service.c    the routes
 *     intake.c     threads that bring bodies into the log's file and check them
 *     queue.c      what waits for a thread
 *     metrics.c    what is counted
 *     validate.c   accuracy, in a thread of its own
 *     events.c     the run record
 *
 * One mutex covers what HTTP threads and the applying thread share: queue, workers, waiting readers, the newest copy.
 * It is held for moments only, never while numbers are computed or bytes written. */
#ifndef FTH_PARAMETERS_PARAMETERS_INTERNAL_H
#define FTH_PARAMETERS_PARAMETERS_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "checkpoint/checkpoint.h"
#include "http/host.h"
#include "http/range.h"
#include "http/server.h"
#include "http/signature.h"
#include "parameters/gradient.h"
#include "parameters/local.h"
#include "parameters/log.h"
#include "parameters/parameters.h"
#include "parameters/workers.h"
#include "train/service.h"
#include "train/snapshot.h"
#include "train/update_guard.h"
#include "train/window.h"

/* ---- metrics ---- */

enum { FTH_STALENESS_BUCKETS = 12 };

typedef struct fth_parameters_metrics {
    atomic_uint_fast64_t refused[FTH_REFUSALS];
    atomic_uint_fast64_t signatures[FTH_SIGNATURE_RESULTS]; /* by fth_signature_result */
    atomic_uint_fast64_t staleness[FTH_STALENESS_BUCKETS + 1], staleness_sum, staleness_max;
    atomic_uint_fast64_t received_bytes, sent_bytes, samples, applied, duplicates, expired, clipped, void_steps;
    atomic_uint_fast64_t apply_ns;
    atomic_int_fast64_t checkpoint_version;
    atomic_uint_fast64_t log_bytes;
} fth_parameters_metrics;

extern const int64_t fth_staleness_bounds[FTH_STALENESS_BUCKETS];
void fth_metrics_count_staleness(fth_parameters_metrics *metrics, int64_t staleness);
/* Prometheus' text; free() it. */
char *fth_metrics_format(fth_parameters *server);

/* ---- copies for readers ---- */

typedef struct fth_copy {
    atomic_int references;
    atomic_int *alive; /* how many there are; the server's */
    int fd;            /* in memory, never written again */
    int64_t version;
    uint64_t header_bytes, size_bytes;
} fth_copy;

void fth_copy_unref(fth_copy *copy); /* NULL is fine */

/* What a reader asked for. */
typedef struct fth_pull {
    fth_exchange *exchange;
    char worker[FTH_MAX_WORKER_NAME + 1]; /* or "" */
    int64_t since;                        /* -1: any version */
    double until_s;
    bool has_range, numbers;
    bool local; /* only where it is */
    fth_range range;
    uint64_t offset, count; /* numbers */
    int64_t if_match;       /* -1: none */
    int64_t if_range;       /* the version that the range is for; -1: any, -2: none there is */
    struct fth_pull *next;
} fth_pull;

/* ---- what the applying thread does ---- */

typedef enum fth_item_kind {
    FTH_ITEM_GRADIENT,
    FTH_ITEM_REGISTER,
    FTH_ITEM_UNREGISTER,
    FTH_ITEM_CHECKPOINT
} fth_item_kind;

typedef struct fth_item {
    fth_item_kind kind;
    fth_exchange *exchange;
    fth_gradient gradient;
    const void *body;
    size_t body_bytes;
    fth_local_place place; /* of the body, where it came in a worker's memory: process 0 if not */
    uint64_t local_bytes;  /* that count for it in the server's */
    fth_body place_in_log; /* where it is, if it is there already */
    char *own_body;        /* or its copy in memory; goes back to the server's spare ones */
    float seen;            /* that no number of it is larger; INFINITY: not known */
    char worker[FTH_MAX_WORKER_NAME + 1], instance[FTH_MAX_WORKER_NAME + 1], access[FTH_MAX_ACCESS_KEY + 1];
    fth_role role;
    fth_signed who;
    struct fth_item *next;
} fth_item;

typedef struct fth_queue {
    fth_item *first, **last;
} fth_queue;
void fth_queue_init(fth_queue *queue);
void fth_queue_put(fth_queue *queue, fth_item *item);
fth_item *fth_queue_take(fth_queue *queue); /* or NULL */
void fth_item_free(fth_parameters *server, fth_item *item);

/* What came of training since the last line in the record. */
typedef struct fth_server_line {
    double loss;              /* times samples */
    int64_t samples, correct; /* of those that said */
    int64_t loss_samples, correct_samples;
    int64_t staleness, pushes;
    double began_s;
} fth_server_line;

/* Gradients that were refused for their numbers, since this process began; the rest is of the last one. */
typedef struct fth_unfit_news {
    int64_t count, version;
    double at_s;
    char worker[FTH_MAX_WORKER_NAME + 1], why[FTH_MAX_REFUSAL];
} fth_unfit_news;

struct fth_parameters {
    fth_parameters_options options;
    const fth_train_options *train;
    int channels, height, width, classes;
    char input[48];
    fth_normalization normalization; /* of the workers' images; 0 channels: unknown */
    int64_t epoch_samples;
    fth_device *device;
    fth_engine *engine;
    fth_update_guard *guard;
    fth_layout *layout;
    fth_vectors vectors;
    fth_dataset *dataset; /* or NULL */
    fth_keys *keys;       /* or NULL */
    fth_hosts *hosts;
    struct fth_rates *rates; /* or NULL */
    fth_server *http;
    uint64_t max_body_bytes;

    char *state_folder;
    fth_store *folder; /* the state folder, where checkpoints are */
    fth_store *store;  /* further copies of them; or NULL */
    fth_wal *wal;      /* NULL with FTH_DURABILITY_CHECKPOINT */
    fth_record *record;
    pthread_mutex_t record_mutex;
    bool resumed;

    /* The applying thread's own. */
    atomic_int_fast64_t version;
    int64_t samples;       /* of all versions */
    double apply_before_s; /* and elapsed_before_s: by processes before this one */
    double elapsed_before_s;
    double started_s;
    bool step_averaged;     /* by samples */
    int64_t step_gradients; /* that the step being made has */
    int64_t step_samples, step_buffer_samples;
    double step_largest, step_largest_buffer; /* no number of their sums is larger */
    double log_clip;            /* what the log says that gradients are clipped to; below 0: nothing yet */
    float *buffer_sum;          /* of the step being made, by samples */
    fth_gradient_piece *pieces; /* as many as there are trained parameters */
    int64_t updates_per_epoch;  /* 0: unknown */
    int64_t end_samples;        /* that end the training; 0: they do not */
    double gathering_since_s;   /* that a first step waits for sync:N's workers; 0: it does not */
    bool gathered;              /* it need not wait any more */
    _Atomic double progress;
    fth_server_line line;

    pthread_mutex_t mutex;  /* of what follows */
    pthread_cond_t work;    /* for the applying thread */
    pthread_cond_t arrived; /* for the checking threads */
    pthread_cond_t changed; /* for whoever waits for a copy, a version, a failure */
    fth_queue queue, unchecked;
    fth_queue deferred; /* gradients that would make others' too old (bounded) */
    bool recheck;       /* something changed that deferred ones or the step wait for */
    fth_pull *pulls;
    bool copy_wanted;
    double short_since_s; /* that a copy is wanted and there is no room for one; 0: it is not so */
    fth_copy *copy;       /* the newest */
    fth_region region;    /* for workers of this machine; made when one asks */
    fth_workers *workers;
    bool stopping, all_checked, applying_ended;
    fth_status failure;
    char failure_message[512];
    fth_unfit_news unfit;
    struct {
        fth_window window;
        int64_t samples; /* of all versions, as of the last gradient */
        double at_s;     /* of the last gradient */
    } live;              /* what a live line shows */
    struct {
        bool known;
        int64_t version;
        double accuracy, loss;
    } validation;

    char *spare_bodies[2]; /* max_body_bytes each */
    atomic_uint_fast64_t local_bytes;

    atomic_int copies_alive;
    fth_parameters_metrics metrics;

    /* Checkpoints, see keep.c. */
    pthread_t saver;
    bool saver_running, saver_ends; /* the latter by the mutex, as `saving` */
    pthread_cond_t saver_work;
    struct fth_saving *saving; /* handed to the saver; NULL: it is idle */
    fth_snapshot *snapshot;    /* what it saves */
    int64_t saved_version;     /* of the newest whole checkpoint, or the one being saved */
    double saved_at_s;
    bool save_asked;

    pthread_t applier, checkers[2], validator;
    int checkers_running;
    bool applier_running, validator_running;
    fth_stop validation_stop;
};

/* apply.c */
void *fth_parameters_apply(void *server);
/* Nothing is taken from now on, for the reason that the error message says. From any thread. */
void fth_parameters_fail(fth_parameters *server, fth_status status);

/* Counts a gradient that was refused for its numbers against its worker, and says so. From any thread. */
void fth_parameters_note_unfit(fth_parameters *server, const fth_item *item, const char *why);

/* steps.c; from the applying thread */
/* Looks whether sync:N has waited long enough for workers that never came. */
void fth_step_look_for_workers(fth_parameters *server);
double fth_parameters_rate(const fth_parameters *server);
/* Sets how much of the training is done. */
void fth_step_note_progress(fth_parameters *server);
/* True if what has come, with one from `worker` (or NULL) more, makes a step. */
bool fth_step_is_complete(fth_parameters *server, const char *worker);
bool fth_step_is_averaged(const fth_parameters *server);
/* Whether a gradient's numbers are fit to be applied, in the step that it becomes a part of, or makes if it `steps`.
 * Changes nothing. */
fth_refusal fth_step_judge(fth_parameters *server, fth_gradient *gradient, bool averaged, bool steps, double rate,
                           char message[FTH_MAX_REFUSAL]);
/* Scales it down to a norm of `most`, if that is above 0 and its own is larger. From any thread. */
void fth_step_clip(fth_parameters *server, fth_gradient *gradient, double most);
/* A gradient becomes a part of the step, and makes it if it `steps`. */
fth_status fth_step_take(fth_parameters *server, const fth_gradient *gradient, bool averaged, bool steps, double rate);
/* Updates by what was taken; the version moves on, also where the update would leave a number that is not finite and is
 * therefore left out. */
fth_status fth_step_make(fth_parameters *server, double rate);
/* The worker's side of a gradient that was taken. */
void fth_step_note_push(fth_parameters *server, const fth_gradient *gradient, bool stepped, int64_t staleness);
fth_status fth_parameters_replay(void *server, const fth_log_record *record);
int64_t fth_parameters_replayed_version(void *server);

/* pull.c; the mutex is held for the first and taken by the others */
bool fth_pull_try(fth_parameters *server, fth_pull *pull);
void fth_pulls_serve(fth_parameters *server);
void fth_pulls_end(fth_parameters *server);
/* The newest copy, of version `least` or later, made if need be; the caller unrefs it. NULL: none within `seconds`. */
fth_copy *fth_parameters_get_copy(fth_parameters *server, int64_t least, double seconds);

/* keep.c */
fth_status fth_parameters_restore(fth_parameters *server);
fth_status fth_parameters_start_saver(fth_parameters *server);
/* Begins a checkpoint if one is due, or `now`. From the applying thread, between steps. */
void fth_parameters_consider_saving(fth_parameters *server, bool now);
void fth_parameters_stop_saver(fth_parameters *server);
/* At the end, when no thread is left. */
fth_status fth_parameters_save_last(fth_parameters *server);

/* intake.c */
void *fth_parameters_check_bodies(void *server);
void fth_parameters_return_body(fth_parameters *server, char *body);

/* service.c */
fth_status fth_parameters_serve(fth_parameters *server);
void fth_parameters_refuse(fth_parameters *server, fth_exchange *exchange, fth_refusal refusal, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* docs/parameter-server.openapi.yaml, made into a source by the build */
extern const char fth_parameters_openapi[];
extern const size_t fth_parameters_openapi_size;

/* validate.c */
void *fth_parameters_validate(void *server);
/* After the threads have ended: validates the version that stays, with the server's own engine. */
void fth_parameters_validate_last(fth_parameters *server);

/* events.c */
void fth_parameters_tell(fth_parameters *server, const char *name, json_t *event);
void fth_parameters_tell_step(fth_parameters *server, bool now);
json_t *fth_parameters_position(fth_parameters *server);
double fth_parameters_elapsed(const fth_parameters *server);

#endif
