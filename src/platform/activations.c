/* See activations.h. */
#include "platform/activations.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "platform/files.h"

static const size_t max_log_bytes = 12 << 20; /* of a file; instance.c bounds it too */

fth_status fth_activation_make_id(bool lambda, char id[FTH_ACTIVATION_ID])
{
    char hex[33];
    fth_status status = fth_make_id(16, hex);
    if (status == FTH_OK && lambda) /* a random UUID: version 4, variant 8 to b */
        snprintf(id, FTH_ACTIVATION_ID, "%.8s-%.4s-4%.3s-%c%.3s-%.12s", hex, hex + 8, hex + 13,
                 "89ab"[fth_hex_digit(hex[16]) & 3], hex + 17, hex + 20);
    else if (status == FTH_OK)
        snprintf(id, FTH_ACTIVATION_ID, "%s", hex);
    return status;
}

static bool id_is_valid(const char *id)
{
    size_t length = strlen(id);
    return length >= 32 && length < FTH_ACTIVATION_ID && strspn(id, "0123456789abcdef-") == length;
}

static char *path_of(const char *folder, const char *id, const char *file)
{
    return fth_format("%s/activations/%s%s%s", folder, id, *file ? "/" : "", file);
}

fth_status fth_activation_write(const char *folder, const char *id, const json_t *record)
{
    char *place = path_of(folder, id, ""), *file = path_of(folder, id, "activation.json");
    fth_status status = fth_folder_create(place);
    if (status == FTH_OK)
        status = fth_json_write(file, record);
    free(place);
    free(file);
    return status;
}

/* A running one whose process is gone has failed. */
static void mark_if_lost(json_t *record)
{
    if (strcmp(fth_json_text(record, "state", ""), "running") != 0 ||
        fth_owner_is_alive(fth_json_text(record, "owner", "")))
        return;
    json_object_set_new(record, "state", json_string("failed"));
    json_object_set_new(record, "kind", json_string("lost"));
    json_object_set_new(record, "error", json_string("the platform was ended while the function ran; invoke it again"));
}

fth_status fth_activation_read(const char *folder, const char *id, json_t **record)
{
    *record = NULL;
    char *file = id_is_valid(id) ? path_of(folder, id, "activation.json") : NULL;
    fth_status status =
        fth_file_exists(file) ? fth_json_read(file, record) : fth_fail(FTH_INVALID, "no activation %s", id);
    if (status == FTH_OK)
        mark_if_lost(*record);
    free(file);
    return status;
}

/* ---- lists ---- */

typedef struct dated {
    char id[FTH_ACTIVATION_ID];
    struct timespec at;
} dated;

static int newest_first(const void *a, const void *b)
{
    const struct timespec *first = &((const dated *)a)->at, *second = &((const dated *)b)->at;
    if (first->tv_sec != second->tv_sec)
        return first->tv_sec < second->tv_sec ? 1 : -1;
    return first->tv_nsec == second->tv_nsec ? 0 : first->tv_nsec < second->tv_nsec ? 1 : -1;
}

/* All activations, by the last write of their records; free() it. */
static fth_status find_all(const char *folder, dated **found, size_t *count)
{
    fth_status status = FTH_OK;
    size_t capacity = 0;
    char *place = fth_path_join(folder, "activations");
    DIR *directory = place ? opendir(place) : NULL;

    *found = NULL;
    *count = 0;
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        struct stat facts;
        if (!id_is_valid(entry->d_name))
            continue;
        char *file = path_of(folder, entry->d_name, "activation.json");
        bool there = file && stat(file, &facts) == 0;
        free(file);
        if (!there)
            continue;
        FTH_TRY(fth_grow(found, *count, &capacity, sizeof **found));
        dated *next = &(*found)[(*count)++];
        memcpy(next->id, entry->d_name, strlen(entry->d_name) + 1);
        next->at = facts.st_mtim;
    }
    if (*count > 0)
        qsort(*found, *count, sizeof **found, newest_first);

out:
    if (directory)
        closedir(directory);
    free(place);
    return status;
}

