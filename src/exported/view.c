/* Views, and PyTorch's ways to change them: see view.h. */
#include "exported/view.h"

#include <string.h>

#include "graph/ops.h"

/* ---- atoms ---- */

static fth_status check_room(const fth_view *view)
{
    if (view->atom_count < FTH_VIEW_ATOMS)
        return FTH_OK;
    return fth_fail(FTH_UNSUPPORTED, "its dimensions are split and merged in too many ways");
}

/* Adds an atom before number `at`. */
static fth_status insert_atom(fth_view *view, int at, fth_atom atom)
{
    fth_status status = check_room(view);
    if (status != FTH_OK)
        return status;
    memmove(&view->atoms[at + 1], &view->atoms[at], (size_t)(view->atom_count - at) * sizeof *view->atoms);
    view->atoms[at] = atom;
    view->atom_count++;
    for (int d = 0; d < view->rank; d++)
        for (int i = 0; i < view->dims[d].count; i++)
            view->dims[d].atoms[i] += view->dims[d].atoms[i] >= at;
    return FTH_OK;
}

static void list_append(fth_atom_list *list, int atom)
{
    list->atoms[list->count++] = (uint8_t)atom;
}

static void list_insert(fth_atom_list *list, int at, int atom)
{
    memmove(&list->atoms[at + 1], &list->atoms[at], (size_t)(list->count - at));
    list->atoms[at] = (uint8_t)atom;
    list->count++;
}

fth_status fth_view_split(fth_view *view, int atom, int64_t first)
{
    fth_atom rest = view->atoms[atom];
    rest.size /= first;
    fth_status status = insert_atom(view, atom + 1, rest);
    if (status != FTH_OK)
        return status;
    view->atoms[atom].size = first;
    for (int d = 0; d < view->rank; d++) {
        fth_atom_list *list = &view->dims[d];
        for (int i = 0; i < list->count; i++)
            if (list->atoms[i] == atom)
                list_insert(list, ++i, atom + 1);
    }
    return FTH_OK;
}

fth_exported_dim fth_view_list_size(const fth_view *view, const fth_atom_list *list)
{
    fth_exported_dim size = {.factor = 1};
    for (int i = 0; i < list->count; i++) {
        size.factor *= view->atoms[list->atoms[i]].size;
        size.batch = size.batch || view->atoms[list->atoms[i]].batch;
    }
    return size;
}

fth_exported_dim fth_view_dim(const fth_view *view, int dim)
{
    return fth_view_list_size(view, &view->dims[dim]);
}

bool fth_view_has_batch(const fth_view *view)
{
    for (int i = 0; i < view->atom_count; i++)
        if (view->atoms[i].batch)
            return true;
    return false;
}

static bool is_one(fth_exported_dim dim)
{
    return dim.factor == 1 && !dim.batch && !dim.length;
}

/* Takes an atom away that no dimension has. */
static void remove_atom(fth_view *view, int at)
{
    view->atom_count--;
    memmove(&view->atoms[at], &view->atoms[at + 1], (size_t)(view->atom_count - at) * sizeof *view->atoms);
    for (int d = 0; d < view->rank; d++)
        for (int i = 0; i < view->dims[d].count; i++)
            view->dims[d].atoms[i] -= view->dims[d].atoms[i] > at;
}

void fth_view_drop(fth_view *view, int dim)
{
    while (view->dims[dim].count > 0)
        remove_atom(view, view->dims[dim].atoms[--view->dims[dim].count]);
}

fth_status fth_view_resize(fth_view *view, int dim, int at, int64_t size)
{
    fth_status status = FTH_OK;
    const int count = view->dims[dim].count;
    view->dims[dim].count = 0;
    for (int i = 0; i < count; i++)
        remove_atom(view, at);
    if (size > 1) {
        FTH_TRY(insert_atom(view, at, (fth_atom){.size = size}));
        list_append(&view->dims[dim], at);
    }
out:
    return status;
}

/* ---- creating ---- */

/* No product of sizes overflows. */
static const int64_t most = INT64_C(1) << 40;

static fth_status check_total(const fth_view *view)
{
    int64_t total = 1;
    for (int i = 0; i < view->atom_count; i++) {
        if (view->atoms[i].size > most / total)
            return fth_fail(FTH_UNSUPPORTED, "a tensor has too many elements");
        total *= view->atoms[i].size;
    }
    return FTH_OK;
}

