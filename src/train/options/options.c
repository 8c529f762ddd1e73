/* The options of a training run, declared once; base/options.h says what the table is used for. How
 * texts that are more than a number are read is in option_values.c, what must hold between options
 * in options_check.c.
 *
 * `identity` marks what makes two runs different runs: whatever changes the resulting weights or
 * how long they are trained. Where a run is kept, how often it is saved and how many threads
 * compute it do not.
 *
 * `fixed` marks what a run cannot change once it has begun: a position is counted in batches of one
 * size over one data set, and tensors fit one model and optimizer.
 *
 * `commands` says which commands take an option, and `side` where it counts when a parameter server
 * has the model (see train_options.h). Flags, help, completion, manual pages and docs/OPTIONS.md
 * follow from the table; nothing else lists options by name. */
#include "base/size.h"
#include "train/options/precision.h"
#include "train/setup/text_data.h"
#include "train/setup/usual.h"
#include "train/train_internal.h"

/* In the order of the enums of train_options.h. */
const char *const fth_best_measure_names[] = {"loss", "accuracy", NULL};
const char *const fth_validation_split_names[] = {FTH_AUTO, "stratified", "random", NULL};
static const char *const batch_norms[] = {"worker", "synchronized", NULL};
static const char *const rate_scalings[] = {"none", "sqrt", "linear", NULL};
static const char *const wires[] = {"f32", "f16", "bf16", NULL};
static const char *const momentums[] = {"shared", "worker", NULL};
static const char *const recomputes[] = {"none", "layers", "auto", NULL};

#define ROW(flag, kind, member) .name = flag, .type = FTH_OPTION_##kind, .offset = offsetof(fth_train_options, member)

