/* A reader of pickles that executes nothing.
 *
 * A pickle is a program for a stack machine; Python's own reader calls whatever it names. This one
 * knows the opcodes that torch.save() writes and a short table of names (pickle_globals.c), and
 * builds plain nodes: a call to torch's rebuild function becomes a description of a tensor. Any
 * other class or function is foreign: it is never looked up, and calling it gives an opaque value
 * that remembers its name, so that the settings people save beside their weights
 * (argparse.Namespace, paths, dates) do no harm. Names whose only use in a checkpoint is to run
 * code on whoever loads it, os.system among them, are refused by opcode, byte and name, although
 * here they would be as inert as the rest.
 *
 * Pickles come from strangers. Nodes live in an arena whose size is bounded by a multiple of what
 * was read; text stays where it is, in the pickle's bytes, which must outlive the nodes. Nodes may
 * form cycles and diamonds: whoever walks them marks what he has visited, and does not recurse. */
#ifndef FTH_TENSOR_PICKLE_INTERNAL_H
#define FTH_TENSOR_PICKLE_INTERNAL_H

#include "tensor/tensor.h"

typedef enum fth_pickle_kind {
    FTH_PICKLE_NONE,
    FTH_PICKLE_BOOL,    /* integer is 0 or 1 */
    FTH_PICKLE_INTEGER, /* fits 64 bits */
    FTH_PICKLE_LONG,    /* does not: bytes, little-endian two's complement */
    FTH_PICKLE_FLOAT,   /* the value is not kept */
    FTH_PICKLE_TEXT,
    FTH_PICKLE_BYTES,
    FTH_PICKLE_TUPLE,
    FTH_PICKLE_LIST,
    FTH_PICKLE_DICT,   /* items are key, value, key, value */
    FTH_PICKLE_GLOBAL, /* a class or function, by name */
    FTH_PICKLE_STORAGE,
    FTH_PICKLE_TENSOR,
    FTH_PICKLE_OPAQUE /* a set, a device, an object of a foreign class; `global` is what made it, or NULL */
} fth_pickle_kind;

typedef struct fth_pickle_node fth_pickle_node;
typedef struct fth_pickle_storage fth_pickle_storage;
typedef struct fth_pickle_tensor fth_pickle_tensor;
typedef struct fth_pickle_global fth_pickle_global;

struct fth_pickle_node {
    uint8_t kind;
    bool visited;      /* for those who search; false at first */
    uint32_t count;    /* bytes of text; items; pairs of a dictionary count twice */
    uint32_t capacity; /* of a list or dictionary */
    union {
        int64_t integer;
        const char *bytes; /* not terminated */
        fth_pickle_node **items;
        const fth_pickle_global *global;
        fth_pickle_storage *storage;
        const fth_pickle_tensor *tensor;
    };
};

/* PyTorch's element types, of which farthing reads those with `readable`. */
typedef struct fth_pickle_element {
    const char *dtype_name;   /* "float32" */
    const char *storage_name; /* "FloatStorage"; NULL where PyTorch has none */
    size_t size_bytes;
    bool readable;
    fth_dtype dtype;
} fth_pickle_element;

/* Raw memory that tensors share. */
struct fth_pickle_storage {
    const fth_pickle_node *key;
    const fth_pickle_element *element; /* "uint8" for untyped storages */
    int64_t count;                     /* elements, as claimed */
    int64_t view_start;                /* old files: it is a part, from here on, of the storage that has this key */
    const unsigned char *data;         /* filled in by whoever finds it in the file; NULL: not there */
    uint64_t size_bytes;
};

/* A tensor as described; nothing is checked but the types of the nodes. */
struct fth_pickle_tensor {
    const fth_pickle_storage *storage;
    const fth_pickle_element *element;
    int64_t offset;
    const fth_pickle_node *shape, *strides; /* tuples or lists */
};

enum { FTH_PICKLE_MAX_FOREIGN = 256 };

typedef struct fth_pickle {
    fth_pickle_node *root;
    size_t end; /* where the byte after the pickle is */
    fth_pickle_storage **storages;
    size_t storage_count;
    const fth_pickle_global *foreign[FTH_PICKLE_MAX_FOREIGN]; /* each name once, as they occur */
    size_t foreign_count;
    struct fth_pickle_arena *arena;
} fth_pickle;

/* Reads the pickle that begins at `start`. `origin` names the file in errors, and byte offsets in
 * them count from the start of `bytes`. */
fth_status fth_pickle_read(const void *bytes, size_t size_bytes, size_t start, const char *origin, fth_pickle **pickle);
void fth_pickle_free(fth_pickle *pickle);

/* "argparse.Namespace", printable, as long as the pickle. */
const char *fth_pickle_global_text(const fth_pickle_global *global);
/* True for Python's own containers and NumPy's arrays, which are not worth a message. */
bool fth_pickle_global_is_plain_data(const fth_pickle_global *global);
/* What made a value in place of a tensor: a function of torch that rebuilds kinds of tensors that
 * are not read here (sparse, quantized, a subclass's). NULL for all other values. */
const fth_pickle_global *fth_pickle_unread_tensor(const fth_pickle_node *node);

bool fth_pickle_text_is(const fth_pickle_node *node, const char *text);

/* The value under `key` of a dictionary (the last one, as in Python), or NULL. */
fth_pickle_node *fth_pickle_dict_find(const fth_pickle_node *dict, const char *key, size_t key_length);

/* Copies text into `out`, shortened, unprintable bytes as '?', so that a message cannot play tricks
 * on a terminal. */
const char *fth_pickle_printable(const char *text, size_t length, char *out, size_t size);

/* ---- between pickle.c, pickle_machine.c, pickle_nodes.c and pickle_globals.c ---- */

typedef struct fth_pickle_arena fth_pickle_arena;

typedef struct fth_pickle_place {
    const char *origin;
    const char *opcode;
    size_t at; /* the opcode's byte */
} fth_pickle_place;

fth_status fth_pickle_arena_create(const char *origin, fth_pickle_arena **arena);
void fth_pickle_arena_allow(fth_pickle_arena *arena, size_t bytes_read); /* sets what may be taken in all */
void fth_pickle_arena_free(fth_pickle_arena *arena);
fth_status fth_pickle_arena_take(fth_pickle_arena *arena, size_t size_bytes, void *pointer_to_pointer); /* zeroed */
fth_status fth_pickle_node_create(fth_pickle_arena *arena, fth_pickle_kind kind, fth_pickle_node **node);
fth_status fth_pickle_node_append(fth_pickle_arena *arena, fth_pickle_node *node, fth_pickle_node *const *items,
                                  size_t count);

/* What is called `module` `name`: a row of the table, or foreign. Names that run code are
 * refused. */
fth_status fth_pickle_global_find(fth_pickle *pickle, const fth_pickle_place *place, const char *module,
                                  size_t module_length, const char *name, size_t name_length,
                                  const fth_pickle_global **global);

/* What calling `callable` with the tuple `arguments` would have made. */
fth_status fth_pickle_global_call(fth_pickle_arena *arena, const fth_pickle_place *place,
                                  const fth_pickle_node *callable, const fth_pickle_node *arguments,
                                  fth_pickle_node **result);

/* The storage that a persistent id describes. */
fth_status fth_pickle_storage_read(fth_pickle_arena *arena, const fth_pickle_place *place, const fth_pickle_node *id,
                                   fth_pickle_node **result);

fth_status fth_pickle_refuse(const fth_pickle_place *place, const char *what);
fth_status fth_pickle_corrupt(const fth_pickle_place *place, const char *what);

#endif
