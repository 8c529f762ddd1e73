/* Reports: numbers as text, tables, terminal charts, and what a run's report says. */
#include "support.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report/report_internal.h"

/* ---- helpers ---- */

typedef struct capture {
    char *text;
    size_t size;
    FILE *file;
} capture;

static void capture_start(capture *output)
{
    output->file = open_memstream(&output->text, &output->size);
    assert_non_null(output->file);
}

static char *capture_end(capture *output)
{
    fclose(output->file);
    return output->text;
}

static void use_ascii(bool ascii)
{
    if (ascii)
        setenv("FARTHING_ASCII", "1", 1);
    else
        unsetenv("FARTHING_ASCII");
    setenv("LC_ALL", "C.UTF-8", 1);
}

/* Line `number` of `text`, counted from 0, in fresh memory. */
static char *line_of(const char *text, int number)
{
    for (; number > 0; number--) {
        text = strchr(text, '\n');
        assert_non_null(text);
        text++;
    }
    return strndup(text, strcspn(text, "\n"));
}

static fth_record_summary make_run(const char *id, int64_t batch, size_t points)
{
    fth_record_summary run = {.best_loss = NAN, .best_accuracy = NAN, .last_loss = NAN, .last_accuracy = NAN};
    run.id = strdup(id);
    run.folder = fth_format("runs/%s", id);
    run.run = json_pack("{s:{s:s, s:s, s:I, s:s, s:f, s:s, s:i}, s:i}", "configuration", "model", "mnist-cnn", "data",
                        "digits", "batch", (json_int_t)batch, "optimizer", "sgd", "lr", 0.01, "schedule", "constant",
                        "seed", 1, "parameters", 1199882);
    run.events = json_array();
    run.training.points = calloc(points + 1, sizeof *run.training.points);
    run.training.count = points;
    for (size_t i = 0; i < points; i++)
        run.training.points[i] = (fth_record_point){.step = (int64_t)i + 1,
                                                    .epoch = (double)i / 10,
                                                    .loss = 2.3 / (1 + 0.1 * (double)i),
                                                    .accuracy = 0.5,
                                                    .learning_rate = 0.01};
    run.steps = (int64_t)points;
    run.samples = (int64_t)points * batch;
    run.elapsed_s = 10;
    run.compute_s = 8;
    run.data_wait_s = 1;
    run.samples_per_s = 1463;
    run.peak_memory_bytes = 100 << 20;
    return run;
}

/* ---- curves ---- */

static void expect_curve(const fth_record_point *points, size_t count, const double *x, const double *y, size_t drawn)
{
    fth_chart_line line;
    fth_record_series series = {.points = (fth_record_point *)points, .count = count};
    assert_int_equal(fth_report_curve(&series, FTH_LOSS, FTH_OVER_STEPS, "", &line), FTH_OK);
    assert_int_equal(line.count, drawn);
    for (size_t i = 0; i < drawn; i++) {
        assert_true(line.x[i] == x[i]);
        assert_true(fabs(line.y[i] - y[i]) < 1e-12 || (isnan(line.y[i]) && isnan(y[i])));
    }
    fth_report_curve_release(&line);
}

/* Means of one batch, after a resume and at the end, are put to others; the first stays. */
static void test_a_curve_has_no_spikes(void **state)
{
    (void)state;
    const fth_record_point points[] = {{.step = 1, .steps = 1, .loss = 2.5},   {.step = 101, .steps = 100, .loss = 2},
                                       {.step = 102, .steps = 1, .loss = 9},   {.step = 201, .steps = 99, .loss = 1},
                                       {.step = 301, .steps = 100, .loss = 1}, {.step = 302, .steps = 1, .loss = 0},
                                       {.step = 303, .steps = 1, .loss = 0.02}};
    expect_curve(points, 7, (double[]){1, 101, 201, 303}, (double[]){2.5, 2, 1.08, (100 + 0.02) / 102}, 4);

    fth_record_point gap[FTH_COUNT_OF(points)];
    memcpy(gap, points, sizeof gap);
    gap[5].loss = NAN; /* stays to be seen */
    expect_curve(gap, 7, (double[]){1, 101, 201, 301, 302, 303}, (double[]){2.5, 2, 1.08, 1, NAN, 0.02}, 6);

    const fth_record_point few[] = {{.step = 1, .steps = 1, .loss = 2}, {.step = 2, .steps = 1, .loss = 1}};
    expect_curve(few, 2, (double[]){1, 2}, (double[]){2, 1}, 2);
    const fth_record_point unknown[] = {{.step = 10, .loss = 2}, {.step = 20, .loss = 1}, {.step = 21, .loss = 3}};
    expect_curve(unknown, 3, (double[]){10, 20, 21}, (double[]){2, 1, 3}, 3);
    expect_curve(NULL, 0, NULL, NULL, 0);
}

