/* Flat vectors: the optimizers, sum and norm; and updaters, updates that are part of a recorded
 * run.
 *
 * What changes from update to update (the learning rate and what follows from it) comes with the
 * run's values. Where the gradients' norm matters, for clipping or because f16 may have overflowed,
 * one launch sums it and judges: the verdict stays on the device, where the update reads it, and
 * the scale is there for the next run. What went wrong, there or in the parameters after an update,
 * reaches the host through pinned memory, and nothing waits.
 *
 * Groups of parameters with rates or decays of their own are cut into pieces, each of one group.
 * Their numbers would not fit beside the run's values: they lie in pinned memory, a slot for each
 * of the last runs. */
#include <math.h>
#include <stdlib.h>

#include "backend/cuda/memory.h"
#include "backend/cuda/recording.h"

static cuda_update describe(float *parameters, const float *gradients, float *const *state, int vectors, size_t count)
{
    cuda_update update = {.parameters = parameters, .gradients = gradients, .count = count};
    for (int i = 0; i < vectors; i++)
        update.state[i] = state[i];
    return update;
}

static fth_status run_update(fth_device *device, fth_update_rule rule, int vectors, const fth_update_arguments *a,
                             float *parameters, const float *gradients, float *const *state, size_t count)
{
    const cuda_device *cuda = (cuda_device *)device;
    cuda_update update = describe(parameters, gradients, state, vectors, count);
    update.factor = a->gradient_scale;
    fth_update_prepare(rule, a, &update.numbers);
    return cuda_status(cuda_launch_update(&cuda->launch, rule, &update), "updating parameters");
}

