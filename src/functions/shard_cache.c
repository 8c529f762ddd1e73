/* See shard_cache.h.
 *
 * A shard is FOLDER/<hash of the URL's public form>.shard: a header and the bytes as received. It
 * is written under a temporary name and renamed without a sync; the checksum detects what a crash
 * has torn. Image files that cannot be read from the archive are unpacked to FOLDER/<hash of URL
 * and ETag>.tar. A file's modification time is that of its last use.
 *
 *     nothing -> .tmp-... (grows) -> header with ETag, size and checksum -> renamed
 *                interrupted: removed at once, or by another process an hour later
 *
 * Bytes are received into a file and mapped, so that reading an archive takes no memory of its
 * own. */
#include "functions/shard_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "data/archive/archive_set.h"
#include "functions/shard_download.h"
#include "http/http.h"

enum { LEFTOVER_S = 3600 };
static const uint64_t default_limit_bytes = 400000000;

typedef struct shard_header {
    char magic[8];
    uint64_t size_bytes, hash; /* of the bytes that follow */
    char etag[128];
} shard_header;
static const char magic[8] = "fthshd1";

/* A shard's bytes, mapped; all zero: none. */
typedef struct shard_bytes {
    const uint8_t *mapping;
    size_t mapped_bytes;
    const uint8_t *bytes;
    size_t size_bytes;
    char etag[128];
} shard_bytes;

/* What the data set was opened from. */
typedef struct opened_from {
    char *url; /* public form; NULL: not open */
    char etag[128];
    int64_t first, count;
    bool ranged;
    fth_normalization normalization;
    int height, width;
} opened_from;

struct fth_shard_cache {
    char *path; /* NULL: shards are held in memory */
    int folder;
    uint64_t limit_bytes;
    unsigned serial;             /* of temporaries */
    fth_http_client *clients[2]; /* [1]: for foreign URLs; connections are not shared */
    fth_dataset *dataset;
    opened_from from;
};

/* ---- the cache ---- */

static void forget(fth_shard_cache *cache)
{
    fth_dataset_free(cache->dataset);
    free(cache->from.url);
    cache->dataset = NULL;
    cache->from = (opened_from){0};
}

/* Opens the folder, creating it for this user only. A folder that other users can write to, as
 * anyone can create in /tmp, is not used: they could choose the training data. Returns NULL or why
 * it is not used. */
static const char *open_folder(const char *path, int *folder)
{
    struct stat facts;
    if (mkdir(path, 0700) != 0 && errno == ENOENT && fth_folder_create(path) == FTH_OK)
        chmod(path, 0700);
    *folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*folder < 0 || fstat(*folder, &facts) != 0)
        return strerror(errno);
    if (facts.st_uid != geteuid())
        return "it belongs to another user";
    if (facts.st_mode & (S_IWGRP | S_IWOTH))
        return "other users may write to it";
    return faccessat(*folder, ".", W_OK | X_OK, AT_EACCESS) == 0 ? NULL : strerror(errno);
}

fth_status fth_shard_cache_open(const char *folder, uint64_t limit_bytes, fth_shard_cache **result)
{
    fth_status status = FTH_OK;
    fth_shard_cache *cache = NULL;

    FTH_TRY(fth_allocate(1, sizeof *cache, &cache));
    cache->folder = -1;
    cache->limit_bytes = limit_bytes > 0 ? limit_bytes : default_limit_bytes;
    cache->path = strdup(folder);
    FTH_REQUIRE(cache->path, FTH_NO_MEMORY, "no memory for a path");
    const char *unfit = open_folder(folder, &cache->folder);
    if (unfit) {
        fth_log_warning("cannot keep shards in %s: %s; they are fetched for every invocation", folder, unfit);
        free(cache->path);
        cache->path = NULL;
    }
    *result = cache;
    cache = NULL;

out:
    fth_shard_cache_free(cache);
    return status;
}

