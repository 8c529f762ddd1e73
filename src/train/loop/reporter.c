/* See reporter.h. */
#include "train/loop/reporter.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/process.h"
#include "batches/client/client.h"
#include "train/loop/accelerator_use.h"
#include "train/loop/recent_average.h"

/* Since the last step event. */
typedef struct since_event {
    fth_tally tally;
    double began_s;
    int64_t began_step;
} since_event;

struct fth_reporter {
    const fth_train_observer *observer;
    fth_report_sources from; /* but for the record */
    bool silent;             /* a peer has the record and the display */
    json_t *group; /* the last "group" event while silent, to be written first if this process gets the record */

    since_event since_event;
    bool first_step_written;
    int64_t bad_images_written; /* of the data set's unreadable images */
    fth_evaluation test;        /* of the best model; 0 samples: not measured */
    fth_accelerator_use accelerator;
    fth_window window; /* behind `progress` */
    fth_progress progress;

    pthread_mutex_t mutex; /* guards what follows */
    fth_record *record;    /* changed only by the training thread, which may read it without the lock */
    bool failing;          /* the last event could not be recorded */
};

fth_status fth_reporter_create(const fth_train_observer *observer, fth_reporter **reporter)
{
    fth_status status = fth_allocate(1, sizeof **reporter, reporter);
    if (status != FTH_OK)
        return status;
    (*reporter)->observer = observer;
    pthread_mutex_init(&(*reporter)->mutex, NULL);
    return FTH_OK;
}

void fth_reporter_free(fth_reporter *reporter)
{
    if (!reporter)
        return;
    fth_record_free(reporter->record);
    json_decref(reporter->group);
    pthread_mutex_destroy(&reporter->mutex);
    free(reporter);
}

/* ---- the record ---- */

static void set_record(fth_reporter *reporter, fth_record *record)
{
    pthread_mutex_lock(&reporter->mutex);
    fth_record_free(reporter->record);
    reporter->record = record;
    pthread_mutex_unlock(&reporter->mutex);
}

void fth_reporter_open(fth_reporter *reporter, const fth_report_sources *sources)
{
    reporter->from = *sources;
    reporter->from.record = NULL;
    fth_reporter_set_record(reporter, sources->record, sources->run_store);
}

void fth_reporter_set_record(fth_reporter *reporter, fth_record *record, fth_run_store *run_store)
{
    reporter->from.run_store = record ? run_store : NULL;
    reporter->silent = !record;
    set_record(reporter, record);
}

fth_record *fth_reporter_get_record(const fth_reporter *reporter)
{
    return reporter->record;
}

bool fth_reporter_discard_unbegun(fth_reporter *reporter)
{
    if (!reporter->record || !fth_record_discard_unbegun(reporter->record))
        return false;
    set_record(reporter, NULL);
    return true;
}

void fth_reporter_record(fth_reporter *reporter, const char *name, json_t *event)
{
    pthread_mutex_lock(&reporter->mutex);
    if (!reporter->record) {
        json_decref(event);
    } else if (fth_record_append(reporter->record, name, event) == FTH_OK) {
        reporter->failing = false;
    } else if (!reporter->failing) {
        reporter->failing = true; /* warn once, until it works again */
        fth_log_warning("the run's record misses events: %s", fth_error_message());
    }
    pthread_mutex_unlock(&reporter->mutex);
}

fth_status fth_reporter_sync(fth_reporter *reporter)
{
    pthread_mutex_lock(&reporter->mutex);
    fth_status status = reporter->record ? fth_record_sync(reporter->record) : FTH_OK;
    pthread_mutex_unlock(&reporter->mutex);
    return status;
}

bool fth_reporter_is_failing(fth_reporter *reporter)
{
    pthread_mutex_lock(&reporter->mutex);
    bool failing = reporter->failing;
    pthread_mutex_unlock(&reporter->mutex);
    return failing;
}

/* Events of a regression have no accuracy. */
static bool has_accuracy(const fth_reporter *reporter)
{
    const fth_dataset_info *info = reporter->from.dataset ? fth_dataset_get_info(reporter->from.dataset) : NULL;
    return !info || fth_dataset_has_accuracy(info);
}

static void leave_out_accuracy(json_t *event)
{
    static const char *const keys[] = {"accuracy", "train_accuracy", "validation_accuracy", "best_accuracy",
                                       "test_accuracy"};
    for (size_t i = 0; i < FTH_COUNT_OF(keys); i++)
        json_object_del(event, keys[i]);
}

