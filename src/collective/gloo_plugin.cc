/* The transport "gloo", in the plugin farthing_gloo.so: the only C++ of the program, behind the table of transport.h.
 *
 * Of gloo it uses connections, its event loop and unbound buffers: each pair of members has a connection, a thread of gloo's
 * moves bytes between these and memory, and data is sent only once its receiver has said where it goes. The algorithms are
 * here, since gloo's have neither f16 on the wire nor a way to end a call that blocks.
 *
 * Large sums: every number belongs to one member, in ranges as equal as can be. Each member sends each other one that
 * one's range, in segments; the owner adds all contributions in the order of ranks and sends the sum to all. This moves
 * as many bytes as a ring, takes two steps instead of 2 (N - 1), and gives sums whose order, and rounding on the wire,
 * does not depend on how they travel. Segments are summed and sent on while the next ones come.
 * Small ones: all contributions go to all members in log2 N steps (Bruck's all-gather), and each sums them itself, in
 * the same order. A broadcast is a tree if small; else the root sends each member a range, and each passes its own on.
 *
 * How a group ends. Whoever finds a reason first (a connection that closes, a deadline, abort()) records it, wakes the
 * call that waits, if there is one, and the watching thread, which tells the others. So each loss reaches every member
 * within milliseconds, with the name of the member that was lost first, though only its neighbours may have waited for
 * it. The call closes all connections and returns FTH_PEER_LOST, but only once every other member has a reason too:
 * one that still sends to a closed connection has it reset, loses what it has not read yet, such as a farewell, and would
 * take the member that closed it for lost.
 *
 *     open ──> calls ... ──> close: says goodbye, waits until all others have (at most GOODBYE_WAIT)
 *                └─ reason ──> farewell with the reason ──> all others have ended or failed (at most FAREWELL_WAIT)
 *                                                       ──> closed; every further call fails with the reason
 *
 * Two threads watch: one waits for farewells and closed connections, and says this member's; one for deadlines (gloo's own
 * deadlines close every connection before a reason could be sent). */
#include <netdb.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gloo/transport/tcp/device.h>

#ifndef __clang__       /* whose <stdatomic.h> is for C++ too */
using std::atomic_bool; /* which C has in <stdatomic.h>: base/stop.h */
#endif

extern "C" {
#include "collective/transport.h"
#include "collective/wire.h"
}

namespace
{

using std::chrono::milliseconds;
using steady_clock = std::chrono::steady_clock;

constexpr milliseconds FOREVER = std::chrono::hours(24 * 365);
constexpr milliseconds GOODBYE_WAIT(1000), FAREWELL_WAIT(1000), LONGEST_CONNECT(5000);
constexpr double USUAL_TIMEOUT_S = 30;
constexpr size_t LARGEST_SEGMENT = 512 << 10, SMALLEST_SEGMENT = 8 << 10, MOST_SCRATCH = 16 << 20; /* bytes */
constexpr size_t SEGMENTS_AHEAD = 4;         /* receives that a member is ready for, from each other */
constexpr size_t LARGEST_GATHER = 256 << 10; /* bytes of all contributions of a sum that is small */
constexpr size_t LARGEST_TREE = 64 << 10;    /* bytes of a broadcast that is small */

/* Ends the call; the group has its reason already. */
struct group_ended : std::exception {
};

/* A write to a connection that has closed raises SIGPIPE in its thread; a program may not ignore that. */
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

/* Threads that are started meanwhile get no signals. */
class signals_blocked
{
  public:
    signals_blocked()
    {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before_);
    }
    ~signals_blocked()
    {
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }

  private:
    sigset_t before_;
};

/* The last that a member hears from another. */
struct farewell {
    enum kind_of : uint32_t { NONE, DONE, LOST };
    uint32_t kind;
    char reason[508];
};

/* What travels between two members in one call: contributions to a sum, or results. Their segments are counted apart. */
enum lane { CONTRIBUTIONS, RESULTS, LANES };

