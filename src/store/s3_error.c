/* See s3_internal.h: the server's error codes in plain words, each with what to do. */
#include <stdlib.h>
#include <string.h>

#include "store/s3_internal.h"

/* %s in `advice` stands for the source of the keys or the bucket, as `names` says. */
typedef enum fth_names { NAMES_NOTHING, NAMES_KEYS, NAMES_BUCKET } fth_names;

static const struct {
    const char *code;
    fth_status status;
    fth_names names;
    const char *advice;
} known[] = {
    {"NoSuchBucket", FTH_INVALID, NAMES_BUCKET,
     "there is no bucket '%s'; create it, or mend the address, the endpoint or the region"},
    {"InvalidBucketName", FTH_INVALID, NAMES_BUCKET,
     "'%s' cannot be the name of a bucket (3 to 63 small letters, digits, '-' and '.')"},
    {"NoSuchKey", FTH_INVALID, NAMES_NOTHING, "there is no such object"},
    {"InvalidAccessKeyId", FTH_INVALID, NAMES_KEYS,
     "the server does not know the access key, which came from %s; check it, and that the endpoint is the right one"},
    {"SignatureDoesNotMatch", FTH_INVALID, NAMES_KEYS,
     "the secret key does not fit the access key; both came from %s: check them"},
    {"ExpiredToken", FTH_INVALID, NAMES_KEYS,
     "the session token has expired; the keys came from %s: log in again, or set fresh ones"},
    {"TokenRefreshRequired", FTH_INVALID, NAMES_KEYS,
     "the session token has expired; the keys came from %s: log in again, or set fresh ones"},
    {"InvalidToken", FTH_INVALID, NAMES_KEYS,
     "the session token is not valid; the keys came from %s: is AWS_SESSION_TOKEN left over from other keys?"},
    {"RequestTimeTooSkewed", FTH_INVALID, NAMES_NOTHING,
     "this machine's clock differs from the server's by more than 15 minutes; set it right (timedatectl set-ntp true)"},
    {"RequestExpired", FTH_INVALID, NAMES_NOTHING, "this machine's clock is wrong; set it right"},
    {"AccessDenied", FTH_INVALID, NAMES_KEYS,
     "access denied: the keys, which came from %s, do not allow this; the bucket's policy or the role must"},
    {"AllAccessDisabled", FTH_INVALID, NAMES_BUCKET, "all access to the bucket '%s' has been disabled"},
    {"AuthorizationHeaderMalformed", FTH_INVALID, NAMES_NOTHING,
     "the region is wrong; give the bucket's own (--s3-region or AWS_REGION)"},
    {"PermanentRedirect", FTH_INVALID, NAMES_NOTHING,
     "the bucket is in another region; give it (--s3-region or AWS_REGION)"},
    {"InvalidObjectState", FTH_INVALID, NAMES_NOTHING, "the object is archived and must be restored first"},
    {"EntityTooLarge", FTH_INVALID, NAMES_NOTHING, "the object is larger than the server takes"},
    {"QuotaExceeded", FTH_IO, NAMES_BUCKET, "the quota of the bucket '%s' or its owner is used up; delete something"},
    {"XMinioStorageFull", FTH_IO, NAMES_NOTHING, "the server's disks are full; delete something"},
    {"InsufficientStorage", FTH_IO, NAMES_NOTHING, "the server's disks are full; delete something"},
    {"BadDigest", FTH_CORRUPT, NAMES_NOTHING, "what arrived is not what was sent (checksum)"},
    {"XAmzContentSHA256Mismatch", FTH_CORRUPT, NAMES_NOTHING, "what arrived is not what was sent (checksum)"},
    {"NotImplemented", FTH_UNSUPPORTED, NAMES_NOTHING, "the server cannot do that"},
};

fth_status fth_s3_explain(const fth_s3_request *request, const fth_http_response *response)
{
    fth_status status = FTH_IO;
    fth_s3 *s3 = fth_s3_of(request->store);
    char *code = fth_s3_xml_value(response->body, response->body_bytes, "Code");
    char *message = fth_s3_xml_value(response->body, response->body_bytes, "Message");
    pthread_mutex_lock(&s3->mutex);
    char *origin = strdup(s3->origin);
    pthread_mutex_unlock(&s3->mutex);

    for (size_t i = 0; code && i < FTH_COUNT_OF(known); i++) {
        if (strcmp(known[i].code, code) != 0)
            continue;
        const char *name = known[i].names == NAMES_KEYS ? fth_credentials_source(s3->credentials) : s3->bucket;
        char *advice = fth_format(known[i].advice, name);
        status = fth_fail(known[i].status, "%s %s: %s (%s: %d %s)", request->what, request->name, advice, origin,
                          response->code, code);
        free(advice);
        goto out;
    }
    if (response->code == 403)
        status =
            fth_fail(FTH_INVALID, "%s %s: access denied (%s: 403%s%s); the keys came from %s", request->what,
                     request->name, origin, code ? " " : "", code ? code : "", fth_credentials_source(s3->credentials));
    else
        status = fth_fail(response->code == 404 ? FTH_INVALID : FTH_IO, "%s %s: %s answered %d%s%s%s%.300s",
                          request->what, request->name, origin, response->code, code ? " " : "", code ? code : "",
                          message && *message ? ": " : "", message ? message : "");

out:
    free(code);
    free(message);
    free(origin);
    return status;
}
