/* Reads options from a YAML file: one mapping of names to scalars, through libyaml's events, which
 * carry the line numbers. Other features of YAML (nesting, lists, anchors, tags, several documents)
 * are errors that name the feature. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "base/options_internal.h"
#include "base/path.h"

enum { MAX_YAML_BYTES = 1 << 20 };

typedef struct reader {
    const char *path;
    const char *text;
    size_t size_bytes;
    yaml_parser_t parser;
    yaml_event_t event;
    size_t given_on_line[FTH_MAX_OPTIONS]; /* 0: not yet */
} reader;

static size_t line_of_byte(const reader *in, size_t offset)
{
    size_t line = 1;
    for (size_t i = 0; i < offset && i < in->size_bytes; i++)
        line += in->text[i] == '\n';
    return line;
}

static size_t event_line(const reader *in)
{
    return in->event.start_mark.line + 1;
}

static fth_status fail_syntax(const reader *in)
{
    const yaml_parser_t *parser = &in->parser;
    const char *problem = parser->problem ? parser->problem : "unreadable";
    if (parser->error == YAML_MEMORY_ERROR)
        return fth_fail(FTH_NO_MEMORY, "%s: no memory to read it", in->path);
    if (parser->error == YAML_READER_ERROR) /* characters, not structure; libyaml counts them in bytes */
        return fth_fail(FTH_INVALID, "%s line %zu: not UTF-8 text: %s", in->path,
                        line_of_byte(in, parser->problem_offset), problem);
    return fth_fail(FTH_INVALID, "%s line %zu: bad YAML: %s%s%s", in->path, parser->problem_mark.line + 1, problem,
                    parser->context ? " " : "", parser->context ? parser->context : "");
}

static fth_status next_event(reader *in)
{
    yaml_event_delete(&in->event);
    if (!yaml_parser_parse(&in->parser, &in->event)) {
        memset(&in->event, 0, sizeof in->event);
        return fail_syntax(in);
    }
    return FTH_OK;
}

/* Leaves with a message unless the event is a plain piece of text. `what` is "a key" or "the value
 * of 'lr'". */
static fth_status require_scalar(const reader *in, const char *what)
{
    size_t line = event_line(in);
    switch (in->event.type) {
    case YAML_SCALAR_EVENT: break;
    case YAML_ALIAS_EVENT:
        return fth_fail(FTH_INVALID, "%s line %zu: aliases (*name) are not supported; write the value out", in->path,
                        line);
    case YAML_SEQUENCE_START_EVENT:
        return fth_fail(FTH_INVALID, "%s line %zu: %s is a list; expected a single value", in->path, line, what);
    case YAML_MAPPING_START_EVENT:
        return fth_fail(FTH_INVALID, "%s line %zu: %s is a nested mapping; expected a single value", in->path, line,
                        what);
    default: return fth_fail(FTH_INVALID, "%s line %zu: %s is missing", in->path, line, what);
    }
    if (in->event.data.scalar.anchor)
        return fth_fail(FTH_INVALID, "%s line %zu: anchors (&name) are not supported", in->path, line);
    if (in->event.data.scalar.tag)
        return fth_fail(FTH_INVALID, "%s line %zu: tags (!name) are not supported", in->path, line);
    if (strlen((const char *)in->event.data.scalar.value) != in->event.data.scalar.length)
        return fth_fail(FTH_INVALID, "%s line %zu: %s contains a NUL character", in->path, line, what);
    return FTH_OK;
}

