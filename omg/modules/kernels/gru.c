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

#include "vector.h"

#define CHUNK 3   /* vectors that a tile of the backward products is wide */
#define GATHER 64 /* rows whose weight gradient is summed at once */
#define GM (VL == 16 ? 12 : 6) /* gate rows of a tile of the weight gradient; divides 48 */

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

/* out (+)= d w for M rows and N vectors of columns: d [K] with rows `stride` apart, w [K][N VL]. */
INLINE void product_tile(const int M, const int N, int K, const float *restrict w,
                         const float *restrict d, int stride, float *restrict out, int width,
                         int add) {
    vec c[MR][CHUNK];
#pragma GCC unroll 8
    for (int i = 0; i < M; i++)
#pragma GCC unroll 3
        for (int j = 0; j < N; j++) {
            c[i][j] = splat(0.0f);
            if (add) c[i][j] = LOAD(out + (size_t)i * width + j * VL);
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
            for (int j = 0; j < N; j++) c[i][j] += v * b[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < M; i++)
#pragma GCC unroll 3
        for (int j = 0; j < N; j++) STORE(out + (size_t)i * width + j * VL, c[i][j]);
}

typedef void (*tile)(int K, const float *w, const float *d, int stride, float *out, int width,
                     int add);
/* One function each, as a compiler that sees more at once runs out of registers. */
#define TILE(M, N)                                                                                 \
    static __attribute__((noinline)) void tile_##M##_##N(int K, const float *w, const float *d,    \
                                                         int stride, float *out, int width,        \
                                                         int add) {                                \
        product_tile(M, N, K, w, d, stride, out, width, add);                                      \
    }
#define TILES_OF(M) TILE(M, 1) TILE(M, 2) TILE(M, 3)
#define NAMES_OF(M) {NULL, tile_##M##_1, tile_##M##_2, tile_##M##_3}
TILES_OF(1) TILES_OF(2) TILES_OF(3) TILES_OF(4)
#if MR == 8
TILES_OF(5) TILES_OF(6) TILES_OF(7) TILES_OF(8)
#endif
static const tile TILES[MR + 1][CHUNK + 1] = {
    {NULL}, NAMES_OF(1), NAMES_OF(2), NAMES_OF(3), NAMES_OF(4),
#if MR == 8
    NAMES_OF(5), NAMES_OF(6), NAMES_OF(7), NAMES_OF(8),
#endif
};

INLINE int smaller(int a, int b) { return a < b ? a : b; }

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

/* Columns of a product that are computed: n rounded up to whole vectors. */
INLINE int padded(int n) { return (n + VL - 1) / VL * VL; }

/* Floats of the weights for gru_backward. */
int64_t gru_packed_back_size(int I, int H) { return 3LL * H * (padded(I) + H); }

static float *pack_chunks(int H, int columns, int width, const int *order, const float *w,
                          float *p) {
    for (int first = 0; first < columns; first += CHUNK * VL) {
        const int wide = smaller(CHUNK * VL, columns - first);
        for (int gate = 0; gate < 3; gate++)
            for (int k = 0; k < H; k++) {
                const float *row = w + ((size_t)order[gate] * H + k) * width;
                for (int i = first; i < first + wide; i++) *p++ = i < width ? row[i] : 0.0f;
            }
    }
    return p;
}

/* W_hh in chunks of columns [3H][wide], gates r, z, n; then W_ih likewise, gates n, r, z: the
 * orders in which the gradients of the gates lie in a row of `d` below. */
void gru_pack_back(int I, int H, const float *w_ih, const float *w_hh, float *packed) {
    static const int natural[3] = {0, 1, 2}, shifted[3] = {2, 0, 1};
    float *p = pack_chunks(H, H, H, natural, w_hh, packed);
    pack_chunks(H, padded(I), I, shifted, w_ih, p);
}

/* out [rows][width] (+)= d [rows][3H, rows 4H apart] times packed chunks of `width` columns. */
static void product(int rows, int H, int width, const float *packed, const float *d, float *out,
                    int add) {
    const int K = 3 * H;
    for (int first = 0; first < width; first += CHUNK * VL) {
        const int wide = smaller(CHUNK, (width - first) / VL);
        const float *w = packed + (size_t)first * K;
        for (int row = 0; row < rows; row += MR)
            TILES[smaller(MR, rows - row)][wide](K, w, d + (size_t)row * 4 * H, 4 * H,
                                                 out + (size_t)row * width + first, width, add);
    }
}

/* GM rows of sum += dᵀ v over `rows` rows, N vectors wide; d rows 4H apart, v rows `width`. */
INLINE void gradient_tile(const int N, int rows, int H, const float *restrict d,
                          const float *restrict v, int width, float *restrict sum) {
    vec c[GM][2];
#pragma GCC unroll 12
    for (int i = 0; i < GM; i++)
#pragma GCC unroll 2
        for (int j = 0; j < N; j++) c[i][j] = LOAD(sum + (size_t)i * width + j * VL);
    for (int k = 0; k < rows; k++, d += 4 * H, v += width) {
        vec b[CHUNK];
#pragma GCC unroll 2
        for (int j = 0; j < N; j++) {
            b[j] = LOAD(v + j * VL);
            PIN(b[j]);
        }
#pragma GCC unroll 12
        for (int i = 0; i < GM; i++) {
            const vec s = splat(d[i]);
#pragma GCC unroll 2
            for (int j = 0; j < N; j++) c[i][j] += s * b[j];
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < GM; i++)
#pragma GCC unroll 2
        for (int j = 0; j < N; j++) STORE(sum + (size_t)i * width + j * VL, c[i][j]);
}

/* sum [3H][width] += dᵀ v. */
static void gradient(int rows, int H, const float *d, const float *v, int width, float *sum) {
    int column = 0;
    for (; column + 2 * VL <= width; column += 2 * VL)
        for (int gate = 0; gate < 3 * H; gate += GM)
            gradient_tile(2, rows, H, d + gate, v + column, width,
                          sum + (size_t)gate * width + column);
    for (; column < width; column += VL)
        for (int gate = 0; gate < 3 * H; gate += GM)
            gradient_tile(1, rows, H, d + gate, v + column, width,
                          sum + (size_t)gate * width + column);
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
                    gradient(gathered, H, d + H, hs, H, sum_hh);
                    gradient(gathered, H, d, xs, wide, sum_ih);
                    gathered = 0;
                }
                const size_t at = offsets[t] + first;
                const float *h = t ? out + (offsets[t - 1] + first) * H : h0 + (size_t)first * H;
                float *now = d + (size_t)gathered * 4 * H;
                for (int row = 0; row < rows; row++)
                    backward_gates(H, dout + (at + row) * H, h + (size_t)row * H,
                                   saved + (at + row) * 4 * H, now + (size_t)row * 4 * H,
                                   carry + (size_t)row * H, bias);
                product(rows, H, H, packed, now + H, carry, 1);
                if (dx && wide == I) {
                    product(rows, H, I, packed_ih, now, dx + at * I, 0);
                } else if (dx) {
                    product(rows, H, wide, packed_ih, now, dxs, 0);
                    for (int row = 0; row < rows; row++)
                        memcpy(dx + (at + row) * I, dxs + (size_t)row * wide, sizeof(float) * I);
                }
                copy_rows(rows, H, H, h, hs + (size_t)gathered * H);
                copy_rows(rows, I, wide, x + at * I, xs + (size_t)gathered * wide);
                gathered += rows;
            }
        }
        gradient(gathered, H, d + H, hs, H, sum_hh);
        gradient(gathered, H, d, xs, wide, sum_ih);
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
