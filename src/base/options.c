/* See options.h. The values of an options struct: defaults, setting from text with all checks, and
 * conversion to and from JSON. Flags and YAML both end in fth_options_set(), so the same rules hold
 * for both. */
#include "base/options.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/clock.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/options_internal.h"

/* ---- the table ---- */

static bool same_name(const char *a, const char *b)
{
    while (*a && *b && (*a == '_' ? '-' : *a) == (*b == '_' ? '-' : *b)) {
        a++;
        b++;
    }
    return *a == *b;
}

const fth_option *fth_options_find(const fth_option_table *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++) {
        const fth_option *option = &table->options[i];
        if (same_name(option->name, name) || (option->alias && same_name(option->alias, name)))
            return option;
    }
    return NULL;
}

const char *fth_options_nearest(const fth_option_table *table, const char *name)
{
    const char *names[2 * FTH_MAX_OPTIONS + 1];
    size_t count = 0;
    assert(table->count <= FTH_MAX_OPTIONS);
    for (size_t i = 0; i < table->count; i++) {
        if (!fth_options_is_taken(table, &table->options[i]))
            continue;
        names[count++] = table->options[i].name;
        if (table->options[i].alias)
            names[count++] = table->options[i].alias;
    }
    names[count] = NULL;
    return fth_nearest_name(name, names);
}

fth_option_table fth_options_for(const fth_option_table *table, fth_option_view view)
{
    fth_option_table seen = *table;
    seen.view = view;
    return seen;
}

bool fth_options_is_for(const fth_option *option, unsigned commands)
{
    return ((option->commands ? option->commands : 1) & commands) != 0;
}

bool fth_options_is_shown(const fth_option_table *table, const fth_option *option)
{
    return !table->view.command || fth_options_is_for(option, table->view.command);
}

bool fth_options_is_taken(const fth_option_table *table, const fth_option *option)
{
    return !table->view.command || fth_options_is_for(option, table->view.command | table->view.unlisted);
}

static void *place_of(const fth_option *option, void *values)
{
    return (char *)values + option->offset;
}

static const void *read_place_of(const fth_option *option, const void *values)
{
    return (const char *)values + option->offset;
}

static bool is_text(const fth_option *option)
{
    return option->type == FTH_OPTION_TEXT || option->type == FTH_OPTION_CHOICE || option->type == FTH_OPTION_OPTIONAL;
}

static const char *text_of(const fth_option *option, const void *values)
{
    const char *text = *(char *const *)read_place_of(option, values);
    return text ? text : "";
}

/* ---- text to values ---- */

/* "--lr" where that is what was typed, else "run.yaml line 3: lr". */
static void format_subject(const fth_option *option, const char *where, char *subject, size_t size)
{
    if (strncmp(where, "--", 2) == 0)
        snprintf(subject, size, "%s", where);
    else
        snprintf(subject, size, "%s: %s", where, option->name);
}

static fth_status fail_range(const fth_option *option, const char *subject, const char *text)
{
    bool whole = option->type == FTH_OPTION_INTEGER || option->type == FTH_OPTION_AMOUNT; /* all digits, however many */
    char least[400], most[400];
    snprintf(least, sizeof least, whole ? "%.0f" : "%.15g", option->minimum);
    snprintf(most, sizeof most, whole ? "%.0f" : "%.15g", option->maximum);
    if (option->maximum > option->minimum)
        return fth_fail(FTH_INVALID, "%s must be between %s and %s, not %.80s", subject, least, most, text);
    return fth_fail(FTH_INVALID, "%s must be at least %s, not %.80s", subject, least, text);
}

/* No limits if both are 0; no maximum if it is not above the minimum. */
static bool in_range(const fth_option *option, double number)
{
    if (option->minimum == 0 && option->maximum == 0)
        return true;
    return number >= option->minimum && (option->maximum <= option->minimum || number <= option->maximum);
}

static fth_status set_integer(const fth_option *option, int64_t *value, const char *text, const char *subject)
{
    size_t sign = *text == '-' || *text == '+';
    char *end = NULL;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (!text[sign] || strspn(text + sign, "0123456789") != strlen(text + sign))
        return fth_fail(FTH_INVALID, "%s must be a whole number, not '%.80s'", subject, text);
    if (errno == ERANGE || !in_range(option, (double)number)) {
        if (option->minimum == 0 && option->maximum == 0)
            return fth_fail(FTH_INVALID, "%s: %.80s is too large a number", subject, text);
        return fail_range(option, subject, text);
    }
    *value = number;
    return FTH_OK;
}

