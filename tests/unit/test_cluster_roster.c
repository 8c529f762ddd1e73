/* The roster: single courses of events, then random ones, with a clock of the test's own. */
#include "support.h"

#include <inttypes.h>

#include "cluster/roster.h"

static const fth_roster_options usual = {
    .least = 1, .most = 3, .join_wait_s = 3, .lost_after_s = 4, .stuck_after_s = 60};

/* ---- single courses of events ---- */

/* A roster and its clock, in which everybody named is heard of as time passes. */
typedef struct course {
    fth_roster *roster;
    double now_s;
    int64_t heard[16];
    int heard_count;
} course;

static void begin(course *c, const fth_roster_options *options)
{
    *c = (course){.now_s = 1000};
    assert_int_equal(fth_roster_create(options, c->now_s, &c->roster), FTH_OK);
}

/* A process of a node on which `local_size` were started; `rank` is the launcher's, or -1. Nodes
 * named "far" are others than the rendezvous's own. */
static int64_t add_of(course *c, const char *node, int local_size, int rank)
{
    char instance[32];
    int64_t member = 0;
    snprintf(instance, sizeof instance, "instance %d", c->heard_count);
    fth_newcomer newcomer = {.instance = instance,
                             .node = node,
                             .host = node,
                             .address = "10.0.0.1",
                             .process = 100 + c->heard_count,
                             .local_size = local_size,
                             .rank = rank,
                             .hosts = strncmp(node, "far", 3) != 0};
    assert_int_equal(fth_roster_add(c->roster, c->now_s, &newcomer, &member), FTH_OK);
    c->heard[c->heard_count++] = member;
    return member;
}

static int64_t add_ranked(course *c, const char *node, int rank)
{
    return add_of(c, node, 1, rank);
}

static int64_t add(course *c, const char *node)
{
    return add_ranked(c, node, -1);
}

static void silence(course *c, int64_t member)
{
    for (int i = 0; i < c->heard_count; i++)
        if (c->heard[i] == member)
            c->heard[i] = 0;
}

static void pass(course *c, double seconds)
{
    double until_s = c->now_s + seconds;
    while (c->now_s < until_s - 1e-9) {
        c->now_s += 0.1;
        for (int i = 0; i < c->heard_count; i++)
            fth_roster_hear(c->roster, c->now_s, c->heard[i], 0, NULL);
        fth_roster_advance(c->roster, c->now_s);
    }
}

static void join(course *c, int64_t member, int64_t after)
{
    assert_true(fth_roster_join(c->roster, c->now_s, member, after));
}

static void expect_group(const course *c, int64_t generation, int size, const int64_t *members)
{
    fth_roster_group group = fth_roster_get_group(c->roster);
    assert_true(group.live);
    assert_int_equal(group.generation, generation);
    assert_int_equal(group.size, size);
    for (int i = 0; i < size; i++)
        assert_int_equal(group.members[i], members[i]);
}

static bool is_live(const course *c)
{
    return fth_roster_get_group(c->roster).live;
}

static const char *reason(const course *c)
{
    return fth_roster_get_group(c->roster).reason;
}

static void the_first_group_waits_for_nodes(void **state)
{
    course c;
    (void)state;
    begin(&c, &usual);
    int64_t a = add(&c, "a"), b = add(&c, "b");
    join(&c, a, 0);
    pass(&c, 20);
    assert_false(is_live(&c)); /* b prepares */
    join(&c, b, 0);
    pass(&c, 2);
    assert_false(is_live(&c)); /* a third may come */
    int64_t late = add(&c, "c");
    pass(&c, 2);
    join(&c, late, 0);
    expect_group(&c, 1, 3, (int64_t[]){a, b, late}); /* now nobody else can */
    fth_roster_free(c.roster);

    begin(&c, &usual);
    a = add(&c, "a");
    join(&c, a, 0);
    pass(&c, 2.8);
    assert_false(is_live(&c));
    pass(&c, 0.4);
    expect_group(&c, 1, 1, (int64_t[]){a});
    fth_roster_free(c.roster);

    begin(&c, &usual); /* somebody who prepares for ever is waited for a minute */
    a = add(&c, "a");
    add(&c, "b");
    join(&c, a, 0);
    pass(&c, 59);
    assert_false(is_live(&c));
    pass(&c, 2);
    assert_true(is_live(&c));
    fth_roster_free(c.roster);
}

