/* Options: every type, from flags, YAML and JSON, and what is said when something is wrong. */
#include "support.h"

#include <math.h>
#include <unistd.h>

#include "base/base.h"
#include "base/options.h"

typedef struct settings {
    fth_option_bits set;
    char *model;
    int64_t epochs;
    double lr;
    double weight_decay;
    bool json;
    bool shuffle;
    char *optimizer;
    double for_s;
    char *resume;
    char *until;
    int64_t count;
    char *pairs;
    double smoothing;
} settings;

static fth_status check_until(const char *text)
{
    return strchr(text, '=') ? FTH_OK : fth_fail(FTH_INVALID, "write accuracy=0.99");
}

static const char *const optimizers[] = {"sgd", "adamw", NULL};

#define AT(member) offsetof(settings, member)
static const fth_option rows[] = {
    {.name = "model",
     .type = FTH_OPTION_TEXT,
     .offset = AT(model),
     .fallback = "mnist-cnn",
     .argument = "NAME",
     .help = "network to train",
     .identity = true,
     .group = "What to train"},
    {.name = "epochs",
     .type = FTH_OPTION_INTEGER,
     .offset = AT(epochs),
     .fallback = "3",
     .argument = "N",
     .help = "passes over the data",
     .minimum = 1,
     .maximum = 1000,
     .identity = true},
    {.name = "lr",
     .alias = "learning-rate",
     .type = FTH_OPTION_NUMBER,
     .offset = AT(lr),
     .fallback = "0.01",
     .argument = "X",
     .help = "learning rate; a long explanation that has to go on to a second line, because it says a great deal more "
             "than fits",
     .minimum = 0,
     .maximum = 100,
     .identity = true,
     .group = "How"},
    {.name = "weight-decay", .type = FTH_OPTION_NUMBER, .offset = AT(weight_decay), .argument = "X", .help = "decay"},
    {.name = "json", .type = FTH_OPTION_SWITCH, .offset = AT(json), .help = "events | lines"},
    {.name = "shuffle", .type = FTH_OPTION_SWITCH, .offset = AT(shuffle), .fallback = "yes", .help = "shuffle"},
    {.name = "optimizer",
     .type = FTH_OPTION_CHOICE,
     .offset = AT(optimizer),
     .fallback = "sgd",
     .argument = "NAME",
     .help = "update rule",
     .choices = optimizers,
     .identity = true},
    {.name = "for", .type = FTH_OPTION_DURATION, .offset = AT(for_s), .argument = "TIME", .help = "time limit"},
    {.name = "resume", .type = FTH_OPTION_OPTIONAL, .offset = AT(resume), .argument = "ID", .help = "continue"},
    {.name = "until",
     .type = FTH_OPTION_TEXT,
     .offset = AT(until),
     .argument = "GOAL",
     .help = "goal",
     .repeats = true,
     .check = check_until},
    {.name = "count",
     .type = FTH_OPTION_INTEGER,
     .offset = AT(count),
     .argument = "N",
     .letter = 'n',
     .help = "any number"},
    {.name = "pair",
     .type = FTH_OPTION_TEXT,
     .offset = AT(pairs),
     .argument = "K=V",
     .repeats = true,
     .lines = true,
     .help = "pairs"},
    {.name = "smoothing",
     .type = FTH_OPTION_NUMBER,
     .offset = AT(smoothing),
     .argument = "X",
     .maximum = 0.9,
     .help = "a share"},
};
static const fth_option_table table = {.options = rows, .count = FTH_COUNT_OF(rows), .struct_size = sizeof(settings)};

static settings values;
enum { MAX_ARGUMENTS = 64 };
static const char *positional[MAX_ARGUMENTS];
static int positional_count;
static bool help;
static char yaml[TEST_MAX_PATH];

static int set_up(void **state)
{
    if (test_make_folder(state) != 0)
        return -1;
    test_path(yaml, "run.yaml");
    return (int)fth_options_set_defaults(&table, &values);
}

static int tear_down(void **state)
{
    fth_options_release(&table, &values);
    return test_remove_folder(state);
}

