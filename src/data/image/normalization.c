/* See normalization.h. */
#include "data/image/normalization.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_SIDE = 64 };

static const struct {
    const char *name;
    fth_normalization values;
} known[] = {
    {"imagenet", {3, {0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}}},
    {"cifar", {3, {0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}}},
    {"mnist", {1, {0.1307f}, {0.3081f}}},
    {"none", {1, {0}, {1}}},
};

static fth_normalization find_known(const char *name)
{
    for (size_t i = 0; i < FTH_COUNT_OF(known); i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].values;
    return (fth_normalization){0};
}

/* Reads comma-separated numbers up to `end`; 0 if the text is something else. */
static int read_numbers(const char *text, char end, float values[FTH_MAX_CHANNELS])
{
    int count = 0;
    for (const char *at = text;; at++) {
        char *after;
        double value = strtod(at, &after);
        if (after == at || count == FTH_MAX_CHANNELS || !isfinite((float)value) || (*after != ',' && *after != end))
            return 0;
        values[count++] = (float)value;
        if (*after == end)
            return count;
        at = after;
    }
}

fth_status fth_normalization_parse(const char *text, fth_normalization *normalization)
{
    fth_normalization parsed = find_known(text);
    const char *slash = strchr(text, '/');
    *normalization = parsed;
    if (!*text || parsed.channels > 0)
        return FTH_OK;
    int means = slash ? read_numbers(text, '/', parsed.mean) : 0;
    int deviations = means > 0 ? read_numbers(slash + 1, '\0', parsed.deviation) : 0;
    if (deviations == 0)
        return fth_fail(FTH_INVALID,
                        "unknown normalization \"%s\": expected imagenet, cifar, mnist, none or MEAN/STD, as 0.5/0.5 "
                        "or 0.485,0.456,0.406/0.229,0.224,0.225",
                        text);
    if (means != deviations)
        return fth_fail(FTH_INVALID, "the normalization %s has %s and %s: give as many of each", text,
                        FTH_COUNTED(means, "mean"), FTH_COUNTED(deviations, "deviation"));
    for (int i = 0; i < deviations; i++)
        if (!(parsed.deviation[i] > 0) || !isfinite(1 / parsed.deviation[i]))
            return fth_fail(FTH_INVALID, "the normalization %s divides by %g: deviations must be above 0", text,
                            parsed.deviation[i]);
    parsed.channels = means;
    *normalization = parsed;
    return FTH_OK;
}

fth_choice fth_normalization_choice(size_t index)
{
    return (fth_choice){.name = index < FTH_COUNT_OF(known) ? known[index].name : NULL};
}

fth_status fth_normalization_check(const char *text)
{
    fth_normalization normalization;
    return fth_normalization_parse(text, &normalization);
}

fth_status fth_normalization_spread(const fth_normalization *normalization, int channels, fth_normalization *spread)
{
    fth_normalization from = *normalization;
    char text[FTH_NORMALIZATION_TEXT];
    if (from.channels != channels && from.channels != 1) {
        fth_normalization_format(&from, text);
        return fth_fail(FTH_INVALID, "the normalization %s is for %s, but the images have %d", text,
                        FTH_COUNTED(from.channels, "channel"), channels);
    }
    *spread = (fth_normalization){.channels = channels};
    for (int i = 0; i < channels; i++) {
        spread->mean[i] = from.mean[from.channels == 1 ? 0 : i];
        spread->deviation[i] = from.deviation[from.channels == 1 ? 0 : i];
    }
    return FTH_OK;
}

/* One number for all channels, if all are equal. */
static fth_normalization shorten(const fth_normalization *normalization)
{
    fth_normalization shorter = *normalization;
    for (int i = 1; i < normalization->channels; i++)
        if (normalization->mean[i] != normalization->mean[0] ||
            normalization->deviation[i] != normalization->deviation[0])
            return shorter;
    shorter.channels = normalization->channels > 0 ? 1 : 0;
    return shorter;
}

bool fth_normalization_equal(const fth_normalization *a, const fth_normalization *b)
{
    fth_normalization left = shorten(a), right = shorten(b);
    bool equal = left.channels == right.channels;
    for (int i = 0; equal && i < left.channels; i++)
        equal = left.mean[i] == right.mean[i] && left.deviation[i] == right.deviation[i];
    return equal;
}

