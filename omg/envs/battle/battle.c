/* Battles of many copies: the same operations as ticks.py, sight.py and reference.py in the same
 * order, so that both agree in every bit. No fast-math and no fused operations: see kernel.py. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define SIDE 32
#define PLAIN 6
#define MAX_UNITS 128

enum { SHOT, LINE, BURST, HEAL };
enum { TO_SPAWN, TO_UNITS, STAY };

/* The order of members is that of POINTERS, INTS and FLOATS in kernel.py. */
typedef struct {
  /* constants by unit */
  const float *full_health, *full_shield, *armour, *radius, *speed, *regrowth, *start_energy;
  const float *cooldown_scale, *damage, *reach, *touch, *view_radius, *place, *heights;
  const int32_t *full_cooldown, *hits, *weapon, *walks, *bit_own, *bit_other, *block;
  const uint8_t *grid;
  const int16_t *routes;
  /* battles in progress */
  float *x, *y, *health, *shield, *energy;
  int32_t *cooldown, *peace, *target, *burst, *moving;
  float *goal_x, *goal_y, *press_x, *press_y;
  uint32_t *dice;
  int32_t *last, *ticks;
  int64_t *steps, *episodes;
  const uint64_t *keys;
  /* what a step is given and tells */
  const int64_t *actions;
  float *obs, *state;
  uint8_t *avail;
  float *final_obs, *final_state;
  uint8_t *final_avail;
  float *reward;
  uint8_t *terminated, *truncated;
  int8_t *won;
  int64_t *dead;
  /* numbers */
  int64_t n_allies, n_enemies, n_seats, n_actions, obs_dim, state_dim, limit, period, orders;
  int64_t step_mul, has_routes, type_bits, obs_all_health, obs_own_health, obs_last_action;
  int64_t obs_pathing_grid, obs_terrain_height, obs_instead_of_state, obs_timestep_number;
  int64_t state_last_action, state_timestep_number, reward_sparse, reward_only_positive;
  int64_t shield_ally, shield_enemy, state_shield_ally, state_shield_enemy;
  double acquire, move_amount, spawn_x, spawn_y, extent_x, extent_y;
  double reward_death_value, reward_win, reward_defeat, reward_negative_scale;
  double divisor_ally, divisor_enemy;
} Battle;

/* One copy's part of the arrays. */
typedef struct {
  float *x, *y, *health, *shield, *energy, *goal_x, *goal_y, *press_x, *press_y;
  int32_t *cooldown, *peace, *target, *burst, *moving, *last;
  uint32_t *dice;
} Row;

int64_t battle_struct_size(void) { return (int64_t)sizeof(Battle); }

static inline Row row_of(const Battle *g, int64_t b) {
  const int64_t at = b * (g->n_allies + g->n_enemies);
  return (Row){g->x + at, g->y + at, g->health + at, g->shield + at, g->energy + at,
               g->goal_x + at, g->goal_y + at, g->press_x + at, g->press_y + at,
               g->cooldown + at, g->peace + at, g->target + at, g->burst + at, g->moving + at,
               g->last + b * g->n_seats, g->dice + at};
}

static inline int is_healer(const Battle *g, int u) { return g->weapon[u] == HEAL; }

static inline int passable(const Battle *g, float x, float y, int walks) {
  if (!(x >= 0 && y >= 0 && x < SIDE && y < SIDE)) return 0;
  return (g->grid[(int)x * SIDE + (int)y] & walks) != 0;
}

/* --- how episodes begin ----------------------------------------------------------------------- */

static const uint64_t GOLDEN = 0x9E3779B97F4A7C15ull;

static inline uint64_t mix(uint64_t k) {
  k = (k ^ (k >> 30)) * 0xBF58476D1CE4E5B9ull;
  k = (k ^ (k >> 27)) * 0x94D049BB133111EBull;
  return k ^ (k >> 31);
}

