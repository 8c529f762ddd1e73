/* What must hold between the options of a run, beyond what the table says of each. */
#include <stdlib.h>
#include <string.h>

#include "train/train_internal.h"

/* curl takes anything else for a file's name, and then says that no key fits. */
static bool is_fingerprint(const char *text)
{
    static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return strncmp(text, "sha256//", 8) == 0 && strspn(text + 8, base64) == 43 && strcmp(text + 51, "=") == 0;
}

static fth_status check_workers(const fth_train_options *options)
{
    static const struct {
        const char *option;
        bool hogwild, parameter_server;
    } theirs[] = {{"workers", true, true},         {"processes", true, false},  {"hogwild-momentum", true, false},
                  {"worker-timeout", true, false}, {"server", false, true},     {"worker", false, true},
                  {"compress", false, true},       {"server-pin", false, true}, {"server-ca", false, true},
                  {"server-timeout", false, true}, {"consistency", false, true}};
    bool hogwild = strcmp(options->strategy, "hogwild") == 0;
    bool server = strcmp(options->strategy, "parameter-server") == 0;
    for (size_t i = 0; i < FTH_COUNT_OF(theirs); i++)
        if (fth_options_was_given(&fth_train_option_table, options, theirs[i].option) &&
            !(theirs[i].hogwild && hogwild) && !(theirs[i].parameter_server && server))
            return fth_fail(FTH_INVALID, "--%s is about workers: it needs --strategy %s%s", theirs[i].option,
                            theirs[i].hogwild ? "hogwild" : "parameter-server",
                            theirs[i].hogwild && theirs[i].parameter_server ? " or parameter-server" : "");
    if (server && *options->server && options->workers > 0)
        return fth_fail(FTH_INVALID, "--workers are those of a server of this machine's own; with --server URL this "
                                     "command is one worker");
    if (server && *options->server && fth_options_was_given(&fth_train_option_table, options, "consistency"))
        return fth_fail(FTH_INVALID, "--consistency is for the server to say: %s", options->server);
    if (server && *options->server && strncmp(options->server, "http://", 7) != 0 &&
        strncmp(options->server, "https://", 8) != 0)
        return fth_fail(FTH_INVALID, "--server %s is not a URL: http://HOST:PORT or https://HOST:PORT",
                        options->server);
    if (server && *options->server_pin && !is_fingerprint(options->server_pin))
        return fth_fail(FTH_INVALID,
                        "--server-pin \"%s\" is not a fingerprint: sha256// and 44 characters, as the server "
                        "printed it",
                        options->server_pin);
    if (server && *options->checkpoints)
        return fth_fail(FTH_INVALID, "the model is the server's: --checkpoints belongs to `farthing serve parameters`");
    if (hogwild && options->workers > 0 && options->processes > 0)
        return fth_fail(FTH_INVALID, "--workers are threads and --processes are processes: give one of them");
    if (hogwild && options->accumulate > 1)
        return fth_fail(FTH_INVALID, "--strategy hogwild updates after every batch: --accumulate cannot be above 1; "
                                     "use a larger --batch");
    return FTH_OK;
}

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
    if (options->lr <= 0 && fth_options_was_given(table, options, "lr"))
        return fth_fail(FTH_INVALID, "--lr must be above 0 (leave it out for the optimizer's default)");
    if (options->epochs == 0 && fth_options_was_given(table, options, "epochs"))
        return fth_fail(FTH_INVALID, "--epochs must be at least 1, not 0 (leave it out for no such limit)");
    if (options->steps == 0 && fth_options_was_given(table, options, "steps"))
        return fth_fail(FTH_INVALID, "--steps must be at least 1, not 0 (leave it out for no such limit)");
    if (options->nesterov && (strcmp(options->optimizer, "sgd") != 0 || options->momentum <= 0))
        return fth_fail(FTH_INVALID, "--nesterov needs --optimizer sgd with a --momentum above 0");
    if (options->freeze_statistics && !*options->freeze)
        return fth_fail(FTH_INVALID, "--freeze-statistics is about the layers that --freeze names");
    if (strncmp(options->checkpoints, "http://", 7) == 0 || strncmp(options->checkpoints, "https://", 8) == 0)
        return fth_fail(
            FTH_INVALID,
            "--checkpoints %.*s: web servers are for reading alone; a run lives in s3://, gs://, az:// or a "
            "folder (an S3 server's own address goes into --s3-endpoint)",
            (int)strcspn(options->checkpoints, "?#"), options->checkpoints);
    if (*options->checkpoints && *options->resume && strcmp(options->resume, "auto") != 0)
        return fth_fail(FTH_INVALID, "--checkpoints names the run and carries it on by itself; leave out --resume %s",
                        options->resume);
    fth_status status = check_images(options);
    return status == FTH_OK ? check_workers(options) : status;
}
