/* The report of one run: its options, results, where the time went, and the curves. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "report/report_internal.h"
#include "report/scaling.h"

enum { CHART_ROWS = 14, SMALL = 64 };

/* ---- the table of facts ---- */

/* Adds a row and frees `value`, so that rows can be written in one line each. */
static fth_status add_fact(fth_table *table, const char *name, char *value)
{
    fth_status status = fth_table_add_row(table, (const char *[]){name, value});
    free(value);
    return status;
}

static char *describe_model(const fth_record_summary *run)
{
    char *model = fth_report_option(run, "model"), *text;
    const json_t *parameters = json_object_get(run->run, "parameters");
    if (json_is_integer(parameters)) {
        text = fth_format("%s, %s", model, FTH_COUNTED(json_integer_value(parameters), "parameter"));
    } else {
        text = fth_format("%s", model);
    }
    free(model);
    return text;
}

static bool is_text(const fth_record_summary *run)
{
    const char *kind = json_string_value(json_object_get(json_object_get(run->run, "data"), "kind"));
    return kind && strcmp(kind, "text") == 0;
}

/* What a sample is. */
static const char *name_sample(const fth_record_summary *run)
{
    return is_text(run) ? "text" : "image";
}

/* "classes; 8,192 tokens in the vocabulary, 128 in the longest text" */
static char *describe_text(const fth_record_summary *run)
{
    const json_t *facts = json_object_get(run->run, "data");
    const char *task = json_string_value(json_object_get(facts, "task"));
    return fth_format("%s; %s in the vocabulary, %s in the longest text", task ? task : "-",
                      FTH_COUNTED(json_integer_value(json_object_get(facts, "vocabulary")), "token"),
                      FTH_COUNTED(json_integer_value(json_object_get(facts, "longest")), NULL));
}

static char *describe_data(const fth_record_summary *run)
{
    char *data = fth_report_option(run, "data"), *text;
    const json_t *facts = json_object_get(run->run, "data");
    const json_t *training = json_object_get(facts, "training_samples");
    if (json_integer_value(training) > 0) { /* a server without data has none */
        json_int_t validation = json_integer_value(json_object_get(facts, "validation_samples"));
        text = fth_format("%s, %s to train, %s to validate", data,
                          FTH_COUNTED(json_integer_value(training), name_sample(run)), FTH_COUNTED(validation, NULL));
    } else {
        text = fth_format("%s", data);
    }
    free(data);
    return text;
}

static char *describe_rule(const fth_record_summary *run)
{
    char *optimizer = fth_report_option(run, "optimizer"), *rate = fth_report_option(run, "lr");
    char *schedule = fth_report_option(run, "schedule"), *momentum = fth_report_momentum(run);
    const json_t *used = json_object_get(run->run, "batch"); /* less than requested if there are fewer images */
    char *batch = json_is_integer(used) ? fth_format("%lld", (long long)json_integer_value(used))
                                        : fth_report_option(run, "batch");
    char *rate_text = NULL;
    /* 0 means the optimizer's default, which the steps show. */
    if (strcmp(rate, "0") == 0 && run->training.count > 0 && isfinite(run->training.points[0].learning_rate))
        rate_text = fth_format("%g", run->training.points[0].learning_rate);
    bool has_momentum = strcmp(momentum, "-") != 0;
    char *text = fth_format("%s, lr %s (%s)%s%s, batch %s", optimizer, rate_text ? rate_text : rate, schedule,
                            has_momentum ? ", momentum " : "", has_momentum ? momentum : "", batch);
    free(optimizer);
    free(rate);
    free(rate_text);
    free(schedule);
    free(momentum);
    free(batch);
    return text;
}

static char *describe_device(const fth_record_summary *run)
{
    char *asked = fth_report_option(run, "precision"), *option = fth_report_option(run, "device");
    const char *chosen = json_string_value(json_object_get(run->run, "precision")); /* what auto came to */
    const char *precision = chosen ? chosen : asked;
    const char *device = json_string_value(json_object_get(json_object_get(run->run, "machine"), "device"));
    char *text = fth_format("%s, %s", device ? device : option, precision);
    free(asked);
    free(option);
    return text;
}

