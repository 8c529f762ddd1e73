/* Keeping pages in a browser out of a server that is not made for them.
 *
 * A page can send requests to any address that the browser reaches, this machine's loopback
 * included. It cannot hide that it does: the browser says so in Origin and Sec-Fetch-Site. Unless
 * its own name is made to point here (DNS rebinding): then it is the server's name, in Host, that
 * is not one of ours. Addresses cannot be made to point elsewhere, so any address will do. */
#ifndef FTH_HTTP_HOST_H
#define FTH_HTTP_HOST_H

#include "base/base.h"

typedef struct fth_hosts fth_hosts;

/* What a server answers to: addresses, localhost and names below it, this machine's name, `address`
 * (that it is bound to), those in `names` (with commas between them; or NULL), those of the
 * certificate (or NULL). */
fth_status fth_hosts_create(const char *address, const char *names, const char *certificate_pem, fth_hosts **hosts);
void fth_hosts_free(fth_hosts *hosts);
/* Whether the value of a Host header, "name:port", is one of them. NULL is: HTTP/1.0 needs no such
 * header, and every browser sends it. Safe from any thread. */
bool fth_hosts_know(const fth_hosts *hosts, const char *host);

/* True if the headers (or NULL) say that a page of another server asks. */
bool fth_origin_is_foreign(const char *origin, const char *fetch_site, const char *host);

#endif
