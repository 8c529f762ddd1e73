/* farthing plan: predicts whether scaling out pays. Profiles one worker on this machine, and
 * predicts time and cost of a run on several nodes (parallel/scaling_model.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/runs/plan_functions.h"
#include "collective/collective.h"
#include "cost/cost.h"
#include "parallel/link_measurement.h"
#include "parallel/parallel.h"
#include "parallel/scaling_advice.h"
#include "report/report.h"

enum { MOST_SIZES = 32, MOST_NODES = 4096 };

typedef struct plan_options {
    fth_option_bits set;
    char *nodes, *link, *price, *provider, *instance;
    int64_t workers, functions, function_memory_mb, push_every;
    double profile_s;
    bool json;
} plan_options;

static const char assumed_link[] = "10Gbit,50us";

static fth_status check_link(const char *text)
{
    fth_link link;
    return *text ? fth_link_parse(text, &link) : FTH_OK;
}

static fth_status check_price(const char *text)
{
    double usd;
    return *text ? fth_usd_parse(text, &usd) : FTH_OK;
}

/* "1,2,4,8": ascending, each once. */
static fth_status read_nodes(const char *text, int nodes[MOST_SIZES], size_t *count)
{
    fth_status status = FTH_OK;
    const char *at = text;
    *count = 0;
    do {
        char *end;
        long number = strtol(at, &end, 10);
        FTH_REQUIRE(end != at && (*end == ',' || *end == '\0') && number >= 1 && number <= MOST_NODES, FTH_INVALID,
                    "\"%s\": expected numbers of nodes such as 1,2,4,8, each from 1 to %d", text, MOST_NODES);
        FTH_REQUIRE(*count == 0 || number > nodes[*count - 1], FTH_INVALID,
                    "\"%s\": numbers of nodes go upwards, each once", text);
        FTH_REQUIRE(*count < MOST_SIZES, FTH_INVALID, "\"%s\": at most %d sizes", text, MOST_SIZES);
        nodes[(*count)++] = (int)number;
        at = *end == ',' ? end + 1 : end;
    } while (*at || at[-1] == ',');
out:
    return status;
}

static fth_status check_nodes(const char *text)
{
    int nodes[MOST_SIZES];
    size_t count;
    return read_nodes(text, nodes, &count);
}

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, plan_options, member)
static const fth_option rows[] = {
    {ROW("nodes", TEXT, nodes), .fallback = "1,2,4,8", .argument = "N,N,...", .help = "numbers of nodes to compare",
     .check = check_nodes},
    {ROW("link", TEXT, link), .argument = "RATE,LATENCY",
     .help = "network between nodes: bandwidth of each, and one way's latency (25Gbit,50us). Without it, what is "
             "measured between nodes on which a launcher has started this command, or 10Gbit,50us",
     .check = check_link},
    {ROW("workers", INTEGER, workers), .fallback = "1", .argument = "N", .minimum = 1, .maximum = 256,
     .help = "workers on each node; on CPUs they share the cores"},
    {ROW("price", TEXT, price), .argument = "USD",
     .help = "price of a node per hour; default: this machine's, from the catalogue of prices", .check = check_price},
    {ROW("profile-for", DURATION, profile_s), .fallback = "30s", .argument = "TIME",
     .help = "how long to train here to measure it"},
    {ROW("json", SWITCH, json), .help = "print JSON"},
    {ROW("functions", INTEGER, functions), .fallback = "0", .argument = "N", .maximum = 1e5,
     .help = "instead of nodes: compare N functions around a parameter server with a VM", .group = "Functions or a VM"},
    {ROW("function-memory", INTEGER, function_memory_mb), .fallback = "1769", .argument = "MB", .minimum = 1,
     .maximum = 1e6, .help = "memory of each function, which determines its vCPUs as the catalogue says"},
    {ROW("push-every", INTEGER, push_every), .fallback = "8", .argument = "N", .minimum = 1, .maximum = 1e9,
     .help = "batches whose gradients a function sends at once: a function's update_intv"},
    {ROW("provider", TEXT, provider), .fallback = "lambda", .argument = "NAME",
     .help = "provider of the functions: a row of the catalogue of prices (train's --prices)"},
    {ROW("instance", TEXT, instance), .argument = "TYPE",
     .help = "the VM to compare with; default: the cheapest of the catalogue for the job"},
};
static const fth_option_table table = FTH_OPTION_TABLE(rows, plan_options);

