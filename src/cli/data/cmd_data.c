/* farthing data: inspects sets of images and texts, packs and splits image files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "batches/client/client.h"
#include "cli/cli.h"
#include "cli/data/data_cli.h"
#include "data/data.h"
#include "data/image/image_inspect.h"
#include "report/report.h"
#include "text/tokenizer.h"
#include "train/setup/text_data.h"

#define AT(member)              offsetof(data_options, member)
#define ROW(flag, kind, member) FTH_OPTION_ROW(flag, kind, data_options, member)

static const fth_option data_rows[] = {
    {ROW("data", TEXT, data), .argument = "PATH", .help = "the set, instead of PATH", .address = true,
     .group = "Options"},
    {ROW("out", TEXT, out), .argument = "PATH",
     .help = "output: a .tar, or - for standard output (pack); a folder for tars to train from (shard)"},
    {ROW("shards", INTEGER, shards), .fallback = "4", .argument = "N", .help = "tars to split into (shard --out)",
     .minimum = 1, .maximum = 10000},
    {ROW("to", TEXT, shard.to), .argument = "ADDRESS",
     .help = "folder or bucket for parts of the training samples, for functions (shard)", .address = true,
     .group = "Shards for functions"},
    {ROW("parts", INTEGER, shard.parts), .fallback = "6", .argument = "N", .help = "parts to split into", .minimum = 1,
     .maximum = FTH_MOST_PARTS},
    {ROW("presign", DURATION, shard.presign_s), .argument = "TIME",
     .help = "print an address of each part that works for this long without keys"},
    {ROW("format", CHOICE, shard.format), .fallback = "auto", .choices = fth_shard_formats,
     .help = "contents of a part: MNIST or CIFAR-10 files, or image files unchanged"},
    {ROW("seed", INTEGER, shard.seed), .fallback = "1", .argument = "N",
     .help = "seed of the assignment of samples to parts", .minimum = 0, .maximum = 9007199254740992},
    {ROW("replace", SWITCH, shard.replace), .help = "remove existing parts"},
    {ROW("sheet", TEXT, sheet), .argument = "FILE.png",
     .help = "also draw some images of every class; -: to standard output (inspect)", .group = "Options"},
    {ROW("validation-fraction", NUMBER, validation_fraction), .fallback = "0.1", .argument = "X",
     .help = "share held out for validation if the set has no validation part", .minimum = 1e-6, .maximum = 0.99},
    {ROW("threads", INTEGER, threads), .fallback = "0", .argument = "N", .help = "threads that decode; 0: one per core",
     .minimum = 0, .maximum = 256},
    {ROW("json", SWITCH, json), .help = "print JSON"},
    {ROW("transform", TEXT, transform), .argument = "STEPS", .help = "transform to measure (bench)",
     .check = fth_transform_check},
    {ROW("image-size", INTEGER, image_size), .fallback = "0", .argument = "N",
     .help = "size of images to measure (bench); 0: as training would choose", .minimum = 0, .maximum = 4096},
    {ROW("batch", INTEGER, batch), .alias = "batch-size", .fallback = "64", .argument = "N",
     .help = "images per batch to measure (bench)", .minimum = 1, .maximum = 1e6},
    {ROW("seconds", DURATION, seconds), .fallback = "4", .argument = "TIME", .help = "how long to measure (bench)"},
    {ROW("decode-only", SWITCH, decode_only), .help = "measure the decoders alone (bench)"},
    {ROW("vocab", TEXT, text.vocab), .argument = "FILE|FOLDER",
     .help = "tokenizer: a tokenizer.json or vocab.txt, or a folder with one; if not given, one is learned",
     .group = "Text (inspect)"},
    {ROW("vocab-size", INTEGER, text.vocab_size), .fallback = "8192", .argument = "N",
     .help = "size of a learned vocabulary, in tokens", .minimum = 16, .maximum = 1e6},
    {ROW("max-length", INTEGER, text.max_length), .fallback = "128", .argument = "N",
     .help = "longest sample in tokens, [CLS] and [SEP] included; longer texts are cut", .minimum = 3,
     .maximum = 65536},
    {ROW("text-column", TEXT, text.text_column), .argument = "NAME|N",
     .help = "column of the text, by name or number from 1; several, separated by commas, are joined"},
    {ROW("pair-column", TEXT, text.pair_column), .argument = "NAME|N", .help = "column of the second text of a pair"},
    {ROW("label-column", TEXT, text.label_column), .argument = "NAME|N",
     .help = "column of the label; several, separated by commas, for regression, or of 0 and 1 for multi-label"},
    {ROW("task", CHOICE, text.task), .fallback = "classes", .argument = "KIND", .choices = fth_task_names,
     .help = "kind of labels: one of several classes, numbers (regression), or any number of classes (multi-label)"},
    FTH_S3_FLAG_ROWS(AT(s3)),
};
static const fth_option_table data_table = FTH_OPTION_TABLE(data_rows, data_options);

static int count_threads(const data_options *options)
{
    return options->threads > 0 ? (int)options->threads : fth_processors_usable();
}

/* ---- inspect ---- */

