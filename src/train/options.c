/* The options of a training run, declared once; base/options.h says what the table is used for.
 *
 * `identity` marks what makes two runs different runs: whatever changes the resulting weights or how long they are
 * trained. Where a run is kept, how often it is saved and how many threads compute it do not. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/cost.h"
#include "spot/spot.h"
#include "train/train_internal.h"

static fth_status check_until(const char *text)
{
    fth_goal goal;
    return fth_goal_parse(text, &goal);
}

static fth_status check_checkpoint_every(const char *text)
{
    fth_interval interval;
    return fth_interval_parse(text, &interval);
}

static fth_status check_usd(const char *text)
{
    double usd;
    return fth_usd_parse(text, &usd);
}

fth_status fth_goal_parse(const char *text, fth_goal *goal)
{
    *goal = (fth_goal){FTH_GOAL_NONE, 0};
    if (!*text)
        return FTH_OK;
    const char *number = NULL;
    if (strncmp(text, "accuracy=", 9) == 0) {
        goal->kind = FTH_GOAL_ACCURACY;
        number = text + 9;
    } else if (strncmp(text, "loss=", 5) == 0) {
        goal->kind = FTH_GOAL_LOSS;
        number = text + 5;
    }
    char *end = NULL;
    if (number)
        goal->value = strtod(number, &end);
    if (!number || end == number || *end || !isfinite(goal->value) || goal->value < 0)
        return fth_fail(FTH_INVALID, "\"%s\" is not a goal: write accuracy=0.99 or loss=0.05", text);
    if (goal->kind == FTH_GOAL_ACCURACY && goal->value > 1)
        return fth_fail(FTH_INVALID, "an accuracy is between 0 and 1 (99 %% is 0.99), not %s", number);
    return FTH_OK;
}

static fth_status check_lease(const char *text)
{
    double seconds;
    if (strcmp(text, "off") == 0 || (fth_duration_parse(text, &seconds) == FTH_OK && seconds >= 1 && seconds <= 3600))
        return FTH_OK;
    return fth_fail(FTH_INVALID, "\"%s\" is not the time of a lease: write 10s (1s to 1h), or off", text);
}

fth_status fth_share_parse(const char *text, double *share)
{
    char *end = NULL;
    *share = strtod(text, &end);
    if (end != text && strcmp(end, "%") == 0) {
        *share /= 100;
        end++;
    }
    if (end == text || *end || !(*share > 0) || *share > 0.5)
        return fth_fail(FTH_INVALID, "\"%s\" is not a share of the time: write 1%% or 0.01 (at most 50%%)", text);
    return FTH_OK;
}

static fth_status check_share(const char *text)
{
    double share;
    return fth_share_parse(text, &share);
}

fth_status fth_interval_parse(const char *text, fth_interval *interval)
{
    *interval = (fth_interval){0};
    if (strcmp(text, "auto") == 0) {
        interval->automatic = true;
        return FTH_OK;
    }
    if (*text && text[strspn(text, "0123456789")] == '\0') {
        interval->steps = strtoll(text, NULL, 10);
        if (interval->steps < 1 || strlen(text) > 15)
            return fth_fail(FTH_INVALID, "%s is not a number of steps between checkpoints: at least 1", text);
        return FTH_OK;
    }
    if (fth_duration_parse(text, &interval->seconds) != FTH_OK)
        return fth_fail(FTH_INVALID, "\"%s\" is not an interval: write steps (200), a time (30s, 10m) or auto", text);
    return FTH_OK;
}

fth_status fth_data_share_parse(const char *text, fth_share *share)
{
    char *end = NULL;
    *share = (fth_share){0};
    if (!*text)
        return FTH_OK;
    int64_t index = strtoll(text, &end, 10), of = *end == '/' ? strtoll(end + 1, &end, 10) : 0;
    if (*end || index < 1 || of < index || of > 1000000)
        return fth_fail(FTH_INVALID, "\"%s\" is not a share: write 2/4 for the second of four", text);
    *share = (fth_share){index - 1, of};
    return FTH_OK;
}

static fth_status check_data_share(const char *text)
{
    fth_share share;
    return fth_data_share_parse(text, &share);
}

static fth_status check_compression(const char *text)
{
    char *end = NULL;
    if (strncmp(text, "topk:", 5) == 0) {
        double part = strtod(text + 5, &end);
        if (end > text + 5 && !*end && part > 0 && part <= 1)
            return FTH_OK;
    } else if (strcmp(text, "none") == 0 || strcmp(text, "f16") == 0 || strcmp(text, "bf16") == 0) {
        return FTH_OK;
    }
    return fth_fail(FTH_INVALID, "\"%s\" is not a compression: none, f16, bf16 or topk:0.01 (the largest 1 %%)", text);
}

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
    if (!*options->checkpoints && fth_options_was_given(table, options, "checkpoints"))
        return fth_fail(FTH_INVALID,
                        "--checkpoints is empty (a variable that is not set?); leave it out for a run that "
                        "stays on this machine");
    if (*options->checkpoints && *options->resume && strcmp(options->resume, "auto") != 0)
        return fth_fail(FTH_INVALID, "--checkpoints names the run and carries it on by itself; leave out --resume %s",
                        options->resume);
    return check_workers(options);
}

static fth_status check_watch(const char *text)
{
    return *text ? fth_watch_check(text) : FTH_OK;
}

static const char *const s3_styles[] = {"auto", "path", "host", NULL};
static const char *const optimizers[] = {"sgd", "adamw", NULL};
static const char *const schedules[] = {"constant", "step", "cosine", "linear", NULL};
static const char *const precisions[] = {"f32", "bf16", "tf32", "f16", "auto", NULL};
static const char *const momentums[] = {"shared", "worker", NULL};
static const char *const augmentations[] = {"none", "flip", "crop", "flip-crop", NULL};

#define AT(member) offsetof(fth_train_options, member)

static const fth_option options[] = {
    {.name = "model",
     .type = FTH_OPTION_TEXT,
     .offset = AT(model),
     .fallback = "mnist-cnn",
     .argument = "NAME",
     .help = "network to train; `farthing models` lists them",
     .identity = true,
     .group = "What to train"},
    {.name = "data",
     .type = FTH_OPTION_TEXT,
     .offset = AT(data),
     .fallback = "digits",
     .argument = "NAME|FOLDER",
     .help = "digits or shapes (built in); a folder, archive or URL of JPEG and PNG files in class folders; or a "
             "folder of MNIST idx or CIFAR-10 binary files",
     .identity = true},
    {.name = "weights",
     .type = FTH_OPTION_TEXT,
     .offset = AT(weights),
     .argument = "FILE[:KEY]",
     .help = "start from these weights: safetensors, or PyTorch's .pth (FILE:KEY for a dictionary inside)",
     .identity = true},
    {.name = "freeze",
     .type = FTH_OPTION_TEXT,
     .offset = AT(freeze),
     .argument = "PATTERNS",
     .help = "layers or parameters that are not trained: conv1,layer1.*,*.bias",
     .identity = true},
    {.name = "freeze-statistics",
     .type = FTH_OPTION_SWITCH,
     .offset = AT(freeze_statistics),
     .help = "frozen batch norms keep their running statistics and use them in training (PyTorch's eval mode)",
     .identity = true},
    {.name = "augment",
     .type = FTH_OPTION_CHOICE,
     .offset = AT(augment),
     .fallback = "none",
     .argument = "HOW",
     .help = "vary training images: flip (left-right), crop (padded, at random) or both; image files: --transform",
     .choices = augmentations,
     .identity = true},
    {.name = "image-size",
     .type = FTH_OPTION_INTEGER,
     .offset = AT(image_size),
     .fallback = "0",
     .argument = "N",
     .help = "image files: side of what the model gets; 0: theirs if they are all alike, else 224",
     .minimum = 0,
     .maximum = 4096,
     .identity = true},
    {.name = "transform",
     .type = FTH_OPTION_TEXT,
     .offset = AT(transform),
     .argument = "STEPS",
     .help = "image files: how they are varied, random-resized-crop=224,flip,normalize=imagenet",
     .check = fth_transform_check,
     .identity = true},
    {.name = "validation-transform",
     .type = FTH_OPTION_TEXT,
     .offset = AT(validation_transform),
     .argument = "STEPS",
     .help = "image files: how they are brought to size for validation, resize=256,centre-crop=224",
     .check = fth_transform_check,
     .identity = true},
    {.name = "max-bad-images",
     .type = FTH_OPTION_NUMBER,
     .offset = AT(max_bad_images),
     .fallback = "0.001",
     .argument = "X",
     .help = "image files: share that may be unreadable and is passed over; more is an error",
     .minimum = 0,
     .maximum = 1},
    {.name = "validation-fraction",
     .type = FTH_OPTION_NUMBER,
     .offset = AT(validation_fraction),
     .fallback = "0.1",
     .argument = "X",
     .help = "share held out for validation where the data set has no such part",
     .minimum = 1e-6,
     .maximum = 0.99,
     .identity = true},
    {.name = "seed",
     .type = FTH_OPTION_INTEGER,
     .offset = AT(seed),
     .fallback = "1",
     .argument = "N",
     .help = "seed of initial weights, order of samples, augmentation and dropout",
     .minimum = 0,
     .maximum = 9007199254740991.0,
     .identity = true},

    {.name = "epochs",
     .type = FTH_OPTION_INTEGER,
     .offset = AT(epochs),
     .fallback = "0",
     .argument = "N",
     .help = "stop after N passes over the data; 3 if no limit at all is given",
     .minimum = 0,
     .maximum = 1e9,
     .identity = true,
     .group = "How long"},
    {.name = "steps",
     .type = FTH_OPTION_INTEGER,
     .offset = AT(steps),
     .fallback = "0",
     .argument = "N",
     .help = "stop after N updates of the weights",
     .minimum = 0,
     .maximum = 1e12,
     .identity = true},
    {.name = "for",
     .type = FTH_OPTION_DURATION,
     .offset = AT(for_s),
     .argument = "TIME",
     .help = "stop after this much training time (90s, 10m, 2h), resumed parts included",
     .identity = true},
    {.name = "until",
     .type = FTH_OPTION_TEXT,
     .offset = AT(until),
     .argument = "GOAL",
     .help = "stop when validation reaches accuracy=0.99 or loss=0.05",
     .check = check_until,
     .identity = true},
    {.name = "validate-every",
     .type = FTH_OPTION_INTEGER,
     .offset = AT(validate_every),
     .fallback = "1",
     .argument = "EPOCHS",
     .help = "epochs between validations",
     .minimum = 1,
     .maximum = 1e9,
     .identity = true},

    {.name = "batch",
     .type = FTH_OPTION_INTEGER,
     .offset = AT(batch),
     .fallback = "64",
     .argument = "N",
     .help = "images per batch",
     .minimum = 1,
     .maximum = 1e6,
     .identity = true,
     .group = "How to train"},
    {.name = "optimizer",
     .type = FTH_OPTION_CHOICE,
     .offset = AT(optimizer),
     .fallback = "sgd",
     .argument = "NAME",
     .help = "rule of the update",
     .choices = optimizers,
     .identity = true},
    {.name = "lr",
     .type = FTH_OPTION_NUMBER,
     .offset = AT(lr),
     .fallback = "0",
     .argument = "X",
     .help = "learning rate; 0 is the optimizer's own default (sgd 0.01, adamw 0.001)",
     .minimum = 0,
     .maximum = 1e38,
     .identity = true},
    {.name = "momentum",
     .type = FTH_OPTION_NUMBER,
     .offset = AT(momentum),
     .fallback = "0.9",
     .argument = "X",
     .help = "momentum of sgd",
     .minimum = 0,
     .maximum = 0.999999,
     .identity = true},
    {.name = "nesterov",
     .type = FTH_OPTION_SWITCH,
     .offset = AT(nesterov),
     .help = "Nesterov's momentum in sgd",
     .identity = true},
    {.name = "weight-decay",
     .type = FTH_OPTION_NUMBER,
     .offset = AT(weight_decay),
     .fallback = "0",
     .argument = "X",
     .help = "weight decay: added to the gradient in sgd, decoupled in adamw",
     .minimum = 0,
     .maximum = 1e6,
     .identity = true},
    {.name = "beta1",
     .type = FTH_OPTION_NUMBER,
     .offset = AT(beta1),
     .fallback = "0.9",
     .argument = "X",
     .help = "decay of adamw's first moment",
     .minimum = 0,
     .maximum = 0.9999999,
     .identity = true},
    {.name = "beta2",
     .type = FTH_OPTION_NUMBER,
     .offset = AT(beta2),
     .fallback = "0.999",
     .argument = "X",
     .help = "decay of adamw's second moment",
     .minimum = 0,
     .maximum = 0.9999999,
     .identity = true},
    {.name = "epsilon",
     .type = FTH_OPTION_NUMBER,
     .offset = AT(epsilon),
     .fallback = "1e-8",
     .argument = "X",
     .help = "added to adamw's denominator",
     .minimum = 1e-30,
     .maximum = 1,
     .identity = true},
    {.name = "schedule",
     .type = FTH_OPTION_CHOICE,
     .offset = AT(schedule),
     .fallback = "constant",
     .argument = "NAME",
     .help = "how the learning rate changes; cosine and linear fall to 0 at the last step",
     .choices = schedules,
     .identity = true},
    {.name = "warmup",
     .type = FTH_OPTION_INTEGER,
     .offset = AT(warmup),
     .fallback = "0",
     .argument = "STEPS",
     .help = "raise the learning rate from 0 over this many steps first",
     .minimum = 0,
     .maximum = 1e9,
     .identity = true},
    {.name = "decay-every",
     .type = FTH_OPTION_INTEGER,
     .offset = AT(decay_every),
     .fallback = "30",
     .argument = "EPOCHS",
     .help = "epochs between decays of schedule step",
     .minimum = 1,
     .maximum = 1e9,
     .identity = true},
    {.name = "decay-factor",
     .type = FTH_OPTION_NUMBER,
     .offset = AT(decay_factor),
     .fallback = "0.1",
     .argument = "X",
     .help = "what each decay of schedule step multiplies the learning rate by",
     .minimum = 1e-9,
     .maximum = 1,
     .identity = true},
    {.name = "clip",
     .type = FTH_OPTION_NUMBER,
     .offset = AT(clip),
     .fallback = "0",
     .argument = "NORM",
     .help = "scale gradients down to this norm where they exceed it; 0: never",
     .minimum = 0,
     .maximum = 1e30,
     .identity = true},
    {.name = "accumulate",
     .type = FTH_OPTION_INTEGER,
     .offset = AT(accumulate),
     .fallback = "1",
     .argument = "BATCHES",
     .help = "batches whose gradients make one update",
     .minimum = 1,
     .maximum = 1e6,
     .identity = true},
    {.name = "label-smoothing",
     .type = FTH_OPTION_NUMBER,
     .offset = AT(label_smoothing),
     .fallback = "0",
     .argument = "X",
     .help = "share of the target spread over all classes",
     .minimum = 0,
     .maximum = 0.999,
     .identity = true},
    {.name = "precision",
     .type = FTH_OPTION_CHOICE,
     .offset = AT(precision),
     .fallback = "f32",
     .argument = "TYPE",
     .help = "type of the computation; weights are kept in f32 either way. auto: the device's fastest for the model",
     .choices = precisions,
     .identity = true},
    {.name = "strategy",
     .type = FTH_OPTION_TEXT,
     .offset = AT(strategy),
     .fallback = "single",
     .argument = "NAME",
     .help = "how steps are carried out: single, hogwild (workers that update one model without locks) or "
             "parameter-server (workers that send gradients to a server)",
     .identity = true},
    {.name = "hogwild-momentum",
     .type = FTH_OPTION_CHOICE,
     .offset = AT(hogwild_momentum),
     .fallback = "shared",
     .argument = "WHOSE",
     .help = "the optimizer's vectors: shared by all workers as the weights are, or each worker its own",
     .choices = momentums,
     .identity = true},

    {.name = "device",
     .type = FTH_OPTION_TEXT,
     .offset = AT(device),
     .fallback = "auto",
     .argument = "NAME",
     .help = "back end that computes: auto takes the fastest, cpu is always there",
     .group = "Where it runs"},
    {.name = "threads",
     .type = FTH_OPTION_INTEGER,
     .offset = AT(threads),
     .fallback = "0",
     .argument = "N",
     .help = "threads that compute; 0: one per core",
     .minimum = 0,
     .maximum = 4096},
    {.name = "workers",
     .type = FTH_OPTION_INTEGER,
     .offset = AT(workers),
     .fallback = "0",
     .argument = "N",
     .help = "hogwild: worker threads, each on one core; parameter-server: processes; 0: one per core",
     .minimum = 0,
     .maximum = 256},
    {.name = "processes",
     .type = FTH_OPTION_INTEGER,
     .offset = AT(processes),
     .fallback = "0",
     .argument = "N",
     .help = "hogwild: worker processes instead of threads; one that is killed is replaced",
     .minimum = 0,
     .maximum = 256},
    {.name = "worker-timeout",
     .type = FTH_OPTION_DURATION,
     .offset = AT(worker_timeout_s),
     .fallback = "10m",
     .argument = "TIME",
     .help = "hogwild: a worker that takes longer for a batch hangs: the run ends, or its process is replaced"},
    {.name = "server",
     .type = FTH_OPTION_TEXT,
     .offset = AT(server),
     .argument = "URL",
     .help = "parameter-server: whose worker this is (`farthing serve parameters`); without it a server and --workers "
             "are started here"},
    {.name = "worker",
     .type = FTH_OPTION_TEXT,
     .offset = AT(worker),
     .argument = "NAME",
     .help = "parameter-server: this worker's name there; made up unless given"},
    {.name = "compress",
     .type = FTH_OPTION_TEXT,
     .offset = AT(compress),
     .fallback = "none",
     .argument = "HOW",
     .help = "parameter-server: gradients travel as f16, bf16 or topk:0.01 (their largest 1 %); what is left out is "
             "added to the next",
     .check = check_compression},
    {.name = "share",
     .type = FTH_OPTION_TEXT,
     .offset = AT(share),
     .argument = "I/N",
     .help = "train on the I-th of N shares of every epoch: 1/2 and 2/2 are disjoint and together all of it",
     .check = check_data_share,
     .identity = true},
    {.name = "consistency",
     .type = FTH_OPTION_TEXT,
     .offset = AT(consistency),
     .fallback = "async",
     .argument = "HOW",
     .help = "parameter-server started here: sync, bounded:S or async"},
    {.name = "server-pin",
     .type = FTH_OPTION_TEXT,
     .offset = AT(server_pin),
     .argument = "sha256//...",
     .help = "parameter-server: the fingerprint of its key, which it printed; trusts that key and no other"},
    {.name = "server-ca",
     .type = FTH_OPTION_TEXT,
     .offset = AT(server_ca),
     .argument = "FILE",
     .help = "parameter-server: certificates to trust instead of the system's"},
    {.name = "server-timeout",
     .type = FTH_OPTION_DURATION,
     .offset = AT(server_timeout_s),
     .fallback = "2m",
     .argument = "TIME",
     .help = "parameter-server: how long a server that does not answer is tried again"},
    {.name = "loader-threads",
     .type = FTH_OPTION_INTEGER,
     .offset = AT(loader_threads),
     .fallback = "0",
     .argument = "N",
     .help = "threads that prepare batches; 0: chosen for you",
     .minimum = 0,
     .maximum = 256},
    /* Part of the identity: images to be kept are decoded whole, others at a reduced size, and pixels differ a little.
     */
    {.name = "decoded-cache",
     .type = FTH_OPTION_INTEGER,
     .offset = AT(decoded_cache_mb),
     .fallback = "0",
     .argument = "MB",
     .help = "image files: memory in which decoded images are kept; 0: each is decoded in every epoch",
     .minimum = 0,
     .maximum = 1e7,
     .identity = true},

    {.name = "runs",
     .type = FTH_OPTION_TEXT,
     .offset = AT(runs),
     .fallback = "runs",
     .argument = "FOLDER",
     .help = "folder in which each run gets its own",
     .group = "What is kept"},
    {.name = "name",
     .type = FTH_OPTION_TEXT,
     .offset = AT(name),
     .argument = "ID",
     .help = "name of the run; one is made up if none is given",
     .check = fth_record_check_id},
    {.name = "checkpoint-every",
     .type = FTH_OPTION_TEXT,
     .offset = AT(checkpoint_every),
     .fallback = "30s",
     .argument = "STEPS|TIME|auto",
     .help =
         "steps (200) or time (30s) between checkpoints; auto: from what a save costs and how often machines vanish",
     .check = check_checkpoint_every},
    {.name = "checkpoint-overhead",
     .type = FTH_OPTION_TEXT,
     .offset = AT(checkpoint_overhead),
     .fallback = "1%",
     .argument = "SHARE",
     .help = "the most of the time that --checkpoint-every auto lets saving take",
     .check = check_share},
    {.name = "keep",
     .type = FTH_OPTION_INTEGER,
     .offset = AT(keep),
     .fallback = "3",
     .argument = "N",
     .help = "checkpoints to keep, besides the best model",
     .minimum = 1,
     .maximum = 1e6},
    {.name = "keep-for",
     .type = FTH_OPTION_DURATION,
     .offset = AT(keep_for_s),
     .argument = "TIME",
     .help = "of those, only the ones not older than this (2d); the newest always stays"},
    {.name = "resume",
     .type = FTH_OPTION_OPTIONAL,
     .offset = AT(resume),
     .argument = "ID",
     .help = "carry on a run; without ID the newest unfinished one of this configuration, or start it"},
    {.name = "checkpoints",
     .type = FTH_OPTION_TEXT,
     .offset = AT(checkpoints),
     .argument = "URL",
     .help = "where the run lives, to survive this machine: s3://bucket/run, gs://, az://, or a shared folder; the "
             "same command anywhere carries it on",
     .group = "Machines that vanish"},
    {.name = "lease",
     .type = FTH_OPTION_TEXT,
     .offset = AT(lease),
     .fallback = "10s",
     .argument = "TIME|off",
     .help = "after so long without a sign of life another machine may take the run over",
     .check = check_lease},
    {.name = "watch",
     .type = FTH_OPTION_TEXT,
     .offset = AT(watch),
     .argument = "SOURCES",
     .help = "who announces that this machine goes: auto, none, aws, gcp, azure, file:PATH; auto with --checkpoints",
     .check = check_watch},
    {.name = "s3-endpoint",
     .type = FTH_OPTION_TEXT,
     .offset = AT(s3_endpoint),
     .argument = "URL",
     .help = "S3 server other than AWS: http://localhost:9000"},
    {.name = "s3-region", .type = FTH_OPTION_TEXT, .offset = AT(s3_region), .argument = "NAME", .help = "S3 region"},
    {.name = "s3-style",
     .type = FTH_OPTION_CHOICE,
     .offset = AT(s3_style),
     .fallback = "auto",
     .argument = "HOW",
     .help = "where the bucket's name goes in S3 requests: into the path or the host's name",
     .choices = s3_styles},
    {.name = "json", .type = FTH_OPTION_SWITCH, .offset = AT(json), .help = "print events as JSON, one a line"},

    {.name = "price",
     .type = FTH_OPTION_TEXT,
     .offset = AT(price),
     .argument = "USD",
     .help =
         "what this machine costs, in dollars an hour (0.526); found in the catalogue where a cloud says what it is",
     .check = check_usd,
     .group = "What it costs"},
    {.name = "prices",
     .type = FTH_OPTION_TEXT,
     .offset = AT(prices),
     .argument = "FILE",
     .help = "catalogue of prices; else FARTHING_PRICES, ~/.config/farthing/prices.yaml or the built-in examples"},
    {.name = "budget",
     .type = FTH_OPTION_TEXT,
     .offset = AT(budget),
     .argument = "USD",
     .help = "save and stop before the run, on all its machines, has cost more (5usd); a larger one carries it on",
     .check = check_usd},
};

const fth_option_table fth_train_option_table = {options, FTH_COUNT_OF(options), sizeof(fth_train_options)};
