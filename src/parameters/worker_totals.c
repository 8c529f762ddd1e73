/* See worker_totals.h.
 *
 * The live line's window has one result for each step, not for each gradient: with `sync` the
 * gradients of a step arrive together, after the slowest worker's time, so single gradients say
 * nothing about speed. */
#include "parameters/worker_totals.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

static const double LINE_EVERY_S = 2;

/* Sums over gradients. Those without loss or accuracy are left out of these. */
typedef struct sums {
    int64_t pushes, samples;
    double loss; /* times samples */
    int64_t loss_samples, correct, correct_samples;
} sums;

struct fth_worker_totals {
    /* For the applying thread only. */
    sums line;
    double line_began_s;
    fth_step_result step; /* its loss is a sum over samples until the step ends */
    double step_began_s;

    pthread_mutex_t mutex;
    fth_window window; /* guarded by the mutex */
};

fth_status fth_worker_totals_create(double now_s, fth_worker_totals **totals)
{
    fth_status status = fth_allocate(1, sizeof **totals, totals);
    if (status != FTH_OK)
        return status;
    pthread_mutex_init(&(*totals)->mutex, NULL);
    (*totals)->line_began_s = (*totals)->step_began_s = now_s;
    return FTH_OK;
}

void fth_worker_totals_free(fth_worker_totals *totals)
{
    if (!totals)
        return;
    pthread_mutex_destroy(&totals->mutex);
    free(totals);
}

void fth_worker_totals_add(fth_worker_totals *totals, const fth_gradient *gradient)
{
    sums *line = &totals->line;
    bool has_loss = isfinite(gradient->loss), has_correct = gradient->correct >= 0;
    line->pushes++;
    line->samples += gradient->samples;
    if (has_loss) {
        line->loss += gradient->loss * (double)gradient->samples;
        line->loss_samples += gradient->samples;
    }
    if (has_correct) {
        line->correct += gradient->correct;
        line->correct_samples += gradient->samples;
    }
    if (has_loss && has_correct) {
        totals->step.loss += gradient->loss * (double)gradient->samples;
        totals->step.correct += gradient->correct;
        totals->step.samples += gradient->samples;
    }
}

void fth_worker_totals_end_step(fth_worker_totals *totals, double now_s)
{
    fth_step_result result = totals->step;
    if (result.samples > 0)
        result.loss /= (double)result.samples;
    pthread_mutex_lock(&totals->mutex);
    fth_window_add(&totals->window, &result, now_s - totals->step_began_s);
    pthread_mutex_unlock(&totals->mutex);
    totals->step = (fth_step_result){0};
    totals->step_began_s = now_s;
}

bool fth_worker_totals_take_line(fth_worker_totals *totals, double now_s, bool now, fth_worker_totals_line *line)
{
    const sums *since = &totals->line;
    double passed_s = now_s - totals->line_began_s;
    if (since->pushes == 0 || (!now && passed_s < LINE_EVERY_S))
        return false;
    *line = (fth_worker_totals_line){
        .pushes = since->pushes,
        .samples = since->samples,
        .loss = since->loss_samples > 0 ? since->loss / (double)since->loss_samples : NAN,
        .accuracy = since->correct_samples > 0 ? (double)since->correct / (double)since->correct_samples : NAN,
        .samples_per_s = passed_s > 0 ? (double)since->samples / passed_s : NAN};
    totals->line = (sums){0};
    totals->line_began_s = now_s;
    return true;
}

void fth_worker_totals_get_recent(fth_worker_totals *totals, fth_tally *recent, double *pace)
{
    pthread_mutex_lock(&totals->mutex);
    *recent = fth_window_recent(&totals->window);
    *pace = fth_window_pace(&totals->window);
    pthread_mutex_unlock(&totals->mutex);
}
