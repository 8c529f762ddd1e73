/* Arguments of nodes: a tagged union with some thirty members, of which a dozen matter here. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exported/program_internal.h"

/* One kind of argument in files. */
typedef struct argument_rule {
    const char *tag;
    fth_status (*read)(fth_exported_reader *reader, const json_t *value, const char *user,
                       fth_exported_argument *result);
} argument_rule;

bool fth_exported_untag(const json_t *tagged, const char **tag, json_t **value)
{
    const char *key;
    json_t *member;
    size_t count = 0;
    json_object_foreach((json_t *)tagged, key, member)
    {
        if (json_is_null(member))
            continue;
        *tag = key;
        *value = member;
        count++;
    }
    return count == 1;
}

static fth_status fail(const fth_exported_reader *reader, const char *user, const fth_exported_argument *argument,
                       const char *expected)
{
    return fth_fail(FTH_CORRUPT, "%s: %s: argument '%.80s': expected %s", reader->origin, user, argument->name,
                    expected);
}

static bool read_number(const json_t *value, double *number)
{
    const char *text = json_string_value(value);
    *number = json_number_value(value);
    if (!text)
        return json_is_number(value);
    if (strcmp(text, "Infinity") == 0)
        *number = INFINITY;
    else if (strcmp(text, "-Infinity") == 0)
        *number = -INFINITY;
    else if (strcmp(text, "NaN") == 0)
        *number = NAN;
    else
        return false;
    return true;
}

/* A whole number, {"as_int": 3}, or the name of a size that was computed, {"as_name":
 * "sym_size_int"}. */
static bool read_integer(const fth_exported_reader *reader, const json_t *value, fth_exported_dim *dim)
{
    if (json_is_object(value)) {
        const char *name = json_string_value(json_object_get(value, "as_name"));
        if (name)
            return fth_exported_read_size(json_object_get(reader->sym_int_values, name), &reader->symbols, dim);
        value = json_object_get(value, "as_int");
    }
    *dim = (fth_exported_dim){.factor = json_integer_value(value)};
    return json_is_integer(value);
}

static fth_status read_none(fth_exported_reader *reader, const json_t *value, const char *user,
                            fth_exported_argument *result)
{
    (void)reader, (void)value, (void)user;
    result->kind = FTH_ARGUMENT_NONE;
    return FTH_OK;
}

/* {"name": "conv2d"} */
static fth_status read_name(fth_exported_reader *reader, const json_t *value, const char *user,
                            const fth_exported_argument *result, int *number)
{
    const char *name = json_string_value(json_object_get(value, "name"));
    return name ? fth_exported_find_tensor(reader, name, user, number) : fail(reader, user, result, "a tensor");
}

static fth_status read_tensor(fth_exported_reader *reader, const json_t *value, const char *user,
                              fth_exported_argument *result)
{
    result->kind = FTH_ARGUMENT_TENSOR;
    return read_name(reader, value, user, result, &result->tensor);
}

/* {"as_tensor": {"name": ...}} or {"as_none": true} */
static fth_status read_optional(fth_exported_reader *reader, const json_t *value, const char *user,
                                const fth_exported_argument *result, int *number)
{
    const json_t *tensor = json_object_get(value, "as_tensor");
    *number = -1;
    return tensor && !json_is_null(tensor) ? read_name(reader, tensor, user, result, number) : FTH_OK;
}

static fth_status read_optional_tensor(fth_exported_reader *reader, const json_t *value, const char *user,
                                       fth_exported_argument *result)
{
    fth_status status = read_optional(reader, value, user, result, &result->tensor);
    result->kind = result->tensor < 0 ? FTH_ARGUMENT_NONE : FTH_ARGUMENT_TENSOR;
    return status;
}

/* The list of an argument, and memory for its items. */
static fth_status begin_list(fth_exported_reader *reader, const json_t *value, const char *user,
                             fth_exported_argument *result, size_t item_bytes, void *pointer_to_items)
{
    if (!json_is_array(value))
        return fail(reader, user, result, "a list");
    result->count = json_array_size(value);
    return fth_exported_take(&reader->program->arena, result->count, item_bytes, pointer_to_items);
}

static fth_status read_tensors(fth_exported_reader *reader, const json_t *value, const char *user,
                               fth_exported_argument *result)
{
    fth_status status = FTH_OK;
    int *tensors = NULL;
    FTH_TRY(begin_list(reader, value, user, result, sizeof *tensors, &tensors));
    result->kind = FTH_ARGUMENT_TENSORS;
    result->tensors = tensors;
    for (size_t i = 0; i < result->count; i++) {
        const json_t *item = json_array_get(value, i);
        if (json_object_get(item, "name"))
            FTH_TRY(read_name(reader, item, user, result, &tensors[i]));
        else
            FTH_TRY(read_optional(reader, item, user, result, &tensors[i]));
    }
out:
    return status;
}

