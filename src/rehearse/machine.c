/* See machine.h. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/process.h"
#include "rehearse/machine.h"

enum { MAX_LINE_BYTES = 16 << 20, MAX_LOG_BYTES = 64 << 20 };

/* ---- starting ---- */

static fth_status make_board(const char *path, fth_trial *trial)
{
    int descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor < 0 || ftruncate(descriptor, sizeof *trial->board) != 0) {
        if (descriptor >= 0)
            close(descriptor);
        return fth_fail(FTH_IO, "create %s: %s", path, strerror(errno));
    }
    void *memory = mmap(NULL, sizeof *trial->board, PROT_READ, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (memory == MAP_FAILED)
        return fth_fail(FTH_IO, "map %s: %s", path, strerror(errno));
    trial->board = memory;
    return FTH_OK;
}

fth_status fth_trial_start(const char *program, const char *const *arguments, const char *const *environment,
                           const char *folder, fth_trial *trial)
{
    fth_status status = FTH_OK;
    char *board = fth_path_join(folder, "progress"), *events = fth_path_join(folder, "events.jsonl");
    char *board_variable = fth_format("FARTHING_PROGRESS_FILE=%s", board);
    const char *added[32] = {board_variable};
    int ends[2] = {-1, -1};
    *trial = (fth_trial){
        .output = -1, .began_s = NAN, .first_step_s = NAN, .ended_s = NAN, .price_usd_per_hour = NAN, .saved_step = -1};
    for (size_t i = 0; environment[i] && i + 2 < FTH_COUNT_OF(added); i++)
        added[i + 1] = environment[i];
    trial->log_path = fth_path_join(folder, "log");
    FTH_REQUIRE(board && board_variable && events && trial->log_path, FTH_NO_MEMORY, "no memory for a path");
    FTH_TRY(fth_folder_create(folder));
    FTH_TRY(make_board(board, trial));
    trial->copy = fopen(events, "we");
    FTH_REQUIRE(trial->copy, FTH_IO, "create %s: %s", events, strerror(errno));
    FTH_REQUIRE(pipe2(ends, O_CLOEXEC) == 0, FTH_IO, "make a pipe: %s", strerror(errno));
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    trial->output = ends[0];
    trial->spawned_s = fth_clock_seconds();
    fth_child_options child = {
        .program = program, .arguments = arguments, .variables = added, .output = ends[1], .messages = trial->log_path};
    FTH_TRY(fth_child_start(&child, &trial->pid));
out:
    if (ends[1] >= 0)
        close(ends[1]);
    free(board_variable);
    free(board);
    free(events);
    return status;
}

/* ---- listening ---- */

static void take_event(fth_trial *trial, const char *line)
{
    json_t *event = json_loads(line, 0, NULL);
    const char *name = json_string_value(json_object_get(event, "event"));
    int64_t step = (int64_t)json_integer_value(json_object_get(event, "step"));
    if (!name) {
        json_decref(event);
        return;
    }
    if (strcmp(name, "start") == 0 || strcmp(name, "resume") == 0) {
        trial->began_s = fth_clock_seconds();
        trial->begun_step = trial->step = step;
        const json_t *price = json_object_get(event, "price_usd_per_hour");
        if (json_is_number(price))
            trial->price_usd_per_hour = json_number_value(price);
    } else if (strcmp(name, "checkpoint") == 0 && step > trial->saved_step) {
        trial->saved_step = step;
    } else if (strcmp(name, "end") == 0) {
        json_decref(trial->end);
        trial->end = json_incref(event);
    } else if (strcmp(name, "error") == 0) {
        json_decref(trial->error);
        trial->error = json_incref(event);
    }
    json_decref(event);
}

static fth_status take_bytes(fth_trial *trial, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (trial->line.count == MAX_LINE_BYTES)
            return fth_fail(FTH_CORRUPT, "the job writes a line of more than %d MiB", MAX_LINE_BYTES >> 20);
        fth_status status = fth_grow(&trial->line.text, trial->line.count, &trial->line.capacity, 1);
        if (status != FTH_OK)
            return status;
        trial->line.text[trial->line.count++] = bytes[i] == '\n' ? '\0' : bytes[i];
        if (bytes[i] == '\n') {
            take_event(trial, trial->line.text);
            trial->line.count = 0;
        }
    }
    return FTH_OK;
}