/* Ours are numbered by kind, x and y: sort each block of one kind. */
static void number_allies(const Battle *g, Row r) {
  for (int i = 1; i < g->n_allies; i++) {
    const float x = r.x[i], y = r.y[i];
    int j = i;
    while (j > 0 && g->block[j - 1] == g->block[i] &&
           (r.x[j - 1] > x || (r.x[j - 1] == x && r.y[j - 1] > y))) {
      r.x[j] = r.x[j - 1];
      r.y[j] = r.y[j - 1];
      j--;
    }
    r.x[j] = x;
    r.y[j] = y;
  }
}

static void begin_copy(const Battle *g, int64_t b) {
  const int n = (int)(g->n_allies + g->n_enemies);
  Row r = row_of(g, b);
  g->episodes[b] += 1;
  g->steps[b] = 0;
  g->ticks[b] = 0;
  const uint64_t key = mix(g->keys[b] ^ mix((uint64_t)(g->episodes[b] + 1) * GOLDEN));
  for (int i = 0; i < n; i++) {
    uint64_t word[3];
    for (int k = 0; k < 3; k++) word[k] = mix(key + (uint64_t)(3 * i + k + 1) * GOLDEN);
    const float base_x = g->place[2 * i], base_y = g->place[2 * i + 1];
    const float x = base_x + ((float)(word[0] >> 40) * 0x1p-24f - 0.5f);
    const float y = base_y + ((float)(word[1] >> 40) * 0x1p-24f - 0.5f);
    float cx = x < 0 ? 0 : x, cy = y < 0 ? 0 : y;
    cx = cx > SIDE - 1 ? SIDE - 1 : cx;
    cy = cy > SIDE - 1 ? SIDE - 1 : cy;
    const int ground = g->grid[(int)cx * SIDE + (int)cy] & 1;
    r.x[i] = ground ? x : base_x;
    r.y[i] = ground ? y : base_y;
    r.dice[i] = (uint32_t)(word[2] >> 32) | 1u;
    r.health[i] = g->full_health[i];
    r.shield[i] = g->full_shield[i];
    r.energy[i] = g->start_energy[i];
    r.cooldown[i] = r.peace[i] = r.burst[i] = r.moving[i] = 0;
    r.goal_x[i] = r.goal_y[i] = r.press_x[i] = r.press_y[i] = 0;
    r.target[i] = -1;
  }
  number_allies(g, r);
  for (int s = 0; s < g->n_seats; s++) r.last[s] = -1;
}

void battle_begin(const Battle *g, const int64_t *copies, int64_t count) {
  for (int64_t k = 0; k < count; k++) begin_copy(g, copies[k]);
}

/* --- what the scripted enemy wants ------------------------------------------------------------- */

static void look_after(const Battle *g, Row r, int u) {
  const float limit = (float)g->acquire * (float)g->acquire;
  float best = 1e6f, nearest = 1e6f;
  int found = -1, follow = -1;
  for (int o = (int)g->n_allies; o < g->n_allies + g->n_enemies; o++) {
    if (is_healer(g, o) || !(r.health[o] > 0)) continue;
    const float dx = r.x[o] - r.x[u], dy = r.y[o] - r.y[u];
    const float square = dx * dx + dy * dy;
    if (square < nearest) nearest = square, follow = o;
    if (r.health[o] < g->full_health[o] && square <= limit && square < best)
      best = square, found = o;
  }
  r.target[u] = found;
  if (follow < 0) return;
  r.goal_x[u] = r.x[follow];
  r.goal_y[u] = r.y[follow];
  r.moving[u] = 1;
}

static void look(const Battle *g, Row r, int u) {
  const int n = (int)(g->n_allies + g->n_enemies);
  if (!(r.health[u] > 0)) return;
  if (is_healer(g, u)) {
    look_after(g, r, u);
    return;
  }
  const float limit = g->view_radius[u] * g->view_radius[u];
  float best = 1e6f;
  int found = -1;
  for (int o = 0; o < g->n_allies; o++) {
    if (g->damage[u * n + o] == 0 || !(r.health[o] > 0)) continue;
    const float dx = r.x[o] - r.x[u], dy = r.y[o] - r.y[u];
    const float square = dx * dx + dy * dy;
    if (r.target[u] == o && sqrtf(square) <= g->reach[u * n + o]) return;
    const float key = is_healer(g, o) ? square + 1e4f : square;
    if (square <= limit && key < best) best = key, found = o;
  }
  r.target[u] = found;
}

