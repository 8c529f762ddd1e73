/* See host.h. */
#include "http/host.h"

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "http/tls.h"

enum { MAX_NAME = 256 };

struct fth_hosts {
    char machine[MAX_NAME], *address, *names;
    X509 *certificate; /* or NULL */
};

fth_status fth_hosts_create(const char *address, const char *names, const char *certificate_pem, fth_hosts **result)
{
    fth_status status = FTH_OK;
    fth_hosts *hosts = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *hosts, &hosts));
    hosts->address = fth_format("%s", address ? address : "");
    hosts->names = fth_format("%s", names ? names : "");
    FTH_REQUIRE(hosts->address && hosts->names, FTH_NO_MEMORY, "no memory for the server's names");
    if (gethostname(hosts->machine, sizeof hosts->machine - 1) != 0)
        *hosts->machine = '\0';
    if (certificate_pem) {
        hosts->certificate = fth_tls_read_certificate(certificate_pem);
        FTH_REQUIRE(hosts->certificate, FTH_INVALID, "the server's certificate cannot be read");
    }
    *result = hosts;
    hosts = NULL;

out:
    fth_hosts_free(hosts);
    return status;
}

void fth_hosts_free(fth_hosts *hosts)
{
    if (!hosts)
        return;
    X509_free(hosts->certificate);
    free(hosts->address);
    free(hosts->names);
    free(hosts);
}

/* The name without port, brackets and the dot that ends a full one. False if it is none. */
static bool read_name(const char *host, char name[MAX_NAME])
{
    bool bracket = *host == '[';
    host += bracket;
    size_t length = strcspn(host, bracket ? "]" : ":");
    const char *rest = host + length + (bracket && host[length]);
    if (length == 0 || length >= MAX_NAME || (bracket && !host[length]) ||
        (*rest && (*rest != ':' || rest[1 + strspn(rest + 1, "0123456789")])))
        return false;
    memcpy(name, host, length);
    if (length > 1 && name[length - 1] == '.')
        length--;
    name[length] = '\0';
    return true;
}

static bool is_address(const char *name)
{
    unsigned char bytes[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

static bool is_local(const char *name)
{
    static const char local[] = "localhost";
    size_t length = strlen(name), tail = sizeof local - 1;
    return length >= tail && strcasecmp(name + length - tail, local) == 0 &&
           (length == tail || name[length - tail - 1] == '.');
}

static bool is_listed(const char *names, const char *name)
{
    size_t wanted = strlen(name);
    for (const char *at = names; *at;) {
        at += strspn(at, ", ");
        size_t length = strcspn(at, ", ");
        if (length == wanted && strncasecmp(at, name, length) == 0)
            return true;
        at += length;
    }
    return false;
}

bool fth_hosts_know(const fth_hosts *hosts, const char *host)
{
    char name[MAX_NAME];
    if (!host)
        return true;
    if (!read_name(host, name))
        return false;
    return is_address(name) || is_local(name) || strcasecmp(name, hosts->machine) == 0 ||
           strcasecmp(name, hosts->address) == 0 || is_listed(hosts->names, name) ||
           (hosts->certificate && X509_check_host(hosts->certificate, name, 0, 0, NULL) == 1);
}

bool fth_origin_is_foreign(const char *origin, const char *fetch_site, const char *host)
{
    if (fetch_site && strcasecmp(fetch_site, "same-origin") != 0 && strcasecmp(fetch_site, "none") != 0)
        return true;
    if (!origin)
        return false;
    const char *authority = strstr(origin, "://");
    return !authority || !host || strcasecmp(authority + 3, host) != 0;
}
