/* The transforms of Winograd's F(2 x 2, 3 x 3) for one image, channels last (Lavin and Gray, 2016).
 *
 * Tile (i, j) makes rows 2i, 2i + 1 and columns 2j, 2j + 1 of the output from a patch of 4 x 4 of
 * the input. A transformed image is (16, tiles, channels): element e of all tiles is a matrix,
 * `plane` floats after that before it. Channels are whole vectors. */
#include "backend/portable/level/level.h"
#include "backend/vector/vector.h"

/* B^T d B; x has at least 2 * rows + 2 rows of 2 * columns + 2 pixels, `line` floats apart. */
static void winograd_input(const float *x, int64_t line, int64_t channels, int64_t rows, int64_t columns, float *to,
                           int64_t plane)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            for (int64_t c = 0; c < channels; c += LANES) {
                const float *from = x + 2 * i * line + 2 * j * channels + c;
                float *out = to + (i * columns + j) * channels + c;
                vector t[4][4];
#pragma GCC unroll 4
                for (int w = 0; w < 4; w++) {
                    const vector d0 = load(from + w * channels);
                    const vector d1 = load(from + line + w * channels);
                    const vector d2 = load(from + 2 * line + w * channels);
                    const vector d3 = load(from + 3 * line + w * channels);
                    t[0][w] = d0 - d2;
                    t[1][w] = d1 + d2;
                    t[2][w] = d2 - d1;
                    t[3][w] = d1 - d3;
                }
#pragma GCC unroll 4
                for (int h = 0; h < 4; h++) {
                    store(out + (4 * h + 0) * plane, t[h][0] - t[h][2]);
                    store(out + (4 * h + 1) * plane, t[h][1] + t[h][2]);
                    store(out + (4 * h + 2) * plane, t[h][2] - t[h][1]);
                    store(out + (4 * h + 3) * plane, t[h][1] - t[h][3]);
                }
            }
}

/* y = [relu](A^T m A + [bias]), (height, width, channels). */
static void winograd_output(const float *from, int64_t plane, int64_t channels, int64_t height, int64_t width,
                            const float *bias, bool with_relu, float *y)
{
    const int64_t rows = (height + 1) / 2, columns = (width + 1) / 2;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            for (int64_t c = 0; c < channels; c += LANES) {
                const float *in = from + (i * columns + j) * channels + c;
                const vector plus = bias ? load(bias + c) : (vector){0};
                vector t[2][4];
#pragma GCC unroll 4
                for (int w = 0; w < 4; w++) {
                    const vector m1 = load(in + (4 + w) * plane), m2 = load(in + (8 + w) * plane);
                    t[0][w] = load(in + w * plane) + m1 + m2;
                    t[1][w] = m1 - m2 - load(in + (12 + w) * plane);
                }
#pragma GCC unroll 2
                for (int h = 0; h < 2; h++) {
                    const vector result[2] = {t[h][0] + t[h][1] + t[h][2] + plus, t[h][1] - t[h][2] - t[h][3] + plus};
#pragma GCC unroll 2
                    for (int w = 0; w < 2; w++)
                        if (2 * i + h < height && 2 * j + w < width)
                            store(y + ((2 * i + h) * width + 2 * j + w) * channels + c,
                                  with_relu ? cut_negative(result[w]) : result[w]);
                }
            }
}

/* A dy A^T: what the gradient of the output is to the transformed product. */
static void winograd_output_gradient(const float *dy, int64_t channels, int64_t height, int64_t width, float *to,
                                     int64_t plane)
{
    const int64_t rows = (height + 1) / 2, columns = (width + 1) / 2;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            for (int64_t c = 0; c < channels; c += LANES) {
                float *out = to + (i * columns + j) * channels + c;
                vector t[4][2];
#pragma GCC unroll 2
                for (int w = 0; w < 2; w++) {
                    const bool inside = 2 * j + w < width;
                    const float *at = dy + (2 * i * width + 2 * j + w) * channels + c;
                    const vector d0 = inside ? load(at) : (vector){0};
                    const vector d1 = inside && 2 * i + 1 < height ? load(at + width * channels) : (vector){0};
                    t[0][w] = d0;
                    t[1][w] = d0 + d1;
                    t[2][w] = d0 - d1;
                    t[3][w] = -d1;
                }
#pragma GCC unroll 4
                for (int h = 0; h < 4; h++) {
                    store(out + (4 * h + 0) * plane, t[h][0]);
                    store(out + (4 * h + 1) * plane, t[h][0] + t[h][1]);
                    store(out + (4 * h + 2) * plane, t[h][0] - t[h][1]);
                    store(out + (4 * h + 3) * plane, -t[h][1]);
                }
            }
}
