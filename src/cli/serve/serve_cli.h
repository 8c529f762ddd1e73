/* Services of `farthing serve`, each in serve_<name>.c with a row in cmd_serve.c. Their common
 * flags (address, keys, certificates) are here and in serve_flags.c. */
#ifndef FTH_CLI_SERVE_CLI_H
#define FTH_CLI_SERVE_CLI_H

#include "cli/cli.h"
#include "http/tls.h"

extern const fth_command fth_serve_parameters, fth_serve_batches, fth_serve_functions;

typedef struct fth_serving_flags {
    char *address, *host_names, *keys, *certificate, *key;
    int64_t port;
    double max_rate;
    bool tls, open;
} fth_serving_flags;

/* Keys and certificate that the flags name; NULL if they name none. */
typedef struct fth_serving_secrets {
    char *keys, *certificate_pem, *key_pem;
    char fingerprint[FTH_FINGERPRINT_SIZE]; /* of the certificate's key; "": there is none */
} fth_serving_secrets;
/* A certificate that is made here is kept in `tls_folder`. */
fth_status fth_serving_read(const fth_serving_flags *flags, const char *tls_folder, fth_serving_secrets *secrets);
void fth_serving_release(fth_serving_secrets *secrets);

/* "https://[::1]:29500" */
enum { FTH_SERVING_URL = 320 };
void fth_serving_url(const fth_serving_flags *flags, bool tls, int port, char url[FTH_SERVING_URL]);

/* Rows for an fth_serving_flags that lies at `at` in the command's options. */
/* clang-format off: a macro of rows is read by rows */
#define FTH_SERVING_ROWS(at, usual_port)                                                                               \
    {FTH_OPTION_ROW_AT("port", INTEGER, (at) + offsetof(fth_serving_flags, port)), .fallback = usual_port,             \
     .argument = "N", .maximum = 65535, .help = "0: any free one"},                                                    \
        {FTH_OPTION_ROW_AT("address", TEXT, (at) + offsetof(fth_serving_flags, address)), .fallback = "127.0.0.1",     \
         .argument = "IP", .help = "0.0.0.0 serves other machines, which needs --keys"},                               \
        {FTH_OPTION_ROW_AT("host-name", TEXT, (at) + offsetof(fth_serving_flags, host_names)), .argument = "NAMES",    \
         .help =                                                                                                       \
             "names, with commas between them, that the server is reached by; addresses, localhost, this machine's "   \
             "name and those in its certificate are known. Requests for another name are refused unless they are "     \
             "signed"},                                                                                                \
        {FTH_OPTION_ROW_AT("keys", TEXT, (at) + offsetof(fth_serving_flags, keys)), .argument = "FILE",                \
         .help = "accepted keys, one per line, as `farthing keys` makes them; default: $FARTHING_KEYS"},               \
        {FTH_OPTION_ROW_AT("tls", SWITCH, (at) + offsetof(fth_serving_flags, tls)),                                    \
         .help = "serve https; with a certificate made here, to be pinned"},                                           \
        {FTH_OPTION_ROW_AT("certificate", TEXT, (at) + offsetof(fth_serving_flags, certificate)), .argument = "FILE",  \
         .help = "certificate (chain) for https, PEM"},                                                                \
        {FTH_OPTION_ROW_AT("key", TEXT, (at) + offsetof(fth_serving_flags, key)), .argument = "FILE",                  \
         .help = "its private key"},                                                                                   \
    {                                                                                                                  \
        FTH_OPTION_ROW_AT("max-rate", NUMBER, (at) + offsetof(fth_serving_flags, max_rate)),                           \
            .fallback = "0", .argument = "N", .maximum = 1e9,                                                          \
            .help = "requests per second from one address; 0: unlimited"                                               \
    }
/* For servers that otherwise have a token. */
#define FTH_SERVING_OPEN_ROW(at)                                                                                       \
    {                                                                                                                  \
        FTH_OPTION_ROW_AT("unsigned", SWITCH, (at) + offsetof(fth_serving_flags, open)),                               \
            .help = "answer every user of this machine, not only the one that runs the server"                         \
    }
/* clang-format on */

#endif
