/* All of the base layer: what every other folder may use. */
#ifndef FTH_BASE_BASE_H
#define FTH_BASE_BASE_H

#include <farthing/version.h>

#include "base/address.h"
#include "base/clock.h"
#include "base/count.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/output.h"
#include "base/path.h"
#include "base/printable.h"
#include "base/processors.h"
#include "base/random.h"
#include "base/remove.h"
#include "base/status.h"
#include "base/stop.h"

#define FTH_COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

#endif