void fth_reporter_write(fth_reporter *reporter, const char *name, json_t *event)
{
    const fth_train_observer *observer = reporter->observer;
    if (event && !has_accuracy(reporter))
        leave_out_accuracy(event);
    json_incref(event);
    fth_reporter_record(reporter, name, event);
    if (reporter->from.run_store && strcmp(name, "step") != 0)
        fth_run_store_poke(reporter->from.run_store);
    if (event && !reporter->silent && observer && observer->event)
        observer->event(observer->context, event);
    json_decref(event);
}

/* ---- members that events share ---- */

static void set_integer(json_t *event, const char *key, int64_t value)
{
    json_object_set_new(event, key, json_integer(value));
}

static void set_text(json_t *event, const char *key, const char *value)
{
    json_object_set_new(event, key, json_string(value));
}

static void set_meters(json_t *event, const fth_meters *meters)
{
    fth_json_set_number(event, "read_s", meters->read_s);
    fth_json_set_number(event, "data_wait_s", meters->data_wait_s);
    fth_json_set_number(event, "decode_s", meters->decode_s);
    fth_json_set_number(event, "fetch_s", meters->fetch_s);
    fth_json_set_number(event, "compute_s", meters->compute_s);
    fth_json_set_number(event, "checkpoint_s", meters->checkpoint_s);
    fth_json_set_number(event, "evaluate_s", meters->evaluate_s);
    set_integer(event, "peak_memory_bytes", fth_process_peak_bytes());
}

static void sample_accelerator(fth_reporter *reporter, double interval_s)
{
    reporter->from.position->state.meters.accelerator_s +=
        fth_accelerator_use_sample(&reporter->accelerator, reporter->from.device, interval_s);
}

void fth_reporter_sample_accelerator(fth_reporter *reporter)
{
    sample_accelerator(reporter, 0);
}

/* A line begins with its name. */
static json_t *new_event(const char *name)
{
    return json_pack("{s:s, s:f}", "event", name, "time", 0.0);
}

static double rate(int64_t samples, const fth_meters *meters)
{
    double seconds = meters->data_wait_s + meters->compute_s;
    return seconds > 0 ? (double)samples / seconds : NAN;
}

static void set_position(const fth_reporter *reporter, json_t *event)
{
    set_integer(event, "step", reporter->from.position->step);
    fth_json_set_number(event, "epoch", fth_position_epoch(reporter->from.position));
}

static void set_totals_at(const fth_reporter *reporter, double elapsed_s, json_t *event)
{
    const fth_train_state *state = &reporter->from.position->state;
    fth_json_set_number(event, "elapsed_s", elapsed_s);
    set_integer(event, "samples", state->samples);
    set_meters(event, &state->meters);
    fth_accelerator_use_describe(&reporter->accelerator, state->meters.accelerator_s, event);
    fth_spending_describe_spent(reporter->from.spending, event);
}

static void set_totals(fth_reporter *reporter, json_t *event)
{
    set_totals_at(reporter, fth_position_elapsed(reporter->from.position), event);
}

/* ---- events ---- */

void fth_reporter_write_start(fth_reporter *reporter, const fth_start_facts *facts)
{
    const char *name = facts->resumed ? "resume" : "start";
    const char *folder = fth_record_folder(reporter->record);
    const fth_report_sources *from = &reporter->from;
    json_t *event = new_event(name);
    set_text(event, "id", fth_record_id(reporter->record));
    set_text(event, "folder", folder);
    set_text(event, "model", from->options->model);
    set_text(event, "data", from->options->data.address);
    set_text(event, "device", from->device->description);
    set_text(event, "strategy", facts->strategy->name);
    if (facts->strategy->describe)
        facts->strategy->describe(facts->strategy_state, event);
    set_integer(event, "parameters", facts->parameters);
    set_integer(event, "batches_per_epoch", from->position->batches_per_epoch);
    if (facts->reason)
        fth_spending_begin_to_lead(from->spending);
    const fth_skipped_files *skipped = fth_dataset_get_skipped_files(from->dataset);
    if (skipped && skipped->count > 0)
        json_object_set_new(event, "skipped", fth_skipped_files_to_json(skipped));
    fth_spending_describe_machine(from->spending, event);
    fth_spending_describe_takeover(from->spending, event);
    if (facts->reason)
        set_text(event, "reason", facts->reason);
    fth_json_set_number(event, "time", fth_clock_wall_seconds());
    if (facts->resumed) {
        /* Where the machine before stopped: the time until the first step is this one's. */
        const double elapsed_s = from->position->state.elapsed_s;
        set_position(reporter, event);
        fth_json_set_number(event, "elapsed_s", elapsed_s);
        if (fth_spending_add_up_before(from->spending, folder, event) != FTH_OK)
            fth_log_warning("what the run has cost before is not counted: %s", fth_error_message());
        set_totals_at(reporter, elapsed_s, event);
    }
    fth_reporter_write(reporter, name, event);
    if (reporter->group) {
        event = reporter->group;
        reporter->group = NULL;
        set_integer(event, "step", from->position->step);
        fth_reporter_write_of_strategy(reporter, event);
    }
}

