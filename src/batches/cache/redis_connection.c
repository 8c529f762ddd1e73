/* See redis_internal.h: commands go out through one buffer, replies come in through another.
 *
 * Short replies and arrays are parsed by hiredis. A value is received in place: the preceding line
 * has its length, and what did not arrive with that line is read from the socket directly into the
 * connection's value buffer. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "batches/cache/redis_internal.h"

enum {
    INPUT_BYTES = 64 << 10,
    MAX_LINE = 4 << 10,          /* of a reply's first line */
    MAX_REPLY_BYTES = 64 << 20,  /* of a reply parsed by hiredis */
    KEPT_VALUE_BYTES = 64 << 20, /* a larger value buffer is not kept */
    MAX_WORDS = 8,
    PORTION_BYTES = 1 << 30
};
#define MAX_VALUE_BYTES (UINT64_C(1) << 30)
#define GREETING_S      2.0

struct fth_redis_connection {
    fth_redis_stream *stream;
    char name[FTH_REDIS_MAX_NAME];
    redisReader *reader;
    char *output;
    size_t output_bytes, output_room;
    char *input; /* the bytes from input_begin to input_end are unread */
    size_t input_begin, input_end;
    char *value;
    uint64_t value_room;
    bool is_cluster, can_renew;
};

/* ---- what errors mean ---- */

static const struct meaning {
    const char *begins;
    fth_status status;
    const char *text; /* follows the server's name */
} meanings[] = {
    {"NOAUTH", FTH_INVALID,
     "requires a password; set " FTH_REDIS_PASSWORD_VARIABLE " (and " FTH_REDIS_USER_VARIABLE "), or write it into the "
     "address: redis://USER:PASSWORD@HOST"},
    {"WRONGPASS", FTH_INVALID, "does not accept this user and password"},
    {"ERR invalid password", FTH_INVALID, "does not accept this password"},
    {"ERR Client sent AUTH, but no password is set", FTH_INVALID, "has no password, but one is given; leave it out"},
    {"ERR AUTH <password> called without any password", FTH_INVALID, "has no password, but one is given; leave it out"},
    {"NOPERM", FTH_INVALID,
     "does not give this user enough permissions: grant it +@read +@write +@connection on ~farthing:*"},
    {"OOM", FTH_NO_MEMORY, "is full; raise its maxmemory, set maxmemory-policy allkeys-lru, or lower --cache-memory"},
    {"READONLY", FTH_INVALID, "is a read-only replica; give the address of its master"},
    {"LOADING", FTH_PEER_LOST, "is still loading its data from disk; try again later"},
    {"MASTERDOWN", FTH_PEER_LOST, "is a replica that has lost its master; give the address of a master"},
    {"CLUSTERDOWN", FTH_PEER_LOST, "reports that its cluster is down; check CLUSTER INFO there"},
    {"TRYAGAIN", FTH_PEER_LOST, "is moving keys to another server; try again later"},
    {"MISCONF", FTH_IO,
     "refuses writes because it cannot save to disk; free disk space, or set "
     "stop-writes-on-bgsave-error no"},
    {"ERR max number of clients", FTH_PEER_LOST, "has too many clients; raise its maxclients"},
    {"ERR DB index is out of range", FTH_INVALID, "has no such database; choose another number in the address"},
    {"ERR SELECT is not allowed in cluster mode", FTH_INVALID,
     "belongs to a cluster, which has no databases; remove the number from the address"},
    {"DENIED", FTH_INVALID, "is in protected mode: without a password it only answers its own machine"},
    {"-DENIED", FTH_INVALID, "is in protected mode: without a password it only answers its own machine"},
};

fth_status fth_redis_fail(const char *server, const char *error)
{
    for (size_t i = 0; i < FTH_COUNT_OF(meanings); i++)
        if (strncasecmp(error, meanings[i].begins, strlen(meanings[i].begins)) == 0)
            return fth_fail(meanings[i].status, "%s %s", server, meanings[i].text);
    return fth_fail(FTH_IO, "%s: %s", server, error);
}

static fth_status fail_protocol(const fth_redis_connection *connection)
{
    return fth_fail(FTH_INVALID, "%s does not answer like Redis; check the port, and use rediss:// if it speaks TLS",
                    connection->name);
}

/* ---- sending ---- */

static fth_status make_room(fth_redis_connection *connection, size_t bytes)
{
    if (connection->output_bytes + bytes > connection->output_room) {
        size_t room = 2 * (connection->output_bytes + bytes);
        char *larger = realloc(connection->output, room);
        if (!larger)
            return fth_fail(FTH_NO_MEMORY, "no memory for a command of %zu bytes", bytes);
        connection->output = larger;
        connection->output_room = room;
    }
    return FTH_OK;
}

