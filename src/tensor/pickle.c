/* The stack machine of pickle_internal.h: one row of a table for each opcode, one small function for each kind of them.
 * Opcodes that have a name but no function are those that tensors do not need, and most of them run code. */
#include <stdlib.h>
#include <string.h>

#include "tensor/pickle_internal.h"

/* Far more than any model needs; with the arena's budget they bound what a file can make us do. */
enum { MAX_PROTOCOL = 5, MAX_STACK = 1 << 22, MAX_MARKS = 1000, MAX_MEMO = 1 << 24, MAX_NAME = 512 };

typedef struct pickle_reader {
    const unsigned char *bytes;
    size_t size, start, at;
    fth_pickle_place place; /* of the opcode at hand */
    fth_pickle *pickle;
    fth_pickle_arena *arena;
    fth_pickle_node **stack;
    size_t stack_count, stack_capacity;
    size_t *marks; /* heights of the stack */
    size_t mark_count, mark_capacity;
    fth_pickle_node **memo;
    size_t memo_capacity, memo_puts;
    size_t storage_capacity;
    bool stopped;
} pickle_reader;

static fth_pickle_node none_node = {.kind = FTH_PICKLE_NONE};
static fth_pickle_node true_node = {.kind = FTH_PICKLE_BOOL, .integer = 1};
static fth_pickle_node false_node = {.kind = FTH_PICKLE_BOOL, .integer = 0};
static fth_pickle_node float_node = {.kind = FTH_PICKLE_FLOAT};
static fth_pickle_node empty_tuple_node = {.kind = FTH_PICKLE_TUPLE};

/* ---- bytes and the stack ---- */

static fth_status take_bytes(pickle_reader *reader, uint64_t count, const unsigned char **bytes)
{
    if (count > reader->size - reader->at)
        return fth_pickle_corrupt(&reader->place, "the file ends within it");
    *bytes = reader->bytes + reader->at;
    reader->at += (size_t)count;
    return FTH_OK;
}

static fth_status take_unsigned(pickle_reader *reader, int width, uint64_t *value)
{
    const unsigned char *bytes = NULL;
    fth_status status = take_bytes(reader, (uint64_t)width, &bytes);
    *value = 0;
    if (status == FTH_OK)
        memcpy(value, bytes, (size_t)width); /* both are little-endian */
    return status;
}

/* A line without its newline. */
static fth_status take_line(pickle_reader *reader, const char **text, size_t *length)
{
    size_t left = reader->size - reader->at;
    const unsigned char *start = reader->bytes + reader->at;
    const unsigned char *end = left ? memchr(start, '\n', left < MAX_NAME ? left : MAX_NAME) : NULL;
    if (!end)
        return fth_pickle_corrupt(&reader->place, "a name without an end");
    *text = (const char *)start;
    *length = (size_t)(end - start);
    reader->at += *length + 1;
    return FTH_OK;
}

static fth_status push(pickle_reader *reader, fth_pickle_node *node)
{
    if (reader->stack_count == MAX_STACK)
        return fth_pickle_corrupt(&reader->place, "too many values on the stack");
    fth_status status = fth_grow(&reader->stack, reader->stack_count, &reader->stack_capacity, sizeof *reader->stack);
    if (status == FTH_OK)
        reader->stack[reader->stack_count++] = node;
    return status;
}

/* Where the values above the last mark begin. */
static size_t stack_floor(const pickle_reader *reader)
{
    return reader->mark_count ? reader->marks[reader->mark_count - 1] : 0;
}

static fth_status pop(pickle_reader *reader, fth_pickle_node **node)
{
    if (reader->stack_count <= stack_floor(reader))
        return fth_pickle_corrupt(&reader->place, "nothing left on the stack");
    *node = reader->stack[--reader->stack_count];
    return FTH_OK;
}

/* Takes what lies above the last mark; it stays readable until the next push. */
static fth_status pop_to_mark(pickle_reader *reader, fth_pickle_node *const **items, size_t *count)
{
    if (reader->mark_count == 0)
        return fth_pickle_corrupt(&reader->place, "no mark to go back to");
    size_t floor = reader->marks[--reader->mark_count];
    *count = reader->stack_count - floor;
    *items = *count ? reader->stack + floor : NULL;
    reader->stack_count = floor;
    return FTH_OK;
}

