/* The names that a pickle may mention, and what becomes of calling them. There is no way from here
 * to any code but the few builders below: names that are in no table are foreign, and calling them
 * makes opaque values. */
#include <stdio.h>
#include <string.h>

#include "tensor/pickle_internal.h"

enum {
    MAX_STORAGE_KEY = 100, /* "17", or an address in decimal */
    MAX_SHOWN = 80         /* bytes of a module's or function's name, in messages */
};

static const fth_pickle_element elements[] = {
    {"float32", "FloatStorage", 4, true, FTH_F32},
    {"float64", "DoubleStorage", 8, true, FTH_F64},
    {"float16", "HalfStorage", 2, true, FTH_F16},
    {"bfloat16", "BFloat16Storage", 2, true, FTH_BF16},
    {"uint8", "ByteStorage", 1, true, FTH_U8},
    {"int8", "CharStorage", 1, true, FTH_I8},
    {"int16", "ShortStorage", 2, true, FTH_I16},
    {"int32", "IntStorage", 4, true, FTH_I32},
    {"int64", "LongStorage", 8, true, FTH_I64},
    {"bool", "BoolStorage", 1, true, FTH_BOOL},
    {"uint16", NULL, 2, true, FTH_U16},
    {"uint32", NULL, 4, true, FTH_U32},
    {"uint64", NULL, 8, true, FTH_U64},
    {"complex64", "ComplexFloatStorage", 8, false, 0},
    {"complex128", "ComplexDoubleStorage", 16, false, 0},
    {"complex32", NULL, 4, false, 0},
    {"qint8", "QInt8Storage", 1, false, 0},
    {"quint8", "QUInt8Storage", 1, false, 0},
    {"qint32", "QInt32Storage", 4, false, 0},
    {"quint4x2", "QUInt4x2Storage", 1, false, 0},
    {"quint2x4", "QUInt2x4Storage", 1, false, 0},
    {"float8_e4m3fn", NULL, 1, false, 0},
    {"float8_e4m3fnuz", NULL, 1, false, 0},
    {"float8_e5m2", NULL, 1, false, 0},
    {"float8_e5m2fnuz", NULL, 1, false, 0},
    {"float8_e8m0fnu", NULL, 1, false, 0},
};

static fth_status call_ordered_dict(fth_pickle_arena *arena, const fth_pickle_place *place,
                                    const fth_pickle_node *arguments, fth_pickle_node **result);
static fth_status call_rebuild_tensor(fth_pickle_arena *arena, const fth_pickle_place *place,
                                      const fth_pickle_node *arguments, fth_pickle_node **result);
static fth_status call_rebuild_tensor_v3(fth_pickle_arena *arena, const fth_pickle_place *place,
                                         const fth_pickle_node *arguments, fth_pickle_node **result);
static fth_status call_rebuild_parameter(fth_pickle_arena *arena, const fth_pickle_place *place,
                                         const fth_pickle_node *arguments, fth_pickle_node **result);
static fth_status call_size(fth_pickle_arena *arena, const fth_pickle_place *place, const fth_pickle_node *arguments,
                            fth_pickle_node **result);
static fth_status call_ignored(fth_pickle_arena *arena, const fth_pickle_place *place, const fth_pickle_node *arguments,
                               fth_pickle_node **result);
static fth_status call_default_dict(fth_pickle_arena *arena, const fth_pickle_place *place,
                                    const fth_pickle_node *arguments, fth_pickle_node **result);

struct fth_pickle_global {
    const char *module, *name;
    /* What calling it makes; NULL: it may be mentioned, but not called. */
    fth_status (*call)(fth_pickle_arena *, const fth_pickle_place *, const fth_pickle_node *, fth_pickle_node **);
    const fth_pickle_element *storage_of, *dtype; /* of a class of storages; of a dtype */
    const char *text;                             /* of a foreign one: "module.name"; else NULL */
};

