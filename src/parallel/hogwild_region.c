/* The memory that workers share: a head, the workers' messages, slots for batches, and the
 * vectors. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parallel/hogwild.h"

#define MAGIC UINT64_C(0x34646c6977676f68) /* "hogwild4" */

enum { QUEUE_BYTES = 2 << 20, MAX_QUEUE = 64, PAGE = 4096, HUGE_PAGE = 2 << 20 };

static size_t place(size_t *size, size_t bytes, size_t alignment)
{
    size_t at = fth_align_up(*size, alignment);
    *size = at + bytes;
    return at;
}

/* A batch for each worker, and more waiting: small ones are done in less time than it takes to wake
 * the trainer. */
static int choose_slots(int workers, size_t batch_bytes)
{
    size_t queue = QUEUE_BYTES / batch_bytes;
    if (queue < (size_t)workers)
        queue = (size_t)workers;
    return workers + (queue < MAX_QUEUE ? (int)queue : MAX_QUEUE > workers ? MAX_QUEUE : workers);
}

static hogwild_head lay_out(const hogwild_plan *plan)
{
    const fth_engine_options *facts = fth_engine_get_options(plan->engine);
    fth_engine_sizes sizes = fth_engine_get_sizes(plan->engine);
    int64_t batch = facts->train->batch;
    hogwild_head head = {.magic = MAGIC,
                         .parent = getpid(),
                         .worker_count = plan->workers,
                         .worker_state = plan->worker_state,
                         .model = {.channels = facts->channels,
                                   .height = facts->height,
                                   .width = facts->width,
                                   .longest = facts->longest,
                                   .task = facts->task,
                                   .classes = facts->classes,
                                   .training_samples = facts->training_samples,
                                   .batch = batch,
                                   .sizes = sizes}};
    size_t size = sizeof head, sets = 1 + (plan->worker_state ? (size_t)plan->workers : 0);

    snprintf(head.model.backend, sizeof head.model.backend, "%s", fth_engine_device(plan->engine)->backend->name);
    snprintf(head.model.precision, sizeof head.model.precision, "%s", fth_engine_precision(plan->engine));
    head.layout.batch = hogwild_measure_batch(&head.model);
    head.layout.state_bytes = fth_align_up(sizes.trained * sizeof(float), PAGE);
    head.slot_count = choose_slots(plan->workers, head.layout.batch.input_bytes);
    head.layout.options_bytes = strlen(plan->options) + 1;
    head.layout.network_bytes = plan->network ? strlen(plan->network) + 1 : 0;
    size_t slots = (size_t)head.slot_count;
    head.layout.workers_at = place(&size, (size_t)plan->workers * sizeof(hogwild_worker), HOGWILD_LINE);
    head.layout.slots_at = place(&size, slots * sizeof(hogwild_slot), HOGWILD_LINE);
    head.layout.options_at = place(&size, head.layout.options_bytes, HOGWILD_LINE);
    head.layout.network_at = place(&size, head.layout.network_bytes, HOGWILD_LINE);
    head.layout.answers_at = place(&size, slots * head.layout.batch.answer_bytes, PAGE);
    head.layout.recipes_at = place(&size, slots * head.layout.batch.recipe_bytes, PAGE);
    head.layout.inputs_at = place(&size, slots * head.layout.batch.input_bytes, PAGE);
    head.layout.buffers_at = place(&size, sizes.buffers * sizeof(float), PAGE);
    head.layout.parameters_at = place(&size, sizes.parameters * sizeof(float), PAGE);
    head.layout.state_at = place(&size, sets * (size_t)sizes.state_count * head.layout.state_bytes, PAGE);
    head.layout.size_bytes = fth_align_up(size, PAGE);
    return head;
}

