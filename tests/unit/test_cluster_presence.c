/* The share of a run's nodes that a member reaches, while groups come and go. */
#include "support.h"

#include <math.h>
#include <string.h>

#include "cluster/presence.h"

static json_t *list(const char *names)
{
    json_t *nodes = json_array();
    for (; *names; names++)
        json_array_append_new(nodes, json_stringn(names, 1));
    return nodes;
}

/* A letter is a node. */
static double take(fth_presence *presence, const char *names)
{
    json_t *nodes = list(names);
    double share = fth_presence_take_group(presence, nodes);
    json_decref(nodes);
    return share;
}

static double share(const fth_presence *presence, const char *names)
{
    json_t *nodes = list(names);
    double result = fth_presence_share(presence, nodes);
    json_decref(nodes);
    return result;
}

static void the_first_group_is_all_there_is(void **state)
{
    fth_presence presence = {0};
    (void)state;
    assert_true(share(&presence, "") == 1);
    assert_true(take(&presence, "abc") == 1);
    assert_true(share(&presence, "abc") == 1);
    assert_true(share(&presence, "") == 0);
    fth_presence_release(&presence);
}

/* Several workers on a node are one node; nodes that are new do not count. */
static void nodes_are_counted_once(void **state)
{
    fth_presence presence = {0};
    (void)state;
    take(&presence, "aabbbc");
    assert_true(fabs(share(&presence, "aa") - 1.0 / 3) < 1e-9);
    assert_true(fabs(share(&presence, "axyz") - 1.0 / 3) < 1e-9);
    fth_presence_release(&presence);
}

/* Machines that are lost one after the other: the rest still speaks for the run. */
static void most_of_them_become_the_measure(void **state)
{
    fth_presence presence = {0};
    (void)state;
    take(&presence, "abcde");
    assert_true(take(&presence, "abc") > 0.5);
    assert_true(take(&presence, "bc") > 0.5);
    assert_true(share(&presence, "b") == 0.5);
    assert_true(take(&presence, "bcd") == 1);
    assert_true(take(&presence, "cd") > 0.5);
    fth_presence_release(&presence);
}

/* One of three, which cannot know whether the others train on, does not come to speak for the run
 * by forming groups with itself, or with new nodes. */
static void a_part_that_is_cut_off_stays_one(void **state)
{
    fth_presence presence = {0};
    (void)state;
    take(&presence, "abc");
    assert_true(take(&presence, "c") < 0.5);
    assert_true(take(&presence, "c") < 0.5);
    assert_true(take(&presence, "cde") < 0.5);
    assert_true(take(&presence, "cdb") > 0.5);
    fth_presence_release(&presence);
}

/* Of a group that splits, at most one part has more than half, whatever its size. */
static void two_parts_never_both_have_most(void **state)
{
    const char *all = "abcdef";
    (void)state;
    for (size_t size = 1; size <= strlen(all); size++)
        for (unsigned part = 0; part < 1u << size; part++) {
            fth_presence presence = {0};
            char here[8] = "", there[8] = "", whole[8] = "";
            memcpy(whole, all, size);
            for (size_t i = 0; i < size; i++)
                strncat(part >> i & 1 ? here : there, &all[i], 1);
            take(&presence, whole);
            assert_false(share(&presence, here) > 0.5 && share(&presence, there) > 0.5);
            fth_presence_release(&presence);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_group_is_all_there_is), cmocka_unit_test(nodes_are_counted_once),
        cmocka_unit_test(most_of_them_become_the_measure), cmocka_unit_test(a_part_that_is_cut_off_stays_one),
        cmocka_unit_test(two_parts_never_both_have_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
