/* See plan_functions.h. */
#include "cli/runs/plan_functions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cost/function_model.h"
#include "parallel/parallel.h"
#include "parallel/scaling_model.h"
#include "report/report.h"

enum { USUAL_EPOCHS = 3, MOST_ROWS = 3, CELL = 96 };
#define FUNCTION_START_S   0.25 /* a cold native program, with what the platform needs */
#define SERVER_BYTES_PER_S 1.25e9
static const char assumed_link[] = "600Mbit,1ms"; /* what a Lambda function gets */

/* One way of doing the job. */
typedef struct plan_row {
    char name[CELL];
    const char *kind; /* "functions", "on-demand", "spot" */
    fth_job_estimate estimate;
} plan_row;

typedef struct function_plan {
    fth_job_shape job;
    fth_function_fleet fleet;
    double epochs;
    const fth_price *vm;
    fth_profile_result profile;
    fth_catalogue catalogue;
    plan_row rows[MOST_ROWS];
    size_t count, cheapest, fastest;
    double break_even; /* samples up to which functions cost less than the VM on demand */
} function_plan;

/* ---- making it ---- */

static fth_status describe_fleet(const fth_functions_question *question, function_plan *plan)
{
    fth_status status = FTH_OK;
    fth_link link;
    const fth_function_price *price = fth_function_price_find(&plan->catalogue, question->provider, "");

    FTH_REQUIRE(price, FTH_INVALID,
                "%s has no price of %s functions; add a row with `function: %s` (`farthing prices --yaml` shows some)",
                plan->catalogue.name, question->provider, question->provider);
    FTH_REQUIRE(price->mb_per_vcpu > 0, FTH_INVALID,
                "%s does not say how much memory of %s functions brings a vCPU; add mb_per_vcpu to its row",
                plan->catalogue.name, question->provider);
    FTH_TRY(fth_link_parse(*question->link ? question->link : assumed_link, &link));
    plan->fleet = (fth_function_fleet){.price = price,
                                       .functions = question->functions,
                                       .memory_mb = question->memory_mb,
                                       .start_s = FUNCTION_START_S,
                                       .limit_s = strcmp(question->provider, "lambda") == 0 ? 900 : 300,
                                       .latency_s = link.latency_s,
                                       .bytes_per_s = link.bytes_per_s,
                                       .server_bytes_per_s = SERVER_BYTES_PER_S};
out:
    return status;
}

static void describe_job(const fth_functions_question *question, const fth_train_options *options, function_plan *plan)
{
    const fth_profile_result *profile = &plan->profile;
    const fth_worker_profile *worker = &profile->profiles[0];
    const double epoch = (double)profile->training_samples;
    plan->epochs = options->limits.epochs > 0  ? (double)options->limits.epochs
                   : options->limits.steps > 0 ? (double)options->limits.steps * (double)options->batch / epoch
                                               : USUAL_EPOCHS;
    plan->job = (fth_job_shape){.samples = epoch * plan->epochs,
                                .batch = (double)options->batch,
                                .batch_s = worker->compute_s + worker->before_s,
                                .batches_per_push = (double)question->batches_per_push,
                                .push_bytes = 4.0 * (double)profile->parameters,
                                .pull_bytes = 4.0 * (double)profile->parameters};
}

static void add_row(function_plan *plan, const char *kind, const char *name, fth_job_estimate estimate)
{
    plan_row *row = &plan->rows[plan->count];
    *row = (plan_row){.kind = kind, .estimate = estimate};
    snprintf(row->name, sizeof row->name, "%s", name);
    if (estimate.usd < plan->rows[plan->cheapest].estimate.usd)
        plan->cheapest = plan->count;
    if (estimate.seconds < plan->rows[plan->fastest].estimate.seconds)
        plan->fastest = plan->count;
    plan->count++;
}

static fth_status compare(const fth_functions_question *question, function_plan *plan)
{
    fth_status status = FTH_OK;
    char name[CELL];

    snprintf(name, sizeof name, "%d x %s, %.0f MB", plan->fleet.functions, question->provider, plan->fleet.memory_mb);
    add_row(plan, "functions", name, fth_estimate_functions(&plan->job, &plan->fleet));
    plan->vm = fth_estimate_choose_vm(&plan->catalogue, plan->fleet.price->cloud, question->instance, &plan->job,
                                      FTH_VM_START_S);
    FTH_REQUIRE(plan->vm, FTH_INVALID,
                "%s has no on-demand price with `vcpus`%s%s; `farthing prices --yaml` shows some", plan->catalogue.name,
                *question->instance ? " of " : "", question->instance);
    const fth_price *spot = fth_estimate_find_spot(&plan->catalogue, plan->vm);
    snprintf(name, sizeof name, "%s on demand", plan->vm->instance);
    add_row(plan, "on-demand", name, fth_estimate_vm(&plan->job, plan->vm, FTH_VM_START_S));
    snprintf(name, sizeof name, "%s spot", plan->vm->instance);
    if (spot)
        add_row(plan, "spot", name, fth_estimate_vm(&plan->job, spot, FTH_VM_START_S));
    plan->break_even = fth_estimate_break_even(&plan->job, &plan->fleet, plan->vm, FTH_VM_START_S);
out:
    return status;
}

/* ---- in words ---- */

