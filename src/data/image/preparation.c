/* Resolves the transforms of a data set: the given options, and defaults for its kind. */
#include <stdio.h>
#include <string.h>

#include "data/data_internal.h"

enum { USUAL_SIDE = 224 };

static bool is_given(const char *text)
{
    return text && *text;
}

static const char *split_name(int split)
{
    return split == FTH_TRAIN ? "training" : "validation";
}

/* The size that transforms or --image-size ask for; 0: none. */
static fth_status find_asked_size(const fth_dataset_options *options, const fth_transform *transforms, int *width,
                                  int *height)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(options->image_size >= 0 && options->image_size <= FTH_MAX_OUTPUT_SIDE, FTH_INVALID,
                "an image size of %d; 1 to %d pixels are possible", options->image_size, FTH_MAX_OUTPUT_SIDE);
    *width = *height = options->image_size;
    for (int split = 0; split < 2; split++) {
        const fth_transform *transform = &transforms[split];
        if (transform->width == 0)
            continue;
        FTH_REQUIRE(*width == 0 || (*width == transform->width && *height == transform->height), FTH_INVALID,
                    "the transform for %s gives images of %d × %d pixels, but %d × %d are asked for by %s",
                    split_name(split), transform->height, transform->width, *height, *width,
                    options->image_size ? "the image size" : "the transform for training");
        *width = transform->width;
        *height = transform->height;
    }

out:
    return status;
}

/* The side of a step "resize=N"; 0: none. */
static int find_shorter_side(const fth_transform *transform)
{
    for (int i = 0; i < transform->step_count; i++)
        if (transform->steps[i].kind == FTH_TRANSFORM_RESIZE && transform->steps[i].values[1] == 0)
            return (int)transform->steps[i].values[0];
    return 0;
}

/* "resize=N" without a crop determines the size if all images have one size; otherwise it is an
 * error. */
static fth_status find_resized_size(const fth_raw_images *raw, const fth_transform *transforms, int *width, int *height)
{
    fth_status status = FTH_OK;
    for (int split = 0; split < 2; split++) {
        int side = find_shorter_side(&transforms[split]);
        if (side == 0)
            continue;
        FTH_REQUIRE(raw->width > 0, FTH_INVALID,
                    "the transform for %s resizes the shorter side to %d, which leaves images of different sizes: add "
                    "centre-crop=%d, or use resize=%dx%d",
                    split_name(split), side, side, side, side);
        fth_transform resized = {.height = side, .width = side};
        if (raw->width < raw->height)
            resized.height = (int)((int64_t)side * raw->height / raw->width);
        else
            resized.width = (int)((int64_t)side * raw->width / raw->height);
        FTH_REQUIRE(resized.width <= FTH_MAX_OUTPUT_SIDE && resized.height <= FTH_MAX_OUTPUT_SIDE, FTH_INVALID,
                    "the transform for %s gives images of %d × %d pixels; up to %d are possible", split_name(split),
                    resized.height, resized.width, FTH_MAX_OUTPUT_SIDE);
        FTH_REQUIRE(*width == 0 || (*width == resized.width && *height == resized.height), FTH_INVALID,
                    "the transform for validation gives images of %d × %d pixels, that for training %d × %d",
                    resized.height, resized.width, *height, *width);
        *width = resized.width;
        *height = resized.height;
    }

out:
    return status;
}

enum { USUAL_TEXT = 96 };

/* Image files: crops and flips for training, the middle for validation, as in torchvision's
 * reference scripts. */
static void choose_for_files(const fth_raw_images *raw, int width, int height, char usual[2][USUAL_TEXT])
{
    if (raw->width == width && raw->height == height) {
        snprintf(usual[FTH_TRAIN], USUAL_TEXT, "pad-crop=%d,flip", (width < height ? width : height) / 8);
    } else if (width == height) { /* else resized to cover, and the middle cropped */
        snprintf(usual[FTH_TRAIN], USUAL_TEXT, "random-resized-crop=%d,flip", width);
        snprintf(usual[FTH_VALIDATION], USUAL_TEXT, "resize=%d,centre-crop=%d", width * 8 / 7, width);
    }
}

/* Images in memory: only resized, if at all. */
static void choose_for_memory(const fth_raw_images *raw, int width, int height, char usual[2][USUAL_TEXT])
{
    if (raw->width == width && raw->height == height)
        return;
    for (int split = 0; split < 2; split++)
        snprintf(usual[split], USUAL_TEXT, "resize=%dx%d", height, width);
}

static fth_status resolve_steps(const fth_dataset_options *options, const fth_raw_images *raw,
                                fth_transform transforms[2])
{
    fth_status status = FTH_OK;
    const char *texts[2] = {options->transform, options->validation_transform};
    char usual[2][USUAL_TEXT] = {"", ""};
    int width = 0, height = 0;

    for (int split = 0; split < 2; split++)
        FTH_TRY(fth_transform_parse(is_given(texts[split]) ? texts[split] : "", &transforms[split]));
    FTH_TRY(find_asked_size(options, transforms, &width, &height));
    if (width == 0)
        FTH_TRY(find_resized_size(raw, transforms, &width, &height));
    if (width == 0) {
        width = raw->width > 0 ? raw->width : USUAL_SIDE;
        height = raw->height > 0 ? raw->height : USUAL_SIDE;
    }
    (raw->files ? choose_for_files : choose_for_memory)(raw, width, height, usual);
    for (int split = 0; split < 2; split++) {
        if (!is_given(texts[split]))
            FTH_TRY(fth_transform_parse(usual[split], &transforms[split]));
        transforms[split].width = width;
        transforms[split].height = height;
    }

out:
    return status;
}

