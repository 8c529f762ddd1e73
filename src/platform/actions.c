/* See actions.h. */
#include "platform/actions.h"

#include <archive.h>
#include <archive_entry.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "platform/files.h"

static const int64_t max_package_bytes = 250 << 20; /* Lambda's limit */
enum { ENTRY_BYTES = 4096 };                        /* counted for each entry, even an empty one */
static const int smallest_mb = 1, largest_mb = 1 << 20, usual_mb = 256;
static const double usual_timeout_s = 300, longest_timeout_s = 86400;

bool fth_action_name_is_valid(const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length >= FTH_ACTION_NAME || !(isalnum((unsigned char)*name) || *name == '_'))
        return false;
    for (; *name; name++)
        if (!isascii((unsigned char)*name) || !(isalnum((unsigned char)*name) || strchr("-_.@", *name)))
            return false;
    return true;
}

static fth_status check_name(const char *name)
{
    return fth_action_name_is_valid(name)
               ? FTH_OK
               : fth_fail(FTH_INVALID, "\"%s\" cannot be the name of a function; use letters, digits, - and _", name);
}

/* actions/NAME, or a file in it. */
static char *path_of(const char *folder, const char *name, const char *file)
{
    return file ? fth_format("%s/actions/%s/%s", folder, name, file) : fth_format("%s/actions/%s", folder, name);
}

/* ---- packages ---- */

static fth_status copy_entry(struct archive *from, struct archive *to, const char *zip, int64_t *left)
{
    const void *bytes;
    size_t size;
    la_int64_t offset;
    int got;
    while ((got = archive_read_data_block(from, &bytes, &size, &offset)) == ARCHIVE_OK) {
        *left -= (int64_t)size;
        if (*left < 0)
            break;
        if (archive_write_data_block(to, bytes, size, offset) != ARCHIVE_OK)
            return fth_fail(FTH_IO, "unpack %s: %s", zip, archive_error_string(to));
    }
    if (*left < 0)
        return fth_fail(FTH_INVALID, "unpack %s: more than %lld MB", zip, (long long)(max_package_bytes >> 20));
    return got == ARCHIVE_EOF ? FTH_OK : fth_fail(FTH_CORRUPT, "unpack %s: %s", zip, archive_error_string(from));
}

/* Unpacks regular files and folders only; refuses names that lead elsewhere. */
static fth_status unpack(const char *zip, const char *folder)
{
    fth_status status = FTH_OK;
    int64_t left = max_package_bytes;
    struct archive *from = archive_read_new(), *to = archive_write_disk_new();
    struct archive_entry *entry;
    int got;

    FTH_REQUIRE(from && to, FTH_NO_MEMORY, "no memory to unpack %s", zip);
    archive_read_support_format_zip(from);
    archive_write_disk_set_options(to, ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_SECURE_SYMLINKS);
    FTH_REQUIRE(archive_read_open_filename(from, zip, 1 << 16) == ARCHIVE_OK, FTH_INVALID, "open %s: %s", zip,
                archive_error_string(from));
    while ((got = archive_read_next_header(from, &entry)) == ARCHIVE_OK) {
        const char *name = archive_entry_pathname(entry);
        const bool plain = archive_entry_filetype(entry) == AE_IFREG || archive_entry_filetype(entry) == AE_IFDIR;
        FTH_REQUIRE(name && plain && name[0] != '/' && !strstr(name, ".."), FTH_INVALID,
                    "unpack %s: entry \"%s\" is not a file of the package", zip, name ? name : "");
        char *path = fth_path_join(folder, name);
        FTH_REQUIRE(path, FTH_NO_MEMORY, "no memory to unpack %s", zip);
        archive_entry_set_pathname(entry, path);
        archive_entry_set_perm(entry, archive_entry_perm(entry) & 0111 ? 0755 : 0644);
        free(path);
        FTH_REQUIRE(archive_write_header(to, entry) == ARCHIVE_OK, FTH_IO, "unpack %s: %s", zip,
                    archive_error_string(to));
        left -= ENTRY_BYTES;
        FTH_TRY(copy_entry(from, to, zip, &left));
        FTH_REQUIRE(archive_write_finish_entry(to) == ARCHIVE_OK, FTH_IO, "unpack %s: %s", zip,
                    archive_error_string(to));
    }
    FTH_REQUIRE(got == ARCHIVE_EOF, FTH_INVALID, "unpack %s: %s", zip, archive_error_string(from));

out:
    archive_read_free(from);
    archive_write_free(to);
    return status;
}

/* ---- deploying ---- */