static fth_status print_rows(const function_plan *plan)
{
    fth_status status = FTH_OK;
    fth_table *table = NULL;

    FTH_TRY(FTH_TABLE(&table, "where", ">time", ">cost", ">of it sending", ">invocations", ">exchanging"));
    for (size_t i = 0; i < plan->count; i++) {
        const fth_job_estimate *estimate = &plan->rows[i].estimate;
        char time[CELL] = "never", cost[CELL], sending[CELL] = "", invocations[CELL] = "", share[CELL] = "";
        if (isfinite(estimate->seconds))
            fth_duration_format(estimate->seconds, time, sizeof time);
        fth_usd_format(estimate->usd, cost, sizeof cost);
        if (estimate->invocations > 0) {
            fth_text_count((int64_t)estimate->invocations, invocations, sizeof invocations);
            fth_usd_format(estimate->sending_usd, sending, sizeof sending);
            fth_text_percent(estimate->exchange_share, share, sizeof share);
        }
        FTH_TRY(
            fth_table_add_row(table, (const char *[]){plan->rows[i].name, time, cost, sending, invocations, share}));
    }
    fth_table_print(stdout, table);
out:
    fth_table_free(table);
    return status;
}

static void print_break_even(const function_plan *plan)
{
    char samples[CELL];
    const double epochs = plan->break_even / (double)plan->profile.training_samples;
    if (isinf(plan->break_even)) {
        printf("functions cost less than %s on demand however long the job is\n", plan->vm->instance);
    } else if (plan->break_even <= 0) {
        printf("functions cost more than %s on demand however short the job is\n", plan->vm->instance);
    } else {
        fth_text_count((int64_t)plan->break_even, samples, sizeof samples);
        fth_print_line(stdout, "functions cost less than %s on demand up to about %s samples, %.2g epochs",
                       plan->vm->instance, samples, epochs);
    }
}

static fth_status print_text(const function_plan *plan)
{
    const fth_job_shape *job = &plan->job;
    char size[CELL], samples[CELL];
    fth_status status = FTH_OK;

    fth_text_bytes((int64_t)job->push_bytes, size, sizeof size);
    fth_text_count((int64_t)job->samples, samples, sizeof samples);
    fth_print_line(stdout, "%s on %s: %.4g ms a batch of %.0f on one core here", plan->profile.model,
                   plan->profile.data, 1e3 * job->batch_s, job->batch);
    printf("%s samples (%.3g %s), %s of gradients after every %s of a function\n\n", samples, plan->epochs,
           plan->epochs == 1 ? "epoch" : "epochs", size, FTH_COUNTED((int64_t)job->batches_per_push, "batch"));
    FTH_TRY(print_rows(plan));
    printf("\ncheapest: %s\nfastest:  %s\n", plan->rows[plan->cheapest].name, plan->rows[plan->fastest].name);
    print_break_even(plan);
    fth_print_line(stdout,
                   "assumed: each vCPU as fast as a core here, one for %.0f MB of a function; a VM starts in %.0f s, a "
                   "function in %.2g s, with %.0f MB/s each; a parameter server that is there already, and $%.3g for "
                   "each GB sent to it; prices of: %s",
                   plan->fleet.price->mb_per_vcpu, FTH_VM_START_S, plan->fleet.start_s, plan->fleet.bytes_per_s / 1e6,
                   plan->fleet.price->usd_per_gb_out, plan->catalogue.name);
out:
    return status;
}

/* ---- as JSON ---- */

static void print_json(const function_plan *plan)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < plan->count; i++) {
        const fth_job_estimate *estimate = &plan->rows[i].estimate;
        json_t *row = json_pack("{s:s, s:s}", "where", plan->rows[i].name, "kind", plan->rows[i].kind);
        fth_json_set_number(row, "seconds", estimate->seconds);
        fth_json_set_number(row, "usd", estimate->usd);
        if (i == 0) {
            fth_json_set_number(row, "invocations", estimate->invocations);
            fth_json_set_number(row, "gb_s", estimate->gb_s);
            fth_json_set_number(row, "sending_usd", estimate->sending_usd);
            fth_json_set_number(row, "exchange_share", estimate->exchange_share);
        }
        json_array_append_new(rows, row);
    }
    json_t *json = json_pack(
        "{s:o, s:o, s:f, s:f, s:f, s:f, s:f, s:o, s:s, s:s}", "model", fth_cli_json_text(plan->profile.model), "data",
        fth_cli_json_text(plan->profile.data), "samples", plan->job.samples, "epochs", plan->epochs, "batch_s",
        plan->job.batch_s, "push_bytes", plan->job.push_bytes, "batches_per_push", plan->job.batches_per_push, "rows",
        rows, "cheapest", plan->rows[plan->cheapest].kind, "fastest", plan->rows[plan->fastest].kind);
    fth_json_set_number(json, "break_even_samples", plan->break_even); /* left out: always cheaper */
    fth_cli_print_json_new(json);
}

fth_status fth_cli_plan_functions(const fth_functions_question *question, fth_train_options *options, fth_stop *stop)
{
    fth_status status = FTH_OK;
    const fth_strategy *strategy = NULL;
    const fth_model *model = NULL;
    function_plan plan = {0};

    FTH_TRY(fth_catalogue_open(options->prices, &plan.catalogue));
    FTH_TRY(describe_fleet(question, &plan));
    FTH_TRY(fth_strategy_find(fth_strategies, "single", &strategy));
    options->threads = 1; /* what one vCPU does */
    FTH_TRY(
        fth_worker_profile_measure(options, strategy, &options->batch, 1, question->profile_s, stop, &plan.profile));
    FTH_TRY(fth_model_find(plan.profile.model, &model));
    FTH_REQUIRE(!model->build_text, FTH_INVALID, "%s is a model for text, which functions do not train; see --nodes",
                model->name);
    describe_job(question, options, &plan);
    FTH_TRY(compare(question, &plan));
    if (question->json)
        print_json(&plan);
    else
        FTH_TRY(print_text(&plan));
out:
    fth_profile_result_release(&plan.profile);
    fth_catalogue_release(&plan.catalogue);
    return status;
}
