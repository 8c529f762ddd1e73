/* Batches in the region: how one lies in its slot.
 *
 *     images     (batch, channels, height, width) f32, or recipes of which the worker makes them
 *     text       tokens, segments and positions, each with room for the longest samples there are,
 *                and the ends
 *     answers    labels, or targets where labels are not classes */
#include <string.h>

#include "parallel/hogwild.h"

static size_t align(size_t bytes)
{
    return fth_align_up(bytes, HOGWILD_LINE);
}

/* Tokens that a slot has room for. */
static size_t count_tokens(const hogwild_model *model)
{
    return (size_t)model->batch * (size_t)model->longest;
}

hogwild_batch_sizes hogwild_measure_batch(const hogwild_model *model)
{
    const size_t batch = (size_t)model->batch;
    const size_t image = (size_t)model->channels * (size_t)model->height * (size_t)model->width * sizeof(float);
    const size_t answers = model->task == FTH_TASK_CLASSES ? 1 : (size_t)model->classes;
    return (hogwild_batch_sizes){
        .input_bytes = align(model->longest > 0 ? (3 * count_tokens(model) + batch) * sizeof(int32_t) : batch * image),
        .recipe_bytes = align(batch * sizeof(fth_recipe)),
        .answer_bytes = align(batch * answers * sizeof(int32_t))};
}

typedef struct slot_places {
    void *input, *answers;
    fth_recipe *recipes;
    int32_t *tokens, *segments, *positions, *ends; /* of text; within the input */
} slot_places;

static slot_places find_places(hogwild_head *head, int slot)
{
    const hogwild_layout *layout = &head->layout;
    const size_t number = (size_t)slot, tokens = count_tokens(&head->model);
    char *base = (char *)head;
    slot_places places = {.input = base + layout->inputs_at + number * layout->batch.input_bytes,
                          .answers = base + layout->answers_at + number * layout->batch.answer_bytes,
                          .recipes = (fth_recipe *)(base + layout->recipes_at + number * layout->batch.recipe_bytes)};
    places.tokens = places.input;
    places.segments = places.tokens + tokens;
    places.positions = places.segments + tokens;
    places.ends = places.positions + tokens;
    return places;
}

static void put_text(const slot_places *places, const fth_batch *batch)
{
    const fth_text_batch *text = &batch->text;
    const size_t bytes = (size_t)text->token_count * sizeof(int32_t);
    memcpy(places->tokens, text->tokens, bytes);
    memcpy(places->segments, text->segments, bytes);
    memcpy(places->positions, text->positions, bytes);
    memcpy(places->ends, text->ends, (size_t)batch->count * sizeof(int32_t));
}

void hogwild_put_batch(hogwild_head *head, int number, const fth_batch *batch)
{
    const hogwild_model *model = &head->model;
    const slot_places places = find_places(head, number);
    hogwild_slot *slot = hogwild_get_slot(head, number);
    const size_t count = (size_t)batch->count;

    slot->recipes = batch->recipes != NULL;
    slot->tokens = batch->text.token_count;
    slot->count = batch->count;
    slot->epoch = batch->epoch;
    if (model->longest > 0)
        put_text(&places, batch);
    else if (batch->recipes)
        memcpy(places.recipes, batch->recipes, count * sizeof *batch->recipes);
    else
        memcpy(places.input, batch->images,
               count * (size_t)model->channels * (size_t)model->height * (size_t)model->width * sizeof(float));
    if (model->task == FTH_TASK_CLASSES)
        memcpy(places.answers, batch->labels, count * sizeof *batch->labels);
    else
        memcpy(places.answers, batch->targets, count * (size_t)model->classes * sizeof *batch->targets);
}

fth_batch hogwild_get_batch(hogwild_head *head, int number)
{
    const slot_places places = find_places(head, number);
    const hogwild_slot *slot = hogwild_get_slot(head, number);
    const bool text = head->model.longest > 0, classes = head->model.task == FTH_TASK_CLASSES;
    fth_batch batch = {.images = text || slot->recipes ? NULL : places.input,
                       .recipes = slot->recipes ? places.recipes : NULL,
                       .labels = classes ? places.answers : NULL,
                       .targets = classes ? NULL : places.answers,
                       .count = slot->count,
                       .number = slot->number,
                       .epoch = slot->epoch};
    if (text)
        batch.text = (fth_text_batch){.tokens = places.tokens,
                                      .segments = places.segments,
                                      .positions = places.positions,
                                      .ends = places.ends,
                                      .token_count = slot->tokens};
    return batch;
}
