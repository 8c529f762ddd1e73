/* Sets of text: which files they are, what is in their batches, and in which order; labels of each
 * kind; what is refused. */
#include <stdio.h>
#include <string.h>

#include "data/data.h"
#include "data/text/length_order.h"
#include "support.h"
#include "text/tokenizer.h"

/* Ids as lines of vocab.txt: one letter is one word, and one token. */
enum { PAD, UNK, CLS, SEP, MASK, A };
static fth_tokenizer *tokenizer;

static int set_up(void **state)
{
    test_make_folder(state);
    char text[256] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", path[TEST_MAX_PATH];
    for (char letter = 'a'; letter <= 'z'; letter++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%c\n", letter);
    test_write_text("vocab.txt", text);
    return fth_tokenizer_open(test_path(path, "vocab.txt"), &tokenizer) == FTH_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    fth_tokenizer_free(tokenizer);
    tokenizer = NULL;
    return test_remove_folder(state);
}

static fth_dataset_options make_options(void)
{
    return (fth_dataset_options){
        .seed = 1, .validation_fraction = 0.25, .threads = 2, .text = {.tokenizer = tokenizer, .longest = 16}};
}

static fth_status open_set(const char *name, const fth_dataset_options *options, fth_dataset **dataset)
{
    char path[TEST_MAX_PATH];
    return fth_dataset_open(test_path(path, name), options, dataset);
}

static void make_folder(const char *name)
{
    char path[TEST_MAX_PATH];
    assert_int_equal(fth_folder_create(test_path(path, name)), FTH_OK);
}

/* The batches of a loader as text: letters of each sample between spaces ("[ab]c|d" for the pair of
 * "a b", "c"), its label behind '='. */
static char *show_batches(const fth_dataset *dataset, fth_loader_options options)
{
    static char shown[8192];
    char *at = shown;
    fth_loader *loader = NULL;
    const fth_batch *batch = NULL;
    if (options.batch_limit == 0)
        options.batch_limit = fth_batches_per_epoch(
            fth_share_samples(options.share, fth_dataset_get_info(dataset)->count[options.split]), options.batch);
    assert_int_equal(fth_loader_open(dataset, &options, &loader), FTH_OK);
    *at = '\0';
    while (fth_loader_next(loader, test_deadline_in(60), &batch) == FTH_OK && batch) {
        const fth_text_batch *text = &batch->text;
        int32_t begin = 0;
        for (int64_t i = 0; i < batch->count; begin = text->ends[i++]) {
            int32_t segment = 0;
            for (int32_t k = begin; k < text->ends[i]; k++) {
                assert_int_equal(text->positions[k], k - begin);
                if (text->segments[k] != segment)
                    *at++ = '|';
                segment = text->segments[k];
                if (text->tokens[k] >= A)
                    *at++ = (char)('a' + text->tokens[k] - A);
                else
                    assert_true(text->tokens[k] == (k == begin ? CLS : SEP));
            }
            if (batch->labels)
                at += sprintf(at, "=%d", batch->labels[i]);
            const int classes = fth_dataset_get_info(dataset)->classes;
            for (int k = 0; batch->targets && k < classes; k++)
                at += sprintf(at, "%s%g", k ? "," : "=", (double)batch->targets[i * classes + k]);
            *at++ = ' ';
        }
        assert_int_equal(begin, text->token_count);
        at[-1] = '/';
        *at = '\0';
    }
    fth_loader_free(loader);
    return shown;
}

static void a_folder_has_parts_and_class_names(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    fth_dataset_options options = make_options();
    make_folder("news");
    test_write_text("news/train_subset.csv", "\"2\",\"a\",\"b\"\n\"1\",\"c\",\"d \"\"e\"\"\"\n\"3\",\"f\",\"\"\n");
    test_write_text("news/test.csv", "1,g,h\n");
    test_write_text("news/classes.txt", "World\nSports\nBusiness\n");
    assert_int_equal(open_set("news", &options, &dataset), FTH_OK);
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    assert_string_equal(info->name, "news");
    assert_int_equal(info->modality, FTH_MODALITY_TEXT);
    assert_int_equal(info->count[FTH_TRAIN], 3);
    assert_int_equal(info->count[FTH_VALIDATION], 1);
    assert_int_equal(info->classes, 3);
    assert_string_equal(info->class_names[1], "Sports");
    assert_int_equal(info->text.longest, 7); /* [CLS] c d " e " [SEP], the quotes unknown */
    assert_ptr_equal(info->text.tokenizer, tokenizer);
    assert_string_equal(show_batches(dataset, (fth_loader_options){.split = FTH_VALIDATION, .batch = 1}), "gh=0/");
    fth_dataset_free(dataset);
}

static void other_layouts_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *const files[4];
        int64_t train, validation;
    } cases[] = {
        {{"train.jsonl", "validation.jsonl", "test.jsonl"}, 3, 3},
        {{"data/train-00000-of-00002.csv", "data/train-00001-of-00002.csv", "data/test-00000-of-00001.csv"}, 6, 3},
        {{"train.tsv", "dev.tsv", "test.tsv"}, 3, 3},
        {{"reviews.csv"}, 2, 1},
        {{"train.csv", "train_small.csv"}, 2, 1},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_dataset *dataset = NULL;
        fth_dataset_options options = make_options();
        char folder[32], name[TEST_MAX_PATH];
        snprintf(folder, sizeof folder, "set%zu", i);
        snprintf(name, sizeof name, "%s/data", folder);
        make_folder(name);
        for (int k = 0; cases[i].files[k]; k++) {
            bool json = strstr(cases[i].files[k], ".jsonl"), tsv = strstr(cases[i].files[k], ".tsv");
            snprintf(name, sizeof name, "%s/%s", folder, cases[i].files[k]);
            test_write_text(name, json  ? "{\"text\":\"a\",\"label\":\"x\"}\n{\"text\":\"b\",\"label\":\"y\"}\n"
                                          "{\"text\":\"c\",\"label\":\"y\"}\n"
                                  : tsv ? "text\tlabel\na\tx\nb\ty\nc\ty\n"
                                        : "text,label\na,x\nb,y\nc,y\n");
        }
        assert_int_equal(open_set(folder, &options, &dataset), FTH_OK);
        assert_int_equal(fth_dataset_get_info(dataset)->count[FTH_TRAIN], cases[i].train);
        assert_int_equal(fth_dataset_get_info(dataset)->count[FTH_VALIDATION], cases[i].validation);
        fth_dataset_free(dataset);
    }
}

