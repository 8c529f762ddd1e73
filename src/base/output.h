/* Output to a name that the user gave: `--out FILE`.
 *
 * A name may refer to something other than a regular file, which is never replaced by one:
 *
 *     absent, or a regular file     whole or absent, through a temporary beside it (file.h)
 *     a symbolic link               what it points to, by these same rules; the link stays
 *     a device, a terminal, a pipe  written to directly
 *     -, /dev/stdout, /dev/fd/N     that open descriptor, written to directly
 *     a folder, a socket            refused
 *
 * fth_file_create_output() (file.h) makes an fth_file of any of them.   */
#ifndef FTH_BASE_OUTPUT_H
#define FTH_BASE_OUTPUT_H

#include <stdbool.h>

#include "base/status.h"

/* True for "-". */
bool fth_output_is_stdout(const char *name);
/* The name for messages: "standard output" for "-". */
const char *fth_output_label(const char *name);

/* Call this before anything is printed. If `name` is "-", standard output is reserved for data:
 * what the program prints from then on goes to standard error, so that the two do not mix.
 * FTH_INVALID if standard output is a terminal. */
fth_status fth_output_prepare(const char *name);

/* Opens what `name` refers to. For a file to be replaced, *path is its path with all links
 * followed, and *descriptor is -1. Anything else is open for writing in *descriptor, and *path
 * describes it in messages. The caller owns both. FTH_TIMEOUT if a pipe has no reader within
 * `patience_s`. */
fth_status fth_output_open(const char *name, double patience_s, char **path, int *descriptor);

/* Waits until a descriptor that does not block takes more: FTH_TIMEOUT after `patience_s`, naming
 * `path`. */
fth_status fth_output_wait(int descriptor, const char *path, double patience_s);

#endif