static fth_status print_classes(const fth_dataset_info *info, const fth_inspection *found)
{
    enum { SHOWN = 40 };
    fth_status status = FTH_OK;
    fth_table *table = NULL;

    FTH_TRY(FTH_TABLE(&table, "class", ">training", ">validation"));
    for (int i = 0; i < info->classes && i < SHOWN; i++) {
        char training[32], validation[32];
        fth_text_count(found->class_counts[FTH_TRAIN][i], training, sizeof training);
        fth_text_count(found->class_counts[FTH_VALIDATION][i], validation, sizeof validation);
        FTH_TRY(fth_table_add_row(table, (const char *[]){info->class_names[i], training, validation}));
    }
    fth_table_print(stdout, table);
    if (info->classes > SHOWN)
        printf("... and %s\n", FTH_COUNTED(info->classes - SHOWN, "more class"));

out:
    fth_table_free(table);
    return status;
}

static void print_sizes(const fth_inspection *found)
{
    printf("\nwidth %d to %d, median %d; height %d to %d, median %d\n", found->width[0], found->width[2],
           found->width[1], found->height[0], found->height[2], found->height[1]);
    for (int i = 0; i < found->size_buckets; i++)
        if (found->size_counts[i] > 0)
            printf("  longer side below %-6d %s\n", 64 << i, FTH_COUNTED(found->size_counts[i], NULL));
}

static void print_skipped(const fth_skipped_files *skipped)
{
    const int named = fth_skipped_files_named(skipped);
    printf("skipped, in formats that are not read: %s\n",
           skipped->count > 0 ? FTH_COUNTED(skipped->count, "file") : "none");
    for (int i = 0; i < named; i++)
        fth_print_line(stdout, "  %s", skipped->names[i]);
    if (skipped->count > named)
        printf("  ... and %s more\n", FTH_COUNTED(skipped->count - named, NULL));
}

static fth_status print_text(const fth_dataset_info *info, const fth_inspection *found,
                             const fth_skipped_files *skipped)
{
    enum { SHOWN = 20 };
    char formats[160] = "";
    for (size_t i = 0; fth_inspection_format(i).name; i++) {
        const size_t used = strlen(formats);
        snprintf(formats + used, sizeof formats - used, "%s%s %s", i > 0 ? ", " : "",
                 FTH_COUNTED(found->by_format[i], NULL), fth_inspection_format(i).name);
    }
    fth_print_line(stdout, "%s: %s, %s training and %s (%s)", info->name, FTH_COUNTED(info->classes, "class"),
                   FTH_COUNTED(info->count[FTH_TRAIN], NULL),
                   FTH_COUNTED(info->count[FTH_VALIDATION], "validation image"), formats);
    putchar('\n');
    fth_status status = print_classes(info, found);
    if (status != FTH_OK)
        return status;
    print_sizes(found);
    printf("\nmean %.4f %.4f %.4f, deviation %.4f %.4f %.4f (red, green, blue; pixels in 0 to 1)\n", found->mean[0],
           found->mean[1], found->mean[2], found->deviation[0], found->deviation[1], found->deviation[2]);
    printf("\ngrey: %s\n", found->grey > 0 ? FTH_COUNTED(found->grey, NULL) : "none");
    int shown = 0;
    for (char **name = found->grey_names; name && *name && shown < SHOWN; name++, shown++)
        fth_print_line(stdout, "  %s", *name);
    if (found->grey > shown)
        printf("  ... and %s more\n", FTH_COUNTED(found->grey - shown, NULL));
    printf("unreadable: %s\n", found->bad_count > 0 ? FTH_COUNTED(found->bad_count, NULL) : "none");
    for (int64_t i = 0; i < found->bad_count && i < 10 * SHOWN; i++)
        fth_print_line(stdout, "  %s: %s", found->bad[i].name, found->bad[i].reason);
    print_skipped(skipped);
    return FTH_OK;
}

static json_t *side_json(const int sides[3])
{
    return json_pack("{s:i, s:i, s:i}", "min", sides[0], "median", sides[1], "max", sides[2]);
}

static json_t *numbers_json(const double numbers[3])
{
    return json_pack("[ooo]", fth_json_number(numbers[0]), fth_json_number(numbers[1]), fth_json_number(numbers[2]));
}

