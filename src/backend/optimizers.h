/* The list of optimizers: from it every back end makes the loops of its updates, and the trainer
 * its choices. A new one is its file, optimizers/NAME.h, and its row here; no back end is edited.
 * The file has
 *
 *     FTH_RULES_OF_NAME(RULE)           RULE(name, vectors) for each rule: most optimizers have one, of their own name.
 *                                       Several spare the loops a question whose answer is the same for all parameters
 *
 * and for each rule
 *
 *     fth_NAME_numbers                  what is the same for all parameters of an update
 *     fth_NAME_prepare(arguments, n)    computes that, on the host
 *     fth_NAME(n, g, p, first, second)  updates the parameter *p by the gradient g, which is scaled already, and its
 *                                       numbers in the optimizer's vectors, of which a rule has up to two
 *
 * and what the trainer must know, FTH_OPTIMIZER(NAME, ...), see fth_optimizer in update.h. */
#ifndef FTH_BACKEND_OPTIMIZERS_H
#define FTH_BACKEND_OPTIMIZERS_H

#include "backend/optimizers/adamw.h"
#include "backend/optimizers/sgd.h"

/* In the order of --help. */
#define FTH_OPTIMIZERS(ROW, argument)                                                                                  \
    ROW(sgd, argument)                                                                                                 \
    ROW(adamw, argument)

/* All rules: RULE(name, vectors). */
#define FTH_RULES_OF(optimizer, RULE) FTH_RULES_OF_##optimizer(RULE)
#define FTH_UPDATE_RULES(RULE)        FTH_OPTIMIZERS(FTH_RULES_OF, RULE)

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
