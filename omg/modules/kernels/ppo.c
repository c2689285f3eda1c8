/* PPO's two losses with their gradients. Rows are independent; VL of them are computed at once, and
 * `counts` (NULL: all) says which of them count: the losses are means over those.
 *
 * The policy acts by a softmax of z / temperature and, with probability `share`, uniformly:
 *
 *   p_a = (1 - share) softmax(z)_a + share / available    among the available actions, or
 *   p_a ~ (1 - share) softmax(z)_a + share / A            among all, then scaled to those available
 *
 *   loss = -min(ρ G, clip(ρ) G) - c H(p)   with ρ = p_a / old p_a of the action taken, G its gain
 */
#include <math.h>
#include <stdint.h>

#include "block.h"
#include "vector.h"

#define TINY 1e-30f /* probabilities below are as good as zero; their logarithm stays finite */

typedef struct {
    float temperature, share;
    int mask_after; /* the second form of p */
} mixture_t;

/* How many rows count. */
static int64_t counted(int64_t rows, const uint8_t *counts) {
    if (!counts) return rows;
    int64_t sum = 0;
    for (int64_t i = 0; i < rows; i++) sum += counts[i] != 0;
    return sum;
}

/* One column of up to VL rows `apart` floats, or bytes, apart; the rest is `fill`. */
INLINE vec column(const float *from, int rows, int64_t apart, float fill) {
    vec x = splat(fill);
    for (int i = 0; i < rows; i++) x[i] = from[i * apart];
    return x;
}
INLINE vec flags(const uint8_t *from, int rows, int64_t apart, float fill) {
    vec x = splat(fill);
    for (int i = 0; i < rows; i++) x[i] = from[i * apart] ? 1.0f : 0.0f;
    return x;
}

/* p [A] and softmax [A] of VL rows; what p was divided by (1 in the first form). */
INLINE vec distribution(int A, mixture_t by, const vec *z, const vec *avail, vec *soft, vec *p) {
    const vec zero = splat(0.0f);
    vec top = splat(-INFINITY), total = zero, possible = zero;
    for (int a = 0; a < A; a++) {
        const ivec open = by.mask_after ? (ivec)(zero == zero) : (ivec)(avail[a] > zero);
        top = choose(open & (z[a] > top), z[a], top);
        possible += avail[a];
    }
    for (int a = 0; a < A; a++) {
        const vec e = vexp_within(at_least(at_most(z[a] - top, 0.0f), -87.0f));
        soft[a] = by.mask_after ? e : choose(avail[a] > zero, e, zero);
        total += soft[a];
    }
    const vec rest = splat(1.0f - by.share), scale = splat(1.0f) / total;
    vec left = zero;
    for (int a = 0; a < A; a++) {
        soft[a] *= scale;
        if (by.mask_after) {
            p[a] = avail[a] * (rest * soft[a] + splat(by.share / A));
            left += p[a];
        } else {
            p[a] = rest * soft[a] + splat(by.share) * avail[a] / possible;
        }
    }
    if (!by.mask_after) return splat(1.0f);
    for (int a = 0; a < A; a++) p[a] /= left;
    return left;
}

/* What was done in all rows, and where its sums go: `means` and `work` have a place per part. */
typedef struct {
    const uint8_t *avail, *counts; /* [rows,A], [rows] */
    const int64_t *actions;        /* [rows] */
    const float *old, *gains;      /* [rows] */
    float temperature, share, clip, entropy_coef;
    int A, mask_after;
    int64_t number; /* how many count */
    float *means;   /* [parts,5]: surrogate, entropy, ρ - 1 - ln ρ, |ρ - 1| > clip; largest ρ */
    float *work;    /* [parts, ppo_work_size] */
} policy_t;

/* What a value should have been, and how far it may move. */
typedef struct {
    const float *old, *targets; /* [rows] */
    const uint8_t *counts;      /* [rows] */
    float clip, weight;         /* of the loss in a sum */
    int64_t number;
    float *mean; /* [parts] */
} values_t;