/* --- walking ----------------------------------------------------------------------------------- */

static inline void shift(const Battle *g, Row r, int u, float x, float y) {
  const int walks = g->walks[u];
  const int both = passable(g, x, y, walks);
  const int only_x = both || passable(g, x, r.y[u], walks);
  const int only_y = both || (!only_x && passable(g, r.x[u], y, walks));
  if (only_x) r.x[u] = x;
  if (only_y) r.y[u] = y;
}

static inline int clamped(float v) {
  const int cell = (int)v;
  return cell < 0 ? 0 : cell >= SIDE ? SIDE - 1 : cell;
}

/* New places follow from where all were before, so they are collected first. */
static void walk(const Battle *g, Row r, uint8_t *firing) {
  const int n = (int)(g->n_allies + g->n_enemies);
  float new_x[MAX_UNITS], new_y[MAX_UNITS];
  uint8_t goes[MAX_UNITS];
  for (int u = 0; u < n; u++) {
    firing[u] = goes[u] = 0;
    if (!(r.health[u] > 0)) continue;
    const int t = r.target[u];
    if (t < 0 && r.moving[u] <= 0) continue;
    const float to_x = t >= 0 ? r.x[t] : r.goal_x[u], to_y = t >= 0 ? r.y[t] : r.goal_y[u];
    float dx = to_x - r.x[u], dy = to_y - r.y[u];
    float length = sqrtf(dx * dx + dy * dy);
    if (t >= 0 && length <= g->reach[u * n + t]) {
      firing[u] = is_healer(g, u) ? r.energy[u] >= 0.1875f && r.health[t] < g->full_health[t]
                                  : r.cooldown[u] == 0 && g->damage[u * n + t] > 0;
      continue;
    }
    if (g->has_routes && g->walks[u] == 1) {
      const int here = (int)r.x[u] * SIDE + (int)r.y[u];
      const int there = clamped(to_x) * SIDE + clamped(to_y);
      const int cell = g->routes[here * SIDE * SIDE + there];
      if (cell >= 0) {
        dx = (float)(cell / SIDE) + 0.5f - r.x[u];
        dy = (float)(cell % SIDE) + 0.5f - r.y[u];
        length = sqrtf(dx * dx + dy * dy);
      }
    }
    const float share = length > g->speed[u] ? g->speed[u] / length : 1.0f;
    float way_x = dx * share, way_y = dy * share;
    const float px = r.press_x[u], py = r.press_y[u], against = px * way_x + py * way_y;
    if (against < 0) {
      const float part = against / (px * px + py * py);
      way_x = way_x - px * part;
      way_y = way_y - py * part;
    }
    new_x[u] = r.x[u] + way_x;
    new_y[u] = r.y[u] + way_y;
    goes[u] = 1;
  }
  for (int u = 0; u < n; u++)
    if (goes[u]) shift(g, r, u, new_x[u], new_y[u]);
}

/* --- damage ------------------------------------------------------------------------------------ */

static void strike(const Battle *g, Row r, int u, int t) {
  const int n = (int)(g->n_allies + g->n_enemies);
  const float damage = g->damage[u * n + t], armour = g->armour[t];
  float health = r.health[t], shield = r.shield[t];
  for (int k = 0; k < g->hits[u]; k++) {
    if (shield < damage) {
      const float rest = damage - shield - armour;
      health -= rest > 0.5f ? rest : 0.5f;
      shield = 0;
    } else {
      shield -= damage;
    }
  }
  r.health[t] = health;
  r.shield[t] = shield;
  r.peace[t] = 0;
}

static inline void roll(const Battle *g, Row r, int u) {
  uint32_t d = r.dice[u];
  d ^= d << 13;
  d ^= d >> 17;
  d ^= d << 5;
  r.dice[u] = d;
  r.cooldown[u] = g->full_cooldown[u] + (int32_t)(d >> 30) - 1;
}

