/* Encodes texts for other programs: tests/interop/test_tokenizer.py and bench/text/tokenizer.
 *
 *     encode_texts TOKENIZER LONGEST [REPEAT] < texts > tokens
 *     encode_texts TOKENIZER > tokenizer.json
 *
 * A text is two sizes, of itself and of the second text of its pair or -1 (int32), and their bytes;
 * what it becomes is a count and how many of them are of segment 0, then the ids (int32). With
 * REPEAT all texts are then encoded so many times more, and the seconds that each time took are
 * printed to standard error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text/tokenizer.h"

typedef struct texts {
    fth_text_pair *pairs;
    size_t count, capacity;
} texts;

static void fail(const char *reason)
{
    fprintf(stderr, "encode_texts: %s\n", reason);
    exit(1);
}

static char *read_input(size_t *size)
{
    char *bytes = NULL;
    size_t capacity = 0;
    *size = 0;
    do {
        capacity = capacity ? 2 * capacity : 1 << 20;
        bytes = realloc(bytes, capacity);
        if (!bytes)
            fail("no memory");
        *size += fread(bytes + *size, 1, capacity - *size, stdin);
    } while (*size == capacity);
    return bytes;
}

static texts split(const char *bytes, size_t size)
{
    texts list = {0};
    for (size_t at = 0; at < size;) {
        int32_t sizes[2];
        memcpy(sizes, bytes + at, sizeof sizes);
        at += sizeof sizes;
        if (fth_grow(&list.pairs, list.count, &list.capacity, sizeof *list.pairs) != FTH_OK)
            fail("no memory");
        fth_text_pair *pair = &list.pairs[list.count++];
        *pair = (fth_text_pair){.first = bytes + at, .first_bytes = (size_t)sizes[0]};
        at += pair->first_bytes;
        if (sizes[1] >= 0) {
            pair->second = bytes + at;
            pair->second_bytes = (size_t)sizes[1];
            at += pair->second_bytes;
        }
    }
    return list;
}

static int write_json(fth_tokenizer *tokenizer)
{
    char *json = fth_tokenizer_to_json(tokenizer);
    if (!json || puts(json) < 0)
        fail("cannot write");
    free(json);
    fth_tokenizer_free(tokenizer);
    return fflush(stdout) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    fth_tokenizer *tokenizer;
    fth_token_list ids = {0};
    size_t size;
    if (argc < 2)
        fail("usage: encode_texts TOKENIZER [LONGEST [REPEAT]]");
    if (fth_tokenizer_open(argv[1], &tokenizer) != FTH_OK)
        fail(fth_error_message());
    if (argc == 2)
        return write_json(tokenizer);
    char *bytes = read_input(&size);
    texts list = split(bytes, size);
    int repeat = argc > 3 ? atoi(argv[3]) : 0;
    for (int round = 0; round <= repeat; round++) {
        double start = fth_clock_seconds();
        for (size_t i = 0; i < list.count; i++) {
            size_t first_count;
            ids.count = 0;
            if (fth_tokenizer_encode(tokenizer, &list.pairs[i], atoi(argv[2]), &ids, &first_count) != FTH_OK)
                fail(fth_error_message());
            int32_t counts[2] = {(int32_t)ids.count, (int32_t)first_count};
            if (round == 0 && (fwrite(counts, sizeof counts, 1, stdout) != 1 ||
                               fwrite(ids.ids, sizeof *ids.ids, ids.count, stdout) != ids.count))
                fail("cannot write");
        }
        if (round > 0)
            fprintf(stderr, "%.6f\n", fth_clock_seconds() - start);
    }
    fth_token_list_release(&ids);
    fth_tokenizer_free(tokenizer);
    free(list.pairs);
    free(bytes);
    return fflush(stdout) == 0 ? 0 : 1;
}
