/* See http.h: one request at a time through a libcurl handle, whose connections stay open for the
 * next.
 *
 * Bodies are not copied more often than libcurl does: what is sent is read from the caller's
 * memory, and what comes goes into the caller's memory where there is a place for it. libcurl's own
 * buffers are large: at a gigabyte a second the number of calls is what costs. */
#include <arpa/inet.h>
#include <curl/curl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "http/http.h"
#include "http/http_internal.h"
#include "http/reach.h"

enum {
    DEFAULT_MAX_BODY = 16 << 20,
    MAX_HEADER_BYTES = 256 << 10,
    RECEIVE_BUFFER_BYTES = 512 << 10,
    SEND_BUFFER_BYTES = 256 << 10, /* more leaves the processor's cache, and arrives in lumps that cost a server more */
    SMALL_BODY_BYTES = 64 << 10,
    DEFAULT_DEADLINE_S = 300,
    SLOWEST_BYTES_PER_S = 1024,
    ATTENTIVE_MS = 50
};

struct fth_http_client {
    CURL *curl;
    CURLM *multi; /* of an attentive client: waits in short pieces */
    char *ca_file, *pinned_key, *unix_socket;
    bool no_proxy, insecure;
    fth_http_reach reach;
};

/* One request under way. */
typedef struct request_state {
    const fth_http_request *request;
    fth_http_response *response;
    CURL *curl;
    fth_http_reach reach;
    uint64_t sent_bytes;
    size_t body_room, header_bytes, header_room;
    bool into_callers; /* the body goes to request->into or ->sink; decided by the answer's code */
    bool decided;
    bool refused;      /* its server is one that the client must not connect to */
    fth_status status; /* of our own callbacks */
} request_state;

static void start_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

void fth_http_start_curl(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_curl);
}

fth_status fth_http_client_open(const fth_http_client_options *options, fth_http_client **result)
{
    fth_status status = FTH_OK;
    fth_http_client *client = NULL;

    *result = NULL;
    fth_http_start_curl();
    FTH_TRY(fth_allocate(1, sizeof *client, &client));
    client->curl = curl_easy_init();
    FTH_REQUIRE(client->curl, FTH_NO_MEMORY, "no memory for an HTTP client");
    if (options) {
        client->ca_file = options->ca_file ? strdup(options->ca_file) : NULL;
        client->pinned_key = options->pinned_key ? strdup(options->pinned_key) : NULL;
        client->unix_socket = options->unix_socket ? strdup(options->unix_socket) : NULL;
        client->no_proxy = options->no_proxy;
        client->insecure = options->insecure;
        client->reach = options->reach;
        client->multi = options->attentive ? curl_multi_init() : NULL;
        FTH_REQUIRE(client->multi || !options->attentive, FTH_NO_MEMORY, "no memory for an HTTP client");
    }
    *result = client;
    client = NULL;

out:
    fth_http_client_free(client);
    return status;
}

void fth_http_client_free(fth_http_client *client)
{
    if (!client)
        return;
    curl_easy_cleanup(client->curl);
    curl_multi_cleanup(client->multi);
    free(client->ca_file);
    free(client->pinned_key);
    free(client->unix_socket);
    free(client);
}

/* ---- what libcurl calls ---- */

static size_t give_body(char *buffer, size_t size, size_t count, void *context)
{
    request_state *state = context;
    size_t length = size * count;
    uint64_t left = state->request->body_bytes - state->sent_bytes;
    if (length > left)
        length = (size_t)left;
    if (length > 0)
        memcpy(buffer, (const char *)state->request->body + state->sent_bytes, length);
    state->sent_bytes += length;
    return length;
}

/* When a kept connection breaks before the answer, libcurl would send the body again on a fresh
 * one. The server may have acted on the first, so that is for the caller to decide: it hears that
 * the connection broke. */
static int refuse_rewind(void *context, curl_off_t offset, int origin)
{
    (void)context, (void)offset, (void)origin;
    return CURL_SEEKFUNC_FAIL;
}

