/* The lease over a folder: one owner, also when many try at once, when the owner sleeps, when the
 * store is away. */
#include "support.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "spot/spot.h"

enum { PATIENCE_S = 30, RACERS = 4, ROUNDS = 50 };

static char store_folder[300];

static int set_up(void **state)
{
    if (test_make_folder(state) != 0)
        return -1;
    snprintf(store_folder, sizeof store_folder, "%s/store", test_folder);
    return mkdir(store_folder, 0700);
}

static fth_store *open_store(void)
{
    fth_store *store = NULL;
    assert_int_equal(fth_store_open(store_folder, NULL, &store), FTH_OK);
    return store;
}

static fth_lease *acquire(fth_store *store, double period_s, fth_stop *stop)
{
    fth_lease *lease = NULL;
    fth_lease_options options = {.period_s = period_s, .stop = stop, .instance = "g4dn.xlarge"};
    fth_status status = fth_lease_acquire(store, &options, test_deadline_in(PATIENCE_S), &lease);
    if (status != FTH_OK)
        print_error("%s\n", fth_error_message());
    assert_int_equal(status, FTH_OK);
    return lease;
}

static void nap(double seconds)
{
    usleep((useconds_t)(seconds * 1e6));
}

static json_t *read_lease(void)
{
    char path[400];
    snprintf(path, sizeof path, "%s/lease.json", store_folder);
    return json_load_file(path, 0, NULL);
}

static void test_held_renewed_released(void **state)
{
    (void)state;
    fth_store *store = open_store();
    fth_lease *lease = acquire(store, 0.6, NULL);
    assert_int_equal(fth_lease_fence(lease), 1);
    assert_true(fth_lease_previous_seen_s(lease) == 0);
    json_t *first = read_lease();
    assert_string_equal(json_string_value(json_object_get(first, "instance")), "g4dn.xlarge");
    assert_true(json_number_value(json_object_get(first, "period_s")) == 0.6);
    double deadline = fth_clock_seconds() + PATIENCE_S * TEST_SLOWDOWN;
    bool renewed = false;
    while (!renewed && fth_clock_seconds() < deadline) {
        nap(0.05);
        json_t *now = read_lease();
        renewed = !json_equal(first, now);
        assert_string_equal(json_string_value(json_object_get(first, "owner")),
                            json_string_value(json_object_get(now, "owner")));
        json_decref(now);
    }
    assert_true(renewed);
    assert_int_equal(fth_lease_guard(lease, 0.1), FTH_OK);
    assert_int_equal(fth_lease_release(lease), FTH_OK);
    /* A thread that still writes hears of it, and does not take the lease again. */
    assert_int_equal(fth_lease_guard(lease, 0.1), FTH_PEER_LOST);
    json_t *given = read_lease();
    assert_string_equal(json_string_value(json_object_get(given, "owner")), "");
    json_decref(given);
    fth_lease_free(lease);
    json_decref(first);
    /* The next has it at once, and counts on. */
    double began = fth_clock_seconds();
    lease = acquire(store, 20, NULL);
    assert_true(fth_clock_seconds() - began < 15);
    assert_int_equal(fth_lease_fence(lease), 2);
    assert_true(fth_lease_previous_seen_s(lease) == 0);
    fth_lease_free(lease);
    fth_store_free(store);
}

/* What a process of a group, with its own view of who leads, waits with. */
typedef struct peer {
    atomic_bool leads;
    char group[FTH_LEASE_GROUP_BYTES];
    fth_store *store;
    fth_status status;
    fth_lease *lease;
} peer;

static void *follow_as_peer(void *context)
{
    peer *self = context;
    const fth_lease_options options = {.period_s = 60, .name = "node2", .group = self->group, .leads = &self->leads};
    self->status = fth_lease_acquire(self->store, &options, test_deadline_in(PATIENCE_S), &self->lease);
    return NULL;
}

/* A process of the owner's group waits as any other does, until it leads the group; and the former
 * owner hears which node has the run, by its name. */