#define KERNEL_OF(rule, vectors)                                                                                       \
    static fth_status run_##rule(fth_device *device, const fth_update_arguments *a, float *parameters,                 \
                                 const float *gradients, float *const *state, size_t count)                            \
    {                                                                                                                  \
        return run_update(device, FTH_UPDATE_RULE_##rule, vectors, a, parameters, gradients, state, count);            \
    }
FTH_UPDATE_RULES(KERNEL_OF)

/* In the order of fth_update_rule. */
#define ROW_OF(rule, vectors) {#rule, vectors, run_##rule},
const fth_update_kernel cuda_updates[] = {FTH_UPDATE_RULES(ROW_OF){NULL, 0, NULL}};

fth_status cuda_vector_add(fth_device *device, float *to, const float *from, size_t count)
{
    const cuda_device *cuda = (cuda_device *)device;
    return cuda_status(cuda_launch_add(&cuda->launch, to, from, count), "adding vectors");
}

fth_status cuda_vector_norm(fth_device *device, const float *values, size_t count, double *norm)
{
    fth_status status = FTH_OK;
    const cuda_device *cuda = (cuda_device *)device;
    double squares = 0;
    CUDA_TRY(cuda_launch_square_sum(&cuda->launch, values, count, cuda->norm_scratch,
                                    cuda->norm_scratch + CUDA_NORM_BLOCKS));
    FTH_TRY(cuda_copy_out(device, &squares, cuda->norm_scratch + CUDA_NORM_BLOCKS, sizeof squares));
    *norm = sqrt(squares);
out:
    return status;
}

/* ---- updaters ---- */

/* Groups of parameters; all zero where there are none. */
typedef struct update_groups {
    cuda_update_piece *pieces; /* device memory */
    int piece_count;
    fth_update_numbers *numbers; /* device memory: of the run under way */
    fth_update_numbers *slots;   /* pinned: (CUDA_UPDATE_SLOTS, groups) */
} update_groups;

struct fth_updater {
    cuda_device *device;
    update_groups groups;
    fth_updater_options options;
    fth_update_rule rule;
    cuda_judgement *judgement;    /* device memory; NULL: nothing is to be judged */
    cuda_update_outcome *outcome; /* pinned */
};

static void close_updater(fth_updater *updater)
{
    if (!updater)
        return;
    cuda_release(&updater->device->base, updater->judgement);
    cuda_release(&updater->device->base, updater->groups.pieces);
    cuda_release(&updater->device->base, updater->groups.numbers);
    if (updater->outcome && !updater->device->lost)
        cudaFreeHost(updater->outcome);
    if (updater->groups.slots && !updater->device->lost)
        cudaFreeHost(updater->groups.slots);
    free(updater);
}

static fth_status set_scale(fth_updater *updater, fth_loss_scale scale)
{
    const cuda_judgement judgement = {.loss_scale = scale, .clip = updater->options.clip};
    updater->options.loss_scale = scale;
    if (!updater->judgement)
        return FTH_OK;
    return cuda_copy_in(&updater->device->base, updater->judgement, &judgement, sizeof judgement);
}

/* Cuts the ranges into pieces. With `pieces` NULL it only counts them. */
static int cut_ranges(const fth_update_groups *groups, size_t count, cuda_update_piece *pieces)
{
    int made = 0;
    size_t begin = 0;
    for (int i = 0; i < groups->range_count && begin < count; i++) {
        const size_t end = groups->ranges[i].end < count ? groups->ranges[i].end : count;
        while (begin < end) {
            const size_t left = end - begin;
            const size_t taken = left < CUDA_UPDATE_PIECE_FLOATS ? left : CUDA_UPDATE_PIECE_FLOATS;
            if (pieces)
                pieces[made] =
                    (cuda_update_piece){.begin = begin, .end = begin + taken, .group = groups->ranges[i].group};
            made++;
            begin += taken;
        }
    }
    return made;
}

static fth_status open_groups(fth_updater *updater)
{
    fth_status status = FTH_OK;
    const fth_update_groups *groups = &updater->options.groups;
    fth_device *device = &updater->device->base;
    cuda_update_piece *pieces = NULL;
    void *memory = NULL;
    if (groups->group_count == 0)
        return FTH_OK;
    const int count = cut_ranges(groups, updater->options.count, NULL);
    const size_t numbers_bytes = (size_t)groups->group_count * sizeof(fth_update_numbers);
    FTH_TRY(fth_allocate((size_t)count + 1, sizeof *pieces, &pieces));
    updater->groups.piece_count = cut_ranges(groups, updater->options.count, pieces);
    FTH_TRY(cuda_allocate(device, ((size_t)count + 1) * sizeof *pieces, &memory));
    updater->groups.pieces = memory;
    FTH_TRY(cuda_copy_in(device, updater->groups.pieces, pieces, (size_t)count * sizeof *pieces));
    FTH_TRY(cuda_allocate(device, numbers_bytes, &memory));
    updater->groups.numbers = memory;
    CUDA_TRY(cudaHostAlloc(&memory, CUDA_UPDATE_SLOTS * numbers_bytes, cudaHostAllocDefault));
    updater->groups.slots = memory;
out:
    free(pieces);
    return status;
}

/* Fills the slot of the run. Whoever runs reads each loss before the next run, so that the slot's
 * last user is long done; if not, it is waited for, and what goes wrong then shows in the run. */
static void fill_slot(const fth_updater *updater, const fth_update_arguments *arguments, uint64_t sequence)
{
    const fth_update_groups *groups = &updater->options.groups;
    cuda_device *device = updater->device;
    fth_update_numbers *slot = updater->groups.slots + sequence % CUDA_UPDATE_SLOTS * (uint64_t)groups->group_count;
    if (device->announcement->sequence + CUDA_UPDATE_SLOTS <= sequence)
        FTH_IGNORE(cuda_synchronize(&device->base, cuda_deadline(device)), "the run reports it");
    for (int i = 0; i < groups->group_count; i++) {
        const fth_update_arguments own = fth_update_group_arguments(arguments, groups->groups[i]);
        fth_update_prepare(updater->rule, &own, &slot[i]);
    }
}

static fth_status open_updater(fth_device *device, const fth_updater_options *options, fth_updater **result)
{
    fth_status status = FTH_OK;
    fth_updater *updater = NULL;
    void *memory = NULL;

    FTH_TRY(fth_allocate(1, sizeof *updater, &updater));
    updater->device = (cuda_device *)device;
    updater->options = *options;
    updater->rule = (fth_update_rule)(options->kernel - cuda_updates);
    CUDA_TRY(cudaHostAlloc(&memory, sizeof *updater->outcome, cudaHostAllocDefault));
    updater->outcome = memory;
    *updater->outcome = (cuda_update_outcome){0};
    if (options->clip > 0 || options->loss_scale.scale > 0) {
        FTH_TRY(cuda_allocate(device, sizeof *updater->judgement, &memory));
        updater->judgement = memory;
        FTH_TRY(set_scale(updater, options->loss_scale));
    }
    FTH_TRY(open_groups(updater));
    *result = updater;
    updater = NULL;
out:
    close_updater(updater);
    return status;
}

static fth_status queue_update(fth_updater *updater, const float *loss)
{
    fth_status status = FTH_OK;
    const fth_updater_options *o = &updater->options;
    const cuda_device *cuda = updater->device;
    cuda_update update = describe(o->parameters, o->gradients, o->state, o->kernel->vectors, o->count);
    update.factor = 1;
    update.run = cuda->run_values;
    update.loss = loss;
    update.judgement = updater->judgement;
    update.outcome = updater->outcome;
    update.pieces = updater->groups.pieces;
    update.piece_count = updater->groups.piece_count;
    update.of_groups = updater->groups.numbers;
    if (update.pieces)
        CUDA_TRY(cuda_launch_group_numbers(cuda->launch.stream, cuda->run_values, updater->groups.slots,
                                           o->groups.group_count, updater->groups.numbers));
    if (updater->judgement)
        CUDA_TRY(cuda_launch_judge(&cuda->launch, o->gradients, o->count, loss, cuda->norm_scratch, updater->judgement,
                                   updater->outcome));
    CUDA_TRY(cuda_launch_update(&cuda->launch, updater->rule, &update));
out:
    return status;
}

void cuda_updater_fill_values(const fth_run *run, cuda_run_values *values)
{
    const fth_updater *updater = run->updater;
    fth_update_arguments arguments = updater->options.arguments;
    arguments.learning_rate = (float)run->learning_rate;
    arguments.step = run->update;
    fth_update_prepare(updater->rule, &arguments, &values->update);
    if (updater->groups.pieces)
        fill_slot(updater, &arguments, values->sequence);
    values->loss_scale = updater->options.loss_scale.scale > 0 ? &updater->judgement->loss_scale : NULL;
}

static fth_updater_outcome get_outcome(const fth_updater *updater)
{
    return (fth_updater_outcome){.left_out = updater->outcome->left_out, .diverged = updater->outcome->diverged != 0};
}

static fth_status get_scale(fth_updater *updater, fth_loss_scale *scale)
{
    *scale = updater->options.loss_scale;
    if (!updater->judgement)
        return FTH_OK;
    return cuda_copy_out(&updater->device->base, scale, &updater->judgement->loss_scale, sizeof *scale);
}

const fth_backend_updater cuda_updater = {
    .open = open_updater,
    .close = close_updater,
    .queue = queue_update,
    .get_outcome = get_outcome,
    .get_scale = get_scale,
    .set_scale = set_scale,
};
