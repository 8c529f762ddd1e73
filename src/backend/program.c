/* Expressions as programs: see program.h. */
#include "backend/program.h"

#include "graph/expression.h"

/* The last step that reads each step's result, and whether one other than the next does. */
static void find_readers(const fth_expression *expression, int last_reader[], bool kept[])
{
    for (int s = 0; s < expression->step_count; s++) {
        last_reader[s] = -1;
        kept[s] = false;
        for (int i = 0; i < 3; i++) {
            const fth_operand x = expression->steps[s].operands[i];
            if (x.kind != FTH_OPERAND_STEP)
                continue;
            last_reader[x.index] = s;
            kept[x.index] = kept[x.index] || s != x.index + 1;
        }
    }
}

static uint8_t take_slot(int free_from[], int step, int last_reader, uint8_t *slot_count)
{
    uint8_t slot = 0;
    while (slot < *slot_count && free_from[slot] > step)
        slot++;
    if (slot == *slot_count)
        ++*slot_count;
    free_from[slot] = last_reader; /* its reader may write where it has read */
    return slot;
}

static uint8_t operand_of(fth_operand operand, int step, const fth_program *program)
{
    switch ((fth_operand_kind)operand.kind) {
    case FTH_OPERAND_INPUT: return operand.index;
    case FTH_OPERAND_NUMBER: return (uint8_t)(FTH_PROGRAM_NUMBERS + operand.index);
    case FTH_OPERAND_STEP:
        if (operand.index == step - 1)
            return FTH_PROGRAM_LAST;
        return (uint8_t)(FTH_PROGRAM_SLOTS + program->steps[operand.index].slot);
    case FTH_OPERAND_NONE: break;
    }
    return FTH_PROGRAM_NONE;
}

void fth_program_compile(const fth_expression *expression, fth_program *program)
{
    int last_reader[FTH_EXPRESSION_STEPS], free_from[FTH_EXPRESSION_STEPS];
    bool kept[FTH_EXPRESSION_STEPS];

    *program = (fth_program){.step_count = expression->step_count};
    for (int i = 0; i < expression->number_count; i++)
        program->numbers[i] = (float)expression->numbers[i];
    find_readers(expression, last_reader, kept);
    for (int s = 0; s < expression->step_count; s++) {
        fth_program_step *step = &program->steps[s];
        step->function = expression->steps[s].function;
        for (int i = 0; i < 3; i++)
            step->operands[i] = operand_of(expression->steps[s].operands[i], s, program);
        step->slot =
            kept[s] ? take_slot(free_from, s, last_reader[s], &program->slot_count) : (uint8_t)FTH_PROGRAM_NONE;
    }
    program->result = operand_of(expression->result, expression->step_count, program);
}
