/* See spending.h. */
#include "train/loop/spending.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "cost/cost.h"
#include "spot/spot.h"

static const double identify_for_s = 1;
enum { FIRST_STEPS = 3 }; /* of a process: they are slower */

/* How long steps, validations and saves take. */
typedef struct measured {
    double looked_at_s, step_s, validate_s, save_s; /* what the next ones may take; 0: unknown */
    double steps_s;                                 /* of the measured steps after the first few, */
    int64_t steps;                                  /* and how many were measured, including those */
    fth_meters meters;                              /* when last looked at */
} measured;

struct fth_spending {
    char host[128];
    fth_machine_identity machine; /* cloud "": the user's own machine, or unknown. The thread's while `identifying` */
    fth_price_answer price;       /* usd_per_hour NAN: not known */
    double process_began_s;       /* fth_clock_boot_seconds() */
    double waited_s, previous_seen_s, previous_process_s; /* see fth_spending_set_takeover() */
    double before_usd;                                    /* by earlier machines */
    double budget_usd;                                    /* 0: none */
    struct {
        double usd_per_hour; /* of all machines whose prices are known */
        double since_s;      /* of the process */
        double usd;          /* until then */
        bool known;          /* there was a group */
    } others;                /* machines of the same group */
    fth_workload workload;
    measured pace;

    pthread_t thread; /* asks the metadata service */
    bool identifying; /* it is to be joined */
};

fth_status fth_spending_create(fth_spending **spending)
{
    fth_status status = fth_allocate(1, sizeof **spending, spending);
    if (status != FTH_OK)
        return status;
    (*spending)->process_began_s = fth_clock_boot_seconds() - fth_clock_process_seconds();
    (*spending)->price.usd_per_hour = NAN;
    gethostname((*spending)->host, sizeof(*spending)->host - 1);
    return FTH_OK;
}

static void end_identify(fth_spending *spending)
{
    if (spending->identifying)
        pthread_join(spending->thread, NULL);
    spending->identifying = false;
}

void fth_spending_free(fth_spending *spending)
{
    if (spending)
        end_identify(spending);
    free(spending);
}

void fth_spending_set_takeover(fth_spending *spending, double waited_s, double previous_seen_s,
                               double previous_process_s)
{
    spending->waited_s = waited_s;
    spending->previous_seen_s = previous_seen_s;
    spending->previous_process_s = previous_process_s;
}

static double process_seconds(const fth_spending *spending);

void fth_spending_begin_to_lead(fth_spending *spending)
{
    spending->waited_s = process_seconds(spending);
}

void fth_spending_set_workload(fth_spending *spending, fth_workload workload)
{
    spending->workload = workload;
}

/* ---- which machine ---- */

static bool file_contains(const char *path, const char *text)
{
    char line[128] = "";
    FILE *file = fopen(path, "r");
    bool found = file && fgets(line, sizeof line, file) && strstr(line, text);
    if (file)
        fclose(file);
    return found;
}

static bool may_be_in_a_cloud(const char *watch)
{
    static const char *const endpoints[] = {"FARTHING_AWS_METADATA", "FARTHING_GCP_METADATA",
                                            "FARTHING_AZURE_METADATA"};
    static const struct {
        const char *path, *text;
    } firmware[] = {{"/sys/class/dmi/id/sys_vendor", "Amazon"},
                    {"/sys/class/dmi/id/bios_vendor", "Amazon"},
                    {"/sys/class/dmi/id/bios_version", "amazon"}, /* the older, Xen-based ones */
                    {"/sys/class/dmi/id/product_name", "Google Compute Engine"},
                    {"/sys/class/dmi/id/chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77"}}; /* Azure's */
    if (strstr(watch, "aws") || strstr(watch, "gcp") || strstr(watch, "azure")) /* a file called so costs a second */
        return true;
    for (size_t i = 0; i < FTH_COUNT_OF(endpoints); i++) {
        const char *endpoint = getenv(endpoints[i]);
        if (endpoint && *endpoint && strcmp(endpoint, "off") != 0)
            return true;
    }
    for (size_t i = 0; i < FTH_COUNT_OF(firmware); i++)
        if (file_contains(firmware[i].path, firmware[i].text))
            return true;
    return false;
}

