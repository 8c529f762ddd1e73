/* See text_set.h. Opening a set: find the files, read the rows, hold some out, turn labels into
 * classes, learn a vocabulary if none is given, and encode all rows on several threads. */
#include "data/text/text_set.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/process.h"
#include "data/loader/loader.h"
#include "data/source/object_address.h"
#include "data/text/text_files.h"
#include "data/text/text_rows.h"

enum { USUAL_VOCABULARY = 8192, USUAL_LONGEST = 128, SHORTEST = 3, PIECE = 1024, MAX_ENCODERS = 16 };

typedef struct text_part {
    int64_t count;
    int32_t *tokens;
    uint64_t *begins; /* (count) offsets among the tokens */
    uint32_t *lengths, *firsts;
    int32_t *labels; /* or NULL */
    float *targets;  /* (count, classes), or NULL */
} text_part;

struct fth_text_set {
    char *name;
    fth_tokenizer *learned;
    const fth_tokenizer *tokenizer; /* the learned one or the caller's */
    fth_labels *labels;
    char **label_names; /* of the label columns, later of numbers; ends with NULL */
    int label_columns;
    int classes;
    fth_held_out_samples held_out; /* of the training rows, if there are no validation rows */
    text_part parts[2];            /* by fth_split */
    fth_text_rows rows[2];         /* by file; freed once they are encoded, unless keep_text */
    uint64_t contents;             /* a hash of the files' bytes */
};

static void free_part(text_part *part)
{
    free(part->tokens);
    free(part->begins);
    free(part->lengths);
    free(part->firsts);
    free(part->labels);
    free(part->targets);
}

static void free_set(void *state)
{
    fth_text_set *set = state;
    if (!set)
        return;
    for (int split = 0; split < 2; split++) {
        free_part(&set->parts[split]);
        fth_text_rows_release(&set->rows[split]);
    }
    for (int i = 0; i < set->label_columns; i++)
        free(set->label_names[i]);
    free(set->label_names);
    fth_labels_free(set->labels);
    fth_tokenizer_free(set->learned);
    fth_held_out_release(&set->held_out);
    free(set->name);
    free(set);
}

/* ---- reading ---- */

/* Keeps the names of the label columns; later files must have as many. */
static fth_status meet_label_columns(fth_text_set *set, fth_text_table *table, const fth_columns *columns,
                                     fth_label_kind kind)
{
    fth_status status = FTH_OK;
    const int count = columns->label.count;

    FTH_REQUIRE(!set->label_names || set->label_columns == count, FTH_INVALID,
                "%s has %s, where the table before it has %d", fth_text_table_name(table),
                FTH_COUNTED(count, "label column"), set->label_columns);
    if (set->label_names)
        goto out;
    FTH_TRY(fth_allocate((size_t)count + 1, sizeof *set->label_names, &set->label_names));
    for (; set->label_columns < count; set->label_columns++) {
        int32_t number = 0;
        char **name = &set->label_names[set->label_columns];
        FTH_TRY(fth_columns_name(table, columns, columns->label.columns[set->label_columns], name));
        if (kind == FTH_LABEL_SET && count > 1) {
            FTH_TRY(fth_labels_meet(set->labels, *name, strlen(*name), set->name, 1, &number));
            FTH_REQUIRE(number == set->label_columns, FTH_INVALID, "%s: the label column '%s' is there twice",
                        fth_text_table_name(table), *name);
        }
    }

out:
    return status;
}

static fth_status read_file(fth_text_set *set, const fth_text_files *files, const fth_text_file *file,
                            const fth_dataset_options *options)
{
    fth_status status = FTH_OK;
    const fth_text_options *text = &options->text;
    const fth_column_names names = {.text = text->text_column, .pair = text->pair_column, .label = text->label_column};
    fth_blob blob = {0};
    fth_text_table *table = NULL;
    fth_columns columns;

    FTH_TRY(fth_text_file_read(files, file, options, &blob));
    FTH_TRY(fth_text_table_open((const char *)blob.bytes, blob.size_bytes, file->name, file->format, &table));
    FTH_TRY(fth_columns_choose(table, &names, &columns));
    FTH_TRY(meet_label_columns(set, table, &columns, text->label));
    FTH_TRY(fth_text_rows_read(&set->rows[file->split], table, &columns, text->label, set->labels, blob.size_bytes,
                               options->stop));
    set->contents = fth_hash(blob.bytes, blob.size_bytes, set->contents + (uint64_t)file->split);
    for (int i = 0; i < columns.text.count; i++)
        set->contents = fth_random_mix(set->contents ^ (uint64_t)columns.text.columns[i]);
    for (int i = 0; i < columns.pair.count; i++)
        set->contents = fth_random_mix(set->contents ^ (uint64_t)columns.pair.columns[i] << 16);
    for (int i = 0; i < columns.label.count; i++)
        set->contents = fth_random_mix(set->contents ^ (uint64_t)columns.label.columns[i] << 32);

out:
    fth_text_table_free(table);
    fth_blob_free(&blob);
    return status;
}

