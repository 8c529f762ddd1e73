/* BERTs as models: the presets, and those of other shapes, made when they are first asked for.
 *
 * Callers expect models to be constant and to live as long as the process, as the built-in ones do.
 * So a model that is made for a name is kept for the life of the process, in one list with a mutex,
 * and the same name gives the same model. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "model/bert_internal.h"

/* As in transformers' trainer. */
#define FTH_BERT_NO_DECAY "*.bias,*LayerNorm.weight"

#define FTH_BERT_TRAINING                                                                                              \
    .usual_optimizer = "adamw", .usual_rate = 5e-4, .usual_rate_of_tuning = 5e-5, .usual_no_decay = FTH_BERT_NO_DECAY

#define BERT(id, model_name, description, index)                                                                       \
    const fth_model fth_model_##id = {                                                                                 \
        .name = model_name,                                                                                            \
        .summary = description,                                                                                        \
        .classes = 2,                                                                                                  \
        .vocabulary = 30522,                                                                                           \
        .longest = 512,                                                                                                \
        .build_text = fth_bert_build,                                                                                  \
        FTH_BERT_TRAINING,                                                                                             \
        .details = &fth_bert_presets[index].config,                                                                    \
    }

BERT(bert_base, "bert-base", "BERT for text: 12 layers of width 768, 12 heads", 0);
BERT(bert_tiny, "bert-tiny", "BERT for text: 2 layers of width 128, 2 heads", 1);
BERT(bert_mini, "bert-mini", "BERT for text: 4 layers of width 256, 4 heads", 2);
BERT(bert_small, "bert-small", "BERT for text: 4 layers of width 512, 8 heads", 3);
BERT(minilm, "minilm", "BERT for text: 6 layers of width 384, 12 heads, as MiniLM-L6", 4);

/* ---- others ---- */

typedef struct made_model {
    fth_model model;
    fth_bert_config config;
    struct made_model *next;
} made_model;

static struct {
    pthread_mutex_t mutex;
    made_model *first; /* guarded by mutex; what it points to does not change */
} made = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static fth_status make(const fth_bert_config *config, const char *name, made_model **result)
{
    fth_status status = fth_allocate(1, sizeof **result, result);
    if (status != FTH_OK)
        return status;
    made_model *entry = *result;
    entry->config = *config;
    entry->model = (fth_model){
        .name = fth_format("%s", name),
        .summary = fth_format("BERT for text: %s of width %d, %s", FTH_COUNTED(config->layers, "layer"), config->hidden,
                              FTH_COUNTED(config->heads, "head")),
        .classes = 2,
        .vocabulary = config->vocabulary,
        .longest = config->positions,
        .build_text = fth_bert_build,
        FTH_BERT_TRAINING,
        .details = &entry->config,
    };
    return FTH_OK;
}

static const fth_model *find_built_in(const char *name)
{
    for (size_t i = 0; fth_model_list[i]; i++) {
        if (strcmp(fth_model_list[i]->name, name) == 0)
            return fth_model_list[i];
    }
    return NULL;
}

fth_status fth_bert_find(const fth_bert_config *config, const fth_model **model)
{
    fth_status status = FTH_OK;
    char *name = fth_bert_config_name(config);

    *model = find_built_in(name);
    if (*model)
        goto out;
    pthread_mutex_lock(&made.mutex);
    for (made_model *entry = made.first; entry && !*model; entry = entry->next) {
        if (strcmp(entry->model.name, name) == 0)
            *model = &entry->model;
    }
    if (!*model) {
        made_model *entry = NULL;
        status = make(config, name, &entry);
        if (status == FTH_OK) {
            entry->next = made.first;
            made.first = entry;
            *model = &entry->model;
        }
    }
    pthread_mutex_unlock(&made.mutex);

out:
    free(name);
    return status;
}
