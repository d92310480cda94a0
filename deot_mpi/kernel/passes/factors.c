/* Entries in two halves straight from factors of short rows, and the first sweep over them. */
#include "halves.h"

/* Entries from factors of short rows: log2 S_nm = column_m + sum_k left_nk right_mk - top_n, in two halves. `right` is
 * packed: for every block of 16 of its rows, the first number of each, the second of each, and so on, with zeros after
 * the last row; `column` has zeros there, too. `together` rows (a multiple of 2 ROWS_AT_ONCE) are made before they are
 * added up, so that they are still in a near cache then: a strip of TOGETHER columns at a time, whose exponents are for
 * six rows (twelve in wide registers) in the nearest.
 *
 * `tops` has what is taken off each row, a whole number or, with `find`, gets it: the largest exponent in some columns,
 * and more, off all there is of the row so far, where another one turns out to be MOST_ABOVE above that. An entry is
 * 2^MOST_ABOVE at most: times what potentials may move (e^30), a row's sum is then still one that a share of 1e-6 can be
 * divided by in float32. */
enum { ROWS_AT_ONCE = 6, MOST_TOGETHER = 24, LOOKED_AT = 4, MOST_ABOVE = 30 };

typedef struct {
    ptrdiff_t inner;
    const float *left, *right, *column;
    ptrdiff_t find;
    float *tops, floor_;
    ptrdiff_t together, wide;
    float *turned;
} factors;

/* Six rows times a block. */
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

/* Registers of sixteen numbers, and 32 of them: twice as many rows times a block, at twice the speed. The same bits,
 * since every number is the same sum in the same order, if the other way does not round its products either. */
#ifdef BY_LEVELS
typedef float sixteen __attribute__((vector_size(64), aligned(4), may_alias));

ptrdiff_t has_wide_registers(void) { return __builtin_cpu_supports("avx512f") != 0; }

__attribute__((target("avx512f"))) static void wide_panel_product(
    ptrdiff_t inner, const float *left, const float *panel, const float *column, float *out, ptrdiff_t stride)
{
    const float *next = left + ROWS_AT_ONCE * inner;
    sixteen first[ROWS_AT_ONCE], second[ROWS_AT_ONCE];
#pragma GCC unroll 6
    for (int n = 0; n < ROWS_AT_ONCE; n++)
        first[n] = second[n] = *(const sixteen *)column;
    for (ptrdiff_t k = 0; k < inner; k++) {
        sixteen y = *(const sixteen *)(panel + BLOCK * k);
#pragma GCC unroll 6
        for (int n = 0; n < ROWS_AT_ONCE; n++) {
            first[n] += left[k * ROWS_AT_ONCE + n] * y;
            second[n] += next[k * ROWS_AT_ONCE + n] * y;
        }
    }
#pragma GCC unroll 6
    for (int n = 0; n < ROWS_AT_ONCE; n++) {
        *(sixteen *)(out + n * stride) = first[n];
        *(sixteen *)(out + (ROWS_AT_ONCE + n) * stride) = second[n];
    }
}
#else
ptrdiff_t has_wide_registers(void) { return 0; }
#define wide_panel_product panel_product /* never asked for */
#endif

/* `right` for factors, from rows `stride` numbers apart. */
void pack(ptrdiff_t rows, ptrdiff_t inner, ptrdiff_t stride, const double *right, float *packed)
{
    for (ptrdiff_t start = 0; start < rows; start += BLOCK)
        for (ptrdiff_t n = 0; n < BLOCK; n++)
            for (ptrdiff_t k = 0; k < inner; k++)
                packed[start * inner + k * BLOCK + n] =
                    start + n < rows ? (float)right[(start + n) * stride + k] : 0.0f;
}

/* A row's entries in a strip of columns, at most TOGETHER, from their exponents, which are spent; with `scaled`, their
 * part of the row's sums as both_sums finds it. Returns the largest exponent. */