void fth_shard_cache_free(fth_shard_cache *cache)
{
    if (!cache)
        return;
    forget(cache);
    fth_http_client_free(cache->clients[0]);
    fth_http_client_free(cache->clients[1]);
    if (cache->folder >= 0)
        close(cache->folder);
    free(cache->path);
    free(cache);
}

/* "<32 hex digits>ENDING" */
static void name_file(const char *what, const char *more, const char *ending, char name[48])
{
    char hex[65], *text = fth_format("%s %s", what, more);
    fth_hex_sha256(text ? text : what, strlen(text ? text : what), hex);
    snprintf(name, 48, "%.32s%s", hex, ending);
    free(text);
}

/* ---- room ---- */

typedef struct cached_file {
    char name[64];
    struct timespec used;
    uint64_t size_bytes;
} cached_file;

static int compare_use(const void *a, const void *b)
{
    const struct timespec x = ((const cached_file *)a)->used, y = ((const cached_file *)b)->used;
    if (x.tv_sec != y.tv_sec)
        return x.tv_sec < y.tv_sec ? -1 : 1;
    return x.tv_nsec < y.tv_nsec ? -1 : x.tv_nsec > y.tv_nsec;
}

/* Whether name_file() made the name; other files in the folder are not removed. */
static bool is_cached_name(const char *name)
{
    return strspn(name, "0123456789abcdef") == 32 &&
           (strcmp(name + 32, ".shard") == 0 || strcmp(name + 32, ".tar") == 0);
}

/* Lists the cached files; removes old temporary files. */
static fth_status list_files(fth_shard_cache *cache, cached_file **files, size_t *count)
{
    fth_status status = FTH_OK;
    size_t capacity = 0;
    int again = openat(cache->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = again >= 0 ? fdopendir(again) : NULL;
    double now = fth_clock_wall_seconds();

    *count = 0;
    FTH_REQUIRE(folder, FTH_IO, "list %s: %s", cache->path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(folder));) {
        struct stat facts;
        bool temporary = strncmp(entry->d_name, FTH_FILE_TEMPORARY, strlen(FTH_FILE_TEMPORARY)) == 0;
        if ((!temporary && !is_cached_name(entry->d_name)) ||
            fstatat(cache->folder, entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(facts.st_mode))
            continue;
        if (temporary) {
            if (now - (double)facts.st_mtim.tv_sec > LEFTOVER_S)
                unlinkat(cache->folder, entry->d_name, 0);
            continue;
        }
        FTH_TRY(fth_grow(files, *count, &capacity, sizeof **files));
        cached_file *file = &(*files)[*count];
        if (snprintf(file->name, sizeof file->name, "%s", entry->d_name) >= (int)sizeof file->name)
            continue;
        file->used = facts.st_mtim;
        file->size_bytes = (uint64_t)facts.st_blocks * 512;
        (*count)++;
    }

out:
    if (folder)
        closedir(folder);
    else if (again >= 0)
        close(again);
    return status;
}

/* Removes the least recently used files until the rest is within the limit, except `kept` (may be
 * ""). Processes that have a removed file mapped keep it. */
static void make_room(fth_shard_cache *cache, const char *kept)
{
    cached_file *files = NULL;
    size_t count = 0;
    uint64_t total = 0;

    if (list_files(cache, &files, &count) != FTH_OK)
        fth_log_warning("%s", fth_error_message());
    for (size_t i = 0; i < count; i++)
        total += files[i].size_bytes;
    if (count > 0)
        qsort(files, count, sizeof *files, compare_use);
    for (size_t i = 0; i < count && total > cache->limit_bytes; i++) {
        if (strcmp(files[i].name, kept) == 0)
            continue;
        unlinkat(cache->folder, files[i].name, 0);
        total -= files[i].size_bytes;
    }
    free(files);
}

/* ---- bytes ---- */

static void release_bytes(shard_bytes *shard)
{
    if (shard->mapping)
        munmap((void *)shard->mapping, shard->mapped_bytes);
    *shard = (shard_bytes){0};
}

static bool map_descriptor(int descriptor, shard_bytes *shard)
{
    struct stat facts;
    if (fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size <= 0)
        return false;
    void *mapping = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapping == MAP_FAILED)
        return false;
    shard->mapping = mapping;
    shard->mapped_bytes = (size_t)facts.st_size;
    return true;
}

