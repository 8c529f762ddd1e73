/* Data-parallel training with worker processes, which this program is too when it is run as
 * "worker", and a rendezvous of the test's own.
 *
 * The strategy is the real one, with a record of every sample that a worker's step was given. A
 * batch counts as it was taken by the last group that had it: the samples of that group's parts,
 * together, must be those that a single worker takes. */
#include "support.h"

#include <math.h>
#include <signal.h>
#include <unistd.h>

#include "bands.h"
#include "base/child.h"
#include "base/process.h"
#include "cluster/rendezvous.h"
#include "parallel/data_parallel.h"
#include "parallel/parallel.h"
#include "tensor/tensor.h"

enum { MAX_WORKERS = 8, MAX_ARGUMENTS = 64, TRAINING = 400, VALIDATION = 100 };

/* ---- in a worker: the strategy, observed ---- */

/* What a worker does beside training; -1: never. */
typedef struct script {
    int64_t killed_at;  /* before the batch of this number */
    int64_t leaves_at;  /* as a machine that is about to vanish */
    int64_t gate;       /* before this batch it waits ... */
    int wanted;         /* ... until the group has so many workers */
    int64_t later_gate; /* a second one; 0: none */
    int later_wanted;
    const char *folder, *worker; /* where records go, and this worker's number */
} script;

static script the_script;
static const fth_strategy *real;
static FILE *samples;
static int64_t next_batch; /* of this worker's */

static uint64_t hash_sample(const float *image, size_t floats, int32_t label)
{
    uint64_t hash = 1469598103934665603u ^ (uint64_t)label;
    const unsigned char *bytes = (const unsigned char *)image;
    for (size_t i = 0; i < floats * sizeof(float); i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

static void make_marker(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void make_marker(const char *format, ...)
{
    char name[100], path[TEST_MAX_PATH];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    snprintf(path, sizeof path, "%s/%s", the_script.folder, name);
    fclose(fopen(path, "w"));
}

static fth_status observed_step(void *state, const fth_batch *batch, double learning_rate, fth_step_result *result)
{
    const fth_data_parallel *self = state;
    const fth_engine_options *engine = fth_engine_get_options(self->engine);
    const size_t floats = (size_t)engine->channels * (size_t)engine->height * (size_t)engine->width;
    if (batch->number == the_script.killed_at)
        raise(SIGKILL);
    fprintf(samples, "%lld %lld", (long long)fth_worker_group_view(self->group)->generation, (long long)batch->number);
    for (int64_t i = 0; i < batch->count; i++)
        fprintf(samples, " %016llx",
                (unsigned long long)hash_sample(batch->images + (size_t)i * floats, floats, batch->labels[i]));
    fprintf(samples, "\n");
    fflush(samples);
    next_batch = batch->number + 1;
    return real->step(state, batch, learning_rate, result);
}

/* Before the batch `gate`, until somebody waits to join, if the group has fewer than `wanted`. */
static void wait_for_workers(const fth_worker_group *group, int64_t gate, int wanted)
{
    fth_deadline deadline = test_deadline_in(60);
    if (next_batch != gate || fth_worker_group_view(group)->size >= wanted)
        return;
    make_marker("gate-%lld", (long long)gate);
    while (!fth_worker_group_is_ending(group) && !fth_deadline_passed(deadline))
        usleep(1000);
}

static fth_status observed_agree(void *state, fth_intent *intent)
{
    const fth_data_parallel *self = state;
    wait_for_workers(self->group, the_script.gate, the_script.wanted);
    if (the_script.later_gate > 0)
        wait_for_workers(self->group, the_script.later_gate, the_script.later_wanted);
    if (next_batch == the_script.leaves_at) {
        fth_stop_ask(self->stop, FTH_STOP_PREEMPTION, 30, "test", "the machine goes");
        intent->stop = intent->leave = true;
    }
    return real->agree(state, intent);
}

static void observed_close(void *state)
{
    const fth_data_parallel *self = state;
    if (self && self->exchange)
        make_marker("exchanges-%s-%lld", the_script.worker, (long long)fth_gradient_exchange_count(self->exchange));
    real->close(state);
}

/* farthing's options, split at spaces. */
static fth_status train(const char *strategy, const char *flags)
{
    fth_stop stop = FTH_STOP_INITIALIZER;
    fth_train_outcome outcome;
    fth_train_options options;
    char text[1000], *argv[MAX_ARGUMENTS];
    const char *positional[MAX_ARGUMENTS];
    int argc = 0, positional_count = 0;
    bool help;
    snprintf(text, sizeof text, "--strategy %s --data %s/bands --runs %s/runs --threads 1 %s", strategy,
             the_script.folder, the_script.folder, flags);
    for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest));)
        argv[argc++] = word;
    fth_status status = fth_options_set_defaults(&fth_train_option_table, &options);
    if (status == FTH_OK)
        status =
            fth_options_read_flags(&fth_train_option_table, &options, argc, argv, positional, &positional_count, &help);
    static fth_strategy observed;
    static const fth_strategy *rows[] = {&observed, NULL};
    if (status == FTH_OK)
        status = fth_strategy_find(fth_strategies, strategy, &real);
    if (status == FTH_OK) {
        observed = *real;
        observed.step = observed_step;
        observed.agree = observed_agree;
        observed.close = observed_close;
        status = fth_train(&options, rows, NULL, &stop, &outcome);
        fth_train_outcome_release(&outcome);
    }
    if (status != FTH_OK)
        fprintf(stderr, "worker %s: %s\n", the_script.worker, fth_error_message());
    fth_options_release(&fth_train_option_table, &options);
    return status;
}