static void a_node_counts_when_its_workers_are_there(void **state)
{
    course c;
    fth_roster_options options = usual;
    bool few = false;
    (void)state;
    options.least = options.most = 2;
    begin(&c, &options);
    int64_t a0 = add_of(&c, "a", 2, -1), b0 = add_of(&c, "b", 2, -1), a1 = add_of(&c, "a", 2, -1);
    join(&c, a0, 0);
    join(&c, b0, 0);
    join(&c, a1, 0);
    pass(&c, 30);
    assert_false(is_live(&c));
    char *missing = fth_roster_missing(c.roster, a0, &few);
    assert_true(few);
    assert_non_null(strstr(missing, "1 node of at least 2: "));
    assert_non_null(strstr(missing, "b (1 of 2 workers)"));
    free(missing);
    int64_t b1 = add_of(&c, "b", 2, -1);
    join(&c, b1, 0);
    expect_group(&c, 1, 4, (int64_t[]){a0, a1, b0, b1});
    /* Later on whoever is there counts. */
    fth_roster_lose(c.roster, c.now_s, "b", 101, "signal 9");
    join(&c, a0, 1);
    join(&c, a1, 1);
    join(&c, b1, 1);
    expect_group(&c, 2, 3, (int64_t[]){a0, a1, b1});
    fth_roster_free(c.roster);
}

static void nodes_may_have_different_numbers_of_workers(void **state)
{
    course c;
    fth_roster_options options = usual;
    (void)state;
    options.least = options.most = 2;
    begin(&c, &options);
    int64_t a0 = add_of(&c, "a", 2, -1), b0 = add_of(&c, "b", 1, -1);
    join(&c, a0, 0);
    join(&c, b0, 0);
    pass(&c, 30);
    assert_false(is_live(&c)); /* a has one more */
    int64_t a1 = add_of(&c, "a", 2, -1);
    join(&c, a1, 0);
    expect_group(&c, 1, 3, (int64_t[]){a0, a1, b0});
    fth_roster_free(c.roster);

    options.least = 1; /* as a launcher starts four processes: three here, one there */
    options.most = 4;
    begin(&c, &options);
    int64_t ranks[4];
    for (int rank = 0; rank < 4; rank++)
        ranks[rank] = add_of(&c, rank < 3 ? "a" : "b", rank < 3 ? 3 : 1, rank);
    for (int rank = 0; rank < 3; rank++)
        join(&c, ranks[rank], 0);
    assert_false(is_live(&c));
    join(&c, ranks[3], 0);
    expect_group(&c, 1, 4, ranks);
    fth_roster_free(c.roster);
}

static void ranks_keep_their_order_and_nodes_stay_together(void **state)
{
    course c;
    (void)state;
    begin(&c, &usual);
    int64_t a = add(&c, "a"), b = add(&c, "b"), b2 = add(&c, "b"), c1 = add(&c, "c");
    for (int64_t member = a; member <= c1; member++)
        join(&c, member, 0);
    expect_group(&c, 1, 4, (int64_t[]){a, b, b2, c1});
    /* Rank 0 goes; a new process comes on its node, and one on another's. */
    fth_roster_leave(c.roster, c.now_s, a, "preempted");
    silence(&c, a);
    assert_string_equal(reason(&c), "rank 0 on a (process 100) left: preempted");
    int64_t a2 = add(&c, "a"), b3 = add(&c, "b");
    join(&c, a2, 0);
    join(&c, b3, 0);
    join(&c, c1, 1);
    join(&c, b2, 1);
    join(&c, b, 1);
    expect_group(&c, 2, 5, (int64_t[]){b, b2, b3, c1, a2});
    fth_roster_free(c.roster);

    /* Ranks of a launcher: their order, but by node; the launcher starts as many as there can be
     * nodes. */
    begin(&c, &usual);
    int64_t r2 = add_ranked(&c, "a", 2), r1 = add_ranked(&c, "b", 1), r0 = add_ranked(&c, "a", 0);
    join(&c, r2, 0);
    join(&c, r1, 0);
    assert_false(is_live(&c));
    join(&c, r0, 0);
    expect_group(&c, 1, 3, (int64_t[]){r0, r2, r1});
    fth_roster_free(c.roster);
}

static void who_is_not_heard_of_is_lost(void **state)
{
    course c;
    (void)state;
    begin(&c, &usual);
    int64_t a = add(&c, "a"), b = add(&c, "b"), d = add(&c, "d");
    join(&c, a, 0);
    join(&c, b, 0);
    join(&c, d, 0);
    silence(&c, b);
    pass(&c, 3.8);
    assert_true(is_live(&c));
    pass(&c, 0.4);
    assert_false(is_live(&c));
    assert_non_null(strstr(reason(&c), "rank 1 on b (process 101) was lost: no sign of life for 4."));
    assert_false(fth_roster_hear(c.roster, c.now_s, b, 0, NULL)); /* out, also if it wakes up */
    assert_false(fth_roster_join(c.roster, c.now_s, b, 1));
    assert_non_null(strstr(fth_roster_why_gone(c.roster, b), "was lost"));
    join(&c, a, 1);
    assert_false(is_live(&c));
    join(&c, d, 1);
    expect_group(&c, 2, 2, (int64_t[]){a, d});

    /* A connection that closes is a sign, unless it is made again. */
    fth_roster_hang_up(c.roster, c.now_s, d);
    pass(&c, 0.1);
    assert_true(is_live(&c));
    pass(&c, 2);
    assert_true(is_live(&c));
    silence(&c, d);
    fth_roster_hang_up(c.roster, c.now_s, d);
    pass(&c, 1.2);
    assert_false(is_live(&c));
    assert_non_null(strstr(reason(&c), "its connection closed"));
    fth_roster_free(c.roster);
}

