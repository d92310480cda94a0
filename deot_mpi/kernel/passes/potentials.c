/* Passes over potentials, as many numbers as rows or columns: what stands before and after a sweep, and what a target
 * does with the sums it is sent. Each is one short loop where NumPy would make three to eight calls, which take longer
 * than their work where a sweep has just driven everything else out of the caches. */
#include "numbers.h"

/* log x = k ln 2 + log m, m between the roots of 1/2 and 2, log m = 2 artanh s, s = (m - 1) / (m + 1), |s| <= 0.172: the
 * series to s^21 is off by 2e-18. For x of the least normal number or more; what is not finite gives no number. */
INLINE double log_double(double x)
{
    const uint64_t ROOT_OF_HALF = 0x3fe6a09e667f3bcdu, ONE = 0x3ff0000000000000u, WHOLE = 0x4330000000000000u;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint64_t power = (bits - ROOT_OF_HALF + ONE) >> 52; /* k + 1023 */
    uint64_t rest = bits - (power << 52) + ONE, whole = WHOLE | power;
    double m, k;
    memcpy(&m, &rest, sizeof m);
    memcpy(&k, &whole, sizeof k); /* 2^52 + k + 1023 */
    k -= 4503599627370496.0 + 1023.0;
    double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 1.0 / 21;
    p = p * z + 1.0 / 19;
    p = p * z + 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    double series = 2.0 * s + 2.0 * s * z * p;
    return k * 0.693147180369123816490 + (series + k * 1.90821492927058770002e-10) + (x - x);
}

/* exp as far as float64 goes; a NaN stays one. */
INLINE double exp_bounded(double x)
{
    double inside = -708.0 > x ? -708.0 : x;
    return exp_double(709.0 < inside ? 709.0 : inside);
}

/* max |a - b|; what is no number is passed over */
FOR_EVERY_PROCESSOR
double largest_move(ptrdiff_t count, const double *a, const double *b)
{
    double top = 0.0;
#pragma omp simd reduction(max : top)
    for (ptrdiff_t m = 0; m < count; m++) {
        double move = fabs(a[m] - b[m]);
        top = move > top ? move : top;
    }
    return top;
}

/* out = exp(potential - since) for the columns of some parts; part p has columns low[p] to high[p] - 1 of `potential`,
 * and the first of them stands at to[p]. */
FOR_EVERY_PROCESSOR
void scale(
    ptrdiff_t parts, const int64_t *low, const int64_t *high, const int64_t *to, const double *potential,
    const double *since, float *out)
{
    for (ptrdiff_t p = 0; p < parts; p++) {
        const double *from = potential + low[p], *before = since + low[p];
        float *restrict there = out + to[p];
#pragma omp simd
        for (ptrdiff_t m = 0; m < high[p] - low[p]; m++)
            there[m] = (float)exp_bounded(from[m] - before[m]);
    }
}

/* out = sign (offset + log number), of a number that is too small to be seen as of one that is just not. */
FOR_EVERY_PROCESSOR
void add_logs(ptrdiff_t count, const double *numbers, const double *offsets, double sign, double *restrict out)
{
#pragma omp simd
    for (ptrdiff_t m = 0; m < count; m++) {
        double x = numbers[m];
        out[m] = sign * (offsets[m] + log_double(DBL_MIN > x ? DBL_MIN : x));
    }
}

/* out_m = own_m + log sum_k exp(lines_km + offset_k); -inf where all are, inf where one is. Columns go some at a time. */
enum { COLUMNS = 128 };

FOR_EVERY_PROCESSOR
void log_mass(
    ptrdiff_t lines, ptrdiff_t count, const double *const *numbers, const double *offsets, const double *own,
    double *restrict out)
{
    for (ptrdiff_t start = 0; start < count; start += COLUMNS) {
        ptrdiff_t many = count - start < COLUMNS ? count - start : COLUMNS;
        double top[COLUMNS], sum[COLUMNS];
        for (ptrdiff_t m = 0; m < many; m++)
            top[m] = -DBL_MAX, sum[m] = 0.0;
        for (ptrdiff_t k = 0; k < lines; k++) {
            const double *line = numbers[k] + start;
#pragma omp simd
            for (ptrdiff_t m = 0; m < many; m++) {
                double x = line[m] + offsets[k];
                top[m] = x > top[m] ? x : top[m];
            }
        }
        for (ptrdiff_t k = 0; k < lines; k++) {
            const double *line = numbers[k] + start;
#pragma omp simd
            for (ptrdiff_t m = 0; m < many; m++)
                sum[m] += exp_bounded(line[m] + offsets[k] - top[m]);
        }
#pragma omp simd
        for (ptrdiff_t m = 0; m < many; m++) {
            double found = top[m] + log_double(sum[m]);
            found = top[m] == -DBL_MAX ? -(double)INFINITY + (sum[m] - sum[m]) : found;
            out[start + m] = own[start + m] + (top[m] == (double)INFINITY ? top[m] : found);
        }
    }
}

/* sum_m weight_m |exp(x_m) - 1|, x of any size; infinite beyond 709, no number where there is one. */
FOR_EVERY_PROCESSOR
double excess(ptrdiff_t count, const double *weights, const double *x)
{
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (ptrdiff_t m = 0; m < count; m++) {
        double small = x[m] * (1.0 + x[m] * (0.5 + x[m] * (1.0 / 6))), large = exp_bounded(x[m]) - 1.0;
        double off = fabs(fabs(x[m]) < 1e-4 ? small : large);
        sum += weights[m] * (x[m] > 709.0 ? (double)INFINITY : off);
    }
    return sum;
}
