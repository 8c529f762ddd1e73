/* The S3 store against a little server that misbehaves in the ways real ones do but cannot be made
 * to: answers that are lost after the deed, conditions that are ignored, clocks and regions that
 * differ, keys that expire, bytes that change on the way. Against a real server it is tested in
 * tests/e2e. */
#include "support.h"

#include <math.h>
#include <openssl/evp.h>
#include <time.h>

#include "store/store.h"
#include "stub_server.h"

enum { MAX_OBJECTS = 16, MAX_PARTS = 16 };

typedef struct object {
    char key[256], lines[1024], etag[64];
    char *bytes;
    size_t size_bytes;
    int generation;
} object;

typedef struct bucket {
    stub_server server;
    object objects[MAX_OBJECTS];
    object parts[MAX_PARTS];
    char upload_lines[1024];
    bool uploading;
    int generations;

    /* What goes wrong. */
    bool ignores_conditions, answers_304, bare_etags;
    bool ignores_conditions_on_parts;
    int lose_completions; /* answers to so many, after they were carried out */
    int refuse_503;       /* so many requests */
    int lose_answers;     /* of so many PUTs, after they were carried out */
    int corrupt_gets;     /* so many GETs give other bytes */
    int complete_errors;  /* so many completions answer 200 with an error */
    int fail_part;        /* this part is refused; 0: none */
    double clock_ahead_s; /* of the server; requests off by 15 minutes are refused */
    const char *region;   /* requests signed for another are sent there */
    const char *token;    /* the one that has not expired; NULL: any */
    bool lists_for_ever;  /* the same page */
    bool no_metadata;     /* the instance's metadata service is away */
    double keys_last_s;   /* the role's; 0: for ever */

    /* What happened. */
    int puts, part_puts, aborts, requests, tokens_asked;
    char last_headers[STUB_MAX_HEADERS];
} bucket;

static object *find(bucket *b, const char *key)
{
    for (int i = 0; i < MAX_OBJECTS; i++)
        if (b->objects[i].bytes && strcmp(b->objects[i].key, key) == 0)
            return &b->objects[i];
    return NULL;
}

static void fill(bucket *b, object *o, const char *key, const char *lines, const char *bytes, size_t size_bytes)
{
    unsigned char md5[EVP_MAX_MD_SIZE];
    snprintf(o->key, sizeof o->key, "%s", key);
    snprintf(o->lines, sizeof o->lines, "%s", lines);
    free(o->bytes);
    o->bytes = malloc(size_bytes + 1);
    memcpy(o->bytes, bytes, size_bytes);
    o->size_bytes = size_bytes;
    EVP_Digest(bytes, size_bytes, md5, NULL, EVP_md5(), NULL);
    for (int i = 0; i < 16; i++)
        snprintf(o->etag + 2 * i, 3, "%02x", md5[i]);
    o->generation = ++b->generations;
}

static void store_object(bucket *b, const char *key, const char *lines, const char *bytes, size_t size_bytes)
{
    object *o = find(b, key);
    for (int i = 0; !o && i < MAX_OBJECTS; i++)
        if (!b->objects[i].bytes)
            o = &b->objects[i];
    assert_non_null(o);
    fill(b, o, key, lines, bytes, size_bytes);
}

/* The metadata of a request, as lines of an answer. */
static void copy_meta(const stub_request *request, char *lines, size_t room)
{
    lines[0] = '\0';
    for (const char *line = request->headers; *line;) {
        size_t length = strcspn(line, "\r\n"), used = strlen(lines);
        if (strncasecmp(line, "x-amz-meta-", 11) == 0 || strncasecmp(line, "x-goog-meta-", 12) == 0)
            snprintf(lines + used, room - used, "%.*s\r\n", (int)length, line);
        line += length + strspn(line + length, "\r\n");
    }
}

static bool condition_holds(bucket *b, const stub_request *request, const object *o)
{
    if (b->ignores_conditions)
        return true;
    if (*stub_header(request, "x-goog-if-generation-match"))
        return atoi(stub_header(request, "x-goog-if-generation-match")) == (o ? o->generation : 0);
    if (strcmp(stub_header(request, "If-None-Match"), "*") == 0)
        return !o;
    if (!*stub_header(request, "If-Match"))
        return true;
    char expected[80];
    snprintf(expected, sizeof expected, b->bare_etags ? "%s" : "\"%s\"", o ? o->etag : "");
    return o && strcmp(stub_header(request, "If-Match"), expected) == 0;
}

static char *error(int code, const char *name, size_t *size_bytes)
{
    char body[512], date[64], lines[128];
    time_t now = time(NULL);
    struct tm parts;
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &parts));
    snprintf(lines, sizeof lines, "Date: %s\r\n", date);
    snprintf(body, sizeof body, "<?xml version=\"1.0\"?><Error><Code>%s</Code></Error>", name);
    return stub_answer(code, lines, body, size_bytes);
}