static void who_does_not_come_back_is_left_out(void **state)
{
    course c;
    (void)state;
    begin(&c, &usual);
    int64_t a = add(&c, "a"), b = add(&c, "b"), d = add(&c, "d");
    join(&c, a, 0);
    join(&c, b, 0);
    join(&c, d, 0);
    fth_roster_hear(c.roster, c.now_s, b, 7, "computing");
    fth_roster_leave(c.roster, c.now_s, d, "done");
    silence(&c, d);
    join(&c, a, 1);
    pass(&c, 59.8);
    assert_false(is_live(&c)); /* b is heard of, but does not come: its step may take that long */
    pass(&c, 0.4);
    expect_group(&c, 2, 1, (int64_t[]){a});
    assert_non_null(strstr(fth_roster_why_gone(c.roster, b), "did not come back within 60 s (computing step 7)"));
    fth_roster_free(c.roster);
}

static void joiners_are_taken_in_when_there_is_room(void **state)
{
    course c;
    fth_roster_options options = usual;
    bool few = true;
    (void)state;
    options.most = 2;
    begin(&c, &options);
    int64_t a = add(&c, "a");
    join(&c, a, 0);
    pass(&c, 4);
    expect_group(&c, 1, 1, (int64_t[]){a});
    int64_t b = add(&c, "b"), d = add(&c, "d");
    pass(&c, 1);
    assert_false(fth_roster_is_ending(c.roster)); /* they prepare while a trains */
    join(&c, b, 0);
    assert_false(fth_roster_is_ending(c.roster)); /* d may be about to join as well */
    pass(&c, 3.2);
    assert_true(fth_roster_is_ending(c.roster));
    assert_true(is_live(&c));
    join(&c, a, 1);
    expect_group(&c, 2, 2, (int64_t[]){a, b});
    assert_string_equal(reason(&c), "");
    join(&c, d, 0); /* a spare: there is no room for its node */
    pass(&c, 10);
    assert_false(fth_roster_is_ending(c.roster));
    char *missing = fth_roster_missing(c.roster, d, &few);
    assert_false(few);
    assert_non_null(strstr(missing, "waits for a place"));
    free(missing);
    fth_roster_leave(c.roster, c.now_s, b, "preempted");
    silence(&c, b);
    join(&c, a, 2);
    expect_group(&c, 3, 2, (int64_t[]){a, d});
    fth_roster_free(c.roster);
}

static void too_few_nodes_wait(void **state)
{
    course c;
    fth_roster_options options = usual;
    bool few = false;
    (void)state;
    options.least = 2;
    begin(&c, &options);
    int64_t a = add(&c, "a"), b = add(&c, "b");
    join(&c, a, 0);
    join(&c, b, 0);
    pass(&c, 4);
    expect_group(&c, 1, 2, (int64_t[]){a, b});
    fth_roster_lose(c.roster, c.now_s, "b", 0, "the machine is gone");
    silence(&c, b);
    join(&c, a, 1);
    pass(&c, 100);
    assert_false(is_live(&c));
    char *missing = fth_roster_missing(c.roster, a, &few);
    assert_true(few);
    assert_string_equal(missing, "1 node of at least 2: a");
    free(missing);
    int64_t d = add(&c, "d");
    join(&c, d, 0);
    expect_group(&c, 2, 2, (int64_t[]){a, d});
    fth_roster_free(c.roster);
}

static void report(course *c, int64_t member, int64_t step, const char *activity)
{
    assert_true(fth_roster_hear(c->roster, c->now_s, member, step, activity));
}

static void who_holds_up_the_others_is_stuck(void **state)
{
    course c;
    (void)state;
    begin(&c, &usual);
    int64_t a = add(&c, "a"), b = add(&c, "b"), d = add(&c, "d");
    for (int64_t member = a; member <= d; member++)
        join(&c, member, 0);
    report(&c, a, 41, "exchanging");
    report(&c, b, 41, "computing");
    report(&c, d, 41, "exchanging");
    pass(&c, 50);
    report(&c, d, 42, "computing"); /* something moves: nobody is stuck */
    report(&c, d, 42, "exchanging");
    pass(&c, 59);
    assert_true(is_live(&c));
    pass(&c, 2);
    assert_false(is_live(&c)); /* a and b are both behind d */
    assert_false(fth_roster_has(c.roster, a));
    assert_false(fth_roster_has(c.roster, b));
    assert_true(fth_roster_has(c.roster, d));
    fth_roster_free(c.roster);

    begin(&c, &usual);
    a = add(&c, "a");
    b = add(&c, "b");
    d = add(&c, "d");
    for (int64_t member = a; member <= d; member++)
        join(&c, member, 0);
    report(&c, a, 41, "exchanging");
    report(&c, b, 41, "computing");
    report(&c, d, 41, "exchanging");
    pass(&c, 60.5);
    assert_non_null(strstr(reason(&c), "rank 1 on b (process 101) has been computing step 41 for 60 s"));
    join(&c, a, 1);
    join(&c, d, 1);
    expect_group(&c, 2, 2, (int64_t[]){a, d});
    /* Everybody in the same exchange: nobody is to blame, and they connect again. */
    report(&c, a, 42, "exchanging");
    report(&c, d, 42, "exchanging");
    pass(&c, 30.5);
    assert_non_null(strstr(reason(&c), "the exchange of step 42 has stood still"));
    join(&c, a, 2);
    join(&c, d, 2);
    expect_group(&c, 3, 2, (int64_t[]){a, d});
    /* Nobody waits: a long step is no fault. */
    report(&c, a, 43, "computing");
    report(&c, d, 43, "computing");
    pass(&c, 500);
    assert_true(is_live(&c));
    fth_roster_free(c.roster);
}

