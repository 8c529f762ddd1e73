/* Addresses of data in stores: what they name can be told from how they end. */
#ifndef FTH_DATA_OBJECT_ADDRESS_H
#define FTH_DATA_OBJECT_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

bool fth_address_names_index(const char *address);   /* .csv or .jsonl */
bool fth_address_names_archive(const char *address); /* .tar, .tar.gz, .zip and so on */

/* The length of an address without what links add to its path (?token, #part). */
size_t fth_address_path_length(const char *address);

/* "s3://b/a/x.tar" as the store "s3://b/a" and the key "x.tar". What follows the path (?token) goes
 * to the store, which is the whole address, with its secrets. free() the key, and fth_wipe_text()
 * the store. */
fth_status fth_address_split(const char *address, char **store, char **key);

#endif