static const fth_pickle_global globals[] = {
    {.module = "collections", .name = "OrderedDict", .call = call_ordered_dict},
    {.module = "collections", .name = "defaultdict", .call = call_default_dict},
    {.module = "torch._utils", .name = "_rebuild_tensor_v2", .call = call_rebuild_tensor},
    {.module = "torch._utils", .name = "_rebuild_tensor_v3", .call = call_rebuild_tensor_v3},
    {.module = "torch._utils", .name = "_rebuild_tensor", .call = call_rebuild_tensor},
    {.module = "torch._utils", .name = "_rebuild_parameter", .call = call_rebuild_parameter},
    {.module = "torch._utils", .name = "_rebuild_parameter_with_state", .call = call_rebuild_parameter},
    {.module = "torch.storage", .name = "UntypedStorage", .storage_of = &elements[4]},
    {.module = "torch", .name = "UntypedStorage", .storage_of = &elements[4]},
    {.module = "torch.storage", .name = "TypedStorage"},
    {.module = "torch", .name = "Size", .call = call_size},
    {.module = "torch", .name = "device", .call = call_ignored},
    {.module = "numpy.core.multiarray", .name = "scalar", .call = call_ignored},
    {.module = "numpy._core.multiarray", .name = "scalar", .call = call_ignored},
    {.module = "numpy.core.multiarray", .name = "_reconstruct", .call = call_ignored},
    {.module = "numpy._core.multiarray", .name = "_reconstruct", .call = call_ignored},
    {.module = "numpy", .name = "ndarray", .call = call_ignored},
    {.module = "numpy", .name = "dtype", .call = call_ignored},
    {.module = "_codecs", .name = "encode", .call = call_ignored},
    {.module = "builtins", .name = "set", .call = call_ignored},
    {.module = "__builtin__", .name = "set", .call = call_ignored},
};

static bool equals(const char *text, size_t length, const char *expected)
{
    return strlen(expected) == length && memcmp(text, expected, length) == 0;
}

/* "torch FloatStorage" and "torch float32" of each element type. */
static bool find_torch_type(const char *name, size_t length, fth_pickle_global *global)
{
    for (size_t i = 0; i < FTH_COUNT_OF(elements); i++) {
        const fth_pickle_element *element = &elements[i];
        if (equals(name, length, element->dtype_name))
            *global = (fth_pickle_global){.module = "torch", .name = element->dtype_name, .dtype = element};
        else if (element->storage_name && equals(name, length, element->storage_name))
            *global = (fth_pickle_global){.module = "torch", .name = element->storage_name, .storage_of = element};
        else
            continue;
        return true;
    }
    return false;
}

/* ---- names that run code ---- */

/* No honest checkpoint needs these. A file with one of them was made to do something to whoever
 * loads it, which its reader should know, even though nothing would happen here. NULL: all of a
 * module and of those within it. */
static const struct {
    const char *module, *name;
} code_names[] = {
    {"os", NULL},
    {"posix", NULL},
    {"nt", NULL},
    {"sys", NULL},
    {"subprocess", NULL},
    {"commands", NULL},
    {"pty", NULL},
    {"runpy", NULL},
    {"code", NULL},
    {"codeop", NULL},
    {"importlib", NULL},
    {"imp", NULL},
    {"ctypes", NULL},
    {"_ctypes", NULL},
    {"marshal", NULL},
    {"pickle", NULL},
    {"_pickle", NULL},
    {"cPickle", NULL},
    {"shutil", NULL},
    {"socket", NULL},
    {"_socket", NULL},
    {"webbrowser", NULL},
    {"pip", NULL},
    {"pdb", NULL},
    {"bdb", NULL},
    {"timeit", NULL},
    {"torch.hub", NULL},
    {"torch.package", NULL},
    {"torch", "load"},
    {"torch.serialization", "load"},
    {"torch.storage", "_load_from_bytes"}, /* a file within the file, read by torch.load */
    {"builtins", "eval"},
    {"builtins", "exec"},
    {"builtins", "compile"},
    {"builtins", "open"},
    {"builtins", "__import__"},
    {"builtins", "breakpoint"},
    {"__builtin__", "eval"},
    {"__builtin__", "exec"},
    {"__builtin__", "execfile"},
    {"__builtin__", "compile"},
    {"__builtin__", "open"},
    {"__builtin__", "file"},
    {"__builtin__", "apply"},
    {"__builtin__", "__import__"},
};

static bool runs_code(const char *module, size_t module_length, const char *name, size_t name_length)
{
    for (size_t i = 0; i < FTH_COUNT_OF(code_names); i++) {
        size_t length = strlen(code_names[i].module);
        bool within = module_length > length && module[length] == '.' && !code_names[i].name;
        if (module_length < length || memcmp(module, code_names[i].module, length) != 0 ||
            (module_length > length && !within))
            continue;
        if (!code_names[i].name || equals(name, name_length, code_names[i].name))
            return true;
    }
    return false;
}

/* ---- foreign names ---- */

static const fth_pickle_global other_foreign = {.module = "", .name = "", .text = "other classes"};

