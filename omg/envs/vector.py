"""B copies of any PyMARL-style environment in this process, stepped as one `BatchedEnv`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from omg.envs.contract import BatchedEnv, MultiAgentEnv
from omg.envs.serial import End, Rows, SerialEnv, close_games, episode_seed
from omg.types import EnvSpec, FloatArray, IntArray, Observation, OmgError

__all__ = ["BatchedEnvFactory", "SerialVectorEnv", "accepts_seed", "episode_seed", "spec_from_info"]

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
    "opposed": bool,
    "obs_dims": lambda value: tuple(int(width) for width in value),
    "leavers": bool,
    "goals": lambda value: tuple(str(goal) for goal in value),
    "goal_features": _columns,
    "event_actions": lambda value: tuple(int(action) for action in value),
}


def spec_from_info(info: Mapping[str, Any], name: str) -> EnvSpec:
    """Read PyMARL's `get_env_info`, with our optional keys `shared_reward` (True when missing),
    `statistics` and those of `_OPTIONAL`, named as in `EnvSpec`; shapes are flattened.
    `agent_features` counts only where it lists columns (SMAC's own key names features)."""
    required = ("state_shape", "obs_shape", "n_actions", "n_agents", "episode_limit")
    if not isinstance(info, Mapping):
        raise OmgError(
            f"get_env_info() of {name} gives a {type(info).__name__}. It must give a mapping with "
            f"{', '.join(required)}."
        )
    if missing := [key for key in required if key not in info]:
        raise OmgError(
            f"get_env_info() of {name} lacks {', '.join(missing)}. "
            f"It must give {', '.join(required)}."
        )
    sizes = {key: _size(info[key], key, name) for key in required}
    optional = {key: kind(info[key]) for key, kind in _OPTIONAL.items() if key in info}
    for key in ("roles", "obs_dims", "agent_features"):
        if len(optional.get(key, ())) not in (0, sizes["n_agents"]):
            raise OmgError(
                f"get_env_info() of {name} gives {len(optional[key])} {key} for "
                f"{info['n_agents']} agents. Give one for each."
            )
    return EnvSpec(
        name=name,
        n_agents=sizes["n_agents"],
        n_actions=sizes["n_actions"],
        obs_dim=sizes["obs_shape"],
        state_dim=sizes["state_shape"],
        episode_limit=sizes["episode_limit"],
        shared_reward=bool(info.get("shared_reward", True)),
        statistics=tuple(info.get("statistics", ())),
        **optional,
    )


def _size(value: Any, key: str, name: str) -> int:
    """A number or a shape as the number of its entries; without any, there is nothing to play."""
    try:
        size = int(np.prod(value))
    except (TypeError, ValueError, OverflowError):
        size = 0
    least = 0 if key == "state_shape" else 1
    if size < least:
        raise OmgError(
            f"get_env_info() of {name} gives {key}={str(value)[:60]}. Give a whole number above "
            f"{least - 1}{' or a shape' if key.endswith('shape') else ''}."
        )
    return size


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
            if name is None:
                told = infos[0].get("name") if isinstance(infos[0], Mapping) else None
                name = str(told or type(self._envs[0]).__name__)
            specs = [spec_from_info(info, name) for info in infos]
            if any(spec != specs[0] for spec in specs):
                raise OmgError(f"Copies of {name} differ in get_env_info(). Make them all alike.")
        except BaseException:
            self.close()
            raise
        self.spec = specs[0]
        if self.spec.leavers and not callable(getattr(self._envs[0], "get_alive", None)):
            self.close()
            raise OmgError(
                f"get_env_info() of {name} says that agents may leave, and it has no get_alive(). "
                "Define it: 1 for every agent that still acts, 0 for one that has left."
            )
        self._told_goals: list[Any] = [None] * n_copies
        self._limit_is_truncation = bool(infos[0].get("limit_is_truncation", False))
        self._takes_seed = accepts_seed(self._envs[0].reset)
        self._remake = getattr(factory, "seeded", None)

    def reset_at(self, seed: int, episodes: Sequence[int]) -> Observation:
        if self._remake is not None and not self._takes_seed:
            self._make_seeded_games(int(seed), episodes)
        return super().reset_at(seed, episodes)

    def _make_seeded_games(self, seed: int, episodes: Sequence[int]) -> None:
        """Games that are seeded when they are made, not at `reset`, are made again."""
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
        answer = self._envs[b].step(actions)
        if not (isinstance(answer, tuple) and len(answer) == 3 and isinstance(answer[2], Mapping)):
            raise OmgError(
                f"step() {self._where(b)} gives {_kinds_of(answer)}. It must give (reward, "
                "terminated, info), and info is a mapping."
            )
        value, done, details = answer
        if details.get("dropped"):
            return End.DROPPED
        self._told_goals[b] = details.get("reached")
        reward[...] = self._rewards(value, b)
        for name in info:
            info[name][b] = details.get(name, np.nan)
        if not done:
            return End.NONE
        at_limit = self._steps[b] >= self.spec.episode_limit
        cut = details.get("episode_limit", at_limit and self._limit_is_truncation)
        return End.TRUNCATED if cut else End.TERMINATED

    def _reached(self, b: int, reached: IntArray) -> None:
        told = self._told_goals[b]
        if told is None:
            raise OmgError(
                f"step() {self._where(b)} does not say which goals were reached. Put 'reached' "
                "into its info: a number of get_env_info()['goals'] per agent, or -1."
            )
        reached[...] = self._array(told, reached.shape, what="goals reached", b=b)

    def _look(self, b: int, rows: Rows, at: int) -> None:
        spec, env = self.spec, self._envs[b]
        seats, actions = (spec.n_agents, spec.obs_dim), (spec.n_agents, spec.n_actions)
        rows.obs[at] = self._array(env.get_obs(), seats, what="observations", b=b)
        rows.state[at] = self._array(env.get_state(), (spec.state_dim,), what="state", b=b)
        rows.avail[at] = self._array(
            env.get_avail_actions(), actions, what="available actions", b=b
        )
        if rows.alive is not None:
            alive = env.get_alive()  # type: ignore[attr-defined]
            rows.alive[at] = self._array(alive, (spec.n_agents,), what="living agents", b=b)

    def _rewards(self, value: Any, b: int) -> FloatArray:
        try:
            reward = np.asarray(value, np.float32)
        except (TypeError, ValueError) as error:
            shown = str(value)[:60]
            raise OmgError(f"The reward {self._where(b)} is {shown}. Give numbers.") from error
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
        except (TypeError, ValueError):
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


def _kinds_of(answer: Any) -> str:
    """What a `step` handed back instead of a triple."""
    if not isinstance(answer, tuple):
        return f"a {type(answer).__name__}"
    return f"({', '.join(type(part).__name__ for part in answer)})"


def _shape_of(value: Any) -> str:
    try:
        return f"shape {np.asarray(value, np.float32).shape}"
    except (TypeError, ValueError):
        return "rows of different lengths"
