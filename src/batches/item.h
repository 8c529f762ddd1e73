/* Items: what the shared cache keeps. Each has an id, a checksum, and contents that never change.
 *
 *     encoded   a sample's file, as it lies in the bucket
 *     decoded   a sample's pixels at full size, before anything random is done to them
 *     batch     a finished batch: normalized images and labels
 *
 * An id is a hash of everything that the contents depend on: the version of the data set
 * (fth_dataset_version), the samples, and for batches the transform and the seed and epoch of its
 * random choices. Whoever knows these can compute it without asking anybody; what changes in the
 * bucket gets other ids, so nothing in a cache is ever stale.
 *
 * An entry, in every cache and on every wire, is a header of 64 bytes and a payload, a safetensors
 * file (payload.h). Who stores an entry gives a receipt; who reads one checks it against id, length
 * and checksum. */
#ifndef FTH_BATCHES_ITEM_H
#define FTH_BATCHES_ITEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

typedef enum fth_item_kind { FTH_ITEM_ENCODED, FTH_ITEM_DECODED, FTH_ITEM_BATCH, FTH_ITEM_KINDS } fth_item_kind;
const char *fth_item_kind_name(fth_item_kind kind); /* "encoded", "decoded", "batch" */
bool fth_item_kind_find(const char *name, fth_item_kind *kind);

typedef struct fth_item_id {
    uint64_t words[2];
} fth_item_id;
enum { FTH_ITEM_ID_TEXT = 33 };
void fth_item_id_format(fth_item_id id, char text[FTH_ITEM_ID_TEXT]); /* 32 hex digits */
bool fth_item_id_parse(const char *text, fth_item_id *id);
static inline bool fth_item_id_equal(fth_item_id a, fth_item_id b)
{
    return a.words[0] == b.words[0] && a.words[1] == b.words[1];
}

/* Before the payload; little-endian. */
typedef struct fth_item_header {
    uint64_t magic;
    fth_item_id id;
    uint64_t payload_bytes;
    uint64_t checksum; /* XXH3 of the payload, with the first word of the id as its seed */
    uint32_t kind;
    uint32_t reserved[5];
} fth_item_header;
#define FTH_ITEM_MAGIC UINT64_C(0x31304d4554494646) /* "FFITEM01" */
_Static_assert(sizeof(fth_item_header) == 64, "an entry's payload begins at its 64th byte");

/* What a cache says of an entry that it has. */
typedef struct fth_receipt {
    fth_item_id id;
    uint64_t size_bytes; /* header and payload */
    uint64_t checksum;
} fth_receipt;

/* Fills in the header of an entry whose payload lies behind it, and gives the receipt. */
void fth_item_seal(void *entry, fth_item_id id, fth_item_kind kind, uint64_t payload_bytes, fth_receipt *receipt);
/* Checks an entry against the id it was asked for under: FTH_CORRUPT, saying what is wrong. With
 * `receipt` (may be NULL) against that too. */
fth_status fth_item_check(const void *entry, uint64_t size_bytes, fth_item_id id, const fth_receipt *receipt);

#endif
