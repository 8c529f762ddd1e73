/* See access.h. */
#include "http/access.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"
#include "http/host.h"
#include "http/local_token.h"
#include "http/request_limit.h"
#include "http/server_internal.h"

struct fth_access {
    fth_keys *keys; /* or NULL */
    char *address;
    bool open;
    fth_local_token *token; /* without keys, unless open; made once the port is known */
    fth_keys *token_keys;
    fth_hosts *hosts;
    fth_rates *rates; /* or NULL */
    double max_requests_per_s;
    bool open_reads;
    atomic_uint_fast64_t signatures[FTH_SIGNATURE_RESULTS];
};

enum { MAX_MESSAGE = 512 };
static const char BEARER[] = "Bearer ";

__attribute__((format(printf, 3, 4))) static void refuse(fth_exchange *exchange, fth_access_refusal why,
                                                         const char *format, ...)
{
    static const int codes[] = {
        [FTH_ACCESS_FORBIDDEN] = 403, [FTH_ACCESS_UNSIGNED] = 401, [FTH_ACCESS_CLOCK] = 401, [FTH_ACCESS_BODY] = 401,
        [FTH_ACCESS_HOST] = 403,      [FTH_ACCESS_ORIGIN] = 403,   [FTH_ACCESS_BUSY] = 503,  [FTH_ACCESS_RATE] = 429};
    const fth_server_options *options = &exchange->server->options;
    char message[MAX_MESSAGE];
    va_list arguments;
    va_start(arguments, format);
    fth_printable_format(message, sizeof message, format, arguments); /* it may quote bytes that are not UTF-8 */
    va_end(arguments);
    options->refuse(options->context, exchange, why, codes[why], message);
}

static bool is_loopback(const char *address)
{
    return !address || !*address || strcmp(address, "localhost") == 0 || strncmp(address, "127.", 4) == 0 ||
           strcmp(address, "::1") == 0;
}

fth_status fth_access_create(const fth_access_options *options, fth_access **result)
{
    fth_status status = FTH_OK;
    fth_access *access = NULL;

    *result = NULL;
    FTH_REQUIRE(
        options->keys || is_loopback(options->address), FTH_INVALID,
        "without keys only this machine can be served: address %s needs --keys FILE (`farthing keys` makes one)",
        options->address);
    FTH_TRY(fth_allocate(1, sizeof *access, &access));
    access->max_requests_per_s = options->max_requests_per_s;
    access->open_reads = options->open_reads;
    access->open = options->open;
    if (options->keys)
        FTH_TRY(fth_keys_parse(options->keys, "the keys", &access->keys));
    access->address = fth_format("%s", options->address && *options->address ? options->address : "127.0.0.1");
    FTH_REQUIRE(access->address, FTH_NO_MEMORY, "no memory for an address");
    if (options->port > 0) /* clients that wait for the server find its token before they find the server */
        FTH_TRY(fth_access_set_port(access, options->port));
    FTH_TRY(fth_hosts_create(options->address, options->host_names, options->certificate_pem, &access->hosts));
    if (options->max_requests_per_s > 0)
        FTH_TRY(fth_rates_create(options->max_requests_per_s, &access->rates));
    *result = access;
    access = NULL;

out:
    fth_access_free(access);
    return status;
}

void fth_access_free(fth_access *access)
{
    if (!access)
        return;
    fth_keys_free(access->keys);
    fth_keys_free(access->token_keys);
    fth_local_token_free(access->token);
    free(access->address);
    fth_hosts_free(access->hosts);
    fth_rates_free(access->rates);
    free(access);
}

bool fth_access_keyed(const fth_access *access)
{
    return access->keys != NULL;
}

fth_status fth_access_set_port(fth_access *access, int port)
{
    fth_status status = FTH_OK;
    fth_keys *keys = NULL;
    char *line = NULL;

    if (access->keys || access->open || access->token)
        return FTH_OK;
    FTH_TRY(fth_local_token_create(access->address, port, &access->token));
    line = fth_format(FTH_LOCAL_ACCESS_KEY " %s admin", fth_local_token_secret(access->token));
    FTH_REQUIRE(line, FTH_NO_MEMORY, "no memory for a token");
    FTH_TRY(fth_keys_parse(line, "the token", &keys));
    access->token_keys = keys;

out:
    fth_wipe_text(line);
    return status;
}

fth_status fth_access_remember(fth_access *access, const char *folder)
{
    if (!access->keys)
        return FTH_OK;
    char *path = fth_path_join(folder, "nonces");
    fth_status status = fth_keys_keep(access->keys, path);
    free(path);
    return status;
}

/* What a caller may do who signs nothing. */
static fth_role unsigned_role(const fth_access *access)
{
    if (access->open && !access->keys)
        return FTH_ROLE_ADMIN;
    return access->open_reads ? FTH_ROLE_READ : FTH_ROLE_NONE;
}

/* A request that nobody signed, by the name that it is for. What is open to everybody on a server
 * with keys is asked for under whatever name a monitor or a load balancer knows. */
