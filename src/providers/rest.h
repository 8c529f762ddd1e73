/* One request of a platform's REST API with its retries, over connections that are kept. Any
 * thread. */
#ifndef FTH_PROVIDERS_REST_H
#define FTH_PROVIDERS_REST_H

#include <jansson.h>

#include "http/http.h"
#include "providers/provider.h"
#include "store/sigv4.h"

typedef struct fth_rest fth_rest;

typedef struct fth_rest_call {
    const char *what;   /* "invoke mnist": begins messages */
    const char *method; /* "GET", ... */
    const char *path;   /* escaped, from the base on: "/functions/mnist" */
    const fth_pair *query;
    int query_count;
    const fth_pair *headers; /* names in small letters */
    int header_count;
    const void *body;
    size_t body_bytes;
    bool once;             /* never sent again if the server may have acted on it, whatever it answered */
    bool slow;             /* the answer may take until the deadline */
    fth_deadline deadline; /* of all tries; at_seconds 0: in a minute */

    bool uncertain; /* set by fth_rest_send(): a try before the last may have had its effect */
} fth_rest_call;

typedef struct fth_rest_options {
    const char *platform; /* "OpenWhisk", for messages */
    const char *base;     /* "https://host[:port]", and perhaps a path */
    const char *advice;   /* where nobody answers: "is --host right?" */
    const char *ca_file;  /* NULL: the system's certificates */
    bool insecure;
    const fth_stop *stop; /* may be NULL */
    /* Header lines of one try, who asks among them, NULL at the end; freed with
     * fth_sigv4_free_lines(). */
    fth_status (*authorize)(void *context, const fth_rest_call *call, char ***lines);
    void *context;
} fth_rest_options;

fth_status fth_rest_open(const fth_rest_options *options, fth_rest **rest);
void fth_rest_free(fth_rest *rest);

/* Sends it until there is an answer that counts: any code is FTH_OK. FTH_INTERRUPTED: stopped;
 * FTH_PEER_LOST: it was sent and no answer came, so that the server may have acted; FTH_IO: it was
 * not sent, or could be tried again and did not succeed in time. */
fth_status fth_rest_send(fth_rest *rest, fth_rest_call *call, fth_http_response *response);

/* The answer as a JSON object or array; FTH_CORRUPT, naming the server, if it is neither. */
fth_status fth_rest_parse(const fth_rest *rest, const fth_rest_call *call, const fth_http_response *response,
                          json_t **json);
/* FTH_INVALID for an answer that refuses: its code, what the server says, and what to do. A code
 * below 300 is FTH_OK. `keys_advice` is for 401 and 403. */
fth_status fth_rest_check(const fth_rest *rest, const fth_rest_call *call, const fth_http_response *response,
                          const char *keys_advice);
/* Reads an answer to an invocation that was not accepted: THROTTLED (429, 503), or UNKNOWN (408 and
 * 5xx, perhaps of a gateway in front of a running function). False: neither. */
bool fth_rest_read_refusal(const fth_rest *rest, const fth_rest_call *call, const fth_http_response *response,
                           fth_invocation_outcome *outcome);
/* What a server's error says: "error", "message", "Message", "errorMessage"; or NULL. free() it. */
char *fth_rest_reason(const fth_http_response *response);
/* Seconds of Retry-After, at most 300; 0: not said. */
double fth_rest_retry_after_s(const fth_http_response *response);
/* "https://host" for messages. */
const char *fth_rest_server(const fth_rest *rest);

/* Sleeps before the next try; false where the deadline leaves no room for it or a stop was asked
 * for. */
bool fth_rest_pause(const fth_rest *rest, fth_backoff *backoff, double at_least_s, fth_deadline deadline);
bool fth_rest_is_stopped(const fth_rest *rest);

#endif