static void *identify(void *context)
{
    fth_spending *spending = context;
    fth_machine_identify(identify_for_s, &spending->machine);
    return NULL;
}

void fth_spending_begin_identify(fth_spending *spending, const char *watch)
{
    if (may_be_in_a_cloud(watch))
        spending->identifying = fth_thread_start(&spending->thread, "identify", identify, spending) == 0;
}

/* ---- its price ---- */

/* A price given on another machine does not apply to this one. */
static void drop_foreign_price(const fth_spending *spending, fth_train_options *options, const json_t *run)
{
    const char *host = json_string_value(json_object_get(json_object_get(run, "machine"), "host"));
    if (*options->price && !fth_options_is_set(&fth_train_option_table, options, "price") && run &&
        (!host || strcmp(host, spending->host) != 0))
        *options->price = '\0';
}

static fth_status look_up_price(fth_spending *spending, const char *prices)
{
    fth_status status = FTH_OK;
    const fth_machine_identity *machine = &spending->machine;
    bool own = !*machine->cloud;
    fth_catalogue catalogue = {0};
    fth_price_query query = {own ? "own" : machine->cloud, own ? spending->host : machine->instance, machine->region,
                             machine->market};
    char *file = fth_catalogue_find(prices);

    if (own && !file) /* the built-in catalogue has no prices of users' own machines */
        goto out;
    FTH_TRY(fth_catalogue_open(prices, &catalogue));
    if (!fth_price_find(&catalogue, &query, &spending->price) && !own)
        fth_log_warning("no price for %s %s in the %s: the run will have no cost; give --price", machine->cloud,
                        *machine->instance ? machine->instance : "(type unknown)", catalogue.name);

out:
    fth_catalogue_release(&catalogue);
    free(file);
    return status;
}

fth_status fth_spending_find_price(fth_spending *spending, fth_train_options *options, const json_t *run)
{
    fth_status status = FTH_OK;

    end_identify(spending);
    drop_foreign_price(spending, options, run);
    if (*options->price) {
        FTH_TRY(fth_usd_parse(options->price, &spending->price.usd_per_hour));
        snprintf(spending->price.source, sizeof spending->price.source, "--price");
    } else {
        FTH_TRY(look_up_price(spending, options->prices));
    }
    if (*options->limits.budget) {
        FTH_TRY(fth_usd_parse(options->limits.budget, &spending->budget_usd));
        FTH_REQUIRE(isfinite(spending->price.usd_per_hour), FTH_INVALID,
                    "--budget needs to know what this machine (%s) costs: give --price 0.526 (dollars an hour), or add "
                    "it to a catalogue (`farthing prices` says how)",
                    *spending->machine.instance ? spending->machine.instance : spending->host);
    }

out:
    return status;
}

/* ---- in events ---- */

void fth_spending_describe_machine(const fth_spending *spending, json_t *object)
{
    const struct {
        const char *key, *text;
    } texts[] = {{"host", spending->host},
                 {"cloud", spending->machine.cloud},
                 {"instance", spending->machine.instance},
                 {"region", spending->machine.region},
                 {"market", spending->machine.market}};
    for (size_t i = 0; i < FTH_COUNT_OF(texts); i++)
        if (*texts[i].text)
            json_object_set_new(object, texts[i].key, json_string(texts[i].text));
    if (isfinite(spending->price.usd_per_hour)) {
        json_object_set_new(object, "price_usd_per_hour", json_real(spending->price.usd_per_hour));
        json_object_set_new(object, "price_source", json_string(spending->price.source));
    }
}

