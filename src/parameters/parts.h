/* The parts of a parameter server, as server.c makes them; it frees them in reverse. Each part
 * keeps its state to itself, and finds the others here. Nothing in this table changes once threads
 * run. */
#ifndef FTH_PARAMETERS_PARTS_H
#define FTH_PARAMETERS_PARTS_H

#include "http/access.h"
#include "parameters/health.h"
#include "parameters/metrics.h"
#include "parameters/model.h"
#include "parameters/parameters.h"
#include "parameters/position.h"
#include "parameters/record.h"
#include "parameters/shard_listing.h"
#include "parameters/usage.h"
#include "parameters/workers.h"
#include "store/store.h"

typedef struct fth_server_parts {
    const fth_parameters_options *options; /* with defaults filled in */
    fth_store *store;                      /* for further copies of checkpoints; or NULL */
    fth_access *access;
    fth_shard_listing *listing; /* or NULL: workers bring their shards */
    fth_served_model *model;
    fth_served_position *position;
    fth_shards *shards;
    fth_parameters_metrics *metrics;
    fth_served_record *record;
    fth_served_usage *usage;
    fth_workers *workers;
    fth_health *health;
    struct fth_updates *updates;
    struct fth_journal *journal;
    struct fth_served_saver *saver;
    struct fth_worker_totals *totals;
    struct fth_intake *intake;
    struct fth_parameter_snapshots *snapshots;
    struct fth_shard_leases *leases;
    struct fth_served_validator *validator; /* or NULL: there is no data to validate with */
} fth_server_parts;

#endif
