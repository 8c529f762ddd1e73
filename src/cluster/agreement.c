/* See configuration.h. */
#include "cluster/configuration.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAMED = 4, LONGEST_VALUE = 80 };

static char *show(const json_t *value)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS) : strdup("not set");
    if (text && strlen(text) > LONGEST_VALUE)
        strcpy(text + LONGEST_VALUE - 3, "...");
    return text;
}

/* Adds "key is X on a and Y on b" to `list`. */
static char *add(char *list, const char *key, const json_t *first, const char *first_host, const json_t *second,
                 const char *second_host)
{
    char *one = show(first), *other = show(second);
    char *longer = fth_format("%s%s%s is %s on %s and %s on %s", list ? list : "", list ? "; " : "", key,
                              one ? one : "?", first_host, other ? other : "?", second_host);
    free(one);
    free(other);
    free(list);
    return longer;
}

char *fth_configuration_difference(const char *first, const char *first_host, const char *second,
                                   const char *second_host)
{
    char *list = NULL;
    int named = 0;
    const char *key;
    json_t *value;

    if (strcmp(first, second) == 0)
        return NULL;
    json_t *one = json_loads(first, 0, NULL), *other = json_loads(second, 0, NULL);
    if (!json_is_object(one) || !json_is_object(other)) {
        list = fth_format("%s and %s were given different options", first_host, second_host);
    } else {
        json_object_foreach(one, key, value)
        {
            const json_t *its = json_object_get(other, key);
            if ((!its || !json_equal(value, its)) && named++ < MOST_NAMED)
                list = add(list, key, value, first_host, its, second_host);
        }
        json_object_foreach(other, key, value)
        {
            if (!json_object_get(one, key) && named++ < MOST_NAMED)
                list = add(list, key, NULL, first_host, value, second_host);
        }
        if (named > MOST_NAMED && list) {
            char *longer = fth_format("%s; and %d more", list, named - MOST_NAMED);
            free(list);
            list = longer;
        }
    }
    json_decref(one);
    json_decref(other);
    return list;
}