static void others_of(const Battle *g, int u, int *first, int *last) {
  *first = u < g->n_allies ? (int)g->n_allies : 0;
  *last = u < g->n_allies ? (int)(g->n_allies + g->n_enemies) : (int)g->n_allies;
}

static void sweep(const Battle *g, Row r, int u, int t, const uint8_t *was_alive) {
  const int n = (int)(g->n_allies + g->n_enemies);
  const float at_x = r.x[t], at_y = r.y[t];
  float dx = at_x - r.x[u], dy = at_y - r.y[u];
  const float length = sqrtf(dx * dx + dy * dy);
  dx = length > 0 ? dx / length : 0;
  dy = length > 0 ? dy / length : 0;
  int first, last;
  others_of(g, u, &first, &last);
  for (int o = first; o < last; o++) {
    if (g->damage[u * n + o] == 0 || !was_alive[o] || o == t) continue;
    const float rx = r.x[o] - at_x, ry = r.y[o] - at_y;
    const float along = fabsf(rx * dx + ry * dy), across = fabsf(rx * dy - ry * dx);
    if (along <= 0.15f + g->radius[o] && across <= 1.4f + g->radius[o]) strike(g, r, u, o);
  }
}

static void explode(const Battle *g, Row r, int u, const uint8_t *was_alive) {
  const int n = (int)(g->n_allies + g->n_enemies);
  int first, last;
  others_of(g, u, &first, &last);
  for (int o = first; o < last; o++) {
    if (g->damage[u * n + o] == 0 || !was_alive[o]) continue;
    const float dx = r.x[o] - r.x[u], dy = r.y[o] - r.y[u];
    if (sqrtf(dx * dx + dy * dy) <= 2.2f + g->radius[o]) strike(g, r, u, o);
  }
  r.health[u] = 0;
  r.burst[u] = 0;
}

static void heal(const Battle *g, Row r, int u, int t) {
  const float after = r.health[t] + 0.5625f;
  if (r.health[t] > 0) r.health[t] = after < g->full_health[t] ? after : g->full_health[t];
  r.energy[u] -= 0.1875f;
}

static void hit(const Battle *g, Row r, const uint8_t *firing) {
  const int n = (int)(g->n_allies + g->n_enemies);
  uint8_t was_alive[MAX_UNITS];
  for (int u = 0; u < n; u++) was_alive[u] = r.health[u] > 0;
  for (int u = 0; u < n; u++) {
    if (!firing[u] && r.burst[u] <= 0) continue;
    const int t = r.target[u];
    if (g->weapon[u] == HEAL) {
      heal(g, r, u, t);
    } else if (g->weapon[u] == BURST) {
      explode(g, r, u, was_alive);
    } else {
      roll(g, r, u);
      strike(g, r, u, t);
      if (g->weapon[u] == LINE) sweep(g, r, u, t, was_alive);
    }
  }
  for (int u = 0; u < n; u++) {
    if (!was_alive[u] || r.health[u] > 0) continue;
    if (g->weapon[u] == BURST && !firing[u]) r.burst[u] = 1;
    r.health[u] = 0;
    r.shield[u] = 0;
  }
}

/* --- between attacks --------------------------------------------------------------------------- */

static void recover(const Battle *g, Row r) {
  const int n = (int)(g->n_allies + g->n_enemies);
  for (int u = 0; u < n; u++) {
    r.peace[u] += 1;
    const int alive = r.health[u] > 0;
    const float fuller = r.shield[u] + 0.125f, grown = r.health[u] + g->regrowth[u];
    const float shield = fuller < g->full_shield[u] ? fuller : g->full_shield[u];
    const float health = grown < g->full_health[u] ? grown : g->full_health[u];
    r.shield[u] = alive && r.peace[u] > 160 ? shield : r.shield[u];
    r.health[u] = alive && g->regrowth[u] > 0 ? health : r.health[u];
  }
  for (int u = 0; u < n; u++) {
    if (!is_healer(g, u) || !(r.health[u] > 0)) continue;
    const float fresh = r.energy[u] + 0.03515625f;
    r.energy[u] = fresh < 200.0f ? fresh : 200.0f;
  }
}

