/* The training job: a worker of a parameter server that ends in time.
 *
 *     register --> model --> take a shard --> fetch it --> [pull, compute, push]... --> the next,
 *                              ^                                |                    unregister
 *                              +------------ "lease" -----------+
 *                                 (another worker has the shard now)
 *
 * The server keeps the position of each shard: a push names the samples it covers and counts only
 * if they are the next ones. Whatever ends a function (a deadline, a kill, a lost answer), the next
 * one continues at the right sample, and at most the unpushed samples are computed again.
 *
 * Kept between warm invocations: shards (shard_cache.h), device, engine and plans
 * (train_model.h). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/process.h"
#include "functions/function.h"
#include "functions/memory_limit.h"
#include "functions/self_invocation.h"
#include "functions/shard_batches.h"
#include "functions/shard_cache.h"
#include "functions/train_model.h"
#include "functions/train_time.h"
#include "http/http.h"

#define PATIENCE_S 30.0 /* how long a server that does not answer is retried */

/* Kept between invocations. */
typedef struct train_job {
    fth_shard_cache *shards;
    fth_train_model *model;
    int threads;         /* 0: as many as the platform offers */
    uint64_t base_bytes; /* resident before there was a model or data */
} train_job;

/* What an invocation has done. */
typedef struct train_sums {
    int64_t samples, correct, steps, pushes;
    double loss; /* sum over samples */
    double fetch_s, compute_s, wait_s;
    double first_push_s; /* since the invocation (or its process) started; NAN: none */
    uint64_t shard_bytes;
} train_sums;

/* One invocation. */
typedef struct train_run {
    const fth_invocation_event *event;
    train_job *job;
    fth_train_parameters parameters;
    fth_worker_client *client;
    fth_engine *engine;   /* of the job's model, as is the replica; */
    fth_replica *replica; /* both NULL until there is a model */
    fth_shard_lease lease;
    fth_train_time time;
    train_sums sums;
    int64_t version_at_start; /* of the model; until there is one, as the last invocation left it */
    bool finished;            /* the server has no work left */
    const char *stopped;      /* why it ends early: "deadline", "stop"; or NULL */
} train_run;

/* ---- time ---- */

/* Adds the time since `since_s` to *sum, and returns it. */
static double count_time(double since_s, double *sum)
{
    double seconds = fth_clock_seconds() - since_s;
    *sum += seconds;
    return seconds;
}

static bool is_stopped(const train_run *run)
{
    return run->event->stop && run->event->stop->asked;
}

/* Whether the run must end: there is no time for another batch. */
static bool must_end(train_run *run)
{
    if (is_stopped(run))
        run->stopped = "stop";
    else if (!fth_train_time_fits_batch(&run->time, fth_clock_seconds()))
        run->stopped = "deadline";
    return run->stopped != NULL;
}

/* A request abandoned at the end of the time is not a failure: the server knows whether it arrived.
 * All FTH_TIMEOUT are of this kind, because there is no other deadline. */
static fth_status forgive_the_end(train_run *run, fth_status status)
{
    double end_s = fth_train_time_end(&run->time);
    if (status == FTH_INTERRUPTED && is_stopped(run))
        run->stopped = "stop";
    else if ((status == FTH_TIMEOUT && isfinite(end_s)) || (status == FTH_PEER_LOST && fth_clock_seconds() >= end_s))
        run->stopped = "deadline";
    else
        return status;
    return FTH_OK;
}

/* ---- the server ---- */

static json_t *describe_function(const fth_invocation_event *event)
{
    json_t *json =
        json_pack("{s:s, s:s, s:s}", "provider", event->platform, "function", event->function, "id", event->id);
    if (event->memory_limit_bytes > 0)
        json_object_set_new(json, "memory_mb", json_integer((json_int_t)(event->memory_limit_bytes >> 20)));
    return json;
}