/* Reads flags given as one string, separated by single spaces. */
static fth_status read_flags(const char *line)
{
    static char copy[512];
    char *arguments[MAX_ARGUMENTS];
    int count = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word && count < MAX_ARGUMENTS; word = strtok(NULL, " "))
        arguments[count++] = word;
    return fth_options_read_flags(&table, &values, count, arguments, positional, &positional_count, &help);
}

static fth_status read_yaml(const char *text, size_t size)
{
    assert_int_equal(fth_file_write_all(yaml, text, size), FTH_OK);
    return fth_options_read_yaml(&table, &values, yaml);
}

static void assert_bad_flags(const char *line, const char *expected)
{
    assert_int_equal(read_flags(line), FTH_INVALID);
    assert_message_of(line, expected);
}

static void assert_bad_yaml(const char *text, const char *expected)
{
    assert_int_equal(read_yaml(text, strlen(text)), FTH_INVALID);
    assert_message_of(text, expected);
}

static void defaults_are_set(void **state)
{
    (void)state;
    assert_string_equal(values.model, "mnist-cnn");
    assert_int_equal(values.epochs, 3);
    assert_true(values.lr == 0.01 && values.weight_decay == 0 && values.for_s == 0);
    assert_true(values.shuffle && !values.json);
    assert_string_equal(values.optimizer, "sgd");
    assert_string_equal(values.resume, "");
    assert_string_equal(values.until, "");
    assert_false(fth_options_is_set(&table, &values, "model"));
}

static void flags_set_every_type(void **state)
{
    (void)state;
    assert_int_equal(read_flags("a.yaml --model resnet18 --epochs=7 --lr 1e-3 --weight_decay 5e-4 --json --no-shuffle "
                                "--optimizer adamw --for 2h --resume --until accuracy=0.9 --count -5"),
                     FTH_OK);
    assert_string_equal(values.model, "resnet18");
    assert_int_equal(values.epochs, 7);
    assert_true(values.lr == 1e-3 && values.weight_decay == 5e-4 && values.for_s == 7200);
    assert_true(values.json && !values.shuffle);
    assert_string_equal(values.optimizer, "adamw");
    assert_string_equal(values.resume, "auto");
    assert_string_equal(values.until, "accuracy=0.9");
    assert_int_equal(values.count, -5);
    assert_int_equal(positional_count, 1);
    assert_string_equal(positional[0], "a.yaml");
    assert_true(fth_options_is_set(&table, &values, "weight-decay"));
    assert_false(help);
}

static void flags_that_repeat_add_up(void **state)
{
    (void)state;
    assert_int_equal(read_flags("--until loss=1 --model a --model b --until=accuracy=0.9"), FTH_OK);
    assert_string_equal(values.until, "loss=1,accuracy=0.9");
    assert_string_equal(values.model, "b");
}

static void values_with_commas_add_up_as_lines(void **state)
{
    (void)state;
    assert_int_equal(read_flags("--pair a=1,2 --pair b=3"), FTH_OK);
    assert_string_equal(values.pairs, "a=1,2\nb=3");
}

static void flags_have_letters(void **state)
{
    (void)state;
    static const char *const same[] = {"-n 6", "-n6", "-n=6", "--count 6"};
    for (size_t i = 0; i < FTH_COUNT_OF(same); i++) {
        values.count = 0;
        assert_int_equal(read_flags(same[i]), FTH_OK);
        assert_int_equal(values.count, 6);
    }
    assert_int_equal(read_flags("-n"), FTH_INVALID);
    assert_message_has("-n needs a value: N");
    assert_int_equal(read_flags("-n x"), FTH_INVALID);
    assert_message_has("-n");
    assert_int_equal(read_flags("-m 6"), FTH_INVALID);
    assert_message_has("unknown flag '-m'");
}

