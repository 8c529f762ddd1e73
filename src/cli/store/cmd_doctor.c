/* farthing doctor: checks that this machine has everything that a run needs, with advice if not. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/plugin.h"
#include "batches/client/client.h"
#include "cli/cli.h"
#include "cli/store/s3_flags.h"
#include "cli/store/store_cli.h"
#include "report/report.h"
#include "spot/spot.h"

enum { STORE_DEADLINE_S = 20 };

typedef struct doctor_options {
    fth_option_bits set;
    char *data, *runs;
    bool json;
    fth_s3_flags s3;
} doctor_options;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, doctor_options, member)
static const fth_option doctor_rows[] = {
    {ROW("data", TEXT, data), .address = true, .fallback = "digits", .argument = "NAME|FOLDER",
     .list = fth_dataset_choice, .help = "data set to try", .group = "Options"},
    {ROW("runs", TEXT, runs), .fallback = "runs", .argument = "FOLDER", .help = "folder for the runs",
     .check = fth_record_check_runs_folder},
    {ROW("json", SWITCH, json), .help = "print JSON, one object per check"},
    FTH_S3_FLAG_ROWS(offsetof(doctor_options, s3)),
};
static const fth_option_table doctor_table = FTH_OPTION_TABLE(doctor_rows, doctor_options);

/* "note": something optional is missing. */
typedef enum check_state { CHECK_OK, CHECK_NOTE, CHECK_WARN, CHECK_FAIL } check_state;
static const char *const state_names[] = {"ok", "note", "warn", "fail"};

typedef struct check_result {
    check_state state;
    char found[400];
    const char *advice; /* "" if nothing is to be done */
} check_result;

typedef struct check {
    const char *name;
    void (*run)(const doctor_options *options, check_result *result);
} check;

#define SAY(result, how, ...)                                                                                          \
    do {                                                                                                               \
        (result)->state = (how);                                                                                       \
        snprintf((result)->found, sizeof(result)->found, __VA_ARGS__);                                                 \
    } while (0)

static void check_version(const doctor_options *options, check_result *result)
{
    (void)options;
    SAY(result, CHECK_OK, "farthing " FTH_VERSION);
}

/* The value of a "name : value" line of a file in /proc; "" if there is none. */
static void read_proc(const char *path, const char *name, char *value, size_t size)
{
    char *line = NULL;
    size_t capacity = 0;
    *value = '\0';
    FILE *file = fopen(path, "r");
    while (file && !*value && getline(&line, &capacity, file) > 0) {
        char *colon = strchr(line, ':');
        if (strncmp(line, name, strlen(name)) == 0 && colon) {
            char *text = colon + 1 + strspn(colon + 1, " \t");
            text[strcspn(text, "\n")] = '\0';
            snprintf(value, size, "%s", text);
        }
    }
    free(line);
    if (file)
        fclose(file);
}

static void check_processor(const doctor_options *options, check_result *result)
{
    (void)options;
    fth_processor processor;
    fth_processor_describe(&processor);
    SAY(result, processor.has_wide_vectors ? CHECK_OK : CHECK_WARN, "%s; %s", processor.name,
        *processor.features ? processor.features : "no AVX2");
    if (!processor.has_wide_vectors)
        result->advice = "training works, but slowly: use a machine with AVX2 or AVX-512";
}

static void check_threads(const doctor_options *options, check_result *result)
{
    (void)options;
    SAY(result, CHECK_OK, "%d of %s may be used", fth_processors_usable(),
        FTH_COUNTED(fth_processors_online(), "core"));
}

static void check_memory(const doctor_options *options, check_result *result)
{
    (void)options;
    char total[64], available[64], total_text[64], available_text[64];
    read_proc("/proc/meminfo", "MemTotal", total, sizeof total);
    read_proc("/proc/meminfo", "MemAvailable", available, sizeof available);
    int64_t free_bytes = strtoll(available, NULL, 10) * 1024;
    fth_text_bytes(free_bytes, available_text, sizeof available_text);
    fth_text_bytes(strtoll(total, NULL, 10) * 1024, total_text, sizeof total_text);
    bool enough = free_bytes >= (int64_t)512 << 20;
    SAY(result, enough ? CHECK_OK : CHECK_WARN, "%s of %s available", available_text, total_text);
    if (!enough)
        result->advice = "close other programs, or train a small model with a small --batch";
}

