/* Nonces seen lately, in bounded memory; and in files, so that the next process knows them. */
#ifndef FTH_HTTP_NONCES_H
#define FTH_HTTP_NONCES_H

#include "base/base.h"

typedef struct fth_nonces fth_nonces;
typedef enum fth_nonce_result { FTH_NONCE_NEW, FTH_NONCE_SEEN, FTH_NONCE_FULL } fth_nonce_result;

/* Each is remembered for at least `seconds`; at most `most` in that time. */
fth_status fth_nonces_create(double seconds, uint64_t most, fth_nonces **nonces);
void fth_nonces_free(fth_nonces *nonces);
/* Those in the files `path` and `path`.older are known from now on, for at least `seconds`, and
 * what is added is written there first: what cannot be is FTH_NONCE_FULL. Before others use it. */
fth_status fth_nonces_keep(fth_nonces *nonces, const char *path);
/* Safe from any thread. */
fth_nonce_result fth_nonces_add(fth_nonces *nonces, const char *key, const char *nonce);
/* For tests: as if `seconds` had passed. */
void fth_nonces_advance(fth_nonces *nonces, double seconds);
void fth_nonces_set_limits(fth_nonces *nonces, double seconds, uint64_t most); /* `most` 0: as it was */

#endif
