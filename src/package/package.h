/* The function's program with the libraries it needs, as Lambda's zip or an OCI image archive,
 * written without Docker. Both hold the same files; an image has them in /var/task, where Lambda
 * unpacks a zip:
 *
 *     bootstrap             starts lib/ld.so with the program (bootstrap.c)
 *     farthing-function     the program
 *     ca-certificates.crt   the certificates it trusts
 *     lib/                  all its libraries, including the C library and its loader (ld.so)
 *
 * Of the host only the kernel and /etc/resolv.conf are used. The same input gives the same bytes:
 * files are sorted, owned by root and undated. */
#ifndef FTH_PACKAGE_PACKAGE_H
#define FTH_PACKAGE_PACKAGE_H

#include "base/base.h"

typedef struct fth_package_options {
    const char *program;        /* farthing-function; NULL: fth_package_find_program() */
    const char *certificates;   /* file of certificates (PEM) to trust; NULL: the system's */
    const char *reference_name; /* of the image; NULL: "farthing-function:0.1.0" */
} fth_package_options;

typedef struct fth_package_facts {
    uint64_t file_bytes;    /* of the whole package */
    uint64_t layer_bytes;   /* of an image's only layer, compressed; 0: a zip */
    uint64_t content_bytes; /* of its files, unpacked */
    int files;
    char sha256[65];
} fth_package_facts;

/* Finds farthing-function beside this program, or installed with it; free() the path. */
fth_status fth_package_find_program(char **path);

fth_status fth_package_write_zip(const char *path, const fth_package_options *options, fth_package_facts *facts);
/* Writes an OCI image layout in a tar, for `podman load`, `skopeo ... oci-archive:` and `docker
 * load`. Its entry point serves OpenWhisk's contract on 8080, or Lambda's if AWS_LAMBDA_RUNTIME_API
 * is set. */
fth_status fth_package_write_image(const char *path, const fth_package_options *options, fth_package_facts *facts);

#endif
