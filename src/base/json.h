/* Numbers in JSON, which has none that are not finite: json_pack() and json_real() give NULL for
 * those, and a value made of a NULL is lost as a whole. */
#ifndef FTH_BASE_JSON_H
#define FTH_BASE_JSON_H

#include <jansson.h>

/* The number, or null if it is not finite. For json_pack()'s "o". */
json_t *fth_json_number(double value);

/* Sets `key` to the number; one that is not finite is unknown, and the key is left out. */
void fth_json_set_number(json_t *object, const char *key, double value);

#endif
