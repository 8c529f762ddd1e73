/* See labels.h. */
#include "text/labels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { MAX_CLASSES = 100000, MAX_LABEL_BYTES = 1000 };

typedef struct met_label {
    char *text;
    const char *file; /* where it first occurred */
    size_t line;
    int32_t class;
} met_label;

struct fth_labels {
    met_label *met;
    size_t count, capacity;
    int32_t *slots; /* a hash table of numbers, -1: free; at most half full */
    size_t slot_count;
    const char **names; /* of the classes, and a NULL */
    char **owned;       /* if they were given */
    int name_count;
};

fth_status fth_labels_create(fth_labels **labels)
{
    return fth_allocate(1, sizeof **labels, labels);
}

void fth_labels_free(fth_labels *labels)
{
    if (!labels)
        return;
    for (size_t i = 0; i < labels->count; i++)
        free(labels->met[i].text);
    for (int i = 0; labels->owned && i < labels->name_count; i++)
        free(labels->owned[i]);
    free(labels->owned);
    free(labels->names);
    free(labels->met);
    free(labels->slots);
    free(labels);
}

/* ---- collecting labels ---- */

static int32_t *find_slot(const fth_labels *labels, const char *text, size_t size_bytes)
{
    size_t mask = labels->slot_count - 1, at = (size_t)fth_hash(text, size_bytes, 0) & mask;
    for (;; at = (at + 1) & mask) {
        int32_t number = labels->slots[at];
        if (number < 0 ||
            (strlen(labels->met[number].text) == size_bytes && memcmp(labels->met[number].text, text, size_bytes) == 0))
            return &labels->slots[at];
    }
}

static fth_status make_room(fth_labels *labels)
{
    fth_status status = FTH_OK;
    int32_t *old = labels->slots;
    if (labels->slots && labels->count < labels->slot_count / 2)
        return FTH_OK;
    size_t wanted = labels->slots ? 2 * labels->slot_count : 64;
    int32_t *slots = NULL;
    FTH_TRY(fth_allocate(wanted, sizeof *slots, &slots));
    for (size_t i = 0; i < wanted; i++)
        slots[i] = -1;
    labels->slots = slots;
    labels->slot_count = wanted;
    for (size_t i = 0; i < labels->count; i++)
        *find_slot(labels, labels->met[i].text, strlen(labels->met[i].text)) = (int32_t)i;
    free(old);

out:
    return status;
}

static fth_status check_label(const char *text, const char *file, size_t line)
{
    fth_status status = FTH_OK;
    char *utf8 = fth_text_to_utf8(text);
    FTH_REQUIRE(utf8, FTH_NO_MEMORY, "no memory for a label");
    FTH_REQUIRE(strcmp(utf8, text) == 0, FTH_INVALID, "%s, line %zu: the label '%s' is not UTF-8", file, line, text);
    FTH_REQUIRE(!strpbrk(text, "\r\n"), FTH_INVALID, "%s, line %zu: the label '%s' has more than one line", file, line,
                text);

out:
    free(utf8);
    return status;
}

fth_status fth_labels_meet(fth_labels *labels, const char *text, size_t size_bytes, const char *file, size_t line,
                           int32_t *number)
{
    fth_status status = FTH_OK;
    char *copy = NULL;

    for (; size_bytes > 0 && strchr(" \t\r\n", text[0]) && text[0]; text++)
        size_bytes--;
    while (size_bytes > 0 && strchr(" \t\r\n", text[size_bytes - 1]) && text[size_bytes - 1])
        size_bytes--;
    FTH_REQUIRE(size_bytes > 0, FTH_INVALID, "%s, line %zu: the label is empty", file, line);
    FTH_TRY(make_room(labels));
    int32_t *slot = find_slot(labels, text, size_bytes);
    if (*slot < 0) {
        FTH_REQUIRE(!memchr(text, '\0', size_bytes), FTH_INVALID, "%s, line %zu: a zero byte in the label", file, line);
        FTH_REQUIRE(size_bytes <= MAX_LABEL_BYTES, FTH_INVALID,
                    "%s, line %zu: a label of %s; is it the text? Name the columns with --text-column and "
                    "--label-column",
                    file, line, FTH_COUNTED(size_bytes, "byte"));
        FTH_REQUIRE(labels->count < MAX_CLASSES, FTH_INVALID,
                    "%s, line %zu: more than %d different labels; is it the right column? See --label-column, and "
                    "--task regression for labels that are numbers",
                    file, line, (int)MAX_CLASSES);
        copy = strndup(text, size_bytes);
        FTH_REQUIRE(copy, FTH_NO_MEMORY, "no memory for a label");
        FTH_TRY(check_label(copy, file, line));
        FTH_TRY(fth_grow(&labels->met, labels->count, &labels->capacity, sizeof *labels->met));
        labels->met[labels->count] = (met_label){.text = copy, .file = file, .line = line};
        copy = NULL;
        *slot = (int32_t)labels->count++;
    }
    *number = *slot;

out:
    free(copy);
    return status;
}

int32_t fth_labels_met(const fth_labels *labels)
{
    return (int32_t)labels->count;
}

/* ---- making classes ---- */