struct member {
    std::string name;
    /* For data to and from this member, anywhere in memory: gloo adds an offset to the address it was made with, which is 0. */
    std::unique_ptr<gloo::transport::UnboundBuffer> lanes[LANES];
    /* For an empty message, to and from this member, that whoever sends it has a reason to end. */
    std::unique_ptr<gloo::transport::UnboundBuffer> ended;
};

/* Without the place in gloo's source that its messages begin with. */
std::string message_of(const std::exception &error)
{
    std::string text = error.what();
    size_t end = text.find("] ");
    return !text.empty() && text[0] == '[' && end != std::string::npos ? text.substr(end + 2) : text;
}

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
    void exchange(float *values, const size_t *begins, fth_wire wire, bool reduces, bool gathers);
    void broadcast(char *bytes, size_t size, int root);

    /* Makes a call of the table: it fails if the group has ended, or ends meanwhile. */
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

    /* Of the others: written by gloo's thread before it completes the receive that `watcher_` waits for. This member's
     * own, which `own_farewell_` sends: written once, by the thread that says it. */
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

constexpr uint64_t FAREWELL_SLOT = UINT64_MAX, ENDED_SLOT = UINT64_MAX - 1, PROBE_SLOT = UINT64_MAX - 2;

group::group(const fth_collective_options &options)
    : rank_(options.rank), size_(options.size),
      timeout_(static_cast<long>(1e3 * (options.timeout_s > 0 ? options.timeout_s : USUAL_TIMEOUT_S))),
      members_(options.size), farewells_(options.size), patience_(std::min(timeout_, LONGEST_CONNECT))
{
    for (int i = 0; i < size_; i++)
        members_[i].name =
            options.members && options.members[i].name ? options.members[i].name : "rank " + std::to_string(i);
}

/* ---- opening ---- */

/* The number of an address: gloo takes names too, but does not survive those that are unknown. */
fth_status resolve(const char *address, std::string &number)
{
    struct addrinfo hints = {}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    int code = getaddrinfo(address, nullptr, &hints, &found);
    if (code != 0)
        return fth_fail(FTH_INVALID, "the address of this machine, %s, is not known: %s", address, gai_strerror(code));
    char text[NI_MAXHOST];
    code = getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
    freeaddrinfo(found);
    if (code != 0)
        return fth_fail(FTH_INVALID, "the address of this machine, %s, is not known: %s", address, gai_strerror(code));
    number = text;
    return FTH_OK;
}

fth_status get_key(const fth_key_store &keys, const std::string &key, fth_deadline deadline, size_t expected,
                   std::vector<char> &value)
{
    void *bytes = nullptr;
    size_t size = 0;
    fth_status status = keys.get(keys.context, key.c_str(), deadline, &bytes, &size);
    if (status != FTH_OK)
        return status;
    value.assign(static_cast<char *>(bytes), static_cast<char *>(bytes) + size);
    free(bytes);
    if (size != expected)
        return fth_fail(FTH_PEER_LOST, "%zu bytes of addresses instead of %zu; are all members the same farthing?",
                        size, expected);
    return FTH_OK;
}

/* `addresses` holds what each of the others connects to, one after the other; afterwards, what this one connects to. The first
 * member collects them and hands them out, so that a group takes few requests. */
fth_status group::exchange_addresses(const fth_key_store &keys, fth_deadline deadline, std::vector<char> &addresses)
{
    const size_t all = addresses.size(), one = all / size_;
    const std::string own = std::to_string(rank_);
    fth_status status;
    if (rank_ > 0) {
        status = keys.put(keys.context, ("gloo/from/" + own).c_str(), addresses.data(), all);
        if (status == FTH_OK)
            status = get_key(keys, "gloo/to/" + own, deadline, all, addresses);
        return status == FTH_OK ? status : fth_fail_within(status, "waiting for %s", members_[0].name.c_str());
    }
    std::vector<std::vector<char>> from(size_);
    from[0] = addresses;
    for (int i = 1; i < size_; i++) {
        status = get_key(keys, "gloo/from/" + std::to_string(i), deadline, all, from[i]);
        if (status != FTH_OK)
            return fth_fail_within(status, "waiting for %s", members_[i].name.c_str());
    }
    for (int i = size_ - 1; i >= 0; i--) {
        for (int k = 0; k < size_; k++)
            std::copy_n(&from[k][i * one], one, &addresses[k * one]);
        if (i == 0)
            break;
        status = keys.put(keys.context, ("gloo/to/" + std::to_string(i)).c_str(), addresses.data(), all);
        if (status != FTH_OK)
            return status;
    }
    return FTH_OK;
}

