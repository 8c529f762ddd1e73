/* What the parts of the platform share: identities of processes and activations, private files,
 * JSON. */
#ifndef FTH_PLATFORM_FILES_H
#define FTH_PLATFORM_FILES_H

#include <jansson.h>

#include "base/base.h"

/* A process, told from a later one with its number: "PID-START". */
enum { FTH_OWNER_SIZE = 48 };
void fth_owner_self(char owner[FTH_OWNER_SIZE]);
/* True if the process that `text` begins with still runs. */
bool fth_owner_is_alive(const char *text);

/* `bytes` random bytes as hex digits; room for 2 * bytes + 1. */
fth_status fth_make_id(size_t bytes, char *id);

/* Writes a new file that only this user can read, synced. */
fth_status fth_write_private(const char *path, const void *bytes, size_t size_bytes);

/* A JSON file that is whole or absent; and one read back: FTH_INVALID if there is none, FTH_CORRUPT
 * if it is no object. */
fth_status fth_json_write(const char *path, const json_t *json);
fth_status fth_json_read(const char *path, json_t **json);

/* Text in JSON, or `otherwise`. */
const char *fth_json_text(const json_t *object, const char *key, const char *otherwise);

/* A number in JSON, or the nearest that an int holds; 0: none. */
int fth_json_int(const json_t *object, const char *key);

#endif
