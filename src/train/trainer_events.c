/* What a trainer tells the world: the events of record.h, and run.json's description of the run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "train/trainer_internal.h"

#define SECONDS_PER_SAMPLE 1.0

static void set_integer(json_t *event, const char *key, int64_t value)
{
    json_object_set_new(event, key, json_integer(value));
}

static void set_text(json_t *event, const char *key, const char *value)
{
    json_object_set_new(event, key, json_string(value));
}

/* Not getrusage's: that remembers what the process was before it became this program. */
static int64_t peak_memory_bytes(void)
{
    long long kilobytes = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %lld kB", &kilobytes) == 1)
            break;
    if (file)
        fclose(file);
    return kilobytes * 1024;
}

static void set_meters(json_t *event, const fth_meters *meters)
{
    fth_json_set_number(event, "data_wait_s", meters->data_wait_s);
    fth_json_set_number(event, "decode_s", meters->decode_s);
    fth_json_set_number(event, "compute_s", meters->compute_s);
    fth_json_set_number(event, "checkpoint_s", meters->checkpoint_s);
    fth_json_set_number(event, "evaluate_s", meters->evaluate_s);
    set_integer(event, "peak_memory_bytes", peak_memory_bytes());
}

/* ---- the accelerator ---- */

/* Brings what is known of the accelerator up to date. Sampling takes a moment, so not within `interval_s` of the last;
 * a failure leaves things as they were, and training notices a lost device by itself. */
static void sample_accelerator(fth_trainer *trainer, double interval_s)
{
    fth_accelerator *accelerator = &trainer->accelerator;
    fth_device_sample sample;
    double now = fth_clock_seconds(), seconds = now - accelerator->sampled_at_s;
    if (!trainer->device->backend->sample || (accelerator->known && seconds < interval_s) ||
        trainer->device->backend->sample(trainer->device, &sample) != FTH_OK)
        return;
    double busy_s = isfinite(sample.busy_s) ? sample.busy_s - accelerator->busy_s : 0;
    bool timed = accelerator->known && seconds > 0 && isfinite(sample.busy_s);
    if (isfinite(sample.utilization))
        accelerator->utilization = sample.utilization;
    else
        accelerator->utilization = timed ? fmin(1, busy_s / seconds) : NAN;
    trainer->position.state.meters.accelerator_s += busy_s;
    accelerator->busy_s += busy_s;
    accelerator->memory_bytes = sample.used_bytes;
    accelerator->sampled_at_s = now;
    accelerator->known = true;
}

static void set_accelerator(const fth_trainer *trainer, json_t *event, double accelerator_s)
{
    if (!trainer->accelerator.known)
        return;
    fth_json_set_number(event, "accelerator_s", accelerator_s);
    fth_json_set_number(event, "accelerator_utilization", trainer->accelerator.utilization);
    set_integer(event, "accelerator_memory_bytes", trainer->accelerator.memory_bytes);
}

/* Begins with the name, so that a line says first what it is. */
static json_t *new_event(const char *name)
{
    return json_pack("{s:s, s:f}", "event", name, "time", 0.0);
}

static double rate(int64_t samples, const fth_meters *meters)
{
    double seconds = meters->data_wait_s + meters->compute_s;
    return seconds > 0 ? (double)samples / seconds : NAN;
}

void fth_trainer_tell(fth_trainer *trainer, const char *name, json_t *event)
{
    json_incref(event);
    if (fth_record_append(trainer->record, name, event) == FTH_OK) {
        trainer->record_failing = false;
    } else if (!trainer->record_failing) {
        trainer->record_failing = true; /* once, not at every event, until it works again */
        fth_log_warning("the run's record misses events: %s", fth_error_message());
    }
    if (trainer->run_store && strcmp(name, "step") != 0)
        fth_run_store_poke(trainer->run_store);
    if (event && trainer->observer && trainer->observer->event)
        trainer->observer->event(trainer->observer->context, event);
    json_decref(event);
}

static void set_position(const fth_trainer *trainer, json_t *event)
{
    set_integer(event, "step", trainer->position.step);
    fth_json_set_number(event, "epoch", fth_position_epoch(&trainer->position));
}

