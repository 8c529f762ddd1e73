/* The machine that reads a pickle: what opcodes (pickle.c) do to its bytes, stack, marks and memo
 * (pickle_machine.c). Each call fails, naming the opcode at hand, where the file asks for what is
 * not there or for too much. */
#ifndef FTH_TENSOR_PICKLE_MACHINE_H
#define FTH_TENSOR_PICKLE_MACHINE_H

#include "tensor/pickle_internal.h"

typedef struct fth_pickle_machine {
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
    size_t memo_capacity, memo_puts; /* as many were put */
    size_t storage_capacity;
    bool stopped;
} fth_pickle_machine;

void fth_pickle_machine_release(fth_pickle_machine *machine);

/* ---- bytes, lent ---- */

fth_status fth_pickle_take_bytes(fth_pickle_machine *machine, uint64_t count, const unsigned char **bytes);
fth_status fth_pickle_take_unsigned(fth_pickle_machine *machine, int width, uint64_t *value);
/* A line without its newline. */
fth_status fth_pickle_take_line(fth_pickle_machine *machine, const char **text, size_t *length);

/* ---- the stack ---- */

fth_status fth_pickle_push(fth_pickle_machine *machine, fth_pickle_node *node);
/* Never goes below the last mark. */
fth_status fth_pickle_pop(fth_pickle_machine *machine, fth_pickle_node **node);
/* The value on top, which stays there. */
fth_status fth_pickle_peek(fth_pickle_machine *machine, fth_pickle_node **node);
fth_status fth_pickle_set_mark(fth_pickle_machine *machine);
/* Takes what lies above the last mark; it stays readable until the next push. */
fth_status fth_pickle_pop_to_mark(fth_pickle_machine *machine, fth_pickle_node *const **items, size_t *count);

/* ---- the memo ---- */

fth_status fth_pickle_put_memo(fth_pickle_machine *machine, uint64_t index);
fth_status fth_pickle_push_memo(fth_pickle_machine *machine, uint64_t index);

#endif
