/* Signatures on requests: who asks, that nobody changed it, and that it is not an old one again.
 *
 * A signed request has one header more:
 *
 *     Authorization: FTH1 key=ACCESS, time=SECONDS, nonce=NONCE, body=HEX, signature=HEX
 *
 * time       seconds since 1970, whole; at most a minute or so from the server's clock
 * nonce      16 to 64 letters or digits, new for each request
 * body       SHA-256 of the body (of nothing, where there is none), 64 hex digits, lower case
 * signature  HMAC-SHA256 under the secret, 64 hex digits, of
 *                "FTH1\n" METHOD "\n" TARGET "\n" body "\n" time "\n" nonce
 *            where TARGET is the path with its query, as sent
 *
 * So the signature is checked before the body is read, and the body against its hash after. A key
 * has a role: read, train (read and push) or admin (all). Keys are in a file that only its owner
 * can read, a line each:
 *
 *     # comment
 *     ACCESS SECRET ROLE [data=NAME[,NAME...]]
 *
 * where data= limits a key to the data sets of these names, on servers that have some; or in the
 * environment: FARTHING_KEYS, the same text (';' may stand for the end of a line); or
 * FARTHING_ACCESS_KEY and FARTHING_SECRET_KEY, one key, which is how a worker gets its own. Secrets
 * never are arguments, nor in any message. */
#ifndef FTH_HTTP_SIGNATURE_H
#define FTH_HTTP_SIGNATURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "http/role.h"

enum {
    FTH_MAX_ACCESS_KEY = 64,
    FTH_MAX_SECRET = 128,
    FTH_MAX_AUTHORIZATION = 512,
    FTH_MAX_KEY_DATA = 512,
    FTH_MAX_LOCAL_ADDRESS = 45
};

/* ---- who signs ---- */

typedef struct fth_signer {
    char access[FTH_MAX_ACCESS_KEY + 1], secret[FTH_MAX_SECRET + 1]; /* both empty: nothing is signed */
    /* Where the server of this user is whose token the secret is (local_token.h): nothing signed
     * with it may go elsewhere. "": it is no token. */
    char local[FTH_MAX_LOCAL_ADDRESS + 1];
} fth_signer;

/* From FARTHING_ACCESS_KEY and FARTHING_SECRET_KEY. False, and an empty signer, if they are not
 * set. */
fth_status fth_signer_from_environment(fth_signer *signer, bool *found);

/* The value of the header Authorization for a request made now. `target` is the path with its
 * query. */
fth_status fth_signer_sign(const fth_signer *signer, const char *method, const char *target, const void *body,
                           uint64_t body_bytes, char authorization[FTH_MAX_AUTHORIZATION]);

/* ---- who checks ---- */

typedef struct fth_keys fth_keys;

/* Reads key lines; `origin` names them in errors, which never quote them. At least one key. */
fth_status fth_keys_parse(const char *text, const char *origin, fth_keys **keys);
/* Reads the text of keys: from `path` (refused if others than its owner can read it) or, if that is
 * NULL or "", the environment. *text is NULL if there are none. free() it. */
fth_status fth_keys_read(const char *path, char **text);
void fth_keys_free(fth_keys *keys);
/* Keeps the signatures that were used in the files `path` and `path`.older, so that the next
 * process refuses them too. Call it before the first check. */
fth_status fth_keys_keep(fth_keys *keys, const char *path);

typedef enum fth_signature_result {
    FTH_SIGNATURE_GOOD,
    FTH_SIGNATURE_MISSING, /* no Authorization header */
    FTH_SIGNATURE_MALFORMED,
    FTH_SIGNATURE_WRONG, /* no such key, or another secret, target or body hash: not said which */
    FTH_SIGNATURE_OLD,   /* the time is too far in the past */
    FTH_SIGNATURE_FUTURE,
    FTH_SIGNATURE_REPLAYED,
    FTH_SIGNATURE_FULL,   /* more requests than are remembered: to be tried again */
    FTH_SIGNATURE_RESULTS /* how many there are */
} fth_signature_result;
const char *fth_signature_result_name(fth_signature_result result); /* "missing", ...: for metrics and answers */

typedef struct fth_signed {
    char access[FTH_MAX_ACCESS_KEY + 1];
    fth_role role;
    char data[FTH_MAX_KEY_DATA + 1]; /* names of data sets, with commas between them; "": all */
    char body_sha256[65];            /* what the body must have */
    int64_t ahead_s;                 /* of this clock, where the time is too far from it; below 0: behind */
} fth_signed;

/* Checks a header (NULL: missing). With `once`, a signature is good one time only: for requests
 * that change something. Safe from any thread. */
fth_signature_result fth_keys_check(fth_keys *keys, const char *authorization, const char *method, const char *target,
                                    bool once, fth_signed *who);
/* True if the body has the hash. */
bool fth_signed_body_matches(const fth_signed *who, const void *body, uint64_t body_bytes);

/* True if the key (NULL: none is needed) is limited to some data sets. */
bool fth_signed_is_limited(const fth_signed *who);
/* True if the key is not limited to other data sets than `name`. */
bool fth_signed_may_read(const fth_signed *who, const char *name);

/* A new key: "ACCESS SECRET ROLE\n" with 160 and 256 random bits; with `data` (or NULL, "") limited
 * to those data sets. free() it. */
fth_status fth_keys_generate(fth_role role, const char *data, char **line);

/* For tests: seconds that a time may differ, and how many requests are remembered; 0 leaves
 * them. */
void fth_keys_set_limits(fth_keys *keys, double window_s, uint64_t remembered);
/* For tests: as if `seconds` had passed. Before another thread checks. */
void fth_keys_advance(fth_keys *keys, double seconds);

#endif
