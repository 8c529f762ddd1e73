/* Helpers of the platform: identities of processes and activations, private files, JSON. */
#ifndef FTH_PLATFORM_FILES_H
#define FTH_PLATFORM_FILES_H

#include <jansson.h>

#include "base/base.h"

/* Identifies a process: "PID-START", which distinguishes it from a later one with its PID. */
enum { FTH_OWNER_SIZE = 48 };
void fth_owner_self(char owner[FTH_OWNER_SIZE]);
/* Whether the process that `text` starts with still runs. */
bool fth_owner_is_alive(const char *text);

/* `bytes` random bytes as hex digits; room for 2 * bytes + 1. */
fth_status fth_make_id(size_t bytes, char *id);

/* Writes a new file that only this user can read, synced. */
fth_status fth_write_private(const char *path, const void *bytes, size_t size_bytes);

/* Writes a JSON file atomically; reads one: FTH_INVALID if there is none, FTH_CORRUPT if it is not
 * an object. */
fth_status fth_json_write(const char *path, const json_t *json);
fth_status fth_json_read(const char *path, json_t **json);

/* A member's string, or `otherwise`. */
const char *fth_json_text(const json_t *object, const char *key, const char *otherwise);

/* A member's integer, clamped to an int; 0 if there is none. */
int fth_json_int(const json_t *object, const char *key);

#endif
