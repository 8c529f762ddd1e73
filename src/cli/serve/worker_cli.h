/* Workers of `farthing worker`, each in worker_<name>.c with a row in cmd_worker.c, and the common
 * flags of functions. */
#ifndef FTH_CLI_WORKER_CLI_H
#define FTH_CLI_WORKER_CLI_H

#include "cli/cli.h"
#include "functions/function.h"

extern const fth_command fth_worker_prefetch, fth_worker_openwhisk, fth_worker_lambda;

typedef struct fth_function_flags {
    char *cache;
    int64_t threads, cache_mb;
} fth_function_flags;

static inline fth_function_options fth_function_flags_read(const fth_function_flags *flags)
{
    return (fth_function_options){.cache_folder = *flags->cache ? flags->cache : NULL,
                                  .cache_bytes = (uint64_t)flags->cache_mb * 1000000,
                                  .threads = (int)flags->threads};
}

/* Rows for an fth_function_flags that lies at `at` in the command's options. */
/* clang-format off: a macro of rows is read by rows */
#define FTH_FUNCTION_ROWS(at)                                                                                          \
    {FTH_OPTION_ROW_AT("threads", INTEGER, (at) + offsetof(fth_function_flags, threads)), .fallback = "0",             \
     .argument = "N", .maximum = 1024, .help = "compute threads; 0: as many as the platform provides"},                \
        {FTH_OPTION_ROW_AT("cache", TEXT, (at) + offsetof(fth_function_flags, cache)), .argument = "FOLDER",           \
         .help = "folder for shards, kept between invocations; default: farthing-UID in TMPDIR or /tmp"},              \
    {                                                                                                                  \
        FTH_OPTION_ROW_AT("cache-mb", INTEGER, (at) + offsetof(fth_function_flags, cache_mb)),                         \
            .fallback = "400", .argument = "MB", .minimum = 1, .maximum = 1e7, .help = "maximum size of that folder"   \
    }
/* clang-format on */

#endif