static fth_status append(fth_redis_connection *connection, const char *bytes, size_t size_bytes)
{
    fth_status status = make_room(connection, size_bytes);
    if (status == FTH_OK) {
        memcpy(connection->output + connection->output_bytes, bytes, size_bytes);
        connection->output_bytes += size_bytes;
    }
    return status;
}

fth_status fth_redis_add(fth_redis_connection *connection, const char *const *words)
{
    fth_status status = FTH_OK;
    const char *copies[MAX_WORDS];
    char *command = NULL;
    int count = 0, length = 0;

    for (; words[count]; count++) {
        FTH_REQUIRE(count < MAX_WORDS, FTH_INVALID, "a Redis command has more than %d words", MAX_WORDS);
        copies[count] = words[count];
    }
    length = redisFormatCommandArgv(&command, count, copies, NULL);
    FTH_REQUIRE(length > 0, FTH_NO_MEMORY, "no memory for a Redis command");
    FTH_TRY(append(connection, command, (size_t)length));

out:
    if (command) {
        if (length > 0)
            fth_wipe(command, (size_t)length); /* it may hold a password */
        redisFreeCommand(command);
    }
    return status;
}

fth_status fth_redis_flush(fth_redis_connection *connection, fth_deadline deadline)
{
    size_t length = connection->output_bytes;
    connection->output_bytes = 0;
    return fth_redis_stream_write(connection->stream, connection->output, length, false, deadline);
}

fth_status fth_redis_send_value(fth_redis_connection *connection, const char *const *words, const void *value,
                                uint64_t size_bytes, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    char line[64];
    size_t count = 0, length;

    while (words[count])
        count++;
    length = (size_t)snprintf(line, sizeof line, "*%zu\r\n", count + 1);
    FTH_TRY(append(connection, line, length));
    for (size_t i = 0; i < count; i++) {
        length = (size_t)snprintf(line, sizeof line, "$%zu\r\n", strlen(words[i]));
        FTH_TRY(append(connection, line, length));
        FTH_TRY(append(connection, words[i], strlen(words[i])));
        FTH_TRY(append(connection, "\r\n", 2));
    }
    length = (size_t)snprintf(line, sizeof line, "$%llu\r\n", (unsigned long long)size_bytes);
    FTH_TRY(append(connection, line, length));
    length = connection->output_bytes;
    connection->output_bytes = 0;
    FTH_TRY(fth_redis_stream_write(connection->stream, connection->output, length, true, deadline));
    FTH_TRY(fth_redis_stream_write(connection->stream, value, size_bytes, true, deadline));
    FTH_TRY(fth_redis_stream_write(connection->stream, "\r\n", 2, false, deadline));

out:
    return status;
}

/* ---- receiving ---- */

/* Reads more input behind what is there. */
static fth_status receive_more(fth_redis_connection *connection, fth_deadline deadline)
{
    size_t got = 0;
    if (connection->input_begin > 0) {
        memmove(connection->input, connection->input + connection->input_begin,
                connection->input_end - connection->input_begin);
        connection->input_end -= connection->input_begin;
        connection->input_begin = 0;
    }
    fth_status status = fth_redis_stream_read(connection->stream, connection->input + connection->input_end,
                                              INPUT_BYTES - connection->input_end, deadline, &got);
    connection->input_end += got;
    return status;
}

fth_status fth_redis_receive(fth_redis_connection *connection, fth_deadline deadline, redisReply **reply)
{
    fth_status status = FTH_OK;
    void *found = NULL;

    *reply = NULL;
    for (size_t fed = 0;;) {
        size_t length = connection->input_end - connection->input_begin;
        FTH_REQUIRE(redisReaderFeed(connection->reader, connection->input + connection->input_begin, length) ==
                        REDIS_OK,
                    FTH_NO_MEMORY, "no memory for an answer of %s", connection->name);
        connection->input_begin = connection->input_end = 0;
        fed += length;
        if (redisReaderGetReply(connection->reader, &found) != REDIS_OK) {
            status = fail_protocol(connection);
            goto out;
        }
        if (found)
            break;
        FTH_REQUIRE(fed <= MAX_REPLY_BYTES, FTH_CORRUPT, "%s: its answer has more than %d bytes", connection->name,
                    MAX_REPLY_BYTES);
        FTH_TRY(receive_more(connection, deadline));
    }
    *reply = found;

out:
    return status;
}

