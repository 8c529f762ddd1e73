/* Back ends, devices and plans.
 *
 * A back end is a const table of functions; opening it gives a device: memory, a stream on which work is
 * queued in order, and a kernel for each op. A plan binds a graph to a device, a batch size and a mode:
 *
 *     fth_plan_create    each node's kernel chooses layouts, builds its primitives and adds steps;
 *                        lifetimes are then known, and every buffer gets its place in one arena
 *     fth_plan_bind      the arena and the flat vectors get their addresses
 *     fth_plan_run       a loop over the steps: nothing is chosen or allocated any more
 *
 * Back ends other than the built-in ones are shared objects, farthing_<name>.so, found beside the
 * program or in $FARTHING_PLUGINS and loaded when asked for by name; each exports `fth_backend_plugin`. */
#ifndef FTH_BACKEND_BACKEND_H
#define FTH_BACKEND_BACKEND_H

#include "backend/loss_scale.h"
#include "graph/graph.h"
#include "graph/ops.h"
#include "tensor/recipe.h"

typedef struct fth_plan fth_plan;
typedef struct fth_backend fth_backend;
typedef struct fth_updater fth_updater;
typedef struct fth_still fth_still;

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
    char description[160]; /* "CPU, oneDNN 2.6.3, avx512_core_bf16, 2 threads" */
} fth_device;

/* ---- kernels ---- */

typedef struct fth_kernel {
    const fth_op *op;
    /* Adds the steps that compute `node` in `plan`. */
    fth_status (*prepare)(fth_plan *plan, const fth_node *node);
} fth_kernel;

/* What changes from one run of a plan to the next. */
typedef struct fth_run {
    uint64_t seed;
    uint64_t step;        /* number of this training batch: makes dropout a pure function of the position */
    float gradient_scale; /* loss gradients are multiplied by this: 1, or a micro-batch's share */

    /* Called whenever more gradients are final: floats [0, ready_floats) of the gradient vector. May be NULL. */
    void (*gradients_ready)(void *context, size_t ready_floats);
    void *gradients_context;

    double *step_seconds; /* NULL, or fth_plan_step_count() sums to which each step's time is added */

    /* Where the back end has updaters: the update that follows the run as a part of it; NULL: none. Not together with
     * gradients_ready or step_seconds. */
    fth_updater *updater;
    double learning_rate;
    int64_t update; /* number of the update; 1 for the first */
} fth_run;

/* ---- optimizer kernels: one fused loop over flat vectors ---- */

typedef struct fth_update_arguments {
    float learning_rate, momentum, weight_decay, beta1, beta2, epsilon;
    bool nesterov;
    float gradient_scale; /* clipping: the gradient is multiplied by this first */
    int64_t step;         /* 1 for the first update */
    bool *spoiled;        /* set if a parameter is no longer finite, by back ends in host memory; may be NULL */
} fth_update_arguments;

typedef struct fth_update_kernel {
    const char *optimizer; /* "sgd", "adamw" */
    /* `state[i]` are the optimizer's own vectors (sgd: momentum, if any; adamw: first and second moments). */
    fth_status (*run)(fth_device *device, const fth_update_arguments *arguments, float *parameters,
                      const float *gradients, float *const *state, size_t count);
} fth_update_kernel;

/* ---- updaters: the update as a part of a recorded run ----
 *
 * Where a run is replayed, launching the update behind it, and waiting for the gradients' norm in between, costs more
 * than the update itself. An updater holds what its recording needs; learning rate and number of the update come with
 * the run. A run whose loss is not finite updates nothing. */
typedef struct fth_updater_options {
    const fth_update_kernel *kernel;
    fth_update_arguments arguments; /* learning_rate, step and gradient_scale are not read */
    double clip;                    /* largest norm of the gradients; 0: any */
    fth_loss_scale loss_scale;      /* to begin with; scale 0: none */
    float *parameters;
    const float *gradients;
    float *state[2];
    size_t count;
} fth_updater_options;

