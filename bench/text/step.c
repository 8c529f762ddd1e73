/* The time of training steps of a text model on random tokens: plans, inputs, runs and updates as
 * the engine makes them, without a loader.
 *
 *     bench_text_step --device cuda --model bert-base --precision bf16 --batch 64 --lengths 128 --seconds 5 [--profile]
 *
 * --lengths is a number of tokens for all sequences, or a file with lines "length count" from which --batches random batches
 * are drawn; --show-batches prints those and leaves. Prints one JSON line. --profile adds a table of what the steps of one
 * plan take, each waited for. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "backend/plan.h"
#include "model/model.h"
#include "tensor/tensor.h"
#include "train/options/precision.h"

enum { BATCHES = 64, CLASSES = 4, MOST_LENGTH = 512, INPUTS = 5, MOST_PLANS = 64 };

typedef struct bench {
    const char *device_name, *model_name, *precision_name, *lengths;
    int64_t batch, batches; /* samples of one; different ones, at most BATCHES */
    double seconds;
    int threads;
    bool profile, show_batches;

    fth_device *device;
    fth_graph *graph;
    fth_precision precision;
    int64_t counts[MOST_LENGTH + 1]; /* sequences of each length to draw from */
    int longest;
    int32_t *tokens[BATCHES], *segments, *positions[BATCHES], *ends[BATCHES], *labels;
    int64_t token_count[BATCHES];
    int64_t most_tokens; /* capacity of the largest plan */
    fth_plan *plans[MOST_PLANS];
    int64_t capacities[MOST_PLANS];
    int plan_count;
    fth_vectors vectors;
    void *state[FTH_MAX_OPTIMIZER_VECTORS], *arena;
    const fth_update_kernel *kernel;
    fth_update_arguments arguments;
    fth_updater *updater; /* NULL: the back end has none, and the kernel is run behind each step */
} bench;

static fth_status read_lengths(bench *b)
{
    fth_status status = FTH_OK;
    FILE *file = NULL;
    int length;
    long long count;
    if (strspn(b->lengths, "0123456789") == strlen(b->lengths)) {
        length = atoi(b->lengths);
        FTH_REQUIRE(length >= 1 && length <= MOST_LENGTH, FTH_INVALID, "lengths are from 1 to %d", MOST_LENGTH);
        b->counts[length] = 1;
        b->longest = length;
        return FTH_OK;
    }
    file = fopen(b->lengths, "r");
    FTH_REQUIRE(file, FTH_IO, "cannot open %s", b->lengths);
    while (fscanf(file, "%d %lld", &length, &count) == 2) {
        FTH_REQUIRE(length >= 1 && length <= MOST_LENGTH && count >= 0, FTH_INVALID, "bad line in %s", b->lengths);
        b->counts[length] += count;
        b->longest = count > 0 && length > b->longest ? length : b->longest;
    }
    FTH_REQUIRE(b->longest > 0, FTH_INVALID, "%s has no lengths", b->lengths);
out:
    if (file)
        fclose(file);
    return status;
}

static int draw_length(const bench *b, fth_random_key key, uint64_t number)
{
    int64_t total = 0;
    for (int i = 0; i <= b->longest; i++)
        total += b->counts[i];
    int64_t at = (int64_t)fth_random_below(key, number, (uint64_t)total);
    int length = 0;
    while ((at -= b->counts[length]) >= 0)
        length++;
    return length;
}

/* Inputs have the size of the plan's capacity: what is behind the tokens is 0. */
static fth_status make_batches(bench *b)
{
    fth_status status = FTH_OK;
    const fth_random_key key = fth_random_key_for(1, FTH_RANDOM_GENERATE);
    const fth_model *model;
    FTH_TRY(fth_model_find(b->model_name, &model));
    for (int i = 0; i < b->batches; i++) {
        int64_t capacity = 0;
        FTH_TRY(fth_allocate((size_t)b->batch, sizeof *b->ends[i], &b->ends[i]));
        for (int64_t n = 0; n < b->batch; n++) {
            b->token_count[i] += draw_length(b, key, (uint64_t)(i * b->batch + n));
            b->ends[i][n] = (int32_t)b->token_count[i];
        }
        capacity = fth_text_capacity(b->token_count[i]);
        b->most_tokens = capacity > b->most_tokens ? capacity : b->most_tokens;
        FTH_TRY(fth_allocate((size_t)capacity, sizeof *b->tokens[i], &b->tokens[i]));
        FTH_TRY(fth_allocate((size_t)capacity, sizeof *b->positions[i], &b->positions[i]));
        for (int64_t t = 0, n = 0; t < b->token_count[i]; t++) {
            n += t == b->ends[i][n];
            b->positions[i][t] = (int32_t)(t - (n > 0 ? b->ends[i][n - 1] : 0));
            b->tokens[i][t] = (int32_t)fth_random_below(key, (uint64_t)((i << 20) + t), (uint64_t)model->vocabulary);
        }
    }
    FTH_TRY(fth_allocate((size_t)b->most_tokens, sizeof *b->segments, &b->segments));
    FTH_TRY(fth_allocate((size_t)b->batch, sizeof *b->labels, &b->labels));
    for (int64_t n = 0; n < b->batch; n++)
        b->labels[n] = (int32_t)fth_random_below(key, (uint64_t)n, CLASSES);
    const fth_model_options options = {.longest = b->longest, .classes = CLASSES};
    FTH_TRY(fth_model_create_graph(model, &options, &b->graph));
out:
    return status;
}

