/* See s3_internal.h: large objects in parts, several at a time.
 *
 *     checksums of all parts -> create (with their checksum as metadata) -> parts -> complete
 *                                                                             |
 *                                            failed: abort; a file's is kept -'
 *
 * The checksums come first since the metadata must be there before the first part; they are the
 * same that go with each part, so nothing is computed twice. A part is retried by itself.
 *
 * A condition goes with the last step. Servers differ in how they treat it there, so large
 * objects that must be new go in parts only where a trial has shown that it holds, and otherwise as
 * a single put, up to its limit. */
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/s3_internal.h"

enum { MAX_PARTS = 9000, USUAL_PARTS = 64, ETAG_BYTES = 96 };

/* Larger parts cost a server less, smaller ones spread better over the threads. */
static const uint64_t LARGE_PART_BYTES = 32u << 20;
static const uint64_t SINGLE_PUT_BYTES = 16u << 20, MAX_SINGLE_BYTES = 5ull << 30;
static const uint64_t CONDITIONAL_PARTS_BYTES = 32u << 20; /* from here on the trial costs less than it brings */
static const double ABORT_S = 10, LATE_ABORT_S = 1;
/* Putting the parts together takes servers a while that grows with their number; AWS speaks of
 * minutes. */
static const double COMPLETE_STALL_S = 30, COMPLETE_BYTES_PER_S = 100e6;

typedef struct fth_s3_parts {
    fth_store *store;
    const char *key;
    const fth_store_source *source;
    fth_deadline deadline;
    uint64_t part_bytes, count;
    unsigned char (*digests)[FTH_MD5_BYTES];
    char (*etags)[ETAG_BYTES]; /* of each part that is done, as the server gave it */
    char *id;
    fth_store_meter meter;
    fth_s3_upload *upload; /* a file's note; NULL: none */
    fth_s3_orphans orphans;
} fth_s3_parts;

static uint64_t size_of_part(const fth_s3_parts *parts, uint64_t i)
{
    uint64_t left = parts->source->size_bytes - i * parts->part_bytes;
    return left < parts->part_bytes ? left : parts->part_bytes;
}

static uint64_t choose_part_bytes(uint64_t size_bytes)
{
    uint64_t wanted = size_bytes / USUAL_PARTS, most = size_bytes / MAX_PARTS + 1;
    wanted = wanted < LARGE_PART_BYTES ? wanted : LARGE_PART_BYTES;
    return fth_align_up((size_t)(wanted > most ? wanted : most), FTH_S3_CHUNK_BYTES);
}

/* For what is tidied up beside the upload itself. */
static fth_deadline soon(fth_deadline deadline)
{
    fth_deadline brief = fth_deadline_in(ABORT_S);
    return deadline.at_seconds < brief.at_seconds ? deadline : brief;
}

/* ---- the steps ---- */

static fth_status create(fth_s3_parts *parts, const char *tree, const char *number, const char *content_type)
{
    fth_status status = FTH_OK;
    fth_http_response response = {0};
    fth_bucket_request request = {.store = parts->store,
                                  .what = "put",
                                  .method = "POST",
                                  .key = parts->key,
                                  .deadline = fth_store_large_deadline(parts->store, 0, parts->deadline)};
    fth_bucket_add_query(&request, "uploads", "");
    fth_bucket_add_header(&request, "content-type", content_type ? content_type : "application/octet-stream");
    fth_bucket_add_meta(&request, "tree", tree);
    fth_bucket_add_meta(&request, "put", number);
    double begun_s = fth_clock_seconds();
    FTH_TRY(fth_bucket_send(&request, &response));
    double took_s = fth_clock_seconds() - begun_s;
    if (response.code != 200) {
        status = fth_bucket_explain(&request, &response);
        goto out;
    }
    parts->id = fth_xml_value(response.body, response.body_bytes, "UploadId");
    FTH_REQUIRE(parts->id && *parts->id, FTH_CORRUPT, "put %s: the server began an upload without naming it",
                request.name);
    if (request.uncertain)
        fth_s3_note_orphans(parts->store, parts->key, parts->id, request.tries - 1, took_s, soon(parts->deadline),
                            &parts->orphans);

out:
    fth_http_response_release(&response);
    fth_bucket_end(&request);
    return status;
}