static void flags_take_optional_arguments_with_care(void **state)
{
    (void)state;
    assert_int_equal(read_flags("--resume run-1 --json no --shuffle off x"), FTH_OK);
    assert_string_equal(values.resume, "run-1");
    assert_true(!values.json && !values.shuffle);
    assert_int_equal(positional_count, 1);
    assert_int_equal(read_flags("--resume b.yaml --json c.yml"), FTH_OK);
    assert_string_equal(values.resume, "auto");
    assert_true(values.json);
    assert_int_equal(positional_count, 2);
    assert_string_equal(positional[1], "c.yml");
    assert_int_equal(read_flags("--resume=no --resume=run-2 -- --model -x"), FTH_OK);
    assert_string_equal(values.resume, "run-2");
    assert_int_equal(positional_count, 2);
    assert_string_equal(positional[0], "--model");
    assert_int_equal(read_flags("--resume=no -"), FTH_OK);
    assert_string_equal(values.resume, "");
    assert_string_equal(positional[0], "-");
    assert_int_equal(read_flags("--model=x --help --nonsense"), FTH_OK);
    assert_string_equal(values.model, "x");
    assert_true(help);
}

static void bad_flags_say_what_is_wrong(void **state)
{
    (void)state;
    assert_bad_flags("--modle x", "unknown flag '--modle'; did you mean '--model'?");
    assert_bad_flags("--no-shufle", "unknown flag '--no-shufle'; did you mean '--shuffle'?");
    assert_bad_flags("--no-model", "unknown flag '--no-model'");
    assert_bad_flags("--xyzzy-42", "unknown flag '--xyzzy-42'; --help lists");
    assert_bad_flags("-x", "unknown flag '-x'");
    assert_bad_flags("--model", "--model needs a value: NAME");
    assert_bad_flags("--model=", "--model is empty (a variable that is not set?); leave it out for the default");
    assert_bad_flags("--resume=", "--resume is empty");
    assert_bad_flags("--model --json", "--model needs a value: NAME");
    assert_bad_flags("--no-json=yes", "--no-json takes no value");
    assert_bad_flags("--json=maybe", "--json must be yes or no, not 'maybe'");
    assert_bad_flags("--epochs 1.5", "--epochs must be a whole number, not '1.5'");
    assert_bad_flags("--epochs 0", "--epochs must be between 1 and 1000, not 0");
    assert_bad_flags("--epochs 99999999999999999999", "--epochs must be between 1 and 1000");
    assert_bad_flags("--epochs=", "--epochs must be a whole number, not ''");
    assert_bad_flags("--epochs=-", "whole number");
    assert_bad_flags("--epochs=0x10", "whole number");
    assert_bad_flags("--count 99999999999999999999", "too large a number");
    assert_bad_flags("--lr fast", "--lr must be a number, not 'fast'");
    assert_bad_flags("--lr 1e-3x", "--lr must be a number");
    assert_bad_flags("--lr nan", "--lr must be a number");
    assert_bad_flags("--lr inf", "--lr must be a number");
    assert_bad_flags("--lr=", "--lr must be a number");
    assert_bad_flags("--lr -0.1", "--lr must be between 0 and 100, not -0.1");
    assert_bad_flags("--weight-decay 1e999", "too large a number");
    assert_bad_flags("--optimizer adam", "--optimizer must be one of sgd, adamw, not 'adam'; did you mean 'adamw'?");
    assert_bad_flags("--for ever", "--for: 'ever' is not a duration");
    assert_bad_flags("--until soon", "--until: write accuracy=0.99");
    assert_bad_flags("--model \xff\xfe", "--model: the value is not valid UTF-8");
    assert_string_equal(values.model, "mnist-cnn");
}

static void yaml_sets_every_type(void **state)
{
    (void)state;
    static const char text[] = "# a run\n---\nmodel: 'resnet18'\nepochs: 7\nlr: 1e-3\nweight_decay: 5e-4\njson: true\n"
                               "shuffle: off\noptimizer: \"adamw\"\nfor: 90s\nresume:\nuntil: accuracy=0.9\n...\n";
    assert_int_equal(read_yaml(text, strlen(text)), FTH_OK);
    assert_string_equal(values.model, "resnet18");
    assert_int_equal(values.epochs, 7);
    assert_true(values.lr == 1e-3 && values.weight_decay == 5e-4 && values.for_s == 90);
    assert_true(values.json && !values.shuffle);
    assert_string_equal(values.optimizer, "adamw");
    assert_string_equal(values.resume, "auto");
    assert_true(fth_options_is_set(&table, &values, "lr"));
    assert_int_equal(read_flags("--lr 0.5"), FTH_OK); /* a flag wins over the file */
    assert_true(values.lr == 0.5);
    assert_string_equal(values.model, "resnet18");
}

