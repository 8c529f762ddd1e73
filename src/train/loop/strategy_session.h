/* Updates: takes batches from the loader, hands them to the strategy, and adds what comes back to
 * the position and the reporter.
 *
 *     create -> meet (peers share a run) -> connect -> open (weights are there)
 *            -> agree, update, agree, update ... settle ... -> free
 *                 ^       |
 *                 |       v a peer is lost (recovery.h)
 *                 '-- take_back, form, synchronize
 *
 * A strategy with workers may have batches that are not part of the weights yet; settle() waits for
 * them. Belongs to the training thread. */
#ifndef FTH_TRAIN_STRATEGY_SESSION_H
#define FTH_TRAIN_STRATEGY_SESSION_H

#include "train/loop/reporter.h"
#include "train/setup/setup.h"

typedef struct fth_strategy_session fth_strategy_session;

/* What is passed outlives the strategy session, as all below; `stop` may be NULL. */
fth_status fth_strategy_session_create(fth_position *position, fth_reporter *reporter, fth_stop *stop,
                                       fth_strategy_session **session);
void fth_strategy_session_free(fth_strategy_session *session);

/* Reaches peers, where the strategy has them meet before the run is looked for. *run is what one of
 * them found, or NULL: then this process looks for it, and shares what it found, or why it found
 * none. */
fth_status fth_strategy_session_meet(fth_strategy_session *session, const fth_strategy *strategy,
                                     const fth_train_options *options, json_t **run);
bool fth_strategy_session_has_met(const fth_strategy_session *session);
/* How many processors are for this process; 0: all. */
int fth_strategy_session_count_processors(const fth_strategy_session *session);
/* After a meeting: this process's machine, by the name that peers have for it; "": its own. */
const char *fth_strategy_session_get_node(const fth_strategy_session *session);
fth_status fth_strategy_session_share_run(fth_strategy_session *session, const json_t *run);
/* Connects to the processes that the strategy needs, which is the setup's. */
fth_status fth_strategy_session_connect(fth_strategy_session *session, fth_setup *setup);

/* Takes over the weights and the position of the peer that is furthest, where there are peers;
 * opens the loader at the position, and the strategy with the engine's weights. FTH_PEER_LOST if
 * the group ended first: form another, and call it again. */
fth_status fth_strategy_session_open(fth_strategy_session *session);
/* Describes the strategy for the start event. */
fth_start_facts fth_strategy_session_describe_start(const fth_strategy_session *session, bool resumed);
/* Whether a peer saves the run, and this process does not. */
bool fth_strategy_session_follows(const fth_strategy_session *session);
/* What share of the machines is here (fth_peer_place.present). */
double fth_strategy_session_get_present(const fth_strategy_session *session);

/* Before an update: makes `intent` what all peers do. */
fth_status fth_strategy_session_agree(fth_strategy_session *session, fth_intent *intent);
/* Runs the batches of one update. */
fth_status fth_strategy_session_update(fth_strategy_session *session);
/* Waits until every batch that was handed out is part of the weights and of the sums. Call it
 * before anything looks at the weights as a whole. */
fth_status fth_strategy_session_settle(fth_strategy_session *session);
/* False where settle() failed, or peers are lost, and this process has not all that a checkpoint
 * holds. */
bool fth_strategy_session_can_save(const fth_strategy_session *session);
/* After any of these failed with `status`: true if a peer was lost, and the strategy can do without
 * it. The update that failed counts as not made, and form() comes next. */
bool fth_strategy_session_take_back(fth_strategy_session *session, fth_status status);
/* Forms a group of those that are left and those that wait to join, which may change this process's
 * place. FTH_TIMEOUT while there are too few: whether this process follows is then about these. */
fth_status fth_strategy_session_form(fth_strategy_session *session);
/* After that, once it was open: takes over the weights and the position of the peer that is
 * furthest. */
fth_status fth_strategy_session_synchronize(fth_strategy_session *session);
/* At the end of the run, between all peers. The one that keeps the run says that it saves what
 * comes with the end; meanwhile a thread tells the others, who wait for it, that it is there, so
 * the strategy session is used for nothing else. */
fth_status fth_strategy_session_begin_ending(fth_strategy_session *session);
/* Returns when nobody saves any more. FTH_PEER_LOST if one of them is lost before. */
fth_status fth_strategy_session_end_together(fth_strategy_session *session);
/* This process gives up saving. */
void fth_strategy_session_break_ending(fth_strategy_session *session);

/* How the peers of the group sum what each has a part of; all zero where there are none, or their
 * strategy cannot. */
fth_peers fth_strategy_session_get_peers(const fth_strategy_session *session);
/* Whether there are others in the group. */
bool fth_strategy_session_has_peers(const fth_strategy_session *session);
/* True after the last batch of an epoch, until the position begins the next one. */
bool fth_strategy_session_is_at_epoch_end(const fth_strategy_session *session);
/* Who ended the training, where the strategy says that it is over (strategy.h, ended_by); else
 * NULL. */
const char *fth_strategy_session_ended_by(const fth_strategy_session *session);

#endif
