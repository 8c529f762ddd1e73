/* What a trainer knows about money: which machine this is, what it costs an hour, what the run has cost so far, and
 * whether the budget leaves room for another step.
 *
 * The metadata service is asked in a thread of its own beside the opening of device and data, for a second at most, and
 * only where one may be: the firmware's names say whether this is a cloud's machine (a few small files), or an endpoint
 * is given by FARTHING_AWS_METADATA or its relatives, or --watch names a cloud. A laptop's run asks nobody.
 *
 *     begin_identify ... (device and data open) ... find_price -> start event, run.json
 *                                                              -> budget_spent, before each step
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "train/trainer_internal.h"

static const double identify_for_s = 1;
enum { FIRST_STEPS = 3 }; /* of a process: slower than the others */

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

void fth_trainer_begin_identify(fth_trainer *trainer)
{
    fth_spending *spending = &trainer->spending;
    spending->process_began_s = fth_clock_boot_seconds() - fth_clock_process_seconds();
    spending->price.usd_per_hour = NAN;
    gethostname(spending->host, sizeof spending->host - 1);
    if (!may_be_in_a_cloud(trainer->options->watch))
        return;
    spending->identifying = fth_thread_start(&spending->thread, identify, spending) == 0;
}

void fth_trainer_end_identify(fth_trainer *trainer)
{
    if (trainer->spending.identifying)
        pthread_join(trainer->spending.thread, NULL);
    trainer->spending.identifying = false;
}

/* ---- its price ---- */

/* A price that was given on another machine, and not now, is not this one's. */
static void drop_foreign_price(fth_trainer *trainer)
{
    fth_train_options *options = &trainer->beginning.options;
    const json_t *machine = json_object_get(trainer->beginning.run, "machine");
    const char *host = json_string_value(json_object_get(machine, "host"));
    if (*options->price && !fth_options_was_given(&fth_train_option_table, options, "price") &&
        trainer->beginning.run && (!host || strcmp(host, trainer->spending.host) != 0))
        *options->price = '\0';
}

static fth_status look_up_price(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    fth_spending *spending = &trainer->spending;
    const fth_machine_identity *machine = &spending->machine;
    bool own = !*machine->cloud;
    fth_catalogue catalogue = {0};
    fth_price_query query = {own ? "own" : machine->cloud, own ? spending->host : machine->instance, machine->region,
                             machine->market};
    char *file = fth_catalogue_find(trainer->options->prices);

    if (own && !file) /* the built-in catalogue knows nothing about anybody's own machines */
        goto out;
    FTH_TRY(fth_catalogue_open(trainer->options->prices, &catalogue));
    if (!fth_price_find(&catalogue, &query, &spending->price) && !own)
        fth_log_warning("no price for %s %s in the %s: the run will have no cost; give --price", machine->cloud,
                        *machine->instance ? machine->instance : "(type unknown)", catalogue.name);

out:
    fth_catalogue_release(&catalogue);
    free(file);
    return status;
}

fth_status fth_trainer_find_price(fth_trainer *trainer)
{
    fth_status status = FTH_OK;
    fth_spending *spending = &trainer->spending;

    fth_trainer_end_identify(trainer);
    drop_foreign_price(trainer);
    if (*trainer->options->price) {
        FTH_TRY(fth_usd_parse(trainer->options->price, &spending->price.usd_per_hour));
        snprintf(spending->price.source, sizeof spending->price.source, "--price");
    } else {
        FTH_TRY(look_up_price(trainer));
    }
    if (*trainer->options->budget) {
        FTH_TRY(fth_usd_parse(trainer->options->budget, &spending->budget_usd));
        FTH_REQUIRE(isfinite(spending->price.usd_per_hour), FTH_INVALID,
                    "--budget needs to know what this machine (%s) costs: give --price 0.526 (dollars an hour), or add "
                    "it to a catalogue (`farthing prices` says how)",
                    *spending->machine.instance ? spending->machine.instance : spending->host);
    }

out:
    return status;
}

