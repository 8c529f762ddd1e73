/* See reader.h. A reader is a data set, its loader, and the batches that are out.
 *
 * A batch in shared memory is lent in place (fth_batches_keep). Others are copied from the loader's
 * ring into memory that is reused when they are returned. */
#include "batches/client/reader.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json.h"
#include "batches/agent/agent.h"
#include "batches/client/client.h"

enum { ORDER_TEXT = 80 };
static const double usual_timeout_s = 60, usual_validation_fraction = 0.1;

/* A batch that is out, or the memory of a returned one. */
typedef struct fth_reader_lease {
    struct fth_reader_lease *next;
    int64_t *labels; /* room for a batch */
    float *copy;     /* room for its images; NULL until one had to be copied */
    bool kept;       /* the images are in shared memory ... */
    uint64_t shared; /* ... under this lease */
} fth_reader_lease;

struct fth_reader {
    fth_dataset *dataset;
    fth_loader_options loading;
    fth_loader *loader; /* NULL until the first batch, if no job has to be registered */
    int worker;         /* index among the data workers */
    double timeout_s;
    fth_reader_info info;
    fth_job_spec spec;
    char order[ORDER_TEXT];
    char *job; /* NULL: nothing is shared */

    pthread_mutex_t mutex; /* guards the members below */
    fth_reader_lease *out, *spare;
};

const char *fth_reader_error(void)
{
    return fth_error_message();
}

/* ---- addresses ---- */

/* True if `later` sets the parameter "key=..." at `text` again. */
static bool is_set_again(const char *text, size_t length, const char *later)
{
    const char *equals = memchr(text, '=', length);
    size_t key = equals ? (size_t)(equals - text) + 1 : length;
    for (const char *at = later; at; at = strchr(at, '&') ? strchr(at, '&') + 1 : NULL)
        if (strncmp(at, text, key) == 0)
            return true;
    return false;
}

/* Adds the parameters of `added` ("a=1&b=2") to an address and replaces equal ones. The caller
 * frees *result. */
static fth_status set_parameters(const char *address, const char *added, char **result)
{
    fth_status status = FTH_OK;
    const char *question = strchr(address, '?');
    size_t size = strlen(address) + strlen(added) + 3, used = question ? (size_t)(question - address) : strlen(address);

    FTH_TRY(fth_allocate(size, 1, result));
    memcpy(*result, address, used);
    char mark = '?';
    while (question) {
        const char *begin = question + 1;
        question = strchr(begin, '&');
        size_t length = question ? (size_t)(question - begin) : strlen(begin);
        if (length > 0 && !is_set_again(begin, length, added)) {
            used += (size_t)snprintf(*result + used, size - used, "%c%.*s", mark, (int)length, begin);
            mark = '&';
        }
    }
    if (*added)
        snprintf(*result + used, size - used, "%c%s", mark, added);

out:
    return status;
}

/* Merges the options into the address. */
static fth_status complete_address(const char *address, const fth_reader_options *options, char **result)
{
    fth_status status = FTH_OK;
    char *with_share = NULL, *with_form = NULL, parameter[64];

    snprintf(parameter, sizeof parameter, "%s%s", options->share ? "share=" : "", options->share ? options->share : "");
    FTH_TRY(set_parameters(address, parameter, &with_share));
    snprintf(parameter, sizeof parameter, "%s%s", options->format ? "form=" : "",
             options->format ? options->format : "");
    FTH_TRY(set_parameters(with_share, parameter, &with_form));
    FTH_TRY(set_parameters(with_form, options->order ? options->order : "", result));

out:
    free(with_share);
    free(with_form);
    return status;
}

fth_status fth_reader_check(const char *address, double timeout_s)
{
    if (!address)
        return fth_fail(FTH_INVALID, "no address");
    return fth_batches_is_address(address) ? fth_batches_check(address, fth_deadline_in(timeout_s)) : FTH_OK;
}

/* ---- opening and closing ---- */

