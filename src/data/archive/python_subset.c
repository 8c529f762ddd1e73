/* See python_subset.h. Each statement is one logical line that is not indented:
 *
 *     statement = docstring | import | NAME "=" value
 *     value     = VARIABLE
 *               | path "." SET "(" arguments ")"         SET: MNIST, FashionMNIST, KMNIST
 *               | path "." "Subset" "(" value "," indices ")"
 *               | path "." TRANSFORM "(" arguments ")"   TRANSFORM: Compose, ToTensor, Normalize
 *               | literal | "(" values ")" | "[" values "]"
 *     indices   = "range" "(" INTEGER ["," INTEGER ["," "1"]] ")" | "list" "(" indices ")"
 *
 * A path begins with a name that was imported from torch or torchvision, or is one itself. A name
 * is bound once, so that no later line changes what it means. */
#include "data/archive/python_subset.h"

#include <string.h>

enum { MOST_NAMES = 32, MOST_DEPTH = 32, MOST_DIGITS = 12 };

typedef enum token_kind {
    TOKEN_NAME,
    TOKEN_INTEGER,
    TOKEN_NUMBER, /* any other */
    TOKEN_STRING,
    TOKEN_SYMBOL,
    TOKEN_LINE_END,
    TOKEN_END,
    TOKEN_UNKNOWN
} token_kind;

typedef struct token {
    token_kind kind;
    const char *text;
    size_t length;
    int line;
    bool indented; /* first on its line, after blanks */
} token;

typedef enum value_kind {
    VALUE_PLAIN,
    VALUE_TRUE, /* plain as well */
    VALUE_SET,
    VALUE_SUBSET,
    VALUE_TRUSTED, /* of torch or torchvision */
    VALUE_FOREIGN  /* of another package */
} value_kind;

typedef struct value {
    value_kind kind;
    fth_python_subset subset; /* of VALUE_SUBSET */
} value;

typedef struct variable {
    token name;
    value value;
} variable;

typedef struct cursor {
    const char *at;
    int line;
    int brackets; /* open brackets: line ends within them do not count */
    token next;
} cursor;

typedef struct parser {
    cursor c;
    const char *end;
    variable variables[MOST_NAMES];
    size_t variable_count;
} parser;

/* ---- tokens ---- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_line_end(char c)
{
    return c == '\n' || c == '\r';
}

static void pass_line_end(parser *p)
{
    const char *at = p->c.at;
    p->c.at += at[0] == '\r' && p->end - at > 1 && at[1] == '\n' ? 2 : 1;
    p->c.line++;
}

/* Skips the string that begins here; false if it does not end. */
static bool pass_string(parser *p)
{
    const char mark[3] = {*p->c.at, *p->c.at, *p->c.at};
    const ptrdiff_t width = p->end - p->c.at >= 3 && memcmp(p->c.at, mark, 3) == 0 ? 3 : 1;
    for (p->c.at += width; p->end - p->c.at >= width;) {
        if (memcmp(p->c.at, mark, (size_t)width) == 0) {
            p->c.at += width;
            return true;
        }
        if (*p->c.at == '\\' && p->end - p->c.at > 1)
            p->c.at++;
        if (!is_line_end(*p->c.at))
            p->c.at++;
        else if (width == 3)
            pass_line_end(p);
        else
            return false;
    }
    return false;
}

/* Skips blanks and comments, and line ends within brackets and between statements. True if the line
 * begins with a blank. */
static bool pass_blanks(parser *p, bool between)
{
    bool indented = false;
    while (p->c.at < p->end) {
        if (*p->c.at == ' ' || *p->c.at == '\t') {
            indented = between;
            p->c.at++;
        } else if (*p->c.at == '#') {
            while (p->c.at < p->end && !is_line_end(*p->c.at))
                p->c.at++;
        } else if (is_line_end(*p->c.at) && (p->c.brackets > 0 || between)) {
            pass_line_end(p);
            indented = false;
        } else {
            break;
        }
    }
    return indented;
}

