/* Hostile .pth files: pickles that want to run code are refused by name, unknown names make opaque
 * values, and whatever does not add up (cut off anywhere, any byte changed, absurd sizes) is an
 * error that costs neither a crash nor memory. */
#include "support.h"

#include <sys/resource.h>

#include "tensor/weights.h"

/* ---- files made byte by byte ---- */

typedef struct bytes {
    unsigned char data[1 << 17];
    size_t size;
} bytes;

static void put(bytes *to, const void *data, size_t size)
{
    assert_true(size <= sizeof to->data - to->size);
    memcpy(to->data + to->size, data, size);
    to->size += size;
}

#define PUT(to, literal) put((to), (literal), sizeof(literal) - 1)

static void put_number(bytes *to, uint64_t value, size_t width)
{
    put(to, &value, width);
}

static void put_text(bytes *to, const char *text)
{
    PUT(to, "X");
    put_number(to, strlen(text), 4);
    put(to, text, strlen(text));
}

static void put_integer(bytes *to, int64_t value)
{
    PUT(to, "\x8a\x08");
    put(to, &value, sizeof value);
}

typedef struct description {
    const char *storage, *key;
    int64_t storage_count, offset, dims[10], strides[10];
    int rank;
} description;

/* The value of a tensor, without its key. */
static void put_tensor(bytes *to, const description *tensor, bool legacy)
{
    PUT(to, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_text(to, "storage");
    PUT(to, "ctorch\n");
    put(to, tensor->storage, strlen(tensor->storage));
    PUT(to, "\n");
    put_text(to, tensor->key);
    put_text(to, "cpu");
    put_integer(to, tensor->storage_count);
    if (legacy)
        PUT(to, "N");
    PUT(to, "tQ");
    put_integer(to, tensor->offset);
    for (int which = 0; which < 2; which++) {
        PUT(to, "(");
        for (int i = 0; i < tensor->rank; i++)
            put_integer(to, which ? tensor->strides[i] : tensor->dims[i]);
        PUT(to, "t");
    }
    PUT(to, "\x89}tR");
}

typedef struct zip_file {
    const char *name;
    const void *data;
    uint64_t size;
} zip_file;

static void put_zip_header(bytes *to, bool central, const zip_file *file, uint32_t local)
{
    if (central)
        PUT(to, "PK\1\2\0\0\0\0\0\0\0\0");
    else
        PUT(to, "PK\3\4\0\0\0\0\0\0");
    put_number(to, 0, 4); /* time */
    put_number(to, 0, 4); /* checksum */
    put_number(to, file->size, 4);
    put_number(to, file->size, 4);
    put_number(to, strlen(file->name), 2);
    put_number(to, 0, 2);
    if (central) {
        put_number(to, 0, 8); /* comment, disk, attributes */
        put_number(to, 0, 2);
        put_number(to, local, 4);
    }
    put(to, file->name, strlen(file->name));
}

static void put_zip(bytes *to, const zip_file *files, size_t count)
{
    uint32_t locals[8];
    assert_true(count <= 8);
    for (size_t i = 0; i < count; i++) {
        locals[i] = (uint32_t)to->size;
        put_zip_header(to, false, &files[i], 0);
        put(to, files[i].data, files[i].size);
    }
    size_t directory = to->size;
    for (size_t i = 0; i < count; i++) {
        size_t before = to->size;
        put_zip_header(to, true, &files[i], locals[i]);
        assert_int_equal(to->size - before, 46 + strlen(files[i].name));
    }
    uint64_t directory_size = to->size - directory;
    PUT(to, "PK\5\6\0\0\0\0");
    put_number(to, count, 2);
    put_number(to, count, 2);
    put_number(to, directory_size, 4);
    put_number(to, directory, 4);
    put_number(to, 0, 2);
}

/* ---- and read ---- */

static fth_status parse(const void *data, size_t size, const char *key)
{
    /* an exact copy on the heap, so that the address sanitizer sees a read past the end */
    unsigned char *copy = malloc(size ? size : 1);
    fth_weights *weights = NULL;
    assert_non_null(copy);
    memcpy(copy, data, size);
    fth_status status = fth_weights_parse(copy, size, "test file", key, &weights);
    if (status == FTH_OK) {
        for (size_t i = 0; i < fth_weights_count(weights); i++) {
            const fth_tensor_view *view = fth_weights_get(weights, i);
            size_t count = (size_t)fth_shape_count(&view->shape);
            float *values = malloc((count + 1) * sizeof *values);
            assert_non_null(values);
            assert_int_equal(fth_tensor_view_to_f32(view, values, count), FTH_OK);
            free(values);
            assert_ptr_equal(fth_weights_find(weights, view->name), view);
        }
    } else {
        assert_null(weights);
        assert_int_not_equal(status, FTH_NO_MEMORY); /* nothing absurd was asked for */
        if (!strstr(fth_error_message(), "test file"))
            fail_msg("the message does not name the file: %s", fth_error_message());
    }
    fth_weights_free(weights);
    free(copy);
    return status;
}

static void check(fth_status expected, const char *words, const bytes *file)
{
    fth_status status = parse(file->data, file->size, "");
    if (status != expected || (status != FTH_OK && !strstr(fth_error_message(), words)))
        fail_msg("%s: \"%s\" does not say \"%s\"", fth_status_name(status), fth_error_message(), words);
}

/* A zip archive around a pickle and one storage, "0", of eight bytes. */
static void wrap(const bytes *pickle, bytes *file)
{
    const zip_file files[] = {{"any/data.pkl", pickle->data, pickle->size}, {"any/data/0", "\0\0\200?\0\0\0@", 8}};
    file->size = 0;
    put_zip(file, files, 2);
}

static bytes pickle, file;

static void check_pickle(fth_status expected, const char *words)
{
    wrap(&pickle, &file);
    check(expected, words, &file);
}

static void check_tensor(description tensor, fth_status expected, const char *words)
{
    pickle.size = 0;
    PUT(&pickle, "\x80\x02}");
    put_text(&pickle, "w");
    put_tensor(&pickle, &tensor, false);
    PUT(&pickle, "s.");
    check_pickle(expected, words);
}

static const description two_floats = {"FloatStorage", "0", 2, 0, {2}, {1}, 1};

/* ---- code ---- */

static void check_refused(const void *data, size_t size, const char *words)
{
    pickle.size = 0;
    put(&pickle, data, size);
    check_pickle(FTH_UNSUPPORTED, words);
}

#define CHECK_REFUSED(literal, words) check_refused((literal), sizeof(literal) - 1, (words))

static void test_pickles_that_run_code_are_refused_by_name(void **state)
{
    (void)state;
    CHECK_REFUSED("\x80\x02"
                  "cos\nsystem\nX\x04\0\0\0true\x85R.",
                  "refused: GLOBAL 'os system' at byte 2: this file wants to run code; farthing reads tensors only");
    CHECK_REFUSED("\x80\x02"
                  "cposix\nsystem\n.",
                  "GLOBAL 'posix system' at byte 2");
    CHECK_REFUSED("\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c\x02os\x94\x8c\x06system\x94\x93\x94)R.",
                  "refused: STACK_GLOBAL 'os system' at byte 25");
    CHECK_REFUSED("\x80\x02"
                  "cbuiltins\neval\nX\x01\0\0\0"
                  "1\x85R.",
                  "GLOBAL 'builtins eval'");
    CHECK_REFUSED("\x80\x02"
                  "c__builtin__\nexecfile\n.",
                  "GLOBAL '__builtin__ execfile'");
    CHECK_REFUSED("\x80\x02"
                  "cos.path\njoin\n.",
                  "GLOBAL 'os.path join'");
    /* as a value beside weights */
    CHECK_REFUSED("\x80\x02}X\x01\0\0\0wcsubprocess\nPopen\nX\x02\0\0\0id\x85Rs.",
                  "GLOBAL 'subprocess Popen' at byte 9");
    /* the same, where a tensor's hooks are expected */
    CHECK_REFUSED("\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(cos\nsystem\nX\x02\0\0\0id\x85RtRs.",
                  "GLOBAL 'os system' at byte 43");
    /* names of torch that read other files */
    CHECK_REFUSED("\x80\x02"
                  "ctorch.hub\nload\n.",
                  "GLOBAL 'torch.hub load'");
    CHECK_REFUSED("\x80\x02"
                  "ctorch\nload\n.",
                  "GLOBAL 'torch load'");
    CHECK_REFUSED("\x80\x02"
                  "ctorch.storage\n_load_from_bytes\n.",
                  "GLOBAL 'torch.storage _load_from_bytes'");
    CHECK_REFUSED("\x80\x02(ios\nsystem\n.", "INST 'os system'");
    CHECK_REFUSED("\x80\x02(icollections\nOrderedDict\n.", "INST of a class");
    /* known names in the wrong place */
    CHECK_REFUSED("\x80\x02"
                  "ctorch\nFloatStorage\n)R.",
                  "REDUCE of 'torch FloatStorage'");
    CHECK_REFUSED("\x80\x02]N\x85R.", "REDUCE of something that is not a name");
    CHECK_REFUSED("\x80\x02K\x01}b.", "BUILD of something that has no attributes");
    CHECK_REFUSED("\x80\x02(ccollections\nOrderedDict\no.", "opcode OBJ at byte 28");
    CHECK_REFUSED("\x80\x02\x82\x01.", "opcode EXT1");
    CHECK_REFUSED("\x80\x02P0\n.", "opcode PERSID");
    /* a message cannot move the cursor */
    CHECK_REFUSED("\x80\x02"
                  "cos.\x1b[2J\nx\n.",
                  "GLOBAL 'os.?[2J x'");
}

/* Names that are in no table are never looked up: they make values without content, in place of
 * which no tensor is ever read. */
static void test_foreign_names_are_inert(void **state)
{
    static const struct {
        const char *data;
        size_t size;
        fth_status status;
        const char *words;
    } cases[] = {
#define CASE(literal, status, words) {literal, sizeof(literal) - 1, status, words}
        CASE("\x80\x02"
             "c__builtin__\ngetattr\n.",
             FTH_INVALID, "holds the name __builtin__.getattr"),
        CASE("\x80\x02"
             "cmymodule\nMyClass\n)\x81.",
             FTH_UNSUPPORTED, "refused: it holds an object of mymodule.MyClass"),
        CASE("\x80\x04"
             "cmymodule\nMyClass\n)}\x92}b.",
             FTH_UNSUPPORTED, "an object of mymodule.MyClass"),
        CASE("\x80\x02"
             "cmymodule\nmake\n)R)R.",
             FTH_UNSUPPORTED, "an object of mymodule.make"),
        CASE("\x80\x02"
             "c\x1b[2J\nx\n)\x81.",
             FTH_UNSUPPORTED, "an object of ?[2J.x"),
        /* near misses of known names */
        CASE("\x80\x02"
             "ccollections\nOrderedDictionary\n.",
             FTH_INVALID, "holds the name collections.OrderedDictionary"),
        CASE("\x80\x02"
             "ctorch\nFloatStorage.__init__\n.",
             FTH_INVALID, "holds the name torch.FloatStorage.__init__"),
        /* where a tensor needs them */
        CASE("\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(cmymodule\nStorage\n)RK\0))tRs.",
             FTH_UNSUPPORTED, "lies in a mymodule.Storage"),
        CASE("\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_qtensor\n)Rs.", FTH_UNSUPPORTED,
             "tensor 'w' is refused: it is made by torch._utils._rebuild_qtensor"),
        CASE("\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_parameter\nctorch._utils\n_rebuild_qtensor\n)R\x85Rs.",
             FTH_UNSUPPORTED, "made by torch._utils._rebuild_qtensor"),
        CASE("\x80\x02}X\x01\0\0\0wcmymodule\ntensor\n)Rs.", FTH_INVALID, "it has w (an object of mymodule.tensor)"),
#undef CASE
    };
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        pickle.size = 0;
        put(&pickle, cases[i].data, cases[i].size);
        check_pickle(cases[i].status, cases[i].words);
    }

    pickle.size = 0; /* a thousand of them, beside a tensor in a dictionary of a foreign class */
    PUT(&pickle, "\x80\x02"
                 "cmymodule\nDict\n)R");
    put_text(&pickle, "w");
    put_tensor(&pickle, &two_floats, false);
    PUT(&pickle, "s");
    for (int i = 0; i < 1000; i++) {
        char name[64];
        snprintf(name, sizeof name, "cmodule%d\nC\n0", i);
        put(&pickle, name, strlen(name));
    }
    PUT(&pickle, ".");
    check_pickle(FTH_OK, "");
}

