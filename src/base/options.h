/* Options, declared once: one table makes the flags, the YAML keys, --help, the checks and the
 * reference page.
 *
 * A table describes a struct: each row has a name, a type, where the value lives, a default and
 * help. Values come from the defaults, then a YAML file or a stored configuration, then flags;
 * later ones win. Errors name the file, the line and the nearest valid name. Commands may share a
 * table: each row says which of them take it, and flags, --help and the reference page follow. */
#ifndef FTH_BASE_OPTIONS_H
#define FTH_BASE_OPTIONS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum fth_option_type {
    FTH_OPTION_TEXT,     /* char *, owned by the struct; "" when not given */
    FTH_OPTION_INTEGER,  /* int64_t */
    FTH_OPTION_NUMBER,   /* double; within 0 to 1 it may also be written as a percentage, "10%" */
    FTH_OPTION_SWITCH,   /* bool; --name, --no-name, --name yes|no */
    FTH_OPTION_CHOICE,   /* char *, one of `choices` or `list` */
    FTH_OPTION_ENUM,     /* an enum: the index of the value in `choices` or `list` */
    FTH_OPTION_DURATION, /* double seconds, from "30s" */
    FTH_OPTION_AMOUNT,   /* fth_amount: "200", or a share, "6%" */
    FTH_OPTION_PERIOD,   /* fth_period: epochs, "2", "0.5" or "50%", or steps, "200steps" */
    FTH_OPTION_OPTIONAL  /* char *: a flag whose argument may be left out; then the value is "auto" */
} fth_option_type;

/* An absolute number, or a share of the total. */
typedef struct fth_amount {
    int64_t count;
    double share; /* above 0, up to 1: of all, instead of `count`; else 0 */
} fth_amount;
/* The number for a total of `all`; a share is rounded up. */
int64_t fth_amount_count(fth_amount amount, int64_t all);

/* Epochs, or steps. */
typedef struct fth_period {
    double epochs; /* may be a fraction */
    int64_t steps; /* above 0: instead of `epochs` */
} fth_period;
/* Whether a period ends with this step; the first step is 1. */
bool fth_period_ends(fth_period period, int64_t step, int64_t steps_per_epoch);

/* A valid value of an option, as listed by the table that implements it. */
typedef struct fth_choice {
    const char
        *name; /* or a form, "bounded:S": what comes after the colon is for fth_option.check. NULL: past the last */
    const char *summary; /* a few words; NULL: the name says it */
} fth_choice;
typedef fth_choice (*fth_choices)(size_t index);

typedef struct fth_option {
    const char *name;  /* "weight-decay"; YAML may also write weight_decay */
    const char *alias; /* another name for the same, in flags and YAML; NULL: none */
    fth_option_type type;
    size_t offset;
    const char *fallback; /* the default, as text; NULL: "", 0 or no */
    const char *argument; /* "N", "NAME|FOLDER": for help; completion offers files for FILE, folders for FOLDER, ... */
    const char *help;
    double minimum, maximum; /* numbers; both 0: any */
    /* CHOICE, ENUM: the valid values. TEXT: words that completion offers; `check` may allow
     * others. */
    const char *const *choices;            /* NULL-terminated; or */
    fth_choices list;                      /* a function that gives them one by one */
    fth_status (*check)(const char *text); /* optional further check; leaves a message saying what is valid */
    bool repeats;                          /* TEXT: a flag given again adds to the value, after a comma */
    bool lines;                            /* and after a newline instead, where values may have commas in them */
    char letter;                           /* 'n': -n N is the same; 0: none */
    bool address;                          /* TEXT: holds the public form of what was given (base/address.h) */
    bool identity;                         /* two runs whose values differ here are different runs */
    bool optional_identity;                /* added later: at its default it is left out of the identity, so that
                                              runs recorded before keep theirs */
    bool fixed;                            /* cannot change in the middle of a run */
    bool limit;                            /* limits how long a run takes: one given later replaces all of them */
    const char *group;                     /* heading in --help; NULL: as the row before */
    unsigned commands; /* which of the commands that share the table take it, as bits; 0: the first alone */
    int side;          /* for commands that are made of several processes: an enum of the table's owner */
} fth_option;

/* The beginning of a row: {FTH_OPTION_ROW("lr", NUMBER, train_options, lr), .fallback = "0.1"}. */
#define FTH_OPTION_ROW(flag, kind, type, member) FTH_OPTION_ROW_AT(flag, kind, offsetof(type, member))
#define FTH_OPTION_ROW_AT(flag, kind, at)        .name = flag, .type = FTH_OPTION_##kind, .offset = at

/* Which rows were set by a file or flag: the first member of every struct that a table
 * describes. */
enum { FTH_MAX_OPTIONS = 128 };
typedef struct fth_option_bits {
    uint64_t bits[FTH_MAX_OPTIONS / 64];
} fth_option_bits;