/* "NVIDIA H200, 93 % busy, 12.3 GB" */
static char *describe_accelerator(const fth_record_summary *run)
{
    const char *device = json_string_value(json_object_get(json_object_get(run->run, "machine"), "device"));
    char memory[SMALL], busy[SMALL] = "";
    fth_text_bytes(run->accelerator_memory_bytes, memory, sizeof memory);
    if (isfinite(run->accelerator_utilization))
        snprintf(busy, sizeof busy, "%.0f %% busy, ", 100 * run->accelerator_utilization);
    return fth_format("%.*s%s%s%s", device ? (int)strcspn(device, ",") : 0, device ? device : "", device ? ", " : "",
                      busy, memory);
}

static char *describe_amount(const fth_record_summary *run)
{
    char epochs[SMALL] = "";
    double epoch = run->training.count > 0 ? run->training.points[run->training.count - 1].epoch : NAN;
    if (isfinite(epoch))
        snprintf(epochs, sizeof epochs, "%.4g epoch%s, ", epoch, epoch == 1 ? "" : "s");
    return fth_format("%s%s, %s", epochs, FTH_COUNTED(run->steps, "step"), FTH_COUNTED(run->samples, name_sample(run)));
}

static char *describe_speed(const fth_record_summary *run)
{
    char time[SMALL], speed[SMALL] = "-";
    fth_duration_format(run->elapsed_s, time, sizeof time);
    if (isfinite(run->samples_per_s))
        fth_text_count(llround(run->samples_per_s), speed, sizeof speed);
    return fth_format("%s at %s samples/s", time, speed);
}

static char *describe_validation(double loss, double accuracy)
{
    char loss_text[SMALL], accuracy_text[SMALL];
    fth_text_loss(loss, loss_text, sizeof loss_text);
    fth_text_percent(accuracy, accuracy_text, sizeof accuracy_text);
    return fth_format("accuracy %s, loss %s", accuracy_text, loss_text);
}

/* "accuracy 97.80 %, loss 0.0712; lowest loss, of step 300" */
static char *describe_best(const fth_record_summary *run)
{
    if (!run->kept.by) /* a parameter server's, which keeps none, or lost with its machine */
        return describe_validation(run->best_loss, run->best_accuracy);
    char step[SMALL], *numbers = describe_validation(run->kept.loss, run->kept.accuracy);
    fth_text_count(run->kept.step, step, sizeof step);
    bool by_accuracy = strcmp(run->kept.by, "accuracy") == 0;
    char *text = fth_format("%s; %s, of step %s", numbers, by_accuracy ? "highest accuracy" : "lowest loss", step);
    free(numbers);
    return text;
}

/* "accuracy 97.10 %, loss 0.0912; the best model, over 10,000 samples of ./mnist" */
static char *describe_test(const fth_record_summary *run)
{
    char samples[SMALL], *numbers = describe_validation(run->test_loss, run->test_accuracy);
    fth_text_count(json_integer_value(json_object_get(run->end, "test_samples")), samples, sizeof samples);
    const char *given = json_string_value(json_object_get(json_object_get(run->run, "configuration"), "test"));
    const char *data = given && *given ? given : "the test/ part"; /* as --test says */
    char *text = fth_format("%s; the best model, over %s samples of %s", numbers, samples, data);
    free(numbers);
    return text;
}

/* A model that was not kept had it, since --best-by loss chooses by the loss. */
static char *describe_better(const fth_record_summary *run)
{
    char accuracy[SMALL], step[SMALL] = "?";
    fth_text_percent(run->best_accuracy, accuracy, sizeof accuracy);
    for (size_t i = run->validation.count; i > 0; i--)
        if (run->validation.points[i - 1].accuracy == run->best_accuracy)
            fth_text_count(run->validation.points[i - 1].step, step, sizeof step);
    return fth_format("%s, of step %s, which is not kept (--best-by accuracy does)", accuracy, step);
}

static char *describe_file(const fth_record_summary *run, const char *name)
{
    char *path = fth_path_join(run->folder, name);
    if (fth_file_exists(path))
        return path;
    free(path);
    return NULL;
}

