/* The opcodes of pickle_internal.h's machine: one row of a table for each, one small function for
 * each kind of them. Opcodes that have a name but no function are those that tensors do not need,
 * and most of them run code. */
#include <stdlib.h>
#include <string.h>

#include "tensor/pickle_machine.h"

enum { MAX_PROTOCOL = 5 };

static fth_pickle_node none_node = {.kind = FTH_PICKLE_NONE};
static fth_pickle_node true_node = {.kind = FTH_PICKLE_BOOL, .integer = 1};
static fth_pickle_node false_node = {.kind = FTH_PICKLE_BOOL, .integer = 0};
static fth_pickle_node float_node = {.kind = FTH_PICKLE_FLOAT};
static fth_pickle_node empty_tuple_node = {.kind = FTH_PICKLE_TUPLE};

static fth_status run_protocol(fth_pickle_machine *machine, int argument)
{
    uint64_t protocol = 0;
    fth_status status = fth_pickle_take_unsigned(machine, 1, &protocol);
    (void)argument;
    if (status == FTH_OK && protocol > MAX_PROTOCOL)
        return fth_pickle_corrupt(&machine->place, "a protocol that does not exist");
    return status;
}

/* Frames only tell how much to read at once. */
static fth_status run_frame(fth_pickle_machine *machine, int argument)
{
    uint64_t length = 0;
    fth_status status = fth_pickle_take_unsigned(machine, 8, &length);
    (void)argument;
    if (status == FTH_OK && length > machine->size - machine->at)
        return fth_pickle_corrupt(&machine->place, "the frame is longer than the file");
    return status;
}

static fth_status run_stop(fth_pickle_machine *machine, int argument)
{
    fth_pickle_node *root = NULL;
    fth_status status = fth_pickle_pop(machine, &root);
    (void)argument;
    machine->pickle->root = root;
    machine->stopped = true;
    return status;
}

static fth_status run_mark(fth_pickle_machine *machine, int argument)
{
    (void)argument;
    return fth_pickle_set_mark(machine);
}

static fth_status run_pop(fth_pickle_machine *machine, int argument)
{
    fth_pickle_node *node = NULL;
    (void)argument;
    return fth_pickle_pop(machine, &node);
}

static fth_status run_pop_mark(fth_pickle_machine *machine, int argument)
{
    fth_pickle_node *const *items = NULL;
    size_t count = 0;
    (void)argument;
    return fth_pickle_pop_to_mark(machine, &items, &count);
}

static fth_status run_duplicate(fth_pickle_machine *machine, int argument)
{
    fth_pickle_node *node = NULL;
    fth_status status = fth_pickle_peek(machine, &node);
    (void)argument;
    return status == FTH_OK ? fth_pickle_push(machine, node) : status;
}

static fth_status run_none(fth_pickle_machine *machine, int argument)
{
    (void)argument;
    return fth_pickle_push(machine, &none_node);
}

static fth_status run_bool(fth_pickle_machine *machine, int argument)
{
    return fth_pickle_push(machine, argument ? &true_node : &false_node);
}

static fth_status run_float(fth_pickle_machine *machine, int argument)
{
    const unsigned char *bytes = NULL;
    fth_status status = fth_pickle_take_bytes(machine, (uint64_t)argument, &bytes);
    return status == FTH_OK ? fth_pickle_push(machine, &float_node) : status;
}

static fth_status push_integer(fth_pickle_machine *machine, int64_t value)
{
    fth_pickle_node *node = NULL;
    fth_status status = fth_pickle_node_create(machine->arena, FTH_PICKLE_INTEGER, &node);
    if (status != FTH_OK)
        return status;
    node->integer = value;
    return fth_pickle_push(machine, node);
}

/* One or two bytes are unsigned, four are signed. */
static fth_status run_integer(fth_pickle_machine *machine, int width)
{
    uint64_t value = 0;
    fth_status status = fth_pickle_take_unsigned(machine, width, &value);
    if (status != FTH_OK)
        return status;
    return push_integer(machine, width == 4 ? (int64_t)(int32_t)(uint32_t)value : (int64_t)value);
}

static fth_status push_bytes(fth_pickle_machine *machine, fth_pickle_kind kind, uint64_t length)
{
    fth_status status = FTH_OK;
    const unsigned char *bytes = NULL;
    fth_pickle_node *node = NULL;
    FTH_TRY(fth_pickle_take_bytes(machine, length, &bytes));
    if (length > UINT32_MAX)
        return fth_pickle_corrupt(&machine->place, "text of more than 4 GB");
    FTH_TRY(fth_pickle_node_create(machine->arena, kind, &node));
    node->bytes = (const char *)bytes;
    node->count = (uint32_t)length;
    FTH_TRY(fth_pickle_push(machine, node));
out:
    return status;
}

