/* farthing functions package: the program for functions with its libraries, as Lambda's zip or an
 * OCI image (src/package). */
#include <stdio.h>

#include "cli/functions/functions_cli.h"
#include "package/package.h"

typedef struct package_options {
    fth_option_bits set;
    char *zip, *image, *name, *program, *certificates;
    bool json;
} package_options;

#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, package_options, member)
static const fth_option rows[] = {
    {ROW("zip", TEXT, zip), .argument = "FILE",
     .help = "write the zip that Lambda takes, for its runtime provided.al2023; -: to standard output",
     .group = "The package"},
    {ROW("image", TEXT, image), .argument = "FILE",
     .help = "write an OCI image archive, for `podman load`, `skopeo copy oci-archive:FILE` and `docker load`"},
    {ROW("name", TEXT, name), .fallback = "farthing-function:" FTH_VERSION, .argument = "NAME:TAG",
     .help = "the image's name, once it is loaded"},
    {ROW("program", TEXT, program), .argument = "FILE",
     .help = "program to package; default: the farthing-function installed with this program"},
    {ROW("certificates", TEXT, certificates), .argument = "FILE",
     .help = "certificates (PEM) that the function trusts; default: this system's"},
    {ROW("json", SWITCH, json), .help = "report as one JSON object"},
};
static const fth_option_table table = FTH_OPTION_TABLE(rows, package_options);

static const char *given(const char *text)
{
    return *text ? text : NULL;
}

static void show(const package_options *asked, const char *kind, const char *path, const fth_package_facts *facts)
{
    if (asked->json) {
        json_t *json = json_pack("{s:s, s:o, s:I, s:I, s:i, s:s}", "kind", kind, "file", fth_cli_json_text(path),
                                 "size_bytes", (json_int_t)facts->file_bytes, "content_bytes",
                                 (json_int_t)facts->content_bytes, "files", facts->files, "sha256", facts->sha256);
        if (facts->layer_bytes > 0)
            json_object_set_new(json, "layer_bytes", json_integer((json_int_t)facts->layer_bytes));
        fth_cli_print_json_new(json);
        return;
    }
    fth_print_line(stdout, "%s: %s of %.1f MB, %s (%.1f MB unpacked), sha256 %s", fth_output_label(path), kind,
                   (double)facts->file_bytes / 1e6, FTH_COUNTED(facts->files, "file"),
                   (double)facts->content_bytes / 1e6, facts->sha256);
}

static fth_status write_package(const package_options *asked)
{
    fth_status status = FTH_OK;
    const fth_package_options options = {.program = given(asked->program),
                                         .certificates = given(asked->certificates),
                                         .reference_name = given(asked->name)};
    fth_package_facts facts;
    const char *path = *asked->zip ? asked->zip : asked->image;

    FTH_TRY(fth_output_prepare(path));
    FTH_TRY((*asked->zip ? fth_package_write_zip : fth_package_write_image)(path, &options, &facts));
    show(asked, *asked->zip ? "zip" : "image", path, &facts);

out:
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    const package_options *asked = options;
    (void)arguments;
    if (!*asked->zip == !*asked->image)
        return fth_cli_usage(command, "give either --zip FILE or --image FILE");
    return fth_cli_exit_code(write_package(asked));
}

const fth_command fth_functions_package = {
    .name = "functions package",
    .arguments = "--zip FILE | --image FILE [--flag value ...]",
    .summary = "write the function with its libraries as Lambda's zip or an OCI image, without Docker",
    .details = "The package contains the program farthing-function, its libraries and the certificates that it trusts. "
               "It\ncontains no keys: those come with an invocation or from the function's environment. The output "
               "is\nreproducible on the same machine.\n",
    .examples = (const fth_example[]){{"farthing functions package --zip function.zip", "for AWS Lambda"},
                                      {"farthing functions package --image function.tar", "for OpenWhisk"},
                                      {0}},
    .table = &table,
    .flags_only = true,
    .run = run,
};
