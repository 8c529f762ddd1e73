/* Finds a strategy by name, and checks the given options against it. See strategy.h. */
#include "train/loop/strategy.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_STRATEGIES = 32 };

static bool takes_option(const fth_strategy *strategy, const char *option)
{
    for (const char *const *name = strategy->options; name && *name; name++)
        if (strcmp(*name, option) == 0)
            return true;
    return false;
}

/* "single, hogwild or parameter-server": the strategies that take `option`; all, if it is NULL.
 * free() it. */
static char *list_names(const fth_strategy *const *strategies, const char *option, const char *last_separator)
{
    char *text = NULL;
    for (const fth_strategy *const *at = strategies; *at; at++) {
        if (option && !takes_option(*at, option))
            continue;
        bool more = false;
        for (const fth_strategy *const *later = at + 1; *later; later++)
            more = more || !option || takes_option(*later, option);
        char *longer = fth_format("%s%s%s", text ? text : "", !text ? "" : more ? ", " : last_separator, (*at)->name);
        free(text);
        text = longer;
    }
    return text;
}

fth_status fth_strategy_find(const fth_strategy *const *strategies, const char *name, const fth_strategy **strategy)
{
    const char *names[MAX_STRATEGIES + 1] = {NULL};
    size_t count = 0;
    for (const fth_strategy *const *at = strategies; *at; at++) {
        *strategy = *at;
        if (strcmp((*at)->name, name) == 0)
            return FTH_OK;
        if (count < MAX_STRATEGIES)
            names[count++] = (*at)->name;
    }
    *strategy = NULL;
    const char *nearest = fth_nearest_name(name, names);
    if (nearest)
        return fth_fail(FTH_INVALID, "unknown strategy \"%s\"; did you mean %s?", name, nearest);
    char *known = list_names(strategies, NULL, ", ");
    fth_status status =
        fth_fail(FTH_INVALID, "unknown strategy \"%s\"; known strategies: %s", name, known ? known : "none");
    free(known);
    return status;
}

/* Rejects options that only other strategies take. */
static fth_status check_options(const fth_strategy *const *strategies, const fth_strategy *strategy,
                                const fth_train_options *options)
{
    for (const fth_strategy *const *at = strategies; *at; at++) {
        for (const char *const *name = (*at)->options; name && *name; name++) {
            if (takes_option(strategy, *name) || !fth_options_is_set(&fth_train_option_table, options, *name))
                continue;
            char *takers = list_names(strategies, *name, " or ");
            fth_status status = fth_fail(FTH_INVALID, "--%s needs --strategy %s", *name, takers ? takers : (*at)->name);
            free(takers);
            return status;
        }
    }
    return FTH_OK;
}

fth_status fth_strategy_choose(const fth_strategy *const *strategies, const fth_train_options *options,
                               const fth_strategy **strategy)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_strategy_find(strategies, options->strategy, strategy));
    FTH_TRY(check_options(strategies, *strategy, options));
    FTH_REQUIRE(!*options->store.checkpoints || (*strategy)->takes_checkpoints, FTH_INVALID,
                "the model is the server's: --checkpoints belongs to `farthing serve parameters`");
    if ((*strategy)->check)
        FTH_TRY((*strategy)->check(options));

out:
    return status;
}
