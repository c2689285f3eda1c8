/* A GRU layer over time with, if wanted, a layer before and one after it, forward and backward:
 *
 *   u = relu(A x + a)            y = B h' + b          (without them u = x, and y is not made)
 *   r = s(W_r u + U_r h + b_r)   z = s(W_z u + U_z h + b_z)   c = U_n h + c_n
 *   n = tanh(W_n u + b_n + r c)  h' = n + z (h - n)
 *
 * Gate order is r, z, n, as in torch; x is the input of a step and h the state before it.
 *
 * A block of rows goes through all layers of all steps on one thread: it stays in the cache, and
 * nothing is synchronised between steps. Products are made in tiles of MR rows whose sums stay in
 * registers.
 */
#ifndef OMG_GRU_H
#define OMG_GRU_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "block.h"
#include "tiles.h"

/* The weight gradient of a step is summed at once where it has DIRECT rows; rows of smaller steps
 * are gathered up to GATHER. */
#define DIRECT 24
#define GATHER 64

/* Widths: inputs x, the GRU's inputs u, hidden state, outputs y. F = 0: no layer before it, A = 0:
 * none after it. Weights: A, a, W [3H,F or I], U [3H,H], their biases, B, b. */
typedef struct {
    int I, F, H, A;
} widths_t;
enum { FIRST, FIRST_BIAS, W_IH, W_HH, B_IH, B_HH, LAST, LAST_BIAS, WEIGHTS };

INLINE int fed(widths_t w) { return w.F ? w.F : w.I; } /* width of u */

/* ---- weights in the order in which the forward pass reads them ------------------------------ */

typedef struct {
    const float *first, *first_bias, *gates, *biases, *last, *last_bias;
} packed_t;

static packed_t places(widths_t w, const float *p) {
    const int K = fed(w) + w.H;
    packed_t at;
    at.first = p, p += (size_t)w.I * w.F;
    at.first_bias = p, p += w.F;
    at.gates = p, p += (size_t)3 * w.H * K;
    at.biases = p, p += 4 * w.H;
    at.last = p, p += (size_t)w.H * padded(w.A);
    at.last_bias = p;
    return at;
}

int64_t gru_packed_size(int I, int F, int H, int A) {
    const int K = fed((widths_t){I, F, H, A});
    return (int64_t)F * (I + 1) + 3LL * H * (K + H) + 4LL * H + (int64_t)padded(A) * (H + 1);
}

/* The gates as [H/VL] panels [F+H][3][VL], their biases as [H/VL] pieces b_r, b_z, b_n, c_n; all
 * multiplied as `vgates` wants their sums. */
void gru_pack(int I, int F, int H, int A, const float *const *weights, float *packed) {
    const widths_t w = {I, F, H, A};
    const packed_t at = places(w, packed);
    const int K = fed(w);
    if (F) {
        pack_chunks(I, F, weights[FIRST], 1, I, (float *)at.first);
        memcpy((float *)at.first_bias, weights[FIRST_BIAS], sizeof(float) * F);
    }
    for (int row = 0; row < 3 * H; row++) {
        const int gate = row / H, unit = row % H;
        const float scale = gate < 2 ? -LOG2E : -2.0f * LOG2E;
        float *to = (float *)at.gates + (size_t)(unit / VL) * 3 * VL * (K + H);
        to += gate * VL + unit % VL;
        for (int k = 0; k < K; k++, to += 3 * VL) *to = scale * weights[W_IH][(size_t)row * K + k];
        for (int k = 0; k < H; k++, to += 3 * VL) *to = scale * weights[W_HH][(size_t)row * H + k];
        float *bias = (float *)at.biases + (size_t)unit / VL * 4 * VL + unit % VL;
        bias[gate * VL] = scale * (weights[B_IH][row] + (gate < 2 ? weights[B_HH][row] : 0.0f));
        if (gate == 2) bias[3 * VL] = scale * weights[B_HH][row];
    }
    if (A) {
        pack_chunks(H, A, weights[LAST], 1, H, (float *)at.last);
        memset((float *)at.last_bias, 0, sizeof(float) * padded(A));
        memcpy((float *)at.last_bias, weights[LAST_BIAS], sizeof(float) * A);
    }
}

