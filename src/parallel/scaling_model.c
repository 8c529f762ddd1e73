/* The scaling model: buckets laid out on the timeline of a worker's gradients. */
#include "parallel/scaling_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what an exchange costs ---- */

static int rounds_of(fth_scaling_rounds kind, int nodes)
{
    int doublings = 0;
    while (1 << doublings < nodes)
        doublings++;
    switch (kind) {
    case FTH_ROUNDS_TREE: return 2 * doublings;
    case FTH_ROUNDS_RING: return 2 * (nodes - 1);
    default: return 2;
    }
}

fth_scaling_cost fth_scaling_cost_of(const fth_scaling_group *group)
{
    fth_scaling_cost cost = {0};
    double n = group->nodes, m = group->workers_per_node;
    if (group->workers_per_node > 1) {
        /* Each worker sums one part of all contributions, and every worker reads the sum of all
         * parts. */
        cost.fixed_s += 2 * group->local.latency_s;
        cost.seconds_per_byte += 2 * (m - 1) / group->local.bytes_per_s;
    }
    if (group->nodes > 1) {
        cost.fixed_s += rounds_of(group->rounds, group->nodes) * group->link.latency_s;
        cost.seconds_per_byte += 2 * (n - 1) / n / group->link.bytes_per_s;
    }
    return cost;
}

/* ---- a step ---- */

/* Sums of a few bytes in each step: workers agree on going on, and add up their losses. */
enum { SMALL_SUMS = 2 };

/* When float `last` of the gradients, and all before it, are final. */
static double ready_at(const fth_worker_profile *profile, size_t last)
{
    for (size_t i = 0; i < profile->timeline_count; i++) {
        if (profile->timeline[i].ready_floats > last)
            return fmin(profile->timeline[i].seconds, profile->compute_s);
    }
    return profile->compute_s;
}

static size_t count_floats(const fth_worker_profile *profile)
{
    return profile->timeline_count > 0 ? profile->timeline[profile->timeline_count - 1].ready_floats : 0;
}

/* The largest of n normally distributed numbers lies, on average, so many standard deviations above
 * the mean; a fit, within 0.05 for n up to 64 and 0.15 up to 1,000. */
static double slowest_of(int n)
{
    return 1.87 * (sqrt(1 + log(n)) - 1);
}

static fth_scaling_limit find_limit(const fth_step_prediction *step, double alone_s, double bytes_s, double fixed_s)
{
    double most = fmax(step->exposed_s, step->waiting_s), beyond = step->step_s - alone_s;
    if (beyond < 0.01 * step->step_s)
        return FTH_LIMITED_BY_NOTHING;
    if (beyond > 2 * most)
        return FTH_LIMITED_BY_DATA;
    if (step->waiting_s > step->exposed_s)
        return FTH_LIMITED_BY_STRAGGLERS;
    return bytes_s > fixed_s ? FTH_LIMITED_BY_BANDWIDTH : FTH_LIMITED_BY_LATENCY;
}

fth_step_prediction fth_scaling_predict(const fth_worker_profile *profile, const fth_scaling_exchange *exchange,
                                        size_t bucket_floats)
{
    fth_step_prediction step = {0};
    size_t floats = count_floats(profile), bucket = bucket_floats > 0 ? bucket_floats : floats;
    double bytes_s = (double)floats * exchange->bytes_per_float * exchange->cost.seconds_per_byte;
    double fixed_s = exchange->cost.fixed_s, update_s = profile->update_s;
    double half = exchange->sharded_update ? 0.5 : 1; /* summing is one half of an exchange, gathering the other */
    double end = 0;

    if (exchange->workers < 2) {
        bytes_s = fixed_s = 0;
    } else {
        for (size_t begin = 0; begin < floats; begin += bucket) {
            size_t next = floats - begin > bucket ? begin + bucket : floats;
            double share = (double)(next - begin) / (double)floats;
            double takes_s = half * (fixed_s + share * bytes_s);
            end = fmax(end, ready_at(profile, next - 1)) + takes_s;
            step.exchange_s += takes_s;
            step.buckets++;
        }
        step.exposed_s = fmax(0, end - profile->compute_s);
        if (exchange->sharded_update) {
            /* The gathering: 4 bytes a float whatever the gradients' wire has. */
            double gather_s = half * (fixed_s + bytes_s * 4 / exchange->bytes_per_float);
            update_s /= exchange->workers;
            step.exchange_s += gather_s;
            step.exposed_s += gather_s;
        }
        step.exchange_s += SMALL_SUMS * fixed_s;
        step.exposed_s += SMALL_SUMS * fixed_s;
        step.waiting_s = profile->jitter_s * slowest_of(exchange->workers);
    }
    double alone_s = profile->before_s + profile->compute_s + update_s;
    step.step_s = fmax(alone_s + step.exposed_s + step.waiting_s, profile->data_s);
    step.limit = find_limit(&step, alone_s, bytes_s, fixed_s * (step.buckets + SMALL_SUMS));
    return step;
}

