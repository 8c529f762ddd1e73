/* Line charts in the terminal.
 *
 * A cell of the canvas is one character: 2 × 4 braille dots, or one plain dot where there is no
 * UTF-8. Each line is first resampled to one mean value per dot column, which also smooths noisy
 * losses, then its neighbouring values are joined. With several lines, each carries its letter at a
 * few places, so that they can be distinguished without colour. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/report.h"

enum { MAX_TICKS = 32, LABEL_SIZE = 24, LEAST_PLOT_COLUMNS = 16, LEAST_ROWS = 4 };

typedef struct chart_scale {
    double low, high; /* of the values; of their logarithms if `logarithmic` */
    bool logarithmic;
} chart_scale;

typedef struct chart_tick {
    double value;
    char label[LABEL_SIZE];
} chart_tick;

typedef struct canvas {
    int columns, rows;           /* cells */
    int cell_columns, cell_rows; /* dots in a cell */
    unsigned char *dots;         /* bit mask per cell */
    int *owner;                  /* the line that drew last in a cell, or -1 */
    char *letter;                /* a line's letter over a cell, or 0 */
} canvas;

static const char *const colours[] = {"\033[36m", "\033[33m", "\033[35m", "\033[32m", "\033[34m", "\033[31m"};
static const char ascii_markers[] = "*o+x#@%&";

/* Sums and differences of larger values would overflow. */
static bool can_draw(double value)
{
    return isfinite(value) && fabs(value) < 1e100;
}

/* ---- scales and ticks ---- */

static double scale_value(const chart_scale *scale, double value)
{
    return scale->logarithmic ? log10(value) : value;
}

/* 0 at the low end, 1 at the high end. */
static double scale_position(const chart_scale *scale, double value)
{
    return (scale_value(scale, value) - scale->low) / (scale->high - scale->low);
}

static void scale_spread(chart_scale *scale)
{
    if (scale->high - scale->low > 1e-12 * (fabs(scale->high) + fabs(scale->low)))
        return;
    double margin = scale->low != 0 ? fabs(scale->low) * 0.1 : 1;
    scale->low -= margin;
    scale->high += margin;
}

/* The smallest of 1, 2, 5 × 10^n that splits `span` into at most `count` parts. */
static double nice_step(double span, int count)
{
    double raw = span / count, power = pow(10, floor(log10(raw)));
    double factor = raw / power;
    return power * (factor <= 1 ? 1 : factor <= 2 ? 2 : factor <= 5 ? 5 : 10);
}

static void set_tick(chart_tick *tick, double value)
{
    tick->value = value;
    if (fabs(value) >= 1000 && fabs(value) < 1e15 && value == floor(value))
        fth_text_count((int64_t)value, tick->label, sizeof tick->label);
    else
        snprintf(tick->label, sizeof tick->label, "%.4g", value);
}

static int linear_ticks(const chart_scale *scale, int wanted, chart_tick *ticks)
{
    double step = nice_step(scale->high - scale->low, wanted);
    int count = 0;
    for (double i = ceil(scale->low / step - 1e-9); i * step <= scale->high + 1e-9 * step && count < MAX_TICKS; i++)
        set_tick(&ticks[count++], i == 0 ? 0 : i * step);
    return count;
}

/* 1-2-5 per decade if they fit into `wanted`, else whole decades, evenly thinned. */
static int logarithmic_ticks(const chart_scale *scale, int wanted, chart_tick *ticks)
{
    static const double fine[] = {1, 2, 5}, coarse[] = {1};
    for (int dense = 1; dense >= 0; dense--) {
        const double *factors = dense ? fine : coarse;
        int factor_count = dense ? 3 : 1, count = 0;
        int stride = dense ? 1 : (int)fmax(1, ceil((scale->high - scale->low) / wanted));
        bool fits = true;
        for (int decade = (int)floor(scale->low); fits && decade <= scale->high; decade += stride) {
            for (int i = 0; fits && i < factor_count; i++) {
                double value = factors[i] * pow(10, decade), position = scale_position(scale, value);
                if (position < -1e-9 || position > 1 + 1e-9)
                    continue;
                fits = count < wanted + 1 && count < MAX_TICKS;
                if (fits)
                    set_tick(&ticks[count++], value);
            }
        }
        if (fits && count > 0)
            return count;
    }
    return linear_ticks(&(chart_scale){pow(10, scale->low), pow(10, scale->high), false}, wanted, ticks);
}

static int make_ticks(const chart_scale *scale, int wanted, chart_tick *ticks)
{
    wanted = wanted < 2 ? 2 : wanted > MAX_TICKS - 2 ? MAX_TICKS - 2 : wanted;
    return scale->logarithmic ? logarithmic_ticks(scale, wanted, ticks) : linear_ticks(scale, wanted, ticks);
}

