/* Trainings: see farthing/training.h. The options are the program's, in its table; what runs is
 * fth_train(). */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_internal.h"
#include "parallel/parallel.h"
#include "train/train.h"

struct fth_training {
    fth_train_options options;
    fth_progress_function on_progress;
    fth_event_function on_event;
    void *progress_context, *event_context;
    fth_train_outcome outcome;
    fth_training_result stopped; /* how far a run came that was stopped or failed: epochs, seconds, steps */
    char *last_model, *best_model;
    fth_training_result result;

    pthread_mutex_t mutex; /* of `running` */
    bool running;
    fth_stop stop; /* of the run that is running */
};

static const fth_training_result no_result = {.loss = NAN,
                                              .accuracy = NAN,
                                              .best_loss = NAN,
                                              .best_accuracy = NAN,
                                              .epochs = NAN,
                                              .seconds = NAN,
                                              .samples_per_s = NAN};

fth_status fth_training_create(fth_training **result)
{
    fth_status status = FTH_OK;
    fth_training *training = NULL;

    FTH_TRY(fth_api_check_not_null(result, "the place for the training"));
    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *training, &training));
    pthread_mutex_init(&training->mutex, NULL);
    training->result = training->stopped = no_result;
    FTH_TRY(fth_options_set_defaults(&fth_train_option_table, &training->options));
    *result = training;
    training = NULL;

out:
    fth_training_free(training);
    return status;
}

/* What the run before left. */
static void forget_result(fth_training *training)
{
    training->result = training->stopped = no_result;
    fth_train_outcome_release(&training->outcome);
    training->outcome = (fth_train_outcome){0};
    free(training->last_model);
    free(training->best_model);
    training->last_model = training->best_model = NULL;
}

void fth_training_free(fth_training *training)
{
    if (!training)
        return;
    forget_result(training);
    fth_options_release(&fth_train_option_table, &training->options);
    pthread_mutex_destroy(&training->mutex);
    free(training);
}

/* ---- options ---- */

/* What was set last counts: a network or arrays that options no longer name are left out. */
static void drop_renamed(fth_train_options *options)
{
    fth_train_own *own = &options->own;
    if (own->network && strcmp(options->model, own->network->name) != 0)
        own->network = NULL;
    if (own->images && strcmp(options->data.address, own->images->name) != 0)
        own->images = NULL;
}

/* FTH_INVALID for options of other commands, and of the program's output. */
static fth_status check_is_for_training(const fth_option_table *table, const char *name)
{
    static const char *const of_program[] = {"json", "dry-run"};
    bool refused = false;
    for (size_t i = 0; i < FTH_COUNT_OF(of_program); i++)
        refused = refused || strcmp(name, of_program[i]) == 0;
    for (size_t i = 0; i < table->count; i++)
        refused = refused ||
                  (strcmp(name, table->options[i].name) == 0 && !fth_options_is_for(&table->options[i], FTH_FOR_TRAIN));
    return refused ? fth_fail(FTH_INVALID, "%s is an option of the program, not of a training", name) : FTH_OK;
}

fth_status fth_training_set(fth_training *training, const char *name, const char *value)
{
    fth_status status = FTH_OK;
    const fth_option_table *table = &fth_train_option_table;

    FTH_TRY(fth_api_check_not_null(training, "training"));
    FTH_REQUIRE(name && value, FTH_INVALID, "an option without a name or value");
    FTH_TRY(check_is_for_training(table, name));
    FTH_TRY(fth_options_set(table, &training->options, name, value, "option"));
    if (strcmp(name, "model") == 0)
        training->options.own.network = NULL;
    if (strcmp(name, "data") == 0)
        training->options.own.images = NULL;

out:
    return status;
}

fth_status fth_training_read_file(fth_training *training, const char *path)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_api_check_not_null(training, "training"));
    FTH_REQUIRE(path && *path, FTH_INVALID, "a run file without a name");
    status = fth_options_read_yaml(&fth_train_option_table, &training->options, path);
    drop_renamed(&training->options);

out:
    return status;
}

fth_status fth_training_use_network(fth_training *training, const fth_network *network)
{
    fth_status status = FTH_OK;
    const fth_model *model = NULL;

    FTH_TRY(fth_api_check_not_null(training, "training"));
    FTH_TRY(fth_api_network_model(network, &model));
    FTH_TRY(fth_options_set(&fth_train_option_table, &training->options, "model", model->name, "network"));
    training->options.own.network = model;

out:
    return status;
}