/* The value that a list or dictionary opcode changes. */
static fth_status peek(pickle_reader *reader, fth_pickle_node **node)
{
    fth_status status = pop(reader, node);
    if (status == FTH_OK)
        reader->stack_count++;
    return status;
}

/* ---- opcodes ---- */

static fth_status run_protocol(pickle_reader *reader, int argument)
{
    uint64_t protocol = 0;
    fth_status status = take_unsigned(reader, 1, &protocol);
    (void)argument;
    if (status == FTH_OK && protocol > MAX_PROTOCOL)
        return fth_pickle_corrupt(&reader->place, "a protocol that does not exist");
    return status;
}

/* Frames only tell how much to read at once. */
static fth_status run_frame(pickle_reader *reader, int argument)
{
    uint64_t length = 0;
    fth_status status = take_unsigned(reader, 8, &length);
    (void)argument;
    if (status == FTH_OK && length > reader->size - reader->at)
        return fth_pickle_corrupt(&reader->place, "the frame is longer than the file");
    return status;
}

static fth_status run_stop(pickle_reader *reader, int argument)
{
    fth_pickle_node *root = NULL;
    fth_status status = pop(reader, &root);
    (void)argument;
    reader->pickle->root = root;
    reader->stopped = true;
    return status;
}

static fth_status run_mark(pickle_reader *reader, int argument)
{
    (void)argument;
    if (reader->mark_count == MAX_MARKS)
        return fth_pickle_corrupt(&reader->place, "nested too deeply");
    fth_status status = fth_grow(&reader->marks, reader->mark_count, &reader->mark_capacity, sizeof *reader->marks);
    if (status == FTH_OK)
        reader->marks[reader->mark_count++] = reader->stack_count;
    return status;
}

static fth_status run_pop(pickle_reader *reader, int argument)
{
    fth_pickle_node *node = NULL;
    (void)argument;
    return pop(reader, &node);
}

static fth_status run_pop_mark(pickle_reader *reader, int argument)
{
    fth_pickle_node *const *items = NULL;
    size_t count = 0;
    (void)argument;
    return pop_to_mark(reader, &items, &count);
}

static fth_status run_duplicate(pickle_reader *reader, int argument)
{
    fth_pickle_node *node = NULL;
    fth_status status = peek(reader, &node);
    (void)argument;
    return status == FTH_OK ? push(reader, node) : status;
}

static fth_status run_none(pickle_reader *reader, int argument)
{
    (void)argument;
    return push(reader, &none_node);
}

static fth_status run_bool(pickle_reader *reader, int argument)
{
    return push(reader, argument ? &true_node : &false_node);
}

static fth_status run_float(pickle_reader *reader, int argument)
{
    const unsigned char *bytes = NULL;
    fth_status status = take_bytes(reader, (uint64_t)argument, &bytes);
    return status == FTH_OK ? push(reader, &float_node) : status;
}

static fth_status push_integer(pickle_reader *reader, int64_t value)
{
    fth_pickle_node *node = NULL;
    fth_status status = fth_pickle_node_create(reader->arena, FTH_PICKLE_INTEGER, &node);
    if (status != FTH_OK)
        return status;
    node->integer = value;
    return push(reader, node);
}

/* One or two bytes are unsigned, four are signed. */
static fth_status run_integer(pickle_reader *reader, int width)
{
    uint64_t value = 0;
    fth_status status = take_unsigned(reader, width, &value);
    if (status != FTH_OK)
        return status;
    return push_integer(reader, width == 4 ? (int64_t)(int32_t)(uint32_t)value : (int64_t)value);
}

static fth_status push_bytes(pickle_reader *reader, fth_pickle_kind kind, uint64_t length)
{
    fth_status status = FTH_OK;
    const unsigned char *bytes = NULL;
    fth_pickle_node *node = NULL;
    FTH_TRY(take_bytes(reader, length, &bytes));
    if (length > UINT32_MAX)
        return fth_pickle_corrupt(&reader->place, "text of more than 4 GB");
    FTH_TRY(fth_pickle_node_create(reader->arena, kind, &node));
    node->bytes = (const char *)bytes;
    node->count = (uint32_t)length;
    FTH_TRY(push(reader, node));
out:
    return status;
}

