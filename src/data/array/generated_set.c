/* See generator.h. Images are drawn when they are first needed, and kept. The state of an image:
 *
 *     BLANK -> BEING_DRAWN -> DRAWN
 *
 * The thread that moves an image from BLANK to BEING_DRAWN draws into the set. A thread that finds
 * BEING_DRAWN draws a copy of its own instead of waiting, so no image is read while it is
 * written. */
#include "data/array/generator.h"

#include <stdlib.h>

#include "data/array/array_set.h"
#include "data/loader/loader.h"

enum { BLANK, BEING_DRAWN, DRAWN };

typedef struct generated_set {
    const fth_generator *generator;
    fth_random_key keys[2]; /* by fth_split */
    uint8_t *pixels[2];
    atomic_uchar *states[2];
} generated_set;

static void free_set(void *state)
{
    generated_set *set = state;
    for (int split = 0; set && split < 2; split++) {
        free(set->pixels[split]);
        free(set->states[split]);
    }
    free(set);
}

/* A permutation modulo the number of classes: every class is equally frequent. */
static int32_t find_label(const fth_dataset *dataset, fth_split split, int64_t index)
{
    const generated_set *set = dataset->state;
    const fth_dataset_info *info = &set->generator->info;
    uint64_t place = fth_random_permute(set->keys[split], (uint64_t)info->count[split], (uint64_t)index);
    return (int32_t)(place % (uint64_t)info->classes);
}

static fth_status look(const fth_dataset *dataset, fth_split split, int64_t index, uint8_t *scratch,
                       const uint8_t **pixels, int32_t *label)
{
    const generated_set *set = dataset->state;
    const fth_generator *generator = set->generator;
    uint8_t *kept = set->pixels[split] + (size_t)index * fth_image_bytes(&generator->info);
    atomic_uchar *state = &set->states[split][index];
    unsigned char found = BLANK;

    *label = find_label(dataset, split, index);
    *pixels = kept;
    if (atomic_load_explicit(state, memory_order_acquire) == DRAWN)
        return FTH_OK;
    fth_random_key key = fth_random_fork(set->keys[split], (uint64_t)index);
    if (atomic_compare_exchange_strong_explicit(state, &found, BEING_DRAWN, memory_order_acquire,
                                                memory_order_acquire)) {
        generator->draw(key, *label, kept);
        atomic_store_explicit(state, DRAWN, memory_order_release);
    } else {
        generator->draw(key, *label, scratch);
        *pixels = scratch;
    }
    return FTH_OK;
}

static fth_status add_version(const fth_dataset *dataset, fth_version_hash *hash)
{
    const fth_generator *generator = ((const generated_set *)dataset->state)->generator;
    fth_version_add_shape(hash, dataset);
    fth_version_add_text(hash, generator->info.name);
    fth_version_add_number(hash, (uint64_t)generator->version);
    return FTH_OK;
}

static const fth_dataset_kind kind = {.name = "generated",
                                      .free = free_set,
                                      .label = find_label,
                                      .look = look,
                                      .add_version = add_version,
                                      .check_loader = fth_image_loader_check,
                                      .open_loader = fth_image_loader_open};

fth_status fth_generated_set_open(const fth_generator *generator, const fth_dataset_options *options,
                                  fth_dataset *dataset)
{
    fth_status status = FTH_OK;
    generated_set *set = NULL;

    FTH_TRY(fth_allocate(1, sizeof *set, &set));
    dataset->kind = &kind;
    dataset->state = set;
    dataset->info = generator->info;
    set->generator = generator;
    fth_random_key key = fth_random_key_for(0, FTH_RANDOM_GENERATE); /* the same in every run */
    for (const char *letter = generator->info.name; *letter; letter++)
        key = fth_random_fork(key, (uint8_t)*letter);
    for (int split = 0; split < 2; split++) {
        size_t count = (size_t)generator->info.count[split];
        set->keys[split] = fth_random_fork(key, (uint64_t)split);
        FTH_TRY(fth_allocate(count, fth_image_bytes(&generator->info), &set->pixels[split]));
        FTH_TRY(fth_allocate(count, sizeof *set->states[split], &set->states[split]));
    }
    FTH_TRY(fth_array_set_prepare(options, dataset));

out:
    return status;
}
