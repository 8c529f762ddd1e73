/* See signature.h. Both sides build the same text and take its HMAC; comparisons take the same time
 * wherever the difference is, and an unknown key costs as much as a known one. */
#include "http/signature.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "http/nonces.h"

enum {
    MAX_KEYS = 4096,
    MAX_KEY_TEXT = 1 << 20,
    MIN_SECRET = 16,
    MIN_NONCE = 16,
    MAX_NONCE = 64,
    MAX_SIGNED_TEXT = 9000
};
static const double DEFAULT_WINDOW_S = 60, ROUNDING_S = 1; /* the latter of whole seconds */
static const uint64_t DEFAULT_REMEMBERED = 1 << 20;

/* ---- the signature ---- */

/* False if the text is too long to be one of ours. */
static bool sign_text(const char *secret, const char *method, const char *target, const char *body_sha256,
                      const char *time, const char *nonce, char hex[65])
{
    char text[MAX_SIGNED_TEXT];
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    int length = snprintf(text, sizeof text, "FTH1\n%s\n%s\n%s\n%s\n%s", method, target, body_sha256, time, nonce);
    if (length < 0 || length >= (int)sizeof text)
        return false;
    if (!HMAC(EVP_sha256(), secret, (int)strlen(secret), (const unsigned char *)text, (size_t)length, digest, &size))
        return false;
    fth_hex_encode(digest, SHA256_DIGEST_LENGTH, hex);
    return true;
}

static bool is_word(const char *text, size_t least, size_t most)
{
    size_t length = strlen(text);
    if (length < least || length > most)
        return false;
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && !strchr("-_.+/=", *text))
            return false;
    return true;
}

fth_status fth_signer_from_environment(fth_signer *signer, bool *found)
{
    const char *access = getenv("FARTHING_ACCESS_KEY"), *secret = getenv("FARTHING_SECRET_KEY");
    *signer = (fth_signer){0};
    *found = access && *access && secret && *secret;
    if (!*found)
        return FTH_OK;
    if (!is_word(access, 1, FTH_MAX_ACCESS_KEY) || !is_word(secret, MIN_SECRET, FTH_MAX_SECRET))
        return fth_fail(FTH_INVALID, "FARTHING_ACCESS_KEY and FARTHING_SECRET_KEY are not a key as `farthing keys` "
                                     "makes them");
    snprintf(signer->access, sizeof signer->access, "%s", access);
    snprintf(signer->secret, sizeof signer->secret, "%s", secret);
    return FTH_OK;
}

fth_status fth_signer_sign(const fth_signer *signer, const char *method, const char *target, const void *body,
                           uint64_t body_bytes, char authorization[FTH_MAX_AUTHORIZATION])
{
    fth_status status = FTH_OK;
    unsigned char random[16];
    char nonce[33], body_sha256[65], signature[65], time[24];

    FTH_REQUIRE(RAND_bytes(random, sizeof random) == 1, FTH_IO, "no random numbers to sign with");
    fth_hex_encode(random, sizeof random, nonce);
    fth_hex_sha256(body, body_bytes, body_sha256);
    snprintf(time, sizeof time, "%" PRId64, (int64_t)fth_clock_wall_seconds());
    FTH_REQUIRE(sign_text(signer->secret, method, target, body_sha256, time, nonce, signature), FTH_INVALID,
                "%s %.64s... is too long to be signed", method, target);
    snprintf(authorization, FTH_MAX_AUTHORIZATION, "FTH1 key=%s, time=%s, nonce=%s, body=%s, signature=%s",
             signer->access, time, nonce, body_sha256, signature);

out:
    return status;
}

/* ---- keys ---- */

typedef struct key {
    char access[FTH_MAX_ACCESS_KEY + 1], secret[FTH_MAX_SECRET + 1];
    char data[FTH_MAX_KEY_DATA + 1];
    fth_role role;
} key;

