/* Engines for convolutions through cuDNN's graph interface: describe a convolution, let the
 * heuristics propose engines, measure the first few, keep the fastest.
 *
 * Only engines that give the same bits every time are taken, none that compiles at run time
 * (seconds for each), and in strict f32 none that uses tensor cores. A choice is written down as
 * the engine's number and its knobs, from which the plan is built again without heuristics or
 * measurements. FARTHING_CUDA_TUNE=0 takes the first engine that works and measures nothing, and
 * leaves ReLU to a pass of its own. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cudnn_graph.h"

enum { MAX_MEASURED = 10 };
static const size_t max_workspace_bytes = (size_t)1 << 30;

struct cuda_engine {
    cudnnBackendDescriptor_t plan, packs[CUDA_MAX_PARTS];
    cuda_dnn_heap *descriptors; /* what the plan was built from */
    int64_t workspace_bytes;
    bool bias;
    double microseconds;
    char name[64];
};

static bool has_note(const cudnnBackendNumericalNote_t *notes, int64_t count, cudnnBackendNumericalNote_t note)
{
    for (int64_t i = 0; i < count; i++)
        if (notes[i] == note)
            return true;
    return false;
}

static fth_status inspect(cuda_dnn_heap *heap, const cuda_conv *conv, cuda_dnn_proposal *p)
{
    fth_status status = FTH_OK;
    cudnnBackendDescriptor_t engine;
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behaviors[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t count = 0, note_count = 0, behavior_count = 0;
    FTH_TRY(cuda_dnn_make(heap, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    CUDA_DNN_TRY(cudnnBackendGetAttribute(p->config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                          &count, &engine));
    CUDA_DNN_TRY(
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &p->engine));
    CUDA_DNN_TRY(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                          CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &note_count, notes));
    CUDA_DNN_TRY(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                          CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &behavior_count, behaviors));
    p->usable = !has_note(notes, note_count, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    for (int64_t i = 0; i < behavior_count; i++)
        p->usable = p->usable && behaviors[i] != CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    if (conv->type == CUDA_TYPE_F32 && !conv->tf32)
        p->usable = p->usable && !has_note(notes, note_count, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) &&
                    !has_note(notes, note_count, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
                    !has_note(notes, note_count, CUDNN_NUMERICAL_NOTE_FFT) &&
                    !has_note(notes, note_count, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13);
    p->usable = p->usable && !has_note(notes, note_count, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
out:
    return status;
}

static fth_status propose(cuda_dnn_heap *heap, const cuda_conv *conv, cudnnBackendDescriptor_t graph,
                          cudnnBackendHeurMode_t mode, cuda_dnn_proposal *proposals, int *count)
{
    fth_status status = FTH_OK;
    cudnnBackendDescriptor_t heuristics, configs[CUDA_DNN_MAX_PROPOSALS];
    int64_t found = 0;
    *count = 0;
    FTH_TRY(cuda_dnn_make(heap, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics));
    FTH_TRY(cuda_dnn_set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph));
    FTH_TRY(cuda_dnn_set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    if (cudnnBackendFinalize(heuristics) != CUDNN_STATUS_SUCCESS)
        goto out; /* nothing to propose */
    for (int i = 0; i < CUDA_DNN_MAX_PROPOSALS; i++)
        FTH_TRY(cuda_dnn_make(heap, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]));
    CUDA_DNN_TRY(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                          CUDA_DNN_MAX_PROPOSALS, &found, configs));
    for (int64_t i = 0; i < found && i < CUDA_DNN_MAX_PROPOSALS; i++) {
        cuda_dnn_proposal p = {.config = configs[i]};
        if (inspect(heap, conv, &p) == FTH_OK && p.usable)
            proposals[(*count)++] = p;
    }
out:
    return status;
}

/* A plan from a configuration; fails without noise where the engine cannot. */
static fth_status build_plan(cuda_device *device, cudnnBackendDescriptor_t config, cudnnBackendDescriptor_t *plan,
                             int64_t *workspace_bytes)
{
    fth_status status = FTH_OK;
    int64_t count = 0;
    CUDA_DNN_TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, plan));
    FTH_TRY(cuda_dnn_set(*plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &device->cudnn));
    FTH_TRY(cuda_dnn_set(*plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config));
    FTH_TRY(cuda_dnn_finalize(*plan, "building an execution plan"));
    CUDA_DNN_TRY(cudnnBackendGetAttribute(*plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                          workspace_bytes));
    FTH_REQUIRE(*workspace_bytes <= (int64_t)max_workspace_bytes, FTH_UNSUPPORTED, "the plan's workspace is too large");
out:
    if (status != FTH_OK && *plan) {
        cudnnBackendDestroyDescriptor(*plan);
        *plan = NULL;
    }
    return status;
}

static bool tuning_is_on(void)
{
    const char *asked = getenv("FARTHING_CUDA_TUNE");
    return !asked || strcmp(asked, "0") != 0;
}

static void write_key(const cuda_conv *c, char *key, size_t size)
{
    static const char *const kinds[] = {"forward", "data", "filter"}, *const types[] = {"f32", "f16", "bf16"};
    snprintf(key, size,
             "%s%s%s%s %s%s x%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 " w%" PRId64 ",%" PRId64 ",%" PRId64
             ",%" PRId64 " p%" PRId64 ",%" PRId64 " s%" PRId64 ",%" PRId64 " d%" PRId64 ",%" PRId64,
             kinds[c->kind], c->accumulate ? "+added" : "", c->bias ? "+bias" : "", c->relu ? "+relu keeping NaN" : "",
             types[c->type], c->tf32 ? "-tf32" : "", c->x[0], c->x[1], c->x[2], c->x[3], c->w[0], c->w[1], c->w[2],
             c->w[3], c->padding[0], c->padding[1], c->stride[0], c->stride[1], c->dilation[0], c->dilation[1]);
}

