/* A run's use of a batch cache: hits, cost, and where data was decoded. Events count from the start
 * of a process, so those of a resumed run are added up. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "base/json.h"
#include "report/report_internal.h"

typedef struct cache_figures {
    const char *form, *share, *why;
    double hits, waits, misses, corrupt, images_read_directly, bytes, decoded_for_it, decoded_by_others;
    double wait_s, fetch_s, decode_s, usd;
} cache_figures;

typedef struct figure_row {
    const char *key;
    size_t offset;
} figure_row;
#define ROW(member)                                                                                                    \
    {                                                                                                                  \
#member, offsetof(cache_figures, member)                                                                       \
    }
static const figure_row rows[] = {ROW(hits),           ROW(waits),
                                  ROW(misses),         ROW(corrupt),
                                  ROW(bytes),          ROW(images_read_directly),
                                  ROW(decoded_for_it), ROW(decoded_by_others),
                                  ROW(wait_s),         ROW(fetch_s),
                                  ROW(decode_s),       ROW(usd)};

static double *figure(cache_figures *figures, const figure_row *row)
{
    return (double *)((char *)figures + row->offset);
}

static void add_event(const json_t *event, cache_figures *figures)
{
    for (size_t i = 0; event && i < FTH_COUNT_OF(rows); i++)
        *figure(figures, &rows[i]) += json_number_value(json_object_get(event, rows[i].key));
    if (event) {
        figures->form = json_string_value(json_object_get(event, "form"));
        figures->share = json_string_value(json_object_get(event, "share"));
        figures->why = json_string_value(json_object_get(event, "why"));
    }
}

/* False if the run had no batch cache. */
static bool add_up(const fth_record_summary *run, cache_figures *figures)
{
    size_t i;
    const json_t *event, *latest = NULL;
    bool found = false;
    *figures = (cache_figures){0};
    json_array_foreach(run->events, i, event)
    {
        const char *name = json_string_value(json_object_get(event, "event"));
        if (!name)
            continue;
        if (strcmp(name, "resume") == 0) {
            add_event(latest, figures);
            latest = NULL;
        } else if (strcmp(name, "batch_cache") == 0) {
            latest = event;
            found = true;
        }
    }
    add_event(latest, figures);
    return found;
}

static fth_status add_line(fth_table *table, const char *name, char *text)
{
    fth_status status = text ? fth_table_add_row(table, (const char *[]){name, text})
                             : fth_fail(FTH_NO_MEMORY, "no memory for the report");
    free(text);
    return status;
}

static char *describe_time(double seconds)
{
    char text[64];
    fth_duration_format(seconds, text, sizeof text);
    return fth_format("%s", text);
}

/* The reason begins with the cache format that it is about. */
static const char *without_form(const cache_figures *figures)
{
    size_t length = figures->form ? strlen(figures->form) : 0;
    bool named =
        length > 0 && strncmp(figures->why, figures->form, length) == 0 && strncmp(figures->why + length, ": ", 2) == 0;
    return named ? figures->why + length + 2 : figures->why;
}

static fth_status add_lines(fth_table *table, const cache_figures *figures)
{
    fth_status status = FTH_OK;
    char bytes[64];
    const double asked = figures->hits + figures->waits + figures->misses;

    fth_text_bytes((int64_t)figures->bytes, bytes, sizeof bytes);
    FTH_TRY(add_line(
        table, "cached",
        fth_format("%s (share=%s)", figures->form ? figures->form : "-", figures->share ? figures->share : "-")));
    if (figures->why && *figures->why)
        FTH_TRY(add_line(table, "because", fth_format("%s", without_form(figures))));
    FTH_TRY(add_line(table, "there when needed",
                     fth_format("%s of %s (%.1f %%)", FTH_COUNTED(figures->hits, NULL), FTH_COUNTED(asked, NULL),
                                asked > 0 ? 100 * figures->hits / asked : 0)));
    FTH_TRY(add_line(table, "waited for", fth_format("%s", FTH_COUNTED(figures->waits, NULL))));
    FTH_TRY(add_line(table, "read directly",
                     fth_format("%s, %s%s", FTH_COUNTED(figures->misses, NULL),
                                FTH_COUNTED(figures->images_read_directly, "image"),
                                figures->corrupt > 0 ? "; some entries were damaged" : "")));
    FTH_TRY(add_line(table, "from the cache", fth_format("%s", bytes)));
    FTH_TRY(add_line(table, "waiting for the cache", describe_time(figures->wait_s)));
    FTH_TRY(add_line(table, "fetched by itself", describe_time(figures->fetch_s)));
    FTH_TRY(add_line(table, "decoded by itself", describe_time(figures->decode_s)));
    FTH_TRY(add_line(table, "decoded for it",
                     fth_format("%s; it also used %s that were decoded for other jobs",
                                FTH_COUNTED(figures->decoded_for_it, "image"),
                                FTH_COUNTED(figures->decoded_by_others, NULL))));
    FTH_TRY(add_line(table, "cache and functions", fth_format("$%.4f", figures->usd)));

out:
    return status;
}

fth_status fth_report_data(FILE *output, const fth_record_summary *run)
{
    fth_status status = FTH_OK;
    fth_table *table = NULL;
    cache_figures figures;

    if (!add_up(run, &figures))
        return FTH_OK;
    FTH_TRY(FTH_TABLE(&table, "data, through the batch cache", ""));
    FTH_TRY(add_lines(table, &figures));
    fth_table_print(output, table);
    fputc('\n', output);

out:
    fth_table_free(table);
    return status;
}

json_t *fth_report_data_json(const fth_record_summary *run)
{
    cache_figures figures;
    if (!add_up(run, &figures))
        return NULL;
    json_t *json = json_pack("{s:s?, s:s?, s:s?}", "form", figures.form, "share", figures.share, "why", figures.why);
    for (size_t i = 0; json && i < FTH_COUNT_OF(rows); i++)
        fth_json_set_number(json, rows[i].key, *figure(&figures, &rows[i]));
    return json;
}
