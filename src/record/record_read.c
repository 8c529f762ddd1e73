/* Reading a run's record back: run.json and the events that count.
 *
 * Lines that are not whole JSON objects are skipped: a kill tears the last one, and a resume then
 * ends it. A "resume" line drops the events of later steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "record/record_internal.h"

enum { MAX_RUN_JSON_BYTES = 4 << 20, MAX_LINE_BYTES = 1 << 20 };

fth_status fth_record_read_run(const char *run_folder, json_t **run)
{
    fth_status status = FTH_OK;
    char *path = fth_path_join(run_folder, "run.json");
    char *text = NULL;
    size_t size = 0;
    json_error_t error;

    *run = NULL;
    FTH_REQUIRE(fth_file_exists(path), FTH_INVALID, "%s is not a run: it has no run.json", run_folder);
    FTH_TRY(fth_file_read_all(path, MAX_RUN_JSON_BYTES, &text, &size));
    *run = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    FTH_REQUIRE(*run, FTH_CORRUPT, "%s line %d: %s", path, error.line, error.text);
    if (!json_is_object(*run)) {
        json_decref(*run);
        *run = NULL;
        status = fth_fail(FTH_CORRUPT, "%s is not a JSON object", path);
    }

out:
    free(text);
    free(path);
    return status;
}

/* ---- one event at a time ---- */