/* Two bodies that overlap push each other apart, each by half of it. Pairs in this order give
 * every unit its pushes in the order of the others' numbers, as the reference adds them. */
static int part_layer(const Battle *g, Row r, int walks, float *push_x, float *push_y) {
  const int n = (int)(g->n_allies + g->n_enemies);
  int unit[MAX_UNITS], m = 0, any = 0;
  float x[MAX_UNITS], y[MAX_UNITS], radius[MAX_UNITS];
  uint8_t near[MAX_UNITS];
  for (int u = 0; u < n; u++) {
    if (g->walks[u] != walks || !(r.health[u] > 0)) continue;
    unit[m] = u;
    x[m] = r.x[u];
    y[m] = r.y[u];
    radius[m++] = g->radius[u];
  }
  for (int i = 0; i < m; i++) {
    const float xi = x[i], yi = y[i], ri = radius[i];
    uint8_t some = 0;
    for (int j = i + 1; j < m; j++) {
      const float dx = x[j] - xi, dy = y[j] - yi, touch = radius[j] + ri;
      near[j] = dx * dx + dy * dy < touch * touch * 1.0001f;
      some |= near[j];
    }
    if (!some) continue;
    for (int j = i + 1; j < m; j++) {
      if (!near[j]) continue;
      float dx = x[j] - xi, dy = y[j] - yi;
      const float square = dx * dx + dy * dy, touch = radius[j] + ri;
      float length = sqrtf(square), over = touch - length;
      if (!(over > 0)) continue;
      if (square < 1e-8f) {
        dx = 1.0f;
        dy = 0;
        over = touch;
        length = 1.0f;
      }
      const float share = 0.5f * over / length;
      push_x[unit[j]] += dx * share;
      push_y[unit[j]] += dy * share;
      push_x[unit[i]] -= dx * share;
      push_y[unit[i]] -= dy * share;
      any = 1;
    }
  }
  return any;
}

static void part(const Battle *g, Row r) {
  const int n = (int)(g->n_allies + g->n_enemies);
  memset(r.press_x, 0, sizeof(float) * (size_t)n);
  memset(r.press_y, 0, sizeof(float) * (size_t)n);
  const int ground = part_layer(g, r, 1, r.press_x, r.press_y);
  if (!(part_layer(g, r, 2, r.press_x, r.press_y) | ground)) return;
  for (int u = 0; u < n; u++)
    if (r.press_x[u] != 0 || r.press_y[u] != 0)
      shift(g, r, u, r.x[u] + r.press_x[u], r.y[u] + r.press_y[u]);
}

static void tick(const Battle *g, Row r, int32_t *ticks) {
  const int n = (int)(g->n_allies + g->n_enemies);
  uint8_t firing[MAX_UNITS];
  for (int u = 0; u < n; u++) r.cooldown[u] = r.cooldown[u] > 1 ? r.cooldown[u] - 1 : 0;
  if (*ticks % g->period == 0)
    for (int u = (int)g->n_seats; u < n; u++) look(g, r, u);
  for (int u = 0; u < n; u++) {
    const int t = r.target[u];
    if (t >= 0 && !(r.health[t] > 0)) r.target[u] = -1;
  }
  walk(g, r, firing);
  hit(g, r, firing);
  recover(g, r);
  part(g, r);
  *ticks += 1;
}

/* --- what agents see --------------------------------------------------------------------------- */

static const int MOVE_X[4] = {0, 0, 1, -1}, MOVE_Y[4] = {1, -1, 0, 0};
static const int AROUND_X[9] = {0, 0, 2, -2, 1, -1, 1, -1, 0};
static const int AROUND_Y[9] = {2, -2, 0, 0, 1, -1, -1, 1, 0};

/* The number of a cell as SMAC finds it; -1 outside of the map. */
static inline int cell_of(float x, float y) {
  const int column = (int)x, row = (int)y;
  if (column < 0 || row < 0 || column >= SIDE || row >= SIDE) return -1;
  return column * SIDE + row;
}