/* worker FOLDER NUMBER KILLED_AT LEAVES_AT GATE WANTED LATER_GATE LATER_WANTED FLAGS */
static int be_worker(char **argv)
{
    char path[TEST_MAX_PATH];
    fth_log_set_level(getenv("TEST_LOG") ? FTH_LOG_INFO : FTH_LOG_ERROR);
    the_script = (script){.folder = argv[0],
                          .worker = argv[1],
                          .killed_at = atoi(argv[2]),
                          .leaves_at = atoi(argv[3]),
                          .gate = atoi(argv[4]),
                          .wanted = atoi(argv[5]),
                          .later_gate = atoi(argv[6]),
                          .later_wanted = atoi(argv[7])};
    snprintf(path, sizeof path, "%s/samples-%s", argv[0], argv[1]);
    samples = fopen(path, "w");
    fth_status status = train("data-parallel", argv[8]);
    fclose(samples);
    return status == FTH_OK ? 0 : 1;
}

/* ---- in the test: workers ---- */

typedef struct crew {
    fth_rendezvous *rendezvous;
    pid_t processes[MAX_WORKERS]; /* 0: ended, as `ends` says */
    fth_child_end ends[MAX_WORKERS];
    int count, at_first;
    bool apart; /* each on a node of its own */
    char flags[400];
} crew;

static const char *node_of(const crew *all, int number)
{
    static const char *const nodes[MAX_WORKERS] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    return all->apart ? nodes[number] : "here";
}

static void open_rendezvous(crew *all, int nodes, const char *flags)
{
    snprintf(all->flags, sizeof all->flags, "%s", flags);
    if (fth_rendezvous_start(
            &(fth_rendezvous_options){
                .address = "127.0.0.1",
                .token = "",
                .run = "test",
                .least = nodes,
                .most = nodes,
                .lost_after_s = 3 * TEST_SLOWDOWN}, /* nobody is silent for so long: watch() reports those that end */
            &all->rendezvous) != FTH_OK)
        fail_msg("%s", fth_error_message());
}

/* Nodes that have one worker each; a group needs so many. */
static void open_crew_of_nodes(crew *all, int nodes, const char *flags)
{
    *all = (crew){.apart = true, .at_first = 1};
    open_rendezvous(all, nodes, flags);
}

static void open_crew(crew *all, int at_first, const char *flags)
{
    *all = (crew){.at_first = at_first};
    open_rendezvous(all, 1, flags);
}

static void start_worker(crew *all, script plan)
{
    enum { NUMBERS = 7 };
    char program[400], words[NUMBERS][24], port[64], rank[32], size[32], node[32];
    const int number = all->count;
    const long long numbers[NUMBERS] = {number,      plan.killed_at,  plan.leaves_at,   plan.gate,
                                        plan.wanted, plan.later_gate, plan.later_wanted};
    for (int i = 0; i < NUMBERS; i++)
        snprintf(words[i], sizeof words[i], "%lld", numbers[i]);
    fth_process_program(program, sizeof program);
    snprintf(port, sizeof port, "FARTHING_RENDEZVOUS=127.0.0.1:%d", fth_rendezvous_port(all->rendezvous));
    snprintf(rank, sizeof rank, "FARTHING_LOCAL_RANK=%d", number % all->at_first);
    snprintf(size, sizeof size, "FARTHING_LOCAL_SIZE=%d", all->at_first);
    snprintf(node, sizeof node, "FARTHING_NODE=%s", node_of(all, number));
    const char *arguments[] = {program,  "worker", test_folder, words[0], words[1],   words[2],
                               words[3], words[4], words[5],    words[6], all->flags, NULL};
    const char *variables[] = {port, rank, size, node, "FARTHING_NODES=1:1", "FARTHING_LAUNCH_RUN=test", NULL};
    if (fth_child_start(&(fth_child_options){.program = program, .arguments = arguments, .variables = variables},
                        &all->processes[all->count]) != FTH_OK)
        fail_msg("%s", fth_error_message());
    all->count++;
}