static void test_bare_pickles_are_refused_too(void **state)
{
    (void)state;
    static const char text[] = "cos\nsystem\n(S'true'\ntR.";
    assert_int_equal(parse(text, sizeof text - 1, ""), FTH_UNSUPPORTED);
    assert_message_has("refused: GLOBAL 'os system' at byte 0");
    static const char binary[] = "\x80\x02"
                                 "cnt\nsystem\n.";
    assert_int_equal(parse(binary, sizeof binary - 1, ""), FTH_UNSUPPORTED);
    assert_message_has("refused: GLOBAL 'nt system' at byte 2");
    static const char other[] = "\x80\x02}.";
    assert_int_equal(parse(other, sizeof other - 1, ""), FTH_INVALID);
    assert_message_has("torch.save() did not write");
}

/* ---- tensors ---- */

static void test_tensors_must_lie_within_their_storage(void **state)
{
    const int64_t huge = INT64_C(1) << 62;
    (void)state;
    check_tensor(two_floats, FTH_OK, "");
    check_tensor((description){"FloatStorage", "0", 2, 0, {2, 1}, {1, huge}, 2}, FTH_OK, "");
    check_tensor((description){"FloatStorage", "0", 2, 0, {4, 8}, {0, 0}, 2}, FTH_OK, "");
    check_tensor((description){"FloatStorage", "0", 2, 7, {0}, {1}, 1}, FTH_OK, "");

    check_tensor((description){"FloatStorage", "0", 2, 1, {2}, {1}, 1}, FTH_CORRUPT, "reaches beyond its storage of 2");
    check_tensor((description){"FloatStorage", "0", 2, -1, {2}, {1}, 1}, FTH_CORRUPT, "reaches beyond");
    check_tensor((description){"FloatStorage", "0", 2, huge, {1}, {1}, 1}, FTH_CORRUPT, "reaches beyond");
    check_tensor((description){"FloatStorage", "0", 2, 0, {3}, {1}, 1}, FTH_CORRUPT, "reaches beyond");
    check_tensor((description){"FloatStorage", "0", 2, 0, {2}, {2}, 1}, FTH_CORRUPT, "reaches beyond");
    check_tensor((description){"FloatStorage", "0", 2, 0, {3}, {INT64_MAX}, 1}, FTH_CORRUPT, "reaches beyond");
    check_tensor((description){"FloatStorage", "0", 2, 0, {2}, {-1}, 1}, FTH_CORRUPT, "stride 0 is not");
    check_tensor((description){"FloatStorage", "0", 2, 0, {-2}, {1}, 1}, FTH_CORRUPT, "dimension 0 is not");
    check_tensor((description){"FloatStorage", "0", 2, 0, {huge, huge}, {0, 0}, 2}, FTH_CORRUPT, "impossibly large");
    check_tensor((description){"FloatStorage", "0", 2, 0, {1 << 20, 1 << 20}, {0, 0}, 2}, FTH_UNSUPPORTED,
                 "tensor 'w' is expanded to far more");
    check_tensor((description){"FloatStorage", "0", 3, 0, {2}, {1}, 1}, FTH_CORRUPT, "should have 3 elements");
    check_tensor((description){"DoubleStorage", "0", 2, 0, {2}, {1}, 1}, FTH_CORRUPT, "should have 2 elements");
    check_tensor((description){"FloatStorage", "0", huge, 0, {2}, {1}, 1}, FTH_CORRUPT, "elements; the file has 8");
    check_tensor((description){"FloatStorage", "1", 2, 0, {2}, {1}, 1}, FTH_CORRUPT, "storage '1', which the file");
    check_tensor((description){"FloatStorage", "0", 2, 0, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1}, 9}, FTH_UNSUPPORTED,
                 "9 dimensions");
    check_tensor((description){"ComplexFloatStorage", "0", 1, 0, {1}, {1}, 1}, FTH_UNSUPPORTED, "complex64");
}