static void a_rendezvous_that_was_stopped_blames_nobody(void **state)
{
    course c;
    (void)state;
    begin(&c, &usual);
    int64_t a = add(&c, "a");
    add(&c, "b");
    int64_t d = add(&c, "d");
    for (int64_t member = a; member <= d; member++)
        join(&c, member, 0);
    pass(&c, 1);
    c.now_s += 100; /* SIGSTOP, a suspended machine */
    fth_roster_advance(c.roster, c.now_s);
    assert_true(is_live(&c));
    pass(&c, 5);
    assert_true(is_live(&c));
    fth_roster_free(c.roster);
}

/* Everybody hears, and says that it exchanges this step. */
static void exchange_for(course *c, const int64_t *members, int count, int64_t step, double seconds)
{
    for (double passed_s = 0; passed_s < seconds - 1e-9; passed_s += 0.5) {
        for (int i = 0; i < count; i++)
            fth_roster_hear(c->roster, c->now_s, members[i], step, "exchanging");
        pass(c, 0.5);
    }
}

static void members_that_do_not_reach_each_other_are_parted(void **state)
{
    course c;
    (void)state;
    begin(&c, &usual);
    int64_t members[] = {add(&c, "a"), add(&c, "b"), add(&c, "c")};
    for (int i = 0; i < 3; i++)
        join(&c, members[i], 0);
    assert_int_equal(fth_roster_get_group(c.roster).size, 3);
    for (int step = 1; step < 4; step++)
        exchange_for(&c, members, 3, step, 1);
    exchange_for(&c, members, 3, 4, 5.5);
    assert_true(fth_roster_get_group(c.roster).live);
    exchange_for(&c, members, 3, 4, 1);
    assert_false(fth_roster_get_group(c.roster).live);
    assert_non_null(strstr(fth_roster_get_group(c.roster).reason, "stood still"));
    for (int i = 0; i < 3; i++)
        join(&c, members[i], 1); /* to the second group, in which a and c fail to connect, and b waits for a in vain */
    fth_roster_blame(c.roster, members[0], 2, 2);
    join(&c, members[0], 2);
    fth_roster_blame(c.roster, members[1], 2, 0);
    join(&c, members[1], 2);
    assert_false(fth_roster_get_group(c.roster).live);
    fth_roster_blame(c.roster, members[2], 2, 0);
    join(&c, members[2], 2);
    assert_false(fth_roster_has(c.roster, members[2]));
    assert_non_null(strstr(fth_roster_why_gone(c.roster, members[2]), "cannot connect"));
    fth_roster_group group = fth_roster_get_group(c.roster);
    assert_true(group.live && group.generation == 3 && group.size == 2 && group.members[1] == members[1]);
    /* It is let in again after a while, and kept out for longer if that was in vain. */
    int64_t back = add(&c, "c");
    join(&c, back, 0);
    pass(&c, 9);
    assert_false(fth_roster_is_ending(c.roster));
    pass(&c, 2);
    assert_true(fth_roster_is_ending(c.roster));
    join(&c, members[0], 3);
    join(&c, members[1], 3);
    assert_int_equal(fth_roster_get_group(c.roster).size, 3);
    fth_roster_blame(c.roster, members[0], 4, 2);
    fth_roster_blame(c.roster, back, 4, 0);
    join(&c, members[0], 4);
    join(&c, members[1], 4);
    assert_true(fth_roster_join(c.roster, c.now_s, back, 4));
    assert_int_equal(fth_roster_get_group(c.roster).size, 2);
    back = add(&c, "c");
    join(&c, back, 0);
    pass(&c, 18);
    assert_false(fth_roster_is_ending(c.roster));
    pass(&c, 3);
    assert_true(fth_roster_is_ending(c.roster));
    fth_roster_free(c.roster);
}

/* Exchanges that are slow, and one that is ended without a reason to be found, make the roster more
 * patient. */
