/* See local_token.h. Only the holder of its lock writes or removes a token's file, and only while
 * the file still is the one that its name leads to. */
#include "http/local_token.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/private_folder.h"
#include "http/http.h"

#define PREFIX "token-"
#define HEADER "Authorization: Bearer "
enum { FOLDERS = 2, LINE_BYTES = sizeof HEADER - 1 + FTH_LOCAL_SECRET + 1 };

struct fth_local_token {
    int fd; /* locked */
    char *path;
    char secret[FTH_LOCAL_SECRET + 1];
};

/* ---- where ---- */

/* The folder to try first, then the other; NULL: there is none. free() it. Functions and cron jobs
 * have an environment of their own, and a runtime folder ends with the user's last session: /tmp is
 * the place that all of them share. */
static char *name_folder(int index)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (index == 0)
        return fth_format("/tmp/farthing-%lu", (unsigned long)geteuid());
    return runtime && *runtime == '/' ? fth_format("%s/farthing", runtime) : NULL;
}

/* The one that a server on `address` listens at (server.c), as a number. */
static fth_status resolve(const char *address, char number[FTH_MAX_LOCAL_ADDRESS + 1])
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int error = getaddrinfo(address, NULL, &hints, &found);
    if (error == 0)
        error =
            getnameinfo(found->ai_addr, found->ai_addrlen, number, FTH_MAX_LOCAL_ADDRESS + 1, NULL, 0, NI_NUMERICHOST);
    if (found)
        freeaddrinfo(found);
    return error == 0 ? FTH_OK : fth_fail(FTH_INVALID, "address %s: %s", address, gai_strerror(error));
}

/* `address` is a number. free() it. */
static char *name_file(const char *folder, const char *address, int port)
{
    struct stat network = {0};
    (void)!stat("/proc/self/ns/net", &network);
    uint64_t place = (uint64_t)network.st_ino;
    uint64_t hash = fth_hash(address, strlen(address), fth_hash(&place, sizeof place, 0));
    return fth_format("%s/" PREFIX "%d-%08x", folder, port, (unsigned)(hash & UINT32_MAX));
}

/* Opens a token's file if it is this user's, and no other user's by a link. */
static int open_file(const char *path, int flags)
{
    struct stat facts;
    int fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd >= 0 && fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == geteuid() &&
        (facts.st_mode & 077) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool is_at(int fd, const char *path)
{
    struct stat own, named;
    return fstat(fd, &own) == 0 && lstat(path, &named) == 0 && own.st_ino == named.st_ino && own.st_dev == named.st_dev;
}

/* ---- the server's side ---- */

/* Opens and locks the file, made if need be; -1: another process has it. */
static int lock_file(const char *path)
{
    for (int tries = 0; tries < 100; tries++) {
        int fd = open_file(path, O_RDWR | O_CREAT);
        if (fd < 0)
            return -1;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_at(fd, path))
            return fd;
        bool gone = !is_at(fd, path);
        close(fd);
        /* A client that looks whether the server lives has a lock for a moment. */
        if (!gone)
            fth_sleep(0.002);
    }
    return -1;
}

