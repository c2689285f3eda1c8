/* OMG's inference of subgoals and its training, and the encoder of its frozen prior:
 *
 *   e = relu(F o + f)                 h = relu(A [e, c] + a)       [m, l] = B h + b, l in [LOW, HIGH]
 *   g = m + exp(l / 2) n              k = relu(U [g, c] + u)       d = V k + v
 *   loss = mean (d - e)² + weight · mean KL(N(m, exp l) ‖ prior)
 *
 * o is what the agent sees, c the condition of its history, n noise (NULL: g = m). The target e of
 * the reconstruction gets no gradient. A block of rows goes through everything while it is hot.
 * Which rows a part takes depends only on their number, and every part sums its own gradients; a
 * row's values do not depend on the rows beside it. */
#include <stdint.h>

#include "parts.h"
#include "tiles.h"

#define ROWS_AT_ONCE 96 /* of a block of the training */
#define LOW -10.0f
#define HIGH 4.0f

/* Widths: what is seen, its embedding, condition, hidden layers, subgoal. */
typedef struct {
    int O, E, C, H, G;
} sizes_t;

/* What is kept of a row: e, c, h. */
INLINE int kept_width(sizes_t n) { return n.E + n.C + n.H; }

/* Inputs and outputs of the five layers. */
INLINE int in_of(sizes_t n, int i) {
    return (const int[]){n.O, n.E + n.C, n.H, n.G + n.C, n.H}[i];
}
INLINE int out_of(sizes_t n, int i) { return (const int[]){n.E, n.H, 2 * n.G, n.H, n.E}[i]; }

/* ---- weights F f A a B b U u V v: for the forward pass, then all but F for the other one ------ */

typedef struct {
    const float *w[5], *bias[5], *back[5];
} packed_t;

static packed_t places(sizes_t n, const float *p) {
    packed_t at;
    for (int i = 0; i < 5; i++) {
        at.w[i] = p, p += (size_t)in_of(n, i) * out_of(n, i);
        at.bias[i] = p, p += out_of(n, i);
    }
    for (int i = 1; i < 5; i++) at.back[i] = p, p += (size_t)in_of(n, i) * out_of(n, i);
    return at;
}

int64_t subgoal_packed_size(int O, int E, int C, int H, int G) {
    const sizes_t n = {O, E, C, H, G};
    int64_t size = 0;
    for (int i = 0; i < 5; i++)
        size += (int64_t)(i ? 2 : 1) * in_of(n, i) * out_of(n, i) + out_of(n, i);
    return size;
}

void subgoal_pack(int O, int E, int C, int H, int G, const float *const *weights, float *packed) {
    const sizes_t n = {O, E, C, H, G};
    const packed_t at = places(n, packed);
    for (int i = 0; i < 5; i++) {
        const int in = in_of(n, i), out = out_of(n, i);
        pack_chunks(in, out, weights[2 * i], 1, in, (float *)at.w[i]);
        memcpy((float *)at.bias[i], weights[2 * i + 1], sizeof(float) * out);
        if (i) pack_chunks(out, in, weights[2 * i], in, 1, (float *)at.back[i]);
    }
}

/* ---- forward -------------------------------------------------------------------------------- */

/* [m, l] of a block as they leave the last layer -> mean, log_var, and drawn where it is wanted. */
static void gaussian_rows(int rows, int G, const float *both, const float *noise, float *mean,
                          float *log_var, float *drawn) {
    for (int row = 0; row < rows; row++, both += 2 * G)
        for (int g = 0; g < G; g += VL) {
            const size_t at = (size_t)row * G + g;
            const vec l = at_least(at_most(LOAD(both + G + g), HIGH), LOW);
            vec m = LOAD(both + g);
            STORE(mean + at, m);
            STORE(log_var + at, l);
            if (noise) m += vexp(splat(0.5f) * l) * LOAD(noise + at);
            if (drawn) STORE(drawn + at, m);
        }
}

typedef struct {
    sizes_t n;
    packed_t at;
    int64_t P;
    const float *own, *condition, *noise;
    float *kept, *mean, *log_var, *drawn;
} forward_t;

