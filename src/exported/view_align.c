/* Operands of ops on corresponding elements: see view.h.
 *
 * Dimensions are first refined, so that each consists of the same atoms in all views. Then one order
 * of memory is chosen, that of the view with most in memory, and the others are brought into it. */
#include <string.h>

#include "exported/view.h"
#include "graph/ops.h"

/* ---- refining ---- */

/* Splits atoms until the lists of dimension `dim` agree as far as both reach. Not ok: they have no
 * common factors. */
static fth_status refine_pair(fth_view *a, fth_view *b, int dim, bool *ok)
{
    fth_status status = FTH_OK;
    *ok = true;
    for (int i = 0; *ok && i < a->dims[dim].count && i < b->dims[dim].count; i++) {
        const int atom_a = a->dims[dim].atoms[i], atom_b = b->dims[dim].atoms[i];
        const fth_atom of_a = a->atoms[atom_a], of_b = b->atoms[atom_b];
        if (of_a.batch != of_b.batch)
            *ok = false;
        else if (of_a.size > of_b.size && of_a.size % of_b.size == 0)
            FTH_TRY(fth_view_split(a, atom_a, of_b.size));
        else if (of_b.size > of_a.size && of_b.size % of_a.size == 0)
            FTH_TRY(fth_view_split(b, atom_b, of_a.size));
        else
            *ok = of_a.size == of_b.size;
    }
    *ok = *ok && a->dims[dim].count == b->dims[dim].count;
out:
    return status;
}

/* Makes each dimension one atom, or the batch and one. */
static fth_status merge_dims(fth_graph *graph, fth_view *view)
{
    fth_status status = FTH_OK;
    fth_exported_dim dims[FTH_MAX_RANK];
    for (int d = 0; d < view->rank; d++)
        dims[d] = fth_view_dim(view, d);
    FTH_TRY(fth_view_arrange_plain(graph, view));
    FTH_TRY(fth_view_create(view->value, view->rank, dims, view));
out:
    return status;
}

fth_status fth_view_refine(fth_graph *graph, fth_view *const *views, int count, int dims)
{
    fth_status status = FTH_OK;
    for (int d = 0; d < dims; d++) {
        for (int pass = 0; pass < 2; pass++) { /* the second brings what the first split later to earlier views */
            for (int i = 0; i < count; i++) {
                for (int j = 0; j < i; j++) {
                    bool ok = true;
                    if (views[i]->dims[d].count == 0 || views[j]->dims[d].count == 0)
                        continue;
                    FTH_TRY(refine_pair(views[j], views[i], d, &ok));
                    if (ok)
                        continue;
                    FTH_TRY(merge_dims(graph, views[i]));
                    FTH_TRY(merge_dims(graph, views[j]));
                    FTH_TRY(refine_pair(views[j], views[i], d, &ok));
                    FTH_REQUIRE(ok, FTH_UNSUPPORTED, "the operands' dimensions do not correspond");
                }
            }
        }
    }
out:
    return status;
}

/* ---- aligning ---- */

/* An atom of the result, and where it is in a view: -1 for one that is not in its memory. */
typedef struct common_atom {
    fth_atom atom;
    int dim, at; /* which of dimension `dim` */
} common_atom;

typedef struct common {
    int count;
    common_atom atoms[FTH_VIEW_ATOMS]; /* in the order of dimensions, then of memory */
} common;

static int atom_in(const fth_view *view, const common_atom *atom)
{
    if (view->dims[atom->dim].count == 0)
        return -1;
    const int number = view->dims[atom->dim].atoms[atom->at];
    return view->atoms[number].expanded ? -1 : number;
}

/* The atoms of all dimensions, as far as one view has them in memory. */
static fth_status collect(fth_view *const *views, int count, common *all)
{
    for (int d = 0; d < views[0]->rank; d++) {
        const fth_view *longest = views[0];
        for (int v = 1; v < count; v++)
            if (views[v]->dims[d].count > longest->dims[d].count)
                longest = views[v];
        for (int i = 0; i < longest->dims[d].count; i++) {
            if (all->count == FTH_VIEW_ATOMS)
                return fth_fail(FTH_UNSUPPORTED, "its dimensions are split and merged in too many ways");
            fth_atom atom = longest->atoms[longest->dims[d].atoms[i]];
            atom.expanded = true;
            for (int v = 0; v < count; v++)
                atom.expanded = atom.expanded && atom_in(views[v], &(common_atom){.dim = d, .at = i}) < 0;
            all->atoms[all->count++] = (common_atom){.atom = atom, .dim = d, .at = i};
        }
    }
    return FTH_OK;
}

/* The view that has most atoms in memory; among equals the first. */
static const fth_view *find_lead(fth_view *const *views, int count, const common *all)
{
    const fth_view *lead = views[0];
    int most = -1;
    for (int v = 0; v < count; v++) {
        int present = 0;
        for (int i = 0; i < all->count; i++)
            present += atom_in(views[v], &all->atoms[i]) >= 0 ? 1 + all->atoms[i].atom.batch * FTH_VIEW_ATOMS : 0;
        if (present > most) {
            most = present;
            lead = views[v];
        }
    }
    return lead;
}

/* Puts the atoms into the lead's order of memory; one that it does not have stays behind the atom
 * before which dimensions have it. Those that no view has come last. */
