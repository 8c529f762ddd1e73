/* Which addresses a client may connect to where another chose the URL. A name is checked by what it
 * resolves to. */
#ifndef FTH_HTTP_REACH_H
#define FTH_HTTP_REACH_H

#include <sys/socket.h>

#include "http/http.h"

bool fth_http_reach_allows(fth_http_reach reach, const struct sockaddr *address);

/* The same for a URL whose host is an address in any of its notations; true for a name. */
bool fth_http_reach_allows_url(fth_http_reach reach, const char *url);

#endif