/* The row for a foreign name, the same each time it occurs. */
static fth_status find_foreign(fth_pickle *pickle, const char *module, size_t module_length, const char *name,
                               size_t name_length, const fth_pickle_global **global)
{
    fth_status status = FTH_OK;
    fth_pickle_global *fresh = NULL;
    char *text = NULL, shown_module[MAX_SHOWN], shown_name[MAX_SHOWN];

    fth_pickle_printable(module, module_length, shown_module, sizeof shown_module);
    fth_pickle_printable(name, name_length, shown_name, sizeof shown_name);
    for (size_t i = 0; i < pickle->foreign_count; i++) {
        *global = pickle->foreign[i];
        if (strcmp((*global)->module, shown_module) == 0 && strcmp((*global)->name, shown_name) == 0)
            return FTH_OK;
    }
    *global = &other_foreign;
    if (pickle->foreign_count == FTH_PICKLE_MAX_FOREIGN)
        return FTH_OK;
    size_t module_bytes = strlen(shown_module) + 1, name_bytes = strlen(shown_name) + 1;
    FTH_TRY(fth_pickle_arena_take(pickle->arena, sizeof *fresh, &fresh));
    FTH_TRY(fth_pickle_arena_take(pickle->arena, 2 * (module_bytes + name_bytes), &text));
    *fresh = (fth_pickle_global){.module = text, .name = text + module_bytes, .text = text + module_bytes + name_bytes};
    memcpy(text, shown_module, module_bytes);
    memcpy(text + module_bytes, shown_name, name_bytes);
    snprintf(text + module_bytes + name_bytes, module_bytes + name_bytes, "%s.%s", shown_module, shown_name);
    pickle->foreign[pickle->foreign_count++] = fresh;
    *global = fresh;
out:
    return status;
}

const char *fth_pickle_global_text(const fth_pickle_global *global)
{
    return global->text ? global->text : global->name;
}

bool fth_pickle_global_is_plain_data(const fth_pickle_global *global)
{
    static const char *const modules[] = {"collections", "builtins", "__builtin__"};
    if (strncmp(global->module, "numpy", 5) == 0)
        return true;
    for (size_t i = 0; i < FTH_COUNT_OF(modules); i++) {
        if (strcmp(global->module, modules[i]) == 0)
            return true;
    }
    return false;
}

const fth_pickle_global *fth_pickle_unread_tensor(const fth_pickle_node *node)
{
    if (node->kind != FTH_PICKLE_OPAQUE || !node->global || strncmp(node->global->module, "torch", 5) != 0 ||
        strncmp(node->global->name, "_rebuild", 8) != 0)
        return NULL;
    return node->global;
}

/* ---- finding and calling ---- */

fth_status fth_pickle_global_find(fth_pickle *pickle, const fth_pickle_place *place, const char *module,
                                  size_t module_length, const char *name, size_t name_length,
                                  const fth_pickle_global **global)
{
    char printable_module[MAX_SHOWN], printable_name[MAX_SHOWN], what[2 * MAX_SHOWN + 8];
    fth_pickle_global type;
    for (size_t i = 0; i < FTH_COUNT_OF(globals); i++) {
        if (equals(module, module_length, globals[i].module) && equals(name, name_length, globals[i].name)) {
            *global = &globals[i];
            return FTH_OK;
        }
    }
    if (equals(module, module_length, "torch") && find_torch_type(name, name_length, &type)) {
        fth_pickle_global *kept = NULL;
        fth_status status = fth_pickle_arena_take(pickle->arena, sizeof *kept, &kept);
        if (status == FTH_OK)
            *kept = type;
        *global = kept;
        return status;
    }
    if (!runs_code(module, module_length, name, name_length))
        return find_foreign(pickle, module, module_length, name, name_length, global);
    snprintf(what, sizeof what, "'%s %s'",
             fth_pickle_printable(module, module_length, printable_module, sizeof printable_module),
             fth_pickle_printable(name, name_length, printable_name, sizeof printable_name));
    return fth_pickle_refuse(place, what);
}

fth_status fth_pickle_global_call(fth_pickle_arena *arena, const fth_pickle_place *place,
                                  const fth_pickle_node *callable, const fth_pickle_node *arguments,
                                  fth_pickle_node **result)
{
    char what[200];
    bool opaque = callable->kind == FTH_PICKLE_OPAQUE;
    if (callable->kind != FTH_PICKLE_GLOBAL && !opaque)
        return fth_pickle_refuse(place, "of something that is not a name");
    if (opaque || callable->global->text) {
        fth_status status = fth_pickle_node_create(arena, FTH_PICKLE_OPAQUE, result);
        if (status == FTH_OK)
            (*result)->global = callable->global;
        return status;
    }
    if (!callable->global->call) {
        snprintf(what, sizeof what, "of '%s %s'", callable->global->module, callable->global->name);
        return fth_pickle_refuse(place, what);
    }
    if (arguments->kind != FTH_PICKLE_TUPLE)
        return fth_pickle_corrupt(place, "the arguments are not a tuple");
    return callable->global->call(arena, place, arguments, result);
}

