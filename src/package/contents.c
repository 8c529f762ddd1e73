/* Collects the files of a package: the program, its bootstrap, libraries and certificates. */
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "package/package_internal.h"

#define PROGRAM  "farthing-function"
#define LAUNCHER "farthing-bootstrap"

static const char *const certificate_files[] = {
    "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Ubuntu, Alpine */
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* Fedora, Red Hat, Amazon Linux */
    "/etc/ssl/ca-bundle.pem",                            /* openSUSE */
};

/* ---- where they are ---- */

fth_status fth_package_find_program(char **path)
{
    static const char *const folders[] = {"", FTH_FUNCTION_FROM_PROGRAM};
    char own[4096];
    char *folder = fth_path_folder(fth_process_program(own, sizeof own));
    for (size_t i = 0; folder && i < FTH_COUNT_OF(folders); i++) {
        char *there = fth_path_join(folder, folders[i]);
        *path = fth_path_join(there, PROGRAM);
        free(there);
        if (fth_file_exists(*path)) {
            free(folder);
            return FTH_OK;
        }
        free(*path);
        *path = NULL;
    }
    fth_status status = fth_fail(FTH_INVALID,
                                 "cannot find " PROGRAM " in %s or %s/" FTH_FUNCTION_FROM_PROGRAM
                                 "; build it (`make`), or say where it is with --program",
                                 folder ? folder : ".", folder ? folder : ".");
    free(folder);
    return status;
}

static const char *find_certificates(void)
{
    for (size_t i = 0; i < FTH_COUNT_OF(certificate_files); i++)
        if (fth_file_exists(certificate_files[i]))
            return certificate_files[i];
    return NULL;
}

/* ---- their bytes ---- */

static fth_status add(fth_package_contents *contents, char *name, unsigned mode, const char *path)
{
    fth_status status = FTH_OK;
    fth_package_file *added;

    FTH_REQUIRE(name, FTH_NO_MEMORY, "no memory for the name of a file");
    FTH_TRY(fth_grow(&contents->files, contents->count, &contents->capacity, sizeof *contents->files));
    added = &contents->files[contents->count];
    *added = (fth_package_file){.name = name, .mode = mode};
    FTH_TRY(fth_file_map(path, &added->bytes, &added->size_bytes));
    contents->count++;
    name = NULL;

out:
    free(name);
    return status;
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(((const fth_package_file *)left)->name, ((const fth_package_file *)right)->name);
}

fth_status fth_package_collect(const fth_package_options *options, fth_package_contents *contents)
{
    fth_status status = FTH_OK;
    fth_closure closure = {0};
    char *found = NULL, *folder = NULL, *launcher = NULL;
    const char *program = options->program;
    const char *certificates = options->certificates ? options->certificates : find_certificates();

    if (!program) {
        FTH_TRY(fth_package_find_program(&found));
        program = found;
    }
    FTH_REQUIRE(certificates, FTH_INVALID,
                "no certificates to trust in %s; install ca-certificates, or name a file with --certificates",
                certificate_files[0]);
    folder = fth_path_folder(program);
    launcher = fth_path_join(folder, LAUNCHER);
    FTH_TRY(fth_closure_find(program, &closure));
    contents->architecture = closure.architecture;
    FTH_TRY(add(contents, strdup("bootstrap"), 0755, launcher));
    FTH_TRY(add(contents, strdup(PROGRAM), 0755, program));
    FTH_TRY(add(contents, strdup("ca-certificates.crt"), 0644, certificates));
    FTH_TRY(add(contents, strdup("lib/ld.so"), 0755, closure.loader));
    for (size_t i = 0; i < closure.count; i++)
        FTH_TRY(add(contents, fth_path_join("lib", closure.libraries[i].name), 0644, closure.libraries[i].path));
    qsort(contents->files, contents->count, sizeof *contents->files, compare_names);

out:
    fth_closure_release(&closure);
    free(found);
    free(folder);
    free(launcher);
    return status;
}

void fth_package_contents_release(fth_package_contents *contents)
{
    for (size_t i = 0; i < contents->count; i++) {
        free(contents->files[i].name);
        fth_file_unmap(contents->files[i].bytes, contents->files[i].size_bytes);
    }
    free(contents->files);
    *contents = (fth_package_contents){0};
}

uint64_t fth_package_content_bytes(const fth_package_contents *contents)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < contents->count; i++)
        bytes += contents->files[i].size_bytes;
    return bytes;
}
