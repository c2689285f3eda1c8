/* A recurrent agent acts: inputs, one step of its network (stacked.h) and the choice of an action, of
 * all rows in one call. And the same inputs from stored episodes. */
#include <math.h>

#include "parts.h"
#include "stacked.h"

enum { BEST, EPSILON, SAMPLE };

/* The order of members is that of _Acting in acting.py. Rows are copies x seats. */
typedef struct {
    const float *obs;           /* [R,O] */
    const int64_t *last, *seats; /* [R], -1: none yet; [R], NULL: in order */
    const uint8_t *avail;       /* [R,A] */
    const float *before, *weights;
    const float *chances, *draws; /* [R], [R,A]: random numbers */
    float *after, *work;        /* [R,H], [R, I + A] */
    int64_t *actions;
    int64_t R, O, H, A, N, seated; /* N: of all seats; seated: of those in view */
    int64_t shows_last, shows_seat, how, mask_after, threads;
    float scale, epsilon, temperature, share;
} Acting;

int64_t acting_struct_size(void) { return (int64_t)sizeof(Acting); }
int acting_lanes(void) { return VL; }
int acting_max_hidden(void) { return MAX_HIDDEN; }

/* [observation | last action one-hot | seat one-hot] of one row. */
static void write_inputs(const Acting *a, int64_t row, float *to) {
    const float *obs = a->obs + row * a->O;
    for (int64_t k = 0; k < a->O; k++) to[k] = obs[k] * a->scale;
    to += a->O;
    if (a->shows_last) {
        memset(to, 0, sizeof(float) * a->A);
        if (a->last[row] >= 0) to[a->last[row]] = 1.0f;
        to += a->A;
    }
    if (a->shows_seat) {
        memset(to, 0, sizeof(float) * a->N);
        to[a->seats ? a->seats[row] : row % a->seated] = 1.0f;
    }
}

/* The largest of the available values, the first of equal ones. */
static int64_t largest(const float *values, const uint8_t *avail, int64_t A) {
    int64_t best = -1;
    for (int64_t k = 0; k < A; k++)
        if (avail[k] && (best < 0 || values[k] > values[best])) best = k;
    return best < 0 ? 0 : best;
}

/* An exponential race: the largest p_k / E_k has distribution p, the softmax mixed with an equal
 * share of all actions, masked before both or after (see Mixture in action_selectors.py). */
static int64_t sampled(const Acting *a, float *outputs, const uint8_t *avail, const float *draws) {
    const int all = a->mask_after && a->share != 0.0f;
    float most = -INFINITY, sum = 0.0f, count = 0.0f;
    for (int64_t k = 0; k < a->A; k++) {
        outputs[k] /= a->temperature;
        if ((all || avail[k]) && outputs[k] > most) most = outputs[k];
    }
    for (int64_t k = 0; k < a->A; k++) {
        const float here = all || avail[k] ? expf(outputs[k] - most) : 0.0f;
        sum += outputs[k] = here;
        count += all || avail[k];
    }
    for (int64_t k = 0; k < a->A; k++) {
        const float even = a->share != 0.0f && (all || avail[k]) ? a->share / count : 0.0f;
        outputs[k] = ((1.0f - a->share) * outputs[k] / sum + even) / draws[k];
    }
    return largest(outputs, avail, a->A);
}

static int64_t chosen(const Acting *a, int64_t row, float *outputs) {
    const uint8_t *avail = a->avail + row * a->A;
    const float *draws = a->draws + row * a->A;
    if (a->how == SAMPLE) return sampled(a, outputs, avail, draws);
    if (a->how == EPSILON && a->chances[row] < a->epsilon) return largest(draws, avail, a->A);
    return largest(outputs, avail, a->A);
}

static int64_t width_of(const Acting *a) {
    return a->O + (a->shows_last ? a->A : 0) + (a->shows_seat ? a->N : 0);
}
static int blocks_of(const Acting *a) { return (int)((a->R + BLOCK - 1) / BLOCK); }

static void act_in_block(const void *told, int block) {
    const Acting *a = told;
    const int64_t I = width_of(a), H = a->H, A = a->A, blocks = blocks_of(a);
    const int64_t first = a->R * block / blocks, end = a->R * (block + 1) / blocks;
    float features[BLOCK * MAX_HIDDEN] __attribute__((aligned(64)));
    Rows b;
    for (int64_t row = first; row < end; row++) {
        const int64_t i = row - first;
        float *inputs = a->work + row * (I + A);
        write_inputs(a, row, inputs);
        b.input[i] = inputs;
        b.output[i] = inputs + I;
        b.before[i] = a->before + row * H;
        b.after[i] = a->after + row * H;
        b.features[i] = features + i * H;
    }
    const float *w = input_block((int)(end - first), (int)I, (int)H, a->weights, &b);
    hidden_block((int)(end - first), (int)H, (int)A, w, &b);
    for (int64_t row = first; row < end; row++)
        a->actions[row] = chosen(a, row, b.output[row - first]);
}

/* Returns 0; -1: a last action or a seat does not exist, and nothing was done. */
int acting_step(const Acting *a) {
    for (int64_t row = 0; row < a->R; row++) {
        if (a->last[row] >= a->A) return -1;
        if (a->seats && (a->seats[row] < 0 || a->seats[row] >= a->N)) return -1;
    }
    in_parts((int)a->threads, blocks_of(a), act_in_block, a);
    return 0;
}

/* Stored numbers as floats. */
static void read_features(int kind, const void *from, int64_t at, int64_t count, float scale,
                          float *to) {
    if (kind == 0)
        for (int64_t k = 0; k < count; k++) to[k] = ((const float *)from)[at + k] * scale;
    else if (kind == 1)
        for (int64_t k = 0; k < count; k++) to[k] = (float)((const int8_t *)from)[at + k] * scale;
    else
        for (int64_t k = 0; k < count; k++) to[k] = (float)((const uint8_t *)from)[at + k] * scale;
}

/* Inputs of P slots of stored episodes, [P,n,I]: obs [B,T,n,O] (kind 0: float, 1: int8, 2: uint8),
 * actions [B,T,n], place [P] = episode * T + time, seats [B,n] or NULL (in order). -1: a place or a
 * seat does not exist. */
int acting_inputs(int64_t P, int64_t B, int64_t T, int64_t n, int64_t O, int64_t A, int64_t N,
                  int shows_last, int shows_seat, float scale, int kind, const void *obs,
                  const uint8_t *actions, const int64_t *place, const int64_t *seats, float *to) {
    for (int64_t slot = 0; slot < P; slot++) {
        const int64_t at = place[slot], episode = at / T;
        if (at < 0 || at >= B * T) return -1;
        for (int64_t i = 0; i < n; i++) {
            const int64_t seat = seats ? seats[episode * n + i] : i;
            if (seat < 0 || seat >= N) return -1;
            read_features(kind, obs, (at * n + i) * O, O, scale, to);
            to += O;
            if (shows_last) {
                memset(to, 0, sizeof(float) * A);
                const int64_t last = at % T ? actions[(at - 1) * n + i] : A;
                if (last < A) to[last] = 1.0f;
                to += A;
            }
            if (shows_seat) {
                memset(to, 0, sizeof(float) * N);
                to[seat] = 1.0f;
                to += N;
            }
        }
    }
    return 0;
}