/* ---- what the calls make ---- */

static fth_status call_ignored(fth_pickle_arena *arena, const fth_pickle_place *place, const fth_pickle_node *arguments,
                               fth_pickle_node **result)
{
    (void)place;
    (void)arguments;
    return fth_pickle_node_create(arena, FTH_PICKLE_OPAQUE, result);
}

/* OrderedDict(), or from Python 2 OrderedDict([[key, value], ...]). */
static fth_status call_ordered_dict(fth_pickle_arena *arena, const fth_pickle_place *place,
                                    const fth_pickle_node *arguments, fth_pickle_node **result)
{
    fth_status status = fth_pickle_node_create(arena, FTH_PICKLE_DICT, result);
    if (status != FTH_OK || arguments->count == 0)
        return status;
    const fth_pickle_node *pairs = arguments->items[0];
    if (arguments->count > 1 || pairs->kind != FTH_PICKLE_LIST)
        return fth_pickle_corrupt(place, "OrderedDict of something that is not a list of pairs");
    for (size_t i = 0; i < pairs->count && status == FTH_OK; i++) {
        const fth_pickle_node *pair = pairs->items[i];
        if ((pair->kind != FTH_PICKLE_LIST && pair->kind != FTH_PICKLE_TUPLE) || pair->count != 2)
            return fth_pickle_corrupt(place, "OrderedDict of something that is not a list of pairs");
        status = fth_pickle_node_append(arena, *result, pair->items, 2);
    }
    return status;
}

/* defaultdict(factory): the items come later. */
static fth_status call_default_dict(fth_pickle_arena *arena, const fth_pickle_place *place,
                                    const fth_pickle_node *arguments, fth_pickle_node **result)
{
    (void)place;
    (void)arguments;
    return fth_pickle_node_create(arena, FTH_PICKLE_DICT, result);
}

static bool is_sequence(const fth_pickle_node *node)
{
    return node->kind == FTH_PICKLE_TUPLE || node->kind == FTH_PICKLE_LIST;
}

/* A tensor may say that what is stored is to be negated or conjugated; nearly none does. */
static bool is_negated(const fth_pickle_node *arguments, size_t metadata_at)
{
    static const char *const words[] = {"neg", "conj"};
    if (arguments->count <= metadata_at || arguments->items[metadata_at]->kind != FTH_PICKLE_DICT)
        return false;
    for (size_t i = 0; i < FTH_COUNT_OF(words); i++) {
        const fth_pickle_node *value = fth_pickle_dict_find(arguments->items[metadata_at], words[i], strlen(words[i]));
        if (value && !(value->kind == FTH_PICKLE_BOOL && value->integer == 0))
            return true;
    }
    return false;
}

static fth_status make_tensor(fth_pickle_arena *arena, const fth_pickle_place *place, const fth_pickle_node *arguments,
                              const fth_pickle_element *element, size_t metadata_at, fth_pickle_node **result)
{
    fth_status status = FTH_OK;
    fth_pickle_tensor *tensor = NULL;
    fth_pickle_node *const *items = arguments->items;
    if (arguments->count > 0 && items[0]->kind == FTH_PICKLE_OPAQUE && items[0]->global)
        return fth_fail(FTH_UNSUPPORTED, "%s: a tensor at byte %zu lies in a %s, which farthing does not read",
                        place->origin, place->at, fth_pickle_global_text(items[0]->global));
    if (arguments->count < 4 || items[0]->kind != FTH_PICKLE_STORAGE || items[1]->kind != FTH_PICKLE_INTEGER ||
        !is_sequence(items[2]) || !is_sequence(items[3]))
        return fth_pickle_corrupt(place, "a tensor is not described by storage, offset, size and stride");
    if (is_negated(arguments, metadata_at))
        return fth_fail(FTH_UNSUPPORTED,
                        "%s: a tensor at byte %zu is a negated or conjugate view; save it with .resolve_neg() and "
                        ".resolve_conj()",
                        place->origin, place->at);
    FTH_TRY(fth_pickle_arena_take(arena, sizeof *tensor, &tensor));
    *tensor = (fth_pickle_tensor){.storage = items[0]->storage,
                                  .element = element ? element : items[0]->storage->element,
                                  .offset = items[1]->integer,
                                  .shape = items[2],
                                  .strides = items[3]};
    FTH_TRY(fth_pickle_node_create(arena, FTH_PICKLE_TENSOR, result));
    (*result)->tensor = tensor;
out:
    return status;
}

