/* See host_patience.h. */
#include "batches/client/host_patience.h"

#define SILENCE_S       2.0
#define PATIENCE_S      4.0
#define IMPATIENCE_S    0.05
#define IMPATIENT_FOR_S 10.0
#define LOOK_EVERY_S    1.0

double fth_host_patience_wait(fth_host_patience *patience, double now_s, double *left_s)
{
    if (patience->waiting_since_s == 0)
        patience->waiting_since_s = now_s;
    const double waiting_s = now_s - patience->waiting_since_s;
    *left_s = (now_s < patience->impatient_until_s ? IMPATIENCE_S : PATIENCE_S) - waiting_s;
    if (*left_s <= 0)
        fth_host_patience_end(patience, now_s);
    return waiting_s;
}

bool fth_host_patience_must_ask(fth_host_patience *patience, double waiting_s, double now_s)
{
    bool due = waiting_s > SILENCE_S && now_s - patience->asked_at_s > SILENCE_S;
    if (due)
        patience->asked_at_s = now_s;
    return due;
}

bool fth_host_patience_note_item(fth_host_patience *patience, bool waited, double now_s)
{
    patience->waiting_since_s = 0;
    if (waited)
        patience->impatient_until_s = 0;
    bool due = now_s > patience->looked_at_s + LOOK_EVERY_S;
    if (due)
        patience->looked_at_s = now_s;
    return due;
}

void fth_host_patience_stop_waiting(fth_host_patience *patience)
{
    patience->waiting_since_s = 0;
}

void fth_host_patience_end(fth_host_patience *patience, double now_s)
{
    patience->waiting_since_s = 0;
    patience->impatient_until_s = now_s + IMPATIENT_FOR_S;
}