/* As an agent does: tells the rendezvous of workers that have ended, so that nobody waits for their
 * silence. Gives how many still run. */
static int watch(crew *all)
{
    int running = 0;
    char address[40];
    snprintf(address, sizeof address, "127.0.0.1:%d", fth_rendezvous_port(all->rendezvous));
    for (int i = 0; i < all->count; i++) {
        const pid_t process = all->processes[i];
        if (process && fth_child_has_ended(process, &all->ends[i])) {
            all->processes[i] = 0;
            FTH_IGNORE(fth_rendezvous_report_lost(address, "", node_of(all, i), process, "it has ended"),
                       "the rendezvous may have ended as well");
        }
        running += all->processes[i] != 0;
    }
    return running;
}

/* Waits for a file that a worker makes. */
static void await_marker(crew *all, const char *name)
{
    fth_deadline deadline = test_deadline_in(60);
    while (!test_exists(name)) {
        if (fth_deadline_passed(deadline))
            fail_msg("no %s within a minute", name);
        watch(all);
        usleep(2000);
    }
}

/* Waits for all of them; `killed` were meant to be, by bits. */
static void close_crew(crew *all, unsigned killed)
{
    fth_deadline deadline = test_deadline_in(90);
    int failures = 0;
    while (watch(all) > 0 && !fth_deadline_passed(deadline))
        usleep(2000);
    for (int i = 0; i < all->count; i++) {
        const fth_child_end *end = &all->ends[i];
        const bool hangs = all->processes[i] != 0;
        bool as_meant = !hangs && (killed >> i & 1 ? end->signal == SIGKILL : end->code == 0);
        if (hangs)
            fth_process_kill(all->processes[i]);
        if (!as_meant)
            fprintf(stderr, "worker %d %s (code %d, signal %d)\n", i, hangs ? "hung" : "ended otherwise than meant",
                    end->code, end->signal);
        failures += !as_meant;
    }
    fth_rendezvous_stop(all->rendezvous);
    if (failures > 0)
        fail_msg("%d workers did not end as expected", failures);
}

static const script plain = {.killed_at = -1, .leaves_at = -1, .gate = -1};

static void train_with(int workers, const char *flags)
{
    crew all;
    open_crew(&all, workers, flags);
    for (int i = 0; i < workers; i++)
        start_worker(&all, plain);
    close_crew(&all, 0);
}

/* ---- in the test: what they did ---- */

enum { MAX_BATCHES = 200, MAX_SAMPLES = 20000 };

typedef struct taken_sample {
    int64_t batch;
    uint64_t hash;
} taken_sample;

typedef struct history {
    taken_sample samples[MAX_SAMPLES]; /* sorted */
    size_t count;
} history;

static int compare_samples(const void *left, const void *right)
{
    const taken_sample *a = left, *b = right;
    if (a->batch != b->batch)
        return a->batch < b->batch ? -1 : 1;
    return a->hash < b->hash ? -1 : a->hash > b->hash;
}

/* Calls `take` for each line of the workers' records: a generation, a batch, and its samples. */
static void read_records(void (*take)(void *context, int64_t generation, int64_t batch, char *hashes), void *context)
{
    char name[40], path[TEST_MAX_PATH], *line = NULL;
    size_t capacity = 0;
    for (int w = 0; w < MAX_WORKERS; w++) {
        snprintf(name, sizeof name, "samples-%d", w);
        FILE *file = fopen(test_path(path, name), "r");
        while (file && getline(&line, &capacity, file) > 0) {
            char *rest = line;
            int64_t generation = strtoll(rest, &rest, 10), batch = strtoll(rest, &rest, 10);
            take(context, generation, batch, rest);
        }
        if (file)
            fclose(file);
    }
    free(line);
}

static int64_t last_generation[MAX_BATCHES];