static void sort_by_lead(const fth_view *lead, common *all)
{
    int place[FTH_VIEW_ATOMS], last = -1;
    for (int i = 0; i < all->count; i++) {
        const int number = atom_in(lead, &all->atoms[i]);
        last = number >= 0 ? number : last;
        place[i] = all->atoms[i].atom.expanded ? FTH_VIEW_ATOMS : last;
        if (all->atoms[i].atom.batch && !all->atoms[i].atom.expanded)
            place[i] = -1;
    }
    for (int i = 1; i < all->count; i++) { /* insertion: stable, and short */
        const common_atom atom = all->atoms[i];
        const int at = place[i];
        int j = i;
        for (; j > 0 && place[j - 1] > at; j--) {
            all->atoms[j] = all->atoms[j - 1];
            place[j] = place[j - 1];
        }
        all->atoms[j] = atom;
        place[j] = at;
    }
}

static int count_in_memory(const common *all)
{
    int count = 0;
    while (count < all->count && !all->atoms[count].atom.expanded)
        count++;
    return count;
}

static bool is_in_order(const common *all, int count)
{
    for (int i = 1; i < count; i++)
        if (all->atoms[i].dim < all->atoms[i - 1].dim ||
            (all->atoms[i].dim == all->atoms[i - 1].dim && all->atoms[i].at < all->atoms[i - 1].at))
            return false;
    return true;
}

/* True if two neighbours may be one dimension of the shape: every view has both or neither. */
static bool go_together(fth_view *const *views, int count, const common_atom *a, const common_atom *b)
{
    for (int v = 0; v < count; v++)
        if ((atom_in(views[v], a) >= 0) != (atom_in(views[v], b) >= 0))
            return false;
    return true;
}

/* Parts of the sequence of atoms that are one dimension each: PyTorch's own where that is the order
 * of memory, so that images stay images, else as few as possible. */
static int cut(fth_view *const *views, int count, const common *all, int length, int *begins)
{
    int parts = 0, rank = views[0]->rank;
    bool as_dims = is_in_order(all, length) && (length == 0 || !all->atoms[0].atom.batch || all->atoms[0].dim == 0);
    for (int i = 1; as_dims && i < length; i++)
        as_dims =
            all->atoms[i].dim != all->atoms[i - 1].dim || go_together(views, count, &all->atoms[i], &all->atoms[i - 1]);
    if (as_dims) {
        int at = 0;
        for (int d = 0; d < rank; d++) {
            begins[parts++] = at;
            while (at < length && all->atoms[at].dim == d)
                at++;
        }
    } else {
        for (int i = 0; i < length; i++)
            if (i == 0 || !go_together(views, count, &all->atoms[i], &all->atoms[i - 1]))
                begins[parts++] = i;
    }
    begins[parts] = length;
    return parts;
}

/* Brings what the view has in memory into the order of the atoms, and gives it its shape. */
static fth_status bring(fth_graph *graph, fth_view *view, const common *all, const int *begins, int parts)
{
    fth_atom_list lists[FTH_VIEW_ATOMS];
    for (int p = 0; p < parts; p++) {
        lists[p] = (fth_atom_list){0};
        for (int i = begins[p]; i < begins[p + 1]; i++) {
            const int number = atom_in(view, &all->atoms[i]);
            if (number >= 0)
                lists[p].atoms[lists[p].count++] = (uint8_t)number;
        }
    }
    return fth_view_arrange(graph, view, lists, parts);
}

static fth_status make_result(const common *all, int rank, const int *begins, int parts, fth_alignment *alignment)
{
    fth_view *result = &alignment->result;
    *result = (fth_view){.value = FTH_NO_VALUE, .atom_count = all->count, .rank = rank};
    for (int i = 0; i < all->count; i++)
        result->atoms[i] = all->atoms[i].atom;
    for (int d = 0; d < rank; d++) {
        for (int at = 0;; at++) {
            int i = 0;
            while (i < all->count && (all->atoms[i].dim != d || all->atoms[i].at != at))
                i++;
            if (i == all->count)
                break;
            result->dims[d].atoms[result->dims[d].count++] = (uint8_t)i;
        }
    }
    alignment->shape = (fth_shape){.rank = parts > 0 ? parts : 1, .dims = {1}};
    for (int p = 0; p < parts; p++) {
        int64_t size = 1;
        bool batch = false;
        for (int i = begins[p]; i < begins[p + 1]; i++) {
            size *= all->atoms[i].atom.size;
            batch = batch || all->atoms[i].atom.batch;
        }
        if (batch && p > 0)
            return fth_fail(FTH_UNSUPPORTED, "an op would need the batch behind another dimension");
        alignment->shape.dims[p] = batch ? fth_batch_times(size) : size;
    }
    return FTH_OK;
}

fth_status fth_view_align(fth_graph *graph, fth_view *const *views, int count, fth_alignment *alignment)
{
    fth_status status = FTH_OK;
    common all = {0};
    int begins[FTH_VIEW_ATOMS + 1], rank = 0;

    for (int v = 0; v < count; v++)
        rank = views[v]->rank > rank ? views[v]->rank : rank;
    for (int v = 0; v < count; v++)
        while (views[v]->rank < rank)
            FTH_TRY(fth_view_insert(views[v], 0));
    FTH_TRY(fth_view_refine(graph, views, count, rank));
    FTH_TRY(collect(views, count, &all));
    sort_by_lead(find_lead(views, count, &all), &all);
    const int length = count_in_memory(&all);
    int parts = cut(views, count, &all, length, begins);
    FTH_REQUIRE(parts <= FTH_MAX_RANK, FTH_UNSUPPORTED, "its operands broadcast in too many ways");
    for (int v = 0; v < count; v++)
        FTH_TRY(bring(graph, views[v], &all, begins, parts));
    FTH_TRY(make_result(&all, rank, begins, parts, alignment));
out:
    return status;
}
