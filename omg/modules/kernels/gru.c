/* The calls of the recurrent kernel (gru.h): forward, backward, and both with a loss between them;
 * and of single steps from the states of a pass (branches.h).
 *
 * Rows are packed: step t has sizes[t] rows (never more than step t-1) and begins at row offsets[t];
 * P is the sum of all sizes, R = sizes[0]. A part of the blocks is a thread's. Which blocks are in
 * it depends only on R and `parts`, and every part sums its own weight gradients, so a result does
 * not depend on how threads are scheduled. */
#include <stdlib.h>

#include "branches.h"
#include "gru.h"
#include "parts.h"

#define LOCAL 640000 /* bytes that a block of gru_fit may keep, so that they stay in the cache */

int gru_lanes(void) { return VL; }
int gru_most_together(void) { return BLOCK; } /* rows of a group of gru_fit */

/* Whether `sizes` never grow, begin with R and add up to P. */
int gru_packed_rows(int T, const int64_t *sizes, int64_t P, int64_t R) {
    int64_t sum = 0;
    for (int t = 0; t < T; t++) {
        if (sizes[t] < 1 || (t && sizes[t] > sizes[t - 1])) return 0;
        sum += sizes[t];
    }
    return T > 0 && sizes[0] == R && sum == P;
}

/* h0, or NULL where it is zeros: a product less. */
static const float *unless_zeros(int64_t count, const float *h0) {
    for (int64_t i = 0; i < count; i++)
        if (h0[i] != 0.0f) return h0;
    return NULL;
}

/* Rows of a block: enough blocks for every part to have two, as later blocks have shorter rows. */
static int block_rows(int R, int parts) {
    int rows = R / (2 * parts) / MR * MR;
    return rows < 2 * MR ? 2 * MR : rows > BLOCK ? BLOCK : rows;
}

/* The n-th block of a part: there and back again, so that all parts get long and short rows. */
static int block_of(int part, int parts, int n) {
    return n * parts + (n % 2 ? parts - 1 - part : part);
}

/* The `size` rows from `first` on; `local`: what is kept of them lies together. Steps that none
 * of them reaches do not count. */
static block_t make_block(int T, const int64_t *sizes, int first, int size, int local,
                          int64_t *places) {
    int64_t *rows = places, *from = rows + T, *at = from + T, offset = 0, kept = 0;
    int t = 0;
    for (; t < T && first < sizes[t]; t++) {
        rows[t] = smaller(size, (int)sizes[t] - first);
        from[t] = offset + first;
        at[t] = local ? kept : from[t];
        offset += sizes[t], kept += rows[t];
    }
    return (block_t){t, rows, from, at};
}

/* A call in parts: its rows, the blocks that they are cut into, and a place of each part for where
 * a block's rows lie, [parts][3T], and for `room` floats. Not on the stack: nothing bounds T. */
typedef struct {
    widths_t w;
    const int64_t *sizes;
    int T, parts, size, blocks;
    int64_t *lie;
    float *room;
} cut_t;

static cut_t cut_of(widths_t w, int T, const int64_t *sizes, int parts, int size, size_t room) {
    const size_t each = (size_t)3 * T;
    int64_t *lie = malloc((each * sizeof(int64_t) + room * sizeof(float)) * parts);
    return (cut_t){w, sizes, T, parts, size, ((int)sizes[0] + size - 1) / size, lie,
                   lie ? (float *)(lie + each * parts) : NULL};
}

/* The n-th block of a part. */
static block_t nth_block(const cut_t *cut, int part, int n, int local) {
    const int first = block_of(part, cut->parts, n) * cut->size;
    int64_t *lie = cut->lie + (size_t)3 * cut->T * part;
    return make_block(cut->T, cut->sizes, first, cut->size, local, lie);
}

typedef struct {
    cut_t cut;
    packed_t weights;
    const float *x, *h0;
    float *u, *out, *saved, *y, *products;
} forward_t;

static void forward_part(const void *told, int part) {
    const forward_t f = *(const forward_t *)told;
    const widths_t w = f.cut.w;
    float *inner = f.cut.room + (size_t)part * BLOCK * w.F;
    for (int n = 0; n * f.cut.parts < f.cut.blocks; n++) {
        const block_t b = nth_block(&f.cut, part, n, 0);
        for (int t = 0; t < b.T; t++) {
            const int64_t now = b.at[t];
            const float *h = t ? f.out + b.at[t - 1] * w.H : f.h0 ? f.h0 + now * w.H : NULL;
            forward_step(w, &f.weights, (int)b.rows[t], f.x + now * w.I, h,
                         t && f.products ? f.products + b.at[t - 1] * 3 * w.H : NULL,
                         f.u ? f.u + now * w.F : NULL, inner, f.out + now * w.H,
                         f.saved ? f.saved + now * 4 * w.H : NULL, f.y + now * w.A);
            if (f.products && t + 1 < b.T)
                state_products(w, &f.weights, (int)b.rows[t + 1], f.out + now * w.H,
                               f.products + now * 3 * w.H);
        }
    }
}

