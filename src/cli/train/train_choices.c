/* The training options of the program: the table of src/train, completed with choices that higher
 * folders define: strategies, transports, consistency and compression. */
#include <string.h>

#include "cli/cli.h"
#include "collective/transport.h"
#include "parallel/parallel.h"
#include "parameters/client.h"
#include "parameters/parameters.h"

static fth_choice choose_strategy(size_t index)
{
    const fth_strategy *strategy = fth_strategies[index];
    return strategy ? (fth_choice){strategy->name, strategy->summary} : (fth_choice){0};
}

static fth_choice choose_transport(size_t index)
{
    if (index == 0)
        return (fth_choice){"auto", "by where the workers are"};
    const fth_transport *transport = fth_transports[index - 1];
    return transport ? (fth_choice){transport->name, transport->summary} : (fth_choice){0};
}

/* Rows that are plain text to src/train. */
static const struct {
    const char *name;
    fth_choices list;
    fth_status (*check)(const char *text);
} known[] = {
    {"strategy", choose_strategy, NULL},
    {"transport", choose_transport, NULL},
    {"consistency", fth_consistency_choice, fth_consistency_check},
    {"compress", fth_compression_choice, fth_compression_check},
};

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
    for (size_t i = 0; i < FTH_COUNT_OF(known); i++) {
        fth_option *row = find_row(rows, known[i].name);
        row->type = FTH_OPTION_CHOICE;
        row->list = known[i].list;
        row->check = known[i].check;
    }
    table = fth_train_option_table;
    table.options = rows;
    return &table;
}