struct fth_keys {
    key *keys;
    size_t count, capacity;
    double window_s;
    double advanced_s; /* how far the clock is ahead, in tests */
    fth_nonces *nonces;
};

/* How long a signature can be good, by a client's clock that is ahead: so long its nonce is
 * remembered. */
static double valid_for(const fth_keys *keys)
{
    return 2 * (keys->window_s + ROUNDING_S);
}

/* Names that a service gives data sets: letters, digits and "-_." . */
static bool is_data_list(const char *text)
{
    for (size_t length; *text; text += length + (text[length] == ',')) {
        length = strcspn(text, ",");
        if (length == 0 || (text[length] == ',' && !text[length + 1]))
            return false;
        for (size_t i = 0; i < length; i++)
            if (!isalnum((unsigned char)text[i]) && !strchr("-_.", text[i]))
                return false;
    }
    return true;
}

static fth_status parse_line(const char *line, const char *origin, int number, fth_keys *keys)
{
    fth_status status = FTH_OK;
    key parsed = {0};
    char role[8] = "", data[5 + FTH_MAX_KEY_DATA + 1] = "", rest[2];

    while (isspace((unsigned char)*line))
        line++;
    if (!*line || *line == '#')
        return FTH_OK;
    int words = sscanf(line, "%64s %128s %7s %517s %1s", parsed.access, parsed.secret, role, data, rest);
    FTH_REQUIRE((words == 3 || words == 4) && fth_role_find(role, &parsed.role), FTH_INVALID,
                "%s line %d: expected are an access key, a secret and a role (read, train or admin)", origin, number);
    FTH_REQUIRE(words == 3 || (strncmp(data, "data=", 5) == 0 && data[5] && is_data_list(data + 5)), FTH_INVALID,
                "%s line %d: expected data=NAME[,NAME...] after the role", origin, number);
    memcpy(parsed.data, words == 4 ? data + 5 : "", words == 4 ? strlen(data + 5) + 1 : 1);
    FTH_REQUIRE(is_word(parsed.access, 1, FTH_MAX_ACCESS_KEY) && is_word(parsed.secret, MIN_SECRET, FTH_MAX_SECRET),
                FTH_INVALID,
                "%s line %d: keys are of letters, digits and -_.+/=, secrets of %d to %d of them; "
                "`farthing keys` makes one",
                origin, number, (int)MIN_SECRET, (int)FTH_MAX_SECRET);
    for (size_t i = 0; i < keys->count; i++)
        FTH_REQUIRE(strcmp(keys->keys[i].access, parsed.access) != 0, FTH_INVALID,
                    "%s line %d: this access key is there twice", origin, number);
    FTH_REQUIRE(keys->count < MAX_KEYS, FTH_INVALID, "%s has more than %d keys", origin, (int)MAX_KEYS);
    keys->keys[keys->count++] = parsed;

out:
    fth_wipe(&parsed, sizeof parsed);
    return status;
}

fth_status fth_keys_parse(const char *text, const char *origin, fth_keys **result)
{
    fth_status status = FTH_OK;
    fth_keys *keys = NULL;
    char *copy = strdup(text), *rest = copy;
    int number = 0;

    *result = NULL;
    FTH_REQUIRE(copy, FTH_NO_MEMORY, "no memory for keys");
    FTH_TRY(fth_allocate(1, sizeof *keys, &keys));
    keys->window_s = DEFAULT_WINDOW_S;
    FTH_TRY(fth_nonces_create(valid_for(keys), DEFAULT_REMEMBERED, &keys->nonces));
    /* Growing the list would leave secrets behind in freed memory. */
    keys->capacity = 1;
    for (const char *at = text; *at && keys->capacity < MAX_KEYS; at++)
        keys->capacity += *at == '\n' || *at == ';';
    FTH_TRY(fth_allocate(keys->capacity, sizeof *keys->keys, &keys->keys));
    for (char *line = strsep(&rest, "\n;"); line; line = strsep(&rest, "\n;"))
        FTH_TRY(parse_line(line, origin, ++number, keys));
    FTH_REQUIRE(keys->count > 0, FTH_INVALID, "%s has no keys; `farthing keys` makes one", origin);
    *result = keys;
    keys = NULL;

out:
    fth_keys_free(keys);
    if (copy)
        fth_wipe(copy, strlen(text)); /* lines end in NULs */
    free(copy);
    return status;
}

