/* QMIX's mixer, forward and backward, with hyper-networks of two layers:
 *
 *   h1 = relu(A1 s + a1)  h2 = relu(A2 s + a2)  b = B s + b0  v = relu(C s + c)
 *   w1 = W1 h1 + e1 [N,D]  w2 = W2 h2 + e2 [D]
 *   y = elu(Σ_n q_n |w1_n| + b)  Q = Σ_d y_d |w2_d| + k·v + k0
 *
 * A block of rows goes through everything while it is hot. The four first layers are one product.
 * Which rows a part takes depends only on their number, and every part sums its own gradients. */
#include <stdint.h>

#include "block.h"
#include "parts.h"
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

/* The rows of a part: whole blocks, in order. */
static void rows_of(int K, int part, int parts, int *first, int *last) {
    const int blocks = (K + BLOCK - 1) / BLOCK, each = (blocks + parts - 1) / parts;
    *first = smaller(part * each * BLOCK, K);
    *last = smaller((part + 1) * each * BLOCK, K);
}

/* `rows` rows (at most BLOCK) of values q [N] and states s [S] -> out, and what is kept of them. */
static void mix_block(sizes_t n, packed_t at, int rows, const float *q, const float *s, int stride,
                      float *kept, float *out) {
    const int C = first_width(n), W = kept_width(n), ND = n.N * n.D;
    layer(rows, n.S, C, at.first, at.first_bias, s, stride, kept, W, 0);
    positive_rows(rows, 2 * n.E, kept, W);
    positive_rows(rows, n.D, kept + 2 * n.E + n.D, W);
    layer(rows, n.E, ND, at.w1, at.bias1, kept, W, kept + C, W, 0);
    layer(rows, n.E, n.D, at.w2, at.bias2, kept + n.E, W, kept + C + ND, W, 0);
    for (int i = 0; i < rows; i++)
        out[i] = mix(n, q + (size_t)i * n.N, kept + (size_t)i * W, at.k);
}

/* A pass over K rows. */
typedef struct {
    sizes_t n;
    packed_t at;
    int K, parts, keep;
    const float *q, *s, *dout;
    float *kept, *out, *dq, *scratch; /* the last: [parts, qmix_scratch_size] */
} pass_t;

static void forward_part(const void *told, int part) {
    const pass_t *p = told;
    const sizes_t n = p->n;
    int first, last;
    rows_of(p->K, part, p->parts, &first, &last);
    for (int row = first; row < last; row += BLOCK)
        mix_block(n, p->at, smaller(BLOCK, last - row), p->q + (size_t)row * n.N,
                  p->s + (size_t)row * n.S, n.S,
                  p->kept + (size_t)(p->keep ? row : part * BLOCK) * kept_width(n), p->out + row);
}

/* q [K,N], s [K,S] -> out [K]; kept [K, kept_size] where `keep`, else [parts * BLOCK, kept_size]. */
void qmix_forward(int K, int N, int S, int E, int D, int parts, int keep, const float *q,
                  const float *s, const float *packed, float *out, float *kept) {
    const sizes_t n = {N, S, E, D};
    const pass_t told = {n, places(n, packed), K, parts, keep, q, s, NULL, kept, out, NULL, NULL};
    in_parts(parts, parts, forward_part, &told);
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
    return (size_t)C * padded(n.S) + (size_t)(n.N + 1) * n.D * n.E + W + n.D + VL;
}

int64_t qmix_scratch_size(int N, int S, int E, int D, int parts) {
    const sizes_t n = {N, S, E, D};
    return (int64_t)parts * (sum_size(n) + (size_t)BLOCK * (kept_width(n) + padded(S)));
}

static void add(int count, const float *from, float *to) {
    for (int i = 0; i < count; i++) to[i] += from[i];
}

/* Where a part sums its gradients, and the rows of a block: their gradients and states. */
typedef struct {
    float *first, *w1, *w2, *bias, *k, *d, *s;
} sums_t;

static sums_t sum_places(sizes_t n, float *p) {
    sums_t at;
    at.first = p, p += (size_t)first_width(n) * padded(n.S);
    at.w1 = p, p += (size_t)n.N * n.D * n.E;
    at.w2 = p, p += (size_t)n.D * n.E;
    at.bias = p, p += kept_width(n);
    at.k = p, p += n.D + VL; /* and one, but what follows shall begin with a whole vector */
    at.d = p, p += (size_t)BLOCK * kept_width(n);
    at.s = p;
    return at;
}

