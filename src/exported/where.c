/* Where in the user's source a node comes from. */
#include <stdio.h>
#include <string.h>

#include "exported/program_internal.h"

typedef struct frame {
    const char *path;
    size_t path_length;
    const char *place; /* "12, in forward" */
    size_t place_length;
    const char *code;
    size_t code_length;
} frame;

static const char *find_within(const char *text, const char *end, const char *part)
{
    const char *found = memmem(text, (size_t)(end - text), part, strlen(part));
    return found ? found : end;
}

/* Reads the next frame:
 *
 *     File "/home/me/net.py", line 12, in forward
 *         return self.conv(x) */
static bool next_frame(const char **at, frame *next)
{
    static const char opening[] = "File \"", middle[] = "\", line ";
    const char *begin = strstr(*at, opening);
    if (!begin)
        return false;
    begin += strlen(opening);
    const char *line_end = begin + strcspn(begin, "\n");
    const char *path_end = find_within(begin, line_end, middle);
    *at = line_end;
    *next = (frame){.path = begin, .path_length = (size_t)(path_end - begin)};
    if (path_end != line_end) {
        next->place = path_end + strlen(middle);
        next->place_length = (size_t)(line_end - next->place);
    }
    const char *code = line_end + strspn(line_end, "\n ");
    if (*line_end && strncmp(code, opening, strlen(opening)) != 0) {
        next->code = code;
        next->code_length = strcspn(code, "\n");
        *at = code + next->code_length;
    }
    return true;
}

/* PyTorch's own files are in ".../torch/..."; those it makes up have no folder of their own. */
static bool is_torch(const frame *f)
{
    static const char *const folders[] = {"site-packages/torch/", "dist-packages/torch/", "site-packages\\torch\\"};
    const char *end = f->path + f->path_length;
    for (size_t i = 0; i < FTH_COUNT_OF(folders); i++) {
        if (find_within(f->path, end, folders[i]) != end)
            return true;
    }
    return f->path_length == 0 || *f->path == '<' || strncmp(f->path, "torch/", strlen("torch/")) == 0;
}

/* What follows the last separator, of Windows too. */
static const char *find_file_name(const frame *f)
{
    const char *name = f->path + f->path_length;
    while (name > f->path && name[-1] != '/' && name[-1] != '\\')
        name--;
    return name;
}

/* A precision for printf(), of text that may be long. */
static int clip(size_t length)
{
    enum { LONGEST = 200 };
    return length < LONGEST ? (int)length : LONGEST;
}

void fth_exported_find_line(const char *stack_trace, char *line, size_t size)
{
    const char *at = stack_trace;
    frame f, chosen = {0};
    bool is_users = false;
    while (next_frame(&at, &f)) {
        if (is_users && is_torch(&f))
            continue;
        chosen = f;
        is_users = !is_torch(&f);
    }
    line[0] = '\0';
    if (!chosen.path)
        return;
    const char *name = find_file_name(&chosen);
    snprintf(line, size, "%.*s%s%.*s%s%.*s", clip((size_t)(chosen.path + chosen.path_length - name)), name,
             chosen.place ? ":" : "", clip(chosen.place_length), chosen.place ? chosen.place : "",
             chosen.code ? ": " : "", clip(chosen.code_length), chosen.code ? chosen.code : "");
}

/* "L['self'].layer1" in older files. */
static void skip_self(const char **name, const char *end)
{
    static const char opening[] = "L['";
    if (end - *name < (ptrdiff_t)strlen(opening) || memcmp(*name, opening, strlen(opening)) != 0)
        return;
    const char *closing = find_within(*name, end, "']");
    if (closing == end)
        return;
    *name = closing + 2;
    if (*name < end && **name == '.')
        ++*name;
}

void fth_exported_find_module(const char *stack, char *module, size_t size)
{
    const char *last = strrchr(stack, ';');
    last = last ? last + 1 : stack;
    const char *name = strchr(last, ','), *class = strrchr(last, ',');
    module[0] = '\0';
    if (!name || name == class || strncmp(last, "_empty_nn_module_stack", strlen("_empty_nn_module_stack")) == 0)
        return;
    name++;
    skip_self(&name, class);
    const int length = clip((size_t)(class - name));
    snprintf(module, size, "%.*s%s%s%s", length, name, length ? " (" : "", class + 1, length ? ")" : "");
}