static fth_status put_part(void *context, uint64_t i)
{
    fth_status status = FTH_OK;
    fth_s3_parts *parts = context;
    fth_http_response response = {0};
    const void *bytes = NULL;
    char number[24], md5[2 * FTH_MD5_BYTES], *etag = NULL;
    uint64_t size_bytes = size_of_part(parts, i);
    fth_bucket_request request = {.store = parts->store,
                                  .what = "put",
                                  .method = "PUT",
                                  .key = parts->key,
                                  .body_bytes = size_bytes,
                                  .payload_hash = "UNSIGNED-PAYLOAD",
                                  .meter = &parts->meter,
                                  .deadline = fth_store_large_deadline(parts->store, size_bytes, parts->deadline)};

    if (parts->etags[i][0]) { /* an earlier upload brought it there */
        fth_store_meter_add(&parts->meter, (int64_t)size_bytes);
        goto out;
    }
    FTH_TRY(parts->source->at(parts->source->context, i * parts->part_bytes, size_bytes, &bytes));
    request.body = bytes;
    EVP_EncodeBlock((unsigned char *)md5, parts->digests[i], FTH_MD5_BYTES);
    fth_bucket_add_header(&request, "content-md5", md5);
    snprintf(number, sizeof number, "%" PRIu64, i + 1);
    fth_bucket_add_query(&request, "partNumber", number);
    fth_bucket_add_query(&request, "uploadId", parts->id);
    FTH_TRY(fth_bucket_send(&request, &response));
    if (response.code != 200) {
        status = fth_bucket_explain(&request, &response);
        goto out;
    }
    etag = fth_http_header(&response, "ETag");
    FTH_REQUIRE(etag && *etag && strlen(etag) < ETAG_BYTES, FTH_CORRUPT,
                "put %s: the server took part %s without an ETag", request.name, number);
    snprintf(parts->etags[i], ETAG_BYTES, "%s", etag);
    fth_s3_upload_note(parts->upload, i, etag);

out:
    free(etag);
    fth_http_response_release(&response);
    fth_bucket_end(&request);
    return status;
}

/* An answer of 200 may hold an error all the same: the server began it before it knew. */
static fth_status check_complete(void *context, const fth_http_response *response)
{
    (void)context;
    char *code = fth_xml_value(response->body, response->body_bytes, "Code");
    fth_status status = code ? fth_fail(FTH_CORRUPT, "the server could not put the parts together (%s)", code) : FTH_OK;
    free(code);
    return status;
}

static char *complete_body(const fth_s3_parts *parts)
{
    size_t room = 128 + (size_t)parts->count * (ETAG_BYTES + 96), used = 0;
    char *text = malloc(room);
    if (!text)
        return NULL;
    used += (size_t)snprintf(text, room, "<CompleteMultipartUpload>");
    for (uint64_t i = 0; i < parts->count; i++)
        used += (size_t)snprintf(text + used, room - used,
                                 "<Part><PartNumber>%" PRIu64 "</PartNumber><ETag>%s</ETag></Part>", i + 1,
                                 parts->etags[i]);
    snprintf(text + used, room - used, "</CompleteMultipartUpload>");
    return text;
}

static fth_status complete(fth_s3_parts *parts, const fth_store_put_options *options, const char *number, bool *lost,
                           fth_store_version *version)
{
    fth_status status = FTH_OK;
    fth_store *store = parts->store;
    fth_http_response response = {0}, head = {0};
    char *body = complete_body(parts), *etag = NULL;
    bool found = false, ours = false;
    double longer_s = (double)parts->source->size_bytes / COMPLETE_BYTES_PER_S;
    fth_deadline deadline = fth_deadline_in(store->deadline_s + longer_s);
    if (parts->deadline.at_seconds < deadline.at_seconds)
        deadline = parts->deadline;
    fth_bucket_request request = {.store = store,
                                  .what = "put",
                                  .method = "POST",
                                  .key = parts->key,
                                  .body = body,
                                  .body_bytes = body ? strlen(body) : 0,
                                  .check = check_complete,
                                  .stall_s = COMPLETE_STALL_S + longer_s,
                                  .deadline = deadline};

    FTH_REQUIRE(body, FTH_NO_MEMORY, "no memory for a list of %" PRIu64 " parts", parts->count);
    fth_bucket_add_query(&request, "uploadId", parts->id);
    fth_bucket_add_condition(&request, options);
    FTH_TRY(fth_bucket_send(&request, &response));
    bool refused = fth_bucket_says_lost(store, &response, options->condition);
    if ((response.code == 404 || refused) && request.uncertain) { /* an earlier try may have completed it */
        FTH_TRY(fth_bucket_look_whose(store, parts->key, number, deadline, &ours, version));
        if (ours)
            goto out;
    }
    *lost = refused;
    if (refused)
        goto out;
    if (response.code != 200) {
        status = fth_bucket_explain(&request, &response);
        goto out;
    }
    fth_bucket_version(store, &response, version);
    etag = fth_xml_value(response.body, response.body_bytes, "ETag");
    if (etag && *etag && !fth_s3_of(store)->google)
        fth_bucket_read_version(etag, version);
    if (!version->text[0]) { /* Ceph leaves it empty */
        FTH_TRY(fth_bucket_head(store, parts->key, deadline, &head, &found));
        FTH_REQUIRE(found, FTH_CORRUPT, "put %s: the server completed it, and yet it is not there", request.name);
        fth_bucket_version(store, &head, version);
    }

out:
    free(body);
    free(etag);
    fth_http_response_release(&response);
    fth_http_response_release(&head);
    fth_bucket_end(&request);
    return status;
}

