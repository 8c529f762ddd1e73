/* See save.h. */
#include "api/save.h"

#include <stdlib.h>
#include <string.h>

#include "export/export.h"
#include "tensor/tensor.h"
#include "train/engine/snapshot.h"
#include "train/model/hub_folder.h"

const char *const fth_save_formats[] = {"safetensors", "onnx", "huggingface", NULL};

/* A folder that transformers' from_pretrained() loads. The weights come last: without them it is
 * none. */
static fth_status save_folder(const fth_classifier *classifier, const fth_tensor_view *views, size_t count,
                              const fth_model_metadata *metadata, const char *folder)
{
    fth_status status = FTH_OK;
    const fth_model_facts *facts = fth_classifier_facts(classifier);
    fth_file *file = NULL;
    char *path = fth_path_join(folder, "model.safetensors");

    FTH_REQUIRE(facts->text.longest > 0, FTH_UNSUPPORTED,
                "%s has no place in transformers; text models (bert-...) do: export to safetensors or onnx",
                facts->model);
    FTH_TRY(fth_folder_create(folder));
    FTH_TRY(fth_hub_folder_write(folder, facts, fth_classifier_tokenizer(classifier), NULL));
    FTH_TRY(fth_file_create(path, &file));
    FTH_TRY(fth_safetensors_write(file, views, count, metadata->entries, metadata->count));
    FTH_TRY(fth_file_publish(file));

out:
    fth_file_free(file);
    free(path);
    return status;
}

fth_status fth_save_model(const fth_classifier *classifier, const char *format, const char *path)
{
    fth_status status = FTH_OK;
    fth_snapshot *snapshot = NULL;
    fth_file *file = NULL;
    fth_model_metadata metadata = {0};
    const fth_model_facts *facts = fth_classifier_facts(classifier);
    fth_engine *engine = fth_classifier_engine(classifier);
    size_t count = 0;

    FTH_TRY(fth_model_facts_to_metadata(facts, &metadata));
    FTH_TRY(fth_engine_take_snapshot(engine, false, fth_classifier_batches(classifier), &snapshot));
    FTH_TRY(fth_snapshot_check_finite(snapshot));
    const fth_tensor_view *views = fth_snapshot_file_views(snapshot, &count);
    if (strcmp(format, "onnx") == 0) {
        FTH_TRY(fth_onnx_save(path, fth_engine_graph(engine), views, count,
                              &(fth_onnx_options){facts->model, metadata.entries, metadata.count}));
    } else if (strcmp(format, "huggingface") == 0) {
        FTH_TRY(save_folder(classifier, views, count, &metadata, path));
    } else {
        FTH_TRY(fth_file_create_output(path, &file));
        FTH_TRY(fth_safetensors_write(file, views, count, metadata.entries, metadata.count));
        FTH_TRY(fth_file_publish(file));
    }

out:
    fth_file_free(file);
    fth_model_metadata_release(&metadata);
    fth_snapshot_free(snapshot);
    return status;
}
