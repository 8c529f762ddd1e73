/* The data itself, for a job that cannot wait for the batch cache: opened in the background, at its
 * own address and with the job's own credentials, when it is first needed. Samples are what the
 * cache would have given, or its version is not the same, and it is not used. Any thread. */
#ifndef FTH_BATCHES_CLIENT_DIRECT_H
#define FTH_BATCHES_CLIENT_DIRECT_H

#include "batches/described_set.h"
#include "batches/job.h"

typedef struct fth_fallback_reader fth_fallback_reader;

/* Nothing is opened yet. */
fth_status fth_fallback_reader_create(const fth_described_set *set, fth_fallback_reader **fallback);
/* Waits for an opening that is under way. */
void fth_fallback_reader_free(fth_fallback_reader *fallback);

/* Lends a sample, as the form has it: an image file, or its pixels, which took *decode_s of
 * decoding. FTH_TIMEOUT: the data, or the sample, is still being opened, or cannot be, which the
 * message says, and will be tried again. FTH_CORRUPT: the sample cannot be read. */
fth_status fth_fallback_reader_take(fth_fallback_reader *fallback, bool decoded, fth_split split, int64_t sample,
                                    fth_deadline deadline, fth_raw_sample *raw, fth_sample_maker **maker,
                                    double *decode_s);
/* These will be taken soon, in this order: as fth_dataset_expect(). 0 as long as the data is not
 * open. */
size_t fth_fallback_reader_expect(fth_fallback_reader *fallback, fth_split split, const int64_t *samples, size_t count);
void fth_fallback_reader_give_back(fth_fallback_reader *fallback, fth_sample_maker *maker);
/* True if the last try to open it failed in a way that another try will not mend: access denied,
 * other data. */
bool fth_fallback_reader_is_refused(fth_fallback_reader *fallback);
/* Why it cannot be opened or read, or what goes on; without waiting. */
void fth_fallback_reader_explain(fth_fallback_reader *fallback, char *text, size_t size);
/* Opens it now, if it is not open: FTH_OK, or why that failed. */
fth_status fth_fallback_reader_open(fth_fallback_reader *fallback, fth_deadline deadline);

#endif
