/* See array_set.h. The pixels of arrays stay the caller's. Labels and names are copied, so that a
 * label stays valid once it is checked. */
#include "data/array/array_set.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/loader/loader.h"

enum { MOST_MEASURED = 2000 /* images used to measure the normalization */, MOST_CLASSES = 1 << 20 };

static void free_set(void *state)
{
    fth_array_set *set = state;
    if (!set)
        return;
    for (int i = 0; i < set->blob_count; i++)
        fth_blob_free(&set->blobs[i]);
    free(set->labels[FTH_TRAIN]);
    free(set->labels[FTH_VALIDATION]);
    free(set->class_name_text);
    free(set->class_names);
    free(set);
}

/* ---- samples ---- */

static const fth_segment *find_segment(const fth_dataset *dataset, fth_split split, int64_t *index)
{
    const fth_array_set *set = dataset->state;
    *index = fth_held_out_place(&dataset->held_out, split, *index);
    const fth_segment *segment = set->parts[dataset->held_out.any ? FTH_TRAIN : split].segments;
    for (; *index >= segment->count; segment++)
        *index -= segment->count;
    return segment;
}

static int32_t label_of(const fth_segment *segment, int64_t index)
{
    return segment->wide_labels ? segment->wide_labels[index] : segment->labels[(size_t)index * segment->label_stride];
}

static int32_t find_label(const fth_dataset *dataset, fth_split split, int64_t index)
{
    const fth_segment *segment = find_segment(dataset, split, &index);
    return label_of(segment, index);
}

static fth_status look(const fth_dataset *dataset, fth_split split, int64_t index, uint8_t *scratch,
                       const uint8_t **pixels, int32_t *label)
{
    const fth_segment *segment = find_segment(dataset, split, &index);
    (void)scratch;
    *pixels = segment->pixels + (size_t)index * segment->pixel_stride;
    *label = label_of(segment, index);
    return FTH_OK;
}

static fth_status add_version(const fth_dataset *dataset, fth_version_hash *hash)
{
    const fth_array_set *set = dataset->state;
    const size_t image_bytes = fth_raw_bytes(dataset);
    fth_version_add_shape(hash, dataset);
    for (int split = 0; split < 2; split++)
        for (int i = 0; i < set->parts[split].segment_count; i++) {
            const fth_segment *segment = &set->parts[split].segments[i];
            fth_version_add_number(hash, (uint64_t)segment->count);
            for (int64_t sample = 0; sample < segment->count; sample++) {
                fth_version_add_raw(hash, segment->pixels + (size_t)sample * segment->pixel_stride, image_bytes);
                if (segment->wide_labels)
                    fth_version_add_number(hash, (uint64_t)segment->wide_labels[sample]);
                else
                    fth_version_add_raw(hash, segment->labels + (size_t)sample * segment->label_stride, 1);
            }
        }
    return FTH_OK;
}

const fth_dataset_kind fth_dataset_kind_arrays = {.name = "arrays",
                                                  .free = free_set,
                                                  .label = find_label,
                                                  .look = look,
                                                  .add_version = add_version,
                                                  .check_loader = fth_image_loader_check,
                                                  .open_loader = fth_image_loader_open};

/* ---- filling a set ---- */

fth_status fth_array_set_create(fth_dataset *dataset, fth_array_set **set)
{
    fth_status status = fth_allocate(1, sizeof **set, set);
    if (status == FTH_OK) {
        dataset->kind = &fth_dataset_kind_arrays;
        dataset->state = *set;
    }
    return status;
}

void fth_array_set_keep(fth_array_set *set, fth_blob *blob)
{
    assert(set->blob_count < FTH_MAX_BLOBS);
    set->blobs[set->blob_count++] = *blob;
    *blob = (fth_blob){0};
}

void fth_array_set_use(fth_array_set *set, const fth_segment *segment, fth_dataset_info *info)
{
    set->parts[FTH_TRAIN] = (fth_part){.segments = {*segment}, .segment_count = 1};
    info->count[FTH_TRAIN] = segment->count;
}

