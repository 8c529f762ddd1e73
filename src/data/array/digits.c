/* "digits": handwriting-like digits that need no files.
 *
 * A digit is drawn with a pen: strokes through control points, in one of several handwritings for
 * each digit. The points are jittered; the digit is slanted, scaled, rotated and moved; the pen
 * varies in thickness and darkness. Stray strokes, specks and noise hide which single pixels belong
 * to which digit, so that a linear model does clearly worse than a convnet.
 *
 * Images must be the same on every machine: no fused multiply-add, no sin or cos (rotations use the
 * tangent of half the angle). */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#include <math.h>
#include <string.h>

#include "data/array/generator.h"

enum { SIDE = 28, AREA = SIDE * SIDE, CLASSES = 10, MAX_POINTS = 13, MAX_STROKES = 3, MAX_HANDS = 3, STEPS = 4 };

typedef struct pen_point {
    float x, y;
} pen_point;

/* Control points in a box of 100 × 100, y down. A curve passes smoothly through them all. */
typedef struct pen_stroke {
    bool curve;
    uint8_t count;
    uint8_t points[MAX_POINTS][2];
} pen_stroke;

typedef struct pen_hand {
    uint8_t stroke_count;
    pen_stroke strokes[MAX_STROKES];
} pen_hand;

typedef struct pen_digit {
    uint8_t hand_count;
    pen_hand hands[MAX_HANDS];
} pen_digit;

/* clang-format off */
static const pen_digit digits[CLASSES] = {
    {2, {{1, {{true, 9, {{50,4},{22,22},{16,50},{22,78},{50,96},{78,78},{84,50},{78,22},{50,4}}}}},
         {1, {{true, 9, {{64,10},{36,14},{24,44},{26,76},{46,96},{68,84},{77,52},{70,20},{46,3}}}}}}},
    {3, {{1, {{false, 2, {{50,4},{50,96}}}}},
         {1, {{false, 3, {{30,26},{52,4},{52,96}}}}},
         {2, {{false, 3, {{32,22},{52,4},{52,96}}}, {false, 2, {{30,96},{74,96}}}}}}},
    {2, {{2, {{true, 7, {{20,26},{32,8},{56,4},{78,20},{74,42},{50,66},{18,94}}}, {false, 2, {{18,94},{84,94}}}}},
         {1, {{true, 9, {{20,24},{44,5},{74,16},{72,42},{44,74},{20,92},{26,76},{50,88},{86,93}}}}}}},
    {2, {{2, {{true, 5, {{20,14},{48,4},{76,16},{70,38},{44,47}}},
              {true, 5, {{44,47},{76,56},{82,80},{52,97},{18,86}}}}},
         {2, {{false, 3, {{20,5},{76,5},{46,42}}}, {true, 5, {{46,42},{78,54},{80,80},{50,97},{18,86}}}}}}},
    {2, {{2, {{false, 3, {{30,6},{18,58},{84,58}}}, {false, 2, {{66,32},{62,96}}}}},
         {1, {{false, 4, {{64,96},{64,4},{14,66},{88,66}}}}}}},
    {2, {{2, {{false, 3, {{76,5},{28,5},{24,44}}}, {true, 6, {{24,44},{54,36},{80,54},{78,82},{48,97},{18,86}}}}},
         {2, {{true, 7, {{26,8},{22,44},{52,38},{78,58},{70,88},{42,97},{18,88}}}, {false, 2, {{26,8},{80,6}}}}}}},
    {2, {{1, {{true, 9, {{70,6},{40,24},{20,58},{28,88},{54,97},{78,82},{72,58},{48,50},{24,66}}}}},
         {1, {{true, 9, {{58,3},{34,36},{20,70},{34,94},{62,95},{78,76},{64,57},{38,60},{22,76}}}}}}},
    {3, {{1, {{false, 3, {{16,6},{82,6},{42,96}}}}},
         {2, {{false, 3, {{16,6},{82,6},{42,96}}}, {false, 2, {{34,50},{76,50}}}}},
         {2, {{false, 2, {{18,12},{80,6}}}, {true, 3, {{80,6},{56,42},{46,96}}}}}}},
    {2, {{1, {{true, 13, {{50,47},{26,34},{26,14},{50,4},{74,14},{74,34},{50,47},
                          {22,64},{20,86},{50,97},{80,86},{78,64},{50,47}}}}},
         {1, {{true, 11, {{76,16},{50,4},{26,18},{38,42},{66,58},{76,82},{50,97},{24,82},{36,58},{64,40},{76,16}}}}}}},
    {3, {{2, {{true, 7, {{76,28},{54,5},{26,14},{20,38},{44,54},{70,44},{76,28}}},
              {true, 3, {{76,28},{74,62},{64,96}}}}},
         {2, {{true, 6, {{74,16},{44,5},{22,28},{36,52},{62,46},{74,16}}}, {false, 2, {{75,8},{74,96}}}}},
         {2, {{true, 7, {{76,28},{54,5},{26,14},{20,38},{44,54},{70,44},{76,28}}},
              {true, 4, {{76,28},{78,64},{60,92},{30,94}}}}}}},
};
/* clang-format on */