/* The file with the initial weights, and what was not taken from it; NULL if there was none. */
static char *describe_weights(const fth_record_summary *run)
{
    size_t i;
    json_t *event;
    json_array_foreach(run->events, i, event)
    {
        const char *name = json_string_value(json_object_get(event, "event"));
        const char *file = json_string_value(json_object_get(event, "file"));
        const char *message = json_string_value(json_object_get(event, "message"));
        if (name && strcmp(name, "weights") == 0 && file)
            return fth_format("%s%s%s", file, message ? "; " : "", message ? message : "");
    }
    return NULL;
}

/* How many image files could not be read, and the first of them; NULL if there were none. A resumed
 * run may have met some again: each counts once. */
static char *describe_bad_images(const fth_record_summary *run)
{
    size_t i, j;
    json_t *event, *image, *names = json_object();
    char first[SMALL] = "";
    json_array_foreach(run->events, i, event)
    {
        const char *event_name = json_string_value(json_object_get(event, "event"));
        if (!event_name || strcmp(event_name, "bad_images") != 0)
            continue;
        json_array_foreach(json_object_get(event, "images"), j, image)
        {
            const char *name = json_string_value(json_object_get(image, "name"));
            if (name && json_object_size(names) == 0)
                snprintf(first, sizeof first, "%s", name);
            if (name)
                json_object_set_new(names, name, json_true());
        }
    }
    size_t count = json_object_size(names);
    json_decref(names);
    return count == 0 ? NULL : fth_format("%zu could not be read: %s%s", count, first, count > 1 ? ", ..." : "");
}

/* The files that the run's first start found in formats that are not read; NULL if there were
 * none. */
static char *describe_skipped(const fth_record_summary *run)
{
    size_t i;
    json_t *event;
    json_array_foreach(run->events, i, event)
    {
        json_t *skipped = json_object_get(event, "skipped");
        json_int_t count = json_integer_value(json_object_get(skipped, "count"));
        const char *first = json_string_value(json_array_get(json_object_get(skipped, "names"), 0));
        if (count > 0 && first)
            return fth_format("%s in formats that are not read: %s%s", FTH_COUNTED(count, NULL), first,
                              count > 1 ? ", ..." : "");
    }
    return NULL;
}

static fth_status add_facts(fth_table *table, const fth_record_summary *run)
{
    fth_status status = FTH_OK;
    char text[SMALL];
    FTH_TRY(add_fact(table, "state", fth_report_state(run)));
    char *ended = fth_report_ended(run);
    if (ended)
        FTH_TRY(add_fact(table, "ended", ended));
    FTH_TRY(add_fact(table, "model", describe_model(run)));
    FTH_TRY(add_fact(table, "data", describe_data(run)));
    if (is_text(run))
        FTH_TRY(add_fact(table, "task", describe_text(run)));
    char *weights = describe_weights(run), *bad = describe_bad_images(run);
    if (bad)
        status = add_fact(table, "bad images", bad);
    char *skipped = describe_skipped(run);
    if (skipped && status == FTH_OK)
        status = add_fact(table, "skipped files", skipped);
    else
        free(skipped);
    if (weights && status == FTH_OK)
        status = add_fact(table, "began with", weights);
    else
        free(weights);
    FTH_TRY(status);
    FTH_TRY(add_fact(table, "optimizer", describe_rule(run)));
    FTH_TRY(add_fact(table, "seed", fth_report_option(run, "seed")));
    FTH_TRY(add_fact(table, "device", describe_device(run)));
    FTH_TRY(add_fact(table, "trained", describe_amount(run)));
    FTH_TRY(add_fact(table, "time", describe_speed(run)));
    if (run->peak_memory_bytes > 0) {
        fth_text_bytes(run->peak_memory_bytes, text, sizeof text);
        FTH_TRY(add_fact(table, "peak memory", fth_format("%s", text)));
    }
    if (run->accelerator_memory_bytes > 0)
        FTH_TRY(add_fact(table, "accelerator", describe_accelerator(run)));
    if (run->resumes > 0)
        FTH_TRY(add_fact(table, "resumed", fth_format("%s", FTH_COUNTED(run->resumes, "time"))));
    fth_text_loss(fth_report_last_training_loss(run), text, sizeof text);
    FTH_TRY(add_fact(table, "training loss", fth_format("%s", text)));
    if (isfinite(run->last_loss)) {
        FTH_TRY(add_fact(table, "last validation", describe_validation(run->last_loss, run->last_accuracy)));
        FTH_TRY(add_fact(table, "best validation", describe_best(run)));
        if (fth_report_saw_better(run))
            FTH_TRY(add_fact(table, "best validation seen", describe_better(run)));
    }
    if (isfinite(run->test_loss))
        FTH_TRY(add_fact(table, "test", describe_test(run)));
    char *last = describe_file(run, "last.safetensors"), *best = describe_file(run, "best.safetensors");
    if (last)
        status = add_fact(table, "model file", last);
    if (best && status == FTH_OK)
        status = add_fact(table, "best model", best);
    else
        free(best);
    FTH_TRY(status);
    FTH_TRY(add_fact(table, "record", fth_format("%s", run->folder)));
out:
    return status;
}

