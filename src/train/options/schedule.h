/* Learning-rate schedules: pure functions of the position, so that a resumed run needs nothing
 * saved. */
#ifndef FTH_TRAIN_SCHEDULE_H
#define FTH_TRAIN_SCHEDULE_H

#include "base/options.h"

typedef struct fth_schedule_position {
    int64_t step;            /* updates done */
    int64_t total_steps;     /* 0: the end is not known */
    int64_t steps_per_epoch; /* updates */
    int64_t warmup;          /* updates */
    int64_t decay_every;     /* epochs */
    double decay_factor;
} fth_schedule_position;

typedef struct fth_schedule {
    const char *name, *summary;
    bool needs_end;                                          /* total_steps must be known */
    double (*factor)(const fth_schedule_position *position); /* of the learning rate, after the warm-up */
} fth_schedule;

/* Every schedule; a new one is its file, schedules/NAME.c, and its row here. */
#define FTH_SCHEDULES(ROW)                                                                                             \
    ROW(constant)                                                                                                      \
    ROW(step)                                                                                                          \
    ROW(cosine)                                                                                                        \
    ROW(linear)

#define FTH_DECLARE(name) extern const fth_schedule fth_schedule_##name;
FTH_SCHEDULES(FTH_DECLARE)
#undef FTH_DECLARE

fth_status fth_schedule_find(const char *name, const fth_schedule **schedule);
/* They are the choices of --schedule. */
fth_choice fth_schedule_choice(size_t index);

/* FTH_INVALID if `total_steps` is not known (0), and the schedule or a warm-up in percent needs it;
 * `give` says which options would tell. */
fth_status fth_schedule_check_end(const fth_schedule *schedule, fth_amount warmup, int64_t total_steps,
                                  const char *give);

/* How much of the time after the warm-up is over, 0 to 1; for schedules that need the end. */
double fth_schedule_progress(const fth_schedule_position *position);

/* The schedule's factor with the linear warm-up in front: a pure function of the position. */
double fth_schedule_factor(const fth_schedule *schedule, const fth_schedule_position *position);

#endif