static fth_status run_long(fth_pickle_machine *machine, int width)
{
    uint64_t length = 0;
    fth_status status = fth_pickle_take_unsigned(machine, width, &length);
    if (status != FTH_OK)
        return status;
    if (length > sizeof(int64_t))
        return push_bytes(machine, FTH_PICKLE_LONG, length);
    const unsigned char *bytes = NULL;
    status = fth_pickle_take_bytes(machine, length, &bytes);
    if (status != FTH_OK)
        return status;
    int64_t value = length && bytes[length - 1] & 0x80 ? -1 : 0; /* two's complement */
    memcpy(&value, bytes, (size_t)length);
    return push_integer(machine, value);
}

static fth_status run_text(fth_pickle_machine *machine, int width)
{
    uint64_t length = 0;
    fth_status status = fth_pickle_take_unsigned(machine, width, &length);
    return status == FTH_OK ? push_bytes(machine, FTH_PICKLE_TEXT, length) : status;
}

static fth_status run_bytes(fth_pickle_machine *machine, int width)
{
    uint64_t length = 0;
    fth_status status = fth_pickle_take_unsigned(machine, width, &length);
    return status == FTH_OK ? push_bytes(machine, FTH_PICKLE_BYTES, length) : status;
}

static fth_status run_empty(fth_pickle_machine *machine, int kind)
{
    fth_pickle_node *node = &empty_tuple_node;
    fth_status status = FTH_OK;
    if (kind != FTH_PICKLE_TUPLE)
        status = fth_pickle_node_create(machine->arena, (fth_pickle_kind)kind, &node);
    return status == FTH_OK ? fth_pickle_push(machine, node) : status;
}

/* A tuple, list or dictionary of what lies above the mark. */
static fth_status run_collect(fth_pickle_machine *machine, int kind)
{
    fth_status status = FTH_OK;
    fth_pickle_node *const *items = NULL;
    fth_pickle_node *node = NULL;
    size_t count = 0;
    FTH_TRY(fth_pickle_pop_to_mark(machine, &items, &count));
    if (kind == FTH_PICKLE_DICT && count % 2)
        return fth_pickle_corrupt(&machine->place, "a key without a value");
    FTH_TRY(fth_pickle_node_create(machine->arena, (fth_pickle_kind)kind, &node));
    if (kind != FTH_PICKLE_OPAQUE)
        FTH_TRY(fth_pickle_node_append(machine->arena, node, items, count));
    FTH_TRY(fth_pickle_push(machine, node));
out:
    return status;
}

static fth_status run_short_tuple(fth_pickle_machine *machine, int count)
{
    fth_status status = FTH_OK;
    fth_pickle_node *node = NULL;
    fth_pickle_node *items[3] = {NULL};
    for (int i = count; i-- > 0;)
        FTH_TRY(fth_pickle_pop(machine, &items[i]));
    FTH_TRY(fth_pickle_node_create(machine->arena, FTH_PICKLE_TUPLE, &node));
    FTH_TRY(fth_pickle_node_append(machine->arena, node, items, (size_t)count));
    FTH_TRY(fth_pickle_push(machine, node));
out:
    return status;
}

/* Items for the list, set or dictionary below them; those of a set are not kept. An object of a
 * foreign class that takes keys and values is a dictionary for all we need: state dicts come in
 * subclasses of OrderedDict. */
static fth_status add_items(fth_pickle_machine *machine, fth_pickle_kind kind, fth_pickle_node *const *items,
                            size_t count)
{
    fth_pickle_node *node = NULL;
    fth_status status = fth_pickle_peek(machine, &node);
    if (status == FTH_OK && node->kind == FTH_PICKLE_OPAQUE && node->global && kind == FTH_PICKLE_DICT) {
        node->kind = FTH_PICKLE_DICT;
        node->items = NULL;
    }
    if (status != FTH_OK || node->kind == FTH_PICKLE_OPAQUE)
        return status;
    if (node->kind != kind)
        return fth_pickle_corrupt(&machine->place, "it adds to something else");
    if (kind == FTH_PICKLE_DICT && count % 2)
        return fth_pickle_corrupt(&machine->place, "a key without a value");
    return fth_pickle_node_append(machine->arena, node, items, count);
}

