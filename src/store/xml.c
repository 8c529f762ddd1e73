/* See xml.h. Elements, text, the predefined entities and numeric ones, CDATA; declarations and
 * comments are passed over; document types are refused. It trusts nothing: the text comes from the
 * network. */
#include <stdlib.h>
#include <string.h>

#include "store/xml.h"

enum { MAX_DEPTH = 16, MAX_PATH_BYTES = 512 };

typedef struct fth_scanner {
    const char *at, *end;
    char path[MAX_PATH_BYTES];
    size_t path_lengths[MAX_DEPTH]; /* of the path before each open element */
    bool has_children[MAX_DEPTH];
    int depth;
    char *text; /* of the innermost element so far; as large as the document */
    size_t text_length;
} fth_scanner;

static fth_status broken(const char *how)
{
    return fth_fail(FTH_CORRUPT, "the server's answer is not the XML that was expected: %s", how);
}

static bool starts(const fth_scanner *scanner, const char *word)
{
    size_t length = strlen(word);
    return (size_t)(scanner->end - scanner->at) >= length && memcmp(scanner->at, word, length) == 0;
}

/* Moves behind the next `word`; false if there is none. */
static bool skip_past(fth_scanner *scanner, const char *word)
{
    const char *found = memmem(scanner->at, (size_t)(scanner->end - scanner->at), word, strlen(word));
    if (!found)
        return false;
    scanner->at = found + strlen(word);
    return true;
}

static void add_utf8(fth_scanner *scanner, unsigned long code)
{
    char *to = scanner->text + scanner->text_length;
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    scanner->text_length = (size_t)(to - scanner->text);
}