fth_status fth_activation_list(const char *folder, const char *action, size_t skip, size_t limit, json_t **records)
{
    dated *all = NULL;
    size_t count = 0;
    fth_status status = find_all(folder, &all, &count);
    *records = json_array();
    for (size_t i = 0; status == FTH_OK && i < count && json_array_size(*records) < limit; i++) {
        json_t *record = NULL;
        bool fits = fth_activation_read(folder, all[i].id, &record) == FTH_OK &&
                    (!action || strcmp(fth_json_text(record, "action", ""), action) == 0);
        if (fits && skip > 0)
            skip--;
        else if (fits)
            json_array_append(*records, record);
        json_decref(record);
    }
    free(all);
    return status;
}

void fth_activation_prune(const char *folder, size_t keep)
{
    dated *all = NULL;
    size_t count = 0;
    if (find_all(folder, &all, &count) == FTH_OK)
        for (size_t i = keep; i < count; i++) {
            json_t *record = NULL;
            char *place = path_of(folder, all[i].id, "");
            if (fth_activation_read(folder, all[i].id, &record) == FTH_OK &&
                strcmp(fth_json_text(record, "state", ""), "running") != 0)
                fth_remove_tree(place);
            json_decref(record);
            free(place);
        }
    free(all);
}

/* ---- logs ---- */

/* "" if there is none. */
static char *read_log(const char *folder, const char *id, const char *name)
{
    char *path = path_of(folder, id, name), *raw = NULL, *text = NULL;
    size_t size;
    if (fth_file_exists(path) && fth_file_read_all(path, max_log_bytes, &raw, &size) == FTH_OK) {
        for (size_t i = 0; i < size; i++)
            if (raw[i] == '\0')
                raw[i] = ' ';
        text = fth_text_to_utf8(raw);
    }
    free(path);
    free(raw);
    return text ? text : strdup("");
}

fth_status fth_activation_log_lines(const char *folder, const char *id, json_t **lines)
{
    static const char *const streams[] = {"stdout", "stderr"};
    json_t *record = NULL;
    char time[40];
    fth_status status = fth_activation_read(folder, id, &record);

    *lines = json_array();
    fth_clock_format_utc(json_number_value(json_object_get(record, "end")), time, sizeof time);
    json_decref(record);
    for (size_t i = 0; status == FTH_OK && i < FTH_COUNT_OF(streams); i++) {
        char file[16], *text, *rest;
        snprintf(file, sizeof file, "%s.log", streams[i]);
        rest = text = read_log(folder, id, file);
        for (char *line; rest && *rest && (line = strsep(&rest, "\n"));) {
            char *whole = fth_format("%s %s: %s", time, streams[i], line);
            json_array_append_new(*lines, json_string(whole ? whole : ""));
            free(whole);
        }
        free(text);
    }
    return status;
}

/* "REPORT RequestId: ...", which ends Lambda's logs. */
static char *report_line(const json_t *record, const char *id)
{
    double duration_ms = json_number_value(json_object_get(record, "duration_s")) * 1000;
    const json_t *init = json_object_get(record, "init_s"), *peak = json_object_get(record, "peak_bytes");
    char start[64] = "", used[64] = "";
    if (json_is_number(init))
        snprintf(start, sizeof start, "\tInit Duration: %.2f ms", json_number_value(init) * 1000);
    if (json_is_number(peak))
        snprintf(used, sizeof used, "\tMax Memory Used: %.0f MB", ceil(json_number_value(peak) / (1 << 20)));
    return fth_format("REPORT RequestId: %s\tDuration: %.2f ms\tBilled Duration: %.0f ms\tMemory Size: %lld MB%s%s\n",
                      id, duration_ms, ceil(duration_ms),
                      (long long)json_integer_value(json_object_get(record, "memory_mb")), used, start);
}

fth_status fth_activation_log_text(const char *folder, const char *id, char **text)
{
    json_t *record = NULL;
    fth_status status = fth_activation_read(folder, id, &record);

    *text = NULL;
    if (status != FTH_OK)
        return status;
    char *output = read_log(folder, id, "stdout.log"), *messages = read_log(folder, id, "stderr.log");
    if (strcmp(fth_json_text(record, "contract", ""), "lambda") == 0) {
        char *report = report_line(record, id);
        *text = fth_format("START RequestId: %s Version: $LATEST\n%s%sEND RequestId: %s\n%s", id, output ? output : "",
                           messages ? messages : "", id, report ? report : "");
        free(report);
    } else {
        *text = fth_format("%s%s", output ? output : "", messages ? messages : "");
    }
    free(output);
    free(messages);
    json_decref(record);
    return *text ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for logs");
}
