/* Activations: activations/ID/ with activation.json, stdout.log and stderr.log.
 *
 * The record is written when the activation is accepted ("state": "running", with its owner) and
 * when it has ended. A running one whose process is gone is read as failed, so nothing needs repair
 * after a kill. Its members:
 *
 *     id, action, revision, contract, owner, created, memory_mb, timeout_s
 *     state      "running", "done", "failed"
 *     kind       why it failed: "application" (the function reported it), "developer" (invalid
 *                answer, or the process ended), "timeout", "memory", "lost" (with its platform),
 *                "internal"
 *     result     the function's answer, also of a failure it reported; any JSON
 *     error, error_type
 *     start, end, duration_s, init_s (of a cold start), peak_bytes, limited_by */
#ifndef FTH_PLATFORM_ACTIVATIONS_H
#define FTH_PLATFORM_ACTIVATIONS_H

#include <jansson.h>

#include "base/base.h"

enum { FTH_ACTIVATION_ID = 40 };

/* 32 hex digits (OpenWhisk), or a UUID with dashes (Lambda). */
fth_status fth_activation_make_id(bool lambda, char id[FTH_ACTIVATION_ID]);

/* Creates its folder, and writes or replaces the record. */
fth_status fth_activation_write(const char *folder, const char *id, const json_t *record);
/* FTH_INVALID if there is none. */
fth_status fth_activation_read(const char *folder, const char *id, json_t **record);
/* At most `limit` after the first `skip`, the newest first, of one function or of all (NULL). A new
 * array. */
fth_status fth_activation_list(const char *folder, const char *action, size_t skip, size_t limit, json_t **records);
/* Removes ended ones except the newest `count`. */
void fth_activation_prune(const char *folder, size_t count);

/* Lines "TIME stdout: text" and "TIME stderr: text", as OpenWhisk writes them; a new array. */
fth_status fth_activation_log_lines(const char *folder, const char *id, json_t **lines);
/* Standard output, then standard error; Lambda's with START, END and REPORT lines. free() it. */
fth_status fth_activation_log_text(const char *folder, const char *id, char **text);

#endif
