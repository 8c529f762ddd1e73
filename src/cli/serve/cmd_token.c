/* farthing token: the token of a server that this user runs without keys, as a header for curl. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "http/local_token.h"

static fth_status print_token(const char *where)
{
    fth_status status = FTH_OK;
    char secret[FTH_LOCAL_SECRET + 1] = "", address[FTH_MAX_LOCAL_ADDRESS + 1], *url = NULL;

    bool is_port = *where && where[strspn(where, "0123456789")] == '\0';
    url = is_port                ? fth_format("http://127.0.0.1:%s", where)
          : strstr(where, "://") ? fth_format("%s", where)
                                 : fth_format("http://%s", where);
    FTH_REQUIRE(url, FTH_NO_MEMORY, "no memory for an address");
    FTH_REQUIRE(fth_local_token_find(url, secret, address), FTH_INVALID,
                "no token for %s: no server of this user runs there, or it has keys or --unsigned", where);
    printf("Authorization: Bearer %s\n", secret);

out:
    fth_wipe(secret, sizeof secret);
    fth_wipe_text(url);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    (void)options;
    if (arguments->count != 1)
        return fth_cli_usage(command, "give the server's port or address");
    return fth_cli_exit_code(print_token(arguments->positional[0]));
}

const fth_command fth_command_token = {
    .name = "token",
    .arguments = "PORT | URL",
    .summary = "print the token of a server on this machine, for curl",
    .details = "A server without keys answers only the user who runs it. farthing's clients find its token "
               "automatically; for\nother clients, this prints it as a header. Do not put it on a command line, which "
               "other users can read.\n",
    .examples =
        (const fth_example[]){
            {"farthing token 29500 | curl -H @- http://127.0.0.1:29500/getVersion", "ask a parameter server"}, {0}},
    .run = run,
};
