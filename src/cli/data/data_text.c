/* farthing data inspect of a set of text: lengths, labels, unknown tokens, and some samples. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/data/data_cli.h"
#include "data/text/text_inspect.h"
#include "report/report.h"
#include "text/tokenizer.h"

enum { SHOWN_CLASSES = 40, SHOWN_SAMPLES = 2, MAX_SHOWN_BYTES = 1 << 20 };

static int limit(size_t size_bytes)
{
    return size_bytes < MAX_SHOWN_BYTES ? (int)size_bytes : MAX_SHOWN_BYTES;
}

/* A sample's text in fresh memory, its pair behind a bar; up to a NUL, if it has one. */
static char *copy_text(const fth_text_pair *text)
{
    return fth_format("%.*s%s%.*s", limit(text->first_bytes), text->first, text->second ? " | " : "",
                      limit(text->second_bytes), text->second ? text->second : "");
}

/* The names of a sample's labels, or its numbers, with commas between them; free() it. */
static char *describe_labels(const fth_dataset_info *info, const fth_shown_text *sample)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    if (!stream)
        return NULL;
    if (!sample->targets)
        fprintf(stream, "%s", info->class_names[sample->label]);
    for (int i = 0, shown = 0; sample->targets && i < info->classes; i++) {
        if (info->text.label == FTH_LABEL_NUMBER)
            fprintf(stream, "%s%g", shown++ ? ", " : "", (double)sample->targets[i]);
        else if (sample->targets[i] > 0)
            fprintf(stream, "%s%s", shown++ ? ", " : "", info->class_names[i]);
    }
    fclose(stream);
    return text;
}

/* ---- as text ---- */

static fth_status print_classes(const fth_dataset_info *info, const fth_text_inspection *found)
{
    fth_status status = FTH_OK;
    fth_table *table = NULL;
    char cells[3][32];
    const bool numbers = found->least != NULL;

    FTH_TRY(numbers ? FTH_TABLE(&table, "label", ">least", ">mean", ">most")
                    : FTH_TABLE(&table, "class", ">training", ">validation"));
    for (int i = 0; i < info->classes && i < SHOWN_CLASSES; i++) {
        if (numbers) {
            snprintf(cells[0], sizeof cells[0], "%.4g", found->least[i]);
            snprintf(cells[1], sizeof cells[1], "%.4g", found->mean[i]);
            snprintf(cells[2], sizeof cells[2], "%.4g", found->most[i]);
        } else {
            for (int split = 0; split < 2; split++)
                fth_text_count(found->class_counts[split][i], cells[split], sizeof cells[split]);
        }
        FTH_TRY(fth_table_add_row(table, (const char *[]){info->class_names[i], cells[0], cells[1], cells[2]}));
    }
    fth_table_print(stdout, table);
    if (info->classes > SHOWN_CLASSES)
        printf("... and %s\n", FTH_COUNTED(info->classes - SHOWN_CLASSES, "more class"));

out:
    fth_table_free(table);
    return status;
}

static fth_status print_samples(const fth_dataset_info *info, const fth_text_inspection *found)
{
    fth_status status = FTH_OK;
    char *text = NULL, *labels = NULL, *line = NULL, *printable = NULL;
    const size_t columns = (size_t)fth_terminal_columns(stdout);

    printf("\n");
    for (int i = 0; i < found->sample_count; i++) {
        text = copy_text(&found->samples[i].text);
        labels = describe_labels(info, &found->samples[i]);
        line = fth_format("%s: %s", labels ? labels : "", text ? text : "");
        printable = line ? fth_printable(line) : NULL;
        FTH_REQUIRE(printable, FTH_NO_MEMORY, "no memory for a sample");
        const size_t fitting = fth_text_fit(printable, columns - 1);
        printf("%.*s%s\n", (int)fitting, printable, printable[fitting] ? "…" : "");
        free(text);
        free(labels);
        free(line);
        free(printable);
        text = labels = line = printable = NULL;
    }

out:
    free(text);
    free(labels);
    free(line);
    free(printable);
    return status;
}