/* Removes what killed servers have left. */
static void sweep(const char *folder)
{
    DIR *entries = opendir(folder);
    for (const struct dirent *each; entries && (each = readdir(entries));) {
        if (strncmp(each->d_name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        char *path = fth_path_join(folder, each->d_name);
        int fd = path ? open_file(path, O_RDWR) : -1;
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && is_at(fd, path))
            unlink(path);
        if (fd >= 0)
            close(fd);
        free(path);
    }
    if (entries)
        closedir(entries);
}

static fth_status choose_folder(char **folder)
{
    fth_status status = FTH_OK;
    for (int i = 0; i < FOLDERS; i++) {
        *folder = name_folder(i);
        if (!*folder)
            continue;
        status = fth_folder_create_private(*folder);
        if (status == FTH_OK)
            return FTH_OK;
        free(*folder);
        *folder = NULL;
    }
    return fth_fail_within(FTH_INVALID, "no folder for the token of a server without keys");
}

fth_status fth_local_token_create(const char *address, int port, fth_local_token **result)
{
    fth_status status = FTH_OK;
    fth_local_token *token = NULL;
    unsigned char random[FTH_LOCAL_SECRET / 2];
    char *folder = NULL, line[LINE_BYTES + 1] = "", number[FTH_MAX_LOCAL_ADDRESS + 1];

    *result = NULL;
    FTH_TRY(resolve(address, number));
    FTH_TRY(fth_allocate(1, sizeof *token, &token));
    token->fd = -1;
    FTH_TRY(choose_folder(&folder));
    sweep(folder);
    token->path = name_file(folder, number, port);
    FTH_REQUIRE(token->path, FTH_NO_MEMORY, "no memory for a path");
    token->fd = lock_file(token->path);
    FTH_REQUIRE(token->fd >= 0, FTH_IO,
                "cannot serve on %s port %d: %s is in use by another server; stop it, or choose another --port",
                address, port, token->path);
    FTH_REQUIRE(RAND_bytes(random, sizeof random) == 1, FTH_IO, "no random numbers for a token");
    fth_hex_encode(random, sizeof random, token->secret);
    snprintf(line, sizeof line, HEADER "%s\n", token->secret);
    FTH_REQUIRE(ftruncate(token->fd, 0) == 0 && write(token->fd, line, LINE_BYTES) == LINE_BYTES, FTH_IO,
                "write %s: %s", token->path, strerror(errno));
    *result = token;
    token = NULL;

out:
    fth_wipe(line, sizeof line);
    fth_wipe(random, sizeof random);
    free(folder);
    fth_local_token_free(token);
    return status;
}

const char *fth_local_token_secret(const fth_local_token *token)
{
    return token->secret;
}

void fth_local_token_free(fth_local_token *token)
{
    if (!token)
        return;
    if (token->fd >= 0) {
        if (is_at(token->fd, token->path))
            unlink(token->path);
        close(token->fd);
    }
    free(token->path);
    fth_wipe(token, sizeof *token);
    free(token);
}

/* ---- a client's side ---- */

/* False if there is no such file, or its server has ended. */
static bool read_file(const char *path, char secret[FTH_LOCAL_SECRET + 1])
{
    char line[LINE_BYTES + 1] = "";
    int fd = open_file(path, O_RDONLY);
    if (fd < 0)
        return false;
    bool alive = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    bool whole = alive && read(fd, line, sizeof line) == LINE_BYTES && strncmp(line, HEADER, strlen(HEADER)) == 0;
    close(fd);
    if (whole) {
        memcpy(secret, line + strlen(HEADER), FTH_LOCAL_SECRET);
        secret[FTH_LOCAL_SECRET] = '\0';
        whole = fth_hex_is_valid(secret, FTH_LOCAL_SECRET);
    }
    fth_wipe(line, sizeof line);
    return whole;
}

bool fth_local_token_find(const char *url, char secret[FTH_LOCAL_SECRET + 1], char address[FTH_MAX_LOCAL_ADDRESS + 1])
{
    char host[FTH_MAX_LOCAL_ADDRESS + 1];
    int port;
    bool found = false;
    if (!fth_http_find_loopback(url, host, sizeof host, &port))
        return false;
    const bool named = strcasecmp(host, "localhost") == 0;
    const char *const addresses[] = {named ? "127.0.0.1" : host, named ? "::1" : NULL};
    for (int i = 0; i < FOLDERS && !found; i++) {
        char *folder = name_folder(i);
        for (size_t k = 0; folder && k < FTH_COUNT_OF(addresses) && addresses[k] && !found; k++) {
            char *path = name_file(folder, addresses[k], port);
            found = path && read_file(path, secret);
            if (found)
                snprintf(address, FTH_MAX_LOCAL_ADDRESS + 1, "%s", addresses[k]);
            free(path);
        }
        free(folder);
    }
    return found;
}

fth_status fth_signer_find(const char *url, fth_signer *signer, bool *found)
{
    *signer = (fth_signer){.access = FTH_LOCAL_ACCESS_KEY};
    *found = fth_local_token_find(url, signer->secret, signer->local);
    return *found ? FTH_OK : fth_signer_from_environment(signer, found);
}
