/* Walks a program and lowers its nodes: see lower.h and lowering.h.
 *
 * PyTorch's in-place operators are read as pure ones: from there on their result is what their first
 * argument was, and x[:, 1] = y puts x together again. That is right as long as nobody reads another
 * view of the old tensor later, which is checked. Nodes that the output does not depend on are left out,
 * as an auxiliary head is. */
#include "exported/lower.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exported/lowering_internal.h"

/* ---- operators by name ---- */

/* The name between "aten." and the overload's, or NULL. */
static const char *whole_name(const char *target, size_t *length)
{
    if (strncmp(target, "aten.", 5) != 0)
        return NULL;
    *length = strcspn(target + 5, ".");
    return target + 5;
}

static bool ends_in_place(const char *name, size_t length)
{
    return length > 1 && name[length - 1] == '_' && name[length - 2] != '_';
}

void lowering_operator_name(const char *target, char name[FTH_OPERATOR_NAME])
{
    size_t length = 0;
    const char *whole = whole_name(target, &length);
    *name = 0;
    if (whole && length < FTH_OPERATOR_NAME)
        snprintf(name, FTH_OPERATOR_NAME, "%.*s", (int)(length - ends_in_place(whole, length)), whole);
}

static bool is_in_place(const fth_exported_node *node)
{
    size_t length = 0;
    const char *whole = whole_name(node->target, &length);
    return whole && ends_in_place(whole, length);
}

static const lowering_row *find_row(const char *target)
{
    static const lowering_row *const tables[] = {lowering_layers,     lowering_images,   lowering_views,
                                                 lowering_copies,     lowering_parts,    lowering_joins,
                                                 lowering_functions,  lowering_products, lowering_attention,
                                                 lowering_reductions, lowering_noises,   lowering_recurrent};
    char name[FTH_OPERATOR_NAME];
    lowering_operator_name(target, name);
    for (size_t t = 0; t < FTH_COUNT_OF(tables); t++)
        for (const lowering_row *row = tables[t]; row->name; row++)
            if (strcmp(row->name, name) == 0)
                return row;
    return NULL;
}

/* ---- which nodes matter ---- */

/* Calls `visit` with every tensor that a node reads. */
static void visit_reads(const fth_exported_node *node, void (*visit)(void *context, int value), void *context)
{
    for (size_t a = 0; a < node->argument_count; a++) {
        const fth_exported_argument *argument = &node->arguments[a];
        if (argument->kind == FTH_ARGUMENT_TENSOR)
            visit(context, argument->tensor);
        for (size_t i = 0; argument->kind == FTH_ARGUMENT_TENSORS && i < argument->count; i++)
            if (argument->tensors[i] >= 0)
                visit(context, argument->tensors[i]);
    }
}

static bool updates_counter(const lowering *l, const fth_exported_node *node)
{
    static const char ending[] = "num_batches_tracked";
    const fth_exported_argument *self = fth_exported_find_argument(node, "self");
    if (!is_in_place(node) || !self || self->kind != FTH_ARGUMENT_TENSOR)
        return false;
    const char *name = fth_exported_get_value(l->program, self->tensor)->state_name;
    const size_t length = name ? strlen(name) : 0;
    return length >= sizeof ending - 1 && strcmp(name + length - (sizeof ending - 1), ending) == 0;
}

/* Numbers of values, followed through in-place operators. */
static void note_reader(void *context, int value)
{
    lowering *l = context;
    l->values[l->values[value].now].readers++;
}

static void note_live(void *context, int value)
{
    lowering *l = context;
    l->values[value].live = true;
    l->values[l->values[value].storage].storage_live = true;
}

static bool is_in_table(const lowering_row *table, const lowering_row *row)
{
    for (; table->name; table++)
        if (table == row)
            return true;
    return false;
}

/* The tensor that an operator changes in place; -1: none. */
static int changed_tensor(const fth_exported_node *node)
{
    const fth_exported_argument *self = fth_exported_find_argument(node, "self");
    if (!self)
        self = fth_exported_find_argument(node, "input");
    return is_in_place(node) && self && self->kind == FTH_ARGUMENT_TENSOR ? self->tensor : -1;
}

/* Views and what operators change in place share the storage of what they were made of; other results
 * have their own. */
