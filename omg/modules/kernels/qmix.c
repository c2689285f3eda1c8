/* QMIX's mixer, forward and backward, with hyper-networks of two layers:
 *
 *   h1 = relu(A1 s + a1)  h2 = relu(A2 s + a2)  b = B s + b0  v = relu(C s + c)
 *   w1 = W1 h1 + e1 [N,D]  w2 = W2 h2 + e2 [D]
 *   y = elu(Σ_n q_n |w1_n| + b)  Q = Σ_d y_d |w2_d| + k·v + k0
 *
 * A block of rows goes through everything while it is hot. The four first layers are one product.
 * Which rows a part takes depends only on their number, and every part sums its own gradients. */
#include <stdint.h>

#include "tiles.h"

typedef struct {
    int N, S, E, D;
} sizes_t;

/* Columns of the first layers: h1, h2, b, v. */
INLINE int first_width(sizes_t n) { return 2 * n.E + 2 * n.D; }
/* What is kept of a row: h1, h2, y, v, w1, w2. */
INLINE int kept_width(sizes_t n) { return first_width(n) + (n.N + 1) * n.D; }

int64_t qmix_kept_size(int N, int S, int E, int D) { return kept_width((sizes_t){N, S, E, D}); }

/* Floats of the packed weights: first layers, W1, W2 for the forward pass with their biases, k and
 * k0; then W1 and W2 for the backward pass. */
int64_t qmix_packed_size(int N, int S, int E, int D) {
    const int C = 2 * E + 2 * D;
    return (int64_t)C * (S + 1) + 2LL * (N + 1) * D * E + (N + 1) * D + D + 1;
}

typedef struct {
    const float *first, *first_bias, *w1, *w2, *bias1, *bias2, *k, *back1, *back2;
} packed_t;

static packed_t places(sizes_t n, const float *p) {
    const int C = first_width(n);
    packed_t at;
    at.first = p, p += (size_t)C * n.S;
    at.first_bias = p, p += C;
    at.w1 = p, p += (size_t)n.N * n.D * n.E;
    at.w2 = p, p += (size_t)n.D * n.E;
    at.bias1 = p, p += n.N * n.D;
    at.bias2 = p, p += n.D;
    at.back1 = p, p += (size_t)n.N * n.D * n.E;
    at.back2 = p, p += (size_t)n.D * n.E;
    at.k = p;
    return at;
}

/* `w` in the order A1 a1 W1 e1 A2 a2 W2 e2 B b0 C c k k0, matrices as [out, in]. */
void qmix_pack(int N, int S, int E, int D, const float *const *w, float *packed, float *work) {
    const sizes_t n = {N, S, E, D};
    const packed_t at = places(n, packed);
    const int widths[4] = {E, E, D, D}, from[4] = {0, 4, 8, 10};
    float *rows = work, *bias = (float *)at.first_bias;
    for (int part = 0; part < 4; part++) { /* one matrix [C,S] */
        memcpy(rows, w[from[part]], sizeof(float) * widths[part] * S);
        memcpy(bias, w[from[part] + 1], sizeof(float) * widths[part]);
        rows += (size_t)widths[part] * S;
        bias += widths[part];
    }
    pack_chunks(S, first_width(n), work, 1, S, (float *)at.first);
    pack_chunks(E, N * D, w[2], 1, E, (float *)at.w1);
    pack_chunks(E, D, w[6], 1, E, (float *)at.w2);
    memcpy((float *)at.bias1, w[3], sizeof(float) * N * D);
    memcpy((float *)at.bias2, w[7], sizeof(float) * D);
    pack_chunks(N * D, E, w[2], E, 1, (float *)at.back1);
    pack_chunks(D, E, w[6], E, 1, (float *)at.back2);
    memcpy((float *)at.k, w[12], sizeof(float) * D);
    ((float *)at.k)[D] = w[13][0];
}

INLINE vec vabs(vec x) { return choose(x < splat(0.0f), -x, x); }
/* Written so that what is not a number stays so. */
INLINE vec relu(vec x) { return choose(x < splat(0.0f), splat(0.0f), x); }
INLINE float total(vec x) {
    float sum = 0.0f;
    for (int i = 0; i < VL; i++) sum += x[i];
    return sum;
}