static const fth_option options[] = {
    {ROW("model", TEXT, model), .fallback = "auto", .argument = "NAME", .list = fth_model_choice,
     .help = "network; `farthing models` lists them; or the path of one that PyTorch exported, net.pt2. auto: that of "
             "--weights, else by the data: resnet18 for photos, "
             "resnet18-small for small pictures, mnist-cnn for digits, bert-mini for text",
     .identity = true, .group = "Model and data", .fixed = true,
     .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE | FTH_FOR_SERVE},
    {ROW("stem", CHOICE, stem), .fallback = "standard", .argument = "KIND",
     .help = "of a ResNet: small is a 3×3 convolution without pooling, for small pictures; --model resnet18-small is "
             "the same",
     .choices = fth_model_stems, .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE | FTH_FOR_SERVE},
    {ROW("data", TEXT, data.address), .address = true, .fallback = "digits", .argument = "NAME|FOLDER",
     .list = fth_dataset_choice,
     .help =
         "digits, shapes or shapes-20 (built in); a folder, archive, bucket (s3://, gs://, az://) or URL of JPEG and "
         "PNG files in class folders; a folder of MNIST idx or CIFAR-10 binary files; text as a .csv, .tsv or .jsonl "
         "file, or a folder or bucket with train.csv and test.csv; or batches://HOST:PORT/NAME of `farthing serve "
         "batches`",
     .identity = true, .fixed = true, .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE | FTH_FOR_SERVE},
    /* Not part of the identity: the weights that are trained are the same. */
    {ROW("test", TEXT, data.test), .address = true, .argument = "NAME|FOLDER",
     .help =
         "data that is measured once, with the best model, when the run ends: its test or validation part, else all "
         "of it; if not given, the test/ part of a folder that has train/ and val/ too",
     .commands = FTH_FOR_TRAIN, .side = FTH_SIDE_NONE},
    {ROW("weights", TEXT, weights), .address = true, .argument = "FILE[:KEY]",
     .help = "weights to start from, or to measure: safetensors, PyTorch's .pth (FILE:KEY for a dictionary inside), a "
             "folder as on the Hugging Face hub, or a run",
     .identity = true, .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE | FTH_FOR_SERVE, .side = FTH_SIDE_SERVER},
    {ROW("reinitialize", SWITCH, reinitialize),
     .help = "a network that PyTorch exported (.pt2) starts from new weights, drawn as PyTorch would, instead of those "
             "in its file",
     .identity = true, .optional_identity = true, .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE, .side = FTH_SIDE_SERVER},
    {ROW("freeze", TEXT, freeze), .argument = "PATTERNS",
     .help = "layers or parameters that are not trained: conv1,layer1.*,*.bias", .identity = true, .fixed = true,
     .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE},
    {ROW("freeze-statistics", SWITCH, freeze_statistics),
     .help = "frozen batch norms keep their running statistics and use them in training (PyTorch's eval mode)",
     .identity = true, .commands = FTH_FOR_TRAIN},
    {ROW("augment", CHOICE, images.augment), .fallback = "none", .argument = "HOW",
     .help = "vary training images in memory: flip (left-right), crop (padded, at random) or both; image files and all "
             "else: --transform",
     .list = fth_augmentation_choice, .identity = true, .commands = FTH_FOR_TRAIN},
    {ROW("image-size", INTEGER, images.size), .fallback = "0", .argument = "N",
     .help = "side of the images that the model gets; 0: their own if they are all alike, else 224", .minimum = 0,
     .maximum = 4096, .identity = true, .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE | FTH_FOR_SERVE},
    {ROW("transform", TEXT, images.transform), .argument = "STEPS",
     .help = "how training images are varied and brought to size: random-resized-crop=224,flip",
     .check = fth_transform_check, .identity = true, .commands = FTH_FOR_TRAIN},
    {ROW("validation-transform", TEXT, images.validation_transform), .argument = "STEPS",
     .help = "how images are brought to size for validation: resize=256,centre-crop=224", .check = fth_transform_check,
     .identity = true, .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE | FTH_FOR_SERVE},
    {ROW("normalize", TEXT, images.normalize), .argument = "HOW", .list = fth_normalization_choice,
     .help = "mean and deviation of pixels in 0..1, by channel: imagenet, cifar, mnist, none or MEAN/STD (0.5/0.5); "
             "else as the weights file says, or as is usual for the data",
     .check = fth_normalization_check, .identity = true, .optional_identity = true,
     .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE | FTH_FOR_SERVE},
    {ROW("max-bad-images", NUMBER, images.max_bad), .fallback = "0.001", .argument = "X",
     .help = "image files: share that may be unreadable (0.1%) and is passed over; more is an error", .minimum = 0,
     .maximum = 1, .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE},
    {ROW("validation-fraction", NUMBER, data.validation_fraction), .fallback = "0.1", .argument = "X",
     .help = "share held out for validation where the data set has no such part (0.1 or 10%)", .minimum = 1e-6,
     .maximum = 0.99, .identity = true, .fixed = true, .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE | FTH_FOR_SERVE},
    {ROW("validation-split", ENUM, data.validation_split), .fallback = FTH_AUTO, .argument = "HOW",
     .help = "which samples are held out: stratified, the same share of every class; or random. auto: stratified, and "
             "for a run that is continued as it began",
     .choices = fth_validation_split_names, .identity = true, .optional_identity = true, .fixed = true,
     .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE | FTH_FOR_SERVE},
    {ROW("seed", INTEGER, seed), .fallback = "1", .argument = "N",
     .help = "seed of initial weights, order of samples, augmentation, dropout, and of which samples are held out",
     .minimum = 0, .maximum = 9007199254740991.0, .identity = true,
     .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE | FTH_FOR_SERVE},

    {ROW("vocab", TEXT, text.vocab), .argument = "FILE|FOLDER",
     .help = "tokenizer: a tokenizer.json or vocab.txt, or a folder with one; if not given, that of --weights, or one "
             "learned from the training texts",
     .identity = true, .optional_identity = true, .group = "Text",
     .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE | FTH_FOR_SERVE},
    {ROW("vocab-size", INTEGER, text.vocab_size), .fallback = "8192", .argument = "N",
     .help = "size of a learned vocabulary, in tokens", .minimum = 16, .maximum = 1e6, .identity = true,
     .optional_identity = true, .fixed = true, .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE},
    {ROW("max-length", INTEGER, text.max_length), .fallback = "128", .argument = "N",
     .help = "longest sample in tokens, [CLS] and [SEP] included; longer texts are cut", .minimum = 3, .maximum = 65536,
     .identity = true, .optional_identity = true, .fixed = true,
     .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE | FTH_FOR_SERVE},
    {ROW("text-column", TEXT, text.text_column), .argument = "NAME|N",
     .help = "column of the text, by name or number from 1; several, separated by commas, are joined; if not given, "
             "found by its usual names: text, sentence, ...",
     .identity = true, .optional_identity = true, .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE | FTH_FOR_SERVE},
    {ROW("pair-column", TEXT, text.pair_column), .argument = "NAME|N", .help = "column of the second text of a pair",
     .identity = true, .optional_identity = true, .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE | FTH_FOR_SERVE},
    {ROW("label-column", TEXT, text.label_column), .argument = "NAME|N",
     .help = "column of the label; several, separated by commas, for regression, or of 0 and 1 for multi-label",
     .identity = true, .optional_identity = true, .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE | FTH_FOR_SERVE},
    {ROW("task", ENUM, text.task), .fallback = "classes", .argument = "KIND",
     .help =
         "what labels of text are: one class of several, numbers (regression), or any of several (multi-label); those "
         "of images are classes",
     .choices = fth_task_names, .identity = true, .optional_identity = true, .fixed = true,
     .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE | FTH_FOR_SERVE},
    {ROW("by-length", SWITCH, text.by_length),
     .help = "put texts of similar length into the same batch, so that steps take more even time and memory",
     .identity = true, .optional_identity = true, .commands = FTH_FOR_TRAIN},
    /* Not part of the identity: every number is the same. */
    {ROW("recompute", ENUM, recompute), .fallback = "auto", .argument = "WHAT",
     .help =
         "compute layers again for their gradients instead of keeping their results: less memory, about a quarter more "
         "time; auto: only where training would not fit otherwise",
     .choices = recomputes, .commands = FTH_FOR_TRAIN},

    {ROW("epochs", INTEGER, limits.epochs), .fallback = "0", .argument = "N",
     .help = "stop after N passes over the data, a server after as many samples from its workers; with no limit at all "
             "train stops after 3, and a server serves on",
     .minimum = 0, .maximum = 1e9, .identity = true, .group = "How long", .limit = true,
     .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE},
    {ROW("steps", INTEGER, limits.steps), .fallback = "0", .argument = "N",
     .help = "stop after N updates of the weights", .minimum = 0, .maximum = 1e12, .identity = true, .limit = true,
     .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE},
    {ROW("for", DURATION, limits.for_s), .argument = "TIME",
     .help = "stop after this much training time (90s, 10m, 2h), resumed parts included", .identity = true,
     .limit = true, .commands = FTH_FOR_TRAIN},
    {ROW("until", TEXT, limits.until), .argument = "GOAL",
     .help = "stop when validation reaches accuracy=0.99 or loss=0.05", .check = fth_option_check_until,
     .identity = true, .limit = true, .commands = FTH_FOR_TRAIN, .side = FTH_SIDE_ONE_WORKER},
    {ROW("validate-every", PERIOD, validate_every), .fallback = "1", .argument = "EPOCHS|Nsteps",
     .help = "epochs between validations (2, 0.5, 25%), or steps (200steps)", .maximum = 1e9, .identity = true,
     .commands = FTH_FOR_TRAIN, .side = FTH_SIDE_OWN_RUN},
    /* Not part of the identity: the weights that are trained are the same. A resume keeps the run's
     * own choice. */
    {ROW("best-by", ENUM, saving.best_by), .fallback = "loss", .argument = "WHAT",
     .help = "keep in best.safetensors the model of the lowest validation loss, or of the highest accuracy",
     .choices = fth_best_measure_names, .commands = FTH_FOR_TRAIN},

    {ROW("batch", INTEGER, batch), .alias = "batch-size", .fallback = "64", .argument = "N",
     .help = "samples per batch; all of them where there are fewer", .minimum = 1, .maximum = 1e6, .identity = true,
     .group = "Method", .fixed = true, .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE | FTH_FOR_SERVE},
    {ROW("batch-per-worker", INTEGER, peers.batch_per_worker), .fallback = "0", .argument = "N",
     .help =
         "data-parallel: instead of --batch, N times the number of workers that the run begins with; it stays so when "
         "workers come and go",
     .minimum = 0, .maximum = 1e6, .identity = true, .optional_identity = true, .fixed = true,
     .commands = FTH_FOR_TRAIN, .side = FTH_SIDE_NONE},
    {ROW("optimizer", CHOICE, optimizer.name), .fallback = "auto", .argument = "NAME",
     .help = "rule of the update; auto: sgd, and for text adamw at a learning rate of 5e-4, or 5e-5 with --weights",
     .list = fth_optimizer_choice, .identity = true, .fixed = true, .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE,
     .side = FTH_SIDE_SERVER},
    {ROW("lr", NUMBER, optimizer.lr), .alias = "learning-rate", .fallback = "0", .argument = "X",
     .help = "learning rate; 0: what is usual for the optimizer", .minimum = 0, .maximum = 1e38, .identity = true,
     .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE, .side = FTH_SIDE_SERVER},
    {ROW("scale-lr", ENUM, optimizer.scale_lr), .fallback = "none", .argument = "HOW",
     .help = "data-parallel: multiply the learning rate by the number of workers that the run begins with, or by its "
             "square root",
     .choices = rate_scalings, .identity = true, .optional_identity = true, .fixed = true, .commands = FTH_FOR_TRAIN,
     .side = FTH_SIDE_NONE},
    {ROW("momentum", NUMBER, optimizer.momentum), .fallback = "0.9", .argument = "X", .help = "momentum of sgd",
     .minimum = 0, .maximum = 0.999999, .identity = true, .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE,
     .side = FTH_SIDE_SERVER},
    {ROW("nesterov", SWITCH, optimizer.nesterov), .help = "Nesterov's momentum in sgd", .identity = true,
     .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE, .side = FTH_SIDE_SERVER},
    {ROW("weight-decay", NUMBER, optimizer.weight_decay), .fallback = "0", .argument = "X",
     .help = "weight decay: added to the gradient in sgd, decoupled in adamw", .minimum = 0, .maximum = 1e6,
     .identity = true, .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE, .side = FTH_SIDE_SERVER},
    {ROW("no-decay", TEXT, optimizer.no_decay), .argument = "PATTERNS",
     .help =
         "parameters without weight decay, such as *.bias,*LayerNorm*; none: all decay; if not given, biases and norms "
         "of text models",
     .identity = true, .optional_identity = true, .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE, .side = FTH_SIDE_SERVER},
    {ROW("layer-decay", NUMBER, optimizer.layer_decay), .fallback = "1", .argument = "X",
     .help = "text models: each layer learns at X times the rate of the layer above it", .minimum = 1e-6, .maximum = 1,
     .identity = true, .optional_identity = true, .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE, .side = FTH_SIDE_SERVER},
    {ROW("beta1", NUMBER, optimizer.beta1), .fallback = "0.9", .argument = "X", .help = "decay of adamw's first moment",
     .minimum = 0, .maximum = 0.9999999, .identity = true, .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE,
     .side = FTH_SIDE_SERVER},
    {ROW("beta2", NUMBER, optimizer.beta2), .fallback = "0.999", .argument = "X",
     .help = "decay of adamw's second moment", .minimum = 0, .maximum = 0.9999999, .identity = true,
     .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE, .side = FTH_SIDE_SERVER},
    {ROW("epsilon", NUMBER, optimizer.epsilon), .fallback = "1e-8", .argument = "X",
     .help = "added to adamw's denominator", .minimum = 1e-30, .maximum = 1, .identity = true,
     .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE, .side = FTH_SIDE_SERVER},
    {ROW("schedule", CHOICE, schedule.name), .alias = "lr-schedule", .fallback = "constant", .argument = "NAME",
     .help = "how the learning rate changes", .list = fth_schedule_choice, .identity = true,
     .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE, .side = FTH_SIDE_SERVER},
    {ROW("warmup", AMOUNT, schedule.warmup), .fallback = "0", .argument = "STEPS|N%",
     .help = "raise the learning rate from 0 over this many steps first, or over a share of all steps (6%)",
     .minimum = 0, .maximum = 1e9, .identity = true, .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE,
     .side = FTH_SIDE_SERVER},
    {ROW("decay-every", INTEGER, schedule.decay_every), .fallback = "30", .argument = "EPOCHS",
     .help = "epochs between decays of schedule step", .minimum = 1, .maximum = 1e9, .identity = true,
     .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE, .side = FTH_SIDE_SERVER},
    {ROW("decay-factor", NUMBER, schedule.decay_factor), .fallback = "0.1", .argument = "X",
     .help = "what each decay of schedule step multiplies the learning rate by", .minimum = 1e-9, .maximum = 1,
     .identity = true, .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE, .side = FTH_SIDE_SERVER},
    {ROW("clip", NUMBER, optimizer.clip), .fallback = "0", .argument = "NORM",
     .help = "scale gradients down to this norm where they exceed it; 0: never", .minimum = 0, .maximum = 1e30,
     .identity = true, .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE, .side = FTH_SIDE_SERVER},
    {ROW("accumulate", INTEGER, optimizer.accumulate), .fallback = "1", .argument = "BATCHES",
     .help = "batches whose gradients make one update", .minimum = 1, .maximum = 1e6, .identity = true, .fixed = true,
     .commands = FTH_FOR_TRAIN},
    {ROW("label-smoothing", NUMBER, optimizer.label_smoothing), .fallback = "0", .argument = "X",
     .help = "share of the target spread over all classes (0.1 or 10%)", .minimum = 0, .maximum = 0.999,
     .identity = true, .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE},
    {ROW("precision", ENUM, precision), .fallback = "f32", .argument = "TYPE",
     .help = "type of the computation; weights are kept in f32 either way. auto: bf16 on a GPU, f32 on a CPU",
     .list = fth_precision_choice, .identity = true, .commands = FTH_FOR_TRAIN | FTH_FOR_EVALUATE},
    {ROW("strategy", TEXT, strategy), .fallback = "single", .argument = "NAME", .help = "how steps are carried out",
     .identity = true, .commands = FTH_FOR_TRAIN},
    {ROW("batch-norm", ENUM, peers.batch_norm), .fallback = "worker", .argument = "WHOSE",
     .help = "data-parallel: normalize by the statistics of each worker's part of a batch, or of the whole batch "
             "(PyTorch's SyncBatchNorm)",
     .choices = batch_norms, .identity = true, .optional_identity = true, .commands = FTH_FOR_TRAIN,
     .side = FTH_SIDE_NONE},
    {ROW("hogwild-momentum", ENUM, peers.hogwild_momentum), .fallback = "shared", .argument = "WHOSE",
     .help = "the optimizer's vectors: shared by all workers as the weights are, or each worker its own",
     .choices = momentums, .identity = true, .commands = FTH_FOR_TRAIN, .side = FTH_SIDE_NONE},

    {ROW("wire", ENUM, peers.wire), .fallback = "f32", .argument = "TYPE",
     .help = "data-parallel: type in which gradients travel between workers; they are summed in f32", .choices = wires,
     .identity = true, .optional_identity = true, .commands = FTH_FOR_TRAIN, .side = FTH_SIDE_NONE},

    {ROW("device", TEXT, device), .fallback = "auto", .argument = "NAME",
     .help = "back end that computes: auto takes the fastest, cpu is always there", .group = "Where it runs",
     .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY | FTH_FOR_EVALUATE},
    {ROW("threads", INTEGER, threads), .fallback = "0", .argument = "N",
     .help = "threads that compute; 0: one per core", .minimum = 0, .maximum = 4096,
     .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY | FTH_FOR_EVALUATE | FTH_FOR_SERVE},
    {ROW("workers", INTEGER, peers.workers), .fallback = "0", .argument = "N",
     .help = "hogwild: worker threads, each on one core; parameter-server: processes; 0: one per core", .minimum = 0,
     .maximum = 256, .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY, .side = FTH_SIDE_SERVER},
    {ROW("processes", INTEGER, peers.processes), .fallback = "0", .argument = "N",
     .help = "hogwild: worker processes instead of threads; one that is killed is replaced", .minimum = 0,
     .maximum = 256, .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY, .side = FTH_SIDE_NONE},
    {ROW("worker-timeout", DURATION, peers.worker_timeout_s), .fallback = "10m", .argument = "TIME",
     .help = "hogwild: a worker that takes longer for a batch hangs: the run ends, or its process is replaced",
     .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY, .side = FTH_SIDE_NONE},
    {ROW("transport", TEXT, peers.transport), .fallback = "auto", .argument = "NAME",
     .help =
         "data-parallel: how workers exchange gradients; auto: through memory on one machine, gloo between machines",
     .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY, .side = FTH_SIDE_NONE},
    {ROW("bucket", TEXT, peers.bucket), .fallback = "auto", .argument = "SIZE",
     .help =
         "data-parallel: gradients that travel together while others are computed (512K, 4M); auto: by the measured "
         "speed of the exchange",
     .check = fth_option_check_bucket, .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY, .side = FTH_SIDE_NONE},
    {ROW("shard-update", SWITCH, peers.shard_update),
     .help =
         "data-parallel: each worker updates a part of the weights and the next worker's, and keeps the optimizer's "
         "state of these alone",
     .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY, .side = FTH_SIDE_NONE},
    {ROW("server", TEXT, server.url), .address = true, .argument = "URL",
     .help = "parameter-server: whose worker this is (`farthing serve parameters`); without it a server and --workers "
             "are started here",
     .commands = FTH_FOR_TRAIN, .side = FTH_SIDE_ONE_WORKER},
    {ROW("worker", TEXT, server.worker), .argument = "NAME",
     .help = "parameter-server: this worker's name there; made up unless given", .commands = FTH_FOR_TRAIN,
     .side = FTH_SIDE_ONE_WORKER},
    {ROW("compress", TEXT, server.compress), .fallback = "none", .argument = "HOW",
     .help = "parameter-server: how gradients travel; what is left out is added to the next",
     .commands = FTH_FOR_TRAIN},
    {ROW("share", TEXT, data.share), .argument = "I/N",
     .help = "train on the I-th of N shares of every epoch: 1/2 and 2/2 are disjoint and together all of it",
     .check = fth_option_check_data_share, .identity = true, .commands = FTH_FOR_TRAIN, .side = FTH_SIDE_ONE_WORKER},
    {ROW("consistency", TEXT, server.consistency), .fallback = "async", .argument = "HOW",
     .help = "parameter-server started here: which gradients make a step", .commands = FTH_FOR_TRAIN,
     .side = FTH_SIDE_SERVER},
    {ROW("server-pin", TEXT, server.pin), .argument = "sha256//...",
     .help = "parameter-server: the fingerprint of its key, which it printed; trusts that key and no other",
     .commands = FTH_FOR_TRAIN},
    {ROW("server-ca", TEXT, server.ca), .argument = "FILE",
     .help = "parameter-server: certificates to trust instead of the system's", .commands = FTH_FOR_TRAIN},
    {ROW("server-timeout", DURATION, server.timeout_s), .fallback = "2m", .argument = "TIME",
     .help = "parameter-server: how long a server that does not answer is tried again", .commands = FTH_FOR_TRAIN},
    {ROW("loader-threads", INTEGER, data.loader_threads), .fallback = "0", .argument = "N",
     .help = "threads that prepare batches; 0: chosen for you", .minimum = 0, .maximum = 256,
     .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY | FTH_FOR_EVALUATE},
    /* Part of the identity: images to be kept are decoded whole, others at a reduced size, and
     * pixels differ a little. */
    {ROW("decoded-cache", INTEGER, images.decoded_cache_mb), .fallback = "0", .argument = "MB",
     .help = "image files: memory in which decoded images are kept; 0: each is decoded in every epoch", .minimum = 0,
     .maximum = 1e7, .identity = true, .commands = FTH_FOR_TRAIN},
    {ROW("data-cache", TEXT, data.cache), .argument = "SIZE",
     .help = "data in a bucket: disk space in which images are kept once they were fetched: 500m, 100g; else none",
     .check = fth_size_check, .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY | FTH_FOR_EVALUATE},
    {ROW("data-cache-folder", TEXT, data.cache_folder), .argument = "FOLDER",
     .help = "where, also for unpacked files; else objects/ and unpacked/ in $FARTHING_CACHE or ~/.cache/farthing",
     .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY | FTH_FOR_EVALUATE},

    {ROW("runs", TEXT, saving.runs), .fallback = "runs", .argument = "FOLDER",
     .help = "folder in which each run gets its own", .check = fth_record_check_runs_folder, .group = "Runs and output",
     .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY | FTH_FOR_EVALUATE | FTH_FOR_SERVE},
    {ROW("name", TEXT, saving.name), .argument = "ID", .help = "name of the run; one is made up if none is given",
     .check = fth_record_check_id, .commands = FTH_FOR_TRAIN | FTH_FOR_SERVE},
    {ROW("checkpoint-every", TEXT, saving.every), .fallback = "30s", .argument = "STEPS|TIME|auto",
     .help = "steps (200) or time (30s) between checkpoints; auto: from what a save costs and how often machines "
             "vanish, and every minute for a server, whose log has what comes in between",
     .check = fth_option_check_checkpoint_every, .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY | FTH_FOR_SERVE},
    {ROW("checkpoint-overhead", TEXT, saving.overhead), .fallback = "1%", .argument = "SHARE",
     .help = "the most of the time that --checkpoint-every auto lets saving take", .check = fth_option_check_share,
     .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY},
    {ROW("keep", INTEGER, saving.keep), .fallback = "3", .argument = "N",
     .help = "checkpoints to keep, besides the best model", .minimum = 1, .maximum = 1e6,
     .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY, .side = FTH_SIDE_OWN_RUN},
    {ROW("keep-for", DURATION, saving.keep_for_s), .argument = "TIME",
     .help = "of those, only the ones not older than this (2d); the newest always stays",
     .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY, .side = FTH_SIDE_OWN_RUN},
    {ROW("resume", OPTIONAL, resume), .argument = "ID",
     .help = "continue a run; without ID, the newest unfinished one of this configuration, or start it; without other "
             "options, the newest unfinished one of any",
     .commands = FTH_FOR_TRAIN},
    {ROW("dry-run", SWITCH, dry_run),
     .help = "check everything, print the whole configuration as a run file, and leave nothing behind",
     .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY},
    {ROW("json", SWITCH, json), .help = "print events as JSON, one a line",
     .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY | FTH_FOR_EVALUATE},
    {ROW("per-class", SWITCH, per_class),
     .help = "a table of accuracy (recall), precision and F1 of each class; without being asked for up to 20 classes",
     .commands = FTH_FOR_EVALUATE},
    {ROW("confusion", OPTIONAL, confusion), .argument = "FILE.csv",
     .help = "confusion matrix of true and predicted classes, or the most frequent mistakes where it is too wide or "
             "has more "
             "than 20 classes; with FILE.csv, the matrix into that file",
     .check = fth_option_check_confusion, .commands = FTH_FOR_EVALUATE},
    {ROW("checkpoints", TEXT, store.checkpoints), .address = true, .argument = "URL|FOLDER",
     .help = "where the run lives, to survive this machine: s3://bucket/run, gs://, az://, or a shared folder; the "
             "same command anywhere continues it",
     .group = "Preempted and lost machines", .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY, .side = FTH_SIDE_NONE},
    {ROW("lease", TEXT, store.lease), .fallback = "10s", .argument = "TIME|off",
     .help = "after so long without a sign of life another machine may take the run over",
     .check = fth_option_check_lease, .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY},
    {ROW("watch", TEXT, store.watch), .argument = "SOURCES",
     .help = "who announces that this machine goes: auto, none, aws, gcp, azure, file:PATH; auto with --checkpoints",
     .check = fth_option_check_watch, .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY, .side = FTH_SIDE_OWN_RUN},
    {ROW("s3-endpoint", TEXT, store.s3_endpoint), .check = fth_address_check_plain, .argument = "URL",
     .help = "S3 server other than AWS: http://localhost:9000", .group = "Stores",
     .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY | FTH_FOR_EVALUATE},
    {ROW("s3-region", TEXT, store.s3_region), .argument = "NAME", .help = "S3 region",
     .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY | FTH_FOR_EVALUATE},
    {ROW("s3-style", CHOICE, store.s3_style), .fallback = "auto", .argument = "HOW",
     .help = "where the bucket's name goes in S3 requests: into the path or the host's name", .choices = fth_s3_styles,
     .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY | FTH_FOR_EVALUATE},

    {ROW("price", TEXT, price), .argument = "USD",
     .help =
         "what this machine costs, in dollars an hour (0.526); found in the catalogue where a cloud says what it is",
     .check = fth_option_check_usd, .group = "What it costs", .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY,
     .side = FTH_SIDE_OWN_RUN},
    {ROW("prices", TEXT, prices), .argument = "FILE",
     .help = "catalogue of prices; else FARTHING_PRICES, ~/.config/farthing/prices.yaml or the built-in examples",
     .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY, .side = FTH_SIDE_OWN_RUN},
    {ROW("budget", TEXT, limits.budget), .argument = "USD",
     .help = "save and stop before the run, on all its machines, has cost more (5usd); a larger one continues it",
     .check = fth_option_check_usd, .commands = FTH_FOR_TRAIN | FTH_FOR_STANDBY, .side = FTH_SIDE_ONE_WORKER},
};

static const char *const commands[] = {"train", "standby", "evaluate", "serve parameters", NULL}; /* by bit */

const fth_option_table fth_train_option_table = {.options = options,
                                                 .count = FTH_COUNT_OF(options),
                                                 .struct_size = sizeof(fth_train_options),
                                                 .commands = commands,
                                                 .view = {.command = FTH_FOR_TRAIN}};
