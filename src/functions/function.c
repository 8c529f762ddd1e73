/* See function.h: the table of jobs, and what each keeps between invocations. */
#include "functions/function.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_JOBS = 8 };

static const fth_job_kind *const built_in[] = {&fth_job_train, &fth_job_prefetch, NULL};

typedef struct opened_job {
    const fth_job_kind *kind;
    void *state;
    bool is_open;
} opened_job;

struct fth_function {
    fth_function_options options;
    char *cache_folder;
    opened_job jobs[MOST_JOBS];
    size_t job_count;
};

fth_status fth_function_create(const fth_function_options *options, fth_function **function)
{
    fth_status status = FTH_OK;
    fth_function *created = NULL;
    const fth_job_kind *const *jobs = options->jobs ? options->jobs : built_in;

    *function = NULL;
    FTH_TRY(fth_allocate(1, sizeof *created, &created));
    created->options = *options;
    if (options->cache_folder) {
        created->cache_folder = fth_format("%s", options->cache_folder);
        FTH_REQUIRE(created->cache_folder, FTH_NO_MEMORY, "no memory for a function");
        created->options.cache_folder = created->cache_folder;
    }
    for (; *jobs; jobs++) {
        FTH_REQUIRE(created->job_count < MOST_JOBS, FTH_INVALID, "a function has %d jobs at most", MOST_JOBS);
        created->jobs[created->job_count++].kind = *jobs;
    }
    *function = created;
    created = NULL;

out:
    fth_function_free(created);
    return status;
}

void fth_function_free(fth_function *function)
{
    if (!function)
        return;
    for (size_t i = 0; i < function->job_count; i++)
        if (function->jobs[i].is_open)
            function->jobs[i].kind->close(function->jobs[i].state);
    free(function->cache_folder);
    free(function);
}

/* The job that the parameters name, or else the first that fits them; or NULL. */
static opened_job *choose(fth_function *function, const json_t *value, const char *name)
{
    for (size_t i = 0; i < function->job_count; i++) {
        const fth_job_kind *kind = function->jobs[i].kind;
        if (name ? strcmp(kind->name, name) == 0 : kind->fits(value))
            return &function->jobs[i];
    }
    return NULL;
}

static fth_status fail_without_job(const fth_function *function, const char *name)
{
    char names[256] = "";
    size_t length = 0;
    for (size_t i = 0; i < function->job_count && length < sizeof names; i++)
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", i ? ", " : "",
                                   function->jobs[i].kind->name);
    if (name)
        return fth_fail(FTH_INVALID, "unknown job \"%.64s\"; known jobs: %s", name, names);
    return fth_fail(FTH_INVALID,
                    "the parameters fit no job: training needs \"apihost\", the address of a parameter server; "
                    "known jobs: %s",
                    names);
}

fth_status fth_function_run(fth_function *function, const fth_invocation_event *event, json_t **result)
{
    fth_status status = FTH_OK;
    const json_t *named = json_object_get(event->value, "job");
    const char *name = json_string_value(named);

    *result = NULL;
    FTH_REQUIRE(json_is_object(event->value), FTH_INVALID, "the parameters must be a JSON object");
    FTH_REQUIRE(!named || name, FTH_INVALID, "\"job\" must be the name of a job");
    opened_job *job = choose(function, event->value, name);
    if (!job) {
        status = fail_without_job(function, name);
        goto out;
    }
    if (!job->is_open)
        FTH_TRY(job->kind->open(&function->options, &job->state));
    job->is_open = true;
    FTH_TRY(job->kind->run(job->state, event, result));

out:
    return status;
}