static void slow_exchanges_do_not_part_anybody(void **state)
{
    course c;
    (void)state;
    begin(&c, &usual);
    int64_t members[] = {add(&c, "a"), add(&c, "b"), add(&c, "c")};
    for (int i = 0; i < 3; i++)
        join(&c, members[i], 0);
    for (int step = 1; step < 4; step++)
        exchange_for(&c, members, 3, step, 3);
    exchange_for(&c, members, 3, 4, 14);
    assert_true(fth_roster_get_group(c.roster).live);
    exchange_for(&c, members, 3, 4, 2);
    assert_false(fth_roster_get_group(c.roster).live);
    for (int i = 0; i < 3; i++)
        join(&c, members[i], 1);
    exchange_for(&c, members, 3, 4, 60);
    fth_roster_group group = fth_roster_get_group(c.roster);
    assert_true(group.live && group.generation == 2 && group.size == 3);
    fth_roster_free(c.roster);
}

static void the_run_is_not_found_before_a_successor_is_heard_of(void **state)
{
    course c;
    fth_roster_options options = usual;
    (void)state;
    options.find_after_s = 1;
    begin(&c, &options);
    int64_t a = add(&c, "a");
    pass(&c, 0.8);
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, a), FTH_RUN_WAIT);
    pass(&c, 0.4);
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, a), FTH_RUN_FIND);
    fth_roster_free(c.roster);
}

static void the_run_is_found_on_the_machine_of_the_rendezvous(void **state)
{
    course c;
    (void)state;
    begin(&c, &usual);
    int64_t far = add(&c, "far");
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, far), FTH_RUN_WAIT);
    pass(&c, 3);
    int64_t near = add(&c, "near");
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, far), FTH_RUN_WAIT);
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, near), FTH_RUN_FIND);
    fth_roster_free(c.roster);

    begin(&c, &usual); /* where no worker is there, somebody else does it */
    far = add(&c, "far");
    pass(&c, 4);
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, far), FTH_RUN_WAIT);
    pass(&c, 2);
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, far), FTH_RUN_FIND);
    fth_roster_free(c.roster);
}

static void the_run_is_found_by_one_at_a_time(void **state)
{
    course c;
    json_t *run = json_string("found"), *again = json_string("found again");
    (void)state;
    begin(&c, &usual);
    int64_t a = add(&c, "a"), b = add(&c, "b");
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, b), FTH_RUN_FIND);
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, a), FTH_RUN_WAIT);
    assert_false(fth_roster_set_run(c.roster, a, run));
    fth_roster_leave(c.roster, c.now_s, b, "died");
    silence(&c, b);
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, a), FTH_RUN_FIND);
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, a), FTH_RUN_FIND);
    int64_t d = add(&c, "d");
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, d), FTH_RUN_WAIT);
    assert_true(fth_roster_set_run(c.roster, a, run));
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, d), FTH_RUN_KNOWN);
    assert_true(fth_roster_get_run(c.roster) == run);
    /* Whoever found it comes first, as it holds the run. */
    join(&c, d, 0);
    join(&c, a, 0);
    pass(&c, 4);
    expect_group(&c, 1, 2, (int64_t[]){a, d});
    /* d still has it when a is gone; when d is gone too, it must be found again. */
    fth_roster_leave(c.roster, c.now_s, a, "done");
    silence(&c, a);
    int64_t e = add(&c, "e"), f = add(&c, "f");
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, e), FTH_RUN_KNOWN);
    fth_roster_leave(c.roster, c.now_s, d, "done");
    fth_roster_leave(c.roster, c.now_s, e, "done");
    silence(&c, d);
    silence(&c, e);
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, f), FTH_RUN_FIND);
    assert_true(fth_roster_set_run(c.roster, f, again));
    /* If it was lost, the next one goes on with the same. */
    assert_int_equal(fth_roster_lose(c.roster, c.now_s, "f", 0, "killed"), 1);
    silence(&c, f);
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, add(&c, "g")), FTH_RUN_KNOWN);
    fth_roster_free(c.roster);
    json_decref(run);
    json_decref(again);

    begin(&c, &usual); /* with a launcher's ranks, rank 0 finds it, if it comes */
    int64_t r2 = add_ranked(&c, "a", 2), r1 = add_ranked(&c, "b", 1);
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, r2), FTH_RUN_WAIT);
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, r1), FTH_RUN_WAIT);
    pass(&c, 9);
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, r1), FTH_RUN_WAIT);
    pass(&c, 2);
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, r2), FTH_RUN_WAIT);
    assert_int_equal(fth_roster_ask_run(c.roster, c.now_s, r1), FTH_RUN_FIND);
    fth_roster_free(c.roster);
}

