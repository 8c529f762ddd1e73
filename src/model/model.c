/* Models by name, and whole training graphs made from them. */
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "model/model_internal.h"

const fth_model *const fth_model_list[] = {
#define ROW(name) &fth_model_##name,
    FTH_MODELS(ROW)
#undef ROW
        NULL,
};

fth_status fth_model_find(const char *name, const fth_model **model)
{
    const char *names[FTH_COUNT_OF(fth_model_list)] = {NULL};
    for (size_t i = 0; fth_model_list[i]; i++) {
        names[i] = fth_model_list[i]->name;
        if (strcmp(names[i], name) == 0) {
            *model = fth_model_list[i];
            return FTH_OK;
        }
    }
    const char *nearest = fth_nearest_name(name, names);
    if (nearest)
        return fth_fail(FTH_INVALID, "there is no model \"%s\"; did you mean \"%s\"?", name, nearest);
    return fth_fail(FTH_INVALID, "there is no model \"%s\"; `farthing models` lists them", name);
}

fth_choice fth_model_choice(size_t index)
{
    const fth_model *model = index < FTH_COUNT_OF(fth_model_list) ? fth_model_list[index] : NULL;
    return model ? (fth_choice){model->name, model->summary} : (fth_choice){0};
}

const char *const fth_model_stems[] = {"standard", "small", NULL};

fth_status fth_model_apply_stem(const char *name, const char *stem, char **full_name)
{
    static const char ending[] = "-small";
    const fth_model *model = NULL;
    size_t length = strlen(name), ending_length = strlen(ending);
    bool is_small = length > ending_length && strcmp(name + length - ending_length, ending) == 0;
    bool wants_small = strcmp(stem, "small") == 0;

    *full_name = fth_format("%s%s", name, wants_small && !is_small ? ending : "");
    if (!wants_small || fth_model_find(*full_name, &model) == FTH_OK)
        return FTH_OK;
    free(*full_name);
    *full_name = NULL;
    fth_status status = fth_model_find(name, &model);
    if (status != FTH_OK)
        return status;
    return fth_fail(FTH_INVALID, "--stem small: %s has no other stem; resnet18, resnet34, resnet50 and resnet101 have",
                    name);
}

fth_status fth_model_check_size(const fth_model *model, const fth_model_options *options, int smallest)
{
    if (options->height >= smallest && options->width >= smallest)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "%s needs images of at least %d×%d, not %d×%d (height × width)", model->name, smallest,
                    smallest, options->height, options->width);
}

static fth_status check_options(const fth_model *model, const fth_model_options *options)
{
    if (options->channels < 1 || options->height < 1 || options->width < 1)
        return fth_fail(FTH_INVALID, "%s cannot take images of %d channels and %d×%d pixels", model->name,
                        options->channels, options->height, options->width);
    if (options->classes < 2)
        return fth_fail(FTH_INVALID, "%s cannot tell %s apart; there must be at least 2", model->name,
                        FTH_COUNTED(options->classes, "class"));
    return FTH_OK;
}

fth_status fth_model_create_graph(const fth_model *model, const fth_model_options *options, fth_graph **graph)
{
    fth_status status = FTH_OK;
    fth_graph *made = NULL;
    fth_value images, labels, logits, loss;

    FTH_TRY(check_options(model, options));
    FTH_TRY(fth_graph_create(&made));
    FTH_TRY(fth_graph_add_input(made, "images", FTH_F32,
                                FTH_SHAPE(FTH_BATCH, options->channels, options->height, options->width), &images));
    FTH_TRY(fth_graph_add_input(made, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &labels));
    FTH_TRY(model->build(model, made, options, images, &logits));
    FTH_TRY(fth_op_add_softmax_cross_entropy(made, options->label_smoothing, logits, labels, &loss));
    fth_graph_set_outputs(made, logits, loss);
    if (options->freeze)
        FTH_TRY(fth_model_freeze(model, made, options->freeze));
    if (options->freeze_statistics)
        fth_graph_fix_statistics(made);
    FTH_TRY(fth_graph_differentiate(made));
    *graph = made;
    made = NULL;

out:
    fth_graph_free(made);
    return status;
}

fth_model_head fth_model_find_head(const fth_graph *graph)
{
    fth_model_head head = {FTH_NO_VALUE, FTH_NO_VALUE};
    const fth_value_info *logits = fth_graph_value(graph, fth_graph_logits(graph));
    const fth_node *node = logits ? fth_graph_node(graph, logits->producer) : NULL;
    if (node && node->op == &fth_op_linear) {
        head.weight = node->inputs[1];
        if (node->input_count > 2)
            head.bias = node->inputs[2];
    }
    return head;
}
