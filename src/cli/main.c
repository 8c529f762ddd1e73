/* farthing: finds the command and runs it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backend/backend.h"
#include "cli/cli.h"
#include "functions/lambda.h"

static void print_commands(bool for_developers)
{
    for (const fth_command *const *command = fth_commands; *command; command++)
        if ((*command)->for_developers == for_developers && !(*command)->hidden)
            fth_cli_print_item((*command)->name, (*command)->summary, 13);
}

static void print_help(void)
{
    printf("farthing " FTH_VERSION ": trains neural networks\n\n"
           "usage: farthing COMMAND [arguments]\n\n"
           "commands\n");
    print_commands(false);
    printf("\ndeveloper commands\n");
    print_commands(true);
    printf("\n`farthing COMMAND --help` describes a command.\nThe first run, on built-in data: farthing train\n\n");
    fth_print_wrapped("exit codes: 0 done, 1 failed, 2 wrong usage, 75 interrupted and saved (--resume continues)", 0);
}

static fth_exit_code report_unknown(const char *name)
{
    enum { MAX_COMMANDS = 64 };
    const char *names[MAX_COMMANDS + 1] = {0};
    for (size_t i = 0, count = 0; fth_commands[i] && count < MAX_COMMANDS; i++)
        if (!fth_commands[i]->hidden)
            names[count++] = fth_commands[i]->name;
    const char *nearest = fth_nearest_name(name, names);
    if (nearest)
        fth_log_error("there is no command \"%s\"; did you mean %s?", name, nearest);
    else
        fth_log_error("there is no command \"%s\"; `farthing --help` lists them", name);
    return FTH_EXIT_USAGE;
}

static fth_exit_code run(int argc, char *const *argv)
{
    if (argc == 1 && fth_lambda_is_bootstrap(argv[0]))
        return fth_command_run(&fth_command_worker, &(fth_invocation){argv[0], 1, (char *[]){"lambda", NULL}});
    const char *name = argc > 1 ? argv[1] : "--help";
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        puts("farthing " FTH_VERSION);
        return FTH_EXIT_OK;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        const fth_command *command = argc > 2 ? fth_command_find(argv[2]) : NULL;
        if (command)
            return fth_command_run(command, &(fth_invocation){argv[0], 1, (char *[]){"--help", NULL}});
        print_help();
        return argc > 1 ? FTH_EXIT_OK : FTH_EXIT_USAGE;
    }
    const fth_command *command = fth_command_find(name);
    if (!command)
        return report_unknown(name);
    return fth_command_run(command, &(fth_invocation){argv[0], argc - 2, argv + 2});
}

/* Connections and files of a data set need more than the usual limit of 1024 descriptors. */
static void allow_descriptors(void)
{
    enum { WANTED = 65536 };
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= WANTED)
        return;
    files.rlim_cur = files.rlim_max < WANTED ? files.rlim_max : WANTED;
    setrlimit(RLIMIT_NOFILE, &files);
}

int main(int argc, char **argv)
{
    const fth_command *command = argc > 1 ? fth_command_find(argv[1]) : NULL;
    prctl(PR_SET_NAME, "farthing"); /* for ps and top, which would show "exe" if started as /proc/self/exe */
    signal(SIGXFSZ, SIG_IGN); /* beyond `ulimit -f` a write then fails with a message instead of ending the program */
    allow_descriptors();
    fth_log_set_level(FTH_LOG_INFO);
    if (command && command->computes)
        fth_choose_wait_policy(argv);
    fth_exit_code code = run(argc, argv);
    /* A result that was not written is a failure, even if only the last flush detects it. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fth_log_error("cannot write to standard output");
        code = code == FTH_EXIT_OK ? FTH_EXIT_FAILURE : code;
    }
    if (fth_cli_output_is_lost() && code == FTH_EXIT_OK)
        code = FTH_EXIT_FAILURE;
    if (fth_device_was_lost()) {
        fflush(NULL);
        _exit((int)code);
    }
    return code;
}