/* Adds the gradients of a block, whose states lie padded in sum.s, and gives those of its q. */
static void unmix_block(sizes_t n, packed_t at, int rows, const float *dout, const float *q,
                        const float *kept, float *dq, sums_t sum) {
    const int C = first_width(n), W = kept_width(n), ND = n.N * n.D, wide = padded(n.S);
    float *d = sum.d;
    for (int i = 0; i < rows; i++)
        unmix(n, dout[i], q + (size_t)i * n.N, kept + (size_t)i * W, at.k, d + (size_t)i * W,
              dq + (size_t)i * n.N, sum.k);
    product(rows, ND, n.E, at.back1, d + C, W, d, W, 0);
    product(rows, n.D, n.E, at.back2, d + C + ND, W, d + n.E, W, 0);
    mask_rows(rows, 2 * n.E, kept, d, W);
    outer_product(rows, C, d, W, sum.s, wide, wide, sum.first);
    outer_product(rows, ND, d + C, W, kept, W, n.E, sum.w1);
    outer_product(rows, n.D, d + C + ND, W, kept + n.E, W, n.E, sum.w2);
    column_sums(rows, W, d, sum.bias);
}

/* The sums of all parts, `each` floats apart, as the gradients of the 14 weights. */
static void gather_sums(sizes_t n, int parts, size_t each, float *scratch, float *const *dw) {
    const int widths[4] = {n.E, n.E, n.D, n.D}, to[4] = {0, 4, 8, 10}, ND = n.N * n.D;
    for (int part = 1; part < parts; part++)
        add((int)sum_size(n), scratch + part * each, scratch);
    const sums_t at = sum_places(n, scratch);
    const float *sum = at.first, *bias = at.bias;
    for (int layer = 0; layer < 4; layer++) {
        for (int row = 0; row < widths[layer]; row++, sum += padded(n.S))
            memcpy(dw[to[layer]] + (size_t)row * n.S, sum, sizeof(float) * n.S);
        memcpy(dw[to[layer] + 1], bias, sizeof(float) * widths[layer]);
        bias += widths[layer];
    }
    memcpy(dw[2], at.w1, sizeof(float) * ND * n.E);
    memcpy(dw[3], bias, sizeof(float) * ND);
    memcpy(dw[6], at.w2, sizeof(float) * n.D * n.E);
    memcpy(dw[7], bias + ND, sizeof(float) * n.D);
    memcpy(dw[12], at.k, sizeof(float) * n.D);
    dw[13][0] = at.k[n.D];
}

static void backward_part(const void *told, int part) {
    const pass_t *p = told;
    const sizes_t n = p->n;
    const sums_t sum = sum_places(n, p->scratch + part * qmix_scratch_size(n.N, n.S, n.E, n.D, 1));
    memset(sum.first, 0, sizeof(float) * sum_size(n));
    int first, last;
    rows_of(p->K, part, p->parts, &first, &last);
    for (int row = first; row < last; row += BLOCK) {
        const int rows = smaller(BLOCK, last - row);
        copy_rows(rows, n.S, padded(n.S), p->s + (size_t)row * n.S, sum.s);
        unmix_block(n, p->at, rows, p->dout + row, p->q + (size_t)row * n.N,
                    p->kept + (size_t)row * kept_width(n), p->dq + (size_t)row * n.N, sum);
    }
}

/* dout [K] -> dq [K,N]; `dw` receives the gradients of the 14 weights in qmix_pack's order. */
void qmix_backward(int K, int N, int S, int E, int D, int parts, const float *dout, const float *q,
                   const float *s, const float *packed, float *kept, float *dq, float *const *dw,
                   float *scratch) {
    const sizes_t n = {N, S, E, D};
    const pass_t told = {n, places(n, packed), K, parts, 1, q, s, dout, kept, NULL, dq, scratch};
    in_parts(parts, parts, backward_part, &told);
    gather_sums(n, parts, qmix_scratch_size(N, S, E, D, 1), scratch, dw);
}

/* ---- the loss of temporal differences ------------------------------------------------------- */

/* K transitions from slot now[k] to next[k] of P slots, and where sums go; NULL where everybody
 * lives, all count. `scratch` has a place per part. */
