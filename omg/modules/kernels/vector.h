/* What the kernels share: vectors of VL floats, tiles of MR rows, e^x, sigmoid and tanh. */
#ifndef OMG_VECTOR_H
#define OMG_VECTOR_H

#include <stddef.h>
#include <stdint.h>

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

/* e^x, relative error about 1e-7; x is clamped to ±40, where products of two results are finite
 * and a sigmoid has long been 0 or 1. */
INLINE vec vexp(vec x) {
    const vec hi = splat(40.0f), lo = splat(-40.0f);
    x = choose(x > hi, hi, x);
    x = choose(x < lo, lo, x);
    const vec magic = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    vec k = x * splat(1.44269504089f) + magic;
    ivec whole = (ivec)k << 23;
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

/* 1 / (1 + e^-x) and 1 / (1 + e^-y) with one division. */
INLINE void vsigmoid2(vec x, vec y, vec *sx, vec *sy) {
    const vec one = splat(1.0f), ex = one + vexp(-x), ey = one + vexp(-y);
    const vec inverse = one / (ex * ey);
    *sx = inverse * ey;
    *sy = inverse * ex;
}

INLINE vec vsigmoid(vec x) { return splat(1.0f) / (splat(1.0f) + vexp(-x)); }
INLINE vec vtanh(vec x) { return splat(2.0f) * vsigmoid(splat(2.0f) * x) - splat(1.0f); }

/* Keeps a vector in a register, where the compiler would load it again for every row. */
#if (VL == 8 && defined(__AVX__)) || defined(__AVX512F__)
#define PIN(v) __asm__("" : "+x"(v))
#else
#define PIN(v)
#endif

#endif