/* (storage, offset, size, stride[, requires_grad, hooks[, metadata]]) */
static fth_status call_rebuild_tensor(fth_pickle_arena *arena, const fth_pickle_place *place,
                                      const fth_pickle_node *arguments, fth_pickle_node **result)
{
    return make_tensor(arena, place, arguments, NULL, 6, result);
}

/* (untyped storage, offset, size, stride, requires_grad, hooks, dtype[, metadata]) */
static fth_status call_rebuild_tensor_v3(fth_pickle_arena *arena, const fth_pickle_place *place,
                                         const fth_pickle_node *arguments, fth_pickle_node **result)
{
    if (arguments->count < 7 || arguments->items[6]->kind != FTH_PICKLE_GLOBAL || !arguments->items[6]->global->dtype)
        return fth_pickle_corrupt(place, "a tensor without a dtype");
    return make_tensor(arena, place, arguments, arguments->items[6]->global->dtype, 7, result);
}

/* (tensor, requires_grad, hooks[, state]): for us, the tensor. */
static fth_status call_rebuild_parameter(fth_pickle_arena *arena, const fth_pickle_place *place,
                                         const fth_pickle_node *arguments, fth_pickle_node **result)
{
    (void)arena;
    if (arguments->count < 1 ||
        (arguments->items[0]->kind != FTH_PICKLE_TENSOR && !fth_pickle_unread_tensor(arguments->items[0])))
        return fth_pickle_corrupt(place, "a parameter that is not a tensor");
    *result = arguments->items[0];
    return FTH_OK;
}

/* torch.Size((2, 3)) is as good as the tuple. */
static fth_status call_size(fth_pickle_arena *arena, const fth_pickle_place *place, const fth_pickle_node *arguments,
                            fth_pickle_node **result)
{
    (void)arena;
    if (arguments->count != 1 || !is_sequence(arguments->items[0]))
        return fth_pickle_corrupt(place, "a torch.Size that is not made of a tuple");
    *result = arguments->items[0];
    return FTH_OK;
}

/* ("storage", class, key, location, count[, None or (view key, start, count)]) */
fth_status fth_pickle_storage_read(fth_pickle_arena *arena, const fth_pickle_place *place, const fth_pickle_node *id,
                                   fth_pickle_node **result)
{
    fth_status status = FTH_OK;
    fth_pickle_storage *storage = NULL;
    if (id->kind != FTH_PICKLE_TUPLE || id->count < 5 || id->count > 6 || !fth_pickle_text_is(id->items[0], "storage"))
        return fth_pickle_corrupt(place, "a persistent id that is not a storage");
    const fth_pickle_node *class = id->items[1], *key = id->items[2], *count = id->items[4];
    const fth_pickle_node *view = id->count == 6 ? id->items[5] : NULL;
    if (class->kind != FTH_PICKLE_GLOBAL || !class->global->storage_of)
        return fth_pickle_corrupt(place, "a storage of a class that has no element type");
    if (key->kind != FTH_PICKLE_TEXT || key->count > MAX_STORAGE_KEY || count->kind != FTH_PICKLE_INTEGER ||
        count->integer < 0)
        return fth_pickle_corrupt(place, "a storage without a key or with a bad size");

    FTH_TRY(fth_pickle_arena_take(arena, sizeof *storage, &storage));
    *storage = (fth_pickle_storage){.key = key, .element = class->global->storage_of, .count = count->integer};
    if (view && view->kind != FTH_PICKLE_NONE) {
        if (view->kind != FTH_PICKLE_TUPLE || view->count != 3 || view->items[1]->kind != FTH_PICKLE_INTEGER ||
            view->items[2]->kind != FTH_PICKLE_INTEGER || view->items[1]->integer < 0 || view->items[2]->integer < 0)
            return fth_pickle_corrupt(place, "a view of a storage without a start and a size");
        storage->view_start = view->items[1]->integer;
        storage->count = view->items[2]->integer;
    }
    FTH_TRY(fth_pickle_node_create(arena, FTH_PICKLE_STORAGE, result));
    (*result)->storage = storage;
out:
    return status;
}
