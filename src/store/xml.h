/* A scanner for the XML that buckets answer with: elements and their text. */
#ifndef FTH_STORE_XML_H
#define FTH_STORE_XML_H

#include "base/base.h"

/* Calls leaf() for each element that holds text alone, with its path
 * ("ListBucketResult/Contents/Key") and the text, entities replaced; close() (may be NULL) at the
 * end of each that holds others. FTH_CORRUPT for what is no XML. */
typedef struct fth_xml_visitor {
    fth_status (*leaf)(void *context, const char *path, const char *text);
    fth_status (*close)(void *context, const char *path);
    void *context;
} fth_xml_visitor;
fth_status fth_xml_read(const char *text, size_t size_bytes, const fth_xml_visitor *visitor);
/* The text of the first element of that name (its last path component); NULL: none. free() it. */
char *fth_xml_value(const char *text, size_t size_bytes, const char *name);

#endif