/* A folder behind file:// is read as a bucket is: listed, and its objects asked for. */
static void a_set_in_a_store_is_found(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    fth_dataset_options options = make_options();
    char address[TEST_MAX_PATH];
    make_folder("bucket/data");
    test_write_text("bucket/data/train.csv", "text,label\na,1\nb,2\nc,2\n");
    test_write_text("bucket/data/test.csv", "text,label\nd,1\n");
    test_write_text("bucket/classes.txt", "One\nTwo\n");
    snprintf(address, sizeof address, "file://%s/bucket", test_folder);
    assert_int_equal(fth_dataset_open(address, &options, &dataset), FTH_OK);
    assert_string_equal(fth_dataset_get_info(dataset)->name, "bucket");
    assert_string_equal(fth_dataset_get_info(dataset)->class_names[1], "Two");
    assert_string_equal(show_batches(dataset, (fth_loader_options){.split = FTH_VALIDATION, .batch = 1}), "d=0/");
    fth_dataset_free(dataset);
    dataset = NULL;
    snprintf(address, sizeof address, "file://%s/bucket/data/train.csv", test_folder);
    assert_int_equal(fth_dataset_open(address, &options, &dataset), FTH_OK);
    assert_int_equal(fth_dataset_get_info(dataset)->count[FTH_TRAIN], 2);
    fth_dataset_free(dataset);
    /* An index of image files is none. */
    dataset = NULL;
    test_write_text("bucket/images.csv", "path,label\na/1.jpg,x\nb/2.jpg,y\n");
    snprintf(address, sizeof address, "file://%s/bucket/images.csv", test_folder);
    options.images_for = "this test"; /* text would be refused before it is read */
    assert_int_equal(fth_dataset_open(address, &options, &dataset), FTH_OK);
    assert_int_equal(fth_dataset_get_info(dataset)->modality, FTH_MODALITY_IMAGES);
    fth_dataset_free(dataset);
    snprintf(address, sizeof address, "file://%s/bucket/data/train.csv", test_folder);
    assert_int_equal(fth_dataset_open(address, &options, &dataset), FTH_UNSUPPORTED);
    assert_message_has("is text; this test takes images alone");
    snprintf(address, sizeof address, "file://%s/bucket/none.csv", test_folder);
    assert_int_equal(fth_dataset_open(address, &options, &dataset), FTH_INVALID);
    assert_message_has("there is no file://");
}

