/* See azure_internal.h: writing. A small object is one request; a large one goes in blocks:
 *
 *     ask which blocks are there already -> put those that are missing, in parallel -> commit
 *         the list of them
 *
 * A block's id is its number and the MD5 of its content. So an interrupted upload is resumed
 * by any process that sends the same bytes to the same key, for as long as the service keeps
 * uncommitted blocks (a week), and a block of other content can never be taken for one of ours. */
#include <inttypes.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/azure_internal.h"

enum {
    WHOLE_BYTES = 32 << 20, /* up to here one request is enough */
    BLOCK_BYTES = 8 << 20,
    MAX_BLOCKS = 50000,
    THREADS = 6,
    ID_BYTES = 48, /* "%08x" and an MD5 in base64: 32 letters, 44 in base64 again */
    BLOCK_S = 300, /* a block and its retries */
};

typedef struct upload {
    fth_store *store;
    const char *key;
    const fth_store_source *source;
    uint64_t block_bytes, count;
    char (*ids)[ID_BYTES];
    fth_deadline deadline;
    fth_store_meter meter;
    char **there; /* ids of uncommitted blocks, sorted */
    size_t there_count, there_capacity;
} upload;

/* ---- small objects ---- */

static void begin_write(fth_bucket_request *request, const fth_store_put_options *options, const char *type_header,
                        char number[33])
{
    fth_bucket_make_number(number);
    fth_bucket_add_meta(request, "put", number);
    fth_bucket_add_header(request, type_header,
                          options->content_type ? options->content_type : "application/octet-stream");
    fth_bucket_add_condition(request, options);
}

fth_status fth_azure_put(fth_store *store, const char *key, const void *bytes, size_t size_bytes,
                         const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                         fth_store_version *version)
{
    fth_status status = FTH_OK;
    char number[33], checksum[FTH_AZURE_MD5_TEXT];
    fth_store_meter meter;
    fth_bucket_request request = {.store = store,
                                  .what = "put",
                                  .method = "PUT",
                                  .key = key,
                                  .body = bytes ? bytes : "",
                                  .body_bytes = size_bytes,
                                  .deadline = deadline,
                                  .meter = &meter};
    fth_store_meter_begin(&meter, size_bytes, options->progress);
    begin_write(&request, options, "content-type", number);
    fth_bucket_add_header(&request, "x-ms-blob-type", "BlockBlob");
    fth_azure_md5(request.body, size_bytes, checksum);
    fth_bucket_add_header(&request, "content-md5", checksum);
    FTH_TRY(fth_bucket_write(&request, options->condition, number, lost, version));

out:
    fth_bucket_end(&request);
    return status;
}

/* ---- what is there already ---- */

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static fth_status note_block(void *context, const char *path, const char *text)
{
    upload *up = context;
    size_t length = strlen(path), wanted = strlen("UncommittedBlocks/Block/Name");
    if (length < wanted || strcmp(path + length - wanted, "UncommittedBlocks/Block/Name") != 0)
        return FTH_OK;
    fth_status status = fth_grow(&up->there, up->there_count, &up->there_capacity, sizeof *up->there);
    if (status == FTH_OK)
        up->there[up->there_count++] = strdup(text);
    return status;
}

static fth_status find_blocks(upload *up)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_bucket_request request = {.store = up->store,
                                  .what = "look for parts of",
                                  .method = "GET",
                                  .key = up->key,
                                  .deadline = fth_store_deadline(up->store)};
    fth_xml_visitor visitor = {.leaf = note_block, .context = up};
    fth_bucket_add_query(&request, "comp", "blocklist");
    fth_bucket_add_query(&request, "blocklisttype", "uncommitted");
    FTH_TRY(fth_bucket_send(&request, &response));
    if (fth_bucket_says_absent(up->store, &response))
        goto out;
    if (response.code != 200) {
        status = fth_bucket_explain(&request, &response);
        goto out;
    }
    FTH_TRY(fth_xml_read(response.body, response.body_bytes, &visitor));
    if (up->there_count > 0)
        qsort(up->there, up->there_count, sizeof *up->there, compare_text);

out:
    fth_bucket_end(&request);
    fth_http_response_release(&response);
    return status;
}

/* ---- blocks ---- */

static fth_deadline sooner(fth_deadline a, fth_deadline b)
{
    return a.at_seconds < b.at_seconds ? a : b;
}