static void note_generation(void *context, int64_t generation, int64_t batch, char *hashes)
{
    (void)context;
    (void)hashes;
    assert_in_range(batch, 0, MAX_BATCHES - 1);
    if (generation > last_generation[batch])
        last_generation[batch] = generation;
}

static void add_samples(void *context, int64_t generation, int64_t batch, char *hashes)
{
    history *all = context;
    if (generation != last_generation[batch])
        return;
    for (char *word; (word = strtok_r(hashes, " \n", &hashes));) {
        assert_true(all->count < MAX_SAMPLES);
        all->samples[all->count++] = (taken_sample){batch, strtoull(word, NULL, 16)};
    }
}

static void read_history(history *all)
{
    memset(last_generation, 0, sizeof last_generation);
    all->count = 0;
    read_records(note_generation, NULL);
    read_records(add_samples, all);
    qsort(all->samples, all->count, sizeof all->samples[0], compare_samples);
}

static void assert_same_samples(const history *expected, const history *found)
{
    assert_int_equal(found->count, expected->count);
    for (size_t i = 0; i < expected->count; i++)
        if (compare_samples(&expected->samples[i], &found->samples[i]) != 0)
            fail_msg("batch %lld has other samples than with one worker", (long long)expected->samples[i].batch);
}

static int repeated;
static int64_t last_taken;

static void note_repeat(void *context, int64_t generation, int64_t batch, char *hashes)
{
    (void)context;
    (void)generation;
    (void)hashes;
    repeated += batch > 0 && batch <= last_taken; /* each worker's record begins with batch 0 */
    last_taken = batch;
}

/* How often a worker had a batch again. */
static int count_repeated_batches(void)
{
    repeated = 0;
    last_taken = -1;
    read_records(note_repeat, NULL);
    return repeated;
}

/* The largest difference between the tensors in a file of two runs. */
static double compare_files(const char *left, const char *right, const char *file)
{
    fth_safetensors *files[2] = {NULL};
    const char *const names[] = {left, right};
    double largest = 0;
    for (int i = 0; i < 2; i++) {
        char path[TEST_MAX_PATH], name[100];
        snprintf(name, sizeof name, "runs/%s/%s", names[i], file);
        if (fth_safetensors_open(test_path(path, name), &files[i]) != FTH_OK)
            fail_msg("%s", fth_error_message());
    }
    assert_true(fth_safetensors_count(files[0]) > 0);
    for (size_t t = 0; t < fth_safetensors_count(files[0]); t++) {
        const fth_tensor_view *ours = fth_safetensors_get(files[0], t);
        const fth_tensor_view *theirs = fth_safetensors_find(files[1], ours->name);
        assert_non_null(theirs);
        for (int64_t f = 0; ours->dtype == FTH_F32 && f < fth_shape_count(&ours->shape); f++) {
            float pair[2];
            memcpy(&pair[0], (const char *)ours->data + f * (int64_t)sizeof(float), sizeof(float));
            memcpy(&pair[1], (const char *)theirs->data + f * (int64_t)sizeof(float), sizeof(float));
            largest = fmax(largest, fabs((double)pair[0] - pair[1]));
        }
    }
    for (int i = 0; i < 2; i++)
        fth_safetensors_free(files[i]);
    return largest;
}

static double compare_models(const char *left, const char *right)
{
    return compare_files(left, right, "last.safetensors");
}

/* Sums of f32 in another order, over some twenty updates. */
static const double rounding = 1e-4;

static int write_data(void **state)
{
    (void)state;
    char folder[TEST_MAX_PATH];
    write_bands(test_path(folder, "bands"), TRAINING, VALIDATION);
    return 0;
}

static int remove_all(void **state)
{
    (void)state;
    char command[TEST_MAX_PATH + 40];
    snprintf(command, sizeof command, "rm -rf '%s'/*", test_folder);
    return system(command);
}

static fth_status refuse_put(void *context, const char *key, const void *bytes, size_t size)
{
    (void)context;
    (void)key;
    (void)bytes;
    (void)size;
    return fth_fail(FTH_IO, "no keys here");
}

static fth_status refuse_get(void *context, const char *key, fth_deadline deadline, void **bytes, size_t *size)
{
    (void)context;
    (void)key;
    (void)deadline;
    (void)bytes;
    (void)size;
    return fth_fail(FTH_IO, "no keys here");
}