static fth_status register_worker(train_run *run)
{
    const fth_train_parameters *p = &run->parameters;
    json_t *function = describe_function(run->event);
    double since_s = fth_clock_seconds();
    fth_status status = fth_worker_open(&(fth_worker_options){.url = p->server,
                                                              .worker = p->worker,
                                                              .pinned_key = p->server_pin,
                                                              .patience_s = PATIENCE_S,
                                                              .deadline = {fth_train_time_end(&run->time)},
                                                              .stop = run->event->stop,
                                                              .signer = &p->signer,
                                                              .function = function},
                                        &run->client);
    count_time(since_s, &run->sums.wait_s);
    json_decref(function);
    return status;
}

static fth_status pull(train_run *run, fth_push_outcome outcome)
{
    double since_s = fth_clock_seconds();
    fth_status status = fth_replica_pull_next(run->replica, outcome);
    count_time(since_s, &run->sums.wait_s);
    return forgive_the_end(run, status);
}

/* ---- shards ---- */

/* The name of a shard that the parameters bring: the file's name, eight digits of a hash of its
 * address, since file names repeat, and the range. */
static char *name_brought_shard(const fth_train_parameters *p)
{
    char hex[65], file[97];
    char *address = fth_http_harmless_url(p->dataset_url);
    if (!address)
        return NULL;
    fth_hex_sha256(address, strlen(address), hex);
    const char *slash = strrchr(address, '/');
    snprintf(file, sizeof file, "%s", slash ? slash + 1 : address);
    for (char *c = file; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", *c))
            *c = '_';
    free(address);
    return p->first > 0 || p->count > 0 ? fth_format("%s-%.8s-%" PRId64 "-%" PRId64, file, hex, p->first, p->count)
                                        : fth_format("%s-%.8s", file, hex);
}

/* The memory that the model leaves for samples; 0: no known limit. */
static uint64_t count_sample_bytes(const train_run *run)
{
    const uint64_t limit = run->event->memory_limit_bytes;
    const uint64_t taken = run->job->base_bytes + fth_train_model_needed_bytes(run->job->model);
    return limit == 0 ? 0 : limit > taken ? limit - taken : 1;
}

/* Fetches a shard. Image size comes from the model: the files of one shard may all have one size
 * while those of the set do not. */
static fth_status fetch(train_run *run, const fth_shard_request *asked, fth_dataset **dataset, fth_shard_facts *facts)
{
    const fth_normalization *normalization = &fth_worker_get_registration(run->client)->normalization;
    const fth_engine_options *model = fth_engine_get_options(run->engine);
    double since_s = fth_clock_seconds();
    fth_shard_request request = *asked;
    request.normalization = normalization->channels > 0 ? normalization : NULL;
    request.height = model->height;
    request.width = model->width;
    request.max_bytes = count_sample_bytes(run);
    request.deadline = (fth_deadline){fth_train_time_end(&run->time)};
    request.stop = run->event->stop;
    fth_status status = fth_shard_cache_get(run->job->shards, &request, dataset, facts);
    count_time(since_s, &run->sums.fetch_s);
    run->sums.shard_bytes += status == FTH_OK ? facts->received_bytes : 0;
    return status;
}

/* Opens the samples of the lease. */
static fth_status open_lease(train_run *run, fth_dataset *brought, const fth_shard_facts *brought_facts,
                             fth_shard_batches **batches)
{
    fth_status status = FTH_OK;
    fth_dataset *dataset = brought;
    fth_shard_facts facts = {0};
    const fth_shard_lease *lease = &run->lease;

    if (brought) {
        facts = *brought_facts;
    } else {
        FTH_REQUIRE(*lease->url, FTH_CORRUPT, "the parameter server does not say where shard %s is", lease->shard);
        FTH_TRY(fetch(run,
                      &(fth_shard_request){.url = lease->url,
                                           .foreign = !fth_http_is_loopback(run->parameters.server),
                                           .etag = lease->etag,
                                           .first = lease->first,
                                           .count = lease->samples,
                                           .ranged = true},
                      &dataset, &facts));
    }
    FTH_REQUIRE(facts.count >= lease->samples, FTH_CORRUPT, "shard %s has %s, and the parameter server says %" PRId64,
                lease->shard, FTH_COUNTED(facts.count, "sample"), lease->samples);
    FTH_TRY(fth_train_model_check_data(run->job->model, dataset, lease->shard));
    FTH_TRY(fth_shard_batches_open(dataset, lease, run->parameters.batch, batches));

out:
    return status;
}

/* ---- gradients ---- */

/* Computes gradients of samples [from, planned) of the lease's epoch, or as many as there is time
 * for, up to *to. Each batch is weighted by its samples. */
static fth_status compute(train_run *run, fth_shard_batches *batches, int64_t from, int64_t planned, int64_t *to,
                          fth_replica_facts *facts)
{
    fth_status status = FTH_OK;
    double loss = 0;

    *facts = (fth_replica_facts){0};
    for (*to = from; *to < planned && !must_end(run);) {
        double since_s = fth_clock_seconds();
        fth_batch batch;
        fth_step_result result;
        int64_t left = planned - *to;
        FTH_TRY(
            fth_shard_batches_get(batches, *to, left < run->parameters.batch ? left : run->parameters.batch, &batch));
        status = fth_engine_compute(run->engine, &batch,
                                    &(fth_group){.first = facts->samples == 0,
                                                 .last = *to + batch.count == planned,
                                                 .share = (float)((double)batch.count / (double)(planned - from))},
                                    &result);
        FTH_TRY(forgive_the_end(run, status));
        if (run->stopped) /* in the middle of the batch; the batches before it are pushed */
            break;
        *to += batch.count;
        facts->samples += result.samples;
        facts->correct += result.correct;
        loss += result.loss * (double)result.samples;
        run->sums.steps++;
        fth_train_time_note_batch(&run->time, count_time(since_s, &run->sums.compute_s));
    }
    if (facts->samples > 0)
        facts->loss = loss / (double)facts->samples;
    if (*to < planned && facts->samples > 0) /* fewer than the weights assumed */
        facts->scale = (float)((double)(planned - from) / (double)(*to - from));

out:
    return status;
}

static void note_push(train_run *run, const fth_replica_facts *facts)
{
    train_sums *sums = &run->sums;
    if (sums->pushes++ == 0)
        sums->first_push_s = fth_clock_seconds() - run->event->began_s;
    sums->samples += facts->samples;
    sums->correct += facts->correct;
    sums->loss += facts->loss * (double)facts->samples;
}

/* Pushes the gradients of the span and, if there is more to do, pulls. *position moves if the push
 * was accepted; *lost: another worker has the shard now. */
static fth_status hand_in(train_run *run, const fth_replica_facts *facts, const fth_shard_span *span, int64_t *position,
                          bool *lost)
{
    fth_status status = FTH_OK;
    fth_push_outcome outcome = FTH_PUSH_APPLIED;
    fth_replica_facts pushed = *facts;
    double since_s = fth_clock_seconds();

    pushed.span = span;
    if (run->stopped)
        fth_worker_set_deadline(run->client, (fth_deadline){fth_train_time_push_end(&run->time)});
    status = fth_replica_push(run->replica, &pushed, &outcome);
    count_time(since_s, &run->sums.wait_s);
    FTH_TRY(status);
    if (outcome == FTH_PUSH_APPLIED) {
        *position = span->to;
        note_push(run, facts);
    }
    run->finished = outcome == FTH_PUSH_FINISHED;
    *lost = outcome == FTH_PUSH_LEASE;
    if (!run->finished && !run->stopped)
        FTH_TRY(pull(run, outcome));
    fth_train_time_note_push(&run->time, fth_clock_seconds() - since_s);

out:
    return forgive_the_end(run, status);
}

/* Works through the lease, until it or the time ends. */
static fth_status train_lease(train_run *run, fth_shard_batches *batches)
{
    fth_status status = FTH_OK;
    const fth_shard_lease *lease = &run->lease;
    const int64_t group = run->parameters.batch * run->parameters.interval;
    int64_t position = lease->from;
    bool lost = false;

    while (position < lease->to && !lost && !run->finished && !run->stopped) {
        fth_shard_span span = {.epoch = lease->epoch, .from = position};
        fth_replica_facts facts;
        int64_t planned = lease->to - position < group ? lease->to : position + group;
        snprintf(span.name, sizeof span.name, "%s", lease->shard);
        FTH_TRY(compute(run, batches, position, planned, &span.to, &facts));
        if (facts.samples > 0)
            FTH_TRY(hand_in(run, &facts, &span, &position, &lost));
    }

out:
    return status;
}

/* ---- the whole ---- */

/* Takes one shard after another. */
static fth_status work(train_run *run, const fth_shard_offer *offer, fth_dataset *brought,
                       const fth_shard_facts *brought_facts)
{
    fth_status status = FTH_OK;
    fth_shard_batches *batches = NULL;
    fth_shard_answer answer;

    while (!run->finished && !run->stopped && !must_end(run)) {
        double since_s = fth_clock_seconds();
        fth_shard_lease_release(&run->lease);
        status = fth_worker_take_shard(run->client, offer, (fth_deadline){fth_train_time_end(&run->time)}, &run->lease,
                                       &answer);
        count_time(since_s, &run->sums.wait_s);
        FTH_TRY(forgive_the_end(run, status));
        run->finished = !run->stopped && answer == FTH_SHARD_DONE;
        if (run->stopped || answer != FTH_SHARD_TAKEN)
            continue;
        fth_shard_batches_free(batches);
        batches = NULL;
        FTH_TRY(open_lease(run, brought, brought_facts, &batches));
        FTH_TRY(train_lease(run, batches));
    }

out:
    fth_shard_batches_free(batches);
    return forgive_the_end(run, status);
}

/* Platforms assign processor time in proportion to memory: one processor for 1769 MB (Lambda).
 * Threads that share a processor only wait for each other. */
static int count_threads(const train_run *run)
{
    const uint64_t processor_mb = 1769;
    uint64_t given = (run->event->memory_limit_bytes >> 20) / processor_mb, usable = (uint64_t)fth_processors_usable();
    if (run->job->threads > 0)
        return run->job->threads;
    return (int)(given < 1 ? 1 : given < usable ? given : usable);
}

/* Running out of time is not a failure, even before there is a model: a chain of invocations
 * outlasts a server that is away for a while. Only the first invocation fails, so that a wrong
 * address is reported. */
static fth_status train(train_run *run)
{
    fth_status status = FTH_OK;
    fth_dataset *brought = NULL;
    fth_shard_facts facts = {0};
    char *name = NULL;
    const fth_train_parameters *p = &run->parameters;

    FTH_TRY(register_worker(run));
    const double since_s = fth_clock_seconds();
    const uint64_t limit = run->event->memory_limit_bytes, base = run->job->base_bytes;
    const fth_train_resources resources = {.threads = count_threads(run),
                                           .memory_bytes = limit == 0     ? 0
                                                           : limit > base ? limit - base
                                                                          : 1};
    FTH_TRY(fth_train_model_get(run->job->model, p, &resources, run->client, &run->engine, &run->replica));
    fth_engine_set_deadline(run->engine, (fth_deadline){fth_train_time_end(&run->time)}, run->event->stop);
    /* an estimate until the first push: gradients are as large as the weights just pulled */
    fth_train_time_note_push(&run->time, fth_clock_seconds() - since_s);
    run->version_at_start = fth_replica_version(run->replica);
    if (!p->dataset_url) {
        FTH_TRY(work(run, NULL, NULL, NULL));
        goto out;
    }
    FTH_REQUIRE(name = name_brought_shard(p), FTH_NO_MEMORY, "no memory for a shard's name");
    FTH_TRY(fetch(
        run, &(fth_shard_request){.url = p->dataset_url, .first = p->first, .count = p->count, .ranged = p->ranged},
        &brought, &facts));
    FTH_TRY(work(
        run, &(fth_shard_offer){.run = p->continuation.run, .name = name, .samples = facts.count, .epochs = p->epochs},
        brought, &facts));

out:
    free(name);
    return !run->replica && p->continuation.invocations == 0 ? status : forgive_the_end(run, status);
}

/* Reports the usage, which the worker sends when it unregisters. */
static void report_usage(train_run *run, fth_status status, uint64_t *received_bytes, uint64_t *sent_bytes)
{
    if (!run->client)
        return;
    *received_bytes = fth_worker_received_bytes(run->client) + run->sums.shard_bytes;
    *sent_bytes = fth_worker_sent_bytes(run->client);
    json_t *usage = describe_function(run->event);
    fth_json_set_number(usage, "seconds", fth_clock_seconds() - run->event->began_s);
    json_object_set_new(usage, "cold", json_boolean(run->event->cold));
    json_object_set_new(usage, "peak_bytes", json_integer(fth_process_peak_bytes()));
    json_object_set_new(usage, "received_bytes", json_integer((json_int_t)*received_bytes));
    json_object_set_new(usage, "sent_bytes", json_integer((json_int_t)*sent_bytes));
    json_object_set_new(usage, "ended", json_string(status != FTH_OK ? "error" : run->finished ? "done" : "deadline"));
    fth_worker_set_usage(run->client, usage);
    fth_worker_set_deadline(run->client, (fth_deadline){run->time.deadline_s});
}

/* ---- the result ---- */

/* The last version seen of the model. */
static int64_t last_version(const train_run *run)
{
    return run->replica ? fth_replica_version(run->replica) : run->parameters.continuation.version;
}

static fth_status make_result(const train_run *run, uint64_t received_bytes, uint64_t sent_bytes, json_t **result)
{
    const train_sums *sums = &run->sums;
    const double samples = (double)sums->samples;
    const char *worker = run->client ? fth_worker_name(run->client) : run->parameters.worker;
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "job", "train", "worker", worker ? worker : "", "run",
                  run->parameters.continuation.run, "version", (json_int_t)last_version(run), "samples",
                  (json_int_t)sums->samples, "steps", (json_int_t)sums->steps, "pushes", (json_int_t)sums->pushes);
    if (!json)
        return fth_fail(FTH_NO_MEMORY, "no memory for a result");
    fth_json_set_number(json, "loss", sums->loss / samples);
    fth_json_set_number(json, "accuracy", (double)sums->correct / samples);
    fth_json_set_number(json, "seconds", fth_clock_seconds() - run->event->began_s);
    fth_json_set_number(json, "first_push_s", sums->first_push_s);
    fth_json_set_number(json, "fetch_s", sums->fetch_s);
    fth_json_set_number(json, "compute_s", sums->compute_s);
    fth_json_set_number(json, "wait_s", sums->wait_s);
    json_object_set_new(json, "received_bytes", json_integer((json_int_t)received_bytes));
    json_object_set_new(json, "sent_bytes", json_integer((json_int_t)sent_bytes));
    json_object_set_new(json, "peak_memory_bytes", json_integer(fth_process_peak_bytes()));
    json_object_set_new(json, "cold", json_boolean(run->event->cold));
    json_object_set_new(json, "finished", json_boolean(run->finished));
    *result = json;
    return FTH_OK;
}

