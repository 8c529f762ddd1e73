/* The list of prefetchers: "threads:4,workers,https://function". See prefetch.h. */
#include "batches/prefetch/prefetch.h"

#include <stdlib.h>
#include <string.h>

static const fth_prefetch_kind *const kinds[] = {&fth_prefetch_threads, &fth_prefetch_workers, &fth_prefetch_functions,
                                                 &fth_prefetch_http};

enum { MAX_PREFETCHERS = 32 };

struct fth_prefetchers {
    struct {
        const fth_prefetch_kind *kind;
        void *state;
    } running[MAX_PREFETCHERS];
    int count;
};

/* Finds the kind of one word of the list, and the argument in it. */
static const fth_prefetch_kind *find_kind(const char *word, const char **argument)
{
    for (size_t i = 0; i < FTH_COUNT_OF(kinds); i++) {
        if (kinds[i]->schemes) {
            for (const char *scheme = kinds[i]->schemes; *scheme;) {
                size_t length = strcspn(scheme, " ");
                if (strncmp(word, scheme, length) == 0) {
                    *argument = word;
                    return kinds[i];
                }
                scheme += length + strspn(scheme + length, " ");
            }
            continue;
        }
        size_t length = strlen(kinds[i]->name);
        if (strncmp(word, kinds[i]->name, length) == 0 && (word[length] == ':' || word[length] == '\0')) {
            *argument = word + length + (word[length] == ':');
            return kinds[i];
        }
    }
    return NULL;
}

static fth_status for_each_word(const char *text,
                                fth_status (*visit)(void *context, const fth_prefetch_kind *kind, const char *argument),
                                void *context)
{
    fth_status status = FTH_OK;
    char *copy = fth_format("%s", text), *rest = copy, *word;
    int count = 0;

    FTH_REQUIRE(copy, FTH_NO_MEMORY, "no memory for a list of prefetchers");
    while ((word = strsep(&rest, ","))) {
        const char *argument = NULL;
        const fth_prefetch_kind *kind = find_kind(word, &argument);
        FTH_REQUIRE(kind, FTH_INVALID,
                    "unknown prefetcher \"%s\"; expected threads:N, workers, functions or the URL of a function, with "
                    "commas between them",
                    word);
        FTH_REQUIRE(++count <= MAX_PREFETCHERS, FTH_INVALID, "more than %d prefetchers", MAX_PREFETCHERS);
        FTH_TRY(visit(context, kind, argument));
    }

out:
    free(copy);
    return status;
}

static fth_status check_one(void *context, const fth_prefetch_kind *kind, const char *argument)
{
    (void)context;
    return kind->check(argument);
}

fth_status fth_prefetch_check(const char *text)
{
    return for_each_word(text, check_one, NULL);
}

typedef struct start_context {
    fth_prefetchers *prefetchers;
    const fth_order_source *source;
    const fth_prefetch_options *options;
} start_context;

static fth_status start_one(void *context, const fth_prefetch_kind *kind, const char *argument)
{
    start_context *start = context;
    fth_prefetchers *prefetchers = start->prefetchers;
    void *state = NULL;
    fth_status status = kind->start(argument, start->source, start->options, &state);
    if (status == FTH_OK) {
        prefetchers->running[prefetchers->count].kind = kind;
        prefetchers->running[prefetchers->count++].state = state;
    }
    return status;
}

fth_status fth_prefetchers_start(const char *text, const fth_order_source *source, const fth_prefetch_options *options,
                                 fth_prefetchers **prefetchers)
{
    fth_status status = FTH_OK;
    fth_prefetchers *started = NULL;

    FTH_TRY(fth_prefetch_check(text));
    FTH_TRY(fth_allocate(1, sizeof *started, &started));
    FTH_TRY(for_each_word(text, start_one, &(start_context){started, source, options}));
    *prefetchers = started;
    started = NULL;

out:
    fth_prefetchers_stop(started);
    return status;
}

void fth_prefetchers_stop(fth_prefetchers *prefetchers)
{
    if (!prefetchers)
        return;
    for (int i = 0; i < prefetchers->count; i++)
        prefetchers->running[i].kind->stop(prefetchers->running[i].state);
    free(prefetchers);
}
