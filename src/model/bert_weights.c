/* Files of BERT's weights: their names, and the shape that they are of.
 *
 * The hub has BERTs saved from many classes. An encoder may stand by itself ("embeddings.*"), in a
 * model for a task ("bert.embeddings.*") or within others ("0.auto_model.embeddings.*"); what lies
 * beside it belongs to another task, but for the classifier. Files made from TensorFlow's call the
 * scale and shift of a layer norm gamma and beta, and old ones have tensors that are no weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/bert_internal.h"

enum { MAX_CLASSES = 1 << 20, NAME_SIZE = 1200 };

static const char *const landmark = &FTH_BERT_LANDMARK[sizeof "bert." - 1];

/* Where the encoder is in a file. */
typedef struct place {
    const char *name; /* of the landmark; lent; NULL: there is none */
    size_t encoder;   /* characters before the encoder's own names */
    size_t outer;     /* characters before those of the model around it: without "bert." */
} place;

static bool ends_with(const char *name, const char *ending)
{
    size_t length = strlen(name), ending_length = strlen(ending);
    return length >= ending_length && strcmp(name + length - ending_length, ending) == 0 &&
           (length == ending_length || name[length - ending_length - 1] == '.');
}

/* Networks whose files have BERT's embeddings, and which compute something else; by what precedes
 * or follows these. */
static const char *find_relative(const fth_weights *weights, const place *at)
{
    static const char *const prefixes[][2] = {
        {"distilbert.", "DistilBERT"}, {"roberta.", "RoBERTa"},       {"electra.", "ELECTRA"},
        {"deberta.", "DeBERTa"},       {"mpnet.", "MPNet"},           {"albert.", "ALBERT"},
        {"layoutlm.", "LayoutLM"},     {"mobilebert.", "MobileBERT"},
    };
    char whole[NAME_SIZE];
    for (size_t i = 0; i < FTH_COUNT_OF(prefixes); i++) {
        const size_t length = strlen(prefixes[i][0]);
        if (at->encoder >= length && strncmp(at->name + at->encoder - length, prefixes[i][0], length) == 0 &&
            (at->encoder == length || at->name[at->encoder - length - 1] == '.'))
            return prefixes[i][1];
    }
    int length =
        snprintf(whole, sizeof whole, "%.*stransformer.layer.0.attention.q_lin.weight", (int)at->encoder, at->name);
    return (size_t)length < sizeof whole && fth_weights_find(weights, whole) ? "DistilBERT" : NULL;
}

/* Fails where there are two encoders, or one of another network. */
static fth_status find_encoder(const fth_weights *weights, const char *origin, place *found)
{
    *found = (place){0};
    for (size_t i = 0; i < fth_weights_count(weights); i++) {
        const char *name = fth_weights_get(weights, i)->name;
        if (!ends_with(name, landmark))
            continue;
        size_t encoder = strlen(name) - strlen(landmark);
        if (found->name)
            return fth_fail(FTH_INVALID, "%s: two parts are BERTs, %.*s* and %.*s*; name one, as in %s:%.*s", origin,
                            (int)found->encoder, found->name, (int)encoder, name, origin,
                            encoder ? (int)encoder - 1 : (int)found->encoder - 1, encoder ? name : found->name);
        bool in_model =
            encoder >= 5 && strncmp(name + encoder - 5, "bert.", 5) == 0 && (encoder == 5 || name[encoder - 6] == '.');
        *found = (place){.name = name, .encoder = encoder, .outer = in_model ? encoder - 5 : encoder};
    }
    const char *relative = found->name ? find_relative(weights, found) : NULL;
    if (relative)
        return fth_fail(FTH_UNSUPPORTED, "%s: its tensors are those of %s, which is not supported; BERT is", origin,
                        relative);
    return FTH_OK;
}

/* ---- names ---- */

static const char *rename_encoder_tensor(const char *name, char *buffer, size_t size)
{
    static const char *const no_weights[] = {"embeddings.position_ids", "embeddings.token_type_ids"};
    for (size_t i = 0; i < FTH_COUNT_OF(no_weights); i++) {
        if (strcmp(name, no_weights[i]) == 0)
            return NULL;
    }
    const char *as = ends_with(name, "LayerNorm.gamma") ? "weight" : ends_with(name, "LayerNorm.beta") ? "bias" : NULL;
    if (as)
        snprintf(buffer, size, "bert.%.*s%s", (int)(strrchr(name, '.') + 1 - name), name, as);
    else
        snprintf(buffer, size, "bert.%s", name);
    return buffer;
}

