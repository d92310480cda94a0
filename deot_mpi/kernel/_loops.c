/* Passes over a chunk of the kernel that NumPy would make in four or five: its exponents become the entries themselves,
 * and sweeps over these give row and column sums.
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

/* Another number whenever a pass takes other arguments, here and in loops.py: a library that was built before is then not
 * used. */
ptrdiff_t version(void) { return 2; }

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

/* Eight numbers at a time, in whatever registers the processor has for them. */
typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t eight_words __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t eight_steps __attribute__((vector_size(32)));

/* Entries in two halves. `upper` has them rounded to 8 binary digits, that is, the upper 16 bits of a float32; `lower`
 * has what that is off by, in units of the last bit; both together are all of it. Columns go in blocks of 16, the last
 * one filled up with zeros, and word k of a block's eight has column k below and column k + 8 above: no instruction
 * moves a number to another place. */
enum { BLOCK = 16, WORDS = 8 };

INLINE eight upper_below(eight_words upper) { return (eight)(upper << 16); }
INLINE eight upper_above(eight_words upper) { return (eight)(upper & 0xffff0000u); }
INLINE eight both_below(eight_words upper, eight_words lower)
{
    return (eight)((upper << 16) + (eight_words)((eight_steps)(lower << 16) >> 16));
}
INLINE eight both_above(eight_words upper, eight_words lower)
{
    return (eight)((upper & 0xffff0000u) + (eight_words)((eight_steps)lower >> 16));
}

/* One block of a row of entries, `numbers`. */
INLINE void put_block(const float *numbers, eight_words *upper, eight_words *lower)
{
    eight_words below, above;
    memcpy(&below, numbers, sizeof below);
    memcpy(&above, numbers + 8, sizeof above);
    eight_words top_below = (below + 0x8000u) >> 16, top_above = (above + 0x8000u) & 0xffff0000u;
    *upper = top_below | top_above;
    *lower = ((below - (top_below << 16)) & 0xffffu) | ((above - top_above) << 16);
}

/* Sums in float32 are carried on in float64, and entries are made, so many blocks at a time. */
enum { BLOCKS_TOGETHER = 32, TOGETHER = BLOCK * BLOCKS_TOGETHER };

/* As absorb, in two halves: rows of `blocks` blocks. */
#define ABSORB_SPLIT(name, row_name, number)                                                                           \
    INLINE void row_name(                                                                                              \
        ptrdiff_t width, const number *from, number top, number floor_, uint32_t *upper, uint32_t *lower)              \
    {                                                                                                                  \
        eight_words *to = (eight_words *)upper, *below = (eight_words *)lower;                                         \
        for (ptrdiff_t start = 0; start < width; start += TOGETHER) {                                                  \
            ptrdiff_t many = width - start < TOGETHER ? width - start : TOGETHER;                                      \
            float entries[TOGETHER];                                                                                   \
            _Pragma("omp simd") for (ptrdiff_t m = 0; m < many; m++)                                                   \
            {                                                                                                          \
                number x = from[start + m] - top;                                                                      \
                entries[m] = exp_single((float)(floor_ > x ? floor_ : x));                                             \
            }                                                                                                          \
            for (; many % BLOCK; many++)                                                                               \
                entries[many] = 0.0f;                                                                                  \
            for (ptrdiff_t k = 0; k < many / BLOCK; k++, to++, below++)                                                \
                put_block(entries + k * BLOCK, to, below);                                                             \
        }                                                                                                              \
    }                                                                                                                  \
    FOR_EVERY_PROCESSOR                                                                                                \
    void name(                                                                                                         \
        ptrdiff_t rows, ptrdiff_t width, const number *exponent, const number *shift, number floor_, uint32_t *upper,  \
        uint32_t *lower)                                                                                               \
    {                                                                                                                  \
        ptrdiff_t row = (width + BLOCK - 1) / BLOCK * WORDS;                                                           \
        for (ptrdiff_t n = 0; n < rows; n++)                                                                           \
            row_name(width, exponent + n * width, shift[n], floor_, upper + n * row, lower + n * row);                 \
    }
ABSORB_SPLIT(absorb_split_single, split_row, float)
ABSORB_SPLIT(absorb_split_rounded, split_row_rounded, double)

