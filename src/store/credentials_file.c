/* See credentials.h: profiles in the INI files of AWS's tools.
 *
 *     ~/.aws/credentials   [name]           aws_access_key_id = ..., aws_secret_access_key = ...,
 *                                           aws_session_token = ...
 *     ~/.aws/config        [profile name]   region = ..., endpoint_url = ..., and keys too;
 *                                           [default] has no "profile"
 *
 * Lines that begin with white space belong to nested settings and are passed over; '#' and ';'
 * begin comments. */
#include <stdlib.h>
#include <string.h>

#include "store/credentials.h"

enum { MAX_FILE_BYTES = 1 << 20 };

static bool is_blank(char letter)
{
    return letter == ' ' || letter == '\t' || letter == '\r';
}

/* The text between `begin` and `end` without blanks around it, as a fresh string. */
static char *trimmed(const char *begin, const char *end)
{
    while (begin < end && is_blank(*begin))
        begin++;
    while (end > begin && is_blank(end[-1]))
        end--;
    return strndup(begin, (size_t)(end - begin));
}

char *fth_ini_value(const char *text, const char *section, const char *name)
{
    bool inside = false;
    char *found = NULL;
    for (const char *line = text; *line;) {
        const char *end = line + strcspn(line, "\n");
        if (*line == '[') {
            const char *close = memchr(line, ']', (size_t)(end - line));
            char *title = trimmed(line + 1, close ? close : end);
            inside = strcmp(title, section) == 0;
            free(title);
        } else if (inside && !is_blank(*line) && *line != '#' && *line != ';') {
            const char *equals = memchr(line, '=', (size_t)(end - line));
            if (equals) {
                char *key = trimmed(line, equals);
                if (strcmp(key, name) == 0) { /* the last one counts */
                    fth_wipe_text(found);
                    found = trimmed(equals + 1, end);
                }
                free(key);
            }
        }
        line = *end ? end + 1 : end;
    }
    if (found && !*found) {
        free(found);
        found = NULL;
    }
    return found;
}

static char *path_of(const char *variable, const char *name)
{
    const char *path = getenv(variable), *home = getenv("HOME");
    if (path && *path)
        return strdup(path);
    return fth_format("%s/.aws/%s", home ? home : "", name);
}

static fth_status read_section(const char *variable, const char *name, const char *section, fth_profile *profile)
{
    fth_status status = FTH_OK;
    char *path = path_of(variable, name), *text = NULL, *key = NULL, *secret = NULL;
    size_t size_bytes = 0;
    if (!fth_file_exists(path) || strcmp(path, "/dev/null") == 0) /* the usual way to say "none" */
        goto out;
    FTH_TRY(fth_file_read_all(path, MAX_FILE_BYTES, &text, &size_bytes));
    key = fth_ini_value(text, section, "aws_access_key_id");
    secret = fth_ini_value(text, section, "aws_secret_access_key");
    FTH_REQUIRE(!key == !secret, FTH_INVALID,
                "%s: [%s] has only one of aws_access_key_id and aws_secret_access_key; it takes both", path, section);
    if (key && !profile->keys.access_key) {
        profile->keys.access_key = key;
        profile->keys.secret_key = secret;
        profile->keys.session_token = fth_ini_value(text, section, "aws_session_token");
        key = secret = NULL;
    }
    if (!profile->region)
        profile->region = fth_ini_value(text, section, "region");
    if (!profile->endpoint)
        profile->endpoint = fth_ini_value(text, section, "endpoint_url");

out:
    fth_wipe_text(key);
    fth_wipe_text(secret);
    fth_wipe_text(text);
    free(path);
    return status;
}

fth_status fth_credentials_read_profile(const char *name, fth_profile *profile)
{
    fth_status status = FTH_OK;
    char *section = strcmp(name, "default") == 0 ? strdup(name) : fth_format("profile %s", name);
    FTH_TRY(read_section("AWS_SHARED_CREDENTIALS_FILE", "credentials", name, profile));
    FTH_TRY(read_section("AWS_CONFIG_FILE", "config", section, profile));

out:
    free(section);
    return status;
}

void fth_profile_release(fth_profile *profile)
{
    fth_cloud_keys_release(&profile->keys);
    free(profile->region);
    free(profile->endpoint);
    *profile = (fth_profile){0};
}