static inline float share_of(float part, float whole) { return whole > 0 ? part / whole : 0; }

typedef struct {
  int own, n_own, other, n_other, turned, own_shield, other_shield;
} Side;

static Side side_of(const Battle *g, int turned) {
  const int a = (int)g->n_allies, e = (int)g->n_enemies;
  if (turned) return (Side){a, e, 0, a, 1, (int)g->shield_enemy, (int)g->shield_ally};
  return (Side){0, a, a, e, 0, (int)g->shield_ally, (int)g->shield_enemy};
}

static void mask(const Battle *g, Row r, Side s, int u, uint8_t *avail) {
  memset(avail, 0, (size_t)g->n_actions);
  if (!(r.health[u] > 0)) {
    avail[0] = 1;
    return;
  }
  avail[1] = 1;
  const float half = (float)(g->move_amount / 2);
  for (int k = 0; k < 4; k++) {
    const int cell = cell_of(r.x[u] + (float)MOVE_X[k] * half, r.y[u] + (float)MOVE_Y[k] * half);
    avail[2 + (k ^ s.turned)] = cell >= 0 && (g->grid[cell] & 1);
  }
  const int heals = is_healer(g, u);
  const int first = heals ? s.own : s.other;
  int count = heals ? s.n_own : s.n_other;
  if (count > g->n_actions - PLAIN) count = (int)g->n_actions - PLAIN;
  for (int k = 0; k < count; k++) {
    const int o = first + k;
    const float dx = r.x[o] - r.x[u], dy = r.y[o] - r.y[u];
    const int able = r.health[o] > 0 && sqrtf(dx * dx + dy * dy) <= 6.0f;
    avail[PLAIN + k] = able && !(heals && is_healer(g, o));
  }
}

static float *surroundings(const Battle *g, Row r, Side s, int u, float *at) {
  const float x = (float)(int)r.x[u], y = (float)(int)r.y[u];
  for (int height = 0; height < 2; height++) {
    if (!(height ? g->obs_terrain_height : g->obs_pathing_grid)) continue;
    const int count = height ? 9 : 8;
    for (int k = 0; k < count; k++) {
      const int cell = cell_of(x + (float)(AROUND_X[k] * g->move_amount),
                               y + (float)(AROUND_Y[k] * g->move_amount));
      float seen = 1;
      if (cell >= 0) seen = height ? g->heights[cell] : (float)(g->grid[cell] & 1);
      at[k < 8 ? k ^ s.turned : k] = seen;
    }
    at += count;
  }
  return at;
}

/* One unit as another sees it; `at` is zero already. */
static void describe(const Battle *g, Row r, Side s, int u, int o, float first, int ally,
                     float *at) {
  if (!(r.health[o] > 0)) return;
  const float dx = r.x[o] - r.x[u], dy = r.y[o] - r.y[u];
  const float length = sqrtf(dx * dx + dy * dy);
  if (!(length < 9.0f)) return;
  const float turn = s.turned ? -1.0f : 1.0f;
  *at++ = first;
  *at++ = length / 9.0f;
  *at++ = turn * dx / 9.0f;
  *at++ = turn * dy / 9.0f;
  if (g->obs_all_health) {
    *at++ = r.health[o] / g->full_health[o];
    if (ally ? s.own_shield : s.other_shield) *at++ = share_of(r.shield[o], g->full_shield[o]);
  }
  if (g->type_bits) {
    at[ally ? g->bit_own[o] : g->bit_other[o]] = 1;
    at += g->type_bits;
  }
  if (ally && g->obs_last_action && r.last[o] >= 0) at[r.last[o]] = 1;
}