static void rivals_are_refused(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    fth_dataset_options options = make_options();
    make_folder("two");
    test_write_text("two/a.csv", "text,label\na,x\nb,y\n");
    test_write_text("two/b.csv", "text,label\na,x\nb,y\n");
    assert_int_equal(open_set("two", &options, &dataset), FTH_INVALID);
    assert_message_has("both a.csv and b.csv could be the training part");
}

static const char *letters(int count, char *text)
{
    char *at = text + sprintf(text, "text,label\n");
    for (int i = 0; i < count; i++) {
        for (int k = 0; k <= i % 5; k++)
            at += sprintf(at, "%c ", 'a' + i);
        at += sprintf(at, ",%c\n", 'p' + i % 2);
    }
    return text;
}

/* How often each of the first `count` letters begins a sample. */
static void count_letters(const char *shown, int *counts)
{
    for (const char *at = shown; *at; at++)
        if (at == shown || at[-1] == ' ' || at[-1] == '/')
            counts[*at - 'a']++;
}

static void held_out_texts_come_once_each(void **state)
{
    (void)state;
    char text[2048];
    int counts[26] = {0};
    fth_dataset *dataset = NULL;
    fth_dataset_options options = make_options();
    test_write_text("all.csv", letters(26, text));
    assert_int_equal(open_set("all.csv", &options, &dataset), FTH_OK);
    const fth_dataset_info *info = fth_dataset_get_info(dataset);
    assert_int_equal(info->count[FTH_TRAIN], 19);
    assert_int_equal(info->count[FTH_VALIDATION], 7);
    assert_true(info->held_out.fraction == 0.25 && info->held_out.seed == 1);
    assert_string_equal(info->class_names[1], "q");
    count_letters(show_batches(dataset, (fth_loader_options){.batch = 4, .shuffle = true, .seed = 3}), counts);
    count_letters(show_batches(dataset, (fth_loader_options){.split = FTH_VALIDATION, .batch = 7}), counts);
    for (int i = 0; i < 26; i++)
        assert_int_equal(counts[i], 1);
    fth_dataset_free(dataset);
    options.whole = true;
    assert_int_equal(open_set("all.csv", &options, &dataset), FTH_OK);
    assert_int_equal(fth_dataset_get_info(dataset)->count[FTH_TRAIN], 26);
    assert_int_equal(fth_dataset_get_info(dataset)->count[FTH_VALIDATION], 0);
    fth_dataset_free(dataset);
}