/* Members connect to each other in the order of ranks, so that nobody waits for one that waits for it. */
fth_status group::connect(const fth_collective_options &options)
{
    std::string number;
    fth_status status = resolve(options.address ? options.address : "127.0.0.1", number);
    if (status != FTH_OK)
        return status;
    int whom = -1;
    try {
        {
            signals_blocked blocked;
            device_ = gloo::transport::tcp::CreateDevice(number.c_str());
        }
        context_ = device_->createContext(rank_, size_);
        context_->setTimeout(patience_ / 5); /* gloo waits five times as long to connect */
        std::vector<char> addresses;
        for (int i = 0; i < size_; i++) {
            if (i == rank_)
                continue;
            std::vector<char> address = context_->createPair(i)->address().bytes();
            addresses.resize(size_ * address.size());
            std::copy(address.begin(), address.end(), &addresses[i * address.size()]);
        }
        status = exchange_addresses(options.keys, fth_deadline_in(1e-3 * timeout_.count()), addresses);
        if (status != FTH_OK)
            return status;
        const size_t one = addresses.size() / size_;
        for (int i = 0; i < size_; i++) {
            if (i == rank_)
                continue;
            whom = i;
            context_->getPair(i)->connect({&addresses[i * one], &addresses[i * one] + one});
            for (auto &lane : members_[i].lanes)
                lane = context_->createUnboundBuffer(nullptr, SIZE_MAX);
        }
        start_watching();
    } catch (const std::exception &error) {
        if (whom >= 0 && options.unreached)
            *options.unreached = whom;
        return whom < 0 ? fth_fail(FTH_IO, "cannot listen on %s: %s", number.c_str(), message_of(error).c_str())
                        : fth_fail(FTH_PEER_LOST, "cannot connect to %s: %s", members_[whom].name.c_str(),
                                   message_of(error).c_str());
    }
    double nothing = 0; /* returns once all have connected */
    status = call(0, 0, [&] { sum(&nothing, 1); });
    std::lock_guard<std::mutex> lock(mutex_);
    patience_ = timeout_;
    return status;
}

/* ---- how a group ends ---- */

void group::start_watching()
{
    watcher_ = context_->createUnboundBuffer(farewells_.data(), farewells_.size() * sizeof(farewell));
    own_farewell_ = context_->createUnboundBuffer(&farewells_[rank_], sizeof(farewell));
    for (int i = 0; i < size_; i++) {
        if (i == rank_)
            continue;
        watcher_->recv(i, FAREWELL_SLOT, i * sizeof(farewell), sizeof(farewell));
        members_[i].ended = context_->createUnboundBuffer(nullptr, 0);
        members_[i].ended->recv(i, ENDED_SLOT);
    }
    signals_blocked blocked;
    watching_ = std::thread([this] { watch(); });
    watching_deadlines_ = std::thread([this] { watch_deadlines(); });
}

/* Gives the group its reason, unless it has one, and wakes the call that waits and the thread that tells the others. */
void group::end(const std::string &reason)
{
    std::lock_guard<std::mutex> lock(mutex_);
    if (reason_.empty())
        reason_ = reason.empty() ? "the group was ended" : reason;
    if (context_) {
        for (auto &member : members_)
            for (auto &lane : member.lanes)
                if (lane) {
                    lane->abortWaitRecv();
                    lane->abortWaitSend();
                }
        if (watcher_)
            watcher_->abortWaitRecv();
    }
    changed_.notify_all();
}

std::string reason_in(const farewell &last)
{
    return std::string(last.reason, strnlen(last.reason, sizeof last.reason));
}

/* What a member's last words, or the lack of them, mean. They are whole once their receive has completed or the connection
 * has failed. */
