/* What must be the same on every node: the first member's text, with which those of the others are
 * compared. */
#ifndef FTH_CLUSTER_AGREEMENT_H
#define FTH_CLUSTER_AGREEMENT_H

#include "base/base.h"

typedef struct fth_agreement {
    char *text, *node; /* the first member's, and its node; NULL: none yet */
} fth_agreement;

/* Makes `text` the one to compare with. */
fth_status fth_agreement_set(fth_agreement *agreement, const char *text, const char *node);
void fth_agreement_release(fth_agreement *agreement);
/* NULL if `text` is the same; else the differences: "batch is 64 on a and 32 on b". The texts are
 * JSON objects; any other text is compared as a whole. free() it. */
char *fth_agreement_difference(const fth_agreement *agreement, const char *text, const char *node);

#endif
