/* Addresses and the secrets in them.
 *
 * A URL may contain credentials: "user:password@", a presigned link's signature, a token.
 * Connections use the whole address. Messages, records, names, hashes and printed commands use its
 * public form, without them. Links to the same object that were signed at different times have the
 * same public form.
 *
 * Options that are addresses (fth_option.address) hold the public form from the moment they are
 * read; the whole one is kept here, in this process only, and fth_address_whole() returns it to
 * code that opens a connection. Whole addresses can also come from the environment:
 * FARTHING_DATA_URL and FARTHING_SERVER_URL. */
#ifndef FTH_BASE_ADDRESS_H
#define FTH_BASE_ADDRESS_H

#include <stdbool.h>

#include "base/status.h"

#define FTH_DATA_URL_VARIABLE   "FARTHING_DATA_URL"
#define FTH_SERVER_URL_VARIABLE "FARTHING_SERVER_URL"

/* The public form, in new memory; text that is not a URL, and a URL without secrets, is copied
 * unchanged. Secrets are all before '@', and query parameters by their names: those of presigned
 * links (Amazon, Google, Azure, CloudFront and others, times included), and names that end in words
 * like token, key, password or signature. Other parameters and what follows '#' stay. NULL only
 * without memory. */
char *fth_address_public(const char *text);
bool fth_address_has_secret(const char *text);

/* Puts every address in a message into its public form, in place. An address ends at a space, and
 * punctuation behind it is not a part of it. fth_fail() and fth_log() do this to every message,
 * since a message may quote anything. */
void fth_address_hide_secrets(char *message);

/* Remembers the whole form of an address that has secrets; the latest of several with one public
 * form counts. */
fth_status fth_address_remember(const char *whole);
/* The whole form of an address, in new memory: `text` itself if it has secrets or none are known,
 * else the remembered address, without the part after '#'. Safe from any thread. NULL only without
 * memory. */
char *fth_address_whole(const char *text);

/* Check of options whose addresses must not contain secrets: FTH_INVALID, without repeating
 * them. */
fth_status fth_address_check_plain(const char *text);

#endif
