/* Fuzzes the reader of PyTorch's exported programs: the archives of all versions, the program, the
 * lists of weights. Whatever it accepts can be read to the last byte, refers to nothing that is not
 * there, has constants that can be computed, and is the same after being written as text and read
 * again. The first byte of the input
 * says what the rest is:
 *
 *     0    a whole file
 *     1    a program, to be put into an archive with two weights
 *     2    the list of an archive's weights, of which there are 64 bytes
 *     3    a program's text, as in a model file */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "exported/fold.h"
#include "exported/program.h"
#include "tensor/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* ---- looking at what was read ---- */

static void check_number(const fth_exported *program, int number)
{
    require(number >= -1 && number < fth_exported_value_count(program));
}

static void read_value(const fth_exported *program, int number)
{
    const fth_exported_value *value = fth_exported_get_value(program, number);
    volatile uint8_t sum = 0;
    require(value->rank <= FTH_MAX_RANK && strlen(value->name) > 0 && value->same_as < number);
    check_number(program, value->same_as);
    for (size_t i = 0; value->data && i < value->size_bytes; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)value->data)[i]);
    for (int i = 0; i < value->rank; i++)
        require(value->dims[i].factor >= 0 && (!value->dims[i].unknown || value->dims[i].factor == 0));
}

static void read_node(const fth_exported *program, const fth_exported_node *node)
{
    for (size_t i = 0; i < node->argument_count; i++) {
        const fth_exported_argument *argument = &node->arguments[i];
        require(fth_exported_find_argument(node, argument->name) != NULL);
        check_number(program, argument->tensor);
        for (size_t k = 0; argument->tensors && k < argument->count; k++)
            check_number(program, argument->tensors[k]);
    }
    for (size_t i = 0; i < node->output_count; i++)
        check_number(program, node->outputs[i]);
}

/* ---- computing ---- */

enum { MOST_TENSORS = 16 };

typedef struct constants {
    fth_host_tensor *values; /* by number in the program */
    bool *known;
    int64_t allowance;
} constants;

/* The tensors that a node reads; false if one is not known. */
static bool collect(const constants *c, const fth_exported_node *node, const fth_host_tensor **tensors)
{
    size_t count = 0;
    for (size_t a = 0; a < node->argument_count; a++) {
        const fth_exported_argument *argument = &node->arguments[a];
        const bool single = argument->kind == FTH_ARGUMENT_TENSOR;
        const size_t length = single ? 1 : argument->kind == FTH_ARGUMENT_TENSORS ? argument->count : 0;
        for (size_t i = 0; i < length; i++) {
            const int number = single ? argument->tensor : argument->tensors[i];
            const bool known = number >= 0 && c->known[number];
            if (count == MOST_TENSORS || (number >= 0 && !known && fth_fold_reads(node->target, argument->name)))
                return false;
            tensors[count++] = known ? &c->values[number] : NULL;
        }
    }
    return true;
}

static void fold_one(const fth_exported *program, const fth_exported_node *node, constants *c)
{
    const fth_host_tensor *tensors[MOST_TENSORS];
    fth_host_tensor outputs[MOST_TENSORS];
    bool folded = false;
    if (node->output_count > MOST_TENSORS || !collect(c, node, tensors) ||
        fth_fold_node(program, node, tensors, &c->allowance, outputs, &folded) != FTH_OK || !folded)
        return;
    for (size_t o = 0; o < node->output_count; o++) {
        volatile double sum = 0;
        const int64_t count = outputs[o].numbers ? fth_shape_count(&outputs[o].shape) : 0;
        for (int64_t i = 0; i < count; i++)
            sum = sum + outputs[o].numbers[i];
        if (node->outputs[o] >= 0) {
            require(outputs[o].numbers != NULL);
            c->values[node->outputs[o]] = outputs[o];
            c->known[node->outputs[o]] = true;
        } else {
            fth_host_tensor_release(&outputs[o]);
        }
    }
}

static void fold_all(const fth_exported *program)
{
    const int count = fth_exported_value_count(program);
    constants c = {calloc((size_t)count + 1, sizeof *c.values), calloc((size_t)count + 1, sizeof *c.known), 1 << 20};
    for (int i = 0; i < count; i++) {
        const fth_exported_value *value = fth_exported_get_value(program, i);
        c.known[i] = value->data && fth_host_tensor_of(value, &c.values[i]) == FTH_OK;
    }
    for (size_t i = 0; i < fth_exported_node_count(program); i++)
        fold_one(program, fth_exported_get_node(program, i), &c);
    for (int i = 0; i < count; i++)
        fth_host_tensor_release(&c.values[i]);
    free(c.values);
    free(c.known);
}

static void write_again(const fth_exported *program)
{
    char *text = NULL, *again = NULL;
    fth_exported *parsed = NULL;
    require(fth_exported_to_text(program, &text) == FTH_OK);
    require(fth_exported_parse(text, strlen(text), "fuzz", &parsed) == FTH_OK);
    require(fth_exported_to_text(parsed, &again) == FTH_OK && strcmp(text, again) == 0);
    free(text);
    free(again);
    fth_exported_free(parsed);
}

static void read_all(const fth_exported *program)
{
    for (int i = 0; i < fth_exported_value_count(program); i++)
        read_value(program, i);
    for (size_t i = 0; i < fth_exported_node_count(program); i++)
        read_node(program, fth_exported_get_node(program, i));
    for (size_t i = 0; i < fth_exported_input_count(program); i++)
        require(fth_exported_get_input(program, i) >= 0);
    for (size_t i = 0; i < fth_exported_output_count(program); i++)
        require(fth_exported_get_output(program, i) >= 0);
    fold_all(program);
    write_again(program);
}

