/* The tensors of a dictionary, by their names. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/pth_internal.h"

static bool is_named_tensor(const fth_pickle_node *key, const fth_pickle_node *value)
{
    return key->kind == FTH_PICKLE_TEXT && value->kind == FTH_PICKLE_TENSOR;
}

static fth_status check_name(const fth_pickle_node *key, const char *origin)
{
    char shown[80];
    bool good = key->count > 0 && key->count <= FTH_PTH_MAX_NAME;
    for (size_t i = 0; good && i < key->count; i++)
        good = !iscntrl((unsigned char)key->bytes[i]);
    if (good)
        return FTH_OK;
    return fth_fail(FTH_CORRUPT, "%s: '%s' is no name for a tensor", origin,
                    fth_pickle_printable(key->bytes, key->count, shown, sizeof shown));
}

/* A tensor of a kind that is not read must not go missing without a word. */
static fth_status check_readable(const fth_pickle_node *key, const fth_pickle_node *value, const char *origin)
{
    char shown[80] = "";
    const fth_pickle_global *maker = fth_pickle_unread_tensor(value);
    if (!maker)
        return FTH_OK;
    if (key->kind == FTH_PICKLE_TEXT)
        fth_pickle_printable(key->bytes, key->count, shown, sizeof shown);
    return fth_fail(FTH_UNSUPPORTED,
                    "%s: tensor '%s' is refused: it is made by %s, as sparse, quantized and other special tensors are; "
                    "save an ordinary one (.to_dense(), .dequantize())",
                    origin, shown, fth_pickle_global_text(maker));
}

static fth_status read_tensors(fth_pth *pth, const fth_pickle_node *state, const char *origin, fth_pth_tensors *tensors)
{
    fth_status status = FTH_OK;
    size_t names_size = 0, count = 0;
    for (size_t i = 0; i + 1 < state->count; i += 2) {
        FTH_TRY(check_readable(state->items[i], state->items[i + 1], origin));
        if (!is_named_tensor(state->items[i], state->items[i + 1]))
            continue;
        FTH_TRY(check_name(state->items[i], origin));
        /* Many uses of one long text would be a small file that takes much memory. */
        FTH_REQUIRE(!state->items[i]->visited, FTH_CORRUPT, "%s: two tensors are called '%.*s'", origin,
                    (int)state->items[i]->count, state->items[i]->bytes);
        state->items[i]->visited = true;
        names_size += state->items[i]->count + 1;
        count++;
    }
    FTH_TRY(fth_allocate(names_size, 1, &tensors->names));
    FTH_TRY(fth_allocate(count, sizeof *tensors->views, &tensors->views));
    FTH_TRY(fth_allocate(count, sizeof *tensors->firsts, &tensors->firsts));
    char *name = tensors->names;
    for (size_t i = 0; i + 1 < state->count; i += 2) {
        const fth_pickle_node *key = state->items[i], *value = state->items[i + 1];
        if (!is_named_tensor(key, value))
            continue;
        memcpy(name, key->bytes, key->count); /* the NUL is there already */
        FTH_TRY(fth_pth_view_tensor(pth, value->tensor, name, origin, &tensors->views[tensors->count],
                                    &tensors->firsts[tensors->count]));
        tensors->count++;
        name += key->count + 1;
    }
out:
    return status;
}

fth_status fth_pth_read_tensors(fth_pth *pth, const fth_pickle_node *state, const char *origin,
                                fth_pth_tensors *tensors)
{
    *tensors = (fth_pth_tensors){0};
    fth_status status = read_tensors(pth, state, origin, tensors);
    if (status != FTH_OK)
        fth_pth_tensors_release(tensors);
    return status;
}

void fth_pth_tensors_release(fth_pth_tensors *tensors)
{
    free(tensors->names);
    free(tensors->views);
    free(tensors->firsts);
    *tensors = (fth_pth_tensors){0};
}