static void yaml_from_windows_is_read(void **state)
{
    (void)state;
    static const char text[] = "\xef\xbb\xbfmodel: resnet18\r\nepochs: 7\r\n";
    assert_int_equal(read_yaml(text, strlen(text)), FTH_OK);
    assert_string_equal(values.model, "resnet18");
    assert_int_equal(values.epochs, 7);
}

static void empty_yaml_sets_nothing(void **state)
{
    (void)state;
    assert_int_equal(read_yaml("", 0), FTH_OK);
    assert_int_equal(read_yaml("# nothing\n", 10), FTH_OK);
    assert_int_equal(read_yaml("{}\n", 3), FTH_OK);
    assert_true(values.set.bits[0] == 0);
}

static void bad_yaml_names_file_and_line(void **state)
{
    (void)state;
    assert_bad_yaml("epochs: 2\n\nmodle: x\n", "run.yaml line 3: unknown key 'modle'; did you mean 'model'?");
    assert_bad_yaml("xyzzy-42: 1\n", "run.yaml line 1: unknown key 'xyzzy-42'");
    assert_bad_yaml("epochs: 2\nlr: fast\n", "run.yaml line 2: lr must be a number, not 'fast'");
    assert_bad_yaml("epochs: 2000\n", "run.yaml line 1: epochs must be between 1 and 1000, not 2000");
    assert_bad_yaml("weight-decay: 1\nlr: 1\nweight_decay: 2\n", "line 3: 'weight_decay' was already given on line 1");
    assert_bad_yaml("lr:\n  a: 1\n", "line 2: the value of 'lr' is a nested mapping");
    assert_bad_yaml("lr: [1, 2]\n", "line 1: the value of 'lr' is a list");
    assert_bad_yaml("[1]: 2\n", "line 1: a key is a list");
    assert_bad_yaml("- model\n", "line 1: expected 'name: value'");
    assert_bad_yaml("model\n", "expected 'name: value'");
    assert_bad_yaml("lr: &a 1\n", "line 1: anchors");
    assert_bad_yaml("&a\nlr: 1\n", "anchors");
    assert_bad_yaml("lr: *a\n", "line 1: aliases");
    assert_bad_yaml("lr: !!float 1\n", "line 1: tags");
    assert_bad_yaml("!x\nlr: 1\n", "tags");
    assert_bad_yaml("lr: 1\n---\nlr: 2\n", "line 2: a second document begins");
    assert_bad_yaml("model:\n", "line 1: 'model' has no value");
    assert_bad_yaml("model: ~\n", "'model' has no value");
    assert_bad_yaml("lr: 1\nmodel: 'x\n", "bad YAML");
    assert_bad_yaml("lr: 1\n\tmodel: x\n", "line 2: bad YAML");
    assert_bad_yaml("lr: 1\nmodel: \"a\\0b\"\n", "line 2: the value of 'model' contains a NUL");
    assert_bad_yaml("lr: 1\nmodel: \xff\n", "line 2: not UTF-8 text");
    assert_int_equal(read_yaml("lr: 1\nmodel: \0\n", 15), FTH_INVALID);
    assert_message_of("NUL", "line 2: not UTF-8 text: it contains a NUL");
    assert_int_equal(fth_options_read_yaml(&table, &values, "/no/such.yaml"), FTH_INVALID);
    assert_message_of("missing file", "/no/such.yaml");

    size_t size = (1 << 20) + 1;
    char *large = malloc(size);
    memset(large, '#', size);
    assert_int_equal(read_yaml(large, size), FTH_INVALID);
    assert_message_of("large file", "at most 1048576");
    free(large);
}

