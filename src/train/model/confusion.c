/* See confusion.h. Pairs are collected as they come, one number each, and sorted on
 * request: a cell of the matrix is then a run of equal numbers. */
#include "train/model/confusion.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"

struct fth_confusion {
    int classes;
    char **names;
    uint64_t *pairs; /* label << 32 | prediction */
    size_t count, capacity;
    bool sorted;
    int64_t *samples, *predicted, *correct; /* by class */
};

fth_status fth_confusion_create(int classes, const char *const *names, fth_confusion **result)
{
    fth_status status = FTH_OK;
    fth_confusion *confusion = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *confusion, &confusion));
    confusion->classes = classes;
    FTH_TRY(fth_allocate((size_t)classes, sizeof *confusion->names, &confusion->names));
    for (int i = 0; i < classes; i++) {
        confusion->names[i] = fth_format("%s", names[i]);
        FTH_REQUIRE(confusion->names[i], FTH_NO_MEMORY, "no memory for the names of %d classes", classes);
    }
    FTH_TRY(fth_allocate((size_t)classes, sizeof(int64_t), &confusion->samples));
    FTH_TRY(fth_allocate((size_t)classes, sizeof(int64_t), &confusion->predicted));
    FTH_TRY(fth_allocate((size_t)classes, sizeof(int64_t), &confusion->correct));
    *result = confusion;
    confusion = NULL;

out:
    fth_confusion_free(confusion);
    return status;
}

void fth_confusion_free(fth_confusion *confusion)
{
    if (!confusion)
        return;
    for (int i = 0; confusion->names && i < confusion->classes; i++)
        free(confusion->names[i]);
    free(confusion->names);
    free(confusion->pairs);
    free(confusion->samples);
    free(confusion->predicted);
    free(confusion->correct);
    free(confusion);
}

static int find_largest(const float *row, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++)
        best = row[i] > row[best] ? i : best;
    return best;
}

fth_status fth_confusion_add(fth_confusion *confusion, const int32_t *labels, const float *logits, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        int prediction = find_largest(logits + i * confusion->classes, confusion->classes);
        assert(labels[i] >= 0 && labels[i] < confusion->classes);
        fth_status status =
            fth_grow(&confusion->pairs, confusion->count, &confusion->capacity, sizeof *confusion->pairs);
        if (status != FTH_OK)
            return status;
        confusion->pairs[confusion->count++] = (uint64_t)labels[i] << 32 | (uint64_t)prediction;
        confusion->samples[labels[i]]++;
        confusion->predicted[prediction]++;
        confusion->correct[prediction] += prediction == labels[i];
    }
    confusion->sorted = false;
    return FTH_OK;
}

int fth_confusion_classes(const fth_confusion *confusion)
{
    return confusion->classes;
}

const char *fth_confusion_name(const fth_confusion *confusion, int label)
{
    return confusion->names[label];
}

/* ---- cells ---- */

static int compare_pairs(const void *a, const void *b)
{
    uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;
    return (first > second) - (first < second);
}

static void sort(fth_confusion *confusion)
{
    if (!confusion->sorted && confusion->count > 0)
        qsort(confusion->pairs, confusion->count, sizeof *confusion->pairs, compare_pairs);
    confusion->sorted = true;
}

/* The first place whose pair is not below `pair`. */
static size_t find_place(const fth_confusion *confusion, uint64_t pair)
{
    size_t low = 0, high = confusion->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (confusion->pairs[middle] < pair)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t fth_confusion_count(fth_confusion *confusion, int label, int prediction)
{
    uint64_t pair = (uint64_t)label << 32 | (uint64_t)prediction;
    sort(confusion);
    return (int64_t)(find_place(confusion, pair + 1) - find_place(confusion, pair));
}

/* Keeps `mistakes` sorted, most frequent first; earlier labels first among equals, since they come
 * in that order. */
static size_t insert(fth_mistake *mistakes, size_t count, size_t room, fth_mistake found)
{
    size_t at = count;
    while (at > 0 && mistakes[at - 1].count < found.count)
        at--;
    if (at == room)
        return count;
    size_t kept = count < room ? count : room - 1;
    for (size_t i = kept; i > at; i--)
        mistakes[i] = mistakes[i - 1];
    mistakes[at] = found;
    return kept + 1;
}

size_t fth_confusion_worst(fth_confusion *confusion, fth_mistake *mistakes, size_t room)
{
    size_t found = 0;
    sort(confusion);
    for (size_t i = 0, end; i < confusion->count; i = end) {
        uint64_t pair = confusion->pairs[i];
        for (end = i + 1; end < confusion->count && confusion->pairs[end] == pair; end++)
            continue;
        fth_mistake one = {(int)(pair >> 32), (int)(pair & UINT32_MAX), (int64_t)(end - i)};
        if (one.label != one.prediction && room > 0)
            found = insert(mistakes, found, room, one);
    }
    return found;
}

/* ---- scores ---- */

fth_class_score fth_confusion_score(const fth_confusion *confusion, int label)
{
    fth_class_score score = {.samples = confusion->samples[label],
                             .predicted = confusion->predicted[label],
                             .correct = confusion->correct[label]};
    score.precision = score.predicted > 0 ? (double)score.correct / (double)score.predicted : NAN;
    score.recall = score.samples > 0 ? (double)score.correct / (double)score.samples : NAN;
    score.f1 = score.samples > 0 ? 2 * (double)score.correct / (double)(score.samples + score.predicted) : NAN;
    return score;
}

fth_class_score fth_confusion_mean_score(const fth_confusion *confusion)
{
    fth_class_score mean = {0};
    int known = 0;
    for (int i = 0; i < confusion->classes; i++) {
        fth_class_score score = fth_confusion_score(confusion, i);
        mean.samples += score.samples;
        mean.predicted += score.predicted;
        mean.correct += score.correct;
        if (score.samples == 0)
            continue;
        known++;
        mean.precision += isnan(score.precision) ? 0 : score.precision;
        mean.recall += score.recall;
        mean.f1 += score.f1;
    }
    mean.precision = known > 0 ? mean.precision / known : NAN;
    mean.recall = known > 0 ? mean.recall / known : NAN;
    mean.f1 = known > 0 ? mean.f1 / known : NAN;
    return mean;
}
