/* See agree.h. What a member says is its status and its message. */
#include "collective/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 60, WORD_BYTES = 400 };

double fth_collective_timeout(const fth_collective_options *options)
{
    return options->timeout_s > 0 ? options->timeout_s : 30;
}

static const char *make_key(char key[KEY_BYTES], const char *topic, int number)
{
    snprintf(key, KEY_BYTES, "%s/%d", topic, number);
    return key;
}

fth_status fth_get_text(const fth_key_store *keys, const char *key, fth_deadline deadline, char **text)
{
    fth_status status = FTH_OK;
    void *bytes = NULL;
    size_t size = 0;

    FTH_TRY(keys->get(keys->context, key, deadline, &bytes, &size));
    FTH_TRY(fth_allocate(size + 1, 1, text));
    memcpy(*text, bytes, size);

out:
    free(bytes);
    return status;
}

fth_status fth_agree(const fth_key_store *keys, const char *topic, const fth_member *members, int count, int number,
                     fth_status own, fth_deadline deadline)
{
    fth_status status = FTH_OK, first = FTH_OK;
    char key[KEY_BYTES], word[WORD_BYTES], reason[2 * WORD_BYTES] = "", *answer = NULL;

    snprintf(word, sizeof word, "%d %s", (int)own, own == FTH_OK ? "" : fth_error_message());
    if (number >= 0)
        FTH_TRY(keys->put(keys->context, make_key(key, topic, number), word, strlen(word)));
    for (int i = 0; i < count; i++) {
        status = fth_get_text(keys, make_key(key, topic, i), deadline, &answer);
        if (status != FTH_OK) {
            status = fth_fail_within(status, "%s does not answer", members[i].name);
            goto out;
        }
        char *message = NULL;
        long theirs = strtol(answer, &message, 10);
        if (first == FTH_OK && theirs != FTH_OK) {
            first = (fth_status)theirs;
            snprintf(reason, sizeof reason, "%s:%s", members[i].name, message);
        }
        free(answer);
        answer = NULL;
    }
    FTH_REQUIRE(first == FTH_OK, first, "%s", reason);

out:
    free(answer);
    return status;
}
