/* The data itself, for a job that cannot wait for the batch cache: opened in the background, at its
 * own address and with the job's own credentials, when it is first needed. Samples are what the
 * cache would have given, or its version is not the same, and it is not used. Any thread. */
#ifndef FTH_BATCHES_CLIENT_DIRECT_H
#define FTH_BATCHES_CLIENT_DIRECT_H

#include "batches/described_set.h"
#include "batches/job.h"

typedef struct fth_direct fth_direct;

/* Nothing is opened yet. */
fth_status fth_direct_create(const fth_described_set *set, fth_direct **direct);
/* Waits for an opening that is under way. */
void fth_direct_free(fth_direct *direct);

/* Lends a sample, as the form has it: an image file, or its pixels, which took *decode_s of
 * decoding. FTH_TIMEOUT: the data, or the sample, is still being opened, or cannot be, which the
 * message says, and will be tried again. FTH_CORRUPT: the sample cannot be read. */
fth_status fth_direct_take(fth_direct *direct, bool decoded, fth_split split, int64_t sample, fth_deadline deadline,
                           fth_raw_sample *raw, fth_sample_maker **maker, double *decode_s);
/* These will be taken soon, in this order: as fth_dataset_expect(). 0 as long as the data is not
 * open. */
size_t fth_direct_expect(fth_direct *direct, fth_split split, const int64_t *samples, size_t count);
void fth_direct_give_back(fth_direct *direct, fth_sample_maker *maker);
/* True if the last try to open it failed in a way that another try will not mend: access denied,
 * other data. */
bool fth_direct_is_refused(fth_direct *direct);
/* Why it cannot be opened or read, or what goes on; without waiting. */
void fth_direct_explain(fth_direct *direct, char *text, size_t size);
/* Opens it now, if it is not open: FTH_OK, or why that failed. */
fth_status fth_direct_open(fth_direct *direct, fth_deadline deadline);

#endif