static void set_totals_at(const fth_trainer *trainer, double elapsed_s, json_t *event)
{
    fth_json_set_number(event, "elapsed_s", elapsed_s);
    set_integer(event, "samples", trainer->position.state.samples);
    set_meters(event, &trainer->position.state.meters);
    set_accelerator(trainer, event, trainer->position.state.meters.accelerator_s);
    fth_spending_describe_spent(trainer->spending, event);
}

static void set_totals(fth_trainer *trainer, json_t *event)
{
    set_totals_at(trainer, fth_position_elapsed(&trainer->position), event);
}

void fth_trainer_tell_start(fth_trainer *trainer, bool resumed)
{
    const char *name = resumed ? "resume" : "start";
    json_t *event = new_event(name);
    set_text(event, "id", fth_record_id(trainer->record));
    set_text(event, "folder", fth_record_folder(trainer->record));
    set_text(event, "model", trainer->options->model);
    set_text(event, "data", trainer->options->data);
    set_text(event, "device", trainer->device->description);
    set_text(event, "strategy", trainer->strategy->name);
    if (trainer->strategy->describe)
        trainer->strategy->describe(trainer->strategy_state, event);
    set_integer(event, "parameters", fth_graph_trainable_count(fth_engine_graph(trainer->engine)));
    set_integer(event, "batches_per_epoch", trainer->position.batches_per_epoch);
    fth_spending_describe_machine(trainer->spending, event);
    fth_spending_describe_takeover(trainer->spending, event);
    fth_json_set_number(event, "time", fth_clock_wall_seconds());
    if (resumed) {
        /* Where the machine before it stopped: what passes until the first step is this one's time. */
        const double elapsed_s = trainer->position.state.elapsed_s;
        set_position(trainer, event);
        fth_json_set_number(event, "elapsed_s", elapsed_s);
        if (fth_spending_add_up_before(trainer->spending, fth_record_folder(trainer->record), event) != FTH_OK)
            fth_log_warning("what the run has cost before is not counted: %s", fth_error_message());
        set_totals_at(trainer, elapsed_s, event);
    }
    fth_trainer_tell(trainer, name, event);
}

void fth_trainer_tell_weights(fth_trainer *trainer)
{
    json_t *event = new_event("weights");
    set_text(event, "file", trainer->options->weights);
    set_text(event, "format", trainer->weights_format);
    if (*trainer->weights.head_note)
        set_text(event, "message", trainer->weights.head_note);
    fth_trainer_tell(trainer, "weights", event);
}

void fth_trainer_tell_step(fth_trainer *trainer)
{
    const fth_tally *tally = &trainer->since_event.tally;
    double elapsed = fth_position_elapsed(&trainer->position);
    if (tally->samples > 0) {
        json_t *event = new_event("step");
        set_position(trainer, event);
        fth_json_set_number(event, "loss", fth_tally_loss(tally));
        fth_json_set_number(event, "accuracy", fth_tally_accuracy(tally));
        fth_json_set_number(event, "learning_rate", trainer->learning_rate);
        fth_json_set_number(event, "samples_per_s", fth_tally_samples_per_s(tally));
        if (!trainer->first_step_told)
            fth_json_set_number(event, "first_step_s", fth_clock_process_seconds());
        trainer->first_step_told = true;
        sample_accelerator(trainer, SECONDS_PER_SAMPLE);
        set_totals(trainer, event);
        fth_trainer_tell(trainer, "step", event);
    }
    trainer->since_event = (fth_since_event){.began_s = elapsed, .began_step = trainer->position.step};
}

fth_epoch_facts fth_trainer_epoch_facts(fth_trainer *trainer)
{
    sample_accelerator(trainer, 0);
    return fth_position_describe_epoch(&trainer->position);
}

void fth_trainer_tell_epoch(fth_trainer *trainer, const fth_epoch_facts *facts, const fth_evaluation *evaluation)
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
    fth_json_set_number(event, "elapsed_s", fth_position_elapsed(&trainer->position));
    set_integer(event, "samples", facts->samples_so_far);
    set_meters(event, &facts->meters);
    set_accelerator(trainer, event, facts->meters.accelerator_s);
    fth_spending_describe_spent(trainer->spending, event);
    fth_trainer_tell(trainer, "epoch", event);
}

