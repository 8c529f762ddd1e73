/* See lower_axis.h. */
#include "exported/lower_axis.h"

bool lowering_is_plain(const fth_view *x)
{
    int next = 0;
    for (int d = 0; d < x->rank; d++)
        for (int i = 0; i < x->dims[d].count; i++)
            if (x->dims[d].atoms[i] != next++ || x->atoms[next - 1].expanded)
                return false;
    return x->rank > 0 && (!fth_view_has_batch(x) || fth_view_dim(x, 0).batch);
}

lowering_place lowering_place_in_dims(const fth_view *x, int dim)
{
    return (lowering_place){.axis = dim, .atom = fth_view_join(x, 0, dim).count};
}

fth_status lowering_as_axis(lowering *l, fth_view *x, int dim, lowering_place *where)
{
    fth_status status = FTH_OK;
    const fth_atom_list own = x->dims[dim], others = fth_view_others(x, 1u << dim);
    const int first = own.count > 0 ? own.atoms[0] : x->atom_count;
    fth_atom_list lists[3] = {{0}};

    FTH_REQUIRE(!fth_view_list_size(x, &own).batch, FTH_UNSUPPORTED, "it takes the batch apart");
    if (lowering_is_plain(x)) {
        FTH_TRY(fth_view_arrange_plain(lowering_graph(l), x));
        *where = lowering_place_in_dims(x, dim);
        goto out;
    }
    for (int i = 0; i < others.count; i++) {
        const int atom = others.atoms[i];
        fth_atom_list *list = &lists[atom < first || x->atoms[atom].batch ? 0 : 2];
        list->atoms[list->count++] = (uint8_t)atom;
    }
    lists[1] = own;
    FTH_TRY(fth_view_arrange(lowering_graph(l), x, lists, 3));
    *where = (lowering_place){.axis = 1, .atom = lists[0].count};
out:
    return status;
}

fth_status lowering_as_columns(lowering *l, fth_view *x, int dim, lowering_place *where, int64_t *unit)
{
    fth_status status = FTH_OK;
    const fth_atom_list own = x->dims[dim], others = fth_view_others(x, 1u << dim);
    fth_atom_list lists[2] = {{0}, own};

    *unit = 1;
    if (own.count == 0 || fth_view_list_size(x, &own).batch || (x->rank == 4 && lowering_is_plain(x)))
        return lowering_as_axis(l, x, dim, where);
    for (int i = 0; i < others.count; i++) {
        const int atom = others.atoms[i];
        const bool before = atom < own.atoms[0] || x->atoms[atom].batch;
        fth_atom_list *list = &lists[before ? 0 : 1];
        list->atoms[list->count++] = (uint8_t)atom;
        *unit *= before ? 1 : x->atoms[atom].size;
    }
    FTH_TRY(fth_view_arrange(lowering_graph(l), x, lists, 2));
    *where = (lowering_place){.axis = 1, .atom = lists[0].count};
out:
    return status;
}

fth_status lowering_resized(const fth_view *x, int dim, lowering_place where, int64_t size, fth_value value,
                            fth_view *y)
{
    *y = *x;
    y->value = value;
    return fth_view_resize(y, dim, where.atom, size);
}
