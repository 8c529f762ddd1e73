/* `bootstrap` of a package (src/package): starts farthing-function with the loader and libraries of
 * the package, wherever it was unpacked. A program names its loader by an absolute path, so this
 * one is linked statically. It also sets the certificates to trust, which the host may lack.
 *
 * Libraries come from the package, whatever LD_LIBRARY_PATH says. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static char folder[PATH_MAX];

/* The path of this program, from /proc or else from argv[0]. */
static int find_folder(void)
{
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (length <= 0) {
        const char *path = (const char *)getauxval(AT_EXECFN);
        length = path ? (ssize_t)strlen(path) : 0;
        if (length <= 0 || (size_t)length >= sizeof folder)
            return -1;
        memcpy(folder, path, (size_t)length);
    }
    folder[length] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    else
        memcpy(folder, ".", sizeof ".");
    return 0;
}

static char *join(const char *name)
{
    char *path = malloc(strlen(folder) + 1 + strlen(name) + 1);
    if (path)
        stpcpy(stpcpy(stpcpy(path, folder), "/"), name);
    return path;
}

int main(int argc, char **argv)
{
    enum { OWN_ARGUMENTS = 7 }; /* before the given arguments */
    char **arguments = calloc(OWN_ARGUMENTS + (size_t)argc + 1, sizeof *arguments);
    if (find_folder() != 0 || !arguments) {
        fprintf(stderr, "bootstrap: cannot find out where it is\n");
        return 1;
    }
    char *loader = join("lib/ld.so"), *libraries = join("lib"), *program = join("farthing-function");
    char *certificates = join("ca-certificates.crt");
    if (!loader || !libraries || !program || !certificates) {
        fprintf(stderr, "bootstrap: no memory\n");
        return 1;
    }
    if (access(certificates, R_OK) == 0)
        setenv("SSL_CERT_FILE", certificates, 0);
    char *own[OWN_ARGUMENTS] = {
        loader, "--inhibit-cache", "--library-path", libraries, "--argv0", argc > 0 ? argv[0] : "bootstrap", program};
    memcpy(arguments, own, sizeof own);
    for (int i = 1; i < argc; i++)
        arguments[OWN_ARGUMENTS + i - 1] = argv[i];
    execv(loader, arguments);
    fprintf(stderr, "bootstrap: cannot start %s: %s; unpack the whole package, with its folder lib\n", loader,
            strerror(errno));
    return 1;
}
