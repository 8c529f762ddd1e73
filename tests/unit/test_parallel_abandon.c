/* A notice that is too short for the step under way: the process ends without that step, and what
 * there is to save is in the store by then, the best model too. Abandoning ends a process, so this
 * is a program of its own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "parallel/parallel.h"
#include "train/run/run_store.h"

static char folder[200];
static fth_stop stop = FTH_STOP_INITIALIZER;

static void leave(int code)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0)
        code = 1;
    fflush(stderr);
    _exit(code);
}

/* The first step, after which the model is validated, takes six seconds; the second is told that
 * five are left. */
static fth_status step(void *state, const fth_batch *batch, double learning_rate, fth_step_result *result)
{
    const fth_strategy *single = NULL;
    fth_status status = fth_strategy_find(fth_strategies, "single", &single);
    if (batch->number == 1) {
        fth_stop_ask(&stop, FTH_STOP_PREEMPTION, 5, "test", "the machine goes");
        sleep(60);
    }
    if (status == FTH_OK)
        status = single->step(state, batch, learning_rate, result);
    sleep(6);
    return status;
}

static bool is_in_store(fth_store *store, const char *key)
{
    fth_store_object object = {0};
    bool found = false;
    fth_status status = fth_store_stat(store, key, &object, &found);
    fth_store_object_release(&object);
    if (status != FTH_OK || !found)
        fprintf(stderr, "%s is not in the store\n", key);
    return status == FTH_OK && found;
}

static void on_abandon(void *context, const char *message)
{
    fth_train_options *options = context;
    fth_store *store = NULL;
    char *lease = NULL;
    size_t size = 0;
    fprintf(stderr, "abandoned: %s\n", message);
    bool good = fth_store_open(options->store.checkpoints, NULL, &store) == FTH_OK &&
                is_in_store(store, "best/step-000000000001-f000001.safetensors") &&
                is_in_store(store, "events/000001.jsonl") &&
                fth_store_get(store, "lease.json", 1 << 20, &lease, &size, NULL) == FTH_OK && lease &&
                strstr(lease, "\"owner\":\"\"");
    fprintf(stderr, "lease: %s\n", lease ? lease : "none");
    leave(good ? 0 : 1);
}

int main(void)
{
    fth_train_options options;
    fth_train_outcome outcome;
    fth_strategy slow;
    const fth_strategy *single = NULL;
    const char *base = getenv("TMPDIR"), *positional[8];
    int positional_count = 0;
    bool help;

    snprintf(folder, sizeof folder, "%s/fth-abandon-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder) || fth_strategy_find(fth_strategies, "single", &single) != FTH_OK ||
        fth_options_set_defaults(&fth_train_option_table, &options) != FTH_OK)
        return 1;
    slow = *single;
    slow.step = step;
    char *runs = fth_path_join(folder, "runs"), *store = fth_path_join(folder, "store");
    /* An epoch of one batch. */
    char *flags[] = {"--data",
                     "digits",
                     "--share",
                     "1/313",
                     "--batch",
                     "64",
                     "--model",
                     "linear",
                     "--epochs",
                     "3",
                     "--runs",
                     runs,
                     "--watch",
                     "none",
                     "--threads",
                     "1",
                     "--checkpoints",
                     store,
                     "--checkpoint-every",
                     "1000000"};
    if (fth_options_read_flags(&fth_train_option_table, &options, (int)(sizeof flags / sizeof *flags), flags,
                               positional, &positional_count, &help) != FTH_OK) {
        fprintf(stderr, "%s\n", fth_error_message());
        leave(1);
    }
    fth_train_observer observer = {.context = &options, .abandon = on_abandon};
    fth_status status = fth_train(&options, (const fth_strategy *const[]){&slow, NULL}, &observer, &stop, &outcome);
    fprintf(stderr, "training returned: %s\n", status == FTH_OK ? "fine" : fth_error_message());
    leave(1);
}