static fth_status run_add(fth_pickle_machine *machine, int kind)
{
    fth_pickle_node *items[2];
    size_t count = kind == FTH_PICKLE_DICT ? 2 : 1;
    for (size_t i = count; i-- > 0;) {
        fth_status status = fth_pickle_pop(machine, &items[i]);
        if (status != FTH_OK)
            return status;
    }
    return add_items(machine, (fth_pickle_kind)kind, items, count);
}

static fth_status run_add_all(fth_pickle_machine *machine, int kind)
{
    fth_pickle_node *const *items = NULL;
    size_t count = 0;
    fth_status status = fth_pickle_pop_to_mark(machine, &items, &count);
    return status == FTH_OK ? add_items(machine, (fth_pickle_kind)kind, items, count) : status;
}

static fth_status run_put(fth_pickle_machine *machine, int width)
{
    uint64_t index = 0;
    fth_status status = fth_pickle_take_unsigned(machine, width, &index);
    return status == FTH_OK ? fth_pickle_put_memo(machine, index) : status;
}

static fth_status run_memoize(fth_pickle_machine *machine, int argument)
{
    (void)argument;
    return fth_pickle_put_memo(machine, machine->memo_puts);
}

static fth_status run_get(fth_pickle_machine *machine, int width)
{
    uint64_t index = 0;
    fth_status status = fth_pickle_take_unsigned(machine, width, &index);
    return status == FTH_OK ? fth_pickle_push_memo(machine, index) : status;
}

static fth_status push_global(fth_pickle_machine *machine, const char *module, size_t module_length, const char *name,
                              size_t name_length)
{
    fth_status status = FTH_OK;
    const fth_pickle_global *global = NULL;
    fth_pickle_node *node = NULL;
    FTH_TRY(
        fth_pickle_global_find(machine->pickle, &machine->place, module, module_length, name, name_length, &global));
    FTH_TRY(fth_pickle_node_create(machine->arena, FTH_PICKLE_GLOBAL, &node));
    node->global = global;
    FTH_TRY(fth_pickle_push(machine, node));
out:
    return status;
}

static fth_status run_global(fth_pickle_machine *machine, int argument)
{
    fth_status status = FTH_OK;
    const char *module = NULL, *name = NULL;
    size_t module_length = 0, name_length = 0;
    (void)argument;
    FTH_TRY(fth_pickle_take_line(machine, &module, &module_length));
    FTH_TRY(fth_pickle_take_line(machine, &name, &name_length));
    FTH_TRY(push_global(machine, module, module_length, name, name_length));
out:
    return status;
}

static fth_status run_stack_global(fth_pickle_machine *machine, int argument)
{
    fth_status status = FTH_OK;
    fth_pickle_node *module = NULL, *name = NULL;
    (void)argument;
    FTH_TRY(fth_pickle_pop(machine, &name));
    FTH_TRY(fth_pickle_pop(machine, &module));
    if (module->kind != FTH_PICKLE_TEXT || name->kind != FTH_PICKLE_TEXT)
        return fth_pickle_corrupt(&machine->place, "a name that is not text");
    FTH_TRY(push_global(machine, module->bytes, module->count, name->bytes, name->count));
out:
    return status;
}

/* Makes an instance of a class it names. No tensor needs it, but the refusal tells the name. */
static fth_status run_instance(fth_pickle_machine *machine, int argument)
{
    fth_status status = run_global(machine, argument);
    return status == FTH_OK ? fth_pickle_refuse(&machine->place, "of a class") : status;
}

static fth_status run_call(fth_pickle_machine *machine, int argument)
{
    fth_status status = FTH_OK;
    fth_pickle_node *callable = NULL, *arguments = NULL, *result = NULL;
    (void)argument;
    FTH_TRY(fth_pickle_pop(machine, &arguments));
    FTH_TRY(fth_pickle_pop(machine, &callable));
    FTH_TRY(fth_pickle_global_call(machine->arena, &machine->place, callable, arguments, &result));
    FTH_TRY(fth_pickle_push(machine, result));
out:
    return status;
}

/* As run_call, with keyword arguments on top of the stack. */
static fth_status run_call_with_keywords(fth_pickle_machine *machine, int argument)
{
    fth_pickle_node *keywords = NULL;
    fth_status status = fth_pickle_pop(machine, &keywords);
    return status == FTH_OK ? run_call(machine, argument) : status;
}