static const char *rename_tensor(void *context, const char *name, char *buffer, size_t size)
{
    const place *at = context;
    if (strncmp(name, at->name, at->encoder) == 0) {
        const char *own = name + at->encoder;
        static const char *const parts[] = {"embeddings.", "encoder.", "pooler."};
        for (size_t i = 0; i < FTH_COUNT_OF(parts); i++) {
            if (strncmp(own, parts[i], strlen(parts[i])) == 0)
                return rename_encoder_tensor(own, buffer, size);
        }
    }
    const char *own = name + at->outer;
    bool is_head = strncmp(name, at->name, at->outer) == 0 &&
                   (strcmp(own, "classifier.weight") == 0 || strcmp(own, "classifier.bias") == 0);
    return is_head ? own : NULL;
}

fth_status fth_bert_adopt_names(fth_weights *weights, const char *origin)
{
    fth_status status = FTH_OK;
    place at;
    char *landmark_name = NULL;

    FTH_TRY(find_encoder(weights, origin, &at));
    if (!at.name)
        goto out;
    at.name = landmark_name = fth_format("%s", at.name); /* names are being replaced */
    FTH_TRY(fth_weights_rename(weights, origin, rename_tensor, &at));

out:
    free(landmark_name);
    return status;
}

bool fth_bert_may_lack(const char *parameter)
{
    return strncmp(parameter, "bert.pooler.", strlen("bert.pooler.")) == 0 ||
           strncmp(parameter, "classifier.", strlen("classifier.")) == 0;
}

/* ---- the shape ---- */

/* Rows and columns of a tensor of the encoder; false if there is none such. */
static bool get_matrix(const fth_weights *weights, const place *at, const char *name, int *rows, int *columns)
{
    char whole[NAME_SIZE];
    int length = snprintf(whole, sizeof whole, "%.*s%s", (int)at->encoder, at->name, name);
    const fth_tensor_view *view = (size_t)length < sizeof whole ? fth_weights_find(weights, whole) : NULL;
    if (!view || view->shape.rank != 2 || view->shape.dims[0] > INT32_MAX || view->shape.dims[1] > INT32_MAX)
        return false;
    *rows = (int)view->shape.dims[0];
    *columns = (int)view->shape.dims[1];
    return true;
}

/* Tensors do not show how many heads there are: as many as the preset of these sizes has, else of
 * 64 numbers each, as in most BERTs. */
static int guess_heads(const fth_bert_config *config)
{
    for (const fth_bert_preset *preset = fth_bert_presets; preset->name; preset++) {
        if (preset->config.hidden == config->hidden && preset->config.layers == config->layers &&
            preset->config.intermediate == config->intermediate)
            return preset->config.heads;
    }
    return config->hidden % 64 == 0 ? config->hidden / 64 : 1;
}

static bool read_shape(const fth_weights *weights, const place *at, fth_bert_config *config)
{
    char name[64];
    int rows, columns;
    *config = fth_bert_presets[0].config;
    if (!get_matrix(weights, at, landmark, &config->vocabulary, &config->hidden) ||
        !get_matrix(weights, at, "embeddings.position_embeddings.weight", &config->positions, &columns) ||
        !get_matrix(weights, at, "embeddings.token_type_embeddings.weight", &config->types, &columns) ||
        !get_matrix(weights, at, "encoder.layer.0.intermediate.dense.weight", &config->intermediate, &columns))
        return false;
    for (config->layers = 0;; config->layers++) {
        snprintf(name, sizeof name, "encoder.layer.%d.attention.self.query.weight", config->layers);
        if (!get_matrix(weights, at, name, &rows, &columns))
            break;
    }
    config->heads = guess_heads(config);
    return config->layers > 0;
}

static int count_classes(const fth_weights *weights, const place *at)
{
    char whole[NAME_SIZE];
    int length = snprintf(whole, sizeof whole, "%.*sclassifier.weight", (int)at->outer, at->name);
    const fth_tensor_view *view = (size_t)length < sizeof whole ? fth_weights_find(weights, whole) : NULL;
    return view && view->shape.rank == 2 && view->shape.dims[0] >= 1 && view->shape.dims[0] <= MAX_CLASSES
               ? (int)view->shape.dims[0]
               : 2;
}

fth_status fth_bert_recognize(const fth_weights *weights, fth_model_fit *fit)
{
    fth_status status = FTH_OK;
    const char *text = fth_weights_config(weights);
    json_t *json = NULL;
    char *path = NULL;
    fth_bert_config config;
    place at;

    FTH_TRY(find_encoder(weights, fth_weights_origin(weights), &at));
    if (!at.name || !read_shape(weights, &at, &config))
        goto out;
    if (text && *text) {
        path = fth_path_join(fth_weights_folder(weights), "config.json");
        json = json_loads(text, 0, NULL);
        FTH_TRY(fth_bert_config_read(json, path, &config));
    }
    FTH_TRY(fth_bert_config_check(&config));
    FTH_TRY(fth_bert_find(&config, &fit->model));
    fit->prefix = fth_format("%.*s", (int)at.outer, at.name);
    fit->classes = count_classes(weights, &at);
    fit->fits = true;

out:
    free(path);
    json_decref(json);
    return status;
}
