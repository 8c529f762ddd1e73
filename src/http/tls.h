/* Certificates: one made here, and the fingerprint by which clients know a server's key
 * ("pinning"). */
#ifndef FTH_HTTP_TLS_H
#define FTH_HTTP_TLS_H

#include "base/base.h"

enum { FTH_FINGERPRINT_SIZE = 64 }; /* "sha256//" and 44 characters */

/* Makes a key (P-256) and a certificate for it, signed by itself, for `host` (a name or an address;
 * NULL: localhost) and the loopback, good for ten years. PEM; free() both. */
fth_status fth_tls_make_certificate(const char *host, char **certificate_pem, char **key_pem);

/* Reads `folder`/certificate.pem and key.pem; makes them (the key readable by its owner alone)
 * where there are none. */
fth_status fth_tls_load_or_make(const char *folder, const char *host, char **certificate_pem, char **key_pem);

/* Reads a certificate (or chain) and its key; fails if they do not belong together. */
fth_status fth_tls_load(const char *certificate_path, const char *key_path, char **certificate_pem, char **key_pem);

/* "sha256//..." of the certificate's public key, as fth_http_client_options.pinned_key and curl
 * --pinnedpubkey take it. */
fth_status fth_tls_fingerprint(const char *certificate_pem, char fingerprint[FTH_FINGERPRINT_SIZE]);

/* True if the text has that form. curl takes anything else for a file's name, and then says that no
 * key fits. */
bool fth_tls_is_fingerprint(const char *text);

/* The first certificate of the text, or NULL; X509_free() it. */
struct x509_st *fth_tls_read_certificate(const char *pem);

#endif