static void test_only_the_one_that_leads_follows_at_once(void **state)
{
    (void)state;
    fth_store *store = open_store();
    fth_stop lost = FTH_STOP_INITIALIZER;
    fth_lease *lease = NULL;
    pthread_t thread;
    const fth_lease_options first = {.period_s = 60, .lost = &lost, .name = "node1", .group = ""};
    assert_int_equal(fth_lease_acquire(store, &first, test_deadline_in(PATIENCE_S), &lease), FTH_OK);
    peer other = {.store = open_store()};
    fth_lease_get_group(lease, other.group);
    assert_int_equal(pthread_create(&thread, NULL, follow_as_peer, &other), 0);
    nap(1.5); /* three times what it would wait as the one that leads */
    json_t *text = read_lease();
    assert_string_equal(json_string_value(json_object_get(text, "host")), "node1");
    json_decref(text);
    atomic_store(&other.leads, true);
    pthread_join(thread, NULL);
    assert_int_equal(other.status, FTH_OK);
    assert_int_equal(fth_lease_fence(other.lease), 2);
    assert_int_equal(fth_lease_release(other.lease), FTH_OK); /* the name stays */
    assert_int_equal(fth_lease_guard(lease, 61), FTH_PEER_LOST);
    assert_non_null(strstr(fth_stop_get(&lost).message, "node2 has taken this run over"));
    fth_lease_free(other.lease);
    fth_store_free(other.store);
    fth_lease_free(lease);
    fth_store_free(store);
}

static void count_waiting(void *context, const char *owner, double since_s)
{
    assert_non_null(strstr(owner, "(g4dn.xlarge)"));
    assert_true(since_s >= 0);
    ++*(int *)context;
}

static void test_waiting_ends(void **state)
{
    (void)state;
    fth_store *store = open_store();
    fth_lease *first = acquire(store, 5, NULL), *second = NULL;
    int told = 0;
    fth_lease_options options = {.period_s = 5, .waiting = count_waiting, .waiting_context = &told};
    assert_int_equal(fth_lease_acquire(store, &options, fth_deadline_in(0.3), &second), FTH_TIMEOUT);
    assert_message_has("g4dn.xlarge");
    assert_null(second);
    assert_int_equal(told, 1);
    fth_stop stop = FTH_STOP_INITIALIZER;
    fth_stop_ask(&stop, FTH_STOP_REQUEST, INFINITY, "test", "enough");
    options.stop = &stop;
    assert_int_equal(fth_lease_acquire(store, &options, test_deadline_in(PATIENCE_S), &second), FTH_INTERRUPTED);
    /* The owner has not been disturbed. */
    assert_int_equal(fth_lease_guard(first, 1), FTH_OK);
    assert_int_equal(fth_lease_release(first), FTH_OK);
    fth_lease_free(first);
    fth_store_free(store);
}

/* An owner that is gone without a word: the wait is by the clock of who waits, so absurd times in
 * the text are fine. */
static void test_taken_over_whatever_the_clocks_say(void **state)
{
    (void)state;
    static const double renewed_s[] = {1, 4e9};
    fth_store *store = open_store();
    for (size_t i = 0; i < FTH_COUNT_OF(renewed_s); i++) {
        char text[300];
        snprintf(
            text, sizeof text,
            "{\"owner\":\"gone\",\"host\":\"h\",\"fence\":%d,\"expires_s\":%.0f,\"period_s\":0.5,\"renewed_s\":%.0f}",
            40 + (int)i, renewed_s[i] + 0.5, renewed_s[i]);
        assert_int_equal(fth_store_put(store, "lease.json", text, strlen(text), NULL, NULL, NULL), FTH_OK);
        double began = fth_clock_seconds();
        fth_lease *lease = acquire(store, 0.3, NULL);
        assert_true(fth_clock_seconds() - began >= 0.5); /* the owner's period, since it is the longer one */
        assert_int_equal(fth_lease_fence(lease), 41 + i);
        assert_true(fth_lease_previous_seen_s(lease) == renewed_s[i]);
        fth_lease_free(lease);
    }
    fth_store_free(store);
}

static void test_not_a_lease(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "{", "{\"owner\":\"x\"}", "{\"owner\":\"x\",\"fence\":-1}", "[]"};
    fth_store *store = open_store();
    for (size_t i = 0; i < FTH_COUNT_OF(texts); i++) {
        fth_lease *lease = NULL;
        assert_int_equal(fth_store_put(store, "lease.json", texts[i], strlen(texts[i]), NULL, NULL, NULL), FTH_OK);
        assert_int_equal(fth_lease_acquire(store, NULL, test_deadline_in(PATIENCE_S), &lease), FTH_CORRUPT);
        assert_message_has("delete it");
    }
    fth_store_free(store);
}

