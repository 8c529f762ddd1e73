/* The catalogue of prices: a YAML list of flat mappings, one price each, read through libyaml's events, which carry the
 * line numbers. Unknown keys, missing ones, duplicates and anything nested are refused: a bill that is wrong because
 * of a typing error is worse than none. */
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
} reader;

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
            return fth_fail(FTH_INVALID, "%s line %zu: %s \"%s\" has a blank or a strange character in it", in->name,
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
        return fth_fail(FTH_INVALID, "%s line %zu: date \"%.40s\" is not like 2026-01-31", in->name, line_of(in),
                        value);
    snprintf(place, 11, "%s", value);
    return FTH_OK;
}

static fth_status set_rate(const reader *in, const char *value, double *usd_per_hour)
{
    if (fth_usd_parse(value, usd_per_hour) != FTH_OK)
        return fth_fail_within(FTH_INVALID, "%s line %zu: usd_per_hour", in->name, line_of(in));
    return FTH_OK;
}

static fth_status set_value(const reader *in, const char *key, fth_price *price)
{
    static const char *const clouds[] = {"aws", "gcp", "azure", "own", NULL};
    static const char *const markets[] = {"on-demand", "spot", NULL};
    static const char *const keys[] = {"cloud", "instance", "region", "market", "usd_per_hour", "date", NULL};
    const char *value = (const char *)in->event.data.scalar.value;
    if (strcmp(key, "cloud") == 0)
        return set_choice(in, key, value, clouds, price->cloud, sizeof price->cloud);
    if (strcmp(key, "instance") == 0)
        return set_text(in, key, value, price->instance, sizeof price->instance);
    if (strcmp(key, "region") == 0)
        return set_text(in, key, value, price->region, sizeof price->region);
    if (strcmp(key, "market") == 0)
        return set_choice(in, key, value, markets, price->market, sizeof price->market);
    if (strcmp(key, "date") == 0)
        return set_date(in, value, price->date);
    if (strcmp(key, "usd_per_hour") == 0)
        return set_rate(in, value, &price->usd_per_hour);
    const char *nearest = fth_nearest_name(key, keys);
    return fth_fail(FTH_INVALID, "%s line %zu: unknown key '%.40s'%s%s%s", in->name, line_of(in), key,
                    nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

static fth_status check_row(reader *in, const fth_price *price, size_t line)
{
    const char *missing = !*price->cloud ? "cloud" : !*price->instance ? "instance" : NULL;
    if (!missing && price->usd_per_hour <= 0)
        missing = "usd_per_hour";
    if (missing)
        return fth_fail(FTH_INVALID, "%s line %zu: this price has no %s", in->name, line, missing);
    for (size_t i = 0; i < in->catalogue->count; i++) {
        const fth_price *other = &in->catalogue->prices[i];
        if (strcmp(other->cloud, price->cloud) == 0 && strcmp(other->instance, price->instance) == 0 &&
            strcmp(other->region, price->region) == 0 && strcmp(other->market, price->market) == 0)
            return fth_fail(FTH_INVALID, "%s line %zu: this price was given on line %zu already", in->name, line,
                            in->lines[i]);
    }
    return FTH_OK;
}

/* The event is the mapping's start. */
static fth_status read_row(reader *in)
{
    fth_status status = FTH_OK;
    fth_price price = {0};
    size_t line = line_of(in);
    char key[40], seen[400] = ",";

    FTH_REQUIRE(in->event.type == YAML_MAPPING_START_EVENT, FTH_INVALID,
                "%s line %zu: a price is wanted: - {cloud: aws, instance: g4dn.xlarge, usd_per_hour: 0.526}", in->name,
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
        FTH_TRY(set_value(in, key, &price));
    }
    if (!*price.market)
        snprintf(price.market, sizeof price.market, "on-demand");
    FTH_TRY(check_row(in, &price, line));
    FTH_TRY(fth_grow(&in->catalogue->prices, in->catalogue->count, &in->capacity, sizeof price));
    FTH_TRY(fth_grow(&in->lines, in->catalogue->count, &in->line_capacity, sizeof *in->lines));
    in->lines[in->catalogue->count] = line;
    in->catalogue->prices[in->catalogue->count++] = price;

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
    FTH_REQUIRE(in->event.type == YAML_SEQUENCE_START_EVENT, FTH_INVALID,
                "%s line %zu: a list of prices is wanted: lines like - {cloud: aws, instance: g4dn.xlarge, "
                "usd_per_hour: 0.526}",
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
