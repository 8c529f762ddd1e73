/* The options of training as the program takes them: the table of src/train, with what folders below it in the house
 * know of a row. Those are the strategies, and how a parameter server keeps its workers together. */
#include <string.h>

#include "cli/cli.h"
#include "parallel/parallel.h"
#include "parameters/parameters.h"

static fth_choice choose_strategy(size_t index)
{
    const fth_strategy *strategy = fth_strategies[index];
    return strategy ? (fth_choice){strategy->name, strategy->summary} : (fth_choice){0};
}

fth_status fth_cli_check_consistency(const char *text)
{
    fth_consistency parsed;
    return fth_consistency_parse(text, &parsed);
}

static fth_option *find_row(fth_option *rows, const char *name)
{
    return &rows[fth_options_find(&fth_train_option_table, name) - fth_train_option_table.options];
}

const fth_option_table *fth_cli_train_table(void)
{
    static fth_option rows[FTH_MAX_OPTIONS];
    static fth_option_table table;
    if (table.options) /* made before; the program reads its flags in one thread */
        return &table;
    memcpy(rows, fth_train_option_table.options, fth_train_option_table.count * sizeof *rows);
    fth_option *strategy = find_row(rows, "strategy");
    strategy->type = FTH_OPTION_CHOICE;
    strategy->list = choose_strategy;
    find_row(rows, "consistency")->check = fth_cli_check_consistency;
    table = fth_train_option_table;
    table.options = rows;
    return &table;
}
