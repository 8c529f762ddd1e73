/* The pictures of a built-in set, each drawn when first looked at and kept.
 *
 * A picture's state:  0 blank -> 1 being drawn -> 2 drawn
 *
 * Whoever moves it from 0 to 1 draws into the gallery and then moves it to 2; who finds 1 does not
 * wait but draws a copy of its own; who finds 2 reads. So no two threads touch a picture's pixels
 * while one of them writes. */
#include <stdlib.h>

#include "data/data_internal.h"

enum { BLANK, BEING_DRAWN, DRAWN };

struct fth_gallery {
    const fth_generator *generator;
    fth_random_key keys[2]; /* by fth_split */
    uint8_t *pixels[2];
    atomic_uchar *states[2];
};

fth_status fth_gallery_create(const fth_generator *generator, fth_gallery **gallery)
{
    fth_status status = FTH_OK;
    fth_gallery *created = NULL;

    FTH_TRY(fth_allocate(1, sizeof *created, &created));
    created->generator = generator;
    fth_random_key key = fth_random_key_for(0, FTH_RANDOM_GENERATE); /* the sets are the same in every run */
    for (const char *letter = generator->info.name; *letter; letter++)
        key = fth_random_fork(key, (uint8_t)*letter);
    for (int split = 0; split < 2; split++) {
        size_t count = (size_t)generator->info.count[split];
        created->keys[split] = fth_random_fork(key, (uint64_t)split);
        FTH_TRY(fth_allocate(count, fth_image_bytes(&generator->info), &created->pixels[split]));
        FTH_TRY(fth_allocate(count, sizeof *created->states[split], &created->states[split]));
    }
    *gallery = created;
    created = NULL;

out:
    fth_gallery_free(created);
    return status;
}

void fth_gallery_free(fth_gallery *gallery)
{
    if (!gallery)
        return;
    for (int split = 0; split < 2; split++) {
        free(gallery->pixels[split]);
        free(gallery->states[split]);
    }
    free(gallery);
}

void fth_gallery_look(const fth_gallery *gallery, fth_split split, int64_t index, uint8_t *scratch,
                      const uint8_t **pixels, int32_t *label)
{
    const fth_generator *generator = gallery->generator;
    /* A permutation modulo the classes: as many of each, in no order. */
    uint64_t place = fth_random_permute(gallery->keys[split], (uint64_t)generator->info.count[split], (uint64_t)index);
    *label = (int32_t)(place % (uint64_t)generator->info.classes);

    uint8_t *kept = gallery->pixels[split] + (size_t)index * fth_image_bytes(&generator->info);
    atomic_uchar *state = &gallery->states[split][index];
    unsigned char found = BLANK;
    if (atomic_load_explicit(state, memory_order_acquire) == DRAWN) {
        *pixels = kept;
        return;
    }
    fth_random_key key = fth_random_fork(gallery->keys[split], (uint64_t)index);
    if (atomic_compare_exchange_strong_explicit(state, &found, BEING_DRAWN, memory_order_acquire,
                                                memory_order_acquire)) {
        generator->draw(key, *label, kept);
        atomic_store_explicit(state, DRAWN, memory_order_release);
        *pixels = kept;
    } else {
        generator->draw(key, *label, scratch); /* DRAWN since: a rare copy of the same picture */
        *pixels = scratch;
    }
}

void fth_gallery_add_version(const fth_gallery *gallery, fth_version_hash *hash)
{
    fth_version_add_text(hash, gallery->generator->info.name);
    fth_version_add_number(hash, (uint64_t)gallery->generator->version);
}
