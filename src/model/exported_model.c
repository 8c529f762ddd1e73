/* See exported_model.h.
 *
 * What is kept for the life of the process is in two lists with one mutex: models, by name and
 * digest of the text, and files that were read, so that asking for one again does not read it
 * again. */
#include "model/exported_model.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hex.h"
#include "exported/lower.h"
#include "graph/ops.h"

enum { MAX_SIDE = 1 << 14, MAX_FEATURES = 1 << 24, MAX_CLASSES = 1 << 20, SHAPE_BYTES = 128 };

typedef struct exported_model {
    fth_model model;
    fth_exported *program; /* without weights */
    char *text;
    char digest[65];
    struct exported_model *next;
} exported_model;

/* A file that was read, as it was then. */
typedef struct known_file {
    char *path;
    struct stat facts;
    const exported_model *model;
    struct known_file *next;
} known_file;

static struct {
    pthread_mutex_t mutex;
    exported_model *models; /* guarded by mutex, as is `files`; what they point to does not change */
    known_file *files;
} made = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static const char ending[] = ".pt2";

bool fth_exported_model_is_name(const char *name)
{
    const size_t length = strlen(name), ending_length = sizeof ending - 1;
    return length > ending_length && strcmp(name + length - ending_length, ending) == 0;
}

const char *fth_exported_model_short_name(const char *name)
{
    const char *slash = fth_exported_model_is_name(name) ? strrchr(name, '/') : NULL;
    return slash ? slash + 1 : name;
}

/* ---- shapes ---- */

/* "(N, 3, 32, 32)" of a program's value. */
static void format_dims(const fth_exported_value *value, char text[SHAPE_BYTES])
{
    size_t length = (size_t)snprintf(text, SHAPE_BYTES, "(");
    for (int i = 0; i < value->rank && length < SHAPE_BYTES; i++) {
        const fth_exported_dim *dim = &value->dims[i];
        const char *symbols = dim->batch && dim->length ? "NL" : dim->batch ? "N" : dim->length ? "L" : "";
        char factor[24] = "";
        if (dim->unknown)
            snprintf(factor, sizeof factor, "?");
        else if (!*symbols || dim->factor != 1)
            snprintf(factor, sizeof factor, "%lld", (long long)dim->factor);
        length += (size_t)snprintf(text + length, SHAPE_BYTES - length, "%s%s%s", i > 0 ? ", " : "", factor, symbols);
    }
    if (length < SHAPE_BYTES)
        snprintf(text + length, SHAPE_BYTES - length, "%s)", value->rank == 1 ? "," : "");
}

static bool is_batch(const fth_exported_dim *dim)
{
    return dim->batch && !dim->length && !dim->unknown && dim->factor == 1;
}

static bool is_fixed(const fth_exported_dim *dim, int64_t most)
{
    return !dim->batch && !dim->length && !dim->unknown && dim->factor >= 1 && dim->factor <= most;
}

static bool is_float(int torch_dtype)
{
    return torch_dtype == FTH_TORCH_F32 || torch_dtype == FTH_TORCH_F64 || torch_dtype == FTH_TORCH_F16 ||
           torch_dtype == FTH_TORCH_BF16;
}

/* Sets the model's channels, height and width: (N, C, H, W) is images, anything else rows of
 * numbers, which are images of one channel here. */