void fth_spending_describe_takeover(const fth_spending *spending, json_t *event)
{
    if (spending->waited_s > 0)
        json_object_set_new(event, "waited_s", json_real(spending->waited_s));
    if (spending->previous_seen_s > 0)
        json_object_set_new(event, "previous_seen_s", json_real(spending->previous_seen_s));
    if (spending->previous_process_s > 0)
        json_object_set_new(event, "previous_process_s", json_real(spending->previous_process_s));
}

/* ---- spent ---- */

fth_status fth_spending_add_up_before(fth_spending *spending, const char *run_folder, json_t *resume)
{
    fth_status status = FTH_OK;
    fth_record_summary record = {0};
    fth_ledger ledger = {0};
    size_t priced = 0;

    FTH_TRY(fth_record_read(run_folder, &record));
    FTH_TRY(fth_record_add_resume(&record, resume));
    FTH_TRY(fth_ledger_make(&record, &ledger));
    spending->before_usd = 0;
    for (size_t i = 0; i + 1 < ledger.count; i++) {
        if (isfinite(ledger.rows[i].usd)) {
            spending->before_usd += ledger.rows[i].usd;
            priced++;
        }
    }
    for (size_t i = 0; i < ledger.node_count; i++)
        if (isfinite(ledger.nodes[i].usd))
            spending->before_usd += ledger.nodes[i].usd;
    if (priced + 1 < ledger.count && isfinite(spending->price.usd_per_hour))
        fth_log_info("%zu of the run's %s so far had no price; the total leaves that cost out",
                     ledger.count - 1 - priced, FTH_COUNTED(ledger.count - 1, "machine"));

out:
    fth_ledger_release(&ledger);
    fth_record_release(&record);
    return status;
}

/* How long this process has run, as precisely as events say it: what they say is what is
 * counted. */
static double process_seconds(const fth_spending *spending)
{
    return round(1e3 * (fth_clock_boot_seconds() - spending->process_began_s)) / 1e3;
}

/* By all machines, when this process has run for so long; NAN: no price is known. */
static double spent_usd(const fth_spending *spending, double process_s)
{
    const double others_usd =
        spending->others.usd + spending->others.usd_per_hour * (process_s - spending->others.since_s) / 3600;
    return spending->before_usd + spending->price.usd_per_hour * (process_s - spending->waited_s) / 3600 + others_usd;
}

/* What all machines of the group cost an hour. */
static double usd_per_hour(const fth_spending *spending)
{
    return spending->price.usd_per_hour + spending->others.usd_per_hour;
}

void fth_spending_take_over(fth_spending *spending)
{
    memset(&spending->others, 0, sizeof spending->others);
    spending->waited_s = process_seconds(spending);
    spending->previous_seen_s = spending->previous_process_s = 0;
}

/* As the record counts it (record_nodes.c): the nodes of the first group were there from the
 * beginning. */
void fth_spending_set_group(fth_spending *spending, const json_t *group)
{
    const json_t *members = json_object_get(group, "members");
    const char *own = json_string_value(json_object_get(json_array_get(members, 0), "node"));
    const double now_s = process_seconds(spending);
    const bool first = !spending->others.known;
    json_t *counted = json_object(), *member;
    double rate = 0;
    size_t i;
    json_array_foreach(members, i, member)
    {
        const char *node = json_string_value(json_object_get(member, "node"));
        const json_t *price = json_object_get(json_object_get(member, "facts"), "price_usd_per_hour");
        if (!node || (own && strcmp(node, own) == 0) || json_object_get(counted, node))
            continue;
        json_object_set_new(counted, node, json_true());
        rate += json_number_value(price); /* 0 if it is not known */
    }
    json_decref(counted);
    if (!first) {
        spending->others.usd += spending->others.usd_per_hour * (now_s - spending->others.since_s) / 3600;
        spending->others.since_s = now_s;
    } else {
        spending->others.since_s = spending->waited_s;
    }
    spending->others.known = true;
    spending->others.usd_per_hour = rate;
}

