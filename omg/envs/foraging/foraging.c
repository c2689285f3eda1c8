/* Foraging of many copies: the same operations as Games in game.py in the same order, so that both
 * agree in every bit. No fast-math and no fused operations: see kernel.py. */

#include <stdint.h>
#include <string.h>

#define COL 16
#define FIELD 0xFFFF
#define MISSING ((int64_t)1 << 62)
#define N_ACTIONS 6
#define MAX_PLAYERS 64

/* The order of members is that of POINTERS, INTS and FLOATS in kernel.py. */
typedef struct {
  /* tables of the board, by code + action or by cell; columns [n * obs_dim] of the state */
  const int64_t *moves, *food_offset, *columns;
  const uint8_t *loads, *avail;
  const int16_t *empty;
  const float *rows_f, *cols_f;
  /* running games: [B,n], [B,n], [B,f], [B], [B,n]; by cell: code and food */
  int64_t *pos, *levels, *foods, *spawned;
  double *score;
  float *collected, *state;
  int16_t *code, *here;
  int64_t *field;
  int64_t n_copies, n_players, n_foods, n_cells, cols, state_dim, obs_dim, normalize;
  double penalty;
} Games;

int64_t foraging_struct_size(void) { return (int64_t)sizeof(Games); }
int64_t foraging_max_players(void) { return MAX_PLAYERS; }

/* Players go where nobody else wants to be; those who stay want their own cell. */
static void move(const Games *g, int64_t copy, const int64_t *actions) {
  const int64_t n = g->n_players, first = copy * n;
  int64_t wanted[MAX_PLAYERS];
  for (int64_t i = 0; i < n; i++)
    wanted[i] = g->pos[first + i] + g->moves[g->here[first + i] + actions[i]];
  float *players = g->state + copy * g->state_dim + 3 * g->n_foods;
  for (int64_t i = 0; i < n; i++) {
    int clash = 0;
    for (int64_t j = 0; j < n; j++) clash |= j != i && wanted[j] == wanted[i];
    if (!clash) g->pos[first + i] = wanted[i];
    const int64_t cell = g->pos[first + i] - copy * g->n_cells;
    players[3 * i] = g->rows_f[cell];
    players[3 * i + 1] = g->cols_f[cell];
  }
}

/* Takes one food away; the others of a copy stay in order. */
static void take_food(const Games *g, int64_t copy, int64_t at) {
  const int64_t cell = at - copy * g->n_cells, f = g->n_foods;
  const int64_t offsets[4] = {-g->cols, g->cols, -1, 1};
  const int64_t place = ((cell / g->cols + 1) << COL) + cell % g->cols + 1;
  int64_t *foods = g->foods + copy * f, kept = 0;
  g->field[at] = 0;
  for (int side = 0; side < 4; side++)
    g->code[at - offsets[side]] = g->empty[cell - offsets[side]];
  for (int64_t slot = 0; slot < f; slot++)
    if (foods[slot] >> COL != place) foods[kept++] = foods[slot];
  while (kept < f) foods[kept++] = MISSING;
}

static void show_foods(const Games *g, int64_t copy) {
  const int64_t *foods = g->foods + copy * g->n_foods;
  float *to = g->state + copy * g->state_dim;
  int64_t left = 0;
  for (int64_t slot = 0; slot < g->n_foods; slot++, to += 3) {
    to[0] = (float)((foods[slot] >> 2 * COL & FIELD) - 1);
    to[1] = (float)((foods[slot] >> COL & FIELD) - 1);
    to[2] = (float)(foods[slot] & FIELD);
    left += foods[slot] & FIELD;
  }
  const int64_t spawned = g->spawned[copy];
  g->collected[copy] = (float)((double)(spawned - left) / (double)(spawned > 1 ? spawned : 1));
}

/* Those who load lift what lies beside them, together or not at all. */
static void load(const Games *g, int64_t copy, const int64_t *actions, float *reward) {
  const int64_t n = g->n_players, first = copy * n;
  int64_t at[MAX_PLAYERS];
  uint64_t lifted = 0;
  for (int64_t i = 0; i < n; i++) {
    const int64_t here = g->here[first + i];
    at[i] = g->loads[here + actions[i]] ? g->pos[first + i] + g->food_offset[here] : -1;
    reward[i] = 0.0f;
  }
  for (int64_t i = 0; i < n; i++) {
    if (at[i] < 0) continue;
    int64_t strength = 0;
    for (int64_t j = 0; j < n; j++) strength += at[j] == at[i] ? g->levels[first + j] : 0;
    const int64_t food = g->field[at[i]];
    double gain = (double)(g->levels[first + i] * food);
    if (g->normalize) gain /= (double)(strength * g->spawned[copy]);
    if (strength < food) gain = 0.0 - g->penalty;
    else lifted |= (uint64_t)1 << i;
    reward[i] = (float)gain;
    g->score[first + i] += gain;
  }
  for (int64_t i = 0; i < n; i++)
    if (lifted >> i & 1) take_food(g, copy, at[i]);
  if (lifted) show_foods(g, copy);
}

/* Moves and loads in every copy, actions [B,n] -> reward [B,n]; then what players may do. -1: there
 * is no such action, and nothing was done. */
int foraging_act(const Games *g, const int64_t *actions, float *reward) {
  const int64_t n = g->n_players, rows = g->n_copies * n;
  for (int64_t i = 0; i < rows; i++)
    if (actions[i] < 0 || actions[i] >= N_ACTIONS) return -1;
  for (int64_t copy = 0; copy < g->n_copies; copy++) {
    move(g, copy, actions + copy * n);
    load(g, copy, actions + copy * n, reward + copy * n);
  }
  for (int64_t i = 0; i < rows; i++) g->here[i] = g->code[g->pos[i]];
  return 0;
}

/* Observations [B,n,obs_dim] of players who see everything, and possible actions [B,n,A]. */
void foraging_view(const Games *g, float *obs, uint8_t *avail) {
  const int64_t wide = g->n_players * g->obs_dim;
  for (int64_t copy = 0; copy < g->n_copies; copy++) {
    const float *state = g->state + copy * g->state_dim;
    for (int64_t k = 0; k < wide; k++) obs[copy * wide + k] = state[g->columns[k]];
  }
  for (int64_t i = 0; i < g->n_copies * g->n_players; i++)
    memcpy(avail + i * N_ACTIONS, g->avail + (int64_t)g->here[i] * N_ACTIONS, N_ACTIONS);
}