/* Whether the plugin was built, and found. */
static bool has_gloo(void)
{
    const fth_key_store no_keys = {NULL, refuse_put, refuse_get};
    const fth_member members[2] = {{0, "first"}, {1, "second"}};
    fth_collective *collective = NULL;
    fth_status status = fth_collective_open(
        &(fth_collective_options){
            .size = 2, .members = members, .transport = "gloo", .timeout_s = 0.01, .keys = no_keys},
        &collective);
    fth_collective_close(collective);
    return status != FTH_UNSUPPORTED;
}

/* ---- the tests ---- */

static const char *const method = "--model linear --batch 47 --epochs 2 --lr 0.1 --seed 3";

/* What one worker does, as the run "alone". */
static void train_alone(const char *flags, history *taken)
{
    char text[300];
    snprintf(text, sizeof text, "%s --name alone", flags);
    train_with(1, text);
    read_history(taken);
    char command[TEST_MAX_PATH + 40];
    snprintf(command, sizeof command, "rm -f '%s'/samples-*", test_folder);
    assert_int_equal(system(command), 0);
}

static history expected, found;

static void workers_train_what_one_does(void **state)
{
    (void)state;
    train_alone(method, &expected);
    assert_int_equal(expected.count, 2 * TRAINING);
    for (int workers = 2; workers <= 4; workers += 2) {
        char flags[300], name[20];
        snprintf(name, sizeof name, "with%d", workers);
        snprintf(flags, sizeof flags, "%s --name %s", method, name);
        train_with(workers, flags);
        read_history(&found);
        assert_same_samples(&expected, &found);
        assert_true(compare_models("alone", name) < rounding);
    }
}

/* Of ten batches an epoch, groups of four make 4, 4 and 2. */
static void accumulated_batches_are_exchanged_once(void **state)
{
    (void)state;
    const char *flags = "--model linear --batch 40 --accumulate 4 --epochs 2 --lr 0.1";
    char text[300];
    train_alone(flags, &expected);
    snprintf(text, sizeof text, "%s --name two", flags);
    train_with(2, text);
    read_history(&found);
    assert_same_samples(&expected, &found);
    assert_true(compare_models("alone", "two") < rounding);
    assert_true(test_exists("exchanges-0-6") && test_exists("exchanges-1-6"));
}

/* The last batch of an epoch has three samples for four workers. */
static void parts_may_be_empty(void **state)
{
    (void)state;
    const char *flags = "--model linear --batch 397 --epochs 3 --lr 0.1 --clip 0.5 --optimizer adamw --lr 0.01";
    char text[300];
    train_alone(flags, &expected);
    snprintf(text, sizeof text, "%s --name four", flags);
    train_with(4, text);
    read_history(&found);
    assert_same_samples(&expected, &found);
    assert_true(compare_models("alone", "four") < rounding);
}

static void gradients_may_travel_in_fewer_bits(void **state)
{
    (void)state;
    static const char *const wires[] = {"f16", "bf16"};
    static const double error[] = {0x1p-10, 0x1p-7}; /* of a gradient; the weights move by less than 1 in all */
    train_alone(method, &expected);
    for (size_t i = 0; i < FTH_COUNT_OF(wires); i++) {
        char flags[300];
        snprintf(flags, sizeof flags, "%s --wire %s --name %s", method, wires[i], wires[i]);
        train_with(2, flags);
        double difference = compare_models("alone", wires[i]);
        assert_true(difference > 0 && difference < rounding + error[i]);
    }
}

/* Whichever it is: the others make the update that it did not take part in, with all of its
 * samples. */
static void workers_continue_without_a_lost_one(void **state)
{
    (void)state;
    train_alone(method, &expected);
    for (int lost = 0; lost < 3; lost++) {
        char flags[300];
        crew all;
        snprintf(flags, sizeof flags, "%s --name lost%d", method, lost);
        open_crew(&all, 3, flags);
        for (int i = 0; i < 3; i++) {
            script plan = plain;
            plan.killed_at = i == lost ? 4 + lost : -1;
            start_worker(&all, plan);
        }
        close_crew(&all, 1u << lost);
        read_history(&found);
        assert_same_samples(&expected, &found);
        snprintf(flags, sizeof flags, "lost%d", lost);
        assert_true(compare_models("alone", flags) < rounding);
    }
}

/* Which a worker took first; INT64_MAX if it took none. */
static int64_t first_batch_of(int worker)
{
    char name[40], path[TEST_MAX_PATH];
    long long generation, batch;
    snprintf(name, sizeof name, "samples-%d", worker);
    FILE *taken = fopen(test_path(path, name), "r");
    bool found_one = taken && fscanf(taken, "%lld %lld", &generation, &batch) == 2;
    if (taken)
        fclose(taken);
    return found_one ? batch : INT64_MAX;
}