int64_t ppo_count(int64_t rows, const uint8_t *counts) { return counted(rows, counts); }

/* Floats of `work`. */
int64_t ppo_work_size(int A) { return 5LL * A * VL; }

/* `rows` rows from `first` on, z and dz `apart` floats apart. Adds to the means; dz NULL: only log p
 * of the actions and the entropies, which are wanted where they are not NULL. */
static void policy_rows(const policy_t *of, int part, int64_t first, int64_t rows, const float *z,
                        int apart, float *log_probs, float *entropies, float *dz) {
    const int A = of->A;
    const mixture_t by = {of->temperature, of->share, of->mask_after && of->share != 0.0f};
    const vec zero = splat(0.0f), one = splat(1.0f), heat = splat(1.0f / of->temperature);
    vec *logits = (vec *)(of->work + part * ppo_work_size(A)), *open = logits + A;
    vec *soft = open + A, *p = soft + A, *slope = p + A;
    const vec each = splat(of->number ? 1.0f / (float)of->number : 0.0f);
    const float clip = of->clip;
    double means[4] = {0};
    vec largest = splat(-INFINITY);
    for (int64_t row = 0; row < rows; row += VL) {
        const int some = rows - row < VL ? (int)(rows - row) : VL;
        const int64_t here = first + row;
        vec taken = zero, chosen = zero;
        for (int a = 0; a < A; a++) {
            logits[a] = heat * column(z + row * apart + a, some, apart, 0.0f);
            open[a] = flags(of->avail + here * A + a, some, A, 1.0f);
        }
        for (int i = 0; i < some; i++) chosen[i] = (float)of->actions[here + i];
        const vec scale = distribution(A, by, logits, open, soft, p);
        vec entropy = zero;
        for (int a = 0; a < A; a++) {
            const vec log_p = vlog(at_least(p[a], TINY));
            slope[a] = log_p;
            entropy -= p[a] * log_p;
            taken = choose(chosen == splat((float)a), log_p, taken);
        }
        if (log_probs)
            for (int i = 0; i < some; i++)
                log_probs[row + i] = taken[i], entropies[row + i] = entropy[i];
        if (!dz) continue;
        vec counting = of->counts ? flags(of->counts + here, some, 1, 0.0f) : zero;
        for (int i = 0; !of->counts && i < some; i++) counting[i] = 1.0f;
        const ivec in = (ivec)(counting > zero);
        const vec gain = column(of->gains + here, some, 1, 0.0f);
        const vec log_ratio = choose(in, taken - column(of->old + here, some, 1, 0.0f), zero);
        const vec ratio = vexp_within(at_least(at_most(log_ratio, 87.0f), -87.0f));
        const vec near = at_least(at_most(ratio, 1.0f + clip), 1.0f - clip);
        const ivec free = (ivec)(ratio * gain <= near * gain);
        const vec reached = choose(free, ratio * gain, near * gain);
        const vec away = ratio - one;
        const ivec outside = (ivec)(away > splat(clip)) | (ivec)(away < splat(-clip));
        for (int i = 0; i < some; i++) {
            if (!in[i]) continue;
            means[0] += reached[i];
            means[1] += entropy[i];
            means[2] += away[i] - log_ratio[i];
            means[3] += outside[i] ? 1.0 : 0.0;
        }
        largest = choose(in & ~(ivec)(ratio <= largest), ratio, largest);
        /* d loss / d p, then through the distribution to z */
        const vec by_log = choose(free, -ratio * gain * each, zero);
        const vec by_entropy = splat(of->entropy_coef) * each, rest = splat(1.0f - by.share);
        vec mean = zero;
        for (int a = 0; a < A; a++) {
            const ivec held = (ivec)(p[a] >= splat(TINY));
            const vec own = choose((chosen == splat((float)a)) & held, by_log / p[a], zero);
            slope[a] = own + by_entropy * (slope[a] + choose(held, one, zero));
            mean += p[a] * slope[a];
        }
        vec inner = zero;
        for (int a = 0; a < A; a++) {
            if (by.mask_after) slope[a] = open[a] * (slope[a] - mean) / scale;
            slope[a] *= rest;
            inner += choose(soft[a] > zero, soft[a] * slope[a], zero);
        }
        for (int a = 0; a < A; a++) {
            const vec d = soft[a] * (slope[a] - inner) * heat;
            const vec kept = choose(in & (ivec)(soft[a] != zero), d, zero);
            for (int i = 0; i < some; i++) dz[(row + i) * apart + a] = kept[i];
        }
    }
    if (!dz) return;
    float *sums = of->means + 5 * part;
    for (int i = 0; i < 4; i++) sums[i] += (float)(means[i] / (double)of->number);
    for (int i = 0; i < VL; i++)
        if (!(largest[i] <= sums[4])) sums[4] = largest[i];
}

