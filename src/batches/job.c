/* See job.h. An id is the XXH3-128 of a canonical encoding: the encoding's version, then each value
 * that determines the contents, as 8 little-endian bytes, texts preceded by their length. Machines
 * of either byte order compute the same ids. */
#include "batches/job.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- names ---- */

static const char *const sharing_names[] = {"none", "order", "all"};
static const char *const format_names[] = {"encoded", "decoded", "batches"};
static const char *const split_names[] = {"train", "validation"};

/* The index of `name`; -1: not found. */
static int find_name(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return (int)i;
    return -1;
}

const char *fth_sharing_name(fth_sharing sharing)
{
    return sharing_names[sharing];
}

bool fth_sharing_find(const char *name, fth_sharing *sharing)
{
    int found = find_name(name, sharing_names, FTH_COUNT_OF(sharing_names));
    if (found >= 0)
        *sharing = (fth_sharing)found;
    return found >= 0;
}

const char *fth_cache_format_name(fth_cache_format format)
{
    return format == FTH_FORMAT_AUTO ? "auto" : format_names[format];
}

bool fth_cache_format_find(const char *name, fth_cache_format *format)
{
    int found = find_name(name, format_names, FTH_COUNT_OF(format_names));
    if (found < 0 && strcmp(name, "auto") != 0)
        return false;
    *format = found < 0 ? FTH_FORMAT_AUTO : (fth_cache_format)found;
    return true;
}

/* ---- saving ---- */

static json_t *save_seed(uint64_t seed)
{
    char text[24]; /* JSON integers end at 63 bits */
    snprintf(text, sizeof text, "%" PRIu64, seed);
    return json_string(text);
}

json_t *fth_job_spec_save(const fth_job_spec *spec)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:{s:b, s:i}, s:I, s:b, s:s, s:o, s:o, s:[I, I], s:[I, I], s:I, s:s}", /**/
                     "data", spec->data, "version", spec->version, "split", split_names[spec->split], "transform",
                     spec->transform, "augmentation", "flip", spec->augmentation.flip, "crop_padding",
                     spec->augmentation.crop_padding, "batch", (json_int_t)spec->batch, "shuffle", spec->shuffle,
                     "sharing", fth_sharing_name(spec->sharing), "order_seed", save_seed(spec->order_seed),
                     "augment_seed", save_seed(spec->augment_seed), "share", (json_int_t)spec->share.index,
                     (json_int_t)spec->share.of, "part", (json_int_t)spec->part.index, (json_int_t)spec->part.of,
                     "rotation", (json_int_t)spec->rotation, "form", fth_cache_format_name(spec->format));
}

/* ---- loading: each member is required, and checked ---- */

static fth_status load_text(const json_t *json, const char *key, char *text, size_t size)
{
    const json_t *value = json_object_get(json, key);
    size_t length = json_string_length(value);
    if (!json_is_string(value) || length >= size || strlen(json_string_value(value)) != length)
        return fth_fail(FTH_INVALID, "job: \"%s\" must be a string of at most %zu bytes", key, size - 1);
    memcpy(text, json_string_value(value), length + 1);
    return FTH_OK;
}

static fth_status load_choice(const json_t *json, const char *key, const char *const *names, size_t count, int *choice)
{
    const char *name = json_string_value(json_object_get(json, key));
    char known[64] = "";
    *choice = name ? find_name(name, names, count) : -1;
    if (*choice >= 0)
        return FTH_OK;
    for (size_t i = 0; i < count; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    return fth_fail(FTH_INVALID, "job: \"%s\" must be one of %s, not \"%.40s\"", key, known, name ? name : "");
}

static fth_status load_flag(const json_t *json, const char *key, bool *flag)
{
    const json_t *value = json_object_get(json, key);
    *flag = json_is_true(value);
    return json_is_boolean(value) ? FTH_OK : fth_fail(FTH_INVALID, "job: \"%s\" must be true or false", key);
}

static fth_status check_number(const json_t *value, const char *key, int64_t least, int64_t most, int64_t *number)
{
    *number = json_integer_value(value);
    if (!json_is_integer(value) || *number < least || *number > most)
        return fth_fail(FTH_INVALID, "job: \"%s\" must be a whole number from %" PRId64 " to %" PRId64, key, least,
                        most);
    return FTH_OK;
}

static fth_status load_number(const json_t *json, const char *key, int64_t least, int64_t most, int64_t *number)
{
    return check_number(json_object_get(json, key), key, least, most, number);
}

/* A text of digits, or a number if that suffices. */
static fth_status load_seed(const json_t *json, const char *key, uint64_t *seed)
{
    const json_t *value = json_object_get(json, key);
    const char *text = json_string_value(value);
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *seed = (uint64_t)json_integer_value(value);
        return FTH_OK;
    }
    if (text && *text && strlen(text) <= 20 && strspn(text, "0123456789") == strlen(text)) {
        char canonical[24];
        *seed = strtoull(text, NULL, 10);
        snprintf(canonical, sizeof canonical, "%" PRIu64, *seed);
        if (strcmp(canonical, text) == 0) /* no overflow, and no leading zeros */
            return FTH_OK;
    }
    return fth_fail(FTH_INVALID, "job: \"%s\" must be a seed of 64 bits, as a number or as a string of digits", key);
}

