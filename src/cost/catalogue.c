/* The catalogue of prices: a YAML list of flat mappings, one price each, read through libyaml's
 * events, which carry the line numbers. Unknown, missing, duplicate and nested keys are errors: a
 * bill that is wrong because of a typing error is worse than none. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/options.h"
#include "cost/cost.h"

enum { MAX_CATALOGUE_BYTES = 8 << 20 };

extern const char fth_prices_text[]; /* share/prices.yaml, made by cmake/embed.cmake */
extern const size_t fth_prices_text_size;

typedef struct reader {
    const char *name;
    yaml_parser_t parser;
    yaml_event_t event;
    fth_catalogue *catalogue;
    size_t capacity;
    size_t *lines; /* of each price, for the message about duplicates */
    size_t line_capacity;
    size_t function_capacity;
    size_t *function_lines;
    size_t function_line_capacity;
} reader;

/* A row as it is read: a machine's price or a function's, which `instance` or `function` decides.
 * Rates not given are NAN. */
typedef struct price_row {
    char cloud[16], instance[64], function[16], region[64], market[16], date[11];
    double usd_per_hour, vcpus;
    double usd_per_gb_second, usd_per_million_requests, usd_per_gb_out, mb_per_vcpu;
} price_row;

static size_t line_of(const reader *in)
{
    return in->event.start_mark.line + 1;
}

static fth_status next_event(reader *in)
{
    yaml_event_delete(&in->event);
    if (yaml_parser_parse(&in->parser, &in->event))
        return FTH_OK;
    memset(&in->event, 0, sizeof in->event);
    const char *problem = in->parser.problem ? in->parser.problem : "unreadable";
    return fth_fail(FTH_INVALID, "%s line %zu: bad YAML: %s", in->name, in->parser.problem_mark.line + 1, problem);
}

static fth_status require_scalar(const reader *in, const char *what)
{
    const yaml_event_t *event = &in->event;
    if (event->type != YAML_SCALAR_EVENT || event->data.scalar.anchor || event->data.scalar.tag)
        return fth_fail(FTH_INVALID, "%s line %zu: %s must be a single plain value", in->name, line_of(in), what);
    return FTH_OK;
}

/* ---- one row ---- */

static fth_status set_text(const reader *in, const char *key, const char *value, char *place, size_t size)
{
    if (strlen(value) >= size)
        return fth_fail(FTH_INVALID, "%s line %zu: %s is too long: %.40s...", in->name, line_of(in), key, value);
    if (!*value)
        return fth_fail(FTH_INVALID, "%s line %zu: %s is empty; leave it out", in->name, line_of(in), key);
    for (const char *c = value; *c; c++)
        if (!isgraph((unsigned char)*c))
            return fth_fail(FTH_INVALID, "%s line %zu: %s \"%s\" contains a space or an invalid character", in->name,
                            line_of(in), key, value);
    snprintf(place, size, "%s", value);
    return FTH_OK;
}

static fth_status set_choice(const reader *in, const char *key, const char *value, const char *const *choices,
                             char *place, size_t size)
{
    for (size_t i = 0; choices[i]; i++)
        if (strcmp(value, choices[i]) == 0) {
            snprintf(place, size, "%s", value);
            return FTH_OK;
        }
    const char *nearest = fth_nearest_name(value, choices);
    return fth_fail(FTH_INVALID, "%s line %zu: %s cannot be \"%.40s\"; did you mean %s?", in->name, line_of(in), key,
                    value, nearest ? nearest : choices[0]);
}

static fth_status set_date(const reader *in, const char *value, char place[11])
{
    int year = 0, month = 0, day = 0, length = 0;
    bool valid = sscanf(value, "%4d-%2d-%2d%n", &year, &month, &day, &length) == 3 && length == 10 && !value[length] &&
                 year >= 2006 && month >= 1 && month <= 12 && day >= 1 && day <= 31;
    if (!valid)
        return fth_fail(FTH_INVALID, "%s line %zu: date \"%.40s\" is invalid; expected a date like 2026-01-31",
                        in->name, line_of(in), value);
    snprintf(place, 11, "%s", value);
    return FTH_OK;
}

static fth_status set_rate(const reader *in, const char *value, double *usd_per_hour)
{
    if (fth_usd_parse(value, usd_per_hour) != FTH_OK)
        return fth_fail_within(FTH_INVALID, "%s line %zu: usd_per_hour", in->name, line_of(in));
    return FTH_OK;
}