static void members_of_a_former_rendezvous_keep_their_order(void **state)
{
    course c;
    int64_t ids[3];
    (void)state;
    begin(&c, &usual);
    for (int i = 0; i < 3; i++) {
        char instance[8] = {(char)('x' + i), '\0'};
        const char *nodes[] = {"c", "b", "a"};
        fth_newcomer newcomer = {.instance = instance,
                                 .node = nodes[i],
                                 .host = nodes[i],
                                 .address = "",
                                 .process = 1,
                                 .rank = -1,
                                 .generation = i == 2 ? 6 : 7, /* one had not come along to the newest group */
                                 .former_rank = i == 2 ? 0 : 2 - i};
        assert_int_equal(fth_roster_add(c.roster, c.now_s, &newcomer, &ids[i]), FTH_OK);
        c.heard[c.heard_count++] = ids[i];
    }
    for (int i = 0; i < 3; i++)
        join(&c, ids[i], 7);
    pass(&c, 4);
    expect_group(&c, 8, 3, (int64_t[]){ids[1], ids[0], ids[2]});
    fth_roster_free(c.roster);
}

/* Those that are left of a group elsewhere, whose rendezvous was lost, do not wait for newcomers:
 * they know who is missing. */
static void members_of_a_former_rendezvous_need_not_wait(void **state)
{
    (void)state;
    for (int expected = 2; expected <= 3; expected++) {
        course c;
        int64_t ids[2];
        begin(&c, &usual);
        for (int i = 0; i < 2; i++) {
            const char *nodes[] = {"b", "c"};
            fth_newcomer newcomer = {.instance = nodes[i],
                                     .node = nodes[i],
                                     .host = nodes[i],
                                     .address = "",
                                     .process = 1,
                                     .rank = -1,
                                     .generation = 7,
                                     .former_rank = i,
                                     .expected = expected};
            assert_int_equal(fth_roster_add(c.roster, c.now_s, &newcomer, &ids[i]), FTH_OK);
            c.heard[c.heard_count++] = ids[i];
            join(&c, ids[i], 7);
        }
        assert_int_equal(fth_roster_get_group(c.roster).generation, expected == 2 ? 8 : 0);
        pass(&c, 4);
        expect_group(&c, 8, 2, (int64_t[]){ids[0], ids[1]});
        fth_roster_free(c.roster);
    }
}

/* ---- random courses of events ---- */

enum { PROCESSES = 9, NODES = 5, MOST_MEMBERS = 1 << 14 };

/* A process as the roster sees it, acting as membership.c does. */
typedef struct process {
    bool alive, stopped; /* stopped: alive and silent */
    bool gone_for_good;
    int64_t member; /* 0: not one */
    int64_t generation;
    bool wants_group;
    bool stuck;
    double acts_s; /* when it does the next thing */
    int starts;
} process;

typedef struct simulation {
    fth_roster *roster;
    fth_roster_options options;
    uint64_t random;
    double now_s;
    process processes[PROCESSES];
    int64_t newest;             /* generation */
    char list[PROCESSES * 8];   /* members of that, as text */
    bool removed[MOST_MEMBERS]; /* that the roster has let go */
    int64_t newest_member;
    int64_t former[PROCESSES]; /* the newest group */
    int former_size;
    int groups;
} simulation;

static uint64_t draw(simulation *s, uint64_t below)
{
    s->random = s->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (s->random >> 33) % below;
}

static double draw_s(simulation *s, double most_s)
{
    return most_s * (double)draw(s, 1000) / 1000;
}

static void format_list(const fth_roster_group *group, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < group->size; i++)
        used += (size_t)snprintf(text + used, size - used, "%" PRId64 " ", group->members[i]);
}

static const char *node_of(const fth_roster_group *group, int rank)
{
    return json_string_value(json_object_get(json_array_get(group->list, (size_t)rank), "node"));
}

/* Nodes are neighbours, and as many as there may be. */
static void check_new_group(simulation *s, const fth_roster_group *group)
{
    int nodes = 0;
    assert_true(group->size > 0);
    for (int i = 0; i < group->size; i++) {
        nodes += i == 0 || strcmp(node_of(group, i), node_of(group, i - 1)) != 0;
        for (int k = 0; k + 1 < i; k++)
            if (strcmp(node_of(group, k), node_of(group, i)) == 0)
                assert_string_equal(node_of(group, k + 1), node_of(group, i));
        assert_false(s->removed[group->members[i]]);
    }
    assert_int_equal(nodes, group->nodes);
    assert_in_range(nodes, s->options.least, s->options.most);
    /* Rank 0 stays as long as it is there; everybody who is there of the old group is in the new
     * one. */
    if (s->former_size > 0 && fth_roster_has(s->roster, s->former[0]))
        assert_int_equal(group->members[0], s->former[0]);
    for (int i = 0; i < s->former_size; i++)
        if (fth_roster_has(s->roster, s->former[i]))
            assert_true(fth_roster_rank(s->roster, s->former[i]) >= 0);
    s->former_size = group->size;
    memcpy(s->former, group->members, (size_t)group->size * sizeof s->former[0]);
    s->groups++;
}

