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
from omg.types import (
    BoolArray,
    EnvSpec,
    FinalObservation,
    FloatArray,
    Observation,
    OmgError,
    TimeStep,
)

PREFIX = "omg/"
# What a seat is shown. The first five are windows: the last K moments of all seats, oldest first,
# so that opponent models know what our own controllers tell them. What a policy itself may look
# at is its configuration's business.
OBS, STATE, AVAIL, LAST, ALIVE = "obs", "state", "avail", "last_actions", "alive"
MASK, SEAT, SLOTS, TIME = "action_mask", "seat", "slots", "time"
EVERYBODY = "__all__"
REACHED, STATISTICS, CUT = "reached", "statistics", "cut"  # in the infos

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
    agents, actions = spec.n_agents, spec.n_actions

    def numbers(dtype: str, *shape: int) -> spaces.Box:
        kind = np.dtype(dtype)
        if kind.kind == "f":
            return spaces.Box(-np.inf, np.inf, shape, kind.type)
        if kind.kind == "b":
            return flags(*shape)
        limits = np.iinfo(kind)
        return spaces.Box(limits.min, limits.max, shape, kind.type)

    def flags(*shape: int) -> spaces.Box:
        return spaces.Box(0, 1, shape, np.int8)

    return spaces.Dict(
        {
            OBS: numbers(spec.obs_dtype, window, agents, spec.obs_dim),
            STATE: numbers(spec.state_dtype, window, spec.state_dim),
            AVAIL: flags(window, agents, actions),
            LAST: numbers("int16", window, agents),
            ALIVE: flags(window, agents),
            MASK: flags(actions),
            SEAT: numbers("int16", 1),
            SLOTS: numbers("int16", 1),
            TIME: numbers("int16", 1),
        }
    )


