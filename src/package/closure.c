/* The libraries that a program needs, as its own loader lists them (`ld.so --list`): those it would
 * use on this machine. The program itself is not run. */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/child.h"
#include "package/package_internal.h"

enum { MOST_LIST_BYTES = 1 << 20 };
#define LIST_TIMEOUT_S 30.0

/* ---- the program's own headers ---- */

static const char *name_architecture(unsigned machine)
{
    switch (machine) {
    case EM_X86_64: return "amd64";
    case EM_AARCH64: return "arm64";
    default: return NULL;
    }
}

/* The path of the loader that the program names; NULL if it is statically linked. */
static char *copy_loader(const char *bytes, size_t size_bytes, const Elf64_Ehdr *header)
{
    for (size_t i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr segment;
        size_t at = header->e_phoff + i * sizeof segment;
        if (header->e_phoff > size_bytes || at > size_bytes - sizeof segment)
            return NULL;
        memcpy(&segment, bytes + at, sizeof segment);
        if (segment.p_type == PT_INTERP && segment.p_offset <= size_bytes &&
            segment.p_filesz <= size_bytes - segment.p_offset)
            return strndup(bytes + segment.p_offset, segment.p_filesz);
    }
    return NULL;
}

static fth_status read_headers(const char *program, fth_closure *closure)
{
    fth_status status = FTH_OK;
    const void *bytes = NULL;
    size_t size_bytes = 0;
    Elf64_Ehdr header;

    FTH_TRY(fth_file_map(program, &bytes, &size_bytes));
    FTH_REQUIRE(size_bytes > sizeof header && memcmp(bytes, ELFMAG, SELFMAG) == 0, FTH_INVALID,
                "%s is not a program of this system", program);
    memcpy(&header, bytes, sizeof header);
    closure->architecture = name_architecture(header.e_machine);
    FTH_REQUIRE(closure->architecture && header.e_ident[EI_CLASS] == ELFCLASS64 &&
                    header.e_phentsize == sizeof(Elf64_Phdr),
                FTH_UNSUPPORTED, "%s is for a processor that functions do not run on", program);
    closure->loader = copy_loader(bytes, size_bytes, &header);
    FTH_REQUIRE(closure->loader && *closure->loader, FTH_INVALID,
                "%s names no loader: only a dynamically linked program can be packaged", program);

out:
    fth_file_unmap(bytes, size_bytes);
    return status;
}

/* ---- the loader's list ---- */

static fth_status run_loader(const char *loader, const char *program, char **list)
{
    fth_status status = FTH_OK;
    pid_t child = 0;
    char *bytes = NULL;
    ssize_t length;
    /* A memory file, unlike a pipe, needs no concurrent reader. */
    int output = memfd_create("libraries", MFD_CLOEXEC);

    FTH_REQUIRE(output >= 0, FTH_IO, "make a file in memory: %s", strerror(errno));
    FTH_TRY(fth_child_start(&(fth_child_options){.program = loader,
                                                 .arguments = (const char *const[]){loader, "--list", program, NULL},
                                                 .variables = (const char *const[]){"LD_PRELOAD=", "LD_DEBUG=", NULL},
                                                 .output = output,
                                                 .message_output = output},
                            &child));
    fth_child_wait(child, fth_deadline_in(LIST_TIMEOUT_S));
    FTH_TRY(fth_allocate(MOST_LIST_BYTES, 1, &bytes));
    length = pread(output, bytes, MOST_LIST_BYTES - 1, 0);
    FTH_REQUIRE(length > 0, FTH_IO, "%s --list %s: no answer", loader, program);
    *list = bytes;
    bytes = NULL;

out:
    free(bytes);
    if (output >= 0)
        close(output);
    return status;
}

static fth_status add_library(fth_closure *closure, const char *name, const char *path)
{
    fth_status status = fth_grow(&closure->libraries, closure->count, &closure->capacity, sizeof *closure->libraries);
    if (status != FTH_OK)
        return status;
    fth_shared_library *added = &closure->libraries[closure->count++];
    *added = (fth_shared_library){.name = strdup(name), .path = strdup(path)};
    return added->name && added->path ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for the name of a library");
}

/* A line is "\tNAME => PATH (0xADDRESS)", or without "=> PATH" for the kernel's own library and the
 * loader. */
static fth_status take_line(fth_closure *closure, const char *program, char *line)
{
    char *arrow = strstr(line, " => ");
    const char *loader_name = strrchr(closure->loader, '/');
    line += strspn(line, " \t");
    if (!arrow)
        return FTH_OK;
    *arrow = '\0';
    char *path = arrow + strlen(" => ");
    path[strcspn(path, " ")] = '\0';
    if (*path != '/')
        return fth_fail(FTH_INVALID, "%s needs %s, which is not installed", program, line);
    if (*line == '/' || strcmp(line, loader_name ? loader_name + 1 : closure->loader) == 0)
        return FTH_OK; /* the loader, which every C library names too */
    return add_library(closure, line, path);
}

fth_status fth_closure_find(const char *program, fth_closure *closure)
{
    fth_status status = FTH_OK;
    char *list = NULL, *rest, *line;

    FTH_TRY(read_headers(program, closure));
    FTH_TRY(run_loader(closure->loader, program, &list));
    rest = list;
    while ((line = strsep(&rest, "\n")))
        FTH_TRY(take_line(closure, program, line));
    FTH_REQUIRE(closure->count > 0, FTH_INVALID, "%s lists no libraries of %s: %s", closure->loader, program, list);

out:
    free(list);
    return status;
}

void fth_closure_release(fth_closure *closure)
{
    for (size_t i = 0; i < closure->count; i++) {
        free(closure->libraries[i].name);
        free(closure->libraries[i].path);
    }
    free(closure->libraries);
    free(closure->loader);
    *closure = (fth_closure){0};
}
