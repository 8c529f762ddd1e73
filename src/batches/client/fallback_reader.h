/* Reads the data itself when the batch cache does not deliver: opened in the background when first
 * needed, at the data's own address and with the job's own credentials. Its samples are those that
 * the cache would deliver; data of another version is not used. Any thread. */
#ifndef FTH_BATCHES_CLIENT_FALLBACK_READER_H
#define FTH_BATCHES_CLIENT_FALLBACK_READER_H

#include "batches/described_set.h"
#include "batches/job.h"

typedef struct fth_fallback_reader fth_fallback_reader;

/* Nothing is opened yet. */
fth_status fth_fallback_reader_create(const fth_described_set *set, fth_fallback_reader **fallback);
/* Waits for an opening in progress. */
void fth_fallback_reader_free(fth_fallback_reader *fallback);

/* Lends a sample in the given format: an image file, or its pixels, which took *decode_s of
 * decoding. FTH_TIMEOUT: data or sample are still being opened, or cannot be, as the message says,
 * and will be tried again. FTH_CORRUPT: the sample cannot be read. */
fth_status fth_fallback_reader_take(fth_fallback_reader *fallback, bool decoded, fth_split split, int64_t sample,
                                    fth_deadline deadline, fth_raw_sample *raw, fth_sample_reader **reader,
                                    double *decode_s);
/* Announces the next samples in order, as fth_dataset_expect(). 0 while the data is not open. */
size_t fth_fallback_reader_expect(fth_fallback_reader *fallback, fth_split split, const int64_t *samples, size_t count);
void fth_fallback_reader_give_back(fth_fallback_reader *fallback, fth_sample_reader *reader);
/* True if the last opening failed for good: access denied, or other data. */
bool fth_fallback_reader_is_refused(fth_fallback_reader *fallback);
/* Why it cannot be opened or read, or its progress; does not wait. */
void fth_fallback_reader_explain(fth_fallback_reader *fallback, char *text, size_t size);
/* Opens it now if necessary: FTH_OK, or why that failed. */
fth_status fth_fallback_reader_open(fth_fallback_reader *fallback, fth_deadline deadline);

#endif
