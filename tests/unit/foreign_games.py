"""Games with the interfaces of PettingZoo and Gymnasium, small enough to know every number of."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

HUNT = f"{__name__}:Hunt"
LIFT = f"{__name__}:Lift"
LIMIT = 4


class Hunt:
    """Two hunters and a prey. A hunter sees (time, its last action), the prey (time, the seed, its
    last action); agent i earns i + time / 10. Hunter 1 leaves after step 2, the others are cut off
    after step 4. The prey's actions are numbered from 1.

    Every argument changes one thing of this; `spoil` names what goes wrong in step 3.
    """

    possible_agents = ("hunter_0", "hunter_1", "prey_0")

    def __init__(
        self,
        *,
        max_cycles: int | None = LIMIT,
        spoil: str = "",
        masks: str = "",
        own_state: str = "",
        ends: tuple[str, ...] = ("truncated", "truncated"),
        absent: str = "",
        leaves: bool = True,
        remembers: bool = False,
        equal_rewards: bool = False,
        observed: dict[str, Any] | None = None,
        acted: dict[str, Any] | None = None,
    ) -> None:
        if max_cycles:
            self.max_cycles = max_cycles
        self.spoil, self.masks, self.kind, self.ends = spoil, masks, own_state, ends
        self.absent, self.leaves, self.equal_rewards = absent, leaves, equal_rewards
        self.observed, self.acted = observed or {}, acted or {}
        self.remembers, self.resets = remembers, 0
        self.agents: list[str] = []
        self.received: list[dict[str, int]] = []
        if own_state:
            self.state = self._state

    def observation_space(self, agent: str) -> Any:
        if agent in self.observed:
            return self.observed[agent]
        width = 3 if agent == "prey_0" else 2
        box = spaces.Box(-np.inf, np.inf, (width,))
        if self.masks == "observation":
            return spaces.Dict({"observation": box, "action_mask": spaces.MultiBinary(3)})
        return box

    def action_space(self, agent: str) -> Any:
        prey = spaces.Discrete(2, start=1)
        return self.acted.get(agent, prey if agent == "prey_0" else spaces.Discrete(3))

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.time, self.seed = 0, (seed or 0) % 97
        if self.remembers:
            self.seed, self.resets = self.resets, self.resets + 1
        self.agents = [agent for agent in self.possible_agents if agent != self.absent]
        self.last = dict.fromkeys(self.possible_agents, 0)
        return self._observations(), self._infos()

    def step(self, actions: dict[str, int]) -> tuple[Any, Any, Any, Any, Any]:
        assert list(actions) == self.agents
        self.received.append(dict(actions))
        self.time += 1
        self.last.update(actions)
        if self.absent and self.time == 2:
            self.agents = [*self.possible_agents]
        if self.spoil == "stranger" and self.time == 3:
            self.agents = [*self.agents, "stranger_0"]
        observations, infos = self._observations(), self._infos()
        rewards = {
            agent: self.time / 10 + (0 if self.equal_rewards else self.possible_agents.index(agent))
            for agent in self.agents
            if agent in self.possible_agents
        }
        if self.time == 3:
            self._spoil(observations, rewards)
        terminations = dict.fromkeys(self.agents, False)
        truncations = dict.fromkeys(self.agents, False)
        if self.leaves and self.time == 2 and "hunter_1" in self.agents:
            terminations["hunter_1"] = True
        if self.time == LIMIT:
            for agent, end in zip(("hunter_0", "prey_0"), self.ends, strict=True):
                terminations[agent] = "terminated" in end
                truncations[agent] = "truncated" in end
            if self.spoil == "no last view":
                observations = {}
        self.agents = [a for a in self.agents if not (terminations[a] or truncations[a])]
        return observations, rewards, terminations, truncations, infos

    def close(self) -> None:
        self.agents = []

    def _observations(self) -> dict[str, Any]:
        seen = {
            agent: np.array(
                [self.time, self.last[agent]]
                if agent != "prey_0"
                else [self.time, self.seed, self.last[agent]],
                np.float32,
            )
            for agent in self.agents
            if agent in self.possible_agents
        }
        if self.masks == "observation":
            return {
                agent: {"observation": value, "action_mask": self._mask(agent)}
                for agent, value in seen.items()
            }
        return seen

    def _infos(self) -> dict[str, Any]:
        if self.masks in ("info", "empty", "long"):
            return {agent: {"action_mask": self._mask(agent)} for agent in self.agents}
        return {agent: {} for agent in self.agents}

    def _mask(self, agent: str) -> Any:
        """Action 0 is possible at even times only, the last one always."""
        n = 2 if agent == "prey_0" else 3
        mask = np.ones(n + (self.masks == "long"), np.int8)
        mask[0] = self.time % 2 == 0
        if self.masks == "empty" and self.time == 3:
            mask[:] = 0
        return mask

    def _spoil(self, observations: dict[str, Any], rewards: dict[str, float]) -> None:
        if self.spoil == "nan observation":
            observations["prey_0"][1] = np.nan
        if self.spoil == "nan reward":
            rewards["prey_0"] = float("nan")
        if self.spoil == "wide observation":
            observations["prey_0"] = np.zeros(5, np.float32)
        if self.spoil == "swapped observations":
            observations["hunter_0"] = np.zeros(3, np.float32)
            observations["prey_0"] = np.zeros(2, np.float32)
        if self.spoil == "no observation":
            del observations["prey_0"]

    def _state(self) -> Any:
        if self.kind == "observations":
            values = self._observations()
            return np.concatenate([values.get(a, np.zeros(2)) for a in self.possible_agents])
        if self.kind == "failing":
            raise NotImplementedError("not written yet")  # as PettingZoo's base class does
        width = 5 if self.kind == "changing" and self.time == 3 else 4
        return np.full(width, self.time + 0.5)


class Lift:
    """Two agents under Gymnasium's interface: agent i sees (time, its last action) and earns
    i + time / 10. It is cut off after step 4. Every argument changes one thing of this."""

    def __init__(
        self,
        *,
        team: bool = False,
        info: Any = None,
        flags: str = "one",
        spoil: str = "",
        end: str = "truncated",
        max_steps: int | None = LIMIT,
    ) -> None:
        self.team, self.info, self.flags, self.spoil, self.end = team, info, flags, spoil, end
        if max_steps:
            self.max_steps = max_steps
        parts = spaces.Box(0, 200, (2,), np.uint8)
        self.observation_space: Any = spaces.Tuple((parts, parts))
        self.action_space: Any = spaces.Tuple((spaces.Discrete(3), spaces.Discrete(3)))
        if spoil == "action space":
            self.action_space = spaces.Discrete(3)
        if spoil == "joint actions":
            self.action_space = spaces.MultiDiscrete([3, 3])

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.time, self.last = 0, [0, 0]
        return self._obs() if self.spoil == "old reset" else (self._obs(), self._details())

    def step(self, actions: Any) -> Any:
        self.time, self.last = self.time + 1, list(actions)
        rewards: Any = [agent + self.time / 10 for agent in range(2)]
        if self.spoil == "rewards" and self.time == 3:
            rewards = [*rewards, 0.0]
        if self.spoil == "nan" and self.time == 3:
            rewards[1] = float("nan")
        over = self.time == LIMIT
        flags: Any = (over and self.end == "terminated", over and self.end == "truncated")
        if self.flags == "each":  # agent 0 is done one step before
            early = self.time >= LIMIT - 1
            flags = ([early, flags[0]], [False, flags[1]])
        if self.spoil == "old step":
            return self._obs(), rewards, over, self._details()
        return self._obs(), 1.5 if self.team else rewards, *flags, self._details()

    def close(self) -> None:
        self.time = 0

    def _obs(self) -> Any:
        agents = 3 if self.spoil == "observations" and self.time == 3 else 2
        return tuple(np.array([self.time, self.last[i % 2]], np.uint8) for i in range(agents))

    def _details(self) -> Any:
        mask = [[1, 1, int(self.time % 2 == 0)]] * (3 if self.spoil == "masks" else 2)
        if self.info == "one":
            return {"action_mask": mask}
        return [{"action_mask": row} for row in mask] if self.info == "each" else {}
