/* An events file of any bytes gives a summary whose parts agree, and a bill. */
#include <assert.h>
#include <stdlib.h>

#include "cost/cost.h"
#include "record/record_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fth_record_summary summary = {.folder = fth_format("fuzz"), .events = json_array()};
    if (fth_record_read_events((const char *)bytes, size, &summary) == FTH_OK) {
        fth_ledger ledger;
        assert(summary.finished == (summary.end != NULL));
        assert(fth_ledger_make(&summary, &ledger) == FTH_OK);
        for (size_t i = 0; i < ledger.count; i++) {
            const fth_ledger_row *row = &ledger.rows[i];
            assert(row->steps >= 0 && row->steps_lost >= 0 && !(row->useful_s < 0) && !(row->lost_s < 0));
        }
        for (size_t i = 0; i < summary.validation.count; i++)
            fth_ledger_usd_at(&ledger, &summary.validation.points[i]);
        fth_ledger_release(&ledger);
    }
    fth_record_release(&summary);
    return 0;
}
