/* See invocation.h. */
#include "functions/invocation.h"

#include <stdlib.h>

const char *fth_invocation_variable(const fth_invocation_event *event, const char *name)
{
    const char *value = json_string_value(json_object_get(event->environment, name));
    return value ? value : getenv(name);
}
