/* The text of a transform: "random-resized-crop=224,flip,normalize=imagenet". data.h lists the
 * steps. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "data/image/transform.h"

typedef struct fth_step_rule {
    const char *name;
    fth_transform_kind kind;
    int least, most; /* number of values */
    double minimum, maximum;
    const char *usage;
} fth_step_rule;

static const fth_step_rule rules[] = {
    {"resize", FTH_TRANSFORM_RESIZE, 1, 2, 1, FTH_MAX_OUTPUT_SIDE, "resize=256 or resize=192x256"},
    {"centre-crop", FTH_TRANSFORM_CENTRE_CROP, 1, 1, 1, FTH_MAX_OUTPUT_SIDE, "centre-crop=224"},
    {"center-crop", FTH_TRANSFORM_CENTRE_CROP, 1, 1, 1, FTH_MAX_OUTPUT_SIDE, "center-crop=224"},
    {"random-resized-crop", FTH_TRANSFORM_RANDOM_RESIZED_CROP, 1, 2, 0, FTH_MAX_OUTPUT_SIDE,
     "random-resized-crop=224 or random-resized-crop=224:0.08"},
    {"pad-crop", FTH_TRANSFORM_PAD_CROP, 1, 1, 0, FTH_MAX_OUTPUT_SIDE, "pad-crop=4"},
    {"flip", FTH_TRANSFORM_FLIP, 0, 0, 0, 0, "flip"},
    {"colour-jitter", FTH_TRANSFORM_COLOUR_JITTER, 1, 4, 0, 100, "colour-jitter=0.4:0.4:0.4:0.1"},
    {"color-jitter", FTH_TRANSFORM_COLOUR_JITTER, 1, 4, 0, 100, "color-jitter=0.4:0.4:0.4:0.1"},
};

static fth_status fail_unknown(const char *name)
{
    const char *names[FTH_COUNT_OF(rules) + 3] = {"normalize", "size"};
    for (size_t i = 0; i < FTH_COUNT_OF(rules); i++)
        names[i + 2] = rules[i].name;
    const char *nearest = fth_nearest_name(name, names);
    return fth_fail(FTH_INVALID,
                    "there is no transform '%s'%s%s%s: there are resize, centre-crop, random-resized-crop, pad-crop, "
                    "flip, colour-jitter, size and normalize",
                    name, nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "");
}

static fth_status parse_values(const fth_step_rule *rule, const char *text, fth_transform_step *step)
{
    fth_status status = FTH_OK;
    int count = 0;
    for (const char *at = text; at && *at;) {
        char *end;
        double value = strtod(at, &end);
        FTH_REQUIRE(end != at && count < rule->most && isfinite(value) && value >= rule->minimum &&
                        value <= rule->maximum && (*end == '\0' || *end == ':' || *end == 'x'),
                    FTH_INVALID, "the transform '%s=%s' is not right: write it as %s", rule->name, text, rule->usage);
        step->values[count++] = value;
        at = *end ? end + 1 : NULL;
    }
    FTH_REQUIRE(count >= rule->least, FTH_INVALID, "the transform '%s' is not right: write it as %s", rule->name,
                rule->usage);
    bool whole = true;
    for (int i = 0; i < count; i++)
        whole = whole && step->values[i] == floor(step->values[i]);
    switch (rule->kind) {
    case FTH_TRANSFORM_RESIZE:
    case FTH_TRANSFORM_CENTRE_CROP:
    case FTH_TRANSFORM_PAD_CROP: break;
    case FTH_TRANSFORM_RANDOM_RESIZED_CROP:
        if (count < 2)
            step->values[1] = 0.08;
        whole = step->values[0] >= 1 && step->values[0] == floor(step->values[0]) && step->values[1] > 0 &&
                step->values[1] <= 1;
        break;
    case FTH_TRANSFORM_COLOUR_JITTER: whole = step->values[3] <= 0.5; break;
    case FTH_TRANSFORM_FLIP: break;
    }
    FTH_REQUIRE(whole, FTH_INVALID, "the transform '%s=%s' is not right: write it as %s", rule->name, text,
                rule->usage);

out:
    return status;
}