static void parts_of_a_batch_are_the_batch(void **state)
{
    (void)state;
    char text[2048], whole[4096];
    fth_dataset *dataset = NULL;
    fth_dataset_options options = make_options();
    options.whole = true;
    test_write_text("all.csv", letters(26, text));
    assert_int_equal(open_set("all.csv", &options, &dataset), FTH_OK);
    for (int by_length = 0; by_length < 2; by_length++) {
        fth_loader_options of = {.batch = 8, .shuffle = true, .seed = 3, .batch_limit = 4, .by_length = by_length};
        fth_loader *loaders[3] = {NULL}, *all = NULL;
        assert_int_equal(fth_loader_open(dataset, &of, &all), FTH_OK);
        for (int i = 0; i < 3; i++) {
            of.part = (fth_share){i, 3};
            assert_int_equal(fth_loader_open(dataset, &of, &loaders[i]), FTH_OK);
        }
        for (int number = 0; number < 4; number++) {
            const fth_batch *batch, *part;
            int64_t samples = 0, tokens = 0;
            assert_int_equal(fth_loader_next(all, test_deadline_in(60), &batch), FTH_OK);
            assert_int_equal(batch->count, number < 3 ? 8 : 2);
            for (int i = 0; i < 3; i++) {
                assert_int_equal(fth_loader_next(loaders[i], test_deadline_in(60), &part), FTH_OK);
                assert_int_equal(part->first, samples);
                assert_int_equal(part->whole, batch->count);
                assert_int_equal(part->text.first_token, tokens);
                assert_memory_equal(part->text.tokens, batch->text.tokens + tokens,
                                    (size_t)part->text.token_count * sizeof(int32_t));
                assert_memory_equal(part->labels, batch->labels + samples, (size_t)part->count * sizeof(int32_t));
                samples += part->count;
                tokens += part->text.token_count;
            }
            assert_int_equal(samples, batch->count);
            assert_int_equal(tokens, batch->text.token_count);
        }
        for (int i = 0; i < 3; i++)
            fth_loader_free(loaders[i]);
        fth_loader_free(all);
    }
    /* A batch from the middle on is what it would have been. */
    snprintf(whole, sizeof whole, "%s",
             show_batches(dataset, (fth_loader_options){.batch = 8, .shuffle = true, .batch_limit = 9}));
    const char *rest =
        show_batches(dataset, (fth_loader_options){.batch = 8, .shuffle = true, .first_batch = 5, .batch_limit = 9});
    assert_string_equal(whole + strlen(whole) - strlen(rest), rest);
    fth_dataset_free(dataset);
}

static void batches_by_length_have_like_lengths(void **state)
{
    (void)state;
    enum { COUNT = 1003, BATCH = 8 };
    uint32_t lengths[COUNT];
    for (int i = 0; i < COUNT; i++)
        lengths[i] = (uint32_t)(i * 37 % 101);
    for (int share = 1; share <= 3; share += 2) {
        int seen[COUNT] = {0}, total = 0, different = 0;
        for (int of = 0; of < share; of++) {
            fth_sampler sampler = {.seed = 5, .count = COUNT, .shuffle = true, .share = {of, share > 1 ? share : 0}};
            fth_length_order *order = NULL, *other = NULL;
            assert_int_equal(fth_length_order_create(&sampler, lengths, BATCH, &order), FTH_OK);
            assert_int_equal(fth_length_order_create(&sampler, lengths, BATCH, &other), FTH_OK);
            const int64_t count = fth_share_samples(sampler.share, COUNT);
            uint32_t spread = 0, falls = 0, before = 0;
            for (int64_t at = 0; at < count; at += BATCH) {
                int64_t samples[BATCH], again[BATCH], size = count - at < BATCH ? count - at : BATCH;
                uint32_t least = UINT32_MAX, most = 0;
                fth_length_order_get(order, 2, at, size, samples);
                for (int64_t i = 0; i < size; i++) {
                    seen[samples[i]]++;
                    least = lengths[samples[i]] < least ? lengths[samples[i]] : least;
                    most = lengths[samples[i]] > most ? lengths[samples[i]] : most;
                }
                spread += size == BATCH ? most - least : 0;
                falls += at > 0 && least < before;
                before = least;
                /* The same whatever was asked before; another in another epoch. */
                fth_length_order_get(other, 3, (count - 1) / BATCH * BATCH - at, 1, again);
                fth_length_order_get(other, 2, at, size, again);
                assert_memory_equal(samples, again, (size_t)size * sizeof *samples);
                fth_length_order_get(other, 3, at, size, again);
                different += memcmp(samples, again, (size_t)size * sizeof *samples) != 0;
                total++;
            }
            assert_true(spread / (uint32_t)(count / BATCH) <= 10); /* at random about 80 of 101 */
            assert_true(falls > 10);                               /* nor in order of length */
            fth_length_order_free(order);
            fth_length_order_free(other);
        }
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(seen[i], 1);
        assert_true(different > total / 2);
    }
}