/* What is predicted, and from what. */
typedef struct scaling_plan {
    bool helps;              /* this process only helped to measure the link; another one prints the plan */
    const char *link_source; /* "told", "measured", "assumed" */
    const char *price_source;
    fth_scaling_run run;
    fth_profile_result profile;
    int64_t batches[MOST_SIZES + 1]; /* that were profiled, each once */
    size_t batch_count;
    fth_scaling_size sizes[MOST_SIZES];
    size_t count;
    fth_scaling_advice advice;
} scaling_plan;

/* ---- predicting ---- */

static fth_status describe_run(const plan_options *asked, const fth_train_options *options, fth_scaling_run *run)
{
    fth_status status = FTH_OK;
    size_t bucket_bytes = 0;
    *run = (fth_scaling_run){.batch = options->batch,
                             .batch_per_worker = options->peers.batch_per_worker,
                             .samples = INT64_MAX,
                             .accumulate = options->optimizer.accumulate,
                             .rate_rule = options->optimizer.scale_lr == FTH_SCALE_SQRT     ? FTH_RATE_SQRT
                                          : options->optimizer.scale_lr == FTH_SCALE_LINEAR ? FTH_RATE_LINEAR
                                                                                            : FTH_RATE_KEPT,
                             .workers_per_node = (int)asked->workers,
                             .local = {.latency_s = 20e-6, .bytes_per_s = 10e9},
                             .rounds = FTH_ROUNDS_DIRECT,
                             .bytes_per_float = options->peers.wire == FTH_WIRE_F32 ? 4 : 2,
                             .sharded_update = options->peers.shard_update,
                             .usd_per_hour = NAN};
    FTH_TRY(fth_link_parse(*asked->link ? asked->link : assumed_link, &run->link));
    FTH_TRY(fth_bucket_parse(options->peers.bucket, &bucket_bytes));
    run->bucket_floats = bucket_bytes / sizeof(float);
    if (*asked->price)
        FTH_TRY(fth_usd_parse(asked->price, &run->usd_per_hour));
out:
    return status;
}

static size_t find_batch(const scaling_plan *plan, int nodes)
{
    int64_t batch = fth_scaling_worker_batch(&plan->run, nodes);
    size_t i = 0;
    while (i < plan->batch_count && plan->batches[i] != batch)
        i++;
    return i;
}

static void add_batch(scaling_plan *plan, int nodes)
{
    size_t at = find_batch(plan, nodes);
    if (at < plan->batch_count)
        return;
    plan->batches[plan->batch_count++] = fth_scaling_worker_batch(&plan->run, nodes);
}

static fth_scaling_size predict(const scaling_plan *plan, int nodes)
{
    size_t at = find_batch(plan, nodes);
    if (at == plan->batch_count) /* fewer samples than the largest batch */
        at = plan->batch_count - 1;
    return fth_scaling_predict_size(&plan->run, &plan->profile.profiles[at], nodes);
}

/* On CPUs the workers of a node divide its cores. */
static void divide_cores(const plan_options *asked, fth_train_options *options)
{
    int each = fth_processors_usable() / (int)asked->workers;
    if (asked->workers > 1 && options->threads == 0 && strcmp(options->device, "cuda") != 0)
        options->threads = each > 1 ? each : 1;
}

static fth_status make_plan(const plan_options *asked, fth_train_options *options, fth_stop *stop, scaling_plan *plan)
{
    fth_status status = FTH_OK;
    const fth_strategy *strategy = NULL;
    int nodes[MOST_SIZES];

    FTH_TRY(fth_strategy_find(fth_strategies, "data-parallel", &strategy));
    FTH_TRY(read_nodes(asked->nodes, nodes, &plan->count));
    FTH_TRY(describe_run(asked, options, &plan->run));
    plan->link_source = *asked->link ? "told" : "assumed";
    if (!*asked->link) {
        fth_link_measurement measurement;
        FTH_TRY(fth_link_measure(options, stop, &measurement));
        plan->helps = measurement.rank > 0;
        if (plan->helps)
            goto out;
        if (measurement.nodes > 1) {
            plan->run.link = measurement.link;
            plan->link_source = "measured";
        }
    }
    divide_cores(asked, options);
    add_batch(plan, 1);
    for (size_t i = 0; i < plan->count; i++)
        add_batch(plan, nodes[i]);
    FTH_TRY(fth_worker_profile_measure(options, strategy, plan->batches, plan->batch_count, asked->profile_s, stop,
                                       &plan->profile));
    plan->run.samples = plan->profile.training_samples;
    plan->run.learning_rate = plan->profile.learning_rate;
    plan->price_source = *asked->price ? "--price" : plan->profile.price_source;
    if (!*asked->price)
        plan->run.usd_per_hour = plan->profile.usd_per_hour;
    for (size_t i = 0; i < plan->count; i++)
        plan->sizes[i] = predict(plan, nodes[i]);
    fth_scaling_size one = predict(plan, 1);
    fth_scaling_compare(plan->sizes, plan->count, &one);
    plan->advice = fth_scaling_advise(plan->sizes, plan->count);
out:
    return status;
}

