/* Fuzzes the catalogue of prices: any bytes as a file; what is accepted is whole. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "cost/cost.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fth_catalogue catalogue;
    if (fth_catalogue_parse((const char *)bytes, size, "fuzz.yaml", &catalogue) == FTH_OK)
        for (size_t i = 0; i < catalogue.count; i++) {
            const fth_price *price = &catalogue.prices[i];
            fth_price_answer answer;
            fth_price_query query = {price->cloud, price->instance, price->region, price->market};
            if (!*price->cloud || !*price->instance || !*price->market || !(price->usd_per_hour > 0) ||
                !fth_price_find(&catalogue, &query, &answer) || !isfinite(answer.usd_per_hour))
                abort();
        }
    fth_catalogue_release(&catalogue);
    return 0;
}