/* The other way: entries as float32, `width` of them in a row. */
FOR_EVERY_PROCESSOR
void join(ptrdiff_t rows, ptrdiff_t width, const uint32_t *upper, const uint32_t *lower, float *numbers)
{
    ptrdiff_t blocks = (width + BLOCK - 1) / BLOCK;
    for (ptrdiff_t n = 0; n < rows; n++)
        for (ptrdiff_t k = 0; k < blocks; k++) {
            eight_words u = ((const eight_words *)upper)[n * blocks + k];
            eight_words l = ((const eight_words *)lower)[n * blocks + k];
            eight pair[2] = {both_below(u, l), both_above(u, l)};
            ptrdiff_t many = width - k * BLOCK < BLOCK ? width - k * BLOCK : BLOCK;
            memcpy(numbers + n * width + k * BLOCK, pair, (size_t)many * sizeof *numbers);
        }
}

INLINE double added(eight x)
{
    return (double)((x[0] + x[4]) + (x[1] + x[5])) + (double)((x[2] + x[6]) + (x[3] + x[7]));
}

/* sums_n = sum_m upper_nm scaled_m over some blocks of some rows, at most four, `row` words apart. */
INLINE void some_upper_sums(
    ptrdiff_t rows, ptrdiff_t row, const uint32_t *upper, ptrdiff_t blocks, const float *scaled, double *sums)
{
    double found[4] = {0.0};
    for (ptrdiff_t start = 0; start < blocks; start += BLOCKS_TOGETHER) {
        ptrdiff_t stop = start + BLOCKS_TOGETHER < blocks ? start + BLOCKS_TOGETHER : blocks;
        eight below[4] = {{0.0f}}, above[4] = {{0.0f}};
        for (ptrdiff_t k = start; k < stop; k++) {
            eight x = *(const eight *)(scaled + k * BLOCK), y = *(const eight *)(scaled + k * BLOCK + 8);
#pragma GCC unroll 4
            for (ptrdiff_t n = 0; n < rows; n++) {
                eight_words words = *(const eight_words *)(upper + n * row + k * WORDS);
                below[n] += upper_below(words) * x;
                above[n] += upper_above(words) * y;
            }
        }
#pragma GCC unroll 4
        for (ptrdiff_t n = 0; n < rows; n++)
            found[n] += added(below[n] + above[n]);
    }
    for (ptrdiff_t n = 0; n < rows; n++)
        sums[n] = found[n];
}

/* Never inlined: whoever asks for the same rows and columns gets the same bits. */
FOR_EVERY_PROCESSOR __attribute__((noinline))
void four_upper_sums(ptrdiff_t row, const uint32_t *upper, ptrdiff_t blocks, const float *scaled, double *sums)
{
    some_upper_sums(4, row, upper, blocks, scaled, sums);
}

FOR_EVERY_PROCESSOR __attribute__((noinline))
void one_upper_sum(const uint32_t *upper, ptrdiff_t blocks, const float *scaled, double *sum)
{
    some_upper_sums(1, 0, upper, blocks, scaled, sum);
}

/* Of every row, the sum over some of its blocks: `upper` is the first one's first of these, `row` words before the
 * next one's. */
void upper_sums(
    ptrdiff_t rows, ptrdiff_t row, const uint32_t *upper, ptrdiff_t blocks, const float *scaled, double *sums)
{
    ptrdiff_t n = 0;
    for (; n + 4 <= rows; n += 4)
        four_upper_sums(row, upper + n * row, blocks, scaled, sums + n);
    for (; n < rows; n++)
        one_upper_sum(upper + n * row, blocks, scaled, sums + n);
}

/* Ask for rows that come next, while those at hand are in a near cache and memory has nothing to do: as far ahead as
 * this, into the cache that is not the nearest, which is full. */
enum { ROWS_AHEAD = 8 };

INLINE void ask_for_next(ptrdiff_t rows, ptrdiff_t blocks, const uint32_t *words, ptrdiff_t k)
{
    if (k % 2 == 0) { /* two blocks are a line of the cache */
#pragma GCC unroll 4
        for (ptrdiff_t n = 0; n < rows; n++)
            __builtin_prefetch(words + ((ROWS_AHEAD + n) * blocks + k) * WORDS, 0, 2);
    }
}

