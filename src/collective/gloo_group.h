/* One process's end of a gloo group: connections, bytes to and from each member, and how the group
 * ends. The algorithms over it are in gloo_plugin.cc.
 *
 * Gloo provides connections, an event loop and unbound buffers: for each pair of members, a thread
 * of gloo moves bytes between the connection and memory. Data is sent only once its receiver has
 * said where it goes.
 *
 * How a group ends. The first to find a reason (a connection that closes, a deadline, abort())
 * records it, and wakes the waiting call and the watching thread, which tells the others. So each
 * loss reaches every member within milliseconds, with the name of the member that was lost first,
 * even if only its neighbours were waiting for it. The call closes all connections and returns
 * FTH_PEER_LOST, but only once every other member has a reason too: a member that still sends to a
 * closed connection has it reset, loses what it has not read yet, such as a farewell, and would
 * take the member that closed it for lost.
 *
 *     open --> calls ... --> close: says goodbye, waits until all others have, GOODBYE_WAIT at most
 *                 |
 *                 '- a reason to end --> farewell with the reason
 *                                    --> all others have ended or failed, FAREWELL_WAIT at most
 *                                    --> closed: every further call fails with the reason
 *
 * Two threads watch. One waits for farewells and closed connections, and sends this member's
 * farewell. The other waits for deadlines: gloo's own close every connection before a reason could
 * be sent. */
#pragma once

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gloo/transport/tcp/device.h>

#ifndef __clang__       /* clang's <stdatomic.h> works in C++ */
using std::atomic_bool; /* base/stop.h has it from C's <stdatomic.h> */
#endif

extern "C" {
#include "collective/transport.h"
#include "collective/wire.h"
}

namespace farthing_gloo
{

using std::chrono::milliseconds;
using steady_clock = std::chrono::steady_clock;

/* Ends the call; the group has its reason already. */
struct group_ended : std::exception {
};

/* A write to a connection that has closed raises SIGPIPE in its thread; a program may not ignore
 * that. */
class sigpipe_blocked
{
  public:
    sigpipe_blocked()
    {
        sigset_t pending;
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        sigpending(&pending);
        was_pending_ = sigismember(&pending, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    ~sigpipe_blocked()
    {
        const struct timespec now = {0, 0};
        if (!was_pending_)
            sigtimedwait(&pipe_, nullptr, &now);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }

  private:
    sigset_t pipe_, before_;
    bool was_pending_;
};

/* The last that a member hears from another. */
struct farewell {
    enum kind_of : uint32_t { NONE, DONE, LOST };
    uint32_t kind;
    char reason[508];
};

/* What travels between two members in one call: contributions to a sum, or results. Their segments
 * are counted separately. */
enum lane { CONTRIBUTIONS, RESULTS, LANES };

struct member {
    std::string name;
    /* For data to and from this member, anywhere in memory: gloo adds an offset to the address that
     * it was made with, which is 0. */
    std::unique_ptr<gloo::transport::UnboundBuffer> lanes[LANES];
    /* For an empty message to and from this member: its sender has a reason to end. */
    std::unique_ptr<gloo::transport::UnboundBuffer> ended;
};

class group
{
  public:
    explicit group(const fth_collective_options &options);
    ~group()
    {
        shut_down();
    }
    fth_status connect(const fth_collective_options &options);
    void close();
    void end(const std::string &reason);

    void all_reduce(float *values, size_t count, fth_wire wire);
    void sum(double *values, size_t count);
    void exchange(float *values, const size_t *begins, fth_wire wire, bool reduces);
    void broadcast(char *bytes, size_t size, int root);

    /* Makes a call of the table. It fails if the group has ended or ends meanwhile. */
    template <typename function> fth_status call(uint32_t kind, size_t size, function make);

    int size() const
    {
        return size_;
    }

  private:
    uint64_t slot(lane which) const
    {
        return slot_ + which;
    }
    void check_ended();
    fth_status fail_with_reason();
    void send(int to, lane which, const void *bytes, size_t size);
    void receive(int from, lane which, void *bytes, size_t size);
    void wait_received(int from, lane which);
    void wait_sent(int to, lane which, size_t times);
    template <typename function> void wait_for(int whom, function wait);
    template <typename function> void wait_patiently(int whom, function wait);
    void gather_small(char *blocks, size_t block_size);
    void reduce_small(float *values, size_t count, fth_wire wire);
    void broadcast_small(char *bytes, size_t size, int root);

    int next(int distance) const
    {
        return (rank_ + distance) % size_;
    }
    int distance(int rank) const
    {
        return (rank - rank_ + size_) % size_;
    }
    char *scratch(size_t size);
    fth_status exchange_addresses(const fth_key_store &keys, fth_deadline deadline, std::vector<char> &addresses);
    void start_watching();
    void watch();
    void watch_deadlines();
    std::string why_lost(int rank, const std::exception &error) const;
    std::string find_lost();
    int say_farewell(farewell::kind_of kind, const std::string &reason);
    void wait_until_all_have_ended();
    void shut_down();

    const int rank_, size_;
    const milliseconds timeout_; /* of calls */
    std::vector<member> members_;
    std::shared_ptr<gloo::transport::Device> device_;
    std::shared_ptr<gloo::transport::Context> context_; /* null once shut down */
    uint64_t calls_ = 0, slot_ = 0;
    std::unique_ptr<char[]> scratch_;
    size_t scratch_size_ = 0;

    /* Of the others: written by gloo's thread before it completes the receive that `watcher_` waits
     * for. This member's own, which `own_farewell_` sends: written once, by the thread that says
     * it. */
    std::vector<farewell> farewells_;
    std::unique_ptr<gloo::transport::UnboundBuffer> watcher_, own_farewell_;
    std::thread watching_, watching_deadlines_;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::string reason_;                     /* why the group has ended; "": it has not. guarded by mutex_ */
    bool stopping_ = false;                  /* the threads that watch: guarded by mutex_ */
    bool said_goodbye_ = false;              /* the only farewell, even if there is a reason later: guarded by mutex_ */
    int goodbyes_ = 0;                       /* members that are done; guarded by mutex_ */
    milliseconds patience_;                  /* with a member that a call waits for: guarded by mutex_ */
    int waiting_for_ = -1;                   /* the member that a call waits for; guarded by mutex_ */
    steady_clock::time_point waiting_until_; /* guarded by mutex_ */
};

template <typename function> fth_status group::call(uint32_t kind, size_t size, function make)
{
    if (!context_)
        return fail_with_reason();
    sigpipe_blocked blocked;
    /* Members that make different calls do not match each other's data, and time out. */
    uint64_t call = ++calls_ & 0xffffff, what = (size * 8 + kind) * 0x9e3779b97f4a7c15 >> 28;
    slot_ = (what << 26 | call << 2) & INT64_MAX;
    try {
        check_ended();
        make();
        return FTH_OK;
    } catch (const group_ended &) {
    } catch (const std::exception &error) {
        end(error.what());
    }
    shut_down();
    return fail_with_reason();
}

} // namespace farthing_gloo
