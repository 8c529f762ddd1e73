/* Tables of text: quotes, line ends, byte order marks, JSON lines; columns that are found and
 * named; labels and classes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "text/columns.h"
#include "text/labels.h"
#include "text/table.h"

/* A table as text: fields between '|', rows between '/', or the error behind "!". */
static char *show(const char *text, fth_text_format format)
{
    static char shown[4096];
    fth_text_table *table = NULL;
    const fth_table_row *row = NULL;
    char *at = shown;
    *at = '\0';
    fth_status status = fth_text_table_open(text, strlen(text), "t", format, &table);
    while (status == FTH_OK && (status = fth_text_table_next(table, &row)) == FTH_OK && row) {
        if (at > shown)
            *at++ = '/';
        for (int i = 0; i < row->count; i++)
            at += sprintf(at, "%s%s%.*s", i ? "|" : "", row->fields[i].missing ? "-" : "",
                          (int)row->fields[i].size_bytes, row->fields[i].text);
    }
    if (status != FTH_OK)
        sprintf(at, "!%s", fth_error_message());
    fth_text_table_free(table);
    return shown;
}

static void csv_is_read_as_rfc_4180_says(void **state)
{
    (void)state;
    assert_string_equal(show("a,b\nc,d\n", FTH_TEXT_CSV), "a|b/c|d");
    assert_string_equal(show("a,b\r\nc,d", FTH_TEXT_CSV), "a|b/c|d");
    assert_string_equal(show("a,b\rc,d\r", FTH_TEXT_CSV), "a|b/c|d");
    assert_string_equal(show("\xef\xbb\xbf"
                             "a,b\n\n\nc,d\n\n",
                             FTH_TEXT_CSV),
                        "a|b/c|d");
    assert_string_equal(show("\"a, \"\"b\"\"\",\"c\nd\"\ne,\"\"\n", FTH_TEXT_CSV), "a, \"b\"|c\nd/e|");
    assert_string_equal(show("\"\"\"\",x\n", FTH_TEXT_CSV), "\"|x");
    assert_string_equal(show("\"a\"b,\"c\" \n", FTH_TEXT_CSV), "ab|c ");
    assert_string_equal(show("a \"b\",c\n", FTH_TEXT_CSV), "a \"b\"|c");
    assert_string_equal(show(",\n", FTH_TEXT_CSV), "|");
    assert_string_equal(show("", FTH_TEXT_CSV), "");
    assert_string_equal(show("a;\"b,c\"\nd;e\n", FTH_TEXT_CSV), "a|b,c/d|e");
    assert_string_equal(show("a\tb\n", FTH_TEXT_CSV), "a|b");
}

static void damaged_csv_names_the_line(void **state)
{
    (void)state;
    assert_string_equal(show("a,b\nc,\"d\ne\nf", FTH_TEXT_CSV),
                        "a|b!t, line 2: the quote that opens column 2 is not closed");
    /* The newlines in quotes count. */
    assert_string_equal(show("a,\"b\nb\r\nb\"\nc,d,e\n", FTH_TEXT_CSV),
                        "a|b\nb\r\nb!t, line 4: 3 columns, where the rows before it have 2");
    assert_non_null(strstr(show("\xff\xfe"
                                "a",
                                FTH_TEXT_CSV),
                           "UTF-16"));
    assert_non_null(strstr(show("PAR1....", FTH_TEXT_CSV), "Parquet"));
    assert_non_null(strstr(show("version https://git-lfs.github.com/spec/v1\nsize 9\n", FTH_TEXT_CSV), "git lfs pull"));
}

static void tsv_has_no_quotes(void **state)
{
    (void)state;
    assert_string_equal(show("a \"b\t\"c\nd\t,\n", FTH_TEXT_TSV), "a \"b|\"c/d|,");
}

static void a_field_may_hold_any_byte(void **state)
{
    (void)state;
    static const char bytes[] = "a\0b,\"c\0\"\"\"\n";
    fth_text_table *table = NULL;
    const fth_table_row *row = NULL;
    assert_int_equal(fth_text_table_open(bytes, sizeof bytes - 1, "t", FTH_TEXT_CSV, &table), FTH_OK);
    assert_int_equal(fth_text_table_next(table, &row), FTH_OK);
    assert_int_equal(row->count, 2);
    assert_memory_equal(row->fields[0].text, "a\0b", 3);
    assert_int_equal(row->fields[1].size_bytes, 3);
    assert_memory_equal(row->fields[1].text, "c\0\"", 3);
    fth_text_table_free(table);
}

static void json_lines_have_the_first_objects_keys(void **state)
{
    (void)state;
    assert_string_equal(
        show("{\"text\": \"a\\u00e9\\nb\", \"label\": 3}\n\n{\"label\": \"x\", \"text\": null, \"y\": 1}\n",
             FTH_TEXT_JSON_LINES),
        "a\xc3\xa9\nb|3/-|x");
    assert_string_equal(show("{\"t\": [\"a\", 2, true], \"l\": 0.5, \"m\": {\"x\": 1}}", FTH_TEXT_JSON_LINES),
                        "a\x1f"
                        "2\x1f"
                        "1|0.5|-");
    assert_non_null(strstr(show("{\"a\": 1}\n{\"a\": }\n", FTH_TEXT_JSON_LINES), "t, line 2: not JSON"));
    assert_non_null(strstr(show("{\"a\": 1}\n[1]\n", FTH_TEXT_JSON_LINES), "t, line 2: expected an object"));
    assert_non_null(strstr(show("[\n", FTH_TEXT_JSON_LINES), "expected an object on each line"));
    assert_non_null(strstr(show("", FTH_TEXT_JSON_LINES), "0 keys"));
}

