/* The function's binary with the libraries it needs, as Lambda's zip or an OCI image archive, written here without Docker.
 * The same input gives the same bytes: times are those of SOURCE_DATE_EPOCH, or 1980. */
#ifndef FTH_PACKAGE_PACKAGE_H
#define FTH_PACKAGE_PACKAGE_H

#include "base/base.h"

typedef struct fth_package_options {
    const char *program;        /* farthing-function; NULL: the one beside this program, or installed with it */
    const char *reference_name; /* of the image: "farthing-function:0.1.0"; NULL: that */
} fth_package_options;

typedef struct fth_package_facts {
    uint64_t file_bytes, content_bytes; /* compressed; as unpacked */
    int files;
    char sha256[65];
} fth_package_facts;

/* `bootstrap`, lib/ and certificates. */
fth_status fth_package_write_zip(const char *path, const fth_package_options *options, fth_package_facts *facts);
/* An OCI image layout in a tar, which `podman load` and `skopeo ... oci-archive:` read; its entry point serves OpenWhisk's
 * contract on 8080, or Lambda's where AWS_LAMBDA_RUNTIME_API is set. */
fth_status fth_package_write_image(const char *path, const fth_package_options *options, fth_package_facts *facts);

#endif