static void forward_block(const void *told, int block) {
    const forward_t *f = told;
    const sizes_t n = f->n;
    const packed_t at = f->at;
    const int W = kept_width(n), EC = n.E + n.C, G = n.G;
    const int64_t first = (int64_t)block * BLOCK;
    const int rows = (int)(f->P - first < BLOCK ? f->P - first : BLOCK);
    float both[BLOCK * 2 * G] __attribute__((aligned(64)));
    float *to = f->kept + first * W;
    layer(rows, n.O, n.E, at.w[0], at.bias[0], f->own + first * n.O, n.O, to, W, 1);
    for (int row = 0; row < rows; row++)
        memcpy(to + (size_t)row * W + n.E, f->condition + (first + row) * n.C,
               sizeof(float) * n.C);
    layer(rows, EC, n.H, at.w[1], at.bias[1], to, W, to + EC, W, 1);
    layer(rows, n.H, 2 * G, at.w[2], at.bias[2], to + EC, W, both, 2 * G, 0);
    gaussian_rows(rows, G, both, f->noise ? f->noise + first * G : NULL, f->mean + first * G,
                  f->log_var + first * G, f->drawn + first * G);
}

/* own [P,O], condition [P,C], noise [P,G] or NULL -> kept [P, E+C+H], mean, log_var, drawn [P,G]. */
void subgoal_forward(int64_t P, int O, int E, int C, int H, int G, int threads, const float *own,
                     const float *condition, const float *noise, const float *packed, float *kept,
                     float *mean, float *log_var, float *drawn) {
    const sizes_t n = {O, E, C, H, G};
    const forward_t told = {n,    places(n, packed), P,       own,  condition, noise,
                            kept, mean,              log_var, drawn};
    in_parts(threads, (int)((P + BLOCK - 1) / BLOCK), forward_block, &told);
}

/* ---- the prior's encoder: two layers of H with ReLU, then mean and log-variance ---------------- */

int64_t subgoal_prior_size(int S, int H, int G) {
    return (int64_t)(S + 1) * H + (int64_t)(H + 1) * H + (int64_t)(H + 1) * 2 * G;
}

void subgoal_pack_prior(int S, int H, int G, const float *const *weights, float *packed) {
    const int in[3] = {S, H, H}, out[3] = {H, H, 2 * G};
    for (int i = 0; i < 3; i++) {
        pack_chunks(in[i], out[i], weights[2 * i], 1, in[i], packed);
        packed += (size_t)in[i] * out[i];
        memcpy(packed, weights[2 * i + 1], sizeof(float) * out[i]);
        packed += out[i];
    }
}

typedef struct {
    int64_t P;
    int S, H, G;
    const float *states, *packed;
    float *mean, *log_var;
} prior_t;

static void prior_block(const void *told, int block) {
    const prior_t *p = told;
    const int S = p->S, H = p->H, G = p->G;
    const float *w0 = p->packed, *w1 = w0 + (size_t)(S + 1) * H, *w2 = w1 + (size_t)(H + 1) * H;
    const int64_t first = (int64_t)block * BLOCK;
    const int rows = (int)(p->P - first < BLOCK ? p->P - first : BLOCK);
    float a[BLOCK * H] __attribute__((aligned(64))), b[BLOCK * H] __attribute__((aligned(64)));
    float both[BLOCK * 2 * G] __attribute__((aligned(64)));
    layer(rows, S, H, w0, w0 + (size_t)S * H, p->states + first * S, S, a, H, 1);
    layer(rows, H, H, w1, w1 + (size_t)H * H, a, H, b, H, 1);
    layer(rows, H, 2 * G, w2, w2 + (size_t)H * 2 * G, b, H, both, 2 * G, 0);
    gaussian_rows(rows, G, both, NULL, p->mean + first * G, p->log_var + first * G, NULL);
}

/* states [P,S] -> mean, log_var [P,G]. */
void subgoal_prior(int64_t P, int S, int H, int G, int threads, const float *states,
                   const float *packed, float *mean, float *log_var) {
    const prior_t told = {P, S, H, G, states, packed, mean, log_var};
    in_parts(threads, (int)((P + BLOCK - 1) / BLOCK), prior_block, &told);
}

/* ---- training ------------------------------------------------------------------------------- */

/* Rows `now` [K] of the forward pass, each at most once, learn towards rows `chosen` [K] of the
 * prior's mean and log_var; sums of both terms go to terms [parts][2]. */
typedef struct {
    const int64_t *now, *chosen;
    const float *own, *noise, *kept, *mean, *log_var, *drawn, *prior_mean, *prior_log_var;
    float *dcondition; /* [P,C] */
    double *terms;
    float weight; /* of the KL */
    int K, O, E, C, H, G;
} fit_t;

/* A part's sums, then the rows of its block: inputs of every layer and the gradients of its output. */
typedef struct {
    float *sum[5], *bias[5], *in[5], *d[5], *out;
} work_t;

INLINE int wide_in(sizes_t n, int i) { return i ? in_of(n, i) : padded(n.O); }

