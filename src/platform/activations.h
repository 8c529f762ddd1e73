/* What became of each activation: activations/ID/ with activation.json, stdout.log and stderr.log.
 *
 * The record is written when the activation is accepted ("state": "running", and whose it is) and
 * when it has ended. One whose process is gone is read as failed: nobody has to repair what a kill
 * left behind. Its members:
 *
 *     id, action, revision, contract, owner, created, memory_mb, timeout_s
 *     state      "running", "done", "failed"
 *     kind       why it failed: "application" (the function said so), "developer" (it answered nonsense, or ended),
 *                "timeout", "memory", "lost" (with its platform), "internal"
 *     result     the function's answer, also of a failure that it reported itself; any JSON
 *     error, error_type
 *     start, end, duration_s, init_s (of a cold start), peak_bytes, limited_by */
#ifndef FTH_PLATFORM_ACTIVATIONS_H
#define FTH_PLATFORM_ACTIVATIONS_H

#include <jansson.h>

#include "base/base.h"

enum { FTH_ACTIVATION_ID = 40 };

/* 32 hex digits, as OpenWhisk has them, or with dashes, as Lambda has them. */
fth_status fth_activation_make_id(bool lambda, char id[FTH_ACTIVATION_ID]);

/* Makes its folder, and writes or replaces the record. */
fth_status fth_activation_write(const char *folder, const char *id, const json_t *record);
/* FTH_INVALID: there is none. */
fth_status fth_activation_read(const char *folder, const char *id, json_t **record);
/* The newest first, `limit` at most after the first `skip`; of one function, or of all if NULL. A
 * new array. */
fth_status fth_activation_list(const char *folder, const char *action, size_t skip, size_t limit, json_t **records);
/* Keeps the newest `count` that have ended. */
void fth_activation_prune(const char *folder, size_t count);

/* Lines of "TIME stdout: text" and "TIME stderr: text", as OpenWhisk writes them; a new array. */
fth_status fth_activation_log_lines(const char *folder, const char *id, json_t **lines);
/* All of it as text: standard output, then standard error; a Lambda's with START, END and REPORT.
 * free() it. */
fth_status fth_activation_log_text(const char *folder, const char *id, char **text);

#endif