static void check(simulation *s)
{
    char list[PROCESSES * 8];
    fth_roster_group group = fth_roster_get_group(s->roster);
    assert_true(group.generation >= s->newest);
    if (group.generation == 0)
        return;
    format_list(&group, list, sizeof list);
    if (group.generation > s->newest) {
        assert_int_equal(group.generation, s->newest + 1);
        check_new_group(s, &group);
        s->newest = group.generation;
        snprintf(s->list, sizeof s->list, "%s", list);
    }
    assert_string_equal(list, s->list);
    for (int i = 0; i < group.size; i++) /* who is lost is not in a live group */
        assert_true(!group.live || fth_roster_has(s->roster, group.members[i]));
}

static void enter(simulation *s, int i)
{
    process *p = &s->processes[i];
    char node[8], instance[32];
    snprintf(node, sizeof node, "n%d", i % NODES);
    snprintf(instance, sizeof instance, "%d-%d", i, p->starts);
    fth_newcomer newcomer = {.instance = instance,
                             .node = node,
                             .host = node,
                             .address = "",
                             .process = 1 + i + p->starts * PROCESSES,
                             .local_rank = i / NODES,
                             .rank = -1,
                             .generation = p->generation,
                             .former_rank = 0};
    assert_int_equal(fth_roster_add(s->roster, s->now_s, &newcomer, &p->member), FTH_OK);
    assert_in_range(p->member, s->newest_member + 1, MOST_MEMBERS - 1); /* never a number that was used */
    s->newest_member = p->member;
}

/* One process for one moment. */
static void act(simulation *s, int i)
{
    process *p = &s->processes[i];
    fth_roster_group group = fth_roster_get_group(s->roster);
    if (!p->alive || p->stopped)
        return;
    if (p->member &&
        !fth_roster_hear(s->roster, s->now_s, p->member, (int64_t)s->now_s, p->stuck ? NULL : "exchanging")) {
        assert_non_null(fth_roster_why_gone(s->roster, p->member));
        p->member = 0;
    }
    if (s->now_s < p->acts_s)
        return;
    if (p->member == 0) {
        enter(s, i);
        p->wants_group = true;
        p->acts_s = s->now_s + draw_s(s, 2);
        return;
    }
    int rank = fth_roster_rank(s->roster, p->member);
    if (rank >= 0 && group.live && group.generation > p->generation) { /* its answer has come */
        p->generation = group.generation;
        p->wants_group = false;
    }
    bool over = !group.live || fth_roster_is_ending(s->roster);
    if (!p->wants_group && over) {
        p->wants_group = true;
        p->acts_s = s->now_s + draw_s(s, 1.5); /* notices, and comes back */
        return;
    }
    if (p->wants_group)
        assert_true(fth_roster_join(s->roster, s->now_s, p->member, p->generation));
}

enum { KINDS = 6 };

/* Something happens to one of them. */
static void disturb(simulation *s, int i, int kind)
{
    process *p = &s->processes[i];
    char node[8];
    snprintf(node, sizeof node, "n%d", i % NODES);
    if (!p->alive) {
        *p = (process){.alive = true, .starts = p->starts + 1, .acts_s = s->now_s + draw_s(s, 3)};
        return;
    }
    switch (kind) {
    case 0: /* dies, and nobody says so */
        p->member = 0;
        p->alive = false;
        break;
    case 1: /* dies, and its agent says so */
        fth_roster_lose(s->roster, s->now_s, node, 1 + i + p->starts * PROCESSES, "signal 9");
        assert_false(p->member && fth_roster_has(s->roster, p->member));
        p->member = 0;
        p->alive = false;
        break;
    case 2: /* dies, and its connection closes */
        fth_roster_hang_up(s->roster, s->now_s, p->member);
        p->member = 0;
        p->alive = false;
        break;
    case 3: p->stopped = !p->stopped; break;
    case 4:
        if (p->member)
            assert_int_equal(fth_roster_leave(s->roster, s->now_s, p->member, "preempted") || p->stopped, true);
        p->member = 0;
        p->alive = false;
        break;
    case 5: /* its machine goes */
        fth_roster_lose(s->roster, s->now_s, node, 0, "the machine is gone");
        for (int k = i % NODES; k < PROCESSES; k += NODES) {
            s->processes[k].member = 0;
            s->processes[k].alive = false;
        }
        break;
    }
}

static void tick(simulation *s)
{
    s->now_s += 0.1;
    int from = (int)draw(s, PROCESSES);
    for (int i = 0; i < PROCESSES; i++) {
        if (!s->processes[(from + i) % PROCESSES].alive)
            continue;
        act(s, (from + i) % PROCESSES);
        check(s);
    }
    fth_roster_advance(s->roster, s->now_s);
    check(s);
    for (int64_t member = 1; member <= s->newest_member; member++)
        s->removed[member] |= !fth_roster_has(s->roster, member);
}

/* When nothing happens any more, all that are alive are soon in one live group, if their nodes are
 * enough. */
