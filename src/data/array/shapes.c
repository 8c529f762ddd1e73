/* "shapes" and "shapes-20": coloured shapes that need no files; in half of the 20 classes only
 * their outline is drawn. Each shape has a signed distance function, so its edges are smooth at any
 * size and rotation. Colours, positions and backgrounds are independent of the class.
 *
 * Images must be the same on every machine: no fused multiply-add, no sin or cos (a rotation is a
 * random direction). */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#include <math.h>

#include "data/array/generator.h"

enum { SIDE = 32, AREA = SIDE * SIDE, CHANNELS = 3, SHAPES = 10 };

/* ---- signed distances, negative inside; every shape is about 1 in radius, y up ---- */

static float length_of(float x, float y)
{
    return sqrtf(x * x + y * y);
}

static float clamp(float value, float low, float high)
{
    return value < low ? low : value > high ? high : value;
}

static float circle(float x, float y)
{
    return length_of(x, y) - 0.85f;
}

static float square(float x, float y)
{
    return fmaxf(fabsf(x), fabsf(y)) - 0.74f;
}

static float triangle(float x, float y)
{
    return fmaxf(-y, fabsf(x) * 0.8660254f + y * 0.5f) - 0.52f;
}

static float diamond(float x, float y)
{
    return (fabsf(x) * 2.0f + fabsf(y) - 1.05f) * 0.4472136f;
}

/* Folds the plane onto one of ten equal edges (the star of I. Quilez's "2D distance functions"). */
static float star(float x, float y)
{
    const float kx = 0.80901699f, ky = -0.58778525f, radius = 1.05f, inner = 0.45f;
    x = fabsf(x);
    float fold = 2.0f * fmaxf(kx * x + ky * y, 0.0f);
    x -= fold * kx;
    y -= fold * ky;
    fold = 2.0f * fmaxf(-kx * x + ky * y, 0.0f);
    x += fold * kx;
    y -= fold * ky;
    x = fabsf(x);
    y -= radius;
    float edge_x = inner * -ky, edge_y = inner * kx - 1.0f;
    float along = clamp((x * edge_x + y * edge_y) / (edge_x * edge_x + edge_y * edge_y), 0.0f, radius);
    float distance = length_of(x - edge_x * along, y - edge_y * along);
    return y * edge_x - x * edge_y < 0 ? -distance : distance;
}

static float cross(float x, float y)
{
    x = fabsf(x);
    y = fabsf(y);
    return fminf(fmaxf(x - 0.3f, y - 0.95f), fmaxf(x - 0.95f, y - 0.3f));
}

static float ring(float x, float y)
{
    return fabsf(length_of(x, y) - 0.7f) - 0.2f;
}

static float crescent(float x, float y)
{
    return fmaxf(length_of(x, y) - 0.92f, 0.72f - length_of(x - 0.48f, y));
}

/* A square on its corner and two circles on its upper edges. */
static float heart(float x, float y)
{
    y -= 0.12f;
    x = fabsf(x);
    float corner = (x + fabsf(y + 0.25f)) * 0.70710678f - 0.52f;
    return fminf(corner, length_of(x - 0.3677f, y - 0.1177f) - 0.52f);
}

static float arrow(float x, float y)
{
    x = fabsf(x);
    float head = fmaxf(0.05f - y, x * 0.76822f + y * 0.64018f - 0.64018f);
    float shaft = fmaxf(x - 0.24f, fabsf(y + 0.45f) - 0.5f);
    return fminf(head, shaft);
}

static float (*const outlines[SHAPES])(float x, float y) = {circle, square, triangle, diamond, star,
                                                            cross,  ring,   crescent, heart,   arrow};
/* Filled shapes come first. */
static const char *const names[2 * SHAPES] = {
    "circle",    "square",     "triangle",  "diamond",       "star",        "cross",         "ring",
    "crescent",  "heart",      "arrow",     "circle-line",   "square-line", "triangle-line", "diamond-line",
    "star-line", "cross-line", "ring-line", "crescent-line", "heart-line",  "arrow-line"};

/* ---- images ---- */

typedef struct paint {
    float plane[CHANNELS];
} paint;

static paint draw_colour(fth_draws *draws)
{
    paint colour;
    for (int i = 0; i < CHANNELS; i++)
        colour.plane[i] = fth_draw_between(draws, 0.0f, 255.0f);
    return colour;
}

static float contrast(const paint *a, const paint *b)
{
    float sum = 0;
    for (int i = 0; i < CHANNELS; i++)
        sum += fabsf(a->plane[i] - b->plane[i]);
    return sum;
}

/* A random direction: the cosine and sine of any angle. */
static void draw_turn(fth_draws *draws, float *cosine, float *sine)
{
    float x = 1, y = 0, length = 1;
    for (int i = 0; i < 16; i++) {
        float a = fth_draw_between(draws, -1, 1), b = fth_draw_between(draws, -1, 1), squared = a * a + b * b;
        if (squared <= 1 && squared > 0.01f) {
            x = a;
            y = b;
            length = sqrtf(squared);
            break;
        }
    }
    *cosine = x / length;
    *sine = y / length;
}