static void wait_until_fenced(const fth_stop *stop)
{
    for (double deadline = fth_clock_seconds() + PATIENCE_S * TEST_SLOWDOWN;
         !stop->asked && fth_clock_seconds() < deadline;)
        nap(0.01);
    fth_stop_reason reason = fth_stop_get(stop);
    assert_int_equal(reason.kind, FTH_STOP_FENCED);
    assert_string_equal(reason.source, "lease");
}

static void replace_lease(fth_store *store, const char *text)
{
    assert_int_equal(fth_store_put(store, "lease.json", text, strlen(text), NULL, NULL, NULL), FTH_OK);
}

/* Deleted by a person: nobody else has it. Taken by another: lost for good, also when that one
 * leaves. */
static void test_deleted_and_taken(void **state)
{
    (void)state;
    static const char taken[] = "{\"owner\":\"other\",\"host\":\"elsewhere\",\"fence\":9,\"period_s\":9}";
    static const char left[] = "{\"owner\":\"\",\"host\":\"elsewhere\",\"fence\":9,\"period_s\":9}";
    fth_store *store = open_store();
    for (int again = 0; again < 2; again++) {
        fth_stop stop = FTH_STOP_INITIALIZER;
        assert_int_equal(fth_store_delete(store, "lease.json"), FTH_OK);
        fth_lease *lease = acquire(store, 0.5, &stop);
        assert_int_equal(fth_store_delete(store, "lease.json"), FTH_OK);
        json_t *text = NULL;
        for (double deadline = fth_clock_seconds() + PATIENCE_S * TEST_SLOWDOWN;
             !text && fth_clock_seconds() < deadline; nap(0.01))
            text = read_lease();
        assert_int_equal(json_integer_value(json_object_get(text, "fence")), 1);
        json_decref(text);
        assert_false(stop.asked);
        replace_lease(store, again ? left : taken);
        wait_until_fenced(&stop);
        assert_int_equal(fth_lease_guard(lease, 0.1), FTH_PEER_LOST);
        assert_int_equal(fth_lease_release(lease), FTH_PEER_LOST);
        fth_lease_free(lease);
        text = read_lease(); /* and not written over */
        assert_int_equal(json_integer_value(json_object_get(text, "fence")), 9);
        json_decref(text);
    }
    fth_store_free(store);
}

/* ---- the owner sleeps past its lease and wakes ---- */

/* A process that renews its lease late, where it is slow, does not hold it for certain. */
static const double paused_period_s = 0.5 * TEST_SLOWDOWN;

/* A child owns the lease and, whenever it holds it for certain, writes its fence; told to by a byte
 * through a pipe. */
static void own_in_child(int commands, int answers)
{
    fth_stop stop = FTH_STOP_INITIALIZER;
    fth_store *store = open_store();
    fth_lease *lease = acquire(store, paused_period_s, &stop);
    char byte = 'h';
    while (write(answers, &byte, 1) == 1 && read(commands, &byte, 1) == 1) {
        fth_status status = fth_lease_guard(lease, 0.1);
        byte = status == FTH_OK ? 'w' : status == FTH_PEER_LOST ? 'l' : 'e';
    }
    _exit(fth_stop_get(&stop).kind == FTH_STOP_FENCED ? 7 : 0);
}

static char ask_child(int commands, int answers)
{
    char byte = '?';
    if (commands >= 0)
        assert_int_equal(write(commands, &byte, 1), 1);
    assert_int_equal(read(answers, &byte, 1), 1);
    return byte;
}

static void test_paused_owner_is_fenced(void **state)
{
    (void)state;
    int commands[2], answers[2], code;
    assert_int_equal(pipe(commands) | pipe(answers), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(commands[1]);
        own_in_child(commands[0], answers[1]);
    }
    close(commands[0]);
    assert_int_equal(ask_child(-1, answers[0]), 'h');
    assert_int_equal(ask_child(commands[1], answers[0]), 'w');
    fth_store *store = open_store();

    /* A nap that nobody used: it is still the owner. */
    kill(child, SIGSTOP);
    nap(1.6 * paused_period_s);
    kill(child, SIGCONT);
    assert_int_equal(ask_child(commands[1], answers[0]), 'w');

    /* While it sleeps somebody takes over; when it wakes, its very first guard says so. */
    kill(child, SIGSTOP);
    fth_lease *lease = acquire(store, paused_period_s, NULL);
    assert_int_equal(fth_lease_fence(lease), 2);
    kill(child, SIGCONT);
    assert_int_equal(ask_child(commands[1], answers[0]), 'l');
    assert_int_equal(fth_lease_guard(lease, 0.1), FTH_OK);
    close(commands[1]);
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 7);
    fth_lease_free(lease);
    fth_store_free(store);
    close(answers[0]);
    close(answers[1]);
}