static fth_status run_long(pickle_reader *reader, int width)
{
    uint64_t length = 0;
    fth_status status = take_unsigned(reader, width, &length);
    if (status != FTH_OK)
        return status;
    if (length > sizeof(int64_t))
        return push_bytes(reader, FTH_PICKLE_LONG, length);
    const unsigned char *bytes = NULL;
    status = take_bytes(reader, length, &bytes);
    if (status != FTH_OK)
        return status;
    int64_t value = length && bytes[length - 1] & 0x80 ? -1 : 0; /* two's complement */
    memcpy(&value, bytes, (size_t)length);
    return push_integer(reader, value);
}

static fth_status run_text(pickle_reader *reader, int width)
{
    uint64_t length = 0;
    fth_status status = take_unsigned(reader, width, &length);
    return status == FTH_OK ? push_bytes(reader, FTH_PICKLE_TEXT, length) : status;
}

static fth_status run_bytes(pickle_reader *reader, int width)
{
    uint64_t length = 0;
    fth_status status = take_unsigned(reader, width, &length);
    return status == FTH_OK ? push_bytes(reader, FTH_PICKLE_BYTES, length) : status;
}

static fth_status run_empty(pickle_reader *reader, int kind)
{
    fth_pickle_node *node = &empty_tuple_node;
    fth_status status = FTH_OK;
    if (kind != FTH_PICKLE_TUPLE)
        status = fth_pickle_node_create(reader->arena, (fth_pickle_kind)kind, &node);
    return status == FTH_OK ? push(reader, node) : status;
}

/* A tuple, list or dictionary of what lies above the mark. */
static fth_status run_collect(pickle_reader *reader, int kind)
{
    fth_status status = FTH_OK;
    fth_pickle_node *const *items = NULL;
    fth_pickle_node *node = NULL;
    size_t count = 0;
    FTH_TRY(pop_to_mark(reader, &items, &count));
    if (kind == FTH_PICKLE_DICT && count % 2)
        return fth_pickle_corrupt(&reader->place, "a key without a value");
    FTH_TRY(fth_pickle_node_create(reader->arena, (fth_pickle_kind)kind, &node));
    if (kind != FTH_PICKLE_OPAQUE)
        FTH_TRY(fth_pickle_node_append(reader->arena, node, items, count));
    FTH_TRY(push(reader, node));
out:
    return status;
}

static fth_status run_short_tuple(pickle_reader *reader, int count)
{
    fth_status status = FTH_OK;
    fth_pickle_node *node = NULL;
    if (reader->stack_count - stack_floor(reader) < (size_t)count)
        return fth_pickle_corrupt(&reader->place, "too few values on the stack");
    FTH_TRY(fth_pickle_node_create(reader->arena, FTH_PICKLE_TUPLE, &node));
    reader->stack_count -= (size_t)count;
    FTH_TRY(fth_pickle_node_append(reader->arena, node, reader->stack + reader->stack_count, (size_t)count));
    FTH_TRY(push(reader, node));
out:
    return status;
}

/* Items for the list, set or dictionary below them; those of a set are not kept. */
static fth_status add_items(pickle_reader *reader, fth_pickle_kind kind, fth_pickle_node *const *items, size_t count)
{
    fth_pickle_node *node = NULL;
    fth_status status = peek(reader, &node);
    if (status != FTH_OK || node->kind == FTH_PICKLE_OPAQUE)
        return status;
    if (node->kind != kind)
        return fth_pickle_corrupt(&reader->place, "it adds to something else");
    if (kind == FTH_PICKLE_DICT && count % 2)
        return fth_pickle_corrupt(&reader->place, "a key without a value");
    return fth_pickle_node_append(reader->arena, node, items, count);
}

static fth_status run_add(pickle_reader *reader, int kind)
{
    fth_pickle_node *items[2];
    size_t count = kind == FTH_PICKLE_DICT ? 2 : 1;
    for (size_t i = count; i-- > 0;) {
        fth_status status = pop(reader, &items[i]);
        if (status != FTH_OK)
            return status;
    }
    return add_items(reader, (fth_pickle_kind)kind, items, count);
}

