/* The version of a data set: a SHA-256 of what decides which sample has which pixels and label.
 * What that is depends on the set:
 *
 *     built in              its name, and the version of the code that draws it
 *     files in memory       their contents (MNIST, CIFAR-10), decompressed; arrays likewise
 *     a folder of images    paths, sizes and modification times in nanoseconds: copies that keep the times (cp -a,
 *                           rsync -a) and network file systems give the same. A file that differs when it is read, after
 *                           the version was stated, is a bad image, as is an object of another etag
 *     text                  the contents of its tables, decompressed, and which columns are used
 *     a tar                 paths, sizes and the last bytes of every image, where a compressed image differs when
 *                           anything in it does; so too of archives that were unpacked into one
 *
 * and, for all of them, the names of the classes and which samples are held out. Where a set lies
 * is no part of it. */
#include "data/version.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "data/source/provided_set.h"
#include "data/text/text_set.h"

enum { FORMAT = 2 };

struct fth_version_hash {
    EVP_MD_CTX *digest;
    bool failed;
};

static void add(fth_version_hash *hash, const void *bytes, size_t size_bytes)
{
    hash->failed = hash->failed || !EVP_DigestUpdate(hash->digest, bytes, size_bytes);
}

void fth_version_add_number(fth_version_hash *hash, uint64_t number)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(number >> (8 * i));
    add(hash, bytes, sizeof bytes);
}

void fth_version_add_bytes(fth_version_hash *hash, const void *bytes, size_t size_bytes)
{
    fth_version_add_number(hash, size_bytes);
    add(hash, bytes, size_bytes);
}

void fth_version_add_text(fth_version_hash *hash, const char *text)
{
    fth_version_add_bytes(hash, text, strlen(text));
}

static void add_segments(const fth_dataset *dataset, fth_version_hash *hash)
{
    size_t image_bytes = fth_raw_bytes(dataset);
    for (int split = 0; split < 2; split++)
        for (int i = 0; i < dataset->parts[split].segment_count; i++) {
            const fth_segment *segment = &dataset->parts[split].segments[i];
            fth_version_add_number(hash, (uint64_t)segment->count);
            for (int64_t sample = 0; sample < segment->count; sample++) {
                add(hash, segment->pixels + (size_t)sample * segment->pixel_stride, image_bytes);
                add(hash, segment->labels + (size_t)sample * segment->label_stride, 1);
            }
        }
}

static void add_arrays(const fth_dataset *dataset, fth_version_hash *hash)
{
    int64_t counts[2] = {dataset->info.count[0], dataset->info.count[1]};
    if (dataset->held_out.any) {
        counts[FTH_TRAIN] += counts[FTH_VALIDATION];
        counts[FTH_VALIDATION] = 0;
    }
    for (int split = 0; split < 2; split++) {
        fth_version_add_number(hash, (uint64_t)counts[split]);
        for (int64_t i = 0; i < counts[split]; i++) {
            const uint8_t *pixels;
            int32_t label;
            fth_memory_set_look(dataset->memory, split, i, fth_raw_bytes(dataset), &pixels, &label);
            add(hash, pixels, fth_raw_bytes(dataset));
            fth_version_add_number(hash, (uint64_t)label);
        }
    }
}

static fth_status add_contents(const fth_dataset *dataset, fth_version_hash *hash)
{
    if (dataset->images)
        return fth_image_set_add_version(dataset->images, hash);
    if (dataset->text) {
        fth_text_set_add_version(dataset->text, hash);
        return FTH_OK;
    }
    fth_version_add_number(hash, (uint64_t)dataset->info.channels);
    fth_version_add_number(hash, (uint64_t)dataset->raw_height);
    fth_version_add_number(hash, (uint64_t)dataset->raw_width);
    if (dataset->gallery)
        fth_gallery_add_version(dataset->gallery, hash);
    else if (dataset->memory)
        add_arrays(dataset, hash);
    else
        add_segments(dataset, hash);
    return FTH_OK;
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
    if (dataset->provided) {
        snprintf(version, 65, "%s", fth_provided_version(dataset->provided));
        FTH_REQUIRE(version[0], FTH_UNSUPPORTED, "%s has no version", dataset->info.name);
        goto out;
    }
    FTH_REQUIRE(hash.digest && EVP_DigestInit_ex(hash.digest, EVP_sha256(), NULL), FTH_NO_MEMORY,
                "no memory for a checksum");
    fth_version_add_number(&hash, FORMAT);
    FTH_TRY(add_contents(dataset, &hash));
    add_classes(&dataset->info, &hash);
    add_split(dataset, &hash);
    FTH_REQUIRE(!hash.failed && EVP_DigestFinal_ex(hash.digest, digest, NULL), FTH_NO_MEMORY,
                "cannot compute the version of %s", dataset->info.name);
    fth_hex_encode(digest, 32, version);

out:
    EVP_MD_CTX_free(hash.digest);
    return status;
}
