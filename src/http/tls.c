/* See tls.h. All of it is libcrypto's; the server itself speaks TLS through libmicrohttpd. */
#include "http/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DAYS = 3650, MAX_PEM = 1 << 20 };

static bool add_extension(X509 *certificate, int kind, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, certificate, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, kind, value);
    bool added = extension && X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return added;
}

static bool is_address(const char *host)
{
    return strspn(host, "0123456789.") == strlen(host) || strchr(host, ':');
}

static bool fill_in(X509 *certificate, EVP_PKEY *key, const char *host)
{
    unsigned char serial[16];
    char names[512];
    if (RAND_bytes(serial, sizeof serial) != 1)
        return false;
    serial[0] &= 0x7f;
    BIGNUM *number = BN_bin2bn(serial, sizeof serial, NULL);
    bool good = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));
    BN_free(number);
    snprintf(names, sizeof names, "%s:%s,DNS:localhost,IP:127.0.0.1,IP:::1", is_address(host) ? "IP" : "DNS", host);
    X509_NAME *name = X509_get_subject_name(certificate);
    return good && X509_set_version(certificate, 2) == 1 && X509_gmtime_adj(X509_getm_notBefore(certificate), -3600) &&
           X509_time_adj_ex(X509_getm_notAfter(certificate), DAYS, 0, NULL) && X509_set_pubkey(certificate, key) == 1 &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)"farthing", -1, -1, 0) == 1 &&
           X509_set_issuer_name(certificate, name) == 1 && add_extension(certificate, NID_subject_alt_name, names) &&
           add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE") &&
           add_extension(certificate, NID_ext_key_usage, "serverAuth") && X509_sign(certificate, key, EVP_sha256()) > 0;
}

static char *text_of(BIO *bio)
{
    char *bytes = NULL;
    long size = BIO_get_mem_data(bio, &bytes);
    return size > 0 ? fth_format("%.*s", (int)size, bytes) : NULL;
}

fth_status fth_tls_make_certificate(const char *host, char **certificate_pem, char **key_pem)
{
    fth_status status = FTH_OK;
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    BIO *certificate_bio = BIO_new(BIO_s_mem()), *key_bio = BIO_new(BIO_s_mem());

    *certificate_pem = *key_pem = NULL;
    host = host && *host ? host : "localhost";
    FTH_REQUIRE(strlen(host) < 256 && !strpbrk(host, ",\n"), FTH_INVALID, "a certificate cannot be for this host");
    FTH_REQUIRE(key && certificate && certificate_bio && key_bio && fill_in(certificate, key, host) &&
                    PEM_write_bio_X509(certificate_bio, certificate) == 1 &&
                    PEM_write_bio_PrivateKey(key_bio, key, NULL, NULL, 0, NULL, NULL) == 1,
                FTH_IO, "a certificate for %s could not be made", host);
    *certificate_pem = text_of(certificate_bio);
    *key_pem = text_of(key_bio);

out:
    BIO_free(certificate_bio);
    BIO_free(key_bio);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return status;
}

X509 *fth_tls_read_certificate(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *certificate = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    BIO_free(bio);
    return certificate;
}

fth_status fth_tls_load(const char *certificate_path, const char *key_path, char **certificate_pem, char **key_pem)
{
    fth_status status = FTH_OK;
    X509 *certificate = NULL;
    EVP_PKEY *key = NULL;
    BIO *bio = NULL;
    size_t size = 0;
    struct stat facts;

    *certificate_pem = *key_pem = NULL;
    FTH_TRY(fth_file_read_all(certificate_path, MAX_PEM, certificate_pem, &size));
    FTH_TRY(fth_file_read_all(key_path, MAX_PEM, key_pem, &size));
    if (stat(key_path, &facts) == 0 && (facts.st_mode & 077))
        fth_log_warning("%s can be read by others; type: chmod 600 %s", key_path, key_path);
    certificate = fth_tls_read_certificate(*certificate_pem);
    FTH_REQUIRE(certificate, FTH_INVALID, "%s is not a certificate in PEM", certificate_path);
    bio = BIO_new_mem_buf(*key_pem, -1);
    key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, "") : NULL;
    FTH_REQUIRE(key, FTH_INVALID, "%s is not a key in PEM, or it needs a password", key_path);
    FTH_REQUIRE(X509_check_private_key(certificate, key) == 1, FTH_INVALID, "%s is not the key of %s", key_path,
                certificate_path);

out:
    if (status != FTH_OK) {
        free(*certificate_pem);
        fth_wipe_text(*key_pem);
        *certificate_pem = *key_pem = NULL;
    }
    BIO_free(bio);
    EVP_PKEY_free(key);
    X509_free(certificate);
    return status;
}

/* The key first and for its owner alone from the first moment on; a certificate beside it means
 * both are whole. */
static fth_status write_pair(const char *certificate_path, const char *key_path, const char *certificate_pem,
                             const char *key_pem)
{
    fth_status status = FTH_OK;
    size_t length = strlen(key_pem);
    unlink(key_path);
    int fd = open(key_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FTH_REQUIRE(fd >= 0, FTH_IO, "create %s: %s", key_path, strerror(errno));
    FTH_REQUIRE(write(fd, key_pem, length) == (ssize_t)length && fsync(fd) == 0, FTH_IO, "write %s: %s", key_path,
                strerror(errno));
    FTH_TRY(fth_file_write_all(certificate_path, certificate_pem, strlen(certificate_pem)));

out:
    if (fd >= 0)
        close(fd);
    return status;
}

fth_status fth_tls_load_or_make(const char *folder, const char *host, char **certificate_pem, char **key_pem)
{
    fth_status status = FTH_OK;
    char *certificate_path = fth_path_join(folder, "certificate.pem"), *key_path = fth_path_join(folder, "key.pem");

    *certificate_pem = *key_pem = NULL;
    FTH_REQUIRE(certificate_path && key_path, FTH_NO_MEMORY, "no memory for a path"); /* else a key would be replaced */
    if (!fth_file_exists(certificate_path)) {
        FTH_TRY(fth_folder_create(folder));
        FTH_TRY(fth_tls_make_certificate(host, certificate_pem, key_pem));
        FTH_TRY(write_pair(certificate_path, key_path, *certificate_pem, *key_pem));
    } else {
        FTH_TRY(fth_tls_load(certificate_path, key_path, certificate_pem, key_pem));
    }

out:
    free(certificate_path);
    free(key_path);
    return status;
}

fth_status fth_tls_fingerprint(const char *certificate_pem, char fingerprint[FTH_FINGERPRINT_SIZE])
{
    fth_status status = FTH_OK;
    X509 *certificate = fth_tls_read_certificate(certificate_pem);
    unsigned char *der = NULL, digest[SHA256_DIGEST_LENGTH];
    int size = certificate ? i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &der) : -1;

    FTH_REQUIRE(size > 0, FTH_INVALID, "that is not a certificate in PEM");
    SHA256(der, (size_t)size, digest);
    memcpy(fingerprint, "sha256//", 8);
    EVP_EncodeBlock((unsigned char *)fingerprint + 8, digest, sizeof digest);

out:
    OPENSSL_free(der);
    X509_free(certificate);
    return status;
}

bool fth_tls_is_fingerprint(const char *text)
{
    static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return strncmp(text, "sha256//", 8) == 0 && strspn(text + 8, base64) == 43 && strcmp(text + 51, "=") == 0;
}
