/* Back ends and devices: the table of functions that a back end is, and how one is opened.
 *
 * A back end is a const table; opening it gives a device: memory, a stream on which work is queued
 * in order, and a kernel for each op (kernel.h), from which plans are made (plan.h).
 *
 * Back ends other than the built-in ones are shared objects, farthing_<name>.so, found beside the
 * program or in $FARTHING_PLUGINS and loaded when asked for by name; each exports
 * `fth_backend_plugin`. */
#ifndef FTH_BACKEND_BACKEND_H
#define FTH_BACKEND_BACKEND_H

#include "backend/clip_and_scale.h"
#include "backend/update.h"
#include "graph/graph.h"
#include "tensor/recipe.h"

typedef struct fth_plan fth_plan;     /* plan.h */
typedef struct fth_run fth_run;       /* plan.h */
typedef struct fth_kernel fth_kernel; /* kernel.h */
typedef struct fth_backend fth_backend;
typedef struct fth_updater fth_updater;
typedef struct fth_device_snapshot fth_device_snapshot;
typedef struct fth_device_group fth_device_group;

/* TF32 stores f32 and multiplies with fewer bits on tensor cores. */
typedef enum fth_precision {
    FTH_PRECISION_F32,
    FTH_PRECISION_BF16,
    FTH_PRECISION_F16,
    FTH_PRECISION_TF32
} fth_precision;

typedef struct fth_device_options {
    int threads; /* CPU threads for compute; 0: as many as the process may use */
} fth_device_options;

/* An open back end. Back ends embed this as the first member of their own struct. */
typedef struct fth_device {
    const fth_backend *backend;
    int threads;
    char description[160]; /* "CPU, avx512, oneDNN 2.6.3 avx512_core_bf16, 2 threads" */
} fth_device;

/* One fused loop over flat vectors for each rule of optimizers.h. It has no notion of groups:
 * callers run it once for each. */
typedef struct fth_update_kernel {
    const char *rule;
    int vectors; /* the optimizer's own, besides the parameters: at most FTH_MAX_OPTIMIZER_VECTORS */
    fth_status (*run)(fth_device *device, const fth_update_arguments *arguments, float *parameters,
                      const float *gradients, float *const *state, size_t count);
} fth_update_kernel;

/* ---- optional parts of a back end: each a table of its own, or NULL ---- */

/* What kernels note for each other while a plan is made. */
typedef struct fth_backend_planning {
    /* Before the plan's first value is described. Kernels get *notes from fth_plan_notes(). */
    fth_status (*plan_begin)(fth_plan *plan, void **notes);
    /* Behind the last node: steps may still be added, unless one `failed`. Frees `notes`. Called
     * once for every plan that was begun. */
    fth_status (*plan_end)(fth_plan *plan, void *notes, bool failed);
} fth_backend_planning;

/* Updates as a part of a recorded run.
 *
 * Where a run is replayed, launching the update behind it, and waiting for the gradients' norm in
 * between, costs more than the update itself. An updater holds what its recording needs; learning
 * rate and number of the update come with the run. A run whose loss is not finite updates
 * nothing. */
typedef struct fth_updater_options {
    const fth_update_kernel *kernel;
    fth_update_arguments arguments; /* learning_rate, step and gradient_scale are not read */
    double clip;                    /* largest norm of the gradients; 0: any */
    fth_loss_scale loss_scale;      /* to begin with; scale 0: none */
    float *parameters;
    const float *gradients;
    float *state[FTH_MAX_OPTIMIZER_VECTORS];
    size_t count;
    fth_update_groups groups; /* outlive the updater */
} fth_updater_options;

/* What became of the updates since the updater was opened. */
typedef struct fth_updater_outcome {
    int64_t left_out; /* because their gradients overflowed */
    bool diverged;    /* the gradients' norm is not finite, and no update was made from there on; or an update left a
                         parameter that is not finite */
} fth_updater_outcome;

typedef struct fth_backend_updater {
    /* What an updater points to must outlive it. */
    fth_status (*open)(fth_device *device, const fth_updater_options *options, fth_updater **updater);
    void (*close)(fth_updater *updater);
    /* Queues the update while a run is recorded; `loss` is the plan's. */
    fth_status (*queue)(fth_updater *updater, const float *loss);
    /* What is known without waiting: of all updates before the last run whose loss was read, at
     * least. */
    fth_updater_outcome (*get_outcome)(const fth_updater *updater);
    /* Waits for what is queued and gives the scale; or sets it. */
    fth_status (*get_scale)(fth_updater *updater, fth_loss_scale *scale);
    fth_status (*set_scale)(fth_updater *updater, fth_loss_scale scale);
} fth_backend_updater;

/* Recording a run of a plan's steps once and replaying it (CUDA graphs). NULL where a loop is as
 * good. */
