/* Sizes in programs: sympy's expressions, of which products are understood. Newer files have them
 * in sympy's constructors, older ones as Python prints them:
 *
 *     product  factor { ("*" | "//") factor }
 *     factor   integer | "Integer(" integer ")" | name | "Symbol('" name "'" anything ")" |
 *              "Mul(" product { "," product } ")" | "FloorDiv(" product "," product ")" |
 *              "(" product ")" */
#include <ctype.h>
#include <string.h>

#include "exported/program_internal.h"

enum { MAX_DEPTH = 16 };

typedef struct expression {
    const char *at;
    const fth_exported_symbols *symbols;
} expression;

static const fth_exported_dim unknown = {.unknown = true};

static void skip_spaces(expression *e)
{
    while (*e->at == ' ')
        e->at++;
}

static bool take(expression *e, const char *text)
{
    skip_spaces(e);
    if (strncmp(e->at, text, strlen(text)) != 0)
        return false;
    e->at += strlen(text);
    return true;
}

static fth_exported_dim multiply(fth_exported_dim a, fth_exported_dim b)
{
    fth_exported_dim product = {.batch = a.batch || b.batch, .length = a.length || b.length};
    if (a.unknown || b.unknown || (a.batch && b.batch) || (a.length && b.length) ||
        __builtin_mul_overflow(a.factor, b.factor, &product.factor))
        return unknown;
    return product;
}

/* Where nothing remains, whatever the symbols are. */
static fth_exported_dim divide(fth_exported_dim a, fth_exported_dim b)
{
    if (a.unknown || b.unknown || b.factor <= 0 || a.factor % b.factor != 0 || (b.batch && !a.batch) ||
        (b.length && !a.length))
        return unknown;
    return (fth_exported_dim){a.factor / b.factor, a.batch && !b.batch, a.length && !b.length, false};
}

static fth_exported_dim read_integer(expression *e)
{
    int64_t number = 0;
    const bool negative = take(e, "-");
    if (!isdigit((unsigned char)*e->at))
        return unknown;
    for (; isdigit((unsigned char)*e->at); e->at++) {
        if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *e->at - '0', &number))
            return unknown;
    }
    return (fth_exported_dim){.factor = negative ? -number : number};
}

static bool is_name_part(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static size_t name_length(const char *name)
{
    size_t length = 0;
    while (is_name_part(name[length]))
        length++;
    return length;
}

static fth_exported_dim find_symbol(const expression *e, const char *name, size_t length)
{
    const fth_exported_symbols *s = e->symbols;
    if (length > 0 && strlen(s->batch) == length && memcmp(s->batch, name, length) == 0)
        return (fth_exported_dim){.factor = 1, .batch = true};
    if (length > 0 && strlen(s->length) == length && memcmp(s->length, name, length) == 0)
        return (fth_exported_dim){.factor = 1, .length = true};
    return unknown;
}

static fth_exported_dim read_product(expression *e, int depth);

/* The arguments of "Mul(". */
static fth_exported_dim read_arguments(expression *e, int depth,
                                       fth_exported_dim (*combine)(fth_exported_dim, fth_exported_dim))
{
    fth_exported_dim result = read_product(e, depth);
    while (!result.unknown && take(e, ","))
        result = combine(result, read_product(e, depth));
    return !result.unknown && take(e, ")") ? result : unknown;
}

static fth_exported_dim read_call(expression *e, int depth)
{
    fth_exported_dim result = unknown;
    if (take(e, "Integer(")) {
        result = read_integer(e);
    } else if (take(e, "Symbol('")) {
        const size_t length = name_length(e->at);
        result = find_symbol(e, e->at, length);
        e->at += length;
        e->at += strcspn(e->at, "()");
    } else if (take(e, "Mul(")) {
        return read_arguments(e, depth, multiply);
    } else if (take(e, "FloorDiv(")) {
        return read_arguments(e, depth, divide);
    } else if (take(e, "(")) {
        result = read_product(e, depth);
    }
    return !result.unknown && take(e, ")") ? result : unknown;
}

static fth_exported_dim read_factor(expression *e, int depth)
{
    skip_spaces(e);
    if (isdigit((unsigned char)*e->at) || *e->at == '-')
        return read_integer(e);
    const size_t length = name_length(e->at);
    if (length == 0 || e->at[length] == '(')
        return depth < MAX_DEPTH ? read_call(e, depth + 1) : unknown;
    const fth_exported_dim symbol = find_symbol(e, e->at, length);
    e->at += length;
    return symbol;
}

static fth_exported_dim read_product(expression *e, int depth)
{
    fth_exported_dim product = read_factor(e, depth);
    while (!product.unknown) {
        if (take(e, "//"))
            product = divide(product, read_factor(e, depth));
        else if (take(e, "*"))
            product = multiply(product, read_factor(e, depth));
        else
            break;
    }
    return product;
}

fth_exported_dim fth_exported_read_dim(const char *text, const fth_exported_symbols *symbols)
{
    expression e = {text, symbols};
    const fth_exported_dim dim = read_product(&e, 0);
    skip_spaces(&e);
    return *e.at ? unknown : dim;
}

bool fth_exported_is_symbol(const char *text, char *name, size_t size)
{
    expression e = {.at = text};
    const bool constructed = take(&e, "Symbol('");
    const size_t length = name_length(e.at);
    if (length == 0 || length >= size || isdigit((unsigned char)*e.at))
        return false;
    const char *end = e.at + length;
    if (constructed) {
        end += strcspn(end, "()");
        end += *end == ')';
    }
    if (*end)
        return false;
    memcpy(name, e.at, length);
    name[length] = '\0';
    return true;
}

bool fth_exported_read_size(const json_t *size, const fth_exported_symbols *symbols, fth_exported_dim *dim)
{
    const json_t *integer = json_object_get(size, "as_int");
    const char *text = json_string_value(json_object_get(json_object_get(size, "as_expr"), "expr_str"));
    if (json_is_integer(integer))
        *dim = (fth_exported_dim){.factor = json_integer_value(integer)};
    else if (text)
        *dim = fth_exported_read_dim(text, symbols);
    else
        return false;
    return true;
}