void fth_s3_abort(fth_store *store, const char *key, const char *id, fth_deadline deadline)
{
    char *message = strdup(fth_error_message());
    fth_http_response response = {0};
    fth_bucket_request request = {.store = store,
                                  .what = "abort",
                                  .method = "DELETE",
                                  .key = key,
                                  .deadline = fth_deadline_in(fth_deadline_passed(deadline) ? LATE_ABORT_S : ABORT_S)};
    fth_bucket_add_query(&request, "uploadId", id);
    fth_status status = fth_bucket_send(&request, &response);
    if (status != FTH_OK || (response.code >= 300 && response.code != 404))
        fth_log_warning("%s: parts of a broken upload may stay on the server; a lifecycle rule that ends incomplete "
                        "uploads clears them",
                        request.name);
    fth_http_response_release(&response);
    fth_bucket_end(&request);
    if (message)
        fth_set_error("%s", message);
    free(message);
}

/* ---- going on with a file's earlier upload ---- */

typedef struct fth_s3_listing {
    fth_s3_parts *parts;
    uint64_t number;
    char etag[ETAG_BYTES];
    bool more;
    char marker[24];
    uint64_t kept;
} fth_s3_listing;

static fth_status take_part_leaf(void *context, const char *path, const char *text)
{
    fth_s3_listing *listing = context;
    if (strcmp(path, "ListPartsResult/Part/PartNumber") == 0)
        listing->number = strtoull(text, NULL, 10);
    else if (strcmp(path, "ListPartsResult/Part/ETag") == 0)
        snprintf(listing->etag, sizeof listing->etag, "%s", text);
    else if (strcmp(path, "ListPartsResult/IsTruncated") == 0)
        listing->more = strcmp(text, "true") == 0;
    else if (strcmp(path, "ListPartsResult/NextPartNumberMarker") == 0)
        snprintf(listing->marker, sizeof listing->marker, "%s", text);
    return FTH_OK;
}

static bool same_etag(const char *a, const char *b)
{
    size_t a_length = strlen(a), b_length = strlen(b);
    bool a_quoted = a_length >= 2 && a[0] == '"', b_quoted = b_length >= 2 && b[0] == '"';
    a += a_quoted;
    b += b_quoted;
    a_length -= 2 * a_quoted;
    b_length -= 2 * b_quoted;
    return a_length == b_length && memcmp(a, b, a_length) == 0;
}

/* A part counts as done if our note and the server agree on it. */
static fth_status take_part(void *context, const char *path)
{
    fth_s3_listing *listing = context;
    fth_s3_parts *parts = listing->parts;
    if (strcmp(path, "ListPartsResult/Part") != 0)
        return FTH_OK;
    if (listing->number >= 1 && listing->number <= parts->count) {
        const char *noted = fth_s3_upload_part(parts->upload, listing->number - 1);
        if (noted && same_etag(noted, listing->etag)) {
            snprintf(parts->etags[listing->number - 1], ETAG_BYTES, "%s", noted);
            listing->kept++;
        }
    }
    listing->number = 0;
    listing->etag[0] = '\0';
    return FTH_OK;
}

