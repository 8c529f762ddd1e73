/* See program.h. */
#include "exported/program.h"

#include <stdlib.h>
#include <string.h>

#include "exported/program_internal.h"

/* ---- opening ---- */

static fth_status create(const char *origin, fth_exported **program)
{
    fth_status status = fth_allocate(1, sizeof **program, program);
    if (status != FTH_OK)
        return status;
    (*program)->origin = fth_format("%s", origin);
    return (*program)->origin ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for a path");
}

static fth_status read_archive(fth_exported *program, const void *bytes, size_t size_bytes)
{
    fth_status status = FTH_OK;
    size_t text_bytes = 0;
    char *origin = NULL;
    FTH_TRY(fth_exported_archive_parse(bytes, size_bytes, program->origin, &program->archive));
    origin = fth_format("%s (%s)", program->origin, fth_exported_archive_program_name(program->archive));
    FTH_REQUIRE(origin, FTH_NO_MEMORY, "no memory for a path");
    const char *text = fth_exported_archive_program(program->archive, &text_bytes);
    FTH_TRY(fth_exported_read(program, text, text_bytes, origin, false));
    FTH_TRY(fth_exported_bind(program));
out:
    free(origin);
    return status;
}

bool fth_exported_recognize(const void *bytes, size_t size_bytes)
{
    return fth_exported_archive_recognize(bytes, size_bytes);
}

fth_status fth_exported_open_bytes(const void *bytes, size_t size_bytes, const char *origin, fth_exported **program)
{
    fth_exported *fresh = NULL;
    *program = NULL;
    fth_status status = create(origin, &fresh);
    if (status == FTH_OK)
        status = read_archive(fresh, bytes, size_bytes);
    if (status == FTH_OK)
        *program = fresh;
    else
        fth_exported_free(fresh);
    return status;
}

fth_status fth_exported_open(const char *path, fth_exported **program)
{
    fth_status status = FTH_OK;
    fth_exported *fresh = NULL;
    *program = NULL;
    FTH_TRY(create(path, &fresh));
    FTH_TRY(fth_file_map(path, &fresh->mapping, &fresh->mapping_size_bytes));
    FTH_TRY(read_archive(fresh, fresh->mapping, fresh->mapping_size_bytes));
    *program = fresh;
    fresh = NULL;
out:
    fth_exported_free(fresh);
    return status;
}

fth_status fth_exported_parse(const char *text, size_t size_bytes, const char *origin, fth_exported **program)
{
    fth_exported *fresh = NULL;
    *program = NULL;
    fth_status status = create(origin, &fresh);
    if (status == FTH_OK)
        status = fth_exported_read(fresh, text, size_bytes, origin, true);
    if (status == FTH_OK)
        *program = fresh;
    else
        fth_exported_free(fresh);
    return status;
}

void fth_exported_free(fth_exported *program)
{
    if (!program)
        return;
    fth_exported_archive_free(program->archive);
    fth_exported_arena_release(&program->arena);
    free(program->values);
    fth_file_unmap(program->mapping, program->mapping_size_bytes);
    free(program->origin);
    free(program);
}

/* ---- reading ---- */

int fth_exported_value_count(const fth_exported *program)
{
    return (int)program->value_count;
}

const fth_exported_value *fth_exported_get_value(const fth_exported *program, int number)
{
    return number >= 0 && (size_t)number < program->value_count ? &program->values[number] : NULL;
}

size_t fth_exported_node_count(const fth_exported *program)
{
    return program->node_count;
}

const fth_exported_node *fth_exported_get_node(const fth_exported *program, size_t index)
{
    return index < program->node_count ? &program->nodes[index] : NULL;
}

size_t fth_exported_input_count(const fth_exported *program)
{
    return program->input_count;
}

int fth_exported_get_input(const fth_exported *program, size_t index)
{
    return index < program->input_count ? program->inputs[index] : -1;
}

size_t fth_exported_output_count(const fth_exported *program)
{
    return program->output_count;
}

int fth_exported_get_output(const fth_exported *program, size_t index)
{
    return index < program->output_count ? program->outputs[index] : -1;
}

const char *fth_exported_torch_version(const fth_exported *program)
{
    return program->torch_version;
}

const char *fth_exported_origin(const fth_exported *program)
{
    return program->origin;
}

bool fth_exported_dim_is(const fth_exported_dim *dim, int64_t size)
{
    return !dim->unknown && !dim->batch && !dim->length && dim->factor == size;
}

const fth_exported_argument *fth_exported_find_argument(const fth_exported_node *node, const char *name)
{
    for (size_t i = 0; i < node->argument_count; i++) {
        if (strcmp(node->arguments[i].name, name) == 0)
            return &node->arguments[i];
    }
    return NULL;
}