/* True if its values lie between 0 and 1, so that they may be percentages. */
static bool is_share(const fth_option *option)
{
    return option->minimum >= 0 && option->maximum > option->minimum && option->maximum <= 1;
}

static fth_status set_number(const fth_option *option, double *value, const char *text, const char *subject)
{
    char *end = NULL;
    double number = strtod(text, &end);
    const size_t length = strspn(text, "0123456789+-.eE");
    if (is_share(option) && length > 0 && end == text + length && strcmp(end, "%") == 0) {
        number /= 100;
        end++;
    } else if (length != strlen(text)) {
        end = "not a number";
    }
    if (!*text || *end)
        return fth_fail(FTH_INVALID, "%s must be a number, not '%.80s'", subject, text);
    if (!isfinite(number))
        return fth_fail(FTH_INVALID, "%s: %.80s is too large a number", subject, text);
    if (!in_range(option, number))
        return fail_range(option, subject, text);
    *value = number;
    return FTH_OK;
}

int64_t fth_amount_count(fth_amount amount, int64_t all)
{
    return amount.share > 0 ? (int64_t)ceil(amount.share * (double)all - 1e-9) : amount.count;
}

static fth_status set_amount(const fth_option *option, fth_amount *value, const char *text, const char *subject)
{
    char *end = NULL;
    const double percent = strtod(text, &end);
    if (end == text || strcmp(end, "%") != 0 || strspn(text, "0123456789.") != strlen(text) - 1) {
        *value = (fth_amount){0};
        return set_integer(option, &value->count, text, subject);
    }
    if (!(percent >= 0 && percent <= 100))
        return fth_fail(FTH_INVALID, "%s must be between 0%% and 100%%, not %.80s", subject, text);
    *value = (fth_amount){.share = percent / 100};
    return FTH_OK;
}

bool fth_period_ends(fth_period period, int64_t step, int64_t steps_per_epoch)
{
    const double rounding = 1e-9, length = period.epochs * (double)steps_per_epoch;
    if (period.steps > 0)
        return step > 0 && step % period.steps == 0;
    return step > 0 && floor((double)step / length + rounding) > floor((double)(step - 1) / length + rounding);
}

static fth_status set_period(const fth_option *option, fth_period *value, const char *text, const char *subject)
{
    const size_t length = strspn(text, "0123456789."), digits = strspn(text, "0123456789");
    const char *unit = text + length + strspn(text + length, " ");
    const bool steps = strcmp(unit, "steps") == 0 || strcmp(unit, "step") == 0, percent = strcmp(unit, "%") == 0;
    char *end = NULL;
    const double number = strtod(text, &end) / (percent ? 100 : 1);
    if (length == 0 || end != text + length || (*unit && !steps && !percent) || (steps && digits != length))
        return fth_fail(FTH_INVALID, "%s must be epochs (2, 0.5, 50%%) or steps (200steps), not '%.80s'", subject,
                        text);
    if (!(number > 0) || !in_range(option, number))
        return fth_fail(FTH_INVALID, "%s must be above 0 and at most %.0f, not %.80s", subject, option->maximum, text);
    *value = steps ? (fth_period){.steps = (int64_t)number} : (fth_period){.epochs = number};
    return FTH_OK;
}

bool fth_options_parse_switch(const char *text, bool *value)
{
    static const char *const words[2][3] = {{"no", "false", "off"}, {"yes", "true", "on"}};
    for (int meaning = 0; meaning < 2; meaning++) {
        for (int i = 0; i < 3; i++) {
            if (strcasecmp(text, words[meaning][i]) == 0) {
                *value = meaning;
                return true;
            }
        }
    }
    return false;
}

static fth_status set_duration(const fth_option *option, double *value, const char *text, const char *subject)
{
    double seconds = 0;
    fth_status status = fth_duration_parse(text, &seconds);
    if (status != FTH_OK)
        return fth_fail_within(status, "%s", subject);
    if (!in_range(option, seconds)) {
        char least[32], most[32];
        fth_duration_format(option->minimum, least, sizeof least);
        fth_duration_format(option->maximum, most, sizeof most);
        if (option->maximum > option->minimum)
            return fth_fail(FTH_INVALID, "%s must be between %s and %s, not %.80s", subject, least, most, text);
        return fth_fail(FTH_INVALID, "%s must be at least %s, not %.80s", subject, least, text);
    }
    *value = seconds;
    return FTH_OK;
}