static void pairs_have_two_segments(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    fth_dataset_options options = make_options();
    options.whole = true;
    options.text.longest = 7;
    test_write_text("pairs.tsv", "sentence1\tsentence2\tlabel\na b\tc\tyes\nd\te f\tno\na b c d e f\tg h i\tno\n");
    assert_int_equal(open_set("pairs.tsv", &options, &dataset), FTH_OK);
    assert_string_equal(show_batches(dataset, (fth_loader_options){.batch = 3}), "ab|c=1 d|ef=0 ab|gh=0/");
    fth_dataset_free(dataset);
}

static void labels_may_be_numbers_or_sets(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    fth_dataset_options options = make_options();
    options.whole = true;
    options.text.label = FTH_LABEL_NUMBER;
    test_write_text("scores.csv", "text,score\na,1.5\nb,-2\n");
    assert_int_equal(open_set("scores.csv", &options, &dataset), FTH_OK);
    assert_int_equal(fth_dataset_get_info(dataset)->classes, 1);
    assert_string_equal(fth_dataset_get_info(dataset)->class_names[0], "score");
    assert_string_equal(show_batches(dataset, (fth_loader_options){.batch = 2}), "a=1.5 b=-2/");
    fth_dataset_free(dataset);

    options.text.label_column = "x,y";
    test_write_text("two.csv", "x,text,y\n1,a,2\n3,b,4\n");
    assert_int_equal(open_set("two.csv", &options, &dataset), FTH_OK);
    assert_string_equal(show_batches(dataset, (fth_loader_options){.batch = 2}), "a=1,2 b=3,4/");
    fth_dataset_free(dataset);

    options.text.label_column = NULL;
    test_write_text("list.jsonl", "{\"text\":\"a\",\"label\":[1,2]}\n{\"text\":\"b\",\"label\":[3,4]}\n");
    assert_int_equal(open_set("list.jsonl", &options, &dataset), FTH_OK);
    assert_string_equal(fth_dataset_get_info(dataset)->class_names[1], "label 2");
    assert_string_equal(show_batches(dataset, (fth_loader_options){.batch = 2}), "a=1,2 b=3,4/");
    fth_dataset_free(dataset);

    options.text.label = FTH_LABEL_SET;
    test_write_text("set.jsonl", "{\"text\":\"a\",\"labels\":[\"x\",\"y, z\"]}\n{\"text\":\"b\",\"labels\":[]}\n"
                                 "{\"text\":\"c\",\"labels\":[\"w\"]}\n");
    assert_int_equal(open_set("set.jsonl", &options, &dataset), FTH_OK);
    assert_string_equal(fth_dataset_get_info(dataset)->class_names[2], "y, z");
    assert_string_equal(show_batches(dataset, (fth_loader_options){.batch = 3}), "a=0,1,1 b=0,0,0 c=1,0,0/");
    fth_dataset_free(dataset);

    options.text.label_column = "toxic,insult";
    test_write_text("flags.csv", "comment_text,insult,toxic\na,0,1\nb,1,1\nc,0,0\n");
    assert_int_equal(open_set("flags.csv", &options, &dataset), FTH_OK);
    assert_string_equal(fth_dataset_get_info(dataset)->class_names[0], "toxic");
    assert_string_equal(show_batches(dataset, (fth_loader_options){.batch = 3}), "a=1,0 b=1,1 c=0,0/");
    fth_dataset_free(dataset);
}

static void classes_of_a_model_are_kept(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    fth_dataset_options options = make_options();
    options.whole = true;
    options.text.class_names = (const char *const[]){"z", "y", "x", NULL};
    test_write_text("some.csv", "text,label\na,x\nb,y\n");
    assert_int_equal(open_set("some.csv", &options, &dataset), FTH_OK);
    assert_int_equal(fth_dataset_get_info(dataset)->classes, 3);
    assert_string_equal(show_batches(dataset, (fth_loader_options){.batch = 2}), "a=2 b=1/");
    fth_dataset_free(dataset);
    dataset = NULL;
    test_write_text("other.csv", "text,label\na,x\nb,w\n");
    assert_int_equal(open_set("other.csv", &options, &dataset), FTH_INVALID);
    assert_message_has("other.csv, line 3: the label 'w' is none of the 3 classes: z, y, x");
}

