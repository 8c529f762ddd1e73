/* Evaluating weights: an engine without a trainer. */
#include <math.h>

#include "train/engine.h"
#include "train/train_internal.h"

fth_status fth_evaluate(const fth_train_options *options, fth_evaluation *evaluation)
{
    fth_status status = FTH_OK;
    fth_device *device = NULL;
    fth_dataset *dataset = NULL;
    fth_engine *engine = NULL;
    fth_weights *weights = NULL;
    fth_loader *loader = NULL;

    FTH_REQUIRE(*options->weights, FTH_INVALID, "nothing to evaluate: give --weights FILE");
    FTH_TRY(fth_weights_open(options->weights, &weights));
    FTH_TRY(fth_open_device_and_data(options, NULL, &device, &dataset));
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    FTH_REQUIRE(info->count[FTH_VALIDATION] > 0, FTH_INVALID, "%s has no images to evaluate with", options->data);
    fth_engine_options engine_options = {.train = options,
                                         .channels = info->channels,
                                         .height = info->height,
                                         .width = info->width,
                                         .classes = info->classes,
                                         .training_samples = info->count[FTH_TRAIN],
                                         .evaluate_only = true};
    FTH_TRY(fth_engine_create(&engine_options, device, &engine));
    FTH_TRY(fth_engine_load_weights(engine, weights, false, options->weights, NULL));

    int64_t batch = fth_engine_evaluation_batch(engine, info->count[FTH_VALIDATION]);
    fth_loader_options loader_options = {.split = FTH_VALIDATION,
                                         .batch = batch,
                                         .seed = (uint64_t)options->seed,
                                         .threads = (int)options->loader_threads,
                                         .batch_limit = fth_batches_per_epoch(info->count[FTH_VALIDATION], batch)};
    FTH_TRY(fth_loader_open(dataset, &loader_options, &loader));
    FTH_TRY(fth_engine_evaluate(engine, loader, NULL, (fth_deadline){INFINITY}, evaluation));
    if (!isfinite(evaluation->loss))
        FTH_TRY(fth_engine_fail_diverged(engine, "the loss is not finite"));

out:
    fth_loader_free(loader);
    fth_engine_free(engine);
    fth_dataset_free(dataset);
    fth_device_close(device);
    fth_weights_free(weights);
    return status;
}