static void open_bytes(const uint8_t *bytes, size_t size)
{
    fth_exported *program = NULL;
    fth_weights *weights = NULL;
    fth_status status = fth_exported_open_bytes(bytes, size, "fuzz", &program);
    if (status == FTH_OK)
        read_all(program);
    else
        require(strstr(fth_error_message(), "fuzz") != NULL);
    fth_exported_free(program);
    if (fth_weights_parse(bytes, size, "fuzz", "", &weights) != FTH_OK)
        require(status != FTH_OK || strstr(fth_error_message(), "fuzz"));
    fth_weights_free(weights);
}

static void parse_text(const uint8_t *bytes, size_t size)
{
    fth_exported *program = NULL;
    if (fth_exported_parse((const char *)bytes, size, "fuzz", &program) == FTH_OK)
        read_all(program);
    else
        require(strstr(fth_error_message(), "fuzz") != NULL);
    fth_exported_free(program);
}

/* ---- archives ---- */

typedef struct part {
    const char *name;
    const void *bytes;
    size_t size;
} part;

static void append(uint8_t *to, size_t *at, const void *from, size_t size)
{
    if (size)
        memcpy(to + *at, from, size);
    *at += size;
}

static void append_number(uint8_t *to, size_t *at, uint64_t value, size_t width)
{
    append(to, at, &value, width);
}

static void append_header(uint8_t *to, size_t *at, bool central, const part *p, size_t local)
{
    static const uint8_t zeros[12];
    append(to, at, central ? "PK\1\2" : "PK\3\4", 4);
    append(to, at, zeros, central ? 8 : 6);
    append(to, at, zeros, 8);
    append_number(to, at, p->size, 4);
    append_number(to, at, p->size, 4);
    append_number(to, at, strlen(p->name), 2);
    append(to, at, zeros, central ? 12 : 2);
    if (central)
        append_number(to, at, local, 4);
    append(to, at, p->name, strlen(p->name));
}

enum { PARTS = 4, OVERHEAD = 1000 };

/* `to` has room for OVERHEAD bytes more than the parts have. */
static size_t pack(const part *parts, uint8_t *to)
{
    size_t at = 0, locals[PARTS];
    for (size_t i = 0; i < PARTS; i++) {
        locals[i] = at;
        append_header(to, &at, false, &parts[i], 0);
        append(to, &at, parts[i].bytes, parts[i].size);
    }
    const size_t directory = at;
    for (size_t i = 0; i < PARTS; i++)
        append_header(to, &at, true, &parts[i], locals[i]);
    const size_t directory_size = at - directory;
    append(to, &at, "PK\5\6\0\0\0\0", 8);
    append_number(to, &at, PARTS, 2);
    append_number(to, &at, PARTS, 2);
    append_number(to, &at, directory_size, 4);
    append_number(to, &at, directory, 4);
    append_number(to, &at, 0, 2);
    return at;
}

#define TENSOR(name, strides, offset)                                                                                  \
    "\"" name "\":{\"path_name\":\"weight_0\",\"use_pickle\":false,\"tensor_meta\":{\"dtype\":7,"                      \
    "\"sizes\":[{\"as_int\":2},{\"as_int\":3}],\"strides\":[" strides "],\"storage_offset\":{\"as_int\":" offset "}}}"

static const char weights_list[] = "{\"config\":{" TENSOR("w", "{\"as_int\":3},{\"as_int\":1}", "0") "," TENSOR(
    "v", "{\"as_int\":1},{\"as_int\":2}", "6") "}}";

static const char one_program[] =
    "{\"schema_version\":{\"major\":8},\"verifiers\":[\"TRAINING\"],\"graph_module\":{\"signature\":{\"input_specs\":[{"
    "\"parameter\":{\"arg\":{\"name\":\"p\"},\"parameter_name\":\"w\"}}],\"output_specs\":[{\"user_output\":{\"arg\":{"
    "\"as_tensor\":{\"name\":\"p\"}}}}]},\"graph\":{\"nodes\":[],\"tensor_values\":{\"p\":{\"dtype\":7,\"sizes\":[{"
    "\"as_int\":2},{\"as_int\":3}]}}}}}";

static void open_packed(const uint8_t *bytes, size_t size, bool is_program)
{
    static const uint8_t weight[64] = {0, 0, 128, 63};
    const part program = {"a/models/model.json", bytes, size},
               list = {"a/data/weights/model_weights_config.json", bytes, size};
    const part parts[PARTS] = {
        {"a/archive_format", "pt2", 3},
        is_program ? program : (part){program.name, one_program, sizeof one_program - 1},
        is_program ? (part){list.name, weights_list, sizeof weights_list - 1} : list,
        {"a/data/weights/weight_0", weight, sizeof weight},
    };
    uint8_t *archive = malloc(size + sizeof one_program + sizeof weights_list + OVERHEAD);
    if (!archive)
        return;
    const size_t archive_size = pack(parts, archive);
    uint8_t *exact = realloc(archive, archive_size); /* so that no byte beyond it can be read */
    open_bytes(exact ? exact : archive, archive_size);
    free(exact ? exact : archive);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size == 0)
        return 0;
    switch (bytes[0] % 4) {
    case 0: open_bytes(bytes + 1, size - 1); break;
    case 1: open_packed(bytes + 1, size - 1, true); break;
    case 2: open_packed(bytes + 1, size - 1, false); break;
    default: parse_text(bytes + 1, size - 1);
    }
    return 0;
}