static fth_status open_dataset(const char *address, const fth_reader_options *options, fth_dataset **dataset)
{
    bool training = options->split == FTH_TRAIN;
    fth_dataset_options how = {.seed = 1,
                               .validation_fraction = usual_validation_fraction,
                               .threads = 1,
                               .image_size = options->image_size,
                               .transform = training ? options->transform : NULL,
                               .validation_transform = training ? NULL : options->transform,
                               .max_bad_images = options->max_bad_images,
                               .images_for = "a reader of batches",
                               .schemes = fth_batches_schemes};
    return fth_batches_is_address(address) ? fth_batches_open_job(address, options->job, &how, dataset)
                                           : fth_dataset_open(address, &how, dataset);
}

static fth_status choose_loading(const fth_reader_options *options, fth_loader_options *loading)
{
    fth_status status = FTH_OK;
    int64_t workers = options->workers > 0 ? options->workers : 1;
    FTH_REQUIRE(options->ranks >= 0 && options->rank >= 0 && (options->ranks == 0 || options->rank < options->ranks),
                FTH_INVALID, "rank %d of %d; ranks count from 0", options->rank, options->ranks);
    FTH_REQUIRE(options->worker >= 0 && options->worker < workers, FTH_INVALID, "worker %d of %" PRId64,
                options->worker, workers);
    FTH_REQUIRE(options->first_batch >= 0, FTH_INVALID, "the first batch cannot be %" PRId64, options->first_batch);
    *loading = (fth_loader_options){.split = options->split,
                                    .batch = options->batch,
                                    .seed = options->seed,
                                    .shuffle = options->shuffle,
                                    .threads = options->threads,
                                    .by_index = options->by_index,
                                    .first_batch = options->first_batch + options->worker,
                                    .stride = workers,
                                    .batch_limit = options->batch_limit,
                                    .part = {options->rank, options->ranks}};
    if (options->augment)
        FTH_TRY(fth_augmentation_find(options->augment, &loading->augmentation));

out:
    return status;
}

/* Describes what determines the order of samples, and how others get the same. */
static void describe_job(fth_reader *reader)
{
    fth_batches_registration registration;
    if (!fth_batches_get_registration(reader->dataset, &registration)) {
        const fth_loader_options *loading = &reader->loading;
        reader->spec = (fth_job_spec){.split = loading->split,
                                      .batch = loading->batch,
                                      .shuffle = loading->shuffle,
                                      .order_seed = loading->seed,
                                      .augment_seed = loading->seed,
                                      .part = loading->part};
        return;
    }
    reader->spec = registration.spec;
    snprintf(reader->order, sizeof reader->order, "rotation=%" PRId64 "&share=%s&form=%s", reader->spec.rotation,
             fth_sharing_name(reader->spec.sharing), fth_cache_format_name(reader->spec.format));
    reader->job = fth_batches_save_job(reader->dataset);
}

static fth_status open_loader(fth_reader *reader)
{
    return reader->loader ? FTH_OK : fth_loader_open(reader->dataset, &reader->loading, &reader->loader);
}

fth_status fth_reader_open(const char *address, const fth_reader_options *options, fth_reader **reader)
{
    fth_status status = FTH_OK;
    fth_reader *opened = NULL;
    char *complete = NULL;

    FTH_REQUIRE(address && options && reader, FTH_INVALID, "no address, options or reader");
    FTH_TRY(fth_allocate(1, sizeof *opened, &opened));
    pthread_mutex_init(&opened->mutex, NULL);
    opened->worker = options->worker;
    opened->timeout_s = options->timeout_s > 0 ? options->timeout_s : usual_timeout_s;
    FTH_TRY(choose_loading(options, &opened->loading));
    if (fth_batches_is_address(address))
        FTH_TRY(complete_address(address, options, &complete));
    FTH_TRY(open_dataset(complete ? complete : address, options, &opened->dataset));
    if (complete) /* opening the loader registers the job */
        FTH_TRY(open_loader(opened));
    describe_job(opened);

    const fth_dataset_info *info = fth_dataset_get_info(opened->dataset);
    opened->info = (fth_reader_info){.training = info->count[FTH_TRAIN],
                                     .validation = info->count[FTH_VALIDATION],
                                     .classes = info->classes,
                                     .channels = info->channels,
                                     .height = info->height,
                                     .width = info->width,
                                     .class_names = info->class_names,
                                     .plan = {.seed = opened->spec.order_seed,
                                              .samples = info->count[options->split],
                                              .batch = opened->spec.batch,
                                              .rotation = opened->spec.rotation,
                                              .shuffle = opened->spec.shuffle,
                                              .rank = options->rank,
                                              .ranks = options->ranks}};
    FTH_REQUIRE(options->batch >= 1 && options->batch <= info->count[options->split], FTH_INVALID,
                "a batch of %" PRId64 " samples; %s has %" PRId64 " %s images", options->batch, info->name,
                info->count[options->split], options->split == FTH_TRAIN ? "training" : "validation");
    opened->info.batches_per_epoch = fth_batches_per_epoch(info->count[options->split], options->batch);
    *reader = opened;
    opened = NULL;

out:
    free(complete);
    fth_reader_close(opened);
    return status;
}