static fth_status make_vectors(bench *b)
{
    fth_status status = FTH_OK;
    const fth_backend *backend = b->device->backend;
    const size_t count = fth_graph_parameter_floats(b->graph), bytes = count * sizeof(float);
    const size_t buffer_floats = fth_graph_buffer_floats(b->graph);
    float *host = NULL, *buffers = NULL;
    float **const vectors[] = {&b->vectors.parameters, &b->vectors.gradients};
    FTH_TRY(fth_allocate(count, sizeof *host, &host));
    FTH_TRY(fth_allocate(buffer_floats + 1, sizeof *buffers, &buffers));
    fth_graph_initialize(b->graph, 1, host, buffers);
    for (int i = 0; i < 2; i++) {
        void *memory = NULL;
        FTH_TRY(backend->allocate(b->device, bytes, &memory));
        *vectors[i] = memory;
        FTH_TRY(backend->allocate(b->device, bytes, &b->state[i]));
        FTH_TRY(backend->fill_zero(b->device, b->state[i], bytes));
    }
    FTH_TRY(backend->copy_in(b->device, b->vectors.parameters, host, bytes));
out:
    free(host);
    free(buffers);
    return status;
}

static fth_status open_updater(bench *b)
{
    fth_status status = FTH_OK;
    const fth_backend *backend = b->device->backend;
    b->arguments = (fth_update_arguments){.weight_decay = 0.01f, .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f};
    for (const fth_update_kernel *k = backend->updates; k->rule; k++)
        if (strcmp(k->rule, "adamw") == 0)
            b->kernel = k;
    FTH_REQUIRE(b->kernel, FTH_UNSUPPORTED, "%s has no AdamW", backend->name);
    if (!backend->capture || !backend->capture->updater)
        goto out;
    const fth_updater_options options = {.kernel = b->kernel,
                                         .arguments = b->arguments,
                                         .parameters = b->vectors.parameters,
                                         .gradients = b->vectors.gradients,
                                         .state = {b->state[0], b->state[1]},
                                         .count = fth_graph_trained_floats(b->graph)};
    FTH_TRY(backend->capture->updater->open(b->device, &options, &b->updater));
out:
    return status;
}

static fth_plan *find_plan(const bench *b, int64_t capacity)
{
    for (int i = 0; i < b->plan_count; i++)
        if (b->capacities[i] == capacity)
            return b->plans[i];
    return NULL;
}

static fth_status make_plans(bench *b, double *slowest_s)
{
    fth_status status = FTH_OK;
    size_t arena_bytes = 0;
    for (int i = 0; i < b->batches; i++) {
        const int64_t capacity = fth_text_capacity(b->token_count[i]);
        const double begun = fth_clock_seconds();
        if (find_plan(b, capacity))
            continue;
        FTH_REQUIRE(b->plan_count < MOST_PLANS, FTH_UNSUPPORTED, "more than %d capacities", MOST_PLANS);
        FTH_TRY(fth_plan_create(
            b->graph, b->device,
            (fth_plan_options){
                .batch = b->batch, .tokens = capacity, .mode = FTH_PLAN_TRAIN, .precision = b->precision},
            &b->plans[b->plan_count]));
        b->capacities[b->plan_count] = capacity;
        const size_t bytes = fth_plan_arena_bytes(b->plans[b->plan_count++]);
        arena_bytes = bytes > arena_bytes ? bytes : arena_bytes;
        if (i > 0 && fth_clock_seconds() - begun > *slowest_s)
            *slowest_s = fth_clock_seconds() - begun;
    }
    FTH_TRY(b->device->backend->allocate(b->device, arena_bytes, &b->arena));
    for (int i = 0; i < b->plan_count; i++)
        FTH_TRY(fth_plan_bind(b->plans[i], b->arena, b->vectors));
    fprintf(stderr, "%d plans, %.2f GB in the arena\n", b->plan_count, (double)arena_bytes / 1e9);
out:
    return status;
}

