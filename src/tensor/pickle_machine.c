/* The state of the machine that pickle.c runs: the bytes it reads, its stack with marks, and its
 * memo. Everything that a file could make grow has a limit. */
#include <stdlib.h>
#include <string.h>

#include "tensor/pickle_machine.h"

/* Far more than any model needs; with the arena's budget they bound what a file can make us do. */
enum { MAX_STACK = 1 << 22, MAX_MARKS = 1000, MAX_MEMO = 1 << 24, MAX_NAME = 512 };

fth_status fth_pickle_take_bytes(fth_pickle_machine *machine, uint64_t count, const unsigned char **bytes)
{
    if (count > machine->size - machine->at)
        return fth_pickle_corrupt(&machine->place, "the file ends within it");
    *bytes = machine->bytes + machine->at;
    machine->at += (size_t)count;
    return FTH_OK;
}

fth_status fth_pickle_take_unsigned(fth_pickle_machine *machine, int width, uint64_t *value)
{
    const unsigned char *bytes = NULL;
    fth_status status = fth_pickle_take_bytes(machine, (uint64_t)width, &bytes);
    *value = 0;
    if (status == FTH_OK)
        memcpy(value, bytes, (size_t)width); /* both are little-endian */
    return status;
}

fth_status fth_pickle_take_line(fth_pickle_machine *machine, const char **text, size_t *length)
{
    size_t left = machine->size - machine->at;
    const unsigned char *start = machine->bytes + machine->at;
    const unsigned char *end = left ? memchr(start, '\n', left < MAX_NAME ? left : MAX_NAME) : NULL;
    if (!end)
        return fth_pickle_corrupt(&machine->place, "a name without an end");
    *text = (const char *)start;
    *length = (size_t)(end - start);
    machine->at += *length + 1;
    return FTH_OK;
}

fth_status fth_pickle_push(fth_pickle_machine *machine, fth_pickle_node *node)
{
    if (machine->stack_count == MAX_STACK)
        return fth_pickle_corrupt(&machine->place, "too many values on the stack");
    fth_status status =
        fth_grow(&machine->stack, machine->stack_count, &machine->stack_capacity, sizeof *machine->stack);
    if (status == FTH_OK)
        machine->stack[machine->stack_count++] = node;
    return status;
}

/* Where the values above the last mark begin. */
static size_t stack_floor(const fth_pickle_machine *machine)
{
    return machine->mark_count ? machine->marks[machine->mark_count - 1] : 0;
}

fth_status fth_pickle_pop(fth_pickle_machine *machine, fth_pickle_node **node)
{
    if (machine->stack_count <= stack_floor(machine))
        return fth_pickle_corrupt(&machine->place, "nothing left on the stack");
    *node = machine->stack[--machine->stack_count];
    return FTH_OK;
}

fth_status fth_pickle_set_mark(fth_pickle_machine *machine)
{
    if (machine->mark_count == MAX_MARKS)
        return fth_pickle_corrupt(&machine->place, "nested too deeply");
    fth_status status = fth_grow(&machine->marks, machine->mark_count, &machine->mark_capacity, sizeof *machine->marks);
    if (status == FTH_OK)
        machine->marks[machine->mark_count++] = machine->stack_count;
    return status;
}

fth_status fth_pickle_pop_to_mark(fth_pickle_machine *machine, fth_pickle_node *const **items, size_t *count)
{
    if (machine->mark_count == 0)
        return fth_pickle_corrupt(&machine->place, "no mark to go back to");
    size_t floor = machine->marks[--machine->mark_count];
    *count = machine->stack_count - floor;
    *items = *count ? machine->stack + floor : NULL;
    machine->stack_count = floor;
    return FTH_OK;
}

fth_status fth_pickle_peek(fth_pickle_machine *machine, fth_pickle_node **node)
{
    fth_status status = fth_pickle_pop(machine, node);
    if (status == FTH_OK)
        machine->stack_count++;
    return status;
}

fth_status fth_pickle_put_memo(fth_pickle_machine *machine, uint64_t index)
{
    fth_pickle_node *node = NULL;
    fth_status status = fth_pickle_peek(machine, &node);
    if (status != FTH_OK)
        return status;
    /* Picklers count their puts, so an index far beyond the bytes read so far is made to cost
     * memory. */
    if (index >= MAX_MEMO || index > machine->at)
        return fth_pickle_corrupt(&machine->place, "a memo that nobody needs");
    if (index >= machine->memo_capacity) {
        size_t capacity = machine->memo_capacity ? machine->memo_capacity * 2 : 64;
        if (capacity <= index)
            capacity = (size_t)index + 1;
        fth_pickle_node **larger = realloc(machine->memo, capacity * sizeof *larger);
        if (!larger)
            return fth_fail(FTH_NO_MEMORY, "%s: no memory for %zu values", machine->place.origin, capacity);
        memset(larger + machine->memo_capacity, 0, (capacity - machine->memo_capacity) * sizeof *larger);
        machine->memo = larger;
        machine->memo_capacity = capacity;
    }
    if (!machine->memo[index])
        machine->memo_puts++;
    machine->memo[index] = node;
    return FTH_OK;
}

fth_status fth_pickle_push_memo(fth_pickle_machine *machine, uint64_t index)
{
    if (index >= machine->memo_capacity || !machine->memo[index])
        return fth_pickle_corrupt(&machine->place, "a memo that was never put");
    return fth_pickle_push(machine, machine->memo[index]);
}

void fth_pickle_machine_release(fth_pickle_machine *machine)
{
    free(machine->stack);
    free(machine->marks);
    free(machine->memo);
}
