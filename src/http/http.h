/* HTTP: downloads of large files, resumed where they broke off. */
#ifndef FTH_HTTP_HTTP_H
#define FTH_HTTP_HTTP_H

#include <stdint.h>

#include "base/base.h"

typedef struct fth_download {
    const char *url;    /* https:// or http:// */
    const char *sha256; /* 64 hex digits that the file must have; NULL: unknown */
    const char *path;   /* where the file is published once it is whole */
    uint64_t max_bytes; /* a larger file is an error; 0: what the disk holds */
    double connect_s;   /* give up connecting after this long; 0: 30 */
    double stall_s;     /* give up on a transfer that brought nothing for this long; 0: 60 */
    double total_s;     /* give up after this long in all; 0: a day */
} fth_download;

/* Downloads into `path`.part and renames that to `path` when it is whole and its checksum, where one is given, is
 * right. A transfer that breaks off is taken up again where it stopped, now or by a later call, if the server can do
 * that and says that the file is still the same one. Another process that downloads the same file is waited for. TLS
 * certificates are checked; proxies come from the environment, as curl takes them. `sha256` gets the checksum. */
fth_status fth_http_download(const fth_download *download, char sha256[65]);

#endif
