/* A loader's session with the batch cache: finished batches, or samples for the loader to finish,
 * in the order of the job's spec. */
#ifndef FTH_BATCHES_CLIENT_SESSION_H
#define FTH_BATCHES_CLIENT_SESSION_H

#include "batches/client/cache_source.h"
#include "batches/client/fallback_reader.h"

typedef struct fth_session fth_session;

/* Registers, and sets order and seeds in `options` to the job's. `fallback` and `dataset` outlive
 * the session. */
typedef struct fth_session_options {
    const fth_batches_address *address;
    fth_cache_format format; /* of this session's job */
    int64_t rotation;        /* of the training part; -1: to be chosen */
    fth_fallback_reader *fallback;
    const fth_dataset *dataset;
    const char *version;
    bool away;                             /* the host is known not to answer */
    const fth_batches_registration *known; /* the job's earlier registration, if there is one; or NULL */
} fth_session_options;
fth_status fth_session_open(const fth_session_options *how, fth_loader_options *options, fth_session **session);
void fth_session_close(fth_session *session);
const fth_job_spec *fth_session_spec(const fth_session *session);
fth_cache_source *fth_session_source(const fth_session *session);
uint64_t fth_session_images_read(const fth_session *session); /* directly */

/* As in fth_dataset_provider. */
fth_status fth_session_next(fth_session *session, fth_deadline deadline, const fth_batch **batch);
void fth_session_moved(fth_session *session, int64_t next);
fth_status fth_session_take(fth_session *session, int64_t sample, fth_deadline deadline, fth_raw_sample *raw);

/* Samples that the loader will take next, for when they are read directly. */
size_t fth_session_expect(fth_session *session, const int64_t *samples, size_t count);
/* Why it has no batch yet, for a message. Any thread. */
void fth_session_explain(const fth_session *session, char *text, size_t size);

/* Hands over the lease of the last batch, if that is `batch` and in shared memory. */
bool fth_session_take_lease(fth_session *session, const fth_batch *batch, fth_item_lease *lease);

/* fth_fallback_reader_take(), with a lease for fth_sample_give_back(). */
fth_status fth_sample_lend_directly(fth_fallback_reader *fallback, bool decoded, fth_split split, int64_t sample,
                                    fth_deadline deadline, fth_raw_sample *raw, double *decode_s);
/* Returns a sample of a session or of fth_sample_lend_directly(). */
void fth_sample_give_back(fth_raw_sample *raw);

#endif
