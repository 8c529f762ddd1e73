/* Finding the weights a user means: a file, or those of a run. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "store/store.h"

bool fth_cli_is_weights_file(const char *text)
{
    bool found = fth_file_exists(text);
    char *path = fth_format("%s", text);
    for (char *colon = strrchr(path, ':'); colon && !found; colon = strrchr(path, ':')) {
        *colon = '\0';
        found = fth_file_exists(path);
    }
    free(path);
    return found;
}

/* Models are read from files: one in a store is copied first. */
static fth_status refuse_stored(const char *url)
{
    const char *ending = strrchr(url, '.');
    bool whole = ending && strcmp(ending, ".safetensors") == 0;
    return fth_fail(
        FTH_INVALID, "%s is in a store; copy the model first, then name the file: farthing store cp '%s%s' .%s", url,
        url, whole ? "" : "/best.safetensors", whole ? "" : " (of a run that goes on: what is newest in its best/)");
}

fth_status fth_cli_find_model_file(const char *run_folder, char **path)
{
    static const char *const names[] = {"best.safetensors", "last.safetensors"};
    *path = NULL;
    if (fth_store_is_url(run_folder))
        return refuse_stored(run_folder);
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        *path = fth_path_join(run_folder, names[i]);
        if (fth_file_exists(*path))
            return FTH_OK;
        free(*path);
        *path = NULL;
    }
    return fth_fail(FTH_INVALID, "run %s has no model file yet; it is written at the end of the first epoch",
                    run_folder);
}

fth_status fth_cli_find_weights(const char *runs_folder, const char *file_or_run, char **path)
{
    fth_status status = FTH_OK;
    char *folder = NULL;

    *path = NULL;
    if (fth_cli_is_weights_file(file_or_run)) {
        *path = fth_format("%s", file_or_run);
        goto out;
    }
    if (fth_store_is_url(file_or_run)) {
        status = refuse_stored(file_or_run);
        goto out;
    }
    const char *ending = strrchr(file_or_run, '.');
    bool looks_like_file = ending && (strcmp(ending, ".pth") == 0 || strcmp(ending, ".pt") == 0 ||
                                      strcmp(ending, ".safetensors") == 0 || strcmp(ending, ".bin") == 0);
    FTH_REQUIRE(!looks_like_file, FTH_INVALID, "there is no file %s", file_or_run);
    FTH_TRY(fth_record_locate(runs_folder, file_or_run, &folder));
    FTH_TRY(fth_cli_find_model_file(folder, path));

out:
    free(folder);
    return status;
}