INLINE float make_strip(
    ptrdiff_t width, float *restrict part, float top, float floor_, uint32_t *upper, uint32_t *lower,
    const float *scaled, double *sum, double *sum_upper)
{
    eight_words *to = (eight_words *)upper, *to_lower = (eight_words *)lower;
    float rounder = SINGLE_ROUNDER - top, least = top + floor_, largest = least;
#pragma omp simd reduction(max : largest)
    for (ptrdiff_t m = 0; m < width; m++) {
        float x = least > part[m] ? least : part[m];
        largest = x > largest ? x : largest;
        uint32_t bits = power_of_two(x, rounder);
        memcpy(part + m, &bits, sizeof bits);
    }
    for (; width % BLOCK; width++)
        part[width] = 0.0f;
    eight below = {0.0f}, above = {0.0f}, below_upper = {0.0f}, above_upper = {0.0f};
    for (ptrdiff_t m = 0; m < width; m += BLOCK, to++, to_lower++) {
        eight_words low = *(const eight_words *)(part + m), high = *(const eight_words *)(part + m + 8);
        put_block(low, high, to, to_lower);
        if (scaled) {
            eight x = *(const eight *)(scaled + m), y = *(const eight *)(scaled + m + 8);
            below += (eight)low * x;
            above += (eight)high * y;
            below_upper += (eight)rounded(low) * x;
            above_upper += (eight)rounded(high) * y;
        }
    }
    if (scaled) {
        *sum += added(below + above);
        *sum_upper += added(below_upper + above_upper);
    }
    return largest;
}

/* Exponents, but for what is taken off, of one block of the rows side by side from n on, `stride` numbers apart. */
INLINE void make_exponents(const factors *f, ptrdiff_t n, ptrdiff_t block, float *out, ptrdiff_t stride)
{
    const float *left = f->turned + n * f->inner, *panel = f->right + block * BLOCK * f->inner;
    if (f->wide)
        wide_panel_product(f->inner, left, panel, f->column + block * BLOCK, out, stride);
    else
        panel_product(f->inner, left, panel, f->column + block * BLOCK, out, stride);
}

INLINE ptrdiff_t side_by_side(const factors *f) { return f->wide ? 2 * ROWS_AT_ONCE : ROWS_AT_ONCE; }

/* What is taken off each row: the largest exponent in some blocks all over the columns, rounded up. */
INLINE void guess_tops(const factors *f, ptrdiff_t width, ptrdiff_t many, float *tops)
{
    float tile[2 * ROWS_AT_ONCE * BLOCK];
    ptrdiff_t whole = width / BLOCK, seen = whole ? BLOCK : width;
    for (ptrdiff_t n = 0; n < many; n += side_by_side(f)) {
        ptrdiff_t rows = many - n < side_by_side(f) ? many - n : side_by_side(f);
        for (ptrdiff_t k = 0; k < LOOKED_AT; k++) {
            make_exponents(f, n, whole * k / LOOKED_AT, tile, BLOCK);
            for (ptrdiff_t r = 0; r < rows; r++) {
                float top = k ? tops[n + r] : tile[r * BLOCK];
#pragma omp simd reduction(max : top)
                for (ptrdiff_t m = 0; m < seen; m++)
                    top = tile[r * BLOCK + m] > top ? tile[r * BLOCK + m] : top;
                tops[n + r] = top;
            }
        }
        for (ptrdiff_t r = 0; r < rows; r++) /* finite, where columns without any weight are all that was looked at */
            tops[n + r] = tops[n + r] > -1e6f ? ceilf(tops[n + r]) : -1e6f;
    }
}

/* Some blocks of a row's entries times 2^-by, by at most 250, or at the floor. With an even `by`, the bits they would
 * have if that had been taken off at once: an exponent that ends in a half is rounded to an even number. */
INLINE void lower_entries(ptrdiff_t blocks, int32_t by, uint32_t least, uint32_t *upper, uint32_t *lower)
{
    int32_t step = by << 23;
    eight_steps bottom = (eight_steps){0} + (int32_t)least;
    for (ptrdiff_t k = 0; k < blocks; k++) {
        eight_words *to = (eight_words *)(upper + k * WORDS), *to_lower = (eight_words *)(lower + k * WORDS);
        eight_steps below = (eight_steps)both_below(*to, *to_lower) - step;
        eight_steps above = (eight_steps)both_above(*to, *to_lower) - step;
        eight_steps is_below = below > bottom, is_above = above > bottom;
        below = (below & is_below) | (bottom & ~is_below);
        above = (above & is_above) | (bottom & ~is_above);
        put_block((eight_words)below, (eight_words)above, to, to_lower);
    }
}

