/* Looking into sets of text: `farthing data inspect`. */
#ifndef FTH_DATA_TEXT_INSPECT_H
#define FTH_DATA_TEXT_INSPECT_H

#include "data/data.h"
#include "text/tokenizer.h"

/* Tokens of samples, special ones included. */
typedef struct fth_length_facts {
    uint32_t least, median, high, most; /* high: 95 % are no longer */
    double mean;
} fth_length_facts;

/* A sample to show; what it points to is the set's. */
typedef struct fth_shown_text {
    fth_text_pair text;
    int32_t label;
    const float *targets; /* NULL where labels are classes */
} fth_shown_text;

typedef struct fth_text_inspection {
    fth_length_facts lengths; /* as they would be uncut */
    int64_t cut;              /* samples that are longer than what is kept of them */
    int64_t tokens;           /* of all samples as they are used */
    int64_t unknown;          /* of these: not in the vocabulary */
    int64_t unknown_samples;  /* samples with some */
    int64_t empty;            /* samples without any text */
    int64_t pairs;
    int64_t shared;              /* validation samples whose text is among the training samples too */
    int64_t *class_counts[2];    /* by split: (classes); of numbers: NULL */
    double *least, *mean, *most; /* (classes) of numbers, over both splits; else NULL */
    fth_shown_text *samples;     /* (sample_count) training samples, some of every class */
    int sample_count;
} fth_text_inspection;

/* Of a set that was opened with keep_text; `shown` samples of each class are chosen, of 20 classes
 * at most. Release *inspection either way. */
fth_status fth_text_set_inspect(const fth_dataset *dataset, int shown, fth_text_inspection *inspection);
void fth_text_inspection_release(fth_text_inspection *inspection);

#endif
