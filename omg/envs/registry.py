"""Environment names, and how any environment becomes a batch of copies: native ones by themselves,
PyMARL-style games one after the other in this process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from omg.envs.contract import BatchedEnv, MultiAgentEnv
from omg.envs.serial import End, Rows, SerialEnv, close_games, episode_seed
from omg.registry import Registry
from omg.types import EnvSpec, FloatArray, Observation, OmgError

METHODS = (
    "reset",
    "step",
    "get_obs",
    "get_state",
    "get_avail_actions",
    "get_env_info",
    "close",
)


class BatchedEnvFactory(Protocol):
    """Makes some of the copies, e.g. `functools.partial(ForagingEnv, args=args)`."""

    def __call__(self, *, n_copies: int, first_copy: int) -> BatchedEnv:
        """Copies `first_copy` to `first_copy + n_copies - 1`."""


def _columns(value: Any) -> tuple[tuple[int, ...], ...]:
    """Columns of the state per agent; nothing where a game means something else by the key."""
    if any(isinstance(part, str) for part in value):
        return ()
    return tuple(tuple(int(column) for column in columns) for columns in value)


_OPTIONAL: Mapping[str, Callable[[Any], Any]] = {
    "obs_scale": float,
    "state_scale": float,
    "obs_dtype": str,
    "state_dtype": str,
    "obs_format": str,
    "agent_features": _columns,
    "roles": lambda value: tuple(str(role) for role in value),
    "obs_dims": lambda value: tuple(int(width) for width in value),
}


def spec_from_info(info: Mapping[str, Any], name: str) -> EnvSpec:
    """Read PyMARL's `get_env_info`, with our optional keys `shared_reward` (True when missing),
    `statistics` and those of `_OPTIONAL`, named as in `EnvSpec`; shapes are flattened.
    `agent_features` counts only where it lists columns (SMAC's own key names features)."""
    required = ("state_shape", "obs_shape", "n_actions", "n_agents", "episode_limit")
    if missing := [key for key in required if key not in info]:
        raise OmgError(
            f"get_env_info() of {name} lacks {', '.join(missing)}. "
            f"It must give {', '.join(required)}."
        )
    optional = {key: kind(info[key]) for key, kind in _OPTIONAL.items() if key in info}
    for key in ("roles", "obs_dims", "agent_features"):
        if len(optional.get(key, ())) not in (0, int(info["n_agents"])):
            raise OmgError(
                f"get_env_info() of {name} gives {len(optional[key])} {key} for "
                f"{info['n_agents']} agents. Give one for each."
            )
    return EnvSpec(
        name=name,
        n_agents=int(info["n_agents"]),
        n_actions=int(info["n_actions"]),
        obs_dim=int(np.prod(info["obs_shape"])),
        state_dim=int(np.prod(info["state_shape"])),
        episode_limit=int(info["episode_limit"]),
        shared_reward=bool(info.get("shared_reward", True)),
        statistics=tuple(info.get("statistics", ())),
        **optional,
    )


class SerialVectorEnv(SerialEnv):
    """Copies of a `MultiAgentEnv`, one after the other in this process.

    An end is a truncation when `info["episode_limit"]` is true, when the game has not ended by
    itself after `episode_limit` steps (it is cut there), or when it reports a plain end at
    exactly that step without the key and its env info has a true `limit_is_truncation`. Every
    other end is a termination. `info["dropped"]` restarts the copy and reports it as dropped.

    A single reward goes to all agents. Whether rewards are shared has to be known before the
    first step, so an environment with one reward per agent must say `shared_reward: False`.
    """

    def __init__(
        self,
        *,
        factory: Callable[[int], MultiAgentEnv],
        n_copies: int,
        first_copy: int = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(n_copies=n_copies, first_copy=first_copy)
        self._envs: list[MultiAgentEnv] = []
        try:
            for copy in range(first_copy, first_copy + n_copies):
                game = factory(copy)
                _require_methods(game)
                self._envs.append(game)
            infos = [env.get_env_info() for env in self._envs]
            name = name or str(infos[0].get("name", type(self._envs[0]).__name__))
            specs = [spec_from_info(info, name) for info in infos]
            if any(spec != specs[0] for spec in specs):
                raise OmgError(f"Copies of {name} differ in get_env_info(). Make them all alike.")
        except BaseException:
            self.close()
            raise
        self.spec = specs[0]
        self._limit_is_truncation = bool(infos[0].get("limit_is_truncation", False))
        self._takes_seed = accepts_seed(self._envs[0].reset)
        self._remake = getattr(factory, "seeded", None)

    def reset_at(self, seed: int, episodes: Sequence[int]) -> Observation:
        if self._remake is not None and not self._takes_seed:
            self._make_seeded_games(int(seed), episodes)
        return super().reset_at(seed, episodes)

    def _make_seeded_games(self, seed: int, episodes: Sequence[int]) -> None:
        """Games that are seeded when they are made, not at `reset`, are made anew."""
        assert self._remake is not None
        for b, episode in enumerate(episodes):
            copy = self._first_copy + b
            game = self._remake(copy, episode_seed(seed, copy, int(episode)))
            if game is not None:
                self._envs[b].close()
                self._envs[b] = game

    @property
    def games_save_replays(self) -> bool:
        """Whether the games have a `save_replay` of their own."""
        own = getattr(type(self._envs[0]), "save_replay", None)
        return own is not None and own is not MultiAgentEnv.save_replay

    def save_replay(self) -> None:
        """Have every game save its replay."""
        for env in self._envs:
            env.save_replay()

    def render(self, copy: int = 0) -> NDArray[np.uint8]:
        return self._envs[copy].render()

    def close(self) -> None:
        close_games(self._envs)

    def _start(self, b: int, seed: int) -> None:
        if self._takes_seed:
            self._envs[b].reset(seed=seed)
        else:
            self._envs[b].reset()

    def _act(
        self, b: int, actions: list[int], reward: FloatArray, info: Mapping[str, FloatArray]
    ) -> End:
        value, done, details = self._envs[b].step(actions)
        if details.get("dropped"):
            return End.DROPPED
        reward[...] = self._rewards(value, b)
        for name in info:
            info[name][b] = details.get(name, np.nan)
        if not done:
            return End.NONE
        at_limit = self._steps[b] >= self.spec.episode_limit
        cut = details.get("episode_limit", at_limit and self._limit_is_truncation)
        return End.TRUNCATED if cut else End.TERMINATED

    def _look(self, b: int, rows: Rows, at: int) -> None:
        spec, env = self.spec, self._envs[b]
        seats, actions = (spec.n_agents, spec.obs_dim), (spec.n_agents, spec.n_actions)
        rows.obs[at] = self._array(env.get_obs(), seats, what="observations", b=b)
        rows.state[at] = self._array(env.get_state(), (spec.state_dim,), what="state", b=b)
        rows.avail[at] = self._array(
            env.get_avail_actions(), actions, what="available actions", b=b
        )

    def _rewards(self, value: Any, b: int) -> FloatArray:
        reward = np.asarray(value, np.float32)
        n_agents = self.spec.n_agents
        if reward.ndim == 0:
            return reward
        if self.spec.shared_reward and n_agents > 1 and reward.shape == (n_agents,):
            raise OmgError(
                f"{self.spec.name} gives one reward per agent but did not announce it. "
                "Put 'shared_reward': False into the result of get_env_info()."
            )
        return self._array(reward, (n_agents,), what="rewards", b=b)

    def _array(self, value: Any, shape: tuple[int, ...], *, what: str, b: int) -> FloatArray:
        """`value` as float32 of this shape, or an error that says where."""
        try:
            array = np.asarray(value, np.float32)
            array = array.reshape(shape) if what in ("observations", "state") else array
        except ValueError:
            array = np.empty(0, np.float32)
        if array.shape != shape or (len(shape) == 2 and len(value) != shape[0]):
            raise OmgError(
                f"The {what} {self._where(b)} do not fit the shape {shape} that get_env_info() "
                f"announces: they have {_shape_of(value)}. Correct one of the two."
            )
        return array


def _require_methods(game: Any) -> None:
    lacking = [method for method in METHODS if not callable(getattr(game, method, None))]
    if not lacking:
        return
    advice = "Define what is missing (docs/environments/contract.md)."
    if hasattr(game, "possible_agents"):
        advice = (
            "It looks like a PettingZoo environment: name it as env_args.key of env=pettingzoo."
        )
    elif hasattr(game, "action_space"):
        advice = "It looks like a Gymnasium environment: name it as env_args.key of env=gymnasium."
    raise OmgError(
        f"{type(game).__name__} lacks {', '.join(lacking)}, which an environment with PyMARL's "
        f"methods has. {advice}"
    )


def accepts_seed(reset: Callable[..., Any]) -> bool:
    """Whether a `reset` can be called with a seed."""
    try:
        parameters = inspect.signature(reset).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.name == "seed" or p.kind is p.VAR_KEYWORD for p in parameters)


def _shape_of(value: Any) -> str:
    try:
        return f"shape {np.asarray(value, np.float32).shape}"
    except ValueError:
        return "rows of different lengths"


class EnvRegistry(Registry[Any]):
    """Classes that are a BatchedEnv (native) or have PyMARL's methods. Adding one: one line."""

    def _checked(self, name: str, found: Any) -> Any:
        if not all(callable(getattr(found, method, None)) for method in ("reset", "step")):
            raise OmgError(
                f"'{name}' is no environment: it has no reset and step. Give a class with "
                "PyMARL's methods, or derive it from omg.envs.contract.BatchedEnv."
            )
        return found


ENVS = EnvRegistry(
    "environment",
    {
        "foraging": "omg.envs.foraging.env:ForagingEnv",
        "gymnasium": "omg.envs.adapters.gymnasium:GymnasiumEnv",
        "matrix_game": "omg.envs.toys:MatrixGameEnv",
        "predator_prey": "omg.envs.predator_prey:PredatorPreyEnv",
        "sc2": "omg.envs.sc2.adapter:SmacEnv",
        "smacv2": "omg.envs.sc2.adapter:Smacv2Env",
        "pettingzoo": "omg.envs.adapters.pettingzoo:PettingZooEnv",
        "pymarl": "omg.envs.adapters.options:PymarlEnv",
        "spread": "omg.envs.spread:SpreadEnv",
        "two_step": "omg.envs.toys:TwoStepEnv",
    },
)


def environment_class(name: str) -> Any:
    """A registered class, or one given by import path as `package.module:Class`."""
    return ENVS[name]


def environment_versions(name: str, args: Mapping[str, Any]) -> dict[str, str]:
    """Versions of what a class runs on (a game, its packages), where it has a `versions(args)`."""
    told = getattr(environment_class(name), "versions", None)
    return dict(told(args)) if callable(told) else {}


@dataclass(frozen=True, slots=True)
class GameFactory:
    """Makes one PyMARL-style game; a class of its own so that worker processes can unpickle it."""

    name: str
    args: Mapping[str, Any]

    def __call__(self, copy: int) -> MultiAgentEnv:
        return self._make(self.args)

    def seeded(self, copy: int, seed: int) -> MultiAgentEnv | None:
        """The game of a copy with a seed of its own, if its class takes one and env_args leave it
        open (as StarCraft II does); None otherwise."""
        parameters = inspect.signature(environment_class(self.name)).parameters
        if "seed" not in parameters or self.args.get("seed") is not None:
            return None
        return self._make({**self.args, "seed": seed})

    def _make(self, args: Mapping[str, Any]) -> MultiAgentEnv:
        try:
            game: MultiAgentEnv = environment_class(self.name)(**args)
        except TypeError as error:
            parameters = inspect.signature(environment_class(self.name)).parameters
            takes = f"It takes: {', '.join(parameters)}." if parameters else "It takes none."
            raise OmgError(
                f"env={self.name} does not take these env_args: {error}. {takes}"
            ) from error
        return game


@dataclass(frozen=True, slots=True)
class BatchFactory:
    """Makes n_copies copies of an environment from first_copy on, here or in a worker."""

    name: str
    args: dict[str, Any]

    def __call__(self, first_copy: int, n_copies: int) -> BatchedEnv:
        kind = environment_class(self.name)
        if isinstance(kind, type) and issubclass(kind, BatchedEnv):
            native: BatchedEnv = kind(  # type: ignore[call-arg]
                args=self.args, n_copies=n_copies, first_copy=first_copy
            )
            return native
        return SerialVectorEnv(
            factory=GameFactory(self.name, self.args), n_copies=n_copies, first_copy=first_copy
        )


def make_batched(
    name: str, args: Mapping[str, Any], *, n_copies: int, first_copy: int = 0
) -> BatchedEnv:
    """Copies of an environment in this process."""
    return BatchFactory(name, dict(args))(first_copy, n_copies)
