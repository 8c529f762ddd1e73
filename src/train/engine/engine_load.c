/* Tensors into an engine: from a checkpoint, or from whatever file weights are in.
 *
 * Everything is checked before anything is copied, so that a file that does not fit leaves the
 * engine as it was and its message names all that is wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/exported_model.h"
#include "train/engine/engine_internal.h"

enum { NAMES_SHOWN = 4, NAMES_LOGGED = 30 };

/* The names that have one kind of trouble: a few for the message, and all of them, within reason,
 * for the log. */
typedef struct complaint {
    const char *what;
    char text[640];
    char **items;
    int count;
} complaint;

typedef struct loading {
    fth_engine *engine;
    const fth_tensor_view **views; /* by name */
    size_t view_count;
    const fth_weights *weights; /* the file; NULL: a checkpoint */
    bool whole;                 /* with the optimizer's state */
    bool head_stays;            /* as it was initialized */
    fth_model_head head;
    bool may_lack; /* parameters of the task that the file lacks stay as they were initialized, too */
    float *scratch;
    size_t scratch_floats;
    int found; /* tensors of the engine that the file has, in whichever shape */
    complaint missing, unexpected, shapes;
} loading;

/* ---- what does not fit ---- */

static void complain(complaint *list, const char *item)
{
    if (list->count < NAMES_SHOWN) {
        size_t length = strlen(list->text);
        snprintf(list->text + length, sizeof list->text - length, "%s%s", length ? ", " : "", item);
    }
    if (list->count < NAMES_LOGGED && list->items)
        list->items[list->count] = fth_format("%s", item);
    list->count++;
}

static void append_complaint(char *message, size_t size, const complaint *list)
{
    size_t length = strlen(message);
    if (list->count == 0 || length >= size)
        return;
    snprintf(message + length, size - length, "; %d %s: %s%s", list->count, list->what, list->text,
             list->count > NAMES_SHOWN ? ", ..." : "");
}

static void log_complaint(const complaint *list)
{
    for (int i = 0; i < list->count && i < NAMES_LOGGED; i++)
        fth_log_warning("%s: %s", list->what, list->items[i]);
    if (list->count > NAMES_LOGGED)
        fth_log_warning("%s: %d more", list->what, list->count - NAMES_LOGGED);
}

/* ---- names ---- */

char *fth_engine_state_name(const char *vector, const char *parameter)
{
    return fth_format("optimizer.%s.%s", vector, parameter);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const fth_tensor_view *const *)a)->name, (*(const fth_tensor_view *const *)b)->name);
}

static const fth_tensor_view *find_view(const loading *load, const char *name)
{
    const fth_tensor_view key = {.name = name}, *key_pointer = &key;
    const fth_tensor_view **found =
        bsearch(&key_pointer, load->views, load->view_count, sizeof *load->views, compare_names);
    return found ? *found : NULL;
}

/* The file's tensor for a parameter or buffer: under its name, or another one of the same
 * tensor. */
static const fth_tensor_view *find_value(const loading *load, const char *name)
{
    const fth_graph *graph = load->engine->graph;
    const fth_tensor_view *view = find_view(load, name);
    const fth_value value = view ? FTH_NO_VALUE : fth_graph_find(graph, name);
    for (int i = 0; value != FTH_NO_VALUE && !view && i < fth_graph_file_tensor_count(graph); i++)
        if (fth_graph_file_tensor(graph, i)->same_as == value)
            view = find_view(load, fth_graph_file_tensor(graph, i)->name);
    return view;
}

static bool is_counter(const fth_graph *graph, const char *name)
{
    for (int i = 0; i < fth_graph_counter_count(graph); i++)
        if (strcmp(fth_graph_counter(graph, i), name) == 0)
            return true;
    return false;
}

static bool is_state_of(const fth_engine *engine, const char *name)
{
    for (int i = 0; i < engine->vectors.sizes.state_count; i++) {
        const char *vector = fth_weight_update_get_optimizer(engine->update)->vectors[i];
        size_t length = strlen(vector);
        if (strncmp(name, "optimizer.", 10) == 0 && strncmp(name + 10, vector, length) == 0 &&
            name[10 + length] == '.') {
            fth_value value = fth_graph_find(engine->graph, name + 11 + length);
            return value != FTH_NO_VALUE && fth_graph_value(engine->graph, value)->gradient != FTH_NO_VALUE;
        }
    }
    return false;
}