static token_kind pass_word(parser *p)
{
    const bool is_name = is_letter(*p->c.at);
    bool whole = true;
    for (; p->c.at < p->end && (is_letter(*p->c.at) || is_digit(*p->c.at) || (!is_name && *p->c.at == '.')); p->c.at++)
        whole = whole && is_digit(*p->c.at);
    if (is_name) /* or a string prefix: r"..." */
        return p->c.at < p->end && (*p->c.at == '"' || *p->c.at == '\'') ? TOKEN_UNKNOWN : TOKEN_NAME;
    return whole ? TOKEN_INTEGER : TOKEN_NUMBER;
}

static token_kind pass_symbol(parser *p)
{
    const char symbol = *p->c.at++;
    p->c.brackets += symbol == '(' || symbol == '[' ? 1 : symbol == ')' || symbol == ']' ? -1 : 0;
    return symbol && strchr("()[].,=-", symbol) ? TOKEN_SYMBOL : TOKEN_UNKNOWN;
}

static void advance(parser *p)
{
    const bool between = p->c.brackets == 0 && p->c.next.kind == TOKEN_LINE_END;
    token *next = &p->c.next;
    const bool indented = pass_blanks(p, between);
    *next = (token){.text = p->c.at, .line = p->c.line, .indented = indented};
    if (p->c.at == p->end) {
        next->kind = between ? TOKEN_END : TOKEN_LINE_END; /* the last line may lack its end */
    } else if (is_line_end(*p->c.at)) {
        next->kind = TOKEN_LINE_END;
        pass_line_end(p);
    } else if (*p->c.at == '"' || *p->c.at == '\'') {
        next->kind = pass_string(p) ? TOKEN_STRING : TOKEN_UNKNOWN;
    } else if (is_letter(*p->c.at) || is_digit(*p->c.at)) {
        next->kind = pass_word(p);
    } else {
        next->kind = pass_symbol(p);
    }
    next->length = (size_t)(p->c.at - next->text);
}

static parser begin(const char *text, size_t size_bytes)
{
    const size_t mark = size_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* of UTF-8 */
    parser p = {.c = {.at = text + mark, .line = 1, .next = {.kind = TOKEN_LINE_END}}, .end = text + size_bytes};
    advance(&p);
    return p;
}

static bool is_text(const token *t, const char *text)
{
    return t->length == strlen(text) && memcmp(t->text, text, t->length) == 0;
}

static bool is_symbol(const parser *p, char symbol)
{
    return p->c.next.kind == TOKEN_SYMBOL && *p->c.next.text == symbol;
}

/* These consume the next token if it is the expected one; else they return false. */
static bool take_symbol(parser *p, char symbol)
{
    bool found = is_symbol(p, symbol);
    if (found)
        advance(p);
    return found;
}

static bool take_name(parser *p, token *name)
{
    *name = p->c.next;
    if (name->kind == TOKEN_NAME)
        advance(p);
    return name->kind == TOKEN_NAME;
}

static bool take_word(parser *p, const char *word)
{
    bool found = p->c.next.kind == TOKEN_NAME && is_text(&p->c.next, word);
    if (found)
        advance(p);
    return found;
}

/* ---- names ---- */

static const char *const packages[] = {"torch", "torchvision", NULL};
static const char *const sets[] = {"MNIST", "FashionMNIST", "KMNIST", NULL};
static const char *const transforms[] = {"Compose", "ToTensor", "Normalize", NULL};
static const char *const built_in[] = {"range", "list", "True", "False", "None", NULL};

static bool is_one_of(const token *name, const char *const *names)
{
    while (*names && !is_text(name, *names))
        names++;
    return *names != NULL;
}

static variable *find_variable(parser *p, const token *name)
{
    for (size_t i = 0; i < p->variable_count; i++) {
        const token *known = &p->variables[i].name;
        if (known->length == name->length && memcmp(known->text, name->text, name->length) == 0)
            return &p->variables[i];
    }
    return NULL;
}

/* A name may be bound again only to the same meaning: `import torch`, `import torch.utils.data`. */
static bool bind(parser *p, const token *name, value given)
{
    const variable *known = find_variable(p, name);
    if (known)
        return known->value.kind == VALUE_TRUSTED && given.kind == VALUE_TRUSTED && is_one_of(name, packages);
    if (is_one_of(name, built_in) || p->variable_count == MOST_NAMES)
        return false;
    p->variables[p->variable_count++] = (variable){*name, given};
    return true;
}

