/* farthing: trains neural networks. This header includes all others. */
#ifndef FARTHING_FARTHING_H
#define FARTHING_FARTHING_H

#include <farthing/data.h>
#include <farthing/log.h>
#include <farthing/network.h>
#include <farthing/predictor.h>
#include <farthing/status.h>
#include <farthing/training.h>
#include <farthing/version.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that the program runs with: "0.1.0". */
FTH_API const char *fth_version(void);

#ifdef __cplusplus
}
#endif

#endif
