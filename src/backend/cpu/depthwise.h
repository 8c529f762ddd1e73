/* Limits of depthwise convolutions; see level/depthwise.c. */
#ifndef FTH_BACKEND_CPU_DEPTHWISE_H
#define FTH_BACKEND_CPU_DEPTHWISE_H

enum { DEPTHWISE_MAX_KERNEL = 15 }; /* rows, columns */

#endif
