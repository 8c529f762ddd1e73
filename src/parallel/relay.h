/* What several child processes write, passed on line by line.
 *
 * Each child has two pipes, for standard output and standard error, that stay the same when it is
 * started again. Lines are passed on whole, in the order in which each child wrote them; one that
 * is longer than the limit is cut into several. A pipe that is not read makes its child wait, so
 * fth_relay_wait() has to be called all the time. Not safe for several threads. */
#ifndef FTH_PARALLEL_RELAY_H
#define FTH_PARALLEL_RELAY_H

#include "base/base.h"

typedef struct fth_relay fth_relay;

typedef enum fth_relay_stream { FTH_RELAY_OUTPUT, FTH_RELAY_MESSAGES, FTH_RELAY_STREAMS } fth_relay_stream;

/* `show` gets each line without its end; `number` is 1 for the first child. */
typedef void (*fth_relay_show)(void *context, int number, fth_relay_stream stream, const char *line);

fth_status fth_relay_create(int count, fth_relay_show show, void *context, fth_relay **relay);
void fth_relay_free(fth_relay *relay);

/* The descriptor that child `number` is to write to. Other children do not get it. */
int fth_relay_descriptor(const fth_relay *relay, int number, fth_relay_stream stream);
/* Waits for lines, for this long at most, and passes on what has come. */
void fth_relay_wait(fth_relay *relay, double seconds);
/* Child `number` has ended: passes on what is left of it, also where the end of a line is
 * missing. */
void fth_relay_finish(fth_relay *relay, int number);
/* The last error it wrote to standard error, or else its last line there; "": none. */
const char *fth_relay_last_message(const fth_relay *relay, int number);

#endif
