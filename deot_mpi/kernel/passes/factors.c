/* Entries in two halves straight from factors of short rows, and the first sweep over them. */
#include "halves.h"

/* Entries from factors of short rows: exponent_nm = column_m + sum_k left_nk right_mk, in two halves. `right` is packed:
 * for every block of 16 of its rows, the first number of each, the second of each, and so on, with zeros after the last
 * row; `column` has zeros there, too. Some rows at a time (`together`, a multiple of 2 ROWS_AT_ONCE) are made in
 * `scratch`, which stays in a near cache until their entries are there and have been added up: six rows (twelve in wide
 * registers) times a block at a time in registers. `tops` has what is taken off each row or, with `find`, gets the row's largest exponent. */
enum { ROWS_AT_ONCE = 6, MOST_TOGETHER = 24, PANELS_AT_ONCE = 16 };

typedef struct {
    ptrdiff_t inner;
    const float *left, *right, *column;
    ptrdiff_t find;
    float *tops, floor_;
    ptrdiff_t together, wide;
    float *turned, *scratch;
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

/* In several numbers at a time, since each waits for the one before. */
INLINE float largest(ptrdiff_t width, const float *row)
{
    enum { APART = 32 };
    float tops[APART];
    for (ptrdiff_t k = 0; k < APART; k++)
        tops[k] = row[0];
    ptrdiff_t m = 0;
    for (; m + APART <= width; m += APART)
#pragma omp simd
        for (ptrdiff_t k = 0; k < APART; k++)
            tops[k] = row[m + k] > tops[k] ? row[m + k] : tops[k];
    for (; m < width; m++)
        tops[0] = row[m] > tops[0] ? row[m] : tops[0];
    float top = tops[0];
    for (ptrdiff_t k = 1; k < APART; k++)
        top = tops[k] > top ? tops[k] : top;
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

/* A row's entries from its exponents, in place and in halves; with `scaled`, their sums as both_sums finds them. */
INLINE void make_row(
    ptrdiff_t width, float *row, float top, float floor_, uint32_t *upper, uint32_t *lower, const float *scaled,
    double *sum, double *sum_upper)
{
    eight_words *to = (eight_words *)upper, *to_lower = (eight_words *)lower;
    double found = 0.0, found_upper = 0.0;
    for (ptrdiff_t start = 0; start < width; start += TOGETHER) {
        ptrdiff_t many = width - start < TOGETHER ? width - start : TOGETHER;
        float *restrict part = row + start;
#pragma omp simd
        for (ptrdiff_t m = 0; m < many; m++) {
            float x = part[m] - top;
            part[m] = exp_single(floor_ > x ? floor_ : x);
        }
        for (; many % BLOCK; many++)
            part[many] = 0.0f;
        eight below = {0.0f}, above = {0.0f}, below_upper = {0.0f}, above_upper = {0.0f};
        for (ptrdiff_t m = 0; m < many; m += BLOCK, to++, to_lower++) {
            eight_words low = *(const eight_words *)(part + m), high = *(const eight_words *)(part + m + 8);
            put_block(low, high, to, to_lower);
            if (scaled) {
                eight x = *(const eight *)(scaled + start + m), y = *(const eight *)(scaled + start + m + 8);
                below += (eight)low * x;
                above += (eight)high * y;
                below_upper += (eight)rounded(low) * x;
                above_upper += (eight)rounded(high) * y;
            }
        }
        found += added(below + above);
        found_upper += added(below_upper + above_upper);
    }
    if (scaled)
        *sum = found, *sum_upper = found_upper;
}

/* Exponents of `many` rows from `start` on, in scratch. */
INLINE void make_exponents(const factors *f, ptrdiff_t blocks, ptrdiff_t start, ptrdiff_t many)
{
    ptrdiff_t stride = blocks * BLOCK, inner = f->inner;
    for (ptrdiff_t n = 0; n < f->together; n++) /* six rows side by side; those after the last are zero */
        for (ptrdiff_t k = 0; k < inner; k++)
            f->turned[(n / ROWS_AT_ONCE * inner + k) * ROWS_AT_ONCE + n % ROWS_AT_ONCE] =
                n < many ? f->left[(start + n) * inner + k] : 0.0f;
    for (ptrdiff_t first = 0; first < blocks; first += PANELS_AT_ONCE) {
        ptrdiff_t last = first + PANELS_AT_ONCE < blocks ? first + PANELS_AT_ONCE : blocks;
        for (ptrdiff_t n = 0; n < many; n += f->wide ? 2 * ROWS_AT_ONCE : ROWS_AT_ONCE)
            for (ptrdiff_t c = first; c < last; c++) {
                const float *left = f->turned + n * inner, *panel = f->right + c * BLOCK * inner;
                float *out = f->scratch + n * stride + c * BLOCK;
                if (f->wide)
                    wide_panel_product(inner, left, panel, f->column + c * BLOCK, out, stride);
                else
                    panel_product(inner, left, panel, f->column + c * BLOCK, out, stride);
            }
    }
}

/* `many` rows from `start` on; the first one's halves are at `upper` and `lower`. With `scaled`, their sums, too.
 * Never inlined: the same bits for whoever asks. */
FOR_EVERY_PROCESSOR __attribute__((noinline))
void make_rows(
    const factors *f, ptrdiff_t width, ptrdiff_t start, ptrdiff_t many, uint32_t *upper, uint32_t *lower,
    const float *scaled, double *sums, double *sums_upper)
{
    ptrdiff_t blocks = (width + BLOCK - 1) / BLOCK, row = blocks * WORDS;
    make_exponents(f, blocks, start, many);
    for (ptrdiff_t n = 0; n < many; n++) {
        float *numbers = f->scratch + n * blocks * BLOCK;
        if (f->find)
            f->tops[start + n] = largest(width, numbers);
        if (scaled)
            make_row(
                width, numbers, f->tops[start + n], f->floor_, upper + n * row, lower + n * row, scaled, sums + n,
                sums_upper + n);
        else
            make_row(width, numbers, f->tops[start + n], f->floor_, upper + n * row, lower + n * row, 0, 0, 0);
    }
}

void absorb_product(
    ptrdiff_t rows, ptrdiff_t width, ptrdiff_t inner, const float *left, const float *right, const float *column,
    ptrdiff_t find, float *tops, float floor_, ptrdiff_t together, ptrdiff_t wide, float *turned, float *scratch,
    uint32_t *upper, uint32_t *lower)
{
    factors f = {inner, left, right, column, find, tops, floor_, together, wide, turned, scratch};
    ptrdiff_t row = (width + BLOCK - 1) / BLOCK * WORDS;
    for (ptrdiff_t n = 0; n < rows; n += together)
        make_rows(
            &f, width, n, rows - n < together ? rows - n : together, upper + n * row, lower + n * row, 0, 0, 0);
}

/* column_m += sum_n weight_n S_nm over some rows, at most six, that were just made, and the same of upper halves. */
INLINE void add_made_weighed(
    ptrdiff_t rows, ptrdiff_t blocks, const float *made, const float *weight, float *restrict column,
    float *restrict column_upper)
{
    for (ptrdiff_t k = 0; k < 2 * blocks; k++) {
        eight *to = (eight *)(column + k * 8), *to_upper = (eight *)(column_upper + k * 8);
        eight x = *to, x_upper = *to_upper;
#pragma GCC unroll 6
        for (ptrdiff_t n = 0; n < rows; n++) {
            eight entries = *(const eight *)(made + n * blocks * BLOCK + k * 8);
            x += weight[n] * entries;
            x_upper += weight[n] * (eight)rounded((eight_words)entries);
        }
        *to = x, *to_upper = x_upper;
    }
}

/* As sweep_both_span, of entries that are made on the way, those of rows from `place` on of the factors: added up while
 * they are in a near cache; the halves are not read. The same bits. */
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
            const float *made = f->scratch + k * blocks * BLOCK;
            ptrdiff_t together = k + ROWS_AT_ONCE <= many && n + k + ROWS_AT_ONCE <= stop ? ROWS_AT_ONCE : 1;
            if (together == ROWS_AT_ONCE)
                add_made_weighed(ROWS_AT_ONCE, blocks, made, weight + k, column, column_upper);
            else
                add_made_weighed(1, blocks, made, weight + k, column, column_upper);
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
    ptrdiff_t wide, float *turned, float *scratch, uint32_t *upper, uint32_t *lower, const float *scaled, double *lift,
    const double *shares, double *scale, float *column, float *column_upper, double *span, double *total)
{
    factors f = {inner, left, right, columns, find, tops, floor_, together, wide, turned, scratch};
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
