/* See position.h. */
#include "parameters/position.h"

#include <stdatomic.h>
#include <stdlib.h>

struct fth_served_position {
    fth_served_length length;
    double elapsed_before_s, apply_before_s; /* of earlier processes */
    double started_s;                        /* 0: not started */
    atomic_int_fast64_t version, samples, listed;
    atomic_uint_fast64_t apply_ns; /* of this process */
    _Atomic double progress;
};

fth_status fth_served_position_create(const fth_served_length *length, fth_served_position **position)
{
    fth_status status = fth_allocate(1, sizeof **position, position);
    if (status == FTH_OK)
        (*position)->length = *length;
    return status;
}

void fth_served_position_free(fth_served_position *position)
{
    free(position);
}

static void set_progress(fth_served_position *position)
{
    const fth_served_length *length = &position->length;
    double progress = 0;
    if (length->steps > 0)
        progress = (double)atomic_load(&position->version) / (double)length->steps;
    else if (length->samples > 0)
        progress =
            (double)atomic_load(length->listed ? &position->listed : &position->samples) / (double)length->samples;
    atomic_store(&position->progress, progress);
}

void fth_served_position_restore(fth_served_position *position, int64_t version, int64_t samples, double elapsed_s,
                                 double apply_s)
{
    atomic_store(&position->version, version);
    atomic_store(&position->samples, samples);
    position->elapsed_before_s = elapsed_s;
    position->apply_before_s = apply_s;
    set_progress(position);
}

void fth_served_position_add_listed(fth_served_position *position, int64_t samples)
{
    atomic_fetch_add(&position->listed, samples);
}

void fth_served_position_start_clock(fth_served_position *position)
{
    position->started_s = fth_clock_seconds();
}

void fth_served_position_add_samples(fth_served_position *position, int64_t samples)
{
    atomic_fetch_add(&position->samples, samples);
}

void fth_served_position_advance(fth_served_position *position)
{
    atomic_fetch_add(&position->version, 1);
    set_progress(position);
}

void fth_served_position_add_apply_s(fth_served_position *position, double seconds)
{
    atomic_fetch_add(&position->apply_ns, (uint64_t)(seconds * 1e9));
}

int64_t fth_served_position_version(const fth_served_position *position)
{
    return atomic_load(&position->version);
}

int64_t fth_served_position_samples(const fth_served_position *position)
{
    return atomic_load(&position->samples);
}

double fth_served_position_progress(const fth_served_position *position)
{
    return atomic_load(&position->progress);
}

double fth_served_position_elapsed_s(const fth_served_position *position)
{
    return position->elapsed_before_s + (position->started_s > 0 ? fth_clock_seconds() - position->started_s : 0);
}

double fth_served_position_apply_s_here(const fth_served_position *position)
{
    return (double)atomic_load(&position->apply_ns) * 1e-9;
}

double fth_served_position_apply_s(const fth_served_position *position)
{
    return position->apply_before_s + fth_served_position_apply_s_here(position);
}

json_t *fth_served_position_describe(const fth_served_position *position)
{
    int64_t samples = fth_served_position_samples(position), epoch_samples = position->length.epoch_samples;
    return json_pack("{s:I, s:f, s:f, s:I, s:f}", "step", (json_int_t)fth_served_position_version(position), "epoch",
                     epoch_samples > 0 ? (double)samples / (double)epoch_samples : 0.0, "elapsed_s",
                     fth_served_position_elapsed_s(position), "samples", (json_int_t)samples, "compute_s",
                     fth_served_position_apply_s(position));
}
