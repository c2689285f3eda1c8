/* One GRU layer over time, for small hidden sizes on a CPU.
 *
 * The caller multiplies inputs by W_ih for all steps at once (a large product that the BLAS does
 * well); this file does what is sequential: h @ W_hh and the gates, a few rows at a time through
 * all steps, so that nothing is synchronised between steps. Gate order is r, z, n, as in torch:
 *
 *   r = s(gi_r + h W_r + b_r)   z = s(gi_z + h W_z + b_z)   a = h W_n + b_n
 *   n = tanh(gi_n + r a)        h' = n + z (h - n)
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vector.h"

int gru_lanes(void) { return VL; }

/* One step of M rows (a compile-time constant) and VL units. The panel holds the weights of these
 * units, [H][3][VL]; rows lie 3H, H, H and 4H floats apart in gi, h, out and saved. */
INLINE void forward_tile(const int M, int H, int unit, const float *restrict panel,
                         const float *restrict bias, const float *restrict gi,
                         const float *restrict h, float *restrict out, float *restrict saved) {
    vec r[M], z[M], a[M];
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) {
        r[i] = LOAD(bias + unit);
        z[i] = LOAD(bias + H + unit);
        a[i] = LOAD(bias + 2 * H + unit);
    }
    const float *w = panel;
    const float *x = h;
    for (int k = 0; k < H; k++, w += 3 * VL, x++) {
        vec wr = LOAD(w), wz = LOAD(w + VL), wn = LOAD(w + 2 * VL);
        PIN(wr);
        PIN(wz);
        PIN(wn);
#pragma GCC unroll 8
        for (int i = 0; i < M; i++) {
            const vec v = splat(x[i * H]);
            r[i] += v * wr;
            z[i] += v * wz;
            a[i] += v * wn;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < M; i++, gi += 3 * H, h += H, out += H) {
        vec rr, zz;
        vsigmoid2(r[i] + LOAD(gi + unit), z[i] + LOAD(gi + H + unit), &rr, &zz);
        const vec nn = vtanh(LOAD(gi + 2 * H + unit) + rr * a[i]);
        STORE(out + unit, nn + zz * (LOAD(h + unit) - nn));
        if (saved) {
            STORE(saved + unit, rr);
            STORE(saved + H + unit, zz);
            STORE(saved + 2 * H + unit, nn);
            STORE(saved + 3 * H + unit, a[i]);
            saved += 4 * H;
        }
    }
}

/* Rows are packed: step t has sizes[t] rows (never more than step t-1) and begins at row
 * offsets[t]; P is the sum of all sizes, R = sizes[0].
 * gi [P,3H], h0 [R,H], panels [H/VL][H][3][VL], bias [3H] -> out [P,H]; saved [P,4H] or NULL.
 * A block of rows goes through all steps; a panel serves the whole block while it is hot. */
void gru_forward(int T, const int64_t *sizes, const int64_t *offsets, int H, int threads,
                 const float *gi, const float *h0, const float *panels, const float *bias,
                 float *out, float *saved) {
    const int R = (int)sizes[0];
    const int blocks = (R + BLOCK - 1) / BLOCK;
    (void)threads;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(dynamic)
    for (int block = 0; block < blocks; block++) {
        const int first = block * BLOCK;
        for (int t = 0; t < T && first < sizes[t]; t++) {
            const int last = first + BLOCK < sizes[t] ? first + BLOCK : (int)sizes[t];
            const size_t at = offsets[t];
            const float *h = t ? out + offsets[t - 1] * H : h0;
            for (int unit = 0; unit < H; unit += VL) {
                const float *panel = panels + (size_t)unit * 3 * H;
                int row = first;
                for (; row + MR <= last; row += MR)
                    forward_tile(MR, H, unit, panel, bias, gi + (at + row) * 3 * H,
                                 h + (size_t)row * H, out + (at + row) * H,
                                 saved ? saved + (at + row) * 4 * H : NULL);
                for (; row < last; row++)
                    forward_tile(1, H, unit, panel, bias, gi + (at + row) * 3 * H,
                                 h + (size_t)row * H, out + (at + row) * H,
                                 saved ? saved + (at + row) * 4 * H : NULL);
            }
        }
    }
}

