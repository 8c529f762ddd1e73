/* Finds the weights in whatever somebody passed to torch.save(): the dictionary itself, or a
 * checkpoint around it such as {"model_state_dict": {...}, "optimizer_state_dict": {...}, "epoch":
 * 5}.
 *
 * All dictionaries that can be reached through text keys are looked at once, nearest first.
 * Candidates are those whose values are nearly all tensors; the states of optimizers are passed
 * over. Of several candidates a key that people use for weights decides; otherwise the user
 * must. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tensor/pth_internal.h"

enum { MAX_DEPTH = 6, MAX_KEY = 200, MAX_LISTED = 12 };

/* What people call their weights, the likeliest first. */
static const char *const usual_keys[] = {
    "model_state_dict", "state_dict", "model_state", "model",          "net_state_dict", "net", "network",
    "module",           "weights",    "params",      "ema_state_dict", "model_ema",      "ema", "state_dict_ema",
    "params_ema",       "backbone",   "encoder",     "student",        "teacher"};

typedef enum likeness {
    NOT_STATE,
    PERHAPS_STATE, /* tensors among other things, no dictionaries */
    SURELY_STATE   /* nearly all tensors */
} likeness;

typedef struct state_place {
    fth_pickle_node *dict;
    const fth_pickle_node *key; /* in the parent; NULL for the root */
    size_t parent;
    int depth;
    likeness likeness;
    size_t tensor_count;
} state_place;

typedef struct state_search {
    state_place *places; /* in the order found: nearest first */
    size_t count, capacity;
} state_search;

static void classify(state_place *place)
{
    const fth_pickle_node *dict = place->dict;
    size_t others = 0, dicts = 0;
    place->tensor_count = 0;
    for (size_t i = 0; i + 1 < dict->count; i += 2) {
        const fth_pickle_node *key = dict->items[i], *value = dict->items[i + 1];
        if (key->kind == FTH_PICKLE_TEXT && (value->kind == FTH_PICKLE_TENSOR || fth_pickle_unread_tensor(value)))
            place->tensor_count++;
        else
            others++;
        dicts += value->kind == FTH_PICKLE_DICT;
    }
    place->likeness = NOT_STATE;
    if (place->tensor_count > 0 && others * 10 <= place->tensor_count)
        place->likeness = SURELY_STATE;
    else if (place->tensor_count > 0 && dicts == 0)
        place->likeness = PERHAPS_STATE;
}

static bool is_optimizer(const fth_pickle_node *dict)
{
    return fth_pickle_dict_find(dict, "state", strlen("state")) &&
           fth_pickle_dict_find(dict, "param_groups", strlen("param_groups"));
}

/* Keys whose dictionaries hold tensors that are not weights. */
static bool is_training_state(const fth_pickle_node *key)
{
    static const char *const words[] = {"optim", "sched", "scaler"};
    char text[MAX_KEY + 1];
    memcpy(text, key->bytes, key->count);
    text[key->count] = '\0';
    for (size_t i = 0; i < FTH_COUNT_OF(words); i++) {
        if (strcasestr(text, words[i]))
            return true;
    }
    return false;
}

static bool is_usable_key(const fth_pickle_node *key)
{
    return key->kind == FTH_PICKLE_TEXT && key->count > 0 && key->count <= MAX_KEY &&
           !memchr(key->bytes, '\0', key->count);
}

static fth_status add_place(state_search *search, fth_pickle_node *dict, const fth_pickle_node *key, size_t parent,
                            int depth)
{
    fth_status status = fth_grow(&search->places, search->count, &search->capacity, sizeof *search->places);
    if (status != FTH_OK)
        return status;
    state_place *fresh = &search->places[search->count++];
    *fresh = (state_place){.dict = dict, .key = key, .parent = parent, .depth = depth};
    classify(fresh);
    return FTH_OK;
}

static fth_status search_dicts(state_search *search, fth_pickle_node *root)
{
    fth_status status = FTH_OK;
    root->visited = true;
    FTH_TRY(add_place(search, root, NULL, 0, 0));
    for (size_t at = 0; at < search->count; at++) {
        const state_place here = search->places[at];
        if (here.likeness != NOT_STATE || here.depth == MAX_DEPTH)
            continue;
        for (size_t i = 0; i + 1 < here.dict->count; i += 2) {
            const fth_pickle_node *key = here.dict->items[i];
            fth_pickle_node *value = here.dict->items[i + 1];
            if (!is_usable_key(key) || value->kind != FTH_PICKLE_DICT || value->visited || is_training_state(key))
                continue;
            value->visited = true; /* before the next look, which is long for a large dictionary */
            if (!is_optimizer(value))
                FTH_TRY(add_place(search, value, key, at, here.depth + 1));
        }
    }
out:
    return status;
}