static fth_status read_int(fth_exported_reader *reader, const json_t *value, const char *user,
                           fth_exported_argument *result)
{
    result->kind = FTH_ARGUMENT_INT;
    return read_integer(reader, value, &result->integer) ? FTH_OK : fail(reader, user, result, "a whole number");
}

static fth_status read_ints(fth_exported_reader *reader, const json_t *value, const char *user,
                            fth_exported_argument *result)
{
    fth_exported_dim *integers = NULL;
    fth_status status = begin_list(reader, value, user, result, sizeof *integers, &integers);
    result->kind = FTH_ARGUMENT_INTS;
    result->integers = integers;
    for (size_t i = 0; i < result->count && status == FTH_OK; i++) {
        if (!read_integer(reader, json_array_get(value, i), &integers[i]))
            return fail(reader, user, result, "whole numbers");
    }
    return status;
}

static fth_status read_dtype(fth_exported_reader *reader, const json_t *value, const char *user,
                             fth_exported_argument *result)
{
    result->kind = FTH_ARGUMENT_DTYPE;
    result->integer = (fth_exported_dim){.factor = json_integer_value(value)};
    return json_is_integer(value) ? FTH_OK : fail(reader, user, result, "the code of a type");
}

static fth_status read_float(fth_exported_reader *reader, const json_t *value, const char *user,
                             fth_exported_argument *result)
{
    result->kind = FTH_ARGUMENT_FLOAT;
    return read_number(value, &result->number) ? FTH_OK : fail(reader, user, result, "a number");
}

static fth_status read_floats(fth_exported_reader *reader, const json_t *value, const char *user,
                              fth_exported_argument *result)
{
    double *numbers = NULL;
    fth_status status = begin_list(reader, value, user, result, sizeof *numbers, &numbers);
    result->kind = FTH_ARGUMENT_FLOATS;
    result->numbers = numbers;
    for (size_t i = 0; i < result->count && status == FTH_OK; i++) {
        if (!read_number(json_array_get(value, i), &numbers[i]))
            return fail(reader, user, result, "numbers");
    }
    return status;
}

static fth_status read_bool(fth_exported_reader *reader, const json_t *value, const char *user,
                            fth_exported_argument *result)
{
    result->kind = FTH_ARGUMENT_BOOL;
    result->boolean = json_is_true(value);
    return json_is_boolean(value) ? FTH_OK : fail(reader, user, result, "true or false");
}

static fth_status read_bools(fth_exported_reader *reader, const json_t *value, const char *user,
                             fth_exported_argument *result)
{
    bool *booleans = NULL;
    fth_status status = begin_list(reader, value, user, result, sizeof *booleans, &booleans);
    result->kind = FTH_ARGUMENT_BOOLS;
    result->booleans = booleans;
    for (size_t i = 0; i < result->count && status == FTH_OK; i++) {
        if (!json_is_boolean(json_array_get(value, i)))
            return fail(reader, user, result, "true or false");
        booleans[i] = json_is_true(json_array_get(value, i));
    }
    return status;
}

static fth_status read_string(fth_exported_reader *reader, const json_t *value, const char *user,
                              fth_exported_argument *result)
{
    result->kind = FTH_ARGUMENT_STRING;
    if (!json_is_string(value))
        return fail(reader, user, result, "text");
    return fth_exported_take_text(&reader->program->arena, json_string_value(value), json_string_length(value),
                                  &result->text);
}

static const argument_rule rules[] = {
    {"as_none", read_none},
    {"as_tensor", read_tensor},
    {"as_tensors", read_tensors},
    {"as_optional_tensor", read_optional_tensor},
    {"as_optional_tensors", read_tensors},
    {"as_int", read_int},
    {"as_ints", read_ints},
    {"as_sym_int", read_int},
    {"as_sym_ints", read_ints},
    {"as_float", read_float},
    {"as_floats", read_floats},
    {"as_bool", read_bool},
    {"as_bools", read_bools},
    {"as_string", read_string},
    {"as_scalar_type", read_dtype},
};

fth_status fth_exported_read_argument(fth_exported_reader *reader, const json_t *argument, const char *user,
                                      fth_exported_argument *result)
{
    const char *tag = NULL;
    json_t *value = NULL;
    result->tensor = -1;
    if (!fth_exported_untag(argument, &tag, &value))
        return fail(reader, user, result, "one value");
    for (size_t i = 0; i < FTH_COUNT_OF(rules); i++) {
        if (strcmp(rules[i].tag, tag) == 0)
            return rules[i].read(reader, value, user, result);
    }
    result->kind = FTH_ARGUMENT_OTHER;
    return fth_exported_take_text(&reader->program->arena, tag, strlen(tag), &result->text);
}
