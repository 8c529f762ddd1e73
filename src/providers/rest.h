/* One request to a platform's REST API with its retries, over persistent connections. Any thread.
 * */
#ifndef FTH_PROVIDERS_REST_H
#define FTH_PROVIDERS_REST_H

#include <jansson.h>

#include "http/http.h"
#include "providers/provider.h"
#include "store/sigv4.h"

typedef struct fth_rest fth_rest;

typedef struct fth_rest_call {
    const char *what;   /* "invoke mnist": starts messages */
    const char *method; /* "GET", ... */
    const char *path;   /* escaped, relative to the base: "/functions/mnist" */
    const fth_pair *query;
    int query_count;
    const fth_pair *headers; /* names in lower case */
    int header_count;
    const void *body;
    size_t body_bytes;
    bool once;             /* not repeated if the server may have acted on it, whatever it answered */
    bool slow;             /* the answer may take until the deadline */
    fth_deadline deadline; /* of all tries; at_seconds 0: in a minute */

    bool uncertain; /* set by fth_rest_send(): an earlier try may have had its effect */
} fth_rest_call;

typedef struct fth_rest_options {
    const char *platform; /* "OpenWhisk", for messages */
    const char *base;     /* "https://host[:port]", and perhaps a path */
    const char *advice;   /* if nothing answers: "is --host right?" */
    const char *ca_file;  /* NULL: the system's certificates */
    bool insecure;
    const fth_stop *stop; /* may be NULL */
    /* The header lines of one try, including the authorization, NULL-terminated; freed with
     * fth_sigv4_free_lines(). */
    fth_status (*authorize)(void *context, const fth_rest_call *call, char ***lines);
    void *context;
} fth_rest_options;

fth_status fth_rest_open(const fth_rest_options *options, fth_rest **rest);
void fth_rest_free(fth_rest *rest);

/* Sends the request until there is a final answer; any code is FTH_OK. FTH_INTERRUPTED: stopped.
 * FTH_PEER_LOST: sent without an answer, so the server may have acted. FTH_IO: not sent, or retried
 * without success in time. */
fth_status fth_rest_send(fth_rest *rest, fth_rest_call *call, fth_http_response *response);

/* Parses the answer as a JSON object or array; else FTH_CORRUPT, naming the server. */
fth_status fth_rest_parse(const fth_rest *rest, const fth_rest_call *call, const fth_http_response *response,
                          json_t **json);
/* FTH_OK for 2xx. Else FTH_INVALID with the code, the server's reason and advice; `keys_advice` is
 * for 401 and 403. */
fth_status fth_rest_check(const fth_rest *rest, const fth_rest_call *call, const fth_http_response *response,
                          const char *keys_advice);
/* Reads an answer to an invocation that was not accepted: THROTTLED (429, 503), or UNKNOWN (408 and
 * 5xx, perhaps of a gateway in front of a running function). False: neither. */
bool fth_rest_read_refusal(const fth_rest *rest, const fth_rest_call *call, const fth_http_response *response,
                           fth_invocation_outcome *outcome);
/* The text of a server's error: "error", "message", "Message" or "errorMessage"; or NULL. free()
 * it. */
char *fth_rest_reason(const fth_http_response *response);
/* Seconds of Retry-After, at most 300; 0: not given. */
double fth_rest_retry_after_s(const fth_http_response *response);
/* "https://host" for messages. */
const char *fth_rest_server(const fth_rest *rest);

/* Sleeps before the next try; false if there is no time before the deadline, or a stop was asked
 * for. */
bool fth_rest_pause(const fth_rest *rest, fth_backoff *backoff, double at_least_s, fth_deadline deadline);
bool fth_rest_is_stopped(const fth_rest *rest);

#endif
