/* Data sets whose samples are handed out by a provider (provider.h). Once a sample has its bytes,
 * it is treated like one of a file or an array. */
#include "data/source/provider.h"

#include <stdlib.h>
#include <string.h>

#include "data/loader/loader.h"

/* A sample that does not arrive in this time ends the loading. It is requested in short steps, so
 * that the loader can be closed meanwhile. */
#define TAKE_TIMEOUT_S 60
#define TAKE_STEP_S    0.5

typedef struct provided_samples {
    fth_dataset_provider provider;
    char *name, *version;
    char **class_names;
    int classes;
} provided_samples;

static void free_samples(void *state)
{
    provided_samples *samples = state;
    if (!samples)
        return;
    if (samples->provider.free)
        samples->provider.free(samples->provider.context);
    for (int i = 0; samples->class_names && i < samples->classes; i++)
        free(samples->class_names[i]);
    free(samples->class_names);
    free(samples->name);
    free(samples->version);
    free(samples);
}

static const fth_dataset_provider *provider_of(const fth_dataset *dataset)
{
    return &((const provided_samples *)dataset->state)->provider;
}

/* ---- samples ---- */

static fth_status read_sample(const fth_dataset *dataset, const fth_sample_request *request, int64_t index,
                              fth_image_worker *worker, fth_raw_sample *raw)
{
    const fth_dataset_provider *provider = provider_of(dataset);
    const fth_deadline deadline = fth_deadline_in(TAKE_TIMEOUT_S);
    (void)worker;
    for (;;) {
        *raw = (fth_raw_sample){.unplanned = index != request->sample};
        fth_status status = provider->take(provider->context, request->session, request->split, index,
                                           fth_deadline_in(TAKE_STEP_S), raw);
        if (status != FTH_OK && !raw->lease)
            raw->bytes = NULL; /* nothing to give back */
        if (status != FTH_TIMEOUT || fth_deadline_passed(deadline))
            return status;
        if (request->stop && atomic_load_explicit(request->stop, memory_order_relaxed))
            return fth_fail(FTH_INTERRUPTED, "stopped");
    }
}

static void give_back(const fth_dataset *dataset, fth_raw_sample *raw)
{
    const fth_dataset_provider *provider = provider_of(dataset);
    if (raw->bytes || raw->lease)
        provider->give_back(provider->context, raw);
}

static const char *get_version(const fth_dataset *dataset)
{
    return ((const provided_samples *)dataset->state)->version;
}

static size_t expect(const fth_dataset *dataset, void *session, fth_split split, const int64_t *samples, size_t count,
                     double needed_s)
{
    (void)split;
    (void)needed_s;
    return session ? provider_of(dataset)->expect(session, samples, count) : count;
}

static bool explain(const fth_dataset *dataset, char *text, size_t size)
{
    const fth_dataset_provider *provider = provider_of(dataset);
    if (provider->explain)
        provider->explain(provider->context, text, size);
    return provider->explain != NULL;
}

/* ---- sessions ---- */

static void moved(const fth_dataset *dataset, void *session, int64_t next)
{
    if (provider_of(dataset)->moved)
        provider_of(dataset)->moved(session, next);
}

static void close_session(const fth_dataset *dataset, void *session)
{
    provider_of(dataset)->close_session(provider_of(dataset)->context, session);
}

static fth_status open_loader(const fth_dataset *dataset, const fth_loader_options *options, fth_loader **loader)
{
    fth_status status = FTH_OK;
    const fth_dataset_provider *provider = provider_of(dataset);
    fth_loader_options chosen = *options;
    bool finished = false;
    void *session = NULL;

    if (provider->open_session)
        FTH_TRY(provider->open_session(provider->context, dataset, &chosen, &finished, &session));
    FTH_REQUIRE(!options->by_index || !finished, FTH_INVALID,
                "the cache has finished batches of %s for this job; samples by index need form=decoded or form=encoded",
                dataset->info.name);
    if (finished)
        FTH_TRY(fth_finished_loader_open(dataset, provider->next, session, loader));
    else
        FTH_TRY(fth_image_loader_open_for_session(dataset, &chosen, session, true, loader));
    session = NULL;

out:
    if (session)
        close_session(dataset, session);
    return status;
}

static const fth_dataset_kind kind = {.name = "provided",
                                      .free = free_samples,
                                      .read = read_sample,
                                      .give_back = give_back,
                                      .get_version = get_version,
                                      .expect = expect,
                                      .explain = explain,
                                      .moved = moved,
                                      .close_session = close_session,
                                      .check_loader = fth_image_loader_check,
                                      .open_loader = open_loader};

