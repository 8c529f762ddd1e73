/* See json.h. */
#include "base/json.h"

#include <math.h>

json_t *fth_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

void fth_json_set_number(json_t *object, const char *key, double value)
{
    if (isfinite(value))
        json_object_set_new(object, key, json_real(value));
}
