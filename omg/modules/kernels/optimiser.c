/* Clipping and one optimiser step over all parameters in one call; arrays of pointers, one entry
 * per parameter. The formulas are torch's, without weight decay, momentum and amsgrad. */
#include <math.h>
#include <stdint.h>

#define TABLE float *const *restrict

/* The norm of all gradients together; they are scaled down where it is above `limit`. */
float clip_gradients(int count, TABLE grads, const int64_t *sizes, float limit) {
    double total = 0.0;
    for (int n = 0; n < count; n++) {
        const float *g = grads[n];
        float parts[16] = {0};
        int64_t i = 0;
        for (; i + 16 <= sizes[n]; i += 16)
            for (int k = 0; k < 16; k++) parts[k] += g[i + k] * g[i + k];
        for (; i < sizes[n]; i++) parts[0] += g[i] * g[i];
        for (int k = 0; k < 16; k++) total += parts[k];
    }
    const float norm = (float)sqrt(total), share = limit / (norm + 1e-6f);
    if (!(share >= 1.0f)) /* also when it is not a number */
        for (int n = 0; n < count; n++) {
            float *g = grads[n];
            for (int64_t i = 0; i < sizes[n]; i++) g[i] *= share;
        }
    return norm;
}

/* `steps` holds a counter for each parameter, as a float. */
void adam_step(int count, TABLE params, TABLE grads, TABLE means, TABLE squares, TABLE steps,
               const int64_t *sizes, double lr, double beta1, double beta2, double eps) {
    const float keep1 = (float)beta1, keep2 = (float)beta2, small = (float)eps;
    const float new1 = (float)(1.0 - beta1), new2 = (float)(1.0 - beta2);
    for (int n = 0; n < count; n++) {
        const double step = *steps[n] += 1.0f;
        const float rate = (float)(lr / (1.0 - pow(beta1, step)));
        const float root = (float)(1.0 / sqrt(1.0 - pow(beta2, step)));
        float *restrict p = params[n], *restrict m = means[n], *restrict v = squares[n];
        const float *restrict g = grads[n];
        for (int64_t i = 0; i < sizes[n]; i++) {
            m[i] = keep1 * m[i] + new1 * g[i];
            v[i] = keep2 * v[i] + new2 * g[i] * g[i];
            p[i] -= rate * m[i] / (sqrtf(v[i]) * root + small);
        }
    }
}

void rmsprop_step(int count, TABLE params, TABLE grads, TABLE squares, TABLE steps,
                  const int64_t *sizes, double lr, double alpha, double eps) {
    const float keep = (float)alpha, fresh = (float)(1.0 - alpha);
    const float rate = (float)lr, small = (float)eps;
    for (int n = 0; n < count; n++) {
        *steps[n] += 1.0f;
        float *restrict p = params[n], *restrict v = squares[n];
        const float *restrict g = grads[n];
        for (int64_t i = 0; i < sizes[n]; i++) {
            v[i] = keep * v[i] + fresh * g[i] * g[i];
            p[i] -= rate * g[i] / (sqrtf(v[i]) + small);
        }
    }
}
