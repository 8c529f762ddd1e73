/* farthing launch: several processes that train one model together, on this machine or on many. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/child.h"
#include "base/process.h"
#include "cli/cli.h"
#include "cluster/launcher.h"
#include "parallel/agent.h"
#include "parallel/remote_control.h"
#include "parallel/remote_hosts.h"

#define STRATEGY "data-parallel"

enum { MAX_HOSTS = 256 };

typedef struct launch_options {
    fth_option_bits set;
    char *nodes, *rendezvous, *hosting, *hosts, *token_file, *name, *node, *program, *ssh;
    int64_t workers, restarts;
    double wait_s;
} launch_options;

static const char *const hostings[] = {
    [FTH_HOSTING_AUTO] = "auto", [FTH_HOSTING_YES] = "yes", [FTH_HOSTING_NO] = "no", NULL};

static fth_status check_nodes(const char *text)
{
    int least, most;
    return fth_launcher_parse_nodes(text, &least, &most);
}

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, launch_options, member)
static const fth_option rows[] = {
    {ROW("workers", INTEGER, workers), .fallback = "0", .argument = "N",
     .help = "processes on each node; 0: one per GPU, or 1", .maximum = 256, .group = "Workers and nodes"},
    {ROW("nodes", TEXT, nodes), .argument = "MIN:MAX",
     .help = "number of nodes: training begins and continues with at least MIN, and accepts others up to MAX",
     .check = check_nodes},
    {ROW("rendezvous", TEXT, rendezvous), .argument = "HOST:PORT",
     .help = "address of the rendezvous; the node with the address HOST runs it", .check = fth_launcher_check_address},
    {ROW("hosts", TEXT, hosts), .argument = "A,B,...",
     .help = "start the same on each of these hosts over ssh, in the same folder; the first runs the rendezvous"},
    {ROW("token-file", TEXT, token_file), .argument = "FILE",
     .help = "shared secret of all nodes; default: $FARTHING_TOKEN or $FARTHING_TOKEN_FILE. Generated if this command "
             "starts all nodes"},
    {ROW("name", TEXT, name), .fallback = "run", .argument = "NAME",
     .help = "name of this launch, the same on every node; nodes with another name are rejected",
     .check = fth_record_check_id},
    {ROW("node", TEXT, node), .argument = "NAME", .help = "name of this node; default: its host name"},
    {ROW("host-rendezvous", CHOICE, hosting), .fallback = "auto", .argument = "WHETHER",
     .help = "whether this node runs the rendezvous; auto: if HOST is one of its addresses", .choices = hostings},
    {ROW("wait", DURATION, wait_s), .fallback = "5m", .argument = "TIME", .help = "how long to wait for the rendezvous",
     .group = "Waiting and restarts"},
    {ROW("restarts", INTEGER, restarts), .fallback = "5", .argument = "N",
     .help = "how often a killed or crashed worker is restarted; not counted if it ran for ten minutes",
     .maximum = 1e6},
    {ROW("program", TEXT, program), .argument = "FILE", .help = "path of farthing on the hosts, if different from here",
     .group = "With --hosts"},
    {ROW("ssh", TEXT, ssh), .fallback = "ssh", .argument = "FILE", .help = "the ssh program"},
};
static const fth_option_table table = FTH_OPTION_TABLE(rows, launch_options);

/* ---- output ---- */

static void show(void *context, fth_relay_stream stream, const char *line)
{
    (void)context;
    if (stream == FTH_RELAY_OUTPUT) {
        puts(line);
        fth_cli_flush();
    } else
        fth_print_line(stderr, "%s", line);
}

/* ---- started from another machine ---- */

static bool is_controlled(void)
{
    return getenv(FTH_REMOTE_VARIABLE) != NULL;
}

/* The first line of standard input, byte by byte: what follows is for the agent. */
static fth_status read_token_line(char **token)
{
    const int patience_ms = 30000;
    char line[512];
    size_t length = 0;
    for (char byte; length + 1 < sizeof line; line[length++] = byte) {
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        if (poll(&input, 1, patience_ms) != 1 || read(STDIN_FILENO, &byte, 1) != 1)
            return fth_fail(
                FTH_IO, "no token on standard input; this is for `farthing launch --hosts`, unset " FTH_REMOTE_VARIABLE
                        " otherwise");
        if (byte == '\n')
            break;
    }
    line[length] = '\0';
    *token = fth_format("%s", line);
    fth_wipe(line, sizeof line);
    return *token ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for a token");
}