static void lone_surrogates_are_replacement_characters(void **state)
{
    static const struct {
        const char *escaped, *text;
    } cases[] = {
        {"a\\ud83db", "a\xef\xbf\xbd"
                      "b"},
        {"\\uDC00", "\xef\xbf\xbd"},
        {"\\ud83d\\ude00", "\xf0\x9f\x98\x80"},
        {"\\ud83d\\ud83d\\ude00", "\xef\xbf\xbd\xf0\x9f\x98\x80"},
        {"\\ud83d\\n", "\xef\xbf\xbd\n"},
        {"\\\\ud83d\\ud83d", "\\ud83d\xef\xbf\xbd"},
        {"\\ud83d", "\xef\xbf\xbd"},
    };
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        char *line = fth_format("{\"t\": \"%s\"}", cases[i].escaped);
        assert_string_equal(show(line, FTH_TEXT_JSON_LINES), cases[i].text);
        free(line);
    }
    assert_non_null(strstr(show("{\"t\": \"\\ud83d\\x\"}", FTH_TEXT_JSON_LINES), "not JSON"));
    assert_non_null(strstr(show("{\"t\": \"\\ud83", FTH_TEXT_JSON_LINES), "not JSON"));
}

static void formats_are_told_by_names(void **state)
{
    (void)state;
    fth_text_format format;
    size_t stem = 0;
    assert_true(fth_text_format_find("train.csv", &format, &stem) && format == FTH_TEXT_CSV && stem == 5);
    assert_true(fth_text_format_find("a/b.TSV.gz", &format, &stem) && format == FTH_TEXT_TSV && stem == 3);
    assert_true(fth_text_format_find("x.jsonl.zst", &format, &stem) && format == FTH_TEXT_JSON_LINES && stem == 1);
    assert_false(fth_text_format_find(".csv", &format, &stem));
    assert_false(fth_text_format_find("x.csv.bz2", &format, &stem));
    assert_false(fth_text_format_find("x.gz", &format, &stem));
}

/* The columns that are chosen, "text;pair;label", and the first row's first text; or the error
 * behind "!". */
static char *choose(const char *text, fth_text_format format, const fth_column_names *names)
{
    static char shown[1024];
    fth_text_table *table = NULL;
    fth_columns columns;
    const fth_table_row *row = NULL;
    char *at = shown;
    fth_status status = fth_text_table_open(text, strlen(text), "t", format, &table);
    if (status == FTH_OK)
        status = fth_columns_choose(table, names, &columns);
    if (status == FTH_OK)
        status = fth_text_table_next(table, &row);
    if (status == FTH_OK) {
        const fth_column_list *const lists[] = {&columns.text, &columns.pair, &columns.label};
        for (int list = 0; list < 3; list++) {
            at += sprintf(at, "%s", list ? ";" : "");
            for (int i = 0; i < lists[list]->count; i++)
                at += sprintf(at, "%d", lists[list]->columns[i]);
        }
        const fth_table_field *field = row ? &row->fields[columns.text.columns[0]] : NULL;
        sprintf(at, " %.*s", field ? (int)field->size_bytes : 0, field ? field->text : "");
    } else {
        sprintf(shown, "!%s", fth_error_message());
    }
    fth_text_table_free(table);
    return shown;
}

static void usual_columns_are_found(void **state)
{
    (void)state;
    const fth_column_names none = {0};
    assert_string_equal(choose("text,label\nhi,1\n", FTH_TEXT_CSV, &none), "0;;1 hi");
    assert_string_equal(choose("id,Label,Sentence\n7,a,hi\n", FTH_TEXT_CSV, &none), "2;;1 hi");
    assert_string_equal(choose("Class Index,Title,Description\n3,hi,ho\n", FTH_TEXT_CSV, &none), "12;;0 hi");
    assert_string_equal(choose("premise,hypothesis,label\nhi,ho,x\n", FTH_TEXT_CSV, &none), "0;1;2 hi");
    assert_string_equal(choose("{\"idx\": 1, \"label\": 0, \"text\": \"hi\"}\n", FTH_TEXT_JSON_LINES, &none),
                        "2;;1 hi");
    /* Without a heading: as AG News, and text before label. */
    assert_string_equal(choose("\"3\",\"hi\",\"ho\"\n\"4\",\"a\",\"b\"\n", FTH_TEXT_CSV, &none), "12;;0 hi");
    assert_string_equal(choose("hi there,good\nho,bad\n", FTH_TEXT_CSV, &none), "0;;1 hi there");
    /* An empty field is no name: options that are not given are empty too. */
    const fth_column_names empty = {.text = "", .pair = "", .label = ""};
    assert_string_equal(choose("3,,ho\n4,a,b\n", FTH_TEXT_CSV, &empty), "12;;0 ");
    /* A heading of unusual names, above a column of numbers. */
    assert_string_equal(choose("mood,utterance\n1,hi\n0,ho\n", FTH_TEXT_CSV, &none), "1;;0 hi");
}

