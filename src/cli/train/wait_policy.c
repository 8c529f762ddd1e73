/* How OpenMP's threads wait for each other.
 *
 * libgomp's threads spin for milliseconds by default. On a machine with other work the one they
 * wait for may be off the processor, and spinning keeps it off: measured on 2 cores at load 13,
 * mnist-cnn trained at 211 samples/s spinning and 1,542 sleeping; on a quiet machine sleeping at
 * once costs small networks up to half their speed. So: sleep at once if the machine is busy, spin
 * for some microseconds if not. libgomp reads its settings when it is loaded, before main(), so the
 * program starts itself again with them; that takes a millisecond. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/process.h"
#include "cli/cli.h"

/* The share of the last 10 s in which some process wanted a processor and had none (pressure stall
 * information). */
static double cpu_pressure(void)
{
    double percent = 0;
    FILE *file = fopen("/proc/pressure/cpu", "r");
    if (file) {
        if (fscanf(file, "some avg10=%lf", &percent) != 1)
            percent = 0;
        fclose(file);
    }
    return percent / 100;
}

void fth_choose_wait_policy(char **argv)
{
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY"))
        return; /* chosen by the user, or before this restart */
    setenv("GOMP_SPINCOUNT", cpu_pressure() > 0.1 ? "0" : "3000", 1);
    char program[4096];
    execv(fth_process_program(program, sizeof program), argv);
    /* If that fails, the defaults are used. */
}
