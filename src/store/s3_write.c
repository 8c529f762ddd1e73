/* See s3_internal.h: writing small objects, and finding out whether the server keeps to
 * conditions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/s3_internal.h"

fth_status fth_s3_put(fth_store *store, const char *key, const void *bytes, size_t size_bytes,
                      const fth_store_put_options *options, fth_deadline deadline, bool *lost,
                      fth_store_version *version)
{
    fth_status status = FTH_OK;
    fth_store_meter meter;
    char hash[65], number[33];
    fth_bucket_request request = {.store = store,
                                  .what = "put",
                                  .method = "PUT",
                                  .key = key,
                                  .body = bytes ? bytes : "",
                                  .body_bytes = size_bytes,
                                  .payload_hash = hash,
                                  .deadline = deadline};

    fth_store_meter_begin(&meter, size_bytes, options->progress);
    request.meter = options->progress ? &meter : NULL;
    fth_hex_sha256(request.body, size_bytes, hash);
    fth_bucket_make_number(number);
    fth_bucket_add_header(&request, "content-type",
                          options->content_type ? options->content_type : "application/octet-stream");
    fth_bucket_add_meta(&request, "sha256", hash);
    fth_bucket_add_meta(&request, "put", number);
    fth_bucket_add_condition(&request, options);
    FTH_TRY(fth_bucket_write(&request, options->condition, number, lost, version));

out:
    fth_bucket_end(&request);
    return status;
}

/* ---- does the server keep to conditions? ---- */

static fth_status try_put(fth_store *store, const char *key, fth_store_condition condition, const char *match,
                          fth_deadline deadline, bool *lost, fth_store_version *version)
{
    fth_store_put_options options = {.condition = condition};
    snprintf(options.match.text, sizeof options.match.text, "%s", match);
    *lost = false;
    return fth_s3_put(store, key, "probe", 5, &options, deadline, lost, version);
}

/* Puts a little object twice if absent, then over a version that is not there, then over the one
 * that is: the second and the third must be refused, the first and the last taken. */
fth_status fth_s3_probe_conditions(fth_store *store, fth_deadline deadline, char **why)
{
    fth_status status = FTH_OK;
    fth_s3 *s3 = fth_s3_of(store);
    fth_store_version version = {""}, next;
    char number[33], *key = NULL;
    const char *wrong = s3->google ? "1" : "00000000000000000000000000000000";
    bool lost = false, made = false;

    fth_bucket_make_number(number);
    key = fth_format(".farthing/probe-%.16s", number);
    status = try_put(store, key, FTH_STORE_IF_ABSENT, "", deadline, &lost, &version);
    made = status == FTH_OK;
    if (made)
        status = try_put(store, key, FTH_STORE_IF_ABSENT, "", deadline, &lost, &next);
    if (status == FTH_UNSUPPORTED || (status == FTH_OK && !lost)) { /* refused as such, or ignored */
        *why = strdup("the server does not keep to \"If-None-Match: *\": it replaces what is there although it should "
                      "not. Two machines could both write, so what depends on it (leases, checkpoints that are never "
                      "overwritten) is refused; a newer server, or another store, is needed");
        status = FTH_OK;
    }
    if (status != FTH_OK || *why)
        goto out;
    FTH_TRY(try_put(store, key, FTH_STORE_IF_MATCH, wrong, deadline, &lost, &next));
    if (!lost) {
        *why =
            strdup("the server does not keep to \"If-Match\": it replaces an object of another version. Two machines "
                   "could both write, so what depends on it (leases) is refused; a newer server, or another store, "
                   "is needed");
        goto out;
    }
    FTH_TRY(try_put(store, key, FTH_STORE_IF_MATCH, version.text, deadline, &lost, &next));
    if (lost && !s3->google) { /* Ceph compares the header with the bare ETag */
        atomic_store(&s3->bucket.bare_match, true);
        FTH_TRY(try_put(store, key, FTH_STORE_IF_MATCH, version.text, deadline, &lost, &next));
        if (!lost) { /* and bare, a wrong one must still be refused */
            FTH_TRY(try_put(store, key, FTH_STORE_IF_MATCH, wrong, deadline, &lost, &next));
            lost = !lost;
        }
    }
    if (lost) {
        atomic_store(&s3->bucket.bare_match, false);
        *why = strdup("the server refuses \"If-Match\" even with the right version, so nothing can be replaced safely; "
                      "a newer server, or another store, is needed");
    }

out:
    if (made && status == FTH_OK && fth_bucket_remove(store, key, deadline) != FTH_OK)
        fth_log_debug("the probe %s stays behind: %s", key, fth_error_message());
    free(key);
    return status;
}