static fth_status run_add_all(pickle_reader *reader, int kind)
{
    fth_pickle_node *const *items = NULL;
    size_t count = 0;
    fth_status status = pop_to_mark(reader, &items, &count);
    return status == FTH_OK ? add_items(reader, (fth_pickle_kind)kind, items, count) : status;
}

static fth_status put_memo(pickle_reader *reader, uint64_t index)
{
    fth_pickle_node *node = NULL;
    fth_status status = peek(reader, &node);
    if (status != FTH_OK)
        return status;
    /* Picklers count their puts, so an index far beyond the bytes read so far is made to cost memory. */
    if (index >= MAX_MEMO || index > reader->at)
        return fth_pickle_corrupt(&reader->place, "a memo that nobody needs");
    if (index >= reader->memo_capacity) {
        size_t capacity = reader->memo_capacity ? reader->memo_capacity * 2 : 64;
        if (capacity <= index)
            capacity = (size_t)index + 1;
        fth_pickle_node **larger = realloc(reader->memo, capacity * sizeof *larger);
        if (!larger)
            return fth_fail(FTH_NO_MEMORY, "%s: no memory for %zu values", reader->place.origin, capacity);
        memset(larger + reader->memo_capacity, 0, (capacity - reader->memo_capacity) * sizeof *larger);
        reader->memo = larger;
        reader->memo_capacity = capacity;
    }
    if (!reader->memo[index])
        reader->memo_puts++;
    reader->memo[index] = node;
    return FTH_OK;
}

static fth_status run_put(pickle_reader *reader, int width)
{
    uint64_t index = 0;
    fth_status status = take_unsigned(reader, width, &index);
    return status == FTH_OK ? put_memo(reader, index) : status;
}

static fth_status run_memoize(pickle_reader *reader, int argument)
{
    (void)argument;
    return put_memo(reader, reader->memo_puts);
}

static fth_status run_get(pickle_reader *reader, int width)
{
    uint64_t index = 0;
    fth_status status = take_unsigned(reader, width, &index);
    if (status != FTH_OK)
        return status;
    if (index >= reader->memo_capacity || !reader->memo[index])
        return fth_pickle_corrupt(&reader->place, "a memo that was never put");
    return push(reader, reader->memo[index]);
}

static fth_status push_global(pickle_reader *reader, const char *module, size_t module_length, const char *name,
                              size_t name_length)
{
    fth_status status = FTH_OK;
    const fth_pickle_global *global = NULL;
    fth_pickle_node *node = NULL;
    FTH_TRY(fth_pickle_global_find(reader->arena, &reader->place, module, module_length, name, name_length, &global));
    FTH_TRY(fth_pickle_node_create(reader->arena, FTH_PICKLE_GLOBAL, &node));
    node->global = global;
    FTH_TRY(push(reader, node));
out:
    return status;
}

static fth_status run_global(pickle_reader *reader, int argument)
{
    fth_status status = FTH_OK;
    const char *module = NULL, *name = NULL;
    size_t module_length = 0, name_length = 0;
    (void)argument;
    FTH_TRY(take_line(reader, &module, &module_length));
    FTH_TRY(take_line(reader, &name, &name_length));
    FTH_TRY(push_global(reader, module, module_length, name, name_length));
out:
    return status;
}

static fth_status run_stack_global(pickle_reader *reader, int argument)
{
    fth_status status = FTH_OK;
    fth_pickle_node *module = NULL, *name = NULL;
    (void)argument;
    FTH_TRY(pop(reader, &name));
    FTH_TRY(pop(reader, &module));
    if (module->kind != FTH_PICKLE_TEXT || name->kind != FTH_PICKLE_TEXT)
        return fth_pickle_corrupt(&reader->place, "a name that is not text");
    FTH_TRY(push_global(reader, module->bytes, module->count, name->bytes, name->count));
out:
    return status;
}

/* Makes an instance of a class it names. No tensor needs it, but the refusal tells the name. */
static fth_status run_instance(pickle_reader *reader, int argument)
{
    fth_status status = run_global(reader, argument);
    return status == FTH_OK ? fth_pickle_refuse(&reader->place, "of a class") : status;
}

