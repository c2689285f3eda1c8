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
 * registers. Rows are packed: step t has sizes[t] rows (never more than step t-1) and begins at
 * row offsets[t]; P is the sum of all sizes, R = sizes[0].
 *
 * Which part of the rows a thread takes depends only on R and `parts`, and every part sums its own
 * weight gradients, so a result does not depend on how threads are scheduled.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tiles.h"

#define GATHER 64 /* rows whose weight gradient is summed at once */

/* Widths: inputs x, the GRU's inputs u, hidden state, outputs y. F = 0: no layer before it, A = 0:
 * none after it. Weights: A, a, W [3H,F or I], U [3H,H], their biases, B, b. */
typedef struct {
    int I, F, H, A;
} widths_t;
enum { FIRST, FIRST_BIAS, W_IH, W_HH, B_IH, B_HH, LAST, LAST_BIAS, WEIGHTS };

int gru_lanes(void) { return VL; }

INLINE int fed(widths_t w) { return w.F ? w.F : w.I; } /* width of u */

/* Whether `sizes` never grow, begin with R and add up to P. */
int gru_packed_rows(int T, const int64_t *sizes, int64_t P, int64_t R) {
    int64_t sum = 0;
    for (int t = 0; t < T; t++) {
        if (sizes[t] < 1 || (t && sizes[t] > sizes[t - 1])) return 0;
        sum += sizes[t];
    }
    return T > 0 && sizes[0] == R && sum == P;
}

static void add_up(int T, const int64_t *sizes, int64_t *offsets) {
    int64_t sum = 0;
    for (int t = 0; t < T; t++) offsets[t] = sum, sum += sizes[t];
}

/* h0, or NULL where it is zeros: a product less. */
static const float *unless_zeros(int64_t count, const float *h0) {
    for (int64_t i = 0; i < count; i++)
        if (h0[i] != 0.0f) return h0;
    return NULL;
}

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

/* The gates as [H/VL] panels [F+H][3][VL], their biases as [H/VL] pieces b_r, b_z, b_n, c_n. */
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
        float *to = (float *)at.gates + (size_t)(unit / VL) * 3 * VL * (K + H);
        to += gate * VL + unit % VL;
        for (int k = 0; k < K; k++, to += 3 * VL) *to = weights[W_IH][(size_t)row * K + k];
        for (int k = 0; k < H; k++, to += 3 * VL) *to = weights[W_HH][(size_t)row * H + k];
        float *bias = (float *)at.biases + (size_t)unit / VL * 4 * VL + unit % VL;
        bias[gate * VL] = weights[B_IH][row] + (gate < 2 ? weights[B_HH][row] : 0.0f);
        if (gate == 2) bias[3 * VL] = weights[B_HH][row];
    }
    if (A) {
        pack_chunks(H, A, weights[LAST], 1, H, (float *)at.last);
        memset((float *)at.last_bias, 0, sizeof(float) * padded(A));
        memcpy((float *)at.last_bias, weights[LAST_BIAS], sizeof(float) * A);
    }
}

/* ---- forward -------------------------------------------------------------------------------- */

