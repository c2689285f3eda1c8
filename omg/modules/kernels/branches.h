/* Single steps of a recurrent agent from states that a pass over its sequences left, each with
 * features of its own:
 *
 *   u = relu(A [x_i, v_j] + a)    h' = GRU(u, h_s)    y = B h' + b     for branches (i, s, j)
 *
 * Some branches share i and s. What depends on x, v or h alone is made once for each of them: A's
 * two parts, and U h; only W u is made for every branch. */
#ifndef OMG_BRANCHES_H
#define OMG_BRANCHES_H

#include "gru.h"

#define TOGETHER 80 /* branches of a block */

/* R rows with E branches each. */
typedef struct {
    const int64_t *at, *state, *places; /* i [R]; s [R], -1: zeros; j [R,E], -1: not wanted */
    const float *x, *table, *states;    /* [P,I], [V,J], [S,H] */
    const float *products;              /* U h of the states, [S,3H]; NULL: they are made here */
    float *own, *y;                     /* A's part of the table [V,F]; [R,E,A] */
    int64_t P, V, S;
    int R, E, I, J, F, H, A;
} branches_t;

INLINE widths_t widths_of(const branches_t *of) {
    return (widths_t){of->I + of->J, of->F, of->H, of->A};
}

/* out = start + d times K rows of the packed input layer, those from `skip` on. */
static void input_part(widths_t w, const packed_t *at, int skip, int K, int rows, const float *d,
                       const float *start, float *out) {
    for (int first = 0; first < w.F; first += CHUNK * VL) {
        const int wide = smaller(CHUNK, (w.F - first) / VL);
        const float *panel = at->first + (size_t)first * w.I + (size_t)skip * wide * VL;
        for (int row = 0; row < rows; row += MR)
            TILES[smaller(MR, rows - row)][wide](K, panel, d + (size_t)row * K, K,
                                                 start ? start + first : NULL, 0,
                                                 out + (size_t)row * w.F + first, w.F, 0);
    }
}

/* 1 + 2^x of FOUR vectors, as `vgate_power`. They go side by side: the operations of one wait for
 * each other, and those of the next row are too far off to be begun meanwhile. */
#define FOUR 4
#define EACH_OF_FOUR _Pragma("GCC unroll 4") for (int i = 0; i < FOUR; i++)
INLINE void four_powers(vec *x) {
    const vec magic = splat(12582912.0f);
    vec p[FOUR], whole[FOUR];
    EACH_OF_FOUR {
        x[i] = at_least(at_most(x[i], 58.0f), -58.0f);
        whole[i] = x[i] + magic;
        x[i] -= whole[i] - magic;
    }
    EACH_OF_FOUR p[i] = splat(1.5403530e-4f) * x[i] + splat(1.3333558e-3f);
    EACH_OF_FOUR p[i] = p[i] * x[i] + splat(9.6181291e-3f);
    EACH_OF_FOUR p[i] = p[i] * x[i] + splat(5.5504109e-2f);
    EACH_OF_FOUR p[i] = p[i] * x[i] + splat(2.4022651e-1f);
    EACH_OF_FOUR p[i] = p[i] * x[i] + splat(6.9314718e-1f);
    EACH_OF_FOUR p[i] = p[i] * x[i] + splat(1.0f);
    EACH_OF_FOUR x[i] = splat(1.0f) + (vec)((ivec)p[i] + ((ivec)whole[i] << 23));
}

/* The sums of FOUR rows [FOUR][4][VL] -> z and n in the places of z and n. */
ALONE void four_gates(float *sums) {
    vec r[FOUR], z[FOUR], n[FOUR];
    EACH_OF_FOUR r[i] = LOAD(sums + 4 * i * VL);
    four_powers(r);
    EACH_OF_FOUR z[i] = LOAD(sums + (4 * i + 1) * VL);
    four_powers(z);
    EACH_OF_FOUR {
        const vec both = inverse(r[i] * z[i]);
        STORE(sums + (4 * i + 1) * VL, both * r[i]);
        n[i] = LOAD(sums + (4 * i + 2) * VL) + both * z[i] * LOAD(sums + (4 * i + 3) * VL);
    }
    four_powers(n);
    EACH_OF_FOUR STORE(sums + (4 * i + 2) * VL, splat(2.0f) * inverse(n[i]) - splat(1.0f));
}