/* column_m += sum_n weight_n upper_nm over some rows, at most four. */
INLINE void add_weighed(
    ptrdiff_t rows, ptrdiff_t blocks, const uint32_t *upper, const float *weight, float *restrict column)
{
    for (ptrdiff_t k = 0; k < blocks; k++) {
        ask_for_next(rows, blocks, upper, k);
        eight x = *(const eight *)(column + k * BLOCK), y = *(const eight *)(column + k * BLOCK + 8);
#pragma GCC unroll 4
        for (ptrdiff_t n = 0; n < rows; n++) {
            eight_words words = *(const eight_words *)(upper + (n * blocks + k) * WORDS);
            x += weight[n] * upper_below(words);
            y += weight[n] * upper_above(words);
        }
        *(eight *)(column + k * BLOCK) = x;
        *(eight *)(column + k * BLOCK + 8) = y;
    }
}

INLINE void carry(ptrdiff_t width, const float *column, double *total)
{
    for (ptrdiff_t m = 0; m < width; m++)
        total[m] += column[m];
}

/* A sweep over the upper halves of rows, `step` of which at a time are added up in float32. Columns come in parts, one
 * for each neighbour: of part p, blocks first[p] to last[p] - 1, which it may share with the parts beside it, and
 * `scaled` with zeros for the columns of these, from at[p] on. `sums` has `stride` numbers for each part; those of
 * parts that were heard are there already. Then scale_n = lift_n times the sum over parts, and
 * total_m += sum_n (shares_n / scale_n) upper_nm. */
INLINE void sweep_upper_span(
    ptrdiff_t rows, ptrdiff_t step, ptrdiff_t width, const uint32_t *upper, ptrdiff_t parts, const int64_t *first,
    const int64_t *last, const int64_t *at, const float *scaled, const uint8_t *heard, double *sums, ptrdiff_t stride,
    const double *lift, const double *shares, double *scale, float *column, double *total)
{
    ptrdiff_t blocks = (width + BLOCK - 1) / BLOCK, row = blocks * WORDS;
    for (ptrdiff_t n = 0, stop = 0; n < rows;) {
        if (n == stop) {
            stop = n + step < rows ? n + step : rows;
            memset(column, 0, (size_t)(blocks * BLOCK) * sizeof *column);
        }
        ptrdiff_t together = n + 4 <= stop ? 4 : 1;
        const uint32_t *here = upper + n * row;
        for (ptrdiff_t p = 0; p < parts; p++) {
            if (heard[p])
                continue;
            if (together == 4)
                four_upper_sums(
                    row, here + first[p] * WORDS, last[p] - first[p], scaled + at[p], sums + p * stride + n);
            else
                one_upper_sum(here + first[p] * WORDS, last[p] - first[p], scaled + at[p], sums + p * stride + n);
        }
        float weight[4];
        for (ptrdiff_t k = 0; k < together; k++) {
            double sum = 0.0;
            for (ptrdiff_t p = 0; p < parts; p++) /* in their order, not that of their arrival */
                sum += sums[p * stride + n + k];
            scale[n + k] = lift[n + k] * sum;
            weight[k] = (float)(shares[n + k] / scale[n + k]);
        }
        if (together == 4)
            add_weighed(4, blocks, here, weight, column);
        else
            add_weighed(1, blocks, here, weight, column);
        n += together;
        if (n == stop)
            carry(width, column, total);
    }
}

/* Spans of rows, one after the other; span s begins with row bounds[s]. Each has a total of its own, in `span`, and
 * these are added up in their order. */
INLINE void add_span(ptrdiff_t width, const double *span, double *total)
{
    for (ptrdiff_t m = 0; m < width; m++)
        total[m] += span[m];
}

FOR_EVERY_PROCESSOR
void sweep_upper(
    ptrdiff_t spans, const int64_t *bounds, ptrdiff_t step, ptrdiff_t width, const uint32_t *upper, ptrdiff_t parts,
    const int64_t *first, const int64_t *last, const int64_t *at, const float *scaled, const uint8_t *heard,
    double *sums, ptrdiff_t stride, const double *lift, const double *shares, double *scale, float *column,
    double *span, double *total)
{
    ptrdiff_t row = (width + BLOCK - 1) / BLOCK * WORDS;
    for (ptrdiff_t s = 0; s < spans; s++) {
        ptrdiff_t n = bounds[s];
        memset(span, 0, (size_t)width * sizeof *span);
        sweep_upper_span(
            bounds[s + 1] - n, step, width, upper + n * row, parts, first, last, at, scaled, heard, sums + n, stride,
            lift + n, shares + n, scale + n, column, span);
        add_span(width, span, total);
    }
}

