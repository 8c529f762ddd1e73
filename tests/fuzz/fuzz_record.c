/* An events file of any bytes gives a summary whose parts agree. */
#include <assert.h>
#include <stdlib.h>

#include "record/record_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fth_record_summary summary = {.folder = fth_format("fuzz"), .events = json_array()};
    if (fth_record_read_events((const char *)bytes, size, &summary) == FTH_OK)
        assert(summary.finished == (summary.end != NULL));
    fth_record_release(&summary);
    return 0;
}
