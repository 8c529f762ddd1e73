/* Data of buffers and constants within a program's text: {"data": {NAME: "base64"}}. What the graph
 * itself changes (running statistics, counters) and what is trained is state, which checkpoints and
 * model files have. */
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "exported/program_internal.h"

enum { MAX_INLINE_BYTES = 1 << 29 };

/* ---- writing ---- */

static void mark(const fth_exported_argument *argument, bool *marked)
{
    if (argument && argument->kind == FTH_ARGUMENT_TENSOR && argument->tensor >= 0)
        marked[argument->tensor] = true;
}

/* True for operators that change their first argument: "aten.add_.Tensor", not
 * "aten.__and__.Tensor". */
static bool is_in_place(const char *target)
{
    const char *name = strchr(target, '.');
    const size_t length = name ? strcspn(name + 1, ".") : 0;
    return length > 1 && name[length] == '_' && name[1] != '_';
}

/* Marks what the program changes. */
static fth_status find_changed(const fth_exported *program, bool **changed)
{
    fth_status status = fth_allocate(program->value_count, sizeof **changed, changed);
    for (size_t i = 0; i < program->node_count && status == FTH_OK; i++) {
        const fth_exported_node *node = &program->nodes[i];
        if (strstr(node->target, "batch_norm")) {
            mark(fth_exported_find_argument(node, "running_mean"), *changed);
            mark(fth_exported_find_argument(node, "running_var"), *changed);
        }
        if (is_in_place(node->target) && node->argument_count > 0)
            mark(&node->arguments[0], *changed);
    }
    return status;
}

static fth_status encode(const void *bytes, size_t size_bytes, json_t **text)
{
    fth_status status = FTH_OK;
    unsigned char *encoded = NULL;
    FTH_TRY(fth_allocate((size_bytes + 2) / 3 * 4 + 1, 1, &encoded));
    const int length = EVP_EncodeBlock(encoded, bytes, (int)size_bytes);
    *text = json_stringn_nocheck((const char *)encoded, (size_t)length);
    FTH_REQUIRE(*text, FTH_NO_MEMORY, "no memory for %zu bytes as text", size_bytes);
out:
    free(encoded);
    return status;
}

fth_status fth_exported_write_data(const fth_exported *program, json_t *data)
{
    fth_status status = FTH_OK;
    bool *changed = NULL;
    size_t total = 0;
    FTH_TRY(find_changed(program, &changed));
    for (size_t i = 0; i < program->value_count; i++) {
        const fth_exported_value *value = &program->values[i];
        json_t *text = NULL;
        if (!value->data || value->kind == FTH_EXPORTED_PARAMETER || changed[i])
            continue;
        total += value->size_bytes;
        FTH_REQUIRE(total <= MAX_INLINE_BYTES, FTH_UNSUPPORTED,
                    "%s: constants and buffers of more than %d MiB; make them parameters (requires_grad=False)",
                    program->origin, MAX_INLINE_BYTES >> 20);
        FTH_TRY(encode(value->data, value->size_bytes, &text));
        FTH_REQUIRE(json_object_set_new(data, value->name, text) == 0, FTH_NO_MEMORY, "no memory for '%s'",
                    value->name);
    }
out:
    free(changed);
    return status;
}

/* ---- reading ---- */

/* The bytes that the value's type and shape take; false where they are not known or absurd. */
static bool find_size(const fth_exported_value *value, size_t *size_bytes)
{
    fth_dtype dtype;
    if (!fth_torch_dtype_find(value->torch_dtype, &dtype))
        return false;
    *size_bytes = fth_dtype_size_bytes(dtype);
    bool known = true;
    for (int i = 0; i < value->rank; i++)
        known = known && fth_exported_dim_is(&value->dims[i], value->dims[i].factor) &&
                !__builtin_mul_overflow(*size_bytes, (size_t)value->dims[i].factor, size_bytes);
    return known && *size_bytes <= MAX_INLINE_BYTES;
}

static fth_status decode(fth_exported_reader *reader, const json_t *text, fth_exported_value *value)
{
    fth_status status = FTH_OK;
    unsigned char *bytes = NULL;
    const char *encoded = json_string_value(text);
    const size_t length = json_string_length(text);
    size_t padding = 0;

    while (padding < 2 && padding < length && encoded[length - 1 - padding] == '=')
        padding++;
    FTH_REQUIRE(find_size(value, &value->size_bytes) && encoded && length % 4 == 0 &&
                    length / 4 * 3 == value->size_bytes + padding,
                FTH_CORRUPT, "%s: the data of '%s' do not have the size of its shape", reader->origin, value->name);
    FTH_TRY(fth_exported_take(&reader->program->arena, length / 4 * 3, 1, &bytes));
    FTH_REQUIRE(length == 0 ||
                    EVP_DecodeBlock(bytes, (const unsigned char *)encoded, (int)length) == (int)(length / 4 * 3),
                FTH_CORRUPT, "%s: the data of '%s' are not base64", reader->origin, value->name);
    value->data = bytes;
out:
    return status;
}

fth_status fth_exported_read_data(fth_exported_reader *reader, const json_t *data)
{
    fth_status status = FTH_OK;
    for (size_t i = 0; i < reader->program->value_count; i++) {
        fth_exported_value *value = &reader->program->values[i];
        const json_t *text = value->state_name ? json_object_get(data, value->name) : NULL;
        if (text)
            FTH_TRY(decode(reader, text, value));
        else
            FTH_REQUIRE(!value->state_name || value->persistent, FTH_CORRUPT, "%s: no data for '%s' in it",
                        reader->origin, value->name);
    }
out:
    return status;
}
