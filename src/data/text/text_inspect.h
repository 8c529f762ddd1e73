/* Inspecting sets of text, for `farthing data`. */
#ifndef FTH_DATA_TEXT_INSPECT_H
#define FTH_DATA_TEXT_INSPECT_H

#include "data/data.h"
#include "text/tokenizer.h"

/* Numbers of tokens, with special ones. */
typedef struct fth_length_facts {
    uint32_t least, median, high, most; /* high: 95 % are not longer */
    double mean;
} fth_length_facts;

/* A sample to show; its pointers belong to the set. */
typedef struct fth_shown_text {
    fth_text_pair text;
    int32_t label;
    const float *targets; /* NULL where labels are classes */
} fth_shown_text;

typedef struct fth_text_inspection {
    fth_length_facts lengths; /* without cutting */
    int64_t cut;              /* samples that are cut */
    int64_t tokens;           /* of all samples, after cutting */
    int64_t unknown;          /* tokens that are not in the vocabulary */
    int64_t unknown_samples;  /* samples that have some */
    int64_t empty;            /* samples without text */
    int64_t pairs;
    int64_t shared;              /* validation samples whose text is also a training sample's */
    int64_t *class_counts[2];    /* by split: (classes); NULL if labels are numbers */
    double *least, *mean, *most; /* (classes) over both splits, if labels are numbers; else NULL */
    fth_shown_text *samples;     /* (sample_count) training samples of every class */
    int sample_count;
} fth_text_inspection;

/* For a set opened with keep_text. Chooses `shown` samples of each of up to 20 classes. Release
 * *inspection in any case. */
fth_status fth_text_set_inspect(const fth_dataset *dataset, int shown, fth_text_inspection *inspection);
void fth_text_inspection_release(fth_text_inspection *inspection);

#endif
