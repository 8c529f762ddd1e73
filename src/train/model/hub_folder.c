/* See hub_folder.h. */
#include "train/model/hub_folder.h"

#include <stdlib.h>
#include <string.h>

#include "model/hub.h"
#include "train/setup/text_data.h"

/* Takes `text`, which may be NULL for want of memory. */
static fth_status write_file(const char *folder, const char *name, char *text)
{
    fth_status status = FTH_OK;
    char *path = fth_path_join(folder, name);

    FTH_REQUIRE(path && text, FTH_NO_MEMORY, "no memory for %s", name);
    FTH_TRY(fth_file_write_all(path, text, strlen(text)));

out:
    free(path);
    free(text);
    return status;
}

static void set_token(json_t *json, const char *name, const fth_tokenizer *tokenizer, int id)
{
    const char *token = id >= 0 ? fth_tokenizer_get_token(tokenizer, id) : NULL;
    if (token)
        json_object_set_new(json, name, json_string(token));
}

/* tokenizer_config.json */
static char *describe_tokenizer(const fth_tokenizer *tokenizer, int longest)
{
    const fth_special_tokens special = fth_tokenizer_get_special(tokenizer);
    json_t *json = json_pack("{s:s, s:b, s:i}", "tokenizer_class", "BertTokenizer", "do_lower_case",
                             (int)fth_tokenizer_is_lower_case(tokenizer), "model_max_length", longest);
    set_token(json, "unk_token", tokenizer, special.unknown);
    set_token(json, "sep_token", tokenizer, special.separator);
    set_token(json, "pad_token", tokenizer, special.padding);
    set_token(json, "cls_token", tokenizer, special.begin);
    set_token(json, "mask_token", tokenizer, special.mask);
    char *text = json_dumps(json, JSON_INDENT(2));
    json_decref(json);
    return text;
}

fth_status fth_hub_folder_write(const char *folder, const fth_model_facts *facts, const fth_tokenizer *tokenizer,
                                const char *weights)
{
    fth_status status = FTH_OK;
    const fth_model *model = NULL;
    const fth_hub_config config = {
        .task = facts->text.task, .classes = facts->classes, .class_names = facts->class_names, .weights = weights};
    char *text = NULL;

    FTH_TRY(fth_model_facts_find_model(facts, folder, &model));
    FTH_TRY(fth_hub_config_write(model, &config, &text));
    FTH_TRY(write_file(folder, "config.json", text));
    FTH_TRY(write_file(folder, "vocab.txt", fth_tokenizer_to_vocabulary(tokenizer)));
    FTH_TRY(write_file(folder, "tokenizer_config.json", describe_tokenizer(tokenizer, facts->text.longest)));
    FTH_TRY(write_file(folder, FTH_RUN_TOKENIZER, fth_tokenizer_to_json(tokenizer)));

out:
    return status;
}
