/* Access keys: where they come from, and renewing those that expire.
 *
 * credentials.c           the order in which they are looked for; the keys in use, renewed before
 *                         they expire
 * credentials_file.c      ~/.aws/credentials and ~/.aws/config
 * credentials_service.c   a container's and an instance's role, over HTTP
 *
 * Nothing here is ever logged; messages name the source, not the keys. */
#ifndef FTH_STORE_CREDENTIALS_H
#define FTH_STORE_CREDENTIALS_H

#include "base/base.h"

typedef struct fth_cloud_keys {
    char *access_key, *secret_key;
    char *session_token; /* NULL: none */
    double expires_s;    /* wall seconds; 0: never */
} fth_cloud_keys;

void fth_cloud_keys_release(fth_cloud_keys *keys); /* wipes them */

typedef struct fth_credentials fth_credentials;

/* Looks in the environment, in the profile files, at the container's service and at the instance's,
 * in this order (a profile that is asked for by name goes before the environment). `google`:
 * GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY instead, or the AWS ones of the environment.
 * FTH_INVALID, saying what to do, if there are none. */
fth_status fth_credentials_open(const char *profile, bool google, fth_credentials **credentials);
void fth_credentials_free(fth_credentials *credentials);

/* A copy of the keys in force, renewed first if they are about to expire. Any thread. */
fth_status fth_credentials_get(fth_credentials *credentials, fth_cloud_keys *keys);
/* The server said that they have expired: true if others can be had, which the next _get does. */
bool fth_credentials_renew(fth_credentials *credentials);
/* "the environment (AWS_ACCESS_KEY_ID)", for messages. */
const char *fth_credentials_source(const fth_credentials *credentials);
/* The region and the server (endpoint_url) that the profile names, or NULL. */
const char *fth_credentials_region(const fth_credentials *credentials);
const char *fth_credentials_endpoint(const fth_credentials *credentials);

/* ---- the sources ---- */

/* What a profile says; each NULL where it does not. */
typedef struct fth_profile {
    fth_cloud_keys keys;
    char *region, *endpoint;
} fth_profile;

/* A missing file is fine; a broken one is FTH_INVALID. */
fth_status fth_credentials_read_profile(const char *name, fth_profile *profile);
void fth_profile_release(fth_profile *profile);
/* A value of a section of an INI file's text; NULL: none. free() it. */
char *fth_ini_value(const char *text, const char *section, const char *name);

fth_status fth_credentials_from_container(fth_cloud_keys *keys); /* FTH_UNSUPPORTED: this is no such container */
fth_status
fth_credentials_from_instance(fth_cloud_keys *keys); /* FTH_UNSUPPORTED: no instance, or one without a role */

#endif
