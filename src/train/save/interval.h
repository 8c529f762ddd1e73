/* How often to save: --checkpoint-every, by steps, by time or chosen.
 *
 * "auto" is Young's interval, sqrt(2 C M), for a save that costs C and a machine that lasts M:
 *
 *     C    what a save takes from training: the stall of its copy, and a tenth of the time in which
 *          it is written in the background (the writer's share of a processor by its priority)
 *     M    time between interruptions: of this run so far, with one hour and one interruption added
 *          as what is assumed of an unknown machine; clouds do much better on most days and much
 *          worse on some
 *
 * The interval is never so short that saving takes more than --checkpoint-overhead, nor shorter
 * than a save takes to be written. It is chosen again after each save, and changes when the new one
 * differs by a fifth. */
#ifndef FTH_TRAIN_INTERVAL_H
#define FTH_TRAIN_INTERVAL_H

#include "train/train_internal.h"

/* Seconds between saves that cost `cost_s` each and take `written_s` to be written. */
double fth_young_interval(double cost_s, double between_s, double written_s, double overhead);

/* What automatic intervals depend on. */
typedef struct fth_interval_facts {
    double stall_s, save_s; /* of the last saves */
    double elapsed_s;       /* of the run */
    int interruptions;      /* of the run so far */
    double overhead;        /* the largest share of the time that saving may take */
} fth_interval_facts;

/* Reads --checkpoint-every; an automatic interval starts with a guess. */
fth_status fth_interval_begin(const char *text, fth_interval *interval);
bool fth_interval_is_over(const fth_interval *interval, int64_t steps, double seconds); /* since the last save */
/* True if `interval`, where it is automatic, changed: *between_s is then the time expected between
 * interruptions. */
bool fth_interval_adapt(fth_interval *interval, const fth_interval_facts *facts, double *between_s);

#endif