std::string group::why_lost(int rank, const std::exception &error) const
{
    const farewell &last = farewells_[rank];
    if (last.kind == farewell::LOST)
        return reason_in(last);
    if (last.kind == farewell::DONE)
        return members_[rank].name + " has left the group";
    return "lost " + members_[rank].name + ": " + message_of(error);
}

/* Which connection has failed, by asking each for something. */
std::string group::find_lost()
{
    for (int i = 0; i < size_; i++) {
        if (i == rank_)
            continue;
        try {
            members_[i].lanes[RESULTS]->recv(i, PROBE_SLOT, 0, 0);
        } catch (const std::exception &error) {
            return why_lost(i, error);
        }
    }
    return "lost a member of the group";
}

/* The thread that waits for farewells, at most one from each member, until the group has a reason, which it tells the
 * others. A connection that fails ends its wait with an exception. Where two farewells came at once gloo names the last
 * of them alone: what the other said, if it was a reason, is found when its connection closes. */
void group::watch()
{
    sigpipe_blocked blocked;
    int from = -1;
    try {
        for (int heard = 1; heard < size_ && watcher_->waitRecv(&from, FOREVER); heard++) {
            if (farewells_[from].kind == farewell::LOST) {
                end(reason_in(farewells_[from]));
                break;
            }
            std::lock_guard<std::mutex> lock(mutex_);
            goodbyes_ = heard;
            changed_.notify_all();
        }
    } catch (const std::exception &) {
        end(find_lost());
    }
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || !reason_.empty(); });
    if (reason_.empty())
        return;
    const std::string reason = reason_;
    const bool may_say = !said_goodbye_;
    lock.unlock();
    if (may_say)
        say_farewell(farewell::LOST, reason);
    wait_until_all_have_ended();
}

void group::watch_deadlines()
{
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopping_) {
        auto now = steady_clock::now();
        if (waiting_for_ < 0) {
            changed_.wait_until(lock, now + patience_);
        } else if (now < waiting_until_) {
            changed_.wait_until(lock, waiting_until_);
        } else {
            std::string name = members_[waiting_for_].name;
            char seconds[32];
            snprintf(seconds, sizeof seconds, "%g", 1e-3 * patience_.count());
            waiting_for_ = -1;
            lock.unlock();
            end("lost " + name + ": nothing came from it for " + seconds + " s");
            lock.lock();
        }
    }
}

/* Returns how many it was sent to. Best effort: who does not get it notices that the connection closes. */
int group::say_farewell(farewell::kind_of kind, const std::string &reason)
{
    farewell &own = farewells_[rank_];
    own.kind = kind;
    snprintf(own.reason, sizeof own.reason, "%s", reason.c_str());
    int sent = 0;
    for (int i = 0; i < size_; i++) {
        try {
            if (i != rank_) {
                own_farewell_->send(i, FAREWELL_SLOT);
                sent++;
            }
        } catch (const std::exception &) {
        }
    }
    return sent;
}

/* Each member tells each other one that it has ended. Who was lost is not waited for: its connection fails. Where one says
 * nothing (it is stopped, or cannot be reached) gloo closes all connections when the wait is over. */
void group::wait_until_all_have_ended()
{
    for (int i = 0; i < size_; i++) {
        try {
            if (i != rank_)
                members_[i].ended->send(i, ENDED_SLOT);
        } catch (const std::exception &) {
        }
    }
    const auto until = steady_clock::now() + FAREWELL_WAIT;
    for (int i = 0; i < size_; i++) {
        const auto left = std::chrono::duration_cast<milliseconds>(until - steady_clock::now());
        try {
            if (i != rank_)
                members_[i].ended->waitRecv(std::max(left, milliseconds(0)));
        } catch (const std::exception &) {
        }
    }
}

