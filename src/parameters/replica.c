/* See replica.h. If the device uses host memory, weights and gradients are read and written in the
 * engine's own vectors, without a copy. */
#include "parameters/replica.h"

#include <stdlib.h>
#include <string.h>

#include "train/engine/engine_peers.h"
#include "train/engine/server_support.h"

enum { MAX_STALE_IN_A_ROW = 100 };

struct fth_replica {
    fth_engine *engine;
    fth_layout *layout;
    fth_encoder *encoder;
    fth_worker_client *client;   /* lent; NULL before fth_replica_connect() */
    float *packed;               /* as pulled */
    float *parameters, *buffers; /* the engine's own vectors, or copies of them */
    float *gradients;            /* a copy */
    bool has_copies;
    int64_t version;
    int64_t stale_in_a_row;
    fth_encoder_facts facts; /* of the current push */
};

static fth_status find_vectors(fth_replica *replica)
{
    fth_status status = FTH_OK;
    fth_engine_sizes sizes = fth_engine_get_sizes(replica->engine);

    if (fth_engine_device(replica->engine)->backend->host_memory) {
        fth_engine_vectors own = fth_engine_get_vectors(replica->engine);
        replica->parameters = own.parameters;
        replica->buffers = own.buffers;
        return FTH_OK;
    }
    replica->has_copies = true;
    FTH_TRY(fth_allocate_aligned(sizes.parameters * sizeof(float) + 1, &replica->parameters));
    FTH_TRY(fth_allocate_aligned(sizes.buffers * sizeof(float) + 1, &replica->buffers));
    FTH_TRY(fth_allocate_aligned(sizes.trained * sizeof(float) + 1, &replica->gradients));

out:
    return status;
}

fth_status fth_replica_create(fth_engine *engine, const char *compression, fth_replica **result)
{
    fth_status status = FTH_OK;
    fth_replica *replica = NULL;

    *result = NULL;
    FTH_TRY(fth_allocate(1, sizeof *replica, &replica));
    replica->engine = engine;
    FTH_TRY(fth_layout_create(fth_engine_graph(engine), &replica->layout));
    FTH_TRY(fth_encoder_create(replica->layout, compression, &replica->encoder));
    FTH_TRY(fth_allocate_aligned((size_t)replica->layout->packed_floats * sizeof(float) + 1, &replica->packed));
    FTH_TRY(find_vectors(replica));
    *result = replica;
    replica = NULL;

out:
    fth_replica_free(replica);
    return status;
}

void fth_replica_free(fth_replica *replica)
{
    if (!replica)
        return;
    fth_encoder_free(replica->encoder);
    fth_layout_free(replica->layout);
    free(replica->packed);
    if (replica->has_copies) {
        free(replica->parameters);
        free(replica->buffers);
        free(replica->gradients);
    }
    free(replica);
}

int64_t fth_replica_version(const fth_replica *replica)
{
    return replica->version;
}

/* Loads what was pulled into the engine. */
static fth_status take_weights(fth_replica *replica)
{
    const fth_layout *layout = replica->layout;
    for (int i = 0; i < layout->count; i++) {
        const fth_layout_tensor *tensor = &layout->tensors[i];
        float *to = (i < layout->parameters ? replica->parameters : replica->buffers) + tensor->vector_offset;
        memcpy(to, replica->packed + tensor->packed_offset, (size_t)tensor->count * sizeof(float));
    }
    return replica->has_copies ? fth_service_write(replica->engine, replica->parameters, replica->buffers) : FTH_OK;
}

fth_status fth_replica_connect(fth_replica *replica, fth_worker_client *client)
{
    fth_status status = fth_worker_check_layout(client, replica->layout, replica->packed, &replica->version);
    replica->client = client;
    replica->stale_in_a_row = 0;
    fth_encoder_forget(replica->encoder);
    return status == FTH_OK ? take_weights(replica) : status;
}

fth_status fth_replica_pull(fth_replica *replica, int64_t since)
{
    fth_status status = fth_worker_pull(replica->client, replica->layout, since, replica->packed, &replica->version);
    return status == FTH_OK ? take_weights(replica) : status;
}

static fth_status make_body(void *context, const char *name, int64_t sequence, fth_push_body *body)
{
    fth_replica *replica = context;
    replica->facts.worker = name;
    replica->facts.instance = fth_worker_instance(replica->client);
    replica->facts.sequence = sequence;
    return fth_encoder_make(replica->encoder, &replica->facts, body);
}

fth_status fth_replica_push(fth_replica *replica, const fth_replica_facts *facts, fth_push_outcome *outcome)
{
    fth_status status = FTH_OK;
    float *gradients = replica->gradients;

    if (replica->has_copies)
        FTH_TRY(fth_service_read(replica->engine, replica->gradients, replica->buffers));
    else
        gradients = fth_engine_get_gradients(replica->engine);
    for (size_t i = 0; facts->scale > 0 && i < fth_engine_get_sizes(replica->engine).trained; i++)
        gradients[i] *= facts->scale;
    FTH_TRY(fth_encoder_take(replica->encoder, gradients, replica->buffers));
    replica->facts = (fth_encoder_facts){.version = replica->version,
                                         .samples = facts->samples,
                                         .correct = facts->correct,
                                         .loss = facts->loss,
                                         .span = facts->span};
    FTH_TRY(fth_worker_push(replica->client, &(fth_push){replica, make_body}, outcome));
    if (*outcome != FTH_PUSH_APPLIED)
        fth_encoder_give_back(replica->encoder, gradients);
    replica->stale_in_a_row = *outcome == FTH_PUSH_STALE ? replica->stale_in_a_row + 1 : 0;
    FTH_REQUIRE(
        replica->stale_in_a_row < MAX_STALE_IN_A_ROW, FTH_PEER_LOST,
        "%d gradients in a row were too old when they arrived: this worker is too slow for the server's bound on "
        "staleness",
        MAX_STALE_IN_A_ROW);

out:
    return status;
}

fth_status fth_replica_pull_next(fth_replica *replica, fth_push_outcome outcome)
{
    bool waits = fth_worker_get_registration(replica->client)->waits && outcome == FTH_PUSH_APPLIED;
    return fth_replica_pull(replica, waits ? replica->version : -1);
}
