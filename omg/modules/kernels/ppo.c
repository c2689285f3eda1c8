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

#include "vector.h"

#define TINY 1e-30f /* probabilities below are as good as zero; their logarithm stays finite */

typedef struct {
    float temperature, share;
    int mask_after; /* the second form of p */
    float clip, entropy_coef;
} policy_t;

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
INLINE vec distribution(int A, policy_t by, const vec *z, const vec *avail, vec *soft, vec *p) {
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

/* Floats of `work`. */
int64_t ppo_work_size(int A) { return 5LL * A * VL; }

/* z [rows,A], avail [rows,A], actions [rows] -> log p of the actions and the entropy, [rows]. With
 * `dz` [rows,A]: the gradient of the loss, and `sums`: means of the surrogate, the entropy,
 * ρ - 1 - ln ρ and of |ρ - 1| > clip, and the largest ρ. */
void ppo_policy(int64_t rows, int A, const float *z, const uint8_t *avail, const int64_t *actions,
                const uint8_t *counts, const float *old, const float *gains, float temperature,
                float share, int mask_after, float clip, float entropy_coef, float *log_probs,
                float *entropies, float *dz, float *sums, float *work) {
    const policy_t by = {temperature, share, mask_after && share != 0.0f, clip, entropy_coef};
    const vec zero = splat(0.0f), one = splat(1.0f), heat = splat(1.0f / temperature);
    vec *logits = (vec *)work, *open = logits + A, *soft = open + A, *p = soft + A, *slope = p + A;
    const int64_t number = counted(rows, counts);
    const vec each = splat(number ? 1.0f / (float)number : 0.0f);
    double means[4] = {0};
    vec largest = splat(-INFINITY);
    for (int64_t row = 0; row < rows; row += VL) {
        const int some = rows - row < VL ? (int)(rows - row) : VL;
        vec taken = zero, chosen = zero;
        for (int a = 0; a < A; a++) {
            logits[a] = heat * column(z + row * A + a, some, A, 0.0f);
            open[a] = flags(avail + row * A + a, some, A, 1.0f);
        }
        for (int i = 0; i < some; i++) chosen[i] = (float)actions[row + i];
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
        vec counting = counts ? flags(counts + row, some, 1, 0.0f) : zero;
        for (int i = 0; !counts && i < some; i++) counting[i] = 1.0f;
        const ivec in = (ivec)(counting > zero);
        const vec gain = column(gains + row, some, 1, 0.0f);
        const vec log_ratio = choose(in, taken - column(old + row, some, 1, 0.0f), zero);
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
        const vec by_entropy = splat(entropy_coef) * each, rest = splat(1.0f - by.share);
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
            for (int i = 0; i < some; i++) dz[(row + i) * A + a] = kept[i];
        }
    }
    if (!dz) return;
    for (int i = 0; i < 4; i++) sums[i] = (float)(means[i] / (double)number);
    sums[4] = largest[0];
    for (int i = 1; i < VL; i++)
        if (!(largest[i] <= sums[4])) sums[4] = largest[i];
}

/* values, old, targets [rows] -> d [rows], the gradient of the mean of (v - y)², or with clip > 0
 * of the larger of that and of the square for v kept within `clip` of its old value; that mean. */
float ppo_values(int64_t rows, const float *values, const float *old, const float *targets,
                 const uint8_t *counts, float clip, float *d) {
    const int64_t number = counted(rows, counts);
    const float each = number ? 1.0f / (float)number : 0.0f;
    double sum = 0.0;
    for (int64_t i = 0; i < rows; i++) {
        d[i] = 0.0f;
        if (counts && !counts[i]) continue;
        const float error = values[i] - targets[i];
        float square = error * error, slope = 2.0f * error;
        if (clip > 0.0f) {
            const float moved = values[i] - old[i];
            const int within = moved >= -clip && moved <= clip;
            const float near = old[i] + (moved > clip ? clip : moved < -clip ? -clip : moved);
            const float other = (near - targets[i]) * (near - targets[i]);
            /* the larger one's slope; of equal ones half of each, as torch has it */
            const float bound = within ? 2.0f * (near - targets[i]) : 0.0f;
            slope = other > square ? bound : other == square ? 0.5f * (slope + bound) : slope;
            square = other > square ? other : square;
        }
        sum += square;
        d[i] = slope * each;
    }
    return (float)(sum / (double)number);
}