/* ---- labels ---- */

/* Splits classes.txt into names, ending with NULL, in place. free() the array. */
static fth_status split_lines(char *text, char ***names)
{
    size_t count = 0, lines = 1;
    for (const char *at = text; *at; at++)
        lines += *at == '\n';
    fth_status status = fth_allocate(lines + 1, sizeof **names, names);
    char *rest = NULL;
    for (char *line = status == FTH_OK ? strtok_r(text, "\r\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\r\n", &rest))
        (*names)[count++] = line;
    return status;
}

/* Class names that are numbers, some with fractions, are probably values to predict. */
static void warn_of_fractions(const fth_text_set *set)
{
    const char *const *names = fth_labels_names(set->labels), *fraction = NULL;
    for (int i = 0; i < set->classes; i++) {
        char *end;
        double number = strtod(names[i], &end);
        if (end == names[i] || *end || !isfinite(number))
            return;
        if (number != floor(number))
            fraction = names[i];
    }
    if (fraction)
        fth_log_warning("%s: labels such as %s are taken as the names of %d classes; numbers are predicted with --task "
                        "regression",
                        set->name, fraction, set->classes);
}

/* Turns labels into classes. Known names are those of the model, of the label columns or of
 * classes.txt. */
static fth_status finish_labels(fth_text_set *set, const fth_text_files *files, const fth_text_options *options)
{
    fth_status status = FTH_OK;
    char *text = NULL, **lines = NULL;

    if (options->class_names) {
        FTH_TRY(fth_labels_finish(set->labels, options->class_names, false));
    } else if (set->label_columns > 1) {
        FTH_TRY(fth_labels_finish(set->labels, (const char *const *)set->label_names, false));
    } else {
        FTH_TRY(fth_text_files_read_classes(files, &text));
        if (text)
            FTH_TRY(split_lines(text, &lines));
        FTH_TRY(fth_labels_finish(set->labels, lines && *lines ? (const char *const *)lines : NULL, true));
    }
    set->classes = fth_labels_count(set->labels);
    FTH_REQUIRE(set->classes > 1 || options->label != FTH_LABEL_CLASS, FTH_INVALID,
                "%s: every sample has the label '%s'; there must be at least 2 to tell apart", set->name,
                set->classes > 0 ? fth_labels_names(set->labels)[0] : "");
    if (options->label == FTH_LABEL_CLASS && !options->class_names && !lines)
        warn_of_fractions(set);

out:
    free(text);
    free(lines);
    return status;
}

/* Names the numbers of a label: by the columns, or, if one column has several, by its name and a
 * number. */
static fth_status name_numbers(fth_text_set *set)
{
    fth_status status = FTH_OK;
    char **names = NULL;

    if (set->label_columns == set->classes)
        goto out;
    FTH_TRY(fth_allocate((size_t)set->classes + 1, sizeof *names, &names));
    for (int i = 0; i < set->classes; i++)
        names[i] = fth_format("%s %d", set->label_names[0], i + 1);
    for (int i = 0; i < set->label_columns; i++)
        free(set->label_names[i]);
    free(set->label_names);
    set->label_names = names;
    set->label_columns = set->classes;
    for (int i = 0; i < set->classes; i++)
        FTH_REQUIRE(names[i], FTH_NO_MEMORY, "no memory for the names of labels");

out:
    return status;
}

/* The row of a sample. */
static size_t find_row(const fth_text_set *set, fth_split split, int64_t index, fth_text_rows const **rows)
{
    *rows = &set->rows[set->held_out.any ? FTH_TRAIN : split];
    return (size_t)fth_held_out_place(&set->held_out, split, index);
}

/* Targets for every class of every sample. Pages are allocated when they are written, so too large
 * an array would fail only in the middle of an epoch. */
