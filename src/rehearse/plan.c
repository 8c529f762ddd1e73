/* When which interruption comes: a trace is read from YAML; without one, each machine's end is a
 * pure function of the seed and the machine's number, so that a rehearsal can be repeated. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/options.h"
#include "rehearse/rehearse.h"

enum { MAX_TRACE_BYTES = 1 << 20 };

/* One machine in eight ends while it is starting. */
#define STARTUP_SHARE 0.125
#define STARTUP_S     0.5

const char *const fth_interruption_names[FTH_INTERRUPTION_KINDS + 1] = {"kill9", "signal", "file", "aws",
                                                                        "gcp",   "azure",  NULL};
static const double usual_notice_s[FTH_INTERRUPTION_KINDS] = {0, 30, 30, 120, 30, 30};

/* ---- a trace ---- */

typedef struct trace_reader {
    const char *path;
    yaml_document_t document;
} trace_reader;

static fth_status fail_at(const trace_reader *reader, const yaml_node_t *node, const char *message)
{
    return fth_fail(FTH_INVALID, "%s line %zu: %s", reader->path, node->start_mark.line + 1, message);
}

static fth_status read_duration(const trace_reader *reader, const yaml_node_t *node, double *seconds)
{
    if (fth_duration_parse((const char *)node->data.scalar.value, seconds) == FTH_OK)
        return FTH_OK;
    return fth_fail_within(FTH_INVALID, "%s line %zu", reader->path, node->start_mark.line + 1);
}

static fth_status read_kind(const trace_reader *reader, const yaml_node_t *node, fth_interruption_kind *kind)
{
    const char *text = (const char *)node->data.scalar.value;
    for (int i = 0; i < FTH_INTERRUPTION_KINDS; i++) {
        if (strcmp(text, fth_interruption_names[i]) == 0) {
            *kind = (fth_interruption_kind)i;
            return FTH_OK;
        }
    }
    return fail_at(reader, node, "kind is one of kill9, signal, file, aws, gcp, azure");
}

static fth_status read_step(const trace_reader *reader, const yaml_node_t *node, int64_t *step)
{
    char *end;
    *step = strtoll((const char *)node->data.scalar.value, &end, 10);
    return *end || *step < 1 ? fail_at(reader, node, "after_step is a number of steps, 1 or more") : FTH_OK;
}

static fth_status read_member(trace_reader *reader, const yaml_node_t *key, const yaml_node_t *value,
                              fth_interruption *one)
{
    static const char *const names[] = {"at", "after_step", "kind", "notice", "gap", NULL};
    if (key->type != YAML_SCALAR_NODE || value->type != YAML_SCALAR_NODE)
        return fail_at(reader, key, "an interruption has plain keys and values: {at: 12s, kind: aws, notice: 120s}");
    const char *name = (const char *)key->data.scalar.value;
    if (strcmp(name, "at") == 0)
        return read_duration(reader, value, &one->at_s);
    if (strcmp(name, "after_step") == 0)
        return read_step(reader, value, &one->after_step);
    if (strcmp(name, "kind") == 0)
        return read_kind(reader, value, &one->kind);
    if (strcmp(name, "notice") == 0)
        return read_duration(reader, value, &one->notice_s);
    if (strcmp(name, "gap") == 0)
        return read_duration(reader, value, &one->gap_s);
    const char *nearest = fth_nearest_name(name, names);
    return fth_fail(FTH_INVALID, "%s line %zu: unknown key '%s'; %s%s", reader->path, key->start_mark.line + 1, name,
                    nearest ? "did you mean " : "there are at, after_step, kind, notice, gap", nearest ? nearest : "");
}

static fth_status read_interruption(trace_reader *reader, const yaml_node_t *node, fth_interruption *one)
{
    *one = (fth_interruption){.kind = FTH_INTERRUPTION_AWS, .at_s = NAN};
    if (node->type != YAML_MAPPING_NODE)
        return fail_at(reader, node, "an interruption is a mapping: {at: 12s, kind: aws, notice: 120s}");
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top; pair++) {
        fth_status status = read_member(reader, yaml_document_get_node(&reader->document, pair->key),
                                        yaml_document_get_node(&reader->document, pair->value), one);
        if (status != FTH_OK)
            return status;
    }
    if (isnan(one->at_s) == (one->after_step == 0))
        return fail_at(reader, node, "an interruption has either at or after_step");
    if (one->kind == FTH_INTERRUPTION_KILL9 && one->notice_s > 0)
        return fail_at(reader, node, "kill9 comes without notice");
    if (one->notice_s == 0)
        one->notice_s = usual_notice_s[one->kind];
    return FTH_OK;
}

