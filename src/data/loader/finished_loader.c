/* A loader of batches that a provider has finished. It has no threads and no ring. */
#include <stdlib.h>

#include "data/loader/loader.h"

typedef struct finished_loader {
    fth_loader base;
    const fth_dataset *dataset;
    fth_next_batch *next;
    void *session;
} finished_loader;

static fth_status next(fth_loader *base, fth_deadline deadline, const fth_batch **batch)
{
    finished_loader *loader = (finished_loader *)base;
    return loader->next(loader->session, deadline, batch);
}

static void free_loader(fth_loader *base)
{
    finished_loader *loader = (finished_loader *)base;
    loader->dataset->kind->close_session(loader->dataset, loader->session);
    free(loader);
}

static const fth_loader_kind kind = {.next = next, .free = free_loader};

fth_status fth_finished_loader_open(const fth_dataset *dataset, fth_next_batch *next_batch, void *session,
                                    fth_loader **opened)
{
    finished_loader *loader = NULL;
    fth_status status = fth_allocate(1, sizeof *loader, &loader);
    if (status == FTH_OK) {
        *loader = (finished_loader){.base = {&kind}, .dataset = dataset, .next = next_batch, .session = session};
        *opened = &loader->base;
    }
    return status;
}
