/* program.c owns a program; read.c makes it from JSON (json_text.c), with dimension.c for sizes,
 * argument.c for arguments, mutations.c for buffers that change, and where.c for the user's lines;
 * bind.c finds the data of its values. write.c makes JSON of it, inline_data.c the data in that. */
#ifndef FTH_EXPORTED_PROGRAM_INTERNAL_H
#define FTH_EXPORTED_PROGRAM_INTERNAL_H

#include <jansson.h>

#include "exported/program.h"
#include "tensor/exported_archive.h"

enum { FTH_EXPORTED_MAX_NAME = 1000 };

/* Memory that is freed together, zeroed. */
typedef struct fth_exported_block fth_exported_block;
typedef struct fth_exported_arena {
    fth_exported_block *blocks;
    size_t used;
} fth_exported_arena;

fth_status fth_exported_take(fth_exported_arena *arena, size_t count, size_t size, void *pointer_to_pointer);
fth_status fth_exported_take_text(fth_exported_arena *arena, const char *text, size_t length, const char **copy);
void fth_exported_arena_release(fth_exported_arena *arena);

struct fth_exported {
    const void *mapping; /* of a file that was opened by its path */
    size_t mapping_size_bytes;
    char *origin;
    fth_exported_archive *archive; /* NULL for a text */
    fth_exported_arena arena;      /* all below, and what it leads to */
    const char *torch_version;
    fth_exported_value *values;
    size_t value_count, value_capacity;
    fth_exported_node *nodes;
    size_t node_count;
    int *inputs, *outputs;
    size_t input_count, output_count;
};

/* ---- bind.c ---- */

/* Gives parameters, buffers and constants their data, and marks those that share it. */
fth_status fth_exported_bind(fth_exported *program);

/* ---- dimension.c ---- */

/* The names of N and L in a file's expressions; "" where there is none. Not terminated by the
 * program's text, so copied. */
typedef struct fth_exported_symbols {
    char batch[64], length[64];
} fth_exported_symbols;

/* The symbol that an expression consists of; false for any other expression. */
bool fth_exported_is_symbol(const char *expression, char *name, size_t size);
/* The size that an expression gives: "Mul(Integer(12), Symbol('s77', positive=True,
 * integer=True))", "12*s77". */
fth_exported_dim fth_exported_read_dim(const char *expression, const fth_exported_symbols *symbols);
/* The same of {"as_int": 3} or {"as_expr": {"expr_str": "..."}}; false if it is neither. */
bool fth_exported_read_size(const json_t *size, const fth_exported_symbols *symbols, fth_exported_dim *dim);

/* ---- json_text.c ---- */

fth_status fth_exported_load_json(const char *text, size_t size_bytes, const char *origin, json_t **root);

/* ---- read.c, argument.c ---- */

typedef struct fth_exported_reader {
    fth_exported *program;
    const char *origin; /* the file and where the JSON is in it, for errors */
    json_t *numbers;    /* name -> value's number */
    const json_t *tensor_values, *sym_int_values;
    fth_exported_symbols symbols;
} fth_exported_reader;

/* Reads a program's JSON; data of values is found later. With `inline_data`, the JSON is that of
 * fth_exported_to_text(), and has data of its own. */
fth_status fth_exported_read(fth_exported *program, const char *text, size_t size_bytes, const char *origin,
                             bool inline_data);

/* The number of the tensor called `name`, which something computed before; `reader` is what reads
 * it, for errors. */
fth_status fth_exported_find_tensor(const fth_exported_reader *reader, const char *name, const char *user, int *number);
/* Reads {"as_ints": [1, 2]}; `user` is the node, for errors. */
fth_status fth_exported_read_argument(fth_exported_reader *reader, const json_t *argument, const char *user,
                                      fth_exported_argument *result);
/* The one member of a tagged union, {"as_int": 3}; false if it has none or several that are not
 * null. */
bool fth_exported_untag(const json_t *tagged, const char **tag, json_t **value);

/* ---- mutations.c ---- */

/* Gives programs whose buffers change as outputs the form of those that change them in place. */
fth_status fth_exported_undo_mutations(fth_exported_reader *reader, const json_t *output_specs);

/* ---- where.c ---- */

/* The user's line of a "stack_trace", in `line`: "" if there is none. */
void fth_exported_find_line(const char *stack_trace, char *line, size_t size);
/* The innermost module of an "nn_module_stack": "layer1.0.conv1 (torch.nn.modules.conv.Conv2d)". */
void fth_exported_find_module(const char *module_stack, char *module, size_t size);

/* ---- inline_data.c ---- */

fth_status fth_exported_read_data(fth_exported_reader *reader, const json_t *data);
fth_status fth_exported_write_data(const fth_exported *program, json_t *data);

#endif