/* ---- back ends ---- */

static void check_cpu(const doctor_options *options, check_result *result)
{
    (void)options;
    fth_device *device = NULL;
    const fth_status status = fth_device_open("cpu", &(fth_device_options){0}, &device);
    if (status == FTH_OK) {
        SAY(result, CHECK_OK, "%s", device->description);
    } else {
        SAY(result, CHECK_FAIL, "%s", fth_error_message());
        result->advice = status == FTH_INVALID
                             ? "correct the variable, or unset it" /* only environment variables can be invalid */
                             : "reinstall libdnnl, then run make again";
    }
    fth_device_close(device);
}

static void check_bf16(const doctor_options *options, check_result *result)
{
    (void)options;
    fth_device *device = NULL;
    fth_status status = fth_device_open("cpu", &(fth_device_options){0}, &device);
    if (status == FTH_OK)
        status = device->backend->check_precision(device, FTH_PRECISION_BF16);
    if (status == FTH_OK)
        SAY(result, CHECK_OK, "--precision bf16 can be used");
    else
        SAY(result, CHECK_NOTE, "%s", fth_error_message());
    fth_device_close(device);
}

static void check_plugin(const char *name, check_result *result)
{
    fth_device *device = NULL;
    if (fth_device_open(name, &(fth_device_options){0}, &device) == FTH_OK)
        SAY(result, CHECK_OK, "%s", device->description);
    else
        SAY(result, CHECK_NOTE, "%s", fth_error_message());
    fth_device_close(device);
}

static void check_reference(const doctor_options *options, check_result *result)
{
    (void)options;
    check_plugin("reference", result);
}

static void check_cuda(const doctor_options *options, check_result *result)
{
    (void)options;
    check_plugin("cuda", result);
}

/* Loads the plugin only: opening a transport needs peers. */
static void check_gloo(const doctor_options *options, check_result *result)
{
    char path[FTH_PLUGIN_PATH_SIZE];
    const void *symbol = NULL;
    (void)options;
    fth_status status = fth_plugin_find("gloo", path);
    if (status == FTH_OK)
        status = fth_plugin_load(path, "fth_transport_plugin", &symbol);
    if (status == FTH_OK) {
        SAY(result, CHECK_OK, "several machines can train one model together");
    } else {
        SAY(result, CHECK_NOTE, "%s", fth_error_message());
        result->advice = "to train on several machines: install libgloo-dev, then run make again";
    }
}

/* ---- files ---- */

/* The folder itself, or the nearest one above it that exists. free() it. */
static char *existing_folder(const char *path)
{
    char *folder = fth_format("%s", path);
    while (folder && !fth_folder_exists(folder)) {
        char *slash = strrchr(folder, '/');
        if (!slash || slash == folder) {
            const char *top = slash ? "/" : ".";
            free(folder);
            return fth_format("%s", top);
        }
        *slash = '\0';
    }
    return folder;
}

static void check_runs(const doctor_options *options, check_result *result)
{
    char *folder = existing_folder(options->runs), *probe = fth_path_join(folder, ".farthing-doctor-XXXXXX");
    struct statvfs facts;
    int file = probe ? mkstemp(probe) : -1;
    if (file < 0 || (fth_file_exists(options->runs) && !fth_folder_exists(options->runs))) {
        SAY(result, CHECK_FAIL, "cannot write to %s: %s", options->runs,
            file < 0 ? strerror(errno) : "it is not a folder");
        result->advice = "choose another folder with --runs";
    } else if (statvfs(folder, &facts) == 0) {
        char text[64];
        int64_t free_bytes = (int64_t)facts.f_bavail * (int64_t)facts.f_frsize;
        fth_text_bytes(free_bytes, text, sizeof text);
        bool enough = free_bytes >= (int64_t)1 << 30;
        SAY(result, enough ? CHECK_OK : CHECK_WARN, "%s can be written, %s free", options->runs, text);
        if (!enough)
            result->advice = "make room: checkpoints of larger models take gigabytes; --keep 1 keeps fewer";
    }
    if (file >= 0) {
        close(file);
        unlink(probe);
    }
    free(probe);
    free(folder);
}

