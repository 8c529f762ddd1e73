/* farthing predict for text: a single text, lines of a file, or rows of a table. They are predicted
 * in groups, packed as in training. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/model/predict_cli.h"
#include "data/text/text_files.h"
#include "data/text/text_pack.h"
#include "data/text/text_rows.h"

enum { TEXTS_AT_A_TIME = 32 };

typedef struct text_group {
    const predict_options *options;
    const fth_classifier *classifier;
    char *texts[TEXTS_AT_A_TIME], *pairs[TEXTS_AT_A_TIME]; /* to be printed; pairs: or NULL */
    int count;
    fth_text_pack pack;
    fth_token_list tokens; /* of one text */
    float *logits;         /* (TEXTS_AT_A_TIME, classes) */
} text_group;

static fth_status open_group(const predict_options *options, const fth_classifier *classifier, text_group *group)
{
    fth_status status = FTH_OK;
    const fth_model_facts *facts = fth_classifier_facts(classifier);
    *group = (text_group){.options = options, .classifier = classifier};
    FTH_TRY(fth_text_pack_reserve(&group->pack, TEXTS_AT_A_TIME, (int64_t)TEXTS_AT_A_TIME * facts->text.longest));
    FTH_TRY(fth_allocate((size_t)TEXTS_AT_A_TIME * (size_t)facts->classes, sizeof(float), &group->logits));

out:
    return status;
}

static void empty_group(text_group *group)
{
    for (int i = 0; i < group->count; i++) {
        free(group->texts[i]);
        free(group->pairs[i]);
        group->texts[i] = group->pairs[i] = NULL;
    }
    group->count = 0;
    group->pack.count = group->pack.token_count = 0;
}

static void release_group(text_group *group)
{
    empty_group(group);
    fth_text_pack_release(&group->pack);
    fth_token_list_release(&group->tokens);
    free(group->logits);
}

static fth_status predict_group(text_group *group)
{
    fth_status status = FTH_OK;
    const fth_model_facts *facts = fth_classifier_facts(group->classifier);
    if (group->count == 0)
        goto out;
    const fth_text_batch batch = fth_text_pack_get(&group->pack, 0);
    FTH_TRY(fth_engine_predict_text(fth_classifier_engine(group->classifier), &batch, group->count, group->logits));
    for (int i = 0; i < group->count; i++)
        FTH_TRY(fth_cli_print_prediction(group->options, facts,
                                         &(fth_predicted){.text = group->texts[i], .pair = group->pairs[i]},
                                         group->logits + (size_t)i * (size_t)facts->classes));

out:
    empty_group(group);
    return status;
}

static fth_status add_text(text_group *group, const fth_text_pair *text)
{
    fth_status status = FTH_OK;
    const int longest = fth_classifier_facts(group->classifier)->text.longest, i = group->count;
    size_t first = 0;

    group->tokens.count = 0;
    FTH_TRY(fth_tokenizer_encode(fth_classifier_tokenizer(group->classifier), text, longest, &group->tokens, &first));
    group->texts[i] = strndup(text->first, text->first_bytes);
    group->pairs[i] = text->second ? strndup(text->second, text->second_bytes) : NULL;
    group->count++;
    FTH_REQUIRE(group->texts[i] && (!text->second || group->pairs[i]), FTH_NO_MEMORY, "no memory for a text");
    fth_text_pack_add(&group->pack, group->tokens.ids, (int64_t)group->tokens.count, (int64_t)first);
    if (group->count == TEXTS_AT_A_TIME)
        FTH_TRY(predict_group(group));

out:
    return status;
}

/* ---- files ---- */

/* Lines from a pipe are answered one by one, as the other end may wait for each answer. */
static fth_status predict_lines(text_group *group, FILE *input, const char *name)
{
    fth_status status = FTH_OK;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    long long number = 0;

    while ((length = getline(&line, &capacity, input)) >= 0) {
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
            length--;
        number++;
        FTH_REQUIRE(!memchr(line, '\0', (size_t)length), FTH_INVALID,
                    "%s, line %lld: a zero byte; expected a text on each line, in UTF-8", name, number);
        if (length > 0)
            FTH_TRY(add_text(group, &(fth_text_pair){.first = line, .first_bytes = (size_t)length}));
        if (input == stdin) /* the other end may be waiting for the answer */
            FTH_TRY(predict_group(group));
        fflush(stdout);
    }
    FTH_REQUIRE(!ferror(input), FTH_IO, "cannot read %s", name);

out:
    free(line);
    return status;
}

static fth_status predict_table(text_group *group, const char *address)
{
    fth_status status = FTH_OK;
    const predict_text_options *given = &group->options->text;
    const fth_store_options store = fth_s3_store_options(&group->options->s3, 0);
    const fth_dataset_options options = {.store = &store, .threads = 1};
    const fth_column_names names = {.text = given->text_column, .pair = given->pair_column, .unlabelled = true};
    fth_text_files files = {0};
    fth_blob blob = {0};
    fth_text_table *table = NULL;
    fth_text_rows rows = {0};
    fth_columns columns;

    FTH_TRY(fth_text_files_find(address, &options, &files));
    FTH_TRY(fth_text_file_read(&files, &files.files[0], &options, &blob));
    FTH_TRY(fth_text_table_open((const char *)blob.bytes, blob.size_bytes, files.files[0].name, files.files[0].format,
                                &table));
    FTH_TRY(fth_columns_choose(table, &names, &columns));
    columns.label.count = 0; /* labels are not looked at */
    FTH_TRY(fth_text_rows_read(&rows, table, &columns, FTH_LABEL_CLASS, NULL, blob.size_bytes, NULL));
    for (size_t i = 0; i < rows.count; i++) {
        const fth_text_pair text = fth_text_rows_get(&rows, i);
        FTH_TRY(add_text(group, &text));
    }

out:
    fth_text_rows_release(&rows);
    fth_text_table_free(table);
    fth_blob_free(&blob);
    fth_text_files_release(&files);
    return status;
}

static fth_status predict_file(text_group *group, const char *name)
{
    fth_status status = FTH_OK;
    fth_text_format format;
    FILE *input = NULL;

    if (strcmp(name, "-") == 0)
        return predict_lines(group, stdin, "standard input");
    if (fth_text_format_find(name, &format, NULL))
        return predict_table(group, name);
    FTH_REQUIRE(!fth_folder_exists(name), FTH_INVALID, "%s is a folder; name the file with the texts", name);
    input = fopen(name, "re");
    FTH_REQUIRE(input, FTH_IO, "cannot open %s: %m; a text itself is given with --text", name);
    FTH_TRY(predict_lines(group, input, name));

out:
    if (input)
        fclose(input);
    return status;
}

fth_status fth_cli_predict_text(const predict_options *options, const fth_arguments *arguments,
                                const fth_classifier *classifier)
{
    fth_status status = FTH_OK;
    const predict_text_options *given = &options->text;
    text_group group = {0};

    FTH_TRY(open_group(options, classifier, &group));
    FTH_REQUIRE(!*given->pair || *given->text, FTH_INVALID,
                "--pair is the second text of a pair; give the first with --text");
    if (*given->text)
        FTH_TRY(add_text(&group, &(fth_text_pair){.first = given->text,
                                                  .first_bytes = strlen(given->text),
                                                  .second = *given->pair ? given->pair : NULL,
                                                  .second_bytes = strlen(given->pair)}));
    for (int i = 0; i < arguments->count; i++)
        FTH_TRY(predict_file(&group, arguments->positional[i]));
    FTH_TRY(predict_group(&group));

out:
    release_group(&group);
    return status;
}
