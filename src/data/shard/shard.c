/* See shard.h.
 *
 * The headers of a tar are as far apart as its images are large. One window of the tar is fetched
 * at a time: a small one if headers are far apart; it grows while headers are close together, as
 * reading on then costs less than another request.
 *
 * A WebDataset sample is a group of members with the same path up to the first dot of the name:
 * 000123.jpg and 000123.cls, which holds the number or the name of the class. Companions (.json,
 * .txt) are ignored; other members are kept, to be reported as skipped. */
#include "data/shard/shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/archive/blob.h"
#include "data/archive/remembered.h"
#include "data/archive/tar_scan.h"

enum { FIRST_WINDOW = 16 << 10, LEAST_WINDOW = 4 << 10, MOST_WINDOW = 256 << 10, MAX_LABEL = 200 };

void fth_shard_free(fth_shard *shard)
{
    free(shard->text.text);
    free(shard->members);
    *shard = (fth_shard){0};
}

static fth_status add_member(fth_shard *shard, const char *path, const char *label, uint64_t offset,
                             uint64_t size_bytes)
{
    fth_status status = FTH_OK;
    fth_shard_member member = {.offset = offset, .size_bytes = size_bytes};
    FTH_TRY(fth_text_block_add(&shard->text, path, strlen(path), &member.path));
    FTH_TRY(fth_text_block_add(&shard->text, label, strlen(label), &member.label));
    FTH_TRY(fth_grow(&shard->members, shard->count, &shard->capacity, sizeof *shard->members));
    shard->members[shard->count++] = member;
    shard->labelled = shard->labelled || *label;

out:
    return status;
}

/* ---- reading in place ---- */

typedef struct shard_window {
    fth_store *store;
    const char *key;
    fth_store_version version;
    uint64_t object_bytes;
    uint8_t *bytes;
    size_t capacity;
    uint64_t begin, end; /* what the window holds */
    size_t size_bytes;   /* of the next window */
} shard_window;

static fth_status window_at(void *context, uint64_t offset, size_t size_bytes, const uint8_t **bytes)
{
    fth_status status = FTH_OK;
    shard_window *window = context;
    if (offset >= window->begin && offset + size_bytes <= window->end) {
        *bytes = window->bytes + (offset - window->begin);
        return FTH_OK;
    }
    if (window->end > 0) {
        bool close_by = offset >= window->begin && offset <= window->end + window->size_bytes;
        window->size_bytes = close_by ? window->size_bytes * 2 : window->size_bytes / 2;
        window->size_bytes = window->size_bytes > MOST_WINDOW    ? MOST_WINDOW
                             : window->size_bytes < LEAST_WINDOW ? LEAST_WINDOW
                                                                 : window->size_bytes;
    }
    size_t wanted = size_bytes > window->size_bytes ? size_bytes : window->size_bytes;
    if (wanted > window->object_bytes - offset)
        wanted = (size_t)(window->object_bytes - offset);
    if (wanted > window->capacity) {
        free(window->bytes);
        window->bytes = NULL;
        window->capacity = 0;
        FTH_TRY(fth_allocate(wanted, 1, &window->bytes));
        window->capacity = wanted;
    }
    window->begin = window->end = 0;
    FTH_TRY(fth_store_get_range(window->store, window->key, offset, window->bytes, wanted, &window->version));
    window->begin = offset;
    window->end = offset + wanted;
    *bytes = window->bytes;

out:
    return status;
}

/* ---- members and their classes ---- */

/* The class in a .cls file, for images with the same path up to the first dot of the name. */
typedef struct shard_label {
    char *base;
    char label[MAX_LABEL + 1];
} shard_label;

typedef struct shard_scan {
    fth_shard *shard;
    shard_window *window;
    const fth_stop *stop;
    shard_label *labels;
    size_t label_count, label_capacity;
} shard_scan;

static size_t base_length(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return (size_t)(name - path) + strcspn(name, ".");
}

static int compare_bases(const void *a, const void *b)
{
    return strcmp(((const shard_label *)a)->base, ((const shard_label *)b)->base);
}

/* Assigns classes to images. The .cls file may precede or follow its image, at any distance. */
static fth_status label_images(shard_scan *scan)
{
    fth_status status = FTH_OK;
    fth_shard *shard = scan->shard;
    shard_label wanted = {0};

    if (scan->label_count == 0)
        return FTH_OK;
    qsort(scan->labels, scan->label_count, sizeof *scan->labels, compare_bases);
    shard->labelled = true;
    for (size_t i = 0; i < shard->count; i++) {
        const char *path = shard->text.text + shard->members[i].path;
        wanted.base = strndup(path, base_length(path));
        FTH_REQUIRE(wanted.base, FTH_NO_MEMORY, "no memory for a path");
        const shard_label *found =
            bsearch(&wanted, scan->labels, scan->label_count, sizeof *scan->labels, compare_bases);
        free(wanted.base);
        if (found)
            FTH_TRY(fth_text_block_add(&shard->text, found->label, strlen(found->label), &shard->members[i].label));
    }

out:
    return status;
}