/* x [P,I], h0 [R,H], packed weights -> out [P,H], y [P,A]; u [P,F] and saved [P,4H] where the
 * backward pass will follow, else NULL; products [P,3H] where branches will, else NULL: of the rows
 * that others follow. -1: without memory, as of the calls below. */
int gru_forward(int T, const int64_t *sizes, int I, int F, int H, int A, int parts, const float *x,
                const float *h0, const float *packed, float *u, float *out, float *saved, float *y,
                float *products) {
    const widths_t w = {I, F, H, A};
    const int size = block_rows((int)sizes[0], parts);
    const forward_t told = {cut_of(w, T, sizes, parts, size, (size_t)BLOCK * F), places(w, packed), x,
                            unless_zeros(sizes[0] * H, h0), u, out, saved, y, products};
    if (!told.cut.lie) return -1;
    in_parts(parts, parts, forward_part, &told);
    free(told.cut.lie);
    return 0;
}

typedef struct {
    cut_t cut;
    turned_t weights;
    rows_t of;
    float *scratch;
} backward_t;

static void backward_part(const void *told, int part) {
    const backward_t *back = told;
    const cut_t *cut = &back->cut;
    work_t at = clean_work(cut->w, back->scratch, part);
    for (int n = 0; n * cut->parts < cut->blocks; n++) {
        const block_t b = nth_block(cut, part, n, 0);
        if (b.T) backward_block(cut->w, back->weights, &back->of, &at, b);
    }
    sum_gathered(cut->w, &at, 1);
}

/* dy [P,A], dout [P,H] or NULL (zeros) -> dx [P,I] and dh0 [R,H] (or NULL) and `grads`, the
 * gradients of the weights. */
int gru_backward(int T, const int64_t *sizes, int I, int F, int H, int A, int parts, const float *dy,
                 const float *dout, const float *x, const float *h0, const float *packed,
                 const float *u, const float *out, const float *saved, float *dx, float *dh0,
                 float *const *grads, float *scratch) {
    const widths_t w = {I, F, H, A};
    const backward_t told = {
        cut_of(w, T, sizes, parts, block_rows((int)sizes[0], parts), 0), turned_places(w, packed),
        {dy, dout, x, u, out, saved, unless_zeros(sizes[0] * H, h0), dx, dh0}, scratch};
    if (!told.cut.lie) return -1;
    in_parts(parts, parts, backward_part, &told);
    gather_sums(w, parts, scratch, grads);
    free(told.cut.lie);
    return 0;
}

/* A loss of the outputs y of one block: dy becomes its gradient. Rows count from `from` among all
 * packed ones and from `at` in y and dy. `part`: to sum in a place of its own. */
typedef void (*loss_t)(const void *of, int part, block_t block, const float *y, float *dy);

/* Rows of a block whose kept values fit into LOCAL, in whole groups of rows; what is kept a row. */
static int kept_width(widths_t w) { return w.F + 5 * w.H + 2 * w.A; }
static int fit_rows(widths_t w, int T, int R, int parts, int group) {
    const int fitting = LOCAL / (int)sizeof(float) / kept_width(w) / T;
    const int most = smaller(block_rows(R, parts), fitting < 2 * MR ? 2 * MR : fitting / MR * MR);
    const int rows = most < group ? group : most / group * group, together = rows * parts;
    if (parts == 1) return rows;
    const int blocks = (R + together - 1) / together * parts; /* as many for every part */
    const int even = (R + blocks - 1) / blocks;
    return (even + group - 1) / group * group;
}

int64_t gru_fit_scratch_size(int T, int R, int I, int F, int H, int A, int parts, int group) {
    const widths_t w = {I, F, H, A};
    return parts * (work_size(w) + (int64_t)fit_rows(w, T, R, parts, group) * T * kept_width(w));
}

typedef struct {
    cut_t cut;
    packed_t weights, target;
    turned_t turned;
    loss_t loss;
    const void *loss_of;
    const float *x;
    float *dx, *aims, *scratch;
} fit_t;

