"""Stand-in for SMAC's StarCraft2Env (see tests/standins/README.md): its arguments, methods, shapes
and ways of failing around a made-up battle. Units walk on a plain of 32 x 32 and shoot with range 6
and damage 6; enemies go for the nearest of ours."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from absl import flags
from pysc2.lib import protocol

from omg.envs.sc2.args import MapInfo
from smac import standin
from smac.env.starcraft2.maps import smac_maps
from smac.widths import obs_width, state_width

SIDE, SIGHT, RANGE, DAMAGE, HEALTH = 32, 9, 6, 6.0, 45.0
STEPS = {2: (0, 1), 3: (0, -1), 4: (1, 0), 5: (-1, 0)}
OBS_OPTIONS = (
    "obs_all_health",
    "obs_own_health",
    "obs_last_action",
    "obs_pathing_grid",
    "obs_terrain_height",
    "obs_timestep_number",
)


@dataclass
class Unit:
    x: float
    y: float
    health: float = HEALTH


class StarCraft2Env:
    """Not SMAC: a stand-in with its interface."""

    def __init__(
        self,
        map_name="8m",
        step_mul=8,
        move_amount=2,
        difficulty="7",
        game_version=None,
        seed=None,
        continuing_episode=False,
        obs_all_health=True,
        obs_own_health=True,
        obs_last_action=False,
        obs_pathing_grid=False,
        obs_terrain_height=False,
        obs_instead_of_state=False,
        obs_timestep_number=False,
        state_last_action=True,
        state_timestep_number=False,
        reward_sparse=False,
        reward_only_positive=True,
        reward_death_value=10,
        reward_win=200,
        reward_defeat=0,
        reward_negative_scale=0.5,
        reward_scale=True,
        reward_scale_rate=20,
        replay_dir="",
        replay_prefix="",
        window_size_x=1920,
        window_size_y=1200,
        heuristic_ai=False,
        heuristic_rest=False,
        debug=False,
    ):
        given = dict(locals())
        self._options = {key: given[key] for key in OBS_OPTIONS}
        self.map_name, self.difficulty, self.game_version = map_name, difficulty, game_version
        params = smac_maps.get_smac_map_registry()[map_name]
        self._set_sizes(params, params["n_agents"], params["n_enemies"])
        self.episode_limit = params["limit"]
        self._move_amount, self._seed = move_amount, seed
        self.continuing_episode = continuing_episode
        self.obs_instead_of_state = obs_instead_of_state
        self.state_last_action = state_last_action
        self.state_timestep_number = state_timestep_number
        self._rewards = (reward_death_value, reward_win, reward_defeat)
        self._scale_rate = reward_scale_rate if reward_scale else None
        self.max_reward = self.n_enemies * reward_death_value + reward_win
        self.replay_dir, self.replay_prefix = replay_dir, replay_prefix
        self.agents, self.enemies = {}, {}
        self._episode_count = self._episode_steps = 0
        self.battles_won = self.battles_game = self.timeouts = self.force_restarts = 0
        self._sc2_proc = None

    def _set_sizes(self, params, n_agents, n_enemies):
        races = params["a_race"] + params["b_race"]
        self.n_agents, self.n_enemies = n_agents, n_enemies
        self._map = MapInfo(n_agents, n_enemies, 0, races, params["unit_type_bits"])
        self.n_actions = self._map.n_actions

    # --- the game ------------------------------------------------------------------------------

    def _launch(self):
        if not flags.FLAGS.is_parsed():  # as pysc2, which reads some
            raise flags.UnparsedFlagAccessError
        if self.game_version == "0.0.0":
            raise ValueError("Unknown game version: 0.0.0.")
        assert self._sc2_proc is None or self._sc2_proc._proc.ended.is_set(), "two games at once"
        self._sc2_proc = standin.FakeStarcraftProcess()
        self._request("launch")
        self._rng = np.random.default_rng(self._seed)

    def _request(self, name):
        standin.request(name, self._sc2_proc._proc)

    def reset(self):
        self._episode_steps = 0
        if self._episode_count == 0:
            self._launch()
        self.last_action = np.zeros((self.n_agents, self.n_actions))
        try:
            self._request("observe")
            self.init_units()
        except (protocol.ProtocolError, protocol.ConnectionError):
            self.full_restart()
        return self.get_obs(), self.get_state()

    def init_units(self):
        column = np.linspace(10, 22, max(self.n_agents, self.n_enemies))
        self.agents = {i: Unit(11.0, column[i]) for i in range(self.n_agents)}
        self.enemies = {i: Unit(21.0, column[i]) for i in range(self.n_enemies)}
        if self._episode_count == 0:
            self.max_reward += sum(unit.health for unit in self.enemies.values())

    def full_restart(self):
        self._sc2_proc.close()
        self._launch()
        self.force_restarts += 1

    def step(self, actions):
        self.last_action = np.eye(self.n_actions)[np.array(actions)]
        for agent, action in enumerate(actions):
            assert self.get_avail_agent_actions(agent)[action], f"{agent} cannot do {action}"
        try:
            self._request("step")
            self._request("observe")
        except protocol.ProtocolError as error:
            if isinstance(error, standin.CrashError):
                raise
            self.full_restart()
            return 0, True, {}
        except protocol.ConnectionError:
            self.full_restart()
            return 0, True, {}
        self._episode_steps += 1
        return self._outcome(self._fight(actions))

    def _outcome(self, reward):
        lost = all(unit.health == 0 for unit in self.agents.values())
        won = not lost and all(unit.health == 0 for unit in self.enemies.values())
        info = {
            "battle_won": won,
            "dead_allies": sum(unit.health == 0 for unit in self.agents.values()),
            "dead_enemies": sum(unit.health == 0 for unit in self.enemies.values()),
        }
        reward += self._rewards[1] * won + self._rewards[2] * lost
        cut = not (won or lost) and self._episode_steps >= self.episode_limit
        if cut and self.continuing_episode:
            info["episode_limit"] = True
        ended = won or lost or cut
        self.battles_won += won
        self.battles_game += ended
        self.timeouts += cut
        self._episode_count += ended
        if self._scale_rate:
            reward /= self.max_reward / self._scale_rate
        return reward, ended, info

    def _fight(self, actions):
        """Everybody acts on what was there before; damage and kills are the reward."""
        hit = {id(unit): 0.0 for unit in (*self.agents.values(), *self.enemies.values())}
        for agent, action in enumerate(actions):
            unit = self.agents[agent]
            if action in STEPS:
                unit.x += STEPS[action][0] * self._move_amount
                unit.y += STEPS[action][1] * self._move_amount
            elif action >= 6 and not (standin.chance and self._rng.random() < 0.1):
                hit[id(self.enemies[action - 6])] += DAMAGE
        for enemy in self._alive(self.enemies) if not standin.peaceful else ():
            target = min(self._alive(self.agents), key=lambda unit: _apart(enemy, unit))
            if _apart(enemy, target) <= RANGE:
                hit[id(target)] += DAMAGE
            else:
                enemy.x += np.sign(target.x - enemy.x)
                enemy.y += np.sign(target.y - enemy.y)
        before = [replace(unit) for unit in self.enemies.values()]
        for unit in (*self.agents.values(), *self.enemies.values()):
            unit.health = max(unit.health - hit[id(unit)], 0.0)
        pairs = list(zip(before, self.enemies.values(), strict=True))
        kills = sum(old.health > 0 and new.health == 0 for old, new in pairs)
        return sum(old.health - new.health for old, new in pairs) + self._rewards[0] * kills

    @staticmethod
    def _alive(units):
        return [unit for unit in units.values() if unit.health > 0]

    # --- what is seen --------------------------------------------------------------------------

    def get_obs_agent(self, agent_id):
        width = self.get_obs_size() + self._options["obs_timestep_number"]  # as wide as SMAC's
        obs = np.zeros(width, np.float32)
        me = self.agents[agent_id]
        if me.health > 0:
            obs[:4] = self.get_avail_agent_actions(agent_id)[2:6]
            each = (self.get_obs_size() - 4) // (self.n_enemies + self.n_agents)
            others = [unit for i, unit in self.agents.items() if i != agent_id]
            for k, unit in enumerate([*self.enemies.values(), *others]):
                if unit.health > 0 and _apart(me, unit) < SIGHT:
                    at = 4 + k * each
                    obs[at] = _apart(me, unit) <= RANGE
                    obs[at + 1] = _apart(me, unit) / SIGHT
                    obs[at + 2 : at + 4] = (unit.x - me.x) / SIGHT, (unit.y - me.y) / SIGHT
            obs[self.get_obs_size() - 1 - self._options["obs_timestep_number"]] = me.health / HEALTH
        if self._options["obs_timestep_number"]:
            obs[-1] = self._episode_steps / self.episode_limit
        return obs

    def get_obs(self):
        return [self.get_obs_agent(agent) for agent in range(self.n_agents)]

    def get_obs_size(self):
        return obs_width(self._map, **self._options)

    def get_state(self):
        if self.obs_instead_of_state:
            return np.concatenate(self.get_obs())
        ours = np.zeros((self.n_agents, self._map.ally_width))
        theirs = np.zeros((self.n_enemies, self._map.enemy_width))
        for table, units, at in ((ours, self.agents, 2), (theirs, self.enemies, 1)):
            for row, unit in units.items():
                if unit.health > 0:
                    table[row, 0] = unit.health / HEALTH
                    table[row, at : at + 2] = unit.x / SIDE - 0.5, unit.y / SIDE - 0.5
        parts = [ours.ravel(), theirs.ravel()]
        if self.state_last_action:
            parts.append(self.last_action.ravel())
        if self.state_timestep_number:
            parts.append(np.array([self._episode_steps / self.episode_limit]))
        return np.concatenate(parts).astype(np.float32)

    def get_state_size(self):
        if self.obs_instead_of_state:
            return self.get_obs_size() * self.n_agents
        return state_width(
            self._map,
            state_last_action=self.state_last_action,
            state_timestep_number=self.state_timestep_number,
        )

    def get_avail_agent_actions(self, agent_id):
        me = self.agents[agent_id]
        if me.health == 0:
            return [1] + [0] * (self.n_actions - 1)
        avail = [0, 1] + [0] * (self.n_actions - 2)
        for action, (dx, dy) in STEPS.items():
            x, y = me.x + dx * self._move_amount, me.y + dy * self._move_amount
            avail[action] = int(0 <= x < SIDE and 0 <= y < SIDE)
        for enemy, unit in self.enemies.items():
            avail[6 + enemy] = int(unit.health > 0 and _apart(me, unit) <= RANGE)
        return avail

    def get_avail_actions(self):
        return [self.get_avail_agent_actions(agent) for agent in range(self.n_agents)]

    def get_total_actions(self):
        return self.n_actions

    # --- the rest ------------------------------------------------------------------------------

    def get_env_info(self):
        return {
            "state_shape": self.get_state_size(),
            "obs_shape": self.get_obs_size(),
            "n_actions": self.n_actions,
            "n_agents": self.n_agents,
            "episode_limit": self.episode_limit,
            "agent_features": [f"feature {k}" for k in range(self._map.ally_width)],
            "enemy_features": [f"feature {k}" for k in range(self._map.enemy_width)],
        }

    def get_stats(self):
        return {
            "battles_won": self.battles_won,
            "battles_game": self.battles_game,
            "battles_draw": self.timeouts,
            "win_rate": self.battles_won / self.battles_game,
            "timeouts": self.timeouts,
            "restarts": self.force_restarts,
        }

    def save_replay(self):
        self._request("save_replay")
        folder = Path(os.environ["SC2PATH"], "Replays", self.replay_dir)
        folder.mkdir(parents=True, exist_ok=True)
        prefix = self.replay_prefix or self.map_name
        (folder / f"{prefix}_{self.battles_game}.SC2Replay").write_bytes(b"stand-in")

    def seed(self):
        return self._seed

    def render(self, mode="human"):
        assert mode == "rgb_array"
        return np.zeros((SIDE, SIDE, 3), np.uint8)

    def close(self):
        if self._sc2_proc:
            self._sc2_proc.close()


def _apart(one, other):
    return math.hypot(one.x - other.x, one.y - other.y)
