/* Addresses of data in stores. Their endings tell what they name. */
#ifndef FTH_DATA_OBJECT_ADDRESS_H
#define FTH_DATA_OBJECT_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

bool fth_address_names_index(const char *address);   /* .csv or .jsonl */
bool fth_address_names_archive(const char *address); /* .tar, .tar.gz, .zip and so on */

/* The length of an address without a query (?token) or fragment (#part). */
size_t fth_address_path_length(const char *address);

/* Splits "s3://b/a/x.tar" into the store "s3://b/a" and the key "x.tar". A query (?token) goes to
 * the store, which includes secrets. free() the key, and fth_wipe_text() the store. */
fth_status fth_address_split(const char *address, char **store, char **key);

#endif