/* Refusals that come before anything is done; NULL: go on. */
static char *refuse(bucket *b, const stub_request *request, size_t *size_bytes)
{
    char text[512], date[64];
    struct tm parts = {0};
    if (b->refuse_503 > 0) {
        b->refuse_503--;
        return error(503, "SlowDown", size_bytes);
    }
    double theirs_s = (double)time(NULL) + b->clock_ahead_s;
    const char *signed_at = stub_header(request, "x-amz-date");
    if (*signed_at && strptime(signed_at, "%Y%m%dT%H%M%SZ", &parts) && fabs((double)timegm(&parts) - theirs_s) > 900) {
        time_t now = (time_t)theirs_s;
        strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &parts));
        snprintf(text, sizeof text, "Date: %s\r\n", date);
        return stub_answer(403, text, "<Error><Code>RequestTimeTooSkewed</Code></Error>", size_bytes);
    }
    snprintf(text, sizeof text, "/%s/s3/", b->region ? b->region : "");
    if (b->region && !strstr(stub_header(request, "Authorization"), text)) {
        snprintf(text, sizeof text, "x-amz-bucket-region: %s\r\n", b->region);
        return stub_answer(301, text, "<Error><Code>PermanentRedirect</Code></Error>", size_bytes);
    }
    if (b->token && strcmp(stub_header(request, "x-amz-security-token"), b->token) != 0)
        return error(400, "ExpiredToken", size_bytes);
    return NULL;
}

static char *give_object(bucket *b, const stub_request *request, const object *o, size_t *size_bytes)
{
    char lines[2048], *text = NULL;
    uint64_t first = 0, last = o->size_bytes - 1;
    bool range = sscanf(stub_header(request, "Range"), "bytes=%lu-%lu", &first, &last) == 2,
         head = *request->method == 'H';
    size_t length = o->size_bytes ? (size_t)(last - first + 1) : 0;
    int told =
        snprintf(lines, sizeof lines, "ETag: \"%s\"\r\nx-goog-generation: %d\r\n%s", o->etag, o->generation, o->lines);
    if (range)
        snprintf(lines + told, sizeof lines - (size_t)told, "Content-Range: bytes %lu-%lu/%zu\r\n", first, last,
                 o->size_bytes);
    int used = asprintf(&text, "HTTP/1.1 %d X\r\n%sContent-Length: %zu\r\n\r\n", range ? 206 : 200, lines, length);
    text = realloc(text, (size_t)used + length + 1);
    *size_bytes = (size_t)used + (head ? 0 : length);
    if (!head) {
        memcpy(text + used, o->bytes + first, length);
        if (b->corrupt_gets > 0) {
            b->corrupt_gets--;
            text[used] ^= 1;
        }
    }
    return text;
}

static char *put_object(bucket *b, const stub_request *request, const char *key, size_t *size_bytes)
{
    char lines[1024], answer[256];
    b->puts++;
    if (!condition_holds(b, request, find(b, key)))
        return error(b->answers_304 ? 304 : 412, "PreconditionFailed", size_bytes);
    copy_meta(request, lines, sizeof lines);
    store_object(b, key, lines, request->body, request->body_bytes);
    if (b->lose_answers > 0) {
        b->lose_answers--;
        return NULL;
    }
    object *o = find(b, key);
    snprintf(answer, sizeof answer, "ETag: \"%s\"\r\nx-goog-generation: %d\r\n", o->etag, o->generation);
    return stub_answer(200, answer, "", size_bytes);
}

/* ---- parts ---- */

static char *list_parts(bucket *b, size_t *size_bytes)
{
    char body[4096] = "<ListPartsResult><IsTruncated>false</IsTruncated>";
    for (int i = 0; i < MAX_PARTS; i++)
        if (b->parts[i].bytes)
            snprintf(body + strlen(body), sizeof body - strlen(body),
                     "<Part><PartNumber>%d</PartNumber><ETag>&quot;%s&quot;</ETag></Part>", i + 1, b->parts[i].etag);
    strcat(body, "</ListPartsResult>");
    return stub_answer(b->uploading ? 200 : 404, "", body, size_bytes);
}

static void clear_parts(bucket *b)
{
    for (int i = 0; i < MAX_PARTS; i++) {
        free(b->parts[i].bytes);
        b->parts[i] = (object){0};
    }
    b->uploading = false;
}