/* One step of `rows` (at most MR) branches and VL units, from states and their products. */
static void branch_tile(widths_t w, const packed_t *at, int rows, int unit, const float *u,
                        const float *const *h, const float *const *known, float *out) {
    const int K = fed(w), H = w.H;
    float sums[MR * 4 * VL] __attribute__((aligned(64)));
    const float *bias = at->biases + (size_t)unit * 4;
    ROWS[rows](K, at->gates + (size_t)unit * 3 * (K + H), u, K, bias, 0, bias, sums, 2);
    for (int i = 0; i < rows; i++) {
        float *own = sums + 4 * i * VL;
        const float *p = known[i] + 3 * unit;
        STORE(own, LOAD(own) + LOAD(p));
        STORE(own + VL, LOAD(own + VL) + LOAD(p + VL));
        STORE(own + 3 * VL, LOAD(bias + 3 * VL) + LOAD(p + 2 * VL));
    }
    for (int i = 0; i < rows; i += FOUR) four_gates(sums + 4 * i * VL);
    for (int i = 0; i < rows; i++, out += H) {
        const vec z = LOAD(sums + (4 * i + 1) * VL), n = LOAD(sums + (4 * i + 2) * VL);
        STORE(out + unit, n + z * (LOAD(h[i] + unit) - n));
    }
}

/* What a block works on: rows, then branches. */
typedef struct {
    float *x, *shared, *h, *products, *u, *after, *y;
    const float *from[TOGETHER], *known[TOGETHER]; /* a branch's state and its products */
    float *to[TOGETHER];                           /* where its outputs go */
} branch_work_t;

static size_t branch_work_size(const branches_t *of) {
    return TOGETHER * ((size_t)of->I + 2 * of->F + 5 * of->H + padded(of->A));
}

static branch_work_t branch_places(const branches_t *of, float *p) {
    branch_work_t at;
    at.shared = p, p += (size_t)TOGETHER * of->F;
    at.h = p, p += (size_t)TOGETHER * of->H;
    at.products = p, p += (size_t)TOGETHER * 3 * of->H;
    at.u = p, p += (size_t)TOGETHER * of->F;
    at.after = p, p += (size_t)TOGETHER * of->H;
    at.y = p, p += (size_t)TOGETHER * padded(of->A);
    at.x = p;
    return at;
}

/* Inputs, states and the states' products of some rows from `first` on. */
static void gather_branches(const branches_t *of, const packed_t *weights, int first, int rows,
                            branch_work_t *at) {
    const widths_t w = widths_of(of);
    for (int i = 0; i < rows; i++) {
        const int64_t state = of->state[first + i];
        float *h = at->h + (size_t)i * w.H, *product = at->products + (size_t)i * 3 * w.H;
        memcpy(at->x + (size_t)i * of->I, of->x + of->at[first + i] * of->I,
               sizeof(float) * of->I);
        if (state < 0) {
            memset(h, 0, sizeof(float) * w.H);
            memset(product, 0, sizeof(float) * 3 * w.H);
            continue;
        }
        memcpy(h, of->states + state * w.H, sizeof(float) * w.H);
        if (of->products)
            memcpy(product, of->products + state * 3 * w.H, sizeof(float) * 3 * w.H);
    }
    if (!of->products) state_products(w, weights, rows, at->h, at->products);
    input_part(w, weights, 0, of->I, rows, at->x, weights->first_bias, at->shared);
}

/* `rows` rows from `first` on, and of each `kinds` branches from `kind` on. */
static void branch_block(const branches_t *of, const packed_t *weights, int first, int rows,
                         int kind, int kinds, branch_work_t *at) {
    const widths_t w = widths_of(of);
    const int F = w.F, H = w.H, A = w.A, wide = padded(A);
    int count = 0;
    gather_branches(of, weights, first, rows, at);
    for (int i = 0; i < rows; i++)
        for (int k = kind; k < kind + kinds; k++) {
            const size_t branch = (size_t)(first + i) * of->E + k;
            if (of->places[branch] < 0) continue;
            const float *own = of->own + of->places[branch] * F, *shared = at->shared + (size_t)i * F;
            for (int f = 0; f < F; f += VL)
                STORE(at->u + (size_t)count * F + f,
                      at_least(LOAD(shared + f) + LOAD(own + f), 0.0f));
            at->from[count] = at->h + (size_t)i * H;
            at->known[count] = at->products + (size_t)i * 3 * H;
            at->to[count++] = of->y + branch * A;
        }
    for (int unit = 0; unit < H; unit += VL)
        for (int row = 0; row < count; row += MR)
            branch_tile(w, weights, smaller(MR, count - row), unit, at->u + (size_t)row * F,
                        at->from + row, at->known + row, at->after + (size_t)row * H);
    layer(count, H, wide, weights->last, weights->last_bias, at->after, H, at->y, wide, 0);
    for (int row = 0; row < count; row++)
        memcpy(at->to[row], at->y + (size_t)row * wide, sizeof(float) * A);
}

#endif
