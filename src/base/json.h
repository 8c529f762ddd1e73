/* Numbers in JSON, which must be finite: json_pack() and json_real() return NULL for others, and a
 * value built from a NULL is lost entirely. */
#ifndef FTH_BASE_JSON_H
#define FTH_BASE_JSON_H

#include <jansson.h>

/* The number, or null if it is not finite. For json_pack()'s "o". */
json_t *fth_json_number(double value);

/* Sets `key` to the number; leaves the key out if the number is not finite, which means unknown. */
void fth_json_set_number(json_t *object, const char *key, double value);

#endif
