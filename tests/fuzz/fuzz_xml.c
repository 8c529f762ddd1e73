/* Fuzzes the scanner of buckets' answers: any bytes. Paths and texts must be strings, and each
 * element that is closed must have been open. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "store/xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static fth_status leaf(void *context, const char *path, const char *text)
{
    size_t *total = context;
    assert(*path);
    *total += strlen(text);
    return FTH_OK;
}

static fth_status end(void *context, const char *path)
{
    (void)context;
    assert(*path);
    return FTH_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    size_t total = 0;
    fth_xml_visitor visitor = {.leaf = leaf, .close = end, .context = &total};
    FTH_IGNORE(fth_xml_read((const char *)bytes, size, &visitor), "any bytes are tried");
    assert(total <= size); /* nothing grows when it is decoded */
    free(fth_xml_value((const char *)bytes, size, "Code"));
    return 0;
}