/* ---- many at once ---- */

static struct {
    pthread_barrier_t start;
    atomic_int winners, inside, most_inside;
    fth_lease *won;
    double period_s, patience_s;
} race;

static void *try_once(void *context)
{
    fth_store *store = context;
    fth_lease *lease = NULL;
    fth_lease_options options = {.period_s = race.period_s};
    pthread_barrier_wait(&race.start);
    fth_status status = fth_lease_acquire(store, &options, fth_deadline_in(race.patience_s), &lease);
    if (status == FTH_OK) {
        atomic_fetch_add(&race.winners, 1);
        race.won = lease;
    }
    return status == FTH_OK || status == FTH_TIMEOUT ? NULL : strdup(fth_error_message());
}

/* Several machines follow one that is gone, or one that left: one of them wins, every time. */
static void test_races_have_one_winner(void **state)
{
    (void)state;
    fth_store *stores[RACERS];
    pthread_t threads[RACERS];
    for (int i = 0; i < RACERS; i++)
        stores[i] = open_store();
    pthread_barrier_init(&race.start, NULL, RACERS);
    race.period_s = 5;
    race.patience_s = 0.02;
    for (int round = 0; round < ROUNDS; round++) {
        race.winners = 0;
        race.won = NULL;
        for (int i = 0; i < RACERS; i++)
            pthread_create(&threads[i], NULL, try_once, stores[i]);
        for (int i = 0; i < RACERS; i++) {
            void *error = NULL;
            pthread_join(threads[i], &error);
            if (error)
                fail_msg("%s", (char *)error);
        }
        assert_int_equal(race.winners, 1);
        assert_int_equal(fth_lease_fence(race.won), round + 1);
        assert_int_equal(fth_lease_release(race.won), FTH_OK);
        fth_lease_free(race.won);
    }
    pthread_barrier_destroy(&race.start);
    for (int i = 0; i < RACERS; i++)
        fth_store_free(stores[i]);
}

/* Each takes over from the one before, which dies without a word, while all the others wait too.
 * Whoever is certain of the lease is inside; a machine so busy that a renewal came too late is
 * not. */
static void *follow_and_die(void *context)
{
    fth_store *store = context;
    fth_lease *lease = NULL;
    fth_lease_options options = {.period_s = race.period_s};
    pthread_barrier_wait(&race.start);
    if (fth_lease_acquire(store, &options, test_deadline_in(PATIENCE_S), &lease) != FTH_OK)
        return strdup(fth_error_message());
    for (int i = 0; i < 20; i++) {
        if (fth_lease_guard(lease, race.period_s / 2) == FTH_OK) {
            int inside = atomic_fetch_add(&race.inside, 1) + 1;
            if (inside > race.most_inside)
                race.most_inside = inside;
            sched_yield();
            atomic_fetch_sub(&race.inside, 1);
        }
        nap(race.period_s / 20);
    }
    fth_lease_free(lease);
    return NULL;
}

static void test_takeovers_follow_one_another(void **state)
{
    (void)state;
    fth_store *stores[RACERS];
    pthread_t threads[RACERS];
    pthread_barrier_init(&race.start, NULL, RACERS);
    race.period_s = 0.6;
    race.inside = race.most_inside = 0;
    for (int i = 0; i < RACERS; i++) {
        stores[i] = open_store();
        pthread_create(&threads[i], NULL, follow_and_die, stores[i]);
    }
    for (int i = 0; i < RACERS; i++) {
        void *error = NULL;
        pthread_join(threads[i], &error);
        if (error)
            fail_msg("%s", (char *)error);
        fth_store_free(stores[i]);
    }
    assert_int_equal(race.most_inside, 1);
    json_t *lease = read_lease();
    assert_int_equal(json_integer_value(json_object_get(lease, "fence")), RACERS);
    json_decref(lease);
    pthread_barrier_destroy(&race.start);
}