static void observe(const Battle *g, Row r, Side s, int u, float now, const uint8_t *avail,
                    float *obs) {
  memset(obs, 0, sizeof(float) * (size_t)g->obs_dim);
  const int bits = (int)g->type_bits;
  const int enemy = 4 + (g->obs_all_health ? 1 + s.other_shield : 0) + bits;
  const int ally = 4 + (g->obs_all_health ? 1 + s.own_shield : 0) + bits +
                   (g->obs_last_action ? (int)g->n_actions : 0);
  const int health = g->obs_own_health || g->obs_all_health;
  float *at = obs;
  const int alive = r.health[u] > 0;
  if (alive) {
    for (int k = 0; k < 4; k++) *at++ = avail[2 + k];
    at = surroundings(g, r, s, u, at);
    for (int k = 0; k < s.n_other; k++, at += enemy)
      describe(g, r, s, u, s.other + k, avail[PLAIN + k], 0, at);
    for (int k = 0; k < s.n_own; k++) {
      if (s.own + k == u) continue;
      describe(g, r, s, u, s.own + k, 1.0f, 1, at);
      at += ally;
    }
    if (health) {
      *at++ = r.health[u] / g->full_health[u];
      if (s.own_shield) *at++ = share_of(r.shield[u], g->full_shield[u]);
    }
    if (bits) at[g->bit_own[u]] = 1;
  }
  if (!g->obs_timestep_number) return;
  const int moves = 4 + (g->obs_pathing_grid ? 8 : 0) + (g->obs_terrain_height ? 9 : 0);
  const int own = (health ? 1 + s.own_shield : 0) + bits;
  obs[moves + s.n_other * enemy + (s.n_own - 1) * ally + own] = now;
}

static void describe_state(const Battle *g, Row r, float now, float *state) {
  const int n = (int)(g->n_allies + g->n_enemies), both = g->n_seats == n;
  memset(state, 0, sizeof(float) * (size_t)g->state_dim);
  float *at = state;
  for (int u = 0; u < n; u++) {
    const int ours = u < g->n_allies;
    const int shield = (int)(ours ? g->state_shield_ally : g->state_shield_enemy);
    const int width = 3 + (ours || both) + shield + (int)g->type_bits;
    if (r.health[u] > 0) {
      float *to = at;
      *to++ = r.health[u] / g->full_health[u];
      if (ours || both)
        *to++ = (is_healer(g, u) ? r.energy[u] : (float)r.cooldown[u]) / g->cooldown_scale[u];
      *to++ = (r.x[u] - SIDE / 2) / (float)g->extent_x;
      *to++ = (r.y[u] - SIDE / 2) / (float)g->extent_y;
      if (shield) *to++ = share_of(r.shield[u], g->full_shield[u]);
      if (g->type_bits) to[ours ? g->bit_own[u] : g->bit_other[u]] = 1;
    }
    at += width;
  }
  if (g->state_last_action)
    for (int seat = 0; seat < g->n_seats; seat++, at += g->n_actions)
      if (r.last[seat] >= 0) at[r.last[seat]] = 1;
  if (g->state_timestep_number) *at = now;
}

static void view_copy(const Battle *g, int64_t b, float *obs, float *state, uint8_t *avail) {
  Row r = row_of(g, b);
  const float now = (float)g->steps[b] / (float)g->limit;
  obs += b * g->n_seats * g->obs_dim;
  state += b * g->state_dim;
  avail += b * g->n_seats * g->n_actions;
  for (int u = 0; u < g->n_seats; u++) {
    const Side s = side_of(g, u >= g->n_allies);
    mask(g, r, s, u, avail + u * g->n_actions);
    observe(g, r, s, u, now, avail + u * g->n_actions, obs + u * g->obs_dim);
  }
  if (g->obs_instead_of_state)
    memcpy(state, obs, sizeof(float) * (size_t)g->state_dim);
  else
    describe_state(g, r, now, state);
}

void battle_view(const Battle *g, int64_t lo, int64_t hi) {
  for (int64_t b = lo; b < hi; b++) view_copy(g, b, g->obs, g->state, g->avail);
}

/* --- a step ------------------------------------------------------------------------------------ */