/* "checkpoint.model", from the root down. */
static void format_path(const state_search *search, size_t at, char *text, size_t size)
{
    size_t chain[MAX_DEPTH + 1], length = 0, used = 0;
    for (; search->places[at].key; at = search->places[at].parent)
        chain[length++] = at;
    text[0] = '\0';
    while (length-- > 0 && used < size) {
        char key[MAX_KEY + 8];
        const fth_pickle_node *node = search->places[chain[length]].key;
        fth_pickle_printable(node->bytes, node->count, key, sizeof key);
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? "." : "", key);
    }
}

enum { NOBODY = -1, SEVERAL = -2 };

/* The one candidate to take, if it is clear; `wanted` is how sure a candidate must be. */
static long choose(const state_search *search, likeness wanted)
{
    long only = NOBODY;
    for (size_t i = 0; i < search->count; i++) {
        if (search->places[i].likeness == wanted)
            only = only == NOBODY ? (long)i : SEVERAL;
    }
    for (size_t k = 0; only == SEVERAL && k < FTH_COUNT_OF(usual_keys); k++) {
        for (size_t i = 0; i < search->count; i++) {
            const state_place *place = &search->places[i];
            if (place->likeness == wanted && place->key && fth_pickle_text_is(place->key, usual_keys[k]))
                return (long)i; /* the nearest of that name */
        }
    }
    return only;
}

static fth_status fail_several(const state_search *search, likeness wanted, const char *prefix, const char *origin)
{
    char list[1000] = "", path[500], first[500] = "";
    size_t used = 0, listed = 0;
    for (size_t i = 0; i < search->count && listed < MAX_LISTED && used < sizeof list; i++) {
        if (search->places[i].likeness != wanted)
            continue;
        format_path(search, i, path, sizeof path);
        if (listed++ == 0)
            snprintf(first, sizeof first, "%s", path);
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s%s%s (%zu tensors)", used ? ", " : "", prefix,
                                 *prefix ? "." : "", path, search->places[i].tensor_count);
    }
    return fth_fail(FTH_INVALID, "%s: several dictionaries of tensors: %s; name one, as in %s:%s%s%s", origin, list,
                    origin, prefix, *prefix ? "." : "", first);
}

enum { MAX_DESCRIPTION = 200 };

static const char *describe(const fth_pickle_node *node, char text[MAX_DESCRIPTION])
{
    switch ((fth_pickle_kind)node->kind) {
    case FTH_PICKLE_NONE: return "None";
    case FTH_PICKLE_BOOL: return "a truth value";
    case FTH_PICKLE_INTEGER:
    case FTH_PICKLE_LONG:
    case FTH_PICKLE_FLOAT: return "a number";
    case FTH_PICKLE_TEXT:
    case FTH_PICKLE_BYTES: return "text";
    case FTH_PICKLE_TUPLE:
    case FTH_PICKLE_LIST: return "a list";
    case FTH_PICKLE_DICT: return "a dictionary";
    case FTH_PICKLE_TENSOR: return "a tensor";
    case FTH_PICKLE_GLOBAL:
        snprintf(text, MAX_DESCRIPTION, "the name %s", fth_pickle_global_text(node->global));
        return text;
    case FTH_PICKLE_STORAGE: break;
    case FTH_PICKLE_OPAQUE:
        if (!node->global)
            break;
        snprintf(text, MAX_DESCRIPTION, "%s %s", fth_pickle_unread_tensor(node) ? "a tensor of" : "an object of",
                 fth_pickle_global_text(node->global));
        return text;
    }
    return "something else";
}

static const char *list_keys(const fth_pickle_node *dict, char *list, size_t size)
{
    size_t used = 0;
    snprintf(list, size, "nothing");
    for (size_t i = 0; i + 1 < dict->count && used < size; i += 2) {
        const fth_pickle_node *key = dict->items[i];
        char text[80] = "(not text)", description[MAX_DESCRIPTION];
        if (i / 2 == MAX_LISTED) {
            snprintf(list + used, size - used, ", ...");
            break;
        }
        if (key->kind == FTH_PICKLE_TEXT)
            fth_pickle_printable(key->bytes, key->count, text, sizeof text);
        used += (size_t)snprintf(list + used, size - used, "%s%s (%s)", used ? ", " : "", text,
                                 describe(dict->items[i + 1], description));
    }
    return list;
}

/* What "a.b.c" leads to from `dict`; keys may have dots of their own, so every split is tried. */
static fth_pickle_node *resolve(const fth_pickle_node *dict, const char *path)
{
    fth_pickle_node *found = fth_pickle_dict_find(dict, path, strlen(path));
    for (const char *dot = strchr(path, '.'); dot && !found; dot = strchr(dot + 1, '.')) {
        const fth_pickle_node *inner = fth_pickle_dict_find(dict, path, (size_t)(dot - path));
        if (inner && inner->kind == FTH_PICKLE_DICT)
            found = resolve(inner, dot + 1);
    }
    return found;
}

