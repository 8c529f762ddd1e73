/* See winograd.h. */
#include "backend/portable/winograd.h"

enum { ELEMENTS = 16 };

/* Tiles are transformed and multiplied some rows of them at a time, so that they stay in the
 * caches: about so many. */
enum { CHUNK_TILES = 48 };

static int64_t tile_columns(const portable_winograd *w)
{
    return (w->width + 1) / 2;
}

/* Rows of tiles in a chunk. */
static int64_t chunk_rows(const portable_winograd *w)
{
    const int64_t all = (w->height + 1) / 2, rows = (CHUNK_TILES + tile_columns(w) - 1) / tile_columns(w);
    return rows < all ? rows : all;
}

static int64_t chunk_tiles(const portable_winograd *w)
{
    return chunk_rows(w) * tile_columns(w);
}

/* Floats from the matrix of one element to that of the next. They are a vector more than the matrix
 * has: a multiple of a page apart, all sixteen would compete for the same lines of the first
 * cache. */
static int64_t plane_floats(const portable_winograd *w, int64_t tiles, int64_t channels)
{
    return tiles * channels + w->level->lanes;
}

/* Of one element's matrix of weights, packed. */
static int64_t panel_floats(const portable_winograd *w)
{
    const int64_t columns = w->level->panel_columns;
    return (w->filters + columns - 1) / columns * columns * w->channels;
}

int64_t portable_winograd_weights_floats(const portable_winograd *w)
{
    return ELEMENTS * panel_floats(w);
}

int64_t portable_winograd_input_floats(const portable_winograd *w)
{
    return ELEMENTS * plane_floats(w, chunk_tiles(w), w->channels);
}

int64_t portable_winograd_output_floats(const portable_winograd *w)
{
    return ELEMENTS * plane_floats(w, chunk_tiles(w), w->filters);
}

/* G g G^T of one filter and channel. */
static void transform_weight(const float *taps, bool flipped, float out[ELEMENTS])
{
    float t[4][3];
    for (int j = 0; j < 3; j++) {
        float g[3];
        for (int i = 0; i < 3; i++)
            g[i] = taps[flipped ? 8 - (3 * i + j) : 3 * i + j];
        t[0][j] = g[0];
        t[1][j] = 0.5f * (g[0] + g[1] + g[2]);
        t[2][j] = 0.5f * (g[0] - g[1] + g[2]);
        t[3][j] = g[2];
    }
    for (int i = 0; i < 4; i++) {
        out[4 * i + 0] = t[i][0];
        out[4 * i + 1] = 0.5f * (t[i][0] + t[i][1] + t[i][2]);
        out[4 * i + 2] = 0.5f * (t[i][0] - t[i][1] + t[i][2]);
        out[4 * i + 3] = t[i][2];
    }
}

void portable_winograd_pack(const portable_winograd *w, const float *weight, float *weights)
{
    const int64_t columns = w->level->panel_columns, plane = panel_floats(w);
    for (int64_t o = 0; o < (w->filters + columns - 1) / columns * columns; o++)
        for (int64_t c = 0; c < w->channels; c++) {
            float *to = weights + (o / columns * w->channels + c) * columns + o % columns;
            float transformed[ELEMENTS] = {0};
            if (o < w->filters)
                transform_weight(weight + c * w->channel_step + o * w->filter_step, w->flipped, transformed);
            for (int e = 0; e < ELEMENTS; e++)
                to[e * plane] = transformed[e];
        }
}

