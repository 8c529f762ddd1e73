/* Reads the XML that buckets answer with: elements and their text. */
#ifndef FTH_STORE_XML_H
#define FTH_STORE_XML_H

#include "base/base.h"

typedef struct fth_xml_visitor {
    /* Called for each element that holds only text, with its path ("ListBucketResult/Contents/Key")
     * and the decoded text. */
    fth_status (*leaf)(void *context, const char *path, const char *text);
    /* Called at the end of each element that holds others; may be NULL. */
    fth_status (*close)(void *context, const char *path);
    void *context;
} fth_xml_visitor;

/* Visits the elements of a document, up to the first failure of the visitor. FTH_CORRUPT if it is
 * malformed. An empty document has no elements. */
fth_status fth_xml_read(const char *text, size_t size_bytes, const fth_xml_visitor *visitor);
/* The text of the first leaf of that name; NULL: there is none, or the document is malformed. The
 * caller frees it. */
char *fth_xml_value(const char *text, size_t size_bytes, const char *name);

#endif
