/* Remembering which engines were fastest: a text file per device, driver and cuDNN version, a line
 * per convolution.
 *
 *     ~/.cache/farthing/cudnn-<gpu>-<driver>-<cudnn>.txt      "key<TAB>choice"
 *
 * It is a cache: unreadable lines are passed over, a choice that no longer works is measured again,
 * and several processes may write it, the last one winning. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/convolution.h"
#include "backend/cuda/memory.h"

enum { MAX_FILE_BYTES = 16 << 20 };

typedef struct entry {
    char *key, *choice;
} entry;

struct cuda_tuning {
    char *path; /* NULL: there is nowhere to keep it */
    entry *entries;
    size_t count, capacity;
    bool changed;
    void *memory; /* device memory to measure in */
    size_t memory_bytes;
};

static char *cache_folder(void)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache)
        return fth_format("%s/farthing", cache);
    if (home && *home)
        return fth_format("%s/.cache/farthing", home);
    return NULL;
}

static void read_lines(cuda_tuning *tuning, char *text)
{
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *tab = strchr(line, '\t');
        if (!tab || tab == line || !tab[1])
            continue;
        *tab = '\0';
        cuda_tuning_add(tuning, line, tab + 1);
    }
    tuning->changed = false;
}

fth_status cuda_tuning_open(cuda_device *device, cuda_tuning **result)
{
    fth_status status = FTH_OK;
    cuda_tuning *tuning = NULL;
    int driver = 0;
    char gpu[sizeof device->properties.name];
    FTH_TRY(fth_allocate(1, sizeof *tuning, &tuning));
    *result = tuning;
    CUDA_TRY(cudaDriverGetVersion(&driver));
    snprintf(gpu, sizeof gpu, "%s", device->properties.name);
    for (char *c = gpu; *c; c++)
        *c = isalnum((unsigned char)*c) ? *c : '_';
    char *folder = cache_folder();
    if (folder) {
        char *text = NULL;
        size_t size = 0;
        tuning->path = fth_format("%s/cudnn-%s-%d-%zu.txt", folder, gpu, driver, cudnnGetVersion());
        if (fth_file_exists(tuning->path) && fth_file_read_all(tuning->path, MAX_FILE_BYTES, &text, &size) == FTH_OK)
            read_lines(tuning, text);
        free(text);
        free(folder);
    }
out:
    return status;
}

const char *cuda_tuning_find(const cuda_tuning *tuning, const char *key)
{
    for (size_t i = 0; i < tuning->count; i++)
        if (strcmp(tuning->entries[i].key, key) == 0)
            return tuning->entries[i].choice;
    return NULL;
}

void cuda_tuning_add(cuda_tuning *tuning, const char *key, const char *choice)
{
    size_t i = 0;
    while (i < tuning->count && strcmp(tuning->entries[i].key, key) != 0)
        i++;
    char *copy = strdup(choice);
    if (i == tuning->count) {
        char *name = strdup(key);
        if (!name || fth_grow(&tuning->entries, tuning->count, &tuning->capacity, sizeof *tuning->entries) != FTH_OK) {
            free(name);
            free(copy);
            return; /* a cache may forget */
        }
        tuning->entries[tuning->count++] = (entry){name, NULL};
    }
    free(tuning->entries[i].choice);
    tuning->entries[i].choice = copy ? copy : strdup("");
    tuning->changed = true;
}

void cuda_tuning_save(cuda_tuning *tuning)
{
    if (!tuning->changed || !tuning->path)
        return;
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (!memory)
        return;
    for (size_t i = 0; i < tuning->count; i++)
        if (tuning->entries[i].choice)
            fprintf(memory, "%s\t%s\n", tuning->entries[i].key, tuning->entries[i].choice);
    fclose(memory);
    char *folder = cache_folder();
    if (!folder || fth_folder_create(folder) != FTH_OK || fth_file_write_all(tuning->path, text, size) != FTH_OK)
        fth_log_warning("the choice of convolution engines is not kept: %s", fth_error_message());
    tuning->changed = false;
    free(folder);
    free(text);
}

void cuda_tuning_free(cuda_tuning *tuning)
{
    if (!tuning)
        return;
    if (tuning->memory)
        cudaFree(tuning->memory);
    for (size_t i = 0; i < tuning->count; i++) {
        free(tuning->entries[i].key);
        free(tuning->entries[i].choice);
    }
    free(tuning->entries);
    free(tuning->path);
    free(tuning);
}

fth_status cuda_tuning_memory(cuda_device *device, size_t size_bytes, void **memory)
{
    fth_status status = FTH_OK;
    cuda_tuning *tuning = device->tuning;
    if (size_bytes > tuning->memory_bytes) {
        cuda_tuning_release(device);
        CUDA_TRY(cudaMalloc(&tuning->memory, size_bytes));
        tuning->memory_bytes = size_bytes;
        /* Random numbers: zeros run faster than data does. */
        CUDA_TRY(cuda_launch_fill_random(device->launch.stream, CUDA_TYPE_BF16, tuning->memory, size_bytes / 2));
    }
    *memory = tuning->memory;
out:
    return status;
}

void cuda_tuning_release(cuda_device *device)
{
    cuda_tuning *tuning = device->tuning;
    if (!tuning->memory)
        return;
    cuda_release(&device->base, tuning->memory);
    tuning->memory = NULL;
    tuning->memory_bytes = 0;
}
