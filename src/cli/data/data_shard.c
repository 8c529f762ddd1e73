/* farthing data shard --to: writes the training samples of a set in parts to a store, and prints
 * their addresses for functions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/data/data_cli.h"
#include "report/report.h"

/* (shard_count), of which each is to be wiped. */
static fth_status make_urls(fth_store *store, const fth_shard_manifest *manifest, double seconds, char **urls)
{
    fth_status status = FTH_OK;
    for (size_t i = 0; i < manifest->shard_count; i++)
        FTH_TRY(fth_shard_make_url(store, manifest->shards[i].name, seconds, &urls[i]));

out:
    return status;
}

static void print_shards_json(const fth_store *store, const fth_shard_manifest *manifest, int written,
                              char *const *urls)
{
    json_t *shards = json_array();
    for (size_t i = 0; i < manifest->shard_count; i++) {
        const fth_listed_shard *shard = &manifest->shards[i];
        json_t *json = json_pack("{s:s, s:I, s:I, s:s}", "name", shard->name, "samples", (json_int_t)shard->samples,
                                 "size_bytes", (json_int_t)shard->size_bytes, "sha256", shard->sha256);
        if (urls)
            json_object_set_new(json, "url", json_string(urls[i]));
        json_array_append_new(shards, json);
    }
    fth_cli_print_json_new(json_pack("{s:o, s:o, s:I, s:i, s:o}", "to", fth_cli_json_text(fth_store_url(store)),
                                     "dataset", fth_cli_json_text(manifest->dataset), "samples",
                                     (json_int_t)manifest->samples, "uploaded", written, "shards", shards));
}

static void print_shards(const fth_store *store, const fth_shard_manifest *manifest, int written)
{
    int64_t bytes = 0;
    char size[64];
    for (size_t i = 0; i < manifest->shard_count; i++)
        bytes += (int64_t)manifest->shards[i].size_bytes;
    fth_text_bytes(bytes, size, sizeof size);
    fth_print_line(stdout, "%s %s: %s of %s, %s, %s", written > 0 ? "wrote" : "unchanged:", fth_store_url(store),
                   FTH_COUNTED(manifest->shard_count, "part"), manifest->dataset,
                   FTH_COUNTED(manifest->samples, "sample"), size);
    fth_print_line(stdout, "a parameter server deals them out with: farthing serve parameters --shards %s ...",
                   fth_store_url(store));
}

fth_status fth_cli_write_shards(const fth_dataset *dataset, const data_options *options)
{
    fth_status status = FTH_OK;
    const fth_store_options how = fth_s3_store_options(&options->s3, 0);
    const data_shard_options *given = &options->shard;
    fth_store *store = NULL;
    fth_shard_manifest manifest = {0};
    char **urls = NULL;
    int written = 0;

    FTH_REQUIRE(!*options->out, FTH_INVALID, "--out is for tars to train from, --to for parts: give one of them");
    FTH_TRY(fth_store_open(given->to, &how, &store));
    FTH_REQUIRE(strncmp(fth_store_url(store), "http", 4) != 0, FTH_INVALID,
                "--to %s: a web server is read-only; give a folder, s3://, gs:// or az://", given->to);
    FTH_TRY(fth_dataset_write_shards(dataset, store,
                                     &(fth_shard_write_options){.parts = (int)given->parts,
                                                                .seed = (uint64_t)given->seed,
                                                                .format = given->format,
                                                                .replace = given->replace},
                                     &manifest, &written));
    if (given->presign_s > 0) {
        FTH_TRY(fth_allocate(manifest.shard_count, sizeof *urls, &urls));
        FTH_TRY(make_urls(store, &manifest, given->presign_s, urls));
    }
    if (options->json)
        print_shards_json(store, &manifest, written, urls);
    else if (urls)
        for (size_t i = 0; i < manifest.shard_count; i++)
            puts(urls[i]); /* with its signature, as requested */
    else
        print_shards(store, &manifest, written);

out:
    for (size_t i = 0; urls && i < manifest.shard_count; i++)
        fth_wipe_text(urls[i]);
    free(urls);
    fth_shard_manifest_release(&manifest);
    fth_store_free(store);
    return status;
}