/* ---- the store is away for a while ---- */

static void test_survives_store_errors(void **state)
{
    (void)state;
    char away[320];
    fth_stop stop = FTH_STOP_INITIALIZER;
    fth_store *store = open_store();
    fth_lease *lease = acquire(store, 1.5, &stop);
    snprintf(away, sizeof away, "%s.away", store_folder);
    /* A file where the folder was: every write fails. */
    assert_int_equal(rename(store_folder, away), 0);
    FILE *file = fopen(store_folder, "w");
    fclose(file);
    assert_int_equal(fth_lease_guard(lease, 0.1), FTH_OK); /* there is time yet */
    nap(2);
    assert_int_not_equal(fth_lease_guard(lease, 0.1), FTH_OK); /* now it is not certain any more */
    assert_int_equal(unlink(store_folder), 0);
    assert_int_equal(rename(away, store_folder), 0);
    assert_int_equal(fth_lease_guard(lease, 0.1), FTH_OK); /* and nobody has taken it */
    assert_false(stop.asked);
    assert_int_equal(fth_lease_release(lease), FTH_OK);
    fth_lease_free(lease);
    fth_store_free(store);
}

/* ---- the store cannot be written ---- */

/* Every write of this process to a file fails, as on a full disk, also where the tests run as
 * root. */
static void forbid_writing(bool forbidden)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = forbidden ? 0 : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Nobody holds the lease, and it cannot be taken: the reason is given at once, however long one
 * would wait. */
static void test_unwritable_store_ends_the_wait(void **state)
{
    (void)state;
    static const char *const texts[] = {NULL, "{\"owner\":\"\",\"fence\":3}"};
    fth_store *store = open_store();
    for (size_t i = 0; i < FTH_COUNT_OF(texts); i++) {
        fth_lease *lease = NULL;
        if (texts[i])
            replace_lease(store, texts[i]);
        forbid_writing(true);
        alarm(PATIENCE_S); /* an endless loop ends the test */
        double began = fth_clock_seconds();
        fth_status status = fth_lease_acquire(store, NULL, (fth_deadline){INFINITY}, &lease);
        double took_s = fth_clock_seconds() - began;
        alarm(0);
        forbid_writing(false);
        assert_int_equal(status, FTH_IO);
        assert_message_has("ulimit -f");
        assert_null(lease);
        assert_true(took_s < 5);
    }
    fth_store_free(store);
}

static void *allow_writing_later(void *unused)
{
    (void)unused;
    nap(1.2);
    forbid_writing(false);
    return NULL;
}

/* Whoever waited for another machine, perhaps for days, tries for a while. */
static void test_unwritable_for_a_while_after_waiting(void **state)
{
    (void)state;
    pthread_t thread;
    fth_store *store = open_store();
    replace_lease(store, "{\"owner\":\"gone\",\"host\":\"h\",\"fence\":7,\"period_s\":0.4}");
    forbid_writing(true);
    pthread_create(&thread, NULL, allow_writing_later, NULL);
    double began = fth_clock_seconds();
    fth_lease *lease = acquire(store, 0.4, NULL);
    assert_true(fth_clock_seconds() - began >= 1);
    assert_int_equal(fth_lease_fence(lease), 8);
    pthread_join(thread, NULL);
    fth_lease_free(lease);
    fth_store_free(store);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, test_remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(test_paused_owner_is_fenced), /* first: it forks, and no thread is there yet */
        WITH_FOLDER(test_held_renewed_released),
        WITH_FOLDER(test_only_the_one_that_leads_follows_at_once),
        WITH_FOLDER(test_waiting_ends),
        WITH_FOLDER(test_taken_over_whatever_the_clocks_say),
        WITH_FOLDER(test_not_a_lease),
        WITH_FOLDER(test_deleted_and_taken),
        WITH_FOLDER(test_races_have_one_winner),
        WITH_FOLDER(test_takeovers_follow_one_another),
        WITH_FOLDER(test_survives_store_errors),
        WITH_FOLDER(test_unwritable_store_ends_the_wait),
        WITH_FOLDER(test_unwritable_for_a_while_after_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
