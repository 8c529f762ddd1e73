/* Lines made of fields, fitted to a width by leaving out whole fields. */
#include <string.h>

#include "report/report.h"

typedef enum field_form { WHOLE, BRIEF, LEFT_OUT } field_form;

static const char *text_of(const fth_field *field, field_form form)
{
    return form == WHOLE ? field->text : form == BRIEF ? field->brief : "";
}

static const char *separator_of(const fth_field *field)
{
    return field->separator ? field->separator : ", ";
}

/* Writes the fields that are not left out; gives the columns they take. */
static size_t join(const fth_field *fields, const field_form *forms, size_t count, char *line, size_t size)
{
    const fth_field *before = NULL;
    size_t length = 0;
    *line = '\0';
    for (size_t i = 0; i < count; i++) {
        const char *text = text_of(&fields[i], forms[i]);
        if (!*text)
            continue;
        length = strlen(line);
        snprintf(line + length, size - length, "%s%s", before ? separator_of(before) : "", text);
        before = &fields[i];
    }
    return fth_text_width(line);
}

static bool can_become(const fth_field *field, field_form from, field_form to)
{
    return to == BRIEF ? from == WHOLE && *field->brief : from != LEFT_OUT && *field->text;
}

/* Shortens the least important field that can take that form; false if there is none. */
static bool shorten(const fth_field *fields, field_form *forms, size_t count, field_form to)
{
    size_t least = count;
    for (size_t i = 0; i < count; i++)
        if (can_become(&fields[i], forms[i], to) && (least == count || fields[i].importance < fields[least].importance))
            least = i;
    if (least < count)
        forms[least] = to;
    return least < count;
}

void fth_fields_fit(const fth_field *fields, size_t count, size_t columns, char *line, size_t size)
{
    field_form forms[FTH_MAX_FIELDS] = {WHOLE};
    count = count < FTH_MAX_FIELDS ? count : FTH_MAX_FIELDS;
    /* Brief forms first: they say as much. Once all is left out the line is empty, and fits. */
    while (join(fields, forms, count, line, size) > columns)
        if (!shorten(fields, forms, count, BRIEF) && !shorten(fields, forms, count, LEFT_OUT))
            break;
}