/* All that have its state: those that come then find the run, and continue after its newest
 * checkpoint. */
static void a_run_whose_workers_are_all_lost_is_restored(void **state)
{
    (void)state;
    char flags[300];
    crew all;
    train_alone(method, &expected);
    snprintf(flags, sizeof flags, "%s --checkpoint-every 5 --name restored", method);
    open_crew(&all, 2, flags);
    for (int i = 0; i < 2; i++)
        start_worker(&all, (script){.killed_at = -1, .leaves_at = -1, .gate = 8, .wanted = 3});
    await_marker(&all, "runs/restored/checkpoints/step-000000000005.json");
    await_marker(&all, "gate-8");
    for (int i = 0; i < 2; i++)
        kill(all.processes[i], SIGKILL);
    fth_deadline deadline = test_deadline_in(60);
    while (watch(&all) > 0 && !fth_deadline_passed(deadline))
        usleep(2000);
    for (int i = 0; i < 2; i++) /* the first one may begin alone, but does not end before the second has come */
        start_worker(&all, (script){.killed_at = -1, .leaves_at = -1, .gate = 10, .wanted = 2});
    close_crew(&all, 3);
    const int64_t firsts[2] = {first_batch_of(2), first_batch_of(3)}; /* one may begin before the other */
    assert_int_equal(firsts[0] < firsts[1] ? firsts[0] : firsts[1], 5);
    read_history(&found);
    assert_same_samples(&expected, &found);
    assert_true(compare_models("alone", "restored") < rounding);
}

/* One leaves before its machine vanishes; no batch is computed twice. */
static void a_worker_leaves_between_updates(void **state)
{
    (void)state;
    char flags[300];
    crew all;
    train_alone(method, &expected);
    snprintf(flags, sizeof flags, "%s --name left", method);
    open_crew(&all, 3, flags);
    for (int i = 0; i < 3; i++) {
        script plan = plain;
        plan.leaves_at = i == 1 ? 5 : -1;
        start_worker(&all, plan);
    }
    close_crew(&all, 0);
    read_history(&found);
    assert_same_samples(&expected, &found);
    assert_true(compare_models("alone", "left") < rounding);
    assert_int_equal(count_repeated_batches(), 0);
}

/* 2 -> 4 -> 1 -> 3 workers. */
static void workers_come_and_go(void **state)
{
    (void)state;
    const char *flags = "--model linear --batch 47 --steps 26 --lr 0.1 --seed 3 --name elastic";
    crew all;
    train_alone("--model linear --batch 47 --steps 26 --lr 0.1 --seed 3", &expected);
    open_crew(&all, 2, flags);
    start_worker(&all, (script){.killed_at = 12, .leaves_at = -1, .gate = 6, .wanted = 4});
    start_worker(
        &all, (script){.killed_at = -1, .leaves_at = -1, .gate = 6, .wanted = 4, .later_gate = 18, .later_wanted = 3});
    await_marker(&all, "gate-6");
    for (int i = 0; i < 2; i++)
        start_worker(&all, (script){.killed_at = 12, .leaves_at = -1, .gate = 6, .wanted = 4});
    await_marker(&all, "gate-18");
    for (int i = 0; i < 2; i++)
        start_worker(&all, (script){.killed_at = -1, .leaves_at = -1, .gate = 18, .wanted = 3});
    close_crew(&all, 1u << 0 | 1u << 2 | 1u << 3);
    read_history(&found);
    assert_same_samples(&expected, &found);
    assert_true(compare_models("alone", "elastic") < rounding);
}

/* Buckets of 16 KB: some layers have several, and some buckets several layers. With "auto" they are
 * measured, and cut again after the first updates. */
static void gradients_travel_while_others_are_computed(void **state)
{
    (void)state;
    const char *flags = "--model mnist-cnn --batch 6 --steps 8 --lr 0.05";
    static const char *const sizes[] = {"16K", "auto"};
    char text[300];
    if (!has_gloo())
        skip();
    train_alone(flags, &expected);
    for (size_t i = 0; i < FTH_COUNT_OF(sizes); i++) {
        snprintf(text, sizeof text, "%s --transport gloo --bucket %s --name %s", flags, sizes[i], sizes[i]);
        train_with(3, text);
        read_history(&found);
        assert_same_samples(&expected, &found);
        assert_true(compare_models("alone", sizes[i]) < rounding);
    }
}

