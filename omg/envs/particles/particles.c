/* Moving discs of many copies: the same operations as physics.py, env.py and the games in the same
 * order, so that both agree in every bit (but for exp, of which NumPy has its own). No fast-math and
 * no fused operations: see kernel.py. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define MAX_BODIES 320
#define GOLDEN 0x9E3779B97F4A7C15u
#define LN2 0.693147180559945309417232121458176568

enum { SPREAD, PREDATOR_PREY };

/* The order of members is that of POINTERS, INTS and FLOATS in kernel.py. */
typedef struct {
  /* constants: [N], [N], [bodies], [solid], [N][obs_pairs] */
  const double *accelerations, *max_speeds, *spread, *sizes;
  const int64_t *obs_rows;
  /* games in progress: places of bodies, velocities of agents and a zero, [rows][2][B]; [N][B] */
  double *rows, *score;
  int64_t *steps, *episode;
  const uint64_t *keys;
  double *covered;
  int64_t *collisions, *survival;
  /* the views that ended episodes had last */
  float *final_obs, *final_state;
  /* numbers */
  int64_t game, n_copies, n_agents, n_solid, n_bodies, obs_pairs, limit, n_predators, shaped;
  double time_step, kept, contact_force, contact_margin, push_range;
  double cover_distance, collision_distance, collision_penalty, local_ratio;
  double contact_distance, contact_reward, shape_weight;
  double border_begin, border, border_slope, border_cap;
} Games;

/* One copy. */
typedef struct {
  double place[MAX_BODIES][2], velocity[MAX_BODIES][2], reward[MAX_BODIES];
} Copy;

int64_t particles_struct_size(void) { return (int64_t)sizeof(Games); }
int64_t particles_max_bodies(void) { return MAX_BODIES; }

static uint64_t mix(uint64_t key) {
  key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9u;
  key = (key ^ (key >> 27)) * 0x94D049BB133111EBu;
  return key ^ (key >> 31);
}

static double *row_of(const Games *g, int64_t row, int axis) {
  return g->rows + (2 * row + axis) * g->n_copies;
}

static void load(const Games *g, int64_t at, Copy *c) {
  for (int axis = 0; axis < 2; axis++) {
    for (int64_t i = 0; i < g->n_bodies; i++) c->place[i][axis] = row_of(g, i, axis)[at];
    for (int64_t i = 0; i < g->n_agents; i++)
      c->velocity[i][axis] = row_of(g, g->n_bodies + i, axis)[at];
  }
}

static void store(const Games *g, int64_t at, const Copy *c, int64_t bodies) {
  for (int axis = 0; axis < 2; axis++) {
    for (int64_t i = 0; i < bodies; i++) row_of(g, i, axis)[at] = c->place[i][axis];
    for (int64_t i = 0; i < g->n_agents; i++)
      row_of(g, g->n_bodies + i, axis)[at] = c->velocity[i][axis];
  }
}

static double squared(const Copy *c, int64_t a, int64_t b) {
  const double x = c->place[a][0] - c->place[b][0], y = c->place[a][1] - c->place[b][1];
  return x * x + y * y;
}

static double distance(const Copy *c, int64_t a, int64_t b) { return sqrt(squared(c, a, b)); }

/* log(1 + exp(x)), as NumPy's logaddexp(0, x) finds it. */
static double softplus(double x) {
  if (x == 0.0) return LN2;
  return x < 0.0 ? 0.0 + log1p(exp(x)) : x + log1p(exp(-x));
}

/* What `first` is pushed by `second`, where they touch or nearly do. */
static void push(const Games *g, const Copy *c, int64_t first, int64_t second, double sign,
                 double force[2]) {
  const double touch = g->sizes[first] + g->sizes[second], near = touch + g->push_range;
  const double apart = squared(c, first, second);
  if (!(apart < near * near)) return;
  double gap = sqrt(apart);
  const double overlap = softplus((touch - gap) / g->contact_margin) * g->contact_margin;
  if (gap == 0.0) gap = INFINITY; /* two bodies on one spot have no direction to push to */
  for (int axis = 0; axis < 2; axis++) {
    const double way = c->place[first][axis] - c->place[second][axis];
    force[axis] += sign * (g->contact_force * way / gap * overlap);
  }
}

