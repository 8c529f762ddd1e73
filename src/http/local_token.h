/* The token of a server without keys, which serves the user who started it and nobody else on the
 * machine.
 *
 * The server keeps it, while it runs, in a file that only its user can read:
 * /tmp/farthing-UID/token-PORT-HASH, or in $XDG_RUNTIME_DIR/farthing where that is not possible.
 * The hash is of the address and the network namespace. The file is one line, "Authorization:
 * Bearer SECRET": a header for curl. farthing's clients find the file and use the secret as a key
 * that signs (signature.h), and connect to the address of the file alone: another user may listen
 * at the same port of another address of the loopback, and pass on what is signed. The server holds
 * a lock (flock) on the file: what a killed server has left is not locked, and not used. */
#ifndef FTH_HTTP_LOCAL_TOKEN_H
#define FTH_HTTP_LOCAL_TOKEN_H

#include "http/signature.h"

#define FTH_LOCAL_ACCESS_KEY "local" /* what clients sign as */
enum { FTH_LOCAL_SECRET = 64 };

typedef struct fth_local_token fth_local_token;

/* Makes the token of the server at `address` (a name or number of the loopback) and `port`. FTH_IO
 * if another server has these; FTH_INVALID if there is no folder that only this user can enter. */
fth_status fth_local_token_create(const char *address, int port, fth_local_token **token);
const char *fth_local_token_secret(const fth_local_token *token);
void fth_local_token_free(fth_local_token *token); /* removes the file */

/* The token of the server that runs at `url`, and its address; false if the URL is not of the
 * loopback, or no server of this user is there. */
bool fth_local_token_find(const char *url, char secret[FTH_LOCAL_SECRET + 1], char address[FTH_MAX_LOCAL_ADDRESS + 1]);

/* What requests to `url` are signed with: the token of this user's server there, or else the key in
 * the environment. They go to the address signer->local. To be called for each request, since a
 * server that is restarted has another token. */
fth_status fth_signer_find(const char *url, fth_signer *signer, bool *found);

#endif