static fth_status allocate_targets(const fth_text_set *set, text_part *part)
{
    const size_t count = (size_t)part->count * (size_t)set->classes;
    const int64_t available = fth_machine_available_bytes();
    if (available > 0 && count > (size_t)available / sizeof *part->targets)
        return fth_fail(FTH_NO_MEMORY, "%s: %s of %d labels each take %.1f GB, and %.1f GB are free; use fewer labels",
                        set->name, FTH_COUNTED(part->count, "sample"), set->classes,
                        (double)count * sizeof *part->targets / 1e9, (double)available / 1e9);
    return fth_allocate(count, sizeof *part->targets, &part->targets);
}

static fth_status place_labels(fth_text_set *set, fth_split split, fth_label_kind kind)
{
    fth_status status = FTH_OK;
    text_part *part = &set->parts[split];
    const size_t classes = (size_t)set->classes;

    if (kind == FTH_LABEL_CLASS)
        FTH_TRY(fth_allocate((size_t)part->count, sizeof *part->labels, &part->labels));
    else
        FTH_TRY(allocate_targets(set, part));
    for (int64_t i = 0; i < part->count; i++) {
        const fth_text_rows *rows;
        size_t row = find_row(set, split, i, &rows);
        float *targets = part->targets ? part->targets + (size_t)i * classes : NULL;
        if (kind == FTH_LABEL_CLASS)
            part->labels[i] = fth_labels_class(set->labels, rows->labels[row]);
        else if (kind == FTH_LABEL_NUMBER)
            memcpy(targets, rows->numbers + row * classes, classes * sizeof *targets);
        else
            for (uint64_t k = row > 0 ? rows->label_ends[row - 1] : 0; k < rows->label_ends[row]; k++)
                targets[fth_labels_class(set->labels, rows->labels[k])] = 1;
    }

out:
    return status;
}

/* ---- tokens ---- */

static fth_status learn_vocabulary(fth_text_set *set, int size, const fth_stop *stop)
{
    fth_status status = FTH_OK;
    fth_vocabulary_learner *learner = NULL;

    FTH_TRY(fth_vocabulary_learner_create(&learner));
    for (int64_t i = 0; i < set->parts[FTH_TRAIN].count; i++) {
        const fth_text_rows *rows;
        size_t row = find_row(set, FTH_TRAIN, i, &rows);
        if (i % PIECE == 0)
            FTH_TRY(fth_check_stop(stop, set->name));
        fth_text_pair text = fth_text_rows_get(rows, row);
        FTH_TRY(fth_vocabulary_learner_add(learner, text.first, text.first_bytes));
        if (text.second)
            FTH_TRY(fth_vocabulary_learner_add(learner, text.second, text.second_bytes));
    }
    FTH_TRY(fth_vocabulary_learner_finish(learner, size, &set->learned));
    set->tokenizer = set->learned;

out:
    fth_vocabulary_learner_free(learner);
    return status;
}

/* Encodes a part in pieces, each with a token list of its own. */
typedef struct part_encoding {
    const fth_text_set *set;
    fth_split split;
    int longest;
    const fth_stop *stop;
    fth_token_list *pieces;
} part_encoding;

static fth_status encode_piece(void *context, uint64_t piece)
{
    fth_status status = FTH_OK;
    part_encoding *encoding = context;
    const fth_text_set *set = encoding->set;
    const text_part *part = &set->parts[encoding->split];
    fth_token_list *list = &encoding->pieces[piece];
    const int64_t begin = (int64_t)piece * PIECE, end = begin + PIECE < part->count ? begin + PIECE : part->count;

    FTH_TRY(fth_check_stop(encoding->stop, set->name));
    for (int64_t i = begin; i < end; i++) {
        const fth_text_rows *rows;
        size_t row = find_row(set, encoding->split, i, &rows), before = list->count, first = 0;
        fth_text_pair text = fth_text_rows_get(rows, row);
        FTH_TRY(fth_tokenizer_encode(set->tokenizer, &text, encoding->longest, list, &first));
        part->lengths[i] = (uint32_t)(list->count - before);
        part->firsts[i] = (uint32_t)first;
    }

out:
    return status;
}

