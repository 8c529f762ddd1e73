/* Results by class: scores, the confusion matrix, the most frequent mistakes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "report/classes.h"
#include "report/report.h"

enum { SMALL = 64, SHORT_NAME = 5, MOST_MISTAKES = 20 };

/* ---- scores ---- */

static fth_status add_score(fth_table *table, const char *name, const fth_class_score *score)
{
    char samples[SMALL], recall[SMALL], precision[SMALL], f1[SMALL];
    fth_text_count(score->samples, samples, sizeof samples);
    fth_text_percent(score->recall, recall, sizeof recall);
    fth_text_percent(score->precision, precision, sizeof precision);
    fth_text_percent(score->f1, f1, sizeof f1);
    return fth_table_add_row(table, (const char *[]){name, samples, recall, precision, f1});
}

fth_status fth_report_classes(FILE *output, const fth_confusion *confusion)
{
    fth_status status = FTH_OK;
    fth_table *table = NULL;

    FTH_TRY(FTH_TABLE(&table, "class", ">samples", ">accuracy (recall)", ">precision", ">F1"));
    for (int i = 0; i < fth_confusion_classes(confusion); i++) {
        fth_class_score score = fth_confusion_score(confusion, i);
        FTH_TRY(add_score(table, fth_confusion_name(confusion, i), &score));
    }
    fth_class_score mean = fth_confusion_mean_score(confusion);
    FTH_TRY(add_score(table, "mean of classes", &mean));
    fth_table_print(output, table);

out:
    fth_table_free(table);
    return status;
}

/* ---- the matrix ---- */

static bool names_are_short(const fth_confusion *confusion)
{
    for (int i = 0; i < fth_confusion_classes(confusion); i++)
        if (fth_text_width(fth_confusion_name(confusion, i)) > SHORT_NAME)
            return false;
    return true;
}

/* Columns are headed by names where these are short, else by letters that stand before the names of
 * the rows. */
static void write_heading(const char *name, int number, bool by_name, char *text, size_t size)
{
    if (by_name)
        snprintf(text, size, "%s", name);
    else
        snprintf(text, size, "%c", 'a' + number);
}

static fth_status fill_matrix(fth_table *table, fth_confusion *confusion, bool by_name)
{
    fth_status status = FTH_OK;
    int classes = fth_confusion_classes(confusion);
    char cells[FTH_MATRIX_CLASSES][SMALL];
    const char *row[FTH_MATRIX_CLASSES + 1];
    char *label = NULL;

    for (int i = 0; i < classes; i++) {
        free(label);
        label = by_name ? fth_format("%s", fth_confusion_name(confusion, i))
                        : fth_format("%c  %s", 'a' + i, fth_confusion_name(confusion, i));
        row[0] = label;
        for (int k = 0; k < classes; k++) {
            int64_t count = fth_confusion_count(confusion, i, k);
            fth_text_count(count, cells[k], sizeof cells[k]);
            row[k + 1] = count > 0 ? cells[k] : fth_terminal_is_utf8() ? "·" : ".";
        }
        FTH_TRY(fth_table_add_row(table, row));
    }

out:
    free(label);
    return status;
}

fth_status fth_report_confusion(FILE *output, fth_confusion *confusion, int columns)
{
    fth_status status = FTH_OK;
    fth_table *table = NULL;
    int classes = fth_confusion_classes(confusion);
    if (classes > FTH_MATRIX_CLASSES)
        return fth_report_mistakes(output, confusion);

    bool by_name = names_are_short(confusion);
    char texts[FTH_MATRIX_CLASSES][SMALL];
    const char *headings[FTH_MATRIX_CLASSES + 1] = {"true \\ predicted"};
    for (int i = 0; i < classes; i++) {
        texts[i][0] = '>';
        write_heading(fth_confusion_name(confusion, i), i, by_name, texts[i] + 1, sizeof texts[i] - 1);
        headings[i + 1] = texts[i];
    }
    FTH_TRY(fth_table_create(headings, (size_t)classes + 1, &table));
    FTH_TRY(fill_matrix(table, confusion, by_name));
    if (fth_table_width(table) > (size_t)columns)
        status = fth_report_mistakes(output, confusion); /* a matrix that wraps cannot be read */
    else
        fth_table_print(output, table);

out:
    fth_table_free(table);
    return status;
}