typedef struct fth_backend_capture {
    fth_status (*begin)(fth_device *device);
    fth_status (*end)(fth_device *device, void **captured);
    fth_status (*replay)(fth_device *device, void *captured, const fth_run *run);
    void (*free)(fth_device *device, void *captured);
    /* The loss of the last run, as soon as it is known; what follows it in the run may still be
     * under way. */
    fth_status (*read_loss)(fth_device *device, float loss[2]);
    const fth_backend_updater *updater; /* NULL: updates are made by `updates` when the run is over */
} fth_backend_capture;

enum { FTH_GATHER_CHANNELS = 4 };

/* A batch of images from a data set that is kept on the device. */
typedef struct fth_gather {
    const uint8_t *pixels; /* device memory, (samples, channels, height, width) */
    int channels, height, width;
    float scale[FTH_GATHER_CHANNELS], shift[FTH_GATHER_CHANNELS]; /* value = pixel * scale + shift; outside: pixel 0 */
    const fth_recipe *recipes;                                    /* (count), of the host */
    int64_t count;
} fth_gather;

/* Batches on their way to a device with memory of its own. NULL: copy_in is as good. */
typedef struct fth_backend_batches {
    /* copy_in, overlapping with what was queued before. */
    fth_status (*copy)(fth_device *device, void *to, const void *from_host, size_t size_bytes);
    /* Fills `images`, plain f32, as fth_augment() would. */
    fth_status (*gather)(fth_device *device, const fth_gather *gather, float *images);
} fth_backend_batches;

/* Bytes of the device and their place in a snapshot. */
typedef struct fth_extent {
    const void *from;
    size_t at, size_bytes;
} fth_extent;

/* Device memory as it is at one moment, brought to the host while the device computes. NULL:
 * copy_out is as good. Opening may be done by any thread and costs device memory. Taking is queued
 * in order with plans and updates, and returns at once; fetching, by any thread, waits for all that
 * was taken. A snapshot is taken again, or closed, only until it is fetched. */
typedef struct fth_backend_snapshots {
    fth_status (*open)(fth_device *device, size_t size_bytes, fth_device_snapshot **snapshot);
    fth_status (*take)(fth_device_snapshot *snapshot, const fth_extent *extents, size_t count);
    fth_status (*fetch)(fth_device_snapshot *snapshot, void *to_host);
    void (*close)(fth_device_snapshot *snapshot);
} fth_backend_snapshots;

enum { FTH_DEVICE_GROUP_ID_BYTES = 128, FTH_DEVICE_IDENTITY_BYTES = 40 };

/* Sums and copies among the devices of several processes, on their own memory (NCCL). A group is
 * one process's end of it; its members do not change. NULL: numbers travel through the host
 * (src/collective).
 *
 * Work is queued behind all that the device was given before, and goes on beside what it is given
 * later, up to join(). It may be a part of a recording, which must be dropped before the group is
 * closed. Every member queues the same in the same order. When a member is lost, or abort() was
 * called, what is queued ends soon and leaves numbers that are not to be used; from then on every
 * call fails with FTH_PEER_LOST. Except for abort(), one thread at a time. */
typedef struct fth_backend_collectives {
    const char *name; /* "nccl" */
    /* Which device this is, unlike any other of any machine: members must have one each.
     * FTH_UNSUPPORTED, and why, where there can be no groups. */
    fth_status (*identify)(fth_device *device, char identity[FTH_DEVICE_IDENTITY_BYTES]);
    /* Of a new group; one member makes it and gives it to the others. */
    fth_status (*make_id)(fth_device *device, unsigned char id[FTH_DEVICE_GROUP_ID_BYTES]);
    /* Returns when all members have called it. */
    fth_status (*open)(fth_device *device, const unsigned char id[FTH_DEVICE_GROUP_ID_BYTES], int rank, int size,
                       fth_deadline deadline, fth_device_group **group);
    void (*close)(fth_device_group *group);                     /* NULL is fine */
    void (*abort)(fth_device_group *group, const char *reason); /* from any thread */

    /* As those of collective/collective.h. */
    fth_status (*all_reduce)(fth_device_group *group, float *values, size_t count);
    fth_status (*sum)(fth_device_group *group, double *values, size_t count); /* values[0] is 0 if it failed */
    fth_status (*reduce_scatter)(fth_device_group *group, float *values, const size_t *begins);
    fth_status (*all_gather)(fth_device_group *group, float *values, const size_t *begins);
    fth_status (*broadcast)(fth_device_group *group, void *bytes, size_t size, int root);

    /* What the device is given from now on comes after all that was queued here. `loss`, unless it
     * is NULL, becomes NaN if that failed, so that the update of the same run is left out. */
    fth_status (*join)(fth_device_group *group, float *loss);
    /* Waits until all that the device was given is done. FTH_TIMEOUT if it takes longer: then the
     * group is aborted. */
    fth_status (*wait)(fth_device_group *group, fth_deadline deadline);
} fth_backend_collectives;

