/* The table of routes at work: which route a request has, whether its caller may use it, and how
 * often which route answered what. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/server_internal.h"

/* Counted by themselves; all others, and clients that left before an answer, count as 0. */
static const int counted_codes[FTH_COUNTED_CODES] = {0,   200, 201, 202, 206, 304, 400, 401, 403,
                                                     404, 405, 409, 413, 416, 429, 500, 503};

fth_status fth_routes_check(const fth_server_options *options)
{
    for (const fth_route *route = options->routes; route->method; route++) {
        if (route->role != FTH_ROLE_NONE && !options->admit && !options->access)
            return fth_fail(FTH_INVALID, "%s %s needs the role %s, and this server does not know its callers",
                            route->method, route->path, fth_role_name(route->role));
        if (route->max_body_bytes == FTH_SERVER_BODY && options->max_body_bytes == 0)
            return fth_fail(FTH_INVALID, "%s %s takes a body, and this server has no limit for it", route->method,
                            route->path);
    }
    return FTH_OK;
}

static bool path_matches(const fth_route *route, const char *path)
{
    size_t length = strlen(route->path);
    if (length > 0 && route->path[length - 1] == '*')
        return strncmp(route->path, path, length - 1) == 0;
    return strcmp(route->path, path) == 0;
}

/* Sets the exchange's route, or refuses. */
static bool find_route(fth_exchange *exchange)
{
    const char *method = strcmp(exchange->method, "HEAD") == 0 ? "GET" : exchange->method;
    char allowed[64] = "";
    for (const fth_route *route = exchange->server->options.routes; route->method; route++) {
        if (!path_matches(route, exchange->path))
            continue;
        if (!exchange->counted_route)
            exchange->counted_route = route;
        if (strcmp(route->method, method) == 0) {
            exchange->route = exchange->counted_route = route;
            return true;
        }
        size_t used = strlen(allowed);
        snprintf(allowed + used, sizeof allowed - used, "%s%s", used ? ", " : "", route->method);
    }
    if (*allowed) {
        fth_exchange_set_header(exchange, "Allow", allowed);
        fth_exchange_refuse(exchange, 405, "%s takes %s, not %.32s", exchange->path, allowed, exchange->method);
    } else {
        fth_exchange_refuse(exchange, 404, "there is no %.128s here", exchange->path);
    }
    return false;
}

/* Sets the caller's role, or refuses. */
static bool identify(fth_exchange *exchange, fth_role *role)
{
    const fth_server_options *options = &exchange->server->options;
    *role = FTH_ROLE_NONE;
    if (options->access)
        return fth_access_admit(options->access, exchange, role);
    return !options->admit || options->admit(options->context, exchange, exchange->route, role);
}

bool fth_routes_admit(fth_exchange *exchange)
{
    fth_role role;

    if (!find_route(exchange))
        return false;
    bool admitted = identify(exchange, &role);
    if (exchange->answered)
        return false;
    if (!admitted)
        fth_exchange_refuse(exchange, 403, "not allowed");
    else if (role >= exchange->route->role)
        return true;
    else if (exchange->server->options.access)
        fth_access_forbid(exchange, role);
    else
        fth_exchange_refuse(exchange, 403, "the role %s is needed here", fth_role_name(exchange->route->role));
    return false;
}

uint64_t fth_routes_body_limit(const fth_exchange *exchange)
{
    uint64_t limit = exchange->route->max_body_bytes;
    return limit == FTH_SERVER_BODY ? exchange->server->options.max_body_bytes : limit;
}

/* ---- counts ---- */

static size_t count_routes(const fth_route *routes)
{
    size_t count = 0;
    while (routes[count].method)
        count++;
    return count;
}

static const char *metric_of(const fth_route *route)
{
    return route->metric ? route->metric : route->path;
}

/* The row of a metric's counts: that of the first route that has it. */
static size_t row_of(const fth_server *server, const fth_route *route)
{
    const fth_route *routes = server->options.routes;
    if (!route)
        return count_routes(routes);
    size_t row = 0;
    while (strcmp(metric_of(&routes[row]), metric_of(route)) != 0)
        row++;
    return row;
}

fth_status fth_routes_begin_counting(fth_server *server)
{
    return fth_allocate(count_routes(server->options.routes) + 1, sizeof *server->counts, &server->counts);
}

void fth_routes_count(fth_exchange *exchange)
{
    int code = exchange->answered ? exchange->answer.code : 0, column = FTH_COUNTED_CODES - 1;
    while (column > 0 && counted_codes[column] != code)
        column--;
    atomic_fetch_add(&exchange->server->counts[row_of(exchange->server, exchange->counted_route)][column], 1);
}

void fth_server_visit_counts(const fth_server *server,
                             void (*visit)(void *context, const char *metric, int code, uint64_t count), void *context)
{
    const fth_route *routes = server->options.routes;
    size_t rows = count_routes(routes) + 1;
    for (size_t row = 0; row < rows; row++) {
        for (int column = 0; column < FTH_COUNTED_CODES; column++) {
            uint64_t count = atomic_load(&server->counts[row][column]);
            if (count > 0)
                visit(context, row < rows - 1 ? metric_of(&routes[row]) : "other", counted_codes[column], count);
        }
    }
}