fth_status fth_redis_ask(fth_redis_connection *connection, const char *const *words, fth_deadline deadline,
                         redisReply **reply)
{
    fth_status status = FTH_OK;

    *reply = NULL;
    FTH_TRY(fth_redis_add(connection, words));
    FTH_TRY(fth_redis_flush(connection, deadline));
    FTH_TRY(fth_redis_receive(connection, deadline, reply));
    if ((*reply)->type == REDIS_REPLY_ERROR) {
        status = fth_redis_fail(connection->name, (*reply)->str);
        freeReplyObject(*reply);
        *reply = NULL;
    }

out:
    return status;
}

/* The next line of input, without its end. It is valid until more is received. */
static fth_status receive_line(fth_redis_connection *connection, fth_deadline deadline, char **line)
{
    fth_status status = FTH_OK;
    for (;;) {
        char *begin = connection->input + connection->input_begin;
        size_t length = connection->input_end - connection->input_begin;
        char *end = length > 0 ? memchr(begin, '\n', length) : NULL;
        if (end && end > begin && end[-1] == '\r') {
            end[-1] = '\0';
            connection->input_begin += (size_t)(end - begin) + 1;
            *line = begin;
            return FTH_OK;
        }
        if (end || length > MAX_LINE)
            return fail_protocol(connection);
        FTH_TRY(receive_more(connection, deadline));
    }
out:
    return status;
}

static fth_status receive_bytes(fth_redis_connection *connection, uint64_t size_bytes, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    uint64_t have = connection->input_end - connection->input_begin, whole = size_bytes + 2;

    if (whole > connection->value_room) {
        free(connection->value);
        connection->value = NULL;
        connection->value_room = 0;
        FTH_TRY(fth_allocate_aligned(whole, &connection->value));
        connection->value_room = whole;
    }
    if (have > whole)
        have = whole;
    memcpy(connection->value, connection->input + connection->input_begin, have);
    connection->input_begin += have;
    while (have < whole) {
        size_t got = 0;
        uint64_t left = whole - have;
        FTH_TRY(fth_redis_stream_read(connection->stream, connection->value + have,
                                      left < PORTION_BYTES ? (size_t)left : PORTION_BYTES, deadline, &got));
        have += got;
        FTH_REQUIRE(have == whole || !fth_deadline_passed(deadline), FTH_TIMEOUT,
                    "%s sends data too slowly: %llu of %llu bytes in time", connection->name, (unsigned long long)have,
                    (unsigned long long)whole);
    }
    if (memcmp(connection->value + size_bytes, "\r\n", 2) != 0)
        status = fail_protocol(connection);

out:
    return status;
}

fth_status fth_redis_receive_value(fth_redis_connection *connection, fth_deadline deadline, fth_redis_value *value)
{
    fth_status status = FTH_OK;
    char *line = NULL, *end = NULL;
    long long size_bytes;

    *value = (fth_redis_value){.kind = FTH_REDIS_NOTHING};
    FTH_TRY(receive_line(connection, deadline, &line));
    switch (line[0]) {
    case '$':
        size_bytes = strtoll(line + 1, &end, 10);
        if (end == line + 1 || *end || size_bytes < -1 || size_bytes > (long long)MAX_VALUE_BYTES) {
            status = fail_protocol(connection);
            goto out;
        }
        if (size_bytes < 0)
            break;
        FTH_TRY(receive_bytes(connection, (uint64_t)size_bytes, deadline));
        value->kind = FTH_REDIS_BYTES;
        value->bytes = connection->value;
        value->size_bytes = (uint64_t)size_bytes;
        break;
    case '+':
    case ':':
        value->kind = FTH_REDIS_WORD;
        value->bytes = line + 1;
        value->size_bytes = strlen(line + 1);
        break;
    case '-':
        value->kind = FTH_REDIS_ERROR;
        value->bytes = line + 1;
        value->size_bytes = strlen(line + 1);
        break;
    case '_': break;
    default: status = fail_protocol(connection); goto out;
    }

out:
    return status;
}

/* ---- opening and closing ---- */

/* The text after "name" in HELLO's list of names and values; NULL: it is not there. */
static const char *find_text(const redisReply *list, const char *name)
{
    for (size_t i = 0; list->type == REDIS_REPLY_ARRAY && i + 1 < list->elements; i += 2)
        if (list->element[i]->str && list->element[i + 1]->str && strcmp(list->element[i]->str, name) == 0)
            return list->element[i + 1]->str;
    return NULL;
}