static fth_status read_input(const fth_exported *program, const char *origin, fth_model *model)
{
    fth_status status = FTH_OK;
    char shape[SHAPE_BYTES];

    FTH_REQUIRE(fth_exported_input_count(program) == 1, FTH_UNSUPPORTED,
                "%s takes %zu inputs; a network that is trained here takes one: images (N, C, H, W) or rows of numbers "
                "(N, F)",
                origin, fth_exported_input_count(program));
    const fth_exported_value *input = fth_exported_get_value(program, fth_exported_get_input(program, 0));
    format_dims(input, shape);
    FTH_REQUIRE(is_float(input->torch_dtype), FTH_UNSUPPORTED,
                "%s takes %s %s; it must take floating-point images (N, C, H, W) or rows of numbers (N, F)", origin,
                fth_torch_dtype_name(input->torch_dtype), shape);
    FTH_REQUIRE(input->rank >= 2 && is_batch(&input->dims[0]), FTH_UNSUPPORTED,
                "%s takes %s: its first size must be the batch, of any size; export it with " FTH_EXPORT_LINE, origin,
                shape);
    int64_t features = 1;
    for (int i = 1; i < input->rank; i++) {
        FTH_REQUIRE(is_fixed(&input->dims[i], MAX_FEATURES) && features <= MAX_FEATURES / input->dims[i].factor,
                    FTH_UNSUPPORTED,
                    "%s takes %s: all sizes but the batch must be fixed; export it with " FTH_EXPORT_LINE, origin,
                    shape);
        features *= input->dims[i].factor;
    }
    const bool images = input->rank == 4 && input->dims[1].factor <= MAX_SIDE && input->dims[2].factor <= MAX_SIDE &&
                        input->dims[3].factor <= MAX_SIDE;
    model->channels = images ? (int)input->dims[1].factor : 1;
    model->height = images ? (int)input->dims[2].factor : 1;
    model->width = images ? (int)input->dims[3].factor : (int)features;

out:
    return status;
}

static fth_status read_output(const fth_exported *program, const char *origin, fth_model *model)
{
    fth_status status = FTH_OK;
    char shape[SHAPE_BYTES];

    FTH_REQUIRE(fth_exported_output_count(program) >= 1, FTH_UNSUPPORTED, "%s returns no tensor", origin);
    const fth_exported_value *output = fth_exported_get_value(program, fth_exported_get_output(program, 0));
    format_dims(output, shape);
    FTH_REQUIRE(output->rank == 2 && is_batch(&output->dims[0]) && is_fixed(&output->dims[1], MAX_CLASSES),
                FTH_UNSUPPORTED,
                "%s returns %s; training needs (N, K), a score for each of K classes (or K numbers) of each sample",
                origin, shape);
    model->classes = (int)output->dims[1].factor;

out:
    return status;
}

/* ---- the mode that it was exported in ---- */

static bool begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* 1: a layer that does something in training, as it was exported; -1: one that was exported for
 * evaluation; 0: any other node. */
static int judge_mode(const fth_exported_node *node)
{
    const fth_exported_argument *training = NULL;
    if (begins_with(node->target, "aten.batch_norm.") || begins_with(node->target, "aten.cudnn_batch_norm.") ||
        begins_with(node->target, "aten.native_batch_norm.") ||
        begins_with(node->target, "aten._native_batch_norm_legit"))
        training = fth_exported_find_argument(node, "training");
    else if (begins_with(node->target, "aten.dropout") || begins_with(node->target, "aten.native_dropout") ||
             begins_with(node->target, "aten.feature_dropout") || begins_with(node->target, "aten.alpha_dropout"))
        training = fth_exported_find_argument(node, "train");
    if (begins_with(node->target, "aten._native_batch_norm_legit_no_training"))
        return -1;
    return training && training->kind == FTH_ARGUMENT_BOOL ? (training->boolean ? 1 : -1) : 0;
}

static fth_status check_mode(const fth_exported *program, const char *origin)
{
    bool trains = false, evaluates = false;
    for (size_t i = 0; i < fth_exported_node_count(program); i++) {
        const int mode = judge_mode(fth_exported_get_node(program, i));
        trains = trains || mode > 0;
        evaluates = evaluates || mode < 0;
    }
    if (!evaluates || trains)
        return FTH_OK;
    return fth_fail(FTH_INVALID,
                    "%s was exported in eval mode, without batch norms and dropout as they are in training; export it "
                    "with " FTH_EXPORT_LINE,
                    origin);
}

/* ---- graphs ---- */

