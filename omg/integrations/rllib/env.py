"""Our environments as RLlib knows them: one copy, a vector per seat, and who has left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.tune.registry import register_env

from omg.config.arguments import Arguments, Update
from omg.config.loader import available, load
from omg.envs.registry import environment_class, make_batched
from omg.integrations.rllib.layout import History, Layout
from omg.integrations.rllib.settings import trusted_here
from omg.registry import trust
from omg.runners.rewards import team_reward
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


class OmgEnv(MultiAgentEnv):
    """One copy of an environment. A seat that leaves is terminated with its last observation and
    is absent from then on; the others play on. `episodes` counts those handed out."""

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        options = EnvOptions.of(dict(config))
        self.game = make_batched(name, options.env_args, n_copies=1)
        self.env_spec: EnvSpec = self.game.spec  # `spec` is gymnasium's
        self._options = options
        self.possible_agents = [agent_id(seat) for seat in range(self.env_spec.n_agents)]
        self.agents = list(self.possible_agents)
        self.layout = Layout(self.env_spec, options.window or self.env_spec.episode_limit + 1)
        shown = self.layout.space()
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
        """Begin an episode. The game restarts itself when one ends: then the next is there."""
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
        self._past = History(self.layout)
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
        acted = [agent_id(seat) for seat in _where(before)]
        leaving = {agent_id(seat) for seat in _where(before & ~after)}
        reward = self._rewards(step.reward)
        shown = self._shown(last)
        ends = {a: terminated or a in leaving for a in acted}
        cuts = {a: truncated and not ends[a] for a in acted}
        infos = {agent: self._info(step, seat_of(agent), cut=cuts[agent]) for agent in acted}
        self._begun = None if step.final is None else step
        self.agents = [agent_id(seat) for seat in _where(after)]
        ends[EVERYBODY], cuts[EVERYBODY] = terminated, truncated and not terminated
        rewards = {agent: float(reward[seat_of(agent)]) for agent in acted}
        return {agent: shown[agent] for agent in acted}, rewards, ends, cuts, infos

    def _rewards(self, reward_BN: FloatArray) -> FloatArray:
        if self._options.reward == "own":
            own: FloatArray = reward_BN[0]
            return own
        shared = self.env_spec.shared_reward
        team = team_reward(reward_BN, shared=shared, how=self._options.reward)
        everybody: FloatArray = np.full(self.env_spec.n_agents, team[0], np.float32)
        return everybody

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
            self._time,
            obs=view.obs[0],
            state=view.state[0],
            avail=view.avail[0],
            last_actions=self._last,
            alive=self._alive,
        )
        return {agent_id(seat): self._past.of_seat(seat) for seat in seats}

    def render(self) -> NDArray[np.uint8]:
        """An RGB picture."""
        return self.game.render()

    def close(self) -> None:
        """Free what the game holds."""
        self.game.close()


def _alive(view: Observation | FinalObservation | TimeStep) -> BoolArray:
    """Who is present, [N]."""
    present = np.ones(view.obs.shape[1], np.bool_)
    return present if view.alive is None else present & view.alive[0]


def _where(seats_N: BoolArray) -> list[int]:
    return [int(seat) for seat in np.flatnonzero(seats_N)]


@dataclass(frozen=True, slots=True)
class Maker:
    """RLlib's env_creator; a class, so that workers can unpickle it. `shipped`: the name is one of
    our environment configurations, whose env_args are changed by those given."""

    name: str
    shipped: bool = False
    trusted: tuple[str, ...] = ()  # what the program that made it has named

    def __call__(self, config: Mapping[str, Any]) -> OmgEnv:
        trust(*self.trusted)
        if not self.shipped:
            return OmgEnv(self.name, config)
        given = {**config}
        changes = given.pop("env_args", {})
        updates = tuple(Update(f"env_args.{k}", v, f"{k}={v!r}") for k, v in changes.items())
        loaded = load(Arguments(env=self.name, updates=updates)).config
        return OmgEnv(loaded.env, {**given, "env_args": dict(loaded.env_args)})


def register() -> list[str]:
    """Tell RLlib of all our environment configurations: `omg/foraging`, `omg/predator_prey` …,
    with `EnvOptions` as env_config. The names."""
    names = available("envs")
    for name in names:
        register_env(PREFIX + name, Maker(name, shipped=True))
    return [PREFIX + name for name in names]


def register_game(name: str) -> str:
    """Tell RLlib of a game of the registry or by import path, without a configuration; the name."""
    environment_class(name)  # refused here if it is not trusted
    register_env(f"{PREFIX}game/{name}", Maker(name, trusted=tuple(trusted_here())))
    return f"{PREFIX}game/{name}"