void fth_trainer_tell_bad_images(fth_trainer *trainer)
{
    enum { NAMES_PER_EVENT = 100 }; /* the record names all of them in the end, in lines that stay readable */
    int64_t count = fth_dataset_bad_image_count(trainer->dataset);
    while (trainer->bad_images_told < count) {
        json_t *event = new_event("bad_images"), *images = json_array();
        for (int i = 0; i < NAMES_PER_EVENT && trainer->bad_images_told < count; i++) {
            const fth_bad_image *bad = fth_dataset_get_bad_image(trainer->dataset, trainer->bad_images_told++);
            json_array_append_new(images, json_pack("{s:s, s:s, s:s}", "name", bad->name, "reason", bad->reason, "part",
                                                    bad->split == FTH_TRAIN ? "training" : "validation"));
        }
        set_position(trainer, event);
        set_integer(event, "count", trainer->bad_images_told);
        json_object_set_new(event, "images", images);
        fth_trainer_tell(trainer, "bad_images", event);
    }
}

void fth_trainer_tell_warning(fth_trainer *trainer, const char *message)
{
    json_t *event = new_event("warning");
    set_integer(event, "step", trainer->position.step);
    set_text(event, "message", message);
    fth_trainer_tell(trainer, "warning", event);
}

void fth_trainer_tell_error(fth_trainer *trainer, fth_status status, const char *message)
{
    json_t *event = new_event("error");
    set_position(trainer, event);
    fth_json_set_number(event, "learning_rate", trainer->learning_rate);
    set_text(event, "status", fth_status_name(status));
    set_text(event, "message", message);
    fth_trainer_tell(trainer, "error", event);
}

void fth_trainer_tell_interrupted(fth_trainer *trainer, const fth_stop_reason *reason)
{
    json_t *event = new_event("interrupted");
    sample_accelerator(trainer, 0);
    set_position(trainer, event);
    set_text(event, "reason", *reason->message ? reason->message : "a request");
    set_totals(trainer, event);
    fth_trainer_tell(trainer, "interrupted", event);
}

json_t *fth_trainer_tell_end(fth_trainer *trainer, const char *reason)
{
    const fth_train_state *state = &trainer->position.state;
    json_t *event = new_event("end");
    sample_accelerator(trainer, 0);
    if (state->validation_step >= 0) {
        fth_json_set_number(event, "accuracy", state->validation_accuracy);
        fth_json_set_number(event, "loss", state->validation_loss);
    }
    if (state->batches % trainer->position.batches_per_epoch == 0)
        set_integer(event, "epochs", state->batches / trainer->position.batches_per_epoch);
    else
        fth_json_set_number(event, "epochs", fth_position_epoch(&trainer->position));
    set_integer(event, "steps", trainer->position.step);
    fth_json_set_number(event, "seconds", fth_position_elapsed(&trainer->position));
    fth_json_set_number(event, "samples_per_s", rate(state->samples, &state->meters));
    set_text(event, "model", trainer->last_path);
    set_text(event, "reason", reason);
    if (state->best_step >= 0) {
        set_text(event, "best", trainer->best_path);
        fth_json_set_number(event, "best_loss", state->best_loss);
        fth_json_set_number(event, "best_accuracy", state->best_accuracy);
        set_integer(event, "best_step", state->best_step);
        set_text(event, "best_by", trainer->options->best_by);
    }
    set_totals(trainer, event);
    json_incref(event);
    fth_trainer_tell(trainer, "end", event);
    return event;
}

json_t *fth_trainer_describe(const fth_trainer *trainer)
{
    const fth_dataset_info *data = fth_dataset_get_info(trainer->dataset);
    char normalization[FTH_NORMALIZATION_TEXT];
    fth_normalization_format(&data->normalization, normalization);
    return json_pack("{s:s, s:O, s:I, s:{s:s, s:i, s:i, s:i, s:i, s:s, s:I, s:I}, s:I, s:s}", "identity",
                     trainer->beginning.identity, "configuration", trainer->configuration, "batch",
                     (json_int_t)trainer->options->batch, "data", "name", data->name, "classes", data->classes,
                     "channels", data->channels, "height", data->height, "width", data->width, "normalization",
                     normalization, "training_samples", (json_int_t)data->count[FTH_TRAIN], "validation_samples",
                     (json_int_t)data->count[FTH_VALIDATION], "parameters",
                     (json_int_t)fth_graph_trainable_count(fth_engine_graph(trainer->engine)), "precision",
                     fth_engine_precision(trainer->engine));
}