static char *complete(bucket *b, const stub_request *request, const char *key, size_t *size_bytes)
{
    size_t total = 0;
    char *all = NULL;
    if (b->complete_errors > 0) {
        b->complete_errors--;
        return error(200, "InternalError", size_bytes);
    }
    if (!b->ignores_conditions_on_parts && !condition_holds(b, request, find(b, key)))
        return error(412, "PreconditionFailed", size_bytes);
    if (!b->uploading)
        return error(404, "NoSuchUpload", size_bytes);
    for (int i = 0; i < MAX_PARTS && b->parts[i].bytes; i++) {
        all = realloc(all, total + b->parts[i].size_bytes);
        memcpy(all + total, b->parts[i].bytes, b->parts[i].size_bytes);
        total += b->parts[i].size_bytes;
    }
    store_object(b, key, b->upload_lines, all, total);
    free(all);
    clear_parts(b);
    if (b->lose_completions > 0) {
        b->lose_completions--;
        return NULL;
    }
    return stub_answer(200, "", "<CompleteMultipartUploadResult><ETag></ETag></CompleteMultipartUploadResult>",
                       size_bytes);
}

static char *put_part(bucket *b, const stub_request *request, const char *key, size_t *size_bytes)
{
    int number = atoi(strstr(request->target, "partNumber=") + strlen("partNumber="));
    char line[128];
    unsigned char md5[EVP_MAX_MD_SIZE], text[64];
    b->part_puts++;
    if (number == b->fail_part) { /* once the others are there */
        bool all = true;
        for (int i = 0; i < number - 1; i++)
            all = all && b->parts[i].bytes;
        return error(all ? 403 : 503, all ? "AccessDenied" : "SlowDown", size_bytes);
    }
    assert_in_range(number, 1, MAX_PARTS);
    EVP_Digest(request->body, request->body_bytes, md5, NULL, EVP_md5(), NULL);
    EVP_EncodeBlock(text, md5, 16);
    if (strcmp((char *)text, stub_header(request, "Content-MD5")) != 0)
        return error(400, "BadDigest", size_bytes);
    fill(b, &b->parts[number - 1], key, "", request->body, request->body_bytes);
    snprintf(line, sizeof line, "ETag: \"%s\"\r\n", b->parts[number - 1].etag);
    return stub_answer(200, line, "", size_bytes);
}

static char *answer(void *context, const stub_request *request, size_t *size_bytes, bool *close)
{
    (void)close;
    bucket *b = context;
    char key[256];
    bool get = *request->method == 'G', put = strcmp(request->method, "PUT") == 0;
    if (strstr(request->target, "/latest/api/token")) {
        b->tokens_asked++;
        return stub_answer(b->no_metadata ? 404 : 200, "", "metadata-token", size_bytes);
    }
    if (strstr(request->target, "/security-credentials/role")) {
        char keys[256], until[64];
        fth_clock_format_utc(b->keys_last_s > 0 ? fth_clock_wall_seconds() + b->keys_last_s : 4102444800.0, until,
                             sizeof until);
        snprintf(keys, sizeof keys,
                 "{\"AccessKeyId\":\"K\",\"SecretAccessKey\":\"S\",\"Token\":\"fresh\",\"Expiration\":\"%s\"}", until);
        return stub_answer(200, "", keys, size_bytes);
    }
    if (strstr(request->target, "/security-credentials/"))
        return stub_answer(200, "", "role\n", size_bytes);
    b->requests++;
    snprintf(b->last_headers, sizeof b->last_headers, "%s", request->headers);
    char *refused = refuse(b, request, size_bytes);
    if (refused)
        return refused;
    snprintf(key, sizeof key, "%.*s", (int)strcspn(request->target, "?"), request->target);
    if (strstr(request->target, "uploads=") && get)
        return stub_answer(200, "", "<ListMultipartUploadsResult></ListMultipartUploadsResult>", size_bytes);
    if (strstr(request->target, "uploads=")) {
        copy_meta(request, b->upload_lines, sizeof b->upload_lines);
        clear_parts(b);
        b->uploading = true;
        return stub_answer(200, "", "<R><UploadId>u1</UploadId></R>", size_bytes);
    }
    if (strstr(request->target, "uploadId=")) {
        if (get)
            return list_parts(b, size_bytes);
        if (put)
            return put_part(b, request, key, size_bytes);
        if (*request->method == 'P')
            return complete(b, request, key, size_bytes);
        b->aborts++;
        clear_parts(b);
        return stub_answer(204, "", "", size_bytes);
    }
    if (strstr(request->target, "list-type=2") && b->lists_for_ever)
        return stub_answer(200, "",
                           "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t"
                           "</NextContinuationToken></ListBucketResult>",
                           size_bytes);
    if (strstr(request->target, "list-type=2"))
        return stub_answer(200, "", "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
                           size_bytes);
    object *o = find(b, key);
    if (put)
        return put_object(b, request, key, size_bytes);
    if (*request->method == 'D') {
        if (o) {
            free(o->bytes);
            *o = (object){0};
        }
        return stub_answer(204, "", "", size_bytes);
    }
    if (!o)
        return error(404, "NoSuchKey", size_bytes);
    if (!condition_holds(b, request, o))
        return error(412, "PreconditionFailed", size_bytes);
    return give_object(b, request, o, size_bytes);
}

