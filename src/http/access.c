/* See access.h. */
#include "http/access.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"
#include "http/host.h"
#include "http/request_limit.h"

struct fth_access {
    fth_keys *keys; /* or NULL */
    fth_hosts *hosts;
    fth_rates *rates; /* or NULL */
    double max_requests_per_s;
    bool open_reads;
    atomic_uint_fast64_t signatures[FTH_SIGNATURE_RESULTS];
};

enum { MAX_MESSAGE = 512 };

__attribute__((format(printf, 4, 5))) static void refuse(const fth_refuser *refuser, fth_exchange *exchange,
                                                         fth_access_refusal why, const char *format, ...)
{
    char message[MAX_MESSAGE];
    va_list arguments;
    va_start(arguments, format);
    fth_printable_format(message, sizeof message, format, arguments); /* it may quote what is not UTF-8 */
    va_end(arguments);
    refuser->refuse(refuser->context, exchange, why, message);
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
    if (options->keys)
        FTH_TRY(fth_keys_parse(options->keys, "the keys", &access->keys));
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
    fth_hosts_free(access->hosts);
    fth_rates_free(access->rates);
    free(access);
}

bool fth_access_keyed(const fth_access *access)
{
    return access->keys != NULL;
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
    if (!access->keys)
        return FTH_ROLE_ADMIN;
    return access->open_reads ? FTH_ROLE_READ : FTH_ROLE_NONE;
}

/* A request that nobody signed, by the name that it is for. What is open to everybody on a server with keys is asked
 * for under whatever name a monitor or a load balancer knows. */
static bool check_host(const fth_access *access, const fth_refuser *refuser, fth_exchange *exchange,
                       const fth_route *route)
{
    const char *host = fth_exchange_header(exchange, "Host");
    if ((access->keys && route->role == FTH_ROLE_NONE) || fth_hosts_know(access->hosts, host))
        return true;
    refuse(refuser, exchange, FTH_ACCESS_HOST,
           "\"%.100s\" is not a name of this server; if it is meant to be, start it with --host-name", host);
    return false;
}

static bool check_origin(const fth_refuser *refuser, fth_exchange *exchange)
{
    const char *origin = fth_exchange_header(exchange, "Origin");
    if (!fth_origin_is_foreign(origin, fth_exchange_header(exchange, "Sec-Fetch-Site"),
                               fth_exchange_header(exchange, "Host")))
        return true;
    refuse(refuser, exchange, FTH_ACCESS_ORIGIN,
           "a page in a browser asks (Origin: %.100s); this server is for programs", origin ? origin : "not said");
    return false;
}

static void refuse_signature(const fth_refuser *refuser, fth_exchange *exchange, fth_signature_result result,
                             const fth_signed *who)
{
    bool ahead = who->ahead_s > 0;
    if (result == FTH_SIGNATURE_FULL) {
        refuse(refuser, exchange, FTH_ACCESS_BUSY, "too many signed requests; try again later");
    } else if (result == FTH_SIGNATURE_OLD || result == FTH_SIGNATURE_FUTURE) {
        refuse(refuser, exchange, FTH_ACCESS_CLOCK,
               "the time of the request lies %" PRId64 " s in the %s of the server's clock; "
               "check the clocks of both machines",
               ahead ? who->ahead_s : -who->ahead_s, ahead ? "future" : "past");
    } else {
        fth_exchange_set_header(exchange, "WWW-Authenticate", "FTH1");
        refuse(refuser, exchange, FTH_ACCESS_UNSIGNED, "the signature is %s", fth_signature_result_name(result));
    }
}

bool fth_access_admit(fth_access *access, const fth_refuser *refuser, fth_exchange *exchange, const fth_route *route,
                      fth_role *role)
{
    const char *method = fth_exchange_method(exchange);
    const char *header = fth_exchange_header(exchange, "Authorization");
    bool changes = strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0;

    if (access->rates && !fth_rates_allow(access->rates, fth_exchange_client(exchange))) {
        refuse(refuser, exchange, FTH_ACCESS_RATE, "more than %g requests a second", access->max_requests_per_s);
        return false;
    }
    if (!check_origin(refuser, exchange))
        return false;
    *role = unsigned_role(access);
    if (!access->keys || (route->role <= *role && !header))
        return check_host(access, refuser, exchange, route);
    fth_signed *who = calloc(1, sizeof *who);
    if (!who)
        return false;
    fth_signature_result result =
        fth_keys_check(access->keys, header, method, fth_exchange_target(exchange), changes, who);
    atomic_fetch_add(&access->signatures[result], 1);
    if (result == FTH_SIGNATURE_GOOD) {
        *role = who->role;
        fth_exchange_set_authenticated(exchange);
        fth_exchange_set_data(exchange, who, free);
        return true;
    }
    refuse_signature(refuser, exchange, result, who);
    free(who);
    return false;
}

void fth_access_forbid(const fth_refuser *refuser, fth_exchange *exchange, const fth_route *route, fth_role role)
{
    refuse(refuser, exchange, FTH_ACCESS_FORBIDDEN, "this key's role is %s; %s is needed", fth_role_name(role),
           fth_role_name(route->role));
}

const fth_signed *fth_access_signer(const fth_exchange *exchange)
{
    return fth_exchange_get_data(exchange);
}

bool fth_access_check_body(const fth_access *access, const fth_refuser *refuser, fth_exchange *exchange)
{
    const fth_signed *who = fth_access_signer(exchange);
    size_t size = 0;
    const void *body = fth_exchange_body(exchange, &size);
    if (!access->keys || (who && fth_signed_body_matches(who, body, size)))
        return true;
    refuse(refuser, exchange, FTH_ACCESS_BODY, "the body is not the one that was signed");
    return false;
}

uint64_t fth_access_count_signatures(const fth_access *access, fth_signature_result result)
{
    return atomic_load(&access->signatures[result]);
}
