/* See processors.h. */
#include "base/processors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

/* The value of the first "key : value" line of the file; "" if there is none. */
static void find_line(FILE *file, const char *key, char *value, size_t size)
{
    char *line = NULL;
    size_t capacity = 0;
    *value = '\0';
    rewind(file);
    while (!*value && getline(&line, &capacity, file) > 0) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(value, size, "%.*s", (int)strcspn(colon, "\n"), colon);
    }
    free(line);
}

/* Arm's processors have numbers instead of a name. */
static const char *name_arm_part(unsigned implementer, unsigned part)
{
    static const struct {
        unsigned implementer, part;
        const char *name;
    } parts[] = {{0x41, 0xd08, "Arm Cortex-A72"},  {0x41, 0xd0b, "Arm Cortex-A76"},  {0x41, 0xd0c, "Arm Neoverse N1"},
                 {0x41, 0xd40, "Arm Neoverse V1"}, {0x41, 0xd49, "Arm Neoverse N2"}, {0x41, 0xd4f, "Arm Neoverse V2"},
                 {0x41, 0xd84, "Arm Neoverse V3"}, {0x41, 0xd8e, "Arm Neoverse N3"}, {0xc0, 0xac3, "Ampere-1"},
                 {0xc0, 0xac4, "Ampere-1A"},       {0x46, 0x001, "Fujitsu A64FX"}};
    for (size_t i = 0; i < FTH_COUNT_OF(parts); i++)
        if (parts[i].implementer == implementer && parts[i].part == part)
            return parts[i].name;
    return NULL;
}

static void find_name(FILE *file, fth_processor *processor)
{
    char implementer[16], part[16];
    find_line(file, "model name", processor->name, sizeof processor->name);
    if (*processor->name)
        return;
    find_line(file, "CPU implementer", implementer, sizeof implementer);
    find_line(file, "CPU part", part, sizeof part);
    const char *known = name_arm_part((unsigned)strtoul(implementer, NULL, 16), (unsigned)strtoul(part, NULL, 16));
    if (known)
        snprintf(processor->name, sizeof processor->name, "%s", known);
    else if (*part)
        snprintf(processor->name, sizeof processor->name, "Arm part %s of implementer %s", part, implementer);
}

static void add_feature(fth_processor *processor, const char *name)
{
    const size_t length = strlen(processor->features);
    snprintf(processor->features + length, sizeof processor->features - length, "%s%s", length > 0 ? " " : "", name);
}

#if defined(__aarch64__)

static void find_features(FILE *file, fth_processor *processor)
{
    (void)file;
    processor->has_wide_vectors = true;
    add_feature(processor, "asimd"); /* which all have */
    if (getauxval(AT_HWCAP) & HWCAP_SVE)
        add_feature(processor, "sve");
    if (getauxval(AT_HWCAP2) & HWCAP2_SVE2)
        add_feature(processor, "sve2");
    processor->has_bf16 = getauxval(AT_HWCAP2) & HWCAP2_BF16;
    if (processor->has_bf16)
        add_feature(processor, "bf16");
}

#else

static bool has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = strstr(words, word); at; at = strstr(at + length, word))
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static void find_features(FILE *file, fth_processor *processor)
{
    static const char *const wanted[] = {"avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16"};
    char flags[8192];
    find_line(file, "flags", flags, sizeof flags);
    for (size_t i = 0; i < FTH_COUNT_OF(wanted); i++)
        if (has_word(flags, wanted[i]))
            add_feature(processor, wanted[i]);
    processor->has_wide_vectors = has_word(flags, "avx2");
    processor->has_bf16 = has_word(flags, "avx512_bf16") || has_word(flags, "amx_bf16");
}

#endif

void fth_processor_describe(fth_processor *processor)
{
    *processor = (fth_processor){0};
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file) {
        find_name(file, processor);
        find_features(file, processor);
        fclose(file);
    }
    if (!*processor->name)
        snprintf(processor->name, sizeof processor->name, "unknown");
}