/* More is taken off a row whose exponents turn out to be up to `largest`: off what it has so far, too. */
INLINE void raise_top(
    float floor_, float largest, ptrdiff_t blocks, float *top, uint32_t *upper, uint32_t *lower, double *sum,
    double *sum_upper)
{
    float by = 2.0f * ceilf(0.5f * (largest - *top));
    int digits = by < 5000.0f ? (int)by : 5000; /* of a double there is nothing left then */
    *top += by;
    lower_entries(
        blocks, digits < 250 ? digits : 250, power_of_two(*top + floor_, SINGLE_ROUNDER - *top), upper, lower);
    *sum = ldexp(*sum, -digits);
    *sum_upper = ldexp(*sum_upper, -digits);
}

/* A strip of rows side by side, from row n and column `start` on: entries, and what they add to the sums. Once more for
 * rows off which too little was taken. */
INLINE void make_strips(
    const factors *f, ptrdiff_t width, ptrdiff_t n, ptrdiff_t rows, ptrdiff_t start, float *tops, uint32_t *upper,
    uint32_t *lower, const float *scaled, double *sums, double *sums_upper)
{
    ptrdiff_t row = (width + BLOCK - 1) / BLOCK * WORDS, word = start / BLOCK * WORDS;
    ptrdiff_t columns = width - start < TOGETHER ? width - start : TOGETHER;
    float strip[2 * ROWS_AT_ONCE * TOGETHER] __attribute__((aligned(64)));
    for (uint32_t missing = (1u << rows) - 1, again; missing; missing = again) {
        for (ptrdiff_t m = 0; m < columns; m += BLOCK) {
            /* Memory has nothing to do meanwhile: ask for where their entries go; two blocks are a line of it. */
            for (ptrdiff_t r = n; m % (2 * BLOCK) == 0 && r < n + rows; r++) {
                __builtin_prefetch(upper + r * row + word + m / BLOCK * WORDS, 1, 3);
                __builtin_prefetch(lower + r * row + word + m / BLOCK * WORDS, 1, 3);
            }
            make_exponents(f, n, (start + m) / BLOCK, strip + m, TOGETHER);
        }
        again = 0;
        for (ptrdiff_t r = 0; r < rows; r++) {
            ptrdiff_t at = (n + r) * row;
            double sum = sums[n + r], sum_upper = sums_upper[n + r];
            if (!(missing >> r & 1))
                continue;
            float largest = make_strip(
                columns, strip + r * TOGETHER, tops[n + r], f->floor_, upper + at + word, lower + at + word,
                scaled ? scaled + start : 0, &sum, &sum_upper);
            if (f->find && largest > tops[n + r] + MOST_ABOVE) {
                again |= 1u << r;
                raise_top(
                    f->floor_, largest, start / BLOCK, tops + n + r, upper + at, lower + at, sums + n + r,
                    sums_upper + n + r);
            } else
                sums[n + r] = sum, sums_upper[n + r] = sum_upper;
        }
    }
}

/* `many` rows from `start` on; the first one's halves are at `upper` and `lower`. With `scaled`, their sums, too. Never
 * inlined: the same bits for whoever asks. */
FOR_EVERY_PROCESSOR __attribute__((noinline))
void make_rows(
    const factors *f, ptrdiff_t width, ptrdiff_t start, ptrdiff_t many, uint32_t *upper, uint32_t *lower,
    const float *scaled, double *sums, double *sums_upper)
{
    float *tops = f->tops + start;
    for (ptrdiff_t n = 0; n < f->together; n++) /* six rows side by side; those after the last are zero */
        for (ptrdiff_t k = 0; k < f->inner; k++)
            f->turned[(n / ROWS_AT_ONCE * f->inner + k) * ROWS_AT_ONCE + n % ROWS_AT_ONCE] =
                n < many ? f->left[(start + n) * f->inner + k] : 0.0f;
    if (f->find)
        guess_tops(f, width, many, tops);
    for (ptrdiff_t n = 0; n < many; n++)
        sums[n] = sums_upper[n] = 0.0;
    for (ptrdiff_t column = 0; column < width; column += TOGETHER)
        for (ptrdiff_t n = 0; n < many; n += side_by_side(f)) {
            ptrdiff_t rows = many - n < side_by_side(f) ? many - n : side_by_side(f);
            make_strips(f, width, n, rows, column, tops, upper, lower, scaled, sums, sums_upper);
        }
}