fth_status fth_training_use_data(fth_training *training, const fth_data *data)
{
    fth_status status = FTH_OK;

    FTH_TRY(fth_api_check_not_null(training, "training"));
    FTH_TRY(fth_api_check_not_null(data, "data"));
    FTH_TRY(fth_api_apply_data(data, &training->options));

out:
    return status;
}

/* ---- what happens ---- */

void fth_training_on_progress(fth_training *training, fth_progress_function function, void *context)
{
    if (!training)
        return;
    training->on_progress = function;
    training->progress_context = context;
}

void fth_training_on_event(fth_training *training, fth_event_function function, void *context)
{
    if (!training)
        return;
    training->on_event = function;
    training->event_context = context;
}

static void ask_to_stop(fth_training *training)
{
    fth_stop_ask(&training->stop, FTH_STOP_REQUEST, INFINITY, "program", "the program asked to stop");
}

static void take_progress(void *context, const fth_progress *progress)
{
    fth_training *training = context;
    const fth_training_progress shown = {.epoch = progress->epoch,
                                         .epochs = progress->epochs,
                                         .step = progress->step,
                                         .steps = progress->steps,
                                         .loss = progress->loss,
                                         .accuracy = progress->accuracy,
                                         .samples_per_s = progress->samples_per_s,
                                         .elapsed_s = progress->elapsed_s,
                                         .left_s = progress->left_s,
                                         .validating = progress->evaluating};
    if (training->on_progress && training->on_progress(training->progress_context, &shown) != 0)
        ask_to_stop(training);
}

static fth_event_kind kind_of(const char *name)
{
    static const struct {
        const char *name;
        fth_event_kind kind;
    } kinds[] = {{"start", FTH_EVENT_START},     {"resume", FTH_EVENT_RESUME},
                 {"step", FTH_EVENT_STEP},       {"epoch", FTH_EVENT_EPOCH},
                 {"best", FTH_EVENT_BEST},       {"checkpoint", FTH_EVENT_CHECKPOINT},
                 {"warning", FTH_EVENT_WARNING}, {"interrupted", FTH_EVENT_INTERRUPTED},
                 {"error", FTH_EVENT_ERROR},     {"end", FTH_EVENT_END}};
    for (size_t i = 0; i < FTH_COUNT_OF(kinds); i++)
        if (strcmp(name, kinds[i].name) == 0)
            return kinds[i].kind;
    return FTH_EVENT_OTHER;
}