static void values_survive_json(void **state)
{
    (void)state;
    char before[17], after[17];
    settings copy;
    assert_int_equal(read_flags("--model vgg --lr 0.1 --json --for 90s --until loss=1 --count 9007199254740993"),
                     FTH_OK);
    json_t *json = fth_options_to_json(&table, &values, false);
    assert_int_equal(json_object_size(json), FTH_COUNT_OF(rows));
    assert_int_equal(fth_options_set_defaults(&table, &copy), FTH_OK);
    assert_int_equal(fth_options_from_json(&table, &copy, json, "run.json"), FTH_OK);
    assert_string_equal(copy.model, "vgg");
    assert_true(copy.lr == 0.1 && copy.json && copy.for_s == 90 && copy.count == 9007199254740993);
    assert_true(copy.set.bits[0] == 0);
    fth_options_identity(&table, &values, before);
    fth_options_identity(&table, &copy, after);
    assert_string_equal(before, after);
    assert_int_equal(strlen(before), 16);

    /* what no other value is does not matter; what is an identity does */
    assert_int_equal(fth_options_set(&table, &copy, "json", "no", "test"), FTH_OK);
    fth_options_identity(&table, &copy, after);
    assert_string_equal(before, after);
    assert_int_equal(fth_options_set(&table, &copy, "lr", "0.2", "test"), FTH_OK);
    fth_options_identity(&table, &copy, after);
    assert_string_not_equal(before, after);
    fth_options_release(&table, &copy);
    json_decref(json);
}

static void defaults_survive_json_and_strange_json_is_refused(void **state)
{
    (void)state;
    json_t *json = fth_options_to_json(&table, &values, false);
    assert_int_equal(fth_options_from_json(&table, &values, json, "run.json"), FTH_OK);
    json_object_set_new(json, "from-the-future", json_integer(1));
    fth_log_set_level(FTH_LOG_ERROR);
    assert_int_equal(fth_options_from_json(&table, &values, json, "run.json"), FTH_OK);
    json_object_set_new(json, "epochs", json_string("x"));
    assert_int_equal(fth_options_from_json(&table, &values, json, "run.json"), FTH_INVALID);
    assert_message_of("string for integer", "run.json: epochs has a value of the wrong type");
    json_object_set_new(json, "epochs", json_integer(-1));
    assert_int_equal(fth_options_from_json(&table, &values, json, "run.json"), FTH_INVALID);
    assert_message_of("out of range", "run.json: epochs must be between");
    json_decref(json);
    json_t *array = json_array();
    assert_int_equal(fth_options_from_json(&table, &values, array, "run.json"), FTH_INVALID);
    json_decref(array);
    json = fth_options_to_json(&table, &values, true);
    assert_int_equal(json_object_size(json), 4);
    json_decref(json);
}

/* Runs a printer with standard output sent to a file, and returns what it printed. */
static char *capture(void (*print)(const fth_option_table *))
{
    char *text = NULL;
    size_t size;
    fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    assert_non_null(freopen(yaml, "w", stdout));
    print(&table);
    fflush(stdout);
    assert_true(dup2(saved, STDOUT_FILENO) >= 0);
    close(saved);
    assert_int_equal(fth_file_read_all(yaml, 1 << 16, &text, &size), FTH_OK);
    return text;
}

static void an_alias_is_the_option(void **state)
{
    (void)state;
    static const char text[] = "learning_rate: 0.25\n", twice[] = "lr: 1\nlearning-rate: 2\n";
    assert_int_equal(read_flags("--learning-rate 0.5"), FTH_OK);
    assert_true(values.lr == 0.5 && fth_options_is_set(&table, &values, "lr"));
    assert_int_equal(read_yaml(text, strlen(text)), FTH_OK);
    assert_true(values.lr == 0.25);
    assert_bad_yaml(twice, "already given on line 1");
    assert_bad_flags("--learning-rate fast", "--learning-rate must be a number, not 'fast'");
    assert_bad_flags("--learning-rat 1", "did you mean '--learning-rate'?");
}

static void a_share_may_be_a_percentage(void **state)
{
    (void)state;
    assert_int_equal(read_flags("--smoothing 12.5%"), FTH_OK);
    assert_true(values.smoothing == 0.125);
    assert_int_equal(read_flags("--smoothing 0.5"), FTH_OK);
    assert_true(values.smoothing == 0.5);
    assert_bad_flags("--smoothing 95%", "--smoothing must be between 0 and 0.9, not 95%");
    assert_bad_flags("--smoothing 5%%", "--smoothing must be a number, not '5%%'");
    assert_bad_flags("--smoothing %", "--smoothing must be a number");
    assert_bad_flags("--lr 5%", "--lr must be a number, not '5%'"); /* up to 100: no share */
}