static fth_status encode_part(fth_text_set *set, fth_split split, int longest, const fth_dataset_options *options)
{
    fth_status status = FTH_OK;
    text_part *part = &set->parts[split];
    const size_t pieces = ((size_t)part->count + PIECE - 1) / PIECE;
    const int threads = options->threads < 1 ? 1 : options->threads > MAX_ENCODERS ? MAX_ENCODERS : options->threads;
    part_encoding encoding = {.set = set, .split = split, .longest = longest, .stop = options->stop};
    size_t total = 0;

    FTH_TRY(fth_allocate(pieces, sizeof *encoding.pieces, &encoding.pieces));
    FTH_TRY(fth_allocate((size_t)part->count, sizeof *part->lengths, &part->lengths));
    FTH_TRY(fth_allocate((size_t)part->count, sizeof *part->firsts, &part->firsts));
    FTH_TRY(fth_allocate((size_t)part->count, sizeof *part->begins, &part->begins));
    FTH_TRY(fth_store_in_parallel(threads, pieces, encode_piece, &encoding, NULL));
    for (int64_t i = 0; i < part->count; i++) {
        part->begins[i] = total;
        total += part->lengths[i];
    }
    FTH_TRY(fth_allocate(total, sizeof *part->tokens, &part->tokens));
    for (size_t piece = 0; piece < pieces; piece++) {
        fth_token_list *list = &encoding.pieces[piece];
        if (list->count > 0)
            memcpy(part->tokens + part->begins[piece * PIECE], list->ids, list->count * sizeof *list->ids);
        fth_token_list_release(list); /* immediately, since both are large */
    }

out:
    for (size_t piece = 0; encoding.pieces && piece < pieces; piece++)
        fth_token_list_release(&encoding.pieces[piece]);
    free(encoding.pieces);
    return status;
}

static int find_longest(const fth_text_set *set)
{
    uint32_t longest = 0;
    for (int split = 0; split < 2; split++)
        for (int64_t i = 0; i < set->parts[split].count; i++)
            longest = set->parts[split].lengths[i] > longest ? set->parts[split].lengths[i] : longest;
    return (int)longest;
}

/* Mean and standard deviation of the lengths of the training samples. */
static void measure_lengths(const text_part *part, fth_text_info *info)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < part->count; i++) {
        sum += part->lengths[i];
        squares += (double)part->lengths[i] * part->lengths[i];
    }
    const double count = part->count > 0 ? (double)part->count : 1;
    info->mean_length = sum / count;
    info->length_deviation = sqrt(fmax(0, squares / count - info->mean_length * info->mean_length));
}

/* ---- opening ---- */