/* ---- resampling ---- */

/* One line as a mean per dot column: NAN where it has no point, `gap` where it must not be joined
 * across. */
typedef struct resampled {
    double *mean;
    bool *gap;
} resampled;

static int dot_column(const chart_scale *scale, double x, int dot_columns)
{
    int column = (int)(scale_position(scale, x) * (dot_columns - 1) + 0.5);
    return column < 0 ? 0 : column >= dot_columns ? dot_columns - 1 : column;
}

static fth_status resample(const fth_chart_line *line, const chart_scale *x_scale, int dot_columns, resampled *result)
{
    fth_status status = FTH_OK;
    int *counts = NULL;
    FTH_TRY(fth_allocate((size_t)dot_columns, sizeof *counts, &counts));
    FTH_TRY(fth_allocate((size_t)dot_columns, sizeof *result->mean, &result->mean));
    FTH_TRY(fth_allocate((size_t)dot_columns, sizeof *result->gap, &result->gap));
    for (size_t i = 0; i < line->count; i++) {
        if (!can_draw(line->x[i]))
            continue;
        int column = dot_column(x_scale, line->x[i], dot_columns);
        if (can_draw(line->y[i])) {
            result->mean[column] += line->y[i];
            counts[column]++;
        } else {
            result->gap[column] = true;
        }
    }
    for (int i = 0; i < dot_columns; i++) {
        result->mean[i] = counts[i] > 0 ? result->mean[i] / counts[i] : NAN;
        result->gap[i] = result->gap[i] && counts[i] == 0;
    }
out:
    free(counts);
    return status;
}

/* ---- the canvas ---- */

static fth_status canvas_create(canvas *area, int columns, int rows, bool utf8)
{
    fth_status status = FTH_OK;
    size_t cells = (size_t)columns * (size_t)rows;
    *area = (canvas){.columns = columns, .rows = rows, .cell_columns = utf8 ? 2 : 1, .cell_rows = utf8 ? 4 : 1};
    FTH_TRY(fth_allocate(cells, sizeof *area->dots, &area->dots));
    FTH_TRY(fth_allocate(cells, sizeof *area->owner, &area->owner));
    FTH_TRY(fth_allocate(cells, sizeof *area->letter, &area->letter));
    memset(area->owner, -1, cells * sizeof *area->owner);
out:
    return status;
}

static void canvas_release(canvas *area)
{
    free(area->dots);
    free(area->owner);
    free(area->letter);
}

static void canvas_set(canvas *area, int line, int x, int y)
{
    static const unsigned char braille_bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    int cell = y / area->cell_rows * area->columns + x / area->cell_columns;
    area->dots[cell] |= braille_bits[y % area->cell_rows][x % area->cell_columns];
    area->owner[cell] = line;
}

/* Bresenham's line. */
static void canvas_join(canvas *area, int line, int x0, int y0, int x1, int y1)
{
    int dx = abs(x1 - x0), dy = -abs(y1 - y0), step_x = x0 < x1 ? 1 : -1, step_y = y0 < y1 ? 1 : -1, error = dx + dy;
    for (;;) {
        canvas_set(area, line, x0, y0);
        if (x0 == x1 && y0 == y1)
            return;
        int doubled = 2 * error;
        if (doubled >= dy) {
            error += dy;
            x0 += step_x;
        }
        if (doubled <= dx) {
            error += dx;
            y0 += step_y;
        }
    }
}

static int dot_row(const canvas *area, const chart_scale *scale, double y)
{
    int dot_rows = area->rows * area->cell_rows;
    int row = (int)((1 - scale_position(scale, y)) * (dot_rows - 1) + 0.5);
    return row < 0 ? 0 : row >= dot_rows ? dot_rows - 1 : row;
}

static void draw_line(canvas *area, int line, const resampled *values, const chart_scale *y_scale)
{
    int last_x = -1, last_y = 0, dot_columns = area->columns * area->cell_columns;
    for (int x = 0; x < dot_columns; x++) {
        if (values->gap[x])
            last_x = -1;
        if (isnan(values->mean[x]))
            continue;
        int y = dot_row(area, y_scale, values->mean[x]);
        canvas_join(area, line, last_x < 0 ? x : last_x, last_x < 0 ? y : last_y, x, y);
        last_x = x;
        last_y = y;
    }
}

/* Letters stand at different columns for different lines, so that lines lying on each other still
 * show theirs. */
