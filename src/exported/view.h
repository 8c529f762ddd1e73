/* A value of the graph with the dimensions that PyTorch gives it.
 *
 * PyTorch's views (reshape, permute, expand) change no number, only which one an index means, so
 * they add nothing to the graph. In memory a value is a sequence of atoms, each a factor of a
 * dimension; a dimension is a list of atoms. Splitting a dimension splits an atom, merging
 * dimensions joins their lists, permuting reorders the lists, and expanding adds atoms that are not
 * in memory. Only an op that needs its numbers in a certain order has fth_view_arrange() add nodes.
 *
 *     (N, L, 3·H·D)  in memory  N L 3·H·D        a linear layer's result
 *     view, permute             N L 3 H D        dimensions (3) (N) (H) (L) (D), the same memory
 *     select 0 of the first     N L 3 H D        a slice along the atom 3
 *
 * The batch is an atom of unknown size, and first in memory. */
#ifndef FTH_EXPORTED_VIEW_H
#define FTH_EXPORTED_VIEW_H

#include "exported/program.h"
#include "graph/graph.h"

enum { FTH_VIEW_ATOMS = 32 };

typedef struct fth_atom {
    int64_t size;  /* above 1; 1 for the batch */
    bool batch;    /* as many as the batch has samples */
    bool expanded; /* the same numbers for every index: not in memory */
} fth_atom;

/* Numbers of atoms. */
typedef struct fth_atom_list {
    int count;
    uint8_t atoms[FTH_VIEW_ATOMS];
} fth_atom_list;

typedef struct fth_view {
    fth_value value;
    int atom_count; /* those in memory first, in its order */
    fth_atom atoms[FTH_VIEW_ATOMS];
    int rank;
    fth_atom_list dims[FTH_MAX_RANK + 1]; /* a dimension of size 1 has no atoms; one more while dimensions change */
} fth_view;

/* A value whose memory is row-major in these dimensions. */
fth_status fth_view_create(fth_value value, int rank, const fth_exported_dim *dims, fth_view *view);

/* The size of a dimension, of an atom list. */
fth_exported_dim fth_view_dim(const fth_view *view, int dim);
fth_exported_dim fth_view_list_size(const fth_view *view, const fth_atom_list *list);
bool fth_view_has_batch(const fth_view *view);

/* PyTorch's views, in place. `graph`: a reshape may have to copy. */
fth_status fth_view_reshape(fth_graph *graph, fth_view *view, int rank, const fth_exported_dim *dims);
void fth_view_permute(fth_view *view, const int *order);
fth_status fth_view_insert(fth_view *view, int at); /* a dimension of size 1 */
void fth_view_remove(fth_view *view, int at);       /* likewise */
/* To a larger size; ranks are aligned at the last dimension. */
fth_status fth_view_expand(fth_view *view, int rank, const fth_exported_dim *dims);

/* Lists of atoms for fth_view_arrange(). */
fth_atom_list fth_view_join(const fth_view *view, int first_dim, int dim_count); /* in the order of the dimensions */
/* All atoms that are in none of the given dimensions, the batch first, then in the order of memory:
 * the order that costs nothing. */
fth_atom_list fth_view_others(const fth_view *view, unsigned dims);
/* Puts the numbers in memory in the order of the lists, and gives the value one dimension for each
 * list. The lists hold every atom that is in memory, and those expanded ones that are to be. Adds the
 * nodes that this needs, mostly none. */
fth_status fth_view_arrange(fth_graph *graph, fth_view *view, const fth_atom_list *lists, int count);
/* The same with one list for each dimension. */
fth_status fth_view_arrange_plain(fth_graph *graph, fth_view *view);

/* Makes a dimension one atom of `size`, or none if that is 1, which is atom number `at` in memory. The
 * atoms that it had there follow one another from `at` on. */
fth_status fth_view_resize(fth_view *view, int dim, int at, int64_t size);
/* Makes a dimension of size 1, whose atoms are gone from memory. */
void fth_view_drop(fth_view *view, int dim);
/* Makes an atom two, of the size `first` and the rest. */
fth_status fth_view_split(fth_view *view, int atom, int64_t first);
/* Splits atoms until the first `dims` dimensions of the views, where several have more than one
 * element, have lists of equal sizes. May copy. */
fth_status fth_view_refine(fth_graph *graph, fth_view *const *views, int count, int dims);

/* The operands of an op that works on corresponding elements. */
typedef struct fth_alignment {
    fth_view result; /* its value is to be filled in */
    fth_shape shape; /* of the result's value */
} fth_alignment;
/* Gives the views' values shapes that broadcast as NumPy's do to that of the result, in one order of
 * memory. */
fth_status fth_view_align(fth_graph *graph, fth_view *const *views, int count, fth_alignment *alignment);

#endif