/* In the middle of an exchange, too. */
static void a_loss_ends_the_exchange(void **state)
{
    (void)state;
    char flags[300];
    crew all;
    if (!has_gloo())
        skip();
    train_alone(method, &expected);
    snprintf(flags, sizeof flags, "%s --accumulate 1 --transport gloo --bucket 1K --name lost", method);
    open_crew(&all, 3, flags);
    for (int i = 0; i < 3; i++) {
        script plan = plain;
        plan.killed_at = i == 1 ? 6 : -1;
        start_worker(&all, plan);
    }
    close_crew(&all, 1u << 1);
    read_history(&found);
    assert_same_samples(&expected, &found);
    assert_true(compare_models("alone", "lost") < rounding);
}

/* Each worker updates a range, to the same bits; ranges move when one is lost, and when others
 * join. */
static void a_sharded_update_gives_the_same_numbers(void **state)
{
    (void)state;
    static const char *const methods[] = {"--optimizer sgd --momentum 0.9", "--optimizer adamw --lr 0.01 --clip 0.1"};
    char flags[400];
    for (size_t i = 0; i < FTH_COUNT_OF(methods); i++) {
        snprintf(flags, sizeof flags, "%s %s --name whole%zu", method, methods[i], i);
        train_with(3, flags);
        snprintf(flags, sizeof flags, "%s %s --shard-update --checkpoint-every 4 --name sharded%zu", method, methods[i],
                 i);
        train_with(3, flags);
        char names[2][20];
        snprintf(names[0], sizeof names[0], "whole%zu", i);
        snprintf(names[1], sizeof names[1], "sharded%zu", i);
        assert_true(compare_models(names[0], names[1]) == 0);
    }
}

static void a_sharded_update_survives_a_loss(void **state)
{
    (void)state;
    const char *flags =
        "--model linear --batch 47 --steps 20 --optimizer adamw --lr 0.01 --shard-update --name sharded";
    crew all;
    train_alone("--model linear --batch 47 --steps 20 --optimizer adamw --lr 0.01", &expected);
    open_crew(&all, 3, flags);
    for (int i = 0; i < 3; i++)
        start_worker(&all, (script){.killed_at = i == 1 ? 5 : -1, .leaves_at = -1, .gate = 10, .wanted = 4});
    await_marker(&all, "gate-10");
    for (int i = 0; i < 2; i++)
        start_worker(&all, (script){.killed_at = -1, .leaves_at = -1, .gate = 10, .wanted = 4});
    close_crew(&all, 1u << 1);
    read_history(&found);
    assert_same_samples(&expected, &found);
    assert_true(compare_models("alone", "sharded") < rounding);
}

/* One leaves just when a checkpoint is due: it holds all of the optimizer's state all the same. */
static void a_sharded_update_is_saved_whole_after_a_change(void **state)
{
    enum { WORKERS = 4 }; /* those of three have two thirds of the state each */
    (void)state;
    const char *flags = "--model linear --batch 47 --steps 6 --checkpoint-every 5 --shard-update --name";
    char text[300];
    crew all;
    snprintf(text, sizeof text, "%s same", flags);
    train_with(WORKERS, text);
    snprintf(text, sizeof text, "%s changed", flags);
    open_crew(&all, WORKERS, text);
    for (int i = 0; i < WORKERS; i++) {
        script plan = plain;
        plan.leaves_at = i == WORKERS - 1 ? 5 : -1;
        start_worker(&all, plan);
    }
    close_crew(&all, 0);
    assert_true(compare_files("same", "changed", "checkpoints/step-000000000005.safetensors") == 0);
}

/* Where a group of too few is left, and the one that kept the run is lost: the first of them keeps
 * it, and saves. */
static void those_that_wait_save_first(void **state)
{
    (void)state;
    enum { LOST_AT = 5 };
    char flags[300], checkpoint[100];
    crew all;
    if (!has_gloo())
        skip();
    train_alone(method, &expected);
    snprintf(flags, sizeof flags, "%s --name waited", method);
    open_crew_of_nodes(&all, 3, flags);
    script plan = plain;
    plan.killed_at = LOST_AT;
    start_worker(&all, plan);
    fth_deadline deadline = test_deadline_in(60); /* it comes first, so that it is the one that finds the run */
    while (fth_rendezvous_count(all.rendezvous) == 0 && watch(&all) > 0 && !fth_deadline_passed(deadline))
        usleep(2000);
    start_worker(&all, plain);
    start_worker(&all, plain);
    snprintf(checkpoint, sizeof checkpoint, "runs/waited/checkpoints/step-%012d.json", LOST_AT);
    await_marker(&all, checkpoint);
    start_worker(&all, plain);
    close_crew(&all, 1);
    read_history(&found);
    assert_same_samples(&expected, &found);
    assert_true(compare_models("alone", "waited") < rounding);
}