static bool read_integer(const char *text, long *value)
{
    char *end;
    *value = strtol(text, &end, 10);
    return end != text && *end == '\0' && strlen(text) < 12;
}

static bool are_integers(const fth_labels *labels)
{
    long value;
    for (size_t i = 0; i < labels->count; i++)
        if (!read_integer(labels->met[i].text, &value))
            return false;
    return true;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp((*(met_label *const *)a)->text, (*(met_label *const *)b)->text);
}

/* "01" and "1" are different labels. */
static int compare_integers(const void *a, const void *b)
{
    long left, right;
    read_integer((*(met_label *const *)a)->text, &left);
    read_integer((*(met_label *const *)b)->text, &right);
    return left != right ? (left > right) - (left < right) : compare_texts(a, b);
}

static fth_status order_labels(fth_labels *labels)
{
    fth_status status = FTH_OK;
    met_label **order = NULL;

    FTH_TRY(fth_allocate(labels->count + 1, sizeof *order, &order));
    FTH_TRY(fth_allocate(labels->count + 1, sizeof *labels->names, &labels->names));
    for (size_t i = 0; i < labels->count; i++)
        order[i] = &labels->met[i];
    qsort(order, labels->count, sizeof *order, are_integers(labels) ? compare_integers : compare_texts);
    for (size_t i = 0; i < labels->count; i++) {
        order[i]->class = (int32_t)i;
        labels->names[i] = order[i]->text;
    }
    labels->name_count = (int)labels->count;

out:
    free(order);
    return status;
}

static fth_status copy_names(fth_labels *labels, const char *const *names)
{
    fth_status status = FTH_OK;
    size_t count = 0;
    while (names[count])
        count++;
    FTH_REQUIRE(count > 0 && count <= MAX_CLASSES, FTH_INVALID, "%zu names of classes; expected 1 to %d", count,
                (int)MAX_CLASSES);
    FTH_TRY(fth_allocate(count + 1, sizeof *labels->owned, &labels->owned));
    FTH_TRY(fth_allocate(count + 1, sizeof *labels->names, &labels->names));
    for (size_t i = 0; i < count; i++) {
        FTH_REQUIRE(labels->owned[i] = strdup(names[i]), FTH_NO_MEMORY, "no memory for the names of classes");
        labels->names[i] = labels->owned[i];
        labels->name_count++;
    }

out:
    return status;
}

static int32_t find_name(const fth_labels *labels, const char *text)
{
    for (int i = 0; i < labels->name_count; i++)
        if (strcmp(labels->names[i], text) == 0)
            return i;
    return -1;
}

static fth_status fail_unknown(const fth_labels *labels, const met_label *label)
{
    char list[256] = "";
    for (int i = 0; i < labels->name_count; i++) {
        size_t used = strlen(list);
        if (used + strlen(labels->names[i]) + 8 > sizeof list) {
            snprintf(list + used, sizeof list - used, ", ...");
            break;
        }
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", labels->names[i]);
    }
    return fth_fail(FTH_INVALID, "%s, line %zu: the label '%s' is none of the %s: %s", label->file, label->line,
                    label->text, FTH_COUNTED(labels->name_count, "class"), list);
}

/* Labels that are indices of the names. */
static fth_status number_names(fth_labels *labels, bool from_one)
{
    long least = 0, most = 0, value;
    const met_label *last = labels->met;
    for (size_t i = 0; i < labels->count; i++) {
        read_integer(labels->met[i].text, &value);
        least = i == 0 || value < least ? value : least;
        if (i == 0 || value > most) {
            most = value;
            last = &labels->met[i];
        }
    }
    const long count = labels->name_count;
    if (least < 0 || most > count || (least == 0 && most == count))
        return fail_unknown(labels, last);
    if (least > 0 && most < count && !from_one)
        return fth_fail(FTH_INVALID,
                        "%s, line %zu: the labels %ld to %ld may count the %ld classes from 0 or from 1; give them as "
                        "names (%s, ...)",
                        last->file, last->line, least, most, count, labels->names[0]);
    for (size_t i = 0; i < labels->count; i++) {
        read_integer(labels->met[i].text, &value);
        labels->met[i].class = (int32_t)(value - (least > 0));
    }
    return FTH_OK;
}

fth_status fth_labels_finish(fth_labels *labels, const char *const *names, bool from_one)
{
    fth_status status = FTH_OK;
    const met_label *unknown = NULL;
    bool some_known = false;

    if (!names)
        return order_labels(labels);
    FTH_TRY(copy_names(labels, names));
    for (size_t i = 0; i < labels->count; i++) {
        met_label *label = &labels->met[i];
        label->class = find_name(labels, label->text);
        some_known = some_known || label->class >= 0;
        if (label->class < 0 && !unknown)
            unknown = label;
    }
    if (!unknown)
        goto out;
    if (some_known || !are_integers(labels))
        FTH_TRY(fail_unknown(labels, unknown));
    FTH_TRY(number_names(labels, from_one));

out:
    return status;
}

int fth_labels_count(const fth_labels *labels)
{
    return labels->name_count;
}

const char *const *fth_labels_names(const fth_labels *labels)
{
    return labels->names;
}

int32_t fth_labels_class(const fth_labels *labels, int32_t number)
{
    return labels->met[number].class;
}