/* ---- in words ---- */

/* Advice, depending on what limits a size. */
static const char *find_remedy(const scaling_plan *plan, const fth_scaling_size *size)
{
    switch (size->step.limit) {
    case FTH_LIMITED_BY_BANDWIDTH:
        return plan->run.bytes_per_float > 2 ? "--wire bf16 halves what travels; larger batches exchange less often"
                                             : "larger batches, or --accumulate, exchange less often";
    case FTH_LIMITED_BY_LATENCY: return "larger batches, or --accumulate, exchange less often";
    case FTH_LIMITED_BY_STRAGGLERS: return "steps differ in length on this machine: other work on it?";
    case FTH_LIMITED_BY_DATA:
        return "loading limits: more --loader-threads, a packed set (farthing data pack), or smaller images";
    default: return NULL;
    }
}

/* "4 nodes would be 3.7 times as fast as 1, for 1.08 times the money", of the smallest size. free()
 * it. */
static char *compare_size(const scaling_plan *plan, size_t index, const char *verb)
{
    const fth_scaling_size *size = &plan->sizes[index], *first = &plan->sizes[0];
    return fth_format("%s %s %.2f times as fast as %d, for %.2f times the money", FTH_COUNTED(size->nodes, "node"),
                      verb, first->epoch_s / size->epoch_s, first->nodes,
                      size->nodes * size->epoch_s / (first->nodes * first->epoch_s));
}

static char *explain(const scaling_plan *plan)
{
    const fth_scaling_advice *advice = &plan->advice;
    const char *first = FTH_COUNTED(plan->sizes[0].nodes, "node");
    char *fastest = compare_size(plan, advice->fastest, "would be");
    char *chosen = compare_size(plan, advice->balanced, "are");
    char *why = NULL;
    if (plan->count == 1)
        why = fth_format("%s: no other size was asked for", first);
    else if (!advice->pays)
        why = fth_format("%s: scaling out does not pay; no size takes a tenth less time", first);
    else if (advice->balanced == 0)
        why = fth_format("%s: scaling out costs more than it gains; %s", first, fastest);
    else if (advice->balanced == advice->fastest)
        why = fth_format("%s", chosen);
    else
        why = fth_format("%s; %s", chosen, fastest);
    free(fastest);
    free(chosen);
    return why;
}

static void print_profile(const scaling_plan *plan)
{
    const fth_profile_result *profile = &plan->profile;
    const fth_worker_profile *one = &profile->profiles[0];
    char link[64], price[32], size[32];
    fth_link_format(&plan->run.link, link, sizeof link);
    fth_usd_format(plan->run.usd_per_hour, price, sizeof price);
    fth_text_bytes(4 * profile->parameters, size, sizeof size);
    fth_print_line(stdout, "%s on %s: %s, %s of gradients", plan->profile.model, profile->data, profile->device, size);
    printf("one worker, batch %lld: %.4g ms forward and backward, %.3g ms update, over %s\n",
           (long long)plan->batches[0], 1e3 * one->compute_s, 1e3 * one->update_s,
           FTH_COUNTED(profile->steps[0], "step"));
    for (size_t i = 0; i < profile->count; i++) {
        const fth_worker_profile *each = &profile->profiles[i];
        if (each->jitter_s > 0.1 * each->compute_s) {
            printf("note: steps with a batch of %lld differ by %.0f %% in length; other work on this machine makes the "
                   "prediction worse\n",
                   (long long)plan->batches[i], 100 * each->jitter_s / each->compute_s);
            break;
        }
    }
    printf("link: %s (%s)%s\n", link, plan->link_source,
           strcmp(plan->link_source, "assumed") == 0
               ? "; set it with --link, or measure it by starting this on two nodes with a launcher"
               : "");
    if (isnan(plan->run.usd_per_hour))
        printf("price: unknown; set a node's hourly price with --price\n");
    else
        fth_print_line(stdout, "price: %s per node and hour (%s)", price, plan->price_source);
}

