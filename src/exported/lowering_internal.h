/* The state of a lowering, shared by lower.c, lowering.c and lowering_values.c; rules use lowering.h. */
#ifndef FTH_EXPORTED_LOWERING_INTERNAL_H
#define FTH_EXPORTED_LOWERING_INTERNAL_H

#include "exported/fold.h"
#include "exported/lowering.h"

typedef enum lowered_kind {
    LOWERED_NOTHING,  /* not computed yet */
    LOWERED_VIEW,     /* in the graph */
    LOWERED_CONSTANT, /* its numbers are known; in the graph as well once an op has asked for it */
    LOWERED_PENDING,  /* an op that is added when its reader is known */
    LOWERED_NOISE
} lowered_kind;

typedef struct lowered_value {
    lowered_kind kind;
    bool live;         /* the output depends on it */
    int readers;       /* nodes that read it, each as often as it does */
    int now;           /* what it is since an operator changed it in place; else itself */
    int storage;       /* the number of the value whose memory it shares in PyTorch */
    int made_by;       /* the node whose result it is; -1: none */
    int refreshed_by;  /* the node that changed a part of it in place last; -1: none */
    bool storage_live; /* of such a value: the output depends on that memory */
    bool in_graph;     /* a constant that `view` holds too */
    fth_view view;     /* of a pending op: all but the value */
    fth_host_tensor constant;
    lowering_pending pending;
    lowering_noise noise;
} lowered_value;

struct lowering {
    const fth_exported *program;
    const fth_exported_lower_options *options;
    fth_graph *graph;
    lowered_value *values; /* by number in the program */
    bool *live_nodes;
    const fth_exported_node *node; /* being lowered */
    int64_t allowance;             /* what is left for numbers of constants */
};

/* "relu" of "aten.relu_.default"; "" of another namespace than aten. */
enum { FTH_OPERATOR_NAME = 64 };
void lowering_operator_name(const char *target, char name[FTH_OPERATOR_NAME]);

/* Parameters and buffers, in the program's order, and an input (lowering_values.c). */
fth_status lowering_add_state(lowering *l);
fth_status lowering_add_input(lowering *l, int number, fth_value value);
void lowering_release_value(lowered_value *value);
/* The value as it is now; an op that was pending is added. */
fth_status lowering_view_of(lowering *l, int number, fth_view *view);

/* Computes the node here if everything it reads is constant. */
fth_status lowering_fold(lowering *l, bool *folded);
/* True of operators that can be computed here. */
bool lowering_may_fold(const fth_exported_node *node);

#endif
