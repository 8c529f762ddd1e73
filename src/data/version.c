/* The version of a data set: a SHA-256 of what decides which sample has which pixels and label.
 *
 *     built in             its name, and the version of the code that draws it
 *     arrays in memory     their contents, decompressed (MNIST, CIFAR-10, arrays of a program)
 *     a folder of images   paths, sizes and modification times in nanoseconds. Copies that keep the
 *                          times (cp -a, rsync -a) and network file systems have the same version.
 *                          A file that has changed when it is read is a bad image, as is an object
 *                          with another etag
 *     a tar                paths, sizes and the last bytes of every image, which differ if anything
 *                          in a compressed image does; likewise for archives unpacked into a tar
 *     text                 the contents of its tables, decompressed, and which columns are used
 *
 * and, for all of them, the names of the classes and which samples are held out. Where a set is
 * stored has no influence. */
#include "data/version.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "data/data_internal.h"

enum { FORMAT = 2 };

struct fth_version_hash {
    EVP_MD_CTX *digest;
    bool failed;
};

void fth_version_add_raw(fth_version_hash *hash, const void *bytes, size_t size_bytes)
{
    hash->failed = hash->failed || !EVP_DigestUpdate(hash->digest, bytes, size_bytes);
}

void fth_version_add_number(fth_version_hash *hash, uint64_t number)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(number >> (8 * i));
    fth_version_add_raw(hash, bytes, sizeof bytes);
}

void fth_version_add_bytes(fth_version_hash *hash, const void *bytes, size_t size_bytes)
{
    fth_version_add_number(hash, size_bytes);
    fth_version_add_raw(hash, bytes, size_bytes);
}

void fth_version_add_text(fth_version_hash *hash, const char *text)
{
    fth_version_add_bytes(hash, text, strlen(text));
}

void fth_version_add_shape(fth_version_hash *hash, const fth_dataset *dataset)
{
    fth_version_add_number(hash, (uint64_t)dataset->info.channels);
    fth_version_add_number(hash, (uint64_t)dataset->raw.height);
    fth_version_add_number(hash, (uint64_t)dataset->raw.width);
}

static void add_classes(const fth_dataset_info *info, fth_version_hash *hash)
{
    fth_version_add_number(hash, (uint64_t)info->classes);
    for (int i = 0; i < info->classes; i++)
        fth_version_add_text(hash, info->class_names && info->class_names[i] ? info->class_names[i] : "");
}

static void add_split(const fth_dataset *dataset, fth_version_hash *hash)
{
    fth_held_out_add_version(&dataset->held_out, hash);
    for (int split = 0; split < 2; split++)
        fth_version_add_number(hash, (uint64_t)dataset->info.count[split]);
}

fth_status fth_dataset_version(const fth_dataset *dataset, char version[65])
{
    fth_status status = FTH_OK;
    unsigned char digest[EVP_MAX_MD_SIZE];
    fth_version_hash hash = {.digest = EVP_MD_CTX_new()};

    version[0] = '\0';
    if (dataset->kind->get_version) {
        snprintf(version, 65, "%s", dataset->kind->get_version(dataset));
        FTH_REQUIRE(version[0], FTH_UNSUPPORTED, "%s has no version", dataset->info.name);
        goto out;
    }
    FTH_REQUIRE(hash.digest && EVP_DigestInit_ex(hash.digest, EVP_sha256(), NULL), FTH_NO_MEMORY,
                "no memory for a checksum");
    fth_version_add_number(&hash, FORMAT);
    FTH_TRY(dataset->kind->add_version(dataset, &hash));
    add_classes(&dataset->info, &hash);
    add_split(dataset, &hash);
    FTH_REQUIRE(!hash.failed && EVP_DigestFinal_ex(hash.digest, digest, NULL), FTH_NO_MEMORY,
                "cannot compute the version of %s", dataset->info.name);
    fth_hex_encode(digest, 32, version);

out:
    EVP_MD_CTX_free(hash.digest);
    return status;
}
