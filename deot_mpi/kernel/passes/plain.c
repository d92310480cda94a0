/* Passes over a chunk of the kernel that NumPy would make in four or five: exponents become entries, or the plan; counts
 * of bits become exponents. */
#include "numbers.h"

/* Another number whenever a pass takes other arguments, here and in loops.py: a library that was built before is then not
 * used. */
ptrdiff_t version(void) { return 8; }

/* out = exp(max(exponent - shift, floor)), row by row: entries in (0, 1] where shift is the row's largest exponent.
 * Comparisons are the way round in which a NaN stays one. */
FOR_EVERY_PROCESSOR
void absorb_single(ptrdiff_t rows, ptrdiff_t width, const float *exponent, const float *shift, float floor_, float *out)
{
    for (ptrdiff_t n = 0; n < rows; n++) {
        const float *restrict from = exponent + n * width;
        float *to = out + n * width, top = shift[n];
#pragma omp simd
        for (ptrdiff_t m = 0; m < width; m++) {
            float x = from[m] - top;
            to[m] = exp_single(floor_ > x ? floor_ : x);
        }
    }
}

/* The same from exponents in float64, stored as float32. */
FOR_EVERY_PROCESSOR
void absorb_rounded(
    ptrdiff_t rows, ptrdiff_t width, const double *exponent, const double *shift, double floor_, float *out)
{
    for (ptrdiff_t n = 0; n < rows; n++) {
        const double *restrict from = exponent + n * width;
        float *restrict to = out + n * width;
        double top = shift[n];
#pragma omp simd
        for (ptrdiff_t m = 0; m < width; m++) {
            double x = from[m] - top;
            to[m] = exp_single((float)(floor_ > x ? floor_ : x));
        }
    }
}

FOR_EVERY_PROCESSOR
void absorb_double(
    ptrdiff_t rows, ptrdiff_t width, const double *exponent, const double *shift, double floor_, double *out)
{
    for (ptrdiff_t n = 0; n < rows; n++) {
        const double *from = exponent + n * width;
        double *to = out + n * width, top = shift[n];
#pragma omp simd
        for (ptrdiff_t m = 0; m < width; m++) {
            double x = from[m] - top;
            to[m] = exp_double(floor_ > x ? floor_ : x);
        }
    }
}

/* In place, P = exp(exponent), 0 below -708; of each row sum_m P and sum_m P log P. Any exponent may come: those of
 * a run that diverged are above 709, infinite or not numbers, and so are then the sums. */
FOR_EVERY_PROCESSOR
void plan_rows(ptrdiff_t rows, ptrdiff_t width, double *exponent, double *sums, double *products)
{
    for (ptrdiff_t n = 0; n < rows; n++) {
        double *row = exponent + n * width, sum = 0.0, product = 0.0;
#pragma omp simd reduction(+ : sum, product)
        for (ptrdiff_t m = 0; m < width; m++) {
            double x = row[m];
            double inside = -708.0 > x ? -708.0 : x;
            inside = 709.0 < inside ? 709.0 : inside;
            double seen = x < -708.0 ? 0.0 : 1.0;
            double entry = exp_double(inside) * seen + (x > 709.0 ? (double)INFINITY : 0.0);
            row[m] = entry;
            sum += entry;
            product += entry * inside;
        }
        sums[n] = sum;
        products[n] = product;
    }
}

/* out += table[count] * left_n * right_m */
FOR_EVERY_PROCESSOR
void look_up(
    ptrdiff_t rows, ptrdiff_t width, const uint32_t *counts, const double *table, const double *left,
    const double *right, double *out)
{
    for (ptrdiff_t n = 0; n < rows; n++) {
        const uint32_t *restrict count = counts + n * width;
        double *restrict to = out + n * width, own = left[n];
#pragma omp simd
        for (ptrdiff_t m = 0; m < width; m++)
            to[m] += table[count[m]] * own * right[m];
    }
}

/* out -= z/2 up to z = 1, (1 + log z)/2 beyond */
void take_off_noise(ptrdiff_t rows, ptrdiff_t width, const double *noise, double *out)
{
    for (ptrdiff_t k = 0; k < rows * width; k++) {
        double z = noise[k];
        out[k] -= z > 1.0 ? 0.5 * (1.0 + log(z)) : 0.5 * z;
    }
}
