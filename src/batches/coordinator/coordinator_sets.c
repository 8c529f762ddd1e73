/* See coordinator_sets.h. */
#include "batches/coordinator/coordinator_sets.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "batches/described_set.h"
#include "store/store.h"

struct fth_served_sets {
    fth_open_set *sets;
    size_t count;
};

bool fth_served_set_name_valid(const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("-_.", name[i]))
            return false;
    return length > 0 && length < FTH_DATA_NAME;
}

/* An absolute address, for processes with another working folder. free() it. */
static char *complete_address(const char *address)
{
    char *path = !fth_store_is_url(address) ? realpath(address, NULL) : NULL;
    return path ? path : strdup(address);
}

static fth_status open_set(const fth_served_set *asked, const fth_dataset_options *options, fth_open_set *set)
{
    fth_status status = FTH_OK;
    char *address = complete_address(asked->address);

    FTH_REQUIRE(address && (set->name = strdup(asked->name)), FTH_NO_MEMORY, "no memory for data set %s", asked->name);
    if (fth_store_is_url(address)) /* a large bucket takes a while to list */
        fth_log_info("reading %s ...", asked->name);
    FTH_TRY(fth_prefetch_set_open(address, options, &set->set));
    const fth_dataset *dataset = fth_prefetch_set_dataset(set->set);
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    for (int split = 0; split < 2; split++)
        set->count[split] = info->count[split];
    FTH_REQUIRE(set->count[FTH_TRAIN] > 0, FTH_INVALID, "%s has no training samples", asked->address);
    set->version = fth_prefetch_set_version(set->set);
    set->description = fth_described_set_save(dataset, asked->name,
                                              &(fth_set_source){.address = address,
                                                                .seed = options->seed,
                                                                .validation_fraction = options->validation_fraction,
                                                                .random_split = options->random_split});
    set->files = json_is_true(json_object_get(set->description, "files"));
    if (!set->description)
        status = FTH_NO_MEMORY; /* with its message */

out:
    free(address);
    return status;
}

fth_status fth_served_sets_open(const fth_served_set *sets, size_t count, const fth_dataset_options *options,
                                fth_served_sets **result)
{
    fth_status status = FTH_OK;
    fth_served_sets *served = NULL;

    *result = NULL;
    FTH_REQUIRE(count > 0, FTH_INVALID, "no data set to serve; add one with --data");
    FTH_TRY(fth_allocate(1, sizeof *served, &served));
    FTH_TRY(fth_allocate(count, sizeof *served->sets, &served->sets));
    for (size_t i = 0; i < count; i++) {
        FTH_REQUIRE(fth_served_set_name_valid(sets[i].name), FTH_INVALID,
                    "\"%s\" is not a valid name of a data set; use letters, digits, '-', '_' and '.'", sets[i].name);
        FTH_REQUIRE(!fth_served_sets_find(served, sets[i].name), FTH_INVALID,
                    "two data sets have the name %s; name them with --data NAME=ADDRESS", sets[i].name);
        served->count++;
        FTH_TRY(open_set(&sets[i], options, &served->sets[i]));
    }
    *result = served;
    served = NULL;

out:
    fth_served_sets_free(served);
    return status;
}

void fth_served_sets_free(fth_served_sets *served)
{
    if (!served)
        return;
    for (size_t i = 0; i < served->count; i++) {
        free(served->sets[i].name);
        fth_prefetch_set_free(served->sets[i].set);
        json_decref(served->sets[i].description);
    }
    free(served->sets);
    free(served);
}

size_t fth_served_sets_count(const fth_served_sets *served)
{
    return served ? served->count : 0;
}

const fth_open_set *fth_served_sets_get(const fth_served_sets *served, size_t index)
{
    return index < served->count ? &served->sets[index] : NULL;
}

int fth_served_sets_index(const fth_served_sets *served, const char *name)
{
    for (size_t i = 0; served && i < served->count; i++)
        if (served->sets[i].name && strcmp(served->sets[i].name, name) == 0)
            return (int)i;
    return -1;
}

const fth_open_set *fth_served_sets_find(const fth_served_sets *served, const char *name)
{
    int index = fth_served_sets_index(served, name);
    return index >= 0 ? &served->sets[index] : NULL;
}

bool fth_served_sets_may_read(const fth_served_sets *served, int index, const fth_signed *caller)
{
    return !fth_signed_is_limited(caller) ||
           (index >= 0 && fth_signed_may_read(caller, fth_served_sets_get(served, (size_t)index)->name));
}

fth_status fth_served_sets_require(const fth_served_sets *served, const char *name, const fth_open_set **set)
{
    char known[512] = "";
    *set = fth_served_sets_find(served, name);
    if (*set)
        return FTH_OK;
    for (size_t i = 0; i < served->count; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", served->sets[i].name);
    }
    return fth_fail(FTH_INVALID, "no data set \"%.100s\" is served here; expected %s", name, known);
}