static const exported_model *get_entry(const fth_model *model)
{
    return model->details;
}

static fth_status check_data(const fth_model *model, const fth_model_options *options)
{
    const fth_exported *program = get_entry(model)->program;
    const fth_exported_value *input = fth_exported_get_value(program, fth_exported_get_input(program, 0));
    const fth_exported_value *output = fth_exported_get_value(program, fth_exported_get_output(program, 0));
    const bool same =
        options->channels == model->channels && options->height == model->height && options->width == model->width;
    const int64_t count = (int64_t)options->channels * options->height * options->width;
    char shape[SHAPE_BYTES];

    format_dims(input, shape);
    if (input->rank == 4 ? !same : count != (int64_t)model->channels * model->height * model->width)
        return fth_fail(FTH_INVALID, "%s takes %s, and the data is (N, %d, %d, %d)", model->name, shape,
                        options->channels, options->height, options->width);
    format_dims(output, shape);
    if (options->classes != model->classes)
        return fth_fail(FTH_INVALID, "%s returns %s, and the data has %s: (N, %d)", model->name, shape,
                        FTH_COUNTED(options->classes, options->task == FTH_TASK_REGRESSION ? "number" : "class"),
                        options->classes);
    return FTH_OK;
}

/* Images as the program takes them. */
static fth_status shape_input(const fth_exported_value *input, fth_graph *graph, fth_value images, fth_value *x)
{
    fth_shape shape = {.rank = input->rank, .dims = {FTH_BATCH}};
    *x = images;
    for (int i = 1; i < input->rank; i++)
        shape.dims[i] = input->dims[i].factor;
    if (fth_shape_equal(&shape, &fth_graph_value(graph, images)->type.shape))
        return FTH_OK;
    return fth_op_add_reshape(graph, shape, images, x);
}

static bool is_counter(const fth_graph *graph, const char *name)
{
    for (int i = 0; i < fth_graph_counter_count(graph); i++)
        if (strcmp(fth_graph_counter(graph, i), name) == 0)
            return true;
    return false;
}

static fth_status shape_of(const fth_exported_value *value, fth_shape *shape)
{
    *shape = (fth_shape){.rank = value->rank};
    for (int i = 0; i < value->rank; i++) {
        const fth_exported_dim *dim = &value->dims[i];
        if (dim->batch || dim->length || dim->unknown || dim->factor < 0)
            return fth_fail(FTH_CORRUPT, "the size of %s depends on the input", value->state_name);
        shape->dims[i] = dim->factor;
    }
    return FTH_OK;
}

/* A tensor of the state_dict that the network does not have: another name of one that it has, a
 * constant, or a parameter that nothing reads. */
static fth_status add_to_state(const fth_exported *program, const fth_exported_value *value, fth_graph *graph)
{
    fth_status status = FTH_OK;
    fth_file_tensor tensor = {.name = value->state_name, .same_as = FTH_NO_VALUE, .data = value->data};
    fth_value added;

    if (value->same_as >= 0) {
        const fth_exported_value *first = fth_exported_get_value(program, value->same_as);
        tensor.same_as = fth_graph_find(graph, first->state_name);
    }
    FTH_TRY(shape_of(value, &tensor.type.shape));
    if (tensor.same_as == FTH_NO_VALUE && !tensor.data) {
        FTH_TRY(fth_graph_add_parameter(graph, value->state_name, tensor.type.shape,
                                        (fth_initializer){FTH_INIT_CONSTANT, 0}, &added));
        FTH_TRY(fth_graph_set_trainable(graph, added, false));
        goto out;
    }
    FTH_REQUIRE(fth_torch_dtype_find(value->torch_dtype, &tensor.type.dtype), FTH_UNSUPPORTED, "the buffer %s holds %s",
                value->state_name, fth_torch_dtype_name(value->torch_dtype));
    FTH_TRY(fth_graph_add_file_tensor(graph, &tensor));

out:
    return status;
}

