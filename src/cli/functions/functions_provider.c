/* The platform that the commands of `farthing functions` use, and NAME=VALUE pairs on their command
 * lines. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/functions/functions_cli.h"
#include "platform/platform.h"

/* Every platform: a new one is its fth_provider_kind and its row here. */
static const fth_provider_kind *const kinds[] = {&fth_provider_openwhisk, &fth_provider_lambda, &fth_provider_local};

fth_choice fth_cli_provider_choice(size_t index)
{
    if (index >= FTH_COUNT_OF(kinds))
        return (fth_choice){0};
    return (fth_choice){kinds[index]->name, kinds[index]->summary};
}

static const char *given(const char *text)
{
    return text && *text ? text : NULL;
}

fth_status fth_cli_open_provider(const fth_provider_flags *flags, const fth_stop *stop, fth_provider **provider)
{
    const fth_provider_kind *kind = NULL;
    *provider = NULL;
    for (size_t i = 0; i < FTH_COUNT_OF(kinds); i++)
        if (strcmp(kinds[i]->name, flags->provider) == 0)
            kind = kinds[i];
    if (!kind)
        return fth_fail_choice("--provider", flags->provider, fth_cli_provider_choice);
    return kind->open(&(fth_provider_options){.host = given(flags->host),
                                              .region = given(flags->region),
                                              .ca_file = given(flags->ca_file),
                                              .insecure = flags->insecure,
                                              .stop = stop},
                      provider);
}

void fth_cli_close_provider(fth_provider *provider)
{
    if (provider)
        provider->kind->close(provider);
}

/* Names of values that must not appear in `ps` or a shell's history. */
static bool is_secret(const char *name)
{
    static const char token[] = "TOKEN";
    size_t length = strlen(name);
    return strcasestr(name, "SECRET") || strcasestr(name, "PASSWORD") ||
           (length >= sizeof token - 1 && strcasecmp(name + length - (sizeof token - 1), token) == 0);
}

static json_t *read_value(const char *text, fth_pair_values kind)
{
    json_t *value = kind == FTH_PAIR_JSON ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    return value ? value : json_string(text);
}

static fth_status read_pair(const char *flag, const char *line, fth_pair_values kind, json_t *object)
{
    fth_status status = FTH_OK;
    size_t length = strcspn(line, "=");
    char *name = strndup(line, length);
    const char *value = line[length] ? line + length + 1 : NULL;

    FTH_REQUIRE(name, FTH_NO_MEMORY, "no memory for %s", flag);
    FTH_REQUIRE(*name && !strpbrk(name, " \t"), FTH_INVALID, "%s NAME=VALUE, not \"%.40s\"", flag, name);
    FTH_REQUIRE(!value || !is_secret(name) || strncmp(flag, "--", 2) != 0, FTH_INVALID,
                "%s %s=...: other users can see a command line; set %s in the environment and give %s, or use "
                "--env-file",
                flag, name, name, kind == FTH_PAIR_TEXT ? "--env with the name alone" : "it to deploy with --env");
    if (!value && kind == FTH_PAIR_TEXT) {
        value = getenv(name);
        FTH_REQUIRE(value, FTH_INVALID, "%s %s: not set in this environment; export %s first", flag, name, name);
    }
    FTH_REQUIRE(value, FTH_INVALID, "%s NAME=VALUE, not \"%.40s\"", flag, name);
    FTH_REQUIRE(json_object_set_new(object, name, read_value(value, kind)) == 0, FTH_INVALID,
                "%s %s: its value is not UTF-8", flag, name);

out:
    free(name);
    return status;
}

fth_status fth_cli_read_pairs(const char *flag, const char *lines, fth_pair_values kind, json_t *object)
{
    fth_status status = FTH_OK;
    size_t size_bytes = strlen(lines);
    char *copy = strdup(lines), *rest = copy, *line;
    FTH_REQUIRE(copy, FTH_NO_MEMORY, "no memory for %s", flag);
    while (status == FTH_OK && (line = strsep(&rest, "\n"))) {
        size_t length = strlen(line);
        if (length > 0 && line[length - 1] == '\r')
            line[length - 1] = '\0';
        if (*line && *line != '#')
            status = read_pair(flag, line, kind, object);
    }

out:
    if (copy)
        fth_wipe(copy, size_bytes);
    free(copy);
    return status;
}

const char *fth_cli_text_member(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "-";
}
