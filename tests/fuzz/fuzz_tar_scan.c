/* Feeds bytes to the scan of a tar's headers, and checks that members lie inside it. */
#include <assert.h>
#include <string.h>

#include "data/archive/tar_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

typedef struct whole {
    const uint8_t *bytes;
    size_t size_bytes;
    uint64_t end; /* of the last member */
} whole;

static fth_status at(void *context, uint64_t offset, size_t size_bytes, const uint8_t **bytes)
{
    const whole *tar = context;
    assert(offset <= tar->size_bytes && size_bytes <= tar->size_bytes - offset);
    *bytes = tar->bytes + offset;
    return FTH_OK;
}

static fth_status visit(void *context, const fth_tar_member *member)
{
    whole *tar = context;
    assert(member->offset <= tar->size_bytes && member->size_bytes <= tar->size_bytes - member->offset);
    assert(member->offset >= tar->end && strlen(member->path) < tar->size_bytes);
    tar->end = member->offset + member->size_bytes;
    return FTH_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    whole tar = {.bytes = bytes, .size_bytes = size_bytes};
    const fth_tar_input input = {.size_bytes = size_bytes, .at = at, .context = &tar};
    (void)fth_tar_scan(&input, "fuzz", visit, &tar);
    return 0;
}
