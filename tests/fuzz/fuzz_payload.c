/* Fuzzes what is inside an entry of the batch cache. The first byte is its kind; what is accepted
 * must lie inside it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "batches/payload.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static uint64_t touched;

static void touch(const void *bytes, uint64_t size_bytes)
{
    for (uint64_t i = 0; i < size_bytes; i++)
        touched += ((const uint8_t *)bytes)[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fth_item_header header = {.kind = size > 0 ? bytes[0] : 0};
    size_t payload = size > 0 ? size - 1 : 0, entry_bytes = sizeof header + payload;
    uint8_t *entry = malloc(entry_bytes); /* exactly as much, so that a byte beyond is found */
    fth_sample_payload sample;
    fth_batch_payload batch;
    char *text = NULL;

    if (!entry)
        return 0;
    memcpy(entry, &header, sizeof header);
    if (payload > 0)
        memcpy(entry + sizeof header, bytes + 1, payload);
    fth_status status = fth_sample_entry_read(entry, entry_bytes, &sample, &text);
    if (status == FTH_OK) {
        touch(sample.bytes, sample.size_bytes);
        touch(sample.name, sample.name ? strlen(sample.name) : 0);
        touch(sample.error, sample.error ? strlen(sample.error) : 0);
        free(text);
    } else if (status != FTH_CORRUPT && status != FTH_NO_MEMORY) {
        abort();
    }
    status = fth_batch_entry_read(entry, entry_bytes, &batch, &text);
    if (status == FTH_OK) {
        touch(batch.labels, (uint64_t)batch.count * sizeof *batch.labels);
        touch(batch.images, (uint64_t)batch.count * (uint64_t)batch.channels * (uint64_t)batch.height *
                                (uint64_t)batch.width * sizeof *batch.images);
        touch(batch.bad, batch.bad ? strlen(batch.bad) : 0);
        free(text);
    } else if (status != FTH_CORRUPT && status != FTH_NO_MEMORY) {
        abort();
    }
    free(entry);
    return 0;
}