fth_status fth_keys_read(const char *path, char **text)
{
    fth_status status = FTH_OK;
    fth_signer signer;
    bool found = false;
    size_t size = 0;
    struct stat facts;

    *text = NULL;
    if (path && *path) {
        FTH_REQUIRE(stat(path, &facts) == 0, FTH_INVALID, "keys in %s: %s", path, strerror(errno));
        FTH_REQUIRE((facts.st_mode & 077) == 0, FTH_INVALID, "keys in %s can be read by others; type: chmod 600 %s",
                    path, path);
        return fth_file_read_all(path, MAX_KEY_TEXT, text, &size);
    }
    const char *keys = getenv("FARTHING_KEYS");
    if (keys && *keys) {
        *text = fth_format("%s", keys);
        return FTH_OK;
    }
    FTH_TRY(fth_signer_from_environment(&signer, &found));
    if (found)
        *text = fth_format("%s %s admin", signer.access, signer.secret);

out:
    fth_wipe(&signer, sizeof signer);
    return status;
}

void fth_keys_free(fth_keys *keys)
{
    if (!keys)
        return;
    if (keys->keys)
        fth_wipe(keys->keys, keys->capacity * sizeof *keys->keys);
    free(keys->keys);
    fth_nonces_free(keys->nonces);
    free(keys);
}

fth_status fth_keys_keep(fth_keys *keys, const char *path)
{
    return fth_nonces_keep(keys->nonces, path);
}

void fth_keys_set_limits(fth_keys *keys, double window_s, uint64_t remembered)
{
    if (window_s > 0)
        keys->window_s = window_s;
    fth_nonces_set_limits(keys->nonces, valid_for(keys), remembered);
}

void fth_keys_advance(fth_keys *keys, double seconds)
{
    keys->advanced_s += seconds;
    fth_nonces_advance(keys->nonces, seconds);
}

fth_status fth_keys_generate(fth_role role, const char *data, char **line)
{
    fth_status status = FTH_OK;
    unsigned char random[10 + 32];
    char access[21], secret[65];

    bool limited = data && *data;
    FTH_REQUIRE(!limited || (strlen(data) <= FTH_MAX_KEY_DATA && is_data_list(data)), FTH_INVALID,
                "\"%s\" is not a list of data sets; expected NAME[,NAME...]", data);
    FTH_REQUIRE(RAND_bytes(random, sizeof random) == 1, FTH_IO, "no random numbers for a key");
    fth_hex_encode(random, 10, access);
    fth_hex_encode(random + 10, 32, secret);
    *line =
        fth_format("%s %s %s%s%s\n", access, secret, fth_role_name(role), limited ? " data=" : "", limited ? data : "");
    fth_wipe(secret, sizeof secret);
    fth_wipe(random, sizeof random);

out:
    return status;
}

/* ---- checking ---- */

const char *fth_signature_result_name(fth_signature_result result)
{
    static const char *const names[] = {"good", "missing", "malformed", "wrong", "old", "future", "replayed", "full"};
    return names[result];
}

typedef struct parts {
    char key[FTH_MAX_ACCESS_KEY + 1], time[20], nonce[MAX_NONCE + 1], body[65], signature[65];
} parts;