static void order(const Battle *g, Row r, const int64_t *actions) {
  const int n = (int)(g->n_allies + g->n_enemies);
  const float amount = (float)g->move_amount;
  for (int u = 0; u < g->n_seats; u++) {
    const int action = (int)actions[u], theirs = u >= g->n_allies;
    const Side s = side_of(g, theirs);
    r.last[u] = action;
    r.target[u] = action >= PLAIN ? action - PLAIN + (is_healer(g, u) ? s.own : s.other) : -1;
    r.moving[u] = action >= 2 && action < PLAIN;
    if (!r.moving[u]) continue;
    const int k = (action - 2) ^ theirs;
    r.goal_x[u] = r.x[u] + (float)MOVE_X[k] * amount;
    r.goal_y[u] = r.y[u] + (float)MOVE_Y[k] * amount;
  }
  for (int u = (int)g->n_seats; u < n; u++) {
    if (is_healer(g, u)) continue;
    r.goal_x[u] = (float)g->spawn_x;
    r.goal_y[u] = (float)g->spawn_y;
    r.moving[u] = g->orders != STAY;
  }
}

static float earned(const Battle *g, Row r, const float *before, const uint8_t *lived, int first,
                    int last, float share) {
  const float death = (float)g->reward_death_value;
  float total = 0;
  for (int u = first; u < last; u++) {
    const float loss = (before[u] - (r.health[u] + r.shield[u])) * share;
    total += lived[u] && !(r.health[u] > 0) ? loss + death * share : loss;
  }
  return total;
}

static int judge(const Battle *g, Row r, int64_t b, const float *before, const uint8_t *lived) {
  const int a = (int)g->n_allies, n = a + (int)g->n_enemies;
  int alive[2] = {0, 0}, fights[2] = {0, 0};
  for (int u = 0; u < n; u++) {
    if (!(r.health[u] > 0)) continue;
    alive[u >= a] += 1;
    fights[u >= a] += !is_healer(g, u);
  }
  const int lost = !fights[0] && (alive[0] || alive[1]);
  const int won = !fights[1] && !lost && alive[0];
  const int over = lost || won || !(alive[0] || alive[1]);
  g->won[b] = (int8_t)(won - lost);
  g->terminated[b] = (uint8_t)over;
  g->truncated[b] = !over && g->steps[b] >= g->limit;
  g->dead[2 * b] = a - alive[0];
  g->dead[2 * b + 1] = n - a - alive[1];
  for (int side = 0; side < 2; side++) {
    const int sign = side ? -g->won[b] : g->won[b];
    const int own = side ? a : 0, own_end = side ? n : a, other = side ? 0 : a,
              other_end = side ? a : n;
    float sum = earned(g, r, before, lived, other, other_end, 1.0f);
    if (!g->reward_only_positive)
      sum = sum - earned(g, r, before, lived, own, own_end, (float)g->reward_negative_scale);
    else if (!(sum > 0))
      sum = 0;
    if (g->reward_sparse)
      sum = (float)sign;
    else
      sum = sum + (sign < 0 ? (float)g->reward_defeat : sign > 0 ? (float)g->reward_win : 0.0f);
    g->reward[2 * b + side] = sum / (float)(side ? g->divisor_enemy : g->divisor_ally);
  }
  return g->terminated[b] || g->truncated[b];
}

/* Copies [lo, hi): threads may share a batch. */
void battle_step(const Battle *g, int64_t lo, int64_t hi) {
  const int n = (int)(g->n_allies + g->n_enemies);
  float before[MAX_UNITS];
  uint8_t lived[MAX_UNITS];
  for (int64_t b = lo; b < hi; b++) {
    Row r = row_of(g, b);
    for (int u = 0; u < n; u++) {
      before[u] = r.health[u] + r.shield[u];
      lived[u] = r.health[u] > 0;
    }
    order(g, r, g->actions + b * g->n_seats);
    for (int64_t k = 0; k < g->step_mul; k++) tick(g, r, g->ticks + b);
    g->steps[b] += 1;
    if (judge(g, r, b, before, lived)) {
      view_copy(g, b, g->final_obs, g->final_state, g->final_avail);
      begin_copy(g, b);
    }
    view_copy(g, b, g->obs, g->state, g->avail);
  }
}