static fth_status load_share(const json_t *json, const char *key, fth_share *share)
{
    fth_status status = FTH_OK;
    const json_t *value = json_object_get(json, key);
    FTH_REQUIRE(json_is_array(value) && json_array_size(value) == 2, FTH_INVALID,
                "job: \"%s\" must be two numbers: index and count", key);
    FTH_TRY(check_number(json_array_get(value, 1), key, 0, FTH_MAX_JOB_BATCH, &share->of));
    FTH_TRY(check_number(json_array_get(value, 0), key, 0, share->of > 0 ? share->of - 1 : 0, &share->index));

out:
    return status;
}

static bool is_version(const char *text)
{
    return !*text || (strlen(text) == FTH_VERSION_TEXT - 1 && fth_hex_is_valid(text, FTH_VERSION_TEXT - 1));
}

fth_status fth_job_spec_load(const json_t *json, fth_job_spec *spec)
{
    fth_status status = FTH_OK;
    fth_job_spec loaded = {0};
    int split = 0, sharing = 0;
    int64_t padding = 0;
    char format[16];

    FTH_REQUIRE(json_is_object(json), FTH_INVALID, "job: must be a JSON object");
    FTH_TRY(load_text(json, "data", loaded.data, sizeof loaded.data));
    FTH_REQUIRE(*loaded.data, FTH_INVALID, "job: \"data\" must be the name of a data set");
    FTH_TRY(load_text(json, "version", loaded.version, sizeof loaded.version));
    FTH_REQUIRE(is_version(loaded.version), FTH_INVALID, "job: \"version\" must be 64 hex digits, or empty");
    FTH_TRY(load_choice(json, "split", split_names, FTH_COUNT_OF(split_names), &split));
    FTH_TRY(load_text(json, "transform", loaded.transform, sizeof loaded.transform));
    const json_t *augmentation = json_object_get(json, "augmentation");
    FTH_REQUIRE(json_is_object(augmentation), FTH_INVALID, "job: \"augmentation\" must be an object");
    FTH_TRY(load_flag(augmentation, "flip", &loaded.augmentation.flip));
    FTH_TRY(load_number(augmentation, "crop_padding", 0, 4096, &padding));
    FTH_TRY(load_number(json, "batch", 1, FTH_MAX_JOB_BATCH, &loaded.batch));
    FTH_TRY(load_flag(json, "shuffle", &loaded.shuffle));
    FTH_TRY(load_choice(json, "sharing", sharing_names, FTH_COUNT_OF(sharing_names), &sharing));
    FTH_TRY(load_seed(json, "order_seed", &loaded.order_seed));
    FTH_TRY(load_seed(json, "augment_seed", &loaded.augment_seed));
    FTH_TRY(load_share(json, "share", &loaded.share));
    FTH_TRY(load_share(json, "part", &loaded.part));
    FTH_TRY(load_number(json, "rotation", -1, INT64_C(1) << 53, &loaded.rotation));
    FTH_TRY(load_text(json, "form", format, sizeof format));
    FTH_REQUIRE(fth_cache_format_find(format, &loaded.format), FTH_INVALID,
                "job: \"form\" must be auto, encoded, decoded or batches, not \"%s\"", format);
    loaded.split = (fth_split)split;
    loaded.sharing = (fth_sharing)sharing;
    loaded.augmentation.crop_padding = (int)padding;
    *spec = loaded;

out:
    return status;
}

fth_status fth_job_spec_check(const fth_job_spec *spec, int64_t set_count)
{
    fth_status status = FTH_OK;
    int64_t count = fth_share_samples(spec->share, set_count);
    FTH_REQUIRE(count > 0 && spec->batch <= count, FTH_INVALID,
                "a batch of %" PRId64 " is larger than the %" PRId64 " %s images of %s", spec->batch,
                count > 0 ? count : 0, split_names[spec->split], spec->data);

out:
    return status;
}

/* ---- which samples ---- */

int64_t fth_job_batches_per_epoch(const fth_job_spec *spec, int64_t set_count)
{
    return fth_batches_per_epoch(fth_share_samples(spec->share, set_count), spec->batch);
}