static void free_leases(fth_reader_lease *lease)
{
    while (lease) {
        fth_reader_lease *next = lease->next;
        free(lease->copy);
        free(lease->labels);
        free(lease);
        lease = next;
    }
}

void fth_reader_close(fth_reader *reader)
{
    if (!reader)
        return;
    for (fth_reader_lease *lease = reader->out; lease; lease = lease->next)
        if (lease->kept)
            fth_batches_let_go(reader->dataset, lease->shared);
    free_leases(reader->out);
    free_leases(reader->spare);
    free(reader->job);
    fth_loader_free(reader->loader);
    fth_dataset_free(reader->dataset);
    pthread_mutex_destroy(&reader->mutex);
    free(reader);
}

void fth_reader_abandon(fth_reader *reader)
{
    if (reader)
        fth_batches_abandon(reader->dataset);
}

const fth_reader_info *fth_reader_get_info(const fth_reader *reader)
{
    return &reader->info;
}

const char *fth_reader_job(const fth_reader *reader)
{
    return reader->job ? reader->job : "";
}

const char *fth_reader_order(const fth_reader *reader)
{
    return reader->order;
}

/* ---- batches ---- */

static fth_status take_spare(fth_reader *reader, fth_reader_lease **lease)
{
    fth_status status = FTH_OK;
    fth_reader_lease *taken;

    pthread_mutex_lock(&reader->mutex);
    taken = reader->spare;
    if (taken)
        reader->spare = taken->next;
    pthread_mutex_unlock(&reader->mutex);
    if (!taken) {
        FTH_TRY(fth_allocate(1, sizeof *taken, &taken));
        FTH_TRY(fth_allocate((size_t)reader->loading.batch, sizeof *taken->labels, &taken->labels));
    }
    *lease = taken;
    taken = NULL;

out:
    free_leases(taken);
    return status;
}

static size_t image_floats(const fth_reader *reader)
{
    const fth_reader_info *info = &reader->info;
    return (size_t)info->channels * (size_t)info->height * (size_t)info->width;
}

/* Where the images of a batch are kept: in shared memory, or in a copy. */
static fth_status keep_images(fth_reader *reader, const fth_batch *batch, fth_reader_lease *lease, const float **images)
{
    fth_status status = FTH_OK;
    size_t image_bytes = image_floats(reader) * sizeof(float);

    lease->kept = fth_batches_keep(reader->dataset, batch, &lease->shared);
    *images = batch->images;
    if (!lease->kept) {
        if (!lease->copy)
            FTH_TRY(fth_allocate_aligned((size_t)reader->loading.batch * image_bytes, &lease->copy));
        if (batch->count > 0)
            memcpy(lease->copy, batch->images, (size_t)batch->count * image_bytes);
        *images = lease->copy;
    }

out:
    return status;
}

