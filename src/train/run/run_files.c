/* See run_files.h. */
#include "train/run/run_files.h"

#include <stdlib.h>

#include "train/model/hub_folder.h"
#include "train/model/run_network.h"
#include "train/run/run_store_internal.h"

fth_status fth_run_files_write(const fth_setup *setup, const char *folder)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = fth_dataset_get_info(setup->dataset);
    fth_model_facts facts = {0};

    FTH_TRY(fth_run_network_write(setup->options, folder));
    if (info->modality != FTH_MODALITY_TEXT)
        return FTH_OK;
    FTH_TRY(fth_model_facts_of_run(setup->options, setup->dataset, &facts));
    FTH_TRY(fth_hub_folder_write(folder, &facts, info->text.tokenizer, "best.safetensors"));

out:
    fth_model_facts_release(&facts);
    return status;
}

static const char *const shared_files[] = {FTH_RUN_TOKENIZER, FTH_RUN_NETWORK};

static fth_status put(fth_run_store *run, const char *folder, const char *name)
{
    fth_status status = FTH_OK;
    char *path = fth_path_join(folder, name);
    const void *bytes = NULL;
    size_t size = 0;

    FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory for a path");
    if (!fth_file_exists(path))
        goto out;
    FTH_TRY(fth_file_map(path, &bytes, &size));
    FTH_TRY(fth_run_store_put_as_owner(run, name, bytes, size, false));

out:
    fth_file_unmap(bytes, size);
    free(path);
    return status;
}

fth_status fth_run_files_put(fth_run_store *run, const char *folder)
{
    fth_status status = FTH_OK;
    for (size_t i = 0; i < FTH_COUNT_OF(shared_files) && status == FTH_OK; i++)
        status = put(run, folder, shared_files[i]);
    return status;
}

static fth_status fetch(fth_run_store *run, const char *folder, const char *name)
{
    fth_status status = FTH_OK;
    char *path = fth_path_join(folder, name);
    fth_store_object object = {0};
    bool found = false;

    FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(fth_store_stat(run->store, name, &object, &found));
    if (found && !fth_file_exists(path))
        FTH_TRY(fth_store_get_file(run->store, name, path, NULL));

out:
    fth_store_object_release(&object);
    free(path);
    return status;
}

fth_status fth_run_files_fetch(fth_run_store *run, const char *folder)
{
    fth_status status = FTH_OK;
    for (size_t i = 0; i < FTH_COUNT_OF(shared_files) && status == FTH_OK; i++)
        status = fetch(run, folder, shared_files[i]);
    return status;
}

fth_status fth_run_files_remove(fth_run_store *run)
{
    fth_status status = FTH_OK;
    for (size_t i = 0; i < FTH_COUNT_OF(shared_files) && status == FTH_OK; i++)
        status = fth_store_delete(run->store, shared_files[i]);
    return status;
}