/* Asks which parts the server has. *there: it still knows the upload. */
static fth_status list_parts(fth_s3_parts *parts, bool *there)
{
    fth_status status = FTH_OK;
    fth_s3_listing listing = {.parts = parts, .more = true};
    fth_xml_visitor visitor = {.leaf = take_part_leaf, .close = take_part, .context = &listing};
    *there = true;
    while (listing.more && status == FTH_OK && *there) {
        fth_http_response response = {0};
        fth_bucket_request request = {.store = parts->store,
                                      .what = "put",
                                      .method = "GET",
                                      .key = parts->key,
                                      .deadline = fth_store_large_deadline(parts->store, 0, parts->deadline)};
        char marker[24];
        snprintf(marker, sizeof marker, "%s", listing.marker);
        fth_bucket_add_query(&request, "uploadId", parts->id);
        if (*marker)
            fth_bucket_add_query(&request, "part-number-marker", marker);
        listing.more = false;
        status = fth_bucket_send(&request, &response);
        *there = status == FTH_OK && response.code == 200;
        if (*there)
            status = fth_xml_read(response.body, (size_t)response.body_bytes, &visitor);
        if (listing.more && strcmp(marker, listing.marker) == 0)
            listing.more = false; /* it does not move on */
        fth_http_response_release(&response);
        fth_bucket_end(&request);
    }
    if (status == FTH_OK && listing.kept > 0)
        fth_log_info("continuing an earlier upload of %s: %" PRIu64 " of %s done", parts->key, listing.kept,
                     FTH_COUNTED(parts->count, "part"));
    return status;
}

/* ---- the whole ---- */

static fth_status put_parts(fth_store *store, const char *key, const fth_store_source *source, bool resumable,
                            const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                            fth_store_version *version)
{
    fth_status status = FTH_OK;
    fth_s3_parts parts = {.store = store, .key = key, .source = source, .deadline = deadline};
    char tree[96], number[33];
    bool there = false, ended = false;

    parts.part_bytes = choose_part_bytes(source->size_bytes);
    parts.count = (source->size_bytes + parts.part_bytes - 1) / parts.part_bytes;
    fth_store_meter_begin(&parts.meter, source->size_bytes, options->progress);
    FTH_TRY(fth_allocate((size_t)parts.count, FTH_MD5_BYTES, &parts.digests));
    FTH_TRY(fth_allocate((size_t)parts.count, ETAG_BYTES, &parts.etags));
    FTH_TRY(fth_s3_hash_parts(source, parts.part_bytes, &parts.meter, parts.digests, tree));
    if (options->condition == FTH_STORE_ALWAYS) /* the same bytes are as good as the same put */
        snprintf(number, sizeof number, "%.32s", strrchr(tree, '-') + 1);
    else /* only one may win */
        fth_bucket_make_number(number);

    if (resumable && options->condition == FTH_STORE_ALWAYS)
        fth_s3_upload_open(store, key, tree, parts.count, &parts.upload, &parts.id);
    if (fth_s3_upload_stale(parts.upload))
        fth_s3_abort(store, key, fth_s3_upload_stale(parts.upload), deadline);
    if (parts.id)
        FTH_TRY(list_parts(&parts, &there));
    if (!there) {
        free(parts.id);
        parts.id = NULL;
        FTH_TRY(create(&parts, tree, number, options->content_type));
        fth_s3_upload_begin(parts.upload, tree, parts.id);
    }
    FTH_TRY(fth_store_in_parallel(fth_store_threads(), parts.count, put_part, &parts, &parts.meter.cancelled));
    /* Once more right before the parts become an object: who slept meanwhile may have lost the
     * right to write. */
    FTH_REQUIRE(fth_store_meter_add(&parts.meter, 0), FTH_INTERRUPTED, "put %s: cancelled", key);
    status = complete(&parts, options, number, lost, version);
    fth_s3_upload_forget(parts.upload); /* failed, too: an upload that cannot be completed is not worth going on with */
    ended = true;
    FTH_TRY(status);

out:
    if ((status != FTH_OK || *lost) && parts.id && (!parts.upload || ended))
        fth_s3_abort(store, key, parts.id, deadline);
    fth_s3_end_orphans(store, key, &parts.orphans, soon(deadline));
    fth_s3_upload_free(parts.upload);
    free(parts.digests);
    free(parts.etags);
    free(parts.id);
    return status;
}

/* ---- new or not at all ---- */