static void columns_are_named_by_name_or_number(void **state)
{
    (void)state;
    const char *table = "a,b,c,d\nu,v,w,x\n";
    assert_string_equal(choose(table, FTH_TEXT_CSV, &(fth_column_names){.text = "b", .label = "C", .pair = "a"}),
                        "1;0;2 v");
    assert_string_equal(choose(table, FTH_TEXT_CSV, &(fth_column_names){.text = "2,a", .label = "4"}), "10;;3 v");
    assert_string_equal(choose("u,v,w\n", FTH_TEXT_CSV, &(fth_column_names){.text = "2", .label = "3"}), "1;;2 v");
    assert_string_equal(choose("u,v\n", FTH_TEXT_CSV, &(fth_column_names){.text = "2"}), "1;;0 v");
    assert_string_equal(choose("hi\nho\n", FTH_TEXT_CSV, &(fth_column_names){.unlabelled = true}), "0;; hi");
    assert_string_equal(choose(table, FTH_TEXT_CSV, &(fth_column_names){.text = "e", .label = "a"}),
                        "!t: there is no column 'e', which --text-column asks for; its columns are a, b, c, d");
    assert_string_equal(choose(table, FTH_TEXT_CSV, &(fth_column_names){0}),
                        "!t: cannot tell which column is the text: name it with --text-column; it has 4 columns and no "
                        "heading");
    assert_non_null(strstr(choose(table, FTH_TEXT_CSV, &(fth_column_names){.text = "a", .label = "a"}), "both"));
}

/* The names of the classes of some labels, between spaces, then each label's class. */
static char *classify(const char *const *met, const char *const *names, bool from_one)
{
    static char shown[1024];
    int32_t numbers[16];
    int count = 0;
    fth_labels *labels = NULL;
    fth_status status = fth_labels_create(&labels);
    for (; status == FTH_OK && met[count]; count++)
        status = fth_labels_meet(labels, met[count], strlen(met[count]), "f", (size_t)count + 1, &numbers[count]);
    if (status == FTH_OK)
        status = fth_labels_finish(labels, names, from_one);
    char *at = shown;
    if (status != FTH_OK) {
        sprintf(at, "!%s", fth_error_message());
    } else {
        for (int i = 0; i < fth_labels_count(labels); i++)
            at += sprintf(at, "%s ", fth_labels_names(labels)[i]);
        for (int i = 0; i < count; i++)
            at += sprintf(at, "%d", fth_labels_class(labels, numbers[i]));
    }
    fth_labels_free(labels);
    return shown;
}
#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static void labels_become_classes(void **state)
{
    (void)state;
    assert_string_equal(classify(LIST("b", "a", " b "), NULL, false), "a b 101");
    assert_string_equal(classify(LIST("10", "9", "1"), NULL, false), "1 9 10 210");
    assert_string_equal(classify(LIST("10", "9", "x"), NULL, false), "10 9 x 012");
    const char *const *names = LIST("World", "Sports", "Business");
    assert_string_equal(classify(LIST("3", "1"), names, false), "World Sports Business 20");
    assert_string_equal(classify(LIST("0", "1"), names, false), "World Sports Business 01");
    assert_string_equal(classify(LIST("2", "1"), names, true), "World Sports Business 10");
    assert_string_equal(classify(LIST("Sports"), names, false), "World Sports Business 1");
    assert_non_null(strstr(classify(LIST("2", "1"), names, false), "from 0 or from 1"));
    assert_string_equal(classify(LIST("Sports", "Sport"), names, false),
                        "!f, line 2: the label 'Sport' is none of the 3 classes: World, Sports, Business");
    assert_non_null(strstr(classify(LIST("0", "3"), names, true), "the label '3' is none"));
    assert_non_null(strstr(classify(LIST("-1", "2"), names, true), "is none"));
    assert_string_equal(classify(LIST("a", " "), NULL, false), "!f, line 2: the label is empty");
    assert_non_null(strstr(classify(LIST("\xff"), NULL, false), "not UTF-8"));
    assert_non_null(strstr(classify(LIST("a\nb"), NULL, false), "more than one line"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_is_read_as_rfc_4180_says),
        cmocka_unit_test(damaged_csv_names_the_line),
        cmocka_unit_test(tsv_has_no_quotes),
        cmocka_unit_test(a_field_may_hold_any_byte),
        cmocka_unit_test(json_lines_have_the_first_objects_keys),
        cmocka_unit_test(lone_surrogates_are_replacement_characters),
        cmocka_unit_test(formats_are_told_by_names),
        cmocka_unit_test(usual_columns_are_found),
        cmocka_unit_test(columns_are_named_by_name_or_number),
        cmocka_unit_test(labels_become_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
