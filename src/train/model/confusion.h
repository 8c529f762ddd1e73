/* Which classes a model takes for which: counts of (label, prediction) over an evaluation. Memory
 * follows the samples and the classes, not the square of the classes. */
#ifndef FTH_TRAIN_CONFUSION_H
#define FTH_TRAIN_CONFUSION_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct fth_confusion fth_confusion;

/* `names`, of the classes, are copied. */
fth_status fth_confusion_create(int classes, const char *const *names, fth_confusion **confusion);
void fth_confusion_free(fth_confusion *confusion);

/* Adds samples: for each its label and the logits of all classes, (count, classes). The prediction
 * is the class of the largest logit, the first of equal ones, as when `correct` is counted. */
fth_status fth_confusion_add(fth_confusion *confusion, const int32_t *labels, const float *logits, int64_t count);

int fth_confusion_classes(const fth_confusion *confusion);
const char *fth_confusion_name(const fth_confusion *confusion, int label);
/* How often `label` was taken for `prediction`. */
int64_t fth_confusion_count(fth_confusion *confusion, int label, int prediction);

typedef struct fth_class_score {
    int64_t samples, predicted, correct; /* of this class; taken for it; both */
    double precision, recall, f1;        /* NAN where nothing was predicted, or there are no samples */
} fth_class_score;
fth_class_score fth_confusion_score(const fth_confusion *confusion, int label);
/* The mean over the classes that have samples; a precision that is not known counts as 0. Its
 * counts are sums. */
fth_class_score fth_confusion_mean_score(const fth_confusion *confusion);

typedef struct fth_mistake {
    int label, prediction;
    int64_t count;
} fth_mistake;
/* The most frequent ones first, as many as there is room for; gives how many. */
size_t fth_confusion_worst(fth_confusion *confusion, fth_mistake *mistakes, size_t room);

#endif