/* carry += d @ W for M rows and 2 VL units; d [M][3H], panel [3H][2 VL]. */
INLINE void backward_tile(const int M, int H, int unit, const float *restrict panel,
                          const float *restrict d, float *restrict carry) {
    vec c0[M], c1[M];
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) {
        c0[i] = LOAD(carry + i * H + unit);
        c1[i] = LOAD(carry + i * H + unit + VL);
    }
    for (int k = 0; k < 3 * H; k++, panel += 2 * VL, d++) {
        vec w0 = LOAD(panel), w1 = LOAD(panel + VL);
        PIN(w0);
        PIN(w1);
#pragma GCC unroll 8
        for (int i = 0; i < M; i++) {
            const vec v = splat(d[i * 3 * H]);
            c0[i] += v * w0;
            c1[i] += v * w1;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) {
        STORE(carry + i * H + unit, c0[i]);
        STORE(carry + i * H + unit + VL, c1[i]);
    }
}

/* The gates of one row and step: gradients into g [3H], da [H], d [3H]; carry becomes dh * z. */
INLINE void backward_gates(int H, const float *dout, const float *h, const float *s, float *g,
                           float *da, float *d, float *carry) {
    const vec one = splat(1.0f);
    for (int u = 0; u < H; u += VL) {
        const vec r = LOAD(s + u), z = LOAD(s + H + u), n = LOAD(s + 2 * H + u);
        const vec dh = LOAD(dout + u) + LOAD(carry + u);
        const vec dn = dh * (one - z) * (one - n * n);
        const vec dz = dh * (LOAD(h + u) - n) * z * (one - z);
        const vec dr = dn * LOAD(s + 3 * H + u) * r * (one - r);
        const vec dan = dn * r;
        STORE(g + u, dr);
        STORE(g + H + u, dz);
        STORE(g + 2 * H + u, dn);
        STORE(da + u, dan);
        STORE(d + u, dr);
        STORE(d + H + u, dz);
        STORE(d + 2 * H + u, dan);
        STORE(carry + u, dh * z);
    }
}

/* dout [P,H] -> dgi [P,3H], da [P,H] (gradient of a), dh0 [R,H]. panels hold W_hh as
 * [H/2VL][3H][2VL]; scratch holds 3H floats for each of the R rows. */
void gru_backward(int T, const int64_t *sizes, const int64_t *offsets, int H, int threads,
                  const float *dout, const float *h0, const float *panels, const float *out,
                  const float *saved, float *dgi, float *da, float *dh0, float *scratch) {
    const int R = (int)sizes[0];
    const int blocks = (R + BLOCK - 1) / BLOCK;
    (void)threads;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(dynamic)
    for (int block = 0; block < blocks; block++) {
        const int first = block * BLOCK;
        const int rows = first + BLOCK < R ? BLOCK : R - first;
        float *carry = dh0; /* the gradient of h, step by step backwards, ends as that of h0 */
        memset(carry + (size_t)first * H, 0, sizeof(float) * rows * H);
        for (int t = T - 1; t >= 0; t--) {
            const int last = first + BLOCK < sizes[t] ? first + BLOCK : (int)sizes[t];
            for (int row = first; row < last; row++) {
                const size_t at = offsets[t] + row;
                const float *h = t ? out + (offsets[t - 1] + row) * H : h0 + (size_t)row * H;
                backward_gates(H, dout + at * H, h, saved + at * 4 * H, dgi + at * 3 * H,
                               da + at * H, scratch + (size_t)row * 3 * H, carry + (size_t)row * H);
            }
            for (int unit = 0; unit < H; unit += 2 * VL) {
                const float *panel = panels + (size_t)unit * 3 * H;
                int row = first;
                for (; row + MR <= last; row += MR)
                    backward_tile(MR, H, unit, panel, scratch + (size_t)row * 3 * H,
                                  carry + (size_t)row * H);
                for (; row < last; row++)
                    backward_tile(1, H, unit, panel, scratch + (size_t)row * 3 * H,
                                  carry + (size_t)row * H);
            }
        }
    }
}