/* A rate of 0 is valid: functions on one's own machines may cost nothing. */
static fth_status set_number(const reader *in, const char *key, const char *value, double *place)
{
    char *end = NULL;
    *place = isdigit((unsigned char)*value) || *value == '.' ? strtod(value, &end) : NAN;
    if (!end || *end || strpbrk(value, "xX") || !isfinite(*place) || *place >= 1e6)
        return fth_fail(FTH_INVALID, "%s line %zu: %s \"%.40s\" is not a number of at least 0", in->name, line_of(in),
                        key, value);
    return FTH_OK;
}

static fth_status set_value(const reader *in, const char *key, price_row *row)
{
    static const char *const clouds[] = {"aws", "gcp", "azure", "own", NULL};
    static const char *const markets[] = {"on-demand", "spot", NULL};
    const struct {
        const char *key;
        char *place;
        size_t size;
        const char *const *choices; /* NULL: any text */
    } texts[] = {{"cloud", row->cloud, sizeof row->cloud, clouds},
                 {"instance", row->instance, sizeof row->instance, NULL},
                 {"function", row->function, sizeof row->function, NULL},
                 {"region", row->region, sizeof row->region, NULL},
                 {"market", row->market, sizeof row->market, markets}};
    const struct {
        const char *key;
        double *place;
    } numbers[] = {{"vcpus", &row->vcpus},
                   {"usd_per_gb_second", &row->usd_per_gb_second},
                   {"usd_per_million_requests", &row->usd_per_million_requests},
                   {"usd_per_gb_out", &row->usd_per_gb_out},
                   {"mb_per_vcpu", &row->mb_per_vcpu}};
    const char *names[FTH_COUNT_OF(texts) + FTH_COUNT_OF(numbers) + 3] = {"usd_per_hour", "date"};
    size_t count = 2;
    const char *value = (const char *)in->event.data.scalar.value;

    if (strcmp(key, "date") == 0)
        return set_date(in, value, row->date);
    if (strcmp(key, "usd_per_hour") == 0)
        return set_rate(in, value, &row->usd_per_hour);
    for (size_t i = 0; i < FTH_COUNT_OF(texts); i++) {
        names[count++] = texts[i].key;
        if (strcmp(key, texts[i].key) == 0)
            return texts[i].choices ? set_choice(in, key, value, texts[i].choices, texts[i].place, texts[i].size)
                                    : set_text(in, key, value, texts[i].place, texts[i].size);
    }
    for (size_t i = 0; i < FTH_COUNT_OF(numbers); i++) {
        names[count++] = numbers[i].key;
        if (strcmp(key, numbers[i].key) == 0)
            return set_number(in, key, value, numbers[i].place);
    }
    const char *nearest = fth_nearest_name(key, names);
    return fth_fail(FTH_INVALID, "%s line %zu: unknown key '%.40s'%s%s%s", in->name, line_of(in), key,
                    nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

static fth_status fail_twice(const reader *in, size_t line, size_t first)
{
    return fth_fail(FTH_INVALID, "%s line %zu: this price was already given on line %zu", in->name, line, first);
}

/* FTH_INVALID where the row has no `missing`, or has `extra`, which belongs to the other kind of
 * price. */
static fth_status check_keys(const reader *in, size_t line, const char *missing, const char *extra, const char *kind)
{
    if (missing)
        return fth_fail(FTH_INVALID, "%s line %zu: this price has no %s", in->name, line, missing);
    if (extra)
        return fth_fail(FTH_INVALID, "%s line %zu: the price of a %s has no %s", in->name, line, kind, extra);
    return FTH_OK;
}

static fth_status add_machine(reader *in, const price_row *row, size_t line)
{
    fth_status status = FTH_OK;
    fth_catalogue *catalogue = in->catalogue;
    fth_price price = {.usd_per_hour = row->usd_per_hour, .vcpus = isnan(row->vcpus) ? 0 : row->vcpus};
    const char *missing = !*row->cloud               ? "cloud"
                          : !*row->instance          ? "instance"
                          : isnan(row->usd_per_hour) ? "usd_per_hour"
                                                     : NULL;
    const char *extra = !isnan(row->usd_per_gb_second)          ? "usd_per_gb_second"
                        : !isnan(row->usd_per_million_requests) ? "usd_per_million_requests"
                        : !isnan(row->usd_per_gb_out)           ? "usd_per_gb_out"
                        : !isnan(row->mb_per_vcpu)              ? "mb_per_vcpu"
                                                                : NULL;

    FTH_TRY(check_keys(in, line, missing, extra, "machine"));
    memcpy(price.cloud, row->cloud, sizeof price.cloud);
    memcpy(price.instance, row->instance, sizeof price.instance);
    memcpy(price.region, row->region, sizeof price.region);
    memcpy(price.date, row->date, sizeof price.date);
    snprintf(price.market, sizeof price.market, "%s", *row->market ? row->market : "on-demand");
    for (size_t i = 0; i < catalogue->count; i++) {
        const fth_price *other = &catalogue->prices[i];
        if (strcmp(other->cloud, price.cloud) == 0 && strcmp(other->instance, price.instance) == 0 &&
            strcmp(other->region, price.region) == 0 && strcmp(other->market, price.market) == 0)
            return fail_twice(in, line, in->lines[i]);
    }
    FTH_TRY(fth_grow(&catalogue->prices, catalogue->count, &in->capacity, sizeof price));
    FTH_TRY(fth_grow(&in->lines, catalogue->count, &in->line_capacity, sizeof *in->lines));
    in->lines[catalogue->count] = line;
    catalogue->prices[catalogue->count++] = price;

out:
    return status;
}

static double known(double rate)
{
    return isnan(rate) ? 0 : rate;
}

static fth_status add_function(reader *in, const price_row *row, size_t line)
{
    fth_status status = FTH_OK;
    fth_catalogue *catalogue = in->catalogue;
    fth_function_price price = {.usd_per_gb_second = row->usd_per_gb_second,
                                .usd_per_million_requests = known(row->usd_per_million_requests),
                                .usd_per_gb_out = known(row->usd_per_gb_out),
                                .mb_per_vcpu = known(row->mb_per_vcpu)};
    const char *missing = !*row->cloud ? "cloud" : isnan(row->usd_per_gb_second) ? "usd_per_gb_second" : NULL;
    const char *extra = *row->instance              ? "instance"
                        : *row->market              ? "market"
                        : !isnan(row->usd_per_hour) ? "usd_per_hour"
                        : !isnan(row->vcpus)        ? "vcpus"
                                                    : NULL;

    FTH_TRY(check_keys(in, line, missing, extra, "function"));
    memcpy(price.cloud, row->cloud, sizeof price.cloud);
    memcpy(price.provider, row->function, sizeof price.provider);
    memcpy(price.region, row->region, sizeof price.region);
    memcpy(price.date, row->date, sizeof price.date);
    for (size_t i = 0; i < catalogue->function_count; i++) {
        const fth_function_price *other = &catalogue->functions[i];
        if (strcmp(other->provider, price.provider) == 0 && strcmp(other->region, price.region) == 0)
            return fail_twice(in, line, in->function_lines[i]);
    }
    FTH_TRY(fth_grow(&catalogue->functions, catalogue->function_count, &in->function_capacity, sizeof price));
    FTH_TRY(fth_grow(&in->function_lines, catalogue->function_count, &in->function_line_capacity,
                     sizeof *in->function_lines));
    in->function_lines[catalogue->function_count] = line;
    catalogue->functions[catalogue->function_count++] = price;

out:
    return status;
}

/* The event is the mapping's start. */
static fth_status read_row(reader *in)
{
    fth_status status = FTH_OK;
    price_row row = {.usd_per_hour = NAN,
                     .vcpus = NAN,
                     .usd_per_gb_second = NAN,
                     .usd_per_million_requests = NAN,
                     .usd_per_gb_out = NAN,
                     .mb_per_vcpu = NAN};
    size_t line = line_of(in);
    char key[40], seen[400] = ",";

    FTH_REQUIRE(in->event.type == YAML_MAPPING_START_EVENT, FTH_INVALID,
                "%s line %zu: expected a price: - {cloud: aws, instance: g4dn.xlarge, usd_per_hour: 0.526}", in->name,
                line);
    for (;;) {
        FTH_TRY(next_event(in));
        if (in->event.type == YAML_MAPPING_END_EVENT)
            break;
        FTH_TRY(require_scalar(in, "a key"));
        char pattern[44];
        snprintf(key, sizeof key, "%s", (const char *)in->event.data.scalar.value);
        snprintf(pattern, sizeof pattern, ",%s,", key);
        FTH_REQUIRE(!strstr(seen, pattern), FTH_INVALID, "%s line %zu: '%s' is given twice in one price", in->name,
                    line_of(in), key);
        if (strlen(seen) + strlen(key) + 2 < sizeof seen)
            strcat(strcat(seen, key), ",");
        FTH_TRY(next_event(in));
        FTH_TRY(require_scalar(in, key));
        FTH_TRY(set_value(in, key, &row));
    }
    FTH_TRY(*row.function ? add_function(in, &row, line) : add_machine(in, &row, line));

out:
    return status;
}

static fth_status read_list(reader *in)
{
    fth_status status = FTH_OK;
    FTH_TRY(next_event(in)); /* the stream's start */
    FTH_TRY(next_event(in));
    FTH_REQUIRE(in->event.type == YAML_DOCUMENT_START_EVENT, FTH_INVALID, "%s holds no prices", in->name);
    FTH_TRY(next_event(in));
    FTH_REQUIRE(
        in->event.type == YAML_SEQUENCE_START_EVENT, FTH_INVALID,
        "%s line %zu: expected a list of prices: lines like - {cloud: aws, instance: g4dn.xlarge, usd_per_hour: 0.526}",
        in->name, line_of(in));
    for (;;) {
        FTH_TRY(next_event(in));
        if (in->event.type == YAML_SEQUENCE_END_EVENT)
            break;
        FTH_TRY(read_row(in));
    }
    FTH_TRY(next_event(in)); /* the document's end */
    FTH_TRY(next_event(in));
    FTH_REQUIRE(in->event.type == YAML_STREAM_END_EVENT, FTH_INVALID,
                "%s line %zu: a second document begins; only one is read", in->name, line_of(in));
out:
    return status;
}

/* ---- the whole ---- */

fth_status fth_catalogue_parse(const char *text, size_t size_bytes, const char *name, fth_catalogue *catalogue)
{
    fth_status status = FTH_OK;
    reader in = {.name = name, .catalogue = catalogue};
    bool parser_made = false;

    *catalogue = (fth_catalogue){.name = fth_format("%s", name)};
    FTH_REQUIRE(!memchr(text, '\0', size_bytes), FTH_INVALID, "%s is not text: it contains a NUL byte", name);
    parser_made = yaml_parser_initialize(&in.parser);
    FTH_REQUIRE(parser_made, FTH_NO_MEMORY, "%s: no memory to read it", name);
    yaml_parser_set_encoding(&in.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&in.parser, (const unsigned char *)text, size_bytes);
    FTH_TRY(read_list(&in));

out:
    yaml_event_delete(&in.event);
    if (parser_made)
        yaml_parser_delete(&in.parser);
    free(in.lines);
    free(in.function_lines);
    return status;
}

static fth_status read_file(const char *path, fth_catalogue *catalogue)
{
    fth_status status = FTH_OK;
    char *text = NULL;
    size_t size = 0;
    *catalogue = (fth_catalogue){0};
    FTH_TRY(fth_file_read_all(path, MAX_CATALOGUE_BYTES, &text, &size));
    FTH_TRY(fth_catalogue_parse(text, size, path, catalogue));
out:
    free(text);
    return status;
}

fth_status fth_catalogue_read_builtin(fth_catalogue *catalogue)
{
    return fth_catalogue_parse(fth_prices_text, fth_prices_text_size, "built-in catalogue", catalogue);
}

const char *fth_catalogue_builtin_text(void)
{
    return fth_prices_text;
}

void fth_catalogue_release(fth_catalogue *catalogue)
{
    free(catalogue->name);
    free(catalogue->prices);
    free(catalogue->functions);
    *catalogue = (fth_catalogue){0};
}

/* ---- which one ---- */

char *fth_catalogue_find(const char *asked)
{
    const char *variable = getenv("FARTHING_PRICES"), *configuration = getenv("XDG_CONFIG_HOME"),
               *home = getenv("HOME");
    char *path = NULL;
    if (asked && *asked)
        return fth_format("%s", asked);
    if (variable && *variable)
        return fth_format("%s", variable);
    if (configuration && *configuration)
        path = fth_path_join(configuration, "farthing/prices.yaml");
    else if (home && *home)
        path = fth_path_join(home, ".config/farthing/prices.yaml");
    if (path && !fth_file_exists(path)) {
        free(path);
        path = NULL;
    }
    return path;
}

fth_status fth_catalogue_open(const char *asked, fth_catalogue *catalogue)
{
    char *path = fth_catalogue_find(asked);
    fth_status status = path ? read_file(path, catalogue) : fth_catalogue_read_builtin(catalogue);
    free(path);
    return status;
}