/* Sums of the gates of M rows and VL units: r, z, W_n u and U_n h, [M][4][VL]. */
INLINE void gates_tile(const int M, int K, int H, const float *restrict panel,
                       const float *restrict bias, const float *restrict u, int stride,
                       const float *restrict h, float *restrict sums) {
    vec c[MR][3];
#pragma GCC unroll 8
    for (int i = 0; i < M; i++)
#pragma GCC unroll 3
        for (int j = 0; j < 3; j++) c[i][j] = LOAD(bias + j * VL);
    for (int part = 0; part < 2; part++) {
        const float *d = part ? h : u;
        const int apart = part ? H : stride;
        for (int k = part && !h ? H : 0; k < (part ? H : K); k++, panel += 3 * VL, d++) {
            vec b[3];
#pragma GCC unroll 3
            for (int j = 0; j < 3; j++) {
                b[j] = LOAD(panel + j * VL);
                PIN(b[j]);
            }
#pragma GCC unroll 8
            for (int i = 0; i < M; i++) {
                const vec v = splat(d[(size_t)i * apart]);
#pragma GCC unroll 3
                for (int j = 0; j < 3; j++) c[i][j] += v * b[j];
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < M; i++) {
            STORE(sums + (4 * i + 2 + part) * VL, c[i][2]);
            c[i][2] = LOAD(bias + 3 * VL);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < M; i++)
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) STORE(sums + (4 * i + j) * VL, c[i][j]);
}

typedef void (*gates)(int K, int H, const float *panel, const float *bias, const float *u,
                      int stride, const float *h, float *sums);
#define GATES(M)                                                                                   \
    ALONE void gates_##M(int K, int H, const float *panel, const float *bias, const float *u,      \
                         int stride, const float *h, float *sums) {                                \
        gates_tile(M, K, H, panel, bias, u, stride, h, sums);                                      \
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

/* One step of `rows` (at most MR) rows and VL units; h NULL: a state of zeros. */
static void gru_tile(int rows, int K, int H, int unit, const packed_t *at, const float *u,
                     int stride, const float *h, float *out, float *saved) {
    float sums[MR * 4 * VL] __attribute__((aligned(64)));
    ROWS[rows](K, H, at->gates + (size_t)unit * 3 * (K + H), at->biases + (size_t)unit * 4, u,
               stride, h, sums);
    for (int i = 0; i < rows; i++, out += H) {
        const float *own = sums + 4 * i * VL;
        const vec a = LOAD(own + 3 * VL);
        vec r, z;
        vsigmoid2(LOAD(own), LOAD(own + VL), &r, &z);
        const vec n = vtanh(LOAD(own + 2 * VL) + r * a);
        vec before = splat(0.0f);
        if (h) before = LOAD(h + (size_t)i * H + unit);
        STORE(out + unit, n + z * (before - n));
        if (saved) {
            STORE(saved + unit, r);
            STORE(saved + H + unit, z);
            STORE(saved + 2 * H + unit, n);
            STORE(saved + 3 * H + unit, a);
            saved += 4 * H;
        }
    }
}

/* Rows of a block: enough blocks for every part to have two, as later blocks have shorter rows. */
static int block_rows(int R, int parts) {
    int rows = R / (2 * parts) / MR * MR;
    return rows < 2 * MR ? 2 * MR : rows > BLOCK ? BLOCK : rows;
}

/* The n-th block of a part: there and back again, so that all parts get long and short rows. */
static int block_of(int part, int parts, int n) {
    return n * parts + (n % 2 ? parts - 1 - part : part);
}

/* x [P,I], h0 [R,H], packed weights -> out [P,H], y [P,A]; u [P,F] and saved [P,4H]
 * where the backward pass will follow, else NULL. */
void gru_forward(int T, const int64_t *sizes, int I, int F, int H, int A, int parts, const float *x,
                 const float *h0, const float *packed, float *u, float *out, float *saved,
                 float *y) {
    const widths_t w = {I, F, H, A};
    int64_t offsets[T];
    add_up(T, sizes, offsets);
    h0 = unless_zeros(sizes[0] * H, h0);
    const packed_t at = places(w, packed);
    const int R = (int)sizes[0], size = block_rows(R, parts), K = fed(w);
    const int blocks = (R + size - 1) / size;
#pragma omp parallel for num_threads(parts) if (parts > 1) schedule(static, 1)
    for (int part = 0; part < parts; part++) {
        float inner[F ? BLOCK * F : 1], outer[A ? MR * padded(A) : 1];
        for (int n = 0; n * parts < blocks; n++) {
            const int first = block_of(part, parts, n) * size;
            for (int t = 0; t < T && first < sizes[t]; t++) {
                const int rows = smaller(size, (int)sizes[t] - first);
                const size_t now = offsets[t] + first;
                const float *h = t ? out + (offsets[t - 1] + first) * H : h0;
                if (!t && h0) h += (size_t)first * H;
                const float *seen = x + now * I;
                if (F) {
                    float *to = u ? u + now * F : inner;
                    layer(rows, I, F, at.first, at.first_bias, seen, I, to, F, 1);
                    seen = to;
                }
                for (int unit = 0; unit < H; unit += VL)
                    for (int row = 0; row < rows; row += MR)
                        gru_tile(smaller(MR, rows - row), K, H, unit, &at, seen + (size_t)row * K,
                                 K, h ? h + (size_t)row * H : NULL, out + (now + row) * H,
                                 saved ? saved + (now + row) * 4 * H : NULL);
                for (int row = 0; A && row < rows; row += MR) {
                    const int some = smaller(MR, rows - row), wide = padded(A);
                    layer(some, H, wide, at.last, at.last_bias, out + (now + row) * H, H, outer,
                          wide, 0);
                    for (int i = 0; i < some; i++)
                        memcpy(y + (now + row + i) * A, outer + i * wide, sizeof(float) * A);
                }
            }
        }
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

/* What a part sums, and the rows whose sums are still to be made. */
typedef struct {
    float *hh, *ih, *first, *last, *gate_bias, *first_bias, *last_bias; /* sums */
    float *d, *h, *u, *du, *x, *after, *dy;                             /* GATHER rows of each */
    float *carry, *dx;                                                  /* BLOCK rows */
    int rows;
} work_t;

static size_t sum_size(widths_t w) {
    const size_t gru = (size_t)3 * w.H * (w.H + padded(fed(w))) + 4 * w.H;
    return gru + (size_t)w.F * (padded(w.I) + 1) + (size_t)padded(w.A) * (w.H + 1);
}

static int64_t work_size(widths_t w) {
    const size_t row = 4 * w.H + 2 * w.H + padded(fed(w)) + w.F + padded(w.I) + padded(w.A);
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
    at.d = p, p += (size_t)GATHER * 4 * w.H;
    at.h = p, p += (size_t)GATHER * w.H;
    at.after = p, p += (size_t)GATHER * w.H;
    at.u = p, p += (size_t)GATHER * wide;
    at.du = p, p += (size_t)GATHER * w.F;
    at.x = p, p += (size_t)GATHER * wide_x;
    at.dy = p, p += (size_t)GATHER * wide_y;
    at.carry = p, p += (size_t)BLOCK * w.H;
    at.dx = p;
    at.rows = 0;
    return at;
}

/* Sums the gradients of the gathered rows; `before`: their states before the step are not zero. */
static void sum_gathered(widths_t w, work_t *at, int before) {
    const int H = w.H, rows = at->rows, wide = padded(fed(w));
    if (before) outer_product(rows, 3 * H, at->d + H, 4 * H, at->h, H, H, at->hh);
    outer_product(rows, 3 * H, at->d, 4 * H, at->u, wide, wide, at->ih);
    column_sums(rows, 4 * H, at->d, at->gate_bias);
    if (w.F) {
        outer_product(rows, w.F, at->du, w.F, at->x, padded(w.I), padded(w.I), at->first);
        column_sums(rows, w.F, at->du, at->first_bias);
    }
    if (w.A) {
        outer_product(rows, w.A, at->dy, padded(w.A), at->after, H, H, at->last);
        column_sums(rows, padded(w.A), at->dy, at->last_bias);
    }
    at->rows = 0;
}

typedef struct {
    const float *dy, *dout, *x, *u, *out, *saved, *h0; /* dout NULL: zeros */
    float *dx, *dh0;                                   /* NULL: not wanted */
} rows_t;

/* Step t of a block whose rows begin at `now`; h: states before it, NULL: zeros. `earlier`: the
 * gradient of h is wanted. */
static void backward_step(widths_t w, turned_t weights, const rows_t *of, work_t *at, int rows,
                          size_t now, const float *h, float *carry, int earlier) {
    const int H = w.H, K = fed(w), wide = padded(K), wide_x = padded(w.I);
    float *d = at->d + (size_t)at->rows * 4 * H, *du = at->du + (size_t)at->rows * w.F;
    if (w.A) {
        product(rows, w.A, H, weights.last, of->dy + now * w.A, w.A, carry, H, 1);
        copy_rows(rows, w.A, padded(w.A), of->dy + now * w.A,
                  at->dy + (size_t)at->rows * padded(w.A));
        copy_rows(rows, H, H, of->out + now * H, at->after + (size_t)at->rows * H);
    }
    for (int i = 0; i < rows; i++)
        backward_gates(H, of->dout ? of->dout + (now + i) * H : NULL,
                       h ? h + (size_t)i * H : NULL, of->saved + (now + i) * 4 * H,
                       d + (size_t)i * 4 * H, carry + (size_t)i * H);
    if (earlier) product(rows, 3 * H, H, weights.hh, d + H, 4 * H, carry, H, 1);
    if (h) copy_rows(rows, H, H, h, at->h + (size_t)at->rows * H);
    float *u = at->u + (size_t)at->rows * wide;
    copy_rows(rows, K, wide, (w.F ? of->u : of->x) + now * K, u);
    if (w.F) {
        product(rows, 3 * H, wide, weights.ih, d, 4 * H, du, wide, 0);
        mask_rows(rows, w.F, u, du, w.F);
        copy_rows(rows, w.I, wide_x, of->x + now * w.I, at->x + (size_t)at->rows * wide_x);
    }
    if (of->dx) {
        if (w.F)
            product(rows, w.F, wide_x, weights.first, du, w.F, at->dx, wide_x, 0);
        else
            product(rows, 3 * H, wide_x, weights.ih, d, 4 * H, at->dx, wide_x, 0);
        for (int i = 0; i < rows; i++)
            memcpy(of->dx + (now + i) * w.I, at->dx + (size_t)i * wide_x, sizeof(float) * w.I);
    }
    at->rows += rows;
}

/* How many rows of step t have a gradient, sequences before those that have none: `later` do at
 * step t + 1. The last step of an episode often has none. */
static int reached(widths_t w, const rows_t *of, size_t first, int rows, int later) {
    if (of->dout) return rows;
    for (int row = rows; row > later; row--)
        for (int i = 0; i < w.A; i++)
            if (of->dy[(first + row - 1) * w.A + i] != 0.0f) return row;
    return later;
}

/* All steps of one block, the last one first. */
static void backward_block(int T, const int64_t *sizes, const int64_t *offsets, widths_t w,
                           turned_t weights, const rows_t *of, work_t *at, int first, int size) {
    const int H = w.H, all = smaller(size, (int)sizes[0] - first);
    float *carry = of->dh0 ? of->dh0 + (size_t)first * H : at->carry; /* gradient of h */
    memset(carry, 0, sizeof(float) * all * H);
    int later = 0;
    for (int t = T - 1; t >= 0; t--) {
        const int there = smaller(size, (int)sizes[t] - first);
        if (there <= 0) continue;
        const size_t now = offsets[t] + first;
        const int rows = reached(w, of, now, there, later);
        if (of->dx && rows < there)
            memset(of->dx + (now + rows) * w.I, 0, sizeof(float) * (there - rows) * w.I);
        later = rows;
        const float *h = t ? of->out + (offsets[t - 1] + first) * H
                           : of->h0 ? of->h0 + (size_t)first * H : NULL;
        if (!h || at->rows + rows > GATHER) sum_gathered(w, at, 1);
        if (rows)
            backward_step(w, weights, of, at, rows, now, h, carry, t || of->dh0);
        if (!h) sum_gathered(w, at, 0);
    }
}

/* dy [P,A], dout [P,H] or NULL (zeros) -> dx [P,I] and dh0 [R,H] (or NULL) and `grads`, the
 * gradients of the weights. */
void gru_backward(int T, const int64_t *sizes, int I, int F, int H, int A, int parts,
                  const float *dy, const float *dout, const float *x, const float *h0,
                  const float *packed, const float *u, const float *out, const float *saved,
                  float *dx, float *dh0, float *const *grads, float *scratch) {
    const widths_t w = {I, F, H, A};
    int64_t offsets[T];
    add_up(T, sizes, offsets);
    h0 = unless_zeros(sizes[0] * H, h0);
    const turned_t weights = turned_places(w, packed);
    const rows_t of = {dy, dout, x, u, out, saved, h0, dx, dh0};
    const int R = (int)sizes[0], size = block_rows(R, parts), K = fed(w), wide = padded(K);
    const int blocks = (R + size - 1) / size;
    const size_t each = work_size(w);
#pragma omp parallel for num_threads(parts) if (parts > 1) schedule(static, 1)
    for (int part = 0; part < parts; part++) {
        work_t at = work_places(w, scratch + part * each);
        memset(scratch + part * each, 0, sizeof(float) * sum_size(w));
        for (int n = 0; n * parts < blocks; n++) {
            const int first = block_of(part, parts, n) * size;
            if (first < R)
                backward_block(T, sizes, offsets, w, weights, &of, &at, first, size);
        }
        sum_gathered(w, &at, 1);
    }
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
    for (int row = 0; row < F; row++)
        memcpy(grads[FIRST] + (size_t)row * I, sums.first + (size_t)row * padded(I),
               sizeof(float) * I);
    if (F) memcpy(grads[FIRST_BIAS], sums.first_bias, sizeof(float) * F);
    if (A) memcpy(grads[LAST], sums.last, sizeof(float) * A * H);
    if (A) memcpy(grads[LAST_BIAS], sums.last_bias, sizeof(float) * A);
}