static void help_is_aligned_and_wrapped(void **state)
{
    (void)state;
    char *text = capture(fth_options_print_help);
    assert_int_equal(strncmp(text, "What to train:\n  --model NAME", 28), 0);
    assert_non_null(strstr(text, "\n\nHow:\n  --lr X"));
    assert_non_null(strstr(text, "network to train (default: mnist-cnn)\n"));
    assert_non_null(strstr(text, "--[no-]shuffle"));
    assert_non_null(strstr(text, "--resume [ID]"));
    assert_non_null(strstr(text, "update rule; one of sgd, adamw (default: sgd)\n"));
    size_t column = (size_t)(strstr(text, "network to train") - strstr(text, "  --model"));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        assert_true(strlen(line) <= 80);
        if (line[0] == ' ' && line[2] == ' ') /* a continued line starts where help starts */
            assert_int_equal(strspn(line, " "), column);
    }
    free(text);
}

static void markdown_keeps_its_columns(void **state)
{
    (void)state;
    char *text = capture(fth_options_print_markdown);
    assert_non_null(strstr(text, "### What to train\n\n| option | default | meaning |\n| --- | --- | --- |\n"));
    assert_non_null(strstr(text, "| `--model NAME` | `mnist-cnn` | network to train |\n"));
    assert_non_null(strstr(text, "events \\| lines"));
    free(text);
}

/* ---- a table that commands share ---- */

enum { FOR_TRAIN = 1, FOR_STANDBY = 2, FOR_EVALUATE = 4 };
static const char *const commands[] = {"train", "standby", "evaluate", NULL};
static const fth_option shared_rows[] = {
    {.name = "epochs", .type = FTH_OPTION_INTEGER, .offset = AT(epochs), .help = "passes", .group = "How long"},
    {.name = "shuffle", .type = FTH_OPTION_SWITCH, .offset = AT(shuffle), .help = "shuffle"},
    {.name = "lr", .type = FTH_OPTION_NUMBER, .offset = AT(lr), .help = "rate", .group = "How"},
    {.name = "model",
     .type = FTH_OPTION_TEXT,
     .offset = AT(model),
     .help = "network",
     .commands = FOR_TRAIN | FOR_EVALUATE},
    {.name = "json",
     .type = FTH_OPTION_SWITCH,
     .offset = AT(json),
     .help = "events",
     .commands = FOR_TRAIN | FOR_STANDBY | FOR_EVALUATE},
};
static const fth_option_table shared = {
    .options = shared_rows, .count = FTH_COUNT_OF(shared_rows), .struct_size = sizeof(settings), .commands = commands};

static fth_status read_shared(fth_option_view view, const char *flag)
{
    fth_option_table own = fth_options_for(&shared, view);
    return fth_options_read_flags(&own, &values, 1, (char *[]){(char *)(uintptr_t)flag}, positional, &positional_count,
                                  &help);
}

static void commands_take_their_own_flags(void **state)
{
    (void)state;
    const fth_option_view train = {.command = FOR_TRAIN}, evaluate = {.command = FOR_EVALUATE};
    const fth_option_view standby = {.command = FOR_STANDBY, .unlisted = FOR_TRAIN};
    assert_int_equal(read_shared(train, "--epochs=7"), FTH_OK);
    assert_int_equal(values.epochs, 7);
    assert_int_equal(read_shared(evaluate, "--epochs=8"), FTH_INVALID);
    assert_string_equal(fth_error_message(), "evaluate takes no --epochs: it is an option of train");
    assert_int_equal(values.epochs, 7);
    assert_int_equal(read_shared(evaluate, "--no-shuffle"), FTH_INVALID);
    assert_string_equal(fth_error_message(), "evaluate takes no --shuffle: it is an option of train");
    assert_int_equal(read_shared((fth_option_view){.command = FOR_STANDBY}, "--model=x"), FTH_INVALID);
    assert_string_equal(fth_error_message(), "standby takes no --model: it is an option of train and evaluate");
    assert_int_equal(read_shared(evaluate, "--model=lenet5"), FTH_OK);
    assert_string_equal(values.model, "lenet5");
    assert_int_equal(read_shared(standby, "--epochs=9"), FTH_OK); /* taken, if not shown */
    assert_int_equal(values.epochs, 9);
    assert_int_equal(read_shared((fth_option_view){0}, "--lr=1"), FTH_OK); /* no view: all of them */

    /* what is not taken is not suggested either */
    assert_int_equal(read_shared(train, "--epoch=1"), FTH_INVALID);
    assert_message_has("did you mean '--epochs'?");
    assert_int_equal(read_shared(evaluate, "--epoch=1"), FTH_INVALID);
    assert_null(strstr(fth_error_message(), "did you mean"));

    /* a file is shared: keys for other commands are valid in it */
    fth_option_table own = fth_options_for(&shared, evaluate);
    static const char text[] = "epochs: 5\nmodel: mlp\n";
    assert_int_equal(fth_file_write_all(yaml, text, sizeof text - 1), FTH_OK);
    assert_int_equal(fth_options_read_yaml(&own, &values, yaml), FTH_OK);
    assert_string_equal(values.model, "mlp");
}