/* From the thread that makes the calls. Where there is a reason, the watching thread returns once the others have one. */
void group::shut_down()
{
    if (!context_)
        return;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }
    if (watcher_)
        watcher_->abortWaitRecv();
    if (watching_.joinable())
        watching_.join();
    if (watching_deadlines_.joinable())
        watching_deadlines_.join();
    std::unique_lock<std::mutex> lock(mutex_); /* end() uses the buffers */
    for (auto &member : members_) {
        for (auto &lane : member.lanes)
            lane.reset();
        member.ended.reset();
    }
    watcher_.reset();
    own_farewell_.reset();
    auto context = std::move(context_);
    lock.unlock();
    context.reset(); /* closes the connections */
    device_.reset();
    scratch_.reset();
    scratch_size_ = 0;
}

void group::close()
{
    sigpipe_blocked blocked;
    if (!context_)
        return;
    std::unique_lock<std::mutex> lock(mutex_);
    if (reason_.empty()) {
        said_goodbye_ = true;
        lock.unlock();
        const auto until = steady_clock::now() + GOODBYE_WAIT;
        try {
            for (int sent = say_farewell(farewell::DONE, ""); sent > 0 && steady_clock::now() < until; sent--)
                own_farewell_->waitSend(until);
        } catch (const std::exception &) {
        }
        lock.lock();
        changed_.wait_until(lock, until, [this] { return goodbyes_ == size_ - 1 || !reason_.empty(); });
    }
    lock.unlock();
    shut_down();
}

fth_status group::fail_with_reason()
{
    std::lock_guard<std::mutex> lock(mutex_);
    return fth_fail(FTH_PEER_LOST, "%s", reason_.c_str());
}

void group::check_ended()
{
    std::lock_guard<std::mutex> lock(mutex_);
    if (!reason_.empty())
        throw group_ended();
}

