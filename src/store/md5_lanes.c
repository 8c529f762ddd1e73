/* See md5_lanes.h. RFC 1321 over vectors of 16 words: word w of lane l's block stands in lane l of
 * vector w.
 *
 * The compiler makes AVX-512, AVX2 or SSE2 of it, chosen when it runs. What is left of a lane
 * behind the length that all have in common is finished by itself. */
#include "store/md5_lanes.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    BLOCK_BYTES = 64,
    STAGED_BLOCKS =
        16 /* read from each lane in turn: lanes lie megabytes apart, where caches and prefetchers collide */
};

typedef uint32_t vector __attribute__((vector_size(4 * FTH_MD5_LANES)));

#define ROTATE(x, n) ((x) << (n) | (x) >> (32 - (n)))
#define F(x, y, z)   ((z) ^ ((x) & ((y) ^ (z))))
#define G(x, y, z)   ((y) ^ ((z) & ((x) ^ (y))))
#define H(x, y, z)   ((x) ^ (y) ^ (z))
#define I(x, y, z)   ((y) ^ ((x) | ~(z)))
#define STEP(f, a, b, c, d, w, constant, n)                                                                            \
    do {                                                                                                               \
        (a) += f(b, c, d) + m[w] + (constant);                                                                         \
        (a) = ROTATE(a, n) + (b);                                                                                      \
    } while (0)
#define FOUR(f, w0, k0, n0, w1, k1, n1, w2, k2, n2, w3, k3, n3)                                                        \
    do {                                                                                                               \
        STEP(f, a, b, c, d, w0, k0, n0);                                                                               \
        STEP(f, d, a, b, c, w1, k1, n1);                                                                               \
        STEP(f, c, d, a, b, w2, k2, n2);                                                                               \
        STEP(f, b, c, d, a, w3, k3, n3);                                                                               \
    } while (0)

/* The 64 steps of one block, for words or vectors alike: needs `state[4]` and `m[16]`. */
#define TRANSFORM(type, state, m)                                                                                      \
    do {                                                                                                               \
        type a = (state)[0], b = (state)[1], c = (state)[2], d = (state)[3];                                           \
        FOUR(F, 0, 0xd76aa478u, 7, 1, 0xe8c7b756u, 12, 2, 0x242070dbu, 17, 3, 0xc1bdceeeu, 22);                        \
        FOUR(F, 4, 0xf57c0fafu, 7, 5, 0x4787c62au, 12, 6, 0xa8304613u, 17, 7, 0xfd469501u, 22);                        \
        FOUR(F, 8, 0x698098d8u, 7, 9, 0x8b44f7afu, 12, 10, 0xffff5bb1u, 17, 11, 0x895cd7beu, 22);                      \
        FOUR(F, 12, 0x6b901122u, 7, 13, 0xfd987193u, 12, 14, 0xa679438eu, 17, 15, 0x49b40821u, 22);                    \
        FOUR(G, 1, 0xf61e2562u, 5, 6, 0xc040b340u, 9, 11, 0x265e5a51u, 14, 0, 0xe9b6c7aau, 20);                        \
        FOUR(G, 5, 0xd62f105du, 5, 10, 0x02441453u, 9, 15, 0xd8a1e681u, 14, 4, 0xe7d3fbc8u, 20);                       \
        FOUR(G, 9, 0x21e1cde6u, 5, 14, 0xc33707d6u, 9, 3, 0xf4d50d87u, 14, 8, 0x455a14edu, 20);                        \
        FOUR(G, 13, 0xa9e3e905u, 5, 2, 0xfcefa3f8u, 9, 7, 0x676f02d9u, 14, 12, 0x8d2a4c8au, 20);                       \
        FOUR(H, 5, 0xfffa3942u, 4, 8, 0x8771f681u, 11, 11, 0x6d9d6122u, 16, 14, 0xfde5380cu, 23);                      \
        FOUR(H, 1, 0xa4beea44u, 4, 4, 0x4bdecfa9u, 11, 7, 0xf6bb4b60u, 16, 10, 0xbebfbc70u, 23);                       \
        FOUR(H, 13, 0x289b7ec6u, 4, 0, 0xeaa127fau, 11, 3, 0xd4ef3085u, 16, 6, 0x04881d05u, 23);                       \
        FOUR(H, 9, 0xd9d4d039u, 4, 12, 0xe6db99e5u, 11, 15, 0x1fa27cf8u, 16, 2, 0xc4ac5665u, 23);                      \
        FOUR(I, 0, 0xf4292244u, 6, 7, 0x432aff97u, 10, 14, 0xab9423a7u, 15, 5, 0xfc93a039u, 21);                       \
        FOUR(I, 12, 0x655b59c3u, 6, 3, 0x8f0ccc92u, 10, 10, 0xffeff47du, 15, 1, 0x85845dd1u, 21);                      \
        FOUR(I, 8, 0x6fa87e4fu, 6, 15, 0xfe2ce6e0u, 10, 6, 0xa3014314u, 15, 13, 0x4e0811a1u, 21);                      \
        FOUR(I, 4, 0xf7537e82u, 6, 11, 0xbd3af235u, 10, 2, 0x2ad7d2bbu, 15, 9, 0xeb86d391u, 21);                       \
        (state)[0] += a;                                                                                               \
        (state)[1] += b;                                                                                               \
        (state)[2] += c;                                                                                               \
        (state)[3] += d;                                                                                               \
    } while (0)

/* ---- all lanes ---- */