/* The fewest digits that read_numbers() reads as the same float. */
static void format_number(float value, char *text, size_t size)
{
    for (int digits = 3; digits <= 9; digits++) {
        snprintf(text, size, "%.*g", digits, (double)value);
        if ((float)strtod(text, NULL) == value)
            return;
    }
}

void fth_normalization_format_numbers(const fth_normalization *normalization, char text[FTH_NORMALIZATION_TEXT])
{
    const float *lists[] = {normalization->mean, normalization->deviation};
    size_t used = 0;
    text[0] = '\0';
    for (int list = 0; list < 2; list++)
        for (int i = 0; i < normalization->channels; i++) {
            char number[24];
            format_number(lists[list][i], number, sizeof number);
            used += (size_t)snprintf(text + used, FTH_NORMALIZATION_TEXT - used, "%s%s",
                                     i > 0       ? ","
                                     : list == 1 ? "/"
                                                 : "",
                                     number);
        }
}

static const char *name_of(const fth_normalization *normalization)
{
    for (size_t i = 0; i < FTH_COUNT_OF(known); i++)
        if (fth_normalization_equal(normalization, &known[i].values))
            return known[i].name;
    return NULL;
}

void fth_normalization_format(const fth_normalization *normalization, char text[FTH_NORMALIZATION_TEXT])
{
    const char *name = name_of(normalization);
    const fth_normalization shorter = shorten(normalization);
    if (name)
        snprintf(text, FTH_NORMALIZATION_TEXT, "%s", name);
    else
        fth_normalization_format_numbers(&shorter, text);
}

void fth_normalization_describe(const fth_normalization *normalization, char text[2 * FTH_NORMALIZATION_TEXT])
{
    const char *name = name_of(normalization);
    const fth_normalization shorter = shorten(normalization);
    char numbers[FTH_NORMALIZATION_TEXT];
    fth_normalization_format_numbers(&shorter, numbers);
    if (name)
        snprintf(text, 2 * FTH_NORMALIZATION_TEXT, "%s (%s)", name, numbers);
    else
        snprintf(text, 2 * FTH_NORMALIZATION_TEXT, "%s", numbers);
}

/* In short form: 0.3081, not 0.308099985, the nearest float. */
static json_t *numbers_to_json(const float *values, int count)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++) {
        char number[24];
        format_number(values[i], number, sizeof number);
        json_array_append_new(array, json_real(strtod(number, NULL)));
    }
    return array;
}

json_t *fth_normalization_to_json(const fth_normalization *normalization)
{
    return json_pack("{s:o, s:o}", "mean", numbers_to_json(normalization->mean, normalization->channels), "std",
                     numbers_to_json(normalization->deviation, normalization->channels));
}

bool fth_normalization_from_json(const json_t *json, int channels, fth_normalization *normalization)
{
    const json_t *means = json_object_get(json, "mean"), *deviations = json_object_get(json, "std");
    fth_normalization read = {.channels = channels};
    bool valid = channels >= 1 && channels <= FTH_MAX_CHANNELS && json_array_size(means) == (size_t)channels &&
                 json_array_size(deviations) == (size_t)channels;
    for (int i = 0; valid && i < channels; i++) {
        const json_t *mean = json_array_get(means, (size_t)i), *deviation = json_array_get(deviations, (size_t)i);
        read.mean[i] = (float)json_number_value(mean);
        read.deviation[i] = (float)json_number_value(deviation);
        valid = json_is_number(mean) && json_is_number(deviation) && isfinite(read.mean[i]) && read.deviation[i] > 0 &&
                isfinite(read.deviation[i]) && isfinite(1 / read.deviation[i]);
    }
    if (valid)
        *normalization = read;
    return valid;
}

fth_normalization fth_normalization_guess(int channels, int height, int width)
{
    fth_normalization guess = {0};
    const char *name = channels != 3 ? "mnist" : height <= SMALL_SIDE && width <= SMALL_SIDE ? "cifar" : "imagenet";
    const fth_normalization values = find_known(name);
    FTH_IGNORE(fth_normalization_spread(&values, channels, &guess), "there are as many values as channels, or 1");
    return guess;
}
