/* Limits of pixelwise convolutions; see level/pixelwise.c. */
#ifndef FTH_BACKEND_CPU_PIXELWISE_H
#define FTH_BACKEND_CPU_PIXELWISE_H

enum { PIXELWISE_MAX_TAPS = 49 }; /* of a kernel */

#endif