fth_status fth_array_set_name_classes(fth_array_set *set, char *text, int most, int *count)
{
    char *rest = NULL;
    fth_status status = fth_allocate((size_t)most + 1, sizeof *set->class_names, &set->class_names);
    *count = 0;
    if (status != FTH_OK)
        return status;
    set->class_name_text = text;
    for (char *line = strtok_r(text, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
        if (*count == most) {
            *count = 0;
            return FTH_OK;
        }
        set->class_names[(*count)++] = line;
    }
    return FTH_OK;
}

fth_status fth_array_set_prepare(const fth_dataset_options *options, fth_dataset *dataset)
{
    const fth_dataset_info *info = &dataset->info;
    return fth_dataset_prepare(options,
                               &(fth_raw_images){.channels = info->channels,
                                                 .height = info->height,
                                                 .width = info->width,
                                                 .normalization = info->normalization},
                               dataset);
}

/* ---- arrays of the calling program ---- */

static fth_status check_arrays(const fth_image_arrays *arrays)
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

static fth_status copy_names(const fth_image_arrays *arrays, fth_array_set *set)
{
    fth_status status = FTH_OK;
    size_t size_bytes = 0;
    FILE *stream = open_memstream(&set->class_name_text, &size_bytes);

    for (int i = 0; stream && i < arrays->classes; i++) {
        if (arrays->class_names && !arrays->class_names[i]) {
            status = fth_fail(FTH_INVALID, "%s: class %d has no name", arrays->name, i);
            break;
        }
        if (arrays->class_names)
            fprintf(stream, "%s%c", arrays->class_names[i], '\0');
        else
            fprintf(stream, "%d%c", i, '\0');
    }
    bool whole = stream && fclose(stream) == 0;
    if (status != FTH_OK)
        goto out;
    FTH_REQUIRE(whole, FTH_NO_MEMORY, "no memory for the names of classes");
    FTH_TRY(fth_allocate((size_t)arrays->classes, sizeof *set->class_names, &set->class_names));
    const char *name = set->class_name_text;
    for (int i = 0; i < arrays->classes; i++, name += strlen(name) + 1)
        set->class_names[i] = name;

out:
    return status;
}

/* Mean and deviation of each channel, over evenly spaced training images. */
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
        measured.deviation[c] = variance > 1 ? (float)(sqrt(variance) / 255) : 1; /* a uniform channel stays uniform */
    }
    return measured;
}

fth_status fth_dataset_create(const fth_image_arrays *arrays, const fth_dataset_options *options, fth_dataset **dataset)
{
    fth_status status = FTH_OK;
    fth_dataset *created = NULL;
    fth_array_set *set = NULL;

    FTH_TRY(check_arrays(arrays));
    FTH_TRY(fth_allocate(1, sizeof *created, &created));
    FTH_TRY(fth_array_set_create(created, &set));
    FTH_TRY(copy_names(arrays, set));
    created->info = (fth_dataset_info){.name = arrays->name,
                                       .classes = arrays->classes,
                                       .class_names = set->class_names,
                                       .channels = arrays->channels,
                                       .height = arrays->height,
                                       .width = arrays->width};
    for (int split = 0; split < 2; split++) {
        const fth_image_array *part = &arrays->parts[split];
        FTH_TRY(copy_labels(arrays, split, &set->labels[split]));
        created->info.count[split] = part->count;
        set->parts[split] = (fth_part){.segments = {{.pixels = part->pixels,
                                                     .pixel_stride = fth_image_bytes(&created->info),
                                                     .count = part->count,
                                                     .wide_labels = set->labels[split]}},
                                       .segment_count = 1};
    }
    created->info.normalization = measure(arrays);
    if (created->info.count[FTH_VALIDATION] == 0 && !options->whole)
        FTH_TRY(fth_dataset_hold_out(options, arrays->name, created));
    FTH_TRY(fth_array_set_prepare(options, created));
    *dataset = created;
    created = NULL;

out:
    fth_dataset_free(created);
    return status;
}
