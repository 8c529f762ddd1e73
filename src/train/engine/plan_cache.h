/* The plans of one engine: one for each size and mode, made ahead or when first needed. They never
 * run at the same time and share one arena, as large as the largest of them needs. Batches of text
 * come in many sizes: of more than FTH_MAX_PLANS, the least recently used one is dropped. */
#ifndef FTH_TRAIN_PLAN_CACHE_H
#define FTH_TRAIN_PLAN_CACHE_H

#include "backend/plan.h"

typedef struct fth_plan_cache fth_plan_cache;

enum { FTH_MAX_PLANS = 64 };

/* What a plan has room for. */
typedef struct fth_plan_size {
    int64_t batch;
    int64_t tokens; /* of text: fth_text_capacity(); of images: 0 */
} fth_plan_size;

/* The graph, the device and `model`, a name for messages, must outlive the cache. `like` is what
 * all plans have in common; its batch and mode are not read. */
fth_status fth_plan_cache_create(const fth_graph *graph, fth_device *device, fth_plan_options like, const char *model,
                                 fth_plan_cache **cache);
void fth_plan_cache_free(fth_plan_cache *cache);

/* Binds all plans, those yet to be made too, to these vectors. Once before the first plan is
 * made. */
fth_status fth_plan_cache_bind(fth_plan_cache *cache, fth_vectors vectors);

/* By when plans are made from now on; see fth_plan_options. */
void fth_plan_cache_set_deadline(fth_plan_cache *cache, fth_deadline deadline, const fth_stop *stop);

/* The plan for this size and mode, made if there is none yet; lent until the next call.
 * FTH_NO_MEMORY names a batch size that would fit. */
fth_status fth_plan_cache_get(fth_plan_cache *cache, fth_plan_size size, fth_plan_mode mode, fth_plan **plan);
/* The same; NULL if there is none yet. */
fth_plan *fth_plan_cache_find(const fth_plan_cache *cache, fth_plan_size size, fth_plan_mode mode);

#endif