/* One row behind the products: `row` holds h1 h2 b v w1 w2 and afterwards y in b's place. */
static float mix(sizes_t n, const float *q, float *row, const float *k) {
    float *y = row + 2 * n.E, *v = y + n.D;
    const float *w1 = v + n.D, *w2 = w1 + n.N * n.D;
    vec sum = splat(0.0f);
    for (int d = 0; d < n.D; d += VL) {
        vec x = LOAD(y + d);
        for (int agent = 0; agent < n.N; agent++)
            x += splat(q[agent]) * vabs(LOAD(w1 + agent * n.D + d));
        const vec below = vexp(choose(x > splat(0.0f), splat(0.0f), x)) - splat(1.0f);
        x = choose(x > splat(0.0f), x, below);
        STORE(y + d, x);
        sum += x * vabs(LOAD(w2 + d)) + LOAD(k + d) * LOAD(v + d);
    }
    return total(sum) + k[n.D];
}

static void repeat(int rows, int width, const float *bias, float *out, int apart) {
    for (int row = 0; row < rows; row++)
        memcpy(out + (size_t)row * apart, bias, sizeof(float) * width);
}

static void relu_rows(int rows, int width, float *x, int apart) {
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < width; i += VL)
            STORE(x + (size_t)row * apart + i, relu(LOAD(x + (size_t)row * apart + i)));
}

/* The rows of a part: whole blocks, in order. */
static void rows_of(int K, int part, int parts, int *first, int *last) {
    const int blocks = (K + BLOCK - 1) / BLOCK, each = (blocks + parts - 1) / parts;
    *first = smaller(part * each * BLOCK, K);
    *last = smaller((part + 1) * each * BLOCK, K);
}

/* q [K,N], s [K,S] -> out [K]; kept [K, kept_size] where `keep`, else [parts * BLOCK, kept_size]. */
void qmix_forward(int K, int N, int S, int E, int D, int parts, int keep, const float *q,
                  const float *s, const float *packed, float *out, float *kept) {
    const sizes_t n = {N, S, E, D};
    const packed_t at = places(n, packed);
    const int C = first_width(n), W = kept_width(n);
#pragma omp parallel for num_threads(parts) if (parts > 1) schedule(static, 1)
    for (int part = 0; part < parts; part++) {
        int first, last;
        rows_of(K, part, parts, &first, &last);
        for (int row = first; row < last; row += BLOCK) {
            const int rows = smaller(BLOCK, last - row);
            float *x = kept + (size_t)(keep ? row : part * BLOCK) * W;
            repeat(rows, C, at.first_bias, x, W);
            product(rows, S, C, at.first, s + (size_t)row * S, S, x, W, 1);
            relu_rows(rows, 2 * E, x, W);
            relu_rows(rows, D, x + 2 * E + D, W);
            repeat(rows, N * D, at.bias1, x + C, W);
            product(rows, E, N * D, at.w1, x, W, x + C, W, 1);
            repeat(rows, D, at.bias2, x + C + N * D, W);
            product(rows, E, D, at.w2, x + E, W, x + C + N * D, W, 1);
            for (int i = 0; i < rows; i++)
                out[row + i] = mix(n, q + (size_t)(row + i) * N, x + (size_t)i * W, at.k);
        }
    }
}

/* Gradients of one row: d = those of the first layers' sums (h1, h2, b, v), w1 and w2; dq. */
static void unmix(sizes_t n, float dout, const float *q, const float *row, const float *k, float *d,
                  float *dq, float *dk) {
    const float *y = row + 2 * n.E, *v = y + n.D, *w1 = v + n.D, *w2 = w1 + n.N * n.D;
    float *db = d + 2 * n.E, *dv = db + n.D, *dw1 = dv + n.D, *dw2 = dw1 + n.N * n.D;
    const vec zero = splat(0.0f), one = splat(1.0f), g = splat(dout);
    vec sums[n.N];
    for (int agent = 0; agent < n.N; agent++) sums[agent] = zero;
    for (int i = 0; i < n.D; i += VL) {
        const vec out = LOAD(y + i), w = LOAD(w2 + i), value = LOAD(v + i);
        const vec inner = g * vabs(w) * choose(out > zero, one, out + one);
        STORE(db + i, inner);
        STORE(dw2 + i, choose(w < zero, -g * out, choose(w > zero, g * out, zero)));
        STORE(dv + i, choose(value <= zero, zero, g * LOAD(k + i)));
        STORE(dk + i, LOAD(dk + i) + g * value);
        for (int agent = 0; agent < n.N; agent++) {
            const vec u = LOAD(w1 + agent * n.D + i), share = inner * splat(q[agent]);
            sums[agent] += inner * vabs(u);
            STORE(dw1 + agent * n.D + i, choose(u < zero, -share, choose(u > zero, share, zero)));
        }
    }
    dk[n.D] += dout;
    for (int agent = 0; agent < n.N; agent++) dq[agent] = total(sums[agent]);
}

