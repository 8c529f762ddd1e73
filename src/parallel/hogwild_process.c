/* Workers that are processes: this program again, with a hidden command. It gets the region's
 * descriptor and nothing else of ours. Signals that stop the trainer stay blocked in it, so that a
 * Ctrl-C, which goes to all, leaves it working until the trainer has saved. */
#include <stdio.h>
#include <unistd.h>

#include "base/process.h"
#include "parallel/hogwild.h"

fth_status hogwild_process_start(int descriptor, int worker, pid_t *process)
{
    char number[16], target[16], program[4096];
    const char *const arguments[] = {"farthing", FTH_HOGWILD_COMMAND, target, number, NULL};
    fth_child_options child = {.program = fth_process_program(program, sizeof program),
                               .arguments = arguments,
                               .output = STDERR_FILENO, /* readers of our output wait for us alone */
                               .descriptor = descriptor,
                               .blocks_stops = true};
    snprintf(target, sizeof target, "%d", FTH_CHILD_DESCRIPTOR);
    snprintf(number, sizeof number, "%d", worker);
    return fth_child_start(&child, process);
}

bool hogwild_process_is_gone(pid_t process, char *reason, size_t size)
{
    fth_child_end end;
    if (!fth_child_has_ended(process, &end))
        return false;
    fth_child_describe_end(&end, reason, size);
    return true;
}
