/* Sleeping on a word of memory that processes share. Sleeps may end early: check the word again
 * after each. */
#ifndef FTH_BASE_FUTEX_H
#define FTH_BASE_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleeps for at most `seconds`, unless the word no longer has `value`. */
static inline void fth_futex_sleep(_Atomic uint32_t *word, uint32_t value, double seconds)
{
    double most = seconds < 3600 ? seconds : 3600;
    struct timespec timeout = {.tv_sec = (time_t)most, .tv_nsec = (long)((most - (double)(time_t)most) * 1e9)};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0);
}

/* Ends the sleep of up to `count` threads. */
static inline void fth_futex_wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
}

#endif