static fth_status print_sizes(const scaling_plan *plan)
{
    enum { COLUMNS = 10, CELL = 40 };
    fth_status status = FTH_OK;
    fth_table *made = NULL;

    FTH_TRY(FTH_TABLE(&made, ">nodes", ">workers", ">batch", ">lr", ">step", ">samples/s", ">efficiency", ">epoch",
                      ">cost/epoch", "limited by"));
    for (size_t i = 0; i < plan->count; i++) {
        const fth_scaling_size *size = &plan->sizes[i];
        char cells[COLUMNS][CELL];
        const char *row[COLUMNS];
        for (size_t c = 0; c < COLUMNS; c++)
            row[c] = cells[c];
        snprintf(cells[0], CELL, "%d", size->nodes);
        snprintf(cells[1], CELL, "%d", size->workers);
        fth_text_count(size->batch, cells[2], CELL);
        snprintf(cells[3], CELL, "%.3g", size->learning_rate);
        snprintf(cells[4], CELL, "%.4g ms", 1e3 * size->step.step_s);
        fth_text_count(llround(size->samples_per_s), cells[5], CELL);
        snprintf(cells[6], CELL, "%.2f", size->efficiency);
        fth_duration_format(size->epoch_s, cells[7], CELL);
        fth_usd_format(size->epoch_usd, cells[8], CELL);
        snprintf(cells[9], CELL, "%s",
                 size->step.limit == FTH_LIMITED_BY_NOTHING ? "" : fth_scaling_limit_name(size->step.limit));
        FTH_TRY(fth_table_add_row(made, row));
    }
    fth_table_print(stdout, made);
out:
    fth_table_free(made);
    return status;
}

static fth_status print_text(const scaling_plan *plan)
{
    const fth_scaling_size *cheapest = &plan->sizes[plan->advice.cheapest],
                           *fastest = &plan->sizes[plan->advice.fastest];
    char epoch[32], price[32], *why = explain(plan);
    print_profile(plan);
    putchar('\n');
    fth_status status = print_sizes(plan);
    fth_usd_format(cheapest->epoch_usd, price, sizeof price);
    fth_duration_format(fastest->epoch_s, epoch, sizeof epoch);
    printf("\ncheapest: %s%s%s\nfastest:  %s, %s an epoch without validation\nchoose:   %s\n",
           FTH_COUNTED(cheapest->nodes, "node"), isnan(cheapest->epoch_usd) ? "" : ", an epoch for ",
           isnan(cheapest->epoch_usd) ? "" : price, FTH_COUNTED(fastest->nodes, "node"), epoch, why ? why : "-");
    const char *remedy = find_remedy(plan, &plan->sizes[plan->count - 1]);
    if (remedy)
        printf("hint:     %s\n", remedy);
    free(why);
    return status;
}

/* ---- as JSON ---- */

static json_t *size_to_json(const fth_scaling_size *size)
{
    json_t *json = json_pack(
        "{s:i, s:i, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:s}", "nodes", size->nodes, "workers", size->workers,
        "batch", (json_int_t)size->batch, "worker_batch", (json_int_t)size->worker_batch, "learning_rate",
        size->learning_rate, "step_s", size->step.step_s, "exposed_s", size->step.exposed_s, "samples_per_s",
        size->samples_per_s, "efficiency", size->efficiency, "epoch_s", size->epoch_s, "bucket_bytes",
        (json_int_t)(size->bucket_floats * sizeof(float)), "limited_by", fth_scaling_limit_name(size->step.limit));
    if (!isnan(size->epoch_usd))
        json_object_set_new(json, "epoch_usd", json_real(size->epoch_usd));
    return json;
}

static json_t *profile_to_json(const scaling_plan *plan)
{
    json_t *all = json_array();
    for (size_t i = 0; i < plan->profile.count; i++) {
        const fth_worker_profile *profile = &plan->profile.profiles[i];
        json_array_append_new(all, json_pack("{s:I, s:I, s:f, s:f, s:f, s:f}", "batch", (json_int_t)plan->batches[i],
                                             "steps", (json_int_t)plan->profile.steps[i], "compute_s",
                                             profile->compute_s, "update_s", profile->update_s, "data_s",
                                             profile->data_s, "jitter_s", profile->jitter_s));
    }
    return all;
}

