/* See described_set.h. */
#include "batches/described_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* ---- the coordinator ---- */

static json_t *save_names(const fth_dataset_info *info)
{
    json_t *names = json_array();
    for (int i = 0; names && i < info->classes; i++)
        json_array_append_new(names, json_string(info->class_names[i]));
    return names;
}

static void save_source(const fth_set_source *source, json_t *json)
{
    char *address = source && source->address ? fth_address_public(source->address) : NULL;
    if (address) {
        json_object_set_new(json, "address", json_string(address));
        json_object_set_new(json, "seed", json_integer((json_int_t)source->seed));
    }
    free(address);
}

json_t *fth_described_set_save(const fth_dataset *dataset, const char *name, const fth_set_source *source)
{
    fth_provided_set set;
    char version[65];
    if (fth_dataset_version(dataset, version) != FTH_OK)
        return NULL;
    fth_dataset_describe_provided(dataset, &set);
    const fth_dataset_info *info = &set.info;
    json_t *json = fth_normalization_to_json(&info->normalization);
    json_t *rest = json_pack("{s:s, s:s, s:b, s:i, s:i, s:i, s:I, s:I, s:o}", "name", name, "version", version, "files",
                             (int)set.files, "channels", info->channels, "raw_height", set.raw_height, "raw_width",
                             set.raw_width, "training", (json_int_t)info->count[FTH_TRAIN], "validation",
                             (json_int_t)info->count[FTH_VALIDATION], "class_names", save_names(info));
    if (!json || !rest || json_object_update(json, rest) != 0) {
        json_decref(json);
        json = NULL;
        fth_set_error("no memory for the description of a data set");
    }
    json_decref(rest);
    if (json && info->held_out.fraction > 0) {
        json_object_set_new(json, "split", json_string(info->held_out.by_class ? "stratified" : "random"));
        fth_json_set_number(json, "validation_fraction", info->held_out.fraction);
    }
    if (json)
        save_source(source, json);
    return json;
}

/* ---- a job ---- */

static fth_status load_names(const json_t *json, fth_described_set *set)
{
    fth_status status = FTH_OK;
    const json_t *names = json_object_get(json, "class_names");
    const size_t count = json_array_size(names);

    FTH_REQUIRE(count >= 1 && count <= INT32_MAX, FTH_INVALID, "class_names must be a list of names");
    FTH_TRY(fth_allocate(count, sizeof *set->class_names, &set->class_names));
    for (size_t i = 0; i < count; i++) {
        set->class_names[i] = json_string_value(json_array_get(names, i));
        FTH_REQUIRE(set->class_names[i], FTH_INVALID, "class_names must only contain names");
    }
    set->set.info.class_names = set->class_names;
    set->set.info.classes = (int)count;

out:
    return status;
}

/* Also reads what is held out, which a job cannot tell from the samples. */
static void load_source(const json_t *json, fth_described_set *set)
{
    const json_t *seed = json_object_get(json, "seed"), *fraction = json_object_get(json, "validation_fraction");
    const char *split = json_string_value(json_object_get(json, "split"));
    const bool random = split && strcmp(split, "random") == 0;
    set->source = (fth_set_source){.address = json_string_value(json_object_get(json, "address")),
                                   .seed = (uint64_t)json_integer_value(seed),
                                   .validation_fraction = json_number_value(fraction),
                                   .random_split = random};
    if (split)
        set->set.info.held_out =
            (fth_held_out){.fraction = set->source.validation_fraction, .seed = set->source.seed, .by_class = !random};
}

fth_status fth_described_set_load(const json_t *json, const char *shown, fth_described_set *set)
{
    fth_status status = FTH_OK;
    json_int_t counts[2];
    int files = 0;
    fth_dataset_info *info = &set->set.info;

    *set = (fth_described_set){.json = json_deep_copy(json), .set = {.source = shown}};
    FTH_REQUIRE(set->json && json_unpack(set->json, "{s:s, s:s, s:b, s:i, s:i, s:i, s:I, s:I}", "name", &info->name,
                                         "version", &set->set.version, "files", &files, "channels", &info->channels,
                                         "raw_height", &set->set.raw_height, "raw_width", &set->set.raw_width,
                                         "training", &counts[FTH_TRAIN], "validation", &counts[FTH_VALIDATION]) == 0,
                FTH_INVALID, "name, version, files, channels, sizes or counts are missing or invalid");
    set->set.files = files;
    info->count[FTH_TRAIN] = counts[FTH_TRAIN];
    info->count[FTH_VALIDATION] = counts[FTH_VALIDATION];
    FTH_REQUIRE(strlen(set->set.version) == 64, FTH_INVALID, "version must be 64 hex digits");
    FTH_REQUIRE(fth_normalization_from_json(set->json, info->channels, &info->normalization), FTH_INVALID,
                "mean or std are missing or invalid");
    FTH_TRY(load_names(set->json, set));
    load_source(set->json, set);

out:
    if (status != FTH_OK) {
        status = fth_fail_within(status, "%s: the description of the data set", shown);
        fth_described_set_release(set);
    }
    return status;
}

void fth_described_set_release(fth_described_set *set)
{
    json_decref(set->json);
    free(set->class_names);
    *set = (fth_described_set){0};
}