static fth_status check_dim(fth_exported_dim dim)
{
    if (dim.factor >= 1 && dim.factor <= most && !dim.length)
        return FTH_OK;
    if (dim.length)
        return fth_fail(FTH_UNSUPPORTED, "a dimension depends on the length of a sequence; export with a fixed length");
    return fth_fail(FTH_UNSUPPORTED, "a dimension is neither fixed nor a multiple of the batch");
}

static fth_status append_dim(fth_view *view, fth_exported_dim dim, bool expanded)
{
    fth_status status = FTH_OK;
    fth_atom_list *list = &view->dims[view->rank++];
    *list = (fth_atom_list){0};
    FTH_TRY(check_dim(dim));
    if (dim.batch) {
        FTH_TRY(check_room(view));
        list_append(list, view->atom_count);
        view->atoms[view->atom_count++] = (fth_atom){.size = 1, .batch = true, .expanded = expanded};
    }
    if (dim.factor > 1) {
        FTH_TRY(check_room(view));
        list_append(list, view->atom_count);
        view->atoms[view->atom_count++] = (fth_atom){.size = dim.factor, .expanded = expanded};
    }
    FTH_TRY(check_total(view));
out:
    return status;
}

fth_status fth_view_create(fth_value value, int rank, const fth_exported_dim *dims, fth_view *view)
{
    fth_status status = FTH_OK;
    *view = (fth_view){.value = value};
    for (int i = 0; i < rank; i++) {
        FTH_REQUIRE(!dims[i].batch || view->atom_count == 0, FTH_UNSUPPORTED,
                    "the batch is not the first dimension of an input");
        FTH_TRY(append_dim(view, dims[i], false));
    }
out:
    return status;
}

/* ---- views of views ---- */

void fth_view_permute(fth_view *view, const int *order)
{
    const fth_view before = *view;
    for (int i = 0; i < view->rank; i++)
        view->dims[i] = before.dims[order[i]];
}

fth_status fth_view_insert(fth_view *view, int at)
{
    if (view->rank == FTH_MAX_RANK)
        return fth_fail(FTH_UNSUPPORTED, "a tensor has more than %d dimensions", FTH_MAX_RANK);
    memmove(&view->dims[at + 1], &view->dims[at], (size_t)(view->rank - at) * sizeof *view->dims);
    view->dims[at] = (fth_atom_list){0};
    view->rank++;
    return FTH_OK;
}

void fth_view_remove(fth_view *view, int at)
{
    view->rank--;
    memmove(&view->dims[at], &view->dims[at + 1], (size_t)(view->rank - at) * sizeof *view->dims);
}

fth_status fth_view_expand(fth_view *view, int rank, const fth_exported_dim *dims)
{
    fth_status status = FTH_OK;
    while (view->rank < rank)
        FTH_TRY(fth_view_insert(view, 0));
    for (int d = 0; d < rank; d++) {
        if (!is_one(fth_view_dim(view, d)) || is_one(dims[d]))
            continue;
        const int after = view->rank;
        FTH_TRY(append_dim(view, dims[d], true)); /* behind the last: borrowed for its list */
        view->rank = after;
        view->dims[d] = view->dims[after];
    }
out:
    return status;
}

/* Moves atoms from the front of dimension `from` to the end of dimension `to` until they make up
 * `wanted`. Not ok: no split does it. */
static fth_status take_dim(fth_view *view, int from, int to, fth_exported_dim wanted, bool *ok)
{
    fth_status status = FTH_OK;
    fth_atom_list *source = &view->dims[from];
    int64_t left = wanted.factor;
    bool batch = wanted.batch;
    *ok = false;
    while (left > 1 || batch) {
        if (source->count == 0)
            goto out;
        const int atom = source->atoms[0];
        const fth_atom first = view->atoms[atom];
        if (first.batch) {
            if (!batch)
                goto out;
            batch = false;
        } else if (left == 1 || (left % first.size != 0 && first.size % left != 0)) {
            goto out;
        } else if (left < first.size) {
            FTH_TRY(fth_view_split(view, atom, left));
            left = 1;
        } else {
            left /= first.size;
        }
        list_append(&view->dims[to], atom);
        memmove(&source->atoms[0], &source->atoms[1], (size_t)--source->count);
    }
    *ok = true;
out:
    return status;
}