/* The same of both halves, and beside it of the upper ones alone. */
INLINE void add_both_weighed(
    ptrdiff_t rows, ptrdiff_t blocks, const uint32_t *upper, const uint32_t *lower, const float *weight,
    float *restrict column, float *restrict column_upper)
{
    for (ptrdiff_t k = 0; k < blocks; k++) {
        ask_for_next(rows, blocks, upper, k);
        ask_for_next(rows, blocks, lower, k);
        eight *to = (eight *)(column + k * BLOCK), *to_upper = (eight *)(column_upper + k * BLOCK);
        eight x = to[0], y = to[1], x_upper = to_upper[0], y_upper = to_upper[1];
#pragma GCC unroll 4
        for (ptrdiff_t n = 0; n < rows; n++) {
            eight_words u = *(const eight_words *)(upper + (n * blocks + k) * WORDS);
            eight_words l = *(const eight_words *)(lower + (n * blocks + k) * WORDS);
            x += weight[n] * both_below(u, l);
            y += weight[n] * both_above(u, l);
            x_upper += weight[n] * upper_below(u);
            y_upper += weight[n] * upper_above(u);
        }
        to[0] = x, to[1] = y, to_upper[0] = x_upper, to_upper[1] = y_upper;
    }
}

/* sum_m S_nm scaled_m of some rows, at most two, and the same sums over the upper halves. */
INLINE void both_sums(
    ptrdiff_t rows, ptrdiff_t blocks, const uint32_t *upper, const uint32_t *lower, const float *scaled, double *sums,
    double *sums_upper)
{
    const eight_words *u = (const eight_words *)upper, *l = (const eight_words *)lower;
    double found[2] = {0.0}, found_upper[2] = {0.0};
    for (ptrdiff_t start = 0; start < blocks; start += BLOCKS_TOGETHER) {
        ptrdiff_t stop = start + BLOCKS_TOGETHER < blocks ? start + BLOCKS_TOGETHER : blocks;
        eight below[2] = {{0.0f}}, above[2] = {{0.0f}}, below_upper[2] = {{0.0f}}, above_upper[2] = {{0.0f}};
        for (ptrdiff_t k = start; k < stop; k++) {
            eight x = *(const eight *)(scaled + k * BLOCK), y = *(const eight *)(scaled + k * BLOCK + 8);
#pragma GCC unroll 2
            for (ptrdiff_t n = 0; n < rows; n++) {
                eight_words words = u[n * blocks + k], rest = l[n * blocks + k];
                below[n] += both_below(words, rest) * x;
                above[n] += both_above(words, rest) * y;
                below_upper[n] += upper_below(words) * x;
                above_upper[n] += upper_above(words) * y;
            }
        }
#pragma GCC unroll 2
        for (ptrdiff_t n = 0; n < rows; n++) {
            found[n] += added(below[n] + above[n]);
            found_upper[n] += added(below_upper[n] + above_upper[n]);
        }
    }
    for (ptrdiff_t n = 0; n < rows; n++)
        sums[n] = found[n], sums_upper[n] = found_upper[n];
}

/* Entries from factors of short rows: exponent_nm = column_m + sum_k left_nk right_mk, in two halves. `right` is packed:
 * for every block of 16 of its rows, the first number of each, the second of each, and so on, with zeros after the last
 * row; `column` has zeros there, too. Some rows at a time (`together`, a multiple of ROWS_AT_ONCE and of 4) are made in
 * `scratch`, which stays in a near cache until their entries are there: six of them times a block in registers. `tops`
 * has what is taken off each row or, with `find`, gets the row's largest exponent. */
enum { ROWS_AT_ONCE = 6, PANELS_AT_ONCE = 16 };

typedef struct {
    ptrdiff_t inner;
    const float *left, *right, *column;
    ptrdiff_t find;
    float *tops, floor_;
    ptrdiff_t together;
    float *turned, *scratch;
} factors;

