/* Anderson's mixing of one agent's potentials: few lines of as many numbers as it has columns, the oldest first. */
#include "numbers.h"

enum { MOST_LINES = 16, AT_ONCE = 64 };

/* A residual as many times as long as it should be, by no more than `longest`; without `stretch`, as it is. */
INLINE void stretch_line(
    ptrdiff_t many, const double *residual, const double *stretch, const double *longest, double *restrict out)
{
    for (ptrdiff_t m = 0; m < many; m++)
        out[m] = residual[m];
    if (stretch) {
#pragma omp simd
        for (ptrdiff_t m = 0; m < many; m++) {
            double more = out[m] * (stretch[m] - 1.0);
            more = more > longest[m] ? longest[m] : more;
            out[m] += more < -longest[m] ? -longest[m] : more;
        }
    }
}

INLINE double product(ptrdiff_t many, const double *a, const double *b)
{
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (ptrdiff_t m = 0; m < many; m++)
        sum += a[m] * b[m];
    return sum;
}

/* With d_k the differences of stretched residuals, one after the other: gram_kl += sum_m weight_m d_km d_lm for l >= k,
 * lines - 1 numbers in a row, and last_k += sum_m weight_m d_km r_m, r the last line. At most MOST_LINES lines. */
FOR_EVERY_PROCESSOR
void mixing_products(
    ptrdiff_t lines, ptrdiff_t count, const double *const *residuals, const double *stretch, const double *longest,
    const double *weights, double *gram, double *last)
{
    for (ptrdiff_t start = 0; start < count; start += AT_ONCE) {
        ptrdiff_t many = count - start < AT_ONCE ? count - start : AT_ONCE, steps = lines - 1;
        const double *times = stretch ? stretch + start : 0, *most = stretch ? longest + start : 0;
        double change[MOST_LINES][AT_ONCE], newest[AT_ONCE], weighed[AT_ONCE];
        stretch_line(many, residuals[0] + start, times, most, newest);
        for (ptrdiff_t k = 0; k < steps; k++) {
            double older[AT_ONCE];
            memcpy(older, newest, sizeof older);
            stretch_line(many, residuals[k + 1] + start, times, most, newest);
            for (ptrdiff_t m = 0; m < many; m++)
                change[k][m] = newest[m] - older[m];
        }
        for (ptrdiff_t k = 0; k < steps; k++) {
            for (ptrdiff_t m = 0; m < many; m++)
                weighed[m] = weights[start + m] * change[k][m];
            for (ptrdiff_t l = k; l < steps; l++)
                gram[k * steps + l] += product(many, weighed, change[l]);
            last[k] += product(many, weighed, newest);
        }
    }
}

/* out = r - sum_k c_k (dp_k + dr_k), with dp and dr the differences of points and of stretched residuals, and r the
 * stretched `residual`; what is taken off is `limit` at most. */
FOR_EVERY_PROCESSOR
void mixing_step(
    ptrdiff_t lines, ptrdiff_t count, const double *const *points, const double *const *residuals,
    const double *stretch, const double *longest, const double *coefficients, double limit, const double *residual,
    double *restrict out)
{
    for (ptrdiff_t start = 0; start < count; start += AT_ONCE) {
        ptrdiff_t many = count - start < AT_ONCE ? count - start : AT_ONCE;
        const double *times = stretch ? stretch + start : 0, *most = stretch ? longest + start : 0;
        double off[AT_ONCE] = {0.0}, newest[AT_ONCE];
        stretch_line(many, residuals[0] + start, times, most, newest);
        for (ptrdiff_t k = 0; k + 1 < lines; k++) {
            const double *from = points[k] + start, *to = points[k + 1] + start;
            double older[AT_ONCE];
            memcpy(older, newest, sizeof older);
            stretch_line(many, residuals[k + 1] + start, times, most, newest);
            for (ptrdiff_t m = 0; m < many; m++)
                off[m] += coefficients[k] * ((to[m] - from[m]) + (newest[m] - older[m]));
        }
        stretch_line(many, residual + start, times, most, out + start);
        for (ptrdiff_t m = 0; m < many; m++) {
            double bounded = off[m] > limit ? limit : off[m];
            out[start + m] -= bounded < -limit ? -limit : bounded;
        }
    }
}
