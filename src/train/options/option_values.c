/* Options whose texts are more than a number: goals, intervals, shares; and what the table checks
 * of single values. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/cost.h"
#include "spot/spot.h"
#include "train/train_internal.h"

fth_status fth_goal_parse(const char *text, fth_goal *goal)
{
    *goal = (fth_goal){FTH_GOAL_NONE, 0};
    if (!*text)
        return FTH_OK;
    const char *number = NULL;
    if (strncmp(text, "accuracy=", 9) == 0) {
        goal->kind = FTH_GOAL_ACCURACY;
        number = text + 9;
    } else if (strncmp(text, "loss=", 5) == 0) {
        goal->kind = FTH_GOAL_LOSS;
        number = text + 5;
    }
    char *end = NULL;
    if (number)
        goal->value = strtod(number, &end);
    if (goal->kind == FTH_GOAL_ACCURACY && end != number && strcmp(end, "%") == 0) {
        goal->value /= 100;
        end++;
    }
    if (!number || end == number || *end || !isfinite(goal->value) || goal->value < 0)
        return fth_fail(FTH_INVALID, "\"%s\" is not a goal: write accuracy=0.99 or loss=0.05", text);
    if (goal->kind == FTH_GOAL_ACCURACY && goal->value > 1)
        return fth_fail(FTH_INVALID, "an accuracy is between 0 and 1: write 0.99 or 99%%, not %s", number);
    return FTH_OK;
}

fth_status fth_interval_parse(const char *text, fth_interval *interval)
{
    *interval = (fth_interval){0};
    if (strcmp(text, "auto") == 0) {
        interval->automatic = true;
        return FTH_OK;
    }
    if (*text && text[strspn(text, "0123456789")] == '\0') {
        interval->steps = strtoll(text, NULL, 10);
        if (interval->steps < 1 || strlen(text) > 15)
            return fth_fail(FTH_INVALID, "%s is not a number of steps between checkpoints: at least 1", text);
        return FTH_OK;
    }
    if (fth_duration_parse(text, &interval->seconds) != FTH_OK)
        return fth_fail(FTH_INVALID, "\"%s\" is not an interval: write steps (200), a time (30s, 10m) or auto", text);
    return FTH_OK;
}

fth_status fth_share_parse(const char *text, double *share)
{
    char *end = NULL;
    *share = strtod(text, &end);
    if (end != text && strcmp(end, "%") == 0) {
        *share /= 100;
        end++;
    }
    if (end == text || *end || !(*share > 0) || *share > 0.5)
        return fth_fail(FTH_INVALID, "\"%s\" is not a share of the time: write 1%% or 0.01 (at most 50%%)", text);
    return FTH_OK;
}

fth_status fth_data_share_parse(const char *text, fth_share *share)
{
    char *end = NULL;
    *share = (fth_share){0};
    if (!*text)
        return FTH_OK;
    int64_t index = strtoll(text, &end, 10), of = *end == '/' ? strtoll(end + 1, &end, 10) : 0;
    if (*end || index < 1 || of < index || of > 1000000)
        return fth_fail(FTH_INVALID, "\"%s\" is not a share: write 2/4 for the second of four", text);
    *share = (fth_share){index - 1, of};
    return FTH_OK;
}

fth_status fth_bucket_parse(const char *text, size_t *bytes)
{
    static const char units[] = "KMG";
    const double smallest = 1 << 10, largest = 1LL << 40;
    char *end = NULL;

    *bytes = 0;
    if (strcmp(text, "auto") == 0)
        return FTH_OK;
    double value = strtod(text, &end);
    const char *unit = end != text && *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    for (ptrdiff_t i = 0; unit && i <= unit - units; i++)
        value *= 1024;
    end += unit ? 1 + (end[1] == 'B' || end[1] == 'b') : 0;
    if (end == text || *end || !(value >= smallest && value <= largest))
        return fth_fail(FTH_INVALID, "\"%s\" is not the size of a bucket: write 512K or 4M (at least 1K), or auto",
                        text);
    *bytes = (size_t)value;
    return FTH_OK;
}

/* ---- checks for the table ---- */

fth_status fth_option_check_bucket(const char *text)
{
    size_t bytes;
    return fth_bucket_parse(text, &bytes);
}

fth_status fth_option_check_until(const char *text)
{
    fth_goal goal;
    return fth_goal_parse(text, &goal);
}

fth_status fth_option_check_checkpoint_every(const char *text)
{
    fth_interval interval;
    return fth_interval_parse(text, &interval);
}

fth_status fth_option_check_usd(const char *text)
{
    double usd;
    return fth_usd_parse(text, &usd);
}

fth_status fth_option_check_share(const char *text)
{
    double share;
    return fth_share_parse(text, &share);
}

fth_status fth_option_check_data_share(const char *text)
{
    fth_share share;
    return fth_data_share_parse(text, &share);
}

fth_status fth_option_check_lease(const char *text)
{
    double seconds;
    if (strcmp(text, "off") == 0 || (fth_duration_parse(text, &seconds) == FTH_OK && seconds >= 1 && seconds <= 3600))
        return FTH_OK;
    return fth_fail(FTH_INVALID, "\"%s\" is not the time of a lease: write 10s (1s to 1h), or off", text);
}

fth_status fth_option_check_watch(const char *text)
{
    return *text ? fth_watch_check(text) : FTH_OK;
}

fth_status fth_option_check_confusion(const char *text)
{
    const char *ending = strrchr(text, '.');
    if (!*text || strcmp(text, "auto") == 0 || (ending && strcasecmp(ending, ".csv") == 0))
        return FTH_OK;
    return fth_fail(FTH_INVALID, "expected FILE.csv or nothing, not '%.80s'; a run goes before --confusion", text);
}
