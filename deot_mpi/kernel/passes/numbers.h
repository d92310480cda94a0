/* What all passes compute with: exponentials, and eight numbers at a time.
 *
 * Passes are over chunks of the kernel, whose rows are contiguous, or over potentials; nothing is allocated, nothing of Python is touched (so
 * other threads go on). Loops are written for the compiler's vectoriser, and compiled for several instruction sets, of
 * which the processor's is taken when the library is loaded.
 *
 * exp(x) = 2^n exp(r), n = x / ln 2 rounded, |r| <= ln(2)/2 = 0.347. In float32, exp(r) is a polynomial of degree 6 that
 * is off by 1.2e-8 at most and 1 at 0; in float64, the Taylor series to degree 13, off by 4e-18: less than the last
 * digit. ln 2 is taken off in two parts, of which the first has so few digits that n times it is exact.
 */
#ifndef DEOT_NUMBERS_H
#define DEOT_NUMBERS_H

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
#define BY_LEVELS /* wherever there are registers of sixteen numbers, products are added up without rounding them */
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
    float p = 0.00136965826f;
    p = p * r + 0.00837713267f;
    p = p * r + 0.0416720921f;
    p = p * r + 0.16666422f;
    p = p * r + 0.499999669f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23; /* the exponent of 2^n; what stands above n is shifted out */
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

/* 2^(x - whole) for a difference in [-125, 127], as the bits of a float32; `rounder` is SINGLE_ROUNDER - whole, with a
 * whole number that is no larger than 2^21, so that taking it off costs nothing (exponents that large have no digits
 * left in float32; they are finite, and not asked for). The polynomial is off by 1.6e-8 at most and 1 at 0; its terms
 * are added up in pairs, since each instruction waits for what it needs. */
INLINE uint32_t power_of_two(float x, float rounder)
{
    float shifted = x + rounder;
    float r = x - (shifted - rounder), square = r * r;
    float low = 0.693147203f * r + 1.0f, middle = 0.0555033266f * r + 0.240226479f;
    float high = square * 0.000153522051f + (0.001339882f * r + 0.00961844139f);
    float p = square * (square * high + middle) + low;
    uint32_t bits, n;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&n, &shifted, sizeof n);
    return bits + (n << 23); /* the exponent of p is next to 127: n is added to it, what stands above n is shifted out */
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

/* Eight numbers at a time, in whatever registers the processor has for them. */
typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t eight_words __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t eight_steps __attribute__((vector_size(32)));

#endif