void absorb_product(
    ptrdiff_t rows, ptrdiff_t width, ptrdiff_t inner, const float *left, const float *right, const float *column,
    ptrdiff_t find, float *tops, float floor_, ptrdiff_t together, ptrdiff_t wide, float *turned, uint32_t *upper,
    uint32_t *lower)
{
    factors f = {inner, left, right, column, find, tops, floor_, together, wide, turned};
    ptrdiff_t row = (width + BLOCK - 1) / BLOCK * WORDS;
    double sums[MOST_TOGETHER], sums_upper[MOST_TOGETHER];
    for (ptrdiff_t n = 0; n < rows; n += together)
        make_rows(
            &f, width, n, rows - n < together ? rows - n : together, upper + n * row, lower + n * row, 0, sums,
            sums_upper);
}

/* As sweep_both_span, of entries that are made on the way, those of rows from `place` on of the factors: added up while
 * they are in a near cache. The same bits. */
INLINE void sweep_made_span(
    const factors *f, ptrdiff_t place, ptrdiff_t rows, ptrdiff_t step, ptrdiff_t width, uint32_t *upper,
    uint32_t *lower, const float *scaled, double *lift, const double *shares, double *scale, float *column,
    float *column_upper, double *total, double *total_upper)
{
    ptrdiff_t blocks = (width + BLOCK - 1) / BLOCK, row = blocks * WORDS;
    for (ptrdiff_t n = 0, stop = 0; n < rows; n += f->together) {
        ptrdiff_t many = rows - n < f->together ? rows - n : f->together;
        float weight[MOST_TOGETHER];
        double sums_upper[MOST_TOGETHER];
        make_rows(f, width, place + n, many, upper + n * row, lower + n * row, scaled, scale + n, sums_upper);
        for (ptrdiff_t k = 0; k < many; k++) {
            lift[n + k] = scale[n + k] / sums_upper[k];
            weight[k] = (float)(shares[n + k] / scale[n + k]);
        }
        for (ptrdiff_t k = 0; total && k < many;) {
            if (n + k == stop) {
                stop = stop + step < rows ? stop + step : rows;
                memset(column, 0, (size_t)(blocks * BLOCK) * sizeof *column);
                memset(column_upper, 0, (size_t)(blocks * BLOCK) * sizeof *column_upper);
            }
            const uint32_t *words = upper + (n + k) * row, *rest = lower + (n + k) * row;
            ptrdiff_t together = k + 4 <= many && n + k + 4 <= stop ? 4 : 1;
            if (together == 4)
                add_both_weighed(4, blocks, words, rest, 0, weight + k, column, column_upper);
            else
                add_both_weighed(1, blocks, words, rest, 0, weight + k, column, column_upper);
            k += together;
            if (n + k == stop) {
                carry(width, column, total);
                carry(width, column_upper, total_upper);
            }
        }
    }
}

/* absorb_product and sweep_both in one go. */
FOR_EVERY_PROCESSOR
void sweep_product(
    ptrdiff_t spans, const int64_t *bounds, ptrdiff_t step, ptrdiff_t width, ptrdiff_t inner, const float *left,
    const float *right, const float *columns, ptrdiff_t find, float *tops, float floor_, ptrdiff_t together,
    ptrdiff_t wide, float *turned, uint32_t *upper, uint32_t *lower, const float *scaled, double *lift,
    const double *shares, double *scale, float *column, float *column_upper, double *span, double *total)
{
    factors f = {inner, left, right, columns, find, tops, floor_, together, wide, turned};
    ptrdiff_t row = (width + BLOCK - 1) / BLOCK * WORDS;
    for (ptrdiff_t s = 0; s < spans; s++) {
        ptrdiff_t n = bounds[s];
        memset(span, 0, (size_t)(2 * width) * sizeof *span);
        sweep_made_span(
            &f, n, bounds[s + 1] - n, step, width, upper + n * row, lower + n * row, scaled, lift + n, shares + n,
            scale + n, column, column_upper, total ? span : 0, total ? span + width : 0);
        if (total)
            add_span(2 * width, span, total);
    }
}