/* ---- where the time went ---- */

static fth_status add_share(fth_table *table, const char *name, double seconds, double whole)
{
    char time[SMALL], share[SMALL] = "-";
    fth_duration_format(seconds, time, sizeof time);
    if (whole > 0)
        snprintf(share, sizeof share, "%.1f %%", 100 * seconds / whole);
    return fth_table_add_row(table, (const char *[]){name, time, share});
}

static double unaccounted(const fth_record_summary *run)
{
    return fmax(0, run->elapsed_s - run->compute_s - run->data_wait_s - run->checkpoint_s - run->evaluate_s);
}

static fth_status print_times(FILE *output, const fth_record_summary *run)
{
    fth_status status = FTH_OK;
    fth_table *table = NULL;
    const double whole = run->read_s + run->elapsed_s;
    FTH_TRY(FTH_TABLE(&table, "where the time went", ">time", ">share"));
    FTH_TRY(add_share(table, "reading data", run->read_s, whole));
    FTH_TRY(add_share(table, "compute", run->compute_s, whole));
    FTH_TRY(add_share(table, "waiting for data", run->data_wait_s, whole));
    FTH_TRY(add_share(table, "checkpoints", run->checkpoint_s, whole));
    FTH_TRY(add_share(table, "evaluation", run->evaluate_s, whole));
    FTH_TRY(add_share(table, "other", unaccounted(run), whole));
    if (!is_text(run)) /* which is tokenized before the first step */
        FTH_TRY(add_share(table, "decoding (parallel)", run->decode_s, whole));
    if (run->fetch_s > 0)
        FTH_TRY(add_share(table, "fetching (parallel)", run->fetch_s, whole));
    if (run->accelerator_memory_bytes > 0)
        FTH_TRY(add_share(table, "accelerator (parallel)", run->accelerator_s, whole));
    fth_table_print(output, table);
out:
    fth_table_free(table);
    return status;
}

/* ---- charts ---- */

static fth_status print_chart(FILE *output, const fth_record_summary *run, fth_measure measure, int columns)
{
    fth_status status = FTH_OK;
    fth_chart_line lines[2] = {0};
    size_t count = 0;
    fth_chart chart = {.x_label = "step",
                       .y_label = measure == FTH_LOSS ? "loss" : "accuracy (%)",
                       .linear = measure == FTH_ACCURACY,
                       .columns = columns,
                       .rows = CHART_ROWS};

    FTH_TRY(fth_report_curve(&run->training, measure, FTH_OVER_STEPS, "training", &lines[count++]));
    if (fth_report_has(&run->validation, measure))
        FTH_TRY(fth_report_curve(&run->validation, measure, FTH_OVER_STEPS, "validation", &lines[count++]));
    FTH_TRY(fth_chart_print(output, &chart, lines, count));

out:
    fth_report_curve_release(&lines[0]);
    fth_report_curve_release(&lines[1]);
    return status;
}

/* ---- the whole ---- */

