/* What the kernels share: vectors of VL floats, tiles of MR rows, e^x, sigmoid and tanh. */
#ifndef OMG_VECTOR_H
#define OMG_VECTOR_H

#include <stddef.h>
#include <stdint.h>
#if defined(__AVX2__) || defined(__FMA__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__) || defined(WIDE) /* WIDE: in tests, on any machine */
#define VL 16
#define MR 8
#else
#define VL 8
#define MR 4
#endif
#define BLOCK 32 /* rows that go through a panel of weights while it is hot */

typedef float vec __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(VL * 4), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))
#define LOAD(p) (*(const vec *)(p))
#define STORE(p, v) (*(vec *)(p) = (v))

/* One value in all places; written out, because compilers turn a loop into shuffles. */
INLINE vec splat(float x) {
#if VL == 16
    return (vec){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
#else
    return (vec){x, x, x, x, x, x, x, x};
#endif
}

INLINE vec choose(ivec mask, vec a, vec b) {
    return (vec)((mask & (ivec)a) | (~mask & (ivec)b));
}

/* c + a b, rounded once where the processor can. Written out: where it is left to the compiler, one that is tuned for some AMD
 * processors fuses in one tile and not in another, and a row's bits depend on the rows beside it. */
INLINE vec fused(vec c, vec a, vec b) {
#if VL == 16 && defined(__AVX512F__)
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif VL == 8 && defined(__FMA__)
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return c + a * b;
#endif
}

/* The smaller and the larger of x and a limit; what is not a number stays so. */
INLINE vec at_most(vec x, float limit) {
#if VL == 16 && defined(__AVX512F__)
    return (vec)_mm512_min_ps((__m512)splat(limit), (__m512)x);
#elif VL == 8 && defined(__AVX2__)
    return (vec)_mm256_min_ps((__m256)splat(limit), (__m256)x);
#else
    return choose(x > splat(limit), splat(limit), x);
#endif
}

INLINE vec at_least(vec x, float limit) {
#if VL == 16 && defined(__AVX512F__)
    return (vec)_mm512_max_ps((__m512)splat(limit), (__m512)x);
#elif VL == 8 && defined(__AVX2__)
    return (vec)_mm256_max_ps((__m256)splat(limit), (__m256)x);
#else
    return choose(x < splat(limit), splat(limit), x);
#endif
}

/* 1 / x: an estimate of 12 bits or more and one step of Newton's, relative error about 1e-7. */
INLINE vec inverse(vec x) {
#if VL == 16 && defined(__AVX512F__)
    const vec y = (vec)_mm512_rcp14_ps((__m512)x);
    return y * (splat(2.0f) - x * y);
#elif VL == 8 && defined(__AVX2__)
    const vec y = (vec)_mm256_rcp_ps((__m256)x);
    return y * (splat(2.0f) - x * y);
#else
    return splat(1.0f) / x;
#endif
}

/* 2^x, relative error about 1e-7; x between -126 and 126. */
INLINE vec vexp2_within(vec x) {
    const vec magic = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    vec k = x + magic;
    const ivec whole = (ivec)k << 23;
    k -= magic;
    const vec r = x - k;
    vec p = splat(1.5403530e-4f); /* ln 2^i / i! */
    p = p * r + splat(1.3333558e-3f);
    p = p * r + splat(9.6181291e-3f);
    p = p * r + splat(5.5504109e-2f);
    p = p * r + splat(2.4022651e-1f);
    p = p * r + splat(6.9314718e-1f);
    p = p * r + splat(1.0f);
    return (vec)((ivec)p + whole);
}

/* e^x, relative error about 1e-7; x between -87 and 87. */
INLINE vec vexp_within(vec x) {
    const vec magic = splat(12582912.0f);
    vec k = x * splat(1.44269504089f) + magic;
    const ivec whole = (ivec)k << 23;
    k -= magic;
    vec r = x - k * splat(0.693359375f);
    r -= k * splat(-2.12194440e-4f);
    vec p = splat(1.0f / 720.0f);
    p = p * r + splat(1.0f / 120.0f);
    p = p * r + splat(1.0f / 24.0f);
    p = p * r + splat(1.0f / 6.0f);
    p = p * r + splat(0.5f);
    p = p * r + splat(1.0f);
    p = p * r + splat(1.0f);
    return (vec)((ivec)p + whole);
}

/* e^x with x clamped to ±40, where products of two results are finite and a sigmoid has long been 0
 * or 1. */
INLINE vec vexp(vec x) { return vexp_within(at_least(at_most(x, 40.0f), -40.0f)); }

/* ln x of positive normal x, relative error about 1e-7; what is not a number stays so. */
INLINE vec vlog(vec x) {
    const ivec bits = (ivec)x, half = (ivec)splat(0.70710678f);
    const ivec exponent = (bits - half) >> 23; /* x = 2^exponent m with m from √½ to √2 */
    const vec f = (vec)(bits - (exponent << 23)) - splat(1.0f);
    vec p = splat(7.0376836292e-2f);
    p = p * f + splat(-1.1514610310e-1f);
    p = p * f + splat(1.1676998740e-1f);
    p = p * f + splat(-1.2420140846e-1f);
    p = p * f + splat(1.4249322787e-1f);
    p = p * f + splat(-1.6668057665e-1f);
    p = p * f + splat(2.0000714765e-1f);
    p = p * f + splat(-2.4999993993e-1f);
    p = p * f + splat(3.3333331174e-1f);
    const vec e = __builtin_convertvector(exponent, vec), square = f * f;
    return (x - x) + e * splat(0.693359375f) +
           (f + (p * f * square - (splat(0.5f) * square + e * splat(2.12194440e-4f))));
}

/* 1 / (1 + e^-x) and 1 / (1 + e^-y) with one division. */
INLINE void vsigmoid2(vec x, vec y, vec *sx, vec *sy) {
    const vec one = splat(1.0f), ex = one + vexp(-x), ey = one + vexp(-y);
    const vec both = inverse(ex * ey);
    *sx = both * ey;
    *sy = both * ex;
}

INLINE vec vsigmoid(vec x) { return inverse(splat(1.0f) + vexp(-x)); }
INLINE vec vtanh(vec x) { return splat(2.0f) * vsigmoid(splat(2.0f) * x) - splat(1.0f); }

/* Gates of a GRU whose sums were multiplied by -log2 e (r and z) and by -2 log2 e (n), so that no
 * exponent needs a product: 1 / (1 + 2^x) twice with one division, and 2 / (1 + 2^x) - 1. */
#define LOG2E 1.44269504f
INLINE vec vgate_power(vec x) {
    return splat(1.0f) + vexp2_within(at_least(at_most(x, 58.0f), -58.0f));
}
INLINE void vgates(vec x, vec y, vec *sx, vec *sy) {
    const vec ex = vgate_power(x), ey = vgate_power(y), both = inverse(ex * ey);
    *sx = both * ey;
    *sy = both * ex;
}
INLINE vec vgate_tanh(vec x) {
    return splat(2.0f) * inverse(vgate_power(x)) - splat(1.0f);
}

/* Keeps a vector in a register, where the compiler would load it again for every row. */
#if (VL == 8 && defined(__AVX__)) || defined(__AVX512F__)
#define PIN(v) __asm__("" : "+x"(v))
#else
#define PIN(v)
#endif

#endif