void fth_job_plan_batch(const fth_job_spec *spec, int64_t set_count, int64_t number, fth_batch_plan *plan)
{
    int64_t rotation = spec->rotation > 0 ? spec->rotation : 0;
    const fth_sampler sampler = {.seed = spec->order_seed,
                                 .count = set_count,
                                 .shuffle = spec->shuffle,
                                 .share = spec->share,
                                 .rotation = rotation % set_count};
    int64_t samples = fth_share_samples(spec->share, set_count);
    int64_t per_epoch = fth_batches_per_epoch(samples, spec->batch);
    int64_t begin = number % per_epoch * spec->batch, left = samples - begin;
    plan->number = number;
    plan->epoch = number / per_epoch;
    plan->order_epoch = plan->epoch + rotation / set_count;
    plan->whole = left < spec->batch ? left : spec->batch;
    plan->first = fth_part_begin(spec->part, plan->whole);
    plan->count = fth_part_samples(spec->part, plan->whole);
    fth_sampler_indices(&sampler, plan->order_epoch, begin + plan->first, plan->count, plan->samples);
}

static bool same_share(fth_share a, fth_share b)
{
    return a.index == b.index && a.of == b.of;
}

bool fth_job_has_same_batches(const fth_job_spec *a, const fth_job_spec *b)
{
    return strcmp(a->data, b->data) == 0 && strcmp(a->version, b->version) == 0 && a->split == b->split &&
           strcmp(a->transform, b->transform) == 0 && a->augmentation.flip == b->augmentation.flip &&
           a->augmentation.crop_padding == b->augmentation.crop_padding && a->batch == b->batch &&
           a->shuffle == b->shuffle && a->order_seed == b->order_seed && a->augment_seed == b->augment_seed &&
           same_share(a->share, b->share) && same_share(a->part, b->part);
}

/* ---- ids ---- */

enum { ID_ENCODING = 1 }; /* increases when the encoding changes, or when equal values give other contents */

static void add_number(XXH3_state_t *hash, uint64_t number)
{
    uint64_t little = htole64(number);
    XXH3_128bits_update(hash, &little, sizeof little);
}

static void add_text(XXH3_state_t *hash, const char *text)
{
    size_t length = strlen(text);
    add_number(hash, length);
    XXH3_128bits_update(hash, text, length);
}

/* The common prefix of all ids. */
static void begin_id(XXH3_state_t *hash, const fth_job_spec *spec, fth_item_kind kind)
{
    XXH3_128bits_reset(hash);
    add_number(hash, ID_ENCODING);
    add_number(hash, kind);
    add_text(hash, spec->version);
    add_number(hash, spec->split);
}

static fth_item_id end_id(const XXH3_state_t *hash)
{
    XXH128_hash_t digest = XXH3_128bits_digest(hash);
    return (fth_item_id){{digest.high64, digest.low64}};
}

bool fth_job_is_random(const fth_job_spec *spec)
{
    return spec->augmentation.flip || spec->augmentation.crop_padding > 0 || fth_transform_is_random(spec->transform);
}

/* How samples are prepared. */
static void add_preparation(XXH3_state_t *hash, const fth_job_spec *spec, int64_t epoch)
{
    bool random = fth_job_is_random(spec);
    add_text(hash, spec->transform);
    add_number(hash, spec->augmentation.flip);
    add_number(hash, (uint64_t)spec->augmentation.crop_padding);
    add_number(hash, random);
    if (random) {
        add_number(hash, spec->augment_seed);
        add_number(hash, (uint64_t)epoch);
    }
}

fth_item_id fth_job_batch_id(const fth_job_spec *spec, const fth_batch_plan *plan)
{
    XXH3_state_t hash;
    begin_id(&hash, spec, FTH_ITEM_BATCH);
    add_preparation(&hash, spec, plan->order_epoch);
    add_number(&hash, (uint64_t)plan->count);
    enum { BLOCK = 64 };
    for (int64_t begin = 0; begin < plan->count; begin += BLOCK) {
        uint64_t little[BLOCK];
        int64_t count = plan->count - begin < BLOCK ? plan->count - begin : BLOCK;
        for (int64_t i = 0; i < count; i++)
            little[i] = htole64((uint64_t)plan->samples[begin + i]);
        XXH3_128bits_update(&hash, little, (size_t)count * sizeof *little);
    }
    return end_id(&hash);
}

fth_item_id fth_job_sample_id(const fth_job_spec *spec, fth_item_kind kind, int64_t sample)
{
    XXH3_state_t hash;
    begin_id(&hash, spec, kind);
    add_number(&hash, (uint64_t)sample);
    return end_id(&hash);
}

fth_item_id fth_job_sequence_id(const fth_job_spec *spec)
{
    XXH3_state_t hash;
    begin_id(&hash, spec, FTH_ITEM_KINDS); /* not the id of any item */
    add_preparation(&hash, spec, 0);
    add_number(&hash, (uint64_t)spec->batch);
    add_number(&hash, spec->shuffle);
    add_number(&hash, spec->shuffle ? spec->order_seed : 0);
    const fth_share cuts[] = {spec->share, spec->part};
    for (size_t i = 0; i < FTH_COUNT_OF(cuts); i++) {
        add_number(&hash, cuts[i].of > 1 ? (uint64_t)cuts[i].index : 0);
        add_number(&hash, cuts[i].of > 1 ? (uint64_t)cuts[i].of : 1);
    }
    return end_id(&hash);
}