/* ---- imports ---- */

/* "a.b.c": its first name and its last. */
static bool read_path(parser *p, token *first, token *last)
{
    if (!take_name(p, first))
        return false;
    for (*last = *first; take_symbol(p, '.');)
        if (!take_name(p, last))
            return false;
    return true;
}

static value imported(const token *package)
{
    return (value){.kind = is_one_of(package, packages) ? VALUE_TRUSTED : VALUE_FOREIGN};
}

static bool read_import(parser *p)
{
    token first, last;
    do {
        if (!read_path(p, &first, &last))
            return false;
        const value module = imported(&first);
        if (take_word(p, "as") && !take_name(p, &first))
            return false;
        if (!bind(p, &first, module))
            return false;
    } while (take_symbol(p, ','));
    return true;
}

static bool read_from(parser *p)
{
    token package, last, name, other;
    if (!read_path(p, &package, &last) || !take_word(p, "import"))
        return false;
    const bool bracketed = take_symbol(p, '(');
    do {
        value part = imported(&package);
        if (bracketed && is_symbol(p, ')'))
            break;
        if (!take_name(p, &name))
            return false;
        if (take_word(p, "as")) { /* renamed: its name no longer says what it is */
            part.kind = VALUE_FOREIGN;
            if (!take_name(p, &other))
                return false;
            name = other;
        }
        if (!bind(p, &name, part))
            return false;
    } while (take_symbol(p, ','));
    return !bracketed || take_symbol(p, ')');
}

/* ---- values ---- */

static bool read_value(parser *p, int depth, value *result);

static bool is_plain(const value *given)
{
    return given->kind == VALUE_PLAIN || given->kind == VALUE_TRUE;
}

static bool take_integer(parser *p, int64_t *number)
{
    const token *t = &p->c.next;
    *number = 0;
    if (t->kind != TOKEN_INTEGER || t->length > MOST_DIGITS || (t->length > 1 && *t->text == '0'))
        return false;
    for (size_t i = 0; i < t->length; i++)
        *number = *number * 10 + (t->text[i] - '0');
    advance(p);
    return true;
}

static bool read_indices(parser *p, fth_python_subset *subset)
{
    int64_t numbers[3] = {0, 0, 1};
    int count = 0;
    const bool listed = take_word(p, "list");
    if ((listed && !take_symbol(p, '(')) || !take_word(p, "range") || !take_symbol(p, '('))
        return false;
    do {
        if (count == 3 || !take_integer(p, &numbers[count++]))
            return false;
    } while (take_symbol(p, ','));
    const int64_t first = count > 1 ? numbers[0] : 0, end = count > 1 ? numbers[1] : numbers[0];
    *subset = (fth_python_subset){.first = first, .count = end - first};
    return take_symbol(p, ')') && (!listed || take_symbol(p, ')')) && end > first && numbers[2] == 1;
}

/* root, train=True, transform=None, target_transform=None, download=False. The test set or other
 * labels would be other samples. */
static bool fits_set(int place, const token *key, const value *given)
{
    const bool train = key ? is_text(key, "train") : place == 1;
    const bool harmless =
        key ? is_text(key, "root") || is_text(key, "transform") || is_text(key, "download") : place < 3;
    return train ? given->kind == VALUE_TRUE : harmless && is_plain(given);
}

/* `key =` before a value; false if there is none. */
static bool take_key(parser *p, token *key)
{
    const cursor before = p->c;
    if (take_name(p, key) && take_symbol(p, '='))
        return true;
    p->c = before;
    return false;
}

/* Values up to the closing bracket, each of them plain, or as the arguments of a set must be. */
static bool read_values(parser *p, int depth, char closing, bool keyed, bool of_set)
{
    for (int place = 0; !is_symbol(p, closing); place++) {
        token key = {0};
        value given;
        const bool has_key = keyed && take_key(p, &key);
        if (!read_value(p, depth, &given) ||
            !(of_set ? fits_set(place, has_key ? &key : NULL, &given) : is_plain(&given)))
            return false;
        if (!take_symbol(p, ',') && !is_symbol(p, closing))
            return false;
    }
    return take_symbol(p, closing);
}