/* `height` rows of the image. */
static void run_chunk(const portable_winograd *w, int64_t height, const float *x, int64_t line, const float *weights,
                      float *input, float *output, const float *bias, bool relu, float *y)
{
    const int64_t rows = (height + 1) / 2, count = rows * tile_columns(w);
    const int64_t input_plane = plane_floats(w, count, w->channels), output_plane = plane_floats(w, count, w->filters);
    const portable_segment all = {0, w->channels};
    w->level->winograd_input(x, line, w->channels, rows, tile_columns(w), input, input_plane);
    for (int e = 0; e < ELEMENTS; e++)
        w->level->multiply(&(portable_product){
            .rows = count,
            .columns = w->filters,
            .a = input + e * input_plane,
            .a_rows = {count, 0, w->channels},
            .a_step = 1,
            .segments = &all,
            .segment_count = 1,
            .b = weights + e * panel_floats(w),
            .b_step = w->level->panel_columns,
            .b_panel = w->channels * w->level->panel_columns,
            .c = output + e * output_plane,
            .c_rows = {count, 0, w->filters},
        });
    w->level->winograd_output(output, output_plane, w->filters, height, w->width, bias, relu, y);
}

void portable_winograd_run(const portable_winograd *w, const float *x, int64_t line, const float *weights, float *input,
                           float *output, const float *bias, bool relu, float *y)
{
    const int64_t step = 2 * chunk_rows(w);
    for (int64_t h = 0; h < w->height; h += step)
        run_chunk(w, w->height - h < step ? w->height - h : step, x + h * line, line, weights, input, output, bias,
                  relu, y + h * w->width * w->filters);
}

static void add_chunk(const portable_winograd *w, int64_t height, const float *x, int64_t line, const float *dy,
                      bool is_first, float *input, float *output, float *gradient)
{
    const int64_t rows = (height + 1) / 2, count = rows * tile_columns(w);
    const int64_t input_plane = plane_floats(w, count, w->channels), output_plane = plane_floats(w, count, w->filters);
    const portable_segment all = {0, count};
    w->level->winograd_input(x, line, w->channels, rows, tile_columns(w), input, input_plane);
    w->level->winograd_output_gradient(dy, w->filters, height, w->width, output, output_plane);
    for (int e = 0; e < ELEMENTS; e++)
        w->level->multiply(&(portable_product){
            .rows = w->channels,
            .columns = w->filters,
            .a = input + e * input_plane,
            .a_rows = {w->channels, 0, 1},
            .a_step = w->channels,
            .segments = &all,
            .segment_count = 1,
            .b = output + e * output_plane,
            .b_step = w->filters,
            .b_panel = w->level->panel_columns,
            .c = gradient + e * w->channels * w->filters,
            .c_rows = {w->channels, 0, w->filters},
            .accumulate = !is_first,
        });
}

void portable_winograd_add_gradient(const portable_winograd *w, const float *x, int64_t line, const float *dy,
                                    bool is_first, float *input, float *output, float *gradient)
{
    const int64_t step = 2 * chunk_rows(w);
    for (int64_t h = 0; h < w->height; h += step)
        add_chunk(w, w->height - h < step ? w->height - h : step, x + h * line, line, dy + h * w->width * w->filters,
                  is_first && h == 0, input, output, gradient);
}

/* G^T u G of one filter and channel. */
void portable_winograd_unpack(const portable_winograd *w, const float *gradient, float *weight)
{
    const int64_t plane = w->channels * w->filters;
    for (int64_t o = 0; o < w->filters; o++)
        for (int64_t c = 0; c < w->channels; c++) {
            const float *u = gradient + c * w->filters + o;
            float t[3][4], *g = weight + c * w->channel_step + o * w->filter_step;
            for (int j = 0; j < 4; j++) {
                const float half_sum = 0.5f * (u[(4 + j) * plane] + u[(8 + j) * plane]);
                t[0][j] = u[j * plane] + half_sum;
                t[1][j] = 0.5f * (u[(4 + j) * plane] - u[(8 + j) * plane]);
                t[2][j] = half_sum + u[(12 + j) * plane];
            }
            for (int i = 0; i < 3; i++) {
                const float half_sum = 0.5f * (t[i][1] + t[i][2]);
                g[3 * i + 0] = t[i][0] + half_sum;
                g[3 * i + 1] = 0.5f * (t[i][1] - t[i][2]);
                g[3 * i + 2] = half_sum + t[i][3];
            }
        }
}