static fth_status map(size_t size_bytes, int descriptor, hogwild_head **head)
{
    int flags = descriptor >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void *mapped = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0);
    if (mapped == MAP_FAILED)
        return fth_fail(FTH_NO_MEMORY, "no memory for the %.1f MB that workers share: %s", (double)size_bytes / 1e6,
                        strerror(errno));
    if (size_bytes >= 4 * (size_t)HUGE_PAGE)
        madvise(mapped, size_bytes, MADV_HUGEPAGE); /* advice only */
    *head = mapped;
    return FTH_OK;
}

fth_status hogwild_region_create(const hogwild_plan *plan, hogwild_head **head, int *descriptor)
{
    fth_status status = FTH_OK;
    hogwild_head laid_out = lay_out(plan);

    *head = NULL;
    *descriptor = -1;
    if (plan->processes) {
        *descriptor = memfd_create("farthing hogwild", MFD_CLOEXEC);
        FTH_REQUIRE(*descriptor >= 0, FTH_NO_MEMORY, "memory for worker processes: %s", strerror(errno));
        /* Allocated now: a page that cannot be had later is a SIGBUS. */
        int failure = posix_fallocate(*descriptor, 0, (off_t)laid_out.layout.size_bytes);
        FTH_REQUIRE(failure == 0, FTH_NO_MEMORY, "no memory for the %.1f MB that worker processes share: %s",
                    (double)laid_out.layout.size_bytes / 1e6, strerror(failure));
    }
    FTH_TRY(map(laid_out.layout.size_bytes, *descriptor, head));
    memcpy(*head, &laid_out, sizeof laid_out);
    memcpy((char *)*head + laid_out.layout.options_at, plan->options, laid_out.layout.options_bytes);
    if (plan->network)
        memcpy((char *)*head + laid_out.layout.network_at, plan->network, laid_out.layout.network_bytes);

out:
    if (status != FTH_OK && *descriptor >= 0) {
        close(*descriptor);
        *descriptor = -1;
    }
    return status;
}

fth_status hogwild_region_open(int descriptor, hogwild_head **head)
{
    fth_status status = FTH_OK;
    struct stat facts;

    *head = NULL;
    FTH_REQUIRE(fstat(descriptor, &facts) == 0, FTH_INVALID, "descriptor %d: %s", descriptor, strerror(errno));
    FTH_REQUIRE(facts.st_size >= (off_t)sizeof(hogwild_head), FTH_INVALID,
                "descriptor %d is not what workers share; this command is for farthing itself", descriptor);
    FTH_TRY(map((size_t)facts.st_size, descriptor, head));
    FTH_REQUIRE((*head)->magic == MAGIC && (*head)->layout.size_bytes == (size_t)facts.st_size, FTH_CORRUPT,
                "descriptor %d is not what workers of this version share", descriptor);

out:
    if (status != FTH_OK && *head) {
        munmap(*head, (size_t)facts.st_size);
        *head = NULL;
    }
    return status;
}

void hogwild_region_free(hogwild_head *head)
{
    if (head)
        munmap(head, head->layout.size_bytes);
}

hogwild_worker *hogwild_get_worker(hogwild_head *head, int worker)
{
    return (hogwild_worker *)((char *)head + head->layout.workers_at) + worker;
}

hogwild_slot *hogwild_get_slot(hogwild_head *head, int slot)
{
    return (hogwild_slot *)((char *)head + head->layout.slots_at) + slot;
}

fth_engine_vectors hogwild_get_vectors(hogwild_head *head, int worker)
{
    char *base = (char *)head;
    fth_engine_vectors vectors = {.parameters = (float *)(base + head->layout.parameters_at),
                                  .buffers = (float *)(base + head->layout.buffers_at)};
    size_t set = head->worker_state ? (size_t)(worker + 1) : 0;
    for (int i = 0; i < head->model.sizes.state_count; i++)
        vectors.state[i] =
            (float *)(base + head->layout.state_at +
                      (set * (size_t)head->model.sizes.state_count + (size_t)i) * head->layout.state_bytes);
    return vectors;
}
