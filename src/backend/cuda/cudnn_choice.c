/* The choice of an engine as text: its number and knobs, from which its configuration is built
 * again without heuristics or measurements. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/cudnn_graph.h"

enum { MAX_KNOBS = 32 };

void cuda_dnn_write_choice(cuda_dnn_heap *heap, const cuda_dnn_proposal *p, double microseconds,
                           char text[CUDA_DNN_CHOICE_SIZE])
{
    cudnnBackendDescriptor_t knobs[MAX_KNOBS];
    int64_t count = 0;
    size_t length = (size_t)snprintf(text, CUDA_DNN_CHOICE_SIZE, "%.1f %" PRId64, microseconds, p->engine);
    for (int i = 0; i < MAX_KNOBS; i++)
        if (cuda_dnn_make(heap, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knobs[i]) != FTH_OK)
            return;
    if (cudnnBackendGetAttribute(p->config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_KNOBS,
                                 &count, knobs) != CUDNN_STATUS_SUCCESS)
        return;
    for (int64_t i = 0; i < count && length < CUDA_DNN_CHOICE_SIZE - 64; i++) {
        cudnnBackendKnobType_t type;
        int64_t value = 0, got = 0;
        cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &got, &type);
        cudnnBackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &got, &value);
        length += (size_t)snprintf(text + length, CUDA_DNN_CHOICE_SIZE - length, " %d=%" PRId64, (int)type, value);
    }
}

fth_status cuda_dnn_read_choice(cuda_dnn_heap *heap, cudnnBackendDescriptor_t graph, const char *text,
                                cuda_dnn_proposal *p, double *microseconds)
{
    fth_status status = FTH_OK;
    cudnnBackendDescriptor_t engine, knobs[MAX_KNOBS];
    int64_t count = 0;
    char *end = NULL;
    *microseconds = strtod(text, &end);
    p->engine = strtoll(end, &end, 10);
    FTH_TRY(cuda_dnn_make(heap, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    FTH_TRY(cuda_dnn_set(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph));
    FTH_TRY(cuda_dnn_set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &p->engine));
    FTH_TRY(cuda_dnn_finalize(engine, "an engine chosen earlier"));
    while (*end == ' ' && count < MAX_KNOBS) {
        cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)strtol(end, &end, 10);
        FTH_REQUIRE(*end == '=', FTH_CORRUPT, "a choice that cannot be read");
        int64_t value = strtoll(end + 1, &end, 10);
        FTH_TRY(cuda_dnn_make(heap, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knobs[count]));
        FTH_TRY(cuda_dnn_set(knobs[count], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type));
        FTH_TRY(cuda_dnn_set(knobs[count], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value));
        FTH_TRY(cuda_dnn_finalize(knobs[count++], "a knob chosen earlier"));
    }
    FTH_TRY(cuda_dnn_make(heap, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &p->config));
    FTH_TRY(cuda_dnn_set(p->config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine));
    if (count > 0)
        FTH_TRY(
            cuda_dnn_set(p->config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, knobs));
    FTH_TRY(cuda_dnn_finalize(p->config, "a configuration chosen earlier"));
out:
    return status;
}