static fth_status print_text(const fth_dataset_info *info, const fth_text_inspection *found, bool learned)
{
    fth_status status = FTH_OK;
    const fth_length_facts *lengths = &found->lengths;
    char cut[32], unknown[32];
    const double samples = (double)(info->count[FTH_TRAIN] + info->count[FTH_VALIDATION]);

    fth_print_line(
        stdout, "%s: text, %s, %s training and %s", info->name,
        FTH_COUNTED(info->classes, info->text.label == FTH_LABEL_NUMBER ? "number" : "class"),
        FTH_COUNTED(info->count[FTH_TRAIN], NULL),
        FTH_COUNTED(info->count[FTH_VALIDATION], found->pairs > 0 ? "validation pair" : "validation sample"));
    putchar('\n');
    FTH_TRY(print_classes(info, found));
    fth_text_percent((double)found->cut / samples, cut, sizeof cut);
    fth_text_percent((double)found->unknown / (double)found->tokens, unknown, sizeof unknown);
    printf("\ntokens of a sample: %u to %u, median %u, mean %.1f, 95 %% have at most %u\n", lengths->least,
           lengths->most, lengths->median, lengths->mean, lengths->high);
    if (found->cut > 0)
        printf("cut: %s (%s), to %s\n", FTH_COUNTED(found->cut, NULL), cut, FTH_COUNTED(info->text.longest, "token"));
    else
        printf("cut: none\n");
    printf("vocabulary: %s, %s%s\n", FTH_COUNTED(fth_tokenizer_size(info->text.tokenizer), "token"),
           fth_tokenizer_is_lower_case(info->text.tokenizer) ? "lower case" : "cased",
           learned ? ", learned from the training texts" : "");
    printf("unknown tokens: %s of %s (%s), in %s\n", FTH_COUNTED(found->unknown, NULL),
           FTH_COUNTED(found->tokens, NULL), unknown, FTH_COUNTED(found->unknown_samples, "sample"));
    if (found->empty > 0)
        printf("empty: %s\n", FTH_COUNTED(found->empty, "sample"));
    if (found->shared > 0)
        printf("in both parts: %s are among the training samples too\n",
               FTH_COUNTED(found->shared, "validation sample"));
    FTH_TRY(print_samples(info, found));

out:
    return status;
}

/* ---- as JSON ---- */

static json_t *labels_json(const fth_dataset_info *info, const fth_text_inspection *found)
{
    json_t *labels = json_array();
    for (int i = 0; i < info->classes; i++) {
        json_t *text = fth_cli_json_text(info->class_names[i]);
        json_array_append_new(labels, found->least
                                          ? json_pack("{s:o, s:f, s:f, s:f}", "name", text, "least", found->least[i],
                                                      "mean", found->mean[i], "most", found->most[i])
                                          : json_pack("{s:o, s:I, s:I}", "name", text, "training",
                                                      (json_int_t)found->class_counts[FTH_TRAIN][i], "validation",
                                                      (json_int_t)found->class_counts[FTH_VALIDATION][i]));
    }
    return labels;
}

static json_t *samples_json(const fth_dataset_info *info, const fth_text_inspection *found)
{
    json_t *samples = json_array();
    for (int i = 0; i < found->sample_count; i++) {
        char *text = copy_text(&found->samples[i].text), *labels = describe_labels(info, &found->samples[i]);
        json_array_append_new(samples, json_pack("{s:o, s:o}", "label", fth_cli_json_text(labels ? labels : ""), "text",
                                                 fth_cli_json_text(text ? text : "")));
        free(text);
        free(labels);
    }
    return samples;
}

static void print_json(const fth_dataset_info *info, const fth_text_inspection *found)
{
    const fth_length_facts *lengths = &found->lengths;
    fth_cli_print_json_new(json_pack(
        "{s:o, s:s, s:I, s:I, s:o, s:{s:I, s:I, s:f, s:I, s:I}, s:I, s:i, s:i, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
        "name", fth_cli_json_text(info->name), "kind", "text", "training_samples", (json_int_t)info->count[FTH_TRAIN],
        "validation_samples", (json_int_t)info->count[FTH_VALIDATION],
        info->text.label == FTH_LABEL_NUMBER ? "numbers" : "classes", labels_json(info, found), "lengths", "min",
        (json_int_t)lengths->least, "median", (json_int_t)lengths->median, "mean", lengths->mean, "p95",
        (json_int_t)lengths->high, "max", (json_int_t)lengths->most, "cut", (json_int_t)found->cut, "longest",
        info->text.longest, "vocabulary", fth_tokenizer_size(info->text.tokenizer), "lower_case",
        fth_tokenizer_is_lower_case(info->text.tokenizer), "tokens", (json_int_t)found->tokens, "unknown_tokens",
        (json_int_t)found->unknown, "samples_with_unknown", (json_int_t)found->unknown_samples, "empty",
        (json_int_t)found->empty, "pairs", (json_int_t)found->pairs, "shared", (json_int_t)found->shared, "samples",
        samples_json(info, found)));
}

fth_status fth_cli_inspect_text(const fth_dataset *dataset, const data_options *options)
{
    fth_status status = FTH_OK;
    fth_text_inspection found = {0};
    const fth_dataset_info *info = fth_dataset_get_info(dataset);

    FTH_REQUIRE(!*options->sheet, FTH_INVALID, "--sheet is for images; %s is text", info->name);
    FTH_TRY(fth_text_set_inspect(dataset, SHOWN_SAMPLES, &found));
    if (options->json)
        print_json(info, &found);
    else
        FTH_TRY(print_text(info, &found, !*options->text.vocab));

out:
    fth_text_inspection_release(&found);
    return status;
}
