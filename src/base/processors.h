/* How many processors there are to work with. */
#ifndef FTH_BASE_PROCESSORS_H
#define FTH_BASE_PROCESSORS_H

/* Those that this process may run on (taskset, cpusets of containers); at least 1. */
int fth_processors_usable(void);
/* Those of the machine that are online; at least 1. */
int fth_processors_online(void);

#endif