static fth_status set_text(char **value, const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        return fth_fail(FTH_NO_MEMORY, "no memory for the value of an option");
    free(*value);
    *value = copy;
    return FTH_OK;
}

static fth_status set_address(char **value, const char *text)
{
    char *public = fth_address_public(text);
    fth_status status =
        public ? fth_address_remember(text) : fth_fail(FTH_NO_MEMORY, "no memory for the value of an option");
    if (status == FTH_OK)
        status = set_text(value, public);
    free(public);
    return status;
}

/* Values go to the run record as JSON, which holds UTF-8 only. */
static bool is_utf8(const char *text)
{
    json_t *probe = json_string(text);
    json_decref(probe);
    return probe != NULL;
}

fth_choice fth_options_choice(const fth_option *option, size_t index)
{
    if (option->list)
        return option->list(index);
    return (fth_choice){.name = option->choices ? option->choices[index] : NULL};
}

enum { MAX_CHOICES = 64 };

static fth_status fail_choice(const char *subject, const char *text, const char *const names[])
{
    char list[1024] = "";
    size_t length = 0;
    for (size_t i = 0; names[i] && length < sizeof list; i++)
        length += (size_t)snprintf(list + length, sizeof list - length, "%s%s", i ? ", " : "", names[i]);
    const char *nearest = fth_nearest_name(text, names);
    return fth_fail(FTH_INVALID, "%s must be one of %s, not '%.80s'%s%s%s", subject, list, text,
                    nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

fth_status fth_fail_choice(const char *subject, const char *text, fth_choices list)
{
    const char *names[MAX_CHOICES + 1] = {NULL};
    for (size_t i = 0; i < MAX_CHOICES && list(i).name; i++)
        names[i] = list(i).name;
    return fail_choice(subject, text, names);
}

/* Is it this choice, or of this form: the same up to a colon with something behind it? */
static bool is_choice(const char *text, const char *name)
{
    const char *colon = strchr(name, ':');
    size_t length = colon ? (size_t)(colon - name) + 1 : 0;
    return colon ? strncmp(text, name, length) == 0 && text[length] : strcmp(text, name) == 0;
}

/* *index, which may be NULL: of the choice that `text` names. */
static fth_status check_choice(const fth_option *option, const char *text, const char *subject, unsigned *index)
{
    fth_choice choice;
    for (unsigned i = 0; (choice = fth_options_choice(option, i)).name; i++) {
        if (!is_choice(text, choice.name))
            continue;
        if (index)
            *index = i;
        return FTH_OK;
    }
    return option->list ? fth_fail_choice(subject, text, option->list) : fail_choice(subject, text, option->choices);
}

static fth_status set_value(const fth_option *option, void *values, const char *text, const char *subject)
{
    void *place = place_of(option, values);
    bool yes = false;
    if (!is_utf8(text))
        return fth_fail(FTH_INVALID, "%s: the value is not valid UTF-8", subject);
    switch (option->type) {
    case FTH_OPTION_INTEGER: return set_integer(option, place, text, subject);
    case FTH_OPTION_NUMBER: return set_number(option, place, text, subject);
    case FTH_OPTION_DURATION: return set_duration(option, place, text, subject);
    case FTH_OPTION_AMOUNT: return set_amount(option, place, text, subject);
    case FTH_OPTION_PERIOD: return set_period(option, place, text, subject);
    case FTH_OPTION_SWITCH:
        if (!fth_options_parse_switch(text, place))
            return fth_fail(FTH_INVALID, "%s must be yes or no, not '%.80s'", subject, text);
        return FTH_OK;
    case FTH_OPTION_ENUM: return check_choice(option, text, subject, place);
    case FTH_OPTION_CHOICE: {
        fth_status status = check_choice(option, text, subject, NULL);
        return status == FTH_OK ? set_text(place, text) : status;
    }
    case FTH_OPTION_OPTIONAL:
        if (fth_options_parse_switch(text, &yes))
            return set_text(place, yes ? "auto" : "");
        return set_text(place, text);
    case FTH_OPTION_TEXT: return option->address ? set_address(place, text) : set_text(place, text);
    }
    return fth_fail(FTH_UNSUPPORTED, "%s has an unknown type", subject);
}

fth_status fth_options_reset(const fth_option *option, void *values)
{
    if (option->fallback && *option->fallback)
        return set_value(option, values, option->fallback, option->name);
    if (is_text(option))
        return set_text(place_of(option, values), "");
    switch (option->type) {
    case FTH_OPTION_INTEGER: *(int64_t *)place_of(option, values) = 0; break;
    case FTH_OPTION_SWITCH: *(bool *)place_of(option, values) = false; break;
    case FTH_OPTION_AMOUNT: *(fth_amount *)place_of(option, values) = (fth_amount){0}; break;
    case FTH_OPTION_PERIOD: *(fth_period *)place_of(option, values) = (fth_period){0}; break;
    default: *(double *)place_of(option, values) = 0; break;
    }
    return FTH_OK;
}

static fth_status set_checked(const fth_option *option, void *values, const char *text, const char *where)
{
    char subject[300];
    format_subject(option, where, subject, sizeof subject);
    if (option->check) {
        fth_status status = option->type == FTH_OPTION_CHOICE ? check_choice(option, text, subject, NULL) : FTH_OK;
        if (status != FTH_OK)
            return status;
        status = option->check(text);
        if (status != FTH_OK)
            return fth_fail_within(status, "%s", subject);
    }
    return set_value(option, values, text, subject);
}

/* Otherwise "--resume $ID" with an unset variable would silently mean something else. */
static fth_status check_not_empty(const fth_option *option, const char *text, const char *where)
{
    char subject[300];
    if (*text || (option->type != FTH_OPTION_TEXT && option->type != FTH_OPTION_OPTIONAL))
        return FTH_OK;
    format_subject(option, where, subject, sizeof subject);
    return fth_fail(FTH_INVALID, "%s is empty (a variable that is not set?); leave it out for the default", subject);
}

fth_status fth_options_set_defaults(const fth_option_table *table, void *values)
{
    assert(table->count <= FTH_MAX_OPTIONS);
    memset(values, 0, table->struct_size);
    for (size_t i = 0; i < table->count; i++) {
        fth_status status = fth_options_reset(&table->options[i], values);
        if (status != FTH_OK) {
            fth_options_release(table, values);
            return status;
        }
    }
    return FTH_OK;
}

void fth_options_release(const fth_option_table *table, void *values)
{
    for (size_t i = 0; i < table->count; i++) {
        if (is_text(&table->options[i])) {
            char **text = place_of(&table->options[i], values);
            free(*text);
            *text = NULL;
        }
    }
}

fth_status fth_options_set(const fth_option_table *table, void *values, const char *name, const char *text,
                           const char *where)
{
    const fth_option *option = fth_options_find(table, name);
    if (!option) {
        const char *nearest = fth_options_nearest(table, name);
        return fth_fail(FTH_INVALID, "%s: unknown key '%.80s'%s%s%s", where, name, nearest ? "; did you mean '" : "",
                        nearest ? nearest : "", nearest ? "'?" : "");
    }
    fth_status status = check_not_empty(option, text, where);
    if (status == FTH_OK)
        status = set_checked(option, values, text, where);
    if (status == FTH_OK) {
        size_t row = (size_t)(option - table->options);
        ((fth_option_bits *)values)->bits[row / 64] |= UINT64_C(1) << row % 64;
    }
    return status;
}

bool fth_options_is_set(const fth_option_table *table, const void *values, const char *name)
{
    const fth_option *option = fth_options_find(table, name);
    if (!option)
        return false;
    size_t row = (size_t)(option - table->options);
    return ((const fth_option_bits *)values)->bits[row / 64] >> row % 64 & 1;
}

/* ---- JSON ---- */

static json_t *amount_to_json(fth_amount amount)
{
    return amount.share > 0 ? json_sprintf("%.15g%%", amount.share * 100) : json_integer(amount.count);
}

/* Whole epochs are an integer, as in records of versions that knew nothing else. */
static json_t *period_to_json(fth_period period)
{
    if (period.steps > 0)
        return json_sprintf("%" PRId64 "steps", period.steps);
    return period.epochs == floor(period.epochs) ? json_integer((json_int_t)period.epochs)
                                                 : json_sprintf("%.15g", period.epochs);
}

static json_t *value_to_json(const fth_option *option, const void *values)
{
    const void *place = read_place_of(option, values);
    switch (option->type) {
    case FTH_OPTION_INTEGER: return json_integer(*(const int64_t *)place);
    case FTH_OPTION_NUMBER:
    case FTH_OPTION_DURATION: return json_real(*(const double *)place);
    case FTH_OPTION_SWITCH: return json_boolean(*(const bool *)place);
    case FTH_OPTION_AMOUNT: return amount_to_json(*(const fth_amount *)place);
    case FTH_OPTION_PERIOD: return period_to_json(*(const fth_period *)place);
    case FTH_OPTION_ENUM: return json_string(fth_options_choice(option, *(const unsigned *)place).name);
    case FTH_OPTION_TEXT:
    case FTH_OPTION_CHOICE:
    case FTH_OPTION_OPTIONAL: return json_string(text_of(option, values));
    }
    return NULL;
}

static bool is_default(const fth_option *option, const void *values)
{
    const char *fallback = option->fallback ? option->fallback : "";
    const void *place = read_place_of(option, values);
    switch (option->type) {
    case FTH_OPTION_INTEGER: return *(const int64_t *)place == strtoll(fallback, NULL, 10);
    case FTH_OPTION_NUMBER: return *(const double *)place == strtod(fallback, NULL);
    case FTH_OPTION_SWITCH: return !*(const bool *)place;
    case FTH_OPTION_ENUM: return strcmp(fth_options_choice(option, *(const unsigned *)place).name, fallback) == 0;
    default: assert(is_text(option)); return strcmp(text_of(option, values), fallback) == 0;
    }
}

static bool is_in_identity(const fth_option *option, const void *values)
{
    return option->identity && !(option->optional_identity && is_default(option, values));
}

json_t *fth_options_to_json(const fth_option_table *table, const void *values, bool identity_only)
{
    json_t *json = json_object();
    for (size_t i = 0; json && i < table->count; i++) {
        const fth_option *option = &table->options[i];
        if (!fth_options_is_taken(table, option) || (identity_only && !is_in_identity(option, values)))
            continue;
        if (json_object_set_new(json, option->name, value_to_json(option, values)) != 0) {
            json_decref(json);
            json = NULL;
        }
    }
    return json;
}

/* The default as fth_options_to_json() writes it need not pass the checks (a duration of 0, an
 * empty text), so it is recognized first. */
static fth_status set_from_json(const fth_option *option, void *values, const json_t *json, const char *where)
{
    char number[40], subject[300];
    format_subject(option, where, subject, sizeof subject);
    if (is_text(option) && json_is_string(json)) {
        const char *text = json_string_value(json);
        if (strcmp(text, option->fallback ? option->fallback : "") == 0)
            return fth_options_reset(option, values);
        return set_checked(option, values, text, where);
    }
    if (option->type == FTH_OPTION_SWITCH && json_is_boolean(json)) {
        *(bool *)place_of(option, values) = json_is_true(json);
        return FTH_OK;
    }
    bool worded = option->type == FTH_OPTION_AMOUNT || option->type == FTH_OPTION_PERIOD; /* a number or a text */
    if ((worded || option->type == FTH_OPTION_ENUM) && json_is_string(json))
        return set_checked(option, values, json_string_value(json), where);
    bool numeric = option->type == FTH_OPTION_NUMBER || option->type == FTH_OPTION_DURATION;
    bool whole = worded || option->type == FTH_OPTION_INTEGER;
    if ((numeric && json_is_number(json)) || (whole && json_is_integer(json))) {
        if (json_number_value(json) == 0 && !option->fallback)
            return fth_options_reset(option, values);
        if (json_is_integer(json))
            snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(json));
        else
            snprintf(number, sizeof number, "%.17g", json_real_value(json));
        return set_checked(option, values, number, where);
    }
    return fth_fail(FTH_INVALID, "%s has a value of the wrong type", subject);
}

fth_status fth_options_from_json(const fth_option_table *table, void *values, const json_t *json, const char *where)
{
    const char *name;
    json_t *value;
    if (!json_is_object(json))
        return fth_fail(FTH_INVALID, "%s: the configuration is not a JSON object", where);
    json_object_foreach((json_t *)(uintptr_t)json, name, value)
    {
        const fth_option *option = fth_options_find(table, name);
        if (!option) {
            fth_log_warning("%s: ignoring '%s', which this version does not know", where, name);
            continue;
        }
        fth_status status = set_from_json(option, values, value, where);
        if (status != FTH_OK)
            return status;
    }
    return FTH_OK;
}

void fth_options_identity(const fth_option_table *table, const void *values, char identity[17])
{
    unsigned char digest[EVP_MAX_MD_SIZE] = {0};
    json_t *json = fth_options_to_json(table, values, true);
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    identity[0] = '\0'; /* equals no identity, should memory run out */
    if (text && EVP_Digest(text, strlen(text), digest, NULL, EVP_sha256(), NULL)) {
        fth_hex_encode(digest, 8, identity);
    }
    free(text);
    json_decref(json);
}