/* Redis before version 6 has no HELLO; INFO says the same, after AUTH. */
static fth_status greet_old(fth_redis_connection *connection, const fth_redis_login *login, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    redisReply *reply = NULL;

    FTH_REQUIRE(!*login->user || strcmp(login->user, "default") == 0, FTH_INVALID,
                "%s is older than Redis 6, which has no users; give only the password", connection->name);
    if (*login->password) {
        FTH_TRY(fth_redis_ask(connection, (const char *[]){"AUTH", login->password, NULL}, deadline, &reply));
        freeReplyObject(reply);
    }
    FTH_TRY(fth_redis_ask(connection, (const char *[]){"INFO", "cluster", NULL}, deadline, &reply));
    connection->is_cluster = reply->str && strstr(reply->str, "cluster_enabled:1");

out:
    if (reply)
        freeReplyObject(reply);
    return status;
}

static fth_status greet(fth_redis_connection *connection, const fth_redis_login *login, fth_deadline deadline)
{
    fth_status status = FTH_OK;
    redisReply *reply = NULL;
    const char *words[] = {
        "HELLO", "2", *login->password ? "AUTH" : NULL, *login->user ? login->user : "default", login->password, NULL};
    const char *mode, *version;
    char number[16];
    int major = 0, minor = 0;

    FTH_TRY(fth_redis_add(connection, words));
    FTH_TRY(fth_redis_flush(connection, deadline));
    FTH_TRY(fth_redis_receive(connection, deadline, &reply));
    if (reply->type == REDIS_REPLY_ERROR && strncasecmp(reply->str, "ERR unknown command", 19) == 0) {
        FTH_TRY(greet_old(connection, login, deadline));
    } else if (reply->type == REDIS_REPLY_ERROR) {
        status = fth_redis_fail(connection->name, reply->str);
        goto out;
    } else {
        mode = find_text(reply, "mode");
        version = find_text(reply, "version");
        connection->is_cluster = mode && strcmp(mode, "cluster") == 0;
        connection->can_renew =
            version && sscanf(version, "%d.%d", &major, &minor) == 2 && (major > 6 || (major == 6 && minor >= 2));
    }
    freeReplyObject(reply);
    reply = NULL;
    if (login->database > 0) {
        snprintf(number, sizeof number, "%d", login->database);
        FTH_TRY(fth_redis_ask(connection, (const char *[]){"SELECT", number, NULL}, deadline, &reply));
    }

out:
    if (connection->output)
        fth_wipe(connection->output, connection->output_room); /* it held the password */
    if (reply)
        freeReplyObject(reply);
    return status;
}

fth_status fth_redis_connection_open(const fth_redis_endpoint *endpoint, const fth_redis_login *login,
                                     fth_deadline deadline, fth_redis_connection **result)
{
    fth_status status = FTH_OK;
    fth_redis_connection *connection = NULL;
    double left_s = fth_deadline_left_seconds(deadline);

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *connection, &connection));
    snprintf(connection->name, sizeof connection->name, "redis %s:%d", endpoint->host, endpoint->port);
    FTH_TRY(fth_allocate(1, INPUT_BYTES, &connection->input));
    connection->reader = redisReaderCreate();
    FTH_REQUIRE(connection->reader, FTH_NO_MEMORY, "no memory for a connection to %s", connection->name);
    if (left_s > GREETING_S)
        deadline = fth_deadline_in(GREETING_S);
    FTH_TRY(fth_redis_stream_open(endpoint, login->tls, deadline, &connection->stream));
    status = greet(connection, login, deadline);
    if (status == FTH_PEER_LOST && !login->tls)
        status = fth_fail(FTH_PEER_LOST, "%s closed the connection at once; if it speaks TLS, write rediss://",
                          connection->name);
    if (status != FTH_OK)
        goto out;
    *result = connection;
    connection = NULL;

out:
    fth_redis_connection_close(connection);
    return status;
}

void fth_redis_connection_close(fth_redis_connection *connection)
{
    if (!connection)
        return;
    fth_redis_stream_close(connection->stream);
    if (connection->reader)
        redisReaderFree(connection->reader);
    free(connection->output);
    free(connection->input);
    free(connection->value);
    free(connection);
}

bool fth_redis_connection_is_quiet(fth_redis_connection *connection)
{
    if (connection->value_room > KEPT_VALUE_BYTES) {
        free(connection->value);
        connection->value = NULL;
        connection->value_room = 0;
    }
    return connection->input_begin == connection->input_end && connection->output_bytes == 0 &&
           fth_redis_stream_is_quiet(connection->stream);
}

bool fth_redis_connection_is_cluster(const fth_redis_connection *connection)
{
    return connection->is_cluster;
}

bool fth_redis_connection_can_renew(const fth_redis_connection *connection)
{
    return connection->can_renew;
}
