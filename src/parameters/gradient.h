/* The server's tensors in the order of its flat vector, and gradients for them. A gradient is
 * checked completely (names, shapes, types, positions, numbers) before it is used. */
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
    uint64_t packed_offset; /* in floats, in the answer to /getParameter */
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
/* The safetensors header of all tensors, including its length field, padded so that data start at a
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
    const fth_tensor_view *values;  /* dense, or at the indices */
    const fth_tensor_view *indices; /* NULL: dense */
} fth_gradient_part;

typedef struct fth_gradient {
    char worker[FTH_MAX_WORKER_NAME + 1], instance[FTH_MAX_WORKER_NAME + 1]; /* instance "": not given */
    int64_t sequence, version, samples;
    int64_t correct; /* -1: not given */
    double loss;     /* NAN: not given */
    fth_shard_span span;
    fth_safetensors *tensors;
    fth_gradient_part *parts; /* one for each tensor of the layout; NULL for buffers that were not sent */
    bool has_buffers;
    float largest, largest_buffer; /* upper bounds of the numbers' magnitude */
    float scale;                   /* applied with the gradient; below 1 if it was clipped */
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
    FTH_REFUSALS
} fth_refusal;
const char *fth_refusal_name(fth_refusal refusal); /* "not_finite" */
int fth_refusal_code(fth_refusal refusal);         /* of HTTP */

/* Parses and checks a body, which must outlive the gradient. On a refusal `message` says what is
 * wrong. Release the gradient in either case. */
fth_refusal fth_gradient_parse(const fth_layout *layout, const void *body, size_t size_bytes, fth_gradient *gradient,
                               char message[FTH_MAX_REFUSAL]);
/* The same if the body's numbers, read as f32 from its start, were already seen to be at most
 * `seen`, so that they are not read again. INFINITY: not known. */
fth_refusal fth_gradient_parse_seen(const fth_layout *layout, const void *body, size_t size_bytes, float seen,
                                    fth_gradient *gradient, char message[FTH_MAX_REFUSAL]);
void fth_gradient_release(fth_gradient *gradient);
/* Makes `largest` and `largest_buffer` exact. */
void fth_gradient_measure(const fth_layout *layout, fth_gradient *gradient);
double fth_gradient_norm(const fth_layout *layout, const fth_gradient *gradient);
/* Whether each trained parameter is dense, F32 and aligned. */
bool fth_gradient_is_plain(const fth_layout *layout, const fth_gradient *gradient);

/* to = weight * gradient (`replace`), or to += weight * gradient, in the engine's vectors. The
 * caller includes the gradient's scale in the weight. */
void fth_gradient_add(const fth_layout *layout, const fth_gradient *gradient, float weight, bool replace, float *to);
void fth_gradient_add_buffers(const fth_layout *layout, const fth_gradient *gradient, float weight, bool replace,
                              float *to);

#endif