/* ---- fixture ---- */

static int start(void **state)
{
    bucket *b = calloc(1, sizeof *b);
    char endpoint[64];
    b->generations = 1000;
    stub_start(&b->server, answer, b);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", b->server.port);
    setenv("AWS_ENDPOINT_URL", endpoint, 1);
    setenv("FARTHING_GS_ENDPOINT", endpoint, 1);
    setenv("FARTHING_AWS_METADATA", endpoint, 1);
    setenv("AWS_ACCESS_KEY_ID", "key", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    setenv("AWS_REGION", "us-east-1", 1);
    unsetenv("AWS_SESSION_TOKEN");
    unsetenv("AWS_PROFILE");
    if (test_make_folder(state) != 0)
        return -1;
    setenv("XDG_CACHE_HOME", test_folder, 1);
    *state = b;
    return 0;
}

static int stop(void **state)
{
    bucket *b = *state;
    stub_stop(&b->server);
    clear_parts(b);
    for (int i = 0; i < MAX_OBJECTS; i++)
        free(b->objects[i].bytes);
    free(b);
    return test_remove_folder(state);
}

static fth_store *open_store(const char *url, double deadline_s)
{
    fth_store *store = NULL;
    fth_store_options options = {.deadline_s = deadline_s};
    assert_int_equal(fth_store_open(url, &options, &store), FTH_OK);
    return store;
}

static fth_status put_if_absent(fth_store *store, const char *key, const char *text, bool *lost)
{
    fth_store_put_options options = {.condition = FTH_STORE_IF_ABSENT};
    return fth_store_put(store, key, text, strlen(text), &options, lost, NULL);
}

/* ---- tests ---- */

static void busy_servers_are_asked_again(void **state)
{
    bucket *b = *state;
    fth_store *store = open_store("s3://bucket/p", 30);
    char *bytes = NULL;
    size_t size_bytes = 0;
    b->refuse_503 = 2;
    assert_int_equal(fth_store_put(store, "a", "hello", 5, NULL, NULL, NULL), FTH_OK);
    b->refuse_503 = 1;
    assert_int_equal(fth_store_get(store, "a", 100, &bytes, &size_bytes, NULL), FTH_OK);
    assert_string_equal(bytes, "hello");
    free(bytes);
    fth_store_free(store);

    store = open_store("s3://bucket/p", 0.5); /* and given up when the time is over */
    b->refuse_503 = 1000000;
    assert_int_equal(fth_store_put(store, "a", "hello", 5, NULL, NULL, NULL), FTH_IO);
    assert_message_has("503");
    fth_store_free(store);
}

static void an_own_write_is_recognised(void **state)
{
    bucket *b = *state;
    fth_store *store = open_store("s3://bucket", 30);
    fth_store_version version, again;
    bool lost = true;
    assert_int_equal(fth_store_check_conditions(store), FTH_OK);
    b->lose_answers = 1;
    b->puts = 0;
    assert_int_equal(put_if_absent(store, "lease", "mine", &lost), FTH_OK);
    assert_int_equal(b->puts, 2); /* the second was refused because of the first */
    assert_false(lost);
    assert_int_equal(put_if_absent(store, "lease", "mine", &lost), FTH_OK); /* the same bytes, but another put */
    assert_true(lost);

    fth_store_put_options options = {.condition = FTH_STORE_IF_MATCH};
    fth_store_object entry;
    bool found = false;
    assert_int_equal(fth_store_stat(store, "lease", &entry, &found), FTH_OK);
    assert_true(found);
    options.match = entry.version;
    fth_store_object_release(&entry);
    b->lose_answers = 1;
    assert_int_equal(fth_store_put(store, "lease", "next", 4, &options, &lost, &version), FTH_OK);
    assert_false(lost);
    assert_int_equal(fth_store_put(store, "lease", "late", 4, &options, &lost, &again), FTH_OK);
    assert_true(lost);
    assert_int_equal(fth_store_stat(store, "lease", &entry, &found), FTH_OK);
    assert_string_equal(entry.version.text, version.text);
    fth_store_object_release(&entry);
    fth_store_free(store);
}

static void conditions_are_probed(void **state)
{
    bucket *b = *state;
    bool lost = false;
    fth_store *store = open_store("s3://bucket", 10);
    b->ignores_conditions = true;
    assert_int_equal(put_if_absent(store, "a", "x", &lost), FTH_UNSUPPORTED);
    assert_message_has("If-None-Match");
    assert_null(find(b, "/bucket/a")); /* nothing was written but the probe, and that is gone */
    int requests = b->requests;
    assert_int_equal(fth_store_check_conditions(store), FTH_UNSUPPORTED);
    assert_int_equal(b->requests, requests);                                       /* asked once */
    assert_int_equal(fth_store_put(store, "a", "x", 1, NULL, NULL, NULL), FTH_OK); /* others go on */
    fth_store_free(store);

    b->ignores_conditions = false;
    b->answers_304 = true; /* as old MinIO did */
    store = open_store("s3://bucket", 10);
    assert_int_equal(put_if_absent(store, "a", "y", &lost), FTH_OK);
    assert_true(lost);
    fth_store_free(store);

    b->answers_304 = false;
    b->bare_etags = true; /* as Ceph does */
    store = open_store("s3://bucket", 10);
    fth_store_put_options options = {.condition = FTH_STORE_IF_MATCH};
    assert_int_equal(fth_store_put(store, "a", "z", 1, NULL, NULL, &options.match), FTH_OK);
    assert_int_equal(fth_store_put(store, "a", "w", 1, &options, &lost, NULL), FTH_OK);
    assert_false(lost);
    assert_int_equal(fth_store_put(store, "a", "v", 1, &options, &lost, NULL), FTH_OK);
    assert_true(lost);
    for (int i = 0; i < MAX_OBJECTS; i++)
        assert_true(!b->objects[i].bytes || !strstr(b->objects[i].key, "probe"));
    fth_store_free(store);
}

static void googles_conditions_are_generations(void **state)
{
    bucket *b = *state;
    bool lost = false;
    fth_store *store = open_store("gs://bucket", 10);
    fth_store_put_options options = {.condition = FTH_STORE_IF_MATCH};
    assert_int_equal(put_if_absent(store, "a", "x", &lost), FTH_OK);
    assert_false(lost);
    stub_request seen = {0};
    snprintf(seen.headers, sizeof seen.headers, "%s", b->last_headers);
    assert_string_equal(stub_header(&seen, "x-goog-if-generation-match"), "0");
    assert_non_null(strstr(stub_header(&seen, "Authorization"), "GOOG4-HMAC-SHA256"));
    assert_int_equal(put_if_absent(store, "a", "x", &lost), FTH_OK);
    assert_true(lost);
    assert_int_equal(fth_store_put(store, "a", "y", 1, NULL, NULL, &options.match), FTH_OK);
    assert_int_equal(fth_store_put(store, "a", "z", 1, &options, &lost, NULL), FTH_OK);
    assert_false(lost);
    assert_int_equal(fth_store_put(store, "a", "z", 1, &options, &lost, NULL), FTH_OK);
    assert_true(lost);
    fth_store_free(store);
}

static void clocks_and_regions_are_mended(void **state)
{
    bucket *b = *state;
    fth_store *store = open_store("s3://bucket", 10);
    b->clock_ahead_s = -4 * 3600;
    assert_int_equal(fth_store_put(store, "a", "x", 1, NULL, NULL, NULL), FTH_OK);
    int requests = b->requests;
    assert_int_equal(fth_store_put(store, "a", "x", 1, NULL, NULL, NULL), FTH_OK);
    assert_int_equal(b->requests, requests + 1); /* the lesson was learnt */
    b->region = "eu-west-7";
    assert_int_equal(fth_store_put(store, "a", "x", 1, NULL, NULL, NULL), FTH_OK);
    requests = b->requests;
    assert_int_equal(fth_store_put(store, "a", "x", 1, NULL, NULL, NULL), FTH_OK);
    assert_int_equal(b->requests, requests + 1);
    fth_store_free(store);
}

static void expired_keys_are_renewed(void **state)
{
    bucket *b = *state;
    setenv("AWS_SESSION_TOKEN", "old", 1);
    fth_store *store = open_store("s3://bucket", 10);
    b->token = "fresh";
    assert_int_equal(fth_store_put(store, "a", "x", 1, NULL, NULL, NULL), FTH_INVALID);
    assert_message_has("expired");
    assert_null(strstr(fth_error_message(), "secret"));
    fth_store_free(store);
    unsetenv("AWS_SESSION_TOKEN");
    unsetenv("AWS_ACCESS_KEY_ID"); /* now from the instance's role, whose keys have that token */
    store = open_store("s3://bucket", 10);
    assert_int_equal(fth_store_put(store, "a", "x", 1, NULL, NULL, NULL), FTH_OK);
    b->token = "other"; /* renewed, and still refused: told, not repeated for ever */
    assert_int_equal(fth_store_put(store, "a", "x", 1, NULL, NULL, NULL), FTH_INVALID);
    assert_message_has("role");
    fth_store_free(store);

    setenv("FARTHING_AWS_METADATA", "off", 1);
    assert_int_equal(fth_store_open("s3://bucket", NULL, &store), FTH_INVALID);
    assert_message_has("AWS_ACCESS_KEY_ID");
}

static void a_metadata_service_may_be_away_for_a_while(void **state)
{
    bucket *b = *state;
    bool lost = false;
    unsetenv("AWS_ACCESS_KEY_ID");
    b->keys_last_s = 100; /* soon to be renewed, but good for now */
    fth_store *store = open_store("s3://bucket", 10);
    b->no_metadata = true;
    int asked = b->tokens_asked;
    for (int i = 0; i < 5; i++)
        assert_int_equal(fth_store_put(store, "a", "x", 1, NULL, NULL, NULL), FTH_OK);
    assert_int_equal(b->tokens_asked, asked + 1); /* not once for each request */
    fth_store_free(store);

    b->no_metadata = false;
    b->keys_last_s = 1e-3; /* gone at once */
    store = open_store("s3://bucket", 10);
    b->no_metadata = true;
    /* A failure that passes, not a server that cannot do conditions. */
    assert_int_equal(put_if_absent(store, "a", "x", &lost), FTH_IO);
    assert_message_has("renewed");
    b->no_metadata = false;
    b->keys_last_s = 0;
    assert_int_equal(put_if_absent(store, "b", "x", &lost), FTH_OK);
    fth_store_free(store);
}

/* FTH_PEER_LOST would say that another machine has the run. */
static void a_server_out_of_reach_is_a_failure_of_the_store(void **state)
{
    (void)state;
    char *bytes = NULL;
    size_t size_bytes = 0;
    fth_store *store = NULL;
    fth_store_options options = {.s3_endpoint = "http://127.0.0.1:1", .deadline_s = 0.5};
    assert_int_equal(fth_store_open("s3://bucket", &options, &store), FTH_OK);
    assert_int_equal(fth_store_get(store, "a", 100, &bytes, &size_bytes, NULL), FTH_IO);
    assert_message_has("127.0.0.1:1");
    assert_int_equal(fth_store_put(store, "a", "x", 1, NULL, NULL, NULL), FTH_IO);
    fth_store_free(store);
}

static bool visit_none(void *context, const fth_store_object *found)
{
    (void)context, (void)found;
    return true;
}

static void lists_come_to_an_end(void **state)
{
    bucket *b = *state;
    fth_store *store = open_store("s3://bucket", 10);
    b->lists_for_ever = true;
    assert_int_equal(fth_store_list(store, "", visit_none, NULL), FTH_CORRUPT);
    assert_message_has("same page");
    fth_store_free(store);
}

static void keys_in_an_address_are_not_told(void **state)
{
    (void)state;
    fth_store *store = NULL;
    assert_int_equal(fth_store_open("s3://AKID:hidden/more@bucket/run", NULL, &store), FTH_INVALID);
    assert_null(strstr(fth_error_message(), "hidden"));
    assert_int_equal(fth_store_open("s3://AKID:hidden@bucket/run", NULL, &store), FTH_INVALID);
    assert_null(strstr(fth_error_message(), "hidden"));
}

static void changed_bytes_are_noticed(void **state)
{
    bucket *b = *state;
    fth_store *store = open_store("s3://bucket", 2);
    char *bytes = NULL;
    size_t size_bytes;
    assert_int_equal(fth_store_put(store, "a", "hello", 5, NULL, NULL, NULL), FTH_OK);
    b->corrupt_gets = 1;
    assert_int_equal(fth_store_get(store, "a", 100, &bytes, &size_bytes, NULL), FTH_OK);
    assert_string_equal(bytes, "hello");
    free(bytes);
    b->corrupt_gets = 1000000;
    assert_int_equal(fth_store_get(store, "a", 100, &bytes, &size_bytes, NULL), FTH_CORRUPT);
    b->corrupt_gets = 0;
    store_object(b, "/bucket/theirs", "", "hello", 5); /* of another tool: only the ETag can tell */
    b->corrupt_gets = 1000000;
    assert_int_equal(fth_store_get(store, "theirs", 100, &bytes, &size_bytes, NULL), FTH_CORRUPT);
    fth_store_free(store);
}

static void changed_bytes_of_a_range_that_is_the_whole_are_noticed(void **state)
{
    bucket *b = *state;
    /* By the ETag, also of objects that are encrypted with S3's own keys; and by Google's MD5,
     * which is of what is stored. */
    static const struct {
        const char *url, *lines;
        bool noticed;
    } cases[] = {
        {"s3://bucket", "", true},
        {"s3://bucket", "x-amz-server-side-encryption: AES256\r\n", true},
        {"s3://bucket", "x-amz-server-side-encryption: aws:kms\r\n", false},
        {"gs://bucket", "x-goog-hash: crc32c=mnG7TA==\r\nx-goog-hash: md5=XUFAKrxLKna5cZ2REBfFkg==\r\n", true},
        {"gs://bucket", "x-goog-hash: crc32c=mnG7TA==,md5=XUFAKrxLKna5cZ2REBfFkg==\r\n", true},
        {"gs://bucket", "x-goog-hash: md5=XUFAKrxLKna5cZ2REBfFkg==\r\nx-goog-stored-content-encoding: gzip\r\n", false},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_store *store = open_store(cases[i].url, 2);
        char bytes[6] = "", part[4] = "";
        store_object(b, "/bucket/a", cases[i].lines, "hello", 5);
        b->corrupt_gets = 1;
        assert_int_equal(fth_store_get_range(store, "a", 0, bytes, 5, NULL), FTH_OK);
        if ((strcmp(bytes, "hello") == 0) != cases[i].noticed)
            fail_msg("%s %s: %s", cases[i].url, cases[i].lines, bytes);
        b->corrupt_gets = 0;
        assert_int_equal(fth_store_get_range(store, "a", 1, part, 3, NULL), FTH_OK); /* no checksum is of it */
        assert_string_equal(part, "ell");
        fth_store_free(store);
    }
}

/* ---- large objects ---- */

enum { LARGE_BYTES = 33 << 20 }; /* five parts */

static char *large_bytes(void)
{
    char *bytes = malloc(LARGE_BYTES);
    for (size_t i = 0; i < LARGE_BYTES; i++)
        bytes[i] = (char)(i * 11400714819323198485u >> 40);
    return bytes;
}

static fth_status at(void *context, uint64_t offset, uint64_t size_bytes, const void **bytes)
{
    (void)size_bytes;
    *bytes = (char *)context + offset;
    return FTH_OK;
}

static void large_objects_go_in_parts(void **state)
{
    bucket *b = *state;
    fth_store *store = open_store("s3://bucket", 20);
    char path[TEST_MAX_PATH], sha256[65], *bytes = large_bytes(), *back = NULL;
    size_t size_bytes;
    fth_store_version version;
    fth_store_source source = {.context = bytes, .size_bytes = LARGE_BYTES, .at = at};
    b->complete_errors = 1;
    assert_int_equal(fth_store_put_source(store, "big", &source, NULL, &version), FTH_OK);
    object *o = find(b, "/bucket/big");
    assert_non_null(o);
    assert_int_equal(o->size_bytes, LARGE_BYTES);
    assert_memory_equal(o->bytes, bytes, LARGE_BYTES);
    assert_string_equal(version.text, o->etag);
    assert_int_equal(b->part_puts, 5);

    test_path(path, "back");
    b->corrupt_gets = 1; /* noticed by the checksum over the parts, and fetched again */
    assert_int_equal(fth_store_get_file(store, "big", path, sha256), FTH_OK);
    assert_int_equal(fth_file_read_all(path, LARGE_BYTES + 1, &back, &size_bytes), FTH_OK);
    assert_int_equal(size_bytes, LARGE_BYTES);
    assert_memory_equal(back, bytes, LARGE_BYTES);
    free(back);

    b->fail_part = 4; /* what cannot be finished is cleared away */
    assert_int_equal(fth_store_put_source(store, "big2", &source, NULL, &version), FTH_INVALID);
    assert_message_has("access denied");
    assert_int_equal(b->aborts, 1);
    assert_null(find(b, "/bucket/big2"));
    free(bytes);
    fth_store_free(store);
}

static void files_go_on_where_they_stopped(void **state)
{
    bucket *b = *state;
    fth_store *store = open_store("s3://bucket", 20);
    char path[TEST_MAX_PATH], *bytes = large_bytes();
    test_path(path, "file");
    assert_int_equal(fth_file_write_all(path, bytes, LARGE_BYTES), FTH_OK);
    b->fail_part = 5;
    assert_int_equal(fth_store_put_file(store, "f", path, NULL, NULL), FTH_INVALID);
    assert_int_equal(b->aborts, 0);
    b->fail_part = 0;
    b->part_puts = 0;
    assert_int_equal(fth_store_put_file(store, "f", path, NULL, NULL), FTH_OK);
    assert_in_range(b->part_puts, 1, 4); /* of 5: the one that failed, and those whose answer the failure overtook */
    assert_memory_equal(find(b, "/bucket/f")->bytes, bytes, LARGE_BYTES);

    b->fail_part = 5; /* a file that has changed begins anew, and the old parts go */
    assert_int_equal(fth_store_put_file(store, "f", path, NULL, NULL), FTH_INVALID);
    bytes[7] ^= 1;
    assert_int_equal(fth_file_write_all(path, bytes, LARGE_BYTES), FTH_OK);
    b->fail_part = 0;
    b->part_puts = 0;
    assert_int_equal(fth_store_put_file(store, "f", path, NULL, NULL), FTH_OK);
    assert_int_equal(b->aborts, 1);
    assert_int_equal(b->part_puts, 5);
    assert_memory_equal(find(b, "/bucket/f")->bytes, bytes, LARGE_BYTES);
    free(bytes);
    fth_store_free(store);
}

static bool cancel(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)context;
    return done_bytes < total_bytes / 2;
}