static fth_status parse_normalization(const char *text, fth_transform *transform)
{
    if (!text || !*text)
        return fth_fail(FTH_INVALID, "the transform 'normalize' needs a value: write it as normalize=imagenet or "
                                     "normalize=0.5/0.5");
    if (transform->normalization.channels > 0)
        return fth_fail(FTH_INVALID, "a transform normalizes once, but there is another normalize=%s", text);
    return fth_normalization_parse(text, &transform->normalization);
}

/* "224x224", or "224" for both sides. */
static fth_status parse_size(const char *text, fth_transform *transform)
{
    int height = 0, width = 0, end = 0;
    if (text && sscanf(text, "%4d%n", &height, &end) == 1 && text[end] == '\0')
        width = height;
    else if (!text || sscanf(text, "%4dx%4d%n", &height, &width, &end) != 2 || text[end])
        height = width = 0;
    if (height < 1 || width < 1 || height > FTH_MAX_OUTPUT_SIDE || width > FTH_MAX_OUTPUT_SIDE)
        return fth_fail(FTH_INVALID, "the transform 'size=%s' is not right: write it as size=224 or size=192x256",
                        text ? text : "");
    transform->height = height;
    transform->width = width;
    return FTH_OK;
}

/* The next step of `*rest`, terminated in place; NULL after the last. Commas separate steps, and
 * also the numbers of a normalization: there, a part that looks like a number belongs to the step
 * before it. */
static char *next_word(char **rest)
{
    static const char separators[] = ", ";
    char *word = *rest + strspn(*rest, separators), *end = word + strcspn(word, separators);
    if (!*word)
        return NULL;
    if (strncmp(word, "normalize=", 10) == 0)
        while (*end == ',' && end[1] && strchr("0123456789.+-", end[1]))
            end += 1 + strcspn(end + 1, separators);
    *rest = *end ? end + 1 : end;
    *end = '\0';
    return word;
}

/* Resampling happens once, at the beginning; flips and colour jitter may follow anywhere. */
static fth_status check_order(const fth_transform *transform, const char *text)
{
    fth_status status = FTH_OK;
    bool placed = false, jittered = false, flipped = false;
    for (int i = 0; i < transform->step_count; i++) {
        fth_transform_kind kind = transform->steps[i].kind;
        bool resamples = kind == FTH_TRANSFORM_RESIZE || kind == FTH_TRANSFORM_RANDOM_RESIZED_CROP;
        FTH_REQUIRE(!resamples || !placed, FTH_INVALID,
                    "in '%s' a resize or random-resized-crop comes after another step that places the image: it must "
                    "be the first and only one",
                    text);
        FTH_REQUIRE(kind != FTH_TRANSFORM_COLOUR_JITTER || !jittered, FTH_INVALID, "'%s' jitters colours twice", text);
        FTH_REQUIRE(kind != FTH_TRANSFORM_FLIP || !flipped, FTH_INVALID, "'%s' flips twice", text);
        jittered = jittered || kind == FTH_TRANSFORM_COLOUR_JITTER;
        flipped = flipped || kind == FTH_TRANSFORM_FLIP;
        placed = placed || (kind != FTH_TRANSFORM_COLOUR_JITTER && kind != FTH_TRANSFORM_FLIP);
    }

out:
    return status;
}