static fth_status recall(cuda_device *device, cuda_dnn_heap *heap, cudnnBackendDescriptor_t graph, const char *choice,
                         cuda_engine *engine)
{
    fth_status status = FTH_OK;
    cuda_dnn_proposal p = {0};
    FTH_TRY(cuda_dnn_read_choice(heap, graph, choice, &p, &engine->microseconds));
    FTH_TRY(build_plan(device, p.config, &engine->plan, &engine->workspace_bytes));
    snprintf(engine->name, sizeof engine->name, "engine %" PRId64, p.engine);
out:
    return status;
}

static fth_status tune(cuda_device *device, cuda_dnn_heap *heap, const cuda_conv *conv, cudnnBackendDescriptor_t graph,
                       const char *key, cuda_engine *engine)
{
    fth_status status = FTH_OK;
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    cuda_dnn_proposal proposals[CUDA_DNN_MAX_PROPOSALS], best = {0};
    const bool measuring = tuning_is_on() && !conv->unmeasured;
    int measured = 0;
    if (conv->relu && !measuring)
        goto out; /* only a run shows whether an engine keeps NaN */
    for (size_t m = 0; m < FTH_COUNT_OF(modes) && !engine->plan; m++) {
        int count = 0;
        FTH_TRY(propose(heap, conv, graph, modes[m], proposals, &count));
        for (int i = 0; i < count && measured < MAX_MEASURED; i++) {
            cudnnBackendDescriptor_t candidate = NULL;
            int64_t workspace_bytes = 0;
            double microseconds = 0;
            if (build_plan(device, proposals[i].config, &candidate, &workspace_bytes) != FTH_OK)
                continue;
            if (measuring && cuda_dnn_measure(device, conv, candidate, workspace_bytes, &microseconds) != FTH_OK) {
                cudnnBackendDestroyDescriptor(candidate);
                continue;
            }
            measured++;
            if (engine->plan && microseconds >= engine->microseconds) {
                cudnnBackendDestroyDescriptor(candidate);
                continue;
            }
            if (engine->plan)
                cudnnBackendDestroyDescriptor(engine->plan);
            engine->plan = candidate;
            engine->workspace_bytes = workspace_bytes;
            engine->microseconds = microseconds;
            best = proposals[i];
            if (!measuring)
                break;
        }
    }
    if (engine->plan) {
        char choice[CUDA_DNN_CHOICE_SIZE];
        cuda_dnn_write_choice(heap, &best, engine->microseconds, choice);
        snprintf(engine->name, sizeof engine->name, "engine %" PRId64, best.engine);
        if (measuring)
            cuda_tuning_add(device->tuning, key, choice);
    } else if (measuring) {
        cuda_tuning_add(device->tuning, key, "none");
    }
    fth_log_debug("cudnn %s: %s, %.1f us of %d measured", key, engine->plan ? engine->name : "no engine",
                  engine->microseconds, measured);
out:
    return status;
}

fth_status cuda_engine_create(cuda_device *device, const cuda_conv *conv, cuda_engine **result)
{
    fth_status status = FTH_OK;
    cuda_engine *engine = NULL;
    cudnnBackendDescriptor_t graph;
    char key[256];
    *result = NULL;
    write_key(conv, key, sizeof key);
    const char *choice = cuda_tuning_find(device->tuning, key);
    if (choice && strcmp(choice, "none") == 0)
        return FTH_OK;
    FTH_TRY(fth_allocate(1, sizeof *engine, &engine));
    FTH_TRY(fth_allocate(1, sizeof *engine->descriptors, &engine->descriptors));
    engine->bias = conv->bias;
    if (cuda_dnn_build_graph(device, engine->descriptors, conv, &graph) != FTH_OK) {
        fth_log_debug("cudnn %s: %s", key, fth_error_message());
        goto out; /* cannot be expressed: no engine */
    }
    if (!choice || recall(device, engine->descriptors, graph, choice, engine) != FTH_OK)
        FTH_TRY(tune(device, engine->descriptors, conv, graph, key, engine));
    if (engine->plan) {
        *result = engine;
        engine = NULL;
    }
out:
    cuda_engine_free(engine);
    return status;
}

void cuda_engine_free(cuda_engine *engine)
{
    if (!engine)
        return;
    for (int i = 0; i < CUDA_MAX_PARTS; i++)
        if (engine->packs[i])
            cudnnBackendDestroyDescriptor(engine->packs[i]);
    if (engine->plan)
        cudnnBackendDestroyDescriptor(engine->plan);
    if (engine->descriptors)
        cuda_dnn_heap_free(engine->descriptors);
    free(engine->descriptors);
    free(engine);
}

size_t cuda_engine_workspace_bytes(const cuda_engine *engine)
{
    return (size_t)engine->workspace_bytes;
}

const char *cuda_engine_name(const cuda_engine *engine)
{
    return engine->name;
}

double cuda_engine_microseconds(const cuda_engine *engine)
{
    return engine->microseconds;
}

fth_status cuda_engine_bind(cuda_engine *engine, int part, void *x, void *w, void *y, void *bias, void *workspace)
{
    return cuda_dnn_make_pack(&engine->packs[part], x, w, y, engine->bias ? bias : NULL, workspace);
}

fth_status cuda_engine_run(cuda_device *device, const cuda_engine *engine, int part)
{
    return cuda_dnn_status(cudnnBackendExecute(device->cudnn, engine->plan, engine->packs[part]),
                           "cudnnBackendExecute");
}
