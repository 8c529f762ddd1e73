/* See run_record.h. */
#include "train/run/run_record.h"

#include <stdlib.h>
#include <string.h>

#include "batches/client/client.h"
#include "model/exported_model.h"
#include "train/setup/usual.h"

/* run.json, but for the machine. */
static json_t *describe_run(const fth_run_selection *selection, const fth_setup *setup)
{
    const fth_dataset_info *data = fth_dataset_get_info(setup->dataset);
    char normalization[FTH_NORMALIZATION_TEXT];
    fth_normalization_format(&data->normalization, normalization);
    json_t *run = json_pack("{s:s, s:O, s:I, s:{s:s, s:i, s:i, s:i, s:i, s:s, s:I, s:I}, s:I, s:s}", "identity",
                            selection->identity, "configuration", setup->configuration, "batch",
                            (json_int_t)setup->options->batch, "data", "name", data->name, "classes", data->classes,
                            "channels", data->channels, "height", data->height, "width", data->width, "normalization",
                            normalization, "training_samples", (json_int_t)data->count[FTH_TRAIN], "validation_samples",
                            (json_int_t)data->count[FTH_VALIDATION], "parameters",
                            (json_int_t)fth_graph_trainable_count(fth_engine_graph(setup->engine)), "precision",
                            fth_engine_precision(setup->engine));
    if (run && data->modality == FTH_MODALITY_TEXT)
        fth_text_describe(data, json_object_get(run, "data"));
    fth_batches_choice choice;
    if (run && fth_batches_get_choice(setup->dataset, &choice))
        json_object_set_new(json_object_get(run, "data"), "batch_cache",
                            json_pack("{s:s, s:I, s:s}", "form", fth_cache_format_name(choice.format), "rotation",
                                      (json_int_t)choice.rotation, "share", fth_sharing_name(choice.sharing)));
    return run;
}

/* run.json's "machine". */
static json_t *describe_machine(const fth_setup *setup, const fth_spending *spending)
{
    json_t *machine = fth_machine_describe(setup->device);
    if (machine)
        fth_spending_describe_machine(spending, machine);
    return machine;
}

fth_status fth_run_record_configure(fth_record *record, const fth_run_selection *selection, const fth_setup *setup,
                                    const fth_spending *spending)
{
    fth_status status = FTH_OK;
    json_t *description = describe_run(selection, setup), *machine = describe_machine(setup, spending);

    FTH_REQUIRE(description, FTH_NO_MEMORY, "no memory for the run's description");
    FTH_TRY(fth_record_configure(record, description, machine));

out:
    json_decref(description);
    json_decref(machine);
    return status;
}

/* "mnist-cnn-digits": the model, and the last part of the data's name. free() it. */
static char *make_hint(const fth_train_options *options)
{
    size_t length = strcspn(options->data.address, fth_batches_is_address(options->data.address) ? "?" : "");
    while (length > 1 && options->data.address[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin > 0 && options->data.address[begin - 1] != '/')
        begin--;
    const char *name = fth_exported_model_short_name(options->model);
    const size_t ending = fth_exported_model_is_name(name) ? strlen(".pt2") : 0;
    const int model = fth_usual_needs_data(options) ? 0 : (int)(strcspn(name, "(") - ending);
    return fth_format("%.*s%s%.*s", model, name, model > 0 ? "-" : "", (int)(length - begin),
                      options->data.address + begin);
}

char *fth_run_record_make_id(const fth_train_options *options)
{
    char *hint = make_hint(options);
    char *id = *options->saving.name ? fth_format("%s", options->saving.name) : fth_record_make_id(hint);
    free(hint);
    return id;
}

/* Where --resume found none of this configuration: one of another may be what was meant. */
static void report_new_run(const fth_train_options *options, const char *id)
{
    fth_record_list others = {0};
    const bool found = fth_record_list_unfinished(options->saving.runs, &others) == FTH_OK && others.count > 0;
    char *ids = fth_record_list_format(&others);
    fth_log_info("nothing to resume for this configuration in %s; starting a new run, %s%s%s%s", options->saving.runs,
                 id, found ? " (unfinished runs of others: " : "", found && ids ? ids : "",
                 found ? "; --resume ID continues one)" : "");
    fth_record_list_release(&others);
    free(ids);
}

static fth_status create_record(const fth_run_selection *selection, const fth_setup *setup,
                                const fth_spending *spending, fth_record **record)
{
    fth_status status = FTH_OK;
    const fth_train_options *options = setup->options;
    json_t *description = describe_run(selection, setup), *machine = describe_machine(setup, spending);
    char *hint = NULL;

    FTH_REQUIRE(description, FTH_NO_MEMORY, "no memory for the run's description");
    if (selection->created_s > 0)
        json_object_set_new(description, "created_s", json_real(selection->created_s));
    hint = make_hint(options);
    fth_record_sweep(options->saving.runs, selection->identity);
    FTH_TRY(fth_record_create(options->saving.runs, selection->id ? selection->id : options->saving.name, hint,
                              description, machine, record));
    if (*options->resume && *options->saving.name)
        fth_log_info("there is no run %s to resume in %s; starting it", options->saving.name, options->saving.runs);
    else if (*options->resume)
        report_new_run(options, fth_record_id(*record));

out:
    free(hint);
    json_decref(description);
    json_decref(machine);
    return status;
}

/* Another instruction set, oneDNN, back end or number of threads adds up in another order. */
static void note_other_device(const json_t *run, const fth_device *device)
{
    const char *before = json_string_value(json_object_get(json_object_get(run, "machine"), "device"));
    if (before && strcmp(before, device->description) != 0)
        fth_log_info("this run was computed by another device until now (%s; now %s): its numbers will be rounded "
                     "differently, and it ends close to where it would have, not bit for bit",
                     before, device->description);
}

fth_status fth_run_record_open(const fth_run_selection *selection, const fth_setup *setup, const fth_spending *spending,
                               fth_record **record)
{
    if (!selection->folder)
        return create_record(selection, setup, spending, record);
    note_other_device(selection->run, setup->device);
    return fth_record_resume(selection->folder, record);
}