/* "&amp;", "&#38;", "&#x26;": never longer decoded than written. */
static fth_status take_entity(fth_scanner *scanner)
{
    static const struct {
        const char *name;
        char letter;
    } known[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (size_t i = 0; i < FTH_COUNT_OF(known); i++) {
        if (starts(scanner, known[i].name)) {
            scanner->text[scanner->text_length++] = known[i].letter;
            scanner->at += strlen(known[i].name);
            return FTH_OK;
        }
    }
    if (!starts(scanner, "&#"))
        return broken("an unknown entity");
    const char *at = scanner->at + 2;
    bool hexadecimal = at < scanner->end && *at == 'x';
    at += hexadecimal;
    unsigned long code = 0;
    int digits = 0;
    for (; at < scanner->end && *at != ';' && digits < 8; at++, digits++) {
        int digit = fth_hex_digit(*at);
        if (digit < 0 || (!hexadecimal && digit > 9))
            return broken("a malformed character reference");
        code = code * (hexadecimal ? 16 : 10) + (unsigned long)digit;
    }
    if (digits == 0 || at >= scanner->end || *at != ';' || code == 0 || code > 0x10ffff ||
        (code >= 0xd800 && code < 0xe000))
        return broken("a malformed character reference");
    add_utf8(scanner, code);
    scanner->at = at + 1;
    return FTH_OK;
}

static fth_status open_element(fth_scanner *scanner, bool *empty)
{
    const char *name = ++scanner->at;
    while (scanner->at < scanner->end && !strchr(" \t\r\n/>", *scanner->at) && *scanner->at)
        scanner->at++;
    size_t length = (size_t)(scanner->at - name), before = strlen(scanner->path);
    if (length == 0 || scanner->depth == MAX_DEPTH || before + length + 2 > sizeof scanner->path)
        return broken("elements too deep or too long, or without a name");
    if (scanner->depth > 0)
        scanner->has_children[scanner->depth - 1] = true;
    scanner->path_lengths[scanner->depth] = before;
    scanner->has_children[scanner->depth] = false;
    scanner->depth++;
    if (before > 0)
        scanner->path[before++] = '/';
    memcpy(scanner->path + before, name, length);
    scanner->path[before + length] = '\0';
    char quote = 0; /* attributes: a '>' between quotes does not end the tag */
    for (; scanner->at < scanner->end && (quote || *scanner->at != '>'); scanner->at++) {
        if (quote)
            quote = *scanner->at == quote ? 0 : quote;
        else if (*scanner->at == '"' || *scanner->at == '\'')
            quote = *scanner->at;
    }
    if (scanner->at >= scanner->end)
        return broken("it ends within a tag");
    *empty = scanner->at[-1] == '/';
    scanner->at++;
    scanner->text_length = 0;
    return FTH_OK;
}

static fth_status close_element(fth_scanner *scanner, const fth_xml_visitor *visitor)
{
    fth_status status = FTH_OK;
    scanner->depth--;
    if (scanner->has_children[scanner->depth]) {
        if (visitor->close)
            FTH_TRY(visitor->close(visitor->context, scanner->path));
    } else {
        scanner->text[scanner->text_length] = '\0';
        FTH_REQUIRE(strlen(scanner->text) == scanner->text_length, FTH_CORRUPT,
                    "the server's answer has a NUL within its text");
        FTH_TRY(visitor->leaf(visitor->context, scanner->path, scanner->text));
    }
    scanner->path[scanner->path_lengths[scanner->depth]] = '\0';
    scanner->text_length = 0;

out:
    return status;
}

/* "</Name>": must be the innermost open one. */
static fth_status take_end_tag(fth_scanner *scanner, const fth_xml_visitor *visitor)
{
    scanner->at += 2;
    if (scanner->depth == 0)
        return broken("it closes what is not open");
    size_t before = scanner->path_lengths[scanner->depth - 1];
    const char *name = scanner->path + before + (before > 0);
    if (!starts(scanner, name))
        return broken("its tags do not match");
    scanner->at += strlen(name);
    while (scanner->at < scanner->end && strchr(" \t\r\n", *scanner->at) && *scanner->at)
        scanner->at++;
    if (scanner->at >= scanner->end || *scanner->at != '>')
        return broken("its tags do not match");
    scanner->at++;
    return close_element(scanner, visitor);
}

static fth_status scan(fth_scanner *scanner, const fth_xml_visitor *visitor)
{
    fth_status status = FTH_OK;
    while (scanner->at < scanner->end) {
        if (starts(scanner, "<?")) {
            FTH_REQUIRE(skip_past(scanner, "?>"), FTH_CORRUPT, "the server's answer ends within a declaration");
        } else if (starts(scanner, "<!--")) {
            FTH_REQUIRE(skip_past(scanner, "-->"), FTH_CORRUPT, "the server's answer ends within a comment");
        } else if (starts(scanner, "<![CDATA[")) {
            const char *begin = scanner->at += strlen("<![CDATA[");
            FTH_REQUIRE(skip_past(scanner, "]]>"), FTH_CORRUPT, "the server's answer ends within its text");
            size_t length = (size_t)(scanner->at - begin) - strlen("]]>");
            memcpy(scanner->text + scanner->text_length, begin, length);
            scanner->text_length += length;
        } else if (starts(scanner, "<!")) {
            status = broken("it has a document type");
            goto out;
        } else if (starts(scanner, "</")) {
            FTH_TRY(take_end_tag(scanner, visitor));
        } else if (*scanner->at == '<') {
            bool empty = false;
            FTH_TRY(open_element(scanner, &empty));
            if (empty)
                FTH_TRY(close_element(scanner, visitor));
        } else if (*scanner->at == '&') {
            FTH_TRY(take_entity(scanner));
        } else {
            scanner->text[scanner->text_length++] = *scanner->at++;
        }
    }
    if (scanner->depth > 0)
        status = broken("it ends too early");

out:
    return status;
}

fth_status fth_xml_read(const char *text, size_t size_bytes, const fth_xml_visitor *visitor)
{
    fth_status status = FTH_OK;
    fth_scanner *scanner = NULL;
    FTH_TRY(fth_allocate(1, sizeof *scanner, &scanner));
    FTH_TRY(fth_allocate(size_bytes + 1, 1, &scanner->text));
    bool marked = size_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0; /* Azure's byte order mark */
    scanner->at = text + (marked ? 3 : 0);
    scanner->end = text + size_bytes;
    FTH_TRY(scan(scanner, visitor));

out:
    if (scanner)
        free(scanner->text);
    free(scanner);
    return status;
}

/* ---- one value ---- */

typedef struct fth_wanted {
    const char *name;
    char *value;
} fth_wanted;

static fth_status keep_wanted(void *context, const char *path, const char *text)
{
    fth_wanted *wanted = context;
    const char *slash = strrchr(path, '/');
    if (!wanted->value && strcmp(slash ? slash + 1 : path, wanted->name) == 0)
        wanted->value = strdup(text);
    return FTH_OK;
}

char *fth_xml_value(const char *text, size_t size_bytes, const char *name)
{
    fth_wanted wanted = {.name = name};
    fth_xml_visitor visitor = {.leaf = keep_wanted, .context = &wanted};
    if (text && fth_xml_read(text, size_bytes, &visitor) != FTH_OK) {
        free(wanted.value);
        wanted.value = NULL;
    }
    return wanted.value;
}