/* Sets attributes, such as the _metadata of an OrderedDict; none matters here. */
static fth_status run_build(fth_pickle_machine *machine, int argument)
{
    fth_status status = FTH_OK;
    fth_pickle_node *state = NULL, *node = NULL;
    (void)argument;
    FTH_TRY(fth_pickle_pop(machine, &state));
    FTH_TRY(fth_pickle_peek(machine, &node));
    if (node->kind != FTH_PICKLE_DICT && node->kind != FTH_PICKLE_OPAQUE && node->kind != FTH_PICKLE_TENSOR)
        return fth_pickle_refuse(&machine->place, "of something that has no attributes");
out:
    return status;
}

/* ("module", class, source file, source): how the old format of torch.save() writes the class of a
 * whole model. */
static bool is_class_with_source(const fth_pickle_node *id)
{
    return id->kind == FTH_PICKLE_TUPLE && id->count == 4 && fth_pickle_text_is(id->items[0], "module") &&
           id->items[1]->kind == FTH_PICKLE_GLOBAL;
}

static fth_status run_persistent_id(fth_pickle_machine *machine, int argument)
{
    fth_status status = FTH_OK;
    fth_pickle_node *id = NULL, *storage = NULL;
    (void)argument;
    FTH_TRY(fth_pickle_pop(machine, &id));
    if (is_class_with_source(id)) {
        FTH_TRY(fth_pickle_push(machine, id->items[1]));
        goto out;
    }
    FTH_TRY(fth_pickle_storage_read(machine->arena, &machine->place, id, &storage));
    FTH_TRY(fth_grow(&machine->pickle->storages, machine->pickle->storage_count, &machine->storage_capacity,
                     sizeof *machine->pickle->storages));
    machine->pickle->storages[machine->pickle->storage_count++] = storage->storage;
    FTH_TRY(fth_pickle_push(machine, storage));
out:
    return status;
}

typedef struct opcode_row {
    const char *name;
    fth_status (*run)(fth_pickle_machine *machine, int argument); /* NULL: refused */
    int argument;                                                 /* a width in bytes, a kind of node, a count */
} opcode_row;

static const opcode_row opcodes[256] = {
    [0x80] = {"PROTO", run_protocol, 0},
    [0x95] = {"FRAME", run_frame, 0},
    ['.'] = {"STOP", run_stop, 0},
    ['('] = {"MARK", run_mark, 0},
    ['0'] = {"POP", run_pop, 0},
    ['1'] = {"POP_MARK", run_pop_mark, 0},
    ['2'] = {"DUP", run_duplicate, 0},
    ['N'] = {"NONE", run_none, 0},
    [0x88] = {"NEWTRUE", run_bool, 1},
    [0x89] = {"NEWFALSE", run_bool, 0},
    ['K'] = {"BININT1", run_integer, 1},
    ['M'] = {"BININT2", run_integer, 2},
    ['J'] = {"BININT", run_integer, 4},
    [0x8a] = {"LONG1", run_long, 1},
    [0x8b] = {"LONG4", run_long, 4},
    ['G'] = {"BINFLOAT", run_float, 8},
    ['U'] = {"SHORT_BINSTRING", run_text, 1},
    ['T'] = {"BINSTRING", run_text, 4},
    [0x8c] = {"SHORT_BINUNICODE", run_text, 1},
    ['X'] = {"BINUNICODE", run_text, 4},
    [0x8d] = {"BINUNICODE8", run_text, 8},
    ['C'] = {"SHORT_BINBYTES", run_bytes, 1},
    ['B'] = {"BINBYTES", run_bytes, 4},
    [0x8e] = {"BINBYTES8", run_bytes, 8},
    [0x96] = {"BYTEARRAY8", run_bytes, 8},
    [')'] = {"EMPTY_TUPLE", run_empty, FTH_PICKLE_TUPLE},
    [']'] = {"EMPTY_LIST", run_empty, FTH_PICKLE_LIST},
    ['}'] = {"EMPTY_DICT", run_empty, FTH_PICKLE_DICT},
    [0x8f] = {"EMPTY_SET", run_empty, FTH_PICKLE_OPAQUE},
    ['t'] = {"TUPLE", run_collect, FTH_PICKLE_TUPLE},
    ['l'] = {"LIST", run_collect, FTH_PICKLE_LIST},
    ['d'] = {"DICT", run_collect, FTH_PICKLE_DICT},
    [0x91] = {"FROZENSET", run_collect, FTH_PICKLE_OPAQUE},
    [0x85] = {"TUPLE1", run_short_tuple, 1},
    [0x86] = {"TUPLE2", run_short_tuple, 2},
    [0x87] = {"TUPLE3", run_short_tuple, 3},
    ['a'] = {"APPEND", run_add, FTH_PICKLE_LIST},
    ['e'] = {"APPENDS", run_add_all, FTH_PICKLE_LIST},
    ['s'] = {"SETITEM", run_add, FTH_PICKLE_DICT},
    ['u'] = {"SETITEMS", run_add_all, FTH_PICKLE_DICT},
    [0x90] = {"ADDITEMS", run_add_all, FTH_PICKLE_OPAQUE},
    ['q'] = {"BINPUT", run_put, 1},
    ['r'] = {"LONG_BINPUT", run_put, 4},
    [0x94] = {"MEMOIZE", run_memoize, 0},
    ['h'] = {"BINGET", run_get, 1},
    ['j'] = {"LONG_BINGET", run_get, 4},
    ['c'] = {"GLOBAL", run_global, 0},
    [0x93] = {"STACK_GLOBAL", run_stack_global, 0},
    ['i'] = {"INST", run_instance, 0},
    ['R'] = {"REDUCE", run_call, 0},
    [0x81] = {"NEWOBJ", run_call, 0},
    [0x92] = {"NEWOBJ_EX", run_call_with_keywords, 0},
    ['b'] = {"BUILD", run_build, 0},
    ['Q'] = {"BINPERSID", run_persistent_id, 0},
    ['P'] = {"PERSID", NULL, 0},
    ['I'] = {"INT", NULL, 0},
    ['L'] = {"LONG", NULL, 0},
    ['F'] = {"FLOAT", NULL, 0},
    ['S'] = {"STRING", NULL, 0},
    ['V'] = {"UNICODE", NULL, 0},
    ['p'] = {"PUT", NULL, 0},
    ['g'] = {"GET", NULL, 0},
    ['o'] = {"OBJ", NULL, 0},
    [0x82] = {"EXT1", NULL, 0},
    [0x83] = {"EXT2", NULL, 0},
    [0x84] = {"EXT4", NULL, 0},
    [0x97] = {"NEXT_BUFFER", NULL, 0},
    [0x98] = {"READONLY_BUFFER", NULL, 0},
};

