/* How an update's gradients are clipped, how the loss is scaled in f16, and what becomes of the
 * update: plain arithmetic, so that the host and a GPU decide by the same lines.
 *
 *     overflow            the update is left out, the scale halved; at a scale of 1 it has diverged
 *     2,000 good updates  the scale is doubled
 *
 * Scales are powers of two, which change no digit. */
#ifndef FTH_BACKEND_CLIP_AND_SCALE_H
#define FTH_BACKEND_CLIP_AND_SCALE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define FTH_ON_BOTH __host__ __device__
#else
#define FTH_ON_BOTH
#endif

/* What f16's gradients are multiplied by while they are computed, so that small ones are not
 * lost. */
typedef struct fth_loss_scale {
    double scale; /* 0: gradients are not scaled */
    int64_t good_updates;
} fth_loss_scale;

enum { FTH_FIRST_LOSS_SCALE = 1 << 16, FTH_LARGEST_LOSS_SCALE = 1 << 24, FTH_GOOD_UPDATES = 2000 };

typedef enum fth_update_verdict {
    FTH_UPDATE_APPLY,
    FTH_UPDATE_LEAVE_OUT, /* gradients overflowed; the scale is smaller now */
    FTH_UPDATE_DIVERGED   /* they are not finite, and no scale is left to blame */
} fth_update_verdict;

/* Judges gradients of Euclidean norm `norm`, which were computed at loss_scale's scale, and moves
 * that on. `clip` is the largest norm, 0: any. *factor is what the gradients are to be multiplied
 * by. */
static inline FTH_ON_BOTH fth_update_verdict fth_judge_gradients(double norm, double clip, fth_loss_scale *loss_scale,
                                                                 float *factor)
{
    const double scale = loss_scale->scale > 0 ? loss_scale->scale : 1;
    *factor = 0;
    if (!(norm <= 1.7976931348623157e308)) { /* infinite or NaN */
        if (loss_scale->scale <= 1)
            return FTH_UPDATE_DIVERGED;
        loss_scale->scale /= 2;
        loss_scale->good_updates = 0;
        return FTH_UPDATE_LEAVE_OUT;
    }
    if (loss_scale->scale > 0 && ++loss_scale->good_updates >= FTH_GOOD_UPDATES) {
        if (loss_scale->scale < FTH_LARGEST_LOSS_SCALE)
            loss_scale->scale *= 2;
        loss_scale->good_updates = 0;
    }
    const double length = norm / scale;
    const double shrink = clip > 0 && length > clip ? clip / (length + 1e-6) : 1; /* as clip_grad_norm_ does */
    *factor = (float)(shrink / scale);
    return FTH_UPDATE_APPLY;
}

#endif
