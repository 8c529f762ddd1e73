/* See s3_internal.h: uploads that a lost answer left behind.
 *
 * A request to start an upload is sent again if its answer is lost, and the upload that the first
 * request started stays on the server, invisible but paid for. The server lists each upload with
 * its key, account and time of start, but not its process; another machine may upload to the same
 * key. So only uploads are aborted that can hardly belong to anyone else:
 *
 *     noted right after our start    those of the same key and account that were started between
 *                                    our first try and the answer, by the server's clock
 *     aborted when ours is over      those of them that still have no part, if there are no more of
 *                                    these than tries of ours that failed */
#include <stdlib.h>
#include <string.h>

#include "store/s3_internal.h"

static const double SLACK_S = 2; /* servers tell whole seconds */

typedef struct fth_begun {
    char *key, *id, *account;
    double at_s;
} fth_begun;

typedef struct fth_begun_list {
    fth_begun now; /* the one being read */
    fth_begun *all;
    size_t count, capacity;
} fth_begun_list;

static void release_begun(fth_begun *begun)
{
    free(begun->key);
    free(begun->id);
    free(begun->account);
    *begun = (fth_begun){0};
}

static fth_status take_leaf(void *context, const char *path, const char *text)
{
    fth_begun_list *list = context;
    static const char entry[] = "ListMultipartUploadsResult/Upload/";
    if (strncmp(path, entry, sizeof entry - 1) != 0)
        return FTH_OK;
    const char *name = path + sizeof entry - 1;
    char **to = strcmp(name, "Key") == 0            ? &list->now.key
                : strcmp(name, "UploadId") == 0     ? &list->now.id
                : strcmp(name, "Initiator/ID") == 0 ? &list->now.account
                                                    : NULL;
    if (to) {
        free(*to);
        *to = strdup(text);
    } else if (strcmp(name, "Initiated") == 0) {
        list->now.at_s = fth_bucket_read_time(text);
    }
    return FTH_OK;
}

static fth_status take_entry(void *context, const char *path)
{
    fth_status status = FTH_OK;
    fth_begun_list *list = context;
    if (strcmp(path, "ListMultipartUploadsResult/Upload") != 0)
        return FTH_OK;
    if (list->now.key && list->now.id) {
        FTH_TRY(fth_grow(&list->all, list->count, &list->capacity, sizeof *list->all));
        list->all[list->count++] = list->now;
        list->now = (fth_begun){0};
    }

out:
    release_begun(&list->now);
    return status;
}

/* The uploads that are under way for keys that begin with `key`; for itself they come first. */
static fth_status list_uploads(fth_store *store, const char *key, fth_deadline deadline, fth_begun_list *list)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_bucket_request request = {.store = store, .what = "list", .method = "GET", .deadline = deadline};
    fth_xml_visitor visitor = {.leaf = take_leaf, .close = take_entry, .context = list};
    fth_bucket_add_query(&request, "uploads", "");
    fth_bucket_add_query(&request, "prefix", key);
    FTH_TRY(fth_bucket_send(&request, &response));
    if (response.code != 200)
        status = fth_bucket_explain(&request, &response);
    else
        status = fth_xml_read(response.body, (size_t)response.body_bytes, &visitor);

out:
    fth_http_response_release(&response);
    fth_bucket_end(&request);
    return status;
}

static bool may_be_ours(const fth_begun *other, const fth_begun *ours, double took_s)
{
    bool same_account = !ours->account || (other->account && strcmp(ours->account, other->account) == 0);
    return strcmp(other->key, ours->key) == 0 && strcmp(other->id, ours->id) != 0 && same_account && ours->at_s > 0 &&
           other->at_s >= ours->at_s - took_s - SLACK_S && other->at_s <= ours->at_s + SLACK_S;
}

void fth_s3_note_orphans(fth_store *store, const char *key, const char *id, int failed_tries, double took_s,
                         fth_deadline deadline, fth_s3_orphans *orphans)
{
    fth_begun_list list = {0};
    const fth_begun *ours = NULL;
    char *whole = fth_format("%s%s", fth_bucket_of(store)->prefix, key);
    *orphans = (fth_s3_orphans){0};
    if (!whole || list_uploads(store, whole, deadline, &list) != FTH_OK)
        goto out; /* an orphan more is no reason to fail */
    for (size_t i = 0; i < list.count; i++)
        if (strcmp(list.all[i].key, whole) == 0 && strcmp(list.all[i].id, id) == 0)
            ours = &list.all[i];
    orphans->failed_tries = failed_tries;
    for (size_t i = 0; ours && i < list.count && orphans->count < FTH_S3_MAX_ORPHANS; i++) {
        if (may_be_ours(&list.all[i], ours, took_s)) {
            orphans->ids[orphans->count++] = list.all[i].id;
            list.all[i].id = NULL;
        }
    }

out:
    for (size_t i = 0; i < list.count; i++)
        release_begun(&list.all[i]);
    release_begun(&list.now);
    free(list.all);
    free(whole);
}

static bool has_no_parts(fth_store *store, const char *key, const char *id, fth_deadline deadline)
{
    fth_http_response response = {0};
    fth_bucket_request request = {.store = store, .what = "list", .method = "GET", .key = key, .deadline = deadline};
    fth_bucket_add_query(&request, "uploadId", id);
    fth_bucket_add_query(&request, "max-parts", "1");
    bool answered = fth_bucket_send(&request, &response) == FTH_OK && response.code == 200;
    char *part = answered ? fth_xml_value(response.body, response.body_bytes, "PartNumber") : NULL;
    bool none = answered && !part;
    free(part);
    fth_http_response_release(&response);
    fth_bucket_end(&request);
    return none;
}

void fth_s3_end_orphans(fth_store *store, const char *key, fth_s3_orphans *orphans, fth_deadline deadline)
{
    char *message = orphans->count > 0 ? strdup(fth_error_message()) : NULL; /* a failure that led here keeps its own */
    bool empty[FTH_S3_MAX_ORPHANS];
    int count = 0;
    for (int i = 0; i < orphans->count; i++) {
        empty[i] = has_no_parts(store, key, orphans->ids[i], deadline);
        count += empty[i];
    }
    for (int i = 0; i < orphans->count; i++) {
        if (empty[i] && count <= orphans->failed_tries)
            fth_s3_abort(store, key, orphans->ids[i], deadline);
        free(orphans->ids[i]);
    }
    orphans->count = 0;
    if (message)
        fth_set_error("%s", message);
    free(message);
}