typedef struct {
    const int64_t *now, *next, *actions; /* [K], [K], [K,N] */
    int64_t *number;                     /* [P]: k of a slot, or -1 */
    const float *target_q, *state, *reward;       /* [P,N,A], [P,S], [K] */
    const uint8_t *avail, *over, *alive, *counts; /* [P,N,A], [K], [P,N], [K] */
    const float *packed, *packed_target;
    double *means; /* [parts,4]: sums of (Q - y)², |Q - y|, Q, y */
    float *scratch;
    int64_t counted; /* transitions that count */
    float gamma;
    int twice; /* the online network chooses the actions that the target network values */
    int N, A, S, E, D;
} td_t;

/* Some transitions, at most BLOCK: their numbers, and where online values of their slots lie. */
typedef struct {
    int count;
    int64_t k[BLOCK];
    const float *q[BLOCK], *next_q[BLOCK];
    float *dq[BLOCK];
} batch_t;

#define UNAVAILABLE -9999999.0f

INLINE sizes_t td_sizes(const td_t *of) { return (sizes_t){of->N, of->S, of->E, of->D}; }

/* Floats of a part: gradients, then q, dq, out, dout, targets and what is kept of a batch. */
static int64_t td_part_size(sizes_t n) {
    return qmix_scratch_size(n.N, n.S, n.E, n.D, 1) + BLOCK * (2LL * n.N + 3 + kept_width(n));
}

int64_t qmix_td_scratch_size(int N, int S, int E, int D, int parts) {
    return parts * td_part_size((sizes_t){N, S, E, D});
}

/* The value of an agent's best available action, chosen by `by`. */
static float best_value(int A, const float *values, const float *by, const uint8_t *avail) {
    int best = 0;
    float highest = avail[0] ? by[0] : UNAVAILABLE;
    for (int a = 1; a < A; a++) {
        const float value = avail[a] ? by[a] : UNAVAILABLE;
        if (value > highest) highest = value, best = a;
    }
    return values == by ? highest : values[best];
}

/* y = r + γ (1 - d) Q'(q' of the next slots). */
static void td_targets(const td_t *of, const batch_t *batch, float *q, float *kept, float *s,
                       float *y) {
    const sizes_t n = td_sizes(of);
    const int wide = padded(n.S), A = of->A;
    for (int i = 0; i < batch->count; i++) {
        const size_t slot = of->next[batch->k[i]], first = slot * n.N;
        for (int agent = 0; agent < n.N; agent++) {
            const size_t here = (first + agent) * A;
            const float *values = of->target_q + here;
            const float *by = of->twice ? batch->next_q[i] + agent * A : values;
            const int absent = of->alive && !of->alive[first + agent];
            q[i * n.N + agent] = absent ? 0.0f : best_value(A, values, by, of->avail + here);
        }
        copy_rows(1, n.S, wide, of->state + slot * n.S, s + (size_t)i * wide);
    }
    mix_block(n, places(n, of->packed_target), batch->count, q, s, wide, kept, y);
    for (int i = 0; i < batch->count; i++) {
        const int64_t k = batch->k[i];
        y[i] = of->reward[k] + (of->over[k] ? 0.0f : of->gamma * y[i]);
    }
}

/* Adds the loss and the gradients of a batch, and empties it. */
static void td_batch(const td_t *of, int part, batch_t *batch) {
    const sizes_t n = td_sizes(of);
    const packed_t at = places(n, of->packed);
    const int wide = padded(n.S), A = of->A, count = batch->count;
    float *place = of->scratch + part * td_part_size(n);
    const sums_t sum = sum_places(n, place);
    float *q = place + qmix_scratch_size(n.N, n.S, n.E, n.D, 1), *dq = q + BLOCK * n.N;
    float *out = dq + BLOCK * n.N, *dout = out + BLOCK, *y = dout + BLOCK, *kept = y + BLOCK;
    double *means = of->means + 4 * part;
    td_targets(of, batch, q, kept, sum.s, y);
    for (int i = 0; i < count; i++) {
        const size_t slot = of->now[batch->k[i]];
        for (int agent = 0; agent < n.N; agent++) {
            const int64_t action = of->actions[batch->k[i] * n.N + agent];
            const int absent = of->alive && !of->alive[slot * n.N + agent];
            q[i * n.N + agent] = absent ? 0.0f : batch->q[i][agent * A + action];
        }
        copy_rows(1, n.S, wide, of->state + slot * n.S, sum.s + (size_t)i * wide);
    }
    mix_block(n, at, count, q, sum.s, wide, kept, out);
    for (int i = 0; i < count; i++) {
        const float error = out[i] - y[i];
        const int in = !of->counts || of->counts[batch->k[i]];
        dout[i] = in ? 2.0f * error / (float)of->counted : 0.0f;
        if (!in) continue;
        means[0] += error * error, means[1] += error < 0.0f ? -error : error;
        means[2] += out[i], means[3] += y[i];
    }
    unmix_block(n, at, count, dout, q, kept, dq, sum);
    for (int i = 0; i < count; i++)
        for (int agent = 0; agent < n.N; agent++) {
            const size_t slot = of->now[batch->k[i]];
            if (of->alive && !of->alive[slot * n.N + agent]) continue;
            const int64_t action = of->actions[batch->k[i] * n.N + agent];
            batch->dq[i][agent * A + action] = dq[i * n.N + agent];
        }
    batch->count = 0;
}