/* False if the rest need not be checked. */
static bool check_batch_cache(const char *address, check_result *result)
{
    const double within_s = 1;
    bool reached = fth_batches_check(address, fth_deadline_in(within_s)) == FTH_OK;
    if (reached && fth_batches_check_direct(address, fth_deadline_in(within_s)) == FTH_OK)
        return true;
    SAY(result, reached ? CHECK_WARN : CHECK_FAIL, "%s", fth_error_message());
    result->advice = reached ? "give this machine access to the data, so that its jobs continue without the cache"
                             : "docs/batches.md describes how to start and reach a batch cache";
    return false;
}

static void check_data(const doctor_options *options, check_result *result)
{
    fth_dataset *dataset = NULL;
    const fth_store_options store = fth_s3_store_options(&options->s3, STORE_DEADLINE_S);
    fth_dataset_options how = {
        .seed = 1, .validation_fraction = 0.1, .threads = 1, .schemes = fth_batches_schemes, .store = &store};
    if (fth_batches_is_address(options->data) && !check_batch_cache(options->data, result))
        return;
    if (fth_dataset_open(options->data, &how, &dataset) == FTH_OK) {
        const fth_dataset_info *info = fth_dataset_get_info(dataset);
        if (info->modality == FTH_MODALITY_TEXT)
            SAY(result, CHECK_OK, "%s: %s + %s, tokens: %d at most, %s", info->name,
                FTH_COUNTED(info->count[FTH_TRAIN], NULL), FTH_COUNTED(info->count[FTH_VALIDATION], "text"),
                info->text.longest, FTH_COUNTED(info->classes, "class"));
        else
            SAY(result, CHECK_OK, "%s: %s + %s, %dx%dx%d, %s", info->name, FTH_COUNTED(info->count[FTH_TRAIN], NULL),
                FTH_COUNTED(info->count[FTH_VALIDATION], "image"), info->channels, info->height, info->width,
                FTH_COUNTED(info->classes, "class"));
    } else {
        SAY(result, CHECK_FAIL, "%s", fth_error_message());
        result->advice =
            fth_store_is_url(options->data)
                ? "list it with: farthing store ls; docs/data.md describes --data"
                : "use the built-in digits or shapes, or a folder with MNIST or CIFAR-10 files, images or text";
    }
    fth_dataset_free(dataset);
}

static void check_gnuplot(const doctor_options *options, check_result *result)
{
    (void)options;
    const char *folders = getenv("PATH");
    while (folders && *folders) {
        size_t length = strcspn(folders, ":");
        char *path = fth_format("%.*s/gnuplot", (int)length, folders);
        bool found = access(path, X_OK) == 0;
        if (found)
            SAY(result, CHECK_OK, "%s", path);
        free(path);
        if (found)
            return;
        folders += length + (folders[length] == ':');
    }
    SAY(result, CHECK_NOTE, "gnuplot is not installed");
    result->advice = "for report --chart: apt-get install gnuplot-nox";
}

/* The source of preemption notices for this machine. */
static void check_cloud(const doctor_options *options, check_result *result)
{
    (void)options;
    fth_machine_identity here;
    fth_machine_identify(1, &here);
    if (!*here.cloud) {
        SAY(result, CHECK_OK, "none: preemption notices can come as signals, or by --watch file:PATH");
    } else if (!*here.instance) {
        SAY(result, CHECK_WARN, "%s, but its metadata service does not answer this process", here.cloud);
        result->advice = "in a container on AWS: raise the hop limit, aws ec2 modify-instance-metadata-options "
                         "--http-put-response-hop-limit 2 --instance-id ID, or use the host's network";
    } else {
        SAY(result, CHECK_OK, "%s %s in %s%s%s; --watch auto listens for its notices", here.cloud, here.instance,
            here.region, *here.market ? ", " : "", here.market);
    }
}

static const check checks[] = {
    {"version", check_version},     {"processor", check_processor}, {"threads", check_threads},
    {"memory", check_memory},       {"cpu back end", check_cpu},    {"bf16", check_bf16},
    {"reference", check_reference}, {"cuda", check_cuda},           {"gloo", check_gloo},
    {"runs folder", check_runs},    {"data", check_data},           {"gnuplot", check_gnuplot},
    {"cloud", check_cloud},
};