static fth_status mapped_at(void *context, uint64_t offset, uint64_t size_bytes, const void **bytes)
{
    (void)size_bytes;
    *bytes = (const char *)context + offset;
    return FTH_OK;
}

/* Tries out whether an upload in parts that must be new is refused where there is an object. Asks
 * the server once. */
static fth_status absent_holds_in_parts(fth_store *store, bool *holds)
{
    fth_status status = FTH_OK;
    fth_s3 *s3 = fth_s3_of(store);
    fth_deadline deadline = fth_store_deadline(store);
    fth_store_put_options always = {0}, absent = {.condition = FTH_STORE_IF_ABSENT};
    fth_store_source source = {.context = (void *)"probe", .size_bytes = 5, .at = mapped_at};
    fth_store_version version;
    char number[33], *key = NULL;
    bool lost = false;

    pthread_mutex_lock(&s3->mutex);
    int known = s3->absent_in_parts;
    pthread_mutex_unlock(&s3->mutex);
    *holds = known == FTH_S3_HOLDS;
    if (known != FTH_S3_NOT_TRIED)
        goto out;
    fth_bucket_make_number(number);
    key = fth_format(".farthing/probe-%.16s", number);
    FTH_REQUIRE(key, FTH_NO_MEMORY, "no memory for a key");
    FTH_TRY(fth_s3_put(store, key, "probe", 5, &always, deadline, &lost, &version));
    status = put_parts(store, key, &source, false, &absent, deadline, &lost, &version);
    *holds = status == FTH_OK && lost;
    if (status == FTH_UNSUPPORTED)
        status = FTH_OK; /* refused as such */
    if (fth_bucket_remove(store, key, deadline) != FTH_OK)
        fth_log_debug("the probe %s stays behind: %s", key, fth_error_message());
    FTH_TRY(status);
    pthread_mutex_lock(&s3->mutex);
    s3->absent_in_parts = *holds ? FTH_S3_HOLDS : FTH_S3_HOLDS_NOT;
    pthread_mutex_unlock(&s3->mutex);

out:
    free(key);
    return status;
}

static fth_status put_any(fth_store *store, const char *key, const fth_store_source *source, bool resumable,
                          const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                          fth_store_version *version)
{
    fth_status status = FTH_OK;
    const void *bytes = NULL;
    bool parts = source->size_bytes > SINGLE_PUT_BYTES && options->condition == FTH_STORE_ALWAYS;
    if (options->condition == FTH_STORE_IF_ABSENT && source->size_bytes > CONDITIONAL_PARTS_BYTES)
        FTH_TRY(absent_holds_in_parts(store, &parts));
    if (parts) {
        FTH_TRY(put_parts(store, key, source, resumable, options, deadline, lost, version));
        goto out;
    }
    FTH_REQUIRE(source->size_bytes <= MAX_SINGLE_BYTES, FTH_UNSUPPORTED,
                "put %s: over 5 GiB an object goes in parts, and %s; put it without a condition, under a name that no "
                "other writer uses",
                key,
                options->condition == FTH_STORE_IF_ABSENT ? "this server does not keep to \"If-None-Match\" for those"
                                                          : "a certain version cannot be replaced so");
    if (source->size_bytes > 0)
        FTH_TRY(source->at(source->context, 0, source->size_bytes, &bytes));
    FTH_TRY(fth_s3_put(store, key, bytes, (size_t)source->size_bytes, options,
                       fth_store_large_deadline(store, source->size_bytes, deadline), lost, version));

out:
    return status;
}

fth_status fth_s3_put_source(fth_store *store, const char *key, const fth_store_source *source,
                             const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                             fth_store_version *version)
{
    return put_any(store, key, source, false, options, deadline, lost, version);
}

fth_status fth_s3_put_file(fth_store *store, const char *key, const char *path, const fth_store_put_options *options,
                           fth_deadline deadline, bool *lost, fth_store_version *version)
{
    fth_status status = FTH_OK;
    const void *map = NULL;
    size_t size_bytes = 0;
    FTH_TRY(fth_file_map(path, &map, &size_bytes));
    fth_store_source source = {.context = (void *)map, .size_bytes = size_bytes, .at = mapped_at};
    FTH_TRY(put_any(store, key, &source, true, options, deadline, lost, version));

out:
    fth_file_unmap(map, size_bytes);
    return status;
}