static void find_storages(lowering *l)
{
    for (int v = 0; v < fth_exported_value_count(l->program); v++) {
        l->values[v].storage = v;
        l->values[v].made_by = -1;
        l->values[v].refreshed_by = -1;
    }
    for (size_t n = 0; n < fth_exported_node_count(l->program); n++) {
        const fth_exported_node *node = fth_exported_get_node(l->program, n);
        const lowering_row *row = find_row(node->target);
        const fth_exported_argument *self = fth_exported_find_argument(node, "self");
        const bool view = row && (is_in_table(lowering_views, row) || is_in_table(lowering_parts, row));
        int of = changed_tensor(node);
        if (of < 0 && view && self && self->kind == FTH_ARGUMENT_TENSOR)
            of = self->tensor;
        for (size_t o = 0; o < node->output_count; o++) {
            if (node->outputs[o] < 0)
                continue;
            l->values[node->outputs[o]].made_by = (int)n;
            if (of >= 0)
                l->values[node->outputs[o]].storage = l->values[of].storage;
        }
    }
}

/* From the output backwards. An in-place operator is live if anything reads the memory that it
 * changes. */
static void find_live_nodes(lowering *l)
{
    note_live(l, fth_exported_get_output(l->program, 0));
    for (size_t n = fth_exported_node_count(l->program); n-- > 0;) {
        const fth_exported_node *node = fth_exported_get_node(l->program, n);
        const int changed = changed_tensor(node);
        bool live = changed >= 0 && l->values[l->values[changed].storage].storage_live;
        for (size_t o = 0; o < node->output_count; o++)
            live = live || (node->outputs[o] >= 0 && l->values[node->outputs[o]].live);
        l->live_nodes[n] = live && !updates_counter(l, node);
        if (l->live_nodes[n])
            visit_reads(node, note_live, l);
    }
}

/* A buffer that the network itself changes, other than a batch norm's, would have to be kept up to
 * date. */
static fth_status check_buffers(const lowering *l)
{
    for (size_t n = 0; n < fth_exported_node_count(l->program); n++) {
        const fth_exported_node *node = fth_exported_get_node(l->program, n);
        const int changed = changed_tensor(node);
        const fth_exported_value *value =
            changed >= 0 ? fth_exported_get_value(l->program, l->values[changed].storage) : NULL;
        if (value && value->kind == FTH_EXPORTED_BUFFER && !updates_counter(l, node))
            return fth_fail(FTH_UNSUPPORTED,
                            "%s: %s (%s) changes the buffer %s, which farthing does not do in training",
                            fth_exported_origin(l->program), node->target, node->where, value->state_name);
    }
    return FTH_OK;
}

/* From here on, what an in-place operator changed is its result. */
static void replace(lowering *l, const fth_exported_node *node)
{
    const int changed = changed_tensor(node);
    if (changed < 0 || node->output_count == 0 || node->outputs[0] < 0)
        return;
    const int before = l->values[changed].now;
    for (int v = 0; v < fth_exported_value_count(l->program); v++)
        if (l->values[v].now == before)
            l->values[v].now = node->outputs[0];
}

/* How often each value is read, in-place operators followed. */
static void count_readers(lowering *l)
{
    for (int v = 0; v < fth_exported_value_count(l->program); v++)
        l->values[v].now = v;
    for (size_t n = 0; n < fth_exported_node_count(l->program); n++) {
        const fth_exported_node *node = fth_exported_get_node(l->program, n);
        if (!l->live_nodes[n])
            continue;
        visit_reads(node, note_reader, l);
        replace(l, node);
    }
    l->values[l->values[fth_exported_get_output(l->program, 0)].now].readers++;
    for (int v = 0; v < fth_exported_value_count(l->program); v++)
        l->values[v].now = v;
}

/* ---- operators that are missing ---- */

enum { MOST_NAMED = 20 };