INLINE void panel_product(
    ptrdiff_t inner, const float *left, const float *panel, const float *column, float *out, ptrdiff_t stride)
{
    eight low[ROWS_AT_ONCE], high[ROWS_AT_ONCE];
#pragma GCC unroll 6
    for (int n = 0; n < ROWS_AT_ONCE; n++) {
        low[n] = *(const eight *)column;
        high[n] = *(const eight *)(column + 8);
    }
    for (ptrdiff_t k = 0; k < inner; k++) {
        eight y = *(const eight *)(panel + BLOCK * k), z = *(const eight *)(panel + BLOCK * k + 8);
#pragma GCC unroll 6
        for (int n = 0; n < ROWS_AT_ONCE; n++) {
            low[n] += left[k * ROWS_AT_ONCE + n] * y;
            high[n] += left[k * ROWS_AT_ONCE + n] * z;
        }
    }
#pragma GCC unroll 6
    for (int n = 0; n < ROWS_AT_ONCE; n++) {
        *(eight *)(out + n * stride) = low[n];
        *(eight *)(out + n * stride + 8) = high[n];
    }
}

INLINE float largest(ptrdiff_t width, const float *row)
{
    float top = row[0];
#pragma omp simd reduction(max : top)
    for (ptrdiff_t m = 0; m < width; m++)
        top = row[m] > top ? row[m] : top;
    return top;
}

/* `right` for factors, from rows `stride` numbers apart. */
void pack(ptrdiff_t rows, ptrdiff_t inner, ptrdiff_t stride, const double *right, float *packed)
{
    for (ptrdiff_t start = 0; start < rows; start += BLOCK)
        for (ptrdiff_t n = 0; n < BLOCK; n++)
            for (ptrdiff_t k = 0; k < inner; k++)
                packed[start * inner + k * BLOCK + n] =
                    start + n < rows ? (float)right[(start + n) * stride + k] : 0.0f;
}

/* `together` rows from `start` on, or as many as there are; the first one's halves are at `upper` and `lower`. Never
 * inlined: the same bits for whoever asks. */
FOR_EVERY_PROCESSOR __attribute__((noinline))
void make_rows(
    const factors *f, ptrdiff_t rows, ptrdiff_t width, ptrdiff_t start, uint32_t *upper, uint32_t *lower)
{
    ptrdiff_t blocks = (width + BLOCK - 1) / BLOCK, stride = blocks * BLOCK, inner = f->inner;
    ptrdiff_t many = rows - start < f->together ? rows - start : f->together;
    for (ptrdiff_t n = 0; n < f->together; n++) /* six rows side by side; those after the last are zero */
        for (ptrdiff_t k = 0; k < inner; k++)
            f->turned[(n / ROWS_AT_ONCE * inner + k) * ROWS_AT_ONCE + n % ROWS_AT_ONCE] =
                n < many ? f->left[(start + n) * inner + k] : 0.0f;
    for (ptrdiff_t first = 0; first < blocks; first += PANELS_AT_ONCE) {
        ptrdiff_t last = first + PANELS_AT_ONCE < blocks ? first + PANELS_AT_ONCE : blocks;
        for (ptrdiff_t n = 0; n < many; n += ROWS_AT_ONCE)
            for (ptrdiff_t c = first; c < last; c++)
                panel_product(
                    inner, f->turned + n * inner, f->right + c * BLOCK * inner, f->column + c * BLOCK,
                    f->scratch + n * stride + c * BLOCK, stride);
    }
    for (ptrdiff_t n = 0; n < many; n++) {
        const float *row = f->scratch + n * stride;
        if (f->find)
            f->tops[start + n] = largest(width, row);
        split_row(
            width, row, f->tops[start + n], f->floor_, upper + n * blocks * WORDS, lower + n * blocks * WORDS);
    }
}

void absorb_product(
    ptrdiff_t rows, ptrdiff_t width, ptrdiff_t inner, const float *left, const float *right, const float *column,
    ptrdiff_t find, float *tops, float floor_, ptrdiff_t together, float *turned, float *scratch, uint32_t *upper,
    uint32_t *lower)
{
    factors f = {inner, left, right, column, find, tops, floor_, together, turned, scratch};
    ptrdiff_t row = (width + BLOCK - 1) / BLOCK * WORDS;
    for (ptrdiff_t n = 0; n < rows; n += together)
        make_rows(&f, rows, width, n, upper + n * row, lower + n * row);
}

/* A sweep over both halves: scale_n = sum_m S_nm scaled_m, lift_n what that is of the same sum over the upper halves;
 * total_m += sum_n (shares_n / scale_n) S_nm, and total_upper the same of the upper halves. Without `total`, rows only.
 * With `f`, entries are made first, some rows at a time, and read while they are in a near cache; the first row is its
 * row `place`. */