/* ---- opening ---- */

static fth_status copy_text(const char *text, char **copy)
{
    *copy = fth_format("%s", text ? text : "");
    return *copy ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for the names of a data set");
}

static fth_status copy_names(const fth_provided_set *set, provided_samples *samples, fth_dataset_info *info)
{
    fth_status status = FTH_OK;

    FTH_TRY(copy_text(set->info.name, &samples->name));
    FTH_TRY(copy_text(set->version, &samples->version));
    FTH_TRY(fth_allocate((size_t)set->info.classes + 1, sizeof *samples->class_names, &samples->class_names));
    samples->classes = set->info.classes;
    for (int i = 0; i < set->info.classes; i++)
        FTH_TRY(copy_text(set->info.class_names[i], &samples->class_names[i]));
    info->name = samples->name;
    info->class_names = (const char *const *)samples->class_names;

out:
    return status;
}

static fth_status check_set(const fth_provided_set *set)
{
    fth_status status = FTH_OK;
    const fth_dataset_info *info = &set->info;
    const char *source = set->source ? set->source : "a data set";

    FTH_REQUIRE(info->classes >= 1 && info->class_names, FTH_INVALID, "%s has no classes", source);
    FTH_REQUIRE(info->count[FTH_TRAIN] >= 0 && info->count[FTH_VALIDATION] >= 0, FTH_INVALID,
                "%s has a negative number of images", source);
    FTH_REQUIRE(info->channels >= 1 && info->channels <= FTH_MAX_CHANNELS, FTH_INVALID,
                "%s has images of %s; 1 to %d are possible", source, FTH_COUNTED(info->channels, "channel"),
                FTH_MAX_CHANNELS);
    FTH_REQUIRE(set->raw_height >= 0 && set->raw_height <= FTH_MAX_OUTPUT_SIDE && set->raw_width >= 0 &&
                    set->raw_width <= FTH_MAX_OUTPUT_SIDE &&
                    (set->files || (set->raw_height > 0 && set->raw_width > 0)),
                FTH_INVALID, "%s has images of %d × %d pixels; 1 to %d on each side are possible", source,
                set->raw_height, set->raw_width, FTH_MAX_OUTPUT_SIDE);

out:
    return status;
}

fth_status fth_dataset_create_provided(const fth_provided_set *set, const fth_dataset_provider *provider,
                                       const fth_dataset_options *options, fth_dataset **dataset)
{
    fth_status status = FTH_OK;
    fth_dataset *created = NULL;
    provided_samples *samples = NULL;

    if (fth_allocate(1, sizeof *samples, &samples) != FTH_OK) {
        provider->free(provider->context);
        return FTH_NO_MEMORY;
    }
    samples->provider = *provider;
    FTH_TRY(check_set(set));
    FTH_TRY(fth_allocate(1, sizeof *created, &created));
    created->kind = &kind;
    created->info = set->info;
    created->expects = provider->expect != NULL;
    FTH_TRY(copy_names(set, samples, &created->info));
    FTH_TRY(fth_bad_images_create(set->source ? set->source : "",
                                  set->info.count[FTH_TRAIN] + set->info.count[FTH_VALIDATION], options->max_bad_images,
                                  &created->bad));
    const fth_raw_images raw = {.channels = set->info.channels,
                                .height = set->raw_height,
                                .width = set->raw_width,
                                .files = set->files,
                                .normalization = set->info.normalization};
    FTH_TRY(fth_dataset_prepare(options, &raw, created));
    created->state = samples;
    samples = NULL;
    *dataset = created;
    created = NULL;

out:
    free_samples(samples);
    fth_dataset_free(created);
    return status;
}

void *fth_dataset_get_provider(const fth_dataset *dataset, void (*free_context)(void *context))
{
    return dataset->kind == &kind && provider_of(dataset)->free == free_context ? provider_of(dataset)->context : NULL;
}

void fth_dataset_describe_provided(const fth_dataset *dataset, fth_provided_set *set)
{
    *set = (fth_provided_set){.info = dataset->info,
                              .files = dataset->raw.files,
                              .raw_height = dataset->raw.height,
                              .raw_width = dataset->raw.width,
                              .source = dataset->info.name};
    set->info.normalization = dataset->raw.normalization;
}