/* ---- mistakes ---- */

fth_status fth_report_mistakes(FILE *output, fth_confusion *confusion)
{
    fth_status status = FTH_OK;
    fth_table *table = NULL;
    fth_mistake mistakes[MOST_MISTAKES];
    size_t count = fth_confusion_worst(confusion, mistakes, MOST_MISTAKES);

    FTH_TRY(FTH_TABLE(&table, "true class", "predicted", ">samples", ">share of class"));
    for (size_t i = 0; i < count; i++) {
        char number[SMALL], share[SMALL];
        int64_t samples = fth_confusion_score(confusion, mistakes[i].label).samples;
        fth_text_count(mistakes[i].count, number, sizeof number);
        fth_text_percent((double)mistakes[i].count / (double)samples, share, sizeof share);
        FTH_TRY(fth_table_add_row(table, (const char *[]){fth_confusion_name(confusion, mistakes[i].label),
                                                          fth_confusion_name(confusion, mistakes[i].prediction), number,
                                                          share}));
    }
    if (count > 0)
        fth_table_print(output, table);
    else
        fprintf(output, "no mistakes\n");

out:
    fth_table_free(table);
    return status;
}

/* ---- for programs ---- */

static json_t *describe_score(const char *name, const fth_class_score *score)
{
    char *text = fth_text_to_utf8(name);
    json_t *json = json_pack("{s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "name", text ? text : "", "samples",
                             (json_int_t)score->samples, "predicted", (json_int_t)score->predicted, "correct",
                             (json_int_t)score->correct, "recall", fth_json_number(score->recall), "precision",
                             fth_json_number(score->precision), "f1", fth_json_number(score->f1));
    free(text);
    return json;
}

json_t *fth_report_classes_json(const fth_confusion *confusion)
{
    json_t *list = json_array();
    for (int i = 0; i < fth_confusion_classes(confusion); i++) {
        fth_class_score score = fth_confusion_score(confusion, i);
        json_array_append_new(list, describe_score(fth_confusion_name(confusion, i), &score));
    }
    return list;
}

json_t *fth_report_mistakes_json(fth_confusion *confusion)
{
    fth_mistake mistakes[MOST_MISTAKES];
    size_t count = fth_confusion_worst(confusion, mistakes, MOST_MISTAKES);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        char *label = fth_text_to_utf8(fth_confusion_name(confusion, mistakes[i].label));
        char *prediction = fth_text_to_utf8(fth_confusion_name(confusion, mistakes[i].prediction));
        json_array_append_new(list, json_pack("{s:s, s:s, s:I}", "class", label ? label : "", "predicted",
                                              prediction ? prediction : "", "samples", (json_int_t)mistakes[i].count));
        free(label);
        free(prediction);
    }
    return list;
}

json_t *fth_report_confusion_json(fth_confusion *confusion)
{
    json_t *rows = json_array();
    int classes = fth_confusion_classes(confusion);
    for (int i = 0; i < classes; i++) {
        json_t *row = json_array();
        for (int k = 0; k < classes; k++)
            json_array_append_new(row, json_integer(fth_confusion_count(confusion, i, k)));
        json_array_append_new(rows, row);
    }
    return rows;
}

/* A field of CSV (RFC 4180): in quotes where it has to be. */
static void write_csv(FILE *output, const char *text)
{
    bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    if (quoted)
        fputc('"', output);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', output);
        fputc(*text, output);
    }
    if (quoted)
        fputc('"', output);
}

void fth_report_confusion_csv(FILE *output, fth_confusion *confusion)
{
    int classes = fth_confusion_classes(confusion);
    fputs("true \\ predicted", output);
    for (int i = 0; i < classes; i++) {
        fputc(',', output);
        write_csv(output, fth_confusion_name(confusion, i));
    }
    fputs("\r\n", output);
    for (int i = 0; i < classes; i++) {
        write_csv(output, fth_confusion_name(confusion, i));
        for (int k = 0; k < classes; k++)
            fprintf(output, ",%lld", (long long)fth_confusion_count(confusion, i, k));
        fputs("\r\n", output);
    }
}
