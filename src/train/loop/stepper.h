/* Updates: takes batches from the loader, hands them to the strategy, and adds what comes back to
 * the position and the reporter.
 *
 *     create -> meet (peers share a run) -> connect -> open (weights are there) -> agree, update ... settle ... -> free
 *                                                                                        | ^
 *                                                                         a peer is lost '-' take_back, rejoin
 *
 * A strategy with workers may have batches that are not part of the weights yet; settle() waits for
 * them. Belongs to the training thread. */
#ifndef FTH_TRAIN_STEPPER_H
#define FTH_TRAIN_STEPPER_H

#include "train/loop/reporter.h"
#include "train/setup/setup.h"

typedef struct fth_stepper fth_stepper;

/* What is passed outlives the stepper, as all below; `stop` may be NULL. */
fth_status fth_stepper_create(fth_position *position, fth_reporter *reporter, fth_stop *stop, fth_stepper **stepper);
void fth_stepper_free(fth_stepper *stepper);

/* Reaches peers, where the strategy has them meet before the run is looked for. *run is what one of
 * them found, or NULL: then this process looks for it, and shares what it found, or why it found
 * none. */
fth_status fth_stepper_meet(fth_stepper *stepper, const fth_strategy *strategy, const fth_train_options *options,
                            json_t **run);
bool fth_stepper_has_met(const fth_stepper *stepper);
/* How many processors are for this process; 0: all. */
int fth_stepper_count_processors(const fth_stepper *stepper);
/* After a meeting: this process's machine, by the name that peers have for it; "": its own. */
const char *fth_stepper_get_node(const fth_stepper *stepper);
fth_status fth_stepper_share_run(fth_stepper *stepper, const json_t *run);
/* Connects to the processes that the strategy needs, which is the setup's. */
fth_status fth_stepper_connect(fth_stepper *stepper, fth_setup *setup);

/* Takes over the weights and the position of the peer that is furthest, where there are peers;
 * opens the loader at the position, and the strategy with the engine's weights. FTH_PEER_LOST where
 * the group ended before: form_again(), which may change this process's place, and call it
 * again. */
fth_status fth_stepper_open(fth_stepper *stepper);
fth_status fth_stepper_form_again(fth_stepper *stepper);
/* The strategy's state, lent, for what it says about itself. */
const void *fth_stepper_get_state(const fth_stepper *stepper);
/* Whether a peer saves the run, and this process does not. */
bool fth_stepper_follows(const fth_stepper *stepper);
/* What share of the machines is here (fth_peer_place.present). */
double fth_stepper_get_present(const fth_stepper *stepper);

/* Before an update: makes `intent` what all peers do. */
fth_status fth_stepper_agree(fth_stepper *stepper, fth_intent *intent);
/* Runs the batches of one update. */
fth_status fth_stepper_update(fth_stepper *stepper);
/* Waits until every batch that was handed out is part of the weights and of the sums. Call it
 * before anything looks at the weights as a whole. */
fth_status fth_stepper_settle(fth_stepper *stepper);
/* False where settle() failed, or peers are lost, and this process has not all that a checkpoint
 * holds. */
bool fth_stepper_can_save(const fth_stepper *stepper);
/* After any of these three failed with `status`: true if it was for a lost peer, and the strategy
 * can do without it: the update that failed counts as not made, and rejoin comes next. */
bool fth_stepper_take_back(fth_stepper *stepper, fth_status status);
/* Forms a group of those that are left and of those that wait to join. The position may have moved
 * to that of a peer. FTH_TIMEOUT while there are too few (whether this process follows is by then
 * about those), FTH_PEER_LOST if another is lost meanwhile: call it again. */
fth_status fth_stepper_rejoin(fth_stepper *stepper);
/* At the end of the run, between all peers. The one that keeps the run says that it saves what
 * comes with the end; meanwhile a thread tells the others, who wait for it, that it is there, so
 * the stepper is used for nothing else. */
fth_status fth_stepper_begin_ending(fth_stepper *stepper);
/* Returns when nobody saves any more. FTH_PEER_LOST if one of them is lost before. */
fth_status fth_stepper_end_together(fth_stepper *stepper);
/* This process gives up saving. */
void fth_stepper_break_ending(fth_stepper *stepper);

/* How the peers of the group sum what each has a part of; all zero where there are none, or their
 * strategy cannot. */
fth_peers fth_stepper_get_peers(const fth_stepper *stepper);
/* Whether there are others in the group. */
bool fth_stepper_has_peers(const fth_stepper *stepper);
/* True after the last batch of an epoch, until the position begins the next one. */
bool fth_stepper_is_at_epoch_end(const fth_stepper *stepper);
/* Who ended the training, where the strategy says that it is over (strategy.h, ended_by); else
 * NULL. */
const char *fth_stepper_ended_by(const fth_stepper *stepper);

#endif
