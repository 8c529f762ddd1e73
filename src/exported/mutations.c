/* Programs of PyTorch 2.5 change nothing in place (dialect ATEN): a batch norm gives its new
 * statistics as outputs, which the signature says become buffers. They are read as newer ones are
 * written: a batch norm updates its statistics by itself. */
#include <stdlib.h>
#include <string.h>

#include "exported/program_internal.h"

static const char functional_batch_norm[] = "aten._native_batch_norm_legit_functional.default";

enum { NEW_MEAN = 3, NEW_VARIANCE = 4 }; /* its outputs */

static bool reads_buffer(const fth_exported *program, const fth_exported_node *node, const char *argument,
                         const char *buffer)
{
    const fth_exported_argument *found = fth_exported_find_argument(node, argument);
    const fth_exported_value *value =
        found && found->kind == FTH_ARGUMENT_TENSOR ? fth_exported_get_value(program, found->tensor) : NULL;
    return value && value->state_name && strcmp(value->state_name, buffer) == 0;
}

/* True if value `number`, which `node` computes, is what becomes of `buffer` without being said. */
static bool is_implied(const fth_exported *program, const fth_exported_node *node, int number, const char *buffer)
{
    if (strcmp(node->target, functional_batch_norm) == 0 && node->output_count > NEW_VARIANCE)
        return (node->outputs[NEW_MEAN] == number && reads_buffer(program, node, "running_mean", buffer)) ||
               (node->outputs[NEW_VARIANCE] == number && reads_buffer(program, node, "running_var", buffer));
    return strcmp(node->target, "aten.add.Tensor") == 0 && reads_buffer(program, node, "self", buffer) &&
           !fth_torch_dtype_is_float(program->values[number].torch_dtype); /* a count of batches */
}

static fth_status check_mutation(const fth_exported_reader *reader, const int *producers, const json_t *mutation)
{
    const fth_exported *program = reader->program;
    const char *name = json_string_value(json_object_get(json_object_get(mutation, "arg"), "name"));
    const char *buffer = json_string_value(json_object_get(mutation, "buffer_name"));
    int number = -1;
    if (!name || !buffer)
        return fth_fail(FTH_CORRUPT, "%s: a buffer_mutation without arg or buffer_name", reader->origin);
    fth_status status = fth_exported_find_tensor(reader, name, "the output", &number);
    if (status != FTH_OK)
        return status;
    if (producers[number] >= 0 && is_implied(program, &program->nodes[producers[number]], number, buffer))
        return FTH_OK;
    return fth_fail(FTH_UNSUPPORTED,
                    "%s: the network changes its buffer '%.80s' otherwise than a batch norm does%s%s; farthing trains "
                    "buffers of batch norms alone",
                    reader->origin, buffer, producers[number] >= 0 ? ": " : "",
                    producers[number] >= 0 ? program->nodes[producers[number]].where : "");
}

fth_status fth_exported_undo_mutations(fth_exported_reader *reader, const json_t *output_specs)
{
    fth_status status = FTH_OK;
    fth_exported *program = reader->program;
    int *producers = NULL; /* of each value, its node or -1 */

    FTH_TRY(fth_allocate(program->value_count, sizeof *producers, &producers));
    memset(producers, -1, program->value_count * sizeof *producers);
    for (size_t i = 0; i < program->node_count; i++) {
        for (size_t k = 0; k < program->nodes[i].output_count; k++) {
            if (program->nodes[i].outputs[k] >= 0)
                producers[program->nodes[i].outputs[k]] = (int)i;
        }
    }
    for (size_t i = 0; i < json_array_size(output_specs); i++) {
        const json_t *mutation = json_object_get(json_array_get(output_specs, i), "buffer_mutation");
        if (mutation)
            FTH_TRY(check_mutation(reader, producers, mutation));
    }
    for (size_t i = 0; i < program->node_count; i++) {
        if (strcmp(program->nodes[i].target, functional_batch_norm) == 0)
            program->nodes[i].target = "aten.batch_norm.default";
    }
out:
    free(producers);
    return status;
}