static bool is_expected(const loading *load, const char *name)
{
    const fth_graph *graph = load->engine->graph;
    fth_value value = fth_graph_find(graph, name);
    if (value != FTH_NO_VALUE && fth_graph_value(graph, value)->kind != FTH_VALUE_INPUT)
        return true;
    return is_counter(graph, name) || fth_graph_find_file_tensor(graph, name) ||
           (load->whole && is_state_of(load->engine, name));
}

/* All that the file lacks is what fine-tuning adds to it. */
static bool lacks_only_the_task(const loading *load)
{
    const fth_graph *graph = load->engine->graph;
    int may = 0;
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++)
        if (fth_graph_value(graph, v)->kind == FTH_VALUE_PARAMETER && fth_model_may_lack(graph, v) &&
            !find_view(load, fth_graph_value(graph, v)->name))
            may++;
    return load->weights && load->unexpected.count == 0 && load->shapes.count == 0 && load->missing.count == may;
}

static fth_status fail_if_unfit(const loading *load, const char *origin)
{
    const complaint *const lists[] = {&load->missing, &load->unexpected, &load->shapes};
    char message[2400] = "";
    bool more = false;
    for (size_t i = 0; i < FTH_COUNT_OF(lists); i++) {
        append_complaint(message, sizeof message, lists[i]);
        more = more || lists[i]->count > NAMES_SHOWN;
    }
    if (!*message)
        return FTH_OK;
    if (load->found == 0) /* then lists of names say nothing more */
        more = false;
    for (size_t i = 0; more && i < FTH_COUNT_OF(lists); i++)
        log_complaint(lists[i]);
    char hint[200] = "";
    const char *model = load->engine->options.train->model;
    fth_model_fit fit = {0};
    if (load->weights && fth_model_recognize(load->weights, &fit) == FTH_OK && fit.fits &&
        strcmp(fit.model->name, model) != 0)
        snprintf(hint, sizeof hint, "; its tensors are those of %s: --model %s", fit.model->name, fit.model->name);
    fth_model_fit_release(&fit);
    if (lacks_only_the_task(load))
        snprintf(hint, sizeof hint, "; it was not fine-tuned yet: farthing train --weights does that");
    return fth_fail(FTH_INVALID, "%s does not fit %s%s%s", origin, model, message, hint);
}

/* ---- checking and copying ---- */

static void check_tensor(loading *load, const char *name, const fth_shape *shape)
{
    const fth_tensor_view *view = find_value(load, name);
    load->found += view != NULL;
    if (!view) {
        complain(&load->missing, name);
    } else if (!fth_shape_equal(&view->shape, shape)) {
        char found[96], wanted[96], item[320];
        fth_shape_format(&view->shape, found, sizeof found);
        fth_shape_format(shape, wanted, sizeof wanted);
        snprintf(item, sizeof item, "%.100s is %s instead of %s", name, found, wanted);
        complain(&load->shapes, item);
    }
    size_t count = (size_t)fth_shape_count(shape);
    if (count > load->scratch_floats)
        load->scratch_floats = count;
}

static fth_status copy_tensor(loading *load, const char *name, size_t count, float *to)
{
    fth_engine *engine = load->engine;
    fth_status status = fth_tensor_view_to_f32(find_value(load, name), load->scratch, count);
    if (status == FTH_OK)
        status = engine->backend->copy_in(engine->device, to, load->scratch, count * sizeof(float));
    return status;
}

typedef enum visit { CHECK_SHAPES, CHECK_NUMBERS, COPY } visit;

static fth_status visit_tensor(loading *load, visit what, const char *name, const fth_shape *shape, float *to)
{
    switch (what) {
    case CHECK_SHAPES: check_tensor(load, name, shape); break;
    case CHECK_NUMBERS: return fth_tensor_check_finite(find_value(load, name));
    case COPY: return copy_tensor(load, name, (size_t)fth_shape_count(shape), to);
    }
    return FTH_OK;
}