static void print_json(const fth_dataset_info *info, const fth_inspection *found, const fth_skipped_files *skipped)
{
    json_t *classes = json_array(), *bad = json_array(), *sizes = json_array();
    for (int i = 0; i < info->classes; i++)
        json_array_append_new(classes, json_pack("{s:o, s:I, s:I}", "name", fth_cli_json_text(info->class_names[i]),
                                                 "training", (json_int_t)found->class_counts[FTH_TRAIN][i],
                                                 "validation", (json_int_t)found->class_counts[FTH_VALIDATION][i]));
    for (int64_t i = 0; i < found->bad_count; i++)
        json_array_append_new(bad, json_pack("{s:o, s:o}", "name", fth_cli_json_text(found->bad[i].name), "reason",
                                             fth_cli_json_text(found->bad[i].reason)));
    for (int i = 0; i < found->size_buckets; i++)
        json_array_append_new(sizes,
                              json_pack("{s:i, s:I}", "below", 64 << i, "count", (json_int_t)found->size_counts[i]));
    json_t *all = json_pack("{s:o, s:I, s:I, s:o}", "name", fth_cli_json_text(info->name), "training_samples",
                            (json_int_t)info->count[FTH_TRAIN], "validation_samples",
                            (json_int_t)info->count[FTH_VALIDATION], "classes", classes);
    for (size_t i = 0; fth_inspection_format(i).key; i++)
        json_object_set_new(all, fth_inspection_format(i).key, json_integer(found->by_format[i]));
    json_object_update_new(all, json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "grey", (json_int_t)found->grey,
                                          "width", side_json(found->width), "height", side_json(found->height),
                                          "longer_sides", sizes, "mean", numbers_json(found->mean), "deviation",
                                          numbers_json(found->deviation), "unreadable", bad, "skipped",
                                          fth_skipped_files_to_json(skipped)));
    fth_cli_print_json_new(all);
}

static fth_status inspect(const fth_dataset *dataset, const data_options *options)
{
    enum { COLUMNS = 8, ROWS = 40 };
    fth_status status = FTH_OK;
    fth_inspection found = {0};
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    const fth_skipped_files *skipped = fth_dataset_get_skipped_files(dataset);

    if (info->modality == FTH_MODALITY_TEXT)
        return fth_cli_inspect_text(dataset, options);
    FTH_TRY(fth_output_prepare(options->sheet));
    FTH_TRY(fth_dataset_inspect(dataset, count_threads(options), &found));
    if (options->json)
        print_json(info, &found, skipped);
    else
        FTH_TRY(print_text(info, &found, skipped));
    if (*options->sheet) {
        FTH_TRY(fth_dataset_draw_sheet(dataset, options->sheet, COLUMNS, ROWS));
        fth_log_info("some images of every class are in %s", fth_output_label(options->sheet));
    }

out:
    fth_inspection_release(&found);
    return status;
}

/* ---- pack, shard, bench ---- */

static void print_written(const data_options *options, int64_t files, int64_t bytes)
{
    char size[64];
    fth_text_bytes(bytes, size, sizeof size);
    if (options->json) {
        fth_cli_print_json_new(json_pack("{s:o, s:I, s:I}", "out", fth_cli_json_text(options->out), "files",
                                         (json_int_t)files, "bytes", (json_int_t)bytes));
    } else {
        fth_print_line(stdout, "wrote %s: %s, %s", fth_output_label(options->out), FTH_COUNTED(files, "file"), size);
    }
}

static fth_status pack(const fth_dataset *dataset, const data_options *options)
{
    int64_t bytes = 0;
    if (!*options->out)
        return fth_fail(FTH_INVALID, "give --out FILE.tar, the archive to write");
    fth_status status = fth_output_prepare(options->out);
    if (status == FTH_OK)
        status = fth_dataset_pack(dataset, options->out, &bytes);
    if (status == FTH_OK)
        print_written(options, 1, bytes);
    return status;
}

static fth_status shard(const fth_dataset *dataset, const data_options *options)
{
    int64_t bytes = 0;
    if (*options->shard.to)
        return fth_cli_write_shards(dataset, options);
    if (!*options->out)
        return fth_fail(FTH_INVALID,
                        "give --out FOLDER for tars to train from, or --to ADDRESS for parts for functions");
    fth_status status = fth_dataset_shard(dataset, (int)options->shards, options->out, &bytes);
    if (status == FTH_OK)
        print_written(options, options->shards, bytes);
    return status;
}

static fth_status bench(const fth_dataset *dataset, const data_options *options)
{
    double rate = 0;
    int64_t count = fth_dataset_get_info(dataset)->count[FTH_TRAIN];
    fth_loader_options how = {.split = FTH_TRAIN,
                              .batch = options->batch < count ? options->batch : count,
                              .seed = 1,
                              .shuffle = true,
                              .threads = count_threads(options)};
    fth_status status = fth_loader_benchmark(dataset, &how, options->seconds, options->decode_only, &rate);
    if (status == FTH_OK) {
        fth_cli_print_json_new(json_pack("{s:f, s:i, s:b}", "images_per_second", rate, "threads", how.threads,
                                         "decode_only", options->decode_only));
    }
    return status;
}

