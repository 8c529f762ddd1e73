/* See relay.h. Both ends of every pipe stay open here: that a child has ended is known from the
 * child itself. */
#include "parallel/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LINE = 1 << 16, MAX_LAST = 600 };

typedef struct source {
    int read_end, write_end;
    char *line; /* what came of a line that is not whole yet: MAX_LINE bytes */
    size_t length;
} source;

/* An error says more than what follows it. */
typedef struct last_message {
    char line[MAX_LAST];
    bool is_error;
} last_message;

struct fth_relay {
    int count;
    fth_relay_show show;
    void *context;
    source *sources; /* count * FTH_RELAY_STREAMS */
    struct pollfd *polled;
    last_message *last; /* count */
};

static int index_of(int number, fth_relay_stream stream)
{
    return (number - 1) * FTH_RELAY_STREAMS + (int)stream;
}

static fth_status open_source(source *made)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return fth_fail(FTH_IO, "make a pipe: %s", strerror(errno));
    made->read_end = ends[0];
    made->write_end = ends[1];
    fcntl(made->read_end, F_SETFL, O_NONBLOCK);
    return fth_allocate(MAX_LINE + 1, 1, &made->line);
}

fth_status fth_relay_create(int count, fth_relay_show show, void *context, fth_relay **relay)
{
    fth_status status = FTH_OK;
    fth_relay *made = NULL;
    int sources = count * FTH_RELAY_STREAMS;

    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->show = show;
    made->context = context;
    FTH_TRY(fth_allocate((size_t)count, sizeof *made->last, &made->last));
    FTH_TRY(fth_allocate((size_t)sources, sizeof *made->polled, &made->polled));
    FTH_TRY(fth_allocate((size_t)sources, sizeof *made->sources, &made->sources));
    made->count = count;
    for (int i = 0; i < sources; i++) {
        FTH_TRY(open_source(&made->sources[i]));
        made->polled[i] = (struct pollfd){.fd = made->sources[i].read_end, .events = POLLIN};
    }
    *relay = made;
    made = NULL;

out:
    fth_relay_free(made);
    return status;
}

void fth_relay_free(fth_relay *relay)
{
    if (!relay)
        return;
    for (int i = 0; i < relay->count * FTH_RELAY_STREAMS; i++) {
        source *each = &relay->sources[i];
        if (each->write_end > 0) {
            close(each->read_end);
            close(each->write_end);
        }
        free(each->line);
    }
    free(relay->sources);
    free(relay->polled);
    free(relay->last);
    free(relay);
}

int fth_relay_descriptor(const fth_relay *relay, int number, fth_relay_stream stream)
{
    return relay->sources[index_of(number, stream)].write_end;
}

static void show_line(fth_relay *relay, int index, const char *line)
{
    int number = index / FTH_RELAY_STREAMS + 1;
    fth_relay_stream stream = (fth_relay_stream)(index % FTH_RELAY_STREAMS);
    last_message *last = &relay->last[number - 1];
    bool is_error = strstr(line, FTH_LOG_ERROR_PREFIX) != NULL;
    if (stream == FTH_RELAY_MESSAGES && *line && (is_error || !last->is_error)) {
        snprintf(last->line, MAX_LAST, "%s", line);
        last->is_error = is_error;
    }
    relay->show(relay->context, number, stream, line);
}

/* Passes on the whole lines that have come, and keeps the rest. */
static void show_whole_lines(fth_relay *relay, int index)
{
    source *from = &relay->sources[index];
    char *begin = from->line, *end = from->line + from->length, *newline;
    while ((newline = memchr(begin, '\n', (size_t)(end - begin)))) {
        *newline = '\0';
        if (newline > begin && newline[-1] == '\r') /* as ssh ends its lines */
            newline[-1] = '\0';
        show_line(relay, index, begin);
        begin = newline + 1;
    }
    from->length = (size_t)(end - begin);
    memmove(from->line, begin, from->length);
}

static void show_rest(fth_relay *relay, int index)
{
    source *from = &relay->sources[index];
    if (from->length == 0)
        return;
    from->line[from->length] = '\0';
    from->length = 0;
    show_line(relay, index, from->line);
}

static void read_source(fth_relay *relay, int index)
{
    source *from = &relay->sources[index];
    for (;;) {
        ssize_t got = read(from->read_end, from->line + from->length, MAX_LINE - from->length);
        if (got <= 0)
            return;
        from->length += (size_t)got;
        show_whole_lines(relay, index);
        if (from->length == MAX_LINE)
            show_rest(relay, index);
    }
}

void fth_relay_wait(fth_relay *relay, double seconds)
{
    int sources = relay->count * FTH_RELAY_STREAMS;
    if (poll(relay->polled, (nfds_t)sources, (int)(1000 * seconds)) <= 0)
        return;
    for (int i = 0; i < sources; i++)
        if (relay->polled[i].revents)
            read_source(relay, i);
}

void fth_relay_finish(fth_relay *relay, int number)
{
    for (int stream = 0; stream < FTH_RELAY_STREAMS; stream++) {
        int index = index_of(number, (fth_relay_stream)stream);
        read_source(relay, index);
        show_rest(relay, index);
    }
    relay->last[number - 1].is_error = false; /* its successor's lines replace it */
}

const char *fth_relay_last_message(const fth_relay *relay, int number)
{
    return relay->last[number - 1].line;
}