/* `key:` with nothing after it, or YAML's words for null. */
static bool is_null(const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

/* The event is a key; reads its value and sets it. */
static fth_status read_entry(reader *in, const fth_option_table *table, void *values)
{
    fth_status status = FTH_OK;
    char *key = NULL, *where = NULL, *what = NULL;

    FTH_TRY(require_scalar(in, "a key"));
    size_t line = event_line(in);
    key = strdup((const char *)in->event.data.scalar.value);
    where = fth_format("%s line %zu", in->path, line);
    what = fth_format("the value of '%.80s'", key ? key : "");
    FTH_REQUIRE(key && where && what, FTH_NO_MEMORY, "%s: no memory to read it", in->path);

    const fth_option *option = fth_options_find(table, key);
    if (!option) {
        status = fth_options_set(table, values, key, "", where); /* says so, with the nearest name */
        goto out;
    }
    size_t *first_line = &in->given_on_line[option - table->options];
    FTH_REQUIRE(*first_line == 0, FTH_INVALID, "%s: '%s' was already given on line %zu", where, key, *first_line);
    *first_line = line;

    FTH_TRY(next_event(in));
    FTH_TRY(require_scalar(in, what));
    const char *text = (const char *)in->event.data.scalar.value;
    if (is_null(&in->event)) {
        FTH_REQUIRE(option->type == FTH_OPTION_OPTIONAL, FTH_INVALID,
                    "%s: '%s' has no value; leave the line out for the "
                    "default",
                    where, key);
        text = "auto";
    }
    FTH_TRY(fth_options_set(table, values, key, text, where));

out:
    free(key);
    free(where);
    free(what);
    return status;
}

static fth_status read_mapping(reader *in, const fth_option_table *table, void *values)
{
    fth_status status = FTH_OK;
    FTH_REQUIRE(in->event.type == YAML_MAPPING_START_EVENT, FTH_INVALID, "%s line %zu: expected 'name: value'",
                in->path, event_line(in));
    FTH_REQUIRE(!in->event.data.mapping_start.anchor, FTH_INVALID, "%s line %zu: anchors (&name) are not supported",
                in->path, event_line(in));
    FTH_REQUIRE(!in->event.data.mapping_start.tag, FTH_INVALID, "%s line %zu: tags (!name) are not supported", in->path,
                event_line(in));
    for (;;) {
        FTH_TRY(next_event(in));
        if (in->event.type == YAML_MAPPING_END_EVENT)
            break;
        FTH_TRY(read_entry(in, table, values));
    }
out:
    return status;
}

static fth_status read_stream(reader *in, const fth_option_table *table, void *values)
{
    fth_status status = FTH_OK;
    FTH_TRY(next_event(in)); /* the stream's start */
    FTH_TRY(next_event(in));
    if (in->event.type == YAML_STREAM_END_EVENT) /* empty, or nothing but comments */
        goto out;
    FTH_TRY(next_event(in));
    FTH_TRY(read_mapping(in, table, values));
    FTH_TRY(next_event(in)); /* the document's end */
    FTH_TRY(next_event(in));
    FTH_REQUIRE(in->event.type == YAML_STREAM_END_EVENT, FTH_INVALID,
                "%s line %zu: a second document begins; only one is read", in->path, event_line(in));
out:
    return status;
}

fth_status fth_options_read_yaml(const fth_option_table *table, void *values, const char *path)
{
    fth_status status = FTH_OK;
    reader in = {.path = path};
    char *text = NULL;
    bool parser_made = false;

    FTH_TRY(fth_file_read_all(path, MAX_YAML_BYTES, &text, &in.size_bytes));
    in.text = text;
    const char *nul = memchr(text, '\0', in.size_bytes);
    FTH_REQUIRE(!nul, FTH_INVALID, "%s line %zu: not UTF-8 text: it contains a NUL byte", path,
                line_of_byte(&in, (size_t)(nul - text)));
    parser_made = yaml_parser_initialize(&in.parser);
    FTH_REQUIRE(parser_made, FTH_NO_MEMORY, "%s: no memory to read it", path);
    yaml_parser_set_encoding(&in.parser, YAML_UTF8_ENCODING);
    /* The encoding is not set: libyaml would then take a byte order mark for a character of the
     * first key. */
    size_t mark = strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    yaml_parser_set_input_string(&in.parser, (const unsigned char *)text + mark, in.size_bytes - mark);
    FTH_TRY(read_stream(&in, table, values));

out:
    yaml_event_delete(&in.event);
    if (parser_made)
        yaml_parser_delete(&in.parser);
    free(text);
    return status;
}
