/* Numbers in the formats in which sums travel (fth_wire): conversions, rounding to nearest with
 * ties to even, and sums whose bits are the same on every machine. */
#ifndef FTH_COLLECTIVE_WIRE_H
#define FTH_COLLECTIVE_WIRE_H

#include <stddef.h>

#include "collective/collective.h"

size_t fth_wire_size(fth_wire wire); /* bytes of a number */

/* `to` and `from` are different memory. */
void fth_wire_pack(fth_wire wire, const float *from, size_t count, void *to);
void fth_wire_unpack(fth_wire wire, const void *from, size_t count, float *to);
/* Adds packed numbers to `sums`. */
void fth_wire_add(fth_wire wire, const void *from, size_t count, float *sums);

/* to[i] = sources[0][i] + sources[1][i] + ..., added in this order; with f16 and bf16 each term and
 * the result is rounded. `to` may be one of the sources. */
void fth_wire_sum(fth_wire wire, const float *const *sources, int source_count, size_t count, float *to);
/* The same, of `vectors` that all get the result. */
void fth_wire_sum_to_all(fth_wire wire, float *const *vectors, int vector_count, size_t count);

#endif
