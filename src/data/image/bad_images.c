/* See bad_images.h. Whether an image is known to be bad is one bit, read without the lock for every
 * sample. */
#include "data/image/bad_images.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USUAL_BAD_SHARE 0.001

struct fth_bad_images {
    char *source;
    int64_t count;
    double max_share;

    pthread_mutex_t mutex; /* guards what follows */
    uint8_t *is_bad;       /* a bit for each image; atomically read without the mutex */
    fth_bad_image **bad;
    size_t bad_count, bad_capacity;
};

fth_status fth_bad_images_create(const char *source, int64_t count, double max_share, fth_bad_images **images)
{
    fth_status status = FTH_OK;
    fth_bad_images *created = NULL;

    FTH_TRY(fth_allocate(1, sizeof *created, &created));
    pthread_mutex_init(&created->mutex, NULL);
    created->count = count;
    created->max_share = max_share > 0 ? max_share : USUAL_BAD_SHARE;
    FTH_REQUIRE(created->source = fth_format("%s", source), FTH_NO_MEMORY, "no memory for the name of a data set");
    FTH_TRY(fth_allocate((size_t)count / 8 + 1, 1, &created->is_bad));
    *images = created;
    created = NULL;

out:
    fth_bad_images_free(created);
    return status;
}

void fth_bad_images_free(fth_bad_images *images)
{
    if (!images)
        return;
    for (size_t i = 0; i < images->bad_count; i++)
        free(images->bad[i]);
    free(images->bad);
    free(images->is_bad);
    free(images->source);
    pthread_mutex_destroy(&images->mutex);
    free(images);
}

bool fth_bad_images_has(const fth_bad_images *images, int64_t number)
{
    return __atomic_load_n(&images->is_bad[number / 8], __ATOMIC_RELAXED) >> (number % 8) & 1;
}

static fth_status fail_too_many(const fth_bad_images *images)
{
    char names[512] = "";
    for (size_t i = 0; i < images->bad_count && i < 3; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%.100s (%.60s)", used ? ", " : "", images->bad[i]->name,
                 images->bad[i]->reason);
    }
    return fth_fail(
        FTH_CORRUPT,
        "%s: %zu of %s cannot be read, more than the share of %g allowed: %s%s; mend or remove them, or allow "
        "more with --max-bad-images",
        images->source, images->bad_count, FTH_COUNTED(images->count, "image"),
        images->max_share > 1e-9 ? images->max_share : 0, names, images->bad_count > 3 ? " ..." : "");
}

/* With the mutex held. */
static bool are_too_many(const fth_bad_images *images)
{
    double allowed = images->max_share * (double)images->count;
    if (allowed < 1) /* in a small set one image is allowed, unless the share is practically 0 */
        allowed = images->max_share > 1e-9 ? 1 : 0;
    return (double)images->bad_count > allowed;
}

fth_status fth_bad_images_note(fth_bad_images *images, int64_t number, fth_split split, const char *name,
                               const char *reason)
{
    fth_status status = FTH_OK;
    fth_bad_image *bad = NULL;
    const size_t name_bytes = strlen(name) + 1, reason_bytes = strlen(reason) + 1;

    pthread_mutex_lock(&images->mutex);
    if (fth_bad_images_has(images, number))
        goto out;
    FTH_TRY(fth_grow(&images->bad, images->bad_count, &images->bad_capacity, sizeof *images->bad));
    FTH_TRY(fth_allocate(sizeof *bad + name_bytes + reason_bytes, 1, &bad));
    char *text = (char *)(bad + 1);
    bad->name = memcpy(text, name, name_bytes);
    bad->reason = memcpy(text + name_bytes, reason, reason_bytes);
    bad->split = split;
    images->bad[images->bad_count++] = bad;
    __atomic_fetch_or(&images->is_bad[number / 8], (uint8_t)(1 << number % 8), __ATOMIC_RELAXED);
    fth_log_warning("%s: %s cannot be read (%s); another image takes its place", images->source, bad->name,
                    bad->reason);
    if (are_too_many(images))
        status = fail_too_many(images);

out:
    pthread_mutex_unlock(&images->mutex);
    return status;
}

const char *fth_bad_images_source(const fth_bad_images *images)
{
    return images->source;
}

int64_t fth_bad_images_count(fth_bad_images *images)
{
    pthread_mutex_lock(&images->mutex);
    int64_t count = (int64_t)images->bad_count;
    pthread_mutex_unlock(&images->mutex);
    return count;
}

const fth_bad_image *fth_bad_images_get(fth_bad_images *images, int64_t place)
{
    const fth_bad_image *bad = NULL;
    pthread_mutex_lock(&images->mutex);
    if (place >= 0 && place < (int64_t)images->bad_count)
        bad = images->bad[place];
    pthread_mutex_unlock(&images->mutex);
    return bad;
}
