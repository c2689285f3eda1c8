/* A product of packed matrices from the kernels' own tiles, large enough that nothing else counts:
 * what a core can do at most. */
#include <stdlib.h>

#include "../omg/modules/kernels/tiles.h"

/* Floating-point operations of `repeats` products [96,256] x [256,192]; the numbers do not matter. */
double peak_operations(int repeats) {
    enum { ROWS = 96, K = 256, WIDTH = 192 };
    float *d = calloc(ROWS * K, sizeof(float)), *w = calloc(K * WIDTH, sizeof(float));
    float *out = calloc(ROWS * WIDTH, sizeof(float));
    if (!d || !w || !out) abort();
    for (int i = 0; i < repeats; i++) product(ROWS, K, WIDTH, w, d, K, out, WIDTH, 1);
    const double made = out[0] == 0.0f ? 2.0 * ROWS * K * WIDTH * repeats : 0.0;
    free(d), free(w), free(out);
    return made;
}
