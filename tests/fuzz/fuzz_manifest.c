/* Whatever a manifest says, it is refused or names a file beside it; and what was read can be
 * written again. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fth_manifest manifest;
    if (fth_manifest_parse((const char *)bytes, size, "fuzz", &manifest) == FTH_OK) {
        assert(!strchr(manifest.file, '/') && manifest.file[0] != '.' && manifest.step >= 0);
        char *text = NULL;
        assert(fth_manifest_format(&manifest, &text) == FTH_OK);
        free(text);
        fth_manifest_release(&manifest);
    }
    return 0;
}