static fth_status check_spec(const fth_function_spec *spec)
{
    const char *key;
    json_t *value;
    fth_status status = check_name(spec->name);
    if (status != FTH_OK)
        return status;
    if (spec->memory_mb != 0 && (spec->memory_mb < smallest_mb || spec->memory_mb > largest_mb))
        return fth_fail(FTH_INVALID, "function %s: %d MB of memory are outside the limits", spec->name,
                        spec->memory_mb);
    if (spec->timeout_s != 0 && !(spec->timeout_s > 0 && spec->timeout_s <= longest_timeout_s))
        return fth_fail(FTH_INVALID, "function %s: a time limit of %g s is outside the limits", spec->name,
                        spec->timeout_s);
    if (spec->contract && strcmp(spec->contract, "openwhisk") != 0 && strcmp(spec->contract, "lambda") != 0)
        return fth_fail(FTH_INVALID, "function %s: unknown contract \"%s\"; known: openwhisk, lambda", spec->name,
                        spec->contract);
    if (spec->command && (!spec->command[0] || spec->command[0][0] != '/' || access(spec->command[0], X_OK) != 0))
        return fth_fail(FTH_INVALID, "function %s: %s cannot be executed; give the full path of a program", spec->name,
                        spec->command[0] ? spec->command[0] : "no program");
    json_object_foreach((json_t *)(uintptr_t)spec->environment, key,
                        value) if (!json_is_string(value) || !*key ||
                                   strchr(key, '=')) return fth_fail(FTH_INVALID,
                                                                     "function %s: variable \"%s\" is not a string",
                                                                     spec->name, key);
    return FTH_OK;
}

/* Unpacks the zip, which has a `bootstrap` unless there is a command. */
static fth_status add_package(const fth_function_spec *spec, const char *place, json_t *facts)
{
    fth_status status = FTH_OK;
    char sha256[65], *bootstrap = fth_path_join(place, "bootstrap");
    uint64_t size;

    FTH_TRY(fth_folder_create(place));
    FTH_TRY(unpack(spec->zip, place));
    FTH_REQUIRE(spec->command || fth_file_exists(bootstrap), FTH_INVALID,
                "function %s: %s has no file `bootstrap` at its top, which is what runs", spec->name, spec->zip);
    if (!spec->command)
        chmod(bootstrap, 0755); /* zips from some systems have no modes */
    FTH_TRY(fth_file_sha256_of(spec->zip, sha256, &size));
    json_object_set_new(facts, "code_bytes", json_integer((json_int_t)size));
    json_object_set_new(facts, "code_sha256", json_string(sha256));
    json_object_set_new(facts, "package", json_string(strrchr(place, '/') + 1));

out:
    free(bootstrap);
    return status;
}

static fth_status write_secrets(const fth_function_spec *spec, const char *path)
{
    json_t *secrets = json_object();
    if (spec->environment)
        json_object_set(secrets, "environment", (json_t *)(uintptr_t)spec->environment);
    if (spec->parameters)
        json_object_set(secrets, "parameters", (json_t *)(uintptr_t)spec->parameters);
    char *text = json_dumps(secrets, 0);
    fth_status status =
        text ? fth_write_private(path, text, strlen(text)) : fth_fail(FTH_NO_MEMORY, "no memory for %s", path);
    fth_wipe_text(text);
    json_decref(secrets);
    return status;
}

/* Locks a function against other deployments and removals in all processes; the lock ends with the
 * process. */
static fth_status lock_place(const char *place, int *lock)
{
    fth_status status = FTH_OK;
    struct stat locked, named;
    *lock = -1;
    for (;;) {
        FTH_TRY(fth_folder_create(place));
        *lock = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (*lock < 0 && errno == ENOENT)
            continue;
        FTH_REQUIRE(*lock >= 0 && flock(*lock, LOCK_EX) == 0, FTH_IO, "lock %s: %s", place, strerror(errno));
        /* another process may have removed it meanwhile */
        if (stat(place, &named) == 0 && fstat(*lock, &locked) == 0 && named.st_ino == locked.st_ino)
            return FTH_OK;
        close(*lock);
        *lock = -1;
    }

out:
    if (*lock >= 0)
        close(*lock);
    *lock = -1;
    return status;
}

/* Whether a process has loaded the function of that package. */
static bool is_in_use(const char *package)
{
    int lock = open(package, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool used = lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0;
    if (lock >= 0)
        close(lock);
    return used;
}

/* Removes what does not belong to the published revision. */
static void remove_others(const char *place, const json_t *facts)
{
    char secrets[64];
    const char *package = fth_json_text(facts, "package", "");
    snprintf(secrets, sizeof secrets, "secrets-%s.json", fth_json_text(facts, "revision", ""));
    DIR *folder = opendir(place);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const char *name = entry->d_name;
        const bool ours = strncmp(name, "secrets-", 8) == 0 || strncmp(name, "package-", 8) == 0 ||
                          strncmp(name, FTH_FILE_TEMPORARY, strlen(FTH_FILE_TEMPORARY)) == 0;
        if (!ours || strcmp(name, secrets) == 0 || strcmp(name, package) == 0)
            continue;
        char *path = fth_path_join(place, name);
        if (path && !is_in_use(path))
            fth_remove_tree(path);
        free(path);
    }
    if (folder)
        closedir(folder);
}

