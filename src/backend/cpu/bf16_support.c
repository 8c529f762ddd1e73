/* Whether this machine can compute in bf16, and how fast oneDNN multiplies it. The processor must
 * have instructions for it, and oneDNN kernels. On x86 both follow from oneDNN's instruction set;
 * on arm64 it depends on how oneDNN was built, so we ask oneDNN. */
#include <stdlib.h>

#include "backend/cpu/cpu_internal.h"

#if defined(__x86_64__)

static bool uses(dnnl_cpu_isa_t isa)
{
    return (dnnl_get_effective_cpu_isa() & isa) == isa;
}

bool cpu_supports_bf16(dnnl_engine_t engine)
{
    (void)engine;
    return uses(dnnl_cpu_isa_avx512_core);
}

bool cpu_has_bf16_instructions(void)
{
    return uses(dnnl_cpu_isa_avx512_core_bf16);
}

/* The instruction that adds two bf16 products takes as long as one f32 multiply-add on AMD's
 * processors, which are twice as fast with it. On Sapphire Rapids, oneDNN's convolutions of
 * resnet50 take 1.9 times as long as in f32, and training bert-mini 1.6 times. Without that
 * instruction, numbers are converted wherever they are used: bert-mini takes 3.6 times as long. The
 * first result is oneDNN's speed with AMX, where it may use it. */
double cpu_bf16_gain(void)
{
    if (uses(dnnl_cpu_isa_avx512_core_amx))
        return 5;
    return !cpu_has_bf16_instructions() ? 0.3 : __builtin_cpu_is("amd") ? 2 : 0.5;
}

fth_status cpu_refuse_bf16(const fth_device *device)
{
    static const char *const limits[] = {"FARTHING_MAX_ISA", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"};
    for (size_t i = 0; i < sizeof limits / sizeof *limits && fth_vector_level_best() == FTH_LEVEL_AVX512; i++) {
        const char *value = getenv(limits[i]);
        if (value && *value)
            return fth_fail(FTH_UNSUPPORTED,
                            "bf16 needs AVX-512, which this CPU has but %s=%s rules out; unset it, or use "
                            "--precision f32",
                            limits[i], value);
    }
    return fth_fail(FTH_UNSUPPORTED, "bf16 needs a CPU with AVX-512 (this is %s); use --precision f32",
                    device->description);
}

#else

/* Whether oneDNN has an ordinary convolution and its gradients in bf16. */
static bool has_kernels(dnnl_engine_t engine)
{
    const fth_shape image = FTH_SHAPE(2, 16, 8, 8), weight = FTH_SHAPE(16, 16, 3, 3), bias = FTH_SHAPE(16);
    const cpu_convolution_description d = {.training = true,
                                           .x = cpu_any(&image, dnnl_bf16),
                                           .weight = cpu_any(&weight, dnnl_bf16),
                                           .weight_gradient = cpu_any(&weight, dnnl_f32),
                                           .bias = cpu_plain(&bias, dnnl_f32),
                                           .y = cpu_any(&image, dnnl_bf16),
                                           .has_bias = true,
                                           .strides = {1, 1},
                                           .padding_begin = {1, 1},
                                           .padding_end = {1, 1}};
    for (cpu_pass pass = CPU_FORWARD; pass <= CPU_GRAD_WEIGHTS; pass++) {
        dnnl_primitive_desc_t descriptor = NULL;
        if (cpu_describe_convolution(engine, &d, pass, &descriptor) != FTH_OK)
            return false;
        dnnl_primitive_desc_destroy(descriptor);
    }
    return true;
}

bool cpu_has_bf16_instructions(void)
{
    return false;
}

double cpu_bf16_gain(void)
{
    return 2; /* not measured; the least that the instructions allow */
}

bool cpu_supports_bf16(dnnl_engine_t engine)
{
    fth_processor processor;
    fth_processor_describe(&processor);
    return processor.has_bf16 && has_kernels(engine);
}

fth_status cpu_refuse_bf16(const fth_device *device)
{
    fth_processor processor;
    fth_processor_describe(&processor);
    if (!processor.has_bf16)
        return fth_fail(FTH_UNSUPPORTED, "bf16 needs a CPU with bf16 instructions (this is %s); use --precision f32",
                        processor.name);
    return fth_fail(FTH_UNSUPPORTED,
                    "the CPU has bf16 instructions, but this oneDNN has no bf16 convolutions for them (%s); use "
                    "--precision f32",
                    device->description);
}

#endif