fth_status fth_report_run(FILE *output, const fth_record_summary *run, const fth_catalogue *catalogue, int columns)
{
    fth_status status = FTH_OK;
    fth_table *table = NULL;

    FTH_TRY(fth_table_create(NULL, 2, &table));
    fth_print_line(output, "run %s", run->id);
    fputc('\n', output);
    FTH_TRY(add_facts(table, run));
    fth_table_print(output, table);
    fputc('\n', output);
    if (run->compute_s + run->data_wait_s > 0) { /* a parameter server's work is done by its workers */
        FTH_TRY(print_times(output, run));
        fputc('\n', output);
    }
    FTH_TRY(fth_report_data(output, run));
    if (fth_report_scales(run, 1)) {
        FTH_TRY(fth_scaling_print_ranks(output, run));
        FTH_TRY(fth_report_scaling(output, run, 1, columns));
        fputc('\n', output);
    }
    FTH_TRY(fth_report_bill(output, run, catalogue));
    FTH_TRY(print_chart(output, run, FTH_LOSS, columns));
    if (fth_report_has(&run->training, FTH_ACCURACY) || fth_report_has(&run->validation, FTH_ACCURACY)) {
        fputc('\n', output);
        FTH_TRY(print_chart(output, run, FTH_ACCURACY, columns));
    }
out:
    fth_table_free(table);
    return status;
}

/* ---- as JSON ---- */

json_t *fth_report_json(const fth_record_summary *run, const fth_catalogue *catalogue)
{
    json_t *object = json_object();
    char *state = fth_report_state(run);
    json_object_set_new(object, "id", json_string(run->id));
    json_object_set_new(object, "folder", json_string(run->folder));
    json_object_set_new(object, "state", json_string(state));
    json_object_set_new(object, "finished", json_boolean(run->finished));
    json_object_set_new(object, "steps", json_integer(run->steps));
    json_object_set_new(object, "samples", json_integer(run->samples));
    json_object_set_new(object, "resumes", json_integer(run->resumes));
    json_object_set_new(object, "peak_memory_bytes", json_integer(run->peak_memory_bytes));
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"elapsed_s", run->elapsed_s},     {"samples_per_s", run->samples_per_s},
                   {"read_s", run->read_s},           {"compute_s", run->compute_s},
                   {"data_wait_s", run->data_wait_s}, {"decode_s", run->decode_s},
                   {"fetch_s", run->fetch_s},         {"checkpoint_s", run->checkpoint_s},
                   {"evaluate_s", run->evaluate_s},   {"training_loss", fth_report_last_training_loss(run)},
                   {"last_loss", run->last_loss},     {"last_accuracy", run->last_accuracy},
                   {"best_loss", run->best_loss},     {"best_accuracy", run->best_accuracy},
                   {"test_loss", run->test_loss},     {"test_accuracy", run->test_accuracy}};
    for (size_t i = 0; i < FTH_COUNT_OF(numbers); i++)
        fth_json_set_number(object, numbers[i].key, numbers[i].value);
    if (run->accelerator_memory_bytes > 0) {
        json_object_set_new(object, "accelerator_memory_bytes", json_integer(run->accelerator_memory_bytes));
        fth_json_set_number(object, "accelerator_utilization", run->accelerator_utilization);
        fth_json_set_number(object, "accelerator_s", run->accelerator_s);
    }
    const char *reason = json_string_value(json_object_get(run->end, "reason"));
    if (reason)
        json_object_set_new(object, "reason", json_string(reason));
    if (run->kept.by)
        json_object_set_new(object, "kept",
                            json_pack("{s:I, s:o, s:o, s:s}", "step", (json_int_t)run->kept.step, "loss",
                                      fth_json_number(run->kept.loss), "accuracy", fth_json_number(run->kept.accuracy),
                                      "by", run->kept.by));
    json_t *bill = fth_report_bill_json(run, catalogue);
    if (bill)
        json_object_set_new(object, "bill", bill);
    json_t *data = fth_report_data_json(run);
    if (data)
        json_object_set_new(object, "batch_cache", data);
    json_t *scaling = fth_scaling_json(run);
    if (scaling)
        json_object_set_new(object, "scaling", scaling);
    json_object_set(object, "run", run->run);
    free(state);
    return object;
}