/* Finds a shard in the cache and verifies its checksum; false if there is none. */
static bool find_cached(fth_shard_cache *cache, const char *name, shard_bytes *shard)
{
    shard_header header;
    int descriptor = cache->path ? openat(cache->folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    bool good = descriptor >= 0 && map_descriptor(descriptor, shard) && shard->mapped_bytes > sizeof header;
    if (good) {
        memcpy(&header, shard->mapping, sizeof header);
        shard->bytes = shard->mapping + sizeof header;
        shard->size_bytes = shard->mapped_bytes - sizeof header;
        good = memcmp(header.magic, magic, sizeof magic) == 0 && header.size_bytes == shard->size_bytes &&
               memchr(header.etag, '\0', sizeof header.etag) && header.etag[0] &&
               fth_hash(shard->bytes, shard->size_bytes, 0) == header.hash;
    }
    if (good) {
        memcpy(shard->etag, header.etag, sizeof shard->etag);
        futimens(descriptor, NULL); /* marks it as just used */
    } else {
        release_bytes(shard);
    }
    if (descriptor >= 0)
        close(descriptor);
    return good;
}

/* ---- downloads ---- */

/* A file for a download. */
typedef struct spool {
    char temporary[64]; /* "": it has no name */
    int descriptor;
} spool;

static fth_status open_spool(fth_shard_cache *cache, spool *file)
{
    if (cache->path) {
        make_room(cache, "");
        snprintf(file->temporary, sizeof file->temporary, FTH_FILE_TEMPORARY "%ld-%u", (long)getpid(), cache->serial++);
        file->descriptor =
            openat(cache->folder, file->temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    } else {
        file->descriptor = memfd_create("shard", MFD_CLOEXEC);
    }
    if (file->descriptor < 0)
        return fth_fail(FTH_IO, "create a file for a shard in %s: %s", cache->path ? cache->path : "memory",
                        strerror(errno));
    return FTH_OK;
}

/* Maps the complete file, and renames it so that later invocations find it. */
static fth_status publish(fth_shard_cache *cache, spool *file, const char *name, const char *url, const char *etag,
                          shard_bytes *shard)
{
    fth_status status = FTH_OK;
    shard_header header = {0};

    FTH_REQUIRE(map_descriptor(file->descriptor, shard) && shard->mapped_bytes > sizeof header, FTH_CORRUPT,
                "%s: is empty", url);
    shard->bytes = shard->mapping + sizeof header;
    shard->size_bytes = shard->mapped_bytes - sizeof header;
    snprintf(shard->etag, sizeof shard->etag, "%s", etag);
    if (!*etag || !*file->temporary)
        goto out; /* it could not be revalidated later */
    memcpy(header.magic, magic, sizeof magic);
    memcpy(header.etag, shard->etag, sizeof header.etag);
    header.size_bytes = shard->size_bytes;
    header.hash = fth_hash(shard->bytes, shard->size_bytes, 0);
    FTH_REQUIRE(pwrite(file->descriptor, &header, sizeof header, 0) == (ssize_t)sizeof header &&
                    renameat(cache->folder, file->temporary, cache->folder, name) == 0,
                FTH_IO, "publish a shard in %s: %s", cache->path, strerror(errno));
    file->temporary[0] = '\0';
    make_room(cache, name);

out:
    return status;
}

static fth_status check_etag(const char *url, const char *etag, const char *wanted)
{
    if (!*wanted || strcmp(etag, wanted) == 0)
        return FTH_OK;
    return fth_fail(FTH_CORRUPT, "%s: has the ETag %s, not %s: it has been replaced since it was listed", url, etag,
                    wanted);
}

/* The bytes of a shard on a server, from the cache if they are there. */
static fth_status get_remote(fth_shard_cache *cache, const fth_shard_request *request, const char *public_url,
                             shard_bytes *shard, uint64_t *received_bytes)
{
    fth_status status = FTH_OK;
    spool file = {.descriptor = -1};
    char name[48], wanted[128], etag[128] = "", *shown_url = NULL;
    bool fresh = false;

    fth_plain_etag(request->etag, wanted);
    name_file(public_url, "", ".shard", name);
    if (find_cached(cache, name, shard) && *wanted && strcmp(wanted, shard->etag) == 0)
        return FTH_OK;
    shown_url = fth_http_harmless_url(request->url);
    FTH_REQUIRE(shown_url, FTH_NO_MEMORY, "no memory for an address");
    fth_http_client **client = &cache->clients[request->foreign];
    if (!*client)
        FTH_TRY(fth_http_client_open(
            &(fth_http_client_options){.attentive = true,
                                       .reach = request->foreign ? FTH_HTTP_ELSEWHERE : FTH_HTTP_NO_METADATA},
            client));
    FTH_TRY(open_spool(cache, &file));
    FTH_TRY(fth_shard_download(&(fth_shard_download_options){.client = *client,
                                                             .request = request,
                                                             .shown_url = shown_url,
                                                             .descriptor = file.descriptor,
                                                             .offset = sizeof(shard_header),
                                                             .limit_bytes = cache->limit_bytes,
                                                             .place = cache->path ? cache->path : "memory",
                                                             .cached_etag = shard->etag},
                               etag, &fresh, received_bytes));
    if (fresh) {
        release_bytes(shard);
        FTH_TRY(check_etag(shown_url, etag, wanted));
        FTH_TRY(publish(cache, &file, name, shown_url, etag, shard));
    }
    FTH_TRY(check_etag(shown_url, shard->etag, wanted));

out:
    if (file.descriptor >= 0)
        close(file.descriptor);
    if (*file.temporary)
        unlinkat(cache->folder, file.temporary, 0);
    free(shown_url);
    return status;
}

static fth_status get_local(const fth_shard_cache *cache, const char *url, shard_bytes *shard)
{
    fth_status status = FTH_OK;
    char *path = fth_http_unescape(url + strlen("file://"));
    struct stat facts;
    int descriptor = -1;

    FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory for a path");
    FTH_REQUIRE(*path == '/', FTH_INVALID, "%s: after file:// comes a path that begins with /", url);
    descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FTH_REQUIRE(descriptor >= 0 && fstat(descriptor, &facts) == 0, FTH_INVALID, "open %s: %s", path, strerror(errno));
    FTH_REQUIRE(S_ISREG(facts.st_mode), FTH_INVALID, "open %s: not a file", path);
    FTH_REQUIRE((uint64_t)facts.st_size <= cache->limit_bytes, FTH_INVALID,
                "%s has %" PRId64 " bytes, more than the %" PRIu64 " a shard may have", path, (int64_t)facts.st_size,
                cache->limit_bytes);
    FTH_REQUIRE(map_descriptor(descriptor, shard), FTH_CORRUPT, "%s: is empty", path);
    shard->bytes = shard->mapping;
    shard->size_bytes = shard->mapped_bytes;
    snprintf(shard->etag, sizeof shard->etag, "%" PRIu64 "-%" PRId64 "-%" PRId64 ".%09ld", (uint64_t)facts.st_ino,
             (int64_t)facts.st_size, (int64_t)facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec);

out:
    if (descriptor >= 0)
        close(descriptor);
    free(path);
    return status;
}

/* ---- data sets ---- */

static opened_from describe(const fth_shard_request *request, char *public_url, const char *etag)
{
    opened_from from = {.url = public_url,
                        .first = request->first,
                        .count = request->count,
                        .ranged = request->ranged,
                        .height = request->height,
                        .width = request->width};
    snprintf(from.etag, sizeof from.etag, "%s", etag);
    if (request->normalization)
        from.normalization = *request->normalization;
    return from;
}

static bool is_same(const opened_from *a, const opened_from *b)
{
    return a->url && b->url && strcmp(a->url, b->url) == 0 && *a->etag && strcmp(a->etag, b->etag) == 0 &&
           a->first == b->first && a->count == b->count && a->ranged == b->ranged && a->height == b->height &&
           a->width == b->width && a->normalization.channels == b->normalization.channels &&
           (a->normalization.channels == 0 || fth_normalization_equal(&a->normalization, &b->normalization));
}

static fth_status open_set(fth_shard_cache *cache, const fth_shard_request *request, const char *public_url,
                           const shard_bytes *shard, fth_dataset **dataset)
{
    char name[48], *unpacked = NULL, *shown = fth_http_harmless_url(public_url);
    name_file(public_url, shard->etag, ".tar", name);
    if (cache->path && *shard->etag)
        unpacked = fth_path_join(cache->path, name);
    fth_status status = fth_archive_set_open(shard->bytes, shard->size_bytes, shown ? shown : "a shard",
                                             &(fth_archive_set_options){.first = request->first,
                                                                        .count = request->count,
                                                                        .ranged = request->ranged,
                                                                        .normalization = request->normalization,
                                                                        .height = request->height,
                                                                        .width = request->width,
                                                                        .max_bytes = request->max_bytes,
                                                                        .unpacked = unpacked,
                                                                        .deadline = request->deadline,
                                                                        .stop = request->stop},
                                             dataset);
    if (status == FTH_OK && unpacked && fth_file_exists(unpacked)) {
        utimensat(cache->folder, name, NULL, 0);
        make_room(cache, name);
    }
    free(unpacked);
    free(shown);
    return status;
}

fth_status fth_shard_cache_get(fth_shard_cache *cache, const fth_shard_request *request, fth_dataset **dataset,
                               fth_shard_facts *facts)
{
    fth_status status = FTH_OK;
    double began_s = fth_clock_seconds();
    shard_bytes shard = {0};
    char *public_url = fth_address_public(request->url);
    opened_from from = {0};

    *facts = (fth_shard_facts){0};
    *dataset = NULL;
    FTH_REQUIRE(public_url, FTH_NO_MEMORY, "no memory for an address");
    FTH_REQUIRE(!request->foreign || strncmp(public_url, "file:", 5) != 0, FTH_INVALID,
                "%s: refused: the parameter server is on another machine and must not choose files of this one; keep "
                "shards in a bucket or on a web server",
                public_url);
    if (strncmp(public_url, "file://", 7) == 0)
        FTH_TRY(get_local(cache, public_url, &shard));
    else if (strncmp(public_url, "https://", 8) == 0 || strncmp(public_url, "http://", 7) == 0)
        FTH_TRY(get_remote(cache, request, public_url, &shard, &facts->received_bytes));
    else
        FTH_REQUIRE(false, FTH_INVALID, "%s is not the address of a shard; expected https://, http:// or file://",
                    public_url);
    from = describe(request, public_url, shard.etag);
    if (!is_same(&from, &cache->from)) {
        forget(cache); /* so that only one is in memory */
        FTH_TRY(open_set(cache, request, public_url, &shard, &cache->dataset));
        cache->from = from;
        public_url = NULL;
    }
    *dataset = cache->dataset;
    snprintf(facts->etag, sizeof facts->etag, "%s", shard.etag);
    facts->first = request->first;
    facts->count = fth_dataset_get_info(cache->dataset)->count[FTH_TRAIN];
    facts->seconds = fth_clock_seconds() - began_s;

out:
    release_bytes(&shard);
    free(public_url);
    return status;
}