fth_status fth_transform_parse(const char *text, fth_transform *transform)
{
    fth_status status = FTH_OK;
    char *copy = fth_format("%s", text), *rest = copy;
    fth_transform size = {0}; /* from size= */

    *transform = (fth_transform){0};
    FTH_REQUIRE(copy, FTH_NO_MEMORY, "no memory for a transform");
    FTH_REQUIRE(strlen(text) < 1024, FTH_INVALID, "the text of a transform is too long");
    for (char *word = next_word(&rest); word; word = next_word(&rest)) {
        char *value = strchr(word, '=');
        if (value)
            *value++ = '\0';
        if (strcmp(word, "normalize") == 0) {
            FTH_TRY(parse_normalization(value, transform));
            continue;
        }
        if (strcmp(word, "size") == 0) {
            FTH_TRY(parse_size(value, &size));
            continue;
        }
        const fth_step_rule *rule = NULL;
        for (size_t i = 0; i < FTH_COUNT_OF(rules); i++)
            if (strcmp(rules[i].name, word) == 0)
                rule = &rules[i];
        if (!rule) {
            status = fail_unknown(word);
            goto out;
        }
        FTH_REQUIRE(transform->step_count < FTH_MAX_TRANSFORMS, FTH_INVALID, "'%s' has too many steps", text);
        fth_transform_step *step = &transform->steps[transform->step_count++];
        step->kind = rule->kind;
        FTH_TRY(parse_values(rule, value, step));
        if (rule->kind == FTH_TRANSFORM_CENTRE_CROP || rule->kind == FTH_TRANSFORM_RANDOM_RESIZED_CROP)
            transform->height = transform->width = (int)step->values[0];
        if (rule->kind == FTH_TRANSFORM_RESIZE && step->values[1] > 0) {
            transform->height = (int)step->values[0];
            transform->width = (int)step->values[1];
        }
    }
    FTH_TRY(check_order(transform, text));
    if (size.width == 0)
        goto out;
    FTH_REQUIRE(transform->width == 0 || (transform->width == size.width && transform->height == size.height),
                FTH_INVALID, "the steps of '%s' give images of %d × %d pixels, but size=%dx%d is asked for", text,
                transform->height, transform->width, size.height, size.width);
    transform->height = size.height;
    transform->width = size.width;

out:
    free(copy);
    return status;
}

bool fth_transform_is_identity(const fth_transform *transform, int height, int width)
{
    bool same = transform->height == height && transform->width == width;
    for (int i = 0; same && i < transform->step_count; i++) {
        const fth_transform_step *step = &transform->steps[i];
        bool both = step->kind == FTH_TRANSFORM_RESIZE && step->values[1] > 0;
        bool side = step->kind == FTH_TRANSFORM_RESIZE || step->kind == FTH_TRANSFORM_CENTRE_CROP;
        same = both ? step->values[0] == height && step->values[1] == width
                    : side && height == width && step->values[0] == height;
    }
    return same;
}

fth_status fth_transform_check(const char *text)
{
    fth_transform transform;
    return fth_transform_parse(text, &transform);
}

static bool is_random(fth_transform_kind kind)
{
    return kind == FTH_TRANSFORM_RANDOM_RESIZED_CROP || kind == FTH_TRANSFORM_PAD_CROP || kind == FTH_TRANSFORM_FLIP ||
           kind == FTH_TRANSFORM_COLOUR_JITTER;
}

bool fth_transform_is_random(const char *text)
{
    bool found = false;
    char *copy = fth_format("%s", text), *rest = copy;
    if (!copy)
        return true;
    for (char *word = next_word(&rest); word && !found; word = next_word(&rest)) {
        word[strcspn(word, "=")] = '\0';
        for (size_t i = 0; i < FTH_COUNT_OF(rules); i++)
            found = found || (is_random(rules[i].kind) && strcmp(rules[i].name, word) == 0);
    }
    free(copy);
    return found;
}

bool fth_transform_has_size(const char *text)
{
    fth_transform transform;
    return fth_transform_parse(text, &transform) == FTH_OK && transform.width > 0;
}

fth_normalization fth_transform_get_normalization(const char *text)
{
    fth_transform transform;
    return fth_transform_parse(text, &transform) == FTH_OK ? transform.normalization : (fth_normalization){0};
}
