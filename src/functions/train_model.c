/* See train_model.h. */
#include "functions/train_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/model/run_network.h"

enum { MAX_SIDE = 4096, MAX_CLASSES = 100000 };

struct fth_train_model {
    fth_device *device;
    fth_train_options options; /* the engine's */
    bool has_options;
    fth_engine *engine;
    fth_replica *replica;
    uint64_t needed_bytes;
    char *made_for; /* describes what was made, to compare */
};

fth_status fth_train_model_create(fth_train_model **model)
{
    return fth_allocate(1, sizeof **model, model);
}

static void forget(fth_train_model *model)
{
    fth_replica_free(model->replica);
    fth_engine_free(model->engine);
    fth_device_close(model->device);
    if (model->has_options)
        fth_options_release(&fth_train_option_table, &model->options);
    free(model->made_for);
    *model = (fth_train_model){0};
}

void fth_train_model_free(fth_train_model *model)
{
    if (!model)
        return;
    forget(model);
    free(model);
}

static fth_status set_option(fth_train_options *options, const char *name, const char *text)
{
    return fth_options_set(&fth_train_option_table, options, name, text, "the parameter server");
}

/* Parses the server's "1x28x28". */
static fth_status read_input(const char *text, fth_engine_options *options)
{
    char rest;
    if (strncmp(text, "text", 4) == 0)
        return fth_fail(FTH_UNSUPPORTED,
                        "the parameter server has a model for text, which functions do not train: start workers with "
                        "`farthing train --server URL`");
    if (sscanf(text, "%dx%dx%d%c", &options->channels, &options->height, &options->width, &rest) != 3 ||
        options->channels < 1 || options->channels > MAX_SIDE || options->height < 1 || options->height > MAX_SIDE ||
        options->width < 1 || options->width > MAX_SIDE)
        return fth_fail(FTH_CORRUPT, "the parameter server has a model for images of \"%.64s\"", text);
    return FTH_OK;
}

/* The size of a batch as passed to the engine. */
static uint64_t count_batch_bytes(const fth_engine_options *engine, int64_t batch)
{
    return (uint64_t)batch * (uint64_t)engine->channels * (uint64_t)engine->height * (uint64_t)engine->width *
           sizeof(float);
}

static fth_status make(fth_train_model *model, const fth_train_parameters *parameters,
                       const fth_train_resources *resources, fth_worker_client *client)
{
    fth_status status = FTH_OK;
    char *network = NULL;
    const fth_worker_registration *served = fth_worker_get_registration(client);
    fth_engine_options engine = {.train = &model->options,
                                 .classes = served->classes,
                                 .training_samples = 1, /* this job makes its own groups */
                                 .copies = 2,           /* one as pulled, one on the way to the server */
                                 .weights_follow = true};

    FTH_TRY(fth_options_set_defaults(&fth_train_option_table, &model->options));
    model->has_options = true;
    FTH_TRY(set_option(&model->options, "model", served->model));
    FTH_TRY(fth_train_options_resolve(&model->options));
    if (served->network) {
        FTH_TRY(fth_worker_fetch_network(client, &network));
        FTH_TRY(fth_run_network_take(&model->options, network, "the parameter server"));
    }
    model->options.batch = parameters->batch;
    model->options.optimizer.accumulate = parameters->interval > 1 ? 2 : 1; /* whether gradients are added up */
    model->options.optimizer.momentum = 0; /* the server updates: no memory for an optimizer's state here */
    FTH_TRY(read_input(served->input, &engine));
    FTH_REQUIRE(engine.classes >= 2 && engine.classes <= MAX_CLASSES, FTH_CORRUPT,
                "the parameter server has a model of %d classes", engine.classes);
    FTH_TRY(fth_device_open(parameters->device ? parameters->device : "cpu",
                            &(fth_device_options){.threads = resources->threads}, &model->device));
    const uint64_t batch_bytes = count_batch_bytes(&engine, parameters->batch);
    if (resources->memory_bytes > 0) /* 1: too little in any case */
        engine.most_bytes = resources->memory_bytes > batch_bytes ? resources->memory_bytes - batch_bytes : 1;
    status = fth_engine_create(&engine, model->device, &model->engine);
    if (status == FTH_NO_MEMORY)
        fth_set_error("%s; give the function more memory, or lower \"batch_sz_train\"", fth_error_message());
    FTH_TRY(status);
    model->needed_bytes = fth_engine_needed_bytes(model->engine) + batch_bytes;
    FTH_TRY(fth_replica_create(model->engine, parameters->compress ? parameters->compress : "none", &model->replica));

out:
    free(network);
    return status;
}

uint64_t fth_train_model_needed_bytes(const fth_train_model *model)
{
    return model->needed_bytes;
}

fth_status fth_train_model_get(fth_train_model *model, const fth_train_parameters *parameters,
                               const fth_train_resources *resources, fth_worker_client *client, fth_engine **engine,
                               fth_replica **replica)
{
    fth_status status = FTH_OK;
    const fth_worker_registration *served = fth_worker_get_registration(client);
    char *wanted = fth_format("%s %s %s %d %s %s %d %d %" PRId64, served->model, served->network ? served->network : "",
                              served->input, served->classes, parameters->device ? parameters->device : "cpu",
                              parameters->compress ? parameters->compress : "none", parameters->interval > 1,
                              resources->threads, parameters->batch);

    FTH_REQUIRE(wanted, FTH_NO_MEMORY, "no memory for a model");
    if (!model->made_for || strcmp(model->made_for, wanted) != 0) {
        forget(model);
        FTH_TRY(make(model, parameters, resources, client));
        model->made_for = wanted;
        wanted = NULL;
    }
    FTH_TRY(fth_replica_connect(model->replica, client));
    *engine = model->engine;
    *replica = model->replica;

out:
    if (status != FTH_OK && !model->made_for)
        forget(model);
    free(wanted);
    return status;
}

fth_status fth_train_model_check_data(const fth_train_model *model, const fth_dataset *dataset, const char *name)
{
    const fth_engine_options *ours = fth_engine_get_options(model->engine);
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    if (info->channels == ours->channels && info->height == ours->height && info->width == ours->width &&
        info->classes == ours->classes)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "the server's model is for images of %dx%dx%d in %s; shard %s has %dx%dx%d in %d",
                    ours->channels, ours->height, ours->width, FTH_COUNTED(ours->classes, "class"), name,
                    info->channels, info->height, info->width, info->classes);
}
