/* Requests to the rendezvous and its answers, as they travel: JSON objects, checked and read here.
 * The functions that read answer a request themselves when it is malformed. */
#ifndef FTH_CLUSTER_RENDEZVOUS_REQUESTS_H
#define FTH_CLUSTER_RENDEZVOUS_REQUESTS_H

#include "cluster/roster.h"
#include "http/server.h"

/* Answers with a message. */
void fth_rendezvous_refuse(fth_exchange *exchange, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Answers with an object, which is taken. */
void fth_rendezvous_answer(fth_exchange *exchange, int code, json_t *json);

/* Reads the body, an object, as json_unpack() does. NULL: refused. json_decref() it after use of
 * the values. */
json_t *fth_rendezvous_read(fth_exchange *exchange, const char *format, ...);

/* How a process introduces itself in /open. */
typedef struct fth_introduction {
    fth_newcomer newcomer;
    const char *version, *run, *configuration;
} fth_introduction;

/* NULL: refused. Otherwise json_decref() it after use of the introduction. */
json_t *fth_introduction_read(fth_exchange *exchange, fth_introduction *introduction);
/* The process's name for messages; free() it. */
char *fth_introduction_name(const fth_introduction *introduction);

/* What /key?member=&generation=&key= is about: the key in fresh memory. NULL: refused. */
char *fth_rendezvous_read_key(fth_exchange *exchange, int64_t *member, int64_t *generation);

#endif
