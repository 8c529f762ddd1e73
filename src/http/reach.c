/* See reach.h. */
#include "http/reach.h"

#include <curl/curl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

/* The link, where most metadata services are: 169.254/16; and those of Alibaba, Azure and Oracle
 * that are not on it. */
static bool is_metadata_v4(const unsigned char bytes[4])
{
    static const unsigned char services[][4] = {{100, 100, 100, 200}, {168, 63, 129, 16}, {192, 0, 0, 192}};
    for (size_t i = 0; i < FTH_COUNT_OF(services); i++)
        if (memcmp(bytes, services[i], 4) == 0)
            return true;
    return bytes[0] == 169 && bytes[1] == 254;
}

/* 0/8 and 127/8. */
static bool is_here_v4(const unsigned char bytes[4])
{
    return bytes[0] == 0 || bytes[0] == 127;
}

static bool allows_v4(fth_http_reach reach, const unsigned char bytes[4])
{
    return !is_metadata_v4(bytes) && (reach != FTH_HTTP_ELSEWHERE || !is_here_v4(bytes));
}

/* The IPv4 address that a gateway or the system itself takes an IPv6 address for; NULL: there is
 * none. */
static const unsigned char *find_v4(const unsigned char bytes[16])
{
    static const struct {
        unsigned char prefix[12];
        size_t prefix_bytes, at;
    } forms[] = {
        {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 12, 12}, /* ::ffff:0:0/96, mapped */
        {{0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 12, 12},       /* ::ffff:0:0:0/96, translated */
        {{0}, 12, 12},                                        /* ::/96, compatible */
        {{0, 0x64, 0xff, 0x9b}, 12, 12},                      /* 64:ff9b::/96, NAT64 */
        {{0, 0x64, 0xff, 0x9b, 0, 1}, 6, 12},                 /* 64:ff9b:1::/48, its local form */
        {{0x20, 0x02}, 2, 2},                                 /* 2002::/16, 6to4 */
    };
    for (size_t i = 0; i < FTH_COUNT_OF(forms); i++)
        if (memcmp(bytes, forms[i].prefix, forms[i].prefix_bytes) == 0)
            return bytes + forms[i].at;
    return NULL;
}

static bool allows_v6(fth_http_reach reach, const struct in6_addr *address)
{
    static const unsigned char aws[4] = {0xfd, 0x00, 0x0e, 0xc2}, google[4] = {0xfd, 0x20, 0x00, 0xce};
    const unsigned char *v4 = find_v4(address->s6_addr);
    if (IN6_IS_ADDR_LINKLOCAL(address) || memcmp(address->s6_addr, aws, sizeof aws) == 0 ||
        memcmp(address->s6_addr, google, sizeof google) == 0)
        return false;
    if (IN6_IS_ADDR_LOOPBACK(address) || IN6_IS_ADDR_UNSPECIFIED(address))
        return reach != FTH_HTTP_ELSEWHERE;
    return !v4 || allows_v4(reach, v4);
}

bool fth_http_reach_allows(fth_http_reach reach, const struct sockaddr *address)
{
    if (reach == FTH_HTTP_ANYWHERE)
        return true;
    if (address->sa_family == AF_INET)
        return allows_v4(reach,
                         (const unsigned char *)&((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr);
    return address->sa_family == AF_INET6 &&
           allows_v6(reach, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

bool fth_http_reach_allows_url(fth_http_reach reach, const char *url)
{
    CURLU *parts = curl_url();
    char *host = NULL;
    struct addrinfo *found = NULL;
    bool allowed = true;
    if (reach != FTH_HTTP_ANYWHERE && parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK) {
        char *plain = host + (*host == '[');
        plain[strcspn(plain, "]%")] = '\0'; /* without a zone */
        for (size_t length = strlen(plain); length > 0 && plain[length - 1] == '.';)
            plain[--length] = '\0'; /* a proxy may take "1.2.3.4." for the address, too */
        if (getaddrinfo(plain, NULL, &(struct addrinfo){.ai_flags = AI_NUMERICHOST}, &found) == 0)
            allowed = fth_http_reach_allows(reach, found->ai_addr);
    }
    if (found)
        freeaddrinfo(found);
    curl_free(host);
    curl_url_cleanup(parts);
    return allowed;
}