static fth_status complete_state(const fth_exported *program, fth_graph *graph)
{
    fth_status status = FTH_OK;
    for (int i = 0; i < fth_exported_value_count(program); i++) {
        const fth_exported_value *value = fth_exported_get_value(program, i);
        const bool stored = (value->kind == FTH_EXPORTED_PARAMETER || value->kind == FTH_EXPORTED_BUFFER) &&
                            value->persistent && value->state_name;
        if (stored && fth_graph_find(graph, value->state_name) == FTH_NO_VALUE && !is_counter(graph, value->state_name))
            FTH_TRY(add_to_state(program, value, graph));
    }

out:
    return status;
}

static fth_status build(const fth_model *model, fth_graph *graph, const fth_model_options *options, fth_value images,
                        fth_value *logits)
{
    fth_status status = FTH_OK;
    const fth_exported *program = get_entry(model)->program;
    const fth_exported_value *input = fth_exported_get_value(program, fth_exported_get_input(program, 0));
    const fth_exported_lower_options how = {.no_dropout = options->no_dropout};
    const fth_shape wanted = FTH_SHAPE(FTH_BATCH, options->classes);
    fth_value x;

    FTH_TRY(check_data(model, options));
    FTH_TRY(shape_input(input, graph, images, &x));
    FTH_TRY(fth_exported_lower(program, &how, graph, &x, logits));
    FTH_TRY(complete_state(program, graph));
    const fth_shape *shape = &fth_graph_value(graph, *logits)->type.shape;
    FTH_REQUIRE(fth_shape_equal(shape, &wanted), FTH_INVALID, "%s returns a tensor of another shape than %d classes",
                model->name, options->classes);

out:
    return status;
}

/* ---- new weights ---- */

static bool is_layer(const fth_exported_node *node)
{
    static const char *const layers[] = {"conv", "linear", "embedding", "lstm", "gru", "prelu", "addmm"};
    const char *name = begins_with(node->target, "aten.") ? node->target + strlen("aten.") : "";
    bool found = strstr(name, "norm") != NULL;
    for (size_t i = 0; i < FTH_COUNT_OF(layers); i++)
        found = found || begins_with(name, layers[i]);
    return found;
}

static bool reads(const fth_exported_node *node, int value)
{
    bool found = false;
    for (size_t a = 0; a < node->argument_count; a++) {
        const fth_exported_argument *argument = &node->arguments[a];
        found = found || (argument->kind == FTH_ARGUMENT_TENSOR && argument->tensor == value);
        for (size_t i = 0; argument->kind == FTH_ARGUMENT_TENSORS && i < argument->count; i++)
            found = found || argument->tensors[i] == value;
    }
    return found;
}

bool fth_exported_model_draws(const fth_model *model, const char *name)
{
    const fth_exported *program = get_entry(model)->program;
    for (int v = 0; v < fth_exported_value_count(program); v++) {
        const char *state_name = fth_exported_get_value(program, v)->state_name;
        if (!state_name || strcmp(state_name, name) != 0)
            continue;
        for (size_t n = 0; n < fth_exported_node_count(program); n++)
            if (reads(fth_exported_get_node(program, n), v))
                return is_layer(fth_exported_get_node(program, n));
    }
    return false;
}

/* ---- keeping models ---- */

static void free_entry(exported_model *entry)
{
    if (!entry)
        return;
    fth_exported_free(entry->program);
    free((char *)entry->model.name);
    free((char *)entry->model.summary);
    free(entry->text);
    free(entry);
}