static void test_names_must_be_names(void **state)
{
    static const char *const bad[] = {"", "a\nb", "\x1b[2J"};
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(bad); i++) {
        pickle.size = 0;
        PUT(&pickle, "\x80\x02}");
        put_text(&pickle, bad[i]);
        put_tensor(&pickle, &two_floats, false);
        PUT(&pickle, "s.");
        check_pickle(FTH_CORRUPT, "is no name for a tensor");
    }
    pickle.size = 0;
    PUT(&pickle, "\x80\x02}");
    for (int i = 0; i < 2; i++) {
        put_text(&pickle, "w");
        put_tensor(&pickle, &two_floats, false);
        PUT(&pickle, "s");
    }
    PUT(&pickle, ".");
    check_pickle(FTH_CORRUPT, "two tensors are called 'w'");
}

/* ---- structures ---- */

static void test_damaged_pickles_are_errors(void **state)
{
    static const struct {
        const char *data;
        size_t size;
        const char *words;
    } cases[] = {
#define CASE(literal, words) {literal, sizeof(literal) - 1, words}
        CASE("", "the pickle has no end"),
        CASE("\x80\x02", "the pickle has no end"),
        CASE("\x80\x02.", "nothing left on the stack"),
        CASE("\x80\x09N.", "a protocol that does not exist"),
        CASE("\x80\x02(.", "nothing left on the stack"),
        CASE("\x80\x02N(.", "nothing left on the stack"),
        CASE("\x80\x02t.", "no mark to go back to"),
        CASE("\x80\x02\x85.", "nothing left"),
        CASE("\x80\x02(N\x86.", "nothing left"),
        CASE("\x80\x02X\xff\xff\xff\x7f.", "the file ends within it"),
        CASE("\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "the file ends within it"),
        CASE("\x80\x02\x8b\xff\xff\xff\xff.", "the file ends within it"),
        CASE("\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xffN.", "the frame is longer than the file"),
        CASE("\x80\x02h\x01.", "a memo that was never put"),
        CASE("\x80\x02Nr\xff\xff\xff\xff.", "a memo that nobody needs"),
        CASE("\x80\x02Nr\xff\xff\xff\0.", "a memo that nobody needs"),
        CASE("\x80\x02}(Nu.", "a key without a value"),
        CASE("\x80\x02N(NNu.", "it adds to something else"),
        CASE("\x80\x02NNa.", "it adds to something else"),
        CASE("\x80\x02NQ.", "a persistent id that is not a storage"),
        CASE("\x80\x02"
             "cos",
             "a name without an end"),
        CASE("\x80\x02\xff.", "is not an opcode"),
        CASE("\x80\x02"
             "ccollections\nOrderedDict\nN\x85R.",
             "not a list of pairs"),
        CASE("\x80\x02"
             "ctorch._utils\n_rebuild_tensor_v2\n)R.",
             "not described by storage"),
        CASE("\x80\x02"
             "ctorch._utils\n_rebuild_parameter\nN\x85R.",
             "a parameter that is not a tensor"),
        CASE("\x80\x02"
             "ctorch\nSize\nN\x85R.",
             "a torch.Size that is not made of a tuple"),
#undef CASE
    };
    (void)state;
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        pickle.size = 0;
        put(&pickle, cases[i].data, cases[i].size);
        check_pickle(FTH_CORRUPT, cases[i].words);
    }
}

