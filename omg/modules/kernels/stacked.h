/* One step of a recurrent agent (fc1, ReLU, GRU cell, fc2) for a block of rows: what stacked.c and
 * acting.c share.
 *
 * Weights of one network, all panels behind each other (I inputs, H hidden units, A actions padded
 * to VL); the first row of a panel is the bias:
 *   fc1  [H/2VL][1 + I][2VL]
 *   GRU  [H/VL][4VL: b_r, b_z, b_in, b_hn][H][3VL: W_ir W_iz W_in][H][3VL: W_hr W_hz W_hn]
 *   fc2  [A/VL][1 + H][VL]
 * The GRU's are multiplied as `vgates` wants its sums: r and z by -log2 e, the others by twice that.
 */
#ifndef OMG_STACKED_H
#define OMG_STACKED_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "vector.h"

#define MAX_HIDDEN 512

/* Rows of one block: where each begins. */
typedef struct {
    const float *input[BLOCK], *before[BLOCK];
    float *features[BLOCK], *after[BLOCK], *output[BLOCK];
} Rows;

INLINE vec relu(vec x) { return choose(x < splat(0.0f), splat(0.0f), x); }

/* features = relu(input W + b), M rows and 2 VL units. */
INLINE void input_tile(const int M, int I, int unit, const float *restrict w,
                       const float *const *in, float *const *out) {
    vec a[M], b[M];
    const float *x[M];
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) {
        x[i] = in[i];
        a[i] = LOAD(w);
        b[i] = LOAD(w + VL);
    }
    w += 2 * VL;
    for (int k = 0; k < I; k++, w += 2 * VL) {
        vec w0 = LOAD(w), w1 = LOAD(w + VL);
        PIN(w0);
        PIN(w1);
#pragma GCC unroll 8
        for (int i = 0; i < M; i++) {
            const vec v = splat(x[i][k]);
            a[i] = fused(a[i], v, w0);
            b[i] = fused(b[i], v, w1);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) {
        STORE(out[i] + unit, relu(a[i]));
        STORE(out[i] + unit + VL, relu(b[i]));
    }
}

/* r, z and n += x W for M rows; returns where the weights end. */
INLINE const float *gate_product(const int M, int H, const float *restrict w,
                                 const float *const *in, vec *r, vec *z, vec *n) {
    const float *x[M];
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) x[i] = in[i];
    for (int k = 0; k < H; k++, w += 3 * VL) {
        vec wr = LOAD(w), wz = LOAD(w + VL), wn = LOAD(w + 2 * VL);
        PIN(wr);
        PIN(wz);
        PIN(wn);
#pragma GCC unroll 8
        for (int i = 0; i < M; i++) {
            const vec v = splat(x[i][k]);
            r[i] = fused(r[i], v, wr);
            z[i] = fused(z[i], v, wz);
            n[i] = fused(n[i], v, wn);
        }
    }
    return w;
}

/* The GRU cell, M rows and VL units. */
INLINE void gru_tile(const int M, int H, int unit, const float *restrict w, const float *const *in,
                     const float *const *before, float *const *after) {
    vec r[M], z[M], n[M], a[M];
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) {
        r[i] = LOAD(w);
        z[i] = LOAD(w + VL);
        n[i] = LOAD(w + 2 * VL);
        a[i] = LOAD(w + 3 * VL);
    }
    w = gate_product(M, H, w + 4 * VL, in, r, z, n);
    gate_product(M, H, w, before, r, z, a);
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) {
        vec rr, zz;
        vgates(r[i], z[i], &rr, &zz);
        const vec nn = vgate_tanh(n[i] + rr * a[i]);
        STORE(after[i] + unit, nn + zz * (LOAD(before[i] + unit) - nn));
    }
}

/* output = after W + b, M rows and up to VL actions. */
INLINE void head_tile(const int M, int H, int first, int actions, const float *restrict w,
                      const float *const *in, float *const *out) {
    vec q[M];
    const float *x[M];
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) {
        x[i] = in[i];
        q[i] = LOAD(w);
    }
    w += VL;
    for (int k = 0; k < H; k++, w += VL) {
        vec w0 = LOAD(w);
        PIN(w0);
#pragma GCC unroll 8
        for (int i = 0; i < M; i++) q[i] = fused(q[i], splat(x[i][k]), w0);
    }
    for (int i = 0; i < M; i++) {
        float all[VL];
        STORE(all, q[i]);
        memcpy(out[i] + first, all, sizeof(float) * actions);
    }
}

/* Calls a tile for `rows` rows in pieces of at most MR, as equal as can be; `at` is the first row
 * of a piece. The number of rows must be a constant where a tile is expanded. */
#define PIECE(M, CALL) \
    case M: {          \
        enum { m = M }; \
        CALL;          \
        break;         \
    }
#if MR == 8
#define MORE_PIECES(CALL) PIECE(5, CALL) PIECE(6, CALL) PIECE(7, CALL) PIECE(8, CALL)
#else
#define MORE_PIECES(CALL)
#endif
#define FOR_PIECES(rows, CALL)                                                              \
    for (int piece = 0, pieces = ((rows) + MR - 1) / MR; piece < pieces; piece++) {         \
        const int at = (rows)*piece / pieces;                                               \
        switch ((rows) * (piece + 1) / pieces - at) {                                       \
            PIECE(1, CALL) PIECE(2, CALL) PIECE(3, CALL) PIECE(4, CALL) MORE_PIECES(CALL)   \
        }                                                                                   \
    }

/* fc1 of a block; returns where its weights end. */
static const float *input_block(int rows, int I, int H, const float *w, const Rows *b) {
    for (int unit = 0; unit < H; unit += 2 * VL, w += (size_t)(1 + I) * 2 * VL)
        FOR_PIECES(rows, input_tile(m, I, unit, w, b->input + at, b->features + at))
    return w;
}

/* GRU cell and fc2 of a block whose features are there. */
INLINE void hidden_block(int rows, int H, int A, const float *w, const Rows *b) {
    for (int unit = 0; unit < H; unit += VL, w += (size_t)(4 + 6 * H) * VL)
        FOR_PIECES(rows, gru_tile(m, H, unit, w, (const float *const *)b->features + at,
                                  b->before + at, b->after + at))
    for (int first = 0; first < A; first += VL, w += (size_t)(1 + H) * VL) {
        const int actions = A - first < VL ? A - first : VL;
        FOR_PIECES(rows, head_tile(m, H, first, actions, w, (const float *const *)b->after + at,
                                   b->output + at))
    }
}

#endif
