/* Workers on other machines ask for orders themselves (worker.c), over HTTP. So there is nothing to
 * start; the row lets --prefetch say that workers are expected. */
#include "batches/prefetch/prefetch.h"

static fth_status check(const char *argument)
{
    return *argument ? fth_fail(FTH_INVALID,
                                "workers:%s: expected workers alone; each chooses its own number of threads", argument)
                     : FTH_OK;
}

static fth_status start(const char *argument, const fth_order_source *source, const fth_prefetch_options *options,
                        void **state)
{
    (void)source;
    (void)options;
    *state = NULL;
    return check(argument);
}

static void stop(void *state)
{
    (void)state;
}

const fth_prefetch_kind fth_prefetch_workers = {
    .name = "workers",
    .summary = "other machines that ask for orders: farthing worker prefetch --server URL",
    .check = check,
    .start = start,
    .stop = stop,
};