/* What a command takes of a table that it shares, as bits of fth_option.commands; all 0:
 * everything. */
typedef struct fth_option_view {
    unsigned command;  /* its own bit: what its help shows, and takes */
    unsigned unlisted; /* of which commands it takes options as well, without a place in its help */
} fth_option_view;

typedef struct fth_option_table {
    const fth_option *options;
    size_t count;
    size_t struct_size;
    /* Where several commands share the table: their names, bit 0 first, NULL at the end. NULL: one
     * command takes all. */
    const char *const *commands;
    fth_option_view view;
} fth_option_table;

/* A table of all `rows`, an array, for one command; `type` is the struct they describe. */
#define FTH_OPTION_TABLE(rows, type)                                                                                   \
    {                                                                                                                  \
        .options = rows, .count = sizeof(rows) / sizeof *(rows), .struct_size = sizeof(type)                           \
    }

/* The table as one of its commands sees it: other flags are an error that names the commands to use
 * them with. */
fth_option_table fth_options_for(const fth_option_table *table, fth_option_view view);
/* Does any of `commands` take the option? */
bool fth_options_is_for(const fth_option *option, unsigned commands);
/* Does the command of the table's view take it, and does its help list it? */
bool fth_options_is_taken(const fth_option_table *table, const fth_option *option);
bool fth_options_is_shown(const fth_option_table *table, const fth_option *option);
/* The row whose name or alias is `name`, where '_' counts as '-'; NULL if there is none. */
const fth_option *fth_options_find(const fth_option_table *table, const char *name);

/* The index-th value that the option can have; its name is NULL past the last. */
fth_choice fth_options_choice(const fth_option *option, size_t index);
/* Fails with all names of `list` and the one nearest to `text`; `subject` ("--optimizer",
 * "strategy") begins the message. */
fth_status fth_fail_choice(const char *subject, const char *text, fth_choices list);

/* Sets every value to its default. `values` is zeroed first; release it with
 * fth_options_release(). */
fth_status fth_options_set_defaults(const fth_option_table *table, void *values);
void fth_options_release(const fth_option_table *table, void *values);
/* Sets one value back to its default; whether it was given stays as it is. */
fth_status fth_options_reset(const fth_option *option, void *values);

/* Sets one value from text. `where` ("run.yaml line 3", "--lr") begins the message if it is
 * wrong. */
fth_status fth_options_set(const fth_option_table *table, void *values, const char *name, const char *text,
                           const char *where);

/* A YAML mapping of names to scalars. Nested mappings, lists, duplicate and unknown keys are
 * errors. Commands share files too: keys for others of the table's commands are valid. */
fth_status fth_options_read_yaml(const fth_option_table *table, void *values, const char *path);

/* Flags: --name value, --name=value, -n value, -nvalue, switches. Arguments that are not flags go
 * to `positional` in order (room for argc); a lone "--" ends flags. --help sets *help and stops. An
 * OPTIONAL flag takes the next argument unless that begins with '-' or ends in .yaml or .yml. */
fth_status fth_options_read_flags(const fth_option_table *table, void *values, int argc, char *const *argv,
                                  const char **positional, int *positional_count, bool *help);

/* True for options that were set by a file or flag. `values` must be the struct passed to the calls
 * above; the struct's first member must be `fth_option_bits set`. */
bool fth_options_is_set(const fth_option_table *table, const void *values, const char *name);

/* {"model": "mnist-cnn", "lr": 0.01, ...}: every option that the table's view takes; or only those
 * that make up the identity. */
json_t *fth_options_to_json(const fth_option_table *table, const void *values, bool identity_only);
/* Sets values from what fth_options_to_json made; unknown names are ignored with a warning (an
 * older or newer version wrote them). Does not mark them as given. */
fth_status fth_options_from_json(const fth_option_table *table, void *values, const json_t *json, const char *where);

/* A SHA-256 over the identity options, as 16 hex digits plus NUL. */
void fth_options_identity(const fth_option_table *table, const void *values, char identity[17]);

/* Prints words from column `left` on, where the cursor is; lines break before FTH_HELP_COLUMNS and
 * continue there. What stands between square brackets stays on one line. */
enum { FTH_HELP_COLUMNS = 80 };
void fth_print_wrapped(const char *text, size_t left);

/* Prints the options as --help shows them, or as a Markdown table for the reference page. */
void fth_options_print_help(const fth_option_table *table);
void fth_options_print_markdown(const fth_option_table *table);

/* The candidate nearest to `name` by edit distance, or else one that `name` begins ("optim":
 * "optimizer") or that begins it ("batch-size": "batch"); NULL if there is none. `candidates` ends
 * with NULL. */
const char *fth_nearest_name(const char *name, const char *const *candidates);

#endif
