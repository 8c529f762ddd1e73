/* Shapes of BERT: names, presets, config.json. See bert.h.
 *
 * One table has all that differs between encoders. Presets are shapes with a name; the name of any
 * other shape is the preset of the same sizes, or "bert" where there is none, and the members that
 * differ from it. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/bert_internal.h"

typedef struct field {
    const char *name; /* in a model's name */
    const char *key;  /* in a config.json */
    enum { COUNT, NUMBER, ACTIVATION } kind;
    size_t offset;
    double minimum, maximum;
} field;

#define FIELD(kind, name, key, minimum, maximum)                                                                       \
    {                                                                                                                  \
#name, key, kind, offsetof(fth_bert_config, name), minimum, maximum                                            \
    }

static const field fields[] = {
    FIELD(COUNT, layers, "num_hidden_layers", 1, 256),
    FIELD(COUNT, hidden, "hidden_size", 1, 1 << 16),
    FIELD(COUNT, heads, "num_attention_heads", 1, 1 << 12),
    FIELD(COUNT, intermediate, "intermediate_size", 1, 1 << 18),
    FIELD(COUNT, vocabulary, "vocab_size", 1, 1 << 24),
    FIELD(COUNT, positions, "max_position_embeddings", 2, 1 << 16),
    FIELD(COUNT, types, "type_vocab_size", 1, 1 << 16),
    FIELD(ACTIVATION, activation, "hidden_act", 0, FTH_BERT_ACTIVATION_COUNT - 1),
    FIELD(NUMBER, epsilon, "layer_norm_eps", 1e-30, 1),
    FIELD(NUMBER, dropout, "hidden_dropout_prob", 0, 0.99),
    FIELD(NUMBER, attention_dropout, "attention_probs_dropout_prob", 0, 0.99),
    FIELD(NUMBER, classifier_dropout, "classifier_dropout", -1, 0.99),
    FIELD(NUMBER, initializer, "initializer_range", 0, 100),
};

#define PRESET(preset_name, layer_count, width, head_count)                                                            \
    {                                                                                                                  \
        preset_name,                                                                                                   \
        {                                                                                                              \
            .layers = layer_count, .hidden = width, .heads = head_count, .intermediate = 4 * (width),                  \
            .vocabulary = 30522, .positions = 512, .types = 2, .epsilon = 1e-12, .dropout = 0.1,                       \
            .attention_dropout = 0.1, .classifier_dropout = -1, .initializer = 0.02                                    \
        }                                                                                                              \
    }

const fth_bert_preset fth_bert_presets[] = {
    PRESET("bert-base", 12, 768, 12), PRESET("bert-tiny", 2, 128, 2), PRESET("bert-mini", 4, 256, 4),
    PRESET("bert-small", 4, 512, 8),  PRESET("minilm", 6, 384, 12),   {0},
};

/* Our name first, which is also what is written to a config.json; then what else the hub calls
 * it. */
static const char *const activation_names[FTH_BERT_ACTIVATION_COUNT][5] = {
    [FTH_BERT_GELU] = {"gelu", "gelu_python"},
    [FTH_BERT_GELU_TANH] = {"gelu_new", "gelu_tanh", "gelu_pytorch_tanh", "gelu_fast"},
    [FTH_BERT_RELU] = {"relu"},
};

/* ---- one member ---- */

static double get(const fth_bert_config *config, const field *member)
{
    const char *at = (const char *)config + member->offset;
    switch (member->kind) {
    case COUNT: return *(const int *)at;
    case NUMBER: return *(const double *)at;
    case ACTIVATION: return (double)*(const fth_bert_activation *)at;
    }
    return 0;
}

static fth_status check_range(const field *member, double value)
{
    if (value >= member->minimum && value <= member->maximum)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "%s is %g; it must be from %g to %g", member->name, value, member->minimum,
                    member->maximum);
}

static fth_status set(fth_bert_config *config, const field *member, double value)
{
    char *at = (char *)config + member->offset;
    fth_status status = check_range(member, value);
    if (status != FTH_OK)
        return status;
    if (member->kind == COUNT && value != floor(value))
        return fth_fail(FTH_INVALID, "%s is %g; it must be a whole number", member->name, value);
    if (member->kind == COUNT)
        *(int *)at = (int)value;
    else
        *(double *)at = value;
    return FTH_OK;
}