/* ---- this node ---- */

static fth_status choose_node(const launch_options *options, char **node)
{
    char name[HOST_NAME_MAX + 1] = "";
    gethostname(name, sizeof name - 1);
    *node = fth_format("%s", *options->node ? options->node : *name ? name : "localhost");
    return *node ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for a name");
}

static int choose_workers(const launch_options *options)
{
    int gpus = fth_cli_count_gpus();
    return options->workers > 0 ? (int)options->workers : gpus > 0 ? gpus : 1;
}

static fth_hosting choose_hosting(const launch_options *options)
{
    fth_hosting hosting = FTH_HOSTING_AUTO;
    while (strcmp(hostings[hosting], options->hosting) != 0)
        hosting++;
    return hosting;
}

static fth_status run_agent(const launch_options *options, const char *command, const char *const *arguments,
                            fth_stop *stop, fth_exit_code *code)
{
    fth_status status = FTH_OK;
    char program[4096], *node = NULL, *token = NULL;
    int least = 1, most = 1;
    fth_remote_control *control = NULL;

    FTH_TRY(choose_node(options, &node));
    FTH_TRY(is_controlled() ? read_token_line(&token)
                            : fth_launcher_read_token(*options->token_file ? options->token_file : NULL, &token));
    if (is_controlled()) {
        FTH_TRY(fth_remote_control_start(STDIN_FILENO, stop, &control));
        fprintf(stderr, FTH_REMOTE_GREETING "\n");
    }
    if (*options->nodes)
        FTH_TRY(fth_launcher_parse_nodes(options->nodes, &least, &most));
    if (*options->rendezvous && !*token)
        fth_log_warning("any process that reaches %s can join the run: give every node the same --token-file",
                        options->rendezvous);
    const fth_agent_options agent = {.program = fth_process_program(program, sizeof program),
                                     .arguments = arguments,
                                     .command = command,
                                     .workers = choose_workers(options),
                                     .least = least,
                                     .most = most,
                                     .rendezvous = *options->rendezvous ? options->rendezvous : NULL,
                                     .hosting = choose_hosting(options),
                                     .token = token,
                                     .run = options->name,
                                     .node = node,
                                     .wait_s = options->wait_s,
                                     .max_restarts = (int)options->restarts,
                                     .stop = stop,
                                     .show = show};
    status = fth_agent_run(&agent, code);

out:
    fth_remote_control_free(control);
    free(node);
    fth_wipe_text(token);
    return status;
}

/* ---- other hosts ---- */

/* The hosts of "a,b,c", NULL-terminated, pointing into `copy`. */
static fth_status split_hosts(char *copy, const char *hosts[MAX_HOSTS + 1], int *count)
{
    char *place = NULL;
    *count = 0;
    for (char *each = strtok_r(copy, ",", &place); each; each = strtok_r(NULL, ",", &place)) {
        if (*count == MAX_HOSTS)
            return fth_fail(FTH_INVALID, "--hosts has more than %d names", MAX_HOSTS);
        if (*each == '-' || strpbrk(each, " \t"))
            return fth_fail(FTH_INVALID, "\"%s\" in --hosts is not the name of a host", each);
        for (int i = 0; i < *count; i++)
            if (strcmp(hosts[i], each) == 0)
                return fth_fail(FTH_INVALID, "--hosts names %s twice; more workers on it are --workers", each);
        hosts[(*count)++] = each;
    }
    hosts[*count] = NULL;
    return *count > 0 ? FTH_OK : fth_fail(FTH_INVALID, "--hosts names no host");
}

/* Where ssh is; free() it. */
static fth_status find_in_path(const char *name, char **path)
{
    const char *folders = getenv("PATH");
    *path = strchr(name, '/') ? fth_format("%s", name) : NULL;
    for (const char *folder = folders ? folders : "/usr/bin:/bin"; !*path && *folder;) {
        size_t length = strcspn(folder, ":");
        char *file = fth_format("%.*s/%s", (int)length, folder, name);
        if (file && access(file, X_OK) == 0)
            *path = file;
        else
            free(file);
        folder += length + (folder[length] == ':');
    }
    return *path ? FTH_OK : fth_fail(FTH_INVALID, "there is no program %s; --hosts needs it", name);
}

/* The program's name on the hosts: as typed if it has no path, else the whole path. */
static char *name_program(const launch_options *options, const fth_invocation *invocation)
{
    char file[PATH_MAX];
    const char *typed = *options->program ? options->program : invocation->program;
    if (strchr(typed, '/') && !*options->program && realpath(typed, file))
        typed = file;
    return fth_format("%s", typed);
}