static fth_status read_output(fth_trial *trial, bool *some)
{
    char bytes[65536];
    ssize_t count;
    while (trial->output >= 0 && (count = read(trial->output, bytes, sizeof bytes)) != 0) {
        if (count < 0)
            return errno == EAGAIN || errno == EINTR ? FTH_OK
                                                     : fth_fail(FTH_IO, "read the job's events: %s", strerror(errno));
        *some = true;
        if (fwrite(bytes, 1, (size_t)count, trial->copy) != (size_t)count || fflush(trial->copy) != 0)
            return fth_fail(FTH_IO, "write the job's events beside %s: %s", trial->log_path, strerror(errno));
        fth_status status = take_bytes(trial, bytes, (size_t)count);
        if (status != FTH_OK)
            return status;
    }
    if (trial->output >= 0)
        close(trial->output);
    trial->output = -1;
    return FTH_OK;
}

static fth_status read_board(fth_trial *trial)
{
    int64_t step = trial->board->step;
    trial->evaluating = trial->board->evaluating;
    if (isnan(trial->began_s) || step <= trial->step)
        return FTH_OK;
    if (isnan(trial->first_step_s))
        trial->first_step_s = fth_clock_seconds();
    trial->step = step;
    fth_status status =
        fth_grow(&trial->moments.at, trial->moments.count, &trial->moments.capacity, sizeof *trial->moments.at);
    if (status == FTH_OK)
        trial->moments.at[trial->moments.count++] = (fth_step_moment){fth_clock_seconds(), step};
    return status;
}

static void reap(fth_trial *trial)
{
    if (trial->ended || !fth_child_has_ended(trial->pid, &trial->exit))
        return;
    trial->ended = true;
    trial->ended_s = fth_clock_seconds();
}

fth_status fth_trial_look(fth_trial *trial, double seconds)
{
    fth_status status = FTH_OK;
    bool some = false;
    fth_deadline deadline = fth_deadline_in(seconds);
    do {
        bool was_ended = trial->ended;
        FTH_TRY(read_output(trial, &some));
        FTH_TRY(read_board(trial));
        reap(trial);
        some = some || trial->ended != was_ended;
        if (some || trial->ended)
            break;
        double left_s = fmin(fth_deadline_left_seconds(deadline), 0.01);
        struct pollfd output = {.fd = trial->output, .events = POLLIN};
        poll(&output, 1, (int)ceil(left_s * 1000)); /* a closed output is -1 here, and is passed over */
    } while (!fth_deadline_passed(deadline));
    if (trial->ended) { /* what it said last */
        FTH_TRY(read_output(trial, &some));
        FTH_TRY(read_board(trial));
    }
out:
    return status;
}

/* ---- afterwards ---- */

double fth_trial_time_of_step(const fth_trial *trial, int64_t step)
{
    if (step <= trial->begun_step || trial->moments.count == 0)
        return trial->began_s;
    for (size_t i = 0; i < trial->moments.count; i++)
        if (trial->moments.at[i].step >= step)
            return trial->moments.at[i].at_s;
    return trial->moments.at[trial->moments.count - 1].at_s;
}

int64_t fth_trial_count_in_log(const fth_trial *trial, const char *text)
{
    char *bytes = NULL;
    size_t size = 0;
    int64_t count = 0;
    if (fth_file_read_all(trial->log_path, MAX_LOG_BYTES, &bytes, &size) != FTH_OK)
        return 0;
    for (const char *at = bytes; (at = strstr(at, text)); at++)
        count++;
    free(bytes);
    return count;
}

char *fth_trial_last_words(const fth_trial *trial)
{
    char *bytes = NULL;
    size_t size = 0;
    if (fth_file_read_all(trial->log_path, MAX_LOG_BYTES, &bytes, &size) != FTH_OK)
        return fth_format("%s", "");
    while (size > 0 && bytes[size - 1] == '\n')
        bytes[--size] = '\0';
    const char *last = strrchr(bytes, '\n');
    char *words = fth_format("%s", last ? last + 1 : bytes);
    free(bytes);
    return words;
}

void fth_trial_close(fth_trial *trial)
{
    if (trial->pid > 0 && !trial->ended)
        fth_process_kill(trial->pid);
    if (trial->output >= 0)
        close(trial->output);
    if (trial->copy)
        fclose(trial->copy);
    if (trial->board)
        munmap((void *)trial->board, sizeof *trial->board);
    json_decref(trial->end);
    json_decref(trial->error);
    free(trial->line.text);
    free(trial->moments.at);
    free(trial->log_path);
    *trial = (fth_trial){.output = -1};
}