/* ---- told ---- */

void fth_trainer_set_machine(const fth_trainer *trainer, json_t *object)
{
    const fth_spending *spending = &trainer->spending;
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

void fth_trainer_set_takeover(const fth_trainer *trainer, json_t *event)
{
    const fth_spending *spending = &trainer->spending;
    if (spending->waited_s > 0)
        json_object_set_new(event, "waited_s", json_real(spending->waited_s));
    if (spending->previous_seen_s > 0)
        json_object_set_new(event, "previous_seen_s", json_real(spending->previous_seen_s));
    if (spending->previous_process_s > 0)
        json_object_set_new(event, "previous_process_s", json_real(spending->previous_process_s));
}

json_t *fth_trainer_describe_machine(const fth_trainer *trainer)
{
    json_t *machine = fth_machine_describe(trainer->device);
    if (machine)
        fth_trainer_set_machine(trainer, machine);
    return machine;
}

/* ---- spent ---- */

fth_status fth_trainer_add_up_before(fth_trainer *trainer, json_t *resume)
{
    fth_status status = FTH_OK;
    fth_spending *spending = &trainer->spending;
    fth_record_summary record = {0};
    fth_ledger ledger = {0};
    size_t priced = 0;

    FTH_TRY(fth_record_read(fth_record_folder(trainer->record), &record));
    FTH_TRY(fth_record_add_resume(&record, resume));
    FTH_TRY(fth_ledger_make(&record, &ledger));
    spending->before_usd = 0;
    for (size_t i = 0; i + 1 < ledger.count; i++) {
        if (isfinite(ledger.rows[i].usd)) {
            spending->before_usd += ledger.rows[i].usd;
            priced++;
        }
    }
    if (priced + 1 < ledger.count && isfinite(spending->price.usd_per_hour))
        fth_log_info("%zu of the run's %s so far had no price; the total leaves that cost out",
                     ledger.count - 1 - priced, FTH_COUNTED(ledger.count - 1, "machine"));

out:
    fth_ledger_release(&ledger);
    fth_record_release(&record);
    return status;
}

/* How long this process has run, as precisely as events say it: what they say is what is counted. */
static double process_seconds(const fth_spending *spending)
{
    return round(1e3 * (fth_clock_boot_seconds() - spending->process_began_s)) / 1e3;
}

/* By all machines, when this process has run for so long; NAN: no price is known. */
static double spent_usd(const fth_spending *spending, double process_s)
{
    return spending->before_usd + spending->price.usd_per_hour * (process_s - spending->waited_s) / 3600;
}

void fth_trainer_set_spent(const fth_trainer *trainer, json_t *event)
{
    double process_s = process_seconds(&trainer->spending), usd = spent_usd(&trainer->spending, process_s);
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

/* How long steps, validations and saves take, from the clock and the meters since the look before. */
static void measure(fth_trainer *trainer, double now)
{
    fth_spending *spending = &trainer->spending;
    const fth_meters *meters = &trainer->position.state.meters;
    double validated = meters->evaluate_s - spending->looked_meters.evaluate_s;
    double saved = meters->checkpoint_s - spending->looked_meters.checkpoint_s;
    if (spending->looked_at_s > 0) {
        double step = fmax(0, now - spending->looked_at_s - validated - saved);
        follow(step, &spending->step_s);
        if (++spending->steps > FIRST_STEPS)
            spending->steps_s += step;
        if (validated > 0)
            follow(validated, &spending->validate_s);
        if (saved > 0)
            follow(saved, &spending->save_s);
    }
    spending->looked_at_s = now;
    spending->looked_meters = *meters;
}

/* Before there was one: an image takes half of what it takes in training, once that is known (first steps are slower;
 * forward alone is a third of the arithmetic), and a disk is slow. */
static double expect_validate_s(const fth_trainer *trainer)
{
    const fth_spending *spending = &trainer->spending;
    double images = (double)fth_dataset_get_info(trainer->dataset)->count[FTH_VALIDATION];
    double images_per_step = (double)(trainer->options->batch * trainer->options->accumulate);
    if (spending->validate_s > 0)
        return spending->validate_s;
    if (spending->steps <= FIRST_STEPS)
        return 0;
    return 0.5 * spending->steps_s / (double)(spending->steps - FIRST_STEPS) * images / images_per_step;
}

static double expect_save_s(const fth_trainer *trainer)
{
    const double slow_disk_bytes_per_s = 100e6;
    double bytes = 4.0 * 4.0 * (double)fth_graph_trainable_count(fth_engine_graph(trainer->engine));
    double known = fmax(trainer->spending.save_s, trainer->saving.save_s); /* training waits for it only at the end */
    return known > 0 ? known : bytes / slow_disk_bytes_per_s;
}

static const double leaving_s = 0.1, room = 1.5; /* as anything may take longer this time */

fth_deadline fth_trainer_budget_deadline(const fth_trainer *trainer)
{
    const fth_spending *spending = &trainer->spending;
    if (spending->budget_usd <= 0)
        return (fth_deadline){INFINITY};
    double left_s =
        3600 * (spending->budget_usd - spent_usd(spending, process_seconds(spending))) / spending->price.usd_per_hour;
    return fth_deadline_in(left_s - leaving_s - room * 2 * expect_save_s(trainer));
}

bool fth_trainer_budget_spent(fth_trainer *trainer)
{
    fth_spending *spending = &trainer->spending;
    if (spending->budget_usd <= 0)
        return false;
    measure(trainer, fth_clock_seconds());
    /* A step, the validation after it, a checkpoint, the model's two files, and leaving. */
    double ahead_s = leaving_s + room * (spending->step_s + expect_validate_s(trainer) + 2 * expect_save_s(trainer));
    double usd = spent_usd(spending, process_seconds(spending));
    if (usd + spending->price.usd_per_hour * ahead_s / 3600 <= spending->budget_usd)
        return false;
    char spent[32], budget[32];
    fth_usd_format(usd, spent, sizeof spent);
    fth_usd_format(spending->budget_usd, budget, sizeof budget);
    fth_log_info("stopping for --budget %s: %s spent, and a further step with its saving would pass it", budget, spent);
    return true;
}

fth_status fth_beginning_check_budget(fth_beginning *beginning)
{
    fth_status status = FTH_OK;
    fth_record_summary record = {0};
    fth_ledger ledger = {0};
    double budget_usd = INFINITY;

    if (!beginning->finished)
        return FTH_OK;
    FTH_TRY(fth_record_read(beginning->folder, &record));
    const char *reason = json_string_value(json_object_get(record.end, "reason"));
    if (!reason || strcmp(reason, "budget") != 0)
        goto out;
    FTH_TRY(fth_ledger_make(&record, &ledger));
    if (*beginning->options.budget)
        FTH_TRY(fth_usd_parse(beginning->options.budget, &budget_usd));
    /* What it ended with is by less than a step short of the budget it had; the same budget means that it is done. */
    const char *before = json_string_value(json_object_get(json_object_get(record.run, "configuration"), "budget"));
    double before_usd = 0;
    if (before && *before)
        FTH_TRY(fth_usd_parse(before, &before_usd));
    beginning->finished = budget_usd <= fmax(before_usd, ledger.priced > 0 ? ledger.usd : 0);
    if (beginning->finished) {
        char spent[32];
        fth_usd_format(ledger.usd, spent, sizeof spent);
        fth_log_info("the run has cost %s, and its budget is spent; a larger --budget carries it on", spent);
    }

out:
    fth_ledger_release(&ledger);
    fth_record_release(&record);
    return status;
}
