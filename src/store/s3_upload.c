/* See s3_internal.h: a note of an upload in parts, so that the next try goes on where this one was
 * stopped.
 *
 *     ~/.cache/farthing/uploads/<hash of store and key>
 *         upload <id> <tree>          what is being uploaded: the checksum of all the bytes
 *         part <number> <etag>        done
 *
 * Lines are appended as parts get done; a torn last line is passed over. The note is locked while
 * in use, and removed when the upload is complete. It holds no secrets. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "store/s3_internal.h"

enum { MAX_NOTE_BYTES = 4 << 20, MAX_ID_BYTES = 1024, ETAG_BYTES = 96 };

struct fth_s3_upload {
    char *path;
    int descriptor; /* locked */
    char *stale;
    char (*etags)[ETAG_BYTES];
    uint64_t parts;
    pthread_mutex_t mutex;
};

static char *note_path(const fth_store *store, const char *key)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *folder = cache && *cache ? fth_format("%s/farthing/uploads", cache)
                   : home && *home ? fth_format("%s/.cache/farthing/uploads", home)
                                   : NULL;
    if (!folder)
        return NULL;
    char hex[65], *name = fth_format("%s\n%s", fth_store_url(store), key), *path = NULL;
    fth_hex_sha256(name, strlen(name), hex);
    if (fth_folder_create(folder) == FTH_OK)
        path = fth_format("%s/%.32s", folder, hex);
    free(name);
    free(folder);
    return path;
}

/* Reads a note's lines: the id if it is of the same bytes, else it is stale; and the parts that are
 * done. */
static void read_note(fth_s3_upload *upload, const char *text, const char *tree, char **id)
{
    char noted_id[MAX_ID_BYTES + 1], noted_tree[ETAG_BYTES], etag[ETAG_BYTES];
    uint64_t part;
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) { /* the torn last has no end */
        char *copy = strndup(line, (size_t)(end - line));
        if (copy && sscanf(copy, "upload %1024s %95s", noted_id, noted_tree) == 2) {
            free(*id);
            *id = NULL;
            free(upload->stale);
            upload->stale = NULL;
            if (strcmp(noted_tree, tree) == 0)
                *id = strdup(noted_id);
            else
                upload->stale = strdup(noted_id);
        } else if (copy && *id && sscanf(copy, "part %" SCNu64 " %95s", &part, etag) == 2 && part < upload->parts) {
            snprintf(upload->etags[part], ETAG_BYTES, "%s", etag);
        }
        free(copy);
    }
}

void fth_s3_upload_open(fth_store *store, const char *key, const char *tree, uint64_t parts, fth_s3_upload **result,
                        char **id)
{
    fth_s3_upload *upload = NULL;
    char *path = note_path(store, key), *text = NULL;
    size_t size_bytes = 0;
    *result = NULL;
    *id = NULL;
    int descriptor = path ? open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (descriptor < 0 || flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
        fth_log_debug("no note of the upload of %s is kept: %s", key, strerror(errno));
        goto out;
    }
    if (fth_allocate(1, sizeof *upload, &upload) != FTH_OK ||
        fth_allocate((size_t)parts, ETAG_BYTES, &upload->etags) != FTH_OK)
        goto out;
    upload->parts = parts;
    upload->descriptor = descriptor;
    upload->path = path;
    pthread_mutex_init(&upload->mutex, NULL);
    if (fth_file_read_all(path, MAX_NOTE_BYTES, &text, &size_bytes) == FTH_OK)
        read_note(upload, text, tree, id);
    *result = upload;
    upload = NULL;
    path = NULL;
    descriptor = -1;

out:
    if (upload)
        free(upload->etags);
    free(upload);
    if (descriptor >= 0)
        close(descriptor);
    free(text);
    free(path);
}

const char *fth_s3_upload_stale(const fth_s3_upload *upload)
{
    return upload ? upload->stale : NULL;
}

const char *fth_s3_upload_part(const fth_s3_upload *upload, uint64_t part)
{
    return upload && part < upload->parts && upload->etags[part][0] ? upload->etags[part] : NULL;
}

static void append(fth_s3_upload *upload, char *line)
{
    pthread_mutex_lock(&upload->mutex);
    if (line && write(upload->descriptor, line, strlen(line)) < 0)
        fth_log_debug("write %s: %s", upload->path, strerror(errno)); /* then that part goes again, no more */
    pthread_mutex_unlock(&upload->mutex);
    free(line);
}

void fth_s3_upload_begin(fth_s3_upload *upload, const char *tree, const char *id)
{
    if (!upload)
        return;
    memset(upload->etags, 0, (size_t)upload->parts * ETAG_BYTES);
    if (ftruncate(upload->descriptor, 0) == 0)
        append(upload, fth_format("upload %s %s\n", id, tree));
}

void fth_s3_upload_note(fth_s3_upload *upload, uint64_t part, const char *etag)
{
    if (upload)
        append(upload, fth_format("part %" PRIu64 " %s\n", part, etag));
}

void fth_s3_upload_forget(fth_s3_upload *upload)
{
    if (upload)
        unlink(upload->path);
}

void fth_s3_upload_free(fth_s3_upload *upload)
{
    if (!upload)
        return;
    close(upload->descriptor); /* unlocks */
    pthread_mutex_destroy(&upload->mutex);
    free(upload->path);
    free(upload->stale);
    free(upload->etags);
    free(upload);
}