static fth_status append(char **text, size_t *room, size_t used, const char *bytes, size_t length)
{
    if (used + length + 1 > *room) {
        size_t larger = *room * 2 > used + length + 1 ? *room * 2 : used + length + 1;
        char *moved = realloc(*text, larger);
        if (!moved)
            return fth_fail(FTH_NO_MEMORY, "no memory for an answer of %zu bytes", larger);
        *text = moved;
        *room = larger;
    }
    memcpy(*text + used, bytes, length);
    (*text)[used + length] = '\0';
    return FTH_OK;
}

static size_t take_header(char *line, size_t size, size_t count, void *context)
{
    request_state *state = context;
    size_t length = size * count;
    if (length >= 5 && memcmp(line, "HTTP/", 5) == 0) /* after "100 Continue" comes the real one */
        state->header_bytes = 0;
    if (state->header_bytes + length > MAX_HEADER_BYTES) {
        state->status = fth_fail(FTH_CORRUPT, "the headers of the answer are longer than %d bytes", MAX_HEADER_BYTES);
        return 0;
    }
    state->status = append(&state->response->headers, &state->header_room, state->header_bytes, line, length);
    if (state->status != FTH_OK)
        return 0;
    state->header_bytes += length;
    return length;
}

/* Chooses where the body goes, which depends on the code. If its length is known, memory for all of
 * it is allocated at once. */