/* ---- text ---- */

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        int64_t number;
        const char *text;
    } counts[] = {{0, "0"},
                  {999, "999"},
                  {1000, "1,000"},
                  {1199882, "1,199,882"},
                  {-12345, "-12,345"},
                  {INT64_MIN, "-9,223,372,036,854,775,808"}};
    char text[64];
    for (size_t i = 0; i < FTH_COUNT_OF(counts); i++) {
        fth_text_count(counts[i].number, text, sizeof text);
        assert_string_equal(text, counts[i].text);
    }
    fth_text_percent(0.98714, text, sizeof text);
    assert_string_equal(text, "98.71 %");
    fth_text_percent(NAN, text, sizeof text);
    assert_string_equal(text, "-");
    fth_text_bytes(1536, text, sizeof text);
    assert_string_equal(text, "1.5 kB");
    fth_text_bytes((int64_t)115 << 20, text, sizeof text);
    assert_string_equal(text, "115 MB");
    fth_text_loss(0.0412, text, sizeof text);
    assert_string_equal(text, "0.0412");
    fth_text_loss(1e-6, text, sizeof text);
    assert_string_equal(text, "1e-06");
}

static void test_width_counts_characters(void **state)
{
    (void)state;
    assert_int_equal(fth_text_width("zähler"), 6);
    assert_int_equal(fth_text_fit("zähler", 2), 3); /* z and the two bytes of ä */
    assert_int_equal(fth_text_fit("ab", 10), 2);
    assert_int_equal(fth_text_fit("ab", 0), 0);
    assert_int_equal(fth_text_width("猫と犬"), 6);
    assert_int_equal(fth_text_fit("猫と犬", 5), 6);    /* two of three: half a character is none */
    assert_int_equal(fth_text_width("e\u0301te"), 3);  /* an accent of its own takes no column */
    assert_int_equal(fth_text_fit("e\u0301te", 1), 3); /* and stays with its letter */
    assert_int_equal(fth_text_width("🐱 chat"), 7);
    assert_int_equal(fth_text_width("한국"), 4);
    assert_int_equal(fth_text_width("█░─×≥"), 5);
    assert_int_equal(fth_text_width("\xff\xc3"), 2); /* not UTF-8: something is shown for each byte */
}

static void test_locale_decides_utf8(void **state)
{
    (void)state;
    use_ascii(false);
    assert_true(fth_terminal_is_utf8());
    setenv("LC_ALL", "C", 1);
    setenv("LANG", "C.UTF-8", 1);
    assert_false(fth_terminal_is_utf8()); /* LC_ALL wins */
    unsetenv("LC_ALL");
    unsetenv("LC_CTYPE");
    assert_true(fth_terminal_is_utf8());
    use_ascii(true);
    assert_false(fth_terminal_is_utf8());
}

/* ---- tables ---- */

static void test_table_aligns(void **state)
{
    (void)state;
    fth_table *table = NULL;
    capture output;
    use_ascii(true);
    assert_int_equal(FTH_TABLE(&table, "name", ">count", "note"), FTH_OK);
    assert_int_equal(fth_table_add_row(table, (const char *[]){"zähler", "1,463", "x"}), FTH_OK);
    assert_int_equal(fth_table_add_row(table, (const char *[]){"b", "7", NULL}), FTH_OK);
    capture_start(&output);
    fth_table_print(output.file, table);
    char *text = capture_end(&output);
    assert_string_equal(text, "name    count  note\n"
                              "------  -----  ----\n"
                              "zähler  1,463  x\n"
                              "b           7  \n");
    free(text);
    fth_table_free(table);
    fth_table_free(NULL);
}