typedef struct data_action {
    const char *name, *summary;
    fth_status (*run)(const fth_dataset *dataset, const data_options *options);
    const char *images_for; /* as fth_dataset_options has it */
} data_action;

static const data_action actions[] = {
    {"inspect", "images: counts, classes, sizes, unreadable ones; text: classes, lengths, unknown tokens, samples",
     inspect, NULL},
    {"pack", "pack a set into one tar, which training reads in place", pack, "farthing data pack"},
    {"shard", "split a set into tars, or into parts in a bucket for functions, each with its share of every class",
     shard, "farthing data shard"},
    {"bench", "measure the loader, in images per second (for bench/loader)", bench, "farthing data bench"},
};

static fth_choice choose_action(size_t index)
{
    if (index >= FTH_COUNT_OF(actions))
        return (fth_choice){0};
    return (fth_choice){actions[index].name, actions[index].summary};
}

static fth_text_options make_text_options(const data_text_options *options, const fth_tokenizer *tokenizer)
{
    return (fth_text_options){.tokenizer = tokenizer,
                              .vocabulary = (int)options->vocab_size,
                              .longest = (int)options->max_length,
                              .text_column = options->text_column,
                              .pair_column = options->pair_column,
                              .label_column = options->label_column,
                              .label = fth_task_get_labels(fth_task_find(options->task)),
                              .keep_text = true};
}

static fth_status act(const data_action *action, const char *address, const data_options *options)
{
    fth_status status = FTH_OK;
    fth_tokenizer *tokenizer = NULL;
    fth_dataset *dataset = NULL;

    if (*options->text.vocab)
        FTH_TRY(fth_tokenizer_open(options->text.vocab, &tokenizer));
    const fth_store_options store = fth_s3_store_options(&options->s3, 0);
    const fth_dataset_options how = {.seed = 1,
                                     .store = &store,
                                     .schemes = fth_batches_schemes,
                                     .validation_fraction = options->validation_fraction,
                                     .threads = count_threads(options),
                                     .image_size = (int)options->image_size,
                                     .transform = options->transform,
                                     .text = make_text_options(&options->text, tokenizer),
                                     .images_for = action->images_for};
    FTH_TRY(fth_dataset_open(address, &how, &dataset));
    FTH_TRY(action->run(dataset, options));

out:
    fth_dataset_free(dataset);
    fth_tokenizer_free(tokenizer);
    return status;
}

static fth_exit_code run(const fth_command *command, void *options, const fth_arguments *arguments)
{
    const data_options *asked = options;
    const data_action *action = NULL;
    for (size_t i = 0; arguments->count > 0 && i < FTH_COUNT_OF(actions); i++)
        if (strcmp(actions[i].name, arguments->positional[0]) == 0)
            action = &actions[i];
    if (arguments->count > 0 && !action)
        return fth_cli_usage_choice(command, "what to do", arguments->positional[0], choose_action);
    if (arguments->count != (*asked->data ? 1 : 2))
        return fth_cli_usage(command, *asked->data && action
                                          ? "give the set as PATH or with --data, not both"
                                          : "missing an action or a data set: farthing data inspect|pack|shard PATH");
    return fth_cli_exit_code(act(action, *asked->data ? asked->data : arguments->positional[1], asked));
}

const fth_command fth_command_data = {
    .name = "data",
    .arguments = "inspect|pack|shard PATH [--flag value ...]",
    .summary = "inspect images or texts, pack images into a tar, split them into shards",
    .details =
        "PATH is a folder with train/<class>/ and val/<class>/, or with <class>/ alone; a .tar, .tar.gz, .tar.xz,\n"
        ".tar.zst or .zip of one; an https:// address of such a file (URL#sha256=... is checked); or s3://, gs:// or\n"
        "az:// with class folders, tars or an index file (docs/data.md). Or it is text: a .csv, .tsv or .jsonl file, "
        "or a\n"
        "folder or bucket with train.csv and test.csv (docs/text.md).\n",
    .table = &data_table,
    .actions = choose_action,
    .examples =
        (const fth_example[]){
            {"farthing data inspect ./photos --sheet sheet.png", "with some images of every class"},
            {"farthing data inspect ./ag_news --vocab ./bert-base-uncased", "lengths and labels of text"},
            {"farthing data pack ./photos --out photos.tar", "one file to copy"},
            {"farthing data shard --data mnist/ --parts 6 --to s3://bucket/mnist --presign 1h",
             "for six functions, with addresses that need no keys"},
            {0}},
    .run = run,
};
