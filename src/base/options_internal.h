/* What the files of the options engine share: options.c holds values, options_flags.c and
 * options_yaml.c read them, options_help.c prints the table. */
#ifndef FTH_BASE_OPTIONS_INTERNAL_H
#define FTH_BASE_OPTIONS_INTERNAL_H

#include "base/options.h"

/* The option name nearest to `name` among those that are taken, or NULL. */
const char *fth_options_nearest(const fth_option_table *table, const char *name);

/* True if `text` is a word for yes or no; *value is then which. */
bool fth_options_parse_switch(const char *text, bool *value);

#endif