/* ---- forward -------------------------------------------------------------------------------- */

/* Sums of the gates of M rows and VL units, [M][4][VL]: r, z, W_n u and U_n h. Adds what one of u
 * and h, d [K] with rows `stride` apart, gives: to r and z, which begin as in `from` with rows `apart`,
 * and to its own of the last two, which begins with its bias. (With both in one function compilers
 * keep sums in memory where there are 16 registers.) */
INLINE void gates_tile(const int M, int K, const float *restrict panel, const float *restrict d,
                       int stride, const float *from, int apart, const float *restrict bias,
                       float *sums, int own) {
    vec c[MR][3];
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) {
        c[i][0] = LOAD(from + i * apart);
        c[i][1] = LOAD(from + i * apart + VL);
        c[i][2] = LOAD(bias + own * VL);
    }
    for (int k = 0; k < K; k++, panel += 3 * VL, d++) {
        vec b[3];
#pragma GCC unroll 3
        for (int j = 0; j < 3; j++) {
            b[j] = LOAD(panel + j * VL);
            PIN(b[j]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < M; i++) {
            const vec v = splat(d[(size_t)i * stride]);
#pragma GCC unroll 3
            for (int j = 0; j < 3; j++) c[i][j] = fused(c[i][j], v, b[j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) {
        STORE(sums + 4 * i * VL, c[i][0]);
        STORE(sums + (4 * i + 1) * VL, c[i][1]);
        STORE(sums + (4 * i + own) * VL, c[i][2]);
    }
}

typedef void (*gates)(int K, const float *panel, const float *d, int stride, const float *from,
                      int apart, const float *bias, float *sums, int own);
#define GATES(M)                                                                                   \
    ALONE void gates_##M(int K, const float *panel, const float *d, int stride, const float *from, \
                         int apart, const float *bias, float *sums, int own) {                     \
        gates_tile(M, K, panel, d, stride, from, apart, bias, sums, own);                          \
    }
GATES(1) GATES(2) GATES(3) GATES(4)
#if MR == 8
GATES(5) GATES(6) GATES(7) GATES(8)
#endif
static const gates ROWS[MR + 1] = {NULL,    gates_1, gates_2, gates_3, gates_4,
#if MR == 8
                                   gates_5, gates_6, gates_7, gates_8
#endif
};

/* U h of some rows, [rows][H/VL][3][VL]. */
static void state_products(widths_t w, const packed_t *at, int rows, const float *h, float *out) {
    const int K = fed(w), H = w.H;
    for (int unit = 0; unit < H; unit += VL) {
        const float *panel = at->gates + (size_t)unit * 3 * (K + H) + (size_t)K * 3 * VL;
        for (int row = 0; row < rows; row += MR)
            TILES[smaller(MR, rows - row)][3](H, panel, h + (size_t)row * H, H, NULL, 0,
                                              out + (size_t)row * 3 * H + 3 * unit, 3 * H, 0);
    }
}

/* All gates' sums of `rows` (at most MR) rows and VL units; h NULL: only those of u. */
static void gate_sums(int rows, int K, int H, int unit, const packed_t *at, const float *u,
                      int stride, const float *h, float *sums) {
    const float *panel = at->gates + (size_t)unit * 3 * (K + H);
    const float *bias = at->biases + (size_t)unit * 4;
    ROWS[rows](K, panel, u, stride, bias, 0, bias, sums, 2);
    ROWS[rows](h ? H : 0, panel + (size_t)K * 3 * VL, h, H, sums, 4 * VL, bias, sums, 3);
}

/* One step of `rows` (at most MR) rows and VL units; h NULL: a state of zeros; known NULL: its
 * products are to be made. */
static void gru_tile(int rows, int K, int H, int unit, const packed_t *at, const float *u,
                     int stride, const float *h, const float *known, float *out, float *saved) {
    float sums[MR * 4 * VL] __attribute__((aligned(64)));
    gate_sums(rows, K, H, unit, at, u, stride, known ? NULL : h, sums);
    for (int i = 0; i < rows; i++, out += H) {
        const float *own = sums + 4 * i * VL;
        vec r = LOAD(own), z = LOAD(own + VL), a = LOAD(own + 3 * VL);
        if (known) {
            const float *p = known + (size_t)i * 3 * H + 3 * unit;
            r += LOAD(p), z += LOAD(p + VL), a += LOAD(p + 2 * VL);
        }
        vgates(r, z, &r, &z);
        const vec n = vgate_tanh(LOAD(own + 2 * VL) + r * a);
        vec before = splat(0.0f);
        if (h) before = LOAD(h + (size_t)i * H + unit);
        STORE(out + unit, n + z * (before - n));
        if (saved) {
            STORE(saved + unit, r);
            STORE(saved + H + unit, z);
            STORE(saved + 2 * H + unit, n);
            STORE(saved + 3 * H + unit, splat(-0.5f / LOG2E) * a);
            saved += 4 * H;
        }
    }
}

/* One step of a block through all layers. u NULL: not wanted, `inner` [BLOCK,F] holds it; saved
 * NULL: not wanted; h NULL: zeros; known: the products of h, or NULL. */
static void forward_step(widths_t w, const packed_t *at, int rows, const float *x, const float *h,
                         const float *known, float *u, float *inner, float *out, float *saved,
                         float *y) {
    const int K = fed(w), H = w.H, wide = padded(w.A);
    const float *seen = x;
    if (w.F) {
        float *to = u ? u : inner;
        layer(rows, w.I, w.F, at->first, at->first_bias, x, w.I, to, w.F, 1);
        seen = to;
    }
    for (int unit = 0; unit < H; unit += VL)
        for (int row = 0; row < rows; row += MR)
            gru_tile(smaller(MR, rows - row), K, H, unit, at, seen + (size_t)row * K, K,
                     h ? h + (size_t)row * H : NULL, known ? known + (size_t)row * 3 * H : NULL,
                     out + (size_t)row * H, saved ? saved + (size_t)row * 4 * H : NULL);
    if (!w.A) return;
    float padded_y[MR * wide];
    for (int row = 0; row < rows; row += MR) {
        const int some = smaller(MR, rows - row);
        layer(some, H, wide, at->last, at->last_bias, out + (size_t)row * H, H, padded_y, wide, 0);
        for (int i = 0; i < some; i++)
            memcpy(y + (size_t)(row + i) * w.A, padded_y + i * wide, sizeof(float) * w.A);
    }
}

/* ---- backward ------------------------------------------------------------------------------- */

typedef struct {
    const float *hh, *ih, *last, *first;
} turned_t;

static turned_t turned_places(widths_t w, const float *p) {
    turned_t at;
    at.hh = p, p += (size_t)3 * w.H * w.H;
    at.ih = p, p += (size_t)3 * w.H * padded(fed(w));
    at.last = p, p += (size_t)w.H * w.A;
    at.first = p;
    return at;
}

/* Floats of the weights for gru_backward, and for turning W. */
int64_t gru_packed_back_size(int I, int F, int H, int A) {
    const int K = fed((widths_t){I, F, H, A});
    return 3LL * H * (H + padded(K) + K) + (int64_t)H * A + (int64_t)F * padded(I);
}

/* U with gates r, z, n and W with n, r, z: the orders in which the gates' gradients lie in a row. */
void gru_pack_back(int I, int F, int H, int A, const float *const *weights, float *packed) {
    const widths_t w = {I, F, H, A};
    const turned_t at = turned_places(w, packed);
    const int K = fed(w);
    float *turned = (float *)at.first + (size_t)F * padded(I);
    pack_chunks(3 * H, H, weights[W_HH], H, 1, (float *)at.hh);
    memcpy(turned, weights[W_IH] + (size_t)2 * H * K, sizeof(float) * H * K);
    memcpy(turned + (size_t)H * K, weights[W_IH], sizeof(float) * 2 * H * K);
    pack_chunks(3 * H, K, turned, K, 1, (float *)at.ih);
    if (A) pack_chunks(A, H, weights[LAST], H, 1, (float *)at.last);
    if (F) pack_chunks(F, I, weights[FIRST], I, 1, (float *)at.first);
}

/* The gates of one row and step: d = gradients of (n, r, z, c); carry becomes dh z. */
INLINE void backward_gates(int H, const float *dout, const float *h, const float *s, float *d,
                           float *carry) {
    const vec one = splat(1.0f);
    for (int u = 0; u < H; u += VL) {
        const vec r = LOAD(s + u), z = LOAD(s + H + u), n = LOAD(s + 2 * H + u);
        vec dh = LOAD(carry + u), before = splat(0.0f);
        if (dout) dh += LOAD(dout + u);
        if (h) before = LOAD(h + u);
        const vec dn = dh * (one - z) * (one - n * n);
        STORE(d + u, dn);
        STORE(d + H + u, dn * LOAD(s + 3 * H + u) * r * (one - r));
        STORE(d + 2 * H + u, dh * (before - n) * z * (one - z));
        STORE(d + 3 * H + u, dn * r);
        STORE(carry + u, dh * z);
    }
}

/* Rows with their gradients: of the gates, the input layer and the outputs. */
typedef struct {
    float *d, *h, *u, *du, *x, *after, *dy;
} held_t;

/* What a part sums, and the rows whose sums are still to be made. */
typedef struct {
    float *hh, *ih, *first, *last, *gate_bias, *first_bias, *last_bias; /* sums */
    held_t held;                                                        /* GATHER rows */
    float *carry, *dx;                                                  /* BLOCK rows */
    int rows;
} work_t;

static size_t sum_size(widths_t w) {
    const size_t gru = (size_t)3 * w.H * (w.H + padded(fed(w))) + 4 * w.H;
    return gru + (size_t)w.F * (padded(w.I) + 1) + (size_t)padded(w.A) * (w.H + 1);
}

static int64_t work_size(widths_t w) {
    const size_t row = 4 * w.H + 2 * w.H + padded(fed(w)) + w.F + padded(w.I) + w.A;
    return (int64_t)(sum_size(w) + GATHER * row + (size_t)BLOCK * (w.H + padded(w.I)));
}

int64_t gru_scratch_size(int I, int F, int H, int A, int parts) {
    return parts * work_size((widths_t){I, F, H, A});
}

static work_t work_places(widths_t w, float *p) {
    const int wide = padded(fed(w)), wide_x = padded(w.I), wide_y = padded(w.A);
    work_t at;
    at.hh = p, p += (size_t)3 * w.H * w.H;
    at.ih = p, p += (size_t)3 * w.H * wide;
    at.first = p, p += (size_t)w.F * wide_x;
    at.last = p, p += (size_t)wide_y * w.H;
    at.gate_bias = p, p += 4 * w.H;
    at.first_bias = p, p += w.F;
    at.last_bias = p, p += wide_y;
    at.held.d = p, p += (size_t)GATHER * 4 * w.H;
    at.held.h = p, p += (size_t)GATHER * w.H;
    at.held.after = p, p += (size_t)GATHER * w.H;
    at.held.u = p, p += (size_t)GATHER * wide;
    at.held.du = p, p += (size_t)GATHER * w.F;
    at.held.x = p, p += (size_t)GATHER * wide_x;
    at.held.dy = p, p += (size_t)GATHER * w.A;
    at.carry = p, p += (size_t)BLOCK * w.H;
    at.dx = p;
    at.rows = 0;
    return at;
}

/* The place of a part, its sums zero. */
static work_t clean_work(widths_t w, float *scratch, int part) {
    float *own = scratch + part * work_size(w);
    memset(own, 0, sizeof(float) * sum_size(w));
    return work_places(w, own);
}

/* Adds the gradients of some rows; `before`: their states before the step are not zero. */
static void sum_rows(widths_t w, const work_t *to, int rows, held_t of, int before) {
    const int H = w.H, wide = padded(fed(w)), wide_x = padded(w.I);
    if (before) outer_product(rows, 3 * H, of.d + H, 4 * H, of.h, H, H, to->hh);
    outer_product(rows, 3 * H, of.d, 4 * H, of.u, wide, wide, to->ih);
    column_sums(rows, 4 * H, of.d, to->gate_bias);
    if (w.F) {
        outer_product(rows, w.F, of.du, w.F, of.x, wide_x, wide_x, to->first);
        column_sums(rows, w.F, of.du, to->first_bias);
    }
    if (w.A) {
        outer_product(rows, w.A, of.dy, w.A, of.after, H, H, to->last);
        for (int row = 0; row < rows; row++)
            for (int i = 0; i < w.A; i++) to->last_bias[i] += of.dy[(size_t)row * w.A + i];
    }
}

static void sum_gathered(widths_t w, work_t *at, int before) {
    if (at->rows) sum_rows(w, at, at->rows, at->held, before);
    at->rows = 0;
}

/* One step of a block: dout NULL: zeros; h NULL: zeros; dx NULL: not wanted. */
typedef struct {
    int rows;
    const float *dy, *dout, *x, *u, *out, *saved, *h;
    float *dx;
} step_t;

/* From the gradients of the outputs and of the states, which `carry` holds, to those of the gates,
 * of x and, where `earlier` says so, of h in `carry`; adds the weights' gradients, or holds the
 * rows for later. */
static void backward_step(widths_t w, turned_t weights, const step_t *of, work_t *at, float *carry,
                          int earlier) {
    const int H = w.H, K = fed(w), wide = padded(K), wide_x = padded(w.I), rows = of->rows;
    const size_t held = at->rows;
    held_t here = {at->held.d + held * 4 * H, at->held.h + held * H, at->held.u + held * wide,
                   at->held.du + held * w.F,  at->held.x + held * wide_x,
                   at->held.after + held * H, at->held.dy + held * w.A};
    float *u = (float *)(w.F ? of->u : of->x);
    if (w.A) product(rows, w.A, H, weights.last, of->dy, w.A, carry, H, 1);
    for (int i = 0; i < rows; i++)
        backward_gates(H, of->dout ? of->dout + (size_t)i * H : NULL,
                       of->h ? of->h + (size_t)i * H : NULL, of->saved + (size_t)i * 4 * H,
                       here.d + (size_t)i * 4 * H, carry + (size_t)i * H);
    if (earlier) product(rows, 3 * H, H, weights.hh, here.d + H, 4 * H, carry, H, 1);
    if (w.F) {
        product(rows, 3 * H, wide, weights.ih, here.d, 4 * H, here.du, wide, 0);
        mask_rows(rows, w.F, u, here.du, w.F);
        copy_rows(rows, w.I, wide_x, of->x, here.x);
    }
    if (of->dx) {
        if (w.F)
            product(rows, w.F, wide_x, weights.first, here.du, w.F, at->dx, wide_x, 0);
        else
            product(rows, 3 * H, wide_x, weights.ih, here.d, 4 * H, at->dx, wide_x, 0);
        for (int i = 0; i < rows; i++)
            memcpy(of->dx + (size_t)i * w.I, at->dx + (size_t)i * wide_x, sizeof(float) * w.I);
    }
    const int direct = rows >= DIRECT && !held;
    if (direct && wide == K)
        here.u = u;
    else
        copy_rows(rows, K, wide, u, here.u);
    if (direct) { /* everything else as it lies, without a copy */
        here.h = (float *)of->h, here.after = (float *)of->out;
        if (w.A) here.dy = (float *)of->dy;
        sum_rows(w, at, rows, here, of->h != NULL);
        return;
    }
    if (of->h) copy_rows(rows, H, H, of->h, here.h);
    copy_rows(rows, H, H, of->out, here.after);
    if (w.A) copy_rows(rows, w.A, w.A, of->dy, here.dy);
    at->rows += rows;
}

typedef struct {
    const float *dy, *dout, *x, *u, *out, *saved, *h0; /* dout NULL: zeros; h0 likewise */
    float *dx, *dh0;                                   /* NULL: not wanted */
} rows_t;

/* How many of a step's rows have a gradient, rows before those that have none: `later` do at the
 * step after it. The last step of an episode often has none. */
static int reached(widths_t w, const float *dy, const float *dout, int rows, int later) {
    if (dout) return rows;
    for (int row = rows; row > later; row--)
        for (int i = 0; i < w.A; i++)
            if (dy[(size_t)(row - 1) * w.A + i] != 0.0f) return row;
    return later;
}

/* All steps of one block, the last one first. x, dx, h0 and dh0 have all packed rows, the others
 * those that are kept. */
static void backward_block(widths_t w, turned_t weights, const rows_t *of, work_t *at, block_t b) {
    const int H = w.H;
    float *carry = of->dh0 ? of->dh0 + b.from[0] * H : at->carry; /* gradient of h */
    memset(carry, 0, sizeof(float) * b.rows[0] * H);
    for (int t = b.T - 1, later = 0; t >= 0; t--) {
        const int64_t now = b.at[t], from = b.from[t];
        const float *dy = of->dy + now * w.A, *dout = of->dout ? of->dout + now * H : NULL;
        const int rows = reached(w, dy, dout, (int)b.rows[t], later);
        const float *h = t ? of->out + b.at[t - 1] * H : of->h0 ? of->h0 + from * H : NULL;
        const step_t step = {rows,
                             dy,
                             dout,
                             of->x + from * w.I,
                             of->u + now * w.F,
                             of->out + now * H,
                             of->saved + now * 4 * H,
                             h,
                             of->dx ? of->dx + from * w.I : NULL};
        if (of->dx)
            memset(step.dx + (size_t)rows * w.I, 0, sizeof(float) * (b.rows[t] - rows) * w.I);
        later = rows;
        if (!h || rows >= DIRECT || at->rows + rows > GATHER) sum_gathered(w, at, 1);
        if (rows) backward_step(w, weights, &step, at, carry, t || of->dh0);
        if (!h) sum_gathered(w, at, 0);
    }
}

/* The sums of all parts as the gradients of the weights. */
static void gather_sums(widths_t w, int parts, float *scratch, float *const *grads) {
    const int H = w.H, K = fed(w), wide = padded(K);
    const size_t each = work_size(w);
    for (int part = 1; part < parts; part++)
        for (size_t i = 0; i < sum_size(w); i++) scratch[i] += scratch[part * each + i];
    const work_t sums = work_places(w, scratch);
    memcpy(grads[W_HH], sums.hh, sizeof(float) * 3 * H * H);
    for (int row = 0; row < 3 * H; row++) { /* gates n, r, z back to r, z, n */
        memcpy(grads[W_IH] + (size_t)row * K, sums.ih + (size_t)((row + H) % (3 * H)) * wide,
               sizeof(float) * K);
        grads[B_IH][row] = sums.gate_bias[(row + H) % (3 * H)];
        grads[B_HH][row] = sums.gate_bias[row + H];
    }
    for (int row = 0; row < w.F; row++)
        memcpy(grads[FIRST] + (size_t)row * w.I, sums.first + (size_t)row * padded(w.I),
               sizeof(float) * w.I);
    if (w.F) memcpy(grads[FIRST_BIAS], sums.first_bias, sizeof(float) * w.F);
    if (w.A) memcpy(grads[LAST], sums.last, sizeof(float) * w.A * H);
    if (w.A) memcpy(grads[LAST_BIAS], sums.last_bias, sizeof(float) * w.A);
}

#endif
