/* See startup_pages.h. */
#include "function_program/startup_pages.h"

#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* Pages that the loader changed are in no file; our libraries have none. */
static bool has_changed_code(const struct dl_phdr_info *object)
{
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *entry = (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++)
            if (entry->d_tag == DT_TEXTREL || (entry->d_tag == DT_FLAGS && entry->d_un.d_val & DF_TEXTREL))
                return true;
    }
    return false;
}

static int release(struct dl_phdr_info *object, size_t size, void *context)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    (void)size;
    (void)context;
    if (has_changed_code(object))
        return 0;
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        uintptr_t begin = (object->dlpi_addr + segment->p_vaddr + page - 1) / page * page;
        uintptr_t end = (object->dlpi_addr + segment->p_vaddr + segment->p_memsz) / page * page;
        if (segment->p_type == PT_LOAD && !(segment->p_flags & PF_W) && begin < end)
            madvise((void *)begin, end - begin, MADV_DONTNEED);
    }
    return 0;
}

void fth_startup_pages_release(void)
{
    dl_iterate_phdr(release, NULL);
}
