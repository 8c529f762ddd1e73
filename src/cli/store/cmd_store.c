/* farthing store ls|cat|cp|rm|presign. cp is in store_copy.c, rm in store_remove.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/store/s3_flags.h"
#include "cli/store/store_cli.h"
#include "report/report.h"

enum { PIECE_BYTES = 8 << 20, SMALL = 64 };

typedef struct store_options {
    fth_option_bits set;
    bool recursive, list_long, yes, force, all, verify, json;
    char *method, *confirm;
    double expires_s, timeout_s;
    int64_t parallel;
    fth_s3_flags s3;
} store_options;

static const char *const methods[] = {"get", "put", NULL};

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, store_options, member)
static const fth_option store_rows[] = {
    {ROW("recursive", SWITCH, recursive), .help = "everything below the address (also -r)", .group = "Options"},
    {ROW("long", SWITCH, list_long), .help = "ls: with size and time (also -l)"},
    {ROW("json", SWITCH, json), .help = "ls, cp: print JSON, one object a line"},
    {ROW("parallel", INTEGER, parallel), .fallback = "8", .argument = "N", .minimum = 1, .maximum = 64,
     .help = "cp: objects copied at once"},
    {ROW("verify", SWITCH, verify), .help = "cp: read the copy back and compare its SHA-256"},
    {ROW("yes", SWITCH, yes), .help = "rm -r: do not ask, up to 1,000 objects (also -y)"},
    {ROW("force", SWITCH, force), .help = "rm -r: do not ask, however many objects there are"},
    {ROW("confirm", TEXT, confirm), .argument = "ADDRESS",
     .help = "rm -r: the address again, which deletes a folder that holds more than runs"},
    {ROW("all", SWITCH, all), .help = "rm -r: allow deleting a whole bucket or top-level folder"},
    {ROW("method", CHOICE, method), .fallback = "get", .choices = methods, .help = "presign: what the link is for"},
    {ROW("expires", DURATION, expires_s), .fallback = "1h", .argument = "TIME",
     .help = "presign: how long the link works"},
    {ROW("timeout", DURATION, timeout_s), .fallback = "1m", .argument = "TIME",
     .help = "give up on a request, its retries included, after this long"},
    FTH_S3_FLAG_ROWS(offsetof(store_options, s3)),
};
static const fth_option_table store_table = FTH_OPTION_TABLE(store_rows, store_options);

static fth_store_options how_to_open(const store_options *options)
{
    return fth_s3_store_options(&options->s3, options->timeout_s);
}

/* ---- ls ---- */

typedef struct list_state {
    const store_options *options;
    const fth_place *place;
    char *last_folder; /* the one shown last, so that each is shown once */
    uint64_t objects, bytes;
} list_state;

static void print_entry(const list_state *state, const char *name, const fth_store_object *object)
{
    char size[SMALL] = "-", time[SMALL] = "-";
    if (state->options->json) {
        json_t *json = json_pack("{s:o}", "name", fth_cli_json_text(name));
        if (object && json)
            json_object_update_new(json,
                                   json_pack("{s:I, s:f, s:o}", "bytes", (json_int_t)object->size_bytes, "modified",
                                             object->modified_s, "version", fth_cli_json_text(object->version.text)));
        if (json)
            fth_cli_print_json_new(json);
        return;
    }
    if (!state->options->list_long) {
        fth_print_line(stdout, "%s", name);
        return;
    }
    if (object) {
        fth_text_bytes((int64_t)object->size_bytes, size, sizeof size);
        if (object->modified_s > 0)
            fth_clock_format_utc(object->modified_s, time, sizeof time);
    }
    fth_print_line(stdout, "%10s  %-20s  %s", size, time, name);
}

