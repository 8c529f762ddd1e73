/* --dry-run: what a training would do, found out by beginning it without a record, a lease or a
 * step. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/run/run_takeover.h"
#include "train/setup/setup.h"

/* The name of a new run is free, and its folder can be made. */
static fth_status check_place(const fth_train_options *options)
{
    fth_status status = FTH_OK;
    char *folder = *options->saving.name ? fth_path_join(options->saving.runs, options->saving.name)
                                         : fth_format("%s", options->saving.runs);

    FTH_REQUIRE(folder, FTH_NO_MEMORY, "no memory for a path");
    FTH_REQUIRE(!*options->saving.name || !fth_record_exists(folder), FTH_INVALID,
                "there is a run %s already; continue it with --resume %s or choose another --name",
                options->saving.name, options->saving.name);
    const char *nearest = folder; /* of the folders that are there */
    while (access(nearest, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        char *slash = strrchr(folder, '/');
        nearest = slash ? folder : ".";
        if (!slash)
            break;
        slash[slash == folder] = '\0';
    }
    FTH_REQUIRE(fth_folder_exists(nearest), FTH_INVALID, "%s is not a folder: runs cannot be kept in %s", nearest,
                options->saving.runs);
    FTH_REQUIRE(access(nearest, W_OK | X_OK) == 0, FTH_IO, "%s cannot be written, and runs are to be in %s: %s",
                nearest, options->saving.runs, strerror(errno));

out:
    free(folder);
    return status;
}

static fth_status describe_run(const fth_run_selection *selection, fth_train_plan *plan)
{
    fth_status status = FTH_OK;
    fth_record_summary summary = {0};

    plan->action = FTH_PLAN_BEGIN_RUN;
    if (!selection->folder) {
        const char *id = selection->id ? selection->id : selection->options.saving.name;
        plan->id = *id ? fth_format("%s", id) : NULL;
        goto out;
    }
    FTH_TRY(fth_record_read(selection->folder, &summary));
    plan->action = selection->finished ? FTH_PLAN_NOTHING_LEFT : FTH_PLAN_RESUME_RUN;
    plan->id = fth_format("%s", summary.id);
    plan->step = summary.steps;
    plan->stored = json_incref(json_object_get(selection->run, "configuration"));

out:
    fth_record_release(&summary);
    return status;
}

static void describe_model(const fth_setup *setup, const fth_position *position, fth_train_plan *plan)
{
    const fth_dataset_info *data = fth_dataset_get_info(setup->dataset);
    plan->device = fth_format("%s", setup->device->description);
    plan->data = fth_format("%s", data->name);
    plan->text = data->modality == FTH_MODALITY_TEXT;
    plan->training_samples = data->count[FTH_TRAIN];
    plan->validation_samples = data->count[FTH_VALIDATION];
    plan->classes = data->classes;
    plan->parameters = fth_graph_trainable_count(fth_engine_graph(setup->engine));
    plan->batches_per_epoch = position->batches_per_epoch;
    plan->steps = position->total_steps;
}

/* Without a lease; of a run in a store the record is copied into `folder`. */
static fth_status look_for_run(const fth_train_options *asked, const char *folder, fth_run_selection *selection)
{
    fth_status status = FTH_OK;
    fth_run_store *run_store = NULL;

    if (!*asked->store.checkpoints)
        return fth_run_selection_find(asked, selection);
    FTH_TRY(fth_run_selection_prepare(asked, selection));
    FTH_TRY(fth_run_store_open(asked, &run_store));
    FTH_TRY(fth_stored_run_look(run_store, asked->standby, folder, selection));

out:
    fth_run_store_free(run_store);
    return status;
}

fth_status fth_train_check(const fth_train_options *options, const fth_strategy *const *strategies, fth_stop *stop,
                           fth_train_plan *plan)
{
    fth_status status = FTH_OK;
    fth_run_selection selection = {0};
    fth_setup setup = {0};
    fth_position position;
    fth_spending *spending = NULL;
    const fth_strategy *strategy = NULL;
    char *folder = NULL; /* for a copy of the record of a stored run */

    *plan = (fth_train_plan){0};
    FTH_TRY(fth_spending_create(&spending));
    if (*options->store.checkpoints)
        FTH_TRY(fth_folder_create_temporary(&folder));
    FTH_TRY(look_for_run(options, folder, &selection));
    FTH_TRY(fth_strategy_choose(strategies, &selection.options, &strategy));
    FTH_TRY(describe_run(&selection, plan));
    if (plan->action == FTH_PLAN_BEGIN_RUN)
        FTH_TRY(check_place(&selection.options));
    FTH_TRY(fth_setup_open(&selection, strategy, stop, spending, &setup, &position));
    if (plan->action == FTH_PLAN_BEGIN_RUN)
        FTH_TRY(fth_setup_load_weights(&setup, &position));
    FTH_TRY(fth_setup_prepare(&setup));
    describe_model(&setup, &position, plan);

out:
    fth_setup_release(&setup);
    fth_spending_free(spending);
    if (status == FTH_OK) {
        plan->options = selection.options; /* moved */
        selection.options = (fth_train_options){0};
    }
    fth_run_selection_release(&selection);
    if (folder)
        fth_record_remove_copy(folder);
    free(folder);
    return status;
}

void fth_train_plan_release(fth_train_plan *plan)
{
    fth_options_release(&fth_train_option_table, &plan->options);
    json_decref(plan->stored);
    free(plan->id);
    free(plan->device);
    free(plan->data);
    *plan = (fth_train_plan){0};
}