/* Lowers `squared`, the squared distance of each pixel to the nearest ink so far, by the segment
 * a-b; only pixels nearer than `reach` are touched. */
static void trace_segment(pen_point a, pen_point b, float reach, float *squared)
{
    float left = fminf(a.x, b.x) - reach, right = fmaxf(a.x, b.x) + reach;
    float top = fminf(a.y, b.y) - reach, bottom = fmaxf(a.y, b.y) + reach;
    int x0 = left > 0 ? (int)left : 0, x1 = right < SIDE - 1 ? (int)right : SIDE - 1;
    int y0 = top > 0 ? (int)top : 0, y1 = bottom < SIDE - 1 ? (int)bottom : SIDE - 1;
    float dx = b.x - a.x, dy = b.y - a.y, length = dx * dx + dy * dy;
    float inverse = length > 1e-9f ? 1.0f / length : 0.0f;
    for (int y = y0; y <= y1; y++) {
        float py = (float)y - a.y;
        for (int x = x0; x <= x1; x++) {
            float px = (float)x - a.x;
            float along = (px * dx + py * dy) * inverse;
            along = along < 0 ? 0 : along > 1 ? 1 : along;
            float ex = px - along * dx, ey = py - along * dy;
            float distance = ex * ex + ey * ey;
            squared[y * SIDE + x] = distance < squared[y * SIDE + x] ? distance : squared[y * SIDE + x];
        }
    }
}

static void trace_line(const pen_point *points, int count, bool curve, float reach, float *squared)
{
    for (int i = 0; i + 1 < count; i++) {
        if (!curve) {
            trace_segment(points[i], points[i + 1], reach, squared);
            continue;
        }
        /* Catmull-Rom: the tangent at a point is half the way between its neighbours. */
        pen_point before = points[i > 0 ? i - 1 : 0], a = points[i], b = points[i + 1];
        pen_point after = points[i + 2 < count ? i + 2 : count - 1], last = a;
        for (int step = 1; step <= STEPS; step++) {
            float t = (float)step / STEPS, t2 = t * t, t3 = t2 * t;
            float w0 = -0.5f * t3 + t2 - 0.5f * t, w1 = 1.5f * t3 - 2.5f * t2 + 1.0f;
            float w2 = -1.5f * t3 + 2.0f * t2 + 0.5f * t, w3 = 0.5f * t3 - 0.5f * t2;
            pen_point next = {w0 * before.x + w1 * a.x + w2 * b.x + w3 * after.x,
                              w0 * before.y + w1 * a.y + w2 * b.y + w3 * after.y};
            trace_segment(last, next, reach, squared);
            last = next;
        }
    }
}

/* Inks pixels nearer than `radius`, with an edge one pixel wide; the darker ink wins. */
static void ink(const float *squared, float radius, float brightness, float *picture)
{
    for (int i = 0; i < AREA; i++) {
        float cover = radius + 0.5f - sqrtf(squared[i]);
        cover = cover < 0 ? 0 : cover > 1 ? 1 : cover;
        float value = cover * brightness;
        picture[i] = value > picture[i] ? value : picture[i];
    }
}

static void clear_distances(float *squared)
{
    for (int i = 0; i < AREA; i++)
        squared[i] = 1e6f;
}

/* A linear map and a translation, from the box of control points to pixels. */
typedef struct pen_pose {
    float xx, xy, yx, yy, x, y;
} pen_pose;

