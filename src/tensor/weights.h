/* Weights, from any file that people have them in: one way to read safetensors and PyTorch's .pth,
 * .pt and .pt2.
 *
 * What a file is shows in its content, not in its name. The file is mapped, and views lead into it;
 * only tensors that are not contiguous there are copied. Files may come from anywhere: nothing in
 * them is executed, everything is checked, and what is refused is refused by name. */
#ifndef FTH_TENSOR_WEIGHTS_H
#define FTH_TENSOR_WEIGHTS_H

#include "tensor/tensor.h"

typedef struct fth_weights fth_weights;

/* Opens "model.safetensors", "model.pth" or "checkpoint.pth:model_state_dict", where what follows
 * the colon is the key of the dictionary inside, "a.b" for one within another, or for the tensors
 * of "a" whose names begin with "b."; a file with the whole text for its name wins. Without a key
 * the dictionary is found if there is only one that can be meant, and otherwise the message lists
 * the keys. Values that are not tensors are skipped. Prefixes that wrappers put before names
 * ("module.", "model.", "_orig_mod.", "backbone.") are taken off if all names have them.
 * docs/WEIGHTS.md has the whole list. A folder as on the Hugging Face hub is opened by its
 * model.safetensors, else its pytorch_model.bin; weights in several files by their index,
 * model.safetensors.index.json, or the folder that it is in. The caller frees *weights with
 * fth_weights_free(). */
fth_status fth_weights_open(const char *path_and_key, fth_weights **weights);

/* Reads bytes that outlive the object; `origin` names them in errors, `key` may be "". */
fth_status fth_weights_parse(const void *bytes, size_t size_bytes, const char *origin, const char *key,
                             fth_weights **weights);
void fth_weights_free(fth_weights *weights);

/* Views live as long as the weights; their data may lie at any alignment. In the order of the
 * file. */
size_t fth_weights_count(const fth_weights *weights);
const fth_tensor_view *fth_weights_get(const fth_weights *weights, size_t index);      /* or NULL */
const fth_tensor_view *fth_weights_find(const fth_weights *weights, const char *name); /* or NULL */

/* Leaves only the tensors whose names begin with `prefix`, and takes it off. Views that were got
 * before are no longer valid. `origin` names the file in errors. */
fth_status fth_weights_narrow(fth_weights *weights, const char *prefix, const char *origin);

/* Gives tensors other names: `rename` returns the new one, which is `name`, constant, or in the
 * `buffer` that it was given; NULL leaves the tensor out. Views that were got before are no longer
 * valid. `origin` names the file in errors. */
typedef const char *(*fth_weights_renamer)(void *context, const char *name, char *buffer, size_t size);
fth_status fth_weights_rename(fth_weights *weights, const char *origin, fth_weights_renamer rename, void *context);

/* What errors call the file: its path. */
const char *fth_weights_origin(const fth_weights *weights);
/* Of a folder from the hub, or that of an index: where it is, and its config.json ("" if there is
 * none). NULL: a file was opened. */
const char *fth_weights_folder(const fth_weights *weights);
const char *fth_weights_config(const fth_weights *weights);

/* A safetensors file's own text under `key`, or NULL. */
const char *fth_weights_metadata(const fth_weights *weights, const char *key);
/* Calls `visit` with each key of it. */
void fth_weights_visit_metadata(const fth_weights *weights,
                                void (*visit)(void *context, const char *key, const char *value), void *context);

/* What was opened, in words for people; lent. */
typedef struct fth_weights_facts {
    const char
        *format;     /* "safetensors", "PyTorch's zip format", "PyTorch's old format", "PyTorch's exported program" */
    const char *key; /* where in the file the weights were found; "" for the file itself */
    const char *removed_prefix;  /* "module."; "" if none */
    const char *removed_markers; /* taken out of the middle of names: "_fsdp_wrapped_module."; "" if none */
    const char *skipped_classes; /* of objects in the file that are not tensors: "argparse.Namespace"; "" if none */
    size_t left_out_count;       /* tensors beside the part that was chosen */
    size_t copied_count;         /* tensors that could not be used in place */
    size_t file_count;           /* more than 1 where an index was opened */
} fth_weights_facts;

fth_weights_facts fth_weights_describe(const fth_weights *weights);

/* The same in one line for people: "read from 'model'; 'module.' taken off the names". NULL where
 * there is nothing to say. free() it. */
char *fth_weights_explain(const fth_weights *weights);

#endif