/* The first host, without a user's name, at a port that other launches are unlikely to use. */
static char *choose_rendezvous(const char *first, const char *token)
{
    const char *at = strrchr(first, '@');
    return fth_format("%s:%d", at ? at + 1 : first, fth_launcher_derive_port(token));
}

static fth_status add_launch_arguments(const launch_options *options, const char *first, int count, const char *token,
                                       const char *const *arguments, fth_words *words)
{
    fth_status status = FTH_OK;
    char *rendezvous = *options->rendezvous ? fth_format("%s", options->rendezvous) : choose_rendezvous(first, token);

    FTH_REQUIRE(rendezvous, FTH_NO_MEMORY, "no memory for an address");
    FTH_TRY(fth_words_add(words, "--rendezvous=%s", rendezvous));
    FTH_TRY(*options->nodes ? fth_words_add(words, "--nodes=%s", options->nodes)
                            : fth_words_add(words, "--nodes=1:%d", count));
    if (options->workers > 0)
        FTH_TRY(fth_words_add(words, "--workers=%d", (int)options->workers));
    FTH_TRY(fth_words_add(words, "--name=%s", options->name));
    FTH_TRY(fth_words_add(words, "--wait=%gs", options->wait_s));
    FTH_TRY(fth_words_add(words, "--restarts=%d", (int)options->restarts));
    FTH_TRY(fth_words_add(words, "--"));
    FTH_TRY(fth_words_add(words, "train"));
    for (; *arguments; arguments++)
        FTH_TRY(fth_words_add(words, "%s", *arguments));

out:
    free(rendezvous);
    return status;
}

static fth_status run_hosts(const launch_options *options, const fth_invocation *invocation, const char *command,
                            const char *const *arguments, fth_stop *stop, fth_exit_code *code)
{
    fth_status status = FTH_OK;
    char *copy = fth_format("%s", options->hosts), *token = NULL, *ssh = NULL, *program = NULL, *folder = NULL;
    const char *hosts[MAX_HOSTS + 1];
    int count = 0;
    fth_words words = {0};

    FTH_REQUIRE(copy, FTH_NO_MEMORY, "no memory for the hosts");
    FTH_TRY(split_hosts(copy, hosts, &count));
    FTH_TRY(find_in_path(options->ssh, &ssh));
    FTH_TRY(fth_launcher_read_token(*options->token_file ? options->token_file : NULL, &token));
    if (!*token) {
        free(token);
        FTH_TRY(fth_launcher_make_token(&token));
    }
    program = name_program(options, invocation);
    folder = getcwd(NULL, 0);
    FTH_REQUIRE(program && folder, FTH_IO, "find the working folder: %s", strerror(errno));
    FTH_TRY(add_launch_arguments(options, hosts[0], count, token, arguments, &words));
    const fth_remote_options remote = {.ssh = ssh,
                                       .hosts = hosts,
                                       .program = program,
                                       .folder = folder,
                                       .arguments = (const char *const *)words.items,
                                       .command = command,
                                       .token = token,
                                       .max_restarts = (int)options->restarts,
                                       .stop = stop,
                                       .show = show};
    status = fth_remote_run(&remote, code);

out:
    fth_words_release(&words);
    free(copy);
    free(ssh);
    free(program);
    free(folder);
    fth_wipe_text(token);
    return status;
}

/* ---- the command ---- */

/* A conflict between flags; NULL: none. */
static const char *find_conflict(const launch_options *options)
{
    int least, most;
    bool many = *options->nodes && fth_launcher_parse_nodes(options->nodes, &least, &most) == FTH_OK && most > 1;
    if (*options->hosts && (*options->node || strcmp(options->hosting, "auto") != 0))
        return "--node and --host-rendezvous describe one node, but --hosts starts several; leave them out";
    if (!*options->hosts && *options->rendezvous && !*options->nodes)
        return "--rendezvous needs --nodes MIN:MAX, the number of nodes";
    if (!*options->hosts && !*options->rendezvous && many)
        return "several nodes need --rendezvous HOST:PORT on each of them, or --hosts A,B,...";
    return NULL;
}

/* The arguments of the workers' `train`: those given, preceded by --strategy unless they contain
 * it. NULL on failure, with *code set. */
