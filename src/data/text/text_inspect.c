/* See text_inspect.h. */
#include "data/text/text_inspect.h"

#include <stdlib.h>

#include "base/hash.h"
#include "data/text/text_set.h"

enum { SHOWN_CLASSES = 20 };

void fth_text_inspection_release(fth_text_inspection *inspection)
{
    free(inspection->class_counts[0]);
    free(inspection->class_counts[1]);
    free(inspection->least);
    free(inspection->mean);
    free(inspection->most);
    free(inspection->samples);
    *inspection = (fth_text_inspection){0};
}

static int compare_lengths(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

static int compare_hashes(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static fth_length_facts describe_lengths(uint32_t *lengths, int64_t count)
{
    double sum = 0;
    qsort(lengths, (size_t)count, sizeof *lengths, compare_lengths);
    for (int64_t i = 0; i < count; i++)
        sum += lengths[i];
    return (fth_length_facts){.least = lengths[0],
                              .median = lengths[count / 2],
                              .high = lengths[(count - 1) * 95 / 100],
                              .most = lengths[count - 1],
                              .mean = sum / (double)count};
}

static uint64_t hash_text(const fth_text_pair *text)
{
    uint64_t hash = fth_hash(text->first, text->first_bytes, 1);
    return text->second ? fth_hash(text->second, text->second_bytes, hash) : hash;
}

/* ---- texts ---- */

typedef struct text_look {
    const fth_dataset *dataset;
    fth_text_inspection *found;
    uint32_t *lengths; /* of both splits */
    uint64_t *hashes;  /* of the training texts */
    int64_t at;
    fth_token_list uncut;
} text_look;

static fth_status look_at_sample(text_look *look, fth_split split, int64_t index)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(look->dataset);
    const fth_text_sample sample = fth_text_set_get(look->dataset->state, split, index);
    const int unknown = fth_tokenizer_get_special(info->text.tokenizer).unknown;
    fth_text_inspection *found = look->found;
    fth_text_pair text = {0};
    size_t first = 0;
    int64_t here = 0;

    FTH_REQUIRE(fth_text_set_get_text(look->dataset->state, split, index, &text), FTH_INVALID,
                "%s was opened without its text", info->name);
    look->uncut.count = 0;
    FTH_TRY(fth_tokenizer_encode(info->text.tokenizer, &text, 0, &look->uncut, &first));
    for (uint32_t i = 0; i < sample.count; i++)
        here += sample.tokens[i] == unknown;
    found->tokens += sample.count;
    found->unknown += here;
    found->unknown_samples += here > 0;
    found->cut += look->uncut.count > sample.count;
    found->empty += text.first_bytes == 0 && text.second_bytes == 0;
    found->pairs += text.second != NULL;
    look->lengths[look->at++] = (uint32_t)look->uncut.count;
    const uint64_t hash = hash_text(&text);
    if (split == FTH_TRAIN)
        look->hashes[index] = hash;
    else
        found->shared +=
            bsearch(&hash, look->hashes, (size_t)info->count[FTH_TRAIN], sizeof hash, compare_hashes) != NULL;

out:
    return status;
}

static fth_status look_at_texts(const fth_dataset *dataset, fth_text_inspection *found)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    const int64_t count = info->count[FTH_TRAIN] + info->count[FTH_VALIDATION];
    text_look look = {.dataset = dataset, .found = found};

    FTH_TRY(fth_allocate((size_t)count, sizeof *look.lengths, &look.lengths));
    FTH_TRY(fth_allocate((size_t)info->count[FTH_TRAIN], sizeof *look.hashes, &look.hashes));
    for (int split = 0; split < 2; split++) {
        for (int64_t i = 0; i < info->count[split]; i++)
            FTH_TRY(look_at_sample(&look, split, i));
        if (split == FTH_TRAIN)
            qsort(look.hashes, (size_t)info->count[FTH_TRAIN], sizeof *look.hashes, compare_hashes);
    }
    found->lengths = describe_lengths(look.lengths, count);

out:
    fth_token_list_release(&look.uncut);
    free(look.lengths);
    free(look.hashes);
    return status;
}

/* ---- labels ---- */

static fth_status count_classes(const fth_dataset *dataset, fth_text_inspection *found)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    for (int split = 0; split < 2; split++) {
        FTH_TRY(fth_allocate((size_t)info->classes, sizeof(int64_t), &found->class_counts[split]));
        for (int64_t i = 0; i < info->count[split]; i++) {
            const fth_text_sample sample = fth_text_set_get(dataset->state, split, i);
            if (!sample.targets)
                found->class_counts[split][sample.label]++;
            for (int k = 0; sample.targets && k < info->classes; k++)
                found->class_counts[split][k] += sample.targets[k] > 0;
        }
    }

out:
    return status;
}

static fth_status measure_numbers(const fth_dataset *dataset, fth_text_inspection *found)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    const size_t classes = (size_t)info->classes;
    const double all = (double)(info->count[FTH_TRAIN] + info->count[FTH_VALIDATION]);

    FTH_TRY(fth_allocate(classes, sizeof *found->least, &found->least));
    FTH_TRY(fth_allocate(classes, sizeof *found->mean, &found->mean));
    FTH_TRY(fth_allocate(classes, sizeof *found->most, &found->most));
    for (int split = 0; split < 2; split++)
        for (int64_t i = 0; i < info->count[split]; i++) {
            const float *targets = fth_text_set_get(dataset->state, split, i).targets;
            for (size_t k = 0; k < classes; k++) {
                const bool first = split == FTH_TRAIN && i == 0;
                found->least[k] = first || targets[k] < found->least[k] ? targets[k] : found->least[k];
                found->most[k] = first || targets[k] > found->most[k] ? targets[k] : found->most[k];
                found->mean[k] += targets[k] / all;
            }
        }

out:
    return status;
}

/* The first `shown` training samples of each of the first classes; if labels are numbers, the first
 * samples. */
static fth_status choose_samples(const fth_dataset *dataset, int shown, fth_text_inspection *found)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    const bool numbers = info->text.label == FTH_LABEL_NUMBER;
    const int classes = numbers ? 1 : info->classes < SHOWN_CLASSES ? info->classes : SHOWN_CLASSES;

    FTH_TRY(fth_allocate((size_t)classes * (size_t)shown, sizeof *found->samples, &found->samples));
    for (int class = 0; class < classes; class ++) {
        int taken = 0;
        for (int64_t i = 0; i < info->count[FTH_TRAIN] && taken < shown; i++) {
            const fth_text_sample sample = fth_text_set_get(dataset->state, FTH_TRAIN, i);
            if (!numbers && (sample.targets ? sample.targets[class] <= 0 : sample.label != class))
                continue;
            fth_shown_text *added = &found->samples[found->sample_count++];
            *added = (fth_shown_text){.label = sample.label, .targets = sample.targets};
            fth_text_set_get_text(dataset->state, FTH_TRAIN, i, &added->text);
            taken++;
        }
    }

out:
    return status;
}

fth_status fth_text_set_inspect(const fth_dataset *dataset, int shown, fth_text_inspection *inspection)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(dataset);

    *inspection = (fth_text_inspection){0};
    FTH_REQUIRE(info->modality == FTH_MODALITY_TEXT, FTH_INVALID, "%s has images", info->name);
    FTH_TRY(look_at_texts(dataset, inspection));
    if (info->text.label == FTH_LABEL_NUMBER)
        FTH_TRY(measure_numbers(dataset, inspection));
    else
        FTH_TRY(count_classes(dataset, inspection));
    FTH_TRY(choose_samples(dataset, shown, inspection));

out:
    return status;
}