/* ---- the whole ---- */

/* Prints a result, or keeps it for the table. */
static fth_status show(fth_table *table, const doctor_options *options, const char *name, const check_result *result,
                       bool *healthy)
{
    fth_status status = FTH_OK;
    const char *state = state_names[result->state];
    *healthy = *healthy && result->state != CHECK_FAIL;
    if (options->json) {
        fth_cli_print_json_new(json_pack("{s:s, s:s, s:s, s:s}", "check", name, "state", state, "found", result->found,
                                         "advice", result->advice));
        return FTH_OK;
    }
    FTH_TRY(fth_table_add_row(table, (const char *[]){name, state, result->found}));
    if (*result->advice) /* below what it is about, so that the table stays narrow */
        FTH_TRY(fth_table_add_row(table, (const char *[]){"", "->", result->advice}));
out:
    return status;
}

static const struct {
    const char *name;
    fth_status (*run)(fth_store *store, char *found, size_t size);
    const char *advice; /* if the store does not support it */
} store_checks[] = {
    {"store", fth_doctor_read_store, "single objects can be read; data sets and runs need a store that can list"},
    {"store: writing", fth_doctor_write_store, "usable for data, but not for runs and checkpoints"},
    {"store: conditions", fth_doctor_check_conditions,
     "runs there need --lease off; make sure that only one machine trains each"},
};

/* Stops after the first check that fails. */
static fth_status check_store(fth_table *table, const doctor_options *options, const char *address, bool *healthy)
{
    fth_status status = FTH_OK;
    fth_store *store = NULL;
    fth_store_options how = fth_s3_store_options(&options->s3, STORE_DEADLINE_S);
    fth_status found = fth_store_open(address, &how, &store);
    for (size_t i = 0; i < FTH_COUNT_OF(store_checks) && (i == 0 || found == FTH_OK || found == FTH_UNSUPPORTED); i++) {
        check_result result = {.advice = ""};
        if (store)
            found = store_checks[i].run(store, result.found, sizeof result.found);
        if (found == FTH_UNSUPPORTED) {
            SAY(&result, CHECK_WARN, "%s", fth_error_message());
            result.advice = store_checks[i].advice;
        } else if (found != FTH_OK) {
            SAY(&result, CHECK_FAIL, "%s", fth_error_message());
        }
        status = show(table, options, store_checks[i].name, &result, healthy);
        if (status != FTH_OK || (found == FTH_UNSUPPORTED && store_checks[i].run == fth_doctor_write_store))
            break; /* a read-only store has no conditional writes */
    }
    fth_store_free(store);
    return status;
}

static fth_status examine(const doctor_options *options, const fth_arguments *arguments, bool *healthy)
{
    fth_status status = FTH_OK;
    fth_table *table = NULL;
    *healthy = true;
    FTH_TRY(FTH_TABLE(&table, "check", "state", "found"));
    for (size_t i = 0; i < FTH_COUNT_OF(checks); i++) {
        check_result result = {.advice = ""};
        checks[i].run(options, &result);
        FTH_TRY(show(table, options, checks[i].name, &result, healthy));
    }
    for (int i = 0; i < arguments->count; i++)
        FTH_TRY(check_store(table, options, arguments->positional[i], healthy));
    if (!options->json) {
        fth_table_print(stdout, table);
        printf("\n%s\n", *healthy ? "ready to train" : "not ready: see what failed above");
    }
out:
    fth_table_free(table);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    bool healthy = true;
    (void)command;
    fth_exit_code code = fth_cli_exit_code(examine(options, arguments, &healthy));
    return healthy ? code : FTH_EXIT_FAILURE;
}

const fth_command fth_command_doctor = {
    .name = "doctor",
    .arguments = "[STORE...] [--data NAME|FOLDER] [--runs FOLDER]",
    .summary = "check this machine: back ends, memory, disk, data; and stores, by using them",
    .examples =
        (const fth_example[]){{"farthing doctor s3://bucket/runs", "test reading, writing and conditional writes"},
                              {0}},
    .table = &doctor_table,
    .run = run,
};