static fth_status read_document(trace_reader *reader, fth_interruption_plan *plan)
{
    fth_status status = FTH_OK;
    const yaml_node_t *root = yaml_document_get_root_node(&reader->document);
    FTH_REQUIRE(root && root->type == YAML_SEQUENCE_NODE, FTH_INVALID,
                "%s: a trace is a list of interruptions: - {at: 12s, kind: aws, notice: 120s}", reader->path);
    const yaml_node_item_t *first = root->data.sequence.items.start, *top = root->data.sequence.items.top;
    FTH_REQUIRE(top > first, FTH_INVALID, "%s: the trace is empty", reader->path);
    FTH_TRY(fth_allocate((size_t)(top - first), sizeof *plan->trace, &plan->trace));
    for (const yaml_node_item_t *item = first; item < top; item++)
        FTH_TRY(read_interruption(reader, yaml_document_get_node(&reader->document, *item),
                                  &plan->trace[plan->trace_count++]));
out:
    return status;
}

fth_status fth_interruption_plan_read(const char *path, fth_interruption_plan *plan)
{
    fth_status status = FTH_OK;
    trace_reader reader = {.path = path};
    yaml_parser_t parser;
    char *text = NULL;
    size_t size = 0;
    FTH_TRY(fth_file_read_all(path, MAX_TRACE_BYTES, &text, &size));
    FTH_REQUIRE(yaml_parser_initialize(&parser), FTH_NO_MEMORY, "no memory to read %s", path);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    if (!yaml_parser_load(&parser, &reader.document)) {
        status = fth_fail(FTH_INVALID, "%s line %zu: bad YAML: %s", path, parser.problem_mark.line + 1,
                          parser.problem ? parser.problem : "unreadable");
    } else {
        status = read_document(&reader, plan);
        yaml_document_delete(&reader.document);
    }
    yaml_parser_delete(&parser);
    if (status != FTH_OK)
        fth_interruption_plan_release(plan);
out:
    free(text);
    return status;
}

void fth_interruption_plan_release(fth_interruption_plan *plan)
{
    free(plan->trace);
    plan->trace = NULL;
    plan->trace_count = 0;
}

/* ---- drawing ---- */

enum { DRAW_NOTICE, DRAW_KILL, DRAW_KIND, DRAW_STARTUP, DRAW_STARTUP_MOMENT };

/* The time to the next event, for a mean of `mean_s`: uniform up to twice that, so that no machine
 * lives forever. INFINITY if there are no events. */
static double draw_time(fth_random_key key, int what, double mean_s)
{
    return mean_s > 0 ? 2 * mean_s * fth_random_uniform(key, (uint64_t)what) : INFINITY;
}

static void draw(const fth_interruption_plan *plan, int64_t number, fth_interruption *one)
{
    fth_random_key key = fth_random_fork(fth_random_key_for(plan->seed, FTH_RANDOM_GENERATE), (uint64_t)number);
    double notice_at = draw_time(key, DRAW_NOTICE, plan->every_s), kill_at = draw_time(key, DRAW_KILL, plan->kill9_s);
    *one = (fth_interruption){.at_s = fmin(notice_at, kill_at), .gap_s = plan->gap_s};
    if (kill_at < notice_at)
        one->kind = FTH_INTERRUPTION_KILL9;
    else if (plan->cloud < FTH_INTERRUPTION_KINDS)
        one->kind = (fth_interruption_kind)plan->cloud;
    else
        one->kind = (fth_interruption_kind)fth_random_below(key, DRAW_KIND, FTH_INTERRUPTION_KINDS);
    one->notice_s = one->kind == FTH_INTERRUPTION_KILL9 ? 0
                    : plan->notice_s > 0                ? plan->notice_s
                                                        : usual_notice_s[one->kind];
    if (fth_random_uniform(key, DRAW_STARTUP) < STARTUP_SHARE) {
        one->from_spawn = true;
        one->at_s = STARTUP_S * fth_random_uniform(key, DRAW_STARTUP_MOMENT);
    }
}

bool fth_interruption_plan_get(const fth_interruption_plan *plan, int64_t number, fth_interruption *interruption)
{
    if (plan->trace) {
        if ((size_t)number >= plan->trace_count)
            return false;
        *interruption = plan->trace[number];
        return true;
    }
    if (plan->every_s <= 0 && plan->kill9_s <= 0)
        return false;
    draw(plan, number, interruption);
    return true;
}