static bool list_entry(void *context, const fth_store_object *object)
{
    list_state *state = context;
    size_t skip = strlen(state->place->prefix); /* names are shown without it */
    /* "a" lists the object a and what is below a/, not ab. */
    bool itself = !state->place->folder && strcmp(object->key, state->place->key) == 0;
    if (!itself && strncmp(object->key, state->place->prefix, skip) != 0)
        return true;
    const char *name = itself ? object->key : object->key + skip;
    const char *slash = state->options->recursive || itself ? NULL : strchr(name, '/');
    state->objects++;
    state->bytes += object->size_bytes;
    if (!slash && *name) { /* an empty name is the marker that some tools create for a folder */
        print_entry(state, name, object);
    } else if (slash) {
        char *folder = strndup(name, (size_t)(slash - name) + 1);
        if (folder && (!state->last_folder || strcmp(folder, state->last_folder) != 0)) {
            print_entry(state, folder, NULL);
            free(state->last_folder);
            state->last_folder = folder;
            folder = NULL;
        }
        free(folder);
    }
    return !ferror(stdout);
}

static fth_status list_place(const char *address, const store_options *options)
{
    fth_status status = FTH_OK;
    fth_place place = {0};
    fth_store_options open = how_to_open(options);
    list_state state = {.options = options, .place = &place};
    char *name = NULL;
    FTH_TRY(fth_place_open(address, &open, &place));
    FTH_TRY(fth_store_list(place.store, place.folder ? place.prefix : place.key, list_entry, &state));
    name = fth_place_describe(&place);
    FTH_REQUIRE(state.objects > 0 || !*place.prefix, FTH_INVALID, "there is nothing at %s", name);
    if (place.root && !*place.prefix)
        FTH_REQUIRE(fth_folder_exists(place.root), FTH_INVALID, "there is no folder %s", place.root);
    if (options->list_long && !options->json) {
        char size[SMALL];
        fth_text_bytes((int64_t)state.bytes, size, sizeof size);
        printf("%10s  in %s\n", size, FTH_COUNTED(state.objects, "object"));
    }

out:
    free(state.last_folder);
    free(name);
    fth_place_release(&place);
    return status;
}

/* ---- cat ---- */

static fth_status write_out(const void *bytes, size_t size_bytes)
{
    return fwrite(bytes, 1, size_bytes, stdout) == size_bytes ? FTH_OK
                                                              : fth_fail(FTH_IO, "cannot write to standard output");
}

static fth_status show_object(const char *address, const store_options *options)
{
    fth_status status = FTH_OK;
    fth_place place = {0};
    fth_store_options open = how_to_open(options);
    fth_store_object object = {0};
    bool found = false;
    char *bytes = NULL, *name = NULL;
    size_t size_bytes = 0;
    FTH_TRY(fth_place_open(address, &open, &place));
    name = fth_place_describe(&place);
    FTH_REQUIRE(*place.key && !place.folder, FTH_INVALID, "%s is not an object", name);
    FTH_TRY(fth_store_stat(place.store, place.key, &object, &found));
    FTH_REQUIRE(found, FTH_INVALID, "there is no object %s", name);
    if (object.size_bytes <= PIECE_BYTES) {
        FTH_TRY(fth_store_get(place.store, place.key, PIECE_BYTES, &bytes, &size_bytes, NULL));
        FTH_REQUIRE(bytes, FTH_INVALID, "there is no object %s any more", name);
        FTH_TRY(write_out(bytes, size_bytes));
        goto out;
    }
    FTH_TRY(fth_allocate(PIECE_BYTES, 1, &bytes));
    for (uint64_t at = 0; at < object.size_bytes; at += PIECE_BYTES) {
        size_t part = object.size_bytes - at < PIECE_BYTES ? (size_t)(object.size_bytes - at) : PIECE_BYTES;
        FTH_TRY(fth_store_get_range(place.store, place.key, at, bytes, part, &object.version));
        FTH_TRY(write_out(bytes, part));
    }

out:
    fth_store_object_release(&object);
    free(bytes);
    free(name);
    fth_place_release(&place);
    return status;
}

/* ---- rm ---- */

static fth_status delete_place(const char *address, const store_options *options)
{
    fth_remove_options how = {.recursive = options->recursive,
                              .yes = options->yes,
                              .force = options->force,
                              .all = options->all,
                              .confirm = options->confirm,
                              .store = how_to_open(options)};
    return fth_cli_remove(address, &how);
}

/* ---- presign ---- */