static void print_help_of_standby(const fth_option_table *ignored)
{
    (void)ignored;
    fth_option_table own = fth_options_for(&shared, (fth_option_view){FOR_STANDBY, FOR_TRAIN});
    fth_options_print_help(&own);
}

static void print_help_of_evaluate(const fth_option_table *ignored)
{
    (void)ignored;
    fth_option_table own = fth_options_for(&shared, (fth_option_view){.command = FOR_EVALUATE});
    fth_options_print_help(&own);
}

static void print_shared_markdown(const fth_option_table *ignored)
{
    (void)ignored;
    fth_options_print_markdown(&shared);
}

static void help_shows_what_a_command_takes(void **state)
{
    (void)state;
    char *text = capture(print_help_of_standby);
    assert_string_equal(text, "How:\n  --[no-]json  events\n");
    free(text);
    text = capture(print_help_of_evaluate); /* the heading of a group whose first row is not shown */
    assert_string_equal(text, "How:\n  --model VALUE  network\n  --[no-]json    events\n");
    free(text);
    text = capture(print_shared_markdown);
    assert_non_null(strstr(text, "| `--epochs VALUE` |  | train | passes |\n"));
    assert_non_null(strstr(text, "| `--[no-]json` |  | train, standby, evaluate | events |\n"));
    assert_non_null(strstr(text, "### How\n\n| option | default | commands | meaning |\n| --- | --- | --- | --- |\n"));
    free(text);
}