/* Whether the file of an exported network is read for what --reinitialize does not draw. */
static bool draws(const loading *load)
{
    const fth_train_options *train = load->engine->options.train;
    return load->weights && train->reinitialize && train->own.network;
}

/* True of a parameter that keeps its initial values: the file has nothing for it, which is fine, or
 * it is drawn. */
static bool stays(const loading *load, fth_value value)
{
    if (draws(load) && fth_exported_model_draws(load->engine->options.train->own.network,
                                                fth_graph_value(load->engine->graph, value)->name))
        return true;
    if (load->head_stays && (value == load->head.weight || value == load->head.bias))
        return true;
    const fth_graph *graph = load->engine->graph;
    return load->may_lack && fth_model_may_lack(graph, value) && !find_view(load, fth_graph_value(graph, value)->name);
}

/* Does one thing to everything the engine has under a name. */
static fth_status visit_tensors(loading *load, visit what)
{
    fth_status status = FTH_OK;
    fth_engine *engine = load->engine;
    char *name = NULL;

    for (fth_value v = 0; v < fth_graph_value_count(engine->graph); v++) {
        const fth_value_info *info = fth_graph_value(engine->graph, v);
        bool parameter = info->kind == FTH_VALUE_PARAMETER;
        if ((!parameter && info->kind != FTH_VALUE_BUFFER) || stays(load, v))
            continue;
        const fth_shape *shape = &info->type.shape;
        float *vector = parameter ? engine->vectors.parameters : engine->vectors.buffers;
        FTH_TRY(visit_tensor(load, what, info->name, shape, vector + info->offset));
        for (int i = 0; load->whole && info->gradient != FTH_NO_VALUE && i < engine->vectors.sizes.state_count; i++) {
            name = fth_engine_state_name(fth_weight_update_get_optimizer(engine->update)->vectors[i], info->name);
            FTH_TRY(visit_tensor(load, what, name, shape, engine->vectors.state[i] + info->offset));
            free(name);
            name = NULL;
        }
    }

out:
    free(name);
    return status;
}

/* ---- tensors that only files have ---- */

/* True if both hold the same numbers, whatever their types. */
static bool are_same(const fth_tensor_view *a, const fth_tensor_view *b, float *scratch)
{
    const size_t count = (size_t)fth_shape_count(&a->shape);
    if (!fth_shape_equal(&a->shape, &b->shape))
        return false;
    if (a->dtype == b->dtype)
        return memcmp(a->data, b->data, count * fth_dtype_size_bytes(a->dtype)) == 0;
    return fth_tensor_view_to_f32(a, scratch, count) == FTH_OK &&
           fth_tensor_view_to_f32(b, scratch + count, count) == FTH_OK &&
           memcmp(scratch, scratch + count, count * sizeof *scratch) == 0;
}

/* What the file has under two names must agree, and constants are those of the graph. */
static fth_status check_file_tensor(const loading *load, const fth_file_tensor *tensor, const char *origin)
{
    fth_status status = FTH_OK;
    const fth_graph *graph = load->engine->graph;
    const bool tied = tensor->same_as != FTH_NO_VALUE;
    const char *name = tied ? fth_graph_value(graph, tensor->same_as)->name : tensor->name;
    const fth_tensor_view *view = find_view(load, tensor->name);
    const fth_tensor_view constant = {.dtype = tensor->type.dtype, .shape = tensor->type.shape, .data = tensor->data};
    const fth_tensor_view *other = tied ? find_view(load, name) : &constant;
    float *scratch = NULL;

    if (!view || !other)
        return FTH_OK;
    FTH_TRY(fth_allocate(2 * (size_t)fth_shape_count(&view->shape) + 1, sizeof *scratch, &scratch));
    const bool same = are_same(view, other, scratch);
    FTH_REQUIRE(same || !tied, FTH_INVALID, "cannot use %s: %s and %s are one tensor in %s, but differ in the file",
                origin, tensor->name, name, load->engine->options.train->model);
    FTH_REQUIRE(same, FTH_INVALID, "cannot use %s: its %s differs from the constant in the graph of %s", origin,
                tensor->name, load->engine->options.train->model);

out:
    free(scratch);
    return status;
}

