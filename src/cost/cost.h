/* Costs: the hourly price of a machine, and the cost of a run on all its machines.
 *
 *     catalogue.c          prices from a YAML file; one with dated examples is built in
 *                          (share/prices.yaml)
 *     price.c              the price of a machine or a function, and where the catalogue is
 *     ledger.c             the record's machines with their dollars: useful, lost, per epoch, to an
 *                          accuracy
 *     ledger_functions.c   the same for the functions that worked for a parameter server
 *     function_model.h     what a job would take and cost in functions, and on a VM */
#ifndef FTH_COST_COST_H
#define FTH_COST_COST_H

#include "record/record.h"

/* ---- the catalogue ---- */

typedef struct fth_price {
    char cloud[16];    /* "aws", "gcp", "azure", "own" */
    char instance[64]; /* type; of cloud "own" the host's name, or "*" */
    char region[64];   /* "": any */
    char market[16];   /* "on-demand", "spot" */
    char date[11];     /* "2025-06-01"; "": not said */
    double usd_per_hour;
    double vcpus; /* that it has all the time; 0: not said, or not all the time */
} fth_price;

/* What a platform takes for functions. */
typedef struct fth_function_price {
    char cloud[16];    /* "aws", "own", ... */
    char provider[16]; /* "lambda", "openwhisk": as in the record's "invocation" events */
    char region[64];   /* "": any */
    char date[11];
    double usd_per_gb_second; /* of configured memory; a GB is 1,024 MB */
    double usd_per_million_requests;
    double usd_per_gb_out; /* bytes that a function sends */
    double mb_per_vcpu;    /* memory that brings one; 0: not said */
} fth_function_price;

typedef struct fth_catalogue {
    char *name; /* the file's, or "built-in catalogue" */
    fth_price *prices;
    size_t count;
    fth_function_price *functions;
    size_t function_count;
} fth_catalogue;

/* Reads a catalogue; errors name file and line. Release the catalogue in either case. */
fth_status fth_catalogue_parse(const char *text, size_t size_bytes, const char *name, fth_catalogue *catalogue);
fth_status fth_catalogue_read_builtin(fth_catalogue *catalogue);
void fth_catalogue_release(fth_catalogue *catalogue);
/* The built-in one as it was written, comments and all. */
const char *fth_catalogue_builtin_text(void);

/* The file that replaces the built-in catalogue: `asked` (--prices), else $FARTHING_PRICES, else
 * farthing/prices.yaml under $XDG_CONFIG_HOME or ~/.config, if it exists; NULL: the built-in one.
 * free() it. */
char *fth_catalogue_find(const char *asked);
/* What fth_catalogue_find() finds, read. */
fth_status fth_catalogue_open(const char *asked, fth_catalogue *catalogue);

/* ---- one machine's price ---- */

/* What determines a machine's price; "" where unknown. On a machine outside clouds, `cloud` is
 * "own" and `instance` the host's name. */
typedef struct fth_price_query {
    const char *cloud, *instance, *region, *market;
} fth_price_query;

typedef struct fth_price_answer {
    double usd_per_hour; /* NAN: unknown */
    char source[320];    /* "built-in catalogue, 2025-06-01: g4dn.xlarge spot in us-east-1"; says what was assumed */
} fth_price_answer;

/* Looks a price up. Market and region are matched first; without such a row, in this order: a row
 * of any region; the same type in another region; the on-demand price of a spot machine, but not
 * the other way round, as a bill may be too high but not too low. A machine of unknown market
 * counts as on-demand. `source` says what was assumed. False if the catalogue does not have the
 * type. */
bool fth_price_find(const fth_catalogue *catalogue, const fth_price_query *query, fth_price_answer *answer);

/* The price of a provider's functions: of the region, else of any, else of another; NULL: the
 * catalogue has none. */
const fth_function_price *fth_function_price_find(const fth_catalogue *catalogue, const char *provider,
                                                  const char *region);

/* --price: "0.526", "0.526usd", "$0.526"; an amount above 0 and below a million. */
fth_status fth_usd_parse(const char *text, double *usd);
/* 0.0123 -> "$0.0123", 12.3 -> "$12.30", NAN -> "-". */
void fth_usd_format(double usd, char *text, size_t size);

/* ---- the ledger ---- */

/* One machine's part. Seconds are those paid for: from the process's start to its last sign of
 * life. */