void fth_reporter_write_of_strategy(fth_reporter *reporter, json_t *event)
{
    const char *name = json_string_value(json_object_get(event, "event"));
    const bool is_group = name && strcmp(name, "group") == 0;
    if (is_group)
        fth_spending_set_group(reporter->from.spending, event);
    if (is_group && reporter->silent) {
        json_decref(reporter->group);
        reporter->group = json_incref(event);
    }
    fth_reporter_write(reporter, name ? name : "warning", event);
}

void fth_reporter_write_weights(fth_reporter *reporter, const char *format, const char *head_note)
{
    json_t *event = new_event("weights");
    set_text(event, "file", reporter->from.options->weights);
    set_text(event, "format", format);
    if (*head_note)
        set_text(event, "message", head_note);
    fth_reporter_write(reporter, "weights", event);
}

void fth_reporter_write_step(fth_reporter *reporter)
{
    const fth_position *position = reporter->from.position;
    const fth_tally *tally = &reporter->since_event.tally;
    double elapsed = fth_position_elapsed(reporter->from.position);
    if (tally->samples > 0) {
        json_t *event = new_event("step");
        set_position(reporter, event);
        fth_json_set_number(event, "loss", fth_tally_loss(tally));
        fth_json_set_number(event, "accuracy", fth_tally_accuracy(tally));
        fth_json_set_number(event, "learning_rate", position->learning_rate);
        fth_json_set_number(event, "samples_per_s", fth_tally_samples_per_s(tally));
        if (!reporter->first_step_written)
            fth_json_set_number(event, "first_step_s", fth_clock_process_seconds());
        reporter->first_step_written = true;
        sample_accelerator(reporter, 1);
        set_totals(reporter, event);
        fth_reporter_write(reporter, "step", event);
    }
    reporter->since_event = (since_event){.began_s = elapsed, .began_step = position->step};
}

void fth_reporter_write_epoch(fth_reporter *reporter, const fth_epoch_facts *facts, const fth_evaluation *evaluation)
{
    json_t *event = new_event("epoch");
    set_integer(event, "epoch", facts->epoch);
    set_integer(event, "step", facts->step);
    fth_json_set_number(event, "train_loss", facts->loss / (double)facts->samples);
    fth_json_set_number(event, "train_accuracy", (double)facts->correct / (double)facts->samples);
    if (evaluation) {
        fth_json_set_number(event, "validation_loss", evaluation->loss);
        fth_json_set_number(event, "validation_accuracy", evaluation->accuracy);
    }
    fth_json_set_number(event, "seconds", facts->seconds);
    fth_json_set_number(event, "samples_per_s", rate(facts->samples, &facts->meters));
    fth_json_set_number(event, "elapsed_s", fth_position_elapsed(reporter->from.position));
    set_integer(event, "samples", facts->samples_so_far);
    set_meters(event, &facts->meters);
    fth_accelerator_use_describe(&reporter->accelerator, facts->meters.accelerator_s, event);
    fth_spending_describe_spent(reporter->from.spending, event);
    fth_reporter_write(reporter, "epoch", event);
}

void fth_reporter_write_validation(fth_reporter *reporter, const fth_evaluation *evaluation)
{
    json_t *event = new_event("validation");
    set_position(reporter, event);
    fth_json_set_number(event, "validation_loss", evaluation->loss);
    fth_json_set_number(event, "validation_accuracy", evaluation->accuracy);
    fth_json_set_number(event, "elapsed_s", fth_position_elapsed(reporter->from.position));
    set_integer(event, "samples", reporter->from.position->state.samples);
    fth_reporter_write(reporter, "validation", event);
}