static void begin_body(request_state *state, uint64_t most)
{
    long code = 0;
    curl_off_t length = -1;
    curl_easy_getinfo(state->curl, CURLINFO_RESPONSE_CODE, &code);
    curl_easy_getinfo(state->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    state->decided = true;
    state->into_callers = (state->request->into || state->request->sink) && code < 400;
    if (!state->into_callers && length > 0 && (uint64_t)length <= most) {
        state->response->body = malloc((size_t)length + 1);
        if (state->response->body)
            state->body_room = (size_t)length + 1;
    }
}

static size_t take_body(char *bytes, size_t size, size_t count, void *context)
{
    request_state *state = context;
    const fth_http_request *request = state->request;
    fth_http_response *response = state->response;
    size_t length = size * count;
    uint64_t most = request->max_body_bytes ? request->max_body_bytes : DEFAULT_MAX_BODY;
    if (!state->decided)
        begin_body(state, most);
    if (state->into_callers)
        most = request->into_bytes;
    if (length > most - response->body_bytes) {
        state->status =
            fth_fail(FTH_INVALID, "the answer is larger than the %" PRIu64 " bytes that were expected", most);
        return 0;
    }
    if (state->into_callers && request->sink)
        state->status = request->sink(request->sink_context, response->body_bytes, bytes, length);
    else if (state->into_callers)
        memcpy((char *)request->into + response->body_bytes, bytes, length);
    else
        state->status = append(&response->body, &state->body_room, (size_t)response->body_bytes, bytes, length);
    if (state->status != FTH_OK)
        return 0;
    response->body_bytes += length;
    return length;
}

static int watch(void *context, curl_off_t to_come, curl_off_t received, curl_off_t to_go, curl_off_t sent)
{
    (void)to_come, (void)to_go;
    request_state *state = context;
    return state->request->progress(state->request->progress_context, (uint64_t)sent, (uint64_t)received);
}

/* ---- a request ---- */

/* ---- addresses ---- */

static const char refused[] = "refused: it leads to this machine itself, to its link, or to a cloud's metadata service";

/* Names have been resolved here, so that no name leads around it. */
static curl_socket_t open_allowed(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    request_state *state = context;
    (void)purpose;
    state->refused = !fth_http_reach_allows(state->reach, &address->addr);
    return state->refused ? CURL_SOCKET_BAD
                          : socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

bool fth_http_find_loopback(const char *url, char *host, size_t size, int *port)
{
    CURLU *parts = curl_url();
    char *name = NULL, *number = NULL;
    struct in_addr v4;
    bool loopback = false;
    if (parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_HOST, &name, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_PORT, &number, CURLU_DEFAULT_PORT) == CURLUE_OK) {
        bool v6 = strcmp(name, "[::1]") == 0;
        loopback = v6 || strcasecmp(name, "localhost") == 0 ||
                   (inet_pton(AF_INET, name, &v4) == 1 && *(const unsigned char *)&v4 == 127);
        snprintf(host, size, "%s", v6 ? "::1" : name);
        *port = atoi(number);
    }
    curl_free(name);
    curl_free(number);
    curl_url_cleanup(parts);
    return loopback;
}

bool fth_http_is_loopback(const char *url)
{
    char host[INET6_ADDRSTRLEN];
    int port;
    return fth_http_find_loopback(url, host, sizeof host, &port);
}

/* ---- a request ---- */

static long milliseconds(double seconds)
{
    return seconds > 86400.0 * 20 ? 86400L * 20 * 1000 : (long)(seconds * 1000) + 1;
}

static void set_up(fth_http_client *client, request_state *state, struct curl_slist *headers, double left_s)
{
    CURL *curl = client->curl;
    const fth_http_request *request = state->request;
    double stall_s = request->stall_s > 0 ? request->stall_s : 30;

    curl_easy_setopt(curl, CURLOPT_URL, request->url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L); /* signatures are over the path as it is */
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1); /* several connections beat streams */
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "farthing/" FTH_VERSION);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, milliseconds(request->connect_s > 0 ? request->connect_s : 10));
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, milliseconds(left_s));
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, (long)SLOWEST_BYTES_PER_S);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)ceil(fmin(stall_s, 86400)));
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, state);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, state);
    if (request->into_bytes > SMALL_BODY_BYTES || request->max_body_bytes > SMALL_BODY_BYTES)
        curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, (long)RECEIVE_BUFFER_BYTES);
    if (request->progress) {
        curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
        curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, watch);
        curl_easy_setopt(curl, CURLOPT_XFERINFODATA, state);
    }

    if (strcmp(request->method, "HEAD") == 0) {
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    } else if (request->body || strcmp(request->method, "PUT") == 0 || strcmp(request->method, "POST") == 0) {
        curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
        curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->body_bytes);
        curl_easy_setopt(curl, CURLOPT_READFUNCTION, give_body);
        curl_easy_setopt(curl, CURLOPT_READDATA, state);
        curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, refuse_rewind);
        curl_easy_setopt(curl, CURLOPT_SEEKDATA, state);
        if (request->body_bytes > SMALL_BODY_BYTES)
            curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, (long)SEND_BUFFER_BYTES);
    } else if (strcmp(request->method, "GET") != 0) {
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
    }

    /* OpenSSL's variable, which libcurl leaves to its callers. */
    const char *ca_file = client->ca_file ? client->ca_file : getenv("SSL_CERT_FILE");
    if (ca_file && *ca_file)
        curl_easy_setopt(curl, CURLOPT_CAINFO, ca_file);
    if (client->insecure) {
        curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (client->pinned_key) { /* the key itself is what is trusted, whatever name and signer the certificate has */
        curl_easy_setopt(curl, CURLOPT_PINNEDPUBLICKEY, client->pinned_key);
        curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (client->unix_socket)
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, client->unix_socket);
    if (client->no_proxy)
        curl_easy_setopt(curl, CURLOPT_PROXY, "");
    if (client->reach != FTH_HTTP_ANYWHERE) {
        curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_allowed);
        curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, state);
    }
}

/* `list` lives as long as the request. */
static fth_status set_address(fth_http_client *client, const char *address, struct curl_slist **list)
{
    if (!address || !*address)
        return FTH_OK;
    /* For any host and port this address, and the same port. */
    char *line = fth_format(strchr(address, ':') ? "::[%s]:" : "::%s:", address);
    *list = line ? curl_slist_append(NULL, line) : NULL;
    free(line);
    if (!*list)
        return fth_fail(FTH_NO_MEMORY, "no memory for a request");
    curl_easy_setopt(client->curl, CURLOPT_CONNECT_TO, *list);
    curl_easy_setopt(client->curl, CURLOPT_PROXY, "");
    return FTH_OK;
}