static work_t work_places(sizes_t n, float *p) {
    work_t at;
    for (int i = 0; i < 5; i++) {
        at.sum[i] = p, p += (size_t)wide_in(n, i) * out_of(n, i);
        at.bias[i] = p, p += out_of(n, i);
    }
    for (int i = 0; i < 5; i++) {
        at.in[i] = p, p += (size_t)ROWS_AT_ONCE * wide_in(n, i);
        at.d[i] = p, p += (size_t)ROWS_AT_ONCE * out_of(n, i);
    }
    at.out = p; /* what a product gives back: at most G + C or E + C wide */
    return at;
}

static size_t sum_size(sizes_t n) {
    size_t size = 0;
    for (int i = 0; i < 5; i++) size += (size_t)(wide_in(n, i) + 1) * out_of(n, i);
    return size;
}

static int64_t work_size(sizes_t n) {
    size_t row = n.G + n.E + n.C;
    for (int i = 0; i < 5; i++) row += wide_in(n, i) + out_of(n, i);
    return (int64_t)(sum_size(n) + ROWS_AT_ONCE * row);
}

int64_t subgoal_scratch_size(int O, int E, int C, int H, int G, int parts) {
    return parts * work_size((sizes_t){O, E, C, H, G});
}

INLINE float total(vec x) {
    float sum = 0.0f;
    for (int i = 0; i < VL; i++) sum += x[i];
    return sum;
}

/* The inputs of all layers for a block of transitions. */
static void gather_rows(sizes_t n, const fit_t *of, const int64_t *now, int rows, work_t at) {
    const int W = kept_width(n), EC = n.E + n.C, GC = n.G + n.C;
    for (int i = 0; i < rows; i++) {
        const float *kept = of->kept + now[i] * W;
        copy_rows(1, n.O, padded(n.O), of->own + now[i] * n.O, at.in[0] + (size_t)i * padded(n.O));
        memcpy(at.in[1] + (size_t)i * EC, kept, sizeof(float) * EC);
        memcpy(at.in[2] + (size_t)i * n.H, kept + EC, sizeof(float) * n.H);
        memcpy(at.in[3] + (size_t)i * GC, of->drawn + now[i] * n.G, sizeof(float) * n.G);
        memcpy(at.in[3] + (size_t)i * GC + n.G, kept + n.E, sizeof(float) * n.C);
    }
}

/* The square error of a block's reconstruction; its gradient in d[4], which held the outputs. */
static double reconstruction(sizes_t n, const fit_t *of, int rows, work_t at) {
    const vec scale = splat(2.0f / ((float)of->K * n.E));
    double sum = 0.0;
    for (int i = 0; i < rows; i++) {
        vec squares = splat(0.0f);
        float *d = at.d[4] + (size_t)i * n.E;
        for (int e = 0; e < n.E; e += VL) {
            const vec gap = LOAD(d + e) - LOAD(at.in[1] + (size_t)i * (n.E + n.C) + e);
            squares += gap * gap;
            STORE(d + e, scale * gap);
        }
        sum += total(squares);
    }
    return sum / n.E;
}

/* The KL of a block; the gradient of [m, l] in d[2], from that of g in `dg` and its own. */
static double divergence(sizes_t n, const fit_t *of, const int64_t *now, const int64_t *chosen,
                         int rows, const float *dg, int apart, work_t at) {
    const vec half = splat(0.5f), one = splat(1.0f), weight = splat(of->weight / (float)of->K);
    double sum = 0.0;
    for (int i = 0; i < rows; i++) {
        const size_t row = now[i] * n.G, prior = chosen[i] * n.G;
        float *d = at.d[2] + (size_t)i * 2 * n.G;
        vec kl = splat(0.0f);
        for (int g = 0; g < n.G; g += VL) {
            const vec l = LOAD(of->log_var + row + g), other = LOAD(of->prior_log_var + prior + g);
            const vec gap = LOAD(of->mean + row + g) - LOAD(of->prior_mean + prior + g);
            const vec back = LOAD(dg + (size_t)i * apart + g);
            const vec ratio = vexp(l - other), sharp = vexp(-other) * gap;
            kl += half * (other - l + ratio + gap * sharp - one);
            vec dl = weight * half * (ratio - one);
            if (of->noise) dl += back * half * vexp(half * l) * LOAD(of->noise + row + g);
            const ivec held = (l <= splat(LOW)) | (l >= splat(HIGH));
            STORE(d + g, back + weight * sharp);
            STORE(d + n.G + g, choose(held, splat(0.0f), dl));
        }
        sum += total(kl);
    }
    return sum;
}