/* What a part sums: first layers [C, padded S], W1 [ND,E], W2 [D,E], the sums of d's columns, k. */
static size_t sum_size(sizes_t n) {
    const int C = first_width(n), W = kept_width(n);
    return (size_t)C * padded(n.S) + (size_t)(n.N + 1) * n.D * n.E + W + n.D + 1;
}

int64_t qmix_scratch_size(int N, int S, int E, int D, int parts) {
    const sizes_t n = {N, S, E, D};
    return (int64_t)parts * (sum_size(n) + (size_t)BLOCK * (kept_width(n) + padded(S)));
}

static void add(int count, const float *from, float *to) {
    for (int i = 0; i < count; i++) to[i] += from[i];
}

static void mask(int rows, int width, const float *kept, float *d, int apart) {
    for (int row = 0; row < rows; row++, kept += apart, d += apart)
        for (int i = 0; i < width; i += VL)
            STORE(d + i, choose(LOAD(kept + i) <= splat(0.0f), splat(0.0f), LOAD(d + i)));
}

/* dout [K] -> dq [K,N]; `dw` receives the gradients of the 14 weights in qmix_pack's order. */
void qmix_backward(int K, int N, int S, int E, int D, int parts, const float *dout, const float *q,
                   const float *s, const float *packed, const float *kept, float *dq,
                   float *const *dw, float *scratch) {
    const sizes_t n = {N, S, E, D};
    const packed_t at = places(n, packed);
    const int C = first_width(n), W = kept_width(n), wide = padded(S);
    const size_t each = qmix_scratch_size(N, S, E, D, 1);
#pragma omp parallel for num_threads(parts) if (parts > 1) schedule(static, 1)
    for (int part = 0; part < parts; part++) {
        float *sum_first = scratch + part * each, *sum1 = sum_first + (size_t)C * wide;
        float *sum2 = sum1 + (size_t)N * D * E, *bias = sum2 + (size_t)D * E, *dk = bias + W;
        float *d = dk + D + 1, *xs = d + (size_t)BLOCK * W;
        memset(sum_first, 0, sizeof(float) * sum_size(n));
        int first, last;
        rows_of(K, part, parts, &first, &last);
        for (int row = first; row < last; row += BLOCK) {
            const int rows = smaller(BLOCK, last - row);
            const float *x = kept + (size_t)row * W;
            for (int i = 0; i < rows; i++)
                unmix(n, dout[row + i], q + (size_t)(row + i) * N, x + (size_t)i * W, at.k,
                      d + (size_t)i * W, dq + (size_t)(row + i) * N, dk);
            product(rows, N * D, E, at.back1, d + C, W, d, W, 0);
            product(rows, D, E, at.back2, d + C + N * D, W, d + E, W, 0);
            mask(rows, 2 * E, x, d, W);
            copy_rows(rows, S, wide, s + (size_t)row * S, xs);
            outer_product(rows, C, d, W, xs, wide, wide, sum_first);
            outer_product(rows, N * D, d + C, W, x, W, E, sum1);
            outer_product(rows, D, d + C + N * D, W, x + E, W, E, sum2);
            for (int i = 0; i < rows; i++) add(W, d + (size_t)i * W, bias);
        }
    }
    const int widths[4] = {E, E, D, D}, to[4] = {0, 4, 8, 10};
    for (int part = 1; part < parts; part++)
        add((int)sum_size(n), scratch + part * each, scratch);
    const float *sum = scratch, *bias = scratch + (size_t)C * wide + (size_t)(N + 1) * D * E;
    for (int layer = 0; layer < 4; layer++) {
        for (int row = 0; row < widths[layer]; row++, sum += wide)
            memcpy(dw[to[layer]] + (size_t)row * S, sum, sizeof(float) * S);
        memcpy(dw[to[layer] + 1], bias, sizeof(float) * widths[layer]);
        bias += widths[layer];
    }
    memcpy(dw[2], sum, sizeof(float) * N * D * E);
    memcpy(dw[3], bias, sizeof(float) * N * D);
    memcpy(dw[6], sum + (size_t)N * D * E, sizeof(float) * D * E);
    memcpy(dw[7], bias + N * D, sizeof(float) * D);
    bias += (N + 1) * D;
    memcpy(dw[12], bias, sizeof(float) * D);
    dw[13][0] = bias[D];
}