/* The content of action.json, except for the code. */
static json_t *make_facts(const fth_function_spec *spec, const json_t *more, const char *revision, const json_t *before)
{
    json_t *facts = more ? json_deep_copy(more) : json_object();
    json_object_set_new(facts, "name", json_string(spec->name));
    json_object_set_new(facts, "revision", json_string(revision));
    json_object_set_new(facts, "version", json_integer(json_integer_value(json_object_get(before, "version")) + 1));
    json_object_set_new(facts, "contract", json_string(spec->contract ? spec->contract : "openwhisk"));
    json_object_set_new(facts, "memory_mb", json_integer(spec->memory_mb ? spec->memory_mb : usual_mb));
    json_object_set_new(facts, "timeout_s", json_real(spec->timeout_s > 0 ? spec->timeout_s : usual_timeout_s));
    json_object_set_new(facts, "updated", json_real(fth_clock_wall_seconds()));
    if (spec->image)
        json_object_set_new(facts, "image", json_string(spec->image));
    if (spec->role)
        json_object_set_new(facts, "role", json_string(spec->role));
    if (spec->command) {
        json_t *command = json_array();
        for (const char *const *word = spec->command; *word; word++)
            json_array_append_new(command, json_string(*word));
        json_object_set_new(facts, "command", command);
    }
    return facts;
}

/* Writes and publishes a new revision. `keeps_code`: with the code of `before`. */
static fth_status publish(const char *folder, const fth_function_spec *spec, const json_t *more, const json_t *before,
                          bool keeps_code)
{
    static const char *const code[] = {"command", "image", "package", "code_bytes", "code_sha256"};
    fth_status status = FTH_OK;
    char revision[FTH_ACTION_REVISION];
    char *place = path_of(folder, spec->name, NULL), *file = path_of(folder, spec->name, "action.json");
    char *secrets = NULL, *package = NULL;
    json_t *facts = NULL;

    FTH_TRY(fth_make_id(8, revision));
    secrets = fth_format("%s/secrets-%s.json", place, revision);
    package = fth_format("%s/package-%s", place, revision);
    FTH_REQUIRE(facts = make_facts(spec, more, revision, before), FTH_NO_MEMORY, "no memory for %s", file);
    for (size_t i = 0; keeps_code && i < FTH_COUNT_OF(code); i++)
        if (json_object_get(before, code[i]))
            json_object_set(facts, code[i], json_object_get(before, code[i]));
    FTH_TRY(write_secrets(spec, secrets));
    if (spec->zip && !keeps_code)
        FTH_TRY(add_package(spec, package, facts));
    FTH_TRY(fth_json_write(file, facts));
    remove_others(place, facts);

out:
    if (status != FTH_OK && secrets) {
        unlink(secrets);
        fth_remove_tree(package);
    }
    json_decref(facts);
    free(place);
    free(file);
    free(secrets);
    free(package);
    return status;
}

/* action.json of the deployed function; or NULL. */
static json_t *read_before(const char *folder, const char *name)
{
    char *file = path_of(folder, name, "action.json");
    json_t *before = NULL;
    if (fth_file_exists(file) && fth_json_read(file, &before) != FTH_OK)
        before = NULL; /* a damaged one is replaced */
    free(file);
    return before;
}

static fth_status deploy(const char *folder, const fth_function_spec *spec, const json_t *more, bool keeps_code)
{
    fth_status status = FTH_OK;
    char *place = NULL;
    json_t *before = NULL;
    int lock = -1;

    FTH_TRY(check_spec(spec));
    place = path_of(folder, spec->name, NULL);
    FTH_TRY(lock_place(place, &lock));
    before = read_before(folder, spec->name);
    FTH_REQUIRE(before || !keeps_code, FTH_INVALID, "no function %s; deploy it first", spec->name);
    FTH_TRY(publish(folder, spec, more, before, keeps_code));

out:
    if (status != FTH_OK && lock >= 0 && !before)
        rmdir(place); /* succeeds only if it is empty */
    if (lock >= 0)
        close(lock);
    json_decref(before);
    free(place);
    return status;
}

fth_status fth_action_store(const char *folder, const fth_function_spec *spec, const json_t *more)
{
    return deploy(folder, spec, more, false);
}

fth_status fth_action_change(const char *folder, const fth_function_spec *spec, const json_t *more)
{
    return deploy(folder, spec, more, true);
}

/* ---- reading ---- */

bool fth_action_exists(const char *folder, const char *name)
{
    char *file = fth_action_name_is_valid(name) ? path_of(folder, name, "action.json") : NULL;
    bool exists = fth_file_exists(file);
    free(file);
    return exists;
}

