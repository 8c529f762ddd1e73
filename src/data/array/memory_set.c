/* Data sets from arrays that a program has in memory. Pixels stay where they are; labels and names
 * are copied, so that a label checked once stays valid. */
#include <math.h>
#include <stdlib.h>

#include "data/data_internal.h"
#include "data/image/transform.h"

enum { MOST_MEASURED = 2000 /* images from which the normalization is measured */, MOST_CLASSES = 1 << 20 };

struct fth_memory_set {
    const uint8_t *pixels[2]; /* by fth_split; the caller's */
    int32_t *labels[2];
    char **names; /* (classes), or NULL */
    int classes;
};

void fth_memory_set_free(fth_memory_set *set)
{
    if (!set)
        return;
    for (int i = 0; set->names && i < set->classes; i++)
        free(set->names[i]);
    free(set->names);
    free(set->labels[FTH_TRAIN]);
    free(set->labels[FTH_VALIDATION]);
    free(set);
}

void fth_memory_set_look(const fth_memory_set *set, fth_split split, int64_t index, size_t image_bytes,
                         const uint8_t **pixels, int32_t *label)
{
    *pixels = set->pixels[split] + (size_t)index * image_bytes;
    *label = set->labels[split][index];
}

static fth_status check_form(const fth_image_arrays *arrays)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(arrays->channels >= 1 && arrays->channels <= FTH_MAX_CHANNELS, FTH_INVALID,
                "%s: images of %s; 1 to %d are possible", arrays->name, FTH_COUNTED(arrays->channels, "channel"),
                FTH_MAX_CHANNELS);
    FTH_REQUIRE(arrays->height >= 1 && arrays->height <= FTH_MAX_OUTPUT_SIDE && arrays->width >= 1 &&
                    arrays->width <= FTH_MAX_OUTPUT_SIDE,
                FTH_INVALID, "%s: images of %d × %d pixels; 1 to %d on each side are possible", arrays->name,
                arrays->height, arrays->width, FTH_MAX_OUTPUT_SIDE);
    FTH_REQUIRE(arrays->classes >= 2 && arrays->classes <= MOST_CLASSES, FTH_INVALID, "%s: %s; 2 to %d are possible",
                arrays->name, FTH_COUNTED(arrays->classes, "class"), MOST_CLASSES);
    FTH_REQUIRE(arrays->parts[FTH_TRAIN].count >= 1, FTH_INVALID, "%s: no training images", arrays->name);

out:
    return status;
}

static fth_status copy_labels(const fth_image_arrays *arrays, fth_split split, int32_t **labels)
{
    const fth_image_array *part = &arrays->parts[split];
    if (part->count == 0)
        return FTH_OK;
    if (part->count < 0 || !part->pixels || !part->labels)
        return fth_fail(FTH_INVALID, "%s: pixels, labels or a count are missing", arrays->name);
    fth_status status = fth_allocate((size_t)part->count, sizeof **labels, labels);
    for (int64_t i = 0; status == FTH_OK && i < part->count; i++) {
        if (part->labels[i] < 0 || part->labels[i] >= arrays->classes)
            return fth_fail(FTH_INVALID, "%s: label %d of %s image %lld is not in 0 to %d", arrays->name,
                            (int)part->labels[i], split == FTH_TRAIN ? "training" : "validation", (long long)i,
                            arrays->classes - 1);
        (*labels)[i] = part->labels[i];
    }
    return status;
}

static fth_status copy_names(const fth_image_arrays *arrays, fth_memory_set *set)
{
    fth_status status = fth_allocate((size_t)arrays->classes, sizeof *set->names, &set->names);
    set->classes = arrays->classes;
    for (int i = 0; status == FTH_OK && i < arrays->classes; i++) {
        if (arrays->class_names && !arrays->class_names[i])
            return fth_fail(FTH_INVALID, "%s: class %d has no name", arrays->name, i);
        set->names[i] = arrays->class_names ? fth_format("%s", arrays->class_names[i]) : fth_format("%d", i);
        if (!set->names[i])
            return fth_fail(FTH_NO_MEMORY, "no memory for the names of classes");
    }
    return status;
}

/* Mean and deviation of each channel over training images, evenly spread. */
static fth_normalization measure(const fth_image_arrays *arrays)
{
    fth_normalization measured = {.channels = arrays->channels};
    const fth_image_array *part = &arrays->parts[FTH_TRAIN];
    const size_t area = (size_t)arrays->height * (size_t)arrays->width;
    const int64_t step = (part->count + MOST_MEASURED - 1) / MOST_MEASURED;
    for (int c = 0; c < arrays->channels; c++) {
        double sum = 0, squares = 0, count = 0;
        for (int64_t i = 0; i < part->count; i += step) {
            const uint8_t *plane = part->pixels + ((size_t)i * (size_t)arrays->channels + (size_t)c) * area;
            uint64_t plane_sum = 0, plane_squares = 0;
            for (size_t j = 0; j < area; j++) {
                plane_sum += plane[j];
                plane_squares += (uint64_t)plane[j] * plane[j];
            }
            sum += (double)plane_sum;
            squares += (double)plane_squares;
            count += (double)area;
        }
        double mean = sum / count, variance = squares / count - mean * mean;
        measured.mean[c] = (float)(mean / 255);
        measured.deviation[c] = variance > 1 ? (float)(sqrt(variance) / 255) : 1; /* an even channel stays even */
    }
    return measured;
}

fth_status fth_memory_set_create(const fth_image_arrays *arrays, fth_dataset_info *info, fth_memory_set **result)
{
    fth_status status = FTH_OK;
    fth_memory_set *set = NULL;

    FTH_TRY(check_form(arrays));
    FTH_TRY(fth_allocate(1, sizeof *set, &set));
    FTH_TRY(copy_names(arrays, set));
    for (int split = 0; split < 2; split++) {
        FTH_TRY(copy_labels(arrays, split, &set->labels[split]));
        set->pixels[split] = arrays->parts[split].pixels;
    }
    *info = (fth_dataset_info){.name = arrays->name,
                               .classes = arrays->classes,
                               .class_names = (const char *const *)set->names,
                               .channels = arrays->channels,
                               .height = arrays->height,
                               .width = arrays->width,
                               .count = {arrays->parts[FTH_TRAIN].count, arrays->parts[FTH_VALIDATION].count},
                               .normalization = measure(arrays)};
    *result = set;
    set = NULL;

out:
    fth_memory_set_free(set);
    return status;
}