static fth_status try_reshape(fth_view *view, int rank, const fth_exported_dim *dims, bool *ok)
{
    fth_status status = FTH_OK;
    fth_view made = *view;

    made.rank = rank + 1; /* the last is what is left to distribute */
    made.dims[rank] = fth_view_join(view, 0, view->rank);
    for (int d = 0; d < rank; d++)
        made.dims[d] = (fth_atom_list){0};
    *ok = true;
    for (int d = 0; d < rank && *ok; d++)
        FTH_TRY(take_dim(&made, rank, d, dims[d], ok));
    *ok = *ok && made.dims[rank].count == 0;
    made.rank = rank;
    if (*ok)
        *view = made;
out:
    return status;
}

/* Joins atoms that are neighbours in memory and in every dimension's list. */
static void merge_atoms(fth_view *view)
{
    for (int d = 0; d < view->rank; d++) {
        fth_atom_list *list = &view->dims[d];
        for (int i = 0; i + 1 < list->count; i++) {
            const int a = list->atoms[i], b = list->atoms[i + 1];
            if (b != a + 1 || view->atoms[a].batch || view->atoms[b].batch ||
                view->atoms[a].expanded != view->atoms[b].expanded)
                continue;
            view->atoms[a].size *= view->atoms[b].size;
            memmove(&list->atoms[i + 1], &list->atoms[i + 2], (size_t)(list->count - i - 2));
            list->count--;
            remove_atom(view, b);
            i--;
        }
    }
}

fth_status fth_view_reshape(fth_graph *graph, fth_view *view, int rank, const fth_exported_dim *dims)
{
    fth_status status = FTH_OK;
    bool ok = false;

    FTH_REQUIRE(rank <= FTH_MAX_RANK, FTH_UNSUPPORTED, "a tensor has more than %d dimensions", FTH_MAX_RANK);
    for (int d = 0; d < rank; d++)
        FTH_TRY(check_dim(dims[d]));
    FTH_TRY(try_reshape(view, rank, dims, &ok));
    if (ok) {
        merge_atoms(view);
        goto out;
    }
    /* (6, 4) to (8, 3): no atom is a factor of both, so everything becomes one and is split again. */
    FTH_TRY(fth_view_arrange_plain(graph, view));
    fth_exported_dim all = {.factor = 1};
    for (int i = 0; i < view->atom_count; i++) {
        all.batch = all.batch || view->atoms[i].batch;
        all.factor *= view->atoms[i].size;
    }
    FTH_TRY(fth_view_create(view->value, 1, &all, view));
    FTH_TRY(try_reshape(view, rank, dims, &ok));
    FTH_REQUIRE(ok, FTH_UNSUPPORTED, "a reshape takes samples of a batch apart");
out:
    return status;
}

/* ---- lists ---- */

fth_atom_list fth_view_join(const fth_view *view, int first_dim, int dim_count)
{
    fth_atom_list joined = {0};
    for (int d = first_dim; d < first_dim + dim_count; d++)
        for (int i = 0; i < view->dims[d].count; i++)
            list_append(&joined, view->dims[d].atoms[i]);
    return joined;
}

fth_atom_list fth_view_others(const fth_view *view, unsigned dims)
{
    bool taken[FTH_VIEW_ATOMS] = {false};
    fth_atom_list others = {0};
    for (int d = 0; d < view->rank; d++)
        for (int i = 0; i < view->dims[d].count; i++)
            taken[view->dims[d].atoms[i]] = (dims >> d & 1) != 0;
    for (int pass = 0; pass < 2; pass++) /* the batch may be an atom that is not in memory yet */
        for (int i = 0; i < view->atom_count; i++)
            if (!taken[i] && view->atoms[i].batch == (pass == 0))
                list_append(&others, i);
    return others;
}

fth_status fth_view_arrange_plain(fth_graph *graph, fth_view *view)
{
    fth_atom_list lists[FTH_MAX_RANK];
    memcpy(lists, view->dims, sizeof lists);
    return fth_view_arrange(graph, view, lists, view->rank);
}