void fth_spending_describe_spent(const fth_spending *spending, json_t *event)
{
    double process_s = process_seconds(spending), usd = spent_usd(spending, process_s);
    json_object_set_new(event, "process_s", json_real(process_s));
    if (isfinite(usd)) /* a tenth of a millionth of a dollar is near enough */
        json_object_set_new(event, "spent_usd", json_real(round(usd * 1e7) / 1e7));
}

/* ---- the budget ---- */

/* The longest of late: one that took long once is not expected for ever. */
static void follow(double seconds, double *longest)
{
    *longest = fmax(seconds, *longest + 0.1 * (seconds - *longest));
}

/* Measures from the clock and the meters since the look before. */
static void measure(measured *pace, const fth_meters *meters, double now)
{
    double validated = meters->evaluate_s - pace->meters.evaluate_s;
    double saved = meters->checkpoint_s - pace->meters.checkpoint_s;
    if (pace->looked_at_s > 0) {
        double step = fmax(0, now - pace->looked_at_s - validated - saved);
        follow(step, &pace->step_s);
        if (++pace->steps > FIRST_STEPS)
            pace->steps_s += step;
        if (validated > 0)
            follow(validated, &pace->validate_s);
        if (saved > 0)
            follow(saved, &pace->save_s);
    }
    pace->looked_at_s = now;
    pace->meters = *meters;
}

/* Before there was one: an image takes half of what it takes in training, once that is known (first
 * steps are slower; forward alone is a third of the arithmetic), and a disk is slow. */
static double expect_validate_s(const fth_spending *spending)
{
    const measured *pace = &spending->pace;
    const fth_workload *workload = &spending->workload;
    if (pace->validate_s > 0)
        return pace->validate_s;
    if (pace->steps <= FIRST_STEPS)
        return 0;
    return 0.5 * pace->steps_s / (double)(pace->steps - FIRST_STEPS) * (double)workload->validation_images /
           (double)workload->images_per_step;
}

/* Training waits for the background's saves only at the end, so they are not in the meters. */
static double expect_save_s(const fth_spending *spending, double background_s)
{
    const double slow_disk_bytes_per_s = 100e6;
    double known = fmax(spending->pace.save_s, background_s);
    return known > 0 ? known : spending->workload.checkpoint_bytes / slow_disk_bytes_per_s;
}

static const double leaving_s = 0.1, room = 1.5; /* as anything may take longer this time */

fth_deadline fth_spending_budget_deadline(const fth_spending *spending, double save_s)
{
    if (spending->budget_usd <= 0)
        return (fth_deadline){INFINITY};
    double left_s =
        3600 * (spending->budget_usd - spent_usd(spending, process_seconds(spending))) / usd_per_hour(spending);
    return fth_deadline_in(left_s - leaving_s - room * 2 * expect_save_s(spending, save_s));
}

bool fth_spending_budget_is_spent(fth_spending *spending, const fth_meters *meters, double save_s)
{
    if (spending->budget_usd <= 0)
        return false;
    measure(&spending->pace, meters, fth_clock_seconds());
    /* A step, the validation after it, a checkpoint, the model's two files, and leaving. */
    double ahead_s =
        leaving_s + room * (spending->pace.step_s + expect_validate_s(spending) + 2 * expect_save_s(spending, save_s));
    double usd = spent_usd(spending, process_seconds(spending));
    if (usd + usd_per_hour(spending) * ahead_s / 3600 <= spending->budget_usd)
        return false;
    char spent[32], budget[32];
    fth_usd_format(usd, spent, sizeof spent);
    fth_usd_format(spending->budget_usd, budget, sizeof budget);
    fth_log_info("stopping for --budget %s: %s spent, and a further step with its saving would pass it", budget, spent);
    return true;
}