static fth_status run(fth_pickle_machine *machine)
{
    while (!machine->stopped) {
        machine->place.at = machine->at;
        if (machine->at >= machine->size)
            return fth_fail(FTH_CORRUPT, "%s: truncated: the pickle has no end", machine->place.origin);
        unsigned char byte = machine->bytes[machine->at++];
        fth_pickle_arena_allow(machine->arena, machine->at - machine->start);
        const opcode_row *opcode = &opcodes[byte];
        if (!opcode->name)
            return fth_fail(FTH_CORRUPT, "%s: damaged pickle: byte %zu (0x%02x) is not an opcode",
                            machine->place.origin, machine->place.at, byte);
        machine->place.opcode = opcode->name;
        if (!opcode->run)
            return fth_fail(FTH_UNSUPPORTED,
                            "%s: refused: opcode %s at byte %zu, which tensors do not need; farthing reads tensors "
                            "only, as torch.save() writes them",
                            machine->place.origin, opcode->name, machine->place.at);
        fth_status status = opcode->run(machine, opcode->argument);
        if (status != FTH_OK)
            return status;
    }
    return FTH_OK;
}

fth_status fth_pickle_read(const void *bytes, size_t size_bytes, size_t start, const char *origin, fth_pickle **pickle)
{
    fth_status status = FTH_OK;
    fth_pickle *fresh = NULL;
    fth_pickle_machine machine = {
        .bytes = bytes, .size = size_bytes, .start = start, .at = start, .place = {.origin = origin, .opcode = ""}};

    *pickle = NULL;
    FTH_TRY(fth_allocate(1, sizeof *fresh, &fresh));
    FTH_TRY(fth_pickle_arena_create(origin, &fresh->arena));
    machine.pickle = fresh;
    machine.arena = fresh->arena;
    FTH_TRY(run(&machine));
    fresh->end = machine.at;
    *pickle = fresh;
    fresh = NULL;

out:
    fth_pickle_machine_release(&machine);
    fth_pickle_free(fresh);
    return status;
}

void fth_pickle_free(fth_pickle *pickle)
{
    if (!pickle)
        return;
    fth_pickle_arena_free(pickle->arena);
    free(pickle->storages);
    free(pickle);
}