static fth_status set_activation(fth_bert_config *config, const char *name)
{
    for (int i = 0; i < FTH_BERT_ACTIVATION_COUNT; i++) {
        for (int j = 0; activation_names[i][j]; j++) {
            if (strcmp(activation_names[i][j], name) == 0) {
                config->activation = (fth_bert_activation)i;
                return FTH_OK;
            }
        }
    }
    return fth_fail(FTH_UNSUPPORTED, "the activation \"%s\" is not supported; there are gelu, gelu_new and relu", name);
}

static fth_status set_text(fth_bert_config *config, const field *member, const char *text)
{
    char *end = NULL;
    if (member->kind == ACTIVATION)
        return set_activation(config, text);
    double value = strtod(text, &end);
    if (end == text || *end)
        return fth_fail(FTH_INVALID, "%s=%s: expected a number", member->name, text);
    return set(config, member, value);
}

/* The shortest text that is read back as the same number. */
static void format_number(double value, char *text, size_t size)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

/* ---- names ---- */

/* The preset of these sizes, whatever else differs; NULL: none has them. */
static const fth_bert_preset *find_same_sizes(const fth_bert_config *config)
{
    for (const fth_bert_preset *preset = fth_bert_presets; preset->name; preset++) {
        const fth_bert_config *known = &preset->config;
        if (known->layers == config->layers && known->hidden == config->hidden && known->heads == config->heads &&
            known->intermediate == config->intermediate)
            return preset;
    }
    return NULL;
}

char *fth_bert_config_name(const fth_bert_config *config)
{
    const fth_bert_preset *preset = find_same_sizes(config);
    const fth_bert_config *base = preset ? &preset->config : &fth_bert_presets[0].config;
    char members[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < FTH_COUNT_OF(fields); i++) {
        char value[32];
        double number = get(config, &fields[i]);
        if (number == get(base, &fields[i]))
            continue;
        switch (fields[i].kind) {
        case ACTIVATION: snprintf(value, sizeof value, "%s", activation_names[config->activation][0]); break;
        case COUNT: snprintf(value, sizeof value, "%.0f", number); break;
        case NUMBER: format_number(number, value, sizeof value); break;
        }
        used +=
            (size_t)snprintf(members + used, sizeof members - used, "%s%s=%s", used ? "," : "", fields[i].name, value);
    }
    return fth_format(used ? "%s(%s)" : "%s%s", preset ? preset->name : "bert", members);
}

static const fth_bert_config *find_preset(const char *name, size_t length)
{
    if (length == strlen("bert") && strncmp(name, "bert", length) == 0)
        return &fth_bert_presets[0].config;
    for (const fth_bert_preset *preset = fth_bert_presets; preset->name; preset++) {
        if (strlen(preset->name) == length && strncmp(preset->name, name, length) == 0)
            return &preset->config;
    }
    return NULL;
}

static fth_status parse_member(const char *text, fth_bert_config *config)
{
    const char *names[FTH_COUNT_OF(fields) + 1] = {NULL};
    const char *equals = strchr(text, '=');
    if (!equals)
        return fth_fail(FTH_INVALID, "\"%s\" has no value; write it as in layers=6", text);
    for (size_t i = 0; i < FTH_COUNT_OF(fields); i++) {
        names[i] = fields[i].name;
        if (strlen(names[i]) == (size_t)(equals - text) && strncmp(names[i], text, (size_t)(equals - text)) == 0)
            return set_text(config, &fields[i], equals + 1);
    }
    char *unknown = fth_format("%.*s", (int)(equals - text), text);
    const char *nearest = fth_nearest_name(unknown, names);
    fth_status status = nearest ? fth_fail(FTH_INVALID, "unknown \"%s\"; did you mean \"%s\"?", unknown, nearest)
                                : fth_fail(FTH_INVALID,
                                           "unknown \"%s\"; there are layers, hidden, heads, intermediate, "
                                           "vocabulary, positions, types, activation, epsilon, dropout, "
                                           "attention_dropout, classifier_dropout, initializer",
                                           unknown);
    free(unknown);
    return status;
}