static bool is_named(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static fth_status list_missing(const lowering *l)
{
    const char *named[MOST_NAMED];
    char *text = NULL;
    size_t size = 0, missing = 0;
    bool more = false;
    FILE *stream = open_memstream(&text, &size);

    if (!stream)
        return fth_fail(FTH_NO_MEMORY, "no memory for a list of operators");
    for (size_t n = 0; n < fth_exported_node_count(l->program); n++) {
        const fth_exported_node *node = fth_exported_get_node(l->program, n);
        if (!l->live_nodes[n] || find_row(node->target) || lowering_may_fold(node) ||
            is_named(named, missing, node->target))
            continue;
        if (missing == MOST_NAMED) {
            more = true;
            break;
        }
        fprintf(stream, "%s%s", missing > 0 ? "; " : "", node->target);
        if (*node->where)
            fprintf(stream, " (%s)", node->where);
        named[missing++] = node->target;
    }
    fth_status status = fclose(stream) == 0 ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for a list of operators");
    if (status == FTH_OK && missing > 0)
        status = fth_fail(FTH_UNSUPPORTED, "%s: the network uses %s%s that farthing does not have: %s%s",
                          fth_exported_origin(l->program), more ? "more than " : "",
                          FTH_COUNTED((int64_t)missing, "operator"), text, more ? "; ..." : "");
    free(text);
    return status;
}

/* ---- the walk ---- */

/* True of a value that shows the memory of `changed` as it was before node `index` changed it. Parts
 * that one operator made are apart from one another. */
static bool is_stale(const lowering *l, int number, int changed, size_t index)
{
    const lowered_value *value = &l->values[number], *source = &l->values[changed];
    return value->storage == source->storage && value->made_by < (int)index && value->refreshed_by != (int)index &&
           value->now != source->now && (value->made_by < 0 || value->made_by != source->made_by);
}

/* True if a node that comes later reads such a value. */
static bool reads_stale(const lowering *l, const fth_exported_node *later, int changed, size_t index)
{
    for (size_t a = 0; a < later->argument_count; a++) {
        const fth_exported_argument *argument = &later->arguments[a];
        if (argument->kind == FTH_ARGUMENT_TENSOR && is_stale(l, argument->tensor, changed, index))
            return true;
        for (size_t i = 0; argument->kind == FTH_ARGUMENT_TENSORS && i < argument->count; i++)
            if (argument->tensors[i] >= 0 && is_stale(l, argument->tensors[i], changed, index))
                return true;
    }
    return false;
}

/* Puts what has become of a part, x[:, 1], into the tensor that it is a part of, and that one into
 * its own. Other views are left as they were. */
static fth_status refresh_whole(lowering *l, int part, size_t index)
{
    fth_status status = FTH_OK;
    const fth_exported_node *current = l->node;
    fth_view view, whole;

    while (l->values[part].made_by >= 0) {
        l->node = fth_exported_get_node(l->program, (size_t)l->values[part].made_by);
        const fth_exported_argument *self = fth_exported_find_argument(l->node, "self");
        const int before = part;
        if (!self || self->kind != FTH_ARGUMENT_TENSOR)
            break;
        part = self->tensor;
        if (is_in_place(l->node)) /* what it changed is the same tensor */
            continue;
        if (!lowering_is(l, "slice") && !lowering_is(l, "select"))
            break;
        FTH_TRY(lowering_view_of(l, before, &view));
        FTH_TRY(lowering_view_of(l, part, &whole));
        FTH_TRY(lowering_put_part(l, &view, &whole));
        const int now = l->values[part].now;
        l->values[now].kind = LOWERED_VIEW;
        l->values[now].view = whole;
        for (int v = 0; v < fth_exported_value_count(l->program); v++)
            if (l->values[v].now == now)
                l->values[v].refreshed_by = (int)index;
    }
out:
    l->node = current;
    return status;
}

/* An in-place operator changes its argument for all later readers, and the tensor that it is a part
 * of. One that reads another view of it made before would have to see the change too; constants do
 * (fold.h). */
static fth_status follow_in_place(lowering *l, size_t index, bool folded)
{
    fth_status status = FTH_OK;
    const fth_exported_node *node = lowering_node(l);
    const int changed = changed_tensor(node), result = fth_exported_get_output(l->program, 0);

    if (changed < 0 || node->output_count == 0 || node->outputs[0] < 0)
        goto out;
    replace(l, node);
    if (folded)
        goto out;
    FTH_TRY(refresh_whole(l, changed, index));
    for (size_t n = index + 1; n < fth_exported_node_count(l->program); n++) {
        const fth_exported_node *later = fth_exported_get_node(l->program, n);
        FTH_REQUIRE(!l->live_nodes[n] || !reads_stale(l, later, changed, index), FTH_UNSUPPORTED,
                    "a tensor is changed in place while a view of it is read later, by %s (%s)", later->target,
                    later->where);
    }
    FTH_REQUIRE(!is_stale(l, result, changed, index), FTH_UNSUPPORTED,
                "a tensor is changed in place while a view of it is returned");
out:
    return status;
}

/* A number that is the size of the batch, or made of it, is not known here. */
static fth_status check_numbers(const fth_exported_node *node)
{
    for (size_t a = 0; a < node->argument_count; a++) {
        const fth_exported_argument *argument = &node->arguments[a];
        const fth_exported_dim *integer = &argument->integer;
        if ((argument->kind == FTH_ARGUMENT_INT && (integer->batch || integer->length || integer->unknown)) ||
            (argument->kind == FTH_ARGUMENT_OTHER && argument->text && strncmp(argument->text, "as_sym_", 7) == 0))
            return fth_fail(FTH_UNSUPPORTED, "its argument %s depends on the batch", argument->name);
    }
    return FTH_OK;
}

/* Rules ask for the first result; those of parts are without it where another one is read. */
static bool has_result(const fth_exported_node *node)
{
    return node->output_count > 0 && node->outputs[0] >= 0;
}

static fth_status lower_node(lowering *l, size_t index)
{
    fth_status status = FTH_OK;
    bool folded = false;
    const fth_exported_node *node = fth_exported_get_node(l->program, index);

    l->node = node;
    const lowering_row *row = find_row(node->target);
    status = check_numbers(node);
    if (status == FTH_OK)
        status = lowering_fold(l, &folded);
    if (status == FTH_OK && !folded && !has_result(node) && !is_in_table(lowering_parts, row))
        status = fth_fail(FTH_UNSUPPORTED, "its result is not described");
    if (status == FTH_OK && !folded)
        status = row ? row->rule(l) : fth_fail(FTH_UNSUPPORTED, "farthing has this operator only of constants");
    if (status == FTH_OK)
        status = follow_in_place(l, index, folded);
    if (status != FTH_OK)
        return fth_fail_within(status, "%s: %s%s%s%s", fth_exported_origin(l->program), node->target,
                               *node->where ? " (" : "", node->where, *node->where ? ")" : "");
    return FTH_OK;
}

static void release(lowering *l)
{
    for (int v = 0; l->values && v < fth_exported_value_count(l->program); v++)
        lowering_release_value(&l->values[v]);
    free(l->values);
    free(l->live_nodes);
}

static fth_status begin(lowering *l)
{
    fth_status status = FTH_OK;
    const double work = (double)fth_exported_node_count(l->program) * fth_exported_value_count(l->program);
    FTH_REQUIRE(work <= 4e8, FTH_UNSUPPORTED, "%s: %zu operators and %d tensors are too many",
                fth_exported_origin(l->program), fth_exported_node_count(l->program),
                fth_exported_value_count(l->program));
    FTH_REQUIRE(fth_exported_output_count(l->program) > 0, FTH_INVALID, "%s: the network returns no tensor",
                fth_exported_origin(l->program));
    FTH_TRY(fth_allocate((size_t)fth_exported_value_count(l->program), sizeof *l->values, &l->values));
    FTH_TRY(fth_allocate(fth_exported_node_count(l->program), sizeof *l->live_nodes, &l->live_nodes));
    find_storages(l);
    find_live_nodes(l);
    count_readers(l);
    FTH_TRY(check_buffers(l));
    FTH_TRY(list_missing(l));
out:
    return status;
}

fth_status fth_exported_check_operators(const fth_exported *program)
{
    lowering l = {.program = program};
    fth_status status = begin(&l);
    release(&l);
    return status;
}

fth_status fth_exported_lower(const fth_exported *program, const fth_exported_lower_options *options, fth_graph *graph,
                              const fth_value *inputs, fth_value *output)
{
    fth_status status = FTH_OK;
    lowering l = {.program = program, .options = options, .graph = graph, .allowance = FTH_FOLD_ALLOWANCE};
    fth_view result;

    FTH_TRY(begin(&l));
    FTH_TRY(lowering_add_state(&l));
    for (size_t i = 0; i < fth_exported_input_count(program); i++)
        FTH_TRY(lowering_add_input(&l, fth_exported_get_input(program, i), inputs[i]));
    for (size_t n = 0; n < fth_exported_node_count(program); n++)
        if (l.live_nodes[n])
            FTH_TRY(lower_node(&l, n));
    l.node = NULL;
    FTH_TRY(lowering_view_of(&l, fth_exported_get_output(program, 0), &result));
    FTH_TRY(fth_view_arrange_plain(graph, &result));
    *output = result.value;
    FTH_TRY(fth_graph_fuse_pointwise(graph));

out:
    release(&l);
    return status;
}