/* Loads what is deployed now. *revision is set even if its other files are gone already. */
static fth_status load(const char *folder, const char *name, char revision[FTH_ACTION_REVISION], fth_action *action)
{
    fth_status status = FTH_OK;
    char *file = NULL, *secrets_file = NULL;
    json_t *secrets = NULL;

    *action = (fth_action){0};
    FTH_TRY(check_name(name));
    file = path_of(folder, name, "action.json");
    FTH_REQUIRE(fth_file_exists(file), FTH_INVALID, "no function %s; deploy it first", name);
    FTH_TRY(fth_json_read(file, &action->facts));
    snprintf(action->name, sizeof action->name, "%s", name);
    snprintf(action->revision, sizeof action->revision, "%s", fth_json_text(action->facts, "revision", ""));
    memcpy(revision, action->revision, sizeof action->revision);
    action->lambda = strcmp(fth_json_text(action->facts, "contract", ""), "lambda") == 0;
    action->memory_mb = (int)json_integer_value(json_object_get(action->facts, "memory_mb"));
    action->timeout_s = json_number_value(json_object_get(action->facts, "timeout_s"));
    FTH_REQUIRE(action->memory_mb > 0 && action->timeout_s > 0 && *action->revision, FTH_CORRUPT,
                "read %s: it lacks limits or revision; deploy the function again", file);
    action->command = json_incref(json_object_get(action->facts, "command"));
    const char *package = fth_json_text(action->facts, "package", NULL);
    if (package) {
        FTH_REQUIRE(action->package = path_of(folder, name, package), FTH_NO_MEMORY, "no memory for a path");
        action->package_in_use = opendir(action->package);
        FTH_REQUIRE(action->package_in_use && flock(dirfd(action->package_in_use), LOCK_SH) == 0, FTH_IO, "open %s: %s",
                    action->package, strerror(errno));
    }
    secrets_file = fth_format("%s/actions/%s/secrets-%s.json", folder, name, action->revision);
    FTH_TRY(fth_json_read(secrets_file, &secrets));
    action->environment = json_incref(json_object_get(secrets, "environment"));
    action->parameters = json_incref(json_object_get(secrets, "parameters"));

out:
    json_decref(secrets);
    free(file);
    free(secrets_file);
    if (status != FTH_OK)
        fth_action_release(action);
    return status;
}

/* A concurrent deployment may remove the files of the revision that was found; then there is a
 * newer one. */
fth_status fth_action_load(const char *folder, const char *name, fth_action *action)
{
    char before[FTH_ACTION_REVISION] = "", revision[FTH_ACTION_REVISION] = "";
    fth_status status;
    do {
        memcpy(before, revision, sizeof before);
        status = load(folder, name, revision, action);
    } while (status != FTH_OK && strcmp(revision, before) != 0);
    return status;
}

void fth_action_release(fth_action *action)
{
    json_decref(action->command);
    json_decref(action->environment);
    json_decref(action->parameters);
    json_decref(action->facts);
    free(action->package);
    if (action->package_in_use)
        closedir(action->package_in_use);
    *action = (fth_action){0};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

fth_status fth_action_list(const char *folder, json_t **list)
{
    fth_status status = FTH_OK;
    char *place = fth_path_join(folder, "actions"), **names = NULL;
    size_t count = 0, capacity = 0;
    DIR *directory = place ? opendir(place) : NULL;

    *list = json_array();
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        if (!fth_action_exists(folder, entry->d_name))
            continue;
        FTH_TRY(fth_grow(&names, count, &capacity, sizeof *names));
        FTH_REQUIRE(names[count] = strdup(entry->d_name), FTH_NO_MEMORY, "no memory for a list");
        count++;
    }
    if (count > 0)
        qsort(names, count, sizeof *names, by_name);
    for (size_t i = 0; i < count; i++) {
        json_t *facts = NULL;
        char *file = path_of(folder, names[i], "action.json");
        if (fth_json_read(file, &facts) == FTH_OK) /* it may have been removed */
            json_array_append_new(*list, facts);
        free(file);
    }

out:
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
    free(place);
    if (directory)
        closedir(directory);
    return status;
}

fth_status fth_action_remove(const char *folder, const char *name)
{
    fth_status status = FTH_OK;
    char *file = NULL, *place = NULL;
    int lock = -1;

    FTH_TRY(check_name(name));
    file = path_of(folder, name, "action.json");
    place = path_of(folder, name, NULL);
    FTH_REQUIRE(fth_file_exists(file), FTH_INVALID, "no function %s", name);
    FTH_TRY(lock_place(place, &lock));
    unlink(file); /* first, which undeploys the function */
    fth_remove_tree(place);

out:
    if (lock >= 0)
        close(lock);
    free(file);
    free(place);
    return status;
}
