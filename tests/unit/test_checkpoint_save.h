/* Saving tensors as a checkpoint in a folder. */
#ifndef TEST_CHECKPOINT_SAVE_H
#define TEST_CHECKPOINT_SAVE_H

#include <string.h>

#include "checkpoint/checkpoint_internal.h"

/* One tensor; the folder, made if missing, keeps the newest `keep` checkpoints. */
static fth_status save_checkpoint(const char *folder, int64_t step, const fth_tensor_view *view, const json_t *state,
                                  int keep)
{
    fth_status status = FTH_OK;
    fth_checkpoint_place place;
    char *header = NULL, *bytes = NULL;
    size_t header_bytes = 0;
    const size_t data_bytes = (size_t)fth_shape_count(&view->shape) * fth_dtype_size_bytes(view->dtype);

    FTH_TRY(fth_checkpoint_open_folder(folder, &place));
    FTH_TRY(fth_folder_create(folder));
    place.keep = keep;
    FTH_TRY(fth_safetensors_header(view, 1, NULL, 0, &header, &header_bytes));
    FTH_TRY(fth_allocate(header_bytes + data_bytes, 1, &bytes));
    memcpy(bytes, header, header_bytes);
    memcpy(bytes + header_bytes, view->data, data_bytes);
    FTH_TRY(fth_checkpoint_put(&place, step, bytes, header_bytes + data_bytes, state, NULL));

out:
    free(header);
    free(bytes);
    fth_store_free(place.store);
    return status;
}

#endif
