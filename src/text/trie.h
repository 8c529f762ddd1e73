/* Texts by their bytes, each with a number: found whole, or the longest that another text begins
 * with. */
#ifndef FTH_TEXT_TRIE_H
#define FTH_TEXT_TRIE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct fth_trie fth_trie;

fth_status fth_trie_create(fth_trie **trie);
void fth_trie_free(fth_trie *trie);

/* Adds a text with its number, 0 or more, which replaces the one that it had. */
fth_status fth_trie_add(fth_trie *trie, const char *bytes, size_t size_bytes, int32_t number);

/* Places in the trie: what has been read so far. */
typedef uint32_t fth_trie_place;
#define FTH_TRIE_START   ((fth_trie_place)0)
#define FTH_TRIE_NOWHERE ((fth_trie_place)UINT32_MAX)
/* Where the bytes lead from `place`; FTH_TRIE_NOWHERE if no text has them there. */
fth_trie_place fth_trie_follow(const fth_trie *trie, fth_trie_place place, const char *bytes, size_t size_bytes);

/* The longest text that the bytes begin with, from `place` on, which may be nowhere: its number, or
 * -1, and how many bytes it has from there; an empty text is never found. */
int32_t fth_trie_match(const fth_trie *trie, fth_trie_place place, const char *bytes, size_t size_bytes,
                       size_t *matched_bytes);

int32_t fth_trie_find(const fth_trie *trie, const char *bytes, size_t size_bytes); /* or -1 */

#endif
