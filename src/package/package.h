/* The function's program with the libraries that it needs, as Lambda's zip or an OCI image archive,
 * written here without Docker. Both hold the same files; in an image they are in /var/task, where
 * Lambda unpacks a zip:
 *
 *     bootstrap             starts lib/ld.so with the program, wherever the package was unpacked (bootstrap.c)
 *     farthing-function     the program
 *     ca-certificates.crt   whom it trusts
 *     lib/                  every library that it needs, the C library and its loader (ld.so) among them
 *
 * so that nothing of the system below is used but its kernel and /etc/resolv.conf. The same input
 * gives the same bytes: files are in order, belong to root and have no dates. */
#ifndef FTH_PACKAGE_PACKAGE_H
#define FTH_PACKAGE_PACKAGE_H

#include "base/base.h"

typedef struct fth_package_options {
    const char *program;        /* farthing-function; NULL: fth_package_find_program() */
    const char *certificates;   /* file of certificates (PEM) to trust; NULL: the system's */
    const char *reference_name; /* of the image: "farthing-function:0.1.0"; NULL: that */
} fth_package_options;

typedef struct fth_package_facts {
    uint64_t file_bytes;    /* of the whole package */
    uint64_t layer_bytes;   /* of an image's only layer, compressed; 0: a zip */
    uint64_t content_bytes; /* of the files in it, as unpacked */
    int files;
    char sha256[65];
} fth_package_facts;

/* The farthing-function beside this program, or installed with it; free() the path. */
fth_status fth_package_find_program(char **path);

fth_status fth_package_write_zip(const char *path, const fth_package_options *options, fth_package_facts *facts);
/* An OCI image layout in a tar, which `podman load` and `skopeo ... oci-archive:` read, with what
 * `docker load` needs. Its entry point serves OpenWhisk's contract on 8080, or Lambda's where
 * AWS_LAMBDA_RUNTIME_API is set. */
fth_status fth_package_write_image(const char *path, const fth_package_options *options, fth_package_facts *facts);

#endif