static fth_status run_call(pickle_reader *reader, int argument)
{
    fth_status status = FTH_OK;
    fth_pickle_node *callable = NULL, *arguments = NULL, *result = NULL;
    (void)argument;
    FTH_TRY(pop(reader, &arguments));
    FTH_TRY(pop(reader, &callable));
    FTH_TRY(fth_pickle_global_call(reader->arena, &reader->place, callable, arguments, &result));
    FTH_TRY(push(reader, result));
out:
    return status;
}

/* Sets attributes, such as the _metadata of an OrderedDict; none matters here. */
static fth_status run_build(pickle_reader *reader, int argument)
{
    fth_status status = FTH_OK;
    fth_pickle_node *state = NULL, *node = NULL;
    (void)argument;
    FTH_TRY(pop(reader, &state));
    FTH_TRY(peek(reader, &node));
    if (node->kind != FTH_PICKLE_DICT && node->kind != FTH_PICKLE_OPAQUE && node->kind != FTH_PICKLE_TENSOR)
        return fth_pickle_refuse(&reader->place, "of something that has no attributes");
out:
    return status;
}

static fth_status run_persistent_id(pickle_reader *reader, int argument)
{
    fth_status status = FTH_OK;
    fth_pickle_node *id = NULL, *storage = NULL;
    (void)argument;
    FTH_TRY(pop(reader, &id));
    FTH_TRY(fth_pickle_storage_read(reader->arena, &reader->place, id, &storage));
    FTH_TRY(fth_grow(&reader->pickle->storages, reader->pickle->storage_count, &reader->storage_capacity,
                     sizeof *reader->pickle->storages));
    reader->pickle->storages[reader->pickle->storage_count++] = storage->storage;
    FTH_TRY(push(reader, storage));
out:
    return status;
}

typedef struct opcode_row {
    const char *name;
    fth_status (*run)(pickle_reader *reader, int argument); /* NULL: refused */
    int argument;                                           /* a width in bytes, a kind of node, a count */
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
    [0x92] = {"NEWOBJ_EX", NULL, 0},
    [0x97] = {"NEXT_BUFFER", NULL, 0},
    [0x98] = {"READONLY_BUFFER", NULL, 0},
};

static fth_status run(pickle_reader *reader)
{
    while (!reader->stopped) {
        reader->place.at = reader->at;
        if (reader->at >= reader->size)
            return fth_fail(FTH_CORRUPT, "%s: truncated: the pickle has no end", reader->place.origin);
        unsigned char byte = reader->bytes[reader->at++];
        fth_pickle_arena_allow(reader->arena, reader->at - reader->start);
        const opcode_row *opcode = &opcodes[byte];
        if (!opcode->name)
            return fth_fail(FTH_CORRUPT, "%s: damaged pickle: byte %zu (0x%02x) is not an opcode", reader->place.origin,
                            reader->place.at, byte);
        reader->place.opcode = opcode->name;
        if (!opcode->run)
            return fth_fail(FTH_UNSUPPORTED,
                            "%s: refused: opcode %s at byte %zu, which tensors do not need; farthing reads tensors "
                            "only, as torch.save() writes them",
                            reader->place.origin, opcode->name, reader->place.at);
        fth_status status = opcode->run(reader, opcode->argument);
        if (status != FTH_OK)
            return status;
    }
    return FTH_OK;
}

fth_status fth_pickle_read(const void *bytes, size_t size_bytes, size_t start, const char *origin, fth_pickle **pickle)
{
    fth_status status = FTH_OK;
    fth_pickle *fresh = NULL;
    pickle_reader reader = {
        .bytes = bytes, .size = size_bytes, .start = start, .at = start, .place = {.origin = origin, .opcode = ""}};

    *pickle = NULL;
    FTH_TRY(fth_allocate(1, sizeof *fresh, &fresh));
    FTH_TRY(fth_pickle_arena_create(origin, &fresh->arena));
    reader.pickle = fresh;
    reader.arena = fresh->arena;
    FTH_TRY(run(&reader));
    fresh->end = reader.at;
    *pickle = fresh;
    fresh = NULL;

out:
    free(reader.stack);
    free(reader.marks);
    free(reader.memo);
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