static bool check_host(const fth_access *access, fth_exchange *exchange, const fth_route *route)
{
    const char *host = fth_exchange_header(exchange, "Host");
    if ((access->keys && route->role == FTH_ROLE_NONE) || fth_hosts_know(access->hosts, host))
        return true;
    refuse(exchange, FTH_ACCESS_HOST,
           "\"%.100s\" is not a name of this server; if it is meant to be, start it with --host-name", host);
    return false;
}

static bool check_origin(fth_exchange *exchange)
{
    const char *origin = fth_exchange_header(exchange, "Origin");
    if (!fth_exchange_is_cross_origin(exchange))
        return true;
    refuse(exchange, FTH_ACCESS_ORIGIN, "a page in a browser asks (Origin: %.100s); this server is for programs",
           origin ? origin : "not said");
    return false;
}

static void refuse_signature(fth_exchange *exchange, fth_signature_result result, const fth_signed *who, bool has_keys)
{
    bool ahead = who->ahead_s > 0;
    if (result == FTH_SIGNATURE_FULL) {
        refuse(exchange, FTH_ACCESS_BUSY, "too many signed requests; try again later");
    } else if (result == FTH_SIGNATURE_OLD || result == FTH_SIGNATURE_FUTURE) {
        refuse(exchange, FTH_ACCESS_CLOCK,
               "the time of the request lies %" PRId64 " s in the %s of the server's clock; "
               "check the clocks of both machines",
               ahead ? who->ahead_s : -who->ahead_s, ahead ? "future" : "past");
    } else {
        fth_exchange_set_header(exchange, "WWW-Authenticate", has_keys ? "FTH1" : "Bearer");
        if (result == FTH_SIGNATURE_MISSING && !has_keys)
            refuse(exchange, FTH_ACCESS_UNSIGNED,
                   "the token is missing: without --keys or --unsigned the server answers the user that runs it "
                   "(`farthing token`)");
        else
            refuse(exchange, FTH_ACCESS_UNSIGNED, "the signature is %s", fth_signature_result_name(result));
    }
}

/* The token itself, as curl sends it. */
static bool admit_token(const fth_access *access, fth_exchange *exchange, const char *token, fth_role *role)
{
    const char *secret = fth_local_token_secret(access->token);
    if (strlen(token) != strlen(secret) || CRYPTO_memcmp(token, secret, strlen(secret)) != 0) {
        fth_exchange_set_header(exchange, "WWW-Authenticate", "Bearer");
        refuse(exchange, FTH_ACCESS_UNSIGNED, "the token is not the one of this server (`farthing token`)");
        return false;
    }
    *role = FTH_ROLE_ADMIN;
    fth_exchange_set_authenticated(exchange);
    return true;
}

bool fth_access_admit(fth_access *access, fth_exchange *exchange, fth_role *role)
{
    const fth_route *route = exchange->route;
    const char *method = fth_exchange_method(exchange);
    const char *header = fth_exchange_header(exchange, "Authorization");
    bool changes = strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0;

    if (access->rates && !fth_rates_allow(access->rates, fth_exchange_client(exchange))) {
        refuse(exchange, FTH_ACCESS_RATE, "more than %g requests a second", access->max_requests_per_s);
        return false;
    }
    if (!check_origin(exchange))
        return false;
    *role = unsigned_role(access);
    if ((access->open && !access->keys) || (route->role <= *role && !header))
        return check_host(access, exchange, route);
    fth_keys *keys = access->keys ? access->keys : access->token_keys;
    if (!access->keys && header && strncmp(header, BEARER, strlen(BEARER)) == 0)
        return admit_token(access, exchange, header + strlen(BEARER), role);
    fth_signed *who = calloc(1, sizeof *who);
    if (!who)
        return false;
    fth_signature_result result = fth_keys_check(keys, header, method, fth_exchange_target(exchange), changes, who);
    atomic_fetch_add(&access->signatures[result], 1);
    if (result == FTH_SIGNATURE_GOOD) {
        *role = who->role;
        if (!access->keys)
            *who->access = '\0'; /* the user's own: it has no name */
        fth_exchange_set_authenticated(exchange);
        fth_exchange_set_data(exchange, who, free);
        return true;
    }
    refuse_signature(exchange, result, who, access->keys != NULL);
    free(who);
    return false;
}

void fth_access_forbid(fth_exchange *exchange, fth_role role)
{
    refuse(exchange, FTH_ACCESS_FORBIDDEN, "this key's role is %s; %s is needed", fth_role_name(role),
           fth_role_name(exchange->route->role));
}

const fth_signed *fth_access_signer(const fth_exchange *exchange)
{
    const fth_signed *who = fth_exchange_get_data(exchange);
    return who && *who->access ? who : NULL;
}

bool fth_access_check_body(fth_exchange *exchange)
{
    const fth_access *access = exchange->server->options.access;
    const fth_signed *who = fth_exchange_get_data(exchange);
    size_t size = 0;
    const void *body = fth_exchange_body(exchange, &size);
    if (!access || (who ? fth_signed_body_matches(who, body, size) : !access->keys))
        return true;
    refuse(exchange, FTH_ACCESS_BODY, "the body is not the one that was signed");
    return false;
}

uint64_t fth_access_count_signatures(const fth_access *access, fth_signature_result result)
{
    return atomic_load(&access->signatures[result]);
}
