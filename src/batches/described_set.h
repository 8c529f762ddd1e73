/* A coordinator's description of a data set, for jobs and agents: "set" in the answer to a
 * registration, and GET /v1/data/NAME.
 *
 *     {"name", "version", "files", "channels", "raw_height", "raw_width", "training", "validation",
 *      "mean":[...], "std":[...], "class_names":[...], "split", "validation_fraction",
 *      "address", "seed"}
 *
 * "split" ("stratified" or "random") and the fraction are present if validation samples are held
 * out. "address" and "seed" are for jobs that read the data themselves, with their own credentials:
 * the address has no secrets, and is absent if others cannot open it. */
#ifndef FTH_BATCHES_DESCRIBED_SET_H
#define FTH_BATCHES_DESCRIBED_SET_H

#include <jansson.h>

#include "data/source/provider.h"

/* How to open the data itself. */
typedef struct fth_set_source {
    const char *address; /* as --data has it, or NULL */
    uint64_t seed;       /* of the validation split, if the set has none */
    double validation_fraction;
    bool random_split; /* see fth_dataset_options */
} fth_set_source;

/* NULL: no memory, or the set has no version, as the error message says. */
json_t *fth_described_set_save(const fth_dataset *dataset, const char *name, const fth_set_source *source);

typedef struct fth_described_set {
    fth_provided_set set; /* lent by `json`, as the members below */
    fth_set_source source;
    json_t *json;
    const char **class_names;
} fth_described_set;
/* FTH_INVALID names the member that is missing or wrong. `shown`: the address, for messages. */
fth_status fth_described_set_load(const json_t *json, const char *shown, fth_described_set *set);
void fth_described_set_release(fth_described_set *set);

#endif
