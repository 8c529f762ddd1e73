/* Items: what the shared cache holds. Each has an id, a checksum, and contents that never change.
 *
 *     encoded   a sample's file, as in the bucket
 *     decoded   a sample's pixels at full size, before anything random is done to them
 *     batch     a finished batch: normalized images and labels
 *
 * An id is a hash of everything that determines the contents: the version of the data set
 * (fth_dataset_version), the samples, and for batches the transform, and seed and epoch of its
 * random choices. Every process can compute it without asking. Data that changes gets other ids, so
 * nothing in a cache is ever stale.
 *
 * In every cache and on every wire, an entry is a header of 64 bytes followed by a payload, a
 * safetensors file (payload.h). Storing an entry gives a receipt; reading one checks it against id,
 * length and checksum. */
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
    uint64_t checksum; /* XXH3 of the payload, seeded with the first word of the id */
    uint32_t kind;
    uint32_t reserved[5];
} fth_item_header;
#define FTH_ITEM_MAGIC UINT64_C(0x31304d4554494646) /* "FFITEM01" */
_Static_assert(sizeof(fth_item_header) == 64, "an entry's payload begins at its 64th byte");

/* A cache's description of an entry. */
typedef struct fth_receipt {
    fth_item_id id;
    uint64_t size_bytes; /* header and payload */
    uint64_t checksum;
} fth_receipt;

/* Fills in the header before a payload, and gives the receipt. */
void fth_item_seal(void *entry, fth_item_id id, fth_item_kind kind, uint64_t payload_bytes, fth_receipt *receipt);
/* Checks an entry against an id and, unless NULL, a receipt. FTH_CORRUPT says what is wrong. */
fth_status fth_item_check(const void *entry, uint64_t size_bytes, fth_item_id id, const fth_receipt *receipt);

#endif
