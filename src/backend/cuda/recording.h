/* Recorded runs, updates and snapshots (capture.c, updater.c, snapshot.c, gather.c, step.c):
 * entries of the table, and what changes from run to run. */
#ifndef FTH_BACKEND_CUDA_RECORDING_H
#define FTH_BACKEND_CUDA_RECORDING_H

#include "backend/cuda/cuda_device.h"

extern const fth_backend_planning cuda_planning;   /* weights.c */
extern const fth_backend_capture cuda_capture;     /* capture.c */
extern const fth_backend_updater cuda_updater;     /* updater.c */
extern const fth_backend_snapshots cuda_snapshots; /* snapshot.c */
extern const fth_backend_collectives cuda_nccl;    /* nccl.c, where FARTHING_NCCL is defined */
fth_status cuda_sample(fth_device *device, fth_device_sample *result);
fth_status cuda_gather_batch(fth_device *device, const fth_gather *gather, float *images);

/* Brings run_values on the device up to date; nothing while capturing, when the replay does it. */
fth_status cuda_set_run_values(cuda_device *device, const fth_run *run);
cuda_run_values cuda_run_values_of(const fth_run *run, uint64_t sequence);

/* Flat vectors and updaters (updater.c). */
extern const fth_update_kernel cuda_updates[];
void cuda_updater_fill_values(const fth_run *run, cuda_run_values *values);
fth_status cuda_vector_add(fth_device *device, float *to, const float *from, size_t count);
fth_status cuda_vector_norm(fth_device *device, const float *values, size_t count, double *norm);

#endif
