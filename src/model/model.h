/* The models: networks by name, with PyTorch's parameter names and default initializations. */
#ifndef FTH_MODEL_MODEL_H
#define FTH_MODEL_MODEL_H

#include "base/options.h"
#include "graph/graph.h"
#include "tensor/weights.h"

/* What a model is trained for; its number of outputs is `classes` in each. */
typedef enum fth_task {
    FTH_TASK_CLASSES,     /* one class of several: softmax cross-entropy; labels (N) I32 */
    FTH_TASK_REGRESSION,  /* numbers: squared error; targets (N, C) F32 */
    FTH_TASK_MULTI_LABEL, /* any of several labels: sigmoid cross-entropy; targets (N, C) F32 */
    FTH_TASK_COUNT
} fth_task;

typedef struct fth_model_options {
    int channels, height, width; /* of images */
    int longest;                 /* of text: no sequence has more tokens */
    fth_task task;
    int classes;
    float label_smoothing;
    const char *freeze;     /* patterns of parameters that are not trained, "layer1.*,conv1"; NULL or "": all are */
    bool freeze_statistics; /* the running statistics of frozen batch norms stay, and are used in training */
    bool no_dropout;        /* leaves dropout out, for comparisons that must be exact */
    bool recompute;         /* of text: layers are computed again for their gradients; see fth_graph_begin_block() */
} fth_model_options;

/* The inputs of a network for text, packed as ops.h says. */
typedef struct fth_text_inputs {
    fth_value tokens, segments, positions; /* (T) I32 */
    fth_value ends;                        /* (N) I32 */
} fth_text_inputs;

typedef struct fth_model {
    const char *name;                     /* "resnet18" */
    const char *summary;                  /* one line for `farthing models` */
    int channels, height, width, classes; /* what it was published for */
    int vocabulary, longest; /* of text: tokens that it knows, and the longest sequence; 0: it takes images */
    /* Adds the network to `graph`; says what is wrong with the size if it does not fit. */
    fth_status (*build)(const struct fth_model *model, fth_graph *graph, const fth_model_options *options,
                        fth_value images, fth_value *logits);
    /* The same of a network for text, instead of build. */
    fth_status (*build_text)(const struct fth_model *model, fth_graph *graph, const fth_model_options *options,
                             const fth_text_inputs *inputs, fth_value *logits);
    const char *usual_optimizer;             /* NULL: sgd, at its own rate */
    double usual_rate, usual_rate_of_tuning; /* of that one: from nothing, and from weights that are trained already */
    const char *usual_no_decay; /* patterns of parameters that are usually trained without weight decay; NULL: none */
    const void *details;        /* the family's own: depths, widths */
} fth_model;

/* In the order in which `farthing models` lists them; ends with NULL. */
extern const fth_model *const fth_model_list[];

/* A name of the list; that of a BERT of any shape, as bert.h has it: "bert-mini(vocabulary=8192)";
 * or the path of a network that PyTorch exported, "net.pt2" (exported_model.h). Fails with the
 * nearest name if there is none. Models live as long as the process. */
fth_status fth_model_find(const char *name, const fth_model **model);

/* The name of the network that `name` with this stem is: "resnet18" with "small" is
 * "resnet18-small"; "standard" changes nothing. The name says it all from there on: files, runs and
 * servers know no stem. free() it. */
fth_status fth_model_apply_stem(const char *name, const char *stem, char **full_name);
/* What `stem` may be; ends with NULL. */
extern const char *const fth_model_stems[];

/* The size that it was published for, as options. */
fth_model_options fth_model_published(const fth_model *model);

/* The list, for completion of --model. */
fth_choice fth_model_choice(size_t index);

/* A whole training graph: inputs, the network, the loss, gradients. Inputs are "images" (N,C,H,W)
 * F32; or, of text, "tokens", "segments", "positions" (T) I32 and "ends" (N) I32; and "labels" (N)
 * I32 or "targets" (N,C) F32, by the task. */
fth_status fth_model_create_graph(const fth_model *model, const fth_model_options *options, fth_graph **graph);

/* Calls `visit` with each parameter whose name, or that of a layer it is in, matches one of
 * `patterns`: "conv1,*.bias". Fails with the nearest name for a pattern that matches none. */
fth_status fth_model_match_parameters(const fth_model *model, const fth_graph *graph, const char *patterns,
                                      void (*visit)(void *context, fth_value parameter), void *context);

/* The last linear layer, whose rows are the classes; FTH_NO_VALUE where there is none. */
typedef struct fth_model_head {
    fth_value weight, bias;
} fth_model_head;
fth_model_head fth_model_find_head(const fth_graph *graph);

/* ---- match.c: networks and files ---- */

/* Where a file holds a network's tensors among others, all with the same prefix, leaves only those,
 * without it. Does nothing where no part of the file is exactly the network's; fails, naming them,
 * where two are. A BERT's tensors also get the names that they have in the network, and may be
 * fewer. */
fth_status fth_model_narrow_weights(const fth_graph *graph, const char *origin, fth_weights *weights);

/* True of a parameter that files of pretrained weights often lack, since it is part of a task: a
 * BERT's pooler and classifier. */
bool fth_model_may_lack(const fth_graph *graph, fth_value parameter);

/* The network that a file's tensors are of: by the config.json of a folder from the hub, else by
 * names and shapes. */
typedef struct fth_model_fit {
    const fth_model *model; /* NULL: none has these names */
    char *prefix;           /* before its names in the file; owned */
    int channels, classes;  /* as the file's shapes say, else as published */
    bool fits;              /* shapes agree too, at the size that the model was published for */
} fth_model_fit;
fth_status fth_model_recognize(const fth_weights *weights, fth_model_fit *fit);
void fth_model_fit_release(fth_model_fit *fit);

#endif