/* What an accelerator is doing. Numbers that are unknown are NAN, or 0 bytes. */
typedef struct fth_device_sample {
    int64_t used_bytes, total_bytes; /* of its memory, by all processes */
    double utilization;              /* share of the last moments (up to a second) in which it worked */
    double busy_s;                   /* spent on runs of plans since the device was opened */
} fth_device_sample;

/* What is known of a device that is not the machine itself. */
typedef struct fth_backend_accelerator {
    /* Takes about a millisecond. */
    fth_status (*sample)(fth_device *device, fth_device_sample *sample);
    /* Memory that can still be allocated. */
    fth_status (*free_memory)(fth_device *device, size_t *free_bytes, size_t *total_bytes);
    /* The precision in which a network trains fastest, for --precision auto. */
    fth_precision (*choose_precision)(fth_device *device, const fth_graph *graph);
    /* True once it hung or broke. Nothing more is asked of it, and its memory is freed by the end
     * of the process. */
    bool (*is_lost)(const fth_device *device);
} fth_backend_accelerator;

/* ---- the table: functions without state; what is optional is in the tables above ---- */

enum { FTH_BACKEND_ABI = 9 };

struct fth_backend {
    int abi; /* FTH_BACKEND_ABI */
    const char *name;
    bool host_memory; /* device memory is any memory of the process: several devices can share it */

    fth_status (*open)(const fth_device_options *options, fth_device **device);
    void (*close)(fth_device *device);
    /* Prepares the calling thread for work on `threads` threads (OpenMP's number is a thread's own
     * setting). Plans call it before they build or run anything. */
    void (*enter)(fth_device *device, int threads);

    /* Device memory, zeroed. On the CPU it is host memory. */
    fth_status (*allocate)(fth_device *device, size_t size_bytes, void **memory);
    void (*release)(fth_device *device, void *memory);

    /* Queued on the device's stream, in order with plans and updates. copy_in may return before the
     * copy is done, but has then taken its own copy of the bytes; its source may also be memory of
     * the device. copy_out waits for the bytes. */
    fth_status (*copy_in)(fth_device *device, void *to, const void *from_host, size_t size_bytes);
    fth_status (*copy_out)(fth_device *device, void *to_host, const void *from, size_t size_bytes);
    fth_status (*fill_zero)(fth_device *device, void *memory, size_t size_bytes);
    /* Waits until everything queued is done; FTH_TIMEOUT names the device. */
    fth_status (*synchronize)(fth_device *device, fth_deadline deadline);

    /* Flat vectors. `add`: to += from. `norm`: the Euclidean norm, the same for any number of
     * threads. */
    fth_status (*add)(fth_device *device, float *to, const float *from, size_t count);
    fth_status (*norm)(fth_device *device, const float *values, size_t count, double *norm);
    const fth_update_kernel *updates; /* ends with a NULL rule */

    /* One kernel per op; ends with NULL. */
    const fth_kernel *const *kernels;
    /* Fails with FTH_UNSUPPORTED and why if the device cannot compute in that precision. */
    fth_status (*check_precision)(fth_device *device, fth_precision precision);
    /* How long a training step takes in a supported precision, as a multiple of f32's: an estimate
     * from the network's shapes. Optional. */
    double (*relative_time)(fth_device *device, const fth_graph *graph, int64_t batch, fth_precision precision);
    /* Gives a value of a flat vector, an input or an output its layout: plain row-major in the
     * value's own dtype. */
    fth_status (*describe_plain)(fth_plan *plan, fth_value value);

    const fth_backend_planning *planning;
    const fth_backend_capture *capture;
    const fth_backend_batches *batches;
    const fth_backend_snapshots *snapshots;
    const fth_backend_accelerator *accelerator;
    const fth_backend_collectives *collectives;
};

/* The back ends that a program has, and the names they are opened by; ends with NULL. Defined by
 * the program's list (lists/), outside this library: what a list leaves out is not linked. */
typedef struct fth_builtin_backend {
    const char *name;
    const fth_backend *backend;
} fth_builtin_backend;

extern const fth_builtin_backend fth_builtin_backends[];

extern const fth_backend fth_backend_cpu;      /* oneDNN */
extern const fth_backend fth_backend_portable; /* own kernels, no library */

/* Opens a back end by name, loading its plugin if it is not built in; "auto" takes the fastest that
 * opens. A name may have the index 0, as "cuda:0". */
fth_status fth_device_open(const char *name, const fth_device_options *options, fth_device **device);
/* Whether fth_device_open() would find a back end of that name; loads and opens nothing. */
fth_status fth_device_check_name(const char *name);
void fth_device_close(fth_device *device); /* NULL is fine */
/* True if something that training can do without fits into a quarter of the device's free memory:
 * no plan is then too large because of it. Always true where the device is the machine itself. */
bool fth_device_has_room(fth_device *device, size_t size_bytes);
/* True if a device of this process was lost before it was closed. The driver's own clean-up at the
 * end of the process may then wait for the device, for as long as that hangs: a program that is
 * done leaves with _exit(). */
bool fth_device_was_lost(void);

#endif