static fth_status print_link(const char *address, const store_options *options)
{
    fth_status status = FTH_OK;
    fth_place place = {0};
    fth_store_options open = how_to_open(options);
    char *url = NULL;
    FTH_TRY(fth_place_open(address, &open, &place));
    FTH_REQUIRE(*place.key && !place.folder, FTH_INVALID, "%s is not an object", address);
    FTH_TRY(fth_store_presign(place.store, strcmp(options->method, "put") == 0 ? "PUT" : "GET", place.key,
                              options->expires_s, &url));
    puts(url);

out:
    free(url);
    fth_place_release(&place);
    return status;
}

/* ---- the whole ---- */

static const struct verb {
    const char *name, *summary;
    fth_status (*each)(const char *address, const store_options *options); /* NULL: cp */
    bool stops;                                                            /* at the first address that fails */
} verbs[] = {{"ls", "list what is below an address", list_place, false},
             {"cat", "print objects", show_object, false},
             {"cp", "copy objects, or all below an address", NULL, true},
             {"rm", "delete objects", delete_place, true},
             {"presign", "create a link that works for a limited time without keys", print_link, false}};

static fth_choice choose_verb(size_t index)
{
    if (index >= FTH_COUNT_OF(verbs))
        return (fth_choice){0};
    return (fth_choice){verbs[index].name, verbs[index].summary};
}

static const struct verb *find_verb(const char *name)
{
    for (size_t i = 0; i < FTH_COUNT_OF(verbs); i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

static fth_exit_code run(const fth_command *command, void *asked, const fth_arguments *arguments)
{
    const store_options *options = asked;
    if (arguments->count == 0)
        return fth_cli_usage(command, "missing an action: ls, cat, cp, rm or presign");
    const struct verb *verb = find_verb(arguments->positional[0]);
    if (!verb)
        return fth_cli_usage_choice(command, "what to do", arguments->positional[0], choose_verb);
    if (!verb->each) {
        fth_copy_options how = {.recursive = options->recursive,
                                .verify = options->verify,
                                .json = options->json,
                                .parallel = (int)options->parallel,
                                .store = how_to_open(options)};
        return fth_cli_copy(command, arguments->positional + 1, arguments->count - 1, &how);
    }
    if (arguments->count == 1)
        return fth_cli_usage(command, "%s needs an address: farthing store %s s3://bucket/key", verb->name, verb->name);
    if (*options->confirm && arguments->count > 2)
        return fth_cli_usage(command, "--confirm names one address; %d are given", arguments->count - 1);
    fth_exit_code code = FTH_EXIT_OK;
    for (int i = 1; i < arguments->count; i++) {
        if (verb->each(arguments->positional[i], options) == FTH_OK)
            continue;
        code = fth_cli_fail();
        if (verb->stops)
            break;
    }
    return code;
}

/* The short flags of ls, cp and rm. */
static const char *long_flag(char letter)
{
    switch (letter) {
    case 'r':
    case 'R': return "--recursive";
    case 'l': return "--long";
    case 'y': return "--yes";
    default: return NULL;
    }
}

const fth_command fth_command_store = {
    .name = "store",
    .arguments = "ls|cat|cp|rm|presign ADDRESS... [flags]",
    .summary = "list, copy, delete and link to objects in buckets and folders",
    .details = "Addresses: a path, s3://bucket/key, gs://bucket/key, az://account/container/key, https://host/path\n",
    .actions = choose_verb,
    .examples =
        (const fth_example[]){
            {"farthing store ls -l s3://bucket/runs", "with size and time"},
            {"farthing store cat s3://bucket/runs/a/run.json", "to standard output"},
            {"farthing store cp model.safetensors s3://bucket/models/", "into a folder"},
            {"farthing store cp -r s3://bucket/runs/a copies/a", "copy the contents of one folder into another"},
            {"farthing store cp s3://bucket/set.tar - | tar t", "- is standard output"},
            {"farthing store rm -r s3://bucket/runs/old", "all below it"},
            {"farthing store rm -r -y --confirm copies copies", "a folder that is not a run must be named twice"},
            {"farthing store presign s3://bucket/models/m.safetensors --expires 10m",
             "a link for someone without keys"},
            {0}},
    .table = &store_table,
    .long_flag = long_flag,
    .run = run,
};
