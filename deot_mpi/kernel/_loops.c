/* Passes over a chunk of the kernel that NumPy would make in four or five: its exponents become the entries themselves.
 *
 * Rows are contiguous; nothing is allocated, nothing of Python is touched (so other threads go on). Loops are written
 * for the compiler's vectoriser, and compiled for several instruction sets, of which the processor's is taken when the
 * library is loaded.
 *
 * exp(x) = 2^n exp(r), n = x / ln 2 rounded, |r| <= ln(2)/2 = 0.347. The Taylor series of exp(r) to degree 7 is off by
 * 5e-9 at most (float32), to degree 13 by 4e-18 (float64): less than the last digit. ln 2 is taken off in two parts, of
 * which the first has so few digits that n times it is exact.
 */
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "Rounding by adding and subtracting needs arithmetic without excess digits."
#endif
#if !defined(__x86_64__) || !defined(__gnu_linux__) || !defined(__GLIBC__)
#define FOR_EVERY_PROCESSOR
#elif (defined(__clang__) && __clang_major__ >= 18) || (!defined(__clang__) && __GNUC__ >= 12)
#define FOR_EVERY_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#elif !defined(__clang__) /* older GCCs know instruction sets, not levels of them */
#define FOR_EVERY_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EVERY_PROCESSOR
#endif
#define INLINE static inline __attribute__((always_inline))

/* Adding and subtracting 1.5 * 2^(digits - 1) rounds to a whole number, which then stands in the last bits. */
static const float SINGLE_ROUNDER = 12582912.0f;
static const double DOUBLE_ROUNDER = 6755399441055744.0;

/* For x in [-87, 88]. */
INLINE float exp_single(float x)
{
    float shifted = x * 1.44269504088896341f + SINGLE_ROUNDER;
    float n = shifted - SINGLE_ROUNDER;
    float r = (x - n * 0.693359375f) + n * 2.12194440054690583e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23; /* the exponent of 2^n; what stands above n is shifted out */
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

/* For x in [-708, 709]; a NaN stays one. */
INLINE double exp_double(double x)
{
    double shifted = x * 1.44269504088896340736 + DOUBLE_ROUNDER;
    double n = shifted - DOUBLE_ROUNDER;
    double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
    double p = 1.0 / 6227020800;
    p = p * r + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

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