static void print_json(const scaling_plan *plan)
{
    json_t *sizes = json_array();
    char *why = explain(plan);
    for (size_t i = 0; i < plan->count; i++)
        json_array_append_new(sizes, size_to_json(&plan->sizes[i]));
    json_t *json =
        json_pack("{s:o, s:o, s:s, s:I, s:{s:f, s:f, s:s}, s:o, s:o, s:i, s:i, s:i, s:b, s:s}", "model",
                  fth_cli_json_text(plan->profile.model), "data", fth_cli_json_text(plan->profile.data), "device",
                  plan->profile.device, "parameters", (json_int_t)plan->profile.parameters, "link", "bytes_per_s",
                  plan->run.link.bytes_per_s, "latency_s", plan->run.link.latency_s, "source", plan->link_source,
                  "profiles", profile_to_json(plan), "sizes", sizes, "cheapest",
                  plan->sizes[plan->advice.cheapest].nodes, "fastest", plan->sizes[plan->advice.fastest].nodes,
                  "choose", plan->sizes[plan->advice.balanced].nodes, "pays", plan->advice.pays, "why", why ? why : "");
    if (!isnan(plan->run.usd_per_hour)) {
        json_object_set_new(json, "price_usd_per_hour", json_real(plan->run.usd_per_hour));
        json_object_set_new(json, "price_source", fth_cli_json_text(plan->price_source));
    }
    fth_cli_print_json_new(json);
    free(why);
}

/* ---- the command ---- */

static fth_exit_code plan_run(const plan_options *asked, fth_train_options *options, fth_stop *stop)
{
    fth_status status = FTH_OK;
    scaling_plan *plan = NULL;

    if (asked->functions > 0) {
        status = fth_cli_plan_functions(&(fth_functions_question){.functions = (int)asked->functions,
                                                                  .memory_mb = (double)asked->function_memory_mb,
                                                                  .batches_per_push = asked->push_every,
                                                                  .provider = asked->provider,
                                                                  .instance = asked->instance,
                                                                  .link = asked->link,
                                                                  .profile_s = asked->profile_s,
                                                                  .json = asked->json},
                                        options, stop);
        goto out;
    }
    FTH_TRY(fth_allocate(1, sizeof *plan, &plan));
    FTH_TRY(make_plan(asked, options, stop, plan));
    if (plan->helps)
        goto out;
    if (asked->json)
        print_json(plan);
    else
        FTH_TRY(print_text(plan));
out:
    if (plan)
        fth_profile_result_release(&plan->profile);
    free(plan);
    return fth_cli_exit_code(status);
}

/* A flag that was given but has no meaning with --functions; NULL: none. */
static const char *find_flag_of_nodes(const plan_options *asked)
{
    static const char *const names[] = {"nodes", "workers", "price"};
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++)
        if (fth_options_is_set(&table, asked, names[i]))
            return names[i];
    return NULL;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    const plan_options *asked = options;
    fth_train_options of_run = {0};
    fth_exit_code code;
    const char *of_nodes = find_flag_of_nodes(asked);
    if (asked->functions > 0 && of_nodes)
        return fth_cli_usage(command,
                             "--%s is of nodes; --functions compares with a machine of the catalogue "
                             "(--instance, and --prices of the run)",
                             of_nodes);
    /* FILE.yaml, or what comes after --: train and its flags. */
    if (arguments->count > 1 && strcmp(arguments->positional[0], "train") != 0)
        return fth_cli_usage(command, "one FILE.yaml, or the run after --, as in: farthing plan --nodes 1,2,4 -- train "
                                      "--model resnet18 --data ./photos");
    const fth_invocation job = fth_arguments_job(arguments);
    if (fth_cli_read_job(&job, &of_run, &code))
        code = plan_run(asked, &of_run, arguments->stop);
    fth_options_release(&fth_train_option_table, &of_run);
    return code;
}

const fth_command fth_command_plan = {
    .name = "plan",
    .arguments =
        "[--nodes 1,2,4,8 | --functions N] [--link RATE,LATENCY] [--flag value ...] [FILE.yaml | -- train ...]",
    .summary = "predict a run's speed and cost on several nodes, or in functions",
    .details = "Trains on this machine for half a minute, without keeping anything, and predicts from that and the\n"
               "network between nodes what --strategy data-parallel would take on each number of nodes: step time,\n"
               "efficiency against one node, time and cost of an epoch; and says which number to choose. Nodes are\n"
               "taken to be like this machine.\n"
               "With --functions it says what the run would take and cost in functions around a parameter server,\n"
               "and on a VM on demand or spot, from what one core here does and the catalogue of prices.\n",
    .computes = true,
    .table = &table,
    .stop_words = "stopping",
    .wraps = &fth_command_train,
    .examples =
        (const fth_example[]){
            {"farthing plan --nodes 1,2,4,8 --link 25Gbit,50us run.yaml", "would eight nodes pay?"},
            {"farthing plan --nodes 1,4 --workers 8 --price 24.48 -- train --model resnet50 --data ./photos",
             "nodes of eight GPUs"},
            {"farthing plan --functions 6 --push-every 8 -- train --model mnist-cnn --data mnist --epochs 1",
             "six functions, or a VM?"},
            {0}},
    .run = run,
};
