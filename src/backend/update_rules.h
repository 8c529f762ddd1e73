/* Every rule by which parameters are updated. A new one is its functions in optimizers/NAME.h and its row here:
 *
 *     fth_NAME_numbers                  what is the same for all parameters of an update
 *     fth_NAME_prepare(arguments, n)    computes that, on the host
 *     fth_NAME(n, g, p, first, second)  updates the parameter *p by the gradient g, which is scaled already, and its
 *                                       numbers in the optimizer's vectors, of which a rule has up to two
 *
 * An optimizer may have several rules, so that none asks in its loop what holds for all parameters. */
#ifndef FTH_BACKEND_UPDATE_RULES_H
#define FTH_BACKEND_UPDATE_RULES_H

#include "backend/optimizers/adamw.h"
#include "backend/optimizers/sgd.h"

/* Name and number of vectors. */
#define FTH_UPDATE_RULES(RULE)                                                                                         \
    RULE(sgd, 0)                                                                                                       \
    RULE(sgd_momentum, 1)                                                                                              \
    RULE(sgd_nesterov, 1)                                                                                              \
    RULE(adamw, 2)

typedef enum fth_update_rule {
#define FTH_ROW(name, vectors) FTH_UPDATE_RULE_##name,
    FTH_UPDATE_RULES(FTH_ROW)
#undef FTH_ROW
} fth_update_rule;

/* The numbers of any rule. */
typedef union fth_update_numbers {
#define FTH_ROW(name, vectors) fth_##name##_numbers name;
    FTH_UPDATE_RULES(FTH_ROW)
#undef FTH_ROW
} fth_update_numbers;

static inline void fth_update_prepare(fth_update_rule rule, const fth_update_arguments *arguments,
                                      fth_update_numbers *numbers)
{
    switch (rule) {
#define FTH_ROW(name, vectors)                                                                                         \
    case FTH_UPDATE_RULE_##name: fth_##name##_prepare(arguments, &numbers->name); break;
        FTH_UPDATE_RULES(FTH_ROW)
#undef FTH_ROW
    }
}

#endif
