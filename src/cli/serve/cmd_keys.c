/* farthing keys: makes keys for signed requests. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "http/signature.h"

typedef struct keys_options {
    fth_option_bits set;
    char *role, *data;
} keys_options;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, keys_options, member)
static const fth_option rows[] = {
    {ROW("role", CHOICE, role), .fallback = "train", .argument = "ROLE", .list = fth_role_choice,
     .help = "read: pull; train: push too; admin: everything"},
    {ROW("data", TEXT, data), .argument = "NAMES",
     .help = "of the data sets that `farthing serve batches` has, only these, with commas between them"},
};
static const fth_option_table table = FTH_OPTION_TABLE(rows, keys_options);

static fth_status append(const char *path, const char *line)
{
    fth_status status = FTH_OK;
    size_t length = strlen(line);
    char *text = NULL;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    FTH_REQUIRE(fd >= 0, FTH_IO, "open %s: %s", path, strerror(errno));
    FTH_TRY(fth_keys_read(path, &text)); /* only where nobody else can read */
    FTH_REQUIRE(write(fd, line, length) == (ssize_t)length && fsync(fd) == 0, FTH_IO, "write %s: %s", path,
                strerror(errno));

out:
    if (fd >= 0)
        close(fd);
    fth_wipe_text(text);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    const keys_options *asked = options;
    fth_status status = FTH_OK;
    fth_role role = FTH_ROLE_TRAIN;
    char *line = NULL;
    const char *file = arguments->positional[0];

    if (arguments->count > 1)
        return fth_cli_usage(command, "one file is enough");
    fth_role_find(asked->role, &role);
    FTH_TRY(fth_keys_generate(role, asked->data, &line));
    if (file) {
        FTH_TRY(append(file, line));
        fth_print_line(stdout, "added the key %.*s (%s) to %s", (int)strcspn(line, " "), line, asked->role, file);
    } else {
        fputs(line, stdout);
    }

out:
    fth_wipe_text(line);
    return fth_cli_exit_code(status);
}

const fth_command fth_command_keys = {
    .name = "keys",
    .arguments = "[FILE] [--role ROLE] [--data NAMES]",
    .summary = "make an access key and its secret, for services",
    .details = "A key is a line \"ACCESS SECRET ROLE [data=NAMES]\". With a file it is added there, else printed. The "
               "server reads the\n"
               "file (--keys FILE); a worker has FARTHING_ACCESS_KEY and FARTHING_SECRET_KEY in its environment.\n",
    .table = &table,
    .examples = (const fth_example[]){{"farthing keys keys.txt --role read", "add a key that may only read"}, {0}},
    .run = run,
};