static void transfers_can_be_cancelled(void **state)
{
    bucket *b = *state;
    fth_store *store = open_store("s3://bucket", 20);
    char *bytes = large_bytes();
    fth_store_progress progress = {.moved = cancel};
    fth_store_put_options options = {.progress = &progress};
    fth_store_source source = {.context = bytes, .size_bytes = LARGE_BYTES, .at = at};
    assert_int_equal(fth_store_put_source(store, "big", &source, &options, NULL), FTH_INTERRUPTED);
    assert_true(b->aborts > 0);
    assert_null(find(b, "/bucket/big"));
    free(bytes);
    fth_store_free(store);
}

static fth_status never_at(void *context, uint64_t offset, uint64_t size_bytes, const void **bytes)
{
    (void)context, (void)offset, (void)size_bytes, (void)bytes;
    return fth_fail(FTH_IO, "nothing should be read");
}

static void large_objects_that_must_be_new(void **state)
{
    bucket *b = *state;
    fth_store *store = open_store("s3://bucket", 20);
    char *bytes = large_bytes();
    fth_store_source source = {.context = bytes, .size_bytes = LARGE_BYTES, .at = at};
    fth_store_source vast = {.size_bytes = 6ull << 30, .at = never_at};
    fth_store_put_options options = {.condition = FTH_STORE_IF_ABSENT};

    assert_int_equal(fth_store_put_source(store, "new", &source, &options, NULL), FTH_OK);
    assert_int_equal(find(b, "/bucket/new")->size_bytes, LARGE_BYTES);
    assert_int_equal(b->part_puts, 1 + 5); /* the trial's and its own */
    assert_int_equal(fth_store_put_source(store, "new", &source, &options, NULL), FTH_INVALID);
    assert_message_has("already");
    assert_false(b->uploading); /* aborted */
    b->lose_completions = 1;
    assert_int_equal(fth_store_put_source(store, "own", &source, &options, NULL), FTH_OK);
    options.condition = FTH_STORE_IF_MATCH;
    snprintf(options.match.text, sizeof options.match.text, "%s", find(b, "/bucket/own")->etag);
    assert_int_equal(fth_store_put_source(store, "own", &vast, &options, NULL), FTH_UNSUPPORTED);
    assert_message_has("5 GiB");
    fth_store_free(store);

    b->ignores_conditions_on_parts = true; /* then a single put is sure, as far as it goes */
    store = open_store("s3://bucket", 20);
    options.condition = FTH_STORE_IF_ABSENT;
    b->part_puts = 0;
    assert_int_equal(fth_store_put_source(store, "new", &source, &options, NULL), FTH_INVALID);
    assert_int_equal(fth_store_put_source(store, "newer", &source, &options, NULL), FTH_OK);
    assert_int_equal(b->part_puts, 1); /* the trial's */
    assert_int_equal(fth_store_put_source(store, "vast", &vast, &options, NULL), FTH_UNSUPPORTED);
    assert_message_has("If-None-Match");
    fth_store_free(store);
    free(bytes);
    for (int i = 0; i < MAX_OBJECTS; i++)
        assert_null(b->objects[i].bytes ? strstr(b->objects[i].key, ".farthing") : NULL);
}