size_t fth_scaling_choose_bucket(const fth_worker_profile *profile, const fth_scaling_exchange *exchange)
{
    enum { SMALLEST = 1 << 14 };        /* floats: below, messages cost more than their bytes on any network */
    static const double as_good = 1e-3; /* of a step */
    size_t floats = count_floats(profile), best = floats;
    double best_s = fth_scaling_predict(profile, exchange, floats).step_s;

    for (size_t parts = 2; parts <= 4096 && floats / parts >= SMALLEST; parts += parts < 16 ? 1 : parts / 8) {
        size_t bucket = (floats + parts - 1) / parts;
        double step_s = fth_scaling_predict(profile, exchange, bucket).step_s;
        if (step_s < best_s * (1 - as_good)) {
            best = bucket;
            best_s = step_s;
        }
    }
    return best;
}

const char *fth_scaling_limit_name(fth_scaling_limit limit)
{
    static const char *const names[] = {[FTH_LIMITED_BY_NOTHING] = "nothing",
                                        [FTH_LIMITED_BY_BANDWIDTH] = "bandwidth",
                                        [FTH_LIMITED_BY_LATENCY] = "latency",
                                        [FTH_LIMITED_BY_STRAGGLERS] = "stragglers",
                                        [FTH_LIMITED_BY_DATA] = "data"};
    return names[limit];
}

/* ---- links as text ---- */

typedef struct unit {
    const char *name;
    double factor;
} unit;

static const unit rates[] = {{"Gbit", 1e9 / 8}, {"Mbit", 1e6 / 8}, {"kbit", 1e3 / 8}, {"GB", 1e9}, {"MB", 1e6}};
static const unit times[] = {{"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6}, {"ms", 1e-3}, {"s", 1}};

/* A number above 0 with one of the units, at the beginning of *text, which moves behind it. */
static bool read_quantity(const char **text, const unit *units, size_t count, double *value)
{
    char *end;
    double number = strtod(*text, &end);
    if (end == *text || !isfinite(number) || number <= 0)
        return false;
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(units[i].name);
        if (strncmp(end, units[i].name, length) == 0 && (end[length] == ',' || end[length] == '\0')) {
            *value = number * units[i].factor;
            *text = end + length;
            return true;
        }
    }
    return false;
}

fth_status fth_link_parse(const char *text, fth_link *link)
{
    fth_status status = FTH_OK;
    const char *at = text;
    *link = (fth_link){.latency_s = 50e-6};
    FTH_REQUIRE(read_quantity(&at, rates, FTH_COUNT_OF(rates), &link->bytes_per_s), FTH_INVALID,
                "a link of \"%s\": expected a rate and a latency, such as 25Gbit,50us (Gbit, Mbit, kbit, GB or MB a "
                "second; us, ms or s)",
                text);
    if (*at == ',')
        at++;
    else
        return FTH_OK;
    FTH_REQUIRE(read_quantity(&at, times, FTH_COUNT_OF(times), &link->latency_s) && *at == '\0', FTH_INVALID,
                "a link of \"%s\": expected a latency behind the comma, such as 50us or 1ms", text);
out:
    return status;
}

void fth_link_format(const fth_link *link, char *text, size_t size)
{
    double bits = 8 * link->bytes_per_s;
    const char *rate = bits >= 1e9 ? "Gbit" : bits >= 1e6 ? "Mbit" : "kbit";
    const char *time = link->latency_s < 1e-3 ? "us" : link->latency_s < 1 ? "ms" : "s";
    snprintf(text, size, "%.4g%s,%.4g%s",
             bits / (*rate == 'G'   ? 1e9
                     : *rate == 'M' ? 1e6
                                    : 1e3),
             rate,
             link->latency_s * (*time == 'u'   ? 1e6
                                : *time == 'm' ? 1e3
                                               : 1),
             time);
}