static fth_status explain(const request_state *state, CURLcode code, const char *detail, fth_deadline deadline)
{
    const fth_http_request *request = state->request;
    fth_status status;
    char *url = fth_http_harmless_url(request->url);
    const char *hint = "", *why = *detail ? detail : curl_easy_strerror(code);
    switch (code) {
    case CURLE_OPERATION_TIMEDOUT: /* curl counts whole milliseconds and may be a little early */
        status = fth_deadline_left_seconds(deadline) < 0.02 ? FTH_TIMEOUT : FTH_PEER_LOST;
        break;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_PINNEDPUBKEYNOTMATCH: status = FTH_IO; break;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL: status = FTH_INVALID; break;
    case CURLE_OUT_OF_MEMORY: status = FTH_NO_MEMORY; break;
    case CURLE_ABORTED_BY_CALLBACK: status = FTH_INTERRUPTED; break;
    default: status = FTH_PEER_LOST; break;
    }
    if (state->refused && code == CURLE_COULDNT_CONNECT) {
        status = FTH_INVALID;
        why = refused;
    }
    if (code == CURLE_SEND_FAIL_REWIND)
        why = "the server closed the connection before it answered";
    if (code == CURLE_SSL_PINNEDPUBKEYNOTMATCH)
        why = "the server's key is not the one that was pinned";
    if (code == CURLE_PEER_FAILED_VERIFICATION)
        hint = "; a server that made its own certificate prints a sha256// to pin";
    status = fth_fail(status, "%s %s: %s%s", request->method, url, why, hint);
    free(url);
    return status;
}

static fth_http_failure classify(CURL *curl, CURLcode code)
{
    double connected_s = 0;
    curl_easy_getinfo(curl, CURLINFO_PRETRANSFER_TIME, &connected_s);
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST: return FTH_HTTP_UNRESOLVED;
    case CURLE_COULDNT_CONNECT: return FTH_HTTP_UNREACHED;
    case CURLE_UNSUPPORTED_PROTOCOL: /* what is no HTTP at all would be HTTP/0.9 */
    case CURLE_WEIRD_SERVER_REPLY: return FTH_HTTP_NOT_HTTP;
    case CURLE_SEND_FAIL_REWIND: return FTH_HTTP_NO_ANSWER; /* curl 8 has forgotten that it was connected */
    default: return connected_s > 0 ? FTH_HTTP_NO_ANSWER : FTH_HTTP_UNREACHED;
    }
}

/* curl 8 would try to rewind again before every later request of the handle, and so fail them
 * all. */
static void renew_handle(fth_http_client *client)
{
    CURL *fresh = curl_easy_init();
    if (!fresh) /* then later requests fail: the server is taken for lost */
        return;
    curl_easy_cleanup(client->curl);
    client->curl = fresh;
}

/* curl_easy_perform() lets a second pass between calls of `progress` while nothing moves. */
static CURLcode perform_attentively(fth_http_client *client)
{
    CURLcode code = CURLE_OUT_OF_MEMORY;
    int running = 1, messages;
    if (curl_multi_add_handle(client->multi, client->curl) != CURLM_OK)
        return code;
    while (running && curl_multi_perform(client->multi, &running) == CURLM_OK)
        if (running && curl_multi_poll(client->multi, NULL, 0, ATTENTIVE_MS, NULL) != CURLM_OK)
            break;
    for (CURLMsg *message; (message = curl_multi_info_read(client->multi, &messages));)
        if (message->msg == CURLMSG_DONE)
            code = message->data.result;
    curl_multi_remove_handle(client->multi, client->curl);
    return code;
}