static void blend(const paint *colour, float cover, int at, float *picture)
{
    for (int i = 0; i < CHANNELS; i++) {
        float *value = &picture[i * AREA + at];
        *value += (colour->plane[i] - *value) * cover;
    }
}

/* A gradient between two colours, in any direction. */
static void draw_background(fth_draws *draws, const paint *from, const paint *to, float *picture)
{
    float cosine, sine;
    draw_turn(draws, &cosine, &sine);
    for (int i = 0; i < CHANNELS; i++)
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                float along = (((float)x - 15.5f) * cosine + ((float)y - 15.5f) * sine) * (1.0f / 44.0f) + 0.5f;
                picture[i * AREA + y * SIDE + x] = from->plane[i] + (to->plane[i] - from->plane[i]) * along;
            }
}

/* Discs too small to be mistaken for the shape. */
static void draw_specks(fth_draws *draws, float *picture)
{
    for (int count = fth_draw_below(draws, 4); count > 0; count--) {
        paint colour = draw_colour(draws);
        float cx = fth_draw_between(draws, 0, SIDE), cy = fth_draw_between(draws, 0, SIDE);
        float radius = fth_draw_between(draws, 0.5f, 1.6f);
        int x0 = (int)fmaxf(cx - 3, 0), x1 = (int)fminf(cx + 3, SIDE - 1);
        int y0 = (int)fmaxf(cy - 3, 0), y1 = (int)fminf(cy + 3, SIDE - 1);
        for (int y = y0; y <= y1; y++)
            for (int x = x0; x <= x1; x++)
                blend(&colour, clamp(radius + 0.5f - length_of((float)x - cx, (float)y - cy), 0, 1), y * SIDE + x,
                      picture);
    }
}

static const float LINE = 0.75f; /* half the width of a line, in pixels */

static void draw_shape(fth_draws *draws, int label, const paint *colour, float *picture)
{
    float size = fth_draw_between(draws, 8.0f, 13.0f), room = 15.5f - 0.8f * size, cosine, sine;
    float cx = 15.5f + fth_draw_between(draws, -room, room), cy = 15.5f + fth_draw_between(draws, -room, room);
    draw_turn(draws, &cosine, &sine);
    float reach = size * 1.1f + 1.0f, inverse = 1.0f / size;
    int x0 = (int)fmaxf(cx - reach, 0), x1 = (int)fminf(cx + reach, SIDE - 1);
    int y0 = (int)fmaxf(cy - reach, 0), y1 = (int)fminf(cy + reach, SIDE - 1);
    for (int y = y0; y <= y1; y++)
        for (int x = x0; x <= x1; x++) {
            float px = ((float)x - cx) * inverse, py = (cy - (float)y) * inverse;
            float distance = outlines[label % SHAPES](px * cosine + py * sine, py * cosine - px * sine) * size;
            if (label >= SHAPES)
                distance = fabsf(distance) - LINE;
            if (distance < 0.5f)
                blend(colour, clamp(0.5f - distance, 0, 1), y * SIDE + x, picture);
        }
}

static void draw(fth_random_key key, int label, uint8_t *pixels)
{
    fth_draws draws = {.key = key};
    float picture[CHANNELS * AREA];
    paint from = draw_colour(&draws), to = draw_colour(&draws), front = draw_colour(&draws);
    for (int i = 0; i < 16 && (contrast(&front, &from) < 220 || contrast(&front, &to) < 220); i++) {
        to = draw_colour(&draws);
        front = draw_colour(&draws);
    }
    draw_background(&draws, &from, &to, picture);
    draw_shape(&draws, label, &front, picture);
    draw_specks(&draws, picture);

    float amplitude = fth_draw_between(&draws, 2.0f, 24.0f) / 128.0f;
    fth_draw_noise(&draws, amplitude, picture, 1.0f, CHANNELS * AREA, pixels);
}

const fth_generator fth_generator_shapes = {
    .info = {.name = "shapes",
             .classes = SHAPES,
             .class_names = names,
             .channels = CHANNELS,
             .height = SIDE,
             .width = SIDE,
             .count = {20000, 4000},
             .normalization = {3,
                               {0.5014f, 0.4997f, 0.5028f},
                               {0.2481f, 0.2476f, 0.2479f}}}, /* measured over the training images */
    .version = 1,
    .draw = draw,
};

const fth_generator fth_generator_shapes_20 = {
    .info = {.name = "shapes-20",
             .classes = 2 * SHAPES,
             .class_names = names,
             .channels = CHANNELS,
             .height = SIDE,
             .width = SIDE,
             .count = {20000, 4000},
             .normalization = {3,
                               {0.5019f, 0.5006f, 0.5008f},
                               {0.2412f, 0.2409f, 0.2406f}}}, /* measured in the same way */
    .version = 1,
    .draw = draw,
};
