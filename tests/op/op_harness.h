/* Runs one graph on several back ends and compares what comes out.
 *
 * An op under test stands in a small network,
 *
 *     images (N,3,H,W) -> convolution 1x1 -> the op -> flatten -> linear -> softmax cross-entropy
 *
 * so that its output shows in the logits, the gradient of its input in that of the first
 * convolution, and the gradients of its parameters directly. The reference back end is checked
 * against central differences, every other back end against the reference.
 *
 * Failures of farthing itself end the running cmocka test; differences are printed and counted, so
 * that one run shows them all. */
#ifndef FTH_TESTS_OP_HARNESS_H
#define FTH_TESTS_OP_HARNESS_H

#include "backend/plan.h"
#include "graph/ops.h"
#include "support.h"

/* Ends the test with the message of a failed call. */
#define op_check(call) op_check_status((call), #call, __FILE__, __LINE__)
void op_check_status(fth_status status, const char *call, const char *file, int line);

/* Every device that is tested against the reference: the CPU also with more threads than small
 * plans use, the portable one at each level that the machine has. */
#define OP_DEVICES "cpu", "cpu, 3 threads", "portable", "portable avx2", "portable baseline", "cuda"

/* The device, opened once for the process; NULL, after a line "SKIP name: why", if it cannot be.
 * scripts/run-tests counts the case as skipped on that device, even if it continues with others.
 * NULL without a word if it is the same as one that was opened before. The test ends where one that
 * is part of farthing cannot be opened. */
fth_device *op_device(const char *name);
/* The device's kernel for the rule that an optimizer takes with these arguments; the test ends
 * where there is none. */
const fth_update_kernel *op_find_update(const fth_device *device, const char *optimizer,
                                        const fth_update_arguments *arguments);
/* A group's teardown. */
int op_close_devices(void **state);

enum { OP_MAX_INPUTS = 6 };

/* What a plan is run on: a graph with host copies of everything it needs. */
typedef struct op_network {
    fth_graph *graph;
    int64_t batch, tokens; /* tokens: of graphs of text */
    float *parameters, *buffers;
    float *images;   /* NULL: the graph has none */
    int32_t *labels; /* one for each row of the logits; NULL likewise */
    int input_count; /* other inputs, from op_network_input() */
    struct {
        fth_value value;
        void *data;
    } inputs[OP_MAX_INPUTS];
    float label_smoothing;
    int64_t reduction; /* the longest sum in it, about */
    bool kinks;        /* ReLU or maxima: rounding can move an element to the other side */
} op_network;

/* Takes `graph` (differentiated); parameters and buffers get their initial values, the inputs
 * "images" and "labels", where it has them, zeros. */
void op_network_create(op_network *network, fth_graph *graph, int64_t batch, uint64_t seed);
/* The same for a graph of text with room for `tokens`. */
void op_network_create_text(op_network *network, fth_graph *graph, int64_t batch, int64_t tokens, uint64_t seed);
/* Host memory of any other input, zeros at first, which every session copies in. */
void *op_network_input(op_network *network, const char *name);
/* Random inputs; constant parameters move off their constant, so that nothing is tested at 0 or 1
 * alone. */
void op_network_randomize(op_network *network, uint64_t seed);
void op_network_free(op_network *network);

/* A plan bound to memory of a device. */
typedef struct op_session {
    const op_network *network;
    fth_device *device;
    fth_plan *plan;
    void *arena;
    fth_vectors vectors;
} op_session;

void op_session_open(op_session *session, const op_network *network, fth_device *device, fth_plan_mode mode,
                     fth_precision precision);
/* The same with a plan of the caller's choice; `options.batch` is the network's. */
void op_session_open_plan(op_session *session, const op_network *network, fth_device *device, fth_plan_options options);
/* Sets the network's parameters, buffers and inputs. */
void op_session_set(op_session *session);
/* The same, and runs once. */
void op_session_run(op_session *session, const fth_run *run);
void op_session_close(op_session *session);

/* Everything a run leaves behind. */
typedef struct op_result {
    size_t logit_count;
    float *logits;
    float loss[2];
    float *gradients; /* NULL after evaluation */
    float *buffers;
} op_result;

void op_session_read(op_session *session, op_result *result);
void op_result_free(op_result *result);

/* open, run, read and close in one. */
void op_run_once(const op_network *network, fth_device *device, fth_plan_mode mode, fth_precision precision,
                 const fth_run *run, op_result *result);

/* |a - b| over |b|, or over `floor` where |b| is smaller: Euclidean norms. NaN if either has
 * one. */
double op_relative_error(const float *a, const float *b, size_t count, double floor);

/* Prints each part of `found` that is further from `wanted` than the precision allows; returns how
 * many there are. */
int op_compare(const op_network *network, const op_result *found, const op_result *wanted, fth_precision precision,
               const char *who);

/* Compares the gradients with central differences of the loss; returns the number of parameters
 * that are off. */
int op_check_differences(op_network *network, fth_device *device, const char *who);

#endif
