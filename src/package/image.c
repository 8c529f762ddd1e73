/* The package as an OCI image (https://github.com/opencontainers/image-spec): a tar of
 *
 *     oci-layout, index.json      which name the manifest
 *     manifest.json               the same for older versions of `docker load`
 *     blobs/sha256/DIGEST         manifest, configuration, and one layer: a compressed tar
 *
 * The image has the package's files in /var/task, and the few files in /etc that a C library
 * needs. */
#include <jansson.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "package/package_internal.h"

#define ROOT         "var/task/"
#define DEFAULT_NAME "farthing-function:" FTH_VERSION
#define MEDIA_TYPE   "application/vnd.oci.image."

enum { COMPRESSION_LEVEL = 6, DIGEST_SIZE = sizeof "sha256:" + 64 };

/* A part of the image, referred to by its digest. */
typedef struct blob {
    char *bytes;
    size_t size_bytes;
    char digest[DIGEST_SIZE];
} blob;

static void set_digest(const void *bytes, size_t size_bytes, char digest[DIGEST_SIZE])
{
    memcpy(digest, "sha256:", sizeof "sha256:");
    fth_hex_sha256(bytes, size_bytes, digest + strlen("sha256:"));
}

/* ---- the layer ---- */

static const struct {
    const char *name;
    unsigned mode;
} folders[] = {{"etc/", 0755}, {"tmp/", 01777}, {"var/", 0755}, {ROOT, 0755}, {ROOT "lib/", 0755}};

/* without nsswitch.conf the C library asks DNS before /etc/hosts */
static const struct {
    const char *name, *text;
} small_files[] = {{"etc/group", "root:x:0:\nnogroup:x:65534:\n"},
                   {"etc/nsswitch.conf", "hosts: files dns\n"},
                   {"etc/passwd", "root:x:0:0:root:/:/nonexistent\nnobody:x:65534:65534:nobody:/tmp:/nonexistent\n"}};

static fth_status write_tree(const fth_package_contents *contents, fth_archive_output *tar)
{
    fth_status status = FTH_OK;
    for (size_t i = 0; i < FTH_COUNT_OF(folders); i++)
        FTH_TRY(fth_archive_output_add_folder(tar, folders[i].name, folders[i].mode));
    for (size_t i = 0; i < FTH_COUNT_OF(small_files); i++)
        FTH_TRY(
            fth_archive_output_add(tar, small_files[i].name, 0644, small_files[i].text, strlen(small_files[i].text)));
    for (size_t i = 0; i < contents->count; i++) {
        const fth_package_file *file = &contents->files[i];
        char *name = fth_format(ROOT "%s", file->name);
        status = name ? fth_archive_output_add(tar, name, file->mode, file->bytes, file->size_bytes)
                      : fth_fail(FTH_NO_MEMORY, "no memory for the name of a file");
        free(name);
        FTH_TRY(status);
    }
    FTH_TRY(fth_archive_output_finish(tar));

out:
    return status;
}

static fth_status compress_layer(const fth_archive_target *tar, blob *layer)
{
    fth_status status = FTH_OK;
    struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(COMPRESSION_LEVEL);
    size_t room;

    FTH_REQUIRE(compressor, FTH_NO_MEMORY, "no memory to compress a layer");
    room = libdeflate_gzip_compress_bound(compressor, tar->size_bytes);
    FTH_TRY(fth_allocate(room, 1, &layer->bytes));
    layer->size_bytes = libdeflate_gzip_compress(compressor, tar->bytes, tar->size_bytes, layer->bytes, room);
    FTH_REQUIRE(layer->size_bytes > 0, FTH_IO, "cannot compress the image's layer");
    set_digest(layer->bytes, layer->size_bytes, layer->digest);

out:
    libdeflate_free_compressor(compressor);
    return status;
}

/* `uncompressed`: the digest of the tar, by which the configuration names the layer. */
static fth_status make_layer(const fth_package_contents *contents, blob *layer, char uncompressed[DIGEST_SIZE])
{
    fth_status status = FTH_OK;
    fth_archive_target target = {0};
    fth_archive_output *tar = NULL;

    FTH_TRY(fth_archive_output_open(FTH_ARCHIVE_TAR, &target, &tar));
    FTH_TRY(write_tree(contents, tar));
    set_digest(target.bytes, target.size_bytes, uncompressed);
    FTH_TRY(compress_layer(&target, layer));

out:
    fth_archive_output_free(tar);
    free(target.bytes);
    return status;
}

/* ---- what describes it ---- */

/* Takes `json`; NULL means no memory. */
static fth_status make_text(json_t *json, blob *text)
{
    text->bytes = json ? json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(json);
    if (!text->bytes)
        return fth_fail(FTH_NO_MEMORY, "no memory to describe an image");
    text->size_bytes = strlen(text->bytes);
    set_digest(text->bytes, text->size_bytes, text->digest);
    return FTH_OK;
}

static json_t *describe_configuration(const char *architecture, const char *uncompressed)
{
    json_t *config =
        json_pack("{s:[s], s:[s,s], s:{s:{}}, s:s, s:s}", "Entrypoint", "/" ROOT "bootstrap", "Env", "PATH=/" ROOT,
                  "HOME=/tmp", "ExposedPorts", "8080/tcp", "User", "65534:65534", "WorkingDir", "/" ROOT);
    return json_pack("{s:s, s:s, s:s, s:o, s:{s:s, s:[s]}}", "architecture", architecture, "os", "linux", "created",
                     "1980-01-01T00:00:00Z", "config", config, "rootfs", "type", "layers", "diff_ids", uncompressed);
}

