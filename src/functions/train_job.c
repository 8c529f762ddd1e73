/* The training job: a worker of a parameter server that ends in time. */
#include "functions/function.h"
#include "functions/train_parameters.h"

static bool fits(const json_t *value)
{
    return json_object_get(value, "apihost") != NULL;
}

static fth_status open_job(const fth_function_options *options, void **state)
{
    (void)options;
    *state = NULL;
    return FTH_OK;
}

static fth_status run_job(void *state, const fth_invocation_event *event, json_t **result)
{
    fth_status status = FTH_OK;
    fth_train_parameters parameters = {0};

    (void)state;
    (void)result;
    FTH_TRY(fth_train_parameters_load(event, &parameters));
    status = fth_fail(FTH_UNSUPPORTED, "training is not there yet");

out:
    fth_train_parameters_release(&parameters);
    return status;
}

static void close_job(void *state)
{
    (void)state;
}

const fth_job_kind fth_job_train = {
    .name = "train", .fits = fits, .open = open_job, .run = run_job, .close = close_job};