static void fit_part(const void *told, int part) {
    const fit_t *f = told;
    const cut_t *cut = &f->cut;
    const widths_t w = cut->w;
    const size_t most = (size_t)cut->size * cut->T;
    work_t at = clean_work(w, f->scratch, part);
    float *kept = f->scratch + cut->parts * work_size(w);
    float *u = kept + part * most * kept_width(w), *out = u + most * w.F;
    float *saved = out + most * w.H, *y = saved + most * 4 * w.H, *dy = y + most * w.A;
    const rows_t of = {dy, NULL, f->x, u, out, saved, NULL, f->dx, NULL};
    for (int n = 0; n * cut->parts < cut->blocks; n++) {
        const block_t b = nth_block(cut, part, n, 1);
        if (!b.T) continue;
        for (int online = !f->aims; online < 2; online++)
            for (int t = 0; t < b.T; t++) {
                const int64_t now = b.at[t];
                forward_step(w, online ? &f->weights : &f->target, (int)b.rows[t],
                             f->x + b.from[t] * w.I, t ? out + b.at[t - 1] * w.H : NULL, NULL,
                             w.F ? u + now * w.F : NULL, NULL, out + now * w.H,
                             online ? saved + now * 4 * w.H : NULL,
                             online ? y + now * w.A : f->aims + b.from[t] * w.A);
            }
        f->loss(f->loss_of, part, b, y, dy);
        backward_block(w, f->turned, &of, &at, b);
    }
    sum_gathered(w, &at, 1);
}

/* Forward, `loss` and backward, block by block, so that nothing of a block leaves the cache; states
 * begin at zero. x [P,I] -> dx [P,I] (or NULL) and `grads`. A block holds whole groups of rows,
 * which have at most BLOCK. aims [P,A], or NULL: the outputs of a second network of the same widths,
 * which a block gets before its loss is asked for; packed_target are that one's weights. */
int gru_fit(int T, const int64_t *sizes, int I, int F, int H, int A, int parts, int group,
            const float *x, const float *packed, const float *packed_back,
            const float *packed_target, loss_t loss, const void *loss_of, float *dx, float *aims,
            float *const *grads, float *scratch) {
    const widths_t w = {I, F, H, A};
    const int size = fit_rows(w, T, (int)sizes[0], parts, group);
    const fit_t told = {cut_of(w, T, sizes, parts, size, 0), places(w, packed),
                        places(w, aims ? packed_target : packed), turned_places(w, packed_back),
                        loss, loss_of, x, dx, aims, scratch};
    if (!told.cut.lie) return -1;
    in_parts(parts, parts, fit_part, &told);
    gather_sums(w, parts, scratch, grads);
    free(told.cut.lie);
    return 0;
}

int64_t gru_branches_scratch_size(const branches_t *of, int parts) {
    return (int64_t)(of->V * of->F + parts * branch_work_size(of));
}

typedef struct {
    const branches_t *of;
    packed_t weights;
    int parts, kinds, size; /* branches of a row, and rows, that a block has */
    float *scratch;
} branching_t;

static void table_block(const void *told, int block) {
    const branching_t *b = told;
    const branches_t *of = b->of;
    const int64_t first = (int64_t)block * BLOCK;
    input_part(widths_of(of), &b->weights, of->I, of->J,
               (int)(of->V - first < BLOCK ? of->V - first : BLOCK), of->table + first * of->J,
               NULL, of->own + first * of->F);
}

static void branches_part(const void *told, int part) {
    const branching_t *b = told;
    const branches_t *of = b->of;
    const int64_t blocks = (of->R + b->size - 1) / b->size;
    branch_work_t at = branch_places(of, b->scratch + part * branch_work_size(of));
    for (int64_t i = blocks * part / b->parts; i < blocks * (part + 1) / b->parts; i++)
        for (int kind = 0; kind < of->E; kind += b->kinds)
            branch_block(of, &b->weights, (int)i * b->size,
                         smaller(b->size, of->R - (int)i * b->size), kind,
                         smaller(b->kinds, of->E - kind), &at);
}

/* Outputs of all branches; those that are not wanted are left as they are. -1: one is of rows that
 * there are not. */
int gru_branches(branches_t *of, int parts, const float *packed, float *scratch) {
    const int kinds = smaller(of->E, TOGETHER), fitting = TOGETHER / kinds;
    const int size = fitting < MR ? fitting : fitting / MR * MR;
    const branching_t told = {of,   places(widths_of(of), packed), parts, kinds,
                              size, scratch + of->V * of->F};
    for (int64_t i = 0; i < of->R; i++)
        if (of->at[i] < 0 || of->at[i] >= of->P || of->state[i] < -1 || of->state[i] >= of->S)
            return -1;
    for (int64_t i = 0; i < (int64_t)of->R * of->E; i++)
        if (of->places[i] < -1 || of->places[i] >= of->V) return -1;
    of->own = scratch;
    in_parts(parts, (int)((of->V + BLOCK - 1) / BLOCK), table_block, &told);
    in_parts(parts, parts, branches_part, &told);
    return 0;
}