/* Both splits have one normalization; conflicting ones are an error. */
static fth_status resolve_normalization(const fth_dataset_options *options, const fth_raw_images *raw,
                                        fth_transform transforms[2])
{
    fth_status status = FTH_OK;
    fth_normalization chosen = options->normalization;
    const char *origin = "--normalize";

    for (int split = 0; split < 2; split++) {
        const fth_normalization *said = &transforms[split].normalization;
        char first[FTH_NORMALIZATION_TEXT], second[FTH_NORMALIZATION_TEXT];
        fth_normalization_format(&chosen, first);
        fth_normalization_format(said, second);
        FTH_REQUIRE(chosen.channels == 0 || said->channels == 0 || fth_normalization_equal(&chosen, said), FTH_INVALID,
                    "images are normalized as %s by %s, but as %s by the transform for %s: leave one of them out",
                    first, origin, second, split_name(split));
        if (chosen.channels == 0 && said->channels > 0) {
            chosen = *said;
            origin = "the transform for training";
        }
    }
    if (chosen.channels == 0)
        chosen = raw->normalization;
    FTH_TRY(fth_normalization_spread(&chosen, raw->channels, &chosen));
    transforms[FTH_TRAIN].normalization = transforms[FTH_VALIDATION].normalization = chosen;

out:
    return status;
}

fth_status fth_transforms_resolve(const fth_dataset_options *options, const fth_raw_images *raw,
                                  fth_transform transforms[2])
{
    fth_status status = resolve_steps(options, raw, transforms);
    return status == FTH_OK ? resolve_normalization(options, raw, transforms) : status;
}

/* ---- transforms as text ---- */

static void format_step(const fth_transform_step *step, char *text, size_t size)
{
    const double *v = step->values;
    switch (step->kind) {
    case FTH_TRANSFORM_RESIZE:
        if (v[1] > 0)
            snprintf(text, size, "resize=%gx%g", v[0], v[1]);
        else
            snprintf(text, size, "resize=%g", v[0]);
        break;
    case FTH_TRANSFORM_CENTRE_CROP: snprintf(text, size, "centre-crop=%g", v[0]); break;
    case FTH_TRANSFORM_RANDOM_RESIZED_CROP: snprintf(text, size, "random-resized-crop=%g:%.17g", v[0], v[1]); break;
    case FTH_TRANSFORM_PAD_CROP: snprintf(text, size, "pad-crop=%g", v[0]); break;
    case FTH_TRANSFORM_FLIP: snprintf(text, size, "flip"); break;
    case FTH_TRANSFORM_COLOUR_JITTER:
        snprintf(text, size, "colour-jitter=%.17g:%.17g:%.17g:%.17g", v[0], v[1], v[2], v[3]);
        break;
    }
}

enum { STEPS_TEXT = 1024 };

static void format_steps(const fth_transform *transform, char text[STEPS_TEXT])
{
    text[0] = '\0';
    for (int i = 0; i < transform->step_count; i++) {
        size_t used = strlen(text);
        if (i > 0)
            text[used++] = ',';
        format_step(&transform->steps[i], text + used, STEPS_TEXT - used);
    }
}

char *fth_dataset_describe_transform(const fth_dataset *dataset, fth_split split)
{
    char text[STEPS_TEXT];
    const fth_transform *transform = &dataset->transforms[split];
    if (!dataset->raw.files && transform->step_count == 0)
        return fth_format("resize=%dx%d", dataset->info.height, dataset->info.width);
    format_steps(transform, text);
    return fth_format("%s", text);
}

static const char as_is_word[] = "as-is,";

char *fth_dataset_describe_preparation(const fth_dataset *dataset, fth_split split)
{
    char steps[STEPS_TEXT], numbers[FTH_NORMALIZATION_TEXT];
    const fth_transform *transform = &dataset->transforms[split];
    format_steps(transform, steps);
    fth_normalization_format_numbers(&transform->normalization, numbers);
    if (!dataset->transformed)
        return fth_format("%ssize=%dx%d,normalize=%s", as_is_word, transform->height, transform->width, numbers);
    return fth_format("%s%ssize=%dx%d,normalize=%s", steps, *steps ? "," : "", transform->height, transform->width,
                      numbers);
}

fth_status fth_preparation_parse(const char *text, int channels, fth_transform *transform, bool *as_is)
{
    fth_status status = FTH_OK;

    *as_is = strncmp(text, as_is_word, strlen(as_is_word)) == 0;
    FTH_TRY(fth_transform_parse(*as_is ? text + strlen(as_is_word) : text, transform));
    FTH_REQUIRE(transform->normalization.channels > 0 && transform->width > 0, FTH_INVALID,
                "the transform '%s' does not say size= and normalize=", text);
    FTH_REQUIRE(!*as_is || transform->step_count == 0, FTH_INVALID,
                "the transform '%s' uses images as they are, and changes them", text);
    FTH_TRY(fth_normalization_spread(&transform->normalization, channels, &transform->normalization));

out:
    return status;
}

/* The padding is scaled with the images, so that crops move by the same share of the image. */
fth_status fth_transform_augment(const fth_augmentation *augmentation, int raw_height, fth_transform *transform)
{
    fth_status status = FTH_OK;
    int padding = (augmentation->crop_padding * transform->height + raw_height / 2) / raw_height;
    FTH_REQUIRE(transform->step_count + 2 <= FTH_MAX_TRANSFORMS, FTH_INVALID,
                "the transform has too many steps to be augmented");
    if (padding > 0)
        transform->steps[transform->step_count++] =
            (fth_transform_step){.kind = FTH_TRANSFORM_PAD_CROP, .values = {padding}};
    if (augmentation->flip)
        transform->steps[transform->step_count++] = (fth_transform_step){.kind = FTH_TRANSFORM_FLIP};

out:
    return status;
}
