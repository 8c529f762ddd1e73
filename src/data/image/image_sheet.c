/* The contact sheet of a set: a row for every class, with its name and some of its images.
 *
 *     +------+-----+-----+-----+
 *     | cat  |     |     |     |      the first column is as wide as the longest name
 *     +------+-----+-----+-----+ */
#include <stdlib.h>
#include <string.h>

#include "data/image/image_inspect.h"
#include "data/image/image_set.h"
#include "data/image/lettering.h"

enum {
    CELL = 96,
    GAP = 4,
    MAX_CELLS = 4096,
    LABEL_SCALE = 2,
    LABEL_COLUMNS = 16, /* letters in a line; longer names are wrapped */
    LABEL_LINES = 4,    /* as many as fit beside an image */
    LABEL_GAP = 8
};

typedef struct contact_sheet {
    uint8_t *pixels; /* 8-bit RGB */
    int width, height, rows, columns;
    int label_width;
    char **labels; /* (rows) */
} contact_sheet;

static void paste(const float *planes, const contact_sheet *sheet, int left, int top)
{
    size_t stride = (size_t)sheet->width * FTH_IMAGE_CHANNELS;
    for (int y = 0; y < CELL; y++)
        for (int x = 0; x < CELL; x++)
            for (int channel = 0; channel < FTH_IMAGE_CHANNELS; channel++) {
                float value = planes[(channel * CELL + y) * CELL + x] * 255 + 0.5f;
                sheet->pixels[(size_t)(top + y) * stride + (size_t)(left + x) * FTH_IMAGE_CHANNELS + (size_t)channel] =
                    (uint8_t)(value < 0     ? 0
                              : value > 255 ? 255
                                            : value);
            }
}

static void write_label(const contact_sheet *sheet, int row)
{
    int columns, lines;
    fth_lettering_measure(sheet->labels[row], &columns, &lines);
    int height = lines * LABEL_SCALE * FTH_LETTER_HEIGHT;
    fth_lettering_draw(sheet->labels[row], LABEL_SCALE, sheet->pixels, (size_t)sheet->width * FTH_IMAGE_CHANNELS,
                       LABEL_GAP, GAP + row * (CELL + GAP) + (CELL - height) / 2);
}

static void free_sheet(contact_sheet *sheet)
{
    for (int i = 0; sheet->labels && i < sheet->rows; i++)
        free(sheet->labels[i]);
    free(sheet->labels);
    free(sheet->pixels);
}

/* A white sheet with the class names. */
static fth_status make_sheet(char *const *names, int rows, int columns, contact_sheet *sheet)
{
    fth_status status = FTH_OK;
    *sheet = (contact_sheet){.rows = rows, .columns = columns};
    FTH_TRY(fth_allocate((size_t)rows, sizeof *sheet->labels, &sheet->labels));
    for (int i = 0; i < rows; i++) {
        int letters, lines;
        sheet->labels[i] = fth_lettering_wrap(names[i], LABEL_COLUMNS, LABEL_LINES);
        FTH_REQUIRE(sheet->labels[i], FTH_NO_MEMORY, "no memory for the names of the classes");
        fth_lettering_measure(sheet->labels[i], &letters, &lines);
        int width = letters * LABEL_SCALE * FTH_LETTER_WIDTH + 2 * LABEL_GAP;
        sheet->label_width = width > sheet->label_width ? width : sheet->label_width;
    }
    sheet->width = sheet->label_width + columns * (CELL + GAP) + GAP;
    sheet->height = rows * (CELL + GAP) + GAP;
    size_t count = (size_t)sheet->width * (size_t)sheet->height;
    FTH_TRY(fth_allocate(count, FTH_IMAGE_CHANNELS, &sheet->pixels));
    memset(sheet->pixels, 255, count * FTH_IMAGE_CHANNELS);
    for (int i = 0; i < rows; i++)
        write_label(sheet, i);

out:
    return status;
}

/* Images spread evenly over a class; an unreadable one stays white. */
static fth_status fill_row(const fth_image_set *set, size_t begin, size_t count, const contact_sheet *sheet, int row,
                           const fth_transform *transform, fth_image_worker *worker, float *planes)
{
    static const fth_normalization plain = {3, {0, 0, 0}, {1, 1, 1}};
    size_t shown = count < (size_t)sheet->columns ? count : (size_t)sheet->columns;
    for (size_t i = 0; i < shown; i++) {
        fth_raw_sample raw;
        fth_status status = fth_image_set_load(set, begin + i * count / shown, worker, &raw);
        if (status == FTH_OK)
            status = fth_raw_sample_transform(&raw, worker, transform, &plain, (fth_random_key){0}, planes);
        if (status == FTH_OK)
            paste(planes, sheet, sheet->label_width + GAP + (int)i * (CELL + GAP), GAP + row * (CELL + GAP));
        else if (status != FTH_CORRUPT)
            return status;
    }
    return FTH_OK;
}

fth_status fth_dataset_draw_sheet(const fth_dataset *dataset, const char *path, int columns, int rows)
{
    fth_status status = FTH_OK;
    const fth_image_set *set = fth_dataset_images(dataset);
    fth_image_worker *worker = NULL;
    contact_sheet sheet = {0};
    float *planes = NULL;
    fth_transform transform;

    FTH_REQUIRE(set, FTH_INVALID, "%s is not a set of image files", dataset->info.name);
    FTH_REQUIRE(columns >= 1 && rows >= 1 && columns <= MAX_CELLS / rows, FTH_INVALID,
                "a sheet of %d × %d images; there may be %d in all", rows, columns, MAX_CELLS);
    FTH_TRY(fth_transform_parse("resize=96,centre-crop=96", &transform));
    FTH_TRY(fth_image_worker_create(&worker));
    FTH_TRY(fth_allocate((size_t)FTH_IMAGE_CHANNELS * CELL * CELL, sizeof *planes, &planes));
    FTH_TRY(make_sheet(set->index.class_names, rows < set->index.classes ? rows : set->index.classes, columns, &sheet));

    size_t end = (size_t)set->index.counts[FTH_TRAIN];
    for (size_t begin = 0, after = 0; begin < end; begin = after) {
        int row = set->index.folders[set->index.entries[begin].folder].class_index;
        while (after < end && set->index.folders[set->index.entries[after].folder].class_index == row)
            after++;
        if (row < sheet.rows)
            FTH_TRY(fill_row(set, begin, after - begin, &sheet, row, &transform, worker, planes));
    }
    FTH_TRY(fth_png_write(path, sheet.pixels, sheet.width, sheet.height));

out:
    fth_image_worker_free(worker);
    free_sheet(&sheet);
    free(planes);
    return status;
}