fth_status fth_http_perform(fth_http_client *client, const fth_http_request *request, fth_http_response *response)
{
    fth_status status = FTH_OK;
    struct curl_slist *headers = NULL, *connect_to = NULL;
    char detail[CURL_ERROR_SIZE] = "";
    fth_http_failure failure = 0;
    request_state state = {.request = request, .response = response, .curl = client->curl, .reach = client->reach};
    fth_deadline deadline = request->deadline.at_seconds > 0 ? request->deadline : fth_deadline_in(DEFAULT_DEADLINE_S);

    *response = (fth_http_response){0};
    double left_s = fth_deadline_left_seconds(deadline);
    if (left_s <= 0) {
        char *url = fth_http_harmless_url(request->url);
        status = fth_fail(FTH_TIMEOUT, "%s %s: no time is left for it", request->method, url);
        free(url);
        goto out;
    }
    if (!fth_http_reach_allows_url(client->reach, request->url)) { /* a proxy would connect to it */
        char *url = fth_http_harmless_url(request->url);
        status = fth_fail(FTH_INVALID, "%s %s: %s", request->method, url, refused);
        free(url);
        goto out;
    }
    for (const char *const *line = request->headers; line && *line; line++) {
        struct curl_slist *longer = curl_slist_append(headers, *line);
        FTH_REQUIRE(longer, FTH_NO_MEMORY, "no memory for a request");
        headers = longer;
    }
    /* "Expect: 100-continue" costs a round trip, and the type of a body is the caller's to tell. */
    headers = curl_slist_append(headers, "Expect:");
    curl_easy_reset(client->curl);
    set_up(client, &state, headers, left_s);
    FTH_TRY(set_address(client, request->address, &connect_to));
    curl_easy_setopt(client->curl, CURLOPT_ERRORBUFFER, detail);
    CURLcode code = client->multi ? perform_attentively(client) : curl_easy_perform(client->curl);
    long reply = 0;
    curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &reply);
    response->code = (int)reply;
    if (state.status != FTH_OK) { /* ours; its message stands */
        char *url = fth_http_harmless_url(request->url);
        status = fth_fail_within(state.status, "%s %s", request->method, url);
        free(url);
    } else if (code != CURLE_OK && !(code == CURLE_SEND_ERROR && reply >= 400)) {
        /* A server that refuses a large body answers and hangs up before it has read it all. */
        failure = classify(client->curl, code);
        status = explain(&state, code, detail, deadline);
        if (code == CURLE_SEND_FAIL_REWIND)
            renew_handle(client);
    } else if (!response->body && !state.into_callers) {
        response->body = strdup("");
    }

out:
    curl_slist_free_all(headers);
    curl_slist_free_all(connect_to);
    if (status != FTH_OK)
        fth_http_response_release(response);
    response->failure = failure;
    return status;
}

void fth_http_response_release(fth_http_response *response)
{
    free(response->body);
    free(response->headers);
    *response = (fth_http_response){0};
}

char *fth_http_header(const fth_http_response *response, const char *name)
{
    size_t name_length = strlen(name);
    for (const char *line = response->headers; line && *line;) {
        const char *end = strchr(line, '\n');
        size_t length = end ? (size_t)(end - line) : strlen(line);
        if (length > name_length && line[name_length] == ':' && strncasecmp(line, name, name_length) == 0) {
            const char *value = line + name_length + 1, *last = line + length;
            while (value < last && (*value == ' ' || *value == '\t'))
                value++;
            while (last > value && (last[-1] == '\r' || last[-1] == ' ' || last[-1] == '\t'))
                last--;
            return strndup(value, (size_t)(last - value));
        }
        line = end ? end + 1 : NULL;
    }
    return NULL;
}

char *fth_http_harmless_url(const char *url)
{
    char *harmless = fth_address_public(url);
    if (harmless)
        harmless[strcspn(harmless, "?#")] = '\0';
    return harmless;
}

char *fth_http_escape(const char *text, bool keep_slashes)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    static const char digits[] = "0123456789ABCDEF";
    char *escaped = malloc(strlen(text) * 3 + 1), *to = escaped;
    if (!escaped)
        return NULL;
    for (; *text; text++) {
        if (strchr(plain, *text) || (keep_slashes && *text == '/')) {
            *to++ = *text;
        } else {
            *to++ = '%';
            *to++ = digits[(unsigned char)*text >> 4];
            *to++ = digits[(unsigned char)*text & 15];
        }
    }
    *to = '\0';
    return escaped;
}

char *fth_http_unescape(const char *text)
{
    char *decoded = strdup(text), *to = decoded;
    for (const char *from = text; decoded && *from; from++) {
        int high = *from == '%' ? fth_hex_digit(from[1]) : -1, low = high >= 0 ? fth_hex_digit(from[2]) : -1;
        bool escape = low >= 0 && high + low > 0; /* a NUL would end the text */
        *to++ = (char)(escape ? high * 16 + low : *from);
        if (escape)
            from += 2;
    }
    if (decoded)
        *to = '\0';
    return decoded;
}