/* Any new version of the model is progress; a chain without progress for too long ends. */
static fth_status count_idle(train_run *run, fth_train_continuation *next)
{
    fth_status status = FTH_OK;
    const fth_train_continuation *before = &run->parameters.continuation;
    bool moved = run->sums.pushes > 0 || run->version_at_start != before->version || before->invocations == 0;

    *next = *before;
    next->invocations++;
    next->version = last_version(run);
    next->idle = moved ? 0 : before->idle + 1;
    FTH_REQUIRE(next->idle < FTH_MAX_IDLE_INVOCATIONS, FTH_TIMEOUT,
                "%d invocations in a row could not push a gradient before their time was over, and nobody else did: "
                "raise the function's time limit or memory, or lower \"update_intv\" or \"batch_sz_train\"",
                FTH_MAX_IDLE_INVOCATIONS);

out:
    return status;
}

/* Invokes the function again. If that fails, the result still has the continuation. */
static void continue_itself(train_run *run, const json_t *continuation, json_t *result)
{
    char id[FTH_SELF_ID_SIZE] = "";
    json_t *parameters = json_copy((json_t *)run->event->value);
    json_object_set(parameters, "continuation", (json_t *)continuation);
    if (fth_self_invocation_start(run->event, parameters, (fth_deadline){run->time.deadline_s}, id) == FTH_OK) {
        json_object_set_new(result, "continued_by", json_string(id));
    } else {
        fth_log_warning("%s", fth_error_message());
        json_object_set_new(result, "not_continued", json_string(fth_error_message()));
        json_object_set(result, "continuation", (json_t *)continuation);
    }
    json_decref(parameters);
}

