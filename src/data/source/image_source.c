/* See image_source.h. */
#include "data/source/image_source.h"

static const fth_image_source_kind *const kinds[] = {
#define FTH_LIST(name) &fth_image_source_##name,
    FTH_IMAGE_SOURCES(FTH_LIST)
#undef FTH_LIST
};

fth_status fth_image_source_open(const char *address, const fth_dataset_options *options, fth_image_index *index,
                                 fth_image_source *source)
{
    for (size_t i = 0; i < FTH_COUNT_OF(kinds); i++) {
        if (!kinds[i]->fits(address))
            continue;
        source->kind = kinds[i];
        index->stop = options->stop;
        fth_status status = kinds[i]->open(address, options, index, &source->state);
        index->stop = NULL;
        return status;
    }
    return fth_fail(FTH_INVALID, "%s: cannot tell what kind of data set this is", address);
}

void fth_image_source_free(fth_image_source *source)
{
    if (source->kind)
        source->kind->free(source->state);
    *source = (fth_image_source){0};
}