static char *name_set(const char *address)
{
    size_t length = fth_address_path_length(address);
    while (length > 1 && address[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin > 0 && address[begin - 1] != '/')
        begin--;
    return strndup(address + begin, length - begin);
}

static int32_t get_class(const void *context, int64_t row)
{
    const fth_text_rows *rows = context;
    return rows->labels[row];
}

/* Classes by the order of their labels; sets and numbers have none. */
static fth_sample_classes find_classes(const fth_text_rows *rows, fth_label_kind kind)
{
    int most = 0;
    for (size_t i = 0; kind == FTH_LABEL_CLASS && i < rows->count; i++)
        most = rows->labels[i] >= most ? rows->labels[i] + 1 : most;
    return (fth_sample_classes){.classes = most, .get = get_class, .context = rows};
}

static fth_status split_rows(fth_text_set *set, const fth_dataset_options *options, fth_dataset_info *info)
{
    fth_status status = FTH_OK;
    info->count[FTH_TRAIN] = (int64_t)set->rows[FTH_TRAIN].count;
    info->count[FTH_VALIDATION] = (int64_t)set->rows[FTH_VALIDATION].count;
    FTH_REQUIRE(info->count[FTH_TRAIN] > 0, FTH_INVALID, "%s has no rows to train with", set->name);
    if (info->count[FTH_VALIDATION] == 0 && !options->whole) {
        const fth_sample_classes classes = find_classes(&set->rows[FTH_TRAIN], options->text.label);
        FTH_TRY(fth_held_out_choose(options, set->name, "text", &classes, info, &set->held_out));
    }
    for (int split = 0; split < 2; split++)
        set->parts[split].count = info->count[split];

out:
    return status;
}

static fth_status make_labels(fth_text_set *set, const fth_text_files *files, const fth_text_options *options)
{
    fth_status status = FTH_OK;
    const int width = set->rows[FTH_TRAIN].width;

    if (options->label == FTH_LABEL_NUMBER) {
        FTH_REQUIRE(set->rows[FTH_VALIDATION].count == 0 || set->rows[FTH_VALIDATION].width == width, FTH_INVALID,
                    "%s: labels of %s for training, and of %d for validation", set->name, FTH_COUNTED(width, "number"),
                    set->rows[FTH_VALIDATION].width);
        set->classes = width;
        FTH_TRY(name_numbers(set));
    } else {
        FTH_TRY(finish_labels(set, files, options));
    }
    for (int split = 0; split < 2; split++)
        FTH_TRY(place_labels(set, split, options->label));

out:
    return status;
}

static fth_status make_tokens(fth_text_set *set, const fth_dataset_options *options)
{
    fth_status status = FTH_OK;
    const fth_text_options *text = &options->text;
    const int longest = text->longest > 0 ? text->longest : USUAL_LONGEST;

    FTH_REQUIRE(longest >= SHORTEST, FTH_INVALID, "texts of at most %s; it takes at least %d",
                FTH_COUNTED(longest, "token"), (int)SHORTEST);
    set->tokenizer = text->tokenizer;
    if (!set->tokenizer)
        FTH_TRY(learn_vocabulary(set, text->vocabulary > 0 ? text->vocabulary : USUAL_VOCABULARY, options->stop));
    for (int split = 0; split < 2; split++)
        FTH_TRY(encode_part(set, split, longest, options));

out:
    return status;
}

static void describe(const fth_text_set *set, fth_label_kind kind, fth_dataset_info *info)
{
    info->name = set->name;
    info->modality = FTH_MODALITY_TEXT;
    info->text = (fth_text_info){.tokenizer = set->tokenizer, .label = kind, .longest = find_longest(set)};
    measure_lengths(&set->parts[FTH_TRAIN], &info->text);
    info->classes = set->classes;
    info->class_names =
        kind == FTH_LABEL_NUMBER ? (const char *const *)set->label_names : fth_labels_names(set->labels);
}

static fth_status add_version(const fth_dataset *dataset, fth_version_hash *hash)
{
    const fth_text_set *set = dataset->state;
    fth_version_add_text(hash, "text");
    fth_version_add_number(hash, set->contents);
    fth_held_out_add_version(&set->held_out, hash);
    return FTH_OK;
}

static const fth_dataset_kind kind = {.name = "text",
                                      .free = free_set,
                                      .add_version = add_version,
                                      .check_loader = fth_text_loader_check,
                                      .open_loader = fth_text_loader_open};

static fth_status open_text_set(const char *address, const fth_dataset_options *options, fth_dataset *dataset)
{
    fth_status status = FTH_OK;
    fth_text_files files = {0};
    fth_text_set *set = NULL;

    FTH_REQUIRE(!options->images_for, FTH_UNSUPPORTED, "%s is text; %s takes images alone", address,
                options->images_for);
    FTH_TRY(fth_allocate(1, sizeof *set, &set));
    dataset->kind = &kind;
    dataset->state = set; /* freed with it */
    FTH_REQUIRE(set->name = name_set(address), FTH_NO_MEMORY, "no memory for a name");
    FTH_TRY(fth_labels_create(&set->labels));
    FTH_TRY(fth_text_files_find(address, options, &files));
    for (size_t i = 0; i < files.count; i++)
        FTH_TRY(read_file(set, &files, &files.files[i], options));
    FTH_TRY(split_rows(set, options, &dataset->info));
    FTH_TRY(make_labels(set, &files, &options->text));
    FTH_TRY(make_tokens(set, options));
    describe(set, options->text.label, &dataset->info);
    if (!options->text.keep_text)
        for (int split = 0; split < 2; split++)
            fth_text_rows_release(&set->rows[split]);

out:
    fth_text_files_release(&files);
    return status;
}

const fth_dataset_format fth_format_text = {
    .name = "text",
    .files = "train.csv and test.csv, or .tsv or .jsonl, not .parquet",
    .probe = fth_text_folder_probe,
    .probe_address = fth_text_address_probe,
    .open = open_text_set,
};

fth_text_sample fth_text_set_get(const fth_text_set *set, fth_split split, int64_t index)
{
    const text_part *part = &set->parts[split];
    return (fth_text_sample){.tokens = part->tokens + part->begins[index],
                             .count = part->lengths[index],
                             .first_count = part->firsts[index],
                             .label = part->labels ? part->labels[index] : 0,
                             .targets = part->targets ? part->targets + index * set->classes : NULL};
}

const uint32_t *fth_text_set_lengths(const fth_text_set *set, fth_split split)
{
    return set->parts[split].lengths;
}

bool fth_text_set_get_text(const fth_text_set *set, fth_split split, int64_t index, fth_text_pair *text)
{
    const fth_text_rows *rows;
    size_t row = find_row(set, split, index, &rows);
    if (!rows->rows)
        return false;
    *text = fth_text_rows_get(rows, row);
    return true;
}