static bool read_call(parser *p, int depth, value *result)
{
    token first, last;
    value of;
    if (!read_path(p, &first, &last) || !take_symbol(p, '('))
        return false;
    const variable *package = find_variable(p, &first);
    if (!package || package->value.kind != VALUE_TRUSTED)
        return false;
    if (is_text(&last, "Subset")) {
        result->kind = VALUE_SUBSET;
        return read_value(p, depth, &of) && of.kind == VALUE_SET && take_symbol(p, ',') &&
               read_indices(p, &result->subset) && take_symbol(p, ')');
    }
    const bool is_set = is_one_of(&last, sets);
    result->kind = is_set ? VALUE_SET : VALUE_PLAIN;
    return (is_set || is_one_of(&last, transforms)) && read_values(p, depth, ')', true, is_set);
}

static bool read_value(parser *p, int depth, value *result)
{
    const token *next = &p->c.next;
    const variable *known = next->kind == TOKEN_NAME ? find_variable(p, next) : NULL;
    *result = (value){VALUE_PLAIN, {0, 0}};
    if (depth == MOST_DEPTH)
        return false;
    if (known && known->value.kind < VALUE_TRUSTED) {
        *result = known->value; /* attributes and calls of it are not understood */
    } else if (next->kind == TOKEN_NAME && is_one_of(next, built_in)) {
        if (is_text(next, "range") || is_text(next, "list"))
            return false;
        result->kind = is_text(next, "True") ? VALUE_TRUE : VALUE_PLAIN;
    } else if (next->kind == TOKEN_NAME) {
        return read_call(p, depth + 1, result);
    } else if (take_symbol(p, '(')) {
        return read_values(p, depth + 1, ')', false, false);
    } else if (take_symbol(p, '[')) {
        return read_values(p, depth + 1, ']', false, false);
    } else {
        take_symbol(p, '-');
        if (next->kind != TOKEN_INTEGER && next->kind != TOKEN_NUMBER && next->kind != TOKEN_STRING)
            return false;
    }
    advance(p);
    return true;
}

/* ---- statements ---- */

static bool read_statement(parser *p)
{
    token name;
    value given;
    if (take_word(p, "import"))
        return read_import(p);
    if (take_word(p, "from"))
        return read_from(p);
    return take_name(p, &name) && take_symbol(p, '=') && read_value(p, 0, &given) && bind(p, &name, given);
}

static bool read_passing_on(parser *p)
{
    return take_word(p, "from") && take_symbol(p, '.') && take_word(p, "__dataset__") && take_word(p, "import") &&
           take_word(p, "dataset") && take_word(p, "as") && take_word(p, "Dataset");
}

/* Reads to the end of the module, or up to the first token that is not understood. */
static bool read_module(parser *p, bool (*read)(parser *p))
{
    while (p->c.next.kind != TOKEN_END) {
        if (p->c.next.indented)
            return false;
        if (p->c.next.kind == TOKEN_STRING)
            advance(p);
        else if (!read(p))
            return false;
        if (p->c.next.kind != TOKEN_LINE_END || p->c.brackets != 0)
            return false;
        advance(p);
    }
    return true;
}

bool fth_python_subset_read(const char *text, size_t size_bytes, fth_python_subset *subset, int *line)
{
    parser p = begin(text, size_bytes);
    const token name = {.text = "dataset", .length = strlen("dataset")};
    const bool whole = read_module(&p, read_statement);
    const variable *dataset = find_variable(&p, &name);

    *line = p.c.next.line;
    *subset = (fth_python_subset){0};
    if (!whole || !dataset || (dataset->value.kind != VALUE_SET && dataset->value.kind != VALUE_SUBSET))
        return false;
    if (dataset->value.kind == VALUE_SUBSET)
        *subset = dataset->value.subset;
    return true;
}

bool fth_python_passes_dataset_on(const char *text, size_t size_bytes, int *line)
{
    parser p = begin(text, size_bytes);
    const bool understood = read_module(&p, read_passing_on);
    *line = p.c.next.line;
    return understood;
}
