/* HTTP: downloads, a client for everything else, and a server.
 *
 * download.c    large files, resumed where they were interrupted
 * client.c      one request at a time over kept connections (libcurl)
 * server.c      a table of routes over libmicrohttpd
 * tls.c         certificates made here and pinned by fingerprint
 * signature.c   access-key signatures on requests, both sides */
#ifndef FTH_HTTP_HTTP_H
#define FTH_HTTP_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

/* ---- downloads ---- */

typedef struct fth_download {
    const char *url;            /* https:// or http:// */
    const char *sha256;         /* 64 hex digits that the file must have; NULL: unknown */
    const char *path;           /* where the file is published once it is whole */
    uint64_t max_bytes;         /* a larger file is an error; 0: what the disk holds */
    double connect_s;           /* give up connecting after this long; 0: 30 */
    double stall_s;             /* give up on a transfer that brought nothing for this long; 0: 60 */
    double total_s;             /* give up after this long in all; 0: a day */
    const fth_stop *stop;       /* asked: FTH_INTERRUPTED; a later call goes on from there. May be NULL */
    const char *refused_advice; /* ends the message where the server lets nobody in; NULL: none */
} fth_download;

/* Downloads into `path`.part and renames that to `path` when it is whole and its checksum, where
 * one is given, is right. An interrupted transfer is resumed where it stopped, now or by a later
 * call, if the server can do that and says that the file is still the same one. Waits while another
 * process downloads the same file. TLS certificates are checked; proxies come
 * from the environment, as curl takes them. `sha256` gets the checksum. */
fth_status fth_http_download(const fth_download *download, char sha256[65]);

/* ---- client ---- */

/* One at a time per thread; connections are kept and reused. */
typedef struct fth_http_client fth_http_client;

/* For URLs that another chose. */
typedef enum fth_http_reach {
    FTH_HTTP_ANYWHERE,
    FTH_HTTP_NO_METADATA, /* neither link-local addresses nor clouds' metadata services */
    FTH_HTTP_ELSEWHERE    /* nor this machine */
} fth_http_reach;

typedef struct fth_http_client_options {
    const char *ca_file;     /* NULL: $SSL_CERT_FILE, or the system's certificates */
    const char *pinned_key;  /* "sha256//..." of the server's public key: trusts that key and no other; NULL: none */
    const char *unix_socket; /* NULL: TCP */
    bool no_proxy;           /* metadata services: never through a proxy */
    bool insecure;           /* any certificate will do: an attacker in between can read and answer */
    bool attentive;          /* `progress` is called every 50 ms, also when nothing moves: long polls end quickly */
    fth_http_reach reach;    /* what it may connect to, whatever a name resolves to. Refused: FTH_INVALID */
} fth_http_client_options;

fth_status fth_http_client_open(const fth_http_client_options *options,
                                fth_http_client **client); /* options: or NULL */
void fth_http_client_free(fth_http_client *client);

typedef struct fth_http_request {
    const char *method; /* "GET", "PUT", "POST", "DELETE", "HEAD" */
    const char *url;
    const char *const *headers; /* "Name: value", ends with NULL; may be NULL */
    const void *body;           /* sent with its length; may be NULL */
    uint64_t body_bytes;
    const char *address; /* to connect to this one, without a proxy; NULL, "": what the URL's host is resolved to */

    /* Where the answer's body goes: into `into` (room for `into_bytes`, more is FTH_INVALID), else
     * into memory of the response, at most `max_body_bytes` (0: 16 MiB). An answer that is an error
     * (code >= 400) always goes into the response's own memory. */
    void *into;
    uint64_t into_bytes;
    uint64_t max_body_bytes;
    /* Instead of `into`: called with the bytes as they come, in order, `into_bytes` in all at most.
     * A failure ends the request and is its status. */
    fth_status (*sink)(void *context, uint64_t offset, const void *bytes, size_t size_bytes);
    void *sink_context;

    double connect_s;      /* 0: 10 */
    double stall_s;        /* gives up when fewer than 1 KB/s came or went for this long; 0: 30 */
    fth_deadline deadline; /* of the whole request; at_seconds 0: 300 s from now */
    /* Called now and then with bytes sent and received so far; non-zero ends the request. May be
     * NULL. */
    int (*progress)(void *context, uint64_t sent_bytes, uint64_t received_bytes);
    void *progress_context;
} fth_http_request;

/* How far a request came that got no answer. */
typedef enum fth_http_failure {
    FTH_HTTP_UNRESOLVED = 1, /* the server's name is not known */
    FTH_HTTP_UNREACHED,      /* no connection */
    FTH_HTTP_NO_ANSWER,      /* a connection, and no whole answer in time */
    FTH_HTTP_NOT_HTTP        /* an answer, but not of an HTTP server */
} fth_http_failure;

typedef struct fth_http_response {
    fth_http_failure failure; /* where fth_http_perform() fails for such a reason; else 0 */
    int code;                 /* 200, 404, ... */
    char *body;               /* a NUL follows; or NULL when it went to `into` */
    uint64_t body_bytes;
    char *headers; /* as received, for fth_http_header() */
} fth_http_response;

/* Performs one request; any answer is FTH_OK, also 404 or 500. FTH_TIMEOUT: the deadline passed,
 * and the server may or may not have acted; FTH_PEER_LOST: could not connect, or the connection
 * broke (the answer was not whole). Does not retry: who calls knows what may be repeated. Redirects
 * are not followed. */
fth_status fth_http_perform(fth_http_client *client, const fth_http_request *request, fth_http_response *response);
void fth_http_response_release(fth_http_response *response);
/* The value of a header of the answer in fresh memory, or NULL; free() it. */
char *fth_http_header(const fth_http_response *response, const char *name);

/* True if the URL's host is localhost or an address of the loopback. */
bool fth_http_is_loopback(const char *url);
/* The same; then `host` is without brackets, and *port the scheme's where the URL has none. */
bool fth_http_find_loopback(const char *url, char *host, size_t size, int *port);
/* A URL for messages: its public form (base/address.h), and no query at all. free() it. */
char *fth_http_harmless_url(const char *url);
/* Percent-encodes for URLs; '/' stays where `keep_slashes`. free() it. */
char *fth_http_escape(const char *text, bool keep_slashes);
/* The other way; what is no escape stays as it is, and so does %00. free() it. */
char *fth_http_unescape(const char *text);

/* ---- retries ---- */

/* Waits between tries: doubling from `first_s` up to `most_s`, each drawn at random from its upper
 * half; never beyond `deadline` and not after a stop. */
typedef struct fth_backoff {
    double first_s, most_s; /* 0: 0.1 and 10 */
    int tries;              /* so far */
} fth_backoff;
/* How long to wait before the next try, at least `at_least_s`, for those who wait in a way of their
 * own. */
double fth_backoff_next_s(fth_backoff *backoff, double at_least_s);
/* Sleeps before the next try; false when the deadline leaves no room for it. */
bool fth_backoff_wait(fth_backoff *backoff, double at_least_s, fth_deadline deadline);

#endif
