/* See presence.h. */
#include "cluster/presence.h"

#include <string.h>

static bool has_name(const json_t *names, const char *name)
{
    size_t index;
    json_t *each;
    json_array_foreach((json_t *)names, index, each)
    {
        if (json_is_string(each) && strcmp(json_string_value(each), name) == 0)
            return true;
    }
    return false;
}

double fth_presence_share(const fth_presence *presence, const json_t *nodes)
{
    const size_t count = json_array_size(presence->base);
    size_t index, there = 0;
    json_t *each;
    json_array_foreach(presence->base, index, each)
    {
        there += has_name(nodes, json_string_value(each));
    }
    return count > 0 ? (double)there / (double)count : 1;
}

static json_t *list_once(const json_t *nodes)
{
    json_t *names = json_array(), *each;
    size_t index;
    json_array_foreach((json_t *)nodes, index, each)
    {
        if (json_is_string(each) && !has_name(names, json_string_value(each)))
            json_array_append(names, each);
    }
    return names;
}

double fth_presence_take_group(fth_presence *presence, const json_t *nodes)
{
    const double share = fth_presence_share(presence, nodes);
    if (share > 0.5) {
        fth_presence_release(presence);
        presence->base = list_once(nodes);
    }
    return share;
}

void fth_presence_release(fth_presence *presence)
{
    json_decref(presence->base);
    presence->base = NULL;
}
