/* Programs that PyTorch's torch.export writes (.pt2): the operators of a network in order, with its
 * weights. A program here is what the file says, checked: every value that a node reads exists, was
 * computed before, and has a known type and rank; every tensor lies within the file. What operators
 * mean is not known here (lower.h).
 *
 * Files may come from anywhere: nothing in them is executed, counts and depths are bounded by the
 * file's size, and a refusal says what, where in the file, and what to do. */
#ifndef FTH_EXPORTED_PROGRAM_H
#define FTH_EXPORTED_PROGRAM_H

#include "base/base.h"
#include "tensor/tensor.h"
#include "tensor/torch_dtype.h"

typedef struct fth_exported fth_exported;

/* A size: factor, times the batch's samples N where `batch`, times the length L where `length`. N
 * is the symbol of dimension 0 of the first user input that has one there; L is the next other
 * symbol in the user inputs. Sizes of any other form are `unknown`: an error only where one is
 * used. */
typedef struct fth_exported_dim {
    int64_t factor; /* 0 where unknown */
    bool batch, length;
    bool unknown;
} fth_exported_dim;

typedef enum fth_exported_kind {
    FTH_EXPORTED_PARAMETER,
    FTH_EXPORTED_BUFFER,
    FTH_EXPORTED_CONSTANT,
    FTH_EXPORTED_INPUT, /* of the user: images, ids */
    FTH_EXPORTED_RESULT /* of a node */
} fth_exported_kind;

typedef struct fth_exported_value {
    const char *name;       /* in the graph: "p_conv1_weight", "conv2d_3" */
    const char *state_name; /* in the state_dict: "conv1.weight"; of a constant, its attribute; NULL for others */
    fth_exported_kind kind;
    int torch_dtype; /* torch_dtype.h */
    bool trainable;  /* a parameter that requires a gradient */
    bool persistent; /* a parameter, or a buffer that is in the state_dict */
    int rank;
    fth_exported_dim dims[FTH_MAX_RANK];
    int same_as;      /* the first value that shares this parameter's or buffer's storage (tied weights); -1: none */
    const void *data; /* parameters, buffers, constants: row by row, little-endian, at any alignment; NULL: not there */
    size_t size_bytes;
} fth_exported_value;

typedef enum fth_exported_argument_kind {
    FTH_ARGUMENT_NONE,
    FTH_ARGUMENT_TENSOR,
    FTH_ARGUMENT_TENSORS,
    FTH_ARGUMENT_INT,
    FTH_ARGUMENT_INTS,
    FTH_ARGUMENT_FLOAT,
    FTH_ARGUMENT_FLOATS,
    FTH_ARGUMENT_BOOL,
    FTH_ARGUMENT_BOOLS,
    FTH_ARGUMENT_STRING,
    FTH_ARGUMENT_DTYPE, /* PyTorch's code, in integer.factor */
    FTH_ARGUMENT_OTHER  /* a device, a layout, a subgraph, ...: `text` is its kind in the file, "as_device" */
} fth_exported_argument_kind;

/* One argument. Defaults are left out of files. */
typedef struct fth_exported_argument {
    const char *name; /* as in the operator's schema: "stride" */
    fth_exported_argument_kind kind;
    int tensor;         /* TENSOR: a value's number */
    const int *tensors; /* TENSORS: numbers, -1 for None */
    size_t count;       /* of tensors, integers, numbers, booleans */
    fth_exported_dim integer;
    const fth_exported_dim *integers;
    double number;
    const double *numbers;
    bool boolean;
    const bool *booleans;
    const char *text;
} fth_exported_argument;

typedef struct fth_exported_node {
    const char *target; /* "aten.conv2d.default" */
    const fth_exported_argument *arguments;
    size_t argument_count;
    const int *outputs; /* numbers of tensors, those of lists one after another; -1: unused */
    size_t output_count;
    const char *where;  /* the user's line: "net.py:12, in forward: x = self.conv(x)"; "" if unknown */
    const char *module; /* "layer1.0.conv1 (torch.nn.modules.conv.Conv2d)"; "" if unknown */
} fth_exported_node;

/* True for a zip archive as torch.export.save() writes, of any version. */
bool fth_exported_recognize(const void *bytes, size_t size_bytes);

/* Opens a .pt2 file of PyTorch 2.5 to 2.15. The file stays mapped while the program lives. The
 * caller frees *program with fth_exported_free(). */
fth_status fth_exported_open(const char *path, fth_exported **program);
/* The same from bytes that outlive the program; `origin` names them in errors. */
fth_status fth_exported_open_bytes(const void *bytes, size_t size_bytes, const char *origin, fth_exported **program);
/* Reads what fth_exported_to_text() wrote; the text may go away. Parameters, and buffers that the
 * program updates, have no data then. */
fth_status fth_exported_parse(const char *text, size_t size_bytes, const char *origin, fth_exported **program);
void fth_exported_free(fth_exported *program);

/* The program as compact JSON that needs no file: a .pt2's own schema without what is not read
 * here, with constants and the buffers that only the program has inline. free() the text. */
fth_status fth_exported_to_text(const fth_exported *program, char **text);

/* Everything lent lives as long as the program. Values are numbered from 0: parameters, buffers,
 * constants and user inputs in the order of the file, then results in the order of their nodes.
 * Nodes that only compute sizes or assert something are left out. */
int fth_exported_value_count(const fth_exported *program);
const fth_exported_value *fth_exported_get_value(const fth_exported *program, int number);
size_t fth_exported_node_count(const fth_exported *program);
const fth_exported_node *fth_exported_get_node(const fth_exported *program, size_t index);
/* The tensors that the user passes, and those that the network returns, as numbers of values. */
size_t fth_exported_input_count(const fth_exported *program);
int fth_exported_get_input(const fth_exported *program, size_t index);
size_t fth_exported_output_count(const fth_exported *program);
int fth_exported_get_output(const fth_exported *program, size_t index);

const char *fth_exported_torch_version(const fth_exported *program); /* "2.15.0+cu132"; "" if unknown */
const char *fth_exported_origin(const fth_exported *program);        /* the path, for errors */

/* True if the size is `size`, whatever N and L are. */
bool fth_exported_dim_is(const fth_exported_dim *dim, int64_t size);
/* The argument of that name, or NULL where the file leaves it out. */
const fth_exported_argument *fth_exported_find_argument(const fth_exported_node *node, const char *name);

#endif