template <typename function> fth_status group::call(uint32_t kind, size_t size, function make)
{
    if (!context_)
        return fail_with_reason();
    sigpipe_blocked blocked;
    /* Members that make different calls do not find each other's data, and wait in vain. */
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

/* ---- bytes to and from one member ---- */

char *group::scratch(size_t size)
{
    if (size > scratch_size_) {
        scratch_.reset(new char[size]);
        scratch_size_ = size;
    }
    return scratch_.get();
}

/* Runs an operation of gloo's on the connection to a member: false, and exceptions, mean that the group has ended. */
template <typename function> void group::wait_for(int whom, function wait)
{
    try {
        if (wait())
            return;
    } catch (const std::exception &error) {
        end(why_lost(whom, error));
    }
    throw group_ended();
}

void group::send(int to, lane which, const void *bytes, size_t size)
{
    wait_for(to, [&] {
        members_[to].lanes[which]->send(to, slot(which), reinterpret_cast<size_t>(bytes), size);
        return true;
    });
}

void group::receive(int from, lane which, void *bytes, size_t size)
{
    wait_for(from, [&] {
        members_[from].lanes[which]->recv(from, slot(which), reinterpret_cast<size_t>(bytes), size);
        return true;
    });
}

/* The same for operations that wait: they have a deadline. */
template <typename function> void group::wait_patiently(int whom, function wait)
{
    {
        std::lock_guard<std::mutex> lock(mutex_);
        waiting_for_ = whom;
        waiting_until_ = steady_clock::now() + patience_;
    }
    wait_for(whom, wait);
    std::lock_guard<std::mutex> lock(mutex_);
    waiting_for_ = -1;
}

void group::wait_received(int from, lane which)
{
    wait_patiently(from, [&] { return members_[from].lanes[which]->waitRecv(nullptr, FOREVER); });
}

void group::wait_sent(int to, lane which, size_t times)
{
    for (; times > 0; times--)
        wait_patiently(to, [&] { return members_[to].lanes[which]->waitSend(nullptr, FOREVER); });
}

/* ---- small: log2 N steps ---- */

/* Block 0 is this member's: afterwards block i is that of the member i ranks further. */
void group::gather_small(char *blocks, size_t block_size)
{
    for (int step = 1; step < size_; step *= 2)
        receive(next(step), CONTRIBUTIONS, blocks + step * block_size, std::min(step, size_ - step) * block_size);
    for (int step = 1; step < size_; step *= 2) {
        send(next(size_ - step), CONTRIBUTIONS, blocks, std::min(step, size_ - step) * block_size);
        wait_received(next(step), CONTRIBUTIONS);
    }
    for (int step = 1; step < size_; step *= 2)
        wait_sent(next(size_ - step), CONTRIBUTIONS, 1);
}

void group::sum(double *values, size_t count)
{
    const size_t most = std::max<size_t>(1, LARGEST_GATHER / sizeof(double) / size_);
    for (size_t done = 0; done < count;) {
        const size_t part = std::min(most, count - done);
        double *blocks = reinterpret_cast<double *>(scratch(size_ * part * sizeof(double)));
        std::copy_n(values + done, part, blocks);
        gather_small(reinterpret_cast<char *>(blocks), part * sizeof(double));
        for (int i = 0; i < size_; i++) {
            const double *block = blocks + distance(i) * part;
            for (size_t k = 0; k < part; k++)
                values[done + k] = i == 0 ? block[k] : values[done + k] + block[k];
        }
        done += part;
    }
}

void group::reduce_small(float *values, size_t count, fth_wire wire)
{
    const size_t block_size = count * fth_wire_size(wire);
    char *blocks = scratch(size_ * block_size);
    fth_wire_pack(wire, values, count, blocks);
    gather_small(blocks, block_size);
    for (int i = 0; i < size_; i++) {
        const char *block = blocks + distance(i) * block_size;
        if (i == 0)
            fth_wire_unpack(wire, block, count, values);
        else
            fth_wire_add(wire, block, count, values);
    }
    if (wire != FTH_WIRE_F32) {
        fth_wire_pack(wire, values, count, blocks);
        fth_wire_unpack(wire, blocks, count, values);
    }
}

/* A binomial tree whose root is `root`. */
void group::broadcast_small(char *bytes, size_t size, int root)
{
    const int place = (rank_ - root + size_) % size_;
    int step = 1;
    while (step < size_ && !(place & step))
        step *= 2;
    if (place > 0) {
        const int parent = (place - step + root) % size_;
        receive(parent, CONTRIBUTIONS, bytes, size);
        wait_received(parent, CONTRIBUTIONS);
    }
    const int first = step;
    for (step = first / 2; step > 0; step /= 2)
        if (place + step < size_)
            send((place + step + root) % size_, CONTRIBUTIONS, bytes, size);
    for (step = first / 2; step > 0; step /= 2)
        if (place + step < size_)
            wait_sent((place + step + root) % size_, CONTRIBUTIONS, 1);
}

/* ---- large: every number has an owner ---- */

/* A range of numbers or bytes cut into segments. */
struct range {
    size_t begin, end, segment;

    size_t count() const
    {
        return (end - begin + segment - 1) / segment;
    }
    size_t at(size_t i) const
    {
        return begin + i * segment;
    }
    size_t length(size_t i) const
    {
        return std::min(segment, end - at(i));
    }
};

/* Segments are large, but the memory for those that come from all members at once is limited. */
size_t choose_segment(int size, size_t item_size)
{
    size_t bytes = std::min(LARGEST_SEGMENT, MOST_SCRATCH / (SEGMENTS_AHEAD * size));
    return std::max(SMALLEST_SEGMENT, bytes) / item_size / 16 * 16;
}

/* Sums and gathers ranges, or one of both. With f32 on the wire numbers are sent from and received into `values`; else in
 * `packed`, which has the same layout. The result of a segment replaces this member's contribution to it only after the owner
 * has that: they can share memory. */
void group::exchange(float *values, const size_t *begins, fth_wire wire, bool reduces, bool gathers)
{
    const size_t item = fth_wire_size(wire), segment = choose_segment(size_, item), count = begins[size_];
    const bool packs = wire != FTH_WIRE_F32;
    std::vector<range> ranges;
    for (int i = 0; i < size_; i++)
        ranges.push_back({begins[i], begins[i + 1], segment});
    const range mine = ranges[rank_];
    const size_t window = reduces ? SEGMENTS_AHEAD * segment * item : 0;
    float *sums =
        reinterpret_cast<float *>(scratch(segment * sizeof(float) + window * size_ + (packs ? count * item : 0)));
    char *memory = reinterpret_cast<char *>(sums + segment);
    char *packed = packs ? memory + window * size_ : reinterpret_cast<char *>(values);
    auto slot_of = [&](int from, size_t i) { return memory + from * window + i % SEGMENTS_AHEAD * segment * item; };
    std::vector<const float *> sources(size_);

    for (size_t i = 0; reduces && i < std::min(SEGMENTS_AHEAD, mine.count()); i++)
        for (int k = 1; k < size_; k++)
            receive(next(k), CONTRIBUTIONS, slot_of(next(k), i), mine.length(i) * item);
    size_t longest = 0;
    for (const range &each : ranges)
        longest = std::max(longest, each.count());
    for (size_t i = 0; gathers && i < longest; i++)
        for (int k = 1; k < size_; k++) {
            const range &of = ranges[next(k)];
            if (i < of.count())
                receive(next(k), RESULTS, packed + of.at(i) * item, of.length(i) * item);
        }
    for (size_t i = 0; reduces && i < longest; i++)
        for (int k = 0; k < size_; k++) {
            const range &of = ranges[next(k)];
            if (i >= of.count())
                continue;
            char *from = packed + of.at(i) * item;
            if (packs)
                fth_wire_pack(wire, values + of.at(i), of.length(i), from);
            if (k > 0)
                send(next(k), CONTRIBUTIONS, from, of.length(i) * item);
        }

    for (size_t i = 0; i < mine.count(); i++) {
        const size_t length = mine.length(i);
        char *own = packed + mine.at(i) * item;
        for (int from = 0; reduces && from < size_; from++) {
            if (from != rank_)
                wait_received(from, CONTRIBUTIONS);
            const char *source = from == rank_ ? own : slot_of(from, i);
            sources[from] = reinterpret_cast<const float *>(source);
            if (packs && from == 0)
                fth_wire_unpack(wire, source, length, sums);
            else if (packs)
                fth_wire_add(wire, source, length, sums);
        }
        if (reduces && packs) {
            fth_wire_pack(wire, sums, length, own);
            fth_wire_unpack(wire, own, length, values + mine.at(i));
        } else if (reduces) {
            fth_wire_sum(wire, sources.data(), size_, length, values + mine.at(i));
        }
        for (int k = 1; k < size_; k++) {
            if (gathers)
                send(next(k), RESULTS, own, length * item);
            if (reduces && i + SEGMENTS_AHEAD < mine.count())
                receive(next(k), CONTRIBUTIONS, slot_of(next(k), i), mine.length(i + SEGMENTS_AHEAD) * item);
        }
    }

    for (size_t i = 0; gathers && i < longest; i++)
        for (int k = 1; k < size_; k++) {
            const range &of = ranges[next(k)];
            if (i >= of.count())
                continue;
            wait_received(next(k), RESULTS);
            if (packs)
                fth_wire_unpack(wire, packed + of.at(i) * item, of.length(i), values + of.at(i));
        }
    for (int k = 1; k < size_; k++) {
        if (reduces)
            wait_sent(next(k), CONTRIBUTIONS, ranges[next(k)].count());
        if (gathers)
            wait_sent(next(k), RESULTS, mine.count());
    }
}

void group::all_reduce(float *values, size_t count, fth_wire wire)
{
    if (count * fth_wire_size(wire) * size_ <= LARGEST_GATHER) {
        if (count > 0)
            reduce_small(values, count, wire);
        return;
    }
    std::vector<size_t> begins;
    for (int i = 0; i <= size_; i++)
        begins.push_back(count / size_ * i + std::min<size_t>(i, count % size_));
    exchange(values, begins.data(), wire, true, true);
}

/* The root sends each member its range, and each passes its own on to all but the root. */
void group::broadcast(char *bytes, size_t size, int root)
{
    if (size == 0)
        return;
    if (size <= LARGEST_TREE) {
        broadcast_small(bytes, size, root);
        return;
    }
    std::vector<range> ranges;
    size_t longest = 0;
    for (int i = 0; i < size_; i++) {
        ranges.push_back({size / size_ * i, i + 1 < size_ ? size / size_ * (i + 1) : size, LARGEST_SEGMENT});
        longest = std::max(longest, ranges[i].count());
    }
    const range mine = ranges[rank_];
    if (rank_ == root) {
        for (size_t i = 0; i < longest; i++)
            for (int k = 1; k < size_; k++) {
                const range &of = ranges[next(k)];
                if (i < of.count())
                    send(next(k), CONTRIBUTIONS, bytes + of.at(i), of.length(i));
                if (i < mine.count())
                    send(next(k), RESULTS, bytes + mine.at(i), mine.length(i));
            }
        for (int k = 1; k < size_; k++) {
            wait_sent(next(k), CONTRIBUTIONS, ranges[next(k)].count());
            wait_sent(next(k), RESULTS, mine.count());
        }
        return;
    }
    for (size_t i = 0; i < longest; i++) {
        if (i < mine.count())
            receive(root, CONTRIBUTIONS, bytes + mine.at(i), mine.length(i));
        for (int k = 1; k < size_; k++)
            if (i < ranges[next(k)].count())
                receive(next(k), RESULTS, bytes + ranges[next(k)].at(i), ranges[next(k)].length(i));
    }
    for (size_t i = 0; i < mine.count(); i++) {
        wait_received(root, CONTRIBUTIONS);
        for (int k = 1; k < size_; k++)
            if (next(k) != root)
                send(next(k), RESULTS, bytes + mine.at(i), mine.length(i));
    }
    for (int k = 1; k < size_; k++) {
        for (size_t i = 0; i < ranges[next(k)].count(); i++)
            wait_received(next(k), RESULTS);
        if (next(k) != root)
            wait_sent(next(k), RESULTS, mine.count());
    }
}

/* ---- the table ---- */

enum call_kind : uint32_t { SUM = 1, ALL_REDUCE, REDUCE_SCATTER = ALL_REDUCE + 3, ALL_GATHER, BROADCAST };

fth_status open_group(const fth_collective_options *options, void **state)
{
    try {
        auto opened = std::make_unique<group>(*options);
        fth_status status = opened->connect(*options);
        if (status == FTH_OK)
            *state = opened.release();
        return status;
    } catch (const std::exception &error) {
        return fth_fail(FTH_NO_MEMORY, "cannot open a group of %d: %s", options->size, error.what());
    }
}

void close_group(void *state)
{
    std::unique_ptr<group> closed(static_cast<group *>(state));
    closed->close();
}

void abort_group(void *state, const char *reason)
{
    static_cast<group *>(state)->end(reason ? reason : "");
}

fth_status all_reduce(void *state, float *values, size_t count, fth_wire wire)
{
    group *g = static_cast<group *>(state);
    return g->call(ALL_REDUCE + wire, count, [&] { g->all_reduce(values, count, wire); });
}

fth_status sum(void *state, double *values, size_t count)
{
    group *g = static_cast<group *>(state);
    return g->call(SUM, count, [&] { g->sum(values, count); });
}

fth_status reduce_scatter(void *state, float *values, const size_t *begins, fth_wire wire)
{
    group *g = static_cast<group *>(state);
    return g->call(REDUCE_SCATTER, 4 * begins[g->size()] + wire,
                   [&] { g->exchange(values, begins, wire, true, false); });
}

fth_status all_gather(void *state, float *values, const size_t *begins)
{
    group *g = static_cast<group *>(state);
    return g->call(ALL_GATHER, begins[g->size()], [&] { g->exchange(values, begins, FTH_WIRE_F32, false, true); });
}

fth_status broadcast(void *state, void *bytes, size_t size, int root)
{
    group *g = static_cast<group *>(state);
    return g->call(BROADCAST, size, [&] { g->broadcast(static_cast<char *>(bytes), size, root); });
}

const fth_transport transport = {
    "gloo", "TCP between machines", open_group, close_group, abort_group, all_reduce,
    sum,    reduce_scatter,         all_gather, broadcast,
};

} // namespace

extern "C" __attribute__((visibility("default")))
const fth_transport_export fth_transport_plugin = {FTH_TRANSPORT_ABI, &transport};
