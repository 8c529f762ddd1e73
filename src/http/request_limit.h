/* How many requests a second a client may make: a bucket for each address, in bounded memory. */
#ifndef FTH_HTTP_REQUEST_LIMIT_H
#define FTH_HTTP_REQUEST_LIMIT_H

#include "base/base.h"

typedef struct fth_rates fth_rates;

/* `per_s` on the average; twice that much at once. */
fth_status fth_rates_create(double per_s, fth_rates **rates);
void fth_rates_free(fth_rates *rates);
bool fth_rates_allow(fth_rates *rates, const char *client); /* safe from any thread */

#endif
