/* The flags for s3:// addresses, for the tables of commands that take addresses. */
#ifndef FTH_CLI_S3_FLAGS_H
#define FTH_CLI_S3_FLAGS_H

#include "base/options.h"
#include "store/store.h"

typedef struct fth_s3_flags {
    char *endpoint, *region, *style, *profile;
} fth_s3_flags;

/* The store options of these flags; borrows their text. */
fth_store_options fth_s3_store_options(const fth_s3_flags *flags, double deadline_s);

/* Rows for an fth_s3_flags that lies at `at` in the command's options. */
/* clang-format off: a macro of rows is read by rows */
#define FTH_S3_FLAG_ROWS(at)                                                                                           \
    {FTH_OPTION_ROW_AT("s3-endpoint", TEXT, (at) + offsetof(fth_s3_flags, endpoint)),                                  \
     .check = fth_address_check_plain, .argument = "URL",                                                              \
     .help = "an S3 server other than AWS; else AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's", .group = "S3"}, \
        {FTH_OPTION_ROW_AT("s3-region", TEXT, (at) + offsetof(fth_s3_flags, region)), .argument = "NAME",              \
         .help = "else AWS_REGION, AWS_DEFAULT_REGION, the profile's, us-east-1"},                                     \
        {FTH_OPTION_ROW_AT("s3-style", CHOICE, (at) + offsetof(fth_s3_flags, style)), .fallback = "auto",              \
         .choices = fth_s3_styles,                                                                                     \
         .help = "bucket in the path or in the host name; auto: in the path if an endpoint is given"},                 \
    {                                                                                                                  \
        FTH_OPTION_ROW_AT("profile", TEXT, (at) + offsetof(fth_s3_flags, profile)),                                    \
            .argument = "NAME", .help = "of ~/.aws/credentials; else AWS_PROFILE"                                      \
    }
/* clang-format on */

#endif
