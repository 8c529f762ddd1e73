/* The watchdog: a process whose training thread does not end in time is ended, and no other. */
#include "support.h"

#include <pthread.h>
#include <unistd.h>

#include "train/loop/deadline_watchdog.h"

static fth_stop stop;
static fth_reporter *reporter;
static fth_deadline_watchdog *watchdog;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int abandoned; /* how often */
static char why[256];

static void abandon(void *context, const char *message)
{
    (void)context;
    pthread_mutex_lock(&mutex);
    abandoned++;
    snprintf(why, sizeof why, "%s", message);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static const fth_train_observer observer = {.abandon = abandon};

static int set_up(void **state)
{
    (void)state;
    stop = (fth_stop)FTH_STOP_INITIALIZER;
    abandoned = 0;
    assert_int_equal(fth_reporter_create(&observer, &reporter), FTH_OK);
    assert_int_equal(fth_deadline_watchdog_create(&stop, &observer, reporter, &watchdog), FTH_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fth_deadline_watchdog_free(watchdog);
    fth_reporter_free(reporter);
    return 0;
}

/* Waits for the process to be ended. */
static void wait_for_end(void)
{
    struct timespec until = fth_deadline_timespec(test_deadline_in(60));
    pthread_mutex_lock(&mutex);
    while (abandoned == 0 && pthread_cond_clockwait(&changed, &mutex, CLOCK_MONOTONIC, &until) == 0)
        continue;
    assert_int_equal(abandoned, 1);
    pthread_mutex_unlock(&mutex);
}

/* Ends the watchdog, which finishes what it has begun. */
static void end_watchdog(void)
{
    fth_deadline_watchdog_free(watchdog);
    watchdog = NULL;
}

static void an_update_that_does_not_end_is_abandoned_before_the_deadline(void **state)
{
    (void)state;
    fth_deadline_watchdog_begin_training(watchdog, 0);
    fth_deadline_watchdog_enter(watchdog, FTH_PHASE_STEP);
    fth_stop_ask(&stop, FTH_STOP_PREEMPTION, 0.5, "file", "a notice");
    wait_for_end();
    assert_string_equal(why, "time is up");
    end_watchdog();
    assert_int_equal(abandoned, 1); /* once, although this observer returns */
}

static void a_save_that_does_not_end_is_abandoned_at_the_deadline(void **state)
{
    (void)state;
    fth_deadline_watchdog_begin_training(watchdog, 0);
    fth_deadline_watchdog_enter(watchdog, FTH_PHASE_ENDING);
    fth_stop_ask(&stop, FTH_STOP_PREEMPTION, 0.2, "file", "a notice");
    double deadline_s = fth_stop_get(&stop).deadline.at_seconds;
    wait_for_end();
    assert_true(fth_clock_seconds() >= deadline_s);
}

/* The watchdog looks, finds that a start takes too long, and before it acts training begins: what
 * it decided no longer holds. The lock of the request stands in its way meanwhile. */
static void what_was_decided_about_an_earlier_phase_is_dropped(void **state)
{
    (void)state;
    const useconds_t some_looks_us = 100000; /* for the watchdog to get there; where it does not, nothing is tested */
    double now = fth_clock_seconds();

    pthread_mutex_lock(&stop.mutex);
    stop.reason = (fth_stop_reason){
        .kind = FTH_STOP_PREEMPTION, .asked_at_s = now - 5, .deadline = {now + 600}, .source = "file"};
    stop.asked = true;
    usleep(some_looks_us);
    fth_deadline_watchdog_begin_training(watchdog, 0);
    fth_deadline_watchdog_enter(watchdog, FTH_PHASE_ENDING);
    pthread_mutex_unlock(&stop.mutex);
    end_watchdog();
    assert_int_equal(abandoned, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_update_that_does_not_end_is_abandoned_before_the_deadline, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_save_that_does_not_end_is_abandoned_at_the_deadline, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_decided_about_an_earlier_phase_is_dropped, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
