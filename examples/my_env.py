"""A small game with PyMARL's methods: two agents on a line of seven cells must meet in the middle.

From this folder:
    omg envs check my_env:MyEnv
    omg train --config=vdn --env=my_env:MyEnv
"""

import numpy as np

CELLS, LIMIT = 7, 20
LEFT, STAY, RIGHT = 0, 1, 2


class MyEnv:
    """The team earns 1 when both agents stand on the middle cell, which ends the episode."""

    def __init__(self, step_cost=0.0):
        self.step_cost = step_cost  # set by `with env_args.step_cost=0.01`
        self.cells = np.zeros(2, int)
        self.steps = 0

    def reset(self, seed=None):
        self.cells = np.random.default_rng(seed).integers(0, CELLS, 2)
        self.steps = 0
        return self.get_obs(), self.get_state()

    def step(self, actions):
        self.steps += 1
        self.cells = self.cells + np.asarray(actions) - STAY
        met = bool((self.cells == CELLS // 2).all())
        reward = float(met) - self.step_cost
        info = {"met": met}
        if not met and self.steps == LIMIT:
            info["episode_limit"] = True  # a truncation: the learner bootstraps
        return reward, met or self.steps == LIMIT, info

    def get_obs(self):
        mine, other = self.cells / (CELLS - 1)
        return [np.array([mine, other]), np.array([other, mine])]

    def get_state(self):
        return self.cells / (CELLS - 1)

    def get_avail_actions(self):
        return [[int(cell > 0), 1, int(cell < CELLS - 1)] for cell in self.cells]

    def get_env_info(self):
        return {
            "name": "meet",
            "n_agents": 2,
            "n_actions": 3,
            "obs_shape": 2,
            "state_shape": 2,
            "episode_limit": LIMIT,
            "statistics": ("met",),
        }

    def close(self):
        pass