INLINE void sweep_both_span(
    const factors *f, ptrdiff_t place, ptrdiff_t rows, ptrdiff_t step, ptrdiff_t width, uint32_t *upper,
    uint32_t *lower, const float *scaled, double *lift, const double *shares, double *scale, float *column, float *column_upper,
    double *total, double *total_upper)
{
    ptrdiff_t blocks = (width + BLOCK - 1) / BLOCK, row = blocks * WORDS;
    for (ptrdiff_t n = 0, stop = 0, made = 0; n < rows;) {
        if (n == stop) {
            stop = n + step < rows ? n + step : rows;
            memset(column, 0, (size_t)(blocks * BLOCK) * sizeof *column);
            memset(column_upper, 0, (size_t)(blocks * BLOCK) * sizeof *column_upper);
        }
        ptrdiff_t together = n + 4 <= stop ? 4 : 1;
        if (f && n == made) { /* together is a multiple of 4, and so is n before the last rows */
            make_rows(f, place + rows, width, place + n, upper + n * row, lower + n * row);
            made += f->together;
        }
        float weight[4];
        double sums_upper[4];
        if (together == 4) {
            both_sums(2, blocks, upper + n * row, lower + n * row, scaled, scale + n, sums_upper);
            both_sums(2, blocks, upper + (n + 2) * row, lower + (n + 2) * row, scaled, scale + n + 2, sums_upper + 2);
        } else {
            both_sums(1, blocks, upper + n * row, lower + n * row, scaled, scale + n, sums_upper);
        }
        for (ptrdiff_t k = 0; k < together; k++) {
            lift[n + k] = scale[n + k] / sums_upper[k];
            weight[k] = (float)(shares[n + k] / scale[n + k]);
        }
        if (total && together == 4)
            add_both_weighed(4, blocks, upper + n * row, lower + n * row, weight, column, column_upper);
        else if (total)
            add_both_weighed(1, blocks, upper + n * row, lower + n * row, weight, column, column_upper);
        n += together;
        if (total && n == stop) {
            carry(width, column, total);
            carry(width, column_upper, total_upper);
        }
    }
}

/* Spans as in sweep_upper; `span` and `total` have first that of both halves, then that of the upper ones. */
FOR_EVERY_PROCESSOR __attribute__((noinline))
void sweep_both_spans(
    const factors *f, ptrdiff_t spans, const int64_t *bounds, ptrdiff_t step, ptrdiff_t width, uint32_t *upper,
    uint32_t *lower, const float *scaled, double *lift, const double *shares, double *scale, float *column,
    float *column_upper, double *span, double *total)
{
    ptrdiff_t row = (width + BLOCK - 1) / BLOCK * WORDS;
    for (ptrdiff_t s = 0; s < spans; s++) {
        ptrdiff_t n = bounds[s];
        memset(span, 0, (size_t)(2 * width) * sizeof *span);
        sweep_both_span(
            f, n, bounds[s + 1] - n, step, width, upper + n * row, lower + n * row, scaled, lift + n, shares + n, scale + n,
            column, column_upper, total ? span : 0, total ? span + width : 0);
        if (total)
            add_span(2 * width, span, total);
    }
}

void sweep_both(
    ptrdiff_t spans, const int64_t *bounds, ptrdiff_t step, ptrdiff_t width, uint32_t *upper, uint32_t *lower,
    const float *scaled, double *lift, const double *shares, double *scale, float *column, float *column_upper,
    double *span, double *total)
{
    sweep_both_spans(
        0, spans, bounds, step, width, upper, lower, scaled, lift, shares, scale, column, column_upper, span, total);
}

/* absorb_product and sweep_both in one go. */
void sweep_product(
    ptrdiff_t spans, const int64_t *bounds, ptrdiff_t step, ptrdiff_t width, ptrdiff_t inner, const float *left,
    const float *right, const float *columns, ptrdiff_t find, float *tops, float floor_, ptrdiff_t together,
    float *turned, float *scratch, uint32_t *upper, uint32_t *lower, const float *scaled, double *lift,
    const double *shares, double *scale, float *column, float *column_upper, double *span, double *total)
{
    factors f = {inner, left, right, columns, find, tops, floor_, together, turned, scratch};
    sweep_both_spans(
        &f, spans, bounds, step, width, upper, lower, scaled, lift, shares, scale, column, column_upper, span, total);
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