static void versions_tell_contents_apart(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    fth_dataset_options options = make_options();
    char versions[4][65];
    test_write_text("one.csv", "text,label,title\na,x,c\nb,y,c\n");
    test_write_text("same.csv", "text,label,title\na,x,c\nb,y,c\n");
    test_write_text("more.csv", "text,label,title\na,x,c\nb,y,d\n");
    const char *const names[] = {"one.csv", "same.csv", "more.csv", "one.csv"};
    for (int i = 0; i < 4; i++) {
        options.text.text_column = i == 3 ? "title" : NULL;
        assert_int_equal(open_set(names[i], &options, &dataset), FTH_OK);
        assert_int_equal(fth_dataset_version(dataset, versions[i]), FTH_OK);
        fth_dataset_free(dataset);
    }
    assert_string_equal(versions[0], versions[1]);
    assert_string_not_equal(versions[0], versions[2]);
    assert_string_not_equal(versions[0], versions[3]);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"text,label\n", "no rows to train with"},
        {"", "has no rows"},
        {"text,label\na,x\nb,x\nc,x\n", "every sample has the label 'x'"},
        {"text,label\na,x\nb,\n", "line 3: the label is empty"},
        {"text,label\na,x\n\"b,y\n", "line 3: the quote that opens column 1 is not closed"},
        {"text,label\na,x\nb\n", "line 3: 1 column, where the rows before it have 2"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_dataset *dataset = NULL;
        fth_dataset_options options = make_options();
        test_write_text("bad.csv", cases[i].text);
        assert_int_equal(open_set("bad.csv", &options, &dataset), FTH_INVALID);
        assert_message_of(cases[i].text, cases[i].message);
    }
}

static void labels_have_an_end(void **state)
{
    (void)state;
    enum { NUMBERS = 4097 };
    char text[64 + 2 * NUMBERS] = "text,label\na,";
    fth_dataset *dataset = NULL;
    fth_dataset_options options = make_options();
    options.text.label = FTH_LABEL_NUMBER;
    for (size_t i = 0, at = strlen(text); i < NUMBERS; i++, at += 2)
        memcpy(text + at, "1;", 3);
    test_write_text("bad.csv", text);
    assert_int_equal(open_set("bad.csv", &options, &dataset), FTH_INVALID);
    assert_message_of("4097 numbers", "line 2: a label of more than 4096 numbers");
}

static void what_is_for_images_is_refused(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    fth_dataset_options options = make_options();
    fth_loader *loader = NULL;
    uint8_t pixels[1];
    int32_t label;
    test_write_text("some.csv", "text,label\na,x\nb,y\nc,y\n");
    options.transform = "flip";
    assert_int_equal(open_set("some.csv", &options, &dataset), FTH_INVALID);
    assert_message_has("--transform is for images");
    options.transform = NULL;
    assert_int_equal(open_set("some.csv", &options, &dataset), FTH_OK);
    assert_int_equal(fth_dataset_read(dataset, FTH_TRAIN, 0, pixels, &label), FTH_UNSUPPORTED);
    assert_int_equal(fth_loader_open(dataset, &(fth_loader_options){.batch = 1, .by_index = true}, &loader),
                     FTH_UNSUPPORTED);
    assert_int_equal(
        fth_loader_open(dataset, &(fth_loader_options){.batch = 1, .augmentation = {.flip = true}}, &loader),
        FTH_INVALID);
    assert_int_equal(fth_loader_open(dataset, &(fth_loader_options){.batch = 9}, &loader), FTH_INVALID);
    assert_message_has("the 2 training texts of some.csv");
    fth_dataset_free(dataset);
}