static void move(const Games *g, Copy *c, const int64_t *actions) {
  static const double directions[5][2] = {{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}};
  double force[MAX_BODIES][2];
  for (int64_t i = 0; i < g->n_agents; i++) {
    for (int axis = 0; axis < 2; axis++)
      force[i][axis] = directions[actions[i]][axis] * g->accelerations[i];
    for (int64_t j = i + 1; j < g->n_solid; j++) push(g, c, i, j, 1.0, force[i]);
    for (int64_t j = 0; j < i; j++) push(g, c, j, i, -1.0, force[i]);
  }
  for (int64_t i = 0; i < g->n_agents; i++) {
    double *v = c->velocity[i];
    for (int axis = 0; axis < 2; axis++) {
      c->place[i][axis] += v[axis] * g->time_step;
      v[axis] = v[axis] * g->kept + force[i][axis] * g->time_step;
    }
    const double speed = sqrt(v[0] * v[0] + v[1] * v[1]), most = g->max_speeds[i];
    if (speed > most)
      for (int axis = 0; axis < 2; axis++) v[axis] = v[axis] / speed * most;
  }
}

/* Spread: all share how far landmarks are from the nearest agent, each pays for its collisions. */
static void spread_outcome(const Games *g, int64_t at, Copy *c) {
  double sum = 0.0;
  int64_t covered = 0, counts[MAX_BODIES] = {0}, landmarks = g->n_bodies - g->n_solid;
  for (int64_t mark = g->n_solid; mark < g->n_bodies; mark++) {
    double nearest = INFINITY;
    for (int64_t i = 0; i < g->n_agents; i++) nearest = fmin(nearest, squared(c, i, mark));
    const double gap = sqrt(nearest);
    covered += gap < g->cover_distance;
    sum += gap;
  }
  for (int64_t i = 0; i < g->n_agents; i++)
    for (int64_t j = i + 1; j < g->n_agents; j++)
      if (distance(c, i, j) < g->collision_distance) {
        counts[i]++;
        counts[j]++;
        g->collisions[at]++;
      }
  g->covered[at] = (double)covered / (double)landmarks;
  const double shared = -sum * (1 - g->local_ratio);
  for (int64_t i = 0; i < g->n_agents; i++)
    c->reward[i] = shared - g->collision_penalty * (double)counts[i] * g->local_ratio;
}

static double border_cost(const Games *g, double place) {
  const double far = fabs(place);
  if (!(far >= g->border_begin)) return 0.0;
  if (far < g->border) return (far - g->border_begin) * g->border_slope;
  return fmin(exp(fmin(2 * far - 2, g->border_cap)), g->border_cap);
}

/* Predator-Prey: all predators share every contact; prey keeps out of their reach and inside. */
static void hunt_outcome(const Games *g, int64_t at, Copy *c) {
  const int64_t P = g->n_predators, N = g->n_agents;
  int64_t touched = 0;
  double near_sum = 0.0;
  for (int64_t prey = P; prey < N; prey++) {
    int64_t hits = 0;
    double far_sum = 0.0;
    for (int64_t i = 0; i < P; i++) {
      const double gap = distance(c, i, prey);
      hits += gap < g->contact_distance;
      far_sum += gap;
    }
    const double *place = c->place[prey];
    const double cost = border_cost(g, place[0]) + border_cost(g, place[1]);
    double reward = 0.0 - cost - g->contact_reward * (double)hits;
    if (g->shaped) reward += g->shape_weight * far_sum;
    c->reward[prey] = reward;
    touched += hits;
  }
  for (int64_t i = 0; g->shaped && i < P; i++) {
    double nearest = INFINITY;
    for (int64_t prey = P; prey < N; prey++) nearest = fmin(nearest, distance(c, i, prey));
    near_sum += nearest;
  }
  for (int64_t i = 0; i < P; i++) {
    c->reward[i] = g->contact_reward * (double)touched;
    if (g->shaped) c->reward[i] -= g->shape_weight * near_sum;
  }
  if (touched && !g->collisions[at]) g->survival[at] = g->steps[at];
  g->collisions[at] += touched;
}

