/* Addresses and the secrets in them.
 *
 * A URL may hold what opens it: "user:password@", a presigned link's signature, a token. Such an
 * address is used whole and shown in its public form, which has none of that: in messages, records,
 * names, hashes and printed commands. Links to the same object that were signed at different times
 * have the same public form.
 *
 * Options that are addresses (fth_option.address) hold the public form from the moment they are
 * read; the whole one is remembered here, for this process alone, and whoever opens a connection
 * asks for it with fth_address_whole(). What no option has given may be in the environment:
 * FARTHING_DATA_URL and FARTHING_SERVER_URL hold whole addresses. */
#ifndef FTH_BASE_ADDRESS_H
#define FTH_BASE_ADDRESS_H

#include <stdbool.h>

#include "base/status.h"

#define FTH_DATA_URL_VARIABLE   "FARTHING_DATA_URL"
#define FTH_SERVER_URL_VARIABLE "FARTHING_SERVER_URL"

/* The public form, in fresh memory; text that is no URL, and one without secrets, as it is. Secrets
 * are all before '@', and query parameters by their names: those of presigned links (Amazon,
 * Google, Azure, CloudFront and others, times included), and names that end in words like token,
 * key, password or signature. Other parameters and what follows '#' stay. NULL only without
 * memory. */
char *fth_address_public(const char *text);
bool fth_address_has_secret(const char *text);

/* Puts every address in a message into its public form, in place. An address ends at a space, and
 * punctuation behind it is not a part of it. fth_fail() and fth_log() do this to all that they are
 * given, since a message may quote anything. */
void fth_address_hide_secrets(char *message);

/* Remembers the whole form of an address that has secrets; the latest of several with one public
 * form counts. */
fth_status fth_address_remember(const char *whole);
/* The whole form of an address, in fresh memory: `text` as it is where it has secrets or none are
 * known; else what was remembered, without what follows '#'. Safe from any thread. NULL only
 * without memory. */
char *fth_address_whole(const char *text);

/* An option's check: FTH_INVALID, without repeating them, where there are secrets and no use for
 * them. */
fth_status fth_address_check_plain(const char *text);

#endif