static void place_letters(canvas *area, int line, int line_count, const resampled *values, const chart_scale *y_scale)
{
    for (int part = 0; part < 3; part++) {
        int cell = (int)(area->columns * (part + (line + 0.5) / line_count) / 3);
        for (int distance = 0; distance < 2 * area->columns; distance++) {
            int at = cell + (distance % 2 ? -1 : 1) * ((distance + 1) / 2); /* the nearest cell with a value */
            if (at < 0 || at >= area->columns)
                continue;
            double value = values->mean[at * area->cell_columns];
            if (isnan(value))
                value = values->mean[(at + 1) * area->cell_columns - 1];
            if (isnan(value))
                continue;
            int row = dot_row(area, y_scale, value) / area->cell_rows;
            area->letter[row * area->columns + at] = (char)('A' + line % 26);
            area->owner[row * area->columns + at] = line;
            break;
        }
    }
}

/* ---- printing ---- */

typedef struct chart_style {
    bool utf8, colour;
    int line_count;
} chart_style;

static void print_coloured(FILE *output, const chart_style *style, int line, const char *text)
{
    if (style->colour && line >= 0)
        fprintf(output, "%s%s\033[0m", colours[(size_t)line % FTH_COUNT_OF(colours)], text);
    else
        fputs(text, output);
}

static void print_cell(FILE *output, const canvas *area, const chart_style *style, int cell)
{
    char text[8] = " ";
    if (area->letter[cell]) {
        text[0] = area->letter[cell];
    } else if (area->dots[cell] && style->utf8) {
        unsigned code = 0x2800u + area->dots[cell];
        snprintf(text, sizeof text, "%c%c%c", (char)(0xe0 | code >> 12), (char)(0x80 | (code >> 6 & 0x3f)),
                 (char)(0x80 | (code & 0x3f)));
    } else if (area->dots[cell]) {
        text[0] = ascii_markers[(size_t)area->owner[cell] % (sizeof ascii_markers - 1)];
    }
    print_coloured(output, style, area->owner[cell], text);
}

static void print_rows(FILE *output, const canvas *area, const chart_style *style, const chart_scale *y_scale,
                       const chart_tick *ticks, int tick_count, int label_width)
{
    for (int row = 0; row < area->rows; row++) {
        const char *label = NULL;
        for (int i = 0; i < tick_count && !label; i++)
            if (dot_row(area, y_scale, ticks[i].value) / area->cell_rows == row)
                label = ticks[i].label;
        fprintf(output, "%*s %s", label_width, label ? label : "",
                style->utf8 ? (label ? "┤" : "│") : (label ? "+" : "|"));
        int last = area->columns;
        while (last > 0 && area->owner[row * area->columns + last - 1] < 0)
            last--; /* no spaces at the end of a row */
        for (int column = 0; column < last; column++)
            print_cell(output, area, style, row * area->columns + column);
        fputc('\n', output);
    }
}

static void print_x_axis(FILE *output, const canvas *area, const chart_style *style, const chart_scale *x_scale,
                         const char *x_label, int label_width)
{
    chart_tick ticks[MAX_TICKS];
    int tick_count = make_ticks(x_scale, area->columns / 14, ticks);
    char labels[512] = "";
    int written = 0, right_edge = area->columns;
    fprintf(output, "%*s %s", label_width, "", style->utf8 ? "└" : "+");
    for (int column = 0; column < area->columns; column++) {
        bool tick = false;
        for (int i = 0; i < tick_count; i++) {
            if (dot_column(x_scale, ticks[i].value, area->columns) != column)
                continue;
            tick = true;
            int length = (int)strlen(ticks[i].label), start = column - length / 2;
            start = start < 0 ? 0 : start + length > right_edge ? right_edge - length : start;
            if (start < written + (written > 0) || start + length >= (int)sizeof labels)
                continue; /* would touch the label before */
            written += snprintf(labels + written, sizeof labels - (size_t)written, "%*s%s", start - written, "",
                                ticks[i].label);
        }
        fputs(style->utf8 ? (tick ? "┬" : "─") : (tick ? "+" : "-"), output);
    }
    fprintf(output, "\n%*s  %s\n", label_width, "", labels);
    int indent = label_width + 2 + (area->columns - (int)fth_text_width(x_label)) / 2;
    fprintf(output, "%*s%s\n", indent > 0 ? indent : 0, "", x_label);
}

