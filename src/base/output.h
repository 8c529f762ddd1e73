/* Where output goes that the user names: `--out FILE`.
 *
 * A name may stand for more than a regular file, and none of it is replaced by one:
 *
 *     absent, or a regular file     whole or absent, through a temporary beside it (file.h)
 *     a symbolic link               what it points to, by these same rules; the link stays
 *     a device, a terminal, a pipe  written to directly
 *     -, /dev/stdout, /dev/fd/N     that open descriptor, written to directly
 *     a folder, a socket            refused
 *
 * fth_file_create_output() (file.h) makes an fth_file of any of them. */
#ifndef FTH_BASE_OUTPUT_H
#define FTH_BASE_OUTPUT_H

#include <stdbool.h>

#include "base/status.h"

/* True for "-". */
bool fth_output_is_stdout(const char *name);
/* The name for messages: "standard output" for "-". */
const char *fth_output_label(const char *name);

/* To be called before anything is printed. Where `name` is "-" it keeps standard output for data:
 * what the program prints from here on goes to standard error, so that results and data do not mix.
 * FTH_INVALID where that is a terminal. */
fth_status fth_output_prepare(const char *name);

/* Finds out what `name` stands for. A file to be replaced gives its *path, with all links followed,
 * and -1 in *descriptor; anything else is open in *descriptor for writing, and *path says what it
 * is, for messages. The caller owns both. A pipe that nobody reads is waited for until `patience_s`
 * have passed: FTH_TIMEOUT. */
fth_status fth_output_open(const char *name, double patience_s, char **path, int *descriptor);

/* Waits until a descriptor that does not block takes more: FTH_TIMEOUT after `patience_s`, naming
 * `path`. */
fth_status fth_output_wait(int descriptor, const char *path, double patience_s);

#endif
