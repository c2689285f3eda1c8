/* Standard normal noise, and draws from Gaussians with it. The k-th number of the noise is a function
 * of a key and k alone, so it does not matter how many threads make it. Pair p, two hashes of p, is
 * made by Box and Muller's formula; pairs 16 j … 16 j + 15 are the numbers 32 j … 32 j + 31, first
 * the cosines. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "parts.h"
#include "vector.h"

typedef uint32_t uvec __attribute__((vector_size(VL * 4), aligned(4), may_alias));

/* The finaliser by C. Wellons ("lowbias32"): every bit of x changes every bit of it half the time. */
INLINE uvec mixed(uvec x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

INLINE vec vsqrt(vec x) {
#if VL == 16 && defined(__AVX512F__)
    return (vec)_mm512_sqrt_ps((__m512)x);
#elif VL == 8 && defined(__AVX2__)
    return (vec)_mm256_sqrt_ps((__m256)x);
#else
    for (int i = 0; i < VL; i++) x[i] = sqrtf(x[i]);
    return x;
#endif
}

/* sin and cos of 2π x, x from 0 to 1; absolute error about 1e-7. */
INLINE void vturn(vec x, vec *sine, vec *cosine) {
    const vec magic = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    const vec half = splat(2.0f) * x + magic;
    const ivec sign = (ivec)half << 31; /* of odd half turns */
    const vec t = x - splat(0.5f) * (half - magic), s = t * t; /* |t| at most 1/4 */
    vec p = splat(-15.094643f); /* ∓(2π)^i / i! */
    p = p * s + splat(42.058693f);
    p = p * s + splat(-76.705860f);
    p = p * s + splat(81.605249f);
    p = p * s + splat(-41.341702f);
    p = p * s + splat(6.2831853f);
    vec q = splat(7.9035363f);
    q = q * s + splat(-26.426256f);
    q = q * s + splat(60.244641f);
    q = q * s + splat(-85.456817f);
    q = q * s + splat(64.939394f);
    q = q * s + splat(-19.739209f);
    q = q * s + splat(1.0f);
    *sine = (vec)((ivec)(p * t) ^ sign);
    *cosine = (vec)((ivec)q ^ sign);
}

#define HALF 16 /* numbers that lie together: cosines or sines */

/* Numbers 32 group … 32 group + 31. */
static void make_group(const uint32_t *key, int64_t group, float *to) {
    for (int first = 0; first < HALF; first += VL) {
        uvec pair;
        for (int i = 0; i < VL; i++) pair[i] = (uint32_t)(HALF * group + first + i);
        const uvec both = mixed(pair + key[0]);
        const uvec one = mixed(both ^ key[1]) >> 8, two = mixed(both + key[2]) >> 8;
        const vec unit = splat(5.9604645e-8f); /* of 24 bits: from (0, 1] and from [0, 1) */
        const vec u = (__builtin_convertvector((ivec)one, vec) + splat(1.0f)) * unit;
        const vec size = vsqrt(splat(-2.0f) * vlog(u));
        vec sine, cosine;
        vturn(__builtin_convertvector((ivec)two, vec) * unit, &sine, &cosine);
        STORE(to + first, size * cosine);
        STORE(to + HALF + first, size * sine);
    }
}

/* Groups of numbers, cut into parts. */
typedef struct {
    const uint32_t *key;
    float *to;
    int64_t count, groups; /* the numbers that are wanted, or their halves of groups */
    int parts, G;
    const int64_t *rows;
    const float *mean, *log_var;
} making_t;

static void fill_part(const void *told, int part) {
    const making_t *m = told;
    const int64_t end = m->groups * (part + 1) / m->parts;
    for (int64_t group = m->groups * part / m->parts; group < end; group++) {
        float made[2 * HALF];
        const int64_t first = 2 * HALF * group, left = m->count - first;
        make_group(m->key, group, made);
        memcpy(m->to + first, made, sizeof(float) * (left < 2 * HALF ? left : 2 * HALF));
    }
}

/* All numbers below `count`. */
void noise_fill(int64_t count, int parts, const uint32_t *key, float *to) {
    const making_t told = {.key = key, .to = to, .count = count, .parts = parts,
                           .groups = (count + 2 * HALF - 1) / (2 * HALF)};
    in_parts(parts, parts, fill_part, &told);
}

static void draw_part(const void *told, int part) {
    const making_t *m = told;
    const int64_t wide = m->G / HALF, end = m->groups * (part + 1) / m->parts;
    for (int64_t group = m->groups * part / m->parts; group < end; group++) {
        float made[2 * HALF];
        make_group(m->key, group, made);
        for (int64_t half = 2 * group; half < 2 * group + 2 && half < m->count; half++) {
            const int64_t from = m->rows[half / wide] * m->G + half % wide * HALF;
            for (int i = 0; i < HALF; i += VL)
                STORE(m->to + half * HALF + i,
                      LOAD(m->mean + from + i) + vexp(splat(0.5f) * LOAD(m->log_var + from + i)) *
                                                     LOAD(made + half % 2 * HALF + i));
        }
    }
}

/* mean + exp(log_var / 2) noise of rows `rows` [P] of tables [V,G], G a multiple of HALF, into
 * to [P,G]. -1: a row is none of the V. */
int noise_draw(int64_t P, int64_t V, int G, int parts, const uint32_t *key, const int64_t *rows,
               const float *mean, const float *log_var, float *to) {
    const int64_t halves = P * (G / HALF);
    const making_t told = {key, to, halves, (halves + 1) / 2, parts, G, rows, mean, log_var};
    for (int64_t i = 0; i < P; i++)
        if (rows[i] < 0 || rows[i] >= V) return -1;
    in_parts(parts, parts, draw_part, &told);
    return 0;
}
