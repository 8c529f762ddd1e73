/* Metadata services of AWS, Google and Azure on loopback, real HTTP, for one simulated machine at a
 * time. */
#ifndef FTH_REHEARSE_SIMULATION_H
#define FTH_REHEARSE_SIMULATION_H

#include "rehearse/rehearse.h"

typedef struct fth_simulation fth_simulation;

fth_status fth_simulation_start(fth_simulation **simulation);
int fth_simulation_port(const fth_simulation *simulation);
/* A new machine: no announcements; tokens of the old machine become invalid, and its long polls
 * end. */
void fth_simulation_new_machine(fth_simulation *simulation, int64_t number);
/* The cloud says that the machine ends in `notice_s`. Other kinds than clouds are ignored. */
void fth_simulation_announce(fth_simulation *simulation, fth_interruption_kind kind, double notice_s);
void fth_simulation_free(fth_simulation *simulation);

#endif