/* Adds the continuation to the result, or continues. */
static fth_status add_continuation(train_run *run, json_t *result)
{
    fth_status status = FTH_OK;
    fth_train_continuation next;
    json_t *continuation = NULL;

    FTH_TRY(count_idle(run, &next));
    continuation = fth_train_continuation_save(&next);
    FTH_REQUIRE(continuation, FTH_NO_MEMORY, "no memory for a continuation");
    json_object_set_new(result, "stopped", json_string(run->stopped));
    if (run->parameters.continues_itself && !is_stopped(run))
        continue_itself(run, continuation, result);
    else
        json_object_set(result, "continuation", continuation);

out:
    json_decref(continuation);
    return status;
}

/* ---- the job ---- */

static bool fits(const json_t *value)
{
    return json_object_get(value, "apihost") != NULL;
}

static void close_job(void *state)
{
    train_job *job = state;
    if (!job)
        return;
    fth_train_model_free(job->model);
    fth_shard_cache_free(job->shards);
    free(job);
}

/* Of this user only, as shard_cache.h requires. */
static char *default_folder(void)
{
    const char *temporary = getenv("TMPDIR");
    return fth_format("%s/farthing-%ld", temporary && *temporary ? temporary : "/tmp", (long)geteuid());
}

static fth_status open_job(const fth_function_options *options, void **state)
{
    fth_status status = FTH_OK;
    train_job *job = NULL;
    char *folder = options->cache_folder ? fth_format("%s", options->cache_folder) : default_folder();

    FTH_REQUIRE(folder, FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(fth_allocate(1, sizeof *job, &job));
    FTH_TRY(fth_shard_cache_open(folder, options->cache_bytes, &job->shards));
    FTH_TRY(fth_train_model_create(&job->model));
    job->threads = options->threads;
    job->base_bytes = (uint64_t)fth_process_resident_bytes();
    *state = job;
    job = NULL;

out:
    free(folder);
    close_job(job);
    return status;
}

static fth_status run_job(void *state, const fth_invocation_event *event, json_t **result)
{
    fth_status status = FTH_OK;
    uint64_t received_bytes = 0, sent_bytes = 0;
    json_t *made = NULL;
    train_run run = {.event = event, .job = state, .sums = {.first_push_s = NAN}};

    fth_memory_limit_enforce(event->memory_limit_bytes);
    FTH_TRY(fth_train_parameters_load(event, &run.parameters));
    if (run.parameters.continues_itself)
        FTH_TRY(fth_self_invocation_check(event));
    run.time = (fth_train_time){
        .began_s = event->began_s, .deadline_s = event->deadline_s, .asked_margin_s = run.parameters.margin_s};
    run.version_at_start = run.parameters.continuation.version;
    status = train(&run);
    report_usage(&run, status, &received_bytes, &sent_bytes);
    FTH_TRY(status);
    FTH_TRY(make_result(&run, received_bytes, sent_bytes, &made));
    fth_worker_close(run.client); /* before the next invocation, which may lease the shard that this one frees */
    run.client = NULL;
    if (!run.finished)
        FTH_TRY(add_continuation(&run, made));
    *result = made;
    made = NULL;

out:
    fth_worker_close(run.client);
    fth_shard_lease_release(&run.lease);
    fth_train_parameters_release(&run.parameters);
    json_decref(made);
    return status;
}

const fth_job_kind fth_job_train = {
    .name = "train", .fits = fits, .open = open_job, .run = run_job, .close = close_job};
