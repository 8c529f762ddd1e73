/* See bucket_internal.h: lists, page by page. An object is told to the caller when its element
 * ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/bucket_internal.h"

enum { LIST_BODY_BYTES = 64 << 20 };

typedef struct page {
    const fth_bucket *bucket;
    bool (*visit)(void *context, const fth_store_object *object);
    void *context;
    const char *after; /* the key, with the prefix, behind which it begins; NULL: from the first on */
    bool ended, more;
    char *token;             /* of the next page */
    fth_store_object object; /* as far as it has been read; its key with the prefix */
} page;

static fth_status replace(char **text, const char *with)
{
    free(*text);
    *text = strdup(with);
    return *text ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for a list");
}

/* What follows "entry/" in `path`; NULL if it is no part of an entry. */
static const char *within(const char *path, const char *entry)
{
    size_t length = strlen(entry);
    return strncmp(path, entry, length) == 0 && path[length] == '/' ? path + length + 1 : NULL;
}

static fth_status take_leaf(void *context, const char *path, const char *text)
{
    fth_status status = FTH_OK;
    page *list = context;
    const fth_bucket_kind *cloud = list->bucket->cloud;
    const char *name = within(path, cloud->elements.entry);
    if (cloud->elements.more && strcmp(path, cloud->elements.more) == 0) {
        list->more = strcmp(text, "true") == 0;
    } else if (strcmp(path, cloud->elements.token) == 0) {
        FTH_TRY(replace(&list->token, text));
        list->more = list->more || (!cloud->elements.more && *text);
    } else if (name && strcmp(name, cloud->elements.key) == 0) {
        FTH_TRY(replace(&list->object.key, text));
    } else if (name && strcmp(name, cloud->elements.size) == 0) {
        list->object.size_bytes = strtoull(text, NULL, 10);
    } else if (name && strcmp(name, cloud->elements.modified) == 0) {
        list->object.modified_s = fth_bucket_read_time(text);
    } else if (name && strcmp(name, cloud->elements.version) == 0) {
        fth_bucket_read_version(text, &list->object.version);
    }

out:
    return status;
}

static fth_status take_entry(void *context, const char *path)
{
    page *list = context;
    fth_store_object object = list->object;
    size_t skip = strlen(list->bucket->prefix);
    if (strcmp(path, list->bucket->cloud->elements.entry) != 0)
        return FTH_OK;
    if (object.key && !list->ended && strncmp(object.key, list->bucket->prefix, skip) == 0) {
        object.key += skip;
        /* An object that is the prefix itself ("folder/", which consoles make) is not in it; nor
         * are our own probes. */
        if (*object.key && strncmp(object.key, ".farthing/", 10) != 0)
            list->ended = !list->visit(list->context, &object);
    }
    fth_store_object_release(&list->object);
    return FTH_OK;
}

static fth_status read_page(fth_store *store, const char *prefix, page *list)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    const fth_bucket_kind *cloud = list->bucket->cloud;
    char *token = list->token; /* of this page */
    fth_bucket_request request = {.store = store,
                                  .what = "list",
                                  .method = "GET",
                                  .max_body_bytes = LIST_BODY_BYTES,
                                  .deadline = fth_store_deadline(store)};
    fth_xml_visitor visitor = {.leaf = take_leaf, .close = take_entry, .context = list};
    list->token = NULL;
    list->more = false;
    for (size_t i = 0; i < FTH_COUNT_OF(cloud->list) && cloud->list[i].name; i++)
        fth_bucket_add_query(&request, cloud->list[i].name, cloud->list[i].value);
    fth_bucket_add_query(&request, "prefix", prefix);
    if (token)
        fth_bucket_add_query(&request, cloud->list_token, token);
    else if (list->after && cloud->list_after)
        fth_bucket_add_query(&request, cloud->list_after, list->after);
    FTH_TRY(fth_bucket_send(&request, &response));
    if (response.code != 200) {
        status = fth_bucket_explain(&request, &response);
        goto out;
    }
    status = fth_xml_read(response.body, (size_t)response.body_bytes, &visitor);
    if (status != FTH_OK) {
        status = fth_fail_within(status, "list %s", store->url);
        goto out;
    }
    FTH_REQUIRE(!list->more || (list->token && *list->token), FTH_CORRUPT,
                "list %s: the server says that there is more, but not where", store->url);
    FTH_REQUIRE(!list->more || !token || strcmp(token, list->token) != 0, FTH_CORRUPT,
                "list %s: the server gives the same page again and again", store->url);

out:
    fth_http_response_release(&response);
    fth_bucket_end(&request);
    free(token);
    fth_store_object_release(&list->object);
    return status;
}

fth_status fth_bucket_list(fth_store *store, const char *prefix, const char *after,
                           bool (*visit)(void *context, const fth_store_object *), void *context)
{
    fth_status status = FTH_OK;
    page list = {.bucket = fth_bucket_of(store), .visit = visit, .context = context, .more = true};
    char *whole = fth_format("%s%s", list.bucket->prefix, prefix);
    char *whole_after = fth_format("%s%s", list.bucket->prefix, after);
    FTH_REQUIRE(whole && whole_after, FTH_NO_MEMORY, "no memory for a list");
    list.after = *after ? whole_after : NULL;
    while (list.more && !list.ended)
        FTH_TRY(read_page(store, whole, &list));

out:
    free(whole);
    free(whole_after);
    free(list.token);
    return status;
}
