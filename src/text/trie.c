/* See trie.h. Nodes are numbers; edges are in one hash table by node and byte, so a step is one
 * lookup, and building takes time proportional to the texts. */
#include "text/trie.h"

#include <stdlib.h>

#include "base/base.h"

/* Node 0 is the root and has no parent: a child of 0 marks an empty slot. */
typedef struct edge {
    uint32_t key; /* node << 8 | byte */
    uint32_t child;
} edge;

struct fth_trie {
    edge *edges; /* (1 << edge_bits), at most half of them used */
    int edge_bits;
    int32_t *numbers; /* by node; -1: no text ends there */
    size_t node_count, node_capacity;
};

enum { FIRST_EDGE_BITS = 8, MAX_NODES = 1 << 24 };

static size_t get_slot(uint32_t key, int bits)
{
    return (size_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - bits));
}

static fth_status add_node(fth_trie *trie, uint32_t *node)
{
    if (trie->node_count == MAX_NODES)
        return fth_fail(FTH_UNSUPPORTED, "the tokens of a vocabulary have more than %d bytes together", MAX_NODES);
    fth_status status = fth_grow(&trie->numbers, trie->node_count, &trie->node_capacity, sizeof *trie->numbers);
    if (status != FTH_OK)
        return status;
    *node = (uint32_t)trie->node_count++;
    trie->numbers[*node] = -1;
    return FTH_OK;
}

fth_status fth_trie_create(fth_trie **trie)
{
    fth_status status = FTH_OK;
    fth_trie *made = NULL;
    uint32_t start;
    *trie = NULL;
    FTH_TRY(fth_allocate(1, sizeof *made, &made));
    made->edge_bits = FIRST_EDGE_BITS;
    FTH_TRY(fth_allocate((size_t)1 << made->edge_bits, sizeof *made->edges, &made->edges));
    FTH_TRY(add_node(made, &start));
    *trie = made;
    made = NULL;
out:
    fth_trie_free(made);
    return status;
}

void fth_trie_free(fth_trie *trie)
{
    if (!trie)
        return;
    free(trie->edges);
    free(trie->numbers);
    free(trie);
}

/* The slot of an edge, or the empty slot for it. */
static edge *find_edge(edge *edges, int bits, uint32_t key)
{
    size_t mask = ((size_t)1 << bits) - 1;
    size_t slot = get_slot(key, bits);
    while (edges[slot].child != 0 && edges[slot].key != key)
        slot = (slot + 1) & mask;
    return &edges[slot];
}

static fth_status make_room(fth_trie *trie)
{
    size_t slots = (size_t)1 << trie->edge_bits;
    edge *larger = NULL;
    if (trie->node_count * 2 < slots) /* all nodes but the root have one edge */
        return FTH_OK;
    fth_status status = fth_allocate(2 * slots, sizeof *larger, &larger);
    if (status != FTH_OK)
        return status;
    for (size_t i = 0; i < slots; i++)
        if (trie->edges[i].child != 0)
            *find_edge(larger, trie->edge_bits + 1, trie->edges[i].key) = trie->edges[i];
    free(trie->edges);
    trie->edges = larger;
    trie->edge_bits++;
    return FTH_OK;
}

fth_status fth_trie_add(fth_trie *trie, const char *bytes, size_t size_bytes, int32_t number)
{
    uint32_t node = FTH_TRIE_START;
    for (size_t i = 0; i < size_bytes; i++) {
        uint32_t key = node << 8 | (uint8_t)bytes[i];
        fth_status status = make_room(trie);
        if (status != FTH_OK)
            return status;
        edge *found = find_edge(trie->edges, trie->edge_bits, key);
        if (found->child == 0) {
            uint32_t child = 0;
            status = add_node(trie, &child);
            if (status != FTH_OK)
                return status;
            *found = (edge){.key = key, .child = child};
        }
        node = found->child;
    }
    trie->numbers[node] = number;
    return FTH_OK;
}

static fth_trie_place step(const fth_trie *trie, fth_trie_place node, char byte)
{
    uint32_t child = find_edge(trie->edges, trie->edge_bits, node << 8 | (uint8_t)byte)->child;
    return child != 0 ? child : FTH_TRIE_NOWHERE;
}

fth_trie_place fth_trie_follow(const fth_trie *trie, fth_trie_place place, const char *bytes, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes && place != FTH_TRIE_NOWHERE; i++)
        place = step(trie, place, bytes[i]);
    return place;
}

int32_t fth_trie_match(const fth_trie *trie, fth_trie_place place, const char *bytes, size_t size_bytes,
                       size_t *matched_bytes)
{
    int32_t longest = -1;
    *matched_bytes = 0;
    for (size_t i = 0; i < size_bytes && place != FTH_TRIE_NOWHERE; i++) {
        place = step(trie, place, bytes[i]);
        if (place != FTH_TRIE_NOWHERE && trie->numbers[place] >= 0) {
            longest = trie->numbers[place];
            *matched_bytes = i + 1;
        }
    }
    return longest;
}

int32_t fth_trie_find(const fth_trie *trie, const char *bytes, size_t size_bytes)
{
    fth_trie_place place = fth_trie_follow(trie, FTH_TRIE_START, bytes, size_bytes);
    return place == FTH_TRIE_NOWHERE ? -1 : trie->numbers[place];
}