static fth_status put_block(void *context, uint64_t i)
{
    fth_status status = FTH_OK;
    upload *up = context;
    uint64_t offset = i * up->block_bytes, left = up->source->size_bytes - offset;
    uint64_t size_bytes = left < up->block_bytes ? left : up->block_bytes;
    fth_http_response response = {0};
    char checksum[FTH_AZURE_MD5_TEXT], plain[ID_BYTES];
    fth_bucket_request request = {.store = up->store,
                                  .what = "put a part of",
                                  .method = "PUT",
                                  .key = up->key,
                                  .body_bytes = size_bytes,
                                  .deadline =
                                      sooner(up->deadline, fth_deadline_in(fmax(BLOCK_S, up->store->deadline_s))),
                                  .meter = &up->meter};
    FTH_TRY(up->source->at(up->source->context, offset, size_bytes, &request.body));
    fth_azure_md5(request.body, size_bytes, checksum);
    int length = snprintf(plain, sizeof plain, "%08" PRIx64 "%s", i, checksum);
    EVP_EncodeBlock((unsigned char *)up->ids[i], (const unsigned char *)plain, length);
    char *id = up->ids[i];
    if (up->there_count > 0 && bsearch(&id, up->there, up->there_count, sizeof *up->there, compare_text)) {
        FTH_REQUIRE(fth_store_meter_add(&up->meter, (int64_t)size_bytes), FTH_INTERRUPTED, "put %s: cancelled",
                    up->key);
        goto out;
    }
    fth_bucket_add_query(&request, "comp", "block");
    fth_bucket_add_query(&request, "blockid", id);
    fth_bucket_add_header(&request, "content-md5", checksum);
    FTH_TRY(fth_bucket_send(&request, &response));
    if (response.code != 201)
        status = fth_bucket_explain(&request, &response);

out:
    fth_bucket_end(&request);
    fth_http_response_release(&response);
    return status;
}

static fth_status commit(upload *up, const fth_store_put_options *options, bool *lost, fth_store_version *version)
{
    static const char head[] = "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>", tail[] = "</BlockList>";
    fth_status status = FTH_OK;
    char number[33], checksum[FTH_AZURE_MD5_TEXT], *body = NULL;
    size_t length = 0, room = sizeof head + sizeof tail + up->count * (ID_BYTES + strlen("<Latest></Latest>"));
    fth_bucket_request request = {.store = up->store,
                                  .what = "put",
                                  .method = "PUT",
                                  .key = up->key,
                                  .deadline =
                                      sooner(up->deadline, fth_deadline_in(fmax(BLOCK_S, up->store->deadline_s)))};
    FTH_TRY(fth_allocate(room, 1, &body));
    length = (size_t)snprintf(body, room, "%s", head);
    for (uint64_t i = 0; i < up->count; i++)
        length += (size_t)snprintf(body + length, room - length, "<Latest>%s</Latest>", up->ids[i]);
    length += (size_t)snprintf(body + length, room - length, "%s", tail);
    request.body = body;
    request.body_bytes = length;
    fth_bucket_add_query(&request, "comp", "blocklist");
    begin_write(&request, options, "x-ms-blob-content-type", number);
    fth_azure_md5(body, length, checksum);
    fth_bucket_add_header(&request, "content-md5", checksum);
    FTH_TRY(fth_bucket_write(&request, options->condition, number, lost, version));

out:
    free(body);
    fth_bucket_end(&request);
    return status;
}

fth_status fth_azure_put_source(fth_store *store, const char *key, const fth_store_source *source,
                                const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                                fth_store_version *version)
{
    fth_status status = FTH_OK;
    upload up = {.store = store, .key = key, .source = source, .deadline = deadline};
    const void *bytes = NULL;
    if (source->size_bytes <= WHOLE_BYTES) {
        if (source->size_bytes > 0)
            FTH_TRY(source->at(source->context, 0, source->size_bytes, &bytes));
        deadline = sooner(deadline, fth_deadline_in(fmax(BLOCK_S, store->deadline_s)));
        FTH_TRY(fth_azure_put(store, key, bytes, source->size_bytes, options, deadline, lost, version));
        goto out;
    }
    up.block_bytes = BLOCK_BYTES;
    while ((source->size_bytes + up.block_bytes - 1) / up.block_bytes > MAX_BLOCKS)
        up.block_bytes *= 2;
    up.count = (source->size_bytes + up.block_bytes - 1) / up.block_bytes;
    FTH_TRY(fth_allocate(up.count, sizeof *up.ids, &up.ids));
    fth_store_meter_begin(&up.meter, source->size_bytes, options->progress);
    FTH_TRY(find_blocks(&up));
    FTH_TRY(fth_store_in_parallel(THREADS, up.count, put_block, &up, &up.meter.cancelled));
    /* Once more right before the blocks become an object: who slept meanwhile may have lost the
     * right to write. */
    FTH_REQUIRE(fth_store_meter_add(&up.meter, 0), FTH_INTERRUPTED, "put %s: cancelled", key);
    FTH_TRY(commit(&up, options, lost, version));

out:
    for (size_t i = 0; i < up.there_count; i++)
        free(up.there[i]);
    free(up.there);
    free(up.ids);
    return status;
}