static void begin(const Games *g, int64_t at, Copy *c) {
  g->steps[at] = 0;
  g->collisions[at] = 0;
  if (g->game == SPREAD) g->covered[at] = 0.0;
  if (g->game == PREDATOR_PREY) g->survival[at] = g->limit;
  for (int64_t i = 0; i < g->n_agents; i++) g->score[i * g->n_copies + at] = 0.0;
  const uint64_t episode = (uint64_t)++g->episode[at];
  const uint64_t key = mix(g->keys[at] ^ mix((episode + 1) * GOLDEN));
  for (int64_t i = 0; i < 2 * g->n_bodies; i++) {
    const uint64_t word = mix(key + (uint64_t)(i + 1) * GOLDEN);
    const double unit = (double)(word >> 11) * 0x1p-53;
    c->place[i / 2][i % 2] = (2.0 * unit - 1.0) * g->spread[i / 2];
  }
  memset(c->velocity, 0, sizeof(double) * 2 * (size_t)g->n_agents);
}

static void view(const Games *g, const Copy *c, float *obs, float *state) {
  const int64_t N = g->n_agents, bodies = g->n_bodies;
  for (int64_t i = 0; i < N; i++)
    for (int64_t pair = 0; pair < g->obs_pairs; pair++, obs += 2) {
      const int64_t row = g->obs_rows[i * g->obs_pairs + pair];
      const int around = pair >= 2 && pair < 1 + bodies;
      for (int axis = 0; axis < 2; axis++) {
        double seen = 0.0;
        if (row < bodies) seen = c->place[row][axis];
        else if (row < bodies + N) seen = c->velocity[row - bodies][axis];
        obs[axis] = (float)(around ? seen - c->place[i][axis] : seen);
      }
    }
  for (int64_t i = 0; i < bodies; i++) {
    for (int axis = 0; axis < 2; axis++) *state++ = (float)c->place[i][axis];
    for (int axis = 0; i < N && axis < 2; axis++) *state++ = (float)c->velocity[i][axis];
  }
}

static void tell_counters(const Games *g, int64_t at, float *info) {
  const int spread = g->game == SPREAD;
  info[at] = spread ? (float)g->covered[at] : (float)g->collisions[at];
  info[g->n_copies + at] = spread ? (float)g->collisions[at] : (float)g->survival[at];
}

/* One step of all copies; those that reached the limit begin their next episode. Returns how many
 * did; their last views stand first in `final_obs` and `final_state`. -1: there is no such action,
 * and nothing was done. */
int64_t particles_step(const Games *g, const int64_t *actions, float *obs, float *state,
                       float *reward, float *info, uint8_t *truncated) {
  const int64_t N = g->n_agents, wide = N * 2 * g->obs_pairs, state_dim = 2 * (g->n_bodies + N);
  int64_t ended = 0;
  Copy c;
  for (int64_t i = 0; i < g->n_copies * N; i++)
    if (actions[i] < 0 || actions[i] > 4) return -1;
  for (int64_t at = 0; at < g->n_copies; at++) {
    load(g, at, &c);
    move(g, &c, actions + at * N);
    g->steps[at]++;
    if (g->game == SPREAD) spread_outcome(g, at, &c);
    else hunt_outcome(g, at, &c);
    for (int64_t i = 0; i < N; i++) {
      g->score[i * g->n_copies + at] += c.reward[i];
      reward[at * N + i] = (float)c.reward[i];
    }
    tell_counters(g, at, info);
    truncated[at] = g->steps[at] >= g->limit;
    if (truncated[at]) {
      view(g, &c, g->final_obs + ended * wide, g->final_state + ended * state_dim);
      ended++;
      begin(g, at, &c);
    }
    view(g, &c, obs + at * wide, state + at * state_dim);
    store(g, at, &c, truncated[at] ? g->n_bodies : N);
  }
  return ended;
}
