/* Metrics in Prometheus' text format: what services have in common. Names get the prefix
 * "farthing_". */
#ifndef FTH_HTTP_PROMETHEUS_H
#define FTH_HTTP_PROMETHEUS_H

#include <stdio.h>

#include "http/access.h"

/* The lines before a metric's values; `type`: "counter", "gauge", "histogram" or "summary". */
void fth_prometheus_head(FILE *out, const char *name, const char *type, const char *help);
/* A metric of one value. */
void fth_prometheus_value(FILE *out, const char *name, const char *type, const char *help, double value);
/* A label's value: what would end it is escaped. */
void fth_prometheus_label(FILE *out, const char *text);

/* What the server (or NULL) counts: requests_total. */
void fth_prometheus_requests(FILE *out, const fth_server *server);
/* What was found of signatures: signatures_total. */
void fth_prometheus_signatures(FILE *out, const fth_access *access);
uint64_t fth_prometheus_resident_bytes(void); /* of this process */

#endif
