/* The package as a zip, which Lambda unpacks to /var/task and starts by its file `bootstrap`. */
#include "package/package_internal.h"

fth_status fth_package_write_zip(const char *path, const fth_package_options *options, fth_package_facts *facts)
{
    fth_status status = FTH_OK;
    fth_package_contents contents = {0};
    fth_archive_target target = {0};
    fth_archive_output *zip = NULL;

    FTH_TRY(fth_package_collect(options, &contents));
    FTH_TRY(fth_file_create_output(path, &target.file));
    FTH_TRY(fth_archive_output_open(FTH_ARCHIVE_ZIP, &target, &zip));
    for (size_t i = 0; i < contents.count; i++) {
        const fth_package_file *file = &contents.files[i];
        FTH_TRY(fth_archive_output_add(zip, file->name, file->mode, file->bytes, file->size_bytes));
    }
    FTH_TRY(fth_archive_output_finish(zip));
    *facts = (fth_package_facts){.file_bytes = fth_file_size_bytes(target.file),
                                 .content_bytes = fth_package_content_bytes(&contents),
                                 .files = (int)contents.count};
    fth_file_sha256(target.file, facts->sha256);
    FTH_TRY(fth_file_publish(target.file));

out:
    fth_archive_output_free(zip);
    fth_file_free(target.file);
    fth_package_contents_release(&contents);
    return status;
}
