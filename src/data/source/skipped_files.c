/* See skipped_files.h. */
#include "data/source/skipped_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* The last position up to `at` where a character begins. */
static size_t cut_before(const char *text, size_t at)
{
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
        at--;
    return at;
}

void fth_path_shorten(const char *path, char *text, size_t size)
{
    enum { HEAD = 70, TAIL = 60 };
    size_t length = strlen(path);
    if (length < size)
        snprintf(text, size, "%s", path);
    else
        snprintf(text, size, "%.*s…%.80s", (int)cut_before(path, HEAD), path, path + cut_before(path, length - TAIL));
}

int fth_skipped_files_named(const fth_skipped_files *skipped)
{
    return skipped->count < FTH_SKIPPED_NAMED ? (int)skipped->count : FTH_SKIPPED_NAMED;
}

/* Folders are walked in no particular order, so the names are sorted. */
void fth_skipped_files_add(fth_skipped_files *skipped, const char *path)
{
    char name[FTH_SKIPPED_NAME];
    int at = fth_skipped_files_named(skipped);

    fth_path_shorten(path, name, sizeof name);
    skipped->count++;
    while (at > 0 && strcmp(name, skipped->names[at - 1]) < 0) {
        if (at < FTH_SKIPPED_NAMED)
            memcpy(skipped->names[at], skipped->names[at - 1], FTH_SKIPPED_NAME);
        at--;
    }
    if (at < FTH_SKIPPED_NAMED)
        memcpy(skipped->names[at], name, FTH_SKIPPED_NAME);
}

char *fth_skipped_files_describe(const fth_skipped_files *skipped)
{
    char names[FTH_SKIPPED_NAMED * (FTH_SKIPPED_NAME + 2)] = "", more[64] = "";
    const int named = fth_skipped_files_named(skipped);
    size_t used = 0;
    for (int i = 0; i < named; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i == 0 ? ": " : ", ", skipped->names[i]);
    if (skipped->count > named)
        snprintf(more, sizeof more, " and %s more", FTH_COUNTED(skipped->count - named, NULL));
    return fth_format("skipped %s in formats that are not read%s%s", FTH_COUNTED(skipped->count, "file"), names, more);
}

json_t *fth_skipped_files_to_json(const fth_skipped_files *skipped)
{
    json_t *names = json_array();
    for (int i = 0; i < fth_skipped_files_named(skipped); i++) {
        char *name = fth_text_to_utf8(skipped->names[i]);
        json_array_append_new(names, json_string(name ? name : ""));
        free(name);
    }
    return json_pack("{s:I, s:o}", "count", (json_int_t)skipped->count, "names", names);
}