/* The old format has the class of a saved model, with its source, where storages are. */
static void test_a_whole_model_of_the_old_format_is_refused_by_name(void **state)
{
    (void)state;
    pickle.size = 0;
    PUT(&pickle, "\x80\x02(X\6\0\0\0module"
                 "c__main__\nNet\n"
                 "X\1\0\0\0aX\1\0\0\0btQ)\x81}b.");
    check_pickle(FTH_UNSUPPORTED, "an object of __main__.Net, which only that class's own code can rebuild");
    pickle.size = 0; /* anything else in that place is no class */
    PUT(&pickle, "\x80\x02(X\6\0\0\0moduleNX\1\0\0\0aX\1\0\0\0btQ.");
    check_pickle(FTH_CORRUPT, "a persistent id that is not a storage");
}

/* Dictionaries within dictionaries, in themselves, and shared a thousandfold. */
static void test_tangled_dictionaries_end(void **state)
{
    (void)state;
    pickle.size = 0; /* d["d"] = d */
    PUT(&pickle, "\x80\x02}q\1X\1\0\0\0dh\1s.");
    check_pickle(FTH_INVALID, "no dictionary of tensors");
    wrap(&pickle, &file);
    assert_int_equal(parse(file.data, file.size, "d.d.d.d.d.d.x"), FTH_INVALID);

    pickle.size = 0; /* each level twice in the next: 2^40 ways to the innermost */
    PUT(&pickle, "\x80\x02}q\1");
    for (int i = 0; i < 40; i++)
        PUT(&pickle, "0}X\1\0\0\0ah\1sX\1\0\0\0bh\1sq\1");
    PUT(&pickle, ".");
    check_pickle(FTH_INVALID, "no dictionary of tensors");
    wrap(&pickle, &file);
    assert_int_equal(parse(file.data, file.size, "a.b.a.b.a.b.a.b.c"), FTH_INVALID);

    pickle.size = 0; /* a nest of 20,000 lists */
    PUT(&pickle, "\x80\x02");
    for (int i = 0; i < 20000; i++)
        PUT(&pickle, "]");
    for (int i = 1; i < 20000; i++)
        PUT(&pickle, "a");
    PUT(&pickle, ".");
    check_pickle(FTH_INVALID, "holds a list");

    pickle.size = 0;
    PUT(&pickle, "\x80\x02");
    for (int i = 0; i < 2000; i++)
        PUT(&pickle, "(");
    check_pickle(FTH_CORRUPT, "nested too deeply");
}