static void print_legend(FILE *output, const fth_chart_line *lines, const chart_style *style, const char *y_label,
                         bool logarithmic, int columns)
{
    int used = fprintf(output, "%s%s", y_label, logarithmic ? " (log scale)" : "");
    for (int i = 0; i < style->line_count; i++) {
        char marker[8] = "";
        if (style->line_count > 1)
            snprintf(marker, sizeof marker, "%c ",
                     style->utf8 ? 'A' + i % 26 : ascii_markers[(size_t)i % (sizeof ascii_markers - 1)]);
        char *label = fth_printable(lines[i].label);
        int width = (int)(strlen(marker) + fth_text_width(label ? label : "")) + 3;
        if (used + width > columns) {
            fputs("\n  ", output);
            used = 2;
        }
        fputs("   ", output);
        print_coloured(output, style, i, marker);
        print_coloured(output, style, i, label ? label : "");
        free(label);
        used += width;
    }
    fputc('\n', output);
}

/* ---- putting it together ---- */

static bool find_x_range(const fth_chart_line *lines, size_t line_count, chart_scale *scale)
{
    *scale = (chart_scale){.low = DBL_MAX, .high = -DBL_MAX};
    for (size_t i = 0; i < line_count; i++) {
        for (size_t j = 0; j < lines[i].count; j++) {
            if (!can_draw(lines[i].x[j]) || !can_draw(lines[i].y[j]))
                continue;
            scale->low = fmin(scale->low, lines[i].x[j]);
            scale->high = fmax(scale->high, lines[i].x[j]);
        }
    }
    bool found = scale->low <= scale->high;
    if (found && scale->low > 0 && scale->low < 0.1 * scale->high)
        scale->low = 0; /* steps count from the start */
    if (found)
        scale_spread(scale);
    return found;
}

/* A loss that falls from 2.3 to 0.02 shows nothing of its second half on a linear axis. */
static void find_y_range(const resampled *values, size_t line_count, int dot_columns, bool linear, chart_scale *scale)
{
    double low = DBL_MAX, high = -DBL_MAX;
    for (size_t i = 0; i < line_count; i++) {
        for (int x = 0; x < dot_columns; x++) {
            if (isnan(values[i].mean[x]))
                continue;
            low = fmin(low, values[i].mean[x]);
            high = fmax(high, values[i].mean[x]);
        }
    }
    scale->logarithmic = !linear && low > 0 && high / low >= 20;
    scale->low = scale->logarithmic ? log10(low) : low;
    scale->high = scale->logarithmic ? log10(high) : high;
    scale_spread(scale);
}

fth_status fth_chart_print(FILE *output, const fth_chart *chart, const fth_chart_line *lines, size_t line_count)
{
    fth_status status = FTH_OK;
    canvas area = {0};
    resampled *values = NULL;
    chart_style style = {fth_terminal_is_utf8(), fth_terminal_has_colour(output), (int)line_count};
    chart_scale x_scale, y_scale;

    if (line_count == 0 || !find_x_range(lines, line_count, &x_scale)) {
        fprintf(output, "%s: nothing to draw yet\n", chart->y_label);
        return FTH_OK;
    }
    int rows = chart->rows < LEAST_ROWS ? LEAST_ROWS : chart->rows;

    /* Tick labels get a fixed width: their text depends on the range, which depends on the columns
     * left for the plot. */
    int label_width = 8, plot_columns = chart->columns - label_width - 2;
    plot_columns = plot_columns < LEAST_PLOT_COLUMNS ? LEAST_PLOT_COLUMNS : plot_columns;
    int dot_columns = plot_columns * (style.utf8 ? 2 : 1);
    FTH_TRY(fth_allocate(line_count, sizeof *values, &values));
    for (size_t i = 0; i < line_count; i++)
        FTH_TRY(resample(&lines[i], &x_scale, dot_columns, &values[i]));
    find_y_range(values, line_count, dot_columns, chart->linear, &y_scale);

    FTH_TRY(canvas_create(&area, plot_columns, rows, style.utf8));
    for (size_t i = 0; i < line_count; i++)
        draw_line(&area, (int)i, &values[i], &y_scale);
    for (size_t i = 0; line_count > 1 && style.utf8 && i < line_count; i++)
        place_letters(&area, (int)i, (int)line_count, &values[i], &y_scale);

    chart_tick ticks[MAX_TICKS];
    int tick_count = make_ticks(&y_scale, rows / 2, ticks);
    print_legend(output, lines, &style, chart->y_label, y_scale.logarithmic, chart->columns);
    print_rows(output, &area, &style, &y_scale, ticks, tick_count, label_width - 1);
    print_x_axis(output, &area, &style, &x_scale, chart->x_label, label_width - 1);

out:
    for (size_t i = 0; values && i < line_count; i++) {
        free(values[i].mean);
        free(values[i].gap);
    }
    free(values);
    canvas_release(&area);
    return status;
}