static void add_transition(const td_t *of, int part, batch_t *batch, int64_t k, const float *q,
                           const float *next_q, float *dq) {
    const int i = batch->count++;
    batch->k[i] = k, batch->q[i] = q, batch->next_q[i] = next_q, batch->dq[i] = dq;
    if (batch->count == BLOCK) td_batch(of, part, batch);
}

/* Before anything else: numbers the slots and clears the sums. -1 where a transition is for no slot
 * or action. */
int qmix_td_begin(const td_t *of, int P, int K, int parts) {
    const sizes_t n = td_sizes(of);
    for (int slot = 0; slot < P; slot++) of->number[slot] = -1;
    for (int k = 0; k < K; k++) {
        if (of->now[k] < 0 || of->now[k] >= P || of->next[k] < 0 || of->next[k] >= P) return -1;
        for (int agent = 0; agent < n.N; agent++) {
            const int64_t action = of->actions[(size_t)k * n.N + agent];
            if (action < 0 || action >= of->A) return -1;
        }
        of->number[of->now[k]] = k;
    }
    for (int part = 0; part < parts; part++)
        memset(of->scratch + part * td_part_size(n), 0, sizeof(float) * sum_size(n));
    memset(of->means, 0, sizeof(double) * 4 * parts);
    return 0;
}

/* After everything else: the gradients of the 14 weights, and the means in the first four. */
void qmix_td_end(const td_t *of, int parts, float *const *dw) {
    gather_sums(td_sizes(of), parts, td_part_size(td_sizes(of)), of->scratch, dw);
    for (int part = 1; part < parts; part++)
        for (int i = 0; i < 4; i++) of->means[i] += of->means[4 * part + i];
    for (int i = 0; i < 4; i++) of->means[i] /= (double)of->counted;
}

typedef struct {
    const td_t *of;
    int K, parts;
    const float *q;
    float *dq;
} td_pass_t;

static void td_part(const void *told, int part) {
    const td_pass_t *p = told;
    const td_t *of = p->of;
    const size_t wide = (size_t)of->N * of->A;
    batch_t batch = {0};
    int first, last;
    rows_of(p->K, part, p->parts, &first, &last);
    for (int k = first; k < last; k++)
        add_transition(of, part, &batch, k, p->q + of->now[k] * wide, p->q + of->next[k] * wide,
                       p->dq + of->now[k] * wide);
    if (batch.count) td_batch(of, part, &batch);
}

/* All transitions of online values q [P,N,A] -> dq [P,N,A], the gradient of the mean of (Q - y)². */
void qmix_td(const td_t *of, int P, int K, int parts, const float *q, float *dq) {
    const td_pass_t told = {of, K, parts, q, dq};
    memset(dq, 0, sizeof(float) * P * of->N * of->A);
    in_parts(parts, parts, td_part, &told);
}

/* As a loss of a recurrent network's outputs: see gru_fit. Rows are slots x agents, so that a block
 * of whole slots has the next ones, too. */
void qmix_td_block(const void *told, int part, block_t block, const float *y, float *dy) {
    const td_t *of = told;
    const int N = of->N;
    batch_t batch = {0};
    for (int t = 0; t < block.T; t++) {
        const size_t wide = of->A;
        memset(dy + block.at[t] * wide, 0, sizeof(float) * block.rows[t] * wide);
        for (int64_t row = 0; row < block.rows[t]; row += N) {
            const int64_t k = of->number[(block.from[t] + row) / N];
            if (k < 0) continue;
            add_transition(of, part, &batch, k, y + (block.at[t] + row) * wide,
                           y + (block.at[t + 1] + row) * wide, dy + (block.at[t] + row) * wide);
        }
    }
    if (batch.count) td_batch(of, part, &batch);
}
