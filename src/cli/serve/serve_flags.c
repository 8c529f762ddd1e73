/* What the flags of services have in common; see serve_cli.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/serve/serve_cli.h"
#include "http/signature.h"

fth_status fth_serving_read(const fth_serving_flags *flags, const char *tls_folder, fth_serving_secrets *secrets)
{
    fth_status status = FTH_OK;

    *secrets = (fth_serving_secrets){0};
    FTH_REQUIRE(!*flags->certificate == !*flags->key, FTH_INVALID, "--certificate and --key belong together");
    FTH_REQUIRE(!flags->open || !*flags->keys, FTH_INVALID, "--unsigned and --keys exclude each other");
    if (!flags->open)
        FTH_TRY(fth_keys_read(flags->keys, &secrets->keys));
    if (*flags->certificate)
        FTH_TRY(fth_tls_load(flags->certificate, flags->key, &secrets->certificate_pem, &secrets->key_pem));
    else if (flags->tls)
        FTH_TRY(fth_tls_load_or_make(tls_folder, flags->address, &secrets->certificate_pem, &secrets->key_pem));
    if (secrets->certificate_pem)
        FTH_TRY(fth_tls_fingerprint(secrets->certificate_pem, secrets->fingerprint));

out:
    if (status != FTH_OK)
        fth_serving_release(secrets);
    return status;
}

void fth_serving_release(fth_serving_secrets *secrets)
{
    fth_wipe_text(secrets->keys);
    free(secrets->certificate_pem);
    fth_wipe_text(secrets->key_pem);
    *secrets = (fth_serving_secrets){0};
}

void fth_serving_url(const fth_serving_flags *flags, bool tls, int port, char url[FTH_SERVING_URL])
{
    bool v6 = strchr(flags->address, ':') != NULL;
    snprintf(url, FTH_SERVING_URL, "%s://%s%s%s:%d", tls ? "https" : "http", v6 ? "[" : "", flags->address,
             v6 ? "]" : "", port);
}