static double number_of(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static const char *text_of(const json_t *event, const char *key)
{
    return json_string_value(json_object_get(event, key));
}

/* The same number has different names in events of different kinds: docs/RUNS.md. */
static fth_training_event describe_event(const json_t *json, const char *line)
{
    const char *name = text_of(json, "event");
    const fth_event_kind kind = kind_of(name ? name : "");
    const bool is_epoch = kind == FTH_EVENT_EPOCH, is_end = kind == FTH_EVENT_END;
    const json_t *step = json_object_get(json, is_end ? "steps" : "step");
    const char *message = text_of(json, "message"), *file = text_of(json, is_end ? "model" : "file");
    return (fth_training_event){
        .kind = kind,
        .name = name ? name : "",
        .step = json_is_integer(step) ? json_integer_value(step) : -1,
        .epoch = number_of(json, is_end ? "epochs" : "epoch"),
        .loss = is_end ? NAN : number_of(json, is_epoch ? "train_loss" : "loss"),
        .accuracy = is_end ? NAN : number_of(json, is_epoch ? "train_accuracy" : "accuracy"),
        .validation_loss = number_of(json, is_end ? "loss" : "validation_loss"),
        .validation_accuracy = number_of(json, is_end ? "accuracy" : "validation_accuracy"),
        .learning_rate = number_of(json, "learning_rate"),
        .samples_per_s = number_of(json, "samples_per_s"),
        .elapsed_s = number_of(json, "elapsed_s"),
        .file = file,
        .message = message ? message : text_of(json, "reason"),
        .json = line,
    };
}

static void take_event(void *context, const json_t *json)
{
    fth_training *training = context;
    char *line = training->on_event ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    const fth_training_event event = describe_event(json, line);
    if (event.kind == FTH_EVENT_INTERRUPTED || event.kind == FTH_EVENT_ERROR) {
        training->stopped.epochs = event.epoch;
        training->stopped.seconds = event.elapsed_s;
        training->stopped.steps = event.step > 0 ? event.step : 0;
    }
    if (training->on_event && training->on_event(training->event_context, &event) != 0)
        ask_to_stop(training);
    free(line);
}

/* ---- running ---- */

/* Worker processes run this program again; in a library the program is not ours. */
static fth_status check_processes(const fth_train_options *options)
{
    fth_status status = FTH_OK;
    const fth_strategy *strategy = NULL;

    FTH_TRY(fth_strategy_choose(fth_strategies, options, &strategy));
    FTH_REQUIRE(!strategy->starts_processes || !strategy->starts_processes(options), FTH_UNSUPPORTED,
                strategy->supervise
                    ? "the library starts no parameter server: set server to the address of one (farthing serve "
                      "parameters)"
                    : "the library starts no processes: leave out processes, or use workers, which are threads");

out:
    return status;
}

static char *name_model(const fth_train_outcome *outcome, const char *name)
{
    char *path = outcome->run_folder ? fth_path_join(outcome->run_folder, name) : NULL;
    if (path && fth_file_exists(path))
        return path;
    free(path);
    return NULL;
}

static void take_outcome(fth_training *training)
{
    const fth_train_outcome *outcome = &training->outcome;
    const json_t *end = outcome->end;
    const json_t *steps = json_object_get(end, "steps");
    training->last_model = name_model(outcome, "last.safetensors");
    training->best_model = name_model(outcome, "best.safetensors");
    training->result = (fth_training_result){
        .already_finished = outcome->already_finished,
        .loss = number_of(end, "loss"),
        .accuracy = number_of(end, "accuracy"),
        .best_loss = number_of(end, "best_loss"),
        .best_accuracy = number_of(end, "best_accuracy"),
        .epochs = end ? number_of(end, "epochs") : training->stopped.epochs,
        .seconds = end ? number_of(end, "seconds") : training->stopped.seconds,
        .samples_per_s = number_of(end, "samples_per_s"),
        .steps = json_is_integer(steps) ? json_integer_value(steps) : training->stopped.steps,
        .run_id = outcome->id,
        .run_folder = outcome->run_folder,
        .last_model = training->last_model,
        .best_model = training->best_model,
    };
}

static bool begin_running(fth_training *training)
{
    pthread_mutex_lock(&training->mutex);
    bool free_to_run = !training->running;
    if (free_to_run) {
        training->stop = (fth_stop)FTH_STOP_INITIALIZER;
        training->running = true;
    }
    pthread_mutex_unlock(&training->mutex);
    return free_to_run;
}

static void end_running(fth_training *training)
{
    pthread_mutex_lock(&training->mutex);
    training->running = false;
    pthread_mutex_unlock(&training->mutex);
}

fth_status fth_training_run(fth_training *training)
{
    fth_status status = FTH_OK;
    const fth_train_observer observer = {.context = training, .progress = take_progress, .event = take_event};

    if (!training)
        return fth_api_check_not_null(training, "training");
    if (!begin_running(training))
        return fth_fail(FTH_INVALID, "this training is running already");
    forget_result(training);
    FTH_TRY(fth_api_check_process());
    FTH_TRY(fth_train_find_resumed(&training->options));
    FTH_TRY(fth_train_options_resolve(&training->options));
    FTH_TRY(fth_train_options_check(&training->options));
    FTH_TRY(check_processes(&training->options));
    status = fth_train(&training->options, fth_strategies, &observer, &training->stop, &training->outcome);
    take_outcome(training);
    if (status == FTH_OK && training->outcome.interrupted)
        status = fth_fail(FTH_INTERRUPTED, "%s", fth_stop_get(&training->stop).message);

out:
    end_running(training);
    return status;
}

void fth_training_stop(fth_training *training)
{
    if (!training)
        return;
    pthread_mutex_lock(&training->mutex);
    if (training->running)
        ask_to_stop(training);
    pthread_mutex_unlock(&training->mutex);
}

const fth_training_result *fth_training_get_result(const fth_training *training)
{
    return training ? &training->result : NULL;
}