static const char **read_arguments(const fth_command *command, const fth_invocation *job, bool *dry,
                                   fth_exit_code *code)
{
    fth_train_options options = {0};
    const char **arguments = NULL;
    bool valid = fth_cli_read_job(job, &options, code);
    bool given = valid && fth_options_is_set(&fth_train_option_table, &options, "strategy");
    if (given && strcmp(options.strategy, STRATEGY) != 0) {
        *code = fth_cli_usage(command, "launch is for --strategy " STRATEGY ", not %s", options.strategy);
        valid = false;
    }
    if (valid && fth_allocate((size_t)job->argc + 2, sizeof *arguments, &arguments) == FTH_OK) {
        arguments[0] = "--strategy=" STRATEGY;
        memcpy(arguments + (given ? 0 : 1), job->argv, (size_t)job->argc * sizeof *arguments);
    } else if (valid)
        *code = fth_cli_fail();
    *dry = options.dry_run;
    fth_options_release(&fth_train_option_table, &options);
    return arguments;
}

/* This command as it was typed, up to `train`; free() it. */
static char *write_command(const fth_invocation *invocation)
{
    char *text = NULL;
    size_t size = 0;
    const char *given = is_controlled() ? getenv(FTH_LAUNCH_COMMAND) : NULL;
    FILE *output = open_memstream(&text, &size);
    if (!output)
        return NULL;
    if (given) {
        fputs(given, output);
    } else {
        fth_cli_print_word(output, invocation->program);
        fputs(" launch", output);
        for (int i = 0; i < invocation->argc && strcmp(invocation->argv[i], "train") != 0; i++) {
            fputc(' ', output);
            fth_cli_print_word(output, invocation->argv[i]);
        }
        fputs(" train", output);
    }
    fclose(output);
    return text;
}

static fth_exit_code launch(const launch_options *options, const fth_invocation *invocation,
                            const char *const *arguments)
{
    fth_exit_code code = FTH_EXIT_FAILURE;
    char *command = write_command(invocation);
    fth_stop stop = FTH_STOP_INITIALIZER;
    fth_signals_set_words("the workers finish their step and save; press Ctrl-C again to stop at once");
    fth_signals_watch(&stop);
    fth_status status = *options->hosts
                            ? run_hosts(options, invocation, command ? command : "", arguments, &stop, &code)
                            : run_agent(options, command ? command : "", arguments, &stop, &code);
    if (status == FTH_INTERRUPTED)
        fth_log_info("stopped before anything was trained: %s", fth_error_message());
    else if (status != FTH_OK)
        fth_log_error("%s", fth_error_message());
    fth_signals_unwatch();
    free(command);
    return code;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    const launch_options *asked = options;
    const fth_invocation *invocation = arguments->invocation;
    fth_exit_code code;
    bool dry = false;

    if (arguments->count < 1 || strcmp(arguments->positional[0], "train") != 0)
        return fth_cli_usage(command,
                             "missing the training after --, as in: farthing launch --workers 4 -- train run.yaml");
    const char *conflict = find_conflict(asked);
    if (conflict)
        return fth_cli_usage(command, "%s", conflict);
    const fth_invocation job = fth_arguments_job(arguments);
    const char **words = read_arguments(command, &job, &dry, &code);
    if (words)
        code = dry ? fth_command_run(&fth_command_train,
                                     &(fth_invocation){invocation->program, job.argc + 1, (char *const *)words})
                   : launch(asked, invocation, words);
    free(words);
    return code;
}

const fth_command fth_command_launch = {
    .name = "launch",
    .arguments = "[--flag value ...] -- train [FILE.yaml] [--flag value ...]",
    .summary = "train one model with several processes, on one machine or many",
    .details = "Starts workers with --strategy data-parallel and supervises them: one that is killed or crashes is "
               "restarted\nand rejoins the others, which continue meanwhile. The workers share the processors and get "
               "one GPU each. On\nseveral machines, run the same command on each with --nodes and --rendezvous, or on "
               "one of them with --hosts.\nCtrl-C stops all workers together; they save, and the exit code is 75.\n",
    .table = &table,
    .wraps = &fth_command_train,
    .examples =
        (const fth_example[]){
            {"farthing launch --workers 4 -- train run.yaml", "four processes on this machine"},
            {"farthing launch --nodes 2:8 --rendezvous node1:29400 --token-file key -- train run.yaml",
             "on each of up to 8 machines"},
            {"farthing launch --hosts node1,node2 --workers 2 -- train run.yaml", "two machines, over ssh"},
            {0}},
    .run = run,
};