/* Takes "name=value" off the front of *text, with what separates it from the next. */
static bool take_part(const char **text, const char *name, char *value, size_t size)
{
    size_t length = strlen(name);
    if (strncmp(*text, name, length) != 0 || (*text)[length] != '=')
        return false;
    *text += length + 1;
    size_t count = strcspn(*text, ", ");
    if (count == 0 || count >= size)
        return false;
    memcpy(value, *text, count);
    value[count] = '\0';
    *text += count;
    *text += strspn(*text, ", ");
    return true;
}

static bool parse_header(const char *text, parts *parsed)
{
    if (strncmp(text, "FTH1 ", 5) != 0)
        return false;
    text += 5;
    return take_part(&text, "key", parsed->key, sizeof parsed->key) &&
           take_part(&text, "time", parsed->time, sizeof parsed->time) &&
           take_part(&text, "nonce", parsed->nonce, sizeof parsed->nonce) &&
           take_part(&text, "body", parsed->body, sizeof parsed->body) &&
           take_part(&text, "signature", parsed->signature, sizeof parsed->signature) && !*text &&
           strspn(parsed->time, "0123456789") == strlen(parsed->time) && is_word(parsed->nonce, MIN_NONCE, MAX_NONCE) &&
           fth_hex_is_valid(parsed->body, 64) && fth_hex_is_valid(parsed->signature, 64);
}

fth_signature_result fth_keys_check(fth_keys *keys, const char *authorization, const char *method, const char *target,
                                    bool once, fth_signed *who)
{
    parts parsed = {0};
    char expected[65] = "";
    const key *found = NULL;

    *who = (fth_signed){0};
    if (!authorization)
        return FTH_SIGNATURE_MISSING;
    if (!parse_header(authorization, &parsed))
        return FTH_SIGNATURE_MALFORMED;
    for (size_t i = 0; i < keys->count; i++)
        if (strcmp(keys->keys[i].access, parsed.key) == 0)
            found = &keys->keys[i];
    bool signed_text = sign_text(found ? found->secret : "no such key", method, target, parsed.body, parsed.time,
                                 parsed.nonce, expected);
    bool same = CRYPTO_memcmp(expected, parsed.signature, 64) == 0;
    if (!found || !signed_text || !same)
        return FTH_SIGNATURE_WRONG;
    double ahead_s = strtod(parsed.time, NULL) - fth_clock_wall_seconds() - keys->advanced_s;
    if (fabs(ahead_s) > keys->window_s + ROUNDING_S) {
        who->ahead_s = ahead_s < 1e15 ? llround(ahead_s) : (int64_t)1e15;
        return ahead_s > 0 ? FTH_SIGNATURE_FUTURE : FTH_SIGNATURE_OLD;
    }
    if (once) {
        fth_nonce_result fresh = fth_nonces_add(keys->nonces, parsed.key, parsed.nonce);
        if (fresh != FTH_NONCE_NEW)
            return fresh == FTH_NONCE_SEEN ? FTH_SIGNATURE_REPLAYED : FTH_SIGNATURE_FULL;
    }
    memcpy(who->access, found->access, sizeof who->access);
    memcpy(who->body_sha256, parsed.body, sizeof who->body_sha256);
    memcpy(who->data, found->data, sizeof who->data);
    who->role = found->role;
    return FTH_SIGNATURE_GOOD;
}

bool fth_signed_body_matches(const fth_signed *who, const void *body, uint64_t body_bytes)
{
    char hex[65];
    fth_hex_sha256(body, body_bytes, hex);
    return CRYPTO_memcmp(hex, who->body_sha256, 64) == 0;
}

bool fth_signed_is_limited(const fth_signed *who)
{
    return who && *who->data;
}

bool fth_signed_may_read(const fth_signed *who, const char *name)
{
    size_t wanted = strlen(name);
    bool may = !*who->data;
    for (const char *text = who->data; *text && !may;) {
        size_t length = strcspn(text, ",");
        may = length == wanted && memcmp(text, name, length) == 0;
        text += length + (text[length] == ',');
    }
    return may;
}
