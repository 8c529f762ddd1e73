/* The emulated back end: waits instead of computing, for studies of scaling (docs/emulated.md).
 *
 * A plan's steps take the time that a schedule gives them, on the clock, while the processor is
 * free: many workers with the compute times of large machines fit on a small one. What is between
 * steps (exchanges, updates, loading) is real, and so are the gradients: they fill their memory as
 * each layer's time is over.
 *
 * Loss, correct predictions and gradients are functions of the samples of a batch alone, means over
 * them as in real training: a run of several workers has the numbers of a run of one exactly if
 * every step has the same samples.
 *
 *     emulated.c   the table, the device, the steps
 *     schedule.c   how long each node takes: $FARTHING_EMULATE */
#ifndef FTH_BACKEND_EMULATED_EMULATED_H
#define FTH_BACKEND_EMULATED_EMULATED_H

#include "backend/kernel.h"

/* What $FARTHING_EMULATE says:
 * "step=0.81,backward=0.667,batch=16,times=vgg19.times,trace=passes". */
typedef struct emulated_settings {
    double step_s;    /* of a training step; 0: the sum of the file's times */
    double backward;  /* share of it; 0: the file's */
    int64_t batch;    /* samples for which the times hold: others take in proportion; 0: any number does */
    char times[4096]; /* file of layers and their seconds; "": shares by multiplications */
    char trace[4096]; /* file to which each training pass adds a line; "": none */
    char text[128];   /* as given, for the device's description */
} emulated_settings;

fth_status emulated_settings_read(emulated_settings *settings);

/* Seconds of each node of the graph, in a forward and backward pass of `batch` samples. free()
 * it. */
fth_status emulated_schedule_make(const emulated_settings *settings, const fth_graph *graph, int64_t batch,
                                  double **node_seconds);

/* The plugin's one exported symbol. */
extern const fth_backend fth_backend_plugin;

#endif