static void nearest_names_are_near(void **state)
{
    (void)state;
    static const char *const names[] = {"model", "epochs", "weight-decay", "checkpoint-every", "lr", NULL};
    assert_string_equal(fth_nearest_name("modle", names), "model");
    assert_string_equal(fth_nearest_name("Model", names), "model");
    assert_string_equal(fth_nearest_name("epoch", names), "epochs");
    assert_string_equal(fth_nearest_name("weight_deacy", names), "weight-decay");
    assert_string_equal(fth_nearest_name("checkpoint", names), "checkpoint-every");
    assert_string_equal(fth_nearest_name("rl", names), "lr");
    assert_string_equal(fth_nearest_name("model-name", names), "model");
    assert_string_equal(fth_nearest_name("epochs_in_all", names), "epochs");
    assert_null(fth_nearest_name("modelling-of-something", names));
    assert_null(fth_nearest_name("banana", names));
    assert_null(fth_nearest_name("x", names));
    assert_null(fth_nearest_name("", names));
    char large[1000];
    memset(large, 'm', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    assert_null(fth_nearest_name(large, names));
}

/* ---- choices from a table ---- */

static fth_choice give_consistency(size_t index)
{
    static const fth_choice forms[] = {{"async", "each makes a step"}, {"sync", NULL}, {"bounded:S", "not too old"}};
    return index < FTH_COUNT_OF(forms) ? forms[index] : (fth_choice){0};
}

static fth_status check_number(const char *text)
{
    const char *colon = strchr(text, ':');
    return !colon || strspn(colon + 1, "0123456789") == strlen(colon + 1) ? FTH_OK : fth_fail(FTH_INVALID, "a number");
}

typedef struct listed {
    fth_option_bits set;
    char *consistency, *word;
} listed;

static const fth_option listed_rows[] = {
    {.name = "consistency",
     .type = FTH_OPTION_CHOICE,
     .offset = offsetof(listed, consistency),
     .fallback = "async",
     .argument = "HOW",
     .help = "which gradients make a step",
     .list = give_consistency,
     .check = check_number},
    {.name = "word",
     .type = FTH_OPTION_TEXT,
     .offset = offsetof(listed, word),
     .help = "any",
     .list = give_consistency},
};
static const fth_option_table listed_table = {
    .options = listed_rows, .count = FTH_COUNT_OF(listed_rows), .struct_size = sizeof(listed)};

static void choices_come_from_a_table(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message; /* NULL: it is valid */
    } cases[] = {
        {"async", NULL},
        {"bounded:3", NULL},
        {"asinc", "--consistency must be one of async, sync, bounded:S, not 'asinc'; did you mean 'async'?"},
        {"bounded", "--consistency must be one of async, sync, bounded:S, not 'bounded'; did you mean 'bounded:S'?"},
        {"bounded:", "--consistency must be one of async, sync, bounded:S, not 'bounded:'; did you mean 'bounded:S'?"},
        {"sync:3", "--consistency must be one of async, sync, bounded:S, not 'sync:3'; did you mean 'sync'?"},
        {"bounded:x", "--consistency: a number"},
    };
    listed own;
    assert_int_equal(fth_options_set_defaults(&listed_table, &own), FTH_OK);
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_status status = fth_options_set(&listed_table, &own, "consistency", cases[i].text, "--consistency");
        assert_int_equal(status, cases[i].message ? FTH_INVALID : FTH_OK);
        if (cases[i].message)
            assert_string_equal(fth_error_message(), cases[i].message);
        else
            assert_string_equal(own.consistency, cases[i].text);
    }
    /* Of a text they are only offered. */
    assert_int_equal(fth_options_set(&listed_table, &own, "word", "anything", "--word"), FTH_OK);
    fth_options_release(&listed_table, &own);
}

static void print_listed(const fth_option_table *ignored)
{
    (void)ignored;
    fth_options_print_markdown(&listed_table);
}

static void choices_are_explained(void **state)
{
    (void)state;
    char *text = capture(print_listed);
    assert_non_null(strstr(text, "a step; one of async (each makes a step), sync, bounded:S (not too old) |"));
    assert_non_null(strstr(text, "| `--word VALUE` |  | any |"));
    free(text);
}

static void a_value_is_reset(void **state)
{
    (void)state;
    listed own;
    assert_int_equal(fth_options_set_defaults(&listed_table, &own), FTH_OK);
    assert_int_equal(fth_options_set(&listed_table, &own, "consistency", "sync", "--consistency"), FTH_OK);
    assert_int_equal(fth_options_reset(&listed_rows[0], &own), FTH_OK);
    assert_string_equal(own.consistency, "async");
    assert_true(fth_options_is_set(&listed_table, &own, "consistency"));
    fth_options_release(&listed_table, &own);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(defaults_are_set),
        TEST(flags_set_every_type),
        TEST(flags_that_repeat_add_up),
        TEST(values_with_commas_add_up_as_lines),
        TEST(flags_have_letters),
        TEST(flags_take_optional_arguments_with_care),
        TEST(bad_flags_say_what_is_wrong),
        TEST(yaml_sets_every_type),
        TEST(yaml_from_windows_is_read),
        TEST(empty_yaml_sets_nothing),
        TEST(bad_yaml_names_file_and_line),
        TEST(values_survive_json),
        TEST(defaults_survive_json_and_strange_json_is_refused),
        TEST(an_alias_is_the_option),
        TEST(a_share_may_be_a_percentage),
        TEST(help_is_aligned_and_wrapped),
        TEST(markdown_keeps_its_columns),
        TEST(nearest_names_are_near),
        TEST(commands_take_their_own_flags),
        TEST(help_shows_what_a_command_takes),
        TEST(choices_come_from_a_table),
        TEST(choices_are_explained),
        TEST(a_value_is_reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
