/* Decoded images in a bounded amount of memory. Images are kept until it is full, and never
 * replaced. No lock is needed: an entry is set once, by compare-and-swap, and never changes. */
#include <stdlib.h>
#include <string.h>

#include "data/image/decoded_cache.h"

typedef struct fth_cached_image {
    int width, height;
    uint8_t pixels[];
} fth_cached_image;

struct fth_decoded_cache {
    size_t count;
    uint64_t max_bytes;
    atomic_ullong used_bytes;
    _Atomic(fth_cached_image *) images[];
};

fth_status fth_decoded_cache_create(size_t entries, uint64_t max_bytes, fth_decoded_cache **cache)
{
    fth_status status = fth_allocate(1, sizeof **cache + entries * sizeof(*cache)->images[0], cache);
    if (status == FTH_OK) {
        (*cache)->count = entries;
        (*cache)->max_bytes = max_bytes;
    }
    return status;
}

void fth_decoded_cache_free(fth_decoded_cache *cache)
{
    for (size_t i = 0; cache && i < cache->count; i++)
        free(cache->images[i]);
    free(cache);
}

bool fth_decoded_cache_find(fth_decoded_cache *cache, size_t entry, fth_picture *picture)
{
    const fth_cached_image *image = atomic_load_explicit(&cache->images[entry], memory_order_acquire);
    if (!image)
        return false;
    *picture = (fth_picture){.pixels = image->pixels,
                             .stride = (size_t)image->width * FTH_IMAGE_CHANNELS,
                             .width = image->width,
                             .height = image->height};
    return true;
}

void fth_decoded_cache_keep(fth_decoded_cache *cache, size_t entry, const fth_picture *picture)
{
    size_t row = (size_t)picture->width * FTH_IMAGE_CHANNELS;
    size_t size = sizeof(fth_cached_image) + row * (size_t)picture->height + FTH_PICTURE_SLACK;
    if (atomic_fetch_add(&cache->used_bytes, size) + size > cache->max_bytes) {
        atomic_fetch_sub(&cache->used_bytes, size);
        return;
    }
    fth_cached_image *image = malloc(size), *nothing = NULL;
    if (image) {
        image->width = picture->width;
        image->height = picture->height;
        for (int y = 0; y < picture->height; y++)
            memcpy(image->pixels + (size_t)y * row, picture->pixels + (size_t)y * picture->stride, row);
        if (atomic_compare_exchange_strong_explicit(&cache->images[entry], &nothing, image, memory_order_release,
                                                    memory_order_relaxed))
            return;
    }
    free(image); /* another thread was first, or there is no memory */
    atomic_fetch_sub(&cache->used_bytes, size);
}