typedef struct fth_ledger_row {
    const fth_record_machine *machine; /* in the summary */
    double usd_per_hour;               /* NAN: unknown */
    double seconds;                    /* useful_s + lost_s + starting_s */
    double useful_s;                   /* training, validation and saving that the run kept */
    double lost_s;                     /* work that a later resume undid, or that was never reported */
    bool lost_is_minimum;              /* killed without notice: its last moments are unknown */
    double starting_s;                 /* before its first step, and after its last */
    double usd, lost_usd;              /* NAN where the rate is unknown */
    int64_t steps, steps_lost;         /* kept; undone */
    double epochs;                     /* kept */
    double accuracy;                   /* of its last validation that counts; NAN: none */
} fth_ledger_row;

/* A node that trained with a machine. Its seconds are useful, lost and starting as the machine's
 * are. */
typedef struct fth_ledger_node {
    const fth_record_node *node; /* in the summary */
    double usd_per_hour, usd;    /* NAN: unknown */
} fth_ledger_node;

/* The invocations of one function that worked for a parameter server, from the record's
 * "invocation" events. */
typedef struct fth_ledger_function {
    char provider[32], function[96]; /* "": not said */
    double memory_mb;                /* 0: not said */
    int64_t invocations, cold, failed;
    int64_t lost; /* their end was not reported: `seconds` until the last sign of life */
    double seconds, lost_s;
    double gb_s;                       /* each invocation rounded up to a millisecond */
    double received_bytes, sent_bytes; /* NAN: not said */
    double peak_bytes;                 /* NAN: not said */
    double usd, lost_usd;              /* NAN where one has no price */
} fth_ledger_function;

typedef struct fth_ledger {
    const fth_record_summary *run;
    fth_ledger_row *rows; /* in time's order */
    size_t count;
    fth_ledger_node *nodes;
    size_t node_count;
    fth_ledger_function *functions;
    size_t function_count;
    double functions_usd;                         /* of those with a price; NAN: there is none */
    size_t priced;                                /* rows and nodes whose rate is known */
    double seconds, useful_s, lost_s, starting_s; /* of all machines and nodes */
    bool lost_is_minimum;                         /* of some row */
    double usd;           /* of those whose rate is known, functions too; NAN if there is none */
    double lost_usd;      /* the same, of machines and nodes alone */
    double usd_per_epoch; /* NAN where unknown */
    int64_t steps_lost;
    double epochs;
} fth_ledger;

/* The summary must outlive the ledger. Release it in either case. */
fth_status fth_ledger_make(const fth_record_summary *run, fth_ledger *ledger);
void fth_ledger_release(fth_ledger *ledger);

/* Sets a price for the run's machines that have none, in the summary only; `source` says where it
 * comes from. */
void fth_ledger_assume_price(fth_record_summary *run, double usd_per_hour, const char *source);

bool fth_ledger_has_functions(const fth_record_summary *run);
/* Prices the functions of a run, in the summary only. */
void fth_ledger_price_functions(fth_record_summary *run, const fth_catalogue *catalogue);

/* A cloud's usual time from the request for a VM to its first step, as used in plans and
 * comparisons. */
#define FTH_VM_START_S 60.0

/* A VM that would have done what a run's functions did. Its vCPUs are taken to be as fast as those
 * of functions, which have one for each price's mb_per_vcpu. */
typedef struct fth_ledger_vm {
    const fth_price *on_demand, *spot; /* in the catalogue; spot: may be NULL */
    double seconds;                    /* start_s and the work */
    double on_demand_usd, spot_usd;    /* spot: NAN where there is no price */
} fth_ledger_vm;
/* The cheapest on-demand machine of the catalogue whose vCPUs are known, in the functions' cloud
 * where it has one; false: there is none, or the functions' vCPUs are not known. */
bool fth_ledger_compare_vm(const fth_ledger *ledger, const fth_catalogue *catalogue, double start_s, fth_ledger_vm *vm);

/* The cost of all machines and functions up to `point`; NAN if a rate before it is unknown. */
double fth_ledger_usd_at(const fth_ledger *ledger, const fth_record_point *point);
double fth_ledger_seconds_at(const fth_ledger *ledger, const fth_record_point *point);

/* The first validation, of those that count, with at least this accuracy; NULL: not reached. */
const fth_record_point *fth_ledger_reached(const fth_ledger *ledger, double accuracy);

#endif