static fth_status parse_members(const char *text, fth_bert_config *config)
{
    fth_status status = FTH_OK;
    char *copy = fth_format("%s", text), *rest = NULL;
    size_t length = strlen(copy);

    FTH_REQUIRE(length > 0 && copy[length - 1] == ')', FTH_INVALID, "the closing parenthesis is missing");
    copy[length - 1] = '\0';
    for (char *member = strtok_r(copy, ", ", &rest); member; member = strtok_r(NULL, ", ", &rest))
        FTH_TRY(parse_member(member, config));
    FTH_TRY(fth_bert_config_check(config));

out:
    free(copy);
    return status;
}

bool fth_bert_config_parse(const char *name, fth_bert_config *config, fth_status *status)
{
    const char *parenthesis = strchr(name, '(');
    const fth_bert_config *preset = find_preset(name, parenthesis ? (size_t)(parenthesis - name) : strlen(name));
    if (!preset)
        return false;
    *config = *preset;
    *status = parenthesis ? parse_members(parenthesis + 1, config) : FTH_OK;
    if (*status != FTH_OK)
        *status = fth_fail_within(*status, "model %s", name);
    return true;
}

fth_status fth_bert_config_check(const fth_bert_config *config)
{
    for (size_t i = 0; i < FTH_COUNT_OF(fields); i++) {
        fth_status status = check_range(&fields[i], get(config, &fields[i]));
        if (status != FTH_OK)
            return status;
    }
    if (config->hidden % config->heads != 0)
        return fth_fail(FTH_INVALID, "hidden is %d, which %d heads do not divide", config->hidden, config->heads);
    return FTH_OK;
}

/* ---- config.json ---- */

static fth_status check_supported(const json_t *json)
{
    const char *positions = json_string_value(json_object_get(json, "position_embedding_type"));
    const char *type = json_string_value(json_object_get(json, "model_type"));
    if (type && strcmp(type, "bert") != 0)
        return fth_fail(FTH_UNSUPPORTED, "models of type \"%s\" are not supported; \"bert\" is", type);
    if (positions && strcmp(positions, "absolute") != 0)
        return fth_fail(FTH_UNSUPPORTED, "position_embedding_type \"%s\" is not supported; \"absolute\" is", positions);
    if (json_is_true(json_object_get(json, "is_decoder")))
        return fth_fail(FTH_UNSUPPORTED, "decoders are not supported");
    return FTH_OK;
}

static fth_status read_member(const json_t *json, const field *member, fth_bert_config *config)
{
    const json_t *value = json_object_get(json, member->key);
    if (!value || json_is_null(value))
        return FTH_OK; /* the hub's default, which is bert-base's */
    if (member->kind == ACTIVATION && json_is_string(value))
        return set_activation(config, json_string_value(value));
    if (member->kind == ACTIVATION || !json_is_number(value))
        return fth_fail(FTH_CORRUPT, "\"%s\" is no %s", member->key, member->kind == ACTIVATION ? "text" : "number");
    return set(config, member, json_number_value(value));
}

fth_status fth_bert_config_read(const json_t *json, const char *origin, fth_bert_config *config)
{
    fth_status status = json_is_object(json) ? FTH_OK : fth_fail(FTH_CORRUPT, "not a JSON object");

    *config = fth_bert_presets[0].config;
    if (status == FTH_OK)
        status = check_supported(json);
    for (size_t i = 0; i < FTH_COUNT_OF(fields) && status == FTH_OK; i++)
        status = read_member(json, &fields[i], config);
    if (status == FTH_OK)
        status = fth_bert_config_check(config);
    return status == FTH_OK ? FTH_OK : fth_fail_within(status, "%s", origin);
}

static json_t *member_to_json(const fth_bert_config *config, const field *member)
{
    double number = get(config, member);
    switch (member->kind) {
    case ACTIVATION: return json_string(activation_names[config->activation][0]);
    case COUNT: return json_integer((json_int_t)number);
    case NUMBER: break;
    }
    return number < 0 ? json_null() : json_real(number);
}

fth_status fth_bert_config_write(const fth_bert_config *config, json_t *json)
{
    int failed = json_object_set_new(json, "model_type", json_string("bert")) |
                 json_object_set_new(json, "position_embedding_type", json_string("absolute"));
    for (size_t i = 0; i < FTH_COUNT_OF(fields); i++)
        failed |= json_object_set_new(json, fields[i].key, member_to_json(config, &fields[i]));
    return failed ? fth_fail(FTH_NO_MEMORY, "out of memory") : FTH_OK;
}