/* Batch and learning rate follow from the two workers that the run begins with, whoever comes
 * later, and when it is resumed. */
static void batch_and_rate_follow_from_the_first_workers(void **state)
{
    (void)state;
    crew all;
    train_alone("--model linear --batch 40 --lr 0.2 --steps 20", &expected);
    open_crew(&all, 2, "--model linear --batch-per-worker 20 --lr 0.1 --scale-lr linear --steps 12 --name scaled");
    for (int i = 0; i < 2; i++)
        start_worker(&all, (script){.killed_at = -1, .leaves_at = -1, .gate = 6, .wanted = 3});
    await_marker(&all, "gate-6");
    start_worker(&all, plain);
    close_crew(&all, 0);
    read_history(&found);
    assert_int_equal(found.count, 12 * 40);
    train_with(1, "--model linear --batch-per-worker 20 --lr 0.1 --scale-lr linear --steps 20 --resume scaled");
    assert_true(compare_models("alone", "scaled") < rounding);
}

static const char *const with_norms = "--model resnet20 --share 1/4 --batch 49 --steps 3 --lr 0.001";

/* Batch norms that are synchronized normalize by the whole batch: parts of it give the numbers of
 * one worker, running statistics included, where parts are uneven or empty (the third batch has two
 * samples) as well. Those of each worker's own do not. */
static void synchronized_batch_norms_give_the_numbers_of_one_worker(void **state)
{
    (void)state;
    static const struct {
        const char *name, *how;
        int workers;
    } cases[] = {{"synced2", "--batch-norm synchronized", 2},
                 {"apart", "--batch-norm worker", 2},
                 {"synced3", "--batch-norm synchronized", 3}};
    train_alone(with_norms, &expected);
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        char text[300];
        snprintf(text, sizeof text, "%s %s --name %s", with_norms, cases[i].how, cases[i].name);
        train_with(cases[i].workers, text);
        read_history(&found);
        assert_same_samples(&expected, &found);
        double difference = compare_models("alone", cases[i].name);
        if (strstr(cases[i].how, "synchronized"))
            assert_true(difference < rounding);
        else
            assert_true(difference > 10 * rounding);
    }
}

/* The others are in the middle of a forward pass, with running statistics moved that the same batch
 * will move again. */
static void a_lost_worker_leaves_no_trace_in_running_statistics(void **state)
{
    (void)state;
    char flags[300];
    crew all;
    train_alone(with_norms, &expected);
    snprintf(flags, sizeof flags, "%s --batch-norm synchronized --name lost", with_norms);
    open_crew(&all, 3, flags);
    for (int i = 0; i < 3; i++) {
        script plan = plain;
        plan.killed_at = i == 1 ? 1 : -1;
        start_worker(&all, plan);
    }
    close_crew(&all, 1u << 1);
    read_history(&found);
    assert_same_samples(&expected, &found);
    assert_true(compare_models("alone", "lost") < rounding);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, write_data, remove_all)

int main(int argc, char **argv)
{
    if (argc == 11 && strcmp(argv[1], "worker") == 0)
        return be_worker(argv + 2);
    fth_log_set_level(FTH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(workers_train_what_one_does),
        TEST(accumulated_batches_are_exchanged_once),
        TEST(parts_may_be_empty),
        TEST(gradients_may_travel_in_fewer_bits),
        TEST(workers_continue_without_a_lost_one),
        TEST(a_run_whose_workers_are_all_lost_is_restored),
        TEST(a_worker_leaves_between_updates),
        TEST(workers_come_and_go),
        TEST(batch_and_rate_follow_from_the_first_workers),
        TEST(synchronized_batch_norms_give_the_numbers_of_one_worker),
        TEST(a_lost_worker_leaves_no_trace_in_running_statistics),
        TEST(a_sharded_update_gives_the_same_numbers),
        TEST(a_sharded_update_survives_a_loss),
        TEST(a_sharded_update_is_saved_whole_after_a_change),
        TEST(those_that_wait_save_first),
        TEST(gradients_travel_while_others_are_computed),
        TEST(a_loss_ends_the_exchange),
    };
    return cmocka_run_group_tests(tests, test_make_folder, test_remove_folder);
}