/* The update behind a run, on back ends where it is not a part of it: clipped by the norm of all
 * gradients. */
static fth_status update(bench *b, int64_t number)
{
    fth_status status = FTH_OK;
    const fth_backend *backend = b->device->backend;
    const size_t count = fth_graph_trained_floats(b->graph);
    double norm;
    FTH_TRY(backend->norm(b->device, b->vectors.gradients, count, &norm));
    b->arguments.learning_rate = 1e-6f;
    b->arguments.gradient_scale = norm > 1 ? (float)(1 / norm) : 1;
    b->arguments.step = number + 1;
    FTH_TRY(b->kernel->run(b->device, &b->arguments, b->vectors.parameters, b->vectors.gradients,
                           (float *const[]){b->state[0], b->state[1]}, count));
out:
    return status;
}

static fth_status step(bench *b, int64_t number, double *step_seconds)
{
    fth_status status = FTH_OK;
    const int i = (int)(number % b->batches);
    fth_plan *plan = find_plan(b, fth_text_capacity(b->token_count[i]));
    const struct {
        const char *name;
        const void *data;
    } inputs[INPUTS] = {{"tokens", b->tokens[i]},
                        {"segments", b->segments},
                        {"positions", b->positions[i]},
                        {"ends", b->ends[i]},
                        {"labels", b->labels}};
    float loss[2];
    for (int k = 0; k < INPUTS; k++)
        FTH_TRY(fth_plan_set_input(plan, fth_graph_find(b->graph, inputs[k].name), inputs[k].data));
    FTH_TRY(fth_plan_run(plan, &(fth_run){.seed = 1,
                                          .step = (uint64_t)number,
                                          .gradient_scale = 1,
                                          .step_seconds = step_seconds,
                                          .updater = step_seconds ? NULL : b->updater,
                                          .learning_rate = 1e-6,
                                          .update = number + 1}));
    if (!b->updater && !step_seconds)
        FTH_TRY(update(b, number));
    FTH_TRY(fth_plan_read_loss(plan, loss));
    FTH_REQUIRE(loss[0] == loss[0], FTH_INVALID, "the loss is not a number at step %lld", (long long)number);
out:
    return status;
}

static fth_status show_profile(bench *b)
{
    const int runs = b->updater ? 10 : 3;
    fth_status status = FTH_OK;
    double *seconds = NULL, total = 0;
    const fth_plan *plan = find_plan(b, fth_text_capacity(b->token_count[0]));
    const int count = fth_plan_step_count(plan);
    FTH_TRY(fth_allocate((size_t)count + 1, sizeof *seconds, &seconds));
    for (int i = 0; i < runs; i++)
        FTH_TRY(step(b, (int64_t)i * b->batches, seconds));
    for (int i = 0; i < count; i++)
        total += seconds[i];
    /* Steps of one name together, in the order of the first. */
    for (int i = 0; i < count; i++) {
        double sum = 0;
        int times = 0;
        bool seen = false;
        for (int k = 0; k < count; k++) {
            if (strcmp(fth_plan_step_name(plan, i), fth_plan_step_name(plan, k)) != 0)
                continue;
            seen = seen || k < i;
            sum += seconds[k];
            times++;
        }
        if (!seen)
            fprintf(stderr, "%6.2f%% %9.1f us = %3d x %7.1f us  %s\n", 100 * sum / total, 1e6 * sum / runs, times,
                    1e6 * sum / runs / times, fth_plan_step_name(plan, i));
    }
    fprintf(stderr, "100.00%% %9.1f us, each step waited for\n", 1e6 * total / runs);
out:
    free(seconds);
    return status;
}

/* The most memory that was resident. */
static double peak_mb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

/* The lengths of each batch, a line of JSON each, for those who measure the same elsewhere. */
static void show_batches(const bench *b)
{
    for (int i = 0; i < b->batches; i++)
        for (int64_t n = 0; n < b->batch; n++)
            printf("%s%d%s", n > 0 ? ", " : "[", b->ends[i][n] - (n > 0 ? b->ends[i][n - 1] : 0),
                   n + 1 < b->batch ? "" : "]\n");
}

