/* The price of a machine or a function: the best matching row of the catalogue, with the
 * assumptions made. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cost/cost.h"

fth_status fth_usd_parse(const char *text, double *usd)
{
    const char *number = text + (*text == '$');
    char *end = NULL;
    *usd = isdigit((unsigned char)*number) || *number == '.' ? strtod(number, &end) : NAN;
    if (end) {
        end += strspn(end, " ");
        if (number == text && strcasecmp(end, "usd") == 0)
            end += 3;
    }
    if (!end || end == number || *end || !isfinite(*usd) || *usd <= 0 || *usd >= 1e6)
        return fth_fail(FTH_INVALID, "\"%.40s\" is not an amount of US dollars: write 0.526, 0.526usd or $0.526", text);
    return FTH_OK;
}

void fth_usd_format(double usd, char *text, size_t size)
{
    if (!isfinite(usd))
        snprintf(text, size, "-");
    else if (fabs(usd) >= 10)
        snprintf(text, size, "$%.2f", usd);
    else if (fabs(usd) >= 0.001 || usd == 0)
        snprintf(text, size, "$%.4f", usd);
    else
        snprintf(text, size, "$%.7f", usd); /* a run of seconds; a tenth of a millionth is nothing */
}

/* "us-central1-a" and "us-east-1a" are zones of "us-central1" and "us-east-1". */
static bool region_holds(const char *region, const char *place)
{
    size_t length = strlen(region);
    if (strncasecmp(region, place, length) != 0)
        return false;
    const char *zone = place + length;
    zone += *zone == '-';
    return !*zone || (islower((unsigned char)*zone) && !zone[1] && isdigit((unsigned char)region[length - 1]));
}

/* How well a row fits, smaller is better. A row of another type does not fit, nor does a spot price
 * for a machine that is not known to be a spot machine. */
enum { EXACT, ANY_REGION, OTHER_REGION, ON_DEMAND = 3, DOES_NOT_FIT = 6 };

static int misfit(const fth_price *price, const fth_price_query *query)
{
    bool spot = strcmp(query->market, "spot") == 0, spot_price = strcmp(price->market, "spot") == 0;
    bool wild = strcmp(price->cloud, "own") == 0 && strcmp(price->instance, "*") == 0;
    if (strcmp(price->cloud, query->cloud) != 0 || (!wild && strcasecmp(price->instance, query->instance) != 0) ||
        (spot_price && !spot))
        return DOES_NOT_FIT;
    int region = !*price->region                                                ? ANY_REGION
                 : *query->region && region_holds(price->region, query->region) ? EXACT
                                                                                : OTHER_REGION;
    if (!*price->region && wild)
        region = OTHER_REGION; /* the host's own row comes first */
    return region + (spot && !spot_price ? ON_DEMAND : 0);
}

bool fth_price_find(const fth_catalogue *catalogue, const fth_price_query *query, fth_price_answer *answer)
{
    const fth_price *best = NULL;
    int best_misfit = DOES_NOT_FIT;
    *answer = (fth_price_answer){.usd_per_hour = NAN};
    for (size_t i = 0; i < catalogue->count; i++) {
        int its = misfit(&catalogue->prices[i], query);
        if (its < best_misfit) {
            best_misfit = its;
            best = &catalogue->prices[i];
        }
    }
    if (!best)
        return false;

    bool own = strcmp(best->cloud, "own") == 0;
    bool other_market = best_misfit >= ON_DEMAND || (!own && !*query->market);
    bool other_region = best_misfit % ON_DEMAND == OTHER_REGION && *best->region;
    char note[96] = "";
    if (other_region)
        snprintf(note, sizeof note, "; %s%.40s", *query->region ? "none for " : "region unknown", query->region);
    if (other_market)
        snprintf(note + strlen(note), sizeof note - strlen(note), "; %s",
                 *query->market ? "no spot price, so on-demand" : "market unknown, so on-demand");
    answer->usd_per_hour = best->usd_per_hour;
    snprintf(answer->source, sizeof answer->source, "%.60s%s%s: %s %s%s%s%s", catalogue->name, *best->date ? ", " : "",
             best->date, best->instance, best->market, *best->region ? " in " : "", best->region, note);
    return true;
}

const fth_function_price *fth_function_price_find(const fth_catalogue *catalogue, const char *provider,
                                                  const char *region)
{
    const fth_function_price *best = NULL;
    int best_misfit = DOES_NOT_FIT;
    for (size_t i = 0; i < catalogue->function_count; i++) {
        const fth_function_price *price = &catalogue->functions[i];
        int its = !*price->region ? ANY_REGION : *region && region_holds(price->region, region) ? EXACT : OTHER_REGION;
        if (strcmp(price->provider, provider) == 0 && its < best_misfit) {
            best_misfit = its;
            best = price;
        }
    }
    return best;
}
