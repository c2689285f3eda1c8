/* One GRU layer over time, forward and backward, for small hidden sizes on a CPU.
 *
 * Gate order is r, z, n, as in torch; x is the input of a step and h the state before it:
 *
 *   r = s(W_r x + U_r h + b_r)   z = s(W_z x + U_z h + b_z)   a = U_n h + c_n
 *   n = tanh(W_n x + b_n + r a)  h' = n + z (h - n)
 *
 * A block of rows goes through all steps on one thread, so nothing is synchronised between steps.
 * Products are made in tiles of MR rows whose sums stay in registers until the gates have been
 * applied. Rows are packed: step t has sizes[t] rows (never more than step t-1) and begins at row
 * offsets[t]; P is the sum of all sizes, R = sizes[0].
 *
 * Which part of the rows a thread takes depends only on R and `parts`, and every part sums its own
 * weight gradients, so a result does not depend on how threads are scheduled.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tiles.h"

#define GATHER 64 /* rows whose weight gradient is summed at once */

int gru_lanes(void) { return VL; }

/* Floats of the weights as the kernels read them: see gru_pack. */
int64_t gru_packed_size(int I, int H) { return 3LL * H * (I + H) + 4LL * H; }

/* w_ih [3H,I], w_hh [3H,H], b_ih, b_hh [3H] -> [H/VL] panels [I+H][3][VL], then the biases
 * b_r + c_r, b_z + c_z, b_n, c_n. */
void gru_pack(int I, int H, const float *w_ih, const float *w_hh, const float *b_ih,
              const float *b_hh, float *packed) {
    float *p = packed;
    for (int unit = 0; unit < H; unit += VL)
        for (int k = 0; k < I + H; k++)
            for (int gate = 0; gate < 3; gate++)
                for (int i = 0; i < VL; i++) {
                    const size_t row = (size_t)gate * H + unit + i;
                    *p++ = k < I ? w_ih[row * I + k] : w_hh[row * H + k - I];
                }
    for (int i = 0; i < H; i++) {
        p[i] = b_ih[i] + b_hh[i];
        p[H + i] = b_ih[H + i] + b_hh[H + i];
        p[2 * H + i] = b_ih[2 * H + i];
        p[3 * H + i] = b_hh[2 * H + i];
    }
}

