/* What members were asked to do must be the same on every node. */
#ifndef FTH_CLUSTER_CONFIGURATION_H
#define FTH_CLUSTER_CONFIGURATION_H

#include "base/base.h"

/* NULL if two configurations are the same; else which options differ, and how: "batch is 64 on a
 * and 32 on b". They are JSON objects as text; any other text is compared as it is. free() it. */
char *fth_configuration_difference(const char *first, const char *first_host, const char *second,
                                   const char *second_host);

#endif