static double number_of(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static int64_t integer_of(const json_t *event, const char *key, int64_t fallback)
{
    const json_t *value = json_object_get(event, key);
    return json_is_integer(value) ? json_integer_value(value) : fallback;
}

typedef struct reader {
    fth_record_summary *summary;
    size_t training_capacity, validation_capacity, machine_capacity;
    double machine_s;                      /* of its machine's time, when the event being read was written */
    double utilization_sum, utilization_s; /* of the accelerator, weighted by the time since the event before */
    bool waits_are_known;                  /* some event had data_wait_s: a trainer's, not a parameter server's */
} reader;

static fth_status add_point(const reader *r, fth_record_series *series, size_t *capacity, fth_record_point point)
{
    point.machine_s = r->machine_s;
    point.machine = r->summary->machine_count > 0 ? r->summary->machine_count - 1 : 0;
    fth_status status = fth_grow(&series->points, series->count, capacity, sizeof point);
    if (status == FTH_OK)
        series->points[series->count++] = point;
    return status;
}

static void drop_after(fth_record_series *series, int64_t step)
{
    while (series->count > 0 && series->points[series->count - 1].step > step)
        series->count--;
}

/* Totals from the start of the run: the last event that has them counts. */
static void take_totals(fth_record_summary *summary, const json_t *event)
{
    const struct {
        const char *key;
        double *place;
    } meters[] = {
        {"elapsed_s", &summary->elapsed_s},
        {"data_wait_s", &summary->data_wait_s},
        {"decode_s", &summary->decode_s},
        {"compute_s", &summary->compute_s},
        {"evaluate_s", &summary->evaluate_s},
        {"checkpoint_s", &summary->checkpoint_s},
        {"accelerator_s", &summary->accelerator_s},
        {"fetch_s", &summary->fetch_s},
        {"read_s", &summary->read_s},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(meters); i++) {
        double value = number_of(event, meters[i].key);
        if (isfinite(value))
            *meters[i].place = value;
    }
    summary->samples = integer_of(event, "samples", summary->samples);
}

/* Nothing is dropped here: the accelerator also did the work that a resume undid. */
static void take_utilization(reader *r, const json_t *event)
{
    double utilization = number_of(event, "accelerator_utilization");
    double seconds = number_of(event, "elapsed_s") - r->summary->elapsed_s;
    if (!isfinite(utilization) || !(seconds > 0))
        return;
    r->utilization_sum += utilization * seconds;
    r->utilization_s += seconds;
}

static fth_status read_step(reader *r, const json_t *event)
{
    fth_record_summary *summary = r->summary;
    int64_t step = integer_of(event, "step", 0);
    int64_t steps = summary->steps >= 0 && step > summary->steps ? step - summary->steps
                                                                 : 0; /* since the event before, or the resume */
    take_utilization(r, event);
    take_totals(summary, event);
    summary->steps = step;
    return add_point(r, &summary->training, &r->training_capacity,
                     (fth_record_point){.step = step,
                                        .steps = steps,
                                        .epoch = number_of(event, "epoch"),
                                        .elapsed_s = number_of(event, "elapsed_s"),
                                        .loss = number_of(event, "loss"),
                                        .accuracy = number_of(event, "accuracy"),
                                        .learning_rate = number_of(event, "learning_rate"),
                                        .samples_per_s = number_of(event, "samples_per_s")});
}

/* At the end of an epoch, or within it. */
static bool is_validation(const char *name)
{
    return strcmp(name, "epoch") == 0 || strcmp(name, "validation") == 0;
}

static fth_status read_validation(reader *r, const json_t *event)
{
    fth_record_point point = {.step = integer_of(event, "step", 0),
                              .epoch = number_of(event, "epoch"),
                              .elapsed_s = number_of(event, "elapsed_s"),
                              .loss = number_of(event, "validation_loss"),
                              .accuracy = number_of(event, "validation_accuracy"),
                              .learning_rate = NAN,
                              .samples_per_s = number_of(event, "samples_per_s")};
    if (isfinite(point.elapsed_s))
        r->summary->elapsed_s = point.elapsed_s;
    if (!isfinite(point.loss))
        return FTH_OK;
    return add_point(r, &r->summary->validation, &r->validation_capacity, point);
}

/* A run that ends within an epoch was validated there too. */
static fth_status read_end(reader *r, const json_t *event)
{
    fth_record_summary *summary = r->summary;
    const fth_record_series *known = &summary->validation;
    take_totals(summary, event);
    summary->steps = integer_of(event, "steps", summary->steps);
    fth_record_point point = {.step = summary->steps,
                              .epoch = number_of(event, "epochs"),
                              .elapsed_s = summary->elapsed_s,
                              .loss = number_of(event, "loss"),
                              .accuracy = number_of(event, "accuracy"),
                              .learning_rate = NAN,
                              .samples_per_s = number_of(event, "samples_per_s")};
    if (!isfinite(point.loss) || (known->count > 0 && known->points[known->count - 1].step >= point.step))
        return FTH_OK;
    return add_point(r, &summary->validation, &r->validation_capacity, point);
}

static void read_resume(reader *r, const json_t *event)
{
    fth_record_summary *summary = r->summary;
    int64_t step = integer_of(event, "step", 0);
    drop_after(&summary->training, step);
    drop_after(&summary->validation, step);
    for (size_t i = json_array_size(summary->events); i-- > 0;) {
        const json_t *earlier = json_array_get(summary->events, i);
        const char *name = json_string_value(json_object_get(earlier, "event"));
        bool undone = strcmp(name, "checkpoint") == 0 || strcmp(name, "best") == 0 || is_validation(name);
        if (undone && integer_of(earlier, "step", 0) > step)
            json_array_remove(summary->events, i);
    }
    summary->steps = step;
    summary->resumes++;
    take_totals(summary, event);
}

static fth_status read_event(reader *r, json_t *event)
{
    fth_record_summary *summary = r->summary;
    const char *name = json_string_value(json_object_get(event, "event"));
    if (!name)
        return FTH_OK;

    fth_status status = fth_record_follow_machine(summary, &r->machine_capacity, name, event, &r->machine_s);
    if (status != FTH_OK)
        return status;
    int64_t memory = integer_of(event, "peak_memory_bytes", 0);
    if (memory > summary->peak_memory_bytes)
        summary->peak_memory_bytes = memory;
    memory = integer_of(event, "accelerator_memory_bytes", 0);
    if (memory > summary->accelerator_memory_bytes)
        summary->accelerator_memory_bytes = memory;
    r->waits_are_known = r->waits_are_known || json_object_get(event, "data_wait_s");
    bool is_end = strcmp(name, "end") == 0;
    bool is_late = strcmp(name, "invocation") == 0; /* a function that learned of the end, and then ended */
    if (!is_late) {
        json_decref(summary->end);
        summary->end = is_end ? json_incref(event) : NULL; /* whatever else follows an end reopens the run */
    }

    if (strcmp(name, "step") == 0)
        return read_step(r, event);
    if (strcmp(name, "resume") == 0)
        read_resume(r, event);
    else if (strcmp(name, "interrupted") == 0)
        take_totals(summary, event);
    if (json_array_append(summary->events, event) != 0)
        return fth_fail(FTH_NO_MEMORY, "no memory for the events of %s", summary->folder);
    if (is_end)
        return read_end(r, event);
    return is_validation(name) ? read_validation(r, event) : FTH_OK;
}

/* The last of the "best" events that count. */
static void find_kept(fth_record_summary *summary)
{
    for (size_t i = json_array_size(summary->events); i > 0 && !summary->kept.by; i--) {
        const json_t *event = json_array_get(summary->events, i - 1);
        const char *by = json_string_value(json_object_get(event, "by"));
        if (strcmp(json_string_value(json_object_get(event, "event")), "best") == 0)
            summary->kept = (fth_record_best){.step = integer_of(event, "step", 0),
                                              .loss = number_of(event, "validation_loss"),
                                              .accuracy = number_of(event, "validation_accuracy"),
                                              .by = by ? by : "loss"};
    }
}

static void summarize(const reader *r)
{
    fth_record_summary *summary = r->summary;
    summary->best_loss = summary->best_accuracy = summary->last_loss = summary->last_accuracy = NAN;
    for (size_t i = 0; i < summary->validation.count; i++) {
        const fth_record_point *point = &summary->validation.points[i];
        summary->best_loss = fmin(summary->best_loss, point->loss); /* a NAN loses */
        summary->best_accuracy = fmax(summary->best_accuracy, point->accuracy);
        summary->last_loss = point->loss;
        summary->last_accuracy = point->accuracy;
    }
    double training_s = r->waits_are_known ? summary->data_wait_s + summary->compute_s : summary->elapsed_s;
    summary->samples_per_s = training_s > 0 ? (double)summary->samples / training_s : NAN;
    summary->finished = summary->end != NULL;
    summary->test_loss = number_of(summary->end, "test_loss");
    summary->test_accuracy = number_of(summary->end, "test_accuracy");
    find_kept(summary);
}

fth_status fth_record_read_events(const char *text, size_t size, fth_record_summary *summary)
{
    reader r = {.summary = summary};
    for (size_t at = 0; at < size;) {
        const char *newline = memchr(text + at, '\n', size - at);
        if (!newline)
            break; /* torn by a kill, or being written right now */
        size_t length = (size_t)(newline - (text + at));
        json_t *event = length <= MAX_LINE_BYTES ? json_loadb(text + at, length, 0, NULL) : NULL;
        at += length + 1;
        fth_status status = json_is_object(event) ? read_event(&r, event) : FTH_OK;
        json_decref(event);
        if (status != FTH_OK)
            return status;
    }
    summarize(&r);
    summary->accelerator_utilization = r.utilization_s > 0 ? r.utilization_sum / r.utilization_s : NAN;
    return fth_record_find_nodes(summary);
}

fth_status fth_record_read(const char *run_folder, fth_record_summary *summary)
{
    fth_status status = FTH_OK;
    char *path = fth_path_join(run_folder, "events.jsonl");
    const void *bytes = NULL;
    size_t size = 0;

    *summary = (fth_record_summary){0};
    summary->folder = fth_format("%s", run_folder);
    summary->events = json_array();
    FTH_REQUIRE(summary->events, FTH_NO_MEMORY, "no memory for the events of %s", run_folder);
    FTH_TRY(fth_record_read_run(run_folder, &summary->run));
    const char *id = json_string_value(json_object_get(summary->run, "id"));
    summary->id = fth_format("%s", id ? id : run_folder);
    if (fth_file_exists(path))
        FTH_TRY(fth_file_map(path, &bytes, &size));
    FTH_TRY(fth_record_read_events(bytes, size, summary));

out:
    fth_file_unmap(bytes, size);
    free(path);
    if (status != FTH_OK)
        fth_record_release(summary);
    return status;
}

void fth_record_release(fth_record_summary *summary)
{
    free(summary->folder);
    free(summary->id);
    free(summary->training.points);
    free(summary->validation.points);
    json_decref(summary->run);
    json_decref(summary->end);
    json_decref(summary->events);
    fth_record_release_machines(summary);
    fth_record_release_nodes(summary);
    *summary = (fth_record_summary){0};
}
