/* The XML that buckets answer with, read by expat: elements and their text. Document types are
 * rejected, and depth and paths are limited, as the text comes from the network. See xml.h. */
#include <expat.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/xml.h"

enum { MAX_DEPTH = 16, MAX_PATH_BYTES = 512 };

typedef struct reading {
    XML_Parser parser;
    const fth_xml_visitor *visitor;
    fth_status status;
    char path[MAX_PATH_BYTES];
    size_t path_lengths[MAX_DEPTH]; /* of the path before each open element */
    bool has_children[MAX_DEPTH];
    int depth;
    char *text; /* of the innermost element so far */
    size_t text_length, text_capacity;
} reading;

static fth_status malformed(const char *how)
{
    return fth_fail(FTH_CORRUPT, "the server's answer is not the XML that was expected: %s", how);
}

static void stop(reading *r, fth_status status)
{
    r->status = status;
    XML_StopParser(r->parser, XML_FALSE);
}

static void XMLCALL open_element(void *context, const XML_Char *name, const XML_Char **attributes)
{
    reading *r = context;
    const size_t length = strlen(name), before = strlen(r->path);

    (void)attributes;
    if (r->depth == MAX_DEPTH || before + length + 2 > sizeof r->path) {
        stop(r, malformed("elements too deep or too long"));
        return;
    }
    if (r->depth > 0)
        r->has_children[r->depth - 1] = true;
    r->path_lengths[r->depth] = before;
    r->has_children[r->depth++] = false;
    snprintf(r->path + before, sizeof r->path - before, "%s%s", before > 0 ? "/" : "", name);
    r->text_length = 0;
}

static void XMLCALL close_element(void *context, const XML_Char *name)
{
    reading *r = context;
    const fth_xml_visitor *visitor = r->visitor;
    fth_status status = FTH_OK;

    (void)name;
    r->depth--;
    if (!r->has_children[r->depth])
        status = visitor->leaf(visitor->context, r->path, r->text_length > 0 ? r->text : "");
    else if (visitor->close)
        status = visitor->close(visitor->context, r->path);
    r->path[r->path_lengths[r->depth]] = '\0';
    r->text_length = 0;
    if (status != FTH_OK)
        stop(r, status);
}

static void XMLCALL add_text(void *context, const XML_Char *text, int length)
{
    reading *r = context;
    while (r->text_length + (size_t)length >= r->text_capacity) {
        const fth_status status = fth_grow(&r->text, r->text_capacity, &r->text_capacity, 1);
        if (status != FTH_OK) {
            stop(r, status);
            return;
        }
    }
    memcpy(r->text + r->text_length, text, (size_t)length);
    r->text_length += (size_t)length;
    r->text[r->text_length] = '\0';
}

static void XMLCALL reject_document_type(void *context, const XML_Char *name, const XML_Char *system_id,
                                         const XML_Char *public_id, int has_internal_subset)
{
    (void)name, (void)system_id, (void)public_id, (void)has_internal_subset;
    stop(context, malformed("it has a document type"));
}

fth_status fth_xml_read(const char *text, size_t size_bytes, const fth_xml_visitor *visitor)
{
    fth_status status = FTH_OK;
    reading r = {.parser = XML_ParserCreate("UTF-8"), .visitor = visitor};

    FTH_REQUIRE(r.parser, FTH_NO_MEMORY, "no memory to read XML");
    FTH_REQUIRE(size_bytes <= INT_MAX, FTH_CORRUPT, "the server's answer is too long");
    XML_SetUserData(r.parser, &r);
    XML_SetElementHandler(r.parser, open_element, close_element);
    XML_SetCharacterDataHandler(r.parser, add_text);
    XML_SetStartDoctypeDeclHandler(r.parser, reject_document_type);
    /* Amazon sends white space while it puts an upload together. */
    for (; size_bytes > 0 && strchr(" \t\r\n", *text) && *text; size_bytes--)
        text++;
    if (size_bytes > 0 && XML_Parse(r.parser, text, (int)size_bytes, XML_TRUE) != XML_STATUS_OK)
        status = r.status != FTH_OK ? r.status : malformed(XML_ErrorString(XML_GetErrorCode(r.parser)));

out:
    XML_ParserFree(r.parser);
    free(r.text);
    return status;
}

/* ---- one value ---- */

typedef struct wanted {
    const char *name;
    char *value;
} wanted;

static fth_status keep_wanted(void *context, const char *path, const char *text)
{
    wanted *w = context;
    const char *slash = strrchr(path, '/');
    if (!w->value && strcmp(slash ? slash + 1 : path, w->name) == 0)
        w->value = strdup(text);
    return FTH_OK;
}

char *fth_xml_value(const char *text, size_t size_bytes, const char *name)
{
    wanted w = {.name = name};
    fth_xml_visitor visitor = {.leaf = keep_wanted, .context = &w};
    if (text && fth_xml_read(text, size_bytes, &visitor) != FTH_OK) {
        free(w.value);
        w.value = NULL;
    }
    return w.value;
}