static void check_calm(simulation *s, int ticks)
{
    bool here[NODES] = {false};
    int nodes = 0;
    for (int i = 0; i < PROCESSES; i++)
        s->processes[i].stopped = false;
    for (int i = 0; i < ticks; i++)
        tick(s);
    fth_roster_group group = fth_roster_get_group(s->roster);
    for (int i = 0; i < PROCESSES; i++)
        here[i % NODES] |= s->processes[i].alive;
    for (int i = 0; i < NODES; i++)
        nodes += here[i];
    assert_int_equal(group.live, nodes >= s->options.least);
    if (!group.live)
        return;
    assert_int_equal(group.nodes, nodes < s->options.most ? nodes : s->options.most);
    assert_false(fth_roster_is_ending(s->roster));
    for (int i = 0; i < PROCESSES; i++)
        if (s->processes[i].alive && nodes <= s->options.most)
            assert_true(fth_roster_rank(s->roster, s->processes[i].member) >= 0);
}

static void random_courses_keep_what_must_hold(void **state)
{
    simulation *s = malloc(sizeof *s);
    int groups = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        memset(s, 0, sizeof *s);
        s->random = seed * UINT64_C(0x9E3779B97F4A7C15);
        s->now_s = 5;
        s->options = usual;
        s->options.least = 1 + (int)draw(s, 3);
        s->options.most = s->options.least + (int)draw(s, 4);
        s->options.join_wait_s = 0.5 + draw_s(s, 3);
        assert_int_equal(fth_roster_create(&s->options, s->now_s, &s->roster), FTH_OK);
        for (int round = 0; round < 25; round++) {
            uint64_t events = 1 + draw(s, 6);
            for (uint64_t e = 0; e < events; e++) {
                disturb(s, (int)draw(s, PROCESSES), (int)draw(s, KINDS));
                check(s);
                for (uint64_t t = draw(s, 80); t > 0; t--)
                    tick(s);
            }
            check_calm(s, 300);
        }
        groups += s->groups;
        fth_roster_free(s->roster);
    }
    free(s);
    assert_true(groups > 1000); /* the simulation does something */
}

/* Every sequence of DEPTH events that happen to two processes on two nodes, close together or with
 * time between them. */
static void all_short_courses_keep_what_must_hold(void **state)
{
    enum { DEPTH = 3, EVENTS = 2 * KINDS * 2, COURSES = EVENTS * EVENTS * EVENTS };
    simulation *s = malloc(sizeof *s);
    (void)state;
    for (int number = 0; number < COURSES; number++) {
        memset(s, 0, sizeof *s);
        s->random = (uint64_t)number;
        s->now_s = 5;
        s->options = usual;
        s->options.most = 2;
        s->options.least = 1 + number % 2;
        s->options.join_wait_s = 0.5;
        assert_int_equal(fth_roster_create(&s->options, s->now_s, &s->roster), FTH_OK);
        for (int i = 0; i < 2; i++)
            s->processes[i].alive = true;
        for (int t = 0; t < 35; t++)
            tick(s);
        assert_true(fth_roster_get_group(s->roster).live);
        for (int i = 0, rest = number; i < DEPTH; i++, rest /= EVENTS) {
            int event = rest % EVENTS;
            disturb(s, event % 2, event / 2 % KINDS);
            check(s);
            for (int t = event / 2 / KINDS ? 45 : 1; t > 0; t--)
                tick(s);
        }
        check_calm(s, 160);
        fth_roster_free(s->roster);
    }
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_group_waits_for_nodes),
        cmocka_unit_test(a_node_counts_when_its_workers_are_there),
        cmocka_unit_test(nodes_may_have_different_numbers_of_workers),
        cmocka_unit_test(ranks_keep_their_order_and_nodes_stay_together),
        cmocka_unit_test(who_is_not_heard_of_is_lost),
        cmocka_unit_test(who_does_not_come_back_is_left_out),
        cmocka_unit_test(joiners_are_taken_in_when_there_is_room),
        cmocka_unit_test(too_few_nodes_wait),
        cmocka_unit_test(who_holds_up_the_others_is_stuck),
        cmocka_unit_test(a_rendezvous_that_was_stopped_blames_nobody),
        cmocka_unit_test(members_that_do_not_reach_each_other_are_parted),
        cmocka_unit_test(slow_exchanges_do_not_part_anybody),
        cmocka_unit_test(the_run_is_not_found_before_a_successor_is_heard_of),
        cmocka_unit_test(the_run_is_found_on_the_machine_of_the_rendezvous),
        cmocka_unit_test(the_run_is_found_by_one_at_a_time),
        cmocka_unit_test(members_of_a_former_rendezvous_keep_their_order),
        cmocka_unit_test(members_of_a_former_rendezvous_need_not_wait),
        cmocka_unit_test(all_short_courses_keep_what_must_hold),
        cmocka_unit_test(random_courses_keep_what_must_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
