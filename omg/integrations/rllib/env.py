"""Our environments as RLlib knows them: one copy, a dictionary per seat, and who has left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.tune.registry import register_env

from omg.envs.registry import ENVS, make_batched
from omg.types import BoolArray, EnvSpec, FloatArray, IntArray, Observation, OmgError, TimeStep

PREFIX = "omg/"
# What a seat is shown. Windows hold the last `window` moments, the oldest first: [K, …].
OBS, STATE, LAST, ALIVE = "obs", "state", "last_actions", "alive"
MASK, SEAT, SLOTS, TIME = "action_mask", "seat", "slots", "time"
WINDOWS = (OBS, STATE, LAST, ALIVE)
EVERYBODY = "__all__"
REACHED, STATISTICS = "reached", "statistics"  # in the infos

PerAgent: TypeAlias = dict[str, Any]


def agent_id(seat: int) -> str:
    """How RLlib calls a seat."""
    return f"seat_{seat}"


def seat_of(agent: str) -> int:
    """The seat of an agent's name."""
    return int(agent.removeprefix("seat_"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvOptions:
    """`env_config`: the game's arguments, and how it is shown."""

    env_args: Mapping[str, Any] = field(default_factory=dict)
    window: int = 1  # moments that a seat sees of the past; 0: all of the episode
    plain: bool = False  # observations alone, for policies that are none of ours
    reward: str = "own"  # or "sum", "mean": everybody gets the team's
    seed: int | None = None  # where RLlib gives none

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> EnvOptions:
        """Checked."""
        unknown = sorted(set(given) - set(cls.__slots__))
        if unknown:
            raise OmgError(
                f"env_config has no '{unknown[0]}'. It takes: {', '.join(cls.__slots__)}; the "
                "game's own arguments go into env_args."
            )
        options = cls(**given)
        if options.window < 0 or options.reward not in ("own", "sum", "mean"):
            raise OmgError(
                f"env_config has window={options.window} and reward={options.reward}. Give window "
                "0 or more, and reward=own, sum or mean."
            )
        return options


def observation_space(spec: EnvSpec, window: int) -> spaces.Dict:
    """What every seat is shown."""
    agents = spec.n_agents

    def box(*shape: int, dtype: type[np.generic] = np.float32) -> spaces.Box:
        low, high = (-np.inf, np.inf) if dtype is np.float32 else (-1, 2**15 - 1)
        return spaces.Box(low, high, shape, dtype)

    return spaces.Dict(
        {
            OBS: box(window, spec.obs_dim),
            STATE: box(window, spec.state_dim),
            LAST: box(window, agents, dtype=np.int16),
            ALIVE: spaces.Box(0, 1, (window, agents), np.int8),
            MASK: spaces.Box(0, 1, (spec.n_actions,), np.int8),
            SEAT: box(1, dtype=np.int16),
            SLOTS: box(1, dtype=np.int16),
            TIME: box(1, dtype=np.int16),
        }
    )


class OmgEnv(MultiAgentEnv):  # type: ignore[misc]
    """One copy of an environment. A seat that leaves is terminated with its last observation and
    is absent from then on; the others play on. `episodes` counts those handed out."""

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        options = EnvOptions.of(dict(config))
        self.game = make_batched(name, options.env_args, n_copies=1)
        self.spec: EnvSpec = self.game.spec
        self._options = options
        self.window = options.window or self.spec.episode_limit + 1
        self.possible_agents = [agent_id(seat) for seat in range(self.spec.n_agents)]
        self.agents = list(self.possible_agents)
        shown: spaces.Space[Any] = observation_space(self.spec, self.window)
        if options.plain:
            shown = spaces.Box(-np.inf, np.inf, (self.spec.obs_dim,), np.float32)
        self.observation_spaces = dict.fromkeys(self.possible_agents, shown)
        actions = spaces.Discrete(self.spec.n_actions)
        self.action_spaces = dict.fromkeys(self.possible_agents, actions)
        self.episodes = 0
        self._begun: Observation | TimeStep | None = None  # an episode nobody has seen yet
        self._seeded = False
        super().__init__()

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[PerAgent, PerAgent]:
        """Begin an episode. The game restarts itself when one ends, so the next is there already."""
        if seed is not None or not self._seeded:
            given = self._options.seed if seed is None else seed
            entropy = np.random.SeedSequence(given).generate_state(1)
            view: Observation | TimeStep = self.game.reset(int(entropy[0]))
            self._seeded = True
        else:
            view = self._begun or self.game.restart()
        self._begun = None
        self.episodes += 1
        self._time = 0
        self._last = np.full(self.spec.n_agents, -1, np.int16)
        self._alive = _alive(view)
        self.agents = list(self.possible_agents)
        self._past = History(self.spec, self.window)
        self._past.add(view.obs[0], view.state[0], self._last, self._alive)
        return self._shown(view.avail[0]), {agent: {} for agent in self.agents}

    def step(
        self, action_dict: Mapping[str, int]
    ) -> tuple[PerAgent, PerAgent, PerAgent, PerAgent, PerAgent]:
        """Act with everybody who is present; who has left stays."""
        actions = np.zeros((1, self.spec.n_agents), np.int64)
        for agent, action in action_dict.items():
            actions[0, seat_of(agent)] = action
        step = self.game.step(actions)
        ended = step.final is not None
        last: Any = step.final if step.final is not None else step
        before, after = self._alive, _alive(last)
        terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
        self._time += 1
        self._last = np.where(before, actions[0], -1).astype(np.int16)
        self._alive = after
        self._past.add(last.obs[0], last.state[0], self._last, after)
        acted = [agent_id(seat) for seat in np.flatnonzero(before)]
        leaving = {agent_id(seat) for seat in np.flatnonzero(before & ~after)}
        reward = self._rewards(step.reward)
        shown = self._shown(last.avail[0])
        infos = {agent: self._info(step, seat_of(agent), ended) for agent in acted}
        self._begun = step if ended else None
        self.agents = [agent_id(seat) for seat in np.flatnonzero(after)]
        ends = {a: terminated or a in leaving for a in acted}
        cuts = {a: truncated and not ends[a] for a in acted}
        ends[EVERYBODY], cuts[EVERYBODY] = terminated, truncated and not terminated
        rewards = {agent: float(reward[seat_of(agent)]) for agent in acted}
        return {agent: shown[agent] for agent in acted}, rewards, ends, cuts, infos

    def _rewards(self, reward_BN: FloatArray) -> FloatArray:
        if self._options.reward == "own":
            return reward_BN[0]
        shared = self.spec.shared_reward
        team = reward_BN[:, 0] if shared else getattr(reward_BN, self._options.reward)(1)
        return np.repeat(team, self.spec.n_agents)

    def _info(self, step: TimeStep, seat: int, ended: bool) -> dict[str, Any]:
        reached: IntArray | None = getattr(step, REACHED, None)
        info: dict[str, Any] = {} if reached is None else {REACHED: int(reached[0, seat])}
        if ended and step.info:
            info[STATISTICS] = {name: float(value[0]) for name, value in step.info.items()}
        return info

    def _shown(self, avail_NA: BoolArray) -> PerAgent:
        """Of every seat; the caller picks who is present."""
        if self._options.plain:
            return {agent_id(s): self._past.obs_now(s) for s in range(self.spec.n_agents)}
        common = self._past.common()
        return {
            agent_id(seat): {
                OBS: self._past.obs_of(seat),
                **common,
                MASK: avail_NA[seat].astype(np.int8),
                SEAT: np.array([seat], np.int16),
                TIME: np.array([self._time], np.int16),
            }
            for seat in range(self.spec.n_agents)
        }

    def render(self) -> NDArray[np.uint8]:
        """An RGB picture."""
        return self.game.render()

    def close(self) -> None:
        """Free what the game holds."""
        self.game.close()


class History:
    """The last K moments of an episode; what a moment has is never written to again."""

    def __init__(self, spec: EnvSpec, window: int) -> None:
        self._window = window
        self._obs: list[FloatArray] = []
        self._state: list[FloatArray] = []
        self._last: list[NDArray[np.int16]] = []
        self._alive: list[BoolArray] = []

    def add(
        self, obs: FloatArray, state: FloatArray, last: NDArray[np.int16], alive: BoolArray
    ) -> None:
        """One moment of all seats."""
        for kept, new in (
            (self._obs, obs), (self._state, state), (self._last, last), (self._alive, alive)
        ):  # fmt: skip
            kept.append(new)  # type: ignore[arg-type]
            del kept[: -self._window]

    def obs_now(self, seat: int) -> FloatArray:
        """What a seat sees."""
        return self._obs[-1][seat].astype(np.float32)

    def obs_of(self, seat: int) -> FloatArray:
        """What a seat has seen, [K, O]."""
        return self._padded([obs[seat] for obs in self._obs], np.float32)

    def common(self) -> dict[str, NDArray[Any]]:
        """What all seats are told alike."""
        return {
            STATE: self._padded(self._state, np.float32),
            LAST: self._padded(self._last, np.int16),
            ALIVE: self._padded(self._alive, np.int8),
            SLOTS: np.array([len(self._obs)], np.int16),
        }

    def _padded(self, moments: list[Any], dtype: type[np.generic]) -> NDArray[Any]:
        padded = np.zeros((self._window, *moments[0].shape), dtype)
        padded[: len(moments)] = moments
        return padded


def _alive(view: Any) -> BoolArray:
    """Who is present, [N]."""
    alive: BoolArray | None = getattr(view, ALIVE, None)
    return np.ones(view.obs.shape[1], np.bool_) if alive is None else alive[0].copy()


def register() -> list[str]:
    """Tell RLlib of all our environments: `omg/<name>`, with `EnvOptions` as env_config."""
    names = list(ENVS)
    for name in names:
        register_env(PREFIX + name, _Maker(name))
    return [PREFIX + name for name in names]


@dataclass(frozen=True, slots=True)
class _Maker:
    name: str

    def __call__(self, config: Mapping[str, Any]) -> OmgEnv:
        return OmgEnv(self.name, config)
