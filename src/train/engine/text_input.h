/* The inputs of a network for text: packs of tokens put where a plan reads them, filled up to what
 * the plan has room for. */
#ifndef FTH_TRAIN_TEXT_INPUT_H
#define FTH_TRAIN_TEXT_INPUT_H

#include "backend/plan.h"
#include "data/data.h"
#include "model/model.h"

typedef struct fth_text_input fth_text_input;

/* For plans of `graph` on `device`, which both outlive it. *input is NULL if the graph takes no
 * text. */
fth_status fth_text_input_create(const fth_graph *graph, fth_device *device, fth_text_input **input);
void fth_text_input_free(fth_text_input *input);

/* Sets the inputs of `plan`, which has room for `capacity` tokens, to a batch of `count`
 * samples. */
fth_status fth_text_input_set(fth_text_input *input, const fth_text_batch *text, int64_t count, int64_t capacity,
                              fth_plan *plan);

#endif
