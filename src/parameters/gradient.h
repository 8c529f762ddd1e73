/* The server's tensors in the order of its flat vector, and gradients that come for them.
 *
 * What a worker sends is checked whole before anything is done with it: names, shapes, types,
 * positions, numbers. */
#ifndef FTH_PARAMETERS_GRADIENT_H
#define FTH_PARAMETERS_GRADIENT_H

#include "graph/graph.h"
#include "tensor/tensor.h"

/* ---- layout ---- */

typedef struct fth_layout_tensor {
    const char *name; /* the graph's */
    fth_shape shape;
    int64_t count;
    size_t vector_offset;   /* in floats, in the engine's vector of parameters or buffers */
    uint64_t packed_offset; /* in floats, in what /getParameter gives */
} fth_layout_tensor;

/* Trained parameters first, then others, then buffers, each in the order of their vector. */
typedef struct fth_layout {
    fth_layout_tensor *tensors;
    int count, trained, parameters; /* tensors[trained..parameters-1] are not trained; buffers follow */
    int *by_name;                   /* indices in the order of names */
    uint64_t packed_floats;
    size_t trained_floats, parameter_floats, buffer_floats; /* of the engine's vectors, padding included */
} fth_layout;

/* The graph outlives the layout. */
fth_status fth_layout_create(const fth_graph *graph, fth_layout **layout);
void fth_layout_free(fth_layout *layout);
int fth_layout_find(const fth_layout *layout, const char *name, size_t length); /* or -1 */
/* The safetensors header (length field included) of all tensors, so padded that data begin at a
 * multiple of 64. */
fth_status fth_layout_describe(const fth_layout *layout, const fth_metadata_entry *metadata, size_t metadata_count,
                               char **bytes, size_t *size_bytes);

/* ---- gradients ---- */

enum { FTH_MAX_WORKER_NAME = 64, FTH_MAX_SHARD_NAME = 256, FTH_MAX_REFUSAL = 400 };

/* Letters, digits, '.', '_' and '-', 1 to 64 of them. */
bool fth_worker_name_valid(const char *name);
/* 1 to 256 printable ASCII characters without space, quote and backslash. */
bool fth_shard_name_valid(const char *name);

/* Where the samples of a gradient come from (shards.h); name "": from no shard. */
typedef struct fth_shard_span {
    char name[FTH_MAX_SHARD_NAME + 1];
    int64_t epoch, from, to;
} fth_shard_span;

typedef struct fth_gradient_part {
    const fth_tensor_view *values;  /* whole, or of the positions */
    const fth_tensor_view *indices; /* or NULL */
} fth_gradient_part;

typedef struct fth_gradient {
    char worker[FTH_MAX_WORKER_NAME + 1], instance[FTH_MAX_WORKER_NAME + 1]; /* the latter "" where it is not said */
    int64_t sequence, version, samples;
    int64_t correct; /* -1: not said */
    double loss;     /* NAN: not said */
    fth_shard_span span;
    fth_safetensors *tensors;
    fth_gradient_part *parts; /* of each tensor of the layout; buffers that were not sent: NULL */
    bool has_buffers;
    float largest, largest_buffer; /* no number is larger in magnitude */
    float scale;                   /* that it is applied with; below 1 where it was clipped */
} fth_gradient;

typedef enum fth_refusal {
    FTH_REFUSAL_NONE,
    FTH_REFUSAL_MALFORMED,
    FTH_REFUSAL_NOT_FINITE,
    FTH_REFUSAL_NAMES,
    FTH_REFUSAL_SHAPE,
    FTH_REFUSAL_DTYPE,
    FTH_REFUSAL_STALE,
    FTH_REFUSAL_DIVERGES,
    FTH_REFUSAL_VERSION,
    FTH_REFUSAL_SEQUENCE,
    FTH_REFUSAL_FINISHED,
    FTH_REFUSAL_LEASE,
    FTH_REFUSAL_STRANGER,
    FTH_REFUSAL_DUPLICATE,
    FTH_REFUSAL_FORBIDDEN,
    FTH_REFUSAL_UNSIGNED,
    FTH_REFUSAL_CLOCK,
    FTH_REFUSAL_BODY,
    FTH_REFUSAL_HOST,
    FTH_REFUSAL_ORIGIN,
    FTH_REFUSAL_RANGE,
    FTH_REFUSAL_BUSY,
    FTH_REFUSAL_RATE,
    FTH_REFUSALS /* how many there are */
} fth_refusal;
const char *fth_refusal_name(fth_refusal refusal); /* "not_finite" */
int fth_refusal_code(fth_refusal refusal);         /* of HTTP */

/* Parses and checks a body, which must outlive the gradient. On a refusal `message` says what is
 * wrong; the gradient is to be released in either case. */
fth_refusal fth_gradient_parse(const fth_layout *layout, const void *body, size_t size_bytes, fth_gradient *gradient,
                               char message[FTH_MAX_REFUSAL]);
/* The same where it is known that no number of the body's data, taken as f32 from the beginning of
 * the body, is larger than `seen`: those are not looked at again. INFINITY: nothing is known. */
fth_refusal fth_gradient_parse_seen(const fth_layout *layout, const void *body, size_t size_bytes, float seen,
                                    fth_gradient *gradient, char message[FTH_MAX_REFUSAL]);
void fth_gradient_release(fth_gradient *gradient);
/* Makes `largest` and `largest_buffer` exact. */
void fth_gradient_measure(const fth_layout *layout, fth_gradient *gradient);
double fth_gradient_norm(const fth_layout *layout, const fth_gradient *gradient);
/* True if every trained parameter is there whole as F32, at an address that floats can have. */
bool fth_gradient_is_plain(const fth_layout *layout, const fth_gradient *gradient);

/* to = weight * gradient, or to += weight * gradient; vectors as the engine has them. The
 * gradient's scale is the caller's to put into the weight. */
void fth_gradient_add(const fth_layout *layout, const fth_gradient *gradient, float weight, bool replace, float *to);
void fth_gradient_add_buffers(const fth_layout *layout, const fth_gradient *gradient, float weight, bool replace,
                              float *to);

#endif
