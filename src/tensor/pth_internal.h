/* PyTorch's .pth files: two containers around one pickle. pth.c opens the containers and finds the
 * storages, pth_state.c finds the dictionary of weights among whatever else was saved, pth_tensor.c
 * makes a view of one of its tensors, pth_tensors.c of all of them. */
#ifndef FTH_TENSOR_PTH_INTERNAL_H
#define FTH_TENSOR_PTH_INTERNAL_H

#include "tensor/pickle_internal.h"
#include "tensor/strided_internal.h"

typedef struct fth_pth {
    const char *format; /* in words */
    fth_pickle *pickle; /* every storage knows its data, if the file has it */
    fth_tensor_copies copies;
} fth_pth;

/* The bytes outlive the object; `origin` names them in errors. */
fth_status fth_pth_open_zip(const void *bytes, size_t size_bytes, const char *origin, fth_pth **pth);
fth_status fth_pth_open_legacy(const void *bytes, size_t size_bytes, const char *origin, fth_pth **pth);
void fth_pth_free(fth_pth *pth);

/* Where the weights are in a file. Text is owned. */
typedef struct fth_pth_place {
    const fth_pickle_node *state; /* the dictionary */
    char *key;                    /* of the dictionary: "checkpoint.model_state_dict"; "" for the whole file */
    char *part;                   /* "model.": only names that begin so are meant; "": all */
} fth_pth_place;

/* The dictionary of weights: under `key` ("" for anywhere), or found by itself. What a key leads to
 * may also be the tensors of a dictionary whose names begin with its last words: "state_dict.model"
 * for "model.conv1.weight". */
fth_status fth_pth_find_state(const fth_pth *pth, const char *key, const char *origin, fth_pth_place *place);
void fth_pth_place_release(fth_pth_place *place);

/* Checks a tensor of the file and makes a view of it, or of a copy if it is not contiguous. `first`
 * as in fth_strided_view(). */
fth_status fth_pth_view_tensor(fth_pth *pth, const fth_pickle_tensor *tensor, const char *name, const char *origin,
                               fth_tensor_view *view, const void **first);

/* The tensors of a dictionary, in its order; other values are passed over. */
typedef struct fth_pth_tensors {
    char *names; /* one after another */
    fth_tensor_view *views;
    const void **firsts; /* where each begins in the file, as fth_strided_view() gives it */
    size_t count;
} fth_pth_tensors;

enum { FTH_PTH_MAX_NAME = 1000 };

fth_status fth_pth_read_tensors(fth_pth *pth, const fth_pickle_node *state, const char *origin,
                                fth_pth_tensors *tensors);
void fth_pth_tensors_release(fth_pth_tensors *tensors);

#endif
