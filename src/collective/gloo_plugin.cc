/* The transport "gloo", in the plugin farthing_gloo.so: the only C++ of the program, behind the
 * table of transport.h. gloo_group.h has the group; here are the algorithms, since gloo's have
 * neither f16 on the wire nor a way to end a call that blocks.
 *
 * Large sums: every number belongs to one member, in ranges as equal as possible. Each member sends
 * every other one its range, in segments; the owner adds all contributions in the order of ranks
 * and sends the sum to all. This moves as many bytes as a ring, takes two steps instead of
 * 2 (N - 1), and gives sums whose order, and rounding on the wire, does not depend on how they
 * travel. Segments are summed and sent on while the next ones arrive.
 *
 * Small sums: all contributions go to all members in log2 N steps (Bruck's all-gather), and each
 * member sums them in the same order. A small broadcast is a tree; in a large one the root sends
 * each member a range, which that member passes on. */
#include "collective/gloo_group.h"

namespace farthing_gloo
{

constexpr size_t LARGEST_SEGMENT = 512 << 10, SMALLEST_SEGMENT = 8 << 10, MOST_SCRATCH = 16 << 20; /* bytes */
constexpr size_t SEGMENTS_AHEAD = 4;         /* receives that a member is ready for, from each other */
constexpr size_t LARGEST_GATHER = 256 << 10; /* bytes of all contributions of a sum that is small */
constexpr size_t LARGEST_TREE = 64 << 10;    /* bytes of a broadcast that is small */

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

/* Gathers ranges, and sums them first if it `reduces`. With f32 on the wire numbers are sent from and received into
 * `values`; else in `packed`, which has the same layout. The result of a segment replaces this member's contribution to
 * it only after the owner has that: they can share memory. */
void group::exchange(float *values, const size_t *begins, fth_wire wire, bool reduces)
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
    for (size_t i = 0; i < longest; i++)
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
            send(next(k), RESULTS, own, length * item);
            if (reduces && i + SEGMENTS_AHEAD < mine.count())
                receive(next(k), CONTRIBUTIONS, slot_of(next(k), i), mine.length(i + SEGMENTS_AHEAD) * item);
        }
    }

    for (size_t i = 0; i < longest; i++)
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
    exchange(values, begins.data(), wire, true);
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

namespace
{

enum call_kind : uint32_t { SUM = 1, ALL_REDUCE, ALL_GATHER = ALL_REDUCE + 3, BROADCAST };

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

fth_status all_gather(void *state, float *values, const size_t *begins)
{
    group *g = static_cast<group *>(state);
    return g->call(ALL_GATHER, begins[g->size()], [&] { g->exchange(values, begins, FTH_WIRE_F32, false); });
}

fth_status broadcast(void *state, void *bytes, size_t size, int root)
{
    group *g = static_cast<group *>(state);
    return g->call(BROADCAST, size, [&] { g->broadcast(static_cast<char *>(bytes), size, root); });
}

const fth_transport transport = {
    "gloo",    "TCP between machines", nullptr, open_group, close_group, abort_group, all_reduce, sum, all_gather,
    broadcast,
};

} // namespace
} // namespace farthing_gloo

extern "C" __attribute__((visibility("default")))
const fth_transport_export fth_transport_plugin = {FTH_TRANSPORT_ABI, &farthing_gloo::transport};
