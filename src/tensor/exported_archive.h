/* The archive around a program that torch.export.save() writes (.pt2): its JSON, its state_dict and
 * its constants, wherever a version of PyTorch puts them. What the JSON says is src/exported's
 * matter.
 *
 *     since 2.9   NAME/models/model.json; NAME/data/weights/model_weights_config.json with the
 *                 files of raw numbers that it names; NAME/data/constants likewise
 *     2.8         the same folders, with a pickle for all weights, data/weights/model.pt, and one
 *                 for the constants
 *     until 2.7   serialized_exported_program.json, serialized_state_dict.pt,
 *                 serialized_constants.pt */
#ifndef FTH_TENSOR_EXPORTED_ARCHIVE_H
#define FTH_TENSOR_EXPORTED_ARCHIVE_H

#include "tensor/tensor.h"

typedef struct fth_exported_archive fth_exported_archive;

/* A tensor of the archive, checked as weights are. */
typedef struct fth_exported_tensor {
    fth_tensor_view view; /* lies in the file, or is a copy of what is not row by row there */
    const void *first;    /* where it begins in the file, the same for tied tensors; NULL if it has no numbers */
} fth_exported_tensor;

/* True for such an archive, of any version. */
bool fth_exported_archive_recognize(const void *bytes, size_t size_bytes);

/* The bytes outlive the archive; `origin` names them in errors. Nothing in it is executed. The
 * caller frees *archive with fth_exported_archive_free(). */
fth_status fth_exported_archive_parse(const void *bytes, size_t size_bytes, const char *origin,
                                      fth_exported_archive **archive);
void fth_exported_archive_free(fth_exported_archive *archive);

/* The program's JSON, not terminated, and what it is called in the archive. */
const char *fth_exported_archive_program(const fth_exported_archive *archive, size_t *size_bytes);
const char *fth_exported_archive_program_name(const fth_exported_archive *archive);

/* The state_dict, in its order. */
size_t fth_exported_archive_state_count(const fth_exported_archive *archive);
const fth_exported_tensor *fth_exported_archive_get_state(const fth_exported_archive *archive, size_t index);
const fth_exported_tensor *fth_exported_archive_find_state(const fth_exported_archive *archive, const char *name);
/* Constants and buffers that are not in the state_dict. */
const fth_exported_tensor *fth_exported_archive_find_constant(const fth_exported_archive *archive, const char *name);

/* Tensors that are copies. */
size_t fth_exported_archive_copied_count(const fth_exported_archive *archive);

#endif