static void write_bad_images(fth_reporter *reporter)
{
    enum { NAMES_PER_EVENT = 100 }; /* so that lines stay readable */
    const fth_dataset *dataset = reporter->from.dataset;
    int64_t *written = &reporter->bad_images_written, count = fth_dataset_bad_image_count(dataset);
    while (*written < count) {
        json_t *event = new_event("bad_images"), *images = json_array();
        for (int i = 0; i < NAMES_PER_EVENT && *written < count; i++) {
            const fth_bad_image *bad = fth_dataset_get_bad_image(dataset, (*written)++);
            json_array_append_new(images, json_pack("{s:s, s:s, s:s}", "name", bad->name, "reason", bad->reason, "part",
                                                    bad->split == FTH_TRAIN ? "training" : "validation"));
        }
        set_position(reporter, event);
        set_integer(event, "count", *written);
        json_object_set_new(event, "images", images);
        fth_reporter_write(reporter, "bad_images", event);
    }
}

static void write_batch_cache(fth_reporter *reporter)
{
    fth_batches_figures figures;
    fth_batches_choice choice;
    if (!fth_batches_get_figures(reporter->from.dataset, &figures) ||
        !fth_batches_get_choice(reporter->from.dataset, &choice))
        return;
    json_t *event = new_event("batch_cache");
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {{"hits", figures.hits},
                  {"waits", figures.waits},
                  {"misses", figures.misses},
                  {"corrupt", figures.corrupt},
                  {"images_read_directly", figures.direct},
                  {"bytes", figures.bytes},
                  {"decoded_for_it", figures.decoded_for_it},
                  {"decoded_by_others", figures.decoded_by_others},
                  {"rotation", (uint64_t)choice.rotation}};
    set_position(reporter, event);
    set_text(event, "form", fth_cache_format_name(choice.format));
    set_text(event, "share", fth_sharing_name(choice.sharing));
    set_text(event, "why", figures.why);
    for (size_t i = 0; i < FTH_COUNT_OF(counts); i++)
        set_integer(event, counts[i].key, (int64_t)counts[i].value);
    fth_json_set_number(event, "wait_s", figures.wait_s);
    fth_json_set_number(event, "fetch_s", figures.fetch_s);
    fth_json_set_number(event, "decode_s", figures.decode_s);
    fth_json_set_number(event, "usd", figures.usd);
    fth_reporter_write(reporter, "batch_cache", event);
}

void fth_reporter_write_data(fth_reporter *reporter)
{
    write_bad_images(reporter);
    write_batch_cache(reporter);
}

void fth_reporter_write_warning(fth_reporter *reporter, const char *message)
{
    json_t *event = new_event("warning");
    set_integer(event, "step", reporter->from.position->step);
    set_text(event, "message", message);
    fth_reporter_write(reporter, "warning", event);
}

void fth_reporter_warn(fth_reporter *reporter, const char *format, ...)
{
    char *message = NULL;
    va_list arguments;
    va_start(arguments, format);
    const char *text = vasprintf(&message, format, arguments) < 0 ? format : message;
    va_end(arguments);
    fth_log_warning("%s", text);
    fth_reporter_write_warning(reporter, text);
    if (text != format)
        free(message);
}

void fth_reporter_write_error(fth_reporter *reporter, fth_status status, const char *message)
{
    json_t *event = new_event("error");
    set_position(reporter, event);
    fth_json_set_number(event, "learning_rate", reporter->from.position->learning_rate);
    set_text(event, "status", fth_status_name(status));
    set_text(event, "message", message);
    fth_reporter_write(reporter, "error", event);
}

void fth_reporter_write_interrupted(fth_reporter *reporter, const fth_stop_reason *reason)
{
    json_t *event = new_event("interrupted");
    sample_accelerator(reporter, 0);
    set_position(reporter, event);
    set_text(event, "reason", *reason->message ? reason->message : "a request");
    set_totals(reporter, event);
    fth_reporter_write(reporter, "interrupted", event);
}

void fth_reporter_write_test(fth_reporter *reporter, const fth_test_result *result)
{
    json_t *event = new_event("test");
    reporter->test = result->evaluation;
    set_integer(event, "step", result->step);
    set_text(event, "data", result->data);
    set_integer(event, "samples", result->evaluation.samples);
    fth_json_set_number(event, "test_loss", result->evaluation.loss);
    fth_json_set_number(event, "test_accuracy", result->evaluation.accuracy);
    fth_json_set_number(event, "seconds", result->evaluation.seconds);
    set_text(event, "file", result->file);
    fth_reporter_write(reporter, "test", event);
}

