/* Agreement by keys, before members can reach each other in any other way. */
#ifndef FTH_COLLECTIVE_AGREE_H
#define FTH_COLLECTIVE_AGREE_H

#include "collective/collective.h"

/* Each of `count` members says how something went for it, and hears that of all others: all return
 * the same, FTH_OK or the first failure in the order of members, with its message and the member's
 * name. `status` and the calling thread's error message are those of member `number`; -1: this
 * process only hears. */
fth_status fth_agree(const fth_key_store *keys, const char *topic, const fth_member *members, int count, int number,
                     fth_status status, fth_deadline deadline);

/* The options' timeout_s, or the usual one. */
double fth_collective_timeout(const fth_collective_options *options);

/* The value of a key, as text; free() it. */
fth_status fth_get_text(const fth_key_store *keys, const char *key, fth_deadline deadline, char **text);

#endif
