/* Models by name, and whole training graphs made from them. */
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "model/bert.h"
#include "model/exported_model.h"
#include "model/model_internal.h"

const fth_model *const fth_model_list[] = {
#define ROW(name) &fth_model_##name,
    FTH_MODELS(ROW)
#undef ROW
        NULL,
};

static bool is_weights_file(const char *name)
{
    static const char *const endings[] = {".pth", ".pt", ".bin", ".safetensors"};
    const size_t length = strlen(name);
    for (size_t i = 0; i < FTH_COUNT_OF(endings); i++)
        if (length > strlen(endings[i]) && strcmp(name + length - strlen(endings[i]), endings[i]) == 0)
            return true;
    return false;
}

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
    if (fth_exported_model_is_name(name))
        return fth_exported_model_open(name, model);
    fth_bert_config config;
    fth_status status = FTH_OK;
    if (fth_bert_config_parse(name, &config, &status))
        return status == FTH_OK ? fth_bert_find(&config, model) : status;
    const char *nearest = fth_nearest_name(name, names);
    if (nearest)
        return fth_fail(FTH_INVALID, "there is no model \"%s\"; did you mean \"%s\"?", name, nearest);
    if (is_weights_file(name))
        return fth_fail(FTH_INVALID,
                        "there is no model \"%s\": a file of weights does not say how to compute with them; export the "
                        "module with torch.export (docs/pytorch.md), or name its model and give --weights %s",
                        name, name);
    return fth_fail(FTH_INVALID, "there is no model \"%s\"; `farthing models` lists them", name);
}

fth_model_options fth_model_published(const fth_model *model)
{
    return (fth_model_options){.channels = model->channels,
                               .height = model->height,
                               .width = model->width,
                               .longest = model->longest,
                               .classes = model->classes};
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
    if (fth_model_find(*full_name, &model) == FTH_OK) { /* whose own name may be shorter than what was asked for */
        free(*full_name);
        *full_name = fth_format("%s", model->name);
        return FTH_OK;
    }
    if (!wants_small)
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
    const int fewest = options->task == FTH_TASK_CLASSES ? 2 : 1;
    if (model->build_text && (options->longest < 1 || options->longest > model->longest))
        return fth_fail(FTH_INVALID, "%s cannot take sequences of %s; it knows %d positions", model->name,
                        FTH_COUNTED(options->longest, "token"), model->longest);
    if (!model->build_text && (options->channels < 1 || options->height < 1 || options->width < 1))
        return fth_fail(FTH_INVALID, "%s cannot take images of %d channels and %d×%d pixels", model->name,
                        options->channels, options->height, options->width);
    if (options->classes < fewest)
        return fth_fail(FTH_INVALID, "%s cannot tell %s apart; there must be at least %d", model->name,
                        FTH_COUNTED(options->classes, "class"), fewest);
    return FTH_OK;
}

static fth_status add_text_network(const fth_model *model, const fth_model_options *options, fth_graph *graph,
                                   fth_value *logits)
{
    fth_status status = FTH_OK;
    fth_text_inputs inputs;

    FTH_TRY(fth_graph_add_input(graph, "tokens", FTH_I32, FTH_SHAPE(FTH_TOKENS), &inputs.tokens));
    FTH_TRY(fth_graph_add_input(graph, "segments", FTH_I32, FTH_SHAPE(FTH_TOKENS), &inputs.segments));
    FTH_TRY(fth_graph_add_input(graph, "positions", FTH_I32, FTH_SHAPE(FTH_TOKENS), &inputs.positions));
    FTH_TRY(fth_graph_add_input(graph, "ends", FTH_I32, FTH_SHAPE(FTH_BATCH), &inputs.ends));
    FTH_TRY(model->build_text(model, graph, options, &inputs, logits));

out:
    return status;
}

static fth_status add_image_network(const fth_model *model, const fth_model_options *options, fth_graph *graph,
                                    fth_value *logits)
{
    fth_status status = FTH_OK;
    fth_value images;

    FTH_TRY(fth_graph_add_input(graph, "images", FTH_F32,
                                FTH_SHAPE(FTH_BATCH, options->channels, options->height, options->width), &images));
    FTH_TRY(model->build(model, graph, options, images, logits));

out:
    return status;
}

static fth_status add_loss(const fth_model_options *options, fth_graph *graph, fth_value logits, fth_value *loss)
{
    fth_status status = FTH_OK;
    fth_value wanted;

    if (options->task == FTH_TASK_CLASSES) {
        FTH_TRY(fth_graph_add_input(graph, "labels", FTH_I32, FTH_SHAPE(FTH_BATCH), &wanted));
        FTH_TRY(fth_op_add_softmax_cross_entropy(graph, options->label_smoothing, logits, wanted, loss));
    } else {
        FTH_TRY(fth_graph_add_input(graph, "targets", FTH_F32, FTH_SHAPE(FTH_BATCH, options->classes), &wanted));
        FTH_TRY(options->task == FTH_TASK_REGRESSION ? fth_op_add_squared_error(graph, logits, wanted, loss)
                                                     : fth_op_add_sigmoid_cross_entropy(graph, logits, wanted, loss));
    }

out:
    return status;
}

fth_status fth_model_create_graph(const fth_model *model, const fth_model_options *options, fth_graph **graph)
{
    fth_status status = FTH_OK;
    fth_graph *made = NULL;
    fth_value logits, loss;

    FTH_TRY(check_options(model, options));
    FTH_TRY(fth_graph_create(&made));
    FTH_TRY(model->build_text ? add_text_network(model, options, made, &logits)
                              : add_image_network(model, options, made, &logits));
    FTH_TRY(add_loss(options, made, logits, &loss));
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