typedef struct fth_updater_news {
    int64_t left_out; /* updates, since it was opened, whose gradients overflowed */
    bool diverged;    /* the gradients' norm is not finite, and no update was made from there on; or an update left a
                         parameter that is not finite */
} fth_updater_news;

/* ---- batches made on the device from a data set kept there ---- */

enum { FTH_GATHER_CHANNELS = 4 };

typedef struct fth_gather {
    const uint8_t *pixels; /* device memory, (samples, channels, height, width) */
    int channels, height, width;
    float scale[FTH_GATHER_CHANNELS], shift[FTH_GATHER_CHANNELS]; /* value = pixel * scale + shift; outside: pixel 0 */
    const fth_recipe *recipes;                                    /* (count), of the host */
    int64_t count;
} fth_gather;

/* ---- stills: device memory as it is at one moment, brought to the host while the device goes on ---- */

/* Bytes of the device and their place in a still. */
typedef struct fth_extent {
    const void *from;
    size_t at, size_bytes;
} fth_extent;

/* What an accelerator is doing. Numbers that are unknown are NAN, or 0 bytes. */
typedef struct fth_device_sample {
    int64_t used_bytes, total_bytes; /* of its memory, by all processes */
    double utilization;              /* share of the last moments (up to a second) in which it worked */
    double busy_s;                   /* spent on runs of plans since the device was opened */
} fth_device_sample;

/* ---- the table ---- */

enum { FTH_BACKEND_ABI = 3 };

struct fth_backend {
    int abi; /* FTH_BACKEND_ABI */
    const char *name;

    fth_status (*open)(const fth_device_options *options, fth_device **device);
    void (*close)(fth_device *device);
    /* Optional: prepares the calling thread for work on `threads` threads (OpenMP's number is a thread's own setting).
     * Plans call it before they build or run anything. */
    void (*enter)(fth_device *device, int threads);

    /* Device memory, zeroed. On the CPU it is host memory. */
    fth_status (*allocate)(fth_device *device, size_t size_bytes, void **memory);
    void (*release)(fth_device *device, void *memory);

    /* Queued on the device's stream, in order with plans and updates. copy_in may return before the copy is done, but
     * has then taken its own copy of the bytes; its source may also be memory of the device. copy_out waits for the
     * bytes. */
    fth_status (*copy_in)(fth_device *device, void *to, const void *from_host, size_t size_bytes);
    /* Optional: copy_in for batches, whose way to the device overlaps with what was queued before. NULL: copy_in. */
    fth_status (*copy_batch)(fth_device *device, void *to, const void *from_host, size_t size_bytes);
    fth_status (*copy_out)(fth_device *device, void *to_host, const void *from, size_t size_bytes);
    fth_status (*fill_zero)(fth_device *device, void *memory, size_t size_bytes);
    /* Waits until everything queued is done; FTH_TIMEOUT names the device. */
    fth_status (*synchronize)(fth_device *device, fth_deadline deadline);

    /* Flat vectors. `add`: to += from. `norm`: the Euclidean norm, the same for any number of threads. */
    fth_status (*add)(fth_device *device, float *to, const float *from, size_t count);
    fth_status (*norm)(fth_device *device, const float *values, size_t count, double *norm);
    const fth_update_kernel *updates; /* ends with a NULL name */

    /* One kernel per op; ends with NULL. */
    const fth_kernel *const *kernels;
    /* Fails with FTH_UNSUPPORTED and why if the device cannot compute in that precision. */
    fth_status (*check_precision)(fth_device *device, fth_precision precision);
    /* Gives a value of a flat vector, an input or an output its layout: plain row-major in the value's own dtype. */
    fth_status (*describe_plain)(fth_plan *plan, int plan_value);

