/* How training scales with workers, as a picture: efficiency and epoch time by workers, and losses
 * over time. */
#include <math.h>
#include <stdlib.h>

#include "report/report_internal.h"
#include "report/scaling.h"

typedef struct scaling_drawing {
    const fth_scaling_row *rows;
    size_t count;
} scaling_drawing;

static void write_by_workers(FILE *script, const scaling_drawing *all)
{
    int least = all->rows[0].workers, most = all->rows[all->count - 1].workers;
    fputs("$scaling << END_OF_DATA\n", script);
    for (size_t i = 0; i < all->count; i++)
        if (isfinite(all->rows[i].efficiency))
            fprintf(script, "%d %.6g %.6g\n", all->rows[i].workers, all->rows[i].efficiency, all->rows[i].epoch_s);
    fputs("END_OF_DATA\n", script);
    fputs("set xlabel 'workers'\nset ylabel 'scaling efficiency'\nset y2label 'seconds per epoch'\nset y2tics\n"
          "set border 11\nset yrange [0:1.1]\nset y2range [0:*]\n",
          script);
    fth_picture_key(script, 0);
    fputs("set xtics (", script);
    for (size_t i = 0; i < all->count; i++)
        fprintf(script, "%s%d", i > 0 ? ", " : "", all->rows[i].workers);
    fprintf(script,
            ")\nset logscale x 2\nset xrange [%.9g:%.9g]\n"
            "plot 1 with lines dt 3 lc rgb '#909090' notitle, "
            "$scaling using 1:2 with linespoints pt 7 lw 1.6 lc rgb '%s' title 'efficiency', "
            "$scaling using 1:3 axes x1y2 with linespoints pt 5 dt 2 lw 1.6 lc rgb '%s' title 'epoch time'\n"
            "unset logscale x\nunset y2label\nunset y2tics\nset border 3\nset xtics auto\n",
            0.9 * least, 1.1 * most, fth_picture_colour(0), fth_picture_colour(1));
}

static fth_status write_losses(FILE *script, const scaling_drawing *all)
{
    fth_status status = FTH_OK;
    fth_chart_line line = {0};
    fth_picture_extent seen = {INFINITY, 0, 0};
    char label[96];
    const char *separator = "plot ";
    size_t longest = 0;
    for (size_t i = 0; i < all->count; i++) {
        FTH_TRY(fth_report_curve(&all->rows[i].run->training, FTH_LOSS, FTH_OVER_TIME, "", &line));
        fth_picture_series(script, &line, i, "training", &seen);
        fth_report_curve_release(&line);
        FTH_TRY(fth_report_curve(&all->rows[i].run->validation, FTH_LOSS, FTH_OVER_TIME, "", &line));
        fth_picture_series(script, &line, i, "validation", &seen);
        fth_report_curve_release(&line);
    }
    fprintf(script, "set xlabel '%s'\nset ylabel 'loss'\nset xrange [0:%.9g]\n", fth_report_axis_name(FTH_OVER_TIME),
            seen.right);
    fth_picture_loss_axis(script, &seen);
    for (size_t i = 0; i < all->count; i++) {
        fth_scaling_label(&all->rows[i], label, sizeof label);
        const size_t width = fth_text_width(label);
        longest = width > longest ? width : longest;
    }
    fth_picture_key(script, longest);
    for (size_t i = 0; i < all->count; i++) {
        fth_scaling_label(&all->rows[i], label, sizeof label);
        if (fth_report_has(&all->rows[i].run->training, FTH_LOSS)) {
            fprintf(script, "%s$training%zu using 1:2 with lines lw 1.6 lc rgb '%s' title ", separator, i,
                    fth_picture_colour(i));
            fth_picture_quote(script, label);
            separator = ", ";
        }
        if (fth_report_has(&all->rows[i].run->validation, FTH_LOSS)) {
            fprintf(script, "%s$validation%zu using 1:2 with linespoints pt 7 ps 0.7 dt 2 lc rgb '%s' notitle",
                    separator, i, fth_picture_colour(i));
            separator = ", ";
        }
    }
    fth_picture_key_validation(script, separator);
    fputc('\n', script);

out:
    fth_report_curve_release(&line);
    return status;
}

static fth_status write_script(FILE *script, bool svg, const char *title, const void *context)
{
    fth_picture_begin(script, svg, 2);
    fth_picture_begin_panels(script, title, 2);
    write_by_workers(script, context);
    fth_status status = write_losses(script, context);
    fputs("unset multiplot\nset output\n", script);
    return status;
}

fth_status fth_report_scaling_picture(const char *path, const fth_record_summary *runs, size_t run_count)
{
    fth_status status = FTH_OK;
    fth_scaling_row *rows = NULL;
    char *title = NULL, *model = NULL, *data = NULL;
    size_t known = 0;

    FTH_TRY(fth_allocate(run_count, sizeof *rows, &rows));
    fth_scaling_make(runs, run_count, rows);
    for (size_t i = 0; i < run_count; i++)
        known += isfinite(rows[i].efficiency);
    FTH_REQUIRE(known > 0, FTH_INVALID, "no steps are recorded yet, so there is nothing to draw");
    model = fth_report_option(rows[0].run, "model");
    data = fth_report_option(rows[0].run, "data");
    title = fth_format("%s on %s, data-parallel", model, data);
    FTH_TRY(fth_picture_draw(path, title, write_script, &(scaling_drawing){rows, run_count}));

out:
    free(rows);
    free(title);
    free(model);
    free(data);
    return status;
}