static fth_status check_file_tensors(const loading *load, const char *origin)
{
    fth_status status = FTH_OK;
    const fth_graph *graph = load->engine->graph;
    for (int i = 0; i < fth_graph_file_tensor_count(graph) && status == FTH_OK; i++)
        status = check_file_tensor(load, fth_graph_file_tensor(graph, i), origin);
    return status;
}

/* ---- the head ---- */

/* True if the file's tensor for `value` differs in its first dimension only; *rows is what it has
 * there. */
static bool differs_in_rows(const loading *load, fth_value value, int64_t *rows)
{
    const fth_value_info *info = fth_graph_value(load->engine->graph, value);
    const fth_tensor_view *view = find_view(load, info->name);
    if (!view || view->shape.rank != info->type.shape.rank)
        return false;
    fth_shape other = view->shape;
    *rows = other.dims[0];
    other.dims[0] = info->type.shape.dims[0];
    return *rows != other.dims[0] && fth_shape_equal(&other, &info->type.shape);
}

/* True if the file's head is whole, but for another number of classes: *rows. */
static bool has_other_classes(const loading *load, fth_model_head head, int64_t *rows)
{
    int64_t bias_rows = 0;
    return head.weight != FTH_NO_VALUE && differs_in_rows(load, head.weight, rows) &&
           (head.bias == FTH_NO_VALUE || (differs_in_rows(load, head.bias, &bias_rows) && bias_rows == *rows));
}

/* Where the number of classes is all that differs, that is what to say: not that a tensor is
 * misshapen. */
static fth_status check_classes(const loading *load, const char *origin)
{
    int64_t rows = 0;
    const fth_model_head head = fth_model_find_head(load->engine->graph);
    const int head_tensors = 1 + (head.bias != FTH_NO_VALUE);
    if (load->head_stays || !has_other_classes(load, head, &rows) || load->shapes.count != head_tensors ||
        load->missing.count + load->unexpected.count > 0)
        return FTH_OK;
    return fth_fail(FTH_INVALID, "the model in %s has %lld classes, not %d; check --classes and --data", origin,
                    (long long)rows, load->engine->options.classes);
}

/* Leaves the head alone if only its number of classes differs, and notes it. */
static void judge_head(loading *load, char *note, size_t size)
{
    int64_t rows = 0;
    load->head = fth_model_find_head(load->engine->graph);
    if (!has_other_classes(load, load->head, &rows))
        return;
    load->head_stays = true;
    char shape[96];
    const char *name = fth_graph_value(load->engine->graph, load->head.weight)->name;
    fth_shape_format(&find_view(load, name)->shape, shape, sizeof shape);
    snprintf(note, size, "head replaced: %.100s is %s in the file, the data has %d classes", name, shape,
             load->engine->options.classes);
}

/* Notes which layers the file has nothing for: "initialized, since the file lacks them:
 * bert.pooler.dense, classifier". */
static void note_lacking(loading *load, char *note, size_t size)
{
    const fth_graph *graph = load->engine->graph;
    char before[128] = "";
    load->may_lack = true;
    for (fth_value v = 0; v < fth_graph_value_count(graph); v++) {
        const char *name = fth_graph_value(graph, v)->name, *dot = strrchr(name, '.');
        char layer[128];
        if (!dot || !fth_model_may_lack(graph, v) || find_view(load, name))
            continue;
        snprintf(layer, sizeof layer, "%.*s", (int)(dot - name), name);
        if (strcmp(layer, before) == 0)
            continue;
        size_t used = strlen(note);
        snprintf(note + used, size - used, "%s%s",
                 *before ? ", "
                 : used  ? "; initialized, since the file lacks them: "
                         : "initialized, since the file lacks them: ",
                 layer);
        snprintf(before, sizeof before, "%s", layer);
    }
}

/* ---- loading ---- */

static int64_t read_counter(const loading *load)
{
    int64_t count = 0;
    if (fth_graph_counter_count(load->engine->graph) > 0) {
        const fth_tensor_view *view = find_view(load, fth_graph_counter(load->engine->graph, 0));
        if (view && view->dtype == FTH_I64 && fth_shape_count(&view->shape) == 1)
            memcpy(&count, view->data, sizeof count);
    }
    return count > 0 ? count : 0;
}