static fth_status read_label(shard_scan *scan, const fth_tar_member *member)
{
    fth_status status = FTH_OK;
    const uint8_t *bytes = NULL;
    FTH_REQUIRE(member->size_bytes > 0 && member->size_bytes <= MAX_LABEL, FTH_CORRUPT, "%s holds no class",
                member->path);
    FTH_TRY(window_at(scan->window, member->offset, (size_t)member->size_bytes, &bytes));
    size_t begin = 0, end = (size_t)member->size_bytes;
    while (begin < end && bytes[begin] <= ' ')
        begin++;
    while (end > begin && bytes[end - 1] <= ' ')
        end--;
    for (size_t i = begin; i < end; i++)
        FTH_REQUIRE(bytes[i] >= ' ' && bytes[i] != 0x7f && bytes[i] != '/', FTH_CORRUPT,
                    "%s holds no number or name of a class", member->path);
    FTH_REQUIRE(end > begin, FTH_CORRUPT, "%s holds no class", member->path);
    FTH_TRY(fth_grow(&scan->labels, scan->label_count, &scan->label_capacity, sizeof *scan->labels));
    shard_label *label = &scan->labels[scan->label_count];
    memcpy(label->label, bytes + begin, end - begin);
    label->label[end - begin] = '\0';
    label->base = strndup(member->path, base_length(member->path));
    FTH_REQUIRE(label->base, FTH_NO_MEMORY, "no memory for a path");
    scan->label_count++;

out:
    return status;
}

static bool is_plain_text(const char *path)
{
    for (; *path; path++)
        if ((unsigned char)*path < ' ')
            return false;
    return true;
}

static fth_status meet_member(void *context, const fth_tar_member *member)
{
    fth_status status = FTH_OK;
    shard_scan *scan = context;
    const char *slash = strrchr(member->path, '/'), *name = slash ? slash + 1 : member->path;
    bool label = strcmp(name + strcspn(name, "."), ".cls") == 0;

    FTH_TRY(fth_check_stop(scan->stop, scan->window->key));
    if (member->kind != FTH_TAR_FILE || !is_plain_text(member->path) ||
        (!label && !fth_image_name_fits(name) && !fth_image_path_is_skipped(name)))
        return FTH_OK;
    if (label)
        FTH_TRY(read_label(scan, member));
    else
        FTH_TRY(add_member(scan->shard, member->path, "", member->offset, member->size_bytes));

out:
    return status;
}

/* ---- the cached index: "OFFSET SIZE LABEL<tab>PATH" a line ---- */

static const char first_line[] = "farthing-shard 2\n";

static void remember(const fth_shard *shard, const char *path)
{
    char *text = NULL;
    size_t size_bytes = 0;
    FILE *stream = open_memstream(&text, &size_bytes);
    if (!stream)
        return;
    fputs(first_line, stream);
    for (size_t i = 0; i < shard->count; i++) {
        const fth_shard_member *member = &shard->members[i];
        fprintf(stream, "%" PRIu64 " %" PRIu64 " %s\t%s\n", member->offset, member->size_bytes,
                shard->text.text + member->label, shard->text.text + member->path);
    }
    if (fclose(stream) == 0 && fth_remembered_write(path, text, size_bytes) != FTH_OK)
        fth_log_warning("cannot remember what is in a tar: %s", fth_error_message());
    free(text);
}

static bool recall(const char *path, uint64_t object_bytes, fth_shard *shard)
{
    char *text = fth_remembered_read(path), *line = text ? text + strlen(first_line) : NULL;
    bool good = text && strncmp(text, first_line, strlen(first_line)) == 0;
    while (good && *line) {
        char *end = strchr(line, '\n'), *rest = NULL;
        uint64_t offset = strtoull(line, &rest, 10), size_bytes = strtoull(rest, &rest, 10);
        char *tab = *rest == ' ' ? strchr(rest, '\t') : NULL;
        good = end && tab && tab < end && offset <= object_bytes && size_bytes <= object_bytes - offset;
        if (!good)
            break;
        *end = *tab = '\0';
        good = add_member(shard, tab + 1, rest + 1, offset, size_bytes) == FTH_OK;
        line = end + 1;
    }
    free(text);
    if (!good)
        fth_shard_free(shard);
    return good;
}

fth_status fth_shard_read(fth_store *store, const char *key, uint64_t size_bytes, const char *version,
                          const fth_stop *stop, fth_shard *shard)
{
    fth_status status = FTH_OK;
    shard_window window = {.store = store, .key = key, .object_bytes = size_bytes, .size_bytes = FIRST_WINDOW};
    shard_scan scan = {.shard = shard, .window = &window, .stop = stop};
    fth_tar_input input = {.size_bytes = size_bytes, .at = window_at, .context = &window};
    char *path = NULL, *name = fth_format("%s/%s", fth_store_url(store), key);
    char *what = fth_format("%s %" PRIu64 " %s", name, size_bytes, version);

    FTH_REQUIRE(name && what, FTH_NO_MEMORY, "no memory for a path");
    snprintf(window.version.text, sizeof window.version.text, "%s", version);
    if (*version) {
        FTH_TRY(fth_remembered_path("shards", what, &path));
        if (recall(path, size_bytes, shard))
            goto out;
    }
    FTH_TRY(fth_tar_scan(&input, name, meet_member, &scan));
    FTH_TRY(label_images(&scan));
    if (path)
        remember(shard, path);

out:
    for (size_t i = 0; i < scan.label_count; i++)
        free(scan.labels[i].base);
    free(scan.labels);
    free(window.bytes);
    free(name);
    free(what);
    free(path);
    return status;
}
