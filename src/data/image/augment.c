/* Augmentation and normalization in one pass: value = pixel * scale + shift, with 0 for padding
 * pixels. */
#include <stdlib.h>
#include <string.h>

#include "base/vectorized.h"
#include "data/data_internal.h"

/* The whole plane. Not contracted to one operation, so that results are the same on every
 * machine. */
FTH_VECTORIZED_EXACT static void normalize(const uint8_t *restrict source, size_t count, float scale, float shift,
                                           float *restrict out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (float)source[i] * scale + shift;
}

/* One row: out[x] = source[x + offset], mirrored if `flip`, padding where that is outside. */
static void write_row(const uint8_t *source, int width, int offset, bool flip, float scale, float shift, float *out)
{
    int begin = offset < 0 ? -offset : 0, end = offset > 0 ? width - offset : width;
    begin = begin < width ? begin : width;
    end = end > begin ? end : begin;
    for (int x = 0; x < begin; x++)
        out[flip ? width - 1 - x : x] = shift;
    if (flip) {
        for (int x = begin; x < end; x++)
            out[width - 1 - x] = (float)source[x + offset] * scale + shift;
    } else {
        for (int x = begin; x < end; x++)
            out[x] = (float)source[x + offset] * scale + shift;
    }
    for (int x = end; x < width; x++)
        out[flip ? width - 1 - x : x] = shift;
}

enum { CROP_PADDING = 4 }; /* usual for CIFAR-10 */

static const struct {
    const char *name;
    fth_augmentation augmentation;
} augmentations[] = {
    {"none", {0}},
    {"flip", {.flip = true}},
    {"crop", {.crop_padding = CROP_PADDING}},
    {"flip-crop", {.flip = true, .crop_padding = CROP_PADDING}},
};

fth_choice fth_augmentation_choice(size_t index)
{
    return (fth_choice){.name = index < FTH_COUNT_OF(augmentations) ? augmentations[index].name : NULL};
}

fth_status fth_augmentation_find(const char *name, fth_augmentation *augmentation)
{
    for (size_t i = 0; i < FTH_COUNT_OF(augmentations); i++) {
        *augmentation = augmentations[i].augmentation;
        if (strcmp(augmentations[i].name, name) == 0)
            return FTH_OK;
    }
    return fth_fail_choice("augmentation", name, fth_augmentation_choice);
}

fth_recipe fth_augment_choose(const fth_augmentation *augmentation, uint64_t seed, int64_t epoch, int64_t sample)
{
    const int padding = augmentation->crop_padding;
    fth_recipe recipe = {.sample = (int32_t)sample};
    if (!augmentation->flip && padding == 0)
        return recipe;
    fth_random_key key = fth_augment_key(seed, epoch, sample);
    recipe.flip = augmentation->flip && (fth_random_bits(key, 0) & 1);
    if (padding > 0) {
        recipe.down = (int16_t)((int)fth_random_below(key, 1, 2 * (uint64_t)padding + 1) - padding);
        recipe.right = (int16_t)((int)fth_random_below(key, 2, 2 * (uint64_t)padding + 1) - padding);
    }
    return recipe;
}

void fth_dataset_normalization(const fth_dataset_info *info, int channel, float *scale, float *shift)
{
    const fth_normalization *normalization = &info->normalization;
    *scale = 1.0f / (255.0f * normalization->deviation[channel]);
    *shift = -normalization->mean[channel] / normalization->deviation[channel];
}

static void follow(const fth_dataset_info *info, const fth_recipe *recipe, const uint8_t *pixels, float *image)
{
    int height = info->height, width = info->width;
    int area = height * width, down = recipe->down, right = recipe->right;
    bool flip = recipe->flip;

    for (int channel = 0; channel < info->channels; channel++) {
        float scale, shift;
        fth_dataset_normalization(info, channel, &scale, &shift);
        const uint8_t *source = pixels + (int64_t)channel * area;
        float *out = image + (int64_t)channel * area;
        if (!flip && down == 0 && right == 0) {
            normalize(source, (size_t)area, scale, shift, out);
            continue;
        }
        for (int y = 0; y < height; y++) {
            int from = y + down;
            if (from >= 0 && from < height) {
                write_row(source + (int64_t)from * width, width, right, flip, scale, shift, out + (int64_t)y * width);
            } else {
                for (int x = 0; x < width; x++)
                    out[(int64_t)y * width + x] = shift;
            }
        }
    }
}

void fth_augment(const fth_dataset_info *info, const fth_augmentation *augmentation, uint64_t seed, int64_t epoch,
                 int64_t sample, const uint8_t *pixels, float *image)
{
    const fth_recipe recipe = fth_augment_choose(augmentation, seed, epoch, sample);
    follow(info, &recipe, pixels, image);
}

fth_status fth_dataset_make_images(const fth_dataset *dataset, fth_split split, const fth_recipe *recipes,
                                   int64_t count, float *images)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    size_t size = fth_image_bytes(info);
    uint8_t *scratch = NULL;

    FTH_TRY(fth_allocate(size, 1, &scratch));
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *pixels;
        int32_t label;
        FTH_TRY(fth_dataset_look(dataset, split, recipes[i].sample, scratch, &pixels, &label));
        follow(info, &recipes[i], pixels, images + (size_t)i * size);
    }

out:
    free(scratch);
    return status;
}