/* Takes `text`, in any case. */
static fth_status make(char *text, const char *name, const char *origin, exported_model **result)
{
    fth_status status = FTH_OK;
    exported_model *entry = NULL;

    status = fth_allocate(1, sizeof *entry, &entry);
    if (status != FTH_OK) {
        free(text);
        return status;
    }
    entry->text = text;
    fth_hex_sha256(text, strlen(text), entry->digest);
    FTH_TRY(fth_exported_parse(text, strlen(text), origin, &entry->program));
    entry->model = (fth_model){.name = fth_format("%s", name), .build = build, .details = entry};
    FTH_TRY(check_mode(entry->program, origin));
    FTH_TRY(read_input(entry->program, origin, &entry->model));
    FTH_TRY(read_output(entry->program, origin, &entry->model));
    entry->model.summary = fth_format("exported by PyTorch %s", fth_exported_torch_version(entry->program));
    FTH_REQUIRE(entry->model.name && entry->model.summary, FTH_NO_MEMORY, "no memory for a model");
    *result = entry;
    entry = NULL;

out:
    free_entry(entry);
    return status;
}

/* With the mutex locked. Takes `text`. */
static fth_status find_or_make(char *text, const char *name, const char *origin, const exported_model **result)
{
    char digest[65];
    exported_model *entry = NULL;

    fth_hex_sha256(text, strlen(text), digest);
    for (entry = made.models; entry; entry = entry->next)
        if (strcmp(entry->digest, digest) == 0 && strcmp(entry->model.name, name) == 0)
            break;
    if (entry) {
        free(text);
    } else {
        fth_status status = make(text, name, origin, &entry);
        if (status != FTH_OK)
            return status;
        entry->next = made.models;
        made.models = entry;
    }
    *result = entry;
    return FTH_OK;
}

fth_status fth_exported_model_parse(const char *text, size_t size_bytes, const char *name, const char *origin,
                                    const fth_model **model)
{
    const exported_model *entry = NULL;
    char *copy = NULL;
    fth_status status = fth_allocate(size_bytes + 1, 1, &copy);
    if (status != FTH_OK)
        return status;
    memcpy(copy, text, size_bytes);
    copy[size_bytes] = '\0';
    pthread_mutex_lock(&made.mutex);
    status = find_or_make(copy, name, origin, &entry);
    pthread_mutex_unlock(&made.mutex);
    if (status == FTH_OK)
        *model = &entry->model;
    return status;
}

/* ---- files ---- */

static bool is_unchanged(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static fth_status read_file(const char *path, const exported_model **result)
{
    fth_status status = FTH_OK;
    fth_exported *program = NULL;
    char *text = NULL;

    FTH_TRY(fth_exported_open(path, &program));
    FTH_TRY(fth_exported_to_text(program, &text));
    FTH_TRY(find_or_make(text, path, path, result));

out:
    fth_exported_free(program);
    return status;
}

static fth_status remember(const char *path, const struct stat *facts, const exported_model *model)
{
    fth_status status = FTH_OK;
    known_file *file = NULL;

    FTH_TRY(fth_allocate(1, sizeof *file, &file));
    *file = (known_file){.path = fth_format("%s", path), .facts = *facts, .model = model, .next = made.files};
    FTH_REQUIRE(file->path, FTH_NO_MEMORY, "no memory for a path");
    made.files = file;
    file = NULL;

out:
    free(file);
    return status;
}

fth_status fth_exported_model_open(const char *path, const fth_model **model)
{
    fth_status status = FTH_OK;
    const exported_model *found = NULL;
    struct stat facts = {0};
    const bool there = stat(path, &facts) == 0; /* before it is read: a change meanwhile is one to be noticed */

    pthread_mutex_lock(&made.mutex);
    for (known_file *file = made.files; there && file && !found; file = file->next)
        if (strcmp(file->path, path) == 0 && is_unchanged(&file->facts, &facts))
            found = file->model;
    if (!found) {
        FTH_TRY(read_file(path, &found));
        FTH_TRY(remember(path, &facts, found));
    }
    *model = &found->model;

out:
    pthread_mutex_unlock(&made.mutex);
    return status;
}

const char *fth_exported_model_text(const fth_model *model)
{
    return model->build == build ? get_entry(model)->text : NULL;
}

const char *fth_exported_model_digest(const fth_model *model)
{
    return model->build == build ? get_entry(model)->digest : NULL;
}
