/* One step of rows of several members, each with its own weights (as in stacked.h). Rows are sorted
 * by member here; a member's weights are read once per BLOCK rows, in the order in which they lie, so
 * that reading them is a stream. */
#include "parts.h"
#include "stacked.h"

int stacked_lanes(void) { return VL; }
int stacked_max_hidden(void) { return MAX_HIDDEN; }

/* Weights as torch keeps them ([out][in]) to the order of stacked.h: fc1, w_ih, w_hh, b_ih, b_hh and
 * fc2, each layer a weight and a bias. */
void stacked_pack(int64_t I, int64_t H, int64_t A, const float *const *from, float *to) {
    const float *w1 = from[0], *b1 = from[1], *wi = from[2], *wh = from[3];
    const float *bi = from[4], *bh = from[5], *w2 = from[6], *b2 = from[7];
    for (int64_t unit = 0; unit < H; unit += 2 * VL) {
        for (int j = 0; j < 2 * VL; j++) *to++ = b1[unit + j];
        for (int64_t k = 0; k < I; k++)
            for (int j = 0; j < 2 * VL; j++) *to++ = w1[(unit + j) * I + k];
    }
    for (int64_t unit = 0; unit < H; unit += VL) {
        for (int64_t g = 0; g < 2; g++)
            for (int j = 0; j < VL; j++)
                *to++ = (bi[g * H + unit + j] + bh[g * H + unit + j]) * -LOG2E;
        for (int j = 0; j < VL; j++) *to++ = bi[2 * H + unit + j] * (-2.0f * LOG2E);
        for (int j = 0; j < VL; j++) *to++ = bh[2 * H + unit + j] * (-2.0f * LOG2E);
        for (int which = 0; which < 2; which++) {
            const float *w = which ? wh : wi;
            for (int64_t k = 0; k < H; k++)
                for (int64_t g = 0; g < 3; g++)
                    for (int j = 0; j < VL; j++)
                        *to++ = w[(g * H + unit + j) * H + k] * (g < 2 ? -LOG2E : -2.0f * LOG2E);
        }
    }
    for (int64_t first = 0; first < A; first += VL) {
        for (int j = 0; j < VL; j++) *to++ = first + j < A ? b2[first + j] : 0.0f;
        for (int64_t k = 0; k < H; k++)
            for (int j = 0; j < VL; j++) *to++ = first + j < A ? w2[(first + j) * H + k] : 0.0f;
    }
}

/* One step of sorted rows, block by block: `blocks` holds a member, its first place in `order` and
 * the end of each. */
typedef struct {
    int I, H, A;
    int64_t size;
    const int *order, *blocks;
    const float *inputs, *before, *weights;
    float *outputs, *after;
} step_t;

static void step_block(const void *told, int block) {
    const step_t *s = told;
    const int I = s->I, H = s->H;
    float features[BLOCK * MAX_HIDDEN] __attribute__((aligned(64)));
    const int *span = s->blocks + 3 * block, rows = span[2] - span[1];
    Rows b;
    for (int i = 0; i < rows; i++) {
        const size_t row = s->order[span[1] + i];
        b.input[i] = s->inputs + row * I;
        b.before[i] = s->before + row * H;
        b.features[i] = features + (size_t)i * H;
        b.after[i] = s->after + row * H;
        b.output[i] = s->outputs + row * s->A;
    }
    const float *w = input_block(rows, I, H, s->weights + span[0] * s->size, &b);
    hidden_block(rows, H, s->A, w, &b);
}

/* inputs [R,I], members [R] (NULL: all rows are for the first), before [R,H], weights [K][size] ->
 * outputs [R,A], after [R,H]. Returns 0; -1 when a member does not exist; -2 without memory. */
int stacked_step(int R, int K, int I, int H, int A, int64_t size, int threads,
                 const int64_t *members, const float *inputs, const float *before,
                 const float *weights, float *outputs, float *after) {
    /* order [R]: rows sorted by member; ends [K]; blocks [R][3]: member, first, end in order. */
    int *order = calloc((size_t)4 * R + K, sizeof(int));
    if (!order) return -2;
    int *blocks = order + R, *ends = order + 4 * (size_t)R, n_blocks = 0;
    for (int row = 0; row < R; row++) {
        if (!members) {
            ends[0] = R;
            break;
        }
        if (members[row] < 0 || members[row] >= K) {
            free(order);
            return -1;
        }
        ends[members[row]]++;
    }
    for (int member = 0, first = 0; member < K; member++) {
        const int rows = ends[member], pieces = (rows + BLOCK - 1) / BLOCK;
        for (int piece = 0; piece < pieces; piece++, n_blocks++) {
            blocks[3 * n_blocks] = member;
            blocks[3 * n_blocks + 1] = first + (int)((int64_t)rows * piece / pieces);
            blocks[3 * n_blocks + 2] = first + (int)((int64_t)rows * (piece + 1) / pieces);
        }
        ends[member] = first; /* grows to the end while rows are placed */
        first += rows;
    }
    for (int row = 0; row < R; row++) order[ends[members ? members[row] : 0]++] = row;
    const step_t told = {I, H, A, size, order, blocks, inputs, before, weights, outputs, after};
    in_parts(threads, n_blocks, step_block, &told);
    free(order);
    return 0;
}
