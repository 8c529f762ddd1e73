/* Fuzzes encoding: any bytes as a text and as a pair, and as what a vocabulary is learned from. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Of all characters that words below have, so that whatever gets through is seen. */
static fth_tokenizer *make_tokenizer(void)
{
    static const char words[] =
        "The quick brown fox jumps over the lazy dog. THE [SEP] 0123456789 na\u00efve \u4e2d\u56fd, "
        "\u0641\u0642 \uac00\uac01 \u0928\u093f \u302e";
    fth_vocabulary_learner *learner;
    fth_tokenizer *tokenizer;
    if (fth_vocabulary_learner_create(&learner) != FTH_OK ||
        fth_vocabulary_learner_add(learner, words, sizeof words - 1) != FTH_OK ||
        fth_vocabulary_learner_finish(learner, 500, &tokenizer) != FTH_OK)
        abort();
    fth_vocabulary_learner_free(learner);
    return tokenizer;
}

static void check(const fth_tokenizer *tokenizer, const fth_text_pair *text, int longest)
{
    fth_token_list list = {0};
    size_t first_count = 0;
    fth_special_tokens special = fth_tokenizer_get_special(tokenizer);
    if (fth_tokenizer_encode(tokenizer, text, longest, &list, &first_count) != FTH_OK || list.count < 2 ||
        (longest > 0 && list.count > (size_t)longest) || list.ids[0] != special.begin ||
        list.ids[first_count - 1] != special.separator || list.ids[list.count - 1] != special.separator ||
        (text->second ? first_count >= list.count : first_count != list.count))
        abort();
    for (size_t i = 0; i < list.count; i++)
        if (list.ids[i] < 0 || list.ids[i] >= fth_tokenizer_size(tokenizer))
            abort();
    fth_token_list_release(&list);
}

/* Any text can be learned from, if it has words, and the result encodes it. */
static void check_learned(const char *text, size_t size)
{
    fth_vocabulary_learner *learner;
    fth_tokenizer *tokenizer;
    fth_text_pair all = {.first = text, .first_bytes = size};
    if (fth_vocabulary_learner_create(&learner) != FTH_OK || fth_vocabulary_learner_add(learner, text, size) != FTH_OK)
        abort();
    if (fth_vocabulary_learner_finish(learner, 16 + 4 * (int)size, &tokenizer) == FTH_OK) {
        check(tokenizer, &all, 0);
        fth_tokenizer_free(tokenizer);
    }
    fth_vocabulary_learner_free(learner);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static fth_tokenizer *tokenizer; /* as long as the process */
    const char *text = (const char *)bytes;
    size_t half = size / 2;
    fth_text_pair all = {.first = text, .first_bytes = size};
    fth_text_pair pair = {.first = text, .first_bytes = half, .second = text + half, .second_bytes = size - half};
    if (!tokenizer)
        tokenizer = make_tokenizer();
    check(tokenizer, &all, 0);
    check(tokenizer, &all, 5);
    check(tokenizer, &pair, 0);
    check(tokenizer, &pair, 8);
    if (size < 10000)
        check_learned(text, size);
    return 0;
}
