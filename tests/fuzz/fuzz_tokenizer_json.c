/* Fuzzes reading a tokenizer.json: any bytes. What is accepted must encode a text within its ids,
 * and be the same tokenizer after the way through its own JSON. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const char sample[] = "The [SEP] unaffable na\u00efve \u4e2d\u56fd, a\xff\x01z";
static const fth_text_pair text = {.first = sample, .first_bytes = sizeof sample - 1, .second = ""};

static fth_token_list encode(const fth_tokenizer *tokenizer)
{
    fth_token_list list = {0};
    size_t first_count;
    if (fth_tokenizer_encode(tokenizer, &text, 16, &list, &first_count) != FTH_OK || list.count > 16 ||
        first_count > list.count)
        abort();
    for (size_t i = 0; i < list.count; i++)
        if (list.ids[i] < 0 || list.ids[i] >= fth_tokenizer_size(tokenizer))
            abort();
    return list;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    fth_tokenizer *tokenizer, *again;
    if (fth_tokenizer_parse((const char *)bytes, size, "fuzz", &tokenizer) != FTH_OK)
        return 0;
    char *json = fth_tokenizer_to_json(tokenizer), *vocabulary = fth_tokenizer_to_vocabulary(tokenizer);
    if (!json || !vocabulary || fth_tokenizer_parse(json, strlen(json), "json", &again) != FTH_OK)
        abort();
    fth_token_list first = encode(tokenizer), second = encode(again);
    if (first.count != second.count || memcmp(first.ids, second.ids, first.count * sizeof *first.ids) != 0)
        abort();
    fth_token_list_release(&first);
    fth_token_list_release(&second);
    fth_tokenizer_free(tokenizer);
    fth_tokenizer_free(again);
    free(json);
    free(vocabulary);
    return 0;
}
