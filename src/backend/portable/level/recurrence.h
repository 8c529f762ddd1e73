/* One step of one sequence of an LSTM or a GRU, and its gradient: what follows the products with
 * the weights (op_recurrent.c has the formulas' names, plain/recurrent.c the formulas). */
#include "backend/portable/level/level.h"
#include "backend/vector/vector.h"

INLINE vector logistic(vector x)
{
    const vector power = x * -log2_e, most = (vector){0} + 126;
    return 1 / (1 + power_of_2(blend(power > most, most, power)));
}

/* The polynomial is that of cpu/vector_math.h: near 0 the difference would lose digits. */
INLINE vector hyperbolic_tangent(vector x)
{
    const vector square = x * x, limit = (vector){0} + 0.625f;
    vector p = square * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    p = p * square * x + x;
    return blend((x < limit) & (x > -limit), p, 2 * logistic(2 * x) - 1);
}

static void lstm_cell(float *gates, const float *c_before, float *c, float *h, int64_t hidden)
{
    for (int64_t k = 0; k < hidden; k += LANES) {
        const int64_t count = smaller(hidden - k, LANES);
        const vector in = logistic(load_part(gates + k, count));
        const vector forget = logistic(load_part(gates + hidden + k, count));
        const vector candidate = hyperbolic_tangent(load_part(gates + 2 * hidden + k, count));
        const vector out = logistic(load_part(gates + 3 * hidden + k, count));
        const vector before = c_before ? load_part(c_before + k, count) : (vector){0};
        const vector cell = forget * before + in * candidate;
        store_part(gates + k, in, count);
        store_part(gates + hidden + k, forget, count);
        store_part(gates + 2 * hidden + k, candidate, count);
        store_part(gates + 3 * hidden + k, out, count);
        store_part(c + k, cell, count);
        store_part(h + k, out * hyperbolic_tangent(cell), count);
    }
}

static void lstm_slopes(const float *gates, const float *c, const float *c_before, const float *dh, float *dc,
                        float *ds, int64_t hidden)
{
    for (int64_t k = 0; k < hidden; k += LANES) {
        const int64_t count = smaller(hidden - k, LANES);
        const vector in = load_part(gates + k, count), forget = load_part(gates + hidden + k, count);
        const vector candidate = load_part(gates + 2 * hidden + k, count);
        const vector out = load_part(gates + 3 * hidden + k, count);
        const vector t = hyperbolic_tangent(load_part(c + k, count)), slope = load_part(dh + k, count);
        const vector before = c_before ? load_part(c_before + k, count) : (vector){0};
        const vector dcell = load_part(dc + k, count) + slope * out * (1 - t * t);
        store_part(ds + k, dcell * candidate * in * (1 - in), count);
        store_part(ds + hidden + k, dcell * before * forget * (1 - forget), count);
        store_part(ds + 2 * hidden + k, dcell * in * (1 - candidate * candidate), count);
        store_part(ds + 3 * hidden + k, slope * t * out * (1 - out), count);
        store_part(dc + k, dcell * forget, count);
    }
}

static void gru_cell(float *gates, const float *cell, const float *h_before, float *h, int64_t hidden)
{
    for (int64_t k = 0; k < hidden; k += LANES) {
        const int64_t count = smaller(hidden - k, LANES);
        const vector r = logistic(load_part(gates + k, count)), z = logistic(load_part(gates + hidden + k, count));
        const vector n = hyperbolic_tangent(load_part(gates + 2 * hidden + k, count) + r * load_part(cell + k, count));
        const vector before = h_before ? load_part(h_before + k, count) : (vector){0};
        store_part(gates + k, r, count);
        store_part(gates + hidden + k, z, count);
        store_part(gates + 2 * hidden + k, n, count);
        store_part(h + k, (1 - z) * n + z * before, count);
    }
}

static void gru_slopes(const float *gates, const float *cell, const float *h_before, float *dh, float *ds, float *dr,
                       int64_t hidden)
{
    for (int64_t k = 0; k < hidden; k += LANES) {
        const int64_t count = smaller(hidden - k, LANES);
        const vector r = load_part(gates + k, count), z = load_part(gates + hidden + k, count);
        const vector n = load_part(gates + 2 * hidden + k, count), slope = load_part(dh + k, count);
        const vector before = h_before ? load_part(h_before + k, count) : (vector){0};
        const vector dn = slope * (1 - z) * (1 - n * n), dz = slope * (before - n) * z * (1 - z);
        const vector dreset = dn * load_part(cell + k, count) * r * (1 - r);
        store_part(ds + k, dreset, count);
        store_part(ds + hidden + k, dz, count);
        store_part(ds + 2 * hidden + k, dn, count);
        store_part(dr + k, dreset, count);
        store_part(dr + hidden + k, dz, count);
        store_part(dr + 2 * hidden + k, dn * r, count);
        store_part(dh + k, slope * z, count);
    }
}