    /* Optional: records a run of a plan's steps once and replays it (CUDA graphs). NULL where a loop is as good. */
    fth_status (*capture_begin)(fth_device *device);
    fth_status (*capture_end)(fth_device *device, void **captured);
    fth_status (*capture_replay)(fth_device *device, void *captured, const fth_run *run);
    void (*capture_free)(fth_device *device, void *captured);

    /* Optional: what the accelerator is doing. NULL where the device is the machine itself. Takes about a millisecond.
     */
    fth_status (*sample)(fth_device *device, fth_device_sample *sample);

    bool host_memory; /* device memory is any memory of the process: several devices can share it */

    /* Optional: memory that can still be allocated. NULL where the device is the machine itself. */
    fth_status (*free_memory)(fth_device *device, size_t *free_bytes, size_t *total_bytes);

    /* Optional: the loss of the last run, as soon as it is known; what follows it in the run may still be under way.
     * NULL: fth_plan_get_output() is as good. */
    fth_status (*read_loss)(fth_device *device, float loss[2]);

    /* Optional, together with capture_* and read_loss. What an updater points to must outlive it. */
    fth_status (*updater_open)(fth_device *device, const fth_updater_options *options, fth_updater **updater);
    void (*updater_close)(fth_updater *updater);
    /* Queues the update while a run is recorded; `loss` is the plan's. */
    fth_status (*updater_queue)(fth_updater *updater, const float *loss);
    /* What is known without waiting: of all updates before the last run whose loss was read, at least. */
    fth_updater_news (*updater_look)(const fth_updater *updater);
    /* Waits for what is queued and gives the scale; or sets it. */
    fth_status (*updater_get_scale)(fth_updater *updater, fth_loss_scale *scale);
    fth_status (*updater_set_scale)(fth_updater *updater, fth_loss_scale scale);

    /* Optional: fills `images`, plain f32, as fth_augment() would. */
    fth_status (*gather)(fth_device *device, const fth_gather *gather, float *images);

    /* Optional: the precision in which a network trains fastest, for --precision auto. NULL: f32. */
    fth_precision (*choose_precision)(fth_device *device, const fth_graph *graph);

    /* Optional. Opening may be done by any thread and costs device memory. Taking is queued in order with plans and
     * updates, and returns at once; fetching, by any thread, waits for all that was taken. A still is
     * taken anew, or closed, when nobody fetches it. */
    fth_status (*still_open)(fth_device *device, size_t size_bytes, fth_still **still);
    fth_status (*still_take)(fth_still *still, const fth_extent *extents, size_t count);
    fth_status (*still_fetch)(fth_still *still, void *to_host);
    void (*still_close)(fth_still *still);
};

extern const fth_backend fth_backend_cpu;

/* Opens a back end by name, loading its plugin if it is not built in; "auto" takes the fastest that opens. */
fth_status fth_device_open(const char *name, const fth_device_options *options, fth_device **device);
void fth_device_close(fth_device *device); /* NULL is fine */

/* ---- plans ---- */

typedef enum fth_plan_mode { FTH_PLAN_TRAIN, FTH_PLAN_EVALUATE } fth_plan_mode;

typedef struct fth_plan_options {
    int64_t batch;
    fth_plan_mode mode;
    fth_precision precision;
    bool unmeasured; /* it is made to know its size: nothing is measured to choose primitives */
} fth_plan_options;

/* The flat vectors, on the device. `gradients` may be NULL for evaluation. */
typedef struct fth_vectors {
    float *parameters, *gradients, *buffers;
} fth_vectors;

/* The graph and the device must outlive the plan. */
fth_status fth_plan_create(const fth_graph *graph, fth_device *device, fth_plan_options options, fth_plan **plan);
void fth_plan_free(fth_plan *plan);

size_t fth_plan_arena_bytes(const fth_plan *plan);
/* Plans that never run at the same time may share one arena, of the largest size among them. */
fth_status fth_plan_bind(fth_plan *plan, void *arena, fth_vectors vectors);