static fth_status prepare(loading *load, size_t view_count)
{
    fth_status status = FTH_OK;
    complaint *const lists[] = {&load->missing, &load->unexpected, &load->shapes};

    load->missing.what = "missing";
    load->unexpected.what = "unexpected";
    load->shapes.what = "of another shape";
    for (size_t i = 0; i < FTH_COUNT_OF(lists); i++)
        FTH_TRY(fth_allocate(NAMES_LOGGED, sizeof *lists[i]->items, &lists[i]->items));
    FTH_TRY(fth_allocate(view_count + 1, sizeof *load->views, &load->views));

out:
    return status;
}

static void release(loading *load)
{
    complaint *const lists[] = {&load->missing, &load->unexpected, &load->shapes};
    for (size_t i = 0; i < FTH_COUNT_OF(lists); i++) {
        for (int n = 0; lists[i]->items && n < NAMES_LOGGED; n++)
            free(lists[i]->items[n]);
        free(lists[i]->items);
    }
    free(load->views);
    free(load->scratch);
}

/* Refuses numbers that are not finite. */
static fth_status check_numbers(loading *load, const char *origin)
{
    if (visit_tensors(load, CHECK_NUMBERS) == FTH_OK)
        return FTH_OK;
    char *what = fth_format("%s", fth_error_message());
    fth_status status = fth_fail(load->whole ? FTH_CORRUPT : FTH_INVALID,
                                 "cannot use %s: %s; take a file from before that", origin, what);
    free(what);
    return status;
}

static fth_status load_views(loading *load, bool may_replace_head, const char *origin, fth_weights_report *report)
{
    fth_status status = FTH_OK;

    qsort(load->views, load->view_count, sizeof *load->views, compare_names);
    if (may_replace_head) {
        judge_head(load, report->head_note, sizeof report->head_note);
        note_lacking(load, report->head_note, sizeof report->head_note);
    }
    FTH_TRY(visit_tensors(load, CHECK_SHAPES));
    for (size_t i = 0; i < load->view_count; i++) {
        char item[128];
        snprintf(item, sizeof item, "%.100s", load->views[i]->name);
        if (!is_expected(load, load->views[i]->name))
            complain(&load->unexpected, item);
    }
    FTH_TRY(check_classes(load, origin));
    FTH_TRY(fail_if_unfit(load, origin));
    FTH_TRY(check_file_tensors(load, origin));
    FTH_TRY(check_numbers(load, origin));
    FTH_TRY(fth_allocate_aligned(load->scratch_floats * sizeof(float) + 1, &load->scratch));
    FTH_TRY(visit_tensors(load, COPY));
    report->batches = draws(load) ? 0 : read_counter(load);

out:
    return status;
}

fth_status fth_engine_load(fth_engine *engine, const fth_safetensors *tensors, const char *origin)
{
    fth_status status = FTH_OK;
    loading load = {.engine = engine, .whole = true};
    fth_weights_report report = {0};

    FTH_TRY(prepare(&load, fth_safetensors_count(tensors)));
    for (size_t i = 0; i < fth_safetensors_count(tensors); i++)
        load.views[load.view_count++] = fth_safetensors_get(tensors, i);
    FTH_TRY(load_views(&load, false, origin, &report));

out:
    release(&load);
    return status;
}

fth_status fth_engine_load_weights(fth_engine *engine, fth_weights *weights, bool may_replace_head, const char *origin,
                                   fth_weights_report *report)
{
    fth_status status = FTH_OK;
    loading load = {.engine = engine, .weights = weights};
    fth_weights_report unread;
    char *explanation = NULL;

    report = report ? report : &unread;
    *report = (fth_weights_report){0};
    FTH_TRY(fth_model_narrow_weights(engine->graph, origin, weights));
    FTH_TRY(prepare(&load, fth_weights_count(weights)));
    for (size_t i = 0; i < fth_weights_count(weights); i++)
        load.views[load.view_count++] = fth_weights_get(weights, i);
    FTH_TRY(load_views(&load, may_replace_head, origin, report));
    explanation = fth_weights_explain(weights);
    if (explanation)
        fth_log_info("%s: %s", origin, explanation);

out:
    free(explanation);
    release(&load);
    return status;
}
