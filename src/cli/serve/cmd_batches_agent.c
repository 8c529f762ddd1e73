/* farthing batches-agent: the cache agent, which the first client of the batch cache on a machine
 * starts. Not for users. */
#include <string.h>

#include "batches/agent/agent.h"
#include "cli/cli.h"

typedef struct agent_flags {
    fth_option_bits set;
    char *url, *pinned_key, *ca_file;
    int64_t memory_bytes;
    double idle_s;
} agent_flags;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, agent_flags, member)
static const fth_option rows[] = {
    {ROW("url", TEXT, url), .argument = "URL", .address = true, .help = "the coordinator: http://HOST:PORT"},
    {ROW("pinned-key", TEXT, pinned_key), .argument = "FINGERPRINT", .help = "of the coordinator's key"},
    {ROW("ca-file", TEXT, ca_file), .argument = "FILE", .help = "certificates that the coordinator's may be signed by"},
    {ROW("memory", INTEGER, memory_bytes), .argument = "BYTES", .maximum = 1e15,
     .help = "for entries; 0: a quarter of what is free, 1 GiB at most"},
    {ROW("idle", DURATION, idle_s), .fallback = "30s", .argument = "TIME",
     .help = "without clients, after which it ends"},
};
static const fth_option_table table = FTH_OPTION_TABLE(rows, agent_flags);

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    const agent_flags *flags = options;
    if (arguments->count > 0 || !*flags->url)
        return fth_cli_usage(command, "this is for farthing itself: the first job of a machine starts it");
    return fth_cli_exit_code(
        fth_batches_agent_run(&(fth_batches_agent_options){.url = flags->url,
                                                           .pinned_key = *flags->pinned_key ? flags->pinned_key : NULL,
                                                           .ca_file = *flags->ca_file ? flags->ca_file : NULL,
                                                           .memory_bytes = (uint64_t)flags->memory_bytes,
                                                           .idle_s = flags->idle_s,
                                                           .stop = arguments->stop}));
}

const fth_command fth_command_batches_agent = {
    .name = FTH_BATCHES_AGENT_COMMAND,
    .arguments = "--url URL",
    .summary = "a machine's connection to `farthing serve batches`",
    .hidden = true,
    .table = &table,
    .stop_words = "stopping",
    .run = run,
};
