/* See coordinator_budget.h. */
#include "batches/coordinator/coordinator_budget.h"

#include <math.h>

enum { SECONDS_PER_HOUR = 3600 };

double fth_cache_spending_advance(fth_cache_spending *spending, double now_s)
{
    int64_t hour = (int64_t)(now_s / SECONDS_PER_HOUR);
    double cost = 0;
    if (hour != spending->hour) {
        spending->hour = hour;
        spending->functions_this_hour_usd = 0;
    }
    if (spending->counted_to_s > 0 && now_s > spending->counted_to_s)
        cost = (now_s - spending->counted_to_s) / SECONDS_PER_HOUR * spending->cache_usd_per_hour;
    spending->counted_to_s = now_s;
    spending->cache_usd += cost;
    return cost;
}

void fth_cache_spending_add_function(fth_cache_spending *spending, double usd)
{
    if (!isfinite(usd) || usd <= 0)
        return;
    spending->functions_this_hour_usd += usd;
    spending->functions_usd += usd;
}

double fth_cache_spending_this_hour(const fth_cache_spending *spending)
{
    return spending->functions_this_hour_usd + spending->cache_usd_per_hour;
}

bool fth_cache_spending_is_exhausted(const fth_cache_spending *spending)
{
    return spending->budget_usd_per_hour > 0 && fth_cache_spending_this_hour(spending) >= spending->budget_usd_per_hour;
}

json_t *fth_cache_spending_save(const fth_cache_spending *spending)
{
    return json_pack("{s:I, s:f, s:f, s:f, s:f}", "hour", (json_int_t)spending->hour, "functions_this_hour_usd",
                     spending->functions_this_hour_usd, "functions_usd", spending->functions_usd, "cache_usd",
                     spending->cache_usd, "counted_to", spending->counted_to_s);
}

static double read_amount(const json_t *json, const char *key)
{
    double value = json_number_value(json_object_get(json, key));
    return isfinite(value) && value > 0 ? value : 0;
}

void fth_cache_spending_load(fth_cache_spending *spending, const json_t *json)
{
    spending->hour = json_integer_value(json_object_get(json, "hour"));
    spending->functions_this_hour_usd = read_amount(json, "functions_this_hour_usd");
    spending->functions_usd = read_amount(json, "functions_usd");
    spending->cache_usd = read_amount(json, "cache_usd");
    spending->counted_to_s = read_amount(json, "counted_to");
}