static json_t *describe_blob(const char *media_type, const blob *part)
{
    return json_pack("{s:s, s:s, s:I}", "mediaType", media_type, "digest", part->digest, "size",
                     (json_int_t)part->size_bytes);
}

static json_t *describe_manifest(const blob *configuration, const blob *layer)
{
    return json_pack("{s:i, s:s, s:o, s:[o]}", "schemaVersion", 2, "mediaType", MEDIA_TYPE "manifest.v1+json", "config",
                     describe_blob(MEDIA_TYPE "config.v1+json", configuration), "layers",
                     describe_blob(MEDIA_TYPE "layer.v1.tar+gzip", layer));
}

static json_t *describe_index(const blob *manifest, const char *name, const char *architecture)
{
    json_t *entry = describe_blob(MEDIA_TYPE "manifest.v1+json", manifest);
    json_object_set_new(entry, "platform", json_pack("{s:s, s:s}", "architecture", architecture, "os", "linux"));
    json_object_set_new(entry, "annotations", json_pack("{s:s}", "org.opencontainers.image.ref.name", name));
    return json_pack("{s:i, s:s, s:[o]}", "schemaVersion", 2, "mediaType", MEDIA_TYPE "index.v1+json", "manifests",
                     entry);
}

/* ---- the archive ---- */

static char *blob_path(const blob *part)
{
    return fth_format("blobs/sha256/%s", part->digest + strlen("sha256:"));
}

static json_t *describe_for_docker(const blob *configuration, const blob *layer, const char *name)
{
    char *config_path = blob_path(configuration), *layer_path = blob_path(layer);
    json_t *json = config_path && layer_path ? json_pack("[{s:s, s:[s], s:[s]}]", "Config", config_path, "RepoTags",
                                                         name, "Layers", layer_path)
                                             : NULL;
    free(config_path);
    free(layer_path);
    return json;
}

static fth_status add_blob(fth_archive_output *tar, const blob *part)
{
    char *path = blob_path(part);
    fth_status status = path ? fth_archive_output_add(tar, path, 0644, part->bytes, part->size_bytes)
                             : fth_fail(FTH_NO_MEMORY, "no memory for a path");
    free(path);
    return status;
}

static fth_status check_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789./:_-";
    if (*name && name[strspn(name, allowed)] == '\0')
        return FTH_OK;
    return fth_fail(FTH_INVALID, "\"%s\" cannot name an image; expected a name such as farthing-function:0.1.0", name);
}

fth_status fth_package_write_image(const char *path, const fth_package_options *options, fth_package_facts *facts)
{
    static const char layout[] = "{\"imageLayoutVersion\":\"1.0.0\"}";
    fth_status status = FTH_OK;
    fth_package_contents contents = {0};
    blob layer = {0}, configuration = {0}, manifest = {0}, index = {0}, for_docker = {0};
    char uncompressed[DIGEST_SIZE];
    fth_archive_target target = {0};
    fth_archive_output *tar = NULL;
    const char *name = options->reference_name ? options->reference_name : DEFAULT_NAME;

    FTH_TRY(check_name(name));
    FTH_TRY(fth_package_collect(options, &contents));
    FTH_TRY(make_layer(&contents, &layer, uncompressed));
    FTH_TRY(make_text(describe_configuration(contents.architecture, uncompressed), &configuration));
    FTH_TRY(make_text(describe_manifest(&configuration, &layer), &manifest));
    FTH_TRY(make_text(describe_index(&manifest, name, contents.architecture), &index));
    FTH_TRY(make_text(describe_for_docker(&configuration, &layer, name), &for_docker));

    FTH_TRY(fth_file_create_output(path, &target.file));
    FTH_TRY(fth_archive_output_open(FTH_ARCHIVE_TAR, &target, &tar));
    FTH_TRY(fth_archive_output_add(tar, "oci-layout", 0644, layout, strlen(layout)));
    FTH_TRY(fth_archive_output_add(tar, "index.json", 0644, index.bytes, index.size_bytes));
    FTH_TRY(fth_archive_output_add(tar, "manifest.json", 0644, for_docker.bytes, for_docker.size_bytes));
    FTH_TRY(fth_archive_output_add_folder(tar, "blobs/", 0755));
    FTH_TRY(fth_archive_output_add_folder(tar, "blobs/sha256/", 0755));
    FTH_TRY(add_blob(tar, &configuration));
    FTH_TRY(add_blob(tar, &manifest));
    FTH_TRY(add_blob(tar, &layer));
    FTH_TRY(fth_archive_output_finish(tar));
    *facts = (fth_package_facts){.file_bytes = fth_file_size_bytes(target.file),
                                 .layer_bytes = layer.size_bytes,
                                 .content_bytes = fth_package_content_bytes(&contents),
                                 .files = (int)contents.count};
    fth_file_sha256(target.file, facts->sha256);
    FTH_TRY(fth_file_publish(target.file));

out:
    fth_archive_output_free(tar);
    fth_file_free(target.file);
    free(layer.bytes);
    free(configuration.bytes);
    free(manifest.bytes);
    free(index.bytes);
    free(for_docker.bytes);
    fth_package_contents_release(&contents);
    return status;
}