/* True if a tensor of `dict` is called `part` and a dot and more. */
static bool has_part(const fth_pickle_node *dict, const char *part)
{
    size_t length = strlen(part);
    for (size_t i = 0; i + 1 < dict->count; i += 2) {
        const fth_pickle_node *key = dict->items[i], *value = dict->items[i + 1];
        if (key->kind == FTH_PICKLE_TEXT && key->count > length + 1 && key->bytes[length] == '.' &&
            memcmp(key->bytes, part, length) == 0 &&
            (value->kind == FTH_PICKLE_TENSOR || fth_pickle_unread_tensor(value)))
            return true;
    }
    return false;
}

/* "a.b.c" as the tensors called "c.*", or "b.c.*", of the dictionary that the rest leads to. */
static const fth_pickle_node *resolve_part(const fth_pickle_node *root, const char *path, size_t *key_length,
                                           const char **part)
{
    *key_length = 0;
    *part = path;
    if (has_part(root, path))
        return root;
    for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.')) {
        char *outer = fth_format("%.*s", (int)(dot - path), path);
        const fth_pickle_node *dict = resolve(root, outer);
        free(outer);
        if (dict && dict->kind == FTH_PICKLE_DICT && has_part(dict, dot + 1)) {
            *key_length = (size_t)(dot - path);
            *part = dot + 1;
            return dict;
        }
    }
    return NULL;
}

/* Searches all that can be reached from `root`, which is what `key` leads to. */
static fth_status find_state(fth_pickle_node *root, const char *key, const char *origin, fth_pth_place *place)
{
    fth_status status = FTH_OK;
    state_search search = {0};
    char path[2000], list[1000];

    FTH_TRY(search_dicts(&search, root));
    likeness wanted = SURELY_STATE;
    long chosen = choose(&search, wanted);
    if (chosen == NOBODY)
        chosen = choose(&search, wanted = PERHAPS_STATE);
    if (chosen == NOBODY && search.places[0].tensor_count > 0)
        chosen = 0; /* tensors beside dictionaries of other things: what else could be meant */
    FTH_REQUIRE(chosen != NOBODY, FTH_INVALID, "%s: no dictionary of tensors in it; it has %s", origin,
                list_keys(root, list, sizeof list));
    if (chosen == SEVERAL) {
        status = fail_several(&search, wanted, key, origin);
        goto out;
    }
    format_path(&search, (size_t)chosen, path, sizeof path);
    place->state = search.places[chosen].dict;
    place->key = fth_format("%s%s%s", key, *key && *path ? "." : "", path);
    place->part = fth_format("%s", "");

out:
    free(search.places);
    return status;
}

/* What a user's key leads to: a dictionary; or tensors whose names begin with it, also in the
 * dictionary that would be found without a key. */
static fth_status find_named(fth_pickle_node *root, const char *key, const char *origin, fth_pth_place *place)
{
    char list[1000], description[MAX_DESCRIPTION];
    size_t key_length = 0;
    const char *part = NULL;
    fth_pickle_node *found = resolve(root, key);

    if (found && found->kind == FTH_PICKLE_DICT)
        return find_state(found, key, origin, place);
    if (found)
        return fth_fail(FTH_INVALID, "%s: '%s' is %s, not a dictionary of tensors", origin, key,
                        describe(found, description));
    const fth_pickle_node *dict = resolve_part(root, key, &key_length, &part);
    if (dict) {
        *place = (fth_pth_place){
            .state = dict, .key = fth_format("%.*s", (int)key_length, key), .part = fth_format("%s.", part)};
        return FTH_OK;
    }
    if (find_state(root, "", origin, place) == FTH_OK) {
        if (has_part(place->state, key)) {
            free(place->part);
            place->part = fth_format("%s.", key);
            return FTH_OK;
        }
        fth_pth_place_release(place);
    }
    return fth_fail(FTH_INVALID, "%s: no '%s' in it; it has %s", origin, key, list_keys(root, list, sizeof list));
}

fth_status fth_pth_find_state(const fth_pth *pth, const char *key, const char *origin, fth_pth_place *place)
{
    char description[MAX_DESCRIPTION];
    fth_pickle_node *root = pth->pickle->root;

    *place = (fth_pth_place){0};
    if (root->kind == FTH_PICKLE_OPAQUE && root->global)
        return fth_fail(FTH_UNSUPPORTED,
                        "%s: refused: it holds %s, which only that class's own code can rebuild; farthing runs no code "
                        "from files: save the weights with torch.save(model.state_dict(), ...)",
                        origin, describe(root, description));
    if (root->kind != FTH_PICKLE_DICT)
        return fth_fail(FTH_INVALID,
                        "%s: holds %s, not a dictionary of named tensors; save the weights with "
                        "torch.save(model.state_dict(), ...)",
                        origin, describe(root, description));
    return *key ? find_named(root, key, origin, place) : find_state(root, "", origin, place);
}

void fth_pth_place_release(fth_pth_place *place)
{
    free(place->key);
    free(place->part);
    *place = (fth_pth_place){0};
}