static void fit_block(sizes_t n, packed_t w, const fit_t *of, const int64_t *now,
                      const int64_t *chosen, int rows, work_t at, double *terms) {
    const int EC = n.E + n.C, GC = n.G + n.C, C = n.C;
    gather_rows(n, of, now, rows, at);
    layer(rows, GC, n.H, w.w[3], w.bias[3], at.in[3], GC, at.in[4], n.H, 1);
    layer(rows, n.H, n.E, w.w[4], w.bias[4], at.in[4], n.H, at.d[4], n.E, 0);
    terms[0] += reconstruction(n, of, rows, at);
    product(rows, n.E, n.H, w.back[4], at.d[4], n.E, at.d[3], n.H, 0);
    mask_rows(rows, n.H, at.in[4], at.d[3], n.H);
    product(rows, n.H, GC, w.back[3], at.d[3], n.H, at.out, GC, 0);
    for (int i = 0; i < rows; i++)
        memcpy(of->dcondition + now[i] * C, at.out + (size_t)i * GC + n.G, sizeof(float) * C);
    terms[1] += divergence(n, of, now, chosen, rows, at.out, GC, at);
    product(rows, 2 * n.G, n.H, w.back[2], at.d[2], 2 * n.G, at.d[1], n.H, 0);
    mask_rows(rows, n.H, at.in[2], at.d[1], n.H);
    product(rows, n.H, EC, w.back[1], at.d[1], n.H, at.out, EC, 0);
    for (int i = 0; i < rows; i++) {
        const float *back = at.out + (size_t)i * EC;
        float *dc = of->dcondition + now[i] * C;
        for (int c = 0; c < C; c += VL) STORE(dc + c, LOAD(dc + c) + LOAD(back + n.E + c));
        for (int e = 0; e < n.E; e += VL) {
            const ivec off = LOAD(at.in[1] + (size_t)i * EC + e) <= splat(0.0f);
            STORE(at.d[0] + (size_t)i * n.E + e, choose(off, splat(0.0f), LOAD(back + e)));
        }
    }
    for (int i = 0; i < 5; i++) {
        const int in = wide_in(n, i), out = out_of(n, i);
        outer_product(rows, out, at.d[i], out, at.in[i], in, in, at.sum[i]);
        column_sums(rows, out, at.d[i], at.bias[i]);
    }
}

typedef struct {
    const fit_t *of;
    packed_t w;
    int parts;
    float *scratch;
} fit_parts_t;

static void fit_part(const void *told, int part) {
    const fit_parts_t *f = told;
    const fit_t *of = f->of;
    const sizes_t n = {of->O, of->E, of->C, of->H, of->G};
    const int64_t blocks = (of->K + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
    float *own = f->scratch + part * work_size(n);
    double *terms = of->terms + 2 * part;
    terms[0] = terms[1] = 0.0;
    memset(own, 0, sizeof(float) * sum_size(n));
    for (int64_t i = blocks * part / f->parts; i < blocks * (part + 1) / f->parts; i++) {
        const int first = (int)i * ROWS_AT_ONCE, rows = smaller(ROWS_AT_ONCE, of->K - first);
        fit_block(n, f->w, of, of->now + first, of->chosen + first, rows, work_places(n, own),
                  terms);
    }
}

/* The gradients of all weights and of the condition, which must be zeros before. -1: a row is none
 * of the P, or none of the V of the prior. */
int subgoal_fit(const fit_t *of, int64_t P, int64_t V, int parts, const float *packed,
                float *const *grads, float *scratch) {
    const sizes_t n = {of->O, of->E, of->C, of->H, of->G};
    const fit_parts_t told = {of, places(n, packed), parts, scratch};
    const size_t each = work_size(n);
    for (int k = 0; k < of->K; k++)
        if (of->now[k] < 0 || of->now[k] >= P || of->chosen[k] < 0 || of->chosen[k] >= V) return -1;
    in_parts(parts, parts, fit_part, &told);
    for (int part = 1; part < parts; part++) {
        for (size_t i = 0; i < sum_size(n); i++) scratch[i] += scratch[part * each + i];
        for (int i = 0; i < 2; i++) of->terms[i] += of->terms[2 * part + i];
    }
    const work_t sums = work_places(n, scratch);
    for (int i = 0; i < 5; i++) {
        const int in = in_of(n, i), wide = wide_in(n, i), out = out_of(n, i);
        for (int row = 0; row < out; row++)
            memcpy(grads[2 * i] + (size_t)row * in, sums.sum[i] + (size_t)row * wide,
                   sizeof(float) * in);
        memcpy(grads[2 * i + 1], sums.bias[i], sizeof(float) * out);
    }
    return 0;
}