static fth_status measure(bench *b)
{
    fth_status status = FTH_OK;
    double plan_s = 0, begun, tokens = 0;
    int64_t steps = 0;
    FTH_TRY(read_lengths(b));
    FTH_TRY(fth_device_open(b->device_name, &(fth_device_options){.threads = b->threads}, &b->device));
    FTH_TRY(make_batches(b));
    if (b->show_batches) {
        show_batches(b);
        goto out;
    }
    unsigned asked = 0;
    while (fth_precision_choice(asked).name && strcmp(fth_precision_choice(asked).name, b->precision_name) != 0)
        asked++;
    FTH_REQUIRE(asked <= FTH_PRECISION_AUTO, FTH_INVALID, "unknown precision \"%s\"", b->precision_name);
    FTH_TRY(fth_precision_choose(asked, NULL, b->device, b->graph, &b->precision));
    FTH_TRY(make_vectors(b));
    FTH_TRY(open_updater(b));
    FTH_TRY(make_plans(b, &plan_s));
    /* Where runs are recorded, the second of each plan is the first that is replayed. */
    const int64_t warm_ups = (b->updater ? 2 : 1) * b->batches;
    for (int64_t i = 0; i < warm_ups; i++)
        FTH_TRY(step(b, i, NULL));
    FTH_TRY(b->device->backend->synchronize(b->device, fth_deadline_in(60)));
    begun = fth_clock_seconds();
    while (steps == 0 || fth_clock_seconds() - begun < b->seconds || steps % b->batches != 0) {
        tokens += (double)b->token_count[steps % b->batches];
        FTH_TRY(step(b, warm_ups + steps++, NULL));
    }
    FTH_TRY(b->device->backend->synchronize(b->device, fth_deadline_in(60)));
    const double seconds = fth_clock_seconds() - begun;
    if (b->profile)
        FTH_TRY(show_profile(b));
    printf("{\"model\": \"%s\", \"precision\": \"%s\", \"batch\": %lld, \"lengths\": \"%s\", \"tokens\": %.0f, "
           "\"step_ms\": %.3f, \"samples_per_s\": %.0f, \"slowest_plan_ms\": %.1f, \"peak_mb\": %.0f}\n",
           b->model_name, b->precision_name, (long long)b->batch, b->lengths, tokens / (double)steps,
           1e3 * seconds / (double)steps, (double)(b->batch * steps) / seconds, 1e3 * plan_s, peak_mb());
out:
    return status;
}

static void release(bench *b)
{
    for (int i = 0; i < b->plan_count; i++)
        fth_plan_free(b->plans[i]);
    if (b->device) {
        const fth_backend *backend = b->device->backend;
        if (b->updater)
            backend->capture->updater->close(b->updater);
        void *const memory[] = {b->arena, b->vectors.parameters, b->vectors.gradients, b->state[0], b->state[1]};
        for (size_t i = 0; i < FTH_COUNT_OF(memory); i++)
            backend->release(b->device, memory[i]);
        fth_device_close(b->device);
    }
    fth_graph_free(b->graph);
    for (int i = 0; i < BATCHES; i++) {
        free(b->tokens[i]);
        free(b->positions[i]);
        free(b->ends[i]);
    }
    free(b->segments);
    free(b->labels);
}

int main(int argc, char **argv)
{
    static bench b = {.device_name = "cuda",
                      .model_name = "bert-base",
                      .precision_name = "bf16",
                      .lengths = "128",
                      .batch = 64,
                      .batches = BATCHES,
                      .seconds = 5};
    static const struct option options[] = {{"device", required_argument, NULL, 'd'},
                                            {"model", required_argument, NULL, 'm'},
                                            {"precision", required_argument, NULL, 'p'},
                                            {"batch", required_argument, NULL, 'b'},
                                            {"lengths", required_argument, NULL, 'l'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"threads", required_argument, NULL, 't'},
                                            {"batches", required_argument, NULL, 'n'},
                                            {"profile", no_argument, NULL, 'f'},
                                            {"show-batches", no_argument, NULL, 'w'},
                                            {0}};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'd': b.device_name = optarg; break;
        case 'm': b.model_name = optarg; break;
        case 'p': b.precision_name = optarg; break;
        case 'b': b.batch = atoll(optarg); break;
        case 'l': b.lengths = optarg; break;
        case 's': b.seconds = atof(optarg); break;
        case 't': b.threads = atoi(optarg); break;
        case 'n': b.batches = atoll(optarg); break;
        case 'f': b.profile = true; break;
        case 'w': b.show_batches = true; break;
        default: return 2;
        }
    }
    if (b.batch < 1 || b.batches < 1 || b.batches > BATCHES || optind < argc) {
        fprintf(stderr, "bench_text_step: see the top of bench/text/step.c for its options\n");
        return 2;
    }
    const fth_status status = measure(&b);
    if (status != FTH_OK)
        fprintf(stderr, "bench_text_step: %s\n", fth_error_message());
    release(&b);
    return status == FTH_OK ? 0 : 1;
}