/* One long name for each of many tensors; a large dictionary that looks like an optimizer, in many
 * places. */
static void test_shared_parts_cost_little(void **state)
{
    char name[1000];
    (void)state;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    pickle.size = 0;
    PUT(&pickle, "\x80\x02}(");
    put_text(&pickle, name);
    PUT(&pickle, "q\1");
    put_tensor(&pickle, &two_floats, false);
    PUT(&pickle, "q\2");
    for (int i = 0; i < 20000; i++)
        PUT(&pickle, "h\1h\2");
    PUT(&pickle, "u.");
    check_pickle(FTH_CORRUPT, "two tensors are called 'nnnn");

    pickle.size = 0;
    PUT(&pickle, "\x80\x02}(X\x0c\0\0\0param_groupsNX\5\0\0\0stateN");
    for (int i = 0; i < 20000; i++)
        PUT(&pickle, "NN");
    PUT(&pickle, "uq\1X\1\0\0\0aq\2}(");
    for (int i = 0; i < 10000; i++)
        PUT(&pickle, "h\2h\1");
    PUT(&pickle, "u.");
    check_pickle(FTH_INVALID, "no dictionary of tensors");
}

/* A list of a thousand pairs that is made an OrderedDict ten thousand times. */
static void test_small_pickles_do_not_unfold(void **state)
{
    (void)state;
    pickle.size = 0;
    PUT(&pickle, "\x80\x02"
                 "ccollections\nOrderedDict\nq\1]NN\x86q\3");
    PUT(&pickle, "0(");
    for (int i = 0; i < 1000; i++)
        PUT(&pickle, "h\3");
    PUT(&pickle, "e\x85q\2");
    for (int i = 0; i < 10000; i++)
        PUT(&pickle, "0h\1h\2R");
    PUT(&pickle, ".");
    check_pickle(FTH_CORRUPT, "unfolds into far more");
}