fth_status fth_reader_next(fth_reader *reader, fth_reader_batch *batch)
{
    fth_status status = FTH_OK;
    const fth_batch *loaded = NULL;
    const float *images = NULL;
    fth_reader_lease *lease = NULL;

    *batch = (fth_reader_batch){.number = -1};
    FTH_REQUIRE(!reader->loading.by_index, FTH_INVALID, "this reader was opened for samples by index");
    FTH_TRY(open_loader(reader));
    FTH_TRY(fth_loader_next(reader->loader, fth_deadline_in(reader->timeout_s), &loaded));
    if (!loaded)
        goto out;
    FTH_TRY(take_spare(reader, &lease));
    FTH_TRY(keep_images(reader, loaded, lease, &images));
    for (int64_t i = 0; i < loaded->count; i++)
        lease->labels[i] = loaded->labels[i];
    *batch = (fth_reader_batch){.images = images,
                                .labels = lease->labels,
                                .count = loaded->count,
                                .number = loaded->number,
                                .epoch = loaded->epoch,
                                .lease = (uintptr_t)lease};
    pthread_mutex_lock(&reader->mutex);
    lease->next = reader->out;
    reader->out = lease;
    pthread_mutex_unlock(&reader->mutex);
    lease = NULL;

out:
    free_leases(lease);
    return status;
}

fth_status fth_reader_seek(fth_reader *reader, int64_t first_batch)
{
    fth_status status = FTH_OK;

    FTH_REQUIRE(first_batch >= 0, FTH_INVALID, "the first batch cannot be %" PRId64, first_batch);
    fth_loader_free(reader->loader);
    reader->loader = NULL;
    reader->loading.first_batch = first_batch + reader->worker;
    FTH_TRY(open_loader(reader));

out:
    return status;
}

void fth_reader_give_back(fth_reader *reader, uint64_t number)
{
    pthread_mutex_lock(&reader->mutex);
    fth_reader_lease **place = &reader->out, *lease;
    while (*place && (uintptr_t)*place != number)
        place = &(*place)->next;
    lease = *place;
    if (lease) {
        if (lease->kept)
            fth_batches_let_go(reader->dataset, lease->shared);
        *place = lease->next;
        lease->kept = false;
        lease->next = reader->spare;
        reader->spare = lease;
    }
    pthread_mutex_unlock(&reader->mutex);
}

/* ---- samples by index ---- */

int64_t fth_reader_plan_batch(const fth_reader_plan *plan, int64_t number, int64_t *samples)
{
    fth_batch_plan batch = {.samples = samples};
    fth_job_spec spec = {.batch = plan->batch,
                         .shuffle = plan->shuffle,
                         .order_seed = plan->seed,
                         .rotation = plan->rotation,
                         .part = {plan->rank, plan->ranks}};
    fth_job_plan_batch(&spec, plan->samples, number, &batch);
    return batch.count;
}

fth_status fth_reader_get(fth_reader *reader, int64_t number, int64_t sample, float *image, int64_t *label)
{
    fth_status status = FTH_OK;
    int32_t read;

    FTH_TRY(open_loader(reader));
    FTH_TRY(fth_loader_get(reader->loader, number, sample, image, &read));
    *label = read;

out:
    return status;
}

/* ---- the rest ---- */

char *fth_reader_figures(const fth_reader *reader)
{
    fth_batches_figures figures;
    if (!fth_batches_get_figures(reader->dataset, &figures))
        return strdup("{}");
    json_t *json =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s}", "hits", (json_int_t)figures.hits, "waits",
                  (json_int_t)figures.waits, "misses", (json_int_t)figures.misses, "bytes", (json_int_t)figures.bytes,
                  "corrupt", (json_int_t)figures.corrupt, "direct", (json_int_t)figures.direct, "decoded_for_it",
                  (json_int_t)figures.decoded_for_it, "decoded_by_others", (json_int_t)figures.decoded_by_others,
                  "form", fth_cache_format_name(figures.format), "why", figures.why);
    fth_json_set_number(json, "wait_s", figures.wait_s);
    fth_json_set_number(json, "fetch_s", figures.fetch_s);
    fth_json_set_number(json, "decode_s", figures.decode_s);
    fth_json_set_number(json, "usd", figures.usd);
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    return text;
}

void fth_reader_free_text(char *text)
{
    free(text);
}

fth_status fth_reader_run_agent(const char *url, const char *pinned_key, const char *ca_file, uint64_t memory_bytes,
                                double idle_s)
{
    return fth_batches_agent_run(&(fth_batches_agent_options){
        .url = url, .pinned_key = pinned_key, .ca_file = ca_file, .memory_bytes = memory_bytes, .idle_s = idle_s});
}
