/* Entries in two halves, and sums over them that several passes share. */
#ifndef DEOT_HALVES_H
#define DEOT_HALVES_H

#include "numbers.h"

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

/* The upper half of each number alone: rounded, not cut off. */
INLINE eight_words rounded(eight_words numbers) { return (numbers + 0x8000u) & 0xffff0000u; }

/* One block of a row of entries, in `below` and `above`. What rounding leaves is in the lower 16 bits as they are. */
INLINE void put_block(eight_words below, eight_words above, eight_words *upper, eight_words *lower)
{
    *upper = ((below + 0x8000u) >> 16) | rounded(above);
    *lower = (below & 0xffffu) | (above << 16);
}

/* Sums in float32 are carried on in float64, and entries are made, so many blocks at a time. */
enum { BLOCKS_TOGETHER = 32, TOGETHER = BLOCK * BLOCKS_TOGETHER };

INLINE double added(eight x)
{
    return (double)((x[0] + x[4]) + (x[1] + x[5])) + (double)((x[2] + x[6]) + (x[3] + x[7]));
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

/* column_m += sum_n weight_n S_nm over some rows, at most four, and the same of upper halves; with `ahead`, rows that come
 * next are asked for. */
INLINE void add_both_weighed(
    ptrdiff_t rows, ptrdiff_t blocks, const uint32_t *upper, const uint32_t *lower, ptrdiff_t ahead,
    const float *weight, float *restrict column, float *restrict column_upper)
{
    for (ptrdiff_t k = 0; k < blocks; k++) {
        if (ahead) {
            ask_for_next(rows, blocks, upper, k);
            ask_for_next(rows, blocks, lower, k);
        }
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

INLINE void carry(ptrdiff_t width, const float *column, double *total)
{
    for (ptrdiff_t m = 0; m < width; m++)
        total[m] += column[m];
}

/* Spans of rows, one after the other; span s begins with row bounds[s]. Each has a total of its own, in `span`, and
 * these are added up in their order. */
INLINE void add_span(ptrdiff_t width, const double *span, double *total)
{
    for (ptrdiff_t m = 0; m < width; m++)
        total[m] += span[m];
}

#endif
