/* See prometheus.h. */
#include "http/prometheus.h"

#include <inttypes.h>
#include <unistd.h>

uint64_t fth_prometheus_resident_bytes(void)
{
    unsigned long long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file)
        return 0;
    if (fscanf(file, "%llu %llu", &size, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

void fth_prometheus_head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP farthing_%s %s\n# TYPE farthing_%s %s\n", name, help, name, type);
}

void fth_prometheus_value(FILE *out, const char *name, const char *type, const char *help, double value)
{
    fth_prometheus_head(out, name, type, help);
    fprintf(out, "farthing_%s %.17g\n", name, value);
}

void fth_prometheus_label(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        if (*text == '\n')
            fputs("\\n", out);
        else
            fputc(*text, out);
    }
}

static void print_count(void *out, const char *metric, int code, uint64_t count)
{
    fprintf(out, "farthing_requests_total{path=\"%s\",code=\"%d\"} %" PRIu64 "\n", metric, code, count);
}

void fth_prometheus_requests(FILE *out, const fth_server *server)
{
    fth_prometheus_head(out, "requests_total", "counter",
                        "Requests by path and code of the answer; code 0: others, or the client left");
    if (server)
        fth_server_visit_counts(server, print_count, out);
}

void fth_prometheus_signatures(FILE *out, const fth_access *access)
{
    fth_prometheus_head(out, "signatures_total", "counter", "Signatures checked, by what they were");
    for (int i = FTH_SIGNATURE_GOOD; i < FTH_SIGNATURE_RESULTS; i++)
        fprintf(out, "farthing_signatures_total{result=\"%s\"} %" PRIu64 "\n",
                fth_signature_result_name((fth_signature_result)i),
                fth_access_count_signatures(access, (fth_signature_result)i));
}