/* One step of `rows` (at most MR) rows and VL units: x [I], h, out [H] and saved [4H] a row. */
static void forward_tile(int rows, int I, int H, int unit, const float *panel, const float *bias,
                         const float *x, const float *h, float *out, float *saved) {
    float sums[MR * 3 * VL], input[MR * VL]; /* r, z and W_n x, then r, z and a */
    for (int i = 0; i < rows; i++)
        for (int gate = 0; gate < 3; gate++)
            STORE(sums + (3 * i + gate) * VL, LOAD(bias + gate * H + unit));
    TILES[rows][3](I, panel, x, I, sums, 3 * VL, 1);
    for (int i = 0; i < rows; i++) {
        STORE(input + i * VL, LOAD(sums + (3 * i + 2) * VL));
        STORE(sums + (3 * i + 2) * VL, LOAD(bias + 3 * H + unit));
    }
    TILES[rows][3](H, panel + (size_t)I * 3 * VL, h, H, sums, 3 * VL, 1);
    for (int i = 0; i < rows; i++, h += H, out += H) {
        const float *own = sums + 3 * i * VL;
        const vec a = LOAD(own + 2 * VL);
        vec r, z;
        vsigmoid2(LOAD(own), LOAD(own + VL), &r, &z);
        const vec n = vtanh(LOAD(input + i * VL) + r * a);
        STORE(out + unit, n + z * (LOAD(h + unit) - n));
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

/* x [P,I], h0 [R,H], packed weights -> out [P,H]; saved [P,4H] or NULL. */
void gru_forward(int T, const int64_t *sizes, const int64_t *offsets, int I, int H, int parts,
                 const float *x, const float *h0, const float *packed, float *out, float *saved) {
    const int R = (int)sizes[0], size = block_rows(R, parts);
    const int blocks = (R + size - 1) / size;
    const float *bias = packed + (size_t)3 * H * (I + H);
#pragma omp parallel for num_threads(parts) if (parts > 1) schedule(static, 1)
    for (int part = 0; part < parts; part++)
        for (int n = 0; n * parts < blocks; n++) {
            const int first = block_of(part, parts, n) * size;
            for (int t = 0; t < T && first < sizes[t]; t++) {
                const int last = smaller(first + size, (int)sizes[t]);
                const size_t at = offsets[t];
                const float *h = t ? out + offsets[t - 1] * H : h0;
                for (int unit = 0; unit < H; unit += VL) {
                    const float *panel = packed + (size_t)unit * 3 * (I + H);
                    for (int row = first; row < last; row += MR)
                        forward_tile(smaller(MR, last - row), I, H, unit, panel, bias,
                                     x + (at + row) * I, h + (size_t)row * H,
                                     out + (at + row) * H,
                                     saved ? saved + (at + row) * 4 * H : NULL);
                }
            }
        }
}

/* Floats of the weights for gru_backward, and for turning them. */
int64_t gru_packed_back_size(int I, int H) { return 3LL * H * (padded(I) + H + I); }

/* W_hh in chunks of columns [3H][wide], gates r, z, n; then W_ih likewise, gates n, r, z: the
 * orders in which the gradients of the gates lie in a row of `d` below. */
void gru_pack_back(int I, int H, const float *w_ih, const float *w_hh, float *packed) {
    float *p = pack_chunks(3 * H, H, w_hh, H, 1, packed);
    float *turned = packed + (size_t)3 * H * (H + padded(I));
    memcpy(turned, w_ih + (size_t)2 * H * I, sizeof(float) * H * I);
    memcpy(turned + (size_t)H * I, w_ih, sizeof(float) * 2 * H * I);
    pack_chunks(3 * H, I, turned, I, 1, p);
}

/* The gates of one row and step: d = gradients of (n, r, z, a); carry becomes dh * z. */
INLINE void backward_gates(int H, const float *dout, const float *h, const float *s, float *d,
                           float *carry, float *bias) {
    const vec one = splat(1.0f);
    for (int u = 0; u < H; u += VL) {
        const vec r = LOAD(s + u), z = LOAD(s + H + u), n = LOAD(s + 2 * H + u);
        const vec dh = LOAD(dout + u) + LOAD(carry + u);
        const vec dn = dh * (one - z) * (one - n * n);
        const vec dz = dh * (LOAD(h + u) - n) * z * (one - z);
        const vec dr = dn * LOAD(s + 3 * H + u) * r * (one - r);
        const vec da = dn * r;
        STORE(d + u, dn);
        STORE(d + H + u, dr);
        STORE(d + 2 * H + u, dz);
        STORE(d + 3 * H + u, da);
        STORE(carry + u, dh * z);
        STORE(bias + u, LOAD(bias + u) + dn);
        STORE(bias + H + u, LOAD(bias + H + u) + dr);
        STORE(bias + 2 * H + u, LOAD(bias + 2 * H + u) + dz);
        STORE(bias + 3 * H + u, LOAD(bias + 3 * H + u) + da);
    }
}

/* Floats a part sums its gradients in, and those it works in. */
static size_t sum_size(int I, int H) { return (size_t)3 * H * (padded(I) + H) + 4 * H; }
int64_t gru_scratch_size(int I, int H, int parts) {
    const size_t work = (size_t)GATHER * (4 * H + H + padded(I)) + (size_t)BLOCK * padded(I);
    return (int64_t)(parts * (sum_size(I, H) + work));
}

/* dout [P,H] -> dx [P,I] (or NULL), dh0 [R,H], gradients of w_ih, w_hh, b_ih, b_hh. */
void gru_backward(int T, const int64_t *sizes, const int64_t *offsets, int I, int H, int parts,
                  const float *dout, const float *x, const float *h0, const float *packed,
                  const float *out, const float *saved, float *dx, float *dh0, float *dw_ih,
                  float *dw_hh, float *db_ih, float *db_hh, float *scratch) {
    const int R = (int)sizes[0], size = block_rows(R, parts);
    const int blocks = (R + size - 1) / size, wide = padded(I);
    const size_t each = gru_scratch_size(I, H, 1);
    const float *packed_ih = packed + (size_t)3 * H * H;
#pragma omp parallel for num_threads(parts) if (parts > 1) schedule(static, 1)
    for (int part = 0; part < parts; part++) {
        float *sum_hh = scratch + part * each, *sum_ih = sum_hh + (size_t)3 * H * H;
        float *bias = sum_ih + (size_t)3 * H * wide;
        float *d = bias + 4 * H, *hs = d + (size_t)GATHER * 4 * H;
        float *xs = hs + (size_t)GATHER * H, *dxs = xs + (size_t)GATHER * wide;
        memset(sum_hh, 0, sizeof(float) * sum_size(I, H));
        int gathered = 0;
        for (int n = 0; n * parts < blocks; n++) {
            const int first = block_of(part, parts, n) * size;
            if (first >= R) continue;
            const int all = smaller(size, R - first);
            float *carry = dh0 + (size_t)first * H; /* gradient of h; ends as that of h0 */
            memset(carry, 0, sizeof(float) * all * H);
            for (int t = T - 1; t >= 0; t--) {
                const int rows = smaller(size, (int)sizes[t] - first);
                if (rows <= 0) continue;
                if (gathered + rows > GATHER) {
                    outer_product(gathered, 3 * H, d + H, 4 * H, hs, H, H, sum_hh);
                    outer_product(gathered, 3 * H, d, 4 * H, xs, wide, wide, sum_ih);
                    gathered = 0;
                }
                const size_t at = offsets[t] + first;
                const float *h = t ? out + (offsets[t - 1] + first) * H : h0 + (size_t)first * H;
                float *now = d + (size_t)gathered * 4 * H;
                for (int row = 0; row < rows; row++)
                    backward_gates(H, dout + (at + row) * H, h + (size_t)row * H,
                                   saved + (at + row) * 4 * H, now + (size_t)row * 4 * H,
                                   carry + (size_t)row * H, bias);
                product(rows, 3 * H, H, packed, now + H, 4 * H, carry, H, 1);
                if (dx && wide == I) {
                    product(rows, 3 * H, I, packed_ih, now, 4 * H, dx + at * I, I, 0);
                } else if (dx) {
                    product(rows, 3 * H, wide, packed_ih, now, 4 * H, dxs, wide, 0);
                    for (int row = 0; row < rows; row++)
                        memcpy(dx + (at + row) * I, dxs + (size_t)row * wide, sizeof(float) * I);
                }
                copy_rows(rows, H, H, h, hs + (size_t)gathered * H);
                copy_rows(rows, I, wide, x + at * I, xs + (size_t)gathered * wide);
                gathered += rows;
            }
        }
        outer_product(gathered, 3 * H, d + H, 4 * H, hs, H, H, sum_hh);
        outer_product(gathered, 3 * H, d, 4 * H, xs, wide, wide, sum_ih);
    }
    memset(dw_hh, 0, sizeof(float) * 3 * H * H);
    memset(dw_ih, 0, sizeof(float) * 3 * H * I);
    memset(db_ih, 0, sizeof(float) * 3 * H);
    memset(db_hh, 0, sizeof(float) * 3 * H);
    for (int part = 0; part < parts; part++) {
        const float *sum_hh = scratch + part * each, *sum_ih = sum_hh + (size_t)3 * H * H;
        const float *bias = sum_ih + (size_t)3 * H * wide;
        for (int i = 0; i < 3 * H * H; i++) dw_hh[i] += sum_hh[i];
        for (int row = 0; row < 3 * H; row++) { /* gates n, r, z back to r, z, n */
            const float *from = sum_ih + (size_t)((row + H) % (3 * H)) * wide;
            for (int i = 0; i < I; i++) dw_ih[(size_t)row * I + i] += from[i];
        }
        for (int i = 0; i < 3 * H; i++) {
            db_ih[i] += bias[(i + H) % (3 * H)];
            db_hh[i] += bias[i + H];
        }
    }
}
