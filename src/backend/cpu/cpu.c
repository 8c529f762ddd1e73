/* The CPU back end on oneDNN: its table, device and memory. */
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/cpu/bf16.h"
#include "backend/cpu/convolution.h"
#include "backend/cpu/cpu_internal.h"
#include "backend/cpu/relative_time.h"
#include "backend/vector/tiles_supported.h"

static const char *isa_name(dnnl_cpu_isa_t isa)
{
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } names[] = {
#if defined(__aarch64__) /* oneDNN's header has no names for these; x86 uses the same numbers */
        {0x1, "asimd"},
        {0x3, "sve_128"},
        {0x7, "sve_256"},
        {0xf, "sve_384"},
        {0x1f, "sve_512"},
        {0x27, "sve_512"}, /* in later versions */
#else
        {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
        {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
        {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
        {dnnl_cpu_isa_avx512_core, "avx512_core"},
        {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
        {dnnl_cpu_isa_avx2, "avx2"},
        {dnnl_cpu_isa_avx, "avx"},
        {dnnl_cpu_isa_sse41, "sse4.1"},
#endif
    };
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        if (isa == names[i].isa)
            return names[i].name;
    }
    return "generic";
}

/* The limit that oneDNN's own variables set; NULL: none. */
static const char *onednn_isa(void)
{
    const char *isa = getenv("ONEDNN_MAX_CPU_ISA");
    return isa ? isa : getenv("DNNL_MAX_CPU_ISA");
}

/* A user who chooses oneDNN's instructions leaves AMX to it: our own kernels then do not use it. */
static bool user_chose_isa(void)
{
    return onednn_isa();
}

/* Any other name means at most AVX-512. */
static bool user_allows_tiles(void)
{
    const char *isa = onednn_isa();
    return !isa || strcasestr(isa, "amx") || strcasecmp(isa, "all") == 0 || strcasecmp(isa, "default") == 0;
}

/* Holds oneDNN to the same level as our own kernels, whatever its own variables say. Must come
 * before any other oneDNN call, since that fixes the instruction set. */
static void limit_onednn(fth_vector_level level)
{
    if (level < fth_vector_level_best())
        dnnl_set_max_cpu_isa(level == FTH_LEVEL_AVX2 ? dnnl_cpu_isa_avx2 : dnnl_cpu_isa_sse41);
    else if (fth_tiles_are_hidden() && !user_chose_isa())
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16); /* or it would crash with an illegal instruction */
    else if (level == FTH_LEVEL_AVX512 && !fth_vector_level_allows_tiles() && user_allows_tiles())
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
}

static void close_device(fth_device *device)
{
    cpu_device *cpu = (cpu_device *)device;
    if (cpu->stream)
        dnnl_stream_destroy(cpu->stream);
    if (cpu->engine)
        dnnl_engine_destroy(cpu->engine);
    free(cpu);
}

static fth_status open_device(const fth_device_options *options, fth_device **device)
{
    fth_status status = FTH_OK;
    cpu_device *cpu = NULL;
    FTH_TRY(fth_allocate(1, sizeof *cpu, &cpu));
    cpu->base.backend = &fth_backend_cpu;
    const int cores = fth_processors_usable();
    cpu->base.threads = options->threads > 0 ? options->threads : cores;
    if (cpu->base.threads > cores)
        fth_log_warning("%d threads on %s slow each other down; use --threads 0 for one per core", cpu->base.threads,
                        FTH_COUNTED(cores, "usable core"));
    omp_set_num_threads(cpu->base.threads);
    FTH_TRY(cpu_level_choose(&cpu->level));
    FTH_TRY(cpu_convolution_forced(&cpu->convolution));
    limit_onednn(cpu->level->level);
    CPU_TRY(dnnl_engine_create(&cpu->engine, dnnl_cpu, 0));
    CPU_TRY(dnnl_stream_create(&cpu->stream, cpu->engine, dnnl_stream_default_flags));
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    if (cpu_has_bf16_instructions())
        cpu->level = cpu_level_with_bf16(cpu->level);
    cpu->bf16 = cpu_supports_bf16(cpu->engine);
    cpu->bf16_gain = cpu_bf16_gain();
    if (cpu->level->level == FTH_LEVEL_AVX512 && fth_vector_level_allows_tiles() && cpu_has_bf16_instructions() &&
        !user_chose_isa())
        cpu->products = bf16_kernels_of_machine();
    const dnnl_version_t *version = dnnl_version();
    snprintf(cpu->base.description, sizeof cpu->base.description, "CPU, %s, oneDNN %d.%d.%d %s%s, %s",
             fth_vector_level_name(cpu->level->level), version->major, version->minor, version->patch, isa_name(isa),
             cpu->products ? ", AMX" : "", FTH_COUNTED(cpu->base.threads, "thread"));
    *device = &cpu->base;
    cpu = NULL;
out:
    if (cpu)
        close_device(&cpu->base);
    return status;
}

/* OpenMP stores the number of threads per calling thread, so it is set wherever a plan is built or
 * run. */
static void enter_device(fth_device *device, int threads)
{
    (void)device;
    if (omp_get_max_threads() != threads)
        omp_set_num_threads(threads);
}

/* Large areas are aligned to huge pages, with advice to use them: fewer TLB misses in big
 * activations. */
static fth_status allocate(fth_device *device, size_t size_bytes, void **memory)
{
    (void)device;
    enum { HUGE_PAGE = 2 << 20 };
    size_t alignment = size_bytes >= 4 * (size_t)HUGE_PAGE ? HUGE_PAGE : FTH_ALIGNMENT;
    size_t rounded = fth_align_up(size_bytes ? size_bytes : 1, alignment);
    void *made = rounded >= size_bytes ? aligned_alloc(alignment, rounded) : NULL;
    if (!made)
        return fth_fail(FTH_NO_MEMORY, "no memory for %.1f MB of tensors; try a smaller batch",
                        (double)size_bytes / 1e6);
    if (alignment == HUGE_PAGE)
        madvise(made, rounded, MADV_HUGEPAGE); /* only advice: may fail */
    memset(made, 0, rounded);
    *memory = made;
    return FTH_OK;
}

static void release(fth_device *device, void *memory)
{
    (void)device;
    free(memory);
}

/* One core cannot saturate the memory bandwidth. Large copies are checkpoints, which training waits
 * for. */
static fth_status copy(fth_device *device, void *to, const void *from, size_t size_bytes)
{
    enum { PIECE_BYTES = 1 << 20, PARALLEL_BYTES = 8 << 20 };
    if (size_bytes < PARALLEL_BYTES || device->threads < 2) {
        memcpy(to, from, size_bytes);
        return FTH_OK;
    }
    const size_t pieces = (size_bytes + PIECE_BYTES - 1) / PIECE_BYTES;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (size_t i = 0; i < pieces; i++) {
        size_t at = i * PIECE_BYTES, left = size_bytes - at;
        memcpy((char *)to + at, (const char *)from + at, left < PIECE_BYTES ? left : PIECE_BYTES);
    }
    return FTH_OK;
}

static fth_status fill_zero(fth_device *device, void *memory, size_t size_bytes)
{
    (void)device;
    memset(memory, 0, size_bytes);
    return FTH_OK;
}

/* All calls of this back end are synchronous. */
static fth_status synchronize(fth_device *device, fth_deadline deadline)
{
    (void)device;
    (void)deadline;
    return FTH_OK;
}

static fth_status check_precision(fth_device *device, fth_precision precision)
{
    if (precision == FTH_PRECISION_F16 || precision == FTH_PRECISION_TF32)
        return fth_fail(FTH_UNSUPPORTED, "the CPU computes in f32 or bf16; f16 and tf32 need --device cuda");
    if (precision == FTH_PRECISION_BF16 && !((cpu_device *)device)->bf16)
        return cpu_refuse_bf16(device);
    return FTH_OK;
}

static dnnl_data_type_t dtype_of(fth_dtype dtype)
{
    switch (dtype) {
    case FTH_I32: return dnnl_s32;
    case FTH_U8: return dnnl_u8;
    case FTH_BF16: return dnnl_bf16;
    default: return dnnl_f32;
    }
}

static fth_status describe_plain(fth_plan *plan, fth_value value)
{
    fth_type type = fth_plan_type(plan, value);
    cpu_format layout = cpu_plain(&type.shape, dtype_of(type.dtype));
    return cpu_set_layout(plan, fth_plan_value_of(plan, value), &layout);
}

static const fth_kernel *const kernels[] = {
#define ROW(name)  &cpu_##name,
#define PAIR(name) &cpu_##name, &cpu_##name##_grad,
    FTH_OPS(ROW) FTH_ACTIVATIONS(PAIR)
#undef ROW
#undef PAIR
        NULL,
};

const fth_backend fth_backend_cpu = {
    .abi = FTH_BACKEND_ABI,
    .name = "cpu",
    .host_memory = true,
    .open = open_device,
    .close = close_device,
    .enter = enter_device,
    .allocate = allocate,
    .release = release,
    .copy_in = copy,
    .copy_out = copy,
    .fill_zero = fill_zero,
    .synchronize = synchronize,
    .add = cpu_vector_add,
    .norm = cpu_vector_norm,
    .updates = cpu_updates,
    .kernels = kernels,
    .check_precision = check_precision,
    .relative_time = cpu_relative_time,
    .describe_plain = describe_plain,
};
