/* Entries in two halves: made from exponents, put together again, swept. */
#include "halves.h"

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
            for (ptrdiff_t m = 0; m < many; m += BLOCK, to++, below++)                                                 \
                put_block(*(eight_words *)(entries + m), *(eight_words *)(entries + m + 8), to, below);                \
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

/* Squares of numbers below this are not told apart: they would fall out of float32. */
static const float LEAST_ROOT = 1e-18f;

/* column_m += sum_n weight_n upper_nm over some rows, at most four; with `root`, square_m += sum_n (root_n upper_nm)^2. */
INLINE void add_weighed(
    ptrdiff_t rows, ptrdiff_t blocks, const uint32_t *upper, const float *weight, float *restrict column,
    const float *root, float *restrict square)
{
    for (ptrdiff_t k = 0; k < blocks; k++) {
        ask_for_next(rows, blocks, upper, k);
        eight *to = (eight *)(column + k * BLOCK), *to_square = (eight *)(square + k * BLOCK);
        eight x = to[0], y = to[1], x_square = {0.0f}, y_square = {0.0f};
#pragma GCC unroll 4
        for (ptrdiff_t n = 0; n < rows; n++) {
            eight_words words = *(const eight_words *)(upper + (n * blocks + k) * WORDS);
            x += weight[n] * upper_below(words);
            y += weight[n] * upper_above(words);
            if (root) {
                eight below = root[n] * upper_below(words) + LEAST_ROOT, above = root[n] * upper_above(words) + LEAST_ROOT;
                x_square += below * below;
                y_square += above * above;
            }
        }
        to[0] = x, to[1] = y;
        if (root)
            to_square[0] += x_square, to_square[1] += y_square;
    }
}

/* A sweep over the upper halves of rows, `step` of which at a time are added up in float32. Columns come in parts, one
 * for each neighbour: of part p, blocks first[p] to last[p] - 1, which it may share with the parts beside it, and
 * `scaled` with zeros for the columns of these, from at[p] on. `sums` has `stride` numbers for each part; those of
 * parts that were heard are there already. Then scale_n = lift_n times the sum over parts, and
 * total_m += sum_n (shares_n / scale_n) upper_nm; with `squares`, squares_m += sum_n shares_n (upper_nm / scale_n)^2,
 * which are added up behind `column`. */
INLINE void sweep_upper_span(
    ptrdiff_t rows, ptrdiff_t step, ptrdiff_t width, const uint32_t *upper, ptrdiff_t parts, const int64_t *first,
    const int64_t *last, const int64_t *at, const float *scaled, const uint8_t *heard, double *sums, ptrdiff_t stride,
    const double *lift, const double *shares, double *scale, float *column, double *total, double *squares)
{
    ptrdiff_t blocks = (width + BLOCK - 1) / BLOCK, row = blocks * WORDS;
    float *square = column + blocks * BLOCK;
    for (ptrdiff_t n = 0, stop = 0; n < rows;) {
        if (n == stop) {
            stop = n + step < rows ? n + step : rows;
            memset(column, 0, (size_t)((squares ? 2 : 1) * blocks * BLOCK) * sizeof *column);
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
        float weight[4], root[4];
        for (ptrdiff_t k = 0; k < together; k++) {
            double sum = 0.0;
            for (ptrdiff_t p = 0; p < parts; p++) /* in their order, not that of their arrival */
                sum += sums[p * stride + n + k];
            scale[n + k] = lift[n + k] * sum;
            weight[k] = (float)(shares[n + k] / scale[n + k]);
            root[k] = (float)(sqrt(shares[n + k]) / scale[n + k]);
        }
        if (together == 4 && squares)
            add_weighed(4, blocks, here, weight, column, root, square);
        else if (together == 4)
            add_weighed(4, blocks, here, weight, column, 0, square);
        else
            add_weighed(1, blocks, here, weight, column, squares ? root : 0, square);
        n += together;
        if (n == stop)
            carry(width, column, total);
        if (n == stop && squares)
            carry(width, square, squares);
    }
}

/* `span` and `total` have the sums and, if `curved`, behind them the squares. */
FOR_EVERY_PROCESSOR
void sweep_upper(
    ptrdiff_t spans, const int64_t *bounds, ptrdiff_t step, ptrdiff_t width, const uint32_t *upper, ptrdiff_t parts,
    const int64_t *first, const int64_t *last, const int64_t *at, const float *scaled, const uint8_t *heard,
    double *sums, ptrdiff_t stride, const double *lift, const double *shares, double *scale, ptrdiff_t curved,
    float *column, double *span, double *total)
{
    ptrdiff_t row = (width + BLOCK - 1) / BLOCK * WORDS, lines = curved ? 2 : 1;
    for (ptrdiff_t s = 0; s < spans; s++) {
        ptrdiff_t n = bounds[s];
        memset(span, 0, (size_t)(lines * width) * sizeof *span);
        sweep_upper_span(
            bounds[s + 1] - n, step, width, upper + n * row, parts, first, last, at, scaled, heard, sums + n, stride,
            lift + n, shares + n, scale + n, column, span, curved ? span + width : 0);
        add_span(lines * width, span, total);
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

/* A sweep over both halves: scale_n = sum_m S_nm scaled_m, lift_n what that is of the same sum over the upper halves;
 * total_m += sum_n (shares_n / scale_n) S_nm, and total_upper the same of the upper halves. Without `total`, rows only. */
INLINE void sweep_both_span(
    ptrdiff_t rows, ptrdiff_t step, ptrdiff_t width, const uint32_t *upper, const uint32_t *lower, const float *scaled,
    double *lift, const double *shares, double *scale, float *column, float *column_upper, double *total,
    double *total_upper)
{
    ptrdiff_t blocks = (width + BLOCK - 1) / BLOCK, row = blocks * WORDS;
    for (ptrdiff_t n = 0, stop = 0; n < rows;) {
        if (n == stop) {
            stop = n + step < rows ? n + step : rows;
            memset(column, 0, (size_t)(blocks * BLOCK) * sizeof *column);
            memset(column_upper, 0, (size_t)(blocks * BLOCK) * sizeof *column_upper);
        }
        ptrdiff_t together = n + 4 <= stop ? 4 : 1;
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
            add_both_weighed(4, blocks, upper + n * row, lower + n * row, 1, weight, column, column_upper);
        else if (total)
            add_both_weighed(1, blocks, upper + n * row, lower + n * row, 1, weight, column, column_upper);
        n += together;
        if (total && n == stop) {
            carry(width, column, total);
            carry(width, column_upper, total_upper);
        }
    }
}

/* Spans as in sweep_upper; `span` and `total` have first that of both halves, then that of the upper ones. */
FOR_EVERY_PROCESSOR
void sweep_both(
    ptrdiff_t spans, const int64_t *bounds, ptrdiff_t step, ptrdiff_t width, const uint32_t *upper,
    const uint32_t *lower, const float *scaled, double *lift, const double *shares, double *scale, float *column,
    float *column_upper, double *span, double *total)
{
    ptrdiff_t row = (width + BLOCK - 1) / BLOCK * WORDS;
    for (ptrdiff_t s = 0; s < spans; s++) {
        ptrdiff_t n = bounds[s];
        memset(span, 0, (size_t)(2 * width) * sizeof *span);
        sweep_both_span(
            bounds[s + 1] - n, step, width, upper + n * row, lower + n * row, scaled, lift + n, shares + n, scale + n,
            column, column_upper, total ? span : 0, total ? span + width : 0);
        if (total)
            add_span(2 * width, span, total);
    }
}
