/* What the files of `farthing data` share. */
#ifndef FTH_CLI_DATA_CLI_H
#define FTH_CLI_DATA_CLI_H

#include "base/options.h"
#include "cli/store/s3_flags.h"
#include "data/data.h"
#include "data/shard/shard_write.h"

typedef struct data_shard_options {
    char *to, *format;
    int64_t parts, seed;
    double presign_s;
    bool replace;
} data_shard_options;

typedef struct data_text_options {
    char *vocab, *text_column, *pair_column, *label_column, *task;
    int64_t vocab_size, max_length;
} data_text_options;

typedef struct data_options {
    fth_option_bits set;
    char *data, *out, *sheet, *transform;
    int64_t shards, threads, image_size, batch;
    double validation_fraction, seconds;
    bool json, decode_only;
    data_shard_options shard;
    data_text_options text;
    fth_s3_flags s3;
} data_options;

/* data_shard.c: parts for functions, and their addresses. */
fth_status fth_cli_write_shards(const fth_dataset *dataset, const data_options *options);

/* data_text.c: describes a set of text that was opened with keep_text. */
fth_status fth_cli_inspect_text(const fth_dataset *dataset, const data_options *options);

#endif
