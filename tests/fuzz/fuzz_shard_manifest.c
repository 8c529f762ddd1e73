/* Feeds bytes to the reader of shards.json; what it takes is written and read back as the same. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "data/shard/shard_manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    fth_shard_manifest manifest, back;
    char *text = NULL, *again = NULL;
    if (fth_shard_manifest_parse((const char *)bytes, size_bytes, "fuzz", &manifest) != FTH_OK)
        return 0;
    assert(fth_shard_manifest_format(&manifest, &text) == FTH_OK);
    assert(fth_shard_manifest_parse(text, strlen(text), "fuzz", &back) == FTH_OK);
    assert(back.samples == manifest.samples && back.shard_count == manifest.shard_count);
    assert(fth_shard_manifest_format(&back, &again) == FTH_OK && strcmp(text, again) == 0);
    free(text);
    free(again);
    fth_shard_manifest_release(&back);
    fth_shard_manifest_release(&manifest);
    return 0;
}
