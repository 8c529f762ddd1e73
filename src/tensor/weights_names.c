/* The names of tensors: what wrappers added to them is removed, and they are sorted for lookups. */
#include <stdlib.h>
#include <string.h>

#include "tensor/weights_internal.h"

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const fth_tensor_view *const *)a)->name, (*(const fth_tensor_view *const *)b)->name);
}

static bool begins_with_name(const char *name, const char *prefix, size_t length)
{
    return strncmp(name, prefix, length) == 0 && name[length];
}

/* AveragedModel (torch.optim.swa_utils) counts beside the module that it wraps. */
static bool is_average_counter(const fth_tensor_view *view)
{
    return strcmp(view->name, "n_averaged") == 0 && fth_shape_count(&view->shape) == 1;
}

/* Keeps the tensors whose names begin so, without it. */
static void keep_part(fth_weights *weights, const char *prefix)
{
    size_t length = strlen(prefix), kept = 0;
    for (size_t i = 0; i < weights->count; i++) {
        if (!begins_with_name(weights->views[i].name, prefix, length))
            continue;
        weights->views[kept] = weights->views[i];
        weights->views[kept++].name += length;
    }
    weights->left_out += weights->count - kept;
    weights->count = kept;
}

static bool all_begin_with(const fth_weights *weights, const char *prefix, size_t length)
{
    size_t found = 0, counters = 0;
    for (size_t i = 0; i < weights->count; i++) {
        if (begins_with_name(weights->views[i].name, prefix, length))
            found++;
        else if (is_average_counter(&weights->views[i]))
            counters++;
    }
    return found > 0 && found + counters == weights->count;
}

/* Takes off what wrappers and the classes around a network put before every name; they may be
 * wrapped in each other. */
static void strip_prefixes(fth_weights *weights, const char *part)
{
    static const char *const wrappers[] = {"module.",  "_orig_mod.", "model.",   "_forward_module.",     "net.",
                                           "network.", "backbone.",  "encoder.", "_fsdp_wrapped_module."};
    char *stripped = fth_format("%s", part);
    if (*part)
        keep_part(weights, part);
    for (size_t w = 0; w < FTH_COUNT_OF(wrappers);) {
        if (!all_begin_with(weights, wrappers[w], strlen(wrappers[w]))) {
            w++;
            continue;
        }
        keep_part(weights, wrappers[w]);
        char *longer = fth_format("%s%s", stripped, wrappers[w]);
        free(stripped);
        stripped = longer;
        w = 0;
    }
    weights->prefix = stripped;
}

/* Takes out what torch.compile and FSDP put within names, before the module that they wrap; no
 * module is called so. */
static void remove_markers(fth_weights *weights)
{
    static const char *const markers[] = {"_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod."};
    bool removed[FTH_COUNT_OF(markers)] = {false};
    for (size_t i = 0; i < weights->count; i++) {
        for (size_t m = 0; m < FTH_COUNT_OF(markers); m++) {
            size_t length = strlen(markers[m]);
            char *name = weights->names + (weights->views[i].name - weights->names), *at = name;
            while ((at = strstr(at, markers[m]))) {
                bool whole = (at == name || at[-1] == '.') && at[length];
                removed[m] = removed[m] || whole;
                if (whole)
                    memmove(at, at + length, strlen(at + length) + 1);
                else
                    at += length;
            }
        }
    }
    weights->markers = fth_format("%s", "");
    for (size_t m = 0; m < FTH_COUNT_OF(markers); m++) {
        if (!removed[m])
            continue;
        char *longer = fth_format("%s%s%s", weights->markers, *weights->markers ? ", " : "", markers[m]);
        free(weights->markers);
        weights->markers = longer;
    }
}

void fth_weights_unwrap_names(fth_weights *weights)
{
    strip_prefixes(weights, weights->place.part);
    remove_markers(weights);
}

fth_status fth_weights_sort_names(fth_weights *weights, const char *origin)
{
    free(weights->by_name);
    weights->by_name = NULL;
    fth_status status = fth_allocate(weights->count, sizeof *weights->by_name, &weights->by_name);
    if (status != FTH_OK)
        return status;
    for (size_t i = 0; i < weights->count; i++)
        weights->by_name[i] = &weights->views[i];
    qsort(weights->by_name, weights->count, sizeof *weights->by_name, compare_names);
    for (size_t i = 1; i < weights->count; i++) {
        if (strcmp(weights->by_name[i - 1]->name, weights->by_name[i]->name) == 0)
            return fth_fail(FTH_CORRUPT, "%s: two tensors are called '%s'", origin, weights->by_name[i]->name);
    }
    return FTH_OK;
}

fth_status fth_weights_copy_names(fth_weights *weights)
{
    fth_status status = FTH_OK;
    size_t size = 0, at = 0;
    for (size_t i = 0; i < weights->count; i++)
        size += strlen(weights->views[i].name) + 1;
    FTH_TRY(fth_allocate(size, 1, &weights->names));
    for (size_t i = 0; i < weights->count; i++) {
        size_t length = strlen(weights->views[i].name) + 1;
        memcpy(weights->names + at, weights->views[i].name, length);
        weights->views[i].name = weights->names + at;
        at += length;
    }
out:
    return status;
}

fth_status fth_weights_choose_part(fth_weights *weights, const char *origin, const char *key)
{
    size_t length = strlen(key), matching = 0;
    for (size_t i = 0; i < weights->count; i++) {
        const char *name = weights->views[i].name;
        matching += begins_with_name(name, key, length) && name[length] == '.';
    }
    if (*key && matching == 0)
        return fth_fail(FTH_INVALID,
                        "%s: its format has no '%s' inside, and no tensor is called %s.*; leave out the key", origin,
                        key, key);
    weights->place.part = fth_format("%s%s", key, *key ? "." : "");
    return weights->place.part ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for a name");
}

const fth_tensor_view *fth_weights_find(const fth_weights *weights, const char *name)
{
    const fth_tensor_view key = {.name = name}, *key_pointer = &key;
    const fth_tensor_view **found =
        bsearch(&key_pointer, weights->by_name, weights->count, sizeof *weights->by_name, compare_names);
    return found ? *found : NULL;
}

fth_status fth_weights_narrow(fth_weights *weights, const char *prefix, const char *origin)
{
    char *longer = fth_format("%s%s", weights->prefix, prefix);
    free(weights->prefix);
    weights->prefix = longer;
    keep_part(weights, prefix);
    return fth_weights_sort_names(weights, origin);
}

fth_status fth_weights_rename(fth_weights *weights, const char *origin, fth_weights_renamer rename, void *context)
{
    fth_status status = FTH_OK;
    char buffer[FTH_WEIGHTS_MAX_NAME + 1], *names = NULL;
    size_t size = 0, used = 0, kept = 0;

    for (size_t i = 0; i < weights->count; i++) {
        const char *name = rename(context, weights->views[i].name, buffer, sizeof buffer);
        size += name ? strlen(name) + 1 : 0;
    }
    FTH_TRY(fth_allocate(size + 1, 1, &names));
    for (size_t i = 0; i < weights->count; i++) {
        const char *name = rename(context, weights->views[i].name, buffer, sizeof buffer);
        if (!name)
            continue;
        size_t length = strlen(name) + 1;
        weights->views[kept] = weights->views[i];
        weights->views[kept++].name = memcpy(names + used, name, length);
        used += length;
    }
    weights->left_out += weights->count - kept;
    weights->count = kept;
    free(weights->names);
    weights->names = names;
    FTH_TRY(fth_weights_sort_names(weights, origin));

out:
    return status;
}