/* Copies a batch's input (plain, as the graph describes it) in, or an output (logits or loss) out, as f32. */
fth_status fth_plan_set_input(fth_plan *plan, fth_value input, const void *host);
/* The same from a data set on the device; for back ends with `gather`. */
fth_status fth_plan_gather_input(fth_plan *plan, fth_value input, const fth_gather *gather);
fth_status fth_plan_get_output(fth_plan *plan, fth_value output, float *host);

fth_status fth_plan_run(fth_plan *plan, const fth_run *run);
/* The loss of the run before, as get_output would give it, without waiting for the rest of the run where that is
 * possible.
 */
fth_status fth_plan_read_loss(fth_plan *plan, float loss[2]);

int fth_plan_step_count(const fth_plan *plan);
const char *fth_plan_step_name(const fth_plan *plan, int step);

/* ---- for kernels: the inside of a plan ----
 *
 * A plan value is one buffer in one layout. Each graph value has a main one; a kernel may add others (the same
 * value in another layout, scratch). Its layout is the back end's own struct. */

typedef int fth_plan_value;

typedef enum fth_storage { FTH_IN_ARENA, FTH_IN_PARAMETERS, FTH_IN_GRADIENTS, FTH_IN_BUFFERS } fth_storage;

enum { FTH_MAX_STEP_VALUES = 32 };

typedef struct fth_step {
    char name[80]; /* op and implementation, for profiles */
    void *state;   /* the step owns it, from fth_plan_add_step() on, also if that fails */
    fth_status (*bind)(void *state, const fth_plan *plan); /* addresses are known; may be NULL */
    fth_status (*run)(void *state, const fth_run *run);
    void (*release)(void *state); /* may be NULL: then free() */
    int read_count, write_count;
    fth_plan_value reads[FTH_MAX_STEP_VALUES], writes[FTH_MAX_STEP_VALUES]; /* scratch counts as written */
} fth_step;

fth_status fth_plan_add_step(fth_plan *plan, const fth_step *step);

fth_device *fth_plan_device(const fth_plan *plan);
fth_plan_options fth_plan_get_options(const fth_plan *plan);
const fth_graph *fth_plan_graph(const fth_plan *plan);

/* The main plan value of a graph value. */
fth_plan_value fth_plan_value_of(const fth_plan *plan, fth_value value);
/* A further buffer in the arena, to be described by the caller. */
fth_status fth_plan_add_value(fth_plan *plan, fth_plan_value *value);

/* The graph's type with the batch filled in (main values only). */
fth_type fth_plan_type(const fth_plan *plan, fth_value value);

/* The back end's layout of a value; NULL until set. Copied in. size_bytes is the buffer's physical size. */
const void *fth_plan_layout(const fth_plan *plan, fth_plan_value value);
fth_status fth_plan_set_layout(fth_plan *plan, fth_plan_value value, const void *layout, size_t layout_size,
                               size_t size_bytes);

/* Copies: a kernel notes that `copy` holds the same numbers as `of` in another layout, so that later nodes can find it.
 * Gives the copies of `of` one after the other, starting after `previous` (-1: the first); -1 after the last. */
void fth_plan_note_copy(fth_plan *plan, fth_plan_value copy, fth_plan_value of);
fth_plan_value fth_plan_next_copy(const fth_plan *plan, fth_plan_value of, fth_plan_value previous);

/* True if nothing after the node being prepared reads `value` and it lives in the arena: an op may work in place. */
bool fth_plan_dies_here(const fth_plan *plan, fth_value value);
/* `value` shares the memory of `of` from now on (in place, or a view). */
void fth_plan_alias(fth_plan *plan, fth_plan_value value, fth_plan_value of);
/* True if any later node reads `value` or a flat vector keeps it: kernels may skip unused outputs. */
bool fth_plan_is_used(const fth_plan *plan, fth_value value);
fth_storage fth_plan_storage(const fth_plan *plan, fth_plan_value value);

/* The address; valid from bind on. */
void *fth_plan_data(const fth_plan *plan, fth_plan_value value);

#endif
