/* Model files: parameters and buffers alone, as PyTorch names them. */
#include "checkpoint/checkpoint.h"

fth_status fth_model_file_save(const char *path, const fth_tensor_view *views, size_t view_count,
                               const fth_metadata_entry *metadata, size_t metadata_count)
{
    fth_status status = FTH_OK;
    fth_file *file = NULL;

    FTH_TRY(fth_file_create(path, &file));
    FTH_TRY(fth_safetensors_write(file, views, view_count, metadata, metadata_count));
    FTH_TRY(fth_file_publish(file));

out:
    fth_file_free(file);
    return status;
}
