/* The parameters of a training job: the prototype's keys and ours (docs/functions.md), checked
 * before anything is done. */
#ifndef FTH_FUNCTIONS_TRAIN_PARAMETERS_H
#define FTH_FUNCTIONS_TRAIN_PARAMETERS_H

#include "functions/invocation.h"
#include "http/signature.h"

enum { FTH_MAX_TRAIN_RUN = 128, FTH_MAX_IDLE_INVOCATIONS = 5 };

/* What an invocation passes on to the one that continues its work. Where that continues, the
 * parameter server knows. */
typedef struct fth_train_continuation {
    char run[FTH_MAX_TRAIN_RUN + 1]; /* names the shards that functions bring along */
    int64_t invocations;             /* before this one */
    int64_t version;                 /* of the model when the last of them ended */
    int64_t idle;                    /* how many of them, the last in a row, saw the model not move */
} fth_train_continuation;

/* NULL without memory. */
json_t *fth_train_continuation_save(const fth_train_continuation *continuation);

/* Texts are the event's, unless said; NULL: not given. */
typedef struct fth_train_parameters {
    char *server;            /* a URL; freed by fth_train_parameters_release() */
    const char *dataset_url; /* NULL: the server deals out shards */
    const char *worker, *device, *server_pin, *compress;
    int64_t batch, epochs;
    int64_t interval;     /* batches of a push */
    int64_t first, count; /* the samples of the shard; count 0: all from `first` on */
    bool ranged;          /* these were given; else an archive's own range holds */
    double margin_s;      /* NAN: by measurement */
    bool continues_itself;
    fth_train_continuation continuation; /* its run is set in any case */
    fth_signer signer;                   /* "" access: no key */
} fth_train_parameters;

/* FTH_INVALID names the key that is wrong, without what it holds where that may be a secret. Keys
 * that are not known are named in the log. */
fth_status fth_train_parameters_load(const fth_invocation_event *event, fth_train_parameters *parameters);
void fth_train_parameters_release(fth_train_parameters *parameters); /* wipes what is secret */

#endif