int main(void)
{
    fth_log_set_level(FTH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(busy_servers_are_asked_again, start, stop),
        cmocka_unit_test_setup_teardown(an_own_write_is_recognised, start, stop),
        cmocka_unit_test_setup_teardown(conditions_are_probed, start, stop),
        cmocka_unit_test_setup_teardown(googles_conditions_are_generations, start, stop),
        cmocka_unit_test_setup_teardown(clocks_and_regions_are_mended, start, stop),
        cmocka_unit_test_setup_teardown(expired_keys_are_renewed, start, stop),
        cmocka_unit_test_setup_teardown(lists_come_to_an_end, start, stop),
        cmocka_unit_test_setup_teardown(keys_in_an_address_are_not_told, start, stop),
        cmocka_unit_test_setup_teardown(a_metadata_service_may_be_away_for_a_while, start, stop),
        cmocka_unit_test_setup_teardown(a_server_out_of_reach_is_a_failure_of_the_store, start, stop),
        cmocka_unit_test_setup_teardown(changed_bytes_are_noticed, start, stop),
        cmocka_unit_test_setup_teardown(changed_bytes_of_a_range_that_is_the_whole_are_noticed, start, stop),
        cmocka_unit_test_setup_teardown(large_objects_go_in_parts, start, stop),
        cmocka_unit_test_setup_teardown(files_go_on_where_they_stopped, start, stop),
        cmocka_unit_test_setup_teardown(transfers_can_be_cancelled, start, stop),
        cmocka_unit_test_setup_teardown(large_objects_that_must_be_new, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