/* One stage of the transposition of 16 vectors of 16 words: of each pair of rows that differ in bit
 * `s`, the words of the one whose column has that bit change places with those of the other whose
 * column has not. */
#define KEEP(s, l)  ((l) & (s) ? 16 + ((l) ^ (s)) : (l))
#define OTHER(s, l) ((l) & (s) ? 16 + (l) : ((l) ^ (s)))
#define MASK(which, s)                                                                                                 \
    which(s, 0), which(s, 1), which(s, 2), which(s, 3), which(s, 4), which(s, 5), which(s, 6), which(s, 7),            \
        which(s, 8), which(s, 9), which(s, 10), which(s, 11), which(s, 12), which(s, 13), which(s, 14), which(s, 15)
#define STAGE(rows, s)                                                                                                 \
    for (int i = 0; i < 16; i++) {                                                                                     \
        if (i & (s))                                                                                                   \
            continue;                                                                                                  \
        vector low = (rows)[i], high = (rows)[i | (s)];                                                                \
        (rows)[i] = __builtin_shufflevector(low, high, MASK(KEEP, s));                                                 \
        (rows)[i | (s)] = __builtin_shufflevector(low, high, MASK(OTHER, s));                                          \
    }

/* `blocks` blocks of 64 bytes of every lane, at offset `at`. */
#define TRANSFORM_LANES(suffix, attributes)                                                                            \
    attributes static void transform_lanes_##suffix(vector state[4], const unsigned char *const *lanes, size_t at,     \
                                                    int blocks)                                                        \
    {                                                                                                                  \
        vector staged[STAGED_BLOCKS][FTH_MD5_LANES];                                                                   \
        for (int lane = 0; lane < FTH_MD5_LANES; lane++)                                                               \
            for (int block = 0; block < blocks; block++)                                                               \
                memcpy(&staged[block][lane], lanes[lane] + at + (size_t)block * BLOCK_BYTES, BLOCK_BYTES);             \
        for (int block = 0; block < blocks; block++) {                                                                 \
            vector m[16];                                                                                              \
            memcpy(m, staged[block], sizeof m);                                                                        \
            STAGE(m, 1)                                                                                                \
            STAGE(m, 2)                                                                                                \
            STAGE(m, 4)                                                                                                \
            STAGE(m, 8)                                                                                                \
            TRANSFORM(vector, state, m);                                                                               \
        }                                                                                                              \
    }

#if defined(__x86_64__)
TRANSFORM_LANES(avx512, __attribute__((target("avx512f"))))
TRANSFORM_LANES(avx2, __attribute__((target("avx2"))))
#endif
TRANSFORM_LANES(plain, )

typedef void transform_lanes(vector state[4], const unsigned char *const *lanes, size_t at, int blocks);

static transform_lanes *choose(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return transform_lanes_avx512;
    if (__builtin_cpu_supports("avx2"))
        return transform_lanes_avx2;
#endif
    return transform_lanes_plain;
}

/* ---- the rest of one lane ---- */

static void transform_one(uint32_t state[4], const unsigned char *block)
{
    uint32_t m[16];
    memcpy(m, block, sizeof m); /* MD5 is little-endian, as every machine that this runs on */
    TRANSFORM(uint32_t, state, m);
}

static void finish_one(uint32_t state[4], const unsigned char *bytes, size_t done, size_t size,
                       unsigned char digest[FTH_MD5_BYTES])
{
    unsigned char tail[2 * BLOCK_BYTES] = {0};
    for (; size - done >= BLOCK_BYTES; done += BLOCK_BYTES)
        transform_one(state, bytes + done);
    size_t left = size - done;
    if (left > 0)
        memcpy(tail, bytes + done, left);
    tail[left] = 0x80;
    size_t tail_bytes = left + 9 <= BLOCK_BYTES ? BLOCK_BYTES : 2 * BLOCK_BYTES;
    uint64_t bits = (uint64_t)size * 8;
    memcpy(tail + tail_bytes - 8, &bits, 8);
    for (size_t at = 0; at < tail_bytes; at += BLOCK_BYTES)
        transform_one(state, tail + at);
    memcpy(digest, state, FTH_MD5_BYTES);
}

void fth_md5_lanes(const void *const *blocks, const size_t *sizes, int count, unsigned char digests[][FTH_MD5_BYTES])
{
    static const uint32_t first[4] = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u};
    const unsigned char *lanes[FTH_MD5_LANES];
    vector state[4];
    size_t common = count > 0 ? sizes[0] : 0, done = 0;
    for (int i = 1; i < count; i++)
        common = sizes[i] < common ? sizes[i] : common;
    for (int i = 0; i < FTH_MD5_LANES; i++) /* lanes that nobody needs do the first one's work again */
        lanes[i] = blocks[i < count ? i : 0];
    for (int i = 0; i < 4; i++)
        state[i] = (vector){0} + first[i];
    common = count > 1 ? common / BLOCK_BYTES : 0;
    transform_lanes *transform = choose();
    while (common > 0) {
        int now = common < STAGED_BLOCKS ? (int)common : STAGED_BLOCKS;
        transform(state, lanes, done, now);
        done += (size_t)now * BLOCK_BYTES;
        common -= (size_t)now;
    }
    for (int i = 0; i < count; i++) {
        uint32_t own[4] = {state[0][i], state[1][i], state[2][i], state[3][i]};
        finish_one(own, blocks[i], done, sizes[i], digests[i]);
    }
}