static pen_pose draw_pose(fth_draws *draws)
{
    float half = fth_draw_between(draws, -0.14f, 0.14f); /* tan of half the angle: about 16 degrees either way */
    float scale = 1.0f / (1.0f + half * half), cosine = (1.0f - half * half) * scale, sine = 2.0f * half * scale;
    float height = fth_draw_between(draws, 14.5f, 20.5f), width = height * fth_draw_between(draws, 0.6f, 0.95f);
    float slant = fth_draw_between(draws, -0.3f, 0.3f) * height;
    pen_pose pose = {.xx = cosine * width, .xy = -sine * height - cosine * slant, .yx = sine * width};
    pose.yy = cosine * height - sine * slant;
    pose.x = (SIDE - 1) / 2.0f + fth_draw_between(draws, -2.5f, 2.5f);
    pose.y = (SIDE - 1) / 2.0f + fth_draw_between(draws, -2.5f, 2.5f);
    return pose;
}

static void draw_digit(fth_draws *draws, int label, float *squared, float *picture)
{
    const pen_digit *digit = &digits[label];
    const pen_hand *hand = &digit->hands[fth_draw_below(draws, digit->hand_count)];
    pen_pose pose = draw_pose(draws);
    float radius = fth_draw_between(draws, 0.6f, 1.7f), jitter = fth_draw_between(draws, 0.02f, 0.08f);
    float brightness = fth_draw_between(draws, 0.5f, 1.0f);

    clear_distances(squared);
    for (int i = 0; i < hand->stroke_count; i++) {
        const pen_stroke *stroke = &hand->strokes[i];
        pen_point points[MAX_POINTS];
        for (int j = 0; j < stroke->count; j++) {
            float x = (float)stroke->points[j][0] * 0.01f - 0.5f + fth_draw_between(draws, -jitter, jitter);
            float y = (float)stroke->points[j][1] * 0.01f - 0.5f + fth_draw_between(draws, -jitter, jitter);
            points[j] = (pen_point){pose.xx * x + pose.xy * y + pose.x, pose.yx * x + pose.yy * y + pose.y};
        }
        trace_line(points, stroke->count, stroke->curve, radius + 0.5f, squared);
    }
    ink(squared, radius, brightness, picture);
}

/* Short strokes of another pen, and specks. */
static void draw_strays(fth_draws *draws, float *squared, float *picture)
{
    int strokes = fth_draw_below(draws, 5), specks = fth_draw_below(draws, 6);
    if (strokes > 0) {
        float radius = fth_draw_between(draws, 0.3f, 0.8f), brightness = fth_draw_between(draws, 0.3f, 0.8f);
        clear_distances(squared);
        for (int i = 0; i < strokes; i++) {
            float x = fth_draw_between(draws, 0, SIDE), y = fth_draw_between(draws, 0, SIDE);
            float dx = fth_draw_between(draws, -6, 6), dy = fth_draw_between(draws, -6, 6);
            trace_segment((pen_point){x, y}, (pen_point){x + dx, y + dy}, radius + 0.5f, squared);
        }
        ink(squared, radius, brightness, picture);
    }
    for (int i = 0; i < specks; i++) {
        int at = fth_draw_below(draws, AREA); /* one draw a statement: C does not define the order within one */
        picture[at] = fth_draw_between(draws, 0.2f, 1.0f);
    }
}

static void draw(fth_random_key key, int label, uint8_t *pixels)
{
    fth_draws draws = {.key = key};
    float squared[AREA], picture[AREA] = {0};
    draw_digit(&draws, label, squared, picture);
    draw_strays(&draws, squared, picture);

    float amplitude = fth_draw_between(&draws, 4.0f, 40.0f) / 128.0f;
    fth_draw_noise(&draws, amplitude, picture, 255.0f, AREA, pixels);
}

static const char *const names[CLASSES] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

const fth_generator fth_generator_digits = {
    .info = {.name = "digits",
             .classes = CLASSES,
             .class_names = names,
             .channels = 1,
             .height = SIDE,
             .width = SIDE,
             .count = {20000, 4000},
             .normalization = {1, {0.0992f}, {0.2176f}}}, /* measured over the training images */
    .version = 1,
    .draw = draw,
};