static void compressed_tables_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *program, *ending;
    } cases[] = {{"gzip", "gz"}, {"xz", "xz"}, {"zstd -q", "zst"}};
    int read = 0;
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_dataset *dataset = NULL;
        fth_dataset_options options = make_options();
        char command[3 * TEST_MAX_PATH], name[64];
        test_write_text("table.jsonl", "{\"text\":\"a\",\"label\":1}\n{\"text\":\"b\",\"label\":0}\n");
        snprintf(command, sizeof command, "cd '%s' && %s table.jsonl 2>/dev/null", test_folder, cases[i].program);
        if (system(command) != 0)
            continue; /* the program is not there */
        snprintf(name, sizeof name, "table.jsonl.%s", cases[i].ending);
        assert_int_equal(open_set(name, &options, &dataset), FTH_OK);
        assert_int_equal(fth_dataset_get_info(dataset)->classes, 2);
        fth_dataset_free(dataset);
        read++;
    }
    assert_true(read > 0);
}

/* More samples than one thread takes at a time. */
static void threads_change_nothing(void **state)
{
    (void)state;
    enum { COUNT = 5000, BATCH = 250 };
    char *text = malloc(COUNT * 32), *at = text;
    fth_dataset *datasets[2] = {NULL};
    fth_loader *loaders[2] = {NULL};
    assert_non_null(text);
    at += sprintf(at, "text,label\n");
    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k <= i % 11; k++)
            *at++ = (char)(k % 2 ? ' ' : 'a' + i * k % 26);
        at += sprintf(at, ",%d\n", i % 7);
    }
    test_write_text("many.csv", text);
    free(text);
    for (int i = 0; i < 2; i++) {
        fth_dataset_options options = make_options();
        options.threads = i == 0 ? 1 : 4;
        assert_int_equal(open_set("many.csv", &options, &datasets[i]), FTH_OK);
        assert_int_equal(fth_loader_open(datasets[i], &(fth_loader_options){.batch = BATCH, .shuffle = true, .seed = 2},
                                         &loaders[i]),
                         FTH_OK);
    }
    for (int number = 0; number < COUNT / BATCH; number++) {
        const fth_batch *batches[2];
        for (int i = 0; i < 2; i++)
            assert_int_equal(fth_loader_next(loaders[i], test_deadline_in(60), &batches[i]), FTH_OK);
        const fth_text_batch *one = &batches[0]->text, *four = &batches[1]->text;
        assert_int_equal(one->token_count, four->token_count);
        assert_memory_equal(one->tokens, four->tokens, (size_t)one->token_count * sizeof(int32_t));
        assert_memory_equal(one->ends, four->ends, (size_t)batches[0]->count * sizeof(int32_t));
        assert_memory_equal(batches[0]->labels, batches[1]->labels, (size_t)batches[0]->count * sizeof(int32_t));
    }
    for (int i = 0; i < 2; i++) {
        fth_loader_free(loaders[i]);
        fth_dataset_free(datasets[i]);
    }
}

static void a_vocabulary_is_learned(void **state)
{
    (void)state;
    fth_dataset *dataset = NULL;
    fth_dataset_options options = make_options();
    options.text.tokenizer = NULL;
    options.text.vocabulary = 64;
    test_write_text("some.csv", "text,label\nthe cat sat,x\nthe dog sat,y\nthe cow sat,y\nthe hen sat,x\n");
    assert_int_equal(open_set("some.csv", &options, &dataset), FTH_OK);
    const fth_text_info *info = &fth_dataset_get_info(dataset)->text;
    assert_true(fth_tokenizer_size(info->tokenizer) <= 64);
    assert_true(fth_tokenizer_find_token(info->tokenizer, "the") > 0);
    fth_dataset_free(dataset);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_folder_has_parts_and_class_names),
        TEST(other_layouts_are_found),
        TEST(a_set_in_a_store_is_found),
        TEST(rivals_are_refused),
        TEST(held_out_texts_come_once_each),
        TEST(parts_of_a_batch_are_the_batch),
        cmocka_unit_test(batches_by_length_have_like_lengths),
        TEST(pairs_have_two_segments),
        TEST(labels_may_be_numbers_or_sets),
        TEST(classes_of_a_model_are_kept),
        TEST(versions_tell_contents_apart),
        TEST(what_cannot_be_is_refused),
        TEST(labels_have_an_end),
        TEST(what_is_for_images_is_refused),
        TEST(compressed_tables_are_read),
        TEST(threads_change_nothing),
        TEST(a_vocabulary_is_learned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
