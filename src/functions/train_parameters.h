/* The parameters of a training job: the prototype's keys and ours (docs/functions.md), checked
 * before any work. */
#ifndef FTH_FUNCTIONS_TRAIN_PARAMETERS_H
#define FTH_FUNCTIONS_TRAIN_PARAMETERS_H

#include "functions/invocation.h"
#include "http/signature.h"

enum { FTH_MAX_TRAIN_RUN = 128, FTH_MAX_IDLE_INVOCATIONS = 5 };

/* What an invocation passes to the one that continues its work. The position is kept by the
 * parameter server. */
typedef struct fth_train_continuation {
    char run[FTH_MAX_TRAIN_RUN + 1]; /* part of the names of brought shards */
    int64_t invocations;             /* before this one */
    int64_t version;                 /* of the model when the last of them ended */
    int64_t idle;                    /* how many invocations in a row saw no new version */
} fth_train_continuation;

/* NULL without memory. */
json_t *fth_train_continuation_save(const fth_train_continuation *continuation);

/* Texts belong to the event, except where stated; NULL: not given. */
typedef struct fth_train_parameters {
    char *server;            /* a URL; freed by fth_train_parameters_release() */
    const char *dataset_url; /* NULL: take shards that the server lists */
    const char *worker, *device, *server_pin, *compress;
    int64_t batch, epochs;
    int64_t interval;     /* batches of a push */
    int64_t first, count; /* the samples of the shard; count 0: all from `first` on */
    bool ranged;          /* a range was given; else the archive's own applies */
    double margin_s;      /* NAN: measured */
    bool continues_itself;
    fth_train_continuation continuation; /* its run is always set */
    fth_signer signer;                   /* "" access: no key */
} fth_train_parameters;

/* FTH_INVALID names the key that is wrong, but not its value, which may be secret. Unknown keys are
 * logged. */
fth_status fth_train_parameters_load(const fth_invocation_event *event, fth_train_parameters *parameters);
void fth_train_parameters_release(fth_train_parameters *parameters); /* wipes secrets */

#endif
