/* The parts of a call on several threads. What a part computes must depend on its number only, not
 * on who computes it. The pool of threads is parts.c, one for all kernels: Python hands it over when
 * it loads a kernel. Without it a call computes its parts alone. */
#ifndef OMG_PARTS_H
#define OMG_PARTS_H

typedef void (*part_t)(const void *told, int part);

/* run(told, 0 … parts - 1) on up to `threads` threads; returns when all are done. */
typedef void (*in_parts_t)(int threads, int parts, part_t run, const void *told);

static void parts_alone(int threads, int parts, part_t run, const void *told) {
    (void)threads;
    for (int part = 0; part < parts; part++) run(told, part);
}

static in_parts_t in_parts = parts_alone;
void use_pool(in_parts_t pool) { in_parts = pool; }

#endif
