/* What must hold between the options of a run, beyond what the table says of each. What a strategy asks of them is in
 * its row (strategy.h). */
#include <stdlib.h>
#include <string.h>

#include "train/train_internal.h"

fth_status fth_train_options_resolve(fth_train_options *options)
{
    char *model = NULL;
    fth_status status = fth_model_apply_stem(options->model, options->stem, &model);
    if (status != FTH_OK)
        return status;
    free(options->model);
    options->model = model;
    free(options->stem);
    options->stem = fth_format("%s", fth_model_stems[0]);
    return FTH_OK;
}

/* How images are varied and normalized is said once, or alike. */
static fth_status check_images(const fth_train_options *options)
{
    const char *const transforms[] = {options->transform, options->validation_transform};
    fth_normalization asked;
    char text[FTH_NORMALIZATION_TEXT];
    if (strcmp(options->augment, "none") != 0 && *options->transform)
        return fth_fail(FTH_INVALID,
                        "--augment %s and --transform both vary training images: give one of them (--transform has "
                        "pad-crop=4 and flip)",
                        options->augment);
    if (fth_normalization_parse(options->normalize, &asked) != FTH_OK || asked.channels == 0)
        return FTH_OK; /* the table checks the text */
    for (size_t i = 0; i < FTH_COUNT_OF(transforms); i++) {
        fth_normalization said = fth_transform_get_normalization(transforms[i]);
        fth_normalization_format(&said, text);
        if (said.channels > 0 && !fth_normalization_equal(&asked, &said))
            return fth_fail(FTH_INVALID, "--normalize %s and normalize=%s in --%s differ: leave one of them out",
                            options->normalize, text, i == 0 ? "transform" : "validation-transform");
    }
    return FTH_OK;
}

fth_status fth_train_options_check(const fth_train_options *options)
{
    const fth_option_table *table = &fth_train_option_table;
    const fth_optimizer *optimizer = NULL;
    fth_status status = fth_optimizer_find(options->optimizer, &optimizer);
    if (status != FTH_OK)
        return status;
    if (options->lr <= 0 && fth_options_was_given(table, options, "lr"))
        return fth_fail(FTH_INVALID, "--lr must be above 0 (leave it out for the optimizer's default)");
    if (options->epochs == 0 && fth_options_was_given(table, options, "epochs"))
        return fth_fail(FTH_INVALID, "--epochs must be at least 1, not 0 (leave it out for no such limit)");
    if (options->steps == 0 && fth_options_was_given(table, options, "steps"))
        return fth_fail(FTH_INVALID, "--steps must be at least 1, not 0 (leave it out for no such limit)");
    if (options->nesterov && !optimizer->takes_nesterov)
        return fth_fail(FTH_INVALID, "--optimizer %s takes no --nesterov; sgd does", options->optimizer);
    if (options->nesterov && options->momentum <= 0)
        return fth_fail(FTH_INVALID, "--nesterov needs a --momentum above 0");
    if (options->freeze_statistics && !*options->freeze)
        return fth_fail(FTH_INVALID,
                        "--freeze-statistics applies to the layers that --freeze names; give --freeze too");
    if (strncmp(options->checkpoints, "http://", 7) == 0 || strncmp(options->checkpoints, "https://", 8) == 0)
        return fth_fail(
            FTH_INVALID,
            "--checkpoints %.*s: web servers are for reading alone; a run lives in s3://, gs://, az:// or a "
            "folder (an S3 server's own address goes into --s3-endpoint)",
            (int)strcspn(options->checkpoints, "?#"), options->checkpoints);
    if (*options->checkpoints && *options->resume && strcmp(options->resume, "auto") != 0)
        return fth_fail(FTH_INVALID, "--checkpoints names the run and carries it on by itself; leave out --resume %s",
                        options->resume);
    return check_images(options);
}
