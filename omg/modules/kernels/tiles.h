/* Products of a few rows with packed weights, and sums of outer products, in tiles whose sums stay
 * in registers. Every tile is a function of its own, as a compiler that sees more at once runs out
 * of registers. Widths are multiples of VL. */
#ifndef OMG_TILES_H
#define OMG_TILES_H

#include <stddef.h>
#include <string.h>

#include "vector.h"

#define CHUNK 3                /* vectors that a tile of a product is wide */
#define GM (VL == 16 ? 12 : 6) /* rows of a tile of a sum of outer products */

INLINE int smaller(int a, int b) { return a < b ? a : b; }

/* n rounded up to whole vectors. */
INLINE int padded(int n) { return (n + VL - 1) / VL * VL; }

/* out = start + d w for M rows and N vectors of columns: d [K] with rows `stride` apart, w [K][N VL],
 * start NULL: zeros, its rows `apart`; not below 0 where `positive`. */
INLINE void product_tile(const int M, const int N, int K, const float *restrict w,
                         const float *restrict d, int stride, const float *start, int apart,
                         float *out, int width, int positive) {
    vec c[MR][CHUNK];
#pragma GCC unroll 8
    for (int i = 0; i < M; i++)
#pragma GCC unroll 3
        for (int j = 0; j < N; j++) {
            c[i][j] = splat(0.0f);
            if (start) c[i][j] = LOAD(start + (size_t)i * apart + j * VL);
        }
    for (int k = 0; k < K; k++, w += N * VL, d++) {
        vec b[CHUNK];
#pragma GCC unroll 3
        for (int j = 0; j < N; j++) {
            b[j] = LOAD(w + j * VL);
            PIN(b[j]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < M; i++) {
            const vec v = splat(d[(size_t)i * stride]);
#pragma GCC unroll 3
            for (int j = 0; j < N; j++) c[i][j] = fused(c[i][j], v, b[j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < M; i++)
#pragma GCC unroll 3
        for (int j = 0; j < N; j++) {
            if (positive) c[i][j] = at_least(c[i][j], 0.0f);
            STORE(out + (size_t)i * width + j * VL, c[i][j]);
        }
}

/* sum += dᵀ v over `rows` rows: M rows of the sum, N vectors wide. */
INLINE void outer_tile(const int M, const int N, int rows, const float *restrict d, int stride,
                       const float *restrict v, int width, float *restrict sum, int apart) {
    vec c[GM][2];
#pragma GCC unroll 12
    for (int i = 0; i < M; i++)
#pragma GCC unroll 2
        for (int j = 0; j < N; j++) c[i][j] = LOAD(sum + (size_t)i * apart + j * VL);
    for (int k = 0; k < rows; k++, d += stride, v += width) {
        vec b[2];
#pragma GCC unroll 2
        for (int j = 0; j < N; j++) {
            b[j] = LOAD(v + j * VL);
            PIN(b[j]);
        }
#pragma GCC unroll 12
        for (int i = 0; i < M; i++) {
            const vec s = splat(d[i]);
#pragma GCC unroll 2
            for (int j = 0; j < N; j++) c[i][j] = fused(c[i][j], s, b[j]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < M; i++)
#pragma GCC unroll 2
        for (int j = 0; j < N; j++) STORE(sum + (size_t)i * apart + j * VL, c[i][j]);
}

#define ALONE static __attribute__((noinline))

typedef void (*tile)(int K, const float *w, const float *d, int stride, const float *start,
                     int apart, float *out, int width, int positive);
#define TILE(M, N)                                                                                 \
    ALONE void tile_##M##_##N(int K, const float *w, const float *d, int stride,                   \
                              const float *start, int apart, float *out, int width,                \
                              int positive) {                                                      \
        product_tile(M, N, K, w, d, stride, start, apart, out, width, positive);                   \
    }
#define TILES_OF(M) TILE(M, 1) TILE(M, 2) TILE(M, 3)
#define TILE_NAMES(M) {NULL, tile_##M##_1, tile_##M##_2, tile_##M##_3}
TILES_OF(1) TILES_OF(2) TILES_OF(3) TILES_OF(4)
#if MR == 8
TILES_OF(5) TILES_OF(6) TILES_OF(7) TILES_OF(8)
#endif
static const tile TILES[MR + 1][CHUNK + 1] = {
    {NULL}, TILE_NAMES(1), TILE_NAMES(2), TILE_NAMES(3), TILE_NAMES(4),
#if MR == 8
    TILE_NAMES(5), TILE_NAMES(6), TILE_NAMES(7), TILE_NAMES(8),
#endif
};

typedef void (*outer)(int rows, const float *d, int stride, const float *v, int width, float *sum,
                      int apart);
#define OUTER(M, N)                                                                                \
    ALONE void outer_##M##_##N(int rows, const float *d, int stride, const float *v, int width,    \
                               float *sum, int apart) {                                            \
        outer_tile(M, N, rows, d, stride, v, width, sum, apart);                                   \
    }
#define OUTERS_OF(M) OUTER(M, 1) OUTER(M, 2)
#define OUTER_NAMES(M) {NULL, outer_##M##_1, outer_##M##_2}
OUTERS_OF(1) OUTERS_OF(2) OUTERS_OF(3) OUTERS_OF(4) OUTERS_OF(5) OUTERS_OF(6)
#if VL == 16
OUTERS_OF(7) OUTERS_OF(8) OUTERS_OF(9) OUTERS_OF(10) OUTERS_OF(11) OUTERS_OF(12)
#endif
static const outer OUTERS[GM + 1][3] = {
    {NULL},         OUTER_NAMES(1), OUTER_NAMES(2), OUTER_NAMES(3),
    OUTER_NAMES(4), OUTER_NAMES(5), OUTER_NAMES(6),
#if VL == 16
    OUTER_NAMES(7), OUTER_NAMES(8), OUTER_NAMES(9), OUTER_NAMES(10), OUTER_NAMES(11), OUTER_NAMES(12),
#endif
};

/* w [K][width] as chunks of columns [K][CHUNK VL], the last one narrower, after `width` zeros;
 * `across` and `down` say how far apart columns and rows of w lie, one of them 1. */
static void pack_chunks(int K, int width, const float *w, int down, int across, float *p) {
    const int columns = padded(width);
    for (int first = 0; first < columns; first += CHUNK * VL) {
        const int wide = smaller(CHUNK * VL, columns - first);
        const int filled = width < first + wide ? width - first : wide;
        const float *from = w + (size_t)first * across;
        if (filled < wide) memset(p, 0, sizeof(float) * K * wide);
        if (across == 1)
            for (int k = 0; k < K; k++)
                memcpy(p + (size_t)k * wide, from + (size_t)k * down, sizeof(float) * filled);
        else
            for (int i = 0; i < filled; i++)
                for (int k = 0; k < K; k++)
                    p[(size_t)k * wide + i] = from[(size_t)k * down + (size_t)i * across];
        p += (size_t)K * wide;
    }
}

/* out [rows][width] = start + d [rows][K] times packed chunks of `width` columns: see product_tile. */
static void product_from(int rows, int K, int width, const float *packed, const float *d, int stride,
                         const float *start, int step, float *out, int apart, int positive) {
    for (int first = 0; first < width; first += CHUNK * VL) {
        const int wide = smaller(CHUNK, (width - first) / VL);
        for (int row = 0; row < rows; row += MR)
            TILES[smaller(MR, rows - row)][wide](
                K, packed + (size_t)first * K, d + (size_t)row * stride, stride,
                start ? start + (size_t)row * step + first : NULL, step,
                out + (size_t)row * apart + first, apart, positive);
    }
}

/* out [rows][width] (+)= d [rows][K] times packed chunks of `width` columns. */
static void product(int rows, int K, int width, const float *packed, const float *d, int stride,
                    float *out, int apart, int add) {
    product_from(rows, K, width, packed, d, stride, add ? out : NULL, apart, out, apart, 0);
}

/* out [rows][width] = bias + that product, not below 0 where `positive`. */
static void layer(int rows, int K, int width, const float *packed, const float *bias,
                  const float *d, int stride, float *out, int apart, int positive) {
    product_from(rows, K, width, packed, d, stride, bias, 0, out, apart, positive);
}

/* x = 0 where it is below. */
static void positive_rows(int rows, int width, float *x, int apart) {
    for (int row = 0; row < rows; row++, x += apart)
        for (int i = 0; i < width; i += VL) STORE(x + i, at_least(LOAD(x + i), 0.0f));
}

/* sum [G][width] += dᵀ v over `rows` rows of d [G] and v [width]. */
static void outer_product(int rows, int G, const float *d, int stride, const float *v, int apart,
                          int width, float *sum) {
    if (!rows) return;
    for (int column = 0; column < width; column += 2 * VL)
        for (int row = 0; row < G; row += GM)
            OUTERS[smaller(GM, G - row)][smaller(2, (width - column) / VL)](
                rows, d + row, stride, v + column, apart, sum + (size_t)row * width + column,
                width);
}

/* sum [width] += the rows of d [rows][width]. */
static void column_sums(int rows, int width, const float *d, float *sum) {
    for (int column = 0; column < width; column += VL) {
        vec total = LOAD(sum + column);
        for (int row = 0; row < rows; row++) total += LOAD(d + (size_t)row * width + column);
        STORE(sum + column, total);
    }
}

/* d = 0 where `kept`, what relu made, is not positive. */
static void mask_rows(int rows, int width, const float *kept, float *d, int apart) {
    for (int row = 0; row < rows; row++, kept += apart, d += apart)
        for (int i = 0; i < width; i += VL)
            STORE(d + i, choose(LOAD(kept + i) <= splat(0.0f), splat(0.0f), LOAD(d + i)));
}

/* rows [width] -> rows [wide], zeros after them. */
static void copy_rows(int rows, int width, int wide, const float *from, float *to) {
    if (width == wide) {
        memcpy(to, from, sizeof(float) * rows * width);
        return;
    }
    for (int row = 0; row < rows; row++) {
        memcpy(to + (size_t)row * wide, from + (size_t)row * width, sizeof(float) * width);
        memset(to + (size_t)row * wide + width, 0, sizeof(float) * (wide - width));
    }
}

#endif