/* The gradient of the mean of (v - y)², or with clip > 0 of the larger of that and of the square for
 * v kept within `clip` of its old value, times `weight`; adds to that mean. */
static void value_rows(const values_t *of, int part, int64_t first, int64_t rows, const float *values,
                       int apart, float *d) {
    const float each = of->number ? of->weight / (float)of->number : 0.0f, clip = of->clip;
    double sum = 0.0;
    for (int64_t i = 0; i < rows; i++) {
        const float value = values[i * apart], old = of->old[first + i], aim = of->targets[first + i];
        d[i * apart] = 0.0f;
        if (of->counts && !of->counts[first + i]) continue;
        const float error = value - aim;
        float square = error * error, slope = 2.0f * error;
        if (clip > 0.0f) {
            const float moved = value - old;
            const int within = moved >= -clip && moved <= clip;
            const float near = old + (moved > clip ? clip : moved < -clip ? -clip : moved);
            const float other = (near - aim) * (near - aim);
            /* the larger one's slope; of equal ones half of each, as torch has it */
            const float bound = within ? 2.0f * (near - aim) : 0.0f;
            slope = other > square ? bound : other == square ? 0.5f * (slope + bound) : slope;
            square = other > square ? other : square;
        }
        sum += square;
        d[i * apart] = slope * each;
    }
    of->mean[part] += (float)(sum / (double)of->number);
}

/* z [rows,A] -> log p of the actions taken and the entropies, [rows] (or NULL), dz [rows,A] (or
 * NULL) and the means. */
void ppo_policy(const policy_t *of, int64_t rows, const float *z, float *log_probs,
                float *entropies, float *dz) {
    policy_rows(of, 0, 0, rows, z, of->A, log_probs, entropies, dz);
}

void ppo_values(const values_t *of, int64_t rows, const float *values, float *d) {
    value_rows(of, 0, 0, rows, values, 1, d);
}

/* ---- as losses of a recurrent network's outputs: see gru_fit -------------------------------- */

void ppo_policy_block(const void *of, int part, block_t block, const float *y, float *dy) {
    const policy_t *policy = of;
    const int A = policy->A;
    for (int t = 0; t < block.T; t++)
        policy_rows(policy, part, block.from[t], block.rows[t], y + block.at[t] * A, A, NULL, NULL,
                    dy + block.at[t] * A);
}

void ppo_values_block(const void *of, int part, block_t block, const float *y, float *dy) {
    for (int t = 0; t < block.T; t++)
        value_rows(of, part, block.from[t], block.rows[t], y + block.at[t], 1, dy + block.at[t]);
}

/* Both side by side: the policy's outputs, then the value. */
typedef struct {
    const policy_t *policy;
    const values_t *values;
} both_t;

void ppo_both_block(const void *of, int part, block_t block, const float *y, float *dy) {
    const both_t *both = of;
    const int A = both->policy->A, apart = A + 1;
    for (int t = 0; t < block.T; t++) {
        const int64_t from = block.from[t], rows = block.rows[t], at = block.at[t] * apart;
        policy_rows(both->policy, part, from, rows, y + at, apart, NULL, NULL, dy + at);
        value_rows(both->values, part, from, rows, y + at + A, apart, dy + at + A);
    }
}