static void test_table_grows(void **state)
{
    (void)state;
    fth_table *table = NULL;
    capture output;
    assert_int_equal(fth_table_create(NULL, 1, &table), FTH_OK);
    for (int i = 0; i < 100; i++)
        assert_int_equal(fth_table_add_row(table, (const char *[]){"row"}), FTH_OK);
    capture_start(&output);
    fth_table_print(output.file, table);
    char *text = capture_end(&output);
    assert_int_equal(strlen(text), 400);
    free(text);
    fth_table_free(table);
}

/* ---- charts ---- */

static char *draw(const fth_chart_line *lines, size_t count, int columns, int rows)
{
    capture output;
    capture_start(&output);
    fth_chart chart = {.x_label = "step", .y_label = "loss", .columns = columns, .rows = rows};
    assert_int_equal(fth_chart_print(output.file, &chart, lines, count), FTH_OK);
    return capture_end(&output);
}

static void test_chart_places_points(void **state)
{
    (void)state;
    const double x[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, y[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    fth_chart_line line = {"rising", x, y, FTH_COUNT_OF(x)};
    use_ascii(true);
    char *text = draw(&line, 1, 40, 8);
    char *top = line_of(text, 1), *bottom = line_of(text, 8), *legend = line_of(text, 0);
    assert_string_equal(legend, "loss   rising");
    assert_int_equal(top[strlen(top) - 1], '*');
    assert_int_equal(strlen(top), 39);                 /* reaches the right edge */
    assert_int_equal(strchr(bottom, '*') - bottom, 9); /* begins at the axis */
    free(top);
    free(bottom);
    free(legend);
    free(text);
}

static void test_chart_leaves_gaps(void **state)
{
    (void)state;
    const double x[] = {0, 5, 10}, whole[] = {1, 1, 1}, broken[] = {1, NAN, 1};
    fth_chart_line joined = {"joined", x, whole, 3}, gap = {"gap", x, broken, 3};
    use_ascii(true);
    char *first = draw(&joined, 1, 40, 5), *second = draw(&gap, 1, 40, 5);
    int joined_count = 0, gap_count = 0;
    for (const char *c = first; *c; c++)
        joined_count += *c == '*';
    for (const char *c = second; *c; c++)
        gap_count += *c == '*';
    assert_true(joined_count > 20);
    assert_int_equal(gap_count, 2);
    free(first);
    free(second);
}

static void test_chart_uses_logarithms(void **state)
{
    (void)state;
    const double x[] = {1, 2, 3}, wide[] = {2.3, 0.3, 0.01}, narrow[] = {2.3, 1.9, 1.5}, negative[] = {1, 100, -1};
    use_ascii(true);
    char *text = draw(&(fth_chart_line){"a", x, wide, 3}, 1, 60, 10);
    assert_non_null(strstr(text, "log scale"));
    assert_non_null(strstr(text, "0.1 +"));
    free(text);
    text = draw(&(fth_chart_line){"a", x, narrow, 3}, 1, 60, 10);
    assert_null(strstr(text, "log scale"));
    free(text);
    text = draw(&(fth_chart_line){"a", x, negative, 3}, 1, 60, 10);
    assert_null(strstr(text, "log scale"));
    free(text);
}

/* Accuracies from 1 to 98 % span decades too, but are read on a linear axis. */
static void test_chart_stays_linear(void **state)
{
    (void)state;
    static const double x[] = {1, 2, 3}, y[] = {1, 50, 98};
    fth_chart chart = {.x_label = "step", .y_label = "accuracy (%)", .linear = true, .columns = 60, .rows = 10};
    capture output;
    use_ascii(false);
    capture_start(&output);
    assert_int_equal(fth_chart_print(output.file, &chart, &(fth_chart_line){"a", x, y, 3}, 1), FTH_OK);
    char *text = capture_end(&output);
    assert_null(strstr(text, "log scale"));
    assert_non_null(strstr(text, " 40 "));
    assert_non_null(strstr(text, " 80 "));
    free(text);
}

static void test_chart_bad_values(void **state)
{
    (void)state;
    const double x[] = {1, 2}, nothing[] = {NAN, 1e308}, huge[] = {-9e99, 9e99};
    use_ascii(false);
    char *text = draw(&(fth_chart_line){"a", x, nothing, 2}, 1, 60, 10);
    assert_string_equal(text, "loss: nothing to draw yet\n");
    free(text);
    text = draw(&(fth_chart_line){"a", x, nothing, 0}, 1, 60, 10);
    assert_string_equal(text, "loss: nothing to draw yet\n");
    free(text);
    text = draw(&(fth_chart_line){"a", x, huge, 2}, 1, 60, 10);
    assert_non_null(strstr(text, "┤"));
    free(text);
    text = draw(&(fth_chart_line){"one", x, x, 1}, 1, 5, 1); /* smaller than any terminal */
    assert_non_null(strstr(text, "one"));
    free(text);
}

static void test_chart_fits_and_is_plain(void **state)
{
    (void)state;
    double x[3000], y[3000];
    for (int i = 0; i < 3000; i++) {
        x[i] = i + 1;
        y[i] = 2.3 * exp(-i / 300.0) + 0.05;
    }
    fth_chart_line lines[] = {{"training", x, y, 3000}, {"validation", x, y + 1000, 2000}};
    use_ascii(false);
    for (int columns = 40; columns <= 160; columns += 7) {
        char *text = draw(lines, 2, columns, 12);
        assert_null(strchr(text, '\033')); /* no colours where there is no terminal */
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
            assert_true(fth_text_width(line) <= (size_t)columns);
        free(text);
    }
    char *text = draw(lines, 2, 80, 12);
    assert_non_null(strstr(text, "A training"));
    assert_non_null(strstr(text, "B validation"));
    free(text);
}

/* ---- reports ---- */

static void test_report_says_what_happened(void **state)
{
    (void)state;
    fth_record_summary run = make_run("some-run", 64, 200);
    capture output;
    use_ascii(false);
    json_array_append_new(run.events, json_pack("{s:s, s:s}", "event", "error", "message", "the loss is NaN"));
    capture_start(&output);
    assert_int_equal(fth_report_run(output.file, &run, NULL, 80), FTH_OK);
    char *text = capture_end(&output);
    assert_non_null(strstr(text, "failed: the loss is NaN"));
    assert_non_null(strstr(text, "mnist-cnn, 1,199,882 parameters"));
    assert_non_null(strstr(text, "1,463 samples/s"));
    assert_non_null(strstr(text, "80.0 %")); /* compute */
    assert_non_null(strstr(text, "100 MB"));
    free(text);

    json_t *json = fth_report_json(&run, NULL);
    assert_int_equal(json_integer_value(json_object_get(json, "steps")), 200);
    assert_null(json_object_get(json, "best_loss")); /* unknown is absent */
    json_decref(json);
    fth_record_release(&run);
}

static void test_report_names_the_accelerator(void **state)
{
    (void)state;
    fth_record_summary run = make_run("some-run", 64, 20);
    capture output;
    use_ascii(false);
    capture_start(&output);
    assert_int_equal(fth_report_run(output.file, &run, NULL, 80), FTH_OK);
    char *text = capture_end(&output);
    assert_null(strstr(text, "accelerator")); /* a CPU has none */
    free(text);

    json_object_set_new(run.run, "machine", json_pack("{s:s}", "device", "NVIDIA H200, CUDA 13.0, cuDNN 9.19.0"));
    run.accelerator_memory_bytes = (int64_t)12 << 30;
    run.accelerator_utilization = 0.934;
    run.accelerator_s = 7.5;
    capture_start(&output);
    assert_int_equal(fth_report_run(output.file, &run, NULL, 80), FTH_OK);
    text = capture_end(&output);
    assert_non_null(strstr(text, "NVIDIA H200, 93 % busy, 12"));
    assert_non_null(strstr(text, "75.0 %"));
    free(text);
    json_t *json = fth_report_json(&run, NULL);
    assert_true(json_real_value(json_object_get(json, "accelerator_s")) == 7.5);
    json_decref(json);

    run.accelerator_utilization = NAN; /* no NVML */
    capture_start(&output);
    assert_int_equal(fth_report_run(output.file, &run, NULL, 80), FTH_OK);
    text = capture_end(&output);
    assert_non_null(strstr(text, "NVIDIA H200, 12"));
    assert_null(strstr(text, "busy"));
    free(text);
    fth_record_release(&run);
}

static void test_report_of_an_empty_run(void **state)
{
    (void)state;
    fth_record_summary run = {.id = strdup("x"), .folder = strdup("runs/x"), .run = json_object()};
    run.training.points = calloc(1, sizeof *run.training.points);
    assert_non_null(run.training.points);
    run.training.points[0] = (fth_record_point){.epoch = NAN, .loss = NAN}; /* a step event that says nothing */
    run.training.count = run.steps = 1;
    run.best_loss = run.best_accuracy = run.last_loss = run.last_accuracy = run.samples_per_s = NAN;
    capture output;
    capture_start(&output);
    assert_int_equal(fth_report_run(output.file, &run, NULL, 80), FTH_OK);
    char *text = capture_end(&output);
    assert_non_null(strstr(text, "nothing to draw yet"));
    assert_non_null(strstr(text, "unfinished, at step 1"));
    assert_non_null(strstr(text, " 1 step, 0 images"));
    assert_null(strstr(text, "nan"));
    free(text);
    assert_int_not_equal(fth_report_picture("/tmp/never.svg", &run, 1, FTH_OVER_DEFAULT), FTH_OK);
    fth_record_release(&run);
}

static void test_compare_shows_differences(void **state)
{
    (void)state;
    fth_record_summary runs[] = {make_run("first", 64, 50), make_run("second", 128, 50)};
    runs[1].samples_per_s = 2926;
    for (int i = 0; i < 2; i++)
        json_object_set_new(json_object_get(runs[i].run, "configuration"), "steps", json_integer(100 + i));
    capture output;
    use_ascii(false);
    capture_start(&output);
    assert_int_equal(fth_report_compare(output.file, runs, 2, FTH_OVER_DEFAULT, 80), FTH_OK);
    char *text = capture_end(&output);
    assert_non_null(strstr(text, "A  first"));
    assert_non_null(strstr(text, "2.00 x"));
    assert_non_null(strstr(text, "\n--steps ")); /* asked for */
    assert_non_null(strstr(text, "\nsteps "));   /* made */
    assert_non_null(strstr(text, "epoch"));      /* steps of different batches are not comparable */
    assert_null(strstr(text, "optimizer"));      /* the same in both */
    free(text);
    fth_record_release(&runs[0]);
    fth_record_release(&runs[1]);
}

/* ---- pictures ---- */

static bool has_gnuplot(void)
{
    return access("/usr/bin/gnuplot", X_OK) == 0;
}

static void test_picture_is_drawn(void **state)
{
    if (!has_gnuplot())
        skip();
    assert_int_equal(test_make_folder(state), 0);
    /* A name that gnuplot would take for a command, were it not kept a name. */
    fth_record_summary run = make_run("it's \"quoted\" <a> & $(touch x)", 64, 2000);
    char *svg = fth_path_join(test_folder, "a 'quoted' chart.svg"), *png = fth_path_join(test_folder, "chart.PNG");
    char *bytes = NULL;
    size_t size = 0;
    assert_int_equal(fth_report_picture(svg, &run, 1, FTH_OVER_DEFAULT), FTH_OK);
    assert_int_equal(fth_file_read_all(svg, 1 << 20, &bytes, &size), FTH_OK);
    assert_non_null(strstr(bytes, "<svg"));
    assert_non_null(strstr(bytes, "</svg>"));
    assert_non_null(strstr(bytes, "<title>it's \"quoted\" &lt;a> &amp; $(touch x)</title>"));
    assert_null(strstr(bytes, "<title>Gnuplot"));
    assert_non_null(strstr(bytes, ">loss<"));
    assert_non_null(strstr(bytes, ">accuracy (%)<"));
    free(bytes);
    for (size_t i = 0; i < run.training.count; i++)
        run.training.points[i].accuracy = NAN; /* a record without any: one panel */
    assert_int_equal(fth_report_picture(svg, &run, 1, FTH_OVER_DEFAULT), FTH_OK);
    assert_int_equal(fth_file_read_all(svg, 1 << 20, &bytes, &size), FTH_OK);
    assert_non_null(strstr(bytes, ">loss<"));
    assert_null(strstr(bytes, "accuracy"));
    free(bytes);
    assert_int_equal(fth_report_picture(png, (fth_record_summary[]){run, run}, 2, FTH_OVER_DEFAULT), FTH_OK);
    assert_int_equal(fth_file_read_all(png, 1 << 22, &bytes, &size), FTH_OK);
    assert_memory_equal(bytes, "\x89PNG\r\n\x1a\n", 8);
    free(bytes);
    unlink(svg);
    unlink(png);
    assert_int_equal(rmdir(test_folder), 0); /* no temporary is left */
    free(svg);
    free(png);
    fth_record_release(&run);
}

static void test_picture_errors(void **state)
{
    (void)state;
    fth_record_summary run = make_run("x", 64, 20);
    assert_int_equal(fth_report_picture("/tmp/chart.gif", &run, 1, FTH_OVER_DEFAULT), FTH_INVALID);
    assert_message_has(".png or .svg");
    assert_int_equal(fth_report_picture("/nowhere/at/all/chart.svg", &run, 1, FTH_OVER_DEFAULT), FTH_INVALID);
    assert_message_has("/nowhere/at/all");
    fth_record_release(&run);
}

static void test_a_missing_gnuplot_is_named(void **state)
{
    (void)state;
    test_require_spawn_errors();
    fth_record_summary run = make_run("x", 64, 20);
    char *path = strdup(getenv("PATH"));
    setenv("PATH", "/nowhere", 1);
    assert_int_equal(fth_report_picture("/tmp/farthing-never.svg", &run, 1, FTH_OVER_DEFAULT), FTH_UNSUPPORTED);
    assert_message_has("gnuplot-nox");
    assert_false(fth_file_exists("/tmp/farthing-never.svg"));
    setenv("PATH", path, 1);
    free(path);
    fth_record_release(&run);
}

static void fields_are_left_out_whole(void **state)
{
    (void)state;
    static const fth_field fields[] = {
        {.text = "███", .importance = 0, .separator = " "},
        {.text = "step 12/90", .importance = 9},
        {.text = "", .importance = 8}, /* not there: not even a separator of it */
        {.text = "1,542 samples/s", .brief = "1,542/s", .importance = 1},
        {.text = "1m 02s left", .importance = 5},
    };
    static const struct {
        size_t columns;
        const char *expected;
    } cases[] = {
        {400, "███ step 12/90, 1,542 samples/s, 1m 02s left"},
        {44, "███ step 12/90, 1,542 samples/s, 1m 02s left"},
        {43, "███ step 12/90, 1,542/s, 1m 02s left"},
        {36, "███ step 12/90, 1,542/s, 1m 02s left"},
        {35, "step 12/90, 1,542/s, 1m 02s left"},
        {31, "step 12/90, 1m 02s left"},
        {22, "step 12/90"},
        {9, ""},
        {0, ""},
    };
    char line[200];
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        fth_fields_fit(fields, FTH_COUNT_OF(fields), cases[i].columns, line, sizeof line);
        assert_string_equal(line, cases[i].expected);
    }
    fth_fields_fit(fields, 0, 80, line, sizeof line);
    assert_string_equal(line, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_curve_has_no_spikes),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_width_counts_characters),
        cmocka_unit_test(test_locale_decides_utf8),
        cmocka_unit_test(test_table_aligns),
        cmocka_unit_test(test_table_grows),
        cmocka_unit_test(test_chart_places_points),
        cmocka_unit_test(test_chart_leaves_gaps),
        cmocka_unit_test(test_chart_uses_logarithms),
        cmocka_unit_test(test_chart_bad_values),
        cmocka_unit_test(test_chart_fits_and_is_plain),
        cmocka_unit_test(test_report_says_what_happened),
        cmocka_unit_test(test_report_names_the_accelerator),
        cmocka_unit_test(test_report_of_an_empty_run),
        cmocka_unit_test(test_compare_shows_differences),
        cmocka_unit_test(test_picture_is_drawn),
        cmocka_unit_test(test_picture_errors),
        cmocka_unit_test(test_a_missing_gnuplot_is_named),
        cmocka_unit_test(fields_are_left_out_whole),
        cmocka_unit_test(test_chart_stays_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