json_t *fth_reporter_write_end(fth_reporter *reporter, const char *reason, const char *last_path, const char *best_path)
{
    fth_position *position = reporter->from.position;
    const fth_train_state *state = &position->state;
    json_t *event = new_event("end");
    sample_accelerator(reporter, 0);
    if (state->validation_step >= 0) {
        fth_json_set_number(event, "validation_accuracy", state->validation_accuracy);
        fth_json_set_number(event, "validation_loss", state->validation_loss);
        fth_json_set_number(event, "accuracy", state->validation_accuracy);
        fth_json_set_number(event, "loss", state->validation_loss);
    }
    if (reporter->test.samples > 0) {
        fth_json_set_number(event, "test_loss", reporter->test.loss);
        fth_json_set_number(event, "test_accuracy", reporter->test.accuracy);
        set_integer(event, "test_samples", reporter->test.samples);
    }
    if (state->batches % position->batches_per_epoch == 0)
        set_integer(event, "epochs", state->batches / position->batches_per_epoch);
    else
        fth_json_set_number(event, "epochs", fth_position_epoch(position));
    set_integer(event, "steps", position->step);
    fth_json_set_number(event, "seconds", fth_position_elapsed(position));
    fth_json_set_number(event, "samples_per_s", rate(state->samples, &state->meters));
    set_text(event, "model", last_path);
    set_text(event, "reason", reason);
    if (state->best_step >= 0) {
        set_text(event, "best", best_path);
        fth_json_set_number(event, "best_loss", state->best_loss);
        fth_json_set_number(event, "best_accuracy", state->best_accuracy);
        set_integer(event, "best_step", state->best_step);
        set_text(event, "best_by", fth_best_measure_names[reporter->from.options->saving.best_by]);
    }
    set_totals(reporter, event);
    fth_reporter_write(reporter, "end", json_incref(event));
    return event;
}

/* ---- progress ---- */

void fth_reporter_begin(fth_reporter *reporter)
{
    const fth_position *position = reporter->from.position;
    reporter->since_event = (since_event){.began_s = position->state.elapsed_s, .began_step = position->step};
    reporter->progress =
        (fth_progress){.epochs = reporter->from.options->limits.epochs, .steps = position->total_steps};
}

void fth_reporter_add_result(fth_reporter *reporter, const fth_step_result *result, double seconds)
{
    fth_progress *progress = &reporter->progress;
    fth_tally_add(&reporter->since_event.tally, result, seconds);
    fth_window_add(&reporter->window, result, seconds);
    fth_tally recent = fth_window_recent(&reporter->window);
    progress->loss = fth_tally_loss(&recent);
    progress->accuracy = has_accuracy(reporter) ? fth_tally_accuracy(&recent) : NAN;
    progress->samples_per_s = fth_tally_samples_per_s(&recent);
}

static double seconds_left(const fth_reporter *reporter)
{
    const fth_train_options *options = reporter->from.options;
    const fth_position *position = reporter->from.position;
    double left = INFINITY, pace = fth_window_pace(&reporter->window);
    if (position->total_steps > 0 && pace > 0) {
        double per_step = (double)(options->batch * options->optimizer.accumulate);
        left = (double)(position->total_steps - position->step) * per_step / pace;
    }
    if (options->limits.for_s > 0)
        left = fmin(left, fmax(0, options->limits.for_s - position->state.elapsed_s));
    return isfinite(left) ? left : NAN;
}

static void show(const fth_reporter *reporter)
{
    const fth_train_observer *observer = reporter->observer;
    if (!reporter->silent && observer && observer->progress)
        observer->progress(observer->context, &reporter->progress);
}

void fth_reporter_show_step(fth_reporter *reporter)
{
    const fth_position *position = reporter->from.position;
    fth_progress *progress = &reporter->progress;
    progress->epoch = (position->state.batches - 1) / position->batches_per_epoch + 1;
    progress->step = position->step;
    progress->elapsed_s = position->state.elapsed_s;
    progress->left_s = seconds_left(reporter);
    show(reporter);
}

void fth_reporter_write_step_if_due(fth_reporter *reporter)
{
    const fth_position *position = reporter->from.position;
    const since_event *since = &reporter->since_event;
    if (!reporter->first_step_written || position->step - since->began_step >= FTH_WINDOW_RESULTS ||
        position->state.elapsed_s - since->began_s >= FTH_WINDOW_S)
        fth_reporter_write_step(reporter);
}

void fth_reporter_skip_pause(fth_reporter *reporter)
{
    reporter->since_event.began_s = reporter->from.position->state.elapsed_s;
}

void fth_reporter_show_evaluating(fth_reporter *reporter, bool evaluating)
{
    reporter->progress.evaluating = evaluating;
    if (evaluating)
        show(reporter);
}
