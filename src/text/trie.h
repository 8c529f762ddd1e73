/* A set of texts with numbers: exact lookup, or the longest prefix of another text. */
#ifndef FTH_TEXT_TRIE_H
#define FTH_TEXT_TRIE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct fth_trie fth_trie;

fth_status fth_trie_create(fth_trie **trie);
void fth_trie_free(fth_trie *trie);

/* Adds a text, or replaces its number, which is not negative. */
fth_status fth_trie_add(fth_trie *trie, const char *bytes, size_t size_bytes, int32_t number);

/* Positions in the trie, after some bytes. */
typedef uint32_t fth_trie_place;
#define FTH_TRIE_START   ((fth_trie_place)0)
#define FTH_TRIE_NOWHERE ((fth_trie_place)UINT32_MAX)
/* The position after `bytes`; FTH_TRIE_NOWHERE if no text continues so. */
fth_trie_place fth_trie_follow(const fth_trie *trie, fth_trie_place place, const char *bytes, size_t size_bytes);

/* The longest text that the bytes begin with, from `place` on, which may be nowhere: its number or
 * -1, and its size from there. An empty text is never found. */
int32_t fth_trie_match(const fth_trie *trie, fth_trie_place place, const char *bytes, size_t size_bytes,
                       size_t *matched_bytes);

int32_t fth_trie_find(const fth_trie *trie, const char *bytes, size_t size_bytes); /* or -1 */

#endif