/* ---- archives ---- */

static void test_damaged_archives_are_errors(void **state)
{
    static bytes whole;
    (void)state;
    pickle.size = 0;
    PUT(&pickle, "\x80\x02}");
    put_text(&pickle, "w");
    put_tensor(&pickle, &two_floats, false);
    PUT(&pickle, "s.");
    wrap(&pickle, &whole);
    check(FTH_OK, "", &whole);
    size_t end = whole.size - 22, second = end - (46 + strlen("any/data/0")),
           first = second - (46 + strlen("any/data.pkl"));

    const struct {
        size_t at, width;
        uint64_t value;
        fth_status status;
        const char *words;
    } cases[] = {
        {end + 10, 2, 3, FTH_CORRUPT, "more entries than its directory has room for"},
        {end + 10, 2, 0xffff, FTH_CORRUPT, "more entries"},
        {end + 12, 4, 0xffffffff, FTH_CORRUPT, "directory lies outside"},
        {end + 16, 4, 0xffffffff, FTH_CORRUPT, "directory lies outside"},
        {end + 16, 4, 0, FTH_CORRUPT, "a directory entry is missing"},
        {end + 4, 2, 1, FTH_UNSUPPORTED, "in several parts"},
        {first + 10, 2, 8, FTH_UNSUPPORTED, "compressed entries"},
        {first + 8, 2, 1, FTH_UNSUPPORTED, "encrypted entries"},
        {first + 28, 2, 0xffff, FTH_CORRUPT, "a directory entry is cut off"},
        {second + 42, 4, 0, FTH_CORRUPT, "entries overlap"},
        {second + 42, 4, 0x7fffffff, FTH_CORRUPT, "an entry lies outside"},
        {second + 42, 4, 0xffffffff, FTH_CORRUPT, "an entry lies outside"},
        {second + 24, 4, 0xffffffff, FTH_CORRUPT, "an entry is larger"},
        {second + 20, 4, 7, FTH_CORRUPT, "an entry is larger"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        file = whole;
        memcpy(file.data + cases[i].at, &cases[i].value, cases[i].width);
        check(cases[i].status, cases[i].words, &file);
    }
    file = whole; /* the pickle is then in another folder than its storage */
    file.data[first + 46] = 'x';
    check(FTH_CORRUPT, "which the file does not have", &file);

    const zip_file twice[] = {{"a/data.pkl", "N.", 2}, {"a/data.pkl", "N.", 2}};
    file.size = 0;
    put_zip(&file, twice, 2);
    check(FTH_CORRUPT, "two entries have the same name", &file);
    const zip_file two_roots[] = {{"a/data.pkl", "N.", 2}, {"b/data.pkl", "N.", 2}};
    file.size = 0;
    put_zip(&file, two_roots, 2);
    check(FTH_CORRUPT, "more than one data.pkl", &file);
    const zip_file other[] = {{"a/b/data.pkl", "N.", 2}, {"xdata.pkl", "N.", 2}, {"weights.npy", "", 0}};
    file.size = 0;
    put_zip(&file, other, 3);
    check(FTH_INVALID, "a zip archive without data.pkl", &file);
    const zip_file foreign[] = {{"data.pkl", pickle.data, pickle.size}, {"byteorder", "big", 3}};
    file.size = 0;
    put_zip(&file, foreign, 2);
    check(FTH_UNSUPPORTED, "big-endian", &file);
}

/* Zip64 stands in where 32 bits are full, and its absurd values are errors. */
static void test_zip64(void **state)
{
    (void)state;
    for (int bad = 0; bad < 4; bad++) {
        const char *name = "data.pkl";
        const uint64_t size = bad == 1 ? UINT64_MAX - 5 : bad == 2 ? (uint64_t)1 << 40 : 0;
        file.size = 0;
        pickle.size = 0;
        PUT(&pickle, "\x80\x02N.");
        const zip_file local = {name, pickle.data, pickle.size};
        put_zip_header(&file, false, &local, 0);
        put(&file, pickle.data, pickle.size);
        size_t directory = file.size;
        PUT(&file, "PK\1\2\0\0\0\0\0\0\0\0");
        put_number(&file, 0, 8);
        put_number(&file, 0xffffffff, 4);
        put_number(&file, 0xffffffff, 4);
        put_number(&file, strlen(name), 2);
        put_number(&file, 28, 2);
        put_number(&file, 0, 8);
        put_number(&file, 0, 2);
        put_number(&file, 0xffffffff, 4);
        put(&file, name, strlen(name));
        PUT(&file, "\1\0\30\0");
        put_number(&file, size ? size : pickle.size, 8);
        put_number(&file, size ? size : pickle.size, 8);
        put_number(&file, bad == 3 ? UINT64_MAX : 0, 8);
        size_t end64 = file.size;
        PUT(&file, "PK\6\6");
        put_number(&file, 44, 8);
        put_number(&file, 0, 8);
        put_number(&file, 0, 4);
        put_number(&file, 1, 8);
        put_number(&file, 1, 8);
        put_number(&file, end64 - directory, 8);
        put_number(&file, directory, 8);
        PUT(&file, "PK\6\7\0\0\0\0");
        put_number(&file, end64, 8);
        put_number(&file, 1, 4);
        PUT(&file, "PK\5\6\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0");
        if (bad)
            check(FTH_CORRUPT, bad == 3 ? "an entry lies outside" : "an entry is larger", &file);
        else
            check(FTH_INVALID, "holds None", &file); /* so it was read */
    }
}

/* ---- the old format ---- */

static void put_legacy(bytes *to, const description *tensor, const char *listed_key)
{
    PUT(to, "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}");
    put_text(to, "little_endian");
    PUT(to, "\x88s.\x80\x02}");
    put_text(to, "w");
    put_tensor(to, tensor, true);
    PUT(to, "s.\x80\x02]");
    put_text(to, listed_key);
    PUT(to, "a.");
}

static void check_legacy(description tensor, const char *listed_key, int64_t count, fth_status expected,
                         const char *words)
{
    file.size = 0;
    put_legacy(&file, &tensor, listed_key);
    put(&file, &count, sizeof count);
    PUT(&file, "\0\0\200?\0\0\0@");
    check(expected, words, &file);
}

static void test_old_files_must_add_up(void **state)
{
    (void)state;
    check_legacy(two_floats, "0", 2, FTH_OK, "");
    check_legacy(two_floats, "0", 3, FTH_CORRUPT, "truncated: storage '0'");
    check_legacy(two_floats, "0", -1, FTH_CORRUPT, "truncated: storage '0'");
    check_legacy(two_floats, "0", INT64_MAX, FTH_CORRUPT, "truncated: storage '0'");
    check_legacy(two_floats, "0", (INT64_C(1) << 62) + 2, FTH_CORRUPT, "truncated: storage '0'");
    check_legacy(two_floats, "0", 1, FTH_CORRUPT, "its storage should have 2 elements");
    check_legacy(two_floats, "1", 2, FTH_CORRUPT, "that no tensor uses");
    check_legacy((description){"FloatStorage", "0", 2, 0, {2}, {2}, 1}, "0", 2, FTH_CORRUPT, "reaches beyond");

    file.size = 0; /* views of storages, as versions before 0.4 wrote them */
    PUT(&file, "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}");
    put_text(&file, "little_endian");
    PUT(&file, "\x88s.\x80\x02}");
    put_text(&file, "w");
    PUT(&file, "ctorch._utils\n_rebuild_tensor\n((");
    put_text(&file, "storage");
    PUT(&file, "ctorch\nFloatStorage\n");
    put_text(&file, "0");
    put_text(&file, "cpu");
    PUT(&file, "K\2");
    put_text(&file, "1");
    size_t view_start = file.size + 1;
    PUT(&file, "K\1K\1\x87tQK\0K\1\x85K\1\x85tRs.\x80\x02]");
    put_text(&file, "0");
    PUT(&file, "a.\2\0\0\0\0\0\0\0\0\0\200?\0\0\0@");
    fth_weights *weights = NULL;
    assert_int_equal(fth_weights_parse(file.data, file.size, "old", "", &weights), FTH_OK);
    assert_memory_equal(fth_weights_get(weights, 0)->data, "\0\0\0@", 4);
    fth_weights_free(weights);
    file.data[view_start] = 2;
    check(FTH_CORRUPT, "its storage should have 1 elements", &file);
}

/* ---- real files, broken ---- */

static char *read_fixture(const char *name, size_t *size)
{
    const char *tests = getenv("TEST_DATA");
    char *path = fth_format("%s/torch/pth/%s", tests ? tests : "tests", name), *content = NULL;
    if (fth_file_read_all(path, 1 << 20, &content, size) != FTH_OK)
        fail_msg("%s", fth_error_message());
    free(path);
    return content;
}

static const char *const fixtures[] = {"protocol4.pth", "legacy.pth", "legacy-protocol4.pth", "unsigned.pth"};

static void test_files_cut_off_anywhere_are_errors(void **state)
{
    (void)state;
    for (size_t f = 0; f < FTH_COUNT_OF(fixtures); f++) {
        size_t size = 0;
        char *content = read_fixture(fixtures[f], &size);
        assert_int_equal(parse(content, size, ""), FTH_OK);
        for (size_t length = 0; length < size; length++) {
            if (parse(content, length, "") == FTH_OK)
                fail_msg("%s: cut off at byte %zu, and nobody noticed", fixtures[f], length);
        }
        free(content);
    }
}

static void test_files_with_any_byte_changed_are_harmless(void **state)
{
    static const unsigned char changes[] = {0x01, 0x80, 0xff};
    (void)state;
    for (size_t f = 0; f < FTH_COUNT_OF(fixtures); f++) {
        size_t size = 0;
        char *content = read_fixture(fixtures[f], &size);
        for (size_t at = 0; at < size; at++) {
            for (size_t c = 0; c < FTH_COUNT_OF(changes); c++) {
                content[at] = (char)(content[at] ^ changes[c]);
                (void)parse(content, size, "");
                content[at] = (char)(content[at] ^ changes[c]);
            }
        }
        free(content);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pickles_that_run_code_are_refused_by_name),
        cmocka_unit_test(test_foreign_names_are_inert),
        cmocka_unit_test(test_bare_pickles_are_refused_too),
        cmocka_unit_test(test_tensors_must_lie_within_their_storage),
        cmocka_unit_test(test_names_must_be_names),
        cmocka_unit_test(test_damaged_pickles_are_errors),
        cmocka_unit_test(test_a_whole_model_of_the_old_format_is_refused_by_name),
        cmocka_unit_test(test_tangled_dictionaries_end),
        cmocka_unit_test(test_shared_parts_cost_little),
        cmocka_unit_test(test_small_pickles_do_not_unfold),
        cmocka_unit_test(test_damaged_archives_are_errors),
        cmocka_unit_test(test_zip64),
        cmocka_unit_test(test_old_files_must_add_up),
        cmocka_unit_test(test_files_cut_off_anywhere_are_errors),
        cmocka_unit_test(test_files_with_any_byte_changed_are_harmless),
    };
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    /* No file here is larger than 200 kB; one that makes us ask for much more gets FTH_NO_MEMORY,
     * which is a failure. */
    const struct rlimit limit = {.rlim_cur = 128 << 20, .rlim_max = 128 << 20};
    (void)setrlimit(RLIMIT_DATA, &limit);
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
