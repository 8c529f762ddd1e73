/* See agreement.h. */
#include "cluster/agreement.h"

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

fth_status fth_agreement_set(fth_agreement *agreement, const char *text, const char *node)
{
    fth_agreement_release(agreement);
    agreement->text = strdup(text);
    agreement->node = strdup(node);
    if (agreement->text && agreement->node)
        return FTH_OK;
    fth_agreement_release(agreement);
    return fth_fail(FTH_NO_MEMORY, "no memory for a member's configuration");
}

void fth_agreement_release(fth_agreement *agreement)
{
    free(agreement->text);
    free(agreement->node);
    *agreement = (fth_agreement){0};
}

char *fth_agreement_difference(const fth_agreement *agreement, const char *text, const char *node)
{
    char *list = NULL;
    int named = 0;
    const char *key;
    json_t *value;

    if (strcmp(agreement->text, text) == 0)
        return NULL;
    json_t *one = json_loads(agreement->text, 0, NULL), *other = json_loads(text, 0, NULL);
    if (!json_is_object(one) || !json_is_object(other)) {
        list = fth_format("%s and %s were given different options", agreement->node, node);
    } else {
        json_object_foreach(one, key, value)
        {
            const json_t *its = json_object_get(other, key);
            if ((!its || !json_equal(value, its)) && named++ < MOST_NAMED)
                list = add(list, key, value, agreement->node, its, node);
        }
        json_object_foreach(other, key, value)
        {
            if (!json_object_get(one, key) && named++ < MOST_NAMED)
                list = add(list, key, NULL, agreement->node, value, node);
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