class OmgEnv(MultiAgentEnv):  # type: ignore[misc]
    """One copy of an environment. A seat that leaves is terminated with its last observation and
    is absent from then on; the others play on. `episodes` counts those handed out."""

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        options = EnvOptions.of(dict(config))
        self.game = make_batched(name, options.env_args, n_copies=1)
        self.env_spec: EnvSpec = self.game.spec  # `spec` is gymnasium's
        self._options = options
        self.window = options.window or self.env_spec.episode_limit + 1
        self.possible_agents = [agent_id(seat) for seat in range(self.env_spec.n_agents)]
        self.agents = list(self.possible_agents)
        self._space = observation_space(self.env_spec, self.window)
        shown: spaces.Space[Any] = self._space
        if options.plain:
            shown = spaces.Box(-np.inf, np.inf, (self.env_spec.obs_dim,), np.float32)
        self.observation_spaces = dict.fromkeys(self.possible_agents, shown)
        actions = spaces.Discrete(self.env_spec.n_actions)
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
        self._last = np.full(self.env_spec.n_agents, -1, np.int16)
        self._alive = _alive(view)
        self.agents = list(self.possible_agents)
        self._past = History(self._space)
        return self._shown(view), {agent: {} for agent in self.agents}

    def step(
        self, action_dict: Mapping[str, int]
    ) -> tuple[PerAgent, PerAgent, PerAgent, PerAgent, PerAgent]:
        """Act with everybody who is present; who has left stays."""
        actions = np.zeros((1, self.env_spec.n_agents), np.int64)
        for agent, action in action_dict.items():
            actions[0, seat_of(agent)] = action
        step = self.game.step(actions)
        last = step if step.final is None else step.final
        before, after = self._alive, _alive(last)
        terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
        self._time += 1
        self._last = np.where(before, actions[0], -1).astype(np.int16)
        self._alive = after
        acted = [agent_id(seat) for seat in np.flatnonzero(before)]
        leaving = {agent_id(seat) for seat in np.flatnonzero(before & ~after)}
        reward = self._rewards(step.reward)
        shown = self._shown(last)
        ends = {a: terminated or a in leaving for a in acted}
        cuts = {a: truncated and not ends[a] for a in acted}
        infos = {agent: self._info(step, seat_of(agent), cut=cuts[agent]) for agent in acted}
        self._begun = None if step.final is None else step
        self.agents = [agent_id(seat) for seat in np.flatnonzero(after)]
        ends[EVERYBODY], cuts[EVERYBODY] = terminated, truncated and not terminated
        rewards = {agent: float(reward[seat_of(agent)]) for agent in acted}
        return {agent: shown[agent] for agent in acted}, rewards, ends, cuts, infos

    def _rewards(self, reward_BN: FloatArray) -> FloatArray:
        if self._options.reward == "own":
            return reward_BN[0]
        shared = self.env_spec.shared_reward
        team = reward_BN[:, 0] if shared else getattr(reward_BN, self._options.reward)(1)
        return np.repeat(team, self.env_spec.n_agents)

    @staticmethod
    def _info(step: TimeStep, seat: int, *, cut: bool) -> dict[str, Any]:
        info: dict[str, Any] = {CUT: True} if cut else {}
        if step.reached is not None:
            info[REACHED] = int(step.reached[0, seat])
        if step.final is not None and step.info:
            info[STATISTICS] = {name: float(value[0]) for name, value in step.info.items()}
        return info

    def _shown(self, view: Observation | FinalObservation | TimeStep) -> PerAgent:
        """What every seat sees now; the caller picks who is present."""
        seats = range(self.env_spec.n_agents)
        if self._options.plain:
            return {agent_id(seat): view.obs[0, seat].astype(np.float32) for seat in seats}
        self._past.add(
            obs=view.obs[0],
            state=view.state[0],
            avail=view.avail[0],
            last_actions=self._last,
            alive=self._alive,
        )
        common, time = self._past.shown(), np.array([self._time], np.int16)
        return {
            agent_id(seat): {
                **common,
                MASK: view.avail[0, seat].astype(np.int8),
                SEAT: np.array([seat], np.int16),
                TIME: time,
            }
            for seat in seats
        }

    def render(self) -> NDArray[np.uint8]:
        """An RGB picture."""
        return self.game.render()

    def close(self) -> None:
        """Free what the game holds."""
        self.game.close()


class History:
    """The last K moments of an episode as windows, [K, …]; what lies after them is zero."""

    def __init__(self, space: spaces.Dict) -> None:
        names = (OBS, STATE, AVAIL, LAST, ALIVE)
        self._windows = {name: np.zeros(space[name].shape, space[name].dtype) for name in names}
        self._slots = 0

    def add(self, **moment: NDArray[Any]) -> None:
        """One moment; windows that were handed out are not written to again."""
        full = self._slots == len(self._windows[OBS])
        self._slots += not full
        for name, value in moment.items():
            window = self._windows[name]
            window = np.roll(window, -1, axis=0) if full else window.copy()
            window[self._slots - 1] = value
            self._windows[name] = window

    def shown(self) -> dict[str, NDArray[Any]]:
        """What all seats are told alike."""
        return {**self._windows, SLOTS: np.array([self._slots], np.int16)}


def _alive(view: Observation | FinalObservation | TimeStep) -> BoolArray:
    """Who is present, [N]."""
    present = np.ones(view.obs.shape[1], np.bool_) if view.alive is None else view.alive[0]
    return present.copy()


def register() -> list[str]:
    """Tell RLlib of all our environments: `omg/<name>`, with `EnvOptions` as env_config."""
    names = list(ENVS)
    for name in names:
        register_env(PREFIX + name, Maker(name))
    return [PREFIX + name for name in names]


@dataclass(frozen=True, slots=True)
class Maker:
    """RLlib's env_creator; a class, so that workers can unpickle it."""

    name: str

    def __call__(self, config: Mapping[str, Any]) -> OmgEnv:
        return OmgEnv(self.name, config)
