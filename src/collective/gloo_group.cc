/* See gloo_group.h. */
#include "collective/gloo_group.h"

#include <netdb.h>

#include <climits>

namespace farthing_gloo
{

constexpr milliseconds FOREVER = std::chrono::hours(24 * 365);
constexpr milliseconds GOODBYE_WAIT(1000), FAREWELL_WAIT(1000), LONGEST_CONNECT(5000);
constexpr double USUAL_TIMEOUT_S = 30;

namespace
{

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

/* Without the place in gloo's source that its messages begin with. */
std::string message_of(const std::exception &error)
{
    std::string text = error.what();
    size_t end = text.find("] ");
    return !text.empty() && text[0] == '[' && end != std::string::npos ? text.substr(end + 2) : text;
}

} // namespace

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

/* `addresses` holds what each of the others connects to, one after the other; afterwards, what this one connects to.
 * The first member collects them and hands them out, so that a group takes few requests. */
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

/* What a member's last words, or the lack of them, mean. They are whole once their receive has completed or the
 * connection has failed. */
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

/* Each member tells each other one that it has ended. Who was lost is not waited for: its connection fails. Where one
 * says nothing (it is stopped, or cannot be reached) gloo closes all connections when the wait is over. */
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

/* From the thread that makes the calls. Where there is a reason, the watching thread returns once the others have one.
 */
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

} // namespace farthing_gloo
